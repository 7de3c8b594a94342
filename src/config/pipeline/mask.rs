//! A processor of type `mask`.

use secrecy::SecretString;

use crate::config::path::EventPath;
use crate::config::pattern::OutboxPattern;

/// Which values of an event are changed before anything else sees them.
#[derive(Debug, Clone)]
pub struct Mask {
    /// Name in metrics; `mask` when the file does not say.
    pub id: String,
    /// Whose events it changes, of outboxes and of ordinary tables: the others pass as they are. Empty: all.
    pub tables: Vec<OutboxPattern>,
    /// Of no two the same path, and none inside of what another one takes away.
    pub rules: Vec<MaskRule>,
    pub on_mismatch: OnMismatch,
}

#[derive(Debug, Clone)]
pub struct MaskRule {
    pub path: EventPath,
    pub action: MaskAction,
}

/// What becomes of a value.
#[derive(Debug, Clone)]
pub enum MaskAction {
    /// A member goes with its comma; a column becomes null.
    Remove,
    Replace(MaskValue),
    /// HMAC-SHA-256 of its text under this key, as hexadecimal digits.
    Hash(SecretString),
    /// To so many digits behind the point.
    Round(u32),
}

impl MaskAction {
    /// Whether there is no value that it cannot be applied to.
    pub fn is_for_all(&self) -> bool {
        matches!(self, Self::Remove | Self::Replace(_))
    }
}

/// A value of the file's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MaskValue {
    Null,
    Boolean(bool),
    /// A number in JSON's grammar.
    Number(String),
    Text(String),
}

/// What becomes of an event with a value that its rule cannot be applied to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnMismatch {
    /// The event is invalid.
    #[default]
    Reject,
    /// The value stays as it is.
    Ignore,
}
