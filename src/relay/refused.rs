//! Records that their target does not take, of a sink that goes on behind them: each goes its policy's way in its own place, and
//! holds back nothing but the watermark until it has.

use std::collections::VecDeque;
use std::time::SystemTime;

use crate::config::ErrorPolicy;
use crate::position::EventPosition;
use crate::processor::DeadLetterReason;
use crate::sink::{DeliveryError, DeliveryErrorKind, SendError, Sink};
use crate::skip::SkipReason;

use super::in_flight::{Fate, Refused, Seq};
use super::policy::{HaltError, tell_parked};
use super::{End, Relay};

/// Where events in flight stand, in the order of their seqs.
#[derive(Debug, Default)]
pub(super) struct Origins {
    first: u64,
    positions: VecDeque<Option<EventPosition>>,
}

impl Origins {
    fn push(&mut self, seq: Seq, position: Option<EventPosition>) {
        if self.positions.is_empty() {
            self.first = seq.0;
        }
        self.positions.push_back(position);
    }

    fn get(&self, seq: Seq) -> Option<&EventPosition> {
        let index = usize::try_from(seq.0.checked_sub(self.first)?).ok()?;
        self.positions.get(index)?.as_ref()
    }

    /// Forgets those before a seq.
    fn forget_before(&mut self, seq: Seq) {
        while self.first < seq.0 && self.positions.pop_front().is_some() {
            self.first += 1;
        }
    }
}

impl<S: Sink> Relay<S> {
    /// Keeps where the event at hand stands, which was sent under this seq.
    pub(super) fn remember_origin(&mut self, seq: Seq) {
        let at = self.origins.is_some().then(|| self.at()).flatten();
        if let Some(origins) = &mut self.origins {
            origins.push(seq, at);
        }
    }

    /// Keeps which event the last boundary stands behind, where another sink can hold the position back before it.
    pub(super) fn note_reached(&mut self) {
        let last = self.ledger.reached().0.checked_sub(1);
        if let (false, Some(origins), Some(last)) = (self.leads, &self.origins, last)
            && let Some(at) = origins.get(Seq(last))
        {
            self.reached = Some(at.clone());
        }
    }

    /// Does with what was refused since the last look what the policy says.
    pub(super) fn settle_refused(&mut self) -> Option<End> {
        let origins = self.origins.as_mut()?;
        // What a boundary is reached behind is asked for when that comes.
        origins.forget_before(Seq(self.ledger.low().0.min(self.ledger.reached().0.saturating_sub(1))));
        let refused = self.ledger.take_refused();
        refused.into_iter().find_map(|refused| self.settle_one_refused(refused))
    }

    fn settle_one_refused(&mut self, refused: Refused) -> Option<End> {
        let Refused {
            seq,
            record,
            error,
            attempts,
            said,
        } = refused;
        let at = self.origins.as_ref().and_then(|origins| origins.get(seq)).cloned();
        let place = at.as_ref().map(EventPosition::to_string).unwrap_or_default();
        if let Some(Fate::DeadLettered(_)) = self.ledger.fate(seq) {
            return Some(End::Halted(HaltError::DeadLetter { at: place, error }));
        }
        match (self.policies.rejected, &self.dead_letters, at) {
            (ErrorPolicy::DeadLetter, Some(dead_letters), Some(at)) => {
                let reason = DeadLetterReason::of_delivery(&error);
                tell_parked(&self.status, &at, reason, Some(attempts), &error);
                if let Some(account) = &mut self.account {
                    account.refused(seq, Fate::DeadLettered(reason), attempts, error.to_string());
                }
                let told = match said.is_empty() {
                    true => error,
                    false => DeliveryError {
                        text: format!("{error} ({said})"),
                        ..error
                    },
                };
                let letter = dead_letters.of_record(record, &told, &at, attempts, SystemTime::now());
                let fate = Fate::DeadLettered(reason);
                self.ledger.set_fate(seq, fate);
                if let Some(told) = &mut self.told {
                    told.note(seq, fate, &letter);
                }
                self.spans.set_fate(seq, fate);
                if let Err(given_back) = self.sink.park(seq, letter) {
                    let text = match given_back {
                        SendError::Rejected(_, error) => error.text,
                        SendError::NotReady(_) | SendError::CommitFirst(_) => "no room for a dead letter".to_owned(),
                    };
                    let kind = DeliveryErrorKind::Unavailable;
                    self.ledger.acks().broken(DeliveryError { kind, text });
                }
                None
            }
            (ErrorPolicy::Skip, ..) => {
                let reason = SkipReason::Rejected;
                tracing::warn!(at = place, reason = reason.label(), attempts, error = %error, "event skipped");
                if let Some(account) = &mut self.account {
                    account.refused(seq, Fate::Skipped(reason), attempts, error.to_string());
                }
                self.ledger.set_fate(seq, Fate::Skipped(reason));
                self.spans.set_fate(seq, Fate::Skipped(reason));
                self.sink.pass_over(seq);
                self.ledger.acks().acked(seq);
                None
            }
            (ErrorPolicy::Halt | ErrorPolicy::DeadLetter, ..) => {
                Some(End::Halted(HaltError::Rejected { at: place, error }))
            }
        }
    }
}
