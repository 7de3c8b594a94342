use bytes::Bytes;
use secrecy::SecretString;

use super::*;
use crate::config::pipeline::MaskRule;
use crate::event::{Operation, Origin, Oversized, Selection};
use crate::processor::sample::{self, *};
use crate::processor::{Chain, ErrorKind};

pub(super) fn rule(path: &str, action: MaskAction) -> MaskRule {
    MaskRule {
        path: EventPath::parse(path).unwrap(),
        action,
    }
}

pub(super) fn replaced_by(text: &str) -> MaskAction {
    MaskAction::Replace(MaskValue::Text(text.to_owned()))
}

pub(super) fn hash() -> MaskAction {
    MaskAction::Hash(SecretString::from("0123456789abcdef"))
}

pub(super) fn mask(rules: Vec<MaskRule>) -> pipeline::Mask {
    pipeline::Mask {
        id: "mask".to_owned(),
        tables: Vec::new(),
        rules,
        on_mismatch: OnMismatch::Reject,
    }
}

fn masked(config: &pipeline::Mask, event: ChangeEvent) -> ChangeEvent {
    match Mask::new(config).process(event).expect("an event") {
        Step::Pass(event) => event,
        other => panic!("{other:?}"),
    }
}

fn refused(config: &pipeline::Mask, event: ChangeEvent) -> ProcessError {
    let error = Mask::new(config).process(event).expect_err("an error");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert_eq!(error.dead_letter_reason().label(), "poison_message");
    error
}

fn content(event: &ChangeEvent) -> &str {
    match &event.change {
        Change::Message(message) => std::str::from_utf8(&message.content).unwrap(),
        other => panic!("{other:?}"),
    }
}

fn message_after(rules: Vec<MaskRule>, text: &str) -> String {
    content(&masked(&mask(rules), message(text.to_owned()))).to_owned()
}

/// A cell after a rule of its column `c`.
fn cell_after(action: MaskAction, value: Value, kind: ColumnKind) -> Value {
    let event = masked(&mask(vec![rule("c", action)]), outbox_row(&[("c", kind, value)]));
    after(&event)[0].clone()
}

/// A cell, where `text` is something else.
fn cell(of: &str) -> Value {
    text(of)
}

fn after(event: &ChangeEvent) -> &[Value] {
    match &event.change {
        Change::Row(row) => &row.after.as_ref().unwrap().values,
        other => panic!("{other:?}"),
    }
}

/// HMAC-SHA-256 of `ada@example.com` under [`hash`]'s key, by another implementation.
const HASH: &str = "512383176ce1b4c279ee430548cf07ec0b58efa588517b611c1f0da6d2b9e577";

#[test]
fn each_action_changes_its_value_and_nothing_else() {
    let text = "{ \"event_type\":\"created\", \"payload\" : {\"email\": \"ada@example.com\", \"n\":1.50e0, \"total\":12.345,\n\"pin\":1234} }";
    for (path, action, from, to) in [
        ("payload.pin", MaskAction::Remove, ",\n\"pin\":1234", ""),
        ("payload.email", replaced_by("*\"*"), "\"ada@example.com\"", r#""*\"*""#),
        (
            "payload.email",
            MaskAction::Replace(MaskValue::Null),
            "\"ada@example.com\"",
            "null",
        ),
        (
            "payload.pin",
            MaskAction::Replace(MaskValue::Number("0.0".to_owned())),
            "1234}",
            "0.0}",
        ),
        (
            "$.payload",
            MaskAction::Replace(MaskValue::Boolean(false)),
            &text[text.find("{\"email").unwrap()..text.len() - 2],
            "false",
        ),
        ("payload.email", hash(), "ada@example.com", HASH),
        ("payload.total", MaskAction::Round(1), "12.345", "12.3"),
        ("payload.n", MaskAction::Round(1), "1.50e0", "1.5"),
        ("payload.total", MaskAction::Round(3), "", ""),
        ("payload.none", MaskAction::Remove, "", ""),
        ("payload.none.x", hash(), "", ""),
    ] {
        let expected = text.replacen(from, to, 1);
        assert_eq!(
            message_after(vec![rule(path, action.clone())], text),
            expected,
            "{path} {action:?}"
        );
    }
}

#[test]
fn a_value_has_one_hash_wherever_it_stands() {
    let by_json = message_after(vec![rule("a", hash())], r#"{"a":"\u0061da@example.com"}"#);
    assert_eq!(by_json, format!(r#"{{"a":"{HASH}"}}"#));
    for (value, kind, expected) in [
        (text("ada@example.com"), ColumnKind::Text, HASH.to_owned()),
        (text(" \"ada@example.com\" "), ColumnKind::Json, format!("\"{HASH}\"")),
    ] {
        assert_eq!(cell_after(hash(), value, kind), text(&expected));
    }
    let number = message_after(vec![rule("a", hash())], r#"{"a":1.50}"#);
    let hash_of_number = &number[6..number.len() - 2];
    assert_eq!(
        cell_after(hash(), text("1.50"), ColumnKind::Numeric),
        text(hash_of_number)
    );
    assert_eq!(message_after(vec![rule("a", hash())], r#"{"a":"1.50"}"#), number);
    let flag = message_after(vec![rule("a", hash())], r#"{"a":true}"#);
    assert_eq!(
        cell_after(hash(), text("t"), ColumnKind::Boolean),
        text(&flag[6..flag.len() - 2])
    );
}

#[test]
fn a_column_is_masked_by_its_kind() {
    let replaced = |value: MaskValue, kind| cell_after(MaskAction::Replace(value), text("1"), kind);
    let word = || MaskValue::Text("***".to_owned());
    assert_eq!(replaced(word(), ColumnKind::Text), text("***"));
    assert_eq!(replaced(word(), ColumnKind::Json), text("\"***\""));
    assert_eq!(replaced(word(), ColumnKind::Integer), text("***"));
    assert_eq!(replaced(MaskValue::Boolean(true), ColumnKind::Boolean), text("t"));
    assert_eq!(replaced(MaskValue::Boolean(true), ColumnKind::Json), text("true"));
    assert_eq!(
        replaced(MaskValue::Number("0".to_owned()), ColumnKind::Numeric),
        text("0")
    );
    assert_eq!(replaced(MaskValue::Null, ColumnKind::Text), Value::Null);
    let bytes = || Value::Bytes(Bytes::from_static(b"\x00\xff"));
    assert_eq!(cell_after(MaskAction::Remove, bytes(), ColumnKind::Binary), Value::Null);
    assert_eq!(
        cell_after(hash(), bytes(), ColumnKind::Binary),
        cell_after(hash(), text("00ff"), ColumnKind::Text)
    );
    for kind in [ColumnKind::Float, ColumnKind::Numeric, ColumnKind::Json] {
        assert_eq!(cell_after(MaskAction::Round(0), text("2.5"), kind), text("3"));
    }
    for action in [hash(), MaskAction::Round(1)] {
        assert_eq!(cell_after(action.clone(), Value::Null, ColumnKind::Text), Value::Null);
        assert_eq!(cell_after(action, text("null"), ColumnKind::Json), text("null"));
    }
    for action in [hash(), MaskAction::Remove, replaced_by("x"), MaskAction::Round(1)] {
        for unknown in [Value::Unchanged, Value::Absent] {
            assert_eq!(cell_after(action.clone(), unknown.clone(), ColumnKind::Text), unknown);
        }
    }
}

#[test]
fn both_rows_of_an_ordinary_change_are_masked() {
    let table = table(
        "customers",
        &[
            ("id", ColumnKind::Integer),
            ("email", ColumnKind::Text),
            ("doc", ColumnKind::Json),
        ],
    );
    let cells = |email: &str, doc: &str| Some(vec![text("7"), text(email), text(doc)]);
    let rules = vec![
        rule("email", MaskAction::Remove),
        rule("doc.phones[*].number", replaced_by("x")),
    ];
    let config = mask(rules);
    for operation in [Operation::Insert, Operation::Update, Operation::Delete] {
        let before = (operation != Operation::Insert).then(|| cells("old", r#"{"phones": [{"number": 1}]}"#));
        let new =
            (operation != Operation::Delete).then(|| cells("new", r#"{ "phones": [{"number":2 }, {"number":3}]}"#));
        let event = masked(
            &config,
            row(Selection::Table, operation, &table, before.flatten(), new.flatten()),
        );
        let Change::Row(row) = &event.change else {
            panic!("a row")
        };
        let values = |row: &Option<crate::row::Row>| row.as_ref().map(|row| row.values.clone());
        let null_and = |doc: &str| vec![text("7"), Value::Null, text(doc)];
        assert_eq!(
            values(&row.before),
            (operation != Operation::Insert).then(|| null_and(r#"{"phones": [{"number": "x"}]}"#))
        );
        assert_eq!(
            values(&row.after),
            (operation != Operation::Delete).then(|| null_and(r#"{ "phones": [{"number":"x" }, {"number":"x"}]}"#))
        );
    }
}

#[test]
fn json_is_masked_in_a_column_of_any_type() {
    let config = mask(vec![rule("payload.email", MaskAction::Remove)]);
    for (value, kind, expected) in [
        (text(r#" {"email":1, "a":2}"#), ColumnKind::Text, text(r#" {"a":2}"#)),
        (text(r#"{"email":1}"#), ColumnKind::Json, text("{}")),
        (
            Value::Bytes(Bytes::from_static(br#"{"email":1}"#)),
            ColumnKind::Binary,
            Value::Bytes(Bytes::from_static(b"{}")),
        ),
        (text(""), ColumnKind::Text, text("")),
        (text("null"), ColumnKind::Json, text("null")),
        (Value::Null, ColumnKind::Text, Value::Null),
    ] {
        let event = masked(
            &config,
            outbox_row(&[("id", ColumnKind::Integer, text("1")), ("payload", kind, value)]),
        );
        assert_eq!(after(&event), [text("1"), expected], "{kind:?}");
    }
}

#[test]
fn a_rule_whose_column_a_table_lacks_is_told_of_once() {
    let rules = vec![
        rule("email", MaskAction::Remove),
        rule("doc.name", MaskAction::Remove),
        rule("[0].name", MaskAction::Remove),
    ];
    let with = |columns: &[&str]| {
        let cells: Vec<_> = columns
            .iter()
            .map(|name| (*name, ColumnKind::Text, Value::Null))
            .collect();
        outbox_row(&cells)
    };
    for tables in [Vec::new(), vec![pattern("orders_outbox")]] {
        let is_meant = !tables.is_empty();
        let mut mask = Mask::new(&pipeline::Mask {
            tables,
            ..mask(rules.clone())
        });
        let mut idle_after = |event: ChangeEvent| {
            mask.process(event).expect("an event");
            mask.take_unknown_columns().1
        };
        let idle = |path: &str| UnknownColumn {
            table: "public.orders_outbox".to_owned(),
            path: path.to_owned(),
            is_meant,
        };
        assert_eq!(idle_after(with(&["email", "doc"])), []);
        assert_eq!(idle_after(with(&["email"])), [idle("doc.name")]);
        // Each time the table is told of anew, as after a reconnect.
        assert_eq!(idle_after(with(&["email"])), []);
        // It was renamed.
        assert_eq!(idle_after(with(&["e_mail"])), [idle("email")]);
    }
    let others = pipeline::Mask {
        tables: vec![pattern("customers")],
        ..mask(rules)
    };
    let mut others = Mask::new(&others);
    others.process(with(&["a"])).expect("an event");
    assert_eq!(others.take_unknown_columns().1, []);
}

#[test]
fn tables_say_whose_events_are_masked() {
    let config = pipeline::Mask {
        tables: vec![pattern("outbox"), pattern("public.customers")],
        ..mask(vec![rule("a", MaskAction::Remove)])
    };
    let text_of = |event| content(&masked(&config, event)).to_owned();
    assert_eq!(text_of(message_to("outbox", r#"{"a":1}"#)), "{}");
    assert_eq!(text_of(message_to("other", r#"{"a":1}"#)), r#"{"a":1}"#);
    for (name, expected) in [("customers", Value::Null), ("orders", text("1"))] {
        let table = table(name, &[("a", ColumnKind::Text)]);
        let event = row(Selection::Table, Operation::Insert, &table, None, Some(vec![text("1")]));
        assert_eq!(after(&masked(&config, event)), [expected], "{name}");
    }
}

#[test]
fn what_is_no_event_passes() {
    let config = mask(vec![rule("payload.a", MaskAction::Remove)]);
    let table = table("orders_outbox", &[("payload", ColumnKind::Text)]);
    let no_json = || Some(vec![text("no json")]);
    for operation in [Operation::Update, Operation::Delete, Operation::Truncate] {
        masked(&config, row(Selection::Outbox, operation, &table, no_json(), None));
    }
    masked(&config, row(Selection::Table, Operation::Truncate, &table, None, None));
    let oversized = Oversized {
        origin: Origin::Prefix("outbox".to_owned()),
        bytes: 2,
        limit: 1,
    };
    masked(&config, event(Selection::Outbox, Change::Oversized(oversized)));
}

#[test]
fn a_value_that_its_rule_cannot_be_applied_to_rejects_its_event() {
    for (path, action, text, expected) in [
        (
            "a",
            MaskAction::Round(2),
            r#"{"a":"12.345"}"#,
            "`a` cannot be masked: it is text; expected a number",
        ),
        (
            "a",
            MaskAction::Round(2),
            r#"{"a":true}"#,
            "it is a boolean; expected a number",
        ),
        (
            "a",
            hash(),
            r#"{"a":{"b":1}}"#,
            "it is an object; expected text in UTF-8, a number or a boolean",
        ),
        (
            "a[*]",
            hash(),
            r#"{"a":[[2]]}"#,
            "`a[*]` cannot be masked: it is a list",
        ),
        ("a", hash(), r#"{"a":"\ud800"}"#, "it is text; expected text in UTF-8"),
        (
            "a.b",
            MaskAction::Remove,
            r#"{"a":"{\"b\":1}"}"#,
            "`a.b` cannot be masked: it is text; expected the rest of the path in it",
        ),
        (
            "a.b",
            MaskAction::Remove,
            r#"{"a":[{"b":1}]}"#,
            "it is a list; expected the rest of the path",
        ),
        (
            "a[0]",
            MaskAction::Remove,
            r#"{"a":{"0":1}}"#,
            "it is an object; expected the rest of the path",
        ),
        (
            "a",
            MaskAction::Remove,
            "5",
            "it is a number; expected the rest of the path",
        ),
    ] {
        let rejecting = mask(vec![rule(path, action)]);
        let error = refused(&rejecting, message(text)).to_string();
        assert!(
            error.contains(expected) && error.contains("`on_mismatch: ignore`"),
            "{text}: {error}"
        );
        let ignoring = pipeline::Mask {
            on_mismatch: OnMismatch::Ignore,
            ..rejecting
        };
        assert_eq!(content(&masked(&ignoring, message(text))), text);
    }
    let error = refused(
        &mask(vec![rule("c", MaskAction::Round(1))]),
        outbox_row(&[("c", ColumnKind::Float, text("NaN"))]),
    );
    assert!(
        error.to_string().contains("it is no finite number; expected a number"),
        "{error}"
    );
}

#[test]
fn what_is_no_json_rejects_its_event_whatever_on_mismatch_says() {
    for on_mismatch in [OnMismatch::Reject, OnMismatch::Ignore] {
        let config = pipeline::Mask {
            on_mismatch,
            ..mask(vec![rule("payload.email", MaskAction::Remove)])
        };
        for content in [&b"secret"[..], b"{\"payload\":{\"email\":\"secret\"}", b"\xff"] {
            let error = refused(&config, message(content));
            assert!(
                error.to_string().ends_with("`payload.email` cannot be masked: the message is no JSON; expected JSON, or no rule for what is inside"),
                "{error}"
            );
        }
        let error = refused(&config, outbox_row(&[("payload", ColumnKind::Text, text("secret"))]));
        assert!(error.to_string().contains("the column is no JSON"), "{error}");
        let whole = pipeline::Mask {
            rules: vec![rule("payload", MaskAction::Remove)],
            ..config
        };
        let event = masked(&whole, outbox_row(&[("payload", ColumnKind::Text, text("secret"))]));
        assert_eq!(after(&event), [Value::Null], "a whole column need not be JSON");
    }
}

#[test]
fn a_rejected_event_is_masked_as_far_as_it_can_be() {
    let rules = || {
        vec![
            rule("payload.total", MaskAction::Round(1)),
            rule("payload.email", MaskAction::Remove),
            rule("payload.customer.name", MaskAction::Remove),
            rule("note.email", MaskAction::Remove),
        ]
    };
    let text = r#"{"payload":{"total":"secret 1","email":"secret 2", "customer":"kept","b":1}}"#;
    let error = refused(&mask(rules()), message(text));
    assert_eq!(
        content(&error.change),
        r#"{"payload":{"total":null, "customer":"kept","b":1}}"#
    );
    assert!(error.to_string().contains("`payload.total`"), "the first: {error}");

    let cells = [
        ("payload", ColumnKind::Json, cell(r#"{"email":"secret", "total":1.25}"#)),
        ("note", ColumnKind::Text, cell("kept")),
    ];
    let error = refused(&mask(rules()), outbox_row(&cells));
    assert_eq!(after(&error.change), [cell(r#"{"total":1.3}"#), cell("kept")]);
    let error = refused(
        &mask(vec![rule("c", MaskAction::Round(1))]),
        outbox_row(&[("c", ColumnKind::Text, cell("secret"))]),
    );
    assert_eq!(after(&error.change), [Value::Null]);
}

/// A mask before an outbox processor and a sink that take everything.
fn chain_of(config: pipeline::Mask, outbox: pipeline::Outbox) -> Chain {
    let processors = [
        pipeline::Processor::Mask(Box::new(config)),
        pipeline::Processor::Outbox(Box::new(outbox)),
    ];
    sample::chain_of(&processors, &sink(Some("t"), None))
}

#[test]
fn what_comes_behind_sees_the_masked_event_alone() {
    let config = mask(vec![
        rule("aggregate_id", replaced_by("m")),
        rule("payload.email", MaskAction::Remove),
        rule("topic", MaskAction::Remove),
    ]);
    let text = r#"{"aggregate_id":"secret","topic":"secret","payload":{"email":"secret","b":1}}"#;
    let record = published(chain_of(config.clone(), outbox()).process(message(text)));
    assert_eq!(
        (&*record.topic, record.key.as_deref()),
        ("events.default", Some(&b"m"[..]))
    );
    assert_eq!(record.value.as_deref(), Some(&br#"{"b":1}"#[..]));
    assert!(!format!("{record:?}").contains("secret"));

    // What a later processor refuses is parked as it came to it.
    let strict = pipeline::Outbox {
        strict: true,
        ..outbox()
    };
    let error = chain_of(config, strict).process(message(text)).unwrap_err();
    assert_eq!(content(&error.change), r#"{"aggregate_id":"m","payload":{"b":1}}"#);
    assert!(!format!("{error:?}").contains("secret"), "{error:?}");
}

#[test]
fn a_rejected_event_has_the_outline_of_its_record() {
    let config = mask(vec![rule("payload.total", MaskAction::Round(1))]);
    let text = r#"{"aggregate_id":"5","id":"e1","event_type":"created","payload":{"total":"x"}}"#;
    let error = chain_of(config.clone(), outbox()).process(message(text)).unwrap_err();
    assert_eq!(error.outline.key.as_deref(), Some(&b"5"[..]));
    assert_eq!(error.outline.topic.as_deref(), Some("events.default"));
    let names: Vec<_> = error.outline.headers.iter().map(|header| &*header.name).collect();
    assert_eq!(names, ["df-event-id", "df-aggregate-id", "df-event-type"]);

    let table = table("orders", &[("id", ColumnKind::Integer), ("payload", ColumnKind::Text)]);
    let cells = Some(vec![cell("7"), cell("no json")]);
    let change = row(Selection::Table, Operation::Insert, &table, None, cells);
    let error = chain_of(config, outbox()).process(change).unwrap_err();
    assert_eq!(error.outline.topic.as_deref(), Some("t"));
    assert_eq!(error.outline.key.as_deref(), Some(&br#"{"id":7}"#[..]));
}

#[test]
fn events_that_were_changed_are_counted() {
    let mut mask = Mask::new(&mask(vec![rule("a", MaskAction::Remove)]));
    for text in [r#"{"a":1}"#, r#"{"b":1}"#, r#"{"a":2}"#] {
        mask.process(message(text)).unwrap();
    }
    assert_eq!(mask.take_count(), (Arc::from("mask"), 2));
    assert_eq!(mask.take_count(), (Arc::from("mask"), 0));
}

#[test]
fn a_key_is_in_no_debug() {
    let config = mask(vec![rule("a", hash())]);
    let shown = format!("{config:?} {:?}", Mask::new(&config));
    assert!(!shown.contains("0123456789abcdef"), "{shown}");
}

#[test]
fn an_event_without_what_is_masked_keeps_its_memory() {
    let bytes = Bytes::from_static(br#"{"b":1}"#);
    let event = masked(&mask(vec![rule("a", MaskAction::Remove)]), message(bytes.clone()));
    assert_eq!(content(&event).as_ptr(), bytes.as_ptr());
}
