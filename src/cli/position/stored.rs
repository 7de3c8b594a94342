//! One pipeline's position in one store.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::checkpoint::file::FileStore;
use crate::checkpoint::kafka::{KafkaStore, Writer};
use crate::checkpoint::{CheckpointError, CheckpointStore, Document, Store};
use crate::config::{Checkpoint, CheckpointTopic, Kafka, Pipeline};
use crate::position::Position;
use crate::telemetry::error_chain;

use super::error::PositionError;
use super::{StoreKind, Target};

/// A pipeline, and the store that is meant: the file's own, or the one of `--store`.
pub(super) struct Stored<'p> {
    pub(super) pipeline: &'p Pipeline,
    state_dir: &'p Path,
    place: Place<'p>,
}

/// Where the position is.
pub(super) enum Place<'p> {
    File,
    Topic(&'p Kafka, CheckpointTopic),
}

impl<'p> Stored<'p> {
    pub(super) fn new(pipeline: &'p Pipeline, target: &'p Target) -> Result<Self, PositionError> {
        let topic = match (target.store, &pipeline.checkpoint) {
            (Some(StoreKind::File), _) | (None, Checkpoint::File) => None,
            (Some(StoreKind::Kafka) | None, Checkpoint::Kafka(topic)) => Some(topic.clone()),
            (Some(StoreKind::Kafka), Checkpoint::File) => Some(CheckpointTopic::default()),
        };
        let place = match (topic, pipeline.sink.kafka()) {
            (None, _) => Place::File,
            (Some(topic), Some(cluster)) => Place::Topic(cluster, topic),
            (Some(_), None) => return Err(PositionError::NoCluster),
        };
        Ok(Self {
            pipeline,
            state_dir: &target.state_dir,
            place,
        })
    }

    pub(super) fn store(&self) -> &Place<'p> {
        &self.place
    }

    /// Where a checkpoint file of the pipeline is, or would be.
    pub(super) fn file(&self) -> PathBuf {
        FileStore::path_in(self.state_dir, &self.pipeline.name)
    }

    /// The store, as a person would name it.
    pub(super) fn place(&self) -> String {
        match &self.place {
            Place::File => self.file_place(),
            Place::Topic(_, topic) => format!("Kafka topic `{}`", topic.name),
        }
    }

    /// The same of the checkpoint file.
    pub(super) fn file_place(&self) -> String {
        format!("file `{}`", self.file().display())
    }

    pub(super) fn document(&self, position: &Position) -> Document {
        Document::new(&self.pipeline.name, self.pipeline.source.id(), position)
    }

    /// What was saved last, perhaps by a process that runs: nobody is shut out.
    pub(super) async fn peek(&self) -> Result<Option<Position>, CheckpointError> {
        let (name, source) = (&self.pipeline.name, self.pipeline.source.id());
        match &self.place {
            Place::File => Ok(FileStore::peek(self.state_dir, name, source)?),
            Place::Topic(cluster, topic) => self.kafka(cluster, topic).peek().await,
        }
    }

    /// The store to save to. Loading it shuts out whatever else saves there.
    pub(super) fn open(&self) -> Result<Store, CheckpointError> {
        Ok(match &self.place {
            Place::File => Store::File(self.open_file()?),
            Place::Topic(cluster, topic) => Store::Kafka(self.kafka(cluster, topic)),
        })
    }

    /// The checkpoint file beside a store that is none, locked; None: there is none.
    pub(super) fn leftover(&self) -> Result<Option<FileStore>, CheckpointError> {
        match self.file().exists() {
            true => Ok(Some(self.open_file()?)),
            false => Ok(None),
        }
    }

    fn open_file(&self) -> Result<FileStore, CheckpointError> {
        Ok(FileStore::open(
            self.state_dir,
            &self.pipeline.name,
            self.pipeline.source.id(),
        )?)
    }

    /// Loads the store, and saves what `choose` makes of what was in it; `by_hand`: as what an operator set. Gives both.
    ///
    /// An instance that runs is shut out by the load and takes the store back as soon as it has noticed. Whoever saves between
    /// two of its tries has won, since it then reads that position: so it is tried again.
    pub(super) async fn replace(
        &self,
        choose: impl Fn(&Saved) -> Result<Position, PositionError>,
        by_hand: bool,
    ) -> Result<(Saved, Position), PositionError> {
        let mut tries = 1;
        loop {
            let mut store = self.open()?;
            let saved = Saved::load(&mut store).await?;
            let position = choose(&saved)?;
            let kept = match by_hand {
                true => store.set(&position).await,
                false => store.save(&position).await,
            };
            match kept {
                Err(error) if error.is_fenced() && tries < MOST_TRIES => tries += 1,
                result => {
                    result?;
                    return Ok((saved, position));
                }
            }
        }
    }

    fn kafka(&self, cluster: &Kafka, topic: &CheckpointTopic) -> KafkaStore {
        KafkaStore::new(
            Arc::new(cluster.clone()),
            topic.clone(),
            &self.pipeline.name,
            self.pipeline.source.id(),
            Writer::Operator,
        )
    }
}

/// How often a save is tried that an instance shut out: with the instance's own growing waits in between, a few are enough.
const MOST_TRIES: u32 = 10;

/// What a store held when it was opened.
#[derive(Debug)]
pub(super) enum Saved {
    Nothing,
    Position(Box<Position>),
    /// It is there, and cannot be read; why.
    Unreadable(String),
}

impl Saved {
    /// Loads a store, which from then on is ours to save to.
    pub(super) async fn load(store: &mut impl CheckpointStore) -> Result<Self, CheckpointError> {
        match store.load().await {
            Ok(None) => Ok(Self::Nothing),
            Ok(Some(position)) => Ok(Self::Position(Box::new(position))),
            Err(error) if error.is_of_content() => Ok(Self::Unreadable(error_chain(&error))),
            Err(error) => Err(error),
        }
    }

    /// Whether nothing is lost with it once a position is saved elsewhere or over it.
    pub(super) fn is_nothing_beside(&self, position: &Position) -> bool {
        match self {
            Self::Nothing => true,
            Self::Position(saved) => **saved == *position,
            Self::Unreadable(_) => false,
        }
    }
}

impl fmt::Display for Saved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("none"),
            Self::Position(position) => position.fmt(f),
            Self::Unreadable(reason) => write!(f, "none that can be read ({reason})"),
        }
    }
}
