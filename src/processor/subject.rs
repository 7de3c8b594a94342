//! What a processor that stands before those of outboxes looks at: changes of ordinary tables, and outbox events.

use super::outbox::OutboxChange;
use crate::config::pattern::OutboxPattern;
use crate::event::{Change, ChangeEvent, LogMessage, Operation, RowChange, Selection};

/// A change, by what it is.
#[derive(Debug, Clone, Copy)]
pub(super) enum Subject<'a> {
    /// Of an ordinary table, or inserted into an outbox.
    Row(&'a RowChange),
    /// An outbox event.
    Message(&'a LogMessage),
}

impl<'a> Subject<'a> {
    /// None: it is no event, such as an UPDATE of an outbox's row, or its bytes are not there.
    pub(super) fn of(event: &'a ChangeEvent) -> Option<Self> {
        match (&event.change, event.selection) {
            (Change::Row(row), Selection::Table) => Some(Self::Row(row)),
            _ => match OutboxChange::of(event)? {
                OutboxChange::Insert(row) => Some(Self::Row(row)),
                OutboxChange::Message(message) => Some(Self::Message(message)),
            },
        }
    }

    /// Whether one of the patterns is of its table or prefix.
    pub(super) fn is_of(self, patterns: &[OutboxPattern]) -> bool {
        patterns.iter().any(|pattern| match self {
            Self::Row(row) => pattern.matches_table(&row.table.schema, &row.table.name),
            Self::Message(message) => pattern.matches_prefix(&message.prefix),
        })
    }

    pub(super) fn operation(self) -> Operation {
        match self {
            Self::Row(row) => row.operation,
            Self::Message(_) => Operation::Insert,
        }
    }
}
