//! One event's bytes in, one [`Event`] out: checks that it is whole and undamaged, and knows how to read it by the
//! FORMAT_DESCRIPTION before it.

use bytes::Bytes;

use crate::source::mysql::xid::XaPrepareEvent;

use super::error::BinlogError;
use super::event::{Event, Incident};
use super::format::{Checksum, FormatDescription};
use super::gtid::GtidEvent;
use super::header::Header;
use super::kind::EventKind;
use super::mariadb::{self, MariadbGtidEvent};
use super::payload::{self, Payload};
use super::place::{Heartbeat, Rotate};
use super::reader::Reader;
use super::rows::{RowsEvent, RowsHead, TableMap};
use super::statement::Query;

/// Decodes the events of one connection, in their order: a new connection needs a new one.
#[derive(Debug)]
pub(crate) struct EventDecoder {
    /// Of the file that the stream is in. None at its beginning.
    format: Option<FormatDescription>,
    max_event_bytes: usize,
}

impl EventDecoder {
    /// `max_event_bytes` bounds what MariaDB's compressed events may expand to; what comes is the connection's to bound.
    pub(crate) fn new(max_event_bytes: usize) -> Self {
        Self {
            format: None,
            max_event_bytes,
        }
    }

    /// Decodes one whole event, as a file holds it.
    ///
    /// # Errors
    /// The event is damaged or not of its kind's layout. One of an unknown kind is none: see [`Event::Unknown`].
    pub(crate) fn decode(&mut self, event: Bytes) -> Result<(Header, Event), BinlogError> {
        let header = Header::parse(&event)?;
        check_size(&header, &event)?;
        if header.kind == EventKind::FORMAT_DESCRIPTION {
            let format = format_description(&header, &event)?;
            self.format = Some(format.clone());
            return Ok((header, Event::FormatDescription(format)));
        }
        let data = self.data(&header, &event)?;
        let event = self.event(&header, &data)?;
        Ok((header, event))
    }

    /// Decodes one event from inside a TRANSACTION_PAYLOAD, which has no checksum.
    ///
    /// # Errors
    /// As [`decode`](Self::decode)'s; also when its kind may not stand there.
    pub(crate) fn decode_inner(&self, event: Bytes) -> Result<(Header, Event), BinlogError> {
        let header = Header::parse(&event)?;
        check_size(&header, &event)?;
        payload::check_may_stand_inside(header.kind)?;
        let data = event.slice(Header::LEN..);
        let event = self.event(&header, &data)?;
        Ok((header, event))
    }

    /// Whether a FORMAT_DESCRIPTION was seen.
    pub(crate) fn has_format(&self) -> bool {
        self.format.is_some()
    }

    /// What rows an event is of that is too large to be kept, from the first bytes behind its header. None: not of rows.
    ///
    /// # Errors
    /// Too few bytes, or no FORMAT_DESCRIPTION yet.
    pub(crate) fn rows_head(&self, header: &Header, data: &Bytes) -> Result<Option<RowsHead>, BinlogError> {
        RowsHead::parse(self.format(header)?, &mut Reader::new(header.kind, data))
    }

    fn format(&self, header: &Header) -> Result<&FormatDescription, BinlogError> {
        let kind = header.kind;
        self.format.as_ref().ok_or(BinlogError::BeforeFormat { kind })
    }

    /// The event without header and checksum, after a look at the checksum.
    fn data(&self, header: &Header, event: &Bytes) -> Result<Bytes, BinlogError> {
        let end = if header.is_made_up() {
            // Whether it ends in a checksum follows the client's wish or the file before, so that no state of ours tells.
            // A damaged one is found by what its last bytes would mean.
            match checksum(header, event) {
                Ok((end, found, expected)) if found == expected => end,
                _ => event.len(),
            }
        } else {
            match self.format(header)?.checksum {
                Checksum::None => event.len(),
                Checksum::Crc32 => verified(header, event)?,
            }
        };
        Ok(event.slice(Header::LEN..end))
    }

    fn event(&self, header: &Header, data: &Bytes) -> Result<Event, BinlogError> {
        let reader = &mut Reader::new(header.kind, data);
        let event = match header.kind {
            EventKind::ROTATE => Event::Rotate(Rotate::parse(reader)?),
            EventKind::HEARTBEAT => Event::Heartbeat(Heartbeat::parse(header, self.format.as_ref(), reader)?),
            EventKind::HEARTBEAT_V2 => {
                let heartbeat = Heartbeat::parse_v2(reader)?;
                reader.finish()?;
                Event::Heartbeat(heartbeat)
            }
            _ => self.formatted(self.format(header)?, header, reader)?,
        };
        Ok(event)
    }

    /// Events whose layout needs a FORMAT_DESCRIPTION.
    fn formatted(
        &self,
        format: &FormatDescription,
        header: &Header,
        reader: &mut Reader<'_>,
    ) -> Result<Event, BinlogError> {
        let event = match header.kind {
            EventKind::QUERY | EventKind::QUERY_COMPRESSED | EventKind::EXECUTE_LOAD_QUERY => {
                Event::Query(Query::parse(format, self.max_event_bytes, reader)?)
            }
            EventKind::XID => {
                reader.skip("post-header", u64::from(format.post_header_len(header.kind)?))?;
                let xid = reader.u64("transaction number")?;
                reader.finish()?;
                Event::Xid(xid)
            }
            EventKind::XA_PREPARE => {
                reader.skip("post-header", u64::from(format.post_header_len(header.kind)?))?;
                let prepare = XaPrepareEvent::parse(reader.peek());
                Event::XaPrepare(prepare.map_err(|source| reader.malformed_xid(source))?)
            }
            EventKind::GTID | EventKind::ANONYMOUS_GTID => Event::Gtid(GtidEvent::parse(reader)?),
            EventKind::GTID_TAGGED => Event::Gtid(GtidEvent::parse_tagged(reader)?),
            EventKind::PREVIOUS_GTIDS => Event::PreviousGtids(reader.rest()),
            EventKind::MARIADB_GTID => Event::MariadbGtid(MariadbGtidEvent::parse(header, reader)?),
            EventKind::MARIADB_GTID_LIST => Event::MariadbGtidList(mariadb::gtid_list(reader)?),
            EventKind::TABLE_MAP => Event::TableMap(TableMap::parse(format, reader)?),
            EventKind::TRANSACTION_PAYLOAD => Event::TransactionPayload(Payload::parse(reader)?),
            EventKind::INCIDENT => Event::Incident(Incident::parse(reader)?),
            EventKind::START_ENCRYPTION => Event::StartEncryption,
            EventKind::STOP
            | EventKind::INTVAR
            | EventKind::APPEND_BLOCK
            | EventKind::DELETE_FILE
            | EventKind::RAND
            | EventKind::USER_VAR
            | EventKind::BEGIN_LOAD_QUERY
            | EventKind::IGNORABLE
            | EventKind::ROWS_QUERY
            | EventKind::TRANSACTION_CONTEXT
            | EventKind::VIEW_CHANGE
            | EventKind::ANNOTATE_ROWS
            | EventKind::BINLOG_CHECKPOINT => Event::Informational,
            _ => match RowsEvent::parse(format, self.max_event_bytes, reader)? {
                Some(rows) => Event::Rows(rows),
                None => Event::Unknown {
                    ignorable: header.is_ignorable(),
                },
            },
        };
        Ok(event)
    }
}

/// Whole, and nothing behind it.
fn check_size(header: &Header, event: &Bytes) -> Result<(), BinlogError> {
    if event.len() == header.event_len() {
        return Ok(());
    }
    Err(BinlogError::Size {
        kind: header.kind,
        found: event.len(),
        expected: header.event_len(),
    })
}

/// Where the checksum of 4 bytes would begin, what it would be, and what it would have to be.
fn checksum(header: &Header, event: &[u8]) -> Result<(usize, u32, u32), BinlogError> {
    match event.split_last_chunk() {
        Some((covered, found)) if covered.len() >= Header::LEN => {
            Ok((covered.len(), u32::from_le_bytes(*found), crc32fast::hash(covered)))
        }
        _ => Err(BinlogError::Short {
            kind: header.kind,
            field: "checksum",
            found: event.len().saturating_sub(Header::LEN),
            expected: Checksum::CRC32_LEN as u64,
        }),
    }
}

/// The event's end without its checksum, which must be right.
fn verified(header: &Header, event: &Bytes) -> Result<usize, BinlogError> {
    let (end, found, expected) = checksum(header, event)?;
    if found == expected {
        return Ok(end);
    }
    Err(BinlogError::Checksum {
        kind: header.kind,
        size: event.len(),
        next_position: header.next_position,
        found,
        expected,
    })
}

/// The one event that says itself what its checksum is.
fn format_description(header: &Header, event: &Bytes) -> Result<FormatDescription, BinlogError> {
    let end = event
        .len()
        .saturating_sub(FormatDescription::TRAILER_LEN)
        .max(Header::LEN);
    let format = FormatDescription::parse(&event.slice(Header::LEN..end))?;
    match format.checksum {
        Checksum::Crc32 => verified(header, event).map(drop)?,
        // There is a checksum all the same, but a server that changes the event for a stream that starts in the middle of
        // the file does not compute it again then. It only has to show that the algorithm was not another one: the events
        // that follow would be read with checksums as a part of them.
        Checksum::None => {
            let mut with_checksums = event.to_vec();
            if let Some(algorithm) = with_checksums.get_mut(end.saturating_sub(1)) {
                *algorithm = Checksum::CRC32_ALGORITHM;
            }
            let (_, found, expected) = checksum(header, &with_checksums)?;
            if found == expected {
                verified(header, event)?;
            }
        }
    }
    Ok(format)
}

#[cfg(test)]
mod tests;
