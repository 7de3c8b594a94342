//! Events of a table's rows: which table, what was done, and the bytes that the rows are decoded from.
//!
//! All versions and MariaDB's compressed ones come out alike: the body begins with the count of columns. Layouts:
//! `Rows_event` and `Table_map_event` in MySQL's `libs/mysql/binlog/event/rows_event`; compressed ones in MariaDB's
//! `sql/log_event.cc`.

use bytes::Bytes;

use super::error::BinlogError;
use super::format::FormatDescription;
use super::inflate::Compressed;
use super::kind::EventKind;
use super::reader::Reader;

/// The last rows event of its statement.
const STATEMENT_END: u16 = 1;

/// A table id of 4 bytes, and flags.
const POST_HEADER_LEN_OLD: u8 = 4 + 2;
/// A table id of 6 bytes, and flags: TABLE_MAP, and rows of version 1.
const POST_HEADER_LEN_V1: u8 = 6 + 2;
/// And a length: rows of version 2.
const POST_HEADER_LEN_V2: u8 = 6 + 2 + 2;

/// What was done to the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RowsKind {
    /// One image a row, the new one.
    Write,
    /// Two images a row, the old one and the new one.
    Update,
    /// One image a row, the old one.
    Delete,
    /// As [`Update`](Self::Update), but JSON columns of the new image can be differences (`binlog_row_value_options`).
    PartialUpdate,
}

/// What the first bytes of a rows event say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowsHead {
    pub kind: RowsKind,
    /// The number that a TABLE_MAP before it gave to the table.
    pub table_id: u64,
    /// The last rows event of its statement.
    pub statement_end: bool,
}

/// Rows of one table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RowsEvent {
    pub head: RowsHead,
    /// Count of columns, bitmaps of those that are there (two in an update), rows.
    pub body: Bytes,
}

/// Names a table for the rows events behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TableMap {
    pub table_id: u64,
    /// What is behind the post-header: schema, table, columns.
    pub body: Bytes,
}

impl RowsKind {
    /// None: not an event of rows.
    fn of(kind: EventKind) -> Option<Self> {
        match kind {
            EventKind::WRITE_ROWS_V1
            | EventKind::WRITE_ROWS
            | EventKind::WRITE_ROWS_COMPRESSED_V1
            | EventKind::WRITE_ROWS_COMPRESSED => Some(Self::Write),
            EventKind::UPDATE_ROWS_V1
            | EventKind::UPDATE_ROWS
            | EventKind::UPDATE_ROWS_COMPRESSED_V1
            | EventKind::UPDATE_ROWS_COMPRESSED => Some(Self::Update),
            EventKind::DELETE_ROWS_V1
            | EventKind::DELETE_ROWS
            | EventKind::DELETE_ROWS_COMPRESSED_V1
            | EventKind::DELETE_ROWS_COMPRESSED => Some(Self::Delete),
            EventKind::PARTIAL_UPDATE_ROWS => Some(Self::PartialUpdate),
            _ => None,
        }
    }

    /// Bitmaps of columns before the rows: one for each image.
    fn bitmap_count(self) -> u64 {
        match self {
            Self::Write | Self::Delete => 1,
            Self::Update | Self::PartialUpdate => 2,
        }
    }
}

impl RowsHead {
    /// Ends a statement that touched no row: its table id is nobody's (`m_table_id` of all ones in 24 bits).
    pub(crate) fn is_dummy(&self) -> bool {
        self.table_id == 0xFF_FFFF
    }

    /// None: not an event of rows.
    pub(super) fn parse(format: &FormatDescription, reader: &mut Reader<'_>) -> Result<Option<Self>, BinlogError> {
        let Some(kind) = RowsKind::of(reader.kind()) else {
            return Ok(None);
        };
        let post_header_len = format.post_header_len(reader.kind())?;
        if !matches!(
            post_header_len,
            POST_HEADER_LEN_OLD | POST_HEADER_LEN_V1 | POST_HEADER_LEN_V2
        ) {
            return Err(reader.unexpected("post-header length", post_header_len, "6, 8 or 10"));
        }
        Ok(Some(Self {
            kind,
            table_id: table_id(post_header_len, reader)?,
            statement_end: reader.u16("flags")? & STATEMENT_END != 0,
        }))
    }
}

impl RowsEvent {
    /// None: not an event of rows.
    ///
    /// # Errors
    /// [`BinlogError::Expands`] when compressed rows are longer than `max_event_bytes`.
    pub(super) fn parse(
        format: &FormatDescription,
        max_event_bytes: usize,
        reader: &mut Reader<'_>,
    ) -> Result<Option<Self>, BinlogError> {
        let Some(head) = RowsHead::parse(format, reader)? else {
            return Ok(None);
        };
        let kind = reader.kind();
        if format.post_header_len(kind)? == POST_HEADER_LEN_V2 {
            // Two bytes of length, which count themselves, and what storage engines add.
            let extra_len = reader.u16("extra data's length")?;
            let Some(extra_len) = extra_len.checked_sub(2) else {
                return Err(reader.unexpected("extra data's length", extra_len, "2 or more"));
            };
            reader.skip("extra data", u64::from(extra_len))?;
        }
        let body = if is_compressed(kind) {
            expand(head, max_event_bytes, reader)?
        } else {
            reader.rest()
        };
        Ok(Some(Self { head, body }))
    }
}

impl TableMap {
    pub(super) fn parse(format: &FormatDescription, reader: &mut Reader<'_>) -> Result<Self, BinlogError> {
        let post_header_len = format.post_header_len(reader.kind())?;
        if !matches!(post_header_len, POST_HEADER_LEN_OLD | POST_HEADER_LEN_V1) {
            return Err(reader.unexpected("post-header length", post_header_len, "6 or 8"));
        }
        let table_id = table_id(post_header_len, reader)?;
        reader.skip("flags", 2)?;
        Ok(Self {
            table_id,
            body: reader.rest(),
        })
    }
}

/// An id of 4 bytes, as before MySQL 5.1.4, or of 6.
fn table_id(post_header_len: u8, reader: &mut Reader<'_>) -> Result<u64, BinlogError> {
    match post_header_len {
        POST_HEADER_LEN_OLD => reader.uint::<4>("table id"),
        _ => reader.uint::<6>("table id"),
    }
}

fn is_compressed(kind: EventKind) -> bool {
    (EventKind::WRITE_ROWS_COMPRESSED_V1.0..=EventKind::DELETE_ROWS_COMPRESSED.0).contains(&kind.0)
}

/// The body as if it had not been compressed: only the rows were, what is before them was not.
fn expand(head: RowsHead, max_event_bytes: usize, reader: &mut Reader<'_>) -> Result<Bytes, BinlogError> {
    let kind = reader.kind();
    let from = reader.peek();
    let column_count = reader.length_encoded("column count")?;
    for _ in 0..head.kind.bitmap_count() {
        reader.skip("columns", column_count.div_ceil(8))?;
    }
    let columns_len = from.len() - reader.remaining();
    let columns = from.get(..columns_len).unwrap_or_default().to_vec();
    let compressed = Compressed::parse(reader)?;
    let size = compressed.len().saturating_add(columns_len as u64);
    if size > max_event_bytes as u64 {
        return Err(BinlogError::Expands {
            kind,
            size,
            limit: max_event_bytes,
            rows: Some(head),
        });
    }
    compressed.inflate(columns)
}

#[cfg(test)]
mod tests;
