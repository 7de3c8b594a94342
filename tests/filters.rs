//! Which changes of ordinary tables go on, and where to.

use crate::support::kafka::Record;
use crate::support::relay::Relay;
use crate::support::{Bed, Db, Event, TestBed, over_each};

const PIPELINE: &str = "
apiVersion: tailpost/v1
kind: Pipeline
metadata: {name: <name>}
spec:
  source: {type: <type>, config: {<source>, tables: ['<schema>.orders', '<schema>.items'], outbox: {<outbox>}}}
  processors:
    - {type: filter, <filter>}
    - {type: outbox, topic: '<topic>', raw_payload: true}
  sinks:
    - {type: kafka, config: {id: k1, brokers: '<brokers>', topic: '<topic>', key: '${source.table} ${op} ${id}'}}
";

fn started(bed: &Bed, filter: &str) -> Relay {
    bed.kafka.create_topic(&bed.events(), 1, &[]);
    let mut app = bed.app();
    app.run(
        "CREATE TABLE orders (id INT PRIMARY KEY, status VARCHAR(20), total DECIMAL(10, 2));
         CREATE TABLE items (id INT PRIMARY KEY, status VARCHAR(20))",
    );
    if bed.db() == Db::Postgres {
        // As MySQL has it: the old row of a DELETE is in the log.
        app.run("ALTER TABLE items REPLICA IDENTITY FULL");
    }
    let mut relay = bed.relay(&PIPELINE.replace("<filter>", filter));
    relay.start();
    relay.wait_ready();
    relay
}

/// Keys tell what arrived; an outbox event has its aggregate's id.
fn keys(records: &[Record]) -> Vec<&str> {
    records
        .iter()
        .map(|record| record.key_text().unwrap_or("none"))
        .collect()
}

/// Eight changes, and an outbox event.
fn write(bed: &Bed) {
    let mut app = bed.app();
    app.run(
        "INSERT INTO orders VALUES (1, 'placed', 100), (2, 'draft', 5), (3, NULL, 7.5);
         INSERT INTO items VALUES (1, 'draft');
         UPDATE orders SET status = 'paid' WHERE id = 1;
         UPDATE orders SET status = 'placed' WHERE id = 2;
         DELETE FROM items;
         INSERT INTO orders VALUES (4, 'placed', 99.99)",
    );
    app.emit(&Event::of("1").key("event"));
}

const WRITTEN: usize = 9;

over_each!(changes_that_do_not_meet_the_conditions_are_counted_and_not_sent);
fn changes_that_do_not_meet_the_conditions_are_counted_and_not_sent(db: Db) {
    for (filter, expected) in [
        (
            "where: {status: {in: [placed, paid]}}",
            &["orders c 1", "orders u 1", "orders u 2", "orders c 4", "event"][..],
        ),
        (
            "tables: [orders], where: {status: {ne: draft}}, ops: [insert]",
            &[
                "orders c 1",
                "orders c 3",
                "items c 1",
                "items d 1",
                "orders c 4",
                "event",
            ],
        ),
        (
            "tables: [orders], where: {total: {gte: 100}}",
            &["orders c 1", "items c 1", "orders u 1", "items d 1", "event"],
        ),
        (
            "tables: ['<schema>.orders'], where: {status: {exists: true, regex: 'p.*'}, source.table: {eq: orders}}",
            &[
                "orders c 1",
                "items c 1",
                "orders u 1",
                "orders u 2",
                "items d 1",
                "orders c 4",
                "event",
            ],
        ),
        ("ops: [truncate], outboxes: true", &[]),
    ] {
        let bed = Bed::new(db);
        let mut relay = started(&bed, filter);
        write(&bed);
        relay.wait_settled(WRITTEN as u64);
        assert_eq!(relay.skipped("filtered"), (WRITTEN - expected.len()) as u64, "{filter}");
        let mut reader = bed.reader(&["events"]);
        let records = reader.exactly(expected.len());
        assert_eq!(keys(records), expected, "{filter}");
    }
}

/// The value of a column that is not in the log may be one to keep.
#[test]
fn what_postgresql_does_not_log_is_kept() {
    let bed = Bed::Postgres(TestBed::new());
    bed.kafka.create_topic(&bed.events(), 1, &[]);
    let mut app = bed.app();
    app.run(
        "CREATE TABLE orders (id INT PRIMARY KEY, status TEXT, doc TEXT);
         ALTER TABLE orders ALTER doc SET STORAGE EXTERNAL;
         CREATE TABLE items (id INT PRIMARY KEY)",
    );
    let mut relay = bed.relay(&PIPELINE.replace("<filter>", "where: {doc: {regex: 'y+'}}"));
    relay.start();
    relay.wait_ready();
    app.run(
        "INSERT INTO orders VALUES (1, 'a', repeat('x', 10000)), (2, 'a', repeat('y', 10000));
         UPDATE orders SET status = 'b';
         DELETE FROM orders WHERE id = 1;
         INSERT INTO orders VALUES (3, 'c', 'x')",
    );
    relay.wait_settled(6);
    assert_eq!(relay.skipped("filtered"), 2);
    let mut reader = bed.reader(&["events"]);
    let records = reader.exactly(4);
    assert_eq!(keys(records), ["orders c 2", "orders u 1", "orders u 2", "orders d 1"]);
}

const ROUTED: &str = "
apiVersion: tailpost/v1
kind: Pipeline
metadata: {name: <name>}
spec:
  source: {type: <type>, config: {<source>, tables: ['<schema>.orders', '<schema>.items']}}
  sinks:
    - type: kafka
      config: {id: k1, brokers: '<brokers>', topic: '<name>.${source.table}.${op}.${region}', key: '${source.db}/${source.schema}/${source.name}/${id}'}
";

over_each!(a_sink_s_templates_take_the_table_the_operation_and_columns);
fn a_sink_s_templates_take_the_table_the_operation_and_columns(db: Db) {
    let bed = Bed::new(db);
    let mut app = bed.app();
    app.run(
        "CREATE TABLE orders (id INT PRIMARY KEY, region VARCHAR(20));
         CREATE TABLE items (id INT, region VARCHAR(20), PRIMARY KEY (id, region))",
    );
    let mut relay = bed.relay(ROUTED);
    relay.start();
    relay.wait_ready();
    app.run(
        "INSERT INTO orders VALUES (1, 'eu'), (2, 'us');
         UPDATE orders SET region = 'us' WHERE id = 1;
         INSERT INTO items VALUES (5, 'eu');
         DELETE FROM items",
    );
    relay.wait_settled(5);
    let mut reader = bed.reader(&["orders.c.eu", "orders.c.us", "orders.u.us", "items.c.eu", "items.d.eu"]);
    let mut found: Vec<String> = reader
        .exactly(5)
        .iter()
        .map(|record| {
            let topic = record.topic.strip_prefix(&format!("{}.", bed.name)).unwrap();
            format!("{topic} {}", record.key_text().unwrap())
        })
        .collect();
    found.sort_unstable();
    let place = format!("{}/{}/src1", bed.name, bed.fill("<schema>"));
    assert_eq!(
        found,
        [
            format!("items.c.eu {place}/5"),
            format!("items.d.eu {place}/5"),
            format!("orders.c.eu {place}/1"),
            format!("orders.c.us {place}/2"),
            format!("orders.u.us {place}/1"),
        ]
    );
}
