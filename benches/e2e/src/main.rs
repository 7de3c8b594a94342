//! The end-to-end benchmark: the release binary drains backlogs of real servers to a real broker, each against its yardstick in
//! the same run. `make bench` runs it; the binary's command line and its files are all that it shares with the product.
//!
//! Both sides of a drain are timed from the start of a process to its exit at the log's end of that moment. What a drain
//! published is read back off the clock and must be whole and in order, or there are no results.

#![allow(unreachable_pub)] // a program: nothing of it is reached from outside

mod backlogs_mysql;
mod backlogs_postgres;
mod bench;
mod compare;
mod error;
mod event;
mod kafka;
mod mysql;
mod pipeline;
mod postgres;
mod process;
mod producer;
mod results;
mod servers;
mod settings;

use std::cell::RefCell;
use std::process::ExitCode;

use crate::backlogs_postgres::{PAD, Waiting};
use crate::bench::Bench;
use crate::error::BenchError;
use crate::event::{Expected, Payload, Spacing};
use crate::mysql::{Flavor, Mysql};
use crate::postgres::Postgres;
use crate::results::Results;
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

fn measure() -> Result<(), BenchError> {
    let bench = Bench::new(Settings::from_environment()?)?;
    let mut results = Results::default();
    let server = Postgres::from_environment()?;
    if bench
        .settings
        .wants_any(&["postgres-tcp", "postgres-socket", "exactly-once"])
    {
        let total = bench.settings.events(500_000);
        let backlog = RefCell::new(server.backlog(&bench.unique_name())?);
        backlog.borrow_mut().slot("all")?;
        backlog.borrow_mut().fill(0..total, 100, PAD)?;
        let waiting = Waiting {
            backlog: &backlog,
            slot: "all".to_owned(),
            expected: Expected {
                numbers: 0..total,
                payload: Payload {
                    pad: PAD,
                    spacing: Spacing::Written,
                },
            },
        };
        backlogs_postgres::of_batches(&bench, &mut results, &waiting)?;
    }
    backlogs_postgres::of_shapes(&bench, &mut results, &server)?;
    for flavor in [Flavor::Mysql, Flavor::Mariadb] {
        backlogs_mysql::of(&bench, &mut results, &Mysql::from_environment(flavor)?)?;
    }
    println!("{}", serde_json::to_string_pretty(&results)?);
    Ok(())
}
