use super::*;
use crate::config::pipeline::{
    Columns, HeaderNames, JsonAs, LeftOut, Outbox as Config, PayloadAs, TimeUnit, TimestampColumn,
};
use crate::config::{Rewrite, Route};
use crate::processor::ErrorKind;
use crate::processor::sample::*;
use crate::row::{ColumnKind, Value};

const ORDER: &str =
    r#"{"id":"7f","aggregate_type":"Order","aggregate_id":42,"event_type":"Created","payload":{"total":1.50}}"#;

fn process(config: Config, content: &str) -> Record {
    published(only(config).process(message(content.to_owned())))
}

fn error(config: Config, content: &str) -> (ErrorKind, String) {
    failed(only(config).process(message(content.to_owned())))
}

fn with_topic(topic: &str) -> Config {
    Config {
        topic: Some(rule(topic)),
        ..outbox()
    }
}

fn strict(topic: Option<&str>) -> Config {
    Config {
        topic: topic.map(rule),
        strict: true,
        ..outbox()
    }
}

#[test]
fn a_message_becomes_a_record() {
    let config = Config {
        additional_headers: vec![
            ("x-trace".to_owned(), "trace".to_owned()),
            ("x-type".to_owned(), "event_type".to_owned()),
            ("x-none".to_owned(), "none".to_owned()),
        ],
        ..with_topic("${aggregate_type}.${event_type}")
    };
    let record = process(
        config,
        &ORDER.replace("\"id\"", "\"trace\": true, \"none\": null, \"id\""),
    );
    assert_eq!(&*record.topic, "Order.Created");
    assert_eq!(record.key.as_deref(), Some(&b"42"[..]));
    assert_eq!(record.value.as_deref(), Some(&b"{\"total\":1.50}"[..]));
    assert_eq!(record.timestamp_ms, 1_700_000_000_123);
    let headers: Vec<_> = record
        .headers
        .iter()
        .map(|header| {
            (
                &*header.name,
                std::str::from_utf8(header.value.as_ref().unwrap()).unwrap(),
            )
        })
        .collect();
    assert_eq!(
        headers,
        [
            ("df-event-id", "7f"),
            ("df-aggregate-type", "Order"),
            ("df-aggregate-id", "42"),
            ("df-event-type", "Created"),
            ("x-trace", "true"),
            ("x-type", "Created"),
        ]
    );
}

#[test]
fn payloads_are_the_application_s_bytes() {
    let payloads = [
        r#"{"tags":[]}"#,
        r#"{"a":null}"#,
        r#"{"a":[1,2.5]}"#,
        r#"{"n":12345678901234567890.10}"#,
        r#"{"a":1,"a":2}"#,
        "{ \"b\" :\t1 ,\r\n \"a\": [ ] }",
        r#""quoted \u00e9 \ud800""#,
        "-0.0e-10",
        "false",
        "[]",
        "\"\"",
    ];
    for payload in payloads {
        for content in [
            format!("{{\"payload\":{payload}}}"),
            format!(" \r\n{{ \"payload\" :\t{payload}\n, \"x\" : {{}} }} "),
            format!("{{\"payload\":0,\"payload\":{payload}}}"),
            format!("{{\"p\\u0061yload\":{payload}}}"),
        ] {
            assert_eq!(
                process(outbox(), &content).value.as_deref(),
                Some(payload.as_bytes()),
                "{content}"
            );
        }
        let row = outbox_row(&[("payload", ColumnKind::Json, text(payload))]);
        assert_eq!(
            published(only(outbox()).process(row)).value.as_deref(),
            Some(payload.as_bytes())
        );
    }
}

#[test]
fn the_value_shares_the_message_s_memory() {
    let content = Bytes::from(ORDER.to_owned());
    let value = published(only(outbox()).process(message(content.clone())))
        .value
        .unwrap();
    assert!(content.as_ptr_range().contains(&value.as_ptr()));
}

#[test]
fn a_message_that_is_no_object_is_all_payload() {
    let contents: [&[u8]; 11] = [
        b"",
        b" ",
        b"text",
        b"[1, 2]",
        b"\"s\"",
        b"null",
        b"{\"payload\":1",
        b"{\"payload\":1} x",
        b"\xff\x00{}",
        b"{\"payload\":\"\xff\"}",
        b"\x5c\x00",
    ];
    for content in contents {
        let mut chain = only(with_topic("${aggregate_type}"));
        let record = published(chain.process(message(content)));
        assert_eq!(record.value.as_deref(), Some(content));
        assert_eq!(
            (&*record.topic, record.key, record.headers.len()),
            ("events.default", None, 1)
        );
    }
}

#[test]
fn a_missing_payload_is_invalid_and_a_null_one_a_tombstone() {
    for content in ["{}", r#"{"aggregate_id":"1","Payload":2}"#] {
        let (kind, text) = error(outbox(), content);
        assert_eq!(kind, ErrorKind::Invalid);
        assert!(
            text.contains("`payload`") && text.contains("`columns.payload`"),
            "{text}"
        );
    }
    assert_eq!(process(outbox(), r#"{"payload":null}"#).value, None);
    assert_eq!(
        process(outbox(), r#"{"payload":""}"#).value.as_deref(),
        Some(&b"\"\""[..])
    );

    let cell = |value| published(only(outbox()).process(outbox_row(&[("payload", ColumnKind::Text, value)]))).value;
    assert_eq!(cell(Value::Null), None);
    assert_eq!(cell(text("")).as_deref(), Some(&b""[..]));
    assert_eq!(
        cell(Value::Bytes(Bytes::from_static(b"\\\0"))).as_deref(),
        Some(&b"\\\0"[..])
    );
    for absent in [
        outbox_row(&[("id", ColumnKind::Text, text("1"))]),
        outbox_row(&[("payload", ColumnKind::Text, Value::Absent)]),
        outbox_row(&[("payload", ColumnKind::Text, Value::Unchanged)]),
    ] {
        assert_eq!(failed(only(outbox()).process(absent)).0, ErrorKind::Invalid);
    }
    let json_null = outbox_row(&[("payload", ColumnKind::Json, text("null"))]);
    assert_eq!(
        published(only(outbox()).process(json_null)).value.as_deref(),
        Some(&b"null"[..])
    );
}

#[test]
fn large_and_deep_payloads_go_through() {
    let payloads = [
        format!("\"{}\"", "x".repeat(10 << 20)),
        format!("{}{}", "[".repeat(200), "]".repeat(200)),
        format!("{}1{}", "{\"a\":".repeat(500_000), "}".repeat(500_000)),
    ];
    for payload in payloads {
        let content = format!("{{\"aggregate_type\":\"Order\",\"payload\":{payload},\"aggregate_id\":\"1\"}}");
        let record = process(with_topic("${aggregate_type}"), &content);
        assert_eq!(&*record.topic, "Order");
        assert!(record.value.unwrap() == payload.as_bytes());
        let enveloped = process(
            Config {
                raw_payload: false,
                ..outbox()
            },
            &content,
        )
        .value
        .unwrap();
        assert!(enveloped.starts_with(format!("{{\"before\":null,\"after\":{payload},").as_bytes()));
    }
}

#[test]
fn a_field_without_text_fails_the_topic_template() {
    for value in ["null", "\"\"", "{}", "[]", "{\"a\":1}"] {
        let content = format!("{{\"payload\":1,\"aggregate_type\":{value},\"topic\":\"own\"}}");
        assert_eq!(
            &*process(with_topic("Order.${aggregate_type}"), &content).topic,
            "own",
            "{value}"
        );
    }
    assert_eq!(
        &*process(with_topic("Order.${aggregate_type}"), r#"{"payload":1}"#).topic,
        "events.default"
    );
    for (value, topic) in [
        ("12", "a.12"),
        ("true", "a.true"),
        ("1.50", "a.1.50"),
        (r#""\u0041""#, "a.A"),
    ] {
        let content = format!("{{\"payload\":1,\"t\":{value}}}");
        assert_eq!(&*process(with_topic("a.${t}"), &content).topic, topic);
    }
}

#[test]
fn the_topic_s_steps_come_in_order() {
    let full = || Config {
        default_topic: Some("default".to_owned()),
        ..with_topic("${t}")
    };
    let topic = |config: Config, sink_topic: Option<&str>, content: &'static str| {
        chain(vec![config], &sink(sink_topic, None)).process(message(content))
    };
    let all = r#"{"t":"template","topic":"column","s":"sink","payload":1}"#;
    let none = r#"{"topic":null,"s":"sink","payload":1}"#;
    assert_eq!(&*published(topic(full(), Some("${s}"), all)).topic, "template");
    assert_eq!(
        &*published(topic(Config { topic: None, ..full() }, Some("${s}"), all)).topic,
        "column"
    );
    assert_eq!(&*published(topic(full(), Some("${s}"), none)).topic, "default");
    let no_default = || Config {
        default_topic: None,
        ..full()
    };
    assert_eq!(&*published(topic(no_default(), Some("x.${s}"), none)).topic, "x.sink");
    assert_eq!(
        &*published(topic(no_default(), Some("fallback"), "text")).topic,
        "fallback"
    );

    let (kind, text) = failed(topic(no_default(), Some("${source.schema}"), none));
    assert_eq!(kind, ErrorKind::Unroutable);
    assert!(
        text.ends_with(
            "it has no topic: the processor's `topic` finds no text in `t`, there is none in `topic`, and the sink's \
         `topic` finds none in `source.schema`; set `default_topic` of the outbox processor or `topic` of the sink"
        ),
        "{text}"
    );
    let (kind, text) = failed(topic(
        Config {
            topic: None,
            ..no_default()
        },
        None,
        none,
    ));
    assert_eq!(kind, ErrorKind::Unroutable);
    assert!(
        text.contains("the processor has no `topic`") && text.contains("the sink has no `topic`"),
        "{text}"
    );
}

/// Those topics hold changes of rows, in the sink's envelope.
#[test]
fn an_outbox_event_never_goes_to_a_topic_that_is_made_for_tables() {
    let without_topic = || Config {
        default_topic: None,
        ..outbox()
    };
    let events = [
        message(r#"{"s":"own","payload":1}"#),
        outbox_row(&[
            ("payload", ColumnKind::Text, text("1")),
            ("s", ColumnKind::Text, text("own")),
        ]),
    ];
    for event in events {
        let process = |topic: &str| {
            let topic = sink(Some(topic), None);
            chain_beside_tables(without_topic(), &topic).process(event.clone())
        };
        for topic in [
            "cdc.${source.table}",
            "cdc.${source.name}.${source.schema}.${source.table}",
            "${op}",
        ] {
            let (kind, text) = failed(process(topic));
            assert_eq!(kind, ErrorKind::Unroutable);
            for part in ["the sink's `topic` takes no field of the event", "default_topic"] {
                assert!(text.contains(part), "{text}");
            }
            assert!(
                chain(vec![without_topic()], &sink(Some("t.${source.table}"), None))
                    .process(event.clone())
                    .is_ok()
            );
        }
        assert_eq!(&*published(process("constant")).topic, "constant");
        assert!(published(process("${source.table}.${s}")).topic.ends_with(".own"));
        // The rows' own changes are not touched by it.
        let topic = sink(Some("cdc.${source.table}"), None);
        let change = row(
            Selection::Table,
            Operation::Insert,
            &table("orders", &[("id", ColumnKind::Integer)]),
            None,
            Some(vec![text("1")]),
        );
        assert_eq!(
            &*published(chain_beside_tables(without_topic(), &topic).process(change)).topic,
            "cdc.orders"
        );
    }
}

#[test]
fn the_topic_column_can_have_another_name_and_must_be_text() {
    let mut config = outbox();
    config.columns.topic = Some("destination".to_owned());
    for (value, topic) in [
        ("\"a\"", "a"),
        ("7", "7"),
        ("\"\"", "events.default"),
        ("{}", "events.default"),
    ] {
        let content = format!("{{\"payload\":1,\"destination\":{value},\"topic\":\"not-me\"}}");
        assert_eq!(&*process(config.clone(), &content).topic, topic);
    }
}

#[test]
fn a_topic_that_kafka_refuses_is_unroutable_and_no_later_step_hides_it() {
    for value in [" ", "a b", "..", "é", "a/b", &"x".repeat(250)] {
        let content = format!("{{\"payload\":1,\"t\":\"{value}\",\"topic\":\"fine\"}}");
        let (kind, text) = error(with_topic("${t}"), &content);
        assert_eq!(kind, ErrorKind::Unroutable, "{value}");
        assert!(text.contains("`topic: ${t}`"), "{text}");
        assert!(value == " " || value == ".." || !text.contains(value), "{text}");
        let (kind, text) = error(outbox(), &content.replace("fine", value));
        assert_eq!(kind, ErrorKind::Unroutable);
        assert!(
            text.contains("the field `topic` gives a topic that kafka does not allow"),
            "{text}"
        );
    }
    let blank = Config {
        default_topic: Some("a, b".to_owned()),
        ..outbox()
    };
    assert_eq!(error(blank, "x").0, ErrorKind::Unroutable);
}

#[test]
fn strict_wants_a_topic_of_the_first_two_steps_and_all_fields() {
    assert_eq!(&*process(strict(Some("${event_type}")), ORDER).topic, "Created");
    let own = ORDER.replace("\"id\"", "\"topic\":\"own\",\"id\"");
    assert_eq!(&*process(strict(Some("${x}")), &own).topic, "own");

    let (kind, text) = error(strict(Some("${x}")), ORDER);
    assert_eq!(kind, ErrorKind::Invalid);
    assert!(
        text.contains("`strict` found no topic: the processor's `topic` finds no text in `x`"),
        "{text}"
    );
    assert!(text.ends_with("for `default_topic` and the sink's `topic`"), "{text}");
    assert_eq!(error(strict(None), ORDER).0, ErrorKind::Invalid);

    for field in ["aggregate_type", "aggregate_id", "event_type", "payload"] {
        let content = ORDER.replace(&format!("\"{field}\""), "\"other\"");
        let (kind, text) = error(strict(Some("t")), &content);
        assert_eq!(kind, ErrorKind::Invalid);
        assert!(text.contains(&format!("`{field}`")), "{text}");
    }
    for value in ["null", "\"\"", "{}"] {
        assert_eq!(
            error(strict(Some("t")), &ORDER.replace("42", value)).0,
            ErrorKind::Invalid
        );
    }
    let (_, text) = error(strict(Some("t")), r#"{"payload":1}"#);
    assert!(
        text.contains("in `aggregate_type`, `aggregate_id`, `event_type`: expected"),
        "{text}"
    );
    assert_eq!(error(strict(Some("t")), "no object").0, ErrorKind::Invalid);
    assert_eq!(
        process(strict(Some("t")), &ORDER.replace(r#"{"total":1.50}"#, "null")).value,
        None
    );
}

#[test]
fn keys_are_text_of_the_template_or_of_the_aggregate_id() {
    let key = |template_text: Option<&str>, sink_key: Option<&str>, content: &'static str| {
        let config = Config {
            key: template_text.map(template),
            ..outbox()
        };
        let record = published(chain(vec![config], &sink(None, sink_key)).process(message(content)));
        record.key.map(|key| String::from_utf8(key.to_vec()).unwrap())
    };
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(key(None, None, r#"{"payload":1,"aggregate_id":"a\u00e9"}"#), some("aé"));
    assert_eq!(key(None, None, r#"{"payload":1,"aggregate_id":1.0}"#), some("1.0"));
    for none in [
        r#"{"payload":1}"#,
        r#"{"payload":1,"aggregate_id":null}"#,
        r#"{"payload":1,"aggregate_id":{}}"#,
        r#"{"payload":1,"aggregate_id":""}"#,
    ] {
        assert_eq!(key(None, None, none), None);
    }
    let nested = r#"{"payload":{"customer":{"id":7}},"aggregate_id":"1"}"#;
    assert_eq!(key(Some("c-${payload.customer.id}"), None, nested), some("c-7"));
    assert_eq!(key(Some("c-${payload.customer.name}"), None, nested), None);
    assert_eq!(
        key(Some("c-${payload.customer.name}"), Some("${aggregate_id}"), nested),
        some("1")
    );
    assert_eq!(key(None, Some("s-${payload.customer.id}"), nested), some("1"));
    assert_eq!(
        key(
            None,
            Some("s-${payload.customer.id}"),
            r#"{"payload":{"customer":{"id":7}}}"#
        ),
        some("s-7")
    );
}

#[test]
fn an_event_id_is_the_field_or_comes_from_the_position() {
    let id = |value: &str| {
        let record = process(outbox(), &format!("{{\"payload\":1,\"id\":{value}}}"));
        header(&record, "df-event-id").map(str::to_owned)
    };
    assert_eq!(id("5").as_deref(), Some("5"));
    for none in ["null", "\"\"", "{}", "[]"] {
        assert_eq!(id(none).as_deref(), Some("00000016B374D848-00000016B374D800-2"));
    }
}

#[test]
fn headers_keep_empty_texts_and_leave_out_what_is_no_text() {
    let record = process(outbox(), r#"{"payload":1,"aggregate_type":"","event_type":[]}"#);
    assert_eq!(header(&record, "df-aggregate-type"), Some(""));
    assert_eq!(header(&record, "df-event-type"), None);
    assert_eq!(header(&record, "df-aggregate-id"), None);
}

#[test]
fn half_a_surrogate_pair_is_invalid_only_where_text_is_needed() {
    let (kind, text) = error(outbox(), r#"{"payload":1,"aggregate_type":"se\ud800cret"}"#);
    assert_eq!(kind, ErrorKind::Invalid);
    assert!(
        text.contains("`aggregate_type` is no text") && !text.contains("cret"),
        "{text}"
    );
    assert_eq!(
        error(with_topic("${a}"), r#"{"payload":1,"a":"\udc00"}"#).0,
        ErrorKind::Invalid
    );
    assert_eq!(
        process(outbox(), r#"{"payload":"\ud800","\ud800":1,"x":"\udc00"}"#)
            .value
            .as_deref(),
        Some(&br#""\ud800""#[..])
    );
}

#[test]
fn rows_have_their_columns_for_fields() {
    let uuid = Value::Bytes(Bytes::from_static(&[0xAB; 16]));
    let cells = [
        ("id", ColumnKind::Uuid, text("11111111-2222-3333-4444-555555555555")),
        ("aggregate_type", ColumnKind::Text, text("Order")),
        ("aggregate_id", ColumnKind::Binary, uuid),
        ("event_type", ColumnKind::Boolean, text("t")),
        ("payload", ColumnKind::Json, text("{\"customer\": {\"id\": 1.0}}")),
        ("extra", ColumnKind::Json, text("\"unquoted\"")),
    ];
    let config = Config {
        additional_headers: vec![("x".to_owned(), "extra".to_owned())],
        ..with_topic("${aggregate_type}.${event_type}.${payload.customer.id}")
    };
    let record = published(only(config).process(outbox_row(&cells)));
    assert_eq!(&*record.topic, "Order.true.1.0");
    assert_eq!(
        record.key.as_deref(),
        Some(&b"abababab-abab-abab-abab-abababababab"[..])
    );
    assert_eq!(
        header(&record, "df-event-id"),
        Some("11111111-2222-3333-4444-555555555555")
    );
    assert_eq!(
        header(&record, "df-aggregate-id"),
        Some("abababab-abab-abab-abab-abababababab")
    );
    assert_eq!(header(&record, "df-event-type"), Some("true"));
    assert_eq!(header(&record, "x"), Some("unquoted"));
}

#[test]
fn columns_are_looked_up_anew_when_the_table_changes() {
    let mut chain = only(with_topic("${aggregate_type}"));
    let one = outbox_row(&[
        ("aggregate_type", ColumnKind::Text, text("A")),
        ("payload", ColumnKind::Text, text("1")),
    ]);
    let two = outbox_row(&[
        ("payload", ColumnKind::Text, text("2")),
        ("aggregate_type", ColumnKind::Text, text("B")),
    ]);
    for (event, topic, value) in [(&one, "A", "1"), (&one, "A", "1"), (&two, "B", "2"), (&one, "A", "1")] {
        let record = published(chain.process(event.clone()));
        assert_eq!(
            (&*record.topic, record.value.as_deref()),
            (topic, Some(value.as_bytes()))
        );
    }
}

#[test]
fn an_insert_without_a_row_is_invalid() {
    let table = table("orders_outbox", &[("payload", ColumnKind::Text)]);
    for after in [None, Some(vec![])] {
        let event = row(Selection::Outbox, Operation::Insert, &table, None, after);
        assert_eq!(failed(only(outbox()).process(event)).0, ErrorKind::Invalid);
    }
}

#[test]
fn timestamps_round_down() {
    for (micros, millis) in [(1_999, 1), (-1, -1), (-1_000, -1), (i64::MIN, i64::MIN / 1000 - 1)] {
        let mut event = message("x");
        event.commit_time_us = micros;
        assert_eq!(published(only(outbox()).process(event)).timestamp_ms, millis);
    }
}

#[test]
fn enveloped_payloads_are_json_or_become_a_json_string() {
    let config = || Config {
        raw_payload: false,
        ..outbox()
    };
    let tail = r#""lsn":97500059648,"txId":731,"ts_ms":1700000000123},"op":"c","ts_ms":1700000000123}"#;
    let start = format!(
        r#""source":{{"version":"{}","connector":"postgresql","name":"pg1","#,
        env!("CARGO_PKG_VERSION")
    );
    for (content, after) in [
        (r#"{"payload":{"n": 1.10, "n": 2}}"#, r#"{"n": 1.10, "n": 2}"#),
        (r#"{"payload":null}"#, "null"),
        ("[ 1 ]", "[ 1 ]"),
        ("te\"xt", r#""te\"xt""#),
        ("", r#""""#),
        ("{\"payload\":1", r#""{\"payload\":1""#),
    ] {
        let value = process(config(), content).value.unwrap();
        let expected = format!(r#"{{"before":null,"after":{after},{start}"table":"outbox",{tail}"#);
        assert_eq!(std::str::from_utf8(&value).unwrap(), expected);
    }
    for (kind, cell, after) in [
        (ColumnKind::Json, text("{\"a\" :1}"), "{\"a\" :1}"),
        (ColumnKind::Text, text("{\"a\" :1}"), "{\"a\" :1}"),
        (ColumnKind::Text, text("{a}"), "\"{a}\""),
        (ColumnKind::Numeric, text("1.10"), "\"1.10\""),
        (ColumnKind::Boolean, text("f"), "false"),
        (ColumnKind::Binary, Value::Bytes(Bytes::from_static(b"[1]")), "[1]"),
        (ColumnKind::Binary, Value::Bytes(Bytes::from_static(b"[1")), "\"[1\""),
        (ColumnKind::Text, Value::Null, "null"),
    ] {
        let value = published(only(config()).process(outbox_row(&[("payload", kind, cell)])))
            .value
            .unwrap();
        let place = r#""db":"shop","schema":"public","table":"orders_outbox","#;
        let expected = format!(r#"{{"before":null,"after":{after},{start}{place}{tail}"#);
        assert_eq!(std::str::from_utf8(&value).unwrap(), expected);
    }
}

#[test]
fn bytes_that_an_envelope_cannot_hold_are_invalid() {
    let config = || Config {
        raw_payload: false,
        ..outbox()
    };
    let bytes = || Value::Bytes(Bytes::from_static(b"\xff"));
    let row = outbox_row(&[("payload", ColumnKind::Binary, bytes())]);
    for event in [message(&b"\xff"[..]), row] {
        let (kind, text) = failed(only(config()).process(event));
        assert_eq!(kind, ErrorKind::Invalid);
        assert!(text.contains("`raw_payload: true`"), "{text}");
    }
}

fn with_route(regex: &str, replacement: &str) -> Config {
    let rewrite = Rewrite::new(regex, &template(replacement)).unwrap();
    Config {
        topic: Some(TopicRule::Route(Route::new("event_type".to_owned(), rewrite))),
        default_topic: None,
        ..outbox()
    }
}

#[test]
fn a_route_makes_the_topic_of_one_field() {
    let topic = |event_type: &str| {
        let config = with_route(r"(?<area>.*)\.(.*)", "${2}.from.${area}");
        let content = format!(r#"{{"event_type": {event_type}, "payload": 1}}"#);
        only(config).process(message(content))
    };
    assert_eq!(&*published(topic(r#""sales.order""#)).topic, "order.from.sales");
    assert_eq!(&*published(topic("1.5")).topic, "5.from.1");
    let (kind, text) = failed(topic(r#""nodots""#));
    assert_eq!(kind, ErrorKind::Unroutable);
    assert!(
        text.contains("`route.regex` does not match what is in `event_type`"),
        "{text}"
    );
    let (kind, text) = failed(topic("null"));
    assert_eq!(kind, ErrorKind::Unroutable);
    assert!(text.contains("`route` finds no text in `event_type`"), "{text}");
    let (kind, text) = failed(topic(r#""a b.c""#));
    assert_eq!(kind, ErrorKind::Unroutable);
    assert!(
        text.contains("the processor's `route` gives a topic that kafka does not allow"),
        "{text}"
    );
}

#[test]
fn a_route_is_the_first_step_and_takes_empty_text() {
    let topic = |event_type: &str| {
        let content = format!(r#"{{"event_type": {event_type}, "topic": "own", "payload": 1}}"#);
        published(only(with_route("(.*)", "event.${1}")).process(message(content))).topic
    };
    assert_eq!(&*topic(r#""""#), "event.");
    assert_eq!(&*topic(r#""a""#), "event.a");
}

#[test]
fn what_a_route_does_not_match_has_a_topic_only_where_the_processor_names_one() {
    let topic = |change: fn(&mut Config), event_type: &str| {
        let mut config = with_route("x", "y");
        change(&mut config);
        let others = r#""aggregate_type": "A", "aggregate_id": 1, "topic": "own", "payload": 1"#;
        let content = format!(r#"{{"event_type": {event_type}, {others}}}"#);
        chain(vec![config], &sink(Some("of.sink"), None)).process(message(content))
    };
    for event_type in [r#""a""#, "null"] {
        let (kind, text) = failed(topic(|_| {}, event_type));
        assert_eq!(kind, ErrorKind::Unroutable);
        assert!(
            text.ends_with("in `event_type`; set `default_topic` of the outbox processor, or let its `route` match"),
            "{text}"
        );
        let (kind, text) = failed(topic(|config| config.strict = true, event_type));
        assert_eq!(kind, ErrorKind::Invalid);
        assert!(!text.contains("`topic`"), "{text}");
        let of_topic = "in `event_type`; expected a topic there, or `strict: false` for `default_topic`";
        assert!(text.ends_with(of_topic) || event_type == "null", "{text}");
        let by_default = |config: &mut Config| config.default_topic = Some("default".to_owned());
        assert_eq!(&*published(topic(by_default, event_type)).topic, "default");
        let written = |config: &mut Config| config.columns.topic = Some("topic".to_owned());
        assert_eq!(&*published(topic(written, event_type)).topic, "own");
    }
}

#[test]
fn own_headers_can_have_other_names_or_none() {
    let config = Config {
        header_names: HeaderNames {
            event_id: Some("id".to_owned()),
            aggregate_type: None,
            aggregate_id: None,
            event_type: Some("eventType".to_owned()),
        },
        ..outbox()
    };
    let record = process(config, ORDER);
    let names: Vec<_> = record.headers.iter().map(|header| &*header.name).collect();
    assert_eq!(names, ["id", "eventType"]);
    assert_eq!(header(&record, "id"), Some("7f"));
    assert_eq!(record.key.as_deref(), Some(&b"42"[..]), "the key stays");
    let config = Config {
        header_names: HeaderNames {
            event_id: None,
            ..HeaderNames::default()
        },
        ..outbox()
    };
    assert_eq!(process(config, ORDER).headers.len(), 3);
}

#[test]
fn additional_headers_can_be_demanded_and_can_be_null() {
    let config = |on_missing, on_null| Config {
        additional_headers: vec![("x-a".to_owned(), "a".to_owned()), ("x-b".to_owned(), "b".to_owned())],
        on_missing,
        on_null,
        ..outbox()
    };
    let with_null = r#"{"a": null, "b": "", "payload": 1}"#;
    let record = process(config(OnMissing::Skip, OnNull::Skip), with_null);
    assert!(record.headers.iter().all(|header| &*header.name != "x-a"));
    let record = process(config(OnMissing::Reject, OnNull::Keep), with_null);
    let values: Vec<_> = record
        .headers
        .iter()
        .skip(1)
        .map(|header| header.value.as_deref())
        .collect();
    assert_eq!(values, [None, Some(&b""[..])]);
    let without = r#"{"a": 1, "payload": 1}"#;
    assert_eq!(
        header(&process(config(OnMissing::Skip, OnNull::Keep), without), "x-a"),
        Some("1")
    );
    let (kind, text) = error(config(OnMissing::Reject, OnNull::Keep), without);
    assert_eq!(kind, ErrorKind::Invalid);
    assert!(text.contains("there is no field `b` for the header `x-b`"), "{text}");
}

#[test]
fn whatever_the_file_places_can_be_demanded() {
    let time = TimestampColumn {
        name: "at".to_owned(),
        unit: None,
    };
    let columns = Columns {
        timestamp: Some(time),
        partition: Some("part".to_owned()),
        headers: Some("meta".to_owned()),
        trace: Some("span".to_owned()),
        ..Columns::default()
    };
    let config = |on_missing, key| Config {
        columns: columns.clone(),
        idempotency: Some(pipeline::Idempotency {
            header: "once".to_owned(),
            key,
        }),
        on_missing,
        ..outbox()
    };
    let of_column = || pipeline::IdempotencyKey::Column("request".to_owned());
    let of_hash = || pipeline::IdempotencyKey::Sha256 {
        parts: vec![template("orders"), template("${request.id}")],
        separator: "|".to_owned(),
    };
    let full = r#"{"at": null, "part": null, "meta": null, "request": null, "payload": 1}"#;
    for (field, place) in [
        ("at", "`columns.timestamp`"),
        ("part", "`columns.partition`"),
        ("meta", "`columns.headers`"),
        ("request", "the header `once`"),
    ] {
        let without = full.replace(&format!("\"{field}\""), "\"other\"");
        for key in [of_column(), of_hash()] {
            process(config(OnMissing::Reject, key.clone()), full);
            process(config(OnMissing::Skip, key.clone()), &without);
            let (kind, text) = error(config(OnMissing::Reject, key), &without);
            assert_eq!(kind, ErrorKind::Invalid);
            assert!(
                text.contains(&format!("there is no field `{field}` for {place}")),
                "{text}"
            );
        }
    }
}

#[test]
fn keys_can_be_json_and_empty() {
    let key = |config: Config, id: &str| {
        let content = format!(r#"{{"aggregate_id": {id}, "payload": 1}}"#);
        let key = process(config, &content).key;
        key.map(|key| String::from_utf8(key.to_vec()).unwrap())
    };
    let json = |keep_empty_key| Config {
        key_as: KeyAs::Json,
        keep_empty_key,
        ..outbox()
    };
    for (id, expected) in [
        (r#""4\"2""#, r#""4\"2""#),
        ("42", "42"),
        ("true", "true"),
        ("null", "null"),
        ("{}", "null"),
        (r#""""#, "null"),
    ] {
        assert_eq!(key(json(false), id).as_deref(), Some(expected), "{id}");
    }
    assert_eq!(key(json(true), r#""""#).as_deref(), Some(r#""""#));
    let text = |keep_empty_key| Config {
        keep_empty_key,
        ..outbox()
    };
    assert_eq!(key(text(false), r#""""#), None);
    assert_eq!(key(text(true), r#""""#).as_deref(), Some(""));
    assert_eq!(key(text(true), "null"), None);
    let of_template = Config {
        key: Some(template("${aggregate_id}")),
        ..json(false)
    };
    assert_eq!(
        key(of_template, "42").as_deref(),
        Some(r#""42""#),
        "a template makes text"
    );
}

#[test]
fn a_schema_stands_around_the_key() {
    let key = |id: &str| {
        let config = Config {
            key_as: KeyAs::Json,
            key_schema: Some(r#"{"type": "string", "optional": true}"#.to_owned()),
            ..outbox()
        };
        let key = process(config, &format!(r#"{{"aggregate_id": {id}, "payload": 1}}"#))
            .key
            .unwrap();
        String::from_utf8(key.to_vec()).unwrap()
    };
    for (id, expected) in [(r#""a😀""#, r#""a\uD83D\uDE00""#), ("42", "42"), ("null", "null")] {
        let expected = format!(r#"{{"schema":{{"type":"string","optional":true}},"payload":{expected}}}"#);
        assert_eq!(key(id), expected);
    }
}

#[test]
fn headers_can_be_json() {
    let config = || Config {
        headers_as: HeadersAs::Json,
        on_null: OnNull::Keep,
        columns: Columns {
            headers: Some("meta".to_owned()),
            trace: Some("trace".to_owned()),
            ..Columns::default()
        },
        additional_headers: ["n", "s", "b", "none", "missing", "o"]
            .map(|name| (format!("x-{name}"), name.to_owned()))
            .to_vec(),
        ..outbox()
    };
    let headers = |record: &Record| -> Vec<(String, String)> {
        let text = |value: &Option<Bytes>| String::from_utf8(value.as_deref().unwrap().to_vec()).unwrap();
        let headers = record.headers.iter();
        headers
            .map(|header| (header.name.to_string(), text(&header.value)))
            .collect()
    };
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let content = format!(
        r#"{{"id": "7f", "aggregate_type": "a\"b", "aggregate_id": 42, "event_type": "T", "n": 1.50, "s": "", "b": true, "none": null,
         "o": {{}}, "trace": "{parent}", "meta": {{"m": "x", "i": 7, "z": null}}, "payload": 1}}"#
    );
    let record = process(config(), &content);
    let quoted = format!("\"{parent}\"");
    let expected = [
        ("df-event-id", r#""7f""#),
        ("df-aggregate-type", r#""a\"b""#),
        ("df-aggregate-id", "42"),
        ("df-event-type", r#""T""#),
        ("x-n", "1.50"),
        ("x-s", r#""""#),
        ("x-b", "true"),
        ("x-none", "null"),
        ("traceparent", &quoted),
        ("m", r#""x""#),
        ("i", "7"),
        ("z", "null"),
    ];
    assert_eq!(
        headers(&record),
        expected.map(|(name, value)| (name.to_owned(), value.to_owned()))
    );
    assert_eq!(record.key.as_deref(), Some(&b"42"[..]), "the key has a form of its own");

    let derived = process(config(), r#"{"payload": 1}"#);
    let expected = r#""00000016B374D848-00000016B374D800-2""#;
    assert_eq!(header(&derived, "df-event-id"), Some(expected));
    let cells = [
        ("id", ColumnKind::Uuid, text("01020304-0506-0708-090a-0b0c0d0e0f10")),
        ("aggregate_id", ColumnKind::Integer, text("-7")),
        ("event_type", ColumnKind::Text, text("5")),
        ("n", ColumnKind::Numeric, text("12.50")),
        ("b", ColumnKind::Boolean, text("t")),
        ("none", ColumnKind::Text, Value::Null),
        ("payload", ColumnKind::Text, text("x")),
    ];
    let record = published(only(config()).process(outbox_row(&cells)));
    let expected = [
        ("df-event-id", r#""01020304-0506-0708-090a-0b0c0d0e0f10""#),
        ("df-aggregate-id", "-7"),
        ("df-event-type", r#""5""#),
        ("x-n", r#""12.50""#),
        ("x-b", "true"),
        ("x-none", "null"),
    ];
    assert_eq!(
        headers(&record),
        expected.map(|(name, value)| (name.to_owned(), value.to_owned()))
    );
}

#[test]
fn json_can_be_a_header_and_a_member_as_it_is_written() {
    let config = |json_as, headers_as| Config {
        json_as,
        headers_as,
        on_null: OnNull::Keep,
        header_names: HeaderNames {
            event_id: None,
            ..HeaderNames::default()
        },
        additional_headers: vec![("x".to_owned(), "j".to_owned())],
        envelope_fields: vec![("m".to_owned(), "j".to_owned())],
        columns: Columns {
            headers: Some("more".to_owned()),
            ..Columns::default()
        },
        ..outbox()
    };
    let own = |bytes: &Option<Bytes>| bytes.as_deref().map(|bytes| String::from_utf8(bytes.to_vec()).unwrap());
    let check = |config: Config, event: ChangeEvent, header: Option<Option<&str>>, value: &str| {
        let record = published(only(config).process(event));
        let headers: Vec<_> = record.headers.iter().map(|header| own(&header.value)).collect();
        let header: Vec<_> = header.map(|text| text.map(str::to_owned)).into_iter().collect();
        assert_eq!((headers, own(&record.value)), (header, Some(value.to_owned())));
    };
    let cell = |kind, written: &str| {
        let cells = [("j", kind, text(written)), ("payload", ColumnKind::Text, text("1"))];
        outbox_row(&cells)
    };
    use {HeadersAs::Json, JsonAs::Compact, JsonAs::Value};
    for (written, json_as, headers_as, header, value) in [
        (
            r#"{"a": 1}"#,
            JsonAs::Text,
            HeadersAs::Text,
            Some(r#"{"a": 1}"#),
            r#"{"payload":1,"m":"{\"a\": 1}"}"#,
        ),
        (
            r#"[1, 2]"#,
            Compact,
            HeadersAs::Text,
            Some("[1,2]"),
            r#"{"payload":1,"m":"[1,2]"}"#,
        ),
        (
            r#""s""#,
            JsonAs::Text,
            HeadersAs::Text,
            Some(r#""s""#),
            r#"{"payload":1,"m":"\"s\""}"#,
        ),
        (
            "null",
            JsonAs::Text,
            HeadersAs::Text,
            Some("null"),
            r#"{"payload":1,"m":"null"}"#,
        ),
        ("5", JsonAs::Text, Json, Some(r#""5""#), r#"{"payload":1,"m":"5"}"#),
        (
            r#"{"a": 1}"#,
            Compact,
            Json,
            Some(r#""{\"a\":1}""#),
            r#"{"payload":1,"m":"{\"a\":1}"}"#,
        ),
    ] {
        let event = cell(ColumnKind::Json, written);
        check(config(json_as, headers_as), event, Some(header), value);
    }
    let object = || cell(ColumnKind::Json, r#"{"a": 1}"#);
    check(
        config(Value, HeadersAs::Text),
        object(),
        None,
        r#"{"payload":1,"m":{"a": 1}}"#,
    );
    let null = cell(ColumnKind::Json, "null");
    check(
        config(Value, HeadersAs::Text),
        null,
        Some(None),
        r#"{"payload":1,"m":null}"#,
    );
    let other = cell(ColumnKind::Text, r#"{"a": 1}"#);
    check(
        config(Compact, HeadersAs::Text),
        other,
        Some(Some(r#"{"a": 1}"#)),
        r#"{"payload":1,"m":"{\"a\": 1}"}"#,
    );
    for (j, headers_as, header) in [
        (r#"{"a": 1}"#, HeadersAs::Text, r#"{"a":1}"#),
        (r#"{"a": 1}"#, Json, r#"{"a":1}"#),
        (r#""s""#, HeadersAs::Text, "s"),
    ] {
        let event = message(format!(r#"{{"j": {j}, "payload": 1}}"#));
        let value = format!(r#"{{"payload":1,"m":{}}}"#, j.replace(' ', ""));
        check(config(Compact, headers_as), event, Some(Some(header)), &value);
        let event = message(format!(r#"{{"more": {{"c": {j}}}, "payload": 1}}"#));
        check(
            config(Compact, headers_as),
            event,
            Some(Some(header)),
            r#"{"payload":1}"#,
        );
    }
}

#[test]
fn json_keys_of_cells_follow_their_types() {
    let key = |kind: ColumnKind, cell: &str| {
        let config = Config {
            key_as: KeyAs::Json,
            ..outbox()
        };
        let cells = [
            ("aggregate_id", kind, text(cell)),
            ("payload", ColumnKind::Text, text("x")),
        ];
        let key = published(only(config).process(outbox_row(&cells))).key.unwrap();
        String::from_utf8(key.to_vec()).unwrap()
    };
    assert_eq!(key(ColumnKind::Integer, "-1"), "-1");
    assert_eq!(key(ColumnKind::Text, "1"), r#""1""#);
    assert_eq!(key(ColumnKind::Boolean, "t"), "true");
    assert_eq!(key(ColumnKind::Float, "NaN"), r#""NaN""#);
    assert_eq!(key(ColumnKind::Json, " 5"), "5");
    assert_eq!(key(ColumnKind::Json, r#""5""#), r#""5""#);
}

#[test]
fn a_record_has_the_event_s_own_time_where_there_is_one() {
    let config = |unit| Config {
        columns: Columns {
            timestamp: Some(TimestampColumn {
                name: "at".to_owned(),
                unit,
            }),
            ..Columns::default()
        },
        ..outbox()
    };
    let of_message = |unit, at: &str| only(config(unit)).process(message(format!(r#"{{"at": {at}, "payload": 1}}"#)));
    assert_eq!(
        published(of_message(None, "1577934245678")).timestamp_ms,
        1_577_934_245_678
    );
    assert_eq!(published(of_message(Some(TimeUnit::Micros), "5000")).timestamp_ms, 5);
    assert_eq!(
        published(of_message(None, r#""2020-01-02T03:04:05.678+00:00""#)).timestamp_ms,
        1_577_934_245_678
    );
    let committed = 1_700_000_000_123;
    assert_eq!(published(of_message(None, "null")).timestamp_ms, committed);
    let without = only(config(None)).process(message(r#"{"payload": 1}"#));
    assert_eq!(published(without).timestamp_ms, committed);
    for at in [
        r#""infinity""#,
        r#""""#,
        "0",
        "-1",
        "2026",
        r#""1969-12-31""#,
        "{}",
        "[]",
        "true",
    ] {
        let (kind, text) = failed(of_message(None, at));
        assert_eq!(kind, ErrorKind::Invalid);
        assert!(text.contains("`at` is no time after 1970"), "{text}");
    }
    let cells = [
        ("at", ColumnKind::Text, text("2020-01-02 03:04:05.678901")),
        ("payload", ColumnKind::Text, text("x")),
    ];
    let record = published(only(config(None)).process(outbox_row(&cells)));
    assert_eq!(record.timestamp_ms, 1_577_934_245_678);
}

#[test]
fn a_record_goes_to_the_partition_that_the_event_names() {
    let partition = |number: &str| {
        let config = Config {
            columns: Columns {
                partition: Some("part".to_owned()),
                ..Columns::default()
            },
            ..outbox()
        };
        only(config).process(message(format!(r#"{{"part": {number}, "payload": 1}}"#)))
    };
    assert_eq!(published(partition("2")).partition, Some(2));
    assert_eq!(published(partition(r#""0""#)).partition, Some(0));
    assert_eq!(published(partition("null")).partition, None);
    assert_eq!(process(outbox(), r#"{"part": 2, "payload": 1}"#).partition, None);
    for number in ["-1", "1.0", "2147483648", r#""a""#, r#""""#, "true", "{}", "[1]"] {
        let (kind, text) = failed(partition(number));
        assert_eq!(kind, ErrorKind::Invalid, "{number}");
        assert!(text.contains("`part` is no partition"), "{text}");
    }
}

fn with_members(payload_as: PayloadAs) -> Config {
    let members = ["event_type", "n", "none", "nothing"];
    Config {
        payload_as,
        envelope_fields: members.map(|name| (format!("my {name}"), name.to_owned())).to_vec(),
        ..outbox()
    }
}

#[test]
fn members_can_stand_beside_the_payload() {
    let value = |payload_as, payload: &str| {
        let content = format!(r#"{{"event_type": "a\"b", "n": 1.50, "nothing": null, "payload": {payload}}}"#);
        let value = process(with_members(payload_as), &content).value.unwrap();
        String::from_utf8(value.to_vec()).unwrap()
    };
    let with =
        |payload: &str| format!(r#"{{"payload":{payload},"my event_type":"a\"b","my n":1.50,"my nothing":null}}"#);
    for form in [PayloadAs::Raw, PayloadAs::Text, PayloadAs::JsonString] {
        assert_eq!(value(form, "null"), with("null"), "{form:?}");
    }
    assert_eq!(value(PayloadAs::Raw, r#"{"a": 1.0}"#), with(r#"{"a": 1.0}"#));
    assert_eq!(value(PayloadAs::Raw, r#""x""#), with(r#""x""#));
    assert_eq!(value(PayloadAs::JsonString, r#"{"a": 1}"#), with(r#""{\"a\": 1}""#));
    assert_eq!(value(PayloadAs::JsonString, r#""x""#), with(r#""x""#));
    assert_eq!(value(PayloadAs::Text, r#""{\"a\": 1}""#), with(r#""{\"a\": 1}""#));
    for form in [PayloadAs::Compact, PayloadAs::Expanded] {
        assert_eq!(value(form, "null"), with("null"), "{form:?}");
    }
    assert_eq!(value(PayloadAs::Compact, r#"{"a": 1.50}"#), with(r#"{"a":1.50}"#));
    assert_eq!(value(PayloadAs::Expanded, r#"{"a": 1.50}"#), with(r#"{"a":1.5}"#));
    assert_eq!(
        value(PayloadAs::Expanded, r#"{"a": [1, ""]}"#),
        with(r#""{\"a\": [1, \"\"]}""#)
    );
    let text = outbox_row(&[("payload", ColumnKind::Text, text("{oops"))]);
    let config = with_members(PayloadAs::Compact);
    let record = published(only(config).process(text));
    assert_eq!(record.value.as_deref(), Some(&br#"{"payload":"{oops"}"#[..]));
}

#[test]
fn bytes_that_an_object_cannot_hold_are_told_by_their_field() {
    for form in [PayloadAs::Raw, PayloadAs::Compact, PayloadAs::JsonString] {
        let bytes = Value::Bytes(Bytes::from_static(b"\xff"));
        let row = outbox_row(&[("payload", ColumnKind::Binary, bytes)]);
        let (kind, text) = failed(only(with_members(form)).process(row));
        assert_eq!(kind, ErrorKind::Invalid);
        assert!(
            text.contains("`payload` is no text: its bytes are not UTF-8") && !text.contains("raw_payload"),
            "{form:?}: {text}"
        );
    }
}

#[test]
fn members_of_a_payload_can_be_left_out() {
    let config = Config {
        payload_as: PayloadAs::Compact,
        left_out: LeftOut {
            null_members: true,
            empty_arrays: false,
        },
        ..outbox()
    };
    let record = process(config, r#"{"payload": {"a": null, "b": [ ], "c": {"d": null}}}"#);
    assert_eq!(record.value.as_deref(), Some(&br#"{"b":[],"c":{}}"#[..]));
}

#[test]
fn members_of_cells_follow_their_types() {
    let config = Config {
        on_missing: OnMissing::Reject,
        envelope_fields: ["t", "i", "b", "j"]
            .map(|name| (name.to_owned(), name.to_owned()))
            .to_vec(),
        ..outbox()
    };
    let cells = [
        ("payload", ColumnKind::Json, text(r#"{"a": 1}"#)),
        ("t", ColumnKind::Text, text("7")),
        ("i", ColumnKind::Integer, text("9007199254740993")),
        ("b", ColumnKind::Boolean, text("t")),
        ("j", ColumnKind::Json, Value::Null),
    ];
    let record = published(only(config.clone()).process(outbox_row(&cells)));
    let expected = r#"{"payload":{"a": 1},"t":"7","i":9007199254740993,"b":true,"j":null}"#;
    assert_eq!(record.value.as_deref(), Some(expected.as_bytes()));
    let (kind, text) = failed(only(config).process(outbox_row(&cells[..4])));
    assert_eq!(kind, ErrorKind::Invalid);
    assert!(
        text.contains("there is no field `j` for the value's member `j`"),
        "{text}"
    );
}

#[test]
fn an_event_carries_headers_and_a_trace_along() {
    let config = || Config {
        columns: Columns {
            headers: Some("meta".to_owned()),
            trace: Some("span".to_owned()),
            ..Columns::default()
        },
        header_names: HeaderNames {
            event_id: None,
            ..HeaderNames::default()
        },
        ..outbox()
    };
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let content = format!(
        r#"{{"event_type": "T", "span": "traceparent={parent}\n", "meta": {{"df-event-type": "own", "traceparent": "own", "a": 1}}, "payload": 1}}"#
    );
    let record = process(config(), &content);
    let headers: Vec<_> = record.headers.iter().map(|header| &*header.name).collect();
    assert_eq!(headers, ["df-event-type", "traceparent", "a"]);
    assert_eq!(header(&record, "df-event-type"), Some("T"));
    assert_eq!(header(&record, "traceparent"), Some(parent));
    assert_eq!(header(&record, "a"), Some("1"));
    assert_eq!(
        process(config(), r#"{"payload": 1, "meta": null, "span": {}}"#).headers,
        []
    );
    for null in [Value::Null, text(" null ")] {
        let cells = [
            ("meta", ColumnKind::Json, null),
            ("payload", ColumnKind::Text, text("x")),
        ];
        assert_eq!(published(only(config()).process(outbox_row(&cells))).headers, []);
    }
    let (kind, text) = error(config(), r#"{"payload": 1, "meta": [1]}"#);
    assert_eq!(kind, ErrorKind::Invalid);
    assert!(text.contains("`meta` holds no headers"), "{text}");
}
