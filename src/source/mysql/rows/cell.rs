//! Cells: how each is cut out of a row, and what value its bytes are.
//!
//! Text and bytes that are already as they should be stay slices of the event. All else is printed, into memory that the
//! cells of an event share.

use bytes::{Bytes, BytesMut};

use super::charset::{Charset, CharsetError};
use super::compressed::{CompressedError, Inflater};
use super::decimal::DecimalError;
use super::format::TextFormat;
use super::jsonb::JsonbError;
use super::plan::TablePlan;
use super::reader::{ReadError, Reader, uint_le};
use super::temporal::TemporalError;
use crate::row::{ColumnKind, Value};

/// How the cells of a column are read.
#[derive(Debug, Clone, Copy)]
pub(super) struct CellPlan {
    pub(super) width: Width,
    pub(super) reading: Reading,
}

/// The bytes that a cell takes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Width {
    Fixed(u8),
    /// As many as a length of so many bytes says.
    Counted(u8),
}

/// How a cell's bytes become its value.
#[derive(Debug, Clone, Copy)]
pub(super) enum Reading {
    Content(Content),
    /// BINARY(n), whose trailing zero bytes the log leaves out.
    Padded {
        bytes: u16,
    },
    /// Up to so many bytes when uncompressed.
    Compressed {
        limit: u32,
        content: Content,
    },
    /// The number of a string in the plan's list with the number `choices`.
    Enum {
        choices: u16,
    },
    /// A bit for each string of such a list.
    Set {
        choices: u16,
    },
    Printed(TextFormat),
}

/// What a string's bytes are.
#[derive(Debug, Clone, Copy)]
pub(super) enum Content {
    Bytes,
    Utf8,
    Coded(Charset),
}

/// Bytes that are no value of their column.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CellError {
    #[error("text is not UTF-8")]
    NotUtf8,
    #[error(transparent)]
    Charset(#[from] CharsetError),
    #[error(transparent)]
    Decimal(#[from] DecimalError),
    #[error(transparent)]
    Temporal(#[from] TemporalError),
    #[error(transparent)]
    Json(#[from] JsonbError),
    #[error("uncompress value")]
    Compressed(#[from] CompressedError),
    #[error("ENUM has the string {found}, expected at most {expected}")]
    Enum { found: u64, expected: usize },
    #[error("SET has bits beyond its {expected} strings")]
    Set { expected: usize },
    #[error("value has {found} bytes, expected at most {expected}")]
    TooLong { found: usize, expected: usize },
}

impl Width {
    /// Of a string of up to so many bytes.
    pub(super) fn of_length(bytes: u16) -> Self {
        Self::Counted(if bytes < 256 { 1 } else { 2 })
    }
}

impl Content {
    pub(super) fn kind(self) -> ColumnKind {
        match self {
            Self::Bytes => ColumnKind::Binary,
            Self::Utf8 | Self::Coded(_) => ColumnKind::Text,
        }
    }
}

impl CellPlan {
    /// MySQL's own JSON; MariaDB's is text.
    pub(super) fn is_document(self) -> bool {
        matches!(self.reading, Reading::Printed(TextFormat::Json))
    }

    /// Cuts the cell out of a row.
    pub(super) fn take<'b>(self, reader: &mut Reader<'b>) -> Result<&'b [u8], ReadError> {
        match self.width {
            Width::Fixed(bytes) => reader.take("value", usize::from(bytes)),
            Width::Counted(length_bytes) => reader.counted("value", usize::from(length_bytes)),
        }
    }
}

/// Makes the values of an event's cells.
pub(super) struct Printer<'p> {
    plan: &'p TablePlan,
    /// The event, which the cells are cut out of.
    body: Bytes,
    /// One cell's text, until its length is known.
    scratch: Vec<u8>,
    /// Where printed cells are kept, one behind the other.
    chunk: BytesMut,
    chunk_bytes: usize,
    inflater: Inflater,
}

/// A value keeps the whole chunk that it lies in, so chunks are small.
const MAX_CHUNK_BYTES: usize = 8 << 10;
/// The first one: enough for a row or two. Each next is twice as large.
const FIRST_CHUNK_BYTES: usize = 128;

impl<'p> Printer<'p> {
    pub(super) fn new(plan: &'p TablePlan, body: Bytes) -> Self {
        Self {
            plan,
            body,
            scratch: Vec::with_capacity(FIRST_CHUNK_BYTES),
            chunk: BytesMut::new(),
            chunk_bytes: FIRST_CHUNK_BYTES,
            inflater: Inflater::new(),
        }
    }

    /// The value of a cell that was cut out of this event.
    pub(super) fn value(&mut self, cell: CellPlan, raw: &[u8]) -> Result<Value, CellError> {
        match cell.reading {
            Reading::Content(content) => self.content(content, self.body.slice_ref(raw)),
            Reading::Padded { bytes } => self.padded(raw, usize::from(bytes)),
            Reading::Compressed { limit, content } => self.compressed(raw, limit, content),
            Reading::Enum { choices } => self.choice(raw, choices),
            Reading::Set { choices } => self.printed(TextFormat::Set, raw, self.plan.choices(choices)),
            Reading::Printed(format) => self.printed(format, raw, &[]),
        }
    }

    fn printed(&mut self, format: TextFormat, raw: &[u8], strings: &[Bytes]) -> Result<Value, CellError> {
        self.scratch.clear();
        format.write(raw, strings, &mut self.scratch)?;
        Ok(Value::Text(self.kept()))
    }

    fn content(&mut self, content: Content, bytes: Bytes) -> Result<Value, CellError> {
        match content {
            Content::Bytes => Ok(Value::Bytes(bytes)),
            Content::Utf8 if str::from_utf8(&bytes).is_ok() => Ok(Value::Text(bytes)),
            Content::Utf8 => Err(CellError::NotUtf8),
            // The letters that most charsets share are the same in UTF-8; what escapes lead to is not.
            Content::Coded(charset) => {
                let text = charset.decode(&bytes)?;
                if text.as_bytes() == bytes {
                    drop(text);
                    return Ok(Value::Text(bytes));
                }
                self.scratch.clear();
                self.scratch.extend_from_slice(text.as_bytes());
                Ok(Value::Text(self.kept()))
            }
        }
    }

    fn padded(&mut self, raw: &[u8], bytes: usize) -> Result<Value, CellError> {
        if raw.len() == bytes {
            return Ok(Value::Bytes(self.body.slice_ref(raw)));
        }
        if raw.len() > bytes {
            return Err(CellError::TooLong {
                found: raw.len(),
                expected: bytes,
            });
        }
        self.scratch.clear();
        self.scratch.extend_from_slice(raw);
        self.scratch.resize(bytes, 0);
        Ok(Value::Bytes(self.kept()))
    }

    /// The strings count from 1; 0 is the empty text that a server puts in the place of an invalid one.
    fn choice(&self, raw: &[u8], choices: u16) -> Result<Value, CellError> {
        let strings = self.plan.choices(choices);
        match uint_le(raw) {
            0 => Ok(Value::Text(Bytes::new())),
            found => {
                let string = usize::try_from(found - 1).ok().and_then(|index| strings.get(index));
                let expected = strings.len();
                let string = string.ok_or(CellError::Enum { found, expected })?;
                Ok(Value::Text(string.clone()))
            }
        }
    }

    fn compressed(&mut self, raw: &[u8], limit: u32, content: Content) -> Result<Value, CellError> {
        self.scratch.clear();
        let bytes = match self.inflater.inflate(raw, limit, &mut self.scratch)? {
            Some(plain) => self.body.slice_ref(plain),
            None => self.kept(),
        };
        self.content(content, bytes)
    }

    /// Keeps what stands in the scratch buffer.
    fn kept(&mut self) -> Bytes {
        if self.scratch.len() > MAX_CHUNK_BYTES {
            return Bytes::copy_from_slice(&self.scratch);
        }
        if self.chunk.capacity() < self.scratch.len() {
            let bytes = self.chunk_bytes.max(self.scratch.len());
            self.chunk = BytesMut::with_capacity(bytes);
            self.chunk_bytes = (2 * bytes).min(MAX_CHUNK_BYTES);
        }
        self.chunk.extend_from_slice(&self.scratch);
        self.chunk.split().freeze()
    }
}

#[cfg(test)]
mod tests;
