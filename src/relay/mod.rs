//! The relay: joins a source, the processors and a sink, and carries back the one thing that flows back, a position.
//!
//! [`Relay::run`] lives as long as one sink does. It takes batches, processes and sends their events one by one, and
//! moves the watermark as acks come in, in whatever order. The position of the last boundary that the watermark reached
//! goes to the saver, and from there to the source. Nothing waits for a batch to be complete.

mod account;
pub mod backoff;
mod branch;
mod committing;
mod connect;
mod failures;
mod fan_out;
pub mod in_flight;
mod parts;
mod policy;
mod reach;
mod refused;
mod relays;
mod search;
mod sending;
#[cfg(test)]
mod simulation;
mod spans;
pub mod supervise;
pub(crate) mod tail;
mod told;
mod uncommitted;

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::audit::Port;
use crate::config::{Delivery, ErrorPolicies};
use crate::event::ChangeEvent;
use crate::failpoint;
use crate::pause::until;
use crate::position::{EventPosition, Position};
use crate::processor::{Chain, DeadLetters, Outcome};
use crate::schema_registry::Lookups;
use crate::sink::{DeliveryError, DeliveryErrorKind, Sink, SinkError};
use crate::skip::SkipCounts;
use crate::source::LogBatch;
use crate::telemetry::error_chain;
use crate::telemetry::status::{PipelineStatus, State};

use account::Account;
use failures::Failures;
use in_flight::{Failure, Fate, Ledger, Unsettled};
use policy::Repeats;
use refused::Origins;
use search::Search;
use sending::Parked;
use spans::Spans;
use told::Told;
use uncommitted::Uncommitted;

pub(crate) use parts::kafka_parts;
pub use policy::{Culprit, HaltError, Refusal};
pub use search::Left;

/// Events handled before acks are looked at again.
const TURN: usize = 256;
/// So many in flight are worth to wait for what follows them, though that must wait for them.
const LINGERING: usize = 1024;
/// The loop comes by at least this often.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// After such a gap the process was stopped. Half of what servers give the holder of a source's lock: see the sources.
const SUSPENSION: Duration = Duration::from_secs(5);

/// How a relay ended.
#[derive(Debug)]
pub struct Ended {
    pub end: End,
    /// What the next life begins with.
    pub left: Left,
    /// What was being committed.
    pub unsettled: Option<Unsettled>,
}

/// Why a relay ended.
#[derive(Debug)]
pub enum End {
    /// The source ended and all that it gave is settled and saved, or the drain's time was up.
    Drained,
    /// The sink is of no use any more.
    SinkFailed(SinkError),
    /// An event met the policy `halt`.
    Halted(HaltError),
    /// Nothing more may be sent: another instance has the source.
    Abandoned,
    /// The process was stopped for so long that another instance may have the source.
    Suspended { seconds: u64 },
}

/// What one relay is made with.
#[derive(Debug)]
pub struct RelayParts<S> {
    pub chain: Chain,
    /// None: no policy asks for them.
    pub dead_letters: Option<DeadLetters>,
    pub sink: S,
    pub ledger: Ledger,
    pub policies: ErrorPolicies,
    pub delivery: Delivery,
    pub status: Arc<PipelineStatus>,
    /// None: nothing is written down of events.
    pub port: Option<Port>,
    /// By the life before.
    pub left: Left,
    /// Events that were counted as received in a former life and come again.
    pub counted: u64,
    /// Whether another instance can go on from the checkpoint while this one cannot tell. One that commits is fenced by its
    /// target, and one that holds a lock of its own machine keeps it.
    pub overtakable: bool,
    /// Whether the pipeline's position is this relay's: it has the only sink.
    pub leads: bool,
}

/// See the module's text.
#[derive(Debug)]
pub struct Relay<S> {
    chain: Chain,
    dead_letters: Option<DeadLetters>,
    sink: S,
    ledger: Ledger,
    policies: ErrorPolicies,
    delivery: Delivery,
    status: Arc<PipelineStatus>,
    /// What is to be written down of events, where anything is.
    account: Option<Account>,
    search: Search,
    /// The event behind which the last boundary was reached, where another sink can keep the position before it.
    reached: Option<EventPosition>,
    counted: u64,
    /// Rest of the batch at hand, and where it ends.
    events: VecDeque<ChangeEvent>,
    batch: Option<BatchRest>,
    /// A record that is to be sent next.
    parked: Option<Parked>,
    /// The parked record waits for the sink, not for room in the ledger.
    sink_busy: bool,
    halted: Option<HaltError>,
    /// What was reported failed; nothing more is sent since.
    failures: Failures,
    repeats: Repeats,
    /// What waits for a commit, of a sink that commits.
    uncommitted: Option<Uncommitted>,
    /// A commit that waits for its lines to be written down.
    held: Option<(Position, SkipCounts)>,
    /// As the last batch said.
    more_follows: bool,
    /// When the loop last came by, to notice that the process was stopped.
    seen: Instant,
    overtakable: bool,
    leads: bool,
    /// Where events in flight stand, of a sink that refuses them one by one.
    origins: Option<Origins>,
    /// Fetches what the chain asks for.
    lookups: Lookups,
    /// Dead letters in flight that somebody wants to be told of.
    told: Option<Told>,
    spans: Spans,
    /// Whether an operator holds it back.
    pauses: watch::Receiver<bool>,
    /// Held back, with a place to go on from behind what was sent of the batch at hand.
    rests: bool,
}

#[derive(Debug)]
struct BatchRest {
    end: Position,
    skipped: SkipCounts,
    /// The event at hand, and the one before it in the batch.
    at: Option<EventPosition>,
    before: Option<EventPosition>,
}

impl<S: Sink> Relay<S> {
    pub fn new(parts: RelayParts<S>) -> Self {
        let RelayParts {
            chain,
            dead_letters,
            sink,
            ledger,
            policies,
            delivery,
            status,
            port,
            left,
            counted,
            overtakable,
            leads,
        } = parts;
        if port.is_some() {
            ledger.keep_tried();
        }
        let uncommitted = sink
            .commits_within()
            .map(|limit| Uncommitted::new(delivery.transaction_interval, limit));
        let pauses = status.pauses();
        let lookups = Lookups::new(chain.schema_registries());
        let told = status.notices().map(Told::new);
        let spans = Spans::new(status.tracer(), sink.refuses_singly());
        Self {
            chain,
            dead_letters,
            origins: (sink.refuses_singly() || (!leads && uncommitted.is_none())).then(Origins::default),
            sink,
            ledger,
            policies,
            delivery,
            status,
            account: port.map(Account::new),
            search: Search::new(left),
            reached: None,
            counted,
            events: VecDeque::new(),
            batch: None,
            parked: None,
            sink_busy: false,
            halted: None,
            failures: Failures::default(),
            repeats: Repeats::default(),
            uncommitted,
            held: None,
            more_follows: false,
            seen: Instant::now(),
            overtakable,
            leads,
            lookups,
            told,
            spans,
            pauses,
            rests: false,
        }
    }

    /// Relays until the source ends, the sink fails or an event halts it. `acked` takes each position reached and is
    /// closed at the end; `stop` starts the time that draining may take, `abandon` ends everything at once.
    pub async fn run(
        self,
        mut batches: mpsc::Receiver<LogBatch>,
        acked: watch::Sender<Option<Position>>,
        stop: CancellationToken,
        abandon: CancellationToken,
    ) -> Ended {
        self.relay(&mut batches, &acked, &stop, &abandon).await
    }

    /// The same with what another relay goes on with when this one has ended.
    async fn relay(
        mut self,
        batches: &mut mpsc::Receiver<LogBatch>,
        acked: &watch::Sender<Option<Position>>,
        stop: &CancellationToken,
        abandon: &CancellationToken,
    ) -> Ended {
        self.seen = Instant::now();
        self.status.rests(false);
        let mut deadline: Option<Instant> = None;
        let mut source_ended = false;
        let end = loop {
            if let Some(end) = self.settle(acked) {
                break end;
            }
            // Before anything is sent: after a stop of the process the source's lock can be another instance's.
            let gap = self.seen.elapsed();
            if self.overtakable && gap >= SUSPENSION {
                break End::Suspended { seconds: gap.as_secs() };
            }
            self.seen = Instant::now();
            if self.lookups.have_aged() {
                self.chain.age_schemas();
            }
            if abandon.is_cancelled() {
                break End::Abandoned;
            }
            let paused = *self.pauses.borrow_and_update();
            let goes_on = match paused {
                true => self.rest(),
                false => self.work(),
            };
            if goes_on {
                // Acks and the stop get their turn between turns of work.
                tokio::task::yield_now().await;
                continue;
            }
            if paused || !self.may_linger() {
                self.sink.hurry();
            }
            let ending = source_ended || deadline.is_some();
            let commit = self.commit_at(ending, paused, batches.is_empty());
            if commit.is_some_and(|at| at <= Instant::now()) && self.commit() {
                continue;
            }
            let at_rest = self.ledger.is_empty() && self.nothing_uncommitted() && self.nothing_unwritten();
            let idle = self.batch.is_none() && at_rest;
            // What was not taken is read again at the next start.
            if at_rest && paused && stop.is_cancelled() {
                break End::Drained;
            }
            if idle && (source_ended || self.halted.is_some()) {
                break End::Drained;
            }
            if deadline.is_none() && (stop.is_cancelled() || self.halted.is_some()) {
                // One of several sinks that halts can be one that the pipeline goes on without.
                if self.leads || stop.is_cancelled() {
                    self.status.enter(State::Draining);
                }
                deadline = Some(Instant::now() + self.delivery.drain_timeout);
            }
            let (drain, decide) = (deadline, self.failures.decide_at);
            let wanted = self.batch.is_none() && self.halted.is_none() && !source_ended;
            let waiting_us = self.chain.waiting().map_or(0, |event| event.commit_time_us);
            let looks_up = self.halted.is_none() && (self.chain.question().is_some() || self.lookups.are_curious());
            tokio::select! {
                biased; // acks make room before more is taken
                () = self.ledger.changed() => {}
                batch = batches.recv(), if wanted => match batch {
                    Some(batch) => self.take(batch),
                    None => source_ended = true,
                },
                ready = ready_or_reported(&mut self.sink, self.sink_busy, self.ledger.gathers()) => match ready {
                    // A look at what was reported follows.
                    Ok(()) => self.sink_busy = false,
                    // The record that waits is the culprit.
                    Err(SinkError::Delivery(error)) if error.kind.is_record() => {
                        self.sink_busy = false;
                        if let Some(parked) = self.parked.take() {
                            self.reject_unsent(parked, error);
                        }
                    }
                    // What it failed at may not be reported yet, and the record that it was decides how to go on. With one
                    // that is fenced no record is at fault.
                    Err(error) if error.can_heal() && !error.is_fenced() && self.ledger.event_count() > 0 => {
                        self.sink_busy = false;
                        self.ledger.acks().broken(DeliveryError {
                            kind: DeliveryErrorKind::Unavailable,
                            text: error_chain(&error),
                        });
                    }
                    Err(error) => break End::SinkFailed(error),
                },
                answer = self.lookups.answer(self.chain.question(), waiting_us, &self.status), if looks_up => match answer {
                    Ok(answer) => self.chain.answer(answer),
                    Err(error) => self.halt_for_schema(error),
                },
                () = stop.cancelled(), if deadline.is_none() => {}
                Ok(()) = self.pauses.changed() => {}
                () = abandon.cancelled() => {}
                () = until(commit), if commit.is_some() => {}
                () = sleep_until(self.seen + HEARTBEAT) => {}
                () = until(decide), if decide.is_some() => {}
                () = until(drain), if drain.is_some() => {
                    tracing::warn!(
                        in_flight = self.ledger.event_count(),
                        "drain_timeout is over; what was not acknowledged is sent again at the next start"
                    );
                    break End::Drained;
                }
            }
        };
        if let (Some(account), Some(_)) = (&mut self.account, &self.uncommitted) {
            let progress = account.take_committed();
            self.status.settled(&progress);
        }
        let unsettled = match end {
            End::SinkFailed(_) | End::Abandoned => self.unsettled(),
            _ => None,
        };
        let reached = self.take_reached();
        let left = self.search.take_left(&self.ledger, reached);
        self.spans.abandon();
        self.status.rests(true);
        // At once: a sink that goes on behind a failure could let later records overtake.
        if let Err(error) = self.sink.close(Instant::now()).await {
            tracing::debug!(error = %error_chain(&error), "sink closed");
        }
        let end = match (self.halted.take(), end) {
            (Some(halt), End::Drained) => End::Halted(halt),
            (_, end) => end,
        };
        Ended { end, left, unsettled }
    }

    /// Takes acks and failures: moves the watermark, and ends where a delivery failed.
    fn settle(&mut self, acked: &watch::Sender<Option<Position>>) -> Option<End> {
        self.sink.take_reports();
        self.move_watermark(acked);
        self.begin_held();
        if let Some(end) = self.settle_refused() {
            return Some(end);
        }
        if self.ledger.event_count() == 0 {
            self.search.nothing_travels();
        }
        let waiting_us = self.parked.as_ref().map(|parked| parked.commit_time_us);
        let waiting_us = waiting_us.or(self.chain.waiting().map(|event| event.commit_time_us));
        let waiting_us = waiting_us.or(self.events.front().map(|event| event.commit_time_us));
        let unwritten = self.account.as_ref().map_or(0, Account::unwritten);
        let records = self.ledger.event_count() as u64 + unwritten;
        self.status.in_flight(
            records,
            self.ledger.byte_count(),
            self.ledger.oldest_us().or(waiting_us),
        );
        self.gather_failures();
        let decide_at = self.failures.decide_at?;
        // Each of the rest can still be the one that names the culprit.
        if self.failures.deliveries < self.ledger.unacked_count() && Instant::now() < decide_at {
            return None;
        }
        let Failure { seq, error } = self.failures.worst.take()?;
        let of_event = seq.is_some_and(|seq| self.ledger.fate(seq) != Some(Fate::Position));
        Some(self.end_with(error, of_event))
    }

    /// Whether what was sent may wait for what follows.
    fn may_linger(&self) -> bool {
        // With few in flight nothing follows before they are acknowledged.
        let goes_on = self.batch.is_none() || self.ledger.event_count() >= LINGERING;
        self.more_follows && goes_on
    }

    /// Passes over what is settled, and tells the position that was reached.
    fn move_watermark(&mut self, acked: &watch::Sender<Option<Position>>) {
        let progress = self.advance();
        self.note_reached();
        self.spans.settle(&self.ledger);
        self.status.settled(&progress);
        if let Some(position) = progress.position {
            failpoint::hit("ack");
            if self.leads {
                self.status.acked(&position);
            }
            acked.send_replace(Some(position));
        }
    }

    fn take(&mut self, batch: LogBatch) {
        let received = batch.events.len() as u64 + batch.skipped.total();
        let again = received.min(self.counted);
        self.counted -= again;
        self.status.count(|totals| totals.received += received - again);
        self.status.taken(&batch.end);
        self.search.enter(&batch.end);
        if let Some(account) = &mut self.account {
            account.taken(&batch.end);
        }
        self.spans.batch(&batch);
        self.more_follows = batch.more_follows;
        self.events = batch.events.into();
        self.batch = Some(BatchRest {
            end: batch.end,
            skipped: batch.skipped,
            at: None,
            before: None,
        });
    }

    /// Sends nothing more. What was sent of the batch at hand is to be settled and saved, so a place to go on from lies behind
    /// it; a sink that commits has that in its commit. True: there is more to do at once.
    fn rest(&mut self) -> bool {
        if !mem::replace(&mut self.rests, true) {
            self.status.rests(true);
            let in_flight = self.ledger.event_count();
            tracing::info!(in_flight, "paused; what is in flight is waited for and saved");
            if self.uncommitted.is_none()
                && let Some((position, skipped)) = self.inside()
            {
                self.ledger.boundary(position, skipped);
            }
        }
        if self.failures.decide_at.is_some() || self.holds_event() || !self.events.is_empty() {
            return false;
        }
        // What holds no event goes on: an outbox that is quiet must not pin the server's log in a pause either.
        self.finish_batch()
    }

    /// Whether the event at hand, or its record, waits for something.
    fn holds_event(&self) -> bool {
        self.parked.is_some() || self.chain.waiting().is_some()
    }

    /// Makes a place to go on from of the end of the batch at hand. False: there is none.
    fn finish_batch(&mut self) -> bool {
        let Some(BatchRest { end, skipped, .. }) = self.batch.take() else {
            return false;
        };
        self.spans.batch_handled(self.ledger.next_seq());
        match &mut self.uncommitted {
            None => self.ledger.boundary(end, skipped),
            Some(uncommitted) => uncommitted.boundary(end, skipped),
        }
        self.count_processed();
        true
    }

    /// The place behind what was sent or skipped of the batch at hand, if any of it was. A life that begins there does not see
    /// again what was skipped before, so that is counted with it.
    fn inside(&mut self) -> Option<(Position, SkipCounts)> {
        let holds_event = self.holds_event();
        let batch = self.batch.as_mut()?;
        let handled = match holds_event {
            true => &batch.before,
            false => &batch.at,
        };
        let position = batch.end.after(handled.as_ref()?);
        Some((position, mem::take(&mut batch.skipped)))
    }

    /// Handles events while there is room. True: there is more to do at once.
    fn work(&mut self) -> bool {
        if mem::take(&mut self.rests) {
            self.status.rests(false);
            tracing::info!("resumed");
        }
        if self.failures.decide_at.is_some() || self.held.is_some() {
            return false;
        }
        if self.uncommitted.as_ref().is_some_and(Uncommitted::is_over) && !self.sink_busy {
            self.commit();
        }
        for _ in 0..TURN {
            if self.sink_busy || self.held.is_some() {
                return false;
            }
            if let Some(parked) = self.parked.take() {
                if !self.send(parked) {
                    return false;
                }
                continue;
            }
            if self.chain.question().is_some() {
                return false;
            }
            let waited_us = self.chain.waiting().map(|event| event.commit_time_us);
            let (processed, commit_time_us) = match (self.chain.go_on(), waited_us) {
                (Some(processed), Some(commit_time_us)) => (processed, commit_time_us),
                _ => {
                    let Some(event) = self.events.pop_front() else {
                        // A batch without events is settled by this alone.
                        return self.finish_batch();
                    };
                    let commit_time_us = event.commit_time_us;
                    if let Some(batch) = &mut self.batch {
                        batch.before = batch.at.replace(event.position.clone());
                    }
                    self.search
                        .come_to(self.batch.as_ref().and_then(|batch| batch.at.as_ref()));
                    (self.chain.process(event), commit_time_us)
                }
            };
            match processed {
                Ok(Outcome::Wait) => return false,
                Ok(Outcome::Publish(record)) => {
                    self.parked = Some(Parked::new(record, commit_time_us, Fate::Published));
                }
                Ok(Outcome::Skip(reason)) => self.skip(reason),
                Err(error) => self.refuse(error, commit_time_us),
            }
            self.repeat_refusals();
            if self.halted.is_some() {
                return true;
            }
        }
        true
    }

    fn nothing_unwritten(&self) -> bool {
        self.account.as_ref().is_none_or(Account::is_settled)
    }

    fn count_processed(&mut self) {
        self.tell_sequence_faults();
        self.tell_unknown_columns();
        let counts = self.chain.take_counts().filter(|(_, count)| *count > 0);
        self.status.count(|totals| {
            for (processor, count) in counts {
                *totals.processed.entry(processor).or_default() += count;
            }
        });
    }
}

/// Waits until a sink that gave a record back may be asked again, or until one that is not busy has something to report; for a
/// moment longer where reports are to gather. Cancel safe.
async fn ready_or_reported(sink: &mut impl Sink, busy: bool, gather: bool) -> Result<(), SinkError> {
    if busy {
        return sink.ready().await;
    }
    if gather {
        sleep(in_flight::GATHER).await;
    }
    sink.reported().await;
    Ok(())
}

#[cfg(test)]
mod tests;
