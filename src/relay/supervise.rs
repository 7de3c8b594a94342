//! A pipeline's life: its source is connected again when it fails, its sink is made anew, and what cannot heal ends it.
//!
//! A failed source goes on behind the last batch that it handed over, while the ledger stays: nothing is sent twice. A
//! failed sink ends a *life*: relay, source and saver end together, and the next life begins at the watermark. The
//! checkpoint store lives through all of them, and with it the lock that keeps other processes out.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinError;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::checkpoint::file::FileStore;
use crate::checkpoint::{CheckpointError, CheckpointStore, saver};
use crate::config::{self, Pipeline};
use crate::position::Position;
use crate::processor::Chain;
use crate::sink::SinkError;
use crate::sink::kafka::KafkaSink;
use crate::source::mysql::{AcceptedLog, MysqlSource};
use crate::source::postgres::PostgresSource;
use crate::source::{BatchSender, LogChannel, OperatorWord, Recovery, Source, SourceError, SourceOptions};
use crate::telemetry::error_chain;
use crate::telemetry::status::{PipelineStatus, SourceView, State};

use super::backoff::Backoff;
use super::in_flight::{Ledger, Limits};
use super::{End, HaltError, Relay, RelayParts};

/// Batches between source and relay: enough that neither waits for the other's turn.
const CHANNEL: usize = 2;
/// A connection that lasted this long was a good one.
const LASTING: Duration = Duration::from_secs(10);
/// How often a stand-by looks whether the source is free.
const STAND_BY: Duration = Duration::from_secs(1);

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
    let supervisor = Supervisor {
        source: Arc::new(SourceConfig::of(&pipeline)),
        pipeline,
        options,
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

struct Supervisor {
    pipeline: Pipeline,
    source: Arc<SourceConfig>,
    options: RunOptions,
    status: Arc<PipelineStatus>,
    stop: CancellationToken,
}

/// What one life leaves to the next.
struct Legacy {
    store: FileStore,
    from: Option<Position>,
    word: OperatorWord,
    single: u64,
}

impl Supervisor {
    async fn run(self) -> Result<(), PipelineError> {
        let source_id = self.pipeline.source.id();
        let mut store =
            FileStore::open(&self.options.state_dir, &self.pipeline.name, source_id).map_err(CheckpointError::from)?;
        let from = store.load().await?;
        if !self.pipeline.labels.is_empty() || !self.pipeline.annotations.is_empty() {
            let (labels, annotations) = (&self.pipeline.labels, &self.pipeline.annotations);
            tracing::info!(?labels, ?annotations, "pipeline begins");
        }
        if let Some(from) = &from {
            tracing::info!(position = %from, "checkpoint read");
        }
        let mut legacy = Legacy {
            store,
            from,
            word: self.options.word,
            single: 0,
        };
        let mut backoff = Backoff::default();
        loop {
            let published = self.status.snapshot().totals.published;
            let (next, error) = self.live(legacy).await?;
            legacy = next;
            let error = match error {
                None => return Ok(()),
                Some(error) if error.can_heal() && !self.stop.is_cancelled() => error,
                Some(error) => return Err(error.into()),
            };
            if self.status.snapshot().totals.published > published {
                backoff.reset();
            }
            self.again("sink", &error_chain(&error), backoff.wait()).await;
            if self.stop.is_cancelled() {
                return Ok(());
            }
        }
    }

    /// One life of a sink. Without an error, the pipeline ended as it was asked to.
    async fn live(&self, legacy: Legacy) -> Result<(Legacy, Option<SinkError>), PipelineError> {
        let Legacy {
            store,
            from,
            word,
            single,
        } = legacy;
        let config::Sink::Kafka(kafka) = &self.pipeline.sink;
        let delivery = self.pipeline.delivery;
        let limits = Limits {
            events: delivery.max_in_flight_events,
            bytes: delivery.max_in_flight_bytes,
        };
        let ledger = Ledger::new(limits);
        let kafka = Arc::new(kafka.clone());
        let sink =
            KafkaSink::new(kafka, limits.events, ledger.acks(), Arc::clone(&self.status)).map_err(SinkError::from)?;
        let relay = Relay::new(RelayParts {
            chain: Chain::new(&self.pipeline),
            sink,
            ledger,
            policies: self.pipeline.errors,
            delivery,
            status: Arc::clone(&self.status),
            single,
            counted: self.status.snapshot().totals.in_flight(),
        });
        let stop = self.stop.child_token();
        let (batch_sender, batches) = mpsc::channel(CHANNEL);
        let (acked, acked_receiver) = watch::channel(None);
        let (confirmed_sender, confirmed) = watch::channel(None);
        let log = LogChannel {
            batches: BatchSender::new(batch_sender, from.clone()),
            confirmed,
            stop: stop.clone(),
            view: SourceView::new(Arc::clone(&self.status)),
        };
        let connector = Connector {
            config: Arc::clone(&self.source),
            stall_timeout: delivery.stall_timeout,
            once: self.options.once,
            word,
            again: self.status.snapshot().saved.is_some(),
            status: Arc::clone(&self.status),
        };
        let here = tracing::Span::current();
        let last_acked = acked.subscribe();
        let source = tokio::spawn({
            let stop = stop.clone();
            let connecting = connector.run(log);
            async move {
                let ended = connecting.await;
                // A source that cannot go on ends the life: what is in flight has the drain's time.
                if ended.0.is_err() {
                    stop.cancel();
                }
                ended
            }
            .instrument(here.clone())
        });
        let saver =
            saver::run(store, acked_receiver, confirmed_sender, Arc::clone(&self.status)).instrument(here.clone());
        let saver = tokio::spawn({
            let stop = stop.clone();
            async move {
                let result = saver.await;
                // A saver that gave up ends the life: nothing could be confirmed any more.
                stop.cancel();
                result
            }
        });
        let relay = tokio::spawn(relay.run(batches, acked, stop.clone()).instrument(here));
        let end = relay.await;
        stop.cancel();
        let (saver, source) = (saver.await, source.await);
        let (store, saved) = saver?;
        let (source_ended, word) = source?;
        let from = last_acked.borrow().clone().or(from);
        saved?;
        match end? {
            End::Halted(halt) => Err(halt.into()),
            End::SinkFailed { error, single } => {
                // What the source said matters more than a sink that can be made anew.
                source_ended?;
                Ok((
                    Legacy {
                        store,
                        from,
                        word,
                        single,
                    },
                    Some(error),
                ))
            }
            End::Drained => {
                source_ended?;
                Ok((
                    Legacy {
                        store,
                        from,
                        word,
                        single: 0,
                    },
                    None,
                ))
            }
        }
    }

    async fn again(&self, what: &'static str, reason: &str, wait: Duration) {
        say_again(&self.status, what, reason, wait);
        tokio::select! {
            biased; // a stop ends the wait
            () = self.stop.cancelled() => {}
            () = sleep(wait) => {}
        }
    }
}

fn say_again(status: &PipelineStatus, what: &'static str, reason: &str, wait: Duration) {
    status.count(|totals| totals.restarts += 1);
    let news = status.snapshot().state
        != State::Waiting {
            reason: reason.to_owned(),
        };
    if news {
        tracing::warn!(error = %reason, wait_ms = wait.as_millis(), "{what} is started again");
    } else {
        tracing::debug!(error = %reason, wait_ms = wait.as_millis(), "{what} is started again");
    }
    status.enter(State::Waiting {
        reason: reason.to_owned(),
    });
}

/// A source as its file has it, from which each connection is made anew.
#[derive(Debug)]
enum SourceConfig {
    Postgres(Arc<config::Postgres>),
    Mysql {
        config: Arc<config::Mysql>,
        pipeline: String,
        accepted: AcceptedLog,
    },
}

impl SourceConfig {
    fn of(pipeline: &Pipeline) -> Self {
        match &pipeline.source {
            config::Source::Postgres(source) => Self::Postgres(Arc::new(source.as_ref().clone())),
            config::Source::Mysql(source) => Self::Mysql {
                config: Arc::new(source.as_ref().clone()),
                pipeline: pipeline.name.clone(),
                accepted: AcceptedLog::default(),
            },
        }
    }

    /// Runs the source over one connection, behind the last batch handed over.
    async fn run(&self, options: SourceOptions, log: &mut LogChannel) -> Result<(), SourceError> {
        let from = log.batches.last().cloned();
        match self {
            Self::Postgres(config) => PostgresSource::new(Arc::clone(config), options).run(from, log).await,
            Self::Mysql {
                config,
                pipeline,
                accepted,
            } => {
                MysqlSource::new(Arc::clone(config), pipeline, options, accepted.clone())
                    .run(from, log)
                    .await
            }
        }
    }
}

/// Keeps the source connected for one life.
struct Connector {
    config: Arc<SourceConfig>,
    stall_timeout: Duration,
    once: bool,
    word: OperatorWord,
    /// Connected before, in a former life.
    again: bool,
    status: Arc<PipelineStatus>,
}

impl Connector {
    /// Ends with the source's own end, or with what cannot heal; gives back the operator's word if it was not used yet.
    async fn run(mut self, mut log: LogChannel) -> (Result<(), SourceError>, OperatorWord) {
        let first = log.batches.last().cloned();
        let mut backoff = Backoff::default();
        let mut again = self.again;
        loop {
            let options = SourceOptions {
                stall_timeout: self.stall_timeout,
                once: self.once,
                word: self.word,
                again,
            };
            let begun = Instant::now();
            let streams = self.status.streams();
            let result = self.config.run(options, &mut log).await;
            if log.batches.last() != first.as_ref() || self.status.streams() > streams {
                // The word was for one start, and the server has accepted it.
                self.word = OperatorWord::Nothing;
                again = true;
            }
            let ending = log.stop.is_cancelled() || log.batches.is_closed();
            let error = match result {
                Err(error) if error.recovery() != Recovery::Halt && !ending => error,
                Err(error) if error.recovery() != Recovery::Halt => {
                    tracing::debug!(error = %error_chain(&error), "the source failed while it was stopped");
                    return (Ok(()), self.word);
                }
                end => return (end, self.word),
            };
            // A connection that ends as soon as it is made must not be made again at once, over and over.
            if self.status.snapshot().state == State::Streaming && begun.elapsed() >= LASTING {
                backoff.reset();
            }
            let reason = error_chain(&error);
            let wait = match error.recovery() {
                Recovery::RetryWhenThereIsRoom => Duration::ZERO,
                Recovery::StandBy => STAND_BY,
                Recovery::Retry | Recovery::Halt => backoff.wait(),
            };
            if error.recovery() == Recovery::StandBy {
                let state = State::StandBy { reason: reason.clone() };
                if self.status.snapshot().state != state {
                    tracing::warn!(reason = %reason, "standing by");
                }
                self.status.enter(state);
            } else {
                say_again(&self.status, "source", &reason, wait);
            }
            tokio::select! {
                biased; // a stop ends the wait
                () = log.stop.cancelled() => return (Ok(()), self.word),
                () = sleep(wait) => {}
            }
        }
    }
}
