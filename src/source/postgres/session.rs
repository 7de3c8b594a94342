//! From a DSN to a started stream: which server, from which position, with everything compared before.

use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use tokio::time::{sleep, timeout};
use tokio_postgres::config::TargetSessionAttrs;

use crate::config;
use crate::position::{Lsn, PostgresPosition};
use crate::source::{OperatorWord, Recovery, SourceOptions, tls};
use crate::telemetry::error_chain;

use super::client::{Endpoint, ReplicationClient, Started};
use super::control::{Control, quote_identifier, quote_literal, session_attributes};
use super::error::PostgresError;
use super::setup::{Plan, ServerFacts, Wanted, plan};
use super::{OLDEST_VERSION, publication};
use crate::source::select::Selector;

/// For the server to answer START_REPLICATION, which reads nothing of the log yet.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a slot may be in the making without a word.
const SLOT_PATIENCE: Duration = Duration::from_secs(5);

const OPEN_TRANSACTIONS: &str = "SELECT string_agg(name, ', ') FROM ( \
     SELECT 'pid ' || pid AS name FROM pg_stat_activity WHERE backend_xid IS NOT NULL \
     UNION ALL SELECT 'prepared transaction ' || gid FROM pg_prepared_xacts LIMIT 10) AS open";

/// Everything that is ready when the stream runs.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) control: Control,
    pub(super) started: Started,
    pub(super) endpoint: Endpoint,
    pub(super) tls: Arc<ClientConfig>,
    pub(super) database: String,
    pub(super) position: PostgresPosition,
    /// What the operator let pass.
    pub(super) gap: Option<String>,
    /// End of the log when the stream was started.
    pub(super) log_end: Lsn,
}

/// Tries the DSN's servers in order; the first that takes part is used.
///
/// A server in recovery comes after all others, unless the DSN asks for one: a standby without the slot is no sign that
/// the slot was lost.
pub(super) async fn open(
    config: &config::Postgres,
    selector: &Selector,
    from: Option<&PostgresPosition>,
    options: SourceOptions,
) -> Result<Session, PostgresError> {
    let tls = tls::client_config(&config.dsn.ssl, tls::LIBPQ)?;
    let endpoints = Endpoint::all(&config.dsn);
    let several = endpoints.len() > 1;
    let wanted = config.dsn.config.get_target_session_attrs();
    let rounds: &[TargetSessionAttrs] = match wanted {
        TargetSessionAttrs::Any if several => &[TargetSessionAttrs::ReadWrite, TargetSessionAttrs::Any],
        ref wanted => std::slice::from_ref(wanted),
    };
    let mut last = PostgresError::Closed;
    for attributes in rounds {
        for endpoint in &endpoints {
            let opened = open_at(config, selector, from, options, endpoint, *attributes, several, &tls).await;
            match opened {
                Ok(session) => return Ok(session),
                Err(error) if several && error.recovery() == Recovery::Retry => {
                    tracing::debug!(error = %error_chain(&error), "trying the next server of the DSN");
                    last = error;
                }
                Err(error) => return Err(error),
            }
        }
    }
    Err(last)
}

#[expect(
    clippy::too_many_arguments,
    reason = "one step of `open`, apart for its early returns"
)]
async fn open_at(
    config: &config::Postgres,
    selector: &Selector,
    from: Option<&PostgresPosition>,
    options: SourceOptions,
    endpoint: &Endpoint,
    attributes: TargetSessionAttrs,
    several: bool,
    tls: &Arc<ClientConfig>,
) -> Result<Session, PostgresError> {
    let word = options.word;
    let control = Control::connect(&config.dsn, endpoint, tls).await?;
    let in_recovery = control.in_recovery().await?;
    session_attributes(attributes, in_recovery)?;
    if control.version() < OLDEST_VERSION {
        return Err(PostgresError::Version {
            found: control.setting("server_version").await?,
        });
    }
    let wal_level = control.setting("wal_level").await?;
    if wal_level != "logical" {
        return Err(PostgresError::WalLevel { found: wal_level });
    }
    // Whether the role may replicate is found by trying: managed services have rights of their own for it.
    let mut client = ReplicationClient::connect(&config.dsn, endpoint, tls).await?;
    let server = identify(&mut client).await?;
    let database = control.database().await?;
    let slot = control.slot(&config.slot).await?;
    if several && in_recovery && slot.is_none() {
        return Err(PostgresError::SlotNotOnStandby {
            slot: config.slot.clone(),
            address: endpoint.address(),
        });
    }
    let first_start = from.is_none() || word != OperatorWord::Nothing;
    publication::ensure(&control, config, selector, first_start, options.again).await?;
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
        Plan::MakeSlot { drop_first, from, gap } => {
            if drop_first {
                control.drop_slot(&config.slot).await?;
            }
            let made = make_slot(&control, &mut client, &config.slot).await?;
            let position = PostgresPosition {
                system_identifier: server.system_identifier,
                timeline: server.timeline,
                base: made.max(from),
                partial: None,
                last_event_end: Lsn::ZERO,
            };
            tracing::info!(slot = config.slot, position = %position, "replication slot made");
            (position, gap)
        }
    };
    let set_aside = || (word == OperatorWord::FromSlot).then(|| "--from-slot: the checkpoint is set aside".to_owned());
    let gap = gap.or_else(set_aside);
    let log_end = control.log_end().await?;
    let command = start_command(config, position.base);
    let started = timeout(START_TIMEOUT, client.start_replication(&command)).await;
    let started = started.unwrap_or(Err(PostgresError::Silent { silence: START_TIMEOUT }))?;
    Ok(Session {
        control,
        started,
        endpoint: endpoint.clone(),
        tls: Arc::clone(tls),
        database,
        position,
        gap,
        log_end,
    })
}

/// Makes the slot, and says what it waits for where it takes long: the server waits for the end of every transaction that
/// is open now, in whatever database.
async fn make_slot(control: &Control, client: &mut ReplicationClient, slot: &str) -> Result<Lsn, PostgresError> {
    let making = control.create_slot(slot);
    tokio::pin!(making);
    let mut patience = SLOT_PATIENCE;
    loop {
        tokio::select! {
            biased; // the slot before another word about it
            made = &mut making => return made,
            () = sleep(patience) => {
                let open = client.query(OPEN_TRANSACTIONS).await?;
                let open = open.first().and_then(|row| row.first().cloned().flatten()).unwrap_or_default();
                tracing::warn!(
                    slot,
                    open,
                    "making the replication slot waits for the transactions that are open now; end those that hang"
                );
                patience *= 2;
            }
        }
    }
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
            "the publication may be younger than what the slot must still read: changes written before it was made cannot be read"
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
