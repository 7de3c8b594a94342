//! Places in a source's log: where a pipeline goes on after a restart, and where one event stands.
//!
//! A [`Position`] is what a checkpoint holds. An [`EventPosition`] is the small part of it that differs from event to
//! event; [`Position::after`] joins the two, so that a position can be had behind any event without one being kept
//! for each.

mod mysql;
mod postgres;
mod reach;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use mysql::{
    BinlogPlace, ByFile, MysqlBase, MysqlEventPosition, MysqlPartial, MysqlPosition, MysqlTransaction, RereadFrom,
    RowCounts, ServerIdentity, TransactionId,
};
pub use postgres::{Lsn, ParseLsnError, Partial, PostgresEventPosition, PostgresPosition};

/// Where a source goes on: everything before it is done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Position {
    Postgres(PostgresPosition),
    Mysql(Box<MysqlPosition>),
}

/// A place in a log that may be made of numbered files, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct LogPlace {
    /// The binlog file's number; 0 where the log is one run of bytes.
    pub file: u64,
    pub offset: u64,
}

/// The same place as the database writes it: an LSN, or a binlog's file and offset. Cheap to clone, unlike a position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShownPlace {
    Lsn(Lsn),
    Binlog(BinlogPlace),
}

impl ShownPlace {
    /// Comparable with the log's end.
    pub fn log_place(&self) -> LogPlace {
        match self {
            Self::Lsn(lsn) => LogPlace { file: 0, offset: lsn.0 },
            Self::Binlog(place) => place.log_place(),
        }
    }
}

impl fmt::Display for ShownPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lsn(lsn) => lsn.fmt(f),
            Self::Binlog(place) => place.fmt(f),
        }
    }
}

/// Which history of a log a place is of. In another one, of a standby that was promoted, other events can stand there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum History {
    Postgres {
        system_identifier: u64,
        timeline: u32,
    },
    /// By the server's own files.
    Files(ServerIdentity),
    /// By ids that are given once, whatever the server.
    Gtids,
}

impl Position {
    pub fn history(&self) -> History {
        match self {
            Self::Postgres(position) => History::Postgres {
                system_identifier: position.system_identifier,
                timeline: position.timeline,
            },
            Self::Mysql(position) => match &position.base {
                MysqlBase::File(_) => History::Files(position.server.clone()),
                MysqlBase::Gtids(_) | MysqlBase::Mariadb(_) => History::Gtids,
            },
        }
    }

    /// Where it is in the log.
    pub fn place(&self) -> ShownPlace {
        match self {
            Self::Postgres(position) => ShownPlace::Lsn(position.base),
            Self::Mysql(position) => ShownPlace::Binlog(position.place.clone()),
        }
    }

    /// Comparable with the log's end.
    pub fn log_place(&self) -> LogPlace {
        match self {
            Self::Postgres(position) => LogPlace {
                file: 0,
                offset: position.base.0,
            },
            Self::Mysql(position) => position.place.log_place(),
        }
    }

    /// The position just behind an event of the same stream, which a batch ending at `self` contains.
    pub fn after(&self, event: &EventPosition) -> Self {
        match (self, event) {
            (Self::Postgres(batch), EventPosition::Postgres(event)) => Self::Postgres(batch.after(event)),
            (_, EventPosition::Mysql(event)) => Self::Mysql(Box::new(event.after())),
            // One pipeline has one source; its batch's end is sound too, and only later.
            (Self::Mysql(_), EventPosition::Postgres(_)) => self.clone(),
        }
    }
}

impl TryFrom<Position> for PostgresPosition {
    type Error = Position;

    fn try_from(position: Position) -> Result<Self, Position> {
        match position {
            Position::Postgres(position) => Ok(position),
            other => Err(other),
        }
    }
}

impl TryFrom<Position> for MysqlPosition {
    type Error = Position;

    fn try_from(position: Position) -> Result<Self, Position> {
        match position {
            Position::Mysql(position) => Ok(*position),
            other => Err(other),
        }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Postgres(position) => position.fmt(f),
            Self::Mysql(position) => position.fmt(f),
        }
    }
}

/// Where one event stands, and with it the position just behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventPosition {
    Postgres(PostgresEventPosition),
    Mysql(MysqlEventPosition),
}

impl fmt::Display for EventPosition {
    /// Stable over redelivery and distinct in one cluster: an event's derived id is made of it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Postgres(position) => position.fmt(f),
            Self::Mysql(position) => position.fmt(f),
        }
    }
}
