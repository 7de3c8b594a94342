//! A pipeline's life: its source is connected again when it fails, its sink is made anew, and what cannot heal ends it.
//!
//! A failed source goes on behind the last batch that it handed over, while the ledger stays: nothing is sent twice. A
//! failed sink ends a *life*: relay, source and saver end together, and the next life begins at the watermark. The
//! checkpoint store lives through all of them, and with it the lock that keeps other processes out.
//!
//! Where the checkpoint is shared with other machines, a life begins with a claim: the source takes its lock, then older
//! instances are shut out of the sink and of the store, and only then is the checkpoint read. In another order a stand-by
//! would shut out the living instance, or go on from a position that is old.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinError;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::checkpoint::{CheckpointError, CheckpointStore, saver};
use crate::config::{OnFenced, Pipeline};
use crate::position::Position;
use crate::processor::{Chain, DeadLetters};
use crate::sink::{Sink, SinkError};
use crate::source::{Answer, BatchSender, Claim, LogChannel, OperatorWord, Question, SourceError};
use crate::telemetry::error_chain;
use crate::telemetry::status::{Part, PipelineStatus, SourceView, State};

use super::backoff::Backoff;
use super::connect::{Connector, say_again, stand_by};
use super::in_flight::{Ledger, Limits, Unsettled};
use super::parts::{Parts, PipelineParts};
use super::{Culprit, End, HaltError, Relay, RelayParts};

/// Batches between source and relay: enough that neither waits for the other's turn.
const CHANNEL: usize = 2;
/// How long an instance that was fenced twice leaves the field to the other one.
const FENCED_WAIT: Duration = Duration::from_secs(30);

/// Why a pipeline ended.
#[derive(Debug, thiserror::Error)]
pub enum PipelineError {
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error(transparent)]
    Sink(#[from] SinkError),
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    #[error(transparent)]
    Halted(#[from] HaltError),
    #[error(
        "the process was stopped for {seconds} s while it was to end; what was not acknowledged is sent again at the next start"
    )]
    Suspended { seconds: u64 },
    #[error("a task of the pipeline failed; this is a fault of tailpost")]
    Task(#[from] JoinError),
}

/// How a pipeline is to be run.
#[derive(Debug, Clone)]
pub struct RunOptions {
    pub state_dir: PathBuf,
    /// Stop at the log's end as it is at the start.
    pub once: bool,
    pub word: OperatorWord,
}

/// Runs one pipeline until it is stopped or cannot go on.
///
/// # Errors
/// What a person must act on. It was told to `status`, and is logged by the caller.
pub async fn run(
    pipeline: Pipeline,
    options: RunOptions,
    status: Arc<PipelineStatus>,
    stop: CancellationToken,
) -> Result<(), PipelineError> {
    let span = tracing::info_span!("pipeline", name = pipeline.name, tenant = pipeline.tenant);
    let parts = PipelineParts::new(&pipeline, options.state_dir, Arc::clone(&status));
    let supervisor = Supervisor {
        parts: Arc::new(parts),
        pipeline,
        once: options.once,
        word: options.word,
        status: Arc::clone(&status),
        stop,
    };
    let result = supervisor.run().instrument(span.clone()).await;
    let _entered = span.enter();
    match &result {
        Ok(()) => {
            status.enter(State::Stopped);
            tracing::info!("pipeline stopped");
        }
        Err(error) => {
            let reason = error_chain(error);
            tracing::error!(error = %reason, "pipeline ended");
            status.enter(State::Failed { reason });
        }
    }
    result
}

/// See the module's text.
pub(crate) struct Supervisor<P> {
    pub(crate) parts: Arc<P>,
    pub(crate) pipeline: Pipeline,
    /// Stop at the log's end as it is at the start.
    pub(crate) once: bool,
    pub(crate) word: OperatorWord,
    pub(crate) status: Arc<PipelineStatus>,
    pub(crate) stop: CancellationToken,
}

/// What one life leaves to the next.
struct Legacy<S> {
    store: S,
    from: Option<Position>,
    word: OperatorWord,
    /// Events to be sent one by one first.
    single: u64,
    /// The event that the sink refused when it travelled alone.
    culprit: Option<Culprit>,
    /// A commit whose outcome is not known.
    unsettled: Option<Unsettled>,
}

/// Why a life ended that another one follows.
#[derive(Debug, thiserror::Error)]
enum LifeError {
    #[error(transparent)]
    Sink(#[from] SinkError),
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error("the process was stopped for {seconds} s, in which another instance may have taken over")]
    Suspended { seconds: u64 },
}

impl LifeError {
    fn can_heal(&self) -> bool {
        match self {
            Self::Sink(error) => error.can_heal(),
            Self::Checkpoint(error) => error.can_heal() || error.is_fenced(),
            Self::Source(_) | Self::Suspended { .. } => true,
        }
    }

    /// Whether a pipeline that is being stopped ends as it was asked to all the same: what is missing was only on its way, or
    /// is another instance's to send. A position that cannot be saved is something that a person must see to.
    fn leaves_the_rest_to_the_next_start(&self) -> bool {
        match self {
            Self::Sink(error) => error.can_heal(),
            Self::Checkpoint(error) => error.is_fenced(),
            Self::Source(_) | Self::Suspended { .. } => true,
        }
    }

    fn is_fenced(&self) -> bool {
        match self {
            Self::Sink(error) => error.is_fenced(),
            Self::Checkpoint(error) => error.is_fenced(),
            Self::Source(_) | Self::Suspended { .. } => false,
        }
    }

    fn part(&self) -> Part {
        match self {
            Self::Sink(_) => Part::Sink,
            Self::Checkpoint(_) => Part::Checkpoint,
            Self::Source(_) | Self::Suspended { .. } => Part::Pipeline,
        }
    }
}

impl From<LifeError> for PipelineError {
    fn from(error: LifeError) -> Self {
        match error {
            LifeError::Sink(error) => Self::Sink(error),
            LifeError::Checkpoint(error) => Self::Checkpoint(error),
            LifeError::Source(error) => Self::Source(error),
            LifeError::Suspended { seconds } => Self::Suspended { seconds },
        }
    }
}

/// What a life begins with where its source has asked.
enum Claimed {
    From(Option<Position>),
    /// It failed, or the source ended before it was made.
    NotMade(Option<LifeError>),
}

impl<P: Parts> Supervisor<P> {
    /// Lives until the pipeline is stopped or cannot go on.
    pub(crate) async fn run(self) -> Result<(), PipelineError> {
        let mut store = self.parts.store()?;
        if !self.pipeline.labels.is_empty() || !self.pipeline.annotations.is_empty() {
            let (labels, annotations) = (&self.pipeline.labels, &self.pipeline.annotations);
            tracing::info!(?labels, ?annotations, "pipeline begins");
        }
        let from = match store.is_shared() {
            true => None,
            false => store.load().await?,
        };
        if let Some(from) = &from {
            self.tell_read(from, &mut store);
        }
        let mut legacy = Legacy {
            store,
            from,
            word: self.word,
            single: 0,
            culprit: None,
            unsettled: None,
        };
        let mut backoff = Backoff::new(self.pipeline.restart);
        let mut fenced_before = false;
        loop {
            let settled = self.status.snapshot().totals.settled();
            let (next, error) = self.live(legacy).await?;
            legacy = next;
            let error = match error {
                None => return Ok(()),
                Some(error) if error.can_heal() && !self.stop.is_cancelled() => error,
                // The same as when the drain's time is over.
                Some(error) if error.leaves_the_rest_to_the_next_start() => {
                    tracing::warn!(
                        error = %error_chain(&error),
                        "failed while draining; what was not acknowledged is sent again at the next start"
                    );
                    return Ok(());
                }
                Some(error) => return Err(error.into()),
            };
            if self.status.snapshot().totals.settled() > settled {
                backoff.reset();
                fenced_before = false;
            }
            // Once can be a transaction that took too long; again at once is another instance that is alive.
            let fenced = error.is_fenced();
            if fenced && fenced_before {
                if self
                    .pipeline
                    .sink
                    .kafka()
                    .is_some_and(|kafka| kafka.on_fenced == OnFenced::Stop)
                {
                    return Err(error.into());
                }
                stand_by(&self.status, error_chain(&error));
                self.wait(FENCED_WAIT).await;
            } else {
                let wait = backoff.wait();
                say_again(&self.status, error.part(), &error_chain(&error), wait);
                self.wait(wait).await;
            }
            fenced_before = fenced;
            if self.stop.is_cancelled() {
                return Ok(());
            }
        }
    }

    /// One life. Without an error, the pipeline ended as it was asked to.
    async fn live(&self, legacy: Legacy<P::Store>) -> Result<(Legacy<P::Store>, Option<LifeError>), PipelineError> {
        let delivery = self.pipeline.delivery;
        let ledger = Ledger::new(Limits::of(&delivery, self.pipeline.sink.is_exactly_once()));
        let mut sink = match self.parts.sink(ledger.acks()) {
            Ok(sink) => sink,
            Err(error) if error.can_heal() => return Ok((legacy, Some(error.into()))),
            Err(error) => return Err(error.into()),
        };
        let Legacy {
            mut store,
            from,
            word,
            single,
            culprit,
            unsettled,
        } = legacy;
        let stop = self.stop.child_token();
        let abandon = CancellationToken::new();
        let (batch_sender, batches) = mpsc::channel(CHANNEL);
        let (acked, acked_receiver) = watch::channel(None);
        let (confirmed_sender, confirmed) = watch::channel(None);
        let (claim, answer) = match store.is_shared() {
            false => (Claim::Known { shared: false }, None),
            true => {
                let (question, answer) = Question::new();
                (Claim::Ask(question), Some(answer))
            }
        };
        self.status.begins(from.as_ref());
        let log = LogChannel {
            batches: BatchSender::new(batch_sender, from.clone()).told_to(Arc::clone(&self.status)),
            confirmed,
            stop: stop.clone(),
            claim,
            view: SourceView::new(Arc::clone(&self.status)),
        };
        let connector = Connector {
            parts: Arc::clone(&self.parts),
            stall_timeout: delivery.stall_timeout,
            progress_timeout: delivery.progress_timeout,
            once: self.once,
            word,
            again: self.status.snapshot().saved.is_some(),
            restart: self.pipeline.restart,
            status: Arc::clone(&self.status),
        };
        let here = tracing::Span::current();
        let source = tokio::spawn({
            let (stop, abandon) = (stop.clone(), abandon.clone());
            let connecting = connector.run(log);
            async move {
                let ended = connecting.await;
                // A source that cannot go on ends the life: what is in flight has the drain's time, unless it is another
                // instance's to send by now.
                match &ended.0 {
                    Ok(()) => {}
                    Err(SourceError::TakenOver(_)) => abandon.cancel(),
                    Err(_) => stop.cancel(),
                }
                ended
            }
            .instrument(here.clone())
        });
        let from = match answer {
            None => Claimed::From(from),
            Some(answer) => {
                self.claim(answer, &mut sink, &mut store, unsettled.as_ref(), &stop)
                    .await
            }
        };
        let from = match from {
            Claimed::From(from) => from,
            Claimed::NotMade(failed) => {
                let (ended, word) = source.await?;
                close(sink).await;
                let taken_over = match ended {
                    Ok(()) => None,
                    // A lock that was lost meanwhile is taken anew by the next life.
                    Err(error @ SourceError::TakenOver(_)) => Some(LifeError::from(error)),
                    Err(error) => return Err(error.into()),
                };
                let legacy = Legacy {
                    store,
                    from: None,
                    word,
                    single,
                    culprit,
                    unsettled,
                };
                return Ok((legacy, failed.or(taken_over)));
            }
        };
        let overtakable = store.is_shared() && !sink.commits();
        let relay = Relay::new(RelayParts {
            chain: Chain::new(&self.pipeline),
            dead_letters: DeadLetters::new(&self.pipeline),
            sink,
            ledger,
            policies: self.pipeline.errors,
            delivery,
            status: Arc::clone(&self.status),
            single,
            culprit,
            counted: self.status.snapshot().totals.in_flight(),
            overtakable,
        });
        let last_acked = acked.subscribe();
        let saver =
            saver::run(store, acked_receiver, confirmed_sender, Arc::clone(&self.status)).instrument(here.clone());
        let saver = tokio::spawn({
            let (stop, abandon) = (stop.clone(), abandon.clone());
            async move {
                let (store, result) = saver.await;
                // A saver that gave up ends the life: nothing could be confirmed any more.
                match &result {
                    Err(error) if error.is_fenced() => abandon.cancel(),
                    _ => stop.cancel(),
                }
                (store, result)
            }
        });
        let relay = tokio::spawn(relay.run(batches, acked, stop.clone(), abandon).instrument(here));
        let end = relay.await;
        stop.cancel();
        let (saver, source) = (saver.await, source.await);
        let (store, saved) = saver?;
        let (source_ended, word) = source?;
        let mut legacy = Legacy {
            store,
            from: last_acked.borrow().clone().or(from),
            word,
            single: 0,
            culprit: None,
            unsettled: None,
        };
        let mut end = end?;
        if let End::SinkFailed { unsettled, .. } | End::Abandoned { unsettled } = &mut end {
            legacy.unsettled = unsettled.take();
        }
        let unsaved = match saved {
            Ok(()) => None,
            Err(error) if error.is_fenced() => return Ok((legacy, Some(error.into()))),
            // The next life tries again, and knows what this one found out.
            Err(error) if error.can_heal() => Some(LifeError::from(error)),
            Err(error) => return Err(error.into()),
        };
        if let End::Halted(halt) = end {
            return Err(halt.into());
        }
        // What the source said matters more than a sink that can be made anew.
        match source_ended {
            Ok(()) => {}
            Err(error @ SourceError::TakenOver(_)) => return Ok((legacy, Some(error.into()))),
            Err(error) => return Err(error.into()),
        }
        match end {
            End::SinkFailed {
                error, single, culprit, ..
            } => {
                legacy.single = single;
                legacy.culprit = culprit;
                Ok((legacy, Some(error.into())))
            }
            End::Suspended { seconds } => Ok((legacy, Some(LifeError::Suspended { seconds }))),
            End::Drained | End::Abandoned { .. } | End::Halted(_) => Ok((legacy, unsaved)),
        }
    }

    fn tell_read(&self, from: &Position, store: &mut P::Store) {
        tracing::info!(position = %from, "checkpoint read");
        if store.gap_accepted() {
            tracing::warn!(position = %from, "the position was set by hand; events before it may be missing, or come again");
            self.status.count(|totals| totals.accepted_gaps += 1);
        }
    }

    /// Waits until the source has its lock, shuts older instances out, and reads the checkpoint.
    async fn claim(
        &self,
        answer: Answer,
        sink: &mut P::Sink,
        store: &mut P::Store,
        unsettled: Option<&Unsettled>,
        stop: &CancellationToken,
    ) -> Claimed {
        if !answer.asked().await {
            return Claimed::NotMade(None);
        }
        let claiming = async {
            sink.claim().await?;
            Ok::<_, LifeError>(store.load().await?)
        };
        let loaded = tokio::select! {
            biased; // a stop ends the wait for a broker, as does a source that cannot go on
            () = stop.cancelled() => return Claimed::NotMade(None),
            // One that lost its lock cannot either: the claim would shut out whoever has it now.
            () = answer.unwanted() => return Claimed::NotMade(None),
            loaded = claiming => loaded,
        };
        let from = match loaded {
            Ok(from) => from,
            Err(error) => {
                // Before the question fails, which the source would take for a reason to connect again.
                stop.cancel();
                return Claimed::NotMade(Some(error));
            }
        };
        match &from {
            Some(from) => self.tell_read(from, store),
            None => tracing::info!("there is no checkpoint yet"),
        }
        if let Some(unsettled) = unsettled.filter(|unsettled| Some(&unsettled.position) == from.as_ref()) {
            tracing::info!("the commit whose outcome was not known has gone through");
            self.status.settled(&unsettled.progress());
        }
        // Before the source can hand anything over.
        self.status.begins(from.as_ref());
        answer.give(from.clone());
        Claimed::From(from)
    }

    async fn wait(&self, wait: Duration) {
        tokio::select! {
            biased; // a stop ends the wait
            () = self.stop.cancelled() => {}
            () = sleep(wait) => {}
        }
    }
}

async fn close(sink: impl Sink) {
    if let Err(error) = sink.close(tokio::time::Instant::now()).await {
        tracing::debug!(error = %error_chain(&error), "sink closed");
    }
}
