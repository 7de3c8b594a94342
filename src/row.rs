//! Rows and the tables that give their cells names and types, the same for every source.

use bytes::Bytes;

/// A table as it was when the row was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    pub database: String,
    pub schema: String,
    pub name: String,
    pub columns: Vec<Column>,
    /// Whether the key columns identify a row. False where the log's old rows are whole rows (REPLICA IDENTITY FULL) and
    /// the table has no primary key: there every column counts as part of the identity.
    pub keyed: bool,
}

impl Table {
    pub fn column_index(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    pub name: String,
    pub kind: ColumnKind,
    /// Part of the row's identity in the log.
    pub key: bool,
}

/// How a cell's text is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ColumnKind {
    /// Text `t` or `f`.
    Boolean,
    /// Decimal digits with an optional sign.
    Integer,
    /// A JSON number, or `NaN`, `Infinity`, `-Infinity`.
    Float,
    /// Exact decimal digits, or `NaN`, `Infinity`, `-Infinity`.
    Numeric,
    /// JSON text.
    Json,
    /// Bytes; the cell is [`Value::Bytes`].
    Binary,
    Uuid,
    /// Everything else, as the server prints it.
    Text,
}

/// A row's cells, in the order of the table's columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub values: Vec<Value>,
}

impl Row {
    /// Bytes of the cells that it holds.
    pub fn byte_len(&self) -> usize {
        let cells = self.values.iter().map(|value| match value {
            Value::Text(bytes) | Value::Bytes(bytes) => bytes.len(),
            Value::Null | Value::Unchanged | Value::Absent => 0,
        });
        cells.sum()
    }

    pub(crate) fn detach(&mut self) {
        for value in &mut self.values {
            if let Value::Text(bytes) | Value::Bytes(bytes) = value {
                *bytes = Bytes::copy_from_slice(bytes);
            }
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    Null,
    /// The server's text for the value, UTF-8.
    Text(Bytes),
    /// A binary column's bytes.
    Bytes(Bytes),
    /// A large value that an UPDATE left alone, which the log does not repeat (TOAST).
    Unchanged,
    /// A cell that the log does not hold, such as a column outside the replica identity in an old row.
    Absent,
}
