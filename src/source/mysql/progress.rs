//! Notices that the server's log grows while nothing of it comes, though the server's heartbeats do: they say no more than
//! that the connection lives.

use std::time::Duration;

use tokio::time::Instant;

use crate::position::LogPlace;

/// Time that passed without a look counts for no more than this: the process may have been stopped.
const LONGEST: Duration = Duration::from_secs(2);

/// How far reading has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reached {
    /// Behind the last whole event, or where the last heartbeat says that nothing follows.
    pub(super) place: LogPlace,
    /// Bytes of what is on its way.
    pub(super) part: usize,
}

/// An end of the log, as the server told it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LogEnd {
    pub(super) place: LogPlace,
    /// It is no older than this.
    pub(super) asked: Instant,
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct Progress {
    patience: Duration,
    /// None: not looked at yet.
    reached: Option<Reached>,
    /// When that was first seen.
    since: Instant,
    /// The log's end at some time after that.
    end: Option<LogPlace>,
    /// For how long the log is known to have grown since.
    unread: Duration,
    looked: Instant,
    /// Something came between two looks, or nothing was left to come.
    made: bool,
}

impl Progress {
    pub(super) fn new(patience: Duration, now: Instant) -> Self {
        Self {
            patience,
            reached: None,
            since: now,
            end: None,
            unread: Duration::ZERO,
            looked: now,
            made: false,
        }
    }

    /// Whether it was seen that reading goes on, or has nothing more to read.
    pub(super) fn is_made(&self) -> bool {
        self.made
    }

    /// Compares how far reading has come with how far the log reaches. Some: the log has grown for so long, and nothing came.
    ///
    /// To be called about once a second.
    pub(super) fn look(&mut self, now: Instant, reached: Reached, end: Option<LogEnd>) -> Option<Duration> {
        let awake = now.saturating_duration_since(self.looked).min(LONGEST);
        self.looked = now;
        if self.reached != Some(reached) {
            self.excuse(now);
            self.made |= self.reached.is_some();
            self.reached = Some(reached);
            return None;
        }
        let end = end.filter(|end| end.asked >= self.since)?.place;
        self.made |= end == reached.place;
        // An end that lies elsewhere than reading is no sign by itself: only one that moves is.
        if *self.end.get_or_insert(end) != end {
            self.unread += awake;
        }
        (self.unread >= self.patience).then_some(self.unread)
    }

    /// Begins anew: something of ours held reading up.
    pub(super) fn excuse(&mut self, now: Instant) {
        self.since = now;
        self.end = None;
        self.unread = Duration::ZERO;
        self.looked = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks once a second while the log's end and what was read are these, by the second.
    struct Watch {
        begun: Instant,
        seconds: u64,
        progress: Progress,
    }

    impl Watch {
        fn new() -> Self {
            let begun = Instant::now();
            Self {
                begun,
                seconds: 0,
                progress: Progress::new(Duration::from_secs(10), begun),
            }
        }

        fn now(&self) -> Instant {
            self.begun + Duration::from_secs(self.seconds)
        }

        /// The seconds after which it is a stall, within a minute.
        fn stalls(&mut self, read: impl Fn(u64) -> u64, end: impl Fn(u64) -> u64) -> Option<u64> {
            let until = self.seconds + 60;
            while self.seconds < until {
                self.seconds += 1;
                let (reached, end) = (at(read(self.seconds), 0), end_at(end(self.seconds), self.now()));
                if self.progress.look(self.now(), reached, Some(end)).is_some() {
                    return Some(self.seconds);
                }
            }
            None
        }
    }

    fn place(offset: u64) -> LogPlace {
        LogPlace { file: 1, offset }
    }

    fn at(offset: u64, part: usize) -> Reached {
        Reached {
            place: place(offset),
            part,
        }
    }

    fn end_at(offset: u64, asked: Instant) -> LogEnd {
        LogEnd {
            place: place(offset),
            asked,
        }
    }

    #[test]
    fn a_log_that_grows_while_nothing_comes_is_a_stall() {
        // Seen first in the second look, as moved from the third on.
        assert_eq!(Watch::new().stalls(|_| 100, |second| 100 + second), Some(12));
        // It need not grow on.
        assert_eq!(Watch::new().stalls(|_| 100, |second| 100 + second.min(5)), Some(12));
        // Made anew by the administrator, it begins with its first file again.
        assert_eq!(Watch::new().stalls(|_| 900, |second| 900 / second), Some(12));
    }

    #[test]
    fn a_log_at_rest_is_no_stall_wherever_it_ends() {
        assert_eq!(Watch::new().stalls(|_| 100, |_| 100), None);
        assert_eq!(Watch::new().stalls(|_| 100, |_| 150), None);
    }

    #[test]
    fn whatever_comes_begins_the_time_anew() {
        assert_eq!(Watch::new().stalls(|second| second, |second| 100 + second), None);
        assert_eq!(Watch::new().stalls(|second| second / 9, |second| 100 + second), None);
        assert_eq!(
            Watch::new().stalls(|second| second.min(20), |second| 100 + second),
            Some(31)
        );
        // A part of a large event.
        let mut watch = Watch::new();
        for _ in 0..60 {
            watch.seconds += 1;
            let reached = at(100, usize::try_from(watch.seconds).unwrap());
            let end = end_at(1000 + watch.seconds, watch.now());
            assert_eq!(watch.progress.look(watch.now(), reached, Some(end)), None);
        }
    }

    #[test]
    fn it_is_known_to_go_on_once_something_came_or_nothing_is_left() {
        let made = |read: fn(u64) -> u64| {
            let mut watch = Watch::new();
            watch.stalls(read, |_| 300);
            watch.progress.is_made()
        };
        assert!(!made(|_| 100), "where it began is no progress");
        assert!(made(|_| 300));
        assert!(made(|second| 100 + second / 30));
    }

    #[test]
    fn an_end_that_was_told_before_the_last_event_came_is_no_sign() {
        let mut watch = Watch::new();
        let old = end_at(50, watch.now());
        watch.seconds += 1;
        assert_eq!(watch.progress.look(watch.now(), at(100, 0), Some(old)), None);
        // The next listing says where the log ended all along.
        assert_eq!(watch.stalls(|_| 100, |_| 100), None);
    }

    #[test]
    fn a_wait_of_ours_and_a_stop_of_the_process_are_no_stall() {
        let mut watch = Watch::new();
        assert_eq!(watch.stalls(|_| 100, |second| 100 + second.min(3)), Some(12));
        watch.progress.excuse(watch.now());
        assert_eq!(watch.stalls(|_| 100, |_| 103), None);

        let mut watch = Watch::new();
        let look = |watch: &mut Watch| {
            watch.seconds += 1;
            let end = end_at(100 + watch.seconds, watch.now());
            watch.progress.look(watch.now(), at(100, 0), Some(end))
        };
        for _ in 0..5 {
            assert_eq!(look(&mut watch), None);
        }
        watch.seconds += 3600;
        assert_eq!(look(&mut watch), None, "what it missed may be in the socket");
    }
}
