//! Decimal numbers of a database against whole ones of the file, exactly.

use std::cmp::Ordering;

/// None: the text is no number, as `NaN` and the infinities are none.
pub(super) fn compare(text: &str, number: i128) -> Option<Ordering> {
    let (is_negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let magnitude = compare_magnitude(unsigned, number.unsigned_abs())?;
    let is_zero = compare_magnitude(unsigned, 0)?.is_eq();
    Some(match (is_negative && !is_zero, number < 0) {
        (false, false) => magnitude,
        (true, true) => magnitude.reverse(),
        (true, false) => Ordering::Less,
        (false, true) => Ordering::Greater,
    })
}

/// Digits with an optional point and exponent, against a number.
fn compare_magnitude(text: &str, number: u128) -> Option<Ordering> {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i64>().ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let is_number = whole.len() + fraction.len() > 0;
    if !is_number || !whole.bytes().chain(fraction.bytes()).all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let leading_zeros = whole
        .bytes()
        .chain(fraction.bytes())
        .take_while(|byte| *byte == b'0')
        .count();
    let mut digits = whole.bytes().chain(fraction.bytes()).skip(leading_zeros).peekable();
    // How many of the digits, or of zeros behind them, stand before the point.
    let places = i64::try_from(whole.len()).ok()?.saturating_add(exponent);
    let places = places.saturating_sub(i64::try_from(leading_zeros).ok()?);
    if digits.peek().is_none() {
        return Some(0.cmp(&number));
    }
    let wanted = match number {
        0 => String::new(),
        number => number.to_string(),
    };
    let by_length = places.max(0).cmp(&i64::try_from(wanted.len()).ok()?);
    if by_length.is_ne() {
        return Some(by_length);
    }
    for digit in wanted.bytes() {
        let order = digits.next().unwrap_or(b'0').cmp(&digit);
        if order.is_ne() {
            return Some(order);
        }
    }
    let has_rest = digits.any(|digit| digit != b'0');
    Some(if has_rest { Ordering::Greater } else { Ordering::Equal })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_are_compared_by_their_value() {
        use Ordering::{Equal, Greater, Less};
        for (text, number, order) in [
            ("100", 100, Equal),
            ("100.00", 100, Equal),
            ("1e2", 100, Equal),
            ("1.0E+2", 100, Equal),
            ("10000e-2", 100, Equal),
            ("+00100", 100, Equal),
            ("99.999", 100, Less),
            ("100.001", 100, Greater),
            ("1e300", i128::MAX, Greater),
            ("1e-300", 0, Greater),
            ("0.000", 0, Equal),
            ("-0.0", 0, Equal),
            ("0e9", 0, Equal),
            ("-1", 0, Less),
            ("-100.5", -100, Less),
            ("-99.5", -100, Greater),
            ("5", -100, Greater),
            ("-5", 100, Less),
            (".5", 0, Greater),
            ("5.", 5, Equal),
            ("0.5", 1, Less),
            ("18446744073709551615", 18_446_744_073_709_551_615, Equal),
            ("1e99999999999999999", 1, Greater),
        ] {
            assert_eq!(compare(text, number), Some(order), "{text} {number}");
        }
    }

    #[test]
    fn what_is_no_number_has_no_order() {
        for text in [
            "", "-", "+", ".", "e5", "1e", "1x", "NaN", "Infinity", "1.2.3", "--1", "1 ", "0x10", "١",
        ] {
            assert_eq!(compare(text, 1), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn whole_numbers_have_their_own_order(one in any::<i64>(), other in any::<i64>(), zeros in 0..3_usize) {
            let text = format!("{one}.{}", "0".repeat(zeros));
            prop_assert_eq!(compare(&text, i128::from(other)), Some(one.cmp(&other)));
        }

        #[test]
        fn fractions_have_the_order_of_what_they_are_made_of(one in -1_000_000_i64..1_000_000, other in -1000_i64..1000) {
            let text = format!("{one}e-3");
            prop_assert_eq!(compare(&text, i128::from(other)), Some(one.cmp(&(other * 1000))));
        }

        #[test]
        fn any_text_has_an_order_or_none(text in "[-+0-9.eE]{0,9}|\\PC{0,9}", number in any::<i128>()) {
            let _ = compare(&text, number);
        }
    }
}
