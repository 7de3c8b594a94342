//! Memory is bounded by what may be in flight, never by what waits in the log.

use std::time::Duration;

use crate::support::relay::Relay;
use crate::support::server::OwnServer;
use crate::support::{ANY_OUTBOX, Bed, DEADLINE, Db, Event, eventually, heavy, over_each};

/// Beside the program's code, which a development build has several times that of a release, more with each dependency: 8 MiB
/// in flight, and what the client and the allocator take, which holds records and the requests that are made of them at once:
/// 13 to 22 MB were seen where the test ran by itself, and 28 MB beside others that keep the broker busy. The whole of a release is
/// what `make bench` measures.
const BOUND: u64 = 32 << 20;
/// Ten times what may be in flight, and twice the bound; `make bench` drains more.
const BACKLOG: u32 = 200_000;
/// For what keeps both cores busy on a machine that others use too.
const LONG: Duration = Duration::from_secs(300);

fn assert_small(relay: &Relay) {
    let (peak, code) = (relay.peak_rss(), relay.resident_code());
    println!(
        "peak of {} MB, of which {} MB are code",
        peak / 1_000_000,
        code / 1_000_000
    );
    assert!(
        peak.saturating_sub(code) < BOUND,
        "peak of resident memory: {peak} bytes, of which {code} are code"
    );
}

/// `count` events in one transaction each thousand, with a payload of so many bytes.
fn fill(bed: &Bed, count: u32, payload: u32) {
    let each = 1000;
    let statement = match bed.db() {
        Db::Postgres => format!(
            r#"SELECT count(pg_logical_emit_message(true, 'outbox',
               '{{"aggregate_type": "Order", "aggregate_id": "' || n || '", "event_type": "Created", "payload": "' || repeat('x', {payload}) || '"}}'))
               FROM generate_series(1, {each}) n"#
        ),
        Db::Mysql | Db::Mariadb => format!(
            r#"INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload)
               WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {each})
               SELECT 'Order', n, 'Created', CONCAT('"', REPEAT('x', {payload}), '"') FROM n"#
        ),
    };
    let mut app = bed.app();
    for _ in 0..count / each {
        app.run(&statement);
    }
}

over_each!(draining_a_large_backlog_takes_little_memory);
fn draining_a_large_backlog_takes_little_memory(db: Db) {
    let _alone = heavy();
    let server = OwnServer::of(db, "");
    let bed = Bed::on(db, &server);
    bed.kafka.create_topic(&bed.events(), 6, &[]);
    let mut relay = bed.relay(ANY_OUTBOX);
    relay.start_with(&["--once"]);
    assert_eq!(relay.wait_exit(LONG), 0);
    fill(&bed, BACKLOG, 190);
    relay.start();
    relay.wait_ready();
    eventually(LONG, "all published", || relay.published() >= u64::from(BACKLOG));
    assert_small(&relay);
}

#[test]
fn a_gigabyte_that_waits_for_a_broker_takes_little_memory() {
    let _alone = heavy();
    let (server, broker) = (OwnServer::postgres(""), OwnServer::kafka(""));
    let bed = Bed::with(Db::Postgres, Some(&server), Some(&broker));
    bed.kafka.create_topic(&bed.events(), 6, &[]);
    let mut relay = bed.relay(ANY_OUTBOX);
    relay.start();
    relay.wait_ready();
    bed.app().emit(&Event::of("1"));
    relay.wait_published(1);
    let frozen = broker.freeze();
    fill(&bed, 50_000, 20_000);
    wait_full(&relay, &bed);
    assert_small(&relay);
    // Gone in place of frozen.
    broker.kill();
    frozen.thaw();
    relay.wait_not_ready("no Kafka broker answers");
    wait_full(&relay, &bed);
    assert_small(&relay);
    broker.up();
    eventually(LONG, "some of it published", || relay.published() >= 10_000);
}

/// As many bytes are in flight as may be, and stay so while the server hears from us some times.
fn wait_full(relay: &Relay, bed: &Bed) {
    // The gauge is a turn of work behind.
    eventually(LONG, "as much in flight as may be", || {
        relay.metric("tailpost_in_flight_bytes", &[]) > 8e6
    });
    let Bed::Postgres(bed) = bed else {
        panic!("a server that notes replies")
    };
    let reply = || -> Option<String> {
        let statement = "SELECT max(reply_time)::text FROM pg_stat_replication";
        bed.admin().query_one(statement, &[]).unwrap().get(0)
    };
    for _ in 0..5 {
        let last = reply();
        eventually(LONG, "another status update", || reply() != last);
    }
}

#[test]
fn an_idle_pipeline_keeps_one_kafka_client() {
    let bed = Bed::new(Db::Postgres);
    let mut relay = bed.relay(&ANY_OUTBOX.replace("'<topic>'", "'<name>.${event_type}'"));
    relay.start();
    relay.wait_ready();
    let one_client = |relay: &Relay| eventually(DEADLINE, "one client is left", || relay.threads("rdk:main") == 1);
    one_client(&relay);
    // Each new topic is asked about by another client, which is let go.
    for count in 1..=2 {
        bed.app().emit(&Event::of("1").event_type(format!("t{count}")));
        relay.wait_published(count);
        one_client(&relay);
    }
}
