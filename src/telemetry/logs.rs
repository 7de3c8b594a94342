//! Log lines on stderr.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;

/// How log lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    Text,
    /// One JSON object a line.
    Json,
}

/// Starts logging; `TAILPOST_LOG` takes a filter such as `debug` or `tailpost::source=trace`, `info` by default.
pub fn start(format: LogFormat) {
    // librdkafka's own lines repeat for as long as a broker is away; what matters of them is said by the sink.
    let default = "info,librdkafka=off,rdkafka=off";
    let filter = EnvFilter::try_from_env("TAILPOST_LOG").unwrap_or_else(|_| EnvFilter::new(default));
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr);
    // A second start in one process keeps the first.
    let _ = match format {
        LogFormat::Text => lines
            .with_ansi(io::stderr().is_terminal())
            .with_target(false)
            .try_init(),
        LogFormat::Json => lines
            .json()
            .flatten_event(true)
            .with_current_span(true)
            .with_span_list(false)
            .try_init(),
    };
}
