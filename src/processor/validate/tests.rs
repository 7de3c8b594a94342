use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::event::{Change, Origin, Oversized, Selection};
use crate::processor::ErrorKind;
use crate::processor::sample::*;
use crate::row::{ColumnKind, Value as Cell};

const ORDER: &str = r##"{
    "type": "object",
    "required": ["customer", "items"],
    "properties": {
        "customer": {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}},
        "items": {"type": "array", "items": {"$ref": "#/$defs/item"}},
        "note": {"type": "string", "maxLength": 5}
    },
    "additionalProperties": false,
    "$defs": {"item": {"properties": {"qty": {"type": "number", "minimum": 1}}}}
}"##;

fn validate() -> pipeline::Validate {
    let name = |name: &str| vec![name.to_owned()];
    pipeline::Validate {
        id: "validate".to_owned(),
        tables: Vec::new(),
        schemas: None,
        event_type: name("event_type"),
        payload: name("payload"),
        require: Vec::new(),
        sequence: None,
        require_fields: Vec::new(),
    }
}

/// Version 1.0.0 for `order.created`, and one that takes only `true` as version 2.
fn with_schemas(on_missing: OnMissingSchema) -> pipeline::Validate {
    let mut known = PayloadSchemas::default();
    known.add("order.created", "1.0.0", ORDER.as_bytes()).unwrap();
    known.add("order.created", "2", br#"{"const": true}"#).unwrap();
    pipeline::Validate {
        schemas: Some(pipeline::Schemas {
            place: SchemaPlace::Folder(known),
            version: Some(vec!["meta".to_owned(), "version".to_owned()]),
            default_version: "1.0.0".to_owned(),
            on_missing,
        }),
        ..validate()
    }
}

fn requiring(requirements: &[(Option<&[&str]>, &[&str])]) -> pipeline::Validate {
    let require = requirements.iter().map(|(event_types, paths)| pipeline::Requirement {
        event_types: event_types.map(|patterns| {
            patterns
                .iter()
                .map(|text| PrefixPattern::parse(text).unwrap())
                .collect()
        }),
        paths: paths.iter().map(|path| EventPath::parse(path).unwrap()).collect(),
    });
    pipeline::Validate {
        require: require.collect(),
        ..validate()
    }
}

fn requiring_fields(fields: &[&str]) -> pipeline::Validate {
    let fields = fields.iter().map(|field| field.split('.').map(str::to_owned).collect());
    pipeline::Validate {
        require_fields: fields.collect(),
        ..validate()
    }
}

/// None: it passes, as it is.
fn refusal(config: &pipeline::Validate, event: ChangeEvent) -> Option<String> {
    let before = format!("{event:?}");
    match Validate::new(config).process(event) {
        Ok(Step::Pass(event)) => {
            assert_eq!(format!("{event:?}"), before);
            None
        }
        Ok(other) => panic!("{other:?}"),
        Err(error) => {
            assert_eq!(format!("{:?}", error.change), before);
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert_eq!(error.dead_letter_reason().label(), "schema_validation_failed");
            Some(error.problem.to_string())
        }
    }
}

fn order(payload: &str) -> ChangeEvent {
    message(format!(r#"{{"event_type": "order.created", "payload": {payload}}}"#))
}

#[test]
fn a_payload_must_match_the_schema_of_its_type_and_version() {
    let config = with_schemas(OnMissingSchema::Reject);
    let good = r#"{"customer": {"id": 1}, "items": [{"qty": 2}], "note": "abc"}"#;
    assert_eq!(refusal(&config, order(good)), None);
    for (payload, expected) in [
        (
            r#"{"customer": {"id": 1}, "items": [{"qty": 1}, {"qty": 0}]}"#,
            "`/items/1/qty` does not meet `/$defs/item/properties/qty/minimum`",
        ),
        (
            r#"{"customer": {}, "items": []}"#,
            "`/customer` lacks `id`, by `/properties/customer/required`",
        ),
        (r#"{"items": []}"#, "it lacks `customer`, by `/required`"),
        ("[]", "it does not meet `/type`"),
        ("null", "it does not meet `/type`"),
        (
            r#"{"customer": {"id": 1}, "items": [], "x": 1}"#,
            "it does not meet `/additionalProperties`",
        ),
    ] {
        let found = refusal(&config, order(payload)).expect(payload);
        assert_eq!(
            found,
            format!("the payload does not match its schema `order.created/1.0.0`: {expected}")
        );
    }
    let versioned = |version: &str, payload: &str| {
        let text =
            format!(r#"{{"event_type": "order.created", "meta": {{"version": {version}}}, "payload": {payload}}}"#);
        refusal(&config, message(text))
    };
    assert_eq!(versioned("2", "true"), None);
    assert_eq!(versioned("\"2\"", "true"), None);
    assert!(versioned("2", good).is_some_and(|refusal| refusal.contains("`order.created/2`")));
    assert_eq!(versioned("null", good), None, "the default version");
    assert!(versioned("null", "true").is_some());
}

#[test]
fn a_schema_that_the_log_does_not_tell_is_none_to_match() {
    let config = pipeline::Validate {
        schemas: with_schemas(OnMissingSchema::Reject)
            .schemas
            .map(|schemas| pipeline::Schemas {
                version: Some(vec!["version".to_owned()]),
                ..schemas
            }),
        ..validate()
    };
    let table = table(
        "orders",
        &[
            ("event_type", ColumnKind::Text),
            ("version", ColumnKind::Text),
            ("payload", ColumnKind::Text),
        ],
    );
    for unknown in 0..3 {
        let mut cells = vec![text("order.created"), text("2"), text("false")];
        let update = |cells: &Vec<Cell>| row(Selection::Table, Operation::Update, &table, None, Some(cells.clone()));
        assert!(refusal(&config, update(&cells)).is_some());
        cells[unknown] = Cell::Unchanged;
        assert_eq!(refusal(&config, update(&cells)), None, "{unknown}");
    }
}

#[test]
fn an_event_without_a_schema_is_refused_or_passes() {
    let unknown = || {
        [
            message(r#"{"event_type": "order.paid", "payload": 1}"#),
            message(r#"{"event_type": "order.created", "meta": {"version": "3"}, "payload": 1}"#),
            message(r#"{"payload": 1}"#),
            message("no json"),
        ]
    };
    let refusals: Vec<_> = unknown()
        .into_iter()
        .map(|event| refusal(&with_schemas(OnMissingSchema::Reject), event).expect("a refusal"))
        .collect();
    let expected = |version: &str, of: &str| {
        format!("there is no schema of version `{version}` for {of}: expected one, or `on_missing_schema: allow`")
    };
    assert_eq!(
        refusals,
        [
            expected("1.0.0", "`order.paid`"),
            expected("3", "`order.created`"),
            expected("1.0.0", "an event without a type"),
            expected("1.0.0", "an event without a type"),
        ]
    );
    for event in unknown() {
        assert_eq!(refusal(&with_schemas(OnMissingSchema::Allow), event), None);
    }
}

#[test]
fn a_payload_of_a_column_is_read_whatever_its_type() {
    let config = with_schemas(OnMissingSchema::Reject);
    let row = |kind, payload| {
        outbox_row(&[
            ("event_type", ColumnKind::Text, text("order.created")),
            ("payload", kind, payload),
        ])
    };
    let good = r#" {"customer": {"id": 1}, "items": []} "#;
    for (kind, payload) in [
        (ColumnKind::Json, text(good)),
        (ColumnKind::Text, text(good)),
        (ColumnKind::Binary, Cell::Bytes(Bytes::from_static(good.as_bytes()))),
    ] {
        assert_eq!(refusal(&config, row(kind, payload)), None, "{kind:?}");
    }
    for (payload, expected) in [
        (
            text("secret"),
            "`payload` cannot be read as a payload of JSON: a fault at line 1, column 1",
        ),
        (text(""), "it ends too early, at line 1, column 0"),
        (text("{\"a\":\"secret\"\n"), "it ends too early, at line 2, column 0"),
        (Cell::Bytes(Bytes::from_static(b"\xff")), "its bytes are not UTF-8"),
        (Cell::Null, "it does not meet `/type`"),
    ] {
        let found = refusal(&config, row(ColumnKind::Text, payload)).expect("a refusal");
        assert!(found.contains(expected) && !found.contains("secret"), "{found}");
    }
    let without = outbox_row(&[("event_type", ColumnKind::Text, text("order.created"))]);
    assert!(refusal(&config, without).is_some_and(|refusal| refusal.ends_with("there is no such field")));
}

#[test]
fn what_is_said_of_a_payload_holds_no_value_and_has_an_end() {
    let config = with_schemas(OnMissingSchema::Reject);
    let items = vec![r#"{"qty": -4242}"#; 1000].join(",");
    let payload = format!(r#"{{"customer": {{"id": "secret-id"}}, "items": [{items}], "note": "a secret note"}}"#);
    let found = refusal(&config, order(&payload)).expect("a refusal");
    assert!(found.ends_with("; and more") && found.len() < 500, "{found}");
    for value in ["secret", "4242"] {
        assert!(!found.contains(value), "{found}");
    }
    let long = "x".repeat(10_000);
    let found = refusal(
        &config,
        message(format!(r#"{{"event_type": "{long}\n", "payload": 1}}"#)),
    )
    .expect("a refusal");
    assert!(found.len() < 400, "{found}");
}

#[test]
fn required_paths_must_be_there_and_not_null() {
    let created: &[&str] = &["order.*"];
    let config = requiring(&[(Some(created), &["customer.id", "items[*].sku"]), (None, &["kind"])]);
    for (payload, expected) in [
        (r#"{"kind": 1, "customer": {"id": 5}, "items": []}"#, None),
        (
            r#"{"kind": false, "customer": {"id": ""}, "items": [{"sku": 0}]}"#,
            None,
        ),
        (
            r#"{"customer": {"id": null}, "items": [{"sku": 1}, {}]}"#,
            Some("`customer.id`, `items[*].sku`, `kind`"),
        ),
        (r#"{"kind": 1, "customer": 5}"#, Some("`customer.id`, `items[*].sku`")),
        ("null", Some("`customer.id`, `items[*].sku`, `kind`")),
    ] {
        let expected =
            expected.map(|paths| format!("the payload lacks {paths}: expected what is not null there (`require`)"));
        assert_eq!(refusal(&config, order(payload)), expected, "{payload}");
    }
    let of_type = |event_type: &str, payload: &str| {
        let text = format!(r#"{{"event_type": {event_type}, "payload": {payload}}}"#);
        refusal(&config, message(text))
    };
    assert_eq!(of_type("\"orders\"", r#"{"kind": 1}"#), None, "another type");
    assert_eq!(of_type("null", r#"{"kind": 1}"#), None);
    assert!(of_type("null", "{}").is_some(), "what is asked of all");
    assert_eq!(
        refusal(&config, message("[1]")).as_deref(),
        Some("the payload lacks `kind`: expected what is not null there (`require`)")
    );
}

#[test]
fn required_fields_are_the_event_s_own() {
    let config = requiring_fields(&["idempotency_key", "meta.care_label"]);
    assert_eq!(
        refusal(
            &config,
            message(r#"{"idempotency_key": 1, "meta": {"care_label": "x"}}"#)
        ),
        None
    );
    let lacks = |fields: &str| {
        Some(format!(
            "it lacks {fields}: expected what is not null there (`require_fields`)"
        ))
    };
    assert_eq!(
        refusal(
            &config,
            message(r#"{"idempotency_key": null, "payload": {"idempotency_key": 1}}"#)
        ),
        lacks("`idempotency_key`, `meta.care_label`")
    );
    assert_eq!(
        refusal(&config, message("no json")),
        lacks("`idempotency_key`, `meta.care_label`")
    );
    let row = |key, meta| {
        outbox_row(&[
            ("idempotency_key", ColumnKind::Text, key),
            ("meta", ColumnKind::Json, meta),
        ])
    };
    assert_eq!(refusal(&config, row(text(""), text(r#"{"care_label": 1}"#))), None);
    assert_eq!(
        refusal(&config, row(Cell::Null, text("{}"))),
        lacks("`idempotency_key`, `meta.care_label`")
    );
    let whole = requiring_fields(&["meta"]);
    assert_eq!(refusal(&whole, row(Cell::Null, text(" null"))), lacks("`meta`"));
}

#[test]
fn new_rows_of_ordinary_tables_are_looked_at_as_far_as_the_log_has_them() {
    let table = table(
        "orders",
        &[
            ("id", ColumnKind::Integer),
            ("status", ColumnKind::Text),
            ("payload", ColumnKind::Text),
        ],
    );
    let config = pipeline::Validate {
        require_fields: vec![vec!["status".to_owned()]],
        ..requiring(&[(None, &["a"])])
    };
    let of = |operation, before: Option<Vec<Cell>>, after: Option<Vec<Cell>>| {
        refusal(&config, row(Selection::Table, operation, &table, before, after))
    };
    let cells = |status: Cell, payload: Cell| Some(vec![text("1"), status, payload]);
    let good = || cells(text("new"), text(r#"{"a": 1}"#));
    let bad = || cells(Cell::Null, text("{}"));
    for (before, after, is_refused) in [
        (None, good(), false),
        (None, bad(), true),
        (bad(), good(), false),
        (good(), bad(), true),
        (None, cells(text("new"), Cell::Unchanged), false),
        (None, cells(Cell::Absent, text(r#"{"a": 1}"#)), false),
        (bad(), cells(text("new"), Cell::Unchanged), true),
    ] {
        let shown = format!("{before:?} {after:?}");
        assert_eq!(of(Operation::Update, before, after).is_some(), is_refused, "{shown}");
    }
    assert!(of(Operation::Insert, None, bad()).is_some());
    assert_eq!(of(Operation::Delete, bad(), None), None);
    assert_eq!(of(Operation::Truncate, None, None), None);
    assert_eq!(
        refusal(&config, row(Selection::Outbox, Operation::Update, &table, None, bad())),
        None,
        "no event"
    );
}

#[test]
fn tables_say_whose_events_are_looked_at() {
    let config = pipeline::Validate {
        tables: vec![pattern("outbox"), pattern("orders")],
        ..requiring_fields(&["none"])
    };
    assert!(refusal(&config, message_to("outbox", "{}")).is_some());
    assert_eq!(refusal(&config, message_to("other", "{}")), None);
    for (name, is_refused) in [("orders", true), ("customers", false)] {
        let table = table(name, &[("a", ColumnKind::Text)]);
        let event = row(Selection::Table, Operation::Insert, &table, None, Some(vec![text("1")]));
        assert_eq!(refusal(&config, event).is_some(), is_refused, "{name}");
    }
    let oversized = Oversized {
        origin: Origin::Prefix("outbox".to_owned()),
        bytes: 2,
        limit: 1,
    };
    assert_eq!(
        refusal(&config, event(Selection::Outbox, Change::Oversized(oversized))),
        None
    );
}

#[test]
fn a_refused_event_has_the_outline_of_its_record_and_is_counted() {
    let processors = [
        pipeline::Processor::Validate(Box::new(with_schemas(OnMissingSchema::Reject))),
        pipeline::Processor::Outbox(Box::new(outbox())),
    ];
    let mut chain = chain_of(&processors, &sink(None, None));
    let text = r#"{"event_type": "order.created", "aggregate_id": "5", "payload": {}}"#;
    let error = chain.process(message(text)).unwrap_err();
    assert_eq!(error.outline.key.as_deref(), Some(&b"5"[..]));
    assert_eq!(error.outline.topic.as_deref(), Some("events.default"));
    published(chain.process(message(text.replace("{}", r#"{"customer": {"id": 1}, "items": []}"#))));
    let counts: Vec<_> = chain.take_counts().map(|(_, count)| count).collect();
    assert_eq!(counts, [1, 1]);
}

proptest! {
    #[test]
    fn any_message_has_a_defined_outcome(content in prop::collection::vec(any::<u8>(), 0..100), payload in "\\PC{0,20}") {
        let config = pipeline::Validate {
            require_fields: vec![vec!["a".to_owned()]],
            ..with_schemas(OnMissingSchema::Reject)
        };
        let _ = Validate::new(&config).process(message(content));
        let text = format!(r#"{{"event_type": "order.created", "a": 1, "payload": {payload}}}"#);
        let _ = Validate::new(&config).process(message(text));
    }
}
