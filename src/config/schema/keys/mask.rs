//! A processor of type `mask`.

use crate::config::schema::key::{
    Key, Takes, Variant, either, filled, like, list_of, patterns, text, variant as variant_of, word,
};

pub(super) fn variant() -> Variant {
    variant_of(["mask"], keys())
}

fn keys() -> Vec<Key> {
    vec![
        Key::new("id", filled(), "names it in metrics; no two may be written alike").default("mask"),
        Key::new(
            "tables",
            patterns(),
            "whose events it changes: outboxes (message prefixes, tables) and ordinary tables. Others pass as they are",
        )
        .default_in_words("all"),
        Key::new(
            "rules",
            list_of("list of rules", Takes::Mapping(rule()), 1..=usize::MAX),
            "which values are [masked](#masking), and how",
        )
        .required(),
        Key::new(
            "on_mismatch",
            word(["reject", "ignore"]),
            "an event with a value that its rule cannot be applied to, such as a text to be rounded: `reject`: it is `invalid`; `ignore`: the value stays as it is",
        )
        .default("reject"),
    ]
}

fn rule() -> Vec<Key> {
    let number = Takes::Number(f64::MIN..=f64::MAX);
    vec![
        Key::new(
            "path",
            path(),
            "where the value is: members of a message, or a row's column and members inside of it",
        )
        .required(),
        Key::new(
            "action",
            word(["remove", "replace", "hash", "round"]),
            "`remove` takes a member out, and makes a column null; the others need one of the keys below",
        )
        .required(),
        Key::new(
            "value",
            either([text(), number, Takes::Boolean, Takes::Null]),
            "of `replace`: what stands there instead",
        ),
        Key::new(
            "key",
            text(),
            "of `hash`: the secret key of HMAC-SHA-256, such as `${MASK_KEY}`",
        ),
        Key::new(
            "digits",
            Takes::Integer(0..=30),
            "of `round`: how many digits are kept behind the point",
        ),
    ]
}

pub(super) fn path() -> Takes {
    like("path", ".")
}
