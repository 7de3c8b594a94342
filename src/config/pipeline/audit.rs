//! `spec.audit` and `spec.dispatches`: what is written down of events.

use std::path::PathBuf;

use reqwest::Url;

use crate::config::template::Template;

/// `spec.audit`: a ledger of what became of each event.
#[derive(Debug, Clone, PartialEq)]
pub struct Audit {
    /// Seen from the state directory.
    pub path: PathBuf,
    /// The event's own fields in a line, by name.
    pub fields: Vec<(String, Template)>,
    pub names: AuditNames,
    /// In bytes: a file of this size is full.
    pub max_size: u64,
    /// How many full files are kept; none: all.
    pub keep: Option<usize>,
}

/// What the members of a line are called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditNames {
    pub outbox_id: String,
    pub event_name: String,
    pub sink: String,
    pub status: String,
    pub reason: String,
    pub attempt: String,
    pub last_error: String,
    pub position: String,
    pub duplicate: String,
    pub time: String,
}

impl Default for AuditNames {
    fn default() -> Self {
        Self {
            outbox_id: "outbox_id".to_owned(),
            event_name: "event_name".to_owned(),
            sink: "sink".to_owned(),
            status: "status".to_owned(),
            reason: "reason".to_owned(),
            attempt: "attempt".to_owned(),
            last_error: "last_error".to_owned(),
            position: "position".to_owned(),
            duplicate: "duplicate".to_owned(),
            time: "time".to_owned(),
        }
    }
}

impl AuditNames {
    /// All of them.
    pub(in crate::config) fn all(&self) -> [&str; 10] {
        [
            &self.outbox_id,
            &self.event_name,
            &self.sink,
            &self.status,
            &self.reason,
            &self.attempt,
            &self.last_error,
            &self.position,
            &self.duplicate,
            &self.time,
        ]
    }
}

/// `spec.dispatches`: where a record of each delivery goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Dispatches {
    /// Seen from the state directory.
    File(PathBuf),
    Stdout,
    /// To a collector, as OTLP logs.
    Otlp {
        /// Below which the path for logs follows. None: the collector that the command line or the environment names.
        endpoint: Option<Url>,
    },
}
