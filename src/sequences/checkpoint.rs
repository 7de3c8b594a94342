//! A checkpoint store that has sequence numbers written before each save.

use std::sync::Arc;

use crate::checkpoint::{CheckpointError, CheckpointStore};
use crate::failpoint;
use crate::position::Position;

use super::Sequences;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct WithSequences<S> {
    pub(crate) store: S,
    /// None: there are none, or they are written before the sink's commits.
    pub(crate) sequences: Option<Arc<Sequences>>,
}

impl<S: CheckpointStore> CheckpointStore for WithSequences<S> {
    fn is_shared(&self) -> bool {
        self.store.is_shared()
    }

    async fn load(&mut self) -> Result<Option<Position>, CheckpointError> {
        self.store.load().await
    }

    async fn save(&mut self, position: &Position) -> Result<(), CheckpointError> {
        let Some(sequences) = &self.sequences else {
            return self.store.save(position).await;
        };
        let (writing, behind) = (Arc::clone(sequences), position.clone());
        // One that failed has said so, and is no reason not to save.
        let _ = tokio::task::spawn_blocking(move || writing.write(&behind)).await;
        failpoint::hit("after_numbers");
        self.store.save(position).await?;
        sequences.saved(position);
        Ok(())
    }

    fn gap_accepted(&mut self) -> bool {
        self.store.gap_accepted()
    }
}
