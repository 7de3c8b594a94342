//! Several sinks in one pipeline: what each is given, which of them the position waits for, and what those lose that nothing waits for.

use std::ffi::OsString;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use crate::support::cli::tailpost;
use crate::support::relay::Relay;
use crate::support::target::{Answer, Target};
use crate::support::{Bed, DEADLINE, Db, Event, eventually, over_each};

/// The position is saved where all three have an event: a topic, a target and a file.
const PIPELINE: &str = "
apiVersion: tailpost/v1
kind: Pipeline
metadata: {name: <name>}
spec:
  source: {type: <type>, config: {<source>, outbox: {<outbox>}}}
  processors: [{type: outbox, topic: '<topic>', raw_payload: true}]
  sinks:
    - {type: file, config: {id: lines, path: events.jsonl<lines>}}
    - {type: http, config: {id: target, url: '<url>/in', retry: {base_delay: 10ms, max_delay: 50ms, max_attempts: unlimited}<target>}}
    - {type: kafka, config: {id: topic, brokers: '<brokers>'<topic-sink>}}
";

/// `keys` are more of each sink, `more` is more of the file.
fn relay(bed: &Bed, target: &Target, keys: [&str; 3], more: &str) -> Relay {
    relay_of(&format!("{PIPELINE}{more}"), bed, target, keys)
}

fn relay_of(pipeline: &str, bed: &Bed, target: &Target, keys: [&str; 3]) -> Relay {
    let pipeline = pipeline
        .replace("<url>", &target.url())
        .replace("<lines>", keys[0])
        .replace("<target>", keys[1])
        .replace("<topic-sink>", keys[2]);
    bed.kafka.create_topic(&bed.events(), 1, &[]);
    let mut relay = bed.relay(&pipeline);
    relay.start();
    relay.wait_ready();
    relay
}

/// The values in the file.
fn lines(relay: &Relay) -> Vec<String> {
    let text = fs::read_to_string(relay.pipeline_file().with_file_name("events.jsonl")).unwrap_or_default();
    let whole = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    whole.map(|line| line["value"].to_string()).collect()
}

fn bodies(target: &Target) -> Vec<String> {
    target
        .requests()
        .iter()
        .map(|request| request.text().to_owned())
        .collect()
}

fn of_sink(relay: &Relay, metric: &str, sink: &str) -> u64 {
    relay.metric(&format!("tailpost_{metric}"), &[("sink", sink)]) as u64
}

fn wait_published(relay: &Relay, sink: &str, count: u64) {
    eventually(DEADLINE, &format!("{count} published by {sink}"), || {
        of_sink(relay, "events_published_total", sink) >= count
    });
}

/// The position on disk.
fn saved(relay: &Relay) -> Option<String> {
    relay.position().map(|position| position.to_string())
}

/// What a command of `tailpost dlq` says.
fn dlq(relay: &Relay, command: &str, more: &[&str]) -> String {
    let mut arguments: Vec<OsString> = vec!["dlq".into(), command.into(), relay.pipeline_file().into_os_string()];
    arguments.extend(["--state-dir".into(), relay.state_dir().into_os_string()]);
    arguments.extend(more.iter().map(Into::into));
    tailpost(arguments).stdout
}

fn letters(relay: &Relay, more: &[&str]) -> Vec<Value> {
    let listed = dlq(relay, "list", &[&["--json"], more].concat());
    serde_json::from_str(&listed).expect("a list in JSON")
}

/// A target that answers 503 until it is told otherwise.
fn gated() -> (Target, Arc<AtomicBool>) {
    let open = Arc::new(AtomicBool::new(false));
    let target = Target::new({
        let open = Arc::clone(&open);
        move |_, _| Answer::Status(if open.load(Ordering::Acquire) { 200 } else { 503 })
    });
    (target, open)
}

fn emit(bed: &Bed, numbers: std::ops::RangeInclusive<u32>) {
    let mut app = bed.app();
    for number in numbers {
        app.emit(&Event::of(number.to_string()).key("k"));
    }
}

fn texts(numbers: std::ops::RangeInclusive<u32>) -> Vec<String> {
    numbers.map(|number| number.to_string()).collect()
}

over_each!(the_position_waits_for_the_slowest_and_each_has_every_event_in_its_order);
fn the_position_waits_for_the_slowest_and_each_has_every_event_in_its_order(db: Db) {
    let bed = Bed::new(db);
    let (target, open) = gated();
    let mut relay = relay(&bed, &target, ["", "", ""], "");
    emit(&bed, 1..=20);
    wait_published(&relay, "topic", 20);
    wait_published(&relay, "lines", 20);
    relay.wait_not_ready("sink `target`: ");
    assert_eq!(of_sink(&relay, "sink_up", "target"), 0);
    let before = saved(&relay);
    assert_eq!(of_sink(&relay, "events_published_total", "target"), 0);
    // All of it comes again: nothing was saved beyond what the target has.
    relay.sigkill();
    relay.start();
    wait_published(&relay, "topic", 20);
    assert_eq!(saved(&relay), before);
    open.store(true, Ordering::Release);
    wait_published(&relay, "target", 20);
    wait_published(&relay, "lines", 20);
    relay.wait_ready();
    eventually(DEADLINE, "the position saved", || saved(&relay) != before);
    assert_eq!(of_sink(&relay, "events_lost_total", "target"), 0);
    relay.sigterm();
    assert_eq!(relay.wait_exit(DEADLINE), 0);

    let mut answered = bodies(&target);
    answered.dedup();
    assert_eq!(answered, texts(1..=20), "in order, whatever was tried again");
    assert_eq!(lines(&relay), [texts(1..=20), texts(1..=20)].concat());
    let mut reader = bed.kafka.reader(&[bed.events()]);
    let records: Vec<_> = reader.all().iter().filter_map(|record| record.value_text()).collect();
    assert_eq!(records, [texts(1..=20), texts(1..=20)].concat());
}

over_each!(a_sink_that_is_not_required_holds_up_nothing_and_counts_what_it_loses: postgres, mysql);
fn a_sink_that_is_not_required_holds_up_nothing_and_counts_what_it_loses(db: Db) {
    let bed = Bed::new(db);
    let (target, open) = gated();
    let delivery = "  delivery: {max_in_flight_events: 100}\n";
    let mut relay = relay(
        &bed,
        &target,
        ["", ", required: false, batch: {max_events: 1000}", ""],
        delivery,
    );
    let count = 50_000;
    let before = saved(&relay);
    let thousand: Vec<Event> = (0..1000).map(|number| Event::of(number.to_string()).key("k")).collect();
    for _ in 0..count / 1000 {
        bed.app().emit_all(&thousand).expect("commit");
    }
    wait_published(&relay, "topic", count);
    wait_published(&relay, "lines", count);
    relay.wait_ready();
    eventually(DEADLINE, "the position saved", || saved(&relay) != before);
    let status = relay.status();
    let sink = status["pipelines"][0]["sinks"].as_array().expect("sinks");
    let sink = sink.iter().find(|sink| sink["id"] == "target").expect("the target");
    assert_eq!(sink["required"], false);
    assert!(
        sink["trouble"].as_str().is_some_and(|trouble| trouble.contains("503")),
        "{sink}"
    );
    let lost = sink["lost"].as_u64().expect("a count");
    assert!(lost > 0 && lost < count, "{sink}");
    open.store(true, Ordering::Release);
    // What it had room for, it gets.
    wait_published(&relay, "target", count - lost);
    assert_eq!(of_sink(&relay, "events_lost_total", "target"), lost);
    let text = tailpost(["status", "--http", &relay.http()]).stdout;
    assert!(
        text.contains(&format!(
            "target: published {}, not waited for, lost {lost}",
            count - lost
        )),
        "{text}"
    );
}

#[test]
fn a_quorum_goes_on_without_the_others_and_stands_still_without_itself() {
    let bed = Bed::new(Db::Postgres);
    let (target, open) = gated();
    let quorum = "  commit_policy: {mode: quorum, quorum: 2}\n  delivery: {max_in_flight_events: 100}\n";
    let mut relay = relay(&bed, &target, ["", "", ""], quorum);
    let start = saved(&relay);
    emit(&bed, 1..=3);
    wait_published(&relay, "lines", 3);
    eventually(DEADLINE, "the position saved", || saved(&relay) != start);
    relay.sigterm();
    assert_eq!(relay.wait_exit(DEADLINE), 0);

    // Now all three are to have it, and the target does not: no position is saved behind it.
    let text = fs::read_to_string(relay.pipeline_file()).expect("the pipeline");
    relay.rewrite(&text.replace("quorum: 2", "quorum: 3"));
    relay.start();
    relay.wait_ready();
    emit(&bed, 4..=6);
    wait_published(&relay, "topic", 3);
    wait_published(&relay, "lines", 3);
    relay.sigkill();
    open.store(true, Ordering::Release);
    relay.start();
    wait_published(&relay, "target", 3);
    wait_published(&relay, "lines", 3);
    assert_eq!(bodies(&target)[target.requests().len() - 3..], texts(4..=6));
    assert_eq!(lines(&relay), [texts(1..=6), texts(4..=6)].concat());
}

#[test]
fn a_required_sink_that_fails_begins_anew_with_the_others_and_nothing_is_missing() {
    let bed = Bed::new(Db::Postgres);
    let target = Target::new(|_, _| Answer::Status(200));
    let halts = ["", ", halt_on: [401]", ""];
    let mut relay = relay(&bed, &target, halts, "");
    emit(&bed, 1..=5);
    wait_published(&relay, "target", 5);
    target.behave(|_, _| Answer::Status(401));
    emit(&bed, 6..=6);
    relay.wait_halted(&["sink `target`: delivery failed: ", " answers 401"]);
    target.behave(|_, _| Answer::Status(200));
    relay.start();
    emit(&bed, 7..=7);
    wait_published(&relay, "target", 2);
    wait_published(&relay, "lines", 2);
    let answered: Vec<String> = bodies(&target);
    assert_eq!(answered, ["1", "2", "3", "4", "5", "6", "6", "7"]);
    let mut written = lines(&relay);
    written.dedup();
    assert_eq!(written, texts(1..=7));
}

#[test]
fn a_letter_names_its_sink_and_is_sent_to_that_one_again() {
    let bed = Bed::new(Db::Postgres);
    let target = Target::new(|request, _| Answer::Status(if request.text() == "2" { 422 } else { 200 }));
    let dead_letter = "  dead_letter: {type: sqlite, config: {path: dead.sqlite}}\n";
    let strict = format!("{PIPELINE}{dead_letter}").replace("raw_payload: true", "raw_payload: true, strict: true");
    let mut relay = relay_of(&strict, &bed, &target, ["", "", ""]);
    let event = |payload: &str| Event::of(payload).key("k").event_type("placed");
    for payload in ["1", "2", "3"] {
        bed.app().emit(&event(payload).aggregate_type("Order"));
    }
    // Of which no record can be made: each sink parks it by itself.
    bed.app().emit(&event("4"));
    wait_published(&relay, "topic", 3);
    wait_published(&relay, "target", 2);
    eventually(DEADLINE, "a letter of each", || letters(&relay, &[]).len() == 4);
    for (sink, count) in [("target", 2), ("lines", 1), ("topic", 1)] {
        let of_sink = letters(&relay, &["--sink", sink]);
        assert_eq!(of_sink.len(), count, "{sink}");
        assert!(of_sink.iter().all(|letter| letter["sink"] == sink));
    }
    target.behave(|_, _| Answer::Status(200));
    let before = target.requests().len();
    let said = dlq(&relay, "replay", &["--sink", "target", "--reason", "permanent_failure"]);
    assert!(said.ends_with("1 published, 0 failed, 0 left out\n"), "{said}");
    assert_eq!(bodies(&target)[before..], ["2"]);
    relay.sigterm();
    assert_eq!(relay.wait_exit(DEADLINE), 0);
    assert_eq!(lines(&relay), texts(1..=3));
}

over_each!(records_that_one_sink_refuses_are_found_in_the_middle_of_a_batch: postgres, mysql);
fn records_that_one_sink_refuses_are_found_in_the_middle_of_a_batch(db: Db) {
    let bed = Bed::new(db);
    let target = Target::new(|_, _| Answer::Status(200));
    // The broker takes no record without a key for it.
    bed.kafka
        .create_topic(&bed.topic("compacted"), 1, &[("cleanup.policy", "compact")]);
    let dead_letter = "  dead_letter: {type: sqlite, config: {path: dead.sqlite}}\n";
    let pipeline = format!("{PIPELINE}{dead_letter}").replace("<topic>", &bed.topic("compacted"));
    let mut relay = relay_of(&pipeline, &bed, &target, ["", ", concurrency: 50", ""]);
    let event = |number: u32| match number {
        700 | 720 => Event::of(number.to_string()),
        number => Event::of(number.to_string()).key("k"),
    };
    // The search is not for what came before, which a position is saved behind.
    let before = saved(&relay);
    bed.app().emit(&event(0));
    eventually(DEADLINE, "the position saved", || saved(&relay) != before);
    bed.app()
        .emit_all(&(1..=1000).map(event).collect::<Vec<_>>())
        .expect("commit");
    wait_published(&relay, "topic", 1000);
    // What was found first comes again with the second, since the other sinks hold the position back before both.
    eventually(DEADLINE, "two letters", || letters(&relay, &[]).len() == 2);
    wait_published(&relay, "target", 1001);
    let before = saved(&relay);
    bed.app().emit(&event(1001));
    wait_published(&relay, "topic", 1001);
    eventually(DEADLINE, "the position saved", || saved(&relay) != before);
    relay.sigterm();
    assert_eq!(relay.wait_exit(DEADLINE), 0);
    let mut written = lines(&relay);
    written.sort_unstable();
    written.dedup();
    assert_eq!(written.len(), 1002);
}

#[test]
fn a_quorum_that_cannot_be_met_without_a_person_ends_the_pipeline() {
    let bed = Bed::new(Db::Postgres);
    let target = Target::new(|request, _| Answer::Status(if request.text() == "2" { 401 } else { 200 }));
    let quorum = "  commit_policy: {mode: quorum, quorum: 3}\n";
    let mut relay = relay(&bed, &target, ["", ", halt_on: [401]", ""], quorum);
    emit(&bed, 1..=2);
    relay.wait_halted(&["sink `target`: delivery failed: ", " answers 401"]);
    // What it had is not forgotten, and what it did not have comes again.
    target.behave(|_, _| Answer::Status(200));
    relay.start();
    wait_published(&relay, "target", 1);
    assert_eq!(bodies(&target).last().map(String::as_str), Some("2"));
}
