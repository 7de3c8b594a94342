//! What the program needs to run one pipeline: validated, with every default filled in.
//!
//! The file's own shape lives in the readers beside this module; nothing here is optional that the program cannot do without.

mod audit;
mod envelope;
mod filter;
mod mask;
mod outbox;
mod sink;
mod validate;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

pub use audit::{Audit, AuditNames, Dispatches};
use secrecy::SecretString;

pub use envelope::{ChangeTypes, CloudEvents, CloudEventsMode, DEFAULT_TYPE_PREFIX, DebeziumSchema, Envelope};
pub use filter::{Comparison, Condition, Demand, Filter, KeptTables, Literal, Test};
pub use mask::{Mask, MaskAction, MaskRule, MaskValue, OnMismatch};
pub use outbox::{
    Columns, HeaderNames, HeadersAs, Idempotency, IdempotencyKey, JsonAs, KeyAs, LeftOut, OnMissing, OnNull, OnUpdate,
    Outbox, PayloadAs, TimeUnit, TimestampColumn, TopicRule,
};
pub use sink::{
    BatchForm, Body, CommitPolicy, CreateTopics, File, FurtherSink, Http, HttpAuth, HttpBatch, Kafka, Method, OnFenced,
    Ordering, Retry, Sink, StatusSet, Stdout,
};
pub use validate::{OnFault, OnMissingSchema, Requirement, SchemaPlace, SchemaRegistry, Schemas, Sequence, Validate};

use super::dsn::{MysqlDsn, PostgresDsn};
use super::pattern::{NamePattern, PrefixPattern};
use crate::gtid::{GtidSet, MariadbGtids};
use crate::position::Lsn;

/// One pipeline: one source, its processors, its sinks.
#[derive(Debug, Clone)]
pub struct Pipeline {
    /// Names the pipeline in state files, metrics and the transactional id.
    pub name: String,
    /// Whose pipeline it is, for logs and metrics only, as are labels and annotations.
    pub tenant: Option<String>,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub source: Source,
    /// In the file's order: each event goes from one to the next, until one takes it.
    pub processors: Vec<Processor>,
    /// The leading one: of those that the position waits for the first of type `kafka`, or else the first. Its cluster keeps
    /// the position, where that is kept in Kafka.
    pub sink: Sink,
    /// In the file's order.
    pub further_sinks: Vec<FurtherSink>,
    pub commit_policy: CommitPolicy,
    pub errors: ErrorPolicies,
    /// Where events go that cannot go their way; none: no policy of `errors` is [`ErrorPolicy::DeadLetter`].
    pub dead_letter: Option<DeadLetter>,
    pub audit: Option<Audit>,
    pub dispatches: Option<Dispatches>,
    pub checkpoint: Checkpoint,
    pub delivery: Delivery,
    pub restart: Restart,
}

impl Pipeline {
    /// All sinks, the leading one first.
    pub fn sinks(&self) -> impl Iterator<Item = &Sink> {
        std::iter::once(&self.sink).chain(self.further_sinks.iter().map(|further| &further.sink))
    }

    /// The same pipeline as each of its sinks sees it, the leading one first: with that sink alone.
    pub fn of_each_sink(&self) -> impl Iterator<Item = Self> {
        self.sinks().map(|sink| Self {
            sink: sink.clone(),
            further_sinks: Vec::new(),
            ..self.clone()
        })
    }

    /// Whether any processor looks at numbers that are kept over restarts.
    pub fn keeps_sequences(&self) -> bool {
        let keeps = |processor: &Processor| match processor {
            Processor::Validate(validate) => validate.sequence.is_some(),
            Processor::Outbox(_) | Processor::Filter(_) | Processor::Mask(_) => false,
        };
        self.processors.iter().any(keeps)
    }

    /// The registries that have schemas of its payloads.
    pub fn schema_registries(&self) -> impl Iterator<Item = &Arc<SchemaRegistry>> {
        self.processors.iter().filter_map(|processor| match processor {
            Processor::Validate(validate) => match &validate.schemas.as_ref()?.place {
                SchemaPlace::Registry(registry) => Some(registry),
                SchemaPlace::Folder(_) => None,
            },
            Processor::Outbox(_) | Processor::Filter(_) | Processor::Mask(_) => None,
        })
    }

    /// The sink's transactional id, where anything is written in its name: records, or the checkpoint.
    pub fn transactional_id(&self) -> Option<&str> {
        let kafka = self.sink.kafka()?;
        let in_use = kafka.exactly_once || self.checkpoint != Checkpoint::File;
        in_use.then_some(kafka.transactional_id.as_str())
    }
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

    /// Whether changes of ordinary tables are published.
    pub fn selects_tables(&self) -> bool {
        match self {
            Self::Postgres(postgres) => !postgres.tables.is_empty(),
            Self::Mysql(mysql) => !mysql.tables.is_empty(),
        }
    }

    /// Whether any of its outboxes is a table.
    pub fn selects_outbox_tables(&self) -> bool {
        match self {
            Self::Postgres(postgres) => !postgres.outbox.tables.is_empty(),
            Self::Mysql(mysql) => !mysql.outbox.is_empty(),
        }
    }

    pub(super) fn set_on_update(&mut self, on_update: OnUpdate) {
        match self {
            Self::Postgres(postgres) => postgres.on_update = on_update,
            Self::Mysql(mysql) => mysql.on_update = on_update,
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
    /// Whether a slot that is made is one that servers from 17 on keep in step on their standbys.
    pub failover: bool,
    /// Whether the slot goes with its connection; never so of a file.
    pub temporary: bool,
    /// Larger messages and rows are discarded while they stream in and reported as `rejected`.
    pub max_message_bytes: u64,
    /// Ordinary tables whose changes are published.
    pub tables: Vec<NamePattern>,
    pub outbox: OutboxSelection,
    /// The gravest of the processors': above [`OnUpdate::Skip`], UPDATEs of outboxes must be seen.
    pub on_update: OnUpdate,
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
    /// The gravest of the processors': above [`OnUpdate::Skip`], UPDATEs of outboxes are told of.
    pub on_update: OnUpdate,
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

/// A text that names no GTIDs to go on behind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected {}", GtidStart::EXPECTED)]
pub struct ParseGtidStartError;

impl GtidStart {
    pub(super) const EXPECTED: &str =
        "a GTID set such as 3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5, or of MariaDB 0-1-100";
}

impl FromStr for GtidStart {
    type Err = ParseGtidStartError;

    /// A colon is in each GTID set of MySQL, and in none of MariaDB. The empty set is a way to say `earliest` to the one
    /// server and a mistake to the other, and is none here.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        let gtids = match text.contains(':') {
            true => text.parse().ok().map(Self::Mysql),
            false => text.parse().ok().map(Self::Mariadb),
        };
        gtids.filter(|_| !text.is_empty()).ok_or(ParseGtidStartError)
    }
}

/// What makes records of change events, ends their way, or looks after what is in them.
#[derive(Debug, Clone)]
pub enum Processor {
    Outbox(Box<Outbox>),
    Filter(Box<Filter>),
    Mask(Box<Mask>),
    Validate(Box<Validate>),
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
    /// Park the event in [`Pipeline::dead_letter`] and go on.
    DeadLetter,
    /// Count the event and go on.
    Skip,
}

/// `spec.dead_letter`.
#[derive(Debug, Clone)]
pub struct DeadLetter {
    pub place: DeadLetterPlace,
    pub oversized: OversizedDeadLetter,
    /// None: nobody is told.
    pub notify: Option<Notify>,
}

/// Who is told of dead letters.
#[derive(Debug, Clone)]
pub struct Notify {
    /// A URL, of http or https; its path is often what lets in.
    pub webhook: SecretString,
    /// Of each request: names and values that HTTP allows.
    pub headers: Vec<(String, SecretString)>,
    /// The least time between two requests.
    pub interval: Duration,
}

/// Where dead letters are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeadLetterPlace {
    /// A topic of the sink's own cluster.
    Topic(String),
    /// An SQLite file of this machine.
    File(LetterFile),
}

/// `spec.dead_letter` of type `sqlite`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LetterFile {
    pub path: PathBuf,
    /// How long letters are kept; none: until they are purged by hand.
    pub retention: Option<Duration>,
}

impl LetterFile {
    /// The same, seen from a folder if its path is relative.
    pub fn in_folder(&self, folder: &Path) -> Self {
        Self {
            path: folder.join(&self.path),
            retention: self.retention,
        }
    }
}

impl DeadLetter {
    /// The topic that has them, if it is one.
    pub fn topic(&self) -> Option<&str> {
        match &self.place {
            DeadLetterPlace::Topic(topic) => Some(topic),
            DeadLetterPlace::File(_) => None,
        }
    }
}

/// What becomes of a dead letter that is too large for its topic as well, or whose bytes the source had to discard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OversizedDeadLetter {
    /// Stop the pipeline: the database's log still has the bytes.
    Halt,
    /// Park a stub in its place, with size, hash and position, and without the bytes.
    Stub,
}

/// `spec.checkpoint`: where the position is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Checkpoint {
    /// A file under the state directory.
    File,
    /// A compacted topic of the sink's own cluster, which any machine can go on from. Always so with `exactly_once`.
    Kafka(CheckpointTopic),
}

/// The topic that holds positions, of any number of pipelines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointTopic {
    pub name: String,
    /// At least 1, or -1: the broker's default.
    pub replication_factor: i32,
    /// Whether it may be made where it is missing.
    pub create: bool,
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
    /// How long a source may hand over nothing while its server's log moves and nothing explains it.
    pub progress_timeout: Duration,
    /// How long a Kafka transaction may gather records under load; with nothing more to wait for, it is committed at once.
    pub transaction_interval: Duration,
}

/// `spec.restart`: waits between tries of a source or a sink that failed and can heal.
///
/// The n-th wait in a row is `base_delay * multiplier^(n-1)`, at most `max_delay`, times a random factor from `jitter`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Restart {
    pub base_delay: Duration,
    pub max_delay: Duration,
    /// At least 1.
    pub multiplier: f64,
    /// Least and largest factor: both above 0, the first no larger than the second.
    pub jitter: (f64, f64),
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
