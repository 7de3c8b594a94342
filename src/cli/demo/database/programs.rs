//! Where a database server's programs are.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::cli::demo::error::DemoError;

/// The programs that are looked for.
#[derive(Debug)]
pub(in crate::cli::demo) struct Wanted {
    /// The database's name.
    pub(in crate::cli::demo) name: &'static str,
    /// The programs, for a person.
    pub(in crate::cli::demo) programs: &'static str,
    /// The environment variable that names their folder.
    pub(in crate::cli::demo) variable: &'static str,
    /// How to come by them.
    pub(in crate::cli::demo) install: &'static str,
    /// The oldest version that will do: major and minor number.
    pub(in crate::cli::demo) oldest: (u32, u32),
    /// Folders to look into when the variable is not set, the best first.
    pub(super) candidates: fn() -> Vec<PathBuf>,
    /// The programs that belong to a folder.
    pub(super) at: fn(&Path) -> Option<Programs>,
}

/// The programs of one server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Programs {
    /// Where the server's own program is.
    pub(super) folder: PathBuf,
    /// As the server says it, such as `17.5`.
    pub(super) version: String,
}

impl Wanted {
    /// By the variable alone where it is set; else the first that is new enough.
    pub(super) fn find(&'static self) -> Result<Programs, DemoError> {
        if let Some(folder) = env::var_os(self.variable).filter(|folder| !folder.is_empty()) {
            let path = PathBuf::from(folder);
            let found = (self.at)(&path).ok_or(DemoError::NotItsPrograms { wanted: self, path })?;
            return self.new_enough(found);
        }
        let mut old = None;
        for folder in (self.candidates)() {
            match (self.at)(&folder).map(|found| self.new_enough(found)) {
                Some(Ok(programs)) => return Ok(programs),
                Some(Err(error)) => old = old.or(Some(error)),
                None => {}
            }
        }
        Err(old.unwrap_or(DemoError::NoPrograms { wanted: self }))
    }

    fn new_enough(&'static self, found: Programs) -> Result<Programs, DemoError> {
        if numbers_of(&found.version) >= self.oldest {
            Ok(found)
        } else {
            Err(DemoError::OldPrograms {
                wanted: self,
                path: found.folder,
                found: found.version,
            })
        }
    }
}

/// The folders of PATH.
pub(super) fn path_folders() -> Vec<PathBuf> {
    env::var_os("PATH").iter().flat_map(env::split_paths).collect()
}

/// Folders `bin` of what is installed once a major version, the newest first: entries of `parent` whose names begin with
/// `prefix` and go on with the version.
pub(super) fn installed(places: &[(&str, &str)]) -> Vec<PathBuf> {
    let mut found: Vec<((u32, u32), PathBuf)> = Vec::new();
    for (parent, prefix) in places {
        let version = |name: &OsStr| Some(numbers_of(name.to_str()?.strip_prefix(prefix)?)).filter(|it| it.0 > 0);
        let entries = fs::read_dir(parent).into_iter().flatten().flatten();
        found.extend(entries.filter_map(|entry| Some((version(&entry.file_name())?, entry.path().join("bin")))));
    }
    found.sort_by_key(|(version, _)| std::cmp::Reverse(*version));
    found.into_iter().map(|(_, folder)| folder).collect()
}

/// What a program says on stdout, if it ends well.
pub(super) fn said_by(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

/// Of `17.5`, `18beta1`, `19devel` and `9.7.4-2`; 0 for what is not there.
pub(super) fn numbers_of(version: &str) -> (u32, u32) {
    let mut numbers = version
        .split(|c: char| !c.is_ascii_digit())
        .map(|digits| digits.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::demo::database::{mysql, postgres};

    #[test]
    fn numbers_of_versions() {
        for (version, numbers) in [
            ("17.5", (17, 5)),
            ("18beta1", (18, 0)),
            ("19devel", (19, 0)),
            ("9.7.4-2", (9, 7)),
            ("10.11.18", (10, 11)),
            ("", (0, 0)),
        ] {
            assert_eq!(numbers_of(version), numbers, "{version}");
        }
    }

    #[test]
    fn an_old_server_is_refused_with_its_version_and_the_remedy() {
        for (wanted, version) in [
            (&postgres::WANTED, "13.22"),
            (&mysql::WANTED, "5.7.44"),
            (&mysql::WANTED_MARIADB, "10.5.9"),
        ] {
            let old = Programs {
                folder: PathBuf::from("/opt/old/bin"),
                version: version.to_owned(),
            };
            let error = wanted.new_enough(old).expect_err("too old").to_string();
            for part in [wanted.name, version, "/opt/old/bin", wanted.variable] {
                assert!(error.contains(part), "{part}: {error}");
            }
        }
    }
}
