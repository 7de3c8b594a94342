//! Payloads against schemas of a registry: fetched when an event needs them, waited for when the registry is away, and never a
//! reason to refuse an event because it is.
//!
//! The registry is a server of the test's own, which answers as Confluent's and Apicurio's do.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::support::relay::Relay;
use crate::support::target::{Answer, Request, Target};
use crate::support::{Bed, DEADLINE, Db, Event, eventually, over_each};

const PIPELINE: &str = "
apiVersion: tailpost/v1
kind: Pipeline
metadata: {name: <name>}
spec:
  source: {type: <type>, config: {<source>, outbox: {<outbox>}}}
  processors:
    - type: validate
      schemas: {registry: {url: '<url>/api', subject: '${event_type}-value', auth: {type: bearer, token: registry-token}}}
    - {type: outbox, topic: '<topic>', raw_payload: true}
  sinks: [{type: kafka, config: {id: k1, brokers: '<brokers>'}}]
  dead_letter: {type: kafka, config: {topic: '<name>.dead'}}
";

/// What is registered: by subject, the versions from 1 on.
#[derive(Clone, Default)]
struct Registered(Arc<Mutex<BTreeMap<String, Vec<Value>>>>);

impl Registered {
    fn add(&self, subject: &str, schema: &Value, references: &Value) {
        let mut all = self.0.lock().unwrap();
        let versions = all.entry(subject.to_owned()).or_default();
        versions.push(json!({
            "subject": subject, "version": versions.len() + 1, "id": 100, "schemaType": "JSON",
            "references": references, "schema": schema.to_string(),
        }));
    }

    fn answer(&self, request: &Request) -> Answer {
        let full = |code, body: Value| {
            let headers = "content-type: application/vnd.schemaregistry.v1+json\r\n".to_owned();
            Answer::Full(code, headers, body.to_string())
        };
        if request.header("authorization") != Some("Bearer registry-token") {
            return full(401, json!({"error_code": 40101, "message": "who are you"}));
        }
        let path: Vec<&str> = request.path.split('/').collect();
        let all = self.0.lock().unwrap();
        match path[..] {
            ["", "api", "schemas", "types"] => full(200, json!(["JSON", "PROTOBUF", "AVRO"])),
            ["", "api", "subjects", subject, "versions", version] => match all.get(subject) {
                None => full(404, json!({"error_code": 40401, "message": "no such subject"})),
                Some(versions) => {
                    let found = match version {
                        "latest" => versions.last(),
                        number => versions.get(number.parse::<usize>().unwrap() - 1),
                    };
                    match found {
                        Some(schema) => full(200, schema.clone()),
                        None => full(404, json!({"error_code": 40402, "message": "no such version"})),
                    }
                }
            },
            _ => Answer::Status(400),
        }
    }
}

fn registry(registered: &Registered) -> Target {
    let registered = registered.clone();
    Target::new(move |request, _| registered.answer(request))
}

fn started(bed: &Bed, registry: &Target) -> Relay {
    let mut relay = bed.relay(&PIPELINE.replace("<url>", &registry.url()));
    relay.keep_secret("registry-token");
    relay.start();
    relay
}

fn paid(amount: &str) -> Event {
    Event::of(format!(r#"{{"amount": {amount}}}"#))
        .event_type("paid")
        .key("1")
}

/// `paid` has a positive amount, as the schema says that it refers to.
fn with_paid() -> Registered {
    let registered = Registered::default();
    registered.add("amount", &json!({"type": "number", "exclusiveMinimum": 0}), &json!([]));
    let references = json!([{"name": "amount.json", "subject": "amount", "version": 1}]);
    let paid = json!({"required": ["amount"], "properties": {"amount": {"$ref": "amount.json"}}});
    registered.add("paid-value", &paid, &references);
    registered
}

over_each!(a_payload_is_held_against_the_schema_of_its_subject);
fn a_payload_is_held_against_the_schema_of_its_subject(db: Db) {
    let bed = Bed::new(db);
    let registered = with_paid();
    let registry = registry(&registered);
    let mut relay = started(&bed, &registry);
    relay.wait_ready();
    let mut app = bed.app();
    for amount in ["1", "0", "2", "-1"] {
        app.emit(&paid(amount));
    }
    app.emit(&Event::of("1").event_type("unheard").key("1"));
    relay.wait_settled(5);
    assert_eq!(
        (relay.published(), relay.dead_lettered("schema_validation_failed")),
        (2, 3)
    );
    let mut dead = bed.kafka.reader(&[format!("{}.dead", bed.name)]);
    let errors: Vec<String> = dead
        .exactly(3)
        .iter()
        .map(|letter| letter.header("tailpost-dlq-error").unwrap().to_owned())
        .collect();
    assert!(
        errors[0].contains("`paid-value/1`: `/amount` does not meet"),
        "{errors:#?}"
    );
    assert!(errors[2].contains("for subject `unheard-value`"), "{errors:#?}");
    let requests = registry.requests();
    let of_amount = requests
        .iter()
        .filter(|request| request.path.contains("/amount/"))
        .count();
    assert_eq!(
        of_amount, 3,
        "for the first event, and before each refusal of one that is new"
    );
}

#[test]
fn an_event_waits_for_a_registry_that_is_away_and_is_not_called_invalid() {
    let bed = Bed::new(Db::Postgres);
    let registered = with_paid();
    let registry = registry(&registered);
    registry.behave(|_, _| Answer::Status(503));
    let mut relay = started(&bed, &registry);
    relay.wait_log("streaming");
    relay.wait_not_ready("schema registry http://");
    bed.app().emit(&paid("1"));
    relay.wait_log("a schema registry is asked again");
    eventually(DEADLINE, "the event is read", || {
        relay.metric("tailpost_events_received_total", &[]) >= 1.0
    });
    assert_eq!(relay.dead_lettered("schema_validation_failed"), 0);
    registry.behave(move |request, _| registered.answer(request));
    relay.wait_ready();
    relay.wait_published(1);
    assert_eq!(relay.count_log("a schema registry is asked again"), 1);
}

#[test]
fn a_version_that_was_registered_since_takes_what_the_former_one_refuses() {
    let bed = Bed::new(Db::Postgres);
    let registered = with_paid();
    let registry = registry(&registered);
    let mut relay = started(&bed, &registry);
    relay.wait_ready();
    let mut app = bed.app();
    app.emit(&paid("1"));
    relay.wait_published(1);
    registered.add("paid-value", &json!({"required": ["amount"]}), &json!([]));
    app.emit(&paid("-1"));
    relay.wait_published(2);
    app.emit(&Event::of("{}").event_type("paid").key("1"));
    relay.wait_settled(3);
    assert_eq!(relay.dead_lettered("schema_validation_failed"), 1);
    relay.sigterm();
    assert_eq!(relay.wait_exit(DEADLINE), 0);
}

#[test]
fn a_registry_that_refuses_us_ends_the_pipeline_with_the_remedy() {
    let bed = Bed::new(Db::Postgres);
    let registry = Target::new(|_, _| Answer::Status(401));
    let mut relay = started(&bed, &registry);
    relay.wait_halted(&["does not let us read (it answered 401)", "schemas.registry.auth"]);
}
