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

mod carried;
mod connect;
mod idempotency;
mod moment;
mod payload;

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;

use super::envelope::{Envelope, OutboxEvent};
use super::error::{Outline, Problem, ProcessError};
use super::field::{Field, FieldPath, Fields, Names, Slot, Text, named_text};
use super::ordering::Ordering;
use super::place::{Facts, OutboxPlace};
use super::template::{Compiled, Rendering};
use super::topic::{OwnTopic, SinkTopic, TopicCascade, TopicNames};
use super::url::UrlTemplate;
use super::{Outcome, Processor, SinkTarget, SinkWishes, Step};
use crate::config::pattern::OutboxPattern;
use crate::config::pipeline::{self, HeadersAs, JsonAs, KeyAs, OnMissing, OnNull, OnUpdate, TimeUnit, TopicRule};
use crate::config::template::Template;
use crate::event::{Change, ChangeEvent, LogMessage, Operation, RowChange, Selection};
use crate::record::{About, Header, OrderingKey, Record};
use crate::skip::SkipReason;
use carried::TraceColumn;
use connect::SchemaEnvelope;
use idempotency::Idempotency;
use payload::PayloadForm;

/// A processor of type `outbox`.
#[derive(Debug)]
pub struct Outbox {
    id: Arc<str>,
    /// Events taken since this was last asked for.
    taken: u64,
    tables: Vec<OutboxPattern>,
    on_update: OnUpdate,
    source_id: String,
    layout: Layout,
    target: Target,
    /// None: the record carries nothing beside what is sent.
    about: Option<Ordering<OutboxPlace>>,
    /// What the pipeline's audit ledger has of it, in its order.
    audited: Vec<Compiled<OutboxPlace>>,
    /// None: the value is the payload in the envelope.
    payload_form: Option<PayloadForm>,
    envelope: Envelope,
}

/// Where an event's record goes.
#[derive(Debug)]
enum Target {
    Topic(TopicCascade),
    Url(UrlTemplate<OutboxPlace>),
}

impl Target {
    fn find<'a>(&mut self, fields: &Fields<'a>, facts: Facts<'a>, names: &Names) -> Result<Arc<str>, Problem> {
        match self {
            Self::Topic(cascade) => cascade.topic(fields, facts, names),
            Self::Url(template) => template.url(|place, name| place.text(fields, facts, name)),
        }
    }
}

/// Where an event has what goes into its record, as the file says.
#[derive(Debug)]
struct Layout {
    names: Names,
    columns: Columns,
    headers: HeaderNames,
    idempotency: Option<Idempotency>,
    key: Option<Compiled<FieldPath>>,
    sink_key: Option<Compiled<OutboxPlace>>,
    key_as: KeyAs,
    key_schema: Option<SchemaEnvelope>,
    keep_empty_key: bool,
    /// What an event must have beside, in words, and its field.
    demanded: Vec<(String, Slot)>,
    strict: bool,
}

#[derive(Debug)]
struct Columns {
    payload: Slot,
    aggregate_type: Slot,
    aggregate_id: Slot,
    event_type: Slot,
    event_id: Slot,
    timestamp: Option<(Slot, Option<TimeUnit>)>,
    partition: Option<Slot>,
    headers: Option<Slot>,
    trace: Option<TraceColumn>,
}

#[derive(Debug)]
struct HeaderNames {
    event_id: Option<Arc<str>>,
    aggregate_type: Option<Arc<str>>,
    aggregate_id: Option<Arc<str>>,
    event_type: Option<Arc<str>>,
    additional: Vec<(Arc<str>, Slot)>,
    on_null: OnNull,
    form: HeadersAs,
    json_as: JsonAs,
}

/// A change that can be an outbox event.
#[derive(Debug, Clone, Copy)]
pub(super) enum OutboxChange<'a> {
    Message(&'a LogMessage),
    Insert(&'a RowChange),
}

impl<'a> OutboxChange<'a> {
    fn facts(self, source_id: &'a str) -> Facts<'a> {
        match self {
            Self::Message(message) => Facts::of_message(source_id, message),
            Self::Insert(row) => Facts::of_row(source_id, row),
        }
    }

    pub(super) fn of(event: &'a ChangeEvent) -> Option<Self> {
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

impl Texts<'_> {
    /// What an envelope can say of the event. `timestamp_ms`: its own time, if it has one.
    fn event<'e>(
        &'e self,
        change: OutboxChange<'e>,
        payload: Field<'e>,
        timestamp_ms: Option<i64>,
        event: &ChangeEvent,
    ) -> OutboxEvent<'e> {
        OutboxEvent {
            change,
            payload,
            id: self.event_id.as_ref().map(Text::as_str),
            event_type: self.event_type.as_ref().map(Text::as_str),
            aggregate_id: self.aggregate_id.as_ref().map(Text::as_str),
            time_us: timestamp_ms.map_or(event.commit_time_us, |millis| millis.saturating_mul(1000)),
        }
    }
}

impl Outbox {
    /// A processor as the file has it, in front of a sink that may have templates of its own.
    pub(super) fn new(config: &pipeline::Outbox, sink: &SinkWishes<'_>, envelope: Envelope) -> Self {
        let mut names = Names::default();
        let columns = Columns {
            payload: names.slot(&config.columns.payload),
            aggregate_type: names.slot(&config.columns.aggregate_type),
            aggregate_id: names.slot(&config.columns.aggregate_id),
            event_type: names.slot(&config.columns.event_type),
            event_id: names.slot(&config.columns.event_id),
            timestamp: config
                .columns
                .timestamp
                .as_ref()
                .map(|column| (names.slot(&column.name), column.unit)),
            partition: config.columns.partition.as_ref().map(|name| names.slot(name)),
            headers: config.columns.headers.as_ref().map(|name| names.slot(name)),
            trace: config
                .columns
                .trace
                .as_ref()
                .map(|name| TraceColumn::new(names.slot(name))),
        };
        let mut compiled =
            |template: Option<&Template>| template.map(|template| Compiled::new(template, |path| names.path(path)));
        let template = compiled(config.topic.as_ref().and_then(TopicRule::template));
        let key = compiled(config.key.as_ref());
        let mut place = |path: &[String]| OutboxPlace::new(path, &mut names);
        let sink_key = sink.key.map(|template| Compiled::new(template, &mut place));
        let about = sink.about.map(|ordering| Ordering::new(ordering, &mut place));
        let audited = sink.audited.iter();
        let audited = audited
            .map(|(_, template)| Compiled::new(template, &mut place))
            .collect();
        let additional = config.additional_headers.iter();
        let additional = additional
            .map(|(header, column)| (Arc::from(header.as_str()), names.slot(column)))
            .collect();
        let own = match &config.topic {
            Some(TopicRule::Route(route)) => Some(OwnTopic::Route {
                by: names.slot(&route.by),
                rewrite: route.rewrite().clone(),
            }),
            Some(TopicRule::Template(_)) | None => template.map(OwnTopic::Template),
        };
        let target = match sink.target {
            SinkTarget::Url(url) => Target::Url(UrlTemplate::new(url, |path| OutboxPlace::new(path, &mut names))),
            SinkTarget::Topic(topic) => Target::Topic(TopicCascade {
                own,
                sink: SinkTopic::new(topic, sink.has_tables, &mut names),
                column: config.topic_column().map(|name| names.slot(name)),
                default_topic: config.default_topic.clone(),
                strict: config.strict,
                names: TopicNames::default(),
            }),
        };
        let name = |name: &Option<String>| name.as_deref().map(Arc::from);
        let headers = HeaderNames {
            event_id: name(&config.header_names.event_id),
            aggregate_type: name(&config.header_names.aggregate_type),
            aggregate_id: name(&config.header_names.aggregate_id),
            event_type: name(&config.header_names.event_type),
            additional,
            on_null: config.on_null,
            form: config.headers_as,
            json_as: config.json_as,
        };
        let idempotency = config
            .idempotency
            .as_ref()
            .map(|idempotency| Idempotency::new(idempotency, &mut names));
        let payload_form = config.raw_payload.then(|| PayloadForm::new(config, &mut names));
        let demanded = match config.on_missing {
            OnMissing::Skip => Vec::new(),
            OnMissing::Reject => demanded(config, &mut names),
        };
        let layout = Layout {
            names,
            columns,
            headers,
            idempotency,
            key,
            sink_key,
            key_as: config.key_as,
            key_schema: config.key_schema.as_deref().map(SchemaEnvelope::new),
            keep_empty_key: config.keep_empty_key,
            demanded,
            strict: config.strict,
        };
        Self {
            id: Arc::from(config.id.as_str()),
            taken: 0,
            source_id: sink.source_id.to_owned(),
            tables: config.tables.clone(),
            on_update: config.on_update,
            layout,
            target,
            about,
            audited,
            payload_form,
            envelope,
        }
    }

    pub(super) fn take_count(&mut self) -> (Arc<str>, u64) {
        (Arc::clone(&self.id), std::mem::take(&mut self.taken))
    }

    /// The event as one of this processor's, if it is.
    fn takes<'a>(&self, event: &'a ChangeEvent) -> Option<OutboxChange<'a>> {
        let change = OutboxChange::of(event)?;
        let is_taken = match change {
            OutboxChange::Message(message) => self.matches(|pattern| pattern.matches_prefix(&message.prefix)),
            OutboxChange::Insert(row) => self.is_for(row),
        };
        is_taken.then_some(change)
    }

    /// Whether it is an UPDATE of one of this processor's outboxes.
    fn is_updated(&self, event: &ChangeEvent) -> bool {
        match &event.change {
            Change::Row(row) if event.selection == Selection::Outbox && row.operation == Operation::Update => {
                self.is_for(row)
            }
            _ => false,
        }
    }

    fn is_for(&self, row: &RowChange) -> bool {
        self.matches(|pattern| pattern.matches_table(&row.table.schema, &row.table.name))
    }

    fn matches(&self, matches: impl Fn(&OutboxPattern) -> bool) -> bool {
        self.tables.is_empty() || self.tables.iter().any(matches)
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
        self.layout.demand_additional(&fields)?;
        let facts = change.facts(&self.source_id);
        let topic = self.target.find(&fields, facts, &self.layout.names)?;
        let about = self.about.as_ref();
        let about = about.map(|ordering| {
            self.layout
                .about(event, (&fields, facts), &texts, ordering, &self.audited)
        });
        let timestamp_ms = self.layout.timestamp_ms(&fields)?;
        let outbox = || texts.event(change, payload, timestamp_ms, event);
        let mut beside = Vec::new();
        let value = match &self.payload_form {
            Some(form) => {
                let field = self.layout.names.name(self.layout.columns.payload);
                let value = form.value(payload, field, &fields)?;
                self.envelope.beside_raw(event, outbox, value.as_ref(), &mut beside)?;
                value
            }
            None => self.envelope.of_outbox(event, outbox(), &mut beside)?,
        };
        let (mut headers, aggregate_id) = self.layout.headers(event, &fields, texts, text)?;
        if !beside.is_empty() {
            headers.append(&mut beside);
        }
        self.layout.push_idempotency(&fields, &mut headers)?;
        self.layout.carry(&fields, &mut headers)?;
        let key = self.layout.key(&fields, facts, aggregate_id)?;
        let by_key = matches!(self.about, Some(Ordering::Key));
        let about = about.transpose()?.map(|mut about| {
            if let (true, Some(key)) = (by_key, &key) {
                about.ordering = OrderingKey::Key(key.clone());
            }
            Box::new(about)
        });
        Ok(Record {
            topic,
            partition: self.layout.partition(&fields)?,
            key,
            value,
            headers,
            timestamp_ms: timestamp_ms.unwrap_or_else(|| event.commit_time_us.div_euclid(1000)),
            about,
        })
    }

    /// What can be told of the record of an event that another processor refused. None: it is none of this one's.
    pub(super) fn outline_of(&mut self, event: &ChangeEvent) -> Option<Outline> {
        let change = self.takes(event)?;
        if let OutboxChange::Insert(row) = change {
            self.layout.names.look_up(&row.table);
        }
        Some(self.outline(event, change))
    }

    /// What can be told of a record that could not be made. What has no text is left out.
    fn outline(&mut self, event: &ChangeEvent, change: OutboxChange<'_>) -> Outline {
        let fields = self.layout.all_fields(change).unwrap_or(Fields::None);
        let facts = change.facts(&self.source_id);
        let text = |slot| Ok::<_, Infallible>(self.layout.text(&fields, slot).ok().flatten());
        let Ok(texts) = self.layout.texts(text);
        let about = self.about.as_ref();
        let about = about.and_then(|ordering| {
            self.layout
                .about(event, (&fields, facts), &texts, ordering, &self.audited)
                .ok()
        });
        let Ok((mut headers, aggregate_id)) = self.layout.headers(event, &fields, texts, text);
        // What is no header may be what the record failed for.
        let _ = self.layout.push_idempotency(&fields, &mut headers);
        let _ = self.layout.carry(&fields, &mut headers);
        Outline {
            topic: self.target.find(&fields, facts, &self.layout.names).ok(),
            key: self.layout.key(&fields, facts, aggregate_id).ok().flatten(),
            headers,
            about: about.map(Box::new),
        }
    }
}

/// The fields of all that the file places beside what an outbox always has. A trace is not worth an event.
fn demanded(config: &pipeline::Outbox, names: &mut Names) -> Vec<(String, Slot)> {
    let of_header = |header: &str| format!("the header `{header}`");
    let headers = config.additional_headers.iter();
    let headers = headers.map(|(header, field)| (of_header(header), field));
    let members = config.envelope_fields.iter();
    let members = members.map(|(member, field)| (format!("the value's member `{member}`"), field));
    let columns = &config.columns;
    let columns = [
        (
            "columns.timestamp",
            columns.timestamp.as_ref().map(|column| &column.name),
        ),
        ("columns.partition", columns.partition.as_ref()),
        ("columns.headers", columns.headers.as_ref()),
    ];
    let columns = columns
        .into_iter()
        .filter_map(|(key, field)| Some((format!("`{key}`"), field?)));
    let idempotency = config.idempotency.iter().flat_map(|idempotency| {
        let place = of_header(&idempotency.header);
        idempotency.key.fields().map(move |field| (place.clone(), field))
    });
    headers
        .chain(members)
        .chain(columns)
        .chain(idempotency)
        .map(|(place, field)| (place, names.slot(field)))
        .collect()
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

    /// What `on_missing: reject` asks for: all that the file places has its field, be it null.
    fn demand_additional(&self, fields: &Fields<'_>) -> Result<(), Problem> {
        let missing = self
            .demanded
            .iter()
            .find(|(_, slot)| fields.field(*slot) == Field::Missing);
        missing.map_or(Ok(()), |(place, slot)| {
            Err(Problem::NoAdditionalField {
                place: place.clone(),
                field: self.names.name(*slot).to_owned(),
            })
        })
    }

    /// The record's headers, and the aggregate's id again for the key.
    fn headers<'a, E>(
        &self,
        event: &ChangeEvent,
        fields: &Fields<'_>,
        texts: Texts<'a>,
        text: impl Fn(Slot) -> Result<Option<Text<'a>>, E>,
    ) -> Result<(Vec<Header>, Option<Bytes>), E> {
        let names = &self.headers;
        let value = |slot, text| connect::header(names.form, fields.field(slot), text);
        let mut headers = Vec::with_capacity(4 + names.additional.len());
        let mut push = |name: &Arc<str>, value: Option<Bytes>| {
            headers.push(Header {
                name: Arc::clone(name),
                value,
            })
        };
        if let Some(name) = &names.event_id {
            let derived = || Some(connect::text_header(names.form, &event.position.to_string()));
            let id = texts.event_id.map(|id| value(self.columns.event_id, Some(id)));
            push(name, id.unwrap_or_else(derived));
        }
        if let (Some(name), Some(text)) = (&names.aggregate_type, texts.aggregate_type) {
            push(name, value(self.columns.aggregate_type, Some(text)));
        }
        let aggregate_id = texts.aggregate_id;
        if let (Some(name), Some(id)) = (&names.aggregate_id, &aggregate_id) {
            push(name, value(self.columns.aggregate_id, Some(id.clone())));
        }
        let aggregate_id = aggregate_id.map(Text::into_bytes);
        if let (Some(name), Some(text)) = (&names.event_type, texts.event_type) {
            push(name, value(self.columns.event_type, Some(text)));
        }
        for (name, slot) in &names.additional {
            let field = fields.field(*slot);
            if let Some(json) = connect::written_header(names.form, names.json_as, field) {
                push(name, Some(json));
                continue;
            }
            match text(*slot)? {
                None if names.on_null != OnNull::Keep || !field.is_null() => {}
                text => push(name, value(*slot, text)),
            }
        }
        Ok((headers, aggregate_id))
    }

    fn push_idempotency(&self, fields: &Fields<'_>, headers: &mut Vec<Header>) -> Result<(), Problem> {
        self.idempotency.as_ref().map_or(Ok(()), |idempotency| {
            idempotency.push(headers, fields, &self.names, self.headers.form)
        })
    }

    /// Adds the headers that the event brings in fields of its own.
    fn carry(&self, fields: &Fields<'_>, headers: &mut Vec<Header>) -> Result<(), Problem> {
        if let Some(trace) = &self.columns.trace
            && let Ok(Some(text)) = fields.field(trace.slot).text()
        {
            trace.push(headers, &text, self.headers.form);
        }
        self.columns.headers.map_or(Ok(()), |slot| {
            let keeps_null = self.headers.on_null == OnNull::Keep;
            let carried = carried::Carried {
                keeps_null,
                form: self.headers.form,
                json_as: self.headers.json_as,
            };
            carried.push_members(headers, fields.field(slot), self.names.name(slot))
        })
    }

    /// What is known of the event beside what is sent. Where its order is that of the record's key, that is left to be said.
    fn about<'a>(
        &self,
        event: &ChangeEvent,
        (fields, facts): (&Fields<'a>, Facts<'a>),
        texts: &Texts<'_>,
        ordering: &Ordering<OutboxPlace>,
        audited: &[Compiled<OutboxPlace>],
    ) -> Result<About, Problem> {
        let owned = |text: &Option<Text<'_>>| text.as_ref().map(|text| text.as_str().to_owned());
        let ordering = match ordering {
            Ordering::Key | Ordering::Unordered => OrderingKey::Unordered,
            Ordering::Source => OrderingKey::Source,
            Ordering::Template(template) => {
                let mut key = String::new();
                match template.render(&mut key, |place, name| place.text(fields, facts, name))? {
                    Rendering::Whole => OrderingKey::Key(Bytes::from(key)),
                    Rendering::Lacks(_) => OrderingKey::Unordered,
                }
            }
        };
        Ok(About {
            event_id: owned(&texts.event_id).unwrap_or_else(|| event.position.to_string()),
            event_type: owned(&texts.event_type),
            aggregate_type: owned(&texts.aggregate_type),
            aggregate_id: owned(&texts.aggregate_id),
            ordering,
            audited: audited
                .iter()
                .map(|template| template.found(|place, name| place.text(fields, facts, name)))
                .collect(),
        })
    }

    /// The event's own time. None: it has none.
    fn timestamp_ms(&self, fields: &Fields<'_>) -> Result<Option<i64>, Problem> {
        let Some((slot, unit)) = self.columns.timestamp else {
            return Ok(None);
        };
        // Kafka has no times before 1970, and librdkafka takes 0 for now.
        let millis = |text: &str| moment::millis(text, unit).filter(|millis| *millis > 0);
        self.read(fields, slot, millis, |field| Problem::NoTimestamp { field })
    }

    fn partition(&self, fields: &Fields<'_>) -> Result<Option<i32>, Problem> {
        let Some(slot) = self.columns.partition else {
            return Ok(None);
        };
        let number = |text: &str| text.parse().ok().filter(|number: &i32| *number >= 0);
        self.read(fields, slot, number, |field| Problem::NoPartition { field })
    }

    /// What a field's text says. None: it is missing or null; an object or a list says nothing, and that is a problem.
    fn read<T>(
        &self,
        fields: &Fields<'_>,
        slot: Slot,
        read: impl Fn(&str) -> Option<T>,
        problem: impl Fn(String) -> Problem,
    ) -> Result<Option<T>, Problem> {
        let field = fields.field(slot);
        if field == Field::Missing || field.is_null() {
            return Ok(None);
        }
        let said = self.text(fields, slot)?.and_then(|text| read(text.as_str()));
        said.map(Some).ok_or_else(|| problem(self.names.name(slot).to_owned()))
    }

    fn key<'a>(
        &self,
        fields: &Fields<'a>,
        facts: Facts<'a>,
        aggregate_id: Option<Bytes>,
    ) -> Result<Option<Bytes>, Problem> {
        let text = self.key_text(fields, facts, aggregate_id)?;
        match self.key_as {
            KeyAs::Text => Ok(text),
            KeyAs::Json => {
                let key = self.json_key(fields, text);
                Ok(Some(match &self.key_schema {
                    Some(schema) => schema.around(&key),
                    None => key,
                }))
            }
        }
    }

    fn json_key(&self, fields: &Fields<'_>, text: Option<Bytes>) -> Bytes {
        let Some(text) = text else {
            return Bytes::from_static(b"null");
        };
        if self.key.is_none() && fields.field(self.columns.aggregate_id).is_plain_json() {
            return text;
        }
        connect::string(&String::from_utf8_lossy(&text))
    }

    fn key_text<'a>(
        &self,
        fields: &Fields<'a>,
        facts: Facts<'a>,
        aggregate_id: Option<Bytes>,
    ) -> Result<Option<Bytes>, Problem> {
        let mut key = String::new();
        let own = match &self.key {
            Some(template) => {
                let rendering = template.render(&mut key, |place, name| named_text(fields.at(place), name))?;
                whole(rendering, &mut key)
            }
            None => aggregate_id.filter(|id| self.keep_empty_key || !id.is_empty()),
        };
        match (own, &self.sink_key) {
            (None, Some(template)) => {
                key.clear();
                let rendering = template.render(&mut key, |place, name| place.text(fields, facts, name))?;
                Ok(whole(rendering, &mut key))
            }
            (own, _) => Ok(own),
        }
    }
}

/// The rendered text as a key; None: it is empty, or not whole.
fn whole(rendering: Rendering<'_>, text: &mut String) -> Option<Bytes> {
    (rendering == Rendering::Whole && !text.is_empty()).then(|| Bytes::from(std::mem::take(text)))
}

impl Processor for Outbox {
    /// Takes messages and inserted rows that the source's `outbox` chose and its own `tables` match, and has the say about
    /// rows that were updated; passes everything else.
    fn process(&mut self, event: ChangeEvent) -> Result<Step, ProcessError> {
        if self.is_updated(&event) {
            return match self.on_update {
                OnUpdate::Skip => Ok(Step::Done(Outcome::Skip(SkipReason::OutboxUpdate))),
                on_update => {
                    let problem = Problem::Updated { on_update };
                    Err(ProcessError::new(event, problem, Outline::default()))
                }
            };
        }
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
