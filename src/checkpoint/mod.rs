//! Checkpoints: the saved position, and the task that saves it.
//!
//! Order is the product here: a position is acked, then saved, and only then given to the source to be confirmed.

pub mod file;
pub mod saver;

use std::future::Future;

use crate::position::Position;

pub use file::FileStoreError;

/// Keeps one pipeline's position.
pub trait CheckpointStore: Send + 'static {
    /// The position last saved; None before the first save.
    fn load(&mut self) -> impl Future<Output = Result<Option<Position>, CheckpointError>> + Send;

    /// Saves a position. It is durable when this returns.
    fn save(&mut self, position: &Position) -> impl Future<Output = Result<(), CheckpointError>> + Send;
}

/// Why a checkpoint could not be had or saved.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    #[error(transparent)]
    File(#[from] FileStoreError),
}

impl CheckpointError {
    /// Whether waiting can help, as it does with a full disk.
    pub fn can_heal(&self) -> bool {
        match self {
            Self::File(error) => error.can_heal(),
        }
    }
}
