//! Watches the server beside the stream: how far its log reaches, how the slot stands, what the publication holds, and
//! whether the server is shutting down. It answers what the stream asks the catalog, too.
//!
//! It has a connection of its own, whose end is a sign too: a fast shutdown ends ordinary connections with
//! `admin_shutdown` before it waits for the replication ones.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tokio_postgres::error::SqlState;
use tokio_util::sync::CancellationToken;

use crate::config;
use crate::position::{LogPlace, Lsn};
use crate::telemetry::error_chain;
use crate::telemetry::status::{Kept, SourceView};

use super::client::Endpoint;
use super::control::{Control, Walsender};
use super::error::PostgresError;
use super::primary_key::{Question, Questions};
use super::publication;
use crate::source::select::Selector;

const POLL: Duration = Duration::from_secs(2);
/// An observation older than this says nothing about now.
const FRESH: Duration = Duration::from_secs(10);
/// Every how many polls the publication is compared with the pipeline's patterns.
const POLLS_PER_COMPARISON: u32 = 30;
const RECONNECT: Duration = Duration::from_secs(5);

/// The server as it was last seen.
#[derive(Debug, Clone, Default)]
pub(super) struct Observed {
    pub(super) at: Option<Instant>,
    pub(super) wal_status: Option<String>,
    pub(super) active_pid: Option<i32>,
    pub(super) log_end: Lsn,
    /// Our stream's process.
    pub(super) walsender: Option<Walsender>,
    pub(super) shutting_down: bool,
}

impl Observed {
    /// Whether the server still runs our stream's process: then its silence is work that yields nothing for us.
    pub(super) fn shows_alive(&self, pid: i32) -> bool {
        self.active_pid == Some(pid) && self.is_fresh()
    }

    /// Whether it says something about now.
    pub(super) fn is_fresh(&self) -> bool {
        self.at.is_some_and(|at| at.elapsed() < FRESH)
    }
}

/// What the monitor needs.
#[derive(Debug)]
pub(super) struct Monitor {
    pub(super) config: Arc<config::Postgres>,
    pub(super) endpoint: Endpoint,
    pub(super) tls: Arc<ClientConfig>,
    pub(super) selector: Selector,
    pub(super) view: SourceView,
    /// The server's process of the stream.
    pub(super) pid: i32,
}

impl Monitor {
    /// Watches until cancelled, over lost connections. `warned` is what of the publication is told already.
    pub(super) async fn run(
        self,
        control: Control,
        observed: watch::Sender<Observed>,
        questions: Questions,
        mut warned: String,
        stop: CancellationToken,
    ) {
        let watching = async {
            let mut control = Some(control);
            let mut asked = Asked { questions, open: None };
            loop {
                let connection = match control.take() {
                    Some(connection) => Ok(connection),
                    None => Control::connect(&self.config.dsn, &self.endpoint, &self.tls).await,
                };
                let ended = match connection {
                    Ok(connection) => self.watch(connection, &observed, &mut asked, &mut warned).await,
                    Err(error) => {
                        if server_code(&error) == Some(SqlState::CANNOT_CONNECT_NOW.code()) {
                            observed.send_modify(|observed| observed.shutting_down = true);
                        }
                        error
                    }
                };
                tracing::debug!(error = %error_chain(&ended), "control connection ended");
                sleep(RECONNECT).await;
            }
        };
        tokio::select! {
            biased; // nothing here must outlive the stream
            () = stop.cancelled() => {}
            () = watching => {}
        }
    }

    async fn watch(
        &self,
        mut control: Control,
        observed: &watch::Sender<Observed>,
        asked: &mut Asked,
        warned: &mut String,
    ) -> PostgresError {
        let mut timer = interval(POLL);
        timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut polls = 0_u32;
        loop {
            tokio::select! {
                biased; // the end of the connection before the next use of it
                ended = control.ended() => {
                    let code = ended.as_ref().and_then(tokio_postgres::Error::code).cloned();
                    if code == Some(SqlState::ADMIN_SHUTDOWN) || code == Some(SqlState::CRASH_SHUTDOWN) {
                        observed.send_modify(|observed| observed.shutting_down = true);
                        return PostgresError::ShuttingDown;
                    }
                    return PostgresError::Closed;
                }
                question = asked.next() => {
                    if let Err((question, error)) = question.put_to(&control).await {
                        asked.open = Some(question);
                        return error;
                    }
                }
                _ = timer.tick() => {
                    if let Err(error) = self.poll(&control, observed, polls, warned).await {
                        // The statement can fail on a connection that a shutdown has just ended.
                        if server_code(&error) == Some(SqlState::ADMIN_SHUTDOWN.code()) {
                            observed.send_modify(|observed| observed.shutting_down = true);
                        }
                        return error;
                    }
                    polls = polls.wrapping_add(1);
                }
            }
        }
    }

    async fn poll(
        &self,
        control: &Control,
        observed: &watch::Sender<Observed>,
        polls: u32,
        warned: &mut String,
    ) -> Result<(), PostgresError> {
        let end = control.log_end().await?;
        self.view.log_files(vec![LogPlace { file: 0, offset: end.0 }]);
        if let Some(slot) = control.slot(&self.config.slot).await? {
            self.view.kept(Kept::Slot {
                slot: self.config.slot.clone(),
                bytes: slot.restart.map(|restart| end.0.saturating_sub(restart.0)),
                wal_status: slot.wal_status.clone(),
            });
            let walsender = control.walsender(self.pid).await?;
            observed.send_modify(|observed| {
                *observed = Observed {
                    at: Some(Instant::now()),
                    wal_status: slot.wal_status,
                    active_pid: slot.active_pid,
                    log_end: end,
                    walsender: Some(walsender),
                    shutting_down: false,
                };
            });
        }
        if polls % POLLS_PER_COMPARISON == POLLS_PER_COMPARISON - 1 {
            let finding = match publication::compare(control, &self.config, &self.selector).await {
                Ok(left_out) => left_out.join("; "),
                Err(
                    error @ (PostgresError::PublicationMissing { .. }
                    | PostgresError::PublicationLacksInserts { .. }
                    | PostgresError::PublicationLacksTables { .. }),
                ) => error.to_string(),
                Err(error) => return Err(error),
            };
            if !finding.is_empty() && *warned != finding {
                tracing::warn!(error = %finding, "the publication no longer fits the pipeline");
            }
            *warned = finding;
        }
        Ok(())
    }
}

/// What the stream asks.
struct Asked {
    questions: Questions,
    /// What a connection that failed did not answer.
    open: Option<Question>,
}

impl Asked {
    /// Never ends where nobody can ask any more. Cancel safe.
    async fn next(&mut self) -> Question {
        if let Some(question) = self.open.take() {
            return question;
        }
        match self.questions.recv().await {
            Some(question) => question,
            None => pending().await,
        }
    }
}

/// The SQLSTATE of what the server reported.
fn server_code(error: &PostgresError) -> Option<&str> {
    match error {
        PostgresError::Server { source, .. } => Some(&source.code),
        _ => None,
    }
}
