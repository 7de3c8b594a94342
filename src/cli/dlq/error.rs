//! Why dead letters could not be shown, sent or taken away.

use std::io;
use std::time::Duration;

use rdkafka::error::KafkaError;

use crate::letters::{LetterId, LetterStoreError, LetterTopicError};
use crate::sink::SinkError;
use crate::telemetry::otlp::OtlpError;

#[derive(Debug, thiserror::Error)]
pub(super) enum DlqError {
    #[error("pipeline `{pipeline}` has no dead letters: its file has no `spec.dead_letter`")]
    NoPlace { pipeline: String },
    #[error("{place} has no letter {id}")]
    Unknown { id: LetterId, place: String },
    #[error("letter {id} cannot be sent again: {why}")]
    NotToBeSent { id: LetterId, why: &'static str },
    #[error("letter {id} was sent again at {at} and is published: pass --again to send it once more")]
    Replayed { id: LetterId, at: String },
    #[error("nothing says which letters are meant: expected an ID, a filter such as --reason, or --all")]
    NothingChosen,
    #[error("an ID names one letter: expected no filter with it")]
    IdAndFilter,
    #[error("`--to {to}` is no URL of http or https, which the sink of type http sends to")]
    NoUrl { to: String },
    #[error(
        "single records of a Kafka topic cannot be deleted: pass --all, or --until alone, to delete everything before it; or let \
         the topic's retention.ms do it"
    )]
    SingleRecords,
    #[error("letters are taken away for good: pass --yes if that is meant")]
    WithoutWord,
    #[error("nothing was purged")]
    Declined,
    #[error(
        "letter {id} had no answer from its target within {} s (--timeout): it may have it all the same; letters behind it were not sent",
        patience.as_secs()
    )]
    NoAnswer { id: LetterId, patience: Duration },
    #[error("send letter {id} again")]
    Sink { id: LetterId, source: SinkError },
    #[error("mark letter {id}, which its target has, in topic `{topic}`: {why}")]
    Mark { id: LetterId, topic: String, why: String },
    #[error("start the export of dispatch records")]
    Dispatches(#[from] OtlpError),
    #[error(transparent)]
    Store(#[from] LetterStoreError),
    #[error(transparent)]
    Topic(#[from] LetterTopicError),
    #[error("delete records of topic `{topic}`")]
    Delete { topic: String, source: KafkaError },
    #[error("read the dead letters: {reason}")]
    Task { reason: String },
    #[error("make JSON")]
    Json(#[source] serde_json::Error),
    #[error("read the answer")]
    Input(#[source] io::Error),
    #[error("write to stdout")]
    Output(#[source] io::Error),
}

impl DlqError {
    /// Whether the command was given wrongly.
    pub(super) fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::NoPlace { .. }
                | Self::NothingChosen
                | Self::IdAndFilter
                | Self::NoUrl { .. }
                | Self::SingleRecords
                | Self::WithoutWord
                | Self::Dispatches(_)
        )
    }
}
