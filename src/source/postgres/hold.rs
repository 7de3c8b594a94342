//! Holding a slot while it is asked where to begin.
//!
//! A started stream is the lock: the server lets nobody else read the slot. The answer can take long, as when no broker is
//! there to give it, and until then nothing that streams in has a place to go. So it stays unread in the socket, the
//! server is told that we live, and nothing is confirmed.

use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_postgres::error::SqlState;

use crate::position::{Lsn, Position};
use crate::source::{LogChannel, SourceError};

use super::control::{Control, is_endangered};
use super::error::PostgresError;
use super::link::{Link, STATUS_INTERVAL};

/// How long the stream may stay unread while the slot is about to be lost.
const ENDANGERED_PATIENCE: Duration = Duration::from_secs(5);

/// Asks where to begin, and holds the slot until it is said.
///
/// # Errors
/// The connection is lost, and the lock with it; or the server must not wait for us any longer, as while a batch waits for
/// room: a stream that is left unread hangs its checkpointer when the slot must go.
pub(super) async fn begin(
    link: &mut Link,
    control: &mut Control,
    slot: &str,
    stall_timeout: Duration,
    log: &mut LogChannel,
) -> Result<Option<Position>, SourceError> {
    let since = Instant::now();
    let mut timer = interval(STATUS_INTERVAL);
    timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let beginning = log.begin();
    tokio::pin!(beginning);
    loop {
        tokio::select! {
            biased; // the answer ends the wait; a status is written whole, never cancelled
            from = &mut beginning => return from,
            ended = control.ended() => {
                let code = ended.as_ref().and_then(tokio_postgres::Error::code);
                return Err(match code {
                    Some(code) if *code == SqlState::ADMIN_SHUTDOWN || *code == SqlState::CRASH_SHUTDOWN => PostgresError::ShuttingDown,
                    _ => PostgresError::Closed,
                }
                .into());
            }
            _ = timer.tick() => {
                link.send_status(Lsn::ZERO, Lsn::ZERO, false).await?;
                let waited = since.elapsed();
                if waited >= stall_timeout {
                    return Err(PostgresError::Stalled { stalled: waited }.into());
                }
                let status = control.slot(slot).await?.and_then(|slot| slot.wal_status);
                let endangered = status.filter(|status| is_endangered(status) && waited >= ENDANGERED_PATIENCE);
                if let Some(status) = endangered {
                    return Err(PostgresError::SlotEndangered { slot: slot.to_owned(), status }.into());
                }
            }
        }
    }
}
