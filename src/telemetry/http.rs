//! The HTTP endpoints: `/metrics`, `/healthz`, `/readyz` and `/status`.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use axum::extract::State as Shared;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::metrics;
use super::status::PipelineStatus;

type Pipelines = Arc<Vec<Arc<PipelineStatus>>>;

/// What keeps the endpoints from being served.
#[derive(Debug, thiserror::Error)]
#[error("listen for HTTP on {address}: choose another with --http, or --http off")]
pub struct HttpError {
    address: SocketAddr,
    source: io::Error,
}

/// Takes the address; [`serve`] then answers there.
///
/// # Errors
/// When the address cannot be had.
pub async fn listen(address: SocketAddr) -> Result<TcpListener, HttpError> {
    TcpListener::bind(address)
        .await
        .map_err(|source| HttpError { address, source })
}

/// Answers until cancelled.
pub async fn serve(listener: TcpListener, pipelines: Vec<Arc<PipelineStatus>>, stop: CancellationToken) {
    let router = Router::new()
        .route("/metrics", get(metrics_text))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/status", get(status))
        .with_state(Arc::new(pipelines));
    let served = axum::serve(listener, router)
        .with_graceful_shutdown(stop.cancelled_owned())
        .await;
    if let Err(error) = served {
        tracing::error!(error = %error, "HTTP endpoints ended");
    }
}

async fn metrics_text(Shared(pipelines): Shared<Pipelines>) -> impl IntoResponse {
    const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, OPEN_METRICS)], metrics::render(&pipelines))
}

/// 200 while every pipeline streams; else 503 with a line for each that does not.
async fn ready(Shared(pipelines): Shared<Pipelines>) -> impl IntoResponse {
    let reasons: String = pipelines
        .iter()
        .filter_map(|status| {
            status
                .snapshot()
                .ready
                .err()
                .map(|reason| format!("{}: {reason}\n", status.name))
        })
        .collect();
    if reasons.is_empty() {
        (StatusCode::OK, "ready\n".to_owned())
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, reasons)
    }
}

async fn status(Shared(pipelines): Shared<Pipelines>) -> Json<Value> {
    Json(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "pipelines": pipelines.iter().map(|status| pipeline(status)).collect::<Vec<_>>(),
    }))
}

fn pipeline(status: &PipelineStatus) -> Value {
    let s = status.snapshot();
    let skipped: serde_json::Map<String, Value> = s
        .totals
        .skipped
        .iter()
        .map(|(reason, count)| (reason.label().to_owned(), count.into()))
        .collect();
    json!({
        "name": status.name,
        "tenant": status.tenant,
        "labels": status.labels,
        "source": s.state,
        "since": s.since.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        "ready": s.ready.is_ok(),
        "not_ready_because": s.ready.err(),
        "last_error": s.last_error,
        "events": {
            "received": s.totals.received,
            "published": s.totals.published,
            "skipped": skipped,
            "dead_lettered": s.totals.dead_lettered,
            "in_flight": s.totals.in_flight(),
            "failed_deliveries": s.totals.failed,
        },
        "in_flight_bytes": s.in_flight_bytes,
        "lag_bytes": s.lag_bytes,
        "lag_seconds": s.lag_seconds,
        "saved_position": s.saved.map(|position| position.to_string()),
        "checkpoint_age_seconds": s.checkpoint_age_seconds,
        "restarts": s.totals.restarts,
        "accepted_gaps": s.totals.accepted_gaps,
    })
}
