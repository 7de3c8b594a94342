//! A processor of type `outbox`.

use crate::config::pipeline::{Columns, HeaderNames};
use crate::config::schema::key::{
    Key, Takes, Variant, either, filled, like, list_of, open, patterns, text, variant as variant_of, word,
};

pub(super) fn variant() -> Variant {
    variant_of(["outbox"], keys())
}

fn keys() -> Vec<Key> {
    vec![
        Key::new("id", filled(), "names it in metrics; no two may be written alike").default("outbox"),
        Key::new(
            "tables",
            patterns(),
            "the outboxes that it takes: a message prefix, a table, or `schema.table`",
        )
        .default_in_words("all"),
        Key::new("topic", Takes::Template, "where events go: [the steps](#topic)"),
        Key::new(
            "route",
            Takes::Mapping(route()),
            "in place of `topic`: the topic is made of a field by a [regular expression](#route)",
        ),
        Key::new(
            "default_topic",
            topic_name(),
            "for events whose topic cannot be made of their fields",
        ),
        Key::new("key", Takes::Template, "the record's key").default_in_words("the aggregate's id"),
        Key::new(
            "key_as",
            word(["text", "json"]),
            "`json`: numbers and booleans as they are, other text as a JSON string, no key as `null`",
        )
        .default("text"),
        Key::new(
            "key_schema",
            schema(),
            "with `key_as: json`: a Connect schema; the key is `{\"schema\":…,\"payload\":…}` of it and the key",
        ),
        Key::new(
            "keep_empty_key",
            Takes::Boolean,
            "`true`: an empty aggregate id is an empty key, where it is none otherwise; not beside `key`",
        )
        .default(false),
        Key::new(
            "columns",
            Takes::Mapping(columns()),
            "where the fields are: JSON members of a message, or columns of a row",
        ),
        Key::new(
            "header_names",
            Takes::Mapping(header_names()),
            "other names for the headers that are made of an event's own fields; `null` leaves one out",
        ),
        Key::new(
            "additional_headers",
            open("`{header: column}`", filled()),
            "more headers; a missing or null field is left out",
        ),
        Key::new(
            "idempotency_key",
            either([filled(), Takes::Mapping(idempotency_key())]),
            "one more header, by which consumers tell that they have done an event before: the field that has it, or what it is a hash of. Without a text in each of its fields there is no such header",
        ),
        Key::new("idempotency_header", filled(), "its name").default("idempotency-key"),
        Key::new(
            "headers_as",
            word(["text", "json"]),
            "`json`: numbers and booleans as they are, other text as a JSON string, a null that `on_null` keeps as `null`. All headers, also those of `columns.headers` and `columns.trace`",
        )
        .default("text"),
        Key::new(
            "json_as",
            word(["value", "text", "compact"]),
            "how JSON is written in `additional_headers`, `columns.headers` and `envelope_fields`: see [below](#json-as)",
        )
        .default("value"),
        Key::new(
            "on_missing",
            word(["skip", "reject"]),
            "`reject`: an event that lacks a field of `additional_headers`, `envelope_fields`, `columns.timestamp`, `columns.partition`, `columns.headers` or `idempotency_key` is `invalid`; null is not missing",
        )
        .default("skip"),
        Key::new(
            "on_null",
            word(["skip", "keep"]),
            "`keep`: an additional header whose field is null is there, with a null value",
        )
        .default("skip"),
        Key::new(
            "raw_payload",
            Takes::Boolean,
            "`true`: the value is the payload's bytes; else they are `after` in the sink's envelope",
        )
        .default(false),
        Key::new(
            "payload_as",
            word(["raw", "text", "json_string", "compact", "expanded"]),
            "with `raw_payload`: `text` takes the quotes and escapes off a JSON string, and leaves all else; `json_string` writes the payload's text as a JSON string (a message's member that is one stays), and a null payload as `null`; `compact` takes the blanks out of JSON, in a message or a column of a JSON type (MariaDB has none: its JSON is a `LONGTEXT`), and leaves all else; `expanded` writes objects [anew](#expanded)",
        )
        .default("raw"),
        Key::new(
            "drop_null_members",
            Takes::Boolean,
            "with `compact` and `expanded`: `true` leaves out members that are null, at every depth. An array's items stay",
        )
        .default(false),
        Key::new(
            "drop_empty_arrays",
            Takes::Boolean,
            "the same of members that are empty arrays",
        )
        .default(false),
        Key::new(
            "payload_schema",
            schema(),
            "with `json_string`: a Connect schema; the value is `{\"schema\":…,\"payload\":…}` of it and the value, of a null payload too",
        ),
        Key::new(
            "envelope_fields",
            open("`{name: column}`", filled()),
            "with `raw_payload`: the value is an object, of the payload as `payload` and these; a payload that is not JSON is a string there",
        ),
        Key::new(
            "tombstone_on_empty",
            Takes::Boolean,
            "with `raw_payload`: a payload that is an empty or blank text is a null value; bytes never are (`bytea`, `BLOB`, a message that is no JSON object), since no bytes at all can be a message of their format",
        )
        .default(false),
        Key::new(
            "strict",
            Takes::Boolean,
            "`true`: an event that lacks its topic, aggregate type, aggregate id or event type is `invalid`",
        )
        .default(false),
        Key::new(
            "on_update",
            word(["skip", "warn", "halt"]),
            "what to do with an [UPDATE](#update) of a row of its outboxes, which is no event: `skip` counts it, `warn` also says so in the log, `halt` ends the pipeline, whatever `errors` says",
        )
        .default("skip"),
    ]
}

/// A text, since its members stay in the order in which they are written.
fn schema() -> Takes {
    like("JSON of a Connect schema", r"^\s*\{")
}

/// Kafka's own rule.
pub(super) fn topic_name() -> Takes {
    like("topic", "^[a-zA-Z0-9._-]{1,249}$")
}

fn idempotency_key() -> Vec<Key> {
    vec![
        Key::new(
            "sha256",
            list_of("list of templates", Takes::Template, 1..=usize::MAX),
            "the header is the SHA-256, in hexadecimal digits, of these texts",
        )
        .required(),
        Key::new("separator", text(), "what stands between the texts").default("|"),
    ]
}

fn route() -> Vec<Key> {
    vec![
        Key::new("by", filled(), "the field that it looks at").required(),
        Key::new(
            "regex",
            like("regular expression", ""),
            "matches the field's whole text; taken as written, without placeholders",
        )
        .required(),
        Key::new(
            "replacement",
            Takes::Template,
            "the topic, with the expression's groups as `${name}` or `${1}`",
        )
        .required(),
    ]
}

fn columns() -> Vec<Key> {
    let default = Columns::default();
    let timestamp = either([filled(), Takes::Mapping(timestamp())]);
    vec![
        Key::new("payload", filled(), "the payload").default(default.payload),
        Key::new("aggregate_type", filled(), "the aggregate's type").default(default.aggregate_type),
        Key::new("aggregate_id", filled(), "the aggregate's id").default(default.aggregate_id),
        Key::new("event_type", filled(), "the event's type").default(default.event_type),
        Key::new("topic", filled(), "the event's own topic").default_in_words("`topic`; beside a `route` none"),
        Key::new("event_id", filled(), "the event's id").default(default.event_id),
        Key::new(
            "timestamp",
            timestamp,
            "the field with the event's own time, by itself or with its unit: the record's [timestamp](#timestamp)",
        ),
        Key::new(
            "partition",
            filled(),
            "the field with the number of the record's partition; where it is missing or null, the key decides. A partition that the topic does not have is `rejected`",
        ),
        Key::new(
            "headers",
            filled(),
            "the field with more headers: a JSON object or an `hstore`. Its members go behind all others, as text; names that are there already are left out, as are objects and lists unless `json_as` says otherwise, and nulls by `on_null`. Of a name that it has twice, the last counts, whatever the column's type",
        ),
        Key::new(
            "trace",
            filled(),
            "the field with the context of a trace: a W3C `traceparent`, or Java properties with `traceparent` and `tracestate`, which is what Debezium's `tracingspancontext` has. They become headers by these names; other text is left out",
        ),
    ]
}

fn timestamp() -> Vec<Key> {
    vec![
        Key::new("column", filled(), "the field").required(),
        Key::new(
            "unit",
            word(["s", "ms", "us", "ns"]),
            "what a number there counts, since 1970",
        )
        .default_in_words("by the number's size"),
    ]
}

fn header_names() -> Vec<Key> {
    let default = HeaderNames::default();
    let name = || either([filled(), Takes::Null]);
    vec![
        Key::new("event_id", name(), "the event's id").default(default.event_id),
        Key::new("aggregate_type", name(), "the aggregate's type").default(default.aggregate_type),
        Key::new("aggregate_id", name(), "the aggregate's id").default(default.aggregate_id),
        Key::new("event_type", name(), "the event's type").default(default.event_type),
    ]
}
