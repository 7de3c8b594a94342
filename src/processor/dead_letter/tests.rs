use std::time::{Duration, UNIX_EPOCH};

use proptest::prelude::*;

use super::*;
use crate::config::pipeline;
use crate::event::{Operation, Oversized};
use crate::processor::Chain;
use crate::processor::sample::*;
use crate::row::{ColumnKind, Value};

const POSITION_TEXT: &str = "00000016B374D848-00000016B374D800-2";

fn letters(oversized: OversizedDeadLetter) -> DeadLetters {
    DeadLetters {
        topic: Arc::from("events.dead"),
        oversized,
        pipeline: Bytes::from_static(b"orders"),
        source: Bytes::from_static(b"pg1"),
        sink: Bytes::from_static(b"k"),
        id_headers: vec![("df-event-id".to_owned(), HeadersAs::Text)],
        changes: ChangeWriter::native("pg1"),
    }
}

#[test]
fn an_id_is_read_out_of_its_header() {
    let id = |form, value: &'static str| id_text(&Bytes::from_static(value.as_bytes()), form);
    assert_eq!(id(HeadersAs::Text, r#""7f""#), r#""7f""#);
    assert_eq!(id(HeadersAs::Json, r#""7\u0066""#), "7f");
    assert_eq!(id(HeadersAs::Json, "42"), "42");
}

fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(1_800_000_000_042)
}

fn error(mut chain: Chain, event: ChangeEvent) -> ProcessError {
    chain.process(event).expect_err("an error")
}

fn parked(chain: Chain, event: ChangeEvent) -> Record {
    let error = error(chain, event);
    letters(OversizedDeadLetter::Halt).of_event(&error, now()).unwrap()
}

fn value(letter: &Record) -> &str {
    std::str::from_utf8(letter.value.as_ref().expect("a value")).expect("text")
}

fn too_large() -> DeliveryError {
    DeliveryError {
        kind: DeliveryErrorKind::Record(RecordFault::TooLarge),
        text: "over the limit".to_owned(),
    }
}

fn record() -> Record {
    Record {
        topic: Arc::from("orders"),
        key: Some(Bytes::from_static(b"\xffkey")),
        value: Some(Bytes::from_static(b"{ \"a\" : 1.50 }")),
        headers: vec![
            Header {
                name: Arc::from("df-event-id"),
                value: Some(Bytes::from_static(b"7f")),
            },
            Header {
                name: Arc::from("x-trace"),
                value: Some(Bytes::from_static(b"\xfe")),
            },
        ],
        partition: Some(7),
        timestamp_ms: 5,
        about: None,
    }
}

fn of_record(record: Record) -> Record {
    let at = message("").position;
    letters(OversizedDeadLetter::Stub).of_record(record, &too_large(), &at, 2, now())
}

/// The headers that are the letter's own, with their values.
fn own(letter: &Record) -> Vec<(&str, &str)> {
    let own = letter
        .headers
        .iter()
        .filter(|header| header.name.starts_with("tailpost-dlq-"));
    own.map(|header| {
        (
            &*header.name,
            std::str::from_utf8(header.value.as_ref().expect("a value")).expect("text"),
        )
    })
    .collect()
}

#[test]
fn a_record_is_parked_with_its_bytes_and_headers_and_why() {
    let letter = of_record(record());
    assert_eq!(letter.partition, None, "that of another topic");
    assert_eq!(&*letter.topic, "events.dead");
    assert_eq!(
        (&letter.key, &letter.value, letter.timestamp_ms),
        (&record().key, &record().value, 5)
    );
    assert_eq!(letter.headers[..2], record().headers);
    assert_eq!(
        own(&letter),
        [
            ("tailpost-dlq-reason", "permanent_failure"),
            ("tailpost-dlq-detail", "too_large"),
            ("tailpost-dlq-error", "over the limit"),
            ("tailpost-dlq-pipeline", "orders"),
            ("tailpost-dlq-source", "pg1"),
            ("tailpost-dlq-sink", "k"),
            ("tailpost-dlq-position", POSITION_TEXT),
            ("tailpost-dlq-event-id", "7f"),
            ("tailpost-dlq-topic", "orders"),
            ("tailpost-dlq-time", "2027-01-15T08:00:00.042Z"),
            ("tailpost-dlq-attempts", "2"),
        ]
    );
}

#[test]
fn a_tombstone_is_parked_as_one() {
    let letter = of_record(Record {
        value: None,
        key: None,
        ..record()
    });
    assert_eq!((letter.value, letter.key), (None, None));
}

#[test]
fn a_message_is_parked_whole_with_all_that_could_be_told() {
    let content = "{\"id\": \"7f\",\"aggregate_id\":42, \"event_type\":\"Created\",\"trace\":\"t\",\"payload\":{}}";
    let config = pipeline::Outbox {
        default_topic: None,
        topic: Some(rule("${aggregate_type}.${event_type}")),
        additional_headers: vec![("x-trace".to_owned(), "trace".to_owned())],
        ..outbox()
    };
    let letter = parked(only(config), message(content));
    assert_eq!(value(&letter), content);
    assert_eq!(letter.key.as_deref(), Some(&b"42"[..]));
    assert_eq!(letter.timestamp_ms, 1_700_000_000_123);
    let kept = ["df-event-id", "df-aggregate-id", "df-event-type", "x-trace"];
    assert_eq!(
        kept.map(|name| header(&letter, name)),
        [Some("7f"), Some("42"), Some("Created"), Some("t")]
    );
    let error = "outbox message with prefix `outbox` at 00000016B374D848-00000016B374D800-2: it has no topic: the processor's \
                 `topic` finds no text in `aggregate_type`, there is none in `topic`, and the sink has no `topic`; set \
                 `default_topic` of the outbox processor or `topic` of the sink";
    assert_eq!(
        own(&letter),
        [
            ("tailpost-dlq-reason", "poison_message"),
            ("tailpost-dlq-detail", "unroutable"),
            ("tailpost-dlq-error", error),
            ("tailpost-dlq-pipeline", "orders"),
            ("tailpost-dlq-source", "pg1"),
            ("tailpost-dlq-sink", "k"),
            ("tailpost-dlq-position", POSITION_TEXT),
            ("tailpost-dlq-event-id", "7f"),
            ("tailpost-dlq-time", "2027-01-15T08:00:00.042Z"),
            ("tailpost-dlq-attempts", "0"),
            ("tailpost-dlq-prefix", "outbox"),
        ]
    );
}

#[test]
fn what_lacks_a_field_still_tells_where_it_should_have_gone() {
    let config = pipeline::Outbox {
        topic: Some(rule("orders.${event_type}")),
        ..outbox()
    };
    let letter = parked(only(config), message(r#"{"event_type":"Created","aggregate_id":1}"#));
    assert_eq!(header(&letter, "tailpost-dlq-detail"), Some("invalid"));
    assert_eq!(header(&letter, "tailpost-dlq-reason"), Some("poison_message"));
    assert_eq!(header(&letter, "tailpost-dlq-topic"), Some("orders.Created"));
    assert_eq!(header(&letter, "tailpost-dlq-event-id"), Some(POSITION_TEXT));
    assert_eq!(letter.key.as_deref(), Some(&b"1"[..]));
}

#[test]
fn what_strict_asks_for_in_vain_is_a_schema_that_does_not_hold() {
    let config = || pipeline::Outbox {
        strict: true,
        topic: Some(rule("orders")),
        ..outbox()
    };
    for content in ["{\"payload\":1,\"aggregate_id\":1}", "\0\u{ff}no object"] {
        let letter = parked(only(config()), message(content));
        assert_eq!(value(&letter), content);
        assert_eq!(header(&letter, "tailpost-dlq-reason"), Some("schema_validation_failed"));
        assert_eq!(header(&letter, "tailpost-dlq-detail"), Some("invalid"));
        assert_eq!(header(&letter, "tailpost-dlq-topic"), Some("orders"));
    }
}

#[test]
fn a_field_that_is_no_text_leaves_the_other_fields_in_the_headers() {
    let config = pipeline::Outbox {
        key: Some(template("${aggregate_type}-${aggregate_id}")),
        additional_headers: vec![("x".to_owned(), "event_type".to_owned())],
        ..outbox()
    };
    let content = r#"{"aggregate_type":"\ud800","aggregate_id":1,"event_type":"E","payload":1}"#;
    let letter = parked(only(config), message(content));
    assert_eq!(header(&letter, "tailpost-dlq-detail"), Some("invalid"));
    assert_eq!(header(&letter, "df-aggregate-type"), None);
    assert_eq!(
        (header(&letter, "df-aggregate-id"), header(&letter, "x")),
        (Some("1"), Some("E"))
    );
    assert_eq!(letter.key, None);
}

#[test]
fn a_message_that_no_processor_takes_has_an_id_of_its_place() {
    let config = pipeline::Outbox {
        tables: vec![pattern("orders")],
        ..outbox()
    };
    let letter = parked(only(config), message_to("payments", &b"\xff\0"[..]));
    assert_eq!(letter.value.as_deref(), Some(&b"\xff\0"[..]));
    assert_eq!(letter.key, None);
    assert_eq!(header(&letter, "tailpost-dlq-prefix"), Some("payments"));
    assert_eq!(header(&letter, "tailpost-dlq-event-id"), Some(POSITION_TEXT));
    assert_eq!(header(&letter, "df-event-id"), None);
}

#[test]
fn an_outbox_row_is_parked_as_an_object_whatever_its_bytes() {
    let not_text = || Value::Text(Bytes::from_static(b"a\xff"));
    let row = outbox_row(&[
        ("id", ColumnKind::Uuid, text("7f")),
        ("aggregate_id", ColumnKind::Text, text("42")),
        ("aggregate_type", ColumnKind::Text, not_text()),
        ("number", ColumnKind::Integer, text("18446744073709551615")),
        ("payload", ColumnKind::Json, text("{\"a\": 1.50, \"a\": null}")),
        ("data", ColumnKind::Binary, Value::Bytes(Bytes::from_static(b"\0\xff"))),
        ("none", ColumnKind::Text, Value::Null),
        ("absent", ColumnKind::Text, Value::Absent),
    ]);
    let letter = parked(only(outbox()), row);
    assert_eq!(
        value(&letter),
        r#"{"id":"7f","aggregate_id":"42","aggregate_type":"\\x61ff","number":18446744073709551615,"payload":{"a": 1.50, "a": null},"data":"\\x00ff","none":null}"#
    );
    assert_eq!(letter.key.as_deref(), Some(&b"42"[..]));
    assert_eq!(header(&letter, "tailpost-dlq-table"), Some("public.orders_outbox"));
    assert_eq!(header(&letter, "tailpost-dlq-event-id"), Some("7f"));
    assert_eq!(header(&letter, "tailpost-dlq-topic"), Some("events.default"));
}

#[test]
fn an_ordinary_row_is_parked_in_its_envelope() {
    let table = table("orders", &[("id", ColumnKind::Integer), ("note", ColumnKind::Text)]);
    let values = |note| Some(vec![text("1"), note]);
    let not_text = Value::Text(Bytes::from_static(b"\xff"));
    let before_and_after = (values(text("old")), values(not_text));
    let event = row(
        Selection::Table,
        Operation::Update,
        &table,
        before_and_after.0,
        before_and_after.1,
    );
    let letter = parked(chain(vec![], &sink(Some("cdc.${note}"), None)), event);
    let head = r#"{"before":{"id":1,"note":"old"},"after":{"id":1,"note":"\\xff"},"source":{"#;
    assert!(value(&letter).starts_with(head), "{}", value(&letter));
    assert!(value(&letter).ends_with(r#""op":"u","ts_ms":1700000000123}"#));
    assert_eq!(letter.key.as_deref(), Some(&br#"{"id":1}"#[..]));
    assert_eq!(header(&letter, "tailpost-dlq-table"), Some("public.orders"));
    assert_eq!(header(&letter, "tailpost-dlq-detail"), Some("invalid"));
    assert_eq!(header(&letter, "tailpost-dlq-topic"), None);
}

#[test]
fn an_error_quotes_nothing_of_the_event_and_is_bounded() {
    let config = pipeline::Outbox {
        topic: Some(rule("${event_type}")),
        ..outbox()
    };
    let content = r#"{"event_type":"secret topic!","aggregate_id":"secret","payload":"secret"}"#;
    let letter = parked(only(config), message_to(&"é".repeat(5000), content));
    let error = header(&letter, "tailpost-dlq-error").unwrap();
    assert!(!error.contains("secret"), "{error}");
    assert!((1000..=1024).contains(&error.len()) && error.ends_with("é…"), "{error}");
    assert_eq!(header(&letter, "tailpost-dlq-prefix"), Some(&*"é".repeat(5000)));
    assert_eq!(header(&letter, "tailpost-dlq-topic"), None);
}

fn oversized(origin: Origin) -> ProcessError {
    let oversized = Oversized {
        origin,
        bytes: 70_000_000,
        limit: 67_108_864,
    };
    error(only(outbox()), event(Selection::Outbox, Change::Oversized(oversized)))
}

#[test]
fn of_discarded_bytes_only_a_stub_can_be_parked() {
    let error = oversized(Origin::Prefix("outbox".to_owned()));
    let halted = letters(OversizedDeadLetter::Halt).of_event(&error, now());
    assert_eq!(halted, Err(Unparkable::Discarded));
    let mut letters = letters(OversizedDeadLetter::Stub);
    let letter = letters.of_event(&error, now()).unwrap();
    assert_eq!((letter.value.as_deref(), &letter.key), (Some(&b""[..]), &None));
    let wanted = ["detail", "prefix", "stub", "size"].map(|name| format!("tailpost-dlq-{name}"));
    assert_eq!(
        wanted.map(|name| header(&letter, &name).map(str::to_owned)),
        ["oversized", "outbox", "true", "70000000"].map(|text| Some(text.to_owned()))
    );
    assert_eq!(header(&letter, "tailpost-dlq-sha256"), None);
    let error = oversized(Origin::Table("shop.outbox".to_owned()));
    let letter = letters.of_event(&error, now()).unwrap();
    assert_eq!(header(&letter, "tailpost-dlq-table"), Some("shop.outbox"));
    let refused = letters.stub(letter);
    assert!(matches!(refused, Err(Unparkable::StubTooLarge { .. })), "{refused:?}");
}

#[test]
fn a_stub_says_what_it_stands_for() {
    let letter = of_record(record());
    let stub = letters(OversizedDeadLetter::Stub).stub(letter.clone()).unwrap();
    assert_eq!(stub.value.as_deref(), Some(&b""[..]));
    assert_eq!(
        (&stub.topic, &stub.key, stub.timestamp_ms),
        (&letter.topic, &letter.key, 5)
    );
    assert_eq!(stub.headers[..letter.headers.len()], letter.headers);
    assert_eq!(
        own(&stub)[own(&letter).len()..],
        [
            ("tailpost-dlq-stub", "true"),
            ("tailpost-dlq-size", "14"),
            (
                "tailpost-dlq-sha256",
                // printf '{ "a" : 1.50 }' | sha256sum
                "8750516745ee5c720c8bf480493ec5435ae5688c5fd61a6ffdc510e2152c5168"
            ),
        ]
    );
}

#[test]
fn a_stub_is_made_once_and_only_where_it_is_wanted() {
    let letter = of_record(record());
    let halted = letters(OversizedDeadLetter::Halt).stub(letter.clone()).unwrap_err();
    for word in [
        "`events.dead`",
        "max.message.bytes",
        "`dead_letter.config.oversized: stub`",
    ] {
        assert!(halted.to_string().contains(word), "{halted}");
    }
    let letters = letters(OversizedDeadLetter::Stub);
    let stub = letters.stub(letter).unwrap();
    assert!(matches!(letters.stub(stub), Err(Unparkable::StubTooLarge { .. })));
    // The application's own header of that name makes no stub.
    let mut record = record();
    push(&mut record.headers, STUB, "true");
    assert!(letters.stub(of_record(record)).is_ok());
}

#[test]
fn a_stub_of_a_tombstone_has_a_size_and_no_hash() {
    let letter = of_record(Record {
        value: None,
        ..record()
    });
    let stub = letters(OversizedDeadLetter::Stub).stub(letter).unwrap();
    assert_eq!(header(&stub, "tailpost-dlq-size"), Some("0"));
    assert_eq!(header(&stub, "tailpost-dlq-sha256"), None);
    assert_eq!(stub.value.as_deref(), Some(&b""[..]));
}

proptest! {
    /// Whatever the record has, a stub of it is small, and what it keeps is as it was.
    #[test]
    fn a_stub_is_small(
        key in prop::option::of(prop::collection::vec(any::<u8>(), 0..3000)),
        value in prop::option::of(prop::collection::vec(any::<u8>(), 0..3000)),
        headers in prop::collection::vec(("\\PC{0,800}", prop::collection::vec(any::<u8>(), 0..3000)), 0..8),
        id in "\\PC{0,2000}",
    ) {
        let named = headers.into_iter().chain([("df-event-id".to_owned(), id.into_bytes())]);
        let record = Record {
            key: key.map(Bytes::from),
            value: value.map(Bytes::from),
            headers: named.map(|(name, value)| Header { name: Arc::from(name), value: Some(value.into()) }).collect(),
            ..record()
        };
        let stub = letters(OversizedDeadLetter::Stub).stub(of_record(record.clone())).unwrap();
        prop_assert!(stub.byte_len() < 8 << 10, "{}", stub.byte_len());
        prop_assert!(stub.key.is_none() || stub.key == record.key);
        let kept = stub.headers.iter().position(|header| &*header.name == REASON).unwrap();
        for header in &stub.headers[..kept] {
            prop_assert!(record.headers.contains(header));
        }
        let own = own(&stub);
        prop_assert_eq!(own.len(), 14 - usize::from(record.value.is_none()));
    }

    #[test]
    fn what_is_cut_is_still_text(text in "\\PC{0,1200}") {
        let kept = cut(&Bytes::from(text.clone()));
        let kept = std::str::from_utf8(&kept).unwrap();
        prop_assert!(kept.len() <= MAX_TEXT);
        prop_assert!(kept == text || text.starts_with(kept.strip_suffix('…').unwrap()));
    }
}
