//! Sinks of the types `file` and `stdout`.

use super::kafka::{envelope_key, required_key};
use crate::config::file::lines::DEFAULT_TOPIC;
use crate::config::schema::key::{Key, Takes, Variant, filled, variant};

pub(super) fn file() -> Variant {
    let path = Key::new("path", filled(), "lines are added at its end; made if missing").required();
    let keys = [path].into_iter().chain(lines()).collect();
    variant(["file"], vec![Key::new("config", Takes::Mapping(keys), "").required()])
}

pub(super) fn stdout() -> Variant {
    let config = Key::new("config", Takes::Mapping(lines()), "").required();
    variant(["stdout"], vec![config])
}

fn lines() -> Vec<Key> {
    vec![
        Key::new("id", filled(), "names the sink in metrics").required(),
        Key::new(
            "topic",
            Takes::Template,
            "for events without a topic of their own, and for changes of ordinary tables",
        )
        .default(DEFAULT_TOPIC),
        Key::new("key", Takes::Template, "for records without a key of their own"),
        envelope_key(),
        required_key(),
    ]
}
