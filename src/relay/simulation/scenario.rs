//! What a seed stands for: a pipeline, a log, and how often what goes wrong.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::log::{Flavor, Kind, Log, Size};
use super::rng::Rng;
use super::world::{Action, Millis};
use crate::config::{self, Delivery, ErrorPolicies, ErrorPolicy, OnFenced, OversizedDeadLetter, Pipeline, Restart};
use crate::telemetry::status::Totals;

/// Where the position is, and who writes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// In a file of one machine.
    File,
    /// Where any machine can go on from it.
    Shared,
    /// With the records, in one transaction.
    ExactlyOnce,
}

impl Mode {
    pub(super) fn is_shared(self) -> bool {
        self != Self::File
    }
}

/// Faults in a thousand chances.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Odds {
    /// Something takes seconds.
    pub(super) slow: u64,
    pub(super) not_ready: u64,
    /// A batch fails.
    pub(super) fail: u64,
    /// A producer breaks.
    pub(super) broken: u64,
    /// A commit fails, or nobody is told how it fared.
    pub(super) commit: u64,
    /// A transaction takes too long.
    pub(super) expire: u64,
    pub(super) connect: u64,
    pub(super) disconnect: u64,
    pub(super) save: u64,
    /// The claim or the checkpoint's reading fails.
    pub(super) load: u64,
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct Scenario {
    pub(super) seed: u64,
    pub(super) mode: Mode,
    pub(super) pipeline: Pipeline,
    pub(super) log: Arc<Log>,
    pub(super) odds: Odds,
    /// Steps before which the process that would take them dies.
    pub(super) crashes: BTreeSet<u64>,
    pub(super) actions: Vec<(Millis, Action)>,
    /// Machines that run the pipeline.
    pub(super) hosts: usize,
    /// Changes in a batch, at most.
    pub(super) batch: u64,
    /// When faults end.
    pub(super) calm_at: Millis,
}

impl Scenario {
    pub(super) fn of(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let mode = rng.pick(&[Mode::File, Mode::Shared, Mode::ExactlyOnce]);
        let flavor = rng.pick(&[Flavor::Postgres, Flavor::Postgres, Flavor::Mysql]);
        let size = Size {
            units: rng.within(3..=25),
            changes: rng.within(1..=6),
            huge: if rng.chance(150) { rng.within(20..=150) } else { 0 },
            bad: if rng.chance(500) { rng.within(10..=300) } else { 0 },
            keys: rng.within(1..=5),
            gap: rng.pick(&[10, 200, 1500]),
        };
        let log = Log::new(&mut rng, flavor, size);
        // Each kind of fault is there or not: where all are, few runs come far.
        let mut odds = |most: u64| if rng.chance(400) { rng.within(1..=most) } else { 0 };
        let odds = Odds {
            slow: odds(60),
            not_ready: odds(100),
            fail: odds(100),
            broken: odds(30),
            commit: odds(200),
            expire: odds(100),
            connect: odds(300),
            disconnect: odds(100),
            save: odds(300),
            load: odds(300),
        };
        let events = log.changes().len() as u64;
        let crashes = match rng.chance(500) {
            true => (0..rng.within(1..=4))
                .map(|_| rng.within(1..=30 + events * 5))
                .collect(),
            false => BTreeSet::new(),
        };
        let hosts = if mode.is_shared() && rng.chance(400) { 2 } else { 1 };
        let span = log.last_at() + 20_000;
        let mut actions = vec![(0, Action::Start { host: 0 })];
        if hosts > 1 {
            actions.push((rng.within(0..=span / 2), Action::Start { host: 1 }));
        }
        for _ in 0..if rng.chance(400) { rng.within(1..=4) } else { 0 } {
            let host = rng.within(0..=hosts as u64 - 1) as usize;
            let action = match rng.within(0..=2) {
                0 => Action::Stop { host },
                1 => Action::Freeze {
                    host,
                    millis: rng.within(1..=30_000),
                },
                _ => Action::Cut { host },
            };
            actions.push((rng.within(0..=span), action));
        }
        for _ in 0..if rng.chance(300) { rng.within(1..=4) } else { 0 } {
            let host = rng.within(0..=hosts as u64 - 1) as usize;
            let millis = rng.within(1..=20_000);
            actions.push((rng.within(0..=span), Action::Pause { host, millis }));
        }
        let mut pipeline = pipeline().clone();
        pipeline.errors = policies(&mut rng);
        pipeline.delivery = Delivery {
            max_in_flight_events: rng.pick(&[1, 2, 3, 8, 64, 1000]),
            max_in_flight_bytes: rng.pick(&[1, 3000, 1 << 20]),
            drain_timeout: Duration::from_millis(rng.pick(&[0, 300, 5000])),
            stall_timeout: Duration::from_millis(rng.pick(&[1000, 5000, 60_000])),
            transaction_interval: Duration::from_millis(rng.pick(&[1, 50, 1000])),
            ..pipeline.delivery
        };
        if let Some(dead_letter) = &mut pipeline.dead_letter {
            dead_letter.oversized = rng.pick(&[OversizedDeadLetter::Halt, OversizedDeadLetter::Stub]);
        }
        let config::Sink::Kafka(kafka) = &mut pipeline.sink else {
            panic!("the scenario's sink is of type kafka")
        };
        kafka.exactly_once = mode == Mode::ExactlyOnce;
        kafka.on_fenced = rng.pick(&[OnFenced::StandBy, OnFenced::Stop]);
        Self {
            seed,
            mode,
            pipeline,
            odds,
            crashes,
            actions,
            hosts,
            batch: rng.pick(&[1, 3, 10, 100]),
            calm_at: span,
            log: Arc::new(log),
        }
    }

    /// Whether an instance that is shut out again and again ends.
    pub(super) fn ends_when_fenced(&self) -> bool {
        let kafka = self.pipeline.sink.kafka();
        kafka.is_some_and(|kafka| kafka.on_fenced == OnFenced::Stop)
    }

    /// Whether a dead letter that is too large is parked without its bytes.
    pub(super) fn has_stubs(&self) -> bool {
        let dead_letter = self.pipeline.dead_letter.as_ref();
        dead_letter.is_some_and(|dead_letter| dead_letter.oversized == OversizedDeadLetter::Stub)
    }

    /// Whether a process that has come to rest counted everything: what was received is settled. `began` is how many changes
    /// were done before it.
    pub(super) fn check_account(&self, totals: &Totals, began: Option<usize>) -> Result<(), String> {
        // What another instance took over stays in flight in the account of the one that had it.
        if self.hosts > 1 {
            return Ok(());
        }
        // One that has only just started has not read the checkpoint.
        let Some(began) = began else { return Ok(()) };
        let come = (self.log.changes().len() - began) as u64;
        let (received, settled) = (totals.received, totals.settled());
        let tally = format!("{received} received, {settled} settled, of {come} behind {began}: {totals:?}");
        if received != settled {
            return Err(format!("an account that is open: {tally}"));
        }
        // Alone, it has received everything that came, once. What is none of the pipeline's can be read again, where a life
        // begins inside a batch; a checkpoint that was saved in vain brings back what was counted.
        let foreign = self.log.changes().iter().any(|change| change.kind == Kind::Foreign);
        let exact = !foreign && self.mode != Mode::Shared;
        if exact && received != come {
            return Err(format!("an account that is wrong: {tally}"));
        }
        Ok(())
    }

    /// Little and without a fault but one death, before that step.
    pub(super) fn with_one_crash(mode: Mode, step: u64) -> Self {
        let mut rng = Rng::new(17);
        let size = Size {
            units: 6,
            changes: 3,
            huge: 0,
            bad: 100,
            keys: 2,
            gap: 600,
        };
        let log = Log::new(&mut rng, Flavor::Postgres, size);
        let mut pipeline = pipeline().clone();
        pipeline.errors = ErrorPolicies {
            invalid: ErrorPolicy::Skip,
            unroutable: ErrorPolicy::Skip,
            rejected: ErrorPolicy::DeadLetter,
        };
        Self {
            seed: 17,
            mode,
            pipeline,
            odds: Odds::default(),
            crashes: BTreeSet::from([step]),
            actions: vec![(0, Action::Start { host: 0 })],
            hosts: 1,
            batch: 2,
            calm_at: log.last_at() + 5000,
            log: Arc::new(log),
        }
    }
}

fn policies(rng: &mut Rng) -> ErrorPolicies {
    let choices = [ErrorPolicy::Skip, ErrorPolicy::DeadLetter, ErrorPolicy::Halt];
    ErrorPolicies {
        invalid: rng.pick(&choices),
        unroutable: rng.pick(&choices),
        rejected: rng.pick(&choices),
    }
}

/// What all scenarios share of their pipeline.
fn pipeline() -> &'static Pipeline {
    static PIPELINE: OnceLock<Pipeline> = OnceLock::new();
    const TEXT: &str = "\
        {apiVersion: tailpost/v1, kind: Pipeline, metadata: {name: p}, spec: {\
        source: {type: postgres, config: {id: s, dsn: 'postgres://u@h/d', slot: s, publication: p, outbox: {prefixes: [o]}}}, \
        processors: [{type: outbox, default_topic: t, raw_payload: true}], \
        sinks: [{type: kafka, config: {id: k, brokers: 'h:1'}}], \
        dead_letter: {type: kafka, config: {topic: dead}}}}";
    PIPELINE.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p.yaml");
        std::fs::write(&path, TEXT).unwrap();
        let mut pipeline = config::load(&path, &HashMap::new()).unwrap().pipeline;
        // Without jitter, which is no seed's.
        pipeline.restart = Restart {
            base_delay: Duration::from_millis(50),
            max_delay: Duration::from_secs(5),
            multiplier: 2.0,
            jitter: (1.0, 1.0),
        };
        pipeline
    })
}
