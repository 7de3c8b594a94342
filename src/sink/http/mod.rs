//! HTTP: each event, or a batch of them, is a request, and a status of `success` its acknowledgement.
//!
//! What is not accepted is tried again, and holds back nothing but its own ordering key. What is not accepted for good, or not
//! within `retry.max_attempts`, is [refused](Acks::refused) by itself, while the sink goes on. Only a status of `halt_on` ends it.

mod answer;
mod dispatch;
mod lanes;
mod request;
mod troubled;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use reqwest::Client;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, timeout};
use tracing::Instrument;

use crate::config;
use crate::http_client::{self, HttpClientError};
use crate::preflight::Finding;
use crate::record::Record;
use crate::relay::in_flight::{Acks, Seq};
use crate::telemetry::error_chain;
use crate::telemetry::status::PipelineStatus;

use super::{SendError, SinkError};
use answer::Rules;
use dispatch::{Dispatcher, Given, Target};
use lanes::{Item, Lanes, Limits};
use request::Requests;
use troubled::Troubled;

/// Connections that nobody uses are closed after this: sooner than most servers and balancers do.
const IDLE: Duration = Duration::from_secs(30);
const CHECK: Duration = Duration::from_secs(10);

/// What a sink is made with.
#[derive(Debug, Clone)]
pub struct HttpSinkParts {
    pub config: Arc<config::Http>,
}

/// Sends to URLs of one server.
#[derive(Debug)]
pub struct HttpSink {
    given: mpsc::UnboundedSender<Given>,
    dispatcher: JoinHandle<()>,
}

impl HttpSink {
    /// Connects when the first event comes. Must be called within a runtime.
    ///
    /// # Errors
    /// When a certificate or key cannot be used.
    pub fn new(parts: &HttpSinkParts, acks: Acks, status: Arc<PipelineStatus>) -> Result<Self, HttpClientError> {
        let config = &parts.config;
        status.sink_trouble(None);
        let one = Limits {
            events: 1,
            bytes: u64::MAX,
        };
        let limits = config.batch.map_or(one, |batch| Limits {
            events: batch.max_events,
            bytes: batch.max_bytes,
        });
        let dispatcher = Dispatcher {
            target: Arc::new(Target {
                client: client(config)?,
                method: config.method,
                requests: Requests::new(config),
                rules: Rules::new(config),
                attempt_timeout: config.retry.attempt_timeout,
            }),
            lanes: Lanes::new(limits),
            retry: config.retry,
            concurrency: config.concurrency,
            acks,
            status,
            under_way: JoinSet::new(),
            waiting: BTreeMap::new(),
            number: 0,
            refused: Vec::new(),
            troubled: Troubled::default(),
        };
        #[expect(clippy::disallowed_methods, reason = "what may be in flight bounds it")]
        let (given, taken) = mpsc::unbounded_channel();
        let dispatcher = tokio::spawn(dispatcher.run(taken).in_current_span());
        Ok(Self { given, dispatcher })
    }

    pub(super) fn send(&mut self, seq: Seq, record: Record) -> Result<(), SendError> {
        let item = Item {
            seq,
            record,
            alone: false,
            attempts: 0,
        };
        // One that is not taken any more was reported to be broken.
        let _ = self.given.send(Given::Item(item));
        Ok(())
    }

    pub(super) fn pass_over(&self, seq: Seq) {
        let _ = self.given.send(Given::PassedOver(seq));
    }

    pub(super) fn passer(&self) -> Passer {
        Passer(self.given.clone())
    }

    /// Gives up what is under way. A request that its target has is carried out all the same.
    pub(super) async fn close(mut self, _deadline: Instant) -> Result<(), SinkError> {
        self.dispatcher.abort();
        // It is cancelled, or had ended.
        let _ = (&mut self.dispatcher).await;
        Ok(())
    }
}

/// Tells a sink that what it refused is settled.
#[derive(Debug)]
pub(super) struct Passer(mpsc::UnboundedSender<Given>);

impl Passer {
    pub(super) fn pass_over(&self, seq: Seq) {
        // One that is not there any more holds back nothing.
        let _ = self.0.send(Given::PassedOver(seq));
    }
}

impl Drop for HttpSink {
    fn drop(&mut self) {
        self.dispatcher.abort();
    }
}

fn client(config: &config::Http) -> Result<Client, HttpClientError> {
    let client = http_client::builder_with(&config.tls)?
        .retry(reqwest::retry::never())
        .connect_timeout(config.connect_timeout)
        .pool_idle_timeout(IDLE)
        .pool_max_idle_per_host(config.concurrency);
    Ok(client.build()?)
}

/// Whether the target's host can be reached; no request is made, which could mean something to it.
pub async fn preflight(config: &config::Http) -> Vec<Finding> {
    if let Err(error) = client(config) {
        return vec![Finding::bad("HTTP client", error_chain(&error))];
    }
    // The beginning of the template, which has the host.
    let beginning = match config.url.parts().first() {
        Some(config::TemplatePart::Literal(text)) => text.as_str(),
        _ => "",
    };
    let Some(url) = reqwest::Url::parse(beginning).ok() else {
        return Vec::new();
    };
    let (host, port) = (
        url.host_str().unwrap_or_default(),
        url.port_or_known_default().unwrap_or(80),
    );
    let subject = format!("HTTP {host}:{port}");
    let address = (host.trim_matches(['[', ']']), port);
    vec![match timeout(CHECK, TcpStream::connect(address)).await {
        Ok(Ok(_)) => Finding::good(subject, "takes connections; no request was made"),
        Ok(Err(error)) => Finding::bad(subject, format!("{error}: start it, or correct `url` of the sink")),
        Err(_) => Finding::bad(
            subject,
            format!("no connection within {CHECK:?}: start it, or correct `url` of the sink"),
        ),
    }]
}
