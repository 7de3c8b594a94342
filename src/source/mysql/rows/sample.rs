//! Table maps and rows that tests make up.

use bytes::Bytes;

use super::plan::TablePlan;
use super::table_map::{Flavor, TableMap};
use crate::row::Value;

/// A column of a made-up map, with all its metadata.
#[derive(Debug, Clone)]
pub(super) struct SampleColumn {
    pub(super) code: u8,
    pub(super) metadata: Vec<u8>,
    pub(super) unsigned: bool,
    pub(super) collation: u16,
    pub(super) strings: Vec<Vec<u8>>,
}

impl SampleColumn {
    pub(super) fn new(code: u8, metadata: &[u8]) -> Self {
        Self {
            code,
            metadata: metadata.to_vec(),
            unsigned: false,
            collation: 45,
            strings: Vec::new(),
        }
    }

    pub(super) fn unsigned(self, unsigned: bool) -> Self {
        Self { unsigned, ..self }
    }

    pub(super) fn in_collation(self, collation: u16) -> Self {
        Self { collation, ..self }
    }

    pub(super) fn of_strings(self, strings: &[&str]) -> Self {
        let strings = strings.iter().map(|string| string.as_bytes().to_vec()).collect();
        Self { strings, ..self }
    }

    fn is_choice(&self) -> bool {
        self.code == 254 && matches!(self.metadata[0], 247 | 248)
    }

    fn is_set(&self) -> bool {
        self.code == 254 && self.metadata[0] == 248
    }
}

pub(super) fn lenenc(number: usize) -> Vec<u8> {
    let bytes = (number as u64).to_le_bytes();
    match number {
        0..=250 => vec![bytes[0]],
        251..=0xFFFF => [&[0xFC], &bytes[..2]].concat(),
        0x1_0000..=0xFF_FFFF => [&[0xFD], &bytes[..3]].concat(),
        _ => [&[0xFE], &bytes[..]].concat(),
    }
}

pub(super) fn lenenc_bytes(bytes: &[u8]) -> Vec<u8> {
    [&lenenc(bytes.len())[..], bytes].concat()
}

/// A field of a map's metadata.
pub(super) fn field(code: u8, value: &[u8]) -> Vec<u8> {
    [&[code][..], &lenenc_bytes(value)].concat()
}

/// The map of `s.t` without metadata, as with MariaDB's NO_LOG.
pub(super) fn bare_map(columns: &[SampleColumn]) -> Vec<u8> {
    let codes: Vec<_> = columns.iter().map(|column| column.code).collect();
    let metadata: Vec<_> = columns.iter().flat_map(|column| column.metadata.clone()).collect();
    let nullable = vec![0xFF; columns.len().div_ceil(8)];
    [
        b"\x01s\0\x01t\0".as_slice(),
        &lenenc_bytes(&codes),
        &lenenc_bytes(&metadata),
        &nullable,
    ]
    .concat()
}

/// Everything that MySQL logs with FULL. The columns are named `c0`, `c1` and so on.
pub(super) fn full_map(columns: &[SampleColumn]) -> Vec<u8> {
    let names: Vec<_> = (0..columns.len())
        .flat_map(|index| lenenc_bytes(format!("c{index}").as_bytes()))
        .collect();
    let mut signs = Vec::new();
    let numeric = columns
        .iter()
        .filter(|column| matches!(column.code, 1..=5 | 8 | 9 | 13 | 246));
    for (index, column) in numeric.enumerate() {
        signs.resize(index / 8 + 1, 0);
        signs[index / 8] |= u8::from(column.unsigned) << (7 - index % 8);
    }
    let collations = |choice: bool| {
        let counted = columns.iter().filter(move |column| match choice {
            true => column.is_choice(),
            false => matches!(column.code, 15 | 140 | 141 | 242 | 252 | 254) && !column.is_choice(),
        });
        counted
            .flat_map(|column| lenenc(usize::from(column.collation)))
            .collect::<Vec<_>>()
    };
    let strings = |set: bool| {
        let counted = columns
            .iter()
            .filter(move |column| column.is_choice() && column.is_set() == set);
        let strings = counted.flat_map(|column| {
            let strings = column.strings.iter().flat_map(|string| lenenc_bytes(string));
            lenenc(column.strings.len()).into_iter().chain(strings)
        });
        strings.collect::<Vec<_>>()
    };
    [
        bare_map(columns),
        field(1, &signs),
        field(3, &collations(false)),
        field(4, &names),
        field(5, &strings(true)),
        field(6, &strings(false)),
        field(11, &collations(true)),
    ]
    .concat()
}

pub(super) fn plan(columns: &[SampleColumn]) -> TablePlan {
    let map = TableMap::parse(&full_map(columns).into(), Flavor::MySql).unwrap();
    TablePlan::new(&map, None).unwrap()
}

/// The plan of one column of this type.
pub(super) fn plan_of(column: SampleColumn) -> TablePlan {
    plan(&[column])
}

/// A rows event's body of one image whose columns are all there.
pub(super) fn rows(column_count: usize, rows: &[&[u8]]) -> Bytes {
    let present = vec![0xFF; column_count.div_ceil(8)];
    [lenenc(column_count), present, rows.concat()].concat().into()
}

pub(super) fn text(text: &str) -> Value {
    Value::Text(Bytes::copy_from_slice(text.as_bytes()))
}
