//! An application's own time of an event, as milliseconds since 1970.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use crate::config::pipeline::TimeUnit;

/// Milliseconds of a text, if it is a date and time as servers print them or a count of units. What is finer is cut off.
///
/// A time without an offset counts as UTC. Without a `unit`, the size of a count tells it: as what would be the least after
/// 1973 and before 5138.
pub(super) fn millis(text: &str, unit: Option<TimeUnit>) -> Option<i64> {
    match count(text) {
        Some((whole, nanos)) => of_count(whole, nanos, unit.unwrap_or_else(|| unit_of(whole))),
        None => of_date(text),
    }
}

/// A decimal number as its whole part and the billionths behind it, which have its sign.
fn count(text: &str) -> Option<(i64, i64)> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let is_negative = whole.starts_with('-');
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_digits(whole.strip_prefix('-').unwrap_or(whole)) || !is_digits(fraction) {
        return None;
    }
    let billionths: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    let billionths: i64 = billionths.parse().ok()?;
    Some((whole.parse().ok()?, if is_negative { -billionths } else { billionths }))
}

fn unit_of(count: i64) -> TimeUnit {
    match count.unsigned_abs() {
        0..100_000_000_000 => TimeUnit::Seconds,
        100_000_000_000..100_000_000_000_000 => TimeUnit::Millis,
        100_000_000_000_000..100_000_000_000_000_000 => TimeUnit::Micros,
        _ => TimeUnit::Nanos,
    }
}

fn of_count(whole: i64, billionths: i64, unit: TimeUnit) -> Option<i64> {
    let nanos = match unit {
        TimeUnit::Seconds => 1_000_000_000,
        TimeUnit::Millis => 1_000_000,
        TimeUnit::Micros => 1_000,
        TimeUnit::Nanos => 1,
    };
    let total = i128::from(whole) * nanos + i128::from(billionths) * nanos / 1_000_000_000;
    i64::try_from(total.div_euclid(1_000_000)).ok()
}

fn of_date(text: &str) -> Option<i64> {
    let with_offset = text.parse::<Timestamp>();
    let moment = with_offset.or_else(|_| {
        text.parse::<DateTime>()?
            .to_zoned(TimeZone::UTC)
            .map(|zoned| zoned.timestamp())
    });
    Some(moment.ok()?.as_microsecond().div_euclid(1_000))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn dates_and_times_as_servers_print_them() {
        for (text, millis) in [
            ("2020-01-02 03:04:05.678901", 1_577_934_245_678),
            ("2020-01-02 03:04:05.678901+00", 1_577_934_245_678),
            ("2020-01-02 05:34:05.678901+02:30", 1_577_934_245_678),
            ("2020-01-01 22:04:05-05", 1_577_934_245_000),
            ("2020-01-02T03:04:05.678901Z", 1_577_934_245_678),
            ("2020-01-02 03:04:05", 1_577_934_245_000),
            ("2020-01-02", 1_577_923_200_000),
            ("1969-12-31 23:59:59.9999", -1),
        ] {
            assert_eq!(super::millis(text, None), Some(millis), "{text}");
        }
    }

    #[test]
    fn counts_by_their_unit_or_their_size() {
        for count in [
            "1577934245",
            "1577934245000",
            "1577934245000000",
            "1577934245000000000",
            "1577934245.000000001",
        ] {
            assert_eq!(millis(count, None), Some(1_577_934_245_000), "{count}");
        }
        assert_eq!(millis("1577934245.678901", None), Some(1_577_934_245_678));
        assert_eq!(millis("1000", Some(TimeUnit::Millis)), Some(1_000));
        assert_eq!(millis("1000", Some(TimeUnit::Micros)), Some(1));
        assert_eq!(millis("-1.5", Some(TimeUnit::Seconds)), Some(-1_500));
        assert_eq!(millis("-0.5", Some(TimeUnit::Millis)), Some(-1), "cut towards the past");
    }

    #[test]
    fn what_is_no_moment_is_none() {
        for text in [
            "",
            "-",
            ".",
            "1.",
            ".5",
            "1e3",
            "+1",
            "now",
            "infinity",
            "-infinity",
            "0000-00-00 00:00:00",
            "2020-13-01",
            "03:04:05",
            "2020-01-02 BC",
            "99999999999999999999",
        ] {
            assert_eq!(millis(text, None), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_not(text in any::<String>()) {
            let _ = millis(&text, None);
        }

        #[test]
        fn counts_of_all_units_agree(seconds in 100_i64..99_999_999_999) {
            for unit in [TimeUnit::Seconds, TimeUnit::Millis, TimeUnit::Micros, TimeUnit::Nanos] {
                let per_second = match unit {
                    TimeUnit::Seconds => 1,
                    TimeUnit::Millis => 1_000,
                    TimeUnit::Micros => 1_000_000,
                    TimeUnit::Nanos => 1_000_000_000,
                };
                let Some(count) = i64::checked_mul(seconds, per_second) else { continue };
                prop_assert_eq!(millis(&count.to_string(), Some(unit)), Some(seconds * 1_000));
            }
        }
    }
}
