//! The application: connections that commit numbered messages and keep account of what they know to be committed.

use std::iter;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use rand::distr::Alphanumeric;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::support::app::{App, AppError, Door};
use crate::support::load::{Committed, Written, event};
use crate::support::{Db, Event};

use super::schedule::HUGE;
use super::world::MAX_MESSAGE_BYTES;

/// Connections that write all the time. A key belongs to one connection, so that its order of commits is known.
const WRITERS: u64 = 4;
const KEYS: u64 = 50;
const OTHER_KEYS: u64 = 1000;
/// Messages around an oversized one.
const COMPANY: u64 = 2000;
/// Messages in one statement of a large transaction.
const STATEMENT: usize = 1000;
/// Messages in most transactions, and in one of twenty.
const SMALL: u64 = 12;
const LARGE: u64 = 400;
/// Between two transactions of a connection, at most.
const PAUSE_MS: u64 = 80;
/// Between two tries to reach a server that is away.
const AWAY: Duration = Duration::from_millis(50);

/// See the module's text.
pub struct Workload {
    door: Door,
    seed: u64,
    stop: AtomicBool,
    committed: AtomicU64,
    /// Those of one transaction each.
    others: Mutex<Vec<Written>>,
}

/// Writers at work.
pub struct Writing<'scope>(Vec<ScopedJoinHandle<'scope, Written>>);

impl Workload {
    pub fn new(door: &Door, seed: u64) -> Self {
        Self {
            door: door.clone(),
            seed,
            stop: AtomicBool::new(false),
            committed: AtomicU64::new(0),
            others: Mutex::default(),
        }
    }

    pub fn start<'scope>(&'scope self, scope: &'scope thread::Scope<'scope, '_>) -> Writing<'scope> {
        Writing(
            (0..WRITERS)
                .map(|connection| scope.spawn(move || self.write(connection)))
                .collect(),
        )
    }

    /// Messages of which the server said that they are committed.
    pub fn committed(&self) -> u64 {
        self.committed.load(Ordering::Relaxed)
    }

    /// Nothing more is written, and no server waited for.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Lets the writers end, and gives what was committed.
    pub fn finish(&self, writing: Writing<'_>) -> Committed {
        self.stop();
        let writers = writing.0.into_iter().map(|writer| writer.join().expect("a writer"));
        Committed::by(writers.chain(self.others.lock().unwrap().iter().cloned()).collect())
    }

    fn write(&self, connection: u64) -> Written {
        let mut random = StdRng::seed_from_u64(self.seed.wrapping_mul(1009).wrapping_add(connection));
        let mut written = Written::default();
        let mut app = None;
        while !self.is_stopped() {
            let most = if random.random_ratio(1, 20) { LARGE } else { SMALL };
            let numbers = written.committed..written.committed + random.random_range(1..=most);
            let messages = |random: &mut StdRng, numbers: std::ops::Range<u64>| -> Vec<Event> {
                let key = |random: &mut StdRng| random.random_range(0..KEYS);
                numbers
                    .map(|number| event(connection, key(random), Some(number)))
                    .collect()
            };
            let transaction = Transaction {
                messages: vec![messages(&mut random, numbers.clone())],
                undone: random.random_ratio(1, 5).then(|| event(connection, 0, None)),
                // PostgreSQL has both: messages in the log, and rows of an outbox table.
                rows: self.door.db != Db::Postgres || connection % 2 == 1,
            };
            match self.commit_at_last(&mut app, &transaction) {
                Outcome::Committed => {}
                Outcome::Unknown => written.unknown.push(numbers.clone()),
                Outcome::Abandoned => break,
            }
            written.committed = numbers.end;
            thread::sleep(Duration::from_millis(random.random_range(0..PAUSE_MS)));
        }
        written
    }

    /// Writes a huge transaction.
    pub fn write_huge(&self) {
        self.write_as_another(HUGE, None);
    }

    /// Writes a message that the topic does not take, however it is compressed, in the middle of others.
    pub fn write_oversized(&self) {
        let mut random = StdRng::seed_from_u64(self.seed);
        let noise = (0..2 * MAX_MESSAGE_BYTES).map(|_| char::from(random.sample(Alphanumeric)));
        let mut oversized = event(0, 0, None);
        oversized.payload = Some(format!("{{\"noise\": \"{}\"}}", noise.collect::<String>()));
        self.write_as_another(COMPANY, Some(oversized));
    }

    /// Writes so many messages in one transaction of a connection of their own, with one among them that may not arrive.
    fn write_as_another(&self, count: u64, among_them: Option<Event>) {
        let at = {
            let mut others = self.others.lock().unwrap();
            others.push(Written::default());
            others.len() - 1
        };
        let connection = WRITERS + at as u64;
        let parts = (0..count).step_by(STATEMENT).map(|first| {
            let numbers = first..count.min(first + STATEMENT as u64);
            let messages = numbers.map(|number| event(connection, number % OTHER_KEYS, Some(number)));
            messages.collect()
        });
        let mut messages: Vec<Vec<Event>> = parts.collect();
        if let Some(event) = among_them {
            messages.insert(messages.len() / 2, vec![event]);
        }
        let transaction = Transaction {
            messages,
            undone: None,
            rows: self.door.db != Db::Postgres,
        };
        let unknown = match self.commit_at_last(&mut None, &transaction) {
            Outcome::Committed => Vec::new(),
            Outcome::Unknown => iter::once(0..count).collect(),
            Outcome::Abandoned => return,
        };
        self.others.lock().unwrap()[at] = Written {
            committed: count,
            unknown,
        };
    }

    /// Adds a column to the outbox table.
    pub fn alter(&self, column: u32) {
        let statement = format!("ALTER TABLE outbox ADD COLUMN later{column} VARCHAR(20)");
        let Some(mut app) = self.open() else { return };
        // The server may die over it, and then it is altered or not.
        let _ = app.try_run(&statement);
    }

    /// None: it is not waited for any more.
    fn open(&self) -> Option<App> {
        while !self.is_stopped() {
            match self.door.open() {
                Ok(app) => return Some(app),
                Err(_) => thread::sleep(AWAY),
            }
        }
        None
    }

    /// Commits over any number of connections: again while it is certain that nothing was committed.
    fn commit_at_last(&self, app: &mut Option<App>, transaction: &Transaction) -> Outcome {
        loop {
            if app.is_none() {
                *app = self.open();
            }
            let Some(open) = app else { return Outcome::Abandoned };
            match transaction.commit(open) {
                Ok(()) => {
                    self.committed.fetch_add(transaction.count(), Ordering::Relaxed);
                    return Outcome::Committed;
                }
                Err(at) => {
                    *app = None;
                    if at == At::Commit {
                        return Outcome::Unknown;
                    }
                    thread::sleep(AWAY);
                }
            }
        }
    }
}

/// What became of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Committed,
    /// The connection died over the COMMIT.
    Unknown,
    /// Not committed, and not tried any more.
    Abandoned,
}

/// Where a transaction failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    BeforeCommit,
    Commit,
}

struct Transaction {
    /// By one statement each.
    messages: Vec<Vec<Event>>,
    /// Written first, and taken back.
    undone: Option<Event>,
    rows: bool,
}

impl Transaction {
    fn count(&self) -> u64 {
        self.messages.iter().map(|messages| messages.len() as u64).sum()
    }

    fn commit(&self, app: &mut App) -> Result<(), At> {
        self.write(app).map_err(|_| At::BeforeCommit)?;
        app.try_run("COMMIT").map_err(|_| At::Commit)
    }

    fn write(&self, app: &mut App) -> Result<(), AppError> {
        let emit = if self.rows { App::insert_all } else { App::emit_all };
        app.try_run("BEGIN")?;
        if let Some(undone) = &self.undone {
            app.try_run("SAVEPOINT before_it")?;
            emit(app, std::slice::from_ref(undone))?;
            app.try_run("ROLLBACK TO SAVEPOINT before_it")?;
        }
        for messages in &self.messages {
            emit(app, messages)?;
        }
        Ok(())
    }
}
