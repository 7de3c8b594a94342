//! One binlog stream: packets in, batches out.
//!
//! All state lives in [`Stream`], so that a cancelled read loses nothing. Nothing is sent back: the server keeps its binlog
//! by age and size, whatever its readers have done. It sends a heartbeat when it has nothing else to send, which is both
//! its sign of life and how the position moves on in a quiet log.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::AsyncReadExt;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};

use crate::config;
use crate::position::{BinlogPlace, MysqlPosition};
use crate::source::transport::Transport;
use crate::source::{LogBatch, LogChannel};

use super::assemble::Assembler;
use super::binlog::Header;
use super::client::Started;
use super::endpoint::Endpoint;
use super::error::MysqlError;
use super::monitor::Watched;
use super::pace::Pace;
use super::packet::{HEADER_BYTES, MAX_PAYLOAD, payload_len};
use super::progress::{Progress, Reached};
use super::refusal::refusal;
use super::schema;

/// How often it is looked whether the server is silent, or a batch waits for too long.
const TICK: Duration = Duration::from_secs(1);
/// A heartbeat is asked for each second; a server that is silent for so long is taken for dead.
const SILENCE: Duration = Duration::from_secs(30);
/// Before the first event the server looks for where to begin, and says nothing.
const SEARCH: Duration = Duration::from_secs(600);
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
    pace: Pace,
    heard: Instant,
    timer: Interval,
    /// The server has accepted where the stream begins, and operators were told so.
    begun: bool,
    /// What an earlier connection said of its progress may still stand.
    troubled: bool,
    progress: Progress,
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
    pub(super) endpoint: Endpoint,
    pub(super) stall_timeout: Duration,
    pub(super) progress_timeout: Duration,
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
    pub(super) fn new(started: Started, assembler: Assembler, options: &StreamOptions) -> Self {
        let Started { transport, buffer, .. } = started;
        let mut timer = interval(TICK);
        timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            transport,
            buffer,
            assembler,
            message_limit: options.config.max_message_bytes,
            large: None,
            pace: Pace::new(Instant::now()),
            heard: Instant::now(),
            timer,
            begun: false,
            troubled: true,
            progress: Progress::new(options.progress_timeout, Instant::now()),
        }
    }

    /// Streams until stopped, or until the log's end where `options` say so, then waits until the last position is saved.
    pub(super) async fn run(
        mut self,
        log: &mut LogChannel,
        mut watched: Watched,
        options: &StreamOptions,
    ) -> Result<End, MysqlError> {
        let end = 'stream: loop {
            // What stands before an event that cannot be read goes out before that ends the stream.
            let parsed = self.parse(options);
            if !self.begun && self.assembler.has_begun() {
                self.begun = true;
                options.announce(log);
            }
            while let Some(batch) = self.assembler.take_batch(self.pace.is_high()) {
                match self.hand_over(batch, log, &mut watched, options).await? {
                    HandOver::Done => {}
                    HandOver::Stopped => break 'stream End::Stopped,
                    HandOver::GivenUp { batch, error } => {
                        return self.give_way(batch, *error, log, &mut watched).await;
                    }
                }
            }
            let more = match parsed {
                // The next holder of the lock reads by the same id, and the server ends us for it.
                Err(error @ MysqlError::DuplicateServerId { .. }) => {
                    tokio::select! {
                        biased; // a stop ends the question
                        () = log.stop.cancelled() => break End::Stopped,
                        looked = watched.looked_at_anew() => looked?,
                    }
                    return Err(error);
                }
                parsed => parsed?,
            };
            if let Some(table) = self.assembler.unknown_table() {
                let describing = schema::describe(&options.endpoint, &table.name);
                let described = tokio::select! {
                    biased; // a stop ends the question, whose rows will be read again
                    () = log.stop.cancelled() => break End::Stopped,
                    described = describing => described?,
                };
                self.assembler.describe(described)?;
                self.heard = Instant::now();
                self.progress.excuse(self.heard);
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
                () = watched.changed() => {
                    watched.lock().is_sure()?;
                }
                _ = self.timer.tick() => {
                    let silence = self.heard.elapsed();
                    if silence >= if self.begun { SILENCE } else { SEARCH } {
                        return Err(MysqlError::Silent { silence });
                    }
                    self.watch_progress(&watched, log)?;
                }
                read = read(&mut self.transport, &mut self.buffer, &self.pace) => {
                    self.heard = Instant::now();
                    let filled = self.buffer.len() == self.buffer.capacity();
                    self.pace.read(read?, filled, self.heard);
                }
            }
        };
        // Closing the channel tells the relay that nothing more comes.
        log.batches.close();
        // Until the last save, so that no other instance begins before it.
        while log.confirmed.changed().await.is_ok() {}
        Ok(end)
    }

    /// Compares what came with how far the server's log reaches.
    fn watch_progress(&mut self, watched: &Watched, log: &LogChannel) -> Result<(), MysqlError> {
        // Before, the server looks for where to begin.
        if !self.begun {
            return Ok(());
        }
        let reached = Reached {
            place: self.assembler.place().log_place(),
            part: self.buffer.len() + self.large.as_ref().map_or(0, |large| large.rest),
        };
        if let Some(waited) = self.progress.look(Instant::now(), reached, watched.log_end()) {
            let error = MysqlError::NoProgress {
                place: self.assembler.place().clone(),
                waited,
            };
            // Another connection may fare no better: it stands until something comes.
            log.view.trouble(Some(error.to_string()));
            return Err(error);
        }
        if self.troubled && self.progress.is_made() {
            self.troubled = false;
            if log.view.trouble(None) {
                tracing::info!("something comes again");
            }
        }
        Ok(())
    }

    /// Waits for room, for no longer than the stall timeout, and until the lock is known to be ours.
    async fn hand_over(
        &mut self,
        batch: LogBatch,
        log: &mut LogChannel,
        watched: &mut Watched,
        options: &StreamOptions,
    ) -> Result<HandOver, MysqlError> {
        let since = Instant::now();
        let lock = watched.lock();
        let mut batch = Some(batch);
        let error = loop {
            if batch.is_none() {
                // The server's patience began anew with what we read, and ours with it.
                self.heard = Instant::now();
                if since.elapsed() >= TICK {
                    self.progress.excuse(self.heard);
                }
                return Ok(HandOver::Done);
            }
            let sure = lock.is_sure()?;
            tokio::select! {
                biased; // the stop, then the lock, then room, which ends the wait
                () = log.stop.cancelled() => return Ok(HandOver::Stopped),
                () = watched.changed() => {}
                () = lock.hand_over(&mut batch, &mut log.batches), if sure => {}
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
        watched: &mut Watched,
    ) -> Result<End, MysqlError> {
        tracing::warn!(error = %error, "connection closed until there is room");
        log.view.waiting(error.to_string());
        drop(self);
        let lock = watched.lock();
        while batch.is_some() {
            let sure = lock.is_sure()?;
            tokio::select! {
                biased; // a stop ends the wait, and a lost lock: the batch will be read again
                () = log.stop.cancelled() => break,
                () = watched.changed() => {}
                () = lock.hand_over(&mut batch, &mut log.batches), if sure => {}
            }
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
async fn read(transport: &mut Transport, buffer: &mut BytesMut, pace: &Pace) -> Result<usize, MysqlError> {
    let reading = |source| MysqlError::Io {
        action: "read from the server",
        source,
    };
    if pace.gathers() {
        transport.gather().await.map_err(reading)?;
    }
    let missing = payload_len(buffer)
        .map_or(0, |length| (HEADER_BYTES + length).saturating_sub(buffer.len()))
        .min(WHOLE_PACKET);
    let chunk = if pace.is_busy() { BUSY_CHUNK } else { IDLE_CHUNK };
    if buffer.capacity() - buffer.len() < chunk / 4 || buffer.capacity() - buffer.len() < missing {
        buffer.reserve(chunk.max(missing));
    }
    match transport.read_buf(buffer).await {
        Ok(0) => Err(MysqlError::Closed),
        Ok(read) => Ok(read),
        Err(source) => Err(reading(source)),
    }
}
