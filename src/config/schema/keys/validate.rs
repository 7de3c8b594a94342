//! A processor of type `validate`.

use super::http;
use super::mask::path;
use crate::config::file::validate::{DEFAULT_AGGREGATES, MOST_AGGREGATES};
use crate::config::schema::key::{Key, Takes, Variant, filled, like, list_of, patterns, variant as variant_of, word};

pub(super) fn variant() -> Variant {
    variant_of(["validate"], keys())
}

fn keys() -> Vec<Key> {
    let schemas = vec![
        Key::new(
            "folder",
            filled(),
            "a folder with a JSON Schema a file, `<event type>/<version>.json`; from the pipeline file's own folder on, unless it begins with `/`",
        ),
        Key::new(
            "registry",
            Takes::Mapping(registry()),
            "in place of a folder: a registry that speaks [Confluent's API](#schemas-from-a-registry)",
        ),
    ];
    vec![
        Key::new("id", filled(), "names it in metrics; no two may be written alike").default("validate"),
        Key::new(
            "tables",
            patterns(),
            "whose events it looks at: outboxes (message prefixes, tables) and ordinary tables. Others pass",
        )
        .default_in_words("all"),
        Key::new(
            "schemas",
            Takes::Mapping(schemas),
            "JSON Schemas that payloads must [match](#validation)",
        ),
        Key::new(
            "event_type",
            filled(),
            "the field with the event's type, for `schemas` and `require`",
        )
        .default("event_type"),
        Key::new(
            "version",
            filled(),
            "the field with the version of the payload's schema; with `schemas`",
        ),
        Key::new(
            "default_version",
            filled(),
            "the version without that field, or where it is missing or null; with `schemas`",
        )
        .default_in_words("`1.0.0` of a folder, `latest` of a registry"),
        Key::new("payload", filled(), "the field with the payload, for `schemas` and `require`").default("payload"),
        Key::new(
            "on_missing_schema",
            word(["reject", "allow"]),
            "an event for whose type and version there is no schema: `reject`: it is `invalid`; `allow`: it passes; with `schemas`",
        )
        .default("reject"),
        Key::new(
            "require",
            list_of("list of requirements", Takes::Mapping(requirement()), 1..=usize::MAX),
            "what payloads must have",
        ),
        Key::new(
            "require_fields",
            list_of("list of fields", filled(), 1..=usize::MAX),
            "fields that each event must have beside its payload: members or columns that are there and not null",
        ),
        Key::new(
            "sequence",
            Takes::Mapping(sequence()),
            "numbers that must [go up by one](#sequence-numbers) in each aggregate",
        ),
    ]
}

fn sequence() -> Vec<Key> {
    let action =
        |name, meaning| Key::new(name, word(["ignore", "warn", "dead_letter", "halt"]), meaning).default("warn");
    vec![
        Key::new("field", filled(), "the field with an event's number").required(),
        Key::new(
            "per",
            list_of("list of fields", filled(), 1..=usize::MAX),
            "fields that name what numbers go up in",
        )
        .default(vec!["aggregate_id"]),
        action("on_repeat", "the highest number comes once more"),
        action("on_gap", "a number is left out"),
        action("on_backwards", "a number below the highest comes"),
        Key::new(
            "max_aggregates",
            Takes::Integer(1..=MOST_AGGREGATES),
            "whose numbers are known at once; the one that was quiet longest is forgotten for another",
        )
        .default(DEFAULT_AGGREGATES),
    ]
}

fn registry() -> Vec<Key> {
    vec![
        Key::new("url", filled(), "where it is, `http` or `https`").required(),
        Key::new(
            "subject",
            Takes::Template,
            "the subject of an event's schema, such as `${event_type}-value`",
        )
        .default_in_words("the event's type"),
        Key::new("auth", http::auth(), "how requests say who sends them"),
        Key::new(
            "tls",
            Takes::Mapping(http::tls()),
            "files in PEM, where `url` is `https`",
        ),
    ]
}

fn requirement() -> Vec<Key> {
    vec![
        Key::new(
            "event_types",
            list_of("list of patterns", like("pattern", "."), 1..=usize::MAX),
            "types of events that it is for",
        )
        .default_in_words("all, and events without one"),
        Key::new(
            "paths",
            list_of("list of paths", path(), 1..=usize::MAX),
            "[paths](#masking) in the payload to what must be there and not be null; with `[*]`, in each item",
        )
        .required(),
    ]
}
