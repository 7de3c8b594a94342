//! The SQLite file that numbers are kept in: one of a pipeline, in the state directory.
//!
//! A write survives the end of the process at once, and that of the machine a moment later (`synchronous=NORMAL`): numbers that
//! are older than the checkpoint are noticed, and learned anew.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, OptionalExtension, Transaction, params};

use super::numbers::{Changes, RefusedAt};

/// What is in the file, in its own words: `user_version`.
const VERSION: i64 = 1;

const SCHEMA: &str = "
CREATE TABLE numbers (
    sink TEXT NOT NULL,
    processor TEXT NOT NULL,
    aggregate TEXT NOT NULL,
    number INTEGER NOT NULL,
    PRIMARY KEY (sink, processor, aggregate)
) STRICT, WITHOUT ROWID;
CREATE TABLE marks (
    sink TEXT NOT NULL,
    processor TEXT NOT NULL,
    last TEXT,
    through TEXT,
    position TEXT NOT NULL,
    position_before TEXT,
    refused TEXT NOT NULL,
    PRIMARY KEY (sink, processor)
) STRICT, WITHOUT ROWID;
PRAGMA user_version = 1;
";

/// What keeps the file from being used.
#[derive(Debug, thiserror::Error)]
pub(super) enum SequenceStoreError {
    #[error("make the folder `{}` for sequence numbers", path.display())]
    Folder { path: PathBuf, source: std::io::Error },
    #[error("use the file `{}` of sequence numbers", path.display())]
    Sqlite { path: PathBuf, source: rusqlite::Error },
    #[error("file `{}` has sequence numbers in a form of version {found}, and this program knows {VERSION}", path.display())]
    Version { path: PathBuf, found: i64 },
}

/// Whose numbers they are. Each sink has processors of its own, which see what that sink is given.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rule {
    pub(super) sink: String,
    pub(super) processor: String,
}

/// How far a rule's numbers go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mark {
    /// The place of the last event that they know of.
    pub(super) last: Option<String>,
    /// The same, unless everything up to there is done at `position`.
    pub(super) through: Option<String>,
    /// The checkpoint that was to be saved behind this write, and the last one that was saved before it.
    pub(super) position: String,
    pub(super) position_before: Option<String>,
    /// What was refused and can come again.
    pub(super) refused: Vec<RefusedAt>,
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct SequenceStore {
    connection: Connection,
    path: PathBuf,
}

impl SequenceStore {
    /// Opens the file, or makes it with its folder.
    pub(super) fn open(path: &Path) -> Result<Self, SequenceStoreError> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(|source| SequenceStoreError::Folder {
                path: folder.to_owned(),
                source,
            })?;
        }
        let failed = |source| SequenceStoreError::Sqlite {
            path: path.to_owned(),
            source,
        };
        let connection = Connection::open(path).map_err(failed)?;
        connection.pragma_update(None, "journal_mode", "wal").map_err(failed)?;
        connection
            .pragma_update(None, "synchronous", "normal")
            .map_err(failed)?;
        let found: i64 = connection
            .pragma_query_value(None, "user_version", |row| row.get(0))
            .map_err(failed)?;
        match found {
            VERSION => {}
            0 => connection
                .execute_batch(&format!("BEGIN; {SCHEMA} COMMIT;"))
                .map_err(failed)?,
            found => {
                return Err(SequenceStoreError::Version {
                    path: path.to_owned(),
                    found,
                });
            }
        }
        Ok(Self {
            connection,
            path: path.to_owned(),
        })
    }

    fn failed(&self, source: rusqlite::Error) -> SequenceStoreError {
        SequenceStoreError::Sqlite {
            path: self.path.clone(),
            source,
        }
    }

    pub(super) fn mark(&self, rule: &Rule) -> Result<Option<Mark>, SequenceStoreError> {
        let sql =
            "SELECT last, through, position, position_before, refused FROM marks WHERE sink = ?1 AND processor = ?2";
        let mark = self
            .connection
            .query_row(sql, params![rule.sink, rule.processor], |row| {
                Ok(Mark {
                    last: row.get(0)?,
                    through: row.get(1)?,
                    position: row.get(2)?,
                    position_before: row.get(3)?,
                    // One that cannot be read would only be found out anew.
                    refused: serde_json::from_str(&row.get::<_, String>(4)?).unwrap_or_default(),
                })
            });
        mark.optional().map_err(|error| self.failed(error))
    }

    pub(super) fn numbers(&self, rule: &Rule) -> Result<Vec<(String, i64)>, SequenceStoreError> {
        let read = || -> rusqlite::Result<Vec<_>> {
            let sql = "SELECT aggregate, number FROM numbers WHERE sink = ?1 AND processor = ?2";
            let mut statement = self.connection.prepare(sql)?;
            let rows = statement.query_map(params![rule.sink, rule.processor], |row| Ok((row.get(0)?, row.get(1)?)))?;
            rows.collect()
        };
        read().map_err(|error| self.failed(error))
    }

    /// Takes a rule's numbers away.
    pub(super) fn forget(&mut self, rule: &Rule) -> Result<(), SequenceStoreError> {
        let mut forget = || {
            let transaction = self.connection.transaction()?;
            for table in ["numbers", "marks"] {
                let sql = format!("DELETE FROM {table} WHERE sink = ?1 AND processor = ?2");
                transaction.execute(&sql, params![rule.sink, rule.processor])?;
            }
            transaction.commit()
        };
        forget().map_err(|source| SequenceStoreError::Sqlite {
            path: self.path.clone(),
            source,
        })
    }

    /// Writes what has changed of several rules, all of it or none.
    pub(super) fn write(&mut self, all: &[(Rule, Changes, Mark)]) -> Result<(), SequenceStoreError> {
        let mut write = || {
            let transaction = self.connection.transaction()?;
            for (rule, changes, mark) in all {
                write_one(&transaction, rule, changes, mark)?;
            }
            transaction.commit()
        };
        write().map_err(|source| SequenceStoreError::Sqlite {
            path: self.path.clone(),
            source,
        })
    }
}

fn write_one(transaction: &Transaction<'_>, rule: &Rule, changes: &Changes, mark: &Mark) -> rusqlite::Result<()> {
    let mut set = transaction.prepare_cached("INSERT OR REPLACE INTO numbers VALUES (?1, ?2, ?3, ?4)")?;
    let mut take_away =
        transaction.prepare_cached("DELETE FROM numbers WHERE sink = ?1 AND processor = ?2 AND aggregate = ?3")?;
    for (aggregate, number) in &changes.numbers {
        match number {
            Some(number) => set.execute(params![rule.sink, rule.processor, aggregate, number])?,
            None => take_away.execute(params![rule.sink, rule.processor, aggregate])?,
        };
    }
    transaction
        .prepare_cached("INSERT OR REPLACE INTO marks VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)")?
        .execute(params![
            rule.sink,
            rule.processor,
            mark.last,
            mark.through,
            mark.position,
            mark.position_before,
            serde_json::to_string(&mark.refused).unwrap_or_default()
        ])?;
    Ok(())
}
