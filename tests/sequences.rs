//! Numbers that go up by one in each aggregate: what is wrong with them is found once, and a restart finds nothing that is not wrong.

use crate::support::relay::Relay;
use crate::support::{Bed, DEADLINE, Db, Event, eventually, over_each};

const PIPELINE: &str = "
apiVersion: tailpost/v1
kind: Pipeline
metadata: {name: <name>}
spec:
  source: {type: <type>, config: {<source>, outbox: {<outbox>}}}
  processors:
    - {type: validate, sequence: {field: payload.n, on_repeat: dead_letter, on_backwards: ignore}}
    - {type: outbox, topic: '<topic>', raw_payload: true}
  sinks: [{type: kafka, config: {id: k1, brokers: '<brokers>'}}]
  dead_letter: {type: kafka, config: {topic: '<name>.dead'}}
";

fn event(key: &str, number: usize) -> Event {
    Event::of(format!(r#"{{"n": {number}}}"#)).key(key)
}

/// The next number of each of some keys, in one transaction, so often.
fn write(bed: &Bed, numbers: std::ops::Range<usize>) {
    let mut app = bed.app();
    for number in numbers {
        app.begin();
        let events: Vec<Event> = ["a", "b", "c"].map(|key| event(key, number)).into();
        app.emit_all(&events).unwrap();
        app.commit();
    }
}

fn faults(relay: &Relay) -> [u64; 3] {
    let count = |kind| relay.metric("tailpost_sequence_faults_total", &[("kind", kind)]) as u64;
    ["repeat", "gap", "backwards"].map(count)
}

over_each!(a_number_out_of_sequence_is_counted_and_goes_its_way);
fn a_number_out_of_sequence_is_counted_and_goes_its_way(db: Db) {
    let bed = Bed::new(db);
    let mut relay = bed.relay(PIPELINE);
    relay.start();
    relay.wait_ready();
    let mut app = bed.app();
    for (key, number) in [("a", 7), ("b", 1), ("a", 8), ("a", 8), ("b", 3), ("a", 2), ("a", 9)] {
        app.emit(&event(key, number));
    }
    relay.wait_settled(7);
    assert_eq!(relay.published(), 6);
    assert_eq!(relay.dead_lettered("schema_validation_failed"), 1);
    let mut dead = bed.kafka.reader(&[format!("{}.dead", bed.name)]);
    let error = dead.exactly(1)[0].header("tailpost-dlq-error").unwrap().to_owned();
    let expected =
        "`payload.n` is 8, once more: expected 9, behind the highest of its aggregate (`sequence.on_repeat`)";
    assert!(error.ends_with(expected), "{error}");
    eventually(DEADLINE, "counts of three kinds", || faults(&relay) == [1, 1, 1]);
    assert_eq!(relay.count_log("out of sequence"), 1, "the gap alone");
}

/// Kills it at these moments of as many lives, and then looks what the next one finds wrong.
fn survives(bed: &Bed, pipeline: &str, moments: &[&str]) {
    let mut relay = bed.relay(pipeline);
    relay.start();
    relay.wait_ready();
    write(bed, 0..20);
    bed.wait_done_to_the_end(&relay);
    relay.sigkill();
    let mut next = 20;
    for moment in moments {
        write(bed, next..next + 20);
        next += 20;
        relay.arm(Some(moment));
        relay.start();
        relay.wait_killed();
    }
    relay.arm(None);
    relay.start();
    relay.wait_ready();
    bed.wait_done_to_the_end(&relay);
    assert_eq!(faults(&relay), [0; 3]);
    assert_eq!(relay.count_log("out of sequence"), 0);
    assert_eq!(relay.count_log("learned anew"), 0);
    // What it knows is what was before: the numbers are those of another life.
    relay.sigterm();
    assert_eq!(relay.wait_exit(DEADLINE), 0);
    relay.start();
    relay.wait_ready();
    let mut app = bed.app();
    app.emit(&event("a", next + 1));
    app.emit(&event("b", next));
    app.emit(&event("b", next));
    eventually(DEADLINE, "a gap and a repeat", || faults(&relay) == [1, 1, 0]);
}

over_each!(a_restart_takes_what_comes_again_for_no_repeat);
fn a_restart_takes_what_comes_again_for_no_repeat(db: Db) {
    let bed = Bed::new(db);
    survives(
        &bed,
        PIPELINE,
        &["send:17", "ack:1", "before_save:1", "after_numbers:1", "after_save:1"],
    );
}

#[test]
fn a_restart_of_exactly_once_takes_what_comes_again_for_no_repeat() {
    let bed = Bed::new(Db::Postgres);
    let checkpoint = "  checkpoint: {type: kafka, config: {topic: '<name>.positions', replication_factor: 1}}\n";
    let pipeline = PIPELINE.replace("id: k1", "id: k1, exactly_once: true") + checkpoint;
    survives(
        &bed,
        &pipeline,
        &["send:17", "before_commit:1", "after_commit:1", "ack:1"],
    );
}

#[test]
fn a_position_that_was_set_by_hand_makes_numbers_be_learned_anew() {
    let bed = Bed::new(Db::Postgres);
    let mut relay = bed.relay(PIPELINE);
    relay.start();
    relay.wait_ready();
    write(&bed, 0..5);
    bed.wait_done_to_the_end(&relay);
    relay.sigterm();
    assert_eq!(relay.wait_exit(DEADLINE), 0);
    // As another machine would have it, that went on from there.
    let numbers = relay.state_dir().join(format!("{}.sequences.sqlite", bed.name));
    let old = std::fs::read(&numbers).expect("numbers");
    relay.start();
    relay.wait_ready();
    write(&bed, 5..10);
    bed.wait_done_to_the_end(&relay);
    relay.sigterm();
    assert_eq!(relay.wait_exit(DEADLINE), 0);
    std::fs::write(&numbers, old).expect("the numbers of before");
    relay.start();
    relay.wait_ready();
    write(&bed, 10..12);
    bed.wait_done_to_the_end(&relay);
    assert_eq!(relay.count_log("learned anew"), 1);
    assert_eq!(faults(&relay), [0; 3]);
}
