//! Walks the rows of one WRITE_ROWS, UPDATE_ROWS or DELETE_ROWS event.
//!
//! An event says which columns its rows hold, for the row before an UPDATE and the one after it apart
//! (`binlog_row_image`): the others are absent, whatever their value is. Each row begins with a bit for each column that
//! it holds, set where that is NULL; then come the cells. Rows are not counted in the event: they end where it does.
//!
//! Format: `Rows_event` in MySQL's source.

use std::mem;

use bytes::Bytes;

use super::cell::{CellError, Printer};
use super::plan::TablePlan;
use super::reader::{ReadError, Reader, bit};
use crate::row::{Row, Value};
use crate::source::mysql::RowsKind;

/// A changed row: only an UPDATE has both sides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RowPair {
    pub(crate) before: Option<Row>,
    pub(crate) after: Option<Row>,
}

/// Rows that can't be read. They never will be; other events can.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RowError {
    #[error("rows of `{table}` have {found} columns, expected {expected} as in its table map")]
    ColumnCount { table: String, found: u64, expected: usize },
    /// Differences are not applied to old documents. The rows behind this one can be read.
    #[error("update of `{table}` holds a difference of the JSON document `{column}`, expected the whole one")]
    Difference { table: String, column: String },
    #[error("rows of `{table}` hold no column, but {found} bytes")]
    BareRows { table: String, found: usize },
    #[error("read rows event of `{table}`")]
    Event { table: String, source: ReadError },
    /// Where the next row would begin is not known.
    #[error("read column `{column}` of `{table}`")]
    Cut {
        table: String,
        column: String,
        source: ReadError,
    },
    /// The rows behind this one can be read.
    #[error("read column `{column}` of `{table}`")]
    Cell {
        table: String,
        column: String,
        source: CellError,
    },
}

/// The rows of an event, in the event's order. After an error in a cell, or a difference, the next row follows, after any
/// other error nothing.
pub(crate) struct Rows<'p> {
    walk: Walk<'p>,
    body: Bytes,
    /// The walk's place in `body`.
    at: usize,
    /// The one row without bytes has not been given yet.
    bare_row: bool,
    printer: Printer<'p>,
}

/// What the rows of an event look like.
struct Walk<'p> {
    plan: &'p TablePlan,
    before: Option<Image>,
    after: Option<Image>,
    /// New rows begin with their value options.
    has_value_options: bool,
}

/// The columns that one side of each row holds.
struct Image {
    /// A bit for each column of the table.
    present: Bytes,
    null_bytes: usize,
}

/// Documents of a new row of which the log may hold only how they differ from those of the old one
/// (`binlog_row_value_options`).
#[derive(Clone, Copy)]
struct Differences<'r> {
    /// A bit for each JSON column of the table; empty: none is a difference.
    documents: &'r [u8],
    before: Option<&'r Row>,
}

impl Differences<'_> {
    const NONE: Self = Self {
        documents: &[],
        before: None,
    };

    /// The document whose difference is empty: that of the old row. None: there was no document that could stay.
    fn unchanged(self, index: usize) -> Option<Value> {
        let Some(before) = self.before else {
            // The old row cannot be read, which is told of first.
            return Some(Value::Unchanged);
        };
        match before.values.get(index)? {
            Value::Null => None,
            Value::Absent => Some(Value::Unchanged),
            document => Some(document.clone()),
        }
    }
}

impl<'p> Rows<'p> {
    /// `body` is what follows the event's post-header (table id, flags, and since version 2 the extra data): it begins
    /// with the column count.
    ///
    /// # Errors
    /// The event is not of this plan's table, or its rows can't be told apart.
    pub(crate) fn new(plan: &'p TablePlan, kind: RowsKind, body: Bytes) -> Result<Self, RowError> {
        let (walk, at) = Walk::new(plan, kind, &body)?;
        let printer = Printer::new(plan, body.clone());
        Ok(Self {
            bare_row: walk.is_bare(),
            walk,
            body,
            at,
            printer,
        })
    }

    /// Passes over up to `count` rows, and returns over how many: fewer than asked for at the event's end.
    ///
    /// # Errors
    /// A row is cut; none follows then.
    pub(crate) fn skip_rows(&mut self, count: u64) -> Result<u64, RowError> {
        let mut skipped = 0;
        if count > 0 && mem::take(&mut self.bare_row) {
            return Ok(1);
        }
        while skipped < count && self.at < self.body.len() {
            let mut reader = Reader::new(self.body.get(self.at..).unwrap_or_default());
            let passed = self.walk.pass(&mut reader);
            self.at = match passed {
                Ok(()) => self.body.len() - reader.rest().len(),
                Err(_) => self.body.len(),
            };
            passed?;
            skipped += 1;
        }
        Ok(skipped)
    }
}

/// Counts an event's rows without reading their values. `body` is as for [`Rows::new`].
///
/// # Errors
/// As [`Rows::new`], or a row is cut.
pub(crate) fn count_rows(plan: &TablePlan, kind: RowsKind, body: &Bytes) -> Result<u64, RowError> {
    let (walk, at) = Walk::new(plan, kind, body)?;
    let mut reader = Reader::new(body.get(at..).unwrap_or_default());
    let mut count = u64::from(walk.is_bare());
    while !reader.is_empty() {
        walk.pass(&mut reader)?;
        count += 1;
    }
    Ok(count)
}

impl Iterator for Rows<'_> {
    type Item = Result<RowPair, RowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut reader = Reader::new(self.body.get(self.at..).unwrap_or_default());
        if reader.is_empty() && !mem::take(&mut self.bare_row) {
            return None;
        }
        let pair = self.walk.pair(&mut reader, &mut self.printer);
        self.at = match &pair {
            Ok(_) | Err(RowError::Cell { .. } | RowError::Difference { .. }) => self.body.len() - reader.rest().len(),
            Err(_) => self.body.len(),
        };
        Some(pair)
    }
}

impl<'p> Walk<'p> {
    fn new(plan: &'p TablePlan, kind: RowsKind, body: &Bytes) -> Result<(Self, usize), RowError> {
        let mut reader = Reader::new(body);
        let in_event = |source| RowError::Event {
            table: full_name(plan),
            source,
        };
        let expected = plan.cells().len();
        let found = reader.lenenc("column count").map_err(in_event)?;
        if usize::try_from(found) != Ok(expected) {
            let table = full_name(plan);
            return Err(RowError::ColumnCount { table, found, expected });
        }
        let mut image = || -> Result<Image, RowError> {
            let present = reader
                .take("bitmap of columns", expected.div_ceil(8))
                .map_err(in_event)?;
            let count = (0..expected).filter(|index| bit(present, *index)).count();
            Ok(Image {
                present: body.slice_ref(present),
                null_bytes: count.div_ceil(8),
            })
        };
        let (before, after) = match kind {
            RowsKind::Write => (None, Some(image()?)),
            RowsKind::Delete => (Some(image()?), None),
            RowsKind::Update | RowsKind::PartialUpdate => (Some(image()?), Some(image()?)),
        };
        let walk = Self {
            plan,
            before,
            after,
            has_value_options: kind == RowsKind::PartialUpdate,
        };
        // No number of such rows would reach the end.
        if walk.is_bare() && !reader.is_empty() {
            let (table, found) = (full_name(plan), reader.rest().len());
            return Err(RowError::BareRows { table, found });
        }
        let at = body.len() - reader.rest().len();
        Ok((walk, at))
    }

    /// With `binlog_row_image=MINIMAL` MySQL logs a row of nothing but defaults as no columns and no bytes. It refuses to
    /// log a second one in the same event (error 1534): there is exactly one.
    fn is_bare(&self) -> bool {
        self.before.iter().chain(&self.after).all(|image| image.null_bytes == 0)
    }

    fn pair(&self, reader: &mut Reader<'_>, printer: &mut Printer<'_>) -> Result<RowPair, RowError> {
        // Both sides are walked before an error in a cell of either is given, so that the next row's start is known.
        let before = match &self.before {
            Some(image) => self.row(image, Differences::NONE, reader, printer)?.map(Some),
            None => Ok(None),
        };
        let after = match &self.after {
            Some(image) => {
                let differences = Differences {
                    documents: self.value_options(reader)?,
                    before: before.as_ref().ok().and_then(Option::as_ref),
                };
                self.row(image, differences, reader, printer)?.map(Some)
            }
            None => Ok(None),
        };
        Ok(RowPair {
            before: before?,
            after: after?,
        })
    }

    /// Reads one side of a row. The outer error is of a row whose end is not known, the inner one of a cell.
    fn row(
        &self,
        image: &Image,
        differences: Differences<'_>,
        reader: &mut Reader<'_>,
        printer: &mut Printer<'_>,
    ) -> Result<Result<Row, RowError>, RowError> {
        let nulls = reader
            .take("bitmap of NULLs", image.null_bytes)
            .map_err(|source| self.in_event(source))?;
        let mut values = Vec::with_capacity(self.plan.cells().len());
        let (mut present_count, mut document_count, mut fault) = (0, 0, None);
        for (index, cell) in self.plan.cells().iter().enumerate() {
            let is_difference = cell.is_document() && bit(differences.documents, document_count);
            document_count += usize::from(cell.is_document());
            if !bit(&image.present, index) {
                values.push(Value::Absent);
                continue;
            }
            let is_null = bit(nulls, present_count);
            present_count += 1;
            if is_null {
                values.push(Value::Null);
                continue;
            }
            let raw = cell.take(reader).map_err(|source| self.cut(index, source))?;
            if fault.is_some() {
                continue;
            }
            let value = if is_difference {
                let unchanged = differences.unchanged(index).filter(|_| raw.is_empty());
                unchanged.ok_or_else(|| self.difference(index))
            } else {
                let value = printer.value(*cell, raw);
                value.map_err(|source| self.cell_error(index, source))
            };
            match value {
                Ok(value) => values.push(value),
                Err(error) => fault = Some(error),
            }
        }
        Ok(match fault {
            None => Ok(Row { values }),
            Some(error) => Err(error),
        })
    }

    /// Passes over one row.
    fn pass(&self, reader: &mut Reader<'_>) -> Result<(), RowError> {
        if let Some(before) = &self.before {
            self.pass_side(before, reader)?;
        }
        if let Some(after) = &self.after {
            self.value_options(reader)?;
            self.pass_side(after, reader)?;
        }
        Ok(())
    }

    /// Which documents of the new row behind it are differences: a bit for each JSON column of the table, or nothing where
    /// all are whole. A difference has a length before it as a document has.
    fn value_options<'b>(&self, reader: &mut Reader<'b>) -> Result<&'b [u8], RowError> {
        const PARTIAL_JSON_UPDATES: u64 = 1;
        if !self.has_value_options {
            return Ok(&[]);
        }
        let options = reader.lenenc("value options");
        if options.map_err(|source| self.in_event(source))? & PARTIAL_JSON_UPDATES == 0 {
            return Ok(&[]);
        }
        let documents = self.plan.cells().iter().filter(|cell| cell.is_document()).count();
        let differences = reader.take("bitmap of differences", documents.div_ceil(8));
        differences.map_err(|source| self.in_event(source))
    }

    fn pass_side(&self, image: &Image, reader: &mut Reader<'_>) -> Result<(), RowError> {
        let nulls = reader
            .take("bitmap of NULLs", image.null_bytes)
            .map_err(|source| self.in_event(source))?;
        let mut present_count = 0;
        for (index, cell) in self.plan.cells().iter().enumerate() {
            if !bit(&image.present, index) {
                continue;
            }
            if !bit(nulls, present_count) {
                cell.take(reader).map_err(|source| self.cut(index, source))?;
            }
            present_count += 1;
        }
        Ok(())
    }

    fn in_event(&self, source: ReadError) -> RowError {
        let table = full_name(self.plan);
        RowError::Event { table, source }
    }

    fn cut(&self, index: usize, source: ReadError) -> RowError {
        RowError::Cut {
            table: full_name(self.plan),
            column: self.column_name(index),
            source,
        }
    }

    fn cell_error(&self, index: usize, source: CellError) -> RowError {
        RowError::Cell {
            table: full_name(self.plan),
            column: self.column_name(index),
            source,
        }
    }

    fn difference(&self, index: usize) -> RowError {
        RowError::Difference {
            table: full_name(self.plan),
            column: self.column_name(index),
        }
    }

    fn column_name(&self, index: usize) -> String {
        let column = self.plan.table().columns.get(index);
        column.map(|column| column.name.clone()).unwrap_or_default()
    }
}

fn full_name(plan: &TablePlan) -> String {
    let table = plan.table();
    format!("{}.{}", table.schema, table.name)
}

#[cfg(test)]
mod tests;
