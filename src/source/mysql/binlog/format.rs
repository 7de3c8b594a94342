//! FORMAT_DESCRIPTION, a binlog file's first event: how to read those that follow it.

use bytes::Bytes;

use super::error::BinlogError;
use super::header::Header;
use super::kind::EventKind;
use super::reader::Reader;

/// Since MySQL 5.0; the only one that servers of today write.
const BINLOG_VERSION: u16 = 4;
const SERVER_VERSION_LEN: u64 = 50;
/// Where MariaDB's own kinds begin, beyond any of MySQL's.
const MARIADB_KINDS: usize = 160;

/// How a binlog file's events end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Checksum {
    None,
    /// Of the zlib polynomial, over all bytes before it.
    Crc32,
}

impl Checksum {
    /// In bytes.
    pub(super) const CRC32_LEN: usize = 4;
    /// Of `enum_binlog_checksum_alg`.
    pub(super) const CRC32_ALGORITHM: u8 = 1;

    fn of_algorithm(algorithm: u8) -> Result<Self, BinlogError> {
        match algorithm {
            0 => Ok(Self::None),
            Self::CRC32_ALGORITHM => Ok(Self::Crc32),
            found => Err(BinlogError::ChecksumAlgorithm {
                kind: EventKind::FORMAT_DESCRIPTION,
                found,
            }),
        }
    }
}

/// What a FORMAT_DESCRIPTION says. It can change from file to file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FormatDescription {
    /// As `@@version` of the server that wrote the file.
    pub server_version: String,
    pub checksum: Checksum,
    pub mariadb: bool,
    /// By kind, from 1.
    post_header_lens: Bytes,
}

impl FormatDescription {
    /// Bytes behind everything else, whatever the algorithm: a server that is asked for no checksums leaves their room.
    pub(super) const TRAILER_LEN: usize = Checksum::CRC32_LEN;

    /// Reads the data without header and trailer.
    ///
    /// # Errors
    /// Also of servers before MySQL 5.6 and MariaDB 5.3, whose events say nothing about checksums.
    pub(super) fn parse(data: &Bytes) -> Result<Self, BinlogError> {
        let mut reader = Reader::new(EventKind::FORMAT_DESCRIPTION, data);
        let version = reader.u16("binlog version")?;
        if version != BINLOG_VERSION {
            return Err(reader.unexpected("binlog version", version, "4"));
        }
        let padded = reader.take("server version", SERVER_VERSION_LEN)?;
        let server_version = padded.split(|byte| *byte == 0).next().unwrap_or_default();
        let server_version = String::from_utf8_lossy(server_version).into_owned();
        reader.skip("creation time", 4)?;
        let header_len = reader.u8("header length")?;
        if usize::from(header_len) != Header::LEN {
            return Err(reader.unexpected("header length", header_len, "19"));
        }
        let mut post_header_lens = reader.rest();
        let Some((algorithm, lens)) = post_header_lens.split_last() else {
            return Err(BinlogError::Missing {
                kind: EventKind::FORMAT_DESCRIPTION,
                field: "checksum algorithm",
            });
        };
        let checksum = Checksum::of_algorithm(*algorithm)?;
        post_header_lens = post_header_lens.slice_ref(lens);
        // A server can be built to call itself something else, but not to have fewer kinds.
        let mariadb = server_version.contains("MariaDB") || post_header_lens.len() >= MARIADB_KINDS;
        Ok(Self {
            server_version,
            checksum,
            mariadb,
            post_header_lens,
        })
    }

    /// How many bytes of a kind's data are its post-header, which a server may make longer than it was.
    ///
    /// # Errors
    /// Nothing was said about the kind.
    pub(super) fn post_header_len(&self, kind: EventKind) -> Result<u8, BinlogError> {
        let index = usize::from(kind.0).checked_sub(1);
        let len = index.and_then(|index| self.post_header_lens.get(index));
        len.copied().ok_or(BinlogError::Missing {
            kind,
            field: "post-header length in FORMAT_DESCRIPTION",
        })
    }
}
