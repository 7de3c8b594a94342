//! Kafka, by librdkafka's idempotent producer with acks=all.
//!
//! Retriable failures never reach us: librdkafka repeats them without a limit and in order. What is reported as failed
//! is for good, so the first failure ends this sink's life; records behind it must not overtake it.

mod client;
mod error;
mod preflight;
mod topics;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rdkafka::config::FromClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseRecord, Producer, PurgeConfig, ThreadedProducer};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::config;
use crate::record::Record;
use crate::relay::in_flight::{Acks, Seq};
use crate::telemetry::status::PipelineStatus;

use super::{DeliveryError, DeliveryErrorKind, SendError, Sink, SinkError};

use client::{Context, client_config, producer_config, wanted_batch_size};
use topics::{Admin, SharedProducer, Topic, batch_len, prepare};

pub use error::KafkaSinkError;
pub use preflight::preflight;

/// What librdkafka keeps for a queued record beside its bytes.
pub const QUEUE_OVERHEAD: u64 = 700;
/// Between two looks whether the brokers are back, or a topic has come.
const RETRY: Duration = Duration::from_secs(1);
const PROBE: Duration = Duration::from_secs(3);

/// Sends to one cluster.
pub struct KafkaSink {
    config: Arc<config::Kafka>,
    producer: SharedProducer,
    admin: Arc<Admin>,
    topics: HashMap<Arc<str>, Topic>,
    /// The topic that the record given back waits for.
    preparing: Option<Preparing>,
    /// Records given back because librdkafka's queue was full.
    queue_full: bool,
    /// Why the cluster does not let us write.
    refused: Option<DeliveryError>,
    compressed: bool,
    batch_size: u64,
    /// A smaller batch size that a topic asks for: the producer is made anew when nothing is in flight.
    next_batch_size: Option<u64>,
    acks: Acks,
    status: Arc<PipelineStatus>,
    max_events: usize,
    unreachable: Arc<AtomicBool>,
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
    pub fn new(
        config: Arc<config::Kafka>,
        max_events: usize,
        acks: Acks,
        status: Arc<PipelineStatus>,
    ) -> Result<Self, KafkaSinkError> {
        let unreachable = Arc::new(AtomicBool::new(false));
        // Troubles of a former life are over, or will be found anew: by the new producer as soon as it is made.
        status.sink_trouble(None);
        let batch_size = wanted_batch_size(&config);
        let producer = make_producer(&config, max_events, batch_size, &acks, &status, &unreachable)?;
        let probe = tokio::spawn(probe(Arc::downgrade(&producer), Arc::clone(&unreachable)));
        let admin = Admin::from_config(&client_config(&config)).map_err(|error| error::client_error(&error))?;
        let compressed = client::is_compressed(&config);
        Ok(Self {
            config,
            producer,
            admin: Arc::new(admin),
            topics: HashMap::new(),
            preparing: None,
            queue_full: false,
            refused: None,
            compressed,
            batch_size,
            next_batch_size: None,
            acks,
            status,
            max_events,
            unreachable,
            probe,
        })
    }

    fn start_preparing(&mut self, name: Arc<str>, wait: Duration) {
        let (producer, config, topic) = (Arc::clone(&self.producer), Arc::clone(&self.config), Arc::clone(&name));
        let admin = Arc::clone(&self.admin);
        let task = tokio::task::spawn_blocking(move || {
            std::thread::sleep(wait);
            prepare(&producer, &admin, &config, &topic)
        });
        self.preparing = Some(Preparing { name, task });
    }

    /// Waits until fewer records than `count` are on their way. Cancel safe.
    async fn fewer_outstanding_than(&self, count: usize) {
        let context = self.producer.context();
        // In one order with the callback's decrement and look: whoever comes second sees the other.
        context.waiting.store(true, Ordering::SeqCst);
        while context.outstanding.load(Ordering::SeqCst) >= count {
            context.delivered.notified().await;
        }
        context.waiting.store(false, Ordering::SeqCst);
    }

    fn fatal_error(&self) -> Option<KafkaSinkError> {
        let (code, reason) = self.producer.client().fatal_error()?;
        Some(KafkaSinkError::Fatal {
            reason: format!("{code}: {reason}"),
        })
    }
}

impl Sink for KafkaSink {
    fn send(&mut self, seq: Seq, record: Record) -> Result<(), SendError> {
        if self.next_batch_size.is_some() || self.queue_full {
            return Err(SendError::NotReady(Box::new(record)));
        }
        let Some(topic) = self.topics.get_mut(&record.topic) else {
            if self.preparing.is_none() {
                self.start_preparing(Arc::clone(&record.topic), Duration::ZERO);
            }
            return Err(SendError::NotReady(Box::new(record)));
        };
        // What counts at the broker is the compressed size, which is not known here. A record over the limit travels alone
        // then, since a batch is never larger than the limit.
        let size = if self.compressed { 0 } else { batch_len(&record) };
        if size > topic.limit {
            if !std::mem::replace(&mut topic.fresh, false) {
                let name = Arc::clone(&record.topic);
                self.start_preparing(name, Duration::ZERO);
                return Err(SendError::NotReady(Box::new(record)));
            }
            return Err(SendError::Rejected(DeliveryError {
                kind: DeliveryErrorKind::Record,
                text: format!(
                    "a record of {size} bytes for topic `{}` is over its max.message.bytes of {}: raise that, or make \
                     the payload smaller",
                    record.topic, topic.limit
                ),
            }));
        }
        // A pointer-sized opaque: a seq of more than 32 bits on a 32-bit machine would be wrong, and cannot be reached
        // before the ledger's life ends.
        let opaque = seq.0 as usize;
        let mut message: BaseRecord<'_, [u8], [u8], usize> =
            BaseRecord::with_opaque_to(&record.topic, opaque).timestamp(record.timestamp_ms);
        if let Some(key) = &record.key {
            message = message.key(key);
        }
        if let Some(value) = &record.value {
            message = message.payload(value);
        }
        if !record.headers.is_empty() {
            let headers = OwnedHeaders::new_with_capacity(record.headers.len());
            message = message.headers(record.headers.iter().fold(headers, |headers, header| {
                headers.insert(Header {
                    key: &header.name,
                    value: Some(&header.value[..]),
                })
            }));
        }
        let context = self.producer.context();
        context.outstanding.fetch_add(1, Ordering::AcqRel);
        let Err((error, _)) = self.producer.send(message) else {
            return Ok(());
        };
        context.outstanding.fetch_sub(1, Ordering::SeqCst);
        if error == KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull) {
            self.queue_full = true;
            return Err(SendError::NotReady(Box::new(record)));
        }
        let error = error::delivery_error(&error, &record.topic);
        match error.kind {
            DeliveryErrorKind::Record => Err(SendError::Rejected(error)),
            DeliveryErrorKind::Unavailable => {
                // The topic is gone, or the producer failed: what is known is learnt anew.
                let name = Arc::clone(&record.topic);
                self.topics.remove(&name);
                self.start_preparing(name, Duration::ZERO);
                Err(SendError::NotReady(Box::new(record)))
            }
            DeliveryErrorKind::Refused => {
                self.refused = Some(error);
                Err(SendError::NotReady(Box::new(record)))
            }
        }
    }

    async fn ready(&mut self) -> Result<(), SinkError> {
        loop {
            if let Some(error) = self.fatal_error() {
                return Err(error.into());
            }
            if let Some(error) = self.refused.take() {
                return Err(error.into());
            }
            if let Some(Preparing { name, task }) = &mut self.preparing {
                let name = Arc::clone(name);
                let result = task.await;
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
                // A new producer starts a new sequence: it may not overtake what the old one has on its way.
                self.fewer_outstanding_than(1).await;
                let (config, acks, status) = (&self.config, &self.acks, &self.status);
                let made = make_producer(config, self.max_events, batch_size, acks, status, &self.unreachable)?;
                let old = std::mem::replace(&mut self.producer, made);
                self.probe.abort();
                self.probe = tokio::spawn(probe(Arc::downgrade(&self.producer), Arc::clone(&self.unreachable)));
                self.batch_size = batch_size;
                self.next_batch_size = None;
                // Dropping it waits for its threads.
                if tokio::task::spawn_blocking(move || drop(old)).await.is_err() {
                    tracing::error!("the Kafka producer failed while it was closed");
                }
                continue;
            }
            if self.queue_full {
                let half = self
                    .producer
                    .context()
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

    async fn close(self, deadline: Instant) -> Result<(), SinkError> {
        let waited = tokio::time::timeout_at(deadline, self.fewer_outstanding_than(1)).await;
        let count = self.producer.context().outstanding.load(Ordering::Acquire);
        // Other threads may hold the producer for a while, and it would go on sending.
        self.producer.purge(PurgeConfig::default().queue().inflight());
        self.probe.abort();
        // Dropping the clients waits for their threads, up to half a second.
        let clients = (Arc::clone(&self.producer), Arc::clone(&self.admin));
        drop(self);
        let dropped = tokio::task::spawn_blocking(move || drop(clients)).await;
        if dropped.is_err() {
            tracing::error!("the Kafka producer failed while it was closed");
        }
        match waited {
            Ok(()) => Ok(()),
            Err(_) => Err(KafkaSinkError::Unacknowledged { count }.into()),
        }
    }
}

impl Drop for KafkaSink {
    fn drop(&mut self) {
        self.probe.abort();
    }
}

fn make_producer(
    config: &config::Kafka,
    max_events: usize,
    batch_size: u64,
    acks: &Acks,
    status: &Arc<PipelineStatus>,
    unreachable: &Arc<AtomicBool>,
) -> Result<SharedProducer, KafkaSinkError> {
    let context = Context::new(
        acks.clone(),
        Arc::clone(status),
        Arc::clone(unreachable),
        config.brokers.clone(),
    );
    let producer: ThreadedProducer<Context> = producer_config(config, max_events, batch_size)
        .create_with_context(context)
        .map_err(|error| error::client_error(&error))?;
    Ok(Arc::new(producer))
}

/// Asks the brokers for a sign of life while they are taken for gone: librdkafka tells when they go, not when they come.
async fn probe(producer: std::sync::Weak<ThreadedProducer<Context>>, unreachable: Arc<AtomicBool>) {
    loop {
        sleep(RETRY).await;
        if !unreachable.load(Ordering::Relaxed) {
            continue;
        }
        let Some(producer) = producer.upgrade() else { return };
        // Before the question: a trouble that comes while it is asked stays.
        unreachable.store(false, Ordering::Relaxed);
        let asked = tokio::task::spawn_blocking(move || {
            let answered = producer.client().fetch_metadata(None, PROBE).is_ok();
            if answered {
                producer.context().report(None);
            }
            answered
        });
        if !asked.await.unwrap_or(false) {
            unreachable.store(true, Ordering::Relaxed);
        }
    }
}
