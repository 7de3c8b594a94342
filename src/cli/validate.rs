//! `tailpost validate`: every violation of pipeline files, without any server.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::output::say;

#[derive(Debug, Args)]
pub(super) struct ValidateArguments {
    /// Pipeline files, or folders of them.
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
}

pub(super) fn run(arguments: &ValidateArguments) -> ExitCode {
    match super::load(&arguments.paths) {
        Ok(loaded) => {
            for file in loaded {
                let (path, name) = (file.path.display(), file.pipeline.name);
                say(format!("{path}: pipeline `{name}` is valid\n"));
            }
            super::SUCCESS
        }
        Err(code) => code,
    }
}
