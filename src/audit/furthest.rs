//! How far the events of one sink were ever settled, on the disk: what is sent again after a crash or a rewind is told by it.
//!
//! It is written each time that entries are, without waiting for the disk: a killed process leaves it whole, a machine that
//! loses its power may leave an older one, or none.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::position::Position;

use super::files::beside;

/// See the module's text.
#[derive(Debug)]
pub(super) struct FurthestFile {
    path: PathBuf,
}

impl FurthestFile {
    /// Of a pipeline's sink, in the state directory.
    pub(super) fn new(state_dir: &Path, pipeline: &str, sink: &str) -> Self {
        let name = format!("{pipeline}.{}.settled", file_name(sink));
        Self {
            path: state_dir.join(name),
        }
    }

    /// None: there is none, or it cannot be read, which is logged.
    pub(super) fn read(&self) -> Option<Position> {
        let read = fs::read(&self.path).and_then(|text| Ok(serde_json::from_slice(&text)?));
        match read {
            Ok(position) => Some(position),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                tracing::warn!(error = %error, file = %self.path.display(), "it is not known how far events were settled; deliveries that come again are not told from others");
                None
            }
        }
    }

    pub(super) fn write(&self, position: &Position) -> io::Result<()> {
        let temporary = beside(&self.path, "new");
        fs::write(&temporary, serde_json::to_vec(position)?)?;
        fs::rename(&temporary, &self.path)
    }
}

/// A sink's id as part of a file's name: what could lead elsewhere is written as its code.
pub(super) fn file_name(sink: &str) -> String {
    let mut name = String::with_capacity(sink.len());
    for byte in sink.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => name.push(char::from(byte)),
            other => name.push_str(&format!("%{other:02x}")),
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::position::{Lsn, PostgresPosition};

    #[test]
    fn what_was_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = FurthestFile::new(folder.path(), "orders", "k/1");
        assert_eq!(file.read(), None);
        let position = Position::Postgres(PostgresPosition {
            system_identifier: 1,
            timeline: 1,
            base: Lsn(5),
            partial: None,
            last_event_end: Lsn(5),
        });
        file.write(&position).unwrap();
        assert_eq!(file.read(), Some(position));
        assert!(folder.path().join("orders.k%2f1.settled").exists());
    }
}
