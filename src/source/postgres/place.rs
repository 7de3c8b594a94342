//! The end of the server's log, as a position: for places that a person names.

use tokio_postgres::config::TargetSessionAttrs;

use crate::config;
use crate::position::PostgresPosition;
use crate::source::Recovery;
use crate::tls;

use super::client::{Endpoint, ReplicationClient};
use super::control::{Control, session_attributes};
use super::error::PostgresError;
use super::session::identify;

/// The end of the flushed log of the DSN's server: of several, the first that takes writes, unless the DSN says otherwise.
///
/// # Errors
/// No server can be asked.
pub(crate) async fn log_end(config: &config::Postgres) -> Result<PostgresPosition, PostgresError> {
    let endpoints = Endpoint::all(&config.dsn);
    let attributes = match config.dsn.config.get_target_session_attrs() {
        TargetSessionAttrs::Any if endpoints.len() > 1 => TargetSessionAttrs::ReadWrite,
        wanted => wanted,
    };
    let mut last = PostgresError::Closed;
    for endpoint in &endpoints {
        match log_end_at(config, endpoint, attributes).await {
            Err(error) if error.recovery() == Recovery::Retry => last = error,
            decided => return decided,
        }
    }
    Err(last)
}

async fn log_end_at(
    config: &config::Postgres,
    endpoint: &Endpoint,
    attributes: TargetSessionAttrs,
) -> Result<PostgresPosition, PostgresError> {
    let tls = tls::client_config(&config.dsn.ssl, tls::LIBPQ)?;
    let control = Control::connect(&config.dsn, endpoint, &tls).await?;
    session_attributes(attributes, control.in_recovery().await?)?;
    let server = identify(&mut ReplicationClient::connect(&config.dsn, endpoint, &tls).await?).await?;
    Ok(PostgresPosition {
        system_identifier: server.system_identifier,
        timeline: server.timeline,
        base: server.log_end,
        partial: None,
        last_event_end: server.log_end,
    })
}
