//! How many events a second, over the last minute.

use std::time::{Duration, Instant};

const SLOT: Duration = Duration::from_secs(5);
/// Whole slots that are looked at, beside the one that is being filled.
const SLOTS: usize = 12;
/// Less than this says nothing about a second.
const LEAST: Duration = Duration::from_secs(1);

/// Counts by slots of time, the oldest of which are forgotten.
#[derive(Debug)]
pub(super) struct Rate {
    begun: Instant,
    slots: [u64; SLOTS + 1],
    /// The number of the slot that is being filled, counted from the begin.
    current: u64,
}

impl Rate {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            begun: now,
            slots: [0; SLOTS + 1],
            current: 0,
        }
    }

    pub(super) fn add(&mut self, now: Instant, count: u64) {
        self.turn(now);
        if let Some(slot) = self.slot(self.current) {
            *slot += count;
        }
    }

    pub(super) fn per_second(&mut self, now: Instant) -> f64 {
        self.turn(now);
        let age = now.saturating_duration_since(self.begun);
        let filled = Duration::from_secs(age.as_secs() % SLOT.as_secs());
        let covered = age.min(SLOT * SLOTS as u32 + filled).max(LEAST);
        self.slots.iter().sum::<u64>() as f64 / covered.as_secs_f64()
    }

    /// Empties the slots that have begun since the last look.
    fn turn(&mut self, now: Instant) {
        let now = now.saturating_duration_since(self.begun).as_secs() / SLOT.as_secs();
        let begun = now.saturating_sub(self.current).min(self.slots.len() as u64);
        for number in 0..begun {
            if let Some(slot) = self.slot(now - number) {
                *slot = 0;
            }
        }
        self.current = self.current.max(now);
    }

    fn slot(&mut self, number: u64) -> Option<&mut u64> {
        let slots = self.slots.len() as u64;
        self.slots.get_mut(usize::try_from(number % slots).ok()?)
    }
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
}
