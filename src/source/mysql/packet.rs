//! The packets of MySQL's client/server protocol: their framing, and the few that a client reads outside a stream.
//!
//! Protocol: MySQL source documentation, "Client/Server Protocol", page "Protocol Basics".

use std::fmt;

use bytes::{Buf, Bytes};

/// A packet's header: three bytes of length, little endian, and a sequence number.
pub(super) const HEADER_BYTES: usize = 4;
/// A payload of this length goes on in the next packet.
pub(super) const MAX_PAYLOAD: usize = 0xFF_FFFF;

/// Length of the payload of the packet at the buffer's head, once its header is here.
pub(super) fn payload_len(buffer: &[u8]) -> Option<usize> {
    let [a, b, c, _] = *buffer.first_chunk::<HEADER_BYTES>()?;
    Some(u32::from_le_bytes([a, b, c, 0]) as usize)
}

/// Puts a payload into packets, from a sequence number on. The number behind the last is returned.
pub(super) fn frame(payload: &[u8], mut sequence: u8, out: &mut Vec<u8>) -> u8 {
    let mut rest = payload;
    loop {
        let (now, later) = rest.split_at(rest.len().min(MAX_PAYLOAD));
        // At most MAX_PAYLOAD, three bytes.
        let length = (now.len() as u32).to_le_bytes();
        out.extend_from_slice(&[length[0], length[1], length[2], sequence]);
        out.extend_from_slice(now);
        sequence = sequence.wrapping_add(1);
        if now.len() < MAX_PAYLOAD {
            return sequence;
        }
        rest = later;
    }
}

/// An error that the server reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerError {
    /// Such as 1236; MySQL's error reference lists them.
    pub code: u16,
    /// SQLSTATE; empty before the log-in.
    pub state: String,
    pub message: String,
}

impl ServerError {
    /// Reads an ERR packet, whose first byte is 0xFF.
    pub(super) fn parse(payload: &Bytes) -> Option<Self> {
        let mut rest = payload.clone();
        if rest.try_get_u8().ok()? != 0xFF {
            return None;
        }
        let code = rest.try_get_u16_le().ok()?;
        let mut state = String::new();
        if rest.first() == Some(&b'#') && rest.len() >= 6 {
            state = String::from_utf8_lossy(rest.get(1..6)?).into_owned();
            rest.advance(6);
        }
        Some(Self {
            code,
            state,
            message: String::from_utf8_lossy(&rest).into_owned(),
        })
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the server says {}", self.code)?;
        if !self.state.is_empty() {
            write!(f, " ({})", self.state)?;
        }
        write!(f, ": {}", self.message.trim_end_matches('.'))?;
        if let Some(remedy) = self.remedy() {
            write!(f, "; {remedy}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ServerError {}

impl ServerError {
    fn remedy(&self) -> Option<&'static str> {
        match self.code {
            1045 | 1698 => Some(
                "expected the password that the server has for that user and host: check the user and password in the DSN, and from which hosts the user may connect",
            ),
            1044 | 1049 => Some("check the database's name in the DSN and the user's rights"),
            1130 => Some("let the user connect from this host"),
            1142 | 1143 => Some("GRANT SELECT on the pipeline's tables to the DSN's user"),
            1227 if self.message.contains("REPLICATION SLAVE") => {
                Some("GRANT REPLICATION SLAVE ON *.* to the DSN's user")
            }
            1227 if self.message.contains("BINLOG MONITOR") => Some("GRANT BINLOG MONITOR ON *.* to the DSN's user"),
            1227 => Some("GRANT REPLICATION CLIENT ON *.* to the DSN's user"),
            1129 => {
                Some("run FLUSH HOSTS (or TRUNCATE performance_schema.host_cache) once what kept failing is mended")
            }
            1820 | 1862 => Some("set a new password for the DSN's user"),
            3118 | 4151 => Some("unlock the DSN's user: ALTER USER ... ACCOUNT UNLOCK"),
            3159 => Some("the server takes TLS only: set ssl-mode=required or stricter in the DSN"),
            1040 | 1203 | 1226 => Some("raise max_connections or the user's limits"),
            _ => None,
        }
    }

    /// Whether waiting can help: the server is starting, stopping, full or lost the connection (MySQL error reference).
    pub(super) fn heals(&self) -> bool {
        matches!(
            self.code,
            1040 | 1041 | 1053 | 1080 | 1135 | 1152 | 1158
                ..=1161 | 1184 | 1203 | 1205 | 1213 | 1226 | 1317 | 1927 | 3024 | 3032 | 3168 | 3169 | 4031
        )
    }
}

/// A row of a text result.
pub(super) type TextRow = Vec<Option<String>>;

/// Reads one row of a text result. None: bytes that are none.
pub(super) fn text_row(payload: &Bytes, columns: u64) -> Option<TextRow> {
    let mut rest = payload.as_ref();
    let mut row = Vec::new();
    for _ in 0..columns {
        if rest.first() == Some(&0xFB) {
            rest.advance(1);
            row.push(None);
            continue;
        }
        let length = usize::try_from(length_encoded(&mut rest)?).ok()?;
        let cell = rest.get(..length)?;
        row.push(Some(String::from_utf8_lossy(cell).into_owned()));
        rest.advance(length);
    }
    rest.is_empty().then_some(row)
}

/// Reads a length-encoded integer.
pub(super) fn length_encoded(rest: &mut &[u8]) -> Option<u64> {
    match rest.try_get_u8().ok()? {
        0xFC => rest.try_get_u16_le().ok().map(u64::from),
        0xFD => rest.try_get_uint_le(3).ok(),
        0xFE => rest.try_get_u64_le().ok(),
        0xFB | 0xFF => None,
        small => Some(u64::from(small)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_payload_that_fills_its_packet_is_followed_by_another() {
        let mut out = Vec::new();
        assert_eq!(frame(&vec![7; MAX_PAYLOAD], 255, &mut out), 1);
        assert_eq!(out.len(), MAX_PAYLOAD + 2 * HEADER_BYTES);
        assert_eq!(payload_len(&out), Some(MAX_PAYLOAD));
        assert_eq!(out[MAX_PAYLOAD + HEADER_BYTES..], [0, 0, 0, 0]);
        out.clear();
        assert_eq!(frame(b"abc", 3, &mut out), 4);
        assert_eq!(out, b"\x03\0\0\x03abc");
    }

    #[test]
    fn errors_before_and_after_the_log_in() {
        let error = ServerError::parse(&Bytes::from_static(b"\xff\x15\x04#28000Access denied")).unwrap();
        assert_eq!((error.code, error.state.as_str()), (1045, "28000"));
        assert!(error.to_string().contains("check the user and password"), "{error}");
        let error = ServerError::parse(&Bytes::from_static(b"\xff\x10\x04Too many connections")).unwrap();
        assert_eq!((error.code, error.message.as_str()), (1040, "Too many connections"));
        assert!(error.heals());
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_packet_or_none(bytes: Vec<u8>, columns in 0_u64..5) {
            let bytes = Bytes::from(bytes);
            let _ = ServerError::parse(&bytes);
            let _ = text_row(&bytes, columns);
            let _ = payload_len(&bytes);
        }
    }
}
