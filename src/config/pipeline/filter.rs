//! A processor of type `filter`.

use regex::Regex;

use crate::config::pattern::OutboxPattern;
use crate::event::Operation;

/// Which changes go on. What is not asked for here is kept.
#[derive(Debug, Clone)]
pub struct Filter {
    /// Name in metrics; `filter` when the file does not say.
    pub id: String,
    /// Whose changes it looks at: the others pass. Empty: all.
    pub tables: Vec<OutboxPattern>,
    /// Whether it looks at outbox events too, beside changes of ordinary tables.
    pub outboxes: bool,
    pub kept_tables: KeptTables,
    /// None: all.
    pub operations: Option<Vec<Operation>>,
    pub conditions: Vec<Condition>,
    pub demand: Demand,
}

/// Tables whose changes are kept, as DeltaForge has it.
#[derive(Debug, Clone, Default)]
pub struct KeptTables {
    /// Empty: all.
    pub include: Vec<OutboxPattern>,
    pub exclude: Vec<OutboxPattern>,
}

/// How many of the conditions a change must meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Demand {
    #[default]
    All,
    /// One, if there is any.
    Any,
}

#[derive(Debug, Clone)]
pub struct Condition {
    /// The field's path, as in a template of the sink; not empty.
    pub field: Vec<String>,
    pub test: Test,
}

/// What is asked of a field.
#[derive(Debug, Clone)]
pub enum Test {
    OneOf(Vec<Literal>),
    NoneOf {
        of: Vec<Literal>,
        /// Whether a field that is missing or null meets it.
        or_missing: bool,
    },
    /// Whether there is a value other than null.
    Exists(bool),
    Matches(Regex),
    Compares(Comparison, Literal),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// A value of the file, which a field is held against.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Literal {
    /// The field's text itself.
    Text(String),
    /// By value: `100` is `100.00` too.
    Integer(i128),
    Boolean(bool),
}
