//! Ten faults as operators meet them. Whatever speaks of one, the log, `tailpost status` or `tailpost check`, names the object,
//! what was found, what was expected, and the remedy: [`Words`].
//!
//! `check` comes before a run, and sees servers and not events. So of a poison message, a payload that breaks its schema, and a
//! target that takes connections it finds nothing in the way, and says what it looked at.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use crate::slot::{lose_slot, short_of_space};
use crate::support::cli::tailpost;
use crate::support::relay::{Relay, free_address};
use crate::support::target::{Answer, Target};
use crate::support::{ANY_OUTBOX, Bed, DEADLINE, Db, Event, OUTBOX, TestBed, found, over_each, variable};

const PIPELINE: &str = "
apiVersion: tailpost/v1
kind: Pipeline
metadata: {name: <name>}
spec:
  source: {type: <type>, config: {<source>, outbox: {<outbox>}}}
  processors: [{type: outbox, raw_payload: true}]
  sinks: [<sink>]
";

const KAFKA: &str = "{type: kafka, config: {id: end, topic: '<topic>', brokers: '<brokers>'}}";
const LETTERS: &str = "  dead_letter: {type: sqlite, config: {path: dead.sqlite}}\n";

fn to(sink: &str) -> String {
    PIPELINE.replace("<sink>", sink)
}

/// What a text about a fault must have.
struct Words<'a> {
    object: &'a str,
    found: &'a str,
    expected: &'a str,
    remedy: &'a str,
}

impl Words<'_> {
    fn are_in(&self, place: &str, text: &str) {
        for (part, words) in [
            ("object", self.object),
            ("what was found", self.found),
            ("what was expected", self.expected),
            ("remedy", self.remedy),
        ] {
            assert!(text.contains(words), "{place} lacks the {part}, `{words}`:\n{text}");
        }
    }

    /// The first line of the log about it, and then `status`: both its `ready` and its `last error`, where `keeps_from_ready`.
    fn are_told(&self, relay: &mut Relay, pipeline: &str, keeps_from_ready: bool) {
        let line = relay.wait_log(self.found);
        self.are_in("the log", &line);
        let about: &[&str] = match keeps_from_ready {
            true => &["ready", "last error"],
            false => &["last error"],
        };
        for about in about {
            let text = found(DEADLINE, &format!("`{about}` with `{}` in status", self.found), || {
                status_line(relay, pipeline, about).filter(|line| line.contains(self.found))
            });
            self.are_in(&format!("`{about}` of status"), &text);
        }
    }
}

/// What `tailpost status` says about something of one pipeline.
fn status_line(relay: &Relay, pipeline: &str, about: &str) -> Option<String> {
    let ended = tailpost(["status", "--http", &relay.http()]);
    let of_pipeline = ended
        .stdout
        .lines()
        .skip_while(|line| !line.starts_with(&format!("{pipeline}: ")));
    let mut lines = of_pipeline.skip(1).take_while(|line| line.starts_with("  "));
    let line = lines.find_map(|line| line.trim_start().strip_prefix(about))?;
    Some(line.trim_start().to_owned())
}

/// The line of `tailpost check` that begins so; with an exit code of 1 where it is a failure.
fn checked(file: &Path, begin: &str) -> String {
    let ended = tailpost(["check".as_ref(), file.as_os_str()]);
    let said = format!("{}{}", ended.stdout, ended.stderr);
    assert_eq!(ended.code, i32::from(said.contains("  FAIL  ")), "{said}");
    let mut lines = said.lines().map(str::trim_start);
    let line = lines.find(|line| line.starts_with(begin));
    line.unwrap_or_else(|| panic!("no `{begin}` in\n{said}")).to_owned()
}

/// Puts a sound pipeline beside the relay's, so that the process lives on when that one has ended. Gives its file.
fn beside(relay: &Relay, text: &str) -> String {
    let path = relay.pipeline_file().with_file_name("beside.yaml");
    fs::write(&path, text).expect("write a pipeline file");
    path.to_str().expect("a path of text").to_owned()
}

over_each!(a_wrong_password: postgres, mysql, mariadb);
fn a_wrong_password(db: Db) {
    let bed = Bed::new(db);
    let (user, said) = match db {
        Db::Postgres => ("user \"repl\"", "password authentication failed"),
        Db::Mysql | Db::Mariadb => ("user 'tailpost'@", "Access denied"),
    };
    let good = bed.fill(ANY_OUTBOX);
    let password = match &bed {
        Bed::Postgres(bed) => bed.password(),
        Bed::Mysql(bed) => bed.password(),
    };
    let mut relay = bed.relay(&good.replace(&format!(":{password}@"), ":wr0ng@"));
    relay.keep_secret("wr0ng");
    let name = &bed.name;
    let sound = good
        .replace(&format!("name: {name}"), &format!("name: {name}-beside"))
        .replace("_slot", "_slot_beside");
    let sound = beside(&relay, &sound);
    relay.expect_error(said);
    relay.start_with(&[&sound]);
    let words = Words {
        object: user,
        found: said,
        expected: "expected the password that the server has for that user",
        remedy: "check the user and password in the DSN",
    };
    words.are_told(&mut relay, name, true);
    words.are_in("check", &checked(&relay.pipeline_file(), "FAIL"));
}

#[test]
fn a_lost_slot() {
    let server = short_of_space();
    let bed = TestBed::on(server.addresses(), &variable("TAILPOST_TEST_KAFKA"));
    let mut relay = bed.relay(OUTBOX);
    relay.start_with(&["--once"]);
    assert_eq!(relay.wait_exit(DEADLINE), 0);
    lose_slot(&bed);
    let sound = bed
        .fill(OUTBOX)
        .replace(&format!("name: {}", bed.name), &format!("name: {}-beside", bed.name))
        .replace(&bed.slot, &format!("{}_beside", bed.slot));
    let sound = beside(&relay, &sound);
    relay.expect_error("was invalidated");
    relay.start_with(&[&sound]);
    let words = Words {
        object: &format!("slot `{}`", bed.slot),
        found: "was invalidated by the server (",
        expected: "expected one that still has the log to read",
        remedy: "Remedy: start once with --accept-gap",
    };
    words.are_told(&mut relay, &bed.name, true);
    words.are_in("check", &checked(&relay.pipeline_file(), "FAIL  slot"));
}

#[test]
fn a_broker_that_is_gone() {
    let bed = Bed::new(Db::Postgres);
    let nobody = free_address().to_string();
    let mut relay = bed.relay(&to(KAFKA).replace("<brokers>", &nobody));
    relay.start();
    let words = Words {
        object: &nobody,
        found: "no Kafka broker answers",
        expected: "expected at least one",
        remedy: "start it, or check brokers",
    };
    words.are_told(&mut relay, &bed.name, true);
    let words = Words {
        found: "no broker answers",
        ..words
    };
    words.are_in("check", &checked(&relay.pipeline_file(), "FAIL  Kafka"));
}

#[test]
fn a_missing_topic() {
    let bed = Bed::new(Db::Postgres);
    let strict = "id: end, client_conf: {allow.auto.create.topics: 'false'}";
    let mut relay = bed.relay(&to(&KAFKA.replace("id: end", strict)));
    relay.start();
    relay.wait_ready();
    bed.app().emit(&Event::of("1").key("1"));
    let topic = bed.events();
    let words = Words {
        object: &format!("topic `{topic}`"),
        found: "does not exist and the broker does not make it",
        expected: "expected one that is there",
        remedy: "create it, or set create_topics",
    };
    words.are_told(&mut relay, &bed.name, true);
    let words = Words {
        object: &topic,
        found: "does not exist",
        expected: "the broker makes it if auto.create.topics.enable is on",
        ..words
    };
    words.are_in("check", &checked(&relay.pipeline_file(), "warn  topic"));
}

#[test]
fn a_poison_message() {
    let bed = Bed::new(Db::Postgres);
    let mut relay = bed.relay(&format!("{}{LETTERS}", to(KAFKA)));
    relay.start();
    relay.wait_ready();
    bed.app().emit(&Event::default().key("1"));
    relay.wait_settled(1);
    let words = Words {
        object: "outbox message with prefix `outbox` at ",
        found: "there is no field `payload` for the payload",
        expected: "expected the member or column that `columns.payload` names",
        remedy: "mend what writes such events",
    };
    words.are_told(&mut relay, &bed.name, false);
    assert_eq!(
        status_line(&relay, &bed.name, "dead").as_deref(),
        Some("1 (poison_message 1)")
    );
    checked(&relay.pipeline_file(), "ok    Kafka");
}

#[test]
fn a_full_disk() {
    let bed = Bed::new(Db::Postgres);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("events.jsonl");
    symlink("/dev/full", &path).expect("a full disk");
    let path = path.to_str().expect("a path of text");
    let sink = format!("{{type: file, config: {{id: end, path: '{path}'}}}}");
    let mut relay = bed.relay(&to(&sink).replace("raw_payload", "topic: events, raw_payload"));
    relay.start();
    relay.wait_ready();
    bed.app().emit(&Event::of("1").key("1"));
    let words = Words {
        object: &format!("write to `{path}`"),
        found: "No space left on device",
        expected: "expected room for the lines",
        remedy: "make room on its disk",
    };
    words.are_told(&mut relay, &bed.name, true);
    // This device is always full, and what `check` sees is the disk: that it warns of one is shown beside the code.
    let line = checked(&relay.pipeline_file(), &format!("ok    file {path}"));
    assert!(line.contains("can be written; free on its disk: "), "{line}");
}

#[test]
fn a_full_disk_of_the_state_folder() {
    let bed = Bed::new(Db::Postgres);
    let mut relay = bed.relay(&to(KAFKA));
    // What a save begins with, before it is renamed.
    let begun = relay.checkpoint_file().with_extension("json.new");
    fs::create_dir_all(relay.state_dir()).expect("the state folder");
    symlink("/dev/full", &begun).expect("a full disk");
    relay.expect_error("the checkpoint cannot be saved");
    relay.start();
    bed.app().emit(&Event::of("1").key("1"));
    let words = Words {
        object: &format!("save checkpoint `{}`", relay.checkpoint_file().display()),
        found: "No space left on device",
        expected: "expected a folder that takes it",
        remedy: "make room on its disk",
    };
    words.are_told(&mut relay, &bed.name, true);
    fs::remove_file(&begun).expect("make room");
    relay.wait_ready();
}

/// A pipeline to this target, which tries again without end.
fn to_target(bed: &Bed, target: &Target, more: &str) -> Relay {
    let retry = format!("{{max_attempts: unlimited, base_delay: 10ms, max_delay: 50ms{more}}}");
    let url = target.url();
    let sink = format!("{{type: http, config: {{id: end, url: '{url}/in', retry: {retry}}}}}");
    let mut relay = bed.relay(&to(&sink));
    relay.start();
    relay.wait_ready();
    relay
}

/// What can be known of a target before an event is sent.
fn assert_target_is_checked(relay: &Relay, target: &Target) {
    let subject = format!("ok    HTTP {}", target.address());
    let line = checked(&relay.pipeline_file(), &subject);
    assert!(line.ends_with("takes connections; no request was made"), "{line}");
}

#[test]
fn a_target_that_answers_500() {
    let bed = Bed::new(Db::Postgres);
    let target = Target::new(|_, _| Answer::Status(500));
    let mut relay = to_target(&bed, &target, "");
    bed.app().emit(&Event::of("1").key("1"));
    let words = Words {
        object: &target.url(),
        found: "answers 500",
        expected: "with a status in `success`",
        remedy: "see to the target",
    };
    words.are_told(&mut relay, &bed.name, true);
    assert_target_is_checked(&relay, &target);
}

#[test]
fn a_slow_target() {
    let bed = Bed::new(Db::Postgres);
    let target = Target::new(|_, _| Answer::Hold);
    let mut relay = to_target(&bed, &target, ", attempt_timeout: 200ms");
    bed.app().emit(&Event::of("1").key("1"));
    let limit = format!("{:?}", Duration::from_millis(200));
    let words = Words {
        object: &target.url(),
        found: &format!("did not answer within {limit}"),
        expected: "expected an answer in that time",
        remedy: "raise `retry.attempt_timeout`",
    };
    words.are_told(&mut relay, &bed.name, true);
    assert_target_is_checked(&relay, &target);
}

#[test]
fn a_payload_that_breaks_its_schema() {
    let bed = Bed::new(Db::Postgres);
    let folder = tempfile::tempdir().expect("a folder");
    let schemas = folder.path().join("schemas");
    fs::create_dir_all(schemas.join("paid")).expect("a folder of schemas");
    let schema = r#"{"properties": {"amount": {"type": "number", "exclusiveMinimum": 0}}}"#;
    fs::write(schemas.join("paid/1.json"), schema).expect("a schema");
    let validate = format!(
        "{{type: validate, schemas: {{folder: '{}'}}, default_version: '1'}}, ",
        schemas.display()
    );
    let text = to(KAFKA).replace("processors: [", &format!("processors: [{validate}"));
    let mut relay = bed.relay(&format!("{text}{LETTERS}"));
    relay.start();
    relay.wait_ready();
    bed.app()
        .emit(&Event::of(r#"{"amount": -1}"#).event_type("paid").key("1"));
    relay.wait_settled(1);
    let words = Words {
        object: "outbox message with prefix `outbox` at ",
        found: "the payload does not match its schema `paid/1`",
        expected: "`/amount` does not meet `/properties/amount/exclusiveMinimum`",
        remedy: "mend what writes such events",
    };
    words.are_told(&mut relay, &bed.name, false);
    assert_eq!(
        status_line(&relay, &bed.name, "dead").as_deref(),
        Some("1 (schema_validation_failed 1)")
    );
    checked(&relay.pipeline_file(), "ok    Kafka");
}

over_each!(a_server_id_that_two_pipelines_have: mysql, mariadb);
fn a_server_id_that_two_pipelines_have(db: Db) {
    let bed = Bed::new(db);
    let id: u32 = rand::random_range(0x0100_0000..0x1000_0000);
    let text = bed.fill(&ANY_OUTBOX.replace("<source>", &format!("<source>, server_id: {id}")));
    let mut relay = bed.relay(&text);
    let name = &bed.name;
    relay.start();
    relay.wait_ready();
    let good = tailpost(["check".as_ref(), relay.pipeline_file().as_os_str()]);
    assert!(
        !good.stdout.contains("  server_id: "),
        "its own is none: {}",
        good.stdout
    );
    relay.sigterm();
    assert_eq!(relay.wait_exit(DEADLINE), 0);

    // Two files of one process are refused; of two processes, the first is ended for the second.
    let named = |other: &str| format!("name: {name}-{other}");
    let sound = bed.fill(ANY_OUTBOX).replace(&format!("name: {name}"), &named("beside"));
    let sound = beside(&relay, &sound);
    relay.expect_error("another replica");
    relay.start_with(&[&sound]);
    relay.wait_ready();
    let mut second = bed.relay(&text.replace(&format!("name: {name}"), &named("second")));
    second.start();
    second.wait_ready();
    let words = Words {
        object: &format!("server_id {id}"),
        found: "another replica",
        expected: "expected to be the only one with it",
        remedy: "give each its own, by `server_id` of spec.source.config",
    };
    words.are_told(&mut relay, name, true);
    let words = Words {
        object: &id.to_string(),
        found: "is that of a replica which is connected now",
        expected: "expected an id of the pipeline's own",
        ..words
    };
    let file = match &bed {
        // MariaDB shows its replicas to those only who have REPLICATION MASTER ADMIN.
        Bed::Mysql(bed) if db == Db::Mariadb => {
            let file = relay.pipeline_file().with_file_name("by_admin.yaml");
            let text = text.replace(&bed.database.mysql.url, &bed.database.mysql.admin_url);
            fs::write(&file, text).expect("write a pipeline file");
            file
        }
        _ => relay.pipeline_file(),
    };
    words.are_in("check", &checked(&file, "warn  server_id"));
}
