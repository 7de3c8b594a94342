//! `spec.source.config` of type `mysql` and `mariadb`.

use sha2::{Digest, Sha256};

use super::{belongs_to_postgres, nothing_to_publish, read_common, read_start, read_tables};
use crate::config::document::Value;
use crate::config::dsn::MysqlDsn;
use crate::config::error::Problem;
use crate::config::file::read_patterns;
use crate::config::pattern::NamePattern;
use crate::config::pipeline::{GtidStart, Mysql, MysqlStart, OnUpdate};
use crate::config::reader::{Field, Mapping, Read, Reader, optional};

const DSN: &str = "a URL (`mysql://user:password@host:3306/database`)";
const START: &str = "earliest, latest, {gtid: ...} or {file: ..., pos: ...}";

/// `pipeline` is its name, for the server id where the file gives none.
pub(super) fn read(reader: &mut Reader<'_>, field: &Field<'_>, pipeline: &str) -> Read<Mysql> {
    let mut mapping = reader.mapping(field)?;
    let common = read_common(reader, &mut mapping, DSN, MysqlDsn::parse);
    let server_id = optional(mapping.take("server_id"), |field| read_server_id(reader, field));
    let tables = read_tables(reader, &mut mapping);
    let outbox = optional(mapping.take("outbox"), |field| read_outbox(reader, field));
    let start = read_start(reader, &mut mapping, read_start_value);
    let refused = ["slot", "publication", "create", "failover"]
        .map(|name| belongs_to_postgres(reader, mapping.take(name), &format!("`{name}`")));
    let whole = mapping.whole();
    reader.finish(mapping);
    let (tables, outbox) = (tables?, outbox?.unwrap_or_default());
    if tables.is_empty() && outbox.is_empty() {
        return Err(nothing_to_publish(reader, &whole, "`outbox.tables` or `tables`"));
    }
    let common = common?;
    let mysql = Mysql {
        id: common.id,
        dsn: common.dsn,
        server_id: server_id?.unwrap_or_else(|| derived_server_id(pipeline)),
        max_message_bytes: common.max_message_bytes,
        tables,
        outbox,
        // What the processors say is known later.
        on_update: OnUpdate::default(),
        start: start?.unwrap_or(MysqlStart::Earliest),
    };
    refused.into_iter().collect::<Read<()>>()?;
    Ok(mysql)
}

/// 0 is no id: a server answers it with an error, or ends the stream at the binlog's end.
fn read_server_id(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<u32> {
    read_number(reader, field, 1)
}

/// The same on every machine and in every version: 30 bits of the name's SHA-256, above the ids that people give.
fn derived_server_id(pipeline: &str) -> u32 {
    const LOWEST: u32 = 0x4000_0000;
    let [a, b, c, d, ..] = <[u8; 32]>::from(Sha256::digest(pipeline));
    LOWEST | (u32::from_be_bytes([a, b, c, d]) & (LOWEST - 1))
}

fn read_outbox(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<Vec<NamePattern>> {
    let mut mapping = reader.mapping(field)?;
    let prefixes = belongs_to_postgres(reader, mapping.take("prefixes"), "`outbox.prefixes`");
    let tables = optional(mapping.take("tables"), |field| {
        read_patterns(reader, field, NamePattern::parse)
    });
    reader.finish(mapping);
    prefixes?;
    Ok(tables?.unwrap_or_default())
}

fn read_start_value(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<MysqlStart> {
    match &field.node.value {
        Value::Text(_) => {
            let words = [("earliest", true), ("latest", false)];
            let earliest = reader.word(field, &words)?;
            Ok(if earliest {
                MysqlStart::Earliest
            } else {
                MysqlStart::Latest
            })
        }
        Value::Mapping(_) => {
            let mapping = reader.mapping(field)?;
            read_place(reader, mapping)
        }
        _ => Err(reader.wrong_kind(field, START)),
    }
}

/// A GTID, or a file with a position in it.
fn read_place(reader: &mut Reader<'_>, mut mapping: Mapping<'_>) -> Read<MysqlStart> {
    let lsn = belongs_to_postgres(reader, mapping.take("lsn"), "`start` at an lsn");
    let gtid = optional(mapping.take("gtid"), |field| read_gtid(reader, field)).transpose();
    let file = optional(mapping.take("file"), |field| read_file(reader, field)).transpose();
    let position = optional(mapping.take("pos"), |field| read_position(reader, field)).transpose();
    let (number, path) = mapping.whole();
    reader.finish(mapping);
    lsn?;
    let message = match (gtid, file, position) {
        (Some(gtid), None, None) => return Ok(MysqlStart::Gtid(gtid?)),
        (None, Some(file), position) => {
            let (file, position) = (file, position.unwrap_or(Ok(FIRST_POSITION)));
            return Ok(MysqlStart::File {
                file: file?,
                position: position?.into(),
            });
        }
        (Some(_), _, _) => "both a GTID and a place in a file: expected one of the two".to_owned(),
        (None, None, Some(_)) => format!("`pos` without `file`: expected {BINLOG_FILE}"),
        (None, None, None) => format!("expected {START}, found neither `gtid` nor `file`"),
    };
    Err(reader.report_at(number, &path, Problem::Refused { message }))
}

fn read_gtid(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<GtidStart> {
    let text = reader.text(field)?;
    let gtid = text.value.parse::<GtidStart>();
    gtid.map_err(|_| reader.unexpected(field, GtidStart::EXPECTED, text.found()))
}

const BINLOG_FILE: &str = "a binlog file's name such as binlog.000123";

/// The server's own naming: a base name without a folder, and a number of 6 digits or more.
fn read_file(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<String> {
    let text = reader.text(field)?;
    let legal = text.value.len() <= 255
        && text.value.rsplit_once('.').is_some_and(|(base, number)| {
            !base.is_empty()
                && !base.contains(|c: char| c == '/' || c == '\\' || c.is_control())
                && (6..=10).contains(&number.len())
                && number.bytes().all(|byte| byte.is_ascii_digit())
        });
    if legal {
        Ok(text.value)
    } else {
        Err(reader.unexpected(field, BINLOG_FILE, text.found()))
    }
}

/// Where a binlog file's first event is, behind the magic number.
const FIRST_POSITION: u32 = 4;

/// COM_BINLOG_DUMP has four bytes for it.
fn read_position(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<u32> {
    read_number(reader, field, FIRST_POSITION)
}

fn read_number(reader: &mut Reader<'_>, field: &Field<'_>, least: u32) -> Read<u32> {
    let number = reader.integer(field, i64::from(least)..=i64::from(u32::MAX))?;
    u32::try_from(number).map_err(|err| reader.refuse(field, err.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_derived_server_id_is_stable_and_in_its_range() {
        assert_eq!(derived_server_id("shop"), 1_301_283_283);
        let ids: std::collections::HashSet<u32> =
            (0..1000).map(|n| derived_server_id(&format!("pipeline-{n}"))).collect();
        assert_eq!(ids.len(), 1000);
        assert!(ids.iter().all(|id| (0x4000_0000..=0x7fff_ffff).contains(id)));
    }
}
