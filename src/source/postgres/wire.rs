//! What travels inside CopyData while a slot streams: the server's XLogData and keep-alives, and our status updates.
//!
//! The frame around it is the connection's business, the payload inside XLogData that of
//! [`pgoutput`](super::pgoutput). Clocks are Unix time on this side of the module and PostgreSQL's own on the wire.
//! The layouts are those of "Streaming Replication Protocol" in PostgreSQL's documentation.

use std::fmt;

use bytes::{Buf, BufMut, Bytes, BytesMut, TryGetError};

use crate::position::Lsn;

/// 2000-01-01 00:00 UTC, where PostgreSQL's clocks start, in Unix microseconds.
const EPOCH_US: i64 = 946_684_800_000_000;

/// Tag, start, end and clock.
const XLOG_DATA_HEADER_LEN: usize = 1 + 8 + 8 + 8;
/// Tag, end, clock and the request for a reply.
const KEEP_ALIVE_LEN: usize = 1 + 8 + 8 + 1;
/// Tag, three LSNs, clock and the request for a reply.
const STANDBY_STATUS_LEN: usize = 1 + 3 * 8 + 8 + 1;

/// What the server sends in one CopyData frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ReplicationMessage {
    XLogData {
        /// The change's LSN. Not monotonic: a BEGIN has its first change's, and a description of a table 0/0.
        start: Lsn,
        end: Lsn,
        /// When the server sent it, in Unix microseconds.
        clock_us: i64,
        /// One message of the output plugin, sharing the frame's memory.
        payload: Bytes,
    },
    KeepAlive {
        /// How far the server has read its log. Inside an open transaction it can be that one's commit LSN.
        end: Lsn,
        /// When the server sent it, in Unix microseconds.
        clock_us: i64,
        /// The server ends the connection unless a status update comes soon.
        reply_requested: bool,
    },
}

/// A frame that does not follow the replication protocol. Trying again cannot help: a person must look at what stands
/// between us and the server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    #[error("replication frame is empty")]
    Empty,
    #[error("replication frame of {length} bytes has the unknown tag {tag}: expected `w` or `k`")]
    UnknownTag { tag: Tag, length: usize },
    #[error("replication frame {tag} is cut short: found {found} bytes, expected {expected} or more")]
    Short { tag: Tag, found: usize, expected: usize },
    #[error("replication frame {tag} goes on behind its end: found {found} bytes, expected {expected}")]
    Trailing { tag: Tag, found: usize, expected: usize },
}

impl ReplicationMessage {
    /// Parses one CopyData frame's content, without copying the payload.
    ///
    /// # Errors
    /// The frame is none of the two, or not of its length.
    pub(super) fn parse(frame: Bytes) -> Result<Self, WireError> {
        let found = frame.len();
        let tag = Tag(*frame.first().ok_or(WireError::Empty)?);
        let short = |expected| move |_: TryGetError| WireError::Short { tag, found, expected };
        match tag.0 {
            b'w' => Self::xlog_data(frame).map_err(short(XLOG_DATA_HEADER_LEN)),
            b'k' if found > KEEP_ALIVE_LEN => Err(WireError::Trailing {
                tag,
                found,
                expected: KEEP_ALIVE_LEN,
            }),
            b'k' => Self::keep_alive(frame).map_err(short(KEEP_ALIVE_LEN)),
            _ => Err(WireError::UnknownTag { tag, length: found }),
        }
    }

    fn xlog_data(mut frame: Bytes) -> Result<Self, TryGetError> {
        frame.try_get_u8()?;
        Ok(Self::XLogData {
            start: Lsn(frame.try_get_u64()?),
            end: Lsn(frame.try_get_u64()?),
            clock_us: unix_us(frame.try_get_i64()?),
            payload: frame,
        })
    }

    fn keep_alive(mut frame: Bytes) -> Result<Self, TryGetError> {
        frame.try_get_u8()?;
        Ok(Self::KeepAlive {
            end: Lsn(frame.try_get_u64()?),
            clock_us: unix_us(frame.try_get_i64()?),
            reply_requested: frame.try_get_u8()? != 0,
        })
    }
}

/// How far we are: the "standby status update" that keeps the connection alive and confirms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StandbyStatus {
    /// Received; shown to operators only.
    pub written: Lsn,
    /// Confirmed: the server may recycle its log below, at once and for good.
    pub flushed: Lsn,
    /// Shown to operators only.
    pub applied: Lsn,
    /// Our clock, in Unix microseconds.
    pub clock_us: i64,
    /// Asks the server for a keep-alive.
    pub reply_requested: bool,
}

impl StandbyStatus {
    /// Appends the content of one CopyData frame.
    pub(super) fn encode(&self, out: &mut BytesMut) {
        out.reserve(STANDBY_STATUS_LEN);
        out.put_u8(b'r');
        out.put_u64(self.written.0);
        out.put_u64(self.flushed.0);
        out.put_u64(self.applied.0);
        out.put_i64(postgres_us(self.clock_us));
        out.put_u8(u8::from(self.reply_requested));
    }
}

/// Microseconds since 2000 as Unix microseconds; a time beyond what they hold becomes the last one that they do.
pub(super) fn unix_us(postgres_us: i64) -> i64 {
    postgres_us.saturating_add(EPOCH_US)
}

/// Unix microseconds as microseconds since 2000; a time beyond what they hold becomes the first one that they do.
pub(super) fn postgres_us(unix_us: i64) -> i64 {
    unix_us.saturating_sub(EPOCH_US)
}

/// A byte that says what follows it, shown as the letter that the protocol's documentation calls it by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tag(pub u8);

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            byte if byte.is_ascii_graphic() => write!(f, "`{}`", char::from(byte)),
            byte => write!(f, "0x{byte:02X}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn xlog_data(payload: &[u8]) -> Vec<u8> {
        [
            b"w".as_slice(),
            &7_u64.to_be_bytes(),
            &9_u64.to_be_bytes(),
            &1_i64.to_be_bytes(),
            payload,
        ]
        .concat()
    }

    fn keep_alive(reply: u8) -> Vec<u8> {
        [b"k".as_slice(), &9_u64.to_be_bytes(), &(-1_i64).to_be_bytes(), &[reply]].concat()
    }

    fn parse(frame: &[u8]) -> Result<ReplicationMessage, WireError> {
        ReplicationMessage::parse(Bytes::copy_from_slice(frame))
    }

    #[test]
    fn xlog_data_gives_its_payload_without_a_copy() {
        let frame = Bytes::from(xlog_data(b"payload"));
        let inside = frame.as_ptr().wrapping_add(XLOG_DATA_HEADER_LEN);
        let message = ReplicationMessage::parse(frame).unwrap();
        let ReplicationMessage::XLogData {
            start,
            end,
            clock_us,
            payload,
        } = message
        else {
            panic!("{message:?}");
        };
        assert_eq!((start, end, clock_us), (Lsn(7), Lsn(9), 946_684_800_000_001));
        assert_eq!((&payload[..], payload.as_ptr()), (b"payload".as_slice(), inside));
    }

    #[test]
    fn keep_alives_say_whether_a_reply_is_wanted() {
        for (byte, reply_requested) in [(0, false), (1, true)] {
            let clock_us = 946_684_799_999_999;
            let expected = ReplicationMessage::KeepAlive {
                end: Lsn(9),
                clock_us,
                reply_requested,
            };
            assert_eq!(parse(&keep_alive(byte)), Ok(expected));
        }
    }

    #[test]
    fn cut_frames_name_tag_and_lengths() {
        for frame in [xlog_data(b""), keep_alive(1)] {
            for found in 1..frame.len() {
                let error = parse(&frame[..found]).unwrap_err();
                let (tag, expected) = (Tag(frame[0]), frame.len());
                assert_eq!(error, WireError::Short { tag, found, expected });
            }
        }
        let error = parse(b"w123").unwrap_err().to_string();
        assert_eq!(
            error,
            "replication frame `w` is cut short: found 4 bytes, expected 25 or more"
        );
    }

    #[test]
    fn frames_that_are_too_long_empty_or_of_another_kind_are_errors() {
        let long = [keep_alive(0), vec![0]].concat();
        assert_eq!(
            parse(&long),
            Err(WireError::Trailing {
                tag: Tag(b'k'),
                found: 19,
                expected: 18
            })
        );
        assert_eq!(parse(b""), Err(WireError::Empty));
        for (frame, name) in [(b"zz", "`z`"), (b"\x07z", "0x07"), (b" z", "0x20"), (b"\xFFz", "0xFF")] {
            let expected = format!("replication frame of 2 bytes has the unknown tag {name}: expected `w` or `k`");
            assert_eq!(parse(frame).unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn clocks_at_the_end_of_time_stay_there() {
        assert_eq!((unix_us(0), postgres_us(0)), (EPOCH_US, -EPOCH_US));
        assert_eq!((unix_us(i64::MAX), postgres_us(i64::MIN)), (i64::MAX, i64::MIN));
    }

    proptest! {
        #[test]
        fn any_frame_is_a_message_or_an_error(tag in prop_oneof![Just(b'w'), Just(b'k'), any::<u8>()], rest: Vec<u8>) {
            let _ = parse(&[&[tag], rest.as_slice()].concat());
        }

        #[test]
        fn status_update_holds_what_was_put_in(lsns: [u64; 3], clock: i64, reply_requested: bool, before: Vec<u8>) {
            let [written, flushed, applied] = lsns.map(Lsn);
            let clock_us = unix_us(clock);
            let status = StandbyStatus { written, flushed, applied, clock_us, reply_requested };
            let mut out = BytesMut::from(before.as_slice());
            status.encode(&mut out);

            let mut content = out.split_off(before.len());
            prop_assert_eq!(out, before);
            prop_assert_eq!(content.len(), STANDBY_STATUS_LEN);
            prop_assert_eq!(content.get_u8(), b'r');
            let [written, flushed, applied] = [0; 3].map(|_| Lsn(content.get_u64()));
            let clock_us = unix_us(content.get_i64());
            let reply_requested = content.get_u8() != 0;
            prop_assert_eq!(StandbyStatus { written, flushed, applied, clock_us, reply_requested }, status);
        }
    }
}
