//! Reads the command line, runs the command and picks the exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    tailpost::cli::main()
}
