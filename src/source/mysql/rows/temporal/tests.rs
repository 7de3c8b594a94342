use proptest::prelude::*;

use super::*;

fn text(write: impl FnOnce(&mut Vec<u8>) -> Result<(), TemporalError>) -> Result<String, String> {
    let mut out = Vec::new();
    match write(&mut out) {
        Ok(()) => Ok(String::from_utf8(out).unwrap()),
        Err(error) => Err(error.to_string()),
    }
}

/// Days from 1970 on, counted one by one: year, month, day.
fn calendar(days: u64) -> (u64, u64, u64) {
    let (mut year, mut rest) = (1970, days);
    loop {
        let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let lengths = [31, if leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        for (month, length) in (1..).zip(lengths) {
            if rest < length {
                return (year, month, rest + 1);
            }
            rest -= length;
        }
        year += 1;
    }
}

#[test]
fn dates_are_printed_as_stored() {
    for (year, month, day, expected) in [
        (0, 0, 0, "0000-00-00"),
        (2026, 2, 31, "2026-02-31"),
        (9999, 12, 31, "9999-12-31"),
        (7, 0, 1, "0007-00-01"),
    ] {
        let raw = u32::to_le_bytes(year << 9 | month << 5 | day);
        assert_eq!(text(|out| write_date(&raw[..3], out)).as_deref(), Ok(expected));
    }
}

/// As the servers store them; -0.000001 and -1 second lie next to the middle.
#[test]
fn times_count_from_the_middle() {
    let cases: [(&[u8], u8, &str); 9] = [
        (b"\x80\0\0", 0, "00:00:00"),
        (b"\x7F\xFF\xFF", 0, "-00:00:01"),
        (b"\xB4\x6E\xFB", 0, "838:59:59"),
        (b"\x4B\x91\x05", 0, "-838:59:59"),
        (b"\x80\0\0\0\0\0", 6, "00:00:00.000000"),
        (b"\x7F\xFF\xFF\xFF\xFF\xFF", 6, "-00:00:00.000001"),
        (b"\x7F\xFF\xFF\xA6", 1, "-00:00:00.9"),
        (b"\x7F\xFF\xFF\xFF\xFE", 4, "-00:00:00.0002"),
        (b"\x80\x30\xC5\x1A\x7C", 3, "03:03:05.678"),
    ];
    for (raw, digits, expected) in cases {
        assert_eq!(
            text(|out| write_time(raw, digits, out)).as_deref(),
            Ok(expected),
            "{raw:x?}"
        );
    }
}

#[test]
fn zero_timestamp_is_no_moment() {
    let cases: [(&[u8], u8, &str); 5] = [
        (b"\0\0\0\0", 0, "0000-00-00 00:00:00"),
        (b"\0\0\0\0\0\0\0", 6, "0000-00-00 00:00:00.000000"),
        (b"\0\0\0\0\x0A", 1, "1970-01-01 00:00:00.1"),
        (b"\x7F\xFF\xFF\xFF", 0, "2038-01-19 03:14:07"),
        // MariaDB 11.5 goes on to 2106.
        (b"\xFF\xFF\xFF\xFF\x0F\x42\x3F", 6, "2106-02-07 06:28:15.999999"),
    ];
    for (raw, digits, expected) in cases {
        let found = text(|out| write_timestamp(raw, digits, out));
        assert_eq!(found.as_deref(), Ok(expected));
    }
}

#[test]
fn parts_that_no_server_stores_are_errors() {
    let date = |packed: u32| text(|out| write_date(&packed.to_le_bytes()[..3], out));
    assert_eq!(date(13 << 5).unwrap_err(), "DATE has a part out of range");
    assert!(date(10_000 << 9).is_err());
    for raw in [b"\x80\x0F\x00", b"\x80\x00\x3C", b"\xB4\x70\x00"] {
        let found = text(|out| write_time(raw, 0, out));
        assert_eq!(found.unwrap_err(), "TIME has a part out of range", "{raw:x?}");
    }
    assert!(text(|out| write_time(b"\x80\0\0\x64", 2, out)).is_err());
    for raw in [
        b"\0\0\0\0\0",
        b"\x80\0\x01\x80\0",
        b"\x80\0\0\x0F\0",
        b"\x80\0\0\0\x3C",
        b"\xFF\xFF\xC0\0\0",
    ] {
        let found = text(|out| write_datetime(raw, 0, out));
        assert_eq!(found.unwrap_err(), "DATETIME has a part out of range", "{raw:x?}");
    }
    assert!(text(|out| write_timestamp(b"\0\0\0\x01\x0F\x42\x40", 6, out)).is_err());
}

proptest! {
    #[test]
    fn timestamps_are_on_the_calendar(seconds in 1..=u32::MAX) {
        let found = text(|out| write_timestamp(&seconds.to_be_bytes(), 0, out)).unwrap();
        let (days, second) = (u64::from(seconds) / 86_400, seconds % 86_400);
        let (year, month, day) = calendar(days);
        let clock = format!("{:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60);
        prop_assert_eq!(found, format!("{year}-{month:02}-{day:02} {clock}"));
    }

    #[test]
    fn any_bytes_are_a_moment_or_an_error(bytes: [u8; 8], digits in 0_u8..=6) {
        let of = |whole: usize| &bytes[..whole + usize::from(fraction_bytes(digits))];
        let _ = text(|out| write_date(&bytes[..3], out));
        let _ = text(|out| write_time(of(3), digits, out));
        let _ = text(|out| write_datetime(of(5), digits, out));
        let _ = text(|out| write_timestamp(of(4), digits, out));
    }
}
