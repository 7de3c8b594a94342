//! The sinks `stdout` and `file`: a line of JSON a record (`json_line`).

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use tokio_util::sync::CancellationToken;

use crate::config;
use crate::line_end::whole_lines;
use crate::preflight::{Finding, Needs, Place};
use crate::record::Record;

use super::worker::Medium;
use super::{DeliveryError, DeliveryErrorKind, json_line};

/// The process's standard output.
#[derive(Debug, Default)]
pub(super) struct StdoutLines {
    lines: Vec<u8>,
    /// Cancelled when nobody reads it any more.
    closed: Option<CancellationToken>,
}

impl StdoutLines {
    pub(super) fn telling(closed: CancellationToken) -> Self {
        Self {
            closed: Some(closed),
            ..Self::default()
        }
    }
}

impl Medium for StdoutLines {
    fn write(&mut self, records: &[Record]) -> Result<(), DeliveryError> {
        render(&mut self.lines, records);
        let mut stdout = io::stdout().lock();
        let written = stdout.write_all(&self.lines).and_then(|()| stdout.flush());
        if let (Err(error), Some(closed)) = (&written, &self.closed)
            && error.kind() == ErrorKind::BrokenPipe
        {
            closed.cancel();
        }
        written.map_err(|error| DeliveryError {
            // Whoever read it is gone for good.
            kind: DeliveryErrorKind::Refused,
            text: format!("write to stdout: {error}"),
        })
    }
}

/// The end of a file.
#[derive(Debug)]
pub(super) struct FileLines {
    file: File,
    path: PathBuf,
    lines: Vec<u8>,
}

/// A file that cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("open `{}` to add lines to it", path.display())]
pub struct LinesError {
    path: PathBuf,
    source: io::Error,
}

impl LinesError {
    /// Whether it may be better later without a person: a disk that is full, but neither rights nor a path that is none.
    pub fn can_heal(&self) -> bool {
        matches!(
            self.source.kind(),
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::Interrupted
        )
    }
}

impl FileLines {
    /// Opens the file, or makes it. A line that a crash cut off is taken away; its event comes again.
    ///
    /// # Errors
    /// When it cannot be opened or read.
    pub(super) fn open(path: &Path) -> Result<Self, LinesError> {
        let opened = || {
            let mut file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
            // Another process's lines are not to be cut off.
            file.try_lock()?;
            let length = whole_lines(&mut file)?;
            if length < file.metadata()?.len() {
                file.set_len(length)?;
            }
            Ok(file)
        };
        let file = opened().map_err(|source| LinesError {
            path: path.to_owned(),
            source,
        })?;
        Ok(Self {
            file,
            path: path.to_owned(),
            lines: Vec::new(),
        })
    }
}

/// Whether lines can be added to the file; makes nothing.
pub(super) fn preflight(file: &config::File) -> Finding {
    let place = Place {
        what: "file",
        path: file.path.clone(),
        key: "`path` of the sink",
        needs: Needs::File,
        opened_with: Vec::new(),
    };
    place.look()
}

impl Medium for FileLines {
    fn write(&mut self, records: &[Record]) -> Result<(), DeliveryError> {
        render(&mut self.lines, records);
        let unavailable = |error: &io::Error| DeliveryError {
            kind: DeliveryErrorKind::Unavailable,
            text: format!("write to `{}`: {error}; {}", self.path.display(), remedy(error)),
        };
        // One that was moved away, to make room for another, is not written to any more.
        if !is_at(&self.file, &self.path) {
            match Self::open(&self.path) {
                Ok(fresh) => self.file = fresh.file,
                Err(error) => return Err(unavailable(&error.source)),
            }
        }
        let length = self.file.metadata().map_err(|error| unavailable(&error))?.len();
        let written = self.file.write_all(&self.lines).and_then(|()| self.file.sync_data());
        written.map_err(|error| {
            // What was written of the lines is no line. Should this fail as well, the next opening does it.
            let _ = self.file.set_len(length);
            unavailable(&error)
        })
    }
}

/// What was expected of the disk or the file, and what can be done about it while the write is tried again.
fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "expected room for the lines: make room on its disk",
        _ => "expected a file that takes lines: see to its disk and to the process's rights",
    }
}

/// Whether the path still leads to the file.
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let same = |one: io::Result<Metadata>, other: io::Result<Metadata>| {
        let (one, other) = (one.ok()?, other.ok()?);
        Some((one.dev(), one.ino()) == (other.dev(), other.ino()))
    };
    same(file.metadata(), std::fs::metadata(path)).unwrap_or(false)
}

fn render(lines: &mut Vec<u8>, records: &[Record]) {
    lines.clear();
    for record in records {
        json_line::write(lines, record, true);
        lines.push(b'\n');
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_line_that_was_cut_off_is_taken_away() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events.jsonl");
        for (before, after) in [("", ""), ("{}", ""), ("{\"a\":1}\n{}", "{\"a\":1}\n"), ("{}\n", "{}\n")] {
            fs::write(&path, before).unwrap();
            drop(FileLines::open(&path).unwrap());
            assert_eq!(fs::read_to_string(&path).unwrap(), after);
        }
        let long = "x".repeat(200_000);
        fs::write(&path, format!("{long}\n{long}")).unwrap();
        drop(FileLines::open(&path).unwrap());
        assert_eq!(fs::metadata(&path).unwrap().len(), 200_001);
    }

    #[test]
    fn a_file_that_was_moved_away_is_followed_by_another() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events.jsonl");
        let mut lines = FileLines::open(&path).unwrap();
        let record = Record {
            topic: "t".into(),
            partition: None,
            key: None,
            value: None,
            headers: Vec::new(),
            timestamp_ms: 0,
            about: None,
        };
        lines.write(std::slice::from_ref(&record)).unwrap();
        fs::rename(&path, folder.path().join("old.jsonl")).unwrap();
        lines.write(&[record.clone(), record]).unwrap();
        let count = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap().lines().count();
        assert_eq!((count("old.jsonl"), count("events.jsonl")), (1, 2));
    }

    #[test]
    fn a_path_that_is_none_is_for_a_person() {
        let error = FileLines::open(Path::new("/nowhere/events.jsonl")).unwrap_err();
        assert!(!error.can_heal());
        assert_eq!(error.to_string(), "open `/nowhere/events.jsonl` to add lines to it");
    }
}
