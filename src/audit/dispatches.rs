//! Where dispatch records go: one line of JSON for each delivery. They are telemetry: what cannot be written is told in the log,
//! and holds nothing up.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::config;

use super::entry::Entry;
use super::files::{folder_of, is_at};

/// Takes the entries of one write, in their order: what another place for them has to do.
pub(super) trait DispatchTarget: Send {
    /// Writes them all.
    ///
    /// # Errors
    /// They may be lost, in part or as a whole.
    fn write(&mut self, pipeline: &str, sink: &str, entries: &[Entry]) -> io::Result<()>;
}

/// The places there are.
pub(super) enum Dispatches {
    Lines(Lines),
}

impl Dispatches {
    /// A relative path is seen from the state directory.
    pub(super) fn new(place: &config::Dispatches, state_dir: &Path) -> Self {
        let target = match place {
            config::Dispatches::File(path) => Target::File {
                path: state_dir.join(path),
                file: None,
            },
            config::Dispatches::Stdout => Target::Stdout,
        };
        Self::Lines(Lines {
            target,
            lines: Vec::new(),
        })
    }
}

impl DispatchTarget for Dispatches {
    fn write(&mut self, pipeline: &str, sink: &str, entries: &[Entry]) -> io::Result<()> {
        match self {
            Self::Lines(lines) => lines.write(pipeline, sink, entries),
        }
    }
}

/// A file, or standard output.
pub(super) struct Lines {
    target: Target,
    lines: Vec<u8>,
}

enum Target {
    File { path: PathBuf, file: Option<File> },
    Stdout,
}

impl DispatchTarget for Lines {
    fn write(&mut self, pipeline: &str, sink: &str, entries: &[Entry]) -> io::Result<()> {
        self.lines.clear();
        for entry in entries.iter().filter(|entry| entry.outcome.is_dispatch()) {
            entry.write_dispatch(&mut self.lines, pipeline, sink);
        }
        if self.lines.is_empty() {
            return Ok(());
        }
        match &mut self.target {
            Target::Stdout => {
                let mut stdout = io::stdout().lock();
                stdout.write_all(&self.lines)?;
                stdout.flush()
            }
            Target::File { path, file } => {
                // One that was moved away, to make room for another, is not written to any more.
                let here = file.take().filter(|file| is_at(file, path));
                let here = match here {
                    Some(file) => file,
                    None => {
                        fs::create_dir_all(folder_of(path))?;
                        open_for_lines(OpenOptions::new().read(true).append(true).create(true).open(&*path)?)?
                    }
                };
                // In one write: a command that sends dead letters again may write beside.
                let written = (&here).write_all(&self.lines);
                // After an error it is opened anew, and its last line ended.
                *file = written.is_ok().then_some(here);
                written
            }
        }
    }
}

/// Ends a line that was cut off.
fn open_for_lines(mut file: File) -> io::Result<File> {
    let length = file.metadata()?.len();
    let mut last = [b'\n'];
    if length > 0 {
        file.seek(SeekFrom::Start(length - 1))?;
        file.read_exact(&mut last)?;
    }
    if last != *b"\n" {
        file.write_all(b"\n")?;
    }
    Ok(file)
}

/// Dispatch records of what another process than the pipeline's sends.
pub(crate) struct DispatchLog {
    pipeline: String,
    sink: Arc<str>,
    dispatches: Dispatches,
}

impl DispatchLog {
    /// None: the file asks for none.
    pub(crate) fn of(pipeline: &config::Pipeline, state_dir: &Path) -> Option<Self> {
        Some(Self {
            pipeline: pipeline.name.clone(),
            sink: Arc::from(pipeline.sink.id()),
            dispatches: Dispatches::new(pipeline.dispatches.as_ref()?, state_dir),
        })
    }

    /// Writes them.
    ///
    /// # Errors
    /// They may be lost.
    pub(crate) fn write(&mut self, entries: &[Entry]) -> io::Result<()> {
        self.dispatches.write(&self.pipeline, &self.sink, entries)
    }
}

#[cfg(test)]
mod tests {
    use super::super::entry::Outcome;
    use super::super::entry::tests::entry;
    use super::*;
    use crate::skip::SkipReason;

    #[test]
    fn a_line_that_was_cut_off_is_ended_and_skips_are_no_dispatches() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/dispatches.jsonl");
        fs::create_dir(path.parent().unwrap()).unwrap();
        fs::write(&path, "{\"a\":").unwrap();
        let mut dispatches = Dispatches::new(&config::Dispatches::File("new/dispatches.jsonl".into()), folder.path());
        let mut skipped = entry(2);
        skipped.outcome = Outcome::Skipped(SkipReason::Invalid);
        dispatches
            .write("orders", "k1", &[entry(1), skipped, entry(3)])
            .unwrap();
        fs::rename(&path, folder.path().join("old")).unwrap();
        dispatches.write("orders", "k1", &[entry(4)]).unwrap();
        let old = fs::read_to_string(folder.path().join("old")).unwrap();
        let lines: Vec<&str> = old.lines().collect();
        assert_eq!((lines.len(), lines[0]), (3, "{\"a\":"));
        assert!(lines[1].contains("\"e1\"") && lines[2].contains("\"e3\""), "{old}");
        assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 1);
    }
}
