//! A table as `information_schema.COLUMNS` describes it: what the log does not hold, and whether it is still the same
//! table.
//!
//! A description is of now, a table map of when the row was written. A column whose type is another one in each says that
//! the table was altered in between; one of the same type may have been altered too, which only
//! `binlog_row_metadata=FULL` rules out.

use std::borrow::Cow;

use super::charset::Charset;
use super::column_type::ColumnType;
use super::table_map::{BINARY, MapColumn};

/// The columns of a table, in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct DescribedTable {
    pub(crate) columns: Vec<DescribedColumn>,
}

/// A row of `information_schema.COLUMNS`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DescribedColumn {
    pub(crate) name: String,
    /// `COLUMN_TYPE`, such as `int(10) unsigned` or `enum('a','b')`. It begins with what `DATA_TYPE` says.
    pub(crate) column_type: String,
    /// `CHARACTER_SET_NAME`. Not a collation's id, which MariaDB does not tell of its newer ones.
    pub(crate) charset: Option<String>,
    /// `COLUMN_KEY` is `PRI`.
    pub(crate) key: bool,
}

/// What a description adds to what the log says of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HiddenType {
    Uuid,
    Inet4,
    Inet6,
}

/// `COLUMN_TYPE`, taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TypeText<'t> {
    name: &'t str,
    /// What stands in parentheses.
    arguments: &'t str,
    /// What follows, such as `unsigned`.
    attributes: &'t str,
}

impl DescribedColumn {
    pub(super) fn type_text(&self) -> TypeText<'_> {
        TypeText::of(&self.column_type)
    }

    /// Whether cells of the described type are laid out as the map says.
    pub(super) fn fits(&self, column: &MapColumn) -> bool {
        let text = self.type_text();
        let sign_fits = column.unsigned.is_none_or(|unsigned| unsigned == text.is_unsigned());
        let strings = column.strings.as_ref().map(Vec::len);
        let strings_fit = strings.is_none_or(|count| text.strings().is_some_and(|it| it.len() == count));
        sign_fits && strings_fit && self.charset_fits(column) && text.fits(column.kind, self.charset.as_deref())
    }

    fn charset_fits(&self, column: &MapColumn) -> bool {
        let Some(collation) = column.collation else { return true };
        match &self.charset {
            None => collation == BINARY,
            Some(name) => match Charset::from_name(name) {
                Some(charset) => u16::try_from(collation).ok().and_then(Charset::from_collation) == Some(charset),
                // Of a charset that can't be decoded the plan complains.
                None => true,
            },
        }
    }
}

impl<'t> TypeText<'t> {
    fn of(column_type: &'t str) -> Self {
        let (name, rest) = match column_type.find(['(', ' ']) {
            Some(end) => column_type.split_at(end),
            None => (column_type, ""),
        };
        // A string in an ENUM may hold a parenthesis; no attribute does.
        let arguments = rest.strip_prefix('(').and_then(|inside| inside.rsplit_once(')'));
        let (arguments, attributes) = arguments.unwrap_or(("", rest));
        Self {
            name,
            arguments,
            attributes,
        }
    }

    pub(super) fn is_unsigned(self) -> bool {
        self.attributes.split(' ').any(|word| word == "unsigned") || self.name == "year"
    }

    /// Fractional digits of a temporal type.
    pub(super) fn digits(self) -> Option<u8> {
        match self.arguments {
            "" => Some(0),
            digits => digits.parse().ok().filter(|digits| *digits <= 6),
        }
    }

    /// Types that are BINARY(4) and BINARY(16) to the log.
    pub(super) fn hidden_type(self) -> Option<HiddenType> {
        match self.name {
            "uuid" => Some(HiddenType::Uuid),
            "inet4" => Some(HiddenType::Inet4),
            "inet6" => Some(HiddenType::Inet6),
            _ => None,
        }
    }

    /// The strings of an ENUM or SET: none if the text is not what a server prints.
    pub(super) fn strings(self) -> Option<Vec<Cow<'t, str>>> {
        let mut strings = Vec::new();
        let mut rest = self.arguments;
        loop {
            let (string, behind) = quoted(rest)?;
            strings.push(string);
            match behind.strip_prefix(',') {
                Some(more) => rest = more,
                None if behind.is_empty() => return Some(strings),
                None => return None,
            }
        }
    }

    fn fits(self, kind: ColumnType, charset: Option<&str>) -> bool {
        let Self { name, arguments, .. } = self;
        let is_compressed = self.attributes.contains("COMPRESSED");
        let bytes = || self.length_in_bytes(charset);
        let digits_are = |digits| self.digits() == Some(digits);
        match kind {
            ColumnType::Integer { bytes } => integer_bytes(name) == Some(bytes),
            ColumnType::Year => name == "year",
            ColumnType::Float => name == "float",
            ColumnType::Double => name == "double",
            ColumnType::Decimal { precision, scale, .. } => {
                name == "decimal" && arguments == format!("{precision},{scale}")
            }
            ColumnType::Bit { bits } => name == "bit" && arguments.parse() == Ok(bits),
            ColumnType::Date => name == "date",
            ColumnType::Time { digits } => name == "time" && digits_are(digits),
            ColumnType::DateTime { digits } => name == "datetime" && digits_are(digits),
            ColumnType::Timestamp { digits } => name == "timestamp" && digits_are(digits),
            ColumnType::OldTime => name == "time" && self.digits().is_some(),
            ColumnType::OldDateTime => name == "datetime" && self.digits().is_some(),
            ColumnType::OldTimestamp => name == "timestamp" && self.digits().is_some(),
            ColumnType::Char { bytes: 4 } if name == "inet4" => true,
            ColumnType::Char { bytes: 16 } if matches!(name, "uuid" | "inet6") => true,
            ColumnType::Char { bytes: found } => matches!(name, "char" | "binary") && bytes() == Some(u32::from(found)),
            // MariaDB stores its vectors as bytes.
            ColumnType::VarChar { bytes: found } if name == "vector" => bytes() == Some(u32::from(found)),
            ColumnType::VarChar { bytes: found } => {
                matches!(name, "varchar" | "varbinary") && !is_compressed && bytes() == Some(u32::from(found))
            }
            ColumnType::CompressedVarChar { bytes: found } => {
                // The map counts the header of the compressed value.
                let bytes = bytes().and_then(|bytes| bytes.checked_add(1));
                matches!(name, "varchar" | "varbinary") && is_compressed && bytes == Some(u32::from(found))
            }
            ColumnType::Blob { length_bytes } => blob_length_bytes(name) == Some(length_bytes) && !is_compressed,
            ColumnType::CompressedBlob { length_bytes } => {
                blob_length_bytes(name) == Some(length_bytes) && is_compressed
            }
            ColumnType::Enum { bytes } => {
                let count = self.strings().map(|strings| strings.len());
                name == "enum" && count.is_some_and(|count| bytes == if count < 256 { 1 } else { 2 })
            }
            ColumnType::Set { bytes } => {
                let count = self.strings().map(|strings| strings.len());
                name == "set" && count.is_some_and(|count| usize::from(bytes) == set_bytes(count))
            }
            ColumnType::Json { .. } => name == "json",
            ColumnType::Geometry { .. } => GEOMETRIES.contains(&name),
            ColumnType::Vector { .. } => name == "vector",
        }
    }

    /// Lengths are declared in characters, and mapped in the bytes of as many of the longest.
    fn length_in_bytes(self, charset: Option<&str>) -> Option<u32> {
        let length: u32 = self.arguments.parse().ok()?;
        let longest = match charset {
            None if self.name == "vector" => 4,
            None => 1,
            Some(charset) => longest_character(charset),
        };
        length.checked_mul(longest)
    }
}

const GEOMETRIES: [&str; 9] = [
    "geometry",
    "point",
    "linestring",
    "polygon",
    "multipoint",
    "multilinestring",
    "multipolygon",
    "geomcollection",
    "geometrycollection",
];

fn integer_bytes(name: &str) -> Option<u8> {
    match name {
        "tinyint" => Some(1),
        "smallint" => Some(2),
        "mediumint" => Some(3),
        "int" => Some(4),
        "bigint" => Some(8),
        _ => None,
    }
}

fn blob_length_bytes(name: &str) -> Option<u8> {
    match name {
        "tinyblob" | "tinytext" => Some(1),
        "blob" | "text" => Some(2),
        "mediumblob" | "mediumtext" => Some(3),
        "longblob" | "longtext" => Some(4),
        _ => None,
    }
}

/// In bytes: `Maxlen` of `SHOW CHARACTER SET`.
fn longest_character(charset: &str) -> u32 {
    match charset {
        "utf8mb4" | "utf16" | "utf16le" | "utf32" | "gb18030" => 4,
        "utf8mb3" | "utf8" | "ujis" | "eucjpms" => 3,
        "big5" | "cp932" | "euckr" | "gb2312" | "gbk" | "sjis" | "ucs2" => 2,
        _ => 1,
    }
}

/// A bit for each string; over four bytes all eight are taken.
fn set_bytes(count: usize) -> usize {
    match count.div_ceil(8) {
        bytes @ ..=4 => bytes,
        _ => 8,
    }
}

/// The string at the start of a text, as servers quote the strings of an ENUM (`append_unescaped` in their sources), and
/// what stands behind it.
fn quoted(text: &str) -> Option<(Cow<'_, str>, &str)> {
    let inside = text.strip_prefix('\'')?;
    let mut unescaped = String::new();
    let mut plain = inside;
    loop {
        let (before, rest) = plain.split_at(plain.find(['\'', '\\'])?);
        let mut following = rest.chars();
        let escaped = match (following.next()?, following.next()) {
            ('\'', Some('\'')) => '\'',
            ('\'', _) => {
                let behind = rest.get(1..).unwrap_or_default();
                return Some(if unescaped.is_empty() {
                    (Cow::Borrowed(before), behind)
                } else {
                    unescaped.push_str(before);
                    (Cow::Owned(unescaped), behind)
                });
            }
            (_, Some('0')) => '\0',
            (_, Some('n')) => '\n',
            (_, Some('r')) => '\r',
            (_, Some('\\')) => '\\',
            _ => return None,
        };
        unescaped.push_str(before);
        unescaped.push(escaped);
        plain = following.as_str();
    }
}

#[cfg(test)]
mod tests;
