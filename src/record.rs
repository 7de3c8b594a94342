//! A record: what a sink is given.

use std::sync::Arc;

use bytes::Bytes;

use crate::position::EventPosition;

/// One Kafka-shaped record, ready to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Where it goes: a topic, or the URL of a sink that has none.
    pub topic: Arc<str>,
    /// None: by the key.
    pub partition: Option<i32>,
    pub key: Option<Bytes>,
    /// None: a tombstone.
    pub value: Option<Bytes>,
    pub headers: Vec<Header>,
    /// Milliseconds since 1970 (UTC).
    pub timestamp_ms: i64,
    /// Only where the sink or the pipeline asks for it.
    pub about: Option<Box<About>>,
}

/// What is known of a record's event, whatever its headers are called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct About {
    /// The event's own id, or the one that is derived from its position.
    pub event_id: String,
    pub event_type: Option<String>,
    pub aggregate_type: Option<String>,
    pub aggregate_id: Option<String>,
    pub ordering: OrderingKey,
    /// What the templates of `spec.audit.fields` find, in their order.
    pub audited: Vec<Option<String>>,
}

impl About {
    /// Of an event of which nothing else can be told: its id is derived from its position.
    pub fn of_position(at: &EventPosition) -> Self {
        Self {
            event_id: at.to_string(),
            event_type: None,
            aggregate_type: None,
            aggregate_id: None,
            ordering: OrderingKey::Unordered,
            audited: Vec::new(),
        }
    }
}

/// Events of one key reach the target in the order of their commits.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum OrderingKey {
    /// In no order with any other.
    Unordered,
    /// In order with all that have a key of this kind.
    Source,
    Key(Bytes),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    pub name: Arc<str>,
    /// None: null, which consumers tell from an empty value.
    pub value: Option<Bytes>,
}

impl Header {
    /// Bytes of its name and value.
    pub fn byte_len(&self) -> usize {
        self.name.len() + self.value.as_ref().map_or(0, Bytes::len)
    }
}

impl Record {
    /// Bytes of the application in it: key, value, header names and values.
    pub fn byte_len(&self) -> usize {
        let headers: usize = self.headers.iter().map(Header::byte_len).sum();
        self.key.as_ref().map_or(0, Bytes::len) + self.value.as_ref().map_or(0, Bytes::len) + headers
    }
}
