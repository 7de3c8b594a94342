//! `tailpost position`: what is saved is shown, moved to another store and set by hand, and a pipeline goes on from there.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use mysql::Row;
use mysql::prelude::Queryable;
use serde_json::{Value, json};
use tailpost::checkpoint::CheckpointStore;
use tailpost::checkpoint::file::FileStore;
use tailpost::position::{Lsn, Position, PostgresPosition};

use crate::support::cli::{Ended, tailpost_reading};
use crate::support::relay::Relay;
use crate::support::{ANY_OUTBOX, Bed, DEADLINE, Db, Event, found, over_each};

/// Runs `tailpost position` with this text on stdin.
fn position(stdin: &str, command: &str, file: &Path, state: &Path, arguments: &[&str]) -> Ended {
    let mut all: Vec<OsString> = vec!["position".into(), command.into(), file.into()];
    all.extend(["--state-dir".into(), state.into()]);
    all.extend(arguments.iter().map(OsString::from));
    tailpost_reading(stdin, all)
}

/// The same with the file and the state folder of a connector.
fn of(relay: &Relay, stdin: &str, command: &str, arguments: &[&str]) -> Ended {
    position(stdin, command, &relay.pipeline_file(), &relay.state_dir(), arguments)
}

/// The same, which must go well; gives what it wrote.
fn done(relay: &Relay, stdin: &str, command: &str, arguments: &[&str]) -> String {
    let ended = of(relay, stdin, command, arguments);
    assert_eq!(ended.code, 0, "{command} {arguments:?}: {ended:?}");
    ended.stdout
}

/// A pipeline file whose servers are nowhere, for what needs none.
struct Offline {
    folder: tempfile::TempDir,
}

impl Offline {
    fn new() -> Self {
        let offline = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        offline.rewrite("orders", "pg1");
        offline
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("pipeline.yaml")
    }

    fn state(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn rewrite(&self, name: &str, source: &str) {
        let config = format!(
            "{{id: {source}, dsn: 'postgres://u@127.0.0.1:1/x', slot: s, publication: p, outbox: {{prefixes: [a]}}}}"
        );
        self.write(name, &format!("{{type: postgres, config: {config}}}"));
    }

    fn write(&self, name: &str, source: &str) {
        let text = format!(
            "apiVersion: tailpost/v1\nkind: Pipeline\nmetadata: {{name: {name}}}\nspec:\n  source: {source}\n  \
             processors: [{{type: outbox}}]\n  sinks: [{{type: kafka, config: {{id: k, brokers: '127.0.0.1:1'}}}}]\n"
        );
        fs::write(self.file(), text).unwrap();
    }

    fn run(&self, stdin: &str, command: &str, state: &str, arguments: &[&str]) -> Ended {
        position(stdin, command, &self.file(), &self.state(state), arguments)
    }

    fn export(&self, state: &str) -> String {
        let ended = self.run("", "export", state, &[]);
        assert_eq!(ended.code, 0, "{ended:?}");
        ended.stdout
    }
}

fn at(base: u64) -> Position {
    Position::Postgres(PostgresPosition {
        system_identifier: 7_400_000_000_000_000_000,
        timeline: 3,
        base: Lsn(base),
        partial: None,
        last_event_end: Lsn(16),
    })
}

/// A document as `export` writes it.
fn document(base: u64) -> String {
    json!({"version": 1, "pipeline": "orders", "source": "pg1", "position": at(base)}).to_string()
}

fn refused(ended: &Ended, code: i32, texts: &[&str]) {
    assert_eq!((ended.code, ended.stdout.as_str()), (code, ""), "{ended:?}");
    assert_eq!(ended.stderr.trim_end().lines().count(), 1, "{}", ended.stderr);
    for text in texts {
        assert!(ended.stderr.contains(text), "`{text}` is not in\n{}", ended.stderr);
    }
}

#[test]
fn nothing_saved_is_shown_as_that_and_not_exported() {
    let offline = Offline::new();
    let shown = offline.run("", "show", "state", &[]);
    assert_eq!(shown.code, 0, "{shown:?}");
    assert!(shown.stdout.contains("pipeline     orders\n") && shown.stdout.contains("position     none is saved\n"));
    let shown = offline.run("", "show", "state", &["--json"]);
    let shown: Value = serde_json::from_str(&shown.stdout).unwrap();
    assert_eq!((&shown["source"], &shown["position"]), (&json!("pg1"), &Value::Null));
    refused(
        &offline.run("", "export", "state", &[]),
        1,
        &["pipeline `orders` has no position in file"],
    );
    // Looking leaves nothing behind.
    assert!(!offline.state("state").exists());
}

#[test]
fn what_is_imported_is_shown_and_exported_again_byte_for_byte() {
    let offline = Offline::new();
    let imported = offline.run(&document(0x10), "import", "a", &[]);
    assert_eq!(imported.code, 0, "{imported:?}");
    assert!(
        imported.stdout.contains("before: none\n") && imported.stdout.contains("now: 0/10\n"),
        "{}",
        imported.stdout
    );
    let exported = offline.export("a");
    assert_eq!(
        exported,
        fs::read_to_string(offline.state("a").join("orders.json")).unwrap()
    );
    assert_eq!(offline.run(&exported, "import", "b", &[]).code, 0);
    assert_eq!(offline.export("b"), exported);
    let shown = offline.run("", "show", "b", &[]).stdout;
    for line in [
        "done up to   0/10",
        "last event   in the transaction that ends at 0/10",
        "server       system identifier 7400000000000000000, timeline 3",
    ] {
        assert!(shown.contains(line), "{shown}");
    }
    let shown: Value = serde_json::from_str(&offline.run("", "show", "b", &["--json"]).stdout).unwrap();
    assert_eq!(shown["position"], serde_json::to_value(at(0x10)).unwrap());
    assert_eq!(shown["store"]["type"], json!("file"));
}

#[test]
fn a_saved_position_is_overwritten_only_on_purpose() {
    let offline = Offline::new();
    assert_eq!(offline.run(&document(0x10), "import", "state", &[]).code, 0);
    // The same once more is no change.
    assert_eq!(offline.run(&document(0x10), "import", "state", &[]).code, 0);
    let other = document(0x20);
    refused(
        &offline.run(&other, "import", "state", &[]),
        1,
        &["has another position of this pipeline, 0/10", "--replace"],
    );
    assert!(offline.export("state").contains("\"0/10\""));
    let replaced = offline.run(&other, "import", "state", &["--replace"]);
    assert!(replaced.stdout.contains("before: 0/10\n") && replaced.stdout.contains("now: 0/20\n"));
    // One that cannot be read is one, too.
    let path = offline.state("state").join("orders.json");
    fs::write(&path, "{\"version\"").unwrap();
    refused(&offline.run("", "show", "state", &[]), 1, &["is damaged"]);
    refused(
        &offline.run(&other, "import", "state", &[]),
        1,
        &["is damaged", "--replace"],
    );
    assert_eq!(offline.run(&other, "import", "state", &["--replace"]).code, 0);
    assert!(offline.export("state").contains("\"0/20\""));
}

#[test]
fn a_position_of_another_pipeline_or_database_is_refused() {
    let offline = Offline::new();
    for (name, source) in [("payments", "pg1"), ("orders", "pg2")] {
        offline.rewrite(name, source);
        let imported = offline.run(&document(0x10), "import", "state", &[]);
        let expected = format!("expected pipeline `{name}` with source `{source}`");
        refused(
            &imported,
            1,
            &["of pipeline `orders` with source `pg1`", &expected, "--as-this"],
        );
        assert_eq!(offline.run(&document(0x10), "import", name, &["--as-this"]).code, 0);
        assert!(offline.export(name).contains(&format!("\"source\": \"{source}\"")));
        fs::remove_dir_all(offline.state(name)).unwrap();
    }
    offline.write(
        "orders",
        "{type: mysql, config: {id: pg1, dsn: 'mysql://u@127.0.0.1:1/x', tables: [a]}}",
    );
    for arguments in [&[][..], &["--as-this"]] {
        let imported = offline.run(&document(0x10), "import", "state", arguments);
        refused(&imported, 1, &["of PostgreSQL, expected one of MySQL or MariaDB"]);
    }
}

#[test]
fn what_is_no_position_is_refused_with_the_reason() {
    let offline = Offline::new();
    for (stdin, text) in [
        ("", "stdin is no position: EOF"),
        ("{}", "missing field `version`"),
        (
            "{\"version\": 2, \"place\": 5}",
            "version 2, expected 1: it was written by a later tailpost",
        ),
        (&document(0x10).replace("0/10", "0-10"), "`0-10` is not an LSN"),
    ] {
        refused(&offline.run(stdin, "import", "state", &[]), 1, &[text]);
    }
    assert!(!offline.state("state").join("orders.json").exists());
}

#[test]
fn setting_needs_the_operators_word_and_one_place_of_the_right_kind() {
    let offline = Offline::new();
    refused(
        &offline.run("", "set", "state", &["--lsn", "0/10"]),
        2,
        &["pass --accept-gap"],
    );
    refused(
        &offline.run("", "set", "state", &["--gtid", "0-1-5", "--accept-gap"]),
        2,
        &["--gtid is no place in the log of PostgreSQL: expected --lsn"],
    );
    for arguments in [
        &["--accept-gap"][..],
        &["--accept-gap", "--lsn", "0/10", "--gtid", "0-1-5"],
        &["--accept-gap", "--lsn", "16"],
        &["--accept-gap", "--file", "binlog.000001"],
        &["--accept-gap", "--pos", "4"],
        &["--accept-gap", "--gtid", ""],
    ] {
        let ended = offline.run("", "set", "state", arguments);
        assert_eq!(ended.code, 2, "{arguments:?}: {ended:?}");
    }
    // Whose log it is only the server knows; where it cannot be asked, nothing was touched.
    refused(
        &offline.run("", "set", "state", &["--lsn", "0/10", "--accept-gap"]),
        1,
        &["127.0.0.1:1"],
    );
    assert!(!offline.state("state").exists());
}

#[test]
fn a_store_that_a_process_holds_is_only_looked_at() {
    let offline = Offline::new();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut running = FileStore::open(&offline.state("state"), "orders", "pg1").unwrap();
    runtime.block_on(running.save(&at(0x10))).unwrap();
    assert!(offline.export("state").contains("\"0/10\""));
    assert!(offline.run("", "show", "state", &[]).stdout.contains("0/10"));
    for arguments in [&[][..], &["--replace"]] {
        let imported = offline.run(&document(0x20), "import", "state", arguments);
        refused(&imported, 1, &["pipeline `orders` already runs with the state folder"]);
    }
    drop(running);
    assert_eq!(offline.run(&document(0x20), "import", "state", &["--replace"]).code, 0);
}

over_each!(a_position_that_was_set_is_where_the_pipeline_goes_on);
fn a_position_that_was_set_is_where_the_pipeline_goes_on(db: Db) {
    let bed = Bed::new(db);
    let mut relay = bed.relay(ANY_OUTBOX);
    relay.start();
    relay.wait_ready();
    let emit = |payload: &str| bed.app().emit(&Event::of(payload).key("1"));
    emit("1");
    relay.wait_published(1);
    let before = relay.position();
    relay.sigterm();
    assert_eq!(relay.wait_exit(DEADLINE), 0);
    let before = relay.position().or(before).expect("a position was saved").to_string();

    // What was committed while it was stopped, and is passed over.
    emit("2");
    let place = Place::behind_the_log(&bed);
    emit("3");
    let refused_place = place.that_is_not_there();
    let refused: Vec<&str> = refused_place.iter().map(String::as_str).collect();
    let ended = of(&relay, "", "set", &[&refused[..], &["--accept-gap"]].concat());
    assert_eq!(ended.code, 1, "{ended:?}");
    assert_eq!(relay.position().expect("it is as it was").to_string(), before);

    let arguments: Vec<&str> = place.arguments.iter().map(String::as_str).collect();
    let set = done(&relay, "", "set", &[&arguments[..], &["--accept-gap"]].concat());
    let now = relay.position().expect("it was set").to_string();
    assert!(
        set.contains(&format!("before: {before}\n")) && set.contains(&format!("now: {now}\n")),
        "{set}"
    );
    relay.start();
    relay.wait_published(1);
    let mut reader = bed.reader(&["events"]);
    let values: Vec<&str> = reader
        .exactly(2)
        .iter()
        .filter_map(|record| record.value_text())
        .collect();
    assert_eq!(values, ["1", "3"]);
}

#[test]
fn a_gap_that_was_accepted_with_a_position_is_said_and_counted_by_the_start_from_it_and_by_none_after() {
    for checkpoint in [ANY_OUTBOX.to_owned(), kept_in_kafka(false), kept_in_kafka(true)] {
        let bed = Bed::new(Db::Postgres);
        let mut relay = bed.relay(&checkpoint);
        relay.start();
        relay.wait_ready();
        relay.sigterm();
        assert_eq!(relay.wait_exit(DEADLINE), 0);
        bed.app().emit(&Event::of("1").key("1"));
        let place = Place::behind_the_log(&bed);
        let arguments: Vec<&str> = place.arguments.iter().map(String::as_str).collect();
        done(&relay, "", "set", &[&arguments[..], &["--accept-gap"]].concat());
        for (payload, accepted) in [("2", 1.0), ("3", 0.0)] {
            relay.start();
            bed.app().emit(&Event::of(payload).key("1"));
            relay.wait_published(1);
            assert_eq!(
                relay.metric("tailpost_accepted_gaps_total", &[]),
                accepted,
                "{checkpoint}"
            );
            let is_said = relay.log().contains("the position was set by hand");
            assert_eq!(is_said, accepted > 0.0, "{checkpoint}\n{}", relay.log());
            relay.sigterm();
            assert_eq!(relay.wait_exit(DEADLINE), 0);
        }
    }
}

/// The bed's events with the checkpoint in a topic of the bed's own, at least once or exactly once.
fn kept_in_kafka(exactly_once: bool) -> String {
    let checkpoint = "spec:\n  checkpoint: {type: kafka, config: {topic: <name>.positions, replication_factor: 1}}\n";
    let text = ANY_OUTBOX.replace("spec:\n", checkpoint);
    match exactly_once {
        true => text.replace("id: k1,", "id: k1, exactly_once: true,"),
        false => text,
    }
}

over_each!(a_position_moves_to_kafka_and_back_and_nothing_is_lost_or_repeated);
fn a_position_moves_to_kafka_and_back_and_nothing_is_lost_or_repeated(db: Db) {
    let bed = Bed::new(db);
    let mut relay = bed.relay(ANY_OUTBOX);
    let mut reader = bed.reader(&["events"]);
    let mut count = 0;
    let mut life = |relay: &mut Relay| {
        count += 1;
        relay.start();
        relay.wait_ready();
        bed.app().emit(&Event::of(count.to_string()).key("1"));
        relay.wait_published(1);
        relay.sigterm();
        assert_eq!(relay.wait_exit(DEADLINE), 0);
        reader.exactly(count);
    };
    life(&mut relay);
    let early = done(&relay, "", "export", &["--store", "file"]);
    life(&mut relay);

    relay.rewrite(&bed.fill(&kept_in_kafka(false)));
    relay.fails();
    assert!(relay.log().contains("tailpost position export"), "{}", relay.log());
    // It went on since that export.
    refused(
        &of(&relay, &early, "import", &[]),
        1,
        &[&relay.checkpoint_file().display().to_string(), "another position"],
    );
    let exported = done(&relay, "", "export", &["--store", "file"]);
    let imported = done(&relay, &exported, "import", &[]);
    assert!(
        imported.contains("in Kafka topic `")
            && imported.contains("before: none\n")
            && imported.contains(".json.moved"),
        "{imported}"
    );
    assert!(!relay.checkpoint_file().exists());
    life(&mut relay);
    assert_ne!(done(&relay, "", "export", &[]), exported);

    relay.rewrite(&bed.fill(&kept_in_kafka(true)));
    life(&mut relay);
    let shown: Value = serde_json::from_str(&done(&relay, "", "show", &["--json"])).unwrap();
    assert_eq!(
        shown["store"],
        json!({"type": "kafka", "topic": bed.topic("positions")})
    );

    let exported = done(&relay, "", "export", &[]);
    relay.rewrite(&bed.fill(ANY_OUTBOX));
    done(&relay, &exported, "import", &[]);
    assert_eq!(done(&relay, "", "export", &[]), exported);
    life(&mut relay);
}

#[test]
fn looking_at_a_position_in_kafka_shuts_nobody_out() {
    for exactly_once in [false, true] {
        let bed = Bed::new(Db::Postgres);
        let mut relay = bed.relay(&kept_in_kafka(exactly_once));
        relay.start();
        relay.wait_ready();
        for count in 1..=3 {
            bed.app().emit(&Event::of("{}").key("1"));
            relay.wait_published(count);
            bed.wait_done_to_the_end(&relay);
            done(&relay, "", "show", &[]);
            done(&relay, "", "export", &[]);
        }
        assert!(!relay.log().contains("WARN"), "{}", relay.log());
        bed.reader(&["events"]).exactly(3);
    }
}

#[test]
fn a_position_in_kafka_is_overwritten_only_on_purpose() {
    let bed = Bed::new(Db::Postgres);
    let mut relay = bed.relay(&kept_in_kafka(false));
    relay.start();
    relay.wait_ready();
    bed.app().emit(&Event::of("{}").key("1"));
    relay.wait_published(1);
    relay.sigterm();
    assert_eq!(relay.wait_exit(DEADLINE), 0);
    let old = done(&relay, "", "export", &[]);
    let mut other: Value = serde_json::from_str(&old).unwrap();
    other["position"]["postgres"]["base"] = json!("0/10");
    refused(
        &of(&relay, &other.to_string(), "import", &[]),
        1,
        &["has another position of this pipeline", "--replace"],
    );
    assert_eq!(done(&relay, "", "export", &[]), old);
    done(&relay, &other.to_string(), "import", &["--replace"]);
    assert!(done(&relay, "", "export", &[]).contains("\"0/10\""));
    // Another pipeline's is beside it, and untouched.
    done(&relay, &old, "import", &["--replace"]);
    assert_eq!(done(&relay, "", "export", &[]), old);
}

#[test]
fn an_instance_that_runs_is_shut_out_by_an_import_and_goes_on_from_there() {
    for exactly_once in [false, true] {
        let bed = Bed::new(Db::Mysql);
        let mut relay = bed.relay(&kept_in_kafka(exactly_once));
        relay.start();
        relay.wait_ready();
        let mut exported = String::new();
        for count in 1..=2 {
            bed.app().emit(&Event::of(count.to_string()).key("1"));
            relay.wait_published(count);
            if count == 1 {
                exported = found(DEADLINE, "a position", || {
                    let ended = of(&relay, "", "export", &[]);
                    (ended.code == 0).then_some(ended.stdout)
                });
            }
        }
        // What it says last is not overwritten by the instance, which looks for the position anew.
        done(&relay, &exported, "import", &["--replace"]);
        bed.app().emit(&Event::of("3").key("1"));
        let mut reader = bed.reader(&["events"]);
        reader.until("event 2 once more, and 3 behind it", |records| {
            let values: Vec<_> = records.iter().filter_map(|record| record.value_text()).collect();
            values.ends_with(&["2", "3"]) && values.iter().filter(|value| **value == "2").count() == 2
        });
    }
}

over_each!(a_place_in_a_binlog_file_can_be_set: mysql, mariadb);
fn a_place_in_a_binlog_file_can_be_set(db: Db) {
    let bed = Bed::new(db);
    let Bed::Mysql(server) = &bed else {
        panic!("a binlog's server")
    };
    let mut relay = bed.relay(ANY_OUTBOX);
    bed.app().emit(&Event::of("1").key("1"));
    let rows: Vec<Row> = server.admin().query("SHOW BINARY LOGS").unwrap();
    let (file, end): (String, u64) = rows
        .last()
        .and_then(|row| Some((row.get(0)?, row.get(1)?)))
        .expect("a file and its size");
    bed.app().emit(&Event::of("2").key("1"));
    let end = end.to_string();
    let set = done(&relay, "", "set", &["--file", &file, "--pos", &end, "--accept-gap"]);
    assert!(set.contains("before: none\n"), "{set}");
    let saved = relay.saved_mysql().expect("it was set");
    assert_eq!(
        (saved.place.file.as_ref(), saved.place.pos.to_string()),
        (file.as_str(), end)
    );
    let beyond = of(
        &relay,
        "",
        "set",
        &["--file", &file, "--pos", "4294967295", "--accept-gap"],
    );
    refused(&beyond, 1, &["which the server does not have"]);
    relay.start();
    relay.wait_published(1);
    let mut reader = bed.reader(&["events"]);
    assert_eq!(reader.exactly(1)[0].value_text(), Some("2"));
}

/// A place in the server's log, as `set` takes it.
struct Place {
    arguments: Vec<String>,
    db: Db,
}

impl Place {
    /// Behind all that was committed up to now.
    fn behind_the_log(bed: &Bed) -> Self {
        let arguments = match bed {
            Bed::Postgres(bed) => vec!["--lsn".to_owned(), bed.log_end().to_string()],
            Bed::Mysql(bed) => vec!["--gtid".to_owned(), bed.gtids().to_string()],
        };
        Self {
            arguments,
            db: bed.db(),
        }
    }

    /// One of the same kind that the server does not have.
    fn that_is_not_there(&self) -> Vec<String> {
        let text = match self.db {
            Db::Postgres => "FFFFFFFF/0".to_owned(),
            Db::Mysql => format!("{},00000000-0000-0000-0000-0000000000ff:1", self.arguments[1]),
            Db::Mariadb => "0-4294967295-18446744073709551615".to_owned(),
        };
        vec![self.arguments[0].clone(), text]
    }
}
