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
    const PREPARED_XA: u8 = 0x40;
    const COMPLETED_XA: u8 = 0x80;

    /// One event follows and no other ends the group.
    pub(crate) fn is_standalone(self) -> bool {
        self.0 & Self::STANDALONE != 0
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::mysql::binlog::sample::{decode, mariadb};
    use crate::source::mysql::binlog::{Event, EventKind};

    /// Of sequence 7 in domain 5; samples are server 3's.
    fn gtid(flags: u8, behind: &[u8]) -> Result<MariadbGtidEvent, BinlogError> {
        let data = [&7_u64.to_le_bytes(), 5_u32.to_le_bytes().as_slice(), &[flags], behind].concat();
        match decode(&mut mariadb(), EventKind::MARIADB_GTID, data)? {
            Event::MariadbGtid(gtid) => Ok(gtid),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn flags_say_what_follows() {
        let said = |flags| {
            let flags = MariadbGtidFlags(flags);
            [flags.is_standalone(), flags.is_prepared_xa(), flags.is_completed_xa()]
        };
        assert_eq!(said(0x21), [true, false, false]);
        assert_eq!(said(0x4C), [false, true, false]);
        assert_eq!(said(0x8D), [true, false, true]);
        assert_eq!(said(0x12), [false; 3]);
    }

    #[test]
    fn what_the_flags_announce_stands_behind_them() {
        let plain = gtid(0x0C, &[0; 6]).unwrap();
        assert_eq!(
            (plain.gtid.to_string().as_str(), plain.commit_id, plain.xid),
            ("5-3-7", None, None)
        );

        let commit_id = 99_u64.to_le_bytes();
        let name = b"\x01\x00\x00\x00\x02\x01abc\x01\xFF";
        let both = gtid(0x4E, &[&commit_id, name.as_slice()].concat()).unwrap();
        let xid = both.xid.map(|xid| xid.to_string());
        assert_eq!((both.commit_id, xid.as_deref()), (Some(99), Some("X'6162',X'63',1")));

        for (flags, behind) in [(0x02, commit_id.as_slice()), (0x40, &name[..9]), (0x80, &name[..9])] {
            assert!(gtid(flags, behind).is_ok());
            gtid(flags, &behind[..behind.len() - 1]).unwrap_err();
        }
        let long = [b"\x01\x00\x00\x00\x41\x00".as_slice(), &[b'x'; 0x41]].concat();
        let error = gtid(0x40, &long).unwrap_err();
        assert!(matches!(error, BinlogError::Xid { .. }), "{error}");
    }

    #[test]
    fn a_list_has_as_many_as_it_says() {
        let list = |count: u32, behind: &[u8]| {
            let data = [count.to_le_bytes().as_slice(), behind].concat();
            decode(&mut mariadb(), EventKind::MARIADB_GTID_LIST, data)
        };
        let two = [[1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0], [4; 16]].concat();
        for flags in [0, 1 << 28, 0xF << 28] {
            let Event::MariadbGtidList(gtids) = list(2 | flags, &two).unwrap() else {
                panic!("no list")
            };
            let gtids: Vec<_> = gtids.iter().map(ToString::to_string).collect();
            assert_eq!(gtids, ["1-2-3", "67372036-67372036-289360691352306692"]);
        }
        for padding in [b"".as_slice(), b"\0\0"] {
            assert_eq!(list(0, padding).unwrap(), Event::MariadbGtidList(Vec::new()));
        }
        list(0, b"\0\0\0").unwrap_err();
        for (count, len) in [(1, 32), (2, 31), (3, 32), (u32::MAX, 32)] {
            list(count, &two[..len]).unwrap_err();
        }
    }
}
