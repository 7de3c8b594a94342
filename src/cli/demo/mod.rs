//! `tailpost demo`: the whole way on this machine, by itself.
//!
//! A private database server in a temporary folder, librdkafka's test broker in this process, and the relay as a process of its
//! own, so that it can be killed. All three end and the folder goes when the demo ends, be it by a failure or by Ctrl-C:
//! each belongs to a value that cleans up when it is dropped.

mod broker;
mod count;
mod database;
mod error;
mod folder;
mod page;
mod process;
mod relay;
mod story;
mod wait;

use std::process::ExitCode;

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

use crate::telemetry::error_chain;

use database::Database;
use error::DemoError;
use page::Page;
use story::Stage;

#[derive(Debug, Args)]
pub(super) struct DemoArguments {
    /// The database server, of which the programs must be there.
    #[arg(long, value_enum, value_name = "DATABASE", default_value = "postgres")]
    db: Database,
}

pub(super) fn run(arguments: &DemoArguments) -> ExitCode {
    let runtime = match super::runtime() {
        Ok(runtime) => runtime,
        Err(code) => return code,
    };
    match runtime.block_on(play_or_stop(arguments.db)) {
        Ok(true) => super::SUCCESS,
        Ok(false) => {
            complain!("demo stopped; nothing is left behind");
            ExitCode::from(super::FAILURE)
        }
        Err(error) => {
            complain!("demo failed: {}", error_chain(&error));
            ExitCode::from(super::FAILURE)
        }
    }
}

/// False: a signal came first. What had been started is ended when this returns, in any case.
async fn play_or_stop(database: Database) -> Result<bool, DemoError> {
    let listen = |kind| {
        signal(kind).map_err(|source| DemoError::Io {
            action: "listen for signals",
            source,
        })
    };
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut terminate = listen(SignalKind::terminate())?;
    let mut hang_up = listen(SignalKind::hangup())?;
    tokio::select! {
        biased; // a signal before the next step
        _ = interrupt.recv() => Ok(false),
        _ = terminate.recv() => Ok(false),
        _ = hang_up.recv() => Ok(false),
        played = play(database) => played.map(|()| true),
    }
}

async fn play(database: Database) -> Result<(), DemoError> {
    let page = Page::new();
    let mut stage = Stage::set(&page, database).await?;
    stage.play(&page).await?;
    stage.strike(&page)
}
