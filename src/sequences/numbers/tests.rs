use proptest::prelude::*;

use super::*;
use crate::position::{Lsn, Partial, PostgresEventPosition};

fn at(place: u64) -> EventPosition {
    EventPosition::Postgres(PostgresEventPosition {
        base: Lsn(place),
        partial: Some(Partial {
            commit: Lsn(place + 1),
            change: Lsn(place),
            index: 0,
        }),
        last_event_end: Lsn::ZERO,
        xid: None,
    })
}

fn look_at(numbers: &mut Numbers, aggregate: &str, number: i64, place: u64) -> Result<(), OutOfSequence> {
    numbers.look_at(aggregate, number, &at(place), |_| Consequence::Passes)
}

/// The faults of numbers of one aggregate, in their order; None: in order.
fn faults(numbers: &[i64]) -> Vec<Option<SequenceFault>> {
    let mut all = Numbers::new(10);
    let looked_at = numbers
        .iter()
        .zip(0..)
        .map(|(number, place)| look_at(&mut all, "a", *number, place));
    looked_at.map(|found| found.err().map(|found| found.fault)).collect()
}

/// What a restart begins with.
fn written(numbers: &mut Numbers, kept: &mut HashMap<String, i64>) {
    for (aggregate, number) in numbers.take_changes(|_| false).numbers {
        match number {
            Some(number) => kept.insert(aggregate, number),
            None => kept.remove(&aggregate),
        };
    }
}

#[test]
fn each_number_is_held_against_the_highest() {
    use SequenceFault::{Backwards, Gap, Repeat};
    assert_eq!(faults(&[7, 8, 9]), [None; 3]);
    assert_eq!(
        faults(&[1, 1, 2, 4, 3, 5]),
        [None, Some(Repeat), None, Some(Gap), Some(Backwards), None]
    );
    assert_eq!(faults(&[i64::MAX, i64::MIN]), [None, Some(Backwards)]);
    assert_eq!(faults(&[i64::MIN, i64::MAX]), [None, Some(Gap)]);
}

#[test]
fn an_aggregate_that_was_forgotten_is_taken_at_any_number() {
    let mut numbers = Numbers::new(2);
    let mut kept = HashMap::new();
    for (aggregate, number) in [("a", 1), ("b", 1), ("a", 2), ("c", 1), ("b", 9)] {
        assert_eq!(look_at(&mut numbers, aggregate, number, 0), Ok(()), "{aggregate}");
        written(&mut numbers, &mut kept);
    }
    assert_eq!(kept, [("b".to_owned(), 9), ("c".to_owned(), 1)].into());
}

#[test]
fn changes_that_could_not_be_written_are_written_later() {
    let mut numbers = Numbers::new(2);
    let _ = look_at(&mut numbers, "a", 1, 1);
    let changes = numbers.take_changes(|_| false);
    let _ = look_at(&mut numbers, "a", 2, 2);
    let _ = look_at(&mut numbers, "b", 1, 3);
    numbers.put_back(changes);
    let changes = numbers.take_changes(|_| false).numbers;
    assert_eq!(changes, [("a".to_owned(), Some(2)), ("b".to_owned(), Some(1))].into());
}

#[test]
fn what_the_log_no_longer_has_does_not_silence_the_rule() {
    // The last event was lost with a server; the next one of an aggregate says that it goes on.
    let kept = [("a".to_owned(), 3), ("b".to_owned(), 5)];
    let mut numbers = Numbers::of(10, kept, Some("gone".to_owned()), []);
    assert_eq!(look_at(&mut numbers, "b", 5, 1), Ok(()));
    assert_eq!(look_at(&mut numbers, "a", 4, 2), Ok(()));
    assert!(look_at(&mut numbers, "b", 5, 3).is_err());
}

#[test]
fn a_halt_is_one_whenever_it_comes_again() {
    let mut numbers = Numbers::new(10);
    let halts = |numbers: &mut Numbers, number, place| {
        numbers
            .look_at("a", number, &at(place), |_| Consequence::Halts)
            .is_err()
    };
    assert!(!halts(&mut numbers, 1, 1));
    assert!(halts(&mut numbers, 3, 2));
    let changes = numbers.take_changes(|_| false);
    assert_eq!(changes.through, Some(at(1)));
    let mut next = Numbers::of(10, [("a".to_owned(), 1)], None, []);
    assert!(halts(&mut next, 3, 2));
    assert!(!halts(&mut next, 2, 2), "the application has mended it");
}

proptest! {
    /// Whatever the events, whenever the process ends, and whatever part of them comes again: each time that an event comes, it is
    /// told what one life without an end tells it.
    #[test]
    fn a_restart_tells_each_event_what_no_restart_tells_it(
        events in prop::collection::vec((0_u8..4, 0_i64..6), 1..60),
        ends in prop::collection::vec((1_usize..12, 0_usize..12), 0..8),
    ) {
        let judge = |numbers: &mut Numbers, index: usize| {
            let (aggregate, number) = events[index];
            numbers.look_at(&aggregate.to_string(), number, &at(index as u64), |_| Consequence::Refused)
        };
        let mut whole = Numbers::new(100);
        let expected: Vec<_> = (0..events.len()).map(|index| judge(&mut whole, index)).collect();

        let (mut kept, mut refused) = (HashMap::new(), Vec::new());
        let (mut begin, mut last) = (0, None);
        for (length, back) in ends.into_iter().chain([(usize::MAX, 0)]) {
            let numbers = kept.iter().map(|(name, number): (&String, &i64)| (name.clone(), *number));
            let comes_again = last.filter(|last: &usize| begin <= *last);
            let up_to = comes_again.map(|last| at(last as u64).to_string());
            let mut numbers = Numbers::of(100, numbers, up_to, refused);
            let end = begin.saturating_add(length).min(events.len());
            for (index, expected) in expected.iter().enumerate().take(end).skip(begin) {
                prop_assert_eq!(judge(&mut numbers, index), *expected, "event {}", index);
            }
            // Written as they are; the checkpoint is some events behind.
            let saved = begin.max(end.saturating_sub(back));
            let is_done = |event: &EventPosition| (0..saved).any(|index| at(index as u64) == *event);
            let changes = numbers.take_changes(is_done);
            refused = changes.refused;
            kept.extend(changes.numbers.into_iter().map(|(name, number)| (name, number.expect("room for all"))));
            last = last.max(end.checked_sub(1));
            begin = saved;
        }
    }
}
