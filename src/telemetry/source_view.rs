//! A source's hand on its pipeline's status.

use std::sync::Arc;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::position::{LogPlace, ShownPlace};

use super::status::{PipelineStatus, State};

/// What the database's server keeps of its log, as it was last seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Kept {
    /// PostgreSQL keeps this much for the slot.
    Slot {
        slot: String,
        /// WAL from the slot's `restart_lsn` to the log's end; none where the server keeps nothing for it any more.
        bytes: Option<u64>,
        wal_status: Option<String>,
    },
    /// MySQL and MariaDB keep files for as long as they are set to, for whomever.
    Binlog {
        oldest_file: String,
        files: u64,
        bytes: u64,
    },
}

impl Kept {
    pub fn bytes(&self) -> Option<u64> {
        match self {
            Self::Slot { bytes, .. } => *bytes,
            Self::Binlog { bytes, .. } => Some(*bytes),
        }
    }
}

/// See the module's text.
#[derive(Debug, Clone)]
pub struct SourceView(Arc<PipelineStatus>);

impl SourceView {
    pub fn new(status: Arc<PipelineStatus>) -> Self {
        Self(status)
    }

    pub fn streaming(&self) {
        self.0.streaming();
    }

    /// The source is its own, and it is asked where to begin.
    pub fn starting(&self) {
        self.0.enter(State::Starting);
    }

    /// The connection was given up for now.
    pub fn waiting(&self, reason: String) {
        self.0.enter(State::Waiting { reason });
    }

    /// Nothing comes though the log moves; kept over connections until something does. True: this is news.
    pub fn trouble(&self, trouble: Option<String>) -> bool {
        let mut inner = self.0.inner();
        if let Some(trouble) = &trouble {
            inner.note_error(trouble);
        }
        let news = inner.source_trouble != trouble;
        inner.source_trouble = trouble;
        news
    }

    /// A position was confirmed to the server.
    pub fn confirmed(&self, place: ShownPlace) {
        self.0.inner().confirmed = Some((place, Instant::now()));
    }

    /// Tells the ends of the log's files, oldest first, comparable with [`Position::log_place`].
    ///
    /// [`Position::log_place`]: crate::position::Position::log_place
    pub fn log_files(&self, files: Vec<LogPlace>) {
        self.0.log().files(files, Instant::now());
    }

    /// Tells what the server keeps.
    pub fn kept(&self, kept: Kept) {
        self.0.inner().kept = Some(kept);
    }

    /// An operator's word let a gap pass.
    pub fn gap_accepted(&self) {
        self.0.count(|totals| totals.accepted_gaps += 1);
    }
}
