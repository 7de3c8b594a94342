//! Changes that are seen and not sent: each is counted by its reason.

use std::collections::BTreeMap;

use crate::event::Operation;

/// Numbers of changes that were seen and not sent, by reason.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SkipCounts(BTreeMap<SkipReason, u64>);

impl SkipCounts {
    pub fn add(&mut self, reason: SkipReason, count: u64) {
        *self.0.entry(reason).or_default() += count;
    }

    pub fn merge(&mut self, other: Self) {
        for (reason, count) in other.0 {
            self.add(reason, count);
        }
    }

    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = (SkipReason, u64)> {
        self.0.iter().map(|(reason, count)| (*reason, *count))
    }
}

impl<const N: usize> From<[(SkipReason, u64); N]> for SkipCounts {
    fn from(counts: [(SkipReason, u64); N]) -> Self {
        Self(counts.into())
    }
}

/// Why a change is not published.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SkipReason {
    /// A message whose prefix no pattern of the outbox matches.
    ForeignPrefix,
    /// A row of a table that is in the publication and in no pattern; of a binlog, an event with such rows, which are not
    /// looked at one by one.
    UnlistedTable,
    /// An UPDATE of an outbox table's row.
    OutboxUpdate,
    /// A DELETE of an outbox table's row.
    OutboxDelete,
    /// A TRUNCATE of an outbox table.
    OutboxTruncate,
    /// A change that the binlog holds as a statement, on a table that is none of the pipeline's as far as it can be seen.
    StatementForm,
    /// An event of the binlog of an unknown kind that readers may pass over.
    UnknownEvent,
    /// A row of the binlog that its transaction took back.
    RolledBack,
    /// A change that a processor of type `filter` does not let through.
    Filtered,
    /// An event that could not be decoded or lacks what it must have, by the policy `skip`.
    Invalid,
    /// An event without a topic, by the policy `skip`.
    Unroutable,
    /// An event that was too large or that the sink refused, by the policy `skip`.
    Rejected,
}

impl SkipReason {
    /// An outbox is its INSERTs; applications delete what they inserted, often in the same transaction.
    pub fn of_outbox_row(operation: Operation) -> Option<Self> {
        match operation {
            Operation::Insert => None,
            Operation::Update => Some(Self::OutboxUpdate),
            Operation::Delete => Some(Self::OutboxDelete),
            Operation::Truncate => Some(Self::OutboxTruncate),
        }
    }

    /// The metric's label.
    pub fn label(self) -> &'static str {
        match self {
            Self::ForeignPrefix => "foreign_prefix",
            Self::UnlistedTable => "unlisted_table",
            Self::OutboxUpdate => "outbox_update",
            Self::OutboxDelete => "outbox_delete",
            Self::OutboxTruncate => "outbox_truncate",
            Self::StatementForm => "statement_form",
            Self::UnknownEvent => "unknown_event",
            Self::RolledBack => "rolled_back",
            Self::Filtered => "filtered",
            Self::Invalid => "invalid",
            Self::Unroutable => "unroutable",
            Self::Rejected => "rejected",
        }
    }
}
