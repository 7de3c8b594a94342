//! The native envelope: one JSON object around a change, `before`, `after`, `source`, `op`, `ts_ms`.
//!
//! A cell keeps the digits and characters that the server sent: booleans, integers and floats are JSON numbers and
//! literals (`NaN` and the infinities, which JSON lacks, strings), exact decimals are strings, JSON is put in as it is,
//! bytes are `"\\x…"` in hexadecimal digits, everything else is a string. Cells that the log does not hold are left out;
//! those that an UPDATE left unchanged and whose old value is not in the log either are named in the envelope's last
//! member, `unchanged`, which is only there when there are any.
//!
//! `source` says where the change stands, in its database's own terms: of PostgreSQL `db`, `schema`, `table`, `lsn` (a
//! number, as Debezium's readers expect it) and `txId`; a message's `table` is its prefix, and it has no `db` and `schema`.
//! Of MySQL and MariaDB `db`, `table`, `server_id`, `gtid`, `file`, `pos` (the end of the log event) and `row` (the row's
//! number in it). Both `ts_ms` are the commit's time: a clock of ours would differ on redelivery.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;

use super::error::{Problem, TextFault};
use super::field::{Field, cell};
use super::json;
use super::outbox::OutboxChange;
use crate::event::{ChangeEvent, Operation, RowChange};
use crate::position::{EventPosition, Lsn, MysqlEventPosition, PostgresEventPosition, TransactionId};
use crate::row::{Column, ColumnKind, Row, Table, Value};

/// Writes native envelopes for one source.
#[derive(Debug, Clone)]
pub(super) struct NativeEnvelope {
    /// The pipeline's name for the source, as JSON.
    name: Vec<u8>,
    table: Option<TableText>,
}

/// What of a table goes into each of its envelopes, written once.
#[derive(Debug, Clone)]
struct TableText {
    /// Held, so that its address can't become another table's.
    table: Arc<Table>,
    /// Each column's name with its colon.
    names: Vec<Vec<u8>>,
    /// `source` up to the table.
    source: Vec<u8>,
}

impl NativeEnvelope {
    pub(super) fn new(source_id: &str) -> Self {
        let mut name = Vec::new();
        json::write_string(&mut name, source_id);
        Self { name, table: None }
    }

    /// The envelope of a table's change.
    pub(super) fn of_row(&mut self, event: &ChangeEvent, change: &RowChange) -> Result<Bytes, Problem> {
        self.of_row_by(event, change, write_strictly)
    }

    /// The envelope of any table's change: a text that is not UTF-8 is in it as bytes are.
    pub(super) fn of_any_row(&mut self, event: &ChangeEvent, change: &RowChange) -> Bytes {
        let Ok(envelope) = self.of_row_by(event, change, write_legibly);
        envelope
    }

    /// A change's row as a JSON object, as it is in an envelope: the new one, or the old one where there is no other. A
    /// text that is not UTF-8 is in it as bytes are.
    pub(super) fn any_row(&mut self, event: &ChangeEvent, change: &RowChange) -> Bytes {
        let text = self.table_text(event, &change.table);
        let (before, after) = (change.before.as_ref(), change.after.as_ref());
        let mut out = Vec::with_capacity(room(after.or(before)));
        let Ok(()) = write_row(&mut out, text, after.or(before), before, &mut Vec::new(), write_legibly);
        Bytes::from(out)
    }

    fn of_row_by<E>(
        &mut self,
        event: &ChangeEvent,
        change: &RowChange,
        write_cell: impl CellWriter<E>,
    ) -> Result<Bytes, E> {
        let text = self.table_text(event, &change.table);
        let (before, after) = match change.operation {
            Operation::Truncate => (None, None),
            _ => (change.before.as_ref(), change.after.as_ref()),
        };
        let mut out = Vec::with_capacity(room(before) + room(after) + 256 + text.source.len());
        let mut unchanged = Vec::new();
        out.extend_from_slice(b"{\"before\":");
        write_row(&mut out, text, before, None, &mut Vec::new(), write_cell)?;
        out.extend_from_slice(b",\"after\":");
        write_row(&mut out, text, after, before, &mut unchanged, write_cell)?;
        out.extend_from_slice(b",\"source\":");
        out.extend_from_slice(&text.source);
        write_tail(&mut out, event, change.operation);
        if !unchanged.is_empty() {
            out.extend_from_slice(b",\"unchanged\":[");
            for (at, column) in unchanged.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                json::write_string(&mut out, &column.name);
            }
            out.push(b']');
        }
        out.push(b'}');
        Ok(Bytes::from(out))
    }

    /// The envelope around an outbox event's payload.
    pub(super) fn of_outbox(
        &mut self,
        event: &ChangeEvent,
        change: OutboxChange<'_>,
        payload: Field<'_>,
    ) -> Result<Bytes, Problem> {
        let mut out = Vec::with_capacity(512);
        out.extend_from_slice(b"{\"before\":null,\"after\":");
        write_payload(&mut out, payload)?;
        out.extend_from_slice(b",\"source\":");
        match change {
            OutboxChange::Insert(row) => out.extend_from_slice(&self.table_text(event, &row.table).source),
            OutboxChange::Message(message) => {
                write_source_head(&mut out, &self.name, &event.position);
                out.extend_from_slice(b",\"table\":");
                json::write_string(&mut out, &message.prefix);
            }
        }
        write_tail(&mut out, event, Operation::Insert);
        out.push(b'}');
        Ok(Bytes::from(out))
    }

    /// A keyed table's key as a JSON object; None when the table or the change has none.
    pub(super) fn key(&mut self, event: &ChangeEvent, change: &RowChange) -> Result<Option<Bytes>, Problem> {
        let (Some(row), true) = (change.after.as_ref().or(change.before.as_ref()), change.table.keyed) else {
            return Ok(None);
        };
        let text = self.table_text(event, &change.table);
        let mut out = Vec::with_capacity(64);
        let old = change.before.as_ref();
        let is_key = |column: &Column| column.key;
        write_members(&mut out, text, row, old, is_key, &mut Vec::new(), write_strictly)?;
        Ok((out != b"{}").then(|| Bytes::from(out)))
    }

    fn table_text(&mut self, event: &ChangeEvent, table: &Arc<Table>) -> &TableText {
        let known = self.table.take().filter(|known| Arc::ptr_eq(&known.table, table));
        self.table
            .insert(known.unwrap_or_else(|| TableText::new(&self.name, &event.position, table)))
    }
}

impl TableText {
    fn new(name: &[u8], position: &EventPosition, table: &Arc<Table>) -> Self {
        let mut source = Vec::new();
        write_source_head(&mut source, name, position);
        let schema = match position {
            EventPosition::Postgres(_) => Some(("schema", &table.schema)),
            // A schema is a database there.
            EventPosition::Mysql(_) => None,
        };
        let names = [Some(("db", &table.database)), schema, Some(("table", &table.name))];
        for (member, text) in names.into_iter().flatten() {
            source.push(b',');
            json::write_string(&mut source, member);
            source.push(b':');
            json::write_string(&mut source, text);
        }
        let names = table.columns.iter().map(|column| {
            let mut name = Vec::new();
            json::write_string(&mut name, &column.name);
            name.push(b':');
            name
        });
        Self {
            names: names.collect(),
            source,
            table: Arc::clone(table),
        }
    }
}

/// About what a row takes.
fn room(row: Option<&Row>) -> usize {
    let cells = row.iter().flat_map(|row| &row.values).map(|value| match value {
        Value::Text(bytes) => bytes.len() + 24,
        Value::Bytes(bytes) => bytes.len() * 2 + 24,
        Value::Null | Value::Unchanged | Value::Absent => 24,
    });
    cells.sum()
}

/// `source` up to what differs between databases.
fn write_source_head(out: &mut Vec<u8>, name: &[u8], position: &EventPosition) {
    out.extend_from_slice(b"{\"version\":");
    json::write_string(out, env!("CARGO_PKG_VERSION"));
    out.extend_from_slice(b",\"connector\":");
    json::write_string(out, connector(position));
    out.extend_from_slice(b",\"name\":");
    out.extend_from_slice(name);
}

/// What follows the table in `source`, and the members after it.
fn write_tail(out: &mut Vec<u8>, event: &ChangeEvent, operation: Operation) {
    match &event.position {
        EventPosition::Postgres(position) => write_lsn(out, position),
        EventPosition::Mysql(position) => write_binlog_place(out, position),
    }
    let mut digits = itoa::Buffer::new();
    let time = digits.format(event.commit_time_us.div_euclid(1000)).as_bytes();
    out.extend_from_slice(b",\"ts_ms\":");
    out.extend_from_slice(time);
    out.extend_from_slice(b"},\"op\":\"");
    out.extend_from_slice(operation.letter().as_bytes());
    out.extend_from_slice(b"\",\"ts_ms\":");
    out.extend_from_slice(time);
}

fn write_lsn(out: &mut Vec<u8>, position: &PostgresEventPosition) {
    let Lsn(lsn) = position.partial.map_or(position.base, |partial| partial.change);
    let mut digits = itoa::Buffer::new();
    out.extend_from_slice(b",\"lsn\":");
    out.extend_from_slice(digits.format(lsn).as_bytes());
    out.extend_from_slice(b",\"txId\":");
    match position.xid {
        Some(id) => out.extend_from_slice(digits.format(id).as_bytes()),
        None => out.extend_from_slice(b"null"),
    }
}

fn write_binlog_place(out: &mut Vec<u8>, position: &MysqlEventPosition) {
    let transaction = &position.transaction;
    let mut digits = itoa::Buffer::new();
    out.extend_from_slice(b",\"server_id\":");
    out.extend_from_slice(digits.format(transaction.server_id).as_bytes());
    out.extend_from_slice(b",\"gtid\":");
    match &transaction.id {
        TransactionId::Place { .. } => out.extend_from_slice(b"null"),
        gtid => json::write_string(out, &gtid.to_string()),
    }
    out.extend_from_slice(b",\"file\":");
    json::write_string(out, &transaction.file);
    out.extend_from_slice(b",\"pos\":");
    out.extend_from_slice(digits.format(position.pos).as_bytes());
    out.extend_from_slice(b",\"row\":");
    out.extend_from_slice(digits.format(position.index).as_bytes());
}

/// The database's name as Debezium's connectors have it.
fn connector(position: &EventPosition) -> &'static str {
    match position {
        EventPosition::Postgres(_) => "postgresql",
        EventPosition::Mysql(position) => match position.transaction.id {
            TransactionId::Mariadb(_) => "mariadb",
            TransactionId::Gtid(_) | TransactionId::Place { .. } => "mysql",
        },
    }
}

/// Writes a cell as JSON, by the rule for what is no text.
trait CellWriter<E>: Fn(&mut Vec<u8>, &Value, &Column) -> Result<(), E> + Copy {}

impl<E, F: Fn(&mut Vec<u8>, &Value, &Column) -> Result<(), E> + Copy> CellWriter<E> for F {}

fn write_row<'a, E>(
    out: &mut Vec<u8>,
    text: &'a TableText,
    row: Option<&Row>,
    old: Option<&Row>,
    unchanged: &mut Vec<&'a Column>,
    write_cell: impl CellWriter<E>,
) -> Result<(), E> {
    match row {
        Some(row) => write_members(out, text, row, old, |_| true, unchanged, write_cell),
        None => {
            out.extend_from_slice(b"null");
            Ok(())
        }
    }
}

/// Writes those cells of a row that are wanted and in the log, as an object.
fn write_members<'a, E>(
    out: &mut Vec<u8>,
    text: &'a TableText,
    row: &Row,
    old: Option<&Row>,
    wanted: impl Fn(&Column) -> bool,
    unchanged: &mut Vec<&'a Column>,
    write_cell: impl CellWriter<E>,
) -> Result<(), E> {
    out.push(b'{');
    let mut first = true;
    for (at, (column, name)) in text.table.columns.iter().zip(&text.names).enumerate() {
        let value = match cell(row, old, at) {
            _ if !wanted(column) => continue,
            None | Some(Value::Absent) => continue,
            Some(Value::Unchanged) => {
                unchanged.push(column);
                continue;
            }
            Some(value) => value,
        };
        if !first {
            out.push(b',');
        }
        first = false;
        out.extend_from_slice(name);
        write_cell(out, value, column)?;
    }
    out.push(b'}');
    Ok(())
}

fn write_strictly(out: &mut Vec<u8>, value: &Value, column: &Column) -> Result<(), Problem> {
    write_cell(out, value, column.kind).map_err(|fault| Problem::NotText {
        field: column.name.clone(),
        fault,
    })
}

fn write_legibly(out: &mut Vec<u8>, value: &Value, column: &Column) -> Result<(), Infallible> {
    if let (Err(_), Value::Text(bytes)) = (write_cell(out, value, column.kind), value) {
        write_bytes(out, bytes);
    }
    Ok(())
}

/// Writes nothing where it fails.
fn write_cell(out: &mut Vec<u8>, value: &Value, kind: ColumnKind) -> Result<(), TextFault> {
    match value {
        Value::Null | Value::Unchanged | Value::Absent => out.extend_from_slice(b"null"),
        Value::Bytes(bytes) => write_bytes(out, bytes),
        Value::Text(text) => write_text_cell(out, text, kind)?,
    }
    Ok(())
}

fn write_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(b"\"\\\\x");
    json::write_hex(out, bytes);
    out.push(b'"');
}

fn write_text_cell(out: &mut Vec<u8>, cell: &[u8], kind: ColumnKind) -> Result<(), TextFault> {
    match (kind, cell) {
        (ColumnKind::Boolean, b"t") => out.extend_from_slice(b"true"),
        (ColumnKind::Boolean, b"f") => out.extend_from_slice(b"false"),
        (ColumnKind::Integer | ColumnKind::Float, number) if json::is_number(number) => out.extend_from_slice(number),
        _ => {
            let text = std::str::from_utf8(cell).map_err(|_| TextFault::NotUtf8)?;
            match kind {
                ColumnKind::Json => out.extend_from_slice(text.as_bytes()),
                _ => json::write_string(out, text),
            }
        }
    }
    Ok(())
}

/// Writes a field as a member's value: what is text is a string, whatever it looks like. `name`: where it is.
pub(super) fn write_member(out: &mut Vec<u8>, field: Field<'_>, name: &str) -> Result<(), Problem> {
    match field {
        Field::Missing | Field::Null => out.extend_from_slice(b"null"),
        Field::Json { text, .. } => out.extend_from_slice(text.as_bytes()),
        Field::Binary(bytes) => write_bytes(out, bytes),
        Field::Cell { text, kind } => write_text_cell(out, text, kind).map_err(|fault| Problem::NotText {
            field: name.to_owned(),
            fault,
        })?,
    }
    Ok(())
}

/// Writes a payload as a member's value: what is JSON is put in as it is, else as a string.
pub(super) fn write_payload(out: &mut Vec<u8>, payload: Field<'_>) -> Result<(), Problem> {
    match payload {
        Field::Missing | Field::Null => out.extend_from_slice(b"null"),
        Field::Json { text, .. } => out.extend_from_slice(text.as_bytes()),
        Field::Cell {
            text: bytes,
            kind: ColumnKind::Text,
        }
        | Field::Binary(bytes) => {
            let text = std::str::from_utf8(bytes).map_err(|_| Problem::PayloadNotText)?;
            if json::is_value(text) {
                out.extend_from_slice(bytes);
            } else {
                json::write_string(out, text);
            }
        }
        Field::Cell { text, kind } => write_text_cell(out, text, kind).map_err(|_| Problem::PayloadNotText)?,
    }
    Ok(())
}

#[cfg(test)]
mod tests;
