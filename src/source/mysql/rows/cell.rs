//! Cells: how each is cut out of a row, and what value its bytes are.
//!
//! Text and bytes that are already as they should be stay slices of the event. All else is printed, into memory that the
//! cells of an event share.

use bytes::{Bytes, BytesMut};

use super::charset::{Charset, CharsetError};
use super::compressed::{CompressedError, Inflater};
use super::decimal::{self, DecimalError};
use super::jsonb::{self, JsonbError};
use super::plan::TablePlan;
use super::reader::{ReadError, Reader, uint_le};
use super::temporal::{self, TemporalError};
use super::{float, network, old_temporal};
use crate::row::{ColumnKind, Value};

/// How the cells of a column are read.
#[derive(Debug, Clone, Copy)]
pub(super) struct CellPlan {
    width: Width,
    print: Print,
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
pub(super) enum Print {
    Signed,
    Unsigned,
    Float,
    Double,
    Decimal {
        precision: u8,
        scale: u8,
    },
    Year,
    Date,
    Time {
        digits: u8,
    },
    DateTime {
        digits: u8,
    },
    Timestamp {
        digits: u8,
    },
    OldTime {
        digits: u8,
    },
    OldDateTime {
        digits: u8,
    },
    OldTimestamp {
        digits: u8,
    },
    /// The number of a string in the plan's list with that number.
    Enum {
        choices: u16,
    },
    /// A bit for each string.
    Set {
        choices: u16,
    },
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
    Json,
    Uuid,
    Inet4,
    Inet6,
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
    #[error("is not UTF-8")]
    NotUtf8,
    #[error("is not in its charset")]
    Charset(#[from] CharsetError),
    #[error("is no decimal")]
    Decimal(#[from] DecimalError),
    #[error(transparent)]
    Temporal(#[from] TemporalError),
    #[error("is no JSON document")]
    Json(#[from] JsonbError),
    #[error("is not compressed as a column")]
    Compressed(#[from] CompressedError),
    #[error("has {found} for an ENUM of {expected} strings")]
    Enum { found: u64, expected: usize },
    #[error("has bits beyond the {expected} strings of its SET")]
    Set { expected: usize },
    #[error("has {found} bytes, expected at most {expected}")]
    TooLong { found: usize, expected: usize },
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
    pub(super) fn new(width: Width, print: Print) -> Self {
        Self { width, print }
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
            scratch: Vec::new(),
            chunk: BytesMut::new(),
            chunk_bytes: FIRST_CHUNK_BYTES,
            inflater: Inflater::new(),
        }
    }

    /// The value of a cell that was cut out of this event.
    pub(super) fn value(&mut self, cell: CellPlan, raw: &[u8]) -> Result<Value, CellError> {
        match cell.print {
            Print::Content(content) => return self.content(content, self.body.slice_ref(raw)),
            Print::Padded { bytes } => return self.padded(raw, usize::from(bytes)),
            Print::Enum { choices } => return self.choice(raw, choices),
            Print::Compressed { limit, content } => return self.compressed(raw, limit, content),
            _ => {}
        }
        self.scratch.clear();
        self.print(cell.print, raw)?;
        Ok(Value::Text(self.kept()))
    }

    fn print(&mut self, print: Print, raw: &[u8]) -> Result<(), CellError> {
        let out = &mut self.scratch;
        match print {
            Print::Signed => push_integer(signed(raw), out),
            Print::Unsigned => push_integer(uint_le(raw), out),
            Print::Float => float::write_float(f32::from_le_bytes(fixed(raw)), out),
            Print::Double => float::write_double(f64::from_le_bytes(fixed(raw)), out),
            Print::Decimal { precision, scale } => decimal::write_decimal(raw, precision, scale, out)?,
            Print::Year => match uint_le(raw) {
                0 => out.extend_from_slice(b"0000"),
                years => push_integer(1900 + years, out),
            },
            Print::Date => temporal::write_date(raw, out)?,
            Print::Time { digits } => temporal::write_time(raw, digits, out)?,
            Print::DateTime { digits } => temporal::write_datetime(raw, digits, out)?,
            Print::Timestamp { digits } => temporal::write_timestamp(raw, digits, out)?,
            Print::OldTime { digits } => old_temporal::write_time(raw, digits, out)?,
            Print::OldDateTime { digits } => old_temporal::write_datetime(raw, digits, out)?,
            Print::OldTimestamp { digits } => old_temporal::write_timestamp(raw, digits, out)?,
            Print::Set { choices } => write_set(uint_le(raw), self.plan.choices(choices), out)?,
            Print::Json => jsonb::render(raw, out)?,
            Print::Uuid => network::write_uuid(padded(raw)?, out),
            Print::Inet4 => network::write_inet4(padded(raw)?, out),
            Print::Inet6 => network::write_inet6(padded(raw)?, out),
            Print::Content(_) | Print::Padded { .. } | Print::Enum { .. } | Print::Compressed { .. } => {}
        }
        Ok(())
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

fn push_integer<I: itoa::Integer>(number: I, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// The number in one to eight bytes, with its sign.
fn signed(raw: &[u8]) -> i64 {
    let unused_bits = 64 - 8 * raw.len().clamp(1, 8);
    (uint_le(raw) << unused_bits).cast_signed() >> unused_bits
}

/// A cell's bytes as an array of the length that its plan has cut it to.
fn fixed<const N: usize>(raw: &[u8]) -> [u8; N] {
    raw.first_chunk().copied().unwrap_or([0; N])
}

/// Bytes with the trailing zero bytes that the log leaves out.
fn padded<const N: usize>(raw: &[u8]) -> Result<[u8; N], CellError> {
    let mut bytes = [0; N];
    let filled = bytes.get_mut(..raw.len()).ok_or(CellError::TooLong {
        found: raw.len(),
        expected: N,
    })?;
    filled.copy_from_slice(raw);
    Ok(bytes)
}

fn write_set(bits: u64, strings: &[Bytes], out: &mut Vec<u8>) -> Result<(), CellError> {
    let expected = strings.len();
    if bits.checked_shr(u32::try_from(expected).unwrap_or(64)).unwrap_or(0) != 0 {
        return Err(CellError::Set { expected });
    }
    let chosen = strings.iter().enumerate().filter(|(index, _)| bits >> index & 1 == 1);
    for (count, (_, string)) in chosen.enumerate() {
        if count > 0 {
            out.push(b',');
        }
        out.extend_from_slice(string);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
