//! From binlog events to change events with positions: the part of the source that knows what is already done.
//!
//! Pure: bytes in, batches out. Its invariants:
//! - A transaction is done when its end was seen: an XID, a COMMIT (a transaction of BLACKHOLE tables alone ends so), or the
//!   one statement that it is made of. Its GTID counts from then on, never from its beginning.
//! - Inside a transaction the rows of each of the pipeline's tables are counted, whatever is made of them; those that were
//!   done before are passed over by count.
//! - What is handed on was committed: a transaction's events wait for its end, as long as they are not too large to, and those
//!   that XA PREPARE ends for the outcome.
//! - A place between two transactions is a position, whoever's they were: an outbox that is quiet moves on with the log.

mod change;
#[cfg(test)]
mod log;
#[cfg(test)]
mod tests;
mod transaction;

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;

use bytes::Bytes;

use crate::event::ChangeEvent;
use crate::gtid::MariadbGtids;
use crate::position::{BinlogPlace, MysqlBase, MysqlPosition, Position};
use crate::skip::SkipCounts;
use crate::source::LogBatch;
use crate::source::select::Selector;

use super::binlog::{
    BinlogError, Event, EventDecoder, EventKind, Header, Heartbeat, HeartbeatPosition, Inner, PayloadReader, RowsEvent,
};
use super::error::MysqlError;
use super::group::Group;
use super::held::{Held, kept_bytes};
use super::rows::Flavor;
use super::tables::{Answer, Tables};
use super::xa::PreparedTransactions;

pub(super) const MAX_PREPARED_BYTES: usize = 256 << 20;
pub(super) const BATCH_EVENTS: usize = 1024;
/// What one read gives at most: several batches wait for the relay at once.
const BATCH_BYTES: usize = 256 << 10;
/// Events up to here can have several rows, whatever the limit for one.
const MANY_ROWS_BYTES: usize = 256 << 10;
/// `max_allowed_packet` of both servers goes no further; some room for the headers.
const MAX_EVENT_BYTES: u64 = (1 << 30) + (1 << 20);

/// Builds batches of change events out of a binlog.
#[derive(Debug)]
pub(super) struct Assembler {
    options: AssemblerOptions,
    decoder: EventDecoder,
    tables: Tables,
    /// What is done, with the transactions that were done in part.
    position: MysqlPosition,
    /// Where reading is, behind the last whole event.
    place: BinlogPlace,
    /// MariaDB's last transactions that were done before, by domain: what comes up to them is read for prepared ones only.
    behind: MariadbGtids,
    group: Option<Group>,
    /// Events of `group`.
    held: Held,
    payload: Option<PayloadReader>,
    prepared: PreparedTransactions,
    /// Rows that wait until information_schema has said what their table's columns are.
    waiting: Option<Waiting>,
    events: VecDeque<ChangeEvent>,
    skipped: SkipCounts,
    /// Bytes of the events at hand, and of everything read for them.
    kept_bytes: usize,
    read_bytes: usize,
    bytes_read: u64,
    /// Whether the position moved since the last batch.
    moved: bool,
    warned: Warned,
}

/// What the assembler is told once.
#[derive(Debug, Clone)]
pub(super) struct AssemblerOptions {
    /// Larger rows are `rejected`.
    pub(super) max_message_bytes: u64,
    /// The operator accepted what cannot be read of the log up to here.
    pub(super) accepted_until: Option<BinlogPlace>,
    /// The server keeps names in lower case and takes them in any.
    pub(super) fold_names: bool,
    /// How much of one transaction waits for its end.
    pub(super) max_held_bytes: usize,
    /// How much prepared XA transactions may hold, all together.
    pub(super) max_prepared_bytes: usize,
    /// The most events in a batch.
    pub(super) batch_events: usize,
}

/// A table to ask information_schema about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UnknownTable {
    pub(super) id: u64,
    /// `schema.table`
    pub(super) name: Arc<str>,
}

#[derive(Debug)]
struct Waiting {
    table: UnknownTable,
    rows: RowsEvent,
}

/// What was told once and need not be told again.
#[derive(Debug, Default)]
struct Warned {
    statement_form: bool,
    unknown_events: Vec<u8>,
    xa: bool,
}

impl Assembler {
    pub(super) fn new(selector: Selector, position: MysqlPosition, options: AssemblerOptions) -> Self {
        let (_, begin) = position.begin();
        let place = begin.clone();
        let behind = match (&position.base, &position.reread) {
            (MysqlBase::Mariadb(base), Some(reread)) => behind(base, &reread.base),
            _ => MariadbGtids::new(),
        };
        Self {
            decoder: EventDecoder::new(event_limit(options.max_message_bytes)),
            tables: Tables::new(selector, options.fold_names),
            place,
            behind,
            position,
            options,
            group: None,
            held: Held::default(),
            payload: None,
            prepared: PreparedTransactions::default(),
            waiting: None,
            events: VecDeque::new(),
            skipped: SkipCounts::default(),
            kept_bytes: 0,
            read_bytes: 0,
            bytes_read: 0,
            moved: false,
            warned: Warned::default(),
        }
    }

    /// The place to go on from after everything handed out and still at hand.
    pub(super) fn position(&self) -> MysqlPosition {
        let mut position = self.position.clone();
        if let Some(group) = self.group.as_ref().filter(|_| self.held.is_handed_on())
            && let Some(partial) = group.partial()
        {
            position
                .partial
                .retain(|known| known.transaction != partial.transaction);
            position.partial.push(partial);
        }
        // GTID sets leave out what is prepared, so that the server sends it again. Without them it must be read again, and
        // while reading is behind the base what was prepared then may still be to come.
        if !matches!(position.base, MysqlBase::Gtids(_)) && !self.is_behind() {
            position.reread = self.prepared.oldest().map(|oldest| Box::new(oldest.from.clone()));
        }
        position
    }

    /// Whether the server has accepted where reading begins, and said how its events are to be read.
    pub(super) fn has_begun(&self) -> bool {
        self.decoder.has_format()
    }

    /// Bytes of the log that were read so far, as they are when decompressed.
    pub(super) fn bytes_read(&self) -> u64 {
        self.bytes_read
    }

    /// Where reading is.
    pub(super) fn place(&self) -> &BinlogPlace {
        &self.place
    }

    /// Whether everything that was read is done as far as it is known, between two transactions.
    pub(super) fn is_between(&self) -> bool {
        self.group.is_none() && self.payload.is_none() && self.waiting.is_none()
    }

    /// Whether a batch must be taken before more is read.
    pub(super) fn is_full(&self) -> bool {
        self.events.len() >= self.options.batch_events || self.kept_bytes >= BATCH_BYTES
    }

    /// What was gathered since the last batch, if anything was. Of a large transaction a part, with the place inside it.
    /// `more_follows`: so much comes that the next batch will be there soon.
    pub(super) fn take_batch(&mut self, more_follows: bool) -> Option<LogBatch> {
        if !self.moved {
            return None;
        }
        let (count, bytes) = self.next_batch();
        let mut events: Vec<ChangeEvent> = self.events.drain(..count).collect();
        // A few events out of much that was passed over would pin all of it for as long as they are in flight.
        if self.kept_bytes.saturating_mul(4) < self.read_bytes {
            events.iter_mut().for_each(ChangeEvent::detach);
        }
        self.kept_bytes = self.kept_bytes.saturating_sub(bytes);
        if let (false, Some(last)) = (self.events.is_empty(), events.last()) {
            let end = Position::Mysql(Box::new(self.position.clone())).after(&last.position);
            return Some(LogBatch {
                events,
                skipped: SkipCounts::default(),
                end,
                more_follows: true,
            });
        }
        self.moved = false;
        self.kept_bytes = 0;
        self.read_bytes = 0;
        Some(LogBatch {
            events,
            skipped: mem::take(&mut self.skipped),
            end: Position::Mysql(Box::new(self.position())),
            more_follows,
        })
    }

    /// How many events the next batch has, and the bytes that they keep.
    fn next_batch(&self) -> (usize, usize) {
        let mut bytes = 0;
        for (count, event) in self.events.iter().enumerate() {
            if count >= self.options.batch_events || bytes >= BATCH_BYTES {
                return (count, bytes);
            }
            bytes += kept_bytes(event);
        }
        (self.events.len(), bytes)
    }

    /// A table that must be described before anything more is applied.
    pub(super) fn unknown_table(&self) -> Option<&UnknownTable> {
        self.waiting.as_ref().map(|waiting| &waiting.table)
    }

    /// Takes what information_schema says, and the rows that waited for it.
    pub(super) fn describe(&mut self, answer: Answer) -> Result<(), MysqlError> {
        let Some(Waiting { table: unknown, rows }) = self.waiting.take() else {
            return Ok(());
        };
        self.tables.describe_from_schema(unknown.id, answer);
        self.rows(rows)
    }

    /// Goes on with a compressed transaction that is at hand. False: none is.
    pub(super) fn advance(&mut self) -> Result<bool, MysqlError> {
        let Some(payload) = &mut self.payload else {
            return Ok(false);
        };
        let inner = payload.next().map_err(|source| MysqlError::Binlog {
            place: self.place.clone(),
            source: Box::new(source),
        })?;
        match inner {
            Some(Inner::Event(event)) => {
                self.read(event.len());
                let (header, event) = self
                    .decoder
                    .decode_inner(event)
                    .map_err(|source| self.undecodable(source))?;
                self.event(&header, event)?;
            }
            Some(Inner::Oversized(oversized)) => {
                let header = oversized.header;
                let size = u64::from(header.size);
                self.read(header.event_len());
                let head = self.decoder.rows_head(&header, &oversized.head);
                match head.map_err(|source| self.undecodable(source))? {
                    Some(head) => self.oversized(&head, size)?,
                    // A comment, which is nobody's.
                    None if header.kind == EventKind::ROWS_QUERY => {}
                    None => {
                        return Err(self.undecodable(BinlogError::Expands {
                            kind: header.kind,
                            size,
                            limit: event_limit(self.options.max_message_bytes),
                            rows: None,
                        }));
                    }
                }
            }
            None => {
                self.payload = None;
                if self.group.is_some() {
                    return Err(self.unexpected("the end of a compressed transaction", "its XID or COMMIT before it"));
                }
            }
        }
        Ok(true)
    }

    /// Takes one event as the server sent it.
    ///
    /// # Errors
    /// What cannot be decoded or does not fit the log's order: nothing is passed over.
    pub(super) fn apply(&mut self, bytes: Bytes) -> Result<(), MysqlError> {
        self.read(bytes.len());
        let header = Header::parse(&bytes).map_err(|source| self.undecodable(source))?;
        let (header, event) = match self.decoder.decode(bytes) {
            Ok(decoded) => decoded,
            // Compressed rows whose plain form is over the limit.
            Err(BinlogError::Expands {
                rows: Some(head), size, ..
            }) => {
                self.move_place(&header);
                return self.oversized(&head, size);
            }
            Err(source) => return Err(self.undecodable(source)),
        };
        self.move_place(&header);
        self.event(&header, event)
    }

    /// Whether a large event is wanted, by its first bytes. One that is not is taken as far as it needs to be: rows over the
    /// limit, and comments over `max_comment` bytes.
    ///
    /// The server puts more than one row into an event only up to `binlog_row_event_max_size`, which is below the limit, so
    /// rows over it are one row.
    pub(super) fn wants(&mut self, head: &Bytes, max_comment: u64) -> Result<bool, MysqlError> {
        let header = Header::parse(head).map_err(|source| self.undecodable(source))?;
        let size = u64::from(header.size);
        let comment = matches!(header.kind, EventKind::ROWS_QUERY | EventKind::ANNOTATE_ROWS);
        if comment && size > max_comment {
            self.move_place(&header);
            return Ok(false);
        }
        if size > event_limit(self.options.max_message_bytes) as u64 {
            let data = head.slice(Header::LEN..);
            let rows = self.decoder.rows_head(&header, &data);
            if let Some(rows) = rows.map_err(|source| self.undecodable(source))? {
                self.move_place(&header);
                self.oversized(&rows, size)?;
                return Ok(false);
            }
        }
        if size > MAX_EVENT_BYTES {
            return Err(self.unexpected("an event of more than 1 GiB", "no more than a server can write"));
        }
        Ok(true)
    }

    /// The server has nothing more to send.
    fn heartbeat(&mut self, heartbeat: Heartbeat) -> Result<(), MysqlError> {
        if !self.is_between() {
            return Ok(());
        }
        // At the log's end everything up to the base was seen; or the base is in another server's log.
        if let Some(missing) = self.behind.iter().next() {
            return Err(MysqlError::Ahead {
                saved: Box::new(self.position()),
                missing: missing.to_string(),
            });
        }
        if *self.place.file != *heartbeat.file {
            self.place = BinlogPlace {
                file: Arc::from(heartbeat.file),
                pos: BinlogPlace::FILE_START,
            };
        }
        self.place.pos = match heartbeat.position {
            HeartbeatPosition::Exact(position) => position,
            HeartbeatPosition::Low32(low) => whole_position(self.place.pos, low),
        };
        self.settle();
        Ok(())
    }

    fn read(&mut self, bytes: usize) {
        self.read_bytes = self.read_bytes.saturating_add(bytes);
        self.bytes_read = self.bytes_read.wrapping_add(bytes as u64);
    }

    fn move_place(&mut self, header: &Header) {
        if header.is_made_up() {
            return;
        }
        if header.next_position != 0 {
            self.place.pos = whole_position(self.place.pos, header.next_position);
        } else if self.group.is_some() {
            // MariaDB writes the events of a transaction before it knows where they will stand.
            self.place.pos += u64::from(header.size);
        }
    }

    fn event(&mut self, header: &Header, event: Event) -> Result<(), MysqlError> {
        match event {
            Event::TableMap(map) => {
                let place = self.place.clone();
                let described = self.tables.describe(map.table_id, &map.body);
                described.map_err(|source| MysqlError::TableMap { place, source })
            }
            Event::Rows(rows) => self.rows(rows),
            Event::Gtid(gtid) => self.begin_mysql(header, &gtid),
            Event::MariadbGtid(gtid) => self.begin_mariadb(header, gtid),
            Event::Query(query) => self.query(&query.schema, &query.text),
            Event::Xid(_) => {
                let group = self.open_group("XID")?;
                self.end(group);
                Ok(())
            }
            Event::XaPrepare(prepare) => self.xa_prepare(prepare),
            Event::TransactionPayload(payload) => {
                let limit = event_limit(self.options.max_message_bytes);
                let reader = PayloadReader::new(payload, limit).map_err(|source| self.undecodable(source))?;
                self.payload = Some(reader);
                Ok(())
            }
            Event::Rotate(rotate) => {
                self.place = BinlogPlace {
                    file: Arc::from(rotate.file),
                    pos: rotate.position,
                };
                self.settle();
                Ok(())
            }
            Event::FormatDescription(format) => {
                self.tables
                    .begin_file(Flavor::of(&format.server_version, format.mariadb));
                // A server that stopped in the middle of writing a transaction begins another file: what it had written of
                // it was never committed.
                if !header.is_made_up() && header.next_position != 0 {
                    self.abandon();
                }
                self.settle();
                Ok(())
            }
            Event::Heartbeat(heartbeat) => self.heartbeat(heartbeat),
            Event::Incident(incident) => {
                if self.is_accepted() {
                    tracing::warn!(place = %self.place, message = incident.message, "an incident in the binlog was accepted by the operator");
                    if let Some(group) = self.group.take() {
                        self.end(group);
                    }
                    return Ok(());
                }
                Err(MysqlError::Incident {
                    place: self.place.clone(),
                    message: incident.message,
                })
            }
            Event::Unknown { ignorable } => self.unknown(header.kind, ignorable),
            Event::PreviousGtids(_) | Event::MariadbGtidList(_) | Event::StartEncryption | Event::Informational => {
                self.settle();
                Ok(())
            }
        }
    }

    /// Whether the operator accepted what the log holds here.
    fn is_accepted(&self) -> bool {
        let until = self.options.accepted_until.as_ref();
        until.is_some_and(|until| self.place.log_place() <= until.log_place())
    }

    /// Whether what is read now was done before, as far as it was decided then.
    fn is_behind(&self) -> bool {
        match &self.position.base {
            MysqlBase::File(_) => self.is_before(&self.place),
            MysqlBase::Mariadb(_) => !self.behind.is_empty(),
            MysqlBase::Gtids(_) => false,
        }
    }

    fn is_before(&self, place: &BinlogPlace) -> bool {
        place.log_place() < self.position.place.log_place()
    }

    fn undecodable(&self, source: BinlogError) -> MysqlError {
        MysqlError::Binlog {
            place: self.place.clone(),
            source: Box::new(source),
        }
    }

    fn unexpected(&self, found: &str, expected: &'static str) -> MysqlError {
        MysqlError::Unexpected {
            found: found.to_owned(),
            place: self.place.clone(),
            expected,
        }
    }
}

/// Up to which size events are decoded whole, and their rows compared with the limit one by one. Above it an event with
/// rows has one row only.
pub(super) fn event_limit(max_message_bytes: u64) -> usize {
    usize::try_from(max_message_bytes)
        .unwrap_or(usize::MAX)
        .max(MANY_ROWS_BYTES)
}

/// The header's clock, in microseconds since 1970.
fn seconds(header: &Header) -> i64 {
    i64::from(header.timestamp) * 1_000_000
}

/// Of each domain in which reading begins before the base, the base's transaction.
fn behind(base: &MariadbGtids, begin: &MysqlBase) -> MariadbGtids {
    let mut behind = MariadbGtids::new();
    if let MysqlBase::Mariadb(begin) = begin {
        for gtid in base.iter().filter(|gtid| begin.get(gtid.domain) != Some(*gtid)) {
            behind.insert(gtid);
        }
    }
    behind
}

/// The whole of a position of which events have the low 32 bits, in a file where positions only grow.
fn whole_position(last: u64, low: u32) -> u64 {
    const HIGH: u64 = !(u32::MAX as u64);
    let position = (last & HIGH) | u64::from(low);
    // Far below the last one: another 4 GiB are full.
    if position + (1 << 31) < last {
        position + (1 << 32)
    } else {
        position
    }
}
