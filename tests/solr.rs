//! Apache Solr as the target of `pipelines/solr-postgres.yaml`: what it indexes, what it refuses, and what a crash of it costs.

use std::collections::BTreeMap;
use std::fs;

use serde_json::{Value, json};

use crate::support::java::JavaServer;
use crate::support::relay::Relay;
use crate::support::{Bed, DEADLINE, Db, Event, eventually};

const DDL: &str =
    "CREATE TABLE outbox (id text PRIMARY KEY, aggregate_type text, aggregate_id text, event_type text, topic text,
    payload jsonb)";

/// The ready file's processors and sink behind the bed's outbox, with shorter waits between tries.
fn relay(bed: &Bed, core: &str) -> Relay {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/pipelines/solr-postgres.yaml");
    let text = fs::read_to_string(path).expect("the ready file");
    let (_, sink) = text.split_once("  processors:").expect("its processors");
    let source = match bed.db() {
        Db::Postgres => "outbox: {tables: [public.outbox]}",
        Db::Mysql | Db::Mariadb => "outbox: {<outbox>}",
    };
    let pipeline = format!(
        "apiVersion: tailpost/v1\nkind: Pipeline\nmetadata: {{name: <name>}}\nspec:\n  \
         source: {{type: <type>, config: {{<source>, {source}}}}}\n  processors:{sink}"
    );
    if bed.db() == Db::Postgres {
        bed.app().run(DDL);
    }
    let mut relay = bed
        .relay(&pipeline.replace("base_delay: 2s, max_delay: 300s", "base_delay: 100ms, max_delay: 1s"))
        .env("SOLR_URL", core);
    relay.start();
    relay.wait_ready();
    relay
}

fn core(solr: &JavaServer) -> String {
    format!("http://{}/solr/records", solr.address)
}

/// A state of a record: its document has the number of the state in `rows`.
fn state(record: &str, rows: u32) -> Event {
    document(
        record,
        rows,
        &json!({"id": record, "title_t": format!("state {rows}"), "rows": rows}),
    )
}

fn document(record: &str, number: u32, document: &Value) -> Event {
    Event::of(document.to_string())
        .id(format!("{record}-{number}"))
        .key(record)
        .aggregate_type("record")
        .event_type("record.upsert")
}

/// All documents by their ids, as a search sees them.
fn documents(solr: &JavaServer) -> BTreeMap<String, Value> {
    let found = solr.json("/solr/records/select?q=*:*&rows=10000&fl=id,title_t,rows&wt=json");
    let documents = found["response"]["docs"].as_array().expect("documents").iter();
    documents
        .map(|document| (document["id"].as_str().expect("an id").to_owned(), document.clone()))
        .collect()
}

/// Waits until searches see so many documents, each of them in its last state.
fn wait_indexed(solr: &JavaServer, records: u32, rows: u32) {
    eventually(DEADLINE, "the last states are found", || {
        let found = documents(solr);
        found.len() == records as usize && found.values().all(|document| document["rows"] == rows)
    });
}

fn a_refused_document_is_parked_and_its_record_goes_on(db: Db) {
    let solr = JavaServer::solr();
    let bed = Bed::new(db);
    let mut relay = relay(&bed, &core(&solr));
    let mut events = Vec::new();
    for rows in 1..=20 {
        events.extend((0..10).map(|record| state(&format!("r-{record}"), rows)));
        if rows == 10 {
            events.push(document("r-3", 100, &json!({"id": "r-3", "rows": "many"})));
            events.push(document("r-4", 100, &json!({"title_t": "without an id"})));
        }
    }
    bed.app().insert_all(&events).expect("write events");
    relay.wait_settled(202);
    assert_eq!((relay.published(), relay.dead_lettered("permanent_failure")), (200, 2));
    wait_indexed(&solr, 10, 20);
    let third = &documents(&solr)["r-3"];
    assert_eq!(third, &json!({"id": "r-3", "title_t": "state 20", "rows": 20}));

    let letters = relay.letters("solr-dead.sqlite");
    let of = |id: &str| {
        let mut letters = letters.iter().map(|kept| &kept.letter);
        letters.find(|letter| letter.event_id == id).expect("a letter")
    };
    assert!(
        of("r-3-100").error.contains("Error adding field 'rows'='many'"),
        "{}",
        of("r-3-100").error
    );
    assert!(
        of("r-4-100").error.contains("missing mandatory uniqueKey field: id"),
        "{}",
        of("r-4-100").error
    );
    assert_eq!(
        of("r-3-100").target.as_deref(),
        Some(format!("{}/update/json/docs?commitWithin=1000", core(&solr)).as_str())
    );
}

#[test]
#[ignore = "fetches Solr: make test-targets"]
fn a_refused_document_is_parked_and_its_record_goes_on_from_postgres() {
    a_refused_document_is_parked_and_its_record_goes_on(Db::Postgres);
}

#[test]
#[ignore = "fetches Solr: make test-targets"]
fn a_refused_document_is_parked_and_its_record_goes_on_from_mysql() {
    a_refused_document_is_parked_and_its_record_goes_on(Db::Mysql);
}

/// What it acknowledged before was in its own log, and nowhere else: searches did not see it yet.
#[test]
#[ignore = "fetches Solr: make test-targets"]
fn solr_may_crash_at_any_time() {
    let mut solr = JavaServer::solr();
    let bed = Bed::new(Db::Postgres);
    let mut relay = relay(&bed, &core(&solr));
    let mut app = bed.app();
    let mut write = |rows| {
        let events: Vec<Event> = (0..50).map(|record| state(&format!("r-{record}"), rows)).collect();
        app.insert_all(&events).expect("write events");
    };
    (1..=20).for_each(&mut write);
    relay.wait_published(1);
    solr.kill();
    (21..=30).for_each(&mut write);
    relay.wait_not_ready("Connection refused");
    solr.start();
    write(31);
    relay.wait_published(50 * 31);
    wait_indexed(&solr, 50, 31);
}

#[test]
#[ignore = "fetches Solr: make test-targets"]
fn a_core_that_is_not_there_costs_no_event() {
    let solr = JavaServer::solr();
    let bed = Bed::new(Db::Postgres);
    let mut relay = relay(&bed, &format!("http://{}/solr/missing", solr.address));
    bed.app().insert_all(&[state("r-1", 1)]).expect("write an event");
    relay.wait_halted(&["answers 404"]);
    let mut relay = relay.env("SOLR_URL", &core(&solr));
    relay.start();
    relay.wait_published(1);
    wait_indexed(&solr, 1, 1);
}
