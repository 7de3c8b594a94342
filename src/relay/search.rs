//! The search for a record that the sink refuses.
//!
//! What fails with such a record says nothing of itself, and the sink is spent with them all. So a life leaves to the next one
//! among how many events it is: they are sent in groups, and where they are few, one by one. A record that is refused when it
//! travels alone is the culprit, and the life after that does with its event what the policy says.

use std::collections::HashMap;

use crate::config::ErrorPolicy;
use crate::position::{EventPosition, History, Position};
use crate::sink::{DeliveryError, Sink};

use super::account::Account;
use super::in_flight::{Fate, Ledger};
use super::policy::{Culprit, HaltError, Refusal};
use super::{End, Parked, Relay};

/// So few events are sent one by one: that takes less than another life.
const FEW: u64 = 64;
/// How often the sink was given a record that is found to be the culprit: in its batch, and alone.
const CULPRIT_ATTEMPTS: u32 = 2;

/// What a sink's life leaves to the next of records that the sink refuses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Left {
    /// So many events have one among them, or none where there is nothing to be searched.
    pub single: u64,
    /// They follow this event, where the next life can begin before the last boundary; none: they are the first.
    pub behind: Option<Box<EventPosition>>,
    /// Events that were refused when they travelled alone, and can come again.
    pub culprits: Vec<Culprit>,
    /// What these places are of, where there are any.
    pub history: Option<History>,
}

impl Left {
    /// What it is to a life that begins at a position: what that covers does not come again.
    pub(super) fn from(mut self, position: Option<&Position>) -> Self {
        let comes = |at: &EventPosition| position.is_none_or(|position| !position.covers(at));
        self.behind = self.behind.filter(|at| comes(at));
        self.culprits.retain(|culprit| comes(&culprit.at));
        self
    }

    /// Says how the search goes on, after a life that began with this.
    pub(super) fn tell(&self, before: &Self) {
        let is_known = |culprit: &&Culprit| before.culprits.iter().any(|known| known.at == culprit.at);
        let mut found = self.culprits.iter().filter(|culprit| !is_known(culprit)).peekable();
        if found.peek().is_none() && self.single > 0 && self != before {
            let behind = self.behind.as_ref().map(tracing::field::display);
            tracing::info!(
                among = self.single,
                at_once = group(self.single),
                behind,
                "searching for the record that the sink refuses"
            );
        }
        for culprit in found {
            tracing::info!(at = %culprit.at, "found the record that the sink refuses");
        }
    }
}

/// How far the searches of a pipeline's sinks have come since its position moved. A step that brings one further is the last but
/// a few, so it makes the next one wait no longer.
#[derive(Debug)]
pub(super) struct Steps(Vec<(usize, u64)>);

impl Steps {
    pub(super) fn new(lanes: usize) -> Self {
        Self(vec![(0, u64::MAX); lanes])
    }

    /// Whether a life has brought a search further than any before.
    pub(super) fn are_further(&mut self, left: &[Left]) -> bool {
        let mut further = false;
        for ((known, least), left) in self.0.iter_mut().zip(left) {
            let narrowed = left.single > 0 && left.single < *least;
            match left.culprits.len() > *known {
                true => (*known, *least) = (left.culprits.len(), u64::MAX),
                false if narrowed => *least = left.single,
                false => continue,
            }
            further = true;
        }
        further
    }
}

/// The search as one life has it.
#[derive(Debug)]
pub(super) struct Search {
    /// What is left of the events among which it is.
    single: u64,
    /// They follow this one, which was not come to yet; with its text.
    behind: Option<(String, Box<EventPosition>)>,
    /// The most of those that may be in flight at once.
    group: u64,
    /// The next to be sent was taken before, and what follows begins behind it.
    at_begin: bool,
    /// The last of them is under way.
    at_end: bool,
    /// What travels alone, while something does.
    alone: Option<Alone>,
    /// Events known to be refused that were not come to yet, by the texts of their positions: what a position says of the
    /// transactions before it can differ from life to life.
    culprits: HashMap<String, Culprit>,
    /// Those that were come to.
    met: Vec<Culprit>,
    /// What these places, and those of the events that come, are of.
    history: Option<History>,
    /// What the next life begins with, once the sink has failed.
    left: Option<Left>,
}

/// What was sent with nothing beside it, so that a refusal can mean nothing else.
#[derive(Debug)]
struct Alone {
    at: EventPosition,
    fate: Fate,
    refusals: Vec<Refusal>,
}

impl Search {
    pub(super) fn new(left: Left) -> Self {
        let Left {
            single,
            behind,
            culprits,
            history,
        } = left;
        let culprits = culprits.into_iter().map(|culprit| (culprit.at.to_string(), culprit));
        Self {
            single,
            behind: behind.map(|at| (at.to_string(), at)),
            group: group(single),
            at_begin: false,
            at_end: false,
            alone: None,
            culprits: culprits.collect(),
            history,
            met: Vec::new(),
            left: None,
        }
    }

    /// Events come up to a position.
    pub(super) fn enter(&mut self, end: &Position) {
        let history = end.history();
        if self.history.as_ref().is_some_and(|known| *known != history) {
            // What stands at the same places can be something else.
            self.behind = None;
            self.culprits.clear();
            self.met.clear();
        }
        self.history = Some(history);
    }

    /// How the next record is to travel.
    pub(super) fn travel(&self, parked: &Parked) -> Travel {
        let is_on = self.single > 0 && self.behind.is_none();
        // What stands for a refused record travels alone: should it be refused as well, nothing else fails with it. So does
        // what was taken before: should the first group be refused, it is known to begin behind that.
        let goes_alone = self.group == 1 || self.at_begin || !parked.refusals.is_empty();
        match self.alone.is_some() || (is_on && goes_alone) {
            true => Travel::Alone { is_searched: is_on },
            false if is_on => Travel::Group(self.group),
            // Else the last group could not be told from what follows it.
            false if self.at_end => Travel::Group(1),
            false => Travel::Free,
        }
    }

    /// A record was sent as it was to travel, which is of those that are searched or follows the last of them.
    pub(super) fn sent(&mut self, travel: Travel, at: Option<EventPosition>, fate: Fate, refusals: Vec<Refusal>) {
        if self.single == 0 {
            return;
        }
        if let Travel::Alone { .. } = travel {
            self.alone = at.map(|at| Alone { at, fate, refusals });
        }
        self.single -= 1;
        self.at_begin = false;
        self.at_end = self.single == 0;
    }

    /// Nothing is in flight.
    pub(super) fn nothing_travels(&mut self) {
        self.alone = None;
        self.at_end = false;
    }

    /// Begins at the last event that is known to be taken, which is sent once more with those that are searched.
    pub(super) fn come_to(&mut self, at: Option<&EventPosition>) {
        let Some((behind, _)) = &self.behind else { return };
        if at.is_some_and(|at| at.to_string() == *behind) {
            self.behind = None;
            self.at_begin = true;
            self.single += 1;
        }
    }

    /// What a former life found wrong with an event.
    pub(super) fn meet(&mut self, at: Option<&EventPosition>) -> Option<Vec<Refusal>> {
        if self.culprits.is_empty() {
            return None;
        }
        let culprit = self.culprits.remove(&at?.to_string())?;
        let refusals = culprit.refusals.clone();
        // Another sink can hold the position back before it, or what stands for it fail with something else.
        self.met.push(culprit);
        Some(refusals)
    }

    /// What the next life begins with.
    pub(super) fn take_left(&mut self, ledger: &Ledger, reached: Reached) -> Left {
        match self.left.take() {
            Some(left) => left,
            None => self.leave(ledger, reached, false),
        }
    }

    /// `by_record`: the failure was one of a record, so there is something to be searched.
    fn leave(&mut self, ledger: &Ledger, reached: Reached, by_record: bool) -> Left {
        let (since, reached) = match reached {
            Reached::Boundary { unwritten } => (ledger.since_boundary() + unwritten, None),
            Reached::Event(at) => (ledger.since_boundary(), Some(Box::new(at))),
            Reached::Start => (ledger.next_seq().0, None),
        };
        let (single, behind) = match (self.behind.take(), by_record) {
            // What was refused comes before those that were searched.
            (Some(_), true) => (ledger.next_seq().0, None),
            (Some((_, behind)), false) => (self.single, Some(behind)),
            (None, true) => (since, reached),
            // Something else came in between.
            (None, false) if self.single > 0 || self.at_end => (self.single + since, reached),
            (None, false) => (0, None),
        };
        let to_come = self.culprits.drain().map(|(_, culprit)| culprit);
        let culprits: Vec<_> = self.met.drain(..).chain(to_come).collect();
        let has_places = behind.is_some() || !culprits.is_empty();
        Left {
            single,
            history: self.history.clone().filter(|_| has_places),
            behind,
            culprits,
        }
    }
}

/// How a record travels.
#[derive(Debug, Clone, Copy)]
pub(super) enum Travel {
    Free,
    /// With so many at most, it among them.
    Group(u64),
    /// `is_searched`: for a search, and not behind one that still travels alone.
    Alone {
        is_searched: bool,
    },
}

impl Travel {
    /// How many may be in flight with it, it among them.
    pub(super) fn most(self) -> u64 {
        match self {
            Self::Free => u64::MAX,
            Self::Group(size) => size,
            Self::Alone { .. } => 1,
        }
    }

    pub(super) fn is_searched(self) -> bool {
        matches!(self, Self::Group(_) | Self::Alone { is_searched: true })
    }
}

/// How far a life has come, as the next one will find it.
pub(super) enum Reached {
    /// To a boundary, at which the next life begins, or so many events before it, of which it is not written down yet.
    Boundary { unwritten: u64 },
    /// To a boundary behind this event.
    Event(EventPosition),
    /// To none that could be named.
    Start,
}

impl<S: Sink> Relay<S> {
    /// How this life ends with a failure that says what became of the records.
    pub(super) fn end_with(&mut self, error: DeliveryError, of_event: bool) -> End {
        let by_record = error.kind.is_record();
        let reached = self.take_reached();
        match self.search.alone.take() {
            // It travelled alone, so it is the one. The sink is spent with it: the next life does what the policy says.
            Some(Alone { at, fate, mut refusals }) if by_record && of_event => {
                if fate == Fate::Published && self.policies.rejected == ErrorPolicy::Halt {
                    let at = at.to_string();
                    return End::Halted(HaltError::Rejected { at, error });
                }
                refusals.push(Refusal {
                    error: error.clone(),
                    attempts: CULPRIT_ATTEMPTS,
                });
                let rest = self.search.single;
                let mut left = self.search.leave(&self.ledger, reached, true);
                left.single += rest;
                let text = at.to_string();
                left.culprits.retain(|culprit| culprit.at.to_string() != text);
                left.culprits.push(Culprit { at, refusals });
                left.history = self.search.history.clone();
                self.search.left = Some(left);
            }
            _ => self.search.left = Some(self.search.leave(&self.ledger, reached, by_record)),
        }
        End::SinkFailed(error.into())
    }

    pub(super) fn take_reached(&mut self) -> Reached {
        match self.reached.take() {
            // What a sink commits, the position is part of.
            _ if self.leads || self.uncommitted.is_some() => Reached::Boundary {
                unwritten: self.account.as_ref().map_or(0, Account::unwritten),
            },
            Some(at) => Reached::Event(at),
            None => Reached::Start,
        }
    }
}

/// How many of so many events are sent at once while the one is searched that the sink refuses: the root of their number, so
/// that few groups, and then few events, are waited for.
fn group(single: u64) -> u64 {
    match single {
        0..=FEW => 1,
        _ => single.isqrt(),
    }
}
