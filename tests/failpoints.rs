//! Ends between each two of send, ack, save and confirm, or of send, commit and ack, one after another. Nothing is lost, order
//! is kept, and what was saved does not come again: exactly once, nothing does.

use crate::support::lives::{Start, assert_ids_stay, assert_saved_is_not_repeated};
use crate::support::load::{Committed, Load, Plan};
use crate::support::relay::Relay;
use crate::support::{ANY_OUTBOX, Bed, DEADLINE, Db, eventually, over_each};

/// Each with the number of the hit: first ones meet what a start does, later ones the load.
const POINTS: &[&str] = &[
    "send:1",
    "send:37",
    "send:250",
    "ack:1",
    "ack:4",
    "before_save:1",
    "before_save:3",
    "after_save:1",
    "after_save:3",
];
/// MySQL and MariaDB are told nothing.
const CONFIRMING: &[&str] = &[
    "before_confirm:1",
    "before_confirm:2",
    "after_confirm:1",
    "after_confirm:2",
];
const COMMITTING: &[&str] = &[
    "send:1",
    "send:37",
    "before_commit:1",
    "before_commit:5",
    "after_commit:1",
    "after_commit:5",
    "ack:1",
    "ack:4",
];
/// Ends with plenty left: what is not written while something is killed is written afterwards.
const PLAN: Plan = Plan {
    connections: 3,
    keys: 60,
    messages: 12_000,
    batch: 20,
};

over_each!(killed_between_send_ack_save_and_confirm_it_repeats_only_what_was_not_saved: postgres, mysql);
fn killed_between_send_ack_save_and_confirm_it_repeats_only_what_was_not_saved(db: Db) {
    let points = match db {
        Db::Postgres => [POINTS, CONFIRMING].concat(),
        Db::Mysql | Db::Mariadb => POINTS.to_vec(),
    };
    let bed = Bed::new(db);
    let mut starts = Vec::new();
    let mut before = None;
    let committed = killed_at_each(&bed, ANY_OUTBOX, &points, |life, relay| match life {
        Life::Begins => {
            before = confirmed(&bed);
            starts.push(Start::of_next(&bed, relay));
        }
        Life::Killed(point) => assert_killed_at(point, &bed, relay, starts.last().expect("this life's"), before),
    });
    let mut reader = bed.reader(&["events"]);
    let records = reader.all();
    committed.account(records).assert_sound();
    assert_ids_stay(records);
    assert_saved_is_not_repeated(records, &starts);
}

over_each!(exactly_once_killed_between_send_commit_and_ack_it_repeats_nothing: postgres, mysql);
fn exactly_once_killed_between_send_commit_and_ack_it_repeats_nothing(db: Db) {
    let bed = Bed::new(db);
    let exactly_once = ANY_OUTBOX.replace("brokers: '<brokers>'", "brokers: '<brokers>', exactly_once: true");
    let pipeline = format!("{exactly_once}  checkpoint: {{type: kafka, config: {{topic: '<name>.positions'}}}}\n");
    let committed = killed_at_each(&bed, &pipeline, COMMITTING, |_, _| {});
    let mut reader = bed.committed_reader(&["events"]);
    let records = reader.all();
    committed.account(records).assert_exact();
    assert_ids_stay(records);
}

/// What a life has come to.
enum Life<'a> {
    /// It is to be started.
    Begins,
    /// At this point.
    Killed(&'a str),
}

/// Has one life after another killed at these points under load, and lets the last one drain. `look` is called in between.
fn killed_at_each(bed: &Bed, pipeline: &str, points: &[&str], mut look: impl FnMut(Life<'_>, &Relay)) -> Committed {
    bed.kafka.create_topic(&bed.events(), 4, &[]);
    let mut relay = bed.relay(pipeline);
    // PostgreSQL keeps nothing for a slot that is not made yet.
    relay.start();
    relay.wait_ready();
    relay.sigkill();
    let load = Load::start_held(bed, PLAN);
    for point in points {
        look(Life::Begins, &relay);
        relay.arm(Some(point));
        relay.start();
        eventually(DEADLINE, &format!("killed at {point}"), || {
            load.allow(2);
            !relay.runs()
        });
        relay.wait_killed();
        look(Life::Killed(point), &relay);
    }
    load.allow(PLAN.messages);
    let committed = load.finish();
    look(Life::Begins, &relay);
    relay.arm(None);
    relay.start_with(&["--once"]);
    assert_eq!(relay.wait_exit(DEADLINE), 0);
    committed
}

/// What the slot has confirmed, where there is one.
fn confirmed(bed: &Bed) -> Option<u64> {
    match bed {
        Bed::Postgres(bed) => bed.confirmed().map(|confirmed| confirmed.0),
        Bed::Mysql(_) => None,
    }
}

/// Whether save and confirmation stand as they must at a point.
fn assert_killed_at(point: &str, bed: &Bed, relay: &Relay, start: &Start, confirmed_before: Option<u64>) {
    let (saved, confirmed) = (relay.position(), confirmed(bed));
    let place = saved.as_ref().map(|saved| saved.log_place().offset);
    match point {
        "before_save:1" => assert_eq!(saved, start.saved, "{point}: saved"),
        "after_save:1" | "before_confirm:1" => {
            assert_eq!(confirmed, confirmed_before, "{point}: confirmed");
        }
        _ => {}
    }
    if let (Bed::Postgres(_), Some(confirmed), Some(place)) = (bed, confirmed, place) {
        assert!(
            confirmed <= place,
            "{point}: {confirmed:X} is confirmed and {place:X} saved"
        );
    }
}
