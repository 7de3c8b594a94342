//! Drives the processes and the world through virtual time, one after the other on one thread.
//!
//! Each process has a runtime of its own whose clock is paused: it moves only as far as the world's next event. So a
//! process can be dropped as a whole at any step, as SIGKILL does it, and be left out for a while, as SIGSTOP does.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use tokio::time::{Instant, advance, sleep_until};
use tokio_util::sync::CancellationToken;

use super::log::Kind;
use super::parts::{Place, SimulatedParts};
use super::rules::policy;
use super::scenario::Scenario;
use super::world::{Action, Event, Millis, ProcessId, ProcessState, Shared, World};
use crate::audit::Journal;
use crate::config::{ErrorPolicies, ErrorPolicy};
use crate::relay::branch::Branch;
use crate::relay::supervise::{PipelineError, Supervisor};
use crate::sink::{DeliveryErrorKind, SinkError};
use crate::source::OperatorWord;
use crate::telemetry::error_chain;
use crate::telemetry::status::PipelineStatus;

/// Longest run without a look at the rules.
const LOOK: Millis = 250;
/// How long everything may take to come to rest once faults end.
const PATIENCE: Millis = 300_000;
/// How long after the last fault a process may still find out about one.
const AFTERMATH: Millis = 5_000;
/// After so long the server takes a silent client for gone.
const SERVER_PATIENCE: Millis = 10_000;

/// How a run went.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Report {
    pub(super) steps: u64,
    pub(super) processes: usize,
    pub(super) doubled: usize,
    pub(super) ended_at: Millis,
    pub(super) trace: Vec<String>,
}

/// A broken rule, and what led to it.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) what: String,
    pub(super) trace: Vec<String>,
}

/// Runs a scenario to its end.
///
/// # Errors
/// The first rule that is broken.
pub(super) fn run(scenario: Scenario, traced: bool) -> Result<Report, Failure> {
    let scenario = Arc::new(scenario);
    let shared = Shared::new(World::new(Arc::clone(&scenario), traced));
    {
        let mut world = shared.lock();
        for (at, action) in &scenario.actions {
            world.schedule(*at, Event::Action(*action));
        }
    }
    let mut driver = Driver {
        hosts: (0..scenario.hosts).map(|_| None).collect(),
        shared,
        scenario,
        now: 0,
        leaving: false,
    };
    let ended = driver.run();
    let mut world = driver.shared.lock();
    let trace = world.take_trace();
    match ended {
        Err(what) => Err(Failure { what, trace }),
        Ok(()) => Ok(Report {
            steps: world.steps(),
            processes: world.processes.len(),
            doubled: world.rules.doubled(),
            ended_at: driver.now,
            trace,
        }),
    }
}

struct Driver {
    shared: Shared,
    scenario: Arc<Scenario>,
    hosts: Vec<Option<Process>>,
    now: Millis,
    /// All is done, and every process was asked to end.
    leaving: bool,
}

struct Process {
    id: ProcessId,
    runtime: Runtime,
    place: Place,
    handle: JoinHandle<Result<(), PipelineError>>,
    stop: CancellationToken,
    status: Arc<PipelineStatus>,
    frozen: bool,
    /// It was asked to end.
    stopping: bool,
    /// Before all was at rest.
    asked_early: bool,
}

/// How a process ended, if it did.
type Ended = Option<Result<Result<(), PipelineError>, tokio::task::JoinError>>;

impl Process {
    fn start(shared: &Shared, scenario: &Scenario, host: usize, now: Millis) -> Self {
        let runtime = Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let began = runtime.block_on(async { Instant::now() });
        let mut pipeline = scenario.pipeline.clone();
        let id = {
            let mut world = shared.lock();
            pipeline.errors = world.policies;
            let id = ProcessId(world.processes.len());
            world.note(format_args!("process {} starts on host {host}", id.0));
            world.processes.push(ProcessState {
                policies: pipeline.errors,
                dead: false,
                frozen: false,
                held: Vec::new(),
                began: None,
                floor: 0,
            });
            id
        };
        let place = Place {
            shared: shared.clone(),
            process: id,
            began,
            began_at: now,
        };
        let status = PipelineStatus::new(&pipeline);
        let stop = CancellationToken::new();
        let supervisor = Supervisor {
            parts: Arc::new(SimulatedParts {
                place: place.clone(),
                mode: scenario.mode,
            }),
            branches: Branch::all(&pipeline, &status),
            pipeline,
            once: false,
            word: OperatorWord::Nothing,
            journal: Journal::default(),
            status: Arc::clone(&status),
            stop: stop.clone(),
        };
        let handle = runtime.spawn(supervisor.run());
        Self {
            id,
            runtime,
            place,
            handle,
            stop,
            status,
            frozen: false,
            stopping: false,
            asked_early: false,
        }
    }

    /// Runs until a moment, or until the world has something to do before. Gives the time that it is then.
    fn run(&mut self, until: Millis) -> (Millis, Ended) {
        let (began, began_at) = (self.place.began, self.place.began_at);
        let deadline = began + Duration::from_millis(until.saturating_sub(began_at));
        let wake = {
            let mut world = self.place.shared.lock();
            world.until = until;
            Arc::clone(&world.wake)
        };
        let handle = &mut self.handle;
        let (ended, elapsed) = self.runtime.block_on(async move {
            let ended = tokio::select! {
                biased; // the world before anything more is done
                () = wake.notified() => None,
                ended = handle => Some(ended),
                () = sleep_until(deadline) => None,
            };
            (ended, began.elapsed())
        });
        (began_at + Millis::try_from(elapsed.as_millis()).unwrap(), ended)
    }

    fn time(&self) -> Millis {
        let elapsed = self.runtime.block_on(async { self.place.began.elapsed() });
        self.place.began_at + Millis::try_from(elapsed.as_millis()).unwrap()
    }
}

impl Driver {
    fn run(&mut self) -> Result<(), String> {
        loop {
            self.look()?;
            if self.leaving && self.hosts.iter().all(Option::is_none) {
                return Ok(());
            }
            if self.now > self.scenario.calm_at + PATIENCE {
                return Err(self.stuck());
            }
            let until = {
                let mut world = self.shared.lock();
                if self.now >= self.scenario.calm_at && !world.calm {
                    world.note(format_args!("calm"));
                    world.calm = true;
                }
                let next = world.next_at().unwrap_or(Millis::MAX);
                next.max(self.now).min(self.now + LOOK)
            };
            let mut reached = until;
            let first = self.shared.lock().rng.within(0..=self.hosts.len() as u64 - 1) as usize;
            for turn in 0..self.hosts.len() {
                let host = (first + turn) % self.hosts.len();
                reached = reached.min(self.run_host(host, until)?);
            }
            self.now = self.now.max(reached);
            self.happen()?;
        }
    }

    /// Runs a host's process; gives the time that it has then.
    fn run_host(&mut self, host: usize, until: Millis) -> Result<Millis, String> {
        let Some(process) = self.hosts[host].as_mut().filter(|process| !process.frozen) else {
            return Ok(until);
        };
        let (now, ended) = process.run(until);
        let id = process.id;
        if self.shared.lock().is_dead(id) {
            // All its tasks are dropped where they stand.
            self.hosts[host] = None;
            self.restart(host);
        } else if let Some(ended) = ended
            && let Some(process) = self.hosts[host].take()
        {
            self.judge(host, &process, ended)?;
        }
        Ok(now)
    }

    fn restart(&mut self, host: usize) {
        if self.leaving {
            return;
        }
        let mut world = self.shared.lock();
        world.now = self.now;
        let after = if world.calm { 1 } else { world.rng.within(0..=5000) };
        world.schedule(after, Event::Action(Action::Start { host }));
    }

    /// Whether a process may end as it did.
    fn judge(
        &mut self,
        host: usize,
        process: &Process,
        ended: Result<Result<(), PipelineError>, tokio::task::JoinError>,
    ) -> Result<(), String> {
        let ended = ended.map_err(|error| format!("a task panicked: {error}"))?;
        {
            let mut world = self.shared.lock();
            world.now = self.now;
            match &ended {
                Ok(()) => world.note(format_args!("host {host}: the process ended")),
                Err(error) => world.note(format_args!("host {host}: the process ended: {}", error_chain(error))),
            }
        }
        match ended {
            Ok(()) if process.stopping => {}
            Ok(()) => return Err("a process ended that nobody asked to".to_owned()),
            Err(PipelineError::Halted(halt)) => self.mend(process.id, &halt.to_string())?,
            Err(error) if self.is_excused(process, &error) => {}
            Err(error) => return Err(format!("a process gave up: {}", error_chain(&error))),
        }
        self.restart(host);
        Ok(())
    }

    fn is_excused(&self, process: &Process, error: &PipelineError) -> bool {
        let world = self.shared.lock();
        let Process {
            stopping, asked_early, ..
        } = *process;
        // One that is asked to end when all is at rest has nothing that could fail, unless another instance's work does it.
        let all_at_rest = self.leaving && !asked_early;
        match error {
            // The pipeline's file asks to end over it.
            PipelineError::Checkpoint(error) if error.is_fenced() => self.scenario.ends_when_fenced(),
            PipelineError::Sink(SinkError::Delivery(error)) if error.kind == DeliveryErrorKind::Fenced => {
                self.scenario.ends_when_fenced()
            }
            // What cannot be saved at the end is told by the exit code.
            PipelineError::Checkpoint(_) => stopping && !all_at_rest,
            PipelineError::Sink(SinkError::Kafka(_)) => true,
            PipelineError::Sink(_) => world.hopeless,
            _ => false,
        }
    }

    /// A person looks at what halted a pipeline, and lets it be skipped.
    fn mend(&mut self, process: ProcessId, halt: &str) -> Result<(), String> {
        let mut world = self.shared.lock();
        let ProcessState { floor, policies, .. } = world.processes[process.0];
        let mut ahead = world.log.changes()[floor..].iter();
        let halts = |kind| match policy(kind, &policies) {
            Some(ErrorPolicy::Halt) => true,
            Some(ErrorPolicy::DeadLetter) => kind == Kind::TooLargeToPark && !world.scenario.has_stubs(),
            _ => false,
        };
        if !ahead.any(|change| halts(change.kind)) {
            return Err(format!("halted without a reason: {halt}"));
        }
        world.policies = ErrorPolicies {
            invalid: ErrorPolicy::Skip,
            unroutable: ErrorPolicy::Skip,
            rejected: ErrorPolicy::Skip,
        };
        Ok(())
    }

    /// Lets happen what is due.
    fn happen(&mut self) -> Result<(), String> {
        loop {
            let event = {
                let mut world = self.shared.lock();
                world.now = self.now;
                world.until = 0;
                match world.take_due(self.now) {
                    Some(event) => event,
                    None => return Ok(()),
                }
            };
            let mut world = self.shared.lock();
            match event {
                Event::LockFreed { connection } => world.free_lock(connection),
                Event::Delivery(delivery) => {
                    let process = delivery.inside().map(|producer| world.broker.process(producer));
                    match process {
                        Some(process) if world.processes[process.0].frozen => {
                            world.processes[process.0].held.push(Event::Delivery(delivery));
                        }
                        _ => world.happen(delivery),
                    }
                }
                Event::Action(action) => {
                    drop(world);
                    self.act(action);
                    continue;
                }
            }
            drop(world);
            self.bury();
        }
    }

    /// Drops the processes that died of what happened.
    fn bury(&mut self) {
        for host in 0..self.hosts.len() {
            let dead = |process: &Process| self.shared.lock().is_dead(process.id);
            if self.hosts[host].as_ref().is_some_and(dead) {
                self.hosts[host] = None;
                self.restart(host);
            }
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Start { host } => {
                if self.hosts[host].is_none() && !self.leaving {
                    self.hosts[host] = Some(Process::start(&self.shared, &self.scenario, host, self.now));
                }
            }
            Action::Stop { host } => {
                if let Some(process) = &mut self.hosts[host] {
                    self.shared
                        .lock()
                        .note(format_args!("process {} is asked to end", process.id.0));
                    (process.stopping, process.asked_early) = (true, true);
                    process.stop.cancel();
                }
            }
            Action::Cut { host } => {
                if let Some(process) = &self.hosts[host] {
                    self.shared.lock().server_loses(process.id);
                }
            }
            Action::Freeze { host, millis } => {
                let Some(process) = self.hosts[host].as_mut().filter(|process| !process.frozen) else {
                    return;
                };
                process.frozen = true;
                let mut world = self.shared.lock();
                world.processes[process.id.0].frozen = true;
                world.note(format_args!("process {} is frozen", process.id.0));
                world.schedule(millis, Event::Action(Action::Thaw { host }));
                if millis > SERVER_PATIENCE {
                    world.schedule(SERVER_PATIENCE, Event::Action(Action::Cut { host }));
                }
            }
            Action::Thaw { host } => self.thaw(host),
            Action::Pause { host, millis } => {
                if self.hold(host, true) {
                    let mut world = self.shared.lock();
                    world.schedule(millis, Event::Action(Action::Resume { host }));
                }
            }
            Action::Resume { host } => {
                self.hold(host, false);
            }
        }
    }

    /// False: nothing runs there, or it is so already.
    fn hold(&mut self, host: usize, paused: bool) -> bool {
        let Some(process) = &self.hosts[host] else {
            return false;
        };
        let changes = process.status.pause(paused);
        if changes {
            let what = if paused { "paused" } else { "resumed" };
            self.shared
                .lock()
                .note(format_args!("process {} is {what}", process.id.0));
        }
        changes
    }

    fn thaw(&mut self, host: usize) {
        let Some(process) = self.hosts[host].as_mut().filter(|process| process.frozen) else {
            return;
        };
        process.frozen = false;
        {
            let mut world = self.shared.lock();
            let state = &mut world.processes[process.id.0];
            state.frozen = false;
            let held = std::mem::take(&mut state.held);
            world.note(format_args!("process {} goes on", process.id.0));
            for event in held {
                let after = world.rng.within(0..=20);
                world.schedule(after, event);
            }
        }
        let gap = self.now.saturating_sub(process.time());
        process.runtime.block_on(advance(Duration::from_millis(gap)));
        self.bury();
    }

    /// Looks at the rules that hold at any time, and whether all is done.
    fn look(&mut self) -> Result<(), String> {
        if let Some(violation) = self.shared.lock().violation() {
            return Err(violation.to_owned());
        }
        for process in self.hosts.iter().flatten() {
            let mut sum = Ok(());
            process.status.count(|totals| {
                if totals.settled() > totals.received {
                    sum = Err(format!(
                        "{} are settled, {} received",
                        totals.settled(),
                        totals.received
                    ));
                }
            });
            sum?;
        }
        let rests = {
            let world = self.shared.lock();
            self.now >= self.scenario.calm_at + AFTERMATH && world.server.confirmed() == world.log.unit_count()
        };
        let awake = self.hosts.iter().flatten().all(|process| !process.frozen);
        if rests && awake && !self.leaving {
            self.rest()?;
        }
        Ok(())
    }

    /// All of the log is confirmed: it must be in the sink, and counted.
    fn rest(&mut self) -> Result<(), String> {
        {
            let mut world = self.shared.lock();
            let count = world.log.changes().len();
            world.note(format_args!("at rest"));
            world.check_settled(count, "at the end");
            if let Some(violation) = world.violation() {
                return Err(violation.to_owned());
            }
        }
        for process in self.hosts.iter_mut().flatten() {
            let began = self.shared.lock().processes[process.id.0].began;
            self.scenario.check_account(&process.status.snapshot().totals, began)?;
            process.stopping = true;
            process.stop.cancel();
        }
        self.leaving = true;
        Ok(())
    }

    fn stuck(&self) -> String {
        let world = self.shared.lock();
        let states: Vec<String> = self
            .hosts
            .iter()
            .flatten()
            .map(|process| format!("{:?}", process.status.snapshot().state))
            .collect();
        format!(
            "stuck: {} of {} units confirmed, {} changes saved, settled up to {}; leaving: {}; {states:?}",
            world.server.confirmed(),
            world.log.unit_count(),
            world.saved.done,
            world.rules.frontier(),
            self.leaving,
        )
    }
}
