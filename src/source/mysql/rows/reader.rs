//! Walks the bytes of a TABLE_MAP or rows event: the only place where they are cut, and where every length is checked
//! before it is used. Numbers are little-endian. Nothing is allocated here.

/// A place in an event. Each read names its field, for the error.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader<'b> {
    rest: &'b [u8],
}

/// Bytes that end too early, or a length that is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    #[error("{field} is cut: found {found} bytes, expected {expected}")]
    Short {
        field: &'static str,
        found: usize,
        expected: usize,
    },
    #[error("{field} starts with the byte {found:#04x}, expected a length-encoded integer")]
    NotALength { field: &'static str, found: u8 },
}

impl<'b> Reader<'b> {
    pub(super) fn new(bytes: &'b [u8]) -> Self {
        Self { rest: bytes }
    }

    /// What has not been read yet.
    pub(super) fn rest(&self) -> &'b [u8] {
        self.rest
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(super) fn u8(&mut self, field: &'static str) -> Result<u8, ReadError> {
        let (first, rest) = self.rest.split_first().ok_or_else(|| self.short(field, 1))?;
        self.rest = rest;
        Ok(*first)
    }

    pub(super) fn take(&mut self, field: &'static str, length: usize) -> Result<&'b [u8], ReadError> {
        let (head, rest) = self
            .rest
            .split_at_checked(length)
            .ok_or_else(|| self.short(field, length))?;
        self.rest = rest;
        Ok(head)
    }

    /// A number of up to eight bytes.
    pub(super) fn uint(&mut self, field: &'static str, width: usize) -> Result<u64, ReadError> {
        self.take(field, width).map(uint_le)
    }

    /// A number whose first byte says how many follow: `Protocol::LengthEncodedInteger`.
    pub(super) fn lenenc(&mut self, field: &'static str) -> Result<u64, ReadError> {
        match self.u8(field)? {
            small @ 0..=0xFA => Ok(u64::from(small)),
            0xFC => self.uint(field, 2),
            0xFD => self.uint(field, 3),
            0xFE => self.uint(field, 8),
            found => Err(ReadError::NotALength { field, found }),
        }
    }

    /// Bytes behind their length-encoded length.
    pub(super) fn lenenc_bytes(&mut self, field: &'static str) -> Result<&'b [u8], ReadError> {
        let length = self.lenenc(field)?;
        self.take(field, to_usize(length))
    }

    /// Bytes behind a length of `width` bytes.
    pub(super) fn counted(&mut self, field: &'static str, width: usize) -> Result<&'b [u8], ReadError> {
        let length = self.uint(field, width)?;
        self.take(field, to_usize(length))
    }

    fn short(&self, field: &'static str, expected: usize) -> ReadError {
        ReadError::Short {
            field,
            found: self.rest.len(),
            expected,
        }
    }
}

/// The number in up to eight bytes, the least significant first.
pub(super) fn uint_le(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .rev()
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// The number in up to eight bytes, the most significant first.
pub(super) fn uint_be(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// The bit of a bitmap whose lowest bit comes first; unset behind its end.
pub(super) fn bit(bitmap: &[u8], index: usize) -> bool {
    bitmap.get(index / 8).is_some_and(|byte| byte >> (index % 8) & 1 == 1)
}

/// Where a length does not fit the address space, no event can hold it either.
fn to_usize(length: u64) -> usize {
    usize::try_from(length).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_read_in_each_width() {
        let cases: [(&[u8], u64); 5] = [
            (b"\x00", 0),
            (b"\xFA", 250),
            (b"\xFC\xFF\x00", 255),
            (b"\xFD\x00\x00\x01", 65_536),
            (b"\xFE\x00\x00\x00\x00\x00\x00\x00\x80", 1 << 63),
        ];
        for (bytes, expected) in cases {
            let mut reader = Reader::new(bytes);
            assert_eq!(reader.lenenc("length"), Ok(expected));
            assert!(reader.is_empty());
        }
    }

    #[test]
    fn lengths_beyond_the_bytes_say_what_was_there() {
        let error = Reader::new(b"\xFE\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7Fab").lenenc_bytes("column name");
        let found = error.unwrap_err().to_string();
        assert_eq!(found, "column name is cut: found 2 bytes, expected 9223372036854775807");
        let error = Reader::new(b"\xFB").lenenc("column name").unwrap_err().to_string();
        assert_eq!(
            error,
            "column name starts with the byte 0xfb, expected a length-encoded integer"
        );
    }
}
