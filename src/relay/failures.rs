//! Failed deliveries, and when it is clear what they mean.

use std::time::Duration;

use tokio::time::Instant;

use crate::sink::{DeliveryErrorKind, Sink};

use super::Relay;
use super::in_flight::{Failure, Tried};

/// How long the other failures of a batch are waited for: the broker names the culprit in one of them.
const FAILURE_GRACE: Duration = Duration::from_secs(1);

/// Failed deliveries, gathered until it is clear what they mean.
#[derive(Debug, Default)]
pub(super) struct Failures {
    /// How many deliveries are among them; a sink that is broken as a whole is none.
    pub(super) deliveries: usize,
    /// The gravest of them.
    pub(super) worst: Option<Failure>,
    /// When the rest is not waited for any more.
    pub(super) decide_at: Option<Instant>,
}

impl<S: Sink> Relay<S> {
    pub(super) fn gather_failures(&mut self) {
        let failures = self.ledger.take_failures();
        if failures.is_empty() {
            return;
        }
        let deliveries = failures.iter().filter(|failure| failure.seq.is_some()).count();
        self.status.count(|totals| totals.failed += deliveries as u64);
        if let Some(account) = &mut self.account {
            let tried = |failure: &Failure| {
                let error = failure.error.to_string();
                failure.seq.map(|seq| Tried {
                    seq,
                    attempts: 1,
                    error,
                })
            };
            account.tried(failures.iter().filter_map(tried).collect());
        }
        let gravity = |failure: &Failure| match failure.error.kind {
            DeliveryErrorKind::Unavailable => 0,
            DeliveryErrorKind::Record(_) => 1,
            DeliveryErrorKind::Fenced => 2,
            DeliveryErrorKind::Refused => 3,
        };
        self.failures.deliveries += deliveries;
        self.failures.worst = failures
            .into_iter()
            .chain(self.failures.worst.take())
            .max_by_key(gravity);
        self.failures
            .decide_at
            .get_or_insert_with(|| Instant::now() + FAILURE_GRACE);
    }
}
