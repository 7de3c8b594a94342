//! The binlog's events, of MySQL and of MariaDB: one event's bytes in, one [`Event`] out.
//!
//! Pure: what stands before a connection's packets and where they come from is [`stream`](super)'s, what a TABLE_MAP and
//! the rows mean the row decoder's. Nothing is copied but what is decompressed and names, no length is trusted before it
//! is checked, and no event is passed over in silence: each one is an [`Event`] or an error.
//!
//! | module | its part |
//! |---|---|
//! | `header`, `kind` | the 19 bytes before each event |
//! | `decoder` | checksums, the state of a stream, which event is read by what |
//! | `event` | what an event can be |
//! | `format`, `place` | how the file is to be read, and where the stream is in it |
//! | `gtid`, `varlen`, `mariadb` | how a transaction begins |
//! | `statement`, `rows` | what it does |
//! | `payload`, `inflate` | what either server compresses |
//! | `reader`, `error` | walking bytes, and what is wrong with them |

mod decoder;
mod error;
mod event;
mod format;
#[cfg(test)]
mod golden;
mod gtid;
mod header;
mod inflate;
mod kind;
mod mariadb;
mod payload;
mod place;
mod reader;
mod rows;
#[cfg(test)]
mod sample;
mod statement;
mod varlen;

pub(crate) use decoder::EventDecoder;
pub(crate) use event::Event;
pub(crate) use gtid::GtidEvent;
pub(crate) use header::Header;
pub(crate) use mariadb::MariadbGtidEvent;
pub(crate) use payload::{Inner, PayloadReader};
pub(crate) use place::{Heartbeat, HeartbeatPosition};
pub(crate) use rows::RowsEvent;

pub use error::BinlogError;
pub use kind::EventKind;
pub use rows::{RowsHead, RowsKind};
