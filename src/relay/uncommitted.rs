//! What a sink that commits has taken since its last commit, and when the next one is due.

use std::time::Duration;

use tokio::time::Instant;

use crate::position::Position;
use crate::skip::SkipCounts;

/// Commits that hold nothing but a position are at least this far apart.
const IDLE_INTERVAL: Duration = Duration::from_secs(1);

/// See the module's text.
#[derive(Debug)]
pub(super) struct Uncommitted {
    interval: Duration,
    /// When the first record was taken that is not committed.
    since: Option<Instant>,
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
            reached: None,
            idle_at: Instant::now(),
        }
    }

    /// A record was taken.
    pub(super) fn taken(&mut self) {
        if self.since.is_none() {
            self.since = Some(Instant::now());
        }
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
