//! Binlogs that are compressed: the same events, and nothing larger in memory than without.

use mysql::prelude::Queryable;

use crate::support::DEADLINE;
use crate::support::binlog::Binlog;
use crate::support::kafka::Record;
use crate::support::mysql::Script;
use crate::support::mysql_bed::MysqlBed;
use crate::support::relay::Relay;
use crate::support::server::OwnServer;

const PIPELINE: &str = "
apiVersion: tailpost/v1
kind: Pipeline
metadata: {name: <name>}
spec:
  source: {type: mysql, config: {<source>, max_message_bytes: 1MiB, tables: [<name>.orders], outbox: {tables: ['<name>.*outbox']}}}
  processors:
    - {type: outbox, topic: '<topic>', raw_payload: true}
  sinks:
    - {type: kafka, config: {id: k1, brokers: '<brokers>', topic: '<topic>'}}
  errors: {rejected: skip}
";

/// A bed with payloads of any size, and a table whose rows are events too.
fn own(binlog: Binlog, options: &str) -> (MysqlBed, Relay, OwnServer) {
    let (bed, server) = binlog.own_with(options);
    bed.app()
        .run(
            "ALTER TABLE outbox MODIFY payload LONGTEXT;
             CREATE TABLE kept_outbox LIKE outbox; ALTER TABLE kept_outbox ENGINE = InnoDB;
             CREATE TABLE orders (id INT PRIMARY KEY, note TEXT);
             CREATE TABLE neighbour (i INT AUTO_INCREMENT PRIMARY KEY, pad LONGTEXT)",
        )
        .unwrap();
    let relay = bed.relay(PIPELINE);
    (bed, relay, server)
}

/// Rows of each kind, compressible and not; some are nobody's and some over the limit, which come out as nothing.
const WRITES: &str = "
    BEGIN;
    INSERT INTO outbox (aggregate_id, payload) VALUES ('a', REPEAT('x', 300)), ('b', REPEAT('y', 300)), ('c', '');
    INSERT INTO neighbour (pad) VALUES (REPEAT('n', 3000000)), ('n');
    INSERT INTO kept_outbox (aggregate_id, payload) VALUES ('d', REPEAT('z', 900000)), ('e', 'small');
    INSERT INTO outbox (aggregate_id, payload) VALUES ('too large', REPEAT('w', 3000000));
    INSERT INTO outbox (aggregate_id, payload) VALUES ('f', 'behind it');
    COMMIT;
    INSERT INTO outbox (aggregate_id, payload) VALUES ('alone', REPEAT('v', 300));
    INSERT INTO kept_outbox (aggregate_id, payload) VALUES ('too large alone', REPEAT('w', 1100000));
    INSERT INTO outbox (aggregate_id, payload) VALUES ('hardly', RANDOM_BYTES_TEXT);
    INSERT INTO orders VALUES (1, REPEAT('note', 100)), (2, REPEAT('note', 200));
    UPDATE orders SET note = REPEAT('changed', 100);
    DELETE FROM orders;
    DELETE FROM kept_outbox;
    UPDATE outbox SET aggregate_id = 'nothing';
    TRUNCATE TABLE kept_outbox;
";
/// Events of it, and those over the limit.
const EVENTS: u64 = 7 + 1 + 6;
const REJECTED: u64 = 2;

fn writes() -> String {
    WRITES.replace("RANDOM_BYTES_TEXT", "TO_BASE64(UNHEX(SHA2('a', 512)))")
}

/// What a record says, without where and when it was.
fn content(record: &Record) -> (Option<String>, String) {
    let value = record.value_text().unwrap();
    // Of an envelope, what the row was and is.
    let value = match serde_json::from_str::<serde_json::Value>(value) {
        Ok(envelope) if envelope.get("op").is_some() => {
            format!("{} {} {}", envelope["op"], envelope["before"], envelope["after"])
        }
        _ => value.to_owned(),
    };
    (record.key_text().map(str::to_owned), value)
}

/// All that this script's writes come to.
fn relayed(bed: &MysqlBed, relay: &mut Relay, script: &str, seen: usize) -> Vec<(Option<String>, String)> {
    relay.start();
    relay.wait_ready();
    bed.admin()
        .run(script)
        .unwrap_or_else(|error| panic!("{script}: {error}"));
    relay.wait_published(EVENTS);
    let mut reader = bed.reader(&["events"]);
    let records = &reader.exactly(seen + EVENTS as usize)[seen..];
    let contents = records.iter().map(content).collect();
    assert_eq!(relay.skipped("rejected"), REJECTED);
    assert_eq!(relay.skipped("outbox_delete"), 3);
    relay.sigterm();
    assert_eq!(relay.wait_exit(DEADLINE), 0);
    contents
}

/// How many events of this kind the newest binlog file has.
fn count_events(bed: &MysqlBed, kind: &str) -> usize {
    let mut admin = bed.admin();
    let files: Vec<mysql::Row> = admin.query("SHOW BINARY LOGS").unwrap();
    let file: String = files.last().expect("a file").get(0).unwrap();
    let events: Vec<mysql::Row> = admin.query(format!("SHOW BINLOG EVENTS IN '{file}'")).unwrap();
    events
        .iter()
        .filter(|event| event.get::<String, _>(2).unwrap() == kind)
        .count()
}

#[test]
fn compressed_transactions_of_mysql_come_to_the_same_events() {
    for binlog in [Binlog::Gtids, Binlog::Files] {
        let (bed, mut relay, _server) = own(binlog, "");
        let plain = relayed(&bed, &mut relay, &writes(), 0);
        let mut seen = plain.len();
        for (number, settings) in [
            "SET SESSION binlog_transaction_compression = ON",
            "SET SESSION binlog_transaction_compression = ON, binlog_transaction_compression_level_zstd = 22",
            "SET GLOBAL binlog_transaction_compression = ON; SET SESSION binlog_transaction_compression = ON",
        ]
        .iter()
        .enumerate()
        {
            println!("{settings}");
            bed.admin().run("FLUSH BINARY LOGS").unwrap();
            let script = format!("{settings}; {}", writes());
            assert_eq!(relayed(&bed, &mut relay, &script, seen), plain);
            seen += plain.len();
            assert!(
                count_events(&bed, "Transaction_payload") > 5,
                "{number}: nothing was compressed"
            );
        }
        // All of it once more, plain and compressed, by a reader that comes later.
        relay.start_with(&["--from-slot", "--once"]);
        assert_eq!(relay.wait_exit(DEADLINE), 0, "{}", relay.log());
        bed.reader(&["events"]).exactly(2 * seen);
    }
}

#[test]
fn compressed_rows_and_statements_of_mariadb_come_to_the_same_events() {
    let (bed, mut relay, _server) = own(Binlog::Mariadb, "");
    let plain = relayed(&bed, &mut relay, &writes(), 0);
    bed.admin()
        .run("SET GLOBAL log_bin_compress = ON; FLUSH BINARY LOGS")
        .unwrap();
    assert_eq!(relayed(&bed, &mut relay, &writes(), plain.len()), plain);
    for kind in [
        "Write_rows_compressed_v1",
        "Update_rows_compressed_v1",
        "Delete_rows_compressed_v1",
    ] {
        assert!(count_events(&bed, kind) > 0, "no {kind}");
    }
    relay.start_with(&["--from-slot", "--once"]);
    assert_eq!(relay.wait_exit(DEADLINE), 0, "{}", relay.log());
    bed.reader(&["events"]).exactly(4 * plain.len());

    // A statement that is compressed is one all the same.
    relay.start();
    relay.wait_ready();
    let mut wrong = bed.admin();
    wrong.run("SET SESSION binlog_format = STATEMENT").unwrap();
    wrong
        .run(&format!("INSERT INTO outbox (payload) VALUES ('{}')", "s".repeat(3000)))
        .unwrap();
    relay.wait_halted(&["`INSERT`", &format!("table `{}.outbox`", bed.name)]);
    assert!(count_events(&bed, "Query_compressed") > 0);
}

/// More rows than the reader takes at once, in one compressed transaction, and a stop in it: one row in the middle has a topic
/// that is not there before the stop, so nothing gets past it.
#[test]
fn a_stop_inside_a_compressed_transaction_repeats_only_what_was_not_saved() {
    let (bed, mut relay, _server) = own(Binlog::Gtids, "");
    let gated = PIPELINE
        .replace(
            "{type: outbox, topic: '<topic>',",
            "{type: outbox, topic: '<name>.${event_type}', default_topic: '<topic>',",
        )
        .replace(
            "topic: '<topic>'}}",
            "topic: '<topic>', client_conf: {allow.auto.create.topics: false}}}",
        );
    relay.rewrite(&bed.fill(&format!(
        "{gated}\n  delivery: {{max_in_flight_events: 100, drain_timeout: 1s}}"
    )));
    bed.kafka.create_topic(&bed.events(), 1, &[]);
    relay.start();
    relay.wait_ready();
    // More than is held until its end.
    const COUNT: usize = 10_000;
    let rows = |from: usize, to: usize| {
        let rows: Vec<String> = (from..to)
            .map(|number| format!("(RPAD({number}, 2000, ' '))"))
            .collect();
        format!("INSERT INTO outbox (payload) VALUES {}", rows.join(","))
    };
    let (first, second) = (rows(0, COUNT / 2), rows(COUNT / 2, COUNT));
    bed.admin()
        .run(&format!(
            "SET SESSION binlog_transaction_compression = ON; BEGIN; {first}; \
             INSERT INTO kept_outbox (event_type, payload) VALUES ('gate', 'middle'); {second}; COMMIT"
        ))
        .unwrap();
    crate::support::eventually(DEADLINE, "a place inside saved", || {
        relay.saved_mysql().is_some_and(|saved| !saved.partial.is_empty())
    });
    relay.sigkill();
    let saved = relay.saved_mysql().unwrap();
    let done: u64 = saved.partial.iter().flat_map(|partial| partial.rows.0.values()).sum();
    let before = bed.reader(&["events"]).all().len();
    assert!(done > 0 && before <= COUNT / 2, "{done} done, {before} came");
    bed.kafka.create_topic(&bed.topic("gate"), 1, &[]);
    relay.start();
    let number_of = |record: &Record| record.value_text().unwrap().trim_end().parse::<usize>().unwrap();
    let mut reader = bed.reader(&["events"]);
    reader.until("the last", |records| {
        records.last().is_some_and(|record| number_of(record) == COUNT - 1)
    });
    let mut times = vec![0_u32; COUNT];
    for record in reader.all() {
        times[number_of(record)] += 1;
    }
    assert_eq!(times.iter().filter(|times| **times == 0).count(), 0, "lost");
    let repeated_early = times[..done as usize].iter().filter(|times| **times > 1).count();
    assert_eq!(repeated_early, 0, "saved and came again");
    assert_eq!(bed.reader(&["gate"]).exactly(1)[0].value_text(), Some("middle"));
}
