use flate2::{Compress, Compression, FlushCompress};
use proptest::prelude::*;

use super::*;

/// As the server compresses a value.
fn compress(value: &[u8], with_header: bool) -> Vec<u8> {
    let length = (value.len() as u32).to_be_bytes();
    let header = 0x84 | if with_header { 0 } else { 0x8 };
    let mut stream = Vec::with_capacity(value.len() + 100);
    Compress::new(Compression::default(), with_header)
        .compress_vec(value, &mut stream, FlushCompress::Finish)
        .unwrap();
    [&[header][..], &length, &stream].concat()
}

fn inflate(raw: &[u8], limit: u32) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    match Inflater::new().inflate(raw, limit, &mut out) {
        Ok(Some(plain)) => Ok(plain.to_vec()),
        Ok(None) => Ok(out),
        Err(error) => Err(error.to_string()),
    }
}

#[test]
fn values_that_are_not_compressed_are_given_as_they_are() {
    assert_eq!(inflate(b"", 0).unwrap(), b"");
    assert_eq!(inflate(b"\0", 9).unwrap(), b"");
    assert_eq!(inflate(b"\0short", 9).unwrap(), b"short");
    let mut out = Vec::new();
    let raw = b"\0short";
    let plain = Inflater::new().inflate(raw, 9, &mut out).unwrap().unwrap();
    assert_eq!(plain.as_ptr(), raw[1..].as_ptr());
}

#[test]
fn damaged_values_say_what_is_wrong() {
    let mut value = compress(&[7; 500], true);
    assert_eq!(
        inflate(&value, 499).unwrap_err(),
        "uncompressed length is 500, expected at most 499"
    );
    assert_eq!(inflate(b"\x10abc", 9).unwrap_err(), "method is 1, expected 0 or 8");
    assert_eq!(
        inflate(b"\x84\0\0", 9).unwrap_err(),
        "uncompressed length is cut: found 2 bytes, expected 4"
    );
    // Before anything is allocated.
    assert_eq!(
        inflate(b"\x84\xFF\xFF\xFF\xFFx", u32::MAX).unwrap_err(),
        "uncompressed length is 4294967295, expected at most 1032"
    );
    let damaged = "zlib stream is damaged, or its length is not the declared 501";
    value[4] += 1;
    assert_eq!(inflate(&value, 999).unwrap_err(), damaged);
    value[4] -= 2;
    assert!(inflate(&value, 999).is_err());
    value[4] += 1;
    for end in 1..value.len() {
        assert!(inflate(&value[..end], 999).is_err(), "{end}");
    }
    *value.last_mut().unwrap() ^= 1;
    assert!(inflate(&value, 999).is_err());
}

proptest! {
    #[test]
    fn values_come_back(values in prop::collection::vec((prop::collection::vec(0_u8..4, 0..1000), any::<bool>()), 1..3)) {
        let mut inflater = Inflater::new();
        for (value, with_header) in values {
            let (raw, mut out) = (compress(&value, with_header), Vec::new());
            prop_assert_eq!(inflater.inflate(&raw, 1000, &mut out), Ok(None));
            prop_assert_eq!(out, value);
        }
    }

    #[test]
    fn any_bytes_are_a_value_or_an_error(mut raw: Vec<u8>, header: u8, limit in 0_u32..10_000) {
        raw.insert(0, header);
        if let Ok(value) = inflate(&raw, limit) {
            prop_assert!(value.len() <= raw.len().max(limit as usize));
        }
    }
}
