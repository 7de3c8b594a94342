//! The lives of a connector that was killed: what was known when each began, and what may come from it.

use std::collections::{BTreeMap, HashMap, HashSet};

use tailpost::position::Position;

use super::Bed;
use super::kafka::Record;
use super::load::identity;
use super::place::Place;
use super::relay::Relay;

/// What was known when a life began.
pub struct Start {
    /// None: there was no checkpoint yet, which the first save makes on MySQL and MariaDB.
    pub saved: Option<Position>,
    ends: BTreeMap<i32, i64>,
}

impl Start {
    /// Before the life that follows on a killed one. What comes to the topic from here on is the next life's, but for what
    /// was on its way and not acked: no position has that.
    pub fn of_next(bed: &Bed, relay: &Relay) -> Self {
        Self::at(bed, relay.position())
    }

    /// The same, where the next life begins at this position.
    pub fn at(bed: &Bed, saved: Option<Position>) -> Self {
        Self {
            saved,
            ends: bed.kafka.ends(&bed.events()),
        }
    }
}

/// An event has the same id on each delivery, and no other event has it.
pub fn assert_ids_stay(records: &[Record]) {
    let mut ids = HashMap::new();
    let mut events = HashSet::new();
    for record in records {
        let id = record.header("df-event-id").expect("an event id");
        let first = *ids.entry(identity(record)).or_insert(id);
        assert_eq!(first, id, "the id of {record:?}");
        events.insert(id);
    }
    assert_eq!(events.len(), ids.len(), "two events have one id");
}

/// What was saved when a life began must not come from that life.
pub fn assert_saved_is_not_repeated(records: &[Record], starts: &[Start]) {
    for record in records {
        let id = record.header("df-event-id").expect("an event id");
        let life = starts
            .iter()
            .rposition(|start| record.offset >= start.ends[&record.partition]);
        let Some(saved) = life.and_then(|life| starts[life].saved.as_ref()) else {
            continue;
        };
        assert!(
            !Place::of(id).is_done(saved),
            "{record:?} was saved at {saved} when its life began"
        );
    }
}
