//! The rule `sequence`: what the numbers of an event's aggregate say of it, and what follows.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use sha2::{Digest, Sha256};

use super::field_text;
use crate::config::pipeline::{self, OnFault};
use crate::position::EventPosition;
use crate::processor::error::Problem;
use crate::processor::field::{Field, FieldPath, Fields, Names};
use crate::sequences::{Consequence, Numbers, OutOfSequence, SequenceFault, SharedNumbers};

/// Aggregates of longer names are kept by their hashes, so that memory has a bound.
const LONGEST_NAME: usize = 128;
/// Between the fields of an aggregate's name.
const BETWEEN: char = '\u{1f}';

/// See the module's text.
#[derive(Debug)]
pub(in crate::processor) struct SequenceRule {
    field: FieldPath,
    name: String,
    per: Vec<FieldPath>,
    on_repeat: OnFault,
    on_gap: OnFault,
    on_backwards: OnFault,
    max_aggregates: usize,
    numbers: SharedNumbers,
    seen: SequenceFaults,
}

/// What was seen of numbers that are out of sequence, whatever became of their events.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct SequenceFaults {
    pub(crate) counts: BTreeMap<SequenceFault, u64>,
    /// The last of those that the log is to have, with its event's place.
    pub(crate) warned: Option<(String, String)>,
}

impl SequenceRule {
    /// With numbers of its own, which nobody keeps.
    pub(super) fn new(config: &pipeline::Sequence, names: &mut Names) -> Self {
        Self {
            field: names.path(&config.field),
            name: config.field.join("."),
            per: config.per.iter().map(|path| names.path(path)).collect(),
            on_repeat: config.on_repeat,
            on_gap: config.on_gap,
            on_backwards: config.on_backwards,
            max_aggregates: config.max_aggregates,
            numbers: Arc::new(Mutex::new(Numbers::new(config.max_aggregates))),
            seen: SequenceFaults::default(),
        }
    }

    pub(in crate::processor) fn max_aggregates(&self) -> usize {
        self.max_aggregates
    }

    /// Goes on with these numbers.
    pub(in crate::processor) fn keep(&mut self, numbers: SharedNumbers) {
        self.numbers = numbers;
    }

    pub(in crate::processor) fn take_faults(&mut self) -> SequenceFaults {
        std::mem::take(&mut self.seen)
    }

    /// Looks at an event's number. One without a number, or of no aggregate, has no place in a sequence.
    ///
    /// # Errors
    /// The number is none, or what is wrong with it is a reason to refuse the event.
    pub(super) fn look_at(&mut self, fields: &Fields<'_>, at: &EventPosition) -> Result<(), Problem> {
        let field = fields.at(&self.field);
        if field == Field::Missing || field.is_null() {
            return Ok(());
        }
        let number = field_text(fields, &self.field).and_then(|text| text.parse::<i64>().ok());
        let Some(number) = number else {
            let field = self.name.clone();
            return Err(Problem::NoSequenceNumber { field });
        };
        let Some(aggregate) = self.aggregate(fields) else {
            return Ok(());
        };
        let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        let looked_at = numbers.look_at(&aggregate, number, at, |fault| match self.action(fault) {
            OnFault::Ignore | OnFault::Warn => Consequence::Passes,
            OnFault::DeadLetter => Consequence::Refused,
            OnFault::Halt => Consequence::Halts,
        });
        drop(numbers);
        let Err(OutOfSequence { fault, highest }) = looked_at else {
            return Ok(());
        };
        *self.seen.counts.entry(fault).or_default() += 1;
        let action = self.action(fault);
        let problem = Problem::OutOfSequence {
            field: self.name.clone(),
            number,
            highest,
            fault,
            action,
        };
        match action {
            OnFault::Ignore => Ok(()),
            OnFault::Warn => {
                self.seen.warned = Some((problem.to_string(), at.to_string()));
                Ok(())
            }
            OnFault::DeadLetter | OnFault::Halt => Err(problem),
        }
    }

    fn action(&self, fault: SequenceFault) -> OnFault {
        match fault {
            SequenceFault::Repeat => self.on_repeat,
            SequenceFault::Gap => self.on_gap,
            SequenceFault::Backwards => self.on_backwards,
        }
    }

    /// What numbers go up in. None: a field of it has no text.
    fn aggregate(&self, fields: &Fields<'_>) -> Option<String> {
        let mut name = String::new();
        for (index, path) in self.per.iter().enumerate() {
            if index > 0 {
                name.push(BETWEEN);
            }
            name.push_str(&field_text(fields, path)?);
        }
        if name.len() <= LONGEST_NAME {
            return Some(name);
        }
        let mut hash = "sha256:".to_owned();
        for byte in Sha256::digest(name.as_bytes()) {
            // Writing to a string cannot fail.
            let _ = write!(hash, "{byte:02x}");
        }
        Some(hash)
    }
}

#[cfg(test)]
mod tests;
