//! The relay: joins a source, the processors and a sink, and carries back the one thing that flows back, a position.
//!
//! [`Relay::run`] lives as long as one sink does. It takes batches, processes and sends their events one by one, and
//! moves the watermark as acks come in, in whatever order. The position of the last boundary that the watermark reached
//! goes to the saver, and from there to the source. Nothing waits for a batch to be complete.

pub mod backoff;
pub mod in_flight;
pub mod supervise;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::config::{Delivery, ErrorPolicies, ErrorPolicy};
use crate::event::ChangeEvent;
use crate::position::{EventPosition, Position};
use crate::processor::{Chain, Outcome, ProcessError};
use crate::record::Record;
use crate::sink::kafka::QUEUE_OVERHEAD;
use crate::sink::{DeliveryError, DeliveryErrorKind, SendError, Sink, SinkError};
use crate::skip::{SkipCounts, SkipReason};
use crate::source::LogBatch;
use crate::telemetry::error_chain;
use crate::telemetry::status::{PipelineStatus, State};

use in_flight::{Failure, Ledger, Progress};

/// Events handled before acks are looked at again.
const TURN: usize = 256;
/// How long the other failures of a batch are waited for: the broker names the culprit in one of them.
const FAILURE_GRACE: Duration = Duration::from_secs(1);

/// Why a relay ended.
#[derive(Debug)]
pub enum End {
    /// The source ended and all that it gave is settled and saved, or the drain's time was up.
    Drained,
    /// The sink is of no use any more. `single` is how many of the next events must go one by one to find the one that
    /// it does not take.
    SinkFailed { error: SinkError, single: u64 },
    /// An event met the policy `halt`.
    Halted(HaltError),
}

/// An event that may not be passed over.
#[derive(Debug, thiserror::Error)]
pub enum HaltError {
    #[error("{error}; policy errors.{}: halt", error.kind().label())]
    Process { error: ProcessError },
    #[error("event at {at}: {error}; policy errors.rejected: halt")]
    Rejected { at: String, error: DeliveryError },
}

/// What one relay is made with.
#[derive(Debug)]
pub struct RelayParts<S> {
    pub chain: Chain,
    pub sink: S,
    pub ledger: Ledger,
    pub policies: ErrorPolicies,
    pub delivery: Delivery,
    pub status: Arc<PipelineStatus>,
    /// Events to be sent one by one first.
    pub single: u64,
    /// Events that were counted as received in a former life and come again.
    pub counted: u64,
}

/// See the module's text.
#[derive(Debug)]
pub struct Relay<S> {
    chain: Chain,
    sink: S,
    ledger: Ledger,
    policies: ErrorPolicies,
    delivery: Delivery,
    status: Arc<PipelineStatus>,
    single: u64,
    counted: u64,
    /// Rest of the batch at hand, and where it ends.
    events: VecDeque<ChangeEvent>,
    batch: Option<BatchRest>,
    /// A record that the sink gave back, with what the ledger needs of its event.
    parked: Option<(Record, i64)>,
    /// The parked record waits for the sink, not for room in the ledger.
    sink_busy: bool,
    halted: Option<HaltError>,
    /// The event that travels alone, while one does.
    single_at: Option<EventPosition>,
    /// What was reported failed; nothing more is sent since.
    failures: Failures,
}

/// Failed deliveries, gathered until it is clear what they mean.
#[derive(Debug, Default)]
struct Failures {
    /// How many deliveries are among them; a sink that is broken as a whole is none.
    deliveries: usize,
    /// The gravest of them.
    worst: Option<Failure>,
    /// When the rest is not waited for any more.
    decide_at: Option<Instant>,
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
            sink,
            ledger,
            policies,
            delivery,
            status,
            single,
            counted,
        } = parts;
        Self {
            chain,
            sink,
            ledger,
            policies,
            delivery,
            status,
            single,
            counted,
            events: VecDeque::new(),
            batch: None,
            parked: None,
            sink_busy: false,
            halted: None,
            single_at: None,
            failures: Failures::default(),
        }
    }

    /// Relays until the source ends, the sink fails or an event halts it. `acked` takes each position reached and is
    /// closed at the end; `stop` starts the time that draining may take.
    pub async fn run(
        mut self,
        mut batches: mpsc::Receiver<LogBatch>,
        acked: watch::Sender<Option<Position>>,
        stop: CancellationToken,
    ) -> End {
        let mut deadline: Option<Instant> = None;
        let mut source_ended = false;
        let end = loop {
            if let Some(end) = self.settle(&acked) {
                break end;
            }
            if self.work() {
                // Acks and the stop get their turn between turns of work.
                tokio::task::yield_now().await;
                continue;
            }
            let idle = self.batch.is_none() && self.ledger.is_empty();
            if idle && (source_ended || self.halted.is_some()) {
                break End::Drained;
            }
            if deadline.is_none() && (stop.is_cancelled() || self.halted.is_some()) {
                self.status.enter(State::Draining);
                deadline = Some(Instant::now() + self.delivery.drain_timeout);
            }
            let (drain, decide) = (deadline, self.failures.decide_at);
            let wanted = self.batch.is_none() && self.halted.is_none() && !source_ended;
            tokio::select! {
                biased; // acks make room before more is taken
                () = self.ledger.changed() => {}
                batch = batches.recv(), if wanted => match batch {
                    Some(batch) => self.take(batch),
                    None => source_ended = true,
                },
                ready = self.sink.ready(), if self.sink_busy => match ready {
                    Ok(()) => self.sink_busy = false,
                    // The record that waits is the culprit.
                    Err(SinkError::Delivery(error)) if error.kind == DeliveryErrorKind::Record => {
                        self.sink_busy = false;
                        self.parked = None;
                        self.reject_unsent(error);
                    }
                    // What it failed at may not be reported yet, and the record that it was decides how to go on.
                    Err(error) if error.can_heal() && self.ledger.event_count() > 0 => {
                        self.sink_busy = false;
                        self.ledger.acks().broken(DeliveryError {
                            kind: DeliveryErrorKind::Unavailable,
                            text: error_chain(&error),
                        });
                    }
                    Err(error) => break End::SinkFailed { error, single: 0 },
                },
                () = stop.cancelled(), if deadline.is_none() => {}
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
        batches.close();
        // At once: a sink that goes on behind a failure could let later records overtake.
        if let Err(error) = self.sink.close(Instant::now()).await {
            tracing::debug!(error = %error_chain(&error), "sink closed");
        }
        match (self.halted.take(), end) {
            (Some(halt), End::Drained) => End::Halted(halt),
            (_, end) => end,
        }
    }

    /// Takes acks and failures: moves the watermark, and ends where a delivery failed.
    fn settle(&mut self, acked: &watch::Sender<Option<Position>>) -> Option<End> {
        self.move_watermark(acked);
        if self.ledger.event_count() == 0 {
            self.single_at = None;
        }
        let waiting_us = self.parked.as_ref().map(|(_, commit_time_us)| *commit_time_us);
        let waiting_us = waiting_us.or(self.events.front().map(|event| event.commit_time_us));
        self.status
            .in_flight(self.ledger.byte_count(), self.ledger.oldest_us().or(waiting_us));
        self.gather_failures();
        let decide_at = self.failures.decide_at?;
        // Each of the rest can still be the one that names the culprit.
        if self.failures.deliveries < self.ledger.event_count() && Instant::now() < decide_at {
            return None;
        }
        let Failure { seq, error } = self.failures.worst.take()?;
        let by_record = error.kind == DeliveryErrorKind::Record;
        match (seq, self.single_at.take()) {
            // It travelled alone, so it is the one. The sink is spent with it, and the next goes on behind it.
            (Some(seq), Some(at)) if by_record => {
                let error_text = SinkError::from(error.clone());
                if let Some(halt) = self.reject(error, Some(at)) {
                    return Some(End::Halted(halt));
                }
                self.ledger.skip(seq, SkipReason::Rejected);
                self.move_watermark(acked);
                Some(End::SinkFailed {
                    error: error_text,
                    single: self.single,
                })
            }
            // The next life begins at the last boundary, which lies before the watermark.
            _ => Some(End::SinkFailed {
                error: error.into(),
                single: if by_record { self.ledger.since_boundary() } else { 0 },
            }),
        }
    }

    /// Passes over what is settled, and tells the position that was reached.
    fn move_watermark(&mut self, acked: &watch::Sender<Option<Position>>) {
        let mut progress = Progress::default();
        self.ledger.advance(&mut progress);
        self.status.settled(&progress);
        if let Some(position) = progress.position {
            self.status.acked(&position);
            acked.send_replace(Some(position));
        }
    }

    fn gather_failures(&mut self) {
        let failures = self.ledger.take_failures();
        if failures.is_empty() {
            return;
        }
        let deliveries = failures.iter().filter(|failure| failure.seq.is_some()).count();
        self.status.count(|totals| totals.failed += deliveries as u64);
        let gravity = |failure: &Failure| match failure.error.kind {
            DeliveryErrorKind::Unavailable => 0,
            DeliveryErrorKind::Record => 1,
            DeliveryErrorKind::Refused => 2,
        };
        self.failures.deliveries += deliveries;
        self.failures.worst = failures
            .into_iter()
            .chain(self.failures.worst.take())
            .max_by_key(gravity);
        self.failures
            .decide_at
            .get_or_insert_with(|| Instant::now() + FAILURE_GRACE);
    }

    fn take(&mut self, batch: LogBatch) {
        let received = batch.events.len() as u64 + batch.skipped.total();
        let again = received.min(self.counted);
        self.counted -= again;
        self.status.count(|totals| totals.received += received - again);
        self.events = batch.events.into();
        self.batch = Some(BatchRest {
            end: batch.end,
            skipped: batch.skipped,
            at: None,
            before: None,
        });
    }

    /// Handles events while there is room. True: there is more to do at once.
    fn work(&mut self) -> bool {
        if self.failures.decide_at.is_some() {
            return false;
        }
        for _ in 0..TURN {
            if self.sink_busy {
                return false;
            }
            if let Some((record, commit_time_us)) = self.parked.take() {
                if !self.send(record, commit_time_us) {
                    return false;
                }
                continue;
            }
            let Some(event) = self.events.pop_front() else {
                if let Some(BatchRest { end, skipped, .. }) = self.batch.take() {
                    self.ledger.boundary(end, skipped);
                    self.count_processed();
                    // A batch without events is settled by this alone.
                    return true;
                }
                return false;
            };
            let commit_time_us = event.commit_time_us;
            if let Some(batch) = &mut self.batch {
                batch.before = batch.at.replace(event.position.clone());
            }
            match self.chain.process(event) {
                Ok(Outcome::Publish(record)) => self.parked = Some((record, commit_time_us)),
                Ok(Outcome::Skip(reason)) => self.skip(reason),
                Err(error) => {
                    if let Some(halt) = self.refuse(error) {
                        self.halt(halt);
                        return true;
                    }
                }
            }
        }
        true
    }

    /// Sends a record. False: it is parked until there is room.
    fn send(&mut self, record: Record, commit_time_us: i64) -> bool {
        let bytes = record.byte_len() as u64 + QUEUE_OVERHEAD;
        let alone = self.single > 0 || self.single_at.is_some();
        if (alone && self.ledger.event_count() > 0) || !self.ledger.has_room(bytes) {
            self.parked = Some((record, commit_time_us));
            return false;
        }
        match self.sink.send(self.ledger.next_seq(), record) {
            Ok(()) => {
                self.ledger.sent(bytes, commit_time_us, std::time::Instant::now());
                if self.single > 0 {
                    self.single -= 1;
                    self.single_at = self.at();
                    // Each is a boundary, so that what comes before a culprit is not sent again.
                    if let Some((batch, at)) = self.batch.as_ref().zip(self.single_at.as_ref()) {
                        self.ledger.boundary(batch.end.after(at), SkipCounts::default());
                    }
                }
                true
            }
            Err(SendError::NotReady(record)) => {
                self.parked = Some((*record, commit_time_us));
                self.sink_busy = true;
                false
            }
            Err(SendError::Rejected(error)) => {
                self.reject_unsent(error);
                true
            }
        }
    }

    /// A record that the sink did not take and never will.
    fn reject_unsent(&mut self, error: DeliveryError) {
        self.status.count(|totals| totals.failed += 1);
        match self.reject(error, self.at()) {
            Some(halt) => self.halt(halt),
            None => self.skip(SkipReason::Rejected),
        }
    }

    fn count_processed(&mut self) {
        let counts = self.chain.take_counts().filter(|(_, count)| *count > 0);
        self.status.count(|totals| {
            for (processor, count) in counts {
                *totals.processed.entry(processor).or_default() += count;
            }
        });
    }

    fn at(&self) -> Option<EventPosition> {
        self.batch.as_ref().and_then(|batch| batch.at.clone())
    }

    /// Counts a skipped event with the batch that it came in.
    fn skip(&mut self, reason: SkipReason) {
        if let Some(batch) = &mut self.batch {
            batch.skipped.add(reason, 1);
        }
    }

    /// An event that no record could be made of, by its policy.
    fn refuse(&mut self, error: ProcessError) -> Option<HaltError> {
        match error.kind().policy(&self.policies) {
            ErrorPolicy::Halt => Some(HaltError::Process { error }),
            ErrorPolicy::Skip => {
                let reason = error.kind().skip_reason();
                let at = self.at().map(|at| at.to_string()).unwrap_or_default();
                tracing::warn!(at, reason = reason.label(), error = %error, "event skipped");
                self.skip(reason);
                None
            }
        }
    }

    /// A record that the sink will never take, by its policy.
    fn reject(&self, error: DeliveryError, at: Option<EventPosition>) -> Option<HaltError> {
        let at = at.map(|at| at.to_string()).unwrap_or_default();
        match self.policies.rejected {
            ErrorPolicy::Halt => Some(HaltError::Rejected { at, error }),
            ErrorPolicy::Skip => {
                tracing::warn!(at, reason = SkipReason::Rejected.label(), error = %error, "event skipped");
                None
            }
        }
    }

    /// Takes no more events. What was sent is still waited for, and the position before the culprit is saved.
    fn halt(&mut self, halt: HaltError) {
        self.events.clear();
        self.parked = None;
        if let Some(BatchRest {
            end,
            before: Some(before),
            ..
        }) = self.batch.take()
        {
            self.ledger.boundary(end.after(&before), SkipCounts::default());
        }
        self.halted = Some(halt);
    }
}

/// Waits until a moment, or for ever without one. Cancel safe.
async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
