//! `spec.source.config` of type `postgres`.

use super::{belongs_to_mysql, nothing_to_publish, read_common, read_start, read_tables};
use crate::config::document::Value;
use crate::config::dsn::PostgresDsn;
use crate::config::file::read_patterns;
use crate::config::pattern::{NamePattern, PrefixPattern};
use crate::config::pipeline::{OnUpdate, OutboxSelection, Postgres, Start};
use crate::config::reader::{Field, Read, Reader, optional};
use crate::position::Lsn;

const DSN: &str = "a URL (`postgres://user@host:5432/database`) or key=value pairs (`host=... user=...`)";
const START: &str = "earliest, latest or {lsn: ...}";

pub(super) fn read(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<Postgres> {
    let mut mapping = reader.mapping(field)?;
    let common = read_common(reader, &mut mapping, DSN, PostgresDsn::parse);
    let slot = reader
        .require(&mut mapping, "slot", SLOT)
        .and_then(|field| read_slot(reader, &field));
    let publication = reader
        .require(&mut mapping, "publication", PUBLICATION)
        .and_then(|field| read_publication(reader, &field));
    let create = optional(mapping.take("create"), |field| reader.boolean(field));
    let failover = optional(mapping.take("failover"), |field| reader.boolean(field));
    let tables = read_tables(reader, &mut mapping);
    let outbox = optional(mapping.take("outbox"), |field| read_selection(reader, field));
    let start = read_start(reader, &mut mapping, read_start_value);
    let server_id = belongs_to_mysql(reader, mapping.take("server_id"), "`server_id`");
    let whole = mapping.whole();
    reader.finish(mapping);
    let (tables, outbox) = (tables?, outbox?.unwrap_or_default());
    if tables.is_empty() && outbox.prefixes.is_empty() && outbox.tables.is_empty() {
        return Err(nothing_to_publish(
            reader,
            &whole,
            "`outbox.prefixes`, `outbox.tables` or `tables`",
        ));
    }
    let common = common?;
    let postgres = Postgres {
        id: common.id,
        dsn: common.dsn,
        slot: slot?,
        publication: publication?,
        create: create?.unwrap_or(true),
        failover: failover?.unwrap_or(true),
        temporary: false,
        max_message_bytes: common.max_message_bytes,
        tables,
        outbox,
        // What the processors say is known later.
        on_update: OnUpdate::default(),
        start: start?.unwrap_or(Start::Earliest),
    };
    server_id?;
    Ok(postgres)
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

fn read_start_value(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<Start> {
    match &field.node.value {
        Value::Text(_) => reader.word(field, &[("earliest", Start::Earliest), ("latest", Start::Latest)]),
        Value::Mapping(_) => {
            let mut mapping = reader.mapping(field)?;
            let refused = ["gtid", "file", "pos"]
                .map(|name| belongs_to_mysql(reader, mapping.take(name), &format!("`start` at a {name}")));
            let lsn = if refused.iter().all(Result::is_ok) {
                reader
                    .require(&mut mapping, "lsn", LSN)
                    .and_then(|field| read_lsn(reader, &field))
            } else {
                optional(mapping.take("lsn"), |field| read_lsn(reader, field)).map(Option::unwrap_or_default)
            };
            reader.finish(mapping);
            refused.into_iter().collect::<Read<()>>()?;
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
