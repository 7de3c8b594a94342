//! What a pipeline, or one of its sinks, has counted.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::sequences::SequenceFault;
use crate::skip::SkipCounts;

/// Counts since the process started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Totals {
    pub received: u64,
    pub published: u64,
    pub skipped: SkipCounts,
    pub dead_lettered: BTreeMap<&'static str, u64>,
    /// Deliveries that were reported failed, before any retry or policy.
    pub failed: u64,
    /// Events taken by each processor, those that came again included.
    pub processed: BTreeMap<Arc<str>, u64>,
    /// Numbers out of sequence, whatever became of their events.
    pub sequence_faults: BTreeMap<SequenceFault, u64>,
    pub restarts: u64,
    pub accepted_gaps: u64,
    /// Received by a sink that nobody waits for, and given up.
    pub lost: u64,
    /// Requests that told a webhook of dead letters, and those that it did not take.
    pub notices_taken: u64,
    pub notices_failed: u64,
}

impl Totals {
    /// Published, skipped or parked.
    pub fn settled(&self) -> u64 {
        self.published + self.skipped.total() + self.dead_lettered.values().sum::<u64>()
    }

    /// Received, not settled yet, and not given up.
    pub fn in_flight(&self) -> u64 {
        self.received.saturating_sub(self.settled() + self.lost)
    }
}
