//! One log has one reader at a time: a second instance waits for its turn.

use crate::support::relay::Relay;
use crate::support::{ANY_OUTBOX, Bed, Db, Event, over_each};

over_each!(a_second_instance_stands_by_names_the_holder_and_takes_over_when_that_is_killed);
fn a_second_instance_stands_by_names_the_holder_and_takes_over_when_that_is_killed(db: Db) {
    let bed = Bed::new(db);
    let mut first = bed.relay(ANY_OUTBOX);
    first.start();
    first.wait_ready();
    publish(&bed, &mut first, 1);
    let reading = bed.reader_of(&first).expect("the log is read");
    let named = match &bed {
        Bed::Postgres(bed) => format!("slot `{}` is active for pid {reading}", bed.slot),
        // The lock's connection, not the one that reads.
        Bed::Mysql(bed) => {
            let connections = bed.connections_of(&first).into_iter().map(|(id, _)| id);
            let holders: Vec<u64> = connections.filter(|id| *id != reading).collect();
            let [holder] = holders[..] else { panic!("{holders:?}") };
            format!("the source is in use by connection {holder} of the server")
        }
    };

    let mut second = bed.relay(ANY_OUTBOX);
    second.start();
    second.wait_not_ready(&named);
    assert!(second.wait_log("standing by").contains(&named));
    // It asks each second, and says so once.
    publish(&bed, &mut first, 2);
    bed.wait_done_to_the_end(&first);
    assert_eq!(second.count_log("standing by"), 1, "{}", second.log());
    assert_eq!(bed.reader_of(&first), Some(reading));

    first.sigkill();
    second.wait_ready();
    publish(&bed, &mut second, own(db, 2) + 1);
    bed.reader(&["events"]).exactly(3 + own(db, 2) as usize);
}

/// Of what the first instance had relayed the second relays so many again: PostgreSQL keeps in the slot how far one came,
/// the others know nothing of their readers, and this one has a state folder of its own.
fn own(db: Db, relayed: u64) -> u64 {
    if db == Db::Postgres { 0 } else { relayed }
}

over_each!(a_killed_instance_comes_back_at_once_though_the_server_may_not_know_yet);
fn a_killed_instance_comes_back_at_once_though_the_server_may_not_know_yet(db: Db) {
    let bed = Bed::new(db);
    let mut relay = bed.relay(ANY_OUTBOX);
    relay.start();
    relay.wait_ready();
    for life in 1..=5 {
        publish(&bed, &mut relay, 1);
        bed.wait_done_to_the_end(&relay);
        relay.sigkill();
        relay.start();
        relay.wait_ready();
        bed.reader(&["events"]).exactly(life);
    }
}

/// One event, by this instance as its `count`th.
fn publish(bed: &Bed, relay: &mut Relay, count: u64) {
    bed.app().emit(&Event::of("{}").key("1"));
    relay.wait_published(count);
}
