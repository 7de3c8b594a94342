//! Walks the fields of one event's data: where its bytes are cut, and every length is checked before it is used. Nothing
//! is allocated here but names.

use bytes::Bytes;

use super::error::BinlogError;
use super::kind::EventKind;
use crate::source::mysql::xid::XidError;

/// A place in an event. Integers are little endian; each read names its field, for the error.
#[derive(Debug, Clone)]
pub(super) struct Reader<'e> {
    kind: EventKind,
    data: &'e Bytes,
    rest: &'e [u8],
}

impl<'e> Reader<'e> {
    /// Starts at the first byte of `data`.
    pub(super) fn new(kind: EventKind, data: &'e Bytes) -> Self {
        Self { kind, data, rest: data }
    }

    pub(super) fn kind(&self) -> EventKind {
        self.kind
    }

    /// Bytes left.
    pub(super) fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Everything must have been read.
    pub(super) fn finish(&self) -> Result<(), BinlogError> {
        match self.rest.len() {
            0 => Ok(()),
            found => Err(BinlogError::Trailing { kind: self.kind, found }),
        }
    }

    pub(super) fn u8(&mut self, field: &'static str) -> Result<u8, BinlogError> {
        self.array(field).map(u8::from_le_bytes)
    }

    pub(super) fn u16(&mut self, field: &'static str) -> Result<u16, BinlogError> {
        self.array(field).map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self, field: &'static str) -> Result<u32, BinlogError> {
        self.array(field).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self, field: &'static str) -> Result<u64, BinlogError> {
        self.array(field).map(u64::from_le_bytes)
    }

    /// An integer of `N` bytes, 8 at most.
    pub(super) fn uint<const N: usize>(&mut self, field: &'static str) -> Result<u64, BinlogError> {
        let bytes: [u8; N] = self.array(field)?;
        Ok(little_endian(&bytes))
    }

    pub(super) fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], BinlogError> {
        let (head, rest) = self
            .rest
            .split_first_chunk()
            .ok_or_else(|| self.short(field, N as u64))?;
        self.rest = rest;
        Ok(*head)
    }

    /// The protocol's length-encoded integer: one byte up to 250, else a byte that says how many follow.
    ///
    /// # Errors
    /// 251, which stands for NULL in a text row, and 255 are no integers.
    pub(super) fn length_encoded(&mut self, field: &'static str) -> Result<u64, BinlogError> {
        match self.u8(field)? {
            0xFC => self.uint::<2>(field),
            0xFD => self.uint::<3>(field),
            0xFE => self.uint::<8>(field),
            found @ (0xFB | 0xFF) => Err(self.unexpected(field, found, "a length-encoded integer")),
            small => Ok(u64::from(small)),
        }
    }

    /// `length` bytes, sharing the event's memory.
    pub(super) fn bytes(&mut self, field: &'static str, length: u64) -> Result<Bytes, BinlogError> {
        let bytes = self.take(field, length)?;
        Ok(self.data.slice_ref(bytes))
    }

    pub(super) fn skip(&mut self, field: &'static str, length: u64) -> Result<(), BinlogError> {
        self.take(field, length).map(drop)
    }

    pub(super) fn text(&mut self, field: &'static str, length: u64) -> Result<String, BinlogError> {
        let kind = self.kind;
        let text = self.take(field, length)?;
        str::from_utf8(text)
            .map(str::to_owned)
            .map_err(|_| BinlogError::NotUtf8 { kind, field })
    }

    /// What is left, sharing the event's memory.
    pub(super) fn rest(&mut self) -> Bytes {
        self.data.slice_ref(std::mem::take(&mut self.rest))
    }

    /// What is left, to look at only.
    pub(super) fn peek(&self) -> &'e [u8] {
        self.rest
    }

    pub(super) fn take(&mut self, field: &'static str, length: u64) -> Result<&'e [u8], BinlogError> {
        let cut = usize::try_from(length)
            .ok()
            .and_then(|length| self.rest.split_at_checked(length));
        let (head, rest) = cut.ok_or_else(|| self.short(field, length))?;
        self.rest = rest;
        Ok(head)
    }

    /// The field has a value that it may not have.
    pub(super) fn unexpected(&self, field: &'static str, found: impl Into<u64>, expected: &'static str) -> BinlogError {
        BinlogError::Field {
            kind: self.kind,
            field,
            found: found.into(),
            expected,
        }
    }

    pub(super) fn malformed_xid(&self, source: XidError) -> BinlogError {
        let kind = self.kind;
        BinlogError::Xid { kind, source }
    }

    fn short(&self, field: &'static str, expected: u64) -> BinlogError {
        BinlogError::Short {
            kind: self.kind,
            field,
            found: self.rest.len(),
            expected,
        }
    }
}

/// Of 8 bytes at most; what is behind them is not looked at.
pub(super) fn little_endian(bytes: &[u8]) -> u64 {
    let mut wide = [0; 8];
    for (to, from) in wide.iter_mut().zip(bytes) {
        *to = *from;
    }
    u64::from_le_bytes(wide)
}
