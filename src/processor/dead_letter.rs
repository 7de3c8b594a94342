//! Dead letters: what is parked in place of an event that cannot go its way.
//!
//! A letter has the application's own bytes, and says in headers of its own, the last ones, why and where from:
//!
//! - Of a record that the sink will never take: its key, value and headers.
//! - Of an event that no record could be made of: a message's content as it is; an outbox row as a JSON object; an
//!   ordinary row's change in the native envelope. With it the key and the headers that could be told all the same.
//! - A *stub*, in place of a letter that is too large for its topic, or of an event whose bytes the source discarded: no
//!   value, and the value's size and hash in their place.

use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::ProcessError;
use super::envelope::ChangeWriter;
use super::json::{unescaped, write_hex};
use crate::calendar::rfc3339;
use crate::config::pipeline::HeadersAs;
use crate::config::{OversizedDeadLetter, Pipeline, pipeline};
use crate::event::{Change, ChangeEvent, Origin, Selection};
use crate::position::EventPosition;
use crate::record::{Header, Record};
use crate::sink::{DeliveryError, DeliveryErrorKind, RecordFault};

/// The names of a letter's own headers, of which `REASON` is the first.
pub(crate) mod letter_headers {
    pub(crate) const REASON: &str = "tailpost-dlq-reason";
    pub(crate) const DETAIL: &str = "tailpost-dlq-detail";
    pub(crate) const ERROR: &str = "tailpost-dlq-error";
    pub(crate) const PIPELINE: &str = "tailpost-dlq-pipeline";
    pub(crate) const SOURCE: &str = "tailpost-dlq-source";
    pub(crate) const SINK: &str = "tailpost-dlq-sink";
    pub(crate) const POSITION: &str = "tailpost-dlq-position";
    pub(crate) const EVENT_ID: &str = "tailpost-dlq-event-id";
    pub(crate) const TOPIC: &str = "tailpost-dlq-topic";
    pub(crate) const PREFIX: &str = "tailpost-dlq-prefix";
    pub(crate) const TABLE: &str = "tailpost-dlq-table";
    pub(crate) const TIME: &str = "tailpost-dlq-time";
    pub(crate) const ATTEMPTS: &str = "tailpost-dlq-attempts";
    pub(crate) const STUB: &str = "tailpost-dlq-stub";
    pub(crate) const SIZE: &str = "tailpost-dlq-size";
    pub(crate) const SHA256: &str = "tailpost-dlq-sha256";
    /// Of a marker, which is no letter: when its letter was sent again, and how that ended.
    pub(crate) const REPLAYED: &str = "tailpost-dlq-replayed";
    pub(crate) const OUTCOME: &str = "tailpost-dlq-replayed-outcome";

    /// Those that every letter has, or has a field for.
    pub(crate) const OF_FIELDS: [&str; 11] = [
        REASON, DETAIL, ERROR, PIPELINE, SOURCE, SINK, POSITION, EVENT_ID, TOPIC, TIME, ATTEMPTS,
    ];
}

use letter_headers::*;

/// The most bytes of one header's value, where they are bounded.
const MAX_TEXT: usize = 1024;
/// What a stub keeps of the record: a key of so many bytes at most, and headers of so many together.
const MAX_STUB_KEY: usize = 1024;
const MAX_STUB_HEADERS: usize = 4096;

/// Why an event was parked: the value of `tailpost-dlq-reason`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeadLetterReason {
    /// No record can be made of it, or it cannot be masked.
    PoisonMessage,
    /// It lacks what `strict` or a processor of type `validate` asks for.
    SchemaValidationFailed,
    /// The target will never take its record.
    PermanentFailure,
    /// The target did not take its record as often as it was tried.
    MaxRetriesExceeded,
    /// The same, and the last attempt got no answer in its time.
    ProcessingTimeout,
}

impl DeadLetterReason {
    pub const ALL: [Self; 5] = [
        Self::PoisonMessage,
        Self::SchemaValidationFailed,
        Self::PermanentFailure,
        Self::MaxRetriesExceeded,
        Self::ProcessingTimeout,
    ];

    /// Of a record that the target does not take.
    pub fn of_delivery(error: &DeliveryError) -> Self {
        match error.kind {
            DeliveryErrorKind::Record(RecordFault::Exhausted) => Self::MaxRetriesExceeded,
            DeliveryErrorKind::Record(RecordFault::TimedOut) => Self::ProcessingTimeout,
            _ => Self::PermanentFailure,
        }
    }

    pub fn label(self) -> &'static str {
        match self {
            Self::PoisonMessage => "poison_message",
            Self::SchemaValidationFailed => "schema_validation_failed",
            Self::PermanentFailure => "permanent_failure",
            Self::MaxRetriesExceeded => "max_retries_exceeded",
            Self::ProcessingTimeout => "processing_timeout",
        }
    }

    /// What can be done about an event that was parked for it.
    pub fn remedy(self) -> &'static str {
        match self {
            Self::PoisonMessage | Self::SchemaValidationFailed => {
                "mend what writes such events, or the pipeline file, and have it written again; `tailpost dlq show` has it"
            }
            Self::PermanentFailure | Self::MaxRetriesExceeded | Self::ProcessingTimeout => {
                "mend the target or the pipeline file, then send it again by `tailpost dlq replay`"
            }
        }
    }
}

/// Makes dead letters, as the pipeline file says.
#[derive(Debug)]
pub struct DeadLetters {
    /// Empty where they are kept in a file.
    topic: Arc<str>,
    oversized: OversizedDeadLetter,
    pipeline: Bytes,
    source: Bytes,
    sink: Bytes,
    /// The headers that have an event's id, by the processors of the pipeline.
    id_headers: Vec<(String, HeadersAs)>,
    changes: ChangeWriter,
}

/// No dead letter can be made of an event; its bytes are still in the database's log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unparkable {
    #[error(
        "its bytes were discarded as they came in, so there is only a stub to be parked: set \
         `dead_letter.config.oversized: stub` to let it be"
    )]
    Discarded,
    #[error(
        "its dead letter of {bytes} bytes is too large for topic `{topic}` too: raise max.message.bytes of that topic (and \
         message.max.bytes, if client_conf has it), or set `dead_letter.config.oversized: stub`"
    )]
    TooLarge { topic: Arc<str>, bytes: usize },
    #[error("topic `{topic}` does not even take a stub of {bytes} bytes: raise its max.message.bytes")]
    StubTooLarge { topic: Arc<str>, bytes: usize },
}

impl DeadLetters {
    /// None: the pipeline parks nothing.
    pub fn new(pipeline: &Pipeline) -> Option<Self> {
        let config = pipeline.dead_letter.as_ref()?;
        let source = pipeline.source.id();
        Some(Self {
            topic: Arc::from(config.topic().unwrap_or_default()),
            oversized: config.oversized,
            pipeline: Bytes::from(pipeline.name.clone()),
            source: Bytes::from(source.to_owned()),
            sink: Bytes::from(pipeline.sink.id().to_owned()),
            id_headers: pipeline.processors.iter().filter_map(id_header).collect(),
            changes: ChangeWriter::native(source),
        })
    }

    /// Of an event that no record could be made of. `now` is when it is parked.
    ///
    /// # Errors
    /// When its bytes were discarded by the source, and a stub is not wanted.
    pub fn of_event(&mut self, error: &ProcessError, now: SystemTime) -> Result<Record, Unparkable> {
        let event: &ChangeEvent = &error.change;
        let outline = &error.outline;
        let (reason, detail) = error.problem.parked_for();
        let mut headers = outline.headers.clone();
        let why = Why {
            reason,
            detail,
            error: error.to_string(),
            topic: outline.topic.as_deref(),
            attempts: 0,
        };
        self.push_headers(&mut headers, why, &error.position, now);
        let value = match &event.change {
            Change::Message(message) => {
                push(&mut headers, PREFIX, message.prefix.to_string());
                message.content.clone()
            }
            Change::Row(row) => {
                push(&mut headers, TABLE, format!("{}.{}", row.table.schema, row.table.name));
                match event.selection {
                    Selection::Outbox => self.changes.any_row(event, row),
                    Selection::Table => self.changes.any_change(event, row),
                }
            }
            Change::Oversized(oversized) => {
                if self.oversized == OversizedDeadLetter::Halt {
                    return Err(Unparkable::Discarded);
                }
                match &oversized.origin {
                    Origin::Prefix(prefix) => push(&mut headers, PREFIX, prefix.clone()),
                    Origin::Table(table) => push(&mut headers, TABLE, table.clone()),
                }
                push(&mut headers, STUB, "true");
                push(&mut headers, SIZE, oversized.bytes.to_string());
                Bytes::new()
            }
        };
        Ok(Record {
            topic: Arc::clone(&self.topic),
            key: outline.key.clone(),
            value: Some(value),
            headers,
            partition: None,
            timestamp_ms: event.commit_time_us.div_euclid(1000),
            about: outline.about.clone(),
        })
    }

    /// Of a record that the sink will never take. `attempts` is how often the sink was given it.
    pub fn of_record(
        &self,
        record: Record,
        error: &DeliveryError,
        at: &EventPosition,
        attempts: u32,
        now: SystemTime,
    ) -> Record {
        let detail = match error.kind {
            DeliveryErrorKind::Record(fault) => fault,
            DeliveryErrorKind::Unavailable | DeliveryErrorKind::Fenced | DeliveryErrorKind::Refused => {
                RecordFault::Refused
            }
        };
        let mut headers = record.headers;
        let why = Why {
            reason: DeadLetterReason::of_delivery(error),
            detail: detail.label(),
            error: error.to_string(),
            topic: Some(&record.topic),
            attempts,
        };
        self.push_headers(&mut headers, why, at, now);
        Record {
            topic: Arc::clone(&self.topic),
            // The one that was named is of another topic.
            partition: None,
            headers,
            ..record
        }
    }

    /// In place of a dead letter that is too large for its topic: a stub with its size and hash.
    ///
    /// # Errors
    /// When a stub is not wanted, or this is one.
    pub fn stub(&self, letter: Record) -> Result<Record, Unparkable> {
        let bytes = letter.byte_len();
        let topic = || Arc::clone(&self.topic);
        let own = letter.headers.iter().rposition(|header| &*header.name == REASON);
        let (kept, own) = letter.headers.split_at(own.unwrap_or(letter.headers.len()));
        if own.iter().any(|header| &*header.name == STUB) {
            return Err(Unparkable::StubTooLarge { topic: topic(), bytes });
        }
        if self.oversized == OversizedDeadLetter::Halt {
            return Err(Unparkable::TooLarge { topic: topic(), bytes });
        }
        let mut room = MAX_STUB_HEADERS;
        let kept = kept.iter().filter(|header| {
            let length = header.byte_len();
            let fits = length <= room;
            room -= if fits { length } else { 0 };
            fits
        });
        let mut headers: Vec<Header> = kept.cloned().collect();
        headers.extend(own.iter().map(|header| Header {
            name: Arc::clone(&header.name),
            value: header.value.as_ref().map(cut),
        }));
        push(&mut headers, STUB, "true");
        push(
            &mut headers,
            SIZE,
            letter.value.as_ref().map_or(0, Bytes::len).to_string(),
        );
        if let Some(value) = &letter.value {
            let mut hash = Vec::with_capacity(64);
            write_hex(&mut hash, &Sha256::digest(value));
            push(&mut headers, SHA256, hash);
        }
        Ok(Record {
            topic: letter.topic,
            key: letter.key.filter(|key| key.len() <= MAX_STUB_KEY),
            // Empty rather than null, which a compacted topic would take for a deletion.
            value: Some(Bytes::new()),
            headers,
            partition: None,
            timestamp_ms: letter.timestamp_ms,
            about: letter.about,
        })
    }

    /// The headers that every letter has, behind the record's own.
    fn push_headers(&self, headers: &mut Vec<Header>, why: Why<'_>, at: &EventPosition, now: SystemTime) {
        let at = at.to_string();
        let mut ids = headers.iter().filter_map(|header| {
            let (_, form) = self.id_headers.iter().find(|(name, _)| **name == *header.name)?;
            header.value.as_ref().map(|value| id_text(value, *form))
        });
        let event_id = ids.next();
        let event_id = event_id.unwrap_or_else(|| Bytes::from(at.clone()));
        push(headers, REASON, why.reason.label());
        push(headers, DETAIL, why.detail);
        push(headers, ERROR, cut(&Bytes::from(why.error)));
        push(headers, PIPELINE, self.pipeline.clone());
        push(headers, SOURCE, self.source.clone());
        push(headers, SINK, self.sink.clone());
        push(headers, POSITION, at);
        push(headers, EVENT_ID, event_id);
        if let Some(topic) = why.topic {
            push(headers, TOPIC, topic.to_owned());
        }
        push(headers, TIME, rfc3339(now));
        push(headers, ATTEMPTS, why.attempts.to_string());
    }
}

fn id_header(processor: &pipeline::Processor) -> Option<(String, HeadersAs)> {
    match processor {
        pipeline::Processor::Outbox(outbox) => Some((outbox.header_names.event_id.clone()?, outbox.headers_as)),
        pipeline::Processor::Filter(_) | pipeline::Processor::Mask(_) | pipeline::Processor::Validate(_) => None,
    }
}

/// An event's id, as it is in a header of this form.
fn id_text(value: &Bytes, form: HeadersAs) -> Bytes {
    let text = match form {
        HeadersAs::Text => None,
        HeadersAs::Json => std::str::from_utf8(value).ok().and_then(|json| unescaped(json).ok()),
    };
    text.map_or_else(|| value.clone(), |text| Bytes::copy_from_slice(text.as_bytes()))
}

/// What a letter says of its cause.
struct Why<'a> {
    reason: DeadLetterReason,
    detail: &'static str,
    error: String,
    /// Where the record should have gone, if that could be told.
    topic: Option<&'a str>,
    attempts: u32,
}

fn push(headers: &mut Vec<Header>, name: &str, value: impl Into<Bytes>) {
    headers.push(Header {
        name: Arc::from(name),
        value: Some(value.into()),
    });
}

/// The text itself, or as much of it as is kept, with a sign that this is not all.
fn cut(text: &Bytes) -> Bytes {
    const SIGN: &str = "…";
    if text.len() <= MAX_TEXT {
        return text.clone();
    }
    let mut end = MAX_TEXT - SIGN.len();
    // Not inside a character: those bytes of UTF-8 begin with the bits 10.
    while end > 0 && text[end] & 0xC0 == 0x80 {
        end -= 1;
    }
    [&text[..end], SIGN.as_bytes()].concat().into()
}

#[cfg(test)]
mod tests;
