//! A processor of type `validate`.

use std::sync::Arc;

use reqwest::Url;

use super::{HttpAuth, Ssl};
use crate::config::path::EventPath;
use crate::config::pattern::{OutboxPattern, PrefixPattern};
use crate::config::payload_schemas::PayloadSchemas;
use crate::config::template::Template;

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
    pub sequence: Option<Sequence>,
    /// Paths of names of fields that the event itself must have, other than null.
    pub require_fields: Vec<Vec<String>>,
}

/// Schemas of payloads, and how an event's is found.
#[derive(Debug, Clone)]
pub struct Schemas {
    pub place: SchemaPlace,
    /// Where the version is; none, or a field that is missing or null: the default.
    pub version: Option<Vec<String>>,
    pub default_version: String,
    pub on_missing: OnMissingSchema,
}

/// Where schemas are.
#[derive(Debug, Clone)]
pub enum SchemaPlace {
    /// In a folder, all read.
    Folder(PayloadSchemas),
    /// In a registry, from which each is fetched when it is needed.
    Registry(Arc<SchemaRegistry>),
}

/// A registry that speaks the API of Confluent's.
#[derive(Debug)]
pub struct SchemaRegistry {
    /// Of http or https, without a user.
    pub url: Url,
    /// None: an event's subject is its type.
    pub subject: Option<Template>,
    pub auth: Option<HttpAuth>,
    pub tls: Ssl,
}

/// What payloads of some types must have.
#[derive(Debug, Clone)]
pub struct Requirement {
    /// Types of events, matched as a whole. None: all events, those without a type too.
    pub event_types: Option<Vec<PrefixPattern>>,
    /// Paths in the payload, to what must be there and not be null.
    pub paths: Vec<EventPath>,
}

/// Numbers that go up by one in each aggregate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sequence {
    /// Where an event's number is, as a path of names.
    pub field: Vec<String>,
    /// Paths to what names its aggregate; at least one.
    pub per: Vec<Vec<String>>,
    pub on_repeat: OnFault,
    pub on_gap: OnFault,
    pub on_backwards: OnFault,
    /// Those that are known at once.
    pub max_aggregates: usize,
}

/// What becomes of an event whose number is out of sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnFault {
    /// It passes, and is counted.
    Ignore,
    /// The same, and the log says so.
    #[default]
    Warn,
    DeadLetter,
    Halt,
}

/// What becomes of an event for whose type and version there is no schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnMissingSchema {
    /// It is invalid.
    #[default]
    Reject,
    Allow,
}
