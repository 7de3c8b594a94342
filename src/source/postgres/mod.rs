//! PostgreSQL 14 and later, by logical replication with pgoutput.
//!
//! | module | its part |
//! |---|---|
//! | `client`, `tls`, `transport` | the replication connection up to START_REPLICATION |
//! | `control`, `publication`, `setup` | what is asked, made and compared before the stream starts |
//! | `stream` | the socket's owner: frames in, batches out, the server answered |
//! | `wire`, `pgoutput`, `tuple`, `relation`, `oversized` | bytes to messages and rows, pure |
//! | `assemble`, `select` | messages to change events with positions, pure |
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
mod select;
mod setup;
mod stream;
mod tls;
mod transport;
mod tuple;
mod wire;

use std::sync::Arc;

use rustls::ClientConfig;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::config;
use crate::position::{Lsn, Position, PostgresPosition};
use crate::source::{LogBatch, LogChannel, SkipCounts, Source, SourceError};

use assemble::Assembler;
use client::{Endpoint, ReplicationClient};
use control::{Control, quote_identifier, quote_literal, session_attributes};
use monitor::{Monitor, Observed};
use select::Selector;
use setup::{Plan, ServerFacts, Wanted, plan};
use stream::{Stream, StreamOptions};

pub use bytea::ByteaError;
pub use error::{PostgresError, ServerError};
pub use pgoutput::DecodeError;
pub use preflight::preflight;
pub use relation::UnknownRelation;
pub use setup::OperatorWord;
pub use tls::TlsSetupError;
pub use tuple::RowError;
pub use wire::{Tag, WireError};

/// The oldest major version with what we rely on, as `server_version_num`: logical messages in pgoutput came with 14.
const OLDEST_VERSION: u32 = 140_000;

/// Reads one slot.
#[derive(Debug)]
pub struct PostgresSource {
    config: Arc<config::Postgres>,
    stall_timeout: std::time::Duration,
    /// Ends at the log's end as it is at the start.
    once: bool,
    word: OperatorWord,
}

impl PostgresSource {
    pub fn new(
        config: Arc<config::Postgres>,
        stall_timeout: std::time::Duration,
        once: bool,
        word: OperatorWord,
    ) -> Self {
        Self {
            config,
            stall_timeout,
            once,
            word,
        }
    }

    async fn stream(&self, from: Option<PostgresPosition>, log: &mut LogChannel) -> Result<(), PostgresError> {
        let selector = Selector::new(&self.config);
        let session = tokio::select! {
            biased; // a stop ends a connection attempt, which holds nothing yet
            () = log.stop.cancelled() => return Ok(()),
            session = open(&self.config, &selector, from.as_ref(), self.word) => session?,
        };
        let Session {
            control,
            client,
            endpoint,
            tls,
            database,
            position,
            gap,
            log_end,
        } = session;
        let command = start_command(&self.config, position.base);
        let started = client.start_replication(&command).await?;
        tracing::info!(
            server = endpoint.address(),
            slot = self.config.slot,
            position = %position,
            pid = started.2,
            "streaming"
        );
        if let Some(gap) = gap {
            tracing::warn!(gap, position = %position, "a gap was accepted by the operator");
            log.view.gap_accepted();
        }
        log.view.streaming();
        let mut opening = Some(LogBatch {
            events: Vec::new(),
            skipped: SkipCounts::new(),
            end: Position::Postgres(position.clone()),
            caught_up: false,
        });
        tokio::select! {
            biased; // a pipeline that is full at the start can still be stopped
            () = log.stop.cancelled() => return Ok(()),
            () = log.batches.hand_over(&mut opening) => {}
        }
        let (observed_sender, observed) = watch::channel(Observed::default());
        let monitor = Monitor {
            config: Arc::clone(&self.config),
            endpoint,
            tls,
            selector: selector.clone(),
            view: log.view.clone(),
        };
        let stop_monitor = CancellationToken::new();
        let watching = tokio::spawn(monitor.run(control, observed_sender, stop_monitor.clone()));
        let options = StreamOptions {
            slot: self.config.slot.clone(),
            publication: self.config.publication.clone(),
            stall_timeout: self.stall_timeout,
            until: self.once.then_some(log_end),
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
        let from = from.map(|Position::Postgres(position)| position);
        Ok(self.stream(from, log).await?)
    }
}

/// Everything that is ready when the stream may start.
struct Session {
    control: Control,
    client: ReplicationClient,
    endpoint: Endpoint,
    tls: Arc<ClientConfig>,
    database: String,
    position: PostgresPosition,
    /// What the operator let pass.
    gap: Option<String>,
    log_end: Lsn,
}

/// Tries the DSN's servers in order; the first that takes part is used.
async fn open(
    config: &config::Postgres,
    selector: &Selector,
    from: Option<&PostgresPosition>,
    word: OperatorWord,
) -> Result<Session, PostgresError> {
    let tls = tls::client_config(&config.dsn.ssl)?;
    let mut last = PostgresError::Closed;
    let endpoints = Endpoint::all(&config.dsn);
    let several = endpoints.len() > 1;
    for endpoint in endpoints {
        match open_at(config, selector, from, word, endpoint, &tls).await {
            Ok(session) => return Ok(session),
            Err(error) if several && error.recovery() == crate::source::Recovery::Retry => {
                tracing::debug!(
                    error = crate::telemetry::error_chain(&error),
                    "trying the next server of the DSN"
                );
                last = error;
            }
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

async fn open_at(
    config: &config::Postgres,
    selector: &Selector,
    from: Option<&PostgresPosition>,
    word: OperatorWord,
    endpoint: Endpoint,
    tls: &Arc<ClientConfig>,
) -> Result<Session, PostgresError> {
    let control = Control::connect(&config.dsn, &endpoint, tls).await?;
    session_attributes(
        config.dsn.config.get_target_session_attrs(),
        control.in_recovery().await?,
    )?;
    if control.version().await? < OLDEST_VERSION {
        return Err(PostgresError::Version {
            found: control.setting("server_version").await?,
        });
    }
    let wal_level = control.setting("wal_level").await?;
    if wal_level != "logical" {
        return Err(PostgresError::WalLevel { found: wal_level });
    }
    // Whether the role may replicate is found by trying: managed services have rights of their own for it.
    let mut client = ReplicationClient::connect(&config.dsn, &endpoint, tls).await?;
    let server = identify(&mut client).await?;
    let database = control.database().await?;
    let first_start = from.is_none() || word != OperatorWord::Nothing;
    publication::ensure(&control, config, selector, first_start).await?;
    let slot = control.slot(&config.slot).await?;
    let wanted = Wanted {
        slot: &config.slot,
        database: &database,
        create: config.create,
        start: config.start,
        word,
    };
    let (position, gap) = match plan(from, server, slot.as_ref(), wanted)? {
        Plan::Resume { position, gap } => {
            if let Some(pid) = slot.as_ref().and_then(|slot| slot.active_pid) {
                return Err(PostgresError::SlotActive {
                    slot: config.slot.clone(),
                    pid,
                });
            }

            warn_of_young_publication(&control, config, slot.and_then(|slot| slot.catalog_xmin_age)).await?;
            (position, gap)
        }
        Plan::MakeSlot { drop_first, gap } => {
            if drop_first {
                control.drop_slot(&config.slot).await?;
            }
            let base = control.create_slot(&config.slot).await?;
            let position = PostgresPosition {
                system_identifier: server.system_identifier,
                timeline: server.timeline,
                base,
                partial: None,
                last_event_end: Lsn::ZERO,
            };
            tracing::info!(slot = config.slot, position = %position, "replication slot made");
            (position, gap)
        }
    };
    let gap =
        gap.or_else(|| (word == OperatorWord::FromSlot).then(|| "--from-slot: the checkpoint is set aside".to_owned()));
    Ok(Session {
        control,
        client,
        endpoint,
        tls: Arc::clone(tls),
        database,
        position,
        gap,
        log_end: server.log_end,
    })
}

async fn warn_of_young_publication(
    control: &Control,
    config: &config::Postgres,
    catalog_xmin_age: Option<i32>,
) -> Result<(), PostgresError> {
    if let Some(publication) = control.publication(&config.publication).await?
        && publication::may_be_younger(&publication, catalog_xmin_age)
    {
        tracing::warn!(
            publication = config.publication,
            slot = config.slot,
            "the publication was made or altered after the slot: changes written before that cannot be read"
        );
    }
    Ok(())
}

async fn identify(client: &mut ReplicationClient) -> Result<ServerFacts, PostgresError> {
    let rows = client.query("IDENTIFY_SYSTEM").await?;
    let row = rows.first().map(Vec::as_slice).unwrap_or_default();
    let cell = |index: usize| row.get(index).and_then(Option::as_deref);
    let facts = cell(0)
        .and_then(|text| text.parse().ok())
        .zip(cell(1).and_then(|text| text.parse().ok()));
    match facts.zip(cell(2).and_then(|text| text.parse().ok())) {
        Some(((system_identifier, timeline), log_end)) => Ok(ServerFacts {
            system_identifier,
            timeline,
            log_end,
        }),
        None => Err(PostgresError::Unexpected {
            found: "another answer to IDENTIFY_SYSTEM".to_owned(),
            expected: "system identifier, timeline and log position",
        }),
    }
}

fn start_command(config: &config::Postgres, base: Lsn) -> String {
    // Names in publication_names are folded and split at commas like identifiers, so the name is quoted inside the string.
    format!(
        "START_REPLICATION SLOT {} LOGICAL {base} (proto_version '1', publication_names {}, messages 'true')",
        quote_identifier(&config.slot),
        quote_literal(&quote_identifier(&config.publication)),
    )
}
