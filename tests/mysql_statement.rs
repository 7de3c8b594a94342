//! What a binlog holds beside rows that were committed: statements in place of rows, what was rolled back, definitions in
//! between.

use mysql::prelude::Queryable;
use mysql::{Conn, LocalInfileHandler};

use crate::support::binlog::{Binlog, values};
use crate::support::mysql::{Flavor, Script};
use crate::support::mysql_bed::MysqlBed;
use crate::support::relay::Relay;
use crate::support::server::OwnServer;
use crate::support::{ANY_OUTBOX, DEADLINE, Db, over_each};

/// A bed on a server of its own, whose binlog has nobody else's changes, and a relay of all its outbox tables.
fn own(db: Db, options: &str) -> (MysqlBed, Relay, OwnServer) {
    let binlog = match db.flavor() {
        Some(Flavor::Mariadb) => Binlog::Mariadb,
        _ => Binlog::Gtids,
    };
    let (bed, server) = binlog.own_with(options);
    let relay = bed.relay(&ANY_OUTBOX.replace("<outbox>", "tables: ['<name>.*outbox']"));
    (bed, relay, server)
}

fn insert(app: &mut Conn, payload: u32) {
    app.run(&format!("INSERT INTO outbox (payload) VALUES ({payload})"))
        .unwrap();
}

/// Where the binlog's last statement with this text ends.
fn end_of_statement(bed: &MysqlBed, text: &str) -> String {
    let mut admin = bed.admin();
    let files: Vec<mysql::Row> = admin.query("SHOW BINARY LOGS").unwrap();
    let file: String = files.last().expect("a file").get(0).unwrap();
    let events: Vec<mysql::Row> = admin.query(format!("SHOW BINLOG EVENTS IN '{file}'")).unwrap();
    let event = events.iter().rev().find(|event| {
        let (kind, info): (String, String) = (event.get(2).unwrap(), event.get(5).unwrap());
        kind == "Query" && info.contains(text)
    });
    let end: u64 = event.unwrap_or_else(|| panic!("no `{text}` in {file}")).get(4).unwrap();
    format!("{file}:{end}")
}

fn an_outbox_row_that_was_written_as_a_statement_halts_and_is_passed_at_the_operators_word(db: Db) {
    let (bed, mut relay, _server) = own(db, "");
    relay.start();
    relay.wait_ready();
    let mut app = bed.app();
    insert(&mut app, 1);
    let mut wrong = bed.admin();
    wrong.run("SET SESSION binlog_format = STATEMENT").unwrap();
    wrong.run("INSERT INTO `outbox` (payload) VALUES (2)").unwrap();
    insert(&mut app, 3);
    let place = end_of_statement(&bed, "INSERT INTO `outbox`");
    let table = format!("table `{}.outbox`", bed.name);
    relay.wait_halted(&["`INSERT`", &table, &place, "binlog_format", "--accept-gap"]);
    assert_eq!(values(&bed, 1), ["1"]);
    // Another start is no operator's word.
    relay.start();
    relay.wait_halted(&[&table, &place]);

    relay.start_with(&["--accept-gap"]);
    relay.wait_published(1);
    assert_eq!(relay.skipped("statement_form"), 1);
    assert_eq!(values(&bed, 2), ["1", "3"]);
    // What comes after that start is no gap that was accepted.
    wrong.run("REPLACE INTO outbox (payload) VALUES (4)").unwrap();
    let place = end_of_statement(&bed, "REPLACE INTO outbox");
    relay.wait_halted(&["`REPLACE`", &table, &place, "--accept-gap"]);
    relay.start_with(&["--accept-gap", "--once"]);
    assert_eq!(relay.wait_exit(DEADLINE), 0, "{}", relay.log());
    insert(&mut app, 5);
    relay.start_with(&["--once"]);
    assert_eq!(relay.wait_exit(DEADLINE), 0, "{}", relay.log());
    assert_eq!(values(&bed, 3), ["1", "3", "5"]);
}
over_each!(an_outbox_row_that_was_written_as_a_statement_halts_and_is_passed_at_the_operators_word: mysql, mariadb);

/// The forms in which an INSERT of an outbox row comes as text.
fn each_form_of_a_statement_that_writes_an_outbox_row_halts(db: Db) {
    let (bed, mut relay, _server) = own(db, "");
    relay.rewrite(
        &bed.fill(ANY_OUTBOX)
            .replace(&format!("start: {}", bed.start), "start: latest"),
    );
    let mut wrong = bed.admin();
    wrong
        .run("CREATE TABLE source (payload INT); INSERT INTO source VALUES (1); SET SESSION binlog_format = STATEMENT")
        .unwrap();
    for statement in [
        "INSERT INTO <name>.outbox (payload) SELECT payload FROM source",
        "insert low_priority ignore into `<name>` . `outbox` SET payload = 1",
        "/* by a framework */ INSERT INTO outbox (payload) VALUES (1)",
        "BEGIN; INSERT INTO source VALUES (2); INSERT INTO outbox (payload) VALUES (1); COMMIT",
        "PREPARE p FROM 'INSERT INTO outbox (payload) VALUES (?)'; SET @payload = 1; EXECUTE p USING @payload",
    ] {
        println!("{statement}");
        // What came before is nobody's.
        relay.start_with(&["--from-slot"]);
        relay.wait_ready();
        wrong.run(&statement.replace("<name>", &bed.name)).unwrap();
        relay.wait_halted(&["`INSERT`", &format!("table `{}.outbox`", bed.name)]);
    }
}
over_each!(each_form_of_a_statement_that_writes_an_outbox_row_halts: mysql, mariadb);

fn statements_on_other_tables_are_counted_and_warned_of_once(db: Db) {
    let (bed, mut relay, _server) = own(db, "");
    let mut wrong = bed.admin();
    wrong
        .run(
            "CREATE TABLE other (i INT); CREATE TABLE kept_outbox LIKE outbox; ALTER TABLE kept_outbox ENGINE = InnoDB",
        )
        .unwrap();
    relay.start();
    relay.wait_ready();
    let mut app = bed.app();
    app.run("INSERT INTO kept_outbox (payload) VALUES (1)").unwrap();
    wrong.run("SET SESSION binlog_format = STATEMENT").unwrap();
    for statement in [
        "INSERT INTO other VALUES (1)",
        "UPDATE other SET i = 2",
        "DELETE FROM other",
        "UPDATE kept_outbox SET aggregate_id = 'changed'",
        "DELETE FROM kept_outbox",
    ] {
        wrong.run(statement).unwrap();
    }
    insert(&mut app, 2);
    relay.wait_published(2);
    assert_eq!(relay.skipped("statement_form"), 3);
    assert_eq!(relay.skipped("outbox_update"), 1);
    assert_eq!(relay.skipped("outbox_delete"), 1);
    assert_eq!(
        relay.count_log("written to the binlog as a statement"),
        1,
        "{}",
        relay.log()
    );
    assert_eq!(values(&bed, 2), ["1", "2"]);
}
over_each!(statements_on_other_tables_are_counted_and_warned_of_once: mysql, mariadb);

fn rows_of_triggers_procedures_and_functions_arrive(db: Db) {
    let (bed, mut relay, _server) = own(db, "");
    bed.admin()
        .run(
            "CREATE TABLE orders (id INT PRIMARY KEY, n INT);
             CREATE TABLE second_outbox LIKE outbox;
             CREATE TRIGGER one AFTER INSERT ON orders FOR EACH ROW INSERT INTO outbox (payload) VALUES (NEW.id);
             CREATE TRIGGER two BEFORE UPDATE ON orders FOR EACH ROW INSERT INTO second_outbox (payload) VALUES (NEW.n);
             CREATE TRIGGER three AFTER UPDATE ON orders FOR EACH ROW INSERT INTO outbox (payload) VALUES (NEW.n + 1);
             CREATE PROCEDURE emit(payload INT) INSERT INTO outbox (payload) VALUES (payload);
             CREATE FUNCTION emitted(payload INT) RETURNS INT DETERMINISTIC MODIFIES SQL DATA
             BEGIN INSERT INTO outbox (payload) VALUES (payload); RETURN payload; END",
        )
        .unwrap();
    relay.start();
    relay.wait_ready();
    let mut app = bed.app();
    app.run("INSERT INTO orders VALUES (1, 0), (2, 0), (3, 0)").unwrap();
    app.run("UPDATE orders SET n = id * 10").unwrap();
    app.run("CALL emit(40)").unwrap();
    app.run("SELECT emitted(50)").unwrap();
    app.run("DO emitted(60)").unwrap();
    app.run("INSERT INTO orders VALUES (emitted(70), 0)").unwrap();
    let expected = [1, 2, 3, 10, 11, 20, 21, 30, 31, 40, 50, 60];
    relay.wait_published(expected.len() as u64 + 2);
    let found = values(&bed, expected.len() + 2);
    assert_eq!(found[..expected.len()], expected.map(|number| number.to_string()));
    assert_eq!(found[expected.len()..], ["70", "70"]);
}
over_each!(rows_of_triggers_procedures_and_functions_arrive: mysql, mariadb);

/// Transactions of which some is undone, or all: what is kept is below 100, what is undone above. `tail` is where MyISAM
/// is in between, which MySQL refuses with GTIDs.
const UNDONE: [&str; 14] = [
    "BEGIN; INSERT INTO outbox (payload) VALUES (101); ROLLBACK",
    "BEGIN; INSERT INTO kept_outbox (payload) VALUES (102); ROLLBACK",
    "BEGIN; INSERT INTO outbox (payload) VALUES (1); SAVEPOINT a; INSERT INTO outbox (payload) VALUES (103); \
     ROLLBACK TO a; INSERT INTO outbox (payload) VALUES (2); COMMIT",
    "BEGIN; INSERT INTO kept_outbox (payload) VALUES (3); SAVEPOINT a; INSERT INTO outbox (payload) VALUES (4); \
     SAVEPOINT b; INSERT INTO kept_outbox (payload) VALUES (104); ROLLBACK TO b; RELEASE SAVEPOINT b; \
     SAVEPOINT a; INSERT INTO outbox (payload) VALUES (105); ROLLBACK TO a; COMMIT",
    // A temporary table's making or end can't be undone, so servers write what comes before it though it is.
    "BEGIN; INSERT INTO outbox (payload) VALUES (106); INSERT INTO kept_outbox (payload) VALUES (107); \
     CREATE TEMPORARY TABLE scratch (i INT); INSERT INTO outbox (payload) VALUES (108); ROLLBACK; \
     INSERT INTO outbox (payload) VALUES (5)",
    "CREATE TEMPORARY TABLE IF NOT EXISTS scratch (i INT); BEGIN; INSERT INTO outbox (payload) VALUES (109); \
     DROP TEMPORARY TABLE scratch; ROLLBACK; INSERT INTO outbox (payload) VALUES (6)",
    "BEGIN; INSERT INTO outbox (payload) VALUES (7); CREATE TEMPORARY TABLE scratch (i INT); SAVEPOINT a; \
     INSERT INTO kept_outbox (payload) VALUES (110); SAVEPOINT b; INSERT INTO outbox (payload) VALUES (111); \
     ROLLBACK TO a; INSERT INTO outbox (payload) VALUES (8); COMMIT; DROP TEMPORARY TABLE scratch",
    "XA START 'undone'; INSERT INTO outbox (payload) VALUES (112); XA END 'undone'; XA ROLLBACK 'undone'",
    // A statement that fails is undone alone.
    "BEGIN; INSERT INTO unique_outbox (number, payload) VALUES (1, 9); \
     INSERT IGNORE INTO unique_outbox (number, payload) VALUES (1, 113), (2, 10); COMMIT",
    // MyISAM undoes nothing: its rows are events whatever becomes of the transaction.
    "BEGIN; INSERT INTO fixed_outbox (payload) VALUES (11); INSERT INTO outbox (payload) VALUES (114); ROLLBACK",
    "BEGIN; INSERT INTO outbox (payload) VALUES (13); INSERT INTO fixed_outbox (payload) VALUES (12); SAVEPOINT a; \
     INSERT INTO outbox (payload) VALUES (115); INSERT INTO kept_outbox (payload) VALUES (116); ROLLBACK TO a; \
     INSERT INTO kept_outbox (payload) VALUES (14); COMMIT",
    "BEGIN; INSERT INTO fixed VALUES (1); SAVEPOINT a; INSERT INTO outbox (payload) VALUES (117); SAVEPOINT b; \
     INSERT INTO outbox (payload) VALUES (118); RELEASE SAVEPOINT b; SAVEPOINT c; \
     INSERT INTO outbox (payload) VALUES (119); ROLLBACK TO a; ROLLBACK TO a; \
     INSERT INTO outbox (payload) VALUES (15); SAVEPOINT a; INSERT INTO outbox (payload) VALUES (16); SAVEPOINT b; \
     INSERT INTO outbox (payload) VALUES (120); ROLLBACK TO b; COMMIT",
    "SET SESSION binlog_format = MIXED; BEGIN; INSERT INTO outbox (id, payload) VALUES (UUID(), 121); \
     INSERT INTO fixed VALUES (2); ROLLBACK; SET SESSION binlog_format = ROW",
    "SET SESSION binlog_format = MIXED; CREATE TEMPORARY TABLE scratch (i INT) ENGINE = MyISAM; BEGIN; \
     INSERT INTO outbox (id, payload) VALUES (UUID(), 122); INSERT INTO scratch VALUES (1); ROLLBACK; \
     DROP TEMPORARY TABLE scratch; SET SESSION binlog_format = ROW; INSERT INTO outbox (payload) VALUES (17)",
];

fn what_is_undone_never_comes(db: Db) {
    // With GTIDs MySQL refuses MyISAM in transactions, which is how it could be otherwise.
    let binlog = match db.flavor() {
        Some(Flavor::Mariadb) => Binlog::Mariadb,
        _ => Binlog::Files,
    };
    let (bed, _server) = binlog.own();
    let mut admin = bed.admin();
    admin
        .run(
            "CREATE TABLE kept_outbox LIKE outbox; ALTER TABLE kept_outbox ENGINE = InnoDB;
             CREATE TABLE unique_outbox LIKE kept_outbox;
             CREATE TABLE fixed_outbox LIKE outbox; ALTER TABLE fixed_outbox ENGINE = MyISAM;
             CREATE TABLE fixed (i INT) ENGINE = MyISAM",
        )
        .unwrap();
    let pipeline = ANY_OUTBOX.replace("<outbox>", "tables: ['<name>.*outbox']");
    let mut relay = bed.relay(&pipeline);
    relay.start();
    relay.wait_ready();
    for script in UNDONE {
        admin.run(script).unwrap_or_else(|error| panic!("{script}: {error}"));
    }
    // An application that dies inside a transaction.
    let mut dying = bed.admin();
    dying
        .run("BEGIN; INSERT INTO outbox (payload) VALUES (123); CREATE TEMPORARY TABLE scratch (i INT)")
        .unwrap();
    let id = dying.connection_id();
    drop(dying);
    crate::support::eventually(DEADLINE, "the connection gone", || {
        let left = format!("SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE ID = {id}");
        admin.query_first::<u32, _>(left).unwrap() == Some(0)
    });
    admin.run("INSERT INTO outbox (payload) VALUES (18)").unwrap();

    let mut reader = bed.reader(&["events"]);
    reader.until("the last event", |records| {
        records.iter().any(|record| record.value_text() == Some("18"))
    });
    relay.metrics().unwrap().assert_accounted();
    let found: Vec<u32> = reader
        .all()
        .iter()
        .map(|record| record.value_text().unwrap().parse().unwrap())
        .collect();
    let undone: Vec<&u32> = found.iter().filter(|number| **number > 100).collect();
    assert!(undone.is_empty(), "these were rolled back: {undone:?}");
    assert_eq!(found, (1..=18).collect::<Vec<_>>());
    relay.sigterm();
    assert_eq!(relay.wait_exit(DEADLINE), 0);
    // From the beginning once more: the same.
    let mut again = bed.relay(
        &pipeline
            .replace("<topic>", "<name>.again")
            .replace("<start>", "earliest"),
    );
    again.start_with(&["--once"]);
    assert_eq!(again.wait_exit(DEADLINE), 0, "{}", again.log());
    bed.reader(&["again"]).exactly(18);
}
over_each!(what_is_undone_never_comes: mysql, mariadb);

/// What was handed on before its end can only be told.
#[test]
fn an_undone_transaction_that_was_too_large_to_be_held_halts_and_is_passed_at_the_operators_word() {
    let (bed, mut relay, _server) = own(Db::Mariadb, "");
    let mut app = bed.app();
    app.run("ALTER TABLE outbox ADD COLUMN pad LONGTEXT").unwrap();
    relay.start();
    relay.wait_ready();
    insert(&mut app, 1);
    let row = "(2, REPEAT('x', 1000000))";
    app.run(&format!(
        "BEGIN; INSERT INTO outbox (payload, pad) VALUES {}; CREATE TEMPORARY TABLE scratch (i INT); ROLLBACK",
        vec![row; 20].join(", ")
    ))
    .unwrap();
    insert(&mut app, 3);
    relay.wait_halted(&["took back rows", "published already", "--accept-gap"]);
    relay.start();
    relay.wait_halted(&["took back rows", "--accept-gap"]);
    relay.start_with(&["--accept-gap", "--once"]);
    assert_eq!(relay.wait_exit(DEADLINE), 0, "{}", relay.log());
    let mut reader = bed.reader(&["events"]);
    let of = |value: &str, records: &[crate::support::kafka::Record]| {
        records
            .iter()
            .filter(|record| record.value_text() == Some(value))
            .count()
    };
    let records = reader.all();
    assert_eq!((of("1", records), of("3", records)), (1, 1));
    assert!(of("2", records) <= 20, "{}", of("2", records));
}

fn all_that_may_stand_between_events_is_passed_over(db: Db) {
    let (bed, mut relay, _server) = own(db, "--local-infile=1");
    relay.start();
    relay.wait_ready();
    let mut app = bed.admin();
    insert(&mut app, 1);
    let user = format!("{}_between", bed.name);
    for statement in [
        "CREATE TEMPORARY TABLE scratch (payload INT)".to_owned(),
        "INSERT INTO scratch VALUES (2)".to_owned(),
        "INSERT INTO outbox (payload) SELECT payload FROM scratch".to_owned(),
        "DROP TEMPORARY TABLE scratch".to_owned(),
        // Its rows come as those of an INSERT, and its name is an outbox's.
        "CREATE TABLE made_outbox AS SELECT 3 AS payload".to_owned(),
        "CREATE TABLE made AS SELECT 3 AS payload".to_owned(),
        format!("CREATE USER '{user}'@'%' IDENTIFIED BY 'between-pw'"),
        format!("GRANT SELECT ON {}.* TO '{user}'@'%'", bed.name),
        format!("REVOKE SELECT ON {}.* FROM '{user}'@'%'", bed.name),
        format!("DROP USER '{user}'@'%'"),
        "CREATE VIEW seen AS SELECT * FROM outbox".to_owned(),
        "ALTER TABLE outbox ADD COLUMN more INT DEFAULT 7 FIRST".to_owned(),
        "INSERT INTO outbox (payload) VALUES (4)".to_owned(),
        "RENAME TABLE made TO renamed".to_owned(),
        "ANALYZE TABLE renamed".to_owned(),
        "OPTIMIZE TABLE renamed".to_owned(),
        "FLUSH TABLES".to_owned(),
        "FLUSH BINARY LOGS".to_owned(),
        "TRUNCATE TABLE renamed".to_owned(),
        "DROP TABLE renamed".to_owned(),
        "CREATE EVENT later ON SCHEDULE AT '2037-01-01 00:00:00' DO DELETE FROM outbox".to_owned(),
        "DROP EVENT later".to_owned(),
        "TRUNCATE TABLE outbox".to_owned(),
    ] {
        app.run(&statement)
            .unwrap_or_else(|error| panic!("{statement}: {error}"));
    }
    app.set_local_infile_handler(Some(LocalInfileHandler::new(|_, file| {
        use std::io::Write;
        write!(file, "5\n6\n7\n")
    })));
    app.run("LOAD DATA LOCAL INFILE 'rows' INTO TABLE outbox (payload)")
        .unwrap();
    relay.wait_published(7);
    assert_eq!(values(&bed, 7), ["1", "2", "3", "4", "5", "6", "7"]);
    assert_eq!(relay.skipped("outbox_truncate"), 1);
    assert_eq!(relay.skipped("statement_form"), 0, "{}", relay.log());
    assert_eq!(relay.skipped("unknown_event"), 0);
}
over_each!(all_that_may_stand_between_events_is_passed_over: mysql, mariadb);

fn a_number_that_blackhole_gives_again_leaves_events_with_ids_of_their_own(db: Db) {
    let (bed, mut relay, _server) = own(db, "");
    relay.start();
    relay.wait_ready();
    let mut app = bed.app();
    for payload in 0..3 {
        insert(&mut app, payload);
    }
    app.run("BEGIN; INSERT INTO outbox (payload) VALUES (3), (4); INSERT INTO outbox (payload) VALUES (5); COMMIT")
        .unwrap();
    relay.wait_published(6);
    relay.sigterm();
    assert_eq!(relay.wait_exit(DEADLINE), 0);
    let ids = |topic: &str| -> Vec<String> {
        let mut reader = bed.reader(&[topic]);
        let records = reader.exactly(6).iter();
        records
            .map(|record| record.header("df-event-id").unwrap().to_owned())
            .collect()
    };
    let derived = ids("events");
    let mut distinct = derived.clone();
    distinct.sort();
    distinct.dedup();
    assert_eq!(distinct.len(), 6, "{derived:?}");
    // The same event has the same id on another delivery.
    let pipeline = ANY_OUTBOX.replace("<topic>", "<name>.again");
    let mut again = bed.relay(&pipeline);
    again.start_with(&["--once"]);
    assert_eq!(again.wait_exit(DEADLINE), 0, "{}", again.log());
    assert_eq!(ids("again"), derived);
    // What is asked for is done: each statement begins at 1.
    let mapped = pipeline
        .replace("<name>.again", "<name>.mapped")
        .replace("raw_payload: true", "raw_payload: true, columns: {event_id: number}");
    let mut mapped = bed.relay(&mapped);
    mapped.start_with(&["--once"]);
    assert_eq!(mapped.wait_exit(DEADLINE), 0, "{}", mapped.log());
    assert_eq!(ids("mapped"), ["1", "1", "1", "1", "2", "1"]);
}
over_each!(a_number_that_blackhole_gives_again_leaves_events_with_ids_of_their_own: mysql, mariadb);
