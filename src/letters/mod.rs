//! Dead letters as an operator sees them, wherever they are kept.

pub mod notices;
pub(crate) mod notifier;
mod store;
mod topic;

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use bytes::Bytes;

use crate::config::{DeadLetterPlace, Pipeline};
use crate::preflight::{Finding, Place};
use crate::processor::letter_headers as names;
use crate::record::{About, Header, OrderingKey, Record};

pub use store::{Kept, LetterStore, LetterStoreError};
pub(crate) use topic::{FieldNames, Held, LetterTopicError, marker, read as read_topic};

/// Whether dead letters can be kept in the file that the pipeline names; makes nothing. None: it names none.
pub(crate) fn preflight(pipeline: &Pipeline, state_dir: &Path) -> Option<Finding> {
    let DeadLetterPlace::File(file) = &pipeline.dead_letter.as_ref()?.place else {
        return None;
    };
    let path = file.in_folder(state_dir).path;
    Some(Place::of_sqlite("dead letters", path, "`path` of spec.dead_letter").look())
}

/// The outcome of a letter that its target has.
pub const PUBLISHED: &str = "published";

/// Names a letter in the place where it is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LetterId {
    /// Of a file.
    Row(i64),
    /// Of a topic.
    Record { partition: i32, offset: i64 },
}

impl fmt::Display for LetterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Row(id) => id.fmt(f),
            Self::Record { partition, offset } => write!(f, "{partition}:{offset}"),
        }
    }
}

/// A text that names no letter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected a number (of a letter in a file) or partition:offset (of one in a topic)")]
pub struct ParseLetterIdError;

impl FromStr for LetterId {
    type Err = ParseLetterIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let id = match text.split_once(':') {
            None => text.parse().ok().map(Self::Row),
            Some((partition, offset)) => partition
                .parse()
                .ok()
                .zip(offset.parse().ok())
                .map(|(partition, offset)| Self::Record { partition, offset }),
        };
        id.ok_or(ParseLetterIdError)
    }
}

/// The last time that a letter was sent again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replay {
    /// As RFC 3339 has it.
    pub at: String,
    /// [`PUBLISHED`], or why not.
    pub outcome: String,
}

impl Replay {
    pub fn is_published(&self) -> bool {
        self.outcome == PUBLISHED
    }
}

/// A letter where it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parked {
    pub id: LetterId,
    pub letter: Letter,
    pub replay: Option<Replay>,
}

impl Parked {
    /// Whether the target has it by now.
    pub fn is_replayed(&self) -> bool {
        self.replay.as_ref().is_some_and(Replay::is_published)
    }
}

impl From<Kept> for Parked {
    fn from(kept: Kept) -> Self {
        Self {
            id: LetterId::Row(kept.id),
            letter: kept.letter,
            replay: kept.replayed.map(|(at, outcome)| Replay { at, outcome }),
        }
    }
}

/// An event that went no further, with why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Letter {
    pub pipeline: String,
    pub source: String,
    /// That it was for; empty where nobody said so.
    pub sink: String,
    /// Where the event stands in the source's log; one letter of a sink has it.
    pub position: String,
    pub event_id: String,
    pub event_type: Option<String>,
    pub aggregate_type: Option<String>,
    pub aggregate_id: Option<String>,
    pub reason: String,
    pub detail: String,
    pub error: String,
    /// How often the target was given it.
    pub attempts: u32,
    /// The topic or URL that it should have gone to, if that could be told.
    pub target: Option<String>,
    /// When it was parked, as RFC 3339 has it.
    pub parked_at: String,
    pub record_timestamp_ms: i64,
    pub key: Option<Bytes>,
    pub value: Option<Bytes>,
    /// The record's own; what is said of the letter stands in the fields.
    pub headers: Vec<Header>,
    /// What else is said of the letter: prefix or table of the event, or the size of bytes that were not kept.
    pub notes: Vec<(String, String)>,
}

impl Letter {
    /// Of a dead letter as sinks are given it.
    pub fn of_record(record: &Record) -> Self {
        let own = record.headers.iter().rposition(|header| &*header.name == names::REASON);
        let (headers, own) = record.headers.split_at(own.unwrap_or(record.headers.len()));
        let text = |name: &str| {
            let header = own.iter().find(|header| &*header.name == name);
            let value = header.and_then(|header| header.value.as_ref());
            value.map(|value| String::from_utf8_lossy(value).into_owned())
        };
        let about = record.about.as_deref();
        let notes = own.iter().filter(|header| !names::OF_FIELDS.contains(&&*header.name));
        let notes = notes.map(|header| {
            let value = header.value.as_deref().unwrap_or_default();
            (header.name.to_string(), String::from_utf8_lossy(value).into_owned())
        });
        Self {
            pipeline: text(names::PIPELINE).unwrap_or_default(),
            source: text(names::SOURCE).unwrap_or_default(),
            sink: text(names::SINK).unwrap_or_default(),
            position: text(names::POSITION).unwrap_or_default(),
            event_id: text(names::EVENT_ID).unwrap_or_default(),
            event_type: about.and_then(|about| about.event_type.clone()),
            aggregate_type: about.and_then(|about| about.aggregate_type.clone()),
            aggregate_id: about.and_then(|about| about.aggregate_id.clone()),
            reason: text(names::REASON).unwrap_or_default(),
            detail: text(names::DETAIL).unwrap_or_default(),
            error: text(names::ERROR).unwrap_or_default(),
            attempts: text(names::ATTEMPTS).and_then(|count| count.parse().ok()).unwrap_or(0),
            target: text(names::TOPIC),
            parked_at: text(names::TIME).unwrap_or_default(),
            record_timestamp_ms: record.timestamp_ms,
            key: record.key.clone(),
            value: record.value.clone(),
            headers: headers.to_vec(),
            notes: notes.collect(),
        }
    }

    /// The record that should have gone out, for another attempt.
    pub fn record(&self, target: Arc<str>) -> Record {
        Record {
            topic: target,
            partition: None,
            key: self.key.clone(),
            value: self.value.clone(),
            headers: self.headers.clone(),
            timestamp_ms: self.record_timestamp_ms,
            about: Some(Box::new(self.about())),
        }
    }

    /// What is known of its event.
    pub(crate) fn about(&self) -> About {
        About {
            event_id: self.event_id.clone(),
            event_type: self.event_type.clone(),
            aggregate_type: self.aggregate_type.clone(),
            aggregate_id: self.aggregate_id.clone(),
            ordering: OrderingKey::Unordered,
            audited: Vec::new(),
        }
    }

    /// Whether its bytes were not kept.
    pub fn is_stub(&self) -> bool {
        self.has_note(names::STUB)
    }

    /// Whether it has the event as the source brought it, since no record could be made of it.
    pub fn is_of_event(&self) -> bool {
        self.has_note(names::PREFIX) || self.has_note(names::TABLE)
    }

    fn has_note(&self, name: &str) -> bool {
        self.notes.iter().any(|(found, _)| found == name)
    }
}
