//! DECIMAL as the server stores it, in rows and inside JSON: decimal digits in groups of nine, the most significant first.
//!
//! A group of nine digits takes four bytes; the left-over digits, at the outer end of either side of the point, take as
//! few bytes as hold them. The very first bit is turned, and for a negative number every bit is, so that the bytes sort
//! as the numbers do. The layout is that of the servers' `decimal2bin`.

#[cfg(test)]
mod tests;

use std::iter::{once, repeat_n};
use std::{mem, slice};

/// The digits of a whole group.
const GROUP_DIGITS: usize = 9;
/// The bytes of a group of as many digits.
const GROUP_LEN: [usize; GROUP_DIGITS + 1] = [0, 1, 1, 2, 2, 3, 3, 4, 4, 4];
/// What the servers' own arithmetic has room for. A column has at most 65 digits.
const MAX_PRECISION: u8 = 81;
/// Turned in the first byte, so that positive numbers sort behind negative ones.
const SIGN_BIT: u8 = 0x80;

/// Bytes that are no DECIMAL of their precision and scale.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecimalError {
    #[error("decimal({precision},{scale}) does not exist: expected a precision of 1 to 81 and a scale up to it")]
    Shape { precision: u8, scale: u8 },
    #[error("decimal({precision},{scale}) has the wrong length: found {found} bytes, expected {expected}")]
    Length {
        precision: u8,
        scale: u8,
        found: usize,
        expected: usize,
    },
    #[error("decimal({precision},{scale}) has a group that is no number of {digits} digits")]
    Group { precision: u8, scale: u8, digits: usize },
}

/// How many bytes a DECIMAL takes.
///
/// # Errors
/// There is no such precision and scale.
pub(super) fn decimal_len(precision: u8, scale: u8) -> Result<usize, DecimalError> {
    if precision == 0 || precision > MAX_PRECISION || scale > precision {
        return Err(DecimalError::Shape { precision, scale });
    }
    Ok(part_len(precision - scale) + part_len(scale))
}

/// The bytes of the digits on one side of the point.
fn part_len(digits: u8) -> usize {
    let digits = usize::from(digits);
    digits / GROUP_DIGITS * group_len(GROUP_DIGITS) + group_len(digits % GROUP_DIGITS)
}

fn group_len(digits: usize) -> usize {
    GROUP_LEN.get(digits).copied().unwrap_or_default()
}

/// Appends the number as the server prints it: no needless zero before the point, exactly `scale` digits behind it.
///
/// # Errors
/// `bytes` is no such number. What was appended until then stays.
pub(super) fn write_decimal(bytes: &[u8], precision: u8, scale: u8, out: &mut Vec<u8>) -> Result<(), DecimalError> {
    let expected = decimal_len(precision, scale)?;
    let (found, negative) = match bytes {
        [first, ..] => (bytes.len(), first & SIGN_BIT == 0),
        [] => (0, false),
    };
    if found != expected {
        return Err(DecimalError::Length {
            precision,
            scale,
            found,
            expected,
        });
    }
    let mut groups = Groups {
        bytes: bytes.iter(),
        turned: if negative { 0xFF } else { 0 },
        turned_first: SIGN_BIT,
    };
    let mut group = |digits| {
        groups.next(digits).ok_or(DecimalError::Group {
            precision,
            scale,
            digits,
        })
    };

    if negative {
        out.push(b'-');
    }
    let (whole, fraction) = (usize::from(precision - scale), usize::from(scale));
    let start = out.len();
    for digits in once(whole % GROUP_DIGITS).chain(repeat_n(GROUP_DIGITS, whole / GROUP_DIGITS)) {
        match group(digits)? {
            0 if out.len() == start => {}
            value if out.len() == start => out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes()),
            value => write_padded(value, digits, out),
        }
    }
    if out.len() == start {
        out.push(b'0');
    }
    if fraction > 0 {
        out.push(b'.');
        for digits in repeat_n(GROUP_DIGITS, fraction / GROUP_DIGITS).chain(once(fraction % GROUP_DIGITS)) {
            write_padded(group(digits)?, digits, out);
        }
    }
    Ok(())
}

/// Appends a number with zeros before it, up to `digits` digits.
pub(super) fn write_padded(mut value: u32, digits: usize, out: &mut Vec<u8>) {
    out.resize(out.len() + digits, b'0');
    for place in out.iter_mut().rev().take(digits) {
        *place = b"0123456789"[(value % 10) as usize];
        value /= 10;
    }
}

/// The groups of a number, from its first byte on.
struct Groups<'b> {
    bytes: slice::Iter<'b, u8>,
    /// Turned in each byte.
    turned: u8,
    /// Turned in the next byte beside that.
    turned_first: u8,
}

impl Groups<'_> {
    /// The value of the next group of that many digits; none when it is no number of so many.
    fn next(&mut self, digits: usize) -> Option<u32> {
        let mut value = 0;
        for _ in 0..group_len(digits) {
            let byte = self.bytes.next()? ^ self.turned ^ mem::take(&mut self.turned_first);
            value = value << 8 | u32::from(byte);
        }
        let limit = 10_u32.pow(u32::try_from(digits).ok()?);
        (value < limit).then_some(value)
    }
}
