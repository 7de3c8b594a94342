//! Sends one record after the other, as far as the sink, the ledger and a search let it.

use std::mem;

use crate::failpoint;
use crate::record::Record;
use crate::sink::kafka::QUEUE_OVERHEAD;
use crate::sink::{DeliveryError, SendError, Sink};

use super::Relay;
use super::in_flight::Fate;
use super::policy::Refusal;

/// A record that is to be sent next, with what the ledger needs of its event.
#[derive(Debug)]
pub(super) struct Parked {
    pub(super) record: Record,
    pub(super) commit_time_us: i64,
    pub(super) fate: Fate,
    /// Of what this stands for: of the record that this is the dead letter of, and so on.
    pub(super) refusals: Vec<Refusal>,
}

impl Parked {
    pub(super) fn new(record: Record, commit_time_us: i64, fate: Fate) -> Self {
        Self {
            record,
            commit_time_us,
            fate,
            refusals: Vec::new(),
        }
    }
}

/// Why the sink gave a record back.
pub(super) enum GivenBack {
    NotReady,
    CommitFirst,
    Rejected(DeliveryError),
}

impl<S: Sink> Relay<S> {
    /// Sends a record. False: it is parked until there is room.
    pub(super) fn send(&mut self, parked: Parked) -> bool {
        let bytes = parked.record.byte_len() as u64 + QUEUE_OVERHEAD;
        let travel = self.search.travel(&parked);
        if self.ledger.event_count() as u64 >= travel.most() || !self.ledger.has_room(bytes) {
            self.parked = Some(parked);
            return false;
        }
        let Parked {
            record,
            commit_time_us,
            fate,
            refusals,
        } = parked;
        let described = self.described(&record, fate, commit_time_us);
        let seq = self.ledger.next_seq();
        if let Some(told) = &mut self.told {
            told.note(seq, fate, &record);
        }
        let span = self.spans.of(&record, commit_time_us);
        let taken = match fate {
            Fate::DeadLettered(_) => self.sink.park(seq, record),
            Fate::Published | Fate::Skipped(_) | Fate::Position => self.sink.send(seq, record),
        };
        match taken {
            Ok(()) => {
                self.ledger.sent(bytes, commit_time_us, std::time::Instant::now(), fate);
                self.remember_origin(seq);
                if let (Some(account), Some(described)) = (&mut self.account, described) {
                    account.sent(seq, described, fate);
                }
                self.spans.sent(seq, fate, span);
                failpoint::hit("send");
                if let Some(uncommitted) = &mut self.uncommitted {
                    uncommitted.taken(commit_time_us);
                }
                if travel.is_searched() {
                    self.search.sent(travel, self.at(), fate, refusals);
                    // Each is a boundary, so that what comes before a culprit is not sent again; a commit is one for a group.
                    if self.uncommitted.is_none() || self.ledger.event_count() as u64 >= travel.most() {
                        self.boundary_behind();
                    }
                }
                true
            }
            Err(given_back) => {
                let (record, given_back) = match given_back {
                    SendError::NotReady(record) => (record, GivenBack::NotReady),
                    SendError::CommitFirst(record) => (record, GivenBack::CommitFirst),
                    SendError::Rejected(record, error) => (record, GivenBack::Rejected(error)),
                };
                let parked = Parked {
                    record: *record,
                    commit_time_us,
                    fate,
                    refusals,
                };
                match given_back {
                    GivenBack::NotReady => {
                        self.parked = Some(parked);
                        self.sink_busy = true;
                        false
                    }
                    GivenBack::CommitFirst => {
                        self.parked = Some(parked);
                        // There is a position where something was taken. Without one the sink is asked, which says what is
                        // wrong.
                        self.sink_busy |= !self.commit();
                        false
                    }
                    GivenBack::Rejected(error) => {
                        self.reject_unsent(parked, error);
                        true
                    }
                }
            }
        }
    }

    /// Makes a place to go on from of the one behind the event at hand, inside its batch.
    pub(super) fn boundary_behind(&mut self) {
        if self.uncommitted.is_some() {
            self.commit();
        } else if let Some(batch) = &mut self.batch
            && let Some(at) = &batch.at
        {
            self.ledger.boundary(batch.end.after(at), mem::take(&mut batch.skipped));
        }
    }
}
