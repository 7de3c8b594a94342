//! What a transaction changes: rows, and statements in the place of rows.

use std::mem;
use std::sync::Arc;

use super::super::binlog::{EventKind, RowsEvent, RowsHead, RowsKind};
use super::super::error::MysqlError;
use super::super::group::Group;
use super::super::rows::{GuessedColumn, RetypedColumn, RowError, RowPair, Rows, count_rows};
use super::super::statement::{Statement, TableName, Verb};
use super::super::tables::{Missing, PlanFailure};
use super::{Assembler, UnknownTable, Waiting};
use crate::event::{Change, ChangeEvent, Operation, Origin, Oversized, RowChange, Selection};
use crate::row::{Row, Table, Value};
use crate::skip::SkipReason;

impl Assembler {
    pub(super) fn query(&mut self, schema: &str, text: &[u8]) -> Result<(), MysqlError> {
        let place = self.place.clone();
        let statement = Statement::parse(text, schema).map_err(|source| MysqlError::Xid { place, source })?;
        let mut group = self.open_group("a statement")?;
        match statement {
            Statement::XaCommit { xid, .. } => return self.decide(group, &xid, true),
            Statement::XaRollback(xid) => return self.decide(group, &xid, false),
            Statement::Rollback => return self.end_undone(group),
            _ => {}
        }
        let ends = self.statement(&mut group, statement);
        // How far it was read counts also where it cannot be gone on with.
        if matches!(ends, Ok(true)) {
            self.end(group);
        } else {
            self.group = Some(group);
        }
        ends.map(drop)
    }

    /// Whether the statement ends its transaction.
    fn statement(&mut self, group: &mut Group, statement: Statement) -> Result<bool, MysqlError> {
        match statement {
            Statement::Begin => {
                group.began = true;
                Ok(false)
            }
            Statement::XaStart(xid) => {
                group.began = true;
                group.xa = Some(xid);
                Ok(false)
            }
            Statement::Savepoint(name) => {
                self.held.savepoint(name);
                Ok(false)
            }
            Statement::RollbackTo(name) => {
                let undone = self.held.roll_back_to(&name);
                self.too_late(group, undone)?;
                Ok(false)
            }
            Statement::ReleaseSavepoint | Statement::XaEnd(_) => Ok(false),
            Statement::Commit => Ok(true),
            Statement::Change { verb, target } => {
                self.statement_form(group, verb, target.as_ref())?;
                Ok(group.is_alone())
            }
            Statement::Truncate { target } => {
                if let Some(table) = target {
                    self.truncate(group, &table)?;
                }
                Ok(group.is_alone())
            }
            Statement::XaPrepare(_) | Statement::Other => Ok(group.is_alone()),
            Statement::XaCommit { .. } | Statement::XaRollback(_) | Statement::Rollback => Ok(true),
        }
    }

    pub(super) fn rows(&mut self, rows: RowsEvent) -> Result<(), MysqlError> {
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
            self.held.skip(SkipReason::UnlistedTable, 1);
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
            Err(Missing::Guess(guessed)) => {
                self.guess(selection, &name, &guessed.columns)?;
                self.tables.guess(rows.head.table_id, guessed.table);
                return self.rows_of(group, rows);
            }
            Err(Missing::GuessOfGone(guessed)) => {
                self.guess_of_gone(&name, &guessed.columns);
                self.tables.guess(rows.head.table_id, guessed.table);
                return self.rows_of(group, rows);
            }
            Err(Missing::Retyped(columns)) => {
                self.retype(selection, &name, &columns)?;
                self.tables.forget_known(&name);
                return self.rows_of(group, rows);
            }
            Err(Missing::Failed(failure)) => return Err(self.unplanned(&name, failure)),
        };
        let operation = operation(rows.head.kind);
        if selection == Selection::Outbox && operation != Operation::Insert {
            let count = count_rows(&plan, rows.head.kind, &rows.body);
            let count = count.map_err(|source| self.unreadable(group, &name, source))?;
            return match self.tables.passes_over(operation) {
                Some(reason) => {
                    self.skip_rows(group, &name, count, reason);
                    Ok(())
                }
                None => self.tell_of_rows(group, &name, count, operation, plan.table()),
            };
        }
        let walk = Rows::new(&plan, rows.head.kind, rows.body);
        let mut walk = walk.map_err(|source| self.unreadable(group, &name, source))?;
        let ahead = walk.skip_rows(group.rows_done_ahead(&name));
        let ahead = ahead.map_err(|source| self.unreadable(group, &name, source))?;
        group.count(&name, ahead);
        self.held.pass_over(ahead);
        let mut index = u32::try_from(ahead).unwrap_or(u32::MAX);
        let mut differences = 0_u64;
        for row in walk {
            if self.is_difference(group, &name, &row)? {
                differences += 1;
                group.count(&name, 1);
                self.held.skip(SkipReason::Invalid, 1);
                continue;
            }
            let row = row.map_err(|source| self.unreadable(group, &name, source))?;
            if selection == Selection::Outbox && self.is_incomplete(plan.table(), row.after.as_ref())? {
                group.count(&name, 1);
                self.held.skip(SkipReason::Invalid, 1);
                continue;
            }
            let bytes = row.before.iter().chain(&row.after).map(Row::byte_len).sum::<usize>() as u64;
            let change = if bytes > self.options.max_message_bytes {
                self.oversized_change(&name, bytes)
            } else {
                Change::Row(RowChange {
                    operation,
                    table: Arc::clone(plan.table()),
                    before: row.before,
                    after: row.after,
                })
            };
            self.push(group, &name, selection, index, change)?;
            index = index.saturating_add(1);
        }
        if differences > 0 {
            tracing::warn!(
                table = %name,
                transaction = %group.id,
                place = %self.place,
                rows = differences,
                "updates of which the log has differences of JSON documents, not the whole ones, were passed over, as the operator accepted"
            );
        }
        Ok(())
    }

    /// An outbox event is all that was inserted: a column that the log left out is not null, and not known.
    fn is_incomplete(&self, table: &Table, row: Option<&Row>) -> Result<bool, MysqlError> {
        let absent = row.and_then(|row| row.values.iter().position(|value| *value == Value::Absent));
        let Some(absent) = absent else {
            return Ok(false);
        };
        let error = MysqlError::RowIncomplete {
            table: format!("{}.{}", table.schema, table.name),
            column: table
                .columns
                .get(absent)
                .map(|column| column.name.clone())
                .unwrap_or_default(),
            place: self.place.clone(),
        };
        if !self.is_accepted() {
            return Err(error);
        }
        tracing::warn!(error = %error, "passed over, as the operator accepted");
        Ok(true)
    }

    /// Whether the row holds a difference that no whole row can be made of, and is passed over.
    ///
    /// # Errors
    /// The operator did not accept that.
    fn is_difference(&self, group: &Group, name: &str, row: &Result<RowPair, RowError>) -> Result<bool, MysqlError> {
        let Err(source @ RowError::Difference { .. }) = row else {
            return Ok(false);
        };
        if self.is_accepted() {
            return Ok(true);
        }
        Err(self.unreadable(group, name, source.clone()))
    }

    /// Says which columns are read as bytes, since nobody knows any more what they were. Once for each description in
    /// the log.
    ///
    /// # Errors
    /// One is part of a record's key, which must not change its form in silence.
    fn guess(&self, selection: Selection, table: &Arc<str>, columns: &[GuessedColumn]) -> Result<(), MysqlError> {
        for column in columns {
            // 16 bytes of an outbox are the same text as a UUID, wherever they are an id or a key.
            let is_key = column.key && selection == Selection::Table;
            if is_key && !self.is_accepted() {
                return Err(MysqlError::KeyForm {
                    table: table.to_string(),
                    column: column.name.clone(),
                    bytes: column.bytes,
                    place: self.place.clone(),
                });
            }
            tracing::warn!(
                table = %table,
                column = column.name,
                place = %self.place,
                "the database does not have the column any more as it was when rows were written, or hides it from the DSN's user: its values are published as bytes, be they those of a UUID, INET4 or INET6"
            );
        }
        Ok(())
    }

    /// Says which columns of a table that is gone are read as bytes. No later row of it can have them in another form.
    fn guess_of_gone(&self, table: &Arc<str>, columns: &[GuessedColumn]) {
        for column in columns {
            tracing::warn!(
                table = %table,
                column = column.name,
                key = column.key,
                place = %self.place,
                "the table is not in the database any more: the column's values are published as bytes, in a record's key too (`\\x…`), be they those of a UUID, INET4 or INET6"
            );
        }
    }

    /// Says which columns are read in another form from here on.
    ///
    /// # Errors
    /// As [`Self::guess`].
    fn retype(&self, selection: Selection, table: &Arc<str>, columns: &[RetypedColumn]) -> Result<(), MysqlError> {
        for column in columns {
            let is_key = column.key && selection == Selection::Table;
            if is_key && !self.is_accepted() {
                return Err(MysqlError::KeyRetyped {
                    table: table.to_string(),
                    column: column.name.clone(),
                    before: column.before.clone(),
                    now: column.now.clone(),
                    place: self.place.clone(),
                });
            }
            tracing::warn!(
                table = %table,
                column = column.name,
                before = column.before,
                now = column.now,
                place = %self.place,
                "the column has another type in the database than it had before: its values are published as the new one's, be they from before its change"
            );
        }
        Ok(())
    }

    /// Counts rows of which no events are made.
    fn skip_rows(&mut self, group: &mut Group, table: &Arc<str>, count: u64, reason: SkipReason) {
        let ahead = group.rows_done_ahead(table).min(count);
        group.count(table, count);
        self.held.skip(reason, count - ahead);
    }

    /// Makes events of rows that are only told of.
    fn tell_of_rows(
        &mut self,
        group: &mut Group,
        name: &Arc<str>,
        count: u64,
        operation: Operation,
        table: &Arc<Table>,
    ) -> Result<(), MysqlError> {
        let ahead = group.rows_done_ahead(name).min(count);
        group.count(name, ahead);
        self.held.pass_over(ahead);
        for index in ahead..count {
            let index = u32::try_from(index).unwrap_or(u32::MAX);
            self.push(
                group,
                name,
                Selection::Outbox,
                index,
                bare(operation, Arc::clone(table)),
            )?;
        }
        Ok(())
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
        if group.passed_over {
            self.held.skip(SkipReason::RolledBack, 1);
            return Ok(());
        }
        self.held.push(ChangeEvent {
            position,
            commit_time_us: group.commit_time_us,
            selection,
            change,
        });
        if let Some(xid) = &group.xa {
            let limit = self.options.max_prepared_bytes;
            if self.prepared.bytes() + self.held.bytes() <= limit {
                return Ok(());
            }
            if !self.is_accepted() {
                return Err(MysqlError::XaTooLarge {
                    xid: xid.to_string(),
                    limit,
                });
            }
            // All of it or nothing: the rest of its rows too. They are counted as if it had taken them back.
            group.passed_over = true;
            let _ = self.held.roll_back();
            tracing::warn!(xid = %xid, transaction = %group.id, "rows of an XA transaction that is too large were passed over, as the operator accepted");
        } else if self.held.bytes() > self.options.max_held_bytes || self.held.is_handed_on() {
            self.release();
            self.held.hand_on(&mut self.events, &mut self.skipped);
        }
        Ok(())
    }

    /// A row that is over the limit, of which only this much is known.
    pub(super) fn oversized(&mut self, head: &RowsHead, bytes: u64) -> Result<(), MysqlError> {
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
            self.held.skip(SkipReason::UnlistedTable, 1);
            return Ok(());
        };
        let operation = operation(head.kind);
        if self.passes_one(group, &name, selection, operation) {
            return Ok(());
        }
        let change = match (selection, operation) {
            (Selection::Outbox, Operation::Update) => {
                let (schema, table) = name.split_once('.').unwrap_or(("", &name));
                bare(operation, table_without_columns(schema, table))
            }
            _ => self.oversized_change(&name, bytes),
        };
        self.push(group, &name, selection, 0, change)
    }

    /// Counts a row that is no event, or was done before. False: it is the next event.
    fn passes_one(&mut self, group: &mut Group, table: &Arc<str>, selection: Selection, operation: Operation) -> bool {
        if let (Selection::Outbox, Some(reason)) = (selection, self.tables.passes_over(operation)) {
            self.skip_rows(group, table, 1, reason);
            return true;
        }
        if group.rows_done_ahead(table) > 0 {
            group.count(table, 1);
            self.held.pass_over(1);
            return true;
        }
        false
    }

    fn oversized_change(&self, table: &str, bytes: u64) -> Change {
        Change::Oversized(Oversized {
            origin: Origin::Table(table.to_owned()),
            bytes,
            limit: self.options.max_message_bytes,
        })
    }

    /// A change whose rows the log does not hold.
    fn statement_form(&mut self, group: &mut Group, verb: Verb, target: Option<&TableName>) -> Result<(), MysqlError> {
        if group.done {
            return Ok(());
        }
        let selected = target.and_then(|table| Some((table, self.tables.selection_of_name(table)?)));
        match (selected, verb) {
            // Only INSERTs are an outbox's events.
            (Some((table, Selection::Outbox)), Verb::Update) => match self.tables.passes_over(Operation::Update) {
                Some(reason) => self.held.skip(reason, 1),
                None => return self.bare_change(group, Selection::Outbox, table, Operation::Update),
            },
            (Some((_, Selection::Outbox)), Verb::Delete) => self.held.skip(SkipReason::OutboxDelete, 1),
            (Some((table, _)), verb) => {
                if !self.is_accepted() {
                    return Err(MysqlError::StatementForm {
                        verb: verb.to_string(),
                        table: table.to_string(),
                        place: self.place.clone(),
                        transaction: group.id.to_string(),
                    });
                }
                tracing::warn!(
                    transaction = %group.id,
                    place = %self.place,
                    table = %table,
                    "a change in statement form was passed over, as the operator accepted: its rows are not published"
                );
                self.held.skip(SkipReason::StatementForm, 1);
            }
            (None, _) => {
                if !mem::replace(&mut self.warned.statement_form, true) {
                    tracing::warn!(
                        transaction = %group.id,
                        place = %self.place,
                        "a change was written to the binlog as a statement: if it reached a table of this pipeline, by a trigger or a function, its rows are not published; set binlog_format = ROW in all of the application's connections"
                    );
                }
                self.held.skip(SkipReason::StatementForm, 1);
            }
        }
        Ok(())
    }

    /// TRUNCATE comes as a statement always.
    fn truncate(&mut self, group: &mut Group, table: &TableName) -> Result<(), MysqlError> {
        let selection = self.tables.selection_of_name(table).filter(|_| !group.done);
        match selection {
            Some(selection) => self.bare_change(group, selection, table, Operation::Truncate),
            None => Ok(()),
        }
    }

    /// A change of a table of which the log says neither its columns nor any row.
    fn bare_change(
        &mut self,
        group: &mut Group,
        selection: Selection,
        table: &TableName,
        operation: Operation,
    ) -> Result<(), MysqlError> {
        let name: Arc<str> = table.to_string().into();
        if self.passes_one(group, &name, selection, operation) {
            return Ok(());
        }
        let change = bare(operation, table_without_columns(&table.schema, &table.name));
        self.push(group, &name, selection, 0, change)
    }

    pub(super) fn unknown(&mut self, kind: EventKind, ignorable: bool) -> Result<(), MysqlError> {
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
        match self.group {
            Some(_) => self.held.skip(SkipReason::UnknownEvent, 1),
            None => {
                self.skipped.add(SkipReason::UnknownEvent, 1);
                self.moved = true;
            }
        }
        Ok(())
    }

    fn unreadable(&self, group: &Group, table: &str, source: RowError) -> MysqlError {
        if let RowError::Difference { column, .. } = source {
            return MysqlError::PartialUpdate {
                table: table.to_owned(),
                column,
                transaction: group.id.to_string(),
                place: self.place.clone(),
            };
        }
        MysqlError::Row {
            table: table.to_owned(),
            transaction: group.id.to_string(),
            place: self.place.clone(),
            source: Box::new(source),
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
}

/// A change without its rows.
fn bare(operation: Operation, table: Arc<Table>) -> Change {
    Change::Row(RowChange {
        operation,
        table,
        before: None,
        after: None,
    })
}

fn table_without_columns(schema: &str, name: &str) -> Arc<Table> {
    Arc::new(Table {
        database: schema.to_owned(),
        schema: schema.to_owned(),
        name: name.to_owned(),
        columns: Vec::new(),
        keyed: false,
    })
}

fn operation(kind: RowsKind) -> Operation {
    match kind {
        RowsKind::Write => Operation::Insert,
        RowsKind::Update | RowsKind::PartialUpdate => Operation::Update,
        RowsKind::Delete => Operation::Delete,
    }
}
