//! PostgreSQL 14 and later, by logical replication with pgoutput.
//!
//! | module | its part |
//! |---|---|
//! | `client` | the replication connection up to START_REPLICATION |
//! | `session`, `control`, `publication`, `setup`, `timeline` | what is asked, made and compared before the stream starts |
//! | `hold` | the slot held while it is asked where to begin |
//! | `link` | the stream's socket: bytes in, the server answered |
//! | `stream` | frames in, batches out |
//! | `wire`, `pgoutput`, `tuple`, `relation`, `oversized` | bytes to messages and rows, pure |
//! | `assemble` | messages to change events with positions, pure |
//! | `monitor` | the server beside the stream: log end, slot, process, publication, shutdown |
//! | `progress` | whether anything comes while the log moves, pure |

mod assemble;
#[cfg(feature = "bench")]
pub mod bench;
mod bytea;
mod client;
mod control;
mod error;
#[cfg(test)]
mod golden;
mod hold;
mod link;
mod monitor;
mod oversized;
mod pgoutput;
mod place;
mod preflight;
mod primary_key;
mod progress;
mod publication;
mod reader;
mod relation;
mod session;
mod setup;
mod stream;
mod timeline;
mod tuple;
mod wire;

use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::config;
use crate::source::{LogChannel, Source, SourceError, SourceOptions};

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

pub(crate) use place::log_end;

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

    async fn stream(&self, log: &mut LogChannel) -> Result<(), SourceError> {
        let selector = Selector::of_postgres(&self.config);
        let stop = log.stop.clone();
        let session = tokio::select! {
            biased; // a stop ends a connection attempt, which has handed over nothing yet
            () = stop.cancelled() => return Ok(()),
            session = session::open(&self.config, &selector, self.options, log) => session?,
        };
        let Session {
            control,
            link,
            endpoint,
            tls,
            database,
            position,
            gap,
            log_end,
            left_out,
        } = session;
        tracing::info!(
            server = endpoint.address(),
            slot = self.config.slot,
            position = %position,
            pid = link.pid(),
            "streaming"
        );
        if let Some(gap) = gap {
            tracing::warn!(gap, position = %position, "a gap was accepted by the operator");
            log.view.gap_accepted();
        }
        log.view.streaming();
        let (observed_sender, observed) = watch::channel(Observed::default());
        let (primary_keys, questions) = primary_key::channel();
        let monitor = Monitor {
            config: Arc::clone(&self.config),
            endpoint,
            tls,
            selector: selector.clone(),
            view: log.view.clone(),
            pid: link.pid(),
        };
        let stop_monitor = CancellationToken::new();
        let watching = tokio::spawn(
            monitor
                .run(control, observed_sender, questions, left_out, stop_monitor.clone())
                .in_current_span(),
        );
        let options = StreamOptions {
            slot: self.config.slot.clone(),
            publication: self.config.publication.clone(),
            stall_timeout: self.options.stall_timeout,
            progress_timeout: self.options.progress_timeout,
            until: self.options.once.then_some(log_end),
        };
        let assembler = Assembler::new(&database, selector, position);
        let stream = Stream::new(link, assembler, primary_keys, self.config.max_message_bytes);
        let result = stream.run(log, observed, &options).await;
        stop_monitor.cancel();
        if let Err(error) = watching.await {
            tracing::error!(error = %error, "the task that watches the server failed");
        }
        Ok(result.map(drop)?)
    }
}

impl Source for PostgresSource {
    async fn run(self, log: &mut LogChannel) -> Result<(), SourceError> {
        self.stream(log).await
    }
}
