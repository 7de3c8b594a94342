//! An event that cannot go its way, among many that can: what the policy says happens to it, and nothing to the others.

use crate::support::relay::Relay;
use crate::support::{DEADLINE, Emit, TestBed};

const COUNT: usize = 1000;

const PIPELINE: &str = "
apiVersion: tailpost/v1
kind: Pipeline
metadata: {name: <name>}
spec:
  source:
    type: postgres
    config:
      id: pg1
      dsn: '<dsn>'
      slot: <slot>
      publication: <publication>
      outbox: {prefixes: [outbox]}
      max_message_bytes: 256KiB
  processors:
    - {type: outbox, topic: '<name>.${event_type}', raw_payload: true}
  sinks:
    - {type: kafka, config: {id: k1, brokers: '<brokers>', client_conf: {<client_conf>}}}
  errors: {invalid: <policy>, unroutable: <policy>, rejected: <policy>}
";

fn pipeline(bed: &TestBed, policy: &str, client_conf: &str) -> String {
    bed.fill(PIPELINE)
        .replace("<policy>", policy)
        .replace("<client_conf>", client_conf)
}

fn good(number: usize) -> String {
    format!(
        r#"{{"event_type": "events", "aggregate_id": "{}", "payload": {number}}}"#,
        number % 10
    )
}

/// Text that does not become smaller by compression.
fn noise(size: usize) -> String {
    (0..size).map(|_| char::from(rand::random_range(b'a'..=b'z'))).collect()
}

/// Records over this are too large for the bed's topic.
const TOPIC_LIMIT: usize = 60_000;

const UNROUTABLE: &str = r#"{"event_type": "", "payload": "cell-1"}"#;
const INVALID: &str = r#"{"event_type": "events", "aggregate_id": "cell-2"}"#;

fn too_large_for_the_topic() -> String {
    format!(
        r#"{{"event_type": "events", "aggregate_id": "5", "payload": "{}"}}"#,
        noise(TOPIC_LIMIT + 10_000)
    )
}

fn too_large_for_the_source() -> String {
    format!(r#"{{"event_type": "events", "payload": "{}"}}"#, "x".repeat(300_000))
}

/// Batches become as large as they may, which is more than the topic takes unless its limit is known.
const GATHERING: &str = "linger.ms: 100";

fn started(policy: &str) -> (TestBed, Relay) {
    let bed = TestBed::new();
    let limit = TOPIC_LIMIT.to_string();
    bed.kafka
        .create_topic(&bed.events(), 1, &[("max.message.bytes", &limit)]);
    let mut relay = bed.relay(&pipeline(&bed, policy, GATHERING));
    relay.start();
    relay.wait_ready();
    (bed, relay)
}

/// The numbers that arrived, each as a payload.
fn arrived(bed: &TestBed, count: usize) -> Vec<usize> {
    let mut reader = bed.reader(&["events"]);
    let records = reader.exactly(count).iter();
    records
        .map(|record| record.value_text().unwrap().parse().expect("a number"))
        .collect()
}

#[test]
fn by_skip_the_others_arrive_in_order_and_each_is_counted_by_its_reason() {
    let (bed, mut relay) = started("skip");
    let mut messages: Vec<String> = (0..COUNT).map(good).collect();
    messages.insert(800, too_large_for_the_source());
    messages.insert(600, too_large_for_the_topic());
    messages.insert(400, INVALID.to_owned());
    messages.insert(200, UNROUTABLE.to_owned());
    let mut app = bed.app();
    app.emit_all("outbox", &messages).unwrap();
    // And as transactions of their own, without others around them.
    for message in [
        UNROUTABLE,
        INVALID,
        &too_large_for_the_topic(),
        &too_large_for_the_source(),
    ] {
        app.emit("outbox", message);
    }
    app.emit("outbox", &good(COUNT));
    relay.wait_settled(COUNT as u64 + 9);
    let reasons = ["unroutable", "invalid", "rejected"];
    assert_eq!(reasons.map(|reason| relay.skipped(reason)), [2, 2, 4]);
    assert_eq!(arrived(&bed, COUNT + 1), (0..=COUNT).collect::<Vec<_>>());
    // Sizes were known before anything was sent: no batch was refused.
    assert_eq!(relay.metric("tailpost_restarts_total", &[]), 0.0);
    let log = relay.log();
    let told = |text: &str| {
        let lines = log.lines().filter(|line| line.contains("event skipped"));
        lines.filter(|line| line.contains(text)).count()
    };
    for text in [
        "it has no topic",
        "no field `payload`",
        "over its max.message.bytes",
        "over the limit of 262144",
    ] {
        assert_eq!(told(text), 2, "{text}");
    }
    assert!(!log.contains("cell-"), "a payload or key is in the log");
    relay.sigterm();
    assert_eq!(relay.wait_exit(DEADLINE), 0);
    relay.start_with(&["--once"]);
    assert_eq!(relay.wait_exit(DEADLINE), 0);
    arrived(&bed, COUNT + 1);
}

#[test]
fn rows_over_the_sources_limit_are_rejected_only_where_they_are_events() {
    let bed = TestBed::new();
    let mut app = bed.app();
    app.batch_execute(
        "CREATE TABLE o (event_type text, payload text); ALTER TABLE o ALTER payload SET STORAGE EXTERNAL;
         CREATE TABLE other (LIKE o INCLUDING ALL); ALTER TABLE o REPLICA IDENTITY FULL",
    )
    .unwrap();
    bed.admin()
        .batch_execute(&format!(
            "CREATE PUBLICATION {} FOR TABLE o, other WITH (publish = 'insert, update')",
            bed.publication
        ))
        .unwrap();
    let pipeline = PIPELINE.replace(
        "outbox: {prefixes: [outbox]}",
        "outbox: {prefixes: [outbox], tables: [o]}",
    );
    let pipeline = pipeline.replace("<policy>", "skip").replace("<client_conf>", "");
    let mut relay = bed.relay(&pipeline);
    relay.start();
    relay.wait_ready();
    app.batch_execute(
        "INSERT INTO o VALUES ('events', 'a');
         INSERT INTO o VALUES ('events', repeat('x', 300000));
         UPDATE o SET payload = repeat('y', 300000) WHERE payload = 'a';
         INSERT INTO other VALUES ('events', repeat('x', 300000));
         SELECT pg_logical_emit_message(false, 'outbox', repeat('x', 300000));
         SELECT pg_logical_emit_message(true, 'foreign', repeat('x', 300000));
         INSERT INTO o VALUES ('events', 'b')",
    )
    .unwrap();
    relay.wait_settled(7);
    let reasons = ["rejected", "outbox_update", "unlisted_table", "foreign_prefix"];
    assert_eq!(reasons.map(|reason| relay.skipped(reason)), [2, 1, 1, 1]);
    let mut reader = bed.reader(&["events"]);
    let values: Vec<_> = reader
        .exactly(2)
        .iter()
        .map(|record| record.value_text().unwrap())
        .collect();
    assert_eq!(values, ["a", "b"]);
}

/// Halts at the culprit in the middle of one transaction, then goes on behind it by `skip`.
fn halts_exactly_at(culprit: &str, reason: &str, texts: &[&str]) {
    let (bed, mut relay) = started("halt");
    let mut messages: Vec<String> = (0..COUNT).map(good).collect();
    messages.insert(500, culprit.to_owned());
    bed.app().emit_all("outbox", &messages).unwrap();
    let policy = format!("policy errors.{reason}: halt");
    relay.wait_halted(&[texts, &[policy.as_str()]].concat());
    assert_eq!(arrived(&bed, 500), (0..500).collect::<Vec<_>>());
    // It stays so.
    relay.start();
    relay.wait_halted(texts);
    arrived(&bed, 500);
    relay.rewrite(&pipeline(&bed, "skip", ""));
    relay.start();
    relay.wait_settled(501);
    assert_eq!(relay.skipped(reason), 1);
    assert_eq!(arrived(&bed, COUNT), (0..COUNT).collect::<Vec<_>>());
}

#[test]
fn by_halt_an_unroutable_event_ends_it_exactly_there() {
    halts_exactly_at(UNROUTABLE, "unroutable", &["has no topic", "default_topic"]);
}

#[test]
fn by_halt_an_invalid_event_ends_it_exactly_there() {
    halts_exactly_at(INVALID, "invalid", &["no field `payload`"]);
}

#[test]
fn by_halt_an_event_too_large_for_its_topic_ends_it_exactly_there() {
    halts_exactly_at(&too_large_for_the_topic(), "rejected", &["max.message.bytes of 60000"]);
}

#[test]
fn by_halt_an_event_too_large_for_the_source_ends_it_exactly_there() {
    halts_exactly_at(
        &too_large_for_the_source(),
        "rejected",
        &["over the limit of 262144", "max_message_bytes"],
    );
}

#[test]
fn a_culprit_that_was_mended_is_sent_and_nothing_is_doubled() {
    let (bed, mut relay) = started("halt");
    let large = too_large_for_the_topic();
    let mut messages: Vec<String> = (0..10).map(good).collect();
    messages.insert(5, large);
    bed.app().emit_all("outbox", &messages).unwrap();
    relay.wait_halted(&["max.message.bytes"]);
    bed.kafka
        .alter_topic(&bed.events(), &[("max.message.bytes", "1000000")]);
    relay.start();
    relay.wait_settled(6);
    let mut reader = bed.reader(&["events"]);
    let lengths: Vec<usize> = reader
        .exactly(11)
        .iter()
        .map(|record| record.value.as_ref().unwrap().len())
        .collect();
    assert_eq!(lengths, [1, 1, 1, 1, 1, TOPIC_LIMIT + 10_002, 1, 1, 1, 1, 1]);
}

/// The topic's limit is lowered while it runs, so that the broker refuses whole batches, the innocent with the culprit.
fn lowered_while_it_runs(policy: &str, client_conf: &str) {
    let bed = TestBed::new();
    bed.kafka.create_topic(&bed.events(), 1, &[]);
    let mut relay = bed.relay(&pipeline(&bed, policy, client_conf));
    relay.start();
    relay.wait_ready();
    let mut app = bed.app();
    app.emit("outbox", &good(0));
    relay.wait_settled(1);
    bed.kafka.alter_topic(&bed.events(), &[("max.message.bytes", "20000")]);
    let wide = |number: usize| {
        format!(
            r#"{{"event_type": "events", "aggregate_id": "{}", "payload": "{number} {}"}}"#,
            number % 10,
            noise(1000)
        )
    };
    let mut messages: Vec<String> = (1..COUNT).map(wide).collect();
    messages.insert(500, too_large_for_the_topic());
    app.emit_all("outbox", &messages).unwrap();
    if policy == "halt" {
        relay.wait_halted(&["rejected", "max.message.bytes", "policy errors.rejected: halt"]);
        relay.rewrite(&pipeline(&bed, "skip", client_conf));
        relay.start();
        relay.wait_settled((COUNT - 501) as u64 + 1);
    } else {
        relay.wait_settled(COUNT as u64 + 1);
        assert!(
            relay.metric("tailpost_events_failed_total", &[]) > 1.0,
            "no batch was refused"
        );
        assert_eq!(relay.published(), COUNT as u64);
    }
    assert_eq!(relay.skipped("rejected"), 1);
    // Those that were acked since the last boundary come again; the first times are in order.
    let mut reader = bed.reader(&["events"]);
    let mut first_times: Vec<usize> = Vec::new();
    for record in reader.all() {
        let text = record.value_text().unwrap().trim_matches('"');
        let number = text.split(' ').next().unwrap().parse().unwrap();
        if !first_times.contains(&number) {
            first_times.push(number);
        }
    }
    assert_eq!(first_times, (0..COUNT).collect::<Vec<_>>());
    let count = reader.records.len();
    // It has come to rest: what comes later goes in batches again.
    let restarts = relay.metric("tailpost_restarts_total", &[]);
    assert!(restarts <= 4.0, "{restarts} lives for one culprit");
    let received = relay.metric("tailpost_events_received_total", &[]) as u64;
    app.emit_all("outbox", &(0..COUNT).map(good).collect::<Vec<_>>())
        .unwrap();
    relay.wait_settled(received + COUNT as u64);
    reader.exactly(count + COUNT);
    assert_eq!(relay.metric("tailpost_restarts_total", &[]), restarts);
}

#[test]
fn a_limit_lowered_while_it_runs_hurts_only_the_culprit_by_skip() {
    lowered_while_it_runs("skip", "");
}

#[test]
fn a_limit_lowered_while_it_runs_halts_exactly_at_the_culprit() {
    lowered_while_it_runs("halt", "");
}

#[test]
fn a_limit_lowered_while_compressed_batches_run_hurts_only_the_culprit_by_skip() {
    lowered_while_it_runs("skip", "compression.type: lz4");
}

#[test]
fn a_limit_lowered_while_compressed_batches_run_halts_exactly_at_the_culprit() {
    lowered_while_it_runs("halt", "compression.type: zstd");
}

#[test]
fn compressed_records_may_be_larger_than_the_topics_limit_before_compression() {
    for codec in ["zstd", "lz4", "gzip", "snappy"] {
        let bed = TestBed::new();
        let limit = TOPIC_LIMIT.to_string();
        bed.kafka
            .create_topic(&bed.events(), 1, &[("max.message.bytes", &limit)]);
        let mut relay = bed.relay(&pipeline(&bed, "halt", &format!("compression.type: {codec}")));
        relay.start();
        relay.wait_ready();
        let payload = "x".repeat(TOPIC_LIMIT * 2);
        let mut messages: Vec<String> = (0..100).map(good).collect();
        messages[50] = format!(r#"{{"event_type": "events", "payload": "{payload}"}}"#);
        bed.app().emit_all("outbox", &messages).unwrap();
        relay.wait_settled(100);
        let mut reader = bed.reader(&["events"]);
        let records = reader.exactly(100);
        assert_eq!(
            records[50].value_text(),
            Some(format!("\"{payload}\"").as_str()),
            "{codec}"
        );
        assert_eq!(records[99].value_text(), Some("99"));
    }
}
