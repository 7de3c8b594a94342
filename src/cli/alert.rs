//! `tailpost alert check`: what somebody should be told of, for cron and CI.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use reqwest::Url;
use secrecy::{ExposeSecret, SecretString};
use serde_json::json;

use crate::config::quantity::{self, parse_duration, parse_size};
use crate::config::{AlertFile, ProcessEnvironment, load_alerts};
use crate::http_client::parse_url;
use crate::telemetry::alerts::{self, Alert, Kind, Limit, Overrides, Thresholds};
use crate::telemetry::error_chain;

use super::client::{self, Client, ClientError, ServerArguments};
use super::output;

/// With `--fail-on-alert`.
const ALERTS: u8 = 3;

#[derive(Debug, Args)]
pub(super) struct AlertArguments {
    #[command(subcommand)]
    command: AlertCommand,
}

#[derive(Debug, Subcommand)]
enum AlertCommand {
    /// Ask a running process, and print one line for each alert.
    #[command(
        after_help = "Example:\n  tailpost alert check --oldest-unpublished 5m --webhook https://hooks.example/tailpost --fail-on-alert\n\nA limit is reached at its value; `off` is never. Counts are since the process started. A flag comes before its variable, that before the file.\n\nExit code 0: asked, whatever was found; 1: the webhook did not take the alerts; 2: bad usage or file; 3: alerts, with --fail-on-alert."
    )]
    Check(CheckArguments),
}

#[derive(Debug, Args)]
struct CheckArguments {
    #[command(flatten)]
    server: ServerArguments,
    /// File with limits: the flags' names with `_`, and `webhook`.
    #[arg(long, value_name = "FILE", env = "TAILPOST_ALERT_CONFIG")]
    config: Option<PathBuf>,
    /// Dead letters [default: 1]
    #[arg(long, value_name = "COUNT", env = "TAILPOST_ALERT_DEAD_LETTERS", value_parser = count)]
    dead_letters: Option<Limit<u64>>,
    /// Restarts of a source or sink [default: 50]
    #[arg(long, value_name = "COUNT", env = "TAILPOST_ALERT_RESTARTS", value_parser = count)]
    restarts: Option<Limit<u64>>,
    /// Events that are read and wait [default: 200]
    #[arg(long, value_name = "COUNT", env = "TAILPOST_ALERT_PENDING_EVENTS", value_parser = count)]
    pending_events: Option<Limit<u64>>,
    /// Age of the oldest event that is read and not published [default: 15m]
    #[arg(long, value_name = "AGE", env = "TAILPOST_ALERT_OLDEST_UNPUBLISHED", value_parser = duration)]
    oldest_unpublished: Option<Limit<Duration>>,
    /// No progress though there is something to do, or no stream, for so long [default: 10m]
    #[arg(long, value_name = "TIME", env = "TAILPOST_ALERT_STALLED", value_parser = duration)]
    stalled: Option<Limit<Duration>>,
    /// Log that is not acknowledged [default: 1GiB]
    #[arg(long, value_name = "SIZE", env = "TAILPOST_ALERT_LAG", value_parser = bytes)]
    lag: Option<Limit<u64>>,
    /// URL to which all alerts are sent in one POST, as JSON.
    #[arg(long, value_name = "URL", env = "TAILPOST_ALERT_WEBHOOK", hide_env_values = true)]
    webhook: Option<SecretString>,
    /// End with 3 where there is an alert.
    #[arg(long)]
    fail_on_alert: bool,
}

fn count(text: &str) -> Result<Limit<u64>, &'static str> {
    let count = |text: &str| text.parse().ok().filter(|count| *count > 0);
    limit(text, count).ok_or("expected a whole number, 1 or more, or off")
}

fn duration(text: &str) -> Result<Limit<Duration>, String> {
    let duration = |text: &str| parse_duration(text).filter(|duration| !duration.is_zero());
    limit(text, duration).ok_or_else(|| format!("expected {}, or off", quantity::DURATION))
}

fn bytes(text: &str) -> Result<Limit<u64>, String> {
    let bytes = |text: &str| parse_size(text).filter(|bytes| *bytes > 0);
    limit(text, bytes).ok_or_else(|| format!("expected {}, or off", quantity::SIZE))
}

fn limit<T>(text: &str, read: impl FnOnce(&str) -> Option<T>) -> Option<Limit<T>> {
    match text {
        "off" => Some(Limit::Off),
        text => read(text).map(Limit::At),
    }
}

impl CheckArguments {
    fn overrides(&self) -> Overrides {
        Overrides {
            dead_letters: self.dead_letters,
            restarts: self.restarts,
            pending_events: self.pending_events,
            oldest_unpublished: self.oldest_unpublished,
            stalled: self.stalled,
            lag: self.lag,
        }
    }
}

pub(super) fn run(arguments: AlertArguments) -> ExitCode {
    let AlertCommand::Check(arguments) = arguments.command;
    let file = match &arguments.config {
        None => AlertFile::default(),
        Some(path) => match load_alerts(path, &ProcessEnvironment) {
            Ok(file) => file,
            Err(error) => {
                complain!("{error}");
                return ExitCode::from(super::BAD_CONFIG);
            }
        },
    };
    let thresholds = Thresholds::default().with(&file.overrides).with(&arguments.overrides());
    let webhook = match arguments.webhook.as_ref().or(file.webhook.as_ref()).map(webhook_url) {
        None => None,
        Some(Ok(url)) => Some(url),
        Some(Err(expected)) => {
            complain!("error: the webhook: {expected}");
            return ExitCode::from(super::BAD_CONFIG);
        }
    };
    let client = match Client::new(arguments.server.http.clone()) {
        Ok(client) => client,
        Err(error) => {
            complain!("error: {}", error_chain(&error));
            return ExitCode::from(super::FAILURE);
        }
    };
    let checked = client::block_on(async {
        let alerts = find(&client, &thresholds).await;
        alerts.iter().for_each(|alert| output::say(alert.line() + "\n"));
        let told = match webhook {
            Some(url) if !alerts.is_empty() => tell(url, &alerts).await,
            _ => Ok(()),
        };
        (alerts, told)
    });
    let (alerts, told) = match checked {
        Ok(checked) => checked,
        Err(error) => {
            complain!("error: start the runtime: {error}");
            return ExitCode::from(super::FAILURE);
        }
    };
    if let Err(error) = &told {
        complain!("error: {}", error_chain(error));
    }
    match (told, alerts.is_empty()) {
        (_, false) if arguments.fail_on_alert => ExitCode::from(ALERTS),
        (Err(_), _) => ExitCode::from(super::FAILURE),
        (Ok(()), _) => super::SUCCESS,
    }
}

async fn find(client: &Client, thresholds: &Thresholds) -> Vec<Alert> {
    match client.status().await {
        Ok((_, report)) => alerts::check(&report, thresholds),
        Err(error) => vec![Alert {
            alert: Kind::Unreachable,
            pipeline: None,
            text: error_chain(&error),
        }],
    }
}

/// Why alerts did not get to where they should. The URL can be a secret, and is not told.
#[derive(Debug, thiserror::Error)]
enum WebhookError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("send the alerts to the webhook")]
    Send(#[source] reqwest::Error),
    #[error("the webhook answered {code}")]
    Answer { code: u16 },
}

fn webhook_url(text: &SecretString) -> Result<Url, &'static str> {
    parse_url(text.expose_secret()).ok_or("expected an http:// or https:// URL")
}

async fn tell(url: Url, alerts: &[Alert]) -> Result<(), WebhookError> {
    let http = client::builder().build().map_err(ClientError::SetUp)?;
    let body = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "text": alerts.iter().map(Alert::line).collect::<Vec<_>>().join("\n"),
        "alerts": alerts,
    });
    let sent = http.post(url).json(&body).send().await;
    let answer = sent.map_err(|error| WebhookError::Send(error.without_url()))?;
    match answer.status() {
        code if code.is_success() => Ok(()),
        code => Err(WebhookError::Answer { code: code.as_u16() }),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        check: CheckArguments,
    }

    fn parse(arguments: &[&str]) -> Result<Overrides, String> {
        let line = Line::try_parse_from(["check"].iter().chain(arguments));
        line.map(|line| line.check.overrides())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn flags_set_limits_and_switch_them_off() {
        let set = parse(&["--dead-letters", "off", "--stalled", "30s", "--lag", "64MiB"]).unwrap();
        let expected = Overrides {
            dead_letters: Some(Limit::Off),
            stalled: Some(Limit::At(Duration::from_secs(30))),
            lag: Some(Limit::At(64 << 20)),
            ..Overrides::default()
        };
        assert_eq!(set, expected);
        for (flag, value, expected) in [
            ("--dead-letters", "0", "a whole number, 1 or more, or off"),
            ("--stalled", "10", "a duration such as"),
            ("--lag", "0", "a size such as"),
        ] {
            let error = parse(&[flag, value]).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn the_defaults_that_the_help_names_are_the_limits() {
        use clap::CommandFactory;
        let command = Line::command();
        let help = |flag: &str| {
            let argument = command
                .get_arguments()
                .find(|argument| argument.get_long() == Some(flag));
            argument.unwrap().get_help().unwrap().to_string()
        };
        let default = Thresholds::default();
        let count = |limit: Limit<u64>| match limit {
            Limit::At(count) => count.to_string(),
            Limit::Off => "off".to_owned(),
        };
        let age = |limit: Limit<Duration>| match limit {
            Limit::At(age) => quantity::show_duration(age),
            Limit::Off => "off".to_owned(),
        };
        let Limit::At(lag) = default.lag else { panic!("off") };
        let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/operate.md");
        let document = std::fs::read_to_string(document).unwrap();
        for (flag, text) in [
            ("dead-letters", count(default.dead_letters)),
            ("restarts", count(default.restarts)),
            ("pending-events", count(default.pending_events)),
            ("oldest-unpublished", age(default.oldest_unpublished)),
            ("stalled", age(default.stalled)),
            ("lag", quantity::show_size(lag)),
        ] {
            let help = help(flag);
            assert!(help.ends_with(&format!("[default: {text}]")), "{help}");
            let row = format!("| `--{flag}`, `{}` | {text} |", flag.replace('-', "_"));
            assert!(document.contains(&row), "{row} is not in docs/operate.md");
        }
    }
}
