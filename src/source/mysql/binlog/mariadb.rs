//! MariaDB's GTID, which begins a transaction or a statement outside of one, and the list of GTIDs at a file's start.
//!
//! Layouts: `Gtid_log_event` and `Gtid_list_log_event` in MariaDB's `sql/log_event.cc`.

use crate::gtid::MariadbGtid;
use crate::source::mysql::xid::Xid;

use super::error::BinlogError;
use super::header::Header;
use super::reader::Reader;

/// The list's count shares its 32 bits with flags for the replica.
const COUNT_BITS: u32 = (1 << 28) - 1;
/// Domain, server, sequence.
const GTID_LEN: u64 = 4 + 4 + 8;

/// The beginning of an event group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MariadbGtidEvent {
    pub gtid: MariadbGtid,
    pub flags: MariadbGtidFlags,
    /// The same in transactions that were committed together.
    pub commit_id: Option<u64>,
    /// Of a transaction that is prepared with this group, or completed by it.
    pub xid: Option<Xid>,
}

/// What an event group is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MariadbGtidFlags(u8);

impl MariadbGtidFlags {
    const STANDALONE: u8 = 0x01;
    const GROUP_COMMIT: u8 = 0x02;
    const TRANSACTIONAL: u8 = 0x04;
    const DDL: u8 = 0x20;
    const PREPARED_XA: u8 = 0x40;
    const COMPLETED_XA: u8 = 0x80;

    /// One event follows and no other ends the group.
    pub(crate) fn is_standalone(self) -> bool {
        self.0 & Self::STANDALONE != 0
    }

    /// Every change in it can be rolled back.
    pub(crate) fn is_transactional(self) -> bool {
        self.0 & Self::TRANSACTIONAL != 0
    }

    pub(crate) fn is_ddl(self) -> bool {
        self.0 & Self::DDL != 0
    }

    /// XA PREPARE: whether its changes come to pass, a later group says.
    pub(crate) fn is_prepared_xa(self) -> bool {
        self.0 & Self::PREPARED_XA != 0
    }

    /// XA COMMIT or XA ROLLBACK of what an earlier group prepared.
    pub(crate) fn is_completed_xa(self) -> bool {
        self.0 & Self::COMPLETED_XA != 0
    }
}

impl MariadbGtidEvent {
    /// Flags of newer servers and padding behind it are not looked at.
    pub(super) fn parse(header: &Header, reader: &mut Reader<'_>) -> Result<Self, BinlogError> {
        let sequence = reader.u64("sequence")?;
        let gtid = MariadbGtid {
            domain: reader.u32("domain")?,
            server: header.server_id,
            sequence,
        };
        let flags = MariadbGtidFlags(reader.u8("flags")?);
        let grouped = flags.0 & MariadbGtidFlags::GROUP_COMMIT != 0;
        let commit_id = grouped.then(|| reader.u64("commit id")).transpose()?;
        let xa = flags.is_prepared_xa() || flags.is_completed_xa();
        let xid = xa.then(|| xid(reader)).transpose()?;
        Ok(Self {
            gtid,
            flags,
            commit_id,
            xid,
        })
    }
}

/// Format, two lengths of a byte, both parts.
fn xid(reader: &mut Reader<'_>) -> Result<Xid, BinlogError> {
    let format = reader.u32("XA format")?;
    let gtrid_len = reader.u8("gtrid length")?;
    let bqual_len = reader.u8("bqual length")?;
    let gtrid = reader.take("gtrid", u64::from(gtrid_len))?;
    let bqual = reader.take("bqual", u64::from(bqual_len))?;
    Xid::new(format, gtrid, bqual).map_err(|source| reader.malformed_xid(source))
}

/// What was written before the file, of each domain and server; in a stream that starts in the middle, before that.
/// The last one of a domain is where it stands.
pub(super) fn gtid_list(reader: &mut Reader<'_>) -> Result<Vec<MariadbGtid>, BinlogError> {
    let count = reader.u32("count")? & COUNT_BITS;
    let listed = reader.bytes("list", u64::from(count).saturating_mul(GTID_LEN))?;
    // A server puts two bytes of nothing behind an empty list, so that the event is no shorter than old readers expect.
    if count == 0 {
        let padding = reader.remaining().min(2);
        reader.skip("padding", padding as u64)?;
    }
    reader.finish()?;
    // The count is no more than what the event really holds.
    let mut listed = Reader::new(reader.kind(), &listed);
    (0..count)
        .map(|_| {
            Ok(MariadbGtid {
                domain: listed.u32("domain")?,
                server: listed.u32("server")?,
                sequence: listed.u64("sequence")?,
            })
        })
        .collect()
}
