//! Ends that nobody asked for. Whatever the moment, nothing is lost and order is kept; what comes again was not saved yet.

use std::collections::{BTreeMap, HashMap, HashSet};

use rand::Rng;
use tailpost::position::Lsn;

use crate::support::kafka::Record;
use crate::support::load::{Load, Plan, identity};
use crate::support::relay::Relay;
use crate::support::{DEADLINE, OUTBOX, TestBed, eventually, heavy};

#[test]
fn sigkill_at_random_moments_loses_nothing_and_repeats_only_what_was_not_saved() {
    let _alone = heavy();
    let bed = TestBed::new();
    bed.kafka.create_topic(&bed.events(), 4, &[]);
    let mut relay = bed.relay(OUTBOX);
    let lives = 10;
    let plan = Plan {
        connections: 4,
        keys: 1000,
        messages: 100_000,
        batch: 20,
    };
    relay.start();
    relay.wait_ready();
    let load = Load::start_held(&bed, plan);
    let mut starts = Vec::new();
    for life in 1..=lives {
        load.allow(plan.messages / lives);
        // At most what this life was allowed in addition, so that it comes to it whatever the former ones left.
        let enough = rand::rng().random_range(0..plan.messages / lives);
        eventually(DEADLINE, &format!("{enough} published in life {life}"), || {
            relay.published() >= enough
        });
        relay.sigkill();
        let saved = saved(&relay);
        relay.start();
        relay.wait_ready();
        // The killed one's sockets are long closed: what comes to the topic from here on is this life's.
        starts.push(Start {
            saved,
            ends: bed.kafka.ends(&bed.events()),
        });
    }
    let committed = load.finish();
    relay.metrics().expect("/metrics answers").assert_accounted();
    relay.sigterm();
    assert_eq!(relay.wait_exit(DEADLINE), 0);
    relay.start_with(&["--once"]);
    assert_eq!(relay.wait_exit(DEADLINE), 0);
    let mut reader = bed.reader(&["events"]);
    let records = reader.all();
    let account = committed.account(records);
    account.assert_sound();
    println!(
        "{} of {} came more than once, over {lives} kills",
        account.doubled.len(),
        committed.count()
    );
    assert_ids_stay(records);
    assert_saved_is_not_repeated(records, &starts);
}

/// What was known when a life began.
struct Start {
    saved: Lsn,
    ends: BTreeMap<i32, i64>,
}

fn saved(relay: &Relay) -> Lsn {
    let checkpoint = relay.checkpoint().expect("a checkpoint is saved when the slot is made");
    let base = checkpoint["position"]["postgres"]["base"].as_str().expect("a base");
    base.parse().expect("an LSN")
}

fn assert_ids_stay(records: &[Record]) {
    let mut ids = HashMap::new();
    let mut events = HashSet::new();
    for record in records {
        let id = record.header("df-event-id").expect("an event id");
        let first = *ids.entry(identity(record)).or_insert(id);
        assert_eq!(first, id, "the id of {record:?}");
        events.insert(id);
    }
    assert_eq!(events.len(), ids.len(), "two events have one id");
}

/// A derived id begins with the commit's LSN: one below what was saved when a life began must not come from that life.
fn assert_saved_is_not_repeated(records: &[Record], starts: &[Start]) {
    for record in records {
        let id = record.header("df-event-id").expect("an event id");
        let commit = u64::from_str_radix(&id[..16], 16).expect("a position");
        let life = starts
            .iter()
            .rposition(|start| record.offset >= start.ends[&record.partition]);
        let Some(start) = life.map(|life| &starts[life]) else {
            continue;
        };
        // The end of a commit record is behind its LSN.
        assert!(
            commit >= start.saved.0,
            "{record:?} was saved at {} when its life began",
            start.saved
        );
    }
}
