//! How many events there were of late: over the last minute, or over another time.

use std::time::{Duration, Instant};

const MINUTE: Duration = Duration::from_secs(60);
/// Whole slots that are looked at, beside the one that is being filled.
const SLOTS: u32 = 12;
/// Less than this says nothing about a second.
const LEAST: Duration = Duration::from_secs(1);

/// Counts by slots of time, the oldest of which are forgotten.
#[derive(Debug)]
pub(super) struct Rate {
    begun: Instant,
    /// How long a slot is filled.
    slot: Duration,
    slots: [u64; SLOTS as usize + 1],
    /// The number of the slot that is being filled, counted from the begin.
    current: u64,
}

impl Rate {
    /// Over the last minute.
    pub(super) fn new(now: Instant) -> Self {
        Self::over(MINUTE, now)
    }

    pub(super) fn over(time: Duration, now: Instant) -> Self {
        Self {
            begun: now,
            slot: (time / SLOTS).max(Duration::from_millis(1)),
            slots: [0; SLOTS as usize + 1],
            current: 0,
        }
    }

    pub(super) fn add(&mut self, now: Instant, count: u64) {
        self.turn(now);
        if let Some(slot) = self.slot(self.current) {
            *slot += count;
        }
    }

    pub(super) fn per_second(&self, now: Instant) -> f64 {
        let age = now.saturating_duration_since(self.begun);
        let filled = age.as_nanos() % self.slot.as_nanos();
        let filled = Duration::from_nanos(u64::try_from(filled).unwrap_or(0));
        let covered = age.min(self.slot * SLOTS + filled).max(LEAST);
        self.of_late(now) as f64 / covered.as_secs_f64()
    }

    /// Of the whole time, and of the slot that is being filled.
    pub(super) fn of_late(&self, now: Instant) -> u64 {
        let first = self.number(now).max(self.current).saturating_sub(u64::from(SLOTS));
        (first..=self.current)
            .filter_map(|number| self.slots.get(index(number)))
            .sum()
    }

    /// Empties the slots that have begun since the last look.
    fn turn(&mut self, now: Instant) {
        let now = self.number(now);
        let begun = now.saturating_sub(self.current).min(self.slots.len() as u64);
        for number in 0..begun {
            if let Some(slot) = self.slot(now - number) {
                *slot = 0;
            }
        }
        self.current = self.current.max(now);
    }

    /// The number of the slot that this time is in.
    fn number(&self, now: Instant) -> u64 {
        let age = now.saturating_duration_since(self.begun);
        u64::try_from(age.as_nanos() / self.slot.as_nanos()).unwrap_or(u64::MAX)
    }

    fn slot(&mut self, number: u64) -> Option<&mut u64> {
        self.slots.get_mut(index(number))
    }
}

/// Where the slot of a number is.
fn index(number: u64) -> usize {
    (number % (u64::from(SLOTS) + 1)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_of_the_last_minute_alone() {
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        let mut rate = Rate::new(begun);
        assert_eq!(rate.per_second(at(0)), 0.0);
        rate.add(at(0), 100);
        assert_eq!(rate.per_second(at(0)), 100.0, "a moment counts as a second");
        assert_eq!(rate.per_second(at(10)), 10.0);
        rate.add(at(10), 20);
        assert_eq!(rate.per_second(at(60)), 2.0);
        assert_eq!(rate.per_second(at(65)), 20.0 / 60.0, "the first slot is forgotten");
        assert_eq!(rate.per_second(at(200)), 0.0);
        rate.add(at(1000), 60);
        assert_eq!(rate.per_second(at(1000)), 1.0);
        // A clock that is read twice may give the earlier time last.
        rate.add(at(990), 60);
        assert_eq!(rate.per_second(at(1000)), 2.0);
    }

    #[test]
    fn what_is_counted_over_a_time_is_forgotten_after_it_and_a_slot_more() {
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        let mut rate = Rate::over(Duration::from_secs(120), begun);
        rate.add(at(19), 3);
        rate.add(at(20), 2);
        for (seconds, count) in [(20, 5), (139, 5), (140, 2), (150, 0), (100_000, 0)] {
            assert_eq!(rate.of_late(at(seconds)), count, "after {seconds} s");
        }
    }
}
