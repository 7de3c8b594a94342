//! FLOAT and DOUBLE as the server prints them, which `CAST(… AS CHAR)` and a text result agree on.
//!
//! Both servers print a DOUBLE with the fewest digits that read back as the same value, and a FLOAT with at most six
//! digits, whatever that loses. A number is written out while its point lies within its digits or at most fifteen places
//! behind or fourteen zeros before them, otherwise with an exponent that has neither a plus sign nor padding: the rules
//! of the servers' `my_gcvt`. MySQL and MariaDB agree.

/// What a FLOAT's text keeps: C's `FLT_DIG`.
const FLOAT_DIGIT_COUNT: usize = 6;
/// The most that the shortest text of a DOUBLE needs.
const MAX_DIGIT_COUNT: usize = 17;
/// A whole number with the point further right has an exponent: C's `DBL_DIG`.
const MAX_POINT: i32 = 15;
/// A fraction with more zeros behind its point has an exponent.
const MIN_POINT: i32 = -14;

/// Appends a FLOAT. What is no finite number, and so in no column, is printed `0`, as the servers do.
pub(super) fn write_float(value: f32, out: &mut Vec<u8>) {
    let value = f64::from(value);
    // The formatter rounds the exact value to the nearest, ties to even, as the servers do. Rounding the shortest text of
    // the value once more would not always give that.
    let text = format!("{value:.precision$e}", precision = FLOAT_DIGIT_COUNT - 1);
    write_number(value, &text, out);
}

/// Appends a DOUBLE. What is no finite number, and so in no column, is printed `0`, as the servers do.
pub(super) fn write_double(value: f64, out: &mut Vec<u8>) {
    write_number(value, zmij::Buffer::new().format(value), out);
}

fn write_number(value: f64, text: &str, out: &mut Vec<u8>) {
    if !value.is_finite() {
        out.push(b'0');
        return;
    }
    if value.is_sign_negative() {
        out.push(b'-');
    }
    Digits::of_text(text).write(out);
}

/// A number without its sign: the digits behind an implied `0.`, times ten to the power of `point`.
struct Digits {
    /// Begins and ends with a digit that is not zero, but for zero itself.
    digits: [u8; MAX_DIGIT_COUNT],
    count: usize,
    point: i32,
}

impl Digits {
    /// Reads any decimal notation of a finite number; digits behind the seventeenth are cut off.
    fn of_text(text: &str) -> Self {
        let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
        let mut number = Self {
            digits: [b'0'; MAX_DIGIT_COUNT],
            count: 0,
            point: exponent.parse().unwrap_or(0),
        };
        let mut fraction = false;
        for digit in mantissa.bytes() {
            match digit {
                b'.' => fraction = true,
                b'0' if number.count == 0 => number.point -= i32::from(fraction),
                b'0'..=b'9' => {
                    if let Some(place) = number.digits.get_mut(number.count) {
                        *place = digit;
                        number.count += 1;
                    }
                    number.point += i32::from(!fraction);
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
        let point_inside = usize::try_from(self.point).is_ok_and(|point| point < digits.len());
        match self.point {
            _ if point_inside && self.point > 0 => {
                // Not negative: checked above.
                let (whole, fraction) = digits.split_at(self.point.unsigned_abs() as usize);
                out.extend_from_slice(whole);
                out.push(b'.');
                out.extend_from_slice(fraction);
            }
            MIN_POINT..=0 => {
                out.extend_from_slice(b"0.");
                out.resize(out.len() + self.point.unsigned_abs() as usize, b'0');
                out.extend_from_slice(digits);
            }
            1..=MAX_POINT => {
                let len = out.len() + self.point.unsigned_abs() as usize;
                out.extend_from_slice(digits);
                out.resize(len, b'0');
            }
            _ => {
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
}
