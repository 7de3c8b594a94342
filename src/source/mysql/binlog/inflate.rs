//! How MariaDB compresses a part of an event (`log_bin_compress`): a byte that says by what and how long the length is,
//! the expanded length, big endian, and a zlib stream.
//!
//! Layout: "Compressed Record" in MariaDB's `sql/log_event.cc`.

use std::io;

use bytes::Bytes;
use flate2::{Decompress, FlushDecompress, Status};

use super::error::BinlogError;
use super::kind::EventKind;
use super::reader::Reader;

/// The first byte: always set.
const COMPRESSED: u8 = 0x80;
const ALGORITHM: u8 = 0x70;
const LENGTH_LEN: u8 = 0x0F;
/// What is allocated before it is known that the stream really holds that much.
const CHUNK_LEN: usize = 64 << 10;

/// A compressed part, which is the rest of its event.
#[derive(Debug)]
pub(super) struct Compressed<'e> {
    kind: EventKind,
    expanded_len: u32,
    stream: &'e [u8],
}

impl<'e> Compressed<'e> {
    pub(super) fn parse(reader: &mut Reader<'e>) -> Result<Self, BinlogError> {
        let first = reader.u8("compression")?;
        if first & (COMPRESSED | ALGORITHM) != COMPRESSED {
            return Err(reader.unexpected("compression", first, "0x81 to 0x84, which is zlib"));
        }
        let length_len = first & LENGTH_LEN;
        if !(1..=4).contains(&length_len) {
            return Err(reader.unexpected("length of the expanded length", length_len, "1 to 4"));
        }
        let digits = reader.take("expanded length", u64::from(length_len))?;
        let expanded_len = digits.iter().fold(0, |len, digit| len << 8 | u32::from(*digit));
        Ok(Self {
            kind: reader.kind(),
            expanded_len,
            stream: reader.take("zlib stream", reader.remaining() as u64)?,
        })
    }

    /// Bytes that it says it expands to, not to be trusted for an allocation.
    pub(super) fn len(&self) -> u64 {
        u64::from(self.expanded_len)
    }

    /// Expands it behind `out`, whose length the caller has checked against its limit together with [`len`](Self::len).
    ///
    /// # Errors
    /// Not one zlib stream, or one of another length.
    pub(super) fn inflate(&self, mut out: Vec<u8>) -> Result<Bytes, BinlogError> {
        let start = out.len();
        let len = usize::try_from(self.expanded_len).unwrap_or(usize::MAX);
        let end = start.saturating_add(len);
        let mut zlib = Decompress::new(true);
        let mut stream = self.stream;
        loop {
            // One byte beyond the end shows a stream that is too long, and lets one that is not reach its own end.
            if out.len() == out.capacity() {
                let room = end.saturating_add(1) - out.len();
                out.reserve_exact(room.min(out.len().max(CHUNK_LEN)));
            }
            let before = (zlib.total_in(), zlib.total_out());
            let status = zlib
                .decompress_vec(stream, &mut out, FlushDecompress::None)
                .map_err(|error| self.broken(io::Error::other(error)))?;
            let consumed = usize::try_from(zlib.total_in() - before.0).unwrap_or(usize::MAX);
            stream = stream.get(consumed..).unwrap_or_default();
            if out.len() > end {
                return Err(self.of_length(zlib.total_out()));
            }
            if status == Status::StreamEnd {
                break;
            }
            if before == (zlib.total_in(), zlib.total_out()) {
                return Err(self.broken(io::ErrorKind::UnexpectedEof.into()));
            }
        }
        if !stream.is_empty() {
            return Err(BinlogError::Trailing {
                kind: self.kind,
                found: stream.len(),
            });
        }
        if out.len() != end {
            return Err(self.of_length(zlib.total_out()));
        }
        Ok(out.into())
    }

    fn broken(&self, source: io::Error) -> BinlogError {
        let kind = self.kind;
        BinlogError::Decompress { kind, source }
    }

    fn of_length(&self, found: u64) -> BinlogError {
        BinlogError::Decompressed {
            kind: self.kind,
            found,
            expected: self.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::mysql::binlog::Event;
    use crate::source::mysql::binlog::sample::{MAX_EVENT_BYTES, compressed, decode, mariadb, zlib};

    fn write_compressed(columns: &[u8], part: &[u8]) -> Result<Event, BinlogError> {
        let data = [[0; 8].as_slice(), columns, part].concat();
        decode(&mut mariadb(), EventKind::WRITE_ROWS_COMPRESSED_V1, data)
    }

    #[test]
    fn compression_that_is_not_as_it_says_is_an_error() {
        let inside = vec![7; 200_000];
        let stream = zlib(&inside);
        let len = inside.len();
        assert!(write_compressed(b"\x01\x01", &compressed(len, &stream)).is_ok());
        for wrong in [0, 1, len - 1, len + 1, MAX_EVENT_BYTES - 2] {
            let error = write_compressed(b"\x01\x01", &compressed(wrong, &stream)).unwrap_err();
            assert!(matches!(error, BinlogError::Decompressed { .. }), "{wrong}: {error}");
        }
        for cut in 0..stream.len() {
            write_compressed(b"\x01\x01", &compressed(len, &stream[..cut])).unwrap_err();
        }
        let behind = [stream.as_slice(), b"more"].concat();
        let error = write_compressed(b"\x01\x01", &compressed(len, &behind)).unwrap_err();
        assert!(matches!(error, BinlogError::Trailing { found: 4, .. }), "{error}");
        let mut damaged = stream.clone();
        *damaged.last_mut().unwrap() ^= 1;
        let error = write_compressed(b"\x01\x01", &compressed(len, &damaged)).unwrap_err();
        assert!(matches!(error, BinlogError::Decompress { .. }), "{error}");

        for first in [0x04, 0x80, 0x85, 0x88, 0x94, 0xC4] {
            let mut part = compressed(len, &stream);
            part[0] = first;
            let error = write_compressed(b"\x01\x01", &part).unwrap_err();
            assert!(matches!(error, BinlogError::Field { .. }), "{first}: {error}");
        }
        // More columns than there are bytes for them.
        let error = write_compressed(b"\xFE\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF", &compressed(len, &stream)).unwrap_err();
        assert!(matches!(error, BinlogError::Short { field: "columns", .. }), "{error}");
    }
}
