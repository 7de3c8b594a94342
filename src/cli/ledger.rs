//! `tailpost ledger`: whether an audit ledger's lines are those that were written, in their order.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::audit::{Fault, Hash, Verifier, full_files, is_in_use, number_of};
use crate::telemetry::error_chain;

use super::output;

#[derive(Debug, Args)]
pub(super) struct LedgerArguments {
    #[command(subcommand)]
    command: LedgerCommand,
}

#[derive(Debug, Subcommand)]
enum LedgerCommand {
    /// Find the first line that was changed, is missing, or is not in its place.
    #[command(
        after_help = "Example:\n  tailpost ledger verify data/audit/orders.jsonl\n\nThe full files beside it, PATH.000001 and so on, are looked at before it. Lines that were cut off at the end leave no trace in the file: keep the last hash that this prints elsewhere, and give it to --expect-last at the next time.\n\nExit code 0: all is in order; 1: it is not, or a file cannot be read."
    )]
    Verify(VerifyArguments),
}

#[derive(Debug, Args)]
struct VerifyArguments {
    /// Ledgers, as `spec.audit.path` names them; or one of their full files, to look at that alone.
    #[arg(value_name = "FILE", required = true)]
    paths: Vec<PathBuf>,
    /// The hash of a line that the ledger must have, such as its last one at another time.
    #[arg(long, value_name = "HASH")]
    expect_last: Option<Hash>,
    /// JSON in place of lines.
    #[arg(long)]
    json: bool,
}

/// Why a ledger could not be looked at.
#[derive(Debug, thiserror::Error)]
#[error("read `{}`", path.display())]
struct ReadError {
    path: PathBuf,
    source: io::Error,
}

pub(super) fn run(arguments: &LedgerArguments) -> ExitCode {
    let LedgerCommand::Verify(arguments) = &arguments.command;
    match verify_all(arguments) {
        Ok(code) => code,
        Err(error) => {
            complain!("{}", error_chain(&error));
            ExitCode::from(super::FAILURE)
        }
    }
}

fn verify_all(arguments: &VerifyArguments) -> Result<ExitCode, ReadError> {
    // A shell's pattern also finds the full files, which are looked at with their ledger.
    let is_of_another = |path: &Path| arguments.paths.iter().any(|ledger| is_full_file_of(path, ledger));
    let ledgers: Vec<&PathBuf> = arguments.paths.iter().filter(|path| !is_of_another(path)).collect();
    if arguments.expect_last.is_some() && ledgers.len() > 1 {
        complain!("--expect-last is of one ledger: found {}", ledgers.len());
        return Ok(ExitCode::from(super::BAD_CONFIG));
    }
    let mut looks = Vec::new();
    for path in ledgers {
        looks.push(Look::at(path, arguments.expect_last)?);
    }
    let text = match arguments.json {
        true => format!("{:#}\n", Value::from_iter(looks.iter().map(Look::json))),
        false => looks.iter().map(Look::lines).collect(),
    };
    output::say(text);
    looks
        .iter()
        .filter_map(Look::problem)
        .for_each(|problem| complain!("{problem}"));
    Ok(match looks.iter().all(|look| look.problem().is_none()) {
        true => super::SUCCESS,
        false => ExitCode::from(super::FAILURE),
    })
}

fn is_full_file_of(path: &Path, ledger: &Path) -> bool {
    path.parent() == ledger.parent() && number_of(ledger, path).is_some()
}

/// What was found of one ledger.
struct Look {
    path: PathBuf,
    file_count: usize,
    verifier: Verifier<Place>,
    expected: Option<Expected>,
}

/// A line of a file, from 1.
#[derive(Debug, Clone)]
struct Place {
    file: PathBuf,
    line: u64,
}

/// A hash that the ledger is to have, and the line that has it.
struct Expected {
    hash: Hash,
    seq: Option<u64>,
}

impl Look {
    fn at(path: &Path, expected: Option<Hash>) -> Result<Self, ReadError> {
        let files = open_all(path)?;
        let mut look = Self {
            path: path.to_owned(),
            file_count: files.len(),
            verifier: Verifier::default(),
            expected: expected.map(|hash| Expected { hash, seq: None }),
        };
        for (path, file) in files {
            look.read(&path, file).map_err(|source| ReadError { path, source })?;
        }
        Ok(look)
    }

    fn read(&mut self, path: &Path, file: File) -> io::Result<()> {
        let mut reader = BufReader::new(file);
        let (mut line, mut number) = (Vec::new(), 0);
        loop {
            line.clear();
            if reader.read_until(b'\n', &mut line)? == 0 {
                return Ok(());
            }
            number += 1;
            // The last line of one that is being written is not there as a whole yet.
            if !line.ends_with(b"\n") && path == self.path && is_in_use(path) {
                return Ok(());
            }
            let place = Place {
                file: path.to_owned(),
                line: number,
            };
            self.verifier.line(place, &line);
            let last = self.verifier.last();
            if let Some(expected) = self.expected.as_mut().filter(|expected| expected.hash == last.hash) {
                expected.seq.get_or_insert(last.seq);
            }
        }
    }

    fn problem(&self) -> Option<String> {
        if let Some((Place { file, line }, fault)) = self.verifier.fault() {
            return Some(format!("{}:{line}: {fault}", file.display()));
        }
        match &self.expected {
            Some(Expected { hash, seq: None }) => {
                let last = self.verifier.last();
                Some(format!(
                    "{}: cut off, or another ledger: no line has the hash {hash}; found line {} as the last, with {}",
                    self.path.display(),
                    last.seq,
                    last.hash
                ))
            }
            _ => None,
        }
    }

    fn lines(&self) -> String {
        let (verifier, last) = (&self.verifier, self.verifier.last());
        let first = verifier.first().map_or(0, |first| first.seq);
        let files = if self.file_count == 1 { "file" } else { "files" };
        let mut text = format!(
            "{}: {} lines in order, {first} to {} of the chain, in {} {files}\n",
            self.path.display(),
            verifier.line_count(),
            last.seq,
            self.file_count,
        );
        if let Some(first) = verifier.first().filter(|first| first.seq > 1) {
            let line = format!("begins behind line {}, whose hash was {}\n", first.seq - 1, first.hash);
            text.push_str(&line);
        }
        text.push_str(&format!("last hash: {}\n", last.hash));
        text
    }

    fn json(&self) -> Value {
        let (verifier, last) = (&self.verifier, self.verifier.last());
        let fault = |(place, fault): &(Place, Fault)| {
            json!({
                "file": place.file.display().to_string(),
                "line": place.line,
                "kind": fault.kind(),
                "text": fault.to_string(),
            })
        };
        json!({
            "ledger": self.path.display().to_string(),
            "in_order": self.problem().is_none(),
            "files": self.file_count,
            "lines": verifier.line_count(),
            "first": verifier.first().map(|first| json!({"seq": first.seq, "prev": first.hash.to_string()})),
            "last": {"seq": last.seq, "hash": last.hash.to_string()},
            "expected_last": self.expected.as_ref().map(|expected| json!({
                "hash": expected.hash.to_string(),
                "seq": expected.seq,
            })),
            "fault": verifier.fault().map(fault),
        })
    }
}

/// The ledger's files, in their order. One that becomes full meanwhile is neither missed nor read twice.
fn open_all(path: &Path) -> Result<Vec<(PathBuf, File)>, ReadError> {
    let full = || {
        let files = full_files(path).map_err(|source| ReadError {
            path: path.to_owned(),
            source,
        })?;
        Ok::<Vec<PathBuf>, ReadError>(files.into_iter().map(|(_, file)| file).collect())
    };
    loop {
        let before = full()?;
        let paths = before.iter().cloned().chain([path.to_owned()]);
        let files: Result<Vec<_>, ReadError> = paths
            .map(|path| match File::open(&path) {
                Ok(file) => Ok((path, file)),
                Err(source) => Err(ReadError { path, source }),
            })
            .collect();
        if before == full()? {
            return files;
        }
    }
}
