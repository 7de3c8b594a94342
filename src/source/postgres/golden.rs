//! Streams of real servers, compared with what another decoder made of them: `tests/golden/pgoutput/README.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use bytes::Bytes;
use proptest::prelude::*;

use super::pgoutput::{DecodeError, LogicalMessage, RelationMessage, ReplicaIdentity, decode};
use super::relation::Relations;
use super::tuple::{Cell, OldTuple, RowError, Tuple};
use super::wire::{ReplicationMessage, postgres_us};
use crate::position::Lsn;
use crate::row::{ColumnKind, Row, Value};

/// One captured stream.
struct Stream {
    file: String,
    /// The START_REPLICATION command.
    command: String,
    lines: Vec<Line>,
}

/// One XLogData and the comment before it.
struct Line {
    comment: String,
    start: Lsn,
    end: Lsn,
    payload: Bytes,
}

static STREAMS: LazyLock<Vec<Stream>> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/pgoutput");
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|extension| extension == "txt"))
        .collect();
    paths.sort();
    paths.iter().map(|path| read(path)).collect()
});

fn read(path: &Path) -> Stream {
    let mut stream = Stream {
        file: path.file_name().unwrap().to_string_lossy().into_owned(),
        command: String::new(),
        lines: Vec::new(),
    };
    let mut comment = "";
    for line in fs::read_to_string(path).unwrap().lines() {
        if let Some(text) = line.strip_prefix("# ") {
            if text.starts_with("START_REPLICATION") {
                text.clone_into(&mut stream.command);
            }
            comment = text;
        } else {
            let fields: Vec<_> = line.split(' ').collect();
            let &[start, end, payload] = fields.as_slice() else {
                panic!("{line}")
            };
            let (start, end, payload) = (start.parse().unwrap(), end.parse().unwrap(), unhex(payload));
            stream.lines.push(Line {
                comment: comment.to_owned(),
                start,
                end,
                payload,
            });
        }
    }
    stream
}

fn unhex(digits: &str) -> Bytes {
    let pairs = digits.as_bytes().chunks(2);
    pairs
        .map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

/// The streams as they are asked for: no streaming, no two_phase.
fn plain_streams() -> impl Iterator<Item = &'static Stream> {
    STREAMS
        .iter()
        .filter(|stream| !stream.command.contains("streaming") && !stream.command.contains("two_phase"))
}

fn plain_payloads() -> Vec<Bytes> {
    plain_streams()
        .flat_map(|stream| &stream.lines)
        .map(|line| line.payload.clone())
        .collect()
}

#[test]
fn decoded_messages_read_as_the_independent_decoder_wrote_them() {
    let (mut servers, mut kinds) = (BTreeSet::new(), BTreeMap::<_, usize>::new());
    for Stream { file, lines, .. } in plain_streams() {
        for line in lines {
            let message = decode(&line.payload).unwrap_or_else(|error| panic!("{file}: {}: {error}", line.comment));
            assert_eq!(render(&message), line.comment, "{file}");
            *kinds.entry(line.payload[0]).or_default() += 1;
        }
        servers.insert(file.rsplit('.').nth(1).unwrap());
    }
    assert_eq!(servers, BTreeSet::from(["pg15", "pg16", "pg17", "pg18"]));
    assert_eq!(kinds.keys().copied().collect::<Vec<_>>(), b"BCDIMORTUY");
    assert!(kinds.values().sum::<usize>() > 600, "{kinds:?}");
}

#[test]
fn frames_around_them_give_back_lsns_and_payload() {
    for Line {
        start, end, payload, ..
    } in plain_streams().flat_map(|stream| &stream.lines)
    {
        let header = [start.0.to_be_bytes(), end.0.to_be_bytes(), 5_i64.to_be_bytes()].concat();
        let frame = Bytes::from([b"w", header.as_slice(), payload].concat());
        let ReplicationMessage::XLogData {
            start: found_start,
            end: found_end,
            clock_us,
            payload: found,
        } = ReplicationMessage::parse(frame).unwrap()
        else {
            panic!("not XLogData");
        };
        assert_eq!(
            (found_start, found_end, postgres_us(clock_us), &found),
            (*start, *end, 5, payload)
        );
        assert_eq!(decode(&found), decode(payload));
    }
}

#[test]
fn cut_or_lengthened_messages_are_errors() {
    for payload in plain_payloads() {
        for length in 0..payload.len() {
            assert!(decode(&payload.slice(..length)).is_err(), "{length} of {payload:?}");
        }
        let longer = Bytes::from([&payload, b"\0".as_slice()].concat());
        assert!(
            matches!(decode(&longer), Err(DecodeError::Trailing { .. })),
            "{payload:?}"
        );
    }
}

#[test]
fn prepared_and_streamed_transactions_are_refused() {
    let mut refused = BTreeSet::new();
    for Stream { file, command, lines } in STREAMS.iter() {
        for Line { comment, payload, .. } in lines {
            let name = comment.split(' ').next().unwrap();
            match name {
                "BeginPrepare" | "Prepare" | "CommitPrepared" | "RollbackPrepared" | "StreamPrepare" => {
                    assert!(
                        matches!(decode(payload), Err(DecodeError::TwoPhase { .. })),
                        "{file}: {comment}"
                    );
                }
                "StreamStart" | "StreamStop" | "StreamAbort" | "StreamCommit" => {
                    assert!(
                        matches!(decode(payload), Err(DecodeError::Streamed { .. })),
                        "{file}: {comment}"
                    );
                }
                // Between the blocks of a streamed transaction messages have another layout; the block's start has
                // ended the stream before.
                _ if command.contains("streaming") => continue,
                _ => {
                    assert!(decode(payload).is_ok(), "{file}: {comment}");
                    continue;
                }
            }
            refused.insert(name);
        }
    }
    assert_eq!(refused.len(), 9, "{refused:?}");
}

/// The rows of a change, the old one first; takes in descriptions on the way.
fn rows(relations: &mut Relations, payload: &Bytes) -> Vec<Result<Row, RowError>> {
    let table = |relation| relations.table(relation).unwrap();
    match decode(payload).unwrap() {
        LogicalMessage::Relation(message) => {
            relations.describe(&message);
        }
        LogicalMessage::Type { id, schema, name } => relations.name_type(id, schema, name),
        LogicalMessage::Insert { relation, new } => return vec![new.row(table(relation))],
        LogicalMessage::Update { relation, old, new } => {
            let old = old.map(|old| old.row(table(relation)));
            return old.into_iter().chain([new.row(table(relation))]).collect();
        }
        LogicalMessage::Delete { relation, old } => return vec![old.row(table(relation))],
        _ => {}
    }
    Vec::new()
}

#[test]
fn tuples_become_rows_of_the_tables_described_before_them() {
    let mut row_count = 0;
    for Stream { file, command, lines } in plain_streams() {
        let mut relations = Relations::new("db".to_owned());
        for Line { comment, payload, .. } in lines {
            for row in rows(&mut relations, payload) {
                if command.contains("binary") {
                    assert!(matches!(row, Err(RowError::BinaryFormat { .. })), "{file}: {comment}");
                } else {
                    assert!(row.is_ok_and(|row| !row.values.is_empty()), "{file}: {comment}");
                    row_count += 1;
                }
            }
        }
    }
    assert!(row_count > 100, "{row_count}");
}

/// The rows of one case on one server, all of them sound.
fn rows_of(file: &str) -> Vec<Row> {
    let stream = plain_streams().find(|stream| stream.file == file).unwrap();
    let mut relations = Relations::new("db".to_owned());
    stream
        .lines
        .iter()
        .flat_map(|line| rows(&mut relations, &line.payload))
        .map(Result::unwrap)
        .collect()
}

fn text(text: &'static str) -> Value {
    Value::Text(Bytes::from_static(text.as_bytes()))
}

#[test]
fn replica_identity_decides_what_old_rows_hold() {
    for server in ["pg15", "pg16", "pg17", "pg18"] {
        let rows: Vec<_> = rows_of(&format!("table-identity.{server}.txt"))
            .into_iter()
            .map(|row| row.values)
            .collect();
        let full_update = [vec![text("1"), text("x")], vec![text("1"), text("y")]];
        let key_update = [vec![text("1"), Value::Absent], vec![text("2"), text("y")]];
        assert_eq!(rows[2..4], full_update, "{server}");
        assert_eq!(rows[4], [text("2"), Value::Null], "{server}");
        assert_eq!(rows[7..9], key_update, "{server}");
        assert_eq!(rows[9], [text("2"), Value::Absent], "{server}");
        assert_eq!(rows[11], [text("1"), Value::Unchanged, text("y")], "{server}");
    }
}

#[test]
fn each_type_has_its_kind_and_bytea_its_bytes() {
    use ColumnKind::{Binary, Boolean, Float, Integer, Json, Numeric, Uuid};
    for server in ["pg15", "pg16", "pg17", "pg18"] {
        let file = format!("table-types.{server}.txt");
        let stream = plain_streams().find(|stream| stream.file == file).unwrap();
        let mut relations = Relations::new("db".to_owned());
        let mut kinds = BTreeMap::new();
        for line in &stream.lines {
            match decode(&line.payload).unwrap() {
                LogicalMessage::Type { id, schema, name } => relations.name_type(id, schema, name),
                LogicalMessage::Relation(message) => {
                    let columns = &relations.describe(&message).columns;
                    kinds.extend(columns.iter().map(|column| (column.name.clone(), column.kind)));
                }
                _ => {}
            }
        }
        kinds.retain(|_, kind| *kind != ColumnKind::Text);
        let expected = [
            ("id", Integer),
            ("b", Boolean),
            ("i2", Integer),
            ("n", Numeric),
            ("f4", Float),
            ("f8", Float),
            ("by", Binary),
            ("u", Uuid),
            ("j", Json),
            ("jb", Json),
        ];
        assert_eq!(
            kinds,
            expected.map(|(name, kind)| (name.to_owned(), kind)).into(),
            "{server}"
        );
        assert_eq!(
            rows_of(&file)[0].values[7],
            Value::Bytes(Bytes::from_static(b"\0\xFF")),
            "{server}"
        );
    }
}

proptest! {
    /// Damaged as a whole: most bytes are still sound, so the damage is met deep inside.
    #[test]
    fn damaged_messages_are_messages_or_errors(
        which: prop::sample::Index,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let payloads = plain_payloads();
        let mut payload = which.get(&payloads).to_vec();
        for (at, byte) in damage {
            let at = at.index(payload.len());
            payload[at] = byte;
        }
        let payload = Bytes::from(payload);
        let mut relations = Relations::new("db".to_owned());
        match decode(&payload) {
            Ok(LogicalMessage::Relation(message)) => {
                prop_assert!(message.columns.capacity() <= payload.len());
                relations.describe(&message);
            }
            Ok(LogicalMessage::Truncate { relations, .. }) => prop_assert!(relations.capacity() <= payload.len()),
            Ok(LogicalMessage::Insert { new, .. } | LogicalMessage::Update { new, .. }) => {
                prop_assert_eq!(new.cells().count(), new.cell_count());
                prop_assert!(new.cell_count() <= payload.len());
            }
            _ => {}
        }
    }
}

fn render(message: &LogicalMessage<'_>) -> String {
    match message {
        LogicalMessage::Begin {
            final_lsn,
            commit_time_us,
            xid,
        } => {
            format!(
                "Begin final_lsn={final_lsn} time={} xid={xid}",
                postgres_us(*commit_time_us)
            )
        }
        LogicalMessage::Commit {
            flags,
            commit_lsn,
            end_lsn,
            commit_time_us,
        } => {
            let time = postgres_us(*commit_time_us);
            format!("Commit flags={flags} lsn={commit_lsn} end_lsn={end_lsn} time={time}")
        }
        LogicalMessage::Origin { lsn, name } => format!("Origin commit_lsn={lsn} name={}", render_text(name)),
        LogicalMessage::Relation(relation) => render_relation(relation),
        LogicalMessage::Type { id, schema, name } => format!("Type oid={id} {schema}.{name}"),
        LogicalMessage::Insert { relation, new } => format!("Insert rel={relation} N{}", render_tuple(new)),
        LogicalMessage::Update { relation, old, new } => {
            let old = old.as_ref().map(|old| render_old(old) + " ").unwrap_or_default();
            format!("Update rel={relation} {old}N{}", render_tuple(new))
        }
        LogicalMessage::Delete { relation, old } => format!("Delete rel={relation} {}", render_old(old)),
        LogicalMessage::Truncate {
            relations,
            cascade,
            restart_identity,
        } => {
            let options = u8::from(*cascade) + 2 * u8::from(*restart_identity);
            format!("Truncate options={options} rels={relations:?}")
        }
        LogicalMessage::Message {
            transactional,
            lsn,
            prefix,
            content,
        } => {
            let (flags, prefix) = (u8::from(*transactional), render_text(prefix));
            let content = str::from_utf8(content).map_or_else(|_| format!("x{}", hex(content)), render_text);
            format!("Message flags={flags} lsn={lsn} prefix={prefix} content={content}")
        }
    }
}

fn render_relation(relation: &RelationMessage<'_>) -> String {
    let RelationMessage {
        id,
        schema,
        name,
        identity,
        columns,
    } = relation;
    let identity = match identity {
        ReplicaIdentity::Default => 'd',
        ReplicaIdentity::Nothing => 'n',
        ReplicaIdentity::Full => 'f',
        ReplicaIdentity::Index => 'i',
    };
    let columns = columns.iter().map(|column| {
        let star = if column.key { "*" } else { "" };
        format!(
            "{star}{} type={} mod={}",
            column.name, column.type_id, column.type_modifier
        )
    });
    let columns = columns.collect::<Vec<_>>().join(", ");
    format!("Relation oid={id} {schema}.{name} ident={identity} cols={columns}")
}

fn render_old(old: &OldTuple) -> String {
    match old {
        OldTuple::Key(tuple) => format!("K{}", render_tuple(tuple)),
        OldTuple::Full(tuple) => format!("O{}", render_tuple(tuple)),
    }
}

fn render_tuple(tuple: &Tuple) -> String {
    let cells = tuple.cells().map(|cell| match cell {
        Cell::Null => "null".to_owned(),
        Cell::Unchanged => "unchanged".to_owned(),
        Cell::Text(text) => format!("t{}", render_text(str::from_utf8(text).unwrap())),
        Cell::Binary(bytes) => format!("b:{}", hex(bytes)),
    });
    format!("({})", cells.collect::<Vec<_>>().join(", "))
}

/// As Python prints a string.
fn render_text(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') {
        '"'
    } else {
        '\''
    };
    let escaped = text.replace('\\', "\\\\").replace('\n', "\\n");
    let escaped = if quote == '\'' {
        escaped.replace('\'', "\\'")
    } else {
        escaped
    };
    format!("{quote}{escaped}{quote}")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
