//! What becomes of an outbox message or row: value, key, topic, headers, and what is no event.

use std::collections::BTreeMap;

use crate::support::kafka::Record;
use crate::support::relay::Relay;
use crate::support::{DEADLINE, Emit, OUTBOX, TestBed};

fn started(bed: &TestBed, pipeline: &str) -> Relay {
    let mut relay = bed.relay(pipeline);
    relay.start();
    relay.wait_ready();
    relay
}

/// By the aggregate's id.
fn by_key(records: &[Record]) -> BTreeMap<&str, &Record> {
    let keyed = records.iter().map(|record| (record.key_text().expect("a key"), record));
    keyed.collect()
}

#[test]
fn payloads_arrive_byte_for_byte() {
    let bed = TestBed::new();
    let mut app = bed.app();
    app.batch_execute("CREATE TABLE json_outbox (payload json); CREATE TABLE text_outbox (payload text)")
        .unwrap();
    let both = OUTBOX.replace("prefixes: [outbox]", "prefixes: [outbox], tables: ['*_outbox']");
    let mut relay = started(&bed, &both);
    let payloads = [
        r#"{"tags":[]}"#,
        r#"{"a":null}"#,
        r#"{"a":[1,2.5]}"#,
        r#"{"n":12345678901234567890.10}"#,
        r#"{"a":1,"a":2}"#,
        "{ \"a\" :\t1 ,\n \"b\" : [ ] }",
        r#"{"z":1,"a":"ä\u00e4\n\/"}"#,
        r#""text with \"quotes\"""#,
        r#""""#,
        "1e400",
        "-0",
        "true",
        "[]",
        r#"{"payload": {"payload": null}}"#,
    ];
    for payload in payloads {
        app.emit("outbox", &format!(r#"{{"aggregate_id":"k","payload" : {payload} }}"#));
        for table in ["json_outbox", "text_outbox"] {
            let insert = format!("INSERT INTO {table} VALUES ('{payload}')");
            app.batch_execute(&insert).unwrap();
        }
    }
    let count = payloads.len() * 3;
    relay.wait_settled(count as u64);
    let mut reader = bed.reader(&["events"]);
    let values: Vec<_> = reader
        .exactly(count)
        .iter()
        .map(|record| record.value_text().unwrap())
        .collect();
    let expected: Vec<_> = payloads.iter().flat_map(|payload| [*payload; 3]).collect();
    assert_eq!(values, expected);
}

#[test]
fn messages_that_are_no_json_object_are_all_payload_whatever_their_bytes() {
    let bed = TestBed::new();
    let mut relay = started(&bed, OUTBOX);
    let every_byte: Vec<u8> = (0..=255).collect();
    let contents: [&[u8]; 8] = [
        b"plain text",
        b"",
        b"\0",
        b"\x5c\0",
        &every_byte,
        b"{\"payload\": 1",
        b"[1, 2]",
        b"{\"payload\": \"\xff\"}",
    ];
    let mut app = bed.app();
    for content in contents {
        app.execute("SELECT pg_logical_emit_message(true, 'outbox', $1::bytea)", &[&content])
            .unwrap();
    }
    relay.wait_settled(contents.len() as u64);
    let mut reader = bed.reader(&["events"]);
    for (record, content) in reader.exactly(contents.len()).iter().zip(contents) {
        assert_eq!(record.value.as_deref(), Some(content));
        assert_eq!(record.key, None);
    }
}

#[test]
fn a_payload_of_10_mb_arrives_byte_for_byte() {
    let bed = TestBed::new();
    bed.kafka
        .create_topic(&bed.events(), 1, &[("max.message.bytes", "12000000")]);
    let mut relay = started(&bed, OUTBOX);
    let payload: String = (0..10_000_000_u32)
        .map(|n| char::from(b'a' + (n.wrapping_mul(2_654_435_761) >> 24) as u8 % 26))
        .collect();
    let mut app = bed.app();
    app.emit("outbox", r#"{"payload": 1}"#);
    app.emit("outbox", &format!(r#"{{"payload": "{payload}"}}"#));
    app.emit("outbox", r#"{"payload": 2}"#);
    relay.wait_settled(3);
    let mut reader = bed.reader(&["events"]);
    let records = reader.exactly(3);
    assert!(
        records[1].value_text() == Some(&format!("\"{payload}\"")),
        "the payload is another"
    );
    assert_eq!(
        [records[0].value_text(), records[2].value_text()],
        [Some("1"), Some("2")]
    );
}

#[test]
fn a_field_that_is_missing_null_or_empty_has_one_outcome() {
    let bed = TestBed::new();
    let pipeline = OUTBOX.replace(
        "topic: '<topic>'",
        "topic: '<name>.${event_type}', default_topic: '<name>.default', additional_headers: {x: extra}",
    ) + "  errors: {invalid: skip}\n";
    let mut relay = started(&bed, &pipeline);
    let mut app = bed.app();
    let base = r#""event_type": "made", "aggregate_id": "k", "aggregate_type": "T", "extra": "e", "payload": 1"#;
    let without = |name: &str| {
        let members = base
            .split(", ")
            .filter(|member| !member.starts_with(&format!("\"{name}\"")));
        members.collect::<Vec<_>>().join(", ")
    };
    let with = |name: &str, value: &str| format!(r#"{}, "{name}": {value}"#, without(name));
    let contents = [
        base.to_owned(),
        without("event_type"),
        with("event_type", "null"),
        with("event_type", "\"\""),
        with("event_type", "{}"),
        with("event_type", "[1]"),
        with("event_type", "7"),
        with("event_type", "true"),
        without("aggregate_id"),
        with("aggregate_id", "null"),
        with("aggregate_id", "\"\""),
        with("aggregate_id", "12.50"),
        without("aggregate_type"),
        without("extra"),
        with("extra", "null"),
        with("extra", "\"\""),
        with("extra", "{}"),
        with("payload", "null"),
        with("payload", "\"\""),
        without("payload"),
    ];
    for (number, content) in contents.iter().enumerate() {
        app.emit("outbox", &format!(r#"{{{content}, "id": "{number}"}}"#));
    }
    relay.wait_settled(contents.len() as u64);
    assert_eq!(relay.skipped("invalid"), 1, "the one without a payload");
    let mut reader = bed.reader(&["made", "default", "7", "true"]);
    let records: BTreeMap<usize, &Record> = reader
        .exactly(contents.len() - 1)
        .iter()
        .map(|record| (record.header("df-event-id").unwrap().parse().unwrap(), record))
        .collect();
    let topics: Vec<&str> = records
        .values()
        .map(|record| record.topic.rsplit('.').next().unwrap())
        .collect();
    let mut expected = vec!["made"; contents.len() - 1];
    expected[1..6].fill("default");
    expected[6] = "7";
    expected[7] = "true";
    assert_eq!(topics, expected);
    let keys: Vec<Option<&str>> = records.values().map(|record| record.key_text()).collect();
    let mut expected = vec![Some("k"); contents.len() - 1];
    expected[8..11].fill(None);
    expected[11] = Some("12.50");
    assert_eq!(keys, expected);
    let header = |number: usize, name: &str| records[&number].header(name);
    assert_eq!(header(0, "df-aggregate-type"), Some("T"));
    assert_eq!(header(12, "df-aggregate-type"), None);
    assert_eq!(header(10, "df-aggregate-id"), Some(""));
    assert_eq!(
        [0, 13, 14, 15, 16].map(|number| header(number, "x")),
        [Some("e"), None, None, Some(""), None]
    );
    assert_eq!(records[&17].value, None, "a null payload is a tombstone");
    assert_eq!(records[&18].value_text(), Some("\"\""));
}

#[test]
fn templates_reach_into_payloads() {
    let bed = TestBed::new();
    let pipeline = OUTBOX.replace(
        "topic: '<topic>'",
        "topic: '<name>.${payload.customer.region}', key: '${aggregate_id}/${payload.lines.count}', default_topic: '<name>.default'",
    );
    let mut relay = started(&bed, &pipeline);
    let mut app = bed.app();
    for payload in [
        r#"{"customer": {"region": "eu"}, "lines": {"count": 3}}"#,
        r#"{"customer": {"region": "us"}, "lines": {}}"#,
        r#"{"customer": "eu"}"#,
        r#""{\"customer\": {\"region\": \"eu\"}}""#,
    ] {
        app.emit("outbox", &format!(r#"{{"aggregate_id": "k", "payload": {payload}}}"#));
    }
    relay.wait_settled(4);
    let mut reader = bed.reader(&["eu", "us", "default"]);
    let mut found: Vec<_> = reader
        .exactly(4)
        .iter()
        .map(|record| (record.topic.rsplit('.').next().unwrap(), record.key_text()))
        .collect();
    found.sort_unstable();
    assert_eq!(
        found,
        [("default", None), ("default", None), ("eu", Some("k/3")), ("us", None)]
    );
}

#[test]
fn rows_of_every_payload_type_arrive_as_the_server_prints_them() {
    let bed = TestBed::new();
    let mut app = bed.app();
    let payloads = [
        ("json", r#"{ "b" :1.50, "a":[ ], "a":null }"#),
        ("jsonb", r#"{ "b" :1.50, "a":[ ], "a":null }"#),
        ("text", "any \t text \\ 'ä€"),
        ("varchar(60)", r#"{"a": 1 }"#),
        ("bytea", r"\x5c00ff"),
        ("numeric", "12345678901234567890.10"),
        ("xml", "<a>1</a>"),
    ];
    let mut insert = String::new();
    for (number, (kind, payload)) in payloads.iter().enumerate() {
        app.batch_execute(&format!(
            "CREATE TABLE o{number}_outbox (id uuid DEFAULT gen_random_uuid(), aggregate_type text, aggregate_id text, event_type text, payload {kind})"
        ))
        .unwrap();
        let payload = payload.replace('\'', "''");
        for (key, payload) in [("value", format!("'{payload}'")), ("null", "NULL".to_owned())] {
            insert.push_str(&format!(
                "INSERT INTO o{number}_outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('T', '{kind} {key}', 'made', {payload});"
            ));
        }
    }
    let mut relay = started(&bed, &OUTBOX.replace("prefixes: [outbox]", "tables: ['*_outbox']"));
    app.batch_execute(&insert).unwrap();
    app.batch_execute("INSERT INTO o2_outbox (aggregate_id, payload) VALUES ('text empty', '')")
        .unwrap();
    let count = payloads.len() * 2 + 1;
    relay.wait_settled(count as u64);
    let mut reader = bed.reader(&["events"]);
    let records = by_key(reader.exactly(count));
    for (number, (kind, _)) in payloads.iter().enumerate() {
        let printed = if *kind == "bytea" {
            "payload"
        } else {
            "convert_to(payload::text, 'UTF8')"
        };
        let row = app
            .query_one(&format!("SELECT {printed}, id::text FROM o{number}_outbox WHERE payload IS NOT NULL ORDER BY aggregate_id DESC LIMIT 1"), &[])
            .unwrap();
        let record = records[format!("{kind} value").as_str()];
        assert_eq!(record.value.as_deref(), Some(row.get::<_, &[u8]>(0)), "{kind}");
        assert_eq!(record.header("df-event-id"), Some(row.get(1)));
        assert_eq!(records[format!("{kind} null").as_str()].value, None, "{kind}");
    }
    assert_eq!(records["text empty"].value_text(), Some(""));
}

const SEVERAL: &str = "
apiVersion: tailpost/v1
kind: Pipeline
metadata: {name: <name>}
spec:
  source:
    type: postgres
    config: {id: pg1, dsn: '<dsn>', slot: <slot>, publication: <publication>, outbox: {prefixes: [outbox, 'audit.%'], tables: ['*_outbox']}}
  processors:
    - type: outbox
      id: orders
      tables: [orders_outbox]
      topic: '<name>.orders.${event_type}'
      raw_payload: true
      additional_headers: {tenant: tenant, trace: trace}
    - type: outbox
      id: payments
      tables: [public.payments_outbox]
      topic: '<name>.payments.${kind}'
      raw_payload: true
      columns: {payload: data, aggregate_type: subject, aggregate_id: reference, event_type: kind, event_id: uid}
    - {type: outbox, id: audit, tables: ['audit.%'], topic: '<name>.audit'}
  sinks:
    - {type: kafka, config: {id: k1, brokers: '<brokers>'}}
  errors: {unroutable: skip}
";

#[test]
fn several_outboxes_of_one_pipeline_have_processors_and_columns_of_their_own() {
    let bed = TestBed::new();
    let mut app = bed.app();
    app.batch_execute(
        "CREATE TABLE orders_outbox (id int, aggregate_type text, aggregate_id bigint, event_type text, payload jsonb, tenant text, trace text);
         CREATE TABLE payments_outbox (uid uuid, subject text, reference uuid, kind text, data bytea);
         CREATE TABLE other_outbox (payload text)",
    )
    .unwrap();
    let mut relay = started(&bed, SEVERAL);
    let uuid = "0191f0a0-0000-7000-8000-0000000000ff";
    let mut transaction = app.transaction().unwrap();
    transaction
        .batch_execute(&format!(
            "INSERT INTO orders_outbox VALUES (1, 'Order', 42, 'paid', '{{\"a\":1}}', 'acme', NULL);
             INSERT INTO payments_outbox VALUES ('{uuid}', 'Payment', '{uuid}', 'captured', '\\x00ff');
             INSERT INTO other_outbox VALUES ('nobody takes it')"
        ))
        .unwrap();
    transaction.emit("audit.login", r#"{"id": "e", "payload": {"user": 1}}"#);
    transaction.emit("outbox", r#"{"payload": "no processor takes this prefix"}"#);
    transaction.emit("audit", "another prefix");
    transaction.commit().unwrap();
    relay.wait_settled(6);
    assert_eq!(relay.skipped("unroutable"), 2);
    assert_eq!(relay.skipped("foreign_prefix"), 1);
    let mut reader = bed.reader(&["orders.paid", "payments.captured", "audit"]);
    let records = reader.exactly(3);
    let of = |topic: &str| records.iter().find(|record| record.topic.ends_with(topic)).unwrap();
    let (order, payment, audit) = (of("orders.paid"), of("payments.captured"), of("audit"));
    let header = |name: &str, text: &str| (name.to_owned(), Some(text.as_bytes().to_vec()));
    assert_eq!(
        (order.key_text(), order.value_text()),
        (Some("42"), Some(r#"{"a": 1}"#))
    );
    assert_eq!(
        order.headers,
        [
            header("df-event-id", "1"),
            header("df-aggregate-type", "Order"),
            header("df-aggregate-id", "42"),
            header("df-event-type", "paid"),
            header("tenant", "acme"),
        ]
    );
    assert_eq!(
        (payment.key_text(), payment.value.as_deref()),
        (Some(uuid), Some(b"\0\xff".as_slice()))
    );
    assert_eq!(
        payment.headers,
        [
            header("df-event-id", uuid),
            header("df-aggregate-type", "Payment"),
            header("df-aggregate-id", uuid),
            header("df-event-type", "captured"),
        ]
    );
    // Without raw_payload it comes in the sink's envelope.
    let envelope: serde_json::Value = serde_json::from_slice(audit.value.as_deref().unwrap()).unwrap();
    assert_eq!(envelope["after"], serde_json::json!({"user": 1}));
    assert_eq!(envelope["op"], "c");
    assert_eq!(envelope["source"]["table"], "audit.login");
}

#[test]
fn a_row_whose_table_lacks_a_column_is_handled_as_a_message_without_that_field() {
    let bed = TestBed::new();
    let mut app = bed.app();
    app.batch_execute(
        "CREATE TABLE a_outbox (aggregate_id text, event_type text); CREATE TABLE b_outbox (payload text, event_type text)",
    )
    .unwrap();
    let pipeline = OUTBOX.replace("prefixes: [outbox]", "tables: ['*_outbox']").replace(
        "topic: '<topic>'",
        "topic: '<name>.${event_type}', default_topic: '<topic>'",
    ) + "  errors: {invalid: skip}\n";
    let mut relay = started(&bed, &pipeline);
    app.batch_execute(
        "INSERT INTO a_outbox VALUES ('k', 'made');
         INSERT INTO b_outbox VALUES ('no type', NULL), ('empty type', ''), ('typed', 'made');
         ALTER TABLE b_outbox DROP COLUMN event_type;
         INSERT INTO b_outbox VALUES ('no column')",
    )
    .unwrap();
    relay.wait_settled(5);
    assert_eq!(relay.skipped("invalid"), 1);
    let mut reader = bed.reader(&["events"]);
    let values: Vec<_> = reader
        .exactly(3)
        .iter()
        .map(|record| record.value_text().unwrap())
        .collect();
    assert_eq!(values, ["no type", "empty type", "no column"]);
    let mut reader = bed.reader(&["made"]);
    let made = &reader.exactly(1)[0];
    assert_eq!((made.value_text(), made.key_text()), (Some("typed"), None));
}

#[test]
fn a_column_that_is_null_or_empty_has_the_outcome_of_such_a_member() {
    let bed = TestBed::new();
    let mut app = bed.app();
    app.batch_execute(
        "CREATE TABLE o_outbox (event_type text, aggregate_id text, aggregate_type text, extra text, payload json)",
    )
    .unwrap();
    let pipeline = OUTBOX
        .replace("prefixes: [outbox]", "prefixes: [outbox], tables: ['*_outbox']")
        .replace(
            "topic: '<topic>'",
            "topic: '<name>.${event_type}', default_topic: '<name>.default', additional_headers: {x: extra}",
        );
    let mut relay = started(&bed, &pipeline);
    let columns = ["event_type", "aggregate_id", "aggregate_type", "extra", "payload"];
    let mut count = 0;
    for other in columns {
        for (json, text) in [("null", "NULL"), (r#""""#, "''")] {
            if (other, text) == ("payload", "''") {
                continue; // no JSON
            }
            let value_of = |column: &str| match column {
                _ if column == other => (json, text),
                "payload" => ("1", "'1'"),
                _ => (r#""made""#, "'made'"),
            };
            let members: Vec<String> = columns
                .iter()
                .map(|column| format!(r#""{column}": {}"#, value_of(column).0))
                .collect();
            app.emit("outbox", &format!("{{{}}}", members.join(", ")));
            let cells: Vec<&str> = columns.iter().map(|column| value_of(column).1).collect();
            let insert = format!("INSERT INTO o_outbox VALUES ({})", cells.join(", "));
            app.batch_execute(&insert).unwrap();
            count += 1;
        }
    }
    relay.wait_settled(count * 2);
    let mut reader = bed.reader(&["made", "default"]);
    let records = reader.exactly(count as usize * 2);
    let seen = |record: &Record| {
        let headers: Vec<_> = record
            .headers
            .iter()
            .filter(|(name, _)| name != "df-event-id")
            .cloned()
            .collect();
        (record.topic.clone(), record.key.clone(), record.value.clone(), headers)
    };
    for topic in ["made", "default"] {
        let of_topic: Vec<_> = records
            .iter()
            .filter(|record| record.topic.ends_with(topic))
            .map(seen)
            .collect();
        assert!(of_topic.len() >= 4, "{of_topic:?}");
        for pair in of_topic.chunks(2) {
            assert_eq!(pair[0], pair[1]);
        }
    }
}

#[test]
fn a_row_inserted_and_deleted_in_one_transaction_arrives_and_what_is_no_insert_is_counted() {
    let bed = TestBed::new();
    let mut app = bed.app();
    app.batch_execute("CREATE TABLE o (id int PRIMARY KEY, payload text, seen bool)")
        .unwrap();
    app.batch_execute("ALTER TABLE o ALTER payload SET STORAGE EXTERNAL")
        .unwrap();
    bed.admin()
        .batch_execute(&format!("CREATE PUBLICATION {} FOR TABLE o", bed.publication))
        .unwrap();
    let mut relay = started(&bed, &OUTBOX.replace("prefixes: [outbox]", "tables: [o]"));
    let large = "x".repeat(20_000);
    app.batch_execute(&format!(
        "BEGIN; INSERT INTO o VALUES (1, 'in and out'); DELETE FROM o; COMMIT;
         INSERT INTO o VALUES (2, '{large}');
         UPDATE o SET seen = true;
         UPDATE o SET payload = 'another';
         DELETE FROM o;
         TRUNCATE o"
    ))
    .unwrap();
    relay.wait_settled(7);
    assert_eq!(relay.published(), 2);
    let reasons = ["outbox_update", "outbox_delete", "outbox_truncate"];
    assert_eq!(reasons.map(|reason| relay.skipped(reason)), [2, 2, 1]);
    let mut reader = bed.reader(&["events"]);
    let values: Vec<_> = reader
        .exactly(2)
        .iter()
        .map(|record| record.value_text().unwrap())
        .collect();
    assert_eq!(values, ["in and out", &large]);
}

#[test]
fn non_transactional_messages_arrive_once_also_from_a_rolled_back_transaction() {
    let bed = TestBed::new();
    let mut relay = started(&bed, OUTBOX);
    let mut app = bed.app();
    let message = |transactional: bool, text: &str| {
        format!(r#"SELECT pg_logical_emit_message({transactional}, 'outbox', '{{"payload": "{text}"}}')"#)
    };
    app.batch_execute(&format!(
        "{}; BEGIN; {}; {}; ROLLBACK; BEGIN; {}; {}; SAVEPOINT s; {}; ROLLBACK TO s; COMMIT",
        message(false, "alone"),
        message(false, "of a rollback"),
        message(true, "rolled back"),
        message(true, "committed"),
        message(false, "before its transaction"),
        message(true, "of a savepoint"),
    ))
    .unwrap();
    relay.wait_settled(4);
    relay.sigterm();
    assert_eq!(relay.wait_exit(DEADLINE), 0);
    relay.start_with(&["--once"]);
    assert_eq!(relay.wait_exit(DEADLINE), 0);
    let mut reader = bed.reader(&["events"]);
    let values: Vec<_> = reader
        .exactly(4)
        .iter()
        .map(|record| record.value_text().unwrap())
        .collect();
    assert_eq!(
        values,
        [
            r#""alone""#,
            r#""of a rollback""#,
            r#""before its transaction""#,
            r#""committed""#
        ]
    );
}

#[test]
fn settings_of_the_role_do_not_change_what_arrives() {
    let bed = TestBed::new();
    let mut admin = bed.admin();
    let role: postgres::Config = bed.postgres.url.parse().unwrap();
    let (role, database) = (role.get_user().unwrap(), &bed.name);
    for setting in [
        "bytea_output = 'escape'",
        "DateStyle = 'German, DMY'",
        "TimeZone = 'Asia/Kolkata'",
        "IntervalStyle = 'iso_8601'",
        "extra_float_digits = -15",
        "xmloption = 'document'",
    ] {
        admin
            .batch_execute(&format!("ALTER ROLE {role} IN DATABASE {database} SET {setting}"))
            .unwrap();
    }
    let mut app = bed.app();
    app.batch_execute(
        "CREATE TABLE o (aggregate_id text PRIMARY KEY, payload bytea);
         CREATE TABLE t (id int PRIMARY KEY, at timestamptz, day date, span interval, f float8, b bytea)",
    )
    .unwrap();
    let pipeline = OUTBOX
        .replace("outbox: {prefixes: [outbox]}", "tables: [t], outbox: {tables: [o]}")
        .replace("brokers: '<brokers>'", "brokers: '<brokers>', topic: '<name>.rows'");
    let mut relay = started(&bed, &pipeline);
    app.batch_execute(
        r"INSERT INTO o VALUES ('k', '\x5c00');
          INSERT INTO t VALUES (1, '2024-02-29 12:30:00.123456+02', '2024-02-29', '1 day 02:03:04', 0.1::float8 + 0.2::float8, '\x5c00')",
    )
    .unwrap();
    relay.wait_settled(2);
    assert_eq!(
        bed.reader(&["events"]).exactly(1)[0].value.as_deref(),
        Some(b"\\\0".as_slice())
    );
    let mut reader = bed.reader(&["rows"]);
    let row = reader.exactly(1)[0].value_text().unwrap();
    let after = r#""after":{"id":1,"at":"2024-02-29 10:30:00.123456+00","day":"2024-02-29","span":"1 day 02:03:04","f":0.30000000000000004,"b":"\\x5c00"}"#;
    assert!(row.contains(after), "{row}");
}
