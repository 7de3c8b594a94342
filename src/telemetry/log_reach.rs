//! How far a source's log reaches, and how far of it the pipeline has come: what is pending, and whether it moves.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::position::{LogPlace, Position, ShownPlace};
use crate::source::LogBatch;

/// Places of one log, from its end back to what is done.
#[derive(Debug, Default)]
pub(super) struct LogReach {
    /// The log's files with their ends, oldest first; one where the log is one run of bytes. Empty: not known yet.
    files: Vec<LogPlace>,
    /// What the source handed over.
    pub(super) read: Option<ShownPlace>,
    /// What the relay took of that: the rest is pending.
    taken: Option<ShownPlace>,
    pub(super) acked: Option<ShownPlace>,
    /// Batches that were handed over and not taken, oldest first. As few as the channel between the two holds.
    waiting: VecDeque<Waiting>,
    /// When something was done last, or something to do came up while there was nothing.
    moved: Option<Instant>,
}

/// A batch on its way from the source to the relay.
#[derive(Debug)]
struct Waiting {
    events: u64,
    /// Commit time of its first event, in microseconds since 1970.
    oldest_us: Option<i64>,
}

impl LogReach {
    /// A life begins, at its checkpoint where there is one: what was handed over before and not done comes again.
    pub(super) fn begin(&mut self, from: Option<&Position>) {
        self.waiting.clear();
        if let Some(from) = from {
            let place = from.place();
            self.read = Some(place.clone());
            self.taken = Some(place.clone());
            self.acked = Some(place);
        }
    }

    pub(super) fn files(&mut self, files: Vec<LogPlace>, now: Instant) {
        if !self.has_more() {
            self.moved = Some(now);
        }
        self.files = files;
    }

    pub(super) fn read(&mut self, batch: &LogBatch, now: Instant) {
        if !self.has_more() {
            self.moved = Some(now);
        }
        self.read = Some(batch.end.place());
        self.waiting.push_back(Waiting {
            events: batch.events.len() as u64,
            oldest_us: batch.events.first().map(|event| event.commit_time_us),
        });
    }

    pub(super) fn taken(&mut self, end: &Position) {
        self.waiting.pop_front();
        self.taken = Some(end.place());
    }

    pub(super) fn acked(&mut self, position: &Position, now: Instant) {
        self.acked = Some(position.place());
        self.moved = Some(now);
    }

    /// Whether there is log, or a batch, that is not done with.
    pub(super) fn has_more(&self) -> bool {
        self.acked != self.read || self.lag_bytes().is_some_and(|bytes| bytes > 0)
    }

    /// How long nothing was done though there is something to do.
    pub(super) fn stalled(&self, now: Instant) -> Duration {
        match self.moved {
            Some(moved) if self.has_more() => now.saturating_duration_since(moved),
            _ => Duration::ZERO,
        }
    }

    /// Bytes from what is acked to the log's end.
    pub(super) fn lag_bytes(&self) -> Option<u64> {
        self.bytes_behind(self.acked.as_ref()?)
    }

    /// Bytes from what the relay took to the log's end.
    pub(super) fn pending_bytes(&self) -> Option<u64> {
        self.bytes_behind(self.taken.as_ref()?)
    }

    /// Events that were read and not taken; how many more there are in the log nobody knows.
    pub(super) fn pending_events(&self) -> u64 {
        self.waiting.iter().map(|batch| batch.events).sum()
    }

    /// Commit time of the first of them, in microseconds since 1970.
    pub(super) fn oldest_pending_us(&self) -> Option<i64> {
        self.waiting.iter().find_map(|batch| batch.oldest_us)
    }

    fn bytes_behind(&self, place: &ShownPlace) -> Option<u64> {
        let place = place.log_place();
        self.files.first()?;
        let bytes = self.files.iter().filter(|file| file.file >= place.file).map(|end| {
            let done = if end.file == place.file { place.offset } else { 0 };
            end.offset.saturating_sub(done)
        });
        Some(bytes.sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::position::{Lsn, PostgresPosition};
    use crate::skip::SkipCounts;

    fn position(base: u64) -> Position {
        Position::Postgres(PostgresPosition {
            system_identifier: 1,
            timeline: 1,
            base: Lsn(base),
            partial: None,
            last_event_end: Lsn::ZERO,
        })
    }

    fn batch(end: u64) -> LogBatch {
        LogBatch {
            events: Vec::new(),
            skipped: SkipCounts::default(),
            end: position(end),
            more_follows: false,
        }
    }

    fn end(offset: u64) -> Vec<LogPlace> {
        vec![LogPlace { file: 0, offset }]
    }

    #[test]
    fn what_is_pending_lies_between_what_was_taken_and_the_end_of_the_log() {
        let (mut reach, now) = (LogReach::default(), Instant::now());
        assert_eq!((reach.lag_bytes(), reach.pending_bytes()), (None, None));
        reach.begin(Some(&position(100)));
        reach.files(end(1000), now);
        assert_eq!((reach.lag_bytes(), reach.pending_bytes()), (Some(900), Some(900)));
        reach.read(&batch(600), now);
        reach.read(&batch(700), now);
        assert_eq!(reach.pending_bytes(), Some(900), "it waits for the relay");
        reach.taken(&position(600));
        assert_eq!((reach.lag_bytes(), reach.pending_bytes()), (Some(900), Some(400)));
        reach.acked(&position(600), now);
        assert_eq!(reach.lag_bytes(), Some(400));
        // A binlog's files in between count whole.
        let places = [(3, 500), (4, 700), (5, 20)].map(|(file, offset)| LogPlace { file, offset });
        reach.files(places.to_vec(), now);
        assert_eq!(reach.lag_bytes(), Some(1220));
    }

    #[test]
    fn it_stalls_only_while_there_is_something_to_do() {
        let (mut reach, begun) = (LogReach::default(), Instant::now());
        let at = |seconds| begun + Duration::from_secs(seconds);
        reach.begin(Some(&position(100)));
        reach.files(end(100), at(0));
        assert_eq!(reach.stalled(at(3600)), Duration::ZERO);
        reach.files(end(200), at(3600));
        assert_eq!(
            reach.stalled(at(3605)),
            Duration::from_secs(5),
            "the quiet hour before does not count"
        );
        reach.read(&batch(200), at(3606));
        reach.acked(&position(200), at(3606));
        assert_eq!(reach.stalled(at(3700)), Duration::ZERO, "all is done");
        // A batch can be there before the log's end is asked for.
        reach.read(&batch(300), at(4000));
        assert_eq!(reach.stalled(at(4010)), Duration::from_secs(10));
        reach.read(&batch(400), at(4011));
        reach.acked(&position(300), at(4012));
        assert_eq!(reach.stalled(at(4020)), Duration::from_secs(8));
    }
}
