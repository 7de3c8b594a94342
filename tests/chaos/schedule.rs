//! What goes wrong when, by a seed.

use std::ops::RangeInclusive;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};

use super::Mode;

/// Something that goes wrong for a while, or at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// By SIGKILL; it stays away for a while.
    KillRelay,
    /// By SIGTERM, and started again.
    RestartRelay,
    /// SIGSTOP, and SIGCONT after a while.
    StopRelay,
    /// Another process with the same state folder is started.
    SecondInstance,
    KillBroker,
    RestartBroker,
    StopBroker,
    KillDatabase,
    RestartDatabase,
    StopDatabase,
    CutDatabaseLink,
    HalfOpenDatabaseLink,
    SlowDatabaseLink,
    CutBrokerLink,
    HalfOpenBrokerLink,
    SlowBrokerLink,
    /// For the state folder.
    FillDisk,
    /// [`HUGE`] messages in one transaction.
    HugeTransaction,
    /// A column is added to the outbox table.
    AlterTable,
    /// A message that the broker refuses, among others.
    OversizedMessage,
}

/// What faults of one kind happen to, one at a time; those of different parts overlap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Relay,
    Broker,
    Database,
    DatabaseLink,
    BrokerLink,
    Disk,
    Application,
}

impl Part {
    /// What happens to it does not keep servers from being reached.
    fn is_beside_links(self) -> bool {
        matches!(self, Self::Relay | Self::Disk | Self::Application)
    }
}

/// A fault, since the begin of the run or the end of the one before in its part, whichever is later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    pub at: Duration,
    pub fault: Fault,
    /// How long it stays so.
    pub lasts: Duration,
    /// Which of several instances it happens to.
    pub which: usize,
    /// It comes while events are being published, however long that takes to be so. Others come at their time, also when
    /// another fault keeps everything from moving.
    pub in_motion: bool,
}

/// Messages in one transaction that most faults happen during.
pub const HUGE: u64 = 100_000;

/// The first and the last moments are calm: something is to be there that can break, and the last fault ends in time.
const CALM: Duration = Duration::from_secs(2);

struct Rule {
    part: Part,
    /// Seconds between two faults, on average.
    gap: f64,
    /// Dealt as a pack of cards: each comes before one comes again. With how many seconds it lasts.
    deck: Vec<(Fault, RangeInclusive<f64>)>,
}

fn rules(mode: Mode) -> Vec<Rule> {
    use Fault::*;
    let (at_once, soon) = (0.0..=0.0, 0.0..=2.0);
    let rule = |part, gap, deck: &[(Fault, &RangeInclusive<f64>)]| Rule {
        part,
        gap,
        deck: deck.iter().map(|(fault, lasts)| (*fault, (*lasts).clone())).collect(),
    };
    let kills = [
        (KillRelay, &at_once),
        (KillRelay, &at_once),
        (KillRelay, &soon),
        (KillRelay, &soon),
    ];
    let others = match mode.is_shared() {
        // At five seconds it takes itself for overtaken.
        false => [
            (RestartRelay, &at_once),
            (StopRelay, &(0.5..=8.0)),
            (SecondInstance, &at_once),
        ],
        // Another one takes over after ten.
        true => [
            (RestartRelay, &at_once),
            (StopRelay, &(0.5..=8.0)),
            (StopRelay, &(11.0..=16.0)),
        ],
    };
    let mut rules = vec![
        rule(Part::Relay, 3.0, &[&kills[..], &others[..]].concat()),
        rule(
            Part::Broker,
            18.0,
            &[(KillBroker, &soon), (RestartBroker, &soon), (StopBroker, &(1.0..=6.0))],
        ),
        rule(
            Part::Database,
            18.0,
            &[
                (KillDatabase, &soon),
                (RestartDatabase, &soon),
                (StopDatabase, &(1.0..=6.0)),
            ],
        ),
        rule(
            Part::DatabaseLink,
            15.0,
            &[
                (CutDatabaseLink, &(0.0..=3.0)),
                (CutDatabaseLink, &(0.0..=3.0)),
                (SlowDatabaseLink, &(2.0..=6.0)),
                (HalfOpenDatabaseLink, &(0.5..=3.0)),
            ],
        ),
        rule(
            Part::BrokerLink,
            15.0,
            &[
                (CutBrokerLink, &(0.0..=3.0)),
                (CutBrokerLink, &(0.0..=3.0)),
                (SlowBrokerLink, &(2.0..=6.0)),
                (HalfOpenBrokerLink, &(0.5..=3.0)),
            ],
        ),
        rule(
            Part::Application,
            8.0,
            &[
                (HugeTransaction, &at_once),
                (AlterTable, &at_once),
                (OversizedMessage, &at_once),
                (OversizedMessage, &at_once),
            ],
        ),
    ];
    if mode == Mode::File {
        rules.push(rule(Part::Disk, 6.0, &[(FillDisk, &(1.0..=6.0))]));
    }
    rules
}

/// The faults of a run of this length. The same for the same seed.
pub fn schedule(seed: u64, length: Duration, mode: Mode) -> Vec<(Part, Vec<Event>)> {
    let with_events = |rule: Rule| {
        // Each part has its own numbers: what one does more or less shifts no other.
        let mut random = StdRng::seed_from_u64(seed.wrapping_mul(31).wrapping_add(rule.part as u64));
        let mut events = Vec::new();
        let mut hand: Vec<(Fault, RangeInclusive<f64>)> = Vec::new();
        let mut at = CALM;
        loop {
            // The first comes early, so that a short run has one of each part.
            let gap = random.random_range(0.2..1.8) * rule.gap * if events.is_empty() { 0.5 } else { 1.0 };
            at += Duration::from_secs_f64(gap);
            if hand.is_empty() {
                hand.clone_from(&rule.deck);
                hand.shuffle(&mut random);
            }
            let Some((fault, lasts)) = hand.pop() else { break };
            let lasts = Duration::from_secs_f64(random.random_range(lasts));
            if at + lasts + CALM > length {
                break;
            }
            let which = random.random_range(0..2);
            let in_motion = rule.part.is_beside_links() && random.random_ratio(2, 3);
            events.push(Event {
                at,
                fault,
                lasts,
                which,
                in_motion,
            });
            at += lasts;
        }
        (rule.part, events)
    };
    rules(mode).into_iter().map(with_events).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_faults_again_and_another_one_others() {
        let of = |seed| format!("{:?}", schedule(seed, Duration::from_secs(60), Mode::File));
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
    }

    #[test]
    fn a_longer_run_begins_as_the_shorter_one_does() {
        let of = |seconds| schedule(7, Duration::from_secs(seconds), Mode::File);
        for ((_, short), (part, long)) in of(60).into_iter().zip(of(600)) {
            assert!(long.starts_with(&short), "{part:?}: {short:?} and {long:?}");
        }
    }

    #[test]
    fn a_long_run_has_every_fault() {
        let events = schedule(3, Duration::from_secs(600), Mode::File);
        let mut faults: Vec<Fault> = events
            .iter()
            .flat_map(|(_, events)| events.iter().map(|event| event.fault))
            .collect();
        faults.sort();
        faults.dedup();
        assert_eq!(faults.len(), 20, "{faults:?}");
    }
}
