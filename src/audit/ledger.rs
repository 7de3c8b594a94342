//! The files of an audit ledger: lines are added to the end of one, which makes room for the next when it is full.
//!
//! `PATH` is the one that is written; `PATH.000001` was the first that was full, and so on. A lock on `PATH.lock` keeps other
//! processes out. A line that a crash cut off is taken away at the next opening; its event comes again. All of it may block.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use crate::calendar::rfc3339;

use super::chain::{CONTINUES, Head, Link};
use super::entry::write_text;
use crate::line_end::{line_end_before, whole_lines};

use super::files::{beside, folder_of, full_files, is_at, numbered, read_line, sync_folder};

/// See each variant's text; all of it is tried again.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    #[error("audit ledger not writable: open `{}`", path.display())]
    Open { path: PathBuf, source: io::Error },
    #[error("audit ledger not writable: `{}` is in use by another process", path.display())]
    InUse { path: PathBuf },
    #[error("audit ledger not writable: `{}` does not end with a line of a ledger as it was written: move it away, with the files `{}.*`, to begin another", path.display(), path.display())]
    Damaged { path: PathBuf },
    #[error("audit ledger not writable: write `{}`, expected a file that takes lines: make room on its disk, or give the right to write there", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("audit ledger not writable: sync `{}`", path.display())]
    Sync { path: PathBuf, source: io::Error },
}

/// Where a ledger is, and how large its files become.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LedgerPlace {
    pub(super) path: PathBuf,
    pub(super) max_size: u64,
    /// How many full files are kept; none: all.
    pub(super) keep: Option<usize>,
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct Ledger {
    place: LedgerPlace,
    open: Option<Open>,
    /// Held, not used: closing it frees the lock.
    lock: Option<File>,
    lines: Vec<u8>,
}

#[derive(Debug)]
struct Open {
    file: File,
    /// Where the next line begins.
    size: u64,
    head: Head,
    /// How far the file is on the disk.
    synced: u64,
    synced_head: Head,
    /// A sync failed: what came since may be nowhere but in memory, and a second sync would not say so.
    is_suspect: bool,
}

impl Ledger {
    /// Touches no file yet.
    pub(super) fn new(place: LedgerPlace) -> Self {
        Self {
            place,
            open: None,
            lock: None,
            lines: Vec::new(),
        }
    }

    /// Opens the file, or makes it.
    ///
    /// # Errors
    /// When it cannot be had, or its last line was changed.
    pub(super) fn open(&mut self) -> Result<(), LedgerError> {
        self.opened().map(drop)
    }

    /// The number of the last line.
    ///
    /// # Errors
    /// As of [`Ledger::open`].
    pub(super) fn head(&mut self) -> Result<Head, LedgerError> {
        self.opened().map(|open| open.head)
    }

    /// Adds a line for each entry from `done` on, and moves `done` behind those that are written. `write` makes a line
    /// without its end.
    ///
    /// # Errors
    /// The rest is not written, and none of it in part.
    pub(super) fn append<E>(
        &mut self,
        entries: &[E],
        done: &mut usize,
        write: impl Fn(&mut Vec<u8>, &E),
    ) -> Result<(), LedgerError> {
        while *done < entries.len() {
            if self.opened()?.is_suspect {
                self.sync()?;
            }
            if self.opened()?.size >= self.place.max_size {
                self.rotate()?;
            }
            let max_size = self.place.max_size;
            let mut lines = std::mem::take(&mut self.lines);
            lines.clear();
            let open = self.opened()?;
            let (mut head, mut count) = (open.head, 0);
            let room = max_size.saturating_sub(open.size);
            // Up to the line that fills the file.
            for entry in &entries[*done..] {
                let start = lines.len();
                write(&mut lines, entry);
                head.seal(&mut lines, start);
                count += 1;
                if lines.len() as u64 >= room {
                    break;
                }
            }
            let written = self.write(&lines, head);
            self.lines = lines;
            written?;
            *done += count;
        }
        Ok(())
    }

    /// The lines with higher numbers than this, the last one first.
    ///
    /// # Errors
    /// As of [`Ledger::open`].
    pub(super) fn lines_after(&mut self, seq: u64) -> Result<Vec<Vec<u8>>, LedgerError> {
        self.open()?;
        let path = self.place.path.clone();
        let failed = |source| LedgerError::Open {
            path: path.clone(),
            source,
        };
        let mut lines = Vec::new();
        let full = full_files(&path).map_err(failed)?.into_iter().map(|(_, file)| file);
        for file in full.chain([path.clone()]).rev() {
            let mut file = File::open(file).map_err(failed)?;
            let mut end = whole_lines(&mut file).map_err(failed)?;
            while end > 0 {
                let begin = line_end_before(&mut file, end - 1).map_err(failed)?;
                let line = read_line(&mut file, begin, end - 1).map_err(failed)?;
                if Link::read(&line).is_none_or(|link| link.head.seq <= seq) {
                    return Ok(lines);
                }
                lines.push(line);
                end = begin;
            }
        }
        Ok(lines)
    }

    /// Makes durable what was written.
    ///
    /// # Errors
    /// It may not be.
    pub(super) fn sync(&mut self) -> Result<(), LedgerError> {
        // Nothing was written yet.
        let Some(open) = &mut self.open else { return Ok(()) };
        let path = &self.place.path;
        let failed = |source| LedgerError::Sync {
            path: path.clone(),
            source,
        };
        if open.is_suspect {
            if !open.repair().map_err(failed)? {
                return Err(LedgerError::Damaged { path: path.clone() });
            }
            open.is_suspect = false;
        }
        if open.synced == open.size {
            return Ok(());
        }
        if let Err(error) = open.file.sync_data() {
            open.is_suspect = true;
            return Err(failed(error));
        }
        (open.synced, open.synced_head) = (open.size, open.head);
        Ok(())
    }

    fn write(&mut self, lines: &[u8], head: Head) -> Result<(), LedgerError> {
        let path = self.place.path.clone();
        let open = self.opened()?;
        if let Err(source) = open.file.write_all(lines) {
            // What was written of it is no line. Should this fail as well, nothing more is added before it is done.
            if open.file.set_len(open.size).is_err() {
                self.open = None;
            }
            return Err(LedgerError::Write { path, source });
        }
        open.size += lines.len() as u64;
        open.head = head;
        Ok(())
    }

    fn opened(&mut self) -> Result<&mut Open, LedgerError> {
        // One that somebody took away is gone on with by another, whose first line shows that something lies between.
        let last = self.open.as_ref().map(|open| open.head);
        if self
            .open
            .as_ref()
            .is_some_and(|open| !is_at(&open.file, &self.place.path))
        {
            self.open = None;
        }
        if self.lock.is_none() {
            self.lock = Some(lock(&self.place.path)?);
        }
        match self.open {
            Some(ref mut open) => Ok(open),
            None => {
                let open = open(&self.place.path, last)?;
                Ok(self.open.insert(open))
            }
        }
    }

    /// Gives the full file its number, and begins another.
    fn rotate(&mut self) -> Result<(), LedgerError> {
        self.sync()?;
        let path = self.place.path.clone();
        let failed = |source| LedgerError::Open {
            path: path.clone(),
            source,
        };
        let full = full_files(&path).map_err(failed)?;
        let number = full.last().map_or(0, |(number, _)| *number) + 1;
        fs::rename(&path, numbered(&path, number)).map_err(failed)?;
        let last = self.open.take().map(|open| open.head);
        self.open = Some(open(&path, last)?);
        if let Some(keep) = self.place.keep {
            let surplus = (full.len() + 1).saturating_sub(keep);
            for (_, old) in full.iter().take(surplus) {
                if let Err(error) = fs::remove_file(old) {
                    tracing::warn!(error = %error, file = %old.display(), "a full file of the audit ledger cannot be removed");
                }
            }
        }
        Ok(())
    }
}

impl Open {
    /// Writes what is not surely on the disk once more. False: it is not what was written.
    fn repair(&mut self) -> io::Result<bool> {
        let mut tail = Vec::new();
        self.file.seek(SeekFrom::Start(self.synced))?;
        io::Read::by_ref(&mut self.file)
            .take(self.size - self.synced)
            .read_to_end(&mut tail)?;
        let mut head = self.synced_head;
        for line in tail.split_inclusive(|byte| *byte == b'\n') {
            let link = line.strip_suffix(b"\n").and_then(Link::read);
            match link {
                Some(link) if link.prev == head.hash && link.head.hash == link.computed => head = link.head,
                _ => return Ok(false),
            }
        }
        if head != self.head {
            return Ok(false);
        }
        self.file.set_len(self.synced)?;
        self.file.write_all(&tail)?;
        Ok(true)
    }
}

/// Keeps other processes out, and makes the folder where it is missing.
fn lock(path: &Path) -> Result<File, LedgerError> {
    let failed = |source| LedgerError::Open {
        path: path.to_owned(),
        source,
    };
    fs::create_dir_all(folder_of(path)).map_err(failed)?;
    let mut options = OpenOptions::new();
    let options = options.create(true).truncate(false).write(true);
    let lock = options.open(beside(path, "lock")).map_err(failed)?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(LedgerError::InUse { path: path.to_owned() }),
        Err(TryLockError::Error(source)) => Err(failed(source)),
    }
}

/// Opens the file, and says in its first line what it continues. `last` is the chain's end where it is known already.
fn open(path: &Path, last: Option<Head>) -> Result<Open, LedgerError> {
    let failed = |source| LedgerError::Open {
        path: path.to_owned(),
        source,
    };
    let is_new = !path.exists();
    let mut options = OpenOptions::new();
    let mut file = options
        .read(true)
        .append(true)
        .create(true)
        .open(path)
        .map_err(failed)?;
    if is_new {
        sync_folder(folder_of(path)).map_err(failed)?;
    }
    let size = whole_lines(&mut file).map_err(failed)?;
    if size < file.metadata().map_err(failed)?.len() {
        file.set_len(size).map_err(failed)?;
    }
    let mut open = Open {
        file,
        size,
        head: Head::NONE,
        // What an older process left may be in memory only.
        synced: 0,
        synced_head: Head::NONE,
        is_suspect: false,
    };
    if size > 0 {
        open.head = last_link(&mut open.file, size, path)?;
        return Ok(open);
    }
    let before = full_files(path).map_err(failed)?.pop();
    let head = match (last, &before) {
        (Some(last), _) => last,
        (None, Some((_, file))) => {
            let mut full = File::open(file).map_err(failed)?;
            let size = whole_lines(&mut full).map_err(failed)?;
            last_link(&mut full, size, file)?
        }
        (None, None) => return Ok(open),
    };
    if head == Head::NONE {
        return Ok(open);
    }
    let name = before.as_ref().and_then(|(_, file)| file.file_name());
    let mut line = CONTINUES.to_vec();
    write_text(&mut line, &name.unwrap_or_default().to_string_lossy());
    line.extend_from_slice(b",\"time\":");
    write_text(&mut line, &rfc3339(std::time::SystemTime::now()));
    open.head = head;
    open.head.seal(&mut line, 0);
    if let Err(source) = open.file.write_all(&line) {
        let _ = open.file.set_len(0);
        return Err(LedgerError::Write {
            path: path.to_owned(),
            source,
        });
    }
    open.size = line.len() as u64;
    Ok(open)
}

/// The last of a file's whole lines.
fn last_link(file: &mut File, size: u64, path: &Path) -> Result<Head, LedgerError> {
    let damaged = || LedgerError::Damaged { path: path.to_owned() };
    let failed = |source| LedgerError::Open {
        path: path.to_owned(),
        source,
    };
    let end = size.saturating_sub(1);
    let begin = line_end_before(file, end).map_err(failed)?;
    let line = read_line(file, begin, end).map_err(failed)?;
    let link = Link::read(&line).filter(|link| link.head.hash == link.computed);
    link.map(|link| link.head).ok_or_else(damaged)
}

#[cfg(test)]
mod tests;
