//! Makes the sink's producers, and looks after one while no broker answers it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rdkafka::producer::{Producer as _, ThreadedProducer};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::config;
use crate::relay::in_flight::Acks;
use crate::telemetry::status::PipelineStatus;

use super::RETRY;
use super::client::{Context, producer_config};
use super::error::{KafkaSinkError, client_error};

const PROBE: Duration = Duration::from_secs(3);

/// Its delivery reports come on a thread of its own.
pub(super) type Producer = ThreadedProducer<Context>;

/// Shared with the threads that wait for brokers.
pub(super) type SharedProducer = Arc<Producer>;

/// What every producer of one sink is made with.
pub(super) struct Settings {
    pub(super) config: Arc<config::Kafka>,
    pub(super) max_events: usize,
    /// Whether records travel in transactions.
    pub(super) transactional: bool,
    pub(super) acks: Acks,
    pub(super) status: Arc<PipelineStatus>,
    pub(super) unreachable: Arc<AtomicBool>,
}

impl Settings {
    /// # Errors
    /// When `client_conf` does not fit librdkafka.
    pub(super) fn make(&self, batch_size: u64) -> Result<SharedProducer, KafkaSinkError> {
        let context = Context::new(
            self.acks.clone(),
            Arc::clone(&self.status),
            Arc::clone(&self.unreachable),
            self.config.brokers.clone(),
            self.transactional,
        );
        let producer: Producer = producer_config(&self.config, self.max_events, batch_size, self.transactional)
            .create_with_context(context)
            .map_err(|error| client_error(&error))?;
        Ok(Arc::new(producer))
    }

    /// Looks after a producer until it is gone. Must be called within a runtime.
    pub(super) fn probe(&self, producer: &SharedProducer) -> JoinHandle<()> {
        tokio::spawn(probe(Arc::downgrade(producer), Arc::clone(&self.unreachable)))
    }
}

/// Asks the brokers for a sign of life while they are taken for gone: librdkafka tells when they go, not when they come.
async fn probe(producer: std::sync::Weak<Producer>, unreachable: Arc<AtomicBool>) {
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
