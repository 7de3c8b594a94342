//! Streams of real servers, compared with what mysqlbinlog says of the same files: `tests/golden/binlog/README.md`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use bytes::Bytes;

use super::format::Checksum;
use super::payload::Compression;
use super::rows::TableMap;
use super::*;
use crate::gtid::GtidSet;

const MAX_EVENT_BYTES: usize = 1 << 20;

/// One captured stream.
pub(super) struct Stream {
    pub(super) file: String,
    /// By the names of their kinds.
    pub(super) events: Vec<(String, Bytes)>,
    /// What mysqlbinlog says of the first file's events, one after the other.
    oracle: Vec<Told>,
}

/// What mysqlbinlog says of one event.
struct Told {
    server_id: u32,
    end_position: u32,
    checksum: Option<u32>,
    /// Behind these, and the lines until the next event.
    text: String,
}

pub(super) static STREAMS: LazyLock<Vec<Stream>> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/binlog");
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
        events: Vec::new(),
        oracle: Vec::new(),
    };
    for line in fs::read_to_string(path).unwrap().lines() {
        if let Some(event) = line.strip_prefix("E ") {
            let (name, digits) = event.split_once(' ').unwrap();
            stream.events.push((name.to_owned(), unhex(digits)));
        } else if let Some(text) = line.strip_prefix("V ") {
            if let Some(told) = told(text) {
                stream.oracle.push(told);
            } else if let Some(told) = stream.oracle.last_mut() {
                told.text.push('\n');
                told.text.push_str(text);
            }
        }
    }
    stream
}

fn told(line: &str) -> Option<Told> {
    let (_, line) = line.strip_prefix('#')?.split_once(" server id ")?;
    let (place, text) = line.split_once('\t')?;
    let words: Vec<_> = place.split_whitespace().collect();
    let (place, checksum) = match *words.as_slice() {
        [server_id, "end_log_pos", end] => ((server_id, end), None),
        [server_id, "end_log_pos", end, "CRC32", checksum] => ((server_id, end), Some(checksum)),
        _ => return None,
    };
    Some(Told {
        server_id: place.0.parse().unwrap(),
        end_position: place.1.parse().unwrap(),
        checksum: checksum.map(|digits| u32::from_str_radix(digits.trim_start_matches("0x"), 16).unwrap()),
        text: text.trim_start_matches('\t').to_owned(),
    })
}

fn unhex(digits: &str) -> Bytes {
    let pairs = digits.as_bytes().chunks(2);
    pairs
        .map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

/// An event and whence it came.
struct Decoded {
    header: Header,
    event: Event,
    /// Outside of a payload.
    raw: Option<Bytes>,
}

/// Every event of a stream, those inside of payloads behind the payload.
fn decode_all(stream: &Stream) -> Vec<Decoded> {
    let mut decoder = EventDecoder::new(MAX_EVENT_BYTES);
    let mut all = Vec::new();
    for (name, raw) in &stream.events {
        let (header, event) = decoder
            .decode(raw.clone())
            .unwrap_or_else(|error| panic!("{}: {name}: {error}", stream.file));
        assert_eq!(header.kind.name(), Some(name.as_str()), "{}", stream.file);
        let payload = match &event {
            Event::TransactionPayload(payload) => Some(payload.clone()),
            _ => None,
        };
        all.push(Decoded {
            header,
            event,
            raw: Some(raw.clone()),
        });
        let Some(payload) = payload else { continue };
        let mut reader = PayloadReader::new(payload, MAX_EVENT_BYTES).unwrap();
        while let Some(inner) = reader.next().unwrap() {
            let Inner::Event(inner) = inner else {
                panic!("{inner:?}")
            };
            let (header, event) = decoder.decode_inner(inner).unwrap();
            all.push(Decoded {
                header,
                event,
                raw: None,
            });
        }
    }
    all
}

#[test]
fn every_event_decodes_as_its_kind() {
    let mut kinds = BTreeMap::<_, usize>::new();
    for stream in &*STREAMS {
        for Decoded { header, event, .. } in decode_all(stream) {
            assert!(!matches!(event, Event::Unknown { .. }), "{}: {header:?}", stream.file);
            *kinds.entry(header.kind.name().unwrap()).or_default() += 1;
        }
    }
    assert_eq!(STREAMS.len(), 83);
    assert!(kinds.values().sum::<usize>() > 1_000, "{kinds:?}");
    assert_eq!(kinds.len(), 27, "{kinds:?}");
}

#[test]
fn events_say_what_mysqlbinlog_says() {
    let mut compared = BTreeMap::<_, usize>::new();
    for stream in &*STREAMS {
        // To a replica that knows no GTIDs MariaDB sends other events than are in the file.
        if stream.file.starts_with("maria-capability-0") {
            continue;
        }
        let decoded = decode_all(stream);
        let mut events = decoded.iter().filter(|decoded| !decoded.header.is_made_up()).peekable();
        for told in &stream.oracle {
            let annotated = events
                .peek()
                .is_some_and(|next| next.header.kind == EventKind::ANNOTATE_ROWS);
            // Sent only to who asks for it.
            if told.text.starts_with("Annotate_rows:") && !annotated {
                continue;
            }
            let Some(next) = events.next() else {
                // Written after the stream was captured.
                assert!(told.text.starts_with("Rotate to"), "{}: {}", stream.file, told.text);
                continue;
            };
            compare(next, told, &stream.file);
            *compared.entry(next.header.kind.name().unwrap()).or_default() += 1;
        }
        let files = stream.events.iter().filter(|(name, _)| name == "FORMAT_DESCRIPTION");
        // mysqlbinlog gave up at this one's columns of old types.
        let cut = stream.file == "maria-old-temporal.mariadb.txt";
        assert!(events.next().is_none() || files.count() > 1 || cut, "{}", stream.file);
    }
    assert!(compared.values().sum::<usize>() > 700, "{compared:?}");
    assert_eq!(compared.len(), 26, "{compared:?}"); // all but HEARTBEAT, which is in no file
}

fn compare(decoded: &Decoded, told: &Told, file: &str) {
    let Decoded { header, event, raw } = decoded;
    let Told { text, .. } = told;
    let context = format!("{file}: {header:?}: {text}");
    assert_eq!(header.server_id, told.server_id, "{context}");
    if let Some(raw) = raw {
        assert_eq!(header.next_position, told.end_position, "{context}");
        if let Some(checksum) = told.checksum {
            assert!(raw.ends_with(&checksum.to_le_bytes()), "{context}");
        }
    }
    let number = |name: &str| -> u64 {
        let (_, rest) = text.split_once(name).unwrap_or_else(|| panic!("{name}: {context}"));
        let digits = rest.split(|char: char| !char.is_ascii_digit()).next().unwrap();
        digits.parse().unwrap_or_else(|_| panic!("{name}: {context}"))
    };
    match event {
        Event::FormatDescription(format) => {
            assert!(
                text.contains(&format!("server v {} created", format.server_version)),
                "{context}"
            );
            assert_eq!(format.mariadb, text.contains("MariaDB"), "{context}");
            assert_eq!(format.checksum == Checksum::Crc32, told.checksum.is_some(), "{context}");
        }
        Event::PreviousGtids(set) => {
            assert!(text.starts_with("Previous-GTIDs"), "{context}");
            assert!(!GtidSet::decode(set).unwrap().is_empty(), "{context}");
        }
        Event::Gtid(gtid) => {
            let name = text.split('\'').nth(1).unwrap();
            assert_eq!(gtid.gtid.unwrap().to_string(), name, "{context}");
            let rows_only = if gtid.rows_only {
                "rbr_only=yes"
            } else {
                "rbr_only=no\t"
            };
            assert!(text.contains(rows_only), "{context}");
            let told = [
                number("immediate_commit_timestamp="),
                number("original_committed_timestamp="),
            ];
            let found = [gtid.commit_time_us, gtid.original_commit_time_us];
            assert_eq!(found, told.map(|time| Some(time.cast_signed())), "{context}");
            assert_eq!(
                gtid.transaction_length,
                Some(number("transaction_length=")),
                "{context}"
            );
        }
        Event::MariadbGtid(gtid) => {
            let mut words = text.split_whitespace().skip(1);
            assert_eq!(words.next(), Some(gtid.gtid.to_string().as_str()), "{context}");
            let xa = file.starts_with("xa.").then_some("X'7831',X'',1");
            assert_eq!(gtid.xid.as_ref().map(ToString::to_string).as_deref(), xa, "{context}");
        }
        Event::MariadbGtidList(list) => {
            // Sorted, and cut behind the first line.
            let (_, told) = text.split_once('[').unwrap();
            let (first, rest) = told.split_once([',', ']']).unwrap();
            assert!(list.contains(&first.parse().unwrap()), "{context}");
            assert_eq!(list.len() == 1, told.ends_with(']') && rest.is_empty(), "{context}");
        }
        Event::Query(query) => {
            assert!(text.starts_with("Query"), "{context}");
            assert_eq!(u64::from(query.thread_id), number("thread_id="), "{context}");
            assert_eq!(u64::from(query.error_code), number("error_code="), "{context}");
            let sql = String::from_utf8_lossy(&query.text);
            for end in ["BEGIN", "COMMIT"] {
                let said = text.lines().any(|line| line.trim_end_matches("/*!*/;") == end);
                assert_eq!(said, sql == end, "{context}");
            }
        }
        Event::Xid(xid) => assert_eq!(*xid, number("Xid = "), "{context}"),
        Event::XaPrepare(prepare) => {
            assert!(text.ends_with(&prepare.xid.to_string()), "{context}");
            assert!(!prepare.one_phase, "{context}");
        }
        Event::TableMap(table) => assert_eq!(table.table_id, number("mapped to number "), "{context}"),
        Event::Rows(rows) => {
            assert_eq!(rows.head.table_id, number("table id "), "{context}");
            assert_eq!(rows.head.statement_end, text.contains("STMT_END_F"), "{context}");
            let kind = match rows.head.kind {
                RowsKind::Write => "Write_",
                RowsKind::Update => "Update_",
                RowsKind::Delete => "Delete_",
                RowsKind::PartialUpdate => "Update_rows_partial",
            };
            assert!(text.starts_with(kind), "{context}");
        }
        Event::TransactionPayload(payload) => {
            assert_eq!(payload.bytes.len() as u64, number("payload_size="), "{context}");
            assert_eq!(
                payload.uncompressed_size,
                Some(number("uncompressed_size=")),
                "{context}"
            );
            assert_eq!(payload.compression, Compression::Zstd);
        }
        Event::Rotate(rotate) => {
            let told = format!("Rotate to {}  pos: {}", rotate.file, rotate.position);
            assert_eq!(text.lines().next(), Some(told.as_str()), "{context}");
        }
        Event::Informational => {
            let name = match header.kind {
                EventKind::BINLOG_CHECKPOINT => "Binlog checkpoint",
                EventKind::ANNOTATE_ROWS => "Annotate_rows:",
                EventKind::ROWS_QUERY => "Rows_query",
                kind => panic!("{kind}: {context}"),
            };
            assert!(text.starts_with(name), "{context}");
        }
        other => panic!("{other:?}: {context}"),
    }
}

#[test]
fn bodies_begin_alike_whatever_the_version_and_compression() {
    let mut rows_events = 0;
    for stream in &*STREAMS {
        let mut column_counts = BTreeMap::new();
        for Decoded { event, .. } in decode_all(stream) {
            match event {
                Event::TableMap(TableMap { table_id, body }) => {
                    let schema_len = usize::from(body[0]);
                    let table_len = usize::from(body[schema_len + 2]);
                    column_counts.insert(table_id, body[schema_len + table_len + 4]);
                }
                Event::Rows(RowsEvent { head, body }) => {
                    let count = column_counts[&head.table_id];
                    let two = matches!(head.kind, RowsKind::Update | RowsKind::PartialUpdate);
                    let bitmaps = usize::from(count.div_ceil(8)) * (1 + usize::from(two));
                    assert_eq!(body[0], count, "{}: {head:?}", stream.file);
                    assert!(body.len() > 1 + bitmaps, "{}: {head:?}", stream.file);
                    // Every column of a full image is there; the bits beyond them are set or not.
                    if !stream.file.starts_with("image-") {
                        let bit = |column: u8| body[1 + usize::from(column / 8)] >> (column % 8) & 1;
                        assert!((0..count).all(|column| bit(column) == 1), "{}: {head:?}", stream.file);
                    }
                    rows_events += 1;
                }
                _ => {}
            }
        }
    }
    assert!(rows_events > 140, "{rows_events}");
}
