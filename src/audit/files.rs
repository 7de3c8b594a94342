//! Where a ledger's files are, and what is read of their lines.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

/// The bytes from a line's begin to its line break.
pub(super) fn read_line(file: &mut File, begin: u64, end: u64) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    file.seek(SeekFrom::Start(begin))?;
    let length = end.saturating_sub(begin);
    io::Read::by_ref(file).take(length).read_to_end(&mut line)?;
    Ok(line)
}

/// The files that became full, in their order, by their numbers.
///
/// # Errors
/// When the folder cannot be read.
pub fn full_files(path: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder_of(path))? {
        let found = entry?.path();
        if let Some(number) = number_of(path, &found) {
            files.push((number, found));
        }
    }
    files.sort();
    Ok(files)
}

/// The number that a file has as one of the full files of the ledger at `path`.
pub fn number_of(path: &Path, file: &Path) -> Option<u64> {
    let name = file.file_name()?.as_encoded_bytes();
    let digits = name
        .strip_prefix(path.file_name()?.as_encoded_bytes())?
        .strip_prefix(b".")?;
    let is_number = digits.len() >= NUMBER_DIGITS && digits.iter().all(u8::is_ascii_digit);
    let is_number = is_number && (digits.len() == NUMBER_DIGITS || digits.first() != Some(&b'0'));
    is_number
        .then(|| std::str::from_utf8(digits).ok()?.parse().ok())
        .flatten()
}

const NUMBER_DIGITS: usize = 6;

/// Where the full file of a number is.
pub(super) fn numbered(path: &Path, number: u64) -> PathBuf {
    beside(path, &format!("{number:06}"))
}

/// `PATH.SUFFIX`
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(suffix);
    name.into()
}

pub(super) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

pub(super) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Whether a process has the ledger open to write.
pub fn is_in_use(path: &Path) -> bool {
    File::open(beside(path, "lock")).is_ok_and(|lock| matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

/// Whether the path still leads to the file.
pub(super) fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let place = |metadata: io::Result<fs::Metadata>| metadata.map(|metadata| (metadata.dev(), metadata.ino())).ok();
    let here = place(file.metadata());
    here.is_some() && here == place(fs::metadata(path))
}
