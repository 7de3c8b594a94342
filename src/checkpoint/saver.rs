//! The task that saves: it takes the newest acked position, saves it, and passes it on to be confirmed.
//!
//! It stands between the relay and the source, so that nothing can be confirmed that was not saved, and a slow disk holds
//! up neither.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use crate::audit::Journal;
use crate::failpoint;
use crate::position::Position;
use crate::telemetry::error_chain;
use crate::telemetry::status::PipelineStatus;

use super::{CheckpointError, CheckpointStore};

/// Saves are at least this far apart, except the last.
const SAVE_INTERVAL: Duration = Duration::from_secs(1);
const RETRY: Duration = Duration::from_secs(1);
/// Saves tried after the end was asked for.
const LAST_TRIES: u32 = 3;

/// Saves what `acked` says until its sender is gone, then the last of it, and gives the store back.
///
/// # Errors
/// A save that cannot heal, or that failed to the end.
pub async fn run<S: CheckpointStore>(
    mut store: S,
    journal: Journal,
    mut acked: watch::Receiver<Option<Position>>,
    confirmed: watch::Sender<Option<Position>>,
    status: Arc<PipelineStatus>,
) -> (S, Result<(), CheckpointError>) {
    let mut next_save = Instant::now();
    let mut ending = false;
    while !ending {
        ending = acked.changed().await.is_err();
        if !ending {
            tokio::select! {
                biased; // the end does not wait for the interval
                () = ended(&mut acked) => ending = true,
                () = sleep_until(next_save) => {}
            }
        }
        let (mut tries, mut last_tries) = (0, 0);
        loop {
            let position = acked.borrow_and_update().clone();
            let Some(position) = position.filter(|position| confirmed.borrow().as_ref() != Some(position)) else {
                break;
            };
            failpoint::hit("before_save");
            match save(&mut store, &journal, &position).await {
                Ok(()) => {
                    failpoint::hit("after_save");
                    status.checkpoint_trouble(None);
                    status.saved(&position);
                    // Confirm after the save: the server may recycle its log below at once, and a restart could no
                    // longer replay it.
                    confirmed.send_replace(Some(position));
                    break;
                }
                Err(error) => {
                    tries += 1;
                    last_tries += u32::from(ending);
                    if !error.can_heal() || last_tries >= LAST_TRIES {
                        return (store, Err(error));
                    }
                    let text = error_chain(&error);
                    if tries == 1 {
                        tracing::error!(
                            error = %text,
                            "the checkpoint cannot be saved; nothing is confirmed until it can"
                        );
                    }
                    status.checkpoint_trouble(Some(text));
                    sleep(RETRY).await;
                    ending |= acked.has_changed().is_err();
                }
            }
        }
        next_save = Instant::now() + SAVE_INTERVAL;
    }
    (store, Ok(()))
}

/// Saves a position, behind the lines of the events before it.
async fn save(store: &mut impl CheckpointStore, journal: &Journal, position: &Position) -> Result<(), CheckpointError> {
    // Its events do not come again once it is saved, so what is written down of them must outlive a loss of power as well.
    journal.sync().await?;
    store.save(position).await
}

/// Waits until the sender is gone. Cancel safe.
async fn ended(acked: &mut watch::Receiver<Option<Position>>) {
    while acked.changed().await.is_ok() {}
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::position::{Lsn, PostgresPosition};

    #[derive(Clone, Default)]
    struct Recorder(Arc<Mutex<Vec<u64>>>);

    impl CheckpointStore for Recorder {
        async fn load(&mut self) -> Result<Option<Position>, CheckpointError> {
            Ok(None)
        }

        async fn save(&mut self, position: &Position) -> Result<(), CheckpointError> {
            self.0.lock().unwrap().push(position.log_place().offset);
            Ok(())
        }
    }

    fn position(base: u64) -> Option<Position> {
        Some(Position::Postgres(PostgresPosition {
            system_identifier: 1,
            timeline: 1,
            base: Lsn(base),
            partial: None,
            last_event_end: Lsn::ZERO,
        }))
    }

    fn status() -> Arc<PipelineStatus> {
        PipelineStatus::named("p", "k", None, Default::default(), Default::default())
    }

    #[tokio::test(start_paused = true)]
    async fn saves_are_apart_and_the_last_is_made_at_once() {
        let (acked, receiver) = watch::channel(None);
        let (confirmed_sender, mut confirmed) = watch::channel(None);
        let store = Recorder::default();
        let task = tokio::spawn(run(
            store.clone(),
            Journal::default(),
            receiver,
            confirmed_sender,
            status(),
        ));
        acked.send_replace(position(1));
        confirmed.changed().await.unwrap();
        for base in 2..=5 {
            acked.send_replace(position(base));
        }
        confirmed.changed().await.unwrap();
        assert_eq!(*store.0.lock().unwrap(), [1, 5]);
        acked.send_replace(position(6));
        drop(acked);
        task.await.unwrap().1.unwrap();
        assert_eq!(*store.0.lock().unwrap(), [1, 5, 6]);
        assert_eq!(*confirmed.borrow(), position(6));
    }
}
