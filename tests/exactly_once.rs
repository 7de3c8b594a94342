//! Exactly once: a reader of committed records sees each event once and in order, whatever happens.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rand::Rng;
use rdkafka::producer::{BaseRecord, Producer};

use crate::support::kafka::ANSWER;
use crate::support::load::{Load, Plan};
use crate::support::positions::Positions;
use crate::support::relay::Relay;
use crate::support::server::OwnServer;
use crate::support::{Bed, DEADLINE, Db, Event, eventually, found, heavy, over_each};

/// For the rest of a large load on a machine that others use too.
const LONG: Duration = Duration::from_secs(180);

/// The bed's outbox events to the topics that they name, with the positions in a topic of the bed's own. `<more>` are
/// further options of the sink, `<spec>` of the pipeline.
const EXACTLY_ONCE: &str = "
apiVersion: tailpost/v1
kind: Pipeline
metadata: {name: <name>}
spec:
  source: {type: <type>, config: {<source>, outbox: {<outbox>}}}
  processors:
    - {type: outbox, topic: '<name>.${event_type}', default_topic: '<topic>', raw_payload: true}
  sinks:
    - {type: kafka, config: {id: k1, brokers: '<brokers>', exactly_once: true<more>}}
  checkpoint: {type: kafka, config: {topic: '<name>.positions', replication_factor: 1}}
<spec>";

fn pipeline(more: &str, spec: &str) -> String {
    EXACTLY_ONCE.replace("<more>", more).replace("<spec>", spec)
}

fn event(payload: impl Into<String>) -> Event {
    Event::of(payload).key("1").event_type("events")
}

/// Writes an event of a transaction of its own.
fn emit(bed: &Bed, payload: &str) {
    bed.app().emit(&event(payload));
}

/// The payloads that a reader of committed records sees.
fn committed(bed: &Bed) -> Vec<String> {
    let mut reader = bed.committed_reader(&["events"]);
    let records = reader.all().iter();
    records.map(|record| record.value_text().unwrap().to_owned()).collect()
}

/// Records in the topic with those that were aborted, and the ends of transactions.
fn written(bed: &Bed) -> i64 {
    bed.kafka.ends(&bed.events()).values().sum()
}

over_each!(sigkill_in_the_middle_of_transactions_loses_and_doubles_nothing);
fn sigkill_in_the_middle_of_transactions_loses_and_doubles_nothing(db: Db) {
    let _alone = heavy();
    let bed = Bed::new(db);
    bed.kafka.create_topic(&bed.events(), 4, &[]);
    let mut relay = bed.relay(&pipeline("", "").replace("<name>.${event_type}", "<topic>"));
    let plan = Plan {
        connections: 4,
        keys: 100,
        messages: 30_000,
        batch: 20,
    };
    let lives = 8;
    relay.start();
    relay.wait_ready();
    let mut load = Load::start_held(&bed, plan);
    for life in 1..=lives {
        load.allow(plan.messages / lives);
        if life == lives / 2 {
            load.add_transaction(30_000);
        }
        let enough = rand::rng().random_range(0..plan.messages / lives);
        eventually(DEADLINE, &format!("{enough} published in life {life}"), || {
            relay.published() >= enough
        });
        relay.sigkill();
        relay.start();
        relay.wait_ready();
    }
    let load = load.finish();
    relay.metrics().expect("/metrics answers").assert_accounted();
    relay.sigterm();
    assert_eq!(relay.wait_exit(DEADLINE), 0);
    relay.start_with(&["--once"]);
    assert_eq!(relay.wait_exit(LONG), 0);
    load.account(bed.committed_reader(&["events"]).all()).assert_exact();
}

#[test]
fn of_a_transaction_that_a_kill_cut_short_nothing_is_ever_visible() {
    let _alone = heavy();
    let bed = Bed::new(Db::Postgres);
    bed.kafka.create_topic(&bed.events(), 1, &[]);
    // Transactions as large as they may be: they end when the reader has to wait for the database.
    let text = pipeline(
        "",
        "  delivery: {transaction_interval: 30s, max_in_flight_events: 100000}",
    )
    .replace("<name>.${event_type}", "<topic>");
    let mut relay = bed.relay(&text);
    relay.start();
    relay.wait_ready();
    let nothing = Plan {
        connections: 1,
        keys: 1,
        messages: 0,
        batch: 1,
    };
    let mut load = Load::start_held(&bed, nothing);
    load.add_transaction(90_000);
    let load = load.finish();
    let open = || bed.kafka.ends(&bed.events()) > bed.kafka.committed_ends(&bed.events());
    // It may have been between two transactions.
    found(DEADLINE, "one killed in the middle of a transaction", || {
        eventually(DEADLINE, "an open transaction", open);
        relay.sigkill();
        let is_open = open();
        let visible = bed.committed_reader(&["events"]).all().len();
        let written = bed.reader(&["events"]).all().len();
        assert_eq!(is_open, visible < written, "{visible} of {written}");
        relay.start();
        is_open.then_some(())
    });
    eventually(DEADLINE, "all the rest", || written(&bed) >= 90_000 && !open());
    relay.sigterm();
    assert_eq!(relay.wait_exit(DEADLINE), 0);
    relay.start_with(&["--once"]);
    assert_eq!(relay.wait_exit(LONG), 0);
    load.account(bed.committed_reader(&["events"]).all()).assert_exact();
    let doubled = load.account(bed.reader(&["events"]).all()).doubled;
    assert!(!doubled.is_empty(), "another reader sees what was aborted, too");
}

over_each!(a_transaction_that_is_cut_short_by_a_stop_is_committed_and_the_next_start_goes_on_behind_it);
fn a_transaction_that_is_cut_short_by_a_stop_is_committed_and_the_next_start_goes_on_behind_it(db: Db) {
    let bed = Bed::new(db);
    let mut relay = bed.relay(&pipeline("", ""));
    for life in 0..3 {
        relay.start();
        relay.wait_ready();
        emit(&bed, &life.to_string());
        relay.wait_published(1);
        relay.sigterm();
        assert_eq!(relay.wait_exit(DEADLINE), 0);
        assert!(
            relay.checkpoint().is_none(),
            "there is no second checkpoint beside the one in Kafka"
        );
    }
    assert_eq!(committed(&bed), ["0", "1", "2"]);
}

over_each!(while_only_a_neighbour_is_busy_positions_are_committed_alone);
fn while_only_a_neighbour_is_busy_positions_are_committed_alone(db: Db) {
    let bed = Bed::new(db);
    let mut relay = bed.relay(&pipeline("", ""));
    relay.start();
    relay.wait_ready();
    emit(&bed, "1");
    relay.wait_published(1);
    let positions = Positions::of(&bed);
    let saved = || positions.saved(&bed.name).expect("a checkpoint can be read");
    let before = saved().expect("a position was committed with the event");
    bed.app().write_elsewhere(3);
    eventually(DEADLINE, "a later position", || {
        saved().is_some_and(|saved| saved.log_place() > before.log_place())
    });
    if let Bed::Postgres(bed) = &bed {
        bed.wait_confirmed_to_the_end();
    }
    assert_eq!(committed(&bed), ["1"]);
    relay.sigkill();
    relay.start();
    relay.wait_ready();
    emit(&bed, "2");
    relay.wait_published(1);
    assert_eq!(committed(&bed), ["1", "2"]);
}

/// Takes a transactional id again and again, as an instance does that is alive elsewhere.
struct Rival {
    is_over: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Rival {
    fn of(bed: &Bed) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let (over, brokers) = (Arc::clone(&is_over), bed.kafka.brokers.clone());
        let id = format!("tailpost-{}", bed.name);
        let thread = thread::spawn(move || {
            let kafka = crate::support::kafka::Kafka::new(&brokers);
            while !over.load(Ordering::Relaxed) {
                kafka
                    .transactional_producer(&id)
                    .init_transactions(ANSWER)
                    .expect("shut the other out");
            }
        });
        Self {
            is_over,
            thread: Some(thread),
        }
    }

    fn end(mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.take().expect("it runs").join().expect("the rival");
    }
}

#[test]
fn one_that_is_shut_out_once_takes_its_right_back_and_doubles_nothing() {
    let bed = Bed::new(Db::Postgres);
    let mut relay = bed.relay(&pipeline("", ""));
    relay.start();
    relay.wait_ready();
    emit(&bed, "1");
    relay.wait_published(1);
    let events = bed.events();
    let other = bed.kafka.transactional_producer(&format!("tailpost-{}", bed.name));
    other.init_transactions(ANSWER).unwrap();
    emit(&bed, "2");
    relay.wait_published(2);
    let line = relay.wait_log("sink is started again");
    assert!(line.contains("was ended from outside"), "{line}");
    assert_eq!(relay.count_log("standing by"), 0, "{}", relay.log());
    assert_eq!(committed(&bed), ["1", "2"]);
    // The other one can write nothing any more.
    other.begin_transaction().unwrap();
    let record = BaseRecord::<str, str>::to(&events).payload("3");
    other.send(record).map_err(|(error, _)| error).unwrap();
    other.commit_transaction(ANSWER).unwrap_err();
    assert_eq!(committed(&bed), ["1", "2"]);
}

/// Writes events until it is so, that the connector always has something to commit: whether the rival is faster is a matter
/// of chance each time. Gives their number.
fn emit_until(bed: &Bed, what: &str, mut is_so: impl FnMut() -> bool) -> u64 {
    let mut app = bed.app();
    let mut count = 0;
    eventually(LONG, what, || {
        app.emit(&event(count.to_string()));
        count += 1;
        is_so()
    });
    count
}

/// Whether the payloads begin with 0 and go on by one.
fn assert_a_prefix(payloads: &[String]) {
    let expected: Vec<String> = (0..payloads.len()).map(|number| number.to_string()).collect();
    assert_eq!(payloads, expected);
}

#[test]
fn one_that_is_shut_out_again_at_once_stands_by_until_the_other_is_gone() {
    let bed = Bed::new(Db::Postgres);
    let mut relay = bed.relay(&pipeline("", ""));
    relay.start();
    relay.wait_ready();
    let rival = Rival::of(&bed);
    let count = emit_until(&bed, "one that stands by", || relay.count_log("standing by") > 0);
    relay.wait_not_ready("standing by: the Kafka transaction of");
    rival.end();
    // It comes back by itself, at a slow pace.
    relay.wait_published(count);
    let payloads = committed(&bed);
    assert_eq!(payloads.len() as u64, count);
    assert_a_prefix(&payloads);
}

#[test]
fn one_that_is_shut_out_again_at_once_stops_where_that_is_asked_for() {
    let bed = Bed::new(Db::Postgres);
    let mut relay = bed.relay(&pipeline(", on_fenced: stop", ""));
    relay.start();
    relay.wait_ready();
    let rival = Rival::of(&bed);
    emit_until(&bed, "one that has stopped", || !relay.runs());
    // A record's own delivery can be what is refused first.
    relay.wait_halted(&["another instance took over"]);
    rival.end();
    assert_a_prefix(&committed(&bed));
}

/// Load over a broker of the test's own that fails again and again.
fn over_a_failing_broker(db: Db, fail: impl Fn(&OwnServer)) {
    let _alone = heavy();
    let broker = OwnServer::kafka("");
    let bed = Bed::with(db, None, Some(&broker));
    bed.kafka.create_topic(&bed.events(), 4, &[]);
    let mut relay = bed.relay(&pipeline("", "").replace("<name>.${event_type}", "<topic>"));
    relay.start();
    relay.wait_ready();
    let plan = Plan {
        connections: 4,
        keys: 100,
        messages: 20_000,
        batch: 20,
    };
    let load = Load::start_held(&bed, plan);
    let times = 4;
    for time in 1..=times {
        load.allow(plan.messages / times);
        // What is committed in the database moves on meanwhile, so that a commit is under way at any moment.
        let enough = plan.messages / times * (time - 1) + 100;
        eventually(DEADLINE, &format!("{enough} published"), || relay.published() >= enough);
        fail(&broker);
    }
    let load = load.finish();
    relay.wait_published(load.count());
    relay.wait_ready();
    relay.sigterm();
    assert_eq!(relay.wait_exit(DEADLINE), 0);
    load.account(bed.committed_reader(&["events"]).all()).assert_exact();
}

over_each!(a_commit_that_a_broker_was_killed_in_is_settled_when_it_is_back: postgres, mysql);
fn a_commit_that_a_broker_was_killed_in_is_settled_when_it_is_back(db: Db) {
    over_a_failing_broker(db, |broker| {
        broker.kill();
        broker.up();
    });
}

#[test]
fn a_transaction_that_a_frozen_broker_lets_grow_too_old_is_sent_again_and_seen_once() {
    let _alone = heavy();
    let broker = OwnServer::kafka("");
    let bed = Bed::with(Db::Postgres, None, Some(&broker));
    let timeout = ", client_conf: {transaction.timeout.ms: 4000}";
    let mut relay = bed.relay(&pipeline(timeout, ""));
    relay.start();
    relay.wait_ready();
    emit(&bed, "1");
    relay.wait_published(1);
    let frozen = broker.freeze();
    emit(&bed, "2");
    relay.wait_not_ready("commit the Kafka transaction: it took longer than transaction.timeout.ms");
    frozen.thaw();
    relay.wait_published(2);
    assert_eq!(committed(&bed), ["1", "2"]);
}

over_each!(a_record_over_the_topics_limit_among_others_is_found_and_skipped: postgres, mysql);
fn a_record_over_the_topics_limit_among_others_is_found_and_skipped(db: Db) {
    const COUNT: usize = 200;
    let bed = Bed::new(db);
    bed.kafka
        .create_topic(&bed.events(), 1, &[("max.message.bytes", "60000")]);
    // What it will be in bytes is not known before: the broker finds it.
    let compressing = ", client_conf: {compression.type: lz4, linger.ms: 50}";
    let mut relay = bed.relay(&pipeline(compressing, "  errors: {rejected: skip}"));
    relay.start();
    relay.wait_ready();
    let noise: String = (0..100_000)
        .map(|_| char::from(rand::random_range(b'a'..=b'z')))
        .collect();
    let mut app = bed.app();
    app.begin();
    for number in 0..COUNT {
        app.emit(&event(number.to_string()));
        if number == COUNT / 2 {
            app.emit(&event(format!("\"{noise}\"")));
        }
    }
    app.commit();
    relay.wait_settled(COUNT as u64 + 1);
    assert_eq!(relay.skipped("rejected"), 1);
    let expected: Vec<String> = (0..COUNT).map(|number| number.to_string()).collect();
    assert_eq!(committed(&bed), expected);
}

#[test]
fn a_topic_with_a_smaller_limit_in_the_middle_of_a_transaction_loses_and_doubles_nothing() {
    let bed = Bed::new(Db::Postgres);
    bed.kafka.create_topic(&bed.events(), 1, &[]);
    let topics = ["events", "smaller", "smallest"];
    for (topic, limit) in topics.iter().zip(["1000000", "100000", "10000"]).skip(1) {
        bed.kafka
            .create_topic(&bed.topic(topic), 1, &[("max.message.bytes", limit)]);
    }
    let mut relay = bed.relay(&pipeline(", client_conf: {linger.ms: 20}", ""));
    relay.start();
    relay.wait_ready();
    let mut app = bed.app();
    app.begin();
    for number in 0..300 {
        let topic = topics[usize::min(number / 50, 2) - usize::from(number % 7 == 0 && number >= 50)];
        app.emit(&Event::of(number.to_string()).key("1").event_type(topic));
    }
    app.commit();
    relay.wait_published(300);
    let mut reader = bed.committed_reader(&topics);
    let mut seen: Vec<usize> = reader
        .all()
        .iter()
        .map(|record| record.value_text().unwrap().parse().unwrap())
        .collect();
    seen.sort_unstable();
    assert_eq!(seen, (0..300).collect::<Vec<_>>());
    // A life for each smaller limit, which the next ones keep to: no more.
    let restarts = relay.metric("tailpost_restarts_total", &[]);
    assert!(restarts <= 2.0, "{restarts} restarts:\n{}", relay.log());
}

#[test]
fn what_was_taken_before_a_topic_that_is_missing_is_committed_while_that_is_waited_for() {
    let broker = OwnServer::kafka("auto.create.topics.enable=false");
    let bed = Bed::with(Db::Postgres, None, Some(&broker));
    bed.kafka.create_topic(&bed.events(), 1, &[]);
    let mut relay = bed.relay(&pipeline("", ""));
    relay.start();
    relay.wait_ready();
    let mut app = bed.app();
    app.begin();
    app.emit(&event("1"));
    app.emit(&event("2").event_type("missing"));
    app.emit(&event("3"));
    app.commit();
    bed.committed_reader(&["events"])
        .until("the first", |records| records.len() == 1);
    relay.wait_not_ready("does not exist");
    bed.kafka.create_topic(&bed.topic("missing"), 1, &[]);
    relay.wait_published(3);
    assert_eq!(committed(&bed), ["1", "3"]);
}

#[test]
fn a_checkpoint_topic_that_is_not_compacted_is_refused() {
    let bed = Bed::new(Db::Postgres);
    bed.kafka
        .create_topic(&bed.topic("positions"), 1, &[("cleanup.policy", "delete")]);
    let mut relay = bed.relay(&pipeline("", ""));
    relay.start();
    relay.wait_halted(&["has cleanup.policy=delete, expected compact", "set it on the topic"]);
}

#[test]
fn a_broker_that_is_away_at_the_start_is_waited_for_and_named() {
    let broker = OwnServer::kafka("");
    let bed = Bed::with(Db::Postgres, None, Some(&broker));
    broker.kill();
    let mut relay = bed.relay(&pipeline("", ""));
    relay.start();
    relay.wait_not_ready(&format!("no Kafka broker answers at {}", bed.kafka.brokers));
    broker.up();
    relay.wait_ready();
    emit(&bed, "1");
    relay.wait_published(1);
    assert_eq!(committed(&bed), ["1"]);
}

#[test]
fn with_the_checkpoint_in_kafka_another_machine_goes_on_at_least_once() {
    let bed = Bed::new(Db::Mysql);
    let text = pipeline("", "").replace(", exactly_once: true", "");
    let mut first: Relay = bed.relay(&text);
    first.start();
    first.wait_ready();
    emit(&bed, "1");
    first.wait_published(1);
    first.sigterm();
    assert_eq!(first.wait_exit(DEADLINE), 0);
    let mut second = bed.relay(&text);
    second.start();
    second.wait_ready();
    emit(&bed, "2");
    second.wait_published(1);
    assert_eq!(committed(&bed), ["1", "2"]);
}
