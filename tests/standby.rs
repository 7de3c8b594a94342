//! One log has one reader at a time: a second instance waits for its turn.

use crate::support::relay::Relay;
use crate::support::{Emit, OUTBOX, TestBed, message};

#[test]
fn a_second_instance_stands_by_names_the_holder_and_takes_over_when_that_is_killed() {
    let bed = TestBed::new();
    let mut first = bed.relay(OUTBOX);
    first.start();
    first.wait_ready();
    publish(&bed, &mut first, 1);
    let holder = bed.active_pid().expect("the slot is in use");
    let named = format!("slot `{}` is active for pid {holder}", bed.slot);

    let mut second = bed.relay(OUTBOX);
    second.start();
    second.wait_not_ready(&named);
    assert!(second.wait_log("standing by").contains(&named));
    // It asks each second, and says so once.
    publish(&bed, &mut first, 2);
    bed.wait_confirmed_to_the_end();
    assert_eq!(second.count_log("standing by"), 1, "{}", second.log());
    assert_eq!(bed.active_pid(), Some(holder));

    first.sigkill();
    second.wait_ready();
    publish(&bed, &mut second, 1);
    bed.reader(&["events"]).exactly(3);
}

#[test]
fn a_killed_instance_comes_back_at_once_though_the_server_may_not_know_yet() {
    let bed = TestBed::new();
    let mut relay = bed.relay(OUTBOX);
    relay.start();
    relay.wait_ready();
    for life in 1..=5 {
        publish(&bed, &mut relay, 1);
        bed.wait_confirmed_to_the_end();
        relay.sigkill();
        relay.start();
        relay.wait_ready();
        bed.reader(&["events"]).exactly(life);
    }
}

/// One message, by this instance as its `count`th.
fn publish(bed: &TestBed, relay: &mut Relay, count: u64) {
    bed.app().emit("outbox", &message("Order", "1", "Created", "{}"));
    relay.wait_published(count);
}
