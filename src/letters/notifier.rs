//! Tells a webhook of dead letters: of the first at once, then of those of each interval together.
//!
//! Only of what is durable, and never in the way of what parks them: what the webhook does not take is told with the next.

use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Url};
use secrecy::ExposeSecret;
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::notices::{Notices, Untold};
use crate::config::{Notify, Pipeline};
use crate::http_client::{self, parse_url};
use crate::telemetry::error_chain;
use crate::telemetry::status::PipelineStatus;

/// What a webhook answers in.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long the pipeline's end waits for it.
const CLOSING: Duration = Duration::from_secs(5);

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Notifier {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Notifier {
    /// None: nobody wants to be told, or nobody can be, which is no reason not to run. Must be called within a runtime.
    pub(crate) fn start(pipeline: &Pipeline, status: &Arc<PipelineStatus>) -> Option<Self> {
        let notify = pipeline.dead_letter.as_ref()?.notify.as_ref()?;
        let notices = status.notices()?;
        // The file's reader has let through what is a URL.
        let url = parse_url(notify.webhook.expose_secret())?;
        let client = match http_client::builder().timeout(PATIENCE).build() {
            Ok(client) => client,
            Err(error) => {
                tracing::error!(error = %error_chain(&error), "nobody is told of dead letters: set up the HTTP client");
                return None;
            }
        };
        let webhook = Webhook {
            client,
            url,
            headers: headers(notify),
            interval: notify.interval,
            notices: Arc::clone(notices),
            status: Arc::clone(status),
            failing: false,
        };
        let stop = CancellationToken::new();
        let task = tokio::spawn(webhook.run(stop.clone()).in_current_span());
        Some(Self { stop, task })
    }

    /// Tells of what is left, as far as that is done soon.
    pub(crate) async fn close(mut self) {
        self.stop.cancel();
        if timeout(CLOSING, &mut self.task).await.is_err() {
            self.task.abort();
            tracing::warn!("the webhook does not answer; it was not told of the last dead letters");
        }
    }
}

fn headers(notify: &Notify) -> HeaderMap {
    let headers = notify.headers.iter().filter_map(|(name, value)| {
        let name = HeaderName::try_from(name.as_str()).ok()?;
        let mut value = HeaderValue::from_str(value.expose_secret()).ok()?;
        value.set_sensitive(true);
        Some((name, value))
    });
    headers.collect()
}

/// Why the webhook was not told. Its URL can be a secret, and is not said.
#[derive(Debug, thiserror::Error)]
enum WebhookError {
    #[error("no answer from the webhook")]
    Send(#[source] reqwest::Error),
    #[error("the webhook answered {code}: expected 2xx")]
    Answer { code: u16 },
}

struct Webhook {
    client: Client,
    url: Url,
    headers: HeaderMap,
    interval: Duration,
    notices: Arc<Notices>,
    status: Arc<PipelineStatus>,
    /// The last request was in vain, and the log has said so.
    failing: bool,
}

impl Webhook {
    async fn run(mut self, stop: CancellationToken) {
        let mut next = Instant::now();
        loop {
            let due = async {
                self.notices.any().await;
                sleep_until(next).await;
            };
            tokio::select! {
                biased; // a stop does not wait for the interval
                () = stop.cancelled() => break,
                () = due => {}
            }
            next = Instant::now() + self.interval;
            self.tell().await;
        }
        self.tell().await;
    }

    async fn tell(&mut self) {
        let Some(untold) = self.notices.take() else { return };
        let told = self.post(&untold).await;
        self.status.count(|totals| match told {
            Ok(()) => totals.notices_taken += 1,
            Err(_) => totals.notices_failed += 1,
        });
        match told {
            Ok(()) if self.failing => {
                self.failing = false;
                tracing::info!("the webhook is told of dead letters again");
            }
            Ok(()) => {}
            Err(error) => {
                let error = error_chain(&error);
                match self.failing {
                    false => tracing::warn!(%error, "the webhook is told of these dead letters with the next"),
                    true => tracing::debug!(%error, "the webhook is told of these dead letters with the next"),
                }
                self.failing = true;
                self.notices.put_back(untold);
            }
        }
    }

    async fn post(&self, untold: &Untold) -> Result<(), WebhookError> {
        let total: u64 = self.status.snapshot().sinks.iter().map(|sink| sink.dead_lettered).sum();
        let body = body(&self.status.name, untold, total);
        let request = self.client.post(self.url.clone()).headers(self.headers.clone());
        let sent = request.json(&body).send().await;
        let answer = sent.map_err(|error| WebhookError::Send(error.without_url()))?;
        match answer.status() {
            code if code.is_success() => Ok(()),
            code => Err(WebhookError::Answer { code: code.as_u16() }),
        }
    }
}

/// `total`: since the process started.
fn body(pipeline: &str, untold: &Untold, total: u64) -> serde_json::Value {
    let count = untold.count();
    let letters = if count == 1 { "dead letter" } else { "dead letters" };
    let reasons = untold.reasons.iter().map(|(reason, count)| format!("{count} {reason}"));
    let reasons = reasons.collect::<Vec<_>>().join(", ");
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "text": format!("{pipeline}: {count} {letters} ({reasons}), {total} since the process started"),
        "pipeline": pipeline,
        "count": count,
        "total": total,
        "reasons": untold.reasons,
        "letters": untold.letters,
        "more": count.saturating_sub(untold.letters.len() as u64),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_counts_what_it_does_not_list() {
        let untold = Untold {
            letters: Vec::new(),
            reasons: [("permanent_failure", 1), ("poison_message", 2)].into(),
        };
        let body = body("orders", &untold, 12);
        assert_eq!(
            body["text"],
            "orders: 3 dead letters (1 permanent_failure, 2 poison_message), 12 since the process started"
        );
        assert_eq!((&body["count"], &body["more"]), (&json!(3), &json!(3)));
    }
}
