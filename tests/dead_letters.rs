//! What cannot go its way is parked with its bytes and the reason, and the others go theirs. A dead letter that cannot be
//! parked is a stop, not a loss.

use std::collections::HashSet;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::support::acl::{self, AUTHORIZER};
use crate::support::kafka::Record;
use crate::support::relay::Relay;
use crate::support::server::OwnServer;
use crate::support::{Bed, DEADLINE, Db, Event, eventually, over_each};

const PIPELINE: &str = "
apiVersion: tailpost/v1
kind: Pipeline
metadata: {name: <name>}
spec:
  source: {type: <type>, config: {<source>, outbox: {<outbox>}, max_message_bytes: 256KiB}}
  processors:
    - {type: outbox, topic: '<name>.${event_type}', raw_payload: true, strict: true, additional_headers: {x-topic: topic}}
  sinks:
    - {type: kafka, config: {id: k1, brokers: '<brokers>', client_conf: {<client_conf>}}}
  dead_letter: {type: kafka, config: {topic: '<name>.dead', oversized: <oversized>}}
";

/// Records over this are too large for the bed's topic of events.
const TOPIC_LIMIT: usize = 60_000;

fn good(number: usize) -> Event {
    Event::of(number.to_string())
        .aggregate_type("Order")
        .event_type("events")
        .key((number % 10).to_string())
}

fn payload(size: usize) -> String {
    // Text that lz4 does not make smaller.
    let noise: String = (0..size).map(|_| char::from(rand::random_range(b'a'..=b'z'))).collect();
    format!(r#""cell-1 {noise}""#)
}

/// No topic of Kafka's can have this name.
fn unroutable() -> Event {
    Event {
        topic: Some("kept".to_owned()),
        ..Event::of(r#"{"cell-1": 1}"#)
            .id("event-1")
            .aggregate_type("Order")
            .event_type("sold out")
            .key("5")
    }
}

/// It lacks what `strict` asks for.
fn invalid() -> Event {
    Event::of(r#"{"cell-1": 2}"#).event_type("events").key("5")
}

fn too_large() -> Event {
    Event::of(payload(TOPIC_LIMIT + 10_000))
        .aggregate_type("Order")
        .event_type("events")
        .key("5")
}

fn too_large_for_the_source() -> Event {
    Event::of(payload(300_000))
        .aggregate_type("Order")
        .event_type("events")
        .key("5")
}

/// Writes events in one transaction.
fn write(bed: &Bed, events: &[Event]) {
    let mut app = bed.app();
    app.begin();
    app.emit_all(events).unwrap();
    app.commit();
}

fn pipeline(bed: &Bed, oversized: &str, client_conf: &str) -> String {
    bed.fill(PIPELINE)
        .replace("<oversized>", oversized)
        .replace("<client_conf>", client_conf)
}

/// The same with records, dead letters and position in one transaction.
fn transactional(bed: &Bed, pipeline: &str) -> String {
    let checkpoint = "  checkpoint: {type: kafka, config: {topic: '<name>.positions', replication_factor: 1}}\n";
    pipeline.replace("id: k1", "id: k1, exactly_once: true") + &bed.fill(checkpoint)
}

/// The numbers of records in the order of their first times, and how many came again.
fn first_times(records: &[Record], number: impl Fn(&Record) -> usize) -> (Vec<usize>, usize) {
    let mut seen = HashSet::new();
    let numbers = records.iter().map(number);
    let first_times: Vec<usize> = numbers.filter(|number| seen.insert(*number)).collect();
    let again = records.len() - first_times.len();
    (first_times, again)
}

fn payload_number(record: &Record) -> usize {
    record.value_text().unwrap().parse().expect("a number")
}

/// Topics of these limits, and the connector, ready.
fn started(bed: &Bed, limits: [usize; 2], pipeline: &str) -> Relay {
    for (topic, limit) in ["events", "dead"].into_iter().zip(limits) {
        let limit = limit.to_string();
        bed.kafka
            .create_topic(&bed.topic(topic), 1, &[("max.message.bytes", &limit)]);
    }
    let mut relay = bed.relay(pipeline);
    relay.start();
    relay.wait_ready();
    relay
}

const ROOMY: usize = 1_000_000;

/// The numbers that arrived, each as a payload.
fn arrived(bed: &Bed, count: usize) -> Vec<usize> {
    let mut reader = bed.reader(&["events"]);
    reader.exactly(count).iter().map(payload_number).collect()
}

/// The dead letters, which must be this many.
fn letters(bed: &Bed, count: usize) -> Vec<Record> {
    bed.reader(&["dead"]).exactly(count).to_vec()
}

/// What the headers of these names say, each a `tailpost-dlq-` one.
fn said<'a, const N: usize>(letter: &'a Record, names: [&str; N]) -> [Option<&'a str>; N] {
    names.map(|name| letter.header(&format!("tailpost-dlq-{name}")))
}

/// The headers that every letter has, but for its error; gives that.
fn assert_common<'a>(bed: &Bed, letter: &'a Record, why: [&str; 3]) -> &'a str {
    let [reason, detail, attempts] = why.map(Some);
    assert_eq!(
        said(letter, ["reason", "detail", "attempts", "pipeline", "source"]),
        [reason, detail, attempts, Some(&bed.name), Some("src1")]
    );
    let [time, position, event_id, error] = said(letter, ["time", "position", "event-id", "error"]).map(Option::unwrap);
    assert!(
        time.len() == 24 && time.starts_with("20") && time.ends_with('Z'),
        "{time}"
    );
    assert!(!position.is_empty());
    // As the record has it, or would have.
    assert_eq!(letter.header("df-event-id"), Some(event_id));
    assert!(!error.contains("cell-"), "the payload is in the error: {error}");
    assert!(letter.timestamp_ms > 1_600_000_000_000, "{}", letter.timestamp_ms);
    error
}

/// The letter of an event that no record could be made of has all of it.
fn assert_whole(bed: &Bed, letter: &Record, event: &Event) {
    let value = letter.value_text().unwrap();
    match bed.db() {
        Db::Postgres => {
            assert_eq!(value, event.message());
            assert_eq!(said(letter, ["prefix", "table"]), [Some("outbox"), None]);
        }
        Db::Mysql | Db::Mariadb => {
            let mut row: Value = serde_json::from_str(value).expect("an object");
            row.as_object_mut().unwrap().remove("number").expect("the row's number");
            let payload = event.payload.as_deref().unwrap();
            let expected = json!({
                "id": event.id, "aggregate_type": event.aggregate_type, "aggregate_id": event.aggregate_id,
                "event_type": event.event_type, "topic": event.topic,
                // MariaDB's JSON is text.
                "payload": match bed.db() {
                    Db::Mariadb => json!(payload),
                    _ => serde_json::from_str(payload).unwrap(),
                },
            });
            assert_eq!(row, expected);
            let table = format!("{}.outbox", bed.name);
            assert_eq!(said(letter, ["prefix", "table"]), [None, Some(table.as_str())]);
        }
    }
    assert_eq!(letter.key_text(), event.aggregate_id.as_deref());
}

over_each!(three_poison_messages_among_ten_thousand_are_parked_and_the_others_arrive_in_order);
fn three_poison_messages_among_ten_thousand_are_parked_and_the_others_arrive_in_order(db: Db) {
    const COUNT: usize = 9_997;
    let bed = Bed::new(db);
    let mut relay = started(&bed, [TOPIC_LIMIT, ROOMY], &pipeline(&bed, "halt", ""));
    let large = too_large();
    let mut events: Vec<Event> = (0..COUNT).map(good).collect();
    events.insert(7_500, invalid());
    events.insert(5_000, large.clone());
    events.insert(2_500, unroutable());
    for events in events.chunks(1000) {
        write(&bed, events);
    }
    relay.wait_settled(COUNT as u64 + 3);
    assert_eq!(relay.published(), COUNT as u64);
    let reasons = ["poison_message", "permanent_failure", "schema_validation_failed"];
    assert_eq!(reasons.map(|reason| relay.dead_lettered(reason)), [1, 1, 1]);
    // What was too large was known before it was sent: no batch was refused.
    assert_eq!(relay.metric("tailpost_restarts_total", &[]), 0.0);
    assert_eq!(arrived(&bed, COUNT), (0..COUNT).collect::<Vec<_>>());

    let letters = letters(&bed, 3);
    let events = bed.events();
    let error = assert_common(&bed, &letters[0], ["poison_message", "unroutable", "0"]);
    assert!(error.contains("kafka does not allow"), "{error}");
    assert_whole(&bed, &letters[0], &unroutable());
    assert_eq!(said(&letters[0], ["event-id", "topic"]), [Some("event-1"), None]);
    let kept = ["df-aggregate-type", "df-aggregate-id", "df-event-type", "x-topic"];
    assert_eq!(
        kept.map(|name| letters[0].header(name)),
        ["Order", "5", "sold out", "kept"].map(Some)
    );

    let error = assert_common(&bed, &letters[1], ["permanent_failure", "too_large", "1"]);
    assert!(error.contains("over its max.message.bytes of 60000"), "{error}");
    assert_eq!(letters[1].value_text(), large.payload.as_deref());
    assert_eq!(letters[1].key_text(), Some("5"));
    assert_eq!(said(&letters[1], ["topic", "stub"]), [Some(events.as_str()), None]);
    assert_eq!(letters[1].header("df-event-type"), Some("events"));

    let error = assert_common(&bed, &letters[2], ["schema_validation_failed", "invalid", "0"]);
    assert!(error.contains("`aggregate_type`"), "{error}");
    assert_whole(&bed, &letters[2], &invalid());
    assert_eq!(said(&letters[2], ["topic"]), [Some(events.as_str())]);
    // Its id is its place, as an event's without an id of its own always is.
    let [position, event_id] = said(&letters[2], ["position", "event-id"]);
    assert_eq!(position, event_id);

    assert_eq!(relay.count_log("event parked"), 3);
    assert!(!relay.log().contains("cell-"), "a payload is in the log");
    relay.sigterm();
    assert_eq!(relay.wait_exit(DEADLINE), 0);
    relay.start_with(&["--once"]);
    assert_eq!(relay.wait_exit(DEADLINE), 0);
    assert_eq!(bed.reader(&["events", "dead"]).exactly(COUNT + 3).len(), COUNT + 3);
}

over_each!(changes_of_ordinary_tables_are_parked_in_their_envelope);
fn changes_of_ordinary_tables_are_parked_in_their_envelope(db: Db) {
    let bed = Bed::new(db);
    bed.app()
        .run("CREATE TABLE orders (id INT PRIMARY KEY, region VARCHAR(20))");
    let pipeline = PIPELINE
        .replace("outbox: {<outbox>}", "tables: [<schema>.orders]")
        .replace(
            "brokers: '<brokers>'",
            "brokers: '<brokers>', topic: '<name>.${after.region}'",
        );
    let pipeline = bed
        .fill(&pipeline)
        .replace("<oversized>", "halt")
        .replace("<client_conf>", "");
    let mut relay = started(&bed, [ROOMY, ROOMY], &pipeline);
    bed.app().run(
        "INSERT INTO orders VALUES (1, 'events');
         INSERT INTO orders VALUES (2, NULL);
         UPDATE orders SET region = 'not allowed' WHERE id = 1;
         DELETE FROM orders WHERE id = 1;
         INSERT INTO orders VALUES (3, 'events')",
    );
    relay.wait_settled(5);
    bed.reader(&["events"]).exactly(2);
    let letters = letters(&bed, 3);
    let shown: Vec<Value> = letters
        .iter()
        .map(|letter| {
            let value: Value = serde_json::from_str(letter.value_text().unwrap()).unwrap();
            let table = letter.header("tailpost-dlq-table").unwrap();
            let table = table.rsplit_once('.').unwrap().1;
            json!([value["op"], value["after"], letter.key_text(), table])
        })
        .collect();
    assert_eq!(
        shown,
        [
            json!(["c", {"id": 2, "region": null}, r#"{"id":2}"#, "orders"]),
            json!(["u", {"id": 1, "region": "not allowed"}, r#"{"id":1}"#, "orders"]),
            json!(["d", null, r#"{"id":1}"#, "orders"]),
        ]
    );
    assert!(
        letters
            .iter()
            .all(|letter| letter.header("tailpost-dlq-detail") == Some("unroutable"))
    );
}

/// Of a run of records the broker refuses some, and with them all that travels in their batches. `meanwhile` is done once
/// the topic is known to the connector.
fn refused_in_batches(bed: &Bed, relay: &mut Relay, meanwhile: impl FnOnce(), culprit: fn() -> Event, why: [&str; 2]) {
    const COUNT: usize = 1000;
    write(bed, &[good(0)]);
    relay.wait_published(1);
    meanwhile();
    let mut events: Vec<Event> = (1..COUNT).map(good).collect();
    // One, and two in a row, with others of their key around them.
    let culprits = [culprit(), culprit(), culprit()];
    for (at, event) in [800, 500, 500].into_iter().zip(&culprits) {
        events.insert(at, event.clone());
    }
    write(bed, &events);
    relay.wait_settled(COUNT as u64 + 3);
    assert_eq!(relay.published(), COUNT as u64);
    assert_eq!(relay.dead_lettered("permanent_failure"), 3);
    assert!(
        relay.metric("tailpost_events_failed_total", &[]) > 3.0,
        "no batch was refused"
    );
    // What was acked since the last boundary comes again; the first times are in order.
    let (numbers, _) = first_times(bed.reader(&["events"]).all(), payload_number);
    assert_eq!(numbers, (0..COUNT).collect::<Vec<_>>());
    let letters = letters(bed, 3);
    for (letter, event) in letters.iter().zip([2, 1, 0].map(|at: usize| &culprits[at])) {
        assert_common(bed, letter, ["permanent_failure", why[0], why[1]]);
        assert_eq!(letter.value_text(), event.payload.as_deref());
        assert_eq!(letter.key_text(), event.aggregate_id.as_deref());
    }
    // It has come to rest: what comes later goes in batches again.
    let restarts = relay.metric("tailpost_restarts_total", &[]);
    // For each: its batch, groups of the root of that and of the root of those, and itself.
    assert!(restarts <= 12.0, "{restarts} lives for three culprits");
    write(bed, &(0..COUNT).map(good).collect::<Vec<_>>());
    relay.wait_published(2 * COUNT as u64);
    assert_eq!(relay.metric("tailpost_restarts_total", &[]), restarts);
}

/// Batches become larger than one record.
const GATHERING: &str = "linger.ms: 5";

#[test]
fn a_compressed_record_that_is_too_large_is_found_and_parked() {
    let bed = Bed::new(Db::Postgres);
    let pipeline = pipeline(&bed, "halt", &format!("{GATHERING}, compression.type: lz4"));
    let mut relay = started(&bed, [TOPIC_LIMIT, ROOMY], &pipeline);
    refused_in_batches(&bed, &mut relay, || (), too_large, ["too_large", "2"]);
}

over_each!(a_record_that_is_too_large_since_its_topic_was_altered_is_found_and_parked: postgres, mysql);
fn a_record_that_is_too_large_since_its_topic_was_altered_is_found_and_parked(db: Db) {
    let bed = Bed::new(db);
    let mut relay = started(&bed, [ROOMY, ROOMY], &pipeline(&bed, "halt", GATHERING));
    let limit = TOPIC_LIMIT.to_string();
    let lower = || {
        bed.kafka.alter_topic(&bed.events(), &[("max.message.bytes", &limit)]);
    };
    // By then the limit is known anew.
    refused_in_batches(&bed, &mut relay, lower, too_large, ["too_large", "1"]);
}

#[test]
fn a_record_that_the_broker_refuses_is_found_and_parked() {
    let bed = Bed::new(Db::Postgres);
    let pipeline = pipeline(&bed, "halt", GATHERING).replace("strict: true", "strict: false");
    // Records without a key are of no use in such a topic.
    bed.kafka
        .create_topic(&bed.events(), 1, &[("cleanup.policy", "compact")]);
    bed.kafka.create_topic(&bed.topic("dead"), 1, &[]);
    let mut relay = bed.relay(&pipeline);
    relay.start();
    relay.wait_ready();
    let without_key = || Event::of(r#""cell-1""#).event_type("events");
    refused_in_batches(&bed, &mut relay, || (), without_key, ["refused", "2"]);
}

fn a_partition_that_is_missing_is_parked(exactly_once: bool) {
    let bed = Bed::new(Db::Postgres);
    let named = "strict: true, columns: {partition: aggregate_id}";
    let mut pipeline = pipeline(&bed, "halt", GATHERING).replace("strict: true", named);
    if exactly_once {
        pipeline = transactional(&bed, &pipeline);
    }
    // Each has one partition.
    let mut relay = started(&bed, [ROOMY, ROOMY], &pipeline);
    let mut events: Vec<Event> = (0..100).map(|number| good(number).key("0")).collect();
    events.insert(50, good(1000).key("1"));
    write(&bed, &events);
    relay.wait_settled(101);
    assert_eq!(relay.published(), 100);
    assert_eq!(relay.dead_lettered("permanent_failure"), 1);
    let (numbers, _) = first_times(bed.committed_reader(&["events"]).all(), payload_number);
    assert_eq!(numbers, (0..100).collect::<Vec<_>>());
    let letters = letters(&bed, 1);
    let [detail, error] = said(&letters[0], ["detail", "error"]);
    assert_eq!(detail, Some("refused"));
    assert!(
        error
            .unwrap()
            .contains("it has no partition of the number that the event names"),
        "{error:?}"
    );
    // What comes later is not held up.
    write(&bed, &[good(100).key("0")]);
    relay.wait_published(101);
}

#[test]
fn an_event_that_names_a_partition_that_is_missing_is_parked() {
    a_partition_that_is_missing_is_parked(false);
}

#[test]
fn an_event_that_names_a_partition_that_is_missing_is_parked_in_a_transaction() {
    a_partition_that_is_missing_is_parked(true);
}

/// A letter that is too large for its topic as well, in the middle of one transaction: a stop, until the topic takes it.
fn halts_until_there_is_room(client_conf: &str, limit: usize, make_room: impl FnOnce(&Bed, &mut Relay), text: &str) {
    let bed = Bed::new(Db::Postgres);
    let mut relay = started(&bed, [TOPIC_LIMIT, limit], &pipeline(&bed, "halt", client_conf));
    let large = too_large();
    let mut events: Vec<Event> = (0..100).map(good).collect();
    events.insert(50, large.clone());
    events.insert(10, unroutable());
    write(&bed, &events);
    let texts = [text, "raise max.message.bytes", "`dead_letter.config.oversized: stub`"];
    let error = relay.wait_halted(&texts);
    assert!(error.contains(&format!("topic `{}`", bed.topic("dead"))), "{error}");
    assert_eq!(arrived(&bed, 50), (0..50).collect::<Vec<_>>());
    // It stays so, and nothing is repeated.
    relay.start();
    relay.wait_halted(&texts);
    arrived(&bed, 50);
    letters(&bed, 1);
    make_room(&bed, &mut relay);
    relay.start();
    relay.wait_published(50);
    assert_eq!(arrived(&bed, 100), (0..100).collect::<Vec<_>>());
    let letters = letters(&bed, 2);
    assert_common(&bed, &letters[1], ["permanent_failure", "too_large", "1"]);
    assert_eq!(letters[1].value_text(), large.payload.as_deref());
}

#[test]
fn a_dead_letter_that_is_too_large_for_its_topic_halts_until_that_is_raised() {
    let raise = |bed: &Bed, _: &mut Relay| {
        bed.kafka
            .alter_topic(&bed.topic("dead"), &[("max.message.bytes", "1000000")]);
    };
    halts_until_there_is_room("", TOPIC_LIMIT, raise, "is too large for topic");
}

#[test]
fn a_record_that_is_over_the_producers_limit_halts_until_that_is_raised() {
    let raise = |bed: &Bed, relay: &mut Relay| relay.rewrite(&pipeline(bed, "halt", ""));
    halts_until_there_is_room(
        "message.max.bytes: 50000",
        ROOMY,
        raise,
        "message.max.bytes, if client_conf has it",
    );
}

/// Parks a stub in the middle of others.
fn parks_a_stub(client_conf: &str, limit: usize, exactly_once: bool) {
    let bed = Bed::new(Db::Postgres);
    let mut pipeline = pipeline(&bed, "stub", client_conf);
    if exactly_once {
        pipeline = transactional(&bed, &pipeline);
    }
    let mut relay = started(&bed, [TOPIC_LIMIT, limit], &pipeline);
    let large = too_large();
    let mut events: Vec<Event> = (0..100).map(good).collect();
    events.insert(50, large.clone());
    write(&bed, &events);
    // At least once, a letter that is sent before the refusal is known comes again.
    relay.wait_settled(101);
    write(&bed, &[unroutable()]);
    relay.wait_settled(102);
    assert_eq!(relay.published(), 100);
    let (numbers, again) = first_times(bed.committed_reader(&["events"]).all(), payload_number);
    assert_eq!(numbers, (0..100).collect::<Vec<_>>());
    assert!(again == 0 || !exactly_once, "{again} came again");
    let mut reader = bed.committed_reader(&["dead"]);
    let letters = reader.all();
    assert_eq!(letters.len(), 2);
    let stub = &letters[0];
    assert_eq!(
        said(stub, ["reason", "detail", "stub"]),
        ["permanent_failure", "too_large", "true"].map(Some)
    );
    let value = large.payload.as_deref().unwrap();
    let hash: String = Sha256::digest(value).iter().map(|byte| format!("{byte:02x}")).collect();
    let size = value.len().to_string();
    assert_eq!(
        said(stub, ["size", "sha256"]),
        [Some(size.as_str()), Some(hash.as_str())]
    );
    assert_eq!((stub.value.as_deref(), stub.key_text()), (Some(&b""[..]), Some("5")));
    assert_eq!(stub.header("df-aggregate-type"), Some("Order"));
    assert_whole(&bed, &letters[1], &unroutable());
}

#[test]
fn a_dead_letter_that_is_too_large_for_its_topic_is_parked_as_a_stub_where_that_is_wanted() {
    parks_a_stub("", TOPIC_LIMIT, false);
}

#[test]
fn a_compressed_dead_letter_that_is_too_large_is_found_and_parked_as_a_stub() {
    parks_a_stub(&format!("{GATHERING}, compression.type: lz4"), TOPIC_LIMIT, false);
}

#[test]
fn what_is_found_too_large_within_transactions_is_parked_once_as_a_stub() {
    parks_a_stub(&format!("{GATHERING}, compression.type: lz4"), TOPIC_LIMIT, true);
}

#[test]
fn a_record_that_is_over_the_producers_limit_is_parked_as_a_stub_where_that_is_wanted() {
    parks_a_stub("message.max.bytes: 50000", ROOMY, false);
}

over_each!(of_what_is_over_the_sources_limit_only_a_stub_can_be_parked);
fn of_what_is_over_the_sources_limit_only_a_stub_can_be_parked(db: Db) {
    let bed = Bed::new(db);
    let mut relay = started(&bed, [ROOMY, ROOMY], &pipeline(&bed, "halt", ""));
    write(&bed, &[good(0), too_large_for_the_source(), good(1)]);
    relay.wait_halted(&[
        "over the limit of 262144",
        "its bytes were discarded",
        "`dead_letter.config.oversized: stub`",
    ]);
    arrived(&bed, 1);
    relay.rewrite(&pipeline(&bed, "stub", ""));
    relay.start();
    relay.wait_settled(2);
    assert_eq!(arrived(&bed, 2), [0, 1]);
    let letters = letters(&bed, 1);
    let stub = &letters[0];
    assert_eq!(
        said(stub, ["reason", "detail", "stub", "sha256", "topic"]),
        [Some("poison_message"), Some("oversized"), Some("true"), None, None]
    );
    let [size, event_id, position] = said(stub, ["size", "event-id", "position"]).map(Option::unwrap);
    assert!(size.parse::<u64>().unwrap() > 300_000, "{size}");
    assert_eq!(event_id, position);
    let table = format!("{}.outbox", bed.name);
    let origin = match db {
        Db::Postgres => [Some("outbox"), None],
        Db::Mysql | Db::Mariadb => [None, Some(table.as_str())],
    };
    assert_eq!(said(stub, ["prefix", "table"]), origin);
    assert_eq!((stub.value.as_deref(), stub.key.as_deref()), (Some(&b""[..]), None));
}

#[test]
fn a_dead_letter_topic_that_is_not_there_is_waited_for() {
    let bed = Bed::new(Db::Postgres);
    bed.kafka.create_topic(&bed.events(), 1, &[]);
    let mut relay = bed.relay(&pipeline(&bed, "halt", "allow.auto.create.topics: false"));
    relay.start();
    relay.wait_ready();
    write(&bed, &[good(0), unroutable(), good(1)]);
    let missing = format!("topic `{}` does not exist", bed.topic("dead"));
    relay.wait_not_ready(&missing);
    assert!(relay.wait_log(&missing).contains("create"), "{}", relay.log());
    // Nothing overtakes it, and nothing is lost with the process.
    assert_eq!(arrived(&bed, 1), [0]);
    relay.sigkill();
    relay.start();
    relay.wait_not_ready(&missing);
    bed.kafka.create_topic(&bed.topic("dead"), 1, &[]);
    relay.wait_ready();
    eventually(DEADLINE, "the dead letter is parked", || {
        relay.dead_lettered("poison_message") == 1
    });
    let mut reader = bed.reader(&["events"]);
    let records = reader.until("the last event", |records| {
        records.iter().any(|record| record.value_text() == Some("1"))
    });
    // The first again, if the kill came before it was saved.
    let values: Vec<_> = records.iter().map(|record| record.value_text().unwrap()).collect();
    assert!(values == ["0", "1"] || values == ["0", "0", "1"], "{values:?}");
    assert_whole(&bed, &letters(&bed, 1)[0], &unroutable());
}

#[test]
fn a_dead_letter_topic_that_may_not_be_written_stops_it_until_it_may() {
    let broker = OwnServer::kafka(AUTHORIZER);
    let bed = Bed::with(Db::Postgres, None, Some(&broker));
    let mut relay = started(&bed, [ROOMY, ROOMY], &pipeline(&bed, "halt", ""));
    acl::allow(&bed.kafka.brokers, &bed.topic("dead"), "User:somebody-else");
    write(&bed, &[good(0)]);
    relay.wait_published(1);
    write(&bed, &[unroutable(), good(1)]);
    let dead = format!("topic `{}`", bed.topic("dead"));
    relay.wait_halted(&[&dead, "allow the user"]);
    assert_eq!(arrived(&bed, 1), [0]);
    acl::allow(&bed.kafka.brokers, &bed.topic("dead"), "User:ANONYMOUS");
    relay.start();
    eventually(DEADLINE, "the dead letter is parked", || {
        relay.dead_lettered("poison_message") == 1
    });
    relay.wait_published(1);
    let mut reader = bed.reader(&["events"]);
    let values: Vec<_> = reader.all().iter().map(|record| record.value_text().unwrap()).collect();
    assert!(values == ["0", "1"] || values == ["0", "0", "1"], "{values:?}");
    assert_whole(&bed, &letters(&bed, 1)[0], &unroutable());
}

/// Killed at each of these points, with every third event a dead letter. Gives how many records and letters came again.
fn killed_around_dead_letters(bed: &Bed, pipeline: &str, points: &[&str]) -> usize {
    const COUNT: usize = 300;
    let mut relay = started(bed, [TOPIC_LIMIT, ROOMY], pipeline);
    // PostgreSQL keeps nothing for a slot that is not made yet.
    relay.sigkill();
    let is_dead = |number: usize| number.is_multiple_of(3);
    let event = |number: usize| match number {
        number if is_dead(number) => good(number).event_type("sold out").id(number.to_string()),
        number => good(number).id(number.to_string()),
    };
    let events: Vec<Event> = (0..COUNT).map(event).collect();
    for events in events.chunks(30) {
        write(bed, events);
    }
    for point in points {
        relay.arm(Some(point));
        relay.start();
        relay.wait_killed();
    }
    relay.arm(None);
    relay.start_with(&["--once"]);
    assert_eq!(relay.wait_exit(DEADLINE), 0);
    let mut repeated = 0;
    for (topic, dead) in [("events", false), ("dead", true)] {
        let mut reader = bed.committed_reader(&[topic]);
        let (numbers, again) = first_times(reader.all(), |record| {
            let id = record.header("df-event-id").unwrap();
            let number = id.parse().unwrap();
            if dead {
                assert_eq!(record.header("tailpost-dlq-event-id"), Some(id));
                assert_whole(bed, record, &events[number]);
            }
            number
        });
        let expected: Vec<usize> = (0..COUNT).filter(|number| is_dead(*number) == dead).collect();
        assert_eq!(numbers, expected, "of {topic}");
        repeated += again;
    }
    repeated
}

over_each!(killed_around_dead_letters_it_repeats_or_keeps_them_and_loses_none: postgres, mysql);
fn killed_around_dead_letters_it_repeats_or_keeps_them_and_loses_none(db: Db) {
    let bed = Bed::new(db);
    // Sends are of both kinds: killed behind a dead letter, before one, and at what follows the acks.
    let points = [
        "send:1",
        "send:2",
        "send:40",
        "send:101",
        "ack:1",
        "before_save:1",
        "after_save:1",
        "ack:3",
    ];
    let repeated = killed_around_dead_letters(&bed, &pipeline(&bed, "halt", ""), &points);
    assert!(repeated > 0, "no kill came between an ack and its save");
}

over_each!(killed_around_dead_letters_within_transactions_each_is_there_once: postgres, mysql);
fn killed_around_dead_letters_within_transactions_each_is_there_once(db: Db) {
    let bed = Bed::new(db);
    let pipeline = transactional(&bed, &pipeline(&bed, "halt", ""));
    let points = [
        "send:1",
        "send:2",
        "send:40",
        "before_commit:1",
        "after_commit:1",
        "send:101",
        "ack:1",
    ];
    assert_eq!(killed_around_dead_letters(&bed, &pipeline, &points), 0, "came again");
}

#[test]
fn a_record_whose_topic_nobody_makes_is_parked_and_the_others_go_on() {
    let bed = Bed::new(Db::Postgres);
    let pipeline = pipeline(&bed, "halt", "allow.auto.create.topics: false");
    let mut relay = started(&bed, [ROOMY, ROOMY], &pipeline);
    let nowhere = good(7).event_type("nowhere");
    write(&bed, &[good(0), nowhere.clone(), good(1)]);
    relay.wait_settled(3);
    assert_eq!(arrived(&bed, 2), [0, 1]);
    let letters = letters(&bed, 1);
    let error = assert_common(&bed, &letters[0], ["permanent_failure", "unknown_topic", "1"]);
    assert!(error.contains("does not exist"), "{error}");
    let topic = bed.topic("nowhere");
    assert_eq!(said(&letters[0], ["topic"]), [Some(topic.as_str())]);
    assert_eq!(letters[0].value_text(), nowhere.payload.as_deref());
}
