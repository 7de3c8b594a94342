//! The 19 bytes that every event begins with.

use bytes::{Buf, TryGetError};

use super::error::BinlogError;
use super::kind::EventKind;

/// What stands before an event's data: "binlog event header" of MySQL's internals manual, version 4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    /// When the statement began, in Unix seconds of the server's clock; 0 in events that are made up for the stream.
    pub timestamp: u32,
    pub kind: EventKind,
    /// The server that wrote the event first.
    pub server_id: u32,
    /// Bytes of the whole event: header, data, checksum.
    pub size: u32,
    /// The low 32 bits of where the next event starts in the file. 0 in made-up events, and where MariaDB wrote a
    /// transaction's events before it knew their place.
    pub next_position: u32,
    pub flags: u16,
}

impl Header {
    pub(crate) const LEN: usize = 19;

    /// The event is in no file: the server made it up for the stream (LOG_EVENT_ARTIFICIAL_F).
    const ARTIFICIAL: u16 = 0x20;
    /// A reader that does not know the kind may pass over it (LOG_EVENT_IGNORABLE_F).
    const IGNORABLE: u16 = 0x80;

    /// Reads the header of a whole event, or of as much of one as there is.
    ///
    /// # Errors
    /// Fewer than 19 bytes, or a size that does not even hold the header.
    pub(crate) fn parse(event: &[u8]) -> Result<Self, BinlogError> {
        let header = Self::read(event).map_err(|_| BinlogError::HeaderShort {
            found: event.len(),
            expected: Self::LEN,
        })?;
        if header.event_len() < Self::LEN {
            return Err(BinlogError::Size {
                kind: header.kind,
                found: event.len(),
                expected: header.event_len(),
            });
        }
        Ok(header)
    }

    fn read(mut bytes: &[u8]) -> Result<Self, TryGetError> {
        Ok(Self {
            timestamp: bytes.try_get_u32_le()?,
            kind: EventKind(bytes.try_get_u8()?),
            server_id: bytes.try_get_u32_le()?,
            size: bytes.try_get_u32_le()?,
            next_position: bytes.try_get_u32_le()?,
            flags: bytes.try_get_u16_le()?,
        })
    }

    /// [`size`](Self::size) as memory counts; where it does not fit, no event can be that long either.
    pub(crate) fn event_len(&self) -> usize {
        usize::try_from(self.size).unwrap_or(usize::MAX)
    }

    pub(crate) fn is_ignorable(&self) -> bool {
        self.flags & Self::IGNORABLE != 0
    }

    /// In no file, and so with or without a checksum by rules of its own: a ROTATE that announces where the stream is, a
    /// heartbeat, a list of GTIDs that MariaDB tells a reader that starts in the middle.
    pub(crate) fn is_made_up(&self) -> bool {
        match self.kind {
            EventKind::HEARTBEAT | EventKind::HEARTBEAT_V2 => true,
            EventKind::ROTATE => self.flags & Self::ARTIFICIAL != 0 || self.next_position == 0,
            EventKind::MARIADB_GTID_LIST => self.flags & Self::ARTIFICIAL != 0,
            _ => false,
        }
    }
}
