//! Where it goes on in PostgreSQL's log, in which changes can share an LSN: behind what was saved, to the very change.

use std::io::Write;
use std::ops::Range;

use tailpost::position::{Lsn, PostgresPosition};

use crate::resume::{BATCH, SMALL, half, killed_inside_a_large_transaction, open_gate, wait_held};
use crate::support::kafka::Record;
use crate::support::relay::Relay;
use crate::support::server::OwnServer;
use crate::support::{Bed, DEADLINE, Emit, TestBed, eventually, found, variable};

/// Each event to the topic that its field `gate` names. A topic that is not there holds the sink just before the event.
const GATED: &str = "
apiVersion: tailpost/v1
kind: Pipeline
metadata: {name: <name>}
spec:
  source:
    type: postgres
    config:
      id: pg1
      dsn: '<dsn>'
      slot: <slot>
      publication: <publication>
      outbox: {prefixes: [outbox], tables: [gated_outbox]}
      tables: [t]
  processors:
    - {type: outbox, topic: '<name>.${gate}', columns: {payload: pad}, raw_payload: true}
  sinks:
    - {type: kafka, config: {id: k1, brokers: '<brokers>', topic: '<name>.${gate}', client_conf: {allow.auto.create.topics: false}}}
  delivery: {drain_timeout: 1s}
";

fn gated_bed() -> (TestBed, Relay) {
    let bed = TestBed::new();
    bed.app()
        .batch_execute(
            "CREATE TABLE t (id serial PRIMARY KEY, gate text, pad text);
             CREATE TABLE gated_outbox (number bigserial PRIMARY KEY, gate text, pad text)",
        )
        .unwrap();
    let relay = bed.relay(GATED);
    (bed, relay)
}

fn wait_saved(relay: &Relay, what: &str, mut condition: impl FnMut(&PostgresPosition) -> bool) -> PostgresPosition {
    found(DEADLINE, &format!("saved {what}"), || {
        relay.saved().filter(|saved| condition(saved))
    })
}

/// The rest comes in a new life, and then every gate's event has come once.
fn assert_each_comes_once(bed: &TestBed, relay: &mut Relay, gates: &[&str], saved: usize) {
    relay.start();
    relay.wait_settled((gates.len() - saved) as u64);
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

/// A row, a message and a row of one transaction, stopped in front of the one with this number.
fn stopped_between(number: usize, stop: impl FnOnce(&mut Relay)) {
    let gates = ["a", "b", "c"];
    let (bed, mut relay) = gated_bed();
    for gate in &gates[..number] {
        open_gate(&bed, gate);
    }
    relay.start();
    relay.wait_ready();
    let mut app = bed.app();
    let mut transaction = app.transaction().unwrap();
    let row = "INSERT INTO t (gate, pad) VALUES ($1, $2)";
    transaction.execute(row, &[&"a", &"x".repeat(BATCH)]).unwrap();
    let message = transaction.emit("outbox", &format!(r#"{{"gate": "b", "pad": "{}"}}"#, "x".repeat(BATCH)));
    transaction.execute(row, &[&"c", &"x".repeat(SMALL)]).unwrap();
    transaction.commit().unwrap();
    wait_held(&bed, &mut relay, gates[number]);
    match number {
        0 => {}
        1 => drop(wait_saved(&relay, "behind the first row", |saved| {
            saved.partial.is_some_and(|partial| partial.change < message)
        })),
        _ => drop(wait_saved(&relay, "behind the message", |saved| {
            saved.partial.is_some_and(|partial| partial.change == message)
        })),
    }
    stop(&mut relay);
    for gate in &gates[number..] {
        open_gate(&bed, gate);
    }
    assert_each_comes_once(&bed, &mut relay, &gates, number);
}

#[test]
fn killed_before_a_transaction_of_rows_and_a_message_each_comes_once() {
    stopped_between(0, Relay::sigkill);
}

#[test]
fn killed_between_a_row_and_a_message_of_one_transaction_each_comes_once() {
    stopped_between(1, Relay::sigkill);
}

#[test]
fn killed_between_a_message_and_a_row_of_one_transaction_each_comes_once() {
    stopped_between(2, Relay::sigkill);
}

#[test]
fn stopped_inside_a_transaction_the_drain_saves_the_place_and_each_comes_once() {
    for number in [1, 2] {
        stopped_between(number, |relay| {
            relay.sigterm();
            assert_eq!(relay.wait_exit(DEADLINE), 0);
            assert!(relay.log().contains("drain_timeout is over"), "{}", relay.log());
        });
    }
}

#[test]
fn of_two_transactions_back_to_back_the_second_comes_after_a_crash_behind_the_first() {
    let row = |gate: &str, size: usize| {
        format!("INSERT INTO gated_outbox (gate, pad) VALUES ('{gate}', repeat('x', {size}))")
    };
    let message = |gate: &str, size: usize| {
        format!(
            "SELECT pg_logical_emit_message(true, 'outbox', format('{{\"gate\": \"{gate}\", \"pad\": \"%s\"}}', repeat('x', {size})))"
        )
    };
    // A large event behind a small one: the save is at the commit. The other way round: it is at the change.
    for (first, second, at_commit) in [
        (row("a", SMALL), row("b", BATCH), true),
        (message("a", SMALL), row("b", BATCH), true),
        (row("a", SMALL), message("b", BATCH), true),
        (row("a", BATCH), row("b", SMALL), false),
    ] {
        let (bed, mut relay) = gated_bed();
        open_gate(&bed, "a");
        relay.start();
        relay.wait_ready();
        // One round trip, so that nothing comes between them.
        bed.app()
            .batch_execute(&format!("BEGIN; {first}; COMMIT; BEGIN; {second}; COMMIT"))
            .unwrap();
        wait_held(&bed, &mut relay, "b");
        let mut reader = bed.reader(&["a"]);
        let first = reader.exactly(1)[0].clone();
        let (commit, _, _) = place(&first);
        wait_saved(&relay, "behind the first", |saved| match saved.partial {
            None => at_commit && saved.base > commit,
            Some(partial) => !at_commit && partial.commit == commit,
        });
        relay.sigkill();
        open_gate(&bed, "b");
        assert_each_comes_once(&bed, &mut relay, &["a", "b"], 1);
    }
}

/// (LSN of the commit record, LSN of the change, its number there), of which a derived event id is made.
fn place(record: &Record) -> (Lsn, Lsn, u32) {
    let id = record.header("df-event-id").expect("an event id");
    let mut parts = id.split('-');
    let mut lsn = || Lsn(u64::from_str_radix(parts.next().expect("a part"), 16).expect("an LSN"));
    let (commit, change) = (lsn(), lsn());
    (
        commit,
        change,
        parts.next().expect("an index").parse().expect("a number"),
    )
}

#[test]
fn of_rows_that_share_one_lsn_the_others_come_after_a_crash_behind_the_first() {
    let (bed, mut relay) = gated_bed();
    // The second row has no topic: the policy halts, and what is saved then lies between two rows of one LSN.
    let halting = bed.fill(
        &GATED
            .replace("topic: '<name>.${gate}', ", "")
            .replace("payload: pad", "topic: gate, payload: pad"),
    );
    relay.rewrite(&halting);
    open_gate(&bed, "first");
    relay.start();
    relay.wait_ready();
    let mut app = bed.app();
    let mut copy = app.copy_in("COPY gated_outbox (gate, pad) FROM STDIN").unwrap();
    write!(copy, "{}\t1\n\\N\t2\n\\N\t3\n", bed.topic("first")).unwrap();
    copy.finish().unwrap();
    relay.wait_halted(&["unroutable", "policy errors.unroutable: halt"]);
    let saved = relay
        .saved()
        .unwrap()
        .partial
        .expect("it stopped inside the transaction");
    assert_eq!(saved.index, 0);

    // Held in front of the second row by a topic that is not there.
    let rest = format!("raw_payload: true, default_topic: '{}'", bed.topic("rest"));
    relay.rewrite(&halting.replace("raw_payload: true", &rest));
    relay.start();
    wait_held(&bed, &mut relay, "rest");
    relay.sigkill();
    assert_eq!(relay.saved().unwrap().partial, Some(saved));
    open_gate(&bed, "rest");
    relay.start();
    relay.wait_settled(2);
    let mut reader = bed.reader(&["first", "rest"]);
    let records = reader.exactly(3);
    let mut values: Vec<(&str, Lsn, u32)> = records
        .iter()
        .map(|record| {
            let (_, change, index) = place(record);
            (record.value_text().unwrap(), change, index)
        })
        .collect();
    values.sort_unstable();
    assert_eq!(
        values,
        [("1", saved.change, 0), ("2", saved.change, 1), ("3", saved.change, 2)]
    );
}

fn killed_inside(count: usize, write: impl FnOnce(&TestBed)) {
    let (bed, _) = gated_bed();
    let pipeline = GATED.replace("drain_timeout: 1s", "<delivery>");
    let bed = Bed::Postgres(bed);
    killed_inside_a_large_transaction(&bed, &pipeline, count, || match &bed {
        Bed::Postgres(bed) => write(bed),
        Bed::Mysql(_) => unreachable!("it was just made"),
    });
}

#[test]
fn killed_inside_a_transaction_of_200_000_messages_it_repeats_only_what_was_not_saved() {
    const COUNT: usize = 200_000;
    killed_inside(COUNT, |bed| {
        let emit = |gate, numbers: Range<usize>| {
            format!(
                r#"SELECT count(pg_logical_emit_message(true, 'outbox', format('{{"gate": "{gate}", "aggregate_id": "%s", "pad": %s}}', n % 1000, n)))
                   FROM generate_series({}, {}) n;"#,
                numbers.start,
                numbers.end - 1
            )
        };
        let halves = [
            emit(half(0, COUNT), 0..COUNT / 2),
            emit(half(COUNT, COUNT), COUNT / 2..COUNT),
        ];
        bed.app()
            .batch_execute(&format!("BEGIN; {} COMMIT", halves.join(" ")))
            .unwrap();
    });
}

#[test]
fn killed_inside_a_copy_of_100_000_rows_it_repeats_only_what_was_not_saved() {
    const COUNT: usize = 100_000;
    killed_inside(COUNT, |bed| {
        let mut app = bed.app();
        let mut copy = app.copy_in("COPY gated_outbox (gate, pad) FROM STDIN").unwrap();
        for number in 0..COUNT {
            writeln!(copy, "{}\t{number}", half(number, COUNT)).unwrap();
        }
        copy.finish().unwrap();
    });
}

#[test]
fn transactions_that_are_open_or_prepared_over_a_restart_come_when_they_commit() {
    // One of its own: a slot that is made waits for all transactions that are open on its server.
    let server = OwnServer::postgres("");
    let bed = TestBed::on(server.addresses(), &variable("TAILPOST_TEST_KAFKA"));
    let mut relay = bed.relay(crate::support::OUTBOX);
    relay.start();
    relay.wait_ready();
    let (mut open, mut app) = (bed.app(), bed.app());
    let mut open = open.transaction().unwrap();
    open.emit("outbox", r#"{"payload": "open"}"#);
    for name in ["kept", "dropped"] {
        app.batch_execute(&format!(
            r#"BEGIN; SELECT pg_logical_emit_message(true, 'outbox', '{{"payload": "{name}"}}'); PREPARE TRANSACTION '{}_{name}'"#,
            bed.name
        ))
        .unwrap();
    }
    for life in 0..3 {
        app.emit("outbox", &format!(r#"{{"payload": {life}}}"#));
        relay.wait_settled(1);
        let end: Lsn = app
            .query_one("SELECT pg_current_wal_flush_lsn()::text", &[])
            .unwrap()
            .get::<_, &str>(0)
            .parse()
            .unwrap();
        eventually(DEADLINE, "everything confirmed", || bed.confirmed() >= Some(end));
        relay.sigkill();
        relay.start();
        relay.wait_ready();
    }
    open.emit("outbox", r#"{"payload": "open still"}"#);
    open.commit().unwrap();
    for statement in ["ROLLBACK PREPARED '{}_dropped'", "COMMIT PREPARED '{}_kept'"] {
        app.batch_execute(&statement.replace("{}", &bed.name)).unwrap();
    }
    relay.wait_settled(3);
    let expected = ["0", "1", "2", r#""open""#, r#""open still""#, r#""kept""#];
    assert_eq!(values(&bed, 6), expected);
}

#[test]
fn without_a_checkpoint_it_goes_on_at_the_slots_confirmed_position() {
    let bed = TestBed::new();
    let mut relay = bed.relay(crate::support::OUTBOX);
    relay.start();
    relay.wait_ready();
    let mut app = bed.app();
    app.emit("outbox", r#"{"payload": 1}"#);
    relay.wait_settled(1);
    relay.sigterm();
    assert_eq!(relay.wait_exit(DEADLINE), 0);
    app.emit("outbox", r#"{"payload": 2}"#);
    std::fs::remove_file(relay.checkpoint_file()).unwrap();
    relay.start();
    relay.wait_settled(1);
    assert_eq!(values(&bed, 2), ["1", "2"]);
}

fn values(bed: &TestBed, count: usize) -> Vec<String> {
    let mut reader = bed.reader(&["events"]);
    let records = reader.exactly(count).iter();
    records.map(|record| record.value_text().unwrap().to_owned()).collect()
}
