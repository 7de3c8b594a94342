//! Where the PostgreSQL server's programs are.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::error::DemoError;

const NAMES: [&str; 2] = ["initdb", "postgres"];
/// Logical messages came to pgoutput with it.
const OLDEST: u32 = 14;
/// Folders whose entries, one a major version, have a `bin`: the entries' names begin so.
const INSTALLED: [(&str, &str); 4] = [
    ("/usr/lib/postgresql", ""),
    ("/usr", "pgsql-"),
    ("/opt/homebrew/opt", "postgresql@"),
    ("/usr/local/opt", "postgresql@"),
];

/// The programs of one PostgreSQL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Programs {
    folder: PathBuf,
    /// As the server says it, such as `17.5`.
    pub(super) version: String,
}

impl Programs {
    /// By `TAILPOST_PG_BIN`; else `pg_config`, PATH, and the newest where packages put them.
    pub(super) fn find() -> Result<Self, DemoError> {
        if let Some(folder) = env::var_os("TAILPOST_PG_BIN").filter(|folder| !folder.is_empty()) {
            let path = PathBuf::from(folder);
            return Self::at(&path).ok_or(DemoError::NotItsPrograms { path })?.new_enough();
        }
        let mut old = None;
        for folder in candidates() {
            match Self::at(&folder).map(Self::new_enough) {
                Some(Ok(programs)) => return Ok(programs),
                Some(Err(error)) => old = old.or(Some(error)),
                None => {}
            }
        }
        Err(old.unwrap_or(DemoError::NoPostgres))
    }

    pub(super) fn program(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn at(folder: &Path) -> Option<Self> {
        // It may be a relative one, and the programs run elsewhere.
        let folder = folder.canonicalize().ok()?;
        if !NAMES.iter().all(|name| folder.join(name).is_file()) {
            return None;
        }
        let said = said_by(Command::new(folder.join("postgres")).arg("--version"))?;
        let version = version_of(&said)?.to_owned();
        Some(Self { folder, version })
    }

    fn new_enough(self) -> Result<Self, DemoError> {
        if major_of(&self.version) >= OLDEST {
            Ok(self)
        } else {
            Err(DemoError::OldPostgres {
                path: self.folder,
                found: self.version,
            })
        }
    }
}

fn candidates() -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = said_by(Command::new("pg_config").arg("--bindir"))
        .map(PathBuf::from)
        .into_iter()
        .collect();
    folders.extend(env::var_os("PATH").iter().flat_map(env::split_paths));
    let mut installed: Vec<(u32, PathBuf)> = INSTALLED
        .iter()
        .flat_map(|(parent, prefix)| entries(parent, prefix))
        .collect();
    installed.sort_by_key(|(version, _)| std::cmp::Reverse(*version));
    folders.extend(installed.into_iter().map(|(_, folder)| folder));
    folders
}

fn entries(parent: &str, prefix: &str) -> Vec<(u32, PathBuf)> {
    let Ok(entries) = fs::read_dir(parent) else {
        return Vec::new();
    };
    let version = |name: &OsStr| name.to_str()?.strip_prefix(prefix)?.parse().ok();
    entries
        .flatten()
        .filter_map(|entry| Some((version(&entry.file_name())?, entry.path().join("bin"))))
        .collect()
}

fn said_by(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

/// `postgres (PostgreSQL) 17.5 (Debian 17.5-1)`: the word behind the closing parenthesis.
fn version_of(said: &str) -> Option<&str> {
    said.split_once("(PostgreSQL)")?.1.split_whitespace().next()
}

/// Of `17.5`, `18beta1` and `19devel`.
fn major_of(version: &str) -> u32 {
    let digits = version.find(|c: char| !c.is_ascii_digit()).unwrap_or(version.len());
    version[..digits].parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_servers_say_them() {
        for (said, version, major) in [
            ("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)", "15.18", 15),
            ("postgres (PostgreSQL) 17.5", "17.5", 17),
            ("postgres (PostgreSQL) 18beta1", "18beta1", 18),
            ("postgres (PostgreSQL) 9.6.24", "9.6.24", 9),
        ] {
            assert_eq!(version_of(said), Some(version), "{said}");
            assert_eq!(major_of(version), major, "{said}");
        }
        assert_eq!(version_of("some other postgres 1"), None);
    }

    #[test]
    fn an_old_server_is_refused_with_its_version() {
        let old = Programs {
            folder: PathBuf::from("/opt/pg13/bin"),
            version: "13.22".to_owned(),
        };
        let error = old.new_enough().expect_err("too old").to_string();
        assert!(
            error.contains("13.22") && error.contains("/opt/pg13/bin") && error.contains("TAILPOST_PG_BIN"),
            "{error}"
        );
    }
}
