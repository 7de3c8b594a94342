//! `spec.processors`.

use std::collections::HashSet;

use super::kind::{Kinds, require_kind};
use super::read_patterns;
use super::template::{FixedTopic, read_template, read_topic, read_topic_template};
use crate::config::error::Problem;
use crate::config::pattern::OutboxPattern;
use crate::config::pipeline::{Columns, Outbox, Processor};
use crate::config::reader::{Field, Mapping, Read, Reader, optional};

/// The headers that every outbox event gets.
const OUR_HEADERS: [&str; 4] = ["df-event-id", "df-aggregate-type", "df-aggregate-id", "df-event-type"];
const DEFAULT_ID: &str = "outbox";

/// What was seen of the processors so far, for the rules that join them.
#[derive(Default)]
pub(super) struct Seen<'n> {
    ids: HashSet<String>,
    pub(super) topics: Vec<FixedTopic<'n>>,
}

/// Processors with the default id share it in metrics; an id that is written twice is refused.
pub(super) fn read_processors<'n>(
    reader: &mut Reader<'_>,
    field: &Field<'n>,
    seen: &mut Seen<'n>,
) -> Read<Vec<Processor>> {
    let items = reader.list(field)?;
    let mut takes_all: Option<usize> = None;
    let mut processors = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        if let Some(earlier) = takes_all {
            reader.note(item, format!("never reached: processors[{earlier}] takes every outbox"));
        }
        let outbox = read_processor(reader, item, seen);
        if outbox
            .as_ref()
            .is_ok_and(|outbox| outbox.tables.iter().all(|pattern| pattern.as_str() == "*"))
        {
            takes_all = takes_all.or(Some(index));
        }
        processors.push(outbox.map(Processor::Outbox));
    }
    processors.into_iter().collect()
}

fn read_processor<'n>(reader: &mut Reader<'_>, field: &Field<'n>, seen: &mut Seen<'n>) -> Read<Outbox> {
    let mut mapping = reader.mapping(field)?;
    let kinds = Kinds {
        here: &[("outbox", ())],
        later: &[],
        elsewhere: &["javascript", "flatten", "filter"],
    };
    require_kind(reader, &mut mapping, "processor type", &kinds).read(|_| read_outbox(reader, mapping, seen))
}

fn read_outbox<'n>(reader: &mut Reader<'_>, mut mapping: Mapping<'n>, seen: &mut Seen<'n>) -> Read<Outbox> {
    let id = optional(mapping.take("id"), |field| read_id(reader, field, &mut seen.ids));
    let tables = optional(mapping.take("tables"), |field| {
        read_patterns(reader, field, OutboxPattern::parse)
    });
    let topic = optional(mapping.take("topic"), |field| {
        let topic = read_topic_template(reader, field)?;
        seen.topics.extend(FixedTopic::of_template(&topic, field));
        Ok(topic)
    });
    let columns = optional(mapping.take("columns"), |field| read_columns(reader, field));
    let default_topic = optional(mapping.take("default_topic"), |field| {
        let name = read_topic(reader, field)?;
        seen.topics.push(FixedTopic {
            name: name.clone(),
            field: field.clone(),
        });
        Ok(name)
    });
    let key = optional(mapping.take("key"), |field| read_template(reader, field));
    let headers = optional(mapping.take("additional_headers"), |field| read_headers(reader, field));
    let raw_payload = optional(mapping.take("raw_payload"), |field| reader.boolean(field));
    let strict = optional(mapping.take("strict"), |field| reader.boolean(field));
    reader.finish(mapping);
    Ok(Outbox {
        id: id?.unwrap_or_else(|| DEFAULT_ID.to_owned()),
        tables: tables?.unwrap_or_default(),
        topic: topic?,
        columns: columns?.unwrap_or_default(),
        default_topic: default_topic?,
        key: key?,
        additional_headers: headers?.unwrap_or_default(),
        raw_payload: raw_payload?.unwrap_or(false),
        strict: strict?.unwrap_or(false),
    })
}

fn read_id(reader: &mut Reader<'_>, field: &Field<'_>, ids: &mut HashSet<String>) -> Read<String> {
    let id = reader.filled(field)?;
    if ids.insert(id.clone()) {
        return Ok(id);
    }
    Err(reader.refuse(field, "another processor has this id: expected one of its own, or none"))
}

impl Default for Columns {
    fn default() -> Self {
        Columns {
            payload: "payload".to_owned(),
            aggregate_type: "aggregate_type".to_owned(),
            aggregate_id: "aggregate_id".to_owned(),
            event_type: "event_type".to_owned(),
            topic: "topic".to_owned(),
            event_id: "id".to_owned(),
        }
    }
}

fn read_columns(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<Columns> {
    let mut mapping = reader.mapping(field)?;
    let mut columns = Columns::default();
    let mut result = Ok(());
    for (name, column) in [
        ("payload", &mut columns.payload),
        ("aggregate_type", &mut columns.aggregate_type),
        ("aggregate_id", &mut columns.aggregate_id),
        ("event_type", &mut columns.event_type),
        ("topic", &mut columns.topic),
        ("event_id", &mut columns.event_id),
    ] {
        match optional(mapping.take(name), |field| reader.filled(field)) {
            Ok(Some(named)) => *column = named,
            Ok(None) => {}
            Err(reported) => result = Err(reported),
        }
    }
    reader.finish(mapping);
    result.map(|()| columns)
}

fn read_headers(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<Vec<(String, String)>> {
    let mut mapping = reader.mapping(field)?;
    let headers: Vec<_> = mapping
        .take_all()
        .map(|(name, field)| {
            let column = reader.filled(&field);
            if name.is_empty() {
                let message = "expected a header name that is not empty".to_owned();
                return Err(reader.report_key(&field, Problem::Refused { message }));
            }
            if OUR_HEADERS.contains(&name) {
                let message = "tailpost sets this header itself: expected another name".to_owned();
                return Err(reader.report_key(&field, Problem::Refused { message }));
            }
            Ok((name.to_owned(), column?))
        })
        .collect();
    headers.into_iter().collect()
}
