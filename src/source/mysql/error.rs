//! Why the binlog source stops, and what follows.

use std::io;
use std::time::Duration;

use crate::position::{BinlogPlace, MysqlPosition, ServerIdentity};
use crate::source::Recovery;
use crate::tls::{TlsSetupError, is_tls_verdict};

use super::binlog::BinlogError;
use super::endpoint::Tried;
use super::packet::ServerError;
use super::rows::{PlanError, RowError, TableMapError};
use super::xid::XidError;

/// Each names what was found, what was expected, and the remedy where a person must act.
#[derive(Debug, thiserror::Error)]
pub enum MysqlError {
    #[error("connect to {address}: no answer within {} s", timeout.as_secs())]
    ConnectTimeout { address: String, timeout: Duration },
    #[error("connect to {address}")]
    Connect { address: String, source: io::Error },
    #[error("the server takes no writes (read_only), as a replica does that was not promoted")]
    ReadOnly,
    #[error("none of the DSN's servers is the one that takes writes: {}", list(tried))]
    NoServer { tried: Vec<Tried> },
    #[error("set up TLS for the connection")]
    TlsSetup(#[from] TlsSetupError),
    #[error(
        "the server at {address} offers no TLS, which ssl-mode={mode} asks for: set up TLS there, or ssl-mode=preferred here"
    )]
    TlsRefused { address: String, mode: &'static str },
    #[error("TLS with the server at {address}; check ssl-mode, ssl-ca, ssl-cert and the server's certificate")]
    Tls { address: String, source: io::Error },
    #[error(
        "the server asks for authentication by `{method}`, which is not supported: ALTER USER ... IDENTIFIED WITH caching_sha2_password (MariaDB: ed25519 or mysql_native_password)"
    )]
    AuthenticationMethod { method: String },
    #[error("authenticate: {reason}; check the password")]
    Authentication { reason: String },
    #[error("{action}")]
    Server {
        action: &'static str,
        source: Box<ServerError>,
    },
    #[error("{action}")]
    Io { action: &'static str, source: io::Error },
    #[error("the server closed the connection")]
    Closed,
    #[error("the server was silent for {} s", silence.as_secs())]
    Silent { silence: Duration },
    #[error(
        "the server's binlog grows and nothing of it came for {} s behind {place}, though heartbeats did: the connection is made anew", waited.as_secs()
    )]
    NoProgress { place: BinlogPlace, waited: Duration },
    #[error("nothing could be handed over for {} s, so the connection was closed until there is room", stalled.as_secs())]
    Stalled { stalled: Duration },
    #[error("bytes from the server that are not its protocol: expected {expected}")]
    Malformed { expected: &'static str },
    #[error("{found} where the binlog does not allow it, at {place}: expected {expected}")]
    Unexpected {
        found: String,
        place: BinlogPlace,
        expected: &'static str,
    },
    #[error("the server's answer to {what} is `{found}`: expected {expected}")]
    Answer {
        what: &'static str,
        found: String,
        expected: &'static str,
    },

    #[error("the server is {found}, expected MySQL 8.0 or later, or MariaDB 10.6 or later")]
    Version { found: String },
    #[error(
        "the DSN's user may not replicate (the server says {code}: {message}): GRANT REPLICATION SLAVE ON *.* to the DSN's user"
    )]
    MayNotReplicate { code: u16, message: String },
    #[error("log_bin is off, so the server writes no binlog: set log_bin = ON (in its option file), then restart it")]
    BinlogOff,
    #[error(
        "binlog_format is `{found}`, expected `ROW`: SET GLOBAL binlog_format = 'ROW', which holds for new connections of the application"
    )]
    BinlogFormat { found: String },
    #[error(
        "binlog_row_image is `{found}`, expected `FULL`: {reason}. SET GLOBAL binlog_row_image = 'FULL', which holds for new connections of the application"
    )]
    RowImage { found: String, reason: &'static str },

    #[error("the source is in use by connection {connection} of the server: waiting until it is free")]
    InUse { connection: String },
    #[error("the lock that keeps other instances out was lost: {reason}")]
    LockLost { reason: String },
    #[error(
        "another replica with server_id {server_id} has connected, and the server ended this connection for it; expected to be the only one with it: give each its own, by `server_id` of spec.source.config"
    )]
    DuplicateServerId { server_id: u32 },
    #[error(
        "the server has purged binlog that is still needed: {detail}. The saved position is {saved}; the oldest that the server has is {oldest}. Remedy: start once with --accept-gap to go on from there, events in between are lost; raise binlog_expire_logs_seconds"
    )]
    Purged {
        saved: Box<MysqlPosition>,
        oldest: String,
        detail: String,
    },
    #[error(
        "the position {saved} has transactions that the server does not have ({missing}): it lost them, was restored, or is another one. Remedy: point the DSN at the right server, or start once with --accept-gap to go on with what it has"
    )]
    Ahead { saved: Box<MysqlPosition>, missing: String },
    #[error(
        "the server is another one: {found}, and the checkpoint is of {saved}, whose binlog files it does not have. Remedy: point the DSN at the right server, or start once with --accept-gap to go on from its oldest binlog"
    )]
    OtherServer {
        found: ServerIdentity,
        saved: ServerIdentity,
    },
    #[error(
        "the checkpoint is by {saved}, and the server {found}. Remedy: undo the change, or start once with --accept-gap to go on from its oldest binlog"
    )]
    OtherKind { saved: &'static str, found: &'static str },
    #[error("the place to begin at is a {given}, and the server {found}")]
    StartKind { given: &'static str, found: &'static str },
    #[error("the place to begin at is behind the GTIDs {start}, of which the server lacks {missing}: {reason}")]
    StartMissing {
        start: String,
        missing: String,
        reason: &'static str,
    },
    #[error(
        "the place to begin at is {place}, where no event begins (the server says {code}: {message}): SHOW BINLOG EVENTS and mysqlbinlog tell where they do"
    )]
    StartInside {
        place: BinlogPlace,
        code: u16,
        message: String,
    },
    #[error(
        "the place to begin at is {place}, which the server does not have; its binlog goes from {oldest} to {newest}"
    )]
    StartPlace {
        place: BinlogPlace,
        oldest: BinlogPlace,
        newest: BinlogPlace,
    },
    #[error(
        "the position {place} lies beyond 4 GiB in its file, where the protocol cannot begin. Remedy: run FLUSH BINARY LOGS there, then start once with --accept-gap to go on from the next file; turn GTIDs on (gtid_mode), and set the checkpoint aside with --from-slot to use them"
    )]
    BeyondProtocol { place: BinlogPlace },

    #[error("decode the binlog at {place}")]
    Binlog {
        place: BinlogPlace,
        source: Box<BinlogError>,
    },
    #[error("decode the description of a table at {place}")]
    TableMap { place: BinlogPlace, source: TableMapError },
    #[error("read an XA transaction's name at {place}")]
    Xid { place: BinlogPlace, source: XidError },
    #[error("table `{table}` at {place}")]
    Plan {
        table: String,
        place: BinlogPlace,
        source: Box<PlanError>,
    },
    #[error("decode a row of `{table}` in transaction {transaction}, which ends at or after {place}")]
    Row {
        table: String,
        transaction: String,
        place: BinlogPlace,
        source: Box<RowError>,
    },
    #[error(
        "`{verb}` on table `{table}` was written to the binlog as a statement, at {place}: its rows cannot be read. A session or the server has binlog_format = STATEMENT or MIXED: set it to ROW. What transaction {transaction} changed there must be sent by hand; then start once with --accept-gap, which passes over it and its like up to the binlog's end at that start"
    )]
    StatementForm {
        verb: String,
        table: String,
        place: BinlogPlace,
        transaction: String,
    },
    #[error(
        "row of `{table}` at {place} came without its column `{column}`: a connection of the application, or the server, has a binlog_row_image other than FULL; set it to FULL. What the row was must be sent by hand; then start once with --accept-gap, which passes over it and its like up to the binlog's end at that start"
    )]
    RowIncomplete {
        table: String,
        column: String,
        place: BinlogPlace,
    },
    #[error(
        "update of `{table}` in transaction {transaction}, at {place}, changed a part of the JSON document `{column}`, and the binlog has that part alone: a connection of the application, or the server, has PARTIAL_JSON in binlog_row_value_options; unset it. What such rows are now must be sent by hand; then start once with --accept-gap, which passes over it and its like up to the binlog's end at that start"
    )]
    PartialUpdate {
        table: String,
        column: String,
        place: BinlogPlace,
        transaction: String,
    },
    #[error(
        "key column `{column}` of `{table}` at {place} is not in the database any more as it was when the row was written, or the DSN's user may not see it; the database alone knows whether its {bytes} bytes are a UUID, an INET4, an INET6 or BINARY: the record's key could change its form. Remedy: GRANT SELECT on the table, if that is missing; else give the column its name and type back until tailpost has read up to their change; or start once with --accept-gap, which publishes it and its like as bytes, `\\x…`, up to the binlog's end at that start"
    )]
    KeyForm {
        table: String,
        column: String,
        bytes: u16,
        place: BinlogPlace,
    },
    #[error(
        "key column `{column}` of `{table}` at {place} is `{now}` in the database, and was `{before}` when it was last read: the record's key changes its form. Remedy: where rows from before that change may still be unread, give the column its type back until tailpost has read up to it; then, or if the new form is meant from here on, start again: the column is read as it is in the database then"
    )]
    KeyRetyped {
        table: String,
        column: String,
        before: String,
        now: String,
        place: BinlogPlace,
    },
    #[error(
        "binlog_row_event_max_size is {found}, expected at most {limit} with this max_message_bytes: events of several rows could be taken for one row that is too large"
    )]
    RowEventSize { found: u64, limit: usize },
    #[error(
        "transaction {transaction} took back rows at {place}, of which {events} are published already, since it is too large to be held. Remedy: check what they were, then start once with --accept-gap to go on behind it; keep such transactions free of tables without transactions"
    )]
    RolledBack {
        transaction: String,
        place: BinlogPlace,
        events: u64,
    },
    #[error(
        "XA transaction {xid} holds more than {limit} bytes of events, with those that are prepared too: use smaller ones. To pass over its rows, start once with --accept-gap"
    )]
    XaTooLarge { xid: String, limit: usize },
    #[error(
        "the server wrote an incident into its binlog at {place}: `{message}`; changes may be missing from it. Remedy: check what was lost, then start once with --accept-gap"
    )]
    Incident { place: BinlogPlace, message: String },
}

impl MysqlError {
    pub(super) fn server(action: &'static str, source: ServerError) -> Self {
        Self::Server {
            action,
            source: Box::new(source),
        }
    }

    /// What follows. Whatever is not known to heal by itself needs a person.
    pub fn recovery(&self) -> Recovery {
        match self {
            Self::NoServer { tried } if tried.iter().all(|tried| tried.error.recovery() == Recovery::Halt) => {
                Recovery::Halt
            }
            Self::ConnectTimeout { .. }
            | Self::ReadOnly
            | Self::NoServer { .. }
            | Self::Connect { .. }
            | Self::Io { .. }
            | Self::Closed
            | Self::Silent { .. }
            | Self::NoProgress { .. }
            | Self::LockLost { .. } => Recovery::Retry,
            Self::Stalled { .. } => Recovery::RetryWhenThereIsRoom,
            Self::InUse { .. } => Recovery::StandBy,
            Self::Tls { source, .. } if !is_tls_verdict(source) => Recovery::Retry,
            Self::Server { source, .. } if source.heals() => Recovery::Retry,
            _ => Recovery::Halt,
        }
    }

    /// See [`SourceError::may_be_overtaken`](crate::source::SourceError::may_be_overtaken).
    pub(in crate::source) fn may_be_overtaken(&self) -> bool {
        matches!(self, Self::InUse { .. } | Self::LockLost { .. })
    }
}

fn list(tried: &[Tried]) -> String {
    let texts: Vec<String> = tried.iter().map(Tried::to_string).collect();
    texts.join("; ")
}
