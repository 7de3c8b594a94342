//! The same rows as Debezium's event router had, by its connector's configuration as `tailpost convert` makes a pipeline of it, and
//! the same records as it made of them.

use std::collections::BTreeMap;
use std::fs;

use mysql::prelude::Queryable;
use postgres::config::Host;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::support::TestBed;
use crate::support::any_bed::ANY_OUTBOX;
use crate::support::cli::tailpost_reading;
use crate::support::kafka::Record;
use crate::support::mysql::Flavor;
use crate::support::mysql_bed::MysqlBed;
use crate::support::plot::Plot;
use crate::support::relay::Relay;

/// The worker in which the golden records were made.
const WORKER: &str = "key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.storage.StringConverter
";

#[derive(Deserialize)]
struct Golden {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    case: String,
    connector: Map<String, Value>,
    ddl: Vec<String>,
    sql: Vec<String>,
    records: Vec<GoldenRecord>,
}

#[derive(Deserialize)]
struct GoldenRecord {
    topic: String,
    partition: i32,
    partitions: i32,
    key: Option<Hex>,
    value: Option<Hex>,
    headers: Vec<(String, Option<Hex>)>,
    timestamp_ms: Value,
}

#[derive(Deserialize)]
struct Hex {
    hex: String,
}

impl Hex {
    fn of(text: &str) -> Self {
        Self {
            hex: text.bytes().map(|byte| format!("{byte:02x}")).collect(),
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let digits = (0..self.hex.len()).step_by(2);
        let byte = |at| u8::from_str_radix(&self.hex[at..at + 2], 16).expect("two digits");
        digits.map(byte).collect()
    }
}

type Bytes = Option<Vec<u8>>;

/// What a consumer sees of a record.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    key: Bytes,
    value: Bytes,
    headers: Vec<(String, Bytes)>,
    /// Where a column gives it.
    timestamp_ms: Option<i64>,
}

/// Those of each partition, in order.
type Partitions = BTreeMap<(String, i32), Vec<Seen>>;

fn case(name: &str) -> Case {
    let golden: Golden = serde_json::from_str(include_str!("golden/debezium/cases.json")).expect("the golden records");
    let mut cases = golden.cases.into_iter();
    cases
        .find(|case| case.case.split('-').next() == Some(name))
        .expect("a case")
}

/// Without what Connect adds of its own.
fn expected(records: &[GoldenRecord]) -> Partitions {
    let bytes = |hex: &Option<Hex>| hex.as_ref().map(Hex::bytes);
    let mut partitions = Partitions::new();
    for record in records {
        let headers = record.headers.iter();
        let headers = headers.filter(|(name, _)| !name.starts_with("__debezium.context."));
        partitions
            .entry((record.topic.clone(), record.partition))
            .or_default()
            .push(Seen {
                key: bytes(&record.key),
                value: bytes(&record.value),
                headers: headers.map(|(name, value)| (name.clone(), bytes(value))).collect(),
                timestamp_ms: record.timestamp_ms.as_i64(),
            });
    }
    partitions
}

/// As [`expected`]: times count only where they do there.
fn arrived(records: &[Record], own: &str, expected: &Partitions) -> Partitions {
    let mut partitions = Partitions::new();
    for record in records {
        let topic = record
            .topic
            .strip_prefix(own)
            .expect("a topic of the test's own")
            .to_owned();
        let place = (topic, record.partition);
        let known = expected.get(&place);
        let records = partitions.entry(place).or_default();
        let is_timed = known
            .and_then(|known| known.get(records.len()))
            .is_some_and(|known| known.timestamp_ms.is_some());
        records.push(Seen {
            key: record.key.clone(),
            value: record.value.clone(),
            headers: record.headers.clone(),
            timestamp_ms: is_timed.then_some(record.timestamp_ms),
        });
    }
    partitions
}

/// The pipeline of a case's connector, which these options put into the test's own place.
fn converted(plot: &Plot, case: &Case, place: &[(&str, String)]) -> String {
    const REPLACEMENT: &str = "transforms.outbox.route.topic.replacement";
    let mut connector = case.connector.clone();
    let replacement = connector.get(REPLACEMENT).and_then(Value::as_str);
    let replacement = replacement.unwrap_or("outbox.event.${routedByValue}");
    let replacement = format!("{}.{replacement}", plot.name);
    connector.insert(REPLACEMENT.to_owned(), replacement.into());
    for (option, value) in place {
        connector.insert((*option).to_owned(), value.clone().into());
    }
    let folder = tempfile::tempdir().unwrap();
    let worker = folder.path().join("worker.properties");
    fs::write(&worker, format!("{WORKER}bootstrap.servers={}\n", plot.kafka.brokers)).unwrap();
    let connector = serde_json::to_string(&connector).unwrap();
    let worker = worker.to_str().unwrap();
    let ended = tailpost_reading(&connector, ["convert", "debezium", "-", "--worker", worker]);
    assert!(ended.stdout.contains("apiVersion"), "{}", ended.stderr);
    // One of the rows has no topic here.
    format!("{}  errors: {{unroutable: skip}}\n", ended.stdout)
}

fn assert_same(plot: &Plot, mut relay: Relay, case: &Case, write: impl FnOnce()) {
    let own = format!("{}.", plot.name);
    let records = case.records.iter();
    let topics: BTreeMap<_, _> = records.map(|record| (&record.topic, record.partitions)).collect();
    for (topic, partitions) in topics {
        plot.kafka.create_topic(&format!("{own}{topic}"), partitions, &[]);
    }
    relay.start();
    relay.wait_ready();
    write();
    relay.wait_published(case.records.len() as u64);
    let expected = expected(&case.records);
    let mut topics: Vec<String> = expected.keys().map(|(topic, _)| format!("{own}{topic}")).collect();
    topics.dedup();
    let mut reader = plot.kafka.reader(&topics);
    let arrived = arrived(reader.exactly(case.records.len()), &own, &expected);
    assert_eq!(arrived, expected, "{}", case.case);
}

fn same_on_postgres(name: &str, change: impl FnOnce(&mut Case)) {
    let mut case = case(name);
    change(&mut case);
    let (bed, relay) = on_postgres(&case);
    assert_same(&bed, relay, &case, || run_on_postgres(&bed, &case.sql));
}

/// Rows of which no record is made there, since Debezium's task ends at them: each is skipped here, for this reason.
fn skipped_on_postgres(name: &str, reason: &str) {
    let case = case(name);
    let (bed, mut relay) = on_postgres(&case);
    relay.start();
    relay.wait_ready();
    run_on_postgres(&bed, &case.sql);
    let count = case.sql.len() as u64;
    relay.wait_settled(count);
    assert_eq!(relay.skipped(reason), count, "{name}");
}

/// A place with a case's tables, and its connector converted.
fn on_postgres(case: &Case) -> (TestBed, Relay) {
    let bed = TestBed::new();
    run_on_postgres(&bed, &case.ddl);
    let url: postgres::Config = bed.postgres.url.parse().unwrap();
    let Host::Tcp(host) = &url.get_hosts()[0] else {
        panic!("a server by TCP: {}", bed.postgres.url)
    };
    let place = [
        ("database.hostname", host.clone()),
        ("database.port", url.get_ports()[0].to_string()),
        ("database.user", url.get_user().unwrap().to_owned()),
        ("database.dbname", bed.name.clone()),
        ("database.password", "${env:TAILPOST_TEST_PASSWORD}".to_owned()),
        ("slot.name", bed.slot.clone()),
        ("publication.name", bed.publication.clone()),
    ];
    let relay = bed.relay(&converted(&bed, case, &place));
    let relay = relay.env("TAILPOST_TEST_PASSWORD", &bed.password());
    (bed, relay)
}

fn run_on_postgres(bed: &TestBed, statements: &[String]) {
    let mut app = bed.app();
    for statement in statements {
        app.batch_execute(statement)
            .unwrap_or_else(|error| panic!("{statement}: {error:?}"));
    }
}

fn same_on_mysql(name: &str, change: impl FnOnce(&mut Case)) {
    let mut case = case(name);
    change(&mut case);
    let bed = MysqlBed::new(Flavor::Mysql);
    let run = |statements: &[String]| {
        let mut app = bed.app();
        for statement in statements {
            app.query_drop(statement)
                .unwrap_or_else(|error| panic!("{statement}: {error:?}"));
        }
    };
    run(&case.ddl);
    let url = mysql::Opts::from_url(&bed.database.mysql.url).unwrap();
    let place = [
        ("database.hostname", url.get_ip_or_hostname().into_owned()),
        ("database.port", url.get_tcp_port().to_string()),
        ("database.user", url.get_user().unwrap().to_owned()),
        ("database.password", "${env:TAILPOST_TEST_PASSWORD}".to_owned()),
        ("database.include.list", bed.name.clone()),
        ("table.include.list", format!("{}.{name}", bed.name)),
    ];
    let pipeline = converted(&bed, &case, &place);
    // Only what comes from now on: the shared server's log is long. An id of this reader's own, on a server that others read.
    let own = |line: &str| match line.trim_start().split(':').next() {
        Some("server_id") => "      start: <start>\n".to_owned(),
        _ => format!("{line}\n"),
    };
    let pipeline: String = pipeline.lines().map(own).collect();
    let relay = bed.relay(&pipeline).env("TAILPOST_TEST_PASSWORD", &bed.password());
    assert_same(&bed, relay, &case, || run(&case.sql));
}

fn as_it_is(_: &mut Case) {}

#[test]
fn a_jsonb_payload_is_what_the_server_prints() {
    same_on_postgres("p01", as_it_is);
}

#[test]
fn blank_payloads_are_tombstones_on_request() {
    same_on_postgres("p02", as_it_is);
}

#[test]
fn integers_are_keys_and_ids_in_decimal_digits() {
    same_on_postgres("p04", as_it_is);
}

#[test]
fn the_json_converter_quotes_keys_and_payloads() {
    same_on_postgres("p06", as_it_is);
}

#[test]
fn the_json_converter_puts_schemas_around() {
    same_on_postgres("p07", as_it_is);
}

/// Debezium's task ended at these rows, which `errors.tolerance` then lost.
fn with_what_cannot_be_expanded_there(case: &mut Case) {
    for (number, value) in [
        (4, "[1,2]"),
        (13, r#"{"big":12345678901234567890}"#),
        (22, r#"[{"a":1}]"#),
    ] {
        let id = format!("00000000-0000-4000-8000-0000000000{number:02}");
        let id_of = |record: &GoldenRecord| {
            let (_, id) = record.headers.iter().find(|(name, _)| name == "id").expect("an id");
            String::from_utf8(id.as_ref().expect("an id").bytes()).expect("text")
        };
        let before = case.records.partition_point(|record| id_of(record) < id);
        let first = &case.records[0];
        let record = GoldenRecord {
            topic: first.topic.clone(),
            partition: first.partition,
            partitions: first.partitions,
            key: Some(Hex::of(&format!("\"{number}\""))),
            value: Some(Hex::of(value)),
            headers: vec![("id".to_owned(), Some(Hex::of(&id)))],
            timestamp_ms: Value::Null,
        };
        case.records.insert(before, record);
    }
}

#[test]
fn payloads_are_expanded() {
    same_on_postgres("p08", with_what_cannot_be_expanded_there);
    same_on_postgres("p10", with_what_cannot_be_expanded_there);
}

#[test]
fn payloads_in_messages_are_expanded() {
    same_on_postgres("m03", as_it_is);
}

#[test]
fn mysql_s_json_has_no_blanks() {
    same_on_mysql("y01", as_it_is);
}

#[test]
fn bytes_stay_bytes() {
    same_on_postgres("p11", as_it_is);
    same_on_postgres("p12", as_it_is);
}

#[test]
fn columns_are_placed_in_headers_and_give_the_partition() {
    same_on_postgres("p14", as_it_is);
}

#[test]
fn columns_stand_beside_the_payload() {
    // The digits of a numeric are Base64 there, of its unscaled bytes.
    same_on_postgres("p15", |case| {
        for value in case.records.iter_mut().filter_map(|record| record.value.as_mut()) {
            let text = String::from_utf8(value.bytes())
                .unwrap()
                .replace(r#""BOI=""#, r#""12.50""#);
            *value = Hex::of(&text);
        }
    });
}

/// A column of this type that each row has, last, with this JSON, placed as a header or beside the payload: not in the golden records,
/// but by the converters' rule that JSON is a text.
fn with_json(case: &mut Case, (kind, json): (&str, &str), places: &[&str], text: &str) {
    const PLACEMENT: &str = "transforms.outbox.table.fields.additional.placement";
    let known = case
        .connector
        .get(PLACEMENT)
        .and_then(Value::as_str)
        .unwrap_or_default();
    let placed = places.iter().map(|place| format!("meta:{place}"));
    let placed: Vec<String> = std::iter::once(known.to_owned()).chain(placed).collect();
    let placement = placed.join(",").trim_start_matches(',').to_owned();
    case.connector.insert(PLACEMENT.to_owned(), placement.into());
    let table = case.case.split('-').next().unwrap_or_default();
    case.ddl.push(format!("ALTER TABLE {table} ADD meta {kind}"));
    let inserts = case.sql.iter_mut().filter(|statement| statement.starts_with("insert"));
    for insert in inserts {
        *insert = format!("{}, '{json}')", insert.trim_end_matches(')'));
    }
    for record in &mut case.records {
        record.headers.push(("meta".to_owned(), Some(Hex::of(text))));
        if let (true, Some(value)) = (places.contains(&"envelope"), record.value.as_mut()) {
            let member = serde_json::to_string(text).unwrap();
            let before = String::from_utf8(value.bytes())
                .unwrap()
                .replace(r#""BOI=""#, r#""12.50""#);
            *value = Hex::of(&format!("{},\"meta\":{member}}}", before.trim_end_matches('}')));
        }
    }
}

#[test]
fn json_columns_are_placed_as_text() {
    for json in [r#"{"a": null, "b": [1, 2.50]}"#, "[]", r#""s""#, "null"] {
        same_on_postgres("p15", |case| {
            with_json(case, ("jsonb", json), &["envelope", "header"], json)
        });
    }
    let json = r#"{"a": null, "b": [1, "x y"]}"#;
    same_on_mysql("y01", |case| {
        with_json(case, ("json", json), &["header"], r#"{"a":null,"b":[1,"x y"]}"#)
    });
}

#[test]
fn a_column_gives_the_time() {
    same_on_postgres("p18", as_it_is);
}

#[test]
fn a_regular_expression_gives_the_topic() {
    // Debezium makes a topic of what does not match; here it is unroutable.
    same_on_postgres("p20", |case| case.records.retain(|record| record.topic != "nodots"));
}

#[test]
fn connect_s_own_headers_are_left_out_either_way() {
    same_on_postgres("p23", as_it_is);
}

#[test]
fn keys_have_the_partitions_of_java_s_partitioner() {
    same_on_postgres("p28", as_it_is);
}

#[test]
fn a_payload_in_a_message_loses_its_quotes() {
    // Its second message stopped Debezium's task.
    same_on_postgres("m01", |case| case.sql.truncate(1));
}

#[test]
fn mysql_s_blobs_keys_and_times_are_the_same() {
    // A BINARY(16) is a UUID here, and Base64 there.
    same_on_mysql("y03", |case| {
        for (name, value) in case.records.iter_mut().flat_map(|record| &mut record.headers) {
            if name == "id" {
                *value = Some(Hex::of("01020304-0506-0708-090a-0b0c0d0e0f10"));
            }
        }
    });
}

/// A record of our own, where Debezium made none or a spoilt one.
fn ours(case: &str, number: usize, key: &str, value: Option<&[u8]>, timestamp_ms: Option<i64>) -> GoldenRecord {
    let hex = |bytes: &[u8]| Hex {
        hex: bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
    };
    GoldenRecord {
        topic: format!("outbox.event.{case}.order"),
        partition: 0,
        partitions: 1,
        key: Some(Hex::of(key)),
        value: value.map(hex),
        headers: vec![(
            "id".to_owned(),
            Some(Hex::of(&format!("00000000-0000-4000-8000-{number:012}"))),
        )],
        timestamp_ms: timestamp_ms.into(),
    }
}

#[test]
fn what_its_converters_spoil_is_sent_as_it_is() {
    // `Struct{b=1}` there.
    same_on_postgres("p09", |case| {
        let payload = |statement: &String| {
            let fields = statement.trim_end_matches(')');
            let text = fields.splitn(5, "','").nth(4)?;
            Some(text.trim_end_matches('\'').to_owned())
        };
        let rows = case.sql.iter().enumerate();
        let records = rows.map(|(at, statement)| {
            let payload = payload(statement);
            ours(
                "p09",
                at + 1,
                &(at + 1).to_string(),
                payload.as_deref().map(str::as_bytes),
                None,
            )
        });
        case.records = records.collect();
    });
    // The name of a Java object there.
    same_on_postgres("p13", |case| {
        case.records = vec![ours("p13", 1, "42", Some(b"\x00\xff{}\x80"), None)];
    });
}

#[test]
fn rows_at_which_its_task_ends_have_an_outcome() {
    let at = Some(1_577_934_245_678);
    same_on_postgres("p19", |case| case.records = vec![ours("p19", 1, "42", Some(b"x"), at)]);
    same_on_mysql("y04", |case| case.records = vec![ours("y04", 1, "42", Some(b"x"), at)]);
    // Only the first has no topic.
    same_on_postgres("p24", |case| {
        case.records = vec![ours("p24", 2, "43", Some(b"{}"), None)]
    });
    skipped_on_postgres("p26", "unroutable");
    skipped_on_postgres("m04", "unroutable");
}

/// Its task ends where there is no column of an id.
#[test]
fn without_a_column_of_its_own_an_id_is_the_event_s_place() {
    let case = case("p25");
    let (bed, mut relay) = on_postgres(&case);
    relay.start();
    relay.wait_ready();
    run_on_postgres(&bed, &case.sql);
    relay.wait_published(1);
    let mut reader = bed.reader(&["outbox.event.p25.order"]);
    let record = &reader.exactly(1)[0];
    assert_eq!(
        (record.key_text(), record.value.as_deref()),
        (Some("42"), Some(&b"x"[..]))
    );
    let [(name, Some(id))] = &record.headers[..] else {
        panic!("one header: {:?}", record.headers)
    };
    // An event of one transaction by itself: the end of its commit, and the change's place.
    let id = std::str::from_utf8(id).expect("text");
    let digits = |part: &str| part.chars().all(|digit| digit.is_ascii_hexdigit() || digit == '/');
    assert!(
        name == "id" && id.split('-').count() == 3 && id.split('-').all(digits),
        "{id}"
    );
}

/// The processor of docs/migrate-from-debezium.md.
#[test]
fn the_guide_s_example_runs() {
    let guide = include_str!("../docs/migrate-from-debezium.md");
    let (_, example) = guide.rsplit_once("```yaml\n").expect("an example");
    let (example, _) = example.split_once("```").expect("its end");
    let example = example.replace("\"${aggregatetype}", "\"<name>.${aggregatetype}");
    let lines: Vec<&str> = example.lines().collect();
    let bed = TestBed::new();
    let pipeline = ANY_OUTBOX.replace("<outbox>", "tables: [public.outbox]").replace(
        "{type: outbox, topic: '<topic>', raw_payload: true}",
        &lines.join("\n      "),
    );
    let mut app = bed.app();
    app.batch_execute(
        "CREATE TABLE outbox (id uuid PRIMARY KEY, aggregatetype text, aggregateid text, type text, payload jsonb, traceid text,
         tenant text)",
    )
    .unwrap();
    let mut relay = bed.relay(&pipeline);
    bed.kafka.create_topic(&bed.topic("order.created"), 1, &[]);
    relay.start();
    relay.wait_ready();
    let insert = r#"INSERT INTO outbox VALUES ('00000000-0000-4000-8000-000000000001', 'order', '42', 'created', '{"total": 9.90}', $1, $2)"#;
    app.execute(insert, &[&"t1", &"acme"]).unwrap();
    relay.wait_published(1);
    let mut reader = bed.reader(&["order.created"]);
    let record = &reader.exactly(1)[0];
    assert_eq!(record.key_text(), Some("42"));
    assert_eq!(record.value_text(), Some(r#"{"total": 9.90}"#));
    let expected = [
        ("df-event-id", "00000000-0000-4000-8000-000000000001"),
        ("df-aggregate-type", "order"),
        ("df-aggregate-id", "42"),
        ("df-event-type", "created"),
        ("x-trace-id", "t1"),
        ("x-tenant", "acme"),
    ];
    let headers = expected.map(|(name, value)| (name.to_owned(), Some(value.as_bytes().to_vec())));
    assert_eq!(record.headers, headers);
}

#[test]
fn headers_come_of_an_hstore_and_of_a_trace_s_properties() {
    let bed = TestBed::new();
    let mut app = bed.app();
    app.batch_execute(
        "CREATE EXTENSION hstore;
         CREATE TABLE o (id bigint PRIMARY KEY, aggregatetype text, aggregateid text, type text, payload text, meta hstore, span text)",
    )
    .unwrap();
    let pipeline = ANY_OUTBOX.replace("<outbox>", "tables: [public.o]").replace(
        "topic: '<topic>', raw_payload: true",
        "topic: '<topic>', raw_payload: true, on_null: keep, columns: {headers: meta, trace: span}, \
         header_names: {event_id: id, aggregate_type: null, aggregate_id: null, event_type: null}",
    );
    let mut relay = bed.relay(&pipeline);
    bed.kafka.create_topic(&bed.events(), 1, &[]);
    relay.start();
    relay.wait_ready();
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let insert = r#"INSERT INTO o VALUES (1, 'order', '42', 'T', 'x', 'a=>1, "b c"=>NULL, id=>own', $1)"#;
    app.execute(insert, &[&format!("#written by a library\ntraceparent={parent}\n")])
        .unwrap();
    relay.wait_published(1);
    let mut reader = bed.reader(&["events"]);
    let headers = reader.exactly(1)[0].headers.clone();
    let value = |text: &str| Some(text.as_bytes().to_vec());
    let expected = [
        ("id".to_owned(), value("1")),
        ("traceparent".to_owned(), value(parent)),
        ("a".to_owned(), value("1")),
        ("b c".to_owned(), None),
    ];
    assert_eq!(headers, expected);
}
