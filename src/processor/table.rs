//! What a change of an ordinary table becomes: the sink's topic and key, the change in the sink's envelope.
//!
//! A key template that finds no text gives no key; without a template the key is the table's own, as a JSON object.

use std::sync::Arc;

use bytes::Bytes;

use super::envelope::Envelope;
use super::error::{Outline, Problem};
use super::field::Names;
use super::place::{Place, Places};
use super::template::{Compiled, Rendering};
use super::topic::TopicNames;
use crate::config::template::Template;
use crate::event::{ChangeEvent, Operation, RowChange};
use crate::record::Record;

/// Makes records of ordinary tables' changes.
#[derive(Debug)]
pub(super) struct TableEvents {
    source_id: String,
    names: Names,
    topic: Option<Compiled<Place>>,
    key: Option<Compiled<Place>>,
    envelope: Envelope,
    topic_names: TopicNames,
}

impl TableEvents {
    pub(super) fn new(source_id: &str, topic: Option<&Template>, key: Option<&Template>, envelope: Envelope) -> Self {
        let mut names = Names::default();
        let mut compiled = |template: Option<&Template>| {
            template.map(|template| Compiled::new(template, |path| Place::new(path, &mut names)))
        };
        Self {
            source_id: source_id.to_owned(),
            topic: compiled(topic),
            key: compiled(key),
            names,
            envelope,
            topic_names: TopicNames::default(),
        }
    }

    pub(super) fn record(&mut self, event: &ChangeEvent, change: &RowChange) -> Result<Record, Problem> {
        if matches!(change.operation, Operation::Insert | Operation::Update) && change.after.is_none() {
            return Err(Problem::NoNewRow);
        }
        let mut headers = Vec::new();
        Ok(Record {
            topic: self.topic(change)?,
            key: self.key(event, change)?,
            value: Some(self.envelope.of_row(event, change, &mut headers)?),
            headers,
            partition: None,
            timestamp_ms: event.commit_time_us.div_euclid(1000),
        })
    }

    /// What can be told of a record that could not be made.
    pub(super) fn outline(&mut self, event: &ChangeEvent, change: &RowChange) -> Outline {
        Outline {
            topic: self.topic(change).ok(),
            key: self.key(event, change).ok().flatten(),
            headers: Vec::new(),
        }
    }

    fn topic(&mut self, change: &RowChange) -> Result<Arc<str>, Problem> {
        self.names.look_up(&change.table);
        let places = Places::of_row(&self.names, &self.source_id, change);
        let no_topic = |tried: String| Problem::NoTopic { tried };
        let template = self
            .topic
            .as_ref()
            .ok_or_else(|| no_topic("the sink has no `topic`".to_owned()))?;
        match template.render(self.topic_names.draft(), |place, name| places.text(place, name))? {
            Rendering::Whole => {}
            Rendering::Lacks(name) => return Err(no_topic(format!("the sink's `topic` finds no text in `{name}`"))),
        }
        self.topic_names.name().map_err(|fault| Problem::IllegalTopic {
            origin: format!("the sink's `topic: {}`", template.source()),
            fault,
        })
    }

    fn key(&mut self, event: &ChangeEvent, change: &RowChange) -> Result<Option<Bytes>, Problem> {
        let Some(template) = &self.key else {
            return self.envelope.key(event, change);
        };
        self.names.look_up(&change.table);
        let places = Places::of_row(&self.names, &self.source_id, change);
        let mut key = String::new();
        let rendering = template.render(&mut key, |place, name| places.text(place, name))?;
        Ok((rendering == Rendering::Whole && !key.is_empty()).then(|| Bytes::from(key)))
    }
}

#[cfg(test)]
mod tests;
