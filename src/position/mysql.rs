//! Places in the binlog of MySQL or MariaDB.
//!
//! A transaction counts as done when its last event was seen. Inside one, each table's rows are counted, so that neither
//! another choice of tables nor another splitting of rows into events can shift what is done.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::LogPlace;
use crate::gtid::{Gtid, GtidSet, MariadbGtid, MariadbGtids};

/// Where a binlog is gone on with: everything in `base` is done, and of the transactions in `partial` as many rows as it says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MysqlPosition {
    pub server: ServerIdentity,
    #[serde(flatten)]
    pub base: MysqlBase,
    /// Where the log of `server` stood then. With [`MysqlBase::File`] it is the position itself; with GTIDs it is only
    /// told: another server has the same transactions elsewhere.
    #[serde(flatten)]
    pub place: BinlogPlace,
    /// Transactions that are done in part. One at most while a log is read in order; after a fail-over the one that was in
    /// progress need not be the next to come, and is remembered until it does.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub partial: Vec<MysqlPartial>,
    /// Where reading must begin to see the rows of XA transactions that were prepared and undecided at `base`. What lies
    /// between is done otherwise. MySQL's GTID sets need none of it: they leave such a transaction out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reread: Option<Box<RereadFrom>>,
}

/// See [`MysqlPosition::reread`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RereadFrom {
    #[serde(flatten)]
    pub base: MysqlBase,
    #[serde(flatten)]
    pub place: BinlogPlace,
}

/// Whose log it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerIdentity {
    /// `@@server_uuid`; MariaDB has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<Arc<str>>,
    /// `@@server_id`
    pub id: u32,
}

impl ServerIdentity {
    /// A server's UUID is its own for good; `server_id` can be changed.
    pub fn is_same(&self, other: &Self) -> bool {
        match (&self.uuid, &other.uuid) {
            (Some(uuid), Some(other)) => uuid == other,
            _ => self.id == other.id,
        }
    }
}

impl fmt::Display for ServerIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.uuid {
            Some(uuid) => f.write_str(uuid),
            None => write!(f, "server_id {}", self.id),
        }
    }
}

/// What is done as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum MysqlBase {
    /// MySQL with GTIDs: the transactions that are done, those that the server has purged included.
    #[serde(rename = "gtid_set")]
    Gtids(GtidSet),
    /// MariaDB: of each domain the last transaction seen.
    #[serde(rename = "mariadb_gtids")]
    Mariadb(MariadbGtids),
    /// No GTIDs: everything before [`MysqlPosition::place`].
    #[serde(rename = "by_file")]
    File(ByFile),
}

/// Written as `true`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ByFile;

impl Serialize for ByFile {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bool(true)
    }
}

impl<'de> Deserialize<'de> for ByFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        bool::deserialize(deserializer).map(|_| Self)
    }
}

impl MysqlPosition {
    /// Where the server is asked to begin.
    pub fn begin(&self) -> (&MysqlBase, &BinlogPlace) {
        match &self.reread {
            Some(from) => (&from.base, &from.place),
            None => (&self.base, &self.place),
        }
    }
}

impl fmt::Display for MysqlPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.base {
            MysqlBase::Gtids(set) if set.is_empty() => write!(f, "before the first GTID")?,
            MysqlBase::Gtids(set) => set.fmt(f)?,
            MysqlBase::Mariadb(gtids) if gtids.is_empty() => write!(f, "before the first GTID")?,
            MysqlBase::Mariadb(gtids) => gtids.fmt(f)?,
            MysqlBase::File(_) => self.place.fmt(f)?,
        }
        for partial in &self.partial {
            write!(f, " + {} of transaction {}", partial.rows, partial.transaction)?;
        }
        Ok(())
    }
}

/// A place in one server's binlog. Ordered by the file's number, then the offset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BinlogPlace {
    pub file: Arc<str>,
    /// In bytes.
    pub pos: u64,
}

impl BinlogPlace {
    /// Offset of a file's first event, behind its magic number.
    pub const FILE_START: u64 = 4;

    /// The file's number, which is what orders files: `binlog.999999` comes before `binlog.1000000`.
    pub fn file_number(&self) -> u64 {
        file_number(&self.file).unwrap_or(0)
    }

    pub fn log_place(&self) -> LogPlace {
        LogPlace {
            file: self.file_number(),
            offset: self.pos,
        }
    }
}

/// The number in a binlog file's name, behind its last dot.
fn file_number(file: &str) -> Option<u64> {
    file.rsplit_once('.')?.1.parse().ok()
}

impl fmt::Display for BinlogPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.pos)
    }
}

/// A transaction that is done in part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MysqlPartial {
    pub transaction: TransactionId,
    pub rows: RowCounts,
}

/// Rows of a transaction that are done, by table (`schema.table`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RowCounts(pub BTreeMap<Arc<str>, u64>);

impl fmt::Display for RowCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (table, rows)) in self.0.iter().enumerate() {
            let separator = if at > 0 { ", " } else { "" };
            let unit = if *rows == 1 { "row" } else { "rows" };
            write!(f, "{separator}{rows} {unit} of {table}")?;
        }
        Ok(())
    }
}

/// Names a transaction of the log.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum TransactionId {
    Gtid(Gtid),
    Mariadb(MariadbGtid),
    /// Where it begins.
    Place {
        file: Arc<str>,
        pos: u64,
    },
}

impl fmt::Display for TransactionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gtid(gtid) => gtid.fmt(f),
            Self::Mariadb(gtid) => gtid.fmt(f),
            Self::Place { file, pos } => write!(f, "{file}:{pos}"),
        }
    }
}

/// A text that names no transaction.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no transaction: expected a GTID or file:position")]
pub struct ParseTransactionIdError {
    text: String,
}

impl FromStr for TransactionId {
    type Err = ParseTransactionIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Ok(gtid) = text.parse() {
            return Ok(Self::Gtid(gtid));
        }
        if let Ok(gtid) = text.parse() {
            return Ok(Self::Mariadb(gtid));
        }
        let place = text
            .rsplit_once(':')
            .and_then(|(file, pos)| Some((Arc::from(file), pos.parse().ok()?)));
        match place {
            Some((file, pos)) => Ok(Self::Place { file, pos }),
            None => Err(ParseTransactionIdError { text: text.to_owned() }),
        }
    }
}

impl Serialize for TransactionId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TransactionId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

/// A transaction with events, shared by them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MysqlTransaction {
    pub id: TransactionId,
    /// `server_id` of the server that it was committed on first.
    pub server_id: u32,
    /// The file that it stands in; none spans two.
    pub file: Arc<str>,
    /// The position before it: without its rows.
    pub before: MysqlPosition,
}

/// Where one row stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MysqlEventPosition {
    pub transaction: Arc<MysqlTransaction>,
    /// `schema.table`
    pub table: Arc<str>,
    /// The row's number among those of its table in the transaction, from 1.
    pub row: u64,
    /// Rows of the transaction's other tables before this one; None: there are none.
    pub others: Option<Arc<RowCounts>>,
    /// End of the log event that the row came in, as an offset in the file: of a compressed transaction, of the event that
    /// contains it.
    pub pos: u64,
    /// The row's number in its log event, from 0.
    pub index: u32,
}

impl MysqlEventPosition {
    /// The position just behind the row.
    pub(super) fn after(&self) -> MysqlPosition {
        let mut position = self.transaction.before.clone();
        let mut rows = self.others.as_deref().cloned().unwrap_or_default();
        rows.0.insert(Arc::clone(&self.table), self.row);
        position
            .partial
            .retain(|partial| partial.transaction != self.transaction.id);
        position.partial.push(MysqlPartial {
            transaction: self.transaction.id.clone(),
            rows,
        });
        position
    }
}

impl fmt::Display for MysqlEventPosition {
    /// Such as `3e11fa47-71ca-11e1-9e33-c80aa9429562:23/shop.orders_outbox/1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.transaction.id, self.table, self.row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";

    fn position(base: MysqlBase, pos: u64, rows: Option<(&TransactionId, u64)>) -> MysqlPosition {
        MysqlPosition {
            server: ServerIdentity { uuid: None, id: 1 },
            base,
            place: BinlogPlace {
                file: Arc::from("binlog.000002"),
                pos,
            },
            partial: rows
                .map(|(transaction, rows)| MysqlPartial {
                    transaction: transaction.clone(),
                    rows: RowCounts([(Arc::from("shop.outbox"), rows)].into()),
                })
                .into_iter()
                .collect(),
            reread: None,
        }
    }

    /// The second row of a transaction that ends at 500.
    fn event(id: &TransactionId, before: MysqlPosition) -> MysqlEventPosition {
        MysqlEventPosition {
            transaction: Arc::new(MysqlTransaction {
                id: id.clone(),
                server_id: 1,
                file: Arc::from("binlog.000002"),
                before,
            }),
            table: Arc::from("shop.outbox"),
            row: 2,
            others: None,
            pos: 500,
            index: 0,
        }
    }

    #[test]
    fn an_event_is_done_with_its_transaction_or_its_row() {
        let gtids = |last: u64| MysqlBase::Gtids(format!("{UUID}:1-{last}").parse().unwrap());
        let mariadb = |last: u64| MysqlBase::Mariadb(format!("0-1-{last}").parse().unwrap());
        let by_file = |_| MysqlBase::File(ByFile);
        let bases: [(&str, &dyn Fn(u64) -> MysqlBase); 3] = [
            (&format!("{UUID}:7"), &gtids),
            ("0-1-7", &mariadb),
            ("binlog.000002:300", &by_file),
        ];
        for (id, base) in bases {
            let id: TransactionId = id.parse().unwrap();
            let event = event(&id, position(base(6), 300, None));
            for (last, pos, rows, expected) in [
                (7, 550, None, true),
                (6, 300, Some(2), true),
                (6, 300, Some(1), false),
                (6, 300, None, false),
            ] {
                let rows = rows.map(|rows| (&id, rows));
                let found = position(base(last), pos, rows).covers(&event);
                assert_eq!(found, expected, "{id}: {last} {pos} {rows:?}");
            }
        }
    }
}
