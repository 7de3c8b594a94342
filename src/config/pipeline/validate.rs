//! A processor of type `validate`.

use crate::config::path::EventPath;
use crate::config::pattern::{OutboxPattern, PrefixPattern};
use crate::config::payload_schemas::PayloadSchemas;

/// What an event must have to go on.
#[derive(Debug, Clone)]
pub struct Validate {
    /// Name in metrics; `validate` when the file does not say.
    pub id: String,
    /// Whose events it looks at, of outboxes and of ordinary tables: the others pass. Empty: all.
    pub tables: Vec<OutboxPattern>,
    /// None: payloads need not match a schema.
    pub schemas: Option<Schemas>,
    /// Where the event's type is, as a path of names; not empty.
    pub event_type: Vec<String>,
    /// The same of its payload.
    pub payload: Vec<String>,
    pub require: Vec<Requirement>,
    /// Paths of names of fields that the event itself must have, other than null.
    pub require_fields: Vec<Vec<String>>,
}

/// Schemas of payloads, and how an event's is found.
#[derive(Debug, Clone)]
pub struct Schemas {
    pub known: PayloadSchemas,
    /// Where the version is; none, or a field that is missing or null: the default.
    pub version: Option<Vec<String>>,
    pub default_version: String,
    pub on_missing: OnMissingSchema,
}

/// What payloads of some types must have.
#[derive(Debug, Clone)]
pub struct Requirement {
    /// Types of events, matched as a whole. None: all events, those without a type too.
    pub event_types: Option<Vec<PrefixPattern>>,
    /// Paths in the payload, to what must be there and not be null.
    pub paths: Vec<EventPath>,
}

/// What becomes of an event for whose type and version there is no schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnMissingSchema {
    /// It is invalid.
    #[default]
    Reject,
    Allow,
}
