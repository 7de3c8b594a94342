//! Fetches what processors ask for, and knows when: the clock that they do not have.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use super::client::RegistryClient;
use super::{Answer, Known, Question, RegistryError, SchemaId};
use crate::config::{Restart, SchemaRegistry};
use crate::relay::backoff::Backoff;
use crate::telemetry::status::PipelineStatus;

/// After this, what can change is asked for anew: what `latest` is, and what was missing.
const AGE: Duration = Duration::from_secs(60);
/// So much later than an event's commit an answer must have come to stand against it: what was registered for the event was there
/// by then, however clocks differ. An event of now that is bad costs a request, and those of a backlog cost one together.
const CERTAIN: Duration = Duration::from_secs(10);
/// For so long after a request in vain, an answer of some age serves without another one.
const AWAY: Duration = Duration::from_secs(10);
/// Answers whose times are remembered: at least as many as answers are kept.
const MOST_TIMES: usize = 1000;
/// Between two requests of a registry that is away.
const RESTART: Restart = Restart {
    base_delay: Duration::from_millis(200),
    max_delay: Duration::from_secs(30),
    multiplier: 2.0,
    jitter: (0.5, 1.0),
};

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Lookups {
    /// Registries that were not heard of yet.
    silent: VecDeque<Arc<SchemaRegistry>>,
    clients: Vec<RegistryClient>,
    /// When each answer came, by its registry's place among the clients.
    times: HashMap<(usize, SchemaId), SystemTime>,
    aged: Instant,
    under_way: Option<Request>,
    retry_at: Option<Instant>,
    /// When the last request was in vain.
    failed_at: Option<Instant>,
    backoff: Backoff,
}

#[derive(Debug)]
struct Request {
    /// Whom, by its place among the clients, and what; None: whether it answers at all.
    of: (usize, Option<SchemaId>),
    task: JoinHandle<Result<Answer, RegistryError>>,
}

impl Drop for Request {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Lookups {
    /// Sees whether these registries answer, in their turn.
    pub(crate) fn new(registries: impl IntoIterator<Item = Arc<SchemaRegistry>>) -> Self {
        Self {
            silent: registries.into_iter().collect(),
            clients: Vec::new(),
            times: HashMap::new(),
            aged: Instant::now(),
            under_way: None,
            retry_at: None,
            failed_at: None,
            backoff: Backoff::new(RESTART),
        }
    }

    /// Whether what can change has grown old since this last said so.
    pub(crate) fn have_aged(&mut self) -> bool {
        let is_due = self.aged.elapsed() >= AGE;
        if is_due {
            self.aged = Instant::now();
        }
        is_due
    }

    /// Whether there is something to find out that no event waits for.
    pub(crate) fn are_curious(&self) -> bool {
        !self.silent.is_empty()
    }

    /// Waits for the answer to a question, for as long as the registry is away; without a question, until a registry was heard of.
    /// `committed_us`: when the event that waits was, in microseconds since 1970. Cancel safe: the request goes on, and is of use if the next question is the same.
    ///
    /// # Errors
    /// What a person must act on.
    pub(crate) async fn answer(
        &mut self,
        question: Option<&Question>,
        committed_us: i64,
        status: &PipelineStatus,
    ) -> Result<Answer, RegistryError> {
        let registry = question.map(|question| &question.registry).or(self.silent.front());
        let Some(registry) = registry.map(Arc::clone) else {
            return std::future::pending().await;
        };
        let index = self.client(&registry)?;
        let known_is_enough = question.is_some_and(|question| match question.known {
            Known::Nothing => false,
            Known::Old => self.failed_at.is_some_and(|at| at.elapsed() < AWAY),
            Known::Doubted => {
                let committed = UNIX_EPOCH + Duration::from_micros(u64::try_from(committed_us).unwrap_or(0));
                let came = self.times.get(&(index, question.id.clone()));
                came.is_some_and(|came| *came >= committed + CERTAIN)
            }
        });
        if known_is_enough {
            return Ok(Answer::Unchanged);
        }
        loop {
            if let Some(at) = self.retry_at {
                sleep_until(at).await;
                self.retry_at = None;
            }
            let error = match self.ask(index, question).await {
                Ok(answer) => {
                    self.silent.retain(|silent| !Arc::ptr_eq(silent, &registry));
                    self.heard(status);
                    if let Some(question) = question {
                        self.remember(index, &question.id);
                    }
                    return Ok(answer);
                }
                Err(error) if !error.can_heal() => return Err(error),
                Err(error) => error,
            };
            self.failed_at = Some(Instant::now());
            if status.registry_trouble(Some(error.to_string())) {
                tracing::warn!(%error, "a schema registry is asked again");
            }
            if question.is_some_and(|question| question.known == Known::Old) {
                // It has served so far.
                return Ok(Answer::Unchanged);
            }
            self.retry_at = Some(Instant::now() + self.backoff.wait());
        }
    }

    /// The place of a registry's client.
    fn client(&mut self, registry: &Arc<SchemaRegistry>) -> Result<usize, RegistryError> {
        if let Some(index) = self.clients.iter().position(|client| client.is_of(registry)) {
            return Ok(index);
        }
        self.clients.push(RegistryClient::new(registry)?);
        Ok(self.clients.len() - 1)
    }

    /// Makes one request, or goes on with it.
    async fn ask(&mut self, index: usize, question: Option<&Question>) -> Result<Answer, RegistryError> {
        let of = (index, question.map(|question| question.id.clone()));
        if self.under_way.as_ref().is_some_and(|request| request.of != of) {
            self.under_way = None;
        }
        let request = match &mut self.under_way {
            Some(request) => request,
            None => {
                let (client, id) = (self.clients[index].clone(), of.1.clone());
                let task = tokio::spawn(async move {
                    match id {
                        Some(id) => client.schema(&id).await,
                        None => client.contact().await.map(|()| Answer::Unchanged),
                    }
                });
                self.under_way.insert(Request { of, task })
            }
        };
        let ended = (&mut request.task).await;
        self.under_way = None;
        // Nobody aborts it but by letting go of it.
        ended.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
    }

    fn heard(&mut self, status: &PipelineStatus) {
        self.backoff.reset();
        self.failed_at = None;
        if status.registry_trouble(None) {
            tracing::info!("the schema registry answers again");
        }
    }

    fn remember(&mut self, index: usize, id: &SchemaId) {
        if self.times.len() >= MOST_TIMES {
            self.times.clear();
        }
        self.times.insert((index, id.clone()), SystemTime::now());
    }
}
