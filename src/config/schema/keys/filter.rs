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
            either([patterns(), Takes::Mapping(kept_tables())]),
            "the tables whose changes it looks at: a table, or `schema.table`. Others pass",
        )
        .default_in_words("all"),
        Key::new(
            "ops",
            either([
                list_of("list of operations", word(words), 1..=usize::MAX),
                list("list of operations", word(their_words)),
            ]),
            "`insert`, `update`, `delete`, `truncate`: those that are kept. The other words are DeltaForge's",
        )
        .default_in_words("all"),
        Key::new(
            "where",
            open("`{field: {test: value}}`", Takes::Mapping(tests())),
            "[tests](#filters) that a change must pass",
        ),
        Key::new(
            "outboxes",
            Takes::Boolean,
            "`true`: it looks at outbox events too, where it stands before the processor that takes them. `tables` may name message prefixes then",
        )
        .default(false),
        Key::of_deltaforge("fields", Takes::Anything, "what `where` says"),
        Key::of_deltaforge("match", Takes::Anything, "whether all of `fields` must hold"),
    ]
}

/// DeltaForge's tables to keep.
fn kept_tables() -> Vec<Key> {
    vec![
        Key::of_deltaforge("include", patterns(), "tables to keep"),
        Key::of_deltaforge("exclude", patterns(), "tables to leave out"),
    ]
}

fn tests() -> Vec<Key> {
    let literal = || either([text(), Takes::Integer(i64::MIN..=i64::MAX), Takes::Boolean]);
    let literals = || list_of("list of values", literal(), 1..=usize::MAX);
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
