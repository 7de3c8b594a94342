//! How a pipeline stands: one place that its parts write to and that metrics, `/readyz` and `/status` read.
//!
//! Counts are changed once per batch under one lock, so that a reader always sees
//! received = published + skipped + dead-lettered + in flight.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use serde::Serialize;

use crate::config::Pipeline;
use crate::position::{LogPlace, Position};
use crate::relay::in_flight::Progress;
use crate::skip::SkipCounts;

use super::histogram::Histogram;

/// Where a pipeline's source is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum State {
    Starting,
    Streaming,
    /// Something that can heal keeps it from streaming.
    Waiting {
        reason: String,
    },
    /// Another instance has the source.
    StandBy {
        reason: String,
    },
    Draining,
    /// It ended as asked.
    Stopped,
    /// It ended and a person must act.
    Failed {
        reason: String,
    },
}

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
    pub restarts: u64,
    pub accepted_gaps: u64,
}

impl Totals {
    /// Published, skipped or parked.
    pub fn settled(&self) -> u64 {
        self.published + self.skipped.total() + self.dead_lettered.values().sum::<u64>()
    }

    /// Received and not settled yet.
    pub fn in_flight(&self) -> u64 {
        self.received.saturating_sub(self.settled())
    }
}

/// One pipeline's status.
#[derive(Debug)]
pub struct PipelineStatus {
    pub name: String,
    pub sink: String,
    pub tenant: Option<String>,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    inner: Mutex<Inner>,
    /// How often a server has begun to stream.
    streams: AtomicU64,
    in_flight_bytes: AtomicU64,
    log: Mutex<LogReach>,
    /// Commit time of the oldest event in flight in microseconds since 1970; i64::MAX when there is none.
    oldest_us: AtomicI64,
}

/// How far the source's log reaches, and how far of it is acked.
#[derive(Debug, Default)]
struct LogReach {
    /// The log's files with their ends, oldest first; one where the log is one run of bytes. Empty: not known yet.
    files: Vec<LogPlace>,
    acked: Option<LogPlace>,
}

impl LogReach {
    /// Bytes from what is acked to the log's end.
    fn lag_bytes(&self) -> Option<u64> {
        let (acked, _) = (self.acked?, self.files.first()?);
        let bytes = self.files.iter().filter(|file| file.file >= acked.file).map(|end| {
            let done = if end.file == acked.file { acked.offset } else { 0 };
            end.offset.saturating_sub(done)
        });
        Some(bytes.sum())
    }
}

#[derive(Debug)]
struct Inner {
    state: State,
    since: SystemTime,
    /// What is wrong with the sink at the moment.
    sink_trouble: Option<String>,
    checkpoint_trouble: Option<String>,
    /// Why nothing comes though a server streams.
    source_trouble: Option<String>,
    last_error: Option<String>,
    totals: Totals,
    saved: Option<(Position, Instant)>,
    confirmed: Option<Instant>,
    delivery: Histogram,
    end_to_end: Histogram,
}

/// A reading of everything, consistent in itself.
#[derive(Debug, Clone)]
pub struct Snapshot {
    pub state: State,
    pub since: SystemTime,
    pub ready: Result<(), String>,
    pub last_error: Option<String>,
    pub totals: Totals,
    pub saved: Option<Position>,
    pub checkpoint_age_seconds: Option<f64>,
    pub confirmed_age_seconds: Option<f64>,
    pub in_flight_bytes: u64,
    pub lag_bytes: Option<u64>,
    pub lag_seconds: f64,
    pub delivery: Histogram,
    pub end_to_end: Histogram,
}

impl PipelineStatus {
    pub fn new(pipeline: &Pipeline) -> Arc<Self> {
        Self::named(
            &pipeline.name,
            pipeline.sink.id(),
            pipeline.tenant.clone(),
            pipeline.labels.clone(),
            pipeline.annotations.clone(),
        )
    }

    pub(crate) fn named(
        name: &str,
        sink: &str,
        tenant: Option<String>,
        labels: BTreeMap<String, String>,
        annotations: BTreeMap<String, String>,
    ) -> Arc<Self> {
        Arc::new(Self {
            name: name.to_owned(),
            sink: sink.to_owned(),
            tenant,
            labels,
            annotations,
            inner: Mutex::new(Inner {
                state: State::Starting,
                since: SystemTime::now(),
                sink_trouble: None,
                checkpoint_trouble: None,
                source_trouble: None,
                last_error: None,
                totals: Totals::default(),
                saved: None,
                confirmed: None,
                delivery: Histogram::default(),
                end_to_end: Histogram::default(),
            }),
            streams: AtomicU64::new(0),
            in_flight_bytes: AtomicU64::new(0),
            log: Mutex::default(),
            oldest_us: AtomicI64::new(i64::MAX),
        })
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How often a server has begun to stream.
    pub fn streams(&self) -> u64 {
        self.streams.load(Ordering::Relaxed)
    }

    fn log(&self) -> MutexGuard<'_, LogReach> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn enter(&self, state: State) {
        let mut inner = self.inner();
        if let State::Waiting { reason } | State::StandBy { reason } | State::Failed { reason } = &state {
            inner.last_error = Some(reason.clone());
        }
        if inner.state != state {
            inner.state = state;
            inner.since = SystemTime::now();
        }
    }

    /// True: this is news.
    pub fn sink_trouble(&self, trouble: Option<String>) -> bool {
        let mut inner = self.inner();
        if let Some(trouble) = &trouble {
            inner.last_error = Some(trouble.clone());
        }
        let news = inner.sink_trouble != trouble;
        inner.sink_trouble = trouble;
        news
    }

    pub fn checkpoint_trouble(&self, trouble: Option<String>) {
        let mut inner = self.inner();
        if let Some(trouble) = &trouble {
            inner.last_error = Some(trouble.clone());
        }
        inner.checkpoint_trouble = trouble;
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
        inner.totals.published += settled.published;
        for (reason, count) in &settled.dead_lettered {
            *inner.totals.dead_lettered.entry(reason.label()).or_default() += count;
        }
        inner.totals.skipped.merge(settled.skipped.clone());
        inner.delivery.merge(&progress.delivery);
        inner.end_to_end.merge(&progress.end_to_end);
    }

    pub fn in_flight(&self, bytes: u64, oldest_us: Option<i64>) {
        self.in_flight_bytes.store(bytes, Ordering::Relaxed);
        self.oldest_us.store(oldest_us.unwrap_or(i64::MAX), Ordering::Relaxed);
    }

    pub fn acked(&self, position: &Position) {
        self.log().acked = Some(position.log_place());
    }

    pub fn snapshot(&self) -> Snapshot {
        let lag_bytes = self.log().lag_bytes();
        let inner = self.inner();
        let oldest_us = self.oldest_us.load(Ordering::Relaxed);
        let now_us = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |now| now.as_micros());
        let lag_us = match i128::from(oldest_us) {
            _ if oldest_us == i64::MAX => 0,
            oldest => (now_us as i128 - oldest).max(0),
        };
        Snapshot {
            ready: ready(&inner),
            state: inner.state.clone(),
            since: inner.since,
            last_error: inner.last_error.clone(),
            totals: inner.totals.clone(),
            saved: inner.saved.as_ref().map(|(position, _)| position.clone()),
            checkpoint_age_seconds: inner.saved.as_ref().map(|(_, at)| at.elapsed().as_secs_f64()),
            confirmed_age_seconds: inner.confirmed.map(|at| at.elapsed().as_secs_f64()),
            in_flight_bytes: self.in_flight_bytes.load(Ordering::Relaxed),
            lag_bytes,
            lag_seconds: lag_us as f64 / 1e6,
            delivery: inner.delivery.clone(),
            end_to_end: inner.end_to_end.clone(),
        }
    }
}

fn ready(inner: &Inner) -> Result<(), String> {
    let trouble = inner.sink_trouble.as_ref().or(inner.checkpoint_trouble.as_ref());
    match (&inner.state, trouble) {
        (State::Streaming, trouble) => match inner.source_trouble.as_ref().or(trouble) {
            Some(trouble) => Err(trouble.clone()),
            None => Ok(()),
        },
        // The sink's part of a start.
        (State::Starting, Some(trouble)) => Err(format!("starting: {trouble}")),
        (State::Starting, None) => Err("starting".to_owned()),
        (State::Waiting { reason }, Some(trouble)) => Err(format!("waiting: {reason}; {trouble}")),
        (State::Waiting { reason }, None) => Err(format!("waiting: {reason}")),
        (State::StandBy { reason }, _) => Err(format!("standing by: {reason}")),
        (State::Draining, _) => Err("draining".to_owned()),
        (State::Stopped, _) => Err("stopped".to_owned()),
        (State::Failed { reason }, _) => Err(format!("failed: {reason}")),
    }
}

/// A source's hand on its pipeline's status.
#[derive(Debug, Clone)]
pub struct SourceView(Arc<PipelineStatus>);

impl SourceView {
    pub fn new(status: Arc<PipelineStatus>) -> Self {
        Self(status)
    }

    pub fn streaming(&self) {
        self.0.streams.fetch_add(1, Ordering::Relaxed);
        self.0.enter(State::Streaming);
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
            inner.last_error = Some(trouble.clone());
        }
        let news = inner.source_trouble != trouble;
        inner.source_trouble = trouble;
        news
    }

    /// A position was confirmed to the server.
    pub fn confirmed(&self) {
        self.0.inner().confirmed = Some(Instant::now());
    }

    /// Tells the ends of the log's files, oldest first, comparable with [`Position::log_place`].
    pub fn log_files(&self, files: Vec<LogPlace>) {
        self.0.log().files = files;
    }

    /// An operator's word let a gap pass.
    pub fn gap_accepted(&self) {
        self.0.count(|totals| totals.accepted_gaps += 1);
    }
}
