//! Processors of type `validate`.

use std::fs;

use super::*;
use crate::config::pipeline::{OnFault, OnMissingSchema, SchemaPlace, Sequence, Validate};

/// A file whose first processor has these keys.
fn file(keys: &str) -> String {
    format!(
        "apiVersion: tailpost/v1\nkind: Pipeline\nmetadata: {{name: a}}\nspec:\n  source: {{type: postgres, config: {{id: s, dsn: \
         host=h, slot: s, publication: p, outbox: {{prefixes: [outbox]}}}}}}\n  processors:\n  - type: validate\n{}\n  - type: \
         outbox\n  sinks: [{{type: kafka, config: {{id: k, brokers: 'h:1', topic: t}}}}]\n",
        keys.lines()
            .map(|line| format!("    {line}"))
            .collect::<Vec<_>>()
            .join("\n")
    )
}

fn validate(loaded: &Loaded) -> &Validate {
    let Processor::Validate(validate) = &loaded.pipeline.processors[0] else {
        panic!("a validate")
    };
    validate
}

const SCHEMAS: &str = "schemas: {folder: src/config/schema/tests/schemas}";

#[test]
fn every_key_of_a_validate_is_read() {
    let keys = format!(
        "id: contracts\ntables: [outbox]\n{SCHEMAS}\nevent_type: meta.kind\nversion: meta.version\ndefault_version: '2'\npayload: \
         doc\non_missing_schema: allow\nrequire:\n- {{event_types: ['order.*', paid], paths: [$.customer.id, 'items[*].sku']}}\n- \
         {{paths: [kind]}}\nrequire_fields: [idempotency_key, meta.care_label]"
    );
    let all = loaded(&file(&keys));
    let found = validate(&all);
    let path = |text: &str| text.split('.').map(str::to_owned).collect::<Vec<_>>();
    assert_eq!((found.id.as_str(), found.tables.len()), ("contracts", 1));
    assert_eq!((&found.event_type, &found.payload), (&path("meta.kind"), &path("doc")));
    let schemas = found.schemas.as_ref().unwrap();
    let SchemaPlace::Folder(known) = &schemas.place else {
        panic!("a folder")
    };
    assert!(known.find("order.created", "1.0.0").is_some());
    assert_eq!(
        (&schemas.version, schemas.default_version.as_str()),
        (&Some(path("meta.version")), "2")
    );
    assert_eq!(schemas.on_missing, OnMissingSchema::Allow);
    let requirements: Vec<_> = found
        .require
        .iter()
        .map(|requirement| {
            let types = requirement.event_types.as_ref();
            let types = types.map(|types| {
                types
                    .iter()
                    .map(|pattern| pattern.as_str().to_owned())
                    .collect::<Vec<_>>()
            });
            let paths: Vec<_> = requirement.paths.iter().map(ToString::to_string).collect();
            (types, paths.join(" "))
        })
        .collect();
    let types = vec!["order.*".to_owned(), "paid".to_owned()];
    assert_eq!(
        requirements,
        [
            (Some(types), "customer.id items[*].sku".to_owned()),
            (None, "kind".to_owned())
        ]
    );
    assert_eq!(found.require_fields, [path("idempotency_key"), path("meta.care_label")]);

    let least = loaded(&file(SCHEMAS));
    let found = validate(&least);
    assert_eq!(
        (found.id.as_str(), &found.event_type, &found.payload),
        ("validate", &path("event_type"), &path("payload"))
    );
    let schemas = found.schemas.as_ref().unwrap();
    assert_eq!((&schemas.version, schemas.default_version.as_str()), (&None, "1.0.0"));
    assert_eq!(schemas.on_missing, OnMissingSchema::Reject);
}

#[test]
fn every_key_of_a_sequence_is_read() {
    let path = |text: &str| vec![text.to_owned()];
    let all = loaded(&file(
        "sequence: {field: meta.no, per: [kind, id], on_repeat: ignore, on_gap: halt, on_backwards: warn, max_aggregates: 5}",
    ));
    let expected = Sequence {
        field: vec!["meta".to_owned(), "no".to_owned()],
        per: vec![path("kind"), path("id")],
        on_repeat: OnFault::Ignore,
        on_gap: OnFault::Halt,
        on_backwards: OnFault::Warn,
        max_aggregates: 5,
    };
    assert_eq!(validate(&all).sequence, Some(expected));
    let least = loaded(&file("sequence: {field: no}"));
    let expected = Sequence {
        field: path("no"),
        per: vec![path("aggregate_id")],
        on_repeat: OnFault::Warn,
        on_gap: OnFault::Warn,
        on_backwards: OnFault::Warn,
        max_aggregates: 100_000,
    };
    assert_eq!(validate(&least).sequence, Some(expected));
}

#[test]
fn every_key_of_a_registry_is_read() {
    let all = loaded(&file(
        "schemas:\n  registry:\n    url: https://registry.example/api\n    subject: ${event_type}-value\n    auth: {type: basic, \
         username: u, password: p}\n    tls: {ca: ca.pem}\ndefault_version: '3'",
    ));
    let schemas = validate(&all).schemas.as_ref().unwrap();
    let SchemaPlace::Registry(registry) = &schemas.place else {
        panic!("a registry")
    };
    assert_eq!(registry.url.as_str(), "https://registry.example/api");
    assert_eq!(registry.subject.as_ref().unwrap().to_string(), "${event_type}-value");
    assert!(registry.auth.is_some() && registry.tls.root_cert.is_some());
    assert_eq!(schemas.default_version, "3");

    let least = loaded(&file("schemas: {registry: {url: 'http://registry:8081'}}"));
    let schemas = validate(&least).schemas.as_ref().unwrap();
    let SchemaPlace::Registry(registry) = &schemas.place else {
        panic!("a registry")
    };
    assert!(registry.subject.is_none() && registry.auth.is_none());
    assert_eq!(schemas.default_version, "latest");
}

#[test]
fn what_a_validate_cannot_be_is_refused_in_its_place() {
    for (keys, expected) in [
        (
            "id: a",
            "processors[0]: it takes everything: expected `schemas`, `require`, `require_fields` or `sequence`",
        ),
        (
            "require_fields: []",
            ".require_fields: expected one item or more, found an empty list",
        ),
        ("require_fields: ['a..b']", ".require_fields[0]: no field's name"),
        ("require: []", ".require: expected one item or more"),
        ("require: [{event_types: [a]}]", ".require[0].paths: missing key"),
        (
            "require: [{event_types: [], paths: [a]}]",
            ".require[0].event_types: expected one pattern or more",
        ),
        ("require: [{paths: ['a[x]']}]", ".require[0].paths[0]: expected a path"),
        (
            "require_fields: [a]\nversion: b",
            ".version: without effect: expected `schemas` beside it",
        ),
        (
            "require_fields: [a]\nevent_type: b",
            ".event_type: without effect: expected `schemas` or `require` beside it",
        ),
        (
            "require: [{paths: [a]}]\ndefault_version: b",
            ".default_version: without effect: expected `schemas`",
        ),
        (
            "require: [{paths: [a]}]\non_missing_schema: allow",
            ".on_missing_schema: without effect",
        ),
        (
            "schemas: {}",
            ".schemas: schemas of no place: expected `folder` or `registry`",
        ),
        (
            "schemas: {folder: none}",
            ".schemas.folder: `none` cannot be read: entity not found",
        ),
        (
            "schemas: {folder: src/config/schema/keys}",
            ".schemas.folder: `src/config/schema/keys` has no schema in it",
        ),
        (
            "schemas: {folder: src/config/schema/tests/schemas, registry: {url: 'http://r:8081'}}",
            ".schemas.registry: clashes with `folder`: schemas have one place",
        ),
        ("sequence: {}", ".sequence.field: missing key: expected the field with"),
        (
            "sequence: {field: a, per: []}",
            ".sequence.per: expected one item or more, found an empty list",
        ),
        (
            "sequence: {field: a, on_gap: skip}",
            ".sequence.on_gap: expected `ignore`, `warn`, `dead_letter` or `halt`, found `skip`",
        ),
        (
            "sequence: {field: a, on_repeat: dead_letter}",
            ".sequence.on_repeat: `dead_letter` has no place to go to",
        ),
        (
            "sequence: {field: a, max_aggregates: 0}",
            ".sequence.max_aggregates: expected a whole number from 1 to 10000000, found 0",
        ),
        (
            "schemas: {registry: {}}",
            ".schemas.registry.url: missing key: expected an http or https URL",
        ),
        (
            "schemas: {registry: {url: 'registry:8081'}}",
            ".registry.url: expected an http or https URL, found `registry:8081`",
        ),
        (
            "schemas: {registry: {url: 'http://u:p@registry'}}",
            ".registry.url: it has a user in it: write `auth` instead",
        ),
        (
            "schemas: {registry: {url: 'http://r', auth: {type: digest}}}",
            ".registry.auth.type: ",
        ),
        (
            "schemas: {registry: {url: 'http://r', cache: 5}}",
            ".registry.cache: unknown key",
        ),
        (
            "schemas: {registry: {url: 'http://r'}}\ndefault_version: 1.0.0",
            ".default_version: expected a whole number, 1 or more, or `latest`, found `1.0.0`",
        ),
    ] {
        let lines = violations(&file(keys));
        assert!(lines.iter().any(|line| line.contains(expected)), "{keys}: {lines:#?}");
    }
}

#[test]
fn each_schema_that_is_wrong_is_a_violation_and_the_folder_is_beside_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let schemas = folder.path().join("schemas/order.created");
    fs::create_dir_all(&schemas).unwrap();
    let path = folder.path().join("a.yaml");
    fs::write(&path, file("schemas: {folder: schemas}")).unwrap();
    fs::write(schemas.join("1.0.0.json"), "{}").unwrap();
    assert!(load(&path, &environment()).is_ok());
    fs::write(schemas.join("1.0.1.json"), "{").unwrap();
    fs::write(schemas.join("1.0.2.json"), r#"{"type": "objekt"}"#).unwrap();
    let err = load(&path, &environment()).unwrap_err();
    let lines: Vec<String> = err.violations.iter().map(ToString::to_string).collect();
    assert_eq!(lines.len(), 2, "{lines:#?}");
    for (line, parts) in lines.iter().zip([
        [
            "a.yaml:8:23: spec.processors[0].schemas.folder: `",
            "order.created/1.0.1.json` is no JSON: ",
        ],
        [
            "a.yaml:8:23: spec.processors[0].schemas.folder: `",
            "order.created/1.0.2.json` is no JSON Schema, at `/type`: ",
        ],
    ]) {
        assert!(parts.iter().all(|part| line.contains(part)), "{line}");
    }
}
