//! The tables that the log describes: what their rows are to the pipeline, and how they are read.
//!
//! A description comes before the rows of each statement, mostly the same again: what was made of it is kept for as long
//! as its bytes stay the same. Tables that are none of the pipeline's are never looked into.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;

use crate::event::{Operation, Selection};
use crate::skip::SkipReason;
use crate::source::select::Selector;

use super::rows::{DescribedTable, Flavor, GuessedTable, PlanError, RetypedColumn, TableMap, TableMapError, TablePlan};
use super::statement::TableName;

/// Ids are given anew whenever the server opens a table again; this many are kept.
const KEPT: usize = 512;
pub(super) const SYSTEM_SCHEMAS: [&str; 4] = ["mysql", "sys", "information_schema", "performance_schema"];

/// `TABLE_TYPE` of those whose rows are in the log: MariaDB calls a table that keeps its history by a name of its own.
pub(super) const TABLE_TYPES: &str = "'BASE TABLE', 'SYSTEM VERSIONED'";

/// Which tables the log has described.
#[derive(Debug)]
pub(super) struct Tables {
    selector: Selector,
    flavor: Flavor,
    /// The server does not tell upper case from lower in names (`lower_case_table_names`), and keeps them in lower case.
    fold_names: bool,
    by_id: HashMap<u64, Described>,
    /// What information_schema said last of a table by whose description rows were read, by name.
    known: HashMap<Arc<str>, DescribedTable>,
}

/// What information_schema says of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    Table(DescribedTable),
    /// It is not there any more.
    Gone,
    /// The user may not see it, and nobody knows whether it is there.
    Hidden,
}

/// A table as the log described it.
#[derive(Debug, Clone)]
pub(super) struct Described {
    /// The description's bytes.
    body: Bytes,
    /// `schema.table`
    pub(super) name: Arc<str>,
    /// None: nothing of ours.
    pub(super) selection: Option<Selection>,
    /// What information_schema said of it, where the log does not say enough.
    /// Belongs to the id, which a table gets anew when it is altered: its new columns can look the same in a log that
    /// does not name them.
    from_schema: Option<Answer>,
    /// What is taken for true where that does not fit.
    guessed: Option<DescribedTable>,
    /// Made when rows are to be read.
    plan: Option<Arc<TablePlan>>,
}

/// Why there is no plan yet.
#[derive(Debug)]
pub(super) enum Missing {
    /// The log does not say what is needed: information_schema must be asked.
    Description,
    /// The table is another one by now, and what some of its columns were can only be guessed.
    Guess(GuessedTable),
    /// The same of a table that is gone.
    GuessOfGone(GuessedTable),
    /// Columns have another type now than when they were last asked for; which of the two a row has, nobody knows.
    Retyped(Vec<RetypedColumn>),
    Failed(PlanFailure),
}

#[derive(Debug)]
pub(super) enum PlanFailure {
    TableMap(TableMapError),
    Plan(Box<PlanError>),
}

impl Tables {
    pub(super) fn new(selector: Selector, fold_names: bool) -> Self {
        Self {
            selector,
            // The first event of a stream says which it is.
            flavor: Flavor::MySql,
            fold_names,
            by_id: HashMap::new(),
            known: HashMap::new(),
        }
    }

    /// Another file begins: its ids are its own, and another server may have written it.
    pub(super) fn begin_file(&mut self, flavor: Flavor) {
        self.flavor = flavor;
        self.by_id.clear();
    }

    /// Before a transaction: descriptions hold up to the end of their statement.
    pub(super) fn make_room(&mut self) {
        if self.by_id.len() >= KEPT {
            self.by_id.clear();
        }
        if self.known.len() >= KEPT {
            self.known.clear();
        }
    }

    /// The same of a table that a statement names.
    pub(super) fn selection_of_name(&self, table: &TableName) -> Option<Selection> {
        if self.fold_names {
            return self.selection(&table.schema.to_lowercase(), &table.name.to_lowercase());
        }
        self.selection(&table.schema, &table.name)
    }

    /// What a table's rows are; None: nothing of ours. The server's own tables are nobody's, whatever a pattern matches.
    pub(super) fn selection(&self, schema: &str, table: &str) -> Option<Selection> {
        if SYSTEM_SCHEMAS.contains(&schema) {
            return None;
        }
        self.selector.table(schema, table)
    }

    /// Why a change of an outbox's row is passed over; None: it is not.
    pub(super) fn passes_over(&self, operation: Operation) -> Option<SkipReason> {
        self.selector.passes_over(operation)
    }

    /// Takes a description from the log.
    pub(super) fn describe(&mut self, id: u64, body: &Bytes) -> Result<(), TableMapError> {
        if self.by_id.get(&id).is_some_and(|known| known.body == *body) {
            return Ok(());
        }
        let (schema, table) = TableMap::name_of(body)?;
        let name: Arc<str> = format!("{schema}.{table}").into();
        let selection = self.selection(schema, table);
        let described = Described {
            // A copy: the bytes at hand are a piece of what was read together, and would keep all of it.
            body: Bytes::copy_from_slice(body),
            name,
            selection,
            from_schema: None,
            guessed: None,
            plan: None,
        };
        self.by_id.insert(id, described);
        Ok(())
    }

    pub(super) fn get(&self, id: u64) -> Option<&Described> {
        self.by_id.get(&id)
    }

    /// How the table's rows are read.
    pub(super) fn plan(&mut self, id: u64) -> Result<Arc<TablePlan>, Missing> {
        let Some(described) = self.by_id.get_mut(&id) else {
            return Err(Missing::Description);
        };
        if let Some(plan) = &described.plan {
            return Ok(Arc::clone(plan));
        }
        let map = TableMap::parse(&described.body, self.flavor)
            .map_err(|error| Missing::Failed(PlanFailure::TableMap(error)))?;
        if described.from_schema.is_none() && map.needs_description() {
            return Err(Missing::Description);
        }
        let known = self.known.get(&described.name);
        let now = match &described.from_schema {
            Some(Answer::Table(table)) => Some(table),
            // As it was when it was asked for last.
            Some(Answer::Gone) => known,
            _ => None,
        };
        let planned = match (
            TablePlan::new(&map, described.guessed.as_ref().or(now)),
            &described.guessed,
        ) {
            (Err(error), None) => {
                let guessed = map.guessed(now);
                match TablePlan::new(&map, Some(&guessed.table)) {
                    Ok(_) if guessed.columns.is_empty() => Err(error),
                    Ok(_) if described.from_schema == Some(Answer::Gone) => return Err(Missing::GuessOfGone(guessed)),
                    Ok(_) => return Err(Missing::Guess(guessed)),
                    Err(_) => Err(error),
                }
            }
            (planned, _) => planned,
        };
        let plan = Arc::new(planned.map_err(|error| Missing::Failed(PlanFailure::Plan(Box::new(error))))?);
        if let (None, Some(now)) = (&described.guessed, now) {
            let retyped = known.map(|known| map.retyped(plan.table(), known, now));
            if let Some(retyped) = retyped.filter(|retyped| !retyped.is_empty()) {
                return Err(Missing::Retyped(retyped));
            }
            self.known.insert(Arc::clone(&described.name), now.clone());
        }
        described.plan = Some(Arc::clone(&plan));
        Ok(plan)
    }

    /// Takes what information_schema says of a table.
    pub(super) fn describe_from_schema(&mut self, id: u64, answer: Answer) {
        if let Some(described) = self.by_id.get_mut(&id) {
            described.from_schema = Some(answer);
        }
    }

    /// Takes a guess for true.
    pub(super) fn guess(&mut self, id: u64, table: DescribedTable) {
        if let Some(described) = self.by_id.get_mut(&id) {
            described.guessed = Some(table);
        }
    }

    /// Takes what information_schema says of a table for true, whatever it said before.
    pub(super) fn forget_known(&mut self, table: &str) {
        self.known.remove(table);
    }
}

#[cfg(test)]
mod tests;
