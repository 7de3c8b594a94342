//! `envelope` of a sink.

use super::*;
use crate::config::pipeline::{ChangeTypes, CloudEvents, CloudEventsMode, DebeziumSchema, Envelope};

fn envelope(line: &str) -> Envelope {
    kafka(&loaded(&sink_with(&format!("envelope: {line}"))))
        .envelope
        .clone()
}

fn cloudevents(mode: CloudEventsMode, type_prefix: Option<&str>, source: Option<&str>) -> Envelope {
    Envelope::CloudEvents(CloudEvents {
        mode,
        type_prefix: type_prefix.map(str::to_owned),
        source: source.map(str::to_owned),
        change_types: ChangeTypes::TableAndOperation,
    })
}

#[test]
fn an_envelope_is_a_name_or_a_mapping() {
    let debezium = |schema| Envelope::Debezium { schema };
    let structured = CloudEventsMode::Structured;
    for (line, expected) in [
        ("native", Envelope::Native),
        ("{type: native}", Envelope::Native),
        ("debezium", debezium(DebeziumSchema::Null)),
        ("{type: debezium}", debezium(DebeziumSchema::Null)),
        ("{type: debezium, schema: ~}", debezium(DebeziumSchema::Null)),
        ("{type: debezium, schema: omit}", debezium(DebeziumSchema::Omit)),
        ("cloudevents", cloudevents(structured, None, None)),
        ("{type: cloudevents}", cloudevents(structured, None, None)),
        (
            "{type: cloudevents, mode: structured, type_prefix: com.acme}",
            cloudevents(structured, Some("com.acme"), None),
        ),
        (
            "{type: cloudevents, mode: binary, source: 'https://acme.example/a%20b'}",
            cloudevents(CloudEventsMode::Binary, None, Some("https://acme.example/a%20b")),
        ),
    ] {
        assert_eq!(envelope(line), expected, "{line}");
    }
}

#[test]
fn a_deltaforge_file_s_types_have_no_table() {
    let text =
        sink_with("envelope: {type: cloudevents, type_prefix: com.acme}").replace("tailpost/v1", "deltaforge/v1");
    let Envelope::CloudEvents(config) = kafka(&loaded(&text)).envelope.clone() else {
        panic!("cloudevents")
    };
    assert_eq!(config.change_types, ChangeTypes::Operation);
}

#[test]
fn what_an_envelope_cannot_be_is_refused_in_its_place() {
    for (line, expected) in [
        (
            "cloudevent",
            "envelope: expected `native`, `debezium` or `cloudevents`, found `cloudevent`; did you mean `cloudevents`?",
        ),
        (
            "{mode: binary}",
            "envelope.type: missing key: expected `native`, `debezium` or `cloudevents`",
        ),
        (
            "{type: native, schema: omit}",
            "envelope.schema: unknown key; expected one of type",
        ),
        (
            "{type: debezium, shema: omit}",
            "envelope.shema: unknown key; did you mean `schema`?",
        ),
        (
            "{type: debezium, schema: full}",
            "envelope.schema: expected `omit`, found `full`",
        ),
        (
            "{type: debezium, schema: true}",
            "envelope.schema: expected `omit`, or null, found true",
        ),
        (
            "{type: cloudevents, mode: batch}",
            "envelope.mode: expected `structured` or `binary`, found `batch`",
        ),
        (
            "{type: cloudevents, typeprefix: a}",
            "envelope.typeprefix: unknown key; did you mean `type_prefix`?",
        ),
        (
            "{type: cloudevents, type_prefix: ''}",
            "envelope.type_prefix: expected a text such as com.example.orders",
        ),
        (
            "{type: cloudevents, type_prefix: com.}",
            "envelope.type_prefix: expected a text such as com.example.orders",
        ),
        (
            "{type: cloudevents, type_prefix: a b}",
            "envelope.type_prefix: expected a text such as com.example.orders",
        ),
        (
            "{type: cloudevents, source: ''}",
            "envelope.source: expected a URI reference",
        ),
        (
            "{type: cloudevents, source: a b}",
            "envelope.source: expected a URI reference",
        ),
        ("{type: cloudevents, source: 5}", "envelope.source: expected text"),
        ("[native]", "envelope: expected"),
    ] {
        let found = violation(&sink_with(&format!("envelope: {line}")));
        assert!(found.contains(expected), "{line}: {found}");
    }
}

#[test]
fn a_header_that_the_envelope_sets_is_refused() {
    let file = |mode: &str, keys: &str| {
        let line = format!("envelope: {{type: cloudevents, mode: {mode}}}");
        let with_sink = sink_with(&line);
        with_sink.replacen(
            "    - type: outbox\n",
            &format!("    - type: outbox\n      {keys}\n"),
            1,
        )
    };
    for (mode, keys, name) in [
        ("binary", "additional_headers: {ce_id: a}", "ce_id"),
        ("binary", "additional_headers: {content-type: a}", "content-type"),
        ("structured", "additional_headers: {content-type: a}", "content-type"),
        ("binary", "header_names: {event_id: ce_id}", "ce_id"),
    ] {
        let line = violation(&file(mode, keys));
        let expected = format!("the sink's envelope sets the header `{name}` itself: expected another name");
        assert!(line.contains(&expected), "{line}");
    }
    for (mode, keys) in [
        ("binary", "additional_headers: {ce_tenant: a, x-type: b}"),
        ("structured", "header_names: {event_id: ce_id}"),
    ] {
        loaded(&file(mode, keys));
    }
    loaded(&processor_with("header_names: {event_id: ce_id, event_type: ce_type}"));
}
