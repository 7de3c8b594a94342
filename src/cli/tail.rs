//! `tailpost tail`: what a pipeline would publish now.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use tokio_util::sync::CancellationToken;

use crate::config::Pipeline;
use crate::relay::tail;
use crate::telemetry::error_chain;
use crate::telemetry::logs::{self, LogFormat};

#[derive(Debug, Args)]
pub(super) struct TailArguments {
    /// The pipeline file.
    #[arg(value_name = "PATH")]
    path: PathBuf,
    /// As this sink of it makes records, by its id; by default as the leading one does.
    #[arg(long, value_name = "ID")]
    sink: Option<String>,
}

pub(super) fn run(arguments: &TailArguments) -> ExitCode {
    logs::start(LogFormat::Text);
    let pipeline = match super::load_one(&arguments.path) {
        Ok(pipeline) => pipeline,
        Err(code) => return code,
    };
    let pipeline = match of_sink(pipeline, arguments.sink.as_deref()) {
        Ok(pipeline) => pipeline,
        Err(text) => {
            complain!("error: {text}");
            return ExitCode::from(super::BAD_CONFIG);
        }
    };
    let runtime = match super::runtime() {
        Ok(runtime) => runtime,
        Err(code) => return code,
    };
    let closed = CancellationToken::new();
    let ended = runtime.block_on(async {
        let stop = CancellationToken::new();
        let signals =
            super::run::stop_on_signals(stop.clone()).map_err(|error| format!("listen for signals: {error}"))?;
        let tailed = tail::tail(pipeline, stop, closed.clone()).await;
        signals.abort();
        tailed.map_err(|error| error_chain(&error))
    });
    runtime.shutdown_background();
    match ended {
        Ok(()) => super::SUCCESS,
        Err(_) if closed.is_cancelled() => super::SUCCESS,
        Err(error) => {
            complain!("error: {error}");
            ExitCode::from(super::FAILURE)
        }
    }
}

fn of_sink(pipeline: Pipeline, id: Option<&str>) -> Result<Pipeline, String> {
    let Some(id) = id else { return Ok(pipeline) };
    let found = pipeline.of_each_sink().find(|pipeline| pipeline.sink.id() == id);
    found.ok_or_else(|| {
        let ids: Vec<&str> = pipeline.sinks().map(|sink| sink.id()).collect();
        format!("--sink {id}: expected one of the file's sinks ({})", ids.join(", "))
    })
}
