//! What outlives a process: virtual time, the source's server, the checkpoint, the brokers, and the account of it all.
//!
//! Everything that has an effect outside of a process is a numbered step here. A scenario names the numbers at which a
//! process dies, so that it can die before each step that it ever takes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::broker::{Broker, Delivery};
use super::log::Log;
use super::rng::Rng;
use super::rules::Rules;
use super::scenario::{Mode, Odds, Scenario};
use super::server::Server;
use crate::config::ErrorPolicies;
use crate::position::Position;

/// Virtual milliseconds since the simulation began.
pub(super) type Millis = u64;

/// One run of the program, from its start to its end or death.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ProcessId(pub(super) usize);

/// The world as the parts of a process and the driver have it.
#[derive(Clone)]
pub(super) struct Shared(Arc<Mutex<World>>);

impl Shared {
    pub(super) fn new(world: World) -> Self {
        Self(Arc::new(Mutex::new(world)))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What happens at its time, whatever the processes do.
#[derive(Debug)]
pub(super) enum Event {
    Delivery(Delivery),
    /// The server has noticed that a connection is gone.
    LockFreed {
        connection: u64,
    },
    Action(Action),
}

/// What is done to processes from outside.
#[derive(Debug, Clone, Copy)]
pub(super) enum Action {
    Start {
        host: usize,
    },
    /// Asked to end.
    Stop {
        host: usize,
    },
    /// Stopped as a whole for so long, and later woken.
    Freeze {
        host: usize,
        millis: Millis,
    },
    Thaw {
        host: usize,
    },
    /// An operator holds its pipeline back for so long.
    Pause {
        host: usize,
        millis: Millis,
    },
    Resume {
        host: usize,
    },
    /// Its source's connection breaks.
    Cut {
        host: usize,
    },
}

/// What the world knows of a process.
#[derive(Debug)]
pub(super) struct ProcessState {
    /// What it was started with.
    pub(super) policies: ErrorPolicies,
    pub(super) dead: bool,
    pub(super) frozen: bool,
    /// What reaches it when it is woken.
    pub(super) held: Vec<Event>,
    /// Changes that were done when it read the checkpoint first, and last.
    pub(super) began: Option<usize>,
    pub(super) floor: usize,
}

/// The checkpoint's durable value.
#[derive(Debug, Default)]
pub(super) struct SavedPosition {
    pub(super) position: Option<Position>,
    pub(super) done: usize,
    /// How often a shared store was claimed: only the last that did may save.
    pub(super) epoch: u64,
}

/// See the module's text.
pub(super) struct World {
    pub(super) scenario: Arc<Scenario>,
    pub(super) log: Arc<Log>,
    pub(super) rng: Rng,
    pub(super) now: Millis,
    /// No more faults from here on.
    pub(super) calm: bool,
    queue: BTreeMap<(Millis, u64), Event>,
    queued: u64,
    /// Until when the process at hand may run.
    pub(super) until: Millis,
    /// Interrupts the process at hand.
    pub(super) wake: Arc<Notify>,
    steps: u64,
    crashes: BTreeSet<u64>,
    pub(super) processes: Vec<ProcessState>,
    pub(super) server: Server,
    pub(super) saved: SavedPosition,
    pub(super) broker: Broker,
    pub(super) rules: Rules,
    pub(super) policies: ErrorPolicies,
    /// A fault that no process can go on behind was given, which a person will mend.
    pub(super) hopeless: bool,
    violation: Option<String>,
    trace: Option<Vec<String>>,
}

impl World {
    pub(super) fn new(scenario: Arc<Scenario>, traced: bool) -> Self {
        let log = Arc::clone(&scenario.log);
        Self {
            rng: Rng::new(scenario.seed ^ 0xD1CE),
            now: 0,
            calm: false,
            queue: BTreeMap::new(),
            queued: 0,
            until: 0,
            wake: Arc::new(Notify::new()),
            steps: 0,
            crashes: scenario.crashes.clone(),
            processes: Vec::new(),
            server: Server::default(),
            saved: SavedPosition::default(),
            broker: Broker::default(),
            rules: Rules::new(&log),
            policies: scenario.pipeline.errors,
            hopeless: false,
            violation: None,
            trace: traced.then(Vec::new),
            log,
            scenario,
        }
    }

    /// Writes down what happens.
    pub(super) fn note(&mut self, what: fmt::Arguments<'_>) {
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>6} {what}", self.now));
        }
    }

    pub(super) fn take_trace(&mut self) -> Vec<String> {
        self.trace.take().unwrap_or_default()
    }

    /// A rule is broken; the first that is counts.
    pub(super) fn violate(&mut self, what: String) {
        self.note(format_args!("VIOLATION {what}"));
        self.violation.get_or_insert(what);
        self.wake.notify_one();
    }

    pub(super) fn violation(&self) -> Option<&str> {
        self.violation.as_deref()
    }

    pub(super) fn steps(&self) -> u64 {
        self.steps
    }

    /// A process takes a step. False: it died before it, and has no effect any more.
    pub(super) fn step(&mut self, process: ProcessId, what: fmt::Arguments<'_>) -> bool {
        if self.processes[process.0].dead {
            return false;
        }
        self.steps += 1;
        let number = self.steps;
        if self.crashes.contains(&number) && !self.calm {
            self.note(format_args!("{number} process {} dies before: {what}", process.0));
            self.kill(process);
            return false;
        }
        self.note(format_args!("{number} process {}: {what}", process.0));
        true
    }

    pub(super) fn kill(&mut self, process: ProcessId) {
        self.processes[process.0].dead = true;
        self.broker_loses(process);
        self.server_loses(process);
        self.wake.notify_one();
    }

    pub(super) fn is_dead(&self, process: ProcessId) -> bool {
        self.processes[process.0].dead
    }

    pub(super) fn schedule(&mut self, after: Millis, event: Event) {
        let at = self.now + after;
        self.queued += 1;
        self.queue.insert((at, self.queued), event);
        if at < self.until {
            self.wake.notify_one();
        }
    }

    pub(super) fn next_at(&self) -> Option<Millis> {
        self.queue.keys().next().map(|(at, _)| *at)
    }

    /// The next event that is due.
    pub(super) fn take_due(&mut self, now: Millis) -> Option<Event> {
        let first = self.queue.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }

    /// Whether a fault happens, which none does any more once it is calm.
    pub(super) fn fault(&mut self, odds: impl Fn(&Odds) -> u64) -> bool {
        let per_mille = odds(&self.scenario.odds);
        !self.calm && self.rng.chance(per_mille)
    }

    /// How long something takes: mostly little.
    pub(super) fn delay(&mut self) -> Millis {
        if self.calm {
            return self.rng.within(0..=5);
        }
        if self.fault(|odds| odds.slow) {
            return self.rng.within(100..=6000);
        }
        self.rng.within(0..=15)
    }

    /// The checkpoint's value, as a process reads it.
    pub(super) fn load(&mut self, process: ProcessId) -> Option<Position> {
        let done = self.saved.done;
        let state = &mut self.processes[process.0];
        state.began.get_or_insert(done);
        state.floor = done;
        self.saved.position.clone()
    }

    /// Makes a checkpoint durable, which lies behind nothing that is not.
    pub(super) fn make_saved(&mut self, position: &Position) {
        let done = self.log.done(position);
        if done < self.saved.done {
            let before = self.saved.done;
            self.violate(format!("the checkpoint goes back from {before} changes to {done}"));
        }
        self.check_settled(done, "saved");
        self.saved.position = Some(position.clone());
        self.saved.done = done;
    }

    /// Rule: nothing is saved or confirmed before all that lies before it is durable in the sink.
    pub(super) fn check_settled(&mut self, done: usize, what: &str) {
        self.rules.advance(&self.log, &self.policies);
        if self.rules.frontier() < done {
            let missing = self.rules.frontier();
            let kind = self.log.changes()[missing].kind;
            self.violate(format!(
                "{what} are {done} changes, and number {missing} ({kind:?}) is not in the sink"
            ));
        }
    }

    pub(super) fn is_exactly_once(&self) -> bool {
        self.scenario.mode == Mode::ExactlyOnce
    }
}
