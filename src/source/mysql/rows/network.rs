//! MariaDB's UUID, INET4 and INET6 as it prints them. The log holds each in the order of its text, whatever the order in
//! which a storage engine keeps it.

pub(super) fn write_uuid(bytes: [u8; 16], out: &mut Vec<u8>) {
    for (index, byte) in bytes.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            out.push(b'-');
        }
        out.extend([byte >> 4, byte & 0xF].map(hex_digit));
    }
}

pub(super) fn write_inet4(bytes: [u8; 4], out: &mut Vec<u8>) {
    for (index, byte) in bytes.iter().enumerate() {
        if index > 0 {
            out.push(b'.');
        }
        out.extend_from_slice(itoa::Buffer::new().format(*byte).as_bytes());
    }
}

/// Unlike RFC 5952, and so Rust's text, even a single group of zeros is left out, and `::` before the last four bytes
/// makes them an IPv4 address.
pub(super) fn write_inet6(bytes: [u8; 16], out: &mut Vec<u8>) {
    let mut groups = [0_u16; 8];
    for (group, pair) in groups.iter_mut().zip(bytes.chunks_exact(2)) {
        *group = pair.iter().fold(0, |number, byte| number << 8 | u16::from(*byte));
    }
    let (start, length) = longest_gap(&groups);
    let [.., a, b, c, d] = bytes;
    match (start, length, groups) {
        (0, 6, _) => {
            out.extend_from_slice(b"::");
            write_inet4([a, b, c, d], out);
        }
        (0, 5, [.., 0xFFFF, _, _]) => {
            out.extend_from_slice(b"::ffff:");
            write_inet4([a, b, c, d], out);
        }
        _ => write_groups(&groups, start, length, out),
    }
}

fn write_groups(groups: &[u16; 8], start: usize, length: usize, out: &mut Vec<u8>) {
    for (index, group) in groups.iter().enumerate() {
        if index == start && length > 0 {
            out.extend_from_slice(b"::");
        } else if !(start..start + length).contains(&index) {
            if index > 0 && index != start + length {
                out.push(b':');
            }
            write_hex(*group, out);
        }
    }
}

/// The first of the longest runs of zeros: its start and length.
fn longest_gap(groups: &[u16; 8]) -> (usize, usize) {
    let (mut longest, mut length) = ((0, 0), 0);
    for (index, group) in groups.iter().enumerate() {
        length = if *group == 0 { length + 1 } else { 0 };
        if length > longest.1 {
            longest = (index + 1 - length, length);
        }
    }
    longest
}

fn write_hex(group: u16, out: &mut Vec<u8>) {
    let [high, low] = group.to_be_bytes();
    let digits = [high >> 4, high & 0xF, low >> 4, low & 0xF];
    let zeros = digits.iter().take(3).take_while(|digit| **digit == 0).count();
    out.extend(digits.into_iter().skip(zeros).map(hex_digit));
}

fn hex_digit(digit: u8) -> u8 {
    match digit {
        0..=9 => b'0' + digit,
        _ => b'a' - 10 + digit,
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;

    /// The server's own texts.
    #[test]
    fn inet6_is_printed_as_mariadb_does() {
        let cases = [
            ("::", "::"),
            ("::1", "::1"),
            ("1::", "1::"),
            ("::1.2.3.4", "::1.2.3.4"),
            ("::1:2", "::0.1.0.2"),
            ("::1:2:3", "::1:2:3"),
            ("::ffff:1.2.3.4", "::ffff:1.2.3.4"),
            ("::fffe:1.2.3.4", "::fffe:102:304"),
            ("1:0:2:3:4:5:6:7", "1::2:3:4:5:6:7"),
            ("0:2:3:4:5:6:7:8", "::2:3:4:5:6:7:8"),
            ("1:2:3:4:5:6:7:0", "1:2:3:4:5:6:7::"),
            ("1:0:0:3:0:0:6:7", "1::3:0:0:6:7"),
            ("1:0:3:0:0:6:7:8", "1:0:3::6:7:8"),
            ("fe80::abcd", "fe80::abcd"),
            ("ffff:100:10:1:ffff:ffff:ffff:ffff", "ffff:100:10:1:ffff:ffff:ffff:ffff"),
        ];
        for (address, expected) in cases {
            let mut out = Vec::new();
            write_inet6(address.parse::<Ipv6Addr>().unwrap().octets(), &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }
}
