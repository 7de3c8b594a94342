//! A pipeline's life: its source is connected again when it fails, its sink is made anew, and what cannot heal ends it.
//!
//! A failed source goes on behind the last batch that it handed over, while the ledger stays: nothing is sent twice. A
//! failed sink ends a *life*: relay, source and saver end together, and the next life begins at the watermark. The
//! checkpoint store lives through all of them, and with it the lock that keeps other processes out.
//!
//! Where the checkpoint is shared with other machines, a life begins with a claim: the source takes its lock, then older
//! instances are shut out of the sink and of the store, and only then is the checkpoint read. In another order a stand-by
//! would shut out the living instance, or go on from a position that is old.

use std::mem;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::audit::Journal;
use crate::checkpoint::{CheckpointError, CheckpointStore, saver};
use crate::config::{CommitPolicy, OnFenced, Pipeline};
use crate::letters::notifier::Notifier;
use crate::position::Position;
use crate::sink::{Sink, SinkError};
use crate::source::{Answer, BatchSender, Claim, LogBatch, LogChannel, OperatorWord, Question, SourceError};
use crate::telemetry::error_chain;
use crate::telemetry::status::{Part, PipelineStatus, SourceView, State};

use super::backoff::Backoff;
use super::branch::Branch;
use super::connect::{Connector, say_again, stand_by};
use super::fan_out::{FanOut, FreeEnd, FreeError, FreeLane};
use super::in_flight::{Ledger, Limits, Unsettled};
use super::parts::{Parts, PipelineParts};
use super::reach::Lane;
use super::relays::Relays;
use super::search::Steps;
use super::{End, Ended, HaltError, Left, Relay, RelayParts};

/// Batches between source and relay: enough that neither waits for the other's turn.
pub(super) const CHANNEL: usize = 2;
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
    #[error("fewer than {size} of {of} sinks have taken what was read, and `commit_policy` asks for that many")]
    NoQuorum { size: usize, of: usize },
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
    let journal = span.in_scope(|| Journal::start(&pipeline, &options.state_dir, &status));
    let branches = Branch::all(&pipeline, &status);
    let parts = PipelineParts::new(&pipeline, &branches, options.state_dir);
    let journal_ended = journal.ended();
    let supervisor = Supervisor {
        parts: Arc::new(parts),
        pipeline,
        branches,
        once: options.once,
        word: options.word,
        journal,
        status: Arc::clone(&status),
        stop,
    };
    let notifier = span.in_scope(|| Notifier::start(&supervisor.pipeline, &status));
    let result = supervisor.run().instrument(span.clone()).await;
    journal_ended.instrument(span.clone()).await;
    if let Some(notifier) = notifier {
        notifier.close().instrument(span.clone()).await;
    }
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
    /// At least one, the leading one first.
    pub(crate) branches: Vec<Branch>,
    /// Stop at the log's end as it is at the start.
    pub(crate) once: bool,
    pub(crate) word: OperatorWord,
    pub(crate) journal: Journal,
    pub(crate) status: Arc<PipelineStatus>,
    pub(crate) stop: CancellationToken,
}

/// A sink that is waited for, made and not used yet.
struct Held<S> {
    lane: Lane,
    sink: S,
    ledger: Ledger,
}

/// What one life leaves to the next.
struct Legacy<S> {
    store: S,
    from: Option<Position>,
    word: OperatorWord,
    /// Of each lane.
    left: Vec<Left>,
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
    #[error("fewer than {size} of {of} sinks have taken what was read, and `commit_policy` asks for that many")]
    NoQuorum { size: usize, of: usize },
}

impl LifeError {
    fn can_heal(&self) -> bool {
        match self {
            Self::Sink(error) => error.can_heal(),
            Self::Checkpoint(error) => error.can_heal() || error.is_fenced(),
            Self::Source(_) | Self::Suspended { .. } | Self::NoQuorum { .. } => true,
        }
    }

    /// Whether a pipeline that is being stopped ends as it was asked to all the same: what is missing was only on its way, or
    /// is another instance's to send. A position that cannot be saved is something that a person must see to.
    fn leaves_the_rest_to_the_next_start(&self) -> bool {
        match self {
            Self::Sink(error) => error.can_heal(),
            Self::Checkpoint(error) => error.is_fenced(),
            Self::Source(_) | Self::Suspended { .. } | Self::NoQuorum { .. } => true,
        }
    }

    fn is_fenced(&self) -> bool {
        match self {
            Self::Sink(error) => error.is_fenced(),
            Self::Checkpoint(error) => error.is_fenced(),
            Self::Source(_) | Self::Suspended { .. } | Self::NoQuorum { .. } => false,
        }
    }

    fn part(&self) -> Part {
        match self {
            Self::Sink(_) | Self::NoQuorum { .. } => Part::Sink,
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
            LifeError::NoQuorum { size, of } => Self::NoQuorum { size, of },
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
        if !store.is_shared() {
            self.tell_read(from.as_ref(), &mut store);
        }
        let mut legacy = Legacy {
            store,
            from,
            word: self.word,
            left: self.nothing_left(),
            unsettled: None,
        };
        let mut backoff = Backoff::new(self.pipeline.restart);
        let mut fenced_before = false;
        let mut steps = Steps::new(self.branches.len());
        loop {
            let settled = self.status.snapshot().totals.settled();
            let (from, left) = (legacy.from.clone(), legacy.left.clone());
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
            // What the others have settled again is no progress.
            let has_moved = self.branches.len() == 1 || legacy.from != from;
            if has_moved && self.status.snapshot().totals.settled() > settled {
                backoff.reset();
                steps = Steps::new(self.branches.len());
                fenced_before = false;
            }
            if steps.are_further(&legacy.left) {
                backoff.reset();
            }
            for ((branch, now), before) in self.branches.iter().zip(&legacy.left).zip(&left) {
                self.span_of(branch).in_scope(|| now.tell(before));
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
        let mut held = match self.make_held().await {
            Ok(held) => held,
            Err(error) if error.can_heal() => return Ok((legacy, Some(error.into()))),
            Err(error) => return Err(error.into()),
        };
        let Legacy {
            mut store,
            from,
            word,
            left,
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
                let leading = held.first_mut().map(|held| &mut held.sink);
                self.claim(answer, leading, &mut store, unsettled.as_ref(), &stop).await
            }
        };
        let from = match from {
            Claimed::From(from) => from,
            Claimed::NotMade(failed) => {
                let (ended, word) = source.await?;
                close(held).await;
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
                    left,
                    unsettled,
                };
                return Ok((legacy, failed.or(taken_over)));
            }
        };
        let store_is_shared = store.is_shared();
        self.parts.begin(from.as_ref());
        let last_acked = acked.subscribe();
        let saver = saver::run(
            store,
            self.journal.clone(),
            acked_receiver,
            confirmed_sender,
            Arc::clone(&self.status),
        )
        .instrument(here.clone());
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
        let relays = self.start_relays(held, left, (batches, acked), store_is_shared, (&stop, &abandon));
        let spare = match self.pipeline.commit_policy {
            CommitPolicy::Required => self.branches.len(),
            CommitPolicy::Quorum(size) => self.branches.len() - size,
        };
        let ends = relays.ended(&stop, delivery.drain_timeout, spare).await;
        stop.cancel();
        let (saver, source) = (saver.await, source.await);
        let (store, saved) = saver?;
        let (source_ended, word) = source?;
        let mut legacy = Legacy {
            store,
            from: last_acked.borrow().clone().or(from),
            word,
            left: self.nothing_left(),
            unsettled: None,
        };
        let mut ends = ends?;
        for (lane, Ended { left, unsettled, .. }) in &mut ends.held {
            legacy.left[*lane] = mem::take(left).from(legacy.from.as_ref());
            legacy.unsettled = legacy.unsettled.or(unsettled.take());
        }
        // To one by itself nothing comes again that it was given.
        if self.pipeline.commit_policy != CommitPolicy::Required {
            for FreeEnd { lane, left, .. } in &mut ends.free {
                legacy.left[*lane] = mem::take(left).from(legacy.from.as_ref());
            }
        }
        let unsaved = match saved {
            Ok(()) => None,
            Err(error) if error.is_fenced() => return Ok((legacy, Some(error.into()))),
            // The next life tries again, and knows what this one found out.
            Err(error) if error.can_heal() => Some(LifeError::from(error)),
            Err(error) => return Err(error.into()),
        };
        let mut failed = Vec::new();
        for (lane, ended) in ends.held {
            match ended.end {
                End::Halted(halt) => return Err(self.named_halt(lane, halt).into()),
                End::SinkFailed(error) => failed.push(LifeError::from(self.named(lane, error))),
                End::Suspended { seconds } => failed.push(LifeError::Suspended { seconds }),
                End::Drained | End::Abandoned => {}
            }
        }
        // What the source said matters more than a sink that can be made anew.
        match source_ended {
            Ok(()) => {}
            Err(error @ SourceError::TakenOver(_)) => return Ok((legacy, Some(error.into()))),
            Err(error) => return Err(error.into()),
        }
        // What cannot heal matters most.
        let mut gravest = unsaved;
        for error in failed {
            if gravest.as_ref().is_none_or(LifeError::can_heal) {
                gravest = Some(error);
            }
        }
        let mut given_up = 0;
        for FreeEnd { lane, error, .. } in ends.free {
            given_up += usize::from(error.is_some());
            match error {
                Some(FreeError::Suspended { seconds }) => gravest = gravest.or(Some(LifeError::Suspended { seconds })),
                Some(FreeError::Halted(halt)) if given_up > spare => return Err(self.named_halt(lane, halt).into()),
                Some(FreeError::Sink(error)) if given_up > spare => return Err(self.named(lane, error).into()),
                Some(FreeError::Halted(_) | FreeError::Sink(_)) | None => {}
            }
        }
        if let (true, CommitPolicy::Quorum(size)) = (ends.doomed, self.pipeline.commit_policy) {
            let of = self.branches.len();
            gravest = gravest.or(Some(LifeError::NoQuorum { size, of }));
        }
        Ok((legacy, gravest))
    }

    /// Names the sink in log lines, where there are several.
    fn span_of(&self, branch: &Branch) -> tracing::Span {
        match self.branches.len() {
            1 => tracing::Span::current(),
            _ => tracing::info_span!("sink", id = branch.pipeline.sink.id()),
        }
    }

    /// The sink's id, where there are several.
    fn name_of(&self, lane: Lane) -> Option<String> {
        let several = self.branches.len() > 1;
        several.then(|| self.branches[lane].pipeline.sink.id().to_owned())
    }

    fn named_halt(&self, lane: Lane, halt: HaltError) -> HaltError {
        match self.name_of(lane) {
            None => halt,
            Some(id) => HaltError::Of {
                id,
                source: Box::new(halt),
            },
        }
    }

    fn named(&self, lane: Lane, error: SinkError) -> SinkError {
        match self.name_of(lane) {
            None => error,
            Some(id) => SinkError::Of {
                id,
                source: Box::new(error),
            },
        }
    }

    fn nothing_left(&self) -> Vec<Left> {
        self.branches.iter().map(|_| Left::default()).collect()
    }

    /// The sinks that are waited for.
    async fn make_held(&self) -> Result<Vec<Held<P::Sink>>, SinkError> {
        let mut made = Vec::new();
        for (lane, branch) in self.branches.iter().enumerate().filter(|(_, branch)| branch.held) {
            let commits = branch.pipeline.sink.is_exactly_once();
            let ledger = Ledger::new(Limits::of(&self.pipeline.delivery, commits));
            let made_here = self.span_of(branch).in_scope(|| self.parts.sink(lane, ledger.acks()));
            match made_here {
                Ok(sink) => made.push(Held { lane, sink, ledger }),
                Err(error) => {
                    close(made).await;
                    return Err(self.named(lane, error));
                }
            }
        }
        Ok(made)
    }

    /// Lets events flow from the source to the sinks.
    fn start_relays(
        &self,
        held: Vec<Held<P::Sink>>,
        mut left: Vec<Left>,
        (batches, acked): (mpsc::Receiver<LogBatch>, watch::Sender<Option<Position>>),
        is_shared: bool,
        (stop, abandon): (&CancellationToken, &CancellationToken),
    ) -> Relays {
        let several = self.branches.len() > 1;
        let mut relays = Relays {
            held: JoinSet::new(),
            free: JoinSet::new(),
            tee: JoinSet::new(),
            // Another instance's word reaches all, a life that fails only those that nobody waits for.
            let_go: abandon.child_token(),
            doomed: CancellationToken::new(),
            junction: None,
        };
        let here = tracing::Span::current();
        let mut relay = |Held { lane, sink, ledger }: Held<P::Sink>| {
            let branch = &self.branches[lane];
            // One that commits is fenced by its target.
            let overtakable = is_shared && !branch.pipeline.sink.is_exactly_once();
            let left = mem::take(&mut left[lane]);
            let relay = Relay::new(RelayParts {
                counted: branch.status.snapshot().totals.in_flight(),
                leads: !several,
                ..branch.relay_parts(&*self.parts, &self.journal, (sink, ledger), left, overtakable)
            });
            (lane, relay)
        };
        if !several {
            if let Some((lane, relay)) = held.into_iter().map(&mut relay).next() {
                let (stop, abandon) = (stop.clone(), abandon.clone());
                let run = async move { (lane, relay.run(batches, acked, stop, abandon).await) };
                relays.held.spawn(run.instrument(here));
            }
            return relays;
        }
        let policy = self.pipeline.commit_policy;
        let (fan_out, outlets) = FanOut::new(&self.branches, policy, &self.status, acked, relays.doomed.clone());
        let junction = Arc::clone(&fan_out.junction);
        let held: Vec<_> = held.into_iter().map(relay).collect();
        let mut held = held.into_iter().peekable();
        for (lane, outlet) in outlets.into_iter().enumerate() {
            let branch = &self.branches[lane];
            let span = self.span_of(branch);
            let stop = stop.clone();
            if let Some((_, relay)) = held.next_if(|(of, _)| *of == lane) {
                let abandon = abandon.clone();
                let run = async move { (lane, relay.run(outlet.batches, outlet.acked, stop, abandon).await) };
                relays.held.spawn(run.instrument(span));
            } else {
                let in_quorum = matches!(policy, CommitPolicy::Quorum(_));
                let free = FreeLane {
                    lane,
                    in_quorum,
                    begins: match in_quorum {
                        true => mem::take(&mut left[lane]),
                        false => Left::default(),
                    },
                    left: None,
                    branch: branch.clone(),
                    parts: Arc::clone(&self.parts),
                    junction: Arc::clone(&junction),
                    journal: self.journal.clone(),
                    overtakable: is_shared,
                };
                let run = free.run(outlet, stop, relays.let_go.clone());
                relays.free.spawn(run.instrument(span));
            }
        }
        relays.tee.spawn(fan_out.run(batches, policy).instrument(here));
        relays.junction = Some(junction);
        relays
    }

    fn tell_read(&self, from: Option<&Position>, store: &mut P::Store) {
        let Some(from) = from else {
            tracing::info!("there is no checkpoint yet");
            return;
        };
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
        leading: Option<&mut P::Sink>,
        store: &mut P::Store,
        unsettled: Option<&Unsettled>,
        stop: &CancellationToken,
    ) -> Claimed {
        if !answer.asked().await {
            return Claimed::NotMade(None);
        }
        let claiming = async {
            if let Some(sink) = leading {
                sink.claim().await?;
            }
            let from = store.load().await?;
            self.journal.recover(self.pipeline.sink.id(), from.as_ref()).await;
            Ok::<_, LifeError>(from)
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
        self.tell_read(from.as_ref(), store);
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

async fn close<S: Sink>(held: Vec<Held<S>>) {
    for Held { sink, .. } in held {
        if let Err(error) = sink.close(Instant::now()).await {
            tracing::debug!(error = %error_chain(&error), "sink closed");
        }
    }
}
