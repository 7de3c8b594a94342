//! `spec.source.config` of type `postgres`.

use super::{not_yet, read_patterns};
use crate::config::document::Value;
use crate::config::dsn::PostgresDsn;
use crate::config::error::Problem;
use crate::config::pattern::{NamePattern, PrefixPattern};
use crate::config::pipeline::{OutboxSelection, Postgres, Start};
use crate::config::reader::{Field, Mapping, Read, Reader, optional};
use crate::position::Lsn;

const DEFAULT_MAX_MESSAGE_BYTES: u64 = 64 * 1024 * 1024;
/// PostgreSQL itself allows no larger message or field.
const POSTGRES_LARGEST: u64 = 1024 * 1024 * 1024;
const DSN: &str = "a URL (`postgres://user@host:5432/database`) or key=value pairs (`host=... user=...`)";
const START: &str = "earliest, latest or {lsn: ...}";

pub(super) fn read(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<Postgres> {
    let mut mapping = reader.mapping(field)?;
    let id = reader
        .require(&mut mapping, "id", "a name for the source")
        .and_then(|field| reader.filled(&field));
    let dsn = reader
        .require(&mut mapping, "dsn", DSN)
        .and_then(|field| read_dsn(reader, &field));
    let slot = reader
        .require(&mut mapping, "slot", SLOT)
        .and_then(|field| read_slot(reader, &field));
    let publication = reader
        .require(&mut mapping, "publication", PUBLICATION)
        .and_then(|field| read_publication(reader, &field));
    let create = optional(mapping.take("create"), |field| reader.boolean(field));
    let max_message_bytes = optional(mapping.take("max_message_bytes"), |field| {
        reader.size(field, 1024..=POSTGRES_LARGEST)
    });
    let tables = optional(mapping.take("tables"), |field| read_tables(reader, field));
    let outbox = optional(mapping.take("outbox"), |field| read_selection(reader, field));
    let start = read_start(reader, &mut mapping);
    let server_id = not_yet(
        reader,
        mapping.take("server_id"),
        "`server_id`",
        Some("it belongs to MySQL"),
    );
    let foreign = read_deltaforge_keys(reader, &mut mapping);
    let (number, path) = mapping.whole();
    reader.finish(mapping);
    let (tables, outbox) = (tables?.unwrap_or_default(), outbox?.unwrap_or_default());
    if tables.is_empty() && outbox.prefixes.is_empty() && outbox.tables.is_empty() {
        let message = "nothing to publish: expected `outbox.prefixes`, `outbox.tables` or `tables` to name something";
        return Err(reader.report_at(
            number,
            &path,
            Problem::Refused {
                message: message.to_owned(),
            },
        ));
    }
    let postgres = Postgres {
        id: id?,
        dsn: dsn?,
        slot: slot?,
        publication: publication?,
        create: create?.unwrap_or(true),
        max_message_bytes: max_message_bytes?.unwrap_or(DEFAULT_MAX_MESSAGE_BYTES),
        tables,
        outbox,
        start: start?.unwrap_or(Start::Earliest),
    };
    server_id?;
    foreign?;
    Ok(postgres)
}

fn read_dsn(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<PostgresDsn> {
    let text = reader.secret(field, DSN)?;
    PostgresDsn::parse(&text).map_err(|errors| {
        let mut reported = None;
        for err in errors {
            reported = Some(reader.refuse(field, err.to_string()));
        }
        reported.unwrap_or_else(|| reader.refuse(field, format!("expected {DSN}")))
    })
}

const SLOT: &str = "a slot name of a-z, 0-9 and `_`, 1 to 63 characters";

fn read_slot(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<String> {
    let text = reader.text(field)?;
    let legal = (1..=63).contains(&text.value.len())
        && text
            .value
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    if legal {
        Ok(text.value)
    } else {
        Err(reader.unexpected(field, SLOT, text.found()))
    }
}

const PUBLICATION: &str = "a publication's name of 1 to 63 bytes";

fn read_publication(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<String> {
    let text = reader.text(field)?;
    let legal = (1..=63).contains(&text.value.len()) && !text.value.contains('\0');
    if legal {
        Ok(text.value)
    } else {
        Err(reader.unexpected(field, PUBLICATION, text.found()))
    }
}

fn read_tables(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<Vec<NamePattern>> {
    let tables = read_patterns(reader, field, NamePattern::parse)?;
    if tables.is_empty() && reader.is_deltaforge() {
        reader.note(field, "an empty list is all tables in deltaforge/v1; write [\"*\"]");
        return NamePattern::parse("*")
            .map(|all| vec![all])
            .map_err(|err| reader.refuse(field, err.to_string()));
    }
    Ok(tables)
}

fn read_selection(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<OutboxSelection> {
    let mut mapping = reader.mapping(field)?;
    let prefixes = optional(mapping.take("prefixes"), |field| {
        read_patterns(reader, field, PrefixPattern::parse)
    });
    let tables = optional(mapping.take("tables"), |field| {
        read_patterns(reader, field, NamePattern::parse)
    });
    reader.finish(mapping);
    Ok(OutboxSelection {
        prefixes: prefixes?.unwrap_or_default(),
        tables: tables?.unwrap_or_default(),
    })
}

fn read_start(reader: &mut Reader<'_>, mapping: &mut Mapping<'_>) -> Read<Option<Start>> {
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
        (start, old) => optional(start.or(old), |field| read_start_value(reader, field)),
    }
}

fn read_start_value(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<Start> {
    match &field.node.value {
        Value::Text(_) => reader.word(field, &[("earliest", Start::Earliest), ("latest", Start::Latest)]),
        Value::Mapping(_) => {
            let mut mapping = reader.mapping(field)?;
            let later = ["gtid", "file", "pos"].map(|name| {
                not_yet(
                    reader,
                    mapping.take(name),
                    &format!("`start` at a {name}"),
                    Some("it belongs to MySQL"),
                )
            });
            let lsn = if later.iter().all(Result::is_ok) {
                reader
                    .require(&mut mapping, "lsn", LSN)
                    .and_then(|field| read_lsn(reader, &field))
            } else {
                optional(mapping.take("lsn"), |field| read_lsn(reader, field)).map(Option::unwrap_or_default)
            };
            reader.finish(mapping);
            for refused in later {
                refused?;
            }
            lsn.map(Start::Lsn)
        }
        _ => Err(reader.wrong_kind(field, START)),
    }
}

const LSN: &str = "an LSN such as 16/B374D848, other than 0/0";

fn read_lsn(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<Lsn> {
    let text = reader.text(field)?;
    match text.value.parse::<Lsn>() {
        Ok(lsn) if lsn != Lsn::default() => Ok(lsn),
        _ => Err(reader.unexpected(field, LSN, text.found())),
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
