//! A record: what a sink is given.

use std::sync::Arc;

use bytes::Bytes;

/// One Kafka-shaped record, ready to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub topic: Arc<str>,
    /// None: by the key.
    pub partition: Option<i32>,
    pub key: Option<Bytes>,
    /// None: a tombstone.
    pub value: Option<Bytes>,
    pub headers: Vec<Header>,
    /// Milliseconds since 1970 (UTC).
    pub timestamp_ms: i64,
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
