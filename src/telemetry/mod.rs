//! What the process says of itself: log lines, metrics, and the HTTP endpoints that show both.

pub mod alerts;
mod control;
mod facts;
pub mod histogram;
pub mod http;
mod log_reach;
pub mod logs;
pub mod metrics;
pub mod otlp;
mod page;
mod rate;
pub mod ready;
pub mod report;
mod source_view;
mod state;
pub mod status;
pub mod text;

use std::error::Error;
use std::fmt::Write;

/// An error and its causes on one line, each said once.
pub fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        // Some libraries' errors repeat their cause in their own text.
        if !text.ends_with(&next) {
            let _ = write!(text, ": {next}");
        }
        cause = error.source();
    }
    // A server's own text can have several.
    text.lines().map(str::trim).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Link {
        text: &'static str,
        source: Option<Box<Link>>,
    }

    #[test]
    fn each_cause_is_said_once_on_one_line() {
        let inner = Link {
            text: "connection\n  refused",
            source: None,
        };
        let middle = Link {
            text: "transport: connection\n  refused",
            source: Some(Box::new(inner)),
        };
        let outer = Link {
            text: "send",
            source: Some(Box::new(middle)),
        };
        assert_eq!(error_chain(&outer), "send: transport: connection refused");
    }
}
