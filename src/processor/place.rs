//! Places in a change: where a template of the sink and a condition of a filter find what they ask for.
//!
//! In a row's change: `op`; `source.name`, `source.db`, `source.schema`, `source.table`; `before.column` and `after.column`;
//! and by its bare name a column of the new row or, of a DELETE, of the old one. Where a name could be both, it is the
//! first. A message's `source.table` is its prefix, and its new row the members of its JSON object.

use super::error::Problem;
use super::field::{Field, FieldPath, Fields, Names, Slot, Text, named_text};
use crate::event::{LogMessage, Operation, RowChange};

/// Where something is to be found.
#[derive(Debug)]
pub(super) enum Place {
    Fact(Fact),
    Before(FieldPath),
    After(FieldPath),
    Current(FieldPath),
}

impl Place {
    pub(super) fn new(path: &[String], names: &mut Names) -> Self {
        match (Fact::of(path), path.first().map(String::as_str)) {
            (Some(fact), _) => Self::Fact(fact),
            (None, Some("before")) if path.len() > 1 => Self::Before(names.path(&path[1..])),
            (None, Some("after")) if path.len() > 1 => Self::After(names.path(&path[1..])),
            (None, _) => Self::Current(names.path(path)),
        }
    }

    /// The column that it asks for.
    pub(super) fn column(&self) -> Option<Slot> {
        match self {
            Self::Fact(_) => None,
            Self::Before(path) | Self::After(path) | Self::Current(path) => Some(path.slot()),
        }
    }
}

/// What can be said of a change as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fact {
    Operation,
    Source,
    Database,
    Schema,
    Table,
}

impl Fact {
    fn of(path: &[String]) -> Option<Self> {
        let mut words = path.iter().map(String::as_str);
        match (words.next(), words.next(), words.next()) {
            (Some("op"), None, None) => Some(Self::Operation),
            (Some("source"), Some("name"), None) => Some(Self::Source),
            (Some("source"), Some("db"), None) => Some(Self::Database),
            (Some("source"), Some("schema"), None) => Some(Self::Schema),
            (Some("source"), Some("table"), None) => Some(Self::Table),
            _ => None,
        }
    }
}

/// Whether a path asks for what can be said of any change, be it a row's or an outbox event.
pub(super) fn is_fact(path: &[String]) -> bool {
    Fact::of(path).is_some()
}

/// One change's facts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Facts<'a> {
    operation: Operation,
    source_id: &'a str,
    /// Database and schema; a message has none.
    within: Option<(&'a str, &'a str)>,
    /// A message's is its prefix.
    table: &'a str,
}

impl<'a> Facts<'a> {
    pub(super) fn of_row(source_id: &'a str, row: &'a RowChange) -> Self {
        Self {
            operation: row.operation,
            source_id,
            within: Some((&row.table.database, &row.table.schema)),
            table: &row.table.name,
        }
    }

    pub(super) fn of_message(source_id: &'a str, message: &'a LogMessage) -> Self {
        Self {
            operation: Operation::Insert,
            source_id,
            within: None,
            table: &message.prefix,
        }
    }

    fn find(&self, fact: Fact) -> Option<&'a str> {
        match fact {
            Fact::Operation => Some(self.operation.letter()),
            Fact::Source => Some(self.source_id),
            Fact::Database => self.within.map(|(database, _)| database),
            Fact::Schema => self.within.map(|(_, schema)| schema),
            Fact::Table => Some(self.table),
        }
    }
}

/// Where the sink finds what it asks for in an outbox event: in a field of that name, which is the application's own to
/// give, and else among the facts.
#[derive(Debug)]
pub(super) struct OutboxPlace {
    path: FieldPath,
    fact: Option<Fact>,
}

impl OutboxPlace {
    pub(super) fn new(path: &[String], names: &mut Names) -> Self {
        Self {
            path: names.path(path),
            fact: Fact::of(path),
        }
    }

    /// What stands there as text; `name`: the place as it is written.
    pub(super) fn text<'a>(
        &self,
        fields: &Fields<'a>,
        facts: Facts<'a>,
        name: &str,
    ) -> Result<Option<Text<'a>>, Problem> {
        match (fields.at(&self.path), self.fact) {
            (Field::Missing, Some(fact)) => Ok(facts.find(fact).map(Text::Plain)),
            (field, _) => named_text(field, name),
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
    facts: Facts<'a>,
    change: Change<'a>,
}

enum Change<'a> {
    Row { names: &'a Names, row: &'a RowChange },
    Message { fields: Fields<'a> },
}

impl<'a> Places<'a> {
    /// Of a row whose table was looked up last in `names`.
    pub(super) fn of_row(names: &'a Names, source_id: &'a str, row: &'a RowChange) -> Self {
        Self {
            facts: Facts::of_row(source_id, row),
            change: Change::Row { names, row },
        }
    }

    pub(super) fn of_message(names: &'a Names, source_id: &'a str, message: &'a LogMessage) -> Self {
        let fields = names.of_message(&message.content).unwrap_or(Fields::None);
        Self {
            facts: Facts::of_message(source_id, message),
            change: Change::Message { fields },
        }
    }

    pub(super) fn find(&self, place: &Place) -> Found<'a> {
        match (place, &self.change) {
            (Place::Fact(fact), _) => {
                let missing = Found::Field(Field::Missing);
                self.facts.find(*fact).map_or(missing, Found::Constant)
            }
            (Place::Before(path), Change::Row { names, row }) => find_cell(names, row, path, Side::Before),
            (Place::After(path), Change::Row { names, row }) => find_cell(names, row, path, Side::After),
            (Place::Current(path), Change::Row { names, row }) => find_cell(names, row, path, Side::Current),
            (Place::After(path) | Place::Current(path), Change::Message { fields }) => Found::Field(fields.at(path)),
            (Place::Before(_), Change::Message { .. }) => Found::Field(Field::Missing),
        }
    }

    /// What stands there as text; `name`: the place as it is written.
    pub(super) fn text(&self, place: &Place, name: &str) -> Result<Option<Text<'a>>, Problem> {
        self.find(place).text(name)
    }
}

impl<'a> Found<'a> {
    pub(super) fn text(self, name: &str) -> Result<Option<Text<'a>>, Problem> {
        match self {
            Self::Constant(text) => Ok(Some(Text::Plain(text))),
            Self::Field(field) => named_text(field, name),
            Self::NotLogged => Ok(None),
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

/// Whether it is a column of the key of a row whose key an UPDATE left alone: the log has no old row then, and the new one
/// has the old one's key.
fn is_kept_key(names: &Names, change: &RowChange, path: &FieldPath) -> bool {
    let column = names.column(path.slot()).and_then(|at| change.table.columns.get(at));
    change.operation == Operation::Update && change.before.is_none() && column.is_some_and(|column| column.key)
}

fn find_cell<'a>(names: &'a Names, change: &'a RowChange, path: &FieldPath, side: Side) -> Found<'a> {
    let (before, after) = (change.before.as_ref(), change.after.as_ref());
    let (row, old) = match side {
        Side::Before if is_kept_key(names, change, path) => (after, None),
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
