//! RDF4J's server, whose REST interface GraphDB has too, as the target of `pipelines/graphdb-postgres.yaml`: SPARQL updates,
//! statements and whole graphs.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use crate::support::java::JavaServer;
use crate::support::relay::Relay;
use crate::support::{Bed, DEADLINE, Db, Event, eventually};

const DDL: &str =
    "CREATE TABLE outbox (id text PRIMARY KEY, aggregate_type text, aggregate_id text, event_type text, topic text,
    payload text)";

const REPOSITORY: &str = "/rdf4j-server/repositories/catalog";

/// The ready file's pipeline, from the bed's outbox, with these changes.
fn relay(bed: &Bed, server: &JavaServer, changes: &[(&str, &str)]) -> Relay {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/pipelines/graphdb-postgres.yaml");
    let mut pipeline = fs::read_to_string(path)
        .expect("the ready file")
        .replace("graphdb_slot", "<slot>")
        .replace("graphdb_pub", "<publication>")
        .replace("${POSTGRES_DSN}", "'<dsn>'")
        .replace("name: graphdb", "name: <name>")
        .replace("base_delay: 2s, max_delay: 300s", "base_delay: 100ms, max_delay: 1s");
    for (from, to) in changes {
        assert!(pipeline.contains(from), "{from}");
        pipeline = pipeline.replace(from, to);
    }
    bed.app().run(DDL);
    let url = format!("http://{}{REPOSITORY}", server.address);
    let mut relay = bed.relay(&pipeline).env("GRAPHDB_URL", &url);
    relay.start();
    relay.wait_ready();
    relay
}

fn event(record: &str, number: u32, payload: &str) -> Event {
    Event::of(payload)
        .id(format!("{record}-{number}"))
        .key(record)
        .aggregate_type("record")
        .event_type("record.changed")
}

/// The values that a query has for `?o`, each as often as it has it.
fn values(server: &JavaServer, query: &str) -> Vec<String> {
    let path = format!("{REPOSITORY}?Accept=application/sparql-results%2Bjson");
    let answer = server.send("POST", &path, "application/sparql-query", query);
    let found: Value = serde_json::from_str(&answer.body).unwrap_or_else(|error| panic!("{error}: {}", answer.body));
    let rows = found["results"]["bindings"].as_array().expect("rows").iter();
    rows.map(|row| row["o"]["value"].as_str().expect("a value").to_owned())
        .collect()
}

/// Replaces a record's title.
fn update(record: &str, number: u32) -> Event {
    let subject = format!("<urn:record:{record}>");
    event(
        record,
        number,
        &format!("DELETE WHERE {{ {subject} ?p ?o }}; INSERT DATA {{ {subject} <urn:title> \"state {number}\" }}"),
    )
}

#[test]
#[ignore = "fetches RDF4J: make test-targets"]
fn updates_of_a_record_are_done_in_order_and_a_malformed_one_is_parked() {
    let mut server = JavaServer::rdf4j();
    let bed = Bed::new(Db::Postgres);
    let mut relay = relay(&bed, &server, &[]);
    let mut app = bed.app();
    let mut write = |numbers: std::ops::RangeInclusive<u32>| {
        let states = numbers.flat_map(|number| (0..5).map(move |record| update(&format!("r-{record}"), number)));
        app.insert_all(&states.collect::<Vec<_>>()).expect("write events");
    };
    write(1..=20);
    relay.wait_published(1);
    // What it answered is on its disk; what it did not answer is done again, and comes to the same.
    server.kill();
    write(21..=30);
    relay.wait_not_ready("Connection refused");
    server.start();
    bed.app()
        .insert_all(&[event("r-2", 100, "INSERT DATA { <urn:record:r-2> ")])
        .expect("write an event");
    write(31..=31);
    relay.wait_settled(5 * 31 + 1);
    assert_eq!(
        (relay.published(), relay.dead_lettered("permanent_failure")),
        (5 * 31, 1)
    );
    let titles = values(&server, "SELECT ?o WHERE { ?s <urn:title> ?o }");
    assert_eq!(titles, ["state 31"; 5]);
    let letter = &relay.letters("graphdb-dead.sqlite")[0].letter;
    assert_eq!(letter.event_id, "r-2-100");
    assert!(letter.error.contains("MALFORMED QUERY"), "{}", letter.error);
}

#[test]
#[ignore = "fetches RDF4J: make test-targets"]
fn statements_are_added_and_a_repository_that_is_not_there_costs_none() {
    let server = JavaServer::rdf4j();
    let bed = Bed::new(Db::Postgres);
    let to_nowhere = ("/statements\"", "-missing/statements\"");
    let statements = (
        "Content-Type: application/sparql-update",
        "Content-Type: application/n-triples",
    );
    let mut relay = relay(&bed, &server, &[to_nowhere, statements]);
    let added = |number: u32| event("r-1", number, &format!("<urn:record:r-1> <urn:part> \"{number}\" .\n"));
    let mut events: Vec<Event> = (1..=5).map(added).collect();
    events.push(event("r-1", 6, "<urn:record:r-1> <urn:part>"));
    events.push(added(7));
    bed.app().insert_all(&events).expect("write events");
    relay.wait_halted(&["answers 404"]);
    let mended = fs::read_to_string(relay.pipeline_file())
        .expect("the file")
        .replace(to_nowhere.1, to_nowhere.0);
    relay.rewrite(&mended);
    relay.start();
    relay.wait_settled(7);
    assert_eq!((relay.published(), relay.dead_lettered("permanent_failure")), (6, 1));
    let parts = values(&server, "SELECT ?o WHERE { <urn:record:r-1> <urn:part> ?o }");
    let parts: BTreeSet<&str> = parts.iter().map(String::as_str).collect();
    assert_eq!(parts, BTreeSet::from(["1", "2", "3", "4", "5", "7"]));
    let letter = &relay.letters("graphdb-dead.sqlite")[0].letter;
    assert!(letter.error.contains("MALFORMED DATA"), "{}", letter.error);
}

/// A node without a name is another one each time that it is added; a graph that takes the place of itself has it once.
#[test]
#[ignore = "fetches RDF4J: make test-targets"]
fn a_graph_takes_the_place_of_the_one_before() {
    let server = JavaServer::rdf4j();
    let bed = Bed::new(Db::Postgres);
    let changes = [
        ("        url: \"${env:GRAPHDB_URL}/statements\"\n", ""),
        ("        headers: {Content-Type: application/sparql-update}\n", ""),
        ("# method: PUT", "method: PUT"),
        ("# url: ", "url: "),
        ("# headers: ", "headers: "),
    ];
    let mut relay = relay(&bed, &server, &changes);
    let mut events = Vec::new();
    for number in 1..=10 {
        events.extend(["a/1", "r&2"].map(|record| {
            let graph = format!("[] <urn:title> \"state {number}\" ; <urn:of> \"{record}\" .");
            event(record, number, &graph)
        }));
    }
    bed.app().insert_all(&events).expect("write events");
    relay.wait_published(20);
    eventually(DEADLINE, "both graphs are in their last state", || {
        let titles = values(&server, "SELECT ?o WHERE { GRAPH ?g { ?s <urn:title> ?o } }");
        titles == ["state 10"; 2]
    });
    let graphs = values(
        &server,
        "SELECT DISTINCT (STR(?g) AS ?o) WHERE { GRAPH ?g { ?s ?p ?q } } ORDER BY ?o",
    );
    assert_eq!(graphs, ["urn:record:a/1", "urn:record:r&2"]);
}
