//! Makes the sink's producers, and looks after one while no broker answers it.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use rdkafka::producer::{BaseProducer, Producer as _};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::config;
use crate::relay::in_flight::Acks;
use crate::telemetry::status::PipelineStatus;

use super::RETRY;
use super::asking::Asking;
use super::client::{Context, Pulse, no_answer, producer_config};
use super::error::{KafkaSinkError, client_error};
use super::reports::Reports;

const PROBE: Duration = Duration::from_secs(3);
/// After so long without a report the brokers are asked.
const SILENCE: Duration = Duration::from_secs(5);

/// Its reports are taken by [`Reports`].
pub(super) type Producer = BaseProducer<Context>;

/// Shared with the threads that wait for brokers.
pub(super) type SharedProducer = Arc<Producer>;

/// What every producer of one sink is made with.
pub(super) struct Settings {
    pub(super) config: Arc<config::Kafka>,
    pub(super) max_events: usize,
    /// Whether records travel in transactions.
    pub(super) transactional: bool,
    pub(super) names_partitions: bool,
    pub(super) acks: Acks,
    pub(super) status: Arc<PipelineStatus>,
}

impl Settings {
    /// Must be called within a runtime.
    ///
    /// # Errors
    /// When `client_conf` does not fit librdkafka.
    pub(super) fn make(&self, batch_size: u64) -> Result<(SharedProducer, Reports), KafkaSinkError> {
        let context = Context::new(
            self.acks.clone(),
            Arc::clone(&self.status),
            Asking::new(&self.config.brokers),
            self.transactional,
            self.names_partitions,
        );
        let producer: Producer = producer_config(&self.config, self.max_events, batch_size, self.transactional)
            .create_with_context(context)
            .map_err(|error| client_error(&error))?;
        let producer = Arc::new(producer);
        let reports = Reports::of(&producer).map_err(|error| KafkaSinkError::Client {
            reason: error.to_string(),
        })?;
        Ok((producer, reports))
    }

    /// Looks after a producer until it is gone. Must be called within a runtime.
    pub(super) fn probe(&self, producer: &SharedProducer) -> JoinHandle<()> {
        tokio::spawn(probe(Arc::downgrade(producer), Arc::clone(&producer.context().pulse)))
    }
}

/// Asks the brokers for a sign of life while they are taken for gone, since librdkafka tells when they go and not when they
/// come, and while nothing moves, since it does not tell at all when it has lost sight of them.
async fn probe(producer: Weak<Producer>, pulse: Arc<Pulse>) {
    let mut silence = Silence::default();
    loop {
        sleep(RETRY).await;
        let doubted = pulse.doubted.swap(false, Ordering::Relaxed);
        let is_silent = silence.is_long(&pulse, Instant::now());
        // Before the question: a trouble that comes while it is asked stays.
        let unreachable = pulse.unreachable.swap(false, Ordering::Relaxed);
        if !unreachable && !doubted && !is_silent {
            continue;
        }
        let Some(producer) = producer.upgrade() else { return };
        let asked = tokio::task::spawn_blocking(move || {
            let context = producer.context();
            let asking = &context.asking;
            let answered = asking.metadata(producer.client(), None, PROBE).is_ok();
            match answered {
                true if unreachable => context.report(None),
                // Another trouble may be told.
                true => {}
                false => context.report(Some(no_answer(asking.brokers()))),
            }
            answered
        });
        if !asked.await.unwrap_or(false) {
            pulse.unreachable.store(true, Ordering::Relaxed);
        }
    }
}

/// How long nothing was reported though something is on its way.
#[derive(Debug, Default)]
struct Silence {
    reports: u64,
    since: Option<Instant>,
}

impl Silence {
    /// True once in each [`SILENCE`] without a report.
    fn is_long(&mut self, pulse: &Pulse, now: Instant) -> bool {
        let reports = pulse.reports.load(Ordering::Relaxed);
        if reports != self.reports || pulse.outstanding.load(Ordering::Relaxed) == 0 {
            *self = Self { reports, since: None };
            return false;
        }
        let since = *self.since.get_or_insert(now);
        let is_long = now - since >= SILENCE;
        if is_long {
            self.since = None;
        }
        is_long
    }
}
