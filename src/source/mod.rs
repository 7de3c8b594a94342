//! Sources: each tails one database's own log and hands on what it finds, in the log's order.
//!
//! A source owns its connection and answers the server whatever the relay does. What it hands on are [`LogBatch`]es;
//! what comes back is only the position that was saved, which it may then confirm to its server.

pub mod mysql;
pub mod postgres;

mod select;
mod tls;
mod transport;

use std::future::Future;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::event::ChangeEvent;
use crate::position::Position;
use crate::skip::SkipCounts;
use crate::telemetry::status::SourceView;

pub use mysql::MysqlError;
pub use postgres::PostgresError;
pub use tls::TlsSetupError;

/// Tails one database's log.
pub trait Source: Send + 'static {
    /// Streams from `from` (None: the first start) until stopped, or until the log's end where the source was told to
    /// end there.
    ///
    /// When it ends without an error it closes [`LogChannel::batches`], waits until [`LogChannel::confirmed`] is closed
    /// too, and confirms what was saved last.
    ///
    /// # Errors
    /// [`SourceError::recovery`] says whether another run from the last position handed over can go on.
    fn run(self, from: Option<Position>, log: &mut LogChannel) -> impl Future<Output = Result<(), SourceError>> + Send;
}

/// A source's side of its pipeline; it outlives one connection.
#[derive(Debug)]
pub struct LogChannel {
    pub batches: BatchSender,
    /// What the checkpoint holds, and so may be confirmed to the server.
    pub confirmed: watch::Receiver<Option<Position>>,
    pub stop: CancellationToken,
    /// Where the source tells operators how it stands.
    pub view: SourceView,
}

/// Hands batches to the relay. Bounded: a full channel is how back-pressure reaches the server's socket.
#[derive(Debug)]
pub struct BatchSender {
    sender: Option<mpsc::Sender<LogBatch>>,
    last: Option<Position>,
}

impl BatchSender {
    /// `from` is where the first batch begins.
    pub fn new(sender: mpsc::Sender<LogBatch>, from: Option<Position>) -> Self {
        Self {
            sender: Some(sender),
            last: from,
        }
    }

    /// Waits for room and hands the batch over. Cancel safe: until then it stays where it is.
    ///
    /// A relay that is gone takes nothing more: the batch is dropped, and will be read again from the last position that
    /// was saved.
    pub async fn hand_over(&mut self, batch: &mut Option<LogBatch>) {
        let Some(sender) = &self.sender else { return };
        let room = sender.reserve().await;
        if let (Ok(room), Some(batch)) = (room, batch.take()) {
            self.last = Some(batch.end.clone());
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
#[derive(Debug)]
pub struct LogBatch {
    pub events: Vec<ChangeEvent>,
    /// Changes that the source was sent and that are none of the pipeline's events.
    pub skipped: SkipCounts,
    /// Resuming here is sound once every event of the batch is done. Batches without events move it too, which is how
    /// an outbox that is quiet lets the server recycle its log.
    pub end: Position,
}

/// How one connection of a source is to be made.
#[derive(Debug, Clone, Copy)]
pub struct SourceOptions {
    pub stall_timeout: Duration,
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
