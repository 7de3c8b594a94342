//! Tables that change while their rows are in the log: each row is read as its table was when it was written, or not at
//! all.

use serde_json::{Value, json};

use super::{OUTBOXES, TABLES, after, bed, catch_up, envelopes, keys, only, relayed, run};
use crate::support::mysql::{Flavor, Script, connect};
use crate::support::mysql_bed::MysqlBed;
use crate::support::server::OwnServer;
use crate::support::{DEADLINE, Db, over_each};

/// Statements that change a table, and of those that write a row, its key and the row.
fn alterations() -> Vec<(&'static str, Option<(&'static str, Value)>)> {
    vec![
        ("CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR(20), b INT)", None),
        (
            "INSERT INTO t VALUES (1, 'a', 1)",
            Some((r#"{"id":1}"#, json!({"id": 1, "a": "a", "b": 1}))),
        ),
        ("ALTER TABLE t ADD COLUMN c DECIMAL(10, 2) DEFAULT 1.5", None),
        (
            "INSERT INTO t VALUES (2, 'b', NULL, -0.05)",
            Some((r#"{"id":2}"#, json!({"id": 2, "a": "b", "b": null, "c": "-0.05"}))),
        ),
        ("ALTER TABLE t ADD COLUMN first SMALLINT UNSIGNED FIRST", None),
        (
            "INSERT INTO t VALUES (65535, 3, 'c', 3, 0)",
            Some((
                r#"{"id":3}"#,
                json!({"first": 65535, "id": 3, "a": "c", "b": 3, "c": "0.00"}),
            )),
        ),
        ("ALTER TABLE t DROP COLUMN b", None),
        (
            "INSERT INTO t VALUES (NULL, 4, 'd', 4)",
            Some((r#"{"id":4}"#, json!({"first": null, "id": 4, "a": "d", "c": "4.00"}))),
        ),
        ("ALTER TABLE t RENAME COLUMN a TO renamed", None),
        (
            "INSERT INTO t VALUES (5, 5, 'e', 5)",
            Some((r#"{"id":5}"#, json!({"first": 5, "id": 5, "renamed": "e", "c": "5.00"}))),
        ),
        ("ALTER TABLE t MODIFY renamed VARCHAR(20) FIRST", None),
        (
            "INSERT INTO t VALUES ('f', 6, 6, 6)",
            Some((r#"{"id":6}"#, json!({"renamed": "f", "first": 6, "id": 6, "c": "6.00"}))),
        ),
        (
            "ALTER TABLE t DROP first, ADD first ENUM('no', 'yes') AFTER renamed, MODIFY c TEXT, MODIFY renamed VARBINARY(20)",
            None,
        ),
        (
            "INSERT INTO t VALUES (X'FF00', 'yes', 7, 'text')",
            Some((
                r#"{"id":7}"#,
                json!({"renamed": "\\xff00", "first": "yes", "id": 7, "c": "text"}),
            )),
        ),
        // The same columns, with other strings.
        (
            "ALTER TABLE t DROP first, ADD first ENUM('never', 'always') AFTER renamed",
            None,
        ),
        (
            "INSERT INTO t VALUES ('g', 'always', 8, 'text')",
            Some((
                r#"{"id":8}"#,
                json!({"renamed": "\\x67", "first": "always", "id": 8, "c": "text"}),
            )),
        ),
        (
            "ALTER TABLE t MODIFY id BIGINT UNSIGNED, DROP first, DROP PRIMARY KEY, ADD PRIMARY KEY (renamed, id)",
            None,
        ),
        (
            "INSERT INTO t VALUES ('', 18446744073709551615, 'last')",
            Some((
                r#"{"renamed":"\\x","id":18446744073709551615}"#,
                json!({"renamed": "\\x", "id": u64::MAX, "c": "last"}),
            )),
        ),
        ("DROP TABLE t", None),
        (
            "CREATE TABLE t (c INT, id VARCHAR(20) PRIMARY KEY) CHARACTER SET latin1",
            None,
        ),
        (
            "INSERT INTO t VALUES (1, 'é')",
            Some((r#"{"id":"é"}"#, json!({"c": 1, "id": "é"}))),
        ),
        ("RENAME TABLE t TO elsewhere.gone", None),
        ("CREATE TABLE t (c INT)", None),
        ("INSERT INTO t VALUES (2)", Some(("", json!({"c": 2})))),
    ]
}

/// Both while the table changes and afterwards, when it is another one long since.
fn a_row_is_read_by_the_columns_that_its_table_had_then(db: Db) {
    let bed = bed(db);
    let pipeline = TABLES.replace("<schema>.*", "<schema>.t");
    let mut live = bed.relay(&pipeline);
    live.start();
    live.wait_ready();
    let mut app = bed.app();
    app.run("SET NAMES utf8mb4").unwrap();
    let mut expected = Vec::new();
    for (statement, written) in alterations() {
        let statement = statement.replace("elsewhere.gone", "gone");
        app.run(&statement)
            .unwrap_or_else(|error| panic!("{statement}: {error}"));
        if let Some((key, row)) = written {
            expected.push(((!key.is_empty()).then_some(key), row));
            live.wait_published(expected.len() as u64);
        }
    }
    let count = expected.len();
    let (expected_keys, expected_rows): (Vec<_>, Vec<_>) = expected.into_iter().unzip();
    let records = bed.reader(&["events"]).exactly(count).to_vec();
    assert_eq!(after(&records), expected_rows, "live");
    assert_eq!(keys(&records), expected_keys, "live");

    live.sigterm();
    assert_eq!(live.wait_exit(DEADLINE), 0);
    catch_up(&mut bed.relay(&pipeline));
    let mut reader = bed.reader(&["events"]);
    let records = &reader.exactly(2 * count)[count..];
    assert_eq!(after(records), expected_rows, "afterwards");
    assert_eq!(keys(records), expected_keys, "afterwards");
}

over_each!(a_row_is_read_by_the_columns_that_its_table_had_then: mysql, mariadb);

fn an_update_after_an_alter_has_the_new_columns_on_both_sides(db: Db) {
    let bed = bed(db);
    run(
        &bed,
        "CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR(20));
         INSERT INTO t VALUES (1, '7');
         ALTER TABLE t ADD b INT DEFAULT 5, MODIFY a BIGINT;
         UPDATE t SET b = 6;
         ALTER TABLE t DROP b;
         DELETE FROM t",
    );
    let records = relayed(&bed, TABLES, 3);
    let shown: Vec<Value> = envelopes(&records)
        .iter()
        .map(|value| json!([value["before"], value["after"]]))
        .collect();
    assert_eq!(
        shown,
        [
            json!([null, {"id": 1, "a": "7"}]),
            json!([{"id": 1, "a": 7, "b": 5}, {"id": 1, "a": 7, "b": 6}]),
            json!([{"id": 1, "a": 7}, null]),
        ]
    );
}

over_each!(an_update_after_an_alter_has_the_new_columns_on_both_sides: mysql, mariadb);

/// As tools do that change a table beside the running application: the new table takes the old one's name.
fn a_table_counts_by_the_name_that_it_has_when_a_row_is_written(db: Db) {
    let bed = bed(db);
    run(
        &bed,
        "CREATE TABLE draft (payload VARCHAR(20)) ENGINE = BLACKHOLE;
         INSERT INTO draft VALUES ('before');
         RENAME TABLE draft TO a_outbox;
         INSERT INTO a_outbox VALUES ('renamed');
         CREATE TABLE ghost (id INT, payload TEXT) ENGINE = BLACKHOLE;
         INSERT INTO ghost VALUES (0, 'not yet');
         RENAME TABLE a_outbox TO old, ghost TO a_outbox;
         INSERT INTO a_outbox VALUES (1, 'swapped');
         INSERT INTO old VALUES ('after');
         DROP TABLE a_outbox;
         ALTER TABLE old RENAME TO a_outbox;
         INSERT INTO a_outbox VALUES ('back')",
    );
    let records = relayed(&bed, OUTBOXES, 3);
    let values: Vec<_> = records.iter().map(|record| record.value_text().unwrap()).collect();
    assert_eq!(values, ["renamed", "swapped", "back"]);
}

over_each!(a_table_counts_by_the_name_that_it_has_when_a_row_is_written: mysql, mariadb);

/// A log without names: the database is asked for them, and knows them only as they are now.
fn a_log_without_names_is_read_by_what_the_database_says(db: Db) {
    // NO_LOG is MariaDB's default.
    let (flavor, settings) = match db {
        Db::Mariadb => (Flavor::Mariadb, &["MINIMAL", "NO_LOG"][..]),
        _ => (Flavor::Mysql, &["MINIMAL"][..]),
    };
    let server = OwnServer::mysql(flavor, "");
    let set = |setting: &str| {
        let admin = server.mysql_addresses(flavor).admin_url;
        connect(&admin)
            .run(&format!("SET GLOBAL binlog_row_metadata = '{setting}'"))
            .unwrap();
    };
    for setting in settings {
        set(setting);
        every_type_is_known_by_the_database(&MysqlBed::on(flavor, &server));
        an_alteration_is_seen_live(&MysqlBed::on(flavor, &server));
        a_row_from_before_an_alteration_halts_or_fits(&MysqlBed::on(flavor, &server));
    }
    // Told to, it names them from then on.
    let bed = MysqlBed::on(flavor, &server);
    set("FULL");
    run(
        &bed,
        "CREATE TABLE t (a INT); INSERT INTO t VALUES (1); ALTER TABLE t ADD b INT, RENAME COLUMN a TO c",
    );
    assert_eq!(after(&relayed(&bed, TABLES, 1)), [json!({"a": 1})]);
}

fn every_type_is_known_by_the_database(bed: &MysqlBed) {
    let (own_type, own_value, own_text) = match bed.flavor() {
        Flavor::Mysql => ("JSON", r#"'{"a": 1.50}'"#, json!({"a": 1.50})),
        Flavor::Mariadb => (
            "UUID",
            "'123e4567-e89b-12d3-a456-426655440000'",
            json!("123e4567-e89b-12d3-a456-426655440000"),
        ),
    };
    run(
        bed,
        &format!(
            "SET NAMES utf8mb4;
             CREATE TABLE t (note VARCHAR(20) CHARACTER SET latin1, b BINARY(16), a BIGINT UNSIGNED, PRIMARY KEY (a, b),
                 m MEDIUMINT, d DECIMAL(10, 2), e ENUM('x', 'it''s é'), s SET('p', 'q', 'r'), t TIME(3), own {own_type},
                 c CHAR(3), v VARBINARY(300), bits BIT(9), y YEAR, g INT AS (m + 1) VIRTUAL);
             INSERT INTO t (note, b, a, m, d, e, s, t, own, c, v, bits, y) VALUES ('€', X'0100',
                 18446744073709551615, -1, -0.05, 'it''s é', 'p,r', '-00:00:00.001', {own_value}, 'é', X'00', 257, 2024)"
        ),
    );
    let records = relayed(bed, TABLES, 1);
    assert_eq!(
        after(&records),
        [json!({
            "note": "€", "b": "\\x01000000000000000000000000000000", "a": u64::MAX, "m": -1, "d": "-0.05",
            "e": "it's é", "s": "p,r", "t": "-00:00:00.001", "own": own_text, "c": "é", "v": "\\x00",
            "bits": "\\x0101", "y": 2024, "g": 0
        })]
    );
    let key = r#"{"b":"\\x01000000000000000000000000000000","a":18446744073709551615}"#;
    assert_eq!(keys(&records), [Some(key)]);
}

fn an_alteration_is_seen_live(bed: &MysqlBed) {
    let mut live = bed.relay(TABLES);
    live.start();
    live.wait_ready();
    let steps = [
        ("CREATE TABLE t (id INT, a INT)", "(1, 2)", json!({"id": 1, "a": 2})),
        // To the log the table looks as before.
        ("ALTER TABLE t RENAME COLUMN a TO b", "(3, 4)", json!({"id": 3, "b": 4})),
        (
            "ALTER TABLE t MODIFY id INT AFTER b",
            "(5, 6)",
            json!({"b": 5, "id": 6}),
        ),
        ("ALTER TABLE t ADD c INT", "(7, 8, 9)", json!({"b": 7, "id": 8, "c": 9})),
        (
            "ALTER TABLE t MODIFY c VARCHAR(9)",
            "(10, 11, 'x')",
            json!({"b": 10, "id": 11, "c": "x"}),
        ),
        (
            "ALTER TABLE t DROP c, ADD PRIMARY KEY (b)",
            "(12, 13)",
            json!({"b": 12, "id": 13}),
        ),
        (
            "DROP TABLE t; CREATE TABLE t (x INT, y INT)",
            "(1, 2)",
            json!({"x": 1, "y": 2}),
        ),
    ];
    for (at, (statement, row, _)) in steps.iter().enumerate() {
        run(bed, &format!("{statement}; INSERT INTO t VALUES {row}"));
        // The database is asked while it still has the table so.
        live.wait_published(at as u64 + 1);
    }
    let mut reader = bed.reader(&["events"]);
    let records = reader.exactly(steps.len());
    assert_eq!(after(records), steps.map(|(_, _, row)| row));
    let mut expected = [None; 7];
    expected[5] = Some(r#"{"b":12}"#);
    assert_eq!(keys(records), expected);
}

fn a_row_from_before_an_alteration_halts_or_fits(bed: &MysqlBed) {
    run(
        bed,
        "CREATE TABLE grown (a INT); INSERT INTO grown VALUES (1); ALTER TABLE grown ADD b INT;
         CREATE TABLE turned (a INT, b VARCHAR(9)); INSERT INTO turned VALUES (1, 'x'); ALTER TABLE turned MODIFY a INT AFTER b;
         CREATE TABLE gone (a INT); INSERT INTO gone VALUES (1); DROP TABLE gone;
         CREATE TABLE renamed (a INT); INSERT INTO renamed VALUES (1); ALTER TABLE renamed RENAME COLUMN a TO b",
    );
    for table in ["grown", "turned", "gone"] {
        let mut relay = bed.relay(&only(table));
        let line = relay.fails();
        for text in [table, "binlog_row_metadata=FULL"] {
            assert!(line.contains(text), "`{text}` is not in {line}");
        }
    }
    assert_eq!(after(&relayed(bed, &only("renamed"), 1)), [json!({"b": 1})]);
}

over_each!(a_log_without_names_is_read_by_what_the_database_says: mysql, mariadb);

/// Its log has UUID, INET4, INET6 and BINARY alike, also where it names the columns.
#[test]
fn mariadbs_fixed_bytes_are_what_the_database_says() {
    let bed = bed(Db::Mariadb);
    let mut live = bed.relay(TABLES);
    live.start();
    live.wait_ready();
    let (uuid, second) = (
        "123e4567-e89b-12d3-a456-426655440000",
        "0191f0a0-0000-7000-8000-000000000000",
    );
    let steps = [
        (
            format!(
                "CREATE TABLE t (u UUID, b BINARY(16), i INET6, four BINARY(4));
                 INSERT INTO t VALUES ('{uuid}', X'0100', '::1', X'01')"
            ),
            json!({"u": uuid, "b": "\\x01000000000000000000000000000000", "i": "::1", "four": "\\x01000000"}),
        ),
        (
            format!("ALTER TABLE t ADD note INT FIRST, DROP b, DROP four; INSERT INTO t VALUES (1, '{second}', '::2')"),
            json!({"note": 1, "u": second, "i": "::2"}),
        ),
        (
            "ALTER TABLE t DROP note, DROP i, DROP u, ADD u BINARY(16); INSERT INTO t VALUES (X'0200')".to_owned(),
            json!({"u": "\\x02000000000000000000000000000000"}),
        ),
        (
            "DROP TABLE t; CREATE TABLE t (u INET6); INSERT INTO t VALUES ('::3')".to_owned(),
            json!({"u": "::3"}),
        ),
    ];
    for (at, (statements, _)) in steps.iter().enumerate() {
        run(&bed, statements);
        live.wait_published(at as u64 + 1);
    }
    let mut reader = bed.reader(&["events"]);
    assert_eq!(after(reader.exactly(steps.len())), steps.map(|(_, row)| row));
}

/// What it was, nobody can tell any more: 16 bytes, which are ids and keys as a UUID's are.
#[test]
fn ids_of_a_table_that_is_gone_are_the_same() {
    let bed = bed(Db::Mariadb);
    run(
        &bed,
        "CREATE TABLE t_outbox (id UUID, aggregate_id UUID, event_type BINARY(4), payload VARCHAR(9)) ENGINE = BLACKHOLE;
         INSERT INTO t_outbox VALUES ('123e4567-e89b-12d3-a456-426655440000', '0191f0a0-0000-7000-8000-000000000000', X'01', 'x');
         DROP TABLE t_outbox",
    );
    let records = relayed(&bed, OUTBOXES, 1);
    let id = records[0].header("df-event-id");
    assert_eq!(id, Some("123e4567-e89b-12d3-a456-426655440000"));
    assert_eq!(keys(&records), [Some("0191f0a0-0000-7000-8000-000000000000")]);
    assert_eq!(records[0].header("df-event-type"), Some("01000000"));
}

const FIRST: &str = "123e4567-e89b-12d3-a456-426655440000";
const SECOND: &str = "123e4567-e89b-12d3-a456-426655440001";

/// Read when the table is another one already.
#[test]
fn a_column_that_is_gone_is_bytes_and_says_so_and_the_others_stay() {
    let bed = bed(Db::Mariadb);
    run(
        &bed,
        &format!(
            "CREATE TABLE t (id UUID PRIMARY KEY, a INET4, n INET6, b BINARY(16));
             INSERT INTO t VALUES ('{FIRST}', '1.2.3.4', '::1', X'01');
             ALTER TABLE t RENAME COLUMN a TO c, MODIFY b VARCHAR(50);
             INSERT INTO t VALUES ('{SECOND}', '1.2.3.5', '::2', 'x')"
        ),
    );
    let mut relay = bed.relay(&only("t"));
    catch_up(&mut relay);
    let mut reader = bed.reader(&["events"]);
    let records = reader.exactly(2);
    assert_eq!(
        after(records),
        [
            json!({"id": FIRST, "a": "\\x01020304", "n": "::1", "b": "\\x01000000000000000000000000000000"}),
            json!({"id": SECOND, "c": "1.2.3.5", "n": "::2", "b": "x"}),
        ]
    );
    let expected = [FIRST, SECOND].map(|id| format!(r#"{{"id":"{id}"}}"#));
    assert_eq!(keys(records), [Some(expected[0].as_str()), Some(expected[1].as_str())]);
    let log = relay.log();
    let told: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("does not have the column"))
        .collect();
    assert_eq!(told.len(), 2, "{log}");
    for (line, column) in told.iter().zip(["a", "b"]) {
        for text in [
            format!("{}.t", bed.name),
            format!("column=\"{column}\""),
            "place=".to_owned(),
        ] {
            assert!(line.contains(&text), "`{text}` is not in {line}");
        }
    }
}

/// Another form is another key, and another partition.
#[test]
fn a_key_whose_form_nobody_knows_any_more_halts() {
    for (change, behind) in [
        ("ALTER TABLE t RENAME COLUMN id TO ident", "INSERT INTO t VALUES"),
        ("ALTER TABLE t MODIFY id VARCHAR(36)", "INSERT INTO t VALUES"),
    ] {
        let bed = bed(Db::Mariadb);
        run(
            &bed,
            &format!(
                "CREATE TABLE t (id UUID PRIMARY KEY, n INT);
                 INSERT INTO t VALUES ('{FIRST}', 1);
                 {change};
                 {behind} ('{SECOND}', 2)"
            ),
        );
        let mut relay = bed.relay(TABLES);
        let line = relay.fails();
        for text in ["column `id`", &format!("`{}.t`", bed.name), "--accept-gap", "UUID"] {
            assert!(line.contains(text), "{change}: `{text}` is not in {line}");
        }
        relay.start_with(&["--accept-gap"]);
        relay.wait_settled(2);
        relay.sigterm();
        assert_eq!(relay.wait_exit(DEADLINE), 0);
        let mut reader = bed.reader(&["events"]);
        let records = reader.exactly(2);
        assert_eq!(
            keys(records)[0],
            Some(r#"{"id":"\\x123e4567e89b12d3a456426655440000"}"#),
            "{change}"
        );
        assert!(keys(records)[1].unwrap().contains(SECOND), "{change}");
    }
}

/// No later row of it can have another form: nothing is gained by a halt, which no change of the database ends.
#[test]
fn a_key_of_a_table_that_is_gone_is_bytes_and_says_so() {
    for change in ["DROP TABLE t", "RENAME TABLE t TO moved"] {
        let bed = bed(Db::Mariadb);
        run(
            &bed,
            &format!(
                "CREATE TABLE t (id BINARY(16) PRIMARY KEY, n INT);
                 INSERT INTO t VALUES (X'{}', 1);
                 {change}",
                FIRST.replace('-', "")
            ),
        );
        let mut relay = bed.relay(TABLES);
        catch_up(&mut relay);
        let mut reader = bed.reader(&["events"]);
        let key = r#"{"id":"\\x123e4567e89b12d3a456426655440000"}"#;
        assert_eq!(keys(reader.exactly(1)), [Some(key)], "{change}");
        let log = relay.log();
        let told = log
            .lines()
            .find(|line| line.contains("the table is not in the database any more"));
        let told = told.unwrap_or_else(|| panic!("{change}: {log}"));
        for text in [format!("{}.t", bed.name), "column=\"id\" key=true".to_owned()] {
            assert!(told.contains(&text), "`{text}` is not in {told}");
        }
    }
}

/// A table that the user may not see is not gone.
#[test]
fn a_key_of_a_table_that_is_hidden_halts_until_it_is_shown() {
    let bed = bed(Db::Mariadb);
    let user = format!("u{}", &bed.name[1..]);
    let mut admin = bed.admin();
    admin
        .run(&format!(
            "CREATE USER '{user}'@'%' IDENTIFIED BY 'hidden-pw';
             GRANT REPLICATION SLAVE, BINLOG MONITOR ON *.* TO '{user}'@'%'"
        ))
        .unwrap();
    run(
        &bed,
        &format!("CREATE TABLE t (id UUID PRIMARY KEY); INSERT INTO t VALUES ('{FIRST}')"),
    );
    let dsn = bed
        .database
        .mysql
        .url
        .replace("tailpost:tailpost-pw", &format!("{user}:hidden-pw"))
        .replace(&format!("/{}", bed.name), "/");
    let pipeline = only("t").replace("<source>", &format!("id: src1, dsn: '{dsn}', start: <start>"));
    let mut relay = bed.relay(&pipeline);
    let line = relay.fails();
    for text in ["column `id`", &format!("`{}.t`", bed.name), "GRANT SELECT"] {
        assert!(line.contains(text), "`{text}` is not in {line}");
    }
    admin.run(&format!("GRANT SELECT ON t TO '{user}'@'%'")).unwrap();
    catch_up(&mut relay);
    admin.run(&format!("DROP USER '{user}'@'%'")).unwrap();
    let mut reader = bed.reader(&["events"]);
    let key = format!(r#"{{"id":"{FIRST}"}}"#);
    assert_eq!(keys(reader.exactly(1)), [Some(key.as_str())]);
}

/// To the log the column is as before.
#[test]
fn a_key_that_becomes_another_type_of_its_width_halts_once_and_other_columns_are_told_of() {
    let bed = bed(Db::Mariadb);
    run(&bed, "CREATE TABLE t (id UUID PRIMARY KEY, other UUID)");
    let mut live = bed.relay(&only("t"));
    live.expect_error("key column `id`");
    live.start();
    live.wait_ready();
    run(&bed, &format!("INSERT INTO t VALUES ('{FIRST}', '{FIRST}')"));
    live.wait_published(1);
    run(
        &bed,
        &format!("ALTER TABLE t MODIFY other BINARY(16); INSERT INTO t VALUES ('{SECOND}', X'01')"),
    );
    live.wait_published(2);
    let told = live.wait_log("the column has another type in the database");
    for text in [&format!("{}.t", bed.name), "column=\"other\"", "uuid", "binary(16)"] {
        assert!(told.contains(text), "`{text}` is not in {told}");
    }
    run(
        &bed,
        "ALTER TABLE t MODIFY id BINARY(16); INSERT INTO t VALUES (X'01', X'02')",
    );
    assert_eq!(live.wait_exit(DEADLINE), 1);
    let log = live.log();
    for text in ["key column `id`", "`binary(16)`", "`uuid`", "start again"] {
        assert!(log.contains(text), "`{text}` is not in {log}");
    }
    catch_up(&mut live);
    let mut reader = bed.reader(&["events"]);
    let expected = [FIRST, SECOND, "\\\\x01000000000000000000000000000000"].map(|id| format!(r#"{{"id":"{id}"}}"#));
    assert_eq!(
        keys(reader.exactly(3)),
        expected.each_ref().map(|key| Some(key.as_str()))
    );
}

fn a_listed_table_that_is_not_there_is_told_of(db: Db) {
    let bed = bed(db);
    // A table that keeps its history is one as well, by another name of its kind.
    let history = if db == Db::Mariadb {
        "WITH SYSTEM VERSIONING"
    } else {
        ""
    };
    run(
        &bed,
        &format!("CREATE TABLE t (id INT PRIMARY KEY); CREATE TABLE kept (id INT PRIMARY KEY) {history}"),
    );
    let listed = "['<schema>.t', '<schema>.kept', '<schema>.none', '<schema>.later_*']";
    let pipeline = TABLES.replace("['<schema>.*']", listed);
    let mut relay = bed.relay(&pipeline);
    catch_up(&mut relay);
    let log = relay.log();
    let told: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("a listed table is not there"))
        .collect();
    assert!(
        told.len() == 1 && told[0].contains(&format!("{}.none", bed.name)),
        "{log}"
    );
}

over_each!(a_listed_table_that_is_not_there_is_told_of: mysql, mariadb);
