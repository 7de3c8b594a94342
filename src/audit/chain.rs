//! The chain of an audit ledger's lines: each ends with its number, the hash of the line before it, and its own.
//!
//! ```json
//! {"outbox_id":"7f", ... ,"seq":12,"prev":"<64 hex digits>","hash":"<64 hex digits>"}
//! ```
//! `hash` is the SHA-256 of the line's bytes before `,"hash":`, so of `prev` too: whoever changes a line must change all that
//! follow it. `prev` of the first line is 64 zeros. The chain goes over the ledger's files.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};

/// The names of the members that end a line.
pub(crate) const LINK_NAMES: [&str; 3] = ["seq", "prev", "hash"];

/// What the first line of a file begins with that another came before.
pub(super) const CONTINUES: &[u8] = br#"{"continues":"#;
const HASH_MEMBER: &[u8] = br#","hash":""#;
const PREV_MEMBER: &[u8] = br#","prev":""#;
const SEQ_MEMBER: &[u8] = br#","seq":"#;
/// Hex digits of a hash.
const DIGITS: usize = 64;

/// A SHA-256, printed as hex digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Hash([u8; 32]);

impl Hash {
    /// What the first line follows.
    pub const NONE: Self = Self([0; 32]);

    fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that is no hash.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected the {DIGITS} hexadecimal digits of a line's hash")]
pub struct ParseHashError;

impl FromStr for Hash {
    type Err = ParseHashError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.len() != DIGITS || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(ParseHashError);
        }
        let mut hash = [0; 32];
        for (byte, digits) in hash.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            let digits = std::str::from_utf8(digits).map_err(|_| ParseHashError)?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| ParseHashError)?;
        }
        Ok(Self(hash))
    }
}

/// A chain's last line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// Its number; 0 where there is none yet.
    pub seq: u64,
    pub hash: Hash,
}

impl Head {
    /// Of a chain without lines.
    pub const NONE: Self = Self {
        seq: 0,
        hash: Hash::NONE,
    };

    /// Ends the line that begins at `start` of `out`: an object with a member or more, without its closing brace.
    pub(super) fn seal(&mut self, out: &mut Vec<u8>, start: usize) {
        let seq = self.seq + 1;
        out.extend_from_slice(SEQ_MEMBER);
        out.extend_from_slice(seq.to_string().as_bytes());
        out.extend_from_slice(PREV_MEMBER);
        out.extend_from_slice(self.hash.to_string().as_bytes());
        out.push(b'"');
        let hash = Hash::of(out.get(start..).unwrap_or_default());
        out.extend_from_slice(HASH_MEMBER);
        out.extend_from_slice(hash.to_string().as_bytes());
        out.extend_from_slice(b"\"}\n");
        *self = Self { seq, hash };
    }
}

/// What a line says of its place in the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) head: Head,
    pub(super) prev: Hash,
    /// The hash that the line's bytes have.
    pub(super) computed: Hash,
}

impl Link {
    /// Reads a line, without its line break. None: it is none of a ledger.
    pub(super) fn read(line: &[u8]) -> Option<Self> {
        let (sealed, hash) = take_hash(line.strip_suffix(b"\"}")?, HASH_MEMBER)?;
        let (before, prev) = take_hash(sealed.strip_suffix(b"\"")?, PREV_MEMBER)?;
        let digits = before.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
        let (before, seq) = before.split_at(before.len() - digits);
        // One way to write a number: another is another line.
        if !before.ends_with(SEQ_MEMBER) || !before.starts_with(b"{") || seq.starts_with(b"0") {
            return None;
        }
        let seq = std::str::from_utf8(seq).ok()?.parse().ok()?;
        Some(Self {
            head: Head { seq, hash },
            prev,
            computed: Hash::of(sealed),
        })
    }
}

/// A ledger's line as it was before it was sealed.
pub(super) fn without_end(line: &[u8]) -> &[u8] {
    // Digits alone follow the last of these.
    let end = memchr::memmem::rfind(line, SEQ_MEMBER);
    line.get(..end.unwrap_or(line.len())).unwrap_or_default()
}

/// Splits a hash off the end, and the member's name before it. Digits in capitals are another line too.
fn take_hash<'a>(text: &'a [u8], member: &[u8]) -> Option<(&'a [u8], Hash)> {
    let (before, digits) = text.split_at_checked(text.len().checked_sub(DIGITS)?)?;
    if digits.iter().any(u8::is_ascii_uppercase) {
        return None;
    }
    let hash = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some((before.strip_suffix(member)?, hash))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_line_s_hash_is_of_all_that_comes_before_it() {
        let mut lines = b"{\"a\":1".to_vec();
        let mut head = Head::NONE;
        head.seal(&mut lines, 0);
        let text = String::from_utf8(lines.clone()).unwrap();
        let zeros = "0".repeat(64);
        let hashed = format!("{{\"a\":1,\"seq\":1,\"prev\":\"{zeros}\"");
        let hash = Hash::of(hashed.as_bytes());
        assert_eq!(text, format!("{hashed},\"hash\":\"{hash}\"}}\n"));
        assert_eq!(head, Head { seq: 1, hash });
        assert_eq!(without_end(text.trim_end().as_bytes()), b"{\"a\":1");
        let link = Link::read(text.trim_end().as_bytes()).unwrap();
        assert_eq!((link.head, link.prev, link.computed), (head, Hash::NONE, hash));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_line_or_none(line: Vec<u8>) {
            let _ = Link::read(&line);
        }

        #[test]
        fn a_hash_s_text_and_value_agree(bytes: [u8; 32]) {
            let hash = Hash(bytes);
            prop_assert_eq!(hash.to_string().parse(), Ok(hash));
        }
    }
}
