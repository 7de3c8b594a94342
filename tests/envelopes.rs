//! What stands around changes of ordinary tables and outbox payloads: Debezium's envelope and CloudEvents, the same bytes
//! whoever reads the log.

use serde_json::{Value, json};

use crate::support::app::App;
use crate::support::kafka::Record;
use crate::support::{Bed, DEADLINE, Db, Event, over_each};

const PIPELINE: &str = "
apiVersion: tailpost/v1
kind: Pipeline
metadata: {name: <name>}
spec:
  source: {type: <type>, config: {<source>, tables: ['<schema>.orders'], outbox: {<outbox>}}}
  processors:
    - {type: outbox, topic: '<topic>', header_names: {event_id: null, aggregate_type: null, aggregate_id: null, event_type: null}, raw_payload: <raw>}
  sinks:
    - {type: kafka, config: {id: k1, brokers: '<brokers>', topic: '<topic>', envelope: <envelope>}}
";

fn new_bed(db: Db) -> Bed {
    let bed = Bed::new(db);
    bed.kafka.create_topic(&bed.events(), 1, &[]);
    let mut app = bed.app();
    app.run("CREATE TABLE orders (id INT PRIMARY KEY, status VARCHAR(20))");
    if db == Db::Postgres {
        app.run("ALTER TABLE orders REPLICA IDENTITY FULL");
    }
    bed
}

/// The records of what is written, as two connectors make them that know nothing of each other. They are the same.
fn relayed(bed: &Bed, envelope: &str, raw: bool, write: impl FnOnce(&mut App), count: usize) -> Vec<Record> {
    let pipeline = PIPELINE
        .replace("<envelope>", envelope)
        .replace("<raw>", if raw { "true" } else { "false" });
    let filled = bed.fill(&pipeline);
    let slot = format!("slot: {}_slot", bed.name);
    let mut relays = [slot.clone(), format!("{slot}_2")].map(|own| bed.relay(&filled.replace(&slot, &own)));
    let mut catch_up = || {
        for relay in &mut relays {
            relay.start_with(&["--once"]);
            let code = relay.wait_exit(DEADLINE);
            assert_eq!(code, 0, "{}", relay.log());
        }
    };
    // Slots are made, before there is anything to read.
    catch_up();
    write(&mut bed.app());
    catch_up();
    let mut reader = bed.reader(&["events"]);
    let mut records = reader.exactly(count * 2).to_vec();
    for record in &mut records {
        record.offset = 0;
    }
    let second = records.split_off(count);
    assert_eq!(records, second);
    records
}

/// An order's life, and an event beside it.
fn write(app: &mut App) {
    app.run(
        "INSERT INTO orders VALUES (1, 'placed');
         UPDATE orders SET status = 'paid';
         DELETE FROM orders;
         TRUNCATE TABLE orders",
    );
    app.emit(
        &Event::of(r#"{"a": [1, 2]}"#)
            .id("7f")
            .aggregate_type("Order")
            .key("42")
            .event_type("OrderPlaced"),
    );
}

const COUNT: usize = 5;

fn rows() -> [(&'static str, &'static str, Value, Value); 4] {
    let (placed, paid) = (json!({"id": 1, "status": "placed"}), json!({"id": 1, "status": "paid"}));
    [
        ("c", "created", Value::Null, placed.clone()),
        ("u", "updated", placed, paid.clone()),
        ("d", "deleted", paid, Value::Null),
        ("t", "truncated", Value::Null, Value::Null),
    ]
}

fn parsed(record: &Record) -> Value {
    serde_json::from_str(record.value_text().expect("a value")).expect("JSON")
}

/// Where ordinary tables are: what stands before the dot.
fn schema(bed: &Bed) -> String {
    bed.fill("<schema>")
}

/// Where events come from: a message's prefix, or the table `outbox`.
fn outbox(bed: &Bed) -> String {
    match bed.db() {
        Db::Postgres => "outbox".to_owned(),
        Db::Mysql | Db::Mariadb => format!("{}.outbox", bed.name),
    }
}

fn connector(db: Db) -> &'static str {
    match db {
        Db::Postgres => "postgresql",
        Db::Mysql => "mysql",
        Db::Mariadb => "mariadb",
    }
}

fn assert_debezium(bed: &Bed, payload: &Value, record: &Record) {
    let members: Vec<&String> = payload.as_object().expect("an object").keys().collect();
    assert_eq!(
        members,
        [
            "after",
            "before",
            "op",
            "source",
            "transaction",
            "ts_ms",
            "ts_ns",
            "ts_us"
        ]
    );
    assert_eq!(payload["transaction"], Value::Null);
    let source = &payload["source"];
    assert_eq!(source["connector"], connector(bed.db()));
    assert_eq!(
        (&source["name"], &source["snapshot"]),
        (&json!("src1"), &json!("false"))
    );
    // What Debezium's connectors have beside; where it is not known here, as null.
    match bed.db() {
        Db::Postgres => {
            let sequence: Value = serde_json::from_str(source["sequence"].as_str().expect("text")).expect("JSON");
            let lsn = source["lsn"].to_string();
            assert_eq!(sequence[1], lsn);
            // The transaction before, if any: never behind this one.
            let before = sequence[0].as_str().map(|text| text.parse::<u64>().expect("a number"));
            assert!(before <= source["lsn"].as_u64(), "{source}");
            assert_eq!(source.get("xmin"), Some(&Value::Null));
        }
        Db::Mysql | Db::Mariadb => {
            for member in ["sequence", "thread", "query"] {
                assert_eq!(source.get(member), Some(&Value::Null), "{member}");
            }
        }
    }
    let millis = record.timestamp_ms;
    for times in [payload, source] {
        let micros = times["ts_us"].as_i64().expect("a number");
        assert_eq!(times["ts_ms"], millis);
        assert_eq!(micros.div_euclid(1000), millis);
        assert_eq!(times["ts_ns"], micros * 1000);
    }
}

over_each!(debezium_s_envelope_is_wrapped_or_bare);
fn debezium_s_envelope_is_wrapped_or_bare(db: Db) {
    for (envelope, is_wrapped) in [("debezium", true), ("{type: debezium, schema: omit}", false)] {
        let bed = new_bed(db);
        let records = relayed(&bed, envelope, false, write, COUNT);
        let payloads: Vec<Value> = records
            .iter()
            .map(|record| match (parsed(record), is_wrapped) {
                (mut value, true) => {
                    assert!(
                        record
                            .value_text()
                            .unwrap()
                            .starts_with(r#"{"schema":null,"payload":{"before":"#)
                    );
                    value["payload"].take()
                }
                (value, false) => value,
            })
            .collect();
        for ((record, payload), (op, _, before, after)) in records.iter().zip(&payloads).zip(rows()) {
            assert_debezium(&bed, payload, record);
            assert_eq!(payload["op"], op);
            assert_eq!((&payload["before"], &payload["after"]), (&before, &after), "{op}");
            assert_eq!(payload["source"]["table"], "orders");
            assert_eq!(record.headers, []);
        }
        let (record, payload) = (&records[4], &payloads[4]);
        assert_debezium(&bed, payload, record);
        assert_eq!(
            (
                &payload["op"],
                &payload["before"],
                &payload["after"],
                &payload["source"]["table"]
            ),
            (&json!("c"), &Value::Null, &json!({"a": [1, 2]}), &json!("outbox"))
        );
        assert_eq!(record.key_text(), Some("42"));
    }
}

/// Milliseconds of a time such as `2026-11-28T05:17:01.124000Z`.
fn assert_time(text: &str, record: &Record) {
    let time: jiff::Timestamp = text.parse().expect("a time by RFC 3339");
    assert_eq!(time.as_millisecond(), record.timestamp_ms);
    assert!(
        text.ends_with('Z') && text.len() == "2026-11-28T05:17:01.124000Z".len(),
        "{text}"
    );
}

over_each!(cloudevents_in_their_structured_form_are_objects);
fn cloudevents_in_their_structured_form_are_objects(db: Db) {
    let bed = new_bed(db);
    let records = relayed(&bed, "{type: cloudevents, type_prefix: com.acme}", false, write, COUNT);
    let content_type = (
        "content-type".to_owned(),
        Some(b"application/cloudevents+json; charset=UTF-8".to_vec()),
    );
    for record in &records {
        assert_eq!(record.headers, std::slice::from_ref(&content_type));
    }
    let mut ids = Vec::new();
    let orders = format!("{}.orders", schema(&bed));
    for (record, (op, word, before, after)) in records.iter().zip(rows()) {
        let mut event = parsed(record);
        let data = event["data"].take();
        assert_eq!(
            (&data["op"], &data["before"], &data["after"], &data["source"]["table"]),
            (&json!(op), &before, &after, &json!("orders"))
        );
        let time = event["time"].as_str().unwrap().to_owned();
        assert_time(&time, record);
        let id = event["id"].as_str().unwrap().to_owned();
        assert_eq!(
            event,
            json!({
                "specversion": "1.0",
                "id": id,
                "source": format!("/tailpost/src1/{orders}"),
                "type": format!("com.acme.{orders}.{word}"),
                "subject": orders,
                "time": time,
                "datacontenttype": "application/json",
                "data": null,
            })
        );
        ids.push(id);
    }
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 4, "each has its own");
    let time = parsed(&records[4])["time"].as_str().unwrap().to_owned();
    assert_eq!(
        records[4].value_text().unwrap(),
        format!(
            r#"{{"specversion":"1.0","id":"7f","source":"/tailpost/src1/{}","type":"com.acme.OrderPlaced","subject":"42","time":"{time}","datacontenttype":"application/json","data":{{"a": [1, 2]}}}}"#,
            outbox(&bed)
        )
    );
    assert_time(&time, &records[4]);
}

over_each!(cloudevents_in_their_binary_form_are_headers);
fn cloudevents_in_their_binary_form_are_headers(db: Db) {
    for raw in [false, true] {
        let bed = new_bed(db);
        let envelope = "{type: cloudevents, mode: binary, source: /shop}";
        let records = relayed(&bed, envelope, raw, write, COUNT);
        let orders = format!("{}.orders", schema(&bed));
        let header_names = |record: &Record| record.headers.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
        for (record, (op, word, before, after)) in records.iter().zip(rows()) {
            let data = parsed(record);
            assert_eq!(
                (&data["op"], &data["before"], &data["after"]),
                (&json!(op), &before, &after)
            );
            assert_eq!(
                header_names(record),
                [
                    "ce_specversion",
                    "ce_id",
                    "ce_source",
                    "ce_type",
                    "ce_subject",
                    "ce_time",
                    "content-type"
                ]
            );
            for (name, value) in [
                ("ce_specversion", "1.0"),
                ("ce_source", "/shop"),
                ("ce_type", &format!("tailpost.{orders}.{word}")),
                ("ce_subject", &orders),
                ("content-type", "application/json"),
            ] {
                assert_eq!(record.header(name), Some(value), "{name}");
            }
            assert_time(record.header("ce_time").unwrap(), record);
        }
        let record = &records[4];
        assert_eq!(record.value_text(), Some(r#"{"a": [1, 2]}"#));
        let time = record.header("ce_time").unwrap().to_owned();
        assert_time(&time, record);
        let headers = record.headers.iter();
        let headers: Vec<(&str, &str)> = headers
            .map(|(name, value)| (name.as_str(), std::str::from_utf8(value.as_ref().unwrap()).unwrap()))
            .collect();
        assert_eq!(
            headers,
            [
                ("ce_specversion", "1.0"),
                ("ce_id", "7f"),
                ("ce_source", "/shop"),
                ("ce_type", "OrderPlaced"),
                ("ce_subject", "42"),
                ("ce_time", &*time),
                ("content-type", "application/json"),
            ]
        );
    }
}
