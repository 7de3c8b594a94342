//! An outbox processor's idempotency key.

use super::*;
use crate::config::pipeline::IdempotencyKey;

/// A file whose only processor has these keys.
fn outbox_with(keys: &str) -> String {
    let keys: String = keys.lines().map(|line| format!("\n    {line}")).collect();
    format!(
        "apiVersion: tailpost/v1\nkind: Pipeline\nmetadata: {{name: a}}\nspec:\n  source: {{type: postgres, config: {{id: s, dsn: \
         host=h, slot: s, publication: p, outbox: {{prefixes: [outbox]}}}}}}\n  processors:\n  - type: outbox{keys}\n  sinks: \
         [{{type: kafka, config: {{id: k, brokers: 'h:1', topic: t}}}}]\n"
    )
}

#[test]
fn an_idempotency_key_is_a_field_or_what_it_is_a_hash_of() {
    let by_column = loaded(&outbox_with("idempotency_key: request_id"));
    let found = outbox(&by_column).idempotency.clone().unwrap();
    assert_eq!(found.header, "idempotency-key");
    assert_eq!(found.key, IdempotencyKey::Column("request_id".to_owned()));
    let keys = "idempotency_key: {sha256: [orders, '${recordId}', '${meta.hash}']}\nidempotency_header: x-once";
    let by_hash = loaded(&outbox_with(keys));
    let found = outbox(&by_hash).idempotency.clone().unwrap();
    assert_eq!(found.header, "x-once");
    let IdempotencyKey::Sha256 { parts, separator } = found.key else {
        panic!("a hash")
    };
    let parts: Vec<String> = parts.iter().map(ToString::to_string).collect();
    assert_eq!(parts, ["orders", "${recordId}", "${meta.hash}"]);
    assert_eq!(separator, "|");
    assert_eq!(outbox(&loaded(&outbox_with("strict: false"))).idempotency, None);
    for (keys, expected) in [
        (
            "idempotency_header: a",
            ".idempotency_header: without effect: expected `idempotency_key` beside it",
        ),
        (
            "idempotency_key: ''",
            ".idempotency_key: expected text that is not empty",
        ),
        ("idempotency_key: {}", ".idempotency_key.sha256: missing key"),
        (
            "idempotency_key: {sha256: []}",
            ".idempotency_key.sha256: expected one template or more",
        ),
        (
            "idempotency_key: {sha256: ['${a']}",
            ".idempotency_key.sha256[0]: `${` without a closing",
        ),
        (
            "idempotency_key: a\nidempotency_header: df-event-id",
            ".idempotency_header: another header is called `df-event-id`",
        ),
        (
            "idempotency_key: a\nadditional_headers: {idempotency-key: b}",
            ".idempotency_key: another header is called `idempotency-key`: expected `idempotency_header` with a name",
        ),
    ] {
        let line = violation(&outbox_with(keys));
        assert!(line.contains(expected), "{keys}: {line}");
    }
}
