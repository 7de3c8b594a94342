//! `tailpost dlq`: dead letters in a file and in a topic are listed, shown, sent again, counted, exported and purged, beside the
//! pipeline that parks them.

use std::ffi::OsString;

use serde_json::{Value, json};

use crate::support::cli::{Ended, tailpost};
use crate::support::relay::Relay;
use crate::support::target::{Answer, Target};
use crate::support::{Bed, DEADLINE, Db, Event};

const PIPELINE: &str = "
apiVersion: tailpost/v1
kind: Pipeline
metadata: {name: <name>}
spec:
  source: {type: <type>, config: {<source>, outbox: {<outbox>}}}
  processors: [{type: outbox, topic: '<topic>', raw_payload: true, strict: true}]
  sinks: [{type: kafka, config: {id: k1, brokers: '<brokers>'}}]
  dead_letter: {type: kafka, config: {topic: '<name>.dead'}}
";

const HTTP_PIPELINE: &str = "
apiVersion: tailpost/v1
kind: Pipeline
metadata: {name: <name>}
spec:
  source: {type: <type>, config: {<source>, outbox: {<outbox>}}}
  processors: [{type: outbox, raw_payload: true, strict: true}]
  sinks: [{type: http, config: {id: target, url: '<url>/in/${event_type}', retry: {max_attempts: 1}}}]
  dead_letter: {type: sqlite, config: {path: dead.sqlite}}
";

const LIMIT: usize = 2_000;

/// A pipeline that runs and has parked four letters: three that its target does not take yet, and between them an event that no
/// record could be made of.
struct Parked {
    /// Ended before its place is cleared away.
    relay: Relay,
    bed: Bed,
    /// None: the target is a topic, and the letters are in one.
    http: Option<Target>,
}

/// A payload that is refused until [`Parked::mend`]: too large for the topic.
fn refused(name: &str, event_type: &str, key: &str) -> Event {
    let noise: String = (0..2 * LIMIT)
        .map(|_| char::from(rand::random_range(b'a'..=b'z')))
        .collect();
    taken(&format!("bad-{name} {noise}"), event_type, key)
}

fn taken(text: &str, event_type: &str, key: &str) -> Event {
    let event = Event::of(format!("\"{text}\"")).event_type(event_type).key(key);
    event
        .aggregate_type("Order")
        .id(text.split(' ').next().unwrap_or_default())
}

impl Parked {
    fn in_file() -> Self {
        let target = Target::new(|request, _| Answer::Status(if request.text().contains("bad") { 422 } else { 200 }));
        Self::with(&HTTP_PIPELINE.replace("<url>", &target.url()), Some(target))
    }

    fn in_topic() -> Self {
        Self::with(PIPELINE, None)
    }

    fn with(pipeline: &str, http: Option<Target>) -> Self {
        let bed = Bed::new(Db::Postgres);
        if http.is_none() {
            let limit = LIMIT.to_string();
            bed.kafka
                .create_topic(&bed.events(), 1, &[("max.message.bytes", &limit)]);
            bed.kafka.create_topic(&bed.topic("dead"), 1, &[]);
        }
        let mut relay = bed.relay(&bed.fill(pipeline));
        relay.start();
        relay.wait_ready();
        let mut app = bed.app();
        let events = [
            refused("1", "placed", "a"),
            refused("2", "paid", "b"),
            Event::of("\"bad-3\"").event_type("placed").key("a"),
            refused("4", "placed", "a"),
            taken("good-5", "placed", "a"),
        ];
        // One after the other, so that they are parked in this order whatever the target is.
        for (before, event) in events.iter().enumerate() {
            app.emit(event);
            relay.wait_settled(before as u64 + 1);
        }
        assert_eq!(relay.dead_lettered("permanent_failure"), 3);
        Self { bed, relay, http }
    }

    fn run(&self, command: &str, arguments: &[&str]) -> Ended {
        dlq(&self.relay, command, arguments)
    }

    fn done(&self, command: &str, arguments: &[&str]) -> String {
        let ended = self.run(command, arguments);
        assert_eq!(ended.code, 0, "{command} {arguments:?}: {ended:?}");
        ended.stdout
    }

    /// Ids of the letters that these arguments of `list` mean.
    fn ids(&self, arguments: &[&str]) -> Vec<String> {
        let text = self.done("list", &[arguments, &["--json"]].concat());
        let all: Vec<Value> = serde_json::from_str(&text).unwrap();
        all.iter()
            .map(|letter| letter["id"].as_str().unwrap().to_owned())
            .collect()
    }

    /// From here on the target takes everything.
    fn mend(&self) {
        match &self.http {
            Some(target) => target.behave(|_, _| Answer::Status(200)),
            None => self
                .bed
                .kafka
                .alter_topic(&self.bed.events(), &[("max.message.bytes", "1000000")]),
        }
    }

    /// What came of replays: the event's id, and the headers that say so.
    fn replays(&self) -> Vec<(String, Option<String>, bool)> {
        let name = |text: &str| text.trim_matches('"').split(' ').next().unwrap().to_owned();
        match &self.http {
            Some(target) => target
                .requests()
                .iter()
                .filter_map(|request| {
                    let of = request.header("tailpost-replay-of")?.to_owned();
                    let is_dated = request.header("tailpost-replayed-at").is_some();
                    Some((name(request.text()), Some(of), is_dated))
                })
                .collect(),
            None => self
                .bed
                .reader(&["events"])
                .all()
                .iter()
                .filter_map(|record| {
                    let of = record.header("tailpost-replay-of")?.to_owned();
                    let is_dated = record.header("tailpost-replayed-at").is_some();
                    Some((name(record.value_text()?), Some(of), is_dated))
                })
                .collect(),
        }
    }

    fn replayed_names(&self) -> Vec<String> {
        self.replays().into_iter().map(|(name, ..)| name).collect()
    }
}

fn dlq(relay: &Relay, command: &str, arguments: &[&str]) -> Ended {
    let mut all: Vec<OsString> = vec!["dlq".into(), command.into(), relay.pipeline_file().into()];
    all.extend(["--state-dir".into(), relay.state_dir().into()]);
    all.extend(arguments.iter().map(OsString::from));
    tailpost(all)
}

fn fails(ended: &Ended, code: i32, text: &str) {
    assert_eq!(ended.code, code, "{ended:?}");
    assert!(ended.stderr.contains(text), "`{text}` is not in\n{}", ended.stderr);
}

fn each_filter_chooses_its_letters(parked: &Parked) {
    let all = parked.ids(&[]);
    assert_eq!(all.len(), 4, "{all:?}");
    let name = parked.bed.name.as_str();
    let cases: [(&[&str], &[usize]); 14] = [
        (&["--reason", "permanent_failure"], &[0, 1, 3]),
        (&["--reason", "schema_validation_failed"], &[2]),
        (&["--event-type", "placed"], &[0, 2, 3]),
        (&["--event-type", "paid"], &[1]),
        (&["--aggregate-type", "Order"], &[0, 1, 3]),
        (&["--aggregate-id", "b"], &[1]),
        (&["--aggregate-id", "a", "--reason", "permanent_failure"], &[0, 3]),
        (&["--pipeline", name], &[0, 1, 2, 3]),
        (&["--pipeline", "another"], &[]),
        (&["--since", "1h"], &[0, 1, 2, 3]),
        (&["--until", "1h"], &[]),
        (&["--until", "2999-01-01T00:00:00Z", "--limit", "2"], &[0, 1]),
        (&["--replayed", "no"], &[0, 1, 2, 3]),
        (&["--replayed", "yes"], &[]),
    ];
    for (arguments, expected) in cases {
        let expected: Vec<&String> = expected.iter().map(|index| &all[*index]).collect();
        assert_eq!(
            parked.ids(arguments).iter().collect::<Vec<_>>(),
            expected,
            "{arguments:?}"
        );
    }
    let table = parked.done("list", &["--aggregate-id", "b"]);
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), 2, "{table}");
    assert!(lines[0].starts_with("ID") && lines[1].starts_with(&all[1]), "{table}");
    for cell in ["permanent_failure", "paid", "Order/b", "no"] {
        assert!(lines[1].contains(cell), "{table}");
    }
    fails(&parked.run("list", &["--since", "yesterday"]), 2, "expected a time");
}

#[test]
fn each_filter_chooses_its_letters_of_a_file() {
    each_filter_chooses_its_letters(&Parked::in_file());
}

#[test]
fn each_filter_chooses_its_letters_of_a_topic() {
    each_filter_chooses_its_letters(&Parked::in_topic());
}

fn letters_are_shown_counted_and_exported(parked: &Parked) {
    let ids = parked.ids(&[]);
    let shown: Value = serde_json::from_str(&parked.done("show", &[&ids[1], "--json"])).unwrap();
    assert_eq!(
        (
            &shown["event_id"],
            &shown["event_type"],
            &shown["key"],
            &shown["attempts"]
        ),
        (&json!("bad-2"), &json!("paid"), &json!("b"), &json!(1))
    );
    assert!(shown["value"].as_str().unwrap().starts_with("\"bad-2 "), "{shown}");
    let headers = shown["headers"].as_array().unwrap();
    assert!(
        headers.contains(&json!({"name": "df-event-type", "value": "paid"})),
        "{shown}"
    );
    let text = parked.done("show", &[&ids[1]]);
    assert!(
        text.contains("df-event-type: paid") && text.contains("\"bad-2 "),
        "{text}"
    );

    let exported = parked.done("export", &["--event-type", "paid"]);
    assert_eq!(exported.lines().count(), 1);
    assert_eq!(serde_json::from_str::<Value>(&exported).unwrap(), shown);
    assert_eq!(parked.done("export", &[]).lines().count(), 4);

    let stats: Value = serde_json::from_str(&parked.done("stats", &["--json"])).unwrap();
    assert_eq!(
        (
            &stats["letters"],
            &stats["replayed"],
            &stats["by_reason"],
            &stats["by_event_type"]
        ),
        (
            &json!(4),
            &json!(0),
            &json!({"permanent_failure": 3, "schema_validation_failed": 1}),
            &json!({"paid": 1, "placed": 3})
        )
    );
    assert!(stats["oldest"].as_str() <= stats["newest"].as_str());
    assert!(
        parked
            .done("stats", &["--reason", "permanent_failure"])
            .starts_with("letters      3\n")
    );

    let unknown = ids[3].replace(|digit: char| digit.is_ascii_digit() && digit != '0', "9") + "99";
    fails(&parked.run("show", &[&unknown]), 1, &format!("has no letter {unknown}"));
    fails(&parked.run("show", &["first"]), 2, "partition:offset");
}

#[test]
fn letters_of_a_file_are_shown_counted_and_exported() {
    letters_are_shown_counted_and_exported(&Parked::in_file());
}

#[test]
fn letters_of_a_topic_are_shown_counted_and_exported() {
    letters_are_shown_counted_and_exported(&Parked::in_topic());
}

fn letters_are_sent_again_in_their_order_and_not_twice(parked: &mut Parked) {
    let restarts = parked.relay.metric("tailpost_restarts_total", &[]);
    let ids = parked.ids(&[]);
    fails(&parked.run("replay", &[]), 2, "--all");
    fails(&parked.run("replay", &[&ids[0], "--limit", "1"]), 2, "no filter");
    if parked.http.is_some() {
        fails(&parked.run("replay", &["--all", "--to", "a-topic"]), 2, "no URL");
    }
    let said = parked.done("replay", &["--all", "--dry-run"]);
    assert!(said.ends_with("3 would be sent, 1 left out\n"), "{said}");
    assert_eq!(parked.replays().len(), 0);

    let failed = parked.run("replay", &[&ids[1]]);
    assert_eq!(failed.code, 1, "{failed:?}");
    assert!(failed.stdout.contains("failed: "), "{failed:?}");
    assert_eq!(parked.ids(&["--replayed", "no"]).len(), 4);
    let shown: Value = serde_json::from_str(&parked.done("show", &[&ids[1], "--json"])).unwrap();
    assert!(
        shown["replay_outcome"].as_str().unwrap().starts_with("failed: "),
        "{shown}"
    );

    parked.mend();
    let before = parked.replays().len();
    let said = parked.done("replay", &["--all", "--rate", "1000"]);
    assert!(said.ends_with("3 published, 0 failed, 1 left out\n"), "{said}");
    let replays = parked.replays().split_off(before);
    let replay = |name: &str| (name.to_owned(), Some(name.to_owned()), true);
    assert_eq!(replays, [replay("bad-1"), replay("bad-2"), replay("bad-4")]);
    let replayed = [0, 1, 3].map(|index| ids[index].clone());
    assert_eq!(parked.ids(&["--replayed", "yes"]), replayed);
    // Marks are no letters.
    assert_eq!(parked.ids(&[]), ids);

    let said = parked.done("replay", &["--reason", "permanent_failure"]);
    assert_eq!(said, "0 published, 0 failed, 0 left out\n");
    fails(&parked.run("replay", &[&ids[0]]), 1, "--again");
    parked.done("replay", &[&ids[0], "--again"]);
    fails(&parked.run("replay", &[&ids[2]]), 1, "no record could be made of");
    assert_eq!(
        parked.replayed_names().split_off(before),
        ["bad-1", "bad-2", "bad-4", "bad-1"]
    );

    // The pipeline went on all the while.
    parked.bed.app().emit(&taken("good-6", "placed", "a"));
    parked.relay.wait_published(2);
    assert_eq!(parked.relay.metric("tailpost_restarts_total", &[]), restarts);
    parked.relay.wait_ready();
}

#[test]
fn letters_of_a_file_are_sent_again_in_their_order_and_not_twice() {
    letters_are_sent_again_in_their_order_and_not_twice(&mut Parked::in_file());
}

#[test]
fn letters_of_a_topic_are_sent_again_in_their_order_and_not_twice() {
    letters_are_sent_again_in_their_order_and_not_twice(&mut Parked::in_topic());
}

#[test]
fn a_replay_beside_transactions_fences_nobody() {
    let checkpoint = "  checkpoint: {type: kafka, config: {topic: '<name>.positions', replication_factor: 1}}\n";
    let pipeline = PIPELINE.replace("id: k1", "id: k1, exactly_once: true") + checkpoint;
    letters_are_sent_again_in_their_order_and_not_twice(&mut Parked::with(&pipeline, None));
}

#[test]
fn letters_go_elsewhere_with_other_headers_where_that_is_said() {
    let parked = Parked::in_topic();
    let mended = parked.bed.topic("mended");
    parked.bed.kafka.create_topic(&mended, 1, &[]);
    let arguments = [
        "--all",
        "--to",
        &mended,
        "--set-header",
        "df-event-type=mended",
        "--set-header",
        "x=1=2",
    ];
    let said = parked.done("replay", &arguments);
    // Also the event that no record could be made of, as it is.
    assert!(said.ends_with("4 published, 0 failed, 0 left out\n"), "{said}");
    let mut reader = parked.bed.reader(&["mended"]);
    let records = reader.exactly(4);
    for record in records {
        assert_eq!(
            (record.header("df-event-type"), record.header("x")),
            (Some("mended"), Some("1=2"))
        );
        assert_eq!(record.header("tailpost-dlq-reason"), None);
    }
    assert_eq!(records[0].key_text(), Some("a"));
    let unknown = parked.run("replay", &["--all", "--again", "--limit", "1", "--to", "not a topic"]);
    assert_eq!(unknown.code, 1, "{unknown:?}");
}

#[test]
fn letters_of_a_file_are_purged_by_filter_and_only_when_that_is_meant() {
    let parked = Parked::in_file();
    let ids = parked.ids(&[]);
    fails(&parked.run("purge", &[]), 2, "--all");
    fails(&parked.run("purge", &["--all"]), 2, "--yes");
    assert_eq!(parked.done("purge", &["--all", "--dry-run"]), "4 would be purged\n");
    assert_eq!(parked.done("purge", &["--pipeline", "another", "--yes"]), "0 purged\n");
    assert_eq!(parked.ids(&[]), ids);
    assert_eq!(parked.done("purge", &["--event-type", "placed", "--yes"]), "3 purged\n");
    assert_eq!(parked.ids(&[]), ids[1..2]);
    assert_eq!(parked.done("purge", &["--all", "--yes"]), "1 purged\n");
    assert_eq!(parked.done("stats", &[]).lines().next(), Some("letters      0"));
}

#[test]
fn a_topic_is_purged_as_a_whole_or_up_to_a_time() {
    let parked = Parked::in_topic();
    fails(
        &parked.run("purge", &["--event-type", "placed", "--yes"]),
        2,
        "retention.ms",
    );
    fails(&parked.run("purge", &["--all"]), 2, "--yes");
    assert_eq!(parked.done("purge", &["--until", "1h", "--yes"]), "0 purged\n");
    assert_eq!(parked.ids(&[]).len(), 4);
    let list: Value = serde_json::from_str(&parked.done("list", &["--json"])).unwrap();
    let third = list[2]["parked_at"].as_str().unwrap().to_owned();
    let earlier = |letter: &&Value| letter["parked_at"].as_str() < Some(&third);
    let before = list.as_array().unwrap().iter().filter(earlier).count();
    let purged = parked.done("purge", &["--until", &third, "--yes"]);
    assert_eq!(purged, format!("{before} purged\n"));
    assert_eq!(parked.ids(&[]).len(), 4 - before);
    parked.done("purge", &["--all", "--yes"]);
    assert_eq!(parked.ids(&[]).len(), 0);
}

#[test]
fn without_a_place_or_its_server_it_is_said_what_is_missing() {
    let bed = Bed::new(Db::Postgres);
    let target = Target::new(|_, _| Answer::Status(200));
    let http = HTTP_PIPELINE.replace("<url>", &target.url());
    let none = http
        .lines()
        .filter(|line| !line.contains("dead_letter"))
        .collect::<Vec<_>>();
    fails(
        &dlq(&bed.relay(&bed.fill(&none.join("\n"))), "list", &[]),
        2,
        "`spec.dead_letter`",
    );
    fails(&dlq(&bed.relay(&bed.fill(&http)), "list", &[]), 1, "there is no file");
    fails(
        &dlq(&bed.relay(&bed.fill(PIPELINE)), "list", &[]),
        1,
        "there is no topic",
    );
    let away = bed.fill(&PIPELINE.replace("<brokers>", "127.0.0.1:1"));
    fails(&dlq(&bed.relay(&away), "list", &[]), 1, "no Kafka broker answers");
}

#[test]
fn a_target_that_does_not_answer_ends_the_replay_and_marks_nothing() {
    let mut parked = Parked::in_file();
    let target = parked.http.as_ref().unwrap();
    target.behave(|_, _| Answer::Hold);
    let ended = parked.run("replay", &["--all", "--timeout", "300ms"]);
    fails(&ended, 1, "had no answer");
    assert!(
        ended.stdout.ends_with("0 published, 1 failed, 0 left out\n"),
        "{ended:?}"
    );
    assert_eq!(parked.ids(&["--replayed", "no"]).len(), 4);
    target.let_go();
    target.behave(|_, _| Answer::Status(401));
    fails(&parked.run("replay", &["--all"]), 1, "answers 401");
    parked.relay.sigterm();
    assert_eq!(parked.relay.wait_exit(DEADLINE), 0);
    // Without the pipeline, too.
    parked.mend();
    let said = parked.done("replay", &["--all"]);
    assert!(said.ends_with("3 published, 0 failed, 1 left out\n"), "{said}");
}
