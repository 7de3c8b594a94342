//! What a binlog's events say, as far as a reader of rows needs to know.

use bytes::Bytes;

use crate::gtid::MariadbGtid;
use crate::source::mysql::xid::XaPrepareEvent;

use super::error::BinlogError;
use super::format::FormatDescription;
use super::gtid::GtidEvent;
use super::mariadb::MariadbGtidEvent;
use super::payload::Payload;
use super::place::{Heartbeat, Rotate};
use super::reader::Reader;
use super::rows::{RowsEvent, TableMap};
use super::statement::Query;

/// One event without its header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    Rotate(Rotate),
    FormatDescription(FormatDescription),
    /// Everything before the file, as [`GtidSet::decode`](crate::gtid::GtidSet) reads it.
    PreviousGtids(Bytes),
    Gtid(GtidEvent),
    MariadbGtid(MariadbGtidEvent),
    /// Everything before the file: in a domain, the last one is where it stands.
    MariadbGtidList(Vec<MariadbGtid>),
    Query(Query),
    /// The commit of a transaction, with the storage engine's number for it.
    Xid(u64),
    /// The end of an XA transaction's rows.
    XaPrepare(XaPrepareEvent),
    Heartbeat(Heartbeat),
    TableMap(TableMap),
    Rows(RowsEvent),
    TransactionPayload(Payload),
    /// The server says that events are missing.
    Incident(Incident),
    /// The file is encrypted on the server's disk; the stream is not.
    StartEncryption,
    /// Of a known kind that changes nothing and ends nothing: comments, checkpoints of the log, a session's variables for
    /// the statement that follows.
    Informational,
    /// Of a kind that is not known, or no longer written. Unless it is ignorable, what follows may not mean what it seems
    /// to, and passing over it may lose changes.
    Unknown {
        ignorable: bool,
    },
}

/// Something happened on the server that its log does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Incident {
    /// 1: lost events. No other was ever given out.
    pub number: u16,
    /// The server's own words, possibly none.
    pub message: String,
}

impl Incident {
    pub(super) fn parse(reader: &mut Reader<'_>) -> Result<Self, BinlogError> {
        let number = reader.u16("incident number")?;
        let length = reader.u8("message length")?;
        let message = reader.take("message", u64::from(length))?;
        Ok(Self {
            number,
            message: String::from_utf8_lossy(message).into_owned(),
        })
    }
}
