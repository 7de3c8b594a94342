//! What rows of MySQL and MariaDB become: every type, outbox payloads, altered tables, the native envelope.

mod cases;
mod envelope;
mod halts;
mod payloads;
mod schema;
mod types;

use std::collections::BTreeMap;

use mysql::prelude::Queryable;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::support::kafka::Record;
use crate::support::mysql::Script;
use crate::support::mysql_bed::MysqlBed;
use crate::support::relay::Relay;
use crate::support::{DEADLINE, Db};

/// Every table of the bed's database in the native envelope.
const TABLES: &str = "
apiVersion: tailpost/v1
kind: Pipeline
metadata: {name: <name>}
spec:
  source: {type: <type>, config: {<source>, tables: ['<schema>.*']}}
  sinks:
    - {type: kafka, config: {id: k1, brokers: '<brokers>', topic: '<topic>'}}
";

/// The tables named `*_outbox`, payloads as they are.
const OUTBOXES: &str = "
apiVersion: tailpost/v1
kind: Pipeline
metadata: {name: <name>}
spec:
  source: {type: <type>, config: {<source>, outbox: {tables: ['<schema>.*_outbox']}}}
  processors:
    - {type: outbox, topic: '<topic>', raw_payload: true}
  sinks:
    - {type: kafka, config: {id: k1, brokers: '<brokers>'}}
";

/// [`TABLES`] of one table.
fn only(table: &str) -> String {
    TABLES.replace("<schema>.*", &format!("<schema>.{table}"))
}

/// A bed on one of the two shared servers.
fn bed(db: Db) -> MysqlBed {
    MysqlBed::new(db.flavor().expect("a server with a binlog"))
}

/// The server's version as a number: 80030 of 8.0.30.
fn version(bed: &MysqlBed) -> u32 {
    let version: String = bed.app().query_first("SELECT VERSION()").unwrap().unwrap();
    let mut numbers = version
        .split(['.', '-'])
        .map(|number| number.parse::<u32>().unwrap_or(0));
    (0..3).fold(0, |version, _| version * 100 + numbers.next().unwrap_or(0))
}

/// The application does what these statements say, each a transaction.
fn run(bed: &MysqlBed, statements: &str) {
    bed.app().run(statements).unwrap();
}

/// One life, up to the log's end.
fn catch_up(relay: &mut Relay) {
    relay.start_with(&["--once"]);
    let code = relay.wait_exit(DEADLINE);
    assert_eq!(code, 0, "{}", relay.log());
}

/// Relays what was written since the bed was made. Gives the records in order.
fn relayed(bed: &MysqlBed, pipeline: &str, count: usize) -> Vec<Record> {
    catch_up(&mut bed.relay(pipeline));
    bed.reader(&["events"]).exactly(count).to_vec()
}

fn envelopes(records: &[Record]) -> Vec<Value> {
    let parse = |record: &Record| serde_json::from_str(record.value_text().unwrap()).unwrap();
    records.iter().map(parse).collect()
}

/// The new row of each.
fn after(records: &[Record]) -> Vec<Value> {
    envelopes(records)
        .into_iter()
        .map(|mut envelope| envelope["after"].take())
        .collect()
}

fn keys(records: &[Record]) -> Vec<Option<&str>> {
    records.iter().map(Record::key_text).collect()
}

/// An envelope's `before` or `after`, each cell as it stands there.
fn cells(record: &Record, side: &str) -> Option<BTreeMap<String, Box<RawValue>>> {
    let text = record.value_text().expect("an envelope");
    let envelope: BTreeMap<String, Box<RawValue>> = serde_json::from_str(text).expect("an object");
    serde_json::from_str(envelope[side].get()).expect("an object or null")
}
