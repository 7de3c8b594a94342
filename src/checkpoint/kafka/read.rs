//! Reads the last committed position of a pipeline from the checkpoint topic.
//!
//! A reader of committed records sees none behind an open transaction, whosever it is. So the topic's end is asked first,
//! without regard to transactions, and nothing is believed before everything up to it is decided and read: a plain read
//! could give a position that is old. For the same reason a partition that nobody leads is not one without a position, and
//! an end that lies before the one that was told is none: a new leader of a partition may not know yet how far it reaches
//! (Kafka's KIP-207). The topic is read backwards in growing windows, since the position is near its end.

use std::ops::Range;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rdkafka::ClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use crate::config;
use crate::sink::kafka::{client_config, client_reason, no_answer, refusal_remedy};

use super::KafkaStoreError;
use super::polling::{self, Polled};
use super::record::PARTITION;

const REQUEST: Duration = Duration::from_secs(10);
/// How long open transactions are waited for; a life that begins anew waits again.
const STABLE: Duration = Duration::from_secs(15);
const LOOK: Duration = Duration::from_millis(50);
const POLL: Duration = Duration::from_millis(100);
/// How long a window may take.
const WINDOW: Duration = Duration::from_secs(60);
/// Offsets in the first window, and how much more each further one has.
const FIRST_WINDOW: i64 = 1000;
const GROWTH: i64 = 8;

/// The value of the last committed record with this key, None where there is none. Blocks: not for a task.
pub(super) fn last_value(kafka: &config::Kafka, topic: &str, key: &str) -> Result<Option<Vec<u8>>, KafkaStoreError> {
    let plain = consumer(kafka, "read_uncommitted")?;
    let (low, end) = watermarks(kafka, &plain, topic)?;
    close(plain);
    let committed = consumer(kafka, "read_committed")?;
    let value = last_before(kafka, &committed, topic, key, low..end);
    close(committed);
    value
}

/// Closes a client, which takes it a tenth of a second, for which nobody waits.
fn close(reader: Reader) {
    // Without a thread it is closed here.
    drop(std::thread::Builder::new().spawn(|| drop(reader)));
}

/// The value of the last committed record with this key between these offsets.
fn last_before(
    kafka: &config::Kafka,
    committed: &Reader,
    topic: &str,
    key: &str,
    Range { start: low, end }: Range<i64>,
) -> Result<Option<Vec<u8>>, KafkaStoreError> {
    wait_stable(kafka, committed, topic, end)?;
    let (mut upto, mut size) = (end, FIRST_WINDOW);
    while upto > low {
        let from = upto.saturating_sub(size).max(low);
        let window = Window { from, upto };
        if let Some(value) = window.last_value(kafka, committed, topic, key)? {
            return Ok(value);
        }
        (upto, size) = (from, size.saturating_mul(GROWTH));
    }
    Ok(None)
}

/// What the client reports beside the answers to calls is told by those: an error of the log's is for what someone must mend.
struct Quiet;

impl ClientContext for Quiet {
    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(error = %error, reason, "librdkafka reports");
    }
}

impl ConsumerContext for Quiet {}

type Reader = polling::Reader<Quiet>;

fn consumer(kafka: &config::Kafka, isolation: &str) -> Result<Reader, KafkaStoreError> {
    let mut settings: ClientConfig = client_config(kafka);
    settings
        // Needed to be given partitions. The group has no members and no offsets.
        .set("group.id", "tailpost")
        .set("isolation.level", isolation)
        .set("enable.auto.commit", "false")
        .set("enable.partition.eof", "true")
        .set("auto.offset.reset", "earliest")
        // The end is told in an answer that brings nothing.
        .set("fetch.wait.max.ms", "5");
    let made = settings
        .create_with_context(Quiet)
        .map_err(|error| KafkaStoreError::Client {
            reason: client_reason(&error),
        })?;
    Reader::new(made).ok_or_else(|| KafkaStoreError::Client {
        reason: "it has no group".to_owned(),
    })
}

/// Where the partition begins and ends, for a reader of this isolation.
fn watermarks(kafka: &config::Kafka, reader: &Reader, topic: &str) -> Result<(i64, i64), KafkaStoreError> {
    let told = reader.consumer().fetch_watermarks(topic, PARTITION, REQUEST);
    told.map_err(|error| failed(kafka, topic, &error))
}

/// Waits until every transaction that began before `end` is committed or aborted.
fn wait_stable(kafka: &config::Kafka, committed: &Reader, topic: &str, end: i64) -> Result<(), KafkaStoreError> {
    let deadline = Instant::now() + STABLE;
    loop {
        let (_, stable) = watermarks(kafka, committed, topic)?;
        if stable >= end {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(KafkaStoreError::HeldBack {
                topic: topic.to_owned(),
                stable,
                end,
            });
        }
        sleep(LOOK);
    }
}

/// Offsets from `from` to before `upto`.
struct Window {
    from: i64,
    upto: i64,
}

impl Window {
    /// The value of the window's last record with this key: None where it has none, Some(None) a tombstone's.
    fn last_value(
        &self,
        kafka: &config::Kafka,
        committed: &Reader,
        topic: &str,
        key: &str,
    ) -> Result<Option<Option<Vec<u8>>>, KafkaStoreError> {
        let mut assignment = TopicPartitionList::new();
        let assigned = assignment
            .add_partition_offset(topic, PARTITION, Offset::Offset(self.from))
            .and_then(|()| committed.consumer().assign(&assignment));
        assigned.map_err(|error| failed(kafka, topic, &error))?;
        let deadline = Instant::now() + WINDOW;
        let mut last = None;
        while Instant::now() < deadline {
            match committed.poll(POLL) {
                Polled::Nothing => {}
                // Also where the rest of the window holds no record but the ends of transactions.
                Polled::End { offset } if offset >= self.upto => return Ok(last),
                Polled::End { offset } => {
                    tracing::debug!(
                        topic,
                        offset,
                        upto = self.upto,
                        "the checkpoint topic seems to end early"
                    );
                }
                Polled::Record(record) if record.offset >= self.upto => return Ok(last),
                Polled::Record(record) if record.key.as_deref() == Some(key.as_bytes()) => last = Some(record.value),
                Polled::Record(_) => {}
                // Of the group, which is not used.
                Polled::Failed(RDKafkaErrorCode::GroupAuthorizationFailed) => {}
                Polled::Failed(code) if may_pass(code) => {
                    tracing::debug!(error = %code, topic, "the checkpoint topic is being read");
                }
                Polled::Failed(code) => return Err(refused(kafka, topic, code)),
            }
        }
        Err(KafkaStoreError::Unavailable {
            reason: format!(
                "read checkpoint topic `{topic}`: it took more than {} s",
                WINDOW.as_secs()
            ),
        })
    }
}

/// Whether the client goes on by itself.
fn may_pass(code: RDKafkaErrorCode) -> bool {
    use RDKafkaErrorCode as Code;
    matches!(
        code,
        Code::BrokerTransportFailure | Code::AllBrokersDown | Code::OperationTimedOut | Code::Resolve
    )
}

fn failed(kafka: &config::Kafka, topic: &str, error: &KafkaError) -> KafkaStoreError {
    refused(
        kafka,
        topic,
        error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Unknown),
    )
}

fn refused(kafka: &config::Kafka, topic: &str, code: RDKafkaErrorCode) -> KafkaStoreError {
    use RDKafkaErrorCode as Code;
    match code {
        Code::BrokerTransportFailure | Code::AllBrokersDown | Code::OperationTimedOut => KafkaStoreError::Unavailable {
            reason: no_answer(&kafka.brokers),
        },
        // The client says that it does not know the partition where it knows no leader of it.
        Code::UnknownTopicOrPartition
        | Code::UnknownTopic
        | Code::UnknownPartition
        | Code::LeaderNotAvailable
        | Code::NotLeaderForPartition => KafkaStoreError::Leaderless {
            topic: topic.to_owned(),
        },
        Code::TopicAuthorizationFailed => KafkaStoreError::Refused {
            text: format!("read checkpoint topic `{topic}`: {code}; allow the user to read it (ACL READ)"),
        },
        code => match refusal_remedy(code, &kafka.transactional_id) {
            Some(remedy) => KafkaStoreError::Refused {
                text: format!("read checkpoint topic `{topic}`: {code}; {remedy}"),
            },
            None => KafkaStoreError::Unavailable {
                reason: format!("read checkpoint topic `{topic}`: {code}"),
            },
        },
    }
}
