//! Reading just enough of a message that is too large to keep.

use bytes::Buf;

use crate::event::Operation;
use crate::position::Lsn;

use super::wire::unix_us;

/// Bytes of a frame that are looked at: the envelope, and a message's prefix or a row's table. A prefix longer than
/// this is nobody's.
pub(super) const HEAD_BYTES: usize = 64 << 10;

/// What an oversized frame is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum OversizedHead {
    Message { transactional: bool, prefix: String },
    Row { relation: u32, operation: Operation },
}

/// Reads the head of an XLogData; its start LSN and the server's clock (Unix microseconds) come first.
///
/// None: not a frame that may be this large.
pub(super) fn parse(mut body: &[u8]) -> Option<(Lsn, i64, OversizedHead)> {
    if body.try_get_u8().ok()? != b'w' {
        return None;
    }
    let start = Lsn(body.try_get_u64().ok()?);
    let _end = body.try_get_u64().ok()?;
    let clock_us = unix_us(body.try_get_i64().ok()?);
    let head = match body.try_get_u8().ok()? {
        b'M' => {
            let transactional = body.try_get_u8().ok()? & 1 == 1;
            let _lsn = body.try_get_u64().ok()?;
            let length = memchr::memchr(0, body).unwrap_or(body.len());
            OversizedHead::Message {
                transactional,
                prefix: String::from_utf8_lossy(body.get(..length)?).into_owned(),
            }
        }
        tag @ (b'I' | b'U' | b'D') => {
            let operation = match tag {
                b'I' => Operation::Insert,
                b'U' => Operation::Update,
                _ => Operation::Delete,
            };
            OversizedHead::Row {
                relation: body.try_get_u32().ok()?,
                operation,
            }
        }
        _ => return None,
    };
    Some((start, clock_us, head))
}
