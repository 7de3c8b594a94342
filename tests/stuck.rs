//! A sink that takes nothing for a while, with events in flight and more to come: the source's connection lives through
//! it, or is given up in order; nothing is lost and nothing comes twice.

use std::collections::BTreeSet;

use mysql::prelude::Queryable;

use crate::support::load::{Load, Plan};
use crate::support::mysql_bed::MysqlBed;
use crate::support::relay::Relay;
use crate::support::server::{NO_ELECTION, OwnServer, Postgres};
use crate::support::{ANY_OUTBOX, Bed, DEADLINE, Db, Event, TestBed, eventually, heavy, over_each};

const PLAN: Plan = Plan {
    connections: 2,
    keys: 100,
    messages: 5000,
    batch: 20,
};

/// With room for this many events.
fn with_room(events: u64, more: &str) -> String {
    format!("{ANY_OUTBOX}  delivery: {{max_in_flight_events: {events}{more}}}\n")
}

/// Some of the load is through, the rest is written and as much as may be is in flight.
fn wait_stuck(relay: &Relay, load: &Load, events: u64) {
    eventually(DEADLINE, "all written", || load.committed() >= PLAN.messages);
    eventually(DEADLINE, "as much in flight as may be", || {
        relay.metric("tailpost_in_flight_events", &[]) >= events as f64
    });
}

#[test]
fn a_broker_frozen_for_longer_than_wal_sender_timeout_costs_no_connection() {
    let _alone = heavy();
    let broker = OwnServer::kafka(NO_ELECTION);
    let bed = TestBed::on(Postgres::shared(), &broker.brokers());
    bed.kafka.create_topic(&bed.events(), 4, &[]);
    let timeout_s = 5;
    let impatient = format!("<dsn>?options=-c%20wal_sender_timeout%3D{timeout_s}s");
    let source = format!("id: src1, dsn: '{impatient}', slot: <slot>, publication: <publication>");
    let mut relay = bed.relay(&with_room(500, "").replace("<source>", &source));
    relay.start();
    relay.wait_ready();
    let walsender = bed.active_pid().expect("the slot is in use");
    let load = Load::start_held(&bed, PLAN);
    load.allow(1000);
    eventually(DEADLINE, "some published", || relay.published() > 0);
    let frozen = broker.freeze();
    load.allow(PLAN.messages);
    wait_stuck(&relay, &load, 500);
    // One status update a second: each that the server notes is one more second for which it was kept waiting.
    let mut admin = bed.admin();
    let mut replies = BTreeSet::new();
    eventually(DEADLINE, "status updates for longer than the timeout", || {
        let row = admin
            .query_opt(
                "SELECT reply_time::text FROM pg_stat_replication WHERE pid = $1",
                &[&walsender],
            )
            .unwrap();
        replies.insert(row.expect("the same connection").get::<_, Option<String>>(0));
        replies.len() > timeout_s + 3
    });
    frozen.thaw();
    let committed = load.finish();
    relay.wait_published(committed.count());
    assert_eq!(bed.active_pid(), Some(walsender));
    assert_eq!(relay.metric("tailpost_restarts_total", &[]), 0.0, "{}", relay.log());
    committed.account(bed.reader(&["events"]).all()).assert_exact();
}

over_each!(a_broker_frozen_for_longer_than_net_write_timeout_costs_no_connection: mysql, mariadb);
fn a_broker_frozen_for_longer_than_net_write_timeout_costs_no_connection(db: Db) {
    let _alone = heavy();
    let flavor = db.flavor().expect("a binlog");
    let (server, broker) = (
        OwnServer::mysql(flavor, "--net-write-timeout=2"),
        OwnServer::kafka(NO_ELECTION),
    );
    let bed = MysqlBed::with(flavor, Some(&server), &broker.brokers());
    let mut relay = bed.relay(&with_room(10, ""));
    relay.start();
    relay.wait_ready();
    let reading = bed.dump_of(&relay).expect("the binlog is read");
    let mut app = bed.door.open().unwrap();
    app.emit(&Event::of("{}"));
    relay.wait_published(1);
    let frozen = broker.freeze();
    // More than all buffers in between take, so that the server must wait.
    let large = Event::of(format!("\"{}\"", "x".repeat(500_000)));
    for _ in 0..20 {
        app.emit_all(&vec![large.clone(); 3]).unwrap();
    }
    eventually(DEADLINE, "as much in flight as may be", || {
        relay.metric("tailpost_in_flight_events", &[]) >= 10.0
    });
    // Nobody else asks this server for the log's end, and the connector each four seconds.
    let listings = || -> u64 {
        let row: Option<(String, u64)> = bed
            .admin()
            .query_first("SHOW GLOBAL STATUS LIKE 'Com_show_binlogs'")
            .unwrap();
        row.expect("a counter").1
    };
    let before = listings();
    eventually(DEADLINE, "questions for longer than the timeout", || {
        listings() > before + 1
    });
    assert_eq!(bed.dump_of(&relay), Some(reading));
    frozen.thaw();
    relay.wait_published(61);
    assert_eq!(bed.dump_of(&relay), Some(reading));
    assert_eq!(relay.metric("tailpost_restarts_total", &[]), 0.0, "{}", relay.log());
    bed.reader(&["events"]).exactly(61);
}

over_each!(a_sink_stuck_for_stall_timeout_frees_the_server_until_there_is_room);
fn a_sink_stuck_for_stall_timeout_frees_the_server_until_there_is_room(db: Db) {
    let broker = OwnServer::kafka(NO_ELECTION);
    let bed = Bed::with(db, None, Some(&broker));
    bed.kafka.create_topic(&bed.events(), 4, &[]);
    let mut relay = bed.relay(&with_room(200, ", stall_timeout: 1s"));
    relay.start();
    relay.wait_ready();
    let load = Load::start_held(&bed, PLAN);
    load.allow(1000);
    eventually(DEADLINE, "some published", || relay.published() > 0);
    let frozen = broker.freeze();
    load.allow(PLAN.messages);
    let said = relay.wait_log("connection closed until there is room");
    assert!(said.contains("nothing could be handed over"), "{said}");
    relay.wait_not_ready("nothing could be handed over");
    eventually(DEADLINE, "nobody reads the log", || bed.reader_of(&relay).is_none());
    wait_stuck(&relay, &load, 200);
    assert_eq!(
        relay.count_log("connection closed until there is room"),
        1,
        "{}",
        relay.log()
    );
    frozen.thaw();
    relay.wait_ready();
    let committed = load.finish();
    relay.wait_published(committed.count());
    committed.account(bed.reader(&["events"]).all()).assert_exact();
}

over_each!(sigterm_with_a_stuck_sink_ends_when_drain_timeout_is_over_and_a_second_one_at_once);
fn sigterm_with_a_stuck_sink_ends_when_drain_timeout_is_over_and_a_second_one_at_once(db: Db) {
    let broker = OwnServer::kafka(NO_ELECTION);
    let bed = Bed::with(db, None, Some(&broker));
    bed.kafka.create_topic(&bed.events(), 4, &[]);
    let mut relay = bed.relay(&with_room(200, ", drain_timeout: 1s"));
    relay.start();
    relay.wait_ready();
    let load = Load::start_held(&bed, PLAN);
    load.allow(1000);
    eventually(DEADLINE, "some published", || relay.published() > 0);
    let frozen = broker.freeze();
    load.allow(PLAN.messages);
    wait_stuck(&relay, &load, 200);
    let committed = load.finish();
    relay.sigterm();
    assert_eq!(relay.wait_exit(DEADLINE), 0, "{}", relay.log());
    assert_eq!(relay.count_log("drain_timeout is over"), 1, "{}", relay.log());
    assert_eq!(bed.reader_of(&relay), None);

    relay.rewrite(&bed.fill(&with_room(200, ", drain_timeout: 10m")));
    relay.start();
    relay.wait_ready();
    // It has not learnt the topic yet, so all that it was given waits.
    eventually(DEADLINE, "events in flight", || {
        relay.metric("tailpost_in_flight_events", &[]) > 0.0
    });
    relay.sigterm();
    relay.wait_not_ready("draining");
    relay.sigterm();
    assert_eq!(relay.wait_exit(DEADLINE), 1);
    assert_eq!(relay.count_log("stopped at once"), 1, "{}", relay.log());

    frozen.thaw();
    relay.start_with(&["--once"]);
    assert_eq!(relay.wait_exit(DEADLINE), 0, "{}", relay.log());
    // What the broker had in its sockets when it was frozen may come twice.
    committed.account(bed.reader(&["events"]).all()).assert_sound();
}
