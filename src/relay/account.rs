//! What is to be written down of the events in flight, where the pipeline's file asks for it, and the progress that waits until
//! it is: nothing counts before its line is written.

use std::collections::VecDeque;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::audit::{Entry, Outcome, Port};
use crate::position::{EventPosition, Position};
use crate::processor::letter_headers;
use crate::record::{About, Record};
use crate::sink::Sink;
use crate::skip::SkipReason;
use crate::telemetry::otlp::{Parent, SpanContext};

use super::Relay;
use super::in_flight::{Fate, Progress, Seq, Tried};
use super::told::Told;

/// So many entries may wait to be written before the watermark does: from there on, what may be in flight bounds it.
const MOST_UNWRITTEN: u64 = 4096;

/// See the module's text.
#[derive(Debug)]
pub(super) struct Account {
    port: Port,
    /// In the order in which they are settled.
    drafts: VecDeque<Draft>,
    /// The end of the last batch, for what all positions of a log share.
    end: Option<Position>,
    given: u64,
    /// Progress, and how many entries must be written before it counts.
    waiting: VecDeque<(u64, Progress)>,
    /// Commits whose lines were given to be prepared.
    prepared: u64,
    /// Whether the last of those can have lines that are not surely on the disk.
    is_open: bool,
}

/// An event that is in flight.
#[derive(Debug)]
struct Draft {
    seq: u64,
    /// Whether it has that seq; else it was skipped, and is settled with all that has a lower one.
    is_sent: bool,
    at: EventPosition,
    entry: Entry,
}

impl Draft {
    fn is_settled(&self, low: Seq) -> bool {
        match self.is_sent {
            true => self.seq < low.0,
            false => self.seq <= low.0,
        }
    }
}

/// An event that is sent or skipped.
pub(super) struct Described {
    pub(super) about: Option<Box<About>>,
    pub(super) at: EventPosition,
    pub(super) commit_time_us: i64,
    pub(super) attempts: u32,
    pub(super) last_error: Option<String>,
    /// Of the span that the application wrote it in, where somebody wants to know.
    pub(super) context: Option<SpanContext>,
}

impl Described {
    /// Of a record that is to be sent.
    pub(super) fn of_record(record: &Record, fate: Fate, at: EventPosition, commit_time_us: i64) -> Self {
        // A letter says the one and the other of its event.
        let of_letter = |name: &str| {
            let header = record.headers.iter().rev().find(|header| &*header.name == name)?;
            String::from_utf8(header.value.as_ref()?.to_vec()).ok()
        };
        let (attempts, last_error) = match fate {
            Fate::DeadLettered(_) => {
                let attempts = of_letter(letter_headers::ATTEMPTS).and_then(|text| text.parse().ok());
                (attempts.unwrap_or(0), of_letter(letter_headers::ERROR))
            }
            Fate::Published | Fate::Skipped(_) | Fate::Position => (1, None),
        };
        Self {
            about: record.about.clone(),
            at,
            commit_time_us,
            attempts,
            last_error,
            context: None,
        }
    }
}

impl Account {
    pub(super) fn new(port: Port) -> Self {
        Self {
            port,
            drafts: VecDeque::new(),
            end: None,
            given: 0,
            waiting: VecDeque::new(),
            prepared: 0,
            is_open: false,
        }
    }

    /// A batch that ends here was taken.
    pub(super) fn taken(&mut self, end: &Position) {
        self.end = Some(end.clone());
    }

    /// The sink took a record.
    pub(super) fn sent(&mut self, seq: Seq, event: Described, fate: Fate) {
        if let Some(outcome) = outcome(fate) {
            self.push(seq, true, event, outcome);
        }
    }

    /// An event is skipped by policy; `next` is the seq of the record that follows.
    pub(super) fn skipped(&mut self, next: Seq, event: Described, reason: SkipReason) {
        self.push(next, false, event, Outcome::Skipped(reason));
    }

    fn push(&mut self, seq: Seq, is_sent: bool, event: Described, outcome: Outcome) {
        let Described {
            about,
            at,
            commit_time_us,
            attempts,
            last_error,
            context,
        } = event;
        let about = about.map_or_else(|| About::of_position(&at), |about| *about);
        self.drafts.push_back(Draft {
            seq: seq.0,
            is_sent,
            entry: Entry {
                about,
                repeated: self.port.is_repeated(&at),
                position: at.to_string(),
                commit_time_us,
                outcome,
                attempts,
                last_error,
                time: UNIX_EPOCH,
                context,
            },
            at,
        });
    }

    fn draft(&mut self, seq: Seq) -> Option<&mut Entry> {
        let index = self
            .drafts
            .partition_point(|draft| (draft.seq, draft.is_sent) < (seq.0, true));
        let draft = self.drafts.get_mut(index)?;
        (draft.seq == seq.0).then_some(&mut draft.entry)
    }

    /// What was sent was refused, and something else becomes of it.
    pub(super) fn refused(&mut self, seq: Seq, fate: Fate, attempts: u32, error: String) {
        if let (Some(outcome), Some(entry)) = (outcome(fate), self.draft(seq)) {
            entry.outcome = outcome;
            entry.attempts = attempts;
            entry.last_error = Some(error);
        }
    }

    /// Attempts that failed, and are followed by others.
    pub(super) fn tried(&mut self, tried: Vec<Tried>) {
        let mut failed = Vec::new();
        for Tried { seq, attempts, error } in tried {
            let Some(entry) = self.draft(seq) else { continue };
            entry.attempts = attempts + 1;
            entry.last_error = Some(error);
            failed.push(Entry {
                outcome: Outcome::Failed,
                attempts,
                time: SystemTime::now(),
                ..entry.clone()
            });
        }
        if self.port.takes_failures() && !failed.is_empty() {
            self.given += failed.len() as u64;
            self.port.give(failed, None);
        }
    }

    /// Whether the watermark may move on.
    pub(super) fn has_room(&self) -> bool {
        self.unwritten() < MOST_UNWRITTEN
    }

    /// How many entries were given to be written and are not.
    pub(super) fn unwritten(&self) -> u64 {
        self.given.saturating_sub(self.port.written())
    }

    /// Whether no progress waits.
    pub(super) fn is_settled(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Has what is settled written, and lets `progress` wait for it.
    pub(super) fn settle(&mut self, low: Seq, progress: Progress) {
        let now = SystemTime::now();
        let (mut entries, mut last) = (Vec::new(), None);
        while self.drafts.front().is_some_and(|draft| draft.is_settled(low)) {
            let Some(mut draft) = self.drafts.pop_front() else {
                break;
            };
            stamp(&mut draft.entry, now);
            entries.push(draft.entry);
            last = Some(draft.at);
        }
        if let Some(last) = last {
            let reached = self.end.as_ref().map(|end| end.after(&last));
            self.given += entries.len() as u64;
            self.port.give(entries, reached.as_ref());
        }
        match self.waiting.back_mut() {
            Some((until, waiting)) if *until == self.given => waiting.merge(progress),
            _ if progress.is_empty() => {}
            _ => self.waiting.push_back((self.given, progress)),
        }
    }

    /// The progress whose entries are written.
    pub(super) fn take_written(&mut self) -> Progress {
        self.take_until(self.port.written())
    }

    /// All of it. What was committed does not come again, and its lines are written down beside the ledger.
    pub(super) fn take_committed(&mut self) -> Progress {
        self.take_until(u64::MAX)
    }

    fn take_until(&mut self, written: u64) -> Progress {
        let mut progress = Progress::default();
        while self.waiting.front().is_some_and(|(until, _)| *until <= written) {
            let Some((_, next)) = self.waiting.pop_front() else {
                break;
            };
            progress.merge(next);
        }
        progress
    }

    /// Has the lines written down of all that was sent, beside the ledger, before it is committed with this position. False:
    /// there is no need.
    pub(super) fn prepare(&mut self, position: &Position) -> bool {
        // Also without lines: those of the commit before must be on the disk, since its position is found no more behind this.
        if !self.port.prepares() || (self.drafts.is_empty() && !self.is_open) {
            return false;
        }
        self.is_open = !self.drafts.is_empty();
        let now = SystemTime::now();
        let entries = self.drafts.iter_mut().map(|draft| {
            stamp(&mut draft.entry, now);
            draft.entry.clone()
        });
        self.port.prepare(entries.collect(), position);
        self.prepared += 1;
        true
    }

    /// Whether what was to be prepared is.
    pub(super) fn is_prepared(&self) -> bool {
        self.port.prepared() >= self.prepared
    }
}

impl<S: Sink> Relay<S> {
    /// Moves the watermark, and gives the progress that counts.
    pub(super) fn advance(&mut self) -> Progress {
        let mut progress = Progress::default();
        let told = |told: &mut Option<Told>, reached| match told {
            Some(told) => told.take_before(reached),
            None => Vec::new(),
        };
        let Some(account) = &mut self.account else {
            self.ledger.advance(&mut progress);
            progress.letters = told(&mut self.told, self.ledger.reached());
            return progress;
        };
        if account.has_room() {
            self.ledger.advance(&mut progress);
            progress.letters = told(&mut self.told, self.ledger.reached());
            // Behind that: the last attempt's ack comes after the failure of the one before.
            account.tried(self.ledger.take_tried());
            account.settle(self.ledger.low(), progress);
        }
        account.take_written()
    }

    /// What is to be written down of a record that is to be sent.
    pub(super) fn described(&self, record: &Record, fate: Fate, commit_time_us: i64) -> Option<Described> {
        let account = self.account.as_ref()?;
        let mut described = Described::of_record(record, fate, self.at()?, commit_time_us);
        if account.port.takes_context() {
            described.context = Parent::of(record).map(|parent| parent.context);
        }
        Some(described)
    }

    /// Begins a commit whose lines are written down by now.
    pub(super) fn begin_held(&mut self) {
        if self.held.is_some()
            && self.account.as_ref().is_none_or(Account::is_prepared)
            && let Some((position, skipped)) = self.held.take()
        {
            self.begin_commit(position, skipped);
        }
    }
}

/// Of what is committed, the time is that of the commit's begin: a line that is found again after a crash must be the same.
fn stamp(entry: &mut Entry, now: SystemTime) {
    if entry.time == UNIX_EPOCH {
        entry.time = now;
    }
}

/// None: it is no event.
fn outcome(fate: Fate) -> Option<Outcome> {
    match fate {
        Fate::Published => Some(Outcome::Published),
        Fate::DeadLettered(reason) => Some(Outcome::DeadLettered(reason)),
        Fate::Skipped(reason) => Some(Outcome::Skipped(reason)),
        Fate::Position => None,
    }
}
