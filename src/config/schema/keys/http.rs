//! A sink of type `http`.

use std::time::Duration;

use super::delivery::delays;
use super::kafka::{envelope_key, required_key};
use crate::config::file::delivery::HOUR;
use crate::config::file::http::{
    DEFAULT_BATCH_BYTES, DEFAULT_CONCURRENCY, DEFAULT_CONNECT_TIMEOUT, MOST_ATTEMPTS, MOST_BATCHED, MOST_CONCURRENT,
};
use crate::config::pipeline::Retry;
use crate::config::quantity::{show_duration, show_size};
use crate::config::schema::key::{
    Key, Takes, Variant, either, filled, like, list, list_of, open, tagged, text, variant as variant_of, word,
};

pub(super) fn variant() -> Variant {
    let config = Key::new("config", Takes::Mapping(config()), "").required();
    variant_of(["http"], vec![config])
}

fn config() -> Vec<Key> {
    let millisecond = Duration::from_millis(1);
    vec![
        Key::new("id", filled(), "names the sink in metrics").required(),
        Key::new(
            "url",
            Takes::Template,
            "where each event goes, `http` or `https`. Fields can follow the host, and are percent-encoded",
        )
        .required(),
        Key::new("key", Takes::Template, "for records without a key of their own"),
        envelope_key(),
        required_key(),
        Key::new("method", word(["POST", "PUT", "PATCH"]), "of each request").default("POST"),
        Key::new(
            "headers",
            open("`{header: text}`", text()),
            "of each request; they stand above an event's",
        ),
        Key::new("auth", auth(), "how requests say who sends them"),
        Key::new("tls", Takes::Mapping(tls()), "files in PEM, where `url` is `https`"),
        Key::new(
            "body",
            word(["payload", "envelope"]),
            "`payload`: the record's value as it is, its headers being the request's; `envelope`: a JSON object with `key`, `timestamp_ms`, `headers` and `value`",
        )
        .default("payload"),
        Key::new("batch", Takes::Mapping(batch()), "[several events](#http) in one request"),
        Key::new(
            "concurrency",
            Takes::Integer(1..=MOST_CONCURRENT),
            "requests under way at once, never two of one ordering key",
        )
        .default(DEFAULT_CONCURRENCY),
        Key::new(
            "connect_timeout",
            Takes::Duration(millisecond..=HOUR),
            "how long a connection may take to be made",
        )
        .default(show_duration(DEFAULT_CONNECT_TIMEOUT)),
        Key::new("success", statuses(), "the target has the event").default(vec!["2xx"]),
        Key::new("retry_on", statuses(), "the target wants it later")
            .default_in_words("`[408, 425, 429, 5xx]`"),
        Key::new(
            "halt_on",
            statuses(),
            "the target does not let us write: the pipeline ends. Every other status refuses the event",
        )
        .default_in_words("`[401, 403, 407]`"),
        Key::new(
            "signature",
            Takes::Mapping(signature()),
            "headers of [Standard Webhooks](https://www.standardwebhooks.com); not together with `batch`",
        ),
        Key::new(
            "ordering",
            word(["key", "source", "none"]),
            "[among which events the order is kept](#http): those of one record key, all, or none",
        )
        .default("key"),
        Key::new(
            "ordering_key",
            Takes::Template,
            "with `ordering: key`: its text takes the place of the record's key",
        ),
        Key::new("retry", Takes::Mapping(retry()), "[how often and when](#http) a delivery is tried again"),
    ]
}

pub(super) fn auth() -> Takes {
    let basic = vec![
        Key::new("username", filled(), "the user").required(),
        Key::new("password", text(), "better from the environment or a file").required(),
    ];
    let bearer = vec![Key::new("token", text(), "better from the environment or a file").required()];
    tagged(
        "the scheme",
        vec![variant_of(["basic"], basic), variant_of(["bearer"], bearer)],
    )
}

pub(super) fn tls() -> Vec<Key> {
    vec![
        Key::new("ca", filled(), "certificates of trusted authorities").default_in_words("the system's"),
        Key::new("cert", filled(), "the client's certificate, with `key`"),
        Key::new("key", filled(), "its private key"),
    ]
}

fn batch() -> Vec<Key> {
    vec![
        Key::new("max_events", Takes::Integer(1..=MOST_BATCHED), "in one request").required(),
        Key::new(
            "max_bytes",
            Takes::Size(1..=1 << 30),
            "of their values; a larger event goes alone",
        )
        .default(show_size(DEFAULT_BATCH_BYTES)),
        Key::new("as", word(["array", "ndjson"]), "a JSON array, or one JSON text a line").default("array"),
    ]
}

fn statuses() -> Takes {
    let status = either([Takes::Integer(100..=599), like("text", "^([1-5]xx|[1-5][0-9][0-9])$")]);
    list("list of statuses, such as `[200, 3xx]`", status)
}

fn signature() -> Vec<Key> {
    let secrets = list_of("list of texts", text(), 1..=usize::MAX);
    vec![
        Key::new(
            "secrets",
            secrets,
            "`whsec_` and base64, or other text of 16 bytes or more; several sign while they change over",
        )
        .required(),
    ]
}

fn retry() -> Vec<Key> {
    let default = Retry::default();
    let attempts = either([Takes::Integer(1..=MOST_ATTEMPTS), word(["unlimited"])]);
    let mut keys = vec![
        Key::new("max_attempts", attempts, "then the event is [refused](#specerrors)")
            .default_in_words("`5`, or `unlimited` where `errors.rejected` is `halt`"),
        Key::new(
            "attempt_timeout",
            Takes::Duration(Duration::from_millis(1)..=HOUR),
            "what takes longer is abandoned and sent again",
        )
        .default(show_duration(default.attempt_timeout)),
    ];
    keys.extend(delays(default.delays));
    keys
}
