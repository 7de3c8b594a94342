//! Kafka, by librdkafka's idempotent producer with acks=all.
//!
//! Retriable failures never reach us: librdkafka repeats them without a limit and in order. What is reported as failed
//! is for good, so the first failure ends this sink's life; records behind it must not overtake it.
//!
//! With `exactly_once` records travel in transactions, each with the position behind it as its last record: readers of
//! committed records see both or neither. What would make an open transaction wait for long (a topic that is looked at, a
//! producer that is made anew) waits for a commit first, since readers wait for the transaction.

mod admin;
mod asking;
mod checkpoint_topic;
mod client;
mod committing;
mod error;
mod linger;
mod preflight;
mod producer;
mod queue;
mod reports;
mod topics;
mod transaction;

#[cfg(feature = "bench")]
pub mod bench;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseRecord, Producer as _, PurgeConfig};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::config::{self, CheckpointTopic};
use crate::position::Position;
use crate::record::Record;
use crate::relay::in_flight::{Acks, Seq};
use crate::telemetry::status::PipelineStatus;

use super::{DeliveryError, DeliveryErrorKind, RecordFault, SendError, Sink, SinkError};

use admin::AdminOnDemand;
use client::wanted_batch_size;
use committing::Transactions;
use linger::Hurry;
use producer::{Settings, SharedProducer};
use reports::Reports;
use topics::{Topic, batch_len, prepare};

pub(crate) use admin::Admin;
pub(crate) use asking::Asking;
pub(crate) use checkpoint_topic::ensure as ensure_checkpoint_topic;
pub(crate) use client::{Trouble, client_config, no_answer};
pub use committing::Positions;
pub use error::KafkaSinkError;
pub(crate) use error::{client_reason, refusal_remedy};
pub use preflight::preflight;
pub(crate) use queue::Queue;
pub use topics::UnknownTopics;
pub(crate) use transaction::{
    TransactionError, TransactionErrorKind, abort, begin, commit, init, is_fenced, until_known,
};

/// What librdkafka keeps for a queued record beside its bytes.
pub const QUEUE_OVERHEAD: u64 = 700;
/// Between two looks whether the brokers are back, or a topic has come.
const RETRY: Duration = Duration::from_secs(1);

/// What a sink is made with.
#[derive(Debug, Clone)]
pub struct KafkaSinkParts {
    pub config: Arc<config::Kafka>,
    /// The most records that are in flight at once.
    pub max_events: usize,
    /// Where positions go with the records, in one transaction; None: records go without.
    pub positions: Option<Positions>,
    pub unknown_topics: UnknownTopics,
    /// Whether records can name their partition, which then need not exist.
    pub names_partitions: bool,
    /// The smallest batch size that a topic asked for so far. It outlasts the sink.
    pub batch_limit: Arc<AtomicU64>,
}

/// Sends to one cluster.
pub struct KafkaSink {
    settings: Settings,
    producer: SharedProducer,
    reports: Reports,
    transactions: Option<Transactions>,
    unknown_topics: Arc<UnknownTopics>,
    admin: AdminOnDemand,
    topics: HashMap<Arc<str>, Topic>,
    /// The topic that the record given back waits for.
    preparing: Option<Preparing>,
    /// Records given back because librdkafka's queue was full.
    queue_full: bool,
    /// Why the cluster does not let us write.
    refused: Option<DeliveryError>,
    /// None: how long records linger is the configuration's, or a commit's.
    hurry: Option<Hurry>,
    /// Something was sent since it last was to hurry.
    lingers: bool,
    compressed: bool,
    batch_size: u64,
    /// A smaller batch size that a topic asks for: the producer is made anew when nothing is in flight.
    next_batch_size: Option<u64>,
    batch_limit: Arc<AtomicU64>,
    probe: JoinHandle<()>,
}

/// A topic being looked at, on a thread of its own.
struct Preparing {
    name: Arc<str>,
    task: JoinHandle<Result<Topic, DeliveryError>>,
}

impl KafkaSink {
    /// Makes the producer; it connects by itself. Must be called within a runtime.
    ///
    /// # Errors
    /// When `client_conf` does not fit librdkafka.
    pub fn new(parts: KafkaSinkParts, acks: Acks, status: Arc<PipelineStatus>) -> Result<Self, KafkaSinkError> {
        let KafkaSinkParts {
            config,
            max_events,
            positions,
            unknown_topics,
            names_partitions,
            batch_limit,
        } = parts;
        // Troubles of a former life are over, or will be found anew: by the new producer as soon as it is made.
        status.sink_trouble(None);
        let transactions = positions.map(|positions| Transactions::new(positions, &config));
        let settings = Settings {
            max_events,
            transactional: transactions.is_some(),
            names_partitions,
            acks,
            status,
            config: Arc::clone(&config),
        };
        let batch_size = wanted_batch_size(&config).min(batch_limit.load(Ordering::Relaxed));
        let lingers_as_told = transactions.is_some() || client::is_linger_given(&config);
        let (producer, reports) = settings.make(batch_size)?;
        let probe = settings.probe(&producer);
        Ok(Self {
            settings,
            producer,
            reports,
            transactions,
            unknown_topics: Arc::new(unknown_topics),
            admin: AdminOnDemand::new(&config),
            topics: HashMap::new(),
            preparing: None,
            queue_full: false,
            refused: None,
            hurry: (!lingers_as_told).then(Hurry::default),
            lingers: false,
            compressed: client::is_compressed(&config),
            batch_size,
            next_batch_size: None,
            batch_limit,
            probe,
        })
    }

    /// A record that waits for something which can take long.
    fn later(&self, record: Record) -> SendError {
        match self.transactions.as_ref().is_some_and(Transactions::is_open) {
            true => SendError::CommitFirst(Box::new(record)),
            false => SendError::NotReady(Box::new(record)),
        }
    }

    fn start_preparing(&mut self, name: Arc<str>, wait: Duration) {
        let (producer, admin) = (Arc::clone(&self.producer), self.admin.clone());
        let (config, unknown) = (Arc::clone(&self.settings.config), Arc::clone(&self.unknown_topics));
        let topic = Arc::clone(&name);
        let task = tokio::task::spawn_blocking(move || {
            std::thread::sleep(wait);
            prepare(&producer, &*admin.get()?, &config, &unknown, &topic)
        });
        self.preparing = Some(Preparing { name, task });
    }

    /// Waits until fewer records than `count` are on their way. Cancel safe.
    async fn fewer_outstanding_than(&self, count: usize) {
        loop {
            self.reports.take();
            if self.producer.context().pulse.outstanding.load(Ordering::Acquire) < count {
                return;
            }
            self.reports.arrived().await;
        }
    }

    fn fatal_error(&self) -> Option<KafkaSinkError> {
        let (code, reason) = self.producer.client().fatal_error()?;
        Some(match is_fenced(code) {
            true => KafkaSinkError::Fenced {
                transactional_id: self.settings.config.transactional_id.clone(),
                reason,
            },
            false => KafkaSinkError::Fatal {
                reason: format!("{code}: {reason}"),
            },
        })
    }

    /// Waits until the topic for positions is there.
    async fn checkpoint_topic(&self, topic: &CheckpointTopic) -> Result<(), DeliveryError> {
        let context = self.producer.context();
        loop {
            let (admin, topic) = (self.admin.clone(), topic.clone());
            let looked = tokio::task::spawn_blocking(move || ensure_checkpoint_topic(&*admin.get()?, &topic)).await;
            let error = match looked {
                Ok(Ok(())) => {
                    context.report(None);
                    return Ok(());
                }
                Ok(Err(error)) => error,
                Err(panic) => topics::unavailable(panic.to_string()),
            };
            if let Some(refusal) = context.refusal() {
                return Err(refusal);
            }
            if error.kind != DeliveryErrorKind::Unavailable {
                return Err(error);
            }
            context.report(Some(error.text));
            sleep(RETRY).await;
        }
    }

    /// Makes the producer anew, with smaller batches. Nothing of the old one's may be on its way or wait for a commit.
    ///
    /// # Errors
    /// A producer of transactions ends with this sink. To begin transactions shuts others out, and whoever went on from a
    /// later position in the meantime would be doubled: that is for a life's begin, which reads the position behind it.
    async fn renew(&mut self, batch_size: u64) -> Result<(), KafkaSinkError> {
        self.batch_limit.fetch_min(batch_size, Ordering::Relaxed);
        if self.transactions.is_some() {
            return Err(KafkaSinkError::SmallerBatches { batch_size });
        }
        // A new producer starts a new sequence: it may not overtake what the old one has on its way.
        self.fewer_outstanding_than(1).await;
        let (producer, reports) = self.settings.make(batch_size)?;
        self.reports = reports;
        let old = std::mem::replace(&mut self.producer, producer);
        self.probe.abort();
        self.probe = self.settings.probe(&self.producer);
        self.batch_size = batch_size;
        self.next_batch_size = None;
        // Dropping it waits for its threads.
        if tokio::task::spawn_blocking(move || drop(old)).await.is_err() {
            tracing::error!("the Kafka producer failed while it was closed");
        }
        Ok(())
    }
}

/// The record as librdkafka takes it, which copies it.
fn message(record: &Record, opaque: usize) -> BaseRecord<'_, [u8], [u8], usize> {
    let mut message = BaseRecord::with_opaque_to(&record.topic, opaque).timestamp(record.timestamp_ms);
    if let Some(partition) = record.partition {
        message = message.partition(partition);
    }
    if let Some(key) = &record.key {
        message = message.key(&key[..]);
    }
    if let Some(value) = &record.value {
        message = message.payload(&value[..]);
    }
    if !record.headers.is_empty() {
        let headers = OwnedHeaders::new_with_capacity(record.headers.len());
        message = message.headers(record.headers.iter().fold(headers, |headers, header| {
            headers.insert(Header {
                key: &header.name,
                value: header.value.as_deref(),
            })
        }));
    }
    message
}

impl Sink for KafkaSink {
    async fn claim(&mut self) -> Result<(), SinkError> {
        let Some(transactions) = &self.transactions else {
            return Ok(());
        };
        // Before anybody is shut out: an instance that may not write need not end another's work.
        let ready = self.checkpoint_topic(&transactions.positions.topic);
        self.reports.during(ready).await?;
        if let Some(transactions) = &mut self.transactions {
            transactions.init(&self.producer);
            let settled = transactions.settled(&self.producer, &self.settings.acks);
            self.reports.during(settled).await?;
        }
        Ok(())
    }

    fn commits_within(&self) -> Option<Duration> {
        self.transactions.as_ref().map(Transactions::commit_within)
    }

    fn commit(&mut self, seq: Seq, position: &Position) {
        if let Some(transactions) = &mut self.transactions {
            transactions.commit(&self.producer, seq, position);
        }
    }

    fn send(&mut self, seq: Seq, record: Record) -> Result<(), SendError> {
        if self.next_batch_size.is_some() {
            return Err(self.later(record));
        }
        if self.queue_full {
            return Err(SendError::NotReady(Box::new(record)));
        }
        let Some(topic) = self.topics.get_mut(&record.topic) else {
            if self.preparing.is_none() {
                self.start_preparing(Arc::clone(&record.topic), Duration::ZERO);
            }
            return Err(self.later(record));
        };
        // What counts at the broker is the compressed size, which is not known here. A record over the limit travels alone
        // then, since a batch is never larger than the limit.
        let size = if self.compressed { 0 } else { batch_len(&record) };
        if size > topic.limit {
            if !std::mem::replace(&mut topic.fresh, false) {
                let name = Arc::clone(&record.topic);
                self.start_preparing(name, Duration::ZERO);
                return Err(self.later(record));
            }
            let error = DeliveryError {
                kind: DeliveryErrorKind::Record(RecordFault::TooLarge),
                text: format!(
                    "a record of {size} bytes for topic `{}` is over its max.message.bytes of {}: raise that, or make \
                     the payload smaller",
                    record.topic, topic.limit
                ),
            };
            return Err(SendError::Rejected(Box::new(record), error));
        }
        // A pointer-sized opaque: a seq of more than 32 bits on a 32-bit machine would be wrong, and cannot be reached
        // before the ledger's life ends.
        let opaque = seq.0 as usize;
        let context = self.producer.context();
        context.pulse.outstanding.fetch_add(1, Ordering::AcqRel);
        let Err((error, _)) = self.producer.send(message(&record, opaque)) else {
            if let Some(transactions) = &mut self.transactions {
                transactions.taken();
            }
            self.lingers = true;
            return Ok(());
        };
        context.pulse.outstanding.fetch_sub(1, Ordering::AcqRel);
        if error == KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull) {
            self.queue_full = true;
            return Err(SendError::NotReady(Box::new(record)));
        }
        let error = context.delivery_error(&error, &record.topic);
        match error.kind {
            DeliveryErrorKind::Record(_) => Err(SendError::Rejected(Box::new(record), error)),
            DeliveryErrorKind::Unavailable | DeliveryErrorKind::Fenced => {
                // The topic is gone, or the producer or its transaction failed, which a commit tells: what is known is learnt
                // anew.
                let name = Arc::clone(&record.topic);
                self.topics.remove(&name);
                self.start_preparing(name, Duration::ZERO);
                Err(self.later(record))
            }
            DeliveryErrorKind::Refused => {
                self.refused = Some(error);
                Err(SendError::NotReady(Box::new(record)))
            }
        }
    }

    fn hurry(&mut self) {
        if let Some(hurry) = &self.hurry
            && std::mem::take(&mut self.lingers)
        {
            hurry.now(&self.producer);
        }
    }

    fn take_reports(&mut self) {
        self.reports.take();
    }

    async fn reported(&self) {
        self.reports.arrived().await;
    }

    async fn ready(&mut self) -> Result<(), SinkError> {
        loop {
            if let Some(transactions) = &mut self.transactions {
                let settled = transactions.settled(&self.producer, &self.settings.acks);
                self.reports.during(settled).await?;
            }
            if let Some(error) = self.fatal_error() {
                return Err(error.into());
            }
            if let Some(error) = self.refused.take() {
                return Err(error.into());
            }
            if let Some(Preparing { name, task }) = &mut self.preparing {
                let name = Arc::clone(name);
                let result = self.reports.during(task).await;
                self.preparing = None;
                match result {
                    Ok(Ok(topic)) => {
                        self.producer.context().report(None);
                        if topic.limit < self.batch_size {
                            self.next_batch_size = Some(topic.limit);
                        }
                        self.topics.insert(name, topic);
                    }
                    Ok(Err(error)) if error.kind == DeliveryErrorKind::Unavailable => {
                        self.producer.context().report(Some(error.text));
                        self.start_preparing(name, RETRY);
                    }
                    Ok(Err(error)) => return Err(error.into()),
                    Err(panic) => {
                        return Err(KafkaSinkError::Fatal {
                            reason: panic.to_string(),
                        }
                        .into());
                    }
                }
                continue;
            }
            if let Some(batch_size) = self.next_batch_size {
                self.renew(batch_size).await?;
                continue;
            }
            if self.queue_full {
                let half = self
                    .producer
                    .context()
                    .pulse
                    .outstanding
                    .load(Ordering::Acquire)
                    .div_ceil(2)
                    .max(1);
                self.fewer_outstanding_than(half).await;
                self.queue_full = false;
                continue;
            }
            return Ok(());
        }
    }

    async fn close(mut self, deadline: Instant) -> Result<(), SinkError> {
        let waited = match &mut self.transactions {
            None => tokio::time::timeout_at(deadline, self.fewer_outstanding_than(1))
                .await
                .is_ok(),
            Some(transactions) => {
                self.reports.during(transactions.end(&self.producer, deadline)).await;
                !transactions.is_open()
            }
        };
        let commits = self.commits();
        let count = self.producer.context().pulse.outstanding.load(Ordering::Acquire);
        // Other threads may hold the producer for a while, and it would go on sending.
        self.producer.purge(PurgeConfig::default().queue().inflight());
        self.probe.abort();
        // Dropping the clients waits for their threads, up to half a second.
        let clients = (Arc::clone(&self.producer), self.admin.clone());
        drop(self);
        let dropped = tokio::task::spawn_blocking(move || drop(clients)).await;
        if dropped.is_err() {
            tracing::error!("the Kafka producer failed while it was closed");
        }
        match waited {
            true => Ok(()),
            false if commits => Err(KafkaSinkError::Uncommitted.into()),
            false => Err(KafkaSinkError::Unacknowledged { count }.into()),
        }
    }
}

impl Drop for KafkaSink {
    fn drop(&mut self) {
        self.probe.abort();
    }
}
