//! The outbox processor: an application's message, or a row inserted into an outbox table, becomes a record.
//!
//! What the contract leaves open is decided so:
//! - Of duplicate members the last counts, as in jsonb. Inside the payload nothing is looked at.
//! - An empty text is no topic and no key; as a header it stays, empty.
//! - A field that topic, key or header need and that cannot be text (half a surrogate pair, bytes that are not UTF-8)
//!   makes the event invalid. An object, an array or null is merely no text.
//! - A null in the log is a null payload; the JSON text `null` in a json column is four bytes of payload.
//! - The key is the processor's template or else the aggregate id; when that gives none, the sink's template.
//! - A derived event id is the event's position as it prints itself, with nothing before it.
//! - An enveloped payload that is not JSON already (a text or binary column, a message that is no object) is put in as
//!   JSON when it parses as JSON, else as a JSON string.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;

use super::envelope::NativeEnvelope;
use super::error::{Outline, Problem, ProcessError};
use super::field::{Field, FieldPath, Fields, Names, Slot, Text, named_text};
use super::template::{Compiled, Rendering};
use super::topic::{TopicCascade, TopicNames};
use super::{Outcome, Processor, Step};
use crate::config::pattern::OutboxPattern;
use crate::config::pipeline;
use crate::config::template::Template;
use crate::event::{Change, ChangeEvent, LogMessage, Operation, RowChange, Selection};
use crate::record::{Header, Record};

/// A processor of type `outbox`.
#[derive(Debug)]
pub struct Outbox {
    id: Arc<str>,
    /// Events taken since this was last asked for.
    taken: u64,
    tables: Vec<OutboxPattern>,
    layout: Layout,
    topic: TopicCascade,
    value: ValueForm,
}

/// Where an event has what goes into its record, as the file says.
#[derive(Debug)]
struct Layout {
    names: Names,
    columns: Columns,
    headers: HeaderNames,
    key: Option<Compiled<FieldPath>>,
    sink_key: Option<Compiled<FieldPath>>,
    strict: bool,
}

#[derive(Debug)]
struct Columns {
    payload: Slot,
    aggregate_type: Slot,
    aggregate_id: Slot,
    event_type: Slot,
    event_id: Slot,
}

#[derive(Debug)]
struct HeaderNames {
    event_id: Arc<str>,
    aggregate_type: Arc<str>,
    aggregate_id: Arc<str>,
    event_type: Arc<str>,
    additional: Vec<(Arc<str>, Slot)>,
}

#[derive(Debug)]
enum ValueForm {
    /// The payload's own bytes.
    Raw,
    Envelope(Box<NativeEnvelope>),
}

/// A change that can be an outbox event.
#[derive(Debug, Clone, Copy)]
pub(super) enum OutboxChange<'a> {
    Message(&'a LogMessage),
    Insert(&'a RowChange),
}

impl<'a> OutboxChange<'a> {
    fn of(event: &'a ChangeEvent) -> Option<Self> {
        match &event.change {
            _ if event.selection != Selection::Outbox => None,
            Change::Message(message) => Some(Self::Message(message)),
            Change::Row(row) => (row.operation == Operation::Insert).then_some(Self::Insert(row)),
            Change::Oversized(_) => None,
        }
    }
}

/// An event's text for each of the fields that become headers.
struct Texts<'a> {
    event_id: Option<Text<'a>>,
    aggregate_type: Option<Text<'a>>,
    aggregate_id: Option<Text<'a>>,
    event_type: Option<Text<'a>>,
}

impl Outbox {
    /// A processor as the file has it, in front of a sink that may have templates of its own.
    pub(super) fn new(
        config: &pipeline::Outbox,
        sink_topic: Option<&Template>,
        sink_key: Option<&Template>,
        envelope: NativeEnvelope,
    ) -> Self {
        let mut names = Names::default();
        let columns = Columns {
            payload: names.slot(&config.columns.payload),
            aggregate_type: names.slot(&config.columns.aggregate_type),
            aggregate_id: names.slot(&config.columns.aggregate_id),
            event_type: names.slot(&config.columns.event_type),
            event_id: names.slot(&config.columns.event_id),
        };
        let mut compiled =
            |template: Option<&Template>| template.map(|template| Compiled::new(template, |path| names.path(path)));
        let (template, sink) = (compiled(config.topic.as_ref()), compiled(sink_topic));
        let (key, sink_key) = (compiled(config.key.as_ref()), compiled(sink_key));
        let additional = config.additional_headers.iter();
        let additional = additional
            .map(|(header, column)| (Arc::from(header.as_str()), names.slot(column)))
            .collect();
        let topic = TopicCascade {
            template,
            column: names.slot(&config.columns.topic),
            default_topic: config.default_topic.clone(),
            sink,
            strict: config.strict,
            names: TopicNames::default(),
        };
        let headers = HeaderNames {
            event_id: Arc::from("df-event-id"),
            aggregate_type: Arc::from("df-aggregate-type"),
            aggregate_id: Arc::from("df-aggregate-id"),
            event_type: Arc::from("df-event-type"),
            additional,
        };
        let value = if config.raw_payload {
            ValueForm::Raw
        } else {
            ValueForm::Envelope(Box::new(envelope))
        };
        let layout = Layout {
            names,
            columns,
            headers,
            key,
            sink_key,
            strict: config.strict,
        };
        Self {
            id: Arc::from(config.id.as_str()),
            taken: 0,
            tables: config.tables.clone(),
            layout,
            topic,
            value,
        }
    }

    /// The event as one of this processor's, if it is.
    pub(super) fn take_count(&mut self) -> (Arc<str>, u64) {
        (Arc::clone(&self.id), std::mem::take(&mut self.taken))
    }

    fn takes<'a>(&self, event: &'a ChangeEvent) -> Option<OutboxChange<'a>> {
        let change = OutboxChange::of(event)?;
        let matches = |pattern: &OutboxPattern| match change {
            OutboxChange::Message(message) => pattern.matches_prefix(&message.prefix),
            OutboxChange::Insert(row) => pattern.matches_table(&row.table.schema, &row.table.name),
        };
        (self.tables.is_empty() || self.tables.iter().any(matches)).then_some(change)
    }

    fn record(&mut self, event: &ChangeEvent, change: OutboxChange<'_>) -> Result<Record, Problem> {
        if let OutboxChange::Insert(row) = change {
            self.layout.names.look_up(&row.table);
        }
        let (fields, payload) = self.layout.fields(change)?;
        let text = |slot| self.layout.text(&fields, slot);
        let texts = self.layout.texts(text)?;
        if self.layout.strict {
            self.layout.demand(&texts)?;
        }
        let topic = self.topic.topic(&fields, &self.layout.names)?;
        let value = match &mut self.value {
            ValueForm::Raw => payload.bytes(),
            ValueForm::Envelope(envelope) => Some(envelope.of_outbox(event, change, payload)?),
        };
        let (headers, aggregate_id) = self.layout.headers(event, texts, text)?;
        let key = self.layout.key(&fields, aggregate_id)?;
        Ok(Record {
            topic,
            key,
            value,
            headers,
            timestamp_ms: event.commit_time_us.div_euclid(1000),
        })
    }

    /// What can be told of a record that could not be made. What has no text is left out.
    fn outline(&mut self, event: &ChangeEvent, change: OutboxChange<'_>) -> Outline {
        let fields = self.layout.all_fields(change).unwrap_or(Fields::None);
        let text = |slot| Ok::<_, Infallible>(self.layout.text(&fields, slot).ok().flatten());
        let Ok(texts) = self.layout.texts(text);
        let Ok((headers, aggregate_id)) = self.layout.headers(event, texts, text);
        Outline {
            topic: self.topic.topic(&fields, &self.layout.names).ok(),
            key: self.layout.key(&fields, aggregate_id).ok().flatten(),
            headers,
        }
    }
}

impl Layout {
    /// The event's fields, and that which is its payload. Of a row, the names must have been looked up.
    fn fields<'a>(&'a self, change: OutboxChange<'a>) -> Result<(Fields<'a>, Field<'a>), Problem> {
        let fields = match (self.all_fields(change), change) {
            (Some(fields), _) => fields,
            (None, OutboxChange::Message(message)) => return Ok((Fields::None, Field::Binary(&message.content))),
            (None, OutboxChange::Insert(_)) => return Err(Problem::NoNewRow),
        };
        match fields.field(self.columns.payload) {
            Field::Missing => Err(Problem::NoPayload {
                field: self.names.name(self.columns.payload).to_owned(),
            }),
            payload => Ok((fields, payload)),
        }
    }

    /// None: a message that is no JSON object, or a change without a new row.
    fn all_fields<'a>(&'a self, change: OutboxChange<'a>) -> Option<Fields<'a>> {
        match change {
            OutboxChange::Message(message) => self.names.of_message(&message.content),
            OutboxChange::Insert(row) => Some(self.names.of_row(&row.table, row.after.as_ref()?, None)),
        }
    }

    fn text<'a>(&self, fields: &Fields<'a>, slot: Slot) -> Result<Option<Text<'a>>, Problem> {
        named_text(fields.field(slot), self.names.name(slot))
    }

    /// The fields that become headers.
    fn texts<'a, E>(&self, text: impl Fn(Slot) -> Result<Option<Text<'a>>, E>) -> Result<Texts<'a>, E> {
        Ok(Texts {
            event_id: text(self.columns.event_id)?.filter(|id| !id.as_str().is_empty()),
            aggregate_type: text(self.columns.aggregate_type)?,
            aggregate_id: text(self.columns.aggregate_id)?,
            event_type: text(self.columns.event_type)?,
        })
    }

    /// What `strict` asks for: all but the event's id have a text.
    fn demand(&self, texts: &Texts<'_>) -> Result<(), Problem> {
        let wanted = [
            (&texts.aggregate_type, self.columns.aggregate_type),
            (&texts.aggregate_id, self.columns.aggregate_id),
            (&texts.event_type, self.columns.event_type),
        ];
        let missing = wanted
            .iter()
            .filter(|(text, _)| text.as_ref().is_none_or(|text| text.as_str().is_empty()));
        let missing: Vec<_> = missing
            .map(|(_, slot)| format!("`{}`", self.names.name(*slot)))
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        Err(Problem::StrictFields {
            fields: missing.join(", "),
        })
    }

    /// The record's headers, and the aggregate's id again for the key.
    fn headers<'a, E>(
        &self,
        event: &ChangeEvent,
        texts: Texts<'a>,
        text: impl Fn(Slot) -> Result<Option<Text<'a>>, E>,
    ) -> Result<(Vec<Header>, Option<Bytes>), E> {
        let names = &self.headers;
        let mut headers = Vec::with_capacity(4 + names.additional.len());
        let mut push = |name: &Arc<str>, value: Bytes| {
            headers.push(Header {
                name: Arc::clone(name),
                value,
            })
        };
        let event_id = texts
            .event_id
            .map_or_else(|| Bytes::from(event.position.to_string()), Text::into_bytes);
        push(&names.event_id, event_id);
        if let Some(text) = texts.aggregate_type {
            push(&names.aggregate_type, text.into_bytes());
        }
        let aggregate_id = texts.aggregate_id.map(Text::into_bytes);
        if let Some(id) = &aggregate_id {
            push(&names.aggregate_id, id.clone());
        }
        if let Some(text) = texts.event_type {
            push(&names.event_type, text.into_bytes());
        }
        for (header, slot) in &names.additional {
            if let Some(text) = text(*slot)? {
                push(header, text.into_bytes());
            }
        }
        Ok((headers, aggregate_id))
    }

    fn key(&self, fields: &Fields<'_>, aggregate_id: Option<Bytes>) -> Result<Option<Bytes>, Problem> {
        let rendered = |template: &Compiled<FieldPath>| {
            let mut key = String::new();
            let rendering = template.render(&mut key, |place, name| named_text(fields.at(place), name))?;
            Ok((rendering == Rendering::Whole && !key.is_empty()).then(|| Bytes::from(key)))
        };
        let own = match &self.key {
            Some(template) => rendered(template)?,
            None => aggregate_id.filter(|id| !id.is_empty()),
        };
        match (&own, &self.sink_key) {
            (None, Some(template)) => rendered(template),
            _ => Ok(own),
        }
    }
}

impl Processor for Outbox {
    /// Takes messages and inserted rows that the source's `outbox` chose and its own `tables` match; passes everything
    /// else.
    fn process(&mut self, event: ChangeEvent) -> Result<Step, ProcessError> {
        let Some(change) = self.takes(&event) else {
            return Ok(Step::Pass(event));
        };
        self.taken += 1;
        match self.record(&event, change) {
            Ok(record) => Ok(Step::Done(Outcome::Publish(record))),
            Err(problem) => {
                let outline = self.outline(&event, change);
                Err(ProcessError::new(event, problem, outline))
            }
        }
    }
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
