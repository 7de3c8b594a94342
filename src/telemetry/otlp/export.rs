//! The task that exports spans, by OTLP over HTTP with Protocol Buffers.

use std::borrow::Cow;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use opentelemetry::trace::{
    Link, SpanContext as Context, SpanId, SpanKind as Kind, Status, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{InstrumentationScope, Key, KeyValue};
use opentelemetry_otlp::{SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanExporter as _, SpanLinks};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::client::Client;
use super::{OtlpError, Span, SpanContext, SpanKind};

/// The most that one request carries.
const MAX_SPANS: usize = 512;
/// How long a span may wait for others.
const DELAY: Duration = Duration::from_secs(1);

pub(super) fn start(
    url: &str,
    spans: mpsc::Receiver<Span>,
    stop: CancellationToken,
) -> Result<JoinHandle<()>, OtlpError> {
    let client = Client::new()?;
    let exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(client.clone())
        .with_endpoint(format!("{}/v1/traces", url.trim_end_matches('/')))
        .build();
    let mut exporter = exporter.map_err(|error| OtlpError::Settings {
        text: error.to_string(),
    })?;
    exporter.set_resource(&resource());
    let task = Task {
        exporter,
        client,
        scope: scope(),
        in_trouble: false,
    };
    Ok(tokio::spawn(task.run(spans, stop)))
}

/// What the process is, as `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` say.
pub(super) fn resource() -> Resource {
    let builder = || Resource::builder().with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")));
    let resource = builder().build();
    let named = resource.get(&Key::from_static_str("service.name"));
    if named.is_some_and(|name| !name.as_str().starts_with("unknown_service")) {
        return resource;
    }
    builder().with_service_name("tailpost").build()
}

/// What all spans and records are of.
pub(super) fn scope() -> InstrumentationScope {
    let scope = InstrumentationScope::builder("tailpost").with_version(env!("CARGO_PKG_VERSION"));
    scope.build()
}

struct Task {
    exporter: SpanExporter,
    client: Client,
    scope: InstrumentationScope,
    in_trouble: bool,
}

impl Task {
    /// Until the stop, and then until nothing waits.
    async fn run(mut self, mut spans: mpsc::Receiver<Span>, stop: CancellationToken) {
        let mut batch = Vec::with_capacity(MAX_SPANS);
        loop {
            let first = tokio::select! {
                biased; // what waits is exported before the end
                count = spans.recv_many(&mut batch, MAX_SPANS) => count,
                () = stop.cancelled() => return,
            };
            if first == 0 {
                return;
            }
            let until = Instant::now() + DELAY;
            while batch.len() < MAX_SPANS {
                let room = MAX_SPANS - batch.len();
                tokio::select! {
                    count = spans.recv_many(&mut batch, room) => if count == 0 { break },
                    () = sleep_until(until) => break,
                    () = stop.cancelled() => break,
                }
            }
            self.export(&batch).await;
            batch.clear();
        }
    }

    async fn export(&mut self, spans: &[Span]) {
        let data = spans.iter().map(|span| data(span, &self.scope)).collect();
        match self.exporter.export(data).await {
            Ok(()) => {
                if std::mem::take(&mut self.in_trouble) {
                    tracing::info!("spans are exported again");
                }
            }
            Err(error) => {
                spans.iter().for_each(|span| span.origin.dropped(1));
                let error = self.client.take_unanswered().unwrap_or_else(|| error.to_string());
                if !std::mem::replace(&mut self.in_trouble, true) {
                    tracing::warn!(error, "spans are not exported; events are relayed all the same");
                }
            }
        }
    }
}

/// By the semantic conventions for messaging; what they do not know begins with `tailpost.`.
fn data(span: &Span, scope: &InstrumentationScope) -> SpanData {
    let origin = &span.origin;
    let mut attributes = vec![
        KeyValue::new("tailpost.pipeline", origin.pipeline.clone()),
        KeyValue::new("tailpost.source", origin.source.clone()),
    ];
    let mut links = SpanLinks::default();
    let (name, parent, tracestate): (Cow<'static, str>, _, _) = match &span.kind {
        SpanKind::Batch { events, position } => {
            attributes.push(KeyValue::new("tailpost.events", count(*events)));
            attributes.push(KeyValue::new("tailpost.position", position.clone()));
            ("relay batch".into(), None, None)
        }
        SpanKind::Send {
            parent,
            batch,
            destination,
            event_id,
            bytes,
            waited,
        } => {
            attributes.extend([
                KeyValue::new("messaging.system", origin.system),
                KeyValue::new("messaging.operation.name", "send"),
                KeyValue::new("messaging.operation.type", "send"),
                KeyValue::new("messaging.destination.name", Arc::clone(destination)),
                KeyValue::new("messaging.message.body.size", count(*bytes)),
                KeyValue::new("tailpost.sink", origin.sink.clone()),
                KeyValue::new("tailpost.commit_delay_ms", millis(*waited)),
            ]);
            attributes.extend(event_id.clone().map(|id| KeyValue::new("messaging.message.id", id)));
            links.links.extend(batch.map(|batch| {
                let none = TraceState::default();
                Link::with_context(context(batch, false, none))
            }));
            // A URL can have an event's own fields in it, and names of spans are to be few.
            let name = match origin.system {
                "kafka" => format!("send {destination}").into(),
                _ => "send".into(),
            };
            (name, Some(parent.context), parent.tracestate.as_deref())
        }
    };
    attributes.extend(span.error.map(|error| KeyValue::new("error.type", error)));
    let tracestate = tracestate.and_then(|text| TraceState::from_str(text).ok());
    SpanData {
        span_context: context(span.context, false, tracestate.unwrap_or_default()),
        parent_span_id: parent.map_or(SpanId::INVALID, |parent| SpanId::from_bytes(parent.span_id)),
        parent_span_is_remote: parent.is_some(),
        span_kind: match span.kind {
            SpanKind::Batch { .. } => Kind::Internal,
            SpanKind::Send { .. } => Kind::Producer,
        },
        name,
        start_time: span.start,
        end_time: span.end,
        attributes,
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links,
        status: span.error.map_or(Status::Unset, Status::error),
        instrumentation_scope: scope.clone(),
    }
}

fn context(of: SpanContext, is_remote: bool, tracestate: TraceState) -> Context {
    Context::new(
        TraceId::from_bytes(of.trace_id),
        SpanId::from_bytes(of.span_id),
        TraceFlags::SAMPLED,
        is_remote,
        tracestate,
    )
}

fn count(of: usize) -> i64 {
    i64::try_from(of).unwrap_or(i64::MAX)
}

fn millis(of: Duration) -> i64 {
    i64::try_from(of.as_millis()).unwrap_or(i64::MAX)
}
