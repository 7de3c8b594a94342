//! Dispatch records on their way to a collector, as OTLP logs, and how many do not get there.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use reqwest::Url;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::config::{Dispatches, Pipeline};

use super::{OtlpError, SpanContext, is_off, url_of_environment};
use crate::http_client::parse_url;

/// Records that wait to be exported: more than what is in flight by default, which can be settled at once.
const QUEUE: usize = 32 * 1024;
/// How often the log says how many were dropped.
const TELL_EVERY: Duration = Duration::from_secs(60);

/// One dispatch record.
#[derive(Debug, Clone)]
pub struct Dispatch {
    pub origin: Arc<DispatchOrigin>,
    pub sink: Arc<str>,
    pub outbox_id: String,
    pub event_name: Option<String>,
    pub status: &'static str,
    pub severity: Severity,
    pub reason: Option<&'static str>,
    pub attempt: u32,
    pub latency_ms: u64,
    pub is_duplicate: bool,
    pub last_error: Option<String>,
    pub time: SystemTime,
    /// Of the span that the application wrote the event in.
    pub context: Option<SpanContext>,
}

/// How bad it is, as OpenTelemetry counts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    Info,
    Warn,
    Error,
}

/// The pipeline that records are of.
#[derive(Debug)]
pub struct DispatchOrigin {
    pub pipeline: String,
    dropped: AtomicU64,
    untold: Mutex<Untold>,
}

#[derive(Debug, Default)]
struct Untold {
    count: u64,
    why: String,
    told: Option<Instant>,
}

impl DispatchOrigin {
    pub(super) fn new(pipeline: &str) -> Arc<Self> {
        Arc::new(Self {
            pipeline: pipeline.to_owned(),
            dropped: AtomicU64::new(0),
            untold: Mutex::default(),
        })
    }

    fn untold(&self) -> MutexGuard<'_, Untold> {
        self.untold.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// So many are lost. Gives how many the log is to be told of now.
    fn add(&self, count: u64, why: &str, now: Instant) -> Option<u64> {
        self.dropped.fetch_add(count, Ordering::Relaxed);
        let mut untold = self.untold();
        untold.count += count;
        why.clone_into(&mut untold.why);
        let is_due = untold
            .told
            .is_none_or(|told| now.saturating_duration_since(told) >= TELL_EVERY);
        is_due.then(|| {
            untold.told = Some(now);
            mem::take(&mut untold.count)
        })
    }

    /// So many are lost, which the log says once a minute at most.
    pub(super) fn dropped(&self, count: u64, why: &str) {
        if let Some(records) = self.add(count, why, Instant::now()) {
            self.tell(records, why);
        }
    }

    /// Says what was not said yet: nothing follows.
    pub(super) fn tell_rest(&self) {
        let Untold { count, why, .. } = mem::take(&mut *self.untold());
        if count > 0 {
            self.tell(count, &why);
        }
    }

    fn tell(&self, records: u64, why: &str) {
        tracing::warn!(pipeline = %self.pipeline, records, why, "dispatch records are lost; events are relayed all the same");
    }
}

/// One pipeline's way to the exporter. Cheap to clone.
#[derive(Debug, Clone)]
pub struct DispatchQueue {
    origin: Arc<DispatchOrigin>,
    queue: mpsc::Sender<Dispatch>,
}

impl DispatchQueue {
    pub fn origin(&self) -> &Arc<DispatchOrigin> {
        &self.origin
    }

    /// Takes records, as far as there is room.
    pub fn give(&self, records: impl Iterator<Item = Dispatch>) {
        let without_room = records.filter_map(|record| self.queue.try_send(record).err()).count();
        if without_room > 0 {
            self.origin
                .dropped(without_room as u64, "the collector takes fewer than there are");
        }
    }

    /// How many records of the pipeline were not exported.
    pub fn dropped(&self) -> u64 {
        self.origin.dropped.load(Ordering::Relaxed)
    }
}

/// Exports to one collector.
#[derive(Debug)]
pub struct DispatchExporter {
    queue: mpsc::Sender<Dispatch>,
    origins: Vec<Arc<DispatchOrigin>>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl DispatchExporter {
    /// Starts to export to where records of this pipeline go. Must be called within a runtime.
    ///
    /// # Errors
    /// The settings must be corrected; whether the collector is there is not looked at.
    pub fn of(pipeline: &Pipeline, otlp: Option<&str>) -> Result<Option<(Self, DispatchQueue)>, OtlpError> {
        let Some(Dispatches::Otlp { endpoint }) = &pipeline.dispatches else {
            return Ok(None);
        };
        let Some(collector) = collector(pipeline, endpoint.as_ref(), otlp)? else {
            return Ok(None);
        };
        let mut exporter = Self::start(&collector)?;
        let queue = exporter.queue(&pipeline.name);
        Ok(Some((exporter, queue)))
    }

    fn start(url: &str) -> Result<Self, OtlpError> {
        let (queue, records) = mpsc::channel(QUEUE);
        let stop = CancellationToken::new();
        let task = start(url, records, stop.clone())?;
        Ok(Self {
            queue,
            origins: Vec::new(),
            stop,
            task,
        })
    }

    fn queue(&mut self, pipeline: &str) -> DispatchQueue {
        let origin = DispatchOrigin::new(pipeline);
        self.origins.push(Arc::clone(&origin));
        DispatchQueue {
            origin,
            queue: self.queue.clone(),
        }
    }

    /// Exports what waits, as far as that takes no longer than five seconds.
    pub async fn close(self) {
        self.stop.cancel();
        if let Err(error) = self.task.await {
            tracing::error!(error = %error, "the export of dispatch records failed; this is a fault of tailpost");
        }
        self.origins.iter().for_each(|origin| origin.tell_rest());
    }
}

/// One exporter for each collector that records of a process's pipelines go to.
#[derive(Debug, Default)]
pub struct DispatchExporters(BTreeMap<String, DispatchExporter>);

impl DispatchExporters {
    /// The way of this pipeline's records; None: it has none that go to a collector. `otlp` is the collector that the command
    /// line names. Must be called within a runtime.
    ///
    /// # Errors
    /// The settings must be corrected; whether the collector is there is not looked at.
    pub fn queue(&mut self, pipeline: &Pipeline, otlp: Option<&str>) -> Result<Option<DispatchQueue>, OtlpError> {
        let Some(Dispatches::Otlp { endpoint }) = &pipeline.dispatches else {
            return Ok(None);
        };
        let Some(collector) = collector(pipeline, endpoint.as_ref(), otlp)? else {
            return Ok(None);
        };
        let exporter = match self.0.entry(collector) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let exporter = DispatchExporter::start(entry.key())?;
                entry.insert(exporter)
            }
        };
        Ok(Some(exporter.queue(&pipeline.name)))
    }

    /// Exports what waits, as far as that takes no longer than five seconds for all of them.
    pub async fn close(self) {
        self.0.values().for_each(|exporter| exporter.stop.cancel());
        for exporter in self.0.into_values() {
            exporter.close().await;
        }
    }
}

/// What the file says goes before the command line, and that before the environment. None: the environment says that nothing
/// is exported.
fn collector(pipeline: &Pipeline, endpoint: Option<&Url>, otlp: Option<&str>) -> Result<Option<String>, OtlpError> {
    let named = endpoint.map(Url::as_str).or(otlp).map(str::to_owned);
    match named.or_else(url_of_environment) {
        // As one text for one collector.
        Some(url) => Ok(Some(parse_url(&url).map_or(url, String::from))),
        None if is_off() => {
            tracing::info!(pipeline = %pipeline.name, "OTEL_SDK_DISABLED is set: dispatch records go nowhere");
            Ok(None)
        }
        None => Err(OtlpError::NoCollector {
            pipeline: pipeline.name.clone(),
        }),
    }
}

#[cfg(feature = "otlp")]
use super::log_export::start;

#[cfg(not(feature = "otlp"))]
fn start(
    _url: &str,
    _records: mpsc::Receiver<Dispatch>,
    _stop: CancellationToken,
) -> Result<JoinHandle<()>, OtlpError> {
    Err(OtlpError::NotBuilt)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    /// A queue with room for so many, and what came into it.
    pub(crate) fn queue(room: usize) -> (DispatchQueue, mpsc::Receiver<Dispatch>) {
        let (queue, records) = mpsc::channel(room);
        let origin = DispatchOrigin::new("orders");
        (DispatchQueue { origin, queue }, records)
    }

    pub(in crate::telemetry::otlp) fn dispatch(origin: &Arc<DispatchOrigin>, id: &str) -> Dispatch {
        Dispatch {
            origin: Arc::clone(origin),
            sink: Arc::from("k1"),
            outbox_id: id.to_owned(),
            event_name: Some("placed".to_owned()),
            status: "published",
            severity: Severity::Info,
            reason: None,
            attempt: 1,
            latency_ms: 41,
            is_duplicate: false,
            last_error: None,
            time: UNIX_EPOCH + Duration::from_millis(1_700_000_000_250),
            context: None,
        }
    }

    #[test]
    fn what_finds_no_room_is_counted() {
        let (queue, mut records) = queue(2);
        let of = |count: usize| (0..count).map(|id| dispatch(&queue.origin, &id.to_string()));
        queue.give(of(5));
        assert_eq!(queue.dropped(), 3);
        assert_eq!(records.try_recv().unwrap().outbox_id, "0");
        drop(records);
        queue.give(of(1));
        assert_eq!(queue.dropped(), 4, "nobody exports any more");
    }

    #[test]
    fn what_is_lost_is_told_once_a_minute() {
        let origin = DispatchOrigin::new("orders");
        let start = Instant::now();
        let add = |count, seconds| origin.add(count, "full", start + Duration::from_secs(seconds));
        assert_eq!(add(2, 0), Some(2));
        assert_eq!(add(3, 1), None);
        assert_eq!(add(4, 59), None);
        assert_eq!(add(5, 60), Some(12));
        assert_eq!(add(1, 61), None);
        assert_eq!(origin.dropped.load(Ordering::Relaxed), 15);
        assert_eq!(origin.untold().count, 1, "which the end tells");
    }
}
