//! Rows of real servers, compared with what the servers themselves print: `tests/golden/binlog/README.md` and
//! `tests/golden/rows/README.md`.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use bytes::Bytes;
use serde_json::{Map, Value as Json};
use sha2::{Digest, Sha256};

use super::column_type::ColumnType;
use super::walk::RowPair;
use super::*;
use crate::row::{ColumnKind, Row, Value};
use crate::source::mysql::binlog::{Event, EventDecoder, Inner, PayloadReader};
use crate::source::mysql::{RowsHead, RowsKind};

const MAX_EVENT_BYTES: usize = 1 << 20;

/// One captured case.
pub(super) struct Golden {
    pub(super) name: String,
    /// Table maps and rows.
    pub(super) events: Vec<Captured>,
    /// The server's own text of each row, by table.
    printed: BTreeMap<String, Vec<Map<String, Json>>>,
    described: BTreeMap<String, DescribedTable>,
}

pub(super) enum Captured {
    Map { table_id: u64, body: Bytes },
    Rows { head: RowsHead, body: Bytes },
}

/// A row with what it was read by.
struct ReadRow {
    map: TableMap,
    plan: TablePlan,
    pair: RowPair,
}

pub(super) static GOLDEN: LazyLock<Vec<Golden>> = LazyLock::new(|| {
    let mut paths = Vec::new();
    for folder in ["tests/golden/binlog", "tests/golden/rows"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        paths.extend(fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()));
    }
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
    paths.sort();
    paths.iter().map(|path| Golden::read(path)).collect()
});

/// Places to cut an event at: of a long one each of its first and last bytes.
pub(super) fn cuts(body: &[u8]) -> impl Iterator<Item = usize> {
    let length = body.len();
    (0..length).filter(move |end| *end < 100 || length - end < 100)
}

fn golden(name: &str) -> &'static Golden {
    GOLDEN.iter().find(|golden| golden.name == name).unwrap()
}

impl Golden {
    fn read(path: &Path) -> Self {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let (mut events, mut printed) = (Vec::new(), BTreeMap::<_, Vec<_>>::new());
        let mut described = described_by_hand(&name);
        let mut decoder = EventDecoder::new(MAX_EVENT_BYTES);
        for line in fs::read_to_string(path).unwrap().lines() {
            match *line.splitn(3, ' ').collect::<Vec<_>>() {
                ["E", _, digits] => {
                    let (_, event) = decoder.decode(unhex(digits)).unwrap();
                    push_event(event, &decoder, &mut events);
                }
                ["R", table, row] => {
                    let row = serde_json::from_str(row).unwrap();
                    printed.entry(table.to_owned()).or_default().push(row);
                }
                ["D", table, columns] => {
                    let columns: Vec<(String, String, Option<String>, bool)> = serde_json::from_str(columns).unwrap();
                    described.insert(table.to_owned(), described_table(columns));
                }
                _ => {}
            }
        }
        Self {
            name,
            events,
            printed,
            described,
        }
    }

    pub(super) fn flavor(&self) -> Flavor {
        if self.name.ends_with(".mysql") {
            Flavor::MySql
        } else {
            Flavor::MariaDb
        }
    }

    /// MariaDB keeps a long unique key's hash in a column that the log shows and the database does not.
    fn hides_columns(&self) -> bool {
        self.flavor() == Flavor::MariaDb && self.name.starts_with("rows-hidden") && !self.name.contains("-full")
    }

    fn plan(&self, map: &TableMap) -> Result<TablePlan, PlanError> {
        let described = self.described.get(&map.table);
        TablePlan::new(map, described.filter(|_| map.needs_description()))
    }

    /// Each table map with the database's description.
    pub(super) fn described_maps(&self) -> Vec<(TableMap, DescribedTable)> {
        let maps = self.events.iter().filter_map(|event| match event {
            Captured::Map { body, .. } => TableMap::parse(body, self.flavor()).ok(),
            Captured::Rows { .. } => None,
        });
        maps.filter(|_| !self.hides_columns())
            .filter_map(|map| Some((self.described.get(&map.table)?.clone(), map)))
            .map(|(described, map)| (map, described))
            .collect()
    }

    /// Each rows event with its table's plan.
    pub(super) fn planned(&self) -> Vec<(TableMap, TablePlan, RowsKind, Bytes)> {
        let (mut plans, mut planned) = (HashMap::new(), Vec::new());
        for event in &self.events {
            match event {
                Captured::Map { table_id, body } => {
                    let map = TableMap::parse(body, self.flavor()).unwrap();
                    let names = (map.schema.as_str(), map.table.as_str());
                    assert_eq!(TableMap::name_of(body), Ok(names));
                    match self.plan(&map) {
                        Ok(plan) => {
                            plans.insert(*table_id, (map, plan));
                        }
                        Err(error) => assert!(self.hides_columns(), "{}: {error}", self.name),
                    }
                }
                Captured::Rows { head, body } => {
                    let known: Option<&(TableMap, TablePlan)> = plans.get(&head.table_id);
                    planned.extend(known.map(|(map, plan)| (map.clone(), plan.clone(), head.kind, body.clone())));
                }
            }
        }
        planned
    }

    /// Every row, read one after the other as well as from each place on.
    fn rows(&self) -> Vec<ReadRow> {
        let mut read = Vec::new();
        for (map, plan, kind, body) in self.planned() {
            // Its rows are differences, which cannot be read.
            if self.name == "partial-json.mysql" {
                continue;
            }
            let rows = || Rows::new(&plan, kind, body.clone()).unwrap();
            let pairs: Vec<_> = rows()
                .map(|pair| pair.unwrap_or_else(|error| panic!("{}: {error:?}", self.name)))
                .collect();
            assert_eq!(count_rows(&plan, kind, &body), Ok(pairs.len() as u64));
            for skipped in 0..pairs.len() + 2 {
                let mut rows = rows();
                assert_eq!(rows.skip_rows(skipped as u64), Ok(skipped.min(pairs.len()) as u64));
                assert!(rows.map(Result::unwrap).eq(pairs.iter().skip(skipped).cloned()));
            }
            for pair in pairs {
                let (map, plan) = (map.clone(), plan.clone());
                read.push(ReadRow { map, plan, pair });
            }
        }
        read
    }

    /// Each row as the texts of its sides: `kind table before -> after`.
    fn shown(&self) -> Vec<String> {
        let side = |plan: &TablePlan, row: &Option<Row>| match row {
            Some(row) => {
                let columns = plan.table().columns.iter().zip(&row.values);
                let cells = columns.map(|(column, value)| format!("{}={}", column.name, plainly(value)));
                format!(" {}", cells.collect::<Vec<_>>().join(","))
            }
            None => String::new(),
        };
        let rows = self.rows();
        rows.iter()
            .map(|ReadRow { plan, pair, .. }| {
                let (before, after) = (side(plan, &pair.before), side(plan, &pair.after));
                format!("{}{before} ->{after}", plan.table().name)
            })
            .collect()
    }
}

fn push_event(event: Event, decoder: &EventDecoder, events: &mut Vec<Captured>) {
    match event {
        Event::TableMap(map) => events.push(Captured::Map {
            table_id: map.table_id,
            body: map.body,
        }),
        Event::Rows(rows) => events.push(Captured::Rows {
            head: rows.head,
            body: rows.body,
        }),
        Event::TransactionPayload(payload) => {
            let mut inside = PayloadReader::new(payload, MAX_EVENT_BYTES).unwrap();
            while let Some(inner) = inside.next().unwrap() {
                let Inner::Event(event) = inner else { panic!() };
                let (_, event) = decoder.decode_inner(event).unwrap();
                push_event(event, decoder, events);
            }
        }
        _ => {}
    }
}

fn unhex(digits: &str) -> Bytes {
    let pairs = digits.as_bytes().chunks(2);
    pairs
        .map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn plainly(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Text(text) => String::from_utf8(text.to_vec()).unwrap(),
        Value::Bytes(bytes) => format!("0x{}", hex(bytes)),
        Value::Absent => "absent".to_owned(),
        Value::Unchanged => panic!(),
    }
}

fn described_table(columns: Vec<(String, String, Option<String>, bool)>) -> DescribedTable {
    let columns = columns
        .into_iter()
        .map(|(name, column_type, charset, key)| DescribedColumn {
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
fn described_by_hand(case: &str) -> BTreeMap<String, DescribedTable> {
    let (name, server) = case.split_once('.').unwrap();
    let (json, json_charset) = match server {
        "mysql" => ("json", None),
        _ => ("longtext", Some("utf8mb4")),
    };
    let text = Some("utf8mb4");
    let (tables, columns): (&[&str], _) = match name {
        "maria-old-temporal" => (
            &["ot"],
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
            &["mt"],
            vec![("u", "uuid", None), ("i4", "inet4", None), ("i6", "inet6", None)],
        ),
        _ if name.starts_with("types-") => (&["types"], vec![("b16", "binary(16)", None), ("b4", "binary(4)", None)]),
        _ if name.starts_with("rows-") => (&[], vec![]),
        _ => (
            &["outbox", "outbox2"],
            vec![
                ("id", "binary(16)", None),
                ("aggregatetype", "varchar(255)", text),
                ("aggregateid", "varchar(255)", text),
                ("type", "varchar(255)", text),
                ("payload", json, json_charset),
                ("created_at", "timestamp(6)", None),
            ],
        ),
    };
    let owned = |(name, column_type, charset): (&str, &str, Option<&str>)| {
        (
            name.to_owned(),
            column_type.to_owned(),
            charset.map(str::to_owned),
            false,
        )
    };
    let described = described_table(columns.into_iter().map(owned).collect());
    tables
        .iter()
        .map(|table| ((*table).to_owned(), described.clone()))
        .collect()
}

/// A value as the captured text has it: bytes in hexadecimal, of BIT without leading zeros; long text as its hash.
fn as_printed(value: &Value, kind: ColumnType, printed: &Json) -> Json {
    let shown = match value {
        Value::Null => return Json::Null,
        Value::Bytes(bytes) => {
            let digits = hex(bytes);
            let found = match (kind, printed) {
                (ColumnType::Bit { .. }, Json::String(printed)) => {
                    let digits = digits.trim_start_matches('0');
                    format!("{digits:0>0$}", printed.len() - 2)
                }
                _ => digits,
            };
            format!("0x{found}")
        }
        Value::Text(_) | Value::Absent | Value::Unchanged => plainly(value),
    };
    match printed {
        Json::String(printed) if printed.starts_with("sha256:") => {
            let hash = hex(&Sha256::digest(&shown));
            Json::String(format!("sha256:{hash} {}", shown.chars().count()))
        }
        _ => Json::String(shown),
    }
}

#[test]
fn rows_are_what_the_server_prints() {
    for golden in GOLDEN.iter() {
        let mut rows: BTreeMap<String, Vec<_>> = BTreeMap::new();
        for row in golden.rows() {
            if row.pair.before.is_none() {
                rows.entry(row.map.table.clone()).or_default().push(row);
            }
        }
        for (table, printed) in &golden.printed {
            let read = rows.get(table).map(Vec::as_slice).unwrap_or_default();
            if golden.hides_columns() {
                assert_eq!(read.len(), 0);
                continue;
            }
            assert_eq!(read.len(), printed.len(), "{} {table}", golden.name);
            for (ReadRow { map, plan, pair }, printed) in read.iter().zip(printed) {
                let row = pair.after.as_ref().unwrap();
                let cells = plan.table().columns.iter().zip(&map.columns).zip(&row.values);
                let mut compared = 0;
                for ((column, mapped), value) in cells {
                    // A column that only the log shows has no text.
                    let Some(printed) = printed.get(&column.name) else {
                        continue;
                    };
                    let found = as_printed(value, mapped.kind, printed);
                    assert_eq!(found, *printed, "{} {table}.{}", golden.name, column.name);
                    compared += 1;
                }
                assert_eq!(compared, printed.len(), "{} {table}", golden.name);
            }
        }
    }
}

/// Native JSON must stay JSON: what is called a number is one, but for YEAR 0 and what a reader falls back on.
#[test]
fn kinds_are_what_the_texts_are() {
    for golden in GOLDEN.iter() {
        for ReadRow { plan, pair, .. } in golden.rows() {
            let rows = pair.before.iter().chain(&pair.after);
            for (column, value) in rows.flat_map(|row| plan.table().columns.iter().zip(&row.values)) {
                let text = match value {
                    Value::Text(text) => str::from_utf8(text).unwrap(),
                    Value::Bytes(_) => {
                        assert_eq!(column.kind, ColumnKind::Binary, "{}", column.name);
                        continue;
                    }
                    Value::Null | Value::Absent => continue,
                    Value::Unchanged => panic!(),
                };
                match column.kind {
                    ColumnKind::Integer if text != "0000" => {
                        let number = text.parse::<i64>().map(|_| ());
                        assert!(number.or(text.parse::<u64>().map(|_| ())).is_ok(), "{text}");
                    }
                    ColumnKind::Float | ColumnKind::Numeric | ColumnKind::Json => {
                        assert!(serde_json::from_str::<Json>(text).is_ok(), "{text}");
                    }
                    ColumnKind::Uuid => assert_eq!(text.len(), 36),
                    kind => assert_ne!(kind, ColumnKind::Binary, "{}", column.name),
                }
            }
        }
    }
}

#[test]
fn columns_that_an_image_leaves_out_are_absent() {
    for server in ["mysql", "mariadb"] {
        let minimal = golden(&format!("image-minimal.{server}")).shown();
        let unkeyed = match server {
            "mysql" => "bh -> id=1,a=absent,b=absent,c=absent",
            // Without a primary key MariaDB leaves nothing out.
            _ => "bh -> id=1,a=dflt,b=null,c=5",
        };
        let expected = [
            "im -> id=1,a=absent,b=absent,c=1",
            "im id=1,a=absent,b=absent,c=absent -> id=absent,a=absent,b=absent,c=2",
            "im id=1,a=absent,b=absent,c=absent ->",
            unkeyed,
            "bh -> id=2,a=x,b=y,c=null",
        ];
        assert_eq!(minimal, expected, "{server}");

        let noblob = golden(&format!("image-noblob.{server}")).shown();
        let expected = [
            "im -> id=1,a=dflt,b=blob,c=1",
            "im id=1,a=dflt,b=absent,c=1 -> id=1,a=dflt,b=absent,c=2",
            "im id=1,a=dflt,b=absent,c=2 -> id=1,a=dflt,b=new,c=2",
            "im id=1,a=dflt,b=absent,c=2 ->",
        ];
        assert_eq!(noblob[..4], expected, "{server}");

        let full = golden(&format!("image-full.{server}")).shown();
        let expected = [
            "im -> id=1,a=dflt,b=blob,c=1",
            "im id=1,a=dflt,b=blob,c=1 -> id=1,a=dflt,b=blob,c=2",
            "im id=1,a=dflt,b=blob,c=2 ->",
        ];
        assert_eq!(full, expected, "{server}");
    }
}

#[test]
fn row_of_nothing_but_defaults_is_one_row() {
    let found = golden("rows-no-columns-full.mysql").shown();
    assert_eq!(found, ["nc -> a=absent,b=absent", "nc -> a=5,b=absent"]);
}

#[test]
fn altered_table_is_read_by_its_new_map() {
    let found = golden("alter.mysql").shown();
    let id = |last| format!("0x00112233445566778899aabbccddee{last}");
    let payload = r#"{"a": null, "n": 1.5, "s": "é ☃ 😀"}"#;
    let rest = format!("payload={payload},created_at=2026-01-02 03:04:05.678901");
    let (first, second) = (id("01"), id("02"));
    let expected = [
        format!("outbox -> id={first},aggregatetype=Order,aggregateid=1,type=Created,{rest}"),
        format!("outbox -> id={second},aggregatetype=Order,aggregateid=2,type=Created,{rest},tenant=7"),
        format!(
            "outbox -> id=0x01{},aggregatetype=Order,aggregateid=null,payload=null,created_at=null,tenant=8",
            "00".repeat(15)
        ),
    ];
    assert_eq!(found, expected);
}

#[test]
fn updates_of_parts_of_json_are_refused_and_counted() {
    let golden = golden("partial-json.mysql");
    let updates = golden.planned();
    assert_eq!(updates.len(), 2);
    for (_, plan, kind, body) in updates {
        let rows: Vec<_> = Rows::new(&plan, kind, body.clone()).unwrap().collect();
        let [Err(error)] = rows.as_slice() else {
            panic!("{rows:?}")
        };
        let expected = "update of `golden.pj` holds a difference of the JSON document `j`, expected the whole one";
        assert_eq!(error.to_string(), expected);
        assert_eq!(count_rows(&plan, kind, &body), Ok(1));
    }
}

/// One event has rows of each kind: whole, of the unchanged document, of a difference.
#[test]
fn of_an_event_with_differences_the_other_rows_are_read() {
    let updates = golden("partial-json.mysql").planned();
    let (_, plan, kind, body) = &updates[0];
    let columns = b"\x02\xff\xff".as_slice();
    // NULL bits, id, document.
    let old = &body[3..][..1 + 4 + 4 + 64];
    let difference = &body[3 + old.len()..];
    let new_id = b"\0\x02\0\0\0".as_slice();
    let document = &old[5..];
    let body = [
        columns,
        &[old, b"\0", new_id, document].concat(),
        &[old, b"\x01\x01", new_id, b"\0\0\0\0"].concat(),
        &[old, difference].concat(),
        &[old, b"\x01\0", new_id, document].concat(),
        &[old, b"\x01\x01\x02\x02\0\0\0"].concat(),
        // Of an old row without a document nothing can stay.
        b"\x02\x01\0\0\0\x01\x01\0\x02\0\0\0\0\0\0\0",
    ]
    .concat();
    let rows = || Rows::new(plan, *kind, Bytes::from(body.clone())).unwrap();
    let found: Vec<_> = rows().collect();
    let text = r#"{"a": 1, "b": "xxxxxxxxxxxxxxxxxxxxxxxx", "c": [1, 2]}"#;
    let row = |id, document: Option<&str>| {
        let text = |text: &str| Value::Text(Bytes::copy_from_slice(text.as_bytes()));
        let values = vec![text(id), document.map_or(Value::Null, text)];
        Some(Row { values })
    };
    let (before, whole) = (row("1", Some(text)), row("2", Some(text)));
    let pair = |after: &Option<Row>| {
        let (before, after) = (before.clone(), after.clone());
        Ok(RowPair { before, after })
    };
    assert_eq!(found.len(), 6);
    assert_eq!(found[..2], [pair(&whole), pair(&whole)]);
    assert!(matches!(&found[2], Err(RowError::Difference { column, .. }) if column == "j"));
    assert_eq!(found[3..5], [pair(&whole), pair(&row("2", None))]);
    assert!(matches!(&found[5], Err(RowError::Difference { .. })));
    assert_eq!(count_rows(plan, *kind, &body.clone().into()), Ok(6));
    for skipped in 0..=found.len() {
        let mut rows = rows();
        assert_eq!(rows.skip_rows(skipped as u64), Ok(skipped as u64));
        assert!(rows.eq(found[skipped..].iter().cloned()));
    }
}

/// As with `binlog_row_image=NOBLOB`.
#[test]
fn a_document_that_did_not_change_and_that_no_row_has_is_unchanged() {
    let updates = golden("partial-json.mysql").planned();
    let (_, plan, kind, _) = &updates[0];
    let body = b"\x02\x01\x03\0\x01\0\0\0\x01\x01\0\x01\0\0\0\0\0\0\0".as_slice();
    let rows: Vec<_> = Rows::new(plan, *kind, Bytes::from_static(body)).unwrap().collect();
    let after = rows[0].as_ref().unwrap().after.as_ref().unwrap();
    assert_eq!(after.values[1], Value::Unchanged);
}

#[test]
fn primary_key_is_known_from_the_log_or_the_database() {
    for golden in GOLDEN.iter().filter(|golden| golden.name.starts_with("rows-keys")) {
        let mut keys = BTreeMap::new();
        for (map, plan, ..) in golden.planned() {
            let columns = plan.table().columns.iter().filter(|column| column.key);
            let names: Vec<_> = columns.map(|column| column.name.clone()).collect();
            assert_eq!(plan.table().keyed, !names.is_empty());
            keys.insert(map.table.clone(), names.join(","));
        }
        // A unique key stands in for a primary one that is not there.
        let expected = [("k1", "b,d"), ("k2", "a,c"), ("k3", "b")];
        let expected = expected.map(|(table, key)| (table.to_owned(), key.to_owned()));
        assert_eq!(keys, BTreeMap::from(expected), "{}", golden.name);
    }
}

#[test]
fn hidden_columns_of_mariadb_are_named_in_the_log_only() {
    let plan = &golden("rows-hidden-full.mariadb").planned()[0].1;
    let names: Vec<_> = plan.table().columns.iter().map(|column| column.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "j", "DB_ROW_HASH_1"]);

    let unnamed = golden("rows-hidden-no-log.mariadb");
    let Captured::Map { body, .. } = &unnamed.events[0] else {
        panic!()
    };
    let map = TableMap::parse(body, Flavor::MariaDb).unwrap();
    let error = unnamed.plan(&map).unwrap_err().to_string();
    let expected = "`golden.hi` has 3 columns in the database, expected 4 as in the log: it was altered since, or has \
                    columns that only the log shows; set binlog_row_metadata=FULL in the server";
    assert_eq!(error, expected);
}
