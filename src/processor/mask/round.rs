//! Rounding of decimal text by its digits, so that no number is too large or too exact for it.

use crate::processor::json;

/// A number in JSON's grammar with at most so many digits behind the point, half a unit away from zero. None: the text is no
/// such number. One that has no more digits stays as it is written; else it is written out, without an exponent.
pub(super) fn rounded(text: &str, digits: u32) -> Option<Rounded> {
    if !json::is_number(text.as_bytes()) {
        return None;
    }
    let (sign, number) = match text.strip_prefix('-') {
        Some(number) => ("-", number),
        None => ("", text),
    };
    let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all = [whole, fraction].concat().into_bytes();
    // An exponent beyond 64 bits is one that no digit of the mantissa makes up for.
    let exponent = exponent.parse::<i64>().unwrap_or(match exponent.starts_with('-') {
        true => i64::MIN,
        false => i64::MAX,
    });
    // The last digit stands for so many tens: 10^last.
    let last = exponent.saturating_sub_unsigned(fraction.len() as u64);
    let surplus = i64::from(digits).saturating_add(last).saturating_neg();
    let Ok(surplus @ 1..) = usize::try_from(surplus) else {
        return Some(Rounded::Same);
    };
    let kept = all.len().checked_sub(surplus);
    let mut units = all.get(..kept.unwrap_or(0)).unwrap_or_default().to_vec();
    if kept.and_then(|kept| all.get(kept)).is_some_and(|digit| *digit >= b'5') {
        add_one(&mut units);
    }
    Some(Rounded::Text(written(sign, &units, digits as usize)))
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Rounded {
    /// It has no digit too many.
    Same,
    Text(String),
}

fn add_one(digits: &mut Vec<u8>) {
    for digit in digits.iter_mut().rev() {
        if *digit < b'9' {
            *digit += 1;
            return;
        }
        *digit = b'0';
    }
    digits.insert(0, b'1');
}

/// So many units of the last digit behind the point.
fn written(sign: &str, units: &[u8], digits: usize) -> String {
    let significant = units.iter().position(|digit| *digit != b'0').unwrap_or(units.len());
    let units = String::from_utf8_lossy(&units[significant..]);
    let sign = if units.is_empty() { "" } else { sign };
    let padded = format!("{units:0>width$}", width = digits + 1);
    let (whole, fraction) = padded.split_at(padded.len() - digits);
    match fraction {
        "" => format!("{sign}{whole}"),
        fraction => format!("{sign}{whole}.{fraction}"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn round(text: &str, digits: u32) -> Option<String> {
        Some(match rounded(text, digits)? {
            Rounded::Same => text.to_owned(),
            Rounded::Text(text) => text,
        })
    }

    #[test]
    fn digits_behind_the_point_are_rounded_away_from_zero() {
        for (text, digits, expected) in [
            ("12.345", 2, "12.35"),
            ("-12.345", 2, "-12.35"),
            ("12.344999999999999999999999999", 2, "12.34"),
            ("12.34", 2, "12.34"),
            ("12.3", 2, "12.3"),
            ("12.340", 2, "12.34"),
            ("9.995", 2, "10.00"),
            ("0.999", 0, "1"),
            ("12.5", 0, "13"),
            ("0.4", 0, "0"),
            ("-0.4", 0, "0"),
            ("0.005", 2, "0.01"),
            ("0.0049", 2, "0.00"),
            ("-0.001", 2, "0.00"),
            ("0.05", 0, "0"),
            ("99999999999999999999.99", 1, "100000000000000000000.0"),
            ("12345678901234567890.123456789", 6, "12345678901234567890.123457"),
            ("100", 0, "100"),
            ("1.23456789e5", 2, "123456.79"),
            ("123456e-3", 1, "123.5"),
            ("1.50e+03", 2, "1.50e+03"),
            ("1E2", 0, "1E2"),
            ("5e-1", 0, "1"),
            ("4.9e-1", 0, "0"),
            ("1e-05", 2, "0.00"),
            ("1e999999999999999999999", 2, "1e999999999999999999999"),
            ("-7.5e-999999999999999999999", 2, "0.00"),
            ("7e-9223372036854775808", 30, "0.000000000000000000000000000000"),
            ("0e5", 2, "0e5"),
        ] {
            assert_eq!(round(text, digits).as_deref(), Some(expected), "{text} {digits}");
        }
    }

    #[test]
    fn what_is_no_number_is_not_rounded() {
        for text in [
            "",
            "NaN",
            "-Infinity",
            "+1.5",
            ".5",
            "1.",
            "01.5",
            "\"1.5\"",
            "null",
            "1,5",
            "1.5 ",
        ] {
            assert_eq!(rounded(text, 1), None, "{text}");
        }
    }

    proptest! {
        /// In units of 10^-9, which 128 bits hold.
        #[test]
        fn it_agrees_with_whole_numbers(units in -1_000_000_000_000_000_000_i64..1_000_000_000_000_000_000, digits in 0_u32..=9) {
            let magnitude = i128::from(units).abs();
            let sign = if units < 0 { "-" } else { "" };
            let text = format!("{sign}{}.{:09}", magnitude / 1_000_000_000, magnitude % 1_000_000_000);
            let step = 10_i128.pow(9 - digits);
            let expected = (magnitude + step / 2) / step;
            let scale = 10_i128.pow(digits);
            let sign = if expected == 0 { "" } else { sign };
            let expected = match digits {
                0 => format!("{sign}{expected}"),
                9 => text.clone(),
                _ => format!("{sign}{}.{:0width$}", expected / scale, expected % scale, width = digits as usize),
            };
            prop_assert_eq!(round(&text, digits), Some(expected));
        }

        #[test]
        fn what_is_rounded_is_a_number_that_stays_as_it_is(
            text in "-?(0|[1-9][0-9]{0,30})(\\.[0-9]{1,30})?([eE][+-]?[0-9]{1,2})?", digits in 0_u32..=30
        ) {
            let once = round(&text, digits).unwrap();
            prop_assert!(json::is_number(once.as_bytes()), "{}", once);
            prop_assert_eq!(rounded(&once, digits), Some(Rounded::Same));
        }
    }
}
