//! An application that updates its outbox, and what the processor's `on_update` says of that.

use mysql::prelude::Queryable;

use crate::support::cli::tailpost;
use crate::support::mysql::{Engine, Flavor};
use crate::support::mysql_bed::MysqlBed;
use crate::support::relay::Relay;
use crate::support::{DEADLINE, Db, TestBed, over_each};

const PIPELINE: &str = "
apiVersion: tailpost/v1
kind: Pipeline
metadata: {name: <name>}
spec:
  source: {type: <type>, config: {<source>, outbox: {<outbox>}}}
  processors:
    - {type: outbox, topic: '<name>.events', raw_payload: true, on_update: <on_update>}
  sinks:
    - {type: kafka, config: {id: k1, brokers: '<brokers>'}}
  errors: {invalid: skip, unroutable: skip, rejected: skip}
";

fn pipeline(on_update: &str) -> String {
    PIPELINE
        .replace("<outbox>", "tables: [<schema>.outbox]")
        .replace("<on_update>", on_update)
}

/// A bed whose outbox has rows that can be updated.
enum Bed {
    Postgres(TestBed),
    Binlog(MysqlBed),
}

impl Bed {
    fn new(db: Db) -> Self {
        match db.flavor() {
            None => {
                let bed = TestBed::new();
                bed.app()
                    .batch_execute("CREATE TABLE outbox (number int PRIMARY KEY, payload text)")
                    .unwrap();
                Self::Postgres(bed)
            }
            Some(flavor) => {
                let bed = MysqlBed::new(flavor);
                bed.remake_outbox(Engine::Innodb);
                Self::Binlog(bed)
            }
        }
    }

    fn relay(&self, on_update: &str) -> Relay {
        match self {
            Self::Postgres(bed) => bed.relay(&pipeline(on_update)),
            Self::Binlog(bed) => bed.relay(&pipeline(on_update)),
        }
    }

    /// The pipeline's file with another word.
    fn rewrite(&self, relay: &mut Relay, on_update: &str) {
        let text = match self {
            Self::Postgres(bed) => bed.fill(&pipeline(on_update)),
            Self::Binlog(bed) => bed.fill(&pipeline(on_update)),
        };
        relay.rewrite(&text);
    }

    fn run(&self, statements: &[&str]) {
        for statement in statements {
            match self {
                Self::Postgres(bed) => bed.app().batch_execute(statement).unwrap(),
                Self::Binlog(bed) => bed.app().query_drop(statement).unwrap(),
            }
        }
    }

    fn values(&self, count: usize) -> Vec<String> {
        let plot = match self {
            Self::Postgres(bed) => &**bed,
            Self::Binlog(bed) => &**bed,
        };
        let mut reader = plot.reader(&["events"]);
        let records = reader.exactly(count).iter();
        records.map(|record| record.value_text().unwrap().to_owned()).collect()
    }
}

const THREE: &str = "INSERT INTO outbox (number, payload) VALUES (1, '1'), (2, '2'), (3, '3')";
const UPDATE: &str = "UPDATE outbox SET payload = '\"updated\"'";
const FOURTH: &str = "INSERT INTO outbox (number, payload) VALUES (4, '4')";

over_each!(by_warn_updates_are_counted_and_the_log_says_so_once);
fn by_warn_updates_are_counted_and_the_log_says_so_once(db: Db) {
    let bed = Bed::new(db);
    let mut relay = bed.relay("warn");
    relay.start();
    relay.wait_ready();
    bed.run(&[THREE, UPDATE, "DELETE FROM outbox WHERE number = 1", FOURTH]);
    // PostgreSQL leaves out what the publication does.
    let deleted = u64::from(db != Db::Postgres);
    relay.wait_settled(7 + deleted);
    assert_eq!(relay.published(), 4);
    let reasons = ["outbox_update", "outbox_delete", "invalid"];
    assert_eq!(reasons.map(|reason| relay.skipped(reason)), [3, deleted, 0]);
    assert_eq!(bed.values(4), ["1", "2", "3", "4"]);
    let line = relay.wait_log("it was updated");
    for text in [
        "WARN",
        ".outbox`",
        "event skipped",
        "outbox_update",
        "`on_update: skip`",
    ] {
        assert!(line.contains(text), "`{text}` is not in {line}");
    }
    assert_eq!(relay.count_log("it was updated"), 1);
}

over_each!(by_halt_an_update_ends_it_exactly_there);
fn by_halt_an_update_ends_it_exactly_there(db: Db) {
    let bed = Bed::new(db);
    let mut relay = bed.relay("halt");
    relay.start();
    relay.wait_ready();
    bed.run(&[THREE, UPDATE, FOURTH]);
    let texts = [
        ".outbox`",
        "it was updated",
        "`on_update: warn`",
        "policy on_update: halt",
    ];
    relay.wait_halted(&texts);
    relay.start();
    relay.wait_halted(&texts);
    assert_eq!(bed.values(3), ["1", "2", "3"]);
    bed.rewrite(&mut relay, "skip");
    relay.start();
    relay.wait_published(1);
    assert_eq!(relay.skipped("outbox_update"), 3);
    assert_eq!(bed.values(4), ["1", "2", "3", "4"]);
}

#[test]
fn an_update_over_the_source_s_limit_and_one_in_statement_form_halt_too() {
    for statements in [
        "UPDATE outbox SET payload = CONCAT('\"', REPEAT('x', 2000000), '\"')",
        "SET SESSION binlog_format = STATEMENT; UPDATE outbox SET payload = '0'",
    ] {
        let bed = MysqlBed::new(Flavor::Mysql);
        bed.remake_outbox(Engine::Innodb);
        let limited = pipeline("halt").replace("<source>,", "<source>, max_message_bytes: 1MiB,");
        let mut relay = bed.relay(&limited);
        relay.start();
        relay.wait_ready();
        let mut admin = bed.admin();
        admin.query_drop(format!("USE `{}`", bed.name)).unwrap();
        admin.query_drop("INSERT INTO outbox (payload) VALUES ('1')").unwrap();
        for statement in statements.split("; ") {
            admin.query_drop(statement).unwrap();
        }
        relay.wait_halted(&[".outbox`", "it was updated"]);
    }
}

#[test]
fn a_publication_that_was_made_for_inserts_is_told_of_and_sees_no_updates() {
    let bed = Bed::new(Db::Postgres);
    let mut relay = bed.relay("skip");
    relay.start();
    relay.wait_ready();
    relay.sigterm();
    assert_eq!(relay.wait_exit(DEADLINE), 0);
    bed.rewrite(&mut relay, "halt");
    relay.start();
    relay.wait_ready();
    bed.run(&[THREE, UPDATE, FOURTH]);
    relay.wait_published(4);
    let says = ["`on_update` has no effect", "SET (publish = 'insert, update')"];
    let line = relay.wait_log(says[0]);
    assert!(line.contains(says[1]), "{line}");
    let ended = tailpost(["check".as_ref(), relay.pipeline_file().as_os_str()]);
    for text in says {
        assert!(ended.stdout.contains(text), "`{text}` is not in {}", ended.stdout);
    }
}

#[test]
fn a_table_whose_updates_would_fail_then_is_refused() {
    let bed = TestBed::new();
    bed.app()
        .batch_execute("CREATE TABLE outbox (number int, payload text)")
        .unwrap();
    let with = |on_update| bed.relay(&pipeline(on_update));
    let line = with("warn").fails();
    for text in ["\"outbox\"", "no replica identity", "add a primary key", "`on_update`"] {
        assert!(line.contains(text), "`{text}` is not in {line}");
    }
    let mut relay = with("skip");
    relay.start();
    relay.wait_ready();
    bed.app()
        .batch_execute("INSERT INTO outbox VALUES (1, '1'); UPDATE outbox SET number = 2")
        .unwrap();
    relay.wait_published(1);
}
