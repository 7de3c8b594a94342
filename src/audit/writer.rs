//! The thread that writes: one job after the other, each until it is done.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::position::Position;
use crate::telemetry::error_chain;
use crate::telemetry::status::PipelineStatus;

use super::book::Book;
use super::dispatches::{DispatchTarget, Dispatches};
use super::entry::Entry;
use super::journal::{PortState, SinkState};
use super::ledger::LedgerError;
use super::prepared::PreparedFile;

/// Between two tries of a write: first, and at most.
const RETRY: Duration = Duration::from_millis(100);
const LONGEST_RETRY: Duration = Duration::from_secs(5);

/// What there is to do.
#[derive(Debug)]
pub(super) enum Job {
    /// The ledger is to be opened, so that what is wrong with it shows before it is needed.
    Open,
    Write {
        port: Arc<PortState>,
        entries: Vec<Entry>,
    },
    /// Behind all that is to be written: its lines can be those that are looked for.
    Recover {
        sink: Arc<SinkState>,
        committed: Option<Box<Position>>,
        done: oneshot::Sender<()>,
    },
    /// A commit is to begin.
    Prepare {
        port: Arc<PortState>,
        entries: Vec<Entry>,
        position: Box<Position>,
    },
}

/// See the module's text.
pub(super) struct Writer {
    book: Option<Book>,
    dispatches: Option<Dispatches>,
    pipeline: String,
    status: Arc<PipelineStatus>,
    stop: Arc<AtomicBool>,
    has_trouble: bool,
    /// Dispatch records were lost, and the log has said so.
    has_lost: bool,
}

impl Writer {
    pub(super) fn new(
        book: Option<Book>,
        dispatches: Option<Dispatches>,
        pipeline: &str,
        status: Arc<PipelineStatus>,
        stop: Arc<AtomicBool>,
    ) -> Self {
        Self {
            book,
            dispatches,
            pipeline: pipeline.to_owned(),
            status,
            stop,
            has_trouble: false,
            has_lost: false,
        }
    }

    /// Writes until nobody has anything to write any more, or what cannot be written is to be left.
    pub(super) fn run(mut self, jobs: &Receiver<Job>) {
        // Of each sink's last commit, the lines that are not in the ledger yet.
        let mut committing: BTreeMap<String, usize> = BTreeMap::new();
        while let Ok(job) = jobs.recv() {
            let goes_on = match job {
                Job::Open => self.persist(|book| book.ledger().open()),
                Job::Write { port, entries } => {
                    if let Some(lines) = committing.get_mut(&port.sink.name) {
                        *lines = lines.saturating_sub(final_ones(&entries).count());
                    }
                    self.write(&port, &entries)
                }
                Job::Recover { sink, committed, done } => {
                    let committed = committed.as_deref();
                    let recovered = self.persist(|book| {
                        if book.recover(&sink.name, committed)?
                            && let Some(committed) = committed
                        {
                            sink.extend(committed);
                        }
                        Ok(())
                    });
                    let _ = done.send(());
                    recovered
                }
                Job::Prepare {
                    port,
                    entries,
                    position,
                } => {
                    let sink = &port.sink.name;
                    let prepared = self.persist(|book| book.prepare(sink, &entries, &position));
                    if prepared {
                        port.has_prepared();
                    }
                    committing.insert(sink.clone(), final_ones(&entries).count());
                    prepared
                }
            };
            if !goes_on {
                return;
            }
        }
        // An end that was asked for leaves nothing to look through at the next start. How another commit ended, that start sees.
        if let Some(book) = &self.book
            && book.ledger().sync().is_ok()
        {
            for name in committing
                .iter()
                .filter_map(|(name, lines)| (*lines == 0).then_some(name))
            {
                let _ = PreparedFile::new(&book.path, name).remove();
            }
        }
    }

    fn write(&mut self, port: &PortState, entries: &[Entry]) -> bool {
        let lines: Vec<&Entry> = final_ones(entries).collect();
        let (sink, mut done) = (&port.sink, 0);
        // Before the lines: the sink has the events, and one that comes again with a line must be told.
        sink.keep();
        let written = self.persist(|book| {
            let mut ledger = book.ledger();
            ledger.append(&lines, &mut done, |out, entry| book.write_line(out, entry, &sink.name))
        });
        if !written {
            return false;
        }
        let dispatches = self.dispatches.as_mut();
        let dispatched = dispatches.map_or(Ok(()), |to| to.write(&self.pipeline, &sink.name, entries));
        if let Err(error) = &dispatched
            && !self.has_lost
        {
            tracing::error!(error = %error, records = entries.len(), "dispatch records cannot be written, and are lost until they can");
        }
        self.has_lost = dispatched.is_err();
        port.wrote(entries.len());
        true
    }

    /// Tries until it is done. False: the pipeline has ended meanwhile.
    fn persist(&mut self, mut attempt: impl FnMut(&Book) -> Result<(), LedgerError>) -> bool {
        let Some(book) = &self.book else { return true };
        let mut wait = RETRY;
        loop {
            let Err(error) = attempt(book) else {
                if std::mem::take(&mut self.has_trouble) {
                    tracing::info!("the audit ledger is writable again");
                    self.status.audit_trouble(None);
                }
                return true;
            };
            let text = error_chain(&error);
            self.has_trouble = true;
            if self.status.audit_trouble(Some(text.clone())) {
                tracing::error!(error = %text, "nothing counts as published until its line can be written");
            }
            if self.stop.load(Ordering::Acquire) {
                return false;
            }
            thread::park_timeout(wait);
            wait = (wait * 2).min(LONGEST_RETRY);
        }
    }
}

/// Those that have a line in the ledger.
fn final_ones(entries: &[Entry]) -> impl Iterator<Item = &Entry> {
    entries.iter().filter(|entry| entry.outcome.is_final())
}

impl Drop for Writer {
    fn drop(&mut self) {
        if thread::panicking() {
            let text = "audit ledger not writable: its thread failed; this is a fault of tailpost";
            self.status.audit_trouble(Some(text.to_owned()));
        }
    }
}
