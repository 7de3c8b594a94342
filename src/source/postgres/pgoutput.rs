//! pgoutput, the output plugin's protocol, version 1 with logical messages: one XLogData payload in, one message out.
//!
//! Everything borrows or shares the payload's memory; only descriptions of tables and lists of truncated ones are
//! collected, and those never beyond what the payload really holds. Frames around it are [`wire`](super::wire)'s,
//! tables and their rows [`relation`](super::relation)'s and [`tuple`](mod@super::tuple)'s. The layouts are those of
//! "Logical Replication Message Formats" in PostgreSQL's documentation; `tests/golden/pgoutput` has real streams.

use bytes::Bytes;

use super::reader::Reader;
use super::tuple::{OldTuple, Tuple};
use super::wire::Tag;
use crate::position::Lsn;

const TRANSACTIONAL: u8 = 1;
const PART_OF_IDENTITY: u8 = 1;
const CASCADE: u8 = 1;
const RESTART_IDENTITY: u8 = 2;

/// One pgoutput message. Times are in Unix microseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LogicalMessage<'p> {
    Begin {
        /// LSN of the commit record, which names the transaction.
        final_lsn: Lsn,
        commit_time_us: i64,
        xid: u32,
    },
    Commit {
        /// Without a meaning so far.
        flags: u8,
        commit_lsn: Lsn,
        /// Behind the commit record: resuming there is sound.
        end_lsn: Lsn,
        commit_time_us: i64,
    },
    /// The transaction came to the server by replication from elsewhere; follows its Begin.
    Origin {
        /// Of the commit, in the log of the origin.
        lsn: Lsn,
        name: &'p str,
    },
    Relation(RelationMessage<'p>),
    /// A type that is not built in; comes before the relation that uses it.
    Type {
        id: u32,
        schema: &'p str,
        name: &'p str,
    },
    Insert {
        relation: u32,
        new: Tuple,
    },
    Update {
        relation: u32,
        /// None: the replica identity's columns did not change.
        old: Option<OldTuple>,
        new: Tuple,
    },
    Delete {
        relation: u32,
        old: OldTuple,
    },
    Truncate {
        relations: Vec<u32>,
        cascade: bool,
        restart_identity: bool,
    },
    /// An application's `pg_logical_emit_message`.
    Message {
        /// Part of the transaction around it. If not, it is a unit by itself, which a rollback did not stop.
        transactional: bool,
        /// End of the message's record; of a transactional one it can equal the Begin's `final_lsn`.
        lsn: Lsn,
        prefix: &'p str,
        /// The application's bytes: not necessarily UTF-8, possibly none.
        content: Bytes,
    },
}

/// A table's description, which the server sends before its first change and again when it has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RelationMessage<'p> {
    pub id: u32,
    /// Empty for `pg_catalog`.
    pub schema: &'p str,
    pub name: &'p str,
    pub identity: ReplicaIdentity,
    /// Those that the publication lets through.
    pub columns: Vec<RelationColumn<'p>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RelationColumn<'p> {
    /// Part of the replica identity.
    pub key: bool,
    pub name: &'p str,
    pub type_id: u32,
    /// Length, precision and the like, as the type defines it; -1 without.
    pub type_modifier: i32,
}

/// Which columns the log has of a row that was updated or deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum ReplicaIdentity {
    /// The primary key's, if there is one.
    Default,
    Nothing,
    Full,
    /// A unique index's.
    Index,
}

/// A payload that is not pgoutput as it was asked for. The stream cannot go on and trying again cannot help: each one
/// needs a person.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error("pgoutput message is empty")]
    Empty,
    #[error("pgoutput message has the unknown tag {tag}")]
    UnknownTag { tag: Tag },
    #[error("pgoutput message {tag} is of a prepared transaction: the slot has two_phase on; use a slot without it")]
    TwoPhase { tag: Tag },
    #[error("pgoutput message {tag} is of a transaction in progress, but streaming was not asked for")]
    Streamed { tag: Tag },
    #[error("pgoutput message {tag} is cut short in its {field}: found {found} bytes, expected {expected}")]
    Short {
        tag: Tag,
        field: &'static str,
        found: usize,
        expected: usize,
    },
    #[error("pgoutput message {tag} goes on behind its end: found {found} bytes, expected {expected}")]
    Trailing { tag: Tag, found: usize, expected: usize },
    #[error("pgoutput message {tag} has a {field} without an end: expected a zero byte")]
    Unended { tag: Tag, field: &'static str },
    #[error("pgoutput message {tag} has a {field} that is not UTF-8")]
    NotUtf8 { tag: Tag, field: &'static str },
    #[error("pgoutput message {tag} has the unknown {field} {kind}")]
    UnknownKind { tag: Tag, field: &'static str, kind: Tag },
    #[error("pgoutput message {tag} has the unknown {field} {flags:#010b}")]
    UnknownFlags { tag: Tag, field: &'static str, flags: u8 },
}

/// Decodes the payload of one XLogData.
///
/// # Errors
/// The payload is not exactly one message of protocol 1. Messages of prepared and of streamed transactions, which a
/// slot or an option must have asked for, have their own errors.
pub(super) fn decode(payload: &Bytes) -> Result<LogicalMessage<'_>, DecodeError> {
    let mut reader = Reader::of_message(payload)?;
    let tag = reader.tag();
    let message = match tag.0 {
        b'M' => message(&mut reader),
        b'B' => begin(&mut reader),
        b'C' => commit(&mut reader),
        b'I' => insert(&mut reader),
        b'U' => update(&mut reader),
        b'D' => delete(&mut reader),
        b'T' => truncate(&mut reader),
        b'R' => relation(&mut reader).map(LogicalMessage::Relation),
        b'Y' => type_name(&mut reader),
        b'O' => origin(&mut reader),
        b'b' | b'P' | b'K' | b'r' | b'p' => Err(DecodeError::TwoPhase { tag }),
        b'S' | b'E' | b'A' | b'c' => Err(DecodeError::Streamed { tag }),
        _ => Err(DecodeError::UnknownTag { tag }),
    }?;
    reader.finish()?;
    Ok(message)
}

fn begin<'p>(reader: &mut Reader<'p>) -> Result<LogicalMessage<'p>, DecodeError> {
    Ok(LogicalMessage::Begin {
        final_lsn: reader.lsn("final LSN")?,
        commit_time_us: reader.time_us("commit time")?,
        xid: reader.u32("transaction id")?,
    })
}

fn commit<'p>(reader: &mut Reader<'p>) -> Result<LogicalMessage<'p>, DecodeError> {
    Ok(LogicalMessage::Commit {
        flags: reader.u8("flags")?,
        commit_lsn: reader.lsn("commit LSN")?,
        end_lsn: reader.lsn("end LSN")?,
        commit_time_us: reader.time_us("commit time")?,
    })
}

fn origin<'p>(reader: &mut Reader<'p>) -> Result<LogicalMessage<'p>, DecodeError> {
    Ok(LogicalMessage::Origin {
        lsn: reader.lsn("origin LSN")?,
        name: reader.text("origin name")?,
    })
}

fn relation<'p>(reader: &mut Reader<'p>) -> Result<RelationMessage<'p>, DecodeError> {
    let id = reader.u32("relation id")?;
    let schema = reader.text("schema name")?;
    let name = reader.text("table name")?;
    let identity = match reader.u8("replica identity")? {
        b'd' => ReplicaIdentity::Default,
        b'n' => ReplicaIdentity::Nothing,
        b'f' => ReplicaIdentity::Full,
        b'i' => ReplicaIdentity::Index,
        kind => return Err(reader.unknown("replica identity", kind)),
    };
    let mut columns = Vec::new();
    for _ in 0..reader.u16("column count")? {
        columns.push(RelationColumn {
            key: reader.flags("column flags", PART_OF_IDENTITY)? & PART_OF_IDENTITY != 0,
            name: reader.text("column name")?,
            type_id: reader.u32("column type")?,
            type_modifier: reader.i32("column type modifier")?,
        });
    }
    Ok(RelationMessage {
        id,
        schema,
        name,
        identity,
        columns,
    })
}

fn type_name<'p>(reader: &mut Reader<'p>) -> Result<LogicalMessage<'p>, DecodeError> {
    Ok(LogicalMessage::Type {
        id: reader.u32("type id")?,
        schema: reader.text("schema name")?,
        name: reader.text("type name")?,
    })
}

fn insert<'p>(reader: &mut Reader<'p>) -> Result<LogicalMessage<'p>, DecodeError> {
    let relation = reader.u32("relation id")?;
    match reader.u8("tuple kind")? {
        b'N' => Ok(LogicalMessage::Insert {
            relation,
            new: reader.tuple()?,
        }),
        kind => Err(reader.unknown("tuple kind", kind)),
    }
}

fn update<'p>(reader: &mut Reader<'p>) -> Result<LogicalMessage<'p>, DecodeError> {
    let relation = reader.u32("relation id")?;
    let mut kind = reader.u8("tuple kind")?;
    let mut old = None;
    if kind != b'N' {
        old = Some(old_tuple(reader, kind)?);
        kind = reader.u8("tuple kind")?;
    }
    match kind {
        b'N' => Ok(LogicalMessage::Update {
            relation,
            old,
            new: reader.tuple()?,
        }),
        kind => Err(reader.unknown("tuple kind", kind)),
    }
}

fn delete<'p>(reader: &mut Reader<'p>) -> Result<LogicalMessage<'p>, DecodeError> {
    let relation = reader.u32("relation id")?;
    let kind = reader.u8("tuple kind")?;
    Ok(LogicalMessage::Delete {
        relation,
        old: old_tuple(reader, kind)?,
    })
}

fn old_tuple(reader: &mut Reader<'_>, kind: u8) -> Result<OldTuple, DecodeError> {
    match kind {
        b'K' => reader.tuple().map(OldTuple::Key),
        b'O' => reader.tuple().map(OldTuple::Full),
        kind => Err(reader.unknown("tuple kind", kind)),
    }
}

fn truncate<'p>(reader: &mut Reader<'p>) -> Result<LogicalMessage<'p>, DecodeError> {
    let count = reader.u32("relation count")?;
    let options = reader.flags("options", CASCADE | RESTART_IDENTITY)?;
    let mut relations = Vec::new();
    for _ in 0..count {
        relations.push(reader.u32("relation id")?);
    }
    Ok(LogicalMessage::Truncate {
        relations,
        cascade: options & CASCADE != 0,
        restart_identity: options & RESTART_IDENTITY != 0,
    })
}

fn message<'p>(reader: &mut Reader<'p>) -> Result<LogicalMessage<'p>, DecodeError> {
    Ok(LogicalMessage::Message {
        transactional: reader.flags("flags", TRANSACTIONAL)? & TRANSACTIONAL != 0,
        lsn: reader.lsn("LSN")?,
        prefix: reader.text("prefix")?,
        content: reader.content("content")?,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn error(payload: &[u8]) -> String {
        decode(&Bytes::copy_from_slice(payload)).unwrap_err().to_string()
    }

    #[test]
    fn message_content_shares_the_payload() {
        let payload = Bytes::from_static(b"M\x01\0\0\0\0\0\0\0\x07outbox\0\0\0\0\x03\xFF\0a");
        let content = payload.slice(payload.len() - 3..);
        let message = decode(&payload).unwrap();
        let expected = LogicalMessage::Message {
            transactional: true,
            lsn: Lsn(7),
            prefix: "outbox",
            content,
        };
        assert_eq!(message, expected);
        let LogicalMessage::Message { content, .. } = message else {
            unreachable!()
        };
        assert_eq!(content.as_ptr_range().end, payload.as_ptr_range().end);
    }

    #[test]
    fn unknown_tags_are_named() {
        assert_eq!(error(b""), "pgoutput message is empty");
        assert_eq!(error(b"Zrest"), "pgoutput message has the unknown tag `Z`");
        assert_eq!(error(b"\x01rest"), "pgoutput message has the unknown tag 0x01");
    }

    #[test]
    fn prepared_and_streamed_transactions_have_their_own_errors() {
        for tag in *b"bPKrp" {
            assert_eq!(
                decode(&Bytes::from(vec![tag, 0])),
                Err(DecodeError::TwoPhase { tag: Tag(tag) })
            );
        }
        for tag in *b"SEAc" {
            assert_eq!(
                decode(&Bytes::from(vec![tag, 0])),
                Err(DecodeError::Streamed { tag: Tag(tag) })
            );
        }
    }

    #[test]
    fn claimed_lengths_and_counts_are_checked_before_use() {
        assert_eq!(
            error(b"M\0\0\0\0\0\0\0\0\0p\0\xFF\xFF\xFF\xFFabc"),
            "pgoutput message `M` is cut short in its content: found 3 bytes, expected 4294967295",
        );
        assert_eq!(
            error(b"I\0\0\0\x01N\xFF\xFFnnn"),
            "pgoutput message `I` is cut short in its cell kind: found 0 bytes, expected 1",
        );
        assert_eq!(
            error(b"R\0\0\0\x01s\0t\0d\xFF\xFF\x01a\0"),
            "pgoutput message `R` is cut short in its column type: found 0 bytes, expected 4",
        );
        assert_eq!(
            error(b"T\xFF\xFF\xFF\xFF\0\0\0\0\x01\0"),
            "pgoutput message `T` is cut short in its relation id: found 1 bytes, expected 4",
        );
    }

    #[test]
    fn bytes_without_a_meaning_are_errors() {
        let cases: [(&[u8], &str); 9] = [
            (b"T\0\0\0\0\0!", "`T` goes on behind its end: found 7 bytes, expected 6"),
            (b"T\0\0\0\0\x04", "`T` has the unknown options 0b00000100"),
            (
                b"M\x03\0\0\0\0\0\0\0\0p\0\0\0\0\0",
                "`M` has the unknown flags 0b00000011",
            ),
            (
                b"M\0\0\0\0\0\0\0\0\0\xFF\0\0\0\0\0",
                "`M` has a prefix that is not UTF-8",
            ),
            (
                b"M\0\0\0\0\0\0\0\0\0prefix",
                "`M` has a prefix without an end: expected a zero byte",
            ),
            (b"R\0\0\0\x01s\0t\0x\0\0", "`R` has the unknown replica identity `x`"),
            (b"I\0\0\0\x01K\0\0", "`I` has the unknown tuple kind `K`"),
            (b"U\0\0\0\x01K\0\0K\0\0", "`U` has the unknown tuple kind `K`"),
            (b"D\0\0\0\x01O\0\x01x", "`D` has the unknown cell kind `x`"),
        ];
        for (payload, expected) in cases {
            assert_eq!(error(payload), format!("pgoutput message {expected}"));
        }
    }

    #[test]
    fn truncate_tells_its_options() {
        for (options, cascade, restart_identity) in
            [(0, false, false), (1, true, false), (2, false, true), (3, true, true)]
        {
            let payload = Bytes::from(vec![b'T', 0, 0, 0, 2, options, 0, 0, 0, 7, 0, 0, 1, 0]);
            let relations = vec![7, 256];
            assert_eq!(
                decode(&payload),
                Ok(LogicalMessage::Truncate {
                    relations,
                    cascade,
                    restart_identity
                })
            );
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_message_or_an_error(payload: Vec<u8>) {
            let _ = decode(&Bytes::from(payload));
        }

        #[test]
        fn no_more_is_collected_than_the_payload_holds(tag in prop::sample::select(b"RT".to_vec()), body: Vec<u8>) {
            let payload = Bytes::from([&[tag], body.as_slice()].concat());
            match decode(&payload) {
                Ok(LogicalMessage::Truncate { relations, .. }) => prop_assert!(relations.capacity() <= payload.len()),
                Ok(LogicalMessage::Relation(relation)) => prop_assert!(relation.columns.capacity() <= payload.len()),
                _ => {}
            }
        }
    }
}
