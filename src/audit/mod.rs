//! What a pipeline writes down of its events, where its file asks for it: the audit ledger (`spec.audit`), and dispatch records
//! (`spec.dispatches`).
//!
//! What must be on the disk when:
//!
//! - An event's line is in the ledger before the event counts: in the metrics, and in the position that is acked. A process that
//!   is killed loses none of what was counted.
//! - The ledger is synced before a position is saved: a machine that loses its power loses no line of an event that does not
//!   come again.
//! - A sink that commits has the position in its transaction, and what is committed does not come again. So the lines are
//!   written down beside the ledger and synced before the commit begins (`prepared`), and go into it when the commit is known
//!   to have gone through: at once, or after a crash by the position that the transaction left.
//!
//! So a line can come twice, never not at all; one that repeats an event which was settled before says so, as far as that is
//! known (`furthest`).
//!
//! One thread writes for all sinks of a pipeline (`writer`). The relay gives it entries (`journal`), and holds back the progress that they
//! belong to until they are written. The chain of lines (`chain`) is verified without any of this (`verify`).

mod book;
mod chain;
mod dispatches;
mod entry;
mod files;
mod furthest;
mod journal;
mod ledger;
mod preflight;
mod prepared;
mod verify;
mod writer;

pub(crate) use chain::LINK_NAMES;
pub use chain::{Hash, Head};
pub(crate) use dispatches::DispatchLog;
pub use entry::{Entry, Outcome};
pub use files::{full_files, is_in_use, number_of};
pub use journal::{Journal, Port};
pub use ledger::LedgerError;
pub(crate) use preflight::preflight;
pub use verify::{Fault, Verifier};
