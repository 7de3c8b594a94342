//! How a pipeline stands: one place that its parts write to and that metrics, `/readyz` and `/status` read.
//!
//! Counts are changed once per batch under one lock, so that a reader always sees
//! received = published + skipped + dead-lettered + in flight.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::watch;

use crate::config::{CommitPolicy, Pipeline};
use crate::letters::notices::Notices;
use crate::position::{Position, ShownPlace};
use crate::relay::in_flight::Progress;
use crate::sequences::SequenceFault;
use crate::skip::SkipCounts;
use crate::source::LogBatch;

use super::histogram::Histogram;
use super::log_reach::LogReach;
use super::otlp::{DispatchQueue, Tracer};
use super::rate::Rate;
use super::state::{self, Troubles};

pub use super::source_view::{Kept, SourceView};
pub use super::state::{NotReady, Part, Retry, SinkRetry, State};

/// Counts since the process started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Totals {
    pub received: u64,
    pub published: u64,
    pub skipped: SkipCounts,
    pub dead_lettered: BTreeMap<&'static str, u64>,
    /// Deliveries that were reported failed, before any retry or policy.
    pub failed: u64,
    /// Events taken by each processor, those that came again included.
    pub processed: BTreeMap<Arc<str>, u64>,
    /// Numbers out of sequence, whatever became of their events.
    pub sequence_faults: BTreeMap<SequenceFault, u64>,
    pub restarts: u64,
    pub accepted_gaps: u64,
    /// Received by a sink that nobody waits for, and given up.
    pub lost: u64,
    /// Requests that told a webhook of dead letters, and those that it did not take.
    pub notices_taken: u64,
    pub notices_failed: u64,
}

impl Totals {
    /// Published, skipped or parked.
    pub fn settled(&self) -> u64 {
        self.published + self.skipped.total() + self.dead_lettered.values().sum::<u64>()
    }

    /// Received, not settled yet, and not given up.
    pub fn in_flight(&self) -> u64 {
        self.received.saturating_sub(self.settled() + self.lost)
    }
}

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

/// A reading of everything, consistent in itself.
#[derive(Debug, Clone)]
pub struct Snapshot {
    pub state: State,
    pub since: SystemTime,
    pub ready: Result<(), String>,
    /// The same, part by part.
    pub not_ready: Vec<NotReady>,
    pub paused: bool,
    /// The relay sends nothing until it is let go on.
    pub rests: bool,
    pub last_error: Option<String>,
    pub last_error_at: Option<SystemTime>,
    /// While it waits before another try.
    pub retry: Option<Retry>,
    /// Of the leading sink.
    pub totals: Totals,
    /// Of all sinks.
    pub dead_lettered: BTreeMap<&'static str, u64>,
    /// Of all sinks, within the time of [`PipelineStatus::watch_dead_letters`]; 0 without it.
    pub dead_letters_of_late: u64,
    pub sequence_faults: BTreeMap<SequenceFault, u64>,
    pub published_per_second: f64,
    /// The leading one first.
    pub sinks: Vec<SinkSnapshot>,
    pub read: Option<ShownPlace>,
    pub acked: Option<ShownPlace>,
    pub saved: Option<Position>,
    pub confirmed: Option<ShownPlace>,
    pub kept: Option<Kept>,
    pub checkpoint_age_seconds: Option<f64>,
    pub confirmed_age_seconds: Option<f64>,
    pub in_flight_bytes: u64,
    /// Handed to the sink and not settled: what a pause or a stop still waits for.
    pub in_flight_records: u64,
    pub lag_bytes: Option<u64>,
    pub lag_seconds: f64,
    /// Log that the relay has not taken yet, as far as its end was seen.
    pub pending_bytes: Option<u64>,
    /// Of it, the events that were read already.
    pub pending_events: u64,
    /// Age of the oldest event that was read and is not settled, 0 when there is none.
    pub oldest_unpublished_seconds: f64,
    /// How long nothing was done though there is something to do.
    pub stalled: Duration,
    pub delivery: Histogram,
    pub end_to_end: Histogram,
}

/// How one of a pipeline's sinks stands.
#[derive(Debug, Clone, PartialEq)]
pub struct SinkSnapshot {
    pub id: String,
    pub required: bool,
    /// Why it takes nothing at the moment, if so.
    pub trouble: Option<String>,
    /// What it makes again by itself.
    pub retry: Option<SinkRetry>,
    /// The trouble is that alone.
    only_retries: bool,
    pub published: u64,
    pub dead_lettered: u64,
    pub lost: u64,
    pub failed: u64,
    pub in_flight_records: u64,
    /// Age of the oldest event that it was given and has not settled, 0 when there is none.
    pub oldest_unpublished_seconds: f64,
}

impl SinkSnapshot {
    /// Whether all that is wrong is that deliveries to a target that can be reached are made again, none after more attempts than that.
    fn is_tolerated(&self, max_attempts: Option<u32>) -> bool {
        match (max_attempts, self.retry) {
            (Some(max), Some(retry)) => self.only_retries && retry.is_reached && retry.attempts <= max,
            _ => false,
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

    /// A delivery failed, and is made again by the sink itself: what it makes again now. True: the reason is news.
    pub fn sink_retry(&self, retry: SinkRetry, reason: String) -> bool {
        let mut inner = self.inner();
        inner.note_error(&reason);
        let news = inner.sink_retry.as_ref().is_none_or(|(_, known)| *known != reason);
        inner.sink_retry = Some((retry, reason));
        news
    }

    /// One of them is not made again any more: what is left of them.
    pub fn sink_retried(&self, left: Option<SinkRetry>) {
        let mut inner = self.inner();
        let before = inner.sink_retry.take();
        inner.sink_retry = before.and_then(|(_, reason)| Some((left?, reason)));
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

    /// How the sink of this status stands.
    fn sink(&self, inner: &Inner) -> SinkSnapshot {
        let totals = &inner.totals;
        let other_trouble = inner.sink_gone.as_ref().or(inner.sink_trouble.as_ref());
        // Nothing is made again by one that is gone.
        let retry = inner.sink_retry.as_ref().filter(|_| inner.sink_gone.is_none());
        SinkSnapshot {
            id: self.sink.clone(),
            required: self.required,
            only_retries: other_trouble.is_none(),
            trouble: other_trouble.or(retry.map(|(_, reason)| reason)).cloned(),
            retry: retry.map(|(retry, _)| *retry),
            published: totals.published,
            dead_lettered: totals.dead_lettered.values().sum(),
            lost: totals.lost,
            failed: totals.failed,
            in_flight_records: self.in_flight_records.load(Ordering::Relaxed),
            oldest_unpublished_seconds: age_seconds(self.oldest_us.load(Ordering::Relaxed)),
        }
    }

    /// The status of each sink, the leading one first.
    fn all(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(self.further.iter().map(|further| &**further))
    }

    /// Those of each sink's values that count for the pipeline: of the sinks that the position waits for, or the least of as many
    /// as it asks for.
    fn counting<T: Ord>(&self, value: impl Fn(&Self) -> T) -> Vec<T> {
        match self.quorum {
            None => self.all().filter(|status| status.required).map(value).collect(),
            Some(size) => {
                let mut values: Vec<T> = self.all().map(value).collect();
                values.sort();
                values.truncate(size);
                values
            }
        }
    }

    /// Why the position cannot move, as far as the sinks are to blame.
    fn trouble_of_sinks(&self, sinks: &[SinkSnapshot], max_attempts: Option<u32>) -> Option<String> {
        let told = |sink: &SinkSnapshot| {
            let trouble = sink.trouble.clone().filter(|_| !sink.is_tolerated(max_attempts))?;
            Some(match sinks.len() {
                1 => trouble,
                _ => format!("sink `{}`: {trouble}", sink.id),
            })
        };
        let Some(size) = self.quorum else {
            return sinks.iter().filter(|sink| sink.required).find_map(told);
        };
        let troubles: Vec<String> = sinks.iter().filter_map(told).collect();
        let well = sinks.len() - troubles.len();
        let troubles = troubles.join("; ");
        (well < size).then(|| format!("{well} of {size} sinks that `commit_policy` asks for take events: {troubles}"))
    }

    /// In which any trouble of a sink that the position waits for keeps the pipeline from being ready.
    pub fn snapshot(&self) -> Snapshot {
        self.snapshot_with(None)
    }

    /// In which deliveries to a target that can be reached may be made again after so many attempts.
    pub(super) fn snapshot_with(&self, max_attempts: Option<u32>) -> Snapshot {
        // Before the records are read: what was sent before it rests is among them.
        let rests = self.all().all(|status| status.rests.load(Ordering::Acquire));
        // The youngest first.
        let oldest = self.counting(|status| Reverse(status.oldest_us.load(Ordering::Relaxed)));
        let in_flight_us = oldest.into_iter().max().map_or(i64::MAX, |Reverse(oldest)| oldest);
        let in_flight_bytes = self.counting(|status| status.in_flight_bytes.load(Ordering::Relaxed));
        let in_flight_bytes = in_flight_bytes.into_iter().sum();
        let in_flight_records = self.counting(|status| status.in_flight_records.load(Ordering::Relaxed));
        let in_flight_records = in_flight_records.into_iter().sum();
        let log = self.log();
        let pending_us = log.oldest_pending_us().unwrap_or(i64::MAX);
        let (read, acked) = (log.read.clone(), log.acked.clone());
        let (lag_bytes, pending_bytes) = (log.lag_bytes(), log.pending_bytes());
        let (pending_events, mut stalled) = (log.pending_events(), log.stalled(Instant::now()));
        drop(log);
        let inner = self.inner();
        // Under the locks that the totals are read under: what was received must be among its counts, or in flight.
        let further: Vec<(&Self, MutexGuard<'_, Inner>)> = self
            .further
            .iter()
            .map(|further| (&**further, further.inner()))
            .collect();
        let all = || std::iter::once((self, &*inner)).chain(further.iter().map(|(status, inner)| (*status, &**inner)));
        let sinks: Vec<SinkSnapshot> = all().map(|(status, inner)| status.sink(inner)).collect();
        let registry_trouble = all()
            .filter(|(status, _)| status.required || self.quorum.is_some())
            .find_map(|(_, inner)| inner.registry_trouble.clone());
        let (mut dead_lettered, mut sequence_faults) = (BTreeMap::new(), BTreeMap::new());
        let mut dead_letters_of_late = 0;
        for (_, inner) in all() {
            dead_letters_of_late += inner.parked.as_ref().map_or(0, |parked| parked.of_late(Instant::now()));
            for (reason, count) in &inner.totals.dead_lettered {
                *dead_lettered.entry(*reason).or_default() += count;
            }
            for (fault, count) in &inner.totals.sequence_faults {
                *sequence_faults.entry(*fault).or_default() += count;
            }
        }
        let last_error = all().filter_map(|(_, inner)| inner.last_error.clone());
        let last_error = last_error.max_by_key(|(_, at)| *at);
        drop(further);
        let trouble_of_sinks = self.trouble_of_sinks(&sinks, max_attempts);
        let (state, since) = inner.shown();
        if state.is_end() {
            stalled = Duration::ZERO;
        }
        let troubles = Troubles {
            source: inner.source_trouble.as_deref(),
            sink: trouble_of_sinks.as_deref(),
            checkpoint: inner.checkpoint_trouble.as_deref(),
            audit: inner.audit_trouble.as_deref(),
            registry: registry_trouble.as_deref(),
        };
        let is_paused = state == State::Paused;
        let not_ready = state::not_ready(&inner.state, is_paused, inner.retry.as_ref(), &troubles);
        let is_waiting = matches!(inner.state, State::Waiting { .. });
        Snapshot {
            ready: state::ready(&inner.state, &not_ready),
            state,
            since,
            not_ready,
            paused: inner.paused_since.is_some(),
            rests,
            last_error_at: last_error.as_ref().map(|(_, at)| *at),
            last_error: last_error.map(|(text, _)| text),
            dead_lettered,
            dead_letters_of_late,
            sequence_faults,
            retry: inner.retry.filter(|_| is_waiting),
            totals: inner.totals.clone(),
            published_per_second: inner.published.per_second(Instant::now()),
            sinks,
            read,
            acked,
            saved: inner.saved.as_ref().map(|(position, _)| position.clone()),
            confirmed: inner.confirmed.as_ref().map(|(place, _)| place.clone()),
            kept: inner.kept.clone(),
            checkpoint_age_seconds: inner.saved.as_ref().map(|(_, at)| at.elapsed().as_secs_f64()),
            confirmed_age_seconds: inner.confirmed.as_ref().map(|(_, at)| at.elapsed().as_secs_f64()),
            in_flight_bytes,
            in_flight_records,
            lag_bytes,
            lag_seconds: age_seconds(in_flight_us),
            pending_bytes,
            pending_events,
            oldest_unpublished_seconds: age_seconds(in_flight_us.min(pending_us)),
            stalled,
            delivery: inner.delivery.clone(),
            end_to_end: inner.end_to_end.clone(),
        }
    }
}

/// Seconds since a time in microseconds since 1970; 0 for none, which is i64::MAX.
fn age_seconds(since_us: i64) -> f64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now_us = i64::try_from(now.as_micros()).unwrap_or(i64::MAX);
    now_us.saturating_sub(since_us).max(0) as f64 / 1e6
}

#[cfg(test)]
mod tests;
