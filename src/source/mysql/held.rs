//! Events of a transaction whose end was not seen yet.
//!
//! A binlog holds what was committed, and some of what was not: MariaDB keeps rows in front of `ROLLBACK TO` where the
//! transaction also did something that cannot be undone, such as a write to a table without transactions; and a server that
//! crashed may have written half of a transaction. So the events of a transaction wait for its end. One that is too large to
//! be held is handed on as it comes.

use std::collections::VecDeque;

use crate::event::ChangeEvent;
use crate::skip::{SkipCounts, SkipReason};

/// How much of one transaction is held, its events' own memory included, where nobody says otherwise.
pub(super) const MAX_HELD_BYTES: usize = 8 << 20;
/// What an event takes beside its cells.
const EVENT_BYTES: usize = 320;

/// What the open transaction has brought so far.
#[derive(Debug, Default)]
pub(super) struct Held {
    events: Vec<ChangeEvent>,
    bytes: usize,
    skipped: SkipCounts,
    /// Names with how many events came before.
    savepoints: Vec<(String, u64)>,
    /// Events that were handed on already.
    handed_on: u64,
    /// Rows that count as done since an earlier reading, all before those.
    passed_over: u64,
}

/// Events were handed on that the transaction then took back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooLate {
    /// By this reading.
    pub(super) handed_on: u64,
    /// Rows that count as done since an earlier reading. They need not have been handed on: events behind them were, and
    /// these may have been taken back before.
    pub(super) passed_over: u64,
}

/// What an event takes, in bytes.
pub(super) fn kept_bytes(event: &ChangeEvent) -> usize {
    event.byte_len() + EVENT_BYTES
}

impl Held {
    pub(super) fn push(&mut self, event: ChangeEvent) {
        self.bytes += kept_bytes(&event);
        self.events.push(event);
    }

    /// Counts rows that are done since an earlier reading.
    pub(super) fn pass_over(&mut self, rows: u64) {
        self.passed_over += rows;
    }

    pub(super) fn skip(&mut self, reason: SkipReason, count: u64) {
        if count > 0 {
            self.skipped.add(reason, count);
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether some of the transaction was handed on before its end.
    pub(super) fn is_handed_on(&self) -> bool {
        self.handed_on > 0
    }

    /// Hands on what is held, with what was skipped.
    pub(super) fn hand_on(&mut self, events: &mut VecDeque<ChangeEvent>, skipped: &mut SkipCounts) {
        self.handed_on += self.events.len() as u64;
        self.bytes = 0;
        events.extend(self.events.drain(..));
        skipped.merge(std::mem::take(&mut self.skipped));
    }

    /// Ends the transaction: what it held is taken out.
    pub(super) fn finish(&mut self) -> (Vec<ChangeEvent>, SkipCounts) {
        let Self { events, skipped, .. } = std::mem::take(self);
        (events, skipped)
    }

    /// Ends the transaction, handing on what it held. Its memory is used again.
    pub(super) fn commit(&mut self, events: &mut VecDeque<ChangeEvent>, skipped: &mut SkipCounts) {
        self.hand_on(events, skipped);
        self.handed_on = 0;
        self.passed_over = 0;
        self.savepoints.clear();
    }

    pub(super) fn savepoint(&mut self, name: String) {
        let before = self.out_of_reach() + self.events.len() as u64;
        // A name that is used again means the new place.
        self.savepoints.retain(|(known, _)| *known != name);
        self.savepoints.push((name, before));
    }

    /// Takes back what came since a savepoint; one that is not known was set before everything.
    ///
    /// # Errors
    /// Some of it was handed on; the rest is taken back all the same.
    pub(super) fn roll_back_to(&mut self, name: &str) -> Result<(), TooLate> {
        let at = self.savepoints.iter().position(|(known, _)| known == name);
        let before = at
            .and_then(|at| self.savepoints.get(at))
            .map_or(0, |(_, before)| *before);
        // Those that were set after it are gone; it stays itself.
        self.savepoints.truncate(at.map_or(0, |at| at + 1));
        self.take_back(before)
    }

    /// Takes back everything.
    ///
    /// # Errors
    /// Some of it was handed on; the rest is taken back all the same.
    pub(super) fn roll_back(&mut self) -> Result<(), TooLate> {
        self.take_back(0)
    }

    fn take_back(&mut self, before: u64) -> Result<(), TooLate> {
        let out_of_reach = self.out_of_reach();
        let kept = usize::try_from(before.saturating_sub(out_of_reach)).unwrap_or(usize::MAX);
        let taken_back = self.events.len().saturating_sub(kept);
        self.events.truncate(kept);
        self.bytes = self.events.iter().map(kept_bytes).sum();
        self.skip(SkipReason::RolledBack, taken_back as u64);
        match out_of_reach.saturating_sub(before) {
            0 => Ok(()),
            events => {
                let handed_on = events.min(self.handed_on);
                Err(TooLate {
                    handed_on,
                    passed_over: events - handed_on,
                })
            }
        }
    }

    fn out_of_reach(&self) -> u64 {
        self.passed_over + self.handed_on
    }

    /// Drops what is held without a trace, as if it had never come. Gives how many events were handed on before.
    pub(super) fn forget(&mut self) -> u64 {
        std::mem::take(self).out_of_reach()
    }
}
