//! From a DSN to a started stream: which server, from which position, with everything compared before.

use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use tokio::time::{sleep, timeout};
use tokio_postgres::config::TargetSessionAttrs;

use crate::config;
use crate::position::{Lsn, PostgresPosition};
use crate::source::{LogChannel, OperatorWord, Recovery, SourceError, SourceOptions, own_position};
use crate::telemetry::error_chain;
use crate::tls;

use super::client::{Endpoint, ReplicationClient};
use super::control::{Control, SlotFacts, quote_identifier, quote_literal, session_attributes};
use super::error::PostgresError;
use super::link::Link;
use super::setup::{Plan, ServerFacts, Wanted, check_kind, how_to_keep_slots, plan};
use super::timeline::History;
use super::{OLDEST_VERSION, hold, publication};
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
    pub(super) link: Link,
    pub(super) endpoint: Endpoint,
    pub(super) tls: Arc<ClientConfig>,
    pub(super) database: String,
    pub(super) position: PostgresPosition,
    /// What the operator let pass.
    pub(super) gap: Option<String>,
    /// What the publication leaves out, as it was told.
    pub(super) left_out: String,
    /// End of the log when the stream was started.
    pub(super) log_end: Lsn,
}

/// A stream that was started.
struct Settled {
    link: Link,
    position: PostgresPosition,
    gap: Option<String>,
    left_out: String,
}

/// Tries the DSN's servers in order; the first that takes part is used.
///
/// A server in recovery comes after all others, unless the DSN asks for one: a standby without the slot is no sign that
/// the slot was lost. Nor is a primary on an older timeline, which another server has replaced.
pub(super) async fn open(
    config: &config::Postgres,
    selector: &Selector,
    options: SourceOptions,
    log: &mut LogChannel,
) -> Result<Session, SourceError> {
    let endpoints = Endpoint::all(&config.dsn);
    let opening = Opening {
        config,
        selector,
        options,
        several: endpoints.len() > 1,
        tls: tls::client_config(&config.dsn.ssl, tls::LIBPQ).map_err(PostgresError::from)?,
    };
    let wanted = config.dsn.config.get_target_session_attrs();
    let rounds: &[TargetSessionAttrs] = match wanted {
        TargetSessionAttrs::Any if opening.several => &[TargetSessionAttrs::ReadWrite, TargetSessionAttrs::Any],
        ref wanted => std::slice::from_ref(wanted),
    };
    let mut last = None;
    for attributes in rounds {
        for endpoint in &endpoints {
            match opening.open_at(endpoint, *attributes, log).await {
                Ok(session) => return Ok(session),
                Err(SourceError::Postgres(error)) if opening.several && error.is_of_one_server() => {
                    tracing::debug!(error = %error_chain(&error), "trying the next server of the DSN");
                    // What can heal is waited for, whatever is wrong with the other servers.
                    if last.is_none() || error.recovery() == Recovery::Retry {
                        last = Some(error);
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }
    Err(last.unwrap_or(PostgresError::Closed).into())
}

/// What is the same for each of the DSN's servers.
struct Opening<'a> {
    config: &'a config::Postgres,
    selector: &'a Selector,
    options: SourceOptions,
    /// The DSN has more than one server.
    several: bool,
    tls: Arc<ClientConfig>,
}

/// A server that takes part.
struct Reached<'a> {
    endpoint: &'a Endpoint,
    control: Control,
    server: ServerFacts,
    database: String,
    slot: Option<SlotFacts>,
}

/// The replication connection, before and after START_REPLICATION.
enum Replication {
    Asking(ReplicationClient),
    /// Started where the slot stands, so that nobody else can read it.
    Holding(Link),
}

impl Opening<'_> {
    /// Where it is not known yet where to begin, the slot is held before that is asked. A slot that is missing or of no use
    /// cannot be: then whoever makes the new one has it, and the others begin anew.
    async fn open_at(
        &self,
        endpoint: &Endpoint,
        attributes: TargetSessionAttrs,
        log: &mut LogChannel,
    ) -> Result<Session, SourceError> {
        let (mut reached, client) = self.reach(endpoint, attributes).await?;
        let lock_first = !log.is_claimed();
        let can_be_held = reached.slot.as_ref().is_some_and(|slot| {
            let kind = check_kind(slot, self.wanted(&reached));
            kind.is_ok() && slot.invalidation().is_none()
        });
        let (from, replication) = if lock_first && can_be_held {
            self.refuse_active(reached.slot.as_ref())?;
            let mut link = self.start(client, Lsn::ZERO).await?;
            log.view.starting();
            let (slot, stall_timeout) = (&self.config.slot, self.options.stall_timeout);
            let from = match hold::begin(&mut link, &mut reached.control, slot, stall_timeout, log).await {
                // The answer is worth nothing without the lock.
                Err(error @ SourceError::Postgres(_)) => return Err(SourceError::TakenOver(Box::new(error))),
                from => from?,
            };
            // It was anybody's to move until it was held.
            reached.slot = reached.control.slot(slot).await?;
            let holder = reached.slot.as_ref().and_then(|slot| slot.active_pid);
            if holder != Some(link.pid()) {
                // As after a stop of the process: what the slot says by now may be another instance's doing.
                return Err(SourceError::TakenOver(Box::new(PostgresError::Closed.into())));
            }
            (from, Replication::Holding(link))
        } else {
            (log.begin().await?, Replication::Asking(client))
        };
        let from = own_position(from, self.options.word)?;
        // Another instance may have saved a place beyond what was the log's end before we held the slot.
        reached.server.log_end = reached.control.log_end().await?;
        match self.settle(&reached, replication, from.as_ref()).await {
            Ok(Settled {
                link,
                position,
                gap,
                left_out,
            }) => Ok(Session {
                log_end: reached.control.log_end().await?,
                control: reached.control,
                link,
                endpoint: endpoint.clone(),
                tls: Arc::clone(&self.tls),
                database: reached.database,
                position,
                gap,
                left_out,
            }),
            // It was asked where to begin before anything was held.
            Err(error) if lock_first && !can_be_held && log.may_be_overtaken() && error.may_be_overtaken() => {
                Err(SourceError::TakenOver(Box::new(error.into())))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Connects, and reads what the server says of itself and of the slot.
    async fn reach<'e>(
        &self,
        endpoint: &'e Endpoint,
        attributes: TargetSessionAttrs,
    ) -> Result<(Reached<'e>, ReplicationClient), PostgresError> {
        let config = self.config;
        let control = Control::connect(&config.dsn, endpoint, &self.tls).await?;
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
        let mut client = ReplicationClient::connect(&config.dsn, endpoint, &self.tls).await?;
        let server = identify(&mut client).await?;
        let database = control.database().await?;
        let slot = control.slot(&config.slot).await?;
        match &slot {
            None if self.several && in_recovery => {
                return Err(PostgresError::SlotNotOnStandby {
                    slot: config.slot.clone(),
                    address: endpoint.address(),
                });
            }
            Some(slot) if slot.synced && in_recovery => {
                return Err(PostgresError::SlotOfPrimary {
                    slot: config.slot.clone(),
                    address: endpoint.address(),
                });
            }
            _ => {}
        }
        let reached = Reached {
            endpoint,
            control,
            server,
            database,
            slot,
        };
        Ok((reached, client))
    }

    /// Compares everything, makes what is missing, and starts the stream where that was not done yet.
    async fn settle(
        &self,
        reached: &Reached<'_>,
        replication: Replication,
        from: Option<&PostgresPosition>,
    ) -> Result<Settled, PostgresError> {
        let (config, word) = (self.config, self.options.word);
        let Reached {
            control, server, slot, ..
        } = reached;
        let first_start = from.is_none() || word != OperatorWord::Nothing;
        let left_out = publication::ensure(control, config, self.selector, first_start, self.options.again).await?;
        let (link, position, gap) = match plan(from, server, slot.as_ref(), self.wanted(reached))? {
            Plan::Resume { position, gap } => {
                let link = match replication {
                    Replication::Holding(link) => link,
                    Replication::Asking(client) => {
                        self.refuse_active(slot.as_ref())?;
                        self.start(client, position.base).await?
                    }
                };
                let catalog_xmin_age = slot.as_ref().and_then(|slot| slot.catalog_xmin_age);
                // With a checkpoint it has been read already.
                if from.is_none() && publication::may_be_younger(control, config, catalog_xmin_age).await? {
                    tracing::warn!(
                        publication = config.publication,
                        slot = config.slot,
                        "the publication may be younger than what the slot must still read: changes written before it was made cannot be read"
                    );
                }
                (link, position, gap)
            }
            Plan::MakeSlot { drop_first, from, gap } => {
                let mut client = match replication {
                    Replication::Asking(client) => client,
                    // It was lost while it was held.
                    Replication::Holding(link) => {
                        link.close().await;
                        ReplicationClient::connect(&config.dsn, reached.endpoint, &self.tls).await?
                    }
                };
                if drop_first {
                    control.drop_useless_slot(&config.slot).await?;
                }
                let made = make_slot(control, &mut client, config).await?;
                let position = PostgresPosition {
                    system_identifier: server.system_identifier,
                    timeline: server.timeline,
                    base: made.max(from),
                    partial: None,
                    last_event_end: Lsn::ZERO,
                };
                tracing::info!(slot = config.slot, position = %position, "replication slot made");
                (self.start(client, position.base).await?, position, gap)
            }
        };
        let set_aside =
            || (word == OperatorWord::FromSlot).then(|| "--from-slot: the checkpoint is set aside".to_owned());
        Ok(Settled {
            link,
            position,
            gap: gap.or_else(set_aside),
            left_out,
        })
    }

    fn wanted<'w>(&'w self, reached: &'w Reached<'_>) -> Wanted<'w> {
        Wanted {
            slot: &self.config.slot,
            database: &reached.database,
            create: self.config.create || self.config.temporary,
            start: self.config.start,
            word: self.options.word,
            how_to_keep_slots: how_to_keep_slots(reached.control.version()),
        }
    }

    fn refuse_active(&self, slot: Option<&SlotFacts>) -> Result<(), PostgresError> {
        match slot.and_then(|slot| slot.active_pid) {
            None => Ok(()),
            Some(pid) => Err(PostgresError::SlotActive {
                slot: self.config.slot.clone(),
                pid,
            }),
        }
    }

    async fn start(&self, client: ReplicationClient, at: Lsn) -> Result<Link, PostgresError> {
        let command = start_command(self.config, at);
        let started = timeout(START_TIMEOUT, client.start_replication(&command)).await;
        let started = started.unwrap_or(Err(PostgresError::Silent { silence: START_TIMEOUT }))?;
        Ok(Link::new(started))
    }
}

/// Makes the slot, and says what it waits for where it takes long: the server waits for the end of every transaction that
/// is open now, in whatever database.
async fn make_slot(
    control: &Control,
    client: &mut ReplicationClient,
    config: &config::Postgres,
) -> Result<Lsn, PostgresError> {
    if config.temporary {
        return make_temporary_slot(client, config).await;
    }
    let making = control.create_slot(&config.slot, config.failover);
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
                    slot = config.slot,
                    open,
                    "making the replication slot waits for the transactions that are open now; end those that hang"
                );
                patience *= 2;
            }
        }
    }
}

/// Only the connection that makes such a slot can read it. The form without parentheses is known from PostgreSQL 14 on.
async fn make_temporary_slot(client: &mut ReplicationClient, config: &config::Postgres) -> Result<Lsn, PostgresError> {
    let slot = quote_identifier(&config.slot);
    let command = format!("CREATE_REPLICATION_SLOT {slot} TEMPORARY LOGICAL pgoutput NOEXPORT_SNAPSHOT");
    let rows = client.query(&command).await?;
    // The slot's name, and the place from which it has everything.
    let place = rows.first().and_then(|row| row.get(1)?.as_deref()?.parse().ok());
    place.ok_or_else(|| PostgresError::Unexpected {
        found: "another answer to CREATE_REPLICATION_SLOT".to_owned(),
        expected: "the slot's name and consistent point",
    })
}

pub(super) async fn identify(client: &mut ReplicationClient) -> Result<ServerFacts, PostgresError> {
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
            history: history(client, timeline).await?,
        }),
        None => Err(PostgresError::Unexpected {
            found: "another answer to IDENTIFY_SYSTEM".to_owned(),
            expected: "system identifier, timeline and log position",
        }),
    }
}

/// Where the server's timeline came from. That it cannot be read matters only if the checkpoint is of another timeline.
async fn history(client: &mut ReplicationClient, timeline: u32) -> Result<Result<History, String>, PostgresError> {
    if timeline <= 1 {
        return Ok(Ok(History::default()));
    }
    match client.query(&format!("TIMELINE_HISTORY {timeline}")).await {
        // The file's name and its content.
        Ok(rows) => Ok(
            match rows.into_iter().next().and_then(|row| row.into_iter().nth(1).flatten()) {
                Some(content) => History::parse(&content, timeline),
                None => Err("the server gave none".to_owned()),
            },
        ),
        Err(PostgresError::Server { source, .. }) => Ok(Err(source.to_string())),
        Err(error) => Err(error),
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
