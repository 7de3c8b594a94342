//! Two instances of one pipeline on two machines, with the checkpoint where both can have it: one waits, and goes on in the
//! other's place when that dies, stands still or is cut off. One that comes back from that spoils nothing.

use std::time::Duration;

use rustix::process::Signal;
use tailpost::position::Position;

use crate::support::any_bed::LogEnd;
use crate::support::lives::{Start, assert_saved_is_not_repeated};
use crate::support::load::{Committed, Load, Plan};
use crate::support::positions::Positions;
use crate::support::proxy::Proxy;
use crate::support::relay::Relay;
use crate::support::{Bed, DEADLINE, Db, eventually, heavy, over_each};

/// From the death of one instance to the other's readiness.
const AT_ONCE: Duration = Duration::from_secs(10);
/// The same where the first must be missed by the server: it waits for a word for 10 s.
const MISSED: Duration = Duration::from_secs(40);

/// How records and position are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// The position in a topic, behind the records.
    AtLeastOnce,
    /// Both in one transaction.
    ExactlyOnce,
}

const PIPELINE: &str = "
apiVersion: tailpost/v1
kind: Pipeline
metadata: {name: <name>}
spec:
  source: {type: <type>, config: {<source>, outbox: {<outbox>}}}
  processors:
    - {type: outbox, topic: '<topic>', raw_payload: true}
  sinks:
    - {type: kafka, config: {id: k1, brokers: '<brokers>'<more>}}
  checkpoint: {type: kafka, config: {topic: '<name>.positions', replication_factor: 1}}
";

/// Messages that are written before and behind the moment that a test is about.
const HALF: u64 = 1500;

/// A pipeline whose instances come and go.
struct Trial {
    mode: Mode,
    bed: Bed,
    /// One for each time that an instance took over.
    starts: Vec<Start>,
}

impl Trial {
    /// With a load that is held.
    fn new(db: Db, mode: Mode) -> (Self, Load) {
        let bed = Bed::new(db);
        bed.kafka.create_topic(&bed.events(), 2, &[]);
        let plan = Plan {
            connections: 3,
            keys: 60,
            messages: 2 * HALF,
            batch: 10,
        };
        let load = Load::start_held(&bed, plan);
        let starts = Vec::new();
        (Self { mode, bed, starts }, load)
    }

    fn pipeline(&self) -> String {
        let more = match self.mode {
            Mode::AtLeastOnce => "",
            Mode::ExactlyOnce => ", exactly_once: true",
        };
        self.bed.fill(&PIPELINE.replace("<more>", more))
    }

    /// An instance with a state folder of its own.
    fn instance(&self) -> Relay {
        self.bed.relay(&self.pipeline())
    }

    fn saved(&self) -> Option<Position> {
        let saved = Positions::of(&self.bed).saved(&self.bed.name);
        saved.expect("the positions can be read")
    }

    /// What was known when the next instance took over.
    fn note_start(&mut self) {
        let saved = self.saved();
        self.starts.push(Start::at(&self.bed, saved));
    }

    /// Waits until all that was written up to now is saved.
    fn wait_saved_to_the_end(&self) {
        let end = self.bed.log_end();
        eventually(DEADLINE, &format!("saved up to {end:?}"), || {
            match (&end, self.saved()) {
                (LogEnd::Lsn(end), Some(Position::Postgres(saved))) => saved.base >= *end,
                (LogEnd::Mysql(end), Some(Position::Mysql(saved))) => end.are_in(&saved.base),
                (_, None) => false,
                (end, saved) => panic!("{end:?} and {saved:?} are of different databases"),
            }
        });
    }

    /// Nothing is lost or out of order; nothing came twice but what no save had covered, or nothing at all.
    fn assert_account(&self, committed: &Committed) {
        match self.mode {
            Mode::ExactlyOnce => {
                let mut reader = self.bed.committed_reader(&["events"]);
                committed.account(reader.all()).assert_exact();
            }
            Mode::AtLeastOnce => {
                let mut reader = self.bed.reader(&["events"]);
                let records = reader.all();
                committed.account(records).assert_sound();
                assert_saved_is_not_repeated(records, &self.starts);
            }
        }
    }

    /// What an instance that was overtaken must leave alone: the position that its successor saved at `since`, and with
    /// PostgreSQL what that confirmed.
    fn assert_unspoilt(&self, since: &Watermark) {
        let now = self.watermark();
        assert!(now.saved >= since.saved, "the saved position went back");
        assert!(now.confirmed >= since.confirmed, "the confirmed position went back");
        // Read before the saved one, which only grows.
        let saved = self.saved().expect("a position");
        if let (Some(confirmed), Position::Postgres(saved)) = (now.confirmed, saved) {
            assert!(
                confirmed <= saved.base,
                "{confirmed} is confirmed, and {} saved",
                saved.base
            );
        }
    }

    fn watermark(&self) -> Watermark {
        Watermark {
            confirmed: match &self.bed {
                Bed::Postgres(bed) => bed.confirmed(),
                Bed::Mysql(_) => None,
            },
            saved: self.saved().map(|saved| saved.log_place()),
        }
    }
}

/// How far a pipeline has come.
struct Watermark {
    confirmed: Option<tailpost::position::Lsn>,
    saved: Option<tailpost::position::LogPlace>,
}

/// Waits until all is written, relayed and saved, and takes stock.
fn take_stock(trial: &Trial, load: Load) {
    let committed = load.finish();
    trial.wait_saved_to_the_end();
    trial.assert_account(&committed);
}

/// Waits until an instance says of itself that another one has the source.
fn wait_stand_by(relay: &mut Relay) {
    relay.wait_not_ready("standing by: ");
}

fn is_ready(relay: &Relay) -> bool {
    relay.get("/readyz").is_some_and(|answer| answer.code == 200)
}

fn takes_over_from_one_that_was_killed(db: Db, mode: Mode) {
    let _alone = heavy();
    let (mut trial, load) = Trial::new(db, mode);
    let (mut first, mut second) = (trial.instance(), trial.instance());
    first.start();
    first.wait_ready();
    second.start();
    wait_stand_by(&mut second);
    load.allow(HALF);
    eventually(DEADLINE, "some are published", || first.published() >= HALF / 3);
    assert!(!is_ready(&second));
    assert_eq!(first.count_log("is started again"), 0, "{}", first.log());

    first.sigkill();
    trial.note_start();
    eventually(AT_ONCE, "the second is ready", || is_ready(&second));
    load.allow(HALF);
    // The first comes back, and waits in its turn.
    first.start();
    wait_stand_by(&mut first);
    take_stock(&trial, load);
}

over_each!(an_instance_elsewhere_waits_and_takes_over_within_seconds_of_the_firsts_death);
fn an_instance_elsewhere_waits_and_takes_over_within_seconds_of_the_firsts_death(db: Db) {
    takes_over_from_one_that_was_killed(db, Mode::AtLeastOnce);
}

over_each!(with_exactly_once_an_instance_elsewhere_takes_over_and_each_event_is_seen_once);
fn with_exactly_once_an_instance_elsewhere_takes_over_and_each_event_is_seen_once(db: Db) {
    takes_over_from_one_that_was_killed(db, Mode::ExactlyOnce);
}

fn takes_over_from_one_that_stood_still(db: Db, mode: Mode) {
    let _alone = heavy();
    let (mut trial, load) = Trial::new(db, mode);
    let (mut first, mut second) = (trial.instance(), trial.instance());
    first.start();
    first.wait_ready();
    second.start();
    wait_stand_by(&mut second);
    load.allow(HALF);
    eventually(DEADLINE, "some are published", || first.published() >= HALF / 3);
    first.signal(Signal::STOP);
    trial.note_start();
    eventually(MISSED, "the second is ready", || is_ready(&second));
    load.allow(HALF / 2);
    eventually(DEADLINE, "1.5 halves committed", || load.committed() >= HALF * 3 / 2);
    trial.wait_saved_to_the_end();

    let since = trial.watermark();
    first.signal(Signal::CONT);
    eventually(DEADLINE, "the first stands by", || {
        trial.assert_unspoilt(&since);
        let answer = first.get("/readyz");
        answer.is_some_and(|answer| answer.body.contains("standing by: "))
    });
    load.allow(HALF / 4);
    eventually(DEADLINE, "more committed", || load.committed() >= HALF * 7 / 4);
    trial.wait_saved_to_the_end();
    trial.assert_unspoilt(&since);
    assert!(is_ready(&second));
    assert_eq!(second.count_log("standing by"), 1, "only before: {}", second.log());

    second.sigkill();
    trial.note_start();
    eventually(AT_ONCE, "the first is ready", || is_ready(&first));
    load.allow(HALF / 4);
    take_stock(&trial, load);
}

over_each!(an_instance_that_wakes_up_behind_its_successor_spoils_nothing_and_waits_in_its_turn);
fn an_instance_that_wakes_up_behind_its_successor_spoils_nothing_and_waits_in_its_turn(db: Db) {
    takes_over_from_one_that_stood_still(db, Mode::AtLeastOnce);
}

over_each!(with_exactly_once_nothing_is_seen_of_an_instance_that_wakes_up_behind_its_successor);
fn with_exactly_once_nothing_is_seen_of_an_instance_that_wakes_up_behind_its_successor(db: Db) {
    takes_over_from_one_that_stood_still(db, Mode::ExactlyOnce);
}

over_each!(an_instance_that_is_cut_off_from_the_database_gives_way_and_waits_in_its_turn);
fn an_instance_that_is_cut_off_from_the_database_gives_way_and_waits_in_its_turn(db: Db) {
    let _alone = heavy();
    let (mut trial, load) = Trial::new(db, Mode::AtLeastOnce);
    let address = server_of(&trial.bed);
    let way = Proxy::start(&address);
    let mut first = trial.bed.relay(&trial.pipeline().replace(&address, &way.address()));
    let mut second = trial.instance();
    first.start();
    first.wait_ready();
    second.start();
    wait_stand_by(&mut second);
    load.allow(HALF);
    eventually(DEADLINE, "some are published", || first.published() >= HALF / 3);
    // Its connections seem to live on.
    way.half_open();
    trial.note_start();
    eventually(MISSED, "the second is ready", || is_ready(&second));
    eventually(DEADLINE, "the first has noticed", || !is_ready(&first));
    let since = trial.watermark();
    way.heal();
    wait_stand_by(&mut first);
    load.allow(HALF);
    eventually(DEADLINE, "all is committed", || load.committed() >= 2 * HALF);
    trial.wait_saved_to_the_end();
    trial.assert_unspoilt(&since);
    take_stock(&trial, load);
}

/// The address in the DSN that a bed's pipelines have.
fn server_of(bed: &Bed) -> String {
    let url = match bed {
        Bed::Postgres(bed) => &bed.postgres.url,
        Bed::Mysql(bed) => &bed.database.mysql.url,
    };
    let (_, behind) = url.rsplit_once('@').expect("a user");
    let (address, _) = behind.split_once('/').expect("a database");
    address.to_owned()
}
