//! The count at the end: which messages are missing, which came late, which came again.
//!
//! It counts by what is in the messages, never by offsets: those are given to whatever arrives.

use std::collections::HashMap;

/// Deliveries of messages that are numbered from 1, each under a key whose numbers grow.
#[derive(Debug)]
pub(super) struct Count {
    /// How often each number came; number 1 is at index 0.
    deliveries: Vec<u32>,
    /// The event id that each number came with first.
    ids: Vec<Option<String>>,
    /// The largest number that came, per key.
    latest: HashMap<String, u64>,
    distinct: u64,
    out_of_order: u64,
    changed_ids: u64,
}

/// What the count comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) arrived: u64,
    pub(super) lost: u64,
    /// Messages that came for the first time behind a later one of their key.
    pub(super) out_of_order: u64,
    /// Deliveries beyond each message's first.
    pub(super) doubled: u64,
    /// Repeated deliveries under another event id, which no consumer could tell from new ones.
    pub(super) changed_ids: u64,
}

/// A number that was never written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NeverWritten;

impl Count {
    /// Expects the numbers 1 to `expected`.
    pub(super) fn new(expected: usize) -> Self {
        Self {
            deliveries: vec![0; expected],
            ids: vec![None; expected],
            latest: HashMap::new(),
            distinct: 0,
            out_of_order: 0,
            changed_ids: 0,
        }
    }

    pub(super) fn arrived(&mut self, key: &str, number: u64, event_id: &str) -> Result<(), NeverWritten> {
        let index = number.checked_sub(1).and_then(|index| usize::try_from(index).ok());
        let index = index.ok_or(NeverWritten)?;
        let (deliveries, id) = (self.deliveries.get_mut(index), self.ids.get_mut(index));
        let (deliveries, id) = deliveries.zip(id).ok_or(NeverWritten)?;
        *deliveries += 1;
        if *deliveries > 1 {
            self.changed_ids += u64::from(id.as_deref() != Some(event_id));
            return Ok(());
        }
        *id = Some(event_id.to_owned());
        self.distinct += 1;
        match self.latest.get_mut(key) {
            Some(latest) if *latest > number => self.out_of_order += 1,
            Some(latest) => *latest = number,
            None => {
                self.latest.insert(key.to_owned(), number);
            }
        }
        Ok(())
    }

    /// Messages that came at least once.
    pub(super) fn distinct(&self) -> u64 {
        self.distinct
    }

    pub(super) fn is_complete(&self) -> bool {
        self.distinct == self.deliveries.len() as u64
    }

    pub(super) fn verdict(&self) -> Verdict {
        let arrived = self.deliveries.iter().copied().map(u64::from).sum();
        Verdict {
            arrived,
            lost: self.deliveries.len() as u64 - self.distinct,
            out_of_order: self.out_of_order,
            doubled: arrived - self.distinct,
            changed_ids: self.changed_ids,
        }
    }
}

impl Verdict {
    pub(super) fn is_good(&self) -> bool {
        self.lost == 0 && self.out_of_order == 0 && self.changed_ids == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(expected: usize, deliveries: &[(&str, u64, &str)]) -> Verdict {
        let mut count = Count::new(expected);
        for (key, number, id) in deliveries {
            count.arrived(key, *number, id).expect("a number that was written");
        }
        count.verdict()
    }

    const GOOD: Verdict = Verdict {
        arrived: 4,
        lost: 0,
        out_of_order: 0,
        doubled: 0,
        changed_ids: 0,
    };

    #[test]
    fn keys_may_mix_while_each_keeps_its_order() {
        let found = verdict(4, &[("b", 2, "2"), ("a", 1, "1"), ("b", 4, "4"), ("a", 3, "3")]);
        assert_eq!(found, GOOD);
        assert!(found.is_good());
    }

    #[test]
    fn a_replay_is_doubled_and_not_out_of_order() {
        let found = verdict(
            3,
            &[
                ("a", 1, "1"),
                ("a", 2, "2"),
                ("a", 1, "1"),
                ("a", 2, "2"),
                ("a", 3, "3"),
            ],
        );
        let expected = Verdict {
            arrived: 5,
            doubled: 2,
            ..GOOD
        };
        assert_eq!(found, expected);
        assert!(found.is_good());
    }

    #[test]
    fn a_first_delivery_behind_a_later_one_is_out_of_order() {
        let found = verdict(3, &[("a", 1, "1"), ("a", 3, "3"), ("a", 2, "2")]);
        let expected = Verdict {
            arrived: 3,
            out_of_order: 1,
            ..GOOD
        };
        assert_eq!(found, expected);
        assert!(!found.is_good());
    }

    #[test]
    fn what_never_came_is_lost() {
        let found = verdict(4, &[("a", 1, "1"), ("a", 1, "1"), ("a", 4, "4")]);
        let expected = Verdict {
            arrived: 3,
            lost: 2,
            doubled: 1,
            ..GOOD
        };
        assert_eq!(found, expected);
        assert!(!found.is_good());
    }

    #[test]
    fn a_repetition_under_another_id_is_a_fault() {
        let found = verdict(1, &[("a", 1, "1"), ("a", 1, "other")]);
        assert_eq!(found.changed_ids, 1);
        assert!(!found.is_good());
    }

    #[test]
    fn numbers_outside_are_told() {
        let mut count = Count::new(2);
        assert_eq!(count.arrived("a", 0, "0"), Err(NeverWritten));
        assert_eq!(count.arrived("a", 3, "3"), Err(NeverWritten));
        assert_eq!(count.arrived("a", u64::MAX, "x"), Err(NeverWritten));
        assert!(!count.is_complete());
    }
}
