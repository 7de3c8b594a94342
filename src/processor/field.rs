//! The fields of an event: a message's JSON members or a row's cells, found by name once and never copied.
//!
//! Names are turned into [`Slot`]s when the pipeline starts, so that reading an event costs one pass over a message, or
//! one look at a table's columns as long as the table stays the same.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;

use super::error::{Problem, TextFault};
use super::json;
use crate::row::{ColumnKind, Row, Table, Value};

/// One field's value, as it stands in the event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field<'a> {
    /// Not there, or not in the log.
    Missing,
    Null,
    /// A JSON value other than null, as written.
    Json {
        text: &'a str,
        event: &'a Bytes,
    },
    Cell {
        text: &'a Bytes,
        kind: ColumnKind,
    },
    Binary(&'a Bytes),
}

impl<'a> Field<'a> {
    pub(super) fn of_json(text: &'a str, event: &'a Bytes) -> Self {
        match text {
            "null" => Self::Null,
            text => Self::Json { text, event },
        }
    }

    pub(super) fn of_cell(value: &'a Value, kind: ColumnKind) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Text(text) => Self::Cell { text, kind },
            Value::Bytes(bytes) => Self::Binary(bytes),
            Value::Unchanged | Value::Absent => Self::Missing,
        }
    }

    /// The field as text: JSON strings without quotes and escapes, numbers as written, booleans as `true` and `false`,
    /// 16 bytes as a uuid, other bytes as hexadecimal digits. None: missing, null, an object or an array.
    pub(super) fn text(self) -> Result<Option<Text<'a>>, TextFault> {
        match self {
            Self::Missing | Self::Null => Ok(None),
            Self::Json { text, event } => json_text(text, event),
            Self::Cell { text: cell, kind } => {
                let text = std::str::from_utf8(cell).map_err(|_| TextFault::NotUtf8)?;
                match (kind, text) {
                    (ColumnKind::Json, _) => json_text(json::trim(text), cell),
                    (ColumnKind::Boolean, "t") => Ok(Some(Text::Plain("true"))),
                    (ColumnKind::Boolean, "f") => Ok(Some(Text::Plain("false"))),
                    _ => Ok(Some(Text::Slice { text, event: cell })),
                }
            }
            Self::Binary(bytes) => Ok(Some(Text::Made(binary_text(bytes)))),
        }
    }

    /// Whether it is null, in the row or as JSON.
    pub(super) fn is_null(self) -> bool {
        match self {
            Self::Null => true,
            Self::Cell { text, kind } => kind == ColumnKind::Json && text.trim_ascii() == b"null",
            Self::Missing | Self::Json { .. } | Self::Binary(_) => false,
        }
    }

    /// Whether it is JSON by where it stands: a message's member, or what a JSON column has.
    pub(super) fn is_json(self) -> bool {
        match self {
            Self::Json { .. } => true,
            Self::Cell { kind, .. } => kind == ColumnKind::Json,
            Self::Missing | Self::Null | Self::Binary(_) => false,
        }
    }

    /// Whether it is a JSON string: a message's member, or what a JSON column has.
    pub(super) fn is_json_string(self) -> bool {
        let text = match self {
            Self::Json { text, .. } => text.as_bytes(),
            Self::Cell {
                text,
                kind: ColumnKind::Json,
            } => text.trim_ascii_start(),
            _ => return false,
        };
        text.first() == Some(&b'"')
    }

    /// Whether it is a number or a boolean, whose text is JSON as it is.
    pub(super) fn is_plain_json(self) -> bool {
        match self {
            Self::Json { text, .. } => json::is_plain(text.as_bytes()),
            Self::Cell { text, kind } => match kind {
                ColumnKind::Boolean => true,
                ColumnKind::Integer | ColumnKind::Float => json::is_number(text),
                ColumnKind::Json => json::is_plain(text.trim_ascii()),
                _ => false,
            },
            Self::Missing | Self::Null | Self::Binary(_) => false,
        }
    }

    /// What is written there, and the bytes that it is part of. None: missing or null.
    pub(super) fn written(self) -> Result<Option<(&'a str, &'a Bytes)>, TextFault> {
        match self {
            Self::Missing | Self::Null => Ok(None),
            Self::Json { text, event } => Ok(Some((text, event))),
            Self::Cell { text: bytes, .. } | Self::Binary(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => Ok(Some((text, bytes))),
                Err(_) => Err(TextFault::NotUtf8),
            },
        }
    }

    /// The member that a path of names leads to, through JSON objects. Cells count as JSON when they hold it.
    pub(super) fn descend(self, path: &[String]) -> Self {
        path.iter().fold(self, |field, name| {
            let Ok(Some((text, event))) = field.written() else {
                return Self::Missing;
            };
            json::member(text, name).map_or(Self::Missing, |value| Self::of_json(value, event))
        })
    }

    /// The field's own bytes, shared with the event. None: missing or null.
    pub(super) fn bytes(self) -> Option<Bytes> {
        match self {
            Self::Missing | Self::Null => None,
            Self::Json { text, event } => Some(event.slice_ref(text.as_bytes())),
            Self::Cell { text: bytes, .. } | Self::Binary(bytes) => Some(bytes.clone()),
        }
    }
}

fn json_text<'a>(text: &'a str, event: &'a Bytes) -> Result<Option<Text<'a>>, TextFault> {
    Ok(match text.as_bytes().first() {
        Some(b'"') => Some(match json::unescaped(text)? {
            Cow::Borrowed(text) => Text::Slice { text, event },
            Cow::Owned(text) => Text::Made(text),
        }),
        Some(b'{' | b'[' | b'n') | None => None,
        Some(_) => Some(Text::Slice { text, event }),
    })
}

/// Hexadecimal digits; of 16 bytes grouped as a uuid's.
fn binary_text(bytes: &[u8]) -> String {
    let mut out = Vec::with_capacity(bytes.len() * 2 + 4);
    if bytes.len() == 16 {
        for (at, byte) in bytes.iter().enumerate() {
            if matches!(at, 4 | 6 | 8 | 10) {
                out.push(b'-');
            }
            json::write_hex(&mut out, &[*byte]);
        }
    } else {
        json::write_hex(&mut out, bytes);
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// A field's text, where possible still in the event's bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Text<'a> {
    Slice { text: &'a str, event: &'a Bytes },
    Plain(&'a str),
    Made(String),
}

impl Text<'_> {
    pub(super) fn as_str(&self) -> &str {
        match self {
            Self::Slice { text, .. } => text,
            Self::Plain(text) => text,
            Self::Made(text) => text,
        }
    }

    pub(super) fn into_bytes(self) -> Bytes {
        match self {
            Self::Slice { text, event } => event.slice_ref(text.as_bytes()),
            Self::Plain(text) => Bytes::copy_from_slice(text.as_bytes()),
            Self::Made(text) => Bytes::from(text),
        }
    }
}

/// A name's place in [`Names`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot(usize);

/// The names of the fields that are asked for, and where one table has them.
#[derive(Debug, Default)]
pub(super) struct Names {
    names: Vec<String>,
    columns: Vec<Option<usize>>,
    /// Whose columns `columns` are. Held, so that its address can't become another table's.
    table: Option<Arc<Table>>,
}

impl Names {
    pub(super) fn slot(&mut self, name: &str) -> Slot {
        Slot(self.names.iter().position(|known| known == name).unwrap_or_else(|| {
            self.names.push(name.to_owned());
            self.names.len() - 1
        }))
    }

    pub(super) fn path(&mut self, path: &[String]) -> FieldPath {
        let (first, rest) = path
            .split_first()
            .map_or(("", path), |(first, rest)| (first.as_str(), rest));
        FieldPath {
            slot: self.slot(first),
            rest: rest.to_vec(),
        }
    }

    pub(super) fn name(&self, slot: Slot) -> &str {
        &self.names[slot.0]
    }

    /// The members of the JSON object that a message is; none when it is anything else.
    pub(super) fn of_message<'a>(&self, content: &'a Bytes) -> Option<Fields<'a>> {
        let text = std::str::from_utf8(content).ok()?;
        let mut members = vec![None; self.names.len()];
        json::for_each_member(text, |written, value| {
            if let Some(slot) = self.names.iter().position(|name| written.is(name)) {
                members[slot] = Some(value);
            }
        })
        .ok()?;
        Some(Fields::Members { members, content })
    }

    /// Finds the names among a table's columns, for [`Self::of_row`]. True: another table was looked up before.
    pub(super) fn look_up(&mut self, table: &Arc<Table>) -> bool {
        let is_known = self.table.as_ref().is_some_and(|known| Arc::ptr_eq(known, table));
        if !is_known {
            self.columns.clear();
            self.columns
                .extend(self.names.iter().map(|name| table.column_index(name)));
            self.table = Some(Arc::clone(table));
        }
        !is_known
    }

    /// Where the table that was looked up last has a name.
    pub(super) fn column(&self, slot: Slot) -> Option<usize> {
        self.columns.get(slot.0).copied().flatten()
    }

    /// The cells of a row of the table that was looked up last. What the row leaves unchanged is taken from the old
    /// row, where the log has it.
    pub(super) fn of_row<'a>(&'a self, table: &'a Table, row: &'a Row, old: Option<&'a Row>) -> Fields<'a> {
        Fields::Cells {
            columns: &self.columns,
            table,
            row,
            old,
        }
    }
}

/// A field inside a field: `${payload.customer.id}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FieldPath {
    slot: Slot,
    rest: Vec<String>,
}

impl FieldPath {
    /// The member or column that it begins at.
    pub(super) fn slot(&self) -> Slot {
        self.slot
    }
}

/// The fields of one event that were asked for.
#[derive(Debug)]
pub(super) enum Fields<'a> {
    /// A message that is no JSON object.
    None,
    Members {
        members: Vec<Option<&'a str>>,
        content: &'a Bytes,
    },
    Cells {
        columns: &'a [Option<usize>],
        table: &'a Table,
        row: &'a Row,
        old: Option<&'a Row>,
    },
}

impl<'a> Fields<'a> {
    pub(super) fn field(&self, slot: Slot) -> Field<'a> {
        let field = match self {
            Self::None => None,
            Self::Members { members, content } => members
                .get(slot.0)
                .copied()
                .flatten()
                .map(|text| Field::of_json(text, content)),
            Self::Cells {
                columns,
                table,
                row,
                old,
            } => columns.get(slot.0).copied().flatten().and_then(|column| {
                Some(Field::of_cell(
                    cell(row, *old, column)?,
                    table.columns.get(column)?.kind,
                ))
            }),
        };
        field.unwrap_or(Field::Missing)
    }

    pub(super) fn at(&self, path: &FieldPath) -> Field<'a> {
        self.field(path.slot).descend(&path.rest)
    }

    /// Whether a path leads into a column whose value the log does not have.
    pub(super) fn is_withheld(&self, path: &FieldPath) -> bool {
        let Self::Cells { columns, row, old, .. } = self else {
            return false;
        };
        let column = columns.get(path.slot.0).copied().flatten();
        let value = column.and_then(|column| cell(row, *old, column));
        matches!(value, Some(Value::Unchanged | Value::Absent))
    }
}

/// A row's cell; one that was left unchanged as the old row has it, if it does. So is one that an UPDATE's new row lacks
/// (`binlog_row_image=MINIMAL`), such as the key.
pub(super) fn cell<'a>(row: &'a Row, old: Option<&'a Row>, column: usize) -> Option<&'a Value> {
    let value = row.values.get(column)?;
    let old_value = || {
        old?.values
            .get(column)
            .filter(|old| !matches!(old, Value::Absent | Value::Unchanged))
    };
    match value {
        Value::Unchanged | Value::Absent => Some(old_value().unwrap_or(value)),
        _ => Some(value),
    }
}

/// A field's text, or which field has none that can be written.
pub(super) fn named_text<'a>(field: Field<'a>, name: &str) -> Result<Option<Text<'a>>, Problem> {
    field.text().map_err(|fault| Problem::NotText {
        field: name.to_owned(),
        fault,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell_text(text: &'static [u8], kind: ColumnKind) -> Result<Option<String>, TextFault> {
        let value = Value::Text(Bytes::from_static(text));
        Ok(Field::of_cell(&value, kind)
            .text()?
            .map(|text| text.as_str().to_owned()))
    }

    fn binary(bytes: &'static [u8]) -> String {
        let value = Value::Bytes(Bytes::from_static(bytes));
        let text = Field::of_cell(&value, ColumnKind::Binary).text().unwrap().unwrap();
        String::from_utf8(text.into_bytes().to_vec()).unwrap()
    }

    fn json(text: &'static str) -> Result<Option<String>, TextFault> {
        let event = Bytes::from_static(text.as_bytes());
        let text = std::str::from_utf8(&event).unwrap();
        Ok(Field::of_json(text, &event)
            .text()?
            .map(|text| String::from_utf8(text.into_bytes().to_vec()).unwrap()))
    }

    #[test]
    fn json_values_as_text() {
        let some = |text: &str| Ok(Some(text.to_owned()));
        assert_eq!(json(r#""plain""#), some("plain"));
        assert_eq!(json(r#""\u00e9\n\"""#), some("é\n\""));
        assert_eq!(json(r#""""#), some(""));
        assert_eq!(json("12345678901234567890.10"), some("12345678901234567890.10"));
        assert_eq!(json("true"), some("true"));
        for none in ["null", "{}", "[]", r#"{"a":1}"#] {
            assert_eq!(json(none), Ok(None));
        }
        assert_eq!(json(r#""\udfff""#), Err(TextFault::LoneSurrogate));
    }

    #[test]
    fn cells_as_text() {
        let some = |text: &str| Ok(Some(text.to_owned()));
        assert_eq!(cell_text(b"t", ColumnKind::Boolean), some("true"));
        assert_eq!(cell_text(b"f", ColumnKind::Boolean), some("false"));
        assert_eq!(cell_text(b"t", ColumnKind::Text), some("t"));
        assert_eq!(cell_text(b"1.50", ColumnKind::Numeric), some("1.50"));
        assert_eq!(cell_text(b" \"a\\tb\" ", ColumnKind::Json), some("a\tb"));
        assert_eq!(cell_text(b" 5 ", ColumnKind::Json), some("5"));
        assert_eq!(cell_text(b" null", ColumnKind::Json), Ok(None));
        assert_eq!(cell_text(b"{}", ColumnKind::Json), Ok(None));
        assert_eq!(cell_text(b"\xff", ColumnKind::Text), Err(TextFault::NotUtf8));
    }

    #[test]
    fn bytes_as_text() {
        let uuid = b"\x01\x23\x45\x67\x89\xab\xcd\xef\x01\x23\x45\x67\x89\xab\xcd\xef";
        assert_eq!(binary(uuid), "01234567-89ab-cdef-0123-456789abcdef");
        assert_eq!(binary(b"\x00\xff"), "00ff");
        assert_eq!(binary(b""), "");
    }

    #[test]
    fn paths_walk_into_json_wherever_it_stands() {
        let path = ["customer".to_owned(), "id".to_owned()];
        let json = Bytes::from_static(br#"{"customer": {"id": 1, "id": 42}}"#);
        let text = Field::Cell {
            text: &json,
            kind: ColumnKind::Text,
        }
        .descend(&path)
        .text()
        .unwrap()
        .unwrap();
        assert_eq!(text.as_str(), "42");
        assert_eq!(Field::Binary(&json).descend(&path).bytes().as_deref(), Some(&b"42"[..]));
        let scalar = Bytes::from_static(b"5");
        assert_eq!(
            Field::Cell {
                text: &scalar,
                kind: ColumnKind::Json
            }
            .descend(&path),
            Field::Missing
        );
        assert_eq!(Field::Null.descend(&path), Field::Missing);
    }
}
