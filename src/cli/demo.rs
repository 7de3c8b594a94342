use clap::Args;
use std::process::ExitCode;
#[derive(Debug, Args)]
pub(super) struct DemoArguments {}
pub(super) fn run(_: &DemoArguments) -> ExitCode {
    ExitCode::SUCCESS
}
