//! The numbers of aggregates, and what is wrong with the next one: pure.
//!
//! Of each aggregate the highest number is kept, so that an event that comes again can be told from one that is new. What comes
//! again after a restart, from the checkpoint up to the last event that was looked at before, is told what it was told then: in
//! order, or refused. So the numbers change nothing of what a restart sends, and find nothing that is not wrong.

use std::collections::HashMap;

use hashlink::LruCache;
use serde::{Deserialize, Serialize};

use crate::position::EventPosition;

/// What is wrong with a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SequenceFault {
    /// It is the highest once more.
    Repeat,
    /// It is more than one above the highest.
    Gap,
    /// It is below the highest.
    Backwards,
}

impl SequenceFault {
    pub const ALL: [Self; 3] = [Self::Repeat, Self::Gap, Self::Backwards];

    pub fn label(self) -> &'static str {
        match self {
            Self::Repeat => "repeat",
            Self::Gap => "gap",
            Self::Backwards => "backwards",
        }
    }
}

/// A number that does not follow the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OutOfSequence {
    pub(crate) fault: SequenceFault,
    pub(crate) highest: i64,
}

/// What becomes of an event whose number is out of sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Consequence {
    /// It goes its way.
    Passes,
    /// It is refused, and what follows it is not.
    Refused,
    /// Nothing goes on behind it: when it comes again, it is as if it had not come.
    Halts,
}

/// A place, as a text, with what was wrong there.
pub(super) type RefusedAt = (String, OutOfSequence);

/// What is to be written of a rule.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Changes {
    /// By aggregate; None: it was forgotten.
    pub(super) numbers: HashMap<String, Option<i64>>,
    /// The last event that was looked at.
    pub(super) through: Option<EventPosition>,
    /// Those that were refused and can come again, in no order.
    pub(super) refused: Vec<RefusedAt>,
}

/// See the module's text.
pub(crate) struct Numbers {
    highest: LruCache<String, i64>,
    changed: HashMap<String, Option<i64>>,
    through: Option<EventPosition>,
    /// What comes up to the event at this place, as a text, was looked at before a restart. By its text: what a position says of
    /// the transactions before it can differ.
    comes_again_up_to: Option<String>,
    /// What was refused of that, by its place.
    refused_before: HashMap<String, OutOfSequence>,
    /// What was refused since.
    refused: Vec<(EventPosition, OutOfSequence)>,
}

impl Numbers {
    /// Of no aggregate, and of so many at most.
    pub(crate) fn new(max_aggregates: usize) -> Self {
        Self {
            highest: LruCache::new(max_aggregates),
            changed: HashMap::new(),
            through: None,
            comes_again_up_to: None,
            refused_before: HashMap::new(),
            refused: Vec::new(),
        }
    }

    /// As they were written; `comes_again_up_to`: the last event that they know of, where the log is gone on with before it.
    pub(super) fn of(
        max_aggregates: usize,
        numbers: impl IntoIterator<Item = (String, i64)>,
        comes_again_up_to: Option<String>,
        refused: impl IntoIterator<Item = RefusedAt>,
    ) -> Self {
        let mut all = Self::new(max_aggregates);
        for (aggregate, number) in numbers {
            all.set(aggregate, number);
        }
        // Those for which there was no room are still to be taken away.
        all.changed.retain(|_, number| number.is_none());
        if comes_again_up_to.is_some() {
            all.refused_before = refused.into_iter().collect();
        }
        all.comes_again_up_to = comes_again_up_to;
        all
    }

    /// Looks at the next event: its number must be one above the highest of its aggregate. One of an aggregate that is not known is
    /// taken at any number.
    ///
    /// # Errors
    /// It is not.
    pub(crate) fn look_at(
        &mut self,
        aggregate: &str,
        number: i64,
        at: &EventPosition,
        consequence: impl Fn(SequenceFault) -> Consequence,
    ) -> Result<(), OutOfSequence> {
        let highest = self.highest.get(aggregate).copied();
        if self.comes_again(highest, number) {
            return self.look_again_at(aggregate, highest, number, at);
        }
        let fault = highest.and_then(|highest| match number {
            _ if number == highest => Some(SequenceFault::Repeat),
            _ if number < highest => Some(SequenceFault::Backwards),
            _ if highest.checked_add(1) != Some(number) => Some(SequenceFault::Gap),
            _ => None,
        });
        let found = highest
            .zip(fault)
            .map(|(highest, fault)| OutOfSequence { fault, highest });
        match found.map(|found| (found, consequence(found.fault))) {
            Some((found, Consequence::Halts)) => return Err(found),
            Some((found, Consequence::Refused)) => self.refused.push((at.clone(), found)),
            Some((_, Consequence::Passes)) | None => {}
        }
        self.forget_what_came_before();
        self.through = Some(at.clone());
        if highest.is_none_or(|highest| number > highest) {
            self.set(aggregate.to_owned(), number);
        }
        found.map_or(Ok(()), Err)
    }

    /// Whether an event was looked at before the restart. The numbers are those of the last event before it, so one that is above
    /// its aggregate's is new, and all that follow it.
    fn comes_again(&self, highest: Option<i64>, number: i64) -> bool {
        self.comes_again_up_to.is_some() && highest.is_none_or(|highest| number <= highest)
    }

    /// Tells an event what it was told before the restart.
    fn look_again_at(
        &mut self,
        aggregate: &str,
        highest: Option<i64>,
        number: i64,
        at: &EventPosition,
    ) -> Result<(), OutOfSequence> {
        let place = at.to_string();
        let refused = self.refused_before.remove(&place);
        self.refused.extend(refused.map(|found| (at.clone(), found)));
        // Forgotten meanwhile, for others.
        if highest.is_none() {
            self.set(aggregate.to_owned(), number);
        }
        if self.comes_again_up_to.as_ref() == Some(&place) {
            self.forget_what_came_before();
            self.through = Some(at.clone());
        }
        refused.map_or(Ok(()), Err)
    }

    fn forget_what_came_before(&mut self) {
        if self.comes_again_up_to.take().is_some() {
            self.refused_before.clear();
        }
    }

    fn set(&mut self, aggregate: String, number: i64) {
        let is_known = self.highest.contains_key(&aggregate);
        if !is_known
            && self.highest.len() == self.highest.capacity()
            && let Some((forgotten, _)) = self.highest.remove_lru()
        {
            self.changed.insert(forgotten, None);
        }
        self.changed.insert(aggregate.clone(), Some(number));
        self.highest.insert(aggregate, number);
    }

    /// Takes what has changed since it was last taken. `is_done`: an event does not come again.
    pub(super) fn take_changes(&mut self, is_done: impl Fn(&EventPosition) -> bool) -> Changes {
        self.refused.retain(|(at, _)| !is_done(at));
        let before = self.refused_before.iter().map(|(at, found)| (at.clone(), *found));
        let since = self.refused.iter().map(|(at, found)| (at.to_string(), *found));
        Changes {
            refused: before.chain(since).collect(),
            numbers: std::mem::take(&mut self.changed),
            through: self.through.clone(),
        }
    }

    /// Puts back what could not be written; what has changed since stands.
    pub(super) fn put_back(&mut self, changes: Changes) {
        for (aggregate, number) in changes.numbers {
            self.changed.entry(aggregate).or_insert(number);
        }
    }

    /// Whether it still waits for the last event that it knows of.
    pub(super) fn comes_again_up_to(&self) -> Option<&str> {
        self.comes_again_up_to.as_deref()
    }
}

impl std::fmt::Debug for Numbers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Numbers")
            .field("aggregates", &self.highest.len())
            .field("comes_again_up_to", &self.comes_again_up_to)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
