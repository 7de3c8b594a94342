//! When a sink that commits is told to, and what that takes with it.

use tokio::time::Instant;

use crate::failpoint;
use crate::position::Position;
use crate::sink::Sink;
use crate::skip::SkipCounts;

use super::Relay;
use super::in_flight::{Fate, Unsettled};
use super::uncommitted::Uncommitted;

impl<S: Sink> Relay<S> {
    /// What is being committed.
    pub(super) fn unsettled(&self) -> Option<Unsettled> {
        self.uncommitted.is_some().then(|| self.ledger.unsettled()).flatten()
    }

    /// When a commit is due, of a sink that commits: as soon as nothing more waits, or nothing more can be taken before it.
    pub(super) fn commit_at(&self, ending: bool, paused: bool, nothing_waits: bool) -> Option<Instant> {
        let uncommitted = self.uncommitted.as_ref()?;
        if self.sink_busy || self.held.is_some() || self.failures.decide_at.is_some() {
            return None;
        }
        let due = uncommitted.due_at()?;
        let quiet = self.batch.is_none() && nothing_waits;
        Some(match uncommitted.has_records() {
            true if ending || paused || (self.parked.is_some() && self.ledger.needs_commit()) => {
                due.min(Instant::now())
            }
            true if quiet => due.min(uncommitted.quiet_at()),
            false if ending && quiet => due.min(Instant::now()),
            _ => due,
        })
    }

    /// Begins to commit what was taken, and the position behind it. False: there is no position yet.
    pub(super) fn commit(&mut self) -> bool {
        if self.uncommitted.is_none() {
            return false;
        }
        if self.held.is_some() {
            return true;
        }
        let inside = self.inside();
        let taken = self
            .uncommitted
            .as_mut()
            .and_then(|uncommitted| uncommitted.take(inside));
        let Some((position, skipped)) = taken else {
            return false;
        };
        self.chain.write_sequences(&position);
        let prepares = self.account.as_mut().is_some_and(|account| account.prepare(&position));
        match prepares {
            true => self.held = Some((position, skipped)),
            false => self.begin_commit(position, skipped),
        }
        true
    }

    pub(super) fn begin_commit(&mut self, position: Position, skipped: SkipCounts) {
        failpoint::hit("before_commit");
        self.sink.commit(self.ledger.next_seq(), &position);
        self.ledger.sent(0, i64::MAX, std::time::Instant::now(), Fate::Position);
        self.ledger.boundary(position, skipped);
        self.sink_busy = true;
    }

    pub(super) fn nothing_uncommitted(&self) -> bool {
        self.held.is_none() && self.uncommitted.as_ref().is_none_or(Uncommitted::is_empty)
    }
}
