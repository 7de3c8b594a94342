//! Made-up tables whose rows are written as a server writes them, and what their values are: what reading is held against.

use bytes::Bytes;
use proptest::prelude::*;

use super::plan::TablePlan;
use super::sample::{self, SampleColumn, lenenc, text};
use crate::row::Value;
use crate::source::mysql::RowsKind;

/// One event, and the rows that are in it.
#[derive(Debug, Clone)]
pub(super) struct Model {
    columns: Vec<SampleColumn>,
    pub(super) kind: RowsKind,
    pub(super) body: Vec<u8>,
    pub(super) rows: Vec<ModelRow>,
}

#[derive(Debug, Clone)]
pub(super) struct ModelRow {
    pub(super) before: Option<Vec<Value>>,
    pub(super) after: Option<Vec<Value>>,
}

/// A cell as it is written, with its value; none for NULL.
type Cell = Option<(Vec<u8>, Value)>;

impl Model {
    pub(super) fn plan(&self) -> TablePlan {
        sample::plan(&self.columns)
    }
}

pub(super) fn model() -> impl Strategy<Value = Model> {
    let columns = prop::collection::vec(column(), 1..20);
    let kinds = prop::sample::select(vec![RowsKind::Write, RowsKind::Update, RowsKind::Delete]);
    (columns, kinds).prop_flat_map(|(columns, kind)| {
        let (columns, cells): (Vec<_>, Vec<_>) = columns.into_iter().unzip();
        let present = prop::collection::vec(any::<bool>(), columns.len());
        let side = || {
            cells
                .iter()
                .map(|cell| prop::option::weighted(0.8, cell.clone()))
                .collect::<Vec<_>>()
        };
        let rows = prop::collection::vec((side(), side()), 0..8);
        (present.clone(), present, rows).prop_map(move |(mut before, mut after, rows)| {
            // A row without a byte is another matter.
            before[0] = true;
            after[0] = true;
            event(&columns, kind, [&before, &after], &rows)
        })
    })
}

fn event(columns: &[SampleColumn], kind: RowsKind, present: [&[bool]; 2], rows: &[(Vec<Cell>, Vec<Cell>)]) -> Model {
    let (has_before, has_after) = (kind != RowsKind::Write, kind != RowsKind::Delete);
    let [before_present, after_present] = present;
    let mut body = lenenc(columns.len());
    for (is_there, present) in [(has_before, before_present), (has_after, after_present)] {
        if is_there {
            body.extend(bitmap(present));
        }
    }
    let rows = rows.iter().map(|(before, after)| ModelRow {
        before: has_before.then(|| write(before, before_present, &mut body)),
        after: has_after.then(|| write(after, after_present, &mut body)),
    });
    let rows = rows.collect();
    Model {
        columns: columns.to_vec(),
        kind,
        body,
        rows,
    }
}

fn bitmap(bits: &[bool]) -> Vec<u8> {
    let bytes = bits.chunks(8);
    bytes
        .map(|bits| bits.iter().rev().fold(0, |byte, bit| byte << 1 | u8::from(*bit)))
        .collect()
}

fn write(cells: &[Cell], present: &[bool], body: &mut Vec<u8>) -> Vec<Value> {
    let written = || {
        cells
            .iter()
            .zip(present)
            .filter(|(_, present)| **present)
            .map(|(cell, _)| cell)
    };
    body.extend(bitmap(&written().map(Option::is_none).collect::<Vec<_>>()));
    body.extend(written().flatten().flat_map(|(raw, _)| raw.clone()));
    let values = cells.iter().zip(present).map(|(cell, present)| match cell {
        _ if !present => Value::Absent,
        None => Value::Null,
        Some((_, value)) => value.clone(),
    });
    values.collect()
}

fn column() -> impl Strategy<Value = (SampleColumn, BoxedStrategy<(Vec<u8>, Value)>)> {
    prop_oneof![
        integer(),
        decimal(),
        real(),
        time(),
        datetime(),
        date_or_year(),
        string(),
        blob(),
        fixed_bytes(),
        choice(),
        set(),
        bits(),
    ]
}

type Column = BoxedStrategy<(SampleColumn, BoxedStrategy<(Vec<u8>, Value)>)>;

fn integer() -> Column {
    let types = prop::sample::select(vec![(1_u8, 1_usize), (2, 2), (9, 3), (3, 4), (8, 8)]);
    (types, any::<bool>())
        .prop_map(|((code, bytes), unsigned)| {
            let shift = 64 - 8 * bytes as u32;
            let cell = any::<i64>().prop_map(move |number| {
                let (signed, plain) = (number >> shift, number as u64 >> shift);
                let shown = if unsigned {
                    plain.to_string()
                } else {
                    signed.to_string()
                };
                (signed.to_le_bytes()[..bytes].to_vec(), text(&shown))
            });
            (SampleColumn::new(code, b"").unsigned(unsigned), cell.boxed())
        })
        .boxed()
}

/// In digits, group by group.
fn decimal() -> Column {
    (1_u8..=65)
        .prop_flat_map(|precision| (Just(precision), 0..=precision.min(30)))
        .prop_map(|(precision, scale)| {
            let digits = prop::collection::vec(0_u8..10, usize::from(precision));
            let cell = (digits, any::<bool>()).prop_map(move |(digits, negative)| {
                let (whole, fraction) = digits.split_at(usize::from(precision - scale));
                let mut raw = Vec::new();
                let (first, groups) = whole.split_at(whole.len() % 9);
                raw.extend(group(first));
                groups
                    .chunks(9)
                    .chain(fraction.chunks(9))
                    .for_each(|digits| raw.extend(group(digits)));
                raw[0] ^= 0x80;
                if negative {
                    raw.iter_mut().for_each(|byte| *byte = !*byte);
                }
                let show = |digits: &[u8]| digits.iter().map(|digit| digit.to_string()).collect::<String>();
                let (whole, fraction) = (show(whole), show(fraction));
                let whole = whole.trim_start_matches('0');
                let point = if scale > 0 { "." } else { "" };
                let sign = if negative { "-" } else { "" };
                let whole = if whole.is_empty() { "0" } else { whole };
                (raw, text(&format!("{sign}{whole}{point}{fraction}")))
            });
            (SampleColumn::new(246, &[precision, scale]), cell.boxed())
        })
        .boxed()
}

fn group(digits: &[u8]) -> Vec<u8> {
    let bytes = [0, 1, 1, 2, 2, 3, 3, 4, 4, 4][digits.len()];
    let number = digits
        .iter()
        .fold(0_u32, |number, digit| number * 10 + u32::from(*digit));
    number.to_be_bytes()[4 - bytes..].to_vec()
}

/// Whole numbers that both types hold exactly.
fn real() -> Column {
    let float =
        (-99_999_i32..=99_999).prop_map(|number| ((number as f32).to_le_bytes().to_vec(), text(&number.to_string())));
    let double = any::<i32>().prop_map(|number| (f64::from(number).to_le_bytes().to_vec(), text(&number.to_string())));
    prop_oneof![
        Just((SampleColumn::new(4, &[4]), float.boxed())),
        Just((SampleColumn::new(5, &[8]), double.boxed())),
    ]
    .boxed()
}

/// The stored fraction and its digits.
fn fraction(microsecond: u64, digits: u8) -> (Vec<u8>, String) {
    let digits = usize::from(digits);
    let kept = format!("{microsecond:06}")[..digits].to_owned();
    let even = format!("{kept:0<width$}", width = digits.div_ceil(2) * 2);
    let number: u64 = even.parse().unwrap_or(0);
    let raw = number.to_be_bytes()[8 - digits.div_ceil(2)..].to_vec();
    (raw, if digits == 0 { String::new() } else { format!(".{kept}") })
}

fn time() -> Column {
    (0_u8..=6)
        .prop_map(|digits| {
            let parts = (0_u64..839, 0_u64..60, 0_u64..60, 0_u64..1_000_000, any::<bool>());
            let cell = parts.prop_map(move |(hour, minute, second, microsecond, negative)| {
                let (raw, shown) = fraction(microsecond, digits);
                let bits = 8 * raw.len() as u32;
                let packed = (hour << 12 | minute << 6 | second) << bits
                    | raw.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
                let middle = 0x80_0000_u64 << bits;
                let number = if negative { middle - packed } else { middle + packed };
                let sign = if negative && packed > 0 { "-" } else { "" };
                let bytes = number.to_be_bytes()[8 - 3 - raw.len()..].to_vec();
                (bytes, text(&format!("{sign}{hour:02}:{minute:02}:{second:02}{shown}")))
            });
            (SampleColumn::new(19, &[digits]), cell.boxed())
        })
        .boxed()
}

fn datetime() -> Column {
    (0_u8..=6)
        .prop_map(|digits| {
            let date = (0_u64..=9999, 0_u64..=12, 0_u64..=31);
            let clock = (0_u64..24, 0_u64..60, 0_u64..60, 0_u64..1_000_000);
            let cell = (date, clock).prop_map(move |((year, month, day), (hour, minute, second, microsecond))| {
                let (raw, shown) = fraction(microsecond, digits);
                let packed = (year * 13 + month) << 22 | day << 17 | hour << 12 | minute << 6 | second;
                let mut bytes = (packed | 1 << 39).to_be_bytes()[3..].to_vec();
                bytes.extend(raw);
                let shown = format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}{shown}");
                (bytes, text(&shown))
            });
            (SampleColumn::new(18, &[digits]), cell.boxed())
        })
        .boxed()
}

fn date_or_year() -> Column {
    let date = (0_u32..=9999, 0_u32..=12, 0_u32..=31).prop_map(|(year, month, day)| {
        let raw = (year << 9 | month << 5 | day).to_le_bytes()[..3].to_vec();
        (raw, text(&format!("{year:04}-{month:02}-{day:02}")))
    });
    let year = any::<u8>().prop_map(|year| {
        let shown = if year == 0 { 0 } else { 1900 + u32::from(year) };
        (vec![year], text(&format!("{shown:04}")))
    });
    prop_oneof![
        Just((SampleColumn::new(10, b""), date.boxed())),
        Just((SampleColumn::new(13, b"").unsigned(true), year.boxed())),
    ]
    .boxed()
}

fn counted(bytes: &[u8], length_bytes: usize) -> Vec<u8> {
    [&bytes.len().to_le_bytes()[..length_bytes], bytes].concat()
}

/// In utf8mb4, latin1 or utf16.
fn string() -> Column {
    let lengths = prop::sample::select(vec![80_u16, 255, 256, 1020]);
    (lengths, prop::sample::select(vec![45_u16, 8, 54]), any::<bool>())
        .prop_map(|(bytes, collation, fixed)| {
            let cell = "[ a-zé€]{0,20}".prop_map(move |string| {
                let raw = match collation {
                    45 => string.as_bytes().to_vec(),
                    8 => encoding_rs::WINDOWS_1252.encode(&string).0.into_owned(),
                    _ => string.encode_utf16().flat_map(u16::to_be_bytes).collect(),
                };
                (counted(&raw, if bytes < 256 { 1 } else { 2 }), text(&string))
            });
            let [low, high] = bytes.to_le_bytes();
            let column = if fixed {
                SampleColumn::new(254, &[254 ^ high << 4, low])
            } else {
                SampleColumn::new(15, &[low, high])
            };
            (column.in_collation(collation), cell.boxed())
        })
        .boxed()
}

fn blob() -> Column {
    (1_usize..=4, prop::sample::select(vec![252_u8, 255]))
        .prop_map(|(length_bytes, code)| {
            let cell = any::<Vec<u8>>().prop_map(move |bytes| {
                let raw = counted(&bytes, length_bytes);
                (raw, Value::Bytes(bytes.into()))
            });
            (
                SampleColumn::new(code, &[length_bytes as u8]).in_collation(63),
                cell.boxed(),
            )
        })
        .boxed()
}

fn fixed_bytes() -> Column {
    (1_u8..=255)
        .prop_map(|length| {
            let cell = prop::collection::vec(0_u8..3, usize::from(length)).prop_map(|bytes| {
                let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
                (counted(&bytes[..end], 1), Value::Bytes(bytes.into()))
            });
            (SampleColumn::new(254, &[254, length]).in_collation(63), cell.boxed())
        })
        .boxed()
}

fn named(count: usize) -> Vec<String> {
    (0..count).map(|index| format!("é{index}")).collect()
}

fn choice() -> Column {
    (1_usize..400)
        .prop_map(|count| {
            let strings = named(count);
            let bytes = if count < 256 { 1 } else { 2 };
            let column = SampleColumn::new(254, &[247, bytes as u8]);
            let column = column.of_strings(&strings.iter().map(String::as_str).collect::<Vec<_>>());
            let cell = (0..=count).prop_map(move |index| {
                let shown = if index == 0 { "" } else { &strings[index - 1] };
                (index.to_le_bytes()[..bytes].to_vec(), text(shown))
            });
            (column, cell.boxed())
        })
        .boxed()
}

fn set() -> Column {
    (1_usize..=64)
        .prop_map(|count| {
            let strings = named(count);
            let bytes = if count > 32 { 8 } else { count.div_ceil(8) };
            let column = SampleColumn::new(254, &[248, bytes as u8]);
            let column = column.of_strings(&strings.iter().map(String::as_str).collect::<Vec<_>>());
            let cell = any::<u64>().prop_map(move |bits| {
                let bits = bits & (u64::MAX >> (64 - count));
                let chosen = strings.iter().enumerate().filter(|(index, _)| bits >> index & 1 == 1);
                let chosen: Vec<_> = chosen.map(|(_, string)| string.as_str()).collect();
                (bits.to_le_bytes()[..bytes].to_vec(), text(&chosen.join(",")))
            });
            (column, cell.boxed())
        })
        .boxed()
}

fn bits() -> Column {
    (1_usize..=64)
        .prop_map(|bits| {
            let bytes = bits.div_ceil(8);
            let cell =
                prop::collection::vec(any::<u8>(), bytes).prop_map(|raw| (raw.clone(), Value::Bytes(Bytes::from(raw))));
            (
                SampleColumn::new(16, &[(bits % 8) as u8, (bits / 8) as u8]),
                cell.boxed(),
            )
        })
        .boxed()
}
