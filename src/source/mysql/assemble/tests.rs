//! Resuming, against a model of the server: wherever a stream is cut, what comes after the cut comes exactly once.

use proptest::prelude::*;

use super::log::{COMMIT_US, Item, Log, NAMINGS, Naming, Plain, Rows as LogRows, Table as LogTable, query};
use super::*;
use crate::config::{NamePattern, OnUpdate};
use crate::event::{Change, Operation, Selection};
use crate::row::Value;
use crate::skip::SkipReason;

/// `held` is how much of a transaction waits for its end.
fn options(held: usize) -> AssemblerOptions {
    AssemblerOptions {
        max_message_bytes: 1 << 20,
        accepted_until: None,
        fold_names: false,
        max_held_bytes: held,
        max_prepared_bytes: usize::MAX,
        batch_events: 2,
    }
}

const ALL: usize = usize::MAX;

fn assembler(from: &MysqlPosition, options: AssemblerOptions) -> Assembler {
    let pattern = |text| vec![NamePattern::parse(text).unwrap()];
    let selector = Selector::of(Vec::new(), pattern("s.outbox"), pattern("s.orders"));
    Assembler::new(selector, from.clone(), options)
}

/// One event as the stream applies it.
fn apply(assembler: &mut Assembler, event: Bytes) -> Result<(), MysqlError> {
    assembler.apply(event)?;
    while assembler.advance()? {}
    Ok(())
}

/// The row's own number, which is its only cell.
fn number(event: &ChangeEvent) -> i32 {
    let Change::Row(row) = &event.change else {
        panic!("a row: {event:?}")
    };
    let row = row.after.as_ref().or(row.before.as_ref()).unwrap();
    let Value::Text(text) = &row.values[0] else {
        panic!("text: {row:?}")
    };
    std::str::from_utf8(text).unwrap().parse().unwrap()
}

fn drain(assembler: &mut Assembler) -> Vec<LogBatch> {
    std::iter::from_fn(|| assembler.take_batch(false)).collect()
}

/// What is at hand as one batch, whatever its size.
fn one_batch(assembler: &mut Assembler) -> LogBatch {
    let mut batches = drain(assembler).into_iter();
    let mut whole = batches.next().unwrap();
    for batch in batches {
        whole.events.extend(batch.events);
        whole.skipped.merge(batch.skipped);
        whole.end = batch.end;
    }
    whole
}

/// Reads up to `events` events of the stream; what came out, in batches of up to `batch` events read.
fn read(log: &Log, from: &MysqlPosition, held: usize, events: usize, batch: usize) -> Vec<LogBatch> {
    let mut assembler = assembler(from, options(held));
    let mut batches = Vec::new();
    for (at, event) in log.send(from).into_iter().take(events).enumerate() {
        apply(&mut assembler, event).unwrap();
        if at % batch == batch - 1 {
            batches.extend(drain(&mut assembler));
        }
    }
    batches.extend(drain(&mut assembler));
    batches
}

fn mysql(position: &Position) -> &MysqlPosition {
    match position {
        Position::Mysql(position) => position,
        Position::Postgres(_) => panic!("a place in a binlog"),
    }
}

/// What a checkpoint keeps of a position.
fn saved(position: &Position) -> MysqlPosition {
    let text = serde_json::to_string(position).unwrap();
    let read: Position = serde_json::from_str(&text).unwrap();
    assert_eq!(read, *position, "{text}");
    mysql(&read).clone()
}

fn numbers(batches: &[LogBatch]) -> Vec<i32> {
    batches.iter().flat_map(|batch| &batch.events).map(number).collect()
}

fn rows() -> impl Strategy<Value = Vec<LogRows>> {
    let table = prop_oneof![Just(LogTable::Outbox), Just(LogTable::Orders), Just(LogTable::Other)];
    let kind = prop_oneof![
        3 => Just(EventKind::WRITE_ROWS),
        1 => Just(EventKind::UPDATE_ROWS),
        1 => Just(EventKind::DELETE_ROWS),
    ];
    let rows = (table, kind, 1..4_u8).prop_map(|(table, kind, count)| LogRows { table, kind, count });
    prop::collection::vec(rows, 0..5)
}

fn item() -> impl Strategy<Value = Item> {
    let outcome = prop::option::weighted(0.8, (0..4_usize, any::<bool>()));
    prop_oneof![
        6 => (rows(), 0..2_u32, any::<bool>()).prop_map(|(rows, domain, compressed)| Item::Transaction {
            rows,
            domain,
            compressed
        }),
        3 => (rows(), outcome).prop_map(|(rows, outcome)| Item::Prepared { rows, outcome }),
        2 => (rows(), rows()).prop_map(|(undone, rows)| Item::Undone { undone, rows }),
        1 => Just(Item::Statement("CREATE TABLE s.x (a INT)".to_owned())),
        1 => Just(Item::Rotate),
    ]
}

/// Each naming, with transactions handed on as they come and at their ends.
fn ways() -> impl Iterator<Item = (Naming, usize)> {
    NAMINGS.into_iter().flat_map(|naming| [(naming, 0), (naming, ALL)])
}

/// What was handed on cannot be taken back.
fn readable(items: &[Item], held: usize) -> Vec<Item> {
    let readable = items
        .iter()
        .filter(|item| held == ALL || !matches!(item, Item::Undone { .. }));
    readable.cloned().collect()
}

proptest! {
    #[test]
    fn cut_anywhere_each_committed_row_comes_exactly_once(
        items in prop::collection::vec(item(), 1..10),
        cuts in prop::collection::vec((1..25_usize, 1..6_usize), 1..8),
    ) {
        for (naming, held) in ways() {
            let log = Log::new(naming, &readable(&items, held));
            let mut position = log.beginning();
            let mut seen = Vec::new();
            for (events, batch) in &cuts {
                let batches = read(&log, &position, held, *events, *batch);
                seen.extend(numbers(&batches));
                if let Some(last) = batches.last() {
                    position = saved(&last.end);
                }
            }
            seen.extend(numbers(&read(&log, &position, held, usize::MAX, 3)));
            prop_assert_eq!(&seen, &log.expected, "{:?}, {} held", naming, held);
        }
    }

    #[test]
    fn the_position_behind_any_event_goes_on_with_the_next(
        items in prop::collection::vec(item(), 1..8),
        batch in 1..30_usize,
        cut in 0..40_usize,
    ) {
        for (naming, held) in ways() {
            let log = Log::new(naming, &readable(&items, held));
            // The transaction in progress can have been begun by an earlier reading.
            let first = read(&log, &log.beginning(), held, cut, 1);
            let done = numbers(&first).len();
            let from = first.last().map_or_else(|| log.beginning(), |batch| saved(&batch.end));
            let batches = read(&log, &from, held, usize::MAX, batch);
            let mut at = done;
            for LogBatch { events, end, .. } in &batches {
                for event in events {
                    at += 1;
                    let behind = saved(&end.after(&event.position));
                    let rest = numbers(&read(&log, &behind, held, usize::MAX, 7));
                    prop_assert_eq!(&rest, &log.expected[at..], "{:?}, {} held, behind {}", naming, held, event.position);
                }
            }
        }
    }

    #[test]
    fn ids_stay_the_same_and_are_distinct_wherever_reading_begins(
        items in prop::collection::vec(item(), 1..8),
        cut in 0..40_usize,
    ) {
        for (naming, held) in ways() {
            let log = Log::new(naming, &readable(&items, held));
            let ids = |batches: &[LogBatch]| -> Vec<String> {
                batches.iter().flat_map(|batch| &batch.events).map(|event| event.position.to_string()).collect()
            };
            let whole = ids(&read(&log, &log.beginning(), held, usize::MAX, 5));
            let distinct: std::collections::BTreeSet<_> = whole.iter().collect();
            prop_assert_eq!(distinct.len(), whole.len());
            let first = read(&log, &log.beginning(), held, cut, 1);
            let from = first.last().map_or_else(|| log.beginning(), |batch| saved(&batch.end));
            let rest = ids(&read(&log, &from, held, usize::MAX, 2));
            prop_assert_eq!(&whole[whole.len() - rest.len()..], rest.as_slice());
        }
    }

    #[test]
    fn any_bytes_are_an_event_or_an_error(bytes: Vec<u8>, kind: u8) {
        let log = Log::new(Naming::Gtids, &[]);
        let mut assembler = assembler(&log.beginning(), options(ALL));
        for event in log.send(&log.beginning()) {
            apply(&mut assembler, event).unwrap();
        }
        let _ = apply(&mut assembler, Bytes::from(bytes.clone()));
        let _ = apply(&mut assembler, Plain::new(EventKind(kind), bytes).bytes(0));
    }
}

fn one_transaction(rows: Vec<LogRows>) -> Item {
    Item::Transaction {
        rows,
        domain: 0,
        compressed: false,
    }
}

fn inserts(table: LogTable, count: u8) -> LogRows {
    LogRows {
        table,
        kind: EventKind::WRITE_ROWS,
        count,
    }
}

#[test]
fn a_gtid_counts_only_when_its_transaction_has_ended() {
    let items = [one_transaction(vec![inserts(LogTable::Outbox, 3)])];
    let log = Log::new(Naming::Gtids, &items);
    let sent = log.send(&log.beginning());
    // ROTATE, FORMAT_DESCRIPTION, GTID, BEGIN, TABLE_MAP, the rows; then XID.
    let batches = read(&log, &log.beginning(), 0, sent.len() - 2, 100);
    let position = mysql(&batches.last().unwrap().end);
    assert_eq!(position.base, MysqlBase::Gtids(crate::gtid::GtidSet::new()));
    assert_eq!(position.partial[0].rows.to_string(), "3 rows of s.outbox");
    let batches = read(&log, &log.beginning(), 0, sent.len() - 1, 100);
    let position = mysql(&batches.last().unwrap().end);
    assert!(position.partial.is_empty(), "{position:?}");
    let id = "5a5a5a5a-5a5a-5a5a-5a5a-5a5a5a5a5a5a:1";
    assert_eq!(position.to_string(), id);
    let event = batches.iter().flat_map(|batch| &batch.events).nth(2).unwrap();
    assert_eq!(event.position.to_string(), format!("{id}/s.outbox/3"));
    assert_eq!((event.commit_time_us, event.selection), (COMMIT_US, Selection::Outbox));
}

#[test]
fn a_place_in_a_file_moves_on_with_what_is_not_ours_and_with_heartbeats() {
    let items = [
        one_transaction(vec![inserts(LogTable::Other, 3)]),
        Item::Rotate,
        Item::Statement("DROP TABLE s.x".to_owned()),
    ];
    for naming in NAMINGS {
        let log = Log::new(naming, &items);
        let batches = read(&log, &log.beginning(), ALL, usize::MAX, 100);
        let position = mysql(&batches[0].end);
        let end = &log.groups.last().unwrap().end;
        assert_eq!(position.place, *end);
        assert_eq!(end.file_number(), 1_000_000, "999999 was the file before it");
        assert_eq!(
            batches[0].skipped.iter().collect::<Vec<_>>(),
            [(SkipReason::UnlistedTable, 1)]
        );
    }
}

#[test]
fn another_choice_of_tables_does_not_shift_what_is_done() {
    let items = [one_transaction(vec![
        inserts(LogTable::Orders, 2),
        inserts(LogTable::Outbox, 2),
        inserts(LogTable::Orders, 1),
        inserts(LogTable::Outbox, 2),
    ])];
    for naming in NAMINGS {
        let log = Log::new(naming, &items);
        let all = read(&log, &log.beginning(), ALL, usize::MAX, 100);
        // Up to the first row of the outbox.
        let third = all.iter().flat_map(|batch| &batch.events).nth(2).unwrap();
        let position = saved(&all[0].end.after(&third.position));
        let pattern = |text| vec![NamePattern::parse(text).unwrap()];
        let selector = Selector::of(Vec::new(), pattern("s.outbox"), Vec::new());
        let mut assembler = Assembler::new(selector, position.clone(), options(ALL));
        for event in log.send(&position) {
            apply(&mut assembler, event).unwrap();
        }
        let batch = one_batch(&mut assembler);
        assert_eq!(numbers(&[batch]), [4, 6, 7], "{naming:?}");
    }
}

#[test]
fn updates_of_an_outbox_are_told_of_without_their_rows_wherever_reading_begins() {
    let updates = LogRows {
        kind: EventKind::UPDATE_ROWS,
        ..inserts(LogTable::Outbox, 3)
    };
    let items = [
        one_transaction(vec![
            inserts(LogTable::Outbox, 1),
            updates,
            inserts(LogTable::Outbox, 1),
        ]),
        Item::Statement("UPDATE outbox SET n = 1".to_owned()),
    ];
    for naming in NAMINGS {
        let log = Log::new(naming, &items);
        let read = |from: &MysqlPosition| {
            let pattern = |text| vec![NamePattern::parse(text).unwrap()];
            let selector = Selector::of(Vec::new(), pattern("s.outbox"), Vec::new()).on_update(OnUpdate::Warn);
            let mut assembler = Assembler::new(selector, from.clone(), options(ALL));
            for event in log.send(from) {
                apply(&mut assembler, event).unwrap();
            }
            one_batch(&mut assembler)
        };
        let ids = |events: &[ChangeEvent]| {
            events
                .iter()
                .map(|event| event.position.to_string())
                .collect::<Vec<_>>()
        };
        let all = read(&log.beginning());
        assert_eq!(all.skipped.total(), 0);
        let operations = all.events.iter().map(|event| match &event.change {
            Change::Row(row) => {
                assert_eq!((row.table.schema.as_str(), row.table.name.as_str()), ("s", "outbox"));
                let has_rows = row.before.is_some() || row.after.is_some();
                assert_eq!(has_rows, row.operation == Operation::Insert);
                row.operation
            }
            other => panic!("a row: {other:?}"),
        });
        let (insert, update) = (Operation::Insert, Operation::Update);
        assert_eq!(
            operations.collect::<Vec<_>>(),
            [insert, update, update, update, insert, update],
            "{naming:?}"
        );
        // Behind the last there is no more.
        for (at, event) in all.events.iter().enumerate().take(all.events.len() - 1) {
            let rest = read(&saved(&all.end.after(&event.position)));
            assert_eq!(ids(&rest.events), ids(&all.events[at + 1..]), "{naming:?}");
        }
    }
}

#[test]
fn an_insert_as_a_statement_halts_unless_it_was_accepted() {
    let text = "INSERT INTO outbox VALUES (1)";
    for naming in NAMINGS {
        let log = Log::new(naming, &[Item::Statement(text.to_owned())]);
        let from = log.beginning();
        let mut assembler = assembler(&from, options(ALL));
        let failed = log
            .send(&from)
            .into_iter()
            .find_map(|event| apply(&mut assembler, event).err());
        let text = failed.unwrap().to_string();
        for part in [
            "`INSERT` on table `s.outbox`",
            "binlog.999999:",
            "--accept-gap",
            "binlog_format",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let accepted = |until: &BinlogPlace| {
            let options = AssemblerOptions {
                accepted_until: Some(until.clone()),
                ..options(ALL)
            };
            let pattern = |text| vec![NamePattern::parse(text).unwrap()];
            let mut assembler = Assembler::new(
                Selector::of(Vec::new(), pattern("s.outbox"), Vec::new()),
                from.clone(),
                options,
            );
            let applied: Result<Vec<()>, _> = log
                .send(&from)
                .into_iter()
                .map(|event| apply(&mut assembler, event))
                .collect();
            applied.map(|_| one_batch(&mut assembler))
        };
        let group = &log.groups[0];
        let batch = accepted(&group.end).unwrap();
        assert_eq!(
            batch.skipped.iter().collect::<Vec<_>>(),
            [(SkipReason::StatementForm, 1)]
        );
        assert_eq!(mysql(&batch.end).place, group.end);
        assert!(accepted(&group.start).is_err(), "what came later was not accepted");
    }
}

#[test]
fn a_transaction_that_a_crash_cut_short_is_as_if_it_had_never_been() {
    // Without its XID, and another one with the same name and place in the next file.
    let torn = Log::new(Naming::Mariadb, &[one_transaction(vec![inserts(LogTable::Outbox, 2)])]);
    let from = torn.beginning();
    let mut sent = torn.send(&from);
    sent.truncate(sent.len() - 2);
    let after = Log::new(
        Naming::Mariadb,
        &[Item::Rotate, one_transaction(vec![inserts(LogTable::Outbox, 1)])],
    );
    sent.extend(
        after
            .send(&from)
            .into_iter()
            .skip(2)
            .take_while(|event| event[4] != EventKind::HEARTBEAT.0),
    );
    // The file that a server begins after a crash is described by an event that is in it.
    let described = sent
        .iter()
        .rposition(|event| event[4] == EventKind::FORMAT_DESCRIPTION.0)
        .unwrap();
    sent[described] = in_file(&sent[described]);
    for held in [0, ALL] {
        let mut assembler = assembler(&from, options(held));
        for event in &sent {
            apply(&mut assembler, event.clone()).unwrap();
        }
        let batch = one_batch(&mut assembler);
        let published: Vec<_> = batch.events.iter().map(|event| event.position.to_string()).collect();
        let before: &[&str] = if held == ALL {
            &[]
        } else {
            &["0-7-1/s.outbox/1", "0-7-1/s.outbox/2"]
        };
        assert_eq!(published, [before, &["0-7-1/s.outbox/1"]].concat());
        assert_eq!(mysql(&batch.end).to_string(), "0-7-1");
    }
}

/// The same FORMAT_DESCRIPTION with a place.
fn in_file(event: &Bytes) -> Bytes {
    let mut event = event.to_vec();
    event[13..17].copy_from_slice(&200_u32.to_le_bytes());
    let end = event.len() - 4;
    let crc = crc32fast::hash(&event[..end]);
    event[end..].copy_from_slice(&crc.to_le_bytes());
    event.into()
}

#[test]
fn rows_that_a_transaction_took_back_are_counted_and_not_published() {
    let items = [Item::Undone {
        undone: vec![inserts(LogTable::Outbox, 3)],
        rows: vec![inserts(LogTable::Outbox, 2)],
    }];
    for naming in NAMINGS {
        let log = Log::new(naming, &items);
        let batches = read(&log, &log.beginning(), ALL, usize::MAX, 100);
        assert_eq!(numbers(&batches), [4, 5]);
        assert_eq!(
            batches[0].skipped.iter().collect::<Vec<_>>(),
            [(SkipReason::RolledBack, 3)]
        );
        // Too late for what is published already.
        let mut assembler = assembler(&log.beginning(), options(0));
        let mut sent = log.send(&log.beginning()).into_iter();
        let error = sent
            .find_map(|event| apply(&mut assembler, event).err())
            .unwrap()
            .to_string();
        for part in ["3 are published already", &log.groups[0].id.to_string(), "--accept-gap"] {
            assert!(error.contains(part), "{part}: {error}");
        }
    }
}

#[test]
fn a_whole_transaction_that_was_taken_back_is_not_published() {
    for naming in NAMINGS {
        let log = Log::new(naming, &[one_transaction(vec![inserts(LogTable::Outbox, 2)])]);
        let from = log.beginning();
        let mut assembler = assembler(&from, options(ALL));
        for event in log.send(&from) {
            let event = if event[4] == EventKind::XID.0 {
                query("ROLLBACK").bytes(0)
            } else {
                event
            };
            apply(&mut assembler, event).unwrap();
        }
        let batch = one_batch(&mut assembler);
        assert!(batch.events.is_empty());
        assert_eq!(batch.skipped.iter().collect::<Vec<_>>(), [(SkipReason::RolledBack, 2)]);
    }
}

#[test]
fn a_base_that_the_log_does_not_lead_to_halts() {
    let log = Log::new(Naming::Mariadb, &[one_transaction(vec![inserts(LogTable::Outbox, 1)])]);
    let mut from = log.beginning();
    from.base = MysqlBase::Mariadb("0-9-4".parse().unwrap());
    from.reread = Some(Box::new(crate::position::RereadFrom {
        base: log.beginning().base,
        place: log.beginning().place,
    }));
    let mut assembler = assembler(&from, options(ALL));
    let failed = log
        .send(&from)
        .into_iter()
        .find_map(|event| apply(&mut assembler, event).err());
    let text = failed.unwrap().to_string();
    assert!(text.contains("does not have (0-9-4)"), "{text}");
}

#[test]
fn more_tables_than_are_kept_do_not_part_a_statement_from_its_tables() {
    let log = Log::new(Naming::Gtids, &[one_transaction(vec![inserts(LogTable::Outbox, 1)])]);
    let from = log.beginning();
    let mut assembler = assembler(&from, options(ALL));
    let mut sent = log.send(&from);
    let rows = sent
        .iter()
        .position(|event| event[4] == EventKind::WRITE_ROWS.0)
        .unwrap();
    let map = sent[rows - 1].clone();
    for id in 0..1_000_u32 {
        let mut other = map.to_vec();
        other[19..23].copy_from_slice(&(id + 1_000).to_le_bytes());
        sent.insert(rows, other.into());
    }
    for event in sent {
        apply(&mut assembler, event).unwrap();
    }
    assert_eq!(numbers(&[one_batch(&mut assembler)]), [1]);
}

#[test]
fn names_in_statements_are_folded_where_the_server_folds_them() {
    let text = "INSERT INTO S.OutBox VALUES (1)".to_owned();
    let log = Log::new(Naming::Gtids, &[Item::Statement(text)]);
    let from = log.beginning();
    for fold_names in [false, true] {
        let options = AssemblerOptions {
            fold_names,
            ..options(ALL)
        };
        let mut assembler = assembler(&from, options);
        let failed = log
            .send(&from)
            .into_iter()
            .find_map(|event| apply(&mut assembler, event).err());
        assert_eq!(failed.is_some(), fold_names, "{failed:?}");
    }
}

#[test]
fn small_events_are_judged_row_by_row_whatever_the_limit() {
    let log = Log::new(Naming::Gtids, &[one_transaction(vec![inserts(LogTable::Outbox, 60)])]);
    let from = log.beginning();
    let options = AssemblerOptions {
        max_message_bytes: 1,
        ..options(ALL)
    };
    let mut assembler = assembler(&from, options);
    for event in log.send(&from) {
        apply(&mut assembler, event).unwrap();
    }
    let events = one_batch(&mut assembler).events;
    let oversized = events
        .iter()
        .filter(|event| matches!(event.change, Change::Oversized(_)))
        .count();
    // The rows are their own numbers: those of two digits are over the limit.
    assert_eq!((events.len(), oversized), (60, 51));
}

#[test]
fn truncates_of_ordinary_tables_are_events_and_of_outboxes_are_counted() {
    for naming in NAMINGS {
        let items = ["TRUNCATE TABLE orders", "truncate s.outbox", "TRUNCATE other"];
        let items = items.map(|text| Item::Statement(text.to_owned()));
        let log = Log::new(naming, &items);
        let batches = read(&log, &log.beginning(), ALL, usize::MAX, 100);
        let Change::Row(row) = &batches[0].events[0].change else {
            panic!("a row")
        };
        assert_eq!(
            (row.operation, row.table.name.as_str()),
            (Operation::Truncate, "orders")
        );
        assert_eq!(batches[0].events.len(), 1);
        let skipped: Vec<_> = batches[0].skipped.iter().collect();
        assert_eq!(skipped, [(SkipReason::OutboxTruncate, 1)]);
    }
}

#[test]
fn positions_beyond_4_gib_are_told_by_their_low_bits() {
    assert_eq!(whole_position(100, 200), 200);
    assert_eq!(whole_position(0xFFFF_FF00, 0x10), 0x1_0000_0010);
    assert_eq!(whole_position(0x1_FFFF_FF00, 0x10), 0x2_0000_0010);
    // A little back is no wrap: made-up events can tell an older place.
    assert_eq!(whole_position(0x1_0000_0100, 0x80), 0x1_0000_0080);
}

#[test]
fn a_statement_inside_a_transaction_does_not_end_it() {
    let log = Log::new(Naming::Gtids, &[one_transaction(vec![inserts(LogTable::Outbox, 1)])]);
    let from = log.beginning();
    let mut assembler = assembler(&from, options(ALL));
    let mut sent = log.send(&from);
    sent.insert(4, query("SAVEPOINT a").bytes(0));
    sent.insert(5, query("CREATE TABLE s.x (a INT) START TRANSACTION").bytes(0));
    for event in sent {
        apply(&mut assembler, event).unwrap();
    }
    let batch = one_batch(&mut assembler);
    assert_eq!(batch.events.len(), 1);
    assert!(mysql(&batch.end).partial.is_empty());
}

#[test]
fn an_xa_transaction_that_is_too_large_halts_and_is_passed_over_as_a_whole_when_that_was_accepted() {
    for naming in NAMINGS {
        let prepared = Item::Prepared {
            rows: vec![inserts(LogTable::Outbox, 9)],
            outcome: Some((1, true)),
        };
        let log = Log::new(naming, &[prepared, one_transaction(vec![inserts(LogTable::Outbox, 1)])]);
        let from = log.beginning();
        let read = |accepted_until| {
            let options = AssemblerOptions {
                max_prepared_bytes: 1_000,
                accepted_until,
                ..options(ALL)
            };
            let mut assembler = assembler(&from, options);
            let applied: Result<Vec<()>, _> = log
                .send(&from)
                .into_iter()
                .map(|event| apply(&mut assembler, event))
                .collect();
            applied.map(|_| one_batch(&mut assembler))
        };
        let error = read(None).unwrap_err().to_string();
        assert!(error.contains("holds more than 1000 bytes"), "{error}");
        let batch = read(Some(log.groups[2].end.clone())).unwrap();
        assert_eq!(numbers(std::slice::from_ref(&batch)), [10], "{naming:?}");
        assert_eq!(batch.skipped.iter().collect::<Vec<_>>(), [(SkipReason::RolledBack, 9)]);
    }
}
