//! The mask processor: values that must not leave are changed before anything else sees them, and all other bytes stay as they are.
//!
//! - A rule's path begins at a message's content, or at a row's columns, of both rows of a change. Inside a column it goes on through
//!   JSON, whatever the column's type. Nothing at its end, or a null on the way, is nothing to mask.
//! - Of duplicate members each is masked: some reader takes the first.
//! - Where several rules lead to one value, the first in the file's order counts that can be applied to it; a value comes before
//!   what is inside of it.
//! - An event that is rejected is masked as far as it can be: a value that its rule cannot be applied to is null in it. Only where a
//!   path does not come to its end (a text that is no JSON, a list in place of an object) all stays as it was: nothing can be told
//!   apart there, and without it the event would be lost.
//! - A rule whose column a table lacks is told of, once for each table: it may be meant for others, or be misspelt.
//! - What the log does not hold stays that way. UPDATE and DELETE of an outbox's rows are no events, and pass.

mod round;

use std::sync::Arc;

use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use secrecy::ExposeSecret;
use sha2::Sha256;

use super::error::{Outline, Problem};
use super::field::{Field, Names, Slot};
use super::json::{self, Place, Verdict};
use super::subject::Subject;
use super::unknown::{UnknownColumn, UnknownColumns};
use super::{ProcessError, Processor, Step};
use crate::config::path::{self, EventPath};
use crate::config::pattern::OutboxPattern;
use crate::config::pipeline::{self, MaskAction, MaskValue, OnMismatch};
use crate::event::{Change, ChangeEvent, RowChange};
use crate::row::{ColumnKind, Table, Value};
use round::Rounded;

/// A processor of type `mask`.
#[derive(Debug)]
pub(super) struct Mask {
    id: Arc<str>,
    /// Events changed since this was last asked for.
    changed: u64,
    tables: Vec<OutboxPattern>,
    names: Names,
    rules: Vec<Rule>,
    columns: Vec<Column>,
    on_mismatch: OnMismatch,
    /// Rules that change nothing in a table, which lacks their columns.
    idle: UnknownColumns,
}

/// A column that rules begin at, with their places in the list.
#[derive(Debug)]
struct Column {
    slot: Slot,
    /// Those of the whole column.
    whole: Vec<usize>,
    /// Those of what is inside.
    inside: Vec<usize>,
}

/// What was done to an event.
#[derive(Default)]
struct Work {
    has_changed: bool,
    /// What was in the way first.
    problem: Option<Problem>,
}

#[derive(Debug)]
struct Rule {
    path: EventPath,
    action: Action,
}

enum Action {
    Remove,
    Replace(MaskValue),
    Hash(Hmac<Sha256>),
    Round(u32),
}

/// A key is in it.
impl std::fmt::Debug for Action {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Remove => "Remove",
            Self::Replace(_) => "Replace",
            Self::Hash(_) => "Hash",
            Self::Round(_) => "Round",
        })
    }
}

/// What becomes of a value.
enum Masked {
    Same,
    Removed,
    Value(MaskValue),
}

/// Why an action cannot be applied: what it needs.
#[derive(Debug, Clone, Copy)]
struct Mismatch(&'static str);

impl Action {
    fn new(config: &MaskAction) -> Self {
        match config {
            MaskAction::Remove => Self::Remove,
            MaskAction::Replace(value) => Self::Replace(value.clone()),
            MaskAction::Hash(key) => {
                let keyed = Hmac::new_from_slice(key.expose_secret().as_bytes());
                Self::Hash(keyed.expect("a key of any length will do"))
            }
            MaskAction::Round(digits) => Self::Round(*digits),
        }
    }

    fn masked(&self, field: Field<'_>) -> Result<Masked, Mismatch> {
        match self {
            // The log does not hold it.
            _ if field == Field::Missing => Ok(Masked::Same),
            Self::Remove => Ok(Masked::Removed),
            Self::Replace(value) => Ok(Masked::Value(value.clone())),
            // There is nothing to be seen.
            Self::Hash(_) | Self::Round(_) if field.is_null() => Ok(Masked::Same),
            Self::Hash(keyed) => match field.text() {
                Ok(Some(text)) => {
                    let mut digits = Vec::with_capacity(64);
                    let hash = keyed.clone().chain_update(text.as_str()).finalize();
                    json::write_hex(&mut digits, &hash.into_bytes());
                    Ok(Masked::Value(MaskValue::Text(
                        String::from_utf8_lossy(&digits).into_owned(),
                    )))
                }
                _ => Err(Mismatch("text in UTF-8, a number or a boolean")),
            },
            Self::Round(digits) => {
                let number = number(field).and_then(|number| round::rounded(number, *digits));
                match number.ok_or(Mismatch("a number"))? {
                    Rounded::Same => Ok(Masked::Same),
                    Rounded::Text(text) => Ok(Masked::Value(MaskValue::Number(text))),
                }
            }
        }
    }
}

/// The text of what is a number by its type.
fn number(field: Field<'_>) -> Option<&str> {
    match field {
        Field::Json { text, .. } => Some(text),
        Field::Cell { text, kind } => {
            let text = std::str::from_utf8(text).ok()?;
            match kind {
                ColumnKind::Integer | ColumnKind::Float | ColumnKind::Numeric => Some(text),
                ColumnKind::Json => Some(json::trim(text)),
                ColumnKind::Boolean | ColumnKind::Binary | ColumnKind::Uuid | ColumnKind::Text => None,
            }
        }
        Field::Missing | Field::Null | Field::Binary(_) => None,
    }
}

impl Mask {
    pub(super) fn new(config: &pipeline::Mask) -> Self {
        let mut names = Names::default();
        let mut columns: Vec<Column> = Vec::new();
        for (index, rule) in config.rules.iter().enumerate() {
            let [path::Step::Member(name), inside @ ..] = rule.path.steps() else {
                // It begins at an item, which no row has.
                continue;
            };
            let slot = names.slot(name);
            let at = columns
                .iter()
                .position(|column| column.slot == slot)
                .unwrap_or_else(|| {
                    columns.push(Column {
                        slot,
                        whole: Vec::new(),
                        inside: Vec::new(),
                    });
                    columns.len() - 1
                });
            match inside {
                [] => columns[at].whole.push(index),
                _ => columns[at].inside.push(index),
            }
        }
        let rules = config.rules.iter().map(|rule| Rule {
            path: rule.path.clone(),
            action: Action::new(&rule.action),
        });
        Self {
            id: Arc::from(config.id.as_str()),
            changed: 0,
            tables: config.tables.clone(),
            names,
            rules: rules.collect(),
            columns,
            on_mismatch: config.on_mismatch,
            idle: UnknownColumns::default(),
        }
    }

    pub(super) fn take_count(&mut self) -> (Arc<str>, u64) {
        (Arc::clone(&self.id), std::mem::take(&mut self.changed))
    }

    /// The processor's id with the columns of rules that a table turned out not to have since this was last called.
    pub(super) fn take_unknown_columns(&mut self) -> (Arc<str>, Vec<UnknownColumn>) {
        (Arc::clone(&self.id), self.idle.take())
    }

    /// Takes note of rules whose columns the table lacks, which was looked up last.
    fn note_idle_rules(&mut self, table: &Table) {
        let is_of_table = !self.tables.is_empty();
        let rules = self.columns.iter().flat_map(|column| {
            let of_column = column.whole.iter().chain(&column.inside);
            of_column.map(|rule| (column.slot, &self.rules[*rule].path))
        });
        let rules = rules.map(|(slot, path)| (slot, path, is_of_table));
        self.idle.note(&self.names, table, rules);
    }

    /// Masks an event as far as it can be.
    fn mask(&mut self, event: &mut ChangeEvent) -> Work {
        let mut work = Work::default();
        let is_for = |subject: Subject<'_>| self.tables.is_empty() || subject.is_of(&self.tables);
        if !Subject::of(event).is_some_and(is_for) {
            return work;
        }
        match &mut event.change {
            Change::Message(message) => {
                let paths: Vec<_> = self.rules.iter().map(|rule| (rule.path.steps(), 0)).collect();
                let rule = |path: usize| &self.rules[path];
                if let Some(content) = self.inside(&message.content, &paths, rule, "the message", &mut work) {
                    message.content = content;
                }
            }
            Change::Row(row) => {
                if self.names.look_up(&row.table) {
                    self.note_idle_rules(&row.table);
                }
                let RowChange {
                    table, before, after, ..
                } = row;
                for image in before.iter_mut().chain(after) {
                    for column in &self.columns {
                        let Some(at) = self.names.column(column.slot) else {
                            continue;
                        };
                        if let (Some(value), Some(known)) = (image.values.get_mut(at), table.columns.get(at)) {
                            self.cell(value, known.kind, column, &mut work);
                        }
                    }
                }
            }
            Change::Oversized(_) => {}
        }
        work
    }

    /// Masks a row's cell, as a whole or inside.
    fn cell(&self, value: &mut Value, kind: ColumnKind, column: &Column, work: &mut Work) {
        for rule in column.whole.iter().map(|rule| &self.rules[*rule]) {
            let field = Field::of_cell(value, kind);
            match rule.action.masked(field) {
                Ok(Masked::Same) => return,
                Ok(masked) => {
                    *value = masked.into_cell(kind);
                    work.has_changed = true;
                    return;
                }
                Err(mismatch) if self.rejects(rule, field, mismatch, work) => {
                    *value = Value::Null;
                    return;
                }
                Err(_) => {}
            }
        }
        let (Value::Text(bytes) | Value::Bytes(bytes)) = value else {
            return;
        };
        if column.inside.is_empty() {
            return;
        }
        let rule = |path: usize| &self.rules[column.inside[path]];
        // The column was the first step.
        let paths: Vec<_> = (0..column.inside.len())
            .map(|path| (rule(path).path.steps(), 1))
            .collect();
        if let Some(masked) = self.inside(bytes, &paths, rule, "the column", work) {
            *bytes = masked;
        }
    }

    /// Masks what is inside of JSON. None: nothing is to be changed, or nothing can be.
    fn inside<'r>(
        &'r self,
        bytes: &Bytes,
        paths: &[(&[path::Step], usize)],
        rule: impl Fn(usize) -> &'r Rule,
        place: &'static str,
        work: &mut Work,
    ) -> Option<Bytes> {
        let text = std::str::from_utf8(bytes);
        if text.is_ok_and(|text| json::trim(text).is_empty()) {
            return None;
        }
        let edited = text.map(|text| {
            json::edited(text, paths, |path, place, out| {
                self.value(rule(path), place, bytes, out, work)
            })
        });
        match edited {
            Ok(Ok(masked)) => {
                work.has_changed |= masked.is_some();
                masked.map(Bytes::from)
            }
            Ok(Err(json::NotJson)) | Err(_) => {
                let path = rule(0).path.to_string();
                work.problem.get_or_insert(Problem::MaskedNotJson { path, place });
                None
            }
        }
    }

    /// What becomes of a JSON value that a rule leads to.
    fn value(&self, rule: &Rule, place: Place<'_>, event: &Bytes, out: &mut Vec<u8>, work: &mut Work) -> Verdict {
        let value = match place {
            Place::Value(value) => Field::of_json(value, event),
            Place::DeadEnd(value) => {
                let mismatch = Mismatch("the rest of the path in it");
                self.rejects(rule, Field::of_json(value, event), mismatch, work);
                return Verdict::Left;
            }
        };
        match rule.action.masked(value) {
            Ok(Masked::Same) => Verdict::Kept,
            Ok(Masked::Removed) => Verdict::Removed,
            Ok(Masked::Value(value)) => {
                write_json(out, &value);
                Verdict::Replaced
            }
            Err(mismatch) if self.rejects(rule, value, mismatch, work) => {
                write_json(out, &MaskValue::Null);
                Verdict::Replaced
            }
            Err(_) => Verdict::Left,
        }
    }

    /// Whether an event is rejected for a value that a rule cannot be applied to, of which note is taken then.
    fn rejects(&self, rule: &Rule, found: Field<'_>, mismatch: Mismatch, work: &mut Work) -> bool {
        if self.on_mismatch == OnMismatch::Ignore {
            return false;
        }
        let Mismatch(expected) = mismatch;
        work.problem.get_or_insert_with(|| Problem::Unmaskable {
            path: rule.path.to_string(),
            expected,
            found: kind_in_words(found),
        });
        true
    }
}

impl Masked {
    /// In a row, whose cells are text by their kind.
    fn into_cell(self, kind: ColumnKind) -> Value {
        let text = match (self, kind) {
            (Self::Same | Self::Removed | Self::Value(MaskValue::Null), _) => return Value::Null,
            (Self::Value(MaskValue::Text(text)), kind) if kind != ColumnKind::Json => text,
            (Self::Value(MaskValue::Boolean(flag)), ColumnKind::Boolean) => if flag { "t" } else { "f" }.to_owned(),
            (Self::Value(value), _) => {
                let mut out = Vec::new();
                write_json(&mut out, &value);
                return Value::Text(Bytes::from(out));
            }
        };
        Value::Text(Bytes::from(text))
    }
}

fn write_json(out: &mut Vec<u8>, value: &MaskValue) {
    match value {
        MaskValue::Null => out.extend_from_slice(b"null"),
        MaskValue::Boolean(flag) => out.extend_from_slice(if *flag { b"true" } else { b"false" }),
        MaskValue::Number(number) => out.extend_from_slice(number.as_bytes()),
        MaskValue::Text(text) => json::write_string(out, text),
    }
}

/// What a value is, without the value.
fn kind_in_words(field: Field<'_>) -> &'static str {
    let json = |text: &[u8]| match text.trim_ascii_start().first() {
        Some(b'{') => "an object",
        Some(b'[') => "a list",
        Some(b'"') => "text",
        Some(b't' | b'f') => "a boolean",
        _ => "a number",
    };
    match field {
        Field::Missing | Field::Null => "null",
        Field::Json { text, .. } => json(text.as_bytes()),
        Field::Binary(_) => "bytes",
        Field::Cell { text, kind } => match kind {
            ColumnKind::Json => json(text),
            ColumnKind::Boolean => "a boolean",
            ColumnKind::Integer | ColumnKind::Float | ColumnKind::Numeric => "no finite number",
            ColumnKind::Binary => "bytes",
            ColumnKind::Uuid | ColumnKind::Text => "text",
        },
    }
}

impl Processor for Mask {
    /// Passes every event on, masked, unless it is to be rejected.
    fn process(&mut self, mut event: ChangeEvent) -> Result<Step, ProcessError> {
        let Work { has_changed, problem } = self.mask(&mut event);
        self.changed += u64::from(has_changed);
        match problem {
            None => Ok(Step::Pass(event)),
            Some(problem) => Err(ProcessError::new(event, problem, Outline::default())),
        }
    }
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
