//! The keys of ordinary tables' rows, where the replica identity is not the primary key.

use serde_json::{Value, json};

use crate::rows::{pipeline, relayed};
use crate::support::{DEADLINE, TestBed};

fn keys(envelopes: &[(Option<String>, String)]) -> Vec<Option<&str>> {
    envelopes.iter().map(|(key, _)| key.as_deref()).collect()
}

/// What people set who want the old row must not cost them the order of a row's changes.
#[test]
fn a_table_with_whole_old_rows_has_its_primary_key_as_key() {
    let bed = TestBed::new();
    let envelopes = relayed(
        &bed,
        "CREATE TABLE t (a text, id int, PRIMARY KEY (id) INCLUDE (a));
         ALTER TABLE t REPLICA IDENTITY FULL;
         CREATE TABLE tparts (id int PRIMARY KEY, a text) PARTITION BY RANGE (id);
         CREATE TABLE part1 PARTITION OF tparts FOR VALUES FROM (0) TO (10);
         ALTER TABLE tparts REPLICA IDENTITY FULL; ALTER TABLE part1 REPLICA IDENTITY FULL;
         CREATE TABLE tnone (id int, a text);
         ALTER TABLE tnone REPLICA IDENTITY FULL",
        &[
            "INSERT INTO t VALUES ('a', 1)",
            "UPDATE t SET a = 'b'",
            "UPDATE t SET id = 2",
            "DELETE FROM t",
            "INSERT INTO tparts VALUES (3, 'c')",
            "DELETE FROM tparts",
            "INSERT INTO tnone VALUES (4, 'd')",
        ],
        7,
    );
    assert_eq!(
        keys(&envelopes),
        [
            Some(r#"{"id":1}"#),
            Some(r#"{"id":1}"#),
            Some(r#"{"id":2}"#),
            Some(r#"{"id":2}"#),
            Some(r#"{"id":3}"#),
            Some(r#"{"id":3}"#),
            None,
        ]
    );
    let delete: Value = serde_json::from_str(&envelopes[3].1).unwrap();
    assert_eq!(delete["before"], json!({"a": "b", "id": 2}));
}

#[test]
fn the_key_of_whole_old_rows_follows_the_primary_key() {
    let bed = TestBed::new();
    let mut app = bed.app();
    app.batch_execute("CREATE TABLE t (a text, id int PRIMARY KEY); ALTER TABLE t REPLICA IDENTITY FULL")
        .unwrap();
    let mut relay = bed.relay(&pipeline());
    relay.start();
    relay.wait_ready();
    let steps = [
        ("SELECT", "INSERT INTO t VALUES ('a', 1)", Some(r#"{"id":1}"#)),
        (
            "ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (id, a)",
            "UPDATE t SET id = 2",
            Some(r#"{"a":"a","id":2}"#),
        ),
        (
            "ALTER TABLE t RENAME COLUMN id TO number",
            "UPDATE t SET a = 'b'",
            Some(r#"{"a":"b","number":2}"#),
        ),
        ("ALTER TABLE t DROP CONSTRAINT t_pkey", "UPDATE t SET a = 'c'", None),
        (
            "ALTER TABLE t ADD PRIMARY KEY (a)",
            "DELETE FROM t",
            Some(r#"{"a":"c"}"#),
        ),
    ];
    for (at, (alteration, change, _)) in steps.iter().enumerate() {
        app.batch_execute(alteration).unwrap();
        app.batch_execute(change).unwrap();
        // The database is asked while the table is still so.
        relay.wait_published(at as u64 + 1);
    }
    let mut reader = bed.reader(&["events"]);
    let found: Vec<_> = reader
        .exactly(steps.len())
        .iter()
        .map(|record| record.key_text())
        .collect();
    assert_eq!(found, steps.map(|(_, _, key)| key));
}

#[test]
fn a_table_with_whole_old_rows_that_is_made_later_has_its_key_too() {
    let bed = TestBed::new();
    let mut app = bed.app();
    app.batch_execute("CREATE TABLE t (id int PRIMARY KEY)").unwrap();
    let mut relay = bed.relay(&pipeline());
    relay.start();
    relay.wait_ready();
    app.batch_execute("CREATE TABLE tlater (b int, a int PRIMARY KEY); ALTER TABLE tlater REPLICA IDENTITY FULL")
        .unwrap();
    let publish = format!("ALTER PUBLICATION {} ADD TABLE tlater", bed.publication);
    bed.admin().batch_execute(&publish).unwrap();
    app.batch_execute("INSERT INTO t VALUES (1); INSERT INTO tlater VALUES (2, 3)")
        .unwrap();
    app.batch_execute("DELETE FROM tlater").unwrap();
    relay.wait_settled(3);
    // It is asked for over the connection that there is anyway: a role may be allowed no more.
    let connections = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                       AND backend_type = 'client backend' AND usename = $1";
    let role = bed.postgres.url.split(['/', ':']).nth(3).unwrap();
    let count: i64 = bed.admin().query_one(connections, &[&role]).unwrap().get(0);
    assert_eq!(count, 1, "{role}");
    let mut reader = bed.reader(&["events"]);
    let found: Vec<_> = reader
        .exactly(3)
        .iter()
        .map(|record| record.key_text().map(str::to_owned))
        .collect();
    let expected = [r#"{"id":1}"#, r#"{"a":3}"#, r#"{"a":3}"#].map(|key| Some(key.to_owned()));
    let (mut found, mut expected) = (found, expected.to_vec());
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
}

/// The catalog knows a table only as it is now.
#[test]
fn a_key_that_the_catalog_does_not_know_any_more_is_told_once() {
    let bed = TestBed::new();
    let mut app = bed.app();
    app.batch_execute(
        "CREATE TABLE trenamed (id int PRIMARY KEY); ALTER TABLE trenamed REPLICA IDENTITY FULL;
         CREATE TABLE tgone (id int PRIMARY KEY); ALTER TABLE tgone REPLICA IDENTITY FULL",
    )
    .unwrap();
    let mut relay = bed.relay(&pipeline());
    relay.start();
    relay.wait_ready();
    relay.sigterm();
    assert_eq!(relay.wait_exit(DEADLINE), 0);
    app.batch_execute("INSERT INTO trenamed VALUES (1); ALTER TABLE trenamed RENAME COLUMN id TO number")
        .unwrap();
    app.batch_execute("INSERT INTO tgone VALUES (1)").unwrap();
    app.batch_execute("ALTER TABLE trenamed ADD COLUMN note text; INSERT INTO trenamed VALUES (2)")
        .unwrap();
    app.batch_execute("ALTER TABLE trenamed RENAME COLUMN number TO ident; DROP TABLE tgone")
        .unwrap();
    relay.start();
    relay.wait_settled(3);
    let mut reader = bed.reader(&["events"]);
    assert!(reader.exactly(3).iter().all(|record| record.key.is_none()));
    let log = relay.log();
    let told = |table: &str| {
        let text = format!("public.{table}");
        let lines = log
            .lines()
            .filter(|line| line.contains("REPLICA IDENTITY FULL have no key"));
        lines.filter(|line| line.contains(&text)).count()
    };
    assert_eq!((told("trenamed"), told("tgone")), (1, 1), "{log}");
}

/// Debezium has all columns there.
#[test]
fn in_debezium_s_envelope_the_old_row_has_null_for_what_is_outside_of_its_identity() {
    let bed = TestBed::new();
    let mut app = bed.app();
    app.batch_execute("CREATE TABLE t (id int PRIMARY KEY, note text)")
        .unwrap();
    let mut relay = bed.relay(&pipeline().replace("topic: '<topic>'", "topic: '<topic>', envelope: debezium"));
    relay.start();
    relay.wait_ready();
    app.batch_execute("INSERT INTO t VALUES (1, 'a'); UPDATE t SET id = 2; DELETE FROM t")
        .unwrap();
    relay.wait_settled(3);
    let mut reader = bed.reader(&["events"]);
    let records = reader.exactly(3).iter();
    let before: Vec<Value> = records
        .map(|record| {
            let value: Value = serde_json::from_str(record.value_text().unwrap()).unwrap();
            value["payload"]["before"].clone()
        })
        .collect();
    assert_eq!(
        before,
        [
            Value::Null,
            json!({"id": 1, "note": null}),
            json!({"id": 2, "note": null})
        ]
    );
}

/// No record without its key, which would go to another partition than the rest of its row.
#[test]
fn a_delete_without_the_sink_s_key_is_invalid_until_the_log_has_it() {
    let bed = TestBed::new();
    let mut app = bed.app();
    app.batch_execute("CREATE TABLE t (id int PRIMARY KEY, customer text)")
        .unwrap();
    let pipeline = pipeline().replace("topic: '<topic>'", "topic: '<topic>', key: '${customer}'");
    let mut relay = bed.relay(&pipeline);
    relay.start();
    relay.wait_ready();
    app.batch_execute("INSERT INTO t VALUES (1, 'c')").unwrap();
    relay.wait_published(1);
    app.batch_execute("DELETE FROM t").unwrap();
    relay.wait_halted(&["errors.invalid", "`customer`", "REPLICA IDENTITY FULL"]);

    relay.rewrite(&bed.fill(&(pipeline + "  errors: {invalid: skip}\n")));
    relay.start();
    relay.wait_ready();
    app.batch_execute("ALTER TABLE t REPLICA IDENTITY FULL; INSERT INTO t VALUES (2, 'd')")
        .unwrap();
    app.batch_execute("DELETE FROM t").unwrap();
    relay.wait_settled(3);
    assert_eq!(relay.skipped("invalid"), 1);
    let mut reader = bed.reader(&["events"]);
    let keys: Vec<_> = reader.exactly(3).iter().map(|record| record.key_text()).collect();
    assert_eq!(keys, [Some("c"), Some("d"), Some("d")]);
}
