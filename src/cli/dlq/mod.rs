//! `tailpost dlq`: dead letters, wherever the pipeline file keeps them, are looked at, sent again and taken away.
//!
//! Everything works beside a running pipeline, and takes nothing of what makes that the only one: neither its lock nor its
//! transactional id.

mod error;
mod filter;
mod purge;
mod replay;
mod sender;
mod shown;
mod stats;
mod stored;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::config::Pipeline;
use crate::letters::LetterId;
use crate::telemetry::error_chain;
use crate::telemetry::logs::{self, LogFormat};

use error::DlqError;
use filter::FilterArguments;
use purge::PurgeArguments;
use replay::ReplayArguments;
use stored::Stored;

#[derive(Debug, Args)]
pub(super) struct DlqArguments {
    #[command(subcommand)]
    command: DlqCommand,
}

#[derive(Debug, Subcommand)]
enum DlqCommand {
    /// One line a letter, in the order of their being parked.
    #[command(after_help = "Example:\n  tailpost dlq list pipelines/orders.yaml --since 2h --replayed no")]
    List(ListArguments),
    /// Everything of one letter, with its headers and its value.
    #[command(
        after_help = "Example:\n  tailpost dlq show pipelines/orders.yaml 17\n\nA letter of a Kafka topic is named by partition:offset."
    )]
    Show(ShowArguments),
    /// Send letters to where they should have gone, in the order of their being parked.
    #[command(
        after_help = "Example:\n  tailpost dlq replay pipelines/orders.yaml --reason max_retries_exceeded --since 2h --rate 50\n\nExit code 1: at least one failed. What is replayed already is left out, but for --again."
    )]
    Replay(ReplayArguments),
    /// Take letters away for good.
    #[command(
        after_help = "Example:\n  tailpost dlq purge pipelines/orders.yaml --replayed yes --until 7d\n\nOf a Kafka topic, only everything (--all) or everything before a time (--until) can be deleted."
    )]
    Purge(PurgeArguments),
    /// Counts by reason, event type and target.
    #[command(after_help = "Example:\n  tailpost dlq stats pipelines/orders.yaml --json")]
    Stats(ListArguments),
    /// Letters with all that they have, one line of JSON each.
    #[command(after_help = "Example:\n  tailpost dlq export pipelines/orders.yaml > letters.ndjson")]
    Export(ExportArguments),
}

/// Whose dead letters.
#[derive(Debug, Args)]
struct Target {
    /// The pipeline file.
    #[arg(value_name = "FILE")]
    path: PathBuf,
    /// The pipeline's state directory, which a file of dead letters is seen from.
    #[arg(long, value_name = "DIR", default_value = "./data")]
    state_dir: PathBuf,
}

#[derive(Debug, Args)]
struct ListArguments {
    #[command(flatten)]
    target: Target,
    /// JSON in place of lines.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    filter: FilterArguments,
}

#[derive(Debug, Args)]
struct ExportArguments {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    filter: FilterArguments,
}

#[derive(Debug, Args)]
struct ShowArguments {
    #[command(flatten)]
    target: Target,
    /// The letter's, as `list` shows it.
    #[arg(value_name = "ID")]
    id: LetterId,
    /// One JSON object in place of lines.
    #[arg(long)]
    json: bool,
}

impl DlqCommand {
    fn target(&self) -> &Target {
        match self {
            Self::List(arguments) | Self::Stats(arguments) => &arguments.target,
            Self::Show(arguments) => &arguments.target,
            Self::Replay(arguments) => &arguments.target,
            Self::Purge(arguments) => &arguments.target,
            Self::Export(arguments) => &arguments.target,
        }
    }
}

pub(super) fn run(arguments: DlqArguments) -> ExitCode {
    logs::start(LogFormat::Text);
    let target = arguments.command.target();
    let pipeline = match super::load_one(&target.path) {
        Ok(pipeline) => pipeline,
        Err(code) => return code,
    };
    let runtime = match super::runtime() {
        Ok(runtime) => runtime,
        Err(code) => return code,
    };
    let result = runtime.block_on(carry_out(&pipeline, &arguments.command));
    // Threads that still wait for a broker's answer are not waited for.
    runtime.shutdown_background();
    match result {
        Ok(code) => code,
        // Whoever read it has enough.
        Err(DlqError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => super::SUCCESS,
        Err(error) => {
            complain!("{}", error_chain(&error));
            ExitCode::from(if error.is_usage() {
                super::BAD_CONFIG
            } else {
                super::FAILURE
            })
        }
    }
}

async fn carry_out(pipeline: &Pipeline, command: &DlqCommand) -> Result<ExitCode, DlqError> {
    let mut stored = Stored::open(pipeline, &command.target().state_dir)?;
    match command {
        DlqCommand::List(arguments) => {
            let letters = stored.matching(&arguments.filter).await?;
            match arguments.json {
                true => print(&[shown::list_json(&letters)?, b"\n".to_vec()].concat())?,
                false => print(shown::table(&letters).as_bytes())?,
            }
        }
        DlqCommand::Show(arguments) => {
            let parked = stored.one(arguments.id).await?;
            match arguments.json {
                true => print(&[shown::json_pretty(&parked)?, b"\n".to_vec()].concat())?,
                false => print(shown::whole(&parked).as_bytes())?,
            }
        }
        DlqCommand::Replay(arguments) => return replay::run(pipeline, &mut stored, arguments).await,
        DlqCommand::Purge(arguments) => purge::run(pipeline, &mut stored, arguments).await?,
        DlqCommand::Stats(arguments) => {
            let letters = stored.matching(&arguments.filter).await?;
            let stats = stats::Stats::of(&letters);
            match arguments.json {
                true => print(&[stats.json()?, b"\n".to_vec()].concat())?,
                false => print(stats.lines().as_bytes())?,
            }
        }
        DlqCommand::Export(arguments) => {
            for parked in stored.matching(&arguments.filter).await? {
                print(&[shown::json_line(&parked)?, b"\n".to_vec()].concat())?;
            }
        }
    }
    Ok(super::SUCCESS)
}

fn print(text: &[u8]) -> Result<(), DlqError> {
    io::stdout().write_all(text).map_err(DlqError::Output)
}
