//! The store's own transactional producer, which shuts older instances out and is shut out by newer ones.
//!
//! Each save is a transaction of one record. One whose outcome was not known in time stays pending: the next save settles
//! it first, so that positions never change their order.

use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rdkafka::ClientContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseRecord, DeliveryResult, Producer, ProducerContext, ThreadedProducer};

use crate::config;
use crate::sink::kafka::{
    Asking, TransactionError, TransactionErrorKind, Trouble, abort, begin, client_config, client_reason, commit, init,
    no_answer, refusal_remedy, until_known,
};

use super::KafkaStoreError;
use super::record::{PARTITION, PositionRecord};

/// How long one try may take: the caller tries again, and says so meanwhile.
const PATIENCE: Duration = Duration::from_secs(10);
/// A save that runs into this is told as a trouble.
const SAVE_PATIENCE: Duration = Duration::from_secs(5);
/// How long a broker is asked whether there is one at all.
const ANSWER: Duration = Duration::from_secs(2);

const BEGIN: &str = "begin to save checkpoints";
const SAVE: &str = "save checkpoint";

/// Blocks in all it does: not for a task.
pub(super) struct Writer {
    producer: ThreadedProducer<Context>,
    topic: String,
    transactional_id: String,
    /// The end of a transaction that is not known.
    pending: Option<Pending>,
}

#[derive(Debug, Clone, Copy)]
enum Pending {
    Commit,
    Abort,
}

/// Keeps what the brokers report beside the answers to calls.
struct Context {
    asking: Asking,
    refusal: Mutex<Option<String>>,
}

impl ClientContext for Context {
    fn error(&self, error: KafkaError, reason: &str) {
        match Trouble::of(&error, reason, self.asking.brokers()) {
            Some(Trouble::Refused(text)) => {
                *self.refusal.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
            }
            // The calls say it too, once they run out of time.
            Some(Trouble::Unreachable(_)) | None => {
                tracing::debug!(error = %error, reason, "librdkafka reports");
            }
        }
    }
}

impl ProducerContext for Context {
    type DeliveryOpaque = ();

    /// The commit that follows says what became of the record.
    fn delivery(&self, _result: &DeliveryResult<'_>, _opaque: ()) {}
}

impl Writer {
    /// Shuts older instances out.
    ///
    /// # Errors
    /// No broker answers in time, or they refuse.
    pub(super) fn claim(kafka: &config::Kafka, topic: &str, transactional_id: &str) -> Result<Self, KafkaStoreError> {
        let context = Context {
            asking: Asking::new(&kafka.brokers),
            refusal: Mutex::default(),
        };
        let mut settings = client_config(kafka);
        let producer = settings
            .set("transactional.id", transactional_id)
            .set("enable.idempotence", "true")
            .set("acks", "all")
            // The calls are bounded; what they leave is settled later.
            .set("message.timeout.ms", "0")
            .create_with_context(context)
            .map_err(|error| KafkaStoreError::Client {
                reason: client_reason(&error),
            })?;
        let writer = Self {
            producer,
            topic: topic.to_owned(),
            transactional_id: transactional_id.to_owned(),
            pending: None,
        };
        let known = writer.until_known(PATIENCE, init);
        match known {
            Ok(()) => Ok(writer),
            // Not the same as for a save: nobody has begun.
            Err(error) if error.kind == TransactionErrorKind::Fatal => Err(writer.unavailable(BEGIN, error)),
            Err(error) => Err(writer.failure(BEGIN, error)),
        }
    }

    /// Saves a position; it is durable when this returns.
    ///
    /// # Errors
    /// It was not saved, or that is not known yet; the next save settles it.
    pub(super) fn save(&mut self, record: &PositionRecord) -> Result<(), KafkaStoreError> {
        self.settle()?;
        begin(&self.producer).map_err(|error| self.failure(SAVE, error))?;
        self.pending = Some(Pending::Commit);
        let message = BaseRecord::to(&self.topic)
            .partition(PARTITION)
            .key(&record.key)
            .payload(&record.value);
        if let Err((error, _)) = self.producer.send(message) {
            let error = TransactionError::from(error);
            self.abort()?;
            return Err(self.failure(SAVE, error));
        }
        self.settle()
    }

    /// Waits for the outcome of the transaction at hand, if there is one.
    fn settle(&mut self) -> Result<(), KafkaStoreError> {
        match self.pending {
            None => Ok(()),
            Some(Pending::Abort) => self.abort(),
            Some(Pending::Commit) => match self.until_known(SAVE_PATIENCE, commit) {
                Ok(()) => {
                    self.pending = None;
                    Ok(())
                }
                Err(error) if error.kind == TransactionErrorKind::Abortable => {
                    self.abort()?;
                    Err(self.failure(SAVE, error))
                }
                Err(error) => Err(self.failure(SAVE, error)),
            },
        }
    }

    fn abort(&mut self) -> Result<(), KafkaStoreError> {
        self.pending = Some(Pending::Abort);
        self.until_known(SAVE_PATIENCE, abort)
            .map_err(|error| self.failure(SAVE, error))?;
        self.pending = None;
        Ok(())
    }

    /// Makes a call until its outcome is known or patience is over.
    fn until_known(
        &self,
        patience: Duration,
        call: fn(&ThreadedProducer<Context>, Duration) -> Result<(), TransactionError>,
    ) -> Result<(), TransactionError> {
        let make = |timeout| match self.refusal() {
            None => call(&self.producer, timeout),
            Some(reason) => Err(TransactionError {
                kind: TransactionErrorKind::Fatal,
                code: RDKafkaErrorCode::Authentication,
                reason,
            }),
        };
        until_known(&AtomicBool::new(false), Some(patience), make, |_, _| {})
    }

    fn refusal(&self) -> Option<String> {
        let refusal = &self.producer.context().refusal;
        refusal.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn failure(&self, action: &'static str, error: TransactionError) -> KafkaStoreError {
        let TransactionError { kind, code, reason } = &error;
        if let Some(text) = self.refusal() {
            return KafkaStoreError::Refused { text };
        }
        if let Some(remedy) = refusal_remedy(*code, &self.transactional_id) {
            let text = format!("{action} to topic `{}`: {reason}; {remedy}", self.topic);
            return KafkaStoreError::Refused { text };
        }
        match (kind, code) {
            (_, RDKafkaErrorCode::MessageSizeTooLarge) => KafkaStoreError::Refused {
                text: format!(
                    "{action} to topic `{}`: {reason}; raise max.message.bytes of the topic",
                    self.topic
                ),
            },
            // The producer can do nothing more, and a new one would have to shut others out, which only a claim may.
            (TransactionErrorKind::Fenced | TransactionErrorKind::Fatal, _) => KafkaStoreError::Fenced {
                topic: self.topic.clone(),
                reason: reason.clone(),
            },
            (TransactionErrorKind::Unfinished | TransactionErrorKind::Abortable, _) => self.unavailable(action, error),
        }
    }

    fn unavailable(&self, action: &'static str, error: TransactionError) -> KafkaStoreError {
        let (client, asking) = (self.producer.client(), &self.producer.context().asking);
        let answers = asking.metadata(client, None, ANSWER).is_ok();
        KafkaStoreError::Unavailable {
            reason: match answers {
                // librdkafka's words for it are advice for programmers.
                true if error.kind == TransactionErrorKind::Unfinished => {
                    format!("{action} to topic `{}`: it takes long ({})", self.topic, error.code)
                }
                true => format!("{action} to topic `{}`: {}", self.topic, error.reason),
                false => no_answer(asking.brokers()),
            },
        }
    }
}
