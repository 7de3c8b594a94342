//! The relays of one life, of one sink or of several, and how they end together.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::pause::until;

use super::fan_out::{FreeEnd, FreeError, Junction};
use super::reach::Lane;
use super::{End, Ended};

/// How long a stop waits for sinks that nothing else waits for.
const FREE_DRAIN: Duration = Duration::from_secs(5);

/// The relays of one life, under way.
pub(super) struct Relays {
    pub(super) held: JoinSet<(Lane, Ended)>,
    pub(super) free: JoinSet<FreeEnd>,
    pub(super) tee: JoinSet<()>,
    /// Ends those that nobody waits for.
    pub(super) let_go: CancellationToken,
    pub(super) doomed: CancellationToken,
    pub(super) junction: Option<Arc<Junction>>,
}

/// How the relays of one life ended.
pub(super) struct Ends {
    /// Of those that were waited for.
    pub(super) held: Vec<(Lane, Ended)>,
    pub(super) free: Vec<FreeEnd>,
    /// What was read cannot have its quorum in this life.
    pub(super) doomed: bool,
}

impl Relays {
    /// Waits for those that are to be waited for, and then for the others no longer than a drain may take. More than `spare` of
    /// the others that are given up end the life.
    pub(super) async fn ended(
        mut self,
        stop: &CancellationToken,
        drain: Duration,
        spare: usize,
    ) -> Result<Ends, JoinError> {
        let (mut held, mut free) = (Vec::new(), Vec::<FreeEnd>::new());
        let mut is_doomed = false;
        let mut patience = None;
        while !self.held.is_empty() || !self.free.is_empty() {
            if self.held.is_empty() && self.tee.is_empty() {
                let drain = if stop.is_cancelled() {
                    drain.min(FREE_DRAIN)
                } else {
                    drain
                };
                patience.get_or_insert_with(|| Instant::now() + drain);
            }
            tokio::select! {
                Some(ended) = self.held.join_next() => {
                    let (lane, ended) = ended?;
                    // One that is drained says that the source has ended; any other end is that of all.
                    if !matches!(ended.end, End::Drained) {
                        stop.cancel();
                        self.let_go.cancel();
                    }
                    held.push((lane, ended));
                }
                Some(ended) = self.free.join_next() => {
                    free.push(ended?);
                    let given_up = free.iter().filter(|end| end.error.is_some()).count();
                    let is_suspended = |end: &FreeEnd| matches!(end.error, Some(FreeError::Suspended { .. }));
                    if given_up > spare || free.last().is_some_and(is_suspended) {
                        stop.cancel();
                        self.let_go.cancel();
                    }
                }
                Some(ended) = self.tee.join_next() => ended?,
                () = self.doomed.cancelled(), if !is_doomed => {
                    is_doomed = true;
                    stop.cancel();
                }
                () = until(patience), if patience.is_some() => {
                    // A quorum is waited for as a sink by itself is, which a stop gives the drain's time by itself.
                    if !self.junction.as_ref().is_some_and(|junction| junction.waits()) {
                        self.let_go.cancel();
                    }
                    patience = None;
                }
            }
        }
        Ok(Ends {
            held,
            free,
            doomed: self.doomed.is_cancelled(),
        })
    }
}
