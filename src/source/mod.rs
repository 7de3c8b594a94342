//! Sources: each tails one database's own log and hands on what it finds, in the log's order.
//!
//! A source owns its connection and answers the server whatever the relay does. What it hands on are [`LogBatch`]es;
//! what comes back is only the position that was saved, which it may then confirm to its server.

pub mod mysql;
pub mod postgres;

mod select;
mod transport;

use std::future::Future;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::event::ChangeEvent;
use crate::position::Position;
use crate::skip::SkipCounts;
use crate::telemetry::status::{PipelineStatus, SourceView};

pub use crate::tls::TlsSetupError;
pub use mysql::MysqlError;
pub use postgres::PostgresError;

/// Tails one database's log.
pub trait Source: Send + 'static {
    /// Takes its lock, asks [`LogChannel::begin`] where to go on, and streams from there until stopped, or until the log's
    /// end where the source was told to end there.
    ///
    /// When it ends without an error it closes [`LogChannel::batches`], waits until [`LogChannel::confirmed`] is closed
    /// too, and confirms what was saved last.
    ///
    /// # Errors
    /// [`SourceError::recovery`] says whether another run from the last position handed over can go on.
    fn run(self, log: &mut LogChannel) -> impl Future<Output = Result<(), SourceError>> + Send;
}

/// A source's side of its pipeline; it outlives one connection.
#[derive(Debug)]
pub struct LogChannel {
    pub batches: BatchSender,
    /// What the checkpoint holds, and so may be confirmed to the server.
    pub confirmed: watch::Receiver<Option<Position>>,
    pub stop: CancellationToken,
    /// How the first connection of a life learns where to begin.
    pub claim: Claim,
    /// Where the source tells operators how it stands.
    pub view: SourceView,
}

impl LogChannel {
    /// Where to begin (None: the first start): behind the last batch handed over or, before any, at the checkpoint.
    ///
    /// A checkpoint that other machines can save too is read only once the lock is held, since asking for it shuts out every
    /// other instance. So a source takes its lock first, unless [`LogChannel::is_claimed`].
    ///
    /// The lock must be held from the question to the answer: a call that is dropped in between has spent the question.
    ///
    /// # Errors
    /// [`SourceError::Ended`]: the pipeline does not go on. [`SourceError::TakenOver`]: a former call was dropped.
    pub async fn begin(&mut self) -> Result<Option<Position>, SourceError> {
        if let Claim::Ask(claim) = &mut self.claim {
            // The one that asked is gone, and its lock with it: another instance may have saved since that was read.
            if mem::replace(&mut claim.asked, true) {
                return Err(SourceError::TakenOver(Box::new(SourceError::LockLost)));
            }
            claim.ask.notify_one();
            let answered = claim.answer.wait_for(Option::is_some).await;
            let from = answered.ok().and_then(|from| from.clone());
            self.batches.last = from.ok_or(SourceError::Ended)?;
            self.claim = Claim::Known { shared: true };
        }
        Ok(self.batches.last.clone())
    }

    /// Whether it is known where to begin, so that the lock need not come first.
    pub fn is_claimed(&self) -> bool {
        matches!(self.claim, Claim::Known { .. })
    }

    /// Whether another instance may have gone on from the checkpoint since it was read.
    pub fn may_be_overtaken(&self) -> bool {
        matches!(self.claim, Claim::Known { shared: true })
    }
}

/// Where a life's first connection has its position from.
#[derive(Debug)]
pub enum Claim {
    /// The checkpoint is shared with other machines: asked for when the source's lock is held.
    Ask(Question),
    /// In [`BatchSender::last`] already.
    Known { shared: bool },
}

/// Asks for the checkpoint, once for a life.
#[derive(Debug)]
pub struct Question {
    ask: Arc<Notify>,
    asked: bool,
    answer: watch::Receiver<Option<Option<Position>>>,
}

/// The side of a [`Question`] that answers.
#[derive(Debug)]
pub struct Answer {
    asked: Arc<Notify>,
    answer: watch::Sender<Option<Option<Position>>>,
}

impl Question {
    pub fn new() -> (Self, Answer) {
        let ask = Arc::new(Notify::new());
        let (sender, receiver) = watch::channel(None);
        let asked = Arc::clone(&ask);
        let question = Self {
            ask,
            asked: false,
            answer: receiver,
        };
        (question, Answer { asked, answer: sender })
    }
}

impl Answer {
    /// Waits for the question. False: nobody asks any more. Cancel safe.
    pub async fn asked(&self) -> bool {
        tokio::select! {
            biased; // a question that was asked is answered
            () = self.asked.notified() => true,
            () = self.answer.closed() => false,
        }
    }

    /// Waits until nobody wants the answer any more. Cancel safe.
    pub async fn unwanted(&self) {
        self.answer.closed().await;
    }

    /// Answers. Without an answer, the question fails when this is dropped.
    pub fn give(self, from: Option<Position>) {
        self.answer.send_replace(Some(from));
    }
}

/// Hands batches to the relay. Bounded: a full channel is how back-pressure reaches the server's socket.
#[derive(Debug)]
pub struct BatchSender {
    sender: Option<mpsc::Sender<LogBatch>>,
    last: Option<Position>,
    status: Option<Arc<PipelineStatus>>,
}

impl BatchSender {
    /// `from` is where the first batch begins.
    pub fn new(sender: mpsc::Sender<LogBatch>, from: Option<Position>) -> Self {
        Self {
            sender: Some(sender),
            last: from,
            status: None,
        }
    }

    /// Tells what is handed over.
    pub fn told_to(mut self, status: Arc<PipelineStatus>) -> Self {
        self.status = Some(status);
        self
    }

    /// Waits for room and hands the batch over. Cancel safe: until then it stays where it is.
    ///
    /// A relay that is gone takes nothing more: the batch is dropped, and will be read again from the last position that
    /// was saved.
    pub async fn hand_over(&mut self, batch: &mut Option<LogBatch>) {
        self.hand_over_if(batch, || true).await;
    }

    /// The same, unless something has come up by the time there is room: then the batch stays.
    pub async fn hand_over_if(&mut self, batch: &mut Option<LogBatch>, may: impl Fn() -> bool) {
        let Some(sender) = &self.sender else { return };
        let room = sender.reserve().await;
        if !may() {
            return;
        }
        if let (Ok(room), Some(batch)) = (room, batch.take()) {
            self.last = Some(batch.end.clone());
            // Before the relay can say that it took it.
            if let Some(status) = &self.status {
                status.read(&batch);
            }
            room.send(batch);
        }
    }

    /// The place behind the last batch handed over: where another connection goes on, so that nothing is sent twice.
    pub fn last(&self) -> Option<&Position> {
        self.last.as_ref()
    }

    pub fn is_closed(&self) -> bool {
        self.sender.is_none()
    }

    /// Nothing more comes.
    pub fn close(&mut self) {
        self.sender = None;
    }
}

/// What one read gave: events in log order, and where to go on behind them.
#[derive(Debug, Clone)]
pub struct LogBatch {
    pub events: Vec<ChangeEvent>,
    /// Changes that the source was sent and that are none of the pipeline's events.
    pub skipped: SkipCounts,
    /// Resuming here is sound once every event of the batch is done. Batches without events move it too, which is how
    /// an outbox that is quiet lets the server recycle its log.
    pub end: Position,
    /// The source is behind the server's log: the next batch follows at once.
    pub more_follows: bool,
}

/// How one connection of a source is to be made.
#[derive(Debug, Clone, Copy)]
pub struct SourceOptions {
    pub stall_timeout: Duration,
    /// How long nothing may come while the server's log moves and nothing explains it.
    pub progress_timeout: Duration,
    /// Ends at the log's end as it is at the start.
    pub once: bool,
    pub word: OperatorWord,
    /// Connected before in this process: what a person should mend at leisure must not end a pipeline that runs.
    pub again: bool,
}

/// What the operator said for this one start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OperatorWord {
    #[default]
    Nothing,
    /// `--accept-gap`: go on from what there is, though events may be missing.
    AcceptGap,
    /// `--from-slot`: forget the checkpoint and go on where the slot stands; of a binlog, where `start` says.
    FromSlot,
}

/// The checkpoint's position as this kind of source has it. One of another kind is set aside where the operator said so.
fn own_position<P: TryFrom<Position, Error = Position>>(
    from: Option<Position>,
    word: OperatorWord,
) -> Result<Option<P>, SourceError> {
    match from.map(P::try_from) {
        None => Ok(None),
        Some(Ok(position)) => Ok(Some(position)),
        Some(Err(_)) if word == OperatorWord::FromSlot => Ok(None),
        Some(Err(other)) => Err(SourceError::OtherDatabase {
            saved: other.to_string(),
        }),
    }
}

/// Why a source ended.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    #[error(transparent)]
    Postgres(#[from] PostgresError),
    #[error(transparent)]
    Mysql(#[from] MysqlError),
    /// Of a checkpoint that is shared: another instance has, or had, the source since it was read.
    #[error("another instance may have taken over since the checkpoint was read")]
    TakenOver(#[source] Box<SourceError>),
    #[error("the source's lock was lost while the checkpoint was being read")]
    LockLost,
    /// The pipeline ended before it was said where to begin.
    #[error("the pipeline ended")]
    Ended,
    #[error(
        "the checkpoint is of another kind of database ({saved}). Remedy: give this pipeline another name, or start once with --from-slot to set the checkpoint aside"
    )]
    OtherDatabase { saved: String },
}

impl SourceError {
    pub fn recovery(&self) -> Recovery {
        match self {
            Self::Postgres(error) => error.recovery(),
            Self::Mysql(error) => error.recovery(),
            Self::OtherDatabase { .. } => Recovery::Halt,
            Self::TakenOver(_) | Self::LockLost | Self::Ended => Recovery::Retry,
        }
    }

    /// Whether it can be a sign that another instance went on in this one's place.
    pub fn may_be_overtaken(&self) -> bool {
        match self {
            Self::Postgres(error) => error.may_be_overtaken(),
            Self::Mysql(error) => error.may_be_overtaken(),
            Self::TakenOver(_) | Self::LockLost => true,
            Self::OtherDatabase { .. } | Self::Ended => false,
        }
    }
}

/// What follows an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recovery {
    /// It can heal: again, with back-off.
    Retry,
    /// The source gave way to its server while the pipeline was full: again as soon as there is room.
    RetryWhenThereIsRoom,
    /// Another instance has the source: again at a steady pace, ready to take over.
    StandBy,
    /// It cannot heal: a person must act.
    Halt,
}
