//! Faults at random moments, by a seed, over servers of the run's own: whatever happens, nothing is lost.
//!
//! An application commits numbered messages and knows which it committed ([`workload`]). A [`schedule`] of faults, the same
//! for the same seed, happens to connector, broker, database, the links between them, the state folder and the tables
//! ([`world`]), while it is watched that nothing is confirmed before it is saved ([`watch`]). Then all is mended, everything
//! drains, and what is in the topic is compared with what was committed ([`verdict`]).
//!
//! Two short runs with a seed of their own are among the tests. `make chaos SEED=n MINUTES=m` is the same for longer, over
//! every database and in every mode. The moments are those of a clock: a seed gives the same faults and the same
//! transactions, not the same instructions in between.

mod history;
mod schedule;
mod verdict;
mod watch;
mod workload;
mod world;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{ANY_OUTBOX, DEADLINE, Db, eventually, heavy};

use history::History;
use verdict::Report;
use workload::Workload;
use world::World;

/// Of the run that is among the tests.
const SEED: u64 = 1;
const LENGTH: Duration = Duration::from_secs(40);
/// For all that is left when the faults end, on a machine that others use too.
const DRAIN: Duration = Duration::from_secs(300);

/// How the connector delivers, and where it keeps its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// At least once, with a file.
    File,
    /// At least once, with a topic, by two instances.
    Topic,
    /// The same, exactly once.
    ExactlyOnce,
}

impl Mode {
    /// The pipeline file.
    fn pipeline(self, db: Db) -> String {
        let outbox = match db {
            Db::Postgres => "prefixes: [outbox], tables: [public.outbox]",
            Db::Mysql | Db::Mariadb => "<outbox>",
        };
        // A broker that is half gone is found out within seconds. What is compressed is sent whatever its size, so that it is
        // the broker that refuses.
        let sink = "brokers: '<brokers>', client_conf: {socket.timeout.ms: 5000, compression.type: lz4}";
        let sink = match self {
            Self::File | Self::Topic => sink.to_owned(),
            Self::ExactlyOnce => format!("{sink}, exactly_once: true"),
        };
        let text = ANY_OUTBOX
            .replace("<outbox>", outbox)
            .replace("brokers: '<brokers>'", &sink);
        let checkpoint = match self {
            Self::File => "{type: file}",
            Self::Topic | Self::ExactlyOnce => {
                "{type: kafka, config: {topic: '<name>.positions', replication_factor: 1}}"
            }
        };
        format!("{text}  checkpoint: {checkpoint}\n  errors: {{rejected: skip}}\n")
    }

    /// Whether several instances have one checkpoint.
    fn is_shared(self) -> bool {
        self != Self::File
    }
}

#[test]
fn at_least_once_nothing_is_lost_and_only_what_was_not_saved_is_repeated_postgres() {
    run(Db::Postgres, Mode::File);
}

#[test]
#[ignore = "minutes: make chaos"]
fn at_least_once_nothing_is_lost_and_only_what_was_not_saved_is_repeated_mysql() {
    run(Db::Mysql, Mode::File);
}

#[test]
#[ignore = "minutes: make chaos"]
fn two_instances_lose_nothing_and_repeat_only_what_was_not_saved_postgres() {
    run(Db::Postgres, Mode::Topic);
}

#[test]
#[ignore = "minutes: make chaos"]
fn two_instances_lose_nothing_and_repeat_only_what_was_not_saved_mysql() {
    run(Db::Mysql, Mode::Topic);
}

#[test]
#[ignore = "minutes: make chaos"]
fn exactly_once_two_instances_lose_and_double_nothing_postgres() {
    run(Db::Postgres, Mode::ExactlyOnce);
}

#[test]
fn exactly_once_two_instances_lose_and_double_nothing_mysql() {
    run(Db::Mysql, Mode::ExactlyOnce);
}

fn run(db: Db, mode: Mode) {
    let _alone = heavy();
    let seed = number("TAILPOST_CHAOS_SEED").unwrap_or(SEED);
    let length = number("TAILPOST_CHAOS_MINUTES").map_or(LENGTH, |minutes| Duration::from_secs(minutes * 60));
    println!(
        "chaos: {mode:?} over {db:?}, seed {seed}, {} s of faults",
        length.as_secs()
    );
    let world = World::new(db, mode);
    let report = happen(&world, mode, seed, length);
    println!("{report}");
    let violations = report.violations();
    assert!(violations.is_empty(), "seed {seed}: {}", violations.join("\n"));
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok().filter(|text| !text.is_empty())?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{variable}={text}: expected a number")),
    )
}

/// Lets everything end that runs beside, also where something panics.
struct Ending<'a>(&'a Workload, &'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.stop();
        self.1.store(true, Ordering::Relaxed);
    }
}

fn happen(world: &World, mode: Mode, seed: u64, length: Duration) -> Report {
    let schedule = schedule::schedule(seed, length, mode);
    let workload = Workload::new(&world.bed.door, seed);
    let begun = Instant::now();
    let drained = AtomicBool::new(false);
    let (committed, confirmed, faulty) = thread::scope(|scope| {
        let _ending = Ending(&workload, &drained);
        scope.spawn(|| watch::watch_relay(world, mode, &drained));
        let slot = scope.spawn(|| watch::watch_slot(world, mode, &drained));
        let writing = workload.start(scope);
        thread::scope(|faults| {
            for (_, events) in schedule {
                let workload = &workload;
                faults.spawn(move || {
                    for event in events {
                        world.pass((begun + event.at).saturating_duration_since(Instant::now()));
                        if world.is_over() {
                            return;
                        }
                        world.suffer(&event, workload);
                    }
                });
            }
            world.pass(length);
        });
        let faulty = begun.elapsed();
        let committed = workload.finish(writing);
        let end = world.bed.log_end();
        eventually(DRAIN, "everything is done", || world.is_over() || world.is_done(&end));
        drained.store(true, Ordering::Relaxed);
        (committed, slot.join().expect("the watcher of the slot"), faulty)
    });
    let lasted = begun.elapsed();
    let saves_failed = {
        let failed = |line: &str| line.contains("the checkpoint cannot be saved");
        let of_each = world.instances().map(|instance| instance.relay.count_lines(failed));
        of_each.sum()
    };
    if !world.is_over() {
        for mut instance in world.instances() {
            instance.relay.metrics().expect("/metrics answers").assert_accounted();
            instance.relay.sigterm();
            assert_eq!(instance.relay.wait_exit(DEADLINE), 0);
        }
    }
    let mut reader = world.bed.committed_reader(&["events"]);
    let records = reader.all();
    let account = committed.account(records);
    let mut happened = std::mem::take(&mut *world.happened());
    if mode.is_shared() {
        History::read(world).judge(&mut happened, &confirmed);
    }
    if mode == Mode::ExactlyOnce && !account.doubled.is_empty() {
        happened.violations.extend(verdict::doubles(records, &account));
    }
    let (repeated, unexplained) = verdict::unexplained(records, &committed, &happened.rewinds);
    Report {
        title: format!("{mode:?} over {:?}", world.bed.db()),
        seed,
        faulty,
        lasted,
        saves_failed,
        committed: workload.committed(),
        account,
        repeated,
        unexplained,
        records: records.len(),
        looks_at_slot: confirmed.len(),
        happened,
    }
}
