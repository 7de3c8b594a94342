//! MySQL 8.0 and MariaDB 10.6 and later, by their row binlog.
//!
//! | module | its part |
//! |---|---|
//! | `client`, `packet` | a connection, its TLS and log-in, statements |
//! | `server`, `setup`, `session`, `dump` | what is asked and compared before the stream starts |
//! | `stream` | the socket's owner: packets in, batches out |
//! | `binlog`, `rows`, `statement`, `xid` | bytes to events and rows, pure |
//! | `assemble`, `group`, `held`, `tables`, `xa` | events to change events with positions, pure |
//! | `monitor`, `schema` | the server beside the stream: the lock, the log's end, tables that the log does not describe |

mod assemble;
mod binlog;
mod client;
mod dump;
mod error;
mod group;
mod held;
mod monitor;
mod packet;
mod preflight;
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

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::config::{self, MysqlDsn};
use crate::position::{BinlogPlace, MysqlPosition, Position};
use crate::source::select::Selector;
use crate::source::{LogChannel, OperatorWord, Source, SourceError, SourceOptions, own_position, tls};

use assemble::{Assembler, AssemblerOptions};
use monitor::{Monitor, Observed};
use session::Session;
use stream::{Stream, StreamOptions};

pub use binlog::{BinlogError, EventKind, RowsHead, RowsKind};
pub use error::MysqlError;
pub use packet::ServerError;
pub use preflight::preflight;
pub use rows::{
    CellError, CharsetError, CompressedError, DecimalError, JsonbError, MetadataError, OpaqueError, PlanError,
    ReadError, RowError, TableMapError, TemporalError, TypeError,
};
pub use xid::XidError;

pub(crate) use client::Client;

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

    async fn stream(&self, from: Option<MysqlPosition>, log: &mut LogChannel) -> Result<(), MysqlError> {
        match self.stream_once(from.as_ref(), None, log).await {
            // Of some gaps only the server knows.
            Err(refused @ (MysqlError::Purged { .. } | MysqlError::Ahead { .. }))
                if self.options.word == OperatorWord::AcceptGap =>
            {
                self.stream_once(from.as_ref(), Some(&refused), log).await
            }
            result => result,
        }
    }

    async fn stream_once(
        &self,
        from: Option<&MysqlPosition>,
        refused: Option<&MysqlError>,
        log: &mut LogChannel,
    ) -> Result<(), MysqlError> {
        let session = tokio::select! {
            biased; // a stop ends a connection attempt, which holds nothing yet
            () = log.stop.cancelled() => return Ok(()),
            session = session::open(&self.config, &self.pipeline, from, self.options, refused) => session?,
        };
        let Session {
            control,
            lock,
            started,
            tls,
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
            tls,
            stall_timeout: self.options.stall_timeout,
            until: self.options.once.then_some(log_end),
            from: position.clone(),
            oldest: facts.oldest(),
            gap,
            server: format!(
                "{} ({} {})",
                client::address(&self.config.dsn),
                facts.flavor.name(),
                control.version()
            ),
            connection: started.connection_id,
        };
        let assembler_options = AssemblerOptions {
            max_message_bytes: self.config.max_message_bytes,
            accepted_until: self.accepted.0.get().cloned(),
            fold_names: facts.folds_names(),
            max_held_bytes: held::MAX_HELD_BYTES,
            max_prepared_bytes: assemble::MAX_PREPARED_BYTES,
            batch_events: assemble::BATCH_EVENTS,
        };
        let (observed_sender, observed) = watch::channel(Observed::default());
        let monitor = Monitor {
            lock,
            view: log.view.clone(),
        };
        let stop_monitor = CancellationToken::new();
        let watching = tokio::spawn(
            monitor
                .run(control, observed_sender, stop_monitor.clone())
                .in_current_span(),
        );
        let assembler = Assembler::new(Selector::of_mysql(&self.config), position, assembler_options);
        let stream = Stream::new(started, assembler, self.config.max_message_bytes);
        let result = stream.run(log, observed, &options).await;
        stop_monitor.cancel();
        if let Err(error) = watching.await {
            tracing::error!(error = %error, "the task that watches the server failed");
        }
        result.map(drop)
    }
}

/// A connection for statements, beside any stream.
///
/// # Errors
/// As a source that begins has them.
pub(crate) async fn connect(dsn: &MysqlDsn) -> Result<Client, MysqlError> {
    let tls = tls::client_config(&dsn.ssl, tls::MYSQL)?;
    Client::connect(dsn, &tls).await
}

impl Source for MysqlSource {
    async fn run(self, from: Option<Position>, log: &mut LogChannel) -> Result<(), SourceError> {
        let from = own_position(from, self.options.word)?;
        Ok(self.stream(from, log).await?)
    }
}
