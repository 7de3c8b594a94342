//! The examples that are not docker-compose.yml's: what their READMEs promise. Names that a shared server or broker would have only
//! once are the test's own.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::cli::tailpost;
use crate::support::target::{Answer, Target};
use crate::support::{Bed, DEADLINE, Db, eventually};

fn folder(example: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(example)
}

fn text(example: &str, file: &str) -> String {
    fs::read_to_string(folder(example).join(file)).unwrap_or_else(|error| panic!("{example}/{file}: {error}"))
}

/// A pipeline of PostgreSQL whose slot and publication are the bed's.
fn postgres_pipeline(example: &str, names: &str) -> String {
    text(example, "pipeline.yaml")
        .replace(&format!("{names}_slot"), "<slot>")
        .replace(&format!("{names}_pub"), "<publication>")
        .replace("${POSTGRES_DSN}", "'<dsn>'")
}

#[test]
fn datasets_are_published_masked_and_held_against_their_rules() {
    let bed = Bed::new(Db::Postgres);
    let schemas = folder("governed-datasets").join("schemas");
    let pipeline = postgres_pipeline("governed-datasets", "datasets")
        .replace("folder: schemas", &format!("folder: '{}'", schemas.display()))
        .replace("\"${event_name}\"", "\"<name>.${event_name}\"")
        .replace("topic: datasets.dead", "topic: <name>.dead")
        .replace("${KAFKA_BROKERS}", "<brokers>");
    let mut app = bed.app();
    app.run(&text("governed-datasets", "schema.sql"));
    let mut relay = bed.relay(&pipeline).env("MASK_KEY", "0123456789abcdef");
    relay.start();
    relay.wait_ready();
    app.run(&text("governed-datasets", "app.sql"));
    relay.wait_settled(3);
    assert_eq!(
        (relay.published(), relay.dead_lettered("schema_validation_failed")),
        (1, 2)
    );

    let mut reader = bed.reader(&["dataset.published"]);
    let record = &reader.exactly(1)[0];
    let value = record.value_text().expect("text");
    assert!(
        value.starts_with(r#"{"at": [52.52, 13.40], "rows": 1200, "owner": {"email": ""#),
        "{value}"
    );
    let email = serde_json::from_str::<Value>(value).expect("JSON")["owner"]["email"].take();
    assert!(email.as_str().is_some_and(|hash| hash.len() == 64), "{email}");
    assert_eq!(record.key_text(), Some("sales.daily"));
    for (name, expected) in [
        ("df-event-type", "dataset.published"),
        ("idempotency-key", "sales.daily@2026-11-29"),
        ("x-pipeline-id", "ingest-7"),
        ("x-care-label", "internal"),
        ("x-version", "1.0.0"),
    ] {
        assert_eq!(record.header(name), Some(expected), "{name}");
    }
    let ledger = relay.state_dir().join("audit/datasets.jsonl");
    let lines: Vec<Value> = fs::read_to_string(&ledger)
        .expect("the ledger")
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let of = |name: &str| lines.iter().map(|line| line[name].as_str()).collect::<Vec<_>>();
    assert_eq!(of("status"), ["published", "dead_letter", "dead_letter"].map(Some));
    assert_eq!(of("care_label"), [Some("internal"), None, Some("internal")]);
    assert_eq!(lines[0]["dataset_id"], "sales.daily");
    let verified = tailpost(["ledger".as_ref(), "verify".as_ref(), ledger.as_os_str()]);
    assert_eq!(verified.code, 0, "{verified:?}");

    let mut reader = bed.reader(&["dead"]);
    let errors: Vec<String> = reader
        .exactly(2)
        .iter()
        .map(|letter| letter.header("tailpost-dlq-error").expect("an error").to_owned())
        .collect();
    assert!(
        errors[0].contains("care_label") && errors[1].contains("rows"),
        "{errors:#?}"
    );
}

#[test]
fn an_event_bus_says_topic_and_key_by_itself() {
    let bed = Bed::new(Db::Mysql);
    let own = |text: String| text.replace("bus.event_outbox", &format!("{}.event_outbox", bed.name));
    let pipeline = own(text("event-bus-mysql", "pipeline.yaml"))
        .replace("dsn: ${MYSQL_DSN}", "dsn: '<dsn>'\n      start: <start>")
        .replace("bus.unrouted", "<name>.unrouted")
        .replace("${KAFKA_BROKERS}", "<brokers>");
    let mut app = bed.app();
    let schema = own(text("event-bus-mysql", "schema.sql"));
    app.run(&schema.replace("CREATE DATABASE IF NOT EXISTS bus;", ""));
    let mut relay = bed.relay(&pipeline);
    relay.start();
    relay.wait_ready();
    let script = own(text("event-bus-mysql", "app.sql"));
    app.run(&script.replace("'bank.accounts'", &format!("'{}'", bed.topic("accounts"))));
    relay.wait_published(2);
    let mut reader = bed.reader(&["accounts"]);
    let record = &reader.exactly(1)[0];
    assert_eq!(
        (record.key_text(), record.value_text()),
        (Some("north-42"), Some(r#"{"amount": 12.5}"#))
    );
    for (name, expected) in [
        ("df-event-type", "MoneyDeposited"),
        ("df-aggregate-id", "42"),
        ("user", "ada"),
        ("tenant", "north"),
        ("x-sequence", "1"),
    ] {
        assert_eq!(record.header(name), Some(expected), "{name}");
    }
    let mut reader = bed.reader(&["unrouted"]);
    let record = &reader.exactly(1)[0];
    assert_eq!(
        (record.key_text(), record.header("x-sequence")),
        (Some("42"), Some("2"))
    );
}

#[test]
fn a_projector_sends_each_record_s_states_in_order() {
    let bed = Bed::new(Db::Postgres);
    let target = Target::new(|_, _| Answer::Status(200));
    let mut app = bed.app();
    app.run(&text("search-projector", "schema.sql"));
    let mut relay = bed
        .relay(&postgres_pipeline("search-projector", "search"))
        .env("SOLR_URL", &format!("{}/solr/records", target.url()));
    relay.start();
    relay.wait_ready();
    app.run(&text("search-projector", "app.sql"));
    eventually(DEADLINE, "three requests", || relay.published() == 3);
    let requests = target.requests();
    let of_one: Vec<&str> = requests
        .iter()
        .filter(|request| request.header("df-aggregate-id") == Some("r-1"))
        .map(|request| request.text())
        .collect();
    assert_eq!(
        of_one,
        [
            r#"{"id": "r-1", "title_t": "On the Origin"}"#,
            r#"{"id": "r-1", "title_t": "On the Origin of Species"}"#
        ]
    );
    assert!(
        requests
            .iter()
            .all(|request| request.path == "/solr/records/update/json/docs?commitWithin=1000")
    );
    let first = requests
        .iter()
        .find(|request| request.text().contains("Principia"))
        .expect("r-2");
    // printf 'record.upsert|r-2|b1' | sha256sum
    let key = "8ee7c9bca34c168fae4b14f14667b79a5bdac2b487d2443f1e0033be333104cb";
    assert_eq!(first.header("idempotency-key"), Some(key));
}
