//! A transaction on its way in: what names it, how far it was done before, and how far it is read.

use std::sync::Arc;

use crate::position::{
    BinlogPlace, EventPosition, MysqlEventPosition, MysqlPartial, MysqlPosition, MysqlTransaction, RowCounts,
    TransactionId,
};

use super::xid::Xid;

/// The events between a GTID and the end of its transaction; the server's documentation calls them a group.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) id: TransactionId,
    pub(super) server_id: u32,
    pub(super) commit_time_us: i64,
    /// Where it begins.
    pub(super) start: BinlogPlace,
    /// One statement without an end of its own, such as DDL on MariaDB.
    pub(super) standalone: bool,
    /// A BEGIN was seen, or goes without saying.
    pub(super) began: bool,
    /// Done as a whole before; only prepared XA transactions are still of interest.
    pub(super) done: bool,
    /// Prepared, to be decided later.
    pub(super) xa: Option<Xid>,
    /// None of its rows is published, as the operator accepted.
    pub(super) passed_over: bool,
    /// Rows seen of each of the pipeline's tables, whatever was made of them.
    seen: RowCounts,
    /// Rows that were done before this reading.
    done_rows: RowCounts,
    /// The table of the last row, with the counts of the others then.
    current: Option<(Arc<str>, Option<Arc<RowCounts>>)>,
    transaction: Option<Arc<MysqlTransaction>>,
}

/// What a GTID, or the lack of one, says of the transaction that it begins.
#[derive(Debug)]
pub(super) struct Beginning {
    pub(super) id: TransactionId,
    pub(super) server_id: u32,
    pub(super) commit_time_us: i64,
    pub(super) start: BinlogPlace,
    pub(super) standalone: bool,
    pub(super) began: bool,
    pub(super) done: bool,
    pub(super) xa: Option<Xid>,
}

impl Group {
    /// `position` is where reading stands, which knows whether the transaction was done in part.
    pub(super) fn new(beginning: Beginning, position: &MysqlPosition) -> Self {
        let Beginning {
            id,
            server_id,
            commit_time_us,
            start,
            standalone,
            began,
            done,
            xa,
        } = beginning;
        let partial = position.partial.iter().find(|partial| partial.transaction == id);
        Self {
            done_rows: partial.map(|partial| partial.rows.clone()).unwrap_or_default(),
            id,
            server_id,
            commit_time_us,
            start,
            standalone,
            began,
            done,
            xa,
            passed_over: false,
            seen: RowCounts::default(),
            current: None,
            transaction: None,
        }
    }

    /// Whether one statement is all of it.
    pub(super) fn is_alone(&self) -> bool {
        self.standalone || !self.began
    }

    /// How many of the table's next rows were done before.
    pub(super) fn rows_done_ahead(&self, table: &str) -> u64 {
        let seen = self.seen.0.get(table).copied().unwrap_or_default();
        let done = self.done_rows.0.get(table).copied().unwrap_or_default();
        done.saturating_sub(seen)
    }

    /// Whether rows that were done before are still to come, of any table.
    pub(super) fn has_done_ahead(&self) -> bool {
        self.done_rows.0.keys().any(|table| self.rows_done_ahead(table) > 0)
    }

    /// Counts rows of a table and gives the number of the first.
    pub(super) fn count(&mut self, table: &Arc<str>, rows: u64) -> u64 {
        if self.current.as_ref().is_none_or(|(current, _)| current != table) {
            let mut others = self.seen.clone();
            others.0.remove(table);
            let others = (!others.0.is_empty()).then(|| Arc::new(others));
            self.current = Some((Arc::clone(table), others));
        }
        let seen = match self.seen.0.get_mut(table) {
            Some(seen) => seen,
            None => self.seen.0.entry(Arc::clone(table)).or_default(),
        };
        let first = *seen + 1;
        *seen += rows;
        first
    }

    pub(super) fn has_rows(&self) -> bool {
        !self.seen.0.is_empty()
    }

    /// Where a row stands whose table was counted last. `before` makes the position before the transaction.
    pub(super) fn position_of(
        &mut self,
        row: u64,
        pos: u64,
        index: u32,
        before: impl FnOnce() -> MysqlPosition,
    ) -> Option<EventPosition> {
        let (table, others) = self.current.as_ref()?;
        let transaction = self.transaction.get_or_insert_with(|| {
            Arc::new(MysqlTransaction {
                id: self.id.clone(),
                server_id: self.server_id,
                file: Arc::clone(&self.start.file),
                before: before(),
            })
        });
        Some(EventPosition::Mysql(MysqlEventPosition {
            transaction: Arc::clone(transaction),
            table: Arc::clone(table),
            row,
            others: others.clone(),
            pos,
            index,
        }))
    }

    /// How far the transaction is done; None: not at all.
    pub(super) fn partial(&self) -> Option<MysqlPartial> {
        let mut rows = self.done_rows.clone();
        for (table, seen) in &self.seen.0 {
            let done = rows.0.entry(Arc::clone(table)).or_default();
            *done = (*done).max(*seen);
        }
        (!rows.0.is_empty()).then(|| MysqlPartial {
            transaction: self.id.clone(),
            rows,
        })
    }
}
