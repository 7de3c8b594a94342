//! The servers, the links between them, the connector, and what is done to each.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::process::Signal;
use tailpost::position::Position;

use crate::support::any_bed::LogEnd;
use crate::support::positions::Positions;
use crate::support::proxy::Proxy;
use crate::support::relay::Relay;
use crate::support::server::OwnServer;
use crate::support::{Bed, DEADLINE, Db, eventually};

use super::Mode;
use super::schedule::{Event, Fault};
use super::workload::Workload;

/// How an end is logged that could not save the last position.
const NO_SPACE: &str = "No space left on device";
/// What the topic takes.
pub const MAX_MESSAGE_BYTES: usize = 100_000;
/// What a slow link does to each piece of at most 64 KiB.
const SLOW: Duration = Duration::from_millis(60);
/// How long a fault waits for events to be published.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often it is looked whether a fault is over, or the run.
const POLL: Duration = Duration::from_millis(20);

/// See the module's text.
pub struct World {
    // Before the servers: by their end nobody uses them.
    /// One, or two that take over from each other.
    instances: Vec<Mutex<Instance>>,
    pub bed: Bed,
    mode: Mode,
    database_link: Proxy,
    broker_link: Proxy,
    database: OwnServer,
    broker: OwnServer,
    pub happened: Mutex<Happened>,
    /// Something went wrong for good: nothing more is to be done.
    over: AtomicBool,
}

/// The connector, and whether it stands still.
pub struct Instance {
    pub relay: Relay,
    stopped: bool,
}

/// What happened, for the verdict.
#[derive(Debug, Default)]
pub struct Happened {
    pub faults: BTreeMap<Fault, u32>,
    /// In their order.
    pub rewinds: Vec<Rewind>,
    pub violations: Vec<String>,
}

/// The connector began anew at a place that it had come past.
#[derive(Debug, Clone)]
pub struct Rewind {
    /// Milliseconds since 1970: it was later.
    pub after: i64,
    /// Not later.
    pub at: i64,
    /// What was saved at least by then.
    pub saved: Option<Position>,
}

pub fn now_ms() -> i64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("a clock after 1970");
    i64::try_from(now.as_millis()).expect("a time")
}

impl World {
    /// Servers that are up, and a connector that streams.
    pub fn new(db: Db, mode: Mode) -> Self {
        // The broker tells its clients where it is: behind the proxy.
        let broker_link = Proxy::new();
        let advertised = format!("advertised.listeners=PLAINTEXT://{}", broker_link.address());
        let (broker, database) = thread::scope(|scope| {
            let broker = scope.spawn(|| OwnServer::kafka(&advertised));
            let database = OwnServer::of(db, "");
            (broker.join().expect("a broker"), database)
        });
        broker_link.forward_to(&broker.brokers());
        let bed = Bed::with(db, Some(&database), Some(&broker));
        let limit = MAX_MESSAGE_BYTES.to_string();
        bed.kafka
            .create_topic(&bed.events(), 4, &[("max.message.bytes", &limit)]);
        if db == Db::Postgres {
            bed.app().run(
                "CREATE TABLE outbox (number bigserial PRIMARY KEY, id text, aggregate_type text, aggregate_id text, \
                 event_type text, topic text, payload json)",
            );
        }
        let direct = address_of(&bed);
        let database_link = Proxy::start(&direct);
        let pipeline = bed
            .fill(&mode.pipeline(db))
            .replace(&direct, &database_link.address())
            .replace(&bed.kafka.brokers, &broker_link.address());
        let instances = (0..if mode.is_shared() { 2 } else { 1 }).map(|at| {
            let mut relay = bed.relay(&pipeline).env("TAILPOST_LOG", "info,tailpost::relay=debug");
            // Of a disk that is full.
            relay.expect_error("the checkpoint cannot be saved");
            relay.expect_error(NO_SPACE);
            // Of a message that the broker refuses: the producer is spent, and the next one sends what it had.
            relay.expect_error("unable to satisfy gap-less guarantee");
            if mode.is_shared() {
                // The client's own words for a transaction that failed, or a producer that was shut out.
                for text in ["TXNERR", "ADDPARTS", "FATAL", "GETPID"] {
                    relay.expect_error(&format!("librdkafka: {text}"));
                }
            }
            relay.start();
            if at == 0 {
                relay.wait_ready();
            }
            Mutex::new(Instance { relay, stopped: false })
        });
        Self {
            instances: instances.collect(),
            bed,
            mode,
            database_link,
            broker_link,
            database,
            broker,
            happened: Mutex::default(),
            over: AtomicBool::new(false),
        }
    }

    pub fn instances(&self) -> impl Iterator<Item = MutexGuard<'_, Instance>> {
        let instances = self.instances.iter();
        instances.map(|instance| instance.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn instance(&self, which: usize) -> MutexGuard<'_, Instance> {
        let instance = &self.instances[which % self.instances.len()];
        instance.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the connector saved last. Where that is in Kafka the broker must be up.
    pub fn saved(&self) -> Option<Position> {
        match self.mode.is_shared() {
            false => self.instance(0).relay.position(),
            true => Positions::of(&self.bed).saved(&self.bed.name).ok().flatten(),
        }
    }

    /// Whether the log before this is done with.
    pub fn is_done(&self, end: &LogEnd) -> bool {
        match (&self.bed, end) {
            (Bed::Mysql(_), LogEnd::Mysql(end)) => match self.saved() {
                Some(Position::Mysql(saved)) => end.are_in(&saved.base),
                _ => false,
            },
            (bed, end) => bed.is_done(&self.instance(0).relay, end),
        }
    }

    pub fn happened(&self) -> MutexGuard<'_, Happened> {
        self.happened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Notes a violation. The first is also told at once: what follows can hide it.
    pub fn violation(&self, text: String) {
        println!("chaos: violation: {text}");
        self.happened().violations.push(text);
    }

    /// The same, and ends the run.
    pub fn give_up(&self, text: String) {
        self.violation(text);
        self.over.store(true, Ordering::Relaxed);
    }

    /// Waits for a fault to be over.
    pub fn pass(&self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end && !self.is_over() {
            thread::sleep(POLL.min(time));
        }
    }

    /// Waits until the connector publishes.
    fn wait_in_motion(&self) {
        let mut before = u64::MAX;
        let end = Instant::now() + PATIENCE;
        while !self.is_over() && Instant::now() < end {
            let published: u64 = self.instances().map(|instance| instance.relay.published()).sum();
            if published > before {
                return;
            }
            before = published;
            thread::sleep(POLL);
        }
    }

    /// Makes a fault, and mends it.
    pub fn suffer(&self, event: &Event, workload: &Workload) {
        if event.in_motion {
            self.wait_in_motion();
        }
        let count = {
            let mut happened = self.happened();
            let count = happened.faults.entry(event.fault).or_default();
            *count += 1;
            *count
        };
        let lasts = event.lasts;
        match event.fault {
            Fault::KillRelay => self.kill_relay(event.which, lasts),
            Fault::RestartRelay => self.restart_relay(event.which),
            Fault::StopRelay => self.stop_relay(event.which, lasts),
            Fault::SecondInstance => self.start_second(),
            Fault::KillBroker => self.down_for(&self.broker, OwnServer::kill, lasts),
            Fault::RestartBroker => self.down_for(&self.broker, OwnServer::down, lasts),
            Fault::KillDatabase => self.down_for(&self.database, OwnServer::kill, lasts),
            Fault::RestartDatabase => self.down_for(&self.database, OwnServer::down, lasts),
            Fault::StopBroker => self.stop_server(&self.broker, lasts),
            Fault::StopDatabase => self.stop_server(&self.database, lasts),
            Fault::CutDatabaseLink => self.disturb(&self.database_link, Proxy::cut, lasts),
            Fault::CutBrokerLink => self.disturb(&self.broker_link, Proxy::cut, lasts),
            Fault::HalfOpenDatabaseLink => self.disturb(&self.database_link, Proxy::half_open, lasts),
            Fault::HalfOpenBrokerLink => self.disturb(&self.broker_link, Proxy::half_open, lasts),
            Fault::SlowDatabaseLink => self.disturb(&self.database_link, slow, lasts),
            Fault::SlowBrokerLink => self.disturb(&self.broker_link, slow, lasts),
            Fault::FillDisk => self.fill_disk(lasts),
            Fault::HugeTransaction => workload.write_huge(),
            Fault::AlterTable => workload.alter(count),
            Fault::OversizedMessage => workload.write_oversized(),
        }
    }

    fn kill_relay(&self, which: usize, away: Duration) {
        {
            let mut instance = self.instance(which);
            if !instance.is_alive() {
                return;
            }
            instance.relay.sigkill();
            self.rewind(&instance);
        }
        self.pass(away);
        self.instance(which).relay.start();
    }

    fn restart_relay(&self, which: usize) {
        let mut instance = self.instance(which);
        if !instance.is_alive() {
            return;
        }
        instance.relay.sigterm();
        let code = instance.relay.wait_exit(DEADLINE);
        // The last position may find no room, and then it says so.
        if code != 0 && instance.relay.count_log(NO_SPACE) == 0 {
            let log = instance.relay.log();
            let end = log.lines().rev().take(10).collect::<Vec<_>>();
            let end: String = end.into_iter().rev().map(|line| format!("\n{line}")).collect();
            self.violation(format!("SIGTERM was answered by exit code {code}:{end}"));
        }
        self.rewind(&instance);
        instance.relay.start();
    }

    fn rewind(&self, instance: &Instance) {
        // Where the checkpoint is shared, whoever goes on says so.
        if !self.mode.is_shared() {
            let now = now_ms();
            self.happened().rewinds.push(Rewind {
                after: now,
                at: now,
                saved: instance.relay.position(),
            });
        }
    }

    fn stop_relay(&self, which: usize, lasts: Duration) {
        {
            let mut instance = self.instance(which);
            if !instance.is_alive() {
                return;
            }
            instance.relay.signal(Signal::STOP);
            instance.stopped = true;
        }
        self.pass(lasts);
        let mut instance = self.instance(which);
        instance.stopped = false;
        instance.relay.signal(Signal::CONT);
    }

    /// One more process with the same state folder, while the first is sure to have it: it must end at once.
    fn start_second(&self) {
        let mut instance = self.instance(0);
        if !instance.is_alive() {
            return;
        }
        // Said once the folder is its own.
        instance.relay.wait_log("heckpoint");
        let mut second = instance.relay.twin();
        second.expect_error("already runs with the state folder");
        second.start();
        let code = second.wait_exit(DEADLINE);
        if code != 1 || second.count_log("already runs with the state folder") != 1 {
            self.violation(format!("a second process ended with {code} and\n{}", second.log()));
        }
    }

    fn down_for(&self, server: &OwnServer, end: fn(&OwnServer), lasts: Duration) {
        end(server);
        self.pass(lasts);
        server.up();
    }

    fn stop_server(&self, server: &OwnServer, lasts: Duration) {
        let frozen = server.freeze();
        self.pass(lasts);
        frozen.thaw();
    }

    fn disturb(&self, link: &Proxy, how: fn(&Proxy), lasts: Duration) {
        how(link);
        self.pass(lasts);
        link.heal();
    }

    /// As a full disk does, the file that a save begins with takes nothing. Needs no rights, and leaves nothing behind.
    fn fill_disk(&self, lasts: Duration) {
        let begun = {
            let file = self.instance(0).relay.checkpoint_file();
            file.with_extension("json.new")
        };
        self.fill(&begun);
        self.pass(lasts);
        // Opened by a save or not, it is no file that could be renamed.
        fs::remove_file(&begun).expect("remove the full file");
    }

    fn fill(&self, begun: &Path) {
        eventually(DEADLINE, "no save under way", || {
            // Between a file's making and its renaming it may not be exchanged: the link would become the checkpoint.
            let instance = self.instance(0);
            let running = if instance.stopped {
                None
            } else {
                instance.relay.running_pid()
            };
            if let Some(pid) = running {
                instance.relay.signal(Signal::STOP);
                eventually(DEADLINE, "the process stands still", || stands_still(pid));
            }
            let made = !begun.exists() && symlink("/dev/full", begun).is_ok();
            if running.is_some() {
                instance.relay.signal(Signal::CONT);
            }
            made
        });
    }
}

impl Instance {
    /// Whether it was started and has not ended.
    pub fn is_alive(&mut self) -> bool {
        self.relay.runs()
    }

    /// Whether it ended by itself.
    pub fn gave_up(&mut self) -> bool {
        self.relay.running_pid().is_some() && !self.relay.runs()
    }
}

fn slow(link: &Proxy) {
    link.slow(SLOW);
}

/// Whether each of its threads does.
fn stands_still(pid: i32) -> bool {
    let Ok(tasks) = fs::read_dir(PathBuf::from(format!("/proc/{pid}/task"))) else {
        return true;
    };
    tasks.flatten().all(|task| {
        let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        // The state follows the name, which ends with the last bracket. A thread that has ended has none.
        let state = stat
            .rsplit_once(')')
            .and_then(|(_, rest)| rest.split_whitespace().next());
        matches!(state, None | Some("T" | "Z" | "X"))
    })
}

/// The server's, as it is in the connector's DSN.
fn address_of(bed: &Bed) -> String {
    let url = match bed {
        Bed::Postgres(bed) => &bed.postgres.url,
        Bed::Mysql(bed) => &bed.database.mysql.url,
    };
    let (_, rest) = url.rsplit_once('@').expect("a URL with a user");
    rest.split(['/', '?']).next().unwrap_or(rest).to_owned()
}
