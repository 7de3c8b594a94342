//! The temporal types of a row as the server prints them: DATE, TIME, DATETIME and TIMESTAMP since MySQL 5.6.
//!
//! What a server may hold is printed, zero dates and days that do not exist included; what it can't hold is an error.
//! The layouts are those of `my_time.cc` in MySQL's source. A TIMESTAMP is printed in UTC.

use super::reader::{uint_be, uint_le};
use crate::calendar::Date;

/// Bytes that no server stores as this type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{kind} has a part out of range")]
pub struct TemporalError {
    pub kind: &'static str,
}

/// A date and a time of the day, each part as stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DateTime {
    pub(super) year: u64,
    pub(super) month: u64,
    pub(super) day: u64,
    pub(super) hour: u64,
    pub(super) minute: u64,
    pub(super) second: u64,
    pub(super) microsecond: u64,
}

/// A span of up to 838 hours either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Time {
    pub(super) negative: bool,
    pub(super) hour: u64,
    pub(super) minute: u64,
    pub(super) second: u64,
    pub(super) microsecond: u64,
}

/// Microseconds with fewer digits are stored in fewer bytes: two digits in each.
pub(super) fn fraction_bytes(digits: u8) -> u8 {
    digits.div_ceil(2)
}

/// Three bytes: 15 bits of the year, 4 of the month, 5 of the day.
pub(super) fn write_date(raw: &[u8], out: &mut Vec<u8>) -> Result<(), TemporalError> {
    let packed = uint_le(raw);
    let (year, month, day) = (packed >> 9, packed >> 5 & 0xF, packed & 0x1F);
    if year > 9999 || month > 12 {
        return Err(TemporalError { kind: "DATE" });
    }
    write_day(year, month, day, out);
    Ok(())
}

/// Three bytes and the fraction's, as one number around a middle: 10 bits of the hour, 6 of the minute, 6 of the second,
/// then the fraction. It is negative as a whole.
pub(super) fn write_time(raw: &[u8], digits: u8, out: &mut Vec<u8>) -> Result<(), TemporalError> {
    let fraction_bits = 8 * u32::from(fraction_bytes(digits));
    let (number, middle) = (uint_be(raw), 0x80_0000 << fraction_bits);
    let packed = number.abs_diff(middle);
    let whole = packed >> fraction_bits;
    let time = Time {
        negative: number < middle,
        hour: whole >> 12,
        minute: whole >> 6 & 0x3F,
        second: whole & 0x3F,
        microsecond: microsecond(packed & ((1 << fraction_bits) - 1), digits),
    };
    time.write(digits, out)
}

/// Five bytes: a bit that is always set, 17 bits of 13 × year + month, 5 of the day, 5 of the hour, 6 of the minute, 6 of
/// the second; then the fraction.
pub(super) fn write_datetime(raw: &[u8], digits: u8, out: &mut Vec<u8>) -> Result<(), TemporalError> {
    let (whole, fraction) = raw.split_at(raw.len().min(5));
    let packed = uint_be(whole);
    let months = packed >> 22 & 0x1_FFFF;
    let datetime = DateTime {
        year: months / 13,
        month: months % 13,
        day: packed >> 17 & 0x1F,
        hour: packed >> 12 & 0x1F,
        minute: packed >> 6 & 0x3F,
        second: packed & 0x3F,
        microsecond: microsecond(uint_be(fraction), digits),
    };
    if packed >> 39 == 0 {
        return Err(TemporalError { kind: "DATETIME" });
    }
    datetime.write(digits, "DATETIME", out)
}

/// Four bytes of Unix seconds, then the fraction.
pub(super) fn write_timestamp(raw: &[u8], digits: u8, out: &mut Vec<u8>) -> Result<(), TemporalError> {
    let (seconds, fraction) = raw.split_at(raw.len().min(4));
    write_unix(uint_be(seconds), microsecond(uint_be(fraction), digits), digits, out)
}

/// Nothing at all is the zero date, which is no moment.
pub(super) fn write_unix(seconds: u64, microsecond: u64, digits: u8, out: &mut Vec<u8>) -> Result<(), TemporalError> {
    let datetime = if seconds == 0 && microsecond == 0 {
        DateTime::ZERO
    } else {
        DateTime::of_unix(seconds, microsecond)
    };
    datetime.write(digits, "TIMESTAMP", out)
}

/// Of a fraction as stored: to the next even number of digits.
fn microsecond(fraction: u64, digits: u8) -> u64 {
    match fraction_bytes(digits) {
        1 => fraction * 10_000,
        2 => fraction * 100,
        _ => fraction,
    }
}

impl DateTime {
    const ZERO: Self = Self {
        year: 0,
        month: 0,
        day: 0,
        hour: 0,
        minute: 0,
        second: 0,
        microsecond: 0,
    };

    /// In UTC.
    fn of_unix(seconds: u64, microsecond: u64) -> Self {
        let Date { year, month, day } = Date::of_unix_days(seconds / 86_400);
        Self {
            year,
            month,
            day,
            hour: seconds / 3_600 % 24,
            minute: seconds / 60 % 60,
            second: seconds % 60,
            microsecond,
        }
    }

    pub(super) fn write(self, digits: u8, kind: &'static str, out: &mut Vec<u8>) -> Result<(), TemporalError> {
        let date = self.year <= 9999 && self.month <= 12 && self.day <= 31;
        let time = self.hour <= 23 && self.minute <= 59 && self.second <= 59 && self.microsecond <= 999_999;
        if !(date && time) {
            return Err(TemporalError { kind });
        }
        write_day(self.year, self.month, self.day, out);
        out.push(b' ');
        write_clock(self.hour, self.minute, self.second, out);
        write_fraction(self.microsecond, digits, out);
        Ok(())
    }
}

impl Time {
    pub(super) fn write(self, digits: u8, out: &mut Vec<u8>) -> Result<(), TemporalError> {
        if self.hour > 838 || self.minute > 59 || self.second > 59 || self.microsecond > 999_999 {
            return Err(TemporalError { kind: "TIME" });
        }
        if self.negative {
            out.push(b'-');
        }
        write_clock(self.hour, self.minute, self.second, out);
        write_fraction(self.microsecond, digits, out);
        Ok(())
    }
}

fn write_day(year: u64, month: u64, day: u64, out: &mut Vec<u8>) {
    write_padded(year, 4, out);
    out.push(b'-');
    write_padded(month, 2, out);
    out.push(b'-');
    write_padded(day, 2, out);
}

fn write_clock(hour: u64, minute: u64, second: u64, out: &mut Vec<u8>) {
    write_padded(hour, if hour > 99 { 3 } else { 2 }, out);
    out.push(b':');
    write_padded(minute, 2, out);
    out.push(b':');
    write_padded(second, 2, out);
}

/// The first digits of the six: the server cuts, it does not round.
fn write_fraction(microsecond: u64, digits: u8, out: &mut Vec<u8>) {
    if digits > 0 {
        out.push(b'.');
        write_padded(microsecond / 10_u64.pow(6 - u32::from(digits.min(6))), digits, out);
    }
}

/// The last `digits` digits of a number.
pub(super) fn write_padded(number: u64, digits: u8, out: &mut Vec<u8>) {
    let mut rest = number;
    let start = out.len();
    out.resize(start + usize::from(digits), b'0');
    for place in out.iter_mut().rev().take(usize::from(digits)) {
        // A decimal digit fits.
        *place = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
}

#[cfg(test)]
mod tests;
