use proptest::prelude::*;
use serde_json::Value as Json;

use super::*;
use crate::event::{Change, Selection};
use crate::processor::ErrorKind;
use crate::processor::sample::*;
use crate::row::ColumnKind;

fn envelope(event: ChangeEvent) -> String {
    let record = published(chain(vec![], &sink(Some("t"), None)).process(event));
    String::from_utf8(record.value.unwrap().to_vec()).unwrap()
}

fn source(table: &str) -> String {
    format!(
        r#""source":{{"version":"{}","connector":"postgresql","name":"pg1","db":"shop","schema":"public","table":"{table}","lsn":97500059648,"txId":731,"ts_ms":1700000000123}}"#,
        env!("CARGO_PKG_VERSION")
    )
}

#[test]
fn cells_are_typed_and_keep_their_text() {
    let bytes = Value::Bytes(Bytes::from_static(b"\x00\xff"));
    let cells = [
        (
            "id",
            ColumnKind::Integer,
            text("-9223372036854775808"),
            "-9223372036854775808",
        ),
        ("t", ColumnKind::Boolean, text("t"), "true"),
        ("f", ColumnKind::Boolean, text("f"), "false"),
        ("float", ColumnKind::Float, text("1e+20"), "1e+20"),
        ("nan", ColumnKind::Float, text("NaN"), "\"NaN\""),
        ("inf", ColumnKind::Float, text("-Infinity"), "\"-Infinity\""),
        (
            "numeric",
            ColumnKind::Numeric,
            text("12345678901234567890.10"),
            "\"12345678901234567890.10\"",
        ),
        (
            "json",
            ColumnKind::Json,
            text("{\"a\": 1, \"a\":2}"),
            "{\"a\": 1, \"a\":2}",
        ),
        ("bytes", ColumnKind::Binary, bytes, "\"\\\\x00ff\""),
        ("none", ColumnKind::Binary, Value::Bytes(Bytes::new()), "\"\\\\x\""),
        (
            "uuid",
            ColumnKind::Uuid,
            text("11111111-2222-3333-4444-555555555555"),
            "\"11111111-2222-3333-4444-555555555555\"",
        ),
        ("a \"b\"", ColumnKind::Text, text("é\n\\"), "\"é\\n\\\\\""),
        ("empty", ColumnKind::Text, text(""), "\"\""),
        ("null", ColumnKind::Text, Value::Null, "null"),
    ];
    let columns: Vec<_> = cells.iter().map(|(name, kind, ..)| (*name, *kind)).collect();
    let values = cells.iter().map(|(_, _, value, _)| value.clone()).collect();
    let members: Vec<_> = cells
        .iter()
        .map(|(name, _, _, json)| format!("{}:{json}", Json::from(*name)))
        .collect();
    let event = row(
        Selection::Table,
        Operation::Insert,
        &table("orders", &columns),
        None,
        Some(values),
    );
    let expected = format!(
        r#"{{"before":null,"after":{{{}}},{},"op":"c","ts_ms":1700000000123}}"#,
        members.join(","),
        source("orders")
    );
    assert_eq!(envelope(event), expected);
}

#[test]
fn each_operation_has_its_rows() {
    let table = table("orders", &[("id", ColumnKind::Integer), ("note", ColumnKind::Text)]);
    let old = || Some(vec![text("1"), Value::Absent]);
    let new = || Some(vec![text("1"), text("x")]);
    let cases = [
        (Operation::Insert, None, new(), "null", r#"{"id":1,"note":"x"}"#, "c"),
        (Operation::Update, None, new(), "null", r#"{"id":1,"note":"x"}"#, "u"),
        (
            Operation::Update,
            old(),
            new(),
            r#"{"id":1}"#,
            r#"{"id":1,"note":"x"}"#,
            "u",
        ),
        (Operation::Delete, old(), None, r#"{"id":1}"#, "null", "d"),
        (Operation::Truncate, None, None, "null", "null", "t"),
    ];
    for (operation, before, after, before_json, after_json, letter) in cases {
        let expected = format!(
            r#"{{"before":{before_json},"after":{after_json},{},"op":"{letter}","ts_ms":1700000000123}}"#,
            source("orders")
        );
        assert_eq!(
            envelope(row(Selection::Table, operation, &table, before, after)),
            expected
        );
    }
}

#[test]
fn unchanged_cells_come_from_the_old_row_or_are_named() {
    let columns = [
        ("id", ColumnKind::Integer),
        ("a", ColumnKind::Text),
        ("b\"", ColumnKind::Text),
        ("c", ColumnKind::Text),
    ];
    let new = || Some(vec![text("1"), Value::Unchanged, Value::Unchanged, text("x")]);
    let update = |old| {
        envelope(row(
            Selection::Table,
            Operation::Update,
            &table("orders", &columns),
            old,
            new(),
        ))
    };
    let without = update(None);
    assert!(without.contains(r#""after":{"id":1,"c":"x"}"#), "{without}");
    assert!(
        without.ends_with(r#""ts_ms":1700000000123,"unchanged":["a","b\""]}"#),
        "{without}"
    );
    let with = update(Some(vec![text("1"), text("A"), Value::Absent, text("w")]));
    assert!(with.contains(r#""after":{"id":1,"a":"A","c":"x"}"#), "{with}");
    assert!(with.ends_with(r#","unchanged":["b\""]}"#), "{with}");
}

#[test]
fn text_that_is_not_utf8_is_invalid() {
    let table = table("orders", &[("note", ColumnKind::Text)]);
    let cell = Value::Text(Bytes::from_static(b"secret\xff"));
    let event = row(Selection::Table, Operation::Insert, &table, None, Some(vec![cell]));
    let (kind, text) = failed(chain(vec![], &sink(Some("t"), None)).process(event));
    assert_eq!(kind, ErrorKind::Invalid);
    assert!(
        text.starts_with("row of `public.orders` at ") && text.contains("`note` is no text"),
        "{text}"
    );
    assert!(!text.contains("secret"), "{text}");
}

#[test]
fn a_non_transactional_event_has_no_transaction() {
    let table = table("orders", &[("id", ColumnKind::Integer)]);
    let mut event = row(Selection::Table, Operation::Insert, &table, None, Some(vec![text("1")]));
    if let EventPosition::Postgres(position) = &mut event.position {
        position.xid = None;
    }
    event.commit_time_us = -1;
    assert!(envelope(event).contains(r#""txId":null,"ts_ms":-1}"#));
}

#[test]
fn another_table_of_the_same_name_gets_its_own_columns() {
    let mut chain = chain(vec![], &sink(Some("t"), None));
    for columns in [["id", "a"], ["id", "b"]] {
        let table = table("orders", &columns.map(|name| (name, ColumnKind::Text)));
        let event = row(
            Selection::Table,
            Operation::Insert,
            &table,
            None,
            Some(vec![text("1"), text("2")]),
        );
        let value = published(chain.process(event)).value.unwrap();
        let json: Json = serde_json::from_slice(&value).unwrap();
        assert_eq!(json["after"][columns[1]], "2");
    }
}

fn kind() -> impl Strategy<Value = ColumnKind> {
    // Not Json: its cells are the server's JSON, which arbitrary text is not.
    prop::sample::select(vec![
        ColumnKind::Boolean,
        ColumnKind::Integer,
        ColumnKind::Float,
        ColumnKind::Numeric,
        ColumnKind::Binary,
        ColumnKind::Uuid,
        ColumnKind::Text,
    ])
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<String>().prop_map(|cell| text(&cell)),
        "[-+]?[0-9]{0,20}(\\.[0-9]{0,4})?".prop_map(|cell| text(&cell)),
        prop::collection::vec(any::<u8>(), 0..20).prop_map(|bytes| Value::Bytes(bytes.into())),
        prop::sample::select(vec![Value::Null, Value::Unchanged, Value::Absent]),
    ]
}

proptest! {
    #[test]
    fn an_envelope_is_json_whatever_the_cells(
        cells in prop::collection::vec((any::<String>(), kind(), value(), value()), 0..6),
        operation in prop::sample::select(vec![Operation::Insert, Operation::Update, Operation::Delete, Operation::Truncate]),
    ) {
        let columns: Vec<_> = cells.iter().map(|(name, kind, ..)| (name.as_str(), *kind)).collect();
        let old = cells.iter().map(|(_, _, old, _)| old.clone()).collect();
        let new = cells.iter().map(|(_, _, _, new)| new.clone()).collect();
        let event = row(Selection::Table, operation, &table("orders", &columns), Some(old), Some(new));
        let json: Json = serde_json::from_str(&envelope(event)).unwrap();
        prop_assert_eq!(&json["op"], operation.letter());
    }

    #[test]
    fn numbers_keep_their_digits(digits in "-?(0|[1-9][0-9]{0,40})", fraction in "\\.[0-9]{1,40}") {
        let columns = [("i", ColumnKind::Integer), ("n", ColumnKind::Numeric), ("f", ColumnKind::Float)];
        let values = vec![text(&digits), text(&format!("{digits}{fraction}")), text(&format!("{digits}{fraction}"))];
        let value = envelope(row(Selection::Table, Operation::Insert, &table("t", &columns), None, Some(values)));
        let after = format!(r#""after":{{"i":{digits},"n":"{digits}{fraction}","f":{digits}{fraction}}}"#);
        prop_assert!(value.contains(&after), "{}", value);
    }

    #[test]
    fn any_cell_bytes_have_a_defined_outcome(bytes in prop::collection::vec(any::<u8>(), 0..40), kind in kind()) {
        let change = RowChange {
            operation: Operation::Insert,
            table: table("t", &[("c", kind)]),
            before: None,
            after: Some(Row { values: vec![Value::Text(bytes.into())] }),
        };
        let _ = chain(vec![], &sink(Some("t"), None)).process(event(Selection::Table, Change::Row(change)));
    }
}
