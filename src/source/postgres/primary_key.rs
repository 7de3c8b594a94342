//! The primary keys of tables whose replica identity is FULL: there the log has whole old rows, and does not say which
//! columns tell rows apart.
//!
//! They are asked for when such a table is described, over a connection that is made for that and kept for a run of tables.
//! The catalog says what they are now, the description how the table was: the two are held against each other.

use std::sync::Arc;

use rustls::ClientConfig;

use super::client::Endpoint;
use super::control::Control;
use super::error::PostgresError;
use crate::config::PostgresDsn;

/// What the catalog says of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PrimaryKey {
    /// The table is not there any more.
    Gone,
    None,
    Columns(Vec<String>),
}

/// Asks for them.
#[derive(Debug)]
pub(super) struct PrimaryKeys {
    dsn: PostgresDsn,
    endpoint: Endpoint,
    tls: Arc<ClientConfig>,
    control: Option<Control>,
}

impl PrimaryKeys {
    pub(super) fn new(dsn: PostgresDsn, endpoint: Endpoint, tls: Arc<ClientConfig>) -> Self {
        Self {
            dsn,
            endpoint,
            tls,
            control: None,
        }
    }

    /// That of the table with this id. Cancel safe.
    ///
    /// # Errors
    /// The connection's, or the server's.
    pub(super) async fn of(&mut self, relation: u32) -> Result<PrimaryKey, PostgresError> {
        let control = match self.control.take() {
            Some(control) => control,
            None => Control::connect(&self.dsn, &self.endpoint, &self.tls).await?,
        };
        let key = ask(&control, relation).await?;
        self.control = Some(control);
        Ok(key)
    }

    /// Lets go of the connection: nothing was asked for a while.
    pub(super) fn rest(&mut self) {
        self.control = None;
    }
}

async fn ask(control: &Control, relation: u32) -> Result<PrimaryKey, PostgresError> {
    const ACTION: &str = "ask for a table's primary key";
    // An index can have columns beside its key (INCLUDE), which come behind it.
    let sql = "SELECT a.attname::text FROM pg_class c \
         LEFT JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary \
         LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1]) \
         WHERE c.oid = $1";
    let rows = control.rows(ACTION, sql, &[&relation]).await?;
    let columns = rows.iter().map(|row| row.try_get::<_, Option<String>>(0));
    let columns: Option<Vec<String>> = columns
        .collect::<Result<_, _>>()
        .map_err(|error| PostgresError::control(ACTION, error))?;
    Ok(match columns {
        Some(columns) if columns.is_empty() => PrimaryKey::Gone,
        Some(columns) => PrimaryKey::Columns(columns),
        None => PrimaryKey::None,
    })
}
