//! A slot that the server gives up, and one that it is about to give up.

use crate::support::server::{Frozen, NO_ELECTION, OwnServer};
use crate::support::{DEADLINE, Emit, OUTBOX, TestBed, eventually, message, variable};

/// A server that keeps 4 MB of log for a slot, in segments of 1 MB.
pub(crate) fn short_of_space() -> OwnServer {
    OwnServer::postgres_with(&[
        ("INITDB_OPTS", "--wal-segsize=1"),
        ("OPTS", "-c max_slot_wal_keep_size=4MB"),
    ])
}

/// This many MB of log that are of no pipeline.
fn write_log(bed: &TestBed, megabytes: i32) {
    let mut admin = bed.admin();
    for _ in 0..megabytes {
        let message = "SELECT pg_logical_emit_message(true, 'noise', repeat('x', 1000000))";
        admin.execute(message, &[]).unwrap();
    }
}

/// Lets the server throw away what it may. It must be able to: a checkpointer that waits for a reader waits for ever.
fn checkpoint(bed: &TestBed) {
    let mut admin = bed.admin();
    admin.batch_execute("SET statement_timeout = '60s'").unwrap();
    admin.batch_execute("CHECKPOINT").unwrap();
}

/// Has the server give up the slot, which nobody reads.
pub(crate) fn lose_slot(bed: &TestBed) {
    write_log(bed, 8);
    checkpoint(bed);
    eventually(DEADLINE, "the slot is lost", || {
        bed.wal_status().as_deref() == Some("lost")
    });
}

#[test]
fn an_invalidated_slot_ends_the_pipeline_and_an_accepted_gap_goes_on() {
    let server = short_of_space();
    let bed = TestBed::on(server.addresses(), &variable("TAILPOST_TEST_KAFKA"));
    let mut relay = bed.relay(OUTBOX);
    relay.start();
    relay.wait_ready();
    bed.app().emit("outbox", &message("Order", "1", "Created", "1"));
    relay.wait_published(1);
    relay.sigterm();
    assert_eq!(relay.wait_exit(DEADLINE), 0);

    bed.app().emit("outbox", &message("Order", "1", "Changed", "2"));
    lose_slot(&bed);
    for _ in 0..2 {
        let line = relay.fails();
        for text in [
            &bed.slot,
            "invalidated",
            "may be missing",
            "--accept-gap",
            "max_slot_wal_keep_size",
        ] {
            assert!(line.contains(text), "expected `{text}` in: {line}");
        }
    }

    relay.start_with(&["--accept-gap"]);
    relay.wait_ready();
    assert!(relay.wait_log("a gap was accepted").contains("invalidated"));
    assert_eq!(relay.metric("tailpost_accepted_gaps_total", &[]), 1.0);
    bed.app().emit("outbox", &message("Order", "1", "Paid", "3"));
    relay.wait_published(1);
    relay.sigterm();
    assert_eq!(relay.wait_exit(DEADLINE), 0);
    // The word was for one start.
    relay.start();
    relay.wait_ready();
    assert_eq!(relay.metric("tailpost_accepted_gaps_total", &[]), 0.0);
    let mut reader = bed.reader(&["events"]);
    let records = reader.exactly(2).iter();
    let values: Vec<_> = records.map(|record| record.value_text()).collect();
    assert_eq!(values, [Some("1"), Some("3")]);
}

#[test]
fn a_stuck_sink_neither_costs_the_slot_nor_hangs_the_checkpointer() {
    let server = short_of_space();
    let broker = OwnServer::kafka(NO_ELECTION);
    let bed = TestBed::on(server.addresses(), &broker.brokers());
    let small = format!("{OUTBOX}  delivery: {{max_in_flight_events: 10, stall_timeout: 10m}}\n");
    let mut relay = bed.relay(&small);
    relay.start();
    relay.wait_ready();
    bed.app().emit("outbox", &message("Order", "1", "Created", "1"));
    relay.wait_published(1);

    // Closed in time, the slot is still there when there is room again.
    let frozen = get_stuck(&bed, &broker);
    eventually(DEADLINE, "the slot is about to be lost", || {
        write_log(&bed, 1);
        bed.wal_status().as_deref() == Some("unreserved")
    });
    let said = relay.wait_log("connection closed until there is room");
    assert!(
        said.contains("about to be lost") && said.contains("unreserved"),
        "{said}"
    );
    relay.wait_not_ready("about to be lost");
    eventually(DEADLINE, "nobody reads the slot", || bed.active_pid().is_none());
    frozen.thaw();
    relay.wait_ready();
    relay.wait_published(101);
    bed.reader(&["events"]).exactly(101);
    bed.wait_confirmed_to_the_end();

    // Nothing helps: the server goes on without the slot.
    let frozen = get_stuck(&bed, &broker);
    // More than all socket buffers take, so that the server's process would wait for us.
    write_log(&bed, 12);
    eventually(DEADLINE, "the connection closed again", || bed.active_pid().is_none());
    checkpoint(&bed);
    eventually(DEADLINE, "the slot is lost", || {
        bed.wal_status().as_deref() == Some("lost")
    });
    relay.expect_error("invalidated");
    frozen.thaw();
    assert_eq!(relay.wait_exit(DEADLINE), 1);
    assert!(relay.log().contains("--accept-gap"), "{}", relay.log());
}

/// More messages than may be in flight, to a broker that takes none.
fn get_stuck<'a>(bed: &TestBed, broker: &'a OwnServer) -> Frozen<'a> {
    let frozen = broker.freeze();
    let messages = vec![message("Order", "1", "Created", "1"); 100];
    bed.app().emit_all("outbox", &messages).unwrap();
    frozen
}
