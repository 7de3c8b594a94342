//! One replication stream: frames in, batches out, and the server answered whatever the relay does.
//!
//! All state lives in [`Stream`], so that a cancelled read loses nothing. The socket is watched in three situations: while
//! reading, while a batch waits for room, and after the stop until the last saved position was confirmed. In each the
//! server is told our position on a timer, since it ends a connection that is silent for `wal_sender_timeout`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::{Buf, BytesMut};
use postgres_protocol::message::frontend;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::watch;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep, timeout};

use crate::position::{Lsn, Position};
use crate::source::{LogBatch, LogChannel};

use super::assemble::Assembler;
use super::client::{Started, parse_report, reading, show_notice};
use super::error::PostgresError;
use super::monitor::Observed;
use super::oversized::{self, HEAD_BYTES};
use super::wire::{ReplicationMessage, StandbyStatus};
use crate::source::transport::Transport;

/// How often the server is told our position unasked: well below the 10 s that we ask for as `wal_sender_timeout`, and
/// below any that an administrator would set.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);
/// The server sends a keep-alive at half its `wal_sender_timeout`; after this silence it is asked, and after three times
/// this it is taken for dead unless it shows itself alive elsewhere.
const SILENCE: Duration = Duration::from_secs(10);
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a batch may wait for room while the slot is about to be lost.
const ENDANGERED_PATIENCE: Duration = Duration::from_secs(5);
/// For the server to stop sending and close its side.
const FAREWELL: Duration = Duration::from_secs(2);
/// A read of this size says that more is waiting.
const BACKLOG_READ: usize = 16 << 10;
/// The server sends each message by a call of its own, and waking us at each takes most of its time. Letting the data of
/// a backlog gather for this long makes the server some three times faster.
const GATHER: Duration = Duration::from_millis(1);
const IDLE_CHUNK: usize = 16 << 10;
const BUSY_CHUNK: usize = 256 << 10;
/// Memory for a large frame grows with what has come of it, never by its length field alone.
const LARGE_STEP: usize = 4 << 20;
/// Frames that are no data: errors and notices.
const MAX_REPORT: u64 = 1 << 20;
const BATCH_EVENTS: usize = 1024;
const BATCH_BYTES: usize = 1 << 20;
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
    transport: Transport,
    /// The server process at the other end.
    pid: i32,
    buffer: BytesMut,
    assembler: Assembler,
    /// Rest of an oversized frame that is being thrown away.
    discard: u64,
    message_limit: u64,
    confirmed: Lsn,
    last_read: usize,
    heard: Instant,
    reply_due: bool,
    status_timer: Interval,
    out: BytesMut,
}

/// What a stream needs to know beside its socket.
#[derive(Debug)]
pub(super) struct StreamOptions {
    pub(super) slot: String,
    pub(super) publication: String,
    pub(super) stall_timeout: Duration,
    /// End when everything before this was handed over.
    pub(super) until: Option<Lsn>,
}

impl Stream {
    pub(super) fn new(started: Started, assembler: Assembler, message_limit: u64) -> Self {
        let Started { transport, buffer, pid } = started;
        let mut status_timer = interval(STATUS_INTERVAL);
        status_timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            transport,
            pid,
            buffer,
            assembler,
            discard: 0,
            message_limit,
            confirmed: Lsn::ZERO,
            last_read: 0,
            heard: Instant::now(),
            reply_due: false,
            status_timer,
            out: BytesMut::with_capacity(64),
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
            let more = self.parse(options)?;
            if self.reply_due {
                self.send_status(false).await?;
            }
            if let Some(batch) = self.assembler.take_batch() {
                match self.hand_over(batch, log, &mut observed, options).await? {
                    HandOver::Done => {}
                    HandOver::Stopped => break End::Stopped,
                    HandOver::GivenUp { batch, error } => return self.give_way(batch, error, log).await,
                }
            }
            if more {
                continue;
            }
            if options.until.is_some_and(|until| self.assembler.base() >= until) {
                break End::Reached;
            }
            tokio::select! {
                biased; // the server's patience before more data
                () = log.stop.cancelled() => break End::Stopped,
                Ok(()) = log.confirmed.changed() => self.confirm(log).await?,
                Ok(()) = observed.changed() => leave_if_shutting_down(&observed)?,
                _ = self.status_timer.tick() => self.tick(&observed).await?,
                read = read(&mut self.transport, &mut self.buffer, self.last_read, self.discard) => {
                    self.last_read = read?;
                    self.heard = Instant::now();
                }
            }
        };
        // Closing the channel tells the relay that nothing more comes.
        log.batches.close();
        self.leave(log, &observed).await?;
        Ok(end)
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
                    let endangered = status.filter(|status| status == "unreserved" || status == "lost");
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
        self.close().await;
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
            self.send_status(false).await?;
            log.view.confirmed();
        }
        Ok(())
    }

    async fn tick(&mut self, observed: &watch::Receiver<Observed>) -> Result<(), PostgresError> {
        let silence = self.heard.elapsed();
        if silence >= SILENCE * 3 && !observed.borrow().shows_alive(self.pid) {
            return Err(PostgresError::Silent { silence });
        }
        self.send_status(silence >= SILENCE).await
    }

    async fn send_status(&mut self, ask_reply: bool) -> Result<(), PostgresError> {
        self.reply_due = false;
        let mut body = BytesMut::with_capacity(64);
        let received = self.assembler.base().max(self.confirmed);
        let status = StandbyStatus {
            written: received,
            flushed: self.confirmed,
            applied: self.confirmed,
            clock_us: unix_now_us(),
            reply_requested: ask_reply,
        };
        status.encode(&mut body);
        let writing = |source| PostgresError::Io {
            action: "write to PostgreSQL",
            source,
        };
        self.out.clear();
        frontend::CopyData::new(body).map_err(writing)?.write(&mut self.out);
        match timeout(WRITE_TIMEOUT, self.transport.write_all(&self.out)).await {
            Ok(written) => written.map_err(writing)?,
            Err(_) => return Err(PostgresError::Silent { silence: WRITE_TIMEOUT }),
        }
        self.transport.flush().await.map_err(writing)
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
        self.close().await;
        Ok(())
    }

    /// Ends the connection. The server frees the slot when it sees it; that it may be gone already is no matter.
    async fn close(mut self) {
        self.out.clear();
        frontend::copy_done(&mut self.out);
        frontend::terminate(&mut self.out);
        let farewell = async {
            self.transport.write_all(&self.out).await?;
            self.transport.flush().await?;
            // Closing with data unread would reset the connection, and the server could lose our last confirmation.
            loop {
                self.buffer.clear();
                if self.transport.read_buf(&mut self.buffer).await? == 0 {
                    return Ok::<_, std::io::Error>(());
                }
            }
        };
        if let Ok(Err(error)) = timeout(FAREWELL, farewell).await {
            tracing::debug!(error = %error, "connection was gone before it was closed");
        }
    }

    /// Reads all whole frames, as far as a batch goes. True: more whole frames may be waiting.
    fn parse(&mut self, options: &StreamOptions) -> Result<bool, PostgresError> {
        loop {
            if self.assembler.event_count() >= BATCH_EVENTS || self.assembler.kept_bytes() >= BATCH_BYTES {
                return Ok(true);
            }
            if self.discard > 0 {
                let now = usize::try_from(self.discard)
                    .unwrap_or(usize::MAX)
                    .min(self.buffer.len());
                self.buffer.advance(now);
                self.discard -= now as u64;
                if self.discard > 0 {
                    return Ok(false);
                }
            }
            let Some((tag, total)) = frame_header(&self.buffer)? else {
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
                .filter(|length| *length <= self.buffer.len())
            else {
                return Ok(false);
            };
            let mut frame = self.buffer.split_to(length).freeze();
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
                b'c' => return Err(PostgresError::ShuttingDown),
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
            } => self.assembler.apply(start, clock_us, &payload),
            ReplicationMessage::KeepAlive {
                end, reply_requested, ..
            } => {
                self.assembler.keep_alive(end);
                self.reply_due |= reply_requested;
                Ok(())
            }
        }
    }

    /// Begins to discard a frame that is over the limit.
    fn oversized(&mut self, total: u64) -> Result<Oversize, PostgresError> {
        if self.buffer.len() < HEAD_BYTES && (self.buffer.len() as u64) < total {
            return Ok(Oversize::HeadMissing);
        }
        let head = self
            .buffer
            .get(5..self.buffer.len().min(HEAD_BYTES))
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
        error: PostgresError,
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

/// Cancel safe: what was read is in the buffer.
async fn read(
    transport: &mut Transport,
    buffer: &mut BytesMut,
    last_read: usize,
    discard: u64,
) -> Result<usize, PostgresError> {
    let busy = last_read >= BACKLOG_READ;
    if busy && transport.gathers() {
        sleep(GATHER).await;
    }
    let missing = match frame_header(buffer) {
        Ok(Some((_, total))) if discard == 0 => usize::try_from(total)
            .unwrap_or(LARGE_STEP)
            .saturating_sub(buffer.len())
            .min(LARGE_STEP),
        _ => 0,
    };
    let chunk = if busy { BUSY_CHUNK } else { IDLE_CHUNK };
    if buffer.capacity() - buffer.len() < chunk / 4 || buffer.capacity() - buffer.len() < missing {
        buffer.reserve(chunk.max(missing));
    }
    match transport.read_buf(buffer).await {
        Ok(0) => Err(PostgresError::Closed),
        Ok(read) => Ok(read),
        Err(source) => Err(reading(source)),
    }
}

/// Tag and whole length of the frame at the buffer's head, once both are here.
fn frame_header(buffer: &[u8]) -> Result<Option<(u8, u64)>, PostgresError> {
    let Some((&[tag, a, b, c, d], _)) = buffer.split_first_chunk::<5>() else {
        return Ok(None);
    };
    let length = u64::from(u32::from_be_bytes([a, b, c, d]));
    if !(4..=i32::MAX as u64).contains(&length) {
        return Err(PostgresError::Frame {
            tag,
            length,
            limit: i32::MAX as u64,
        });
    }
    Ok(Some((tag, length + 1)))
}

fn unix_now_us() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_micros()).unwrap_or(i64::MAX)
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
