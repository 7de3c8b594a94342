//! Bytes as base64 text.

/// Appends bytes in the standard alphabet, with padding.
pub(crate) fn write(out: &mut Vec<u8>, bytes: &[u8]) {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for group in bytes.chunks(3) {
        let byte = |index: usize| group.get(index).copied().unwrap_or_default();
        let bits = u32::from_be_bytes([0, byte(0), byte(1), byte(2)]);
        for place in 0..4 {
            out.push(match place {
                _ if place > group.len() => b'=',
                _ => ALPHABET[(bits >> (18 - 6 * place) & 0x3F) as usize],
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_written_as_in_rfc_4648() {
        for (bytes, text) in [
            (&b""[..], ""),
            (b"f", "Zg=="),
            (b"fo", "Zm8="),
            (b"foo", "Zm9v"),
            (b"foob", "Zm9vYg=="),
            (b"fooba", "Zm9vYmE="),
            (b"foobar", "Zm9vYmFy"),
            (b"\xff\xfe\xfb", "//77"),
        ] {
            let mut out = Vec::new();
            write(&mut out, bytes);
            assert_eq!(out, text.as_bytes());
        }
    }
}
