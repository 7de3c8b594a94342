//! How far a pipeline has come, whatever it went back to since: which events lie before a position, and the further of two.

use super::{EventPosition, MysqlBase, MysqlEventPosition, MysqlPartial, MysqlPosition, Position};
use super::{PostgresEventPosition, PostgresPosition, TransactionId};

impl Position {
    /// Whether the event lies before this position, in a log of the same server; false where that cannot be told.
    pub fn covers(&self, event: &EventPosition) -> bool {
        match (self, event) {
            (Self::Postgres(position), EventPosition::Postgres(event)) => position.covers(event),
            (Self::Mysql(position), EventPosition::Mysql(event)) => position.covers(event),
            _ => false,
        }
    }

    /// Moves it to the further of the two; to the other one where they are of different logs.
    pub fn extend(&mut self, other: &Self) {
        match (self, other) {
            (Self::Postgres(position), Self::Postgres(other)) => position.extend(other),
            (Self::Mysql(position), Self::Mysql(other)) => position.extend(other),
            (position, other) => *position = other.clone(),
        }
    }
}

impl PostgresPosition {
    pub(super) fn covers(&self, event: &PostgresEventPosition) -> bool {
        let Some(event_at) = event.partial else {
            return event.base <= self.base;
        };
        // A commit record that begins before the end of another ends there at the latest.
        event_at.commit < self.base
            || self.partial.is_some_and(|partial| {
                partial.commit == event_at.commit
                    && (event_at.change, event_at.index) <= (partial.change, partial.index)
            })
    }

    fn extend(&mut self, other: &Self) {
        let is_same = (self.system_identifier, self.timeline) == (other.system_identifier, other.timeline);
        let place = |position: &Self| {
            let partial = position.partial.map(|partial| (partial.change, partial.index));
            (position.base, partial)
        };
        if !is_same || place(self) < place(other) {
            *self = other.clone();
        }
    }
}

impl MysqlPosition {
    pub(super) fn covers(&self, event: &MysqlEventPosition) -> bool {
        let transaction = &event.transaction.id;
        let rows = || {
            let partial = self.partial.iter().find(|partial| partial.transaction == *transaction);
            partial.and_then(|partial| partial.rows.0.get(&event.table))
        };
        // Files and offsets are those of one server.
        let is_comparable =
            !matches!(self.base, MysqlBase::File(_)) || self.server.is_same(&event.transaction.before.server);
        (is_comparable && self.has_done(transaction)) || rows().is_some_and(|rows| event.row <= *rows)
    }

    /// Whether the transaction is done as a whole.
    fn has_done(&self, transaction: &TransactionId) -> bool {
        match (&self.base, transaction) {
            (MysqlBase::Gtids(set), TransactionId::Gtid(gtid)) => set.contains(gtid),
            (MysqlBase::Mariadb(gtids), TransactionId::Mariadb(gtid)) => gtids
                .get(gtid.domain)
                .is_some_and(|last| gtid.sequence <= last.sequence),
            (MysqlBase::File(_), TransactionId::Place { file, pos }) => {
                let place = super::BinlogPlace {
                    file: file.clone(),
                    pos: *pos,
                };
                place.log_place() < self.place.log_place()
            }
            _ => false,
        }
    }

    fn extend(&mut self, other: &Self) {
        match (&mut self.base, &other.base) {
            (MysqlBase::Gtids(set), MysqlBase::Gtids(others)) => set.union_with(others),
            (MysqlBase::Mariadb(gtids), MysqlBase::Mariadb(others)) => {
                for gtid in others.iter() {
                    if gtids.get(gtid.domain).is_none_or(|last| last.sequence < gtid.sequence) {
                        gtids.insert(gtid);
                    }
                }
            }
            (MysqlBase::File(_), MysqlBase::File(_))
                if self.server.is_same(&other.server) && other.place.log_place() <= self.place.log_place() => {}
            _ => {
                let partial = std::mem::take(&mut self.partial);
                let is_same = self.base == other.base && self.server.is_same(&other.server);
                *self = other.clone();
                if is_same {
                    self.add_partial(&partial);
                }
                return self.drop_done();
            }
        }
        self.server = other.server.clone();
        if self.place.log_place() < other.place.log_place() {
            self.place = other.place.clone();
        }
        self.add_partial(&other.partial);
        self.drop_done();
    }

    fn add_partial(&mut self, others: &[MysqlPartial]) {
        for other in others {
            let known = self
                .partial
                .iter_mut()
                .find(|partial| partial.transaction == other.transaction);
            let Some(known) = known else {
                self.partial.push(other.clone());
                continue;
            };
            for (table, rows) in &other.rows.0 {
                let known = known.rows.0.entry(table.clone()).or_default();
                *known = (*known).max(*rows);
            }
        }
    }

    fn drop_done(&mut self) {
        let partial = std::mem::take(&mut self.partial);
        self.partial = partial
            .into_iter()
            .filter(|partial| !self.has_done(&partial.transaction))
            .collect();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::super::{BinlogPlace, ByFile, Lsn, MysqlTransaction, Partial, RowCounts, ServerIdentity};
    use super::*;

    /// Transaction n has three events and ends at 10 n + 9; event 0 of each fourth is a unit by itself.
    fn postgres_event(transaction: u64, event: u32) -> EventPosition {
        let base = Lsn(transaction.saturating_sub(1) * 10 + 9);
        let single = transaction.is_multiple_of(4);
        EventPosition::Postgres(PostgresEventPosition {
            base: if single { Lsn(transaction * 10 + 9) } else { base },
            partial: (!single).then_some(Partial {
                commit: Lsn(transaction * 10 + 8),
                change: Lsn(transaction * 10 + u64::from(event / 2)),
                index: event % 2,
            }),
            last_event_end: base,
            xid: None,
        })
    }

    fn postgres(timeline: u32) -> Position {
        Position::Postgres(PostgresPosition {
            system_identifier: 1,
            timeline,
            base: Lsn(0),
            partial: None,
            last_event_end: Lsn(0),
        })
    }

    #[derive(Debug, Clone, Copy)]
    enum Kind {
        Gtids,
        Mariadb,
        File,
    }

    fn mysql_event(kind: Kind, transaction: u64, row: u32) -> EventPosition {
        let place = |pos: u64| BinlogPlace {
            file: Arc::from("binlog.000001"),
            pos,
        };
        let uuid = "3e11fa47-71ca-11e1-9e33-c80aa9429562";
        let before = transaction - 1;
        let (base, id) = match kind {
            Kind::Gtids => {
                let set = if before > 0 {
                    format!("{uuid}:1-{before}")
                } else {
                    String::new()
                };
                (MysqlBase::Gtids(set.parse().unwrap()), format!("{uuid}:{transaction}"))
            }
            Kind::Mariadb => {
                let set = if before > 0 {
                    format!("0-1-{before}")
                } else {
                    String::new()
                };
                (MysqlBase::Mariadb(set.parse().unwrap()), format!("0-1-{transaction}"))
            }
            Kind::File => (MysqlBase::File(ByFile), format!("binlog.000001:{}", transaction * 100)),
        };
        let transaction = MysqlTransaction {
            id: id.parse().unwrap(),
            server_id: 1,
            file: Arc::from("binlog.000001"),
            before: MysqlPosition {
                server: ServerIdentity { uuid: None, id: 1 },
                base,
                place: place(transaction * 100),
                partial: Vec::new(),
                reread: None,
            },
        };
        // Two rows of table `a`, then one of `b`.
        let (table, number) = if row < 2 {
            ("s.a", u64::from(row) + 1)
        } else {
            ("s.b", 1)
        };
        let others = (row == 2).then(|| Arc::new(RowCounts([(Arc::from("s.a"), 2)].into())));
        EventPosition::Mysql(MysqlEventPosition {
            transaction: Arc::new(transaction),
            table: Arc::from(table),
            row: number,
            others,
            pos: 0,
            index: 0,
        })
    }

    /// Events in their order, with the positions behind them.
    fn stream(of: impl Fn(u64, u32) -> EventPosition, identity: &Position) -> Vec<(EventPosition, Position)> {
        let events = (1..8).flat_map(|transaction| (0..3).map(move |event| (transaction, event)));
        let events = events.map(|(transaction, event)| of(transaction, event));
        events.map(|event| (event.clone(), identity.after(&event))).collect()
    }

    proptest! {
        /// Whatever was gone back to, an event is covered when it, or one behind it, was reached.
        #[test]
        fn the_furthest_covers_what_was_reached(kind in 0..4u8, runs in prop::collection::vec((0..21usize, 0..21usize), 1..5)) {
            let identity = postgres(1);
            let events = match kind {
                0 => stream(postgres_event, &identity),
                1 => stream(|transaction, row| mysql_event(Kind::Gtids, transaction, row), &identity),
                2 => stream(|transaction, row| mysql_event(Kind::Mariadb, transaction, row), &identity),
                _ => stream(|transaction, row| mysql_event(Kind::File, transaction, row), &identity),
            };
            let mut furthest: Option<Position> = None;
            let mut reached = 0;
            for (one, other) in runs {
                // A life goes on from somewhere that was reached before.
                let begin = one.min(other).min(reached);
                for (_, position) in &events[begin..=one.max(other)] {
                    match &mut furthest {
                        Some(furthest) => furthest.extend(position),
                        None => furthest = Some(position.clone()),
                    }
                }
                reached = reached.max(one.max(other));
                let furthest = furthest.as_ref().unwrap();
                for (index, (event, _)) in events.iter().enumerate() {
                    // A unit by itself stands here for three events that are the same.
                    let same = events.iter().rposition(|(other, _)| other == event).unwrap();
                    let first = events.iter().position(|(other, _)| other == event).unwrap();
                    prop_assert_eq!(furthest.covers(event), first <= reached, "{} of {}, {}", index, reached, same);
                }
            }
        }
    }

    #[test]
    fn another_log_is_not_covered() {
        let mut furthest = postgres(1).after(&postgres_event(5, 2));
        assert!(furthest.covers(&postgres_event(3, 0)));
        assert!(!furthest.covers(&mysql_event(Kind::File, 1, 0)));
        // A standby that was promoted has other transactions from there on.
        furthest.extend(&postgres(2).after(&postgres_event(2, 0)));
        assert!(!furthest.covers(&postgres_event(3, 0)));
        assert!(furthest.covers(&postgres_event(2, 0)));
    }
}
