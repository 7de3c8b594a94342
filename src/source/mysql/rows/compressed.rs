//! Columns that MariaDB keeps compressed (`COMPRESSED`), and so the log.
//!
//! A value begins with a byte: its high half is the method, 0 for none and 8 for zlib. Of zlib the bit 0x08 says that the
//! stream has no header, the low three bits how many bytes of the uncompressed length follow, the most significant
//! first. An empty value has no byte at all. The layout is that of `field_comp.cc` in MariaDB's source.

use flate2::{Decompress, FlushDecompress, Status};

use super::reader::{ReadError, Reader, uint_be};

/// Bytes that are no compressed value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CompressedError {
    #[error("method is {found}, expected 0 or 8")]
    Method { found: u8 },
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("uncompressed length is {found}, expected at most {expected}")]
    TooLong { found: u64, expected: u64 },
    #[error("zlib stream is damaged, or its length is not the declared {expected}")]
    Stream { expected: u64 },
}

/// No zlib stream grows by more.
const MAX_GROWTH: u64 = 1032;

/// Uncompresses values one after the other, with the memory for that.
pub(super) struct Inflater {
    stream: Option<Decompress>,
}

impl Inflater {
    pub(super) fn new() -> Self {
        Self { stream: None }
    }

    /// Appends the uncompressed value of at most `limit` bytes, or gives the part of `raw` that is the value as it is.
    pub(super) fn inflate<'r>(
        &mut self,
        raw: &'r [u8],
        limit: u32,
        out: &mut Vec<u8>,
    ) -> Result<Option<&'r [u8]>, CompressedError> {
        let Some((header, rest)) = raw.split_first() else {
            return Ok(Some(raw));
        };
        match header >> 4 {
            0 => return Ok(Some(rest)),
            8 => {}
            found => return Err(CompressedError::Method { found }),
        }
        let mut reader = Reader::new(rest);
        let length = uint_be(reader.take("uncompressed length", usize::from(header & 0x7))?);
        let stream = reader.rest();
        // What was claimed is allocated below.
        let expected = u64::from(limit).min(MAX_GROWTH.saturating_mul(stream.len() as u64));
        if length > expected {
            return Err(CompressedError::TooLong {
                found: length,
                expected,
            });
        }
        self.stream(stream, header & 0x8 == 0, length, out)?;
        Ok(None)
    }

    fn stream(
        &mut self,
        stream: &[u8],
        has_header: bool,
        length: u64,
        out: &mut Vec<u8>,
    ) -> Result<(), CompressedError> {
        let damaged = CompressedError::Stream { expected: length };
        let inflater = self.stream.get_or_insert_with(|| Decompress::new(has_header));
        inflater.reset(has_header);
        let capacity = usize::try_from(length).map_err(|_| damaged)?;
        out.reserve_exact(capacity);
        let status = inflater.decompress_vec(stream, out, FlushDecompress::Finish);
        if status.is_ok_and(|status| status == Status::StreamEnd) && inflater.total_out() == length {
            Ok(())
        } else {
            Err(damaged)
        }
    }
}

#[cfg(test)]
mod tests;
