//! An application's own time of an event, as milliseconds since 1970.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use crate::config::pipeline::TimeUnit;

/// Milliseconds of a text, if it is a date and time as servers print them or a count of units. What is finer is cut off.
///
/// A time without an offset counts as UTC. Without a `unit`, the size of a count tells it: as what would be the least after
/// 1973 and before 5138. A count that is too small for that is none: it could be a year.
pub(super) fn millis(text: &str, unit: Option<TimeUnit>) -> Option<i64> {
    match count(text) {
        Some((whole, billionths)) => of_count(whole, billionths, unit.or_else(|| unit_of(whole))?),
        None => of_date(text),
    }
}

/// The most places that an exponent may move the point: more than a count has that is a time in any unit.
const MOST_PLACES: usize = 40;

/// How many digits behind the point count.
const BILLIONTHS: usize = 9;

/// A decimal number, with an exponent or not, as its whole part and the billionths behind it, which have its sign.
fn count(text: &str) -> Option<(i64, i64)> {
    let (number, exponent) = match text.split_once(['e', 'E']) {
        Some((number, exponent)) => (number, exponent.parse::<isize>().ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let is_negative = whole.starts_with('-');
    let whole = whole.strip_prefix('-').unwrap_or(whole);
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_digits(whole) || !is_digits(fraction) || exponent.unsigned_abs() > MOST_PLACES {
        return None;
    }
    // The digits with as many zeros behind them as the point can move past, and the nine of the billionths.
    let mut digits = whole.bytes().chain(fraction.bytes()).chain(std::iter::repeat(b'0'));
    let point = isize::try_from(whole.len()).ok()?.checked_add(exponent)?;
    // Where the point moves past all of them, zeros stand between it and them.
    let zeros = usize::try_from(-point).unwrap_or(0).min(BILLIONTHS);
    let point = usize::try_from(point).unwrap_or(0);
    let whole = number_of(digits.by_ref().take(point))?;
    let billionths = number_of(std::iter::repeat_n(b'0', zeros).chain(digits).take(BILLIONTHS))?;
    Some(match is_negative {
        true => (-whole, -billionths),
        false => (whole, billionths),
    })
}

/// None: too large.
fn number_of(mut digits: impl Iterator<Item = u8>) -> Option<i64> {
    digits.try_fold(0_i64, |number, digit| {
        number.checked_mul(10)?.checked_add(i64::from(digit - b'0'))
    })
}

/// None: too small to tell.
fn unit_of(count: i64) -> Option<TimeUnit> {
    Some(match count.unsigned_abs() {
        0..100_000_000 => return None,
        100_000_000..100_000_000_000 => TimeUnit::Seconds,
        100_000_000_000..100_000_000_000_000 => TimeUnit::Millis,
        100_000_000_000_000..100_000_000_000_000_000 => TimeUnit::Micros,
        _ => TimeUnit::Nanos,
    })
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
    fn exponents_are_read_to_the_last_digit() {
        for (text, millis) in [
            ("1.767322000123e+15", 1_767_322_000_123),
            ("1.767322000123e15", 1_767_322_000_123),
            ("1767322000123E0", 1_767_322_000_123),
            ("17673220001239e-1", 1_767_322_000_123),
            ("1.7673220001239e+9", 1_767_322_000_123),
            ("0.0000001767322e+16", 1_767_322_000_000),
        ] {
            assert_eq!(super::millis(text, None), Some(millis), "{text}");
        }
        assert_eq!(millis("-1e0", Some(TimeUnit::Seconds)), Some(-1_000));
        assert_eq!(millis("1e-40", Some(TimeUnit::Seconds)), Some(0));
        assert_eq!(millis("0e40", Some(TimeUnit::Seconds)), Some(0));
        assert_eq!(millis("123.4e-5", Some(TimeUnit::Seconds)), Some(1));
        assert_eq!(
            millis("0000000000000000000000012.5", Some(TimeUnit::Seconds)),
            Some(12_500)
        );
    }

    #[test]
    fn a_count_that_is_too_small_to_tell_its_unit_needs_one() {
        for text in ["0", "2026", "-1", "99999999.9", "2.026e3"] {
            assert_eq!(millis(text, None), None, "{text}");
        }
        assert_eq!(millis("2026", Some(TimeUnit::Seconds)), Some(2_026_000));
        assert_eq!(millis("100000000", None), Some(100_000_000_000));
    }

    #[test]
    fn what_is_no_moment_is_none() {
        for text in [
            "",
            "-",
            ".",
            "1.",
            ".5",
            "1e",
            "e3",
            "1e+-3",
            "1e1.5",
            "1e41",
            "1e-41",
            "1.e3",
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
