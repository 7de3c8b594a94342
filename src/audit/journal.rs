//! The thread that writes down what became of events, for all sinks of one pipeline, and what the relays know of it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::config::{AuditNames, Pipeline};
use crate::position::{EventPosition, Position};
use crate::relay::in_flight::Acks;
use crate::telemetry::error_chain;
use crate::telemetry::status::PipelineStatus;

use super::dispatches::{DispatchTarget, Dispatches};
use super::entry::Entry;
use super::furthest::FurthestFile;
use super::ledger::{Ledger, LedgerError, LedgerPlace};
use super::prepared::{Prepared, PreparedFile};

/// Between two tries of a write: first, and at most.
const RETRY: Duration = Duration::from_millis(100);
const LONGEST_RETRY: Duration = Duration::from_secs(5);

/// A pipeline's, over all its lives; nothing, where its file asks for nothing. Cheap to clone.
#[derive(Clone, Default)]
pub struct Journal(Option<Arc<Inner>>);

struct Inner {
    queue: Sender<Job>,
    /// The saver syncs what the thread has written. Neither holds it while it waits.
    book: Option<Book>,
    sinks: Mutex<BTreeMap<String, Arc<SinkState>>>,
    has_dispatches: bool,
    state_dir: PathBuf,
    pipeline: String,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

/// The ledger, and what its lines are made with.
#[derive(Clone)]
struct Book {
    ledger: Arc<Mutex<Ledger>>,
    path: Arc<Path>,
    names: Arc<AuditNames>,
    mapped: Arc<[String]>,
}

impl Book {
    fn new(pipeline: &Pipeline, state_dir: &Path) -> Option<Self> {
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

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_line(&self, out: &mut Vec<u8>, entry: &Entry, sink: &str) {
        entry.write_line(out, &self.names, &self.mapped, sink);
    }

    fn prepare(&self, sink: &str, entries: &[Entry], position: Position) -> Result<(), LedgerError> {
        let file = PreparedFile::new(&self.path, sink);
        let mut ledger = self.ledger();
        let seq = ledger.head()?.seq;
        // What the file has is in the ledger by now, and goes away with it.
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
        let written = file.write(&Prepared { position, seq, lines });
        written.map_err(|source| LedgerError::Write {
            path: file.path().to_owned(),
            source,
        })
    }

    /// Adds the lines of a commit that has gone through without their being written, given the position that was committed
    /// last. True: it had gone through.
    fn recover(&self, sink: &str, committed: Option<&Position>) -> Result<bool, LedgerError> {
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
            let is_written = |line: &String| written.iter().any(|written| written.starts_with(line.as_bytes()));
            let missing: Vec<&String> = prepared.lines.iter().filter(|line| !is_written(line)).collect();
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

/// What is known of one sink, over the pipeline's lives.
#[derive(Debug)]
struct SinkState {
    name: String,
    furthest: Mutex<Option<Position>>,
    file: FurthestFile,
}

impl SinkState {
    fn furthest(&self) -> MutexGuard<'_, Option<Position>> {
        self.furthest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
enum Job {
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

#[derive(Debug)]
struct PortState {
    sink: Arc<SinkState>,
    acks: Acks,
    /// Entries that are written.
    written: AtomicU64,
    /// Commits that are prepared.
    prepared: AtomicU64,
}

impl Journal {
    /// Starts the thread, where there is something to write.
    pub(crate) fn start(pipeline: &Pipeline, state_dir: &Path, status: &Arc<PipelineStatus>) -> Self {
        let book = Book::new(pipeline, state_dir);
        let dispatches = pipeline
            .dispatches
            .as_ref()
            .map(|place| Dispatches::new(place, state_dir));
        if book.is_none() && dispatches.is_none() {
            return Self(None);
        }
        #[expect(
            clippy::disallowed_methods,
            reason = "what may be in flight, and wait to be written, bounds it"
        )]
        let (queue, jobs) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let has_dispatches = dispatches.is_some();
        let writer = Writer {
            book: book.clone(),
            dispatches,
            pipeline: pipeline.name.clone(),
            status: Arc::clone(status),
            stop: Arc::clone(&stop),
            has_trouble: false,
            has_lost: false,
        };
        let here = tracing::Span::current();
        let thread = thread::spawn(move || here.in_scope(|| writer.run(&jobs)));
        Self(Some(Arc::new(Inner {
            queue,
            book,
            sinks: Mutex::default(),
            has_dispatches,
            state_dir: state_dir.to_owned(),
            pipeline: pipeline.name.clone(),
            stop,
            thread,
        })))
    }

    /// For the relay of one life of a sink.
    pub(crate) fn port(&self, sink: &str, acks: Acks) -> Option<Port> {
        let inner = self.0.as_ref()?;
        let sink = inner.sink(sink);
        let known = sink.furthest().clone();
        // It is gone only where it failed, which nothing can be written after.
        let _ = inner.queue.send(Job::Open);
        Some(Port {
            state: Arc::new(PortState {
                sink,
                acks,
                written: AtomicU64::new(0),
                prepared: AtomicU64::new(0),
            }),
            queue: inner.queue.clone(),
            known,
            has_dispatches: inner.has_dispatches,
            has_ledger: inner.book.is_some(),
        })
    }

    /// Makes durable what is written in the ledger. Positions whose events' lines are among it may be saved then.
    ///
    /// # Errors
    /// It may not be; another try can do better.
    pub(crate) async fn sync(&self) -> Result<(), LedgerError> {
        let Some(book) = self.0.as_ref().and_then(|inner| inner.book.clone()) else {
            return Ok(());
        };
        let path = Arc::clone(&book.path);
        let synced = tokio::task::spawn_blocking(move || book.ledger().sync()).await;
        synced.unwrap_or_else(|panic| {
            Err(LedgerError::Sync {
                path: path.to_path_buf(),
                source: std::io::Error::other(panic),
            })
        })
    }

    /// Settles what a former life, or process, left of a commit of the sink; `committed` is the position that was committed last.
    /// Nothing may be committed before. Cancel safe: it is settled all the same.
    pub(crate) async fn recover(&self, sink: &str, committed: Option<&Position>) {
        let Some(inner) = self.0.as_ref().filter(|inner| inner.book.is_some()) else {
            return;
        };
        let (done, recovered) = oneshot::channel();
        let job = Job::Recover {
            sink: inner.sink(sink),
            committed: committed.cloned().map(Box::new),
            done,
        };
        // Without an answer the thread has failed, and nothing is committed any more.
        if inner.queue.send(job).is_ok() {
            let _ = recovered.await;
        }
    }
}

impl Inner {
    fn sink(&self, name: &str) -> Arc<SinkState> {
        let mut sinks = self.sinks.lock().unwrap_or_else(PoisonError::into_inner);
        let sink = sinks.entry(name.to_owned()).or_insert_with(|| {
            let file = FurthestFile::new(&self.state_dir, &self.pipeline, name);
            Arc::new(SinkState {
                name: name.to_owned(),
                furthest: Mutex::new(file.read()),
                file,
            })
        });
        Arc::clone(sink)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.thread.thread().unpark();
    }
}

fn extend(sink: &SinkState, position: &Position) {
    let mut furthest = sink.furthest();
    match &mut *furthest {
        Some(furthest) => furthest.extend(position),
        None => *furthest = Some(position.clone()),
    }
}

/// A relay's side.
#[derive(Debug)]
pub struct Port {
    state: Arc<PortState>,
    queue: Sender<Job>,
    /// How far events were settled before this life.
    known: Option<Position>,
    has_dispatches: bool,
    has_ledger: bool,
}

impl Port {
    /// Whether the event was settled before this life, as far as it is known.
    pub(crate) fn is_repeated(&self, at: &EventPosition) -> bool {
        self.known.as_ref().is_some_and(|known| known.covers(at))
    }

    /// Whether attempts that fail are written down too.
    pub(crate) fn takes_failures(&self) -> bool {
        self.has_dispatches
    }

    /// Whether a commit must be prepared.
    pub(crate) fn prepares(&self) -> bool {
        self.has_ledger
    }

    /// Has entries written; `reached` is the position behind the last of them that is settled.
    pub(crate) fn give(&self, entries: Vec<Entry>, reached: Option<&Position>) {
        if let Some(reached) = reached {
            extend(&self.state.sink, reached);
        }
        let port = Arc::clone(&self.state);
        let _ = self.queue.send(Job::Write { port, entries });
    }

    /// How many entries are written.
    pub(crate) fn written(&self) -> u64 {
        self.state.written.load(Ordering::Acquire)
    }

    /// Has entries written down that are committed with this position.
    pub(crate) fn prepare(&self, entries: Vec<Entry>, position: &Position) {
        let _ = self.queue.send(Job::Prepare {
            port: Arc::clone(&self.state),
            entries,
            position: Box::new(position.clone()),
        });
    }

    /// How many commits are prepared.
    pub(crate) fn prepared(&self) -> u64 {
        self.state.prepared.load(Ordering::Acquire)
    }
}

struct Writer {
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
    fn run(mut self, jobs: &Receiver<Job>) {
        let mut sinks = BTreeMap::new();
        while let Ok(job) = jobs.recv() {
            let goes_on = match job {
                Job::Open => self.persist(|book| book.ledger().open()),
                Job::Write { port, entries } => self.write(&port, &entries),
                Job::Recover { sink, committed, done } => {
                    let committed = committed.as_deref();
                    let recovered = self.persist(|book| {
                        if book.recover(&sink.name, committed)?
                            && let Some(committed) = committed
                        {
                            extend(&sink, committed);
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
                    let sink = Arc::clone(&port.sink);
                    let prepared = self.persist(|book| book.prepare(&sink.name, &entries, position.as_ref().clone()));
                    if prepared {
                        port.prepared.fetch_add(1, Ordering::AcqRel);
                        port.acks.wake();
                    }
                    sinks.insert(sink.name.clone(), sink);
                    prepared
                }
            };
            if !goes_on {
                return;
            }
        }
        // An end that was asked for leaves nothing to look through at the next start.
        if let Some(book) = &self.book
            && book.ledger().sync().is_ok()
        {
            for name in sinks.keys() {
                let _ = PreparedFile::new(&book.path, name).remove();
            }
        }
    }

    fn write(&mut self, port: &PortState, entries: &[Entry]) -> bool {
        let lines: Vec<&Entry> = entries.iter().filter(|entry| entry.outcome.is_final()).collect();
        let (sink, mut done) = (&port.sink, 0);
        // Before the lines: the sink has the events, and one that comes again with a line must be told.
        let furthest = sink.furthest().clone();
        if let Some(furthest) = furthest
            && let Err(error) = sink.file.write(&furthest)
        {
            tracing::debug!(error = %error, "how far events are settled cannot be written");
        }
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
        port.written.fetch_add(entries.len() as u64, Ordering::AcqRel);
        port.acks.wake();
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
