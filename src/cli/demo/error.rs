//! What can end the demo early, with what to do about it.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use rdkafka::error::KafkaError;

use crate::checkpoint::CheckpointError;

/// See each variant's text. Where a program's own words help, its last log lines come along.
#[derive(Debug, thiserror::Error)]
pub(super) enum DemoError {
    #[error(
        "the PostgreSQL server's programs (initdb, postgres) are not found: install the package (Debian, Ubuntu: \
         apt-get install postgresql; macOS: brew install postgresql@17), or set TAILPOST_PG_BIN to their folder"
    )]
    NoPostgres,
    #[error("TAILPOST_PG_BIN is `{}`, which lacks initdb or postgres: set it to the folder of the PostgreSQL server's programs", path.display())]
    NotItsPrograms { path: PathBuf },
    #[error("PostgreSQL in `{}` is {found}, and 14 or later is needed: install a newer one, or set TAILPOST_PG_BIN to its folder", path.display())]
    OldPostgres { path: PathBuf, found: String },
    #[error(
        "PostgreSQL refuses to run as root, and there is neither a user postgres nor nobody here: run the demo as an ordinary user"
    )]
    NoServerUser,
    #[error("make a temporary folder in `{}`: set TMPDIR to a folder that can be written", parent.display())]
    Folder { parent: PathBuf, source: io::Error },
    #[error(
        "no temporary folder will do: PostgreSQL's user must be able to enter it, and its path must be shorter than {limit} bytes; set TMPDIR to such a folder"
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
    Sql {
        action: &'static str,
        source: tokio_postgres::Error,
    },
    #[error("{action} on the in-process Kafka broker")]
    Kafka { action: &'static str, source: KafkaError },
    #[error("the consumer ended: {reason}")]
    Consumer { reason: String },
    #[error("read the relay's checkpoint")]
    Checkpoint(#[from] CheckpointError),
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
