//! `spec.audit` and `spec.dispatches`.

use crate::config::file::audit::{DEFAULT_MAX_SIZE, KEPT, MAX_SIZES};
use crate::config::quantity::show_size;
use crate::config::schema::key::{Key, Takes, filled, open, tagged, variant};

pub(super) fn audit() -> Vec<Key> {
    vec![
        Key::new(
            "path",
            filled(),
            "the file that lines are added to; a relative path is below the state directory. Made if missing, with its folder",
        )
        .required(),
        Key::new(
            "fields",
            open("`{name: template}`", Takes::Template),
            "members of a line that are the event's own: columns of a row, members of a message, as in the templates of a processor; null where a field has no text",
        ),
        Key::new(
            "names",
            Takes::Mapping(names()),
            "other names for the members that each line has",
        ),
        Key::new(
            "max_size",
            Takes::Size(MAX_SIZES),
            "a file of this size is full: it becomes `PATH.000001` and so on, and another one follows",
        )
        .default(show_size(DEFAULT_MAX_SIZE)),
        Key::new("keep", Takes::Integer(KEPT), "how many full files are kept").default_in_words("all"),
    ]
}

fn names() -> Vec<Key> {
    let name = |name, meaning| Key::new(name, filled(), meaning).default(name);
    vec![
        name("outbox_id", "the event's id"),
        name("event_name", "its type"),
        name("sink", "the sink's id"),
        name("status", "`published`, `dead_letter` or `skipped`"),
        name("reason", "of a dead letter or a skip"),
        name("attempt", "how often it was tried"),
        name("last_error", "why the last attempt that failed did"),
        name("position", "its place in the database's log"),
        name("duplicate", "whether it was settled before"),
        name("time", "when it was settled"),
    ]
}

pub(super) fn dispatches() -> Takes {
    let path = Key::new(
        "path",
        filled(),
        "the file that records are added to; a relative path is below the state directory. Made if missing, with its folder",
    )
    .required();
    let endpoint = Key::new(
        "endpoint",
        filled(),
        "URL of a collector that takes OTLP over HTTP, `http` or `https`; records go to `/v1/logs` below it",
    )
    .default_in_words("that of `--otlp`, or else of `OTEL_EXPORTER_OTLP_ENDPOINT`");
    let config = |keys| Key::new("config", Takes::Mapping(keys), "");
    tagged(
        "where records of deliveries go: to a file, to stdout, or as [OTLP logs](operate.md#dispatch-records-as-logs) to an OpenTelemetry collector, which a build with the cargo feature `otlp` can",
        vec![
            variant(["file"], vec![config(vec![path]).required()]),
            variant(["stdout"], Vec::new()),
            variant(["otlp"], vec![config(vec![endpoint])]),
        ],
    )
}
