//! The validate processor: events that lack what they must have are refused before anything is made of them.
//!
//! - It looks at new rows and at messages: a DELETE and a TRUNCATE bring nothing new, and pass.
//! - What the log does not hold cannot be told, and is in order: a value that an UPDATE left alone, a column outside of the row
//!   image.
//! - A payload is read once for its schema and for `require`, as any reader of JSON would: of duplicate members the last counts, and
//!   numbers are compared as doubles where they are no whole ones. It is passed on as it is.
//! - What is said of a payload names places in it and in its schema, never a value.

mod faults;
mod registry;
mod sequence;

use std::borrow::Cow;
use std::sync::Arc;

use jsonschema::Validator;
use serde_json::Value;

use super::error::{Outline, Problem};
use super::field::{Field, FieldPath, Fields, Names, Text};
use super::subject::Subject;
use super::{ProcessError, Processor, Step};
use crate::config::SchemaRegistry;
use crate::config::path::{self, EventPath};
use crate::config::pattern::{OutboxPattern, PrefixPattern};
use crate::config::payload_schemas::PayloadSchemas;
use crate::config::pipeline::{self, OnMissingSchema, SchemaPlace};
use crate::event::{ChangeEvent, Operation};
use crate::schema_registry::{Answer, Fetched, Question, SchemaId, Version};
use registry::RegistrySchemas;
pub(super) use sequence::{SequenceFaults, SequenceRule};

/// A processor of type `validate`.
#[derive(Debug)]
pub(super) struct Validate {
    id: Arc<str>,
    /// Events refused since this was last asked for.
    refused: u64,
    tables: Vec<OutboxPattern>,
    names: Names,
    demands: Demands,
    sequence: Option<SequenceRule>,
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
    place: Place,
    version: Option<FieldPath>,
    default_version: String,
    on_missing: OnMissingSchema,
}

#[derive(Debug)]
enum Place {
    Folder(PayloadSchemas),
    Registry(Box<RegistrySchemas>),
}

/// An event's own.
enum Schema<'s> {
    OfFolder {
        version: Cow<'s, str>,
        validator: &'s Validator,
    },
    OfRegistry {
        subject: String,
        fetched: Arc<Fetched>,
    },
}

impl Schema<'_> {
    fn validator(&self) -> &Validator {
        match self {
            Self::OfFolder { validator, .. } => validator,
            Self::OfRegistry { fetched, .. } => &fetched.validator,
        }
    }

    fn name(&self, event_type: Option<&str>) -> String {
        match self {
            Self::OfFolder { version, .. } => format!("{}/{version}", event_type.unwrap_or_default()),
            Self::OfRegistry { subject, fetched } => format!("{}/{}", faults::cut(subject), fetched.version),
        }
    }
}

/// Why an event does not pass.
enum Stop {
    Refused(Problem),
    /// Its schema is to be fetched first.
    Waits,
}

impl From<Problem> for Stop {
    fn from(problem: Problem) -> Self {
        Self::Refused(problem)
    }
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
        let schemas = config.schemas.as_ref().map(|schemas| Schemas {
            place: match &schemas.place {
                SchemaPlace::Folder(known) => Place::Folder(known.clone()),
                SchemaPlace::Registry(registry) => {
                    Place::Registry(Box::new(RegistrySchemas::new(registry, &mut names)))
                }
            },
            version: schemas.version.as_ref().map(|path| names.path(path)),
            default_version: schemas.default_version.clone(),
            on_missing: schemas.on_missing,
        });
        let mut path = |path: &Vec<String>| names.path(path);
        let fields = config.require_fields.iter();
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
            sequence: config
                .sequence
                .as_ref()
                .map(|sequence| SequenceRule::new(sequence, &mut names)),
            names,
            demands,
        }
    }

    pub(super) fn take_count(&mut self) -> (Arc<str>, u64) {
        (Arc::clone(&self.id), std::mem::take(&mut self.refused))
    }

    /// The rule that looks at numbers, with the processor's id.
    pub(super) fn sequence(&mut self) -> Option<(&Arc<str>, &mut SequenceRule)> {
        Some((&self.id, self.sequence.as_mut()?))
    }

    pub(super) fn registry(&self) -> Option<&Arc<SchemaRegistry>> {
        Some(self.demands.registry()?.registry())
    }

    /// What an event waits for, which this is to be given again when it has the answer.
    pub(super) fn question(&self) -> Option<&Question> {
        self.demands.registry()?.question()
    }

    pub(super) fn answer(&mut self, answer: Answer) {
        if let Some(registry) = self.demands.registry_mut() {
            registry.answer(answer);
        }
    }

    /// Schemas that can change are to be asked for again.
    pub(super) fn age_schemas(&mut self) {
        if let Some(registry) = self.demands.registry_mut() {
            registry.age();
        }
    }

    fn check(&mut self, event: &ChangeEvent) -> Result<(), Stop> {
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
                let checked = self.demands.check(&fields, payload);
                look_at(&mut self.sequence, checked, &fields, event)
            }
            Subject::Message(message) => match self.names.of_message(&message.content) {
                Some(fields) => {
                    let payload = fields.at(&self.demands.payload);
                    let checked = self.demands.check(&fields, payload);
                    look_at(&mut self.sequence, checked, &fields, event)
                }
                // It is all payload, as to the outbox processor.
                None => self.demands.check(&Fields::None, Field::Binary(&message.content)),
            },
        }
    }
}

/// Its number counts, whatever else is wrong with an event, but once: not while it waits for a schema.
fn look_at(
    sequence: &mut Option<SequenceRule>,
    checked: Result<(), Stop>,
    fields: &Fields<'_>,
    event: &ChangeEvent,
) -> Result<(), Stop> {
    match (sequence, &checked) {
        (None, _) | (_, Err(Stop::Waits)) => checked,
        (Some(sequence), _) => {
            let looked_at = sequence.look_at(fields, &event.position);
            checked.and_then(|()| Ok(looked_at?))
        }
    }
}

impl Demands {
    fn registry(&self) -> Option<&RegistrySchemas> {
        match &self.schemas.as_ref()?.place {
            Place::Folder(_) => None,
            Place::Registry(registry) => Some(registry),
        }
    }

    fn registry_mut(&mut self) -> Option<&mut RegistrySchemas> {
        match &mut self.schemas.as_mut()?.place {
            Place::Folder(_) => None,
            Place::Registry(registry) => Some(registry),
        }
    }

    fn check(&mut self, fields: &Fields<'_>, payload: Field<'_>) -> Result<(), Stop> {
        let checked = self.check_all(fields, payload);
        let Some(registry) = self.registry_mut() else {
            return checked;
        };
        match checked {
            Err(Stop::Refused(problem)) if problem.is_by_schema() && registry.doubt() => Err(Stop::Waits),
            Err(Stop::Waits) => Err(Stop::Waits),
            checked => {
                registry.is_done();
                checked
            }
        }
    }

    fn check_all(&mut self, fields: &Fields<'_>, payload: Field<'_>) -> Result<(), Stop> {
        self.check_fields(fields)?;
        if self.schemas.is_none() && self.require.is_empty() {
            return Ok(());
        }
        if self.is_withheld(fields) {
            return Ok(());
        }
        let event_type = field_text(fields, &self.event_type);
        let event_type = event_type.as_deref();
        let schema = match &mut self.schemas {
            Some(schemas) => schemas.of_event(fields, event_type)?,
            None => None,
        };
        let require = self.require.iter().filter(|requirement| requirement.is_for(event_type));
        let required: Vec<&EventPath> = require.flat_map(|requirement| &requirement.paths).collect();
        if schema.is_none() && required.is_empty() {
            return Ok(());
        }
        let value = value(payload, &self.payload_name)?;
        let missing = required.iter().filter(|path| lacks(&value, path.steps()));
        let missing: Vec<String> = missing.map(|path| format!("`{path}`")).collect();
        if !missing.is_empty() {
            let paths = missing.join(", ");
            return Err(Problem::PayloadLacks { paths }.into());
        }
        match schema {
            Some(schema) if !schema.validator().is_valid(&value) => Err(Stop::Refused(Problem::SchemaViolated {
                schema: schema.name(event_type),
                faults: faults::in_words(schema.validator().iter_errors(&value)),
            })),
            _ => Ok(()),
        }
    }

    /// Whether the log does not hold what a payload is checked by.
    fn is_withheld(&self, fields: &Fields<'_>) -> bool {
        let version = self.schemas.as_ref().and_then(|schemas| schemas.version.as_ref());
        let of_subject = self.registry().map_or(&[][..], RegistrySchemas::fields);
        let needed = [&self.event_type, &self.payload].into_iter().chain(version);
        needed.chain(of_subject).any(|path| fields.is_withheld(path))
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
}

impl Schemas {
    /// The schema of an event. None: it need not match any.
    fn of_event<'s>(&'s mut self, fields: &Fields<'s>, event_type: Option<&str>) -> Result<Option<Schema<'s>>, Stop> {
        let version = self.version.as_ref().and_then(|path| field_text(fields, path));
        let version = version.unwrap_or(Cow::Borrowed(&self.default_version));
        let missing = |event: String| match self.on_missing {
            OnMissingSchema::Allow => Ok(None),
            OnMissingSchema::Reject => Err(Stop::Refused(Problem::NoSchema {
                event,
                version: faults::cut(&version),
            })),
        };
        let registry = match &mut self.place {
            Place::Folder(known) => {
                let found = event_type.and_then(|event_type| known.find(event_type, &version));
                return match found {
                    Some(validator) => Ok(Some(Schema::OfFolder { version, validator })),
                    None => missing(event_type.map_or_else(|| "an event without a type".to_owned(), faults::named)),
                };
            }
            Place::Registry(registry) => registry,
        };
        let subject = match registry.subject(fields, event_type) {
            Ok(subject) => subject,
            Err(lack) => return missing(lack),
        };
        let of_subject = |subject: &str| format!("subject {}", faults::named(subject));
        let Some(number) = Version::parse(&version) else {
            return missing(of_subject(&subject));
        };
        let id = SchemaId {
            subject: subject.clone(),
            version: number,
        };
        match registry.find(id) {
            None | Some(Answer::Unchanged) => Err(Stop::Waits),
            Some(Answer::Schema(fetched)) => Ok(Some(Schema::OfRegistry { subject, fetched })),
            Some(Answer::Missing) => missing(of_subject(&subject)),
            Some(Answer::Unusable(fault)) => Err(Stop::Refused(Problem::SchemaUnusable {
                schema: format!("{}/{number}", faults::cut(&subject)),
                fault,
            })),
        }
    }
}

fn value(payload: Field<'_>, name: &str) -> Result<Value, Problem> {
    let unreadable = |fault: String| Problem::PayloadUnreadable {
        field: name.to_owned(),
        fault,
    };
    if payload == Field::Missing {
        return Err(unreadable("there is no such field".to_owned()));
    }
    let text = payload.written().map_err(|fault| unreadable(fault.to_string()))?;
    let Some((text, _)) = text else { return Ok(Value::Null) };
    serde_json::from_str(text).map_err(|err| unreadable(faults::of_reading(&err)))
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
            Err(Stop::Waits) => Ok(Step::Wait(event)),
            Err(Stop::Refused(problem)) => {
                self.refused += 1;
                Err(ProcessError::new(event, problem, Outline::default()))
            }
        }
    }
}

#[cfg(test)]
mod tests;
