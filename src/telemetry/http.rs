//! The HTTP endpoints: the page at `/`, `/status`, `/metrics`, `/healthz`, `/readyz`, and what holds pipelines back.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{ConnectInfo, Path, State as Shared};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::metrics::{self, Prefix};
use super::page;
use super::ready::ReadyBounds;
use super::report::Report;
use super::status::PipelineStatus;

pub use super::control::{Access, REQUEST_HEADER};

/// What the endpoints show, and to whom they listen.
#[derive(Debug)]
pub struct Endpoints {
    pub pipelines: Vec<Arc<PipelineStatus>>,
    pub metrics_prefix: Prefix,
    pub bounds: ReadyBounds,
    pub access: Access,
}

type SharedEndpoints = Shared<Arc<Endpoints>>;

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
pub async fn serve(listener: TcpListener, endpoints: Endpoints, stop: CancellationToken) {
    let router = Router::new()
        .route("/", get(page))
        .route("/metrics", get(metrics_text))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/status", get(status))
        .route("/pipelines/pause", post(pause_all))
        .route("/pipelines/resume", post(resume_all))
        .route("/pipelines/{name}/pause", post(pause))
        .route("/pipelines/{name}/resume", post(resume))
        .with_state(Arc::new(endpoints));
    let service = router.into_make_service_with_connect_info::<SocketAddr>();
    let served = axum::serve(listener, service)
        .with_graceful_shutdown(stop.cancelled_owned())
        .await;
    if let Err(error) = served {
        tracing::error!(error = %error, "HTTP endpoints ended");
    }
}

impl Endpoints {
    fn report(&self) -> Report {
        Report::of(self.pipelines.iter().map(Arc::as_ref), &self.bounds)
    }
}

async fn page(Shared(endpoints): SharedEndpoints) -> impl IntoResponse {
    // Nothing from elsewhere, no scripts, and in no frame of another page.
    const POLICY: &str =
        "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";
    let headers = [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (headers, Html(page::render(&endpoints.report())))
}

async fn metrics_text(Shared(endpoints): SharedEndpoints) -> impl IntoResponse {
    const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    let text = metrics::render(&endpoints.pipelines, &endpoints.metrics_prefix);
    ([(header::CONTENT_TYPE, OPEN_METRICS)], text)
}

/// 200 while every pipeline streams; else 503 with a line for each that does not.
async fn ready(Shared(endpoints): SharedEndpoints) -> impl IntoResponse {
    let report = endpoints.report();
    let reasons: String = report
        .pipelines
        .iter()
        .filter_map(|one| Some(format!("{}: {}\n", one.name, one.not_ready_because.as_ref()?)))
        .collect();
    if reasons.is_empty() {
        (StatusCode::OK, "ready\n".to_owned())
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, reasons)
    }
}

async fn status(Shared(endpoints): SharedEndpoints) -> Json<Report> {
    Json(endpoints.report())
}

/// What became of a pause or of its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Paused {
    pub pipelines: Vec<String>,
    pub paused: bool,
}

async fn pause_all(
    endpoints: SharedEndpoints,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
) -> Response {
    hold(&endpoints, peer, &headers, None, true)
}

async fn resume_all(
    endpoints: SharedEndpoints,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
) -> Response {
    hold(&endpoints, peer, &headers, None, false)
}

async fn pause(
    endpoints: SharedEndpoints,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Response {
    hold(&endpoints, peer, &headers, Some(&name), true)
}

async fn resume(
    endpoints: SharedEndpoints,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Response {
    hold(&endpoints, peer, &headers, Some(&name), false)
}

/// Holds one pipeline, or each that has not ended, back, or lets it go on.
fn hold(endpoints: &Endpoints, peer: SocketAddr, headers: &HeaderMap, name: Option<&str>, paused: bool) -> Response {
    if let Err(denied) = endpoints.access.admit(peer, headers) {
        return (denied.code, denied.text).into_response();
    }
    let all = endpoints.pipelines.iter();
    let mut chosen = all
        .clone()
        .filter(|status| name.is_none_or(|name| status.name == name))
        .peekable();
    if let (Some(name), None) = (name, chosen.peek()) {
        let names: Vec<&str> = all.map(|status| status.name.as_str()).collect();
        let text = format!("there is no pipeline `{name}`; there are: {}\n", names.join(", "));
        return (StatusCode::NOT_FOUND, text).into_response();
    }
    let (ended, running): (Vec<_>, Vec<_>) = chosen.partition(|status| status.state().is_end());
    if let (Some(name), Some(_)) = (name, ended.first()) {
        let text = format!("pipeline `{name}` has ended: nothing of it can be paused or go on\n");
        return (StatusCode::CONFLICT, text).into_response();
    }
    for status in &running {
        match (status.pause(paused), paused) {
            (true, true) => tracing::info!(name = status.name, peer = %peer, "an operator pauses the pipeline"),
            (true, false) => tracing::info!(name = status.name, peer = %peer, "an operator resumes the pipeline"),
            (false, _) => {}
        }
    }
    let pipelines = running.into_iter().map(|status| status.name.clone()).collect();
    Json(Paused { pipelines, paused }).into_response()
}
