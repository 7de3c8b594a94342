//! Debezium's envelope, to the byte.

use super::*;
use crate::config::pipeline::Envelope as Config;
use crate::event::{Operation, Selection};
use crate::position::{EventPosition, Lsn};
use crate::processor::sample::*;
use crate::row::{ColumnKind, Value};

const TIMES: &str = r#""ts_ms":1700000000123,"ts_us":1700000000123456,"ts_ns":1700000000123456000"#;

fn value(schema: DebeziumSchema, event: ChangeEvent) -> String {
    let outboxes = vec![pipeline::Outbox {
        raw_payload: false,
        ..outbox()
    }];
    let record = published(chain(outboxes, &sink_in(Config::Debezium { schema })).process(event));
    String::from_utf8(record.value.unwrap().to_vec()).unwrap()
}

fn source(place: &str) -> String {
    format!(
        r#""source":{{"version":"{}","connector":"postgresql","name":"pg1","snapshot":"false",{place},"lsn":97500059648,"txId":731,"sequence":"[null,\"97500059648\"]","xmin":null,{TIMES}}}"#,
        env!("CARGO_PKG_VERSION")
    )
}

const ORDERS: &str = r#""db":"shop","schema":"public","table":"orders""#;

#[test]
fn each_operation_is_wrapped_or_bare() {
    let table = table("orders", &[("id", ColumnKind::Integer), ("note", ColumnKind::Text)]);
    let old = || Some(vec![text("1"), text("a")]);
    let new = || Some(vec![text("1"), text("b")]);
    let (old_json, new_json) = (r#"{"id":1,"note":"a"}"#, r#"{"id":1,"note":"b"}"#);
    for (operation, before, after, before_json, after_json) in [
        (Operation::Insert, None, new(), "null", new_json),
        (Operation::Update, old(), new(), old_json, new_json),
        (Operation::Delete, old(), None, old_json, "null"),
        (Operation::Truncate, None, None, "null", "null"),
    ] {
        let event = || row(Selection::Table, operation, &table, before.clone(), after.clone());
        let (letter, source) = (operation.letter(), source(ORDERS));
        let payload = format!(
            r#"{{"before":{before_json},"after":{after_json},{source},"op":"{letter}",{TIMES},"transaction":null}}"#
        );
        assert_eq!(value(DebeziumSchema::Omit, event()), payload);
        assert_eq!(
            value(DebeziumSchema::Null, event()),
            format!(r#"{{"schema":null,"payload":{payload}}}"#)
        );
    }
}

#[test]
fn an_outbox_event_s_payload_is_the_new_row() {
    let source = source(r#""table":"outbox""#);
    for (content, after) in [
        (r#"{"payload": {"n": 1.10, "n": 2}}"#, r#"{"n": 1.10, "n": 2}"#),
        (r#"{"payload": null}"#, "null"),
        ("te\"xt", r#""te\"xt""#),
    ] {
        assert_eq!(
            value(DebeziumSchema::Omit, message(content)),
            format!(r#"{{"before":null,"after":{after},{source},"op":"c",{TIMES},"transaction":null}}"#)
        );
    }
}

#[test]
fn what_an_update_left_alone_is_debezium_s_placeholder() {
    let columns = [
        ("id", ColumnKind::Integer),
        ("a", ColumnKind::Json),
        ("b", ColumnKind::Text),
    ];
    let new = vec![text("1"), Value::Unchanged, Value::Unchanged];
    for (old, after) in [
        (
            None,
            r#"{"id":1,"a":"__debezium_unavailable_value","b":"__debezium_unavailable_value"}"#,
        ),
        (
            Some(vec![text("1"), text("[1]"), Value::Absent]),
            r#"{"id":1,"a":[1],"b":"__debezium_unavailable_value"}"#,
        ),
    ] {
        let table = table("orders", &columns);
        let event = row(Selection::Table, Operation::Update, &table, old, Some(new.clone()));
        let value = value(DebeziumSchema::Omit, event);
        assert!(value.contains(&format!(r#""after":{after},"source""#)), "{value}");
        assert!(!value.contains("unchanged"), "{value}");
    }
}

#[test]
fn what_the_log_does_not_have_of_an_old_row_is_null() {
    let columns = [("id", ColumnKind::Integer), ("note", ColumnKind::Text)];
    let old = || Some(vec![text("1"), Value::Absent]);
    for (operation, new, after) in [
        (Operation::Delete, None, "null"),
        // Of a new row it is left out: what is there is not known.
        (Operation::Update, Some(vec![text("2"), Value::Absent]), r#"{"id":2}"#),
    ] {
        let event = row(Selection::Table, operation, &table("orders", &columns), old(), new);
        let value = value(DebeziumSchema::Omit, event);
        let expected = format!(r#"{{"before":{{"id":1,"note":null}},"after":{after},"source""#);
        assert!(value.starts_with(&expected), "{value}");
    }
}

/// The same on each delivery: what a checkpoint has, and no keep-alive moves.
#[test]
fn the_sequence_begins_with_the_end_of_the_transaction_before() {
    let table = table("orders", &[("id", ColumnKind::Integer)]);
    let mut event = row(Selection::Table, Operation::Insert, &table, None, Some(vec![text("1")]));
    if let EventPosition::Postgres(position) = &mut event.position {
        position.last_event_end = Lsn(97_500_050_000);
    }
    let value = value(DebeziumSchema::Omit, event);
    let sequence = r#""sequence":"[\"97500050000\",\"97500059648\"]""#;
    assert!(value.contains(sequence), "{value}");
}
