use proptest::prelude::*;

use super::*;

fn text(write: impl FnOnce(&mut Vec<u8>) -> Result<(), TemporalError>) -> Result<String, String> {
    let mut out = Vec::new();
    match write(&mut out) {
        Ok(()) => Ok(String::from_utf8(out).unwrap()),
        Err(error) => Err(error.to_string()),
    }
}

#[test]
fn digits_of_the_text_are_the_number() {
    let time = |number: i32| text(|out| write_time(&number.to_le_bytes()[..3], 0, out));
    assert_eq!(time(0).as_deref(), Ok("00:00:00"));
    assert_eq!(time(-30_405).as_deref(), Ok("-03:04:05"));
    assert_eq!(time(8_385_959).as_deref(), Ok("838:59:59"));
    assert_eq!(time(-8_385_959).as_deref(), Ok("-838:59:59"));
    assert_eq!(time(-8_385_960).unwrap_err(), "TIME has a part out of range");

    let datetime = |number: u64| text(|out| write_datetime(&number.to_le_bytes(), 0, out));
    assert_eq!(datetime(0).as_deref(), Ok("0000-00-00 00:00:00"));
    assert_eq!(datetime(20_260_102_030_405).as_deref(), Ok("2026-01-02 03:04:05"));
    assert_eq!(
        datetime(20_261_301_000_000).unwrap_err(),
        "DATETIME has a part out of range"
    );
    assert!(datetime(u64::MAX).is_err());

    let timestamp = |number: u32| text(|out| write_timestamp(&number.to_le_bytes(), 0, out));
    assert_eq!(timestamp(0).as_deref(), Ok("0000-00-00 00:00:00"));
    assert_eq!(timestamp(1).as_deref(), Ok("1970-01-01 00:00:01"));
}

#[test]
fn fractions_count_in_their_own_units() {
    let zero: u64 = 839 * 3_600 * 10;
    let time = |number: u64| text(|out| write_time(&number.to_be_bytes()[4..], 1, out));
    assert_eq!(time(zero).as_deref(), Ok("00:00:00.0"));
    assert_eq!(time(zero - 1).as_deref(), Ok("-00:00:00.1"));
    assert_eq!(time(zero + 10 * 3_661 + 9).as_deref(), Ok("01:01:01.9"));
    assert!(time(2 * zero).is_err());

    let timestamp = |raw: &[u8], digits| text(|out| write_timestamp(raw, digits, out));
    assert_eq!(timestamp(b"\0\0\0\x01\x01", 2).as_deref(), Ok("1970-01-01 00:00:01.01"));
    assert_eq!(timestamp(b"\0\0\0\0\0", 2).as_deref(), Ok("0000-00-00 00:00:00.00"));
    assert!(timestamp(b"\0\0\0\x01\x64", 2).is_err());
}

proptest! {
    #[test]
    fn any_bytes_are_a_moment_or_an_error(bytes: [u8; 8], digits in 0_u8..=6) {
        let of = |length: u8| &bytes[..usize::from(length)];
        let _ = text(|out| write_time(of(time_bytes(digits)), digits, out));
        let _ = text(|out| write_datetime(of(datetime_bytes(digits)), digits, out));
        let _ = text(|out| write_timestamp(of(timestamp_bytes(digits)), digits, out));
    }
}
