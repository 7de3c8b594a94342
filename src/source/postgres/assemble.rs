//! From pgoutput messages to change events with positions: the part of the source that knows what is already done.
//!
//! Pure: bytes in, batches out. Its invariants:
//! - A unit (a transaction, or a non-transactional message) is done when its end is at or before the base. Units are
//!   ordered by their ends; nothing is ever decided by comparing a row's LSN across transactions.
//! - Inside the unit that the position names, changes up to and including (LSN, index) are done. The index counts every
//!   change of that LSN before any choice of ours, so that another table filter cannot shift it.
//! - A keep-alive outside a transaction moves the base: what the server passed over holds nothing for us.

use std::collections::{HashMap, HashSet};
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::event::{Change, ChangeEvent, LogMessage, Operation, Origin, Oversized, RowChange, Selection};
use crate::position::{EventPosition, Lsn, Partial, Position, PostgresEventPosition, PostgresPosition};
use crate::row::{Row, Table};
use crate::skip::{SkipCounts, SkipReason};
use crate::source::LogBatch;

use super::error::PostgresError;
use super::link::BACKLOG_LAG;
use super::oversized::OversizedHead;
use super::pgoutput::{LogicalMessage, ReplicaIdentity, decode};
use super::primary_key::PrimaryKey;
use super::relation::Relations;
use super::tuple::{OldTuple, Tuple};
use crate::source::select::Selector;

/// Prefixes remembered with what becomes of them; an application that makes up prefixes must not grow us.
const PREFIX_CACHE: usize = 1024;

/// Builds batches of change events out of a replication stream.
#[derive(Debug)]
pub(super) struct Assembler {
    selector: Selector,
    relations: Relations,
    /// What the rows of a relation are.
    selections: HashMap<u32, Option<Selection>>,
    /// A table that was just described, whose old rows are whole rows: its key is to be asked for before its rows are read.
    unidentified: Option<u32>,
    /// Tables of which it was told that their rows have no key.
    told_keyless: HashSet<u32>,
    prefixes: HashMap<Box<str>, Option<Arc<str>>>,
    position: PostgresPosition,
    unit: Option<Unit>,
    events: Vec<ChangeEvent>,
    skipped: SkipCounts,
    /// Bytes of the events at hand, and of everything read for them.
    kept_bytes: usize,
    read_bytes: usize,
    /// Whether the position moved since the last batch.
    moved: bool,
    lag: Duration,
}

/// A transaction on its way in.
#[derive(Debug)]
struct Unit {
    commit: Lsn,
    commit_time_us: i64,
    xid: u32,
    /// Done as a whole before: its end is at or before the base.
    done: bool,
    /// LSN and index of the change last seen.
    seen: Option<(Lsn, u32)>,
    /// Up to which change it is done.
    partial: Option<(Lsn, u32)>,
    has_events: bool,
}

/// What is at hand for one row change.
struct RowParts {
    operation: Operation,
    old: Option<OldTuple>,
    new: Option<Tuple>,
}

impl Assembler {
    pub(super) fn new(database: &str, selector: Selector, position: PostgresPosition) -> Self {
        Self {
            selector,
            relations: Relations::new(database.to_owned()),
            selections: HashMap::new(),
            unidentified: None,
            told_keyless: HashSet::new(),
            prefixes: HashMap::new(),
            position,
            unit: None,
            events: Vec::new(),
            skipped: SkipCounts::default(),
            kept_bytes: 0,
            read_bytes: 0,
            // The first batch tells where the stream begins, so that it is saved before anything else.
            moved: true,
            lag: Duration::ZERO,
        }
    }

    /// The place to go on from after everything handed out and still at hand.
    pub(super) fn position(&self) -> PostgresPosition {
        let mut position = self.position.clone();
        if let Some(unit) = &self.unit
            && !unit.done
        {
            position.partial = unit.partial.map(|(change, index)| Partial {
                commit: unit.commit,
                change,
                index,
            });
        }
        position
    }

    /// Everything the server sent is done up to here, and no transaction is open.
    pub(super) fn base(&self) -> Lsn {
        self.position.base
    }

    /// How long after its commit the server sent the last transaction, by the server's own clock.
    pub(super) fn lag(&self) -> Duration {
        self.lag
    }

    pub(super) fn event_count(&self) -> usize {
        self.events.len()
    }

    pub(super) fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }

    /// Whether anything was gathered since the last batch.
    pub(super) fn has_batch(&self) -> bool {
        self.moved
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
            end: Position::Postgres(self.position()),
            more_follows: self.lag >= BACKLOG_LAG,
        })
    }

    /// Takes a keep-alive's log position.
    pub(super) fn keep_alive(&mut self, end: Lsn) {
        // Inside a transaction it is that transaction's place, which is not done yet.
        if self.unit.is_some() || end <= self.position.base {
            return;
        }
        self.position.base = end;
        if self.position.partial.is_some_and(|partial| partial.commit < end) {
            self.position.partial = None;
        }
        self.moved = true;
    }

    /// Takes one pgoutput message. `start` is its XLogData's start LSN, `sent_us` the server's clock in it.
    ///
    /// # Errors
    /// What cannot be decoded or does not fit the protocol's order: nothing is passed over.
    pub(super) fn apply(&mut self, start: Lsn, sent_us: i64, payload: &Bytes) -> Result<(), PostgresError> {
        self.read_bytes += payload.len();
        let message = decode(payload).map_err(|source| PostgresError::Decode { lsn: start, source })?;
        match message {
            LogicalMessage::Message {
                transactional: true,
                lsn,
                prefix,
                content,
            } => {
                if let Some(index) = self.next_change(lsn, "a transactional message")? {
                    self.message(lsn, Some(index), sent_us, prefix, content);
                    self.pass(lsn, index);
                }
            }
            LogicalMessage::Message {
                transactional: false,
                lsn,
                prefix,
                content,
            } => {
                if lsn > self.position.base {
                    self.position.base = lsn;
                    self.moved = true;
                    self.message(lsn, None, sent_us, prefix, content);
                }
            }
            LogicalMessage::Insert { relation, new } => {
                self.row(
                    start,
                    relation,
                    RowParts {
                        operation: Operation::Insert,
                        old: None,
                        new: Some(new),
                    },
                )?;
            }
            LogicalMessage::Update { relation, old, new } => {
                self.row(
                    start,
                    relation,
                    RowParts {
                        operation: Operation::Update,
                        old,
                        new: Some(new),
                    },
                )?;
            }
            LogicalMessage::Delete { relation, old } => {
                self.row(
                    start,
                    relation,
                    RowParts {
                        operation: Operation::Delete,
                        old: Some(old),
                        new: None,
                    },
                )?;
            }
            // Each table is a change of its own, so that a position can stand between two of them.
            LogicalMessage::Truncate { relations, .. } => {
                for relation in relations {
                    self.row(
                        start,
                        relation,
                        RowParts {
                            operation: Operation::Truncate,
                            old: None,
                            new: None,
                        },
                    )?;
                }
            }
            LogicalMessage::Begin {
                final_lsn,
                commit_time_us,
                xid,
            } => {
                self.lag = Duration::from_micros(u64::try_from(sent_us.saturating_sub(commit_time_us)).unwrap_or(0));
                self.begin(final_lsn, commit_time_us, xid)?;
            }
            LogicalMessage::Commit { end_lsn, .. } => self.commit(end_lsn)?,
            LogicalMessage::Relation(relation) => {
                let table = self.relations.describe(&relation);
                let selection = self.selector.table(&table.schema, &table.name);
                self.selections.insert(relation.id, selection);
                // An outbox's event has a key of its own.
                if relation.identity == ReplicaIdentity::Full && selection == Some(Selection::Table) {
                    self.unidentified = Some(relation.id);
                }
            }
            LogicalMessage::Type { id, schema, name } => self.relations.name_type(id, schema, name),
            LogicalMessage::Origin { .. } => {}
        }
        Ok(())
    }

    /// The relation whose primary key is to be asked for before anything more is applied.
    pub(super) fn unidentified(&self) -> Option<u32> {
        self.unidentified
    }

    /// Takes what the catalog says of that relation's primary key.
    pub(super) fn identify(&mut self, key: &PrimaryKey) {
        let Some(relation) = self.unidentified.take() else {
            return;
        };
        let unknown = match key {
            PrimaryKey::None => "it has no primary key",
            PrimaryKey::Columns(columns) if self.relations.identify(relation, columns) => return,
            PrimaryKey::Columns(_) => {
                "its primary key has a column that the row does not have: it was altered since, or the publication leaves the column out"
            }
            PrimaryKey::Gone => "the table is not there any more",
        };
        if self.told_keyless.insert(relation)
            && let Ok(table) = self.relations.table(relation)
        {
            tracing::warn!(
                table = format!("{}.{}", table.schema, table.name),
                reason = unknown,
                "rows of a table with REPLICA IDENTITY FULL have no key: their order is not kept, unless the sink has a `key`"
            );
        }
    }

    /// Takes the head of a message or row whose bytes were discarded for their size.
    pub(super) fn oversized(
        &mut self,
        start: Lsn,
        sent_us: i64,
        head: &OversizedHead,
        bytes: u64,
        limit: u64,
    ) -> Result<(), PostgresError> {
        let oversized = |origin| Change::Oversized(Oversized { origin, bytes, limit });
        match head {
            OversizedHead::Message { transactional, prefix } => {
                let index = if *transactional {
                    match self.next_change(start, "a transactional message")? {
                        None => return Ok(()),
                        index => index,
                    }
                } else {
                    if start <= self.position.base {
                        return Ok(());
                    }
                    self.position.base = start;
                    self.moved = true;
                    None
                };
                match self.prefix(prefix) {
                    None => self.skip(SkipReason::ForeignPrefix),
                    Some(prefix) => {
                        let origin = Origin::Prefix(prefix.to_string());
                        self.event(start, index, sent_us, Selection::Outbox, oversized(origin));
                    }
                }
                if let Some(index) = index {
                    self.pass(start, index);
                }
            }
            OversizedHead::Row { relation, operation } => {
                let Some(index) = self.next_change(start, "a row")? else {
                    return Ok(());
                };
                let (table, selection) = self.choice(start, *relation)?;
                match (selection, self.selector.passes_over(*operation)) {
                    (None, _) => self.skip(SkipReason::UnlistedTable),
                    (Some(Selection::Outbox), Some(reason)) => self.skip(reason),
                    (Some(Selection::Outbox), None) if *operation == Operation::Update => {
                        self.updated(start, index, table);
                    }
                    (Some(selection), _) => {
                        let origin = Origin::Table(format!("{}.{}", table.schema, table.name));
                        self.event(start, Some(index), sent_us, selection, oversized(origin));
                    }
                }
                self.pass(start, index);
            }
        }
        Ok(())
    }

    fn begin(&mut self, commit: Lsn, commit_time_us: i64, xid: u32) -> Result<(), PostgresError> {
        if self.unit.is_some() {
            return Err(unexpected("BEGIN", "the open transaction's COMMIT"));
        }
        // Its commit record starts before the base, so its end is at or before it.
        let done = commit < self.position.base;
        // Another transaction first: the one that was in progress is not sent any more, or never was one of ours.
        let partial = match self.position.partial {
            Some(partial) if !done && partial.commit == commit => Some((partial.change, partial.index)),
            _ => None,
        };
        if !done {
            self.position.partial = None;
        }
        let has_events = partial.is_some();
        self.unit = Some(Unit {
            commit,
            commit_time_us,
            xid,
            done,
            seen: None,
            partial,
            has_events,
        });
        Ok(())
    }

    fn commit(&mut self, end: Lsn) -> Result<(), PostgresError> {
        let unit = self
            .unit
            .take()
            .ok_or_else(|| unexpected("COMMIT", "a BEGIN before it"))?;
        if !unit.done {
            self.position.base = self.position.base.max(end);
            if unit.has_events {
                self.position.last_event_end = end;
            }
            self.moved = true;
        }
        Ok(())
    }

    /// Counts a change of the open transaction; its index, or None where it was done before.
    fn next_change(&mut self, lsn: Lsn, what: &'static str) -> Result<Option<u32>, PostgresError> {
        let unit = self
            .unit
            .as_mut()
            .ok_or_else(|| unexpected(what, "a BEGIN before it"))?;
        let index = match unit.seen {
            Some((seen, index)) if seen == lsn => index + 1,
            _ => 0,
        };
        unit.seen = Some((lsn, index));
        if unit.done || unit.partial.is_some_and(|done| (lsn, index) <= done) {
            return Ok(None);
        }
        Ok(Some(index))
    }

    /// A change of the open transaction is done, whatever was made of it. One that cannot be read is not: what stands before it
    /// is handed out with this position, and a later start must meet it again.
    fn pass(&mut self, lsn: Lsn, index: u32) {
        if let Some(unit) = &mut self.unit {
            unit.partial = Some((lsn, index));
            self.moved = true;
        }
    }

    fn message(&mut self, lsn: Lsn, index: Option<u32>, sent_us: i64, prefix: &str, content: Bytes) {
        match self.prefix(prefix) {
            None => self.skip(SkipReason::ForeignPrefix),
            Some(prefix) => {
                self.kept_bytes += content.len();
                self.event(
                    lsn,
                    index,
                    sent_us,
                    Selection::Outbox,
                    Change::Message(LogMessage { prefix, content }),
                );
            }
        }
    }

    fn row(&mut self, lsn: Lsn, relation: u32, parts: RowParts) -> Result<(), PostgresError> {
        if let Some(index) = self.next_change(lsn, "a row")? {
            self.change(lsn, index, relation, parts)?;
            self.pass(lsn, index);
        }
        Ok(())
    }

    /// Tells of an UPDATE of an outbox.
    fn updated(&mut self, lsn: Lsn, index: u32, table: Arc<Table>) {
        let change = Change::Row(RowChange {
            operation: Operation::Update,
            table,
            before: None,
            after: None,
        });
        self.event(lsn, Some(index), 0, Selection::Outbox, change);
    }

    fn change(&mut self, lsn: Lsn, index: u32, relation: u32, parts: RowParts) -> Result<(), PostgresError> {
        let (table, selection) = self.choice(lsn, relation)?;
        let Some(selection) = selection else {
            self.skip(SkipReason::UnlistedTable);
            return Ok(());
        };
        match (selection, self.selector.passes_over(parts.operation)) {
            (Selection::Outbox, Some(reason)) => {
                self.skip(reason);
                return Ok(());
            }
            (Selection::Outbox, None) if parts.operation == Operation::Update => {
                self.updated(lsn, index, table);
                return Ok(());
            }
            _ => {}
        }
        let wrong = |source| PostgresError::Row { lsn, source };
        let before = parts.old.map(|old| old.row(&table)).transpose().map_err(wrong)?;
        let after = parts.new.map(|new| new.row(&table)).transpose().map_err(wrong)?;
        self.kept_bytes += before.iter().chain(&after).map(Row::byte_len).sum::<usize>();
        let change = Change::Row(RowChange {
            operation: parts.operation,
            table,
            before,
            after,
        });
        self.event(lsn, Some(index), 0, selection, change);
        Ok(())
    }

    /// `sent_us` is the time of a message outside a transaction, which has no commit time.
    fn event(&mut self, lsn: Lsn, index: Option<u32>, sent_us: i64, selection: Selection, change: Change) {
        let last_event_end = self.position.last_event_end;
        let (position, commit_time_us) = match (&mut self.unit, index) {
            (Some(unit), Some(index)) => {
                unit.has_events = true;
                let partial = Some(Partial {
                    commit: unit.commit,
                    change: lsn,
                    index,
                });
                let position = PostgresEventPosition {
                    base: self.position.base,
                    partial,
                    last_event_end,
                    xid: Some(unit.xid),
                };
                (position, unit.commit_time_us)
            }
            _ => {
                self.position.last_event_end = lsn;
                (
                    PostgresEventPosition {
                        base: lsn,
                        partial: None,
                        last_event_end: lsn,
                        xid: None,
                    },
                    sent_us,
                )
            }
        };
        let position = EventPosition::Postgres(position);
        self.events.push(ChangeEvent {
            position,
            commit_time_us,
            selection,
            change,
        });
    }

    fn skip(&mut self, reason: SkipReason) {
        self.skipped.add(reason, 1);
    }

    fn prefix(&mut self, prefix: &str) -> Option<Arc<str>> {
        if let Some(known) = self.prefixes.get(prefix) {
            return known.clone();
        }
        let choice = self.selector.prefix(prefix).then(|| Arc::from(prefix));
        if self.prefixes.len() >= PREFIX_CACHE {
            self.prefixes.clear();
        }
        self.prefixes.insert(prefix.into(), choice.clone());
        choice
    }

    /// The relation's table, and what its rows are; None: nothing of ours.
    fn choice(&self, lsn: Lsn, relation: u32) -> Result<(Arc<Table>, Option<Selection>), PostgresError> {
        match self.relations.table(relation) {
            Ok(table) => Ok((Arc::clone(table), self.selections.get(&relation).copied().flatten())),
            Err(source) => Err(PostgresError::UnknownRelation { lsn, source }),
        }
    }
}

fn unexpected(found: &str, expected: &'static str) -> PostgresError {
    PostgresError::Unexpected {
        found: found.to_owned(),
        expected,
    }
}

#[cfg(test)]
mod tests;
