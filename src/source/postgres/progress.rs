//! Whether anything comes while the server's log moves. Pure, but for the clock.
//!
//! A keep-alive alone is no progress: a server that holds back what it has goes on sending them, always with the same place.
//! One that reads through log that holds nothing for us says a place further on each time it is asked, before and behind
//! what we have; so a large transaction that is open, and much that is passed over, are progress.

use std::time::Duration;

use tokio::time::Instant;

use crate::position::Lsn;

/// The log's end may lie behind the end of its last record by a page's header.
const PAGE_HEADER: u64 = 64;

/// See the module's text.
#[derive(Debug)]
pub(super) struct Progress {
    /// When something last came, or there was nothing that could have come.
    since: Instant,
    /// The server has log that we have not.
    behind: bool,
    /// The place in the last keep-alive.
    told: Option<Lsn>,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self {
            since: Instant::now(),
            behind: false,
            told: None,
        }
    }

    /// Something of the log has come, or what had come before found room.
    pub(super) fn moved(&mut self) {
        self.since = Instant::now();
    }

    /// Takes a keep-alive's place; `base` is how far we were. True: it is progress. The first of a connection can only be
    /// compared with what we have, each other with the one before it.
    pub(super) fn keep_alive(&mut self, end: Lsn, base: Lsn) -> bool {
        let before = self.told.replace(end);
        let moved = before.map_or(end > base, |before| before != end);
        if moved {
            self.moved();
        }
        moved
    }

    /// Takes the log's end as it was just seen. True: we have all of it.
    pub(super) fn observe(&mut self, log_end: Lsn, base: Lsn) -> bool {
        let have = self.told.map_or(base, |told| told.max(base));
        self.behind = log_end.0 > have.0.saturating_add(PAGE_HEADER);
        if !self.behind {
            self.moved();
        }
        !self.behind
    }

    /// For how long nothing has come though the server has more; None: it has no more, as far as is known.
    pub(super) fn stalled(&self) -> Option<Duration> {
        self.behind.then(|| self.since.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    async fn a_minute_later(progress: &mut Progress, log_end: u64, base: u64) -> Option<Duration> {
        advance(MINUTE).await;
        progress.observe(Lsn(log_end), Lsn(base));
        progress.stalled()
    }

    #[tokio::test(start_paused = true)]
    async fn a_log_that_moves_while_nothing_comes_is_a_stall() {
        let mut progress = Progress::new();
        assert_eq!(a_minute_later(&mut progress, 1_000, 1_000).await, None);
        // From when we last had all of it.
        assert_eq!(a_minute_later(&mut progress, 9_000, 1_000).await, Some(MINUTE));
        progress.moved();
        assert_eq!(progress.stalled(), Some(Duration::ZERO));
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_log_is_none_though_its_end_lies_behind_a_page_header() {
        let mut progress = Progress::new();
        for log_end in [900, 1_000, 1_040] {
            assert_eq!(a_minute_later(&mut progress, log_end, 1_000).await, None);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_keep_alive_that_says_the_same_place_is_no_progress() {
        let mut progress = Progress::new();
        progress.observe(Lsn(9_000), Lsn(1_000));
        for _ in 0..3 {
            advance(MINUTE).await;
            // It repeats where the stream was started, or what was sent before.
            assert!(!progress.keep_alive(Lsn(900), Lsn(1_000)));
        }
        assert_eq!(progress.stalled(), Some(3 * MINUTE));
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_reads_on_makes_progress_also_where_it_has_been_before() {
        let mut progress = Progress::new();
        progress.observe(Lsn(9_000), Lsn(1_000));
        progress.keep_alive(Lsn(100), Lsn(1_000));
        for told in [200, 300, 2_000] {
            advance(MINUTE).await;
            assert!(progress.keep_alive(Lsn(told), Lsn(1_000)));
            assert_eq!(progress.stalled(), Some(Duration::ZERO));
        }
    }
}
