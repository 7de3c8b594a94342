//! The ledger of a pipeline, with what its lines are made with, and the lines of commits that are under way.

use std::collections::HashSet;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::config::{AuditNames, Pipeline};
use crate::position::Position;

use super::chain::without_end;
use super::entry::Entry;
use super::ledger::{Ledger, LedgerError, LedgerPlace};
use super::prepared::{Prepared, PreparedFile};

/// The ledger, and what its lines are made with.
#[derive(Clone)]
pub(super) struct Book {
    ledger: Arc<Mutex<Ledger>>,
    pub(super) path: Arc<Path>,
    names: Arc<AuditNames>,
    mapped: Arc<[String]>,
}

impl Book {
    /// None: the file asks for no ledger.
    pub(super) fn new(pipeline: &Pipeline, state_dir: &Path) -> Option<Self> {
        let audit = pipeline.audit.as_ref()?;
        let path = state_dir.join(&audit.path);
        let place = LedgerPlace {
            path: path.clone(),
            max_size: audit.max_size,
            keep: audit.keep,
        };
        Some(Self {
            ledger: Arc::new(Mutex::new(Ledger::new(place))),
            path: path.into(),
            names: Arc::new(audit.names.clone()),
            mapped: audit.fields.iter().map(|(name, _)| name.clone()).collect(),
        })
    }

    pub(super) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn write_line(&self, out: &mut Vec<u8>, entry: &Entry, sink: &str) {
        entry.write_line(out, &self.names, &self.mapped, sink);
    }

    /// Writes the lines of these entries down beside the ledger; they are durable when it returns, as is all that the ledger has.
    ///
    /// # Errors
    /// Nothing may be committed with the position yet.
    pub(super) fn prepare(&self, sink: &str, entries: &[Entry], position: &Position) -> Result<(), LedgerError> {
        let file = PreparedFile::new(&self.path, sink);
        let mut ledger = self.ledger();
        let seq = ledger.head()?.seq;
        // The lines of the commit before are in it by now, and in the file no more.
        ledger.sync()?;
        drop(ledger);
        let text = |entry: &Entry| {
            let mut line = Vec::new();
            self.write_line(&mut line, entry, sink);
            String::from_utf8_lossy(&line).into_owned()
        };
        let lines = entries
            .iter()
            .filter(|entry| entry.outcome.is_final())
            .map(text)
            .collect();
        let written = file.write(&Prepared {
            position: position.clone(),
            seq,
            lines,
        });
        written.map_err(|source| LedgerError::Write {
            path: file.path().to_owned(),
            source,
        })
    }

    /// Adds the lines of a commit that has gone through without their being written, given the position that was committed
    /// last. True: it had gone through.
    ///
    /// # Errors
    /// It is to be tried again.
    pub(super) fn recover(&self, sink: &str, committed: Option<&Position>) -> Result<bool, LedgerError> {
        let file = PreparedFile::new(&self.path, sink);
        let failed = |source| LedgerError::Open {
            path: file.path().to_owned(),
            source,
        };
        let Some(prepared) = file.read().map_err(failed)? else {
            return Ok(false);
        };
        let went_through = committed == Some(&prepared.position);
        if went_through {
            let mut ledger = self.ledger();
            let written = ledger.lines_after(prepared.seq)?;
            let written: HashSet<&[u8]> = written.iter().map(|line| without_end(line)).collect();
            let is_missing = |line: &&String| !written.contains(line.as_bytes());
            let missing: Vec<&String> = prepared.lines.iter().filter(is_missing).collect();
            let mut count = 0;
            ledger.append(&missing, &mut count, |out, line| out.extend_from_slice(line.as_bytes()))?;
            ledger.sync()?;
            if count > 0 {
                tracing::info!(
                    lines = count,
                    "lines of a commit that had gone through are added to the audit ledger"
                );
            }
        }
        file.remove().map_err(failed)?;
        Ok(went_through)
    }
}
