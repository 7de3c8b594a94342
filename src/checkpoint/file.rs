//! A checkpoint in a file of its own: `<state-dir>/<pipeline>.json`, with `<pipeline>.lock` beside it.
//!
//! A save writes a temporary file, syncs it, renames it over the old one and syncs the folder: a crash at any moment
//! leaves the old checkpoint or the new one, whole.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::position::Position;

use super::GapWord;
use super::document::{Document, DocumentError, VERSION};
use super::{CheckpointError, CheckpointStore};

/// See each variant's text.
#[derive(Debug, thiserror::Error)]
pub enum FileStoreError {
    #[error("make the state folder `{}`", path.display())]
    Folder { path: PathBuf, source: io::Error },
    #[error("lock `{}`", path.display())]
    Lock { path: PathBuf, source: io::Error },
    #[error("pipeline `{pipeline}` already runs with the state folder `{}`: stop the other process, or give this one a --state-dir of its own", path.display())]
    Locked { pipeline: String, path: PathBuf },
    #[error("read checkpoint `{}`", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("checkpoint `{}` is damaged ({reason}): restore it, or remove it to go on where the slot stands, or where `start` says in a binlog", path.display())]
    Damaged { path: PathBuf, reason: String },
    #[error("checkpoint `{}` has version {found}, expected {VERSION}: it was written by a later tailpost", path.display())]
    Version { path: PathBuf, found: u32 },
    #[error("checkpoint `{}` belongs to {found}, expected {expected}: give this pipeline a --state-dir of its own, or remove the file to go on where the slot stands, or where `start` says in a binlog", path.display())]
    Foreign {
        path: PathBuf,
        found: String,
        expected: String,
    },
    #[error("a checkpoint file of this pipeline is at `{}`, and its checkpoint is to be in Kafka: move it there with `tailpost position export` and `import`, or remove the file to begin anew", path.display())]
    Leftover { path: PathBuf },
    #[error("save checkpoint `{}`, expected a folder that takes it: make room on its disk, or give the right to write there", path.display())]
    Save { path: PathBuf, source: io::Error },
    #[error("rename checkpoint `{}` to `{}`", path.display(), to.display())]
    SetAside {
        path: PathBuf,
        to: PathBuf,
        source: io::Error,
    },
}

impl FileStoreError {
    pub(super) fn can_heal(&self) -> bool {
        matches!(self, Self::Save { .. })
    }

    pub(super) fn is_of_content(&self) -> bool {
        matches!(self, Self::Damaged { .. } | Self::Version { .. } | Self::Foreign { .. })
    }
}

/// The checkpoint file of one pipeline, locked against other processes for as long as this lives.
#[derive(Debug)]
pub struct FileStore {
    folder: PathBuf,
    path: PathBuf,
    pipeline: String,
    source: String,
    gap: GapWord,
    /// Held, not used: closing it frees the lock.
    _lock: File,
}

impl FileStore {
    /// Makes the folder where it is missing and takes the lock.
    ///
    /// # Errors
    /// [`FileStoreError::Locked`] when another process has it.
    pub fn open(folder: &Path, pipeline: &str, source: &str) -> Result<Self, FileStoreError> {
        let failed = |source| FileStoreError::Folder {
            path: folder.to_owned(),
            source,
        };
        fs::create_dir_all(folder).map_err(failed)?;
        let path = folder.join(format!("{pipeline}.lock"));
        let failed = |source| FileStoreError::Lock {
            path: path.clone(),
            source,
        };
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(FileStoreError::Locked {
                    pipeline: pipeline.to_owned(),
                    path: folder.to_owned(),
                });
            }
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        Ok(Self {
            folder: folder.to_owned(),
            path: Self::path_in(folder, pipeline),
            pipeline: pipeline.to_owned(),
            source: source.to_owned(),
            gap: GapWord::default(),
            _lock: lock,
        })
    }

    /// Makes sure that no file of a time is there when the pipeline kept its checkpoint in one: what keeps it now would begin
    /// anew beside it.
    ///
    /// # Errors
    /// [`FileStoreError::Leftover`]
    pub fn refuse_leftover(folder: &Path, pipeline: &str) -> Result<(), FileStoreError> {
        let path = Self::path_in(folder, pipeline);
        match path.exists() {
            true => Err(FileStoreError::Leftover { path }),
            false => Ok(()),
        }
    }

    /// Where the checkpoint of a pipeline is.
    pub fn path_in(folder: &Path, pipeline: &str) -> PathBuf {
        folder.join(format!("{pipeline}.json"))
    }

    /// Renames the checkpoint to `<pipeline>.json.moved`, over an older one of that name, and gives that path.
    ///
    /// # Errors
    /// [`FileStoreError::SetAside`]
    pub fn set_aside(self) -> Result<PathBuf, FileStoreError> {
        let to = self.path.with_extension("json.moved");
        let renamed = fs::rename(&self.path, &to).and_then(|()| File::open(&self.folder)?.sync_all());
        match renamed {
            Ok(()) => Ok(to),
            Err(source) => Err(FileStoreError::SetAside {
                path: self.path,
                to,
                source,
            }),
        }
    }

    /// Saves a position that an operator names: [`Store::set`].
    ///
    /// # Errors
    /// As saving has them.
    pub async fn set(&mut self, position: &Position) -> Result<(), FileStoreError> {
        self.keep(Document::by_hand(&self.pipeline, &self.source, position))
            .await
    }

    async fn keep(&self, document: Document) -> Result<(), FileStoreError> {
        let (folder, path) = (self.folder.clone(), self.path.clone());
        let written = tokio::task::spawn_blocking(move || write(&folder, &path, &document.to_text()?));
        let written = written.await.unwrap_or_else(|panic| Err(io::Error::other(panic)));
        written.map_err(|source| FileStoreError::Save {
            path: self.path.clone(),
            source,
        })
    }

    /// What a process saved last that may still run: without the lock.
    ///
    /// # Errors
    /// As loading it has them.
    pub fn peek(folder: &Path, pipeline: &str, source: &str) -> Result<Option<Position>, FileStoreError> {
        Ok(read(&Self::path_in(folder, pipeline), pipeline, source)?.map(|document| document.position))
    }
}

fn read(path: &Path, pipeline: &str, source: &str) -> Result<Option<Document>, FileStoreError> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => {
            return Err(FileStoreError::Read {
                path: path.to_owned(),
                source,
            });
        }
    };
    let document = Document::read(&text).map_err(|error| match error {
        DocumentError::Damaged(reason) => FileStoreError::Damaged {
            path: path.to_owned(),
            reason,
        },
        DocumentError::Version(found) => FileStoreError::Version {
            path: path.to_owned(),
            found,
        },
    })?;
    if document.pipeline != pipeline || document.source != source {
        return Err(FileStoreError::Foreign {
            path: path.to_owned(),
            found: format!("pipeline `{}` with source `{}`", document.pipeline, document.source),
            expected: format!("pipeline `{pipeline}` with source `{source}`"),
        });
    }
    Ok(Some(document))
}

fn write(folder: &Path, path: &Path, text: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension("json.new");
    let mut file = File::create(&temporary)?;
    file.write_all(text)?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    // The rename is durable only once the folder is.
    File::open(folder)?.sync_all()
}

impl CheckpointStore for FileStore {
    async fn load(&mut self) -> Result<Option<Position>, CheckpointError> {
        Ok(self.gap.loaded(read(&self.path, &self.pipeline, &self.source)?))
    }

    async fn save(&mut self, position: &Position) -> Result<(), CheckpointError> {
        Ok(self.keep(Document::new(&self.pipeline, &self.source, position)).await?)
    }

    fn gap_accepted(&mut self) -> bool {
        self.gap.tell()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::position::{Lsn, Partial, PostgresPosition};

    fn position() -> Position {
        Position::Postgres(PostgresPosition {
            system_identifier: 7_400_000_000_000_000_000,
            timeline: 1,
            base: Lsn(0x1_0000_0002),
            partial: Some(Partial {
                commit: Lsn(0x1_0000_0100),
                change: Lsn(0x1_0000_0050),
                index: 3,
            }),
            last_event_end: Lsn(5),
        })
    }

    #[tokio::test]
    async fn what_was_saved_is_loaded_again() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        assert_eq!(FileStore::peek(&state, "orders", "pg1").unwrap(), None);
        let mut store = FileStore::open(&state, "orders", "pg1").unwrap();
        assert_eq!(store.load().await.unwrap(), None);
        store.save(&position()).await.unwrap();
        assert_eq!(FileStore::peek(&state, "orders", "pg1").unwrap(), Some(position()));
        drop(store);
        let mut store = FileStore::open(&state, "orders", "pg1").unwrap();
        assert_eq!(store.load().await.unwrap(), Some(position()));
    }

    #[tokio::test]
    async fn a_cut_file_is_named_as_damaged() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = FileStore::open(folder.path(), "orders", "pg1").unwrap();
        store.save(&position()).await.unwrap();
        let whole = fs::read(folder.path().join("orders.json")).unwrap();
        for length in 0..whole.len() - 2 {
            fs::write(folder.path().join("orders.json"), &whole[..length]).unwrap();
            let text = store.load().await.unwrap_err().to_string();
            assert!(
                text.contains("orders.json") && text.contains("damaged"),
                "{length}: {text}"
            );
        }
    }

    #[tokio::test]
    async fn a_foreign_or_later_file_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        FileStore::open(folder.path(), "orders", "pg1")
            .unwrap()
            .save(&position())
            .await
            .unwrap();
        let text = FileStore::open(folder.path(), "orders", "pg2")
            .unwrap()
            .load()
            .await
            .unwrap_err()
            .to_string();
        assert!(text.contains("source `pg1`") && text.contains("source `pg2`"), "{text}");
        fs::write(
            folder.path().join("orders.json"),
            r#"{"version": 2, "place": "elsewhere"}"#,
        )
        .unwrap();
        let text = FileStore::open(folder.path(), "orders", "pg1")
            .unwrap()
            .load()
            .await
            .unwrap_err()
            .to_string();
        assert!(text.contains("version 2"), "{text}");
    }

    #[test]
    fn a_second_process_is_kept_out() {
        let folder = tempfile::tempdir().unwrap();
        let first = FileStore::open(folder.path(), "orders", "pg1").unwrap();
        assert!(matches!(
            FileStore::open(folder.path(), "orders", "pg1"),
            Err(FileStoreError::Locked { .. })
        ));
        FileStore::open(folder.path(), "payments", "pg1").unwrap();
        drop(first);
        FileStore::open(folder.path(), "orders", "pg1").unwrap();
    }
}
