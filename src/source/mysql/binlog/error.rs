//! Why bytes are no binlog event, or none that can be read.

use std::io;

use crate::gtid::ParseGtidError;
use crate::source::mysql::xid::XidError;

use super::kind::EventKind;
use super::rows::RowsHead;

/// An event that cannot be read. Reading it again cannot help: except for [`Expands`](Self::Expands), which the
/// pipeline's policy for large events may settle, each one needs a person.
#[derive(Debug, thiserror::Error)]
pub enum BinlogError {
    #[error("binlog event is cut short in its header: found {found} bytes, expected {expected}")]
    HeaderShort { found: usize, expected: usize },
    #[error("binlog event {kind} is of another size than its header says: found {found} bytes, expected {expected}")]
    Size {
        kind: EventKind,
        found: usize,
        expected: usize,
    },
    #[error(
        "binlog event {kind} of {size} bytes that ends at {next_position} is damaged: found the checksum {found:#010x}, expected {expected:#010x}"
    )]
    Checksum {
        kind: EventKind,
        size: usize,
        /// The low 32 bits.
        next_position: u32,
        /// What the event's last bytes say.
        found: u32,
        /// What the bytes before them come to.
        expected: u32,
    },
    #[error("binlog event {kind} names the unknown checksum algorithm {found}: expected 0 (none) or 1 (CRC32)")]
    ChecksumAlgorithm { kind: EventKind, found: u8 },
    #[error("binlog event {kind} came before the FORMAT_DESCRIPTION that says how to read it")]
    BeforeFormat { kind: EventKind },
    #[error("binlog event {kind} is cut short in its {field}: found {found} bytes, expected {expected}")]
    Short {
        kind: EventKind,
        field: &'static str,
        found: usize,
        expected: u64,
    },
    #[error("binlog event {kind} goes on behind its end: found {found} bytes more")]
    Trailing { kind: EventKind, found: usize },
    #[error("binlog event {kind} has the {field} {found}: expected {expected}")]
    Field {
        kind: EventKind,
        field: &'static str,
        found: u64,
        expected: &'static str,
    },
    #[error("binlog event {kind} lacks its {field}")]
    Missing { kind: EventKind, field: &'static str },
    #[error("binlog event {kind} has a {field} that is not UTF-8")]
    NotUtf8 { kind: EventKind, field: &'static str },
    #[error("binlog event {kind} names the file `{found}`: expected a binlog's name, which ends with a dot and digits")]
    FileName { kind: EventKind, found: String },
    #[error("binlog event {kind} has a malformed GTID")]
    Gtid {
        kind: EventKind,
        #[source]
        source: ParseGtidError,
    },
    #[error("binlog event {kind} has a malformed name of an XA transaction")]
    Xid {
        kind: EventKind,
        #[source]
        source: XidError,
    },
    #[error("binlog event {kind} may not stand inside a TRANSACTION_PAYLOAD")]
    Inside { kind: EventKind },
    #[error("binlog event {kind} does not decompress")]
    Decompress {
        kind: EventKind,
        #[source]
        source: io::Error,
    },
    #[error("binlog event {kind} decompresses to another size than it says: found {found} bytes, expected {expected}")]
    Decompressed {
        kind: EventKind,
        /// As many as were read: when it is more than expected, decompression ended there.
        found: u64,
        expected: u64,
    },
    #[error("binlog event {kind} expands to {size} bytes, over the limit of {limit}")]
    Expands {
        kind: EventKind,
        size: u64,
        limit: usize,
        /// What the rows are of, when it is rows that are too many.
        rows: Option<RowsHead>,
    },
    #[error("binlog event {kind} was read on after an error in it")]
    AfterError { kind: EventKind },
}
