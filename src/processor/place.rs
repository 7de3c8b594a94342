//! Places in a change: where a template of the sink and a condition of a filter find what they ask for.
//!
//! In a row's change: `op`; `source.name`, `source.db`, `source.schema`, `source.table`; `before.column` and `after.column`;
//! and by its bare name a column of the new row or, of a DELETE, of the old one. Where a name could be both, it is the
//! first. A message's `source.table` is its prefix, and its new row the members of its JSON object.

use super::error::Problem;
use super::field::{Field, FieldPath, Fields, Names, Text, named_text};
use crate::event::{LogMessage, Operation, RowChange};

/// Where something is to be found.
#[derive(Debug)]
pub(super) enum Place {
    Operation,
    Source,
    Database,
    Schema,
    Table,
    Before(FieldPath),
    After(FieldPath),
    Current(FieldPath),
}

impl Place {
    pub(super) fn new(path: &[String], names: &mut Names) -> Self {
        let words: Vec<_> = path.iter().map(String::as_str).collect();
        match words[..] {
            ["op"] => Self::Operation,
            ["source", "name"] => Self::Source,
            ["source", "db"] => Self::Database,
            ["source", "schema"] => Self::Schema,
            ["source", "table"] => Self::Table,
            ["before", _, ..] => Self::Before(names.path(&path[1..])),
            ["after", _, ..] => Self::After(names.path(&path[1..])),
            _ => Self::Current(names.path(path)),
        }
    }
}

/// What stands at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found<'a> {
    /// What is said of the change as a whole.
    Constant(&'a str),
    Field(Field<'a>),
    /// There is a value, which the log does not have.
    NotLogged,
}

/// One change's places.
pub(super) struct Places<'a> {
    source_id: &'a str,
    change: Change<'a>,
}

enum Change<'a> {
    Row { names: &'a Names, row: &'a RowChange },
    Message { prefix: &'a str, fields: Fields<'a> },
}

impl<'a> Places<'a> {
    /// Of a row whose table was looked up last in `names`.
    pub(super) fn of_row(names: &'a Names, source_id: &'a str, row: &'a RowChange) -> Self {
        Self {
            source_id,
            change: Change::Row { names, row },
        }
    }

    pub(super) fn of_message(names: &'a Names, source_id: &'a str, message: &'a LogMessage) -> Self {
        let fields = names.of_message(&message.content).unwrap_or(Fields::None);
        Self {
            source_id,
            change: Change::Message {
                prefix: &message.prefix,
                fields,
            },
        }
    }

    pub(super) fn find(&self, place: &Place) -> Found<'a> {
        match &self.change {
            Change::Row { names, row } => match place {
                Place::Operation => Found::Constant(row.operation.letter()),
                Place::Source => Found::Constant(self.source_id),
                Place::Database => Found::Constant(&row.table.database),
                Place::Schema => Found::Constant(&row.table.schema),
                Place::Table => Found::Constant(&row.table.name),
                Place::Before(path) => find_cell(names, row, path, Side::Before),
                Place::After(path) => find_cell(names, row, path, Side::After),
                Place::Current(path) => find_cell(names, row, path, Side::Current),
            },
            Change::Message { prefix, fields } => match place {
                Place::Operation => Found::Constant(Operation::Insert.letter()),
                Place::Source => Found::Constant(self.source_id),
                Place::Table => Found::Constant(prefix),
                Place::After(path) | Place::Current(path) => Found::Field(fields.at(path)),
                Place::Database | Place::Schema | Place::Before(_) => Found::Field(Field::Missing),
            },
        }
    }

    /// What stands there as text; `name`: the place as it is written.
    pub(super) fn text(&self, place: &Place, name: &str) -> Result<Option<Text<'a>>, Problem> {
        match self.find(place) {
            Found::Constant(text) => Ok(Some(Text::Plain(text))),
            Found::Field(field) => named_text(field, name),
            Found::NotLogged => Ok(None),
        }
    }
}

/// Which of a change's rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Before,
    After,
    /// The new one, or the old one where there is no other.
    Current,
}

fn find_cell<'a>(names: &'a Names, change: &'a RowChange, path: &FieldPath, side: Side) -> Found<'a> {
    let (before, after) = (change.before.as_ref(), change.after.as_ref());
    let (row, old) = match side {
        Side::Before => (before, None),
        Side::After => (after, before),
        Side::Current => (after.or(before), before),
    };
    let Some(row) = row else {
        let was_there = match change.operation {
            Operation::Update => side == Side::Before,
            Operation::Delete => side != Side::After,
            Operation::Insert | Operation::Truncate => false,
        };
        return match was_there {
            true => Found::NotLogged,
            false => Found::Field(Field::Missing),
        };
    };
    let fields = names.of_row(&change.table, row, old);
    match fields.at(path) {
        Field::Missing if fields.is_withheld(path) => Found::NotLogged,
        field => Found::Field(field),
    }
}
