//! TIME, DATETIME and TIMESTAMP as before MySQL 5.6, which MariaDB writes with `mysql56_temporal_format=OFF`.
//!
//! Without fractional digits they are the digits of their text, read as a number. With them they are MariaDB's own: all
//! parts as one mixed number, in as few bytes as hold the type's range. The layouts are those of MariaDB's `field.cc`.

use super::reader::{uint_be, uint_le};
use super::temporal::{DateTime, TemporalError, Time, write_unix};

/// The bytes of a TIME, by its digits.
pub(super) fn time_bytes(digits: u8) -> u8 {
    match digits {
        0 => 3,
        1 | 2 => 4,
        3..=5 => 5,
        _ => 6,
    }
}

/// The bytes of a DATETIME, by its digits.
pub(super) fn datetime_bytes(digits: u8) -> u8 {
    match digits {
        0 => 8,
        1 | 2 => 6,
        3..=5 => 7,
        _ => 8,
    }
}

/// The bytes of a TIMESTAMP, by its digits.
pub(super) fn timestamp_bytes(digits: u8) -> u8 {
    match digits {
        0 => 4,
        1 | 2 => 5,
        3 | 4 => 6,
        _ => 7,
    }
}

/// hhmmss, signed; with digits the units since -838:59:59.999… less one second.
pub(super) fn write_time(raw: &[u8], digits: u8, out: &mut Vec<u8>) -> Result<(), TemporalError> {
    let time = if digits == 0 {
        let packed = uint_le(raw);
        let negative = packed >> 23 & 1 == 1;
        let number = if negative { (1 << 24) - packed } else { packed };
        Time {
            negative,
            hour: number / 10_000,
            minute: number / 100 % 100,
            second: number % 100,
            microsecond: 0,
        }
    } else {
        const SECONDS_BELOW_ZERO: u64 = 839 * 3_600;
        let units = units_in_second(digits);
        let (number, zero) = (uint_be(raw), SECONDS_BELOW_ZERO * units);
        let packed = number.abs_diff(zero);
        let second = packed / units;
        Time {
            negative: number < zero,
            hour: second / 3_600,
            minute: second / 60 % 60,
            second: second % 60,
            microsecond: packed % units * (1_000_000 / units),
        }
    };
    time.write(digits, out)
}

/// YYYYMMDDhhmmss; with digits a number of 13 months, 32 days, 24 hours and so on.
pub(super) fn write_datetime(raw: &[u8], digits: u8, out: &mut Vec<u8>) -> Result<(), TemporalError> {
    let datetime = if digits == 0 {
        let number = uint_le(raw);
        let (date, time) = (number / 1_000_000, number % 1_000_000);
        DateTime {
            year: date / 10_000,
            month: date / 100 % 100,
            day: date % 100,
            hour: time / 10_000,
            minute: time / 100 % 100,
            second: time % 100,
            microsecond: 0,
        }
    } else {
        let units = units_in_second(digits);
        let packed = uint_be(raw);
        let second = packed / units;
        let hour = second / 3_600;
        let day = hour / 24;
        let month = day / 32;
        DateTime {
            year: month / 13,
            month: month % 13,
            day: day % 32,
            hour: hour % 24,
            minute: second / 60 % 60,
            second: second % 60,
            microsecond: packed % units * (1_000_000 / units),
        }
    };
    datetime.write(digits, "DATETIME", out)
}

/// Unix seconds; with digits the most significant byte first, and the fraction behind them.
pub(super) fn write_timestamp(raw: &[u8], digits: u8, out: &mut Vec<u8>) -> Result<(), TemporalError> {
    if digits == 0 {
        return write_unix(uint_le(raw), 0, 0, out);
    }
    let (seconds, fraction) = raw.split_at(raw.len().min(4));
    let microsecond = uint_be(fraction) * (1_000_000 / units_in_second(digits));
    write_unix(uint_be(seconds), microsecond, digits, out)
}

fn units_in_second(digits: u8) -> u64 {
    10_u64.pow(u32::from(digits.min(6)))
}

#[cfg(test)]
mod tests;
