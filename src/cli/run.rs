//! `tailpost run`: pipelines in one process, each standing alone.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use secrecy::SecretString;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::config::Loaded;
use crate::relay::supervise::{self, PipelineError, RunOptions};
use crate::source::OperatorWord;
use crate::telemetry::error_chain;
use crate::telemetry::http::{self, Access, Endpoints};
use crate::telemetry::logs::{self, LogFormat};
use crate::telemetry::metrics::Prefix;
use crate::telemetry::otlp::{self, DispatchExporters, Exporter, OtlpError};
use crate::telemetry::ready::{MaxDeadLetters, MaxLag, ReadyBounds};
use crate::telemetry::status::PipelineStatus;

use super::client::parse_token;

#[derive(Debug, Args)]
pub(super) struct RunArguments {
    /// Pipeline files, or folders of them.
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Where checkpoints are kept.
    #[arg(long, value_name = "DIR", default_value = "./data")]
    state_dir: PathBuf,
    /// Address of the page, /status, /metrics, /healthz and /readyz, or off.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9095")]
    http: HttpAddress,
    /// Whoever sends it may pause and resume pipelines, from any machine; without one, only this machine may.
    #[arg(long, value_name = "TOKEN", env = "TAILPOST_HTTP_TOKEN", hide_env_values = true, value_parser = parse_token)]
    http_token: Option<SecretString>,
    /// What the names of all metrics begin with.
    #[arg(long, value_name = "NAME", default_value = "tailpost")]
    metrics_prefix: Prefix,
    /// How far behind a pipeline may be and be ready: a size of log, such as 64MiB, or an age of its oldest unpublished event,
    /// such as 5m; by default as far as it likes.
    #[arg(long, value_name = "LAG")]
    ready_max_lag: Option<MaxLag>,
    /// How often a sink may have tried a delivery in vain while its pipeline is ready, as long as its target can be connected to;
    /// by default not once, but as often as it likes where nothing waits for the sink.
    #[arg(long, value_name = "COUNT")]
    ready_max_attempts: Option<u32>,
    /// How many dead letters a pipeline may park within a time and be ready, such as 10/15m; by default as many as it likes.
    #[arg(long, value_name = "COUNT/TIME")]
    ready_max_dead_letters: Option<MaxDeadLetters>,
    /// Stop when the log's end, as it is at the start, is reached.
    #[arg(long)]
    once: bool,
    #[arg(long, value_enum, default_value = "text")]
    log_format: LogFormat,
    /// Send spans of batches, and of events that carry the context of a trace, to the OpenTelemetry collector at this URL, by OTLP
    /// over HTTP, and dispatch records of type otlp; by default to that of OTEL_EXPORTER_OTLP_ENDPOINT, if it is set.
    #[arg(long, value_name = "URL")]
    otlp: Option<String>,
    /// Go on though events may be missing, for this one start; the log says between which positions. Of a binlog, also pass
    /// over what cannot be read up to its end at this start, such as rows that were written as statements.
    #[arg(long, conflicts_with = "from_slot")]
    accept_gap: bool,
    /// Set the checkpoint aside, for this one start: go on where the slot stands, or begin a binlog as `start` says.
    #[arg(long)]
    from_slot: bool,
}

/// `off`, or an address.
#[derive(Debug, Clone, Copy)]
struct HttpAddress(Option<SocketAddr>);

impl FromStr for HttpAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "off" {
            return Ok(Self(None));
        }
        let parsed = text.parse().map(|address| Self(Some(address)));
        parsed.map_err(|_| "expected an address such as 127.0.0.1:9095, or off".to_owned())
    }
}

pub(super) fn run(arguments: RunArguments) -> ExitCode {
    logs::start(arguments.log_format);
    // Everything that can be wrong in the files is found before anything is started.
    let loaded = match super::load(&arguments.paths) {
        Ok(loaded) => loaded,
        Err(code) => return code,
    };
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(error = %error, "start the runtime");
            return ExitCode::from(super::FAILURE);
        }
    };
    let code = runtime.block_on(run_all(arguments, loaded));
    // Threads that still wait for a broker's answer are not waited for.
    runtime.shutdown_background();
    code
}

async fn run_all(arguments: RunArguments, loaded: Vec<Loaded>) -> ExitCode {
    let stop = CancellationToken::new();
    let signals = match stop_on_signals(stop.clone()) {
        Ok(task) => task,
        Err(error) => {
            tracing::error!(error = %error, "listen for signals");
            return ExitCode::from(super::FAILURE);
        }
    };
    let exporter = match exporter(arguments.otlp.as_deref()) {
        Ok(exporter) => exporter,
        Err(error) => {
            tracing::error!(error = %error_chain(&error), "start the export of spans");
            return ExitCode::from(super::BAD_CONFIG);
        }
    };
    let stop_http = CancellationToken::new();
    let mut endpoints = None;
    let statuses: Vec<_> = loaded.iter().map(|file| PipelineStatus::new(&file.pipeline)).collect();
    if let Some(max) = arguments.ready_max_dead_letters {
        statuses.iter().for_each(|status| status.watch_dead_letters(max.within));
    }
    if let Some(exporter) = &exporter {
        for (file, status) in loaded.iter().zip(&statuses) {
            status.trace(exporter.tracer(&file.pipeline));
        }
    }
    let dispatches = match export_dispatches(&loaded, &statuses, arguments.otlp.as_deref()) {
        Ok(exporters) => exporters,
        Err(error) => {
            tracing::error!(error = %error_chain(&error), "start the export of dispatch records");
            return ExitCode::from(super::BAD_CONFIG);
        }
    };
    if let HttpAddress(Some(address)) = arguments.http {
        match http::listen(address).await {
            Ok(listener) => {
                let shown = Endpoints {
                    pipelines: statuses.clone(),
                    metrics_prefix: arguments.metrics_prefix,
                    bounds: ReadyBounds {
                        max_lag: arguments.ready_max_lag,
                        max_attempts: arguments.ready_max_attempts,
                        max_dead_letters: arguments.ready_max_dead_letters,
                    },
                    access: Access {
                        token: arguments.http_token,
                    },
                };
                endpoints = Some(tokio::spawn(http::serve(listener, shown, stop_http.clone())));
            }
            Err(error) => {
                tracing::error!(error = %error_chain(&error), "start the HTTP endpoints");
                return ExitCode::from(super::FAILURE);
            }
        }
    }
    let options = RunOptions {
        state_dir: arguments.state_dir,
        once: arguments.once,
        word: match (arguments.accept_gap, arguments.from_slot) {
            (true, _) => OperatorWord::AcceptGap,
            (_, true) => OperatorWord::FromSlot,
            _ => OperatorWord::Nothing,
        },
    };
    let mut pipelines: JoinSet<Result<(), PipelineError>> = JoinSet::new();
    for (file, status) in loaded.into_iter().zip(statuses) {
        pipelines.spawn(supervise::run(file.pipeline, options.clone(), status, stop.clone()));
    }
    let mut failed = false;
    while let Some(ended) = pipelines.join_next().await {
        match ended {
            Ok(result) => failed |= result.is_err(),
            Err(error) => {
                failed = true;
                tracing::error!(error = %error, "a pipeline's task failed; this is a fault of tailpost");
            }
        }
    }
    let spans = async {
        if let Some(exporter) = exporter {
            exporter.close().await;
        }
    };
    tokio::join!(spans, dispatches.close());
    stop_http.cancel();
    if let Some(endpoints) = endpoints {
        // A client that keeps its connection open is not waited for.
        let _ = tokio::time::timeout(Duration::from_secs(1), endpoints).await;
    }
    signals.abort();
    if failed {
        ExitCode::from(super::FAILURE)
    } else {
        super::SUCCESS
    }
}

/// As the command line says, or else as OpenTelemetry's own variables do, which can be set for everything on a machine: a program
/// that cannot export says so and goes on.
fn exporter(url: Option<&str>) -> Result<Option<Exporter>, OtlpError> {
    if let Some(url) = url {
        return Exporter::start(url).map(Some);
    }
    let Some(url) = otlp::url_of_environment() else {
        return Ok(None);
    };
    match Exporter::start(&url) {
        Ok(exporter) => Ok(Some(exporter)),
        Err(error) => {
            tracing::warn!(error = %error_chain(&error), "OTEL_EXPORTER_OTLP_ENDPOINT has no effect");
            Ok(None)
        }
    }
}

fn export_dispatches(
    loaded: &[Loaded],
    statuses: &[Arc<PipelineStatus>],
    otlp: Option<&str>,
) -> Result<DispatchExporters, OtlpError> {
    let mut exporters = DispatchExporters::default();
    for (file, status) in loaded.iter().zip(statuses) {
        if let Some(queue) = exporters.queue(&file.pipeline, otlp)? {
            status.export_dispatches(queue);
        }
    }
    Ok(exporters)
}

/// The first SIGTERM or SIGINT drains; the second ends the process at once.
pub(super) fn stop_on_signals(stop: CancellationToken) -> std::io::Result<JoinHandle<()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            if stop.is_cancelled() {
                tracing::warn!("stopped at once; what was not acknowledged is sent again at the next start");
                std::process::exit(i32::from(super::FAILURE));
            }
            tracing::info!("draining; a second signal stops at once");
            stop.cancel();
        }
    }))
}
