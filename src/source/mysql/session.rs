//! From a DSN to a started stream: which server, from which position, with everything compared before.

use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use sha2::{Digest, Sha256};

use crate::config::{self, MysqlStart};
use crate::position::{BinlogPlace, MysqlPosition};
use crate::source::{OperatorWord, SourceOptions, tls};
use crate::telemetry::error_chain;

use super::assemble::event_limit;
use super::client::{Client, Started};
use super::dump;
use super::error::MysqlError;
use super::server::{Flavor, ServerFacts, check_event_at, gtids_at, quote};
use super::setup::plan;

/// The lock's connection dies with us: a process that is stopped for this long, or cut off, loses its place to the next.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);
/// The server sends a heartbeat when it has had nothing to send for so long.
pub(super) const HEARTBEAT: Duration = Duration::from_secs(1);

/// ER_ACCESS_DENIED_ERROR
const ACCESS_DENIED: u16 = 1045;

/// Everything that is ready when the stream runs.
#[derive(Debug)]
pub(super) struct Session {
    /// Holds the lock.
    pub(super) control: Client,
    pub(super) lock: Lock,
    pub(super) started: Started,
    pub(super) tls: Arc<ClientConfig>,
    pub(super) facts: ServerFacts,
    pub(super) position: MysqlPosition,
    /// What the operator let pass.
    pub(super) gap: Option<String>,
    /// End of the log when the stream was started.
    pub(super) log_end: BinlogPlace,
}

/// Connects, takes the lock, decides where to begin, and begins.
///
/// `pipeline` names the lock that keeps other instances of the same pipeline out; `refused` is what the server said to the
/// last attempt, which the operator accepted beforehand.
pub(super) async fn open(
    config: &config::Mysql,
    pipeline: &str,
    from: Option<&MysqlPosition>,
    options: SourceOptions,
    refused: Option<&MysqlError>,
) -> Result<Session, MysqlError> {
    let tls = tls::client_config(&config.dsn.ssl, tls::MYSQL)?;
    let mut control = connect(config, &tls).await?;
    let lock = Lock::new(pipeline);
    lock.take(&mut control).await?;
    let facts = ServerFacts::ask(&mut control).await?;
    if !options.again {
        check_format(config, &facts)?;
    }
    let fresh = from.is_none() || options.word == OperatorWord::FromSlot;
    if fresh && config.start != MysqlStart::Earliest {
        warn_of_prepared(&mut control).await;
    }
    let start_place = match &config.start {
        MysqlStart::File { file, position } if fresh => Some(BinlogPlace {
            file: file.as_str().into(),
            pos: *position,
        }),
        _ => None,
    };
    let start_gtids = match (&start_place, facts.flavor) {
        (Some(place), Flavor::Mariadb) => gtids_at(&mut control, place).await?,
        _ => None,
    };
    let plan = plan(from, &facts, &config.start, start_gtids.as_ref(), options.word, refused)?;
    if let (Some(place), Flavor::Mysql) = (start_place, facts.flavor) {
        check_event_at(&mut control, place).await?;
    }
    let mut replication = connect(config, &tls).await?;
    for statement in dump::settings(facts.flavor, &plan.position, options.stall_timeout) {
        replication.query("prepare for the binlog", &statement).await?;
    }
    register(&mut replication, config.server_id).await?;
    let command = dump::command(config.server_id, &plan.position);
    let started = replication.start(&command).await?;
    Ok(Session {
        control,
        lock,
        started,
        tls,
        log_end: facts.end(),
        facts,
        position: plan.position,
        gap: plan.gap,
    })
}

/// Shows the server that this is a replica.
///
/// # Errors
/// Where the user may not replicate, among others.
pub(super) async fn register(client: &mut Client, server_id: u32) -> Result<(), MysqlError> {
    let registered = client
        .simple_command("register as a replica", &dump::register(server_id))
        .await;
    registered.map_err(|error| match error {
        // Here it is no word on the log-in: servers answer so where the right is missing.
        MysqlError::Server { source, .. } if source.code == ACCESS_DENIED => MysqlError::MayNotReplicate {
            code: source.code,
            message: source.message,
        },
        error => error,
    })
}

/// A connection that reads and writes UTF-8, whatever the server's settings.
pub(super) async fn connect(config: &config::Mysql, tls: &Arc<ClientConfig>) -> Result<Client, MysqlError> {
    let mut client = Client::connect(&config.dsn, tls).await?;
    client
        .query("set the connection's character set", "SET NAMES utf8mb4")
        .await?;
    Ok(client)
}

/// Whether what the server writes can be read at all. Applications can set the same for their connections, so each row is
/// looked at too.
fn check_format(config: &config::Mysql, facts: &ServerFacts) -> Result<(), MysqlError> {
    // The setting is deprecated; a server without it knows rows only.
    if let Some(found) = facts.variables.get("binlog_format").filter(|format| *format != "ROW") {
        return Err(MysqlError::BinlogFormat {
            found: found.to_owned(),
        });
    }
    let event_size = facts.variables.get("binlog_row_event_max_size");
    let event_size = event_size.and_then(|size| size.parse::<u64>().ok()).unwrap_or(0);
    let limit = event_limit(config.max_message_bytes);
    if event_size > limit as u64 {
        return Err(MysqlError::RowEventSize {
            found: event_size,
            limit,
        });
    }
    match facts.variables.get("binlog_row_image") {
        Some(found) if !is_whole(found) && !config.outbox.is_empty() => Err(MysqlError::RowImage {
            found: found.to_owned(),
            reason: "an INSERT leaves out columns that have their default, so an outbox event could lack some",
        }),
        _ => Ok(()),
    }
}

/// Whether new rows come whole with this `binlog_row_image`. MariaDB's FULL_NODUP leaves out only what an UPDATE did not
/// change, which the old row has.
pub(super) fn is_whole(row_image: &str) -> bool {
    matches!(row_image, "FULL" | "FULL_NODUP")
}

/// Rows of an XA transaction come when it is prepared: of one that is prepared already, and committed later, they lie before a
/// start that is not the log's beginning.
async fn warn_of_prepared(client: &mut Client) {
    match client.query("list prepared XA transactions", "XA RECOVER").await {
        Ok(prepared) if !prepared.is_empty() => tracing::warn!(
            transactions = prepared.len(),
            "XA transactions are prepared on the server; rows that they wrote before this start are not published, whatever becomes of them"
        ),
        Ok(_) => {}
        // It takes a right of its own on MySQL.
        Err(error) => tracing::debug!(error = %error_chain(&error), "prepared XA transactions are not known"),
    }
}

/// The server-wide lock (`GET_LOCK`) that lets one instance of a pipeline read, in the connection that took it.
#[derive(Debug, Clone)]
pub(super) struct Lock {
    name: String,
}

impl Lock {
    fn new(pipeline: &str) -> Self {
        // The server takes 64 characters at most, and a pipeline's name can be as long by itself.
        let digest = Sha256::digest(pipeline.as_bytes());
        let digits: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        Self {
            name: format!("tailpost.{digits}"),
        }
    }

    async fn take(&self, client: &mut Client) -> Result<(), MysqlError> {
        let timeout = format!("SET SESSION wait_timeout = {}", LOCK_TIMEOUT.as_secs());
        client.query("set the lock's timeout", &timeout).await?;
        let name = quote(&self.name);
        // Our own last connection may be on its way out.
        let statement = format!("SELECT GET_LOCK({name}, 1), IS_USED_LOCK({name})");
        let rows = client.query("take the pipeline's lock", &statement).await?;
        let cell = |column: usize| rows.first().and_then(|row| row.get(column)).and_then(Option::as_deref);
        if cell(0) == Some("1") {
            return Ok(());
        }
        Err(MysqlError::InUse {
            connection: cell(1).unwrap_or("?").to_owned(),
        })
    }

    /// Whether the connection still has it. Asking keeps the connection alive.
    pub(super) async fn is_held(&self, client: &mut Client) -> Result<bool, MysqlError> {
        let statement = format!("SELECT IS_USED_LOCK({}) = CONNECTION_ID()", quote(&self.name));
        let rows = client.query("look at the pipeline's lock", &statement).await?;
        let held = rows.first().and_then(|row| row.first()).and_then(Option::as_deref);
        Ok(held == Some("1"))
    }
}
