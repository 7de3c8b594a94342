//! What the relays, and the saver, know of the thread that writes down what became of events.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::config::Pipeline;
use crate::position::{EventPosition, Position};
use crate::relay::in_flight::Acks;
use crate::telemetry::status::PipelineStatus;

use super::book::Book;
use super::dispatches::Dispatches;
use super::entry::Entry;
use super::furthest::FurthestFile;
use super::ledger::LedgerError;
use super::writer::{Job, Writer};

/// What a thread that ends is waited for at most: it has no more to do than to sync a file and to remove another.
const LONGEST_END: Duration = Duration::from_secs(5);

/// A pipeline's, over all its lives; nothing, where its file asks for nothing. Cheap to clone.
#[derive(Clone, Default)]
pub struct Journal(Option<Arc<Inner>>);

struct Inner {
    queue: Sender<Job>,
    /// The saver syncs what the thread has written. Neither holds it while it waits.
    book: Option<Book>,
    sinks: Mutex<BTreeMap<String, Arc<SinkState>>>,
    has_dispatches: bool,
    has_context: bool,
    state_dir: PathBuf,
    pipeline: String,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
    /// Its other side is gone when the thread has ended.
    ended: Mutex<Option<oneshot::Receiver<()>>>,
}

/// What is known of one sink, over the pipeline's lives.
#[derive(Debug)]
pub(super) struct SinkState {
    pub(super) name: String,
    furthest: Mutex<Option<Position>>,
    file: FurthestFile,
}

impl SinkState {
    fn furthest(&self) -> MutexGuard<'_, Option<Position>> {
        self.furthest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Events up to this position are settled.
    pub(super) fn extend(&self, position: &Position) {
        let mut furthest = self.furthest();
        match &mut *furthest {
            Some(furthest) => furthest.extend(position),
            None => *furthest = Some(position.clone()),
        }
    }

    /// Writes down how far events are settled.
    pub(super) fn keep(&self) {
        let furthest = self.furthest().clone();
        if let Some(furthest) = furthest
            && let Err(error) = self.file.write(&furthest)
        {
            tracing::debug!(error = %error, "how far events are settled cannot be written");
        }
    }
}

#[derive(Debug)]
pub(super) struct PortState {
    pub(super) sink: Arc<SinkState>,
    acks: Acks,
    /// Entries that are written.
    written: AtomicU64,
    /// Commits that are prepared.
    prepared: AtomicU64,
}

impl PortState {
    pub(super) fn wrote(&self, count: usize) {
        self.written.fetch_add(count as u64, Ordering::AcqRel);
        self.acks.wake();
    }

    pub(super) fn has_prepared(&self) {
        self.prepared.fetch_add(1, Ordering::AcqRel);
        self.acks.wake();
    }
}

impl Journal {
    /// Starts the thread, where there is something to write.
    pub(crate) fn start(pipeline: &Pipeline, state_dir: &Path, status: &Arc<PipelineStatus>) -> Self {
        let book = Book::new(pipeline, state_dir);
        let place = pipeline.dispatches.as_ref();
        let dispatches = place.and_then(|place| Dispatches::new(place, state_dir, status.dispatch_queue()));
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
        let has_context = dispatches.as_ref().is_some_and(Dispatches::have_context);
        let writer = Writer::new(
            book.clone(),
            dispatches,
            &pipeline.name,
            Arc::clone(status),
            Arc::clone(&stop),
        );
        let here = tracing::Span::current();
        let (ending, ended) = oneshot::channel::<()>();
        let thread = thread::spawn(move || {
            here.in_scope(|| writer.run(&jobs));
            drop(ending);
        });
        Self(Some(Arc::new(Inner {
            queue,
            book,
            sinks: Mutex::default(),
            has_dispatches,
            has_context,
            state_dir: state_dir.to_owned(),
            pipeline: pipeline.name.clone(),
            stop,
            thread,
            ended: Mutex::new(Some(ended)),
        })))
    }

    /// The end of the thread, which comes when nobody has the journal any more: then an end that was asked for has left
    /// nothing to look through. Waits no longer than a disk may take; for the first who asks.
    pub(crate) fn ended(&self) -> impl Future<Output = ()> + use<> {
        let ended = self.0.as_ref().and_then(|inner| {
            let mut ended = inner.ended.lock().unwrap_or_else(PoisonError::into_inner);
            ended.take()
        });
        async move {
            if let Some(ended) = ended
                && timeout(LONGEST_END, ended).await.is_err()
            {
                tracing::warn!("the audit ledger's thread still has to write; it is left behind");
            }
        }
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
            has_context: inner.has_context,
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

/// A relay's side.
#[derive(Debug)]
pub struct Port {
    state: Arc<PortState>,
    queue: Sender<Job>,
    /// How far events were settled before this life.
    known: Option<Position>,
    has_dispatches: bool,
    has_context: bool,
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

    /// Whether entries say in which span the application wrote the event.
    pub(crate) fn takes_context(&self) -> bool {
        self.has_context
    }

    /// Whether a commit must be prepared.
    pub(crate) fn prepares(&self) -> bool {
        self.has_ledger
    }

    /// Has entries written; `reached` is the position behind the last of them that is settled.
    pub(crate) fn give(&self, entries: Vec<Entry>, reached: Option<&Position>) {
        if let Some(reached) = reached {
            self.state.sink.extend(reached);
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
