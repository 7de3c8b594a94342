//! A processor of type `filter`.

use crate::config::schema::key::{
    Key, Takes, Variant, either, filled, list, list_of, open, patterns, text, variant as variant_of, word,
};

pub(super) fn variant() -> Variant {
    variant_of(["filter"], keys())
}

fn keys() -> Vec<Key> {
    let words = ["insert", "update", "delete", "truncate"];
    let their_words = ["create", "update", "delete", "truncate", "read"];
    vec![
        Key::new("id", filled(), "names it in metrics; no two may be written alike").default("filter"),
        Key::new(
            "tables",
            patterns(),
            "the tables whose changes it looks at: a table, or `schema.table`. Others pass",
        )
        .default_in_words("all")
        .own(),
        Key::new(
            "ops",
            list_of("list of operations", word(words), 1..=usize::MAX),
            "`insert`, `update`, `delete`, `truncate`: those that are kept",
        )
        .default_in_words("all")
        .own(),
        Key::new(
            "where",
            open("`{field: {test: value}}`", Takes::Mapping(tests())),
            "[tests](#filters) that a change must pass",
        )
        .own(),
        Key::new(
            "outboxes",
            Takes::Boolean,
            "`true`: it looks at outbox events too, where it stands before the processor that takes them. `tables` may name message prefixes then",
        )
        .default(false)
        .own(),
        Key::of_deltaforge("tables", Takes::Mapping(kept_tables()), "the tables whose changes are kept"),
        Key::of_deltaforge(
            "ops",
            list("list of operations", word(their_words)),
            "operations that are kept",
        )
        .default_in_words("all"),
        Key::of_deltaforge(
            "fields",
            list("list of tests", Takes::Mapping(predicate())),
            "what `where` says",
        ),
        Key::of_deltaforge("match", word(["all", "any"]), "whether all of `fields` must hold").default("all"),
    ]
}

/// DeltaForge's tables to keep.
fn kept_tables() -> Vec<Key> {
    vec![
        Key::of_deltaforge("include", patterns(), "tables to keep").default_in_words("all"),
        Key::of_deltaforge("exclude", patterns(), "tables to leave out"),
    ]
}

/// One of DeltaForge's tests.
fn predicate() -> Vec<Key> {
    let operators = [
        "eq",
        "ne",
        "exists",
        "not_exists",
        "in",
        "not_in",
        "regex",
        "gt",
        "gte",
        "lt",
        "lte",
        "contains",
        "changed",
    ];
    vec![
        Key::of_deltaforge("path", filled(), "a field of the new row").required(),
        Key::of_deltaforge("op", word(operators), "`contains` and `changed` are refused").required(),
        Key::of_deltaforge(
            "value",
            either([literal(), literals()]),
            "what the field is held against",
        ),
    ]
}

fn literal() -> Takes {
    either([text(), Takes::Integer(i64::MIN..=i64::MAX), Takes::Boolean])
}

fn literals() -> Takes {
    list_of("list of values", literal(), 1..=usize::MAX)
}

fn tests() -> Vec<Key> {
    vec![
        Key::new("eq", literal(), "is the value"),
        Key::new("ne", literal(), "is not, or has none"),
        Key::new("in", literals(), "is one of them"),
        Key::new("not_in", literals(), "is none of them, or has none"),
        Key::new("gt", literal(), "is above"),
        Key::new("gte", literal(), "is that or above"),
        Key::new("lt", literal(), "is below"),
        Key::new("lte", literal(), "is that or below"),
        Key::new(
            "exists",
            Takes::Boolean,
            "`true`: has a value; `false`: is missing or null",
        ),
        Key::new("regex", text(), "matches as a whole"),
    ]
}
