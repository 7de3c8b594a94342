//! A webhook is told of dead letters: of each that is parked, once, in few requests, and never in the pipeline's way.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::support::relay::Relay;
use crate::support::target::{Answer, Request, Target};
use crate::support::{Bed, DEADLINE, Db, Event, eventually};

const TO_KAFKA: &str = "
apiVersion: tailpost/v1
kind: Pipeline
metadata: {name: <name>}
spec:
  source: {type: <type>, config: {<source>, outbox: {<outbox>}}}
  processors: [{type: outbox, topic: '<name>.events', raw_payload: true, strict: true}]
  sinks: [{type: kafka, config: {id: k1, brokers: '<brokers>'}}]
  dead_letter: {type: kafka, config: {topic: '<name>.dead'}, notify: <notify>}
";

const TO_HTTP: &str = "
apiVersion: tailpost/v1
kind: Pipeline
metadata: {name: <name>}
spec:
  source: {type: <type>, config: {<source>, outbox: {<outbox>}}}
  processors: [{type: outbox, raw_payload: true}]
  sinks: [{type: http, config: {id: target, url: '<url>'}}]
  dead_letter: {type: sqlite, config: {path: dead.sqlite}, notify: <notify>}
";

fn notify(webhook: &Target) -> String {
    let url = format!("{}/T0-path-of-hook", webhook.url());
    format!("{{webhook: '{url}', headers: {{x-token: hook-token}}, interval: 1s}}")
}

fn started(bed: &Bed, pipeline: &str) -> Relay {
    let mut relay = bed.relay(pipeline);
    for secret in ["T0-path-of-hook", "hook-token"] {
        relay.keep_secret(secret);
    }
    relay.start();
    relay.wait_ready();
    relay
}

/// It lacks what `strict` asks for.
fn invalid(number: usize) -> Event {
    Event::of("1")
        .id(format!("e{number}"))
        .event_type("paid")
        .key(format!("order-{number}"))
}

fn json(request: &Request) -> Value {
    serde_json::from_slice(&request.body).expect("JSON")
}

/// The ids of the letters in a request.
fn ids(body: &Value) -> Vec<String> {
    let letters = body["letters"].as_array().expect("a list");
    let id = |letter: &Value| letter["event_id"].as_str().expect("an id").to_owned();
    letters.iter().map(id).collect()
}

fn count(body: &Value) -> u64 {
    body["count"].as_u64().expect("a number")
}

#[test]
fn a_webhook_that_is_away_is_told_with_the_next_and_holds_nothing_back() {
    let bed = Bed::new(Db::Postgres);
    let webhook = Target::new(|_, _| Answer::Status(503));
    let mut relay = started(&bed, &TO_KAFKA.replace("<notify>", &notify(&webhook)));
    let mut app = bed.app();
    app.emit(&invalid(0));
    let first = &webhook.wait(1)[0];
    assert_eq!(
        (first.method.as_str(), first.path.as_str()),
        ("POST", "/T0-path-of-hook")
    );
    assert_eq!(first.header("x-token"), Some("hook-token"));
    let body = json(first);
    let letter = &body["letters"][0];
    for (name, value) in [
        ("event_id", "e0"),
        ("event_type", "paid"),
        ("aggregate_id", "order-0"),
        ("reason", "schema_validation_failed"),
        ("detail", "invalid"),
        ("source", "src1"),
    ] {
        assert_eq!(letter[name], value, "{name} in {body:#}");
    }
    assert_eq!(body["pipeline"], bed.name.as_str());
    // In many transactions: none waits for the webhook.
    for number in 1..=20 {
        app.emit(&invalid(number));
    }
    relay.wait_settled(21);
    webhook.behave(|_, _| Answer::Status(200));
    eventually(DEADLINE, "a request that is taken", || {
        relay.metric("tailpost_dead_letter_notices_total", &[("outcome", "taken")]) >= 1.0
    });
    assert!(relay.metric("tailpost_dead_letter_notices_total", &[("outcome", "failed")]) >= 1.0);
    assert_eq!(
        relay.count_log("the webhook is told of these dead letters with the next"),
        1
    );
    let requests = webhook.requests();
    let last = json(requests.last().expect("a request"));
    assert_eq!(
        (count(&last), &last["total"], &last["more"]),
        (21, &Value::from(21), &Value::from(0))
    );
    let expected: BTreeSet<String> = (0..=20).map(|number| format!("e{number}")).collect();
    assert_eq!(ids(&last).into_iter().collect::<BTreeSet<_>>(), expected);
}

#[test]
fn each_letter_of_a_file_is_told_of_once_and_the_rest_at_the_end() {
    let bed = Bed::new(Db::Postgres);
    let target = Target::new(|_, _| Answer::Status(400));
    let webhook = Target::new(|_, _| Answer::Status(200));
    let pipeline = TO_HTTP.replace("<url>", &target.url());
    let mut relay = started(&bed, &pipeline.replace("<notify>", &notify(&webhook)));
    let mut app = bed.app();
    let event = |number: usize| invalid(number).aggregate_type("Order");
    app.emit(&event(0));
    webhook.wait(1);
    app.begin();
    app.emit_all(&(1..150).map(event).collect::<Vec<_>>()).unwrap();
    app.commit();
    relay.wait_settled(150);
    relay.sigterm();
    assert_eq!(relay.wait_exit(DEADLINE), 0);
    let bodies: Vec<Value> = webhook.requests().iter().map(json).collect();
    assert_eq!(bodies.iter().map(count).sum::<u64>(), 150, "{bodies:#?}");
    let told: Vec<String> = bodies.iter().flat_map(ids).collect();
    let distinct: BTreeSet<&String> = told.iter().collect();
    assert_eq!(distinct.len(), told.len());
    for body in &bodies {
        let listed = ids(body).len() as u64;
        assert!(listed <= 100);
        assert_eq!(body["more"], Value::from(count(body) - listed));
        assert_eq!(body["reasons"]["permanent_failure"], body["count"]);
    }
}
