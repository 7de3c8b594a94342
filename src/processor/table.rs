//! What a change of an ordinary table becomes: the sink's topic and key, the change in the sink's envelope.
//!
//! A template of the sink finds in a row's change: `op`; `source.name`, `source.db`, `source.schema`, `source.table`;
//! `before.column` and `after.column`; and by its bare name a column of the new row or, of a DELETE, of the old one.
//! Where a name could be both, it is the first. A key template that finds no text gives no key; without a template the
//! key is the table's own, as a JSON object.

use std::sync::Arc;

use bytes::Bytes;

use super::envelope::Envelope;
use super::error::{Outline, Problem};
use super::field::{Field, FieldPath, Names, Text, named_text};
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

/// Where a placeholder finds its text.
#[derive(Debug)]
enum Place {
    Operation,
    Source,
    Database,
    Schema,
    Table,
    Before(FieldPath),
    After(FieldPath),
    Current(FieldPath),
}

impl Place {
    fn new(path: &[String], names: &mut Names) -> Self {
        let words: Vec<_> = path.iter().map(String::as_str).collect();
        match words[..] {
            ["op"] => Self::Operation,
            ["source", "name"] => Self::Source,
            ["source", "db"] => Self::Database,
            ["source", "schema"] => Self::Schema,
            ["source", "table"] => Self::Table,
            ["before", _, ..] => Self::Before(names.path(&path[1..])),
            ["after", _, ..] => Self::After(names.path(&path[1..])),
            _ => Self::Current(names.path(path)),
        }
    }
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
        let places = Places {
            names: &self.names,
            source_id: &self.source_id,
            change,
        };
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
        let places = Places {
            names: &self.names,
            source_id: &self.source_id,
            change,
        };
        let mut key = String::new();
        let rendering = template.render(&mut key, |place, name| places.text(place, name))?;
        Ok((rendering == Rendering::Whole && !key.is_empty()).then(|| Bytes::from(key)))
    }
}

/// One change's places.
struct Places<'a> {
    names: &'a Names,
    source_id: &'a str,
    change: &'a RowChange,
}

impl<'a> Places<'a> {
    fn text(&self, place: &Place, name: &str) -> Result<Option<Text<'a>>, Problem> {
        let change = self.change;
        let (before, after) = (change.before.as_ref(), change.after.as_ref());
        let field = |path, row, old| match row {
            None => Field::Missing,
            Some(row) => self.names.of_row(&change.table, row, old).at(path),
        };
        let field = match place {
            Place::Operation => return Ok(Some(Text::Plain(change.operation.letter()))),
            Place::Source => return Ok(Some(Text::Plain(self.source_id))),
            Place::Database => return Ok(Some(Text::Plain(&change.table.database))),
            Place::Schema => return Ok(Some(Text::Plain(&change.table.schema))),
            Place::Table => return Ok(Some(Text::Plain(&change.table.name))),
            Place::Before(path) => field(path, before, None),
            Place::After(path) => field(path, after, before),
            Place::Current(path) => field(path, after.or(before), before),
        };
        named_text(field, name)
    }
}

#[cfg(test)]
mod tests;
