//! Exactly-once, the checkpoint's store, and the rules that join them with the rest of a file.

use std::time::Duration;

use super::*;
use crate::config::pipeline::{Checkpoint, CheckpointTopic, OnFenced};

fn default_topic() -> CheckpointTopic {
    CheckpointTopic {
        name: "tailpost-checkpoints".to_owned(),
        replication_factor: -1,
        create: true,
    }
}

/// The example with a line for the sink and one for `spec`; either may be empty.
fn joined(sink: &str, spec: &str) -> String {
    let text = sink_with(sink);
    text.replacen("spec:\n", &format!("spec:\n  {spec}\n"), 1)
}

#[test]
fn exactly_once_keeps_the_position_in_kafka() {
    for text in [
        sink_with("exactly_once: true"),
        joined("exactly_once: true", "checkpoint: {type: kafka}"),
        joined("exactly_once: true", "checkpoint: {type: kafka, config: {}}"),
        EXAMPLE.replace("        id: k1\n", "        id: k1\n        exactly_once: true\n"),
    ] {
        let loaded = loaded(&text);
        assert!(kafka(&loaded).exactly_once);
        assert_eq!(loaded.pipeline.checkpoint, Checkpoint::Kafka(default_topic()));
        assert_eq!(loaded.pipeline.transactional_id(), Some("tailpost-order-events"));
        assert_eq!(loaded.notes, []);
    }
    let line = violation(&joined("exactly_once: true", "checkpoint: {type: file}"));
    assert!(
        line.starts_with("7:22: spec.checkpoint.type: `file` clashes with `exactly_once: true`")
            && line.contains("write `kafka`"),
        "{line}"
    );
    assert!(violation(&sink_with("exactly_once: 1")).contains("expected true or false, found the number 1"));
}

#[test]
fn a_checkpoint_in_kafka_takes_its_topic() {
    for (config, expected) in [
        ("", default_topic()),
        (
            ", config: {topic: a.b_c-1, replication_factor: 3, create: false}",
            CheckpointTopic {
                name: "a.b_c-1".to_owned(),
                replication_factor: 3,
                create: false,
            },
        ),
        (
            ", config: {replication_factor: \"${FACTOR:-1}\"}",
            CheckpointTopic {
                replication_factor: 1,
                ..default_topic()
            },
        ),
    ] {
        let loaded = loaded(&spec_with(&format!("checkpoint: {{type: kafka{config}}}")));
        assert_eq!(loaded.pipeline.checkpoint, Checkpoint::Kafka(expected));
        assert_eq!(loaded.pipeline.transactional_id(), Some("tailpost-order-events"));
    }
    for (checkpoint, expected) in [
        ("{type: kafka, config: {topic: 'a b'}}", "topic: expected a topic of"),
        ("{type: kafka, config: {topic: ..}}", "topic: expected a topic of"),
        ("{type: kafka, config: {topic: ''}}", "topic: expected a topic of"),
        (
            "{type: kafka, config: {topic: 5}}",
            "topic: expected text, found the number 5",
        ),
        (
            "{type: kafka, config: {replication_factor: 0}}",
            "replication_factor: expected 1 or more, or -1 for the broker's default",
        ),
        ("{type: kafka, config: {replication_factor: -2}}", "from -1 to 1000"),
        (
            "{type: kafka, config: {create: maybe}}",
            "create: expected true or false",
        ),
        ("{type: kafka, config: {topics: x}}", "did you mean `topic`?"),
        ("{type: kafka, topic: x}", "checkpoint.topic: unknown key"),
        ("{type: file, config: {}}", "checkpoint.config: unknown key"),
        ("{type: kafk}", "did you mean `kafka`?"),
        ("kafka", "expected a mapping"),
    ] {
        let line = violation(&spec_with(&format!("checkpoint: {checkpoint}")));
        assert!(line.contains(expected), "{line}");
    }
}

#[test]
fn what_belongs_to_transactions_is_refused_without_them() {
    for key in [
        "transactional_id: x",
        "on_fenced: stop",
        "client_conf: {transaction.timeout.ms: 90000}",
    ] {
        for checkpoint in ["labels", "checkpoint: {type: file}"] {
            let text = match checkpoint {
                "labels" => sink_with(key),
                checkpoint => joined(key, checkpoint),
            };
            let line = violation(&text);
            assert!(
                line.contains("has no effect without `exactly_once: true` or `spec.checkpoint: {type: kafka}`"),
                "{line}"
            );
        }
        loaded(&sink_with(&format!("exactly_once: true\n        {key}")));
        loaded(&joined(key, "checkpoint: {type: kafka}"));
    }
    let line = violation(&spec_with("delivery: {transaction_interval: 100ms}"));
    assert!(
        line.starts_with("7:14: spec.delivery.transaction_interval: has no effect without `exactly_once: true`"),
        "{line}"
    );
    // The store's own transactions hold one position each: nothing gathers in them.
    let text = spec_with("delivery: {transaction_interval: 100ms}\n  checkpoint: {type: kafka}");
    assert!(violation(&text).contains("has no effect"));
}

#[test]
fn a_rule_waits_for_the_values_that_it_joins() {
    // Whether these have an effect is not known yet, and nothing is said of it.
    let text = sink_with("exactly_once: maybe\n        transactional_id: x\n        on_fenced: stop");
    assert!(violation(&text).contains("exactly_once: expected true or false"));
    let text = joined("transactional_id: x", "checkpoint: {type: kafk}");
    assert!(violation(&text).contains("checkpoint.type"));
    let text = joined("exactly_once: true", "delivery: {transaction_interval: 0ms}");
    assert!(violation(&text).contains("expected 1ms to 1m"));
    // Other faults of the sink do not hide them.
    let text = sink_with("on_fenced: stop").replace("brokers: ${KAFKA_BROKERS}", "brokers: x");
    let all = violations(&text);
    assert_eq!(all.len(), 2, "{all:#?}");
    assert!(all[0].contains("on_fenced: has no effect") && all[1].contains("`host:port`"));
}

#[test]
fn who_is_fenced_and_under_which_id_is_set_with_the_sink() {
    let loaded = loaded(&sink_with(
        "exactly_once: true\n        transactional_id: ${KAFKA_BROKERS}\n        on_fenced: stop",
    ));
    assert_eq!(kafka(&loaded).transactional_id, "k1:9092,k2:9092");
    assert_eq!(kafka(&loaded).on_fenced, OnFenced::Stop);
    let long = "x".repeat(201);
    for (key, expected) in [
        (
            "transactional_id: ''",
            "expected a transactional id of 1 to 200 characters",
        ),
        ("transactional_id: \"a\\nb\"", "none of them a control character"),
        (&format!("transactional_id: {long}"), "1 to 200 characters"),
        ("transactional_id: 5", "quote it"),
        (
            "on_fenced: standby",
            "expected `stand_by` or `stop`, found `standby`; did you mean `stand_by`?",
        ),
    ] {
        let line = violation(&sink_with(&format!("exactly_once: true\n        {key}")));
        assert!(line.contains(expected), "{line}");
    }
}

#[test]
fn a_transaction_ends_well_before_its_timeout() {
    let interval = |text: &str, conf: &str| {
        joined(
            &format!("exactly_once: true\n        client_conf: {{{conf}}}"),
            &format!("delivery: {{transaction_interval: {text}}}"),
        )
    };
    for (text, conf) in [
        ("1ms", ""),
        ("30s", ""),
        ("60s", "transaction.timeout.ms: 120000"),
        ("500ms", "transaction.timeout.ms: '1000'"),
    ] {
        let loaded = loaded(&interval(text, conf));
        assert!(loaded.pipeline.delivery.transaction_interval >= Duration::from_millis(1));
    }
    for (text, conf, expected) in [
        (
            "31s",
            "",
            "half of the sink's `transaction.timeout.ms` (1m) at most, found 31s",
        ),
        ("100ms", "transaction.timeout.ms: 999", "from 1000 to 2147483647"),
        ("501ms", "transaction.timeout.ms: 1000", "(1s) at most, found 501ms"),
        ("100ms", "transaction.timeout.ms: 1m", "from 1000 to 2147483647"),
        ("0s", "", "expected 1ms to 1m"),
        ("61s", "transaction.timeout.ms: 600000", "expected 1ms to 1m"),
        ("100", "", "add a unit"),
    ] {
        let line = violation(&interval(text, conf));
        assert!(line.contains(expected), "{line}");
    }
}

#[test]
fn nothing_else_goes_into_the_topic_of_the_positions() {
    let named = "checkpoint: {type: kafka, config: {topic: events.unrouted}}";
    let line = violation(&spec_with(named));
    assert!(
        line.contains("spec.processors[0].default_topic: `events.unrouted` keeps the positions"),
        "{line}"
    );
    let line = violation(&spec_with(&named.replace("unrouted", "fallback")));
    assert!(
        line.contains("spec.sinks[0].config.topic: `events.fallback` keeps"),
        "{line}"
    );
    let line = violation(&joined(
        "exactly_once: true",
        "dead_letter: {type: kafka, config: {topic: tailpost-checkpoints}}",
    ));
    assert!(
        line.starts_with("7:46: spec.dead_letter.config.topic: `tailpost-checkpoints` keeps"),
        "{line}"
    );
    let text = sink_with("exactly_once: true").replace("\"${aggregate_type}.${event_type}\"", "tailpost-checkpoints");
    assert!(violation(&text).contains("spec.processors[0].topic: `tailpost-checkpoints` keeps"));
    // Without a checkpoint in Kafka it is a topic like any other.
    loaded(&with("events.fallback", "tailpost-checkpoints"));
}
