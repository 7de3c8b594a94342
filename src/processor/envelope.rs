//! What a sink puts around what it is given: one surface over the envelopes that a pipeline file can choose.
//!
//! [`Envelope::Native`] and [`Envelope::Debezium`] are a value's form only. A CloudEvent can also be one by its headers, around
//! a value that stays as it is, so an envelope is given the record's headers too. The same event gives the same bytes on
//! every delivery.

mod cell;
mod change;
mod cloudevents;

use bytes::Bytes;

pub(super) use cell::{write_member, write_payload};
pub(super) use change::ChangeWriter;

use super::error::Problem;
use super::field::Field;
use super::outbox::OutboxChange;
use crate::config::pipeline::{self, DebeziumSchema};
use crate::event::{ChangeEvent, RowChange};
use crate::record::Header;
use cloudevents::CloudEvents;

/// The envelope of a sink, for events of one source.
#[derive(Debug, Clone)]
pub(super) enum Envelope {
    Native(ChangeWriter),
    Debezium {
        changes: ChangeWriter,
        /// Whether the change is the member `payload` beside a `schema` that is null.
        is_wrapped: bool,
    },
    CloudEvents(Box<CloudEvents>),
}

/// An outbox event, as far as an envelope says anything of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct OutboxEvent<'a> {
    pub(super) change: OutboxChange<'a>,
    pub(super) payload: Field<'a>,
    /// None: its id is derived from its position.
    pub(super) id: Option<&'a str>,
    pub(super) event_type: Option<&'a str>,
    pub(super) aggregate_id: Option<&'a str>,
    /// Its own time, or the commit's.
    pub(super) time_us: i64,
}

impl Envelope {
    pub(super) fn new(config: &pipeline::Envelope, source_id: &str) -> Self {
        match config {
            pipeline::Envelope::Native => Self::Native(ChangeWriter::native(source_id)),
            pipeline::Envelope::Debezium { schema } => Self::Debezium {
                changes: ChangeWriter::debezium(source_id),
                is_wrapped: *schema == DebeziumSchema::Null,
            },
            pipeline::Envelope::CloudEvents(config) => Self::CloudEvents(Box::new(CloudEvents::new(config, source_id))),
        }
    }

    /// The value of a table's change. What the envelope says beside it is added to the headers.
    pub(super) fn of_row(
        &mut self,
        event: &ChangeEvent,
        change: &RowChange,
        headers: &mut Vec<Header>,
    ) -> Result<Bytes, Problem> {
        let mut out = Vec::with_capacity(change::room(change));
        match self {
            Self::Native(changes) => changes.write_row(&mut out, event, change)?,
            Self::Debezium { changes, is_wrapped } => {
                open(&mut out, *is_wrapped);
                changes.write_row(&mut out, event, change)?;
                close(&mut out, *is_wrapped);
            }
            Self::CloudEvents(cloudevents) => cloudevents.write_row(&mut out, event, change, headers)?,
        }
        Ok(Bytes::from(out))
    }

    /// The value of an outbox event whose payload is not to stand by itself, and headers as above. None: a tombstone.
    pub(super) fn of_outbox(
        &mut self,
        event: &ChangeEvent,
        outbox: OutboxEvent<'_>,
        headers: &mut Vec<Header>,
    ) -> Result<Option<Bytes>, Problem> {
        let mut out = Vec::with_capacity(512);
        let OutboxEvent { change, payload, .. } = outbox;
        match self {
            Self::Native(changes) => changes.write_outbox(&mut out, event, change, payload)?,
            Self::Debezium { changes, is_wrapped } => {
                open(&mut out, *is_wrapped);
                changes.write_outbox(&mut out, event, change, payload)?;
                close(&mut out, *is_wrapped);
            }
            Self::CloudEvents(cloudevents) => return cloudevents.of_outbox(event, outbox, headers),
        }
        Ok(Some(Bytes::from(out)))
    }

    /// What is said in the headers beside an outbox event's value that has no envelope. `outbox` is only asked for where
    /// anything is.
    #[inline]
    pub(super) fn beside_raw<'a>(
        &mut self,
        event: &ChangeEvent,
        outbox: impl FnOnce() -> OutboxEvent<'a>,
        value: Option<&Bytes>,
        headers: &mut Vec<Header>,
    ) -> Result<(), Problem> {
        match self {
            Self::Native(_) | Self::Debezium { .. } => Ok(()),
            Self::CloudEvents(cloudevents) => cloudevents.beside_raw(event, outbox(), value, headers),
        }
    }

    /// A keyed table's key as a JSON object; None when the table or the change has none.
    pub(super) fn key(&mut self, event: &ChangeEvent, change: &RowChange) -> Result<Option<Bytes>, Problem> {
        let changes = match self {
            Self::Native(changes) | Self::Debezium { changes, .. } => changes,
            Self::CloudEvents(cloudevents) => cloudevents.changes(),
        };
        changes.key(event, change)
    }
}

fn open(out: &mut Vec<u8>, is_wrapped: bool) {
    if is_wrapped {
        out.extend_from_slice(br#"{"schema":null,"payload":"#);
    }
}

fn close(out: &mut Vec<u8>, is_wrapped: bool) {
    if is_wrapped {
        out.push(b'}');
    }
}

#[cfg(test)]
mod tests;
