//! What a sink that commits has taken since its last commit, and when the next one is due.

use std::time::Duration;

use tokio::time::Instant;

use crate::position::Position;
use crate::relay::in_flight::unix_us;
use crate::skip::SkipCounts;

/// Commits that hold nothing but a position are at least this far apart.
const IDLE_INTERVAL: Duration = Duration::from_secs(1);
/// How long nothing more may come, while events are behind, before it is taken that there is nothing more. Longer than a source
/// lets a batch gather in a backlog.
const LULL: Duration = Duration::from_millis(10);

/// See the module's text.
#[derive(Debug)]
pub(super) struct Uncommitted {
    interval: Duration,
    /// When the first record was taken that is not committed, and when the last.
    since: Option<Instant>,
    last: Instant,
    /// When the database committed the last one's event, in microseconds since 1970.
    last_commit_us: i64,
    /// The end of the last batch that was handled, and what was skipped before it.
    reached: Option<(Position, SkipCounts)>,
    idle_at: Instant,
}

impl Uncommitted {
    /// `interval` is how long records may be gathered under load.
    pub(super) fn new(interval: Duration) -> Self {
        Self {
            interval,
            since: None,
            last: Instant::now(),
            last_commit_us: 0,
            reached: None,
            idle_at: Instant::now(),
        }
    }

    /// A record was taken, of an event that the database committed then, in microseconds since 1970.
    pub(super) fn taken(&mut self, commit_time_us: i64) {
        self.last = Instant::now();
        self.since.get_or_insert(self.last);
        self.last_commit_us = commit_time_us;
    }

    /// A place was reached where resuming is sound.
    pub(super) fn boundary(&mut self, position: Position, skipped: SkipCounts) {
        let mut skips = match self.reached.take() {
            Some((_, skips)) => skips,
            None => SkipCounts::default(),
        };
        skips.merge(skipped);
        self.reached = Some((position, skips));
    }

    pub(super) fn has_records(&self) -> bool {
        self.since.is_some()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.since.is_none() && self.reached.is_none()
    }

    /// When it may be taken that no more comes, while nothing waits: at once where events are as young as a commit under load
    /// would leave them. Where they are older there is a backlog, of which the source has only not given the next part yet;
    /// a commit in each of its pauses would cost more than it is worth.
    pub(super) fn quiet_at(&self) -> Instant {
        let age = unix_us().saturating_sub(self.last_commit_us);
        match u128::try_from(age).is_ok_and(|age| age > self.interval.as_micros()) {
            true => self.last + LULL,
            false => self.last,
        }
    }

    /// When a commit is due though more may come.
    pub(super) fn due_at(&self) -> Option<Instant> {
        match (self.since, &self.reached) {
            (Some(since), _) => Some(since + self.interval),
            (None, Some(_)) => Some(self.idle_at),
            (None, None) => None,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.due_at().is_some_and(|due| due <= Instant::now())
    }

    /// Takes what is to be committed: up to the place inside the batch at hand if there is one, else to the last boundary.
    pub(super) fn take(&mut self, inside: Option<(Position, SkipCounts)>) -> Option<(Position, SkipCounts)> {
        if let Some((position, skipped)) = inside {
            self.boundary(position, skipped);
        }
        let (position, skipped) = self.reached.take()?;
        self.since = None;
        self.idle_at = Instant::now() + IDLE_INTERVAL;
        Some((position, skipped))
    }
}
