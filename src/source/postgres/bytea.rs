//! bytea as the server prints it: `bytea_output` chooses between hexadecimal behind `\x` and the older escape format,
//! in which a backslash is doubled and a byte outside printable ASCII is a backslash and three octal digits.
//!
//! A backslash in the value comes doubled in the escape format, so that no value in it begins with `\x`.

use bytes::Bytes;

/// A text that is no bytea. Places are counted in bytes, from 0.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ByteaError {
    #[error("bytea has an odd number of hexadecimal digits: {count}")]
    OddDigits { count: usize },
    #[error("bytea has no hexadecimal digit at byte {at}")]
    NotHex { at: usize },
    #[error("bytea has an unknown escape at byte {at}: expected a second backslash or three octal digits")]
    UnknownEscape { at: usize },
}

/// Parses either format; a value without any escape is not copied.
pub(super) fn parse(text: Bytes) -> Result<Bytes, ByteaError> {
    if let Some(digits) = text.strip_prefix(b"\\x") {
        return parse_hex(digits).map(Bytes::from);
    }
    match memchr::memchr(b'\\', &text) {
        Some(_) => parse_escapes(&text).map(Bytes::from),
        None => Ok(text),
    }
}

fn parse_hex(digits: &[u8]) -> Result<Vec<u8>, ByteaError> {
    let (pairs, rest) = digits.as_chunks::<2>();
    if !rest.is_empty() {
        return Err(ByteaError::OddDigits { count: digits.len() });
    }
    // All digits first and their check behind them: without a branch for each, the compiler takes many at once.
    let mut seen = 0;
    let bytes = pairs.iter().map(|&[high, low]| {
        let (high, low) = (hex_digit(high), hex_digit(low));
        seen |= high | low;
        high << 4 | low
    });
    let bytes = bytes.collect();
    if seen & NO_DIGIT == 0 {
        return Ok(bytes);
    }
    let at = digits.iter().take_while(|digit| digit.is_ascii_hexdigit()).count();
    Err(ByteaError::NotHex { at: "\\x".len() + at })
}

/// A bit that no digit's value has.
const NO_DIGIT: u8 = 0x80;

fn hex_digit(byte: u8) -> u8 {
    match byte {
        b'0'..=b'9' => byte - b'0',
        b'a'..=b'f' => byte - b'a' + 10,
        b'A'..=b'F' => byte - b'A' + 10,
        _ => NO_DIGIT,
    }
}

fn parse_escapes(text: &[u8]) -> Result<Vec<u8>, ByteaError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = memchr::memchr(b'\\', rest) {
        let (plain, escaped) = rest.split_at(at);
        bytes.extend_from_slice(plain);
        let (byte, behind) = match escaped {
            [_, b'\\', behind @ ..] => (b'\\', behind),
            [_, a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', behind @ ..] => {
                ((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'), behind)
            }
            _ => {
                return Err(ByteaError::UnknownEscape {
                    at: text.len() - escaped.len(),
                });
            }
        };
        bytes.push(byte);
        rest = behind;
    }
    bytes.extend_from_slice(rest);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use proptest::prelude::*;

    use super::*;

    fn parsed(text: &'static [u8]) -> Result<Bytes, ByteaError> {
        parse(Bytes::from_static(text))
    }

    #[test]
    fn both_formats_are_read() {
        let cases: [(&[u8], &[u8]); 8] = [
            (b"\\x", b""),
            (b"\\x00fFAb", b"\x00\xFF\xAB"),
            (b"", b""),
            (b"plain", b"plain"),
            (b"a\\000b\\377", b"a\0b\xFF"),
            (b"\\\\x41", b"\\x41"),
            (b"\\\\\\\\", b"\\\\"),
            (b"\\134", b"\\"),
        ];
        for (text, expected) in cases {
            assert_eq!(parsed(text).unwrap(), expected, "{text:?}");
        }
    }

    #[test]
    fn malformed_texts_name_the_place() {
        assert_eq!(parsed(b"\\x123"), Err(ByteaError::OddDigits { count: 3 }));
        assert_eq!(parsed(b"\\x12 3"), Err(ByteaError::NotHex { at: 4 }));
        assert_eq!(parsed(b"\\x1g"), Err(ByteaError::NotHex { at: 3 }));
        for text in [
            b"ab\\".as_slice(),
            b"ab\\1",
            b"ab\\12",
            b"ab\\400",
            b"ab\\128",
            b"ab\\n00",
            b"ab\\X00",
        ] {
            assert_eq!(
                parse(Bytes::from_static(text)),
                Err(ByteaError::UnknownEscape { at: 2 }),
                "{text:?}"
            );
        }
    }

    #[test]
    fn a_value_without_escapes_is_shared() {
        let text = Bytes::from_static(b"plain");
        assert_eq!(parse(text.clone()).unwrap().as_ptr(), text.as_ptr());
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().fold("\\x".to_owned(), |mut text, byte| {
            write!(text, "{byte:02x}").unwrap();
            text
        })
    }

    fn escaped(bytes: &[u8]) -> String {
        bytes.iter().fold(String::new(), |mut text, byte| {
            match byte {
                b'\\' => text.push_str("\\\\"),
                b' '..=b'~' => text.push(char::from(*byte)),
                _ => write!(text, "\\{byte:03o}").unwrap(),
            }
            text
        })
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_back(bytes: Vec<u8>) {
            prop_assert_eq!(parse(Bytes::from(hex(&bytes))).unwrap(), bytes.clone());
            prop_assert_eq!(parse(Bytes::from(escaped(&bytes))).unwrap(), bytes);
        }

        #[test]
        fn any_text_is_a_bytea_or_an_error(text: Vec<u8>, escapes in "[\\\\x0-8]*") {
            prop_assert!(parse(Bytes::from(text.clone())).is_ok_and(|bytes| bytes.len() <= text.len()) || text.contains(&b'\\'));
            let _ = parse(Bytes::from(escapes));
        }
    }
}
