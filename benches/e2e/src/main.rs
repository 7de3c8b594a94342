//! The end-to-end benchmark: the release binary drains backlogs of real servers to a real broker, each against its yardstick in
//! the same run. `make bench` runs it; the binary's command line and its files are all that it shares with the product.
//!
//! A drain is timed from the start of a process until the broker has its last record; what writes no records, until its exit at
//! the log's end of that moment. What was published is read back off the clock and must be whole and in order, or there are no
//! results.

#![allow(unreachable_pub)] // a program: nothing of it is reached from outside

mod backlogs_mysql;
mod backlogs_postgres;
mod bench;
mod compare;
mod error;
mod event;
mod growth;
mod kafka;
mod latency;
mod machine;
mod mysql;
mod pipeline;
mod plot;
mod postgres;
mod process;
mod producer;
mod report;
mod results;
mod servers;
mod settings;
mod start;
mod warm;

use std::process::ExitCode;

use crate::backlogs_postgres::{Layers, PAD};
use crate::bench::Bench;
use crate::error::BenchError;
use crate::event::{Expected, Payload, Spacing};
use crate::mysql::{Flavor, Mysql};
use crate::postgres::Postgres;
use crate::results::{Results, Start};
use crate::settings::Settings;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let ended = match arguments.split_first() {
        Some((first, rest)) if first == producer::ARGUMENT => producer::main(rest),
        _ => measure(),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprint!("{error}");
            let mut cause = std::error::Error::source(&error);
            while let Some(error) = cause {
                eprint!(": {error}");
                cause = error.source();
            }
            eprintln!();
            ExitCode::FAILURE
        }
    }
}

/// Each group of rows with the servers as those before it left them: what waited in a log is gone, as it would be read again.
/// The page is written anew behind each, so that a run that is broken off leaves what it had.
fn measure() -> Result<(), BenchError> {
    let bench = Bench::new(Settings::from_environment()?)?;
    let server = Postgres::from_environment()?;
    let mysqls = [
        Mysql::from_environment(Flavor::Mysql)?,
        Mysql::from_environment(Flavor::Mariadb)?,
    ];
    let mut results = Results {
        machine: machine::describe(&bench, &server, &mysqls)?,
        binary_bytes: bench.tailpost.size()?,
        ..Results::default()
    };
    let events = bench.settings.events(backlogs_postgres::EVENTS);
    producer::warm_up(&bench, &Expected::written(0..events, PAD))?;
    let so_far = |results: &Results| report::write(results, &bench.settings.results);
    messages(&bench, &mut results, &server)?;
    so_far(&results)?;
    for server in &mysqls {
        backlogs_mysql::of(&bench, &mut results, server)?;
        so_far(&results)?;
    }
    latencies(&bench, &mut results, &server, &mysqls)?;
    so_far(&results)?;
    backlogs_postgres::of_shapes(&bench, &mut results, &server)?;
    so_far(&results)?;
    growing_messages(&bench, &mut results, &server)?;
    so_far(&results)?;
    growth::of_rows(&bench, &mut results, &server)?;
    results.judge_memory();
    results.complete = true;
    so_far(&results)
}

/// Messages of 270 B in PostgreSQL's log, 100 a transaction.
fn messages(bench: &Bench, results: &mut Results, server: &Postgres) -> Result<(), BenchError> {
    let rows = ["postgres-tcp", "postgres-socket", "exactly-once", "start"];
    if !bench.settings.wants_any(&rows) {
        return Ok(());
    }
    let mut sizes = vec![backlogs_postgres::EVENTS];
    if bench.settings.wants("exactly-once") {
        sizes.push(backlogs_postgres::MANY);
    }
    let layers = Layers::fill(bench, server, sizes)?;
    backlogs_postgres::of_batches(bench, results, |size| layers.waiting(size))?;
    if bench.settings.wants("start") {
        let seconds = layers.waiting(1).first_event(bench)?;
        results.start.push(Start {
            title: "PostgreSQL".to_owned(),
            seconds,
        });
    }
    Ok(())
}

/// The same in growing numbers.
fn growing_messages(bench: &Bench, results: &mut Results, server: &Postgres) -> Result<(), BenchError> {
    let sizes = growth::backlogs(bench);
    if sizes.is_empty() {
        return Ok(());
    }
    let layers = Layers::fill(bench, server, sizes)?;
    if bench.settings.wants("growth-backlog") {
        growth::of_backlogs(bench, results, |size| layers.waiting(size))?;
    }
    if bench.settings.wants("growth-pipelines") {
        growth::of_pipelines(bench, results, |size| layers.waiting(size))?;
    }
    Ok(())
}

fn latencies(bench: &Bench, results: &mut Results, server: &Postgres, mysqls: &[Mysql]) -> Result<(), BenchError> {
    let payload = |spacing| Payload { pad: PAD, spacing };
    if bench.settings.wants("latency-postgres") {
        let name = bench.unique_name();
        let mut backlog = server.backlog(&name)?;
        backlog.slot("all")?;
        let slot = backlog.twin("all", "one")?;
        let subject = latency::Subject {
            row: "latency-postgres",
            database: "PostgreSQL",
            pipeline: backlogs_postgres::pipeline(&name, &backlog.dsn(postgres::Way::Tcp), &slot, &name),
            payload: payload(Spacing::Written),
            commit: &mut backlog.committer(PAD)?,
        };
        latency::measure(bench, results, subject)?;
    }
    for server in mysqls {
        let row = format!("latency-{}", server.flavor.name());
        if bench.settings.wants(&row) {
            let name = bench.unique_name();
            let mut backlog = server.backlog(&name)?;
            let subject = latency::Subject {
                row: &row,
                database: server.flavor.title(),
                pipeline: backlogs_mysql::pipeline(&name, backlog.source(), &name),
                payload: payload(server.flavor.spacing()),
                commit: &mut backlog.committer(PAD)?,
            };
            latency::measure(bench, results, subject)?;
        }
    }
    Ok(())
}
