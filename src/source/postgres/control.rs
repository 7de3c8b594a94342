//! The control connection: everything that is asked of the server in SQL.

use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::config::{Host, TargetSessionAttrs};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Config, NoTls, Row};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::config::{PostgresDsn, SslMode};
use crate::position::Lsn;
use crate::source::Recovery;

use super::client::{Endpoint, ReplicationClient, connect_timeout};
use super::error::PostgresError;

/// The first version that keeps slots in step on standbys, as `server_version_num`.
pub(super) const SLOTS_FOLLOW: u32 = 170_000;
/// For questions about settings and catalogs.
const QUERY_TIMEOUT: Duration = Duration::from_secs(30);

/// An ordinary connection to one of the DSN's servers.
#[derive(Debug)]
pub(super) struct Control {
    client: Client,
    /// Drives the connection; its end says why the connection ended.
    driver: JoinHandle<Result<(), tokio_postgres::Error>>,
    /// `server_version_num`, such as 170012.
    version: u32,
}

/// A replication slot, as `pg_replication_slots` has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SlotFacts {
    pub(super) plugin: Option<String>,
    pub(super) database: Option<String>,
    pub(super) active_pid: Option<i32>,
    pub(super) confirmed: Option<Lsn>,
    /// The server keeps the log from here on for the slot.
    pub(super) restart: Option<Lsn>,
    pub(super) wal_status: Option<String>,
    pub(super) invalidation_reason: Option<String>,
    pub(super) two_phase: bool,
    pub(super) temporary: bool,
    /// Kept in step on standbys; from PostgreSQL 17 on.
    pub(super) failover: bool,
    /// Kept in step with a primary's, on a standby or a server that was one.
    pub(super) synced: bool,
    /// The catalog's rows that were made after this transaction may be missing for the slot.
    pub(super) catalog_xmin_age: Option<i32>,
}

impl SlotFacts {
    /// Why the server no longer has what the slot needs, where that is so.
    pub(super) fn invalidation(&self) -> Option<String> {
        match (&self.invalidation_reason, self.wal_status.as_deref()) {
            (Some(reason), _) => Some(reason.clone()),
            (None, Some("lost")) => Some("wal_status is lost".to_owned()),
            _ => None,
        }
    }
}

/// Whether the server is about to give up a slot of this `wal_status`.
pub(super) fn is_endangered(wal_status: &str) -> bool {
    matches!(wal_status, "unreserved" | "lost")
}

/// What the server's process of a stream does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Walsender {
    Gone,
    /// Reads and decodes the log.
    AtWork,
    /// For us or for more log, of which there is none for it.
    Waits,
    /// For something that another connection would wait for too.
    HeldBack(String),
}

impl Control {
    /// # Errors
    /// Connection failures can heal; refusals cannot.
    pub(super) async fn connect(
        dsn: &PostgresDsn,
        endpoint: &Endpoint,
        tls: &Arc<ClientConfig>,
    ) -> Result<Self, PostgresError> {
        let config = single_host(dsn, endpoint);
        let limit = connect_timeout(dsn);
        let connecting = async {
            // A unix socket has no TLS, whatever the DSN says for its other servers.
            if dsn.ssl.mode == SslMode::Disable || matches!(endpoint.host, Host::Unix(_)) {
                let (client, connection) = config.connect(NoTls).await?;
                return Ok((client, tokio::spawn(connection)));
            }
            let (client, connection) = config.connect(MakeRustlsConnect::new(ClientConfig::clone(tls))).await?;
            Ok((client, tokio::spawn(connection)))
        };
        // The client's own limit ends with the TCP connection; a server can fall silent behind it.
        match timeout(limit, connecting).await {
            Ok(Ok((client, driver))) => {
                let mut control = Self {
                    client,
                    driver,
                    version: 0,
                };
                control.version = control.setting("server_version_num").await?.parse().unwrap_or(0);
                Ok(control)
            }
            Ok(Err(error)) => {
                let action = format!("connect to PostgreSQL at {}", endpoint.address());
                let error = PostgresError::control(action, error);
                // This client does not tell its refusals apart; our own says of each what to do.
                let refused = matches!(error, PostgresError::Control { .. }) && error.recovery() == Recovery::Halt;
                if refused && let Err(told) = ReplicationClient::connect(dsn, endpoint, tls).await {
                    return Err(told);
                }
                Err(error)
            }
            Err(_) => Err(PostgresError::ConnectTimeout {
                address: endpoint.address(),
                timeout: limit,
            }),
        }
    }

    /// Waits until the connection has ended, with the server's reason if it gave one. Cancel safe.
    pub(super) async fn ended(&mut self) -> Option<tokio_postgres::Error> {
        (&mut self.driver).await.ok().and_then(Result::err)
    }

    pub(super) async fn rows(
        &self,
        action: &'static str,
        sql: &str,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, PostgresError> {
        match timeout(QUERY_TIMEOUT, self.client.query(sql, parameters)).await {
            Ok(result) => result.map_err(|error| PostgresError::control(action, error)),
            Err(_) => Err(PostgresError::Silent { silence: QUERY_TIMEOUT }),
        }
    }

    /// Whether our role may make publications in this database.
    pub(super) async fn may_create_in_database(&self) -> Result<bool, PostgresError> {
        const ACTION: &str = "ask for the right to make publications";
        let sql = "SELECT has_database_privilege(current_database(), 'CREATE')";
        first(&self.rows(ACTION, sql, &[]).await?, ACTION)
    }

    pub(super) async fn setting(&self, name: &str) -> Result<String, PostgresError> {
        let rows = self
            .rows("read a server setting", "SELECT current_setting($1)", &[&name])
            .await?;
        first(&rows, "read a server setting")
    }

    /// The server's version as `server_version_num`, such as 170012.
    pub(super) fn version(&self) -> u32 {
        self.version
    }

    pub(super) async fn in_recovery(&self) -> Result<bool, PostgresError> {
        first(
            &self.rows("ask for recovery", "SELECT pg_is_in_recovery()", &[]).await?,
            "ask for recovery",
        )
    }

    pub(super) async fn database(&self) -> Result<String, PostgresError> {
        first(
            &self
                .rows("ask for the database", "SELECT current_database()::text", &[])
                .await?,
            "ask for the database",
        )
    }

    /// The end of what the server may stream: flushed on a primary, replayed on a standby.
    pub(super) async fn log_end(&self) -> Result<Lsn, PostgresError> {
        const ACTION: &str = "read the log's end";
        let rows = self
            .rows(
                ACTION,
                "SELECT (CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_flush_lsn() END)::text",
                &[],
            )
            .await?;
        lsn(first(&rows, ACTION)?, ACTION)
    }

    /// What a server process of our own role does.
    pub(super) async fn walsender(&self, pid: i32) -> Result<Walsender, PostgresError> {
        const ACTION: &str = "look at the server's process";
        let sql = "SELECT wait_event_type, wait_event FROM pg_stat_activity WHERE pid = $1";
        let rows = self.rows(ACTION, sql, &[&pid]).await?;
        let Some(row) = rows.first() else {
            return Ok(Walsender::Gone);
        };
        let kind: Option<String> = column(row, 0, ACTION)?;
        let event: Option<String> = column(row, 1, ACTION)?;
        Ok(match (kind.as_deref(), event.as_deref()) {
            (_, Some("WaitForStandbyConfirmation")) => Walsender::HeldBack(format!(
                "the server holds back what it has until the standbys of synchronized_standby_slots ({}) have it: start those, or take them out of that setting",
                self.setting("synchronized_standby_slots").await?
            )),
            (Some("Lock"), event) => Walsender::HeldBack(format!(
                "the server's process {pid} waits for a lock ({}): end what holds it, as pg_blocking_pids({pid}) shows",
                event.unwrap_or_default()
            )),
            // For us, or for more log.
            (Some("Client" | "Activity"), _) => Walsender::Waits,
            _ => Walsender::AtWork,
        })
    }

    pub(super) async fn slot(&self, name: &str) -> Result<Option<SlotFacts>, PostgresError> {
        const ACTION: &str = "read the replication slot";
        let since_17 = if self.version >= SLOTS_FOLLOW {
            "invalidation_reason::text, failover, synced"
        } else {
            "NULL::text, false, false"
        };
        let sql = format!(
            "SELECT plugin::text, database::text, active_pid, confirmed_flush_lsn::text, wal_status, two_phase, temporary, \
             age(catalog_xmin), {since_17}, restart_lsn::text FROM pg_replication_slots WHERE slot_name = $1"
        );
        let rows = self.rows(ACTION, &sql, &[&name]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let confirmed: Option<String> = column(row, 3, ACTION)?;
        let restart: Option<String> = column(row, 11, ACTION)?;
        Ok(Some(SlotFacts {
            plugin: column(row, 0, ACTION)?,
            database: column(row, 1, ACTION)?,
            active_pid: column(row, 2, ACTION)?,
            confirmed: confirmed.map(|text| lsn(text, ACTION)).transpose()?,
            restart: restart.map(|text| lsn(text, ACTION)).transpose()?,
            wal_status: column(row, 4, ACTION)?,
            two_phase: column(row, 5, ACTION)?,
            temporary: column(row, 6, ACTION)?,
            catalog_xmin_age: column(row, 7, ACTION)?,
            invalidation_reason: column(row, 8, ACTION)?,
            failover: column(row, 9, ACTION)?,
            synced: column(row, 10, ACTION)?,
        }))
    }

    /// Makes a publication by its statement; `false` says that another pipeline or instance made one of that name in the
    /// meantime.
    pub(super) async fn create_publication(&self, name: &str, statement: &str) -> Result<bool, PostgresError> {
        match self.client.batch_execute(statement).await {
            Ok(()) => Ok(true),
            // The second is what a statement meets that waited for the other's transaction.
            Err(error)
                if matches!(
                    error.code(),
                    Some(&SqlState::DUPLICATE_OBJECT | &SqlState::UNIQUE_VIOLATION)
                ) =>
            {
                Ok(false)
            }
            Err(error) => Err(PostgresError::control(
                format!("make publication `{name}` ({statement})"),
                error,
            )),
        }
    }

    /// Makes the slot and gives the place from which it has everything. With `failover` it is kept in step on standbys,
    /// where the server can do that.
    ///
    /// # Errors
    /// [`PostgresError::SlotMadeMeanwhile`]: there is one by now.
    pub(super) async fn create_slot(&self, name: &str, failover: bool) -> Result<Lsn, PostgresError> {
        const ACTION: &str = "make the replication slot";
        // A standby's own slots cannot be kept in step on others.
        let failover = failover && self.version >= SLOTS_FOLLOW && !self.in_recovery().await?;
        let sql = match failover {
            true => "SELECT lsn::text FROM pg_create_logical_replication_slot($1, 'pgoutput', false, false, true)",
            false => "SELECT lsn::text FROM pg_create_logical_replication_slot($1, 'pgoutput')",
        };
        // Without a limit: the server waits for the end of the transactions that are open now.
        let rows = self
            .client
            .query(sql, &[&name])
            .await
            .map_err(|error| match error.code() {
                Some(code) if *code == SqlState::DUPLICATE_OBJECT => {
                    PostgresError::SlotMadeMeanwhile { slot: name.to_owned() }
                }
                _ => PostgresError::control(ACTION, error),
            })?;
        lsn(first(&rows, ACTION)?, ACTION)
    }

    /// Drops the slot if it cannot be read any more: what was decided on may be old, and another instance may have made a
    /// new one.
    pub(super) async fn drop_useless_slot(&self, name: &str) -> Result<(), PostgresError> {
        let useless = if self.version >= SLOTS_FOLLOW {
            "(wal_status = 'lost' OR invalidation_reason IS NOT NULL OR synced AND temporary)"
        } else {
            "wal_status = 'lost'"
        };
        let sql = format!(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = $1 AND {useless}"
        );
        self.rows("drop the replication slot", &sql, &[&name]).await.map(drop)
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

fn single_host(dsn: &PostgresDsn, endpoint: &Endpoint) -> Config {
    let given = &dsn.config;
    let mut config = Config::new();
    config
        .user(given.get_user().unwrap_or("postgres"))
        .dbname(given.get_dbname().or(given.get_user()).unwrap_or("postgres"))
        .application_name(given.get_application_name().unwrap_or("tailpost"))
        .connect_timeout(connect_timeout(dsn))
        .channel_binding(given.get_channel_binding())
        .port(endpoint.port)
        .ssl_mode(match dsn.ssl.mode {
            _ if matches!(endpoint.host, Host::Unix(_)) => tokio_postgres::config::SslMode::Disable,
            SslMode::Disable => tokio_postgres::config::SslMode::Disable,
            SslMode::Prefer => tokio_postgres::config::SslMode::Prefer,
            SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull => tokio_postgres::config::SslMode::Require,
        });
    if let Some(password) = given.get_password() {
        config.password(password);
    }
    if let Some(options) = given.get_options() {
        config.options(options);
    }
    match &endpoint.host {
        Host::Tcp(host) => config.host(host),
        Host::Unix(folder) => config.host_path(folder),
    };
    config
}

/// Whether a server may be used, by `target_session_attrs`; the reason where not.
pub(super) fn session_attributes(wanted: TargetSessionAttrs, in_recovery: bool) -> Result<(), PostgresError> {
    let (found, expected) = match (wanted, in_recovery) {
        (TargetSessionAttrs::ReadWrite, true) => ("a server in recovery", "read-write"),
        (TargetSessionAttrs::ReadOnly, false) => ("a primary", "read-only"),
        _ => return Ok(()),
    };
    Err(PostgresError::SessionAttributes {
        found: found.to_owned(),
        expected,
    })
}

/// `name` as an SQL identifier.
pub(super) fn quote_identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// `text` as an SQL string.
pub(super) fn quote_literal(text: &str) -> String {
    postgres_protocol::escape::escape_literal(text)
}

fn first<T: for<'a> tokio_postgres::types::FromSql<'a>>(
    rows: &[Row],
    action: &'static str,
) -> Result<T, PostgresError> {
    let row = rows.first().ok_or_else(|| no_row(action))?;
    column(row, 0, action)
}

pub(super) fn column<'a, T: tokio_postgres::types::FromSql<'a>>(
    row: &'a Row,
    index: usize,
    action: &'static str,
) -> Result<T, PostgresError> {
    row.try_get(index)
        .map_err(|error| PostgresError::control(action, error))
}

fn lsn(text: String, action: &'static str) -> Result<Lsn, PostgresError> {
    text.parse().map_err(|error| PostgresError::Control {
        action: action.to_owned(),
        source: Box::new(error),
    })
}

fn no_row(action: &'static str) -> PostgresError {
    PostgresError::Unexpected {
        found: format!("no row to `{action}`"),
        expected: "one",
    }
}
