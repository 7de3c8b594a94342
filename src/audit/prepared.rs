//! Lines of a commit that is under way, beside the ledger: `PATH.prepared.SINK`.
//!
//! There is one commit at a time, and one file: it says which position is committed with the lines. After a crash, the position
//! that the transaction left tells whether they are true.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::position::Position;

use super::files::{beside, folder_of, sync_folder};
use super::furthest::file_name;

/// What is committed.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Prepared {
    pub(super) position: Position,
    /// The ledger's last line before.
    pub(super) seq: u64,
    /// Lines without their ends.
    pub(super) lines: Vec<String>,
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct PreparedFile {
    path: PathBuf,
}

impl PreparedFile {
    pub(super) fn new(ledger: &Path, sink: &str) -> Self {
        Self {
            path: beside(ledger, &format!("prepared.{}", file_name(sink))),
        }
    }

    /// Durable when it returns.
    pub(super) fn write(&self, prepared: &Prepared) -> io::Result<()> {
        let temporary = beside(&self.path, "new");
        let mut file = File::create(&temporary)?;
        file.write_all(&serde_json::to_vec(prepared)?)?;
        file.sync_all()?;
        fs::rename(&temporary, &self.path)?;
        sync_folder(folder_of(&self.path))
    }

    pub(super) fn read(&self) -> io::Result<Option<Prepared>> {
        match fs::read(&self.path) {
            Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) fn remove(&self) -> io::Result<()> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}
