//! Whole files: what loads, what is refused and how, what is said.

mod audit;
mod delivery;
mod deltaforge;
mod envelope;
mod expansion;
mod files;
mod filter;
mod idempotency;
mod mask;
mod mysql;
mod outbox;
mod properties;
mod rules;
mod secrets;
mod several_sinks;
mod sinks;
mod transactions;
mod validate;
mod violations;

use std::collections::BTreeMap;
use std::path::Path;

use super::pipeline::{Kafka, Mysql, Outbox, Postgres, Processor, Source};
use super::*;

/// The contract's first example, as it stands.
const EXAMPLE: &str = r#"apiVersion: deltaforge/v1
kind: Pipeline
metadata:
  name: order-events
  tenant: acme
spec:
  source:
    type: postgres
    config:
      id: pg1
      dsn: ${POSTGRES_DSN}
      publication: orders_pub
      slot: orders_slot
      tables: [public.orders]
      outbox:
        prefixes: [outbox]
  processors:
    - type: outbox
      topic: "${aggregate_type}.${event_type}"
      default_topic: "events.unrouted"
      raw_payload: true
  sinks:
    - type: kafka
      config:
        id: k1
        brokers: ${KAFKA_BROKERS}
        topic: "events.fallback"
"#;

fn ours() -> String {
    EXAMPLE.replace("deltaforge/v1", "tailpost/v1")
}

fn variables(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|&(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

fn environment() -> BTreeMap<String, String> {
    variables(&[
        ("POSTGRES_DSN", "postgres://app:secret@db:5433/shop"),
        ("MYSQL_DSN", "mysql://app:secret@db:3307/shop"),
        ("KAFKA_BROKERS", "k1:9092,k2:9092"),
        ("SOLR_URL", "http://solr:8983/solr/records"),
        ("GRAPHDB_URL", "http://graphdb:7200/repositories/catalog"),
        ("HOOK_TOKEN", "token"),
        ("HOOK_SECRET", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
        ("MASK_KEY", "0123456789abcdef"),
    ])
}

fn load_with(text: &str, environment: &BTreeMap<String, String>) -> Result<Loaded, ConfigError> {
    load_text(Path::new("orders.yaml"), text, environment)
}

fn loaded(text: &str) -> Loaded {
    let loaded = load_with(text, &environment()).unwrap_or_else(|err| panic!("{err}\n{text}"));
    schema::tests::assert_accepted(text);
    loaded
}

/// Violations as `line:column: path: problem`.
fn violations(text: &str) -> Vec<String> {
    match load_with(text, &environment()) {
        Ok(_) => Vec::new(),
        Err(err) => err
            .violations
            .iter()
            .map(|line| line.to_string().replacen("orders.yaml:", "", 1))
            .collect(),
    }
}

/// The only violation.
fn violation(text: &str) -> String {
    let mut all = violations(text);
    assert_eq!(all.len(), 1, "{all:#?}\n{text}");
    all.remove(0)
}

fn notes(text: &str) -> Vec<String> {
    loaded(text)
        .notes
        .iter()
        .map(|note| note.to_string().replacen("orders.yaml:", "", 1))
        .collect()
}

/// The example in tailpost/v1 with one text replaced, which must be there.
fn with(from: &str, to: &str) -> String {
    let text = ours();
    assert!(text.contains(from), "{from}");
    text.replacen(from, to, 1)
}

fn source_with(line: &str) -> String {
    with("      id: pg1\n", &format!("      id: pg1\n      {line}\n"))
}

fn processor_with(line: &str) -> String {
    with("    - type: outbox\n", &format!("    - type: outbox\n      {line}\n"))
}

fn sink_with(line: &str) -> String {
    with("        id: k1\n", &format!("        id: k1\n        {line}\n"))
}

fn spec_with(line: &str) -> String {
    with("spec:\n", &format!("spec:\n  {line}\n"))
}

fn postgres(loaded: &Loaded) -> &Postgres {
    match &loaded.pipeline.source {
        Source::Postgres(postgres) => postgres,
        Source::Mysql(mysql) => panic!("{mysql:?}"),
    }
}

fn outbox(loaded: &Loaded) -> &Outbox {
    let Processor::Outbox(outbox) = &loaded.pipeline.processors[0] else {
        panic!("an outbox processor")
    };
    outbox
}

/// The processor's own template.
fn topic(loaded: &Loaded) -> String {
    let rule = outbox(loaded).topic.as_ref().unwrap();
    rule.template().unwrap().to_string()
}

fn kafka(loaded: &Loaded) -> &Kafka {
    loaded.pipeline.sink.kafka().unwrap()
}
