//! Why a position could not be shown, moved or set.

use std::io;

use crate::checkpoint::{CheckpointError, DocumentError};
use crate::position::Lsn;
use crate::source::SourceError;

#[derive(Debug, thiserror::Error)]
pub(super) enum PositionError {
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The server was asked.
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error(
        "pipeline `{pipeline}` has no position in {place}: it has not run yet, or keeps it elsewhere (see --store and --state-dir)"
    )]
    NothingSaved { pipeline: String, place: String },
    #[error("{place} has another position of this pipeline, {saved}: pass --replace to do without it")]
    Occupied { place: String, saved: String },
    #[error(transparent)]
    Offset(#[from] super::debezium::OffsetError),
    #[error("the pipeline's sink has no cluster that could keep positions: expected `--store file`")]
    NoCluster,
    #[error("stdin is no position")]
    Document(#[source] DocumentError),
    #[error(
        "the position is of {found}, expected {expected}: pass --as-this to take it all the same, where the database is the same"
    )]
    Foreign { found: String, expected: String },
    #[error("the position is of {found}, expected one of {expected}")]
    OtherDatabase {
        found: &'static str,
        expected: &'static str,
    },
    #[error(
        "events between the saved position and the new one are not published, or once more: pass --accept-gap if that is meant"
    )]
    WithoutWord,
    #[error("{found} is no place in the log of {database}: expected {expected}")]
    OtherLog {
        found: &'static str,
        database: &'static str,
        expected: &'static str,
    },
    #[error("{lsn} lies beyond the end of the server's log at {end}: expected a place in it")]
    BeyondLog { lsn: Lsn, end: Lsn },
    #[error("make JSON")]
    Json(#[source] serde_json::Error),
    #[error("read stdin")]
    Input(#[source] io::Error),
    #[error("write to stdout")]
    Output(#[source] io::Error),
}

impl PositionError {
    /// Whether the command was given wrongly.
    pub(super) fn is_usage(&self) -> bool {
        matches!(self, Self::WithoutWord | Self::NoCluster | Self::OtherLog { .. })
    }
}
