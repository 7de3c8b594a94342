//! Ends that nobody asked for. Whatever the moment, nothing is lost and order is kept; what comes again was not saved yet.

use std::time::Duration;

use rand::Rng;

use crate::support::app::Door;
use crate::support::lives::{Start, assert_ids_stay, assert_saved_is_not_repeated};
use crate::support::load::{Load, Plan};
use crate::support::mysql::Flavor;
use crate::support::server::OwnServer;
use crate::support::{ANY_OUTBOX, Bed, DEADLINE, Db, eventually, heavy, over_each};

/// For the rest of a large load on a machine that others use too.
const LONG: Duration = Duration::from_secs(180);

/// How a database is loaded, and how often the connector is killed meanwhile.
struct Trial {
    plan: Plan,
    lives: u64,
    /// Messages in one transaction among the others.
    large: u64,
}

fn trial(db: Db) -> Trial {
    let (messages, lives, large) = match db {
        Db::Postgres | Db::Mysql => (100_000, 10, 200_000),
        Db::Mariadb => (50_000, 5, 50_000),
    };
    let plan = Plan {
        connections: 4,
        keys: 1000,
        messages,
        batch: 20,
    };
    Trial { plan, lives, large }
}

/// MariaDB's binlog compresses by the server's settings.
fn server(db: Db) -> Option<OwnServer> {
    let compressing = "--log-bin-compress=ON --log-bin-compress-min-len=10";
    (db == Db::Mariadb).then(|| OwnServer::mysql(Flavor::Mariadb, compressing))
}

/// On MySQL every other connection compresses its transactions.
fn doors(bed: &Bed) -> Vec<Door> {
    let mut doors = vec![bed.door.clone()];
    if let Bed::Mysql(bed) = bed
        && bed.flavor() == Flavor::Mysql
    {
        // The administrator's, whom the server lets do so.
        let mut compressing = Door::new(Db::Mysql, &bed.database.mysql.admin_url);
        compressing.settings = "SET SESSION binlog_transaction_compression = ON".to_owned();
        doors.push(compressing);
    }
    doors
}

over_each!(sigkill_at_random_moments_loses_nothing_and_repeats_only_what_was_not_saved);
fn sigkill_at_random_moments_loses_nothing_and_repeats_only_what_was_not_saved(db: Db) {
    let _alone = heavy();
    let server = server(db);
    let bed = Bed::with(db, server.as_ref(), None);
    bed.kafka.create_topic(&bed.events(), 4, &[]);
    let mut relay = bed.relay(ANY_OUTBOX);
    let Trial { plan, lives, large } = trial(db);
    relay.start();
    relay.wait_ready();
    let mut load = Load::start_held_by(&doors(&bed), plan);
    let mut starts = Vec::new();
    for life in 1..=lives {
        load.allow(plan.messages / lives);
        if life == lives / 2 {
            load.add_transaction(large);
        }
        // At most what this life was allowed in addition, so that it comes to it whatever the former ones left.
        let enough = rand::rng().random_range(0..plan.messages / lives);
        eventually(DEADLINE, &format!("{enough} published in life {life}"), || {
            relay.published() >= enough
        });
        relay.sigkill();
        starts.push(Start::of_next(&bed, &relay));
        relay.start();
        relay.wait_ready();
    }
    let committed = load.finish();
    relay.metrics().expect("/metrics answers").assert_accounted();
    relay.sigterm();
    assert_eq!(relay.wait_exit(DEADLINE), 0);
    relay.start_with(&["--once"]);
    assert_eq!(relay.wait_exit(LONG), 0);
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
