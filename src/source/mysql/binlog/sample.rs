//! Events made by hand, for what no captured stream shows.

use std::io::Write;

use bytes::Bytes;
use flate2::write::ZlibEncoder;

use super::*;

/// An event as it is put together: every field can be wrong.
pub(super) struct Sample {
    pub(super) kind: EventKind,
    pub(super) flags: u16,
    pub(super) next_position: u32,
    pub(super) data: Vec<u8>,
}

impl Sample {
    pub(super) fn new(kind: EventKind, data: impl Into<Vec<u8>>) -> Self {
        Self {
            kind,
            flags: 0,
            next_position: 1_000,
            data: data.into(),
        }
    }

    /// In no file.
    pub(super) fn made_up(kind: EventKind, data: impl Into<Vec<u8>>) -> Self {
        Self {
            flags: 0x20,
            next_position: 0,
            ..Self::new(kind, data)
        }
    }

    pub(super) fn without_checksum(&self) -> Bytes {
        self.bytes(0).into()
    }

    pub(super) fn with_checksum(&self) -> Bytes {
        let mut bytes = self.bytes(4);
        bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
        bytes.into()
    }

    fn bytes(&self, more: usize) -> Vec<u8> {
        let size = u32::try_from(19 + self.data.len() + more).unwrap();
        [
            &7_u32.to_le_bytes(),
            [self.kind.0].as_slice(),
            &3_u32.to_le_bytes(),
            &size.to_le_bytes(),
            &self.next_position.to_le_bytes(),
            &self.flags.to_le_bytes(),
            &self.data,
        ]
        .concat()
    }
}

/// Lengths of post-headers as both servers have them.
pub(super) fn post_header_lens() -> Vec<u8> {
    let mut lens = vec![0; 42];
    let known = [
        (EventKind::QUERY, 13),
        (EventKind::ROTATE, 8),
        (EventKind::FORMAT_DESCRIPTION, 99),
        (EventKind::EXECUTE_LOAD_QUERY, 26),
        (EventKind::TABLE_MAP, 8),
        (EventKind::WRITE_ROWS_V1, 8),
        (EventKind::UPDATE_ROWS_V1, 8),
        (EventKind::DELETE_ROWS_V1, 8),
        (EventKind::INCIDENT, 2),
        (EventKind::WRITE_ROWS, 10),
        (EventKind::UPDATE_ROWS, 10),
        (EventKind::DELETE_ROWS, 10),
        (EventKind::PARTIAL_UPDATE_ROWS, 10),
    ];
    for (kind, len) in known {
        lens[usize::from(kind.0) - 1] = len;
    }
    lens
}

/// A FORMAT_DESCRIPTION's data without the room for its own checksum.
pub(super) fn format_data(version: &str, post_header_lens: &[u8], algorithm: u8) -> Vec<u8> {
    let mut padded = version.as_bytes().to_vec();
    padded.resize(50, 0);
    [
        &4_u16.to_le_bytes(),
        padded.as_slice(),
        &[0; 4],
        &[19],
        post_header_lens,
        &[algorithm],
    ]
    .concat()
}

/// MySQL's, whose file has no checksums.
pub(super) fn mysql() -> EventDecoder {
    decoder(&format_data("8.4.0", &post_header_lens(), 0))
}

/// MariaDB's, whose file has no checksums.
pub(super) fn mariadb() -> EventDecoder {
    let mut lens = post_header_lens();
    lens.resize(171, 0);
    let known = [
        (EventKind::MARIADB_GTID, 19),
        (EventKind::MARIADB_GTID_LIST, 4),
        (EventKind::QUERY_COMPRESSED, 13),
        (EventKind::WRITE_ROWS_COMPRESSED_V1, 8),
        (EventKind::UPDATE_ROWS_COMPRESSED_V1, 8),
        (EventKind::DELETE_ROWS_COMPRESSED_V1, 8),
        (EventKind::WRITE_ROWS_COMPRESSED, 10),
        (EventKind::UPDATE_ROWS_COMPRESSED, 10),
        (EventKind::DELETE_ROWS_COMPRESSED, 10),
    ];
    for (kind, len) in known {
        lens[usize::from(kind.0) - 1] = len;
    }
    decoder(&format_data("11.8.9-MariaDB-log", &lens, 0))
}

pub(super) const MAX_EVENT_BYTES: usize = 1 << 20;

pub(super) fn decoder(format_data: &[u8]) -> EventDecoder {
    let mut decoder = EventDecoder::new(MAX_EVENT_BYTES);
    let format = Sample::new(EventKind::FORMAT_DESCRIPTION, format_data).with_checksum();
    decoder.decode(format).unwrap();
    decoder
}

/// Decodes data of a kind in a file without checksums.
pub(super) fn decode(
    decoder: &mut EventDecoder,
    kind: EventKind,
    data: impl Into<Vec<u8>>,
) -> Result<Event, BinlogError> {
    let event = Sample::new(kind, data).without_checksum();
    decoder.decode(event).map(|(_, event)| event)
}

pub(super) fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// MariaDB's form of a compressed part, with a length of four bytes.
pub(super) fn compressed(len: usize, stream: &[u8]) -> Vec<u8> {
    let len = u32::try_from(len).unwrap();
    [&[0x84], len.to_be_bytes().as_slice(), stream].concat()
}
