//! Checkpoints: the saved position, and the task that saves it.
//!
//! Order is the product here: a position is acked, then saved, and only then given to the source to be confirmed.

mod document;
pub mod file;
pub mod kafka;
pub mod saver;

use std::future::Future;
use std::path::Path;

use crate::audit::LedgerError;
use crate::config::{Checkpoint, Pipeline};
use crate::position::Position;
use crate::preflight::{Finding, Needs, Place};

use file::FileStore;
use kafka::KafkaStore;

pub use document::{Document, DocumentError};
pub use file::FileStoreError;
pub use kafka::KafkaStoreError;

/// Keeps one pipeline's position.
pub trait CheckpointStore: Send + 'static {
    /// Whether other machines can save to it too: then it is read at the begin of each life, when the source is locked.
    fn is_shared(&self) -> bool {
        false
    }

    /// The position last saved; None before the first save. Where the store is shared, no older instance can save once this
    /// has returned.
    fn load(&mut self) -> impl Future<Output = Result<Option<Position>, CheckpointError>> + Send;

    /// Saves a position. It is durable when this returns.
    fn save(&mut self, position: &Position) -> impl Future<Output = Result<(), CheckpointError>> + Send;

    /// Whether an operator set the position that was loaded last, with the word that events before it may be missing. True once.
    fn gap_accepted(&mut self) -> bool {
        false
    }
}

/// Whether a checkpoint, or how far events were on record, can be saved on this machine; makes nothing. None: nothing is.
pub(crate) fn preflight(pipeline: &Pipeline, state_dir: &Path) -> Option<Finding> {
    let place = Place {
        what: "state folder",
        path: state_dir.to_owned(),
        key: "--state-dir",
        needs: Needs::Folder,
        opened_with: vec![state_dir.join(format!("{}.lock", pipeline.name))],
    };
    let is_needed =
        pipeline.checkpoint == Checkpoint::File || pipeline.audit.is_some() || pipeline.dispatches.is_some();
    is_needed.then(|| place.look())
}

/// Whether the pipeline has no checkpoint yet. None: it is kept elsewhere.
pub(crate) fn is_first_start(pipeline: &Pipeline, state_dir: &Path) -> Option<bool> {
    let is_here = pipeline.checkpoint == Checkpoint::File;
    is_here.then(|| !FileStore::path_in(state_dir, &pipeline.name).exists())
}

/// What was loaded of an operator's word, until it is told.
#[derive(Debug, Default)]
struct GapWord {
    loaded: Option<Position>,
    /// A life that ends before its first save loads the same again.
    told: Option<Position>,
}

impl GapWord {
    /// Looks at what was loaded, and gives its position.
    fn loaded(&mut self, document: Option<Document>) -> Option<Position> {
        let document = document?;
        self.loaded = document.gap_accepted.then(|| document.position.clone());
        Some(document.position)
    }

    fn tell(&mut self) -> bool {
        let Some(position) = self.loaded.take() else {
            return false;
        };
        let is_news = self.told.as_ref() != Some(&position);
        self.told = Some(position);
        is_news
    }
}

/// Why a checkpoint could not be had or saved.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    #[error(transparent)]
    File(#[from] FileStoreError),
    #[error(transparent)]
    Kafka(#[from] KafkaStoreError),
    #[error(transparent)]
    Audit(#[from] LedgerError),
}

impl CheckpointError {
    /// Whether waiting can help, as it does with a full disk.
    pub fn can_heal(&self) -> bool {
        match self {
            Self::File(error) => error.can_heal(),
            Self::Kafka(error) => error.can_heal(),
            Self::Audit(_) => true,
        }
    }

    /// Whether the store answered, and what it holds cannot be used: another position can be saved over it.
    pub fn is_of_content(&self) -> bool {
        match self {
            Self::File(error) => error.is_of_content(),
            Self::Kafka(error) => matches!(error, KafkaStoreError::Damaged { .. } | KafkaStoreError::Version { .. }),
            Self::Audit(_) => false,
        }
    }

    /// Whether another instance of the pipeline may save now, and this one no more.
    pub fn is_fenced(&self) -> bool {
        match self {
            Self::File(_) | Self::Audit(_) => false,
            Self::Kafka(error) => matches!(error, KafkaStoreError::Fenced { .. }),
        }
    }
}

/// The stores there are.
#[derive(Debug)]
pub enum Store {
    File(FileStore),
    Kafka(KafkaStore),
}

impl Store {
    /// Saves a position that an operator names, whose word is that events before it may be missing: whoever goes on from there
    /// is to say so.
    ///
    /// # Errors
    /// As saving has them.
    pub async fn set(&mut self, position: &Position) -> Result<(), CheckpointError> {
        match self {
            Self::File(store) => Ok(store.set(position).await?),
            Self::Kafka(store) => Ok(store.set(position).await?),
        }
    }
}

impl CheckpointStore for Store {
    fn is_shared(&self) -> bool {
        match self {
            Self::File(store) => store.is_shared(),
            Self::Kafka(store) => store.is_shared(),
        }
    }

    async fn load(&mut self) -> Result<Option<Position>, CheckpointError> {
        match self {
            Self::File(store) => store.load().await,
            Self::Kafka(store) => store.load().await,
        }
    }

    async fn save(&mut self, position: &Position) -> Result<(), CheckpointError> {
        match self {
            Self::File(store) => store.save(position).await,
            Self::Kafka(store) => store.save(position).await,
        }
    }

    fn gap_accepted(&mut self) -> bool {
        match self {
            Self::File(store) => store.gap_accepted(),
            Self::Kafka(store) => store.gap_accepted(),
        }
    }
}
