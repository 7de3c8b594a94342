//! What `benches/micro` measures of this source: the way from a binlog's events to batches, without a socket. Only with the
//! feature `bench`, which no release has.

use bytes::Bytes;

use crate::config;
use crate::gtid::GtidSet;
use crate::position::{BinlogPlace, MysqlBase, MysqlPosition, ServerIdentity};
use crate::source::LogBatch;
use crate::source::select::Selector;

use super::assemble::{Assembler, AssemblerOptions, BATCH_EVENTS, MAX_PREPARED_BYTES};
use super::error::MysqlError;
use super::held::MAX_HELD_BYTES;
use super::rows::{JsonbError, render_json};

/// The text of a document in MySQL's binary JSON.
///
/// # Errors
/// It is none.
pub fn json_text(document: &[u8], out: &mut Vec<u8>) -> Result<(), JsonbError> {
    render_json(document, out)
}

/// Reads events of a server with GTIDs, of which none was seen before.
///
/// # Errors
/// They are none that a server sends.
pub fn read(
    events: impl IntoIterator<Item = Bytes>,
    config: &config::Mysql,
    mut hand_over: impl FnMut(LogBatch),
) -> Result<(), MysqlError> {
    let start = MysqlPosition {
        server: ServerIdentity { uuid: None, id: 1 },
        base: MysqlBase::Gtids(GtidSet::new()),
        place: BinlogPlace {
            file: "binlog.000001".into(),
            pos: BinlogPlace::FILE_START,
        },
        partial: Vec::new(),
        reread: None,
    };
    let options = AssemblerOptions {
        max_message_bytes: config.max_message_bytes,
        accepted_until: None,
        fold_names: false,
        max_held_bytes: MAX_HELD_BYTES,
        max_prepared_bytes: MAX_PREPARED_BYTES,
        batch_events: BATCH_EVENTS,
    };
    let mut assembler = Assembler::new(Selector::of_mysql(config), start, options);
    for event in events {
        assembler.apply(event)?;
        while assembler.advance()? {}
        while let Some(batch) = assembler.is_full().then(|| assembler.take_batch(false)).flatten() {
            hand_over(batch);
        }
    }
    while let Some(batch) = assembler.take_batch(false) {
        hand_over(batch);
    }
    Ok(())
}
