//! Values inside JSON that have a column type of MySQL instead of one of JSON's.
//!
//! DECIMAL is printed as a number and dates and times as strings; all else in base64, behind the name of its type.

use base64::prelude::{BASE64_STANDARD, Engine};

use super::super::decimal::{self, DecimalError};
use super::write_quoted;

/// Numbers of `enum_field_types`.
const TIMESTAMP: u8 = 7;
const DATE: u8 = 10;
const TIME: u8 = 11;
const DATETIME: u8 = 12;
const NEWDECIMAL: u8 = 246;
const VAR_STRING: u8 = 253;

/// The characters of a line of base64: the server breaks it like MIME.
const LINE_LEN: usize = 76;
const LINE_BYTES: usize = LINE_LEN / 4 * 3;

/// A value that its column type cannot have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpaqueError {
    #[error("number has no precision and scale: found {found} bytes, expected 3 or more")]
    NoShape { found: usize },
    #[error("number is no decimal")]
    Decimal { source: DecimalError },
    #[error("date or time has the wrong length: found {found} bytes, expected 8")]
    TemporalLength { found: usize },
    #[error("date or time does not exist")]
    Temporal,
}

/// Appends the value's JSON text.
///
/// # Errors
/// The bytes are no value of that type. What was appended until then stays.
pub(super) fn write(column_type: u8, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), OpaqueError> {
    match column_type {
        NEWDECIMAL => {
            let &[precision, scale, ref digits @ ..] = bytes else {
                return Err(OpaqueError::NoShape { found: bytes.len() });
            };
            decimal::write_decimal(digits, precision, scale, out).map_err(|source| OpaqueError::Decimal { source })?;
        }
        DATE | TIME | DATETIME | TIMESTAMP => {
            let packed = bytes
                .try_into()
                .map_err(|_| OpaqueError::TemporalLength { found: bytes.len() })?;
            let temporal = Temporal::unpack(column_type, i64::from_le_bytes(packed)).ok_or(OpaqueError::Temporal)?;
            out.push(b'"');
            temporal.write(out);
            out.push(b'"');
        }
        VAR_STRING => write_quoted(bytes, out),
        _ => {
            out.extend_from_slice(b"\"base64:type");
            out.extend_from_slice(itoa::Buffer::new().format(column_type).as_bytes());
            out.push(b':');
            write_base64(bytes, out);
            out.push(b'"');
        }
    }
    Ok(())
}

/// A date or time, with what its type prints.
enum Temporal {
    Date(Date),
    Time { negative: bool, time: Time },
    DateTime(Date, Time),
}

/// May be zero in all parts, or in some.
struct Date {
    year: u32,
    month: u32,
    day: u32,
}

struct Time {
    hour: u32,
    minute: u32,
    second: u32,
    microsecond: u32,
}

/// Takes the lowest bits off a packed number.
fn take_bits(packed: &mut u64, count: u32) -> u32 {
    let low = *packed & ((1 << count) - 1);
    *packed >>= count;
    u32::try_from(low).unwrap_or(u32::MAX)
}

impl Temporal {
    /// Takes the server's packed form apart: from the lowest bit on 24 bits of microseconds, 6 of seconds, 6 of minutes;
    /// then for TIME 10 of hours, otherwise 5 of hours, 5 of days and months from the year 0 in the base of 13.
    fn unpack(column_type: u8, packed: i64) -> Option<Self> {
        let negative = packed < 0;
        let mut rest = packed.unsigned_abs();
        let (microsecond, second, minute) = (
            take_bits(&mut rest, 24),
            take_bits(&mut rest, 6),
            take_bits(&mut rest, 6),
        );
        let hour = take_bits(&mut rest, if column_type == TIME { 10 } else { 5 });
        let time = Time {
            hour,
            minute,
            second,
            microsecond,
        };
        if microsecond > 999_999 || second > 59 || minute > 59 {
            return None;
        }
        if column_type == TIME {
            // 838:59:59 is the farthest from zero that a TIME gets.
            return (hour <= 838 && rest == 0).then_some(Self::Time { negative, time });
        }
        let day = take_bits(&mut rest, 5);
        let months = u32::try_from(rest).ok()?;
        let (year, month) = (months / 13, months % 13);
        if negative || hour > 23 || year > 9999 {
            return None;
        }
        let date = Date { year, month, day };
        Some(match column_type {
            DATE => Self::Date(date),
            _ => Self::DateTime(date, time),
        })
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Date(date) => date.write(out),
            Self::Time { negative, time } => {
                if *negative {
                    out.push(b'-');
                }
                time.write(out);
            }
            Self::DateTime(date, time) => {
                date.write(out);
                out.push(b' ');
                time.write(out);
            }
        }
    }
}

impl Date {
    fn write(&self, out: &mut Vec<u8>) {
        decimal::write_padded(self.year, 4, out);
        out.push(b'-');
        decimal::write_padded(self.month, 2, out);
        out.push(b'-');
        decimal::write_padded(self.day, 2, out);
    }
}

impl Time {
    fn write(&self, out: &mut Vec<u8>) {
        decimal::write_padded(self.hour, if self.hour < 100 { 2 } else { 3 }, out);
        out.push(b':');
        decimal::write_padded(self.minute, 2, out);
        out.push(b':');
        decimal::write_padded(self.second, 2, out);
        out.push(b'.');
        decimal::write_padded(self.microsecond, 6, out);
    }
}

/// Appends base64 with padding, and with the escape of a line feed between its lines.
fn write_base64(bytes: &[u8], out: &mut Vec<u8>) {
    for (index, line) in bytes.chunks(LINE_BYTES).enumerate() {
        if index > 0 {
            out.extend_from_slice(b"\\n");
        }
        out.extend_from_slice(BASE64_STANDARD.encode(line).as_bytes());
    }
}
