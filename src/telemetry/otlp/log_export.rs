//! The task that exports dispatch records, by OTLP over HTTP with Protocol Buffers.
//!
//! A batch that the collector does not take now is tried again, as OTLP has it, and the queue fills meanwhile; what finds no room
//! there is lost. So a collector that is away for a moment misses nothing.

use std::env;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use opentelemetry_http::{Bytes, Response};
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceResponse;
use percent_encoding::percent_decode_str;
use prost::Message as _;
use reqwest::Url;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::config::Restart;
use crate::http_client::{parse_url, retry_after};
use crate::relay::backoff::Backoff;
use crate::telemetry::error_chain;

use super::client::Client;
use super::export::{resource, scope};
use super::log_record::Envelope;
use super::{Dispatch, FLUSH, OtlpError};

/// The most that one request carries.
const MAX_RECORDS: usize = 1024;
/// How long a record may wait for others.
const DELAY: Duration = Duration::from_secs(1);
/// How long one batch is tried: what a proxy answers for the collector may be meant for it alone.
const GIVE_UP: Duration = Duration::from_secs(300);
/// How long a collector is left alone that asks for it. The queue is full by then.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
const RETRY: Restart = Restart {
    base_delay: Duration::from_millis(200),
    max_delay: Duration::from_secs(5),
    multiplier: 2.0,
    jitter: (0.5, 1.5),
};
/// How often the log says that the collector does not take records.
const TELL_EVERY: Duration = Duration::from_secs(60);

/// Where a collector at this URL takes logs.
fn logs_below(url: &str) -> Option<Url> {
    let mut url = parse_url(url).filter(|url| url.query().is_none())?;
    url.set_path(&format!("{}/v1/logs", url.path().trim_end_matches('/')));
    Some(url)
}

/// Exports to the collector at this URL, below which the path for logs follows.
pub(super) fn start(
    url: &str,
    records: mpsc::Receiver<Dispatch>,
    stop: CancellationToken,
) -> Result<JoinHandle<()>, OtlpError> {
    let mut headers = match env::var("OTEL_EXPORTER_OTLP_HEADERS") {
        Ok(text) => parse_headers(&text).ok_or_else(|| OtlpError::Settings {
            // Without what it is: that can be a secret.
            text: "OTEL_EXPORTER_OTLP_HEADERS: expected headers such as `name=value,name=value`".to_owned(),
        })?,
        Err(_) => HeaderMap::new(),
    };
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
    let task = Task {
        client: Client::new()?,
        url: logs_below(url).ok_or_else(|| OtlpError::Url { url: url.to_owned() })?,
        headers,
        envelope: Envelope::new(&resource(), &scope()),
        records,
        batch: Vec::with_capacity(MAX_RECORDS),
        in_trouble: false,
        told: None,
    };
    Ok(tokio::spawn(task.run(stop)))
}

/// Of pairs, whose values are percent-encoded. None: it is something else.
fn parse_headers(text: &str) -> Option<HeaderMap> {
    let pairs = text.split(',').map(str::trim).filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=')?;
            let value = percent_decode_str(value.trim()).decode_utf8().ok()?;
            let mut value = HeaderValue::from_str(&value).ok()?;
            value.set_sensitive(true);
            Some((HeaderName::try_from(name.trim()).ok()?, value))
        })
        .collect()
}

/// What a collector's answer means for a batch.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// It has them, but for so many.
    Taken {
        rejected: usize,
        why: String,
    },
    /// Not now.
    Later {
        why: String,
        after: Option<Duration>,
    },
    Never {
        why: String,
    },
}

impl Verdict {
    /// As the OTLP specification has it.
    fn of(answer: Result<Response<Bytes>, reqwest::Error>, now: SystemTime) -> Self {
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => {
                let why = error_chain(&error);
                return Self::Later { why, after: None };
            }
        };
        let status = answer.status();
        let why = format!("the collector answers {}", status.as_u16());
        match status.as_u16() {
            200..=299 => {
                let partial = ExportLogsServiceResponse::decode(answer.into_body())
                    .ok()
                    .and_then(|response| response.partial_success)
                    .unwrap_or_default();
                Self::Taken {
                    rejected: usize::try_from(partial.rejected_log_records).unwrap_or(0),
                    why: format!("the collector rejects them: {}", partial.error_message),
                }
            }
            429 | 502 | 503 | 504 => Self::Later {
                why,
                after: retry_after(answer.headers(), now),
            },
            _ => Self::Never { why },
        }
    }
}

struct Task {
    client: Client,
    url: Url,
    headers: HeaderMap,
    envelope: Envelope,
    records: mpsc::Receiver<Dispatch>,
    /// Taken from the queue and not exported: here, so that an export that is ended early loses none uncounted.
    batch: Vec<Dispatch>,
    in_trouble: bool,
    told: Option<Instant>,
}

impl Task {
    /// Until the stop, and then until nothing waits, or for as long as a stop waits for it.
    async fn run(mut self, stop: CancellationToken) {
        let too_late = async {
            stop.cancelled().await;
            sleep(FLUSH).await;
        };
        tokio::select! {
            biased; // what is done is not too late
            () = self.export_all(&stop) => {}
            () = too_late => tracing::warn!("the collector did not take the last dispatch records within {FLUSH:?}"),
        }
        self.records.close();
        while let Ok(record) = self.records.try_recv() {
            self.batch.push(record);
        }
        dropped(&self.batch, "the process ended");
    }

    async fn export_all(&mut self, stop: &CancellationToken) {
        loop {
            let first = tokio::select! {
                biased; // what waits is exported before the end
                count = self.records.recv_many(&mut self.batch, MAX_RECORDS) => count,
                () = stop.cancelled() => return,
            };
            if first == 0 {
                return;
            }
            let until = Instant::now() + DELAY;
            while self.batch.len() < MAX_RECORDS {
                let room = MAX_RECORDS - self.batch.len();
                tokio::select! {
                    count = self.records.recv_many(&mut self.batch, room) => if count == 0 { break },
                    () = sleep_until(until) => break,
                    () = stop.cancelled() => break,
                }
            }
            self.export().await;
            self.batch.clear();
        }
    }

    /// Tries until the batch is taken, or never will be.
    async fn export(&mut self) {
        let body = self.envelope.request(&self.batch, SystemTime::now()).encode_to_vec();
        let body = Bytes::from(body);
        let give_up = Instant::now() + GIVE_UP;
        let mut backoff = Backoff::new(RETRY);
        loop {
            let answer = self.client.post(&self.url, &self.headers, body.clone()).await;
            match Verdict::of(answer, SystemTime::now()) {
                Verdict::Taken { rejected, why } => {
                    if std::mem::take(&mut self.in_trouble) {
                        tracing::info!("dispatch records are exported again");
                    }
                    // Which ones is not said.
                    dropped(self.batch.get(..rejected).unwrap_or(&self.batch), &why);
                    return;
                }
                Verdict::Never { why } => {
                    dropped(&self.batch, &why);
                    return;
                }
                Verdict::Later { why, after } => {
                    self.waits(&why);
                    let asked = after.unwrap_or_default().min(LONGEST_WAIT);
                    let next = Instant::now() + backoff.wait().max(asked);
                    if next > give_up {
                        dropped(&self.batch, &why);
                        return;
                    }
                    sleep_until(next).await;
                }
            }
        }
    }

    fn waits(&mut self, why: &str) {
        if self.told.is_none_or(|told| told.elapsed() >= TELL_EVERY) {
            self.told = Some(Instant::now());
            self.in_trouble = true;
            tracing::warn!(
                error = why,
                "dispatch records are not exported; events are relayed all the same"
            );
        }
    }
}

/// They are lost: each pipeline hears of its own.
fn dropped(records: &[Dispatch], why: &str) {
    for of_one in records.chunk_by(|one, next| Arc::ptr_eq(&one.origin, &next.origin)) {
        if let Some(first) = of_one.first() {
            first.origin.dropped(of_one.len() as u64, why);
        }
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsPartialSuccess;

    use super::*;

    fn answer(status: u16, retry_after: Option<&'static str>, body: Vec<u8>) -> Verdict {
        let mut answer = Response::new(Bytes::from(body));
        *answer.status_mut() = status.try_into().unwrap();
        let headers = answer.headers_mut();
        headers.extend(retry_after.map(|text| (reqwest::header::RETRY_AFTER, HeaderValue::from_static(text))));
        Verdict::of(Ok(answer), SystemTime::UNIX_EPOCH)
    }

    #[test]
    fn what_is_tried_again_is_what_otlp_names() {
        for status in [429, 502, 503, 504] {
            let Verdict::Later { why, after: None } = answer(status, None, Vec::new()) else {
                panic!("{status}");
            };
            assert!(why.contains(&status.to_string()), "{why}");
        }
        for status in [301, 400, 401, 404, 413, 500, 501] {
            assert!(
                matches!(answer(status, None, Vec::new()), Verdict::Never { .. }),
                "{status}"
            );
        }
        for (text, seconds) in [("7", 7), ("Thu, 01 Jan 1970 00:00:09 GMT", 9)] {
            let Verdict::Later { after, .. } = answer(503, Some(text), Vec::new()) else {
                panic!("{text}");
            };
            assert_eq!(after, Some(Duration::from_secs(seconds)), "{text}");
        }
    }

    #[test]
    fn a_collector_can_reject_some() {
        let rejected = |count| ExportLogsServiceResponse {
            partial_success: Some(ExportLogsPartialSuccess {
                rejected_log_records: count,
                error_message: "too old".to_owned(),
            }),
        };
        for (body, expected) in [
            (Vec::new(), 0),
            (b"{}".to_vec(), 0),
            (rejected(3).encode_to_vec(), 3),
            (rejected(-3).encode_to_vec(), 0),
        ] {
            let Verdict::Taken { rejected, why } = answer(200, None, body.clone()) else {
                panic!("{body:?}");
            };
            assert_eq!(rejected, expected, "{body:?}");
            assert!(rejected == 0 || why.contains("too old"), "{why}");
        }
    }

    #[test]
    fn headers_are_pairs_with_encoded_values() {
        let headers = parse_headers(" authorization = Bearer%20a%3Db%2C , x-scope=1,").unwrap();
        assert_eq!(headers.get("authorization").unwrap(), "Bearer a=b,");
        assert_eq!(headers.get("x-scope").unwrap(), "1");
        assert!(headers.get("authorization").unwrap().is_sensitive());
        assert!(parse_headers("").unwrap().is_empty());
        for text in ["a", "=1", "a b=1", "a=%00", "a=1;b"] {
            assert_eq!(parse_headers(text).is_some(), text == "a=1;b", "{text}");
        }
    }
}
