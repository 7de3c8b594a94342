//! How far several sinks have come together: which batches each has, and up to where the commit policy is met.

use std::collections::VecDeque;

use crate::config::CommitPolicy;
use crate::position::Position;

/// Numbers the sinks of a pipeline, the leading one as 0.
pub(super) type Lane = usize;

/// Batches that are on their way, of one life.
#[derive(Debug)]
pub(super) struct Reach {
    policy: CommitPolicy,
    /// A bit for each lane that [`CommitPolicy::Required`] waits for.
    required: u64,
    all: u64,
    batches: VecDeque<Batch>,
    /// The number of the first of them.
    first: u64,
    /// Of each lane, the first batch that it may still come to.
    next: Vec<u64>,
}

#[derive(Debug)]
struct Batch {
    end: Position,
    /// A bit for each lane that has all of it.
    had: u64,
    /// The same of those that will never have it.
    lost: u64,
}

impl Reach {
    /// `required`: of each lane, whether it is.
    pub(super) fn new(policy: CommitPolicy, required: &[bool]) -> Self {
        let bits = required.iter().enumerate();
        Self {
            policy,
            required: bits.fold(0, |bits, (lane, required)| bits | (u64::from(*required) << lane)),
            all: (1 << required.len()) - 1,
            batches: VecDeque::new(),
            first: 0,
            next: vec![0; required.len()],
        }
    }

    /// A batch is on its way that ends here; gives its number.
    pub(super) fn given(&mut self, end: Position) -> u64 {
        self.batches.push_back(Batch { end, had: 0, lost: 0 });
        self.first + self.batches.len() as u64 - 1
    }

    /// The lane has everything up to a position. One that is the end of no batch says nothing yet.
    pub(super) fn had(&mut self, lane: Lane, position: &Position) {
        let bit = 1 << lane;
        let from = self.next[lane].max(self.first);
        let skipped = usize::try_from(from - self.first).unwrap_or(usize::MAX);
        let rest = self.batches.iter().skip(skipped);
        let Some(passed) = rest
            .clone()
            .position(|batch| batch.lost & bit == 0 && batch.end == *position)
        else {
            return;
        };
        for batch in self.batches.iter_mut().skip(skipped).take(passed + 1) {
            batch.had |= bit & !batch.lost;
        }
        self.next[lane] = from + passed as u64 + 1;
    }

    /// The lane will not have a batch.
    pub(super) fn lost(&mut self, lane: Lane, number: u64) {
        let at = number.checked_sub(self.first).and_then(|at| usize::try_from(at).ok());
        if let Some(batch) = at.and_then(|at| self.batches.get_mut(at)) {
            batch.lost |= (1 << lane) & !batch.had;
        }
    }

    /// The lane will have none of the batches on their way that it does not have yet, but for the last so many that it has not
    /// begun.
    pub(super) fn lost_all_but(&mut self, lane: Lane, waiting: usize) {
        let bit = 1 << lane;
        let not_lost = self.batches.iter_mut().rev().filter(|batch| batch.lost & bit == 0);
        for batch in not_lost.skip(waiting) {
            batch.lost |= bit & !batch.had;
        }
    }

    /// Lets go of the batches that the policy is met for, and gives where the last of them ends.
    pub(super) fn advance(&mut self) -> Option<Position> {
        let mut reached = None;
        while self.batches.front().is_some_and(|batch| self.is_met(batch.had)) {
            self.first += 1;
            reached = self.batches.pop_front().map(|batch| batch.end);
        }
        reached
    }

    /// Whether there is nothing on its way.
    pub(super) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// Whether too many lanes have lost one and the same batch.
    pub(super) fn is_doomed(&self) -> bool {
        self.batches.iter().any(|batch| !self.is_met(self.all & !batch.lost))
    }

    fn is_met(&self, lanes: u64) -> bool {
        match self.policy {
            CommitPolicy::Required => lanes & self.required == self.required,
            CommitPolicy::Quorum(size) => lanes.count_ones() as usize >= size,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::position::{Lsn, PostgresPosition};

    fn position(base: u64) -> Position {
        Position::Postgres(PostgresPosition {
            system_identifier: 1,
            timeline: 1,
            base: Lsn(base),
            partial: None,
            last_event_end: Lsn::ZERO,
        })
    }

    #[test]
    fn the_position_follows_the_slowest_required_sink() {
        let mut reach = Reach::new(CommitPolicy::Required, &[true, true, false]);
        for end in 1..=3 {
            reach.given(position(end));
        }
        reach.had(0, &position(3));
        reach.had(2, &position(3));
        assert_eq!(reach.advance(), None);
        reach.had(1, &position(2));
        assert_eq!(reach.advance(), Some(position(2)));
        reach.had(1, &position(3));
        assert_eq!(reach.advance(), Some(position(3)));
    }

    #[test]
    fn what_is_not_required_is_not_waited_for_whatever_it_loses() {
        let mut reach = Reach::new(CommitPolicy::Required, &[true, false]);
        let number = reach.given(position(1));
        reach.lost(1, number);
        assert!(!reach.is_doomed());
        reach.had(0, &position(1));
        assert_eq!(reach.advance(), Some(position(1)));
    }

    #[test]
    fn a_quorum_is_of_each_batch_and_not_of_the_furthest_sinks() {
        let mut reach = Reach::new(CommitPolicy::Quorum(2), &[true, true, true]);
        let first = reach.given(position(1));
        reach.given(position(2));
        reach.lost(0, first);
        // Two have the second batch, and of them one has the first.
        reach.had(0, &position(2));
        reach.had(1, &position(2));
        assert_eq!(reach.advance(), None);
        assert!(!reach.is_doomed());
        reach.had(2, &position(1));
        assert_eq!(reach.advance(), Some(position(2)));
    }

    #[test]
    fn a_batch_that_too_many_have_lost_cannot_be_waited_for() {
        let mut reach = Reach::new(CommitPolicy::Quorum(2), &[true, true, true]);
        for end in 1..=3 {
            reach.given(position(end));
        }
        reach.had(0, &position(1));
        reach.lost_all_but(0, 1);
        assert!(!reach.is_doomed());
        reach.lost_all_but(1, 2);
        assert!(
            !reach.is_doomed(),
            "the first is with 0 and 2, the second and third with 1 and 2"
        );
        reach.lost_all_but(2, 0);
        assert!(reach.is_doomed());
    }

    #[test]
    fn a_place_inside_a_batch_moves_nothing() {
        let mut reach = Reach::new(CommitPolicy::Required, &[true]);
        reach.given(position(5));
        reach.had(0, &position(3));
        assert_eq!(reach.advance(), None);
        reach.had(0, &position(5));
        assert_eq!(reach.advance(), Some(position(5)));
    }

    proptest! {
        /// Against a plain model: each lane goes over the batches in their order, has or loses each, and is heard of now and
        /// then. The position is never behind a batch that the policy is not met for, and when all is told just before the first.
        #[test]
        fn no_batch_is_passed_that_the_policy_is_not_met_for(
            quorum in prop::option::of(1_usize..=3),
            lost in prop::collection::vec(prop::array::uniform3(prop::bool::weighted(0.2)), 1..20),
            heard in prop::collection::vec((0_usize..3, any::<prop::sample::Index>()), 0..60),
        ) {
            let required = [true, false, true];
            let policy = quorum.map_or(CommitPolicy::Required, CommitPolicy::Quorum);
            // A lane that is required loses nothing.
            let loses = |lane: usize, batch: usize| lost[batch][lane] && (quorum.is_some() || !required[lane]);
            let mut reach = Reach::new(policy, &required);
            for batch in 0..lost.len() {
                let number = reach.given(position(batch as u64 + 1));
                (0..3).filter(|lane| loses(*lane, batch)).for_each(|lane| reach.lost(lane, number));
            }
            let mut told = [0_usize; 3];
            let mut passed = 0;
            let met = |told: &[usize; 3], batch: usize| {
                let has = |lane: &usize| told[*lane] > batch && !loses(*lane, batch);
                match quorum {
                    Some(size) => (0..3).filter(has).count() >= size,
                    None => [0, 2].iter().all(has),
                }
            };
            let last = (0..3).map(|lane| (lane, lost.len()));
            let heard = heard.into_iter().map(|(lane, pick)| (lane, pick.index(lost.len() + 1))).chain(last);
            for (lane, upto) in heard {
                // Only the end of a batch that it has is heard of.
                let Some(upto) = (told[lane]..upto).rev().find(|batch| !loses(lane, *batch)) else { continue };
                told[lane] = upto + 1;
                reach.had(lane, &position(upto as u64 + 1));
                if let Some(Position::Postgres(at)) = reach.advance() {
                    passed = at.base.0 as usize;
                }
                let expected = (0..lost.len()).find(|batch| !met(&told, *batch)).unwrap_or(lost.len());
                prop_assert_eq!(passed, expected);
            }
            prop_assert_eq!(reach.is_doomed(), passed < lost.len());
        }
    }
}
