//! How transactions begin and end, and with them the position.

use std::mem;
use std::sync::Arc;

use super::super::binlog::{GtidEvent, Header, MariadbGtidEvent};
use super::super::error::MysqlError;
use super::super::group::{Beginning, Group};
use super::super::held::{TooLate, kept_bytes};
use super::super::xa::Prepared;
use super::super::xid::{XaPrepareEvent, Xid};
use super::{Assembler, seconds};
use crate::position::{BinlogPlace, EventPosition, MysqlBase, MysqlTransaction, RereadFrom, TransactionId};

impl Assembler {
    pub(super) fn begin_mysql(&mut self, header: &Header, event: &GtidEvent) -> Result<(), MysqlError> {
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
        // The first server's clock, which stays the same after a fail-over; one from before MySQL 8.0 told none.
        let original = event.original_commit_time_us.filter(|time| *time > 0);
        let commit_time_us = original.or(event.commit_time_us).unwrap_or_else(|| seconds(header));
        self.begin(Beginning {
            id,
            server_id: header.server_id,
            commit_time_us,
            start,
            standalone: false,
            began: false,
            done,
            xa: None,
        })
    }

    pub(super) fn begin_mariadb(&mut self, header: &Header, event: MariadbGtidEvent) -> Result<(), MysqlError> {
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
        })
    }

    fn begin(&mut self, beginning: Beginning) -> Result<(), MysqlError> {
        if let Some(open) = &self.group {
            let found = format!("the beginning of transaction {}", beginning.id);
            tracing::debug!(open = %open.id, "a transaction has no end");
            return Err(self.unexpected(&found, "the end of the one before it"));
        }
        self.tables.make_room();
        self.group = Some(Group::new(beginning, &self.position));
        Ok(())
    }

    /// Gives up a transaction that a crash of the server cut short: another one can get its GTID.
    pub(super) fn abandon(&mut self) {
        let Some(group) = self.group.take() else { return };
        self.position.partial.retain(|partial| partial.transaction != group.id);
        let published = self.held.forget();
        if published > 0 {
            tracing::error!(
                transaction = %group.id,
                events = published,
                "the server crashed in the middle of writing this transaction, which was not committed; events of it were published already, since it is too large to be held"
            );
        } else {
            tracing::warn!(transaction = %group.id, "the server crashed in the middle of writing this transaction: it was not committed");
        }
        self.moved = true;
    }

    pub(super) fn open_group(&mut self, found: &str) -> Result<Group, MysqlError> {
        match self.group.take() {
            Some(group) => Ok(group),
            None => Err(self.unexpected(found, "a GTID before it")),
        }
    }

    /// The transaction is committed.
    pub(super) fn end(&mut self, group: Group) {
        self.release();
        self.held.commit(&mut self.events, &mut self.skipped);
        self.finish(&group.id, group.done);
    }

    /// The transaction ends by ROLLBACK. It is in the log for what cannot be undone, and its rows are not that.
    pub(super) fn end_undone(&mut self, group: Group) -> Result<(), MysqlError> {
        let undone = self.held.roll_back();
        let acceptable = self.too_late(&group, undone);
        match acceptable {
            Ok(()) => self.end(group),
            // How far it was read counts all the same.
            Err(_) => self.group = Some(group),
        }
        acceptable
    }

    /// What was published cannot be taken back.
    pub(super) fn too_late(&self, group: &Group, undone: Result<(), TooLate>) -> Result<(), MysqlError> {
        match undone {
            // Done up to a row that is still to come, which was not taken back: it was handed on at the transaction's end.
            Err(TooLate { handed_on: 0, .. }) if group.has_done_ahead() => Ok(()),
            Err(TooLate { handed_on, passed_over }) if !self.is_accepted() => Err(MysqlError::RolledBack {
                transaction: group.id.to_string(),
                place: self.place.clone(),
                events: handed_on + passed_over,
            }),
            _ => Ok(()),
        }
    }

    /// What is held counts as kept from now on.
    pub(super) fn release(&mut self) {
        self.kept_bytes += self.held.bytes();
        self.moved = true;
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
            (MysqlBase::Mariadb(base), TransactionId::Mariadb(gtid)) => {
                if !done_before {
                    base.insert(*gtid);
                } else if self.behind.get(gtid.domain) == Some(*gtid) {
                    self.behind.remove(gtid.domain);
                }
            }
            _ => {}
        }
        self.settle();
    }

    /// Between two transactions the place is a position.
    pub(super) fn settle(&mut self) {
        if self.group.is_some() || self.is_behind() {
            return;
        }
        if self.position.place != self.place {
            self.position.place = self.place.clone();
        }
        self.moved = true;
    }

    pub(super) fn xa_prepare(&mut self, prepare: XaPrepareEvent) -> Result<(), MysqlError> {
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
        let bytes = self.held.bytes();
        let (events, skipped) = self.held.finish();
        if !group.done {
            self.skipped.merge(skipped);
        }
        if !group.has_rows() {
            self.finish(&group.id, group.done);
            return Ok(());
        }
        if !mem::replace(&mut self.warned.xa, true) {
            tracing::info!(xid = %prepare.xid, "an XA transaction with events is prepared; they wait for XA COMMIT");
        }
        // A GTID set leaves it out until then, so that the server sends it again.
        if matches!(self.position.base, MysqlBase::Gtids(_)) {
            self.settle();
        } else {
            self.pass(&group.id, group.done);
        }
        self.prepared.hold(Prepared {
            xid: prepare.xid,
            id: group.id,
            server_id: group.server_id,
            file: group.start.file,
            events,
            bytes,
            from: before,
        });
        Ok(())
    }

    /// XA COMMIT or XA ROLLBACK. Of one that was not prepared within reading, its rows came before reading began.
    pub(super) fn decide(&mut self, group: Group, xid: &Xid, committed: bool) -> Result<(), MysqlError> {
        // Prepared and decided in one.
        if group.xa.as_ref() == Some(xid) {
            return if committed {
                self.end(group);
                Ok(())
            } else {
                self.end_undone(group)
            };
        }
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
                self.kept_bytes += prepared.events.iter().map(kept_bytes).sum::<usize>();
                self.events.extend(prepared.events);
            }
            self.position
                .partial
                .retain(|partial| partial.transaction != prepared.id);
            if let (MysqlBase::Gtids(set), TransactionId::Gtid(gtid)) = (&mut self.position.base, &prepared.id) {
                set.insert(*gtid);
            }
        }
        self.finish(&group.id, group.done);
        Ok(())
    }

    /// Where an event begins whose end is where reading is.
    fn start_of(&self, header: &Header) -> BinlogPlace {
        BinlogPlace {
            file: Arc::clone(&self.place.file),
            pos: self.place.pos.saturating_sub(u64::from(header.size)),
        }
    }
}
