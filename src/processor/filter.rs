//! The filter processor: changes that do not meet its conditions end here, and are counted.
//!
//! - A condition asks for a field as a template of the sink does: a column of the new row or, of a DELETE, of the old one;
//!   `before.column`, `after.column`; `op`, `source.table` and the like. Of a message, a member of its JSON object.
//! - A field is held against the file as its text. A whole number of the file is held against the field's value, so that
//!   `100` is `100.00` too.
//! - A field that is missing or null passes `exists: false`, `ne` and `not_in`, and no other test.
//! - What the log does not hold cannot be told: a value that an UPDATE left alone, a column outside of the replica
//!   identity or the row image. A condition on it holds, lest a change is lost that was to be kept. So does one on a field
//!   that cannot be text.
//! - A column that a table does not have is missing in each of its rows, and the log says so, once, unless `exists: false` asks for that.
//! - Outbox events pass unless the file asks for them too: a filter of ordinary changes takes none away.

mod number;

use std::cmp::Ordering;
use std::sync::Arc;

use super::field::{Field, Names, Text};
use super::place::{Found, Place, Places};
use super::subject::Subject;
use super::unknown::{UnknownColumn, UnknownColumns};
use super::{Outcome, ProcessError, Processor, Step};
use crate::config::pattern::OutboxPattern;
use crate::config::pipeline::{self, Comparison, Demand, KeptTables, Literal, Test};
use crate::event::{ChangeEvent, Operation, Selection};
use crate::skip::SkipReason;

/// A processor of type `filter`.
#[derive(Debug)]
pub(super) struct Filter {
    id: Arc<str>,
    /// Events filtered out since this was last asked for.
    taken: u64,
    source_id: String,
    tables: Vec<OutboxPattern>,
    outboxes: bool,
    kept_tables: KeptTables,
    operations: Option<Vec<Operation>>,
    names: Names,
    conditions: Vec<Condition>,
    demand: Demand,
    unknown: UnknownColumns,
}

#[derive(Debug)]
struct Condition {
    place: Place,
    /// The place as the file has it.
    name: String,
    test: Test,
}

impl Filter {
    pub(super) fn new(config: &pipeline::Filter, source_id: &str) -> Self {
        let mut names = Names::default();
        let conditions = config.conditions.iter().map(|condition| Condition {
            place: Place::new(&condition.field, &mut names),
            name: condition.field.join("."),
            test: condition.test.clone(),
        });
        Self {
            id: Arc::from(config.id.as_str()),
            taken: 0,
            source_id: source_id.to_owned(),
            tables: config.tables.clone(),
            outboxes: config.outboxes,
            kept_tables: config.kept_tables.clone(),
            operations: config.operations.clone(),
            conditions: conditions.collect(),
            names,
            demand: config.demand,
            unknown: UnknownColumns::default(),
        }
    }

    /// The processor's id with the columns that a table turned out not to have since this was last called.
    pub(super) fn take_unknown_columns(&mut self) -> (Arc<str>, Vec<UnknownColumn>) {
        (Arc::clone(&self.id), self.unknown.take())
    }

    pub(super) fn take_count(&mut self) -> (Arc<str>, u64) {
        (Arc::clone(&self.id), std::mem::take(&mut self.taken))
    }

    /// The event as a change that it looks at. None: it has no say in it.
    fn subject<'a>(&self, event: &'a ChangeEvent) -> Option<Subject<'a>> {
        let subject = Subject::of(event)?;
        if event.selection == Selection::Outbox && !self.outboxes {
            return None;
        }
        (self.tables.is_empty() || subject.is_of(&self.tables)).then_some(subject)
    }

    fn keeps(&mut self, event: &ChangeEvent) -> bool {
        let Some(subject) = self.subject(event) else {
            return true;
        };
        let KeptTables { include, exclude } = &self.kept_tables;
        let is_kept = (include.is_empty() || subject.is_of(include)) && !subject.is_of(exclude);
        let operation = subject.operation();
        let is_asked_for = |operations: &Vec<Operation>| operations.contains(&operation);
        is_kept && self.operations.as_ref().is_none_or(is_asked_for) && self.meets(subject)
    }

    fn meets(&mut self, subject: Subject<'_>) -> bool {
        if self.conditions.is_empty() {
            return true;
        }
        let places = match subject {
            Subject::Row(row) => {
                if self.names.look_up(&row.table) {
                    // One that takes away all of a table is worth a warning, whatever table it is meant for; one that takes
                    // nothing away, if it is for this table.
                    let is_of_table = !self.tables.is_empty();
                    let asked = self.conditions.iter().filter(|it| !is_of_absence(&it.test));
                    let asked = asked.filter_map(|it| {
                        let is_meant = is_of_table || !passes_without_value(&it.test);
                        Some((it.place.column()?, it.name.as_str(), is_meant))
                    });
                    self.unknown.note(&self.names, &row.table, asked);
                }
                Places::of_row(&self.names, &self.source_id, row)
            }
            Subject::Message(message) => Places::of_message(&self.names, &self.source_id, message),
        };
        let mut conditions = self.conditions.iter();
        let holds = |condition: &Condition| holds(&condition.test, places.find(&condition.place)) != Some(false);
        match self.demand {
            Demand::All => conditions.all(holds),
            Demand::Any => conditions.any(holds),
        }
    }
}

impl Processor for Filter {
    /// Takes what it filters out; passes everything else.
    fn process(&mut self, event: ChangeEvent) -> Result<Step, ProcessError> {
        if self.keeps(&event) {
            return Ok(Step::Pass(event));
        }
        self.taken += 1;
        Ok(Step::Done(Outcome::Skip(SkipReason::Filtered)))
    }
}

/// Whether it is met where there is no value, so that it takes nothing away for want of a column.
fn passes_without_value(test: &Test) -> bool {
    holds(test, Found::Field(Field::Missing)) == Some(true)
}

/// To one that asks for absence a table without the column is no mistake.
fn is_of_absence(test: &Test) -> bool {
    matches!(test, Test::Exists(false))
}

/// None: it cannot be told.
fn holds(test: &Test, found: Found<'_>) -> Option<bool> {
    let field = match found {
        Found::Constant(text) => return Some(text_holds(test, Some(Text::Plain(text)), true)),
        Found::NotLogged => return None,
        Found::Field(field) => field,
    };
    let exists = !matches!(field, Field::Missing | Field::Null);
    match test {
        // Of an object too, which has no text.
        Test::Exists(wanted) => Some(exists == *wanted),
        test => Some(text_holds(test, field.text().ok()?, exists)),
    }
}

fn text_holds(test: &Test, text: Option<Text<'_>>, exists: bool) -> bool {
    let is_one_of = |literals: &[Literal]| {
        let text = text.as_ref().map(Text::as_str);
        literals
            .iter()
            .any(|literal| text.is_some_and(|text| equals(text, literal)))
    };
    match test {
        Test::OneOf(literals) => is_one_of(literals),
        Test::NoneOf { of, or_missing } => !is_one_of(of) && (exists || *or_missing),
        Test::Exists(wanted) => exists == *wanted,
        Test::Matches(regex) => text.is_some_and(|text| regex.is_match(text.as_str())),
        Test::Compares(comparison, literal) => {
            let order = text.and_then(|text| compare(text.as_str(), literal));
            order.is_some_and(|order| match comparison {
                Comparison::Less => order.is_lt(),
                Comparison::LessOrEqual => order.is_le(),
                Comparison::Greater => order.is_gt(),
                Comparison::GreaterOrEqual => order.is_ge(),
            })
        }
    }
}

fn equals(text: &str, literal: &Literal) -> bool {
    match literal {
        Literal::Text(wanted) => text == wanted,
        Literal::Integer(number) => number::compare(text, *number) == Some(Ordering::Equal),
        Literal::Boolean(flag) => text == if *flag { "true" } else { "false" },
    }
}

/// None: they have no order.
fn compare(text: &str, literal: &Literal) -> Option<Ordering> {
    match literal {
        Literal::Text(bound) => Some(text.cmp(bound)),
        Literal::Integer(bound) => number::compare(text, *bound),
        Literal::Boolean(_) => None,
    }
}

#[cfg(test)]
mod tests;
