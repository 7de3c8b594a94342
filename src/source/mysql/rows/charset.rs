//! Character sets of MySQL and MariaDB: by collation id, by name, and decoded to UTF-8. (First version: more charsets follow.)
use std::borrow::Cow;

/// A text that its column's character set cannot hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CharsetError {
    #[error("text is not {charset}: no character at byte {at}")]
    Invalid { charset: &'static str, at: usize },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Charset {
    Latin1,
    Utf8mb3,
    Utf8mb4,
    Ascii,
    Binary,
}

impl Charset {
    pub(crate) fn from_collation(id: u16) -> Option<Self> {
        match id {
            8 | 47 => Some(Self::Latin1),
            33 | 83 => Some(Self::Utf8mb3),
            45 | 46 | 224..=247 | 255..=323 | 2304..=2559 => Some(Self::Utf8mb4),
            11 | 65 => Some(Self::Ascii),
            63 => Some(Self::Binary),
            _ => None,
        }
    }
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        [Self::Latin1, Self::Utf8mb3, Self::Utf8mb4, Self::Ascii, Self::Binary]
            .into_iter()
            .find(|c| c.name() == name)
    }
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Latin1 => "latin1",
            Self::Utf8mb3 => "utf8mb3",
            Self::Utf8mb4 => "utf8mb4",
            Self::Ascii => "ascii",
            Self::Binary => "binary",
        }
    }
    pub(crate) fn is_utf8(self) -> bool {
        matches!(self, Self::Utf8mb3 | Self::Utf8mb4 | Self::Ascii)
    }
    pub(crate) fn is_binary(self) -> bool {
        self == Self::Binary
    }
    pub(crate) fn decode(self, bytes: &[u8]) -> Result<Cow<'_, str>, CharsetError> {
        let invalid = |at| CharsetError::Invalid {
            charset: self.name(),
            at,
        };
        match self {
            Self::Latin1 => encoding_rs::WINDOWS_1252
                .decode_without_bom_handling_and_without_replacement(bytes)
                .ok_or(invalid(0)),
            _ => str::from_utf8(bytes)
                .map(Cow::Borrowed)
                .map_err(|e| invalid(e.valid_up_to())),
        }
    }
}
