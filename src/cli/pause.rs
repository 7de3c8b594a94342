//! `tailpost pause` and `tailpost resume`: hold pipelines of a running process back, and let them go on.

use std::process::ExitCode;

use clap::Args;
use secrecy::SecretString;

use crate::telemetry::error_chain;

use super::client::{self, Client, ClientError, ServerArguments, parse_token};
use super::output;

#[derive(Debug, Args)]
pub(super) struct PauseArguments {
    #[command(flatten)]
    server: ServerArguments,
    /// The token of `tailpost run --http-token`; needed from another machine.
    #[arg(long, value_name = "TOKEN", env = "TAILPOST_HTTP_TOKEN", hide_env_values = true, value_parser = parse_token)]
    http_token: Option<SecretString>,
    /// Names of pipelines; all of them where none is named.
    #[arg(value_name = "PIPELINE")]
    pipelines: Vec<String>,
}

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hold {
    Pause,
    Resume,
}

pub(super) fn run(arguments: &PauseArguments, hold: Hold) -> ExitCode {
    let client = match Client::new(arguments.server.http.clone()) {
        Ok(client) => client,
        Err(error) => return failed(&error),
    };
    let names: Vec<Option<&str>> = match arguments.pipelines.as_slice() {
        [] => vec![None],
        names => names.iter().map(|name| Some(name.as_str())).collect(),
    };
    let mut code = super::SUCCESS;
    for name in names {
        let asked = client.hold(name, hold == Hold::Pause, arguments.http_token.as_ref());
        match client::block_on(asked) {
            Ok(Ok(done)) => {
                let state = if done.paused { "paused" } else { "resumed" };
                let say = |name: &String| output::say(format!("{name}: {state}\n"));
                done.pipelines.iter().for_each(say);
            }
            // The others are still asked.
            Ok(Err(error)) => code = failed(&error),
            Err(error) => {
                complain!("error: start the runtime: {error}");
                return ExitCode::from(super::FAILURE);
            }
        }
    }
    code
}

fn failed(error: &ClientError) -> ExitCode {
    complain!("error: {}", error_chain(error));
    ExitCode::from(super::FAILURE)
}
