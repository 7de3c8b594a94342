//! What becomes of an event that no record could be made of, or whose record the sink refuses: its policy.
//!
//! A dead letter takes its event's place in the order; a skipped event is counted with its batch; a halt takes nothing more
//! and leaves the position before the culprit.

use std::collections::HashMap;
use std::fmt;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use crate::config::ErrorPolicy;
use crate::position::EventPosition;
use crate::processor::{DeadLetterReason, ProcessError, UnknownColumn, Unparkable};
use crate::schema_registry::RegistryError;
use crate::sink::{DeliveryError, DeliveryErrorKind, RecordFault, Sink};
use crate::skip::SkipReason;
use crate::telemetry::status::PipelineStatus;

use super::account::Described;
use super::in_flight::Fate;
use super::{BatchRest, Parked, Relay};

/// An event whose record, or dead letter, the sink refused when it travelled alone. The next life does with it what the
/// policy says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Culprit {
    pub at: EventPosition,
    /// In their order: of the record if one could be made, of the dead letter in its place, of the stub in place of that.
    pub refusals: Vec<Refusal>,
}

/// What the sink has against a record of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub error: DeliveryError,
    /// How often the sink was given the record.
    pub attempts: u32,
}

/// An event that may not be passed over.
#[derive(Debug, thiserror::Error)]
pub enum HaltError {
    #[error("{error}; policy {}: halt", error.policy_key())]
    Process { error: ProcessError },
    #[error("event at {at}: {error}; policy errors.rejected: halt")]
    Rejected { at: String, error: DeliveryError },
    #[error("{error}; it cannot be parked: {reason}")]
    ProcessUnparkable { error: ProcessError, reason: Unparkable },
    #[error("event at {at} cannot be parked: {reason}")]
    Unparkable { at: String, reason: Unparkable },
    #[error("{error}")]
    Schemas { error: RegistryError },
    #[error("the event at {at} waits for its schema: {error}")]
    Schema { at: String, error: RegistryError },
    #[error("dead letter of the event at {at}: {error}; the pipeline stops, since the event would be lost")]
    DeadLetter { at: String, error: DeliveryError },
    /// Of one of several sinks.
    #[error("sink `{id}`")]
    Of { id: String, source: Box<Self> },
}

/// Lines that repeat themselves for each change of a table: when the log last had one, and how many it was spared since.
#[derive(Debug, Default)]
pub(super) struct Repeats(HashMap<String, (Instant, u64)>);

impl Repeats {
    const EVERY: Duration = Duration::from_secs(60);

    /// Whether the log is due a line, and for how many more than this one it stands.
    fn due(&mut self, of: &str, now: Instant) -> Option<u64> {
        let Some((last, spared)) = self.0.get_mut(of) else {
            self.0.insert(of.to_owned(), (now, 0));
            return Some(0);
        };
        if now.duration_since(*last) < Self::EVERY {
            *spared += 1;
            return None;
        }
        *last = now;
        Some(std::mem::take(spared))
    }
}

impl<S: Sink> Relay<S> {
    /// A record that the sink did not take and never will.
    pub(super) fn reject_unsent(&mut self, parked: Parked, error: DeliveryError) {
        self.status.count(|totals| totals.failed += 1);
        self.reject(parked, Refusal { error, attempts: 1 });
    }

    /// Goes the way of the event at hand as far as a former life came with it, if it is the culprit.
    pub(super) fn repeat_refusals(&mut self) {
        let at = self.batch.as_ref().and_then(|batch| batch.at.as_ref());
        let Some(refusals) = self.search.meet(at) else { return };
        for refusal in refusals {
            if let Some(parked) = self.parked.take() {
                self.reject(parked, refusal);
            }
        }
        // Skipped for good: the next one can be refused as well, and the life behind that knows only of it.
        if self.parked.is_none() && self.halted.is_none() {
            self.boundary_behind();
        }
    }

    /// A schema that cannot be fetched before a person acts.
    pub(super) fn halt_for_schema(&mut self, error: RegistryError) {
        let at = self.at().map(|at| at.to_string());
        self.halt(match at.filter(|_| self.chain.waiting().is_some()) {
            Some(at) => HaltError::Schema { at, error },
            None => HaltError::Schemas { error },
        });
    }

    pub(super) fn at(&self) -> Option<EventPosition> {
        self.batch.as_ref().and_then(|batch| batch.at.clone())
    }

    /// Counts numbers out of sequence, and says a word on those that pass with one.
    pub(super) fn tell_sequence_faults(&mut self) {
        for (processor, faults) in self.chain.take_sequence_faults() {
            self.status.count(|totals| {
                for (fault, count) in &faults.counts {
                    *totals.sequence_faults.entry(*fault).or_default() += count;
                }
            });
            let Some((text, at)) = faults.warned else { continue };
            if let Some(spared) = self.repeats.due(&format!("sequence of {processor}"), Instant::now()) {
                let spared = (spared > 0).then_some(spared);
                tracing::warn!(%processor, at, error = text, spared, "out of sequence");
            }
        }
    }

    /// Says what asks for columns that a table does not have: a rule that is misspelt would let through what it is to mask, a
    /// filter take away what it is to keep.
    pub(super) fn tell_unknown_columns(&mut self) {
        for (processor, text, columns) in self.chain.take_unknown_columns() {
            for UnknownColumn { table, path, is_meant } in columns {
                match is_meant {
                    true => tracing::warn!(%processor, table, path, "{text}"),
                    // It may be meant for another table.
                    false => tracing::info!(%processor, table, path, "{text}"),
                }
            }
        }
    }

    /// Counts a skipped event with the batch that it came in.
    pub(super) fn skip(&mut self, reason: SkipReason) {
        if let Some(batch) = &mut self.batch {
            batch.skipped.add(reason, 1);
        }
    }

    fn tell_skipped(&mut self, described: Described, reason: SkipReason) {
        let next = self.ledger.next_seq();
        if let Some(account) = &mut self.account {
            account.skipped(next, described, reason);
        }
    }

    /// An event that no record could be made of, by its policy.
    pub(super) fn refuse(&mut self, error: ProcessError, commit_time_us: i64) {
        let policy = error.policy(&self.policies);
        match (policy, &mut self.dead_letters) {
            (ErrorPolicy::DeadLetter, Some(dead_letters)) => match dead_letters.of_event(&error, SystemTime::now()) {
                Ok(record) => {
                    let reason = error.dead_letter_reason();
                    tell_parked(&self.status, &error.position, reason, None, &error);
                    self.parked = Some(Parked::new(record, commit_time_us, Fate::DeadLettered(reason)));
                }
                Err(reason) => self.halt(HaltError::ProcessUnparkable { error, reason }),
            },
            (ErrorPolicy::Skip, _) => {
                let reason = error.skip_reason();
                let due = match error.repeats() {
                    true => self.repeats.due(&error.event, Instant::now()),
                    false => Some(0),
                };
                if let Some(spared) = due {
                    let spared = (spared > 0).then_some(spared);
                    tracing::warn!(at = %error.position, reason = reason.label(), error = %error, spared, "event skipped");
                }
                if self.account.is_some() {
                    let described = Described {
                        last_error: Some(error.to_string()),
                        about: error.outline.about,
                        at: error.position,
                        commit_time_us,
                        attempts: 0,
                        context: None,
                    };
                    self.tell_skipped(described, reason);
                }
                self.skip(reason);
            }
            (ErrorPolicy::Halt | ErrorPolicy::DeadLetter, _) => self.halt(HaltError::Process { error }),
        }
    }

    /// A record that the sink will never take, by its policy.
    fn reject(&mut self, mut parked: Parked, refusal: Refusal) {
        let Some(at) = self.at() else { return };
        if let Fate::DeadLettered(_) = parked.fate {
            return self.reject_dead_letter(parked, &at, refusal);
        }
        let Refusal { error, attempts } = &refusal;
        match (self.policies.rejected, &self.dead_letters) {
            (ErrorPolicy::DeadLetter, Some(dead_letters)) => {
                let reason = DeadLetterReason::of_delivery(error);
                tell_parked(&self.status, &at, reason, None, error);
                let letter = dead_letters.of_record(parked.record, error, &at, *attempts, SystemTime::now());
                let fate = Fate::DeadLettered(reason);
                parked.refusals.push(refusal);
                self.parked = Some(Parked {
                    record: letter,
                    fate,
                    ..parked
                });
            }
            (ErrorPolicy::Skip, _) => {
                let reason = SkipReason::Rejected;
                tracing::warn!(at = %at, reason = reason.label(), error = %error, "event skipped");
                if let Some(mut described) = self.described(&parked.record, parked.fate, parked.commit_time_us) {
                    (described.attempts, described.last_error) = (*attempts, Some(error.to_string()));
                    self.tell_skipped(described, reason);
                }
                self.skip(reason);
            }
            (ErrorPolicy::Halt | ErrorPolicy::DeadLetter, _) => {
                let (at, error) = (at.to_string(), refusal.error);
                self.halt(HaltError::Rejected { at, error });
            }
        }
    }

    /// A dead letter that its topic does not take: a stop, not a loss.
    fn reject_dead_letter(&mut self, mut parked: Parked, at: &EventPosition, refusal: Refusal) {
        let at = at.to_string();
        match &self.dead_letters {
            Some(dead_letters) if refusal.error.kind == DeliveryErrorKind::Record(RecordFault::TooLarge) => {
                match dead_letters.stub(parked.record) {
                    Ok(stub) => {
                        tracing::warn!(at, error = %refusal.error, "the dead letter is parked as a stub");
                        parked.refusals.push(refusal);
                        self.parked = Some(Parked { record: stub, ..parked });
                    }
                    Err(reason) => self.halt(HaltError::Unparkable { at, reason }),
                }
            }
            _ => {
                let error = refusal.error;
                self.halt(HaltError::DeadLetter { at, error });
            }
        }
    }

    /// Takes no more events. What was sent is still waited for, and the position before the culprit is saved.
    fn halt(&mut self, halt: HaltError) {
        self.tell_sequence_faults();
        self.tell_unknown_columns();
        self.events.clear();
        self.parked = None;
        self.chain.let_go();
        if let Some(BatchRest {
            end,
            skipped,
            before: Some(before),
            ..
        }) = self.batch.take()
        {
            let position = end.after(&before);
            match &mut self.uncommitted {
                None => self.ledger.boundary(position, skipped),
                Some(uncommitted) => uncommitted.boundary(position, skipped),
            }
        }
        self.halted = Some(halt);
    }
}

/// Says of an event, at its place in the log, that it is parked, why, and what can be done about it. `attempts` is what a sink
/// that tries by itself has counted.
pub(super) fn tell_parked(
    status: &PipelineStatus,
    at: &EventPosition,
    reason: DeadLetterReason,
    attempts: Option<u32>,
    error: &dyn fmt::Display,
) {
    let (reason, remedy) = (reason.label(), reason.remedy());
    tracing::warn!(%at, reason, attempts, %error, remedy, "event parked");
    let (error, at) = (error.to_string(), at.to_string());
    // What no record could be made of names its place itself.
    status.parked(&match error.contains(&at) {
        true => format!("event parked: {error}; {remedy}"),
        false => format!("event at {at} parked: {error}; {remedy}"),
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_repeat_themselves_are_one_a_minute_of_each_table() {
        let mut repeats = Repeats::default();
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let asked = [
            ("a", 0),
            ("a", 1),
            ("b", 1),
            ("a", 59),
            ("a", 60),
            ("a", 61),
            ("b", 121),
            ("a", 200),
        ];
        let due = asked.map(|(table, seconds)| repeats.due(table, after(seconds)));
        assert_eq!(due, [Some(0), None, Some(0), None, Some(2), None, Some(0), Some(1)]);
    }
}
