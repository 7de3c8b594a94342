//! Spans of batches and events, for a collector of OpenTelemetry's: `tailpost run --otlp URL`; and dispatch records as logs, where
//! a pipeline's file asks for it ([`DispatchExporter`]).
//!
//! The relay says what began and ended ([`Span`]), and each span waits in a bounded queue for the task that exports it. What finds
//! no room there is counted and forgotten: tracing never holds back an event. How spans and logs get out, by OTLP over HTTP, is
//! compiled in with the cargo feature `otlp` alone.

#[cfg(feature = "otlp")]
mod client;
mod dispatches;
#[cfg(feature = "otlp")]
mod export;
#[cfg(feature = "otlp")]
mod log_export;
#[cfg(feature = "otlp")]
mod log_record;
mod sampling;
mod span;

use std::env;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::config::{Pipeline, Sink};
use crate::http_client::parse_url;

pub use dispatches::{Dispatch, DispatchExporter, DispatchExporters, DispatchOrigin, DispatchQueue, Severity};
pub use sampling::Sampling;
pub use span::{Origin, Parent, Span, SpanContext, SpanKind};

/// Spans that wait to be exported: some seconds' worth, in a few MB.
const QUEUE: usize = 8192;
/// How long a stop waits for what was not exported.
const FLUSH: Duration = Duration::from_secs(5);

/// Why nothing is exported.
#[derive(Debug, thiserror::Error)]
pub enum OtlpError {
    #[error("this tailpost was built without OTLP: build it by `cargo build --release --features otlp`")]
    NotBuilt,
    #[error(
        "`{url}` names no collector: expected a URL such as http://127.0.0.1:4318, in --otlp, OTEL_EXPORTER_OTLP_ENDPOINT or the file"
    )]
    Url { url: String },
    #[error(
        "no collector is named for the dispatch records of pipeline `{pipeline}`: expected `spec.dispatches.config.endpoint`, \
         --otlp URL or OTEL_EXPORTER_OTLP_ENDPOINT"
    )]
    NoCollector { pipeline: String },
    /// Of the library's settings, which can come from the environment.
    #[error("{text}")]
    Settings { text: String },
    #[error(transparent)]
    Tls(#[from] crate::tls::TlsSetupError),
    #[error(transparent)]
    Client(#[from] reqwest::Error),
}

/// The collector that OpenTelemetry's own variables name.
pub fn url_of_environment() -> Option<String> {
    let url = env::var("OTEL_EXPORTER_OTLP_ENDPOINT").ok();
    url.filter(|url| !url.is_empty() && !is_off())
}

/// Whether OpenTelemetry's own variable switches off what the environment would have exported.
fn is_off() -> bool {
    env::var("OTEL_SDK_DISABLED").is_ok_and(|text| text.eq_ignore_ascii_case("true"))
}

/// One pipeline's way to the exporter. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Tracer {
    origin: Arc<Origin>,
    queue: mpsc::Sender<Span>,
    sampling: Sampling,
}

impl Tracer {
    pub fn origin(&self) -> &Arc<Origin> {
        &self.origin
    }

    /// The span of a batch that begins. None: it is not recorded.
    pub fn batch(&self, events: usize, position: impl FnOnce() -> String) -> Option<Span> {
        let context = SpanContext::new_trace();
        let is_recorded = self.sampling.records(&context);
        is_recorded.then(|| Span::batch(&self.origin, context, events, position()))
    }

    /// Takes a span that has ended.
    pub fn ended(&self, span: Span) {
        if self.queue.try_send(span).is_err() {
            self.origin.dropped(1);
        }
    }

    /// How many spans of the pipeline were not exported.
    pub fn dropped(&self) -> u64 {
        self.origin.dropped.load(Ordering::Relaxed)
    }
}

/// The exporter's task.
#[derive(Debug)]
pub struct Exporter {
    queue: mpsc::Sender<Span>,
    sampling: Sampling,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Exporter {
    /// Starts to export to the collector at this URL; its paths for each kind of signal follow it.
    ///
    /// # Errors
    /// The settings must be corrected; whether the collector is there is not looked at.
    pub fn start(url: &str) -> Result<Self, OtlpError> {
        if parse_url(url).is_none() {
            return Err(OtlpError::Url { url: url.to_owned() });
        }
        let variable = |name| env::var(name).ok();
        let (sampler, argument) = (variable("OTEL_TRACES_SAMPLER"), variable("OTEL_TRACES_SAMPLER_ARG"));
        let sampling = Sampling::of(sampler.as_deref(), argument.as_deref());
        let (queue, spans) = mpsc::channel(QUEUE);
        let stop = CancellationToken::new();
        let task = start(url, spans, stop.clone())?;
        Ok(Self {
            queue,
            sampling,
            stop,
            task,
        })
    }

    pub fn tracer(&self, pipeline: &Pipeline) -> Tracer {
        let system = match &pipeline.sink {
            Sink::Kafka(_) => "kafka",
            Sink::Http(_) => "http",
            Sink::File(_) => "file",
            Sink::Stdout(_) => "stdout",
        };
        Tracer {
            origin: Arc::new(Origin {
                pipeline: pipeline.name.clone(),
                source: pipeline.source.id().to_owned(),
                sink: pipeline.sink.id().to_owned(),
                system,
                dropped: AtomicU64::new(0),
            }),
            queue: self.queue.clone(),
            sampling: self.sampling,
        }
    }

    /// Exports what waits, as far as that takes no longer than five seconds.
    pub async fn close(mut self) {
        self.stop.cancel();
        if timeout(FLUSH, &mut self.task).await.is_err() {
            self.task.abort();
            tracing::warn!("the collector did not take the last spans within {FLUSH:?}");
        }
    }
}

#[cfg(feature = "otlp")]
use export::start;

#[cfg(not(feature = "otlp"))]
fn start(_url: &str, _spans: mpsc::Receiver<Span>, _stop: CancellationToken) -> Result<JoinHandle<()>, OtlpError> {
    Err(OtlpError::NotBuilt)
}

#[cfg(test)]
pub(crate) mod tests {
    pub(crate) use super::dispatches::tests::queue;
    use super::*;

    /// A tracer, and what it was told, with room for so many.
    pub(crate) fn tracer(room: usize) -> (Tracer, mpsc::Receiver<Span>) {
        let (queue, spans) = mpsc::channel(room);
        let origin = Arc::new(Origin {
            pipeline: "p".to_owned(),
            source: "s".to_owned(),
            sink: "k".to_owned(),
            system: "kafka",
            dropped: AtomicU64::new(0),
        });
        let tracer = Tracer {
            origin,
            queue,
            sampling: Sampling::of(None, None),
        };
        (tracer, spans)
    }

    #[test]
    fn what_finds_no_room_is_counted_and_forgotten() {
        let (tracer, mut spans) = tracer(2);
        let end_one = || tracer.ended(tracer.batch(1, String::new).expect("all are recorded"));
        (0..5).for_each(|_| end_one());
        assert_eq!(tracer.dropped(), 3);
        assert!(spans.try_recv().is_ok());
        drop(spans);
        end_one();
        assert_eq!(tracer.dropped(), 4, "nobody exports any more");
    }

    #[test]
    fn a_url_is_asked_for() {
        for url in ["", "127.0.0.1:4318", "grpc://h:4317", "http://"] {
            assert!(matches!(Exporter::start(url), Err(OtlpError::Url { .. })), "{url}");
        }
    }
}
