//! Transactions of the sink: what was taken since the last commit, and the call that is under way.
//!
//! A transaction holds records and, as its last record, the position behind them. What blocks runs on a thread of its own,
//! one call at a time. The next transaction is begun by the thread that committed the one before: no broker hears of it
//! until the first record, so that it costs the sink nothing and holds no reader back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rdkafka::error::RDKafkaErrorCode;
use rdkafka::producer::{BaseRecord, Producer as _};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use crate::checkpoint::kafka::{PARTITION, PositionRecord};
use crate::config::{self, CheckpointTopic};
use crate::failpoint;
use crate::position::Position;
use crate::relay::in_flight::{Acks, Seq};

use super::client::{POSITION, transaction_timeout};
use super::error::{KafkaSinkError, transaction_error};
use super::producer::{Producer, SharedProducer};
use super::transaction::{self, TransactionError, TransactionErrorKind};

/// How long an end waits to drop what is not committed, so that readers are not held back until it is too old.
const ABORT: Duration = Duration::from_secs(2);
/// A call that takes longer than this is told as a trouble.
const TROUBLE: Duration = Duration::from_secs(3);

/// Where positions go, and whose they are.
#[derive(Debug, Clone)]
pub struct Positions {
    pub topic: CheckpointTopic,
    pub pipeline: String,
    pub source: String,
}

/// See the module's text.
pub(super) struct Transactions {
    pub(super) positions: Positions,
    transactional_id: String,
    /// How old a transaction may become.
    timeout: Duration,
    /// Whether anything was produced that is not known to be committed.
    open: bool,
    under_way: Option<UnderWay>,
    /// Why a commit could not even be begun.
    failed: Option<KafkaSinkError>,
    /// Calls are not repeated any more.
    is_over: Arc<AtomicBool>,
}

/// A call on a thread of its own.
struct UnderWay {
    call: Call,
    task: JoinHandle<Result<(), TransactionError>>,
}

#[derive(Debug, Clone, Copy)]
enum Call {
    Init,
    Commit { last: Seq },
}

impl Call {
    /// For an error's text.
    fn action(self) -> &'static str {
        match self {
            Self::Init => "begin Kafka transactions",
            Self::Commit { .. } => "commit the Kafka transaction",
        }
    }

    fn trouble(self, transactional_id: &str, code: RDKafkaErrorCode) -> String {
        match self {
            Self::Init => format!("Kafka does not begin transactions of `{transactional_id}` yet: {code}"),
            Self::Commit { .. } => format!("Kafka does not commit the transaction of `{transactional_id}` yet: {code}"),
        }
    }

    fn make(self, producer: &Producer, timeout: Duration) -> Result<(), TransactionError> {
        match self {
            Self::Init => transaction::init(producer, timeout),
            Self::Commit { .. } => {
                // The client commits what it takes for delivered.
                transaction::flush(producer, timeout)?;
                match producer.context().unwritten.load(Ordering::Acquire) {
                    false => transaction::commit(producer, timeout),
                    true => Err(TransactionError {
                        kind: TransactionErrorKind::Abortable,
                        code: RDKafkaErrorCode::Inconsistent,
                        reason: "nobody told where a record was written".to_owned(),
                    }),
                }
            }
        }
    }
}

impl Transactions {
    pub(super) fn new(positions: Positions, kafka: &config::Kafka) -> Self {
        Self {
            timeout: transaction_timeout(kafka),
            positions,
            transactional_id: kafka.transactional_id.clone(),
            open: false,
            under_way: None,
            failed: None,
            is_over: Arc::default(),
        }
    }

    /// A record was taken.
    pub(super) fn taken(&mut self) {
        self.open = true;
    }

    /// How long what was taken may wait for a commit: the commit itself has as long again before the brokers end the transaction.
    pub(super) fn commit_within(&self) -> Duration {
        self.timeout / 2
    }

    /// Whether something waits for a commit.
    pub(super) fn is_open(&self) -> bool {
        self.open
    }

    /// Begins to shut older producers out.
    pub(super) fn init(&mut self, producer: &SharedProducer) {
        // Without an end: an instance that waits for its brokers does so however long they are away.
        self.call(Call::Init, producer, None);
    }

    /// Begins to commit what was taken, and the position.
    pub(super) fn commit(&mut self, producer: &SharedProducer, seq: Seq, position: &Position) {
        if let Err(error) = self.produce(producer, seq, position) {
            self.failed = Some(error);
            return;
        }
        self.open = true;
        // After that long the brokers have ended the transaction, or never heard of it.
        self.call(Call::Commit { last: seq }, producer, Some(self.timeout));
    }

    fn produce(&self, producer: &SharedProducer, seq: Seq, position: &Position) -> Result<(), KafkaSinkError> {
        const ACTION: &str = "save the position";
        let Positions {
            topic,
            pipeline,
            source,
        } = &self.positions;
        let record = PositionRecord::new(pipeline, source, position).map_err(|error| KafkaSinkError::Transaction {
            action: ACTION,
            reason: error.to_string(),
        })?;
        let context = producer.context();
        context.pulse.outstanding.fetch_add(1, Ordering::AcqRel);
        let message = BaseRecord::with_opaque_to(&topic.name, seq.0 as usize | POSITION)
            .partition(PARTITION)
            .key(&record.key)
            .payload(&record.value);
        let Err((error, _)) = producer.send(message) else {
            return Ok(());
        };
        context.pulse.outstanding.fetch_sub(1, Ordering::AcqRel);
        let code = error.rdkafka_error_code();
        let cause = match code {
            // A transaction that has failed takes nothing more, and lets none begin: that call says why it failed.
            Some(RDKafkaErrorCode::State | RDKafkaErrorCode::Fatal) => transaction::begin(&**producer).err(),
            _ => None,
        };
        let cause = cause.unwrap_or_else(|| error.into());
        Err(transaction_error(cause, ACTION, &self.transactional_id))
    }

    /// Makes a call on a thread of its own until its outcome is known, and begins the next transaction where it is good.
    fn call(&mut self, call: Call, producer: &SharedProducer, patience: Option<Duration>) {
        let (producer, is_over) = (Arc::clone(producer), Arc::clone(&self.is_over));
        let id = self.transactional_id.clone();
        let task = tokio::task::spawn_blocking(move || {
            let context = producer.context();
            let mut is_told = false;
            let known = transaction::until_known(
                &is_over,
                patience,
                |timeout| match context.refusal() {
                    None => call.make(&producer, timeout),
                    Some(refusal) => Err(TransactionError {
                        kind: TransactionErrorKind::Fatal,
                        code: RDKafkaErrorCode::Authentication,
                        reason: refusal.text,
                    }),
                },
                |error, waited| {
                    if waited < TROUBLE {
                        return;
                    }
                    // While no broker answers at all, that is what is told.
                    if !context.pulse.unreachable.load(Ordering::Relaxed) {
                        is_told = true;
                        context.report(Some(call.trouble(&id, error.code)));
                    }
                    context.pulse.doubted.store(true, Ordering::Relaxed);
                },
            );
            if known.is_ok() && is_told {
                context.report(None);
            }
            known.and_then(|()| transaction::begin(&*producer))
        });
        self.under_way = Some(UnderWay { call, task });
    }

    /// Waits until no call is under way, and reports what it committed. Cancel safe.
    ///
    /// # Errors
    /// It failed, or nobody knows: what was taken is not committed for all we know. The next `init` settles it.
    pub(super) async fn settled(&mut self, producer: &SharedProducer, acks: &Acks) -> Result<(), KafkaSinkError> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let Some(UnderWay { call, task }) = &mut self.under_way else {
            return Ok(());
        };
        let ended = task.await;
        let call = *call;
        self.under_way = None;
        match (ended, call) {
            (Ok(Ok(())), Call::Init) => Ok(()),
            (Ok(Ok(())), Call::Commit { last }) => {
                self.open = false;
                failpoint::hit("after_commit");
                acks.committed_through(last);
                Ok(())
            }
            (Ok(Err(error)), call) => match producer.context().refusal() {
                Some(refusal) => Err(KafkaSinkError::Refused { text: refusal.text }),
                None => Err(transaction_error(error, call.action(), &self.transactional_id)),
            },
            (Err(panic), _) => Err(KafkaSinkError::Fatal {
                reason: panic.to_string(),
            }),
        }
    }

    /// Drops what is not committed, so that readers need not wait until the brokers do. What a commit under way holds stays
    /// as it will.
    pub(super) async fn end(&mut self, producer: &SharedProducer, deadline: Instant) {
        self.is_over.store(true, Ordering::Relaxed);
        let deadline = deadline.max(Instant::now() + ABORT);
        if let Some(UnderWay { call, task }) = &mut self.under_way {
            match (timeout_at(deadline, task).await, *call) {
                (Ok(Ok(Ok(()))), Call::Commit { .. }) => self.open = false,
                (Ok(Ok(Err(error))), _) if error.kind == TransactionErrorKind::Abortable => {}
                // Still under way, or of no use.
                _ => return,
            }
        }
        if !self.open || producer.client().fatal_error().is_some() {
            return;
        }
        let producer = Arc::clone(producer);
        let aborted = tokio::task::spawn_blocking(move || {
            transaction::abort(&*producer, deadline.saturating_duration_since(Instant::now()))
        });
        match aborted.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(error = %error, "the transaction is left to the brokers to abort"),
            Err(panic) => {
                tracing::error!(error = %panic, "the Kafka producer failed while its transaction was aborted")
            }
        }
    }
}

impl Drop for Transactions {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}
