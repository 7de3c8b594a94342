use proptest::prelude::*;
use serde_json::Value as Json;

use super::*;
use crate::config::pipeline::{Envelope as Config, PayloadAs, TimestampColumn};
use crate::event::{Change, Selection};
use crate::processor::ErrorKind;
use crate::processor::sample::*;
use crate::record::Record;
use crate::row::Value;

const TIME: &str = "2023-11-14T22:13:20.123456Z";
const ID: &str = "00000016B374D848-00000016B374D800-2";
const STRUCTURED_HEADERS: [(&str, &str); 1] = [("content-type", "application/cloudevents+json; charset=UTF-8")];

fn structured() -> pipeline::CloudEvents {
    pipeline::CloudEvents {
        mode: CloudEventsMode::Structured,
        type_prefix: None,
        source: None,
        change_types: ChangeTypes::TableAndOperation,
    }
}

fn binary() -> pipeline::CloudEvents {
    pipeline::CloudEvents {
        mode: CloudEventsMode::Binary,
        ..structured()
    }
}

/// An outbox processor that adds no headers of its own.
fn quiet(raw_payload: bool) -> pipeline::Outbox {
    let header_names = pipeline::HeaderNames {
        event_id: None,
        aggregate_type: None,
        aggregate_id: None,
        event_type: None,
    };
    pipeline::Outbox {
        header_names,
        raw_payload,
        ..outbox()
    }
}

fn process_by(outbox: pipeline::Outbox, config: pipeline::CloudEvents, event: ChangeEvent) -> Record {
    published(chain(vec![outbox], &sink_in(Config::CloudEvents(config))).process(event))
}

fn process(config: pipeline::CloudEvents, event: ChangeEvent) -> Record {
    process_by(quiet(false), config, event)
}

fn value(record: &Record) -> &str {
    std::str::from_utf8(record.value.as_ref().expect("a value")).expect("text")
}

fn headers(record: &Record) -> Vec<(&str, &str)> {
    let headers = record.headers.iter();
    headers
        .map(|header| {
            let value = header.value.as_ref().expect("a value");
            (&*header.name, std::str::from_utf8(value).expect("text"))
        })
        .collect()
}

fn orders(operation: Operation) -> ChangeEvent {
    let table = table("orders", &[("id", ColumnKind::Integer)]);
    let (old, new) = (Some(vec![text("1")]), Some(vec![text("2")]));
    match operation {
        Operation::Insert => row(Selection::Table, operation, &table, None, new),
        Operation::Update => row(Selection::Table, operation, &table, old, new),
        Operation::Delete => row(Selection::Table, operation, &table, old, None),
        Operation::Truncate => row(Selection::Table, operation, &table, None, None),
    }
}

/// A change as its data.
fn native(event: ChangeEvent) -> String {
    let record = published(chain(vec![], &sink(Some("t"), None)).process(event));
    String::from_utf8(record.value.unwrap().to_vec()).unwrap()
}

const OPERATIONS: [(Operation, &str); 4] = [
    (Operation::Insert, "created"),
    (Operation::Update, "updated"),
    (Operation::Delete, "deleted"),
    (Operation::Truncate, "truncated"),
];

#[test]
fn a_table_s_change_is_a_structured_event() {
    for (operation, word) in OPERATIONS {
        let record = process(structured(), orders(operation));
        let data = native(orders(operation));
        assert_eq!(
            value(&record),
            format!(
                r#"{{"specversion":"1.0","id":"{ID}","source":"/tailpost/pg1/public.orders","type":"tailpost.public.orders.{word}","subject":"public.orders","time":"{TIME}","datacontenttype":"application/json","data":{data}}}"#
            )
        );
        assert_eq!(headers(&record), STRUCTURED_HEADERS);
    }
    let key = process(structured(), orders(Operation::Insert)).key.unwrap();
    assert_eq!(key, r#"{"id":2}"#, "as without an envelope");
}

#[test]
fn a_table_s_change_is_a_binary_event() {
    for (operation, word) in OPERATIONS {
        let record = process(binary(), orders(operation));
        assert_eq!(value(&record), native(orders(operation)));
        let kind = format!("tailpost.public.orders.{word}");
        assert_eq!(
            headers(&record),
            [
                ("ce_specversion", "1.0"),
                ("ce_id", ID),
                ("ce_source", "/tailpost/pg1/public.orders"),
                ("ce_type", &kind),
                ("ce_subject", "public.orders"),
                ("ce_time", TIME),
                ("content-type", "application/json"),
            ]
        );
    }
}

#[test]
fn source_and_type_can_be_the_file_s() {
    let config = pipeline::CloudEvents {
        type_prefix: Some("com.acme".to_owned()),
        source: Some("https://acme.example/shop?a=1".to_owned()),
        ..binary()
    };
    let record = process(config.clone(), orders(Operation::Delete));
    assert_eq!(header(&record, "ce_source"), Some("https://acme.example/shop?a=1"));
    assert_eq!(header(&record, "ce_type"), Some("com.acme.public.orders.deleted"));
    let record = process(config.clone(), message(r#"{"payload":1,"event_type":"Placed"}"#));
    assert_eq!(header(&record, "ce_source"), Some("https://acme.example/shop?a=1"));
    assert_eq!(header(&record, "ce_type"), Some("com.acme.Placed"));

    let theirs = pipeline::CloudEvents {
        change_types: ChangeTypes::Operation,
        ..config
    };
    let record = process(theirs, orders(Operation::Delete));
    assert_eq!(header(&record, "ce_type"), Some("com.acme.deleted"));
}

const PLACED: &str = r#"{"id":"7f","aggregate_type":"Order","aggregate_id":42,"event_type":"Placed","payload": { "n" : 1.10, "n" : 2 }}"#;

#[test]
fn an_outbox_event_is_a_structured_event_around_its_payload() {
    let record = process(structured(), message(PLACED));
    assert_eq!(
        value(&record),
        format!(
            r#"{{"specversion":"1.0","id":"7f","source":"/tailpost/pg1/outbox","type":"Placed","subject":"42","time":"{TIME}","datacontenttype":"application/json","data":{{ "n" : 1.10, "n" : 2 }}}}"#
        )
    );
    assert_eq!(headers(&record), STRUCTURED_HEADERS);
    assert_eq!(record.key.as_deref(), Some(&b"42"[..]));
}

#[test]
fn an_outbox_event_without_its_fields_is_an_event_still() {
    for content in [
        r#"{"payload":null}"#,
        r#"{"payload":null,"id":"","event_type":"","aggregate_id":""}"#,
        r#"{"payload":null,"id":null,"event_type":{},"aggregate_id":[]}"#,
    ] {
        let record = process(structured(), message(content));
        assert_eq!(
            value(&record),
            format!(
                r#"{{"specversion":"1.0","id":"{ID}","source":"/tailpost/pg1/outbox","type":"tailpost.outbox.created","time":"{TIME}","datacontenttype":"application/json","data":null}}"#
            )
        );
    }
}

#[test]
fn a_payload_s_bytes_that_are_no_json_go_in_as_base64() {
    let bytes = |bytes: &'static [u8]| Value::Bytes(Bytes::from_static(bytes));
    for (kind, cell, data) in [
        (
            ColumnKind::Json,
            text(r#"{"a": 1}"#),
            r#""application/json","data":{"a": 1}"#,
        ),
        (ColumnKind::Text, text(" [1 ]"), r#""application/json","data": [1 ]"#),
        (
            ColumnKind::Text,
            text("plain"),
            r#""application/octet-stream","data_base64":"cGxhaW4=""#,
        ),
        (
            ColumnKind::Text,
            text(""),
            r#""application/octet-stream","data_base64":"""#,
        ),
        (
            ColumnKind::Binary,
            bytes(b"\x00\xff"),
            r#""application/octet-stream","data_base64":"AP8=""#,
        ),
        (
            ColumnKind::Binary,
            bytes(br#"{"a":1}"#),
            r#""application/json","data":{"a":1}"#,
        ),
        (ColumnKind::Numeric, text("1.50"), r#""application/json","data":"1.50""#),
        (ColumnKind::Boolean, text("t"), r#""application/json","data":true"#),
        (ColumnKind::Text, Value::Null, r#""application/json","data":null"#),
    ] {
        let event = outbox_row(&[("id", ColumnKind::Integer, text("1")), ("payload", kind, cell)]);
        assert_eq!(
            value(&process(structured(), event)),
            format!(
                r#"{{"specversion":"1.0","id":"1","source":"/tailpost/pg1/public.orders_outbox","type":"tailpost.public.orders_outbox.created","time":"{TIME}","datacontenttype":{data}}}"#
            )
        );
    }
}

#[test]
fn a_binary_event_s_value_is_the_payload_untouched() {
    for raw_payload in [false, true] {
        let record = process_by(quiet(raw_payload), binary(), message(PLACED));
        assert_eq!(value(&record), r#"{ "n" : 1.10, "n" : 2 }"#);
        assert_eq!(
            headers(&record),
            [
                ("ce_specversion", "1.0"),
                ("ce_id", "7f"),
                ("ce_source", "/tailpost/pg1/outbox"),
                ("ce_type", "Placed"),
                ("ce_subject", "42"),
                ("ce_time", TIME),
                ("content-type", "application/json"),
            ]
        );
        for (cell, content_type) in [
            (text("plain"), Some("application/octet-stream")),
            (text("{\"a\" :1}"), Some("application/json")),
            (
                Value::Bytes(Bytes::from_static(b"\x00\xff")),
                Some("application/octet-stream"),
            ),
            (Value::Null, None),
        ] {
            let bytes = match &cell {
                Value::Text(bytes) | Value::Bytes(bytes) => Some(bytes.clone()),
                _ => None,
            };
            let record = process_by(
                quiet(raw_payload),
                binary(),
                outbox_row(&[("payload", ColumnKind::Text, cell)]),
            );
            assert_eq!(record.value, bytes);
            assert_eq!(header(&record, "content-type"), content_type);
        }
    }
    let shaped = pipeline::Outbox {
        payload_as: PayloadAs::JsonString,
        ..quiet(true)
    };
    let record = process_by(shaped, binary(), message("plain"));
    assert_eq!(value(&record), r#""plain""#);
    assert_eq!(
        header(&record, "content-type"),
        Some("application/json"),
        "of the value, not of the payload"
    );
}

#[test]
fn a_raw_payload_is_no_structured_event() {
    let record = process_by(quiet(true), structured(), message(PLACED));
    assert_eq!(value(&record), r#"{ "n" : 1.10, "n" : 2 }"#);
    assert_eq!(headers(&record), []);
}

#[test]
fn an_event_s_own_time_is_its_time() {
    let outbox = pipeline::Outbox {
        columns: pipeline::Columns {
            timestamp: Some(TimestampColumn {
                name: "at".to_owned(),
                unit: None,
            }),
            ..pipeline::Columns::default()
        },
        ..quiet(false)
    };
    let record = process_by(
        outbox,
        binary(),
        message(r#"{"payload":1,"at":"2020-01-02T03:04:05.678901Z"}"#),
    );
    assert_eq!(header(&record, "ce_time"), Some("2020-01-02T03:04:05.678000Z"));
    assert_eq!(record.timestamp_ms, 1_577_934_245_678);
}

#[test]
fn headers_of_the_processor_come_first_and_those_of_the_event_do_not_double_ours() {
    let outbox = pipeline::Outbox {
        additional_headers: vec![("ce_tenant".to_owned(), "tenant".to_owned())],
        columns: pipeline::Columns {
            headers: Some("meta".to_owned()),
            ..pipeline::Columns::default()
        },
        raw_payload: true,
        ..pipeline::Outbox {
            header_names: pipeline::HeaderNames::default(),
            ..quiet(true)
        }
    };
    let content = r#"{"id":"7f","payload":1,"tenant":"a","meta":{"ce_id":"x","content-type":"y","ce_extra":"z"}}"#;
    let record = process_by(outbox, binary(), message(content));
    let names: Vec<&str> = record.headers.iter().map(|header| &*header.name).collect();
    assert_eq!(
        names,
        [
            "df-event-id",
            "ce_tenant",
            "ce_specversion",
            "ce_id",
            "ce_source",
            "ce_type",
            "ce_time",
            "content-type",
            "ce_extra"
        ]
    );
    assert_eq!(header(&record, "ce_id"), Some("7f"));
}

#[test]
fn names_are_written_so_that_they_are_legal() {
    let table = table("ord ers/é%\u{1}", &[("id", ColumnKind::Integer)]);
    let event = || row(Selection::Table, Operation::Insert, &table, None, Some(vec![text("1")]));
    let record = process(binary(), event());
    assert_eq!(
        header(&record, "ce_source"),
        Some("/tailpost/pg1/public.ord%20ers%2F%C3%A9%25%01")
    );
    assert_eq!(header(&record, "ce_subject"), Some("public.ord ers/é%%01"));
    assert_eq!(
        header(&record, "ce_type"),
        Some("tailpost.public.ord ers/é%%01.created")
    );
    let json: Json = serde_json::from_str(value(&process(structured(), event()))).unwrap();
    assert_eq!(json["source"], "/tailpost/pg1/public.ord%20ers%2F%C3%A9%25%01");
}

#[test]
fn an_attribute_that_no_cloudevent_may_have_is_invalid() {
    for (member, attribute) in [("id", "id"), ("event_type", "type"), ("aggregate_id", "subject")] {
        for character in [
            "\\n",
            "\\u0000",
            "\u{7f}",
            "\u{85}",
            "\u{fffe}",
            "\u{fdd0}",
            "\u{1ffff}",
        ] {
            let content = format!(r#"{{"payload":1,"{member}":"a{character}"}}"#);
            for config in [structured(), binary()] {
                let mut chain = chain(vec![quiet(false)], &sink_in(Config::CloudEvents(config)));
                let (kind, text) = failed(chain.process(message(content.clone())));
                assert_eq!(kind, ErrorKind::Invalid);
                assert!(text.contains(&format!("attribute `{attribute}` has")), "{text}");
            }
        }
    }
    let fine = r#"{"payload":1,"id":"a b","event_type":"é😀","aggregate_id":"\u00a0"}"#;
    process(binary(), message(fine));
}

#[test]
fn tables_and_prefixes_that_alternate_keep_what_is_theirs() {
    let mut chain = chain(vec![quiet(false)], &sink_in(Config::CloudEvents(binary())));
    let other = table("lines", &[("id", ColumnKind::Integer)]);
    for _ in 0..2 {
        for (event, source) in [
            (orders(Operation::Insert), "/tailpost/pg1/public.orders"),
            (
                row(Selection::Table, Operation::Insert, &other, None, Some(vec![text("1")])),
                "/tailpost/pg1/public.lines",
            ),
            (message_to("a", "1"), "/tailpost/pg1/a"),
            (message_to("b.c", "1"), "/tailpost/pg1/b.c"),
            (
                outbox_row(&[("payload", ColumnKind::Text, text("1"))]),
                "/tailpost/pg1/public.orders_outbox",
            ),
        ] {
            assert_eq!(header(&published(chain.process(event)), "ce_source"), Some(source));
        }
    }
}

proptest! {
    #[test]
    fn a_structured_event_is_json_whatever_the_fields(
        content in prop::collection::vec(any::<u8>(), 0..40),
        id in any::<Option<String>>(),
        name in any::<String>(),
    ) {
        let id = id.map_or(Value::Null, |id| text(&id));
        let cells = [("id", ColumnKind::Text, id), ("payload", ColumnKind::Binary, Value::Bytes(content.clone().into()))];
        let mut event = outbox_row(&cells);
        if let Change::Row(row) = &mut event.change {
            row.table = Arc::new(Table { name, ..Table::clone(&row.table) });
        }
        let mut chain = chain(vec![quiet(false)], &sink_in(Config::CloudEvents(structured())));
        if let Ok(outcome) = chain.process(event) {
            let record = published(Ok(outcome));
            let json: Json = serde_json::from_slice(record.value.as_ref().unwrap()).unwrap();
            prop_assert!(json.get("data").is_some() != json.get("data_base64").is_some());
            for required in ["id", "source", "type", "specversion"] {
                prop_assert!(is_legal(json[required].as_str().unwrap()) && json[required] != "");
            }
        }
    }
}
