//! The SQLite file that dead letters are kept in.
//!
//! Several processes may have it open: pipelines that park, and an operator's commands. SQLite's write-ahead log lets them read
//! meanwhile; a write waits some seconds for another's. A letter is on disk when [`LetterStore::park`] returns
//! (`synchronous=FULL`).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use rusqlite::{Connection, ErrorCode, OpenFlags, Row, params};
use serde::{Deserialize, Serialize};

use super::Letter;
use crate::calendar::rfc3339;
use crate::config::LetterFile;
use crate::record::Header;

/// What is in the file, in its own words: `user_version`.
const VERSION: i64 = 1;
/// How long a write waits for another process's.
const BUSY: Duration = Duration::from_secs(10);
/// Between two looks for letters that are past their time.
const PURGE_EVERY: Duration = Duration::from_secs(60 * 60);

const SCHEMA: &str = "
CREATE TABLE letters (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    pipeline TEXT NOT NULL,
    source TEXT NOT NULL,
    sink TEXT NOT NULL,
    position TEXT NOT NULL,
    event_id TEXT NOT NULL,
    event_type TEXT,
    aggregate_type TEXT,
    aggregate_id TEXT,
    reason TEXT NOT NULL,
    detail TEXT NOT NULL,
    error TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    target TEXT,
    parked_at TEXT NOT NULL,
    record_timestamp_ms INTEGER NOT NULL,
    key BLOB,
    value BLOB,
    headers TEXT NOT NULL,
    notes TEXT NOT NULL,
    replayed_at TEXT,
    replay_outcome TEXT,
    UNIQUE (pipeline, source, sink, position, event_id)
) STRICT;
CREATE INDEX letters_parked_at ON letters (parked_at);
PRAGMA user_version = 1;
";

const COLUMNS: &str = "id, pipeline, source, sink, position, event_id, event_type, aggregate_type, aggregate_id, reason, detail, \
                       error, attempts, target, parked_at, record_timestamp_ms, key, value, headers, notes, replayed_at, \
                       replay_outcome";

/// What keeps the file from being used.
#[derive(Debug, thiserror::Error)]
pub enum LetterStoreError {
    #[error("make the folder `{}` for dead letters", path.display())]
    Folder { path: PathBuf, source: std::io::Error },
    #[error("there is no file `{}` with dead letters: is `--state-dir` the one of the pipeline?", path.display())]
    Missing { path: PathBuf },
    #[error("{what} of dead letters `{}`", path.display())]
    Sqlite {
        what: &'static str,
        path: PathBuf,
        source: rusqlite::Error,
    },
    #[error(
        "file `{}` has dead letters in a form of version {found}, and this program knows {VERSION}: use the program that made it, or a newer one",
        path.display()
    )]
    Version { path: PathBuf, found: i64 },
    #[error("file `{}` is an SQLite file of something else: expected one of dead letters, or none", path.display())]
    Foreign { path: PathBuf },
}

impl LetterStoreError {
    /// Whether it may be better later without a person.
    pub fn can_heal(&self) -> bool {
        let Self::Sqlite { source, .. } = self else {
            return false;
        };
        matches!(
            source.sqlite_error_code(),
            Some(
                ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::DiskFull | ErrorCode::SystemIoFailure
            )
        )
    }
}

/// A letter, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// In the file.
    pub id: i64,
    pub letter: Letter,
    /// When it was last sent again, and how that ended.
    pub replayed: Option<(String, String)>,
}

/// See the module's text.
#[derive(Debug)]
pub struct LetterStore {
    connection: Connection,
    path: PathBuf,
    retention: Option<Duration>,
    purged: Option<Instant>,
}

impl LetterStore {
    /// Opens the file, or makes it with its folder.
    ///
    /// # Errors
    /// When it cannot be opened, or is none of dead letters.
    pub fn open(file: &LetterFile) -> Result<Self, LetterStoreError> {
        if let Some(folder) = file.path.parent() {
            std::fs::create_dir_all(folder).map_err(|source| LetterStoreError::Folder {
                path: folder.to_owned(),
                source,
            })?;
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut store = Self::connect(&file.path, flags)?;
        store.retention = file.retention;
        store.prepare()?;
        Ok(store)
    }

    /// Opens a file that must be there.
    ///
    /// # Errors
    /// The same, or when there is none.
    pub fn open_existing(path: &Path) -> Result<Self, LetterStoreError> {
        if !path.exists() {
            return Err(LetterStoreError::Missing { path: path.to_owned() });
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut store = Self::connect(path, flags)?;
        store.prepare()?;
        Ok(store)
    }

    fn connect(path: &Path, flags: OpenFlags) -> Result<Self, LetterStoreError> {
        let failed = failure("open the file", path);
        let connection = Connection::open_with_flags(path, flags).map_err(failed)?;
        connection.busy_timeout(BUSY).map_err(failed)?;
        Ok(Self {
            connection,
            path: path.to_owned(),
            retention: None,
            purged: None,
        })
    }

    /// Makes the table in a file that has none.
    fn prepare(&mut self) -> Result<(), LetterStoreError> {
        let path = self.path.clone();
        let failed = failure("prepare the file", &path);
        self.connection
            .pragma_update(None, "journal_mode", "WAL")
            .map_err(failed)?;
        self.connection
            .pragma_update(None, "synchronous", "FULL")
            .map_err(failed)?;
        // Of two processes that find an empty file, one waits here and then finds the other's table.
        let behavior = rusqlite::TransactionBehavior::Immediate;
        let transaction = self.connection.transaction_with_behavior(behavior).map_err(failed)?;
        let number = |sql| {
            transaction
                .query_row(sql, [], |row| row.get::<_, i64>(0))
                .map_err(failed)
        };
        let (version, tables) = (
            number("PRAGMA user_version")?,
            number("SELECT count(*) FROM sqlite_schema")?,
        );
        match (version, tables) {
            (VERSION, _) => {}
            (0, 0) => transaction.execute_batch(SCHEMA).map_err(failed)?,
            (0, _) => return Err(LetterStoreError::Foreign { path }),
            (found, _) => return Err(LetterStoreError::Version { path, found }),
        }
        transaction.commit().map_err(failed)
    }

    /// Keeps letters. One that is there already is brought up to date: its event came again after a restart.
    ///
    /// # Errors
    /// When they cannot be written. None of them is kept then, or each of them.
    pub fn park(&mut self, letters: &[Letter]) -> Result<(), LetterStoreError> {
        self.purge_now_and_then()?;
        let failed = failure("write to the file", &self.path);
        let transaction = self.connection.transaction().map_err(failed)?;
        {
            let mut insert = transaction
                .prepare_cached(
                    "INSERT INTO letters (pipeline, source, sink, position, event_id, event_type, aggregate_type, aggregate_id, \
                     reason, detail, error, attempts, target, parked_at, record_timestamp_ms, key, value, headers, notes) \
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19) \
                     ON CONFLICT (pipeline, source, sink, position, event_id) DO UPDATE SET reason = excluded.reason, \
                     detail = excluded.detail, error = excluded.error, attempts = excluded.attempts, \
                     target = excluded.target, parked_at = excluded.parked_at, key = excluded.key, value = excluded.value, \
                     headers = excluded.headers, notes = excluded.notes",
                )
                .map_err(failed)?;
            for letter in letters {
                let parameters = params![
                    letter.pipeline,
                    letter.source,
                    letter.sink,
                    letter.position,
                    letter.event_id,
                    letter.event_type,
                    letter.aggregate_type,
                    letter.aggregate_id,
                    letter.reason,
                    letter.detail,
                    letter.error,
                    letter.attempts,
                    letter.target,
                    letter.parked_at,
                    letter.record_timestamp_ms,
                    letter.key.as_deref(),
                    letter.value.as_deref(),
                    headers_text(&letter.headers),
                    notes_text(&letter.notes),
                ];
                insert.execute(parameters).map_err(failed)?;
            }
        }
        transaction.commit().map_err(failed)
    }

    /// Takes letters away that are past their time, if the last look was long ago.
    fn purge_now_and_then(&mut self) -> Result<(), LetterStoreError> {
        let Some(retention) = self.retention else {
            return Ok(());
        };
        if self.purged.is_some_and(|purged| purged.elapsed() < PURGE_EVERY) {
            return Ok(());
        }
        self.purged = Some(Instant::now());
        let Some(limit) = SystemTime::now().checked_sub(retention) else {
            return Ok(());
        };
        let purged = self
            .connection
            .execute("DELETE FROM letters WHERE parked_at < ?1", [rfc3339(limit)]);
        let count = purged.map_err(|source| LetterStoreError::Sqlite {
            what: "purge the file",
            path: self.path.clone(),
            source,
        })?;
        if count > 0 {
            tracing::info!(count, "dead letters past their retention were purged");
        }
        Ok(())
    }

    /// Each letter, in the order of their being parked.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn each(&self, mut take: impl FnMut(Kept)) -> Result<(), LetterStoreError> {
        let failed = failure("read the file", &self.path);
        let sql = format!("SELECT {COLUMNS} FROM letters ORDER BY id");
        let mut statement = self.connection.prepare_cached(&sql).map_err(failed)?;
        for kept in statement.query_map([], kept).map_err(failed)? {
            take(kept.map_err(failed)?);
        }
        Ok(())
    }

    /// Marks a letter as sent again.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn mark(&self, id: i64, now: SystemTime, outcome: &str) -> Result<(), LetterStoreError> {
        self.change(
            "UPDATE letters SET replayed_at = ?2, replay_outcome = ?3 WHERE id = ?1",
            params![id, rfc3339(now), outcome],
        )
    }

    /// Takes letters away: all of them or none.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn remove(&mut self, ids: &[i64]) -> Result<(), LetterStoreError> {
        let failed = failure("write to the file", &self.path);
        // One for all: each is synchronized to disk.
        let transaction = self.connection.transaction().map_err(failed)?;
        {
            let mut delete = transaction
                .prepare_cached("DELETE FROM letters WHERE id = ?1")
                .map_err(failed)?;
            for id in ids {
                delete.execute([id]).map_err(failed)?;
            }
        }
        transaction.commit().map_err(failed)
    }

    fn change(&self, sql: &str, parameters: impl rusqlite::Params) -> Result<(), LetterStoreError> {
        let changed = self.connection.execute(sql, parameters);
        changed.map(|_| ()).map_err(|source| LetterStoreError::Sqlite {
            what: "write to the file",
            path: self.path.clone(),
            source,
        })
    }
}

/// What SQLite's errors become, in words of what was tried.
fn failure(what: &'static str, path: &Path) -> impl Fn(rusqlite::Error) -> LetterStoreError + Copy {
    move |source| LetterStoreError::Sqlite {
        what,
        path: path.to_owned(),
        source,
    }
}

fn kept(row: &Row<'_>) -> rusqlite::Result<Kept> {
    let bytes = |index| Ok::<_, rusqlite::Error>(row.get::<_, Option<Vec<u8>>>(index)?.map(Bytes::from));
    let (replayed_at, outcome): (Option<String>, Option<String>) = (row.get(20)?, row.get(21)?);
    Ok(Kept {
        id: row.get(0)?,
        letter: Letter {
            pipeline: row.get(1)?,
            source: row.get(2)?,
            sink: row.get(3)?,
            position: row.get(4)?,
            event_id: row.get(5)?,
            event_type: row.get(6)?,
            aggregate_type: row.get(7)?,
            aggregate_id: row.get(8)?,
            reason: row.get(9)?,
            detail: row.get(10)?,
            error: row.get(11)?,
            attempts: row.get(12)?,
            target: row.get(13)?,
            parked_at: row.get(14)?,
            record_timestamp_ms: row.get(15)?,
            key: bytes(16)?,
            value: bytes(17)?,
            headers: headers_of(&row.get::<_, String>(18)?),
            notes: serde_json::from_str(&row.get::<_, String>(19)?).unwrap_or_default(),
        },
        replayed: replayed_at.zip(outcome),
    })
}

/// A header in the file: text as it is, other bytes as base64.
#[derive(Serialize, Deserialize)]
struct StoredHeader {
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
}

fn headers_text(headers: &[Header]) -> String {
    let stored: Vec<_> = headers
        .iter()
        .map(|header| {
            let text = header.value.as_deref().map(std::str::from_utf8);
            StoredHeader {
                name: header.name.to_string(),
                text: text.and_then(Result::ok).map(str::to_owned),
                base64: match text {
                    Some(Err(_)) => header.value.as_ref().map(|value| STANDARD.encode(value)),
                    Some(Ok(_)) | None => None,
                },
            }
        })
        .collect();
    // Names and texts can always be JSON.
    serde_json::to_string(&stored).unwrap_or_default()
}

fn headers_of(text: &str) -> Vec<Header> {
    let stored: Vec<StoredHeader> = serde_json::from_str(text).unwrap_or_default();
    let header = |stored: StoredHeader| Header {
        name: Arc::from(stored.name),
        value: stored.text.map(Bytes::from).or_else(|| {
            let decoded = stored.base64.and_then(|base64| STANDARD.decode(base64).ok());
            decoded.map(Bytes::from)
        }),
    };
    stored.into_iter().map(header).collect()
}

fn notes_text(notes: &[(String, String)]) -> String {
    serde_json::to_string(notes).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(folder: &Path) -> LetterFile {
        LetterFile {
            path: folder.join("letters/dead.sqlite"),
            retention: None,
        }
    }

    fn letter(position: &str) -> Letter {
        Letter {
            pipeline: "orders".to_owned(),
            source: "pg1".to_owned(),
            sink: "k".to_owned(),
            position: position.to_owned(),
            event_id: "7f".to_owned(),
            event_type: Some("created".to_owned()),
            aggregate_type: Some("Order".to_owned()),
            aggregate_id: None,
            reason: "permanent_failure".to_owned(),
            detail: "refused".to_owned(),
            error: "no".to_owned(),
            attempts: 5,
            target: Some("http://h/in".to_owned()),
            parked_at: "2026-11-28T05:17:01.124Z".to_owned(),
            record_timestamp_ms: 5,
            key: Some(Bytes::from_static(b"\xff")),
            value: None,
            headers: vec![
                Header {
                    name: Arc::from("a"),
                    value: Some(Bytes::from_static(b"text")),
                },
                Header {
                    name: Arc::from("b"),
                    value: Some(Bytes::from_static(b"\xfe")),
                },
                Header {
                    name: Arc::from("c"),
                    value: None,
                },
            ],
            notes: vec![("tailpost-dlq-prefix".to_owned(), "outbox".to_owned())],
        }
    }

    fn all(store: &LetterStore) -> Vec<Kept> {
        let mut all = Vec::new();
        store.each(|kept| all.push(kept)).unwrap();
        all
    }

    #[test]
    fn letters_come_back_as_they_were_and_an_event_has_one() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = LetterStore::open(&file(folder.path())).unwrap();
        let (one, mut two) = (letter("0/1"), letter("0/2"));
        store.park(&[one.clone(), two.clone()]).unwrap();
        two.error = "still no".to_owned();
        store.mark(1, SystemTime::UNIX_EPOCH, "published").unwrap();
        store.park(std::slice::from_ref(&two)).unwrap();
        drop(store);

        let mut store = LetterStore::open_existing(&file(folder.path()).path).unwrap();
        let kept = all(&store);
        assert_eq!(kept.iter().map(|kept| &kept.letter).collect::<Vec<_>>(), [&one, &two]);
        let replayed = Some(("1970-01-01T00:00:00.000Z".to_owned(), "published".to_owned()));
        assert_eq!((kept[0].replayed.clone(), kept[1].replayed.clone()), (replayed, None));
        store.remove(&[kept[0].id]).unwrap();
        assert_eq!(all(&store).len(), 1);
    }

    #[test]
    fn letters_past_their_time_are_taken_away() {
        let folder = tempfile::tempdir().unwrap();
        let file = LetterFile {
            retention: Some(Duration::from_secs(24 * 60 * 60)),
            ..file(folder.path())
        };
        let mut store = LetterStore::open(&file).unwrap();
        let fresh = Letter {
            parked_at: rfc3339(SystemTime::now()),
            ..letter("0/2")
        };
        store.park(&[letter("0/1"), fresh.clone()]).unwrap();
        drop(store);
        let mut store = LetterStore::open(&file).unwrap();
        store.park(&[]).unwrap();
        assert_eq!(
            all(&store).iter().map(|kept| &kept.letter).collect::<Vec<_>>(),
            [&Letter {
                parked_at: fresh.parked_at.clone(),
                ..fresh
            }]
        );
    }

    #[test]
    fn what_is_something_else_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sqlite");
        assert!(matches!(
            LetterStore::open_existing(&path),
            Err(LetterStoreError::Missing { .. })
        ));
        let other = Connection::open(&path).unwrap();
        other.execute_batch("CREATE TABLE accounts (id INTEGER)").unwrap();
        assert!(matches!(
            LetterStore::open_existing(&path),
            Err(LetterStoreError::Foreign { .. })
        ));
        other.execute_batch("PRAGMA user_version = 9").unwrap();
        assert!(matches!(
            LetterStore::open_existing(&path),
            Err(LetterStoreError::Version { found: 9, .. })
        ));
        let path = folder.path().join("b.sqlite");
        std::fs::write(
            &path,
            "no database at all, and longer than a header of one hundred bytes, which SQLite looks at first",
        )
        .unwrap();
        let error = LetterStore::open_existing(&path).unwrap_err();
        assert!(
            matches!(error, LetterStoreError::Sqlite { .. }) && !error.can_heal(),
            "{error:?}"
        );
    }
}
