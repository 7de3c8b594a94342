use super::*;
use crate::config::pipeline::Start;

/// The example as a DeltaForge file, with one text replaced.
fn theirs(from: &str, to: &str) -> String {
    assert!(EXAMPLE.contains(from), "{from}");
    EXAMPLE.replacen(from, to, 1)
}

fn their_source(line: &str) -> String {
    theirs("      id: pg1\n", &format!("      id: pg1\n      {line}\n"))
}

fn their_sink(line: &str) -> String {
    theirs("        id: k1\n", &format!("        id: k1\n        {line}\n"))
}

#[test]
fn keys_without_effect_are_accepted_and_noted_once() {
    for name in ["sharding", "connection_policy", "batch", "schema_sensing", "journal"] {
        let line = format!("  {name}: {{mode: all, deep: [1, {{x: y}}]}}\n");
        let text = theirs("spec:\n", &format!("spec:\n{line}"));
        assert_eq!(notes(&text), [format!("7:3: spec.{name}: accepted without effect")]);
        let ours = text.replace("deltaforge/v1", "tailpost/v1");
        assert!(violation(&ours).contains("unknown key"), "{name}");
    }
    let text = theirs("spec:\n", "spec:\n  sink_batch_deadline_secs: 5\n");
    assert_eq!(
        notes(&text),
        ["7:3: spec.sink_batch_deadline_secs: accepted without effect"]
    );
    assert_eq!(
        notes(&their_sink("send_timeout_secs: 5")),
        ["26:9: spec.sinks[0].config.send_timeout_secs: accepted without effect"]
    );
    for line in [
        "snapshot: {mode: never, chunk_size: 5}",
        "snapshot: never",
        "snapshot: {}",
        "on_schema_drift: adapt",
    ] {
        let key = line.split(':').next().unwrap();
        assert_eq!(
            notes(&their_source(line)),
            [format!("11:7: spec.source.config.{key}: accepted without effect")]
        );
        assert!(!violations(&source_with(line)).is_empty(), "{line}");
    }
    assert_eq!(notes(&their_sink("encoding: json")), Vec::<String>::new());
}

#[test]
fn what_would_change_the_result_is_refused_by_name() {
    for (text, expected) in [
        (
            their_source("snapshot: initial"),
            "11:17: spec.source.config.snapshot: a snapshot of the tables' rows is not supported",
        ),
        (
            their_source("snapshot: {mode: initial}"),
            "11:24: spec.source.config.snapshot.mode: a snapshot of the tables' rows is not supported",
        ),
        (
            their_source("snapshot: {mode: always}"),
            "a snapshot of the tables' rows is not supported",
        ),
        (their_source("snapshot: {mode: sometimes}"), "expected `never`"),
        (
            their_source("on_schema_drift: halt"),
            "`on_schema_drift: halt` is not supported",
        ),
        (
            their_sink("encoding: avro"),
            "encoding `avro` is not supported; expected `json`",
        ),
        (theirs("type: kafka", "type: nats"), "sink type `nats` is not supported"),
        (
            theirs("- type: outbox", "- type: flatten"),
            "processor type `flatten` is not supported",
        ),
    ] {
        let line = violation(&text);
        assert!(line.contains(expected), "{line}");
    }
}

#[test]
fn start_position_is_start() {
    assert_eq!(
        postgres(&loaded(&their_source("start_position: latest"))).start,
        Start::Latest
    );
    assert!(matches!(
        postgres(&loaded(&their_source("start_position: {lsn: 0/10}"))).start,
        Start::Lsn(_)
    ));
    assert!(violation(&source_with("start_position: latest")).contains("unknown key"));
    assert!(
        violation(&their_source("start: latest\n      start_position: latest")).contains("expected one of the two")
    );
}

#[test]
fn an_empty_list_of_tables_is_all_tables() {
    let loaded = loaded(&theirs("[public.orders]", "[]"));
    assert!(postgres(&loaded).tables[0].matches("any", "table"));
    assert_eq!(loaded.notes.len(), 1);
    assert!(
        postgres(&super::loaded(&theirs("      tables: [public.orders]\n", "")))
            .tables
            .is_empty()
    );
    assert!(
        postgres(&super::loaded(&with("[public.orders]", "[]")))
            .tables
            .is_empty()
    );
}

#[test]
fn a_placeholder_in_capitals_is_taken_from_the_environment_where_it_is_set() {
    let mut variables = environment();
    variables.insert("REGION".to_owned(), "eu".to_owned());
    let loaded = load_with(&theirs("${aggregate_type}", "${REGION}.${UNSET}.${Mixed}"), &variables).unwrap();
    assert_eq!(topic(&loaded), "eu.${UNSET}.${Mixed}.${event_type}");
    let notes: Vec<_> = loaded.notes.iter().map(Note::to_string).collect();
    assert_eq!(
        notes,
        [
            "orders.yaml:19:7: spec.processors[0].topic: `${REGION}` is taken from the environment; write `${env:REGION}`"
        ]
    );
}

#[test]
fn a_wrong_version_of_theirs_does_not_drown_in_unknown_keys() {
    let text = theirs("spec:\n", "spec:\n  batch: {}\n").replace("deltaforge/v1", "deltaforge/v2");
    assert!(violation(&text).contains("did you mean `deltaforge/v1`?"));
}
