//! One replication stream: frames in, batches out, and the server answered whatever the relay does.
//!
//! All state lives in [`Stream`], so that a cancelled read loses nothing. The socket is watched in three situations: while
//! reading, while a batch waits for room, and after the stop until the last saved position was confirmed. In each the
//! server is told our position on a timer, since it ends a connection that is silent for `wal_sender_timeout`.

use std::mem;
use std::ops::ControlFlow;
use std::time::Duration;

use bytes::Buf;
use tokio::sync::watch;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep};

use crate::failpoint;
use crate::pause::until;
use crate::position::{Lsn, Position, ShownPlace};
use crate::source::{LogBatch, LogChannel};

use super::assemble::Assembler;
use super::client::{parse_report, show_notice};
use super::control::{Walsender, is_endangered};
use super::error::PostgresError;
use super::link::{BACKLOG_LAG, Link, STATUS_INTERVAL, frame_header};
use super::monitor::Observed;
use super::oversized::{self, HEAD_BYTES};
use super::primary_key::PrimaryKeys;
use super::progress::Progress;
use super::wire::ReplicationMessage;

/// The server sends a keep-alive at half its `wal_sender_timeout`; after this silence it is asked, and after three times
/// this it is taken for dead unless it shows itself alive elsewhere.
const SILENCE: Duration = Duration::from_secs(10);
/// A question to the catalog that takes longer is told of.
const LONG_QUESTION: Duration = Duration::from_secs(5);
/// How long a batch may wait for room while the slot is about to be lost.
const ENDANGERED_PATIENCE: Duration = Duration::from_secs(5);
/// Frames that are no data: errors and notices.
const MAX_REPORT: u64 = 1 << 20;
pub(super) const BATCH_EVENTS: usize = 1024;
/// What one read gives at most: several batches wait for the relay at once.
const BATCH_BYTES: usize = 256 << 10;
/// How long a batch gathers in a backlog, unless it is full before. Small ones would make small requests to the target, which
/// are dear: where transactions are small, those would take the time in which the server could send more.
const GATHER: Duration = Duration::from_millis(4);
/// CopyData's header, and a keep-alive in it.
const KEEP_ALIVE_FRAME: u64 = 5 + 18;
/// CopyData's header, and XLogData's in front of the payload.
const XLOG_DATA_OVERHEAD: u64 = 5 + 25;

/// Why a stream ended without an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Stopped,
    /// The log's end as it was at the start.
    Reached,
}

#[derive(Debug)]
pub(super) struct Stream {
    link: Link,
    assembler: Assembler,
    primary_keys: PrimaryKeys,
    /// Rest of an oversized frame that is being thrown away.
    discard: u64,
    message_limit: u64,
    confirmed: Lsn,
    reply_due: bool,
    progress: Progress,
    /// Something has come since that was last noted.
    progressed: bool,
    /// It may stand in the status that nothing comes.
    troubled: bool,
    /// When the last batch was handed over.
    handed: Instant,
    status_timer: Interval,
}

/// What a stream needs to know beside its socket.
#[derive(Debug)]
pub(super) struct StreamOptions {
    pub(super) slot: String,
    pub(super) publication: String,
    pub(super) stall_timeout: Duration,
    /// How long nothing may come while the server's log moves and nothing explains it.
    pub(super) progress_timeout: Duration,
    /// End when everything before this was handed over.
    pub(super) until: Option<Lsn>,
}

impl Stream {
    pub(super) fn new(link: Link, assembler: Assembler, primary_keys: PrimaryKeys, message_limit: u64) -> Self {
        let mut status_timer = interval(STATUS_INTERVAL);
        status_timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            link,
            assembler,
            primary_keys,
            discard: 0,
            message_limit,
            confirmed: Lsn::ZERO,
            reply_due: false,
            progress: Progress::new(),
            progressed: false,
            // By a former connection.
            troubled: true,
            handed: Instant::now(),
            status_timer,
        }
    }

    /// Streams until stopped, or until the log's end where `options` say so, then waits until the last position is
    /// saved, confirms it and leaves the server in order.
    pub(super) async fn run(
        mut self,
        log: &mut LogChannel,
        mut observed: watch::Receiver<Observed>,
        options: &StreamOptions,
    ) -> Result<End, PostgresError> {
        let end = loop {
            // What stands before something that ends the stream goes out before that.
            let parsed = self.parse(options);
            self.note_progress(log);
            if self.reply_due {
                self.send_status(false).await?;
            }
            let reached = options.until.is_some_and(|until| self.assembler.base() >= until);
            let gathers = match (&parsed, reached) {
                (Ok(false), false) => self.gathers_until(),
                _ => None,
            };
            if gathers.is_none()
                && let Some(batch) = self.assembler.take_batch()
            {
                match self.hand_over(batch, log, &mut observed, options).await? {
                    HandOver::Done => self.progress.moved(),
                    HandOver::Stopped => break End::Stopped,
                    HandOver::GivenUp { batch, error } => return self.give_way(batch, *error, log).await,
                }
                self.handed = Instant::now();
            }
            let more = parsed?;
            if let Some(relation) = self.assembler.unidentified() {
                match self.identify(relation, log, &mut observed).await? {
                    ControlFlow::Continue(()) => continue,
                    ControlFlow::Break(end) => break end,
                }
            }
            if more {
                continue;
            }
            if reached {
                break End::Reached;
            }
            tokio::select! {
                biased; // the server's patience before more data
                () = log.stop.cancelled() => break End::Stopped,
                Ok(()) = log.confirmed.changed() => self.confirm(log).await?,
                Ok(()) = observed.changed() => {
                    leave_if_shutting_down(&observed)?;
                    self.progressed |= self.progress.observe(observed.borrow().log_end, self.assembler.base());
                }
                _ = self.status_timer.tick() => self.tick(&observed, log, options).await?,
                () = until(gathers), if gathers.is_some() => {}
                read = self.link.read(self.discard, self.assembler.lag()) => {
                    read?;
                    self.progressed |= self.is_inside_data();
                }
            }
        };
        // Closing the channel tells the relay that nothing more comes.
        log.batches.close();
        self.leave(log, &observed).await?;
        Ok(end)
    }

    /// Asks for a table's primary key, and answers the server meanwhile.
    async fn identify(
        &mut self,
        relation: u32,
        log: &mut LogChannel,
        observed: &mut watch::Receiver<Observed>,
    ) -> Result<ControlFlow<End>, PostgresError> {
        let asking = self.primary_keys.of(relation);
        tokio::pin!(asking);
        let long = sleep(LONG_QUESTION);
        tokio::pin!(long);
        let mut is_told = false;
        let key = loop {
            tokio::select! {
                biased; // a stop ends the question, whose table will be described again; then the answer
                () = log.stop.cancelled() => return Ok(ControlFlow::Break(End::Stopped)),
                key = &mut asking => break key?,
                Ok(()) = observed.changed() => leave_if_shutting_down(observed)?,
                () = &mut long, if !is_told => {
                    is_told = true;
                    tracing::warn!(
                        relation,
                        "waits for the catalog to say the primary key of a table with REPLICA IDENTITY FULL: the connection for questions \
                         was lost, and is made anew"
                    );
                }
                _ = self.status_timer.tick() => {
                    let received = self.assembler.base().max(self.confirmed);
                    self.link.send_status(received, self.confirmed, false).await?;
                }
            }
        };
        self.assembler.identify(&key);
        Ok(ControlFlow::Continue(()))
    }

    /// Until when the batch at hand gathers. None: it is to be handed over, or there is none.
    fn gathers_until(&self) -> Option<Instant> {
        let until = self.handed + GATHER;
        let waited = self.assembler.lag() >= BACKLOG_LAG;
        (waited && self.assembler.has_batch() && Instant::now() < until).then_some(until)
    }

    /// Waits for room, for no longer than the server may be kept waiting.
    async fn hand_over(
        &mut self,
        batch: LogBatch,
        log: &mut LogChannel,
        observed: &mut watch::Receiver<Observed>,
        options: &StreamOptions,
    ) -> Result<HandOver, PostgresError> {
        let since = Instant::now();
        let mut batch = Some(batch);
        let error = loop {
            tokio::select! {
                biased; // the stop, then room, which ends the wait; a status is written whole, never cancelled
                () = log.stop.cancelled() => return Ok(HandOver::Stopped),
                () = log.batches.hand_over(&mut batch) => return Ok(HandOver::Done),
                Ok(()) = log.confirmed.changed() => self.confirm(log).await?,
                Ok(()) = observed.changed() => {
                    leave_if_shutting_down(observed)?;
                    let status = observed.borrow().wal_status.clone();
                    let endangered = status.filter(|status| is_endangered(status));
                    // A sink that is slow and moves is let go on: a new connection would make the server read much again.
                    if let Some(status) = endangered.filter(|_| since.elapsed() >= ENDANGERED_PATIENCE) {
                        break PostgresError::SlotEndangered { slot: options.slot.clone(), status };
                    }
                }
                _ = self.status_timer.tick() => {
                    self.send_status(false).await?;
                    if since.elapsed() >= options.stall_timeout {
                        break PostgresError::Stalled { stalled: since.elapsed() };
                    }
                }
            }
        };
        let error = Box::new(error);
        Ok(HandOver::GivenUp { batch, error })
    }

    /// Closes the connection, then waits for room: a reader that leaves its socket unread hangs the server's checkpointer
    /// when the slot must go.
    async fn give_way(
        self,
        mut batch: Option<LogBatch>,
        error: PostgresError,
        log: &mut LogChannel,
    ) -> Result<End, PostgresError> {
        tracing::warn!(error = %error, "connection closed until there is room");
        log.view.waiting(error.to_string());
        self.link.close().await;
        tokio::select! {
            biased; // a stop ends the wait: the batch will be read again
            () = log.stop.cancelled() => {}
            () = log.batches.hand_over(&mut batch) => {}
        }
        Err(error)
    }

    async fn confirm(&mut self, log: &mut LogChannel) -> Result<(), PostgresError> {
        let Some(Position::Postgres(position)) = log.confirmed.borrow_and_update().clone() else {
            return Ok(());
        };
        // Only whole units, never back, and never beyond what this connection has sent.
        let base = position.base.min(self.assembler.base());
        if base > self.confirmed {
            self.confirmed = base;
            failpoint::hit("before_confirm");
            self.send_status(false).await?;
            failpoint::hit("after_confirm");
            log.view.confirmed(ShownPlace::Lsn(base));
        }
        Ok(())
    }

    async fn tick(
        &mut self,
        observed: &watch::Receiver<Observed>,
        log: &LogChannel,
        options: &StreamOptions,
    ) -> Result<(), PostgresError> {
        let silence = self.link.silence();
        if silence >= SILENCE * 3 && !observed.borrow().shows_alive(self.link.pid()) {
            return Err(PostgresError::Silent { silence });
        }
        let stalled = self.progress.stalled();
        if let Some(stalled) = stalled.filter(|stalled| *stalled >= options.progress_timeout) {
            self.explain(stalled, &observed.borrow(), log)?;
        }
        // Asked, the server tells how far it has read; by itself it says nothing while it has nothing for us.
        let ask = silence >= SILENCE || stalled.is_some_and(|stalled| stalled >= STATUS_INTERVAL);
        self.send_status(ask).await
    }

    /// Says why nothing comes while the log moves.
    ///
    /// # Errors
    /// Nothing shows why: another connection may do better.
    fn explain(&mut self, stalled: Duration, observed: &Observed, log: &LogChannel) -> Result<(), PostgresError> {
        match &observed.walsender {
            _ if !observed.is_fresh() => Ok(()),
            // Much log that holds nothing for us, or a large transaction: another connection would begin it anew.
            None | Some(Walsender::AtWork) => Ok(()),
            Some(Walsender::HeldBack(reason)) => {
                self.troubled = true;
                if log.view.trouble(Some(reason.clone())) {
                    tracing::warn!(reason, "nothing comes though the server's log moves");
                }
                Ok(())
            }
            Some(Walsender::Waits | Walsender::Gone) => {
                let error = PostgresError::NoProgress {
                    stalled,
                    log_end: observed.log_end,
                    received: self.assembler.base(),
                    pid: self.link.pid(),
                };
                log.view.trouble(Some(error.to_string()));
                Err(error)
            }
        }
    }

    fn note_progress(&mut self, log: &LogChannel) {
        if !mem::take(&mut self.progressed) {
            return;
        }
        self.progress.moved();
        if mem::take(&mut self.troubled) && log.view.trouble(None) {
            tracing::info!("something comes again");
        }
    }

    /// Whether what was read is part of a frame that is longer than a keep-alive.
    fn is_inside_data(&self) -> bool {
        let header = frame_header(&self.link.buffer);
        self.discard > 0 || header.is_ok_and(|header| header.is_some_and(|(_, total)| total > KEEP_ALIVE_FRAME))
    }

    async fn send_status(&mut self, ask_reply: bool) -> Result<(), PostgresError> {
        self.reply_due = false;
        let received = self.assembler.base().max(self.confirmed);
        self.link.send_status(received, self.confirmed, ask_reply).await
    }

    /// Keeps the connection until the last position was saved and confirmed.
    async fn leave(mut self, log: &mut LogChannel, observed: &watch::Receiver<Observed>) -> Result<(), PostgresError> {
        self.confirm(log).await?;
        loop {
            tokio::select! {
                biased; // the save that we wait for before the timer
                changed = log.confirmed.changed() => match changed {
                    Ok(()) => self.confirm(log).await?,
                    Err(_) => break,
                },
                _ = self.status_timer.tick() => {
                    leave_if_shutting_down(observed)?;
                    self.send_status(false).await?;
                }
            }
        }
        self.link.close().await;
        Ok(())
    }

    /// Reads all whole frames, as far as a batch goes. True: more whole frames may be waiting.
    fn parse(&mut self, options: &StreamOptions) -> Result<bool, PostgresError> {
        loop {
            let full = self.assembler.event_count() >= BATCH_EVENTS || self.assembler.kept_bytes() >= BATCH_BYTES;
            if full || self.assembler.unidentified().is_some() {
                return Ok(true);
            }
            if self.discard > 0 {
                let now = usize::try_from(self.discard)
                    .unwrap_or(usize::MAX)
                    .min(self.link.buffer.len());
                self.link.buffer.advance(now);
                self.discard -= now as u64;
                if self.discard > 0 {
                    return Ok(false);
                }
            }
            let Some((tag, total)) = frame_header(&self.link.buffer)? else {
                return Ok(false);
            };
            if tag == b'd' && total.saturating_sub(XLOG_DATA_OVERHEAD) > self.message_limit {
                match self.oversized(total)? {
                    Oversize::Discarded => continue,
                    Oversize::HeadMissing => return Ok(false),
                    Oversize::Kept => {}
                }
            }
            if tag != b'd' && total > MAX_REPORT {
                return Err(PostgresError::Frame {
                    tag,
                    length: total,
                    limit: MAX_REPORT,
                });
            }
            let Some(length) = usize::try_from(total)
                .ok()
                .filter(|length| *length <= self.link.buffer.len())
            else {
                return Ok(false);
            };
            let mut frame = self.link.buffer.split_to(length).freeze();
            match tag {
                b'd' => {
                    frame.advance(5);
                    self.replication_message(frame)?;
                }
                b'E' => return Err(stream_error(parse_report(frame)?, options)),
                b'N' => {
                    let notice = parse_report(frame)?;
                    // PostgreSQL 18 goes on without the rows where older servers end the stream.
                    if notice.message.starts_with("skipped loading publication") {
                        return Err(too_young(options, notice.message));
                    }
                    show_notice(&notice);
                }
                b'S' => {}
                // A server that shuts down says the second, and not the first, to whoever has confirmed all that there is.
                b'c' | b'C' => return Err(PostgresError::ShuttingDown),
                tag => {
                    return Err(PostgresError::Unexpected {
                        found: format!("a frame with tag `{}`", char::from(tag).escape_default()),
                        expected: "copy data",
                    });
                }
            }
        }
    }

    fn replication_message(&mut self, body: bytes::Bytes) -> Result<(), PostgresError> {
        match ReplicationMessage::parse(body)? {
            ReplicationMessage::XLogData {
                start,
                clock_us,
                payload,
                ..
            } => {
                self.progressed = true;
                self.assembler.apply(start, clock_us, &payload)
            }
            ReplicationMessage::KeepAlive {
                end, reply_requested, ..
            } => {
                self.progressed |= self.progress.keep_alive(end, self.assembler.base());
                self.assembler.keep_alive(end);
                self.reply_due |= reply_requested;
                Ok(())
            }
        }
    }

    /// Begins to discard a frame that is over the limit.
    fn oversized(&mut self, total: u64) -> Result<Oversize, PostgresError> {
        if self.link.buffer.len() < HEAD_BYTES && (self.link.buffer.len() as u64) < total {
            return Ok(Oversize::HeadMissing);
        }
        let head = self
            .link
            .buffer
            .get(5..self.link.buffer.len().min(HEAD_BYTES))
            .unwrap_or_default();
        let Some((start, clock_us, head)) = oversized::parse(head) else {
            // Descriptions of tables and the like are no data; they have a limit of their own.
            if total <= MAX_REPORT {
                return Ok(Oversize::Kept);
            }
            return Err(PostgresError::Frame {
                tag: b'd',
                length: total,
                limit: MAX_REPORT,
            });
        };
        let bytes = total - XLOG_DATA_OVERHEAD;
        self.assembler
            .oversized(start, clock_us, &head, bytes, self.message_limit)?;
        self.discard = total;
        Ok(Oversize::Discarded)
    }
}

/// How a batch fared.
enum HandOver {
    Done,
    /// It was not handed over and will be read again.
    Stopped,
    /// There was no room for too long.
    GivenUp {
        batch: Option<LogBatch>,
        error: Box<PostgresError>,
    },
}

/// What becomes of a frame that is over the limit for messages and rows.
enum Oversize {
    Discarded,
    /// It is not known yet what it is.
    HeadMissing,
    /// It is neither.
    Kept,
}

fn leave_if_shutting_down(observed: &watch::Receiver<Observed>) -> Result<(), PostgresError> {
    // A fast shutdown ends ordinary connections first and then waits for us to confirm all of its log. That can take for
    // ever while the sink is stuck, so we go.
    if observed.borrow().shutting_down {
        Err(PostgresError::ShuttingDown)
    } else {
        Ok(())
    }
}

fn stream_error(error: super::error::ServerError, options: &StreamOptions) -> PostgresError {
    if error.code == "42704" && error.message.starts_with("publication ") {
        return too_young(options, error.message);
    }
    PostgresError::server(format!("stream from slot `{}`", options.slot), error)
}

fn too_young(options: &StreamOptions, detail: String) -> PostgresError {
    PostgresError::PublicationTooYoung {
        publication: options.publication.clone(),
        slot: options.slot.clone(),
        detail,
    }
}

#[cfg(test)]
mod tests;
