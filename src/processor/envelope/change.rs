//! A change as a JSON object: `before`, `after`, `source`, `op`, `ts_ms`. It is the native envelope, with small
//! differences Debezium's, and what a CloudEvent has for data.
//!
//! Cells that the log does not hold are left out. Those that an UPDATE left unchanged and whose old value is not in the log
//! either are named in the last member, `unchanged`, which is only there when there are any; in Debezium's form they have
//! its placeholder for a value, and cells of an old row are null.
//!
//! `source` says where the change stands, in its database's own terms: of PostgreSQL `db`, `schema`, `table`, `lsn` (a
//! number, as Debezium's readers expect it) and `txId`; a message's `table` is its prefix, and it has no `db` and `schema`.
//! Of MySQL and MariaDB `db`, `table`, `server_id`, `gtid`, `file`, `pos` (the end of the log event) and `row` (the row's
//! number in it). Debezium's form has the other members of its connectors too: `snapshot`, `sequence`, and what is not known
//! here as null. All times are the commit's: a clock of ours would differ on redelivery.

use std::sync::Arc;

use bytes::Bytes;

use super::cell::{CellWriter, write_legibly, write_payload, write_strictly};
use crate::event::{ChangeEvent, Operation, RowChange};
use crate::position::{EventPosition, Lsn, MysqlEventPosition, PostgresEventPosition, TransactionId};
use crate::processor::error::Problem;
use crate::processor::field::{Field, cell};
use crate::processor::json;
use crate::processor::outbox::OutboxChange;
use crate::row::{Column, Row, Table, Value};

/// What Debezium's connectors put in place of a value that the log does not repeat.
const UNAVAILABLE: &str = "__debezium_unavailable_value";

/// Writes the changes of one source.
#[derive(Debug, Clone)]
pub(in crate::processor) struct ChangeWriter {
    shape: Shape,
    /// The pipeline's name for the source, as JSON.
    name: Vec<u8>,
    table: Option<TableText>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    Native,
    /// With more in `source`, times in three units, `transaction`, null for what an old row does not have in the log, and a
    /// placeholder for unchanged cells.
    Debezium,
}

/// What of a table goes into each of its changes, written once.
#[derive(Debug, Clone)]
struct TableText {
    /// Held, so that its address can't become another table's.
    table: Arc<Table>,
    /// Each column's name with its colon.
    names: Vec<Vec<u8>>,
    /// `source` up to the table.
    source: Vec<u8>,
}

/// What becomes of a cell that the log does not hold.
enum Unlogged<'u, 'a> {
    LeftOut,
    /// Left out, and noted here if it is one that was left unchanged.
    Noted(&'u mut Vec<&'a Column>),
    /// In place of one that was left unchanged; others are left out.
    Placeholder,
    Null,
}

impl ChangeWriter {
    pub(in crate::processor) fn native(source_id: &str) -> Self {
        Self::new(Shape::Native, source_id)
    }

    pub(super) fn debezium(source_id: &str) -> Self {
        Self::new(Shape::Debezium, source_id)
    }

    fn new(shape: Shape, source_id: &str) -> Self {
        let mut name = Vec::new();
        json::write_string(&mut name, source_id);
        Self {
            shape,
            name,
            table: None,
        }
    }

    /// Appends a table's change.
    pub(super) fn write_row(
        &mut self,
        out: &mut Vec<u8>,
        event: &ChangeEvent,
        change: &RowChange,
    ) -> Result<(), Problem> {
        self.write_row_by(out, event, change, write_strictly)
    }

    /// Any table's change: a text that is not UTF-8 is in it as bytes are.
    pub(in crate::processor) fn any_change(&mut self, event: &ChangeEvent, change: &RowChange) -> Bytes {
        let mut out = Vec::with_capacity(room(change));
        let Ok(()) = self.write_row_by(&mut out, event, change, write_legibly);
        Bytes::from(out)
    }

    /// A change's row as a JSON object, as it is in a change: the new one, or the old one where there is no other. A
    /// text that is not UTF-8 is in it as bytes are.
    pub(in crate::processor) fn any_row(&mut self, event: &ChangeEvent, change: &RowChange) -> Bytes {
        let text = self.table_text(event, &change.table);
        let (before, after) = (change.before.as_ref(), change.after.as_ref());
        let mut out = Vec::with_capacity(row_room(after.or(before)));
        let Ok(()) = text.write_row(&mut out, after.or(before), before, Unlogged::LeftOut, write_legibly);
        Bytes::from(out)
    }

    fn write_row_by<E>(
        &mut self,
        out: &mut Vec<u8>,
        event: &ChangeEvent,
        change: &RowChange,
        write_cell: impl CellWriter<E>,
    ) -> Result<(), E> {
        let shape = self.shape;
        let text = self.table_text(event, &change.table);
        let (before, after) = match change.operation {
            Operation::Truncate => (None, None),
            _ => (change.before.as_ref(), change.after.as_ref()),
        };
        let mut noted = Vec::new();
        let (of_old, of_new) = match shape {
            Shape::Native => (Unlogged::LeftOut, Unlogged::Noted(&mut noted)),
            Shape::Debezium => (Unlogged::Null, Unlogged::Placeholder),
        };
        out.extend_from_slice(b"{\"before\":");
        text.write_row(out, before, None, of_old, write_cell)?;
        out.extend_from_slice(b",\"after\":");
        text.write_row(out, after, before, of_new, write_cell)?;
        out.extend_from_slice(b",\"source\":");
        out.extend_from_slice(&text.source);
        write_tail(out, shape, event, change.operation);
        if !noted.is_empty() {
            out.extend_from_slice(b",\"unchanged\":[");
            for (at, column) in noted.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                json::write_string(out, &column.name);
            }
            out.push(b']');
        }
        out.push(b'}');
        Ok(())
    }

    /// Appends an outbox event as a change whose new row is the payload.
    pub(super) fn write_outbox(
        &mut self,
        out: &mut Vec<u8>,
        event: &ChangeEvent,
        change: OutboxChange<'_>,
        payload: Field<'_>,
    ) -> Result<(), Problem> {
        out.extend_from_slice(b"{\"before\":null,\"after\":");
        write_payload(out, payload)?;
        out.extend_from_slice(b",\"source\":");
        match change {
            OutboxChange::Insert(row) => out.extend_from_slice(&self.table_text(event, &row.table).source),
            OutboxChange::Message(message) => {
                write_source_head(out, self.shape, &self.name, &event.position);
                out.extend_from_slice(b",\"table\":");
                json::write_string(out, &message.prefix);
            }
        }
        write_tail(out, self.shape, event, Operation::Insert);
        out.push(b'}');
        Ok(())
    }

    /// A keyed table's key as a JSON object; None when the table or the change has none.
    pub(super) fn key(&mut self, event: &ChangeEvent, change: &RowChange) -> Result<Option<Bytes>, Problem> {
        let (Some(row), true) = (change.after.as_ref().or(change.before.as_ref()), change.table.keyed) else {
            return Ok(None);
        };
        let text = self.table_text(event, &change.table);
        let mut out = Vec::with_capacity(64);
        let (old, is_key) = (change.before.as_ref(), |column: &Column| column.key);
        text.write_members(&mut out, row, old, is_key, Unlogged::LeftOut, write_strictly)?;
        Ok((out != b"{}").then(|| Bytes::from(out)))
    }

    fn table_text(&mut self, event: &ChangeEvent, table: &Arc<Table>) -> &TableText {
        let known = self.table.take().filter(|known| Arc::ptr_eq(&known.table, table));
        self.table
            .insert(known.unwrap_or_else(|| TableText::new(self.shape, &self.name, &event.position, table)))
    }
}

impl TableText {
    fn new(shape: Shape, name: &[u8], position: &EventPosition, table: &Arc<Table>) -> Self {
        let mut source = Vec::new();
        write_source_head(&mut source, shape, name, position);
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

    fn write_row<'a, E>(
        &'a self,
        out: &mut Vec<u8>,
        row: Option<&Row>,
        old: Option<&Row>,
        unlogged: Unlogged<'_, 'a>,
        write_cell: impl CellWriter<E>,
    ) -> Result<(), E> {
        match row {
            Some(row) => self.write_members(out, row, old, |_| true, unlogged, write_cell),
            None => {
                out.extend_from_slice(b"null");
                Ok(())
            }
        }
    }

    /// Writes those cells of a row that are wanted and in the log, as an object.
    fn write_members<'a, E>(
        &'a self,
        out: &mut Vec<u8>,
        row: &Row,
        old: Option<&Row>,
        wanted: impl Fn(&Column) -> bool,
        mut unlogged: Unlogged<'_, 'a>,
        write_cell: impl CellWriter<E>,
    ) -> Result<(), E> {
        out.push(b'{');
        let mut first = true;
        for (at, (column, name)) in self.table.columns.iter().zip(&self.names).enumerate() {
            if !wanted(column) {
                continue;
            }
            let value = match (cell(row, old, at), &mut unlogged) {
                (None, _) | (Some(Value::Absent | Value::Unchanged), Unlogged::LeftOut) => continue,
                (Some(Value::Absent | Value::Unchanged), Unlogged::Null) => Some(&Value::Null),
                (Some(Value::Absent), _) => continue,
                (Some(Value::Unchanged), Unlogged::Noted(columns)) => {
                    columns.push(column);
                    continue;
                }
                (Some(Value::Unchanged), Unlogged::Placeholder) => None,
                (value, _) => value,
            };
            if !first {
                out.push(b',');
            }
            first = false;
            out.extend_from_slice(name);
            match value {
                Some(value) => write_cell(out, value, column)?,
                None => json::write_string(out, UNAVAILABLE),
            }
        }
        out.push(b'}');
        Ok(())
    }
}

/// About what a change takes.
pub(super) fn room(change: &RowChange) -> usize {
    row_room(change.before.as_ref()) + row_room(change.after.as_ref()) + 512
}

/// About what a row takes.
fn row_room(row: Option<&Row>) -> usize {
    let cells = row.iter().flat_map(|row| &row.values).map(|value| match value {
        Value::Text(bytes) => bytes.len() + 24,
        Value::Bytes(bytes) => bytes.len() * 2 + 24,
        Value::Null | Value::Unchanged | Value::Absent => 24,
    });
    cells.sum()
}

/// `source` up to what differs between databases.
fn write_source_head(out: &mut Vec<u8>, shape: Shape, name: &[u8], position: &EventPosition) {
    out.extend_from_slice(b"{\"version\":");
    json::write_string(out, env!("CARGO_PKG_VERSION"));
    out.extend_from_slice(b",\"connector\":");
    json::write_string(out, connector(position));
    out.extend_from_slice(b",\"name\":");
    out.extend_from_slice(name);
    if shape == Shape::Debezium {
        out.extend_from_slice(b",\"snapshot\":\"false\"");
    }
}

/// What follows the table in `source`, and the members after it.
fn write_tail(out: &mut Vec<u8>, shape: Shape, event: &ChangeEvent, operation: Operation) {
    match &event.position {
        EventPosition::Postgres(position) => write_lsn(out, shape, position),
        EventPosition::Mysql(position) => write_binlog_place(out, shape, position),
    }
    let times = out.len();
    write_times(out, shape, event.commit_time_us);
    let times = times..out.len();
    out.extend_from_slice(b"},\"op\":\"");
    out.extend_from_slice(operation.letter().as_bytes());
    out.push(b'"');
    out.extend_from_within(times);
    if shape == Shape::Debezium {
        out.extend_from_slice(b",\"transaction\":null");
    }
}

fn write_times(out: &mut Vec<u8>, shape: Shape, micros: i64) {
    let mut digits = itoa::Buffer::new();
    out.extend_from_slice(b",\"ts_ms\":");
    out.extend_from_slice(digits.format(micros.div_euclid(1000)).as_bytes());
    if shape == Shape::Debezium {
        out.extend_from_slice(b",\"ts_us\":");
        out.extend_from_slice(digits.format(micros).as_bytes());
        out.extend_from_slice(b",\"ts_ns\":");
        out.extend_from_slice(digits.format(i128::from(micros) * 1000).as_bytes());
    }
}

fn write_lsn(out: &mut Vec<u8>, shape: Shape, position: &PostgresEventPosition) {
    let Lsn(lsn) = position.partial.map_or(position.base, |partial| partial.change);
    let mut digits = itoa::Buffer::new();
    out.extend_from_slice(b",\"lsn\":");
    out.extend_from_slice(digits.format(lsn).as_bytes());
    out.extend_from_slice(b",\"txId\":");
    match position.xid {
        Some(id) => out.extend_from_slice(digits.format(id).as_bytes()),
        None => out.extend_from_slice(b"null"),
    }
    if shape == Shape::Debezium {
        write_sequence(out, position.last_event_end, Lsn(lsn));
        out.extend_from_slice(b",\"xmin\":null");
    }
}

/// A JSON text in a JSON string: where the transaction ended that had events before this one, and where the change is.
fn write_sequence(out: &mut Vec<u8>, Lsn(before): Lsn, Lsn(lsn): Lsn) {
    let mut digits = itoa::Buffer::new();
    out.extend_from_slice(b",\"sequence\":\"[");
    match before {
        0 => out.extend_from_slice(b"null"),
        before => {
            out.extend_from_slice(b"\\\"");
            out.extend_from_slice(digits.format(before).as_bytes());
            out.extend_from_slice(b"\\\"");
        }
    }
    out.extend_from_slice(b",\\\"");
    out.extend_from_slice(digits.format(lsn).as_bytes());
    out.extend_from_slice(b"\\\"]\"");
}

fn write_binlog_place(out: &mut Vec<u8>, shape: Shape, position: &MysqlEventPosition) {
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
    if shape == Shape::Debezium {
        out.extend_from_slice(b",\"sequence\":null,\"thread\":null,\"query\":null");
    }
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

#[cfg(test)]
mod tests;
