//! One binlog stream: packets in, batches out.
//!
//! All state lives in [`Stream`], so that a cancelled read loses nothing. Nothing is sent back: the server keeps its binlog
//! by age and size, whatever its readers have done. It sends a heartbeat when it has nothing else to send, which is both
//! its sign of life and how the position moves on in a quiet log.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use rustls::ClientConfig;
use tokio::io::AsyncReadExt;
use tokio::sync::watch;
use tokio::sync::watch::error::RecvError;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep};

use crate::config;
use crate::position::{BinlogPlace, MysqlPosition};
use crate::source::transport::Transport;
use crate::source::{LogBatch, LogChannel};

use super::assemble::Assembler;
use super::binlog::Header;
use super::client::Started;
use super::error::MysqlError;
use super::monitor::Observed;
use super::packet::{HEADER_BYTES, MAX_PAYLOAD, ServerError, payload_len};
use super::schema;

/// How often it is looked whether the server is silent, or a batch waits for too long.
const TICK: Duration = Duration::from_secs(1);
/// A heartbeat is asked for each second; a server that is silent for so long is taken for dead.
const SILENCE: Duration = Duration::from_secs(30);
/// Before the first event the server looks for where to begin, and says nothing.
const SEARCH: Duration = Duration::from_secs(600);
/// A read of this size says that more is waiting.
const BACKLOG_READ: usize = 16 << 10;
/// The server sends each event by a call of its own. Letting the data of a backlog gather for this long saves both sides
/// most of the waking up.
const GATHER: Duration = Duration::from_millis(1);
const IDLE_CHUNK: usize = 16 << 10;
const BUSY_CHUNK: usize = 256 << 10;
/// Packets up to here are read whole; larger ones are taken in pieces as they come, so that memory grows with what came.
const WHOLE_PACKET: usize = 256 << 10;
/// Comments of this size are nobody's.
const MAX_COMMENT: u64 = 64 << 10;
/// What of a large event is looked at before it is decided whether it is kept: its header, and which table its rows are of.
const HEAD_BYTES: usize = 64;
/// After so much of the log others get their turn, whatever it holds for us.
const TURN_BYTES: u64 = 4 << 20;

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
    buffer: BytesMut,
    assembler: Assembler,
    message_limit: u64,
    /// A large event on its way in.
    large: Option<Large>,
    last_read: usize,
    heard: Instant,
    timer: Interval,
    /// The server has accepted where the stream begins, and operators were told so.
    begun: bool,
}

/// An event that comes in pieces: more than one packet, or one that is large.
#[derive(Debug)]
struct Large {
    /// None: it is thrown away.
    kept: Option<BytesMut>,
    /// Still to come of the packet at hand.
    rest: usize,
    /// Another packet follows.
    goes_on: bool,
    /// How long the event says it is.
    size: usize,
}

/// What a stream needs to know beside its socket.
#[derive(Debug)]
pub(super) struct StreamOptions {
    pub(super) config: Arc<config::Mysql>,
    pub(super) tls: Arc<ClientConfig>,
    pub(super) stall_timeout: Duration,
    /// End when everything before this was handed over.
    pub(super) until: Option<BinlogPlace>,
    /// Where the stream began and what the server had then, for the words of a refusal.
    pub(super) from: MysqlPosition,
    pub(super) oldest: BinlogPlace,
    pub(super) gap: Option<String>,
    /// How the server and the connection are called.
    pub(super) server: String,
    pub(super) connection: u32,
}

impl StreamOptions {
    /// Tells operators that the server streams.
    fn announce(&self, log: &LogChannel) {
        tracing::info!(
            server = self.server,
            position = %self.from,
            server_id = self.config.server_id,
            connection = self.connection,
            "streaming"
        );
        if let Some(gap) = &self.gap {
            tracing::warn!(gap, position = %self.from, "a gap was accepted by the operator");
            log.view.gap_accepted();
        }
        log.view.streaming();
    }
}

impl Stream {
    pub(super) fn new(started: Started, assembler: Assembler, message_limit: u64) -> Self {
        let Started { transport, buffer, .. } = started;
        let mut timer = interval(TICK);
        timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            transport,
            buffer,
            assembler,
            message_limit,
            large: None,
            last_read: 0,
            heard: Instant::now(),
            timer,
            begun: false,
        }
    }

    /// Streams until stopped, or until the log's end where `options` say so, then waits until the last position is saved.
    pub(super) async fn run(
        mut self,
        log: &mut LogChannel,
        mut observed: watch::Receiver<Observed>,
        options: &StreamOptions,
    ) -> Result<End, MysqlError> {
        let end = 'stream: loop {
            // What stands before an event that cannot be read goes out before that ends the stream.
            let parsed = self.parse(options);
            if !self.begun && self.assembler.has_begun() {
                self.begun = true;
                options.announce(log);
            }
            while let Some(batch) = self.assembler.take_batch() {
                match self.hand_over(batch, log, &mut observed, options).await? {
                    HandOver::Done => {}
                    HandOver::Stopped => break 'stream End::Stopped,
                    HandOver::GivenUp { batch, error } => {
                        return self.give_way(batch, *error, log, &mut observed).await;
                    }
                }
            }
            let more = parsed?;
            if let Some(table) = self.assembler.unknown_table() {
                let describing = schema::describe(&options.config, &options.tls, &table.name);
                let described = tokio::select! {
                    biased; // a stop ends the question, whose rows will be read again
                    () = log.stop.cancelled() => break End::Stopped,
                    described = describing => described?,
                };
                self.assembler.describe(described)?;
                self.heard = Instant::now();
                continue;
            }
            if more {
                tokio::task::yield_now().await;
                if log.stop.is_cancelled() {
                    break End::Stopped;
                }
                continue;
            }
            let place = self.assembler.place().log_place();
            let reached = options.until.as_ref().is_some_and(|until| place >= until.log_place());
            if reached && self.begun && self.assembler.is_between() {
                break End::Reached;
            }
            tokio::select! {
                biased; // what ends the stream before more data
                () = log.stop.cancelled() => break End::Stopped,
                changed = observed.changed() => check_lock(changed, &observed)?,
                _ = self.timer.tick() => {
                    let silence = self.heard.elapsed();
                    if silence >= if self.begun { SILENCE } else { SEARCH } {
                        return Err(MysqlError::Silent { silence });
                    }
                }
                read = read(&mut self.transport, &mut self.buffer, self.last_read) => {
                    self.last_read = read?;
                    self.heard = Instant::now();
                }
            }
        };
        // Closing the channel tells the relay that nothing more comes.
        log.batches.close();
        // Until the last save, so that no other instance begins before it.
        while log.confirmed.changed().await.is_ok() {}
        Ok(end)
    }

    /// Waits for room, for no longer than the stall timeout.
    async fn hand_over(
        &mut self,
        batch: LogBatch,
        log: &mut LogChannel,
        observed: &mut watch::Receiver<Observed>,
        options: &StreamOptions,
    ) -> Result<HandOver, MysqlError> {
        let since = Instant::now();
        let mut batch = Some(batch);
        let error = loop {
            tokio::select! {
                biased; // the stop, then room, which ends the wait
                () = log.stop.cancelled() => return Ok(HandOver::Stopped),
                () = log.batches.hand_over(&mut batch) => {
                    // The server's patience began anew with what we read, and ours with it.
                    self.heard = Instant::now();
                    return Ok(HandOver::Done);
                }
                changed = observed.changed() => check_lock(changed, observed)?,
                _ = self.timer.tick() => {
                    if since.elapsed() >= options.stall_timeout {
                        break Box::new(MysqlError::Stalled {
                            stalled: since.elapsed(),
                        });
                    }
                }
            }
        };
        Ok(HandOver::GivenUp { batch, error })
    }

    /// Closes the connection, then waits for room: the server must not be kept waiting to write to us, nor a file from
    /// being purged.
    async fn give_way(
        self,
        mut batch: Option<LogBatch>,
        error: MysqlError,
        log: &mut LogChannel,
        observed: &mut watch::Receiver<Observed>,
    ) -> Result<End, MysqlError> {
        tracing::warn!(error = %error, "connection closed until there is room");
        log.view.waiting(error.to_string());
        drop(self);
        tokio::select! {
            biased; // a stop ends the wait, and a lost lock: the batch will be read again
            () = log.stop.cancelled() => {}
            changed = observed.changed() => check_lock(changed, observed)?,
            () = log.batches.hand_over(&mut batch) => {}
        }
        Err(error)
    }

    /// Applies all whole events, as far as a batch goes. True: more may be waiting.
    fn parse(&mut self, options: &StreamOptions) -> Result<bool, MysqlError> {
        let before = self.assembler.bytes_read();
        loop {
            let full = self.assembler.is_full();
            let read = self.assembler.bytes_read().wrapping_sub(before);
            if full || read >= TURN_BYTES || self.assembler.unknown_table().is_some() {
                return Ok(true);
            }
            if self.assembler.advance()? {
                continue;
            }
            let goes_on = match self.large.is_some() {
                true => self.take_large()?,
                false => self.take_packet(options)?,
            };
            if !goes_on {
                return Ok(false);
            }
        }
    }

    /// Takes the packet at the buffer's head. False: it is not here yet.
    fn take_packet(&mut self, options: &StreamOptions) -> Result<bool, MysqlError> {
        let Some(length) = payload_len(&self.buffer) else {
            return Ok(false);
        };
        let here = self.buffer.len() - HEADER_BYTES;
        if length > WHOLE_PACKET && here < length {
            return self.begin_large(length, options);
        }
        if here < length {
            return Ok(false);
        }
        if length == MAX_PAYLOAD || length as u64 > self.message_limit {
            return self.begin_large(length, options);
        }
        self.buffer.advance(HEADER_BYTES);
        let packet = self.buffer.split_to(length).freeze();
        match packet.first() {
            Some(0x00) => self.assembler.apply(packet.slice(1..))?,
            _ => return Err(refusal(&packet, options)),
        }
        Ok(true)
    }

    /// Decides what becomes of a large event, by its first bytes.
    fn begin_large(&mut self, length: usize, options: &StreamOptions) -> Result<bool, MysqlError> {
        let Some(start) = self.buffer.get(HEADER_BYTES..) else {
            return Ok(false);
        };
        let start = start.get(..length.min(start.len())).unwrap_or_default();
        if start.len() < HEAD_BYTES.min(length) {
            return Ok(false);
        }
        let head = Bytes::copy_from_slice(start.get(..HEAD_BYTES.min(start.len())).unwrap_or_default());
        if head.first() != Some(&0x00) {
            // An error is small; nothing of this size is one.
            return Err(refusal(&head, options));
        }
        let event = head.slice(1..);
        let kept = self.assembler.wants(&event, MAX_COMMENT)?;
        self.buffer.advance(HEADER_BYTES + 1);
        self.large = Some(Large {
            kept: kept.then(BytesMut::new),
            rest: length - 1,
            goes_on: length == MAX_PAYLOAD,
            size: Header::parse(&event).map_or(0, |header| header.event_len()),
        });
        Ok(true)
    }

    /// Takes what came of a large event. False: more of it must come.
    fn take_large(&mut self) -> Result<bool, MysqlError> {
        let Some(large) = &mut self.large else {
            return Ok(true);
        };
        let piece = self.buffer.split_to(large.rest.min(self.buffer.len()));
        large.rest -= piece.len();
        if let Some(kept) = &mut large.kept {
            kept.extend_from_slice(&piece);
            if kept.len() > large.size {
                return Err(MysqlError::Malformed {
                    expected: "no more of an event than its header says",
                });
            }
        }
        if large.rest > 0 {
            return Ok(false);
        }
        if large.goes_on {
            let Some(length) = payload_len(&self.buffer) else {
                return Ok(false);
            };
            self.buffer.advance(HEADER_BYTES);
            large.rest = length;
            large.goes_on = length == MAX_PAYLOAD;
            return Ok(true);
        }
        let kept = self.large.take().and_then(|large| large.kept);
        if let Some(event) = kept {
            self.assembler.apply(event.freeze())?;
        }
        Ok(true)
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
        error: Box<MysqlError>,
    },
}

/// Cancel safe: what was read is in the buffer.
async fn read(transport: &mut Transport, buffer: &mut BytesMut, last_read: usize) -> Result<usize, MysqlError> {
    let busy = last_read >= BACKLOG_READ;
    if busy && transport.gathers() {
        sleep(GATHER).await;
    }
    let missing = payload_len(buffer)
        .map_or(0, |length| (HEADER_BYTES + length).saturating_sub(buffer.len()))
        .min(WHOLE_PACKET);
    let chunk = if busy { BUSY_CHUNK } else { IDLE_CHUNK };
    if buffer.capacity() - buffer.len() < chunk / 4 || buffer.capacity() - buffer.len() < missing {
        buffer.reserve(chunk.max(missing));
    }
    match transport.read_buf(buffer).await {
        Ok(0) => Err(MysqlError::Closed),
        Ok(read) => Ok(read),
        Err(source) => Err(MysqlError::Io {
            action: "read from the server",
            source,
        }),
    }
}

/// Nobody watches the lock any more when the monitor has ended.
fn check_lock(changed: Result<(), RecvError>, observed: &watch::Receiver<Observed>) -> Result<(), MysqlError> {
    let lost = match changed {
        Ok(()) => observed.borrow().lock_lost.clone(),
        Err(_) => Some("the task that watches it has ended".to_owned()),
    };
    match lost {
        Some(reason) => Err(MysqlError::LockLost { reason }),
        None => Ok(()),
    }
}

/// ER_MASTER_FATAL_ERROR_READING_BINLOG: everything that keeps the server from streaming, told apart by its text only.
const CANNOT_STREAM: u16 = 1236;

/// What a packet that is no event says.
fn refusal(packet: &Bytes, options: &StreamOptions) -> MysqlError {
    let Some(error) = ServerError::parse(packet) else {
        return match packet.first() {
            // The end of the stream, which a server that is shut down or killed the connection may send.
            Some(0xFE) => MysqlError::Closed,
            _ => MysqlError::Malformed {
                expected: "an event, an error or the stream's end",
            },
        };
    };
    let says = |part: &str| error.message.contains(part);
    // MariaDB has a code of its own for it.
    if says("same server_uuid/server_id") {
        return MysqlError::DuplicateServerId {
            server_id: options.config.server_id,
        };
    }
    if error.code != CANNOT_STREAM {
        return MysqlError::server("stream the binlog", error);
    }
    let purged = says("purged required binary logs")
        || says("binlog files have been purged")
        || says("Could not find first log file name");
    if purged {
        return MysqlError::Purged {
            saved: Box::new(options.from.clone()),
            oldest: options.oldest.to_string(),
            detail: error.message,
        };
    }
    if says("more GTIDs than the source has")
        || says("which is not in the master's binlog")
        || says("even though both a prior and a subsequent sequence number does exist")
    {
        return MysqlError::Ahead {
            saved: Box::new(options.from.clone()),
            missing: error.message,
        };
    }
    MysqlError::server("stream the binlog", error)
}
