//! Stops that were asked for: what was sent is waited for, saved and confirmed.

use std::time::Duration;

use rand::Rng;

use crate::support::load::{Load, Plan};
use crate::support::{ANY_OUTBOX, Bed, DEADLINE, Db, eventually, heavy, over_each};

over_each!(sigterm_under_load_loses_and_doubles_nothing);
fn sigterm_under_load_loses_and_doubles_nothing(db: Db) {
    let _alone = heavy();
    let bed = Bed::new(db);
    bed.kafka.create_topic(&bed.events(), 4, &[]);
    let mut relay = bed.relay(ANY_OUTBOX);
    let lives = 5;
    let plan = Plan {
        connections: 4,
        keys: 200,
        messages: 25_000,
        batch: 10,
    };
    relay.start();
    // PostgreSQL's slot is made at the first start; only what is written from then on is promised.
    relay.wait_ready();
    let load = Load::start_held(&bed, plan);
    for life in 1..=lives {
        load.allow(plan.messages / lives);
        let enough = rand::rng().random_range(1..plan.messages / lives);
        eventually(DEADLINE, "some published", || relay.published() >= enough);
        relay.sigterm();
        assert_eq!(relay.wait_exit(DEADLINE), 0, "{}", relay.log());
        assert!(!relay.log().contains("drain_timeout"), "{}", relay.log());
        if life < lives {
            relay.start();
            relay.wait_ready();
        }
    }
    let committed = load.finish();
    relay.start_with(&["--once"]);
    assert_eq!(relay.wait_exit(Duration::from_secs(60)), 0);
    let mut reader = bed.reader(&["events"]);
    committed.account(reader.all()).assert_exact();
}
