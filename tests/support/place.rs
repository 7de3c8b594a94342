//! The places in a log that derived event ids are made of, against what was saved.

use tailpost::gtid::MariadbGtids;
use tailpost::position::{Lsn, MysqlBase, MysqlPosition, Position, PostgresPosition, TransactionId};

/// Where an event stands, by its derived id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// LSN of the commit record, LSN of the change, the change's number there.
    Postgres(Lsn, Lsn, u32),
    Mysql {
        transaction: TransactionId,
        /// `schema.table`
        table: String,
        row: u64,
    },
}

impl Place {
    pub fn of(id: &str) -> Self {
        Self::parse(id).unwrap_or_else(|| panic!("`{id}` is no derived event id"))
    }

    fn parse(id: &str) -> Option<Self> {
        if let Some((transaction, rest)) = id.split_once('/') {
            let (table, row) = rest.split_once('/')?;
            return Some(Self::Mysql {
                transaction: transaction.parse().ok()?,
                table: table.to_owned(),
                row: row.parse().ok()?,
            });
        }
        let mut parts = id.split('-');
        let mut lsn = || Some(Lsn(u64::from_str_radix(parts.next()?, 16).ok()?));
        let (commit, change) = (lsn()?, lsn()?);
        Some(Self::Postgres(commit, change, parts.next()?.parse().ok()?))
    }

    /// Whether it lies in a transaction that the position is inside of.
    pub fn is_inside(&self, position: &Position) -> bool {
        match (self, position) {
            (Self::Postgres(commit, ..), Position::Postgres(position)) => {
                position.partial.is_some_and(|partial| partial.commit == *commit)
            }
            (Self::Mysql { transaction, .. }, Position::Mysql(position)) => {
                let mut partial = position.partial.iter();
                partial.any(|partial| partial.transaction == *transaction)
            }
            _ => panic!("{self:?} and {position} are of different databases"),
        }
    }

    /// Whether the event is done at this position.
    pub fn is_done(&self, position: &Position) -> bool {
        match (self, position) {
            (Self::Postgres(commit, change, index), Position::Postgres(position)) => {
                is_done_in_postgres(position, *commit, (*change, *index))
            }
            (
                Self::Mysql {
                    transaction,
                    table,
                    row,
                },
                Position::Mysql(position),
            ) => is_done_in_mysql(position, transaction, table, *row),
            _ => panic!("{self:?} and {position} are of different databases"),
        }
    }
}

fn is_done_in_postgres(position: &PostgresPosition, commit: Lsn, change: (Lsn, u32)) -> bool {
    let inside = position.partial.filter(|partial| partial.commit == commit);
    // The end of a commit record is behind its LSN.
    commit < position.base || inside.is_some_and(|partial| change <= (partial.change, partial.index))
}

fn is_done_in_mysql(position: &MysqlPosition, transaction: &TransactionId, table: &str, row: u64) -> bool {
    let whole = match (&position.base, transaction) {
        (MysqlBase::Gtids(done), TransactionId::Gtid(gtid)) => done.contains(gtid),
        (MysqlBase::Mariadb(done), TransactionId::Mariadb(gtid)) => {
            MariadbGtids::get(done, gtid.domain).is_some_and(|last| last.sequence >= gtid.sequence)
        }
        (base, _) => panic!("{transaction} and {base:?} are of different kinds"),
    };
    let mut inside = position.partial.iter();
    let inside = inside.find(|partial| partial.transaction == *transaction);
    whole || inside.is_some_and(|partial| partial.rows.0.get(table).is_some_and(|done| *done >= row))
}
