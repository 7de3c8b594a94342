//! The dead letters of one pipeline file, in the file or the topic that they are kept in.

use std::path::Path;
use std::time::SystemTime;

use crate::config::{DeadLetterPlace, Kafka, Pipeline};
use crate::letters::{FieldNames, Held, Letter, LetterId, LetterStore, Parked, read_topic};

use super::error::DlqError;
use super::filter::FilterArguments;

/// See the module's text.
pub(super) enum Stored<'p> {
    File {
        store: LetterStore,
        path: String,
    },
    Topic {
        cluster: &'p Kafka,
        name: &'p str,
        pipeline: &'p Pipeline,
    },
}

impl<'p> Stored<'p> {
    pub(super) fn open(pipeline: &'p Pipeline, state_dir: &Path) -> Result<Self, DlqError> {
        let place = pipeline.dead_letter.as_ref().map(|dead_letter| &dead_letter.place);
        match (place, pipeline.sink.kafka()) {
            (Some(DeadLetterPlace::File(file)), _) => {
                let path = file.in_folder(state_dir).path;
                Ok(Self::File {
                    store: LetterStore::open_existing(&path)?,
                    path: path.display().to_string(),
                })
            }
            (Some(DeadLetterPlace::Topic(name)), Some(cluster)) => Ok(Self::Topic {
                cluster,
                name,
                pipeline,
            }),
            (Some(DeadLetterPlace::Topic(_)), None) | (None, _) => Err(DlqError::NoPlace {
                pipeline: pipeline.name.clone(),
            }),
        }
    }

    /// The store, as a person would name it.
    pub(super) fn place(&self) -> String {
        match self {
            Self::File { path, .. } => format!("file `{path}`"),
            Self::Topic { name, .. } => format!("Kafka topic `{name}`"),
        }
    }

    /// The letters that a filter means, in the order of their being parked.
    pub(super) async fn matching(&mut self, filter: &FilterArguments) -> Result<Vec<Parked>, DlqError> {
        let filter_too = filter.clone();
        let mut letters = self.read(move |_, letter| filter_too.takes(letter)).await?.letters;
        filter.choose(&mut letters);
        Ok(letters)
    }

    pub(super) async fn one(&mut self, id: LetterId) -> Result<Parked, DlqError> {
        let found = self.read(move |found, _| found == id).await?.letters.pop();
        found.ok_or_else(|| DlqError::Unknown {
            id,
            place: self.place(),
        })
    }

    pub(super) async fn read(
        &mut self,
        wanted: impl Fn(LetterId, &Letter) -> bool + Send + 'static,
    ) -> Result<Held, DlqError> {
        match self {
            Self::File { store, .. } => {
                let mut held = Held::default();
                store.each(|kept| {
                    if wanted(LetterId::Row(kept.id), &kept.letter) {
                        held.letters.push(kept.into());
                    }
                })?;
                Ok(held)
            }
            Self::Topic {
                cluster,
                name,
                pipeline,
            } => {
                let (cluster, name) = (cluster.clone(), (*name).to_owned());
                let fields = FieldNames::of(pipeline);
                let read = tokio::task::spawn_blocking(move || read_topic(&cluster, &name, &fields, wanted));
                match read.await {
                    Ok(read) => Ok(read?),
                    Err(panic) => Err(DlqError::Task {
                        reason: panic.to_string(),
                    }),
                }
            }
        }
    }

    /// Marks a letter of a file as sent again.
    pub(super) fn mark(&self, id: LetterId, now: SystemTime, outcome: &str) -> Result<(), DlqError> {
        match (self, id) {
            (Self::File { store, .. }, LetterId::Row(id)) => Ok(store.mark(id, now, outcome)?),
            // A topic's are marked through the sink.
            _ => Ok(()),
        }
    }
}
