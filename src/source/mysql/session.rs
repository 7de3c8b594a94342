//! From a DSN to a started stream: which server, from which position, with everything compared before.

use std::time::Duration;

use crate::config::{self, MysqlStart};
use crate::position::{BinlogPlace, MysqlPosition};
use crate::source::select::Selector;
use crate::source::{OperatorWord, SourceOptions};
use crate::telemetry::error_chain;

use super::assemble::event_limit;
use super::client::{Client, Started};
use super::dump;
use super::endpoint::Endpoint;
use super::error::MysqlError;
use super::lock::{Held, Lock};
use super::schema;
use super::server::{Flavor, ServerFacts, check_event_at, gtids_at};
use super::setup::plan;

/// The server sends a heartbeat when it has had nothing to send for so long.
pub(super) const HEARTBEAT: Duration = Duration::from_secs(1);

/// ER_ACCESS_DENIED_ERROR
const ACCESS_DENIED: u16 = 1045;

/// Everything that is ready when the stream runs.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) held: Held,
    pub(super) started: Started,
    pub(super) endpoint: Endpoint,
    pub(super) facts: ServerFacts,
    pub(super) position: MysqlPosition,
    /// What the operator let pass.
    pub(super) gap: Option<String>,
    /// End of the log when the stream was started.
    pub(super) log_end: BinlogPlace,
}

/// A server that lets no other instance of the pipeline read.
#[derive(Debug)]
pub(super) struct Locked {
    pub(super) held: Held,
    endpoint: Endpoint,
}

/// Connects, and takes the lock that keeps other instances of the pipeline out.
///
/// # Errors
/// [`MysqlError::InUse`] where another one has it.
pub(super) async fn lock(config: &config::Mysql, pipeline: &str) -> Result<Locked, MysqlError> {
    let (endpoint, client) = Endpoint::find(&config.dsn).await?;
    let held = Lock::new(pipeline).take(client).await?;
    Ok(Locked { held, endpoint })
}

/// Decides where to begin, and begins.
///
/// `refused` is what the server said to the last attempt, which the operator accepted beforehand.
pub(super) async fn open(
    config: &config::Mysql,
    locked: Locked,
    from: Option<&MysqlPosition>,
    options: SourceOptions,
    refused: Option<&MysqlError>,
) -> Result<Session, MysqlError> {
    let Locked { mut held, endpoint } = locked;
    let control = &mut held.client;
    // Not before the checkpoint was read: whoever had the source until then may have saved what came since.
    let facts = ServerFacts::ask(control).await?;
    if !options.again {
        check_format(config, &facts)?;
        for table in schema::unmatched(control, &Selector::of_mysql(config)).await? {
            tracing::warn!(
                table,
                "a listed table is not there, or the user may not see it; nothing is published for it: create it, or GRANT SELECT on it"
            );
        }
    }
    let fresh = from.is_none() || options.word == OperatorWord::FromSlot;
    if fresh && config.start != MysqlStart::Earliest {
        warn_of_prepared(control).await;
    }
    let start_place = match &config.start {
        MysqlStart::File { file, position } if fresh => Some(BinlogPlace {
            file: file.as_str().into(),
            pos: *position,
        }),
        _ => None,
    };
    let start_gtids = match (&start_place, facts.flavor) {
        (Some(place), Flavor::Mariadb) => gtids_at(control, place).await?,
        _ => None,
    };
    let plan = plan(from, &facts, &config.start, start_gtids.as_ref(), options.word, refused)?;
    if let (Some(place), Flavor::Mysql) = (start_place, facts.flavor) {
        check_event_at(control, place).await?;
    }
    let mut replication = endpoint.connect().await?;
    for statement in dump::settings(facts.flavor, &plan.position, options.stall_timeout) {
        replication.query("prepare for the binlog", &statement).await?;
    }
    register(&mut replication, config.server_id).await?;
    let command = dump::command(config.server_id, &plan.position);
    let started = replication.start(&command).await?;
    Ok(Session {
        held,
        started,
        endpoint,
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
