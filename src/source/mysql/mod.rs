//! MySQL 8.0 and MariaDB 10.6 and later, by their row binlog.
//!
//! | module | its part |
//! |---|---|
//! | `client`, `packet` | a connection, its TLS and log-in, statements |
//! | `endpoint` | which of the DSN's servers is read |
//! | `server`, `setup`, `session`, `dump` | what is asked and compared before the stream starts |
//! | `stream`, `refusal` | the socket's owner: packets in, batches out |
//! | `binlog`, `rows`, `statement`, `xid` | bytes to events and rows, pure |
//! | `assemble`, `group`, `held`, `tables`, `xa` | events to change events with positions, pure |
//! | `lock` | keeps other instances of the pipeline out |
//! | `progress` | a log that grows while nothing comes |
//! | `monitor`, `schema` | the server beside the stream: the lock, the log's end, tables that the log does not describe |

mod assemble;
#[cfg(feature = "bench")]
pub mod bench;
mod binlog;
mod client;
mod dump;
mod endpoint;
mod error;
mod group;
mod held;
mod lock;
mod monitor;
mod pace;
mod packet;
mod place;
mod preflight;
mod progress;
mod refusal;
mod rows;
mod schema;
mod server;
mod session;
mod setup;
mod statement;
mod stream;
mod tables;
mod xa;
mod xid;

use std::sync::{Arc, OnceLock};

use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::config::{self, MysqlDsn};
use crate::position::BinlogPlace;
use crate::source::select::Selector;
use crate::source::{LogChannel, OperatorWord, Source, SourceError, SourceOptions, own_position};

use assemble::{Assembler, AssemblerOptions};
use endpoint::Endpoint;
use monitor::Monitor;
use session::Session;
use stream::{Stream, StreamOptions};

pub use binlog::{BinlogError, EventKind, RowsHead, RowsKind};
pub use endpoint::Tried;
pub use error::MysqlError;
pub use packet::ServerError;
pub use preflight::preflight;
pub use rows::{
    CellError, CharsetError, CompressedError, DecimalError, JsonbError, MetadataError, OpaqueError, PlanError,
    ReadError, RowError, TableMapError, TemporalError, TypeError,
};
pub use xid::XidError;

pub(crate) use client::Client;
pub(crate) use place::position_at;

/// Reads one server's binlog.
#[derive(Debug)]
pub struct MysqlSource {
    config: Arc<config::Mysql>,
    /// Names the lock that keeps other instances of the pipeline out.
    pipeline: String,
    options: SourceOptions,
    accepted: AcceptedLog,
}

/// Up to where the operator accepted what cannot be read of the log: to its end at the start with the word, which outlasts
/// the connection.
#[derive(Debug, Clone, Default)]
pub struct AcceptedLog(Arc<OnceLock<BinlogPlace>>);

impl MysqlSource {
    pub fn new(config: Arc<config::Mysql>, pipeline: &str, options: SourceOptions, accepted: AcceptedLog) -> Self {
        Self {
            config,
            pipeline: pipeline.to_owned(),
            options,
            accepted,
        }
    }

    async fn stream(&self, refused: Option<&MysqlError>, log: &mut LogChannel) -> Result<(), SourceError> {
        let stop = log.stop.clone();
        let session = tokio::select! {
            biased; // a stop ends a connection attempt, which has begun nothing yet
            () = stop.cancelled() => return Ok(()),
            session = self.open(refused, log) => session?,
        };
        let Session {
            held,
            started,
            endpoint,
            facts,
            position,
            gap,
            log_end,
        } = session;
        if self.options.word == OperatorWord::AcceptGap {
            self.accepted.0.get_or_init(|| log_end.clone());
        }
        let options = StreamOptions {
            config: Arc::clone(&self.config),
            stall_timeout: self.options.stall_timeout,
            progress_timeout: self.options.progress_timeout,
            until: self.options.once.then_some(log_end),
            from: position.clone(),
            oldest: facts.oldest(),
            gap,
            server: format!(
                "{} ({} {})",
                endpoint.host(),
                facts.flavor.name(),
                held.client.version()
            ),
            connection: started.connection_id,
            endpoint,
        };
        let assembler_options = AssemblerOptions {
            max_message_bytes: self.config.max_message_bytes,
            accepted_until: self.accepted.0.get().cloned(),
            fold_names: facts.folds_names(),
            max_held_bytes: held::MAX_HELD_BYTES,
            max_prepared_bytes: assemble::MAX_PREPARED_BYTES,
            batch_events: assemble::BATCH_EVENTS,
        };
        let (monitor, watched) = Monitor::new(held, log.view.clone());
        let stop_monitor = CancellationToken::new();
        let watching = tokio::spawn(monitor.run(stop_monitor.clone()).in_current_span());
        let assembler = Assembler::new(Selector::of_mysql(&self.config), position, assembler_options);
        let stream = Stream::new(started, assembler, &options);
        let result = stream.run(log, watched, &options).await;
        stop_monitor.cancel();
        if let Err(error) = watching.await {
            tracing::error!(error = %error, "the task that watches the server failed");
        }
        Ok(result.map(drop)?)
    }

    /// The lock comes first: to ask where to begin can shut the holder of the lock out.
    async fn open(&self, refused: Option<&MysqlError>, log: &mut LogChannel) -> Result<Session, SourceError> {
        let mut locked = session::lock(&self.config, &self.pipeline).await?;
        if !log.is_claimed() {
            log.view.starting();
        }
        // The answer can take as long as no broker is there.
        let from = match locked.held.keep_during(log.begin()).await {
            Ok(from) => from?,
            Err(lost) => return Err(SourceError::TakenOver(Box::new(lost.into()))),
        };
        let from = own_position(from, self.options.word)?;
        Ok(session::open(&self.config, locked, from.as_ref(), self.options, refused).await?)
    }
}

/// A connection for statements, beside any stream.
///
/// # Errors
/// As a source that begins has them.
pub(crate) async fn connect(dsn: &MysqlDsn) -> Result<Client, MysqlError> {
    let (_, client) = Endpoint::find(dsn).await?;
    Ok(client)
}

impl Source for MysqlSource {
    async fn run(self, log: &mut LogChannel) -> Result<(), SourceError> {
        let result = match self.stream(None, log).await {
            // Of some gaps only the server knows.
            Err(SourceError::Mysql(refused @ (MysqlError::Purged { .. } | MysqlError::Ahead { .. })))
                if self.options.word == OperatorWord::AcceptGap =>
            {
                self.stream(Some(&refused), log).await
            }
            result => result,
        };
        match result {
            // What is in flight can be another instance's to send by now, and the position that this one began at be old.
            Err(SourceError::Mysql(lost @ MysqlError::LockLost { .. })) if log.may_be_overtaken() => {
                Err(SourceError::TakenOver(Box::new(lost.into())))
            }
            result => result,
        }
    }
}
