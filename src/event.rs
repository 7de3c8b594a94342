//! A change event: what a source decodes from its log and a processor is given.

use std::sync::Arc;

use bytes::Bytes;

use crate::position::EventPosition;
use crate::row::{Row, Table};

/// One change, of a committed transaction or a unit by itself.
#[derive(Debug, Clone)]
pub struct ChangeEvent {
    /// Where the event stands; resuming just behind it is sound.
    pub position: EventPosition,
    /// When the transaction committed, in microseconds since 1970 (UTC). Of a non-transactional message: its send time
    /// in the stream.
    pub commit_time_us: i64,
    pub selection: Selection,
    pub change: Change,
}

impl ChangeEvent {
    /// Gives it memory of its own in place of slices of what was read together.
    pub(crate) fn detach(&mut self) {
        match &mut self.change {
            Change::Message(message) => message.content = Bytes::copy_from_slice(&message.content),
            Change::Row(row) => row.before.iter_mut().chain(&mut row.after).for_each(Row::detach),
            Change::Oversized(_) => {}
        }
    }

    /// Bytes of what it carries.
    pub(crate) fn byte_len(&self) -> usize {
        match &self.change {
            Change::Message(message) => message.content.len(),
            Change::Row(row) => row.before.iter().chain(&row.after).map(Row::byte_len).sum(),
            Change::Oversized(_) => 0,
        }
    }
}

/// Which part of the pipeline file chose the event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Selection {
    /// `outbox.prefixes` or `outbox.tables`.
    Outbox,
    /// `tables`.
    Table,
}

#[derive(Debug, Clone)]
pub enum Change {
    /// An application's `pg_logical_emit_message`.
    Message(LogMessage),
    Row(RowChange),
    /// A message or row over the source's `max_message_bytes`, whose bytes were discarded as they came.
    Oversized(Oversized),
}

#[derive(Debug, Clone)]
pub struct LogMessage {
    /// Shared by the messages of one prefix.
    pub prefix: Arc<str>,
    /// The application's bytes, untouched; any bytes at all.
    pub content: Bytes,
}

/// Of an outbox's UPDATE, which is only told of, there are no rows.
#[derive(Debug, Clone)]
pub struct RowChange {
    pub operation: Operation,
    pub table: Arc<Table>,
    /// The old row of an UPDATE or DELETE, as far as the replica identity sends it.
    pub before: Option<Row>,
    /// The new row of an INSERT or UPDATE.
    pub after: Option<Row>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    Insert,
    Update,
    Delete,
    Truncate,
}

impl Operation {
    /// The letter that change envelopes use.
    pub fn letter(self) -> &'static str {
        match self {
            Self::Insert => "c",
            Self::Update => "u",
            Self::Delete => "d",
            Self::Truncate => "t",
        }
    }
}

/// What is still known of a change whose bytes were not kept.
#[derive(Debug, Clone)]
pub struct Oversized {
    pub origin: Origin,
    /// Size on the wire.
    pub bytes: u64,
    /// The limit that it is over.
    pub limit: u64,
}

/// What a change belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Messages with this prefix.
    Prefix(String),
    /// A table, as `schema.table`.
    Table(String),
}

impl Origin {
    pub fn name(&self) -> &str {
        match self {
            Self::Prefix(name) | Self::Table(name) => name,
        }
    }
}
