//! A checkpoint in a compacted Kafka topic, which any machine can go on from.
//!
//! The topic holds the positions of any number of pipelines, each under a key of its own. A position is saved in a
//! transaction, so that an instance that was shut out by a newer one cannot put an older position over the newer one's:
//! by the store's own producer, or by the sink beside its records.

mod polling;
mod read;
mod record;
mod writer;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::config::{self, CheckpointTopic};
use crate::position::Position;
use crate::sink::kafka::{Admin, client_reason, ensure_checkpoint_topic};
use crate::sink::{DeliveryError, DeliveryErrorKind};

use super::document::{Document, VERSION};
use super::{CheckpointError, CheckpointStore, GapWord};

pub(crate) use record::{PARTITION, PositionRecord};

/// Who writes the positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writer {
    /// The store, by a transactional producer of its own, which shuts older instances out.
    Own,
    /// The sink, in the transactions that hold the records. Saving has been done then, and loading only reads.
    Sink,
    /// An operator's command, in the place of whoever saves otherwise: under the same transactional id, so that an instance
    /// which runs is shut out.
    Operator,
}

/// See each variant's text.
#[derive(Debug, thiserror::Error)]
pub enum KafkaStoreError {
    #[error("make a Kafka client for checkpoints: {reason}; check client_conf")]
    Client { reason: String },
    #[error("{reason}")]
    Unavailable { reason: String },
    #[error("{text}")]
    Refused { text: String },
    #[error(
        "checkpoint topic `{topic}` cannot be read to its end: a transaction is open since offset {stable}, expected all \
         decided up to {end}; it is probably another pipeline's, and ends with that or after its transaction.timeout.ms"
    )]
    HeldBack { topic: String, stable: i64, end: i64 },
    #[error(
        "checkpoint topic `{topic}` cannot be read: nobody leads its partition, or it is gone; start the brokers that have it"
    )]
    Leaderless { topic: String },
    #[error(
        "checkpoint topic `{topic}` holds no checkpoint of pipeline `{pipeline}` any more: the topic was deleted or emptied; \
         name the position by `tailpost position set` or `import`, or start again to begin where the server begins"
    )]
    Vanished { topic: String, pipeline: String },
    #[error(
        "checkpoint `{key}` in topic `{topic}` is damaged ({reason}): save another by `tailpost position import` or `set`"
    )]
    Damaged { topic: String, key: String, reason: String },
    #[error(
        "checkpoint `{key}` in topic `{topic}` has version {found}, expected {VERSION}: it was written by a later tailpost"
    )]
    Version { topic: String, key: String, found: u32 },
    #[error("another instance of the pipeline saves its checkpoint to topic `{topic}` now ({reason})")]
    Fenced { topic: String, reason: String },
}

impl KafkaStoreError {
    pub(super) fn can_heal(&self) -> bool {
        match self {
            Self::Unavailable { .. } | Self::HeldBack { .. } | Self::Leaderless { .. } => true,
            Self::Client { .. }
            | Self::Vanished { .. }
            | Self::Refused { .. }
            | Self::Damaged { .. }
            | Self::Version { .. }
            | Self::Fenced { .. } => false,
        }
    }
}

impl From<DeliveryError> for KafkaStoreError {
    fn from(error: DeliveryError) -> Self {
        match error.kind {
            DeliveryErrorKind::Unavailable => Self::Unavailable { reason: error.text },
            _ => Self::Refused { text: error.text },
        }
    }
}

/// See the module's text.
pub struct KafkaStore {
    kafka: Arc<config::Kafka>,
    topic: CheckpointTopic,
    pipeline: String,
    source: String,
    /// None: the sink saves.
    own: Option<Own>,
    /// Whether a position is known to have been saved, by this instance or a former one.
    is_saved: bool,
    gap: GapWord,
}

/// The store's own producer, once it has claimed. Locked on threads that may wait for brokers only.
#[derive(Clone)]
struct Own {
    transactional_id: Arc<str>,
    writer: Arc<Mutex<Option<writer::Writer>>>,
}

impl fmt::Debug for KafkaStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaStore")
            .field("topic", &self.topic)
            .field("pipeline", &self.pipeline)
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}

impl KafkaStore {
    pub fn new(
        kafka: Arc<config::Kafka>,
        topic: CheckpointTopic,
        pipeline: &str,
        source: &str,
        writer: Writer,
    ) -> Self {
        // Another one than a sink's, which can be in use at the same time.
        let own = format!("{}.checkpoint", kafka.transactional_id);
        let transactional_id = match writer {
            Writer::Own => Some(own),
            Writer::Sink => None,
            Writer::Operator if kafka.exactly_once => Some(kafka.transactional_id.clone()),
            Writer::Operator => Some(own),
        };
        Self {
            kafka,
            topic,
            pipeline: pipeline.to_owned(),
            source: source.to_owned(),
            own: transactional_id.map(|transactional_id| Own {
                transactional_id: transactional_id.into(),
                writer: Arc::default(),
            }),
            is_saved: false,
            gap: GapWord::default(),
        }
    }

    /// What was saved last, whoever saves: nobody is shut out, and no topic is made.
    ///
    /// # Errors
    /// No broker answers, or what is there cannot be read.
    pub async fn peek(&self) -> Result<Option<Position>, CheckpointError> {
        match self.read().await {
            Err(KafkaStoreError::Leaderless { topic }) => {
                let kafka = Arc::clone(&self.kafka);
                let name = topic.clone();
                match blocking(move || Ok(admin(&kafka)?.has_topic(&name)?)).await? {
                    false => Ok(None),
                    true => Err(KafkaStoreError::Leaderless { topic }.into()),
                }
            }
            read => Ok(read?.map(|document| document.position)),
        }
    }

    /// Saves a position that an operator names: [`Store::set`].
    ///
    /// # Errors
    /// As saving has them.
    pub async fn set(&mut self, position: &Position) -> Result<(), KafkaStoreError> {
        self.keep(Document::by_hand(&self.pipeline, &self.source, position))
            .await
    }

    async fn keep(&mut self, document: Document) -> Result<(), KafkaStoreError> {
        // Where the sink saves, it has.
        if let Some(own) = self.own.clone() {
            let record = PositionRecord::of(&document).map_err(|error| KafkaStoreError::Unavailable {
                reason: format!("save checkpoint: {error}"),
            })?;
            let topic = self.topic.name.clone();
            blocking(move || own.save(&topic, &record)).await?;
        }
        self.is_saved = true;
        Ok(())
    }

    /// Of a topic that is there.
    async fn read(&self) -> Result<Option<Document>, KafkaStoreError> {
        let (kafka, topic) = (Arc::clone(&self.kafka), self.topic.name.clone());
        let key = record::key(&self.pipeline, &self.source);
        let read = blocking(move || match read::last_value(&kafka, &topic, &key)? {
            Some(value) => record::document(&topic, &key, &value).map(Some),
            None => Ok(None),
        });
        read.await
    }
}

impl CheckpointStore for KafkaStore {
    fn is_shared(&self) -> bool {
        true
    }

    async fn load(&mut self) -> Result<Option<Position>, CheckpointError> {
        if let Some(own) = self.own.clone() {
            let (kafka, topic) = (Arc::clone(&self.kafka), self.topic.clone());
            blocking(move || own.claim(&kafka, &topic)).await?;
        }
        let read = self.read().await?;
        let position = self.gap.loaded(read);
        if self.is_saved && position.is_none() {
            return Err(CheckpointError::from(KafkaStoreError::Vanished {
                topic: self.topic.name.clone(),
                pipeline: self.pipeline.clone(),
            }));
        }
        self.is_saved |= position.is_some();
        Ok(position)
    }

    async fn save(&mut self, position: &Position) -> Result<(), CheckpointError> {
        Ok(self.keep(Document::new(&self.pipeline, &self.source, position)).await?)
    }

    fn gap_accepted(&mut self) -> bool {
        self.gap.tell()
    }
}

impl Own {
    fn claim(&self, kafka: &config::Kafka, topic: &CheckpointTopic) -> Result<(), KafkaStoreError> {
        ensure_checkpoint_topic(&admin(kafka)?, topic)?;
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        // The one of a former life is of no use any more.
        *writer = None;
        *writer = Some(writer::Writer::claim(kafka, &topic.name, &self.transactional_id)?);
        Ok(())
    }

    fn save(&self, topic: &str, record: &PositionRecord) -> Result<(), KafkaStoreError> {
        match self.writer.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            Some(writer) => writer.save(record),
            None => Err(KafkaStoreError::Fenced {
                topic: topic.to_owned(),
                reason: "the checkpoint was not loaded".to_owned(),
            }),
        }
    }
}

fn admin(kafka: &config::Kafka) -> Result<Admin, KafkaStoreError> {
    Admin::new(kafka).map_err(|error| KafkaStoreError::Client {
        reason: client_reason(&error),
    })
}

/// Runs what waits for brokers on a thread of its own.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, KafkaStoreError> + Send + 'static,
) -> Result<T, KafkaStoreError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|panic| {
        Err(KafkaStoreError::Unavailable {
            reason: panic.to_string(),
        })
    })
}
