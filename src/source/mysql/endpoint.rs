//! Which of the DSN's servers is read: all connections of a session are to the same one.

use std::fmt;
use std::sync::Arc;

use rustls::ClientConfig;

use crate::config::{MysqlDsn, MysqlHost};
use crate::telemetry::error_chain;
use crate::tls;

use super::client::Client;
use super::error::MysqlError;

/// One server of a DSN.
#[derive(Debug, Clone)]
pub(super) struct Endpoint {
    dsn: MysqlDsn,
    host: MysqlHost,
    tls: Arc<ClientConfig>,
}

/// What became of one of the DSN's servers.
#[derive(Debug)]
pub struct Tried {
    host: MysqlHost,
    pub(super) error: MysqlError,
}

impl fmt::Display for Tried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Some errors begin with the address.
        let error = error_chain(&self.error);
        match error.contains(&self.host.to_string()) {
            true => f.write_str(&error),
            false => write!(f, "{}: {error}", self.host),
        }
    }
}

impl Endpoint {
    /// Every server of a DSN, in its order.
    ///
    /// # Errors
    /// The files of the DSN's TLS options.
    pub(super) fn all(dsn: &MysqlDsn) -> Result<Vec<Self>, MysqlError> {
        let tls = tls::client_config(&dsn.ssl, tls::MYSQL)?;
        let endpoint = |host: &MysqlHost| Self {
            dsn: dsn.clone(),
            host: host.clone(),
            tls: Arc::clone(&tls),
        };
        Ok(dsn.hosts.iter().map(endpoint).collect())
    }

    /// Connects to the DSN's server: to the first of several that takes writes, which a replica does not until it is promoted.
    /// Before, it may lack transactions that it will have then.
    ///
    /// # Errors
    /// The server's, or [`MysqlError::NoServer`] with those of all of them.
    pub(super) async fn find(dsn: &MysqlDsn) -> Result<(Self, Client), MysqlError> {
        let mut tried = Vec::new();
        for endpoint in Self::all(dsn)? {
            let connected = match dsn.hosts.len() {
                1 => return Ok((endpoint.clone(), endpoint.connect().await?)),
                _ => endpoint.connect_to_writable().await,
            };
            match connected {
                Ok(client) => return Ok((endpoint, client)),
                Err(error) => tried.push(Tried {
                    host: endpoint.host,
                    error,
                }),
            }
        }
        Err(MysqlError::NoServer { tried })
    }

    async fn connect_to_writable(&self) -> Result<Client, MysqlError> {
        let mut client = self.connect().await?;
        match takes_writes(&mut client).await? {
            true => Ok(client),
            false => Err(MysqlError::ReadOnly),
        }
    }

    /// A connection that reads and writes UTF-8, whatever the server's settings.
    pub(super) async fn connect(&self) -> Result<Client, MysqlError> {
        let mut client = Client::connect(&self.dsn, &self.host, &self.tls).await?;
        client
            .query("set the connection's character set", "SET NAMES utf8mb4")
            .await?;
        Ok(client)
    }

    pub(super) fn host(&self) -> &MysqlHost {
        &self.host
    }
}

pub(super) async fn takes_writes(client: &mut Client) -> Result<bool, MysqlError> {
    let rows = client
        .query("ask whether the server takes writes", "SELECT @@GLOBAL.read_only")
        .await?;
    let read_only = rows.first().and_then(|row| row.first()).and_then(Option::as_deref);
    // MariaDB 12 knows more than one way of being read-only.
    Ok(matches!(read_only, Some("0" | "OFF")))
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::source::Recovery;

    fn tried(host: &str, error: MysqlError) -> Tried {
        let name = host.to_owned();
        Tried {
            host: MysqlHost::Tcp { name, port: 3306 },
            error,
        }
    }

    fn refused() -> MysqlError {
        MysqlError::Connect {
            address: "db1:3306".to_owned(),
            source: io::ErrorKind::ConnectionRefused.into(),
        }
    }

    fn wrong_password() -> MysqlError {
        let reason = "no".to_owned();
        MysqlError::Authentication { reason }
    }

    #[test]
    fn servers_are_asked_again_while_one_of_them_may_come() {
        let all = |tried: Vec<Tried>| MysqlError::NoServer { tried }.recovery();
        assert_eq!(
            all(vec![tried("db1", refused()), tried("db2", wrong_password())]),
            Recovery::Retry
        );
        assert_eq!(
            all(vec![tried("db1", wrong_password()), tried("db2", MysqlError::ReadOnly)]),
            Recovery::Retry
        );
        assert_eq!(
            all(vec![tried("db1", wrong_password()), tried("db2", wrong_password())]),
            Recovery::Halt
        );
    }

    #[test]
    fn each_server_is_named_once_with_its_reason() {
        let tried = vec![tried("db1", refused()), tried("db2", MysqlError::ReadOnly)];
        assert_eq!(
            MysqlError::NoServer { tried }.to_string(),
            "none of the DSN's servers is the one that takes writes: connect to db1:3306: connection refused; \
             db2:3306: the server takes no writes (read_only), as a replica does that was not promoted"
        );
    }
}
