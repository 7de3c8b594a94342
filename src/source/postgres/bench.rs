//! What `benches/micro` measures of this source: the way from a stream's bytes to batches, without a socket. Only with the
//! feature `bench`, which no release has.

use bytes::{Buf, BytesMut};

use crate::config;
use crate::position::{Lsn, PostgresPosition};
use crate::source::LogBatch;
use crate::source::select::Selector;

use super::assemble::Assembler;
use super::error::PostgresError;
use super::link::frame_header;
use super::stream::BATCH_EVENTS;
use super::wire::ReplicationMessage;

/// Reads a whole stream from LSN 0 on.
///
/// # Errors
/// It is none that a server sends.
pub fn read(
    mut stream: BytesMut,
    config: &config::Postgres,
    mut hand_over: impl FnMut(LogBatch),
) -> Result<(), PostgresError> {
    let start = PostgresPosition {
        system_identifier: 1,
        timeline: 1,
        base: Lsn::ZERO,
        partial: None,
        last_event_end: Lsn::ZERO,
    };
    let mut assembler = Assembler::new("shop", Selector::of_postgres(config), start);
    while let Some((_, total)) = frame_header(&stream)? {
        let length = usize::try_from(total).unwrap_or(usize::MAX).min(stream.len());
        let mut frame = stream.split_to(length).freeze();
        frame.advance(5);
        match ReplicationMessage::parse(frame)? {
            ReplicationMessage::XLogData {
                start,
                clock_us,
                payload,
                ..
            } => assembler.apply(start, clock_us, &payload)?,
            ReplicationMessage::KeepAlive { end, .. } => assembler.keep_alive(end),
        }
        if assembler.event_count() >= BATCH_EVENTS {
            assembler.take_batch().map(&mut hand_over);
        }
    }
    assembler.take_batch().map(hand_over);
    Ok(())
}
