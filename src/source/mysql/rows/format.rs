//! What is printed: cells whose bytes are not their text.

use bytes::Bytes;

use super::cell::CellError;
use super::reader::uint_le;
use super::{decimal, float, jsonb, network, old_temporal, temporal};

/// How a cell's bytes are printed as the server's text.
#[derive(Debug, Clone, Copy)]
pub(super) enum TextFormat {
    Signed,
    Unsigned,
    Float,
    Double,
    Decimal {
        precision: u8,
        scale: u8,
    },
    Year,
    Date,
    Time {
        digits: u8,
    },
    DateTime {
        digits: u8,
    },
    Timestamp {
        digits: u8,
    },
    OldTime {
        digits: u8,
    },
    OldDateTime {
        digits: u8,
    },
    OldTimestamp {
        digits: u8,
    },
    /// A bit for each of the strings.
    Set,
    Json,
    Uuid,
    Inet4,
    Inet6,
}

impl TextFormat {
    /// Appends the text of a cell; `strings` are those of a SET.
    pub(super) fn write(self, raw: &[u8], strings: &[Bytes], out: &mut Vec<u8>) -> Result<(), CellError> {
        match self {
            Self::Signed => write_integer(signed(raw), out),
            Self::Unsigned => write_integer(uint_le(raw), out),
            Self::Float => float::write_float(f32::from_le_bytes(fixed(raw)), out),
            Self::Double => float::write_double(f64::from_le_bytes(fixed(raw)), out),
            Self::Decimal { precision, scale } => decimal::write_decimal(raw, precision, scale, out)?,
            Self::Year => match uint_le(raw) {
                0 => out.extend_from_slice(b"0000"),
                years => write_integer(1900 + years, out),
            },
            Self::Date => temporal::write_date(raw, out)?,
            Self::Time { digits } => temporal::write_time(raw, digits, out)?,
            Self::DateTime { digits } => temporal::write_datetime(raw, digits, out)?,
            Self::Timestamp { digits } => temporal::write_timestamp(raw, digits, out)?,
            Self::OldTime { digits } => old_temporal::write_time(raw, digits, out)?,
            Self::OldDateTime { digits } => old_temporal::write_datetime(raw, digits, out)?,
            Self::OldTimestamp { digits } => old_temporal::write_timestamp(raw, digits, out)?,
            Self::Set => write_set(uint_le(raw), strings, out)?,
            Self::Json => jsonb::render(raw, out)?,
            Self::Uuid => network::write_uuid(padded(raw)?, out),
            Self::Inet4 => network::write_inet4(padded(raw)?, out),
            Self::Inet6 => network::write_inet6(padded(raw)?, out),
        }
        Ok(())
    }
}

fn write_integer<I: itoa::Integer>(number: I, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// The number in one to eight bytes, with its sign.
fn signed(raw: &[u8]) -> i64 {
    let unused_bits = 64 - 8 * raw.len().clamp(1, 8);
    (uint_le(raw) << unused_bits).cast_signed() >> unused_bits
}

/// A cell's bytes as an array of the length that its plan has cut it to.
fn fixed<const N: usize>(raw: &[u8]) -> [u8; N] {
    raw.first_chunk().copied().unwrap_or([0; N])
}

/// Bytes with the trailing zero bytes that the log leaves out.
fn padded<const N: usize>(raw: &[u8]) -> Result<[u8; N], CellError> {
    let mut bytes = [0; N];
    let filled = bytes.get_mut(..raw.len()).ok_or(CellError::TooLong {
        found: raw.len(),
        expected: N,
    })?;
    filled.copy_from_slice(raw);
    Ok(bytes)
}

fn write_set(bits: u64, strings: &[Bytes], out: &mut Vec<u8>) -> Result<(), CellError> {
    let expected = strings.len();
    let beyond = u32::try_from(expected).ok().and_then(|count| bits.checked_shr(count));
    if beyond.unwrap_or(0) != 0 {
        return Err(CellError::Set { expected });
    }
    let chosen = strings.iter().enumerate().filter(|(index, _)| bits >> index & 1 == 1);
    for (count, (_, string)) in chosen.enumerate() {
        if count > 0 {
            out.push(b',');
        }
        out.extend_from_slice(string);
    }
    Ok(())
}
