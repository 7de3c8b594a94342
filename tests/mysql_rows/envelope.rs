//! Rows of ordinary tables in the native envelope: what it says of the change and of its place, and the record's key.

use mysql::prelude::Queryable;
use serde_json::{Value, json};

use super::{TABLES, after, bed, envelopes, keys, relayed, run, version};
use crate::support::mysql::{Flavor, Script};
use crate::support::{Db, over_each};

fn each_operation_has_its_envelope_key_and_place(db: Db) {
    let bed = bed(db);
    run(
        &bed,
        "CREATE TABLE t (id INT PRIMARY KEY, note VARCHAR(20));
         INSERT INTO t VALUES (1, 'a'), (2, 'b');
         UPDATE t SET note = NULL;
         UPDATE t SET id = 3 WHERE id = 2;
         REPLACE INTO t VALUES (3, 'replaced');
         DELETE FROM t;
         TRUNCATE t;
         TRUNCATE TABLE t",
    );
    let records = relayed(&bed, TABLES, 10);
    let all = envelopes(&records);
    let shown: Vec<Value> = all
        .iter()
        .map(|value| json!([value["op"], value["before"], value["after"], value["source"]["row"]]))
        .collect();
    assert_eq!(
        shown,
        [
            json!(["c", null, {"id": 1, "note": "a"}, 0]),
            json!(["c", null, {"id": 2, "note": "b"}, 1]),
            json!(["u", {"id": 1, "note": "a"}, {"id": 1, "note": null}, 0]),
            json!(["u", {"id": 2, "note": "b"}, {"id": 2, "note": null}, 1]),
            json!(["u", {"id": 2, "note": null}, {"id": 3, "note": null}, 0]),
            json!(["u", {"id": 3, "note": null}, {"id": 3, "note": "replaced"}, 0]),
            json!(["d", {"id": 1, "note": null}, null, 0]),
            json!(["d", {"id": 3, "note": "replaced"}, null, 1]),
            json!(["t", null, null, 0]),
            json!(["t", null, null, 0]),
        ]
    );
    let id = |id: &str| Some(format!(r#"{{"id":{id}}}"#));
    let expected = ["1", "2", "1", "2", "3", "3", "1", "3"].map(id);
    let expected = expected.iter().map(Option::as_deref).chain([None, None]);
    assert_eq!(keys(&records), expected.collect::<Vec<_>>());

    let server_id: u64 = bed.app().query_first("SELECT @@server_id").unwrap().unwrap();
    let origin = match bed.flavor() {
        Flavor::Mysql => "SELECT @@GLOBAL.server_uuid",
        Flavor::Mariadb => "SELECT CONCAT(@@gtid_domain_id, '-', @@server_id, '-')",
    };
    let origin: String = bed.app().query_first(origin).unwrap().unwrap();
    let mut pos = 0;
    let mut gtids = Vec::new();
    for value in &all {
        let source = &value["source"];
        assert_eq!(source["connector"], bed.flavor().name());
        assert_eq!(source["name"], "src1");
        assert_eq!(source["db"], bed.name.as_str());
        assert_eq!(source["table"], "t");
        assert_eq!(source["server_id"], server_id);
        let gtid = source["gtid"].as_str().unwrap();
        assert!(gtid.starts_with(&origin), "{gtid} is not of {origin}");
        gtids.push(gtid.to_owned());
        assert!(source["file"].as_str().unwrap().starts_with("binlog."), "{source}");
        let before = std::mem::replace(&mut pos, source["pos"].as_u64().unwrap());
        // Rows of one event end together.
        assert!(before < pos || (before == pos && source["row"] == 1), "{source}");
        assert!(value["ts_ms"].is_u64() && value["ts_ms"] == source["ts_ms"]);
    }
    gtids.dedup();
    assert_eq!(gtids.len(), 7, "a transaction for each statement: {gtids:?}");
}

over_each!(each_operation_has_its_envelope_key_and_place: mysql, mariadb);

fn the_commits_time_is_the_servers(db: Db) {
    let bed = bed(db);
    let mut app = bed.app();
    let now = "SELECT CAST(UNIX_TIMESTAMP(NOW(6)) * 1000 AS UNSIGNED)";
    app.query_drop("CREATE TABLE t (id INT PRIMARY KEY)").unwrap();
    let before: i64 = app.query_first(now).unwrap().unwrap();
    for id in 0..20 {
        app.query_drop(format!("INSERT INTO t VALUES ({id})")).unwrap();
    }
    let after: i64 = app.query_first(now).unwrap().unwrap();
    let records = relayed(&bed, TABLES, 20);
    let times: Vec<i64> = envelopes(&records)
        .iter()
        .map(|value| value["ts_ms"].as_i64().unwrap())
        .collect();
    for (time, record) in times.iter().zip(&records) {
        assert_eq!(*time, record.timestamp_ms);
        match bed.flavor() {
            Flavor::Mysql => assert!((before..=after).contains(time), "{before} {time} {after}"),
            // Its log has whole seconds, in which the statement began.
            Flavor::Mariadb => assert!(time % 1000 == 0 && (before / 1000..=after / 1000).contains(&(time / 1000))),
        }
    }
    if bed.flavor() == Flavor::Mysql {
        assert!(
            times.iter().any(|time| time % 1000 != 0),
            "only whole seconds: {times:?}"
        );
    }
}

over_each!(the_commits_time_is_the_servers: mysql, mariadb);

fn a_key_is_made_of_the_primary_keys_columns(db: Db) {
    let bed = bed(db);
    run(
        &bed,
        r#"CREATE TABLE composite (b VARCHAR(10), a BIGINT UNSIGNED, note INT, c DECIMAL(10,2), PRIMARY KEY (c, a, b));
         CREATE TABLE bare (a INT, UNIQUE KEY (a));
         CREATE TABLE prefix (a VARCHAR(20), b INT, PRIMARY KEY (a(2)));
         CREATE TABLE odd (`we"ird co\l.é` INT PRIMARY KEY);
         CREATE TABLE bytes (id BINARY(16) PRIMARY KEY);
         INSERT INTO composite VALUES ('é"', 18446744073709551615, 1, -0.50);
         UPDATE composite SET note = 2;
         DELETE FROM composite;
         INSERT INTO bare VALUES (1);
         INSERT INTO prefix VALUES ('abcdef', 1);
         INSERT INTO odd VALUES (1);
         INSERT INTO bytes VALUES (X'00112233445566778899AABBCCDDEE00')"#,
    );
    let records = relayed(&bed, TABLES, 7);
    let composite = Some(r#"{"b":"é\"","a":18446744073709551615,"c":"-0.50"}"#);
    assert_eq!(
        keys(&records),
        [
            composite,
            composite,
            composite,
            None,
            Some(r#"{"a":"abcdef"}"#),
            Some(r#"{"we\"ird co\\l.é":1}"#),
            Some(r#"{"id":"\\x00112233445566778899aabbccddee00"}"#),
        ]
    );
}

over_each!(a_key_is_made_of_the_primary_keys_columns: mysql, mariadb);

/// A functional index is a hidden column of its table, and so is the key that the server makes for a table without one.
#[test]
fn columns_that_the_server_made_by_itself_do_no_harm() {
    let bed = bed(Db::Mysql);
    if version(&bed) < 80_030 {
        return; // no key of the server's own
    }
    bed.admin()
        .run("SET SESSION sql_generate_invisible_primary_key = ON; CREATE TABLE keyless (note VARCHAR(20))")
        .unwrap();
    run(
        &bed,
        "CREATE TABLE indexed (id INT PRIMARY KEY, note VARCHAR(20), INDEX ((UPPER(note))), INDEX ((id + 1)));
         INSERT INTO indexed VALUES (1, 'a');
         INSERT INTO keyless VALUES ('b')",
    );
    let records = relayed(&bed, TABLES, 2);
    assert_eq!(
        after(&records),
        [json!({"id": 1, "note": "a"}), json!({"my_row_id": 1, "note": "b"})]
    );
    assert_eq!(keys(&records), [Some(r#"{"id":1}"#), Some(r#"{"my_row_id":1}"#)]);
}

/// MariaDB keeps old rows of such a table in itself, and logs that as it does all else.
#[test]
fn a_system_versioned_tables_changes_arrive_as_they_were_logged() {
    let bed = bed(Db::Mariadb);
    run(
        &bed,
        "CREATE TABLE t (id INT PRIMARY KEY, note VARCHAR(20)) WITH SYSTEM VERSIONING;
         INSERT INTO t VALUES (1, 'a');
         UPDATE t SET note = 'b';
         DELETE FROM t",
    );
    let records = relayed(&bed, TABLES, 4);
    let shown: Vec<Value> = envelopes(&records)
        .iter()
        .map(|value| json!([value["op"], value["before"]["note"], value["after"]["note"]]))
        .collect();
    assert_eq!(
        shown,
        [
            json!(["c", null, "a"]),
            json!(["u", "a", "b"]),
            // What it was before.
            json!(["c", null, "a"]),
            // Deleted, which only its last moment says.
            json!(["u", "b", "b"]),
        ]
    );
    assert!(keys(&records)[0].unwrap().contains("row_end"), "{:?}", keys(&records));
    let last = envelopes(&records).pop().unwrap();
    assert_ne!(last["before"]["row_end"], last["after"]["row_end"], "{last}");
}

/// One record with the new key, and the old one in its old row.
fn an_update_of_the_key_is_one_change(db: Db) {
    let bed = bed(db);
    run(
        &bed,
        "CREATE TABLE t (id INT PRIMARY KEY); INSERT INTO t VALUES (1); UPDATE t SET id = 2",
    );
    let records = relayed(&bed, TABLES, 2);
    assert_eq!(keys(&records), [Some(r#"{"id":1}"#), Some(r#"{"id":2}"#)]);
    let update = &envelopes(&records)[1];
    assert_eq!(
        json!([update["op"], update["before"], update["after"]]),
        json!(["u", {"id": 1}, {"id": 2}])
    );
}

over_each!(an_update_of_the_key_is_one_change: mysql, mariadb);

fn rows_that_go_with_their_partition_are_no_changes(db: Db) {
    let bed = bed(db);
    // It takes the right to drop the table.
    bed.admin()
        .run(
            "CREATE TABLE t (id INT PRIMARY KEY) PARTITION BY RANGE (id)
                 (PARTITION a VALUES LESS THAN (10), PARTITION b VALUES LESS THAN (20), PARTITION c VALUES LESS THAN (30));
             INSERT INTO t VALUES (1), (11), (21);
             ALTER TABLE t TRUNCATE PARTITION a;
             ALTER TABLE t DROP PARTITION b;
             TRUNCATE TABLE t",
        )
        .unwrap();
    let records = relayed(&bed, TABLES, 4);
    let operations: Vec<Value> = envelopes(&records).iter().map(|value| value["op"].clone()).collect();
    assert_eq!(operations, ["c", "c", "c", "t"]);
}

over_each!(rows_that_go_with_their_partition_are_no_changes: mysql, mariadb);
