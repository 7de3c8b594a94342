//! Integers of MySQL's serialization library, which GTID_TAGGED is written with.
//!
//! The lowest bits of the first byte say how many bytes there are: as many ones as bytes follow, then a zero, then the
//! value's own bits. After eight ones there is no zero, and the value is the eight bytes that follow. Signed integers
//! have their sign in the lowest bit, and negative ones are complemented: "Variable-length integers" in the readme of
//! MySQL's `libs/mysql/serialization`.

use super::error::BinlogError;
use super::reader::{Reader, little_endian};

/// Bytes behind the first one when the whole value is in them.
const MOST_FOLLOWING: u32 = 8;

/// An unsigned integer of 1 to 9 bytes.
pub(super) fn unsigned(reader: &mut Reader<'_>, field: &'static str) -> Result<u64, BinlogError> {
    let first = reader.u8(field)?;
    let following = first.trailing_ones();
    let behind = little_endian(reader.take(field, u64::from(following))?);
    if following == MOST_FOLLOWING {
        return Ok(behind);
    }
    // Seven bytes follow at most, so nothing is shifted out.
    let all = behind << 8 | u64::from(first);
    Ok(all >> (following + 1))
}

/// A signed integer of 1 to 9 bytes.
pub(super) fn signed(reader: &mut Reader<'_>, field: &'static str) -> Result<i64, BinlogError> {
    let encoded = unsigned(reader, field)?;
    let magnitude = (encoded >> 1).cast_signed();
    Ok(if encoded & 1 == 0 { magnitude } else { !magnitude })
}

/// A byte, which like every integer can take two.
pub(super) fn byte(reader: &mut Reader<'_>, field: &'static str) -> Result<u8, BinlogError> {
    let value = unsigned(reader, field)?;
    u8::try_from(value).map_err(|_| reader.unexpected(field, value, "a byte"))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;
    use crate::source::mysql::binlog::EventKind;

    fn read<T>(bytes: &[u8], with: fn(&mut Reader<'_>, &'static str) -> Result<T, BinlogError>) -> Option<T> {
        let data = Bytes::copy_from_slice(bytes);
        let mut reader = Reader::new(EventKind::GTID_TAGGED, &data);
        let value = with(&mut reader, "value").ok()?;
        reader.finish().ok()?;
        Some(value)
    }

    fn write(value: u64) -> Vec<u8> {
        let bits = u64::BITS - value.leading_zeros();
        let len = bits.div_ceil(7).max(1);
        if len > MOST_FOLLOWING {
            return [&[0xFF], value.to_le_bytes().as_slice()].concat();
        }
        let all = value << len | ((1 << (len - 1)) - 1);
        all.to_le_bytes()[..len as usize].to_vec()
    }

    #[test]
    fn the_examples_of_the_readme() {
        assert_eq!(read(&[0b1111_1011, 0xFF, 0b0000_0111], unsigned), Some(65_535));
        assert_eq!(read(&[0b1111_0011, 0xFF, 0b0000_1111], signed), Some(65_535));
        assert_eq!(read(&[0b1110_1011, 0xFF, 0b0000_1111], signed), Some(-65_535));
        assert_eq!(read(&[0b1111_1011, 0xFF, 0b0000_1111], signed), Some(-65_536));
    }

    #[test]
    fn the_ends_of_each_length() {
        for bits in 0..64 {
            for value in [1_u64 << bits, (1 << bits) - 1, u64::MAX >> bits] {
                let bytes = write(value);
                assert_eq!(read(&bytes, unsigned), Some(value), "{bytes:?}");
                assert_eq!(read(&bytes[..bytes.len() - 1], unsigned), None);
            }
        }
        assert_eq!(read(&write(u64::MAX), signed), Some(i64::MIN));
        assert_eq!(read(&write(u64::MAX - 1), signed), Some(i64::MAX));
        assert_eq!((read(&write(255), byte), read(&write(256), byte)), (Some(255), None));
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(value: u64) {
            prop_assert_eq!(read(&write(value), unsigned), Some(value));
            let zigzag = (value << 1) ^ (value.cast_signed() >> 63).cast_unsigned();
            prop_assert_eq!(read(&write(zigzag), signed), Some(value.cast_signed()));
        }
    }
}
