//! PostgreSQL 14 and later, by logical replication with pgoutput.
//!
//! | module | its part |
//! |---|---|
//! | `client` | the replication connection up to START_REPLICATION |
//! | `session`, `control`, `publication`, `setup` | what is asked, made and compared before the stream starts |
//! | `stream` | the socket's owner: frames in, batches out, the server answered |
//! | `wire`, `pgoutput`, `tuple`, `relation`, `oversized` | bytes to messages and rows, pure |
//! | `assemble` | messages to change events with positions, pure |
//! | `monitor` | the server beside the stream: log end, slot, publication, shutdown |

mod assemble;
mod bytea;
mod client;
mod control;
mod error;
#[cfg(test)]
mod golden;
mod monitor;
mod oversized;
mod pgoutput;
mod preflight;
mod publication;
mod reader;
mod relation;
mod session;
mod setup;
mod stream;
mod tuple;
mod wire;

use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::config;
use crate::position::{Position, PostgresPosition};
use crate::source::{LogChannel, Source, SourceError, SourceOptions, own_position};

use crate::source::select::Selector;
use assemble::Assembler;
use monitor::{Monitor, Observed};
use session::Session;
use stream::{Stream, StreamOptions};

pub use bytea::ByteaError;
pub use error::{PostgresError, ServerError};
pub use pgoutput::DecodeError;
pub use preflight::preflight;
pub use relation::UnknownRelation;
pub use tuple::RowError;
pub use wire::{Tag, WireError};

/// The oldest major version with what we rely on, as `server_version_num`: logical messages in pgoutput came with 14.
const OLDEST_VERSION: u32 = 140_000;

/// Reads one slot.
#[derive(Debug)]
pub struct PostgresSource {
    config: Arc<config::Postgres>,
    options: SourceOptions,
}

impl PostgresSource {
    pub fn new(config: Arc<config::Postgres>, options: SourceOptions) -> Self {
        Self { config, options }
    }

    async fn stream(&self, from: Option<PostgresPosition>, log: &mut LogChannel) -> Result<(), PostgresError> {
        let selector = Selector::of_postgres(&self.config);
        let session = tokio::select! {
            biased; // a stop ends a connection attempt, which holds nothing yet
            () = log.stop.cancelled() => return Ok(()),
            session = session::open(&self.config, &selector, from.as_ref(), self.options) => session?,
        };
        let Session {
            control,
            started,
            endpoint,
            tls,
            database,
            position,
            gap,
            log_end,
        } = session;
        tracing::info!(
            server = endpoint.address(),
            slot = self.config.slot,
            position = %position,
            pid = started.pid,
            "streaming"
        );
        if let Some(gap) = gap {
            tracing::warn!(gap, position = %position, "a gap was accepted by the operator");
            log.view.gap_accepted();
        }
        log.view.streaming();
        let (observed_sender, observed) = watch::channel(Observed::default());
        let monitor = Monitor {
            config: Arc::clone(&self.config),
            endpoint,
            tls,
            selector: selector.clone(),
            view: log.view.clone(),
        };
        let stop_monitor = CancellationToken::new();
        let watching = tokio::spawn(
            monitor
                .run(control, observed_sender, stop_monitor.clone())
                .in_current_span(),
        );
        let options = StreamOptions {
            slot: self.config.slot.clone(),
            publication: self.config.publication.clone(),
            stall_timeout: self.options.stall_timeout,
            until: self.options.once.then_some(log_end),
        };
        let assembler = Assembler::new(&database, selector, position);
        let stream = Stream::new(started, assembler, self.config.max_message_bytes);
        let result = stream.run(log, observed, &options).await;
        stop_monitor.cancel();
        if let Err(error) = watching.await {
            tracing::error!(error = %error, "the task that watches the server failed");
        }
        result.map(drop)
    }
}

impl Source for PostgresSource {
    async fn run(self, from: Option<Position>, log: &mut LogChannel) -> Result<(), SourceError> {
        let from = own_position(from, self.options.word)?;
        Ok(self.stream(from, log).await?)
    }
}
