//! From binlog events to change events with positions: the part of the source that knows what is already done.
//!
//! Pure: bytes in, batches out. Its invariants:
//! - A transaction is done when its end was seen: an XID, a COMMIT (a transaction of BLACKHOLE tables alone ends so), or the
//!   one statement that it is made of. Its GTID counts from then on, never from its beginning.
//! - Inside a transaction the rows of each of the pipeline's tables are counted, whatever is made of them; those that were
//!   done before are passed over by count.
//! - Rows that XA PREPARE ends wait for the outcome: what is handed on was committed.
//! - A place between two transactions is a position, whoever's they were: an outbox that is quiet moves on with the log.

use std::mem;
use std::sync::Arc;

use bytes::Bytes;

use crate::event::{Change, ChangeEvent, Operation, Oversized, RowChange, Selection};
use crate::gtid::MariadbGtids;
use crate::position::{
    BinlogPlace, EventPosition, MysqlBase, MysqlPosition, MysqlTransaction, Position, RereadFrom, TransactionId,
};
use crate::row::Table;
use crate::skip::{SkipCounts, SkipReason};
use crate::source::LogBatch;
use crate::source::select::Selector;

use super::binlog::{
    BinlogError, Event, EventDecoder, EventKind, GtidEvent, Header, HeartbeatPosition, Inner, MariadbGtidEvent,
    PayloadReader, RowsEvent, RowsHead, RowsKind,
};
use super::error::MysqlError;
use super::group::{Beginning, Group};
use super::rows::{DescribedTable, Flavor, RowError, Rows, count_rows};
use super::statement::{Statement, TableName, Verb};
use super::tables::{Missing, PlanFailure, Tables};
use super::xa::{Prepared, PreparedTransactions};
use super::xid::{XaPrepareEvent, Xid};

/// Bytes of events that prepared XA transactions may hold, all together.
const MAX_PREPARED_BYTES: usize = 256 << 20;

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
    payload: Option<PayloadReader>,
    prepared: PreparedTransactions,
    /// Rows that wait until information_schema has said what their table's columns are.
    waiting: Option<Waiting>,
    events: Vec<ChangeEvent>,
    skipped: SkipCounts,
    /// Bytes of the events at hand, and of everything read for them.
    kept_bytes: usize,
    read_bytes: usize,
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
        let flavor = match position.base {
            MysqlBase::Mariadb(_) => Flavor::MariaDb,
            MysqlBase::Gtids(_) | MysqlBase::File(_) => Flavor::MySql,
        };
        let limit = usize::try_from(options.max_message_bytes).unwrap_or(usize::MAX);
        Self {
            decoder: EventDecoder::new(limit),
            tables: Tables::new(selector, flavor),
            place,
            behind,
            position,
            options,
            group: None,
            payload: None,
            prepared: PreparedTransactions::default(),
            waiting: None,
            events: Vec::new(),
            skipped: SkipCounts::default(),
            kept_bytes: 0,
            read_bytes: 0,
            // The first batch tells where the stream begins, so that it is saved before anything else.
            moved: true,
            warned: Warned::default(),
        }
    }

    /// The place to go on from after everything handed out and still at hand.
    pub(super) fn position(&self) -> MysqlPosition {
        let mut position = self.position.clone();
        if let Some(group) = self.group.as_ref().filter(|group| !group.done && group.xa.is_none())
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

    /// Where reading is.
    pub(super) fn place(&self) -> &BinlogPlace {
        &self.place
    }

    /// Whether everything that was read is done as far as it is known, between two transactions.
    pub(super) fn is_between(&self) -> bool {
        self.group.is_none() && self.payload.is_none() && self.waiting.is_none()
    }

    pub(super) fn event_count(&self) -> usize {
        self.events.len()
    }

    pub(super) fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }

    /// What was gathered since the last batch, if anything was.
    pub(super) fn take_batch(&mut self) -> Option<LogBatch> {
        if !mem::take(&mut self.moved) {
            return None;
        }
        let mut events = mem::take(&mut self.events);
        // A few events out of much that was passed over would pin all of it for as long as they are in flight.
        if self.kept_bytes.saturating_mul(4) < self.read_bytes {
            events.iter_mut().for_each(ChangeEvent::detach);
        }
        self.kept_bytes = 0;
        self.read_bytes = 0;
        Some(LogBatch {
            events,
            skipped: mem::take(&mut self.skipped),
            end: Position::Mysql(self.position()),
        })
    }

    /// A table that must be described before anything more is applied.
    pub(super) fn unknown_table(&self) -> Option<&UnknownTable> {
        self.waiting.as_ref().map(|waiting| &waiting.table)
    }

    /// Takes what information_schema says, and the rows that waited for it.
    pub(super) fn describe(&mut self, table: Option<DescribedTable>) -> Result<(), MysqlError> {
        let Some(Waiting { table: unknown, rows }) = self.waiting.take() else {
            return Ok(());
        };
        self.tables.describe_from_schema(unknown.id, table);
        self.rows(rows)
    }

    /// Goes on with a compressed transaction that is at hand. False: none is.
    pub(super) fn advance(&mut self) -> Result<bool, MysqlError> {
        let Some(payload) = &mut self.payload else {
            return Ok(false);
        };
        let inner = payload.next().map_err(|source| MysqlError::Binlog {
            place: self.place.clone(),
            source,
        })?;
        match inner {
            Some(Inner::Event(event)) => {
                self.read_bytes += event.len();
                let (header, event) = self
                    .decoder
                    .decode_inner(event)
                    .map_err(|source| self.undecodable(source))?;
                self.event(&header, event)?;
            }
            Some(Inner::Oversized(oversized)) => {
                let size = u64::from(oversized.header.size);
                let head = self.decoder.rows_head(&oversized.header, &oversized.head);
                // Comments can be as large as statements, and are nobody's.
                if let Some(head) = head.map_err(|source| self.undecodable(source))? {
                    self.oversized(&head, size)?;
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
        self.read_bytes += bytes.len();
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
    /// The server puts more than one row into an event only below `binlog_row_event_max_size`, so rows over the limit are
    /// one row.
    pub(super) fn wants(&mut self, head: &Bytes, max_comment: u64) -> Result<bool, MysqlError> {
        let header = Header::parse(head).map_err(|source| self.undecodable(source))?;
        let size = u64::from(header.size);
        let comment = matches!(header.kind, EventKind::ROWS_QUERY | EventKind::ANNOTATE_ROWS);
        if comment && size > max_comment {
            self.move_place(&header);
            return Ok(false);
        }
        if size > self.options.max_message_bytes {
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
                let limit = usize::try_from(self.options.max_message_bytes).unwrap_or(usize::MAX);
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
            Event::FormatDescription(_) => {
                self.tables.clear();
                // A server that stopped in the middle of writing a transaction begins another file: what it had written of
                // it was never committed.
                if !header.is_made_up() && header.next_position != 0 {
                    self.abandon();
                }
                self.settle();
                Ok(())
            }
            Event::Heartbeat(heartbeat) => {
                if self.is_between() {
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
                }
                Ok(())
            }
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

    fn begin_mysql(&mut self, header: &Header, event: &GtidEvent) -> Result<(), MysqlError> {
        let start = self.start_of(header);
        let id = match event.gtid {
            Some(gtid) => TransactionId::Gtid(gtid),
            None => TransactionId::Place {
                file: Arc::clone(&start.file),
                pos: start.pos,
            },
        };
        let done = match (&self.position.base, event.gtid) {
            (MysqlBase::Gtids(set), Some(gtid)) => set.contains(&gtid),
            (MysqlBase::Gtids(_), None) => {
                return Err(self.unexpected("a transaction without a GTID", "gtid_mode=ON throughout"));
            }
            (MysqlBase::File(_), _) => self.is_before(&start),
            (MysqlBase::Mariadb(_), _) => return Err(self.unexpected("a GTID of MySQL", "one of MariaDB")),
        };
        let commit_time_us = event
            .original_commit_time_us
            .or(event.commit_time_us)
            .unwrap_or_else(|| seconds(header));
        self.begin(Beginning {
            id,
            server_id: header.server_id,
            commit_time_us,
            start,
            standalone: false,
            began: false,
            done,
            xa: None,
        });
        Ok(())
    }

    fn begin_mariadb(&mut self, header: &Header, event: MariadbGtidEvent) -> Result<(), MysqlError> {
        let gtid = event.gtid;
        let start = self.start_of(header);
        let done = match &self.position.base {
            MysqlBase::Mariadb(_) => self.behind.get(gtid.domain).is_some(),
            MysqlBase::File(_) => self.is_before(&start),
            MysqlBase::Gtids(_) => return Err(self.unexpected("a GTID of MariaDB", "one of MySQL")),
        };
        self.begin(Beginning {
            id: TransactionId::Mariadb(gtid),
            server_id: header.server_id,
            commit_time_us: seconds(header),
            start,
            standalone: event.flags.is_standalone(),
            began: !event.flags.is_standalone(),
            done,
            xa: event.xid.filter(|_| event.flags.is_prepared_xa()),
        });
        Ok(())
    }

    fn begin(&mut self, beginning: Beginning) {
        self.abandon();
        self.group = Some(Group::new(beginning, &self.position));
    }

    /// Gives up a transaction that has no end.
    fn abandon(&mut self) {
        if let Some(group) = self.group.take() {
            tracing::warn!(
                transaction = %group.id,
                place = %self.place,
                "the server did not finish writing this transaction to its binlog: it was not committed"
            );
        }
    }

    fn query(&mut self, schema: &str, text: &[u8]) -> Result<(), MysqlError> {
        let place = self.place.clone();
        let statement = Statement::parse(text, schema).map_err(|source| MysqlError::Xid { place, source })?;
        let mut group = self.open_group("a statement")?;
        let ends = match statement {
            Statement::Begin => {
                group.began = true;
                false
            }
            Statement::XaStart(xid) => {
                group.began = true;
                group.xa = Some(xid);
                false
            }
            Statement::XaCommit { xid, .. } => {
                self.decide(group, &xid, true);
                return Ok(());
            }
            Statement::XaRollback(xid) => {
                self.decide(group, &xid, false);
                return Ok(());
            }
            Statement::Savepoint | Statement::XaEnd(_) => false,
            // A transaction that ends by ROLLBACK is written only for changes that it could not undo.
            Statement::Commit | Statement::Rollback => true,
            Statement::Change { verb, target } => {
                self.statement_form(&mut group, verb, target.as_ref())?;
                group.is_alone()
            }
            Statement::Truncate { target } => {
                if let Some(table) = target {
                    self.truncate(&mut group, &table)?;
                }
                group.is_alone()
            }
            Statement::XaPrepare(_) | Statement::Other => group.is_alone(),
        };
        if ends {
            self.end(group);
        } else {
            self.group = Some(group);
        }
        Ok(())
    }

    /// The transaction is committed.
    fn end(&mut self, mut group: Group) {
        self.hand_on(mem::take(&mut group.events));
        self.finish(&group.id, group.done);
    }

    fn open_group(&mut self, found: &str) -> Result<Group, MysqlError> {
        match self.group.take() {
            Some(group) => Ok(group),
            None => Err(self.unexpected(found, "a GTID before it")),
        }
    }

    /// The transaction is done as a whole.
    fn finish(&mut self, id: &TransactionId, done_before: bool) {
        self.position.partial.retain(|partial| partial.transaction != *id);
        self.pass(id, done_before);
    }

    /// Reading is past the transaction, whether it is done or waits for its outcome.
    fn pass(&mut self, id: &TransactionId, done_before: bool) {
        match (&mut self.position.base, id) {
            (MysqlBase::Gtids(set), TransactionId::Gtid(gtid)) => set.insert(*gtid),
            (MysqlBase::Mariadb(_), TransactionId::Mariadb(gtid)) if done_before => {
                if self.behind.get(gtid.domain) == Some(*gtid) {
                    self.behind.remove(gtid.domain);
                }
            }
            (MysqlBase::Mariadb(base), TransactionId::Mariadb(gtid)) => base.insert(*gtid),
            _ => {}
        }
        self.settle();
    }

    /// Between two transactions the place is a position.
    fn settle(&mut self) {
        if self.group.is_some() {
            return;
        }
        if !self.is_behind() {
            if self.position.place != self.place {
                self.position.place = self.place.clone();
            }
            self.moved = true;
        }
    }

    fn xa_prepare(&mut self, prepare: XaPrepareEvent) -> Result<(), MysqlError> {
        let group = self.open_group("XA PREPARE")?;
        if prepare.one_phase {
            self.end(group);
            return Ok(());
        }
        let before = match &self.position.reread {
            // What is read again counts from where that began.
            Some(reread) if group.done => reread.as_ref().clone(),
            _ => RereadFrom {
                base: self.position.base.clone(),
                place: self.position.place.clone(),
            },
        };
        if !group.has_rows() {
            self.finish(&group.id, group.done);
            return Ok(());
        }
        if !mem::replace(&mut self.warned.xa, true) {
            tracing::info!(xid = %prepare.xid, "an XA transaction with events is prepared; they wait for XA COMMIT");
        }
        // A GTID set leaves it out until then, so that the server sends it again.
        if !matches!(self.position.base, MysqlBase::Gtids(_)) {
            self.pass(&group.id, group.done);
        } else {
            self.settle();
        }
        self.prepared.hold(Prepared {
            xid: prepare.xid,
            id: group.id,
            server_id: group.server_id,
            file: group.start.file,
            events: group.events,
            bytes: group.bytes,
            from: before,
        });
        Ok(())
    }

    /// XA COMMIT or XA ROLLBACK of a transaction that was prepared before.
    fn decide(&mut self, group: Group, xid: &Xid, committed: bool) {
        // While it is among the prepared ones: behind its first event the rest must be read again.
        let before = self.position();
        if let Some(mut prepared) = self.prepared.decide(xid) {
            if committed && !group.done {
                let transaction = Arc::new(MysqlTransaction {
                    id: prepared.id.clone(),
                    server_id: prepared.server_id,
                    file: prepared.file,
                    before,
                });
                for event in &mut prepared.events {
                    event.commit_time_us = group.commit_time_us;
                    if let EventPosition::Mysql(position) = &mut event.position {
                        position.transaction = Arc::clone(&transaction);
                    }
                }
                self.hand_on(prepared.events);
            }
            self.position
                .partial
                .retain(|partial| partial.transaction != prepared.id);
            if let (MysqlBase::Gtids(set), TransactionId::Gtid(gtid)) = (&mut self.position.base, &prepared.id) {
                set.insert(*gtid);
            }
        }
        self.finish(&group.id, group.done);
    }

    /// Events whose transaction turned out to be committed.
    fn hand_on(&mut self, events: Vec<ChangeEvent>) {
        if events.is_empty() {
            return;
        }
        self.kept_bytes += events.iter().map(ChangeEvent::byte_len).sum::<usize>();
        self.events.extend(events);
        self.moved = true;
    }

    fn rows(&mut self, rows: RowsEvent) -> Result<(), MysqlError> {
        let mut group = self.open_group("rows")?;
        let result = self.rows_of(&mut group, rows);
        self.group = Some(group);
        result
    }

    fn rows_of(&mut self, group: &mut Group, rows: RowsEvent) -> Result<(), MysqlError> {
        // Of what was done before only prepared transactions are still of interest; and a statement that touched nothing
        // ends with rows of no table.
        if (group.done && group.xa.is_none()) || rows.head.is_dummy() {
            return Ok(());
        }
        let Some(described) = self.tables.get(rows.head.table_id) else {
            return Err(self.unexpected("rows", "the description of their table before them"));
        };
        let Some(selection) = described.selection else {
            self.skipped.add(SkipReason::UnlistedTable, 1);
            return Ok(());
        };
        let name = Arc::clone(&described.name);
        let plan = match self.tables.plan(rows.head.table_id) {
            Ok(plan) => plan,
            Err(Missing::Description) => {
                let table = UnknownTable {
                    id: rows.head.table_id,
                    name,
                };
                self.waiting = Some(Waiting { table, rows });
                return Ok(());
            }
            Err(Missing::Failed(failure)) => return Err(self.unplanned(&name, failure)),
        };
        let place = self.place.clone();
        let transaction = group.id.clone();
        let failed = |source: RowError| MysqlError::Row {
            table: name.to_string(),
            transaction: transaction.clone(),
            place: place.clone(),
            source: Box::new(source),
        };
        let operation = operation(rows.head.kind);
        if let (Selection::Outbox, Some(reason)) = (selection, SkipReason::of_outbox_row(operation)) {
            let count = count_rows(&plan, rows.head.kind, &rows.body).map_err(failed)?;
            self.skip_rows(group, &name, count, reason);
            return Ok(());
        }
        let mut walk = Rows::new(&plan, rows.head.kind, rows.body).map_err(failed)?;
        let ahead = walk.skip_rows(group.rows_done_ahead(&name)).map_err(failed)?;
        group.count(&name, ahead);
        let mut index = u32::try_from(ahead).unwrap_or(u32::MAX);
        for row in walk {
            let row = row.map_err(failed)?;
            let change = Change::Row(RowChange {
                operation,
                table: Arc::clone(plan.table()),
                before: row.before,
                after: row.after,
            });
            self.push(group, &name, selection, index, change)?;
            index = index.saturating_add(1);
        }
        Ok(())
    }

    /// Counts rows of which no events are made.
    fn skip_rows(&mut self, group: &mut Group, table: &Arc<str>, count: u64, reason: SkipReason) {
        let ahead = group.rows_done_ahead(table).min(count);
        group.count(table, count);
        self.skipped.add(reason, count - ahead);
        self.moved = true;
    }

    fn push(
        &mut self,
        group: &mut Group,
        table: &Arc<str>,
        selection: Selection,
        index: u32,
        change: Change,
    ) -> Result<(), MysqlError> {
        let row = group.count(table, 1);
        let Some(position) = group.position_of(row, self.place.pos, index, || self.position()) else {
            return Ok(());
        };
        let event = ChangeEvent {
            position,
            commit_time_us: group.commit_time_us,
            selection,
            change,
        };
        let bytes = event.byte_len();
        if let Some(xid) = &group.xa {
            group.bytes += bytes;
            if self.prepared.bytes() + group.bytes > MAX_PREPARED_BYTES {
                return Err(MysqlError::XaTooLarge {
                    xid: xid.to_string(),
                    limit: MAX_PREPARED_BYTES,
                });
            }
            group.events.push(event);
            return Ok(());
        }
        self.kept_bytes += bytes;
        self.events.push(event);
        self.moved = true;
        Ok(())
    }

    /// A row that is over the limit, of which only this much is known.
    fn oversized(&mut self, head: &RowsHead, bytes: u64) -> Result<(), MysqlError> {
        let mut group = self.open_group("rows")?;
        let result = self.oversized_of(&mut group, head, bytes);
        self.group = Some(group);
        result
    }

    fn oversized_of(&mut self, group: &mut Group, head: &RowsHead, bytes: u64) -> Result<(), MysqlError> {
        if group.done && group.xa.is_none() {
            return Ok(());
        }
        let Some(described) = self.tables.get(head.table_id) else {
            return Err(self.unexpected("rows", "the description of their table before them"));
        };
        let name = Arc::clone(&described.name);
        let Some(selection) = described.selection else {
            self.skipped.add(SkipReason::UnlistedTable, 1);
            return Ok(());
        };
        if let (Selection::Outbox, Some(reason)) = (selection, SkipReason::of_outbox_row(operation(head.kind))) {
            self.skip_rows(group, &name, 1, reason);
            return Ok(());
        }
        if group.rows_done_ahead(&name) > 0 {
            group.count(&name, 1);
            return Ok(());
        }
        let oversized = Oversized {
            name: name.to_string(),
            bytes,
            limit: self.options.max_message_bytes,
        };
        self.push(group, &name, selection, 0, Change::Oversized(oversized))
    }

    /// A change whose rows the log does not hold.
    fn statement_form(&mut self, group: &mut Group, verb: Verb, target: Option<&TableName>) -> Result<(), MysqlError> {
        if group.done {
            return Ok(());
        }
        let selected = target.and_then(|table| Some((table, self.tables.selection(&table.schema, &table.name)?)));
        match (selected, verb) {
            // Only INSERTs are an outbox's events.
            (Some((_, Selection::Outbox)), Verb::Update) => self.skipped.add(SkipReason::OutboxUpdate, 1),
            (Some((_, Selection::Outbox)), Verb::Delete) => self.skipped.add(SkipReason::OutboxDelete, 1),
            (Some((table, _)), verb) if !self.is_accepted() => {
                return Err(MysqlError::StatementForm {
                    verb: verb.to_string(),
                    table: format!("{}.{}", table.schema, table.name),
                    place: self.place.clone(),
                    transaction: group.id.clone(),
                });
            }
            _ => {
                if !mem::replace(&mut self.warned.statement_form, true) {
                    tracing::warn!(
                        transaction = %group.id,
                        place = %self.place,
                        "a change was written to the binlog as a statement: if it reached a table of this pipeline, by a trigger or a function, its rows are not published; set binlog_format = ROW in all of the application's connections"
                    );
                }
                self.skipped.add(SkipReason::StatementForm, 1);
            }
        }
        self.moved = true;
        Ok(())
    }

    /// TRUNCATE comes as a statement always.
    fn truncate(&mut self, group: &mut Group, table: &TableName) -> Result<(), MysqlError> {
        let selection = self
            .tables
            .selection(&table.schema, &table.name)
            .filter(|_| !group.done);
        let Some(selection) = selection else {
            return Ok(());
        };
        let name: Arc<str> = format!("{}.{}", table.schema, table.name).into();
        if let (Selection::Outbox, Some(reason)) = (selection, SkipReason::of_outbox_row(Operation::Truncate)) {
            self.skip_rows(group, &name, 1, reason);
            return Ok(());
        }
        if group.rows_done_ahead(&name) > 0 {
            group.count(&name, 1);
            return Ok(());
        }
        // The log does not say what columns it has, and there is no row.
        let table = Table {
            database: table.schema.clone(),
            schema: table.schema.clone(),
            name: table.name.clone(),
            columns: Vec::new(),
            keyed: false,
        };
        let change = Change::Row(RowChange {
            operation: Operation::Truncate,
            table: Arc::new(table),
            before: None,
            after: None,
        });
        self.push(group, &name, selection, 0, change)
    }

    fn unknown(&mut self, kind: EventKind, ignorable: bool) -> Result<(), MysqlError> {
        if !ignorable {
            return Err(self.unexpected(
                &format!("an event of the unknown kind {}", kind.0),
                "a kind that this version of tailpost knows",
            ));
        }
        if !self.warned.unknown_events.contains(&kind.0) {
            tracing::warn!(kind = kind.0, place = %self.place, "binlog events of an unknown kind are passed over, as the server says is safe");
            self.warned.unknown_events.push(kind.0);
        }
        self.skipped.add(SkipReason::UnknownEvent, 1);
        self.moved = true;
        Ok(())
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

    /// Where an event begins whose end is where reading is.
    fn start_of(&self, header: &Header) -> BinlogPlace {
        BinlogPlace {
            file: Arc::clone(&self.place.file),
            pos: self.place.pos.saturating_sub(u64::from(header.size)),
        }
    }

    fn undecodable(&self, source: BinlogError) -> MysqlError {
        MysqlError::Binlog {
            place: self.place.clone(),
            source,
        }
    }

    fn unplanned(&self, table: &str, failure: PlanFailure) -> MysqlError {
        let place = self.place.clone();
        match failure {
            PlanFailure::TableMap(source) => MysqlError::TableMap { place, source },
            PlanFailure::Plan(source) => MysqlError::Plan {
                table: table.to_owned(),
                place,
                source,
            },
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

fn operation(kind: RowsKind) -> Operation {
    match kind {
        RowsKind::Write => Operation::Insert,
        RowsKind::Update | RowsKind::PartialUpdate => Operation::Update,
        RowsKind::Delete => Operation::Delete,
    }
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

#[cfg(test)]
mod log;
#[cfg(test)]
mod tests;
