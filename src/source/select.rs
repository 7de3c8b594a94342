//! Which of a log's changes are the pipeline's, by the patterns of its file.

use crate::config::{self, NamePattern, PrefixPattern};
use crate::event::Selection;

#[derive(Debug, Clone)]
pub(super) struct Selector {
    prefixes: Vec<PrefixPattern>,
    outbox_tables: Vec<NamePattern>,
    tables: Vec<NamePattern>,
}

impl Selector {
    pub(super) fn of_postgres(config: &config::Postgres) -> Self {
        Self::of(
            config.outbox.prefixes.clone(),
            config.outbox.tables.clone(),
            config.tables.clone(),
        )
    }

    pub(super) fn of_mysql(config: &config::Mysql) -> Self {
        Self::of(Vec::new(), config.outbox.clone(), config.tables.clone())
    }

    pub(super) fn of(prefixes: Vec<PrefixPattern>, outbox_tables: Vec<NamePattern>, tables: Vec<NamePattern>) -> Self {
        Self {
            prefixes,
            outbox_tables,
            tables,
        }
    }

    /// Whether a message with this prefix is an outbox message.
    pub(super) fn prefix(&self, prefix: &str) -> bool {
        self.prefixes.iter().any(|pattern| pattern.matches(prefix))
    }

    /// What a table's rows are; None: nothing of ours. A table that both lists name is an outbox.
    pub(super) fn table(&self, schema: &str, table: &str) -> Option<Selection> {
        let listed = |patterns: &[NamePattern]| patterns.iter().any(|pattern| pattern.matches(schema, table));
        if listed(&self.outbox_tables) {
            Some(Selection::Outbox)
        } else {
            listed(&self.tables).then_some(Selection::Table)
        }
    }

    pub(super) fn has_tables(&self) -> bool {
        !self.outbox_tables.is_empty() || !self.tables.is_empty()
    }

    pub(super) fn has_ordinary_tables(&self) -> bool {
        !self.tables.is_empty()
    }

    /// The patterns for tables, as written.
    pub(super) fn table_patterns(&self) -> impl Iterator<Item = &NamePattern> {
        self.outbox_tables.iter().chain(&self.tables)
    }
}
