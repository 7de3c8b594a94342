//! Changes that the log does not hold as whole rows: parts of rows, differences of documents, statements. What could
//! become an event with something missing halts instead, behind everything that stands before it.

use serde_json::{Value, json};

use super::{OUTBOXES, TABLES, bed, envelopes, keys, only, relayed};
use crate::support::mysql::Script;
use crate::support::mysql_bed::MysqlBed;
use crate::support::{DEADLINE, Db, over_each};

/// The values that were sent up to now.
fn sent(bed: &MysqlBed) -> Vec<String> {
    let mut reader = bed.reader(&["events"]);
    let values = reader
        .all()
        .iter()
        .map(|record| record.value_text().unwrap().to_owned());
    values.collect()
}

/// `binlog_row_image` of one connection of the application; the server's own is FULL.
fn an_outbox_row_that_the_log_holds_in_part_halts_and_is_no_event(db: Db) {
    for (image, insert, column) in [
        (
            "MINIMAL",
            "INSERT INTO t_outbox (id, payload) VALUES (9, 'in part')",
            "aggregate_id",
        ),
        (
            "NOBLOB",
            "INSERT INTO t_outbox (aggregate_id) VALUES ('in part')",
            "payload",
        ),
    ] {
        let bed = bed(db);
        let mut admin = bed.admin();
        admin
            .run(&format!(
                "CREATE TABLE t_outbox (id INT PRIMARY KEY DEFAULT 0, aggregate_id VARCHAR(20) DEFAULT 'k', payload TEXT)
                     ENGINE = BLACKHOLE;
                 INSERT INTO t_outbox VALUES (1, 'whole', 'before');
                 SET SESSION binlog_row_image = '{image}';
                 INSERT INTO t_outbox VALUES (2, 'whole', 'all columns'), (3, 'whole', 'all columns');
                 {insert};
                 SET SESSION binlog_row_image = 'FULL';
                 INSERT INTO t_outbox VALUES (4, 'whole', 'behind')"
            ))
            .unwrap();
        let mut relay = bed.relay(OUTBOXES);
        let line = relay.fails();
        let table = format!("`{}.t_outbox`", bed.name);
        for text in ["binlog_row_image", &format!("`{column}`"), &table, "--accept-gap"] {
            assert!(line.contains(text), "{image}: `{text}` is not in {line}");
        }
        let before = ["before", "all columns", "all columns"];
        assert_eq!(sent(&bed), before, "{image}");
        // The operator's word passes over it alone.
        relay.start_with(&["--accept-gap"]);
        relay.wait_settled(2);
        assert_eq!(relay.skipped("invalid"), 1, "{image}");
        relay.sigterm();
        assert_eq!(relay.wait_exit(DEADLINE), 0);
        assert_eq!(sent(&bed), [&before[..], &["behind"]].concat(), "{image}");
    }
}

over_each!(an_outbox_row_that_the_log_holds_in_part_halts_and_is_no_event: mysql, mariadb);

fn an_ordinary_row_that_the_log_holds_in_part_has_only_what_the_log_has(db: Db) {
    let bed = bed(db);
    let mut admin = bed.admin();
    admin
        .run(
            "CREATE TABLE t (id INT PRIMARY KEY, a INT DEFAULT 1, b INT);
             SET SESSION binlog_row_image = 'MINIMAL';
             INSERT INTO t (id, b) VALUES (1, NULL);
             UPDATE t SET a = 2;
             DELETE FROM t",
        )
        .unwrap();
    let records = relayed(&bed, TABLES, 3);
    let shown: Vec<Value> = envelopes(&records)
        .iter()
        .map(|value| json!([value["op"], value["before"], value["after"]]))
        .collect();
    assert_eq!(
        shown,
        [
            json!(["c", null, {"id": 1, "b": null}]),
            // The key is as it was.
            json!(["u", {"id": 1}, {"id": 1, "a": 2}]),
            json!(["d", {"id": 1}, null]),
        ]
    );
    assert_eq!(keys(&records), [Some(r#"{"id":1}"#); 3]);
}

over_each!(an_ordinary_row_that_the_log_holds_in_part_has_only_what_the_log_has: mysql, mariadb);

/// `binlog_row_value_options = PARTIAL_JSON` of one connection.
#[test]
fn differences_of_json_documents_halt_an_ordinary_table_and_are_no_matter_to_an_outbox() {
    let bed = bed(Db::Mysql);
    let mut admin = bed.admin();
    admin
        .run(
            r#"CREATE TABLE t (id INT PRIMARY KEY, document JSON);
               CREATE TABLE t_outbox (id INT PRIMARY KEY, meta JSON, payload JSON, other JSON);
               INSERT INTO t VALUES (1, JSON_OBJECT('a', REPEAT('x', 100), 'b', 1));
               INSERT INTO t_outbox SELECT id, NULL, document, document FROM t;
               INSERT INTO t_outbox SELECT id + 1, document, NULL, '[]' FROM t;
               SET SESSION binlog_row_value_options = 'PARTIAL_JSON';
               UPDATE t_outbox SET payload = JSON_SET(payload, '$.b', 2), other = JSON_ARRAY(id);
               SET SESSION binlog_row_image = 'MINIMAL';
               UPDATE t_outbox SET meta = JSON_SET(meta, '$.b', 2), other = JSON_SET(other, '$.b', 3), id = id + 10;
               SET SESSION binlog_row_image = 'FULL';
               INSERT INTO t_outbox VALUES (2, NULL, '"behind"', NULL);
               UPDATE t SET document = JSON_SET(document, '$.b', 2)"#,
        )
        .unwrap();
    admin
        .run(r#"SET SESSION binlog_row_value_options = ''; INSERT INTO t VALUES (2, '"behind"')"#)
        .unwrap();
    let mut relay = bed.relay(&only("t"));
    let line = relay.fails();
    let table = format!("`{}.t`", bed.name);
    for text in ["PARTIAL_JSON", "binlog_row_value_options", &table, "--accept-gap"] {
        assert!(line.contains(text), "`{text}` is not in {line}");
    }
    assert_eq!(sent(&bed).len(), 1);
    relay.start_with(&["--accept-gap"]);
    relay.wait_settled(2);
    assert_eq!(relay.skipped("invalid"), 1);
    relay.sigterm();
    assert_eq!(relay.wait_exit(DEADLINE), 0);
    let values = sent(&bed);
    assert_eq!(values.len(), 2);
    assert!(values[1].contains("behind"), "{values:?}");

    let mut relay = bed.relay(&OUTBOXES.replace("'<topic>'", "'<name>.outbox'"));
    relay.start();
    relay.wait_settled(7);
    assert_eq!(relay.skipped("outbox_update"), 4);
    let mut reader = bed.reader(&["outbox"]);
    assert_eq!(reader.exactly(3)[2].value_text(), Some("\"behind\""));
}

/// Such a connection's other UPDATEs are logged as the same kind of event, with whole rows.
#[test]
fn only_differences_of_documents_are_unreadable_where_the_log_may_have_them() {
    let bed = bed(Db::Mysql);
    bed.admin()
        .run(
            r#"CREATE TABLE plain (id INT PRIMARY KEY, v VARCHAR(20));
               CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20), first JSON, document JSON);
               INSERT INTO plain VALUES (1, 'a');
               INSERT INTO t VALUES (1, 'a', NULL, JSON_OBJECT('z', 0, 'x', REPEAT('x', 20))), (2, 'b', '[]', NULL);
               SET SESSION binlog_row_value_options = 'PARTIAL_JSON';
               UPDATE plain SET v = 'no document';
               UPDATE t SET v = 'another column' ORDER BY id;
               UPDATE t SET first = '[1]', document = JSON_OBJECT('z', id, 'y', REPEAT('y', 20)) WHERE id = 1;
               UPDATE t SET v = 'a part', document = JSON_SET(document, '$.z', 3) ORDER BY id;
               UPDATE t SET v = 'behind' WHERE id = 1;
               SET SESSION binlog_row_image = 'MINIMAL';
               UPDATE t SET first = '[2]' WHERE id = 1;
               UPDATE t SET document = '{"z": 4}' WHERE id = 2"#,
        )
        .unwrap();
    let mut relay = bed.relay(TABLES);
    let line = relay.fails();
    for text in [
        "PARTIAL_JSON",
        "`document`",
        &format!("`{}.t`", bed.name),
        "--accept-gap",
    ] {
        assert!(line.contains(text), "`{text}` is not in {line}");
    }
    relay.start_with(&["--accept-gap"]);
    relay.wait_settled(5);
    assert_eq!(relay.skipped("invalid"), 1);
    relay.sigterm();
    assert_eq!(relay.wait_exit(DEADLINE), 0);
    let mut reader = bed.reader(&["events"]);
    let values = envelopes(reader.exactly(11));
    let updated: Vec<Value> = values[3..].iter().map(|value| value["after"].clone()).collect();
    let [x, y] = ["x", "y"].map(|letter| letter.repeat(20));
    assert_eq!(
        updated,
        [
            json!({"id": 1, "v": "no document"}),
            json!({"id": 1, "v": "another column", "first": null, "document": {"x": x, "z": 0}}),
            json!({"id": 2, "v": "another column", "first": [], "document": null}),
            json!({"id": 1, "v": "another column", "first": [1], "document": {"y": y, "z": 1}}),
            // Of the statement's first row the log has a difference alone.
            json!({"id": 2, "v": "a part", "first": [], "document": null}),
            json!({"id": 1, "v": "behind", "first": [1], "document": {"y": y, "z": 3}}),
            json!({"id": 1, "first": [2]}),
            json!({"id": 2, "document": {"z": 4}}),
        ]
    );
}

/// With `binlog_format = MIXED` a statement is logged as rows only where it could do something else another time.
fn what_stands_before_a_halt_is_sent_once_over_any_number_of_starts(db: Db) {
    let bed = bed(db);
    bed.admin()
        .run(
            "CREATE TABLE t_outbox (aggregate_id VARCHAR(36), payload VARCHAR(20));
             INSERT INTO t_outbox VALUES ('k', 'before');
             SET SESSION binlog_format = 'MIXED';
             BEGIN;
             INSERT INTO t_outbox VALUES (UUID(), 'as a row');
             INSERT INTO t_outbox VALUES ('k', 'as a statement');
             INSERT INTO t_outbox VALUES (UUID(), 'behind');
             COMMIT",
        )
        .unwrap();
    let mut relay = bed.relay(OUTBOXES);
    for _ in 0..3 {
        let line = relay.fails();
        assert!(line.contains("binlog_format"), "{line}");
        // Of a transaction that is not over nothing is sent yet.
        assert_eq!(sent(&bed), ["before"]);
    }
    relay.start_with(&["--accept-gap"]);
    relay.wait_settled(2);
    relay.sigterm();
    assert_eq!(relay.wait_exit(DEADLINE), 0);
    assert_eq!(sent(&bed), ["before", "as a row", "behind"]);
}

over_each!(what_stands_before_a_halt_is_sent_once_over_any_number_of_starts: mysql, mariadb);
