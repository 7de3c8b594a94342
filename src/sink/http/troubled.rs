//! The jobs that are tried again, of which an operator is shown the one that was tried most often.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::time::SystemTime;

use crate::telemetry::status::SinkRetry;

/// A job that waits for another try, or is at one. The one that an operator is shown is the least.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Trouble {
    pub(super) attempts: Reverse<u32>,
    pub(super) at: SystemTime,
    /// Tells those of one moment apart.
    pub(super) number: u64,
    /// How many ordering keys wait for the job.
    pub(super) keys: usize,
    /// The target could be reached the last time.
    pub(super) is_reached: bool,
}

/// While there are any, the target is in trouble.
#[derive(Debug, Default)]
pub(super) struct Troubled {
    jobs: BTreeSet<Trouble>,
    keys: usize,
    unreached: usize,
}

impl Troubled {
    /// Gives what is shown of all of them.
    pub(super) fn add(&mut self, trouble: Trouble) -> SinkRetry {
        if self.jobs.insert(trouble) {
            self.keys += trouble.keys;
            self.unreached += usize::from(!trouble.is_reached);
        }
        self.of_all(self.jobs.first().unwrap_or(&trouble))
    }

    pub(super) fn remove(&mut self, trouble: &Trouble) {
        if self.jobs.remove(trouble) {
            self.keys -= trouble.keys;
            self.unreached -= usize::from(!trouble.is_reached);
        }
    }

    /// None: there are none.
    pub(super) fn shown(&self) -> Option<SinkRetry> {
        Some(self.of_all(self.jobs.first()?))
    }

    fn of_all(&self, most: &Trouble) -> SinkRetry {
        SinkRetry {
            attempts: most.attempts.0,
            at: most.at,
            keys: self.keys as u64,
            is_reached: self.unreached == 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    fn trouble(attempts: u32, seconds: u64, keys: usize, is_reached: bool) -> Trouble {
        Trouble {
            attempts: Reverse(attempts),
            at: UNIX_EPOCH + Duration::from_secs(seconds),
            number: 0,
            keys,
            is_reached,
        }
    }

    #[test]
    fn the_job_that_was_tried_most_often_is_shown_with_the_keys_of_all() {
        let mut troubled = Troubled::default();
        assert_eq!(troubled.shown(), None);
        let (young, old, away) = (trouble(1, 5, 1, true), trouble(7, 9, 2, true), trouble(7, 8, 3, false));
        for one in [young, old, away] {
            troubled.add(one);
        }
        let shown = |troubled: &Troubled| {
            let retry = troubled.shown()?;
            Some((retry.attempts, retry.at, retry.keys, retry.is_reached))
        };
        assert_eq!(
            shown(&troubled),
            Some((7, away.at, 6, false)),
            "the one that is due first"
        );
        troubled.remove(&away);
        assert_eq!(shown(&troubled), Some((7, old.at, 3, true)));
        troubled.remove(&old);
        // It went through once, and once is enough.
        troubled.remove(&old);
        assert_eq!(shown(&troubled), Some((1, young.at, 1, true)));
        troubled.remove(&young);
        assert_eq!(troubled.shown(), None);
    }
}
