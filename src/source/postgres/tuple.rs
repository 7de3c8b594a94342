//! Tuples as pgoutput sends them, and the rows that they become.
//!
//! A tuple stays one piece of its message's memory and is walked where it is read, so that a row of a table that nobody
//! asked for costs no allocation.

use bytes::Bytes;

use super::bytea::{self, ByteaError};
use super::reader::Reader;
use crate::row::{Column, ColumnKind, Row, Table, Value};

/// A row's cells, in the order of its relation's columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tuple {
    count: u16,
    /// Exactly `count` whole cells: the decoder has walked them.
    cells: Bytes,
}

/// The row before an UPDATE or DELETE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum OldTuple {
    /// The replica identity's columns; the others are sent as nulls.
    Key(Tuple),
    /// Every column.
    Full(Tuple),
}

/// One cell on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cell<'t> {
    Null,
    /// A large value that an UPDATE left alone.
    Unchanged,
    /// The value as its type prints it.
    Text(&'t [u8]),
    /// The value as its type sends it, where the option `binary` asked for that.
    Binary(&'t [u8]),
}

/// A tuple that does not make a row of its table. It never will; the rest of the stream can still be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RowError {
    #[error("row of `{table}` does not fit its description: found {found} cells, expected {expected}")]
    CellCount {
        table: String,
        found: usize,
        expected: usize,
    },
    #[error("column `{column}` of `{table}` is in binary format: expected text")]
    BinaryFormat { table: String, column: String },
    #[error("column `{column}` of `{table}` is not UTF-8")]
    NotUtf8 { table: String, column: String },
    #[error("column `{column}` of `{table}` is not a bytea")]
    Bytea {
        table: String,
        column: String,
        source: ByteaError,
    },
}

impl Tuple {
    /// `cells` must be as many whole cells.
    pub(super) fn new(count: u16, cells: Bytes) -> Self {
        Self { count, cells }
    }

    pub(super) fn cell_count(&self) -> usize {
        usize::from(self.count)
    }

    pub(super) fn cells(&self) -> impl Iterator<Item = Cell<'_>> {
        let mut reader = Reader::of_cells(&self.cells);
        (0..self.count).map_while(move |_| reader.cell().ok())
    }

    /// Makes the row, whose values share the message's memory but for bytea in hexadecimal.
    ///
    /// # Errors
    /// The tuple is not of this table, or a cell is not what its column's type prints.
    pub(super) fn row(&self, table: &Table) -> Result<Row, RowError> {
        self.row_of(table, |_| true)
    }

    /// Makes a row of the columns that the tuple `holds`.
    fn row_of(&self, table: &Table, holds: impl Fn(&Column) -> bool) -> Result<Row, RowError> {
        let expected = table.columns.len();
        if self.cell_count() != expected {
            return Err(RowError::CellCount {
                table: full_name(table),
                found: self.cell_count(),
                expected,
            });
        }
        let mut values = Vec::with_capacity(expected);
        for (column, cell) in table.columns.iter().zip(self.cells()) {
            values.push(if holds(column) {
                self.value(cell, column, table)?
            } else {
                Value::Absent
            });
        }
        Ok(Row { values })
    }

    fn value(&self, cell: Cell<'_>, column: &Column, table: &Table) -> Result<Value, RowError> {
        let names = || (full_name(table), column.name.clone());
        match cell {
            Cell::Null => Ok(Value::Null),
            Cell::Unchanged => Ok(Value::Unchanged),
            Cell::Text(text) if column.kind == ColumnKind::Binary => bytea::parse(self.cells.slice_ref(text))
                .map(Value::Bytes)
                .map_err(|source| {
                    let (table, column) = names();
                    RowError::Bytea { table, column, source }
                }),
            Cell::Text(text) if str::from_utf8(text).is_ok() => Ok(Value::Text(self.cells.slice_ref(text))),
            Cell::Text(_) => {
                let (table, column) = names();
                Err(RowError::NotUtf8 { table, column })
            }
            Cell::Binary(_) => {
                let (table, column) = names();
                Err(RowError::BinaryFormat { table, column })
            }
        }
    }
}

impl OldTuple {
    /// Makes the old row; of a key, the columns outside the replica identity are absent.
    ///
    /// # Errors
    /// As [`Tuple::row`].
    pub(super) fn row(&self, table: &Table) -> Result<Row, RowError> {
        match self {
            Self::Key(tuple) => tuple.row_of(table, |column| column.key),
            Self::Full(tuple) => tuple.row(table),
        }
    }
}

fn full_name(table: &Table) -> String {
    format!("{}.{}", table.schema, table.name)
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use proptest::prelude::*;

    use super::super::pgoutput::{LogicalMessage, decode};
    use super::*;

    fn table(columns: &[(&str, ColumnKind, bool)]) -> Table {
        let columns = columns.iter().map(|&(name, kind, key)| Column {
            name: name.to_owned(),
            kind,
            key,
        });
        let (database, schema, name) = ("db".to_owned(), "s".to_owned(), "t".to_owned());
        Table {
            database,
            schema,
            name,
            columns: columns.collect(),
            keyed: true,
        }
    }

    fn tuple(count: u16, cells: &[u8]) -> Tuple {
        let payload = Bytes::from([b"I\0\0\0\x01N".as_slice(), &count.to_be_bytes(), cells].concat());
        match decode(&payload).unwrap() {
            LogicalMessage::Insert { new, .. } => new,
            other => panic!("{other:?}"),
        }
    }

    fn text(text: &'static str) -> Value {
        Value::Text(Bytes::from_static(text.as_bytes()))
    }

    #[test]
    fn each_cell_becomes_its_value() {
        let table = table(&[
            ("id", ColumnKind::Integer, true),
            ("note", ColumnKind::Text, false),
            ("big", ColumnKind::Text, false),
            ("body", ColumnKind::Binary, false),
        ]);
        let tuple = tuple(4, b"t\0\0\0\x0212nut\0\0\0\x06\\x00ff");
        assert_eq!(
            tuple.cells().collect::<Vec<_>>(),
            [Cell::Text(b"12"), Cell::Null, Cell::Unchanged, Cell::Text(b"\\x00ff")],
        );
        let body = Value::Bytes(Bytes::from_static(b"\0\xFF"));
        assert_eq!(
            tuple.row(&table).unwrap().values,
            [text("12"), Value::Null, Value::Unchanged, body]
        );
    }

    #[test]
    fn old_keys_leave_the_other_columns_absent() {
        let table = table(&[("note", ColumnKind::Text, false), ("id", ColumnKind::Integer, true)]);
        let tuple = tuple(2, b"nt\0\0\0\x017");
        let key = OldTuple::Key(tuple.clone()).row(&table).unwrap();
        assert_eq!(key.values, [Value::Absent, text("7")]);
        let full = OldTuple::Full(tuple).row(&table).unwrap();
        assert_eq!(full.values, [Value::Null, text("7")]);
    }

    #[test]
    fn rows_that_do_not_fit_name_table_and_counts() {
        let table = table(&[("id", ColumnKind::Integer, true)]);
        for (count, cells) in [(0, b"".as_slice()), (2, b"nn")] {
            let error = tuple(count, cells).row(&table).unwrap_err().to_string();
            let expected = format!("row of `s.t` does not fit its description: found {count} cells, expected 1");
            assert_eq!(error, expected);
        }
    }

    #[test]
    fn malformed_cells_name_their_column_and_never_their_content() {
        let cases = [
            (
                ColumnKind::Text,
                b"t\0\0\0\x02a\xFF".as_slice(),
                "column `c` of `s.t` is not UTF-8",
            ),
            (
                ColumnKind::Text,
                b"b\0\0\0\x02ab",
                "column `c` of `s.t` is in binary format: expected text",
            ),
            (
                ColumnKind::Binary,
                b"b\0\0\0\x02ab",
                "column `c` of `s.t` is in binary format: expected text",
            ),
            (
                ColumnKind::Binary,
                b"t\0\0\0\x03\\x1",
                "column `c` of `s.t` is not a bytea",
            ),
        ];
        for (kind, cell, expected) in cases {
            let error = tuple(1, cell).row(&table(&[("c", kind, false)])).unwrap_err();
            assert_eq!(error.to_string(), expected);
            assert_eq!(error.source().is_some(), matches!(error, RowError::Bytea { .. }));
        }
    }

    proptest! {
        #[test]
        fn any_tuple_is_a_row_or_an_error(cells: Vec<u8>, count in 0_u16..6, column_count in 0_usize..6) {
            let payload = Bytes::from([b"D\0\0\0\x01K".as_slice(), &count.to_be_bytes(), &cells].concat());
            let columns = [("c", ColumnKind::Binary, true), ("d", ColumnKind::Text, false)];
            let table = table(&columns.into_iter().cycle().take(column_count).collect::<Vec<_>>());
            if let Ok(LogicalMessage::Delete { old, .. }) = decode(&payload) {
                let row = old.row(&table);
                prop_assert!(row.is_ok_and(|row| row.values.len() == column_count) || column_count > 0);
            }
        }

        #[test]
        fn any_text_in_a_cell_is_a_value_or_an_error(content: Vec<u8>) {
            let length = u32::try_from(content.len()).unwrap().to_be_bytes();
            let tuple = tuple(1, &[b"t".as_slice(), &length, &content].concat());
            let utf8 = str::from_utf8(&content).is_ok();
            let row = tuple.row(&table(&[("c", ColumnKind::Text, false)]));
            let values = row.ok().map(|row| row.values);
            prop_assert_eq!(values, utf8.then(|| vec![Value::Text(Bytes::from(content))]));
            let _ = tuple.row(&table(&[("c", ColumnKind::Binary, false)]));
        }
    }
}
