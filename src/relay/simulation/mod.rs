//! The whole of a pipeline but its servers, in one thread under virtual time: relay, ledger, supervisor and saver against a
//! simulated log, sink and checkpoint that fail in every way that they can.
//!
//! A seed is a run, and the same seed is the same run. The rules of delivery are checked at each step of the world
//! (`world`, `rules`), whatever the processes say of themselves. To see a run that failed, and to make more of them:
//!
//! ```text
//! TAILPOST_SIM_FROM=17 TAILPOST_SIM_SEEDS=1 cargo test --lib simulation::seeds_keep
//! make simulate SEEDS=1000000 FROM=0
//! ```

mod broker;
mod driver;
mod log;
mod parts;
mod rng;
mod rules;
mod scenario;
mod server;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use driver::{Failure, Report};
use scenario::{Mode, Scenario};

/// Seeds in each run of the tests.
const SEEDS: u64 = 2000;
/// A run takes some hundredths of a second.
const LONGEST_RUN: Duration = Duration::from_secs(30);
/// What is shown of a run that failed.
const LAST_LINES: usize = 150;

fn run(scenario: Scenario, traced: bool) -> Result<Report, Failure> {
    catch_unwind(AssertUnwindSafe(|| driver::run(scenario, traced))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        Err(Failure {
            what: format!("panic: {}", text.unwrap_or_default()),
            trace: Vec::new(),
        })
    })
}

fn number(variable: &str, default: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => text.parse().expect(variable),
        Err(_) => default,
    }
}

fn assert_holds(name: &str, make: impl Fn() -> Scenario) -> Report {
    match run(make(), false) {
        Ok(report) => report,
        Err(failure) => {
            let Err(Failure { what, trace }) = run(make(), true) else {
                panic!("{name}: {}; not when it is run again", failure.what);
            };
            let shown = trace.len().saturating_sub(LAST_LINES);
            for line in &trace[shown..] {
                eprintln!("{line}");
            }
            panic!("{name}: {what}");
        }
    }
}

/// What all runs together came to.
#[derive(Debug, Default)]
struct Tally {
    runs: AtomicU64,
    steps: AtomicU64,
    processes: AtomicU64,
    doubled: AtomicU64,
    over: AtomicBool,
}

/// Ends the process when no run comes to its end: virtual time stands still in a loop that never waits.
fn watch(tally: &Tally) {
    let (mut runs, mut since) = (0, Instant::now());
    while !tally.over.load(Ordering::Relaxed) {
        std::thread::park_timeout(Duration::from_secs(1));
        let now = tally.runs.load(Ordering::Relaxed);
        if now != runs {
            (runs, since) = (now, Instant::now());
        }
        if since.elapsed() > LONGEST_RUN {
            eprintln!("no run has ended for {LONGEST_RUN:?}, behind {tally:?}: one of the next seeds never waits");
            std::process::abort();
        }
    }
}

/// Runs every so many-th seed; says each time how far all threads have come.
fn run_seeds(seeds: impl Iterator<Item = u64>, tally: &Tally) {
    for seed in seeds {
        let report = assert_holds(&format!("seed {seed}"), || Scenario::of(seed));
        tally.steps.fetch_add(report.steps, Ordering::Relaxed);
        tally.processes.fetch_add(report.processes as u64, Ordering::Relaxed);
        tally.doubled.fetch_add(report.doubled as u64, Ordering::Relaxed);
        let runs = tally.runs.fetch_add(1, Ordering::Relaxed) + 1;
        if runs.is_multiple_of(10_000) {
            eprintln!("{runs} runs: {tally:?}");
        }
    }
}

#[test]
fn seeds_keep_every_rule() {
    let from = number("TAILPOST_SIM_FROM", 0);
    let count = number("TAILPOST_SIM_SEEDS", SEEDS);
    let threads = number("TAILPOST_SIM_THREADS", 1);
    let tally = Tally::default();
    std::thread::scope(|scope| {
        let tally = &tally;
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let seeds = (from + thread..from + count).step_by(usize::try_from(threads).unwrap());
                scope.spawn(move || run_seeds(seeds, tally))
            })
            .collect();
        let watch = scope.spawn(move || watch(tally));
        let ended: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        tally.over.store(true, Ordering::Relaxed);
        watch.thread().unpark();
        for ended in ended {
            ended.expect("a seed broke a rule: see above");
        }
    });
    eprintln!("{count} seeds from {from}: {tally:?}");
}

#[test]
fn the_same_seed_is_the_same_run() {
    for seed in 0..30 {
        let [first, second] = [(); 2].map(|()| run(Scenario::of(seed), true));
        match (first, second) {
            (Ok(first), Ok(second)) => assert_eq!(first, second, "seed {seed}"),
            (first, second) => panic!("seed {seed}: {first:?}, {second:?}"),
        }
    }
}

#[test]
fn a_death_before_each_step_loses_nothing() {
    for mode in [Mode::File, Mode::Shared, Mode::ExactlyOnce] {
        let mut step = 1;
        loop {
            let report = assert_holds(&format!("{mode:?}, death before step {step}"), || {
                Scenario::with_one_crash(mode, step)
            });
            if report.processes == 1 {
                break;
            }
            step += 1;
        }
    }
}
