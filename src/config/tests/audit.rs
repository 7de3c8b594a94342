//! `spec.audit` and `spec.dispatches`.

use std::path::PathBuf;

use super::*;
use crate::config::{AuditNames, Dispatches};

fn audit(keys: &str) -> Audit {
    loaded(&spec_with(&format!("audit: {{path: a.jsonl{keys}}}")))
        .pipeline
        .audit
        .unwrap()
}

#[test]
fn a_ledger_has_its_defaults() {
    let found = audit("");
    assert_eq!(found.path, PathBuf::from("a.jsonl"));
    assert_eq!((found.max_size, found.keep), (64 * 1024 * 1024, None));
    assert_eq!((found.fields, found.names), (Vec::new(), AuditNames::default()));
    assert_eq!(loaded(&ours()).pipeline.audit, None);
}

#[test]
fn a_line_s_members_are_the_file_s_to_name() {
    let found = audit(
        ", max_size: 1MiB, keep: 5, names: {outbox_id: id, time: at}, fields: {dataset_id: '${dataset.id}', outbox_id: 'x'}",
    );
    assert_eq!((found.max_size, found.keep), (1024 * 1024, Some(5)));
    assert_eq!(
        (found.names.outbox_id.as_str(), found.names.time.as_str()),
        ("id", "at")
    );
    let fields: Vec<_> = found
        .fields
        .iter()
        .map(|(name, template)| (name.as_str(), template.to_string()))
        .collect();
    assert_eq!(
        fields,
        [
            ("dataset_id", "${dataset.id}".to_owned()),
            ("outbox_id", "x".to_owned())
        ]
    );
}

#[test]
fn what_a_ledger_cannot_be_is_refused() {
    for (keys, expected) in [
        ("audit: {}", "audit.path: missing key"),
        ("audit: {path: ''}", "audit.path: expected text that is not empty"),
        ("audit: {path: a, size: 1}", "audit.size: unknown key"),
        (
            "audit: {path: a, max_size: 1KiB}",
            "audit.max_size: expected 64KiB to 1024GiB",
        ),
        (
            "audit: {path: a, keep: 0}",
            "audit.keep: expected a whole number from 1",
        ),
        (
            "audit: {path: a, names: {status: hash}}",
            "audit.names.status: `hash` is of each line's end",
        ),
        (
            "audit: {path: a, names: {status: sink}}",
            "audit.names: two members are called `sink`",
        ),
        (
            "audit: {path: a, names: {attempts: x}}",
            "audit.names.attempts: unknown key",
        ),
        (
            "audit: {path: a, fields: {status: '${a}'}}",
            "audit.fields.status: each line has a member `status` already",
        ),
        (
            "audit: {path: a, fields: {continues: '${a}'}}",
            "audit.fields.continues: each line has a member",
        ),
        (
            "audit: {path: a, fields: {x: '${a'}}",
            "audit.fields.x: `${` without a closing",
        ),
        (
            "dispatches: {type: syslog, config: {path: a}}",
            "dispatches.type: expected `file`, `stdout` or `otlp`",
        ),
        (
            "dispatches: {type: otlp, config: {path: a}}",
            "dispatches.config.path: unknown key",
        ),
        (
            "dispatches: {type: otlp, endpoint: 'http://h:4318'}",
            "dispatches.endpoint: unknown key",
        ),
        (
            "dispatches: {type: otlp, config: {endpoint: 'h:4317'}}",
            "dispatches.config.endpoint: expected an http or https URL, without query, found `h:4317`",
        ),
        (
            "dispatches: {type: otlp, config: {endpoint: 'http://h:4318?a=1'}}",
            "dispatches.config.endpoint: expected an http or https URL, without query",
        ),
        (
            "dispatches: {type: otlp, config: {endpoint: 'http://u:p@h:4318'}}",
            "dispatches.config.endpoint: it has a user in it",
        ),
        ("dispatches: {type: file}", "dispatches.config: missing key"),
        (
            "dispatches: {type: file, config: {}}",
            "dispatches.config.path: missing key",
        ),
        (
            "dispatches: {type: stdout, config: {path: a}}",
            "dispatches.config: unknown key",
        ),
    ] {
        let line = violation(&spec_with(keys));
        assert!(line.contains(expected), "{keys}: {line}");
    }
}

#[test]
fn dispatch_records_go_to_a_file_to_stdout_or_to_a_collector() {
    let dispatches = |text: &str| loaded(&spec_with(text)).pipeline.dispatches;
    assert_eq!(
        dispatches("dispatches: {type: file, config: {path: d.jsonl}}"),
        Some(Dispatches::File(PathBuf::from("d.jsonl")))
    );
    assert_eq!(dispatches("dispatches: {type: stdout}"), Some(Dispatches::Stdout));
    for (text, expected) in [
        ("", None),
        (", config: {}", None),
        (", config: {endpoint: 'http://h:4318'}", Some("http://h:4318/")),
        (", config: {endpoint: 'https://h/otel'}", Some("https://h/otel")),
    ] {
        let Some(Dispatches::Otlp { endpoint }) = dispatches(&format!("dispatches: {{type: otlp{text}}}")) else {
            panic!("{text}");
        };
        assert_eq!(endpoint.as_ref().map(|url| url.as_str()), expected, "{text}");
    }
    let text = ours();
    let (before, _) = text.split_once("  sinks:\n").unwrap();
    let sink = "  sinks: [{type: stdout, config: {id: x}}]\n  dispatches: {type: stdout}\n";
    let line = violation(&format!("{before}{sink}"));
    assert!(
        line.contains("dispatches: the sink writes its records to stdout"),
        "{line}"
    );
}
