//! XA transactions that are prepared and not decided: their rows come before it is known whether they are committed.
//!
//! They wait here, bounded, for the outcome. The position keeps them readable until then: a GTID set leaves such a
//! transaction out, and without MySQL's GTIDs reading begins before the oldest of them.

use std::sync::Arc;

use crate::event::ChangeEvent;
use crate::position::{RereadFrom, TransactionId};

use super::xid::Xid;

/// What a prepared transaction holds until its outcome is seen.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) xid: Xid,
    pub(super) id: TransactionId,
    pub(super) server_id: u32,
    pub(super) file: Arc<str>,
    pub(super) events: Vec<ChangeEvent>,
    pub(super) bytes: usize,
    /// Where reading must begin to see it again.
    pub(super) from: RereadFrom,
}

/// Prepared transactions with rows of the pipeline's, in the order in which they were prepared.
#[derive(Debug, Default)]
pub(super) struct PreparedTransactions {
    list: Vec<Prepared>,
    bytes: usize,
}

impl PreparedTransactions {
    pub(super) fn hold(&mut self, prepared: Prepared) {
        self.bytes += prepared.bytes;
        self.list.push(prepared);
    }

    /// Takes out the one that was decided.
    pub(super) fn decide(&mut self, xid: &Xid) -> Option<Prepared> {
        let at = self.list.iter().position(|prepared| prepared.xid == *xid)?;
        let prepared = self.list.remove(at);
        self.bytes -= prepared.bytes;
        Some(prepared)
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn oldest(&self) -> Option<&Prepared> {
        self.list.first()
    }
}
