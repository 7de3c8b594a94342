//! What must be known of a topic before the first record goes to it: that it exists, and how large a record may be.
//!
//! One record over the limit would fail every record that travels in its batch, so sizes are checked before.

use std::time::{Duration, Instant};

use rdkafka::admin::{AdminOptions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::metadata::{Metadata, MetadataBroker};
use rdkafka::producer::Producer as _;

use crate::config;
use crate::record::Record;
use crate::sink::{DeliveryError, DeliveryErrorKind, RecordFault};

use super::admin::Admin;
use super::client::no_answer;
use super::producer::Producer;

pub(super) const REQUEST: Duration = Duration::from_secs(10);
/// A broker that makes topics itself takes a moment for it.
const AUTO_CREATION_TRIES: u32 = 10;
const AUTO_CREATION_WAIT: Duration = Duration::from_millis(200);
/// How long a topic's partitions are waited for: after the last sign that they are being opened, and in all.
const ONLINE: Duration = Duration::from_secs(10);
const OPENING: Duration = Duration::from_secs(30);
const ONLINE_WAIT: Duration = Duration::from_millis(20);
/// Kafka's default `max.message.bytes`, for brokers that do not tell.
const DEFAULT_LIMIT: u64 = 1_048_588;

/// What becomes of a record whose topic does not exist and is not made by anybody.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnknownTopics {
    /// It waits for its topic.
    Wait,
    /// It is a fault of the record, except of one for this topic: a dead letter waits for its own.
    Reject { except: Option<String> },
}

impl UnknownTopics {
    fn rejects(&self, topic: &str) -> bool {
        match self {
            Self::Wait => false,
            Self::Reject { except } => except.as_deref() != Some(topic),
        }
    }
}

/// A topic that records may go to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Topic {
    /// The largest record batch that it takes, in bytes.
    pub(super) limit: u64,
    /// Read since the last record that was over it: an operator may have raised it.
    pub(super) fresh: bool,
}

/// Makes the topic where it must and may, and reads its limit. Blocks: not for a task.
///
/// # Errors
/// `Unavailable` while it can still come about, `Refused` where a person must act, a fault of the record where `unknown`
/// says so.
pub(super) fn prepare(
    producer: &Producer,
    admin: &Admin,
    kafka: &config::Kafka,
    unknown: &UnknownTopics,
    name: &str,
) -> Result<Topic, DeliveryError> {
    let runtime = tokio::runtime::Handle::current();
    let mut created = false;
    let mut tries = 0;
    loop {
        let missing = match kafka.create_topics.is_some() && !created {
            true => absence(producer, name)?,
            false => existence(producer, name)?,
        };
        match missing {
            None => break,
            Some(code) => match &kafka.create_topics {
                Some(wanted) if !created => {
                    // So that it knows whom to ask, too.
                    first_broker(&admin.cluster(None)?, admin.brokers())?;
                    runtime.block_on(create(admin, name, *wanted))?;
                    created = true;
                }
                _ => {
                    tries += 1;
                    if tries >= AUTO_CREATION_TRIES {
                        // Another code, such as one of a topic that is being made, says nothing for certain.
                        let is_unknown = matches!(
                            code,
                            RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic
                        );
                        return Err(DeliveryError {
                            kind: match is_unknown && !created && unknown.rejects(name) {
                                true => DeliveryErrorKind::Record(RecordFault::UnknownTopic),
                                false => DeliveryErrorKind::Unavailable,
                            },
                            text: format!(
                                "topic `{name}` does not exist and the broker does not make it ({code}), expected one that is there: \
                                 create it, or set create_topics"
                            ),
                        });
                    }
                    std::thread::sleep(AUTO_CREATION_WAIT);
                }
            },
        }
    }
    let metadata = admin.cluster(Some(name))?;
    let broker = first_broker(&metadata, admin.brokers())?;
    let limit = runtime.block_on(limit(admin, name, broker))?;
    let partitions = metadata.topics().iter().find(|topic| topic.name() == name);
    wait_online(admin, name, partitions.map_or(0, |topic| topic.partitions().len()));
    Ok(Topic { limit, fresh: true })
}

/// Waits for a moment until each partition can be written to.
///
/// A leader is named before it has its partition open. Of two batches in between it would refuse the first and take the
/// second, which costs a life: see `without_offset`. A partition that stays away must not hold the others up.
fn wait_online(admin: &Admin, topic: &str, partitions: usize) {
    let mut patience = Patience::new(Instant::now());
    for partition in 0..i32::try_from(partitions).unwrap_or(i32::MAX) {
        loop {
            let left = patience.left(Instant::now());
            if left.is_zero() {
                return;
            }
            // Only a leader that has it open knows how far it reaches.
            match admin.client.inner().fetch_watermarks(topic, partition, left) {
                Ok(_) => break,
                Err(error) => {
                    tracing::debug!(topic, partition, error = %error, "the partition is not open yet");
                    let code = error.rdkafka_error_code();
                    patience.answered(Instant::now(), code.is_some_and(is_being_made));
                }
            }
            std::thread::sleep(ONLINE_WAIT);
        }
    }
}

/// What a leader says that does not have the partition open.
fn is_being_made(code: RDKafkaErrorCode) -> bool {
    matches!(
        code,
        RDKafkaErrorCode::NotLeaderForPartition | RDKafkaErrorCode::UnknownTopicOrPartition
    )
}

/// How long partitions are waited for: longer where their leaders answer, which need their time when many are made at once.
struct Patience {
    until: Instant,
    at_most: Instant,
}

impl Patience {
    fn new(now: Instant) -> Self {
        Self {
            until: now + ONLINE,
            at_most: now + OPENING,
        }
    }

    fn left(&self, now: Instant) -> Duration {
        self.until.saturating_duration_since(now)
    }

    fn answered(&mut self, now: Instant, is_being_made: bool) {
        if is_being_made {
            self.until = (now + ONLINE).min(self.at_most);
        }
    }
}

/// Any broker: each knows every topic's settings.
///
/// # Errors
/// `Unavailable` while the cluster names no broker.
pub(super) fn first_broker(metadata: &Metadata, brokers: &str) -> Result<i32, DeliveryError> {
    let first = metadata.brokers().first();
    first.map(MetadataBroker::id).ok_or_else(|| {
        unavailable(format!(
            "Kafka at {brokers} answers, but names no broker yet: it is coming up, or its controller does not see it"
        ))
    })
}

/// Whether the topic is among those that were told of.
pub(super) fn lists(metadata: &Metadata, name: &str) -> bool {
    metadata.topics().iter().any(|topic| topic.name() == name)
}

/// None: it is there. Asks for all topics, since a broker may make one that is asked for, as its own rule says and not as the
/// pipeline's file does.
fn absence(producer: &Producer, name: &str) -> Result<Option<RDKafkaErrorCode>, DeliveryError> {
    let asking = &producer.context().asking;
    let metadata = asking
        .metadata(producer.client(), None, REQUEST)
        .map_err(|_| unavailable(no_answer(asking.brokers())))?;
    Ok((!lists(&metadata, name)).then_some(RDKafkaErrorCode::UnknownTopicOrPartition))
}

/// None: it is there. Asking makes it, where the broker's own rule says so.
fn existence(producer: &Producer, name: &str) -> Result<Option<RDKafkaErrorCode>, DeliveryError> {
    let asking = &producer.context().asking;
    let metadata = asking
        .metadata(producer.client(), Some(name), REQUEST)
        .map_err(|error| {
            let code = error.rdkafka_error_code();
            match code {
                Some(
                    RDKafkaErrorCode::OperationTimedOut
                    | RDKafkaErrorCode::BrokerTransportFailure
                    | RDKafkaErrorCode::AllBrokersDown,
                ) => unavailable(no_answer(asking.brokers())),
                _ => unavailable(format!("read the metadata of topic `{name}`: {error}")),
            }
        })?;
    // One that sees no broker may not know its topics yet, and what is unknown can be a fault of the record.
    first_broker(&metadata, asking.brokers())?;
    let topic = metadata.topics().iter().find(|topic| topic.name() == name);
    let code = match topic {
        None => Some(RDKafkaErrorCode::UnknownTopicOrPartition),
        Some(topic) => topic.error().map(RDKafkaErrorCode::from),
    };
    match code {
        Some(RDKafkaErrorCode::TopicAuthorizationFailed) => Err(DeliveryError {
            kind: DeliveryErrorKind::Refused,
            text: format!("topic `{name}` may not be described: allow the user to describe and write to it"),
        }),
        Some(RDKafkaErrorCode::InvalidTopic) => Err(DeliveryError {
            kind: DeliveryErrorKind::Record(RecordFault::UnknownTopic),
            text: format!("the broker does not accept `{name}` as a topic's name"),
        }),
        other => Ok(other),
    }
}

async fn create(admin: &Admin, name: &str, wanted: config::CreateTopics) -> Result<(), DeliveryError> {
    let topic = NewTopic::new(
        name,
        wanted.partitions,
        TopicReplication::Fixed(wanted.replication_factor),
    );
    let options = AdminOptions::new().operation_timeout(Some(REQUEST));
    let failed = |reason: String| unavailable(format!("create topic `{name}`: {reason}"));
    let results = match admin.client.create_topics([&topic], &options).await {
        Ok(results) => results,
        Err(KafkaError::AdminOp(code)) => return Err(failed(code.to_string())),
        Err(error) => return Err(failed(error.to_string())),
    };
    match results.into_iter().next() {
        Some(Err((_, RDKafkaErrorCode::TopicAlreadyExists))) | Some(Ok(_)) | None => Ok(()),
        Some(Err((
            _,
            code @ (RDKafkaErrorCode::TopicAuthorizationFailed | RDKafkaErrorCode::ClusterAuthorizationFailed),
        ))) => Err(DeliveryError {
            kind: DeliveryErrorKind::Refused,
            text: format!("create topic `{name}`: {code}; allow the user to create it, or create it by hand"),
        }),
        Some(Err((_, code))) => Err(failed(code.to_string())),
    }
}

/// A topic's setting, as any broker knows it.
///
/// # Errors
/// Why it was not told. The client keeps a refusal of the topic to itself and gives no settings: that is
/// `TopicAuthorizationFailed`.
pub(super) async fn setting(admin: &Admin, topic: &str, name: &str, broker: i32) -> Result<String, RDKafkaErrorCode> {
    let options = AdminOptions::new()
        .request_timeout(Some(REQUEST))
        .broker_id(Some(broker));
    let described = admin
        .client
        .describe_configs([&ResourceSpecifier::Topic(topic)], &options)
        .await;
    match described.map(|results| results.into_iter().next()) {
        Ok(Some(Ok(resource))) => resource
            .get(name)
            .and_then(|entry| entry.value.clone())
            .ok_or(RDKafkaErrorCode::TopicAuthorizationFailed),
        Ok(Some(Err(code))) | Err(KafkaError::AdminOp(code)) => Err(code),
        Ok(None) => Err(RDKafkaErrorCode::Unknown),
        Err(error) => Err(error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Unknown)),
    }
}

async fn limit(admin: &Admin, name: &str, broker: i32) -> Result<u64, DeliveryError> {
    use RDKafkaErrorCode as Code;
    let reason = match setting(admin, name, "max.message.bytes", broker).await {
        Ok(text) => match text.parse() {
            Ok(limit) => return Ok(limit),
            Err(_) => Code::TopicAuthorizationFailed,
        },
        Err(code) => code,
    };
    match reason {
        Code::TopicAuthorizationFailed
        | Code::ClusterAuthorizationFailed
        | Code::UnsupportedVersion
        | Code::UnsupportedFeature => {
            tracing::warn!(
                topic = name,
                limit = DEFAULT_LIMIT,
                reason = %reason,
                "the topic's max.message.bytes may not be read (ACL DESCRIBE_CONFIGS); the default is assumed"
            );
            Ok(DEFAULT_LIMIT)
        }
        reason => Err(unavailable(format!(
            "read max.message.bytes of topic `{name}`: {reason}"
        ))),
    }
}

pub(super) fn unavailable(text: String) -> DeliveryError {
    DeliveryError {
        kind: DeliveryErrorKind::Unavailable,
        text,
    }
}

/// Size of the batch that the record makes when it travels alone: the least that a topic must take for it.
///
/// Kafka documentation, "Record Batch": 61 bytes of header, then each record with its lengths as zigzag varints.
pub(super) fn batch_len(record: &Record) -> u64 {
    let part = |bytes: Option<usize>| bytes.map_or(1, |length| varint_len(length) + length);
    let headers: usize = record
        .headers
        .iter()
        .map(|header| part(Some(header.name.len())) + part(header.value.as_ref().map(bytes::Bytes::len)))
        .sum();
    // Attributes, and the deltas of time and offset: 0 in a batch of one.
    let body = 3
        + part(record.key.as_ref().map(bytes::Bytes::len))
        + part(record.value.as_ref().map(bytes::Bytes::len))
        + varint_len(record.headers.len())
        + headers;
    (61 + varint_len(body) + body) as u64
}

fn varint_len(value: usize) -> usize {
    // Zigzag doubles it; seven bits a byte.
    let bits = usize::BITS - value.leading_zeros() + 1;
    bits.div_ceil(7).max(1) as usize
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn varints_grow_at_the_zigzag_bounds() {
        for (value, length) in [
            (0, 1),
            (63, 1),
            (64, 2),
            (8191, 2),
            (8192, 3),
            (1_048_575, 3),
            (1_048_576, 4),
        ] {
            assert_eq!(varint_len(value), length, "{value}");
        }
    }

    #[test]
    fn a_record_alone_is_its_bytes_and_the_batch_around_them() {
        let record = Record {
            topic: "t".into(),
            key: None,
            value: Some(Bytes::from_static(b"value")),
            headers: Vec::new(),
            partition: None,
            timestamp_ms: 0,
            about: None,
        };
        // 61 + length 1 + attributes 1 + time 1 + offset 1 + no key 1 + length 1 + value 5 + no headers 1
        assert_eq!(batch_len(&record), 61 + 12);
    }

    #[test]
    fn partitions_that_are_being_opened_are_waited_for_longer_than_those_that_are_away() {
        let begun = Instant::now();
        let after = |seconds| begun + Duration::from_secs(seconds);
        let gives_up_after = |is_being_made: bool| {
            let mut patience = Patience::new(begun);
            (1..).find(|seconds| {
                patience.answered(after(*seconds), is_being_made);
                patience.left(after(*seconds)).is_zero()
            })
        };
        assert_eq!(gives_up_after(false), Some(10));
        assert_eq!(gives_up_after(true), Some(30));
    }
}
