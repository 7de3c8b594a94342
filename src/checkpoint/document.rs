//! What a checkpoint holds, whatever keeps it: a JSON document with a version of its own.

use serde::{Deserialize, Serialize};

use crate::position::Position;

/// Of the document's layout.
pub(super) const VERSION: u32 = 1;

/// See the module's text.
#[derive(Debug, Serialize, Deserialize)]
pub struct Document {
    version: u32,
    pub pipeline: String,
    pub source: String,
    pub position: Position,
    /// An operator set the position by hand, and answers for what is missing before it. The next save says so no more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gap_accepted: bool,
}

/// Read first: of a later version nothing else is known.
#[derive(Debug, Deserialize)]
struct VersionOnly {
    version: u32,
}

/// Why a document cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// It is not one, with the reason.
    #[error("{0}")]
    Damaged(String),
    /// It was written by a later tailpost.
    #[error("version {0}, expected {VERSION}: it was written by a later tailpost")]
    Version(u32),
}

impl From<serde_json::Error> for DocumentError {
    fn from(error: serde_json::Error) -> Self {
        Self::Damaged(error.to_string())
    }
}

impl Document {
    pub fn new(pipeline: &str, source: &str, position: &Position) -> Self {
        Self {
            version: VERSION,
            pipeline: pipeline.to_owned(),
            source: source.to_owned(),
            position: position.clone(),
            gap_accepted: false,
        }
    }

    /// Of a position that an operator names, whose word is that events before it may be missing.
    pub(super) fn by_hand(pipeline: &str, source: &str, position: &Position) -> Self {
        Self {
            gap_accepted: true,
            ..Self::new(pipeline, source, position)
        }
    }

    /// # Errors
    /// It is damaged, or of a later version.
    pub fn read(text: &[u8]) -> Result<Self, DocumentError> {
        let VersionOnly { version } = serde_json::from_slice(text)?;
        if version != VERSION {
            return Err(DocumentError::Version(version));
        }
        Ok(serde_json::from_slice(text)?)
    }

    /// As lines, for files and people.
    ///
    /// # Errors
    /// None that is known: every position can be written.
    pub fn to_text(&self) -> Result<Vec<u8>, serde_json::Error> {
        let mut text = serde_json::to_vec_pretty(self)?;
        text.push(b'\n');
        Ok(text)
    }
}
