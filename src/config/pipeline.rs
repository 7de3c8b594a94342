//! What the program needs to run one pipeline: validated, with every default filled in.
//!
//! The file's own shape lives in the readers beside this module; nothing here is optional that the program cannot do without.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use secrecy::SecretString;

use super::dsn::{MysqlDsn, PostgresDsn};
use super::pattern::{NamePattern, OutboxPattern, PrefixPattern};
use super::template::Template;
use crate::gtid::{GtidSet, MariadbGtids};
use crate::position::Lsn;

/// One pipeline: one source, its processors, one sink.
#[derive(Debug, Clone)]
pub struct Pipeline {
    /// Names the pipeline in state files, metrics and the transactional id.
    pub name: String,
    /// Whose pipeline it is, for logs and metrics only, as are labels and annotations.
    pub tenant: Option<String>,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub source: Source,
    /// In the file's order: the first that matches an event takes it.
    pub processors: Vec<Processor>,
    pub sink: Sink,
    pub errors: ErrorPolicies,
    pub delivery: Delivery,
}

/// Where changes come from.
#[derive(Debug, Clone)]
pub enum Source {
    Postgres(Box<Postgres>),
    /// MySQL or MariaDB: the server says which of them it is.
    Mysql(Box<Mysql>),
}

impl Source {
    /// Names the source in the checkpoint, metrics and logs.
    pub fn id(&self) -> &str {
        match self {
            Self::Postgres(postgres) => &postgres.id,
            Self::Mysql(mysql) => &mysql.id,
        }
    }

    /// Whether any of its changes can be outbox events.
    pub fn selects_outboxes(&self) -> bool {
        match self {
            Self::Postgres(postgres) => !postgres.outbox.prefixes.is_empty() || !postgres.outbox.tables.is_empty(),
            Self::Mysql(mysql) => !mysql.outbox.is_empty(),
        }
    }
}

/// `spec.source` of type `postgres`.
#[derive(Debug, Clone)]
pub struct Postgres {
    /// Names the source in metrics and logs.
    pub id: String,
    pub dsn: PostgresDsn,
    pub slot: String,
    pub publication: String,
    /// Whether a missing slot or publication may be made on the first start.
    pub create: bool,
    /// Larger messages and rows are discarded while they stream in and reported as `rejected`.
    pub max_message_bytes: u64,
    /// Ordinary tables whose changes are published.
    pub tables: Vec<NamePattern>,
    pub outbox: OutboxSelection,
    pub start: Start,
}

/// Which of a source's changes are outbox events.
#[derive(Debug, Clone, Default)]
pub struct OutboxSelection {
    /// Prefixes of `pg_logical_emit_message`.
    pub prefixes: Vec<PrefixPattern>,
    /// Tables whose INSERTs are outbox messages.
    pub tables: Vec<NamePattern>,
}

/// Where to start when there is no checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// What the slot still has.
    Earliest,
    /// The log's end at the first start.
    Latest,
    Lsn(Lsn),
}

/// `spec.source` of type `mysql` or `mariadb`.
#[derive(Debug, Clone)]
pub struct Mysql {
    /// Names the source in metrics and logs.
    pub id: String,
    pub dsn: MysqlDsn,
    /// Distinct among all servers and readers of the replication topology; never 0.
    pub server_id: u32,
    /// Larger rows are discarded while they stream in and reported as `rejected`.
    pub max_message_bytes: u64,
    /// Ordinary tables whose changes are published.
    pub tables: Vec<NamePattern>,
    /// Tables whose INSERTs are outbox messages.
    pub outbox: Vec<NamePattern>,
    pub start: MysqlStart,
}

/// Where to start in a binlog when there is no checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MysqlStart {
    /// What the binlog still has.
    Earliest,
    /// The binlog's end at the first start.
    Latest,
    /// Behind all that the GTIDs stand for.
    Gtid(GtidStart),
    /// At an event's begin: a position of at least 4, in a file of the server's own naming.
    File { file: String, position: u64 },
}

/// GTIDs of the one kind or the other. Which one the server has shows when it is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GtidStart {
    /// `uuid:1-5`: transactions that are done.
    Mysql(GtidSet),
    /// `0-1-100`: the last transaction of each domain.
    Mariadb(MariadbGtids),
}

/// What makes records of change events.
#[derive(Debug, Clone)]
pub enum Processor {
    Outbox(Outbox),
}

/// A processor of type `outbox`.
#[derive(Debug, Clone)]
pub struct Outbox {
    /// Name in metrics; `outbox` when the file does not say.
    pub id: String,
    /// Which outboxes it takes: a message prefix, a table, or schema and table. Empty: all.
    pub tables: Vec<OutboxPattern>,
    /// Step 1 of the topic's cascade.
    pub topic: Option<Template>,
    pub columns: Columns,
    /// Step 3 of the topic's cascade; a legal topic name.
    pub default_topic: Option<String>,
    /// The record's key; none: the aggregate id.
    pub key: Option<Template>,
    /// Header name and the field that fills it, in the file's order.
    pub additional_headers: Vec<(String, String)>,
    /// Whether the value is the payload as it is, without an envelope.
    pub raw_payload: bool,
    /// Whether a missing field makes an event invalid.
    pub strict: bool,
}

/// Where an outbox event's fields are: JSON members of a message, or columns of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Columns {
    pub payload: String,
    pub aggregate_type: String,
    pub aggregate_id: String,
    pub event_type: String,
    pub topic: String,
    pub event_id: String,
}

/// Where records go.
#[derive(Debug, Clone)]
pub enum Sink {
    Kafka(Kafka),
}

/// A sink of type `kafka`.
#[derive(Debug, Clone)]
pub struct Kafka {
    /// Names the sink in metrics and logs.
    pub id: String,
    /// `host:port`, comma separated, as librdkafka takes it.
    pub brokers: String,
    /// The fallback for events that bring no topic of their own.
    pub topic: Option<Template>,
    /// The key of records that bring none of their own.
    pub key: Option<Template>,
    pub envelope: Envelope,
    /// None: the broker's own rule for topics that are missing.
    pub create_topics: Option<CreateTopics>,
    /// librdkafka properties in the file's order, none of them one that an option of ours sets; values can be secrets.
    pub client_conf: Vec<(String, SecretString)>,
}

/// What stands around a payload that isn't sent raw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Envelope {
    Native,
}

/// How topics that are missing are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CreateTopics {
    /// At least 1.
    pub partitions: i32,
    /// At least 1, or -1: the broker's default.
    pub replication_factor: i32,
}

/// What becomes of an event that cannot go its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrorPolicies {
    pub invalid: ErrorPolicy,
    pub unroutable: ErrorPolicy,
    pub rejected: ErrorPolicy,
}

/// What to do with one kind of such events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorPolicy {
    /// Stop the pipeline with the cause.
    Halt,
    /// Count the event and go on.
    Skip,
}

/// Bounds of the way from source to sink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivery {
    pub max_in_flight_events: usize,
    /// Payloads and the queue's overhead.
    pub max_in_flight_bytes: u64,
    /// How long a stop waits for acks; zero: not at all.
    pub drain_timeout: Duration,
    /// How long a stuck sink may hold the source's connection.
    pub stall_timeout: Duration,
}

/// How the server is told apart from an impostor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SslMode {
    Disable,
    Prefer,
    Require,
    VerifyCa,
    VerifyFull,
}

/// The TLS part of a DSN.
#[derive(Debug, Clone)]
pub struct Ssl {
    pub mode: SslMode,
    /// Certificates of trusted authorities; none: the system's.
    pub root_cert: Option<PathBuf>,
    /// Always together with the key.
    pub client_cert: Option<PathBuf>,
    pub client_key: Option<PathBuf>,
}

impl SslMode {
    /// As a DSN of PostgreSQL spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Disable => "disable",
            Self::Prefer => "prefer",
            Self::Require => "require",
            Self::VerifyCa => "verify-ca",
            Self::VerifyFull => "verify-full",
        }
    }

    /// As a DSN of MySQL spells it.
    pub fn as_mysql_str(self) -> &'static str {
        match self {
            Self::Disable => "disabled",
            Self::Prefer => "preferred",
            Self::Require => "required",
            Self::VerifyCa => "verify-ca",
            Self::VerifyFull => "verify-identity",
        }
    }
}
