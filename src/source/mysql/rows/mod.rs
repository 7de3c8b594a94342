//! Rows of the binlog: a TABLE_MAP becomes a [`TablePlan`], by which the rows events behind it are walked.
//!
//! Everything here is pure: bytes in, rows out. Values come as the server itself prints them (`CAST(… AS CHAR)`, in
//! UTF-8, a TIMESTAMP in UTC), but for what only a column's display attributes would add, which the log does not hold:
//! ZEROFILL's zeros, and the fixed digits of FLOAT(M,D) and DOUBLE(M,D).
//!
//! Never a guess: what the log does not hold and nobody describes is an error, and so are bytes that no server stores.
//! No bytes panic, and what a length claims is allocated only where the bytes are there, or can come of those that are.
//!
//! | module | its part |
//! |---|---|
//! | `table_map`, `optional_metadata`, `column_type` | what the log says of a table |
//! | `described` | what the database says of it |
//! | `plan` | both put together, once for many events |
//! | `walk` | the rows of an event |
//! | `cell`, `format` | a cell's bytes as a value |
//! | `charset`, `compressed`, `decimal`, `float`, `jsonb`, `network`, `temporal`, `old_temporal` | single types |
//! | `reader` | walking bytes |

mod cell;
mod charset;
mod column_type;
mod compressed;
mod decimal;
mod described;
mod float;
mod format;
mod jsonb;
mod network;
mod old_temporal;
mod optional_metadata;
mod plan;
mod reader;
mod table_map;
mod temporal;
mod walk;

pub use cell::CellError;
pub use charset::CharsetError;
pub use column_type::TypeError;
pub use compressed::CompressedError;
pub use decimal::DecimalError;
pub use jsonb::{JsonbError, OpaqueError};
pub use optional_metadata::MetadataError;
pub use plan::PlanError;
pub use reader::ReadError;
pub use table_map::TableMapError;
pub use temporal::TemporalError;
pub use walk::RowError;

pub(crate) use described::{DescribedColumn, DescribedTable};
#[cfg(feature = "bench")]
pub(super) use jsonb::render as render_json;
pub(crate) use plan::TablePlan;
pub(crate) use table_map::{Flavor, GuessedColumn, GuessedTable, RetypedColumn, TableMap};
pub(crate) use walk::{RowPair, Rows, count_rows};

#[cfg(test)]
mod golden;
#[cfg(test)]
mod model;
#[cfg(test)]
mod sample;
