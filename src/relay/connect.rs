//! Keeps a source connected for one life: connects anew after what can heal, behind the last batch handed over.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::config::Restart;
use crate::source::{LogChannel, OperatorWord, Recovery, SourceError, SourceOptions};
use crate::telemetry::error_chain;
use crate::telemetry::status::{Part, PipelineStatus, State};

use super::backoff::Backoff;
use super::parts::Parts;

/// A connection that lasted this long was a good one.
const LASTING: Duration = Duration::from_secs(10);
/// How often a stand-by looks whether the source is free.
const STAND_BY: Duration = Duration::from_secs(1);

/// See the module's text.
pub(super) struct Connector<P> {
    pub(super) parts: Arc<P>,
    pub(super) stall_timeout: Duration,
    pub(super) progress_timeout: Duration,
    pub(super) once: bool,
    pub(super) word: OperatorWord,
    /// Connected before, in a former life.
    pub(super) again: bool,
    pub(super) restart: Restart,
    pub(super) status: Arc<PipelineStatus>,
}

impl<P: Parts> Connector<P> {
    /// Ends with the source's own end, or with what cannot heal within this life; gives back the operator's word if it was
    /// not used yet.
    pub(super) async fn run(mut self, mut log: LogChannel) -> (Result<(), SourceError>, OperatorWord) {
        let mut backoff = Backoff::new(self.restart);
        let mut again = self.again;
        loop {
            let options = SourceOptions {
                stall_timeout: self.stall_timeout,
                progress_timeout: self.progress_timeout,
                once: self.once,
                word: self.word,
                again,
            };
            let begun = Instant::now();
            let streams = self.status.streams();
            // Asked before, since the first connection makes the claim.
            let claimed = log.may_be_overtaken();
            let result = self.parts.source(options, &mut log).await;
            if self.status.streams() > streams {
                // The word was for one start, and the server has accepted it.
                self.word = OperatorWord::Nothing;
                again = true;
            }
            let ending = log.stop.is_cancelled() || log.batches.is_closed();
            let error = match result {
                // What is in flight may be another's by now, and the position that this life began at is old.
                Err(error @ SourceError::TakenOver(_)) if !ending => return (Err(error), self.word),
                Err(error) if claimed && error.may_be_overtaken() && !ending => {
                    return (Err(SourceError::TakenOver(Box::new(error))), self.word);
                }
                Err(error) if error.recovery() != Recovery::Halt && !ending => error,
                // What looks like a loss can be another instance's work, and the next life reads how far that came.
                Err(error) if error.recovery() != Recovery::Halt || (claimed && error.may_be_overtaken()) => {
                    tracing::debug!(error = %error_chain(&error), "the source failed while it was stopped");
                    return (Ok(()), self.word);
                }
                end => return (end, self.word),
            };
            // A connection that ends as soon as it is made must not be made again at once, over and over.
            if self.status.state() == State::Streaming && begun.elapsed() >= LASTING {
                backoff.reset();
            }
            let reason = error_chain(&error);
            let wait = match error.recovery() {
                Recovery::RetryWhenThereIsRoom => Duration::ZERO,
                Recovery::StandBy => STAND_BY,
                Recovery::Retry | Recovery::Halt => backoff.wait(),
            };
            if error.recovery() == Recovery::StandBy {
                stand_by(&self.status, reason);
            } else {
                say_again(&self.status, Part::Source, &reason, wait);
            }
            tokio::select! {
                biased; // a stop ends the wait
                () = log.stop.cancelled() => return (Ok(()), self.word),
                () = sleep(wait) => {}
            }
        }
    }
}

/// Enters the state of an instance that waits for another's end, and says so once.
pub(super) fn stand_by(status: &PipelineStatus, reason: String) {
    let state = State::StandBy { reason };
    if status.state() != state
        && let State::StandBy { reason } = &state
    {
        tracing::warn!(reason, "standing by");
    }
    status.enter(state);
}

/// Counts a restart, and says its reason once.
pub(super) fn say_again(status: &PipelineStatus, part: Part, reason: &str, wait: Duration) {
    let what = part.name();
    status.retry(part, wait);
    status.count(|totals| totals.restarts += 1);
    let news = status.state()
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

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Mutex;

    use tokio::sync::{mpsc, watch};
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::checkpoint::CheckpointError;
    use crate::checkpoint::file::FileStore;
    use crate::position::Lsn;
    use crate::relay::in_flight::Acks;
    use crate::relay::reach::Lane;
    use crate::sink::SinkError;
    use crate::sink::kafka::KafkaSink;
    use crate::source::{BatchSender, Claim, MysqlError, PostgresError, Question};
    use crate::telemetry::status::SourceView;

    /// A source whose connections end like this, one after the other.
    struct Script(Mutex<VecDeque<Connection>>);

    enum Connection {
        /// Before the lock was held.
        Fails(SourceError),
        /// Once it was said where to begin.
        FailsClaimed(SourceError),
        /// While the life is being ended for another reason.
        FailsStopped(SourceError),
        Ends,
    }

    impl Parts for Script {
        type Store = FileStore;
        type Sink = KafkaSink;

        fn store(&self) -> Result<FileStore, CheckpointError> {
            panic!("a connector opens no store")
        }

        fn sink(&self, _lane: Lane, _acks: Acks) -> Result<KafkaSink, SinkError> {
            panic!("a connector makes no sink")
        }

        async fn source(&self, _options: SourceOptions, log: &mut LogChannel) -> Result<(), SourceError> {
            let next = self.0.lock().unwrap().pop_front().expect("another connection");
            match next {
                Connection::Fails(error) => Err(error),
                Connection::FailsClaimed(error) => {
                    log.begin().await?;
                    Err(error)
                }
                Connection::FailsStopped(error) => {
                    log.stop.cancel();
                    Err(error)
                }
                Connection::Ends => Ok(()),
            }
        }
    }

    /// Runs a connector over these connections, with a checkpoint that is shared; gives its end and what is left.
    async fn end(script: Vec<Connection>) -> (Result<(), SourceError>, usize) {
        let status = PipelineStatus::named("orders", "k1", None, Default::default(), Default::default());
        let parts = Arc::new(Script(Mutex::new(script.into())));
        let connector = Connector {
            parts: Arc::clone(&parts),
            stall_timeout: Duration::from_secs(60),
            progress_timeout: Duration::from_secs(60),
            once: false,
            word: OperatorWord::Nothing,
            again: false,
            restart: Restart {
                base_delay: Duration::from_millis(200),
                max_delay: Duration::from_secs(30),
                multiplier: 2.0,
                jitter: (0.5, 1.0),
            },
            status: Arc::clone(&status),
        };
        let (question, answer) = Question::new();
        let (batches, _relay) = mpsc::channel(1);
        let (_confirmed, confirmed) = watch::channel(None);
        let log = LogChannel {
            batches: BatchSender::new(batches, None),
            confirmed,
            stop: CancellationToken::new(),
            claim: Claim::Ask(question),
            view: SourceView::new(status),
        };
        let claimed = async {
            if answer.asked().await {
                answer.give(None);
            }
        };
        let ((end, _), ()) = tokio::join!(connector.run(log), claimed);
        let left = parts.0.lock().unwrap().len();
        (end, left)
    }

    fn in_use() -> SourceError {
        let connection = "7".to_owned();
        MysqlError::InUse { connection }.into()
    }

    #[tokio::test(start_paused = true)]
    async fn a_lock_lost_under_the_claim_ends_the_life_at_once() {
        let lost = SourceError::TakenOver(Box::new(in_use()));
        let (end, left) = end(vec![Connection::FailsClaimed(lost), Connection::Ends]).await;
        assert!(matches!(end, Err(SourceError::TakenOver(_))), "{end:?}");
        assert_eq!(left, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn before_the_claim_another_instance_is_waited_for() {
        let script = vec![
            Connection::Fails(in_use()),
            Connection::Fails(in_use()),
            Connection::Ends,
        ];
        let (end, left) = end(script).await;
        assert!(end.is_ok(), "{end:?}");
        assert_eq!(left, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_source_that_another_instance_took_between_two_connections_ends_the_life() {
        let closed = Connection::FailsClaimed(MysqlError::Closed.into());
        let (end, left) = end(vec![closed, Connection::Fails(in_use()), Connection::Ends]).await;
        assert!(matches!(end, Err(SourceError::TakenOver(_))), "{end:?}");
        assert_eq!(left, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn what_another_instance_did_while_the_life_ends_is_no_loss() {
        let ahead = PostgresError::SlotAhead {
            slot: "orders".to_owned(),
            confirmed: Lsn(12),
            saved: Lsn(10),
        };
        let closed = Connection::FailsClaimed(MysqlError::Closed.into());
        let (end, left) = end(vec![closed, Connection::FailsStopped(ahead.into()), Connection::Ends]).await;
        assert!(end.is_ok(), "{end:?}");
        assert_eq!(left, 1);
    }
}
