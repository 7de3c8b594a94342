//! Several sinks behind one source. Each batch goes to a *lane* for each sink, which relays it by itself, in its own order and
//! with its own watermark; the position moves as the commit policy says.
//!
//! A lane that is *held* is waited for: it makes the source wait, and where its sink fails the life ends for all. One that is
//! *free* is never waited for: it is passed over while it has no room, makes its sink anew by itself, and counts what it loses.
//! With a quorum all lanes are free, and there is room where that many have some.

use std::future::{Future, poll_fn};
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::audit::Journal;
use crate::config::CommitPolicy;
use crate::position::Position;
use crate::sink::SinkError;
use crate::source::LogBatch;
use crate::telemetry::error_chain;
use crate::telemetry::status::PipelineStatus;

use super::backoff::Backoff;
use super::branch::Branch;
use super::in_flight::{Ledger, Limits};
use super::parts::Parts;
use super::reach::{Lane, Reach};
use super::supervise::CHANNEL;
use super::{End, Ended, HaltError, Left, Relay};

/// Batches that wait for a lane that is not waited for, of a quarter MiB each at most and a single event where that is larger.
const FREE_CHANNEL: usize = 32;

/// Where the lanes of one life meet.
#[derive(Debug)]
pub(super) struct Junction {
    state: Mutex<Meeting>,
    status: Arc<PipelineStatus>,
    /// Too many lanes have lost the same batch; it is read again.
    doomed: CancellationToken,
}

#[derive(Debug)]
struct Meeting {
    reach: Reach,
    /// None: nothing more is told.
    acked: Option<watch::Sender<Option<Position>>>,
}

impl Junction {
    fn meeting(&self) -> MutexGuard<'_, Meeting> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the policy is not met yet for some of what was read.
    pub(super) fn waits(&self) -> bool {
        !self.meeting().reach.is_empty()
    }

    /// Changes how far the lanes are, and tells the position that all have come to by that.
    fn change(&self, change: impl FnOnce(&mut Reach)) {
        let mut meeting = self.meeting();
        change(&mut meeting.reach);
        if let Some(position) = meeting.reach.advance() {
            self.status.acked(&position);
            // Under the lock: positions are told in their order.
            if let Some(acked) = &meeting.acked {
                acked.send_replace(Some(position));
            }
        }
        if meeting.reach.is_doomed() {
            self.doomed.cancel();
        }
    }
}

/// What a life with several sinks is joined by.
pub(super) struct FanOut {
    pub(super) junction: Arc<Junction>,
    inlets: Vec<Inlet>,
}

/// A lane, as what is read flows into it.
struct Inlet {
    held: bool,
    sender: mpsc::Sender<LogBatch>,
    status: Arc<PipelineStatus>,
}

/// A lane's end of it.
pub(super) struct Outlet {
    pub(super) batches: mpsc::Receiver<LogBatch>,
    pub(super) acked: watch::Sender<Option<Position>>,
}

impl FanOut {
    /// Joins lanes. `acked` takes the positions that the policy is met for and is closed when all lanes are; `doomed` is
    /// cancelled when it cannot be met in this life any more.
    pub(super) fn new(
        branches: &[Branch],
        policy: CommitPolicy,
        status: &Arc<PipelineStatus>,
        acked: watch::Sender<Option<Position>>,
        doomed: CancellationToken,
    ) -> (Self, Vec<Outlet>) {
        let required: Vec<bool> = branches.iter().map(|branch| branch.held).collect();
        let junction = Arc::new(Junction {
            state: Mutex::new(Meeting {
                reach: Reach::new(policy, &required),
                acked: Some(acked),
            }),
            status: Arc::clone(status),
            doomed,
        });
        let mut following = tokio::task::JoinSet::new();
        let lanes = branches.iter().enumerate().map(|(lane, branch)| {
            let (sender, batches) = mpsc::channel(if branch.held { CHANNEL } else { FREE_CHANNEL });
            let (acked, positions) = watch::channel(None);
            following.spawn(follow(lane, positions, Arc::clone(&junction)));
            let inlet = Inlet {
                held: branch.held,
                sender,
                status: Arc::clone(&branch.status),
            };
            (inlet, Outlet { batches, acked })
        });
        let (inlets, outlets) = lanes.unzip();
        tokio::spawn({
            let junction = Arc::clone(&junction);
            async move {
                while following.join_next().await.is_some() {}
                junction.meeting().acked = None;
            }
        });
        (Self { junction, inlets }, outlets)
    }

    /// Hands each batch to the lanes, until the source ends or a lane that is waited for does.
    pub(super) async fn run(self, mut batches: mpsc::Receiver<LogBatch>, policy: CommitPolicy) {
        while let Some(batch) = batches.recv().await {
            if let CommitPolicy::Quorum(size) = policy {
                self.room_for(size).await;
            }
            let mut number = 0;
            self.junction.change(|reach| number = reach.given(batch.end.clone()));
            for (lane, inlet) in self.inlets.iter().enumerate() {
                let batch = batch.clone();
                if inlet.held {
                    if inlet.sender.send(batch).await.is_err() {
                        return;
                    }
                } else {
                    self.offer(lane, inlet, batch, number);
                }
            }
        }
    }

    /// Hands a batch to a lane that is not waited for, if it has room.
    fn offer(&self, lane: Lane, inlet: &Inlet, batch: LogBatch, number: u64) {
        if let Err(TrySendError::Full(batch) | TrySendError::Closed(batch)) = inlet.sender.try_send(batch) {
            let events = batch.events.len() as u64;
            inlet.status.lose(events);
            self.junction.change(|reach| reach.lost(lane, number));
        }
    }

    /// Waits until so many lanes have room. Those that are gone have none for ever; with too few left the life is over.
    async fn room_for(&self, size: usize) {
        type Wait<'a> = Pin<Box<dyn Future<Output = bool> + Send + 'a>>;
        let mut waits: Vec<Option<Wait<'_>>> = self
            .inlets
            .iter()
            .map(|inlet| {
                let wait: Wait<'_> = Box::pin(async { inlet.sender.reserve().await.is_ok() });
                Some(wait)
            })
            .collect();
        let (mut ready, mut gone) = (0, 0);
        poll_fn(|context| {
            for slot in &mut waits {
                if let Some(Poll::Ready(has_room)) = slot.as_mut().map(|wait| wait.as_mut().poll(context)) {
                    *slot = None;
                    match has_room {
                        true => ready += 1,
                        false => gone += 1,
                    }
                }
            }
            let left = self.inlets.len() - gone;
            match ready >= size || left < size {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
    }
}

/// Tells how far a lane has come, until it is gone.
async fn follow(lane: Lane, mut positions: watch::Receiver<Option<Position>>, junction: Arc<Junction>) {
    while positions.changed().await.is_ok() {
        let position = positions.borrow_and_update().clone();
        if let Some(position) = position {
            junction.change(|reach| reach.had(lane, &position));
        }
    }
}

/// A lane that nobody waits for.
pub(super) struct FreeLane<P> {
    pub(super) lane: Lane,
    pub(super) branch: Branch,
    pub(super) parts: Arc<P>,
    pub(super) junction: Arc<Junction>,
    pub(super) journal: Journal,
    pub(super) overtakable: bool,
    pub(super) in_quorum: bool,
    /// What the first sink begins with: of a quorum, whose batches come again where too many have lost them.
    pub(super) begins: Left,
    /// What the first that something is left of leaves to the next life; to the next sink of this one nothing comes again.
    pub(super) left: Option<Left>,
}

/// How such a lane ended, and what its last sink leaves to the next life.
pub(super) struct FreeEnd {
    pub(super) lane: Lane,
    /// None: the source has ended, or nothing more is wanted.
    pub(super) error: Option<FreeError>,
    pub(super) left: Left,
}

impl<P: Parts> FreeLane<P> {
    /// Relays with one sink after the other, until the source ends or there is nothing that another sink could do.
    pub(super) async fn run(mut self, outlet: Outlet, stop: CancellationToken, abandon: CancellationToken) -> FreeEnd {
        let Outlet { mut batches, acked } = outlet;
        let status = Arc::clone(&self.branch.status);
        let mut backoff = Backoff::new(self.branch.pipeline.restart);
        let error = loop {
            let settled = status.snapshot().totals.settled();
            let Err(error) = self.relay(&mut batches, &acked, &stop, &abandon).await else {
                break None;
            };
            if !error.can_heal() {
                break Some(error);
            }
            // What was in flight may have come through all the same: nobody can tell any more.
            let lost = status.lose_in_flight();
            self.lose_all_but(batches.len(), &acked);
            if stop.is_cancelled() || abandon.is_cancelled() {
                break None;
            }
            if status.snapshot().totals.settled() > settled {
                backoff.reset();
            }
            let wait = backoff.wait();
            let reason = error.to_string();
            tracing::warn!(error = %reason, lost, again_in = ?wait, "the sink failed; the pipeline does not wait for it");
            status.sink_gone(Some(reason));
            tokio::select! {
                () = stop.cancelled() => break None,
                () = abandon.cancelled() => break None,
                () = sleep(wait) => {}
            }
        };
        batches.close();
        while let Ok(batch) = batches.try_recv() {
            status.lose(batch.events.len() as u64);
        }
        let lost = status.lose_in_flight();
        self.lose_all_but(0, &acked);
        match &error {
            Some(error) => {
                let reason = error.to_string();
                match self.in_quorum {
                    false => {
                        tracing::error!(error = %reason, lost, "the sink is given up; the pipeline goes on without it")
                    }
                    // Whether it does is for the others to say.
                    true => tracing::warn!(error = %reason, lost, "the sink is given up; the quorum is of the others"),
                }
                status.registry_trouble(None);
                status.sink_gone(Some(reason));
            }
            None if lost > 0 => {
                tracing::warn!(
                    lost,
                    "the sink ends before it has all that it was given; it is not waited for"
                );
            }
            None => {}
        }
        let (lane, left) = (self.lane, self.left.unwrap_or(self.begins));
        FreeEnd { lane, error, left }
    }

    /// Tells what this lane will not have: all but what it is known to have, and the last so many batches.
    fn lose_all_but(&self, waiting: usize, acked: &watch::Sender<Option<Position>>) {
        let last = acked.borrow().clone();
        self.junction.change(|reach| {
            if let Some(last) = last {
                reach.had(self.lane, &last);
            }
            reach.lost_all_but(self.lane, waiting);
        });
    }

    async fn relay(
        &mut self,
        batches: &mut mpsc::Receiver<LogBatch>,
        acked: &watch::Sender<Option<Position>>,
        stop: &CancellationToken,
        abandon: &CancellationToken,
    ) -> Result<(), FreeError> {
        let pipeline = &self.branch.pipeline;
        let ledger = Ledger::new(Limits::of(&pipeline.delivery, false));
        let sink = self.parts.sink(self.lane, ledger.acks())?;
        self.branch.status.sink_gone(None);
        let left = mem::take(&mut self.begins);
        let held = (sink, ledger);
        let parts = self
            .branch
            .relay_parts(&*self.parts, &self.journal, held, left, self.overtakable);
        let relay = Relay::new(parts);
        let Ended { end, left, .. } = relay.relay(batches, acked, stop, abandon).await;
        if self.left.as_ref().is_none_or(|left| *left == Left::default()) {
            self.left = Some(left);
        }
        match end {
            End::Drained | End::Abandoned => Ok(()),
            End::SinkFailed(error) => Err(error.into()),
            End::Halted(halt) => Err(FreeError::Halted(halt)),
            End::Suspended { seconds } => Err(FreeError::Suspended { seconds }),
        }
    }
}

/// Why a sink that nobody waits for was let go.
#[derive(Debug, thiserror::Error)]
pub(super) enum FreeError {
    #[error("{}", error_chain(.0))]
    Sink(#[from] SinkError),
    #[error("{}", error_chain(.0))]
    Halted(HaltError),
    /// Another instance may have the source: the life is over.
    #[error("the process was stopped for {seconds} s")]
    Suspended { seconds: u64 },
}

impl FreeError {
    fn can_heal(&self) -> bool {
        match self {
            Self::Sink(error) => error.can_heal(),
            Self::Halted(_) | Self::Suspended { .. } => false,
        }
    }
}
