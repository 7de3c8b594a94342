//! The sets of two and four bytes a character. The servers take a byte order mark for a character like any other.
//!
//! Errors are the byte at which the first wrong character starts.

/// UTF-16 without pairs: a surrogate, which the servers let a ucs2 column hold, is no character.
pub(super) fn decode_ucs2(bytes: &[u8]) -> Result<String, usize> {
    decode_units(bytes, |&unit| char::from_u32(u32::from(u16::from_be_bytes(unit))))
}

pub(super) fn decode_utf32(bytes: &[u8]) -> Result<String, usize> {
    decode_units(bytes, |&unit| char::from_u32(u32::from_be_bytes(unit)))
}

fn decode_units<const N: usize>(bytes: &[u8], character: impl Fn(&[u8; N]) -> Option<char>) -> Result<String, usize> {
    let (units, rest) = bytes.as_chunks::<N>();
    let mut text = String::with_capacity(bytes.len());
    for (index, unit) in units.iter().enumerate() {
        text.push(character(unit).ok_or(N * index)?);
    }
    match rest {
        [] => Ok(text),
        _ => Err(N * units.len()),
    }
}

pub(super) fn decode_utf16(bytes: &[u8], unit: impl Fn([u8; 2]) -> u16) -> Result<String, usize> {
    let (pairs, rest) = bytes.as_chunks::<2>();
    let mut text = String::with_capacity(bytes.len());
    let mut at = 0;
    for character in char::decode_utf16(pairs.iter().map(|&pair| unit(pair))) {
        let character = character.map_err(|_| at)?;
        text.push(character);
        at += 2 * character.len_utf16();
    }
    match rest {
        [] => Ok(text),
        _ => Err(at),
    }
}
