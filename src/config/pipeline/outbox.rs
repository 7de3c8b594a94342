//! A processor of type `outbox`.

use crate::config::pattern::OutboxPattern;
use crate::config::route::Route;
use crate::config::template::Template;

/// What becomes of outbox events. With its defaults it takes every outbox.
#[derive(Debug, Clone)]
pub struct Outbox {
    /// Name in metrics; `outbox` when the file does not say.
    pub id: String,
    /// Which outboxes it takes: a message prefix, a table, or schema and table. Empty: all.
    pub tables: Vec<OutboxPattern>,
    /// Step 1 of the topic's cascade.
    pub topic: Option<TopicRule>,
    pub columns: Columns,
    /// Step 3 of the topic's cascade; a legal topic name.
    pub default_topic: Option<String>,
    /// The record's key; none: the aggregate id.
    pub key: Option<Template>,
    pub key_as: KeyAs,
    /// A Connect schema, as JSON, that stands around the key. Only with [`KeyAs::Json`].
    pub key_schema: Option<String>,
    /// Whether an empty aggregate id is a key, and not none.
    pub keep_empty_key: bool,
    pub headers_as: HeadersAs,
    pub json_as: JsonAs,
    pub header_names: HeaderNames,
    /// Header name and the field that fills it, in the file's order.
    pub additional_headers: Vec<(String, String)>,
    /// None: records have no such header.
    pub idempotency: Option<Idempotency>,
    /// Member name and the field that fills it, in the file's order: with any, the value is an object of the payload, as
    /// `payload`, and these. Only where the value is the payload.
    pub envelope_fields: Vec<(String, String)>,
    pub on_missing: OnMissing,
    pub on_null: OnNull,
    /// Whether the value is the payload, without an envelope.
    pub raw_payload: bool,
    pub payload_as: PayloadAs,
    /// Only with [`PayloadAs::Compact`] and [`PayloadAs::Expanded`].
    pub left_out: LeftOut,
    /// A Connect schema, as JSON, that stands around the value. Only with [`PayloadAs::JsonString`].
    pub payload_schema: Option<String>,
    /// Whether a payload that is empty or blank is a tombstone. Only where the value is the payload.
    pub tombstone_on_empty: bool,
    /// Whether a missing field makes an event invalid.
    pub strict: bool,
    pub on_update: OnUpdate,
}

impl Outbox {
    /// Step 2 of the topic's cascade: the field with the event's own topic. With a route only where the file names it: what a
    /// route does not match is no topic of its own.
    pub fn topic_column(&self) -> Option<&str> {
        match (&self.topic, &self.columns.topic) {
            (_, Some(name)) => Some(name),
            (Some(TopicRule::Route(_)), None) => None,
            (Some(TopicRule::Template(_)) | None, None) => Some(Columns::TOPIC),
        }
    }
}

/// An event's own topic.
#[derive(Debug, Clone)]
pub enum TopicRule {
    Template(Template),
    Route(Route),
}

impl TopicRule {
    pub fn template(&self) -> Option<&Template> {
        match self {
            Self::Template(template) => Some(template),
            Self::Route(_) => None,
        }
    }
}

/// Where an outbox event's fields are: JSON members of a message, or columns of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Columns {
    pub payload: String,
    pub aggregate_type: String,
    pub aggregate_id: String,
    pub event_type: String,
    /// None: the file does not say. See [`Outbox::topic_column`].
    pub topic: Option<String>,
    pub event_id: String,
    /// The record's timestamp; none, or a field that is missing or null: the commit's time.
    pub timestamp: Option<TimestampColumn>,
    /// The record's partition; none, or a field that is missing or null: by the key.
    pub partition: Option<String>,
    /// A JSON object or an hstore, whose members become headers.
    pub headers: Option<String>,
    /// The context of a trace.
    pub trace: Option<String>,
}

/// A field that has a time: a date and time as text, or a count since 1970.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimestampColumn {
    pub name: String,
    /// What is counted; none: by the number's size.
    pub unit: Option<TimeUnit>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeUnit {
    Seconds,
    Millis,
    Micros,
    Nanos,
}

impl Columns {
    /// The headers that a trace becomes.
    pub const TRACE_HEADERS: [&str; 2] = ["traceparent", "tracestate"];

    /// The field with the event's own topic, where the file names none and there is no route.
    pub const TOPIC: &str = "topic";
}

impl Default for Columns {
    fn default() -> Self {
        Self {
            payload: "payload".to_owned(),
            aggregate_type: "aggregate_type".to_owned(),
            aggregate_id: "aggregate_id".to_owned(),
            event_type: "event_type".to_owned(),
            topic: None,
            event_id: "id".to_owned(),
            timestamp: None,
            partition: None,
            headers: None,
            trace: None,
        }
    }
}

/// What the headers are called that are made of an event's own fields. None: there is no such header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderNames {
    pub event_id: Option<String>,
    pub aggregate_type: Option<String>,
    pub aggregate_id: Option<String>,
    pub event_type: Option<String>,
}

impl Default for HeaderNames {
    fn default() -> Self {
        Self {
            event_id: Some("df-event-id".to_owned()),
            aggregate_type: Some("df-aggregate-type".to_owned()),
            aggregate_id: Some("df-aggregate-id".to_owned()),
            event_type: Some("df-event-type".to_owned()),
        }
    }
}

impl HeaderNames {
    /// Those that there are.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        let all = [
            &self.event_id,
            &self.aggregate_type,
            &self.aggregate_id,
            &self.event_type,
        ];
        all.into_iter().flatten().map(String::as_str)
    }
}

/// The header by which consumers tell that they have done an event before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idempotency {
    /// Its name, which no other header has.
    pub header: String,
    pub key: IdempotencyKey,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IdempotencyKey {
    /// The field that has it.
    Column(String),
    /// The SHA-256 of the parts' texts with the separator between them, as hexadecimal digits.
    Sha256 { parts: Vec<Template>, separator: String },
}

impl IdempotencyKey {
    /// The event's own fields that it takes.
    pub fn fields(&self) -> impl Iterator<Item = &String> {
        let (column, parts) = match self {
            Self::Column(name) => (Some(name), &[][..]),
            Self::Sha256 { parts, .. } => (None, &parts[..]),
        };
        let of_parts = parts.iter().flat_map(Template::fields);
        column.into_iter().chain(of_parts.filter_map(|path| path.first()))
    }
}

/// What becomes of a header, a member of the value, a timestamp or a partition whose field the event does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnMissing {
    /// The record goes without it.
    #[default]
    Skip,
    /// The event is invalid.
    Reject,
}

/// What becomes of an additional header whose field is null.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnNull {
    /// The record goes without it.
    #[default]
    Skip,
    /// The header is there, and its value is null.
    Keep,
}

/// How a key is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KeyAs {
    /// Its text.
    #[default]
    Text,
    /// A number or boolean as it is, other text as a JSON string, no key as `null`.
    Json,
}

/// How the headers' values are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HeadersAs {
    /// Their text.
    #[default]
    Text,
    /// A number or boolean as it is, other text as a JSON string, a null as `null`.
    Json,
}

/// How a field that is JSON is written as a header, and one of a JSON column as a member beside the payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum JsonAs {
    /// By its value: as a header its text, which objects and lists do not have; as a member JSON.
    #[default]
    Value,
    /// As it is written, objects and lists too; of a JSON column always, as a text.
    Text,
    /// The same, without blanks between its tokens.
    Compact,
}

/// What becomes of an UPDATE of an outbox's row, which is no event; the later the graver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum OnUpdate {
    /// It is counted as skipped.
    #[default]
    Skip,
    /// The same, and the log says so.
    Warn,
    /// The pipeline ends.
    Halt,
}

/// How a raw payload is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PayloadAs {
    /// As it is.
    #[default]
    Raw,
    /// A JSON string without its quotes and escapes; anything else as it is.
    Text,
    /// As a JSON string of its text, unless it is one in a message; of a null, `null`.
    JsonString,
    /// JSON without blanks between its tokens; anything else as it is.
    Compact,
    /// An object as Connect's data writes it; anything else as [`Self::JsonString`].
    Expanded,
}

/// Which members of a payload's objects are left out, at every depth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LeftOut {
    /// Those that are null.
    pub null_members: bool,
    /// Those that are empty arrays.
    pub empty_arrays: bool,
}
