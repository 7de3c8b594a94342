//! `tailpost schema`: what a pipeline file may say, for editors.

use std::process::ExitCode;

use crate::config::json_schema;

pub(super) fn run() -> ExitCode {
    let text = format!("{:#}\n", json_schema());
    match super::output::print(text) {
        Ok(()) => super::SUCCESS,
        Err(err) => {
            complain!("error: write to stdout: {err}");
            ExitCode::from(super::FAILURE)
        }
    }
}
