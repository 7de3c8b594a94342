//! Columns that the file asks for and a table does not have: a name that is misspelt would else do its harm in silence.

use std::collections::{BTreeSet, HashMap};

use super::field::{Names, Slot};
use crate::row::Table;

/// Takes note of them, of each table once.
#[derive(Debug, Default)]
pub(super) struct UnknownColumns {
    /// By schema and name of a table: what was noted of it, by its number among what asks.
    noted: HashMap<String, HashMap<String, BTreeSet<usize>>>,
    untold: Vec<UnknownColumn>,
}

/// A column that a table does not have.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct UnknownColumn {
    pub(crate) table: String,
    /// As the file has it.
    pub(crate) path: String,
    /// Whether the file says that it is asked for of this table.
    pub(crate) is_meant: bool,
}

impl UnknownColumns {
    /// Takes note of what asks for a column that the table lacks, which was looked up last in `names`; each with whether it
    /// is meant for this table.
    pub(super) fn note<'a, P: ToString + ?Sized + 'a>(
        &mut self,
        names: &Names,
        table: &Table,
        asked: impl Iterator<Item = (Slot, &'a P, bool)>,
    ) {
        // A change without its row comes without its columns.
        if table.columns.is_empty() {
            return;
        }
        let of_schema = self.noted.get(&table.schema);
        let noted = of_schema.and_then(|of_schema| of_schema.get(&table.name));
        let is_new = |number: usize| noted.is_none_or(|noted| !noted.contains(&number));
        let missing = asked
            .enumerate()
            .filter(|(number, (slot, ..))| names.column(*slot).is_none() && is_new(*number));
        let new: Vec<_> = missing.collect();
        // As a rule, of tables that take turns too.
        if new.is_empty() {
            return;
        }
        let of_schema = self.noted.entry(table.schema.clone()).or_default();
        let noted = of_schema.entry(table.name.clone()).or_default();
        noted.extend(new.iter().map(|(number, _)| *number));
        self.untold
            .extend(new.into_iter().map(|(_, (_, path, is_meant))| UnknownColumn {
                table: format!("{}.{}", table.schema, table.name),
                path: path.to_string(),
                is_meant,
            }));
    }

    /// Those that were found since this was last called.
    pub(super) fn take(&mut self) -> Vec<UnknownColumn> {
        std::mem::take(&mut self.untold)
    }
}
