//! What must not leave the database does not, and what is not as agreed is parked: over the whole way, dead letters too.

use std::fs;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::support::kafka::Record;
use crate::support::relay::Relay;
use crate::support::{Bed, Db, Event, over_each};

const PIPELINE: &str = r#"
apiVersion: tailpost/v1
kind: Pipeline
metadata: {name: <name>}
spec:
  source: {type: <type>, config: {<source>, tables: ['<schema>.customers'], outbox: {<outbox>}}}
  processors:
    - type: mask
      rules:
        - {path: payload.customer.email, action: hash, key: '${MASK_KEY}'}
        - {path: 'payload.cards[*].number', action: remove}
        - {path: payload.total, action: round, digits: 1}
        - {path: email, action: remove}
        - {path: name, action: replace, value: '***'}
    - type: validate
      tables: [outbox]
      schemas: {folder: schemas}
      require: [{event_types: ['order.*'], paths: ['cards[*].kind']}]
      require_fields: [aggregate_type]
    - type: outbox
      topic: '<topic>'
      raw_payload: true
      idempotency_key: {sha256: [orders, '${aggregate_id}', '${payload.customer.email}']}
  sinks:
    - {type: kafka, config: {id: k1, brokers: '<brokers>', topic: '<name>.changes', key: '${id}'}}
  dead_letter: {type: kafka, config: {topic: '<name>.dead'}}
"#;

/// What an e-mail address must be when it comes to be checked: a hash.
const SCHEMA: &str = r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "required": ["customer", "total"],
  "properties": {"customer": {"properties": {"email": {"type": "string", "pattern": "^[0-9a-f]{64}$"}}}}
}"#;

/// HMAC-SHA-256 of `secret-1@example.com` under the key below.
const HASH: &str = "230747b80bcc10f8a9978b96ca8dbb57a08da54047626660b6c4623801f1f053";
const KEY: &str = "a key of the test, 32 bytes long";

fn started(bed: &Bed) -> Relay {
    for topic in ["events", "changes", "dead"] {
        bed.kafka.create_topic(&bed.topic(topic), 1, &[]);
    }
    let mut app = bed.app();
    app.run("CREATE TABLE customers (id INT PRIMARY KEY, name VARCHAR(20), email VARCHAR(40), city VARCHAR(20))");
    if bed.db() == Db::Postgres {
        // As MySQL has it: old rows are in the log as a whole.
        app.run("ALTER TABLE customers REPLICA IDENTITY FULL");
    }
    let mut relay = bed.relay(PIPELINE).env("MASK_KEY", KEY);
    let schemas = relay.pipeline_file().with_file_name("schemas").join("order.created");
    fs::create_dir_all(&schemas).unwrap();
    fs::write(schemas.join("1.0.0.json"), SCHEMA).unwrap();
    relay.keep_secret("secret");
    relay.keep_secret(KEY);
    relay.start();
    relay.wait_ready();
    relay
}

fn order(payload: &str) -> Event {
    Event::of(payload)
        .aggregate_type("Order")
        .key("5")
        .event_type("order.created")
}

fn records(bed: &Bed, topic: &str, count: usize) -> Vec<Record> {
    let records = bed.reader(&[topic]).exactly(count).to_vec();
    for record in &records {
        let headers = record.headers.iter().filter_map(|(_, value)| value.as_ref());
        let all = headers.chain(&record.key).chain(&record.value);
        for part in all.map(|part| String::from_utf8_lossy(part)) {
            assert!(!part.contains("secret"), "{part}");
        }
    }
    records
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|err| panic!("{text}: {err}"))
}

/// A letter's payload, of the event that it is made of.
fn payload(bed: &Bed, letter: &Record) -> Value {
    let mut event = parsed(letter.value_text().unwrap());
    let payload = event["payload"].take();
    match bed.db() {
        // MariaDB's JSON is text.
        Db::Mariadb => parsed(payload.as_str().unwrap()),
        Db::Postgres | Db::Mysql => payload,
    }
}

fn said<'a>(letter: &'a Record, name: &str) -> Option<&'a str> {
    letter.header(&format!("tailpost-dlq-{name}"))
}

over_each!(masked_values_leave_by_no_way_and_what_is_not_as_agreed_is_parked);
fn masked_values_leave_by_no_way_and_what_is_not_as_agreed_is_parked(db: Db) {
    let bed = Bed::new(db);
    let mut relay = started(&bed);
    let mut app = bed.app();
    let good = r#"{"customer": {"email": "secret-1@example.com"}, "cards": [{"kind": "x",  "number": "secret"}], "total": 12.345}"#;
    let lacking = r#"{"customer": {"email": "secret-1@example.com"}, "cards": [{"kind": "x", "number": "secret"}]}"#;
    let unmaskable = r#"{"customer": {"email": "secret-1@example.com"}, "cards": [], "total": "secret"}"#;
    for event in [
        order(good),
        order(lacking),
        order(unmaskable),
        order(good).event_type("order.unknown"),
        order(r#"{"customer": {}, "cards": [{"kind": null}], "total": 1}"#),
        Event::of(good).event_type("order.created"),
    ] {
        app.emit(&event);
    }
    app.run(
        "INSERT INTO customers VALUES (1, 'secret', 'secret', 'Paris');
         UPDATE customers SET city = 'Rome' WHERE id = 1;
         DELETE FROM customers WHERE id = 1",
    );
    relay.wait_settled(9);
    assert_eq!(relay.published(), 4);
    let reasons = ["schema_validation_failed", "poison_message"];
    assert_eq!(reasons.map(|reason| relay.dead_lettered(reason)), [4, 1]);

    // It is meant for the other table, as far as the file says.
    let line = relay.wait_log("the table has no such column");
    assert!(line.contains("INFO") && line.contains("path="), "{line}");

    let events = records(&bed, "events", 1);
    let text = events[0].value_text().unwrap();
    let expected = good
        .replace("secret-1@example.com", HASH)
        .replace(",  \"number\": \"secret\"", "")
        .replace("12.345", "12.3");
    assert_eq!(parsed(text), parsed(&expected));
    if db != Db::Mysql {
        assert_eq!(text, expected, "to the byte, where the server keeps the application's");
    }
    let digest = Sha256::digest(format!("orders|5|{HASH}"));
    let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(events[0].header("idempotency-key"), Some(digest.as_str()));

    let changes = records(&bed, "changes", 3);
    let masked = |city: &str| json!({"id": 1, "name": "***", "email": null, "city": city});
    let images: Vec<Value> = changes
        .iter()
        .map(|record| {
            let change = parsed(record.value_text().unwrap());
            json!([change["before"], change["after"]])
        })
        .collect();
    assert_eq!(
        images,
        [
            json!([null, masked("Paris")]),
            json!([masked("Paris"), masked("Rome")]),
            json!([masked("Rome"), null]),
        ]
    );

    let letters = records(&bed, "dead", 5);
    for (letter, (reason, error)) in letters.iter().zip([
        (
            "schema_validation_failed",
            "the payload does not match its schema `order.created/1.0.0`: it lacks `total`, by `/required`",
        ),
        (
            "poison_message",
            "`payload.total` cannot be masked: it is text; expected a number",
        ),
        (
            "schema_validation_failed",
            "there is no schema of version `1.0.0` for `order.unknown`",
        ),
        ("schema_validation_failed", "the payload lacks `cards[*].kind`"),
        ("schema_validation_failed", "it lacks `aggregate_type`"),
    ]) {
        assert_eq!(
            (said(letter, "reason"), said(letter, "detail")),
            (Some(reason), Some("invalid"))
        );
        assert!(
            said(letter, "error").unwrap().contains(error),
            "{:?}",
            said(letter, "error")
        );
        assert_eq!(said(letter, "topic"), Some(bed.events().as_str()));
    }
    assert_eq!((letters[0].key_text(), letters[4].key_text()), (Some("5"), None));
    assert_eq!(
        payload(&bed, &letters[0]),
        json!({"customer": {"email": HASH}, "cards": [{"kind": "x"}]})
    );
    assert_eq!(
        payload(&bed, &letters[1]),
        json!({"customer": {"email": HASH}, "cards": [], "total": null})
    );
}
