use super::*;
use crate::position::{EventPosition, Lsn, Partial, PostgresEventPosition, PostgresPosition};

/// Behind so many transactions.
fn position(done: u64) -> Position {
    Position::Postgres(PostgresPosition {
        system_identifier: 1,
        timeline: 1,
        base: Lsn(done * 10),
        partial: None,
        last_event_end: Lsn::ZERO,
    })
}

/// The event of a transaction, counted from 1.
fn at(transaction: u64) -> EventPosition {
    let base = Lsn((transaction - 1) * 10);
    EventPosition::Postgres(PostgresEventPosition {
        base,
        partial: Some(Partial {
            commit: Lsn(base.0 + 9),
            change: Lsn(base.0 + 5),
            index: 0,
        }),
        last_event_end: base,
        xid: Some(1),
    })
}

fn numbers(sequences: &Sequences, from: Option<&Position>) -> SharedNumbers {
    sequences.begin(from);
    sequences.numbers("k1", "validate", 10)
}

fn look_at(numbers: &SharedNumbers, transactions: std::ops::RangeInclusive<u64>) -> usize {
    let mut numbers = lock(numbers);
    let looked_at = transactions.map(|number| {
        let number_of_event = number as i64;
        numbers.look_at("a", number_of_event, &at(number), |_| Consequence::Passes)
    });
    looked_at.filter(Result::is_err).count()
}

#[test]
fn what_comes_again_behind_either_checkpoint_is_not_judged_again() {
    let folder = tempfile::tempdir().unwrap();
    let first = Sequences::new(folder.path(), "orders");
    let kept = numbers(&first, None);
    assert_eq!(look_at(&kept, 1..=3), 0);
    first.write(&position(2));
    first.saved(&position(2));
    assert_eq!(look_at(&kept, 4..=6), 0);
    // Killed before this one is saved, or behind it.
    first.write(&position(5));
    for done in [2, 5] {
        let next = Sequences::new(folder.path(), "orders");
        let kept = numbers(&next, Some(&position(done)));
        assert_eq!(look_at(&kept, done + 1..=7), 0, "behind {done}");
        assert_eq!(look_at(&kept, 7..=7), 1, "a repeat, behind {done}");
    }
}

#[test]
fn where_all_that_is_known_is_done_nothing_comes_again() {
    let folder = tempfile::tempdir().unwrap();
    let first = Sequences::new(folder.path(), "orders");
    assert_eq!(look_at(&numbers(&first, None), 1..=3), 0);
    first.write(&position(3));
    let next = Sequences::new(folder.path(), "orders");
    let kept = numbers(&next, Some(&position(3)));
    let repeat = lock(&kept).look_at("a", 3, &at(4), |_| Consequence::Passes);
    assert!(repeat.is_err());
}

#[test]
fn numbers_of_another_place_in_the_log_or_another_sink_are_not_taken() {
    let folder = tempfile::tempdir().unwrap();
    let first = Sequences::new(folder.path(), "orders");
    assert_eq!(look_at(&numbers(&first, None), 1..=3), 0);
    first.write(&position(3));
    first.saved(&position(3));
    let next = Sequences::new(folder.path(), "orders");
    next.begin(Some(&position(3)));
    assert_eq!(look_at(&next.numbers("k2", "validate", 10), 9..=9), 0);
    assert_eq!(look_at(&next.numbers("k1", "other", 10), 9..=9), 0);
    assert_eq!(look_at(&numbers(&next, Some(&position(8))), 9..=9), 0, "learned anew");
    // And not in the file any more.
    assert_eq!(look_at(&numbers(&next, Some(&position(3))), 9..=9), 0);
}

#[test]
fn a_file_that_cannot_be_used_holds_nothing_back() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("orders.sequences.sqlite")).unwrap();
    let sequences = Sequences::new(folder.path(), "orders");
    let kept = numbers(&sequences, None);
    assert_eq!(look_at(&kept, 1..=3), 0);
    sequences.write(&position(3));
    assert_eq!(look_at(&kept, 3..=3), 1, "it still knows them itself");
}
