//! Moments as dates and times in UTC.

use std::time::{SystemTime, UNIX_EPOCH};

/// A day of the Gregorian calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Date {
    pub(crate) year: u64,
    /// From 1, as the day.
    pub(crate) month: u64,
    pub(crate) day: u64,
}

impl Date {
    /// The calendar's 400 years are taken from a 1 March on: so a leap day is the last of its year.
    pub(crate) fn of_unix_days(days: u64) -> Self {
        const DAYS_FROM_MARCH_0000_TO_1970: u64 = 719_468;
        const DAYS_IN_400_YEARS: u64 = 146_097;
        let days = days + DAYS_FROM_MARCH_0000_TO_1970;
        let day = days % DAYS_IN_400_YEARS;
        // Each 4 years has a leap day but for the last of each century's; the 400th year has it again.
        let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        // From March on, months of 31 and 30 days follow each other as the multiples of 30.6 do.
        let months = (5 * day + 2) / 153;
        let (year, month) = if months < 10 {
            (year, months + 3)
        } else {
            (year + 1, months - 9)
        };
        Self {
            year: days / DAYS_IN_400_YEARS * 400 + year,
            month,
            day: day - (153 * months + 2) / 5 + 1,
        }
    }
}

/// The last second of the year 9999: RFC 3339 has no more digits.
const LAST_SECOND: u64 = 253_402_300_799;

/// As RFC 3339 has it, in UTC with milliseconds: `2026-11-28T05:17:01.124Z`. What is before 1970 is shown as its begin.
pub(crate) fn rfc3339(moment: SystemTime) -> String {
    let since = moment.duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{}.{:03}Z", date_time(since.as_secs()), since.subsec_millis())
}

/// Microseconds since 1970 in the same way, with all six digits behind the point.
pub(crate) fn rfc3339_micros(micros: i64) -> String {
    let micros = u64::try_from(micros).unwrap_or_default();
    format!("{}.{:06}Z", date_time(micros / 1_000_000), micros % 1_000_000)
}

fn date_time(seconds: u64) -> String {
    let seconds = seconds.min(LAST_SECOND);
    let Date { year, month, day } = Date::of_unix_days(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn days_are_the_calendar_s_counted_one_by_one() {
        let (mut year, mut month, mut day) = (1970, 1, 1);
        // More than 400 years, past the leap day that 2000 has and 2100, 2200 and 2300 have not.
        for days in 0..150_000 {
            assert_eq!(Date::of_unix_days(days), Date { year, month, day }, "day {days}");
            let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            let length = match month {
                2 if leap => 29,
                2 => 28,
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            (month, day) = if day < length { (month, day + 1) } else { (month + 1, 1) };
            (year, month) = if month > 12 { (year + 1, 1) } else { (year, month) };
        }
    }

    #[test]
    fn moments_are_written_in_utc_with_milliseconds() {
        let text = |millis| rfc3339(UNIX_EPOCH + Duration::from_millis(millis));
        assert_eq!(text(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(text(1_700_000_000_123), "2023-11-14T22:13:20.123Z");
        assert_eq!(text(951_868_799_999), "2000-02-29T23:59:59.999Z");
        assert_eq!(rfc3339(UNIX_EPOCH - Duration::from_secs(1)), "1970-01-01T00:00:00.000Z");
    }

    #[test]
    fn microseconds_are_written_with_all_their_digits() {
        for (micros, text) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (1_700_000_000_123_456, "2023-11-14T22:13:20.123456Z"),
            (1_700_000_000_000_000, "2023-11-14T22:13:20.000000Z"),
            (951_868_799_000_001, "2000-02-29T23:59:59.000001Z"),
            (-1, "1970-01-01T00:00:00.000000Z"),
            (i64::MAX, "9999-12-31T23:59:59.775807Z"),
        ] {
            assert_eq!(rfc3339_micros(micros), text, "{micros}");
        }
    }
}
