//! Sinks: each takes records and reports, for every one it took, whether it is durable.

mod any;
pub mod http;
mod json_line;
pub mod kafka;
mod letters;
mod lines;
mod worker;

use std::future::Future;
use std::time::Duration;

use tokio::time::Instant;

use crate::config::{self, Pipeline};
use crate::letters::LetterStoreError;
use crate::position::Position;
use crate::preflight::Finding;
use crate::record::Record;
use crate::relay::in_flight::Seq;

pub use crate::http_client::HttpClientError;
pub(crate) use any::{AnySink, SinkParts};
pub use kafka::KafkaSinkError;
pub use lines::LinesError;

/// Delivers records.
///
/// Each seq that [`Sink::send`] took is reported exactly once to the [`Acks`](crate::relay::in_flight::Acks) that the
/// sink was made with: acked when the target has the record, failed otherwise. A report that is never made is no ack. What is acked is durable,
/// but for a sink that [commits](Sink::commits): with that it becomes durable by the commit that follows, with the position
/// behind it, which is reported too, or not at all.
pub trait Sink: Send + 'static {
    /// Sees to it that no older instance of the pipeline can deliver anything any more, where the target has a way to.
    /// Called once, before anything is sent, by an instance that holds the source's lock: else a stand-by would end the
    /// living one's work.
    ///
    /// # Errors
    /// The sink is of no use; a new one may be.
    fn claim(&mut self) -> impl Future<Output = Result<(), SinkError>> + Send {
        std::future::ready(Ok(()))
    }

    /// Of a sink whose records become durable only by [`Sink::commit`]: how long the first of them may wait for it at most.
    fn commits_within(&self) -> Option<Duration> {
        None
    }

    /// Whether records become durable only by [`Sink::commit`].
    fn commits(&self) -> bool {
        self.commits_within().is_some()
    }

    /// Begins to make durable what was taken since the last commit, together with the position behind it, whose seq is
    /// reported like a record's. Until [`Sink::ready`] says so, nothing more is taken.
    fn commit(&mut self, _seq: Seq, _position: &Position) {}

    /// Takes the record, or gives it back.
    ///
    /// # Errors
    /// [`SendError`] says when to try again, or that this record will never be taken.
    fn send(&mut self, seq: Seq, record: Record) -> Result<(), SendError>;

    /// Takes a dead letter, or gives it back: into the place that the pipeline has for them.
    ///
    /// # Errors
    /// The same as of [`Sink::send`].
    fn park(&mut self, seq: Seq, letter: Record) -> Result<(), SendError> {
        self.send(seq, letter)
    }

    /// What was refused under this seq is passed over: what waits for it goes on.
    fn pass_over(&mut self, _seq: Seq) {}

    /// Whether records are refused one by one, by [`Acks::refused`](crate::relay::in_flight::Acks::refused), while the sink goes
    /// on. One that is refused is then parked under the seq that it has, or passed over, and holds back what must not overtake
    /// it until it is.
    fn refuses_singly(&self) -> bool {
        false
    }

    /// What was taken is to leave now: nothing follows for which it could wait to travel together. Without this it may wait for
    /// some milliseconds.
    fn hurry(&mut self) {}

    /// Makes the reports that are due, of a sink that leaves it to whoever sends.
    fn take_reports(&mut self) {}

    /// Waits until some are. Cancel safe.
    fn reported(&self) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }

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
    /// The same, of a sink that commits, which may take long over it: what was taken is to be committed before, so that
    /// readers are not held back by an open transaction meanwhile.
    CommitFirst(Box<Record>),
    /// This record can never be delivered.
    Rejected(Box<Record>, DeliveryError),
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
    Record(RecordFault),
    /// The target is not there yet or any more; it can come back.
    Unavailable,
    /// Another instance of the pipeline, or a target that lost patience, ended this one's right to write.
    Fenced,
    /// The target refuses us: a person must act.
    Refused,
}

/// What a target has against a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordFault {
    TooLarge,
    /// Its topic does not exist, or cannot by its name.
    UnknownTopic,
    /// It was tried as often as it may be.
    Exhausted,
    /// The same, and the last attempt was not answered in time.
    TimedOut,
    /// Anything else.
    Refused,
}

impl RecordFault {
    /// The word in a dead letter's headers.
    pub fn label(self) -> &'static str {
        match self {
            Self::TooLarge => "too_large",
            Self::UnknownTopic => "unknown_topic",
            Self::Exhausted => "exhausted",
            Self::TimedOut => "timed_out",
            Self::Refused => "refused",
        }
    }
}

impl DeliveryErrorKind {
    pub fn is_record(self) -> bool {
        matches!(self, Self::Record(_))
    }
}

/// Why a sink ended.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    #[error(transparent)]
    Kafka(#[from] KafkaSinkError),
    #[error(transparent)]
    Http(#[from] HttpClientError),
    #[error(transparent)]
    Lines(#[from] LinesError),
    #[error(transparent)]
    Letters(#[from] LetterStoreError),
    /// A delivery failed for good in this sink's life; the records behind it must not overtake it.
    #[error("delivery failed")]
    Delivery(#[from] DeliveryError),
    /// Of one of several.
    #[error("sink `{id}`")]
    Of { id: String, source: Box<Self> },
}

impl SinkError {
    /// Whether another instance of the pipeline, or a broker that lost patience, ended this one's right to write.
    pub fn is_fenced(&self) -> bool {
        match self {
            Self::Kafka(error) => matches!(error, KafkaSinkError::Fenced { .. }),
            Self::Delivery(error) => error.kind == DeliveryErrorKind::Fenced,
            Self::Of { source, .. } => source.is_fenced(),
            Self::Http(_) | Self::Lines(_) | Self::Letters(_) => false,
        }
    }

    /// Whether a new sink can do better without a person.
    pub fn can_heal(&self) -> bool {
        match self {
            Self::Kafka(error) => error.can_heal(),
            Self::Delivery(error) => error.kind != DeliveryErrorKind::Refused,
            Self::Of { source, .. } => source.can_heal(),
            // Files of certificates and the like: a person must act.
            Self::Http(_) => false,
            Self::Lines(error) => error.can_heal(),
            Self::Letters(error) => error.can_heal(),
        }
    }
}

/// What `tailpost check` looks at where a pipeline's records go.
pub async fn preflight(pipeline: &Pipeline) -> Vec<Finding> {
    let mut findings = Vec::new();
    for pipeline in pipeline.of_each_sink() {
        findings.extend(match &pipeline.sink {
            config::Sink::Kafka(kafka) => kafka::preflight(kafka, &pipeline).await,
            config::Sink::Http(http) => http::preflight(http).await,
            config::Sink::File(file) => vec![lines::preflight(file)],
            config::Sink::Stdout(_) => Vec::new(),
        });
    }
    findings
}
