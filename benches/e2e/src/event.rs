//! The events that every backlog is made of: numbered, so that the consumer's side can tell what is lost, doubled or out of order.

use std::ops::Range;

/// Numbers have this many keys.
pub const KEYS: u64 = 1000;
pub const AGGREGATE_TYPE: &str = "Order";
pub const EVENT_TYPE: &str = "Placed";

/// The key, and so the partition, of an event. Neighbours differ.
pub fn key(number: u64) -> u64 {
    number.wrapping_mul(37) % KEYS
}

/// How a database prints JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spacing {
    /// As it was written, without blanks.
    Written,
    /// MySQL's own text of its JSON type: a blank after colon and comma.
    Mysql,
}

/// A payload: its number, and so many bytes beside it.
#[derive(Debug, Clone, Copy)]
pub struct Payload {
    pub pad: usize,
    pub spacing: Spacing,
}

impl Payload {
    /// Of most of a backlog's events, in bytes.
    pub fn size(self, numbers: &Range<u64>) -> u64 {
        let mut buffer = Vec::new();
        self.write(numbers.end.saturating_sub(1), &mut buffer);
        buffer.len() as u64
    }

    /// Writes the event's payload over what the buffer had.
    pub fn write(self, number: u64, buffer: &mut Vec<u8>) {
        let blank = match self.spacing {
            Spacing::Written => "",
            Spacing::Mysql => " ",
        };
        buffer.clear();
        buffer.extend_from_slice(format!("{{\"n\":{blank}{number},{blank}\"pad\":{blank}\"").as_bytes());
        buffer.resize(buffer.len() + self.pad, b'x');
        buffer.extend_from_slice(b"\"}");
    }
}

/// Which events a topic must have.
#[derive(Debug, Clone)]
pub struct Expected {
    pub numbers: Range<u64>,
    pub payload: Payload,
    /// Without a key there is no order to keep.
    pub keyed: bool,
}

impl Expected {
    /// These events with keys, as PostgreSQL has them.
    pub fn written(numbers: Range<u64>, pad: usize) -> Self {
        Self {
            numbers,
            payload: Payload {
                pad,
                spacing: Spacing::Written,
            },
            keyed: true,
        }
    }

    pub fn count(&self) -> u64 {
        self.numbers.end - self.numbers.start
    }
}

/// The number in a payload.
pub fn number(payload: &[u8]) -> Option<u64> {
    let digits = payload.strip_prefix(b"{\"n\":")?.trim_ascii_start();
    let end = digits.iter().position(|byte| !byte.is_ascii_digit())?;
    std::str::from_utf8(&digits[..end]).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_gives_its_number_back_as_each_database_prints_it() {
        for spacing in [Spacing::Written, Spacing::Mysql] {
            let mut buffer = b"the one before".to_vec();
            Payload { pad: 2, spacing }.write(1234, &mut buffer);
            assert_eq!(number(&buffer), Some(1234), "{spacing:?}");
        }
        let mut buffer = Vec::new();
        let spacing = Spacing::Mysql;
        Payload { pad: 2, spacing }.write(7, &mut buffer);
        assert_eq!(buffer, br#"{"n": 7, "pad": "xx"}"#);
        assert_eq!(number(b"{}"), None);
    }
}
