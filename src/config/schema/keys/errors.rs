//! `spec.errors` and `spec.dead_letter`.

use super::outbox::topic_name;
use crate::config::schema::key::{Key, Takes, tagged, variant, word};

pub(super) fn policies() -> Vec<Key> {
    let policy = |name, meaning| {
        Key::new(name, word(["halt", "dead_letter", "skip"]), meaning)
            .default_in_words("`dead_letter` with `spec.dead_letter`, else `halt`")
    };
    vec![
        policy("invalid", "it lacks or spoils what its processor needs"),
        policy(
            "unroutable",
            "no topic, or none that Kafka allows; or no processor takes it",
        ),
        policy("rejected", "over a limit, or refused by Kafka for good"),
    ]
}

pub(super) fn dead_letter() -> Takes {
    let config = vec![
        Key::new("topic", topic_name(), "their topic; not that of a checkpoint").required(),
        Key::new(
            "oversized",
            word(["halt", "stub"]),
            "a dead letter that is too large for its topic as well: `halt`, or `stub`: its place is taken by one with its size, hash and position, without its bytes",
        )
        .default("halt"),
    ];
    let config = Key::new("config", Takes::Mapping(config), "").required();
    tagged("where they are parked", vec![variant(["kafka"], vec![config])])
}
