//! `spec.source`: one reader a database, and what the sources of all have in common.

mod mysql;
mod postgres;

use super::kind::{Kinds, require_kind};
use super::read_patterns;
use crate::config::document::{Node, Value};
use crate::config::dsn::DsnError;
use crate::config::error::Problem;
use crate::config::pattern::NamePattern;
use crate::config::pipeline::Source;
use crate::config::reader::{Field, Mapping, Read, Reader, Reported, optional};

const DEFAULT_MAX_MESSAGE_BYTES: u64 = 64 * 1024 * 1024;
/// Neither PostgreSQL nor MySQL allows a larger message or field.
const LARGEST: u64 = 1024 * 1024 * 1024;

#[derive(Clone, Copy)]
enum Database {
    Postgres,
    Mysql,
}

/// Reads the source of the pipeline of this name.
pub(super) fn read(reader: &mut Reader<'_>, field: &Field<'_>, pipeline: &str) -> Read<Source> {
    let mut mapping = reader.mapping(field)?;
    let kinds = Kinds {
        here: &[
            ("postgres", Database::Postgres),
            ("mysql", Database::Mysql),
            ("mariadb", Database::Mysql),
        ],
        later: &[],
        elsewhere: &["turso"],
    };
    let kind = require_kind(reader, &mut mapping, "source type", &kinds);
    let config = reader.require(&mut mapping, "config", "a mapping with id, dsn and what to publish");
    reader.finish(mapping);
    kind.read(|database| {
        let config = config?;
        match database.unwrap_or_else(|| likely(&config)) {
            Database::Postgres => postgres::read(reader, &config).map(|postgres| Source::Postgres(Box::new(postgres))),
            Database::Mysql => mysql::read(reader, &config, pipeline).map(|mysql| Source::Mysql(Box::new(mysql))),
        }
    })
}

/// Whether the file says that the source is a MariaDB.
pub(super) fn is_mariadb(source: &Field<'_>) -> bool {
    let Value::Mapping(pairs) = &source.node.value else {
        return false;
    };
    let is = |node: &Node, text: &str| matches!(&node.value, Value::Text(found) if found == text);
    pairs.iter().any(|(key, value)| is(key, "type") && is(value, "mariadb"))
}

/// The database of a source whose type does not say it: the one whose keys it has.
fn likely(config: &Field<'_>) -> Database {
    let Value::Mapping(pairs) = &config.node.value else {
        return Database::Mysql;
    };
    let is_postgres = |key: &Value| matches!(key, Value::Text(name) if name == "slot" || name == "publication");
    if pairs.iter().any(|(key, _)| is_postgres(&key.value)) {
        Database::Postgres
    } else {
        Database::Mysql
    }
}

/// What every source has.
struct Common<D> {
    id: String,
    dsn: D,
    max_message_bytes: u64,
}

/// Reads what every source has, and what DeltaForge's have besides.
fn read_common<D>(
    reader: &mut Reader<'_>,
    mapping: &mut Mapping<'_>,
    dsn: &str,
    parse: fn(&str) -> Result<D, Vec<DsnError>>,
) -> Read<Common<D>> {
    let id = reader
        .require(mapping, "id", "a name for the source")
        .and_then(|field| reader.filled(&field));
    let dsn = reader
        .require(mapping, "dsn", dsn)
        .and_then(|field| read_dsn(reader, &field, dsn, parse));
    let max_message_bytes = optional(mapping.take("max_message_bytes"), |field| {
        reader.size(field, 1024..=LARGEST)
    });
    let deltaforge = read_deltaforge_keys(reader, mapping);
    let common = Common {
        id: id?,
        dsn: dsn?,
        max_message_bytes: max_message_bytes?.unwrap_or(DEFAULT_MAX_MESSAGE_BYTES),
    };
    deltaforge?;
    Ok(common)
}

fn read_dsn<D>(
    reader: &mut Reader<'_>,
    field: &Field<'_>,
    expected: &str,
    parse: fn(&str) -> Result<D, Vec<DsnError>>,
) -> Read<D> {
    let text = reader.secret(field, expected)?;
    parse(&text).map_err(|errors| {
        let mut reported = None;
        for err in errors {
            reported = Some(reader.refuse(field, err.to_string()));
        }
        reported.unwrap_or_else(|| reader.refuse(field, format!("expected {expected}")))
    })
}

/// `tables`: which ordinary tables are published.
fn read_tables(reader: &mut Reader<'_>, mapping: &mut Mapping<'_>) -> Read<Vec<NamePattern>> {
    let Some(field) = mapping.take("tables") else {
        return Ok(Vec::new());
    };
    let tables = read_patterns(reader, &field, NamePattern::parse)?;
    if tables.is_empty() && reader.is_deltaforge() {
        reader.note(&field, "an empty list is all tables in deltaforge/v1; write [\"*\"]");
        return NamePattern::parse("*")
            .map(|all| vec![all])
            .map_err(|err| reader.refuse(&field, err.to_string()));
    }
    Ok(tables)
}

/// A source without anything to do. `whole` is its mapping, `keys` are those that could name something.
fn nothing_to_publish(reader: &mut Reader<'_>, whole: &(usize, String), keys: &str) -> Reported {
    let message = format!("nothing to publish: expected {keys} to name something");
    reader.report_at(whole.0, &whole.1, Problem::Refused { message })
}

/// `start`, or DeltaForge's word for it.
fn read_start<T>(
    reader: &mut Reader<'_>,
    mapping: &mut Mapping<'_>,
    read_value: fn(&mut Reader<'_>, &Field<'_>) -> Read<T>,
) -> Read<Option<T>> {
    let start = mapping.take("start");
    let old = if reader.is_deltaforge() {
        mapping.take("start_position")
    } else {
        None
    };
    match (start, old) {
        (Some(_), Some(old)) => Err(reader.report_key(
            &old,
            Problem::Refused {
                message: "`start_position` is DeltaForge's word for `start`: expected one of the two".to_owned(),
            },
        )),
        (start, old) => optional(start.or(old), |field| read_value(reader, field)),
    }
}

/// Refuses a key of MySQL's sources.
fn belongs_to_mysql(reader: &mut Reader<'_>, field: Option<Field<'_>>, what: &str) -> Read<()> {
    belongs(reader, field, what, "MySQL")
}

/// Refuses a key of PostgreSQL's sources.
fn belongs_to_postgres(reader: &mut Reader<'_>, field: Option<Field<'_>>, what: &str) -> Read<()> {
    belongs(reader, field, what, "PostgreSQL")
}

fn belongs(reader: &mut Reader<'_>, field: Option<Field<'_>>, what: &str, database: &'static str) -> Read<()> {
    match field {
        None => Ok(()),
        Some(field) => {
            let what = what.to_owned();
            Err(reader.report_key(&field, Problem::Belongs { what, database }))
        }
    }
}

/// `snapshot` and `on_schema_drift`: fine where they ask for what happens here anyway.
fn read_deltaforge_keys(reader: &mut Reader<'_>, mapping: &mut Mapping<'_>) -> Read<()> {
    if !reader.is_deltaforge() {
        return Ok(());
    }
    let snapshot = optional(mapping.take("snapshot"), |field| read_snapshot(reader, field));
    let drift = optional(mapping.take("on_schema_drift"), |field| {
        if reader.word(field, &[("adapt", true), ("halt", false)])? {
            reader.note(field, "accepted without effect");
            return Ok(());
        }
        let remedy = Some("tables are followed as they change (`adapt`)".to_owned());
        Err(reader.report(
            field,
            Problem::NotSupported {
                what: "`on_schema_drift: halt`".to_owned(),
                remedy,
            },
        ))
    });
    snapshot?;
    drift?;
    Ok(())
}

/// A mode, or a mapping with one; the other keys only say how a snapshot would be made.
fn read_snapshot(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<()> {
    let mode = match &field.node.value {
        Value::Mapping(_) => reader.mapping(field)?.take("mode"),
        _ => Some(field.clone()),
    };
    let modes = [("never", true), ("initial", false), ("always", false)];
    let never = match &mode {
        Some(mode) => reader.word(mode, &modes)?,
        None => true,
    };
    if never {
        reader.note(field, "accepted without effect");
        return Ok(());
    }
    let what = "a snapshot of the tables' rows".to_owned();
    let remedy = Some("remove it, or write {mode: never}".to_owned());
    Err(reader.report(mode.as_ref().unwrap_or(field), Problem::NotSupported { what, remedy }))
}
