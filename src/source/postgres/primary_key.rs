//! The primary keys of tables whose replica identity is FULL: there the log has whole old rows, and does not say which
//! columns tell rows apart.
//!
//! The stream asks when such a table is described, and whoever has a connection for questions answers. The catalog says what
//! they are now, the description how the table was: the two are held against each other.

use tokio::sync::{mpsc, oneshot};

use super::control::{Control, column};
use super::error::PostgresError;
use crate::source::Recovery;

/// What the catalog says of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PrimaryKey {
    /// The table is not there any more.
    Gone,
    None,
    Columns(Vec<String>),
}

/// Asks for them: the stream's side.
#[derive(Debug)]
pub(super) struct PrimaryKeys(mpsc::Sender<Question>);

/// What is asked: the other side.
pub(super) type Questions = mpsc::Receiver<Question>;

#[derive(Debug)]
pub(super) struct Question {
    relation: u32,
    answer: oneshot::Sender<Result<PrimaryKey, PostgresError>>,
}

pub(super) fn channel() -> (PrimaryKeys, Questions) {
    // The stream waits for an answer before it asks anew.
    let (sender, questions) = mpsc::channel(1);
    (PrimaryKeys(sender), questions)
}

impl PrimaryKeys {
    /// That of the table with this id.
    ///
    /// # Errors
    /// The server's, where another try would be no better. Over a connection that fails it is asked again.
    pub(super) async fn of(&self, relation: u32) -> Result<PrimaryKey, PostgresError> {
        let (answer, answered) = oneshot::channel();
        if self.0.send(Question { relation, answer }).await.is_err() {
            return Err(PostgresError::Closed);
        }
        answered.await.unwrap_or(Err(PostgresError::Closed))
    }
}

impl Question {
    /// Answers, unless the connection fails: then the question comes back with why.
    pub(super) async fn put_to(self, control: &Control) -> Result<(), (Self, PostgresError)> {
        match ask(control, self.relation).await {
            Err(error) if error.recovery() == Recovery::Retry => return Err((self, error)),
            // Who asked may have gone.
            said => drop(self.answer.send(said)),
        }
        Ok(())
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
    let columns: Result<Option<Vec<String>>, _> = rows.iter().map(|row| column(row, 0, ACTION)).collect();
    Ok(match columns? {
        Some(columns) if columns.is_empty() => PrimaryKey::Gone,
        Some(columns) => PrimaryKey::Columns(columns),
        None => PrimaryKey::None,
    })
}
