//! Sinks: each takes records and reports, for every one it took, whether it is durable.

pub mod kafka;

use std::future::Future;

use tokio::time::Instant;

use crate::record::Record;
use crate::relay::in_flight::Seq;

pub use kafka::KafkaSinkError;

/// Delivers records.
///
/// Each seq that [`Sink::send`] took is reported exactly once to the [`Acks`](crate::relay::in_flight::Acks) that the
/// sink was made with: acked when the record is durable, failed otherwise. A report that is never made is no ack.
pub trait Sink: Send + 'static {
    /// Takes the record, or gives it back.
    ///
    /// # Errors
    /// [`SendError`] says when to try again, or that this record will never be taken.
    fn send(&mut self, seq: Seq, record: Record) -> Result<(), SendError>;

    /// Waits until a record that was given back may be sent again. Cancel safe.
    ///
    /// # Errors
    /// The sink is of no use any more; a new one may be.
    fn ready(&mut self) -> impl Future<Output = Result<(), SinkError>> + Send;

    /// Ends the sink. Records that are not acked by the deadline are given up; they were reported to nobody as acked.
    fn close(self, deadline: Instant) -> impl Future<Output = Result<(), SinkError>> + Send;
}

/// Why a record was given back.
#[derive(Debug)]
pub enum SendError {
    /// No room, or something must be learnt first: wait for [`Sink::ready`], then send it again before any other.
    NotReady(Box<Record>),
    /// This record can never be delivered.
    Rejected(DeliveryError),
}

/// A delivery that failed, or cannot be tried.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct DeliveryError {
    pub kind: DeliveryErrorKind,
    /// One line: object, found, expected, remedy.
    pub text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeliveryErrorKind {
    /// The record, or one that it travelled with, is not acceptable.
    Record,
    /// The target is not there yet or any more; it can come back.
    Unavailable,
    /// The target refuses us: a person must act.
    Refused,
}

/// Why a sink ended.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    #[error(transparent)]
    Kafka(#[from] KafkaSinkError),
    /// A delivery failed for good in this sink's life; the records behind it must not overtake it.
    #[error("delivery failed")]
    Delivery(#[from] DeliveryError),
}

impl SinkError {
    /// Whether a new sink can do better without a person.
    pub fn can_heal(&self) -> bool {
        match self {
            Self::Kafka(error) => error.can_heal(),
            Self::Delivery(error) => error.kind != DeliveryErrorKind::Refused,
        }
    }
}
