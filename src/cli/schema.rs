//! `tailpost schema`: what a pipeline file may say, for editors.

use std::io::{self, Write as _};
use std::process::ExitCode;

use crate::config::json_schema;

pub(super) fn run() -> ExitCode {
    let text = format!("{:#}\n", json_schema());
    match io::stdout().write_all(text.as_bytes()) {
        Ok(()) => super::SUCCESS,
        Err(err) => {
            eprintln!("error: write to stdout: {err}");
            ExitCode::from(super::FAILURE)
        }
    }
}
