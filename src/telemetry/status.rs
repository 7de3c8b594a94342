//! How a pipeline stands: one place that its parts write to and that metrics, `/readyz` and `/status` read.
//!
//! Counts are changed once per batch under one lock, so that a reader always sees
//! received = published + skipped + dead-lettered + in flight.

mod snapshot;
mod totals;

use std::collections::BTreeMap;
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::watch;

use crate::config::{CommitPolicy, Pipeline};
use crate::letters::notices::Notices;
use crate::position::{Position, ShownPlace};
use crate::relay::in_flight::Progress;
use crate::source::LogBatch;

use super::histogram::Histogram;
use super::log_reach::LogReach;
use super::otlp::{DispatchQueue, Tracer};
use super::rate::Rate;

pub use self::snapshot::{SinkSnapshot, Snapshot};
pub use self::totals::Totals;
pub use super::source_view::{Kept, SourceView};
pub use super::state::{NotReady, Part, Retry, SinkRetry, State};

/// The status of one pipeline, or of one of its further sinks.
#[derive(Debug)]
pub struct PipelineStatus {
    pub name: String,
    /// The leading sink: counts and ages are of what it is given.
    pub sink: String,
    /// Whether the position waits for that sink by itself.
    pub required: bool,
    /// How many of all sinks it waits for, where that is so.
    quorum: Option<usize>,
    further: Vec<Arc<PipelineStatus>>,
    pub tenant: Option<String>,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    inner: Mutex<Inner>,
    /// How often a server has begun to stream.
    streams: AtomicU64,
    in_flight_bytes: AtomicU64,
    in_flight_records: AtomicU64,
    /// The relay sends nothing until it is let go on; true while there is none.
    rests: AtomicBool,
    log: Mutex<LogReach>,
    /// Commit time of the oldest event in flight in microseconds since 1970; i64::MAX when there is none.
    oldest_us: AtomicI64,
    paused: watch::Sender<bool>,
    notices: Option<Arc<Notices>>,
    tracer: OnceLock<Tracer>,
    dispatch_queue: OnceLock<DispatchQueue>,
}

#[derive(Debug)]
pub(super) struct Inner {
    state: State,
    since: SystemTime,
    paused_since: Option<SystemTime>,
    /// What is wrong with the sink at the moment.
    sink_trouble: Option<String>,
    /// What the sink makes again by itself, and why.
    sink_retry: Option<(SinkRetry, String)>,
    /// Why there is no sink at the moment, of one that nobody waits for by itself.
    sink_gone: Option<String>,
    checkpoint_trouble: Option<String>,
    audit_trouble: Option<String>,
    /// Why a schema registry does not answer.
    registry_trouble: Option<String>,
    /// Why nothing comes though a server streams.
    pub(super) source_trouble: Option<String>,
    last_error: Option<(String, SystemTime)>,
    /// The last wait before another try, and how many there were in a row.
    retry: Option<Retry>,
    attempts: u32,
    totals: Totals,
    published: Rate,
    /// Dead letters of late, where somebody wants to know.
    parked: Option<Rate>,
    saved: Option<(Position, Instant)>,
    pub(super) confirmed: Option<(ShownPlace, Instant)>,
    pub(super) kept: Option<Kept>,
    delivery: Histogram,
    end_to_end: Histogram,
}

impl Inner {
    pub(super) fn note_error(&mut self, text: &str) {
        self.last_error = Some((text.to_owned(), SystemTime::now()));
    }

    /// The state as an operator sees it, with its begin.
    fn shown(&self) -> (State, SystemTime) {
        match (self.paused_since, &self.state) {
            (Some(since), State::Starting | State::Streaming | State::Waiting { .. }) => (State::Paused, since),
            (_, state) => (state.clone(), self.since),
        }
    }
}

impl PipelineStatus {
    pub fn new(pipeline: &Pipeline) -> Arc<Self> {
        let counted = pipeline.commit_policy == CommitPolicy::Required;
        // Letters of all sinks are told of together.
        let notices = Notices::new(pipeline).map(Arc::new);
        let further = pipeline.further_sinks.iter().map(|further| {
            Arc::new(Self {
                required: further.required && counted,
                notices: notices.clone(),
                ..Self::blank(&pipeline.name, further.sink.id())
            })
        });
        Arc::new(Self {
            required: counted,
            quorum: match pipeline.commit_policy {
                CommitPolicy::Required => None,
                CommitPolicy::Quorum(size) => Some(size),
            },
            further: further.collect(),
            tenant: pipeline.tenant.clone(),
            labels: pipeline.labels.clone(),
            annotations: pipeline.annotations.clone(),
            notices: notices.clone(),
            ..Self::blank(&pipeline.name, pipeline.sink.id())
        })
    }

    /// Of a pipeline with one sink.
    #[cfg(test)]
    pub(crate) fn named(
        name: &str,
        sink: &str,
        tenant: Option<String>,
        labels: BTreeMap<String, String>,
        annotations: BTreeMap<String, String>,
    ) -> Arc<Self> {
        Arc::new(Self {
            tenant,
            labels,
            annotations,
            ..Self::blank(name, sink)
        })
    }

    fn blank(name: &str, sink: &str) -> Self {
        Self {
            name: name.to_owned(),
            sink: sink.to_owned(),
            required: true,
            quorum: None,
            further: Vec::new(),
            tenant: None,
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            inner: Mutex::new(Inner {
                state: State::Starting,
                since: SystemTime::now(),
                paused_since: None,
                sink_trouble: None,
                sink_retry: None,
                sink_gone: None,
                checkpoint_trouble: None,
                audit_trouble: None,
                registry_trouble: None,
                source_trouble: None,
                last_error: None,
                retry: None,
                attempts: 0,
                totals: Totals::default(),
                published: Rate::new(Instant::now()),
                parked: None,
                saved: None,
                confirmed: None,
                kept: None,
                delivery: Histogram::default(),
                end_to_end: Histogram::default(),
            }),
            streams: AtomicU64::new(0),
            in_flight_bytes: AtomicU64::new(0),
            in_flight_records: AtomicU64::new(0),
            rests: AtomicBool::new(true),
            log: Mutex::default(),
            oldest_us: AtomicI64::new(i64::MAX),
            paused: watch::Sender::new(false),
            notices: None,
            tracer: OnceLock::new(),
            dispatch_queue: OnceLock::new(),
        }
    }

    /// The status of each sink, the leading one first.
    fn all(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(self.further.iter().map(|further| &**further))
    }

    /// Those of the sinks beside the leading one, in the pipeline's order.
    pub fn further_sinks(&self) -> &[Arc<Self>] {
        &self.further
    }

    /// A sink that nobody waits for is not given so many events.
    pub fn lose(&self, events: u64) {
        self.count(|totals| {
            totals.received += events;
            totals.lost += events;
        });
    }

    /// A sink that nobody waits for is gone with what was in flight; gives how many that were.
    pub fn lose_in_flight(&self) -> u64 {
        self.in_flight(0, 0, None);
        let mut lost = 0;
        self.count(|totals| {
            lost = totals.in_flight();
            totals.lost += lost;
        });
        lost
    }

    /// Dead letters that somebody is to be told of; none: nobody wants to be.
    pub(crate) fn notices(&self) -> Option<&Arc<Notices>> {
        self.notices.as_ref()
    }

    pub(super) fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the relays that are made from now on say when batches and events begin and end.
    pub fn trace(&self, tracer: Tracer) {
        // The first one stays.
        for further in &self.further {
            further.trace(tracer.clone());
        }
        let _ = self.tracer.set(tracer);
    }

    /// Counts dead letters of late: those of this time, or up to a twelfth more.
    pub fn watch_dead_letters(&self, within: Duration) {
        for status in self.all() {
            status.inner().parked = Some(Rate::over(within, Instant::now()));
        }
    }

    pub fn tracer(&self) -> Option<Tracer> {
        self.tracer.get().cloned()
    }

    /// Has dispatch records go to a collector, where the file asks for it.
    pub fn export_dispatches(&self, queue: DispatchQueue) {
        // The first one stays.
        let _ = self.dispatch_queue.set(queue);
    }

    pub fn dispatch_queue(&self) -> Option<DispatchQueue> {
        self.dispatch_queue.get().cloned()
    }

    /// How often a server has begun to stream.
    pub fn streams(&self) -> u64 {
        self.streams.load(Ordering::Relaxed)
    }

    /// A server has begun to stream.
    pub(super) fn streaming(&self) {
        self.streams.fetch_add(1, Ordering::Relaxed);
        let mut inner = self.inner();
        if inner.retry.take().is_some_and(|retry| retry.part == Part::Source) {
            inner.attempts = 0;
        }
        drop(inner);
        self.enter(State::Streaming);
    }

    /// What its parts entered last, whether an operator holds it back or not.
    pub fn state(&self) -> State {
        self.inner().state.clone()
    }

    /// Holds the relay back, or lets it go on; over lives, until the process ends. False: it was so already.
    pub fn pause(&self, paused: bool) -> bool {
        let changes = self.paused.send_if_modified(|now| mem::replace(now, paused) != paused);
        if changes {
            self.inner().paused_since = paused.then(SystemTime::now);
        }
        for further in &self.further {
            further.pause(paused);
        }
        changes
    }

    /// Whether the relay is held back, as it changes.
    pub fn pauses(&self) -> watch::Receiver<bool> {
        self.paused.subscribe()
    }

    /// A wait begins before another try of this part.
    pub fn retry(&self, part: Part, wait: Duration) {
        let mut inner = self.inner();
        inner.attempts += 1;
        inner.retry = Some(Retry {
            part,
            attempt: inner.attempts,
            at: SystemTime::now() + wait,
        });
    }

    pub(super) fn log(&self) -> MutexGuard<'_, LogReach> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn enter(&self, state: State) {
        let mut inner = self.inner();
        if let State::Waiting { reason } | State::StandBy { reason } | State::Failed { reason } = &state {
            inner.note_error(reason);
        }
        // Another reason is the same state still.
        if mem::discriminant(&inner.state) != mem::discriminant(&state) {
            inner.since = SystemTime::now();
        }
        inner.state = state;
    }

    /// An event was parked for this cause: nothing keeps the pipeline from going on, and somebody should look at it.
    pub fn parked(&self, cause: &str) {
        self.inner().note_error(cause);
    }

    /// True: this is news.
    pub fn sink_trouble(&self, trouble: Option<String>) -> bool {
        let mut inner = self.inner();
        if let Some(trouble) = &trouble {
            inner.note_error(trouble);
        }
        let news = inner.sink_trouble != trouble;
        inner.sink_trouble = trouble;
        news
    }

    /// A delivery failed of this, and is made again by the sink itself: what is shown of all that are, with the cause of one.
    pub fn sink_retry(&self, shown: Option<(SinkRetry, &str)>, failed_of: &str) {
        self.inner().note_error(failed_of);
        self.sink_retried(shown);
    }

    /// One of them is not made again any more: what is shown of those that are left.
    pub fn sink_retried(&self, shown: Option<(SinkRetry, &str)>) {
        self.inner().sink_retry = shown.map(|(retry, why)| (retry, why.to_owned()));
    }

    /// There is no sink until the next is made; None: there is one.
    pub fn sink_gone(&self, reason: Option<String>) {
        let mut inner = self.inner();
        if let Some(reason) = &reason {
            inner.note_error(reason);
        }
        inner.sink_gone = reason;
    }

    pub fn checkpoint_trouble(&self, trouble: Option<String>) {
        let mut inner = self.inner();
        if let Some(trouble) = &trouble {
            inner.note_error(trouble);
        }
        inner.checkpoint_trouble = trouble;
    }

    /// True: this is news.
    pub fn audit_trouble(&self, trouble: Option<String>) -> bool {
        let mut inner = self.inner();
        if let Some(trouble) = &trouble {
            inner.note_error(trouble);
        }
        let news = inner.audit_trouble != trouble;
        inner.audit_trouble = trouble;
        news
    }

    /// True: this is news.
    pub fn registry_trouble(&self, trouble: Option<String>) -> bool {
        let mut inner = self.inner();
        if let Some(trouble) = &trouble {
            inner.note_error(trouble);
        }
        let news = inner.registry_trouble.is_some() != trouble.is_some();
        inner.registry_trouble = trouble;
        news
    }

    pub fn saved(&self, position: &Position) {
        self.inner().saved = Some((position.clone(), Instant::now()));
    }

    pub fn count(&self, change: impl FnOnce(&mut Totals)) {
        change(&mut self.inner().totals);
    }

    /// Takes what passed the watermark: counts and latencies at once.
    pub fn settled(&self, progress: &Progress) {
        let settled = &progress.settled;
        if settled.is_empty() && progress.delivery.count() == 0 {
            return;
        }
        let mut inner = self.inner();
        if !settled.is_empty() {
            inner.attempts = 0;
        }
        inner.totals.published += settled.published;
        inner.published.add(Instant::now(), settled.published);
        for (reason, count) in &settled.dead_lettered {
            *inner.totals.dead_lettered.entry(reason.label()).or_default() += count;
        }
        if let Some(parked) = &mut inner.parked {
            parked.add(Instant::now(), settled.dead_lettered.values().sum());
        }
        inner.totals.skipped.merge(settled.skipped.clone());
        inner.delivery.merge(&progress.delivery);
        inner.end_to_end.merge(&progress.end_to_end);
        drop(inner);
        if let Some(notices) = &self.notices {
            notices.add(&settled.dead_lettered, &progress.letters);
        }
    }

    /// `records` are those with the sink, and `bytes` of those that it has not acknowledged.
    pub fn in_flight(&self, records: u64, bytes: u64, oldest_us: Option<i64>) {
        self.in_flight_records.store(records, Ordering::Relaxed);
        self.in_flight_bytes.store(bytes, Ordering::Relaxed);
        self.oldest_us.store(oldest_us.unwrap_or(i64::MAX), Ordering::Relaxed);
    }

    /// Whether the relay has taken notice of a pause, or is gone.
    pub fn rests(&self, rests: bool) {
        self.rests.store(rests, Ordering::Release);
    }

    /// A life begins, at its checkpoint where there is one.
    pub fn begins(&self, from: Option<&Position>) {
        self.log().begin(from);
    }

    /// The source handed a batch over.
    pub fn read(&self, batch: &LogBatch) {
        self.log().read(batch, Instant::now());
    }

    /// The relay took a batch that ends here.
    pub fn taken(&self, end: &Position) {
        self.log().taken(end);
    }

    pub fn acked(&self, position: &Position) {
        self.log().acked(position, Instant::now());
    }
}

#[cfg(test)]
mod tests;
