//! A binlog of made-up transactions, and a server that sends it from wherever it is asked to.

use bytes::Bytes;

use super::super::binlog::EventKind;
use super::*;
use crate::gtid::{Gtid, MariadbGtid, SourceId, Tag};
use crate::position::{ByFile, ServerIdentity, TransactionId};

pub(super) const SERVER: u32 = 7;
const UUID: SourceId = SourceId([0x5a; 16]);
pub(super) const COMMIT_US: i64 = 1_700_000_000_000_000;

/// How the log's transactions are named, and with it how a place in it is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Naming {
    Gtids,
    File,
    Mariadb,
}

pub(super) const NAMINGS: [Naming; 3] = [Naming::Gtids, Naming::File, Naming::Mariadb];

/// Tables `s.outbox` and `s.orders` are the pipeline's, `s.other` is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Table {
    Outbox,
    Orders,
    Other,
}

impl Table {
    fn id(self) -> u64 {
        100 + self as u64
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Outbox => "outbox",
            Self::Orders => "orders",
            Self::Other => "other",
        }
    }
}

/// Rows of one event.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rows {
    pub(super) table: Table,
    pub(super) kind: EventKind,
    pub(super) count: u8,
}

/// What is in the log, in its order.
#[derive(Debug, Clone)]
pub(super) enum Item {
    Transaction {
        rows: Vec<Rows>,
        domain: u32,
        compressed: bool,
    },
    /// An XA transaction that is prepared, and how many items later its outcome comes: None, never.
    Prepared {
        rows: Vec<Rows>,
        outcome: Option<(usize, bool)>,
    },
    /// A transaction with rows that it takes back, before others.
    Undone {
        undone: Vec<Rows>,
        rows: Vec<Rows>,
    },
    Statement(String),
    Rotate,
}

/// Events that belong together.
#[derive(Debug, Clone)]
pub(super) struct LogGroup {
    pub(super) id: TransactionId,
    pub(super) start: BinlogPlace,
    pub(super) end: BinlogPlace,
    pub(super) events: Vec<Bytes>,
}

/// The whole log.
#[derive(Debug)]
pub(super) struct Log {
    pub(super) naming: Naming,
    pub(super) groups: Vec<LogGroup>,
    /// Numbers of the rows that are to come out, in their order.
    pub(super) expected: Vec<i32>,
    next: u64,
    place: BinlogPlace,
    row: i32,
}

impl Log {
    pub(super) fn new(naming: Naming, items: &[Item]) -> Self {
        let mut log = Self {
            naming,
            groups: Vec::new(),
            expected: Vec::new(),
            next: 1,
            place: BinlogPlace {
                file: "binlog.999999".into(),
                pos: 200,
            },
            row: 0,
        };
        let mut due: Vec<(usize, String, Vec<i32>, bool)> = Vec::new();
        for (at, item) in items.iter().enumerate() {
            log.item(at, item, &mut due);
            let (now, later): (Vec<_>, Vec<_>) = due.drain(..).partition(|(when, ..)| *when <= at);
            due = later;
            for (_, xid, rows, commit) in now {
                let verb = if commit { "COMMIT" } else { "ROLLBACK" };
                log.group(0, 0, &[query(&format!("XA {verb} X'{xid}',X'',1"))], None);
                if commit {
                    log.expected.extend(rows);
                }
            }
        }
        log
    }

    fn item(&mut self, at: usize, item: &Item, due: &mut Vec<(usize, String, Vec<i32>, bool)>) {
        match item {
            Item::Rotate => {
                let next = self.place.file_number() + 1;
                self.place = BinlogPlace {
                    file: format!("binlog.{next}").into(),
                    pos: 200,
                };
            }
            Item::Statement(text) => self.group(0, 1, &[query(text)], None),
            Item::Transaction {
                rows,
                domain,
                compressed,
            } => {
                let (mut events, seen) = self.rows(rows);
                self.expected.extend(seen);
                if self.naming != Naming::Mariadb {
                    events.insert(0, query("BEGIN"));
                }
                events.push(Plain::new(EventKind::XID, 5_u64.to_le_bytes()));
                if *compressed && self.naming != Naming::Mariadb {
                    events = vec![payload(&events)];
                }
                self.group(*domain, 0, &events, None);
            }
            Item::Undone { undone, rows } => {
                let mut events = vec![query("SAVEPOINT `a`")];
                if self.naming != Naming::Mariadb {
                    events.insert(0, query("BEGIN"));
                }
                events.extend(self.rows(undone).0);
                events.push(query("ROLLBACK TO `a`"));
                let (rows, seen) = self.rows(rows);
                events.extend(rows);
                events.push(query("COMMIT"));
                self.expected.extend(seen);
                self.group(0, 0, &events, None);
            }
            Item::Prepared { rows, outcome } => {
                let xid = format!("{at:04x}");
                let (mut events, seen) = self.rows(rows);
                if self.naming != Naming::Mariadb {
                    events.insert(0, query(&format!("XA START X'{xid}',X'',1")));
                }
                events.push(query(&format!("XA END X'{xid}',X'',1")));
                let gtrid = at as u16;
                let mut body = vec![0_u8];
                for part in [1_u32, 2, 0] {
                    body.extend(part.to_le_bytes());
                }
                body.extend(gtrid.to_be_bytes());
                events.push(Plain::new(EventKind::XA_PREPARE, body));
                self.group(0, 0x40, &events, Some(gtrid));
                if let Some((later, commit)) = outcome {
                    due.push((at + later, xid, seen, *commit));
                }
            }
        }
    }

    /// Events of these rows, and the numbers of those that are events of ours.
    fn rows(&mut self, rows: &[Rows]) -> (Vec<Plain>, Vec<i32>) {
        let (mut events, mut seen) = (Vec::new(), Vec::new());
        for Rows { table, kind, count } in rows {
            events.push(table_map(*table));
            let mut body = Vec::new();
            body.extend(&table.id().to_le_bytes()[..6]);
            body.extend(1_u16.to_le_bytes());
            body.extend(2_u16.to_le_bytes());
            body.extend([1, 0xFF]);
            let is_update = *kind == EventKind::UPDATE_ROWS;
            if is_update {
                body.push(0xFF);
            }
            for _ in 0..*count {
                self.row += 1;
                if is_update {
                    body.push(0);
                    body.extend(0_i32.to_le_bytes());
                }
                body.push(0);
                body.extend(self.row.to_le_bytes());
                let no_event = *table == Table::Outbox && *kind != EventKind::WRITE_ROWS;
                if *table != Table::Other && !no_event {
                    seen.push(self.row);
                }
            }
            events.push(Plain::new(*kind, body));
        }
        (events, seen)
    }

    /// Puts a GTID in front and gives each event its place. `flags` are MariaDB's.
    fn group(&mut self, domain: u32, flags: u8, events: &[Plain], xid: Option<u16>) {
        let number = self.next;
        self.next += 1;
        let start = self.place.clone();
        let (head, id) = match self.naming {
            Naming::Gtids => (
                gtid_event(EventKind::GTID, number),
                TransactionId::Gtid(Gtid::new(UUID, Tag::NONE, number).unwrap()),
            ),
            Naming::File => (
                gtid_event(EventKind::ANONYMOUS_GTID, 0),
                TransactionId::Place {
                    file: start.file.clone(),
                    pos: start.pos,
                },
            ),
            Naming::Mariadb => {
                let mut data = number.to_le_bytes().to_vec();
                data.extend(domain.to_le_bytes());
                data.push(flags);
                match xid {
                    Some(xid) => {
                        data.extend(1_u32.to_le_bytes());
                        data.extend([2, 0]);
                        data.extend(xid.to_be_bytes());
                    }
                    None => data.extend([0; 6]),
                }
                let id = TransactionId::Mariadb(MariadbGtid {
                    domain,
                    server: SERVER,
                    sequence: number,
                });
                (Plain::new(EventKind::MARIADB_GTID, data), id)
            }
        };
        let mut bytes = Vec::new();
        for event in std::iter::once(&head).chain(events) {
            self.place.pos += event.len();
            bytes.push(event.bytes(u32::try_from(self.place.pos).unwrap()));
        }
        self.groups.push(LogGroup {
            id,
            start,
            end: self.place.clone(),
            events: bytes,
        });
    }

    /// Before everything.
    pub(super) fn beginning(&self) -> MysqlPosition {
        MysqlPosition {
            server: ServerIdentity { uuid: None, id: SERVER },
            base: match self.naming {
                Naming::Gtids => MysqlBase::Gtids(crate::gtid::GtidSet::new()),
                Naming::File => MysqlBase::File(ByFile),
                Naming::Mariadb => MysqlBase::Mariadb(MariadbGtids::new()),
            },
            place: BinlogPlace {
                file: "binlog.999999".into(),
                pos: 4,
            },
            partial: Vec::new(),
            reread: None,
        }
    }

    /// What the server sends to a reader that begins there.
    pub(super) fn send(&self, from: &MysqlPosition) -> Vec<Bytes> {
        let (base, place) = from.begin();
        let mut file = match base {
            MysqlBase::File(_) => place.file.clone(),
            _ => "binlog.999999".into(),
        };
        let first = match base {
            MysqlBase::File(_) => place.pos,
            _ => 4,
        };
        let mut sent = vec![rotate(&file, first), self.format()];
        let mut reached: Vec<u32> = Vec::new();
        for group in &self.groups {
            let wanted = match (base, &group.id) {
                (MysqlBase::Gtids(set), TransactionId::Gtid(gtid)) => !set.contains(gtid),
                (MysqlBase::Mariadb(base), TransactionId::Mariadb(gtid)) => match base.get(gtid.domain) {
                    Some(last) if last == *gtid => {
                        reached.push(gtid.domain);
                        false
                    }
                    Some(_) => reached.contains(&gtid.domain),
                    None => true,
                },
                _ => group.start.log_place() >= place.log_place(),
            };
            if group.start.file != file {
                file = group.start.file.clone();
                if group.start.file_number() >= place.file_number() || !matches!(base, MysqlBase::File(_)) {
                    sent.push(rotate(&file, 4));
                    sent.push(self.format());
                }
            }
            if wanted {
                sent.extend(group.events.iter().cloned());
            }
        }
        if let Some(last) = self.groups.last() {
            let low = u32::try_from(last.end.pos).unwrap();
            sent.push(Plain::new(EventKind::HEARTBEAT, last.end.file.as_bytes()).bytes(low));
        }
        sent
    }

    fn format(&self) -> Bytes {
        let mut lens = vec![0_u8; 171];
        for (kind, len) in [
            (EventKind::QUERY, 13),
            (EventKind::ROTATE, 8),
            (EventKind::FORMAT_DESCRIPTION, 99),
            (EventKind::TABLE_MAP, 8),
            (EventKind::WRITE_ROWS, 10),
            (EventKind::UPDATE_ROWS, 10),
            (EventKind::DELETE_ROWS, 10),
            (EventKind::INCIDENT, 2),
            (EventKind::MARIADB_GTID, 19),
        ] {
            lens[usize::from(kind.0) - 1] = len;
        }
        let version = if self.naming == Naming::Mariadb {
            "11.8.9-MariaDB-log"
        } else {
            "8.4.0"
        };
        let mut data = 4_u16.to_le_bytes().to_vec();
        data.extend(version.as_bytes());
        data.resize(2 + 50, 0);
        data.extend([0; 4]);
        data.push(19);
        data.extend(lens);
        // No checksums, and room for the event's own.
        data.push(0);
        let plain = Plain::new(EventKind::FORMAT_DESCRIPTION, [data.as_slice(), &[0; 4]].concat());
        let mut bytes = plain.bytes(0).to_vec();
        let end = bytes.len() - 4;
        let crc = crc32fast::hash(&bytes[..end]);
        bytes[end..].copy_from_slice(&crc.to_le_bytes());
        bytes.into()
    }
}

/// An event that has no place yet.
#[derive(Debug, Clone)]
pub(super) struct Plain {
    kind: EventKind,
    data: Vec<u8>,
}

impl Plain {
    pub(super) fn new(kind: EventKind, data: impl Into<Vec<u8>>) -> Self {
        Self {
            kind,
            data: data.into(),
        }
    }

    fn len(&self) -> u64 {
        19 + self.data.len() as u64
    }

    /// `next` is where the event ends; 0: it is in no file.
    pub(super) fn bytes(&self, next: u32) -> Bytes {
        let mut bytes = 1_600_000_000_u32.to_le_bytes().to_vec();
        bytes.push(self.kind.0);
        bytes.extend(SERVER.to_le_bytes());
        bytes.extend((self.len() as u32).to_le_bytes());
        bytes.extend(next.to_le_bytes());
        bytes.extend(0_u16.to_le_bytes());
        bytes.extend(&self.data);
        bytes.into()
    }
}

pub(super) fn query(text: &str) -> Plain {
    let mut data = vec![0; 8];
    data.push(1);
    data.extend([0; 4]);
    data.extend(b"s\0");
    data.extend(text.as_bytes());
    Plain::new(EventKind::QUERY, data)
}

fn rotate(file: &str, pos: u64) -> Bytes {
    let data = [&pos.to_le_bytes(), file.as_bytes()].concat();
    Plain::new(EventKind::ROTATE, data).bytes(0)
}

fn gtid_event(kind: EventKind, number: u64) -> Plain {
    let mut data = vec![1];
    data.extend(UUID.0);
    data.extend(number.to_le_bytes());
    data.push(2);
    data.extend([0; 16]);
    data.extend(&COMMIT_US.to_le_bytes()[..7]);
    data.push(100);
    data.extend(80_400_u32.to_le_bytes());
    Plain::new(kind, data)
}

/// One signed INT column `n`, which is the key.
fn table_map(table: Table) -> Plain {
    let mut data = table.id().to_le_bytes()[..6].to_vec();
    data.extend(1_u16.to_le_bytes());
    for name in ["s", table.name()] {
        data.push(name.len() as u8);
        data.extend(name.as_bytes());
        data.push(0);
    }
    data.extend([1, 3, 0, 0]);
    // Signedness, the column's name, the key.
    data.extend([1, 1, 0, 4, 2, 1, b'n', 8, 1, 0]);
    Plain::new(EventKind::TABLE_MAP, data)
}

/// A compressed transaction, whose events inside have places of their own that mean nothing.
fn payload(events: &[Plain]) -> Plain {
    let inner: Vec<u8> = events
        .iter()
        .flat_map(|event| event.bytes(4_000_000_000).to_vec())
        .collect();
    let compressed = zstd::encode_all(inner.as_slice(), 3).unwrap();
    let wide = |value: usize| [&[0xFE], (value as u64).to_le_bytes().as_slice()].concat();
    let mut data = Vec::new();
    for (kind, value) in [(1_u8, wide(compressed.len())), (2, vec![0]), (3, wide(inner.len()))] {
        data.push(kind);
        data.push(value.len() as u8);
        data.extend(value);
    }
    data.push(0);
    data.extend(compressed);
    Plain::new(EventKind::TRANSACTION_PAYLOAD, data)
}
