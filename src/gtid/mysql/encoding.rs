//! A GTID set's binary form: what COM_BINLOG_DUMP_GTID asks with and PREVIOUS_GTIDS_LOG_EVENT carries.
//!
//! Little endian: a count of sources; for each its UUID, a count of intervals, and their starts and ends, the end
//! being the first number behind. A set with tags has another form, which servers before 8.3 don't know: the count's
//! highest and lowest byte are 1 with the count between them, and a length and the tag stand behind each UUID.
//! The layouts are those of `Gtid_set::encode` in MySQL.

use bytes::{Buf, BufMut, BytesMut, TryGetError};

use super::set::{GtidSet, Interval};
use super::{MAX_NUMBER, ParseGtidError, SourceId, Tag, Tsid};

const UNTAGGED: u8 = 0;
const TAGGED: u8 = 1;
/// All but the highest and the lowest byte.
const COUNT_OF_TAGGED: u64 = 0x00FF_FFFF_FFFF_FF00;

/// Start and end.
const INTERVAL_LEN: usize = 8 + 8;

/// Bytes that are no GTID set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeGtidSetError {
    #[error("binary GTID set is cut short: found {found} bytes more, expected {expected}")]
    Short { found: usize, expected: usize },
    #[error("binary GTID set has the unknown format {format}: expected 0 or 1")]
    UnknownFormat { format: u8 },
    #[error("binary GTID set has a tag whose length is encoded as {found}: expected an even number up to 64")]
    TagLength { found: u8 },
    #[error("binary GTID set has a malformed tag")]
    Tag(#[source] ParseGtidError),
    #[error("binary GTID set names {count} intervals and has {found} bytes more")]
    IntervalCount { count: u64, found: usize },
    #[error("binary GTID set has the interval from {start} to before {end}: expected one behind {previous}")]
    Interval { start: u64, end: u64, previous: u64 },
    #[error("binary GTID set goes on behind its end: found {found} bytes more")]
    Trailing { found: usize },
}

impl From<TryGetError> for DecodeGtidSetError {
    fn from(error: TryGetError) -> Self {
        Self::Short {
            found: error.available,
            expected: error.requested,
        }
    }
}

impl GtidSet {
    /// Appends the binary form; the tagged one only if there is a tag.
    pub fn encode(&self, out: &mut BytesMut) {
        let tagged = self.by_tsid().flatten().any(|interval| !interval.tsid.tag.is_none());
        let count = self.by_tsid().count() as u64;
        if tagged {
            out.put_u8(TAGGED);
            out.put_uint_le(count, 6);
            out.put_u8(TAGGED);
        } else {
            out.put_u64_le(count);
        }
        for intervals in self.by_tsid() {
            let [Interval { tsid, .. }, ..] = intervals else {
                continue;
            };
            out.put_slice(&tsid.source.0);
            if tagged {
                let tag = tsid.tag.as_str();
                // An integer of variable length, which has one byte below 128: no lowest bits set, then the value.
                out.put_u8((tag.len() as u8) << 1);
                out.put_slice(tag.as_bytes());
            }
            out.put_u64_le(intervals.len() as u64);
            for Interval { first, last, .. } in intervals {
                out.put_u64_le(*first);
                out.put_u64_le(last + 1);
            }
        }
    }

    /// Reads either binary form, all of `bytes`.
    ///
    /// # Errors
    /// The bytes are none, or not of the length that their counts say. No more memory is taken than a few times theirs.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeGtidSetError> {
        let mut rest = bytes;
        let head = rest.try_get_u64_le()?;
        let [.., format] = head.to_le_bytes();
        let (tagged, count) = match format {
            UNTAGGED => (false, head),
            TAGGED => (true, (head & COUNT_OF_TAGGED) >> 8),
            _ => return Err(DecodeGtidSetError::UnknownFormat { format }),
        };
        let mut intervals = Vec::new();
        // Each turn takes bytes or ends in an error, so a count that is too high ends too.
        for _ in 0..count {
            decode_source(&mut rest, tagged, &mut intervals)?;
        }
        if rest.is_empty() {
            Ok(Self::from_intervals(intervals))
        } else {
            Err(DecodeGtidSetError::Trailing { found: rest.len() })
        }
    }
}

fn decode_source(rest: &mut &[u8], tagged: bool, intervals: &mut Vec<Interval>) -> Result<(), DecodeGtidSetError> {
    let mut source = SourceId([0; 16]);
    rest.try_copy_to_slice(&mut source.0)?;
    let tag = if tagged { decode_tag(rest)? } else { Tag::NONE };
    let tsid = Tsid { source, tag };

    let count = rest.try_get_u64_le()?;
    let found = rest.len();
    let fits = usize::try_from(count).is_ok_and(|count| count <= found / INTERVAL_LEN);
    if !fits {
        return Err(DecodeGtidSetError::IntervalCount { count, found });
    }
    let mut previous = 0;
    for _ in 0..count {
        let (start, end) = (rest.try_get_u64_le()?, rest.try_get_u64_le()?);
        if start <= previous || end <= start || end - 1 > MAX_NUMBER {
            return Err(DecodeGtidSetError::Interval { start, end, previous });
        }
        intervals.push(Interval {
            tsid,
            first: start,
            last: end - 1,
        });
        previous = end;
    }
    Ok(())
}

fn decode_tag(rest: &mut &[u8]) -> Result<Tag, DecodeGtidSetError> {
    let found = rest.try_get_u8()?;
    let length = usize::from(found >> 1);
    if found & 1 != 0 || length > Tag::MAX_LEN {
        return Err(DecodeGtidSetError::TagLength { found });
    }
    let mut bytes = [0; Tag::MAX_LEN];
    let bytes = &mut bytes[..length];
    rest.try_copy_to_slice(bytes)?;
    Tag::try_from(&*bytes).map_err(DecodeGtidSetError::Tag)
}
