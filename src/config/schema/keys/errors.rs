//! `spec.errors` and `spec.dead_letter`.

use super::outbox::topic_name;
use crate::config::file::delivery::HOUR;
use crate::config::file::errors::LONGEST_RETENTION;
use crate::config::schema::key::{Key, Takes, filled, tagged, variant, word};

pub(super) fn policies() -> Vec<Key> {
    let policy = |name, meaning| {
        Key::new(name, word(["halt", "dead_letter", "skip"]), meaning)
            .default_in_words("`dead_letter` with `spec.dead_letter`, else `halt`")
    };
    vec![
        policy("invalid", "it lacks or spoils what its processor needs"),
        policy(
            "unroutable",
            "no topic or URL, or a topic that Kafka does not allow; or no processor takes it",
        ),
        policy(
            "rejected",
            "over a limit, or refused by the target: for good, or as often as it was tried",
        ),
    ]
}

pub(super) fn dead_letter() -> Takes {
    let topic = vec![
        Key::new(
            "topic",
            topic_name(),
            "their topic, in the cluster of the sink; not that of a checkpoint",
        )
        .required(),
        oversized(),
    ];
    let file = vec![
        Key::new(
            "path",
            filled(),
            "their file; a relative path is below the state directory",
        )
        .required(),
        Key::new(
            "retention",
            Takes::Duration(HOUR..=LONGEST_RETENTION),
            "older ones are taken away, looked for once an hour while the pipeline parks",
        )
        .default_in_words("until they are purged by hand"),
        oversized(),
    ];
    let config = |keys| vec![Key::new("config", Takes::Mapping(keys), "").required()];
    tagged(
        "where they are parked",
        vec![variant(["kafka"], config(topic)), variant(["sqlite"], config(file))],
    )
}

fn oversized() -> Key {
    Key::new(
        "oversized",
        word(["halt", "stub"]),
        "a dead letter that is too large for its topic as well, or whose bytes the source had to discard: `halt`, or `stub`: its place is taken by one with its size, hash and position, without its bytes",
    )
    .default("halt")
}
