//! A sink of type `kafka`.

use serde_json::Value;

use crate::config::pipeline::CheckpointTopic;
use crate::config::schema::key::{
    Key, Takes, Variant, either, filled, like, open_with, tagged, text, variant as variant_of, word,
};

pub(super) fn variant() -> Variant {
    let config = Key::new("config", Takes::Mapping(config()), "").required();
    variant_of(["kafka"], vec![config])
}

fn config() -> Vec<Key> {
    vec![
        Key::new("id", filled(), "names the sink in metrics").required(),
        Key::new(
            "brokers",
            like("text", r"^\s*\S+:[0-9]+\s*(,\s*\S+:[0-9]+\s*)*$"),
            "`host:port`, comma separated",
        )
        .required(),
        Key::new(
            "topic",
            Takes::Template,
            "for events without a topic of their own, and for changes of ordinary tables",
        ),
        Key::new("key", Takes::Template, "for records without a key of their own"),
        envelope_key(),
        required_key(),
        Key::new(
            "create_topics",
            Takes::Mapping(create_topics()),
            "makes missing topics; without it the broker's own rule holds",
        ),
        Key::new(
            "client_conf",
            client_conf(),
            "librdkafka properties, such as `security.protocol`. One that an option here sets is refused, naming both",
        ),
        Key::new(
            "exactly_once",
            Takes::Boolean,
            "`true`: records and position go into one Kafka transaction, and consumers need `isolation.level=read_committed`: [delivery.md](delivery.md#exactly-once)",
        )
        .default(false),
        Key::new(
            "transactional_id",
            like("text", r"^[^\x00-\x1f\x7f]{1,200}$"),
            "under which the sink's transactions, or those of a checkpoint in Kafka, shut older instances out: the same for all instances of a pipeline, distinct among pipelines; 200 characters at most. Without `exactly_once` and without a checkpoint in Kafka it is refused, as are `on_fenced` and `transaction.timeout.ms`",
        )
        .default_in_words("`tailpost-` and the pipeline's name"),
        Key::new(
            "on_fenced",
            word(["stand_by", "stop"]),
            "what an instance does that was shut out by another, came back, and was shut out again at once: `stand_by` waits and tries again at a slow pace, `stop` ends the pipeline",
        )
        .default("stand_by"),
        Key::of_deltaforge("encoding", like("`json`", "^json$"), "what is written anyway"),
        Key::of_deltaforge("send_timeout_secs", Takes::Anything, ""),
    ]
}

/// Of a sink of any type.
pub(super) fn required_key() -> Key {
    Key::new(
        "required",
        Takes::Boolean,
        "`false`: the position does not wait for this sink, which may lose events and counts them: [several sinks](#several-sinks)",
    )
    .default(true)
}

/// Of a sink of any type.
pub(super) fn envelope_key() -> Key {
    Key::new(
        "envelope",
        envelope(),
        "around changes of ordinary tables, and payloads that are not raw",
    )
    .default("native")
}

/// A type by itself, or beside its keys.
fn envelope() -> Takes {
    let variants = vec![
        variant_of(["native"], Vec::new()),
        variant_of(["debezium"], debezium()),
        variant_of(["cloudevents"], cloudevents()),
    ];
    either([
        word(["native", "debezium", "cloudevents"]),
        tagged(
            "the [envelope](#envelopes), which could stand there by itself",
            variants,
        ),
    ])
}

fn debezium() -> Vec<Key> {
    vec![
        Key::new(
            "schema",
            either([word(["omit"]), Takes::Null]),
            "`omit` leaves the wrapper out, so that the value is the payload alone",
        )
        .default(Value::Null),
    ]
}

fn cloudevents() -> Vec<Key> {
    vec![
        Key::new(
            "mode",
            word(["structured", "binary"]),
            "`structured`: the event is the value, a JSON object; `binary`: its attributes are headers, beside the value as it is",
        )
        .default("structured"),
        Key::new(
            "type_prefix",
            text(),
            "what types begin with, such as `com.example`",
        )
        .default_in_words("[by the event](#envelopes)"),
        Key::new("source", text(), "a URI reference, the same for all events")
            .default_in_words("[by the event](#envelopes)"),
    ]
}

fn create_topics() -> Vec<Key> {
    vec![
        Key::new("partitions", Takes::Integer(1..=100_000), "of each topic that is made").required(),
        replication_factor(),
    ]
}

pub(super) fn replication_factor() -> Key {
    Key::new(
        "replication_factor",
        Takes::Integer(-1..=1000),
        "of a topic that is made here; `-1` is the broker's default, `0` is refused",
    )
    .default(CheckpointTopic::default().replication_factor)
}

/// librdkafka's properties can be written as numbers and in quotes.
fn client_conf() -> Takes {
    let any = || either([text(), Takes::Integer(i64::MIN..=i64::MAX), Takes::Boolean]);
    let known = vec![
        Key::new(
            "linger.ms",
            any(),
            "how long a record may wait for others. What is set here holds always",
        )
        .default_in_words("5 ms while the source is behind the database's log, and none otherwise"),
        Key::new(
            "transaction.timeout.ms",
            either([Takes::Integer(1000..=i32::MAX.into()), like("text", "^[0-9]+$")]),
            "how long the broker lets a transaction be open; no more than the broker's `transaction.max.timeout.ms` (15 minutes by default)",
        )
        .default(60_000),
    ];
    open_with("`{property: value}`", any(), known)
}
