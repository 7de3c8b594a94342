//! MySQL's GTIDs: who committed a transaction ([`SourceId`] and [`Tag`]) and its number there.
//!
//! [`set`] holds sets of them, [`encoding`] their binary form. A [`Gtid`] that exists is one that a server can have
//! given out; a set relies on that.

mod encoding;
mod set;
#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;

use super::excerpt;

pub use encoding::DecodeGtidSetError;
pub use set::GtidSet;

/// The highest number of a transaction: the end of an interval, which is behind it, must fit 63 bits too.
const MAX_NUMBER: u64 = i64::MAX.unsigned_abs() - 1;

/// A text, or a field of the wire, that is no GTID and no part of one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseGtidError {
    #[error("`{text}` is not a GTID: expected uuid:number or uuid:tag:number")]
    Form { text: String },
    #[error("`{text}` is not a server's UUID: expected one such as 3e11fa47-71ca-11e1-9e33-c80aa9429562")]
    Source { text: String },
    #[error(
        "`{text}` is not a GTID's tag: expected a letter or _, then letters, digits or _, {} at most",
        Tag::MAX_LEN
    )]
    Tag { text: String },
    #[error("`{text}` is not a transaction's number: expected 1 to {MAX_NUMBER}, without leading zeros")]
    Number { text: String },
    #[error("interval `{text}` ends before it starts")]
    Reversed { text: String },
    #[error("`{text}` has no transaction's number behind its UUID or tag")]
    NumberMissing { text: String },
}

/// A server's UUID, or a replication group's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId(pub [u8; 16]);

impl SourceId {
    /// Where dashes stand in the text: before these bytes.
    const DASHES: [usize; 4] = [4, 6, 8, 10];
}

impl fmt::Display for SourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            if Self::DASHES.contains(&index) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for SourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for SourceId {
    type Err = ParseGtidError;

    /// Takes the one form that servers take inside a GTID: with dashes, in either case.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parsed = || {
            let mut rest = text.as_bytes();
            let mut bytes = [0; 16];
            for (index, byte) in bytes.iter_mut().enumerate() {
                if Self::DASHES.contains(&index) {
                    rest = rest.strip_prefix(b"-")?;
                }
                let (&[high, low], behind) = rest.split_first_chunk()?;
                *byte = hex_digit(high)? << 4 | hex_digit(low)?;
                rest = behind;
            }
            rest.is_empty().then_some(Self(bytes))
        };
        parsed().ok_or_else(|| ParseGtidError::Source { text: excerpt(text) })
    }
}

fn hex_digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

/// What tells apart the transactions of one source by purpose, since MySQL 8.3: `[a-z_][a-z0-9_]*`, or nothing.
///
/// Padded with zero bytes, which order and compare as the text does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Tag([u8; Self::MAX_LEN]);

impl Tag {
    /// Of a transaction without a tag.
    pub const NONE: Self = Self([0; Self::MAX_LEN]);
    /// Bytes.
    pub const MAX_LEN: usize = 32;

    pub fn is_none(&self) -> bool {
        *self == Self::NONE
    }

    pub fn as_str(&self) -> &str {
        let length = self.0.iter().position(|byte| *byte == 0).unwrap_or(Self::MAX_LEN);
        // ASCII, as every way to make a tag checks.
        str::from_utf8(&self.0[..length]).unwrap_or_default()
    }
}

impl TryFrom<&[u8]> for Tag {
    type Error = ParseGtidError;

    /// Folds to lower case, as servers do. Empty is [`Tag::NONE`].
    fn try_from(text: &[u8]) -> Result<Self, Self::Error> {
        let parsed = || {
            let mut bytes = [0; Self::MAX_LEN];
            bytes.get_mut(..text.len())?.copy_from_slice(text);
            bytes.make_ascii_lowercase();
            let word = text.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
            (word && !bytes[0].is_ascii_digit()).then_some(Self(bytes))
        };
        parsed().ok_or_else(|| ParseGtidError::Tag {
            text: excerpt(&String::from_utf8_lossy(text)),
        })
    }
}

impl FromStr for Tag {
    type Err = ParseGtidError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.as_bytes().try_into()
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

/// A transaction source identifier, MySQL's word for what numbers are counted under. Ordered as servers print and
/// encode: by UUID, untagged first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Tsid {
    source: SourceId,
    tag: Tag,
}

impl fmt::Display for Tsid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)?;
        if self.tag.is_none() {
            return Ok(());
        }
        write!(f, ":{}", self.tag)
    }
}

/// One transaction's name, `uuid:number` or `uuid:tag:number`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Gtid {
    tsid: Tsid,
    number: u64,
}

impl Gtid {
    /// # Errors
    /// `number` is 0, or more than 2^63 - 2: no transaction has it.
    pub fn new(source: SourceId, tag: Tag, number: u64) -> Result<Self, ParseGtidError> {
        if (1..=MAX_NUMBER).contains(&number) {
            let tsid = Tsid { source, tag };
            Ok(Self { tsid, number })
        } else {
            let text = number.to_string();
            Err(ParseGtidError::Number { text })
        }
    }

    pub fn source(&self) -> SourceId {
        self.tsid.source
    }

    pub fn tag(&self) -> Tag {
        self.tsid.tag
    }

    pub fn number(&self) -> u64 {
        self.number
    }
}

impl fmt::Display for Gtid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.tsid, self.number)
    }
}

impl FromStr for Gtid {
    type Err = ParseGtidError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts: Vec<_> = text.splitn(4, ':').map(str::trim).collect();
        let (source, tag, number) = match *parts {
            [source, number] => (source, Tag::NONE, number),
            [source, tag, number] if !tag.is_empty() => (source, tag.parse()?, number),
            _ => return Err(ParseGtidError::Form { text: excerpt(text) }),
        };
        Self::new(source.parse()?, tag, parse_number(number)?)
    }
}

serde_as_text!(SourceId, Gtid, GtidSet);

/// Decimal only: a server would take a leading zero for octal, and no server prints one.
fn parse_number(text: &str) -> Result<u64, ParseGtidError> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    let number = digits.then(|| text.parse().ok()).flatten();
    number
        .filter(|number| *number <= MAX_NUMBER)
        .ok_or_else(|| ParseGtidError::Number { text: excerpt(text) })
}
