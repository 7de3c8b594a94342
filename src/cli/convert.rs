//! `tailpost convert`: another connector's configuration as a pipeline file.
//!
//! The file goes to stdout, the report to stderr: what was taken over, what is not needed, what differs, what is left to do.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::convert::{self, Conversion, debezium};
use crate::telemetry::error_chain;

use super::output;

/// A connector's configuration is some kilobytes.
const MAX_BYTES: u64 = 16 * 1024 * 1024;

#[derive(Debug, Args)]
pub(super) struct ConvertArguments {
    #[command(subcommand)]
    from: From,
}

#[derive(Debug, Subcommand)]
enum From {
    /// A Debezium connector with an event router: JSON of Kafka Connect, Strimzi's YAML, properties, or Debezium Server's.
    #[command(
        after_help = "Example:\n  tailpost convert debezium connector.json --worker connect-distributed.properties > orders.yaml\n\nExit code 0: the pipeline file is complete; 1: something is left to do by hand, or with --check something differs; 2: no connector that can be taken over."
    )]
    Debezium(DebeziumArguments),
}

#[derive(Debug, Args)]
struct DebeziumArguments {
    /// The connector's configuration; `-` for stdin.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The properties of the Connect worker: they have its converters and its Kafka.
    #[arg(long, value_name = "FILE")]
    worker: Option<PathBuf>,
    /// Write the pipeline file here, where none is yet, in place of stdout.
    #[arg(long, value_name = "FILE", conflicts_with = "check")]
    output: Option<PathBuf>,
    /// Write nothing: tell what this pipeline file says differently.
    #[arg(long, value_name = "FILE")]
    check: Option<PathBuf>,
}

#[derive(Debug, thiserror::Error)]
enum CommandError {
    #[error("{file}")]
    Read {
        file: String,
        #[source]
        error: io::Error,
    },
    #[error("{file}")]
    Convert {
        file: String,
        #[source]
        error: debezium::ConvertError,
    },
    #[error("{file}: no YAML that can be compared")]
    Compare {
        file: String,
        #[source]
        error: serde_yaml::Error,
    },
    #[error("write to stdout")]
    Output(#[source] io::Error),
    #[error("write {file}: it is there already, and stays: remove it first, or name another")]
    Occupied { file: String },
    #[error("{file} has more than {MAX_BYTES} bytes: expected the configuration of one connector, or of its worker")]
    TooLarge { file: String },
    #[error("write {file}")]
    Write {
        file: String,
        #[source]
        error: io::Error,
    },
}

pub(super) fn run(arguments: &ConvertArguments) -> ExitCode {
    let From::Debezium(arguments) = &arguments.from;
    match convert(arguments) {
        Ok(true) => super::SUCCESS,
        Ok(false) => ExitCode::from(super::FAILURE),
        Err(error) => {
            complain!("{}", error_chain(&error));
            ExitCode::from(super::BAD_CONFIG)
        }
    }
}

/// Whether all is well.
fn convert(arguments: &DebeziumArguments) -> Result<bool, CommandError> {
    let text = read(&arguments.file)?;
    let worker = arguments.worker.as_deref().map(read).transpose()?;
    let connector = debezium::Connector {
        text: &text,
        worker: worker.as_deref(),
    };
    let conversion = debezium::convert(connector).map_err(|error| CommandError::Convert {
        file: shown(&arguments.file),
        error,
    })?;
    output::tell(format_args!("{}", conversion.report));
    match (&arguments.check, &arguments.output) {
        (Some(path), _) => check(&conversion, path),
        (None, Some(path)) => {
            write(path, &conversion.pipeline)?;
            Ok(conversion.report.is_complete())
        }
        (None, None) => {
            output::print(&conversion.pipeline).map_err(CommandError::Output)?;
            Ok(conversion.report.is_complete())
        }
    }
}

fn check(conversion: &Conversion, path: &Path) -> Result<bool, CommandError> {
    let file = shown(path);
    let differences =
        convert::differences(&conversion.pipeline, &read(path)?).map_err(|error| CommandError::Compare {
            file: file.clone(),
            error,
        })?;
    match differences.is_empty() {
        true => output::say(format!("{file}: as the connector's configuration says\n")),
        false => differences
            .iter()
            .for_each(|line| output::say(format!("{file}: {line}\n"))),
    }
    Ok(differences.is_empty())
}

fn read(path: &Path) -> Result<String, CommandError> {
    let of_path = |error| CommandError::Read {
        file: shown(path),
        error,
    };
    let reader: Box<dyn Read> = match path == Path::new("-") {
        true => Box::new(io::stdin().lock()),
        false => Box::new(File::open(path).map_err(of_path)?),
    };
    let mut text = String::new();
    reader.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(of_path)?;
    match text.len() as u64 > MAX_BYTES {
        true => Err(CommandError::TooLarge { file: shown(path) }),
        false => Ok(text),
    }
}

/// Never over a file that is there: it may have been worked on.
fn write(path: &Path, text: &str) -> Result<(), CommandError> {
    let file = OpenOptions::new().write(true).create_new(true).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => CommandError::Occupied { file: shown(path) },
            _ => CommandError::Write {
                file: shown(path),
                error,
            },
        })
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}
