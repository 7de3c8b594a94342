//! The character sets of MySQL and MariaDB: by a collation's id or by name, and their texts as UTF-8.
//!
//! A text decodes to what the server itself would convert it to. Where the server has no character for what it stores, a
//! single byte is an error, never a replacement; some codes of the East Asian sets that the server stores but converts to
//! `?` get the character that the WHATWG's Encoding Standard gives them, which is what applications mean by them.

mod known;
mod multi_byte;
mod single_byte;
#[cfg(test)]
mod tests;
mod unicode;

use std::borrow::Cow;
use std::fmt;

use self::known::{Decoding, Definition, KNOWN};

/// A character set, cheap to copy.
#[derive(Clone, Copy)]
pub(crate) struct Charset(&'static Definition);

/// A text that its character set does not have, or that we cannot tell.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CharsetError {
    #[error("text is not {charset}: no character at byte {at}")]
    NoCharacter { charset: &'static str, at: usize },
    #[error("binary string is no text: expected a character set")]
    Binary,
}

impl Charset {
    /// The character set of a collation, as the servers number them. MySQL leaves 1024 to 2047 to collations that its
    /// administrators add, which here are MariaDB's: what such an id means on a MySQL server only that server can tell.
    pub(crate) fn from_collation(id: u16) -> Option<Self> {
        KNOWN.iter().find(|known| (known.has_collation)(id)).map(Self)
    }

    /// Takes the names of either server, `utf8` as utf8mb3, in any case.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        let name = if name.eq_ignore_ascii_case("utf8") {
            "utf8mb3"
        } else {
            name
        };
        KNOWN
            .iter()
            .find(|known| known.name.eq_ignore_ascii_case(name))
            .map(Self)
    }

    pub(crate) fn name(self) -> &'static str {
        self.0.name
    }

    /// Whether texts are UTF-8 as they are: utf8mb4, utf8mb3 and ascii. MariaDB lets an ascii column hold other bytes, too,
    /// and one of UTF-8 surrogates.
    pub(crate) fn is_utf8(self) -> bool {
        matches!(self.0.decoding, Decoding::Utf8)
    }

    /// Whether these are bytes and no text.
    pub(crate) fn is_binary(self) -> bool {
        matches!(self.0.decoding, Decoding::Binary)
    }

    /// Decodes a text, without a copy where it is UTF-8 as it is.
    ///
    /// # Errors
    /// Some of it is no character, or this is the binary set.
    pub(crate) fn decode(self, bytes: &[u8]) -> Result<Cow<'_, str>, CharsetError> {
        let decoded = match self.0.decoding {
            Decoding::Utf8 => str::from_utf8(bytes)
                .map(Cow::Borrowed)
                .map_err(|error| error.valid_up_to()),
            Decoding::Table(table) => single_byte::decode(table, bytes),
            Decoding::Swe7 => single_byte::decode_swe7(bytes).map(Cow::Owned),
            Decoding::Standard(encoding) => multi_byte::decode_standard(encoding, bytes),
            Decoding::Adapted(adapted) => multi_byte::decode_adapted(adapted, bytes),
            Decoding::Ucs2 => unicode::decode_ucs2(bytes).map(Cow::Owned),
            Decoding::Utf16 => unicode::decode_utf16(bytes, u16::from_be_bytes).map(Cow::Owned),
            Decoding::Utf16Le => unicode::decode_utf16(bytes, u16::from_le_bytes).map(Cow::Owned),
            Decoding::Utf32 => unicode::decode_utf32(bytes).map(Cow::Owned),
            Decoding::Binary => return Err(CharsetError::Binary),
        };
        let charset = self.name();
        decoded.map_err(|at| CharsetError::NoCharacter { charset, at })
    }
}

impl PartialEq for Charset {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Charset {}

impl fmt::Debug for Charset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Charset({})", self.name())
    }
}
