//! What a change of an ordinary table becomes: the sink's topic and key, the change in the sink's envelope.
//!
//! A key template that finds a null gives no key; without a template the key is the table's own, as a JSON object. Of a
//! field that the log does not have nothing can be told: without it the change would take another partition than those of
//! the same row, so that it is no record.

use std::sync::Arc;

use bytes::Bytes;

use super::envelope::Envelope;
use super::error::{ErrorKind, Outline, Problem, Remedy};
use super::field::Names;
use super::ordering::Ordering;
use super::place::{Found, Place, Places};
use super::template::{Compiled, Rendering};
use super::topic::TopicNames;
use super::unknown::{UnknownColumn, UnknownColumns};
use super::url::UrlTemplate;
use super::{SinkTarget, SinkWishes};
use crate::event::{ChangeEvent, Operation, RowChange};
use crate::position::EventPosition;
use crate::record::{About, OrderingKey, Record};
use crate::row::Table;

/// Makes records of ordinary tables' changes.
#[derive(Debug)]
pub(super) struct TableEvents {
    source_id: String,
    names: Names,
    target: Target,
    key: Option<Compiled<Place>>,
    /// None: the record carries nothing beside what is sent.
    about: Option<Ordering<Place>>,
    /// What the pipeline's audit ledger has of a change, in its order.
    audited: Vec<Compiled<Place>>,
    envelope: Envelope,
    unknown: UnknownColumns,
}

#[derive(Debug)]
enum Target {
    Topic {
        template: Option<Compiled<Place>>,
        names: TopicNames,
    },
    Url(UrlTemplate<Place>),
}

impl TableEvents {
    pub(super) fn new(sink: &SinkWishes<'_>, envelope: Envelope) -> Self {
        let mut names = Names::default();
        let mut place = |path: &[String]| Place::new(path, &mut names);
        let target = match sink.target {
            SinkTarget::Topic(topic) => Target::Topic {
                template: topic.map(|template| Compiled::new(template, &mut place)),
                names: TopicNames::default(),
            },
            SinkTarget::Url(url) => Target::Url(UrlTemplate::new(url, &mut place)),
        };
        let key = sink.key.map(|template| Compiled::new(template, &mut place));
        let about = sink.about.map(|ordering| Ordering::new(ordering, &mut place));
        let audited = sink.audited.iter();
        let audited = audited
            .map(|(_, template)| Compiled::new(template, &mut place))
            .collect();
        Self {
            source_id: sink.source_id.to_owned(),
            target,
            key,
            about,
            audited,
            names,
            envelope,
            unknown: UnknownColumns::default(),
        }
    }

    /// Columns of the key that a table turned out not to have since this was last called.
    pub(super) fn take_unknown_columns(&mut self) -> Vec<UnknownColumn> {
        self.unknown.take()
    }

    fn look_up(&mut self, table: &Arc<Table>) {
        if self.names.look_up(table) {
            let ordering = match &self.about {
                Some(Ordering::Template(template)) => Some(template),
                _ => None,
            };
            let asked = self.key.iter().chain(ordering).flat_map(Compiled::places);
            let asked = asked.filter_map(|(place, name)| Some((place.column()?, name, true)));
            self.unknown.note(&self.names, table, asked);
        }
    }

    pub(super) fn record(&mut self, event: &ChangeEvent, change: &RowChange) -> Result<Record, Problem> {
        if matches!(change.operation, Operation::Insert | Operation::Update) && change.after.is_none() {
            return Err(Problem::NoNewRow);
        }
        let mut headers = Vec::new();
        let (topic, key) = (self.topic(event, change)?, self.key(event, change)?);
        Ok(Record {
            about: self.about(event, change, key.as_ref())?,
            topic,
            key,
            value: Some(self.envelope.of_row(event, change, &mut headers)?),
            headers,
            partition: None,
            timestamp_ms: event.commit_time_us.div_euclid(1000),
        })
    }

    /// The event's id is its position; a change has no other of the fields.
    fn about(
        &self,
        event: &ChangeEvent,
        change: &RowChange,
        key: Option<&Bytes>,
    ) -> Result<Option<Box<About>>, Problem> {
        let Some(ordering) = &self.about else {
            return Ok(None);
        };
        let ordering = match ordering {
            Ordering::Unordered => OrderingKey::Unordered,
            Ordering::Source => OrderingKey::Source,
            Ordering::Key => key.map_or(OrderingKey::Unordered, |key| OrderingKey::Key(key.clone())),
            Ordering::Template(template) => self
                .rendered("ordering_key", template, event, change)?
                .map_or(OrderingKey::Unordered, OrderingKey::Key),
        };
        Ok(Some(Box::new(About {
            event_id: event.position.to_string(),
            event_type: None,
            aggregate_type: None,
            aggregate_id: None,
            ordering,
            audited: {
                let places = Places::of_row(&self.names, &self.source_id, change);
                let found = |template: &Compiled<Place>| template.found(|place, name| places.text(place, name));
                self.audited.iter().map(found).collect()
            },
        })))
    }

    /// None: it is empty, or finds no text in some place. The names must have been looked up.
    fn rendered(
        &self,
        key: &'static str,
        template: &Compiled<Place>,
        event: &ChangeEvent,
        change: &RowChange,
    ) -> Result<Option<Bytes>, Problem> {
        let places = Places::of_row(&self.names, &self.source_id, change);
        let mut text = String::new();
        let rendering = template.render(&mut text, |place, name| match places.find(place) {
            Found::NotLogged => Err(Problem::KeyNotLogged {
                key,
                field: name.to_owned(),
                remedy: not_logged(event, ErrorKind::Invalid),
            }),
            found => found.text(name),
        })?;
        Ok((rendering == Rendering::Whole && !text.is_empty()).then(|| Bytes::from(text)))
    }

    /// What can be told of a record that could not be made.
    pub(super) fn outline(&mut self, event: &ChangeEvent, change: &RowChange) -> Outline {
        Outline {
            topic: self.topic(event, change).ok(),
            key: self.key(event, change).ok().flatten(),
            headers: Vec::new(),
            about: self.about(event, change, None).ok().flatten(),
        }
    }

    fn topic(&mut self, event: &ChangeEvent, change: &RowChange) -> Result<Arc<str>, Problem> {
        self.look_up(&change.table);
        let places = Places::of_row(&self.names, &self.source_id, change);
        let mut remedy = match change.operation {
            Operation::Truncate => Remedy::NoRow,
            _ => Remedy::Text,
        };
        let text = |place: &Place, name: &str| match places.find(place) {
            Found::NotLogged => {
                remedy = not_logged(event, ErrorKind::Unroutable);
                Ok(None)
            }
            found => found.text(name),
        };
        let (template, names) = match &mut self.target {
            Target::Topic { template, names } => (template, names),
            Target::Url(url) => {
                return url.url(text).map_err(|problem| match problem {
                    Problem::NoUrl { field } => Problem::NoTableUrl { field, remedy },
                    problem => problem,
                });
            }
        };
        let template = template.as_ref().ok_or_else(|| Problem::NoTableTopic {
            tried: "the sink has no `topic`".to_owned(),
            remedy: Remedy::SetTopic,
        })?;
        if let Rendering::Lacks(name) = template.render(names.draft(), text)? {
            return Err(Problem::NoTableTopic {
                tried: format!("the sink's `topic` finds no text in `{name}`"),
                remedy,
            });
        }
        names.name().map_err(|fault| Problem::IllegalTopic {
            origin: format!("the sink's `topic: {}`", template.source()),
            fault,
        })
    }

    /// The names must have been looked up.
    fn key(&mut self, event: &ChangeEvent, change: &RowChange) -> Result<Option<Bytes>, Problem> {
        let Some(template) = &self.key else {
            return self.envelope.key(event, change);
        };
        self.rendered("key", template, event, change)
    }
}

/// What brings into the log what it does not have of a change, which is a problem of this kind.
fn not_logged(event: &ChangeEvent, kind: ErrorKind) -> Remedy {
    match event.position {
        EventPosition::Postgres(_) => Remedy::ReplicaIdentity(kind),
        EventPosition::Mysql(_) => Remedy::RowImage(kind),
    }
}

#[cfg(test)]
mod tests;
