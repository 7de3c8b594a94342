//! What is worked out once for a table map, so that a row costs no thought: how each cell is cut and printed, and the
//! table that names them.
//!
//! Servers repeat a table map for each statement. A plan holds for as long as the map's bytes stay the same, and with it
//! its `Arc<Table>`, by whose pointer others keep what they work out for a table.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;

use super::cell::{CellPlan, Content, Reading, Width};
use super::charset::{Charset, CharsetError};
use super::column_type::ColumnType;
use super::described::{DescribedColumn, DescribedTable, HiddenType};
use super::format::TextFormat;
use super::old_temporal;
use super::table_map::{MapColumn, TableMap};
use super::temporal;
use crate::row::{Column, ColumnKind, Table};

/// How the rows of a table are read, from one table map on.
#[derive(Debug, Clone)]
pub(crate) struct TablePlan {
    table: Arc<Table>,
    cells: Vec<CellPlan>,
    /// The strings of each ENUM and SET, in UTF-8.
    choices: Vec<Vec<Bytes>>,
}

/// Why a table's rows can't be read. They stay so until the server's settings, or the table, or tailpost change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    #[error("log does not name the columns of `{table}`: set binlog_row_metadata=FULL in the server")]
    NoNames { table: String },
    #[error(
        "`{table}` has {found} columns in the database, expected {expected} as in the log: it was altered since, or has \
         columns that only the log shows; set binlog_row_metadata=FULL in the server"
    )]
    ColumnCount {
        table: String,
        found: usize,
        expected: usize,
    },
    #[error(
        "column `{column}` of `{table}` is {found} in the database, expected {expected} as in the log: it was altered \
         since; set binlog_row_metadata=FULL in the server"
    )]
    DoesNotFit {
        table: String,
        column: String,
        /// `COLUMN_TYPE`, with the charset if there is one.
        found: String,
        expected: String,
    },
    #[error("column `{column}` of `{table}` is not in the database any more, which alone knows the type of {kind}")]
    Gone {
        table: String,
        column: String,
        kind: String,
    },
    #[error("log does not hold the {what} of column `{column}` of `{table}`: expected it there or in the database")]
    Lacks {
        table: String,
        column: String,
        what: &'static str,
    },
    #[error("column `{column}` of `{table}` has the collation {collation}, whose charset is not known")]
    UnknownCollation {
        table: String,
        column: String,
        collation: u64,
    },
    #[error("column `{column}` of `{table}` has the charset `{charset}`, which is not known")]
    UnknownCharset {
        table: String,
        column: String,
        charset: String,
    },
    #[error("strings of column `{column}` of `{table}` are not in its charset")]
    Strings {
        table: String,
        column: String,
        source: Option<CharsetError>,
    },
}

impl TablePlan {
    /// Makes a table's plan from its map and, where that lacks something, from the database's description.
    ///
    /// With names in the log a description is asked only for what the log never holds, column by column of the same
    /// name: the digits of old temporal types, and MariaDB's UUID, INET4 and INET6. Without names it must fit throughout.
    ///
    /// # Errors
    /// Names or facts are in neither, or the two contradict each other.
    pub(crate) fn new(map: &TableMap, described: Option<&DescribedTable>) -> Result<Self, PlanError> {
        let names_in_log = map.columns.iter().all(|column| column.name.is_some());
        match described {
            None if !names_in_log => return Err(PlanError::NoNames { table: map.full_name() }),
            Some(described) if !names_in_log && described.columns.len() != map.columns.len() => {
                return Err(PlanError::ColumnCount {
                    table: map.full_name(),
                    found: described.columns.len(),
                    expected: map.columns.len(),
                });
            }
            _ => {}
        }
        let mut planner = Planner {
            map,
            choices: Vec::new(),
        };
        let (mut columns, mut cells) = (Vec::new(), Vec::new());
        for (index, mapped) in map.columns.iter().enumerate() {
            let described = match (&mapped.name, described) {
                (_, None) => None,
                (Some(name), Some(described)) => planner.described_by_name(mapped, name, described)?,
                (None, Some(described)) => planner.described_at(mapped, index, described)?,
            };
            let name = mapped.name.as_deref().or(described.map(|it| it.name.as_str()));
            let facts = Facts {
                name: name.ok_or_else(|| PlanError::NoNames { table: map.full_name() })?,
                mapped,
                described,
            };
            let (cell, kind) = planner.cell(&facts)?;
            cells.push(cell);
            columns.push(Column {
                name: facts.name.to_owned(),
                kind,
                key: match described {
                    Some(described) if !names_in_log => described.key,
                    _ => mapped.key,
                },
            });
        }
        let table = Table {
            database: map.schema.clone(),
            schema: map.schema.clone(),
            name: map.table.clone(),
            keyed: columns.iter().any(|column| column.key),
            columns,
        };
        Ok(Self {
            table: Arc::new(table),
            cells,
            choices: planner.choices,
            // Of its own: a slice would keep the whole packet.
        })
    }

    pub(crate) fn table(&self) -> &Arc<Table> {
        &self.table
    }

    pub(super) fn cells(&self) -> &[CellPlan] {
        &self.cells
    }

    /// The strings of the ENUM or SET with this number.
    pub(super) fn choices(&self, index: u16) -> &[Bytes] {
        self.choices.get(usize::from(index)).map_or(&[], Vec::as_slice)
    }
}

/// No value is larger: the servers' `max_allowed_packet` ends there.
const MAX_VALUE_BYTES: u32 = 1 << 30;

struct Planner<'m> {
    map: &'m TableMap,
    choices: Vec<Vec<Bytes>>,
}

/// What is known of a column.
struct Facts<'f> {
    name: &'f str,
    mapped: &'f MapColumn,
    described: Option<&'f DescribedColumn>,
}

impl Planner<'_> {
    /// The description of a column that the log names: only if it matters.
    fn described_by_name<'d>(
        &self,
        mapped: &MapColumn,
        name: &str,
        described: &'d DescribedTable,
    ) -> Result<Option<&'d DescribedColumn>, PlanError> {
        if !self.map.hides_type(mapped) && !self.map.lacks_facts(mapped) {
            return Ok(None);
        }
        match described.columns.iter().find(|column| column.name == name) {
            Some(found) if found.fits(mapped) => Ok(Some(found)),
            Some(found) => Err(self.does_not_fit(mapped, found)),
            None => Err(PlanError::Gone {
                table: self.map.full_name(),
                column: name.to_owned(),
                kind: mapped.kind.to_string(),
            }),
        }
    }

    fn described_at<'d>(
        &self,
        mapped: &MapColumn,
        index: usize,
        described: &'d DescribedTable,
    ) -> Result<Option<&'d DescribedColumn>, PlanError> {
        match described.columns.get(index) {
            Some(found) if !found.fits(mapped) => Err(self.does_not_fit(mapped, found)),
            found => Ok(found),
        }
    }

    fn does_not_fit(&self, mapped: &MapColumn, found: &DescribedColumn) -> PlanError {
        let charset = found.charset.as_ref();
        let sign = match mapped.unsigned {
            Some(true) => ", unsigned",
            Some(false) => ", signed",
            None => "",
        };
        let collation = mapped.collation.map(|id| format!(", collation {id}"));
        PlanError::DoesNotFit {
            table: self.map.full_name(),
            column: found.name.clone(),
            found: charset.map_or_else(
                || format!("`{}`", found.column_type),
                |charset| format!("`{}` in `{charset}`", found.column_type),
            ),
            expected: format!("{}{sign}{}", mapped.kind, collation.unwrap_or_default()),
        }
    }

    fn cell(&mut self, facts: &Facts<'_>) -> Result<(CellPlan, ColumnKind), PlanError> {
        Ok(match facts.mapped.kind {
            ColumnType::Integer { bytes } => {
                let unsigned = self.is_unsigned(facts)?;
                let format = if unsigned {
                    TextFormat::Unsigned
                } else {
                    TextFormat::Signed
                };
                printed(bytes, format, ColumnKind::Integer)
            }
            ColumnType::Year => printed(1, TextFormat::Year, ColumnKind::Integer),
            ColumnType::Float => printed(4, TextFormat::Float, ColumnKind::Float),
            ColumnType::Double => printed(8, TextFormat::Double, ColumnKind::Float),
            ColumnType::Decimal {
                precision,
                scale,
                bytes,
            } => printed(bytes, TextFormat::Decimal { precision, scale }, ColumnKind::Numeric),
            ColumnType::Bit { bits } => {
                // At most 8.
                let width = Width::Fixed(u8::try_from(bits.div_ceil(8)).unwrap_or(u8::MAX));
                read_as(width, Reading::Content(Content::Bytes), ColumnKind::Binary)
            }
            ColumnType::Date
            | ColumnType::Time { .. }
            | ColumnType::DateTime { .. }
            | ColumnType::Timestamp { .. }
            | ColumnType::OldTime
            | ColumnType::OldDateTime
            | ColumnType::OldTimestamp => {
                let (bytes, format) = self.temporal(facts)?;
                printed(bytes, format, ColumnKind::Text)
            }
            ColumnType::Char { .. }
            | ColumnType::VarChar { .. }
            | ColumnType::Blob { .. }
            | ColumnType::CompressedVarChar { .. }
            | ColumnType::CompressedBlob { .. } => self.string(facts)?,
            ColumnType::Enum { bytes } => {
                let choices = self.choices(facts)?;
                read_as(Width::Fixed(bytes), Reading::Enum { choices }, ColumnKind::Text)
            }
            ColumnType::Set { bytes } => {
                let choices = self.choices(facts)?;
                read_as(Width::Fixed(bytes), Reading::Set { choices }, ColumnKind::Text)
            }
            ColumnType::Json { length_bytes } => {
                let reading = Reading::Printed(TextFormat::Json);
                read_as(Width::Counted(length_bytes), reading, ColumnKind::Json)
            }
            ColumnType::Geometry { length_bytes } | ColumnType::Vector { length_bytes } => {
                let reading = Reading::Content(Content::Bytes);
                read_as(Width::Counted(length_bytes), reading, ColumnKind::Binary)
            }
        })
    }

    /// The bytes and the format of a temporal type.
    fn temporal(&self, facts: &Facts<'_>) -> Result<(u8, TextFormat), PlanError> {
        Ok(match facts.mapped.kind {
            ColumnType::Time { digits } => (3 + temporal::fraction_bytes(digits), TextFormat::Time { digits }),
            ColumnType::DateTime { digits } => (5 + temporal::fraction_bytes(digits), TextFormat::DateTime { digits }),
            ColumnType::Timestamp { digits } => {
                (4 + temporal::fraction_bytes(digits), TextFormat::Timestamp { digits })
            }
            ColumnType::OldTime => {
                let digits = self.digits(facts)?;
                (old_temporal::time_bytes(digits), TextFormat::OldTime { digits })
            }
            ColumnType::OldDateTime => {
                let digits = self.digits(facts)?;
                (old_temporal::datetime_bytes(digits), TextFormat::OldDateTime { digits })
            }
            ColumnType::OldTimestamp => {
                let digits = self.digits(facts)?;
                (
                    old_temporal::timestamp_bytes(digits),
                    TextFormat::OldTimestamp { digits },
                )
            }
            _ => (3, TextFormat::Date),
        })
    }

    /// Text, or bytes, behind their length.
    fn string(&self, facts: &Facts<'_>) -> Result<(CellPlan, ColumnKind), PlanError> {
        let hidden = facts.described.and_then(|it| it.type_text().hidden_type());
        if let (ColumnType::Char { bytes }, Some(hidden)) = (facts.mapped.kind, hidden) {
            let (format, kind) = match hidden {
                HiddenType::Uuid => (TextFormat::Uuid, ColumnKind::Uuid),
                HiddenType::Inet4 => (TextFormat::Inet4, ColumnKind::Text),
                HiddenType::Inet6 => (TextFormat::Inet6, ColumnKind::Text),
            };
            return Ok(read_as(Width::of_length(bytes), Reading::Printed(format), kind));
        }
        if facts.described.is_none() && self.map.hides_type(facts.mapped) {
            return Err(self.lacks(facts, "type (BINARY, UUID, INET4 or INET6)"));
        }
        let content = self.content(facts)?;
        let (width, reading) = match facts.mapped.kind {
            ColumnType::Char { bytes } if matches!(content, Content::Bytes) => {
                (Width::of_length(bytes), Reading::Padded { bytes })
            }
            ColumnType::Char { bytes } | ColumnType::VarChar { bytes } => {
                (Width::of_length(bytes), Reading::Content(content))
            }
            ColumnType::CompressedVarChar { bytes } => {
                let limit = u32::from(bytes);
                (Width::of_length(bytes), Reading::Compressed { limit, content })
            }
            ColumnType::CompressedBlob { length_bytes } => {
                let limit = MAX_VALUE_BYTES.min(u32::MAX >> (32 - 8 * u32::from(length_bytes.min(4))));
                (Width::Counted(length_bytes), Reading::Compressed { limit, content })
            }
            ColumnType::Blob { length_bytes } => (Width::Counted(length_bytes), Reading::Content(content)),
            _ => return Err(self.lacks(facts, "length")),
        };
        Ok(read_as(width, reading, content.kind()))
    }

    fn names(&self, facts: &Facts<'_>) -> (String, String) {
        (self.map.full_name(), facts.name.to_owned())
    }

    fn lacks(&self, facts: &Facts<'_>, what: &'static str) -> PlanError {
        let (table, column) = self.names(facts);
        PlanError::Lacks { table, column, what }
    }

    fn is_unsigned(&self, facts: &Facts<'_>) -> Result<bool, PlanError> {
        let described = facts.described.map(|it| it.type_text().is_unsigned());
        let unsigned = facts.mapped.unsigned.or(described);
        unsigned.ok_or_else(|| self.lacks(facts, "sign"))
    }

    fn digits(&self, facts: &Facts<'_>) -> Result<u8, PlanError> {
        let digits = facts.described.and_then(|it| it.type_text().digits());
        digits.ok_or_else(|| self.lacks(facts, "fractional digits"))
    }

    fn content(&self, facts: &Facts<'_>) -> Result<Content, PlanError> {
        let charset = match (facts.mapped.collation, facts.described) {
            (Some(collation), _) => {
                let charset = u16::try_from(collation).ok().and_then(Charset::from_collation);
                charset.ok_or_else(|| {
                    let (table, column) = self.names(facts);
                    PlanError::UnknownCollation {
                        table,
                        column,
                        collation,
                    }
                })?
            }
            (None, Some(described)) => {
                let Some(name) = described.charset.as_deref() else {
                    return Ok(Content::Bytes);
                };
                Charset::from_name(name).ok_or_else(|| {
                    let (table, column) = self.names(facts);
                    let charset = name.to_owned();
                    PlanError::UnknownCharset { table, column, charset }
                })?
            }
            (None, None) => return Err(self.lacks(facts, "charset")),
        };
        Ok(if charset.is_binary() {
            Content::Bytes
        } else if charset.is_utf8() {
            Content::Utf8
        } else {
            Content::Coded(charset)
        })
    }

    /// Keeps the strings of an ENUM or SET, and gives their number.
    fn choices(&mut self, facts: &Facts<'_>) -> Result<u16, PlanError> {
        let strings = match (&facts.mapped.strings, facts.described) {
            (Some(strings), _) => {
                let content = self.content(facts)?;
                let in_utf8 = strings.iter().map(|string| match content {
                    // An ENUM's text can have the charset `binary` as well.
                    Content::Utf8 | Content::Bytes => str::from_utf8(string).map(Cow::Borrowed).map_err(|_| None),
                    Content::Coded(charset) => charset.decode(string).map_err(Some),
                });
                // Copied out of the map: values are kept longer than that.
                let copied = in_utf8.map(|string| string.map(|string| Bytes::copy_from_slice(string.as_bytes())));
                copied.collect::<Result<Vec<_>, _>>().map_err(|source| {
                    let (table, column) = self.names(facts);
                    PlanError::Strings { table, column, source }
                })?
            }
            (None, described) => {
                let strings = described.and_then(|it| it.type_text().strings());
                let strings = strings.ok_or_else(|| self.lacks(facts, "strings"))?;
                let copied = strings.iter().map(|string| Bytes::copy_from_slice(string.as_bytes()));
                copied.collect()
            }
        };
        // As many as columns at most.
        let index = u16::try_from(self.choices.len()).unwrap_or(u16::MAX);
        self.choices.push(strings);
        Ok(index)
    }
}

fn read_as(width: Width, reading: Reading, kind: ColumnKind) -> (CellPlan, ColumnKind) {
    (CellPlan { width, reading }, kind)
}

fn printed(bytes: u8, format: TextFormat, kind: ColumnKind) -> (CellPlan, ColumnKind) {
    read_as(Width::Fixed(bytes), Reading::Printed(format), kind)
}

#[cfg(test)]
mod tests;
