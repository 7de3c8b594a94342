//! How much comes from the server: whether there is a backlog, in which received data is to gather.
//!
//! The server writes each small transaction by itself, and a read gives little however many are waiting. So it is not one
//! read alone that tells.

use std::time::Duration;

use tokio::time::Instant;

/// A read of this size says that more is waiting.
const BACKLOG_READ: usize = 16 << 10;
/// So much within so long says the same: some twenty thousand small transactions a second.
const BACKLOG_PACE: usize = 32 << 10;
const PACE_WINDOW: Duration = Duration::from_millis(4);

/// See the module's text.
#[derive(Debug)]
pub(super) struct Pace {
    last_read: usize,
    filled: bool,
    since: Instant,
    bytes: usize,
    is_high: bool,
}

impl Pace {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            last_read: 0,
            filled: false,
            since: now,
            bytes: 0,
            is_high: false,
        }
    }

    /// `filled`: the read took all that there was room for.
    pub(super) fn read(&mut self, bytes: usize, filled: bool, now: Instant) {
        self.last_read = bytes;
        self.filled = filled;
        self.bytes = self.bytes.saturating_add(bytes);
        let elapsed = now.saturating_duration_since(self.since);
        if elapsed >= PACE_WINDOW {
            // A window that was long for want of data ends below, whatever came in it.
            self.is_high = self.bytes >= BACKLOG_PACE && elapsed < 2 * PACE_WINDOW;
            (self.since, self.bytes) = (now, 0);
        }
    }

    /// Whether it is much and not only for a moment.
    pub(super) fn is_high(&self) -> bool {
        self.is_high
    }

    /// Whether received data is to gather. Not where a read left some for want of room: that has gathered already.
    pub(super) fn gathers(&self) -> bool {
        self.is_busy() && !self.filled
    }

    /// Whether so much comes that room is made for more at once.
    pub(super) fn is_busy(&self) -> bool {
        self.is_high || self.last_read >= BACKLOG_READ
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_is_high_by_one_large_read_or_by_many_small_ones_in_a_row() {
        let begun = Instant::now();
        let after = |micros| begun + Duration::from_micros(micros);
        let mut pace = Pace::new(begun);
        (1..=100).for_each(|read| pace.read(400, false, after(read * 1000)));
        assert!(!pace.is_busy(), "a thousand a second");
        (1..=100).for_each(|read| pace.read(400, false, after(100_000 + read * 40)));
        assert!(pace.is_busy(), "twenty-five a millisecond");
        pace.read(400, false, after(200_000));
        assert!(!pace.is_busy(), "a pause");
        pace.read(BACKLOG_READ, false, after(201_000));
        assert!(pace.is_busy(), "one read that found much");
        assert!(!pace.is_high(), "a single one");
        assert!(pace.gathers());
        pace.read(BACKLOG_READ, true, after(202_000));
        assert!(pace.is_busy() && !pace.gathers(), "more is there already");
    }
}
