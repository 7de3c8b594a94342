//! Rows of real servers, compared with what the servers themselves print: `tests/golden/binlog/README.md`.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;

use bytes::Bytes;
use serde_json::{Map, Value as Json};
use sha2::{Digest, Sha256};

use super::column_type::ColumnType;
use super::*;
use crate::row::{Row, Value};

/// One captured case.
struct Golden {
    name: String,
    events: Vec<(String, Bytes)>,
    /// The server's own text of each row, by table.
    printed: BTreeMap<String, Vec<Map<String, Json>>>,
    described: BTreeMap<String, DescribedTable>,
}

fn golden_files() -> Vec<Golden> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/binlog");
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
    files.sort();
    files.iter().map(|path| Golden::read(path)).collect()
}

fn golden(name: &str) -> Golden {
    let files = golden_files();
    files.into_iter().find(|file| file.name == name).unwrap()
}

impl Golden {
    fn read(path: &Path) -> Self {
        let name = path.file_name().unwrap().to_str().unwrap().trim_end_matches(".txt").to_owned();
        let (mut events, mut printed, mut described) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
        for line in fs::read_to_string(path).unwrap().lines() {
            let parts: Vec<_> = line.splitn(3, ' ').collect();
            match parts.as_slice() {
                ["E", event, hex] => events.push(((*event).to_owned(), without_checksum(unhex(hex)))),
                ["R", table, row] => {
                    let rows: &mut Vec<_> = printed.entry((*table).to_owned()).or_default();
                    rows.push(serde_json::from_str(row).unwrap());
                }
                ["D", table, columns] => {
                    let columns: Vec<(String, String, Option<String>, bool)> = serde_json::from_str(columns).unwrap();
                    described.insert((*table).to_owned(), described_table(columns));
                }
                _ => {}
            }
        }
        described.extend(described_by_hand(&name));
        Self {
            name,
            events,
            printed,
            described,
        }
    }

    /// Reads the events as the source does, and gives each row with its table's plan.
    fn rows(&self, describe: bool) -> Vec<(TableMap, TablePlan, RowPair)> {
        let (mut plans, mut rows): (HashMap<u64, (TableMap, TablePlan)>, _) = (HashMap::new(), Vec::new());
        for (event, data) in &self.events {
            let Some((id, body)) = data.split_first_chunk::<6>() else { continue };
            let id = reader::uint_le(id);
            let kind = match event.split('_').next().unwrap() {
                "TABLE" => {
                    let body = data.slice_ref(&body[2..]);
                    let map = TableMap::parse(body.clone()).unwrap();
                    let described = self.described.get(&map.table).filter(|_| describe);
                    let plan = TablePlan::new(&map, described)
                        .unwrap_or_else(|error| panic!("{}: {error}", self.name));
                    assert!(plan.fits(&body));
                    plans.insert(id, (map, plan));
                    continue;
                }
                "WRITE" => RowsKind::Write,
                "UPDATE" => RowsKind::Update,
                "DELETE" => RowsKind::Delete,
                _ => continue,
            };
            let (map, plan) = &plans[&id];
            let body = rows_body(event, data, plan.table().columns.len(), kind);
            let pairs: Vec<_> = Rows::new(plan, kind, body.clone())
                .unwrap()
                .map(|pair| pair.unwrap_or_else(|error| panic!("{}: {error:?}", self.name)))
                .collect();
            assert_eq!(count_rows(plan, kind, &body), Ok(pairs.len() as u64));
            for count in 0..pairs.len() + 2 {
                let mut rows = Rows::new(plan, kind, body.clone()).unwrap();
                assert_eq!(rows.skip_rows(count as u64), Ok(count.min(pairs.len()) as u64));
                assert!(rows.map(Result::unwrap).eq(pairs.iter().skip(count).cloned()));
            }
            rows.extend(pairs.into_iter().map(|pair| (map.clone(), plan.clone(), pair)));
        }
        rows
    }
}

/// What follows the post-header, uncompressed.
fn rows_body(event: &str, data: &Bytes, columns: usize, kind: RowsKind) -> Bytes {
    let is_v1 = event.ends_with("_V1");
    let extra = if is_v1 { 0 } else { usize::from(data[8]) };
    let body = data.slice(8 + extra..);
    if !event.contains("COMPRESSED") {
        return body;
    }
    // MariaDB: after the bitmaps a byte with the length of the length, the length, and a zlib stream.
    let bitmaps = if kind == RowsKind::Update { 2 } else { 1 };
    let head = 1 + bitmaps * columns.div_ceil(8);
    let length_bytes = usize::from(body[head] & 7);
    let mut out = body[..head].to_vec();
    let mut inflated = Vec::with_capacity(1 << 20);
    flate2::Decompress::new(true)
        .decompress_vec(&body[head + 1 + length_bytes..], &mut inflated, flate2::FlushDecompress::Finish)
        .unwrap();
    out.extend(inflated);
    out.into()
}

/// An event's data, behind its header. Some captured events have no checksum.
fn without_checksum(event: Vec<u8>) -> Bytes {
    let event = Bytes::from(event);
    let (content, checksum) = event.split_at(event.len() - 4);
    let mut crc = flate2::Crc::new();
    crc.update(content);
    let end = if crc.sum().to_le_bytes() == checksum { content.len() } else { event.len() };
    event.slice(19..end)
}

fn unhex(hex: &str) -> Vec<u8> {
    let pairs = hex.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn described_table(columns: Vec<(String, String, Option<String>, bool)>) -> DescribedTable {
    let columns = columns.into_iter().map(|(name, column_type, charset, key)| DescribedColumn {
        name,
        column_type,
        charset,
        key,
    });
    DescribedTable {
        columns: columns.collect(),
    }
}

/// For the cases that were captured without the database's description.
fn described_by_hand(case: &str) -> Option<(String, DescribedTable)> {
    let (name, server) = case.split_once('.').unwrap();
    let json = if server == "mysql" { "json" } else { "longtext" };
    let json_charset = (server != "mysql").then_some("utf8mb4");
    let text = Some("utf8mb4");
    let (table, columns) = match name {
        "metadata-minimal" => (
            "outbox",
            vec![
                ("id", "binary(16)", None),
                ("aggregatetype", "varchar(255)", text),
                ("aggregateid", "varchar(255)", text),
                ("type", "varchar(255)", text),
                ("payload", json, json_charset),
                ("created_at", "timestamp(6)", None),
            ],
        ),
        "maria-old-temporal" => (
            "ot",
            vec![
                ("t", "time /* mariadb-5.3 */", None),
                ("t6", "time(6) /* mariadb-5.3 */", None),
                ("dt", "datetime /* mariadb-5.3 */", None),
                ("dt6", "datetime(6) /* mariadb-5.3 */", None),
                ("ts", "timestamp /* mariadb-5.3 */", None),
                ("ts6", "timestamp(6) /* mariadb-5.3 */", None),
            ],
        ),
        "maria-types" => (
            "mt",
            vec![("u", "uuid", None), ("i4", "inet4", None), ("i6", "inet6", None)],
        ),
        _ => return None,
    };
    let owned = |(name, column_type, charset): (&str, &str, Option<&str>)| {
        (name.to_owned(), column_type.to_owned(), charset.map(str::to_owned), false)
    };
    Some((table.to_owned(), described_table(columns.into_iter().map(owned).collect())))
}

/// The row as the captured text has it.
fn shown(map: &TableMap, plan: &TablePlan, row: &Row, printed: &Map<String, Json>) -> Map<String, Json> {
    let columns = plan.table().columns.iter().zip(&map.columns).zip(&row.values);
    columns
        .map(|((column, mapped), value)| {
            let short = |text: String| match (&printed[&column.name], text.chars().count()) {
                (Json::String(printed), count) if printed.starts_with("sha256:") => {
                    let hash: String = Sha256::digest(&text).iter().map(|byte| format!("{byte:02x}")).collect();
                    format!("sha256:{hash} {count}")
                }
                _ => text,
            };
            let shown = match value {
                Value::Null => Json::Null,
                Value::Text(text) => Json::String(short(String::from_utf8(text.to_vec()).unwrap())),
                Value::Bytes(bytes) => {
                    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                    // Of BIT the oracle may lack leading zeros.
                    let hex = match (mapped.kind, &printed[&column.name]) {
                        (ColumnType::Bit { .. }, Json::String(printed)) => {
                            let digits = hex.trim_start_matches('0');
                            format!("{digits:0>0$}", printed.len() - 2)
                        }
                        _ => hex,
                    };
                    Json::String(format!("0x{hex}"))
                }
                Value::Unchanged | Value::Absent => panic!("{value:?}"),
            };
            (column.name.clone(), shown)
        })
        .collect()
}

#[test]
fn rows_are_what_the_server_prints() {
    let mut compared = 0;
    let mut wrong: Vec<String> = Vec::new();
    for file in golden_files() {
        if std::env::var("SKIP_CS").is_ok() && (file.name.starts_with("charsets") || file.name.starts_with("rows-charsets") || file.name.starts_with("rows-choices")) { continue; }
        let mut rows: BTreeMap<String, Vec<_>> = BTreeMap::new();
        if file.name.contains("large-compressed") || file.name.starts_with("compressed") {
            continue;
        }
        for (map, plan, pair) in file.rows(true) {
            if let RowPair { before: None, after: Some(row) } = pair {
                rows.entry(map.table.clone()).or_default().push((map, plan, row));
            }
        }
        for (table, printed) in &file.printed {
            let read = rows.get(table).map(Vec::as_slice).unwrap_or_default();
            assert_eq!(read.len(), printed.len(), "{} {table}", file.name);
            for ((map, plan, row), printed) in read.iter().zip(printed) {
                let shown = shown(map, plan, row, printed);
                for (column, text) in printed {
                    if shown[column] != *text {
                        wrong.push(format!("{} {table}.{column}: {} expected {text}", file.name, shown[column]));
                    }
                }
                compared += 1;
            }
        }
    }
    println!("{compared} rows");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
