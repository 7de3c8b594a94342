//! A double in the digits that Java gives it.

/// As `Double.toString` of Java 19 and later: the shortest decimal that reads as the number, of two digits at least; with an
/// exponent below 10^-3 and from 10^7 on. The number is finite.
pub(super) fn java_text(number: f64) -> String {
    let sign = if number.is_sign_negative() { "-" } else { "" };
    let size = number.abs();
    if size == 0.0 {
        return format!("{sign}0.0");
    }
    let shortest = format!("{size:e}");
    // Of one digit it is the nearest of those with two, where that reads as the number.
    let of_two = format!("{size:.1e}");
    let is_of_one = !shortest.contains('.') && of_two.parse() == Ok(size);
    let text = if is_of_one { of_two } else { shortest };
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let fraction = fraction.trim_end_matches('0');
    let or_zero = |digits: &str| if digits.is_empty() { "0" } else { digits }.to_owned();
    match exponent {
        -3..0 => {
            let zeros = "0".repeat(exponent.unsigned_abs() as usize - 1);
            format!("{sign}0.{zeros}{whole}{fraction}")
        }
        0..7 => {
            let places = exponent.unsigned_abs() as usize;
            let (before, after) = fraction.split_at(places.min(fraction.len()));
            format!("{sign}{whole}{before:0<places$}.{}", or_zero(after))
        }
        _ => format!("{sign}{whole}.{}E{exponent}", or_zero(fraction)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_are_written_as_java_does() {
        for (number, expected) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (1.5, "1.5"),
            (0.1, "0.1"),
            (-0.25, "-0.25"),
            (100.0, "100.0"),
            (1e3, "1000.0"),
            (1_234_567.0, "1234567.0"),
            (1_234_567.5, "1234567.5"),
            (9_999_999.0, "9999999.0"),
            (9_999_999.999_999_998, "9999999.999999998"),
            (1e7, "1.0E7"),
            (12_345_678.0, "1.2345678E7"),
            (1e10, "1.0E10"),
            (-1.25e10, "-1.25E10"),
            (1e23, "1.0E23"),
            (0.001, "0.001"),
            (0.0123, "0.0123"),
            (0.000_999, "9.99E-4"),
            (1e-5, "1.0E-5"),
            (9_007_199_254_740_992.0, "9.007199254740992E15"),
            (0.300_000_000_000_000_04, "0.30000000000000004"),
            (2e-323, "2.0E-323"),
            (f64::from_bits(1), "4.9E-324"),
            (f64::MIN_POSITIVE, "2.2250738585072014E-308"),
            (f64::MAX, "1.7976931348623157E308"),
        ] {
            assert_eq!(java_text(number), expected);
        }
    }

    proptest! {
        #[test]
        fn the_digits_read_as_the_number(number in any::<f64>().prop_filter("finite", |number| number.is_finite())) {
            prop_assert_eq!(java_text(number).parse::<f64>().unwrap().to_bits(), number.to_bits());
        }
    }
}
