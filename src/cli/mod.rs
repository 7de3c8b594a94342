//! The command line: one module a command.
//!
//! Results go to stdout, log lines and errors to stderr. Exit codes: 0 a clean stop, 1 a failure, 2 a bad configuration
//! or usage, 3 alerts where they are to fail.

/// A line on standard error: see [`output::tell`].
macro_rules! complain {
    ($($text:tt)*) => {
        $crate::cli::output::tell(format_args!("{}\n", format_args!($($text)*)))
    };
}

mod alert;
mod check;
mod client;
mod convert;
mod demo;
mod dlq;
mod ledger;
mod output;
mod pause;
mod position;
mod run;
mod schema;
mod status;
mod tail;
mod validate;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tokio::runtime::Runtime;

use crate::config::{self, Loaded, Pipeline, ProcessEnvironment};

use pause::Hold;

const SUCCESS: ExitCode = ExitCode::SUCCESS;
const FAILURE: u8 = 1;
const BAD_CONFIG: u8 = 2;

#[derive(Debug, Parser)]
#[command(
    name = "tailpost",
    version,
    about = "Relays transactional outbox events from the log of PostgreSQL, MySQL or MariaDB to Kafka",
    after_help = "Example:\n  tailpost run pipelines/orders-postgres.yaml --state-dir /var/lib/tailpost\n\nTAILPOST_LOG sets the log's filter, such as debug or tailpost::source=trace."
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run pipelines until stopped.
    #[command(
        after_help = "Example:\n  tailpost run pipelines/ --state-dir /var/lib/tailpost --http 0.0.0.0:9095 --log-format json\n\nSIGTERM and SIGINT drain: what was sent is waited for and saved. A second one stops at once."
    )]
    Run(run::RunArguments),
    /// Check pipeline files without any server: every violation, with its line.
    #[command(
        after_help = "Example:\n  tailpost validate pipelines/\n\nExit code 0: no violation; 2: violations, one a line on stderr."
    )]
    Validate(validate::ValidateArguments),
    /// Check servers, rights, settings and places on disk that pipelines need, each with its remedy.
    #[command(
        after_help = "Example:\n  tailpost check pipelines/orders-postgres.yaml\n\nExit code 0: the pipelines can run; 1: something is in the way; 2: bad configuration."
    )]
    Check(check::CheckArguments),
    /// Show how the pipelines of a running process stand.
    #[command(
        after_help = "Example:\n  tailpost status --http 10.0.0.5:9095\n\nExit code 0: each pipeline is ready; 1: one is not, or nothing answers."
    )]
    Status(status::StatusArguments),
    /// Hold pipelines of a running process back: they keep their place in the log, and publish nothing.
    #[command(
        after_help = "Example:\n  tailpost pause order-events\n\nWhat is in flight is settled and saved. A pause ends with `tailpost resume`, or with the process."
    )]
    Pause(pause::PauseArguments),
    /// Let pipelines that are held back go on.
    Resume(pause::PauseArguments),
    /// Show what a pipeline would publish now, as lines of JSON: without its sinks, and without moving its checkpoint.
    #[command(
        after_help = "Example:\n  tailpost tail pipelines/orders-postgres.yaml | jq .value\n\nBegins at the log's end, beside the running pipeline, and ends with SIGINT or when nobody reads it. PostgreSQL is read by a temporary slot."
    )]
    Tail(tail::TailArguments),
    /// Find out what somebody should be told of, for cron and CI.
    Alert(alert::AlertArguments),
    /// Print the JSON Schema of pipeline files, with which editors complete and check them.
    #[command(
        after_help = "Example:\n  tailpost schema > tailpost.schema.json\n\nThen, as the first line of a pipeline file:\n  # yaml-language-server: $schema=tailpost.schema.json"
    )]
    Schema,
    /// Show, move or set the position that a pipeline goes on from.
    Position(position::PositionArguments),
    /// List, show, replay, purge, count or export a pipeline's dead letters.
    Dlq(dlq::DlqArguments),
    /// Verify the audit ledger of a pipeline.
    Ledger(ledger::LedgerArguments),
    /// Make a pipeline file of another connector's configuration.
    Convert(convert::ConvertArguments),
    /// Show the whole way on this machine, with a private database server and an in-process Kafka broker.
    #[command(
        after_help = "Example:\n  tailpost demo --db mysql\n\nNeeds the programs of that database server; nothing is left behind."
    )]
    Demo(demo::DemoArguments),
}

/// Runs the process.
pub fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // clap gives 0 to --help and --version, 2 to wrong usage; a closed stdout is nothing to report.
            let _ = error.print();
            return if error.use_stderr() {
                ExitCode::from(BAD_CONFIG)
            } else {
                SUCCESS
            };
        }
    };
    match arguments.command {
        Command::Run(arguments) => run::run(arguments),
        Command::Validate(arguments) => validate::run(&arguments),
        Command::Check(arguments) => check::run(&arguments),
        Command::Status(arguments) => status::run(arguments),
        Command::Pause(arguments) => pause::run(&arguments, Hold::Pause),
        Command::Resume(arguments) => pause::run(&arguments, Hold::Resume),
        Command::Tail(arguments) => tail::run(&arguments),
        Command::Alert(arguments) => alert::run(arguments),
        Command::Schema => schema::run(),
        Command::Position(arguments) => position::run(arguments),
        Command::Dlq(arguments) => dlq::run(arguments),
        Command::Ledger(arguments) => ledger::run(&arguments),
        Command::Convert(arguments) => convert::run(&arguments),
        Command::Demo(arguments) => demo::run(&arguments),
    }
}

/// What a command's tasks run on.
fn runtime() -> Result<Runtime, ExitCode> {
    Runtime::new().map_err(|error| {
        complain!("start the runtime: {error}");
        ExitCode::from(FAILURE)
    })
}

/// Loads pipeline files, showing notes and violations on stderr.
fn load(paths: &[PathBuf]) -> Result<Vec<Loaded>, ExitCode> {
    match config::load_all(paths, &ProcessEnvironment) {
        Ok(loaded) => {
            for file in &loaded {
                for note in &file.notes {
                    complain!("{note}");
                }
            }
            Ok(loaded)
        }
        Err(errors) => {
            complain!("{errors}");
            Err(ExitCode::from(BAD_CONFIG))
        }
    }
}

/// Loads the one pipeline that is meant.
fn load_one(path: &Path) -> Result<Pipeline, ExitCode> {
    let mut loaded = load(&[path.to_owned()])?;
    match (loaded.pop(), loaded.is_empty()) {
        (Some(file), true) => Ok(file.pipeline),
        _ => {
            complain!("{}: a folder of several pipelines: expected one file", path.display());
            Err(ExitCode::from(BAD_CONFIG))
        }
    }
}
