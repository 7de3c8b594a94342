//! `tailpost tail`: what a pipeline would publish now, beside the pipeline and without a trace of it.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, Stdio};
use std::thread;

use serde_json::{Value, json};

use crate::support::cli::tailpost;
use crate::support::relay::Relay;
use crate::support::{Bed, DEADLINE, Db, Event, eventually, found, over_each};

const PIPELINE: &str = "
apiVersion: tailpost/v1
kind: Pipeline
metadata: {name: <name>}
spec:
  source: {type: <type>, config: {<source>, outbox: {<outbox>}}}
  processors: [{type: outbox, topic: '<topic>', raw_payload: true}]
  sinks:
    - {type: kafka, config: {id: topic, brokers: '<brokers>', exactly_once: true}}
    - {type: http, config: {id: target, url: 'http://127.0.0.1:9/${event_type}', required: false}}
";

/// A look that is under way.
struct Look(Child);

impl Look {
    /// Begins, and waits until the server streams.
    fn start(relay: &Relay, arguments: &[&str]) -> Self {
        let log = relay.state_dir().with_file_name("tail.log");
        let stderr = fs::File::create(&log).expect("a log");
        let child = Command::new(env!("CARGO_BIN_EXE_tailpost"))
            .arg("tail")
            .arg(relay.pipeline_file())
            .args(arguments)
            .env_remove("TAILPOST_LOG")
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()
            .expect("start tailpost");
        let look = Self(child);
        found(DEADLINE, "the look streams", || {
            let text = fs::read_to_string(&log).unwrap_or_default();
            text.contains(" streaming ").then_some(())
        });
        look
    }

    fn lines(&mut self, count: usize) -> Vec<Value> {
        let stdout = self.0.stdout.as_mut().expect("stdout");
        let lines = BufReader::new(stdout).lines().take(count);
        lines
            .map(|line| serde_json::from_str(&line.expect("a line")).expect("JSON"))
            .collect()
    }

    fn code(mut self) -> Option<i32> {
        found(DEADLINE, "the look ends", || self.0.try_wait().expect("wait")).code()
    }
}

over_each!(a_look_shows_what_comes_and_leaves_no_trace);
fn a_look_shows_what_comes_and_leaves_no_trace(db: Db) {
    let bed = Bed::new(db);
    bed.kafka.create_topic(&bed.events(), 1, &[]);
    let mut relay = bed.relay(PIPELINE);
    relay.start();
    relay.wait_ready();
    let mut app = bed.app();
    let event = |payload: &str| Event::of(payload).key("k").event_type("placed").id("e");
    app.emit(&event("0"));
    relay.wait_published(1);
    let restarts = relay.metric("tailpost_restarts_total", &[]);
    let mut look = Look::start(&relay, &[]);
    for payload in ["1", "2"] {
        app.emit(&event(payload));
    }
    let lines = look.lines(2);
    assert_eq!([&lines[0]["value"], &lines[1]["value"]], [&json!(1), &json!(2)]);
    assert_eq!(
        (
            &lines[0]["topic"],
            &lines[0]["key"],
            &lines[0]["headers"]["df-event-id"]
        ),
        (&json!(bed.events()), &json!("k"), &json!("e"))
    );
    let slots = || match &bed {
        Bed::Postgres(bed) => {
            let statement = "SELECT count(*) FROM pg_replication_slots WHERE slot_name LIKE 'tailpost\\_tail\\_%' \
                             AND database = current_database()";
            bed.admin().query_one(statement, &[]).expect("slots").get::<_, i64>(0)
        }
        Bed::Mysql(_) => 0,
    };
    // Nobody reads it any more: that is its end, at the next line.
    drop(look.0.stdout.take());
    app.emit(&event("3"));
    assert_eq!(look.code(), Some(0));
    eventually(DEADLINE, "no slot of it", || slots() == 0);
    // The pipeline has published each once, and was not disturbed.
    relay.wait_published(4);
    assert_eq!(relay.metric("tailpost_restarts_total", &[]), restarts);
    assert_eq!(bed.kafka.committed_reader(&[bed.events()]).exactly(4).len(), 4);
}

#[test]
fn a_look_is_at_the_records_of_one_sink() {
    let bed = Bed::new(Db::Postgres);
    bed.kafka.create_topic(&bed.events(), 1, &[]);
    let mut relay = bed.relay(PIPELINE);
    relay.start();
    relay.wait_ready();
    let mut look = Look::start(&relay, &["--sink", "target"]);
    bed.app().emit(&Event::of("1").event_type("placed"));
    assert_eq!(look.lines(1)[0]["topic"], "http://127.0.0.1:9/placed");
    look.0.kill().expect("kill");
    look.0.wait().expect("wait");

    let file = relay.pipeline_file();
    let ended = tailpost(["tail".as_ref(), file.as_os_str(), "--sink".as_ref(), "other".as_ref()]);
    assert_eq!(ended.code, 2);
    assert!(
        ended
            .stderr
            .contains("--sink other: expected one of the file's sinks (topic, target)"),
        "{ended:?}"
    );
}

#[test]
fn a_look_makes_nothing_on_the_server() {
    let bed = Bed::new(Db::Postgres);
    let relay = bed.relay(PIPELINE);
    let ended = tailpost(["tail".as_ref(), relay.pipeline_file().as_os_str()]);
    assert_eq!(ended.code, 1);
    assert!(
        ended.stderr.contains("publication") && ended.stderr.contains("does not exist"),
        "{ended:?}"
    );
    assert!(!relay.state_dir().exists() || fs::read_dir(relay.state_dir()).expect("a folder").next().is_none());
}

#[test]
fn a_look_ends_with_a_signal() {
    let bed = Bed::new(Db::Postgres);
    bed.kafka.create_topic(&bed.events(), 1, &[]);
    let mut relay = bed.relay(PIPELINE);
    relay.start();
    relay.wait_ready();
    let mut look = Look::start(&relay, &[]);
    let pid = rustix::process::Pid::from_child(&look.0);
    let mut stdout = look.0.stdout.take().expect("stdout");
    let reading = thread::spawn(move || stdout.read_to_end(&mut Vec::new()));
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("a signal");
    assert_eq!(look.code(), Some(0));
    assert_eq!(reading.join().expect("read").expect("to the end"), 0);
}
