//! The account of what is in the sink, and the rules that hold of it at every step.

use std::collections::BTreeMap;

use super::log::{Kind, Log};
use crate::config::{ErrorPolicies, ErrorPolicy};

/// Which topic holds a change's record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Topic {
    Events,
    DeadLetters,
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct Rules {
    /// How often each change's record is durable in the topic of events, and in that of dead letters.
    published: Vec<u32>,
    parked: Vec<u32>,
    /// Of each key the good changes in commit order, and how many of them are durable.
    keys: BTreeMap<u64, (Vec<usize>, usize)>,
    /// All changes before this one are settled.
    frontier: usize,
}

/// The policy for what cannot go its way; None for what can.
pub(super) fn policy(kind: Kind, policies: &ErrorPolicies) -> Option<ErrorPolicy> {
    match kind {
        Kind::Good | Kind::Foreign => None,
        Kind::Invalid => Some(policies.invalid),
        Kind::TooLarge | Kind::TooLargeToPark | Kind::UnknownTopic | Kind::Refused => Some(policies.rejected),
    }
}

impl Rules {
    pub(super) fn new(log: &Log) -> Self {
        let mut keys: BTreeMap<u64, (Vec<usize>, usize)> = BTreeMap::new();
        for (number, change) in log.changes().iter().enumerate() {
            if change.kind == Kind::Good {
                keys.entry(change.key).or_default().0.push(number);
            }
        }
        Self {
            published: vec![0; log.changes().len()],
            parked: vec![0; log.changes().len()],
            keys,
            frontier: 0,
        }
    }

    /// A record is durable, where readers see it.
    ///
    /// # Errors
    /// The rule that is broken: one order for each key, and with `once` nothing doubled.
    pub(super) fn durable(&mut self, log: &Log, number: usize, topic: Topic, once: bool) -> Result<(), String> {
        let counts = match topic {
            Topic::Events => &mut self.published,
            Topic::DeadLetters => &mut self.parked,
        };
        counts[number] += 1;
        let doubled = counts[number] > 1;
        if once && doubled {
            return Err(format!("change {number} is doubled in {topic:?}"));
        }
        let Change { kind, key } = (&log.changes()[number]).into();
        if topic == Topic::DeadLetters || kind != Kind::Good {
            return Ok(());
        }
        let (numbers, durable) = self.keys.entry(key).or_default();
        match numbers.get(*durable) {
            Some(next) if *next == number => *durable += 1,
            _ if doubled => {}
            next => return Err(format!("change {number} of key {key} overtakes {next:?}")),
        }
        Ok(())
    }

    pub(super) fn is_durable(&self, number: usize) -> bool {
        self.published[number] > 0 || self.parked[number] > 0
    }

    /// Everything before this change is settled.
    pub(super) fn frontier(&self) -> usize {
        self.frontier
    }

    pub(super) fn advance(&mut self, log: &Log, policies: &ErrorPolicies) {
        while let Some(change) = log.changes().get(self.frontier) {
            let settled = match (change.kind, policy(change.kind, policies)) {
                (Kind::Foreign, _) | (_, Some(ErrorPolicy::Skip)) => true,
                (_, None) => self.published[self.frontier] > 0,
                (_, Some(ErrorPolicy::DeadLetter)) => self.parked[self.frontier] > 0,
                (_, Some(ErrorPolicy::Halt)) => false,
            };
            if !settled {
                return;
            }
            self.frontier += 1;
        }
    }

    /// Records that are durable more than once.
    pub(super) fn doubled(&self) -> usize {
        let counts = self.published.iter().chain(&self.parked);
        counts.filter(|count| **count > 1).count()
    }
}

struct Change {
    kind: Kind,
    key: u64,
}

impl From<&super::log::Change> for Change {
    fn from(change: &super::log::Change) -> Self {
        Self {
            kind: change.kind,
            key: change.key,
        }
    }
}
