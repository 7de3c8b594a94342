//! Watches the server beside the stream: whether the pipeline's lock is still ours, and how far the log reaches.

use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::position::{BinlogPlace, LogPlace};
use crate::source::{BatchSender, LogBatch};
use crate::telemetry::error_chain;
use crate::telemetry::status::{Kept, SourceView};

use super::error::MysqlError;
use super::lock::{self, Held, SeenAt};
use super::progress::LogEnd;
use super::server::binlog_files;

/// Every how many looks at the lock the log's end is asked for.
const LOOKS_PER_LISTING: u32 = 2;

/// What the monitor saw.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Observed {
    lock: LockState,
    /// None: not known yet.
    log_end: Option<LogEnd>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum LockState {
    Held(SeenAt),
    Lost { reason: String },
}

/// The monitor's side of what it saw.
#[derive(Debug)]
pub(super) struct Monitor {
    held: Held,
    view: SourceView,
    observed: watch::Sender<Observed>,
}

/// The stream's side of it.
#[derive(Debug)]
pub(super) struct Watched {
    news: watch::Receiver<Observed>,
    lock: LockView,
}

/// Whether anything may be handed over.
#[derive(Debug, Clone)]
pub(super) struct LockView(watch::Receiver<Observed>);

impl Monitor {
    pub(super) fn new(held: Held, view: SourceView) -> (Self, Watched) {
        let (observed, news) = watch::channel(Observed {
            lock: LockState::Held(held.seen()),
            log_end: None,
        });
        let lock = LockView(news.clone());
        (Self { held, view, observed }, Watched { news, lock })
    }

    /// Watches until stopped, or until the lock is lost.
    pub(super) async fn run(mut self, stop: CancellationToken) {
        let reason = tokio::select! {
            biased; // nothing here must outlive the stream
            () = stop.cancelled() => return,
            reason = self.watch() => reason,
        };
        self.observed
            .send_modify(|observed| observed.lock = LockState::Lost { reason });
    }

    /// Returns why the lock is lost.
    async fn watch(&mut self) -> String {
        let mut looks = 0_u32;
        loop {
            match self.turn(looks).await {
                Ok(()) => looks = looks.wrapping_add(1),
                Err(MysqlError::LockLost { reason }) => return reason,
                // A connection that failed a statement is at its end, and the lock with it.
                Err(error) => return error_chain(&error),
            }
        }
    }

    async fn turn(&mut self, looks: u32) -> Result<(), MysqlError> {
        self.held.due().await?;
        let seen = self.held.look().await?;
        self.observed
            .send_modify(|observed| observed.lock = LockState::Held(seen));
        if !looks.is_multiple_of(LOOKS_PER_LISTING) {
            return Ok(());
        }
        let asked = Instant::now();
        let listing = timeout(lock::ANSWER, binlog_files(&mut self.held.client)).await;
        let files = listing.unwrap_or(Err(MysqlError::Silent { silence: lock::ANSWER }))?;
        if let Some(oldest) = files.first() {
            self.view.kept(Kept::Binlog {
                oldest_file: oldest.file.to_string(),
                files: files.len() as u64,
                bytes: files.iter().map(|file| file.pos).sum(),
            });
        }
        let files: Vec<LogPlace> = files.iter().map(BinlogPlace::log_place).collect();
        let end = files.last().map(|place| LogEnd { place: *place, asked });
        self.observed.send_modify(|observed| observed.log_end = end);
        self.view.log_files(files);
        Ok(())
    }
}

impl Watched {
    /// Waits until there is something new to see, which is at once where nobody watches any more. Cancel safe.
    pub(super) async fn changed(&mut self) {
        // Whether somebody watches is seen by looking.
        let _ = self.news.changed().await;
    }

    /// A view to look by while something else waits for [`Watched::changed`].
    pub(super) fn lock(&self) -> LockView {
        self.lock.clone()
    }

    /// The log's end as the server told it last.
    pub(super) fn log_end(&self) -> Option<LogEnd> {
        self.news.borrow().log_end
    }

    /// Waits until the lock was looked at anew.
    ///
    /// # Errors
    /// [`MysqlError::LockLost`]
    pub(super) async fn looked_at_anew(&mut self) -> Result<(), MysqlError> {
        let before = self.news.borrow_and_update().lock.clone();
        // An answer that was on its way when the process was stopped is no news.
        while !self.lock.is_sure()? || self.news.borrow_and_update().lock == before {
            self.changed().await;
        }
        Ok(())
    }
}

impl LockView {
    /// Whether the lock was looked at so lately that it must still be ours. False: a look at it is due, as it is when the
    /// process was stopped.
    ///
    /// # Errors
    /// [`MysqlError::LockLost`]
    pub(super) fn is_sure(&self) -> Result<bool, MysqlError> {
        let reason = match &self.0.borrow().lock {
            LockState::Lost { reason } => reason.clone(),
            LockState::Held(seen) if self.0.has_changed().is_ok() => return Ok(seen.is_fresh()),
            LockState::Held(_) => "the task that watches it has ended".to_owned(),
        };
        Err(MysqlError::LockLost { reason })
    }

    /// Waits for room and hands the batch over, unless the lock is in doubt by then: the wait can be long, and the process be
    /// stopped in it. Cancel safe.
    pub(super) async fn hand_over(&self, batch: &mut Option<LogBatch>, batches: &mut BatchSender) {
        let sure = || self.is_sure().is_ok_and(|sure| sure);
        batches.hand_over_if(batch, sure).await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::mpsc;
    use tokio::time::advance;

    use super::*;
    use crate::position::{ByFile, MysqlBase, MysqlPosition, Position, ServerIdentity};
    use crate::skip::SkipCounts;

    fn seen_now() -> (watch::Sender<Observed>, Watched) {
        let (sender, news) = watch::channel(Observed {
            lock: LockState::Held(SeenAt::now()),
            log_end: None,
        });
        let lock = LockView(news.clone());
        (sender, Watched { news, lock })
    }

    fn look(sender: &watch::Sender<Observed>) {
        sender.send_modify(|observed| observed.lock = LockState::Held(SeenAt::now()));
    }

    fn lost(sender: &watch::Sender<Observed>) {
        let reason = "gone".to_owned();
        sender.send_modify(|observed| observed.lock = LockState::Lost { reason });
    }

    fn batch() -> Option<LogBatch> {
        let place = BinlogPlace {
            file: "binlog.000001".into(),
            pos: 4,
        };
        let position = MysqlPosition {
            server: ServerIdentity { uuid: None, id: 1 },
            base: MysqlBase::File(ByFile),
            place,
            partial: Vec::new(),
            reread: None,
        };
        Some(LogBatch {
            events: Vec::new(),
            skipped: SkipCounts::default(),
            end: Position::Mysql(Box::new(position)),
            more_follows: false,
        })
    }

    #[tokio::test(start_paused = true)]
    async fn a_lock_is_in_doubt_when_it_was_not_looked_at_for_as_long_as_the_server_waits() {
        let (sender, watched) = seen_now();
        let lock = watched.lock();
        assert!(lock.is_sure().unwrap());
        advance(Duration::from_millis(7_900)).await;
        assert!(lock.is_sure().unwrap());
        advance(Duration::from_millis(200)).await;
        assert!(!lock.is_sure().unwrap());
        look(&sender);
        assert!(lock.is_sure().unwrap());
        lost(&sender);
        let error = lock.is_sure().unwrap_err().to_string();
        assert!(error.contains("was lost: gone"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_lock_that_nobody_watches_counts_as_lost() {
        let (sender, mut watched) = seen_now();
        drop(sender);
        watched.changed().await;
        let error = watched.lock().is_sure().unwrap_err().to_string();
        assert!(error.contains("was lost"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_that_waited_for_room_stays_while_the_lock_is_in_doubt() {
        let (sender, watched) = seen_now();
        let lock = watched.lock();
        let (out, mut relay) = mpsc::channel(1);
        let mut batches = BatchSender::new(out, None);
        let mut first = batch();
        lock.hand_over(&mut first, &mut batches).await;
        assert!(first.is_none());
        let mut second = batch();
        let waiting = async {
            lock.hand_over(&mut second, &mut batches).await;
        };
        // As after a stop of the process: room comes first, then anything else.
        let stopped = async {
            advance(Duration::from_secs(60)).await;
            relay.recv().await.expect("the first");
        };
        tokio::join!(waiting, stopped);
        assert!(second.is_some(), "it was handed over on an old word");
        look(&sender);
        lock.hand_over(&mut second, &mut batches).await;
        assert!(second.is_none());
        relay.recv().await.expect("the second");
        lost(&sender);
        let mut third = batch();
        lock.hand_over(&mut third, &mut batches).await;
        assert!(third.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_look_that_began_after_the_question_answers_it() {
        let (sender, mut watched) = seen_now();
        let early = SeenAt::now();
        advance(Duration::from_secs(30)).await;
        let asked = Instant::now();
        let answer = async { watched.looked_at_anew().await.map(|()| asked.elapsed()) };
        let monitor = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            // On its way when the process was stopped.
            sender.send_modify(|observed| observed.lock = LockState::Held(early));
            tokio::time::sleep(Duration::from_secs(1)).await;
            look(&sender);
        };
        let (answer, ()) = tokio::join!(answer, monitor);
        assert_eq!(answer.unwrap(), Duration::from_secs(2));
        let (answer, ()) = tokio::join!(watched.looked_at_anew(), async { lost(&sender) });
        assert!(matches!(answer, Err(MysqlError::LockLost { .. })));
    }
}
