//! The same work in growing sizes: backlogs, pipelines in one process, columns and headers. What one event costs should not
//! grow with the first two, and grow with no more than their bytes with the others.

use std::cell::RefCell;
use std::thread;
use std::time::{Duration, Instant};

use crate::backlogs_postgres::{self, PAD, Waiting};
use crate::bench::Bench;
use crate::error::BenchError;
use crate::event::Expected;
use crate::pipeline::{Delivery, Pipeline};
use crate::postgres::{Backlog, PUBLICATION, Postgres, Way};
use crate::process::Usage;
use crate::results::{Growth, RSS_TARGET_MB, Results, Size};

pub const BACKLOGS: [u64; 4] = [10_000, 100_000, 1_000_000, 5_000_000];
/// In one process; together they publish [`PIPELINE_EVENTS`].
const PIPELINES: [u64; 3] = [1, 10, 100];
const PIPELINE_EVENTS: u64 = 500_000;
const ROWS: u64 = 100_000;
const COLUMNS: [u64; 4] = [1, 5, 20, 50];
const HEADERS: [u64; 3] = [1, 5, 20];
const IDLE: Duration = Duration::from_secs(5);
/// For all pipelines to stream.
const PATIENCE: Duration = Duration::from_secs(60);
const IDLE_TARGET_MB: f64 = 100.0;
const FLAT: f64 = 1.1;

/// How many events each pipeline of so many publishes.
pub fn share(pipelines: u64) -> u64 {
    PIPELINE_EVENTS / pipelines
}

/// The backlogs that the rows of this module begin at, counted from the log's end.
pub fn backlogs(bench: &Bench) -> Vec<u64> {
    let mut wanted = Vec::new();
    if bench.settings.wants("growth-backlog") {
        wanted.extend(BACKLOGS);
    }
    if bench.settings.wants("growth-pipelines") {
        wanted.extend(PIPELINES.map(share));
    }
    wanted
}

/// Larger backlogs in turn, so that a disturbance does not hit one size only. `waiting` gives the one of so many events.
pub fn of_backlogs<'a, 'b: 'a>(
    bench: &Bench,
    results: &mut Results,
    waiting: impl Fn(u64) -> Waiting<'a, 'b>,
) -> Result<(), BenchError> {
    let sizes = [1].into_iter().chain(BACKLOGS);
    let mut sizes: Vec<(Size, Waiting<'_, '_>)> = sizes.map(|size| (Size::new(size, size), waiting(size))).collect();
    for round in 0..bench.settings.pairs {
        for (size, waiting) in &mut sizes {
            // Two of the largest are as long as all others together.
            if size.size > 1_000_000 && round >= 2 {
                continue;
            }
            let usage = waiting.drain(bench, &bench.unique_name(), Way::Tcp, Delivery::AtLeastOnce)?;
            size.events = waiting.expected.count();
            report("growth-backlog", size.size, &usage);
            size.runs.push(usage);
        }
    }
    let mut sizes: Vec<Size> = sizes.into_iter().map(|(size, _)| size).collect();
    // The run over one event: start, preflight, stop.
    let frame = sizes.remove(0).seconds();
    for size in &mut sizes {
        for run in &mut size.runs {
            run.seconds -= frame;
        }
    }
    let largest = sizes.last().map(Size::peak_rss).unwrap_or_default();
    results.judge_most(
        "PostgreSQL, 5,000,000: peak RSS".to_owned(),
        largest as f64 / 1e6,
        RSS_TARGET_MB,
        "MB",
        None,
    );
    let per_event: Vec<f64> = sizes
        .iter()
        .map(|size| size.seconds() * 1e6 / size.events as f64)
        .collect();
    let what = "PostgreSQL, 10,000 to 5,000,000: time per event against that of any smaller backlog".to_owned();
    let each: Vec<String> = per_event.iter().map(|micros| format!("{micros:.2}")).collect();
    let beside = format!("the sizes took {} us an event", each.join(", "));
    results.judge_most(what, growth(&per_event), FLAT, "times", Some(beside));
    results.growth.push(Growth {
        row: "growth-backlog".to_owned(),
        title: "PostgreSQL, 100 a transaction, TCP, less the time of a run over one event".to_owned(),
        of: "events".to_owned(),
        sizes,
    });
    Ok(())
}

/// How many times as much as any before it one of them is, at most.
fn growth(each: &[f64]) -> f64 {
    let mut least = f64::MAX;
    each.iter().fold(0.0, |most: f64, value| {
        least = least.min(*value);
        most.max(value / least)
    })
}

/// Many pipelines in one process, each with a slot and a topic: idle, then with a backlog that has the same size in all.
pub fn of_pipelines<'a, 'b: 'a>(
    bench: &Bench,
    results: &mut Results,
    waiting: impl Fn(u64) -> Waiting<'a, 'b>,
) -> Result<(), BenchError> {
    let mut idle = Vec::new();
    let mut draining = Vec::new();
    for count in PIPELINES {
        let waiting = waiting(share(count));
        let usage = idling(bench, waiting.backlog, count)?;
        report("growth-pipelines, idle", count, &usage);
        let mut size = Size::new(count, 0);
        size.runs.push(usage);
        idle.push(size);
        let mut size = Size::new(count, count * waiting.expected.count());
        // To make a hundred slots and to read a hundred topics takes longer than all that is measured.
        let rounds = if count < 100 { 3 } else { 2 };
        for _ in 0..bench.settings.pairs.min(rounds) {
            let usage = draining_together(bench, &waiting, count)?;
            report("growth-pipelines", count, &usage);
            size.runs.push(usage);
        }
        draining.push(size);
    }
    let resident = idle.last().map(Size::peak_rss).unwrap_or_default();
    results.judge_most(
        "100 pipelines, idle: RSS".to_owned(),
        resident as f64 / 1e6,
        IDLE_TARGET_MB,
        "MB",
        None,
    );
    for (title, sizes) in [
        ("PostgreSQL, 500,000 events in all", draining),
        ("PostgreSQL, idle for 5 s, memory and CPU of that time", idle),
    ] {
        results.growth.push(Growth {
            row: "growth-pipelines".to_owned(),
            title: title.to_owned(),
            of: "pipelines".to_owned(),
            sizes,
        });
    }
    Ok(())
}

fn each(backlog: &RefCell<Backlog<'_>>, name: &str, slot: &str, count: u64) -> Result<Vec<Pipeline>, BenchError> {
    let dsn = backlog.borrow().dsn(Way::Tcp);
    let names = (0..count).map(|at| format!("{name}p{at}"));
    names
        .map(|name| {
            let twin = backlog.borrow_mut().twin(slot, &name)?;
            Ok(backlogs_postgres::pipeline(&name, &dsn, &twin, &name))
        })
        .collect()
}

fn draining_together(bench: &Bench, waiting: &Waiting<'_, '_>, count: u64) -> Result<Usage, BenchError> {
    let pipelines = each(waiting.backlog, &bench.unique_name(), &waiting.slot, count)?;
    let usage = bench.verified_drain(&pipelines, 1, &waiting.expected)?;
    waiting.backlog.borrow_mut().drop_slots_of(&pipelines)?;
    Ok(usage)
}

fn idling(bench: &Bench, backlog: &RefCell<Backlog<'_>>, count: u64) -> Result<Usage, BenchError> {
    let name = bench.unique_name();
    backlog.borrow_mut().slot(&name)?;
    let pipelines = each(backlog, &name, &name, count)?;
    let names = pipelines.iter().map(|pipeline| pipeline.topic.clone()).collect();
    let _topics = bench.broker.topics(names, 1)?;
    let mut running = bench.tailpost.start(&pipelines)?;
    let deadline = Instant::now() + PATIENCE;
    while (backlog.borrow_mut().readers()? as u64) < count {
        if Instant::now() > deadline {
            return Err(BenchError::Late {
                what: format!("{count} pipelines that stream"),
                seconds: PATIENCE.as_secs(),
            });
        }
        thread::sleep(Duration::from_millis(50));
    }
    let before = running.usage()?;
    thread::sleep(IDLE);
    let after = running.usage()?;
    let resident = running.resident();
    running.stop()?;
    backlog.borrow_mut().drop_slots_of(&pipelines)?;
    backlog.borrow_mut().drop_own_slot(&name)?;
    Ok(Usage {
        seconds: IDLE.as_secs_f64(),
        cpu_seconds: after.cpu_seconds - before.cpu_seconds,
        // Of now: the start is over.
        peak_rss_bytes: resident,
        ..after
    })
}

/// An outbox table of growing width, and growing numbers of its columns as headers.
pub fn of_rows(bench: &Bench, results: &mut Results, server: &Postgres) -> Result<(), BenchError> {
    if bench.settings.wants("growth-columns") {
        let mut sizes = Vec::new();
        for columns in COLUMNS {
            sizes.push(of_table(bench, server, columns, &[0])?.remove(0));
        }
        results.growth.push(Growth {
            row: "growth-columns".to_owned(),
            title: "PostgreSQL, an outbox table, 100 rows a transaction".to_owned(),
            of: "columns".to_owned(),
            sizes,
        });
    }
    if bench.settings.wants("growth-headers") {
        results.growth.push(Growth {
            row: "growth-headers".to_owned(),
            title: "PostgreSQL, an outbox table of 50 columns, headers beside the own four".to_owned(),
            of: "headers".to_owned(),
            sizes: of_table(bench, server, 50, &HEADERS)?,
        });
    }
    Ok(())
}

/// Drains a table's rows with each of these numbers of headers.
fn of_table(bench: &Bench, server: &Postgres, columns: u64, headers: &[u64]) -> Result<Vec<Size>, BenchError> {
    let all = Expected {
        keyed: columns >= 5,
        ..Expected::written(0..bench.settings.events(ROWS), PAD)
    };
    let backlog = RefCell::new(server.backlog(&bench.unique_name())?);
    backlog.borrow_mut().outbox_table(columns)?;
    backlog.borrow_mut().slot("all")?;
    backlog.borrow_mut().fill_table(all.numbers.clone(), 100, PAD)?;
    let dsn = backlog.borrow().dsn(Way::Tcp);
    let mut sizes = Vec::new();
    for &count in headers {
        let more: Vec<String> = (0..count).map(|at| format!("h{at}: c{at}")).collect();
        let mut size = Size::new(if count == 0 { columns } else { count }, all.count());
        for _ in 0..bench.settings.pairs.min(3) {
            let name = bench.unique_name();
            let slot = backlog.borrow_mut().twin("all", &name)?;
            let pipeline = Pipeline {
                source: format!(
                    "{{type: postgres, config: {{id: pg, dsn: '{dsn}', slot: {slot}, publication: {PUBLICATION}, \
                     outbox: {{tables: [public.outbox]}}}}}}"
                ),
                processor: format!(", additional_headers: {{{}}}", more.join(", ")),
                ..backlogs_postgres::pipeline(&name, &dsn, &slot, &name)
            };
            let usage = bench.verified_drain(&[pipeline], crate::kafka::PARTITIONS, &all)?;
            backlog.borrow_mut().drop_slot(&slot)?;
            report(&format!("{columns} columns, headers"), count, &usage);
            size.runs.push(usage);
        }
        sizes.push(size);
    }
    Ok(sizes)
}

fn report(row: &str, size: u64, usage: &Usage) {
    eprintln!(
        "{row}: {size}: {:.2} s, CPU {:.2} s, peak {:.1} MB, {} threads",
        usage.seconds,
        usage.cpu_seconds,
        usage.peak_rss_bytes as f64 / 1e6,
        usage.threads
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_against_what_was_smaller() {
        assert_eq!(growth(&[4.0, 3.0, 2.0]), 1.0, "it only falls");
        assert_eq!(growth(&[4.0, 2.0, 3.0]), 1.5);
        assert_eq!(growth(&[2.0, 4.0, 1.0]), 2.0);
    }
}
