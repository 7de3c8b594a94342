//! Where it goes on: behind what was saved, to the very change. What was saved does not come again, the rest does come.

use std::collections::HashSet;

use tailpost::position::Position;

use crate::support::kafka::Record;
use crate::support::place::Place;
use crate::support::plot::Plot;
use crate::support::relay::Relay;
use crate::support::{ANY_OUTBOX, Bed, DEADLINE, Db, Event, eventually, found, heavy, over_each};

/// Each event to the topic that its field `gate` names. A topic that is not there holds the sink just before the event.
const GATED: &str = "
apiVersion: tailpost/v1
kind: Pipeline
metadata: {name: <name>}
spec:
  source: {type: <type>, config: {<source>, tables: [<schema>.t], outbox: {tables: [<schema>.gated_outbox]}}}
  processors:
    - {type: outbox, topic: '<name>.${gate}', columns: {payload: pad}, raw_payload: true}
  sinks:
    - {type: kafka, config: {id: k1, brokers: '<brokers>', topic: '<name>.${gate}', client_conf: {allow.auto.create.topics: false}}}
  delivery: {drain_timeout: 1s}
";

/// An event of this size fills a batch, so that a position behind it alone is saved.
pub(crate) const BATCH: usize = 1_100_000;
pub(crate) const SMALL: usize = 10;

fn gated_bed(db: Db) -> (Bed, Relay) {
    let bed = Bed::new(db);
    let (long, end) = match db {
        Db::Postgres => ("text", ""),
        Db::Mysql | Db::Mariadb => ("longtext", "ENGINE = InnoDB"),
    };
    let mut app = bed.app();
    for table in ["t", "gated_outbox", "unlisted"] {
        app.run(&format!(
            "CREATE TABLE {table} (number serial PRIMARY KEY, gate varchar(20), pad {long}) {end}"
        ));
    }
    let relay = bed.relay(GATED);
    (bed, relay)
}

pub(crate) fn open_gate(bed: &Plot, gate: &str) {
    bed.kafka
        .create_topic(&bed.topic(gate), 1, &[("max.message.bytes", "2000000")]);
}

/// Waits until the event of this gate is next and cannot pass.
pub(crate) fn wait_held(bed: &Plot, relay: &mut Relay, gate: &str) {
    relay.wait_not_ready(&format!("topic `{}` does not exist", bed.topic(gate)));
}

fn wait_saved(relay: &Relay, what: &str, mut condition: impl FnMut(&Position) -> bool) -> Position {
    found(DEADLINE, &format!("saved {what}"), || {
        relay.position().filter(|saved| condition(saved))
    })
}

fn place(record: &Record) -> Place {
    Place::of(record.header("df-event-id").expect("an event id"))
}

/// The rest comes in a new life, and then every gate's event has come once.
fn assert_each_comes_once(bed: &Bed, relay: &mut Relay, gates: &[&str], saved: usize) {
    relay.start();
    relay.wait_published((gates.len() - saved) as u64);
    let mut reader = bed.reader(gates);
    let topics: Vec<String> = reader.exactly(gates.len()).iter().map(|r| r.topic.clone()).collect();
    let mut distinct = topics.clone();
    distinct.sort();
    distinct.dedup();
    assert_eq!(distinct.len(), gates.len(), "{topics:?}");
    relay.sigterm();
    assert_eq!(relay.wait_exit(DEADLINE), 0);
    relay.start_with(&["--once"]);
    assert_eq!(relay.wait_exit(DEADLINE), 0);
    reader.exactly(gates.len());
}

/// An outbox row, an ordinary row and an outbox row of one transaction, stopped in front of the one with this number.
fn stopped_between(db: Db, number: usize, stop: impl FnOnce(&mut Relay)) {
    let gates = ["a", "b", "c"];
    let (bed, mut relay) = gated_bed(db);
    for gate in &gates[..number] {
        open_gate(&bed, gate);
    }
    relay.start();
    relay.wait_ready();
    let mut app = bed.app();
    app.begin();
    for (table, gate, size) in [
        ("gated_outbox", "a", BATCH),
        ("unlisted", "none", SMALL),
        ("t", "b", BATCH),
        ("unlisted", "none", SMALL),
        ("gated_outbox", "c", SMALL),
    ] {
        app.run(&format!(
            "INSERT INTO {table} (gate, pad) VALUES ('{gate}', repeat('x', {size}))"
        ));
    }
    app.commit();
    wait_held(&bed, &mut relay, gates[number]);
    if number > 0 {
        let first = place(&bed.reader(&["a"]).exactly(1)[0]);
        wait_saved(&relay, &format!("behind {number} of three"), |saved| {
            first.is_inside(saved) && is_behind(saved, &first, number)
        });
    }
    stop(&mut relay);
    for gate in &gates[number..] {
        open_gate(&bed, gate);
    }
    assert_each_comes_once(&bed, &mut relay, &gates, number);
}

/// Whether a place inside the transaction is behind this many of its events.
fn is_behind(saved: &Position, first: &Place, events: usize) -> bool {
    match (saved, first) {
        (Position::Postgres(saved), Place::Postgres(_, change, _)) => {
            let partial = saved.partial.expect("inside a transaction");
            (partial.change > *change) == (events > 1)
        }
        (Position::Mysql(saved), _) => {
            let rows: u64 = saved.partial[0].rows.0.values().sum();
            rows == events as u64
        }
        _ => panic!("{saved} and {first:?} are of different databases"),
    }
}

over_each!(killed_before_a_transaction_each_of_its_rows_comes_once);
fn killed_before_a_transaction_each_of_its_rows_comes_once(db: Db) {
    stopped_between(db, 0, Relay::sigkill);
}

over_each!(killed_between_rows_of_one_transaction_each_comes_once);
fn killed_between_rows_of_one_transaction_each_comes_once(db: Db) {
    stopped_between(db, 1, Relay::sigkill);
    stopped_between(db, 2, Relay::sigkill);
}

over_each!(stopped_inside_a_transaction_the_drain_saves_the_place_and_each_comes_once);
fn stopped_inside_a_transaction_the_drain_saves_the_place_and_each_comes_once(db: Db) {
    for number in [1, 2] {
        stopped_between(db, number, |relay| {
            relay.sigterm();
            assert_eq!(relay.wait_exit(DEADLINE), 0);
            assert!(relay.log().contains("drain_timeout is over"), "{}", relay.log());
        });
    }
}

/// The topic of an event of a large transaction: its second half waits for one that is not there before the kill.
pub(crate) fn half(number: usize, count: usize) -> &'static str {
    if number < count / 2 { "a" } else { "b" }
}

/// One transaction of numbered events to their [`half`], killed while it is relayed and a place inside it is saved.
///
/// `pipeline` has `<delivery>` in place of the delivery's options.
pub(crate) fn killed_inside_a_large_transaction(bed: &Bed, pipeline: &str, count: usize, write: impl FnOnce()) {
    let _alone = heavy();
    let mut relay = bed.relay(&pipeline.replace("<delivery>", "max_in_flight_events: 300"));
    bed.kafka.create_topic(&bed.topic("a"), 4, &[]);
    relay.start();
    relay.wait_ready();
    write();
    let middle = |saved: &Position| match saved {
        Position::Postgres(saved) => saved.partial.is_some(),
        Position::Mysql(saved) => !saved.partial.is_empty(),
    };
    eventually(DEADLINE, "a quarter acked", || {
        bed.kafka.ends(&bed.topic("a")).values().sum::<i64>() > count as i64 / 4
    });
    wait_saved(&relay, "a place inside", middle);
    relay.sigkill();
    let saved = wait_saved(&relay, "a place inside", middle);
    let before = bed.reader(&["a"]).all().len();
    assert!(before < count, "all {count} came before it was killed");
    bed.kafka.create_topic(&bed.topic("b"), 4, &[]);
    let mut reader = bed.reader(&["a", "b"]);
    relay.rewrite(&bed.fill(&pipeline.replace("<delivery>", "drain_timeout: 1s")));
    relay.start();
    let number = |record: &Record| -> usize { record.value_text().unwrap().parse().unwrap() };
    let (mut seen, mut looked_at) = (HashSet::new(), 0);
    reader.until("each message", |records| {
        seen.extend(records[looked_at..].iter().map(number));
        looked_at = records.len();
        seen.len() == count
    });
    relay.wait_settled(1);
    let mut times = vec![0_u32; count];
    let mut repeated = 0;
    for record in reader.all() {
        let number = number(record);
        times[number] += 1;
        if times[number] > 1 {
            repeated += 1;
            let place = place(record);
            assert!(place.is_inside(&saved), "{number} is not of the transaction of {saved}");
            assert!(!place.is_done(&saved), "{number} was saved at {saved} and came again");
        }
    }
    println!("{repeated} of {count} came again, {before} had come before it was killed");
}

over_each!(killed_inside_a_transaction_of_50_000_rows_it_repeats_only_what_was_not_saved: mysql, mariadb);
fn killed_inside_a_transaction_of_50_000_rows_it_repeats_only_what_was_not_saved(db: Db) {
    let bed = Bed::new(db);
    const COUNT: usize = 50_000;
    let gated = ANY_OUTBOX.replace("'<topic>'", "'<name>.${event_type}'").replace(
        "brokers: '<brokers>'",
        "brokers: '<brokers>', client_conf: {allow.auto.create.topics: false}",
    );
    let pipeline = format!("{gated}  delivery: {{<delivery>}}\n");
    killed_inside_a_large_transaction(&bed, &pipeline, COUNT, || {
        let mut app = bed.app();
        app.begin();
        for thousand in 0..COUNT / 1000 {
            let numbers = thousand * 1000..(thousand + 1) * 1000;
            let events: Vec<Event> = numbers
                .map(|number: usize| {
                    let event = Event::of(number.to_string()).key((number % 1000).to_string());
                    event.event_type(half(number, COUNT))
                })
                .collect();
            app.emit_all(&events).unwrap();
        }
        app.commit();
    });
}

over_each!(busy_neighbours_let_an_idle_outbox_go_on_and_repeat_nothing);
fn busy_neighbours_let_an_idle_outbox_go_on_and_repeat_nothing(db: Db) {
    let (bed, other) = (Bed::new(db), Bed::new(db));
    let mut relay = bed.relay(ANY_OUTBOX);
    relay.start();
    relay.wait_ready();
    bed.app().emit(&Event::of("1"));
    relay.wait_published(1);
    for (neighbour, what) in [(&bed, "of the same database"), (&other, "of another database")] {
        neighbour.app().write_elsewhere(60);
        let end = neighbour.log_end();
        eventually(DEADLINE, &format!("the log {what} done with"), || {
            bed.is_done(&relay, &end)
        });
    }
    relay.sigkill();
    relay.start_with(&["--once"]);
    assert_eq!(relay.wait_exit(DEADLINE), 0);
    assert_eq!(bed.reader(&["events"]).exactly(1)[0].value_text(), Some("1"));
}
