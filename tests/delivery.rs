//! What comes out for what went in.

use std::ops::RangeInclusive;

use serde_json::{Value, json};

use crate::support::app::{App, Door};
use crate::support::mysql::{Engine, Flavor, Script};
use crate::support::mysql_bed::MysqlBed;
use crate::support::server::OwnServer;
use crate::support::{ANY_OUTBOX, Bed, DEADLINE, Db, Emit, Event, TestBed, over_each, variable};

/// The contract's first example, as it stands there.
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

#[test]
fn the_example_runs_unchanged() {
    the_example_runs(EXAMPLE);
}

#[test]
fn the_example_runs_unchanged_in_our_own_version() {
    the_example_runs(&EXAMPLE.replace("apiVersion: deltaforge/v1", "apiVersion: tailpost/v1"));
}

/// Its slot's name is fixed, so it has a server of its own; its topics' names too, so each run is told by its order.
fn the_example_runs(pipeline: &str) {
    let server = OwnServer::postgres("-c track_commit_timestamp=on");
    let bed = TestBed::on(server.addresses(), &variable("TAILPOST_TEST_KAFKA"));
    let order = bed.name.as_str();
    let mut app = bed.app();
    app.batch_execute("CREATE TABLE public.orders (id text PRIMARY KEY, total numeric(10,2), note text)")
        .unwrap();
    let mut relay = bed
        .relay(pipeline)
        .env("POSTGRES_DSN", &bed.postgres.url)
        .env("KAFKA_BROKERS", &bed.kafka.brokers);
    relay.start();
    relay.wait_ready();
    assert_eq!(relay.count_log("CONFWARN"), 0, "nothing to warn of: {}", relay.log());

    // White space, number text and a duplicate key: bytes that a parser would not give back.
    let payload = r#"{"total" : 12.50, "items":[ ], "a":1, "a":2}"#;
    let mut transaction = app.transaction().unwrap();
    transaction
        .execute("INSERT INTO orders VALUES ($1, 12.50, 'new')", &[&order])
        .unwrap();
    transaction.emit(
        "outbox",
        &format!(
            r#"{{"id": "e-1", "aggregate_type": "Order", "aggregate_id": "{order}", "event_type": "OrderCreated", "payload": {payload}}}"#
        ),
    );
    let xid: String = transaction
        .query_one("SELECT pg_current_xact_id()::text", &[])
        .unwrap()
        .get(0);
    transaction.commit().unwrap();
    let mut rolled_back = app.transaction().unwrap();
    rolled_back.emit(
        "outbox",
        &format!(
            r#"{{"aggregate_type": "Order", "aggregate_id": "{order}", "event_type": "OrderCreated", "payload": "rolled back"}}"#
        ),
    );
    rolled_back.rollback().unwrap();
    app.emit("other", r#"{"payload": "of a foreign prefix"}"#);
    // Without a type there is no topic but the default one.
    app.emit(
        "outbox",
        &format!(r#"{{"aggregate_id": "{order}", "payload": {{"n": 1}}}}"#),
    );
    app.execute("UPDATE orders SET note = 'paid' WHERE id = $1", &[&order])
        .unwrap();
    app.execute("DELETE FROM orders WHERE id = $1", &[&order]).unwrap();
    let committed_ms: i64 = bed
        .admin()
        .query_one(
            "SELECT floor(extract(epoch FROM pg_xact_commit_timestamp($1::text::xid)) * 1000)::bigint",
            &[&xid],
        )
        .unwrap()
        .get(0);

    relay.wait_published(5);
    assert_eq!(
        relay.metric("tailpost_events_skipped_total", &[("reason", "foreign_prefix")]),
        1.0
    );
    relay.sigterm();
    assert_eq!(relay.wait_exit(crate::support::DEADLINE), 0);

    let of_order = |topic: &str| {
        let mut reader = bed.kafka.reader(&[topic.to_owned()]);
        reader.all();
        let mine = |text: Option<&str>| text.is_some_and(|text| text.contains(order));
        reader.records.retain(|record| mine(record.key_text()));
        reader.records
    };
    let created = of_order("Order.OrderCreated");
    assert_eq!(created.len(), 1, "{created:?}");
    let created = &created[0];
    assert_eq!(created.key_text(), Some(order));
    assert_eq!(created.value_text(), Some(payload));
    assert_eq!(created.timestamp_ms, committed_ms);
    let header = |name: &str, text: &str| (name.to_owned(), Some(text.as_bytes().to_vec()));
    assert_eq!(
        created.headers,
        [
            header("df-event-id", "e-1"),
            header("df-aggregate-type", "Order"),
            header("df-aggregate-id", order),
            header("df-event-type", "OrderCreated"),
        ]
    );

    let unrouted = of_order("events.unrouted");
    assert_eq!(unrouted.len(), 1, "{unrouted:?}");
    assert_eq!(unrouted[0].value_text(), Some(r#"{"n": 1}"#));
    assert_eq!(unrouted[0].header("df-event-type"), None);
    assert!(unrouted[0].header("df-event-id").is_some(), "{unrouted:?}");

    let rows: Vec<Value> = of_order("events.fallback")
        .iter()
        .map(|record| serde_json::from_slice(record.value.as_deref().unwrap()).unwrap())
        .collect();
    let operations: Vec<&str> = rows.iter().map(|row| row["op"].as_str().unwrap()).collect();
    assert_eq!(operations, ["c", "u", "d"]);
    assert_eq!(rows[0]["before"], Value::Null);
    assert_eq!(rows[0]["after"], json!({"id": order, "total": "12.50", "note": "new"}));
    assert_eq!(rows[0]["source"]["schema"], "public");
    assert_eq!(rows[0]["source"]["table"], "orders");
    assert_eq!(rows[0]["ts_ms"], committed_ms);
    assert_eq!(rows[1]["after"]["note"], "paid");
    assert_eq!(rows[2]["before"]["id"], order);
    assert_eq!(rows[2]["after"], Value::Null);
}

/// The contract's example of several outboxes, as it stands there.
const TWO_OUTBOXES: &str = r#"apiVersion: deltaforge/v1
kind: Pipeline
metadata:
  name: shop-events
spec:
  source:
    type: mysql
    config:
      id: m1
      dsn: ${MYSQL_DSN}
      tables: [shop.orders, shop.orders_outbox, shop.payments_outbox]
      outbox: {tables: ["shop.*_outbox"]}
  processors:
    - {type: outbox, tables: [orders_outbox], topic: "orders.${event_type}", raw_payload: true}
    - {type: outbox, tables: [payments_outbox], topic: "payments.${event_type}", raw_payload: true, columns: {payload: data}}
  sinks:
    - {type: kafka, config: {id: k1, brokers: "${KAFKA_BROKERS}", topic: events.default}}
"#;

over_each!(the_example_of_two_outboxes_runs_unchanged: mysql, mariadb);
fn the_example_of_two_outboxes_runs_unchanged(db: Db) {
    the_example_of_two_outboxes_runs(db, TWO_OUTBOXES);
}

over_each!(the_example_of_two_outboxes_runs_unchanged_in_our_own_version: mysql, mariadb);
fn the_example_of_two_outboxes_runs_unchanged_in_our_own_version(db: Db) {
    the_example_of_two_outboxes_runs(
        db,
        &TWO_OUTBOXES.replace("apiVersion: deltaforge/v1", "apiVersion: tailpost/v1"),
    );
}

/// Its database's name is fixed, so it has a server of its own; its topics' names too, so each run is told by its order.
fn the_example_of_two_outboxes_runs(db: Db, pipeline: &str) {
    let flavor = db.flavor().expect("a binlog");
    let server = OwnServer::mysql(flavor, "");
    let bed = MysqlBed::on(flavor, &server);
    bed.admin()
        .run("CREATE DATABASE shop; GRANT ALL ON shop.* TO app@'%'")
        .unwrap();
    let shop = bed.database.mysql.in_database("shop");
    let mut app = Door::new(db, &shop.app_url).open().unwrap();
    app.run("CREATE TABLE orders (id VARCHAR(64) PRIMARY KEY, total DECIMAL(10,2), note TEXT) ENGINE = InnoDB");
    let mut relay = bed
        .relay(pipeline)
        .env("MYSQL_DSN", &shop.url)
        .env("KAFKA_BROKERS", &bed.kafka.brokers);
    relay.start();
    relay.wait_ready();
    for (engine, published) in bed.engines().into_iter().zip([5, 10]) {
        println!("{engine:?}");
        let order = format!("{}-{engine:?}", bed.name);
        let (before, after) = write_to_two_outboxes(&mut app, engine, &order);
        relay.wait_published(published);
        // MariaDB notes whole seconds.
        let before = if db == Db::Mariadb {
            before / 1000 * 1000
        } else {
            before
        };
        assert_two_outboxes_arrived(&bed, &mut app, &order, before..=after);
    }
    relay.sigterm();
    assert_eq!(relay.wait_exit(DEADLINE), 0);
}

/// White space, number text and a duplicate key: bytes that a parser would not give back.
const TOLD: &str = r#"{"total" : 12.50, "items":[ ], "a":1, "a":2}"#;

/// An order with its events, one that is rolled back, and changes of the order. Gives the server's time before and after
/// the first transaction.
fn write_to_two_outboxes(app: &mut App, engine: Engine, order: &str) -> (i64, i64) {
    app.run(&format!(
        "DROP TABLE IF EXISTS orders_outbox, payments_outbox;
         CREATE TABLE orders_outbox (id CHAR(3), aggregate_type VARCHAR(64), aggregate_id VARCHAR(64),
           event_type VARCHAR(64), payload JSON) ENGINE = {engine:?};
         CREATE TABLE payments_outbox (number BIGINT AUTO_INCREMENT PRIMARY KEY, aggregate_id VARCHAR(64),
           event_type VARCHAR(64), data LONGTEXT) ENGINE = {engine:?}"
    ));
    let before = server_time_ms(app);
    app.begin();
    app.run(&format!(
        "INSERT INTO orders VALUES ('{order}', 12.50, 'new');
         INSERT INTO orders_outbox VALUES ('e-1', 'Order', '{order}', 'created', '{TOLD}');
         INSERT INTO payments_outbox (aggregate_id, event_type, data) VALUES ('{order}', 'asked', '{TOLD}')"
    ));
    app.commit();
    let after = server_time_ms(app);
    app.begin();
    app.run(&format!(
        "INSERT INTO orders_outbox VALUES ('e-2', 'Order', '{order}', 'created', '\"rolled back\"')"
    ));
    app.rollback();
    app.run(&format!("UPDATE orders SET note = 'paid' WHERE id = '{order}'"));
    app.run(&format!("DELETE FROM orders WHERE id = '{order}'"));
    (before, after)
}

fn assert_two_outboxes_arrived(bed: &MysqlBed, app: &mut App, order: &str, committed_ms: RangeInclusive<i64>) {
    let of_order = |topic: &str| {
        let mut reader = bed.kafka.reader(&[topic.to_owned()]);
        reader.all();
        let mine = |text: Option<&str>| text.is_some_and(|text| text.contains(order));
        reader.records.retain(|record| mine(record.key_text()));
        reader.records
    };
    let header = |name: &str, text: &str| (name.to_owned(), Some(text.as_bytes().to_vec()));
    let created = of_order("orders.created");
    assert_eq!(created.len(), 1, "{created:?}");
    assert_eq!(created[0].key_text(), Some(order));
    // What the server stores as JSON it prints so; MariaDB stores the text.
    let printed = app.text(match bed.flavor() {
        Flavor::Mysql => r#"SELECT CAST(CAST('{"total" : 12.50, "items":[ ], "a":1, "a":2}' AS JSON) AS CHAR)"#,
        Flavor::Mariadb => r#"SELECT '{"total" : 12.50, "items":[ ], "a":1, "a":2}'"#,
    });
    assert_eq!(created[0].value_text(), Some(printed.as_str()));
    assert!(
        committed_ms.contains(&created[0].timestamp_ms),
        "{committed_ms:?} {created:?}"
    );
    assert_eq!(
        created[0].headers,
        [
            header("df-event-id", "e-1"),
            header("df-aggregate-type", "Order"),
            header("df-aggregate-id", order),
            header("df-event-type", "created"),
        ]
    );

    let asked = of_order("payments.asked");
    assert_eq!(asked.len(), 1, "{asked:?}");
    assert_eq!(asked[0].value_text(), Some(TOLD));
    assert_eq!(asked[0].timestamp_ms, created[0].timestamp_ms);
    // No column is named so: the id is of the place in the log.
    let id = asked[0].header("df-event-id").expect("an event id");
    assert!(id.ends_with("/shop.payments_outbox/1"), "{id}");

    let rows: Vec<Value> = of_order("events.default")
        .iter()
        .map(|record| serde_json::from_slice(record.value.as_deref().unwrap()).unwrap())
        .collect();
    let operations: Vec<&str> = rows.iter().map(|row| row["op"].as_str().unwrap()).collect();
    assert_eq!(operations, ["c", "u", "d"]);
    assert_eq!(rows[0]["before"], Value::Null);
    assert_eq!(rows[0]["after"], json!({"id": order, "total": "12.50", "note": "new"}));
    assert_eq!(rows[0]["source"]["table"], "orders");
    assert_eq!(rows[0]["ts_ms"], created[0].timestamp_ms);
    assert_eq!(rows[1]["before"]["note"], "new");
    assert_eq!(rows[1]["after"]["note"], "paid");
    assert_eq!(rows[2]["before"]["id"], order);
    assert_eq!(rows[2]["after"], Value::Null);
}

over_each!(an_event_comes_whole_and_what_is_rolled_back_does_not_come);
fn an_event_comes_whole_and_what_is_rolled_back_does_not_come(db: Db) {
    let bed = Bed::new(db);
    let mut relay = bed.relay(&ANY_OUTBOX.replace("'<topic>'", "'<name>.${event_type}', default_topic: '<topic>'"));
    relay.start();
    relay.wait_ready();
    let mut app = bed.app();
    let before = server_time_ms(&mut app);
    app.begin();
    let event = Event::of(r#"{"n": 1}"#).aggregate_type("Order").key("o-1");
    app.emit(&event.clone().event_type("created").id("e-1"));
    app.emit(&Event::of("[]"));
    app.commit();
    let after = server_time_ms(&mut app);
    app.begin();
    app.emit(&Event::of(r#""rolled back""#).event_type("created"));
    app.rollback();
    app.emit(&event.event_type("paid"));
    relay.wait_published(3);

    let mut reader = bed.reader(&["created", "events", "paid"]);
    let records = reader.exactly(3);
    let of = |topic: &str| records.iter().find(|record| record.topic == bed.topic(topic)).unwrap();
    let created = of("created");
    assert_eq!(created.key_text(), Some("o-1"));
    assert_eq!(created.value_text(), Some(r#"{"n": 1}"#));
    let header = |name: &str, text: &str| (name.to_owned(), Some(text.as_bytes().to_vec()));
    assert_eq!(
        created.headers,
        [
            header("df-event-id", "e-1"),
            header("df-aggregate-type", "Order"),
            header("df-aggregate-id", "o-1"),
            header("df-event-type", "created"),
        ]
    );
    // MariaDB notes whole seconds.
    let before = if db == Db::Mariadb {
        before / 1000 * 1000
    } else {
        before
    };
    assert!(
        (before..=after).contains(&created.timestamp_ms),
        "{before} {after} {created:?}"
    );
    // Without fields there are no headers but the id, which is derived, and no key.
    let bare = of("events");
    assert_eq!((bare.key_text(), bare.value_text()), (None, Some("[]")));
    let names: Vec<&str> = bare.headers.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["df-event-id"]);
    assert_eq!(of("paid").key_text(), Some("o-1"));
    assert_ne!(of("paid").header("df-event-id"), bare.header("df-event-id"));
}

/// The clock of the server, in ms since 1970.
fn server_time_ms(app: &mut App) -> i64 {
    let text = app.text(match app {
        App::Postgres(_) => "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint::text",
        App::Mysql(_) => "SELECT CAST(FLOOR(UNIX_TIMESTAMP(SYSDATE(6)) * 1000) AS CHAR)",
    });
    text.parse().expect("a number")
}
