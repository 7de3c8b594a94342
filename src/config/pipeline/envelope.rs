//! What stands around a change of an ordinary table, and around a payload that isn't sent raw.

/// The first part of a CloudEvent's type where the file does not say.
pub const DEFAULT_TYPE_PREFIX: &str = "tailpost";

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Envelope {
    Native,
    Debezium { schema: DebeziumSchema },
    CloudEvents(CloudEvents),
}

/// What Debezium's envelope says of the schema of its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DebeziumSchema {
    /// A member that is null, beside the payload.
    Null,
    /// Nothing: the payload is the whole value, as with `schemas.enable=false`.
    Omit,
}

/// An envelope of type `cloudevents`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CloudEvents {
    pub mode: CloudEventsMode,
    /// The first part of each type. None: an outbox event's type is the application's alone, and that of a table's change
    /// begins with [`DEFAULT_TYPE_PREFIX`].
    pub type_prefix: Option<String>,
    /// A URI reference. None: made of the source's id and the table.
    pub source: Option<String>,
    pub change_types: ChangeTypes,
}

/// Where a CloudEvent's attributes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloudEventsMode {
    /// In the value, which is a JSON object.
    Structured,
    /// In headers, beside a value that stays as it is.
    Binary,
}

/// What the type of a table's change says behind the prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeTypes {
    /// `public.orders.created`
    TableAndOperation,
    /// `created`, as DeltaForge has it.
    Operation,
}
