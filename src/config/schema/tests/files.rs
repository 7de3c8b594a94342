//! The JSON Schema against the files that there are, and against wrong ones.

use std::path::Path;

use serde_json::{Value, json};

use super::walk;
use super::{assert_accepted, at_root, parsed, refusals, yaml_files};
use crate::config::schema::json_schema;

const BASE: &str = r#"apiVersion: tailpost/v1
kind: Pipeline
metadata: {name: orders}
spec:
  source:
    type: postgres
    config: {id: pg, dsn: "${DSN}", slot: s, publication: p, outbox: {prefixes: [outbox]}}
  processors:
    - {type: outbox, topic: "${aggregate_type}", raw_payload: true}
  sinks:
    - {type: kafka, config: {id: k, brokers: "${BROKERS}"}}
"#;

fn base_with(pointer: &str, value: Value) -> Value {
    let mut document = parsed(BASE);
    let (mapping, key) = pointer.rsplit_once('/').unwrap();
    let mapping = document.pointer_mut(mapping).unwrap().as_object_mut().unwrap();
    mapping.insert(key.to_owned(), value);
    document
}

#[test]
fn it_is_a_schema_of_the_draft_that_it_names() {
    let schema = json_schema();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    jsonschema::meta::validate(&schema).unwrap();
}

#[test]
fn the_ready_files_and_those_of_all_keys_are_accepted() {
    for folder in [
        "pipelines",
        "examples/orders-postgres",
        "examples/shop-mysql",
        "src/cli/demo/pipelines",
        "src/config/schema/tests/files",
    ] {
        for (_, text) in yaml_files(folder) {
            assert_accepted(&text);
        }
    }
}

#[test]
fn the_examples_of_the_documentation_are_accepted() {
    let mut documents = vec![at_root("README.md")];
    let in_docs = std::fs::read_dir(at_root("docs"))
        .unwrap()
        .map(|entry| entry.unwrap().path());
    documents.extend(in_docs.filter(|path| path.extension().is_some_and(|extension| extension == "md")));
    let mut count = 0;
    for path in documents {
        for block in yaml_blocks(&std::fs::read_to_string(&path).unwrap()) {
            if let Some(document) = completed(&path, &block) {
                assert_accepted(&document.to_string());
                count += 1;
            }
        }
    }
    assert!(count >= 5, "{count}");
}

/// What stands between "```yaml" and "```", without the indentation of the first.
fn yaml_blocks(markdown: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut lines = markdown.lines();
    while let Some(fence) = lines.next() {
        if fence.trim_start().starts_with("```yaml") {
            let indentation = fence.len() - fence.trim_start().len();
            let block = lines.by_ref().take_while(|line| line.trim() != "```");
            let block: Vec<&str> = block.map(|line| line.get(indentation..).unwrap_or("")).collect();
            blocks.push(block.join("\n"));
        }
    }
    blocks
}

/// An example as a whole file; none: it is of something else.
fn completed(path: &Path, block: &str) -> Option<Value> {
    let example = parsed(block);
    let keys: Vec<&str> = example.as_object().unwrap().keys().map(String::as_str).collect();
    let processor = "spec.processors[](outbox).";
    let of_processor: Vec<String> = walk::all()
        .into_iter()
        .filter_map(|entry| Some(entry.at.typed.strip_prefix(processor)?.to_owned()))
        .collect();
    if keys.contains(&"apiVersion") {
        let version = example["apiVersion"].as_str().unwrap();
        return (version.starts_with("tailpost") || version.starts_with("deltaforge")).then_some(example);
    }
    let mut document = parsed(BASE);
    let spec = ["source", "processors", "sinks", "errors", "dead_letter"];
    if keys == ["spec"] {
        overlay(&mut document, example);
    } else if keys.iter().all(|key| spec.contains(key)) {
        overlay(&mut document["spec"], example);
    } else if keys.iter().all(|key| of_processor.iter().any(|known| known == key)) {
        let mut processor = json!({"type": "outbox", "raw_payload": true});
        overlay(&mut processor, example);
        document["spec"]["processors"] = json!([processor]);
    } else {
        panic!(
            "{}: no whole file, no `spec` and no keys of a processor: {keys:?}",
            path.display()
        );
    }
    Some(document)
}

/// Puts an example into a whole: a mapping into its counterpart, unless it says of what type it is.
fn overlay(whole: &mut Value, example: Value) {
    match (whole, example) {
        (Value::Object(whole), Value::Object(example)) if !example.contains_key("type") => {
            for (key, value) in example {
                overlay(whole.entry(key).or_insert(Value::Null), value);
            }
        }
        (whole, example) => *whole = example,
    }
}

#[test]
fn values_can_come_from_the_environment_whatever_the_key_takes() {
    for (pointer, value) in [
        ("/spec/source/config/create", json!("${CREATE:-true}")),
        ("/spec/source/config/max_message_bytes", json!("${SIZE}")),
        ("/spec/source/config/start", json!("${START}")),
        ("/spec/source/config/slot", json!("${NAME}-Slot")),
        ("/spec/processors/0/key_as", json!("${FORM}")),
        ("/spec/sinks/0/config/create_topics", json!({"partitions": "${env:N}"})),
        (
            "/spec/delivery",
            json!({"max_in_flight_events": "${N}", "drain_timeout": "${N}s"}),
        ),
        ("/spec/restart", json!({"multiplier": "${file:/run/secrets/n}"})),
    ] {
        assert_eq!(refusals(&base_with(pointer, value)), [], "{pointer}");
    }
}

#[test]
fn wrong_files_are_refused_at_their_fault() {
    let base = parsed(BASE);
    assert_eq!(refusals(&base), []);
    for (pointer, value, place) in [
        // Unknown keys, among them those of another database.
        ("/unknown", json!(1), ""),
        ("/spec/sink", json!([]), "/spec"),
        ("/spec/source/config/slott", json!("x"), "/spec/source/config"),
        ("/spec/source/config/server_id", json!(5), "/spec/source/config"),
        ("/spec/processors/0/rawpayload", json!(true), "/spec/processors/0"),
        ("/spec/sinks/0/config/acks", json!(1), "/spec/sinks/0/config"),
        (
            "/spec/checkpoint",
            json!({"type": "file", "config": {}}),
            "/spec/checkpoint",
        ),
        // Wrong kinds, ranges and words.
        ("/apiVersion", json!("tailpost/v2"), "/apiVersion"),
        ("/metadata/name", json!("Order Events"), "/metadata/name"),
        ("/metadata/labels", json!({"version": 1}), "/metadata/labels/version"),
        ("/spec/source/type", json!("oracle"), "/spec/source/type"),
        ("/spec/source/config/slot", json!(42), "/spec/source/config/slot"),
        ("/spec/source/config/slot", json!(null), "/spec/source/config/slot"),
        (
            "/spec/source/config/slot",
            json!("Orders-Slot"),
            "/spec/source/config/slot",
        ),
        ("/spec/source/config/create", json!("yes"), "/spec/source/config/create"),
        (
            "/spec/source/config/max_message_bytes",
            json!("64 MiB"),
            "/spec/source/config/max_message_bytes",
        ),
        (
            "/spec/source/config/max_message_bytes",
            json!(1),
            "/spec/source/config/max_message_bytes",
        ),
        (
            "/spec/source/config/tables",
            json!("orders"),
            "/spec/source/config/tables",
        ),
        (
            "/spec/source/config/start",
            json!("ealiest"),
            "/spec/source/config/start",
        ),
        (
            "/spec/source/config/start",
            json!({"gtid": "0-1-100"}),
            "/spec/source/config/start",
        ),
        ("/spec/processors/0/strict", json!("true"), "/spec/processors/0/strict"),
        (
            "/spec/processors/0/default_topic",
            json!("a/b"),
            "/spec/processors/0/default_topic",
        ),
        (
            "/spec/sinks/0/config/brokers",
            json!("kafka"),
            "/spec/sinks/0/config/brokers",
        ),
        (
            "/spec/sinks/0/config/create_topics",
            json!({"partitions": 0}),
            "/spec/sinks/0/config/create_topics/partitions",
        ),
        ("/spec/sinks", json!([]), "/spec/sinks"),
        (
            "/spec/errors",
            json!({"invalid": "dead_letters"}),
            "/spec/errors/invalid",
        ),
        (
            "/spec/delivery",
            json!({"drain_timeout": 30}),
            "/spec/delivery/drain_timeout",
        ),
        (
            "/spec/delivery",
            json!({"max_in_flight_events": "5"}),
            "/spec/delivery/max_in_flight_events",
        ),
        ("/spec/restart", json!({"jitter": [0, 1]}), "/spec/restart/jitter/0"),
        ("/spec/restart", json!({"jitter": [1]}), "/spec/restart/jitter"),
        // Missing keys.
        ("/metadata", json!({}), "/metadata"),
        ("/spec/source", json!({"type": "postgres"}), "/spec/source"),
        ("/spec/source", json!({"config": {}}), "/spec/source"),
        (
            "/spec/source/config",
            json!({"id": "pg", "dsn": "", "slot": "s"}),
            "/spec/source/config",
        ),
        (
            "/spec/processors/0",
            json!({"type": "outbox", "route": {"by": "a"}}),
            "/spec/processors/0/route",
        ),
        (
            "/spec/dead_letter",
            json!({"type": "kafka", "config": {}}),
            "/spec/dead_letter/config",
        ),
    ] {
        let document = match pointer {
            "/spec/processors/0" => base_with("/spec/processors", json!([value])),
            pointer => base_with(pointer, value.clone()),
        };
        let refusals = refusals(&document);
        let is_found = refusals.iter().any(|(at, _)| at == place);
        assert!(is_found, "{pointer}: {value}: {refusals:#?}");
    }
}

#[test]
fn keys_of_deltaforge_are_deprecated() {
    let schema = json_schema();
    let keys = &schema["properties"]["spec"]["properties"];
    assert_eq!(
        (&keys["batch"]["deprecated"], &keys["sinks"]["deprecated"]),
        (&json!(true), &json!(null))
    );
}
