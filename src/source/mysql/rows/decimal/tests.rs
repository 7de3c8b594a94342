use proptest::prelude::*;

use super::*;

fn printed(bytes: &[u8], precision: u8, scale: u8) -> Result<String, DecimalError> {
    let mut out = Vec::new();
    write_decimal(bytes, precision, scale, &mut out)?;
    Ok(String::from_utf8(out).unwrap())
}

/// Encodes the digits of either side of the point.
fn encode(negative: bool, whole: &str, fraction: &str) -> Vec<u8> {
    let (partial, groups) = whole.split_at(whole.len() % GROUP_DIGITS);
    let whole = once(partial).chain(chunks(groups));
    let (groups, partial) = fraction.split_at(fraction.len() - fraction.len() % GROUP_DIGITS);
    let fraction = chunks(groups).chain(once(partial));
    let mut bytes = Vec::new();
    for digits in whole.chain(fraction).filter(|digits| !digits.is_empty()) {
        let value = digits.parse::<u32>().unwrap().to_be_bytes();
        bytes.extend(&value[4 - group_len(digits.len())..]);
    }
    bytes[0] ^= SIGN_BIT;
    if negative {
        bytes.iter_mut().for_each(|byte| *byte ^= 0xFF);
    }
    bytes
}

fn chunks(digits: &str) -> impl Iterator<Item = &str> {
    (0..digits.len() / GROUP_DIGITS).map(|index| &digits[GROUP_DIGITS * index..GROUP_DIGITS * (index + 1)])
}

#[test]
fn numbers_are_printed_as_the_server_prints_them() {
    // The bytes are those of rows and JSON documents of MySQL 9.7.4.
    let cases: [(&[u8], u8, u8, &str); 7] = [
        (b"\x81\x32", 3, 2, "1.50"),
        (b"\x80\0\0\x01\x01\xF4", 10, 3, "1.500"),
        (
            b"\x7F\xFF\xFF\xF3\xEB\x65\x5B\xCA\xF2\x04\xC7\x2D\xFE\x1D\xF7",
            32,
            6,
            "-12345678901234567890.123400",
        ),
        (b"\x80", 1, 0, "0"),
        (b"\x80\0", 4, 4, "0.0000"),
        (b"\x7F\xFE", 4, 4, "-0.0001"),
        (b"\x76\xC4\x65\x36\0", 10, 0, "-9999999999"),
    ];
    for (bytes, precision, scale, text) in cases {
        assert_eq!(printed(bytes, precision, scale).unwrap(), text);
    }
}

#[test]
fn what_is_no_number_is_an_error() {
    for (precision, scale) in [(0, 0), (82, 0), (3, 4)] {
        assert_eq!(
            decimal_len(precision, scale),
            Err(DecimalError::Shape { precision, scale })
        );
    }
    let error = printed(b"\x80", 4, 0).unwrap_err();
    assert_eq!(
        error.to_string(),
        "decimal(4,0) has the wrong length: found 1 bytes, expected 2"
    );
    assert!(matches!(printed(b"", 1, 0), Err(DecimalError::Length { found: 0, .. })));
    let error = printed(b"\x8F\xFF", 3, 0).unwrap_err();
    assert_eq!(
        error.to_string(),
        "decimal(3,0) has a group that is no number of 3 digits"
    );
    assert!(printed(b"\xBB\x9A\xCA\0", 9, 0).is_err());
}

proptest! {
    #[test]
    fn any_number_is_printed_as_it_was(negative: bool, whole in "[0-9]{0,45}", fraction in "[0-9]{0,36}") {
        prop_assume!(!whole.is_empty() || !fraction.is_empty());
        let scale = u8::try_from(fraction.len()).unwrap();
        let precision = u8::try_from(whole.len()).unwrap() + scale;
        let bytes = encode(negative, &whole, &fraction);
        prop_assert_eq!(decimal_len(precision, scale).unwrap(), bytes.len());

        let whole = match whole.trim_start_matches('0') {
            "" => "0",
            digits => digits,
        };
        let sign = if negative { "-" } else { "" };
        let point = if fraction.is_empty() { "" } else { "." };
        let expected = format!("{sign}{whole}{point}{fraction}");
        prop_assert_eq!(printed(&bytes, precision, scale).unwrap(), expected);
    }

    #[test]
    fn any_bytes_are_a_number_or_an_error(bytes: Vec<u8>, precision: u8, scale: u8) {
        let _ = printed(&bytes, precision, scale);
        if let Ok(len) = decimal_len(precision, scale) {
            let bytes = bytes.into_iter().cycle().take(len).collect::<Vec<_>>();
            let text = printed(&bytes, precision, scale);
            prop_assert!(text.is_err() || text.unwrap().len() <= usize::from(precision) + 3);
        }
    }
}
