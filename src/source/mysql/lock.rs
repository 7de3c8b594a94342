//! The server-wide lock (`GET_LOCK`) that lets one instance of a pipeline read, held by a connection of its own.
//!
//! A connection has the lock until it ends, and the server ends one that it has heard nothing of for [`PATIENCE`]. So a
//! process that is stopped, or cut off, loses its place to the next one, and may go on sending what it has read before it
//! notices. Nothing is handed over unless the lock was looked at so lately that the server must still have it as ours.

use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, timeout};

use crate::telemetry::error_chain;

use super::client::Client;
use super::error::MysqlError;
use super::server::quote;

/// After so long without a word from us the server ends the lock's connection.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often the lock is looked at, which is the word that the server waits for.
const PACE: Duration = Duration::from_secs(2);
/// How long an answer may take. With the time between two looks it is below the server's patience.
pub(super) const ANSWER: Duration = Duration::from_secs(5);
/// How old the last look may be when something is handed over; the rest of the server's patience is for that.
const FRESH: Duration = Duration::from_secs(8);

/// The lock of one pipeline, by its name.
#[derive(Debug, Clone)]
pub(super) struct Lock {
    name: String,
}

/// When the lock was last known to be ours: before the server was asked, since its patience begins then at the earliest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SeenAt(Instant);

impl SeenAt {
    pub(super) fn now() -> Self {
        Self(Instant::now())
    }

    pub(super) fn is_fresh(self) -> bool {
        self.0.elapsed() < FRESH
    }
}

impl Lock {
    pub(super) fn new(pipeline: &str) -> Self {
        // The server takes 64 characters at most, and a pipeline's name can be as long by itself.
        let digest = Sha256::digest(pipeline.as_bytes());
        let digits: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        Self {
            name: format!("tailpost.{digits}"),
        }
    }

    /// Takes the lock for as long as the connection is heard of.
    ///
    /// # Errors
    /// [`MysqlError::InUse`] where another connection has it.
    pub(super) async fn take(self, mut client: Client) -> Result<Held, MysqlError> {
        let timeout = format!("SET SESSION wait_timeout = {}", PATIENCE.as_secs());
        client.query("set the lock's timeout", &timeout).await?;
        let seen = SeenAt::now();
        let name = quote(&self.name);
        // Our own last connection may be on its way out.
        let statement = format!("SELECT GET_LOCK({name}, 1), IS_USED_LOCK({name})");
        let rows = client.query("take the pipeline's lock", &statement).await?;
        let cell = |column: usize| rows.first().and_then(|row| row.get(column)).and_then(Option::as_deref);
        if cell(0) != Some("1") {
            return Err(MysqlError::InUse {
                connection: cell(1).unwrap_or("?").to_owned(),
            });
        }
        let mut timer = interval(PACE);
        timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Ok(Held {
            lock: self,
            client,
            seen,
            timer,
        })
    }

    /// Whether any connection has it.
    pub(super) async fn is_taken(&self, client: &mut Client) -> Result<bool, MysqlError> {
        let statement = format!("SELECT IS_USED_LOCK({}) IS NOT NULL", quote(&self.name));
        let rows = client.query("look at the pipeline's lock", &statement).await?;
        let taken = rows.first().and_then(|row| row.first()).and_then(Option::as_deref);
        Ok(taken == Some("1"))
    }

    /// Whether the connection still has it.
    async fn is_held(&self, client: &mut Client) -> Result<bool, MysqlError> {
        let statement = format!("SELECT IS_USED_LOCK({}) = CONNECTION_ID()", quote(&self.name));
        let rows = client.query("look at the pipeline's lock", &statement).await?;
        let held = rows.first().and_then(|row| row.first()).and_then(Option::as_deref);
        Ok(held == Some("1"))
    }
}

/// The lock with the connection that has it.
#[derive(Debug)]
pub(super) struct Held {
    lock: Lock,
    /// For statements between two looks, which keep it alive as well.
    pub(super) client: Client,
    seen: SeenAt,
    timer: Interval,
}

impl Held {
    pub(super) fn seen(&self) -> SeenAt {
        self.seen
    }

    /// Waits until the lock is to be looked at again. Cancel safe.
    ///
    /// # Errors
    /// The server ended the connection, and with it the lock.
    pub(super) async fn due(&mut self) -> Result<(), MysqlError> {
        tokio::select! {
            biased; // a connection that has ended need not be asked
            error = self.client.ended() => Err(lost(error_chain(&error))),
            _ = self.timer.tick() => Ok(()),
        }
    }

    /// Looks whether the lock is still ours. Not cancel safe: the answer must be read.
    ///
    /// # Errors
    /// [`MysqlError::LockLost`], also where there is no answer.
    pub(super) async fn look(&mut self) -> Result<SeenAt, MysqlError> {
        let seen = SeenAt::now();
        match timeout(ANSWER, self.lock.is_held(&mut self.client)).await {
            Ok(Ok(true)) => {
                self.seen = seen;
                Ok(seen)
            }
            Ok(Ok(false)) => Err(lost("the server gave it to another connection".to_owned())),
            Ok(Err(error)) => Err(lost(error_chain(&error))),
            Err(_) => Err(lost(silent())),
        }
    }

    /// Keeps the lock while something else is waited for.
    ///
    /// # Errors
    /// [`MysqlError::LockLost`]
    pub(super) async fn keep_during<T>(&mut self, wait: impl Future<Output = T>) -> Result<T, MysqlError> {
        tokio::pin!(wait);
        loop {
            tokio::select! {
                biased; // what is waited for may be there
                value = &mut wait => return Ok(value),
                due = self.due() => due?,
            }
            self.look().await?;
        }
    }
}

fn lost(reason: String) -> MysqlError {
    MysqlError::LockLost { reason }
}

pub(super) fn silent() -> String {
    format!("the server did not answer for {} s", ANSWER.as_secs())
}
