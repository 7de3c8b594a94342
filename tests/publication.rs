//! The publication on PostgreSQL: what it must have of what the pipeline lists, and what is said of what it leaves out.

use postgres::Client;
use serde_json::Value;

use crate::support::cli::{Ended, tailpost};
use crate::support::relay::Relay;
use crate::support::{DEADLINE, OUTBOX, TestBed, eventually, unique_name};

/// A pipeline of outbox tables.
fn outboxes(bed: &TestBed, tables: &str) -> Relay {
    bed.relay(&OUTBOX.replace("prefixes: [outbox]", &format!("tables: [{tables}]")))
}

/// A pipeline of ordinary tables.
fn ordinary(bed: &TestBed, tables: &str) -> Relay {
    bed.relay(&format!(
        "
apiVersion: tailpost/v1
kind: Pipeline
metadata: {{name: <name>}}
spec:
  source: {{type: postgres, config: {{<source>, tables: [{tables}]}}}}
  sinks: [{{type: kafka, config: {{id: k1, brokers: '<brokers>', topic: '<topic>'}}}}]
"
    ))
}

fn check(relay: &Relay) -> Ended {
    let (file, state_dir) = (relay.pipeline_file(), relay.state_dir());
    tailpost([
        "check".as_ref(),
        file.as_os_str(),
        "--state-dir".as_ref(),
        state_dir.as_os_str(),
    ])
}

/// Checks that `check` ends with this code and says this.
fn checked(relay: &Relay, code: i32, texts: &[&str]) {
    let ended = check(relay);
    assert_eq!(ended.code, code, "{}{}", ended.stdout, ended.stderr);
    for text in texts {
        assert!(ended.stdout.contains(text), "no {text:?} in {}", ended.stdout);
    }
}

/// What a refusal says is to be done, done.
fn follow(bed: &TestBed, error: &str) {
    let (_, statements) = error.split_once("ALTER PUBLICATION").unwrap();
    let (statements, _) = statements.split_once(". What was written").unwrap();
    bed.admin()
        .batch_execute(&format!("ALTER PUBLICATION{statements}"))
        .unwrap();
}

fn version_of(app: &mut Client) -> i32 {
    app.query_one("SELECT current_setting('server_version_num')::int", &[])
        .unwrap()
        .get(0)
}

fn values(bed: &TestBed, count: usize) -> Vec<String> {
    let mut reader = bed.reader(&["events"]);
    let records = reader.exactly(count).iter();
    let mut values: Vec<String> = records.map(|record| record.value_text().unwrap().to_owned()).collect();
    values.sort();
    values
}

const PARTITIONED: &str = "CREATE TABLE o (id INT, payload TEXT) PARTITION BY RANGE (id);
     CREATE TABLE o_a PARTITION OF o FOR VALUES FROM (0) TO (10);
     CREATE TABLE o_b PARTITION OF o FOR VALUES FROM (10) TO (20);";
const ONE_EACH: &str = "INSERT INTO o VALUES (1, 'a'), (11, 'b')";

#[test]
fn partitions_that_are_listed_by_name_are_published() {
    for tables in ["public.o_a, public.o_b", "'public.o_*'", "'o*'"] {
        let bed = TestBed::new();
        let mut app = bed.app();
        app.batch_execute(PARTITIONED).unwrap();
        let mut relay = outboxes(&bed, tables);
        relay.start();
        relay.wait_ready();
        app.batch_execute(ONE_EACH).unwrap();
        relay.wait_settled(2);
        assert_eq!(values(&bed, 2), ["a", "b"], "{tables}");
        checked(&relay, 0, &["has what the pipeline lists"]);
    }
}

#[test]
fn a_pattern_of_a_table_and_its_partitions_takes_rows_by_either_name() {
    let bed = TestBed::new();
    let mut app = bed.app();
    app.batch_execute(PARTITIONED).unwrap();
    let publish = format!("CREATE PUBLICATION {} FOR ALL TABLES", bed.publication);
    bed.admin().batch_execute(&publish).unwrap();
    let mut relay = outboxes(&bed, "'*.*'");
    checked(&relay, 0, &["has what the pipeline lists"]);
    relay.start();
    relay.wait_ready();
    app.batch_execute(ONE_EACH).unwrap();
    relay.wait_settled(2);
    let publish = format!(
        "ALTER PUBLICATION {} SET (publish_via_partition_root = true)",
        bed.publication
    );
    bed.admin().batch_execute(&publish).unwrap();
    app.batch_execute("INSERT INTO o VALUES (2, 'c')").unwrap();
    // PostgreSQL 14 sends it without the table's description, and has to be asked anew.
    relay.wait_settled(3);
    assert_eq!(values(&bed, 3), ["a", "b", "c"]);
    checked(&relay, 0, &["has what the pipeline lists"]);
}

#[test]
fn a_partition_whose_rows_come_under_the_name_of_its_root_is_refused_by_that_name() {
    let bed = TestBed::new();
    bed.app().batch_execute(PARTITIONED).unwrap();
    let publish = format!(
        "CREATE PUBLICATION {} FOR TABLE o WITH (publish = 'insert', publish_via_partition_root = true)",
        bed.publication
    );
    bed.admin().batch_execute(&publish).unwrap();
    let mut relay = outboxes(&bed, "public.o_a");
    checked(
        &relay,
        1,
        &[r#"arrive under the name of "public"."o": list that in its place"#],
    );
    relay.start();
    relay.wait_halted(&[
        r#""public"."o_a""#,
        r#"arrive under the name of "public"."o": list that"#,
    ]);
}

#[test]
fn the_statements_for_a_partitioned_table_mend_each_publication_that_lacks_it() {
    for publication in [
        "FOR ALL TABLES",
        "FOR TABLE o WITH (publish_via_partition_root = false)",
        "FOR TABLE other WITH (publish_via_partition_root = true)",
        "WITH (publish_via_partition_root = false)",
    ] {
        let bed = TestBed::new();
        let mut app = bed.app();
        app.batch_execute(PARTITIONED).unwrap();
        app.batch_execute("CREATE TABLE other (id INT)").unwrap();
        let publish = format!("CREATE PUBLICATION {} {publication}", bed.publication);
        bed.admin().batch_execute(&publish).unwrap();
        let mut relay = outboxes(&bed, "public.o");
        checked(&relay, 1, &["does not publish"]);
        relay.start();
        let error = relay.wait_halted(&[r#""public"."o""#]);
        follow(&bed, &error);
        checked(&relay, 0, &["has what the pipeline lists"]);
        relay.start();
        relay.wait_ready();
        app.batch_execute(ONE_EACH).unwrap();
        relay.wait_settled(2);
        assert_eq!(values(&bed, 2), ["a", "b"], "{publication}");
    }
}

#[test]
fn a_table_that_is_not_there_is_refused_at_the_first_start_and_told_later() {
    for tables in ["public.missing, public.there", "missing, there", "'*_outbox'"] {
        let bed = TestBed::new();
        let mut app = bed.app();
        app.batch_execute("CREATE TABLE there (payload TEXT)").unwrap();
        let mut relay = outboxes(&bed, tables);
        let pattern = tables.trim_matches('\'').split(',').next().unwrap();
        checked(&relay, 1, &[&format!("no table matches `{pattern}`")]);
        relay.start();
        relay.wait_halted(&[&format!("no table matches `{pattern}`"), "Create it and start again"]);
    }

    let bed = TestBed::new();
    let mut app = bed.app();
    app.batch_execute("CREATE TABLE a (payload TEXT); CREATE TABLE b (payload TEXT)")
        .unwrap();
    let mut relay = outboxes(&bed, "public.a, public.b");
    relay.start();
    relay.wait_ready();
    app.batch_execute("INSERT INTO a VALUES ('1')").unwrap();
    relay.wait_settled(1);
    relay.sigterm();
    relay.wait_exit(DEADLINE);
    // An old outbox that was given up keeps no other from going on, and what it was written before is still read.
    app.batch_execute("INSERT INTO b VALUES ('2'); ALTER TABLE b RENAME TO old; CREATE VIEW b AS SELECT * FROM old")
        .unwrap();
    checked(&relay, 0, &[r#""public"."b", which the pipeline lists, is a view"#]);
    relay.start();
    relay.wait_ready();
    relay.wait_log(r#""public"."b", which the pipeline lists, is a view"#);
    relay.wait_settled(1);
    relay.sigterm();
    relay.wait_exit(DEADLINE);
    app.batch_execute("DROP VIEW b; DROP TABLE old").unwrap();
    checked(&relay, 0, &["no table matches `public.b`"]);
    relay.start();
    relay.wait_ready();
    relay.wait_log("no table matches `public.b`");
    app.batch_execute("INSERT INTO a VALUES ('3')").unwrap();
    relay.wait_settled(1);
    assert_eq!(values(&bed, 3), ["1", "2", "3"]);
}

#[test]
fn tables_to_come_are_awaited_where_the_publication_will_have_them() {
    let bed = TestBed::new();
    let publish = format!("CREATE PUBLICATION {} FOR ALL TABLES", bed.publication);
    bed.admin().batch_execute(&publish).unwrap();
    let mut relay = outboxes(&bed, "public.later, '*.outbox_*'");
    checked(
        &relay,
        0,
        &["no table matches `public.later`", "no table matches `*.outbox_*`"],
    );
    relay.start();
    relay.wait_ready();
    bed.app()
        .batch_execute("BEGIN; CREATE TABLE later (payload TEXT); INSERT INTO later VALUES ('a'); COMMIT")
        .unwrap();
    relay.wait_settled(1);
    assert_eq!(values(&bed, 1), ["a"]);
}

#[test]
fn what_is_never_in_the_log_is_no_outbox() {
    for (made, what, remedy) in [
        (
            "CREATE UNLOGGED TABLE o (payload TEXT)",
            "an unlogged table",
            "SET LOGGED",
        ),
        ("CREATE VIEW o AS SELECT 'a' AS payload", "a view", "in its place"),
    ] {
        let bed = TestBed::new();
        bed.app().batch_execute(made).unwrap();
        let mut relay = outboxes(&bed, "public.o");
        checked(&relay, 1, &[what, remedy]);
        relay.start();
        relay.wait_halted(&[r#""public"."o""#, what, "never in the log"]);
    }
}

#[test]
fn a_publication_that_no_first_start_could_make_is_told_by_check() {
    let bed = TestBed::new();
    bed.admin()
        .batch_execute("CREATE TABLE public.foreign_o (payload TEXT)")
        .unwrap();
    let mut relay = outboxes(&bed, "public.foreign_o");
    checked(&relay, 1, &["is not the owner of", "as an administrator"]);
    relay.start();
    relay.wait_halted(&["must be owner"]);

    let bed = TestBed::new();
    bed.app().batch_execute("CREATE TABLE o (payload TEXT)").unwrap();
    let mut relay = ordinary(&bed, "public.o");
    checked(&relay, 1, &["no replica identity"]);
    relay.start();
    relay.wait_halted(&["no replica identity"]);
}

#[test]
fn operations_that_a_publication_leaves_out_are_told_with_the_statement_that_mends_it() {
    let bed = TestBed::new();
    let mut app = bed.app();
    app.batch_execute("CREATE TABLE t (id INT PRIMARY KEY)").unwrap();
    let publish = format!(
        "CREATE PUBLICATION {} FOR TABLE t WITH (publish = 'insert')",
        bed.publication
    );
    bed.admin().batch_execute(&publish).unwrap();
    let mut relay = ordinary(&bed, "public.t");
    checked(&relay, 0, &["update, delete, truncate of ordinary tables never arrive"]);
    relay.start();
    let warning = relay.wait_log("of ordinary tables never arrive");
    assert!(warning.contains("WARN"), "{warning}");
    relay.wait_ready();
    let (_, statement) = warning.split_once("ALTER PUBLICATION").unwrap();
    let (statement, _) = statement.split_once("')").unwrap();
    bed.admin()
        .batch_execute(&format!("ALTER PUBLICATION{statement}')"))
        .unwrap();
    app.batch_execute("INSERT INTO t VALUES (1); UPDATE t SET id = 2; DELETE FROM t; TRUNCATE t")
        .unwrap();
    relay.wait_published(4);
    let mut reader = bed.reader(&["events"]);
    let operations = reader.exactly(4).iter().map(|record| {
        let value: Value = serde_json::from_slice(record.value.as_ref().unwrap()).unwrap();
        value["op"].as_str().unwrap().to_owned()
    });
    assert_eq!(operations.collect::<Vec<_>>(), ["c", "u", "d", "t"]);
    checked(&relay, 0, &["has what the pipeline lists"]);
}

#[test]
fn rows_and_columns_that_a_publication_leaves_out_are_told() {
    let bed = TestBed::new();
    let mut app = bed.app();
    if version_of(&mut app) < 150_000 {
        return;
    }
    app.batch_execute("CREATE TABLE o (id INT, tenant INT, aggregate_id TEXT, payload TEXT)")
        .unwrap();
    let publish = format!(
        "CREATE PUBLICATION {} FOR TABLE o (id, tenant, payload) WHERE (tenant = 1) WITH (publish = 'insert')",
        bed.publication
    );
    bed.admin().batch_execute(&publish).unwrap();
    let mut relay = outboxes(&bed, "public.o");
    let told = [
        r#"rows of "public"."o" without (tenant = 1) never arrive"#,
        r#"rows of "public"."o" come without the columns aggregate_id"#,
    ];
    checked(&relay, 0, &told);
    relay.start();
    relay.wait_ready();
    for text in told {
        let warning = relay.wait_log(text);
        assert!(warning.contains("WARN"), "{warning}");
    }
    app.batch_execute("INSERT INTO o VALUES (1, 1, 'x', 'a'), (2, 2, 'y', 'b')")
        .unwrap();
    relay.wait_settled(1);
    assert_eq!(values(&bed, 1), ["a"]);
}

#[test]
fn a_publication_that_another_makes_meanwhile_is_compared_and_taken() {
    let bed = TestBed::new();
    bed.app().batch_execute("CREATE TABLE a_outbox (payload text)").unwrap();
    let publication = &bed.publication;
    let pipeline = OUTBOX.replace("prefixes: [outbox]", "tables: ['*_outbox']");
    for (table, fits) in [("", false), (" FOR TABLE a_outbox", true)] {
        let mut other = bed.admin();
        let mut making = other.transaction().unwrap();
        making
            .batch_execute(&format!("CREATE PUBLICATION {publication}{table}"))
            .unwrap();
        let mut relay = bed.relay(&pipeline);
        relay.start();
        let mut admin = bed.admin();
        eventually(DEADLINE, "it waits for the other's transaction", || {
            let sql = "SELECT count(*) FROM pg_stat_activity \
                       WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE 'CREATE PUBLICATION%'";
            admin.query_one(sql, &[]).unwrap().get::<_, i64>(0) == 1
        });
        making.commit().unwrap();
        if !fits {
            relay.wait_halted(&["does not publish", "a_outbox", "ALTER PUBLICATION"]);
            admin.batch_execute(&format!("DROP PUBLICATION {publication}")).unwrap();
            continue;
        }
        relay.wait_ready();
        bed.app().batch_execute("INSERT INTO a_outbox VALUES ('one')").unwrap();
        relay.wait_settled(1);
        assert_eq!(relay.count_log("publication made"), 0, "{}", relay.log());
    }
}

#[test]
fn a_publication_that_lacks_a_listed_table_halts_with_the_statement_that_mends_it() {
    let bed = TestBed::new();
    let mut app = bed.app();
    app.batch_execute("CREATE TABLE a_outbox (payload text); CREATE TABLE b_outbox (payload text)")
        .unwrap();
    let mut admin = bed.admin();
    let publication = &bed.publication;
    admin
        .batch_execute(&format!(
            "CREATE PUBLICATION {publication} FOR TABLE a_outbox WITH (publish = 'insert')"
        ))
        .unwrap();
    let mut relay = bed.relay(&OUTBOX.replace("prefixes: [outbox]", "tables: ['*_outbox']"));
    relay.start();
    let error = relay.wait_halted(&["b_outbox"]);
    follow(&bed, &error);
    relay.start();
    relay.wait_ready();

    // One that comes later must not end a pipeline that runs: it is warned of at the next connection.
    app.batch_execute("CREATE TABLE c_outbox (payload text)").unwrap();
    let before = bed.active_pid().unwrap();
    admin.execute("SELECT pg_terminate_backend($1)", &[&before]).unwrap();
    let warning = relay.wait_log("the publication no longer fits the pipeline");
    assert!(warning.contains("WARN") && warning.contains("c_outbox"), "{warning}");
    relay.wait_ready();
    app.batch_execute("INSERT INTO b_outbox VALUES ('goes on')").unwrap();
    relay.wait_settled(1);
    assert_eq!(bed.reader(&["events"]).exactly(1)[0].value_text(), Some("goes on"));
}

/// Servers before 18 have none in old rows; later ones refuse UPDATEs where the publication lacks it.
#[test]
fn a_generated_column_in_the_primary_key_keeps_no_application_from_its_updates() {
    let bed = TestBed::new();
    let mut app = bed.app();
    app.batch_execute("CREATE TABLE t (a INT, s INT GENERATED ALWAYS AS (a * 2) STORED PRIMARY KEY)")
        .unwrap();
    let mut relay = ordinary(&bed, "public.t");
    if version_of(&mut app) < 180_000 {
        checked(&relay, 1, &["one with a generated column is none"]);
        return;
    }
    relay.start();
    relay.wait_ready();
    app.batch_execute("INSERT INTO t VALUES (1); UPDATE t SET a = 2; DELETE FROM t")
        .unwrap();
    relay.wait_published(3);
    let mut reader = bed.reader(&["events"]);
    let keys = reader
        .exactly(3)
        .iter()
        .map(|record| record.key_text().map(str::to_owned));
    let expected = [r#"{"s":2}"#, r#"{"s":4}"#, r#"{"s":4}"#].map(|key| Some(key.to_owned()));
    assert_eq!(keys.collect::<Vec<_>>(), expected);
}

/// The catalog that a slot keeps is older where others are there, so its age says nothing of one that has been read before.
#[test]
fn a_publication_that_was_made_before_its_slot_is_not_called_younger_for_another_slot() {
    let bed = TestBed::new();
    let other = unique_name();
    let mut admin = bed.admin();
    admin
        .execute("SELECT pg_create_logical_replication_slot($1, 'pgoutput')", &[&other])
        .unwrap();
    let mut app = bed.app();
    app.batch_execute("CREATE TABLE o (payload TEXT)").unwrap();
    let mut relay = outboxes(&bed, "public.o");
    for payload in ["1", "2"] {
        relay.start();
        relay.wait_ready();
        app.execute("INSERT INTO o VALUES ($1)", &[&payload]).unwrap();
        relay.wait_settled(1);
        relay.sigterm();
        relay.wait_exit(DEADLINE);
        assert_eq!(relay.count_log("may be younger"), 0, "{}", relay.log());
    }
    admin.execute("SELECT pg_drop_replication_slot($1)", &[&other]).unwrap();
}
