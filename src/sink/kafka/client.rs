//! The producer's settings, and what librdkafka calls back with.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rdkafka::ClientContext;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::Message;
use rdkafka::producer::{DeliveryResult, ProducerContext};
use secrecy::ExposeSecret;

use crate::config;
use crate::relay::in_flight::{Acks, Seq};
use crate::sink::{DeliveryError, DeliveryErrorKind};
use crate::telemetry::status::PipelineStatus;

use super::asking::Asking;
use super::error::{delivery_error, no_partition, position_error};

/// librdkafka's default for `batch.size`.
const DEFAULT_BATCH_SIZE: u64 = 1_000_000;
/// librdkafka's default for `transaction.timeout.ms`.
const DEFAULT_TRANSACTION_TIMEOUT: Duration = Duration::from_secs(60);
/// Set in the opaque of a position: what travels with the records of a transaction and is none.
pub(super) const POSITION: usize = 1 << (usize::BITS - 1);

/// The file's `batch.size`, or the default; lowered later where a topic takes less.
pub(super) fn wanted_batch_size(kafka: &config::Kafka) -> u64 {
    let given = kafka.client_conf.iter().find(|(name, _)| name == "batch.size");
    // What is no number is refused by librdkafka, which names it.
    given
        .and_then(|(_, value)| value.expose_secret().parse().ok())
        .unwrap_or(DEFAULT_BATCH_SIZE)
}

/// How old a transaction may become before a broker ends it: the file's `transaction.timeout.ms`, or the default.
pub(super) fn transaction_timeout(kafka: &config::Kafka) -> Duration {
    let given = kafka
        .client_conf
        .iter()
        .find(|(name, _)| name == "transaction.timeout.ms");
    // What is no number is refused by librdkafka, which names it.
    given
        .and_then(|(_, value)| value.expose_secret().parse().ok())
        .map_or(DEFAULT_TRANSACTION_TIMEOUT, Duration::from_millis)
}

/// Settings of every client of this cluster.
pub(crate) fn client_config(kafka: &config::Kafka) -> ClientConfig {
    let mut client = ClientConfig::new();
    client
        .set("bootstrap.servers", &kafka.brokers)
        .set("client.id", "tailpost")
        .set("socket.keepalive.enable", "true")
        // The default of 10 s makes a broker's return noticed late.
        .set("reconnect.backoff.max.ms", "2000")
        .set_log_level(RDKafkaLogLevel::Warning);
    for (name, value) in &kafka.client_conf {
        client.set(name, value.expose_secret());
    }
    client
}

/// The producer's own settings, on top.
///
/// `max_events` is the bound on what is in flight; librdkafka's own queue is larger, so that it never refuses first.
/// `transactional`: records travel in transactions.
pub(super) fn producer_config(
    kafka: &config::Kafka,
    max_events: usize,
    batch_size: u64,
    transactional: bool,
) -> ClientConfig {
    let mut client = client_config(kafka);
    if transactional {
        client.set("transactional.id", &kafka.transactional_id);
    }
    let given = |name: &str| kafka.client_conf.iter().any(|(key, _)| key == name);
    client
        .set("enable.idempotence", "true")
        .set("acks", "all")
        // No limit: a message that times out leaves a gap, and those behind it would go on.
        .set("message.timeout.ms", "0")
        // A batch that fails for good ends the producer; by default the ones behind it would go on.
        .set("enable.gapless.guarantee", "true")
        // Java's partitioner, so that a key keeps its partition whoever produces it.
        .set("partitioner", "murmur2_random")
        .set(
            "queue.buffering.max.messages",
            (max_events.saturating_mul(2)).clamp(1000, 2_147_483_647).to_string(),
        )
        .set("queue.buffering.max.kbytes", "2147483647");
    if !is_linger_given(kafka) {
        // In a backlog; with nothing to wait for, an event leaves at once: see `linger`.
        client.set("linger.ms", "5");
    }
    if !given("message.max.bytes") {
        // The topics' own limits hold, and are checked before a record is sent.
        client.set("message.max.bytes", "1000000000");
    }
    if !given("batch.size") || batch_size < wanted_batch_size(kafka) {
        // A batch larger than its topic's limit fails as a whole, with every record in it.
        client.set("batch.size", batch_size.to_string());
    }
    client
}

/// Whether `client_conf` says how long records wait for others.
pub(super) fn is_linger_given(kafka: &config::Kafka) -> bool {
    let names = ["linger.ms", "queue.buffering.max.ms"];
    kafka.client_conf.iter().any(|(name, _)| names.contains(&name.as_str()))
}

/// Whether the producer compresses, as far as `client_conf` says.
pub(super) fn is_compressed(kafka: &config::Kafka) -> bool {
    let names = ["compression.type", "compression.codec"];
    kafka
        .client_conf
        .iter()
        .any(|(name, value)| names.contains(&name.as_str()) && value.expose_secret() != "none")
}

/// What tells whether a producer is alive.
#[derive(Debug, Default)]
pub(super) struct Pulse {
    /// Sent and not reported yet.
    pub(super) outstanding: AtomicUsize,
    /// How many were reported in all.
    pub(super) reports: AtomicU64,
    /// The brokers are taken for gone.
    pub(super) unreachable: AtomicBool,
    /// A call takes long.
    pub(super) doubted: AtomicBool,
}

/// Passes deliveries on to the ledger, and the connection's troubles to the status.
pub(super) struct Context {
    acks: Acks,
    status: Arc<PipelineStatus>,
    pub(super) pulse: Arc<Pulse>,
    /// The last trouble said, so that it is said once.
    trouble: Mutex<Option<String>>,
    pub(super) asking: Asking,
    /// Whether records become durable only by a commit: a delivery is no ack then.
    transactional: bool,
    /// Whether records can name their partition, which then need not exist.
    names_partitions: bool,
    /// A record was reported as delivered that may not be there: what it belongs to may not be committed.
    pub(super) unwritten: AtomicBool,
    /// Why the brokers do not let us in.
    refusal: Mutex<Option<DeliveryError>>,
}

impl Context {
    pub(super) fn new(
        acks: Acks,
        status: Arc<PipelineStatus>,
        asking: Asking,
        transactional: bool,
        names_partitions: bool,
    ) -> Self {
        Self {
            acks,
            status,
            pulse: Arc::default(),
            trouble: Mutex::new(None),
            asking,
            transactional,
            names_partitions,
            unwritten: AtomicBool::new(false),
            refusal: Mutex::new(None),
        }
    }

    /// Why the brokers do not let us in, once they have said so.
    pub(super) fn refusal(&self) -> Option<DeliveryError> {
        self.refusal.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A delivery of one of our records that failed.
    pub(super) fn delivery_error(&self, error: &KafkaError, topic: &str) -> DeliveryError {
        match error.rdkafka_error_code() {
            Some(RDKafkaErrorCode::UnknownPartition) if self.names_partitions => no_partition(topic),
            _ => delivery_error(error, topic),
        }
    }

    /// Says a trouble once, until another one or none.
    pub(super) fn report(&self, trouble: Option<String>) {
        let mut last = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        if *last == trouble {
            return;
        }
        match (&trouble, &*last) {
            (Some(trouble), _) => tracing::warn!(
                pipeline = self.status.name,
                sink = self.status.sink,
                error = %trouble,
                "waiting for Kafka"
            ),
            (None, Some(_)) => tracing::info!(
                pipeline = self.status.name,
                sink = self.status.sink,
                "Kafka answers again"
            ),
            (None, None) => {}
        }
        self.status.sink_trouble(trouble.clone());
        *last = trouble;
    }
}

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        use RDKafkaLogLevel as Level;
        match level {
            // A choice of ours, of which an operator need not be warned at each start.
            _ if facility == "CONFWARN" && message.contains("enable.gapless.guarantee") => {}
            Level::Emerg | Level::Alert | Level::Critical | Level::Error => {
                tracing::error!(target: "librdkafka", "librdkafka: {facility} {message}");
            }
            Level::Warning => tracing::warn!(target: "librdkafka", "librdkafka: {facility} {message}"),
            Level::Notice | Level::Info | Level::Debug => {
                tracing::debug!(target: "librdkafka", "librdkafka: {facility} {message}");
            }
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        match Trouble::of(&error, reason, self.asking.brokers()) {
            Some(Trouble::Unreachable(text)) => {
                self.pulse.unreachable.store(true, Ordering::Relaxed);
                self.report(Some(text));
            }
            Some(Trouble::Refused(text)) => {
                let refusal = DeliveryError {
                    kind: DeliveryErrorKind::Refused,
                    text,
                };
                *self.refusal.lock().unwrap_or_else(PoisonError::into_inner) = Some(refusal.clone());
                self.acks.broken(refusal);
            }
            None => tracing::debug!(error = %error, reason, "librdkafka reports"),
        }
    }
}

/// What a client's own reports say of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// No broker of several answers; they can come back.
    Unreachable(String),
    /// They do not let us in, or we do not trust them: a person must act.
    Refused(String),
}

impl Trouble {
    /// None: nothing that matters.
    pub(crate) fn of(error: &KafkaError, reason: &str, brokers: &str) -> Option<Self> {
        // A connection that breaks during the SASL handshake is reported as an authentication failure too.
        let broke = ["Broker transport failure", "Timed out", "Host resolution"]
            .iter()
            .any(|cause| reason.contains(cause));
        let remedy = match error.rdkafka_error_code()? {
            RDKafkaErrorCode::Authentication | RDKafkaErrorCode::SaslAuthenticationFailed if !broke => {
                "check sasl.mechanism, sasl.username and sasl.password in client_conf"
            }
            // Other failures of TLS happen while a broker restarts.
            RDKafkaErrorCode::SSL if reason.contains("certificate") => {
                "check ssl.ca.location and the broker's certificate"
            }
            // One broker of several that is away is no trouble.
            RDKafkaErrorCode::AllBrokersDown => return Some(Self::Unreachable(no_answer(brokers))),
            _ => return None,
        };
        let reason = without_addresses(reason);
        Some(Self::Refused(format!(
            "Kafka at {brokers} refuses us: {reason}; {remedy}"
        )))
    }
}

/// What is said while no broker answers.
pub(crate) fn no_answer(brokers: &str) -> String {
    format!("no Kafka broker answers at {brokers}, expected at least one: start it, or check brokers")
}

/// librdkafka's reason without its own prefixes and timings, which make each repetition look new.
fn without_addresses(reason: &str) -> &str {
    let reason = reason.rsplit_once("/bootstrap: ").map_or(reason, |(_, rest)| rest);
    reason.split(" (after ").next().unwrap_or(reason)
}

impl ProducerContext for Context {
    type DeliveryOpaque = usize;

    /// Called by who takes reports: in order within a partition, and never at once for two messages.
    fn delivery(&self, result: &DeliveryResult<'_>, opaque: usize) {
        self.pulse.reports.fetch_add(1, Ordering::Relaxed);
        self.pulse.outstanding.fetch_sub(1, Ordering::AcqRel);
        let seq = Seq((opaque & !POSITION) as u64);
        match result {
            // That it was written is the client's conclusion: see `without_offset`.
            Ok(message) if message.offset() < 0 => {
                self.unwritten.store(true, Ordering::Release);
                self.acks.failed(seq, without_offset(message.topic()));
            }
            Ok(_) => {
                self.acks.acked(seq);
                let unreachable = &self.pulse.unreachable;
                if unreachable.load(Ordering::Relaxed) && unreachable.swap(false, Ordering::Relaxed) {
                    self.report(None);
                }
            }
            // The commit that follows says what it fell with.
            Err((error, _)) if self.transactional && fell_with_its_transaction(error) => {}
            Err((error, message)) if opaque & POSITION != 0 => {
                self.acks.failed(seq, position_error(error, message.topic()));
            }
            Err((error, message)) => self.acks.failed(seq, self.delivery_error(error, message.topic())),
        }
    }
}

/// A record that the client reports as delivered, and nobody told where.
///
/// The client acknowledges by itself what precedes a batch that succeeds ("implicitly acked" in its log): a broker takes no
/// batch out of its turn, so an earlier one that failed must have been written, and only its answer was lost. Mostly that is
/// so. But a broker that has nothing of this producer yet in the partition, since that is just being made or was made anew,
/// compares with nothing: it refuses the first batch, takes the second one, and the first is lost. The two cannot be told
/// apart, so the record is sent again: better twice than never. (librdkafka 2.12, `rd_kafka_dr_implicit_ack`.)
fn without_offset(topic: &str) -> DeliveryError {
    DeliveryError {
        kind: DeliveryErrorKind::Unavailable,
        text: format!(
            "for a record of topic `{topic}` nobody told where it was written, as when a broker's answer is lost or a partition \
             is just being made: it is sent again"
        ),
    }
}

/// Whether a record was dropped because something else failed.
fn fell_with_its_transaction(error: &KafkaError) -> bool {
    use RDKafkaErrorCode as Code;
    matches!(
        error.rdkafka_error_code(),
        Some(Code::PurgeQueue | Code::PurgeInflight | Code::Fatal | Code::State)
    )
}
