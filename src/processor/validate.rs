//! The validate processor: events that lack what they must have are refused before anything is made of them.
//!
//! - It looks at new rows and at messages: a DELETE and a TRUNCATE bring nothing new, and pass.
//! - What the log does not hold cannot be told, and is in order: a value that an UPDATE left alone, a column outside of the row
//!   image.
//! - A payload is read once for its schema and for `require`, as any reader of JSON would: of duplicate members the last counts, and
//!   numbers are compared as doubles where they are no whole ones. It is passed on as it is.
//! - What is said of a payload names places in it and in its schema, never a value.

mod faults;

use std::borrow::Cow;
use std::sync::Arc;

use jsonschema::Validator;
use serde_json::Value;

use super::error::{Outline, Problem};
use super::field::{Field, FieldPath, Fields, Names, Text};
use super::subject::Subject;
use super::{ProcessError, Processor, Step};
use crate::config::path::{self, EventPath};
use crate::config::pattern::{OutboxPattern, PrefixPattern};
use crate::config::payload_schemas::PayloadSchemas;
use crate::config::pipeline::{self, OnMissingSchema};
use crate::event::{ChangeEvent, Operation};

/// A processor of type `validate`.
#[derive(Debug)]
pub(super) struct Validate {
    id: Arc<str>,
    /// Events refused since this was last asked for.
    refused: u64,
    tables: Vec<OutboxPattern>,
    names: Names,
    demands: Demands,
}

/// What an event must have.
#[derive(Debug)]
struct Demands {
    /// Fields by their names.
    fields: Vec<(String, FieldPath)>,
    event_type: FieldPath,
    payload: FieldPath,
    payload_name: String,
    schemas: Option<Schemas>,
    require: Vec<Requirement>,
}

#[derive(Debug)]
struct Schemas {
    known: PayloadSchemas,
    version: Option<FieldPath>,
    default_version: String,
    on_missing: OnMissingSchema,
}

/// An event's own.
struct Schema<'s> {
    version: Cow<'s, str>,
    validator: &'s Validator,
}

#[derive(Debug)]
struct Requirement {
    event_types: Option<Vec<PrefixPattern>>,
    paths: Vec<EventPath>,
}

impl Requirement {
    fn is_for(&self, event_type: Option<&str>) -> bool {
        let is_one_of = |patterns: &Vec<PrefixPattern>| {
            event_type.is_some_and(|event_type| patterns.iter().any(|pattern| pattern.matches(event_type)))
        };
        self.event_types.as_ref().is_none_or(is_one_of)
    }
}

impl Validate {
    pub(super) fn new(config: &pipeline::Validate) -> Self {
        let mut names = Names::default();
        let mut path = |path: &Vec<String>| names.path(path);
        let fields = config.require_fields.iter();
        let schemas = config.schemas.as_ref().map(|schemas| Schemas {
            known: schemas.known.clone(),
            version: schemas.version.as_ref().map(&mut path),
            default_version: schemas.default_version.clone(),
            on_missing: schemas.on_missing,
        });
        let require = config.require.iter().map(|requirement| Requirement {
            event_types: requirement.event_types.clone(),
            paths: requirement.paths.clone(),
        });
        let demands = Demands {
            fields: fields.map(|field| (field.join("."), path(field))).collect(),
            event_type: path(&config.event_type),
            payload: path(&config.payload),
            payload_name: config.payload.join("."),
            schemas,
            require: require.collect(),
        };
        Self {
            id: Arc::from(config.id.as_str()),
            refused: 0,
            tables: config.tables.clone(),
            names,
            demands,
        }
    }

    pub(super) fn take_count(&mut self) -> (Arc<str>, u64) {
        (Arc::clone(&self.id), std::mem::take(&mut self.refused))
    }

    fn check(&mut self, event: &ChangeEvent) -> Result<(), Problem> {
        let Some(subject) = Subject::of(event) else {
            return Ok(());
        };
        if !self.tables.is_empty() && !subject.is_of(&self.tables) {
            return Ok(());
        }
        match subject {
            Subject::Row(row) => {
                let (Operation::Insert | Operation::Update, Some(after)) = (row.operation, &row.after) else {
                    return Ok(());
                };
                self.names.look_up(&row.table);
                let fields = self.names.of_row(&row.table, after, row.before.as_ref());
                let payload = fields.at(&self.demands.payload);
                self.demands.check(&fields, payload)
            }
            Subject::Message(message) => match self.names.of_message(&message.content) {
                Some(fields) => self.demands.check(&fields, fields.at(&self.demands.payload)),
                // It is all payload, as to the outbox processor.
                None => self.demands.check(&Fields::None, Field::Binary(&message.content)),
            },
        }
    }
}

impl Demands {
    fn check(&self, fields: &Fields<'_>, payload: Field<'_>) -> Result<(), Problem> {
        self.check_fields(fields)?;
        if self.schemas.is_none() && self.require.is_empty() {
            return Ok(());
        }
        let version = self.schemas.as_ref().and_then(|schemas| schemas.version.as_ref());
        let mut needed = [&self.event_type, &self.payload].into_iter().chain(version);
        if needed.any(|path| fields.is_withheld(path)) {
            return Ok(());
        }
        let event_type = field_text(fields, &self.event_type);
        let event_type = event_type.as_deref();
        let schema = self.schema(fields, event_type)?;
        let require = self.require.iter().filter(|requirement| requirement.is_for(event_type));
        let required: Vec<&EventPath> = require.flat_map(|requirement| &requirement.paths).collect();
        if schema.is_none() && required.is_empty() {
            return Ok(());
        }
        let value = self.value(payload)?;
        let missing = required.iter().filter(|path| lacks(&value, path.steps()));
        let missing: Vec<String> = missing.map(|path| format!("`{path}`")).collect();
        if !missing.is_empty() {
            return Err(Problem::PayloadLacks {
                paths: missing.join(", "),
            });
        }
        match schema {
            Some(Schema { version, validator }) if !validator.is_valid(&value) => Err(Problem::SchemaViolated {
                schema: format!("{}/{version}", event_type.unwrap_or_default()),
                faults: faults::in_words(validator.iter_errors(&value)),
            }),
            _ => Ok(()),
        }
    }

    fn check_fields(&self, fields: &Fields<'_>) -> Result<(), Problem> {
        let is_missing = |path: &FieldPath| {
            let field = fields.at(path);
            (field == Field::Missing || field.is_null()) && !fields.is_withheld(path)
        };
        let missing = self.fields.iter().filter(|(_, path)| is_missing(path));
        let missing: Vec<String> = missing.map(|(name, _)| format!("`{name}`")).collect();
        match missing.is_empty() {
            true => Ok(()),
            false => Err(Problem::FieldsMissing {
                fields: missing.join(", "),
            }),
        }
    }

    /// The schema of an event. None: it need not match any.
    fn schema<'s>(&'s self, fields: &Fields<'s>, event_type: Option<&str>) -> Result<Option<Schema<'s>>, Problem> {
        let Some(schemas) = &self.schemas else {
            return Ok(None);
        };
        let version = schemas.version.as_ref().and_then(|path| field_text(fields, path));
        let version = version.unwrap_or(Cow::Borrowed(&schemas.default_version));
        let found = event_type.and_then(|event_type| schemas.known.find(event_type, &version));
        match (found, schemas.on_missing) {
            (Some(validator), _) => Ok(Some(Schema { version, validator })),
            (None, OnMissingSchema::Allow) => Ok(None),
            (None, OnMissingSchema::Reject) => Err(Problem::NoSchema {
                event_type: event_type.map_or_else(|| "an event without a type".to_owned(), faults::named),
                version: faults::cut(&version),
            }),
        }
    }

    fn value(&self, payload: Field<'_>) -> Result<Value, Problem> {
        let unreadable = |fault: String| Problem::PayloadUnreadable {
            field: self.payload_name.clone(),
            fault,
        };
        if payload == Field::Missing {
            return Err(unreadable("there is no such field".to_owned()));
        }
        let text = payload.written().map_err(|fault| unreadable(fault.to_string()))?;
        let Some((text, _)) = text else { return Ok(Value::Null) };
        serde_json::from_str(text).map_err(|err| unreadable(faults::of_reading(&err)))
    }
}

/// A field's text. None: it has none.
fn field_text<'a>(fields: &Fields<'a>, path: &FieldPath) -> Option<Cow<'a, str>> {
    let text = fields.at(path).text().ok().flatten()?;
    Some(match text {
        Text::Slice { text, .. } | Text::Plain(text) => Cow::Borrowed(text),
        Text::Made(text) => Cow::Owned(text),
    })
}

/// Whether something that a path asks for is missing or null. Of all items of an empty list, nothing is.
fn lacks(value: &Value, steps: &[path::Step]) -> bool {
    let Some((step, rest)) = steps.split_first() else {
        return value.is_null();
    };
    match step {
        path::Step::Member(name) => value.get(name).is_none_or(|value| lacks(value, rest)),
        path::Step::Item(index) => value.get(index).is_none_or(|value| lacks(value, rest)),
        path::Step::EveryItem => value
            .as_array()
            .is_none_or(|items| items.iter().any(|value| lacks(value, rest))),
    }
}

impl Processor for Validate {
    /// Passes every event on as it is, unless it is to be rejected.
    fn process(&mut self, event: ChangeEvent) -> Result<Step, ProcessError> {
        match self.check(&event) {
            Ok(()) => Ok(Step::Pass(event)),
            Err(problem) => {
                self.refused += 1;
                Err(ProcessError::new(event, problem, Outline::default()))
            }
        }
    }
}

#[cfg(test)]
mod tests;
