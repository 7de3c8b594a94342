//! Places on this machine's disks that a pipeline writes to: whether this user can, and whether there is room. Nothing is made.

use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access, statvfs};

use super::Finding;

/// A disk with less than this left is as good as full.
const LITTLE_ROOM: u64 = 64 << 20;

/// A file or folder, and what a run does with it.
#[derive(Debug)]
pub(crate) struct Place {
    /// What it is for.
    pub(crate) what: &'static str,
    pub(crate) path: PathBuf,
    /// Where its path is written.
    pub(crate) key: &'static str,
    pub(crate) needs: Needs,
    /// Files that are opened with it, where they are there.
    pub(crate) opened_with: Vec<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    /// A file of a folder that must be there.
    File,
    /// A file that is made with its folder.
    FileAndFolder,
    /// The same, beside which others are made: those of SQLite, or of a ledger.
    FilesBeside,
    /// A folder that is made.
    Folder,
}

impl Place {
    pub(crate) fn look(&self) -> Finding {
        let subject = format!("{} {}", self.what, self.path.display());
        match self.found() {
            Ok(found) => room(subject, found, nearest(&self.path)),
            Err(fault) => Finding::bad(subject, fault),
        }
    }

    fn found(&self) -> Result<&'static str, String> {
        let key = self.key;
        if !self.path.exists() {
            self.can_make_in(self.folder())?;
            return Ok("does not exist; it is made at the start");
        }
        match (self.needs, self.path.is_dir()) {
            (Needs::Folder, _) => {
                self.can_make_in(&self.path)?;
            }
            (_, true) => {
                return Err(format!(
                    "is a folder, expected a file that can be written: correct {key}"
                ));
            }
            (needs, false) => {
                OpenOptions::new().append(true).open(&self.path).map_err(|error| {
                    format!(
                        "{error}, expected a file that this user can write: give the user the right to it, or correct {key}"
                    )
                })?;
                if needs == Needs::FilesBeside {
                    self.can_make_in(self.folder())?;
                }
            }
        }
        for path in self.opened_with.iter().filter(|path| path.exists()) {
            OpenOptions::new().append(true).open(path).map_err(|error| {
                format!(
                    "`{}` beside it: {error}, expected a file that this user can write: give the user the right to it, or correct {key}",
                    path.display()
                )
            })?;
        }
        Ok("can be written")
    }

    /// A file of SQLite, with what that keeps beside it.
    pub(crate) fn of_sqlite(what: &'static str, path: PathBuf, key: &'static str) -> Self {
        Self {
            what,
            opened_with: ["-wal", "-shm"].map(|end| beside(&path, end)).into(),
            path,
            key,
            needs: Needs::FilesBeside,
        }
    }

    fn folder(&self) -> &Path {
        or_here(self.path.parent().unwrap_or(Path::new("/")))
    }

    /// Whether files can be made in this folder, or where the folder is to be made itself.
    fn can_make_in(&self, folder: &Path) -> Result<(), String> {
        let key = self.key;
        let there = nearest(folder);
        let shown = there.display();
        if !there.is_dir() {
            return Err(format!("`{shown}` is no folder, expected one: correct {key}"));
        }
        if there != folder && self.needs == Needs::File {
            let missing = folder.display();
            return Err(format!(
                "there is no folder `{missing}`, expected one that this user can write: make it, or correct {key}"
            ));
        }
        access(there, Access::WRITE_OK | Access::EXEC_OK).map_err(|error| {
            format!(
                "nothing can be made in `{shown}` ({}), expected a folder that this user can write: give the user the right to it, or \
                 correct {key}",
                io::Error::from(error)
            )
        })
    }
}

/// The path with this behind its name.
fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

/// The path itself, or the first of the folders above it that is there.
fn nearest(path: &Path) -> &Path {
    let found = path.ancestors().map(or_here).find(|path| path.exists());
    found.unwrap_or(Path::new("."))
}

/// The folder that a relative path ends in is the one of the process.
fn or_here(path: &Path) -> &Path {
    match path.as_os_str().is_empty() {
        true => Path::new("."),
        false => path,
    }
}

/// What is left of the disk that a file or folder is on, beside what was found of the file.
fn room(subject: String, found: &str, at: &Path) -> Finding {
    // What the process may use: some of a disk can be kept for root.
    match statvfs(at).map(|disk| disk.f_bavail.saturating_mul(disk.f_frsize)) {
        Err(_) => Finding::good(subject, found),
        Ok(free) => of_room(subject, found, free),
    }
}

fn of_room(subject: String, found: &str, free: u64) -> Finding {
    let left = format!("{found}; free on its disk: {} MiB", free >> 20);
    match free < LITTLE_ROOM {
        true => Finding::warning(
            subject,
            format!("{left}, expected at least {}: make room on it", LITTLE_ROOM >> 20),
        ),
        false => Finding::good(subject, left),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::thread;

    use rustix::process::getuid;
    use rustix::thread::set_thread_uid;

    use super::*;

    fn told(path: &Path, needs: Needs) -> String {
        let place = Place {
            what: "ledger",
            path: path.to_owned(),
            key: "`path`",
            needs,
            opened_with: Vec::new(),
        };
        place.look().to_string()
    }

    /// As a user with no more than its rights.
    fn told_to_a_user(path: &Path, needs: Needs) -> String {
        let path = path.to_owned();
        let looking = thread::spawn(move || {
            if getuid().is_root() {
                set_thread_uid(rustix::process::Uid::from_raw(65_534)).unwrap();
            }
            told(&path, needs)
        });
        looking.join().unwrap()
    }

    #[test]
    fn what_can_be_made_or_written_is_well_and_nothing_is_left_behind() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        fs::write(at("old"), "{}\n").unwrap();
        for (path, needs, found) in [
            ("old", Needs::File, "can be written"),
            ("old", Needs::FilesBeside, "can be written"),
            (".", Needs::Folder, "can be written"),
            ("new", Needs::File, "does not exist; it is made at the start"),
            (
                "a/b/new",
                Needs::FileAndFolder,
                "does not exist; it is made at the start",
            ),
            ("a/b/new", Needs::FilesBeside, "does not exist; it is made at the start"),
            ("a/b", Needs::Folder, "does not exist; it is made at the start"),
        ] {
            let line = told(&at(path), needs);
            let expected = format!("ledger {}: {found}; free on its disk: ", at(path).display());
            // The disk of a machine that tests can be full.
            assert!(line[6..].starts_with(&expected), "{line}");
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert_eq!(fs::read_to_string(at("old")).unwrap(), "{}\n");
    }

    #[test]
    fn what_cannot_be_names_what_was_found_what_was_expected_and_the_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        fs::write(at("file"), "").unwrap();
        let (root, file, missing) = (folder.path().display(), at("file"), at("a"));
        for (path, needs, expected) in [
            (
                ".",
                Needs::FileAndFolder,
                "is a folder, expected a file that can be written: correct `path`".to_owned(),
            ),
            (
                "file/x",
                Needs::FilesBeside,
                format!("`{}` is no folder, expected one: correct `path`", file.display()),
            ),
            (
                "file",
                Needs::Folder,
                format!("`{}` is no folder, expected one: correct `path`", file.display()),
            ),
            (
                "a/x",
                Needs::File,
                format!(
                    "there is no folder `{}`, expected one that this user can write: make it, or correct `path`",
                    missing.display()
                ),
            ),
        ] {
            let line = told(&at(path), needs);
            assert_eq!(line, format!("FAIL  ledger {root}/{path}: {expected}"));
        }
    }

    #[test]
    fn a_place_of_another_user_s_is_told_before_the_start() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let right = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        right(&file, 0o444);
        right(folder.path(), 0o555);
        let root = folder.path().display();
        let denied = "Permission denied (os error 13)";
        let remedy = "expected a folder that this user can write: give the user the right to it, or correct `path`";
        assert_eq!(
            told_to_a_user(&file, Needs::File),
            format!(
                "FAIL  ledger {root}/file: {denied}, expected a file that this user can write: give the user the right to it, or \
                 correct `path`"
            )
        );
        for needs in [Needs::File, Needs::FileAndFolder, Needs::FilesBeside, Needs::Folder] {
            let line = told_to_a_user(&folder.path().join("new"), needs);
            let expected = format!("FAIL  ledger {root}/new: nothing can be made in `{root}` ({denied}), {remedy}");
            assert_eq!(line, expected);
        }
        // A file that can be written is not enough for what is made beside it.
        right(&file, 0o666);
        assert!(told_to_a_user(&file, Needs::FileAndFolder)[6..].starts_with("ledger"));
        let line = told_to_a_user(&file, Needs::FilesBeside);
        assert!(line.contains(&format!("nothing can be made in `{root}`")), "{line}");
        right(folder.path(), 0o700);
    }

    #[test]
    fn a_relative_path_is_seen_from_where_the_process_is() {
        assert_eq!(nearest(Path::new("no-such-folder/x")), Path::new("."));
        let line = told(Path::new("no-such-file"), Needs::File);
        assert!(line.contains("it is made at the start"), "{line}");
    }

    #[test]
    fn a_disk_that_is_nearly_full_is_told_of_before_it_is() {
        let told = |free| of_room("file f".to_owned(), "can be written", free).to_string();
        assert_eq!(
            told(5 << 30),
            "ok    file f: can be written; free on its disk: 5120 MiB"
        );
        assert_eq!(
            told(9 << 20),
            "warn  file f: can be written; free on its disk: 9 MiB, expected at least 64: make room on it"
        );
    }
}
