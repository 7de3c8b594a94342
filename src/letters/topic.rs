//! The Kafka topic that dead letters are kept in, read from its begin to its end.
//!
//! A record of a topic cannot be changed: that a letter was sent again is said by a *marker*, a record of its own behind the
//! letter in the letter's partition. It has no `tailpost-dlq-reason`, which every letter has.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use rdkafka::ClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Headers, Message};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use super::{Letter, LetterId, Parked, Replay};
use crate::calendar::rfc3339;
use crate::config::pipeline::{HeaderNames, HeadersAs, Processor};
use crate::config::{self, Pipeline};
use crate::processor::letter_headers as names;
use crate::record::{About, Header, OrderingKey, Record};
use crate::sink::kafka::{client_config, client_reason, no_answer};

const REQUEST: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(100);
/// How long nothing may come before the end.
const PATIENCE: Duration = Duration::from_secs(30);
/// What a marker's key begins with, in front of its letter's place.
const MARKER: &str = "tailpost-dlq-replayed/";

/// What keeps a topic from being read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LetterTopicError {
    #[error("set up the Kafka client: {reason}")]
    Client { reason: String },
    #[error(
        "there is no topic `{topic}` with dead letters: none was parked yet, or the user may not read it (ACL READ)"
    )]
    Missing { topic: String },
    #[error("{reason}")]
    Unavailable { reason: String },
    #[error("read dead-letter topic `{topic}`: {code}")]
    Refused { topic: String, code: RDKafkaErrorCode },
    #[error("read dead-letter topic `{topic}`: nothing came for {} s", PATIENCE.as_secs())]
    Stuck { topic: String },
}

/// In which headers of a pipeline's records the fields of an event are.
#[derive(Debug, Default)]
pub(crate) struct FieldNames {
    names: HeaderNames,
    form: HeadersAs,
}

impl FieldNames {
    pub(crate) fn of(pipeline: &Pipeline) -> Self {
        let named = pipeline.processors.iter().find_map(|processor| match processor {
            Processor::Outbox(outbox) => Some(Self {
                names: outbox.header_names.clone(),
                form: outbox.headers_as,
            }),
            Processor::Filter(_) | Processor::Mask(_) | Processor::Validate(_) => None,
        });
        named.unwrap_or_default()
    }

    pub(super) fn about(&self, headers: &[Header]) -> About {
        let field = |name: &Option<String>| {
            let name = name.as_deref()?;
            let header = headers.iter().find(|header| &*header.name == name)?;
            let value = header.value.as_deref()?;
            let unquoted = match self.form {
                HeadersAs::Text => None,
                HeadersAs::Json => serde_json::from_slice::<String>(value).ok(),
            };
            Some(unquoted.unwrap_or_else(|| String::from_utf8_lossy(value).into_owned()))
        };
        About {
            event_id: field(&self.names.event_id).unwrap_or_default(),
            event_type: field(&self.names.event_type),
            aggregate_type: field(&self.names.aggregate_type),
            aggregate_id: field(&self.names.aggregate_id),
            ordering: OrderingKey::Unordered,
            audited: Vec::new(),
        }
    }
}

/// What a topic holds.
#[derive(Debug, Default)]
pub(crate) struct Held {
    /// In the order of their being parked.
    pub(crate) letters: Vec<Parked>,
    /// Behind the last record of each partition that has any.
    pub(crate) ends: BTreeMap<i32, i64>,
}

/// What one of the topic's records is.
#[derive(Debug, PartialEq, Eq)]
enum Meaning {
    Letter(Box<Letter>),
    Marker {
        of: LetterId,
        replay: Replay,
    },
    /// Somebody else's.
    Foreign,
}

/// Reads all committed records, and keeps the letters that are wanted. Blocks: not for a task.
///
/// # Errors
/// When there is no such topic, or no broker gives it.
pub(crate) fn read(
    kafka: &config::Kafka,
    topic: &str,
    fields: &FieldNames,
    wanted: impl Fn(LetterId, &Letter) -> bool,
) -> Result<Held, LetterTopicError> {
    let consumer = consumer(kafka)?;
    let failed = |error: &KafkaError| failed(kafka, topic, error);
    // Of all topics: to ask for one can make it.
    let metadata = consumer.fetch_metadata(None, REQUEST).map_err(|error| failed(&error))?;
    let Some(found) = metadata.topics().iter().find(|found| found.name() == topic) else {
        return Err(LetterTopicError::Missing {
            topic: topic.to_owned(),
        });
    };
    let mut open: BTreeMap<i32, i64> = BTreeMap::new();
    let mut assignment = TopicPartitionList::new();
    for partition in found.partitions() {
        let id = partition.id();
        let watermarks = consumer.fetch_watermarks(topic, id, REQUEST);
        let (low, end) = watermarks.map_err(|error| failed(&error))?;
        if low < end {
            let added = assignment.add_partition_offset(topic, id, Offset::Offset(low));
            added.map_err(|error| failed(&error))?;
            open.insert(id, end);
        }
    }
    let mut held = Held::default();
    let mut replays = HashMap::new();
    consumer.assign(&assignment).map_err(|error| failed(&error))?;
    let mut last = Instant::now();
    while !open.is_empty() {
        let message = match consumer.poll(POLL) {
            None if last.elapsed() < PATIENCE => continue,
            None => {
                return Err(LetterTopicError::Stuck {
                    topic: topic.to_owned(),
                });
            }
            Some(Err(KafkaError::PartitionEOF(partition))) => {
                open.remove(&partition);
                continue;
            }
            Some(Err(error)) if may_pass(&error) && last.elapsed() < PATIENCE => continue,
            Some(Err(error)) => return Err(failed(&error)),
            Some(Ok(message)) => message,
        };
        last = Instant::now();
        let (partition, offset) = (message.partition(), message.offset());
        held.ends.insert(partition, offset + 1);
        if open.get(&partition).is_some_and(|end| offset + 1 >= *end) {
            open.remove(&partition);
        }
        match meaning(record(&message), fields) {
            Meaning::Letter(letter) => {
                let id = LetterId::Record { partition, offset };
                if wanted(id, &letter) {
                    let (letter, replay) = (*letter, None);
                    held.letters.push(Parked { id, letter, replay });
                }
            }
            Meaning::Marker { of, replay } => {
                replays.insert(of, replay);
            }
            Meaning::Foreign => tracing::debug!(topic, partition, offset, "a record of the topic is no dead letter"),
        }
    }
    for parked in &mut held.letters {
        parked.replay = replays.remove(&parked.id);
    }
    held.letters.sort_by(by_parking);
    // It takes a tenth of a second to close, for which nobody waits; without a thread it is closed here.
    drop(std::thread::Builder::new().spawn(|| drop(consumer)));
    Ok(held)
}

fn by_parking(one: &Parked, other: &Parked) -> Ordering {
    let at = one.letter.parked_at.cmp(&other.letter.parked_at);
    at.then_with(|| one.id.cmp(&other.id))
}

/// The record that says how a letter was sent again.
pub(crate) fn marker(topic: &str, partition: i32, offset: i64, now: SystemTime, outcome: &str) -> Record {
    let header = |name: &str, value: String| Header {
        name: Arc::from(name),
        value: Some(Bytes::from(value)),
    };
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    Record {
        topic: Arc::from(topic),
        partition: Some(partition),
        key: Some(Bytes::from(format!("{MARKER}{partition}:{offset}"))),
        // Empty rather than null, which a compacted topic would take for a deletion.
        value: Some(Bytes::new()),
        headers: vec![
            header(names::REPLAYED, rfc3339(now)),
            header(names::OUTCOME, outcome.to_owned()),
        ],
        timestamp_ms: i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
        about: None,
    }
}

fn meaning(mut record: Record, fields: &FieldNames) -> Meaning {
    let text = |name: &str| {
        let header = record.headers.iter().find(|header| &*header.name == name)?;
        header
            .value
            .as_deref()
            .map(|value| String::from_utf8_lossy(value).into_owned())
    };
    if text(names::REASON).is_some() {
        record.about = Some(Box::new(fields.about(&record.headers)));
        return Meaning::Letter(Box::new(Letter::of_record(&record)));
    }
    let key = record.key.as_deref().and_then(|key| std::str::from_utf8(key).ok());
    let of = key.and_then(|key| key.strip_prefix(MARKER)?.parse().ok());
    match (of, text(names::REPLAYED), text(names::OUTCOME)) {
        (Some(of), Some(at), Some(outcome)) => Meaning::Marker {
            of,
            replay: Replay { at, outcome },
        },
        _ => Meaning::Foreign,
    }
}

fn record(message: &impl Message) -> Record {
    let headers = message.headers().map_or_else(Vec::new, |headers| {
        let header = |header: rdkafka::message::Header<'_, &[u8]>| Header {
            name: Arc::from(header.key),
            value: header.value.map(Bytes::copy_from_slice),
        };
        headers.iter().map(header).collect()
    });
    Record {
        topic: Arc::from(message.topic()),
        partition: Some(message.partition()),
        key: message.key().map(Bytes::copy_from_slice),
        value: message.payload().map(Bytes::copy_from_slice),
        headers,
        timestamp_ms: message.timestamp().to_millis().unwrap_or_default(),
        about: None,
    }
}

/// What the client reports beside the answers to calls is told by those.
struct Quiet;

impl ClientContext for Quiet {
    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(error = %error, reason, "librdkafka reports");
    }
}

impl ConsumerContext for Quiet {}

fn consumer(kafka: &config::Kafka) -> Result<BaseConsumer<Quiet>, LetterTopicError> {
    let mut settings = client_config(kafka);
    settings
        // Needed to be given partitions. The group has no members and no offsets.
        .set("group.id", "tailpost")
        .set("isolation.level", "read_committed")
        .set("enable.auto.commit", "false")
        .set("enable.partition.eof", "true")
        .set("auto.offset.reset", "earliest");
    let made = settings.create_with_context(Quiet);
    made.map_err(|error| LetterTopicError::Client {
        reason: client_reason(&error),
    })
}

/// Whether the client goes on by itself.
fn may_pass(error: &KafkaError) -> bool {
    use RDKafkaErrorCode as Code;
    matches!(
        error.rdkafka_error_code(),
        Some(
            Code::BrokerTransportFailure
                | Code::AllBrokersDown
                | Code::OperationTimedOut
                | Code::Resolve
                // Of the group, which is not used.
                | Code::GroupAuthorizationFailed
        )
    )
}

fn failed(kafka: &config::Kafka, topic: &str, error: &KafkaError) -> LetterTopicError {
    use RDKafkaErrorCode as Code;
    match error.rdkafka_error_code().unwrap_or(Code::Unknown) {
        Code::BrokerTransportFailure | Code::AllBrokersDown | Code::OperationTimedOut => {
            LetterTopicError::Unavailable {
                reason: no_answer(&kafka.brokers),
            }
        }
        code => LetterTopicError::Refused {
            topic: topic.to_owned(),
            code,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(key: Option<&str>, headers: &[(&str, &str)]) -> Record {
        let header = |(name, value): &(&str, &str)| Header {
            name: Arc::from(*name),
            value: Some(Bytes::from((*value).to_owned())),
        };
        Record {
            topic: Arc::from("dead"),
            partition: Some(0),
            key: key.map(|key| Bytes::from(key.to_owned())),
            value: None,
            headers: headers.iter().map(header).collect(),
            timestamp_ms: 5,
            about: None,
        }
    }

    #[test]
    fn a_marker_tells_of_its_letter_and_is_none() {
        let made = marker("dead", 2, 17, UNIX_EPOCH, "published");
        let expected = Meaning::Marker {
            of: LetterId::Record {
                partition: 2,
                offset: 17,
            },
            replay: Replay {
                at: "1970-01-01T00:00:00.000Z".to_owned(),
                outcome: "published".to_owned(),
            },
        };
        assert_eq!(meaning(made, &FieldNames::default()), expected);
    }

    #[test]
    fn what_is_neither_letter_nor_marker_is_foreign() {
        let replayed = [(names::REPLAYED, "t"), (names::OUTCOME, "published")];
        for foreign in [
            record(None, &[]),
            record(Some("7"), &replayed),
            record(Some("tailpost-dlq-replayed/nowhere"), &replayed),
            record(Some("tailpost-dlq-replayed/0:1"), &[]),
        ] {
            assert_eq!(meaning(foreign, &FieldNames::default()), Meaning::Foreign);
        }
    }

    #[test]
    fn fields_come_from_the_headers_that_the_pipeline_names() {
        let headers = [
            ("type", "\"a\\\"b\""),
            ("df-aggregate-id", "7"),
            (names::REASON, "poison_message"),
        ];
        let fields = FieldNames {
            names: HeaderNames {
                event_type: Some("type".to_owned()),
                aggregate_type: None,
                ..HeaderNames::default()
            },
            form: HeadersAs::Json,
        };
        let Meaning::Letter(letter) = meaning(record(Some("7"), &headers), &fields) else {
            panic!("no letter");
        };
        assert_eq!(
            (
                letter.event_type.as_deref(),
                letter.aggregate_type.as_deref(),
                letter.aggregate_id.as_deref()
            ),
            (Some("a\"b"), None, Some("7"))
        );
        assert_eq!(letter.headers.len(), 2);
    }
}
