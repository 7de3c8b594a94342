//! The simulated source's log: committed units in order, and the positions that a real source has for the places in it.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::rng::Rng;
use super::world::Millis;
use crate::event::{Change as EventChange, ChangeEvent, LogMessage, Selection};
use crate::gtid::Gtid;
use crate::position::{
    BinlogPlace, EventPosition, Lsn, MysqlBase, MysqlEventPosition, MysqlPartial, MysqlPosition, MysqlTransaction,
    Partial, Position, PostgresEventPosition, PostgresPosition, RowCounts, ServerIdentity, TransactionId,
};
use crate::skip::{SkipCounts, SkipReason};
use crate::source::LogBatch;

const UUID: &str = "5a5a5a5a-5a5a-5a5a-5a5a-5a5a5a5a5a5a";
const TABLE: &str = "s.outbox";
const FIRST_LSN: u64 = 1000;

/// What becomes of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Good,
    /// None of the pipeline's: the source counts it as skipped.
    Foreign,
    /// No record can be made of it.
    Invalid,
    /// The sink gives its record back for good.
    TooLarge,
    /// So is that of its dead letter, but a stub is taken.
    TooLargeToPark,
    /// Known to the sink only once it was given back for a while.
    UnknownTopic,
    /// The broker refuses it, and with it the batch that it travels in.
    Refused,
}

#[derive(Debug)]
pub(super) struct Change {
    pub(super) kind: Kind,
    pub(super) key: u64,
    lsn: u64,
    index: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UnitKind {
    Transaction,
    /// A non-transactional message of PostgreSQL.
    Message,
    /// Log of others, which a keep-alive passes over.
    Idle,
}

#[derive(Debug)]
struct Unit {
    kind: UnitKind,
    /// LSNs of the commit record and of its end.
    commit: u64,
    end: u64,
    changes: Range<usize>,
    /// When it is committed.
    at: Millis,
}

/// Whose positions there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flavor {
    Postgres,
    Mysql,
}

/// How much there is in a log.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    pub(super) units: u64,
    /// Changes of an ordinary transaction, at most.
    pub(super) changes: u64,
    /// Changes of a huge one; 0: there is none.
    pub(super) huge: u64,
    /// Changes in a thousand that are not good.
    pub(super) bad: u64,
    pub(super) keys: u64,
    /// Between two units, at most.
    pub(super) gap: Millis,
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct Log {
    flavor: Flavor,
    units: Vec<Unit>,
    changes: Vec<Change>,
    /// Each change's number by its event's position.
    numbers: HashMap<String, usize>,
}

/// A place in the log: where a source reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cursor {
    /// Whole units that are done.
    unit: usize,
    /// Changes that are done.
    done: usize,
    last_event_end: u64,
    /// Whether the position moved since the last batch.
    moved: bool,
}

impl Cursor {
    pub(super) fn units(&self) -> usize {
        self.unit
    }
}

impl Log {
    pub(super) fn new(rng: &mut Rng, flavor: Flavor, size: Size) -> Self {
        let mut log = Self {
            flavor,
            units: Vec::new(),
            changes: Vec::new(),
            numbers: HashMap::new(),
        };
        let huge = rng.within(0..=size.units - 1);
        let (mut end, mut at) = (FIRST_LSN, 0);
        for number in 0..size.units {
            at += if rng.chance(300) { 0 } else { rng.within(0..=size.gap) };
            let kind = match rng.within(0..=9) {
                _ if number == huge && size.huge > 0 => UnitKind::Transaction,
                0 | 1 => UnitKind::Idle,
                2 if flavor == Flavor::Postgres => UnitKind::Message,
                _ => UnitKind::Transaction,
            };
            let count = match kind {
                UnitKind::Idle => 0,
                UnitKind::Message => 1,
                UnitKind::Transaction if number == huge && size.huge > 0 => size.huge,
                UnitKind::Transaction => rng.within(0..=size.changes),
            };
            end = log.unit(rng, kind, count, end, at, size);
        }
        // The log goes on behind the last event, as that of others does.
        log.unit(rng, UnitKind::Idle, 0, end, at, size);
        let mut cursor = log.cursor(None);
        while cursor.unit < log.units.len() {
            while cursor.done < log.units[cursor.unit].changes.end {
                // A foreign row has no number of its own in a binlog, and no event.
                if log.changes[cursor.done].kind != Kind::Foreign {
                    let event = log.event(&cursor, &log.units[cursor.unit]);
                    log.numbers.insert(event.position.to_string(), cursor.done);
                }
                cursor.done += 1;
            }
            cursor.unit += 1;
        }
        log
    }

    /// The change whose event stands there.
    pub(super) fn number_at(&self, position: &str) -> usize {
        self.numbers[position]
    }

    fn unit(&mut self, rng: &mut Rng, kind: UnitKind, count: u64, end: u64, at: Millis, size: Size) -> u64 {
        let first = self.changes.len();
        // A transaction begins while others go on: its changes can lie before the commits that come before its own.
        let mut lsn = match kind {
            UnitKind::Transaction => end - rng.within(0..=200),
            UnitKind::Message | UnitKind::Idle => end + 8,
        };
        let mut index = 0;
        for number in 0..count {
            // Several changes can share one LSN.
            if number > 0 && rng.chance(300) {
                index += 1;
            } else {
                lsn += rng.within(8..=80);
                index = 0;
            }
            let kind = match rng.chance(size.bad) {
                false => Kind::Good,
                true => rng.pick(&[
                    Kind::Foreign,
                    Kind::Foreign,
                    Kind::Foreign,
                    Kind::Invalid,
                    Kind::TooLarge,
                    Kind::TooLargeToPark,
                    Kind::UnknownTopic,
                    Kind::Refused,
                ]),
            };
            let key = rng.within(1..=size.keys);
            self.changes.push(Change { kind, key, lsn, index });
        }
        let commit = lsn.max(end) + 8;
        let end = match kind {
            UnitKind::Transaction => commit + 48,
            UnitKind::Message => lsn,
            UnitKind::Idle => commit,
        };
        self.units.push(Unit {
            kind,
            commit,
            end,
            changes: first..self.changes.len(),
            at,
        });
        end
    }

    pub(super) fn changes(&self) -> &[Change] {
        &self.changes
    }

    pub(super) fn unit_count(&self) -> usize {
        self.units.len()
    }

    /// When the last unit is committed.
    pub(super) fn last_at(&self) -> Millis {
        self.units.last().map_or(0, |unit| unit.at)
    }

    /// When there will be something behind the cursor.
    pub(super) fn next_at(&self, cursor: &Cursor) -> Option<Millis> {
        self.units.get(cursor.unit).map(|unit| unit.at)
    }

    /// How many changes a position has behind it.
    pub(super) fn done(&self, position: &Position) -> usize {
        self.cursor(Some(position)).done
    }

    /// How many whole units a position has behind it: what may be confirmed.
    pub(super) fn base(&self, position: &Position) -> usize {
        self.cursor(Some(position)).unit
    }

    /// Where reading goes on: None, at the log's begin.
    pub(super) fn cursor(&self, from: Option<&Position>) -> Cursor {
        let mut cursor = Cursor {
            unit: 0,
            done: 0,
            last_event_end: 0,
            // The first batch tells where the stream begins.
            moved: true,
        };
        match from {
            None => {}
            Some(Position::Postgres(position)) => {
                cursor.last_event_end = position.last_event_end.0;
                cursor.unit = self.units.partition_point(|unit| unit.end <= position.base.0);
                cursor.done = self.first_change(cursor.unit);
                if let (Some(partial), Some(unit)) = (position.partial, self.units.get(cursor.unit)) {
                    assert_eq!(
                        partial.commit.0, unit.commit,
                        "{position} names a unit that is not the next"
                    );
                    let done = (partial.change.0, partial.index);
                    let changes = &self.changes[unit.changes.clone()];
                    cursor.done += changes.partition_point(|change| (change.lsn, change.index) <= done);
                }
            }
            Some(Position::Mysql(position)) => {
                cursor.unit = self.units.partition_point(|unit| unit.end <= position.place.pos);
                cursor.done = self.first_change(cursor.unit);
                for partial in &position.partial {
                    let id = self.transaction_id(cursor.unit);
                    assert_eq!(
                        partial.transaction, id,
                        "{position} names a transaction that is not the next"
                    );
                    let mut rows = partial.rows.0.get(TABLE).copied().unwrap_or(0);
                    // Foreign rows are not counted, so those behind the last of ours are read again.
                    while rows > 0 {
                        rows -= u64::from(self.changes[cursor.done].kind != Kind::Foreign);
                        cursor.done += 1;
                    }
                }
            }
        }
        cursor
    }

    /// How many changes so many whole units have.
    pub(super) fn done_units(&self, units: usize) -> usize {
        self.first_change(units)
    }

    fn first_change(&self, unit: usize) -> usize {
        self.units
            .get(unit)
            .map_or(self.changes.len(), |unit| unit.changes.start)
    }

    /// Reads what is committed by now, at most `limit` changes; None: nothing has come.
    pub(super) fn read(&self, cursor: &mut Cursor, now: Millis, limit: usize) -> Option<LogBatch> {
        let (mut events, mut skipped) = (Vec::new(), SkipCounts::default());
        let mut left = limit;
        while let Some(unit) = self.units.get(cursor.unit).filter(|unit| unit.at <= now) {
            while cursor.done < unit.changes.end && left > 0 {
                match self.changes[cursor.done].kind {
                    Kind::Foreign => skipped.add(SkipReason::ForeignPrefix, 1),
                    _ => events.push(self.event(cursor, unit)),
                }
                cursor.done += 1;
                cursor.moved = true;
                left -= 1;
            }
            // A batch can end behind a transaction's last change, before its commit is seen.
            if left == 0 {
                break;
            }
            cursor.moved = true;
            cursor.unit += 1;
            let ours = |change: &Change| change.kind != Kind::Foreign;
            if self.changes[unit.changes.clone()].iter().any(ours) {
                cursor.last_event_end = unit.end;
            }
        }
        std::mem::take(&mut cursor.moved).then(|| LogBatch {
            events,
            skipped,
            end: self.position(cursor),
            more_follows: false,
        })
    }

    fn event(&self, cursor: &Cursor, unit: &Unit) -> ChangeEvent {
        let number = cursor.done;
        let Change { kind, key, lsn, index } = self.changes[number];
        let position = match (self.flavor, unit.kind) {
            (Flavor::Postgres, UnitKind::Message) => EventPosition::Postgres(PostgresEventPosition {
                base: Lsn(lsn),
                partial: None,
                last_event_end: Lsn(lsn),
                xid: None,
            }),
            (Flavor::Postgres, _) => EventPosition::Postgres(PostgresEventPosition {
                base: Lsn(self.base_end(cursor.unit)),
                partial: Some(Partial {
                    commit: Lsn(unit.commit),
                    change: Lsn(lsn),
                    index,
                }),
                last_event_end: Lsn(cursor.last_event_end),
                xid: Some(1),
            }),
            (Flavor::Mysql, _) => EventPosition::Mysql(MysqlEventPosition {
                transaction: Arc::new(MysqlTransaction {
                    id: self.transaction_id(cursor.unit),
                    server_id: 1,
                    file: Arc::from("binlog.000001"),
                    before: self.mysql_position(cursor.unit, 0),
                }),
                table: Arc::from(TABLE),
                row: self.own_rows(unit.changes.start..number + 1),
                others: None,
                pos: lsn,
                index: 0,
            }),
        };
        let payload = match kind {
            Kind::Invalid => String::new(),
            _ => format!(r#", "payload": {number}"#),
        };
        let content = format!(r#"{{"aggregate_id": "k{key}"{payload}}}"#);
        ChangeEvent {
            position,
            // Long ago, or just now whatever the clock says: what is gathered for a commit depends on it.
            commit_time_us: match key.is_multiple_of(2) {
                true => i64::try_from(unit.at).unwrap() * 1000,
                false => i64::MAX,
            },
            selection: Selection::Outbox,
            change: EventChange::Message(LogMessage {
                prefix: Arc::from("o"),
                content: Bytes::from(content),
            }),
        }
    }

    fn position(&self, cursor: &Cursor) -> Position {
        let first = self.first_change(cursor.unit);
        let unit = self.units.get(cursor.unit).filter(|_| cursor.done > first);
        match self.flavor {
            // A message by itself is done as a whole: there is no place inside it.
            Flavor::Postgres if unit.is_some_and(|unit| unit.kind == UnitKind::Message) => {
                let end = Lsn(self.changes[cursor.done - 1].lsn);
                Position::Postgres(PostgresPosition {
                    system_identifier: 7,
                    timeline: 1,
                    base: end,
                    partial: None,
                    last_event_end: end,
                })
            }
            Flavor::Postgres => Position::Postgres(PostgresPosition {
                system_identifier: 7,
                timeline: 1,
                base: Lsn(self.base_end(cursor.unit)),
                partial: (cursor.done > first).then(|| {
                    let Change { lsn, index, .. } = self.changes[cursor.done - 1];
                    Partial {
                        commit: Lsn(self.units[cursor.unit].commit),
                        change: Lsn(lsn),
                        index,
                    }
                }),
                last_event_end: Lsn(cursor.last_event_end),
            }),
            Flavor::Mysql => {
                let rows = self.own_rows(first..cursor.done);
                Position::Mysql(Box::new(self.mysql_position(cursor.unit, rows)))
            }
        }
    }

    /// End of the last whole unit.
    fn base_end(&self, unit: usize) -> u64 {
        unit.checked_sub(1).map_or(FIRST_LSN, |last| self.units[last].end)
    }

    fn own_rows(&self, range: Range<usize>) -> u64 {
        let own = self.changes[range].iter().filter(|change| change.kind != Kind::Foreign);
        own.count() as u64
    }

    /// Each unit is a transaction of the same server.
    fn transaction_id(&self, unit: usize) -> TransactionId {
        let gtid: Gtid = format!("{UUID}:{}", unit + 1).parse().unwrap();
        TransactionId::Gtid(gtid)
    }

    fn mysql_position(&self, unit: usize, rows: u64) -> MysqlPosition {
        let set = match unit {
            0 => String::new(),
            last => format!("{UUID}:1-{last}"),
        };
        let partial = (rows > 0).then(|| MysqlPartial {
            transaction: self.transaction_id(unit),
            rows: RowCounts([(Arc::from(TABLE), rows)].into()),
        });
        MysqlPosition {
            server: ServerIdentity {
                uuid: Some(Arc::from(UUID)),
                id: 1,
            },
            base: MysqlBase::Gtids(set.parse().unwrap()),
            place: BinlogPlace {
                file: Arc::from("binlog.000001"),
                pos: self.base_end(unit),
            },
            partial: partial.into_iter().collect(),
            reread: None,
        }
    }
}
