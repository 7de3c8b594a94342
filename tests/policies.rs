//! An event that cannot go its way, among many that can: what the policy says happens to it, and nothing to the others.

use mysql::prelude::Queryable;

use crate::support::mysql::{Engine, Script};
use crate::support::mysql_bed::MysqlBed;
use crate::support::relay::Relay;
use crate::support::{Bed, DEADLINE, Db, Event, TestBed, over_each};

const COUNT: usize = 1000;

const PIPELINE: &str = "
apiVersion: tailpost/v1
kind: Pipeline
metadata: {name: <name>}
spec:
  source: {type: <type>, config: {<source>, outbox: {<outbox>}, max_message_bytes: 256KiB}}
  processors:
    - {type: outbox, topic: '<name>.${event_type}', raw_payload: true}
  sinks:
    - {type: kafka, config: {id: k1, brokers: '<brokers>', client_conf: {<client_conf>}}}
  errors: {invalid: <policy>, unroutable: <policy>, rejected: <policy>}
";

fn pipeline(bed: &Bed, policy: &str, client_conf: &str) -> String {
    let pipeline = match bed.db() {
        Db::Postgres => PIPELINE.to_owned(),
        // With the table of events that lack a field.
        Db::Mysql | Db::Mariadb => PIPELINE.replace("<outbox>", "tables: ['<name>.*']"),
    };
    bed.fill(&pipeline)
        .replace("<policy>", policy)
        .replace("<client_conf>", client_conf)
}

fn good(number: usize) -> Event {
    Event::of(number.to_string())
        .event_type("events")
        .key((number % 10).to_string())
}

/// Text that does not become smaller by compression.
fn noise(size: usize) -> String {
    (0..size).map(|_| char::from(rand::random_range(b'a'..=b'z'))).collect()
}

/// Records over this are too large for the bed's topic.
const TOPIC_LIMIT: usize = 60_000;

fn unroutable() -> Event {
    Event::of(r#""cell-1""#).event_type("")
}

/// Without a payload; of a row that means a table without such a column.
fn invalid() -> Event {
    Event::default().event_type("events").key("cell-2")
}

fn too_large_for_the_topic() -> Event {
    Event::of(format!(r#""{}""#, noise(TOPIC_LIMIT + 10_000)))
        .event_type("events")
        .key("5")
}

fn too_large_for_the_source() -> Event {
    Event::of(format!(r#""{}""#, "x".repeat(300_000))).event_type("events")
}

/// Writes events in one transaction.
fn write(bed: &Bed, events: &[Event]) {
    let mut app = bed.app();
    app.begin();
    for events in events.chunk_by(|one, next| one.payload.is_some() == next.payload.is_some()) {
        if bed.db() == Db::Postgres || events[0].payload.is_some() {
            app.emit_all(events).unwrap();
            continue;
        }
        for event in events {
            let [event_type, key] = [&event.event_type, &event.aggregate_id].map(|text| text.as_deref().unwrap());
            app.run(&format!(
                "INSERT INTO without_payload (event_type, aggregate_id) VALUES ('{event_type}', '{key}')"
            ));
        }
    }
    app.commit();
}

/// Batches become as large as they may, which is more than the topic takes unless its limit is known.
const GATHERING: &str = "linger.ms: 100";

fn new_bed(db: Db) -> Bed {
    let bed = Bed::new(db);
    if db != Db::Postgres {
        bed.app()
            .run("CREATE TABLE without_payload (event_type VARCHAR(64), aggregate_id VARCHAR(64))");
    }
    bed
}

fn started(db: Db, policy: &str) -> (Bed, Relay) {
    let bed = new_bed(db);
    let limit = TOPIC_LIMIT.to_string();
    bed.kafka
        .create_topic(&bed.events(), 1, &[("max.message.bytes", &limit)]);
    let mut relay = bed.relay(&pipeline(&bed, policy, GATHERING));
    relay.start();
    relay.wait_ready();
    (bed, relay)
}

/// The numbers that arrived, each as a payload.
fn arrived(bed: &Bed, count: usize) -> Vec<usize> {
    let mut reader = bed.reader(&["events"]);
    let records = reader.exactly(count).iter();
    records
        .map(|record| record.value_text().unwrap().parse().expect("a number"))
        .collect()
}

over_each!(by_skip_the_others_arrive_in_order_and_each_is_counted_by_its_reason);
fn by_skip_the_others_arrive_in_order_and_each_is_counted_by_its_reason(db: Db) {
    let (bed, mut relay) = started(db, "skip");
    let mut events: Vec<Event> = (0..COUNT).map(good).collect();
    events.insert(800, too_large_for_the_source());
    events.insert(600, too_large_for_the_topic());
    events.insert(400, invalid());
    events.insert(200, unroutable());
    write(&bed, &events);
    // And as transactions of their own, without others around them.
    for event in [
        unroutable(),
        invalid(),
        too_large_for_the_topic(),
        too_large_for_the_source(),
    ] {
        write(&bed, &[event]);
    }
    write(&bed, &[good(COUNT)]);
    relay.wait_published(COUNT as u64 + 1);
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
fn what_is_over_the_sources_limit_is_rejected_only_where_it_is_an_event() {
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
    let pipeline = PIPELINE.replace("<outbox>", "prefixes: [outbox], tables: [o]");
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
    relay.wait_settled(6);
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

over_each!(rows_over_the_sources_limit_are_rejected_only_where_they_are_events: mysql, mariadb);
fn rows_over_the_sources_limit_are_rejected_only_where_they_are_events(db: Db) {
    let bed = MysqlBed::new(db.flavor().expect("a binlog"));
    bed.remake_outbox(Engine::Innodb);
    let mut app = bed.app();
    app.run("CREATE TABLE other LIKE outbox").unwrap();
    let pipeline = PIPELINE.replace("<policy>", "skip").replace("<client_conf>", "");
    let mut relay = bed.relay(&pipeline);
    relay.start();
    relay.wait_ready();
    let large = r#"CONCAT('"', REPEAT('x', 300000), '"')"#;
    for statement in [
        "INSERT INTO outbox (event_type, payload) VALUES ('events', '1')",
        "INSERT INTO outbox (event_type, payload) VALUES ('events', <large>)",
        // Of three rows the one in the middle.
        "INSERT INTO outbox (event_type, payload) VALUES ('events', '2'), ('events', <large>), ('events', '3')",
        "UPDATE outbox SET payload = <large> WHERE number = 1",
        "INSERT INTO other (event_type, payload) VALUES ('events', <large>)",
        "INSERT INTO outbox (event_type, payload) VALUES ('events', '4')",
    ] {
        app.query_drop(statement.replace("<large>", large)).unwrap();
    }
    relay.wait_published(4);
    let reasons = ["rejected", "outbox_update"];
    assert_eq!(reasons.map(|reason| relay.skipped(reason)), [2, 1]);
    let mut reader = bed.reader(&["events"]);
    let values: Vec<_> = reader
        .exactly(4)
        .iter()
        .map(|record| record.value_text().unwrap())
        .collect();
    assert_eq!(values, ["1", "2", "3", "4"]);
}

/// Halts at the culprit in the middle of one transaction, then goes on behind it by `skip`.
fn halts_exactly_at(db: Db, culprit: Event, reason: &str, texts: &[&str]) {
    let (bed, mut relay) = started(db, "halt");
    let mut events: Vec<Event> = (0..COUNT).map(good).collect();
    events.insert(500, culprit);
    write(&bed, &events);
    let policy = format!("policy errors.{reason}: halt");
    relay.wait_halted(&[texts, &[policy.as_str()]].concat());
    assert_eq!(arrived(&bed, 500), (0..500).collect::<Vec<_>>());
    // It stays so.
    relay.start();
    relay.wait_halted(texts);
    arrived(&bed, 500);
    relay.rewrite(&pipeline(&bed, "skip", ""));
    relay.start();
    relay.wait_published(500);
    assert_eq!(relay.skipped(reason), 1);
    assert_eq!(arrived(&bed, COUNT), (0..COUNT).collect::<Vec<_>>());
}

over_each!(by_halt_an_unroutable_event_ends_it_exactly_there);
fn by_halt_an_unroutable_event_ends_it_exactly_there(db: Db) {
    halts_exactly_at(db, unroutable(), "unroutable", &["has no topic", "default_topic"]);
}

over_each!(by_halt_an_invalid_event_ends_it_exactly_there);
fn by_halt_an_invalid_event_ends_it_exactly_there(db: Db) {
    halts_exactly_at(db, invalid(), "invalid", &["no field `payload`"]);
}

over_each!(by_halt_an_event_too_large_for_its_topic_ends_it_exactly_there);
fn by_halt_an_event_too_large_for_its_topic_ends_it_exactly_there(db: Db) {
    let texts = ["max.message.bytes of 60000"];
    halts_exactly_at(db, too_large_for_the_topic(), "rejected", &texts);
}

over_each!(by_halt_an_event_too_large_for_the_source_ends_it_exactly_there);
fn by_halt_an_event_too_large_for_the_source_ends_it_exactly_there(db: Db) {
    let texts = ["over the limit of 262144", "max_message_bytes"];
    halts_exactly_at(db, too_large_for_the_source(), "rejected", &texts);
}

over_each!(a_culprit_that_was_mended_is_sent_and_nothing_is_doubled);
fn a_culprit_that_was_mended_is_sent_and_nothing_is_doubled(db: Db) {
    let (bed, mut relay) = started(db, "halt");
    let mut events: Vec<Event> = (0..10).map(good).collect();
    events.insert(5, too_large_for_the_topic());
    write(&bed, &events);
    relay.wait_halted(&["max.message.bytes"]);
    bed.kafka
        .alter_topic(&bed.events(), &[("max.message.bytes", "1000000")]);
    relay.start();
    relay.wait_published(6);
    let mut reader = bed.reader(&["events"]);
    let lengths: Vec<usize> = reader
        .exactly(11)
        .iter()
        .map(|record| record.value.as_ref().unwrap().len())
        .collect();
    assert_eq!(lengths, [1, 1, 1, 1, 1, TOPIC_LIMIT + 10_002, 1, 1, 1, 1, 1]);
}

/// The topic's limit is lowered while it runs, so that the broker refuses whole batches, the innocent with the culprit.
fn lowered_while_it_runs(db: Db, policy: &str, client_conf: &str) {
    let bed = new_bed(db);
    bed.kafka.create_topic(&bed.events(), 1, &[]);
    let mut relay = bed.relay(&pipeline(&bed, policy, client_conf));
    relay.start();
    relay.wait_ready();
    write(&bed, &[good(0)]);
    relay.wait_published(1);
    bed.kafka.alter_topic(&bed.events(), &[("max.message.bytes", "20000")]);
    let wide = |number: usize| {
        Event::of(format!(r#""{number} {}""#, noise(1000)))
            .event_type("events")
            .key((number % 10).to_string())
    };
    let mut events: Vec<Event> = (1..COUNT).map(wide).collect();
    events.insert(500, too_large_for_the_topic());
    write(&bed, &events);
    if policy == "halt" {
        relay.wait_halted(&["rejected", "max.message.bytes", "policy errors.rejected: halt"]);
        relay.rewrite(&pipeline(&bed, "skip", client_conf));
        relay.start();
        relay.wait_published((COUNT - 501) as u64);
    } else {
        relay.wait_published(COUNT as u64);
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
    assert!(restarts <= 6.0, "{restarts} lives for one culprit");
    let published = relay.published();
    write(&bed, &(0..COUNT).map(good).collect::<Vec<_>>());
    relay.wait_published(published + COUNT as u64);
    reader.exactly(count + COUNT);
    assert_eq!(relay.metric("tailpost_restarts_total", &[]), restarts);
}

over_each!(a_limit_lowered_while_it_runs_hurts_only_the_culprit_by_skip);
fn a_limit_lowered_while_it_runs_hurts_only_the_culprit_by_skip(db: Db) {
    lowered_while_it_runs(db, "skip", "");
}

#[test]
fn a_limit_lowered_while_it_runs_halts_exactly_at_the_culprit() {
    lowered_while_it_runs(Db::Postgres, "halt", "");
}

#[test]
fn a_limit_lowered_while_compressed_batches_run_hurts_only_the_culprit_by_skip() {
    lowered_while_it_runs(Db::Postgres, "skip", "compression.type: lz4");
}

#[test]
fn a_limit_lowered_while_compressed_batches_run_halts_exactly_at_the_culprit() {
    lowered_while_it_runs(Db::Postgres, "halt", "compression.type: zstd");
}

#[test]
fn compressed_records_may_be_larger_than_the_topics_limit_before_compression() {
    for codec in ["zstd", "lz4", "gzip", "snappy"] {
        let bed = Bed::new(Db::Postgres);
        let limit = TOPIC_LIMIT.to_string();
        bed.kafka
            .create_topic(&bed.events(), 1, &[("max.message.bytes", &limit)]);
        let mut relay = bed.relay(&pipeline(&bed, "halt", &format!("compression.type: {codec}")));
        relay.start();
        relay.wait_ready();
        let payload = "x".repeat(TOPIC_LIMIT * 2);
        let mut events: Vec<Event> = (0..100).map(good).collect();
        events[50] = Event::of(format!("\"{payload}\"")).event_type("events");
        write(&bed, &events);
        relay.wait_published(100);
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
