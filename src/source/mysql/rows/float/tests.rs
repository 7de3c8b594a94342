use std::fs;
use std::path::Path;

use proptest::prelude::*;

use super::*;

fn float(value: f32) -> String {
    let mut out = Vec::new();
    write_float(value, &mut out);
    String::from_utf8(out).unwrap()
}

fn double(value: f64) -> String {
    let mut out = Vec::new();
    write_double(value, &mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn numbers_are_printed_as_the_server_prints_them() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/float/mysql-9.7.txt");
    let golden = fs::read_to_string(path).unwrap();
    for line in golden.lines() {
        let [column_type, bits, text] = line.split('\t').collect::<Vec<_>>().try_into().unwrap();
        let found = match column_type {
            "float" => float(f32::from_bits(u32::from_str_radix(bits, 16).unwrap())),
            _ => double(f64::from_bits(u64::from_str_radix(bits, 16).unwrap())),
        };
        assert_eq!(found, text, "{line}");
    }
}

#[test]
fn the_form_changes_where_the_servers_change_it() {
    let cases = [
        (999_999_999_999_999.0, "999999999999999"),
        (1e14, "100000000000000"),
        (1e15, "1e15"),
        (1_234_567_890_123_456.0, "1.234567890123456e15"),
        (123_456_789_012_345.6, "123456789012345.6"),
        (1e-15, "0.000000000000001"),
        (9.5e-16, "9.5e-16"),
        (-0.0, "-0"),
    ];
    for (value, text) in cases {
        assert_eq!(double(value), text);
    }
}

#[test]
fn a_float_is_rounded_once_and_ties_go_to_the_even_digit() {
    assert_eq!(float(1_048_575.0), "1048580");
    assert_eq!(float(1_048_585.0), "1048580");
    assert_eq!(float(999_999.5), "1000000");
}

#[test]
fn what_is_no_number_is_printed_as_by_the_servers() {
    for value in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN] {
        assert_eq!(float(value), "0");
        assert_eq!(double(f64::from(value)), "0");
    }
}

proptest! {
    #[test]
    fn a_double_reads_back_as_itself(bits: u64) {
        let value = f64::from_bits(bits);
        prop_assume!(value.is_finite());
        prop_assert_eq!(double(value).parse::<f64>().unwrap().to_bits(), bits);
    }

    #[test]
    fn a_float_reads_back_to_six_digits(bits: u32) {
        let value = f32::from_bits(bits);
        prop_assume!(value.is_finite());
        let text = float(value);
        prop_assert!(text.bytes().filter(u8::is_ascii_digit).count() <= 21, "{}", text);
        let (found, exact) = (text.parse::<f64>().unwrap(), f64::from(value));
        prop_assert!((found - exact).abs() <= exact.abs() * 5.000_001e-6, "{}", text);
    }
}
