//! TRANSACTION_PAYLOAD: a whole transaction's events in one (`binlog_transaction_compression`), read one at a time.
//!
//! The events inside are as outside, but none has a checksum: the payload's own covers them. However far the payload
//! expands, memory holds its compressed bytes, one event inside, and zstd's window. Layouts: `Transaction_payload` in
//! MySQL's `libs/mysql/binlog/event/codecs/binary.cpp`; what a reader must take, `Payload_event_buffer_istream`.

use std::fmt;
use std::io;

use bytes::{Buf, Bytes};
use zstd::stream::raw::{DParameter, Decoder, Operation};

use super::error::BinlogError;
use super::header::Header;
use super::kind::EventKind;
use super::reader::Reader;

const KIND: EventKind = EventKind::TRANSACTION_PAYLOAD;

/// The largest window of zstd that servers write, at level 22, and that they read: 128 MiB, as a power of 2.
const WINDOW_LOG_MAX: u32 = 27;
/// What is allocated before it is known that an event is really that long.
const CHUNK_LEN: usize = 64 << 10;

/// Types of the fields before the compressed bytes.
mod field {
    pub(super) const END: u64 = 0;
    pub(super) const PAYLOAD_SIZE: u64 = 1;
    pub(super) const COMPRESSION: u64 = 2;
    pub(super) const UNCOMPRESSED_SIZE: u64 = 3;
}

/// How a payload is compressed, by `mysql::binlog::event::compression::type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compression {
    Zstd,
    None,
}

/// A transaction's events, not yet decompressed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Payload {
    pub compression: Compression,
    /// What the events inside come to, as the server says. Not to be trusted for an allocation.
    pub uncompressed_size: Option<u64>,
    pub bytes: Bytes,
}

impl Payload {
    /// Type, length and value of each field, as length-encoded integers; then the bytes.
    ///
    /// # Errors
    /// Also when the payload's size is not that of the rest, or a compression is new.
    pub(super) fn parse(reader: &mut Reader<'_>) -> Result<Self, BinlogError> {
        let (mut size, mut compression, mut uncompressed_size) = (None, None, None);
        loop {
            let of = reader.length_encoded("field type")?;
            if of == field::END {
                break;
            }
            let length = reader.length_encoded("field length")?;
            let value = reader.bytes("field", length)?;
            let mut value = Reader::new(KIND, &value);
            match of {
                field::PAYLOAD_SIZE => size = Some(value.length_encoded("payload size")?),
                field::COMPRESSION => {
                    compression = Some(match value.length_encoded("compression")? {
                        0 => Compression::Zstd,
                        255 => Compression::None,
                        found => return Err(value.unexpected("compression", found, "0 (zstd) or 255 (none)")),
                    });
                }
                field::UNCOMPRESSED_SIZE => uncompressed_size = Some(value.length_encoded("uncompressed size")?),
                // A field of a newer server, which it means to be skipped.
                _ => continue,
            }
            value.finish()?;
        }
        let missing = |field| BinlogError::Missing { kind: KIND, field };
        let bytes = reader.bytes("payload", size.ok_or(missing("payload size"))?)?;
        reader.finish()?;
        Ok(Self {
            compression: compression.ok_or(missing("compression"))?,
            uncompressed_size,
            bytes,
        })
    }
}

/// What a [`PayloadReader`] gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Inner {
    /// One whole event, in memory of its own: keeping a part of it keeps nothing else.
    Event(Bytes),
    Oversized(Oversized),
}

/// An event inside a payload that is longer than may be kept. The rest of it is passed over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Oversized {
    /// [`size`](Header::size) is its length.
    pub header: Header,
    /// The first bytes behind the header, [`HEAD_LEN`](Self::HEAD_LEN) of them: enough for what
    /// [`rows_head`](super::EventDecoder::rows_head) reads.
    pub head: Bytes,
}

impl Oversized {
    pub(crate) const HEAD_LEN: usize = 64;
}

/// Reads a payload's events in their order.
///
/// One call does not decompress more than one event, and one that is passed over.
pub(crate) struct PayloadReader {
    input: Input,
    /// Of the payload, when the server says it.
    uncompressed_size: Option<u64>,
    /// Bytes given so far.
    given: u64,
    max_event_bytes: usize,
    /// What is left of an event that was too long.
    pass_over: usize,
    failed: bool,
}

impl fmt::Debug for PayloadReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PayloadReader").finish_non_exhaustive()
    }
}

impl PayloadReader {
    /// # Errors
    /// zstd has no memory for its state.
    pub(crate) fn new(payload: Payload, max_event_bytes: usize) -> Result<Self, BinlogError> {
        let input = match payload.compression {
            Compression::None => Input::Plain(payload.bytes),
            Compression::Zstd => {
                let mut decoder = Decoder::new().map_err(undecompressed)?;
                decoder
                    .set_parameter(DParameter::WindowLogMax(WINDOW_LOG_MAX))
                    .map_err(undecompressed)?;
                Input::Zstd {
                    decoder,
                    compressed: payload.bytes,
                    in_frame: false,
                }
            }
        };
        Ok(Self {
            input,
            uncompressed_size: payload.uncompressed_size,
            given: 0,
            max_event_bytes,
            pass_over: 0,
            failed: false,
        })
    }

    /// The next event; None at the end, when everything was there and nothing else.
    ///
    /// # Errors
    /// What is inside is not as it says; it cannot be read on then, and further calls are errors too: an end is only
    /// ever reported of a payload that was whole.
    pub(crate) fn next(&mut self) -> Result<Option<Inner>, BinlogError> {
        if self.failed {
            return Err(BinlogError::AfterError { kind: KIND });
        }
        let next = self.read_event();
        self.failed = next.is_err();
        next
    }

    fn read_event(&mut self) -> Result<Option<Inner>, BinlogError> {
        self.finish_passing_over()?;
        let mut head = [0; Header::LEN];
        match self.fill(&mut head)? {
            0 => return self.finish().map(|()| None),
            Header::LEN => {}
            found => {
                return Err(BinlogError::HeaderShort {
                    found,
                    expected: Header::LEN,
                });
            }
        }
        let header = Header::parse(&head)?;
        check_may_stand_inside(header.kind)?;
        let len = header.event_len();
        if len > self.max_event_bytes {
            let data_len = len - Header::LEN;
            let mut head = vec![0; data_len.min(Oversized::HEAD_LEN)];
            self.fill_all(&header, &mut head)?;
            self.pass_over = data_len - head.len();
            let head = head.into();
            return Ok(Some(Inner::Oversized(Oversized { header, head })));
        }
        let mut event = Vec::with_capacity(len.min(CHUNK_LEN));
        event.extend_from_slice(&head);
        while event.len() < len {
            let start = event.len();
            let step = (len - start).min(start.max(CHUNK_LEN));
            event.reserve_exact(step);
            event.resize(start + step, 0);
            self.fill_all(&header, event.get_mut(start..).unwrap_or_default())?;
        }
        Ok(Some(Inner::Event(event.into())))
    }

    fn finish_passing_over(&mut self) -> Result<(), BinlogError> {
        if self.pass_over == 0 {
            return Ok(());
        }
        let mut scrap = vec![0; self.pass_over.min(CHUNK_LEN)];
        while self.pass_over > 0 {
            let step = self.pass_over.min(scrap.len());
            let scrap = scrap.get_mut(..step).unwrap_or_default();
            if self.fill(scrap)? < step {
                return Err(undecompressed(io::ErrorKind::UnexpectedEof.into()));
            }
            self.pass_over -= step;
        }
        Ok(())
    }

    /// The rest of an event whose header was there must be there too.
    fn fill_all(&mut self, header: &Header, out: &mut [u8]) -> Result<(), BinlogError> {
        let expected = out.len();
        let found = self.fill(out)?;
        if found == expected {
            return Ok(());
        }
        Err(BinlogError::Short {
            kind: header.kind,
            field: "data",
            found,
            expected: expected as u64,
        })
    }

    /// Fills `out` as far as there is anything; gives how far.
    fn fill(&mut self, out: &mut [u8]) -> Result<usize, BinlogError> {
        let filled = self.input.fill(out).map_err(undecompressed)?;
        self.given = self.given.saturating_add(filled as u64);
        match self.uncompressed_size {
            Some(expected) if self.given > expected => Err(self.of_size(expected)),
            _ => Ok(filled),
        }
    }

    /// Nothing more came: it must have been everything.
    fn finish(&self) -> Result<(), BinlogError> {
        if !self.input.is_at_end() {
            return Err(undecompressed(io::ErrorKind::UnexpectedEof.into()));
        }
        match self.uncompressed_size {
            Some(expected) if self.given != expected => Err(self.of_size(expected)),
            _ => Ok(()),
        }
    }

    fn of_size(&self, expected: u64) -> BinlogError {
        BinlogError::Decompressed {
            kind: KIND,
            found: self.given,
            expected,
        }
    }
}

/// Where the events come from.
enum Input {
    Plain(Bytes),
    Zstd {
        decoder: Decoder<'static>,
        compressed: Bytes,
        /// Begun and not yet ended. There can be several frames, one behind the other.
        in_frame: bool,
    },
}

impl Input {
    fn fill(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(bytes) => {
                let len = bytes.len().min(out.len());
                if let Some(out) = out.get_mut(..len) {
                    bytes.copy_to_slice(out);
                }
                Ok(len)
            }
            Self::Zstd {
                decoder,
                compressed,
                in_frame,
            } => {
                let mut filled = 0;
                while let Some(room) = out.get_mut(filled..).filter(|room| !room.is_empty()) {
                    // Asked for more when there is nothing, it would say that a frame has begun.
                    if compressed.is_empty() && !*in_frame {
                        break;
                    }
                    let status = decoder.run_on_buffers(compressed, room)?;
                    compressed.advance(status.bytes_read);
                    filled += status.bytes_written;
                    let ended = status.remaining == 0;
                    let stuck = status.bytes_read == 0 && status.bytes_written == 0 && !ended;
                    *in_frame = !ended;
                    if stuck {
                        break;
                    }
                }
                Ok(filled)
            }
        }
    }

    fn is_at_end(&self) -> bool {
        match self {
            Self::Plain(bytes) => bytes.is_empty(),
            Self::Zstd {
                compressed, in_frame, ..
            } => compressed.is_empty() && !in_frame,
        }
    }
}

/// Kinds that say how or where the stream is read have no place in a transaction. Above all a payload in a payload, which
/// could hold itself.
pub(super) fn check_may_stand_inside(kind: EventKind) -> Result<(), BinlogError> {
    match kind {
        EventKind::TRANSACTION_PAYLOAD
        | EventKind::FORMAT_DESCRIPTION
        | EventKind::ROTATE
        | EventKind::HEARTBEAT
        | EventKind::HEARTBEAT_V2 => Err(BinlogError::Inside { kind }),
        _ => Ok(()),
    }
}

fn undecompressed(source: io::Error) -> BinlogError {
    BinlogError::Decompress { kind: KIND, source }
}

#[cfg(test)]
mod tests;
