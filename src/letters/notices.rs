//! What somebody is to be told of dead letters: gathered as they become durable, and taken as a whole.
//!
//! Counts are of every letter. Of each of the first [`MOST`] there is a notice as well, which holds nothing of the letter's value.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use tokio::sync::Notify;

use super::Letter;
use super::topic::FieldNames;
use crate::config::Pipeline;
use crate::processor::DeadLetterReason;
use crate::record::Record;

/// The most letters that are told of one by one; the others are counted.
pub const MOST: usize = 100;

/// What is told of one letter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Notice {
    pub event_id: String,
    pub event_type: Option<String>,
    pub aggregate_type: Option<String>,
    pub aggregate_id: Option<String>,
    pub reason: String,
    pub detail: String,
    pub source: String,
    pub position: String,
    pub parked_at: String,
}

/// Letters that nobody was told of yet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Untold {
    /// The first of them.
    pub letters: Vec<Notice>,
    /// All of them, by their reasons.
    pub reasons: BTreeMap<&'static str, u64>,
}

impl Untold {
    pub fn count(&self) -> u64 {
        self.reasons.values().sum()
    }

    fn add(
        &mut self,
        reasons: impl IntoIterator<Item = (&'static str, u64)>,
        letters: impl IntoIterator<Item = Notice>,
    ) {
        for (reason, count) in reasons {
            *self.reasons.entry(reason).or_default() += count;
        }
        let room = MOST.saturating_sub(self.letters.len());
        self.letters.extend(letters.into_iter().take(room));
    }
}

/// See the module's text.
#[derive(Debug)]
pub struct Notices {
    fields: FieldNames,
    untold: Mutex<Untold>,
    changed: Notify,
}

impl Notices {
    /// None: nobody wants to be told.
    pub(crate) fn new(pipeline: &Pipeline) -> Option<Self> {
        pipeline.dead_letter.as_ref()?.notify.as_ref()?;
        Some(Self {
            fields: FieldNames::of(pipeline),
            untold: Mutex::default(),
            changed: Notify::new(),
        })
    }

    /// Of a dead letter as sinks are given it.
    pub(crate) fn of_record(&self, record: &Record) -> Notice {
        let letter = Letter::of_record(record);
        // Where nothing else needs to know of an event what its headers say, they are all there is.
        let about = match &record.about {
            Some(about) => about.as_ref().clone(),
            None => self.fields.about(&letter.headers),
        };
        Notice {
            event_id: letter.event_id,
            event_type: about.event_type,
            aggregate_type: about.aggregate_type,
            aggregate_id: about.aggregate_id,
            reason: letter.reason,
            detail: letter.detail,
            source: letter.source,
            position: letter.position,
            parked_at: letter.parked_at,
        }
    }

    /// Adds letters that are durable, and what is known of the first of them.
    pub(crate) fn add(&self, counts: &BTreeMap<DeadLetterReason, u64>, letters: &[Notice]) {
        if counts.is_empty() {
            return;
        }
        let reasons = counts.iter().map(|(reason, count)| (reason.label(), *count));
        self.untold().add(reasons, letters.iter().cloned());
        self.changed.notify_one();
    }

    /// Takes all there are. None: there are none.
    pub(crate) fn take(&self) -> Option<Untold> {
        let untold = std::mem::take(&mut *self.untold());
        (untold.count() > 0).then_some(untold)
    }

    /// Puts back what nobody could be told of, before what came since.
    pub(crate) fn put_back(&self, mut taken: Untold) {
        let mut untold = self.untold();
        let since = std::mem::take(&mut *untold);
        taken.add(since.reasons, since.letters);
        *untold = taken;
    }

    /// Waits until there are any. Cancel safe.
    pub(crate) async fn any(&self) {
        while self.untold().count() == 0 {
            self.changed.notified().await;
        }
    }

    fn untold(&self) -> MutexGuard<'_, Untold> {
        self.untold.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notice(number: usize) -> Notice {
        Notice {
            event_id: number.to_string(),
            event_type: None,
            aggregate_type: None,
            aggregate_id: None,
            reason: "poison_message".to_owned(),
            detail: "invalid".to_owned(),
            source: "pg1".to_owned(),
            position: "1".to_owned(),
            parked_at: "2026-11-29T05:17:01.124Z".to_owned(),
        }
    }

    fn notices() -> Notices {
        Notices {
            fields: FieldNames::default(),
            untold: Mutex::default(),
            changed: Notify::new(),
        }
    }

    fn add(notices: &Notices, numbers: std::ops::Range<usize>) {
        let letters: Vec<Notice> = numbers.map(notice).collect();
        let counts = [(DeadLetterReason::PoisonMessage, letters.len() as u64)];
        notices.add(&counts.into(), &letters);
    }

    #[test]
    fn the_first_hundred_are_told_of_one_by_one_and_all_are_counted() {
        let notices = notices();
        add(&notices, 0..60);
        add(&notices, 60..150);
        let untold = notices.take().unwrap();
        assert_eq!((untold.letters.len(), untold.count()), (MOST, 150));
        assert_eq!(untold.letters.last(), Some(&notice(99)));
        assert_eq!(notices.take(), None);
    }

    #[test]
    fn what_nobody_could_be_told_of_comes_before_what_came_since() {
        let notices = notices();
        add(&notices, 0..2);
        let taken = notices.take().unwrap();
        add(&notices, 2..3);
        notices.put_back(taken);
        let untold = notices.take().unwrap();
        assert_eq!(untold.letters, [notice(0), notice(1), notice(2)]);
        assert_eq!(untold.reasons, [("poison_message", 3)].into());
    }

    #[tokio::test]
    async fn letters_that_are_there_already_are_not_waited_for() {
        let notices = notices();
        add(&notices, 0..1);
        let taken = notices.take().unwrap();
        notices.put_back(taken);
        notices.any().await;
    }
}
