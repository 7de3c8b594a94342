//! Pipeline files: from YAML to a typed [`Pipeline`], or to every violation at once.
//!
//! The way of a file: `document` reads the text into a tree that loses nothing; the readers under `file` walk it with
//! `reader`, which fills in the environment (`placeholder`) and records each violation under its dotted path; at the end
//! the places of what was recorded are looked up in the text. A pipeline comes out only when nothing was recorded.
//!
//! What there is to read, each key with its meaning, is described once more in `schema`, which editors and the documentation are
//! served from; tests hold the readers and it against each other.
//!
//! Placeholders are filled in after parsing, so a variable's value can never become YAML, nor a field of a template. What comes
//! from the environment, a secret file, a DSN or `client_conf` is in no violation and in no Debug.

mod alerts;
mod asked;
mod document;
pub mod dsn;
pub mod environment;
pub mod error;
mod file;
pub mod path;
pub mod pattern;
pub mod payload_schemas;
pub mod pipeline;
mod placeholder;
pub(crate) mod quantity;
mod reader;
pub mod route;
mod schema;
mod shown;
mod suggest;
pub mod template;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

pub use alerts::{AlertFile, load_alerts};
pub use dsn::{MysqlDsn, MysqlHost, PostgresDsn};
pub use environment::{Environment, ProcessEnvironment};
pub use error::{ConfigError, ConfigErrors, Note, Place, Problem, Violation};
pub(crate) use file::RESERVED_HEADERS;
pub use pattern::{NamePattern, OutboxPattern, PrefixPattern};
pub use pipeline::{
    Audit, AuditNames, BatchForm, Body, ChangeTypes, Checkpoint, CheckpointTopic, CloudEvents, CloudEventsMode,
    Columns, CommitPolicy, CreateTopics, DeadLetter, DeadLetterPlace, DebeziumSchema, Delivery, Dispatches, Envelope,
    ErrorPolicies, ErrorPolicy, File, Filter, FurtherSink, GtidStart, HeaderNames, Http, HttpAuth, HttpBatch, Kafka,
    KeyAs, LetterFile, Method, Mysql, MysqlStart, Notify, OnFenced, OnMissing, OnNull, OnUpdate, Ordering, Outbox,
    OutboxSelection, OversizedDeadLetter, PayloadAs, Pipeline, Postgres, Processor, Restart, Retry, SchemaRegistry,
    Sink, Source, Ssl, SslMode, Start, StatusSet, Stdout, TopicRule,
};
pub use route::{Rewrite, Route};
pub use schema::json_schema;
pub use template::{Part as TemplatePart, Template};

use reader::{Finding, Reader};

/// More than a person would read.
const MAX_VIOLATIONS: usize = 500;
/// Each place costs a reading of the text, so a text of a size that no pipeline has gets fewer: 16 at a mebibyte.
const MAX_PLACING_BYTES: usize = 16 * 1024 * 1024;

/// A file that is in order.
#[derive(Debug, Clone)]
pub struct Loaded {
    pub path: PathBuf,
    pub pipeline: Pipeline,
    /// What a person should know, in the file's order.
    pub notes: Vec<Note>,
    name_place: Option<Place>,
}

impl Loaded {
    /// An error about a file that is in order by itself.
    fn error(&self, place: Option<Place>, key: &str, problem: Problem) -> ConfigError {
        let violation = Violation {
            file: self.path.clone(),
            place,
            path: key.to_owned(),
            problem,
        };
        ConfigError {
            path: self.path.clone(),
            violations: vec![violation],
        }
    }
}

/// Reads one pipeline file.
///
/// # Errors
/// Every violation of the file, or that it cannot be read at all.
pub fn load(path: &Path, environment: &impl Environment) -> Result<Loaded, ConfigError> {
    load_text(path, &read_text(path)?, environment)
}

/// Every violation of a text that stands in no file.
pub(crate) fn violations(text: &str, environment: &impl Environment) -> Vec<Violation> {
    load_text(Path::new(""), text, environment).map_or_else(|error| error.violations, |_| Vec::new())
}

fn read_text(path: &Path) -> Result<String, ConfigError> {
    let bytes = read_file(path).map_err(|err| ConfigError::of_path(path, Problem::Unreadable { kind: err.kind() }))?;
    String::from_utf8(bytes).map_err(|_| ConfigError::of_path(path, Problem::NotUtf8))
}

/// Some editors begin a file with this mark; the library takes it for text.
fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

fn parse(path: &Path, text: &str) -> Result<document::Node, ConfigError> {
    document::parse(text).map_err(|unreadable| {
        let mut error = ConfigError::of_path(path, unreadable.problem);
        error
            .violations
            .iter_mut()
            .for_each(|violation| violation.place = unreadable.place);
        error
    })
}

/// Reads pipeline files, and of each folder those that end in `.yaml` or `.yml`, in the order of their names, hidden ones and
/// folders inside left out.
///
/// # Errors
/// Every violation of every file; a folder without a file; two files with one `metadata.name`; two with one server id for
/// one MySQL server, which would let each in only by throwing the other out; two with one transactional id for one Kafka; two
/// with one audit ledger.
pub fn load_all(paths: &[PathBuf], environment: &impl Environment) -> Result<Vec<Loaded>, ConfigErrors> {
    let mut loaded = Vec::new();
    let mut errors = Vec::new();
    for path in paths {
        match files_of(path) {
            Ok(files) => {
                for file in files {
                    match load(&file, environment) {
                        Ok(pipeline) => loaded.push(pipeline),
                        Err(err) => errors.push(err),
                    }
                }
            }
            Err(problem) => errors.push(ConfigError::of_path(path, problem)),
        }
    }
    errors.extend(same_names(&loaded));
    errors.extend(same_server_ids(&loaded));
    errors.extend(same_transactional_ids(&loaded));
    errors.extend(same_ledgers(&loaded));
    if errors.is_empty() {
        Ok(loaded)
    } else {
        Err(ConfigErrors { errors })
    }
}

fn same_names(loaded: &[Loaded]) -> Vec<ConfigError> {
    let mut first: HashMap<&str, &Path> = HashMap::new();
    let mut errors = Vec::new();
    for file in loaded {
        let name = &file.pipeline.name;
        if let Some(other) = first.get(name.as_str()) {
            let problem = Problem::SameName {
                name: name.clone(),
                other: other.to_path_buf(),
            };
            errors.push(file.error(file.name_place, "metadata.name", problem));
        } else {
            first.insert(name, &file.path);
        }
    }
    errors
}

/// Of two readers with one server id, a server keeps the one that came last: they would throw each other out for ever.
fn same_server_ids(loaded: &[Loaded]) -> Vec<ConfigError> {
    let mut first: HashMap<_, &Path> = HashMap::new();
    let mut errors = Vec::new();
    for file in loaded {
        let Source::Mysql(mysql) = &file.pipeline.source else {
            continue;
        };
        let id = mysql.server_id;
        let other = mysql.dsn.hosts.iter().find_map(|host| first.get(&(host, id)));
        if let Some(other) = other.map(|other| other.to_path_buf()) {
            errors.push(file.error(
                None,
                "spec.source.config.server_id",
                Problem::SameServerId { id, other },
            ));
        } else {
            first.extend(mysql.dsn.hosts.iter().map(|host| ((host, id), file.path.as_path())));
        }
    }
    errors
}

/// Of two producers with one transactional id, Kafka shuts out the one that came first: they would do so for ever.
fn same_transactional_ids(loaded: &[Loaded]) -> Vec<ConfigError> {
    let mut first: HashMap<_, &Path> = HashMap::new();
    let mut errors = Vec::new();
    for file in loaded {
        let (Some(id), Some(Kafka { brokers, .. })) = (file.pipeline.transactional_id(), file.pipeline.sink.kafka())
        else {
            continue;
        };
        if let Some(other) = brokers.split(',').find_map(|broker| first.get(&(broker, id))) {
            let (id, other) = (id.to_owned(), other.to_path_buf());
            let path = match file.pipeline.further_sinks.is_empty() {
                true => "spec.sinks[0].config.transactional_id",
                false => "spec.sinks",
            };
            errors.push(file.error(None, path, Problem::SameTransactionalId { id, other }));
        }
        for broker in brokers.split(',') {
            first.entry((broker, id)).or_insert(&file.path);
        }
    }
    errors
}

/// A ledger is one pipeline's: the other would wait for ever.
fn same_ledgers(loaded: &[Loaded]) -> Vec<ConfigError> {
    let mut first: HashMap<&Path, &Path> = HashMap::new();
    let mut errors = Vec::new();
    for file in loaded {
        let Some(audit) = &file.pipeline.audit else { continue };
        if let Some(other) = first.get(audit.path.as_path()) {
            let message = format!(
                "`{}` is the ledger of the pipeline in `{}` too: expected a file of its own",
                audit.path.display(),
                other.display()
            );
            errors.push(file.error(None, "spec.audit.path", Problem::Refused { message }));
        } else {
            first.insert(&audit.path, &file.path);
        }
    }
    errors
}

fn files_of(path: &Path) -> Result<Vec<PathBuf>, Problem> {
    let unreadable = |err: io::Error| Problem::Unreadable { kind: err.kind() };
    if !std::fs::metadata(path).map_err(unreadable)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path).map_err(unreadable)? {
        let file = entry.map_err(unreadable)?.path();
        let hidden = file
            .file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        let is_yaml = file
            .extension()
            .is_some_and(|extension| extension == "yaml" || extension == "yml");
        if is_yaml && !hidden && !file.is_dir() {
            files.push(file);
        }
    }
    files.sort();
    if files.is_empty() {
        Err(Problem::EmptyFolder)
    } else {
        Ok(files)
    }
}

/// Never more than a document may have, so that a path to something endless ends.
fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)?
        .take(document::MAX_BYTES as u64 + 1)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn load_text(path: &Path, text: &str, environment: &impl Environment) -> Result<Loaded, ConfigError> {
    let text = without_mark(text);
    let root = parse(path, text)?;
    let mut reader = Reader::new(environment);
    reader.folder = path.parent().unwrap_or(Path::new(""));
    let named = file::read(&mut reader, &root);
    let Reader { violations, notes, .. } = reader;
    match named {
        Ok(file::Named { pipeline, name_number }) if violations.is_empty() => {
            let numbers = [name_number].into_iter().chain(notes.iter().map(|note| note.number));
            let places = document::locate(text, &numbers.take(most_places(text)).collect());
            let mut notes: Vec<Note> = notes
                .into_iter()
                .map(
                    |Finding {
                         number,
                         path: key,
                         what: message,
                     }| Note {
                        file: path.to_owned(),
                        place: places.get(&number).copied(),
                        path: key,
                        message,
                    },
                )
                .collect();
            notes.sort_by_key(|note| note.place);
            Ok(Loaded {
                path: path.to_owned(),
                pipeline,
                notes,
                name_place: places.get(&name_number).copied(),
            })
        }
        _ => Err(ConfigError {
            path: path.to_owned(),
            violations: place_all(path, text, violations),
        }),
    }
}

fn most_places(text: &str) -> usize {
    MAX_VIOLATIONS.min(MAX_PLACING_BYTES / text.len().max(1))
}

/// Violations with their places, in the file's order.
fn place_all(file: &Path, text: &str, mut findings: Vec<Finding<Problem>>) -> Vec<Violation> {
    // Numbers follow the text, but for what is behind an alias.
    findings.sort_by_key(|finding| finding.number);
    let shown = most_places(text);
    let count = findings.len().saturating_sub(shown);
    findings.truncate(shown);
    let numbers: BTreeSet<usize> = findings.iter().map(|finding| finding.number).collect();
    let places: BTreeMap<usize, Place> = document::locate(text, &numbers);
    let violation = |Finding { number, path, what }| Violation {
        file: file.to_owned(),
        place: places.get(&number).copied(),
        path,
        problem: what,
    };
    let mut violations: Vec<Violation> = findings.into_iter().map(violation).collect();
    violations.sort_by_key(|violation| violation.place);
    if count > 0 {
        violations.push(Violation {
            file: file.to_owned(),
            place: None,
            path: String::new(),
            problem: Problem::More { count },
        });
    }
    violations
}

#[cfg(test)]
mod tests;
