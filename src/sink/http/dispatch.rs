//! Sends what the lanes give, a number of requests at once, and again what was not accepted.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use reqwest::{Client, Url};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::config::{Method, Retry};
use crate::pause::until;
use crate::relay::backoff::delay;
use crate::relay::in_flight::{Acks, Refused, Seq};
use crate::sink::{DeliveryError, DeliveryErrorKind, RecordFault};
use crate::telemetry::error_chain;
use crate::telemetry::status::PipelineStatus;

use super::answer::{Failed, Rules, Verdict};
use super::lanes::{Item, Job, Lanes};
use super::request::{NotJson, Requests};
use super::troubled::{Trouble, Troubled};

/// The most of an answer that is read. A longer one ends its connection.
const MAX_ANSWER: usize = 64 * 1024;
/// More than servers take.
const MAX_HEADERS: usize = 500;
/// A batch of which attempts have no end is sent one by one after so many.
const BATCH_ATTEMPTS: u32 = 5;

/// What each request needs.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) client: Client,
    pub(super) method: Method,
    pub(super) requests: Requests,
    pub(super) rules: Rules,
    pub(super) attempt_timeout: Duration,
}

/// What a dispatcher is told.
#[derive(Debug)]
pub(super) enum Given {
    Item(Item),
    /// What was refused under this seq is parked, or skipped.
    PassedOver(Seq),
}

/// A job that was refused, and those of its events that are not settled yet.
#[derive(Debug)]
pub(super) struct RefusedJob {
    job: Job,
    open: Vec<Seq>,
}

/// See the module's text.
pub(super) struct Dispatcher {
    pub(super) target: Arc<Target>,
    pub(super) lanes: Lanes,
    pub(super) retry: Retry,
    pub(super) concurrency: usize,
    pub(super) acks: Acks,
    pub(super) status: Arc<PipelineStatus>,
    pub(super) under_way: JoinSet<(Job, Verdict)>,
    /// When which job is tried again; the number tells those of one moment apart.
    pub(super) waiting: BTreeMap<(Instant, u64), Job>,
    pub(super) number: u64,
    /// Their lanes wait: should an event come again after all, nothing of its key may have overtaken it.
    pub(super) refused: Vec<RefusedJob>,
    pub(super) troubled: Troubled,
}

/// Nothing more is sent: nobody gives records any more, or what is wrong was reported.
struct Stop;

impl Dispatcher {
    /// Until the sink is dropped, or its target forbids everything.
    pub(super) async fn run(mut self, mut given: mpsc::UnboundedReceiver<Given>) {
        while self.step(&mut given).await.is_ok() {}
    }

    async fn step(&mut self, given: &mut mpsc::UnboundedReceiver<Given>) -> Result<(), Stop> {
        self.start();
        // With no room for it, what is due waits for a request to end.
        let has_room = self.under_way.len() < self.concurrency;
        let first = self.waiting.first_key_value().filter(|_| has_room);
        let next = first.map(|((at, _), _)| *at);
        tokio::select! {
            first = given.recv() => {
                self.take(first.ok_or(Stop)?);
                // What came together can go out together.
                while let Ok(next) = given.try_recv() {
                    self.take(next);
                }
            }
            Some(ended) = self.under_way.join_next() => match ended {
                Ok((job, verdict)) => self.settle(job, verdict)?,
                Err(error) => {
                    let (kind, text) = (DeliveryErrorKind::Unavailable, format!("a request's task failed: {error}"));
                    self.acks.broken(DeliveryError { kind, text });
                    return Err(Stop);
                }
            },
            () = until(next) => {}
        }
        Ok(())
    }

    fn take(&mut self, given: Given) {
        let seq = match given {
            Given::Item(item) => return self.lanes.push(item),
            Given::PassedOver(seq) => seq,
        };
        let Some(index) = self.refused.iter().position(|refused| refused.open.contains(&seq)) else {
            return;
        };
        let open = &mut self.refused[index].open;
        open.retain(|other| *other != seq);
        if open.is_empty() {
            self.lanes.done(self.refused.swap_remove(index).job);
        }
    }

    /// Starts as many requests as may be under way.
    fn start(&mut self) {
        while self.under_way.len() < self.concurrency {
            let now = Instant::now();
            let due = self.waiting.first_entry().filter(|entry| entry.key().0 <= now);
            let job = match due {
                Some(entry) => Some(entry.remove()),
                None => self.lanes.take(),
            };
            let Some(mut job) = job else { return };
            job.attempts += 1;
            let target = Arc::clone(&self.target);
            self.under_way.spawn(async move {
                let verdict = target.attempt(&job).await;
                (job, verdict)
            });
        }
    }

    fn settle(&mut self, mut job: Job, verdict: Verdict) -> Result<(), Stop> {
        if verdict != Verdict::Accepted {
            self.status.count(|totals| totals.failed += job.items.len() as u64);
        }
        if let Verdict::Later { why, said, after, how } = verdict {
            self.later(job, why, said, after, how);
            return Ok(());
        }
        self.calm_down(&mut job);
        match verdict {
            Verdict::Later { .. } => {}
            Verdict::Accepted => {
                job.items.iter().for_each(|item| self.acks.acked(item.seq));
                self.lanes.done(job);
            }
            Verdict::Refused { .. } if job.items.len() > 1 => self.lanes.split(job),
            Verdict::Refused { why, said } => self.refuse(job, why, said, RecordFault::Refused),
            Verdict::Forbidden { why } => {
                let (kind, text) = (DeliveryErrorKind::Refused, why);
                self.acks.broken(DeliveryError { kind, text });
                return Err(Stop);
            }
        }
        Ok(())
    }

    /// The job is not tried again.
    fn calm_down(&mut self, job: &mut Job) {
        let Some(trouble) = job.trouble.take() else { return };
        self.troubled.remove(&trouble);
        self.status.sink_retried(self.troubled.shown());
    }

    fn later(&mut self, mut job: Job, why: String, said: String, after: Option<Duration>, how: Failed) {
        // What cannot be reached says nothing of the event: a target that is away for a while is waited for.
        job.reached += u32::from(how != Failed::Unreached);
        let (attempts, most) = (job.attempts, self.retry.max_attempts);
        let is_batch = job.items.len() > 1;
        // Without an end to the attempts, one event must not hold the others of its batch for ever.
        let is_enough = most
            .or(is_batch.then_some(BATCH_ATTEMPTS))
            .is_some_and(|most| job.reached >= most);
        if is_enough {
            self.calm_down(&mut job);
            let fault = match how {
                Failed::TimedOut => RecordFault::TimedOut,
                Failed::Unreached | Failed::Answered => RecordFault::Exhausted,
            };
            return match is_batch {
                true => self.lanes.split(job),
                false => self.refuse(job, format!("{why}; it was tried {attempts} times"), said, fault),
            };
        }
        job.items
            .iter()
            .for_each(|item| self.acks.tried(item.seq, attempts, &why));
        let wait = delay(&self.retry.delays, attempts).max(after.unwrap_or_default());
        let (events, wait_ms) = (job.items.len(), wait.as_millis());
        self.number += 1;
        let why: Arc<str> = Arc::from(format!("{why}; {}", how.remedy()));
        let trouble = Trouble {
            attempts: Reverse(attempts),
            at: SystemTime::now() + wait,
            number: self.number,
            keys: job.key_count(),
            is_reached: how != Failed::Unreached,
            why: Arc::clone(&why),
        };
        let is_news = !self.troubled.is_known(&why);
        if let Some(before) = job.trouble.replace(trouble.clone()) {
            self.troubled.remove(&before);
        }
        self.troubled.add(trouble);
        self.status.sink_retry(self.troubled.shown(), &why);
        if is_news {
            tracing::warn!(
                error = &*why,
                attempts,
                most,
                events,
                wait_ms,
                "delivery is tried again"
            );
        } else {
            tracing::debug!(
                error = &*why,
                attempts,
                most,
                events,
                wait_ms,
                "delivery is tried again"
            );
        }
        self.waiting.insert((Instant::now() + wait, self.number), job);
    }

    fn refuse(&mut self, mut job: Job, why: String, said: String, fault: RecordFault) {
        let open = job.items.iter().map(|item| item.seq).collect();
        for item in std::mem::take(&mut job.items) {
            self.acks.refused(Refused {
                seq: item.seq,
                record: item.record,
                error: DeliveryError {
                    kind: DeliveryErrorKind::Record(fault),
                    text: why.clone(),
                },
                attempts: job.attempts,
                said: said.clone(),
            });
        }
        self.refused.push(RefusedJob { job, open });
    }
}

impl Drop for Dispatcher {
    fn drop(&mut self) {
        self.status.sink_retried(None);
        if std::thread::panicking() {
            let (kind, text) = (
                DeliveryErrorKind::Unavailable,
                "the sink's task failed; this is a fault of tailpost".to_owned(),
            );
            self.acks.broken(DeliveryError { kind, text });
        }
    }
}

fn refused(why: String) -> Verdict {
    Verdict::Refused {
        why,
        said: String::new(),
    }
}

impl Target {
    async fn attempt(&self, job: &Job) -> Verdict {
        let Some(url) = job.items.first().map(|item| &item.record.topic) else {
            return Verdict::Accepted;
        };
        let url = match Url::parse(url) {
            Ok(url) => url,
            Err(error) => return refused(format!("the event's URL is none: {error}")),
        };
        let host = url.origin().ascii_serialization();
        let body = match self.requests.body(&job.items) {
            Ok(body) => body,
            Err(NotJson { .. }) => {
                let why = "the event's value is not JSON, of which a `batch` is made: send it without one, or as `body: envelope`";
                return refused(why.to_owned());
            }
        };
        if let Some(count) = job
            .items
            .iter()
            .map(|item| item.record.headers.len())
            .find(|count| *count > MAX_HEADERS)
        {
            return refused(format!(
                "its record has {count} headers, of which a request takes {MAX_HEADERS}"
            ));
        }
        match timeout(self.attempt_timeout, self.send(job, url, &host, body)).await {
            Ok(Ok(verdict)) => verdict,
            // The request itself is none, such as one with a URL that is too long.
            Ok(Err(error)) if error.is_builder() => refused(error_chain(&error.without_url())),
            Ok(Err(error)) => Verdict::Later {
                how: match (error.is_connect(), error.is_timeout()) {
                    (true, _) => Failed::Unreached,
                    (false, true) => Failed::TimedOut,
                    (false, false) => Failed::Answered,
                },
                why: format!("{host}: {}", error_chain(&error.without_url())),
                said: String::new(),
                after: None,
            },
            Err(_) => Verdict::Later {
                why: format!(
                    "{host} did not answer within {:?} (`retry.attempt_timeout`); it may have carried out what it was sent",
                    self.attempt_timeout
                ),
                said: String::new(),
                after: None,
                how: Failed::TimedOut,
            },
        }
    }

    async fn send(&self, job: &Job, url: Url, host: &str, body: Bytes) -> Result<Verdict, reqwest::Error> {
        let now = SystemTime::now();
        let seconds = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let headers = self.requests.headers(&job.items, &body, seconds);
        let method = match self.method {
            Method::Post => reqwest::Method::POST,
            Method::Put => reqwest::Method::PUT,
            Method::Patch => reqwest::Method::PATCH,
        };
        let mut answer = self
            .client
            .request(method, url)
            .headers(headers)
            .body(body)
            .send()
            .await?;
        let mut said = Vec::new();
        // An answer that breaks off is none, be its status what it may: who wrote it can have failed at the work.
        while let Some(chunk) = answer.chunk().await? {
            let room = MAX_ANSWER - said.len();
            said.extend_from_slice(&chunk[..chunk.len().min(room)]);
            if chunk.len() > room {
                break;
            }
        }
        Ok(self
            .rules
            .verdict(host, answer.status().as_u16(), answer.headers(), &said, now))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::future::pending;

    use super::*;
    use crate::config;
    use crate::relay::in_flight::{Ledger, Limits as InFlight};
    use crate::sink::http::lanes::Limits;

    /// With one request at a time.
    fn dispatcher() -> Dispatcher {
        let text = "{apiVersion: tailpost/v1, kind: Pipeline, metadata: {name: p}, spec: {\
             source: {type: postgres, config: {id: s, dsn: 'postgres://u@h/d', slot: s, publication: p, outbox: {prefixes: [o]}}}, \
             processors: [{type: outbox}], sinks: [{type: http, config: {id: k, url: 'http://h/', concurrency: 1}}]}}";
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p.yaml");
        std::fs::write(&path, text).unwrap();
        let pipeline = config::load(&path, &HashMap::new()).unwrap().pipeline;
        let config::Sink::Http(http) = &pipeline.sink else {
            panic!("a sink of type http")
        };
        let ledger = Ledger::new(InFlight::of(&pipeline.delivery, false));
        Dispatcher {
            target: Arc::new(Target {
                client: crate::sink::http::client(http).unwrap(),
                method: http.method,
                requests: Requests::new(http),
                rules: Rules::new(http),
                attempt_timeout: http.retry.attempt_timeout,
            }),
            lanes: Lanes::new(Limits { events: 1, bytes: 1 }),
            retry: http.retry,
            concurrency: http.concurrency,
            acks: ledger.acks(),
            status: PipelineStatus::new(&pipeline),
            under_way: JoinSet::new(),
            waiting: BTreeMap::new(),
            number: 0,
            refused: Vec::new(),
            troubled: Troubled::default(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_due_while_there_is_no_room_waits_without_being_looked_at() {
        let mut dispatcher = dispatcher();
        dispatcher.under_way.spawn(pending());
        dispatcher.waiting.insert((Instant::now(), 0), Job::default());
        #[expect(clippy::disallowed_methods, reason = "nothing is sent")]
        let (_sender, mut given) = mpsc::unbounded_channel();
        let step = timeout(Duration::from_secs(60), dispatcher.step(&mut given)).await;
        assert!(step.is_err(), "it came by for nothing");
    }
}
