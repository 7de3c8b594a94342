//! The keys, part by part: what `config::file` reads in a file of some name is described here in the file of that name.

mod audit;
mod checkpoint;
mod delivery;
mod errors;
mod filter;
mod http;
mod kafka;
mod lines;
mod mask;
mod outbox;
mod source;
mod validate;

use crate::config::file::sinks::MOST_SINKS;

use super::key::{Key, Takes, filled, like, list, list_of, open, tagged, text, word};

/// A whole file.
pub(super) fn file() -> Vec<Key> {
    vec![
        Key::new(
            "apiVersion",
            word(["tailpost/v1", "deltaforge/v1"]),
            "`deltaforge/v1`: the file was written for DeltaForge, and is read as it is",
        )
        .required(),
        Key::new("kind", word(["Pipeline"]), "what the file is").required(),
        Key::new(
            "metadata",
            Takes::Mapping(metadata()),
            "[what the pipeline is called](#metadata)",
        )
        .required(),
        Key::new("spec", Takes::Mapping(spec()), "[what it does](#spec)").required(),
    ]
}

fn metadata() -> Vec<Key> {
    vec![
        Key::new(
            "name",
            like("name", "^[a-z0-9][a-z0-9._-]{0,62}$"),
            "names the pipeline in its checkpoint, logs and metrics: `a-z 0-9 . _ -`, 63 at most. Two files with one name are refused",
        )
        .required(),
        Key::new(
            "tenant",
            filled(),
            "whose pipeline it is: goes into each log line, and into the metrics (`tailpost_pipeline_info`)",
        ),
        Key::new(
            "labels",
            open("`{name: text}`", text()),
            "go into the first log line, and into the metrics",
        ),
        Key::new("annotations", open("`{name: text}`", text()), "the same"),
    ]
}

fn spec() -> Vec<Key> {
    let keys = vec![
        Key::new("source", source::source(), "[where changes come from](#specsource)").required(),
        Key::new(
            "processors",
            list(
                "list of mappings",
                tagged(
                    "what the processor does",
                    vec![
                        outbox::variant(),
                        filter::variant(),
                        mask::variant(),
                        validate::variant(),
                    ],
                ),
            ),
            "[what makes records of outbox events, and what leaves out, masks or checks](#specprocessors): an event goes from one to the next, until one takes it",
        ),
        Key::new(
            "sinks",
            list_of(
                "list of mappings",
                tagged(
                    "where records go",
                    vec![kafka::variant(), http::variant(), lines::file(), lines::stdout()],
                ),
                1..=MOST_SINKS as usize,
            ),
            "[where records go](#specsinks)",
        )
        .required(),
        Key::new(
            "commit_policy",
            Takes::Mapping(commit_policy()),
            "[which of several sinks the position waits for](#several-sinks)",
        )
        .default_in_words("those that are `required`"),
        Key::new(
            "errors",
            Takes::Mapping(errors::policies()),
            "[what to do with an event that cannot be sent](#specerrors)",
        ),
        Key::new(
            "dead_letter",
            errors::dead_letter(),
            "[where events of the policy `dead_letter` are parked](#specdead_letter)",
        ),
        Key::new(
            "audit",
            Takes::Mapping(audit::audit()),
            "[a ledger with a line for each event](#specaudit), in a chain of hashes",
        ),
        Key::new(
            "dispatches",
            audit::dispatches(),
            "[a record of each delivery](#specdispatches)",
        ),
        Key::new(
            "checkpoint",
            checkpoint::checkpoint(),
            "[where the position is kept](#speccheckpoint)",
        )
        .default_in_words("`file`, or `kafka` with `exactly_once`"),
        Key::new(
            "delivery",
            Takes::Mapping(delivery::delivery()),
            "[bounds of the way from the database to the sink](#specdelivery)",
        ),
        Key::new(
            "restart",
            Takes::Mapping(delivery::restart()),
            "[waits between tries](#specrestart) of a source or sink that failed and can heal",
        ),
    ];
    let of_deltaforge = [
        "sharding",
        "connection_policy",
        "batch",
        "schema_sensing",
        "journal",
        "sink_batch_deadline_secs",
    ]
    .map(|name| Key::of_deltaforge(name, Takes::Anything, ""));
    keys.into_iter().chain(of_deltaforge).collect()
}

fn commit_policy() -> Vec<Key> {
    vec![
        Key::new(
            "mode",
            word(["all", "required", "quorum"]),
            "`all`: each sink is waited for; `required`: each that is not `required: false`; `quorum`: any `quorum` of them",
        )
        .required(),
        Key::new(
            "quorum",
            Takes::Integer(1..=MOST_SINKS),
            "with `mode: quorum`: how many sinks must have an event, at most as many as there are",
        ),
    ]
}
