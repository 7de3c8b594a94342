//! TABLE_MAP: what the log says of a table before the rows events that name it.
//!
//! Types are always there. Names, ENUM and SET strings and the primary key come with `binlog_row_metadata=FULL` only,
//! signs and charsets with MINIMAL too; MariaDB's default NO_LOG has none of them. What else the metadata may hold
//! (geometry types, visibility, dimensions of vectors, whatever a later server adds) is passed over: no cell needs it.
//!
//! Format: `Table_map_event` in MySQL's source.

use bytes::Bytes;

use super::column_type::{ColumnType, TypeError};
use super::described::{DescribedColumn, DescribedTable};
use super::optional_metadata::{self, MetadataError};
use super::reader::{ReadError, Reader};
use crate::row::Table;

/// Whose table map it is, which the map itself does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flavor {
    MySql,
    /// MySQL 8: some of its releases leave YEAR out of the columns with a sign (8.0.15 does, 9.7 does not), so that the
    /// signs behind one can't be told.
    MySql8,
    /// Its maps count GEOMETRY among the columns with a charset, and UUID, INET4 and INET6 are BINARY in them.
    MariaDb,
}

impl Flavor {
    /// By the version that a binlog file says it was written by.
    pub(crate) fn of(version: &str, mariadb: bool) -> Self {
        match version.split('.').next() {
            _ if mariadb => Self::MariaDb,
            Some("8") => Self::MySql8,
            _ => Self::MySql,
        }
    }
}

/// A table as its map describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TableMap {
    flavor: Flavor,
    pub(super) schema: String,
    pub(super) table: String,
    pub(super) columns: Vec<MapColumn>,
    /// The metadata lists the columns of a primary key.
    pub(super) has_key: bool,
}

/// A column, with what the map's metadata says of it, if it does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MapColumn {
    pub(super) kind: ColumnType,
    pub(super) name: Option<String>,
    pub(super) unsigned: Option<bool>,
    /// Of CHAR, VARCHAR, TEXT (63 where they are BINARY, VARBINARY, BLOB), ENUM and SET.
    pub(super) collation: Option<u64>,
    /// Of ENUM and SET, in their charset.
    pub(super) strings: Option<Vec<Bytes>>,
    /// Part of the primary key, whole or by a prefix.
    pub(super) key: bool,
}

/// A column of bytes that the database describes as another type than it did before, of the same width.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RetypedColumn {
    pub(crate) name: String,
    /// `COLUMN_TYPE`
    pub(crate) before: String,
    pub(crate) now: String,
    /// Part of the primary key.
    pub(crate) key: bool,
}

/// A description of which some was guessed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct GuessedTable {
    pub(crate) table: DescribedTable,
    /// Those that nobody knows any more.
    pub(crate) columns: Vec<GuessedColumn>,
}

/// A column of bytes that may have been a UUID, an INET4 or an INET6.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GuessedColumn {
    pub(crate) name: String,
    pub(crate) bytes: u16,
    /// Part of the primary key.
    pub(crate) key: bool,
}

/// A TABLE_MAP that can't be read. Without it no rows of its table can.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TableMapError {
    #[error("read table map")]
    Read(#[from] ReadError),
    #[error("{what} of a table map is not UTF-8, or does not end in a zero byte")]
    Name { what: &'static str },
    #[error("`{table}` has {found} columns in its table map, expected 1 to {MAX_COLUMNS}")]
    ColumnCount { table: String, found: u64 },
    #[error("read type of column {number} of `{table}`")]
    Type {
        table: String,
        /// From 1.
        number: usize,
        source: TypeError,
    },
    #[error("table map of `{table}` has {found} bytes of column metadata too many")]
    TrailingMetadata { table: String, found: usize },
    #[error("read metadata of `{table}` in its table map")]
    Metadata { table: String, source: MetadataError },
}

/// More than a server allows in a table: `MAX_FIELDS`.
pub(super) const MAX_COLUMNS: usize = 4096;

impl TableMap {
    /// Reads what follows the event's post-header (table id and flags).
    ///
    /// # Errors
    /// The bytes are no table map, or one of a type that no table of MySQL 8 or MariaDB 10 has.
    pub(crate) fn parse(body: &Bytes, flavor: Flavor) -> Result<Self, TableMapError> {
        let mut reader = Reader::new(body);
        let (schema, table) = names(&mut reader)?;
        let full_name = || format!("{schema}.{table}");
        let count = reader.lenenc("column count")?;
        let count = match usize::try_from(count) {
            Ok(count @ 1..=MAX_COLUMNS) => count,
            _ => {
                return Err(TableMapError::ColumnCount {
                    table: full_name(),
                    found: count,
                });
            }
        };
        let codes = reader.take("column types", count)?;
        let mut metadata = Reader::new(reader.lenenc_bytes("column metadata")?);
        let mut columns = Vec::with_capacity(count);
        for (index, code) in codes.iter().enumerate() {
            let kind = ColumnType::read(*code, &mut metadata).map_err(|source| TableMapError::Type {
                table: full_name(),
                number: index + 1,
                source,
            })?;
            columns.push(MapColumn::of_type(kind));
        }
        if !metadata.is_empty() {
            return Err(TableMapError::TrailingMetadata {
                table: full_name(),
                found: metadata.rest().len(),
            });
        }
        reader.take("bitmap of nullable columns", count.div_ceil(8))?;
        let has_key = optional_metadata::read(reader, flavor, body, &mut columns).map_err(|source| {
            let table = full_name();
            TableMapError::Metadata { table, source }
        })?;
        Ok(Self {
            flavor,
            schema: schema.to_owned(),
            table: table.to_owned(),
            columns,
            has_key,
        })
    }

    /// Reads schema and name alone: enough to pass over a table that nobody asked for.
    ///
    /// # Errors
    /// The bytes are no table map.
    pub(crate) fn name_of(body: &[u8]) -> Result<(&str, &str), TableMapError> {
        names(&mut Reader::new(body))
    }

    /// Whether some column lacks its name, or something that its cells can't be read without, unless the database
    /// describes the table.
    pub(crate) fn needs_description(&self) -> bool {
        let mut columns = self.columns.iter();
        columns.any(|column| column.name.is_none() || self.lacks_facts(column) || self.hides_type(column))
    }

    /// Describes a table that is another one by now, or gone: columns that the database still has as the log knows them are
    /// what it says, fixed bytes of the others what the log calls them.
    ///
    /// Only for a map with names; what else the log does not hold is missing from it.
    pub(crate) fn guessed(&self, described: Option<&DescribedTable>) -> GuessedTable {
        let mut guessed = GuessedTable::default();
        for column in self.columns.iter().filter(|column| self.hides_type(column)) {
            let Some(name) = &column.name else { continue };
            let known = described.and_then(|table| table.columns.iter().find(|known| known.name == *name));
            match (known.filter(|known| known.fits(column)), column.kind) {
                (Some(known), _) => guessed.table.columns.push(known.clone()),
                (None, ColumnType::Char { bytes }) => {
                    guessed.table.columns.push(DescribedColumn {
                        name: name.clone(),
                        column_type: format!("binary({bytes})"),
                        charset: None,
                        key: column.key,
                    });
                    guessed.columns.push(GuessedColumn {
                        name: name.clone(),
                        bytes,
                        key: column.key,
                    });
                }
                _ => {}
            }
        }
        guessed
    }

    /// The fixed bytes that the two descriptions read in different ways. `table` is of this map.
    pub(crate) fn retyped(&self, table: &Table, before: &DescribedTable, now: &DescribedTable) -> Vec<RetypedColumn> {
        let columns = self.columns.iter().zip(&table.columns);
        let hidden = columns.filter(|(mapped, _)| self.hides_type(mapped) && mapped.kind.is_string());
        let retyped = hidden.filter_map(|(_, column)| {
            let named = |table: &DescribedTable| table.columns.iter().find(|it| it.name == column.name).cloned();
            let (before, now) = (named(before)?, named(now)?);
            (before.type_text().hidden_type() != now.type_text().hidden_type()).then(|| RetypedColumn {
                name: column.name.clone(),
                before: before.column_type,
                now: now.column_type,
                key: column.key,
            })
        });
        retyped.collect()
    }

    /// Whether sign, charset or strings are missing that cells need.
    pub(super) fn lacks_facts(&self, column: &MapColumn) -> bool {
        let sign = matches!(column.kind, ColumnType::Integer { .. }) && column.unsigned.is_none();
        let is_text = column.kind.is_string() || column.is_choice();
        sign || (is_text && column.collation.is_none()) || (column.is_choice() && column.strings.is_none())
    }

    /// Whether only the database knows how the column's cells are read: the log never holds the digits of old temporal
    /// types, nor what MariaDB's fixed bytes are.
    pub(super) fn hides_type(&self, column: &MapColumn) -> bool {
        match column.kind {
            ColumnType::OldTime | ColumnType::OldDateTime | ColumnType::OldTimestamp => true,
            ColumnType::Char { bytes: 4 | 16 } => {
                self.flavor == Flavor::MariaDb && column.collation.is_none_or(|collation| collation == BINARY)
            }
            _ => false,
        }
    }

    pub(super) fn full_name(&self) -> String {
        format!("{}.{}", self.schema, self.table)
    }
}

impl MapColumn {
    fn of_type(kind: ColumnType) -> Self {
        Self {
            kind,
            name: None,
            unsigned: None,
            collation: None,
            strings: None,
            key: false,
        }
    }

    pub(super) fn is_choice(&self) -> bool {
        matches!(self.kind, ColumnType::Enum { .. } | ColumnType::Set { .. })
    }
}

/// The collation of bytes that are no text.
pub(super) const BINARY: u64 = 63;

/// Schema and table, each behind a length of one byte and before a zero byte.
fn names<'b>(reader: &mut Reader<'b>) -> Result<(&'b str, &'b str), TableMapError> {
    let mut name = |what| {
        let bytes = reader.counted(what, 1)?;
        let ended = reader.u8(what)? == 0;
        let name = str::from_utf8(bytes).ok().filter(|_| ended);
        name.ok_or(TableMapError::Name { what })
    };
    Ok((name("schema name")?, name("table name")?))
}

#[cfg(test)]
mod tests;
