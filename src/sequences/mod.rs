//! Numbers of aggregates that are kept over restarts, for processors that look whether they go up one by one.
//!
//! They are written before the checkpoint is saved, so that they are never behind it: what comes again after a restart is known
//! to do so. Each write says for which checkpoint it is, and which one was saved before it. A pipeline that begins at neither, such
//! as on another machine or at a position that was set by hand, learns the numbers anew. So does one whose file cannot be used:
//! numbers are no reason to hold events back.

mod checkpoint;
mod numbers;
mod store;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::config::Pipeline;
use crate::position::Position;
use crate::preflight::{Finding, Place};
use crate::telemetry::error_chain;

pub(crate) use checkpoint::WithSequences;
pub use numbers::SequenceFault;
pub(crate) use numbers::{Consequence, Numbers, OutOfSequence};

use store::{Mark, Rule, SequenceStore, SequenceStoreError};

/// Of one rule, shared between the processor and what writes them.
pub(crate) type SharedNumbers = Arc<Mutex<Numbers>>;

/// A pipeline's, over all its lives.
#[derive(Debug)]
pub(crate) struct Sequences {
    path: PathBuf,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    /// None: it was not needed yet, or cannot be opened.
    store: Option<SequenceStore>,
    rules: Vec<(Rule, SharedNumbers)>,
    /// The checkpoint that was saved last.
    saved: Option<Position>,
    /// The log has said that the file cannot be used.
    failing: bool,
}

impl Kept {
    fn store(&mut self, path: &Path) -> Result<&mut SequenceStore, SequenceStoreError> {
        match &mut self.store {
            Some(store) => Ok(store),
            none => Ok(none.insert(SequenceStore::open(path)?)),
        }
    }

    fn fails(&mut self, error: &SequenceStoreError) {
        // It is opened anew the next time.
        self.store = None;
        if !std::mem::replace(&mut self.failing, true) {
            tracing::warn!(
                error = %error_chain(error),
                "sequence numbers are not kept; events go on, and a restart learns the numbers anew"
            );
        }
    }
}

fn path_in(state_dir: &Path, pipeline: &str) -> PathBuf {
    state_dir.join(format!("{pipeline}.sequences.sqlite"))
}

/// Whether numbers can be kept, where a processor asks for it; makes nothing.
pub(crate) fn preflight(pipeline: &Pipeline, state_dir: &Path) -> Option<Finding> {
    let path = path_in(state_dir, &pipeline.name);
    let place = Place::of_sqlite("sequence numbers", path, "--state-dir");
    pipeline.keeps_sequences().then(|| place.look())
}

impl Sequences {
    pub(crate) fn new(state_dir: &Path, pipeline: &str) -> Self {
        Self {
            path: path_in(state_dir, pipeline),
            kept: Mutex::default(),
        }
    }

    /// A life of all sinks begins at this checkpoint.
    pub(crate) fn begin(&self, from: Option<&Position>) {
        let mut kept = self.kept();
        kept.rules.clear();
        kept.saved = from.cloned();
    }

    /// The numbers of a rule, as they are at the checkpoint where the life begins, or of the same life where its sink was made
    /// anew. Reads the file.
    pub(crate) fn numbers(&self, sink: &str, processor: &str, max_aggregates: usize) -> SharedNumbers {
        let mut kept = self.kept();
        let rule = Rule {
            sink: sink.to_owned(),
            processor: processor.to_owned(),
        };
        if let Some((_, numbers)) = kept.rules.iter().find(|(known, _)| *known == rule) {
            return Arc::clone(numbers);
        }
        let numbers = self.read(&mut kept, &rule, max_aggregates).unwrap_or_else(|error| {
            kept.fails(&error);
            Numbers::new(max_aggregates)
        });
        let numbers = Arc::new(Mutex::new(numbers));
        kept.rules.push((rule, Arc::clone(&numbers)));
        numbers
    }

    fn read(&self, kept: &mut Kept, rule: &Rule, max_aggregates: usize) -> Result<Numbers, SequenceStoreError> {
        let from = kept.saved.as_ref().map(text);
        let store = kept.store(&self.path)?;
        let Some(mark) = store.mark(rule)? else {
            return Ok(Numbers::new(max_aggregates));
        };
        let is_at = |position: Option<&String>| position.is_some() && position == from.as_ref();
        let through = match (is_at(Some(&mark.position)), is_at(mark.position_before.as_ref())) {
            (true, _) => mark.through,
            // Behind the write for a checkpoint that was not saved.
            (false, true) => mark.last,
            (false, false) => {
                tracing::info!(
                    processor = rule.processor,
                    "sequence numbers are learned anew: those that are kept are of another place in the log"
                );
                store.forget(rule)?;
                return Ok(Numbers::new(max_aggregates));
            }
        };
        Ok(Numbers::of(max_aggregates, store.numbers(rule)?, through, mark.refused))
    }

    /// Writes the numbers as they are, before a checkpoint is saved that they know everything up to. Blocks for a short write.
    pub(crate) fn write(&self, position: &Position) {
        let mut kept = self.kept();
        if kept.rules.is_empty() {
            return;
        }
        let (position_text, saved) = (text(position), kept.saved.clone());
        let before = saved.as_ref().map(text);
        let taken = kept.rules.iter().map(|(rule, numbers)| {
            let mut numbers = lock(numbers);
            let mut changes = numbers.take_changes(|at| saved.as_ref().is_some_and(|saved| saved.covers(at)));
            let (last, is_done) = match (numbers.comes_again_up_to(), &changes.through) {
                (Some(last), _) => (Some(last.to_owned()), false),
                (None, Some(at)) => (Some(at.to_string()), position.covers(at)),
                (None, None) => (None, true),
            };
            let mark = Mark {
                through: last.clone().filter(|_| !is_done),
                last,
                position: position_text.clone(),
                position_before: before.clone(),
                refused: std::mem::take(&mut changes.refused),
            };
            (rule.clone(), changes, mark)
        });
        let all: Vec<_> = taken.collect();
        let written = kept.store(&self.path).and_then(|store| store.write(&all));
        match written {
            Ok(()) => kept.failing = false,
            Err(error) => {
                kept.fails(&error);
                for ((_, numbers), (_, changes, _)) in kept.rules.iter().zip(all) {
                    lock(numbers).put_back(changes);
                }
            }
        }
    }

    /// The checkpoint is saved.
    pub(crate) fn saved(&self, position: &Position) {
        self.kept().saved = Some(position.clone());
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn lock(numbers: &SharedNumbers) -> MutexGuard<'_, Numbers> {
    numbers.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A position that can be held against one that was written before, to the last field.
fn text(position: &Position) -> String {
    // Every position can be written.
    serde_json::to_string(position).unwrap_or_default()
}

#[cfg(test)]
mod tests;
