//! Memory is bounded by what may be in flight, never by what waits in the log.

use std::time::Duration;

use crate::support::relay::Relay;
use crate::support::server::OwnServer;
use crate::support::{Emit, OUTBOX, TestBed, eventually, heavy};

/// Of which some 20 MB are the development build's own code.
const BOUND: u64 = 60 << 20;
/// For what keeps both cores busy on a machine that others use too.
const LONG: Duration = Duration::from_secs(300);

fn assert_small(relay: &Relay) {
    let peak = relay.peak_rss();
    println!("peak of {} MB", peak / 1_000_000);
    assert!(peak < BOUND, "peak of resident memory: {peak} bytes");
}

/// `count` messages in one transaction each thousand, with a payload of so many bytes.
fn fill(bed: &TestBed, count: u32, payload: u32) {
    let content = r#"'{"aggregate_type": "Order", "aggregate_id": "' || n || '", "event_type": "Created", "payload": "' || repeat('x', $2::int) || '"}'"#;
    let statement =
        format!("SELECT count(pg_logical_emit_message(true, 'outbox', {content})) FROM generate_series(1, $1::int) n");
    let mut app = bed.app();
    let each = 1000;
    for _ in 0..count / each {
        app.execute(&statement, &[&(each as i32), &(payload as i32)]).unwrap();
    }
}

#[test]
fn draining_half_a_million_messages_takes_little_memory() {
    let _alone = heavy();
    let server = OwnServer::postgres("");
    let bed = TestBed::on(server.addresses(), &crate::support::variable("TAILPOST_TEST_KAFKA"));
    bed.kafka.create_topic(&bed.events(), 6, &[]);
    let mut relay = bed.relay(OUTBOX);
    relay.start_with(&["--once"]);
    assert_eq!(relay.wait_exit(LONG), 0);
    fill(&bed, 500_000, 190);
    relay.start();
    relay.wait_ready();
    eventually(LONG, "all published", || relay.published() >= 500_000);
    assert_small(&relay);
}

#[test]
fn a_gigabyte_that_waits_for_a_broker_takes_little_memory() {
    let _alone = heavy();
    let (server, broker) = (OwnServer::postgres(""), OwnServer::kafka(""));
    let bed = TestBed::on(server.addresses(), &broker.brokers());
    bed.kafka.create_topic(&bed.events(), 6, &[]);
    let mut relay = bed.relay(OUTBOX);
    relay.start();
    relay.wait_ready();
    bed.app().emit("outbox", "{\"payload\": 1}");
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
fn wait_full(relay: &Relay, bed: &TestBed) {
    // The gauge is a turn of work behind.
    eventually(LONG, "as much in flight as may be", || {
        relay.metric("tailpost_in_flight_bytes", &[]) > 32e6
    });
    let reply = || -> Option<String> {
        let statement = "SELECT max(reply_time)::text FROM pg_stat_replication";
        bed.admin().query_one(statement, &[]).unwrap().get(0)
    };
    for _ in 0..5 {
        let last = reply();
        eventually(LONG, "another status update", || reply() != last);
    }
}
