//! The optional metadata at the end of a TABLE_MAP: fields of type, length and value, in any order, any of them missing.

use bytes::Bytes;

use super::column_type::ColumnType;
use super::reader::{ReadError, Reader, bit};
use super::table_map::{Flavor, MapColumn};

/// Metadata that does not fit its table.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MetadataError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("field {field} names column {found}, expected less than {expected}")]
    NoSuchColumn {
        field: &'static str,
        found: u64,
        expected: usize,
    },
    #[error("field {field} has {found} bytes too many")]
    Trailing { field: &'static str, found: usize },
    #[error("field {field} has {found} strings for a column, expected at most {expected}")]
    StringCount {
        field: &'static str,
        found: u64,
        expected: usize,
    },
    #[error("field {field} is not UTF-8")]
    NotUtf8 { field: &'static str },
}

const SIGNEDNESS: &str = "SIGNEDNESS";
const COLUMN_NAME: &str = "COLUMN_NAME";
const PRIMARY_KEY: &str = "PRIMARY_KEY";

/// Sets what the metadata says of the columns, and returns whether it lists a primary key. Fields that say nothing of
/// how cells are read are passed over.
pub(super) fn read(
    mut reader: Reader<'_>,
    flavor: Flavor,
    body: &Bytes,
    columns: &mut [MapColumn],
) -> Result<bool, MetadataError> {
    let is_character = |column: &MapColumn| column.kind.has_charset_entry(flavor);
    let mut has_key = false;
    while !reader.is_empty() {
        let field = reader.u8("type of a field")?;
        let value = Reader::new(reader.lenenc_bytes("value of a field")?);
        match field {
            1 => signedness(value, flavor, columns)?,
            2 => default_charset(value, "DEFAULT_CHARSET", columns, is_character)?,
            3 => column_charset(value, "COLUMN_CHARSET", columns, is_character)?,
            4 => names(value, columns)?,
            5 => strings(value, "SET_STR_VALUE", 64, body, columns, is_set)?,
            6 => strings(value, "ENUM_STR_VALUE", 65_535, body, columns, is_enum)?,
            8 | 9 => has_key |= primary_key(value, field == 9, columns)?,
            10 => default_charset(value, "ENUM_AND_SET_DEFAULT_CHARSET", columns, MapColumn::is_choice)?,
            11 => column_charset(value, "ENUM_AND_SET_COLUMN_CHARSET", columns, MapColumn::is_choice)?,
            _ => {}
        }
    }
    Ok(has_key)
}

fn is_set(column: &MapColumn) -> bool {
    matches!(column.kind, ColumnType::Set { .. })
}

fn is_enum(column: &MapColumn) -> bool {
    matches!(column.kind, ColumnType::Enum { .. })
}

/// A bit for each numeric column, the highest bit of a byte first; padding follows. Where it is not known whether a YEAR has
/// one, the signs behind it are not told.
fn signedness(mut value: Reader<'_>, flavor: Flavor, columns: &mut [MapColumn]) -> Result<(), MetadataError> {
    let is_year = |column: &MapColumn| matches!(column.kind, ColumnType::Year);
    let all_told = flavor != Flavor::MySql8 || !columns.iter().any(is_year);
    let numeric: Vec<_> = columns
        .iter_mut()
        .filter(|column| column.kind.is_numeric())
        .take_while(|column| all_told || !is_year(column))
        .collect();
    let bits = value.take(SIGNEDNESS, numeric.len().div_ceil(8))?;
    for (index, column) in numeric.into_iter().enumerate() {
        // Within a byte the order is the reverse of a bitmap's.
        column.unsigned = Some(bit(bits, index ^ 7));
    }
    if !all_told {
        return Ok(());
    }
    finish(value, SIGNEDNESS)
}

/// A collation for all columns of a class, then the exceptions: the n-th of them, its collation.
fn default_charset(
    mut value: Reader<'_>,
    field: &'static str,
    columns: &mut [MapColumn],
    of_class: impl Fn(&MapColumn) -> bool,
) -> Result<(), MetadataError> {
    let default = value.lenenc(field)?;
    let mut class: Vec<_> = columns.iter_mut().filter(|column| of_class(column)).collect();
    for column in &mut class {
        column.collation = Some(default);
    }
    while !value.is_empty() {
        let expected = class.len();
        let found = value.lenenc(field)?;
        let column = usize::try_from(found).ok().and_then(|index| class.get_mut(index));
        let column = column.ok_or(MetadataError::NoSuchColumn { field, found, expected })?;
        column.collation = Some(value.lenenc(field)?);
    }
    Ok(())
}

/// A collation for each column of a class.
fn column_charset(
    mut value: Reader<'_>,
    field: &'static str,
    columns: &mut [MapColumn],
    of_class: impl Fn(&MapColumn) -> bool,
) -> Result<(), MetadataError> {
    for column in columns.iter_mut().filter(|column| of_class(column)) {
        column.collation = Some(value.lenenc(field)?);
    }
    finish(value, field)
}

fn names(mut value: Reader<'_>, columns: &mut [MapColumn]) -> Result<(), MetadataError> {
    for column in columns.iter_mut() {
        let name = str::from_utf8(value.lenenc_bytes(COLUMN_NAME)?);
        let name = name.map_err(|_| MetadataError::NotUtf8 { field: COLUMN_NAME })?;
        column.name = Some(name.to_owned());
    }
    finish(value, COLUMN_NAME)
}

/// For each column of a class the count of its strings, then each of them.
fn strings(
    mut value: Reader<'_>,
    field: &'static str,
    expected: usize,
    body: &Bytes,
    columns: &mut [MapColumn],
    of_class: impl Fn(&MapColumn) -> bool,
) -> Result<(), MetadataError> {
    for column in columns.iter_mut().filter(|column| of_class(column)) {
        let found = value.lenenc(field)?;
        if found > expected as u64 {
            return Err(MetadataError::StringCount { field, found, expected });
        }
        // Each has at least the byte of its length: the bytes bound what a claimed count may allocate.
        let mut strings = Vec::new();
        for _ in 0..found {
            strings.push(body.slice_ref(value.lenenc_bytes(field)?));
        }
        column.strings = Some(strings);
    }
    finish(value, field)
}

/// The columns of the primary key; with prefixes, each before the characters that count of it (0 for all).
fn primary_key(mut value: Reader<'_>, with_prefixes: bool, columns: &mut [MapColumn]) -> Result<bool, MetadataError> {
    let expected = columns.len();
    let mut has_key = false;
    while !value.is_empty() {
        let found = value.lenenc(PRIMARY_KEY)?;
        let column = usize::try_from(found).ok().and_then(|index| columns.get_mut(index));
        let column = column.ok_or(MetadataError::NoSuchColumn {
            field: PRIMARY_KEY,
            found,
            expected,
        })?;
        column.key = true;
        has_key = true;
        if with_prefixes {
            value.lenenc(PRIMARY_KEY)?;
        }
    }
    Ok(has_key)
}

/// A list must not go on behind its last column: what it says would belong to other columns than thought.
fn finish(value: Reader<'_>, field: &'static str) -> Result<(), MetadataError> {
    match value.rest().len() {
        0 => Ok(()),
        found => Err(MetadataError::Trailing { field, found }),
    }
}
