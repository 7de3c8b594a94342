//! `spec.errors` and `spec.dead_letter`.

use std::time::Duration;

use super::outbox::topic_name;
use crate::config::file::delivery::HOUR;
use crate::config::file::errors::{DEFAULT_NOTIFY_INTERVAL, LONGEST_RETENTION};
use crate::config::quantity::show_duration;
use crate::config::schema::key::{Key, Takes, filled, open, tagged, text, variant, word};

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
    let config = |keys| {
        vec![
            Key::new("config", Takes::Mapping(keys), "").required(),
            Key::new(
                "notify",
                Takes::Mapping(notify()),
                "[who is told](dead-letters.md#being-told-of-them) of them",
            ),
        ]
    };
    tagged(
        "where they are parked",
        vec![variant(["kafka"], config(topic)), variant(["sqlite"], config(file))],
    )
}

fn notify() -> Vec<Key> {
    vec![
        Key::new(
            "webhook",
            text(),
            "an `http` or `https` URL that gets them as JSON; better from the environment or a file",
        )
        .required(),
        Key::new("headers", open("`{header: text}`", text()), "of each request"),
        Key::new(
            "interval",
            Takes::Duration(Duration::from_secs(1)..=HOUR),
            "the least time between two requests",
        )
        .default(show_duration(DEFAULT_NOTIFY_INTERVAL)),
    ]
}

fn oversized() -> Key {
    Key::new(
        "oversized",
        word(["halt", "stub"]),
        "a dead letter that is too large for its topic as well, or whose bytes the source had to discard: `halt`, or `stub`: its place is taken by one with its size, hash and position, without its bytes",
    )
    .default("halt")
}
