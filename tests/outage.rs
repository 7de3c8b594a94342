//! Servers that go away, crash or fall silent, and come back: nothing is lost, order is kept, and nobody restarts anything.

use crate::support::broker_proxy::BrokerProxy;
use crate::support::kafka::Record;
use crate::support::load::{Load, Plan};
use crate::support::relay::Relay;
use crate::support::server::{OwnServer, Postgres};
use crate::support::{
    ANY_OUTBOX, Bed, DEADLINE, Db, Emit, Event, OUTBOX, TestBed, eventually, heavy, message, over_each,
};

const PLAN: Plan = Plan {
    connections: 4,
    keys: 200,
    messages: 20_000,
    batch: 20,
};

/// One event, by this life as its `count`th.
fn publish(bed: &Bed, relay: &mut Relay, count: u64) {
    bed.app().emit(&Event::of("{}").key("1"));
    relay.wait_published(count);
}

/// Lets a share of the load be written and waits until some of it is through.
fn under_way(relay: &Relay, load: &Load, more: u64) {
    load.allow(more);
    let enough = relay.published() + more / 4;
    eventually(DEADLINE, "the load is under way", || relay.published() >= enough);
}

/// How the log says that the server shuts down.
fn shutting_down(db: Db) -> &'static str {
    match db {
        Db::Postgres => "the server is shutting down",
        Db::Mysql | Db::Mariadb => "is started again",
    }
}

over_each!(a_server_that_shuts_down_does_not_wait_for_an_idle_reader);
fn a_server_that_shuts_down_does_not_wait_for_an_idle_reader(db: Db) {
    let server = OwnServer::of(db, "");
    let bed = Bed::on(db, &server);
    let mut relay = bed.relay(ANY_OUTBOX);
    relay.start();
    relay.wait_ready();
    publish(&bed, &mut relay, 1);
    bed.wait_done_to_the_end(&relay);
    server.down();
    relay.wait_log(shutting_down(db));
    relay.wait_not_ready("waiting: ");
    server.up();
    relay.wait_ready();
    publish(&bed, &mut relay, 2);
    bed.reader(&["events"]).exactly(2);
}

over_each!(a_server_that_shuts_down_does_not_wait_for_a_stuck_sink);
fn a_server_that_shuts_down_does_not_wait_for_a_stuck_sink(db: Db) {
    let _alone = heavy();
    let (server, broker) = (OwnServer::of(db, ""), OwnServer::kafka(""));
    let bed = Bed::with(db, Some(&server), Some(&broker));
    bed.kafka.create_topic(&bed.events(), 4, &[]);
    let small = format!("{ANY_OUTBOX}  delivery: {{max_in_flight_events: 500, stall_timeout: 10m}}\n");
    let mut relay = bed.relay(&small);
    relay.start();
    relay.wait_ready();
    let load = Load::start_held(&bed, PLAN);
    under_way(&relay, &load, 5000);
    let frozen = broker.freeze();
    load.allow(5000);
    eventually(DEADLINE, "as much in flight as may be", || {
        relay.metric("tailpost_in_flight_events", &[]) >= 500.0 && load.committed() >= 10_000
    });
    load.allow(PLAN.messages);
    server.down();
    if db == Db::Postgres {
        relay.wait_log(shutting_down(db));
    }
    server.up();
    frozen.thaw();
    let committed = load.finish();
    relay.wait_ready();
    bed.wait_done_to_the_end(&relay);
    committed.account(bed.reader(&["events"]).all()).assert_exact();
}

over_each!(a_server_that_crashes_or_is_restarted_under_load_loses_and_doubles_nothing);
fn a_server_that_crashes_or_is_restarted_under_load_loses_and_doubles_nothing(db: Db) {
    let _alone = heavy();
    let server = OwnServer::of(db, "");
    let bed = Bed::on(db, &server);
    bed.kafka.create_topic(&bed.events(), 4, &[]);
    let mut relay = bed.relay(ANY_OUTBOX);
    relay.start();
    relay.wait_ready();
    let load = Load::start_held(&bed, PLAN);
    for end in [OwnServer::kill, OwnServer::down, OwnServer::kill] {
        under_way(&relay, &load, PLAN.messages / 4);
        end(&server);
        server.up();
        relay.wait_ready();
    }
    load.allow(PLAN.messages);
    let committed = load.finish();
    bed.wait_done_to_the_end(&relay);
    relay.metrics().expect("/metrics answers").assert_accounted();
    committed.account(bed.reader(&["events"]).all()).assert_exact();
}

over_each!(a_broker_that_is_frozen_beyond_timeouts_and_one_that_crashes_lose_nothing);
fn a_broker_that_is_frozen_beyond_timeouts_and_one_that_crashes_lose_nothing(db: Db) {
    let _alone = heavy();
    let broker = OwnServer::kafka("");
    let bed = Bed::with(db, None, Some(&broker));
    bed.kafka.create_topic(&bed.events(), 4, &[]);
    // Requests run into their timeout, a minute by default, again and again.
    let impatient = "brokers: '<brokers>', client_conf: {socket.timeout.ms: 2000}";
    let mut relay = bed.relay(&ANY_OUTBOX.replace("brokers: '<brokers>'", impatient));
    relay.start();
    relay.wait_ready();
    let load = Load::start_held(&bed, PLAN);
    let away = "no Kafka broker answers";

    under_way(&relay, &load, PLAN.messages / 4);
    let frozen = broker.freeze();
    load.allow(PLAN.messages / 4);
    relay.wait_not_ready(away);
    relay.wait_log(away);
    frozen.thaw();
    relay.wait_ready();

    under_way(&relay, &load, PLAN.messages / 4);
    broker.kill();
    load.allow(PLAN.messages);
    relay.wait_not_ready(away);
    broker.up();
    relay.wait_ready();

    let committed = load.finish();
    bed.wait_done_to_the_end(&relay);
    let account = committed.account(bed.reader(&["events"]).all());
    // Where an answer was lost and the next one was not, nobody knows whether the record was written: it is sent again.
    let repeated = relay.count_log("nobody told where");
    match repeated {
        0 => account.assert_exact(),
        _ => account.assert_sound(),
    }
    // Said once each time, whatever the number of requests that failed; so impatient, it may find a busy broker away too.
    assert!(relay.count_log(away) >= 2, "{}", relay.log());
    assert_eq!(
        relay.count_log(away),
        relay.count_log("Kafka answers again"),
        "{}",
        relay.log()
    );
    let restarts = relay.metric("tailpost_restarts_total", &[]);
    assert!(restarts <= repeated as f64, "{}", relay.log());
}

#[test]
fn a_broker_that_is_away_at_the_start_and_a_topic_that_nobody_makes_are_waited_for() {
    let broker = OwnServer::kafka("auto.create.topics.enable=false");
    let bed = TestBed::on(Postgres::shared(), &broker.brokers());
    broker.down();
    let mut relay = bed.relay(OUTBOX);
    relay.start();
    let away = format!("no Kafka broker answers at {}", bed.kafka.brokers);
    relay.wait_not_ready(&away);
    // The slot is made meanwhile.
    relay.wait_log("streaming");
    bed.app().emit("outbox", &message("Order", "1", "Created", "1"));
    eventually(DEADLINE, "the event is there", || {
        relay.metric("tailpost_in_flight_events", &[]) == 1.0
    });
    broker.up();
    let missing = format!("topic `{}` does not exist", bed.events());
    relay.wait_not_ready(&missing);
    assert_eq!(relay.count_log(&away), 1, "{}", relay.log());
    assert!(relay.wait_log(&missing).contains("create it, or set create_topics"));
    assert_eq!(relay.count_log(&missing), 1, "{}", relay.log());
    bed.kafka.create_topic(&bed.events(), 1, &[]);
    relay.wait_published(1);
    relay.wait_ready();

    let with = "brokers: '<brokers>', create_topics: {partitions: 3, replication_factor: 1}";
    let more = OUTBOX.replace("brokers: '<brokers>'", with);
    let more = more.replace("<topic>", &bed.topic("more"));
    relay.sigterm();
    assert_eq!(relay.wait_exit(DEADLINE), 0);
    relay.rewrite(&bed.fill(&more));
    relay.start();
    relay.wait_ready();
    bed.app().emit("outbox", &message("Order", "1", "Created", "{}"));
    relay.wait_published(1);
    assert_eq!(bed.kafka.ends(&bed.topic("more")).len(), 3);
    bed.reader(&["more"]).exactly(1);
    bed.reader(&["events"]).exactly(1);
}

#[test]
fn a_cluster_that_names_no_broker_for_a_moment_is_found_again() {
    nameless_for_a_moment("", "names no broker yet");
}

#[test]
fn a_cluster_that_names_no_broker_for_a_moment_is_found_again_for_transactions() {
    nameless_for_a_moment(", exactly_once: true", "Kafka");
}

/// What clients learn then makes them drop all brokers that they know; `trouble` is what they say when it has come to that.
fn nameless_for_a_moment(more: &str, trouble: &str) {
    let proxy = BrokerProxy::new();
    let broker = OwnServer::kafka(&format!("advertised.listeners=PLAINTEXT://{}", proxy.address()));
    proxy.forward_to(&broker.brokers());
    let bed = Bed::with(Db::Postgres, None, Some(&broker));
    for topic in ["events", "more"] {
        bed.kafka.create_topic(&bed.topic(topic), 1, &[]);
    }
    // The second topic is asked about by the client for topics, which knows its brokers from the first.
    let by_key = ANY_OUTBOX
        .replace("topic: '<topic>'", "topic: '<name>.${event_type}'")
        .replace("brokers: '<brokers>'", &format!("brokers: '{}'{more}", proxy.address()));
    let mut relay = bed.relay(&by_key);
    relay.start();
    relay.wait_ready();
    let event = |topic: &str| Event::of("{}").key("1").event_type(topic);
    bed.app().emit(&event("events"));
    relay.wait_published(1);

    proxy.name_none();
    bed.app().emit(&event("events"));
    bed.app().emit(&event("more"));
    eventually(DEADLINE, "it is told of no broker", || proxy.changed() > 0);
    relay.wait_not_ready(trouble);
    proxy.name_all();
    relay.wait_published(3);
    relay.wait_ready();
    bed.committed_reader(&["events"]).exactly(2);
    bed.committed_reader(&["more"]).exactly(1);
    assert_eq!(relay.metric("tailpost_restarts_total", &[]), 0.0, "{}", relay.log());
}

/// A partition that is just being made refuses one batch and takes the next one.
#[test]
fn topics_that_are_made_on_the_way_get_each_event_once() {
    let bed = Bed::new(Db::Postgres);
    let made = "brokers: '<brokers>', create_topics: {partitions: 6, replication_factor: 1}";
    let pipeline = ANY_OUTBOX
        .replace("topic: '<topic>'", "topic: '<name>.${event_type}'")
        .replace("brokers: '<brokers>'", made);
    let mut relay = bed.relay(&pipeline);
    relay.start();
    relay.wait_ready();
    let topics: Vec<String> = (0..20).map(|number| format!("made{number}")).collect();
    let events: Vec<Event> = topics
        .iter()
        .flat_map(|topic| (0..100).map(move |number| Event::of("{}").key(number.to_string()).event_type(topic)))
        .collect();
    bed.app().emit_all(&events).expect("written");
    relay.wait_published(events.len() as u64);
    for topic in &topics {
        assert_eq!(bed.kafka.ends(&bed.topic(topic)).len(), 6);
        bed.reader(&[topic]).exactly(100);
    }
    assert_eq!(relay.metric("tailpost_restarts_total", &[]), 0.0, "{}", relay.log());
}

#[test]
fn a_batch_that_is_refused_before_one_that_is_taken_is_sent_again() {
    let (ids, restarts) = refused_before_one_that_is_taken("");
    // The second one was there already.
    assert_eq!(ids, [2, 1, 2]);
    assert_eq!(restarts, 1.0);
}

#[test]
fn a_batch_that_is_refused_before_one_that_is_taken_is_sent_again_in_transactions() {
    let (ids, _) = refused_before_one_that_is_taken(", exactly_once: true");
    assert_eq!(ids, [1, 2]);
}

/// The client takes the refused batch for written, since the one behind it was.
fn refused_before_one_that_is_taken(more: &str) -> (Vec<u64>, f64) {
    let proxy = BrokerProxy::new();
    let broker = OwnServer::kafka(&format!("advertised.listeners=PLAINTEXT://{}", proxy.address()));
    proxy.forward_to(&broker.brokers());
    let bed = Bed::with(Db::Postgres, None, Some(&broker));
    bed.kafka.create_topic(&bed.events(), 1, &[]);
    let brokers = format!(
        "brokers: '{}', client_conf: {{batch.num.messages: 1}}{more}",
        proxy.address()
    );
    let mut relay = bed.relay(&ANY_OUTBOX.replace("brokers: '<brokers>'", &brokers));
    relay.start();
    relay.wait_ready();
    proxy.refuse_first(&bed.events());
    let event = |number: u64| Event::of(number.to_string()).key("1");
    bed.app().emit_all(&[event(1), event(2)]).expect("written");
    bed.wait_done_to_the_end(&relay);
    assert_eq!(proxy.changed(), 1);
    relay.wait_log("nobody told where");
    let mut reader = bed.committed_reader(&["events"]);
    let number = |record: &Record| String::from_utf8_lossy(record.value.as_deref().expect("a payload")).parse();
    let ids = reader
        .all()
        .iter()
        .map(|record| number(record).expect("a number"))
        .collect();
    (ids, relay.metric("tailpost_restarts_total", &[]))
}

over_each!(a_server_that_is_away_at_the_start_is_waited_for);
fn a_server_that_is_away_at_the_start_is_waited_for(db: Db) {
    let server = OwnServer::of(db, "");
    let bed = Bed::on(db, &server);
    server.down();
    let mut relay = bed.relay(ANY_OUTBOX);
    relay.start();
    relay.wait_not_ready(match db {
        Db::Postgres => "waiting: connect to PostgreSQL at 127.0.0.1",
        Db::Mysql | Db::Mariadb => "waiting: connect to 127.0.0.1",
    });
    eventually(DEADLINE, "several tries", || {
        relay.metric("tailpost_restarts_total", &[]) >= 4.0
    });
    assert_eq!(relay.count_log("is started again"), 1, "{}", relay.log());
    server.up();
    relay.wait_ready();
    publish(&bed, &mut relay, 1);
}

over_each!(a_silent_server_is_noticed_and_read_again_when_it_wakes);
fn a_silent_server_is_noticed_and_read_again_when_it_wakes(db: Db) {
    let server = OwnServer::of(db, "");
    let bed = Bed::on(db, &server);
    let mut relay = bed.relay(ANY_OUTBOX);
    relay.start();
    relay.wait_ready();
    publish(&bed, &mut relay, 1);
    // Its connections stay open, as those of a machine that is gone do.
    let frozen = server.freeze();
    relay.wait_log(match db {
        Db::Postgres => "the server was silent for",
        // The lock's connection is asked more often than the stream can be silent.
        Db::Mysql | Db::Mariadb => "the server did not answer for",
    });
    relay.wait_not_ready("waiting: ");
    frozen.thaw();
    relay.wait_ready();
    publish(&bed, &mut relay, 2);
    bed.reader(&["events"]).exactly(2);
}
