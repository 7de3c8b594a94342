//! Events as lines of JSON, in a file and on standard output.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::support::{Bed, DEADLINE, Db, Event, found, over_each};

const PIPELINE: &str = "
apiVersion: tailpost/v1
kind: Pipeline
metadata: {name: <name>}
spec:
  source: {type: <type>, config: {<source>, outbox: {<outbox>}}}
  processors: [{type: outbox, topic: 'orders.${event_type}', raw_payload: true}]
  sinks: [{type: <sink>, config: {id: lines, <config>}}]
";

fn lines(text: &str) -> Vec<Value> {
    assert!(text.is_empty() || text.ends_with('\n'), "{text}");
    text.lines()
        .map(|line| serde_json::from_str(line).expect("a line of JSON"))
        .collect()
}

over_each!(a_file_has_each_event_in_its_order_and_none_in_part);
fn a_file_has_each_event_in_its_order_and_none_in_part(db: Db) {
    let bed = Bed::new(db);
    let mut relay = bed.relay(
        &PIPELINE
            .replace("<sink>", "file")
            .replace("<config>", "path: events.jsonl"),
    );
    let path = relay.pipeline_file().with_file_name("events.jsonl");
    relay.start();
    relay.wait_ready();
    let mut app = bed.app();
    app.emit(&Event::of(r#"{"a": [1, 2]}"#).key("7").event_type("placed").id("e1"));
    app.emit(&Event::of("2").key("7"));
    relay.wait_published(2);
    relay.sigkill();
    // As a crash in the middle of a line would leave it.
    let mut file = OpenOptions::new().append(true).open(&path).expect("the file");
    file.write_all(b"{\"topic\":\"orders").expect("write");
    relay.start();
    relay.wait_ready();
    app.emit(&Event::of("3").key("7"));
    let text = found(DEADLINE, "the last event", || {
        let text = fs::read_to_string(&path).ok()?;
        text.ends_with("\"value\":3}\n").then_some(text)
    });
    assert!(text.contains(r#""value":{"a": [1, 2]}"#), "{text}");
    let lines = lines(&text);
    let values: Vec<&Value> = lines.iter().map(|line| &line["value"]).collect();
    // The first life's can come again, as far as their place was not saved.
    let last = values.last().expect("a line");
    assert_eq!(**last, json!(3));
    assert_eq!((values[0], values[1]), (&json!({"a": [1, 2]}), &json!(2)));
    assert_eq!(
        (&lines[0]["topic"], &lines[1]["topic"]),
        (&json!("orders.placed"), &json!("events"))
    );
    assert_eq!(
        (&lines[0]["key"], &lines[0]["headers"]["df-event-id"]),
        (&json!("7"), &json!("e1"))
    );
}

#[test]
fn a_file_is_one_process_s() {
    let bed = Bed::new(Db::Postgres);
    let text = PIPELINE
        .replace("<sink>", "file")
        .replace("<config>", "path: events.jsonl");
    let mut relay = bed.relay(&text);
    let path = relay.pipeline_file().with_file_name("events.jsonl");
    fs::File::create(&path).expect("the file").lock().expect("the lock");
    let held = fs::File::open(&path).expect("the file");
    held.lock().expect("the lock");
    relay.start();
    relay.wait_halted(&["open `events.jsonl` to add lines to it"]);
}

#[test]
fn standard_output_has_the_events_and_nothing_else() {
    let bed = Bed::new(Db::Postgres);
    let mut relay = bed.relay(&PIPELINE.replace("<sink>", "stdout").replace("<config>", ""));
    // It makes the slot.
    relay.start_with(&["--once"]);
    assert_eq!(relay.wait_exit(DEADLINE), 0);
    let mut app = bed.app();
    for number in 0..3000 {
        app.emit(&Event::of(number.to_string()).key("k"));
    }
    let run = |stdout: Stdio| {
        Command::new(env!("CARGO_BIN_EXE_tailpost"))
            .arg("run")
            .arg(relay.pipeline_file())
            .arg("--state-dir")
            .arg(relay.state_dir())
            .args(["--http", "off", "--once"])
            .stdout(stdout)
            .stderr(Stdio::piped())
            .spawn()
            .expect("start tailpost")
    };
    // Whoever read it is gone: that is no end to what is still to be sent.
    let mut broken = run(Stdio::piped());
    drop(broken.stdout.take());
    let output = broken.wait_with_output().expect("it ends");
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(1) && log.contains("write to stdout: Broken pipe"),
        "{log}"
    );

    let output = run(Stdio::piped()).wait_with_output().expect("it ends");
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let lines = lines(&String::from_utf8(output.stdout).expect("text"));
    let values: Vec<u64> = lines
        .iter()
        .map(|line| line["value"].as_u64().expect("a number"))
        .collect();
    assert_eq!(values, (0..3000).collect::<Vec<_>>());
}
