//! Durations (`250ms`, `30s`) and sizes (`64KiB`, `10MB`) as text.

use std::time::Duration;

pub(crate) const DURATION: &str = "a duration such as 250ms, 30s, 5m, 1h or 30d";
pub(crate) const SIZE: &str = "a size such as 64KiB, 32MiB, 10MB or a number of bytes";

/// A whole number and a unit of time, without a blank between them.
pub(crate) fn parse_duration(text: &str) -> Option<Duration> {
    let (number, unit) = split(text)?;
    let millis = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60 * 1000,
        "h" => 60 * 60 * 1000,
        "d" => 24 * 60 * 60 * 1000,
        _ => return None,
    };
    number.checked_mul(millis).map(Duration::from_millis)
}

/// A whole number of bytes, or of a binary (KiB, MiB, GiB) or decimal (KB, MB, GB) unit, without a blank between them.
pub(crate) fn parse_size(text: &str) -> Option<u64> {
    let (number, unit) = split(text)?;
    let bytes = match unit {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "KB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        _ => return None,
    };
    number.checked_mul(bytes)
}

/// A size as a person would write it.
pub(crate) fn show_size(bytes: u64) -> String {
    for (unit, size) in [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
        if bytes >= size && bytes.is_multiple_of(size) {
            return format!("{}{unit}", bytes / size);
        }
    }
    format!("{bytes} bytes")
}

/// A duration as a person would write it.
pub(crate) fn show_duration(duration: Duration) -> String {
    let millis = duration.as_millis();
    for (unit, size) in [("h", 3_600_000), ("m", 60_000), ("s", 1000)] {
        if millis >= size && millis.is_multiple_of(size) {
            return format!("{}{unit}", millis / size);
        }
    }
    if millis == 0 {
        "0s".to_owned()
    } else {
        format!("{millis}ms")
    }
}

fn split(text: &str) -> Option<(u64, &str)> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(unit_at);
    Some((digits.parse().ok()?, unit))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_are_a_number_and_a_unit() {
        for (text, millis) in [
            ("250ms", 250),
            ("0s", 0),
            ("30s", 30_000),
            ("5m", 300_000),
            ("1h", 3_600_000),
        ] {
            assert_eq!(parse_duration(text), Some(Duration::from_millis(millis)), "{text}");
        }
        for text in [
            "",
            "30",
            "s",
            "1.5s",
            "-1s",
            "30 s",
            "30S",
            "1w",
            "99999999999999999999s",
            "18446744073709551615h",
        ] {
            assert_eq!(parse_duration(text), None, "{text}");
        }
    }

    #[test]
    fn sizes_are_bytes_or_a_number_and_a_unit() {
        for (text, bytes) in [
            ("0", 0),
            ("65536", 65_536),
            ("12B", 12),
            ("64KiB", 65_536),
            ("32MiB", 33_554_432),
            ("1GiB", 1 << 30),
            ("1KB", 1000),
            ("2MB", 2_000_000),
            ("3GB", 3_000_000_000),
        ] {
            assert_eq!(parse_size(text), Some(bytes), "{text}");
        }
        for text in ["", "KiB", "64K", "64kib", "64 KiB", "-1", "1.5MiB", "99999999999GiB"] {
            assert_eq!(parse_size(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_reads_back(millis in 0..10_000_000_000u64, bytes in 0..1_u64 << 40) {
            prop_assert_eq!(parse_duration(&show_duration(Duration::from_millis(millis))), Some(Duration::from_millis(millis)));
            prop_assert_eq!(parse_size(&show_size(bytes).replace(" bytes", "")), Some(bytes));
        }
    }
}
