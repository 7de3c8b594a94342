//! Resuming, against a model of the server: wherever a stream is cut, what comes after the cut comes exactly once.

use bytes::{BufMut, BytesMut};
use proptest::prelude::*;

use super::*;
use crate::config::{NamePattern, OnUpdate, PrefixPattern};

const SENT_US: i64 = 77;
const RELATION: u32 = 4711;
const OUTBOX_RELATION: u32 = 4712;

/// What the server has in its log, as far as it sends it.
#[derive(Debug, Clone)]
enum Unit {
    Transaction {
        commit: Lsn,
        end: Lsn,
        changes: Vec<(Lsn, Kind)>,
    },
    Message {
        lsn: Lsn,
        foreign: bool,
    },
    KeepAlive {
        end: Lsn,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Message,
    ForeignMessage,
    Row,
    OutboxRow,
    OutboxUpdate,
    OutboxDelete,
    TruncateBoth,
}

fn selector() -> Selector {
    Selector::of(
        vec![PrefixPattern::parse("outbox").unwrap()],
        vec![NamePattern::parse("s.outbox").unwrap()],
        vec![NamePattern::parse("s.t").unwrap()],
    )
    .on_update(OnUpdate::Halt)
}

fn start() -> PostgresPosition {
    PostgresPosition {
        system_identifier: 7,
        timeline: 1,
        base: Lsn(1),
        partial: None,
        last_event_end: Lsn::ZERO,
    }
}

fn text(out: &mut BytesMut, text: &str) {
    out.put_slice(text.as_bytes());
    out.put_u8(0);
}

fn payload(build: impl FnOnce(&mut BytesMut)) -> Bytes {
    let mut out = BytesMut::new();
    build(&mut out);
    out.freeze()
}

fn message(lsn: Lsn, transactional: bool, prefix: &str) -> Bytes {
    payload(|out| {
        out.put_slice(&[b'M', u8::from(transactional)]);
        out.put_u64(lsn.0);
        text(out, prefix);
        out.put_u32(2);
        out.put_slice(b"{}");
    })
}

fn relation(id: u32, name: &str) -> Bytes {
    payload(|out| {
        out.put_u8(b'R');
        out.put_u32(id);
        text(out, "s");
        text(out, name);
        out.put_slice(&[b'd', 0, 1, 1]);
        text(out, "id");
        out.put_u32(23);
        out.put_i32(-1);
    })
}

fn tuple(out: &mut BytesMut) {
    out.put_slice(&[0, 1, b't', 0, 0, 0, 1, b'5']);
}

fn change(kind: Kind, lsn: Lsn) -> Bytes {
    match kind {
        Kind::Message => message(lsn, true, "outbox"),
        Kind::ForeignMessage => message(lsn, true, "elsewhere"),
        Kind::Row | Kind::OutboxRow => payload(|out| {
            out.put_u8(b'I');
            out.put_u32(if kind == Kind::Row { RELATION } else { OUTBOX_RELATION });
            out.put_u8(b'N');
            tuple(out);
        }),
        Kind::OutboxUpdate => payload(|out| {
            out.put_u8(b'U');
            out.put_u32(OUTBOX_RELATION);
            out.put_u8(b'N');
            tuple(out);
        }),
        Kind::OutboxDelete => payload(|out| {
            out.put_u8(b'D');
            out.put_u32(OUTBOX_RELATION);
            out.put_u8(b'K');
            tuple(out);
        }),
        Kind::TruncateBoth => payload(|out| {
            out.put_u8(b'T');
            out.put_u32(2);
            out.put_u8(0);
            out.put_u32(RELATION);
            out.put_u32(OUTBOX_RELATION);
        }),
    }
}

/// Feeds what the server sends after START_REPLICATION at the assembler's base: transactions whose commit record starts
/// before it are passed over, messages that end at or before it too. `stop_after` cuts it behind so many payloads.
fn feed(assembler: &mut Assembler, units: &[Unit], stop_after: usize, mut each: impl FnMut(&mut Assembler)) {
    let asked = assembler.base();
    let mut sent = 0;
    let mut apply = |assembler: &mut Assembler, start: Lsn, payload: &Bytes| {
        sent += 1;
        if sent <= stop_after {
            assembler.apply(start, SENT_US, payload).unwrap();
            each(assembler);
        }
        sent < stop_after
    };
    apply(assembler, Lsn::ZERO, &relation(RELATION, "t"));
    apply(assembler, Lsn::ZERO, &relation(OUTBOX_RELATION, "outbox"));
    for unit in units {
        match unit {
            Unit::Transaction { commit, .. } if *commit < asked => {}
            Unit::Transaction { commit, end, changes } => {
                let begin = payload(|out| {
                    out.put_u8(b'B');
                    out.put_u64(commit.0);
                    out.put_i64(5);
                    out.put_u32(9);
                });
                if !apply(assembler, changes.first().map_or(*commit, |(lsn, _)| *lsn), &begin) {
                    return;
                }
                for (lsn, kind) in changes {
                    if !apply(assembler, *lsn, &change(*kind, *lsn)) {
                        return;
                    }
                }
                let committed = payload(|out| {
                    out.put_slice(&[b'C', 0]);
                    out.put_u64(commit.0);
                    out.put_u64(end.0);
                    out.put_i64(5);
                });
                if !apply(assembler, *end, &committed) {
                    return;
                }
            }
            Unit::Message { lsn, .. } if *lsn < asked => {}
            Unit::Message { lsn, foreign } => {
                let prefix = if *foreign { "elsewhere" } else { "outbox" };
                if !apply(assembler, *lsn, &message(*lsn, false, prefix)) {
                    return;
                }
            }
            Unit::KeepAlive { end } => assembler.keep_alive(*end),
        }
    }
}

fn drain(assembler: &mut Assembler, into: &mut Vec<ChangeEvent>) -> Option<Position> {
    let batch = assembler.take_batch()?;
    into.extend(batch.events);
    Some(batch.end)
}

fn ids(events: &[ChangeEvent]) -> Vec<String> {
    events.iter().map(|event| event.position.to_string()).collect()
}

/// Units in the log's order. A transaction's changes lie anywhere before its commit, across the units before it; changes
/// of one transaction share LSNs now and then, as a COPY's do.
fn logs() -> impl Strategy<Value = Vec<Unit>> {
    let kinds = prop::sample::select(vec![
        Kind::Message,
        Kind::ForeignMessage,
        Kind::Row,
        Kind::OutboxRow,
        Kind::OutboxUpdate,
        Kind::OutboxDelete,
        Kind::TruncateBoth,
    ]);
    let transaction = prop::collection::vec((0_u64..3, kinds), 1..6).prop_map(Some);
    let unit = prop_oneof![3 => (transaction, 0_u8..3, any::<bool>()), 1 => (Just(None), 0_u8..3, any::<bool>())];
    prop::collection::vec((unit, 0_u64..40), 1..8).prop_map(|shapes| {
        let mut log = 100_u64;
        let mut units = Vec::new();
        for ((changes, other, foreign), reach_back) in shapes {
            match (changes, other) {
                (Some(changes), _) => {
                    // The first change may lie before the ends of the units before it.
                    let mut lsn = log.saturating_sub(reach_back).max(2);
                    let mut placed = Vec::new();
                    for (step, kind) in changes {
                        lsn += step * 3;
                        placed.push((Lsn(lsn), kind));
                    }
                    // Ties are a message and then a row, or rows: keep the messages of one LSN in front.
                    placed.sort_by_key(|(lsn, kind)| (*lsn, !matches!(kind, Kind::Message | Kind::ForeignMessage)));
                    let commit = lsn.max(log) + foreign as u64;
                    log = commit + 8;
                    units.push(Unit::Transaction {
                        commit: Lsn(commit),
                        end: Lsn(log),
                        changes: placed,
                    });
                }
                (None, 0) => {
                    log += 4;
                    units.push(Unit::KeepAlive { end: Lsn(log) });
                }
                (None, _) => {
                    log += 4;
                    units.push(Unit::Message { lsn: Lsn(log), foreign });
                }
            }
        }
        units
    })
}

proptest! {
    /// Whatever position was taken, behind an event or at a batch's end, the rest comes exactly once from there.
    #[test]
    fn resuming_anywhere_gives_exactly_the_rest(units in logs()) {
        let mut all = Vec::new();
        let mut whole = Assembler::new("d", selector(), start());
        feed(&mut whole, &units, usize::MAX, |_| {});
        let end = drain(&mut whole, &mut all).unwrap();
        let mut places: Vec<(usize, Position)> =
            all.iter().enumerate().map(|(index, event)| (index + 1, end.after(&event.position))).collect();
        places.push((all.len(), end));
        for (done, place) in places {
            let Position::Postgres(place) = place else { panic!("a place in the WAL") };
            let mut resumed = Assembler::new("d", selector(), place);
            feed(&mut resumed, &units, usize::MAX, |_| {});
            let mut rest = Vec::new();
            drain(&mut resumed, &mut rest);
            prop_assert_eq!(ids(&rest), ids(&all[done..]));
        }
    }

    /// A connection that is lost again and again, at any payload, and with a batch handed over after any payload: in the
    /// end everything came once, in order.
    #[test]
    fn connections_lost_at_any_payload_lose_and_double_nothing(
        units in logs(),
        cuts in prop::collection::vec(1_usize..20, 0..8),
        batch_every in 1_usize..5,
    ) {
        let mut all = Vec::new();
        let mut whole = Assembler::new("d", selector(), start());
        feed(&mut whole, &units, usize::MAX, |_| {});
        drain(&mut whole, &mut all);
        let mut received = Vec::new();
        let mut position = start();
        for cut in cuts.into_iter().chain([usize::MAX]) {
            let mut assembler = Assembler::new("d", selector(), position.clone());
            let mut payloads = 0;
            feed(&mut assembler, &units, cut, |assembler| {
                payloads += 1;
                if payloads % batch_every == 0
                    && let Some(Position::Postgres(end)) = drain(assembler, &mut received)
                {
                    position = end;
                }
            });
            if cut == usize::MAX {
                drain(&mut assembler, &mut received);
            }
        }
        prop_assert_eq!(ids(&received), ids(&all));
    }

    /// Bases never go back, and an id is given once.
    #[test]
    fn bases_grow_and_ids_are_distinct(units in logs()) {
        let mut all = Vec::new();
        let mut assembler = Assembler::new("d", selector(), start());
        let mut base = Lsn::ZERO;
        feed(&mut assembler, &units, usize::MAX, |assembler| {
            assert!(assembler.base() >= base);
            base = assembler.base();
        });
        drain(&mut assembler, &mut all);
        let mut distinct = ids(&all);
        distinct.sort();
        distinct.dedup();
        prop_assert_eq!(distinct.len(), all.len());
    }
}

#[test]
fn a_keep_alive_inside_a_transaction_is_no_boundary() {
    let mut assembler = Assembler::new("d", selector(), start());
    let units = [Unit::Transaction {
        commit: Lsn(50),
        end: Lsn(58),
        changes: vec![(Lsn(10), Kind::Message)],
    }];
    feed(&mut assembler, &units, 4, |_| {});
    assembler.keep_alive(Lsn(50));
    assert_eq!(assembler.base(), Lsn(1));
    assert_eq!(
        assembler.position().partial.map(|partial| partial.change),
        Some(Lsn(10))
    );
}

#[test]
fn a_changed_selection_does_not_shift_the_count() {
    let units = [Unit::Transaction {
        commit: Lsn(50),
        end: Lsn(58),
        changes: vec![
            (Lsn(10), Kind::Row),
            (Lsn(10), Kind::OutboxRow),
            (Lsn(10), Kind::OutboxRow),
        ],
    }];
    let mut all = Vec::new();
    let mut assembler = Assembler::new("d", selector(), start());
    feed(&mut assembler, &units, usize::MAX, |_| {});
    let end = drain(&mut assembler, &mut all).unwrap();
    let Position::Postgres(after_second) = end.after(&all[1].position) else {
        panic!("a place in the WAL")
    };
    let fewer = Selector::of(vec![], vec![NamePattern::parse("s.outbox").unwrap()], vec![]);
    let mut resumed = Assembler::new("d", fewer, after_second);
    feed(&mut resumed, &units, usize::MAX, |_| {});
    let mut rest = Vec::new();
    drain(&mut resumed, &mut rest);
    assert_eq!(ids(&rest), ids(&all[2..]));
}

#[test]
fn what_is_none_of_ours_is_counted_by_its_reason() {
    let kinds = [
        Kind::ForeignMessage,
        Kind::OutboxUpdate,
        Kind::OutboxDelete,
        Kind::TruncateBoth,
        Kind::Row,
    ];
    let changes = kinds
        .iter()
        .zip(1..)
        .map(|(kind, lsn)| (Lsn(lsn * 10), *kind))
        .collect();
    let units = [Unit::Transaction {
        commit: Lsn(60),
        end: Lsn(68),
        changes,
    }];
    let mut assembler = Assembler::new(
        "d",
        Selector::of(vec![], vec![NamePattern::parse("s.outbox").unwrap()], vec![]),
        start(),
    );
    feed(&mut assembler, &units, usize::MAX, |_| {});
    let batch = assembler.take_batch().unwrap();
    assert!(batch.events.is_empty());
    let expected = [
        (SkipReason::ForeignPrefix, 1),
        (SkipReason::UnlistedTable, 2),
        (SkipReason::OutboxUpdate, 1),
        (SkipReason::OutboxDelete, 1),
        (SkipReason::OutboxTruncate, 1),
    ];
    assert_eq!(batch.skipped, SkipCounts::from(expected));
}

#[test]
fn an_update_of_an_outbox_can_be_told_of_without_its_rows() {
    let units = [Unit::Transaction {
        commit: Lsn(50),
        end: Lsn(58),
        changes: vec![(Lsn(10), Kind::OutboxUpdate), (Lsn(20), Kind::OutboxDelete)],
    }];
    let mut assembler = Assembler::new("d", selector(), start());
    feed(&mut assembler, &units, usize::MAX, |_| {});
    let batch = assembler.take_batch().unwrap();
    assert_eq!(batch.skipped, SkipCounts::from([(SkipReason::OutboxDelete, 1)]));
    let [event] = &batch.events[..] else {
        panic!("one event")
    };
    let Change::Row(row) = &event.change else {
        panic!("a row")
    };
    assert_eq!((row.operation, row.table.name.as_str()), (Operation::Update, "outbox"));
    assert!(row.before.is_none() && row.after.is_none());
    assert_eq!(event.selection, Selection::Outbox);
}

#[test]
fn a_few_events_do_not_pin_what_was_read_with_them() {
    let mut assembler = Assembler::new("d", selector(), start());
    let large = payload(|out| {
        out.put_slice(b"M\0");
        out.put_u64(90);
        text(out, "elsewhere");
        out.put_u32(10_000);
        out.put_slice(&[0; 10_000]);
    });
    assembler.apply(Lsn(90), SENT_US, &large).unwrap();
    let ours = message(Lsn(91), false, "outbox");
    assembler.apply(Lsn(91), SENT_US, &ours).unwrap();
    let batch = assembler.take_batch().unwrap();
    let Change::Message(kept) = &batch.events[0].change else {
        panic!("a message")
    };
    assert!(
        !ours.as_ptr_range().contains(&kept.content.as_ptr()),
        "the content is a slice of what was read"
    );
}

#[test]
fn changes_outside_a_transaction_are_errors() {
    let mut assembler = Assembler::new("d", selector(), start());
    let error = assembler
        .apply(Lsn(9), SENT_US, &message(Lsn(9), true, "outbox"))
        .unwrap_err();
    assert!(error.to_string().contains("transactional message"), "{error}");
}

/// Of a transaction that commits at 50.
fn begin() -> Bytes {
    payload(|out| {
        out.put_u8(b'B');
        out.put_u64(50);
        out.put_i64(5);
        out.put_u32(9);
    })
}

/// What was read before it is handed out, with the place where the next life begins.
#[test]
fn a_change_that_cannot_be_read_is_not_passed_by() {
    let row_of = |relation: u32, cells: u16| {
        payload(|out| {
            out.put_u8(b'I');
            out.put_u32(relation);
            out.put_u8(b'N');
            out.put_u16(cells);
            (0..cells).for_each(|_| out.put_slice(&[b't', 0, 0, 0, 1, b'5']));
        })
    };
    let apply = |assembler: &mut Assembler, payload: &Bytes| assembler.apply(Lsn(10), SENT_US, payload);
    let too_large = |assembler: &mut Assembler| {
        let head = OversizedHead::Row {
            relation: 99,
            operation: Operation::Insert,
        };
        assembler.oversized(Lsn(10), SENT_US, &head, 9, 8)
    };
    type Fail<'a> = &'a dyn Fn(&mut Assembler) -> Result<(), PostgresError>;
    let fails: [Fail<'_>; 3] = [
        &|assembler| apply(assembler, &row_of(99, 1)),
        &|assembler| apply(assembler, &row_of(RELATION, 2)),
        &too_large,
    ];
    for fail in fails {
        for read_before in [0, 1] {
            let open = |position: PostgresPosition| {
                let mut assembler = Assembler::new("d", selector(), position);
                for payload in [begin(), relation(RELATION, "t")] {
                    apply(&mut assembler, &payload).unwrap();
                }
                (0..read_before).for_each(|_| apply(&mut assembler, &row_of(RELATION, 1)).unwrap());
                assembler
            };
            let mut assembler = open(start());
            fail(&mut assembler).unwrap_err();
            let batch = assembler.take_batch().unwrap();
            assert_eq!(batch.events.len(), read_before);
            let Position::Postgres(saved) = batch.end else {
                panic!("a position in PostgreSQL's log")
            };
            let mut again = open(saved);
            apply(&mut again, &row_of(RELATION, 1)).unwrap();
            let ids = ids(&again.take_batch().unwrap().events);
            assert_eq!(ids.len(), 1, "{ids:?}");
        }
    }
}

#[test]
fn how_old_a_transaction_is_shows_by_the_server_s_own_clock() {
    let committed_us = super::super::wire::unix_us(5);
    for (sent_us, lag) in [
        (committed_us + 80_000, Duration::from_millis(80)),
        (committed_us - 1, Duration::ZERO),
    ] {
        let mut assembler = Assembler::new("d", selector(), start());
        assembler.apply(Lsn(40), sent_us, &begin()).unwrap();
        assert_eq!(assembler.lag(), lag);
    }
}
