//! The audit ledger and dispatch records: what they have of each event, over kills, rewinds and a disk that is full, and whether
//! the ledger is as it was written.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::cli::{Ended, tailpost};
use crate::support::relay::Relay;
use crate::support::target::{Answer, Target};
use crate::support::{ANY_OUTBOX, Bed, DEADLINE, Db, Event, eventually, over_each};

/// Added to a pipeline file.
const AUDIT: &str = "  audit: {path: audit/l.jsonl, fields: {key: '${aggregate_id}', care: '${event_type}-${aggregate_id}', none: '${absent}'}}
  dispatches: {type: file, config: {path: audit/d.jsonl}}
";

fn audited() -> String {
    format!("{ANY_OUTBOX}{AUDIT}")
}

fn ledger(relay: &Relay) -> PathBuf {
    relay.state_dir().join("audit/l.jsonl")
}

fn dispatches(relay: &Relay) -> Vec<Value> {
    lines(&relay.state_dir().join("audit/d.jsonl"))
}

fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines()
        .map(|line| serde_json::from_str(line).expect("a line of JSON"))
        .collect()
}

/// Lines of events, in all files of the ledger.
fn event_lines(relay: &Relay) -> Vec<Value> {
    let path = ledger(relay);
    let folder = fs::read_dir(path.parent().expect("a folder")).expect("the folder");
    let mut full: Vec<PathBuf> = folder
        .map(|entry| entry.expect("an entry").path())
        .filter(|file| file.to_string_lossy().contains("l.jsonl.0"))
        .collect();
    full.sort();
    full.push(path);
    let all = full.iter().flat_map(|file| lines(file));
    all.filter(|line| line.get("continues").is_none()).collect()
}

fn verify<S: AsRef<OsStr>>(path: &Path, arguments: impl IntoIterator<Item = S>) -> Ended {
    let given: Vec<OsString> = arguments.into_iter().map(|word| word.as_ref().to_owned()).collect();
    let fixed = ["ledger".into(), "verify".into(), path.as_os_str().to_owned()];
    tailpost(fixed.into_iter().chain(given))
}

fn verified(relay: &Relay) -> String {
    let ended = verify(&ledger(relay), [""; 0]);
    assert_eq!(ended.code, 0, "{ended:?}");
    ended.stdout
}

fn drain(relay: &mut Relay) {
    relay.sigterm();
    assert_eq!(relay.wait_exit(DEADLINE), 0);
}

over_each!(each_event_has_its_line_and_its_record);
fn each_event_has_its_line_and_its_record(db: Db) {
    let bed = Bed::new(db);
    bed.kafka.create_topic(&bed.topic("dead"), 1, &[]);
    let parking = audited().replace("raw_payload: true", "raw_payload: true, strict: true");
    let mut relay = bed.relay(&format!(
        "{parking}  dead_letter: {{type: kafka, config: {{topic: '<name>.dead'}}}}\n"
    ));
    relay.start();
    relay.wait_ready();
    let event = |id: &str| Event::of("1").id(id).key("7").aggregate_type("Order");
    let mut app = bed.app();
    app.emit(&event("a").event_type("placed"));
    app.emit(&event("b"));
    app.emit(&event("c").event_type("paid"));
    relay.wait_settled(3);
    drain(&mut relay);

    let found: Vec<Value> = event_lines(&relay)
        .iter()
        .map(|line| {
            json!([
                line["outbox_id"],
                line["event_name"],
                line["key"],
                line["care"],
                line["none"],
                line["sink"],
                line["status"],
                line["reason"],
                line["attempt"],
                line["duplicate"]
            ])
        })
        .collect();
    let reason = "schema_validation_failed";
    assert_eq!(
        found,
        [
            json!(["a", "placed", "7", "placed-7", null, "k1", "published", null, 1, false]),
            json!(["b", null, "7", null, null, "k1", "dead_letter", reason, 0, false]),
            json!(["c", "paid", "7", "paid-7", null, "k1", "published", null, 1, false]),
        ]
    );
    let error = event_lines(&relay)[1]["last_error"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    assert!(error.contains("event_type"), "{error}");
    let records = dispatches(&relay);
    let found: Vec<Value> = records
        .iter()
        .map(|record| {
            json!([
                record["outbox_id"],
                record["pipeline_id"],
                record["event_name"],
                record["dispatch_status"],
                record["duplicate_detected"]
            ])
        })
        .collect();
    let name = &bed.name;
    assert_eq!(
        found,
        [
            json!(["a", name, "placed", "published", false]),
            json!(["b", name, null, "dead_letter", false]),
            json!(["c", name, "paid", "published", false]),
        ]
    );
    assert!(
        records.iter().all(|record| record["latency_ms"].as_u64().is_some()),
        "{records:?}"
    );
    assert!(verified(&relay).contains("3 lines in order, 1 to 3 of the chain, in 1 file\n"));
}

#[test]
fn a_ledger_that_was_tampered_with_is_found_at_the_line() {
    let bed = Bed::new(Db::Postgres);
    let mut relay = bed.relay(&audited());
    relay.start();
    relay.wait_ready();
    let mut app = bed.app();
    for number in 0..5 {
        app.emit(&Event::of("1").id(format!("e{number}")).key("7"));
    }
    relay.wait_published(5);
    // While it is written.
    assert!(verified(&relay).contains("5 lines in order"));
    drain(&mut relay);
    let path = ledger(&relay);
    let text = fs::read_to_string(&path).expect("the ledger");
    let all: Vec<&str> = text.split_inclusive('\n').collect();
    let last = verified(&relay);
    let last = last.trim_end().rsplit_once(": ").expect("a hash").1.to_owned();

    let place = |line: usize| format!("{}:{line}: ", path.display());
    let swapped = [all[0], all[2], all[1], all[3], all[4]].concat();
    for (tampered, expected) in [
        (
            text.replace("\"e2\"", "\"e9\""),
            format!("{}changed: found hash", place(3)),
        ),
        (
            [&all[..2], &all[3..]].concat().concat(),
            format!("{}missing: found line 4 of the chain, expected line 3", place(3)),
        ),
        (
            swapped,
            format!("{}reordered: found line 3 of the chain, expected line 2", place(2)),
        ),
        (text.trim_end().to_owned(), format!("{}torn: ", place(5))),
        (all[1..].concat(), format!("{}missing: found line 2", place(1))),
    ] {
        fs::write(&path, tampered).expect("tamper");
        let ended = verify(&path, [""; 0]);
        assert_eq!(ended.code, 1, "{ended:?}");
        assert!(ended.stderr.starts_with(&expected), "{expected}: {ended:?}");
        let ended = verify(&path, ["--json"]);
        let found: Value = serde_json::from_str(&ended.stdout).expect("JSON");
        let fault = &found[0]["fault"];
        assert_eq!((ended.code, fault["line"].is_u64()), (1, true), "{found}");
        assert!(expected.contains(fault["kind"].as_str().expect("a word")), "{found}");
    }

    // What is cut off at the end is only missed by who knows what was there.
    fs::write(&path, all[..4].concat()).expect("cut off");
    assert_eq!(verify(&path, [""; 0]).code, 0);
    let ended = verify(&path, ["--expect-last", &last]);
    assert_eq!(ended.code, 1, "{ended:?}");
    assert!(
        ended.stderr.contains(&format!("no line has the hash {last}")),
        "{ended:?}"
    );
    fs::write(&path, &text).expect("mend");
    relay.start();
    app.emit(&Event::of("1").key("7"));
    relay.wait_published(1);
    drain(&mut relay);
    assert_eq!(verify(&path, ["--expect-last", &last]).code, 0);
    assert_eq!(verify(&path, ["--expect-last", "0"]).code, 2);
    assert_eq!(verify(Path::new("/nowhere/l.jsonl"), [""; 0]).code, 1);
}

/// Every line and record of an event that has one says so, and none whose event was delivered once. Gives how many lines do.
fn assert_repeats_are_told(relay: &Relay, delivered: &HashMap<String, usize>) -> usize {
    let records = dispatches(relay);
    let records = records
        .iter()
        .map(|record| (&record["outbox_id"], &record["duplicate_detected"]));
    let lines = event_lines(relay);
    let lines = lines.iter().map(|line| (&line["outbox_id"], &line["duplicate"]));
    let told = |told: &mut dyn Iterator<Item = (&Value, &Value)>| {
        let mut seen = HashSet::new();
        let mut repeated = 0;
        for (id, says) in told {
            let id = id.as_str().expect("an id");
            let says = says.as_bool().expect("a flag");
            assert!(says || seen.insert(id.to_owned()), "{id} has a line already");
            assert!(!says || delivered[id] > 1, "{id} was delivered once");
            repeated += usize::from(says);
        }
        repeated
    };
    told(&mut records.into_iter());
    told(&mut lines.into_iter())
}

/// How often each event is in the topic, by its id.
fn deliveries(bed: &Bed) -> HashMap<String, usize> {
    let mut counts = HashMap::new();
    for record in bed.reader(&["events"]).all() {
        let id = record.header("df-event-id").expect("an id");
        *counts.entry(id.to_owned()).or_default() += 1;
    }
    counts
}

over_each!(killed_between_ack_and_save_it_tells_what_comes_again);
fn killed_between_ack_and_save_it_tells_what_comes_again(db: Db) {
    let bed = Bed::new(db);
    let mut relay = bed.relay(&audited());
    // PostgreSQL keeps nothing for a slot that is not made yet.
    relay.start();
    relay.wait_ready();
    relay.sigkill();
    let mut app = bed.app();
    let mut emitted = 0;
    for point in ["before_save:2", "ack:5", "send:7", "before_save:3"] {
        relay.arm(Some(point));
        relay.start();
        eventually(DEADLINE, &format!("killed at {point}"), || {
            app.emit(&Event::of("1").key("7"));
            emitted += 1;
            !relay.runs()
        });
        relay.wait_killed();
    }
    relay.arm(None);
    relay.start_with(&["--once"]);
    assert_eq!(relay.wait_exit(DEADLINE), 0);
    let delivered = deliveries(&bed);
    assert_eq!(delivered.len(), emitted);
    let repeated = assert_repeats_are_told(&relay, &delivered);
    assert!(repeated > 0, "what was settled and not saved comes again");
    let lines = event_lines(&relay);
    let events: HashSet<&str> = lines.iter().filter_map(|line| line["outbox_id"].as_str()).collect();
    assert_eq!(events.len(), emitted, "each event has a line");
    verified(&relay);
}

over_each!(exactly_once_each_event_has_one_line_through_any_kill: postgres, mysql);
fn exactly_once_each_event_has_one_line_through_any_kill(db: Db) {
    let bed = Bed::new(db);
    let exactly_once = audited().replace("brokers: '<brokers>'", "brokers: '<brokers>', exactly_once: true");
    let pipeline = format!("{exactly_once}  checkpoint: {{type: kafka, config: {{topic: '<name>.positions'}}}}\n");
    bed.kafka.create_topic(&bed.events(), 1, &[]);
    let mut relay = bed.relay(&pipeline);
    relay.start();
    relay.wait_ready();
    relay.sigkill();
    let mut app = bed.app();
    for point in ["before_commit:2", "after_commit:2", "after_commit:4", "ack:2", "send:3"] {
        relay.arm(Some(point));
        relay.start();
        eventually(DEADLINE, &format!("killed at {point}"), || {
            app.emit(&Event::of("1").key("7"));
            !relay.runs()
        });
        relay.wait_killed();
    }
    relay.arm(None);
    relay.start_with(&["--once"]);
    assert_eq!(relay.wait_exit(DEADLINE), 0);
    let mut reader = bed.committed_reader(&["events"]);
    let delivered: Vec<String> = reader
        .all()
        .iter()
        .map(|record| record.header("df-event-id").expect("an id").to_owned())
        .collect();
    let lines = event_lines(&relay);
    let ids: Vec<&str> = lines
        .iter()
        .map(|line| line["outbox_id"].as_str().expect("an id"))
        .collect();
    assert_eq!(ids, delivered);
    assert!(lines.iter().all(|line| line["duplicate"] == false), "{lines:?}");
    verified(&relay);
    let prepared = relay.state_dir().join("audit/l.jsonl.prepared.k1");
    assert!(!prepared.exists(), "a clean end leaves nothing to look through");
}

over_each!(after_a_rewind_what_was_settled_before_is_told: mysql, mariadb);
fn after_a_rewind_what_was_settled_before_is_told(db: Db) {
    let bed = Bed::new(db);
    let mut relay = bed.relay(&audited());
    relay.start();
    relay.wait_ready();
    let mut app = bed.app();
    app.emit(&Event::of("1").key("7"));
    relay.wait_published(1);
    drain(&mut relay);
    let before = fs::read(relay.checkpoint_file()).expect("a checkpoint");
    relay.start();
    (0..4).for_each(|_| app.emit(&Event::of("2").key("7")));
    relay.wait_published(4);
    drain(&mut relay);
    fs::write(relay.checkpoint_file(), before).expect("set it back");
    app.emit(&Event::of("3").key("7"));
    relay.start();
    relay.wait_published(5);
    drain(&mut relay);
    assert_eq!(assert_repeats_are_told(&relay, &deliveries(&bed)), 4);
    verified(&relay);
}

over_each!(while_the_disk_is_full_nothing_counts: postgres, mysql);
fn while_the_disk_is_full_nothing_counts(db: Db) {
    let bed = Bed::new(db);
    let mut relay = bed.relay(&audited());
    relay.expect_error("nothing counts as published until its line can be written");
    let path = ledger(&relay);
    fs::create_dir_all(path.parent().expect("a folder")).expect("the folder");
    symlink("/dev/full", &path).expect("a full disk");
    relay.start();
    relay.wait_ready();
    let mut app = bed.app();
    (0..3).for_each(|_| app.emit(&Event::of("1").key("7")));
    relay.wait_not_ready("audit ledger not writable: write");
    relay.wait_not_ready("expected a file that takes lines: make room on its disk");
    let mut reader = bed.reader(&["events"]);
    assert_eq!(reader.exactly(3).len(), 3, "the sink has them");
    assert_eq!(relay.published(), 0);
    // Rows of other tests' tables wait behind them, of a binlog.
    assert!(relay.metric("tailpost_in_flight_events", &[]) >= 3.0);
    fs::remove_file(&path).expect("make room");
    relay.wait_published(3);
    relay.wait_ready();
    drain(&mut relay);
    assert!(verified(&relay).contains("3 lines in order"));
}

#[test]
fn full_files_are_followed() {
    let bed = Bed::new(Db::Postgres);
    let small = audited().replace("l.jsonl,", "l.jsonl, max_size: 64KiB, keep: 3,");
    let mut relay = bed.relay(&small);
    relay.start();
    relay.wait_ready();
    let mut app = bed.app();
    let events: Vec<Event> = (0..2000).map(|_| Event::of("1").key("7")).collect();
    app.emit_all(&events).expect("emit");
    relay.wait_published(2000);
    drain(&mut relay);
    let all = verified(&relay);
    assert!(all.contains("in 4 files\nbegins behind line "), "{all}");
    // As a shell gives them.
    let full = event_files(&relay);
    let ended = verify(&ledger(&relay), &full);
    assert_eq!((ended.code, &ended.stdout), (0, &all), "{ended:?}");
    // One alone, and one that is gone from between.
    let ended = verify(&full[1], [""; 0]);
    assert_eq!(ended.code, 0, "{ended:?}");
    fs::remove_file(&full[1]).expect("take it away");
    let ended = verify(&ledger(&relay), [""; 0]);
    let place = format!("{}:1: missing: found line ", full[2].display());
    assert!(ended.code == 1 && ended.stderr.starts_with(&place), "{ended:?}");
}

/// The full files.
fn event_files(relay: &Relay) -> Vec<PathBuf> {
    let folder = fs::read_dir(relay.state_dir().join("audit")).expect("the folder");
    let mut full: Vec<PathBuf> = folder
        .map(|entry| entry.expect("an entry").path())
        .filter(|file| file.to_string_lossy().contains("l.jsonl.0"))
        .collect();
    full.sort();
    full
}

#[test]
fn attempts_and_replays_are_on_record() {
    let bed = Bed::new(Db::Postgres);
    let target = Target::new(|request, attempt| match (request.text(), attempt) {
        ("2", _) => Answer::Status(422),
        (_, 0) => Answer::Status(503),
        _ => Answer::Status(200),
    });
    let pipeline = audited().replace(
        "{type: kafka, config: {id: k1, brokers: '<brokers>'}}",
        &format!("{{type: http, config: {{id: h1, url: '{}'}}}}", target.url()),
    );
    let pipeline = pipeline.replace("topic: '<topic>', ", "");
    let mut relay = bed.relay(&format!(
        "{pipeline}  dead_letter: {{type: sqlite, config: {{path: dead.sqlite}}}}\n"
    ));
    relay.start();
    relay.wait_ready();
    let mut app = bed.app();
    app.emit(&Event::of("1").id("one").key("7"));
    relay.wait_published(1);
    app.emit(&Event::of("2").id("two").key("7"));
    relay.wait_settled(2);
    drain(&mut relay);
    let records = |relay: &Relay| -> Vec<Value> {
        dispatches(relay)
            .iter()
            .map(|record| {
                json!([
                    record["outbox_id"],
                    record["dispatch_status"],
                    record["attempt"],
                    record["duplicate_detected"]
                ])
            })
            .collect()
    };
    let mut expected = vec![
        json!(["one", "failed", 1, false]),
        json!(["one", "published", 2, false]),
        json!(["two", "dead_letter", 1, false]),
    ];
    assert_eq!(records(&relay), expected);
    let lines = event_lines(&relay);
    assert_eq!(
        (&lines[0]["attempt"], &lines[0]["status"]),
        (&json!(2), &json!("published"))
    );
    assert!(
        lines[0]["last_error"]
            .as_str()
            .is_some_and(|error| error.contains("503")),
        "{}",
        lines[0]
    );

    let words = ["dlq", "replay"].map(OsString::from).into_iter();
    let file = relay.pipeline_file().into_os_string();
    let state = ["--state-dir".into(), relay.state_dir().into_os_string(), "--all".into()];
    let ended = tailpost(words.chain([file]).chain(state));
    assert_eq!(ended.code, 1, "{ended:?}");
    expected.push(json!(["two", "failed", 2, true]));
    assert_eq!(records(&relay), expected);
    verified(&relay);
}
