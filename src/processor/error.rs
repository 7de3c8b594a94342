//! Why no record can be made of an event, in words for the operator: names and positions, never a value.

use std::sync::Arc;

use bytes::Bytes;

use super::dead_letter::DeadLetterReason;
use crate::config::pipeline::{ErrorPolicies, ErrorPolicy, OnFault, OnUpdate};
use crate::event::{Change, ChangeEvent, Selection};
use crate::position::EventPosition;
use crate::record::{About, Header};
use crate::sequences::SequenceFault;
use crate::skip::SkipReason;

/// An event that cannot go its way, for the pipeline's error policy.
#[derive(Debug, thiserror::Error)]
#[error("{event} at {position}: {problem}")]
pub struct ProcessError {
    /// What it is and where it comes from.
    pub event: String,
    pub position: EventPosition,
    pub problem: Box<Problem>,
    /// The event itself, for a dead letter, as is what can be told of its record.
    pub change: Box<ChangeEvent>,
    pub outline: Box<Outline>,
}

/// As much as can be told of a record that cannot be made as a whole.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outline {
    pub topic: Option<Arc<str>>,
    pub key: Option<Bytes>,
    pub headers: Vec<Header>,
    pub about: Option<Box<About>>,
}

impl ProcessError {
    pub(super) fn new(event: ChangeEvent, problem: Problem, outline: Outline) -> Self {
        let outbox = match event.selection {
            Selection::Outbox => "outbox ",
            Selection::Table => "",
        };
        let name = match &event.change {
            Change::Message(message) => format!("{outbox}message with prefix `{}`", message.prefix),
            Change::Row(row) => format!("{outbox}row of `{}.{}`", row.table.schema, row.table.name),
            Change::Oversized(_) => format!("{outbox}event"),
        };
        Self {
            event: name,
            position: event.position.clone(),
            problem: Box::new(problem),
            change: Box::new(event),
            outline: Box::new(outline),
        }
    }

    pub fn kind(&self) -> ErrorKind {
        self.problem.kind()
    }

    /// What is to be done with the event.
    pub fn policy(&self, policies: &ErrorPolicies) -> ErrorPolicy {
        match &*self.problem {
            Problem::Updated {
                on_update: OnUpdate::Halt,
            } => ErrorPolicy::Halt,
            Problem::Updated { .. } => ErrorPolicy::Skip,
            Problem::OutOfSequence { action, .. } => match action {
                OnFault::DeadLetter => ErrorPolicy::DeadLetter,
                OnFault::Halt | OnFault::Warn | OnFault::Ignore => ErrorPolicy::Halt,
            },
            problem => problem.kind().policy(policies),
        }
    }

    /// The file's key that says so.
    pub fn policy_key(&self) -> &'static str {
        match (&*self.problem, self.kind()) {
            (Problem::Updated { .. }, _) => "on_update",
            (Problem::OutOfSequence { fault, .. }, _) => sequence_key(*fault),
            (_, ErrorKind::Invalid) => "errors.invalid",
            (_, ErrorKind::Unroutable) => "errors.unroutable",
            (_, ErrorKind::Rejected) => "errors.rejected",
        }
    }

    /// What it is counted as where it is skipped.
    pub fn skip_reason(&self) -> SkipReason {
        match &*self.problem {
            Problem::Updated { .. } => SkipReason::OutboxUpdate,
            problem => problem.kind().skip_reason(),
        }
    }

    /// Whether the next of them will say the same: an application that updates its outbox does so for each event.
    pub fn repeats(&self) -> bool {
        matches!(*self.problem, Problem::Updated { .. })
    }

    /// Why the event is parked, where that is the policy.
    pub fn dead_letter_reason(&self) -> DeadLetterReason {
        self.problem.parked_for().0
    }
}

/// Which of the pipeline's error policies an error falls under.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The event lacks or spoils what its processor needs.
    Invalid,
    /// No topic, or none that Kafka allows.
    Unroutable,
    /// Over a limit.
    Rejected,
}

impl ErrorKind {
    /// The file's key under `errors`, and the metrics' label.
    pub fn label(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::Unroutable => "unroutable",
            Self::Rejected => "rejected",
        }
    }

    /// What it is counted as where the policy skips it.
    pub fn skip_reason(self) -> SkipReason {
        match self {
            Self::Invalid => SkipReason::Invalid,
            Self::Unroutable => SkipReason::Unroutable,
            Self::Rejected => SkipReason::Rejected,
        }
    }

    pub fn policy(self, policies: &ErrorPolicies) -> ErrorPolicy {
        match self {
            Self::Invalid => policies.invalid,
            Self::Unroutable => policies.unroutable,
            Self::Rejected => policies.rejected,
        }
    }
}

/// What stands in an event's way.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    #[error(
        "there is no field `{field}` for the payload: expected the member or column that `columns.payload` names, \
         be it null"
    )]
    NoPayload { field: String },
    #[error(
        "there is no field `{field}` for {place}: expected the member or column, be it null, or `on_missing: skip`"
    )]
    NoAdditionalField { place: String, field: String },
    #[error(
        "`{field}` is no time after 1970: expected a date and time, or a count of s, ms, us or ns (`columns.timestamp.unit` says \
         of which, and is needed below 10^8)"
    )]
    NoTimestamp { field: String },
    #[error("`{field}` holds no headers: expected a JSON object or an hstore")]
    NoHeaders { field: String },
    #[error("`{field}` is no partition: expected an integer from 0 to 2147483647, or null for the key's")]
    NoPartition { field: String },
    #[error("`strict` found no text in {fields}: expected a non-empty text, a number or a boolean in each")]
    StrictFields { fields: String },
    #[error("`strict` found no topic: {tried}; expected a topic there, or `strict: false` for {later}")]
    StrictTopic { tried: String, later: &'static str },
    #[error("`{field}` is no text: {fault}; expected what can be written as UTF-8")]
    NotText { field: String, fault: TextFault },
    #[error(
        "the payload is not UTF-8, which the envelope needs: set `raw_payload: true` to publish the bytes as they are"
    )]
    PayloadNotText,
    #[error(
        "its cloudevents attribute `{attribute}` has a control character or a noncharacter: expected text without them"
    )]
    IllegalAttribute { attribute: &'static str },
    #[error("the change holds no new row: expected one with an insert")]
    NoNewRow,

    #[error(
        "`{path}` cannot be masked: it is {found}; expected {expected}, or `on_mismatch: ignore` to leave it as it is"
    )]
    Unmaskable {
        path: String,
        expected: &'static str,
        found: &'static str,
    },
    #[error("`{path}` cannot be masked: {place} is no JSON; expected JSON, or no rule for what is inside")]
    MaskedNotJson { path: String, place: &'static str },

    #[error("there is no schema of version `{version}` for {event}: expected one, or `on_missing_schema: allow`")]
    NoSchema { event: String, version: String },
    #[error("its schema `{schema}` in the registry cannot be used: it {fault}")]
    SchemaUnusable { schema: String, fault: String },
    #[error("the payload does not match its schema `{schema}`: {faults}")]
    SchemaViolated { schema: String, faults: String },
    #[error("`{field}` cannot be read as a payload of JSON: {fault}")]
    PayloadUnreadable { field: String, fault: String },
    #[error("the payload lacks {paths}: expected what is not null there (`require`)")]
    PayloadLacks { paths: String },
    #[error("it lacks {fields}: expected what is not null there (`require_fields`)")]
    FieldsMissing { fields: String },
    #[error(
        "`{field}` is no number of a sequence: expected a whole number of 64 bits, or null for none (`sequence.field`)"
    )]
    NoSequenceNumber { field: String },
    #[error(
        "`{field}` is {number}, {}: expected {}, behind the highest of its aggregate (`sequence.{}`)",
        in_words(*fault), next(*highest), sequence_key(*fault)
    )]
    OutOfSequence {
        field: String,
        number: i64,
        highest: i64,
        fault: SequenceFault,
        action: OnFault,
    },

    #[error(
        "it was updated, and only an INSERT is an event: the update is not published; insert a row for each event, and set \
         `on_update: {}` of the outbox processor to {}", advice(*on_update).0, advice(*on_update).1
    )]
    Updated { on_update: OnUpdate },

    #[error("no outbox processor takes it: expected one whose `tables` match, or one without `tables`")]
    NotTaken,
    #[error("it has no topic: {tried}; set `default_topic` of the outbox processor or `topic` of the sink")]
    NoTopic { tried: String },
    #[error("it has no topic: {tried}; set `default_topic` of the outbox processor, or let its `route` match")]
    NotRouted { tried: String },
    #[error("it has no topic: {tried}; {remedy}")]
    NoTableTopic { tried: String, remedy: Remedy },
    #[error("it has no URL: the sink's `url` finds no text in `{field}`; {remedy}")]
    NoTableUrl { field: String, remedy: Remedy },
    #[error("it has no key: the sink's `{key}` asks for `{field}`; {remedy}")]
    KeyNotLogged {
        key: &'static str,
        field: String,
        remedy: Remedy,
    },
    #[error("it has no URL: the sink's `url` finds no text in `{field}`; expected a text, a number or a boolean there")]
    NoUrl { field: String },
    #[error("`{field}` would be another path in the sink's `url`: expected a text other than `.` and `..`")]
    IllegalUrl { field: String },
    #[error("{origin} gives a topic that kafka does not allow: {fault}; expected 1 to 249 of a-z A-Z 0-9 . _ -")]
    IllegalTopic { origin: String, fault: TopicFault },

    #[error(
        "`{name}` sent {bytes} bytes, over the limit of {limit}: raise `max_message_bytes` of the source to take it in"
    )]
    Oversized { name: String, bytes: u64, limit: u64 },
}

impl Problem {
    /// Why its event is parked, where that is the policy, and the word for it in a dead letter's headers.
    pub(super) fn parked_for(&self) -> (DeadLetterReason, &'static str) {
        let reason = match self {
            Self::StrictFields { .. }
            | Self::StrictTopic { .. }
            | Self::NoSchema { .. }
            | Self::SchemaUnusable { .. }
            | Self::SchemaViolated { .. }
            | Self::PayloadUnreadable { .. }
            | Self::PayloadLacks { .. }
            | Self::FieldsMissing { .. }
            | Self::NoSequenceNumber { .. }
            | Self::OutOfSequence { .. } => DeadLetterReason::SchemaValidationFailed,
            _ => DeadLetterReason::PoisonMessage,
        };
        let detail = match self {
            Self::Oversized { .. } => "oversized",
            other => other.kind().label(),
        };
        (reason, detail)
    }

    /// Whether another schema could let the event pass.
    pub(super) fn is_by_schema(&self) -> bool {
        matches!(
            self,
            Self::NoSchema { .. } | Self::SchemaUnusable { .. } | Self::SchemaViolated { .. }
        )
    }

    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::NoPayload { .. }
            | Self::NoAdditionalField { .. }
            | Self::NoTimestamp { .. }
            | Self::NoPartition { .. }
            | Self::NoHeaders { .. }
            | Self::StrictFields { .. }
            | Self::StrictTopic { .. }
            | Self::NotText { .. }
            | Self::PayloadNotText
            | Self::IllegalAttribute { .. }
            | Self::NoNewRow
            | Self::KeyNotLogged { .. }
            | Self::Unmaskable { .. }
            | Self::MaskedNotJson { .. }
            | Self::NoSchema { .. }
            | Self::SchemaUnusable { .. }
            | Self::SchemaViolated { .. }
            | Self::PayloadUnreadable { .. }
            | Self::PayloadLacks { .. }
            | Self::FieldsMissing { .. }
            | Self::NoSequenceNumber { .. }
            | Self::OutOfSequence { .. }
            | Self::Updated { .. } => ErrorKind::Invalid,
            Self::NotTaken
            | Self::NoTopic { .. }
            | Self::NotRouted { .. }
            | Self::NoTableTopic { .. }
            | Self::NoTableUrl { .. }
            | Self::IllegalTopic { .. }
            | Self::NoUrl { .. }
            | Self::IllegalUrl { .. } => ErrorKind::Unroutable,
            Self::Oversized { .. } => ErrorKind::Rejected,
        }
    }
}

/// What helps where a table's change has no text that the sink asks for. Of what the log lacks it helps with the changes to
/// come; those that are in the log already go by the error policy of this kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Remedy {
    #[error("set `topic` of the sink")]
    SetTopic,
    #[error(
        "the log does not have it of this change: ALTER TABLE ... REPLICA IDENTITY FULL, or ask for columns of the replica \
         identity alone; for what is in the log already, `errors.{}: dead_letter` or `skip` until it is past",
        .0.label()
    )]
    ReplicaIdentity(ErrorKind),
    #[error(
        "the log does not have it of this change: set binlog_row_image to FULL in the server and the application's \
         connections, or ask for columns of the primary key alone; for what is in the log already, `errors.{}: dead_letter` or \
         `skip` until it is past",
        .0.label()
    )]
    RowImage(ErrorKind),
    #[error(
        "a TRUNCATE has no row: ask for `source.table` and the like alone, or leave it out by a processor of type `filter` \
         with `ops: [insert, update, delete]`"
    )]
    NoRow,
    #[error("expected a text, a number or a boolean there in each change")]
    Text,
}

fn in_words(fault: SequenceFault) -> &'static str {
    match fault {
        SequenceFault::Repeat => "once more",
        SequenceFault::Gap => "which leaves a gap",
        SequenceFault::Backwards => "which goes backwards",
    }
}

fn next(highest: i64) -> i64 {
    highest.saturating_add(1)
}

fn sequence_key(fault: SequenceFault) -> &'static str {
    match fault {
        SequenceFault::Repeat => "on_repeat",
        SequenceFault::Gap => "on_gap",
        SequenceFault::Backwards => "on_backwards",
    }
}

/// A more lenient word, and what it does.
fn advice(on_update: OnUpdate) -> (&'static str, &'static str) {
    match on_update {
        OnUpdate::Halt => ("warn", "go on past this one"),
        OnUpdate::Skip | OnUpdate::Warn => ("skip", "say no more of it"),
    }
}

/// Why a field's value cannot be text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TextFault {
    #[error("its bytes are not UTF-8")]
    NotUtf8,
    #[error("it has a \\u escape of half a surrogate pair")]
    LoneSurrogate,
}

/// Why Kafka would refuse a topic's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TopicFault {
    #[error("it is empty")]
    Empty,
    #[error("it is {bytes} bytes long")]
    TooLong { bytes: usize },
    #[error("it is `.` or `..`")]
    Dots,
    #[error("it has another character")]
    Character,
}
