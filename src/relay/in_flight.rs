//! The ledger of what is in flight, and its watermark: everything before it is settled.
//!
//! An ack is a bit in a ring, set from whatever thread the sink reports on; there is no allocation, channel or lock for
//! an event. The relay's task owns everything else and moves over the bits, up to the first that is not set. A failure sets
//! no bit, so it is never passed.
//!
//! What is acked is settled, unless the sink commits: then it no longer takes room in the sink, and is settled by the commit.

use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::time::sleep;

use crate::config::Delivery;
use crate::letters::notices::Notice;
use crate::position::Position;
use crate::processor::DeadLetterReason;
use crate::record::Record;
use crate::sink::DeliveryError;
use crate::skip::{SkipCounts, SkipReason};
use crate::telemetry::histogram::Histogram;

/// With so many events in flight nobody waits for the next report of one.
const GATHERING: usize = 1024;
/// A relay that is full and woken by the first of a batch's acks would send one event, and be woken by the next: for each event
/// three threads would wake one another, and the sink's batches be tiny.
pub(super) const GATHER: Duration = Duration::from_millis(1);

/// Numbers the records of one sink's life, from 0 without gaps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seq(pub u64);

/// A sink's side of the ledger. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Acks(Arc<Shared>);

/// A delivery that failed, or the sink as a whole where no seq is named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub seq: Option<Seq>,
    pub error: DeliveryError,
}

/// A record that its target does not take, of a sink that goes on behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    pub seq: Seq,
    pub record: Record,
    pub error: DeliveryError,
    /// How often it was tried.
    pub attempts: u32,
    /// What the target said to it, for its dead letter alone: there can be values of the event in it.
    pub said: String,
}

/// An attempt that failed and is followed by another, of a sink that goes on meanwhile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tried {
    pub seq: Seq,
    /// How many there were by then.
    pub attempts: u32,
    pub error: String,
}

#[derive(Debug)]
struct Shared {
    /// One bit a seq, in a ring that is at least as large as what may be in flight.
    done: Box<[AtomicU64]>,
    failures: Mutex<Vec<Failure>>,
    refused: Mutex<Vec<Refused>>,
    /// Whether anybody asks for attempts that failed.
    keeps_tried: AtomicBool,
    tried: Mutex<Vec<Tried>>,
    changed: Notify,
    /// Whether `changed` was told and not heard yet: most acks need not wake anybody.
    told: AtomicBool,
    /// Of a sink that commits: everything below this seq is committed.
    committed: Option<AtomicU64>,
}

impl Shared {
    fn slot(&self, seq: Seq) -> (&AtomicU64, u64) {
        let bits = self.done.len() as u64 * 64;
        let bit = seq.0 % bits;
        // In range: `bit` is below the number of bits. A usize holds it, since a slice of that length exists.
        (&self.done[(bit / 64) as usize], 1 << (bit % 64))
    }

    fn tell(&self) {
        if !self.told.swap(true, Ordering::AcqRel) {
            self.changed.notify_one();
        }
    }
}

impl Acks {
    /// The target has the record: for good, or until it is committed where the sink commits.
    pub fn acked(&self, seq: Seq) {
        let (word, bit) = self.0.slot(seq);
        word.fetch_or(bit, Ordering::Release);
        self.0.tell();
    }

    /// Every record up to `last` is committed. Each of them is acked as well, before or after.
    pub fn committed_through(&self, last: Seq) {
        if let Some(committed) = &self.0.committed {
            committed.fetch_max(last.0 + 1, Ordering::Release);
            self.0.tell();
        }
    }

    /// The record was not delivered and will not be by this sink.
    pub fn failed(&self, seq: Seq, error: DeliveryError) {
        self.fail(Failure { seq: Some(seq), error });
    }

    /// The target does not take the record. Nothing else fails with it.
    pub fn refused(&self, refused: Refused) {
        let mut all = self.0.refused.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(refused);
        drop(all);
        self.0.tell();
    }

    /// An attempt failed, and another follows. Told before the record's ack.
    pub fn tried(&self, seq: Seq, attempts: u32, error: &str) {
        if !self.0.keeps_tried.load(Ordering::Relaxed) {
            return;
        }
        let mut all = self.0.tried.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(Tried {
            seq,
            attempts,
            error: error.to_owned(),
        });
        drop(all);
        self.0.tell();
    }

    /// Has the relay look, though no record has anything new.
    pub(crate) fn wake(&self) {
        // Whether or not it was told already: it may have left something unheard on purpose.
        self.0.changed.notify_one();
    }

    /// The sink cannot deliver anything, for a reason that no record of its own has.
    pub fn broken(&self, error: DeliveryError) {
        self.fail(Failure { seq: None, error });
    }

    fn fail(&self, failure: Failure) {
        self.0
            .failures
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(failure);
        self.0.tell();
    }
}

/// What is in flight, in order.
#[derive(Debug)]
pub struct Ledger {
    shared: Arc<Shared>,
    limits: Limits,
    /// The first seq that is not settled.
    low: u64,
    /// The first seq that is not acked; `low` without commits.
    unacked: u64,
    next: u64,
    entries: VecDeque<Entry>,
    boundaries: VecDeque<Boundary>,
    /// Of what is not acked.
    bytes: u64,
    /// What entries' times are counted from.
    begun: Instant,
    /// The seq up to which the last boundary was reached, and what was settled behind it: counted when the next boundary
    /// is reached, since a new life begins at a boundary and brings the rest again.
    reached: u64,
    uncounted: Settled,
}

/// Settled events.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settled {
    pub published: u64,
    pub dead_lettered: BTreeMap<DeadLetterReason, u64>,
    pub skipped: SkipCounts,
}

impl Settled {
    fn add(&mut self, fate: Fate) {
        match fate {
            Fate::Published => self.published += 1,
            Fate::DeadLettered(reason) => *self.dead_lettered.entry(reason).or_default() += 1,
            Fate::Skipped(reason) => self.skipped.add(reason, 1),
            Fate::Position => {}
        }
    }

    fn merge(&mut self, other: Self) {
        self.published += other.published;
        for (reason, count) in other.dead_lettered {
            *self.dead_lettered.entry(reason).or_default() += count;
        }
        self.skipped.merge(other.skipped);
    }

    pub fn is_empty(&self) -> bool {
        self.published == 0 && self.dead_lettered.is_empty() && self.skipped.is_empty()
    }
}

/// What a commit would have settled whose outcome is not known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsettled {
    pub position: Position,
    pub settled: Settled,
}

impl Unsettled {
    /// The same as the progress that it was.
    pub fn progress(&self) -> Progress {
        Progress {
            settled: self.settled.clone(),
            position: Some(self.position.clone()),
            ..Progress::default()
        }
    }
}

/// How much may be in flight: sent, and not acked. One event that is larger than the bytes by itself is let in alone.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub events: usize,
    pub bytes: u64,
    /// Of a sink that commits: how many may be sent, acked or not, and not committed. An entry is all that is kept of one that
    /// is acked.
    pub uncommitted: Option<usize>,
}

/// How many times as many events may wait for a commit as may be on their way.
const UNCOMMITTED: usize = 10;

impl Limits {
    /// `commits`: of a sink that does.
    pub fn of(delivery: &Delivery, commits: bool) -> Self {
        let events = delivery.max_in_flight_events;
        Self {
            events,
            bytes: delivery.max_in_flight_bytes,
            uncommitted: commits.then(|| events.saturating_mul(UNCOMMITTED)),
        }
    }

    fn entries(&self) -> usize {
        self.uncommitted.unwrap_or(self.events)
    }
}

/// Small, since with a sink that commits there are many.
#[derive(Debug)]
struct Entry {
    commit_time_us: i64,
    /// Microseconds after the ledger was made.
    sent_us: u64,
    /// No sink takes a record that this does not hold.
    bytes: u32,
    fate: Fate,
}

/// What an entry counts as once it is acked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Published,
    DeadLettered(DeadLetterReason),
    /// It was sent and refused, and is passed over.
    Skipped(SkipReason),
    /// Not an event: the position that travels in a transaction with those before it.
    Position,
}

#[derive(Debug)]
struct Boundary {
    /// Reached when every seq below this is settled.
    upto: u64,
    position: Position,
    skipped: SkipCounts,
}

/// What the watermark passed since the last look.
#[derive(Debug, Default)]
pub struct Progress {
    pub settled: Settled,
    /// The last boundary reached.
    pub position: Option<Position>,
    pub delivery: Histogram,
    pub end_to_end: Histogram,
    /// What somebody is to be told of the dead letters among them, as far as that is known.
    pub letters: Vec<Notice>,
}

impl Progress {
    /// Adds what follows it.
    pub fn merge(&mut self, next: Self) {
        self.settled.merge(next.settled);
        self.position = next.position.or(self.position.take());
        self.delivery.merge(&next.delivery);
        self.end_to_end.merge(&next.end_to_end);
        self.letters.extend(next.letters);
    }

    pub fn is_empty(&self) -> bool {
        self.position.is_none() && self.settled.is_empty() && self.delivery.count() == 0
    }
}

impl Ledger {
    pub fn new(limits: Limits) -> Self {
        // One more than the events: the position that is committed with them.
        let words = limits.entries().saturating_add(1).div_ceil(64);
        let shared = Shared {
            done: (0..words).map(|_| AtomicU64::new(0)).collect(),
            failures: Mutex::new(Vec::new()),
            refused: Mutex::new(Vec::new()),
            keeps_tried: AtomicBool::new(false),
            tried: Mutex::new(Vec::new()),
            changed: Notify::new(),
            told: AtomicBool::new(false),
            committed: limits.uncommitted.map(|_| AtomicU64::new(0)),
        };
        Self {
            shared: Arc::new(shared),
            limits,
            low: 0,
            unacked: 0,
            next: 0,
            entries: VecDeque::new(),
            boundaries: VecDeque::new(),
            bytes: 0,
            begun: Instant::now(),
            reached: 0,
            uncounted: Settled::default(),
        }
    }

    pub fn acks(&self) -> Acks {
        Acks(Arc::clone(&self.shared))
    }

    /// Whether an event of this size may be sent now.
    pub fn has_room(&self, bytes: u64) -> bool {
        let unacked = self.unacked_count();
        self.entries.len() < self.limits.entries()
            && (unacked == 0 || (unacked < self.limits.events && self.bytes.saturating_add(bytes) <= self.limits.bytes))
    }

    /// Whether nothing but a commit can make room for an event that finds none.
    pub fn needs_commit(&self) -> bool {
        self.unacked_count() == 0 || self.entries.len() >= self.limits.entries()
    }

    /// The seq that the next event will have.
    pub fn next_seq(&self) -> Seq {
        Seq(self.next)
    }

    /// Enters what the sink took.
    pub fn sent(&mut self, bytes: u64, commit_time_us: i64, now: Instant, fate: Fate) {
        let sent_us = now.saturating_duration_since(self.begun).as_micros();
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.entries.push_back(Entry {
            commit_time_us,
            sent_us: u64::try_from(sent_us).unwrap_or(u64::MAX),
            bytes,
            fate,
        });
        self.next += 1;
        self.bytes += u64::from(bytes);
    }

    /// Marks a place that is reached when everything before it is settled. `skipped` is counted then.
    pub fn boundary(&mut self, position: Position, skipped: SkipCounts) {
        match self.boundaries.back_mut() {
            // Nothing was sent since: one boundary says it all.
            Some(last) if last.upto == self.next => {
                last.position = position;
                last.skipped.merge(skipped);
            }
            _ => self.boundaries.push_back(Boundary {
                upto: self.next,
                position,
                skipped,
            }),
        }
    }

    /// Moves the watermark over what is settled.
    pub fn advance(&mut self, progress: &mut Progress) {
        // Heard before the bits are read, by an exchange and not a store: a read may overtake a store, and an ack that
        // comes in between must tell again.
        self.shared.told.swap(false, Ordering::AcqRel);
        let committed = self.shared.committed.as_ref();
        let committed = committed.map(|committed| committed.load(Ordering::Acquire));
        self.pass_acked();
        let settled = committed.map_or(self.unacked, |committed| committed.min(self.unacked));
        let now_us = unix_us();
        let now = u64::try_from(self.begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.reach_boundaries(progress);
        while self.low < settled {
            let Some(entry) = self.entries.pop_front() else { break };
            self.low += 1;
            self.uncounted.add(entry.fate);
            match entry.fate {
                Fate::Position | Fate::Skipped(_) => {}
                Fate::Published | Fate::DeadLettered(_) => {
                    let delivery = now.saturating_sub(entry.sent_us);
                    progress.delivery.observe(Duration::from_micros(delivery));
                    let age = u64::try_from(now_us.saturating_sub(entry.commit_time_us)).unwrap_or(0);
                    progress.end_to_end.observe(Duration::from_micros(age));
                }
            }
            self.reach_boundaries(progress);
        }
    }

    fn pass_acked(&mut self) {
        while self.unacked < self.next {
            let (word, bit) = self.shared.slot(Seq(self.unacked));
            if word.load(Ordering::Acquire) & bit == 0 {
                break;
            }
            word.fetch_and(!bit, Ordering::AcqRel);
            // Not settled yet, so it has an entry, whose place fits where the entries do.
            let at = (self.unacked - self.low) as usize;
            self.bytes -= self.entries.get(at).map_or(0, |entry| u64::from(entry.bytes));
            self.unacked += 1;
        }
    }

    fn reach_boundaries(&mut self, progress: &mut Progress) {
        while self
            .boundaries
            .front()
            .is_some_and(|boundary| boundary.upto <= self.low)
        {
            let Some(boundary) = self.boundaries.pop_front() else {
                return;
            };
            progress.settled.merge(mem::take(&mut self.uncounted));
            progress.settled.skipped.merge(boundary.skipped);
            progress.position = Some(boundary.position);
            self.reached = boundary.upto;
        }
    }

    /// What the next boundary would settle, with everything before it acked: a commit that is under way.
    pub fn unsettled(&self) -> Option<Unsettled> {
        let boundary = self.boundaries.front()?;
        let mut settled = self.uncounted.clone();
        let before = usize::try_from(boundary.upto.saturating_sub(self.low)).unwrap_or(usize::MAX);
        self.entries
            .iter()
            .take(before)
            .for_each(|entry| settled.add(entry.fate));
        settled.skipped.merge(boundary.skipped.clone());
        Some(Unsettled {
            position: boundary.position.clone(),
            settled,
        })
    }

    /// What an entry counts as; None: it is settled, or was never sent.
    pub fn fate(&self, seq: Seq) -> Option<Fate> {
        let index = usize::try_from(seq.0.checked_sub(self.low)?).ok()?;
        self.entries.get(index).map(|entry| entry.fate)
    }

    /// Whether nothing more becomes of it, whatever is before it.
    pub fn is_settled(&self, seq: Seq) -> bool {
        let is_acked = || {
            let (word, bit) = self.shared.slot(seq);
            seq.0 < self.unacked || word.load(Ordering::Acquire) & bit != 0
        };
        let committed = self.shared.committed.as_ref();
        let is_committed = committed.is_none_or(|committed| seq.0 < committed.load(Ordering::Acquire));
        seq.0 < self.low || (is_committed && is_acked())
    }

    /// Makes something else of an event that is in flight.
    pub fn set_fate(&mut self, seq: Seq, fate: Fate) {
        let index = seq
            .0
            .checked_sub(self.low)
            .and_then(|index| usize::try_from(index).ok());
        if let Some(entry) = index.and_then(|index| self.entries.get_mut(index)) {
            entry.fate = fate;
        }
    }

    /// The first seq that is not settled.
    pub fn low(&self) -> Seq {
        Seq(self.low)
    }

    /// The first seq behind the last boundary that was reached.
    pub fn reached(&self) -> Seq {
        Seq(self.reached)
    }

    /// How many events were sent since the last boundary that was reached.
    pub fn since_boundary(&self) -> u64 {
        self.next - self.reached
    }

    /// The failures reported since the last look, in no order.
    pub fn take_failures(&self) -> Vec<Failure> {
        mem::take(&mut *self.shared.failures.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What was refused since the last look, in no order.
    pub fn take_refused(&self) -> Vec<Refused> {
        mem::take(&mut *self.shared.refused.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Asks for the attempts that fail, besides those that are the last.
    pub fn keep_tried(&self) {
        self.shared.keeps_tried.store(true, Ordering::Relaxed);
    }

    /// Those reported since the last look, in their order.
    pub fn take_tried(&self) -> Vec<Tried> {
        mem::take(&mut *self.shared.tried.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits until something was reported; while much is in flight for a moment longer, so that reports gather. Cancel safe.
    pub async fn changed(&self) {
        if self.gathers() {
            sleep(GATHER).await;
        }
        self.shared.changed.notified().await;
    }

    /// Whether so much is in flight that reports are to gather.
    pub fn gathers(&self) -> bool {
        self.unacked_count() >= GATHERING
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.boundaries.is_empty()
    }

    /// Sent and not settled.
    pub fn event_count(&self) -> usize {
        self.entries.len()
    }

    /// Sent and not acked.
    pub fn unacked_count(&self) -> usize {
        // Never more than there are entries.
        (self.next - self.unacked) as usize
    }

    /// The bytes of what is not acked.
    pub fn byte_count(&self) -> u64 {
        self.bytes
    }

    /// When the oldest event in flight was committed, in microseconds since 1970.
    pub fn oldest_us(&self) -> Option<i64> {
        self.entries.front().map(|entry| entry.commit_time_us)
    }
}

/// Now, in microseconds since 1970.
pub(super) fn unix_us() -> i64 {
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(now.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::position::{Lsn, PostgresPosition};
    use crate::sink::DeliveryErrorKind;
    use crate::skip::SkipReason;

    fn position(base: u64) -> Position {
        Position::Postgres(PostgresPosition {
            system_identifier: 1,
            timeline: 1,
            base: Lsn(base),
            partial: None,
            last_event_end: Lsn::ZERO,
        })
    }

    fn ledger(events: usize, bytes: u64) -> Ledger {
        Ledger::new(Limits {
            events,
            bytes,
            uncommitted: None,
        })
    }

    fn committing(events: usize, bytes: u64, uncommitted: usize) -> Ledger {
        Ledger::new(Limits {
            events,
            bytes,
            uncommitted: Some(uncommitted),
        })
    }

    fn advanced(ledger: &mut Ledger) -> Progress {
        let mut progress = Progress::default();
        ledger.advance(&mut progress);
        progress
    }

    #[test]
    fn a_boundary_is_reached_when_the_last_event_before_it_is_acked() {
        let mut ledger = ledger(10, 100);
        for _ in 0..3 {
            ledger.sent(1, 0, Instant::now(), Fate::Published);
        }
        ledger.boundary(position(30), SkipCounts::default());
        let acks = ledger.acks();
        acks.acked(Seq(2));
        acks.acked(Seq(0));
        assert_eq!(advanced(&mut ledger).position, None);
        acks.acked(Seq(1));
        let progress = advanced(&mut ledger);
        assert_eq!(progress.position, Some(position(30)));
        assert_eq!(progress.settled.published, 3);
        assert!(ledger.is_empty());
    }

    #[test]
    fn a_boundary_without_events_is_reached_at_once_and_counts_its_skips() {
        let mut ledger = ledger(10, 100);
        ledger.boundary(position(1), SkipCounts::from([(SkipReason::ForeignPrefix, 2)]));
        ledger.boundary(position(2), SkipCounts::from([(SkipReason::ForeignPrefix, 3)]));
        let progress = advanced(&mut ledger);
        assert_eq!(progress.position, Some(position(2)));
        assert_eq!(
            progress.settled.skipped,
            SkipCounts::from([(SkipReason::ForeignPrefix, 5)])
        );
    }

    #[test]
    fn the_watermark_stops_at_a_failure() {
        let mut ledger = ledger(10, 100);
        for base in 0..2 {
            ledger.sent(1, 0, Instant::now(), Fate::Published);
            ledger.boundary(position(base), SkipCounts::default());
        }
        let error = DeliveryError {
            kind: DeliveryErrorKind::Unavailable,
            text: "gone".to_owned(),
        };
        ledger.acks().failed(Seq(0), error.clone());
        ledger.acks().acked(Seq(1));
        assert_eq!(advanced(&mut ledger).position, None);
        assert_eq!(
            ledger.take_failures(),
            [Failure {
                seq: Some(Seq(0)),
                error
            }]
        );
        assert_eq!(ledger.event_count(), 2);
    }

    #[test]
    fn a_full_ledger_has_a_place_for_the_position_that_is_committed_with_it() {
        let mut ledger = committing(64, u64::MAX, 64);
        while ledger.has_room(1) {
            ledger.sent(1, 0, Instant::now(), Fate::Published);
        }
        let mark = ledger.next_seq();
        ledger.sent(0, i64::MAX, Instant::now(), Fate::Position);
        ledger.boundary(position(1), SkipCounts::default());
        let acks = ledger.acks();
        acks.acked(mark);
        acks.committed_through(mark);
        assert_eq!(advanced(&mut ledger).settled.published, 0, "only the position is acked");
        (0..64).for_each(|seq| acks.acked(Seq(seq)));
        let progress = advanced(&mut ledger);
        assert_eq!(progress.settled.published, 64);
        assert_eq!(progress.position, Some(position(1)));
        assert_eq!(advanced(&mut ledger).settled.published, 0, "no bit is left behind");
    }

    #[test]
    fn what_is_acked_makes_room_and_is_settled_by_its_commit_alone() {
        let mut ledger = committing(2, 20, 3);
        let acks = ledger.acks();
        let send = |ledger: &mut Ledger| ledger.sent(10, 0, Instant::now(), Fate::Published);
        (0..2).for_each(|_| send(&mut ledger));
        assert!(!ledger.has_room(10) && !ledger.needs_commit(), "an ack will make room");
        acks.acked(Seq(0));
        assert_eq!(advanced(&mut ledger).settled, Settled::default());
        assert_eq!(
            (ledger.byte_count(), ledger.unacked_count(), ledger.event_count()),
            (10, 1, 2)
        );
        assert!(ledger.has_room(10) && !ledger.has_room(11));
        send(&mut ledger);
        acks.acked(Seq(1));
        advanced(&mut ledger);
        assert!(!ledger.has_room(1) && ledger.needs_commit(), "three are uncommitted");
        ledger.boundary(position(1), SkipCounts::default());
        acks.committed_through(Seq(2));
        assert_eq!(
            advanced(&mut ledger).settled,
            Settled::default(),
            "the third is not acked yet"
        );
        acks.acked(Seq(2));
        let progress = advanced(&mut ledger);
        assert_eq!((progress.settled.published, progress.position), (3, Some(position(1))));
        assert!(ledger.is_empty() && ledger.has_room(1000));
    }

    #[tokio::test]
    async fn a_report_is_heard_at_once_unless_much_is_in_flight() {
        async fn is_heard(ledger: &Ledger) -> bool {
            tokio::select! {
                biased; // what is there already counts as heard at once
                () = ledger.changed() => true,
                () = std::future::ready(()) => false,
            }
        }
        let mut ledger = ledger(2 * GATHERING, u64::MAX);
        let acks = ledger.acks();
        ledger.sent(1, 0, Instant::now(), Fate::Published);
        acks.acked(Seq(0));
        assert!(is_heard(&ledger).await);
        advanced(&mut ledger);
        for _ in 0..GATHERING {
            ledger.sent(1, 0, Instant::now(), Fate::Published);
        }
        acks.acked(Seq(1));
        assert!(!is_heard(&ledger).await);
        ledger.changed().await;
        advanced(&mut ledger);
        assert_eq!(ledger.event_count(), GATHERING - 1);
    }

    #[test]
    fn one_oversized_event_is_let_in_alone() {
        let mut ledger = ledger(10, 100);
        assert!(ledger.has_room(1000));
        ledger.sent(1000, 0, Instant::now(), Fate::Published);
        assert!(!ledger.has_room(0));
        ledger.acks().acked(Seq(0));
        advanced(&mut ledger);
        assert!(ledger.has_room(1000));
    }

    proptest! {
        /// Against a plain model: whatever the order of sends, boundaries, acks and commits, the position is the last boundary
        /// before the first gap, never one beyond it, and of a sink that commits never one that is not committed.
        #[test]
        fn the_watermark_never_passes_a_gap(
            commits in any::<bool>(),
            steps in prop::collection::vec((0_u8..4, any::<prop::sample::Index>()), 0..400),
        ) {
            let mut ledger = if commits { committing(48, u64::MAX, 64) } else { ledger(64, u64::MAX) };
            let acks = ledger.acks();
            let (mut acked, mut waiting, mut committed) = (BTreeSet::new(), Vec::new(), 0);
            let mut boundaries: Vec<(u64, u64)> = Vec::new();
            let mut reached = None;
            for (number, (step, pick)) in steps.into_iter().enumerate() {
                match step {
                    0 if ledger.has_room(1) => {
                        waiting.push(ledger.next_seq());
                        ledger.sent(1, 0, Instant::now(), Fate::Published);
                    }
                    1 => {
                        boundaries.push((ledger.next, number as u64));
                        ledger.boundary(position(number as u64), SkipCounts::default());
                    }
                    2 if !waiting.is_empty() => {
                        let seq = waiting.swap_remove(pick.index(waiting.len()));
                        acked.insert(seq.0);
                        acks.acked(seq);
                    }
                    3 if commits && ledger.next > 0 => {
                        let last = Seq(pick.index(ledger.next as usize) as u64);
                        committed = committed.max(last.0 + 1);
                        acks.committed_through(last);
                    }
                    _ => {}
                }
                if let Some(position) = advanced(&mut ledger).position {
                    reached = Some(position);
                }
                let first_gap = (0..).find(|seq| !acked.contains(seq)).unwrap_or(0);
                let settled = if commits { first_gap.min(committed) } else { first_gap };
                let expected = boundaries.iter().rev().find(|(upto, _)| *upto <= settled).map(|(_, base)| position(*base));
                prop_assert_eq!(&reached, &expected);
                prop_assert_eq!(ledger.byte_count(), ledger.next - first_gap);
                prop_assert_eq!(ledger.event_count() as u64, ledger.next - settled);
            }
        }
    }
}
