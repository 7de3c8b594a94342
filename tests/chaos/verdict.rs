//! What became of it all: the account, against what may be.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use crate::support::kafka::Record;
use crate::support::load::{Account, Committed, identity};
use crate::support::place::Place;

use super::world::{Happened, Rewind};

/// What a run came to.
pub struct Report {
    pub title: String,
    pub seed: u64,
    /// How long faults happened, and how long it took in all.
    pub faulty: Duration,
    pub lasted: Duration,
    /// Times that saving began to fail.
    pub saves_failed: usize,
    pub committed: u64,
    pub account: Account,
    /// Deliveries beyond the first.
    pub repeated: u64,
    /// Events that came more often than begins anew from before them explain.
    pub unexplained: Vec<String>,
    pub records: usize,
    pub looks_at_slot: usize,
    pub happened: Happened,
}

impl Report {
    pub fn violations(&self) -> Vec<String> {
        let mut violations = self.happened.violations.clone();
        if !self.account.is_sound() {
            violations.push(self.account.to_string());
        }
        violations.extend(self.unexplained.iter().take(3).cloned());
        violations
    }
}

/// Doubles that no begin anew explains. A delivery may be repeated once for each time that the connector began at a position
/// which did not have the event, since it was committed: so what a save had covered never comes again.
pub fn unexplained(records: &[Record], committed: &Committed, rewinds: &[Rewind]) -> (u64, Vec<String>) {
    let account = committed.account(records);
    let mut firsts = HashMap::new();
    for record in records {
        if let Some(id) = identity(record).filter(|id| account.doubled.contains_key(id)) {
            firsts.entry(id).or_insert(record);
        }
    }
    let mut repeated = 0;
    let mut unexplained = Vec::new();
    for (id, count) in &account.doubled {
        repeated += count - 1;
        let place = Place::of(firsts[id].header("df-event-id").expect("an event id"));
        let explained = rewinds.iter().filter(|rewind| {
            let done = rewind.saved.as_ref().is_some_and(|saved| place.is_done(saved));
            rewind.at >= firsts[id].timestamp_ms && !done
        });
        let explained = explained.count() as u64;
        if count - 1 > explained {
            unexplained.push(format!(
                "{id:?} came {count} times, and {explained} begins from before it explain {explained} more than one: {:?}",
                firsts[id]
            ));
        }
    }
    (repeated, unexplained)
}

/// Some of what came more than once, with each delivery.
pub fn doubles(records: &[Record], account: &Account) -> Vec<String> {
    let first = account.doubled.keys().take(5);
    let deliveries = first.flat_map(|id| records.iter().filter(move |record| identity(record) == Some(*id)));
    let deliveries = deliveries.map(|record| {
        let id = record.header("df-event-id").unwrap_or_default();
        format!("partition {} offset {} event {id}", record.partition, record.offset)
    });
    deliveries.collect()
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.lasted.as_secs_f64();
        writeln!(
            f,
            "chaos: {}, seed {}, {:.0} s of faults, drained after {seconds:.0} s",
            self.title,
            self.seed,
            self.faulty.as_secs_f64()
        )?;
        writeln!(
            f,
            "  committed {}, {:.0} a second; records {}",
            self.committed,
            self.committed as f64 / seconds,
            self.records
        )?;
        writeln!(
            f,
            "  lost {}, out of order {}, torn {}, made up {}",
            self.account.lost.len(),
            self.account.out_of_order.len(),
            self.account.torn.len(),
            self.account.unexpected.len()
        )?;
        writeln!(
            f,
            "  repeated {} of {} events, unexplained {}; {} begins anew",
            self.repeated,
            self.account.doubled.len(),
            self.unexplained.len(),
            self.happened.rewinds.len()
        )?;
        writeln!(
            f,
            "  looks at what is confirmed {}; saves that failed {}",
            self.looks_at_slot, self.saves_failed
        )?;
        write!(f, "  faults {:?}", self.happened.faults)
    }
}
