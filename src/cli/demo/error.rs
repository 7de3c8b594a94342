//! What can end the demo early, with what to do about it.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use rdkafka::error::KafkaError;

use crate::checkpoint::file::FileStoreError;
use crate::source::MysqlError;

use super::database::Wanted;

/// See each variant's text. Where a program's own words help, its last log lines come along.
#[derive(Debug, thiserror::Error)]
pub(super) enum DemoError {
    #[error(
        "the {} server's programs ({}) are not found: {}, or set {} to their folder",
        wanted.name, wanted.programs, wanted.install, wanted.variable
    )]
    NoPrograms { wanted: &'static Wanted },
    #[error(
        "{} is `{}`, which lacks {} of {}: set it to the folder of that server's programs",
        wanted.variable, path.display(), wanted.programs, wanted.name
    )]
    NotItsPrograms { wanted: &'static Wanted, path: PathBuf },
    #[error(
        "{} in `{}` is {found}, and {}.{} or later is needed: install a newer one, or set {} to its folder",
        wanted.name, path.display(), wanted.oldest.0, wanted.oldest.1, wanted.variable
    )]
    OldPrograms {
        wanted: &'static Wanted,
        path: PathBuf,
        found: String,
    },
    #[error(
        "database servers refuse to run as root, and there is no user postgres, mysql or nobody here: run the demo as an ordinary user"
    )]
    NoServerUser,
    #[error("make a temporary folder in `{}`: set TMPDIR to a folder that can be written", parent.display())]
    Folder { parent: PathBuf, source: io::Error },
    #[error(
        "no temporary folder will do: the server's user must be able to enter it, and its path must be shorter than {limit} bytes; set TMPDIR to such a folder"
    )]
    NoFolder { limit: usize },
    #[error("remove the temporary folder `{}`", path.display())]
    FolderStays { path: PathBuf, source: io::Error },
    #[error("{action}")]
    Io { action: &'static str, source: io::Error },
    #[error("run `{}`", program.display())]
    Spawn { program: PathBuf, source: io::Error },
    #[error("{what} ended by itself ({status}){log}")]
    Ended {
        what: &'static str,
        status: String,
        log: String,
    },
    #[error("waited {} s for {what}, in vain{log}", limit.as_secs())]
    Deadline {
        what: &'static str,
        limit: Duration,
        log: String,
    },
    #[error("{action} on the private PostgreSQL")]
    Postgres {
        action: &'static str,
        source: tokio_postgres::Error,
    },
    #[error("work with the private server")]
    Mysql(#[source] Box<MysqlError>),
    #[error("the private server's answer is `{found}`: expected {expected}")]
    Answer { expected: &'static str, found: String },
    #[error("{action} on the in-process Kafka broker")]
    Kafka { action: &'static str, source: KafkaError },
    #[error("the consumer ended: {reason}")]
    Consumer { reason: String },
    #[error("read the relay's checkpoint")]
    Checkpoint(#[from] FileStoreError),
    #[error("a record arrived that the demo did not write: topic `{topic}`, {what}")]
    Stranger { topic: String, what: String },
    #[error("a record of the order that was rolled back arrived")]
    RolledBackArrived,
    #[error("{lost} messages are lost, {out_of_order} are out of order, {changed_ids} came again under another id")]
    Bad {
        lost: u64,
        out_of_order: u64,
        changed_ids: u64,
    },
    #[error("write to stdout")]
    Output(#[from] io::Error),
}

impl From<MysqlError> for DemoError {
    fn from(error: MysqlError) -> Self {
        Self::Mysql(Box::new(error))
    }
}
