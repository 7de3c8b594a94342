//! The jobs that are tried again, of which an operator is shown the one that was tried most often.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::SystemTime;

use crate::telemetry::status::SinkRetry;

/// A job that waits for another try, or is at one. The one that an operator is shown is the least.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Trouble {
    pub(super) attempts: Reverse<u32>,
    pub(super) at: SystemTime,
    /// Tells those of one moment apart.
    pub(super) number: u64,
    /// How many ordering keys wait for the job.
    pub(super) keys: usize,
    /// The target could be reached the last time.
    pub(super) is_reached: bool,
    pub(super) why: Arc<str>,
}

/// While there are any, the target is in trouble.
#[derive(Debug, Default)]
pub(super) struct Troubled {
    jobs: BTreeSet<Trouble>,
    keys: usize,
    unreached: usize,
    /// How many jobs wait for each cause.
    causes: HashMap<Arc<str>, usize>,
}

impl Troubled {
    pub(super) fn add(&mut self, trouble: Trouble) {
        let (keys, is_reached, why) = (trouble.keys, trouble.is_reached, Arc::clone(&trouble.why));
        if self.jobs.insert(trouble) {
            self.keys += keys;
            self.unreached += usize::from(!is_reached);
            *self.causes.entry(why).or_default() += 1;
        }
    }

    /// Whether a job waits for this cause.
    pub(super) fn is_known(&self, why: &str) -> bool {
        self.causes.contains_key(why)
    }

    pub(super) fn remove(&mut self, trouble: &Trouble) {
        if self.jobs.remove(trouble) {
            self.keys -= trouble.keys;
            self.unreached -= usize::from(!trouble.is_reached);
            if let Some(count) = self.causes.get_mut(&trouble.why) {
                *count -= 1;
                if *count == 0 {
                    self.causes.remove(&trouble.why);
                }
            }
        }
    }

    /// What is shown of all of them, and the cause of the one that was tried most often. None: there are none.
    pub(super) fn shown(&self) -> Option<(SinkRetry, &str)> {
        let most = self.jobs.first()?;
        let retry = SinkRetry {
            attempts: most.attempts.0,
            at: most.at,
            keys: self.keys as u64,
            is_reached: self.unreached == 0,
        };
        Some((retry, &*most.why))
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
            why: Arc::from(format!("{attempts} in vain")),
        }
    }

    #[test]
    fn the_job_that_was_tried_most_often_is_shown_with_the_keys_of_all() {
        let mut troubled = Troubled::default();
        assert_eq!(troubled.shown(), None);
        let (young, old, away) = (trouble(1, 5, 1, true), trouble(7, 9, 2, true), trouble(7, 8, 3, false));
        for one in [&young, &old, &away] {
            troubled.add(one.clone());
        }
        assert!(troubled.is_known("1 in vain") && troubled.is_known("7 in vain"));
        let shown = |troubled: &Troubled| {
            let (retry, why) = troubled.shown()?;
            assert_eq!(why, format!("{} in vain", retry.attempts), "its own cause");
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
        assert!(troubled.is_known("1 in vain") && !troubled.is_known("7 in vain"));
        troubled.remove(&young);
        assert_eq!(troubled.shown(), None);
    }
}
