use std::time::Duration;

use secrecy::ExposeSecret;

use super::*;
use crate::config::pipeline::{
    Checkpoint, CheckpointTopic, Columns, CreateTopics, DeadLetterPlace, Delivery, Envelope, ErrorPolicy, OnFenced,
    OversizedDeadLetter, Restart, Start,
};
use crate::position::Lsn;

#[test]
fn the_example_loads_in_both_versions() {
    for text in [EXAMPLE.to_owned(), ours()] {
        let loaded = loaded(&text);
        assert_eq!(loaded.notes, []);
        let pipeline = &loaded.pipeline;
        assert_eq!(
            (pipeline.name.as_str(), pipeline.tenant.as_deref()),
            ("order-events", Some("acme"))
        );
        let source = postgres(&loaded);
        assert_eq!(source.dsn.to_string(), "postgres://app@db:5433/shop");
        assert_eq!(
            (source.id.as_str(), source.slot.as_str(), source.publication.as_str()),
            ("pg1", "orders_slot", "orders_pub")
        );
        assert!(source.tables[0].matches("public", "orders") && source.tables.len() == 1);
        assert!(source.outbox.prefixes[0].matches("outbox") && source.outbox.tables.is_empty());
        let processor = outbox(&loaded);
        assert_eq!(topic(&loaded), "${aggregate_type}.${event_type}");
        assert_eq!(processor.default_topic.as_deref(), Some("events.unrouted"));
        assert!(processor.raw_payload);
        let sink = kafka(&loaded);
        assert_eq!((sink.id.as_str(), sink.brokers.as_str()), ("k1", "k1:9092,k2:9092"));
        assert_eq!(sink.topic.as_ref().unwrap().to_string(), "events.fallback");
    }
}

#[test]
fn defaults_are_those_of_the_contract() {
    let text = "apiVersion: tailpost/v1\nkind: Pipeline\nmetadata: {name: a}\nspec:\n  source: {type: postgres, config: {id: s, dsn: host=h, slot: s, publication: p, outbox: {prefixes: ['*']}}}\n  processors: [{type: outbox}]\n  sinks: [{type: kafka, config: {id: k, brokers: 'h:1'}}]\n";
    let loaded = loaded(text);
    let source = postgres(&loaded);
    assert!(source.create && source.failover && source.tables.is_empty() && source.start == Start::Earliest);
    assert_eq!(source.max_message_bytes, 64 << 20);
    let processor = outbox(&loaded);
    assert_eq!((processor.id.as_str(), processor.tables.len()), ("outbox", 0));
    assert_eq!(
        (processor.topic.is_none(), &processor.default_topic, &processor.key),
        (true, &None, &None)
    );
    assert!(!processor.raw_payload && !processor.strict && processor.additional_headers.is_empty());
    let columns = &processor.columns;
    assert_eq!(
        [&columns.payload, &columns.aggregate_type, &columns.aggregate_id],
        ["payload", "aggregate_type", "aggregate_id"]
    );
    assert_eq!(
        [&columns.event_type, Columns::TOPIC, &columns.event_id],
        ["event_type", "topic", "id"]
    );
    let sink = kafka(&loaded);
    assert_eq!(
        (&sink.topic, &sink.key, &sink.envelope, sink.create_topics),
        (&None, &None, &Envelope::Native, None)
    );
    assert!(sink.client_conf.is_empty() && !sink.exactly_once);
    assert_eq!(
        (sink.transactional_id.as_str(), sink.on_fenced),
        ("tailpost-a", OnFenced::StandBy)
    );
    let pipeline = &loaded.pipeline;
    assert_eq!(
        (&pipeline.tenant, pipeline.labels.len(), pipeline.annotations.len()),
        (&None, 0, 0)
    );
    let errors = pipeline.errors;
    assert_eq!(
        [errors.invalid, errors.unroutable, errors.rejected],
        [ErrorPolicy::Halt; 3]
    );
    assert!(pipeline.dead_letter.is_none());
    assert_eq!(pipeline.checkpoint, Checkpoint::File);
    assert_eq!(pipeline.transactional_id(), None);
    assert_eq!(
        pipeline.delivery,
        Delivery {
            max_in_flight_events: 20_000,
            max_in_flight_bytes: 8 << 20,
            drain_timeout: Duration::from_secs(30),
            stall_timeout: Duration::from_secs(60),
            progress_timeout: Duration::from_secs(60),
            transaction_interval: Duration::from_millis(100),
        }
    );
    assert_eq!(
        pipeline.restart,
        Restart {
            base_delay: Duration::from_millis(200),
            max_delay: Duration::from_secs(30),
            multiplier: 2.0,
            jitter: (0.5, 1.0),
        }
    );
}

#[test]
fn every_key_reaches_the_pipeline() {
    let text = r#"apiVersion: tailpost/v1
kind: Pipeline
metadata: {name: 0.a_b-c, labels: {team: "1", "app.io/x": y}, annotations: {note: ""}}
spec:
  source:
    type: postgres
    config:
      id: s
      dsn: host=h
      slot: s_1
      publication: "My Pub"
      create: false
      failover: false
      max_message_bytes: 2MB
      tables: ["a.*", b]
      outbox: {prefixes: ["x.%"], tables: [public.outbox]}
      start: {lsn: 16/B374D848}
  processors:
    - type: outbox
      id: first
      tables: [a.b, c]
      key: "${aggregate_id}-x"
      columns: {payload: p, aggregate_type: at, aggregate_id: ai, event_type: et, topic: t, event_id: e}
      additional_headers: {x-b: b, x-a: a}
      strict: true
  sinks:
    - type: kafka
      config:
        id: k
        brokers: "a:1 , [::1]:2"
        key: "${id}"
        envelope: {type: native}
        required: true
        exactly_once: true
        transactional_id: tx
        on_fenced: stop
        create_topics: {partitions: 6, replication_factor: 3}
        client_conf: {linger.ms: 5, compression.type: zstd, socket.keepalive.enable: true, max.in.flight: "5", sasl.password: "${KAFKA_BROKERS}", transaction.timeout.ms: 120000}
  errors: {invalid: skip, unroutable: dead_letter, rejected: halt}
  dead_letter: {type: kafka, config: {topic: dead, oversized: stub}}
  delivery: {max_in_flight_events: 1, max_in_flight_bytes: 65536, drain_timeout: 0s, stall_timeout: 1500ms, progress_timeout: 5s, transaction_interval: 60s}
  restart: {base_delay: 1s, max_delay: 1m, multiplier: 1, jitter: [1, 1.5]}
  checkpoint: {type: kafka, config: {topic: positions, replication_factor: 3, create: false}}
"#;
    let loaded = loaded(text);
    let pipeline = &loaded.pipeline;
    assert_eq!(pipeline.labels, variables(&[("team", "1"), ("app.io/x", "y")]));
    assert_eq!(pipeline.annotations, variables(&[("note", "")]));
    let source = postgres(&loaded);
    assert_eq!((source.create, source.failover), (false, false));
    assert_eq!(source.max_message_bytes, 2_000_000);
    assert_eq!(source.start, Start::Lsn(Lsn(0x16_B374_D848)));
    assert!(source.tables[0].matches("a", "x") && source.tables[1].matches("any", "b"));
    assert!(source.outbox.prefixes[0].matches("x.y") && source.outbox.tables[0].names_one());
    let processor = outbox(&loaded);
    assert!(processor.tables[0].matches_table("a", "b") && processor.tables[1].matches_prefix("c"));
    assert_eq!(processor.key.as_ref().unwrap().to_string(), "${aggregate_id}-x");
    let [payload, aggregate_type, aggregate_id, event_type, event_id] = ["p", "at", "ai", "et", "e"].map(str::to_owned);
    let topic = Some("t".to_owned());
    assert_eq!(
        processor.columns,
        Columns {
            payload,
            aggregate_type,
            aggregate_id,
            event_type,
            topic,
            event_id,
            ..Columns::default()
        }
    );
    let headers: Vec<_> = processor
        .additional_headers
        .iter()
        .map(|(name, column)| format!("{name}={column}"))
        .collect();
    assert_eq!(headers, ["x-b=b", "x-a=a"]);
    assert!(processor.strict && processor.id == "first");
    let sink = kafka(&loaded);
    assert_eq!(sink.brokers, "a:1,[::1]:2");
    assert_eq!(
        sink.create_topics,
        Some(CreateTopics {
            partitions: 6,
            replication_factor: 3
        })
    );
    let conf: Vec<_> = sink
        .client_conf
        .iter()
        .map(|(name, value)| format!("{name}={}", value.expose_secret()))
        .collect();
    assert_eq!(
        conf,
        [
            "linger.ms=5",
            "compression.type=zstd",
            "socket.keepalive.enable=true",
            "max.in.flight=5",
            "sasl.password=k1:9092,k2:9092",
            "transaction.timeout.ms=120000"
        ]
    );
    assert!(sink.exactly_once);
    assert_eq!((sink.transactional_id.as_str(), sink.on_fenced), ("tx", OnFenced::Stop));
    let errors = pipeline.errors;
    assert_eq!(
        [errors.invalid, errors.unroutable, errors.rejected],
        [ErrorPolicy::Skip, ErrorPolicy::DeadLetter, ErrorPolicy::Halt]
    );
    let dead_letter = pipeline.dead_letter.as_ref().unwrap();
    assert_eq!(dead_letter.place, DeadLetterPlace::Topic("dead".to_owned()));
    assert_eq!(dead_letter.oversized, OversizedDeadLetter::Stub);
    let topic = CheckpointTopic {
        name: "positions".to_owned(),
        replication_factor: 3,
        create: false,
    };
    assert_eq!(pipeline.checkpoint, Checkpoint::Kafka(topic));
    assert_eq!(
        pipeline.delivery,
        Delivery {
            max_in_flight_events: 1,
            max_in_flight_bytes: 65_536,
            drain_timeout: Duration::ZERO,
            stall_timeout: Duration::from_millis(1500),
            progress_timeout: Duration::from_secs(5),
            transaction_interval: Duration::from_secs(60),
        }
    );
    assert_eq!(
        pipeline.restart,
        Restart {
            base_delay: Duration::from_secs(1),
            max_delay: Duration::from_secs(60),
            multiplier: 1.0,
            jitter: (1.0, 1.5),
        }
    );
}

#[test]
fn values_out_of_their_rules_are_refused() {
    let long = "x".repeat(64);
    let too_long_topic = "x".repeat(250);
    for (text, expected) in [
        (
            with("name: order-events", "name: -a"),
            "metadata.name: expected a name of",
        ),
        (
            with("name: order-events", &format!("name: {long}")),
            "metadata.name: expected a name of",
        ),
        (with("name: order-events", "name: ''"), "found empty text"),
        (
            with("slot: orders_slot", &format!("slot: {long}")),
            "slot: expected a slot name",
        ),
        (with("slot: orders_slot", "slot: a-b"), "slot: expected a slot name"),
        (
            with("publication: orders_pub", "publication: ''"),
            "publication: expected a publication's name",
        ),
        (
            with("publication: orders_pub", &format!("publication: {}", "é".repeat(32))),
            "1 to 63 bytes",
        ),
        (with("id: k1", "id: ''"), "id: expected text that is not empty"),
        (
            with("default_topic: \"events.unrouted\"", "default_topic: ''"),
            "expected a topic of",
        ),
        (
            with("default_topic: \"events.unrouted\"", "default_topic: a b"),
            "expected a topic of",
        ),
        (
            with("default_topic: \"events.unrouted\"", "default_topic: ."),
            "expected a topic of",
        ),
        (
            with(
                "default_topic: \"events.unrouted\"",
                &format!("default_topic: {too_long_topic}"),
            ),
            "expected a topic of",
        ),
        (with("topic: \"events.fallback\"", "topic: .."), "expected a topic of"),
        (with("topic: \"events.fallback\"", "topic: ''"), "expected a topic of"),
        (
            with("topic: \"events.fallback\"", "topic: \"a ${b}\""),
            "expected a topic of",
        ),
        (with("brokers: ${KAFKA_BROKERS}", "brokers: ''"), "expected `host:port`"),
        (
            with("brokers: ${KAFKA_BROKERS}", "brokers: 'a:1,'"),
            "expected `host:port`",
        ),
        (with("brokers: ${KAFKA_BROKERS}", "brokers: a"), "expected `host:port`"),
        (
            with("brokers: ${KAFKA_BROKERS}", "brokers: 'a:0'"),
            "expected `host:port`",
        ),
        (
            with("brokers: ${KAFKA_BROKERS}", "brokers: 'a b:1'"),
            "expected `host:port`",
        ),
        (
            with("brokers: ${KAFKA_BROKERS}", "brokers: ['a:1']"),
            "expected text, found a list",
        ),
        (
            source_with("max_message_bytes: 1023"),
            "expected 1KiB to 1GiB, found 1023",
        ),
        (
            source_with("max_message_bytes: 2GiB"),
            "expected 1KiB to 1GiB, found `2GiB`",
        ),
        (source_with("max_message_bytes: -1"), "expected a size"),
        (source_with("start: {lsn: 0/0}"), "expected an LSN"),
        (source_with("start: {lsn: x}"), "expected an LSN"),
        (source_with("start: {}"), "start.lsn: missing key: expected an LSN"),
        (source_with("start: [a]"), "expected earliest, latest or {lsn: ...}"),
        (source_with("create: 1"), "expected true or false, found the number 1"),
        (
            sink_with("create_topics: {partitions: 0}"),
            "expected a whole number from 1 to",
        ),
        (sink_with("create_topics: {}"), "partitions: missing key"),
        (
            sink_with("create_topics: {partitions: 1, replication_factor: 0}"),
            "expected 1 or more, or -1",
        ),
        (sink_with("create_topics: {partitions: '3'}"), "remove the quotes"),
        (
            sink_with("create_topics: {partitions: 99999999999999999999999999999999999999999999}"),
            "create_topics.partitions: expected",
        ),
        (
            spec_with("delivery: {max_in_flight_events: 0}"),
            "from 1 to 10000000, found 0",
        ),
        (spec_with("delivery: {max_in_flight_bytes: 1KiB}"), "expected 64KiB to"),
        (spec_with("delivery: {stall_timeout: 999ms}"), "expected 1s to 24h"),
        (spec_with("delivery: {stall_timeout: 25h}"), "expected 1s to 24h"),
        (spec_with("delivery: {drain_timeout: 1.5s}"), "expected a duration"),
        (spec_with("delivery: {drain_timeout: 0}"), "add a unit"),
        (
            spec_with("errors: {invalid: ignore}"),
            "expected `halt`, `dead_letter` or `skip`",
        ),
        (spec_with("checkpoint: {}"), "checkpoint.type: missing key"),
        (spec_with("checkpoint: {type: redis}"), "expected `file` or `kafka`"),
        (processor_with("additional_headers: {'': a}"), "expected a header name"),
        (
            processor_with("additional_headers: {a: ''}"),
            "expected text that is not empty",
        ),
        (
            processor_with("additional_headers: {df-event-type: a}"),
            "tailpost sets this header itself",
        ),
        (
            processor_with("columns: {payload: ''}"),
            "expected text that is not empty",
        ),
        (processor_with("id: ''"), "expected text that is not empty"),
        (processor_with("tables: ['']"), "a pattern that is not empty"),
        (
            with("tables: [public.orders]", "tables: [a.b.c]"),
            "a table, or schema.table",
        ),
    ] {
        let all = violations(&text).join("\n");
        assert!(all.contains(expected), "{expected}:\n{all}");
    }
}

#[test]
fn a_source_with_nothing_to_publish_is_refused() {
    let text = with(
        "      tables: [public.orders]\n      outbox:\n        prefixes: [outbox]\n",
        "",
    );
    let line = violation(&text);
    assert!(
        line.starts_with("10:7: spec.source.config: nothing to publish"),
        "{line}"
    );
    assert!(
        violation(&with(
            "      tables: [public.orders]\n      outbox:\n        prefixes: [outbox]\n",
            "      tables: []\n"
        ))
        .contains("nothing to publish")
    );
}

#[test]
fn sinks_and_processors_of_others_are_refused_by_name() {
    for (text, expected) in [
        (
            with("type: kafka", "type: redis"),
            "sink type `redis` is not supported; expected `kafka`",
        ),
        (
            with("- type: outbox", "- type: javascript"),
            "processor type `javascript` is not supported; expected `outbox`",
        ),
        (
            with("type: postgres", "type: turso"),
            "source type `turso` is not supported; expected `postgres`",
        ),
        (with("type: postgres", "type: postgresql"), "did you mean `postgres`?"),
        (
            with("    - type: kafka\n", "    - typ: kafka\n"),
            "sinks[0].type: missing key",
        ),
    ] {
        let all = violations(&text).join("\n");
        assert!(all.contains(expected), "{all}");
    }
    let start = ours().find("  sinks:").unwrap();
    let no_sink = format!("{}  sinks: []\n", &ours()[..start]);
    assert_eq!(
        violation(&no_sink),
        "22:10: spec.sinks: expected 1 to 16 sinks, found an empty list"
    );
    assert!(violation(&ours()[..start]).ends_with("spec.sinks: missing key: expected a list of sinks"));
}

#[test]
fn client_conf_clashes_name_both_sides() {
    for (property, ours) in [
        ("bootstrap.servers", "`brokers`"),
        ("metadata.broker.list", "`brokers`"),
        ("enable.idempotence", "idempotent"),
        ("enable.gapless.guarantee", "idempotent"),
        ("acks", "`acks=all`"),
        ("request.required.acks", "`acks=all`"),
        ("message.timeout.ms", "retries"),
        ("delivery.timeout.ms", "retries"),
        ("retries", "retries"),
        ("message.send.max.retries", "retries"),
        ("partitioner", "partitioner"),
        ("transactional.id", "`transactional_id`"),
        ("queue.buffering.max.messages", "`spec.delivery.max_in_flight_events`"),
        ("queue.buffering.max.kbytes", "`spec.delivery.max_in_flight_bytes`"),
        ("delivery.report.only.error", "delivery reports"),
        ("dr_msg_cb", "delivery reports"),
        ("isolation.level", "topic is read"),
        ("group.id", "topic is read"),
    ] {
        let line = violation(&sink_with(&format!("client_conf: {{{property}: 1}}")));
        assert!(
            line.contains(&format!("librdkafka's `{property}` clashes with ")) && line.contains(ours),
            "{line}"
        );
    }
    for sound in [
        "message.max.bytes: 1000",
        "max.in.flight: 5",
        "log_level: 7",
        "debug: all",
        "linger.ms: 1",
        "security.protocol: SASL_SSL",
        "ssl.ca.location: /x",
    ] {
        loaded(&sink_with(&format!("client_conf: {{{sound}}}")));
    }
    for (conf, expected) in [
        ("max.in.flight: 6", "from 1 to 5"),
        ("max.in.flight.requests.per.connection: x", "from 1 to 5"),
        ("linger.ms: 0.5", "quote it"),
        ("linger.ms: ~", "found null"),
        ("linger.ms: [1]", "found a list"),
        ("'': 1", "expected a librdkafka property"),
    ] {
        let line = violation(&sink_with(&format!("client_conf: {{{conf}}}")));
        assert!(line.contains(expected), "{line}");
    }
}

#[test]
fn processors_may_be_none_and_share_only_the_default_id() {
    let without = ours().replace(
        &ours()[ours().find("  processors:").unwrap()..ours().find("  sinks:").unwrap()],
        "",
    );
    assert_eq!(
        notes(&without),
        [
            "7:3: spec.source: it selects outbox events, but no processor of type `outbox` takes them: each will be unroutable"
        ]
    );
    let two = with(
        "    - type: outbox\n",
        "    - {type: outbox, tables: [outbox]}\n    - type: outbox\n",
    );
    assert_eq!(notes(&two), Vec::<String>::new());
    let same = with(
        "    - type: outbox\n",
        "    - {type: outbox, id: x, tables: [a]}\n    - type: outbox\n      id: x\n",
    );
    assert!(violation(&same).contains("another processor has this id"));
}

#[test]
fn a_processor_behind_one_that_takes_all_is_noted() {
    let text = with("    - type: outbox\n", "    - {type: outbox}\n    - type: outbox\n");
    assert_eq!(
        notes(&text),
        ["19:7: spec.processors[1]: never reached: processors[0] takes every outbox"]
    );
}
