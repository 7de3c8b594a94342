//! The socket of a replication stream: what comes in gathers here, and the server is told our position over it.
//!
//! Its state lives in [`Link`], so that a cancelled read loses nothing. A status is written whole, never cancelled.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::BytesMut;
use postgres_protocol::message::frontend;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, timeout};

use crate::position::Lsn;
use crate::source::transport::Transport;

use super::client::{Started, reading};
use super::error::PostgresError;
use super::wire::StandbyStatus;

/// How often the server is told our position unasked: well below the 10 s that we ask for as `wal_sender_timeout`, and
/// below any that an administrator would set.
pub(super) const STATUS_INTERVAL: Duration = Duration::from_secs(1);
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// For the server to stop sending and close its side.
const FAREWELL: Duration = Duration::from_secs(2);
/// A read of this size says that more is waiting.
const BACKLOG_READ: usize = 16 << 10;
/// What was sent so long after its commit was waiting, however little of it one read gives: the server can be slower than we
/// are. What waited so long can wait for a moment more.
pub(super) const BACKLOG_LAG: Duration = Duration::from_millis(50);
const IDLE_CHUNK: usize = 16 << 10;
const BUSY_CHUNK: usize = 256 << 10;
/// Memory for a large frame grows with what has come of it, never by its length field alone.
const LARGE_STEP: usize = 4 << 20;

/// See the module's text.
#[derive(Debug)]
pub(super) struct Link {
    transport: Transport,
    /// The server process at the other end.
    pid: i32,
    /// Received and not yet taken.
    pub(super) buffer: BytesMut,
    last_read: usize,
    /// The last read took all that there was room for: more is there, and need not gather.
    filled: bool,
    heard: Instant,
    out: BytesMut,
}

impl Link {
    pub(super) fn new(started: Started) -> Self {
        let Started { transport, buffer, pid } = started;
        Self {
            transport,
            pid,
            buffer,
            last_read: 0,
            filled: false,
            heard: Instant::now(),
            out: BytesMut::with_capacity(64),
        }
    }

    pub(super) fn pid(&self) -> i32 {
        self.pid
    }

    /// How long nothing has come.
    pub(super) fn silence(&self) -> Duration {
        self.heard.elapsed()
    }

    /// Waits for more. `discard` bytes of what comes are thrown away, so that no room is made for them; `lag` is how old what
    /// came last was. Cancel safe.
    pub(super) async fn read(&mut self, discard: u64, lag: Duration) -> Result<(), PostgresError> {
        let busy = self.last_read >= BACKLOG_READ || lag >= BACKLOG_LAG;
        if busy && !self.filled {
            self.transport.gather().await.map_err(reading)?;
        }
        let buffer = &mut self.buffer;
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
        self.last_read = match self.transport.read_buf(buffer).await {
            Ok(0) => return Err(PostgresError::Closed),
            Ok(read) => read,
            Err(source) => return Err(reading(source)),
        };
        self.filled = buffer.len() == buffer.capacity();
        self.heard = Instant::now();
        Ok(())
    }

    /// Tells the server how far we have received and confirmed its log; [`Lsn::ZERO`] says nothing of it.
    pub(super) async fn send_status(
        &mut self,
        received: Lsn,
        confirmed: Lsn,
        reply_requested: bool,
    ) -> Result<(), PostgresError> {
        let mut body = BytesMut::with_capacity(64);
        let status = StandbyStatus {
            written: received,
            flushed: confirmed,
            applied: confirmed,
            clock_us: unix_now_us(),
            reply_requested,
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

    /// Ends the connection. The server frees the slot when it sees it; that it may be gone already is no matter.
    pub(super) async fn close(mut self) {
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
}

/// Tag and whole length of the frame at the buffer's head, once both are here.
pub(super) fn frame_header(buffer: &[u8]) -> Result<Option<(u8, u64)>, PostgresError> {
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
