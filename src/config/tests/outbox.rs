//! What an outbox processor takes over from Debezium's event router.

use super::*;
use crate::config::pipeline::{
    HeaderNames, HeadersAs, KeyAs, LeftOut, OnMissing, OnNull, OnUpdate, PayloadAs, Source, TimeUnit, TimestampColumn,
    TopicRule,
};

/// A file whose only processor has these keys.
fn outbox_with(keys: &str) -> String {
    format!(
        "apiVersion: tailpost/v1\nkind: Pipeline\nmetadata: {{name: a}}\nspec:\n  source: {{type: postgres, config: {{id: s, dsn: \
         host=h, slot: s, publication: p, outbox: {{prefixes: ['*']}}}}}}\n  processors:\n  - type: outbox\n{}\n  sinks: [{{type: \
         kafka, config: {{id: k, brokers: 'h:1'}}}}]\n",
        keys.lines()
            .map(|line| format!("    {line}"))
            .collect::<Vec<_>>()
            .join("\n")
    )
}

fn routed(route: &str, text: &str) -> Option<String> {
    let loaded = loaded(&outbox_with(&format!("route: {route}")));
    let Some(TopicRule::Route(route)) = &outbox(&loaded).topic else {
        panic!("a route")
    };
    let mut topic = String::new();
    route.rewrite().append(text, &mut topic).then_some(topic)
}

#[test]
fn a_route_takes_its_expression_as_it_is_written() {
    let route = r"{by: type, regex: '(?<kind>[a-z]+)\.v[0-9]$', replacement: 'events.${kind}.${env:REGION}'}";
    let text = outbox_with(&format!("route: {route}"));
    let loaded = load_with(&text, &variables(&[("REGION", "eu")])).unwrap();
    let Some(TopicRule::Route(route)) = &outbox(&loaded).topic else {
        panic!("a route")
    };
    let mut topic = String::new();
    assert!(route.rewrite().append("order.v1", &mut topic));
    assert_eq!((route.by.as_str(), topic.as_str()), ("type", "events.order.eu"));
    assert_eq!(
        routed("{by: a, regex: '(.*)', replacement: 'x.${1}'}", "y").as_deref(),
        Some("x.y")
    );
}

#[test]
fn a_route_that_cannot_work_is_refused() {
    for (keys, expected) in [
        (
            "topic: a\nroute: {by: a, regex: b, replacement: c}",
            "processors[0].route: `topic` is there too",
        ),
        ("route: {regex: b, replacement: c}", "processors[0].route.by: missing"),
        ("route: {by: a, replacement: c}", "processors[0].route.regex: missing"),
        ("route: {by: a, regex: b}", "processors[0].route.replacement: missing"),
        (
            "route: {by: a, regex: '(', replacement: c}",
            "processors[0].route.regex: ",
        ),
        ("route: {by: a, regex: '(?!a)b', replacement: c}", "look-around"),
        (
            "route: {by: a, regex: '(a)', replacement: '${2}'}",
            "`2` is no group of the regular expression: it has `1`",
        ),
        (
            "route: {by: a, regex: '(b)', replacement: 'x.$1'}",
            "processors[0].route.replacement: `$1` is no group here: write `${1}`",
        ),
        (
            "route: {by: a, regex: b, replacement: 'x$$1'}",
            "processors[0].route.replacement: expected a topic",
        ),
        (
            "route: {by: a, regex: b, replacement: 'c d'}",
            "processors[0].route.replacement: ",
        ),
        (
            "route: {by: a, regex: b, replacement: c, flags: i}",
            "processors[0].route.flags: unknown key",
        ),
    ] {
        let line = violation(&outbox_with(keys));
        assert!(line.contains(expected), "{keys}: {line}");
    }
}

#[test]
fn names_and_forms_are_read() {
    let keys = "header_names: {event_id: id, aggregate_type: null}\nadditional_headers: {df-aggregate-type: t}\non_missing: \
                reject\non_null: keep\nkey_as: json\nkeep_empty_key: true\nraw_payload: true\npayload_as: \
                json_string\ntombstone_on_empty: true";
    let loaded = loaded(&outbox_with(keys));
    let outbox = outbox(&loaded);
    let names = HeaderNames {
        event_id: Some("id".to_owned()),
        aggregate_type: None,
        ..HeaderNames::default()
    };
    assert_eq!(outbox.header_names, names);
    assert_eq!((outbox.on_missing, outbox.on_null), (OnMissing::Reject, OnNull::Keep));
    assert_eq!((outbox.key_as, outbox.keep_empty_key), (KeyAs::Json, true));
    assert_eq!(
        (outbox.payload_as, outbox.tombstone_on_empty),
        (PayloadAs::JsonString, true)
    );
}

#[test]
fn what_debezium_s_converters_write_is_read() {
    let schema = r#"{"type": "string", "optional": true}"#;
    let keys = format!(
        "key_as: json\nkey_schema: '{schema}'\nheaders_as: json\nraw_payload: true\npayload_as: json_string\npayload_schema: \
         '{schema}'"
    );
    let with_schemas = loaded(&outbox_with(&keys));
    let with_schemas = outbox(&with_schemas);
    assert_eq!(with_schemas.key_schema.as_deref(), Some(schema));
    assert_eq!(with_schemas.payload_schema.as_deref(), Some(schema));
    assert_eq!(with_schemas.headers_as, HeadersAs::Json);
    for (word, form) in [("compact", PayloadAs::Compact), ("expanded", PayloadAs::Expanded)] {
        let keys = format!("raw_payload: true\npayload_as: {word}\ndrop_null_members: true");
        let loaded = loaded(&outbox_with(&keys));
        let left_out = LeftOut {
            null_members: true,
            empty_arrays: false,
        };
        assert_eq!((outbox(&loaded).payload_as, outbox(&loaded).left_out), (form, left_out));
    }
    let defaults = loaded(&outbox_with("tables: [a]"));
    let defaults = outbox(&defaults);
    assert_eq!(
        (defaults.headers_as, defaults.left_out),
        (HeadersAs::Text, LeftOut::default())
    );
    assert_eq!((&defaults.key_schema, &defaults.payload_schema), (&None, &None));
}

#[test]
fn tables_that_match_no_outbox_are_noted() {
    let noted = |selected: &str, tables: &str| {
        let text = outbox_with(&format!("tables: {tables}")).replace("prefixes: ['*']", selected);
        loaded(&text).notes.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    for (selected, tables) in [
        ("tables: [public.outbox]", "[public.outbux]"),
        ("tables: [public.outbox]", "[other.outbox]"),
        ("tables: [public.outbox, public.other]", "['pub%.outbux']"),
        ("tables: ['public.out*']", "[public.inbox]"),
        ("tables: [outbox]", "[outbux]"),
        ("prefixes: [orders.v1]", "[orders.v2]"),
        ("prefixes: ['orders.*']", "[payments]"),
    ] {
        let notes = noted(selected, tables);
        let expected = "spec.processors[0].tables[0]: matches no outbox of the source, which has `";
        assert!(
            notes.len() == 1 && notes[0].contains(expected),
            "{selected} {tables}: {notes:?}"
        );
    }
    for (selected, tables) in [
        ("tables: [public.outbox]", "[outbox]"),
        ("tables: [outbox]", "[public.outbox]"),
        ("tables: ['public.*']", "[outbox]"),
        ("tables: ['a*.outbox']", "['*b.outbox']"),
        ("tables: ['out*']", "[public.outbox]"),
        ("prefixes: ['orders.*']", "[orders.v1]"),
        ("prefixes: [a], tables: [b]", "[b, a]"),
    ] {
        assert_eq!(noted(selected, tables), Vec::<String>::new(), "{selected} {tables}");
    }
}

#[test]
fn a_compact_payload_is_noted_where_no_column_is_json() {
    let notes = |database: &str, form: &str| {
        let text = outbox_with(&format!("raw_payload: true\npayload_as: {form}"));
        let (before, after) = text.split_once("{type: postgres").unwrap();
        let (_, after) = after.split_once("}}}").unwrap();
        let source = "config: {id: s, dsn: 'mysql://u@h/d', outbox: {tables: [o]}}}";
        let text = format!("{before}{{type: {database}, {source}{after}");
        loaded(&text).notes.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let told = notes("mariadb", "compact");
    assert!(
        told.len() == 1 && told[0].contains("payload_as: without effect on MariaDB"),
        "{told:?}"
    );
    for (database, form) in [("mysql", "compact"), ("mariadb", "expanded")] {
        assert_eq!(notes(database, form), Vec::<String>::new());
    }
}

#[test]
fn without_a_column_of_a_trace_its_headers_are_free() {
    let keys = "additional_headers: {traceparent: a}\nidempotency_key: b\nidempotency_header: tracestate";
    assert_eq!(outbox(&loaded(&outbox_with(keys))).additional_headers.len(), 1);
}

#[test]
fn the_gravest_word_on_updates_is_the_source_s() {
    let two = |first: &str, second: &str| {
        let text = outbox_with(&format!("tables: [a]\n{first}\n<second>"));
        let text = text.replace("    <second>", &format!("  - type: outbox\n    {second}"));
        text.replace("prefixes: ['*']", "prefixes: ['*'], tables: ['*']")
    };
    for (first, second, expected) in [
        ("strict: false", "strict: false", OnUpdate::Skip),
        ("on_update: skip", "on_update: skip", OnUpdate::Skip),
        ("on_update: warn", "strict: false", OnUpdate::Warn),
        ("on_update: halt", "on_update: warn", OnUpdate::Halt),
        ("on_update: warn", "on_update: halt", OnUpdate::Halt),
    ] {
        let text = two(first, second);
        let loaded = loaded(&text);
        let Source::Postgres(postgres) = &loaded.pipeline.source else {
            panic!("a source of PostgreSQL")
        };
        assert_eq!(postgres.on_update, expected, "{text}");
    }
    let line = violation(&outbox_with("on_update: warn"));
    assert!(
        line.contains("on_update: without effect: expected `outbox.tables`"),
        "{line}"
    );
    loaded(&outbox_with("on_update: skip"));
    let line = violation(&outbox_with("on_update: fatal"));
    assert!(line.contains("on_update: expected `skip`, `warn` or `halt`"), "{line}");
}

#[test]
fn what_would_have_no_effect_is_refused() {
    for (keys, expected) in [
        (
            "key_schema: '{\"type\": \"string\"}'",
            "key_schema: without effect: expected `key_as: json` beside it",
        ),
        (
            "key_as: json\nkey_schema: '[1]'",
            "key_schema: expected a Connect schema as JSON",
        ),
        (
            "key_as: json\nkey_schema: '{\"optional\": true}'",
            "key_schema: expected a Connect schema as JSON",
        ),
        ("key_as: json\nkey_schema: {type: string}", "key_schema: expected text"),
        (
            "raw_payload: true\npayload_as: expanded\npayload_schema: '{\"type\": \"string\"}'",
            "payload_schema: without effect: expected `payload_as: json_string` beside it",
        ),
        (
            "payload_schema: '{\"type\": \"string\"}'",
            "payload_schema: without effect: expected `payload_as: json_string` beside it",
        ),
        (
            "raw_payload: true\ndrop_null_members: true",
            "drop_null_members: without effect: expected `payload_as: compact` or `payload_as: expanded` beside it",
        ),
        (
            "raw_payload: true\npayload_as: json_string\ndrop_empty_arrays: false",
            "drop_empty_arrays: without effect: expected `payload_as: compact` or `payload_as: expanded` beside it",
        ),
        (
            "payload_as: compact\ndrop_null_members: true",
            "payload_as: without effect in an envelope",
        ),
        ("headers_as: avro", "headers_as: expected `text` or `json`"),
        ("payload_as: text", "payload_as: without effect in an envelope"),
        (
            "raw_payload: false\ntombstone_on_empty: true",
            "tombstone_on_empty: without effect in an envelope",
        ),
        (
            "key: '${a}'\nkeep_empty_key: true",
            "keep_empty_key: without effect beside `key`",
        ),
        (
            "header_names: {event_id: a, event_type: a}",
            "header_names: two headers have one name",
        ),
        (
            "header_names: {event_id: df-event-type}",
            "header_names: two headers have one name",
        ),
        ("header_names: {event_id: ''}", "header_names.event_id: "),
        ("header_names: {event: a}", "header_names.event: unknown key"),
        (
            "header_names: {event_id: id}\nadditional_headers: {id: a}",
            "additional_headers.id: tailpost sets this header itself",
        ),
        (
            "columns: {trace: span}\nadditional_headers: {traceparent: a}",
            "additional_headers.traceparent: `columns.trace` sets this header: expected another name",
        ),
        (
            "columns: {trace: span}\nheader_names: {event_id: tracestate}",
            "header_names.event_id: `columns.trace` sets this header: expected another name",
        ),
        (
            "columns: {trace: span}\nidempotency_key: a\nidempotency_header: traceparent",
            "idempotency_header: another header is called `traceparent`",
        ),
        (
            "additional_headers: {tailpost-dlq-reason: a}",
            "additional_headers.tailpost-dlq-reason: a dead letter's own headers are called so",
        ),
        (
            "header_names: {event_id: tailpost-dlq-event-id}",
            "header_names.event_id: a dead letter's own headers are called so",
        ),
        (
            "envelope_fields: {a: b}",
            "envelope_fields: without effect in an envelope",
        ),
        (
            "envelope_fields: {payload: b}\nraw_payload: true",
            "envelope_fields.payload: the payload itself is there",
        ),
        ("envelope_fields: {a: ''}\nraw_payload: true", "envelope_fields.a: "),
        ("payload_as: json\nraw_payload: true", "payload_as: "),
        ("on_missing: halt", "on_missing: "),
        ("on_null: drop", "on_null: "),
        ("json_as: raw", "json_as: expected `value`, `text` or `compact`"),
        ("key_as: avro", "key_as: "),
    ] {
        let line = violation(&outbox_with(keys));
        assert!(line.contains(expected), "{keys}: {line}");
    }
}

#[test]
fn columns_beside_the_event_s_own_are_read() {
    let columns = |text: &str| {
        let loaded = loaded(&outbox_with(&format!("columns: {text}")));
        outbox(&loaded).columns.clone()
    };
    let none = columns("{payload: data}");
    assert_eq!((none.timestamp, none.partition), (None, None));
    let plain = columns("{timestamp: created_at, partition: part}");
    let time = |unit| {
        Some(TimestampColumn {
            name: "created_at".to_owned(),
            unit,
        })
    };
    assert_eq!(
        (plain.timestamp, plain.partition.as_deref()),
        (time(None), Some("part"))
    );
    let carried = columns("{headers: meta, trace: tracingspancontext}");
    assert_eq!(
        (carried.headers.as_deref(), carried.trace.as_deref()),
        (Some("meta"), Some("tracingspancontext"))
    );
    let with_unit = columns("{timestamp: {column: created_at, unit: us}}");
    assert_eq!(with_unit.timestamp, time(Some(TimeUnit::Micros)));
    for (text, expected) in [
        ("{timestamp: {unit: us}}", "columns.timestamp.column: missing"),
        ("{timestamp: {column: a, unit: minutes}}", "columns.timestamp.unit: "),
        ("{timestamp: ''}", "columns.timestamp: "),
        ("{timestamp: [a]}", "columns.timestamp: "),
        ("{partition: 1}", "columns.partition: "),
    ] {
        let line = violation(&outbox_with(&format!("columns: {text}")));
        assert!(line.contains(expected), "{text}: {line}");
    }
}
