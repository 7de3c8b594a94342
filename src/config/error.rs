//! What is wrong with pipeline files: every violation, each on one line with its place.
//!
//! A violation never holds what came from the environment or a secret file, nor a DSN, nor a value of `client_conf`.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Every violation of one file, in the file's order. Each asks for a person to change the file or its environment.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}", Lines(.violations))]
pub struct ConfigError {
    pub path: PathBuf,
    pub violations: Vec<Violation>,
}

/// Every violation of every file that was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}", Lines(.errors))]
pub struct ConfigErrors {
    pub errors: Vec<ConfigError>,
}

impl ConfigErrors {
    /// All violations of all files.
    pub fn violations(&self) -> impl Iterator<Item = &Violation> {
        self.errors.iter().flat_map(|error| &error.violations)
    }
}

impl ConfigError {
    /// An error about a path as a whole.
    pub(super) fn of_path(path: &Path, problem: Problem) -> Self {
        let violation = Violation {
            file: path.to_owned(),
            place: None,
            path: String::new(),
            problem,
        };
        ConfigError {
            path: path.to_owned(),
            violations: vec![violation],
        }
    }
}

/// One thing that is wrong. Its text is one line: file, place, dotted path, problem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    pub file: PathBuf,
    /// Of the value; of the key where the key is the problem; of the mapping where a key is missing.
    pub place: Option<Place>,
    /// Dotted path, such as `spec.processors[1].topic`; empty for the file as a whole.
    pub path: String,
    pub problem: Problem,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_line(f, &self.file, self.place, &self.path, &self.problem)
    }
}

/// A place in a file; both numbers count from 1, the column in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub line: usize,
    pub column: usize,
}

/// What is wrong at a place.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Problem {
    #[error("cannot be read: {}", .kind)]
    Unreadable { kind: io::ErrorKind },
    #[error("is not UTF-8 text")]
    NotUtf8,
    #[error("not valid YAML: {message}")]
    Syntax { message: String },
    #[error("expected at most {limit}")]
    TooLarge { limit: &'static str },
    #[error("no pipeline in it: expected a mapping with apiVersion, kind, metadata and spec")]
    Empty,
    #[error("a second document: expected one pipeline in a file")]
    SecondDocument,
    #[error("no pipeline files in this folder: expected names that end in .yaml or .yml")]
    EmptyFolder,
    #[error("pipeline `{name}` is also in {}: expected one file for a name", .other.display())]
    SameName { name: String, other: PathBuf },
    #[error("server id {id} is also in {}, for the same server: expected distinct ones", .other.display())]
    SameServerId { id: u32, other: PathBuf },
    #[error("transactional id `{id}` is also in {}, for the same brokers: expected distinct ones", .other.display())]
    SameTransactionalId { id: String, other: PathBuf },
    #[error("unknown key; {}", hint(.suggestion.as_deref(), .known))]
    UnknownKey {
        suggestion: Option<String>,
        known: Vec<&'static str>,
    },
    #[error("duplicate key: expected it once")]
    DuplicateKey,
    #[error("merge keys are not supported: write the keys out")]
    MergeKey,
    #[error("missing key: expected {expected}")]
    MissingKey { expected: String },
    #[error("expected {expected}, found {found}{}", with_remedy(.remedy.as_deref()))]
    Unexpected {
        expected: String,
        found: String,
        remedy: Option<String>,
    },
    #[error("environment variable `{name}` is not set, and has no default (`${{{name}:-default}}`)")]
    MissingVariable { name: String },
    #[error("file `{path}` cannot be read: {kind}")]
    SecretFile { path: String, kind: io::ErrorKind },
    #[error("{message}")]
    Placeholder { message: &'static str },
    #[error("{what} is not available yet{}", with_remedy(.remedy.as_deref()))]
    NotYet { what: String, remedy: Option<String> },
    #[error("{what} is not supported{}", with_remedy(.remedy.as_deref()))]
    NotSupported { what: String, remedy: Option<String> },
    #[error("{what} belongs to {database}: remove it")]
    Belongs { what: String, database: &'static str },
    #[error("librdkafka's `{property}` clashes with {ours}: remove it from client_conf")]
    Clash { property: String, ours: &'static str },
    /// Anything that takes a sentence of its own.
    #[error("{message}")]
    Refused { message: String },
    #[error("{count} more violations are not shown")]
    More { count: usize },
}

fn hint(suggestion: Option<&str>, known: &[&str]) -> String {
    match suggestion {
        Some(suggestion) => format!("did you mean `{suggestion}`?"),
        None if known.is_empty() => "expected no key here".to_owned(),
        None => format!("expected one of {}", known.join(", ")),
    }
}

fn with_remedy(remedy: Option<&str>) -> String {
    remedy.map_or_else(String::new, |remedy| format!("; {remedy}"))
}

/// Something a person should know about a file that is in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    pub file: PathBuf,
    pub place: Option<Place>,
    pub path: String,
    pub message: String,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_line(f, &self.file, self.place, &self.path, &self.message)
    }
}

fn write_line(
    f: &mut fmt::Formatter<'_>,
    file: &Path,
    place: Option<Place>,
    path: &str,
    text: &impl fmt::Display,
) -> fmt::Result {
    write!(f, "{}", file.display())?;
    if let Some(Place { line, column }) = place {
        write!(f, ":{line}:{column}")?;
    }
    if !path.is_empty() {
        write!(f, ": {path}")?;
    }
    write!(f, ": {text}")
}

struct Lines<'l, T>(&'l Vec<T>);

impl<T: fmt::Display> fmt::Display for Lines<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, line) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{line}")?;
        }
        Ok(())
    }
}
