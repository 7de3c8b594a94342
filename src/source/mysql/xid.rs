//! XA transactions' names, and the event that ends one at its XA PREPARE.
//!
//! A name comes in three forms that must be equal: as text in XA statements, as bytes in XA_PREPARE_LOG_EVENT, and as
//! bytes of another layout in MariaDB's GTID event.

use std::fmt;

use bytes::{Buf, TryGetError};

/// What XA allows for the transaction's part and for the branch's, in bytes each.
const MAX_PART_LEN: usize = 64;

/// Something else where an XA transaction's name belongs: the transaction's outcome could never be matched to its
/// rows. A person must look at what wrote this log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum XidError {
    #[error("`{text}` is not the name of an XA transaction: expected one such as X'6162',X'',1")]
    Malformed { text: String },
    #[error("the {part} of an XA transaction's name has {length} bytes: expected {MAX_PART_LEN} at most")]
    TooLong { part: &'static str, length: usize },
    #[error("XA_PREPARE event is cut short: found {found} bytes more, expected {expected}")]
    Short { found: usize, expected: usize },
    #[error("XA_PREPARE event goes on behind its end: found {found} bytes more")]
    Trailing { found: usize },
}

impl From<TryGetError> for XidError {
    fn from(error: TryGetError) -> Self {
        Self::Short {
            found: error.available,
            expected: error.requested,
        }
    }
}

/// The name of one branch of an XA transaction, unique among those that are prepared on a server.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Xid {
    format: u32,
    gtrid: Box<[u8]>,
    bqual: Box<[u8]>,
}

impl Xid {
    /// `gtrid` names the transaction and `bqual` the branch, for the format's own rules.
    ///
    /// # Errors
    /// One of the two has more than 64 bytes.
    pub(super) fn new(format: u32, gtrid: &[u8], bqual: &[u8]) -> Result<Self, XidError> {
        for (part, bytes) in [("gtrid", gtrid), ("bqual", bqual)] {
            let length = bytes.len();
            if length > MAX_PART_LEN {
                return Err(XidError::TooLong { part, length });
            }
        }
        Ok(Self {
            format,
            gtrid: gtrid.into(),
            bqual: bqual.into(),
        })
    }

    /// Parses the name that `text` starts with, and gives back what is behind it. Servers log `X'6162',X'',1` whatever
    /// the client wrote; quoted text without escapes is taken too, and branch and format may be left out.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn parse_prefix(text: &[u8]) -> Result<(Self, &[u8]), XidError> {
        let parsed = || {
            let (gtrid, rest) = parse_literal(text)?;
            let Some(bqual) = strip_comma(rest) else {
                return Some((DEFAULT_FORMAT, gtrid, Vec::new(), rest));
            };
            let (bqual, rest) = parse_literal(bqual)?;
            let Some(format) = strip_comma(rest) else {
                return Some((DEFAULT_FORMAT, gtrid, bqual, rest));
            };
            let (format, rest) = parse_format(format)?;
            Some((format, gtrid, bqual, rest))
        };
        let (format, gtrid, bqual, rest) = parsed().ok_or_else(|| {
            let (start, _) = text.split_at(text.len().min(2 * MAX_PART_LEN));
            let text = String::from_utf8_lossy(start).into_owned();
            XidError::Malformed { text }
        })?;
        Ok((Self::new(format, &gtrid, &bqual)?, rest))
    }
}

/// Of a name that leaves it out.
const DEFAULT_FORMAT: u32 = 1;

fn strip_comma(text: &[u8]) -> Option<&[u8]> {
    text.trim_ascii_start().strip_prefix(b",")
}

fn parse_literal(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let text = text.trim_ascii_start();
    let digits = text.strip_prefix(b"X").or_else(|| text.strip_prefix(b"x"));
    let (quote, content) = digits.unwrap_or(text).split_first()?;
    if !matches!((quote, digits), (b'\'', _) | (b'"', None)) {
        return None;
    }
    let mut parts = content.splitn(2, |byte| byte == quote);
    let (content, rest) = (parts.next()?, parts.next()?);
    if digits.is_some() {
        return Some((parse_hex(content)?, rest));
    }
    let escaped = content.contains(&b'\\') || rest.first() == Some(quote);
    (!escaped).then(|| (content.to_owned(), rest))
}

fn parse_hex(digits: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let (pairs, rest) = digits.as_chunks::<2>();
    let bytes = pairs
        .iter()
        .map(|[high, low]| u8::try_from(digit(*high)? << 4 | digit(*low)?).ok());
    rest.is_empty().then(|| bytes.collect()).flatten()
}

/// Servers print the format as an unsigned number of the width of C's `long`, sign extended, and write four bytes of it
/// into events.
fn parse_format(text: &[u8]) -> Option<(u32, &[u8])> {
    let text = text.trim_ascii_start();
    let end = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, rest) = text.split_at(end);
    let format: u64 = str::from_utf8(digits).ok()?.parse().ok()?;
    let [a, b, c, d, ..] = format.to_le_bytes();
    Some((u32::from_le_bytes([a, b, c, d]), rest))
}

impl fmt::Display for Xid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in [&self.gtrid, &self.bqual] {
            f.write_str("X'")?;
            for byte in part {
                write!(f, "{byte:02x}")?;
            }
            f.write_str("',")?;
        }
        write!(f, "{}", self.format)
    }
}

impl fmt::Debug for Xid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// XA_PREPARE_LOG_EVENT, which ends the group of an XA transaction's rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct XaPrepareEvent {
    /// XA COMMIT ... ONE PHASE: the transaction is committed, and no other event will say so.
    pub(super) one_phase: bool,
    pub(super) xid: Xid,
}

impl XaPrepareEvent {
    /// Parses what stands between the event's header and its checksum, in little endian: flag, format, two lengths,
    /// both parts. The layout is that of `XA_prepare_event` in MySQL; MariaDB writes the same.
    ///
    /// # Errors
    /// The bytes are of another length than they say, or a part of the name is too long.
    pub(super) fn parse(body: &[u8]) -> Result<Self, XidError> {
        let mut rest = body;
        let one_phase = rest.try_get_u8()? != 0;
        let format = rest.try_get_u32_le()?;
        let (gtrid, bqual) = (rest.try_get_u32_le()?, rest.try_get_u32_le()?);
        let gtrid = take(&mut rest, gtrid)?;
        let bqual = take(&mut rest, bqual)?;
        if !rest.is_empty() {
            return Err(XidError::Trailing { found: rest.len() });
        }
        let xid = Xid::new(format, gtrid, bqual)?;
        Ok(Self { one_phase, xid })
    }
}

fn take<'a>(rest: &mut &'a [u8], length: u32) -> Result<&'a [u8], XidError> {
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    let (taken, behind) = rest.split_at_checked(length).ok_or(XidError::Short {
        found: rest.len(),
        expected: length,
    })?;
    *rest = behind;
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// XA_PREPARE of MySQL 9.7 and MariaDB 10.11 after XA PREPARE 'x1', without header and checksum.
    const BODY: &[u8] = b"\x00\x01\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00x1";

    fn xid(format: u32, gtrid: &[u8], bqual: &[u8]) -> Xid {
        Xid::new(format, gtrid, bqual).unwrap()
    }

    fn body(one_phase: u8, format: u32, gtrid: &[u8], bqual: &[u8]) -> Vec<u8> {
        let numbers = [format, gtrid.len() as u32, bqual.len() as u32].map(u32::to_le_bytes);
        [&[one_phase], numbers.as_flattened(), gtrid, bqual].concat()
    }

    #[test]
    fn a_prepare_event_and_the_statements_name_the_same() {
        let event = XaPrepareEvent::parse(BODY).unwrap();
        assert!(!event.one_phase);
        assert_eq!(event.xid.to_string(), "X'7831',X'',1");
        assert_eq!(Xid::parse_prefix(b" X'7831',X'',1"), Ok((event.xid, b"".as_slice())));
    }

    #[test]
    fn a_one_phase_commit_is_told_apart() {
        let event = XaPrepareEvent::parse(&body(1, 7, b"g", b"b")).unwrap();
        assert!(event.one_phase);
        assert_eq!(event.xid, xid(7, b"g", b"b"));
    }

    #[test]
    fn all_forms_of_a_name_are_read() {
        for (text, expected, behind) in [
            (
                "X'00fF',X'01',4294967295 ONE PHASE",
                xid(u32::MAX, b"\x00\xFF", b"\x01"),
                " ONE PHASE",
            ),
            // -1 as the server prints it.
            ("X'',X'',18446744073709551615", xid(u32::MAX, b"", b""), ""),
            ("x'61' , 'b' , 2;", xid(2, b"a", b"b"), ";"),
            ("'x1'", xid(1, b"x1", b""), ""),
            ("\"x'1\",\"\" RESUME", xid(1, b"x'1", b""), " RESUME"),
        ] {
            assert_eq!(
                Xid::parse_prefix(text.as_bytes()),
                Ok((expected, behind.as_bytes())),
                "{text}"
            );
        }
    }

    #[test]
    fn malformed_names_are_errors() {
        for text in [
            "",
            "x1",
            "X'7'",
            "X'7g'",
            "X'78",
            "'x1",
            "'x\\'1'",
            "'x''1'",
            "'x1',",
            "'x1','',",
            "'x1','',-1",
            "'x1','',18446744073709551616",
        ] {
            let malformed = XidError::Malformed { text: text.to_owned() };
            assert_eq!(Xid::parse_prefix(text.as_bytes()), Err(malformed));
        }
    }

    #[test]
    fn parts_end_at_64_bytes() {
        let (longest, longer) = ([b'a'; 64], [b'a'; 65]);
        assert!(XaPrepareEvent::parse(&body(0, 1, &longest, &longest)).is_ok());
        let too_long = |part| Err(XidError::TooLong { part, length: 65 });
        assert_eq!(XaPrepareEvent::parse(&body(0, 1, &longer, b"")), too_long("gtrid"));
        assert_eq!(XaPrepareEvent::parse(&body(0, 1, b"", &longer)), too_long("bqual"));
        let text = ["'", &"a".repeat(65), "'"].concat();
        assert_eq!(
            Xid::parse_prefix(text.as_bytes()).unwrap_err(),
            too_long("gtrid").unwrap_err()
        );
    }

    #[test]
    fn a_prepare_event_of_another_length_is_an_error() {
        for length in 0..BODY.len() {
            let error = XaPrepareEvent::parse(&BODY[..length]).unwrap_err();
            assert!(matches!(error, XidError::Short { .. }), "{error}");
        }
        let longer = [BODY, &[0]].concat();
        assert_eq!(XaPrepareEvent::parse(&longer), Err(XidError::Trailing { found: 1 }));
        let hostile = body(0, 1, b"", b"")
            .into_iter()
            .take(9)
            .chain([0xFF; 4])
            .collect::<Vec<_>>();
        assert_eq!(
            XaPrepareEvent::parse(&hostile),
            Err(XidError::Short {
                found: 0,
                expected: 0xFFFF_FFFF,
            })
        );
    }

    proptest! {
        #[test]
        fn text_and_bytes_and_value_agree(
            one_phase: bool,
            format: u32,
            gtrid in prop::collection::vec(any::<u8>(), 0..=64),
            bqual in prop::collection::vec(any::<u8>(), 0..=64),
        ) {
            let xid = xid(format, &gtrid, &bqual);
            let text = xid.to_string();
            prop_assert_eq!(Xid::parse_prefix(text.as_bytes()), Ok((xid.clone(), b"".as_slice())));
            let event = XaPrepareEvent::parse(&body(u8::from(one_phase), format, &gtrid, &bqual));
            prop_assert_eq!(event, Ok(XaPrepareEvent { one_phase, xid }));
        }

        #[test]
        fn any_bytes_are_a_name_or_an_error(bytes: Vec<u8>, text in "[xX'\", 0-9a\\\\]*") {
            let _ = XaPrepareEvent::parse(&bytes);
            let _ = Xid::parse_prefix(&bytes);
            let _ = Xid::parse_prefix(text.as_bytes());
        }
    }
}
