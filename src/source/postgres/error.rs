//! What can go wrong between us and a PostgreSQL server, and what follows from it.

use std::error::Error;
use std::fmt;
use std::io;
use std::time::Duration;

use crate::position::{Lsn, PostgresPosition};
use crate::source::Recovery;

use super::pgoutput::DecodeError;
use super::relation::UnknownRelation;
use super::tuple::RowError;
use super::wire::WireError;
use crate::tls::{TlsSetupError, is_tls_verdict};

/// See each variant's text. [`PostgresError::recovery`] says what follows.
#[derive(Debug, thiserror::Error)]
pub enum PostgresError {
    #[error("connect to PostgreSQL at {address}: no answer within {} s", timeout.as_secs())]
    ConnectTimeout { address: String, timeout: Duration },
    #[error("connect to PostgreSQL at {address}")]
    Connect { address: String, source: io::Error },
    #[error("set up TLS to PostgreSQL")]
    TlsSetup(#[from] TlsSetupError),
    #[error(
        "the server at {address} does not speak TLS, which sslmode={mode} asks for: set ssl = on there, or sslmode=prefer here"
    )]
    TlsRefused { address: String, mode: &'static str },
    #[error("TLS with the server at {address}; check sslmode, sslrootcert, sslcert and the server's certificate")]
    Tls { address: String, source: io::Error },
    #[error("the server asks for authentication by {method}, which is not supported: use scram-sha-256 in pg_hba.conf")]
    AuthenticationMethod { method: &'static str },
    #[error("the server asks for a password and the DSN has none: add one to the DSN")]
    PasswordMissing,
    #[error("channel_binding=require is set, and the connection cannot be bound to its TLS channel: {reason}")]
    ChannelBinding { reason: &'static str },
    #[error("authenticate by SCRAM: {reason}; check the password")]
    Scram { reason: String },
    #[error("{action}")]
    Server { action: String, source: Box<ServerError> },
    #[error("{action}")]
    Io { action: &'static str, source: io::Error },
    #[error("{action}")]
    Control {
        action: String,
        source: Box<dyn Error + Send + Sync>,
    },
    #[error("the server closed the connection")]
    Closed,
    #[error("the server is shutting down")]
    ShuttingDown,
    #[error("the server was silent for {} s", silence.as_secs())]
    Silent { silence: Duration },
    #[error(
        "nothing came for {} s while the server's log went on to {log_end}, beyond {received}, and nothing shows why; see to the server's process {pid}",
        stalled.as_secs()
    )]
    NoProgress {
        stalled: Duration,
        log_end: Lsn,
        received: Lsn,
        pid: i32,
    },
    #[error("nothing could be handed over for {} s, so the connection was closed: the server's log must not wait for the sink", stalled.as_secs())]
    Stalled { stalled: Duration },
    #[error(
        "slot `{slot}` is about to be lost (wal_status `{status}`) while the sink takes nothing: the connection was closed; mend the sink or raise max_slot_wal_keep_size"
    )]
    SlotEndangered { slot: String, status: String },
    #[error("PostgreSQL {found} is too old: 14 or later is needed")]
    Version { found: String },
    #[error(
        "wal_level is `{found}`, expected `logical`: ALTER SYSTEM SET wal_level = 'logical', then restart the server"
    )]
    WalLevel { found: String },
    #[error("none of the servers in the DSN takes part: {found}; target_session_attrs asks for {expected}")]
    SessionAttributes { found: String, expected: &'static str },
    #[error("publication `{publication}` does not exist and may not be made (create: false): {remedy}")]
    PublicationMissing { publication: String, remedy: String },
    #[error(
        "publication `{publication}` does not exist, though this pipeline has run before: events may be missing since it was dropped; {remedy}, then a new slot or --accept-gap"
    )]
    PublicationLost { publication: String, remedy: String },
    #[error(
        "publication `{publication}` did not exist yet where slot `{slot}` must read on ({detail}): publications must be made before the slot. Drop the slot and start with --from-slot to go on from now, or move it past that place with pg_replication_slot_advance; events in between are lost either way"
    )]
    PublicationTooYoung {
        publication: String,
        slot: String,
        detail: String,
    },
    #[error("publication `{publication}` does not publish {tables}, which the pipeline lists: {remedy}")]
    PublicationLacksTables {
        publication: String,
        tables: String,
        remedy: String,
    },
    #[error(
        "no table matches `{pattern}`, which the pipeline lists: what is written to one before it is in publication `{publication}` is lost. Create it and start again, or take the pattern out of the list"
    )]
    ListedTableMissing { pattern: String, publication: String },
    #[error(
        "{table}, which the pipeline lists, is {what}: its rows are never in the log. Expected an ordinary table: {remedy}"
    )]
    NotLogged {
        table: String,
        what: String,
        remedy: String,
    },
    #[error(
        "the role {what}, so it cannot make publication `{publication}`: grant that, or make the publication as an administrator before the first start"
    )]
    MayNotPublish { publication: String, what: String },
    #[error("publication `{publication}` does not publish INSERTs, which the pipeline's tables need: {remedy}")]
    PublicationLacksInserts { publication: String, remedy: String },
    #[error(
        "publication `{publication}` would publish UPDATE or DELETE of {tables}, which has no replica identity (one with a generated column is none before PostgreSQL 18): the application's own statements would fail; ALTER TABLE ... REPLICA IDENTITY, or add a primary key{alternative}"
    )]
    NoReplicaIdentity {
        publication: String,
        tables: String,
        /// Another way out, if there is one.
        alternative: &'static str,
    },
    #[error(
        "replication slot `{slot}` does not exist and may not be made (create: false): SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')"
    )]
    SlotMissing { slot: String },
    #[error(
        "replication slot `{slot}` is gone, and with it the log after {saved}: events may be missing. Remedy: start once with --accept-gap to make a new slot and go on from now"
    )]
    SlotLost { slot: String, saved: PostgresPosition },
    #[error("replication slot `{slot}` is {found}, expected {expected}: {remedy}")]
    SlotKind {
        slot: String,
        found: String,
        expected: &'static str,
        remedy: &'static str,
    },
    #[error(
        "replication slot `{slot}` was invalidated by the server ({reason}), expected one that still has the log to read: that log is gone and events may be missing. Remedy: start once with --accept-gap to make a new slot and go on from now; raise max_slot_wal_keep_size"
    )]
    SlotInvalidated { slot: String, reason: String },
    #[error(
        "replication slot `{slot}` stands at {confirmed}, beyond the saved position {saved}: it was dropped and made again, or advanced, and the events between may be missing. Remedy: start once with --accept-gap to go on from {confirmed}"
    )]
    SlotAhead { slot: String, confirmed: Lsn, saved: Lsn },
    #[error("replication slot `{slot}` is active for pid {pid}: waiting until it is free")]
    SlotActive { slot: String, pid: i32 },
    #[error(
        "the server is another one: system identifier {found}, and the checkpoint is of {saved}. Remedy: point the DSN at the right server; after pg_upgrade or a restore, start once with --from-slot"
    )]
    OtherServer { found: u64, saved: u64 },
    #[error(
        "the server is on timeline {found}, and the checkpoint at {saved} is of timeline {timeline}: {reason}. Remedy: check where the fail-over happened, then start once with --accept-gap"
    )]
    Timeline {
        found: u32,
        timeline: u32,
        saved: Lsn,
        reason: String,
    },
    #[error(
        "the server is on timeline {found}, older than the checkpoint at {saved} of timeline {timeline}: it was the primary before another server was promoted. Remedy: point the DSN at that one; start once with --from-slot only if this server is to be the primary again"
    )]
    OlderTimeline { found: u32, timeline: u32, saved: Lsn },
    #[error(
        "events up to {relayed} of timeline {timeline} were relayed, and the server was promoted to timeline {found} at {switch_point}, before it had them: they are published and not in its database. Remedy: see to those, then start once with --accept-gap to go on from {resume}; synchronized_standby_slots on the primary keeps a pipeline from running ahead of a standby"
    )]
    PastSwitchPoint {
        /// End of the last unit with events, or the commit record of the one that was in progress.
        relayed: Lsn,
        timeline: u32,
        found: u32,
        switch_point: Lsn,
        /// Everything that both timelines have is done up to here.
        resume: Lsn,
    },
    #[error(
        "replication slot `{slot}` {found} on the server that was promoted to timeline {timeline}: it was not kept in step there, and the log after {saved} is gone for it: events may be missing. Remedy: start once with --accept-gap to make a new slot and go on from now; before the next promotion, {how}"
    )]
    SlotNotSynchronised {
        slot: String,
        /// Such as `does not exist`.
        found: String,
        timeline: u32,
        saved: Lsn,
        how: &'static str,
    },
    #[error(
        "the saved position {saved} lies beyond the end of the server's log at {end}: the server lost log that was already read, or is another one. Remedy: start once with --accept-gap to go on from the slot"
    )]
    BeyondLog { saved: Lsn, end: Lsn },
    #[error(
        "start is {start}, which lies before what slot `{slot}` still has ({confirmed}): leave `start` out, or name a later place"
    )]
    StartTooEarly { slot: String, start: Lsn, confirmed: Lsn },
    #[error("frame of {length} bytes with tag `{}` is over the limit of {limit}", char::from(*tag))]
    Frame { tag: u8, length: u64, limit: u64 },
    #[error("{found} where the protocol does not allow it: expected {expected}")]
    Unexpected { found: String, expected: &'static str },
    #[error("bytes from the server that are not its protocol")]
    Malformed { source: io::Error },
    #[error(
        "replication slot `{slot}` does not exist on the standby at {address}: waiting for a primary among the DSN's servers"
    )]
    SlotNotOnStandby { slot: String, address: String },
    #[error(
        "replication slot `{slot}` on the standby at {address} is kept in step with its primary's: waiting for a primary among the DSN's servers, or for a promotion"
    )]
    SlotOfPrimary { slot: String, address: String },
    #[error("replication slot `{slot}` was made by another instance just now")]
    SlotMadeMeanwhile { slot: String },
    #[error("read a replication message")]
    Wire(#[from] WireError),
    #[error("decode pgoutput at {lsn}")]
    Decode { lsn: Lsn, source: DecodeError },
    #[error("decode a row at {lsn}")]
    UnknownRelation { lsn: Lsn, source: UnknownRelation },
    #[error("decode a row at {lsn}")]
    Row { lsn: Lsn, source: RowError },
}

impl PostgresError {
    pub(super) fn server(action: impl Into<String>, source: ServerError) -> Self {
        Self::Server {
            action: action.into(),
            source: Box::new(source),
        }
    }

    /// From the control connection's client, whose errors wrap the server's.
    pub(super) fn control(action: impl Into<String>, error: tokio_postgres::Error) -> Self {
        match error.as_db_error() {
            Some(db) => Self::server(action, ServerError::from_db(db)),
            None => Self::Control {
                action: action.into(),
                source: Box::new(error),
            },
        }
    }

    /// What follows. Whatever is not known to heal by itself needs a person.
    pub fn recovery(&self) -> Recovery {
        match self {
            Self::ConnectTimeout { .. }
            | Self::Connect { .. }
            | Self::Io { .. }
            | Self::Closed
            | Self::ShuttingDown
            | Self::Silent { .. }
            | Self::NoProgress { .. }
            | Self::SlotNotOnStandby { .. }
            | Self::SlotOfPrimary { .. }
            | Self::SlotMadeMeanwhile { .. }
            | Self::SessionAttributes { .. }
            // A new connection is told of each table. PostgreSQL 14 does not tell again of one whose rows come under another
            // name, as when publish_via_partition_root is changed.
            | Self::UnknownRelation { .. } => Recovery::Retry,
            Self::Stalled { .. } | Self::SlotEndangered { .. } => Recovery::RetryWhenThereIsRoom,
            Self::SlotActive { .. } => Recovery::StandBy,
            Self::Tls { source, .. } if !is_tls_verdict(source) => Recovery::Retry,
            Self::Server { source, .. } => source.recovery(),
            Self::Control { source, .. } => match source.downcast_ref::<tokio_postgres::Error>() {
                Some(error) if error.is_closed() || caused_by_io(error) => Recovery::Retry,
                _ => Recovery::Halt,
            },
            _ => Recovery::Halt,
        }
    }

    /// Whether another of the DSN's servers may do where this one does not.
    pub(super) fn is_of_one_server(&self) -> bool {
        matches!(self, Self::OlderTimeline { .. }) || self.recovery() == Recovery::Retry
    }

    /// See [`SourceError::may_be_overtaken`](crate::source::SourceError::may_be_overtaken).
    pub(in crate::source) fn may_be_overtaken(&self) -> bool {
        match self {
            // The slot was moved on by somebody, and nobody else may.
            Self::SlotActive { .. } | Self::SlotAhead { .. } | Self::SlotMadeMeanwhile { .. } => true,
            Self::Server { source, .. } => source.recovery() == Recovery::StandBy,
            _ => false,
        }
    }
}

fn caused_by_io(error: &tokio_postgres::Error) -> bool {
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(io) = error.downcast_ref::<io::Error>() {
            return !is_tls_verdict(io);
        }
        cause = error.source();
    }
    false
}

/// An error that the server reported, with the fields that a person needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerError {
    pub severity: String,
    /// SQLSTATE.
    pub code: String,
    pub message: String,
    pub detail: Option<String>,
    pub hint: Option<String>,
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the server says {} {}: {}", self.severity, self.code, self.message)?;
        for more in [&self.detail, &self.hint].into_iter().flatten() {
            write!(f, " ({})", more.trim_end_matches('.'))?;
        }
        if let Some(remedy) = self.remedy() {
            write!(f, "; {remedy}")?;
        }
        Ok(())
    }
}

impl Error for ServerError {}

impl ServerError {
    pub(super) fn from_db(error: &tokio_postgres::error::DbError) -> Self {
        Self {
            severity: error.severity().to_owned(),
            code: error.code().code().to_owned(),
            message: error.message().to_owned(),
            detail: error.detail().map(str::to_owned),
            hint: error.hint().map(str::to_owned),
        }
    }

    fn remedy(&self) -> Option<&'static str> {
        match self.code.as_str() {
            "28P01" => {
                Some("expected the password that the server has for that user: check the user and password in the DSN")
            }
            "28000" => Some("check the user in the DSN and the server's pg_hba.conf"),
            "3D000" => Some("check the database's name in the DSN"),
            "42501" if self.message.contains("replication") || self.message.contains("WAL sender") => {
                Some("ALTER ROLE ... REPLICATION, or your provider's replication role")
            }
            "42501" => Some("grant the role that right, or have an administrator run the statement"),
            "53400" | "53300" => Some("raise max_replication_slots, max_wal_senders or max_connections"),
            _ => None,
        }
    }

    /// By SQLSTATE (PostgreSQL documentation, appendix A): class 08 and 57P0x heal, as do exhausted resources and a slot
    /// in use; the rest needs a person.
    fn recovery(&self) -> Recovery {
        match self.code.as_str() {
            "55006" => Recovery::StandBy,
            "57014" | "55P03" | "57P01" | "57P02" | "57P03" | "53300" | "53200" | "53100" | "58030" | "40001"
            | "40P01" => Recovery::Retry,
            // The standby's slot is still being synchronised: it can be used after a promotion.
            "55000"
                if self
                    .detail
                    .as_deref()
                    .is_some_and(|detail| detail.contains("synchronized from the primary")) =>
            {
                Recovery::Retry
            }
            code if code.starts_with("08") => Recovery::Retry,
            _ => Recovery::Halt,
        }
    }
}
