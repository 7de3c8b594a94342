//! The application's side: connections, and messages in the log.

use postgres::{Client, GenericClient, NoTls};
use tailpost::position::Lsn;

/// Connects, or says to what it could not.
pub fn connect(url: &str) -> Client {
    Client::connect(url, NoTls).unwrap_or_else(|error| panic!("connect to {url}: {error}"))
}

/// An outbox message as an application writes it, with a payload put in as it is.
pub fn message(aggregate_type: &str, aggregate_id: &str, event_type: &str, payload: &str) -> String {
    format!(
        r#"{{"aggregate_type": "{aggregate_type}", "aggregate_id": "{aggregate_id}", "event_type": "{event_type}", "payload": {payload}}}"#
    )
}

/// Writing messages, on a connection (each call its own transaction) or inside a transaction.
pub trait Emit {
    /// One transactional message. Gives the LSN that the server returned.
    fn emit(&mut self, prefix: &str, content: &str) -> Lsn;

    /// Many transactional messages by one statement.
    fn emit_all(&mut self, prefix: &str, contents: &[String]) -> Result<(), postgres::Error>;
}

impl<C: GenericClient> Emit for C {
    fn emit(&mut self, prefix: &str, content: &str) -> Lsn {
        let row = self
            .query_one(
                "SELECT pg_logical_emit_message(true, $1, $2)::text",
                &[&prefix, &content],
            )
            .expect("emit a message");
        row.get::<_, &str>(0).parse().expect("an LSN")
    }

    fn emit_all(&mut self, prefix: &str, contents: &[String]) -> Result<(), postgres::Error> {
        let statement = "SELECT count(pg_logical_emit_message(true, $1, m)) FROM unnest($2::text[]) m";
        self.query_one(statement, &[&prefix, &contents]).map(drop)
    }
}
