//! Streams as servers send them, of a fixed content, and the pipelines that read them.

use std::path::{Path, PathBuf};

use bytes::{BufMut, Bytes, BytesMut};
use tailpost::config::{self, Pipeline, ProcessEnvironment};

/// Events of a transaction of PostgreSQL; the captured one of MySQL has 25.
const IN_TRANSACTION: u64 = 100;
const RELATION: u32 = 16_384;
const TEXT: u32 = 25;
/// Columns of the outbox table.
const COLUMNS: [&str; 5] = ["id", "aggregate_type", "aggregate_id", "event_type", "payload"];
/// Of an event of the binlog.
const HEADER_BYTES: usize = 19;
const CHECKSUM_BYTES: usize = 4;

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/micro").join(name)
}

/// The pipeline of this name, without its servers.
pub(crate) fn pipeline(name: &str) -> Pipeline {
    match config::load(&file(name), &ProcessEnvironment) {
        Ok(loaded) => loaded.pipeline,
        Err(error) => panic!("{error}"),
    }
}

/// The payload of an event.
pub(crate) fn payload(number: u64) -> String {
    format!(r#"{{"n":{number},"paid":true,"note":"{}"}}"#, "x".repeat(150))
}

/// An outbox message, of about 270 bytes.
pub(crate) fn message(number: u64) -> String {
    format!(
        r#"{{"id":"{number:09}","aggregate_type":"Order","aggregate_id":{},"event_type":"Placed","payload":{}}}"#,
        number * 37 % 1000,
        payload(number)
    )
}

/// The frames of a replication stream of PostgreSQL.
struct Frames {
    out: BytesMut,
    lsn: u64,
}

impl Frames {
    /// One message of the output plugin.
    fn push(&mut self, message: &[u8]) {
        self.lsn += 100;
        self.out.put_u8(b'd');
        self.out.put_u32(4 + 25 + message.len() as u32);
        self.out.put_u8(b'w');
        self.out.put_u64(self.lsn);
        self.out.put_u64(self.lsn);
        self.out.put_i64(0);
        self.out.put_slice(message);
    }

    fn transaction(&mut self, xid: u32, changes: impl Iterator<Item = Vec<u8>>) {
        // Larger than any change's, as the protocol has it.
        let commit = self.lsn + 1_000_000;
        let mut begin = vec![b'B'];
        begin.put_u64(commit);
        begin.put_i64(0);
        begin.put_u32(xid);
        self.push(&begin);
        for change in changes {
            self.push(&change);
        }
        let mut end = vec![b'C', 0];
        end.put_u64(commit);
        end.put_u64(commit + 50);
        end.put_i64(0);
        self.push(&end);
        self.lsn = commit + 50;
    }
}

/// `events` changes in transactions; `head` comes before the first.
fn stream(events: u64, head: &[u8], change: impl Fn(u64, u64) -> Vec<u8>) -> BytesMut {
    let (out, lsn) = (BytesMut::new(), 0);
    let mut frames = Frames { out, lsn };
    if !head.is_empty() {
        frames.push(head);
    }
    for transaction in 0..events / IN_TRANSACTION {
        let first = transaction * IN_TRANSACTION;
        let lsn = frames.lsn + 100;
        let changes = (first..first + IN_TRANSACTION).map(|number| change(number, lsn + (number - first) * 100));
        frames.transaction(transaction as u32 + 700, changes);
    }
    frames.out
}

/// Outbox messages of `pg_logical_emit_message`.
pub(crate) fn postgres_messages(events: u64) -> BytesMut {
    stream(events, &[], |number, lsn| {
        let content = message(number);
        let mut change = vec![b'M', 1];
        change.put_u64(lsn);
        change.put_slice(b"outbox\0");
        change.put_u32(content.len() as u32);
        change.put_slice(content.as_bytes());
        change
    })
}

/// Rows inserted into an outbox table.
pub(crate) fn postgres_rows(events: u64) -> BytesMut {
    let mut relation = vec![b'R'];
    relation.put_u32(RELATION);
    relation.put_slice(b"public\0outbox\0d");
    relation.put_u16(COLUMNS.len() as u16);
    for (at, column) in COLUMNS.iter().enumerate() {
        relation.put_u8(u8::from(at == 0));
        relation.put_slice(column.as_bytes());
        relation.put_u8(0);
        relation.put_u32(TEXT);
        relation.put_i32(-1);
    }
    stream(events, &relation, |number, _| {
        let mut change = vec![b'I'];
        change.put_u32(RELATION);
        change.put_u8(b'N');
        change.put_u16(COLUMNS.len() as u16);
        let id = format!("order-{}", number * 37 % 1000);
        for cell in [&number.to_string(), "Order", &id, "OrderPlaced", &payload(number)] {
            change.put_u8(b't');
            change.put_u32(cell.len() as u32);
            change.put_slice(cell.as_bytes());
        }
        change
    })
}

/// Events of a binlog: the captured transaction again and again, each time with a GTID of its own, until there are so many
/// rows.
pub(crate) fn mysql_rows(rows: u64) -> Vec<Bytes> {
    let captured = std::fs::read_to_string(file("transaction.mysql.txt")).expect("the captured transaction");
    let mut events = captured.lines().filter_map(|line| line.strip_prefix("E "));
    let mut next = || {
        let (kind, digits) = events.next()?.split_once(' ')?;
        Some((kind, unhex(digits)))
    };
    let Some(("FORMAT_DESCRIPTION", format)) = next() else {
        panic!("the capture begins with its format");
    };
    let transaction: Vec<(&str, Bytes)> = std::iter::from_fn(next).collect();
    let mut log = vec![format];
    for number in 1..=rows / 25 {
        for (kind, event) in &transaction {
            log.push(match *kind {
                "GTID" => with_number(event, number),
                _ => event.clone(),
            });
        }
    }
    log
}

/// A GTID event with another number: behind its flags and the server's UUID.
fn with_number(event: &Bytes, number: u64) -> Bytes {
    let mut event = event.to_vec();
    let at = HEADER_BYTES + 1 + 16;
    event[at..at + 8].copy_from_slice(&number.to_le_bytes());
    let end = event.len() - CHECKSUM_BYTES;
    let checksum = crc32fast::hash(&event[..end]);
    event[end..].copy_from_slice(&checksum.to_le_bytes());
    event.into()
}

fn unhex(digits: &str) -> Bytes {
    let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).expect("hexadecimal digits");
    (0..digits.len()).step_by(2).map(byte).collect()
}
