//! FLOAT and DOUBLE as the servers print them in a text result.
//!
//! A DOUBLE gets the fewest digits that read back as the same value, a FLOAT at most six, whatever that loses. Digits are
//! written out while the point lies within them, at most fifteen places from their start, or up to fourteen zeros before
//! them; otherwise there is an exponent, without a plus sign or padding. These are the rules of the servers' `my_gcvt`.
//! MySQL and MariaDB agree on each value. MySQL's `CAST(… AS CHAR)` can differ: it takes to an exponent as soon as a
//! column's display width is exceeded, and can lose digits by that.

#[cfg(test)]
mod tests;

/// What a FLOAT's text keeps: C's `FLT_DIG`.
const FLOAT_DIGITS: usize = 6;
/// The most that a DOUBLE needs.
const MAX_DIGITS: usize = 17;
/// A whole number of more digits has an exponent: C's `DBL_DIG`.
const MAX_POINT: i32 = 15;
/// Ten to the power of [`MAX_POINT`].
const MAX_WRITTEN_OUT: f64 = 1e15;
/// A fraction with more zeros before its digits has an exponent.
const MIN_POINT: i32 = -14;

/// Appends a FLOAT. No column holds infinities or NaN; they are printed `0`, as by the servers.
pub(super) fn write_float(value: f32, out: &mut Vec<u8>) {
    // Rounded from the exact value, ties to even, as the servers do it: rounding a DOUBLE's text once more would not always
    // give that.
    let text = format!("{:.precision$e}", f64::from(value), precision = FLOAT_DIGITS - 1);
    write_digits(f64::from(value), &text, out);
}

/// Appends a DOUBLE. No column holds infinities or NaN; they are printed `0`, as by the servers.
pub(super) fn write_double(value: f64, out: &mut Vec<u8>) {
    let mut buffer = zmij::Buffer::new();
    let text = buffer.format(value);
    // Most numbers have no exponent in either, and then only the fraction of a whole number differs.
    if value.abs() < MAX_WRITTEN_OUT && !text.contains('e') {
        out.extend_from_slice(text.strip_suffix(".0").unwrap_or(text).as_bytes());
    } else {
        write_digits(value, text, out);
    }
}

/// Appends the value, whose digits are those of `text`.
fn write_digits(value: f64, text: &str, out: &mut Vec<u8>) {
    if !value.is_finite() {
        out.push(b'0');
        return;
    }
    if value.is_sign_negative() {
        out.push(b'-');
    }
    Digits::of(text).write(out);
}

/// A number without its sign.
struct Digits {
    /// Starts and ends with a digit that is not zero, unless the number is.
    digits: [u8; MAX_DIGITS],
    count: usize,
    /// How many places behind the start of the digits the point is.
    point: i32,
}

impl Digits {
    /// Takes a finite number's text apart, of at most seventeen digits, with or without an exponent.
    fn of(text: &str) -> Self {
        let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
        let mut number = Self {
            digits: [b'0'; MAX_DIGITS],
            count: 0,
            point: exponent.parse().unwrap_or_default(),
        };
        let mut in_fraction = false;
        for byte in mantissa.bytes() {
            match byte {
                b'.' => in_fraction = true,
                b'0' if number.count == 0 => number.point -= i32::from(in_fraction),
                b'0'..=b'9' => {
                    if let Some(digit) = number.digits.get_mut(number.count) {
                        *digit = byte;
                        number.count += 1;
                    }
                    number.point += i32::from(!in_fraction);
                }
                _ => {}
            }
        }
        while number.digits().ends_with(b"0") {
            number.count -= 1;
        }
        if number.count == 0 {
            (number.count, number.point) = (1, 1);
        }
        number
    }

    fn digits(&self) -> &[u8] {
        self.digits.get(..self.count).unwrap_or_default()
    }

    fn write(&self, out: &mut Vec<u8>) {
        let digits = self.digits();
        let place = usize::try_from(self.point).unwrap_or_default();
        if 0 < place && place < digits.len() {
            let (whole, fraction) = digits.split_at(place);
            out.extend_from_slice(whole);
            out.push(b'.');
            out.extend_from_slice(fraction);
        } else if (1..=MAX_POINT).contains(&self.point) {
            let end = out.len() + place;
            out.extend_from_slice(digits);
            out.resize(end, b'0');
        } else if (MIN_POINT..=0).contains(&self.point) {
            out.extend_from_slice(b"0.");
            let zeros = usize::try_from(-self.point).unwrap_or_default();
            out.resize(out.len() + zeros, b'0');
            out.extend_from_slice(digits);
        } else {
            let (first, rest) = digits.split_at(1);
            out.extend_from_slice(first);
            if !rest.is_empty() {
                out.push(b'.');
                out.extend_from_slice(rest);
            }
            out.push(b'e');
            out.extend_from_slice(itoa::Buffer::new().format(self.point - 1).as_bytes());
        }
    }
}
