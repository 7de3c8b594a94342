//! `tailpost status`: how the pipelines of a running process stand.

use std::process::ExitCode;

use clap::Args;

use crate::telemetry::{error_chain, text};

use super::client::{self, Client, ServerArguments};
use super::output;

#[derive(Debug, Args)]
pub(super) struct StatusArguments {
    #[command(flatten)]
    server: ServerArguments,
    /// Print what /status says, as JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: StatusArguments) -> ExitCode {
    let asked = client::block_on(async { Client::new(arguments.server.http)?.status().await });
    let (json, report) = match asked {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => {
            complain!("error: {}", error_chain(&error));
            return ExitCode::from(super::FAILURE);
        }
        Err(error) => {
            complain!("error: start the runtime: {error}");
            return ExitCode::from(super::FAILURE);
        }
    };
    let text = match arguments.json {
        true => format!("{json:#}\n"),
        false => text::render(&report),
    };
    if let Err(error) = output::print(text) {
        complain!("error: write to stdout: {error}");
        return ExitCode::from(super::FAILURE);
    }
    if report.is_ready() {
        super::SUCCESS
    } else {
        ExitCode::from(super::FAILURE)
    }
}
