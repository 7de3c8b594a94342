//! Watches the server beside the stream: whether the pipeline's lock is still ours, and how far the log reaches.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use crate::position::BinlogPlace;
use crate::telemetry::error_chain;
use crate::telemetry::status::SourceView;

use super::client::Client;
use super::error::MysqlError;
use super::server::binlog_files;
use super::session::Lock;

/// Well below the timeout after which the server ends the lock's connection.
const POLL: Duration = Duration::from_secs(2);
/// For an answer. With the time between two polls it is below that timeout, so that nothing is published on a lock that
/// somebody else may have by then.
const PATIENCE: Duration = Duration::from_secs(5);
/// Every how many polls the log's end is asked for.
const POLLS_PER_LISTING: u32 = 2;

/// What the monitor saw.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Observed {
    /// Why the lock is not held any more.
    pub(super) lock_lost: Option<String>,
}

/// What the monitor needs.
#[derive(Debug)]
pub(super) struct Monitor {
    pub(super) lock: Lock,
    pub(super) view: SourceView,
}

impl Monitor {
    /// Watches until stopped, or until the lock is lost.
    pub(super) async fn run(self, control: Client, observed: watch::Sender<Observed>, stop: CancellationToken) {
        let reason = tokio::select! {
            biased; // nothing here must outlive the stream
            () = stop.cancelled() => return,
            reason = self.watch(control) => reason,
        };
        observed.send_modify(|observed| observed.lock_lost = Some(reason));
    }

    /// Returns why the lock is lost.
    async fn watch(&self, mut control: Client) -> String {
        let mut timer = interval(POLL);
        timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut polls = 0_u32;
        loop {
            timer.tick().await;
            match timeout(PATIENCE, self.poll(&mut control, polls)).await {
                Ok(Ok(true)) => {}
                Ok(Ok(false)) => return "the server gave it to another connection".to_owned(),
                Ok(Err(error)) => return error_chain(&error),
                Err(_) => return format!("the server did not answer for {} s", PATIENCE.as_secs()),
            }
            polls = polls.wrapping_add(1);
        }
    }

    async fn poll(&self, control: &mut Client, polls: u32) -> Result<bool, MysqlError> {
        if !self.lock.is_held(control).await? {
            return Ok(false);
        }
        if polls.is_multiple_of(POLLS_PER_LISTING) {
            let files = binlog_files(control).await?;
            self.view.log_files(files.iter().map(BinlogPlace::log_place).collect());
        }
        Ok(true)
    }
}
