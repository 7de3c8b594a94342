//! MySQL's GTID events, which begin a transaction: GTID and ANONYMOUS_GTID of a fixed layout, and GTID_TAGGED, which is
//! written with MySQL's serialization library.
//!
//! Layouts: `Gtid_event` in MySQL's `libs/mysql/binlog/event/control_events`, and the readme of its
//! `libs/mysql/serialization`.

use crate::gtid::{Gtid, SourceId, Tag};

use super::error::BinlogError;
use super::kind::EventKind;
use super::reader::Reader;
use super::varlen;

/// The transaction may have changes that were logged as statements.
const MAY_HAVE_STATEMENTS: u8 = 1;
/// The kind of logical clock since MySQL 5.7; what stands behind it depends on it.
const LOGICAL_CLOCK: u8 = 2;
/// In the 7 bytes of a commit time: another one follows.
const TWO_TIMES: u64 = 1 << 55;

/// Fields of GTID_TAGGED, by the numbers that stand before them.
mod field {
    pub(super) const FLAGS: u64 = 0;
    pub(super) const SOURCE: u64 = 1;
    pub(super) const NUMBER: u64 = 2;
    pub(super) const TAG: u64 = 3;
    pub(super) const LAST_COMMITTED: u64 = 4;
    pub(super) const SEQUENCE_NUMBER: u64 = 5;
    pub(super) const COMMIT_TIME: u64 = 6;
    pub(super) const ORIGINAL_COMMIT_TIME: u64 = 7;
    pub(super) const TRANSACTION_LENGTH: u64 = 8;
    /// The last one when this was written; a newer server may add some behind it.
    pub(super) const LAST: u64 = 11;
}

/// The beginning of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GtidEvent {
    /// None: the server gives out no GTIDs (`gtid_mode`).
    pub gtid: Option<Gtid>,
    /// Everything in it was logged as rows.
    pub rows_only: bool,
    /// When the server that the log is of committed it, in Unix microseconds.
    pub commit_time_us: Option<i64>,
    /// When the server that it came from first committed it, in Unix microseconds.
    pub original_commit_time_us: Option<i64>,
    /// Bytes of all its events in the file, this one included.
    pub transaction_length: Option<u64>,
}

impl GtidEvent {
    /// GTID and ANONYMOUS_GTID. What was added behind is of no use here and not looked at.
    pub(super) fn parse(reader: &mut Reader<'_>) -> Result<Self, BinlogError> {
        let flags = reader.u8("flags")?;
        let source = SourceId(reader.array("source id")?);
        let number = reader.u64("transaction number")?;
        let gtid = match reader.kind() {
            EventKind::ANONYMOUS_GTID if number != 0 => {
                return Err(reader.unexpected("transaction number", number, "0"));
            }
            EventKind::ANONYMOUS_GTID => None,
            kind => {
                let gtid = Gtid::new(source, Tag::NONE, number);
                Some(gtid.map_err(|source| BinlogError::Gtid { kind, source })?)
            }
        };
        let clock = reader.u8("logical clock's kind")?;
        if clock != LOGICAL_CLOCK {
            return Err(reader.unexpected("logical clock's kind", clock, "2"));
        }
        reader.skip("logical clocks", 8 + 8)?;

        let mut event = Self {
            gtid,
            rows_only: flags & MAY_HAVE_STATEMENTS == 0,
            commit_time_us: None,
            original_commit_time_us: None,
            transaction_length: None,
        };
        // MySQL 5.7 ends here.
        if reader.remaining() > 0 {
            let commit_time = reader.uint::<7>("commit time")?;
            event.commit_time_us = Some((commit_time & !TWO_TIMES).cast_signed());
            event.original_commit_time_us = event.commit_time_us;
            if commit_time & TWO_TIMES != 0 {
                let original = reader.uint::<7>("original commit time")?;
                event.original_commit_time_us = Some(original.cast_signed());
            }
        }
        if reader.remaining() > 0 {
            event.transaction_length = Some(reader.length_encoded("transaction length")?);
        }
        Ok(event)
    }

    /// GTID_TAGGED, written by servers from 8.3 on for transactions with a tag.
    ///
    /// Fields come in the order of their numbers and can be left out. A field has no length of its own, so that nothing
    /// behind an unknown one can be read; the writer says up to which number that would be wrong.
    pub(super) fn parse_tagged(reader: &mut Reader<'_>) -> Result<Self, BinlogError> {
        let kind = reader.kind();
        let whole = reader.remaining() as u64;
        let version = varlen::unsigned(reader, "serialization version")?;
        if version != 1 {
            return Err(reader.unexpected("serialization version", version, "1"));
        }
        let size = varlen::unsigned(reader, "message size")?;
        if size != whole {
            return Err(reader.unexpected("message size", size, "that of the event's data"));
        }
        // Counted from 1; 0 when a reader may ignore every field.
        let needed = varlen::unsigned(reader, "last field that must be known")?;
        if needed > field::LAST + 1 {
            return Err(reader.unexpected("last field that must be known", needed, "12 or less"));
        }

        let (mut flags, mut source, mut number, mut tag) = (0, None, None, Tag::NONE);
        let (mut commit_time, mut original_commit_time, mut transaction_length) = (None, None, None);
        let mut next = 0;
        while reader.remaining() > 0 {
            let id = varlen::unsigned(reader, "field number")?;
            if id < next {
                return Err(reader.unexpected("field number", id, "a higher one than the one before"));
            }
            match id {
                field::FLAGS => flags = varlen::byte(reader, "flags")?,
                field::SOURCE => source = Some(source_id(reader)?),
                field::NUMBER => number = Some(varlen::signed(reader, "transaction number")?),
                field::TAG => {
                    let length = varlen::unsigned(reader, "tag length")?;
                    let text = reader.take("tag", length)?;
                    tag = Tag::try_from(text).map_err(|source| BinlogError::Gtid { kind, source })?;
                }
                field::LAST_COMMITTED | field::SEQUENCE_NUMBER => {
                    varlen::signed(reader, "logical clock")?;
                }
                field::COMMIT_TIME => commit_time = Some(time_us(reader, "commit time")?),
                field::ORIGINAL_COMMIT_TIME => {
                    original_commit_time = Some(time_us(reader, "original commit time")?);
                }
                field::TRANSACTION_LENGTH => {
                    transaction_length = Some(varlen::unsigned(reader, "transaction length")?);
                }
                // Versions of servers and a ticket, then what is not known: nothing behind is of use.
                _ => {
                    reader.rest();
                }
            }
            next = id.saturating_add(1);
        }
        let missing = |field| BinlogError::Missing { kind, field };
        let source = source.ok_or(missing("source id"))?;
        let number = number.ok_or(missing("transaction number"))?;
        // No transaction's number is negative or 0, and `Gtid::new` refuses 0.
        let number = u64::try_from(number).unwrap_or_default();
        let gtid = Gtid::new(source, tag, number).map_err(|source| BinlogError::Gtid { kind, source })?;
        Ok(Self {
            gtid: Some(gtid),
            rows_only: flags & MAY_HAVE_STATEMENTS == 0,
            commit_time_us: commit_time,
            original_commit_time_us: original_commit_time.or(commit_time),
            transaction_length,
        })
    }
}

/// An array of 16 integers, each of which takes one byte or two.
fn source_id(reader: &mut Reader<'_>) -> Result<SourceId, BinlogError> {
    let mut source = [0; 16];
    for byte in &mut source {
        *byte = varlen::byte(reader, "source id")?;
    }
    Ok(SourceId(source))
}

fn time_us(reader: &mut Reader<'_>, field: &'static str) -> Result<i64, BinlogError> {
    let time = varlen::unsigned(reader, field)?;
    i64::try_from(time).map_err(|_| reader.unexpected(field, time, "less than 2^63 microseconds"))
}

#[cfg(test)]
mod tests;
