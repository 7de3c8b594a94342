//! Resuming, against a model of the server: wherever a stream is cut, what comes after the cut comes exactly once.

use proptest::prelude::*;

use super::log::{COMMIT_US, Item, Log, NAMINGS, Naming, Plain, Rows as LogRows, Table as LogTable, query};
use super::*;
use crate::config::NamePattern;
use crate::row::Value;

fn assembler(from: &MysqlPosition) -> Assembler {
    let pattern = |text| vec![NamePattern::parse(text).unwrap()];
    let options = AssemblerOptions {
        max_message_bytes: 1 << 20,
        accepted_until: None,
    };
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

/// Reads up to `events` events of the stream; what came out, in batches of up to `batch` events read.
fn read(log: &Log, from: &MysqlPosition, events: usize, batch: usize) -> Vec<LogBatch> {
    let mut assembler = assembler(from);
    let mut batches = Vec::new();
    for (at, event) in log.send(from).into_iter().take(events).enumerate() {
        apply(&mut assembler, event).unwrap();
        if at % batch == batch - 1 {
            batches.extend(assembler.take_batch());
        }
    }
    batches.extend(assembler.take_batch());
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
    let kind = prop_oneof![3 => Just(EventKind::WRITE_ROWS), 1 => Just(EventKind::DELETE_ROWS)];
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
        1 => Just(Item::Statement("CREATE TABLE s.x (a INT)".to_owned())),
        1 => Just(Item::Rotate),
    ]
}

proptest! {
    #[test]
    fn cut_anywhere_each_committed_row_comes_exactly_once(
        items in prop::collection::vec(item(), 1..10),
        cuts in prop::collection::vec((1..25_usize, 1..6_usize), 1..8),
    ) {
        for naming in NAMINGS {
            let log = Log::new(naming, &items);
            let mut position = log.beginning();
            let mut seen = Vec::new();
            for (events, batch) in &cuts {
                let batches = read(&log, &position, *events, *batch);
                seen.extend(numbers(&batches));
                if let Some(last) = batches.last() {
                    position = saved(&last.end);
                }
            }
            seen.extend(numbers(&read(&log, &position, usize::MAX, 3)));
            prop_assert_eq!(&seen, &log.expected, "{:?}", naming);
        }
    }

    #[test]
    fn the_position_behind_any_event_goes_on_with_the_next(
        items in prop::collection::vec(item(), 1..8),
        batch in 1..30_usize,
        cut in 0..40_usize,
    ) {
        for naming in NAMINGS {
            let log = Log::new(naming, &items);
            // The transaction in progress can have been begun by an earlier reading.
            let first = read(&log, &log.beginning(), cut, 1);
            let done = numbers(&first).len();
            let from = first.last().map_or_else(|| log.beginning(), |batch| saved(&batch.end));
            let batches = read(&log, &from, usize::MAX, batch);
            let mut at = done;
            for LogBatch { events, end, .. } in &batches {
                for event in events {
                    at += 1;
                    let behind = saved(&end.after(&event.position));
                    let rest = numbers(&read(&log, &behind, usize::MAX, 7));
                    prop_assert_eq!(&rest, &log.expected[at..], "{:?} behind {}", naming, event.position);
                }
            }
        }
    }

    #[test]
    fn ids_stay_the_same_and_are_distinct_wherever_reading_begins(
        items in prop::collection::vec(item(), 1..8),
        cut in 0..40_usize,
    ) {
        for naming in NAMINGS {
            let log = Log::new(naming, &items);
            let ids = |batches: &[LogBatch]| -> Vec<String> {
                batches.iter().flat_map(|batch| &batch.events).map(|event| event.position.to_string()).collect()
            };
            let whole = ids(&read(&log, &log.beginning(), usize::MAX, 5));
            let distinct: std::collections::BTreeSet<_> = whole.iter().collect();
            prop_assert_eq!(distinct.len(), whole.len());
            let first = read(&log, &log.beginning(), cut, 1);
            let from = first.last().map_or_else(|| log.beginning(), |batch| saved(&batch.end));
            let rest = ids(&read(&log, &from, usize::MAX, 2));
            prop_assert_eq!(&whole[whole.len() - rest.len()..], rest.as_slice());
        }
    }

    #[test]
    fn any_bytes_are_an_event_or_an_error(bytes: Vec<u8>, kind: u8) {
        let log = Log::new(Naming::Gtids, &[]);
        let mut assembler = assembler(&log.beginning());
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
    let batches = read(&log, &log.beginning(), sent.len() - 2, 100);
    let position = mysql(&batches[0].end);
    assert_eq!(position.base, MysqlBase::Gtids(crate::gtid::GtidSet::new()));
    assert_eq!(position.partial[0].rows.to_string(), "3 rows of s.outbox");
    let batches = read(&log, &log.beginning(), sent.len() - 1, 100);
    let position = mysql(&batches[0].end);
    assert!(position.partial.is_empty(), "{position:?}");
    let id = "5a5a5a5a-5a5a-5a5a-5a5a-5a5a5a5a5a5a:1";
    assert_eq!(position.to_string(), id);
    let event = &batches[0].events[2];
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
        let batches = read(&log, &log.beginning(), usize::MAX, 100);
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
        let all = read(&log, &log.beginning(), usize::MAX, 100);
        // Up to the first row of the outbox.
        let position = saved(&all[0].end.after(&all[0].events[2].position));
        let pattern = |text| vec![NamePattern::parse(text).unwrap()];
        let selector = Selector::of(Vec::new(), pattern("s.outbox"), Vec::new());
        let options = AssemblerOptions {
            max_message_bytes: 1 << 20,
            accepted_until: None,
        };
        let mut assembler = Assembler::new(selector, position.clone(), options);
        for event in log.send(&position) {
            apply(&mut assembler, event).unwrap();
        }
        let batch = assembler.take_batch().unwrap();
        assert_eq!(numbers(&[batch]), [4, 6, 7], "{naming:?}");
    }
}

#[test]
fn an_insert_as_a_statement_halts_unless_it_was_accepted() {
    let text = "INSERT INTO outbox VALUES (1)";
    for naming in NAMINGS {
        let log = Log::new(naming, &[Item::Statement(text.to_owned())]);
        let from = log.beginning();
        let mut assembler = assembler(&from);
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
                max_message_bytes: 1 << 20,
                accepted_until: Some(until.clone()),
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
            applied.map(|_| assembler.take_batch().unwrap())
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
fn a_transaction_that_the_server_never_finished_is_given_up() {
    let log = Log::new(
        Naming::Gtids,
        &[
            one_transaction(vec![inserts(LogTable::Outbox, 1)]),
            one_transaction(vec![inserts(LogTable::Outbox, 1)]),
        ],
    );
    let from = log.beginning();
    let mut assembler = assembler(&from);
    let mut sent = log.send(&from);
    // The first one's XID.
    sent.remove(6);
    for event in sent {
        apply(&mut assembler, event).unwrap();
    }
    let position = assembler.position();
    assert_eq!(position.to_string(), "5a5a5a5a-5a5a-5a5a-5a5a-5a5a5a5a5a5a:2");
    assert!(position.partial.is_empty());
}

#[test]
fn truncates_of_ordinary_tables_are_events_and_of_outboxes_are_counted() {
    for naming in NAMINGS {
        let items = ["TRUNCATE TABLE orders", "truncate s.outbox", "TRUNCATE other"];
        let items = items.map(|text| Item::Statement(text.to_owned()));
        let log = Log::new(naming, &items);
        let batches = read(&log, &log.beginning(), usize::MAX, 100);
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
    let mut assembler = assembler(&from);
    let mut sent = log.send(&from);
    sent.insert(4, query("SAVEPOINT a").bytes(0));
    sent.insert(5, query("CREATE TABLE s.x (a INT) START TRANSACTION").bytes(0));
    for event in sent {
        apply(&mut assembler, event).unwrap();
    }
    let batch = assembler.take_batch().unwrap();
    assert_eq!(batch.events.len(), 1);
    assert!(mysql(&batch.end).partial.is_empty());
}
