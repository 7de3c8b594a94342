//! Which of a log's changes are the pipeline's, by the patterns of its file.

use crate::config::{self, NamePattern, OnUpdate, PrefixPattern};
use crate::event::{Operation, Selection};
use crate::skip::SkipReason;

#[derive(Debug, Clone)]
pub(super) struct Selector {
    prefixes: Vec<PrefixPattern>,
    outbox_tables: Vec<NamePattern>,
    tables: Vec<NamePattern>,
    on_update: OnUpdate,
}

impl Selector {
    pub(super) fn of_postgres(config: &config::Postgres) -> Self {
        Self::of(
            config.outbox.prefixes.clone(),
            config.outbox.tables.clone(),
            config.tables.clone(),
        )
        .on_update(config.on_update)
    }

    pub(super) fn of_mysql(config: &config::Mysql) -> Self {
        Self::of(Vec::new(), config.outbox.clone(), config.tables.clone()).on_update(config.on_update)
    }

    pub(super) fn of(prefixes: Vec<PrefixPattern>, outbox_tables: Vec<NamePattern>, tables: Vec<NamePattern>) -> Self {
        Self {
            prefixes,
            outbox_tables,
            tables,
            on_update: OnUpdate::Skip,
        }
    }

    /// The same with another word on UPDATEs of outboxes.
    pub(super) fn on_update(self, on_update: OnUpdate) -> Self {
        Self { on_update, ..self }
    }

    /// Why a change of an outbox's row is passed over. None: an event, or an UPDATE that is told of: as an event too, but
    /// without its rows.
    pub(super) fn passes_over(&self, operation: Operation) -> Option<SkipReason> {
        match (operation, self.on_update) {
            (Operation::Update, OnUpdate::Warn | OnUpdate::Halt) => None,
            _ => SkipReason::of_outbox_row(operation),
        }
    }

    /// Whether UPDATEs of outboxes are to be seen.
    pub(super) fn sees_updates(&self) -> bool {
        self.on_update != OnUpdate::Skip && !self.outbox_tables.is_empty()
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

    pub(super) fn has_prefixes(&self) -> bool {
        !self.prefixes.is_empty()
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
