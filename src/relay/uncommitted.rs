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
/// What is late may become later by this part of it, at most until [`BACKLOG_INTERVAL`]: nothing is sent from the end of a
/// transaction until the brokers have written it down, which in a backlog is a good part of [`Uncommitted::interval`].
const AGE_PART: u32 = 10;
const BACKLOG_INTERVAL: Duration = Duration::from_secs(1);

/// See the module's text.
#[derive(Debug)]
pub(super) struct Uncommitted {
    interval: Duration,
    /// The longest that records may wait, however old.
    longest: Duration,
    /// When a commit is due for the first record that was taken and is not committed.
    due: Option<Instant>,
    /// When the last one was taken.
    last: Instant,
    /// When the database committed the last one's event, in microseconds since 1970.
    last_commit_us: i64,
    /// The end of the last batch that was handled, and what was skipped before it.
    reached: Option<(Position, SkipCounts)>,
    idle_at: Instant,
}

impl Uncommitted {
    /// `interval` is how long young records may be gathered under load, and `limit` how long any may wait.
    pub(super) fn new(interval: Duration, limit: Duration) -> Self {
        Self {
            interval,
            longest: BACKLOG_INTERVAL.min(limit).max(interval),
            due: None,
            last: Instant::now(),
            last_commit_us: 0,
            reached: None,
            idle_at: Instant::now(),
        }
    }

    /// A record was taken, of an event that the database committed then, in microseconds since 1970.
    pub(super) fn taken(&mut self, commit_time_us: i64) {
        self.last = Instant::now();
        self.last_commit_us = commit_time_us;
        if self.due.is_none() {
            let wait = (self.age() / AGE_PART).clamp(self.interval, self.longest);
            self.due = Some(self.last + wait);
        }
    }

    /// How old the last event is.
    fn age(&self) -> Duration {
        let age = unix_us().saturating_sub(self.last_commit_us);
        Duration::from_micros(u64::try_from(age).unwrap_or(0))
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
        self.due.is_some()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.due.is_none() && self.reached.is_none()
    }

    /// When it may be taken that no more comes, while nothing waits: at once where events are as young as a commit under load
    /// would leave them. Where they are older there is a backlog, of which the source has only not given the next part yet;
    /// a commit in each of its pauses would cost more than it is worth.
    pub(super) fn quiet_at(&self) -> Instant {
        match self.age() > self.interval {
            true => self.last + LULL,
            false => self.last,
        }
    }

    /// When a commit is due though more may come.
    pub(super) fn due_at(&self) -> Option<Instant> {
        match (self.due, &self.reached) {
            (Some(due), _) => Some(due),
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
        self.due = None;
        self.idle_at = Instant::now() + IDLE_INTERVAL;
        Some((position, skipped))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// How long a transaction lasts whose first event is as old as this.
    fn lasts(interval: Duration, limit: Duration, age: Duration) -> Duration {
        let mut uncommitted = Uncommitted::new(interval, limit);
        let age_us = i64::try_from(age.as_micros()).unwrap();
        uncommitted.taken(unix_us() - age_us);
        uncommitted.due_at().unwrap() - Instant::now()
    }

    #[tokio::test(start_paused = true)]
    async fn a_transaction_of_young_events_lasts_for_the_interval_and_of_late_ones_for_a_tenth_of_what_they_are_late() {
        let wide = 30_000 * MS;
        for (age_ms, expected_ms) in [
            (0, 100..=100),
            (300, 100..=100),
            // The clock goes on meanwhile.
            (5000, 500..=999),
            (60_000, 1000..=1000),
        ] {
            let lasts = lasts(100 * MS, wide, age_ms * MS).as_millis();
            assert!(expected_ms.contains(&lasts), "{lasts} ms at an age of {age_ms} ms");
        }
        assert_eq!(
            lasts(2000 * MS, wide, 60_000 * MS),
            2000 * MS,
            "never less than the interval"
        );
        assert_eq!(
            lasts(100 * MS, 500 * MS, 60_000 * MS),
            500 * MS,
            "nor more than the sink lets them wait"
        );
        let mut ahead = Uncommitted::new(100 * MS, wide);
        ahead.taken(i64::MAX);
        assert_eq!(
            ahead.due_at(),
            Some(Instant::now() + 100 * MS),
            "the database's clock can be ahead"
        );
    }
}
