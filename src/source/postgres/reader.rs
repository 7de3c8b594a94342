//! Walks the fields of one pgoutput message: the only place where its bytes are cut, and where every length is checked
//! before it is used. Nothing is allocated here.

use bytes::Bytes;

use super::pgoutput::DecodeError;
use super::tuple::{Cell, Tuple};
use super::wire::{Tag, unix_us};
use crate::position::Lsn;

/// A place in a message. Each read names its field, for the error.
#[derive(Debug, Clone)]
pub(super) struct Reader<'p> {
    tag: Tag,
    payload: &'p Bytes,
    rest: &'p [u8],
}

impl<'p> Reader<'p> {
    /// Starts behind the tag.
    pub(super) fn of_message(payload: &'p Bytes) -> Result<Self, DecodeError> {
        let (tag, rest) = payload.split_first().ok_or(DecodeError::Empty)?;
        Ok(Self {
            tag: Tag(*tag),
            payload,
            rest,
        })
    }

    /// Starts at the first of a tuple's cells.
    pub(super) fn of_cells(cells: &'p Bytes) -> Self {
        Self {
            tag: Tag(b'N'),
            payload: cells,
            rest: cells,
        }
    }

    pub(super) fn tag(&self) -> Tag {
        self.tag
    }

    /// Everything must have been read.
    pub(super) fn finish(&self) -> Result<(), DecodeError> {
        if self.rest.is_empty() {
            return Ok(());
        }
        let found = self.payload.len();
        Err(DecodeError::Trailing {
            tag: self.tag,
            found,
            expected: found - self.rest.len(),
        })
    }

    pub(super) fn u8(&mut self, field: &'static str) -> Result<u8, DecodeError> {
        self.array(field).map(u8::from_be_bytes)
    }

    pub(super) fn u16(&mut self, field: &'static str) -> Result<u16, DecodeError> {
        self.array(field).map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self, field: &'static str) -> Result<u32, DecodeError> {
        self.array(field).map(u32::from_be_bytes)
    }

    pub(super) fn i32(&mut self, field: &'static str) -> Result<i32, DecodeError> {
        self.array(field).map(i32::from_be_bytes)
    }

    pub(super) fn lsn(&mut self, field: &'static str) -> Result<Lsn, DecodeError> {
        self.array(field).map(|bytes| Lsn(u64::from_be_bytes(bytes)))
    }

    /// In Unix microseconds.
    pub(super) fn time_us(&mut self, field: &'static str) -> Result<i64, DecodeError> {
        self.array(field).map(|bytes| unix_us(i64::from_be_bytes(bytes)))
    }

    /// A byte of which only the `known` bits have a meaning.
    pub(super) fn flags(&mut self, field: &'static str, known: u8) -> Result<u8, DecodeError> {
        let flags = self.u8(field)?;
        if flags & !known == 0 {
            Ok(flags)
        } else {
            Err(DecodeError::UnknownFlags {
                tag: self.tag,
                field,
                flags,
            })
        }
    }

    /// A text that a zero byte ends.
    pub(super) fn text(&mut self, field: &'static str) -> Result<&'p str, DecodeError> {
        let tag = self.tag;
        let unended = DecodeError::Unended { tag, field };
        let end = memchr::memchr(0, self.rest).ok_or(unended)?;
        let text = self.take(field, end)?;
        self.u8(field)?;
        str::from_utf8(text).map_err(|_| DecodeError::NotUtf8 { tag, field })
    }

    /// Bytes behind their 32-bit length, sharing the message's memory.
    pub(super) fn content(&mut self, field: &'static str) -> Result<Bytes, DecodeError> {
        let content = self.counted(field)?;
        Ok(self.payload.slice_ref(content))
    }

    /// Walks a tuple's cells without keeping any, so that the claimed count costs nothing.
    pub(super) fn tuple(&mut self) -> Result<Tuple, DecodeError> {
        let count = self.u16("cell count")?;
        let start = self.rest;
        for _ in 0..count {
            self.cell()?;
        }
        let (cells, _) = start.split_at(start.len() - self.rest.len());
        Ok(Tuple::new(count, self.payload.slice_ref(cells)))
    }

    pub(super) fn cell(&mut self) -> Result<Cell<'p>, DecodeError> {
        match self.u8("cell kind")? {
            b'n' => Ok(Cell::Null),
            b'u' => Ok(Cell::Unchanged),
            b't' => self.counted("cell").map(Cell::Text),
            b'b' => self.counted("cell").map(Cell::Binary),
            kind => Err(self.unknown("cell kind", kind)),
        }
    }

    pub(super) fn unknown(&self, field: &'static str, kind: u8) -> DecodeError {
        DecodeError::UnknownKind {
            tag: self.tag,
            field,
            kind: Tag(kind),
        }
    }

    fn counted(&mut self, field: &'static str) -> Result<&'p [u8], DecodeError> {
        let length = self.u32(field)?;
        // Where a length does not fit the address space, no message can hold it either.
        self.take(field, usize::try_from(length).unwrap_or(usize::MAX))
    }

    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], DecodeError> {
        let (head, rest) = self.rest.split_first_chunk().ok_or_else(|| self.short(field, N))?;
        self.rest = rest;
        Ok(*head)
    }

    fn take(&mut self, field: &'static str, length: usize) -> Result<&'p [u8], DecodeError> {
        let (head, rest) = self
            .rest
            .split_at_checked(length)
            .ok_or_else(|| self.short(field, length))?;
        self.rest = rest;
        Ok(head)
    }

    fn short(&self, field: &'static str, expected: usize) -> DecodeError {
        DecodeError::Short {
            tag: self.tag,
            field,
            found: self.rest.len(),
            expected,
        }
    }
}
