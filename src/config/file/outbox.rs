//! `spec.processors`.

use std::collections::HashSet;

use serde::Deserialize;

use super::kind::{Kinds, require_kind};
use super::order::Inspector;
use super::read_patterns;
use super::template::{FixedHeader, FixedTopic, read_template, read_topic, read_topic_template};
use super::{filter, idempotency, mask, validate};
use crate::config::document::Value;
use crate::config::error::Problem;
use crate::config::pattern::OutboxPattern;
use crate::config::pipeline::{
    Columns, HeaderNames, HeadersAs, JsonAs, KeyAs, LeftOut, OnMissing, OnNull, OnUpdate, Outbox, PayloadAs, Processor,
    TimeUnit, TimestampColumn, TopicRule,
};
use crate::config::reader::{Field, Mapping, Read, Reader, optional};
use crate::config::route::{Rewrite, Route};
use crate::config::schema::{Form, Takes};
use crate::config::template::Template;

const DEFAULT_ID: &str = "outbox";

/// What was seen of the processors so far, for the rules that join them.
#[derive(Default)]
pub(super) struct Seen<'n> {
    ids: HashSet<String>,
    pub(super) topics: Vec<FixedTopic<'n>>,
    pub(super) headers: Vec<FixedHeader<'n>>,
    /// Keys that mean nothing to a sink without topics.
    pub(super) of_topics: Vec<Field<'n>>,
    /// What asks to see UPDATEs of outboxes, and the gravest of what follows.
    pub(super) on_update: Option<(Field<'n>, OnUpdate)>,
    pub(super) inspectors: Vec<Inspector<'n>>,
    /// What outbox processors take by name.
    pub(super) named: Vec<(Field<'n>, OutboxPattern)>,
    /// What tells JSON by its column's type.
    pub(super) of_json_columns: Vec<Field<'n>>,
    /// Words that send events to dead letters, whatever the policies are.
    pub(super) dead_letter_words: Vec<Field<'n>>,
}

/// Processors with the default id share it in metrics; an id that is written twice is refused.
pub(super) fn read_processors<'n>(
    reader: &mut Reader<'_>,
    field: &Field<'n>,
    seen: &mut Seen<'n>,
) -> Read<Vec<Processor>> {
    let items = reader.list(field)?;
    let mut takes_all: Option<usize> = None;
    let mut outboxes: Vec<(usize, Vec<OutboxPattern>)> = Vec::new();
    let mut processors = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        let processor = read_processor(reader, item, seen);
        if let Ok(Processor::Outbox(outbox)) = &processor {
            if let Some(earlier) = takes_all {
                reader.note(item, format!("never reached: processors[{earlier}] takes every outbox"));
            }
            if outbox.tables.iter().all(|pattern| pattern.as_str() == "*") {
                takes_all = takes_all.or(Some(index));
            }
            outboxes.push((index, outbox.tables.clone()));
        }
        let inspects = match &processor {
            Ok(Processor::Mask(mask)) => Some(("mask", &mask.tables)),
            Ok(Processor::Validate(validate)) => Some(("validate", &validate.tables)),
            _ => None,
        };
        if let Some((kind, tables)) = inspects {
            seen.inspectors.push(Inspector {
                field: item.clone(),
                kind,
                tables: tables.clone(),
                behind: outboxes.clone(),
            });
        }
        processors.push(processor);
    }
    processors.into_iter().collect()
}

fn read_processor<'n>(reader: &mut Reader<'_>, field: &Field<'n>, seen: &mut Seen<'n>) -> Read<Processor> {
    #[derive(Clone, Copy)]
    enum Type {
        Outbox,
        Filter,
        Mask,
        Validate,
    }
    let mut mapping = reader.mapping(field)?;
    let kinds = Kinds {
        here: &[
            ("outbox", Type::Outbox),
            ("filter", Type::Filter),
            ("mask", Type::Mask),
            ("validate", Type::Validate),
        ],
        later: &[],
        elsewhere: &["javascript", "flatten"],
    };
    require_kind(reader, &mut mapping, "processor type", &kinds).read(|kind| match kind {
        Some(Type::Filter) => filter::read(reader, mapping, seen).map(|filter| Processor::Filter(Box::new(filter))),
        Some(Type::Mask) => mask::read(reader, mapping, seen).map(|mask| Processor::Mask(Box::new(mask))),
        Some(Type::Validate) => {
            validate::read(reader, mapping, seen).map(|validate| Processor::Validate(Box::new(validate)))
        }
        Some(Type::Outbox) | None => {
            read_outbox(reader, mapping, seen).map(|outbox| Processor::Outbox(Box::new(outbox)))
        }
    })
}

fn read_outbox<'n>(reader: &mut Reader<'_>, mut mapping: Mapping<'n>, seen: &mut Seen<'n>) -> Read<Outbox> {
    let id = optional(mapping.take("id"), |field| read_id(reader, field, seen));
    let tables = optional(mapping.take("tables"), |field| {
        let patterns = read_patterns(reader, field, OutboxPattern::parse)?;
        let items = reader.list(field)?;
        seen.named.extend(items.into_iter().zip(patterns.iter().cloned()));
        Ok(patterns)
    });
    let of_topics = ["topic", "route", "default_topic"];
    seen.of_topics
        .extend(of_topics.into_iter().filter_map(|name| mapping.peek(name)));
    let topic = read_topic_rule(reader, &mut mapping, seen);
    let columns = optional(mapping.take("columns"), |field| read_columns(reader, field, seen));
    let default_topic = optional(mapping.take("default_topic"), |field| {
        let name = read_topic(reader, field)?;
        seen.topics.push(FixedTopic {
            name: name.clone(),
            field: field.clone(),
        });
        Ok(name)
    });
    let key = optional(mapping.take("key"), |field| read_template(reader, field));
    let key_as = optional(mapping.take("key_as"), |field| {
        reader.word(field, &[("text", KeyAs::Text), ("json", KeyAs::Json)])
    });
    let key_schema = optional(mapping.take("key_schema"), |field| {
        let schema = read_schema(reader, field)?;
        match key_as {
            Ok(Some(KeyAs::Json)) | Err(_) => Ok(schema),
            Ok(_) => Err(reader.refuse(field, "without effect: expected `key_as: json` beside it")),
        }
    });
    let keep_empty_key = optional(mapping.take("keep_empty_key"), |field| {
        let keep = reader.boolean(field)?;
        match matches!(key, Ok(None)) {
            true => Ok(keep),
            false => Err(reader.refuse(
                field,
                "without effect beside `key`, which is none where a field of it is empty",
            )),
        }
    });
    let headers_as = optional(mapping.take("headers_as"), |field| {
        reader.word(field, &[("text", HeadersAs::Text), ("json", HeadersAs::Json)])
    });
    let json_as = optional(mapping.take("json_as"), |field| {
        let words = [
            ("value", JsonAs::Value),
            ("text", JsonAs::Text),
            ("compact", JsonAs::Compact),
        ];
        reader.word(field, &words)
    });
    // What a trace becomes is there by names of its own.
    let has_trace = matches!(&columns, Ok(Some(columns)) if columns.trace.is_some());
    let is_of_trace = |name: &str| has_trace && Columns::TRACE_HEADERS.contains(&name);
    let header_names = optional(mapping.take("header_names"), |field| {
        let names = read_header_names(reader, field, is_of_trace)?;
        see_headers(seen, field, names.iter());
        Ok(names)
    });
    let headers = optional(mapping.take("additional_headers"), |field| {
        let names = header_names.as_ref().ok().and_then(Option::as_ref);
        let headers = read_headers(reader, field, names.unwrap_or(&HeaderNames::default()), is_of_trace)?;
        see_headers(seen, field, headers.iter().map(|(name, _)| name.as_str()));
        Ok(headers)
    });
    let is_header = |name: &str| {
        let own = header_names.as_ref().ok().and_then(Option::as_ref);
        let additional = headers.iter().flatten().flatten();
        own.unwrap_or(&HeaderNames::default()).iter().any(|own| own == name)
            || additional.into_iter().any(|(additional, _)| additional == name)
            || is_of_trace(name)
            || is_of_letter(name)
    };
    let idempotency = idempotency::read(reader, &mut mapping, is_header);
    if let Ok(Some((idempotency, place))) = &idempotency {
        see_headers(seen, place, [idempotency.header.as_str()].into_iter());
    }
    let on_missing = optional(mapping.take("on_missing"), |field| {
        reader.word(field, &[("skip", OnMissing::Skip), ("reject", OnMissing::Reject)])
    });
    let on_null = optional(mapping.take("on_null"), |field| {
        reader.word(field, &[("skip", OnNull::Skip), ("keep", OnNull::Keep)])
    });
    let raw_payload = optional(mapping.take("raw_payload"), |field| reader.boolean(field));
    let raw = !matches!(raw_payload, Ok(None | Some(false)));
    let envelope_fields = optional(mapping.take("envelope_fields"), |field| {
        read_envelope_fields(reader, field).and_then(|fields| of_raw(reader, field, raw, fields))
    });
    let payload_as = optional(mapping.take("payload_as"), |field| {
        let forms = [
            ("raw", PayloadAs::Raw),
            ("text", PayloadAs::Text),
            ("json_string", PayloadAs::JsonString),
            ("compact", PayloadAs::Compact),
            ("expanded", PayloadAs::Expanded),
        ];
        let form = reader
            .word(field, &forms)
            .and_then(|form| of_raw(reader, field, raw, form))?;
        if form == PayloadAs::Compact {
            seen.of_json_columns.push(field.clone());
        }
        Ok(form)
    });
    let left_out = read_left_out(reader, &mut mapping, payload_as);
    let payload_schema = optional(mapping.take("payload_schema"), |field| {
        let schema = read_schema(reader, field)?;
        match payload_as {
            Ok(Some(PayloadAs::JsonString)) | Err(_) => Ok(schema),
            Ok(_) => Err(reader.refuse(field, "without effect: expected `payload_as: json_string` beside it")),
        }
    });
    let tombstone_on_empty = optional(mapping.take("tombstone_on_empty"), |field| {
        reader.boolean(field).and_then(|flag| of_raw(reader, field, raw, flag))
    });
    let strict = optional(mapping.take("strict"), |field| reader.boolean(field));
    let on_update = optional(mapping.take("on_update"), |field| {
        let words = [
            ("skip", OnUpdate::Skip),
            ("warn", OnUpdate::Warn),
            ("halt", OnUpdate::Halt),
        ];
        let on_update = reader.word(field, &words)?;
        let gravest = seen.on_update.as_ref().map_or(OnUpdate::Skip, |(_, known)| *known);
        if on_update > gravest {
            seen.on_update = Some((field.clone(), on_update));
        }
        Ok(on_update)
    });
    reader.finish(mapping);
    Ok(Outbox {
        id: id?.unwrap_or_else(|| DEFAULT_ID.to_owned()),
        tables: tables?.unwrap_or_default(),
        topic: topic?,
        columns: columns?.unwrap_or_default(),
        default_topic: default_topic?,
        key: key?,
        key_as: key_as?.unwrap_or_default(),
        key_schema: key_schema?,
        keep_empty_key: keep_empty_key?.unwrap_or(false),
        headers_as: headers_as?.unwrap_or_default(),
        json_as: json_as?.unwrap_or_default(),
        header_names: header_names?.unwrap_or_default(),
        additional_headers: headers?.unwrap_or_default(),
        idempotency: idempotency?.map(|(idempotency, _)| idempotency),
        envelope_fields: envelope_fields?.unwrap_or_default(),
        on_missing: on_missing?.unwrap_or_default(),
        on_null: on_null?.unwrap_or_default(),
        raw_payload: raw_payload?.unwrap_or(false),
        payload_as: payload_as?.unwrap_or_default(),
        left_out: left_out?,
        payload_schema: payload_schema?,
        tombstone_on_empty: tombstone_on_empty?.unwrap_or(false),
        strict: strict?.unwrap_or(false),
        on_update: on_update?.unwrap_or_default(),
    })
}

fn see_headers<'n, 'a>(seen: &mut Seen<'n>, field: &Field<'n>, names: impl Iterator<Item = &'a str>) {
    seen.headers.extend(names.map(|name| FixedHeader {
        name: name.to_owned(),
        field: field.clone(),
    }));
}

/// What counts only where the value is the payload; elsewhere it would be without effect.
fn of_raw<T>(reader: &mut Reader<'_>, field: &Field<'_>, raw: bool, value: T) -> Read<T> {
    match raw {
        true => Ok(value),
        false => Err(reader.refuse(
            field,
            "without effect in an envelope: expected `raw_payload: true` beside it",
        )),
    }
}

/// Only where a payload is written anew can anything be left out of it.
fn read_left_out(
    reader: &mut Reader<'_>,
    mapping: &mut Mapping<'_>,
    payload_as: Read<Option<PayloadAs>>,
) -> Read<LeftOut> {
    let mut left_out = LeftOut::default();
    let own = [
        ("drop_null_members", &mut left_out.null_members),
        ("drop_empty_arrays", &mut left_out.empty_arrays),
    ];
    read_into(mapping, own, |field| {
        let flag = reader.boolean(field)?;
        match payload_as {
            Ok(Some(PayloadAs::Compact | PayloadAs::Expanded)) | Err(_) => Ok(flag),
            Ok(_) => Err(reader.refuse(
                field,
                "without effect: expected `payload_as: compact` or `payload_as: expanded` beside it",
            )),
        }
    })?;
    Ok(left_out)
}

/// A schema as `JsonConverter` writes it; what it must have beside its type is for its readers to say.
fn read_schema(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<String> {
    #[derive(Deserialize)]
    struct Schema {
        #[serde(rename = "type")]
        _kind: String,
    }
    let text = reader.text(field)?;
    match serde_json::from_str::<Schema>(&text.value) {
        Ok(_) => Ok(text.value),
        Err(_) => Err(reader.unexpected(field, SCHEMA, text.found())),
    }
}

const SCHEMA: &str = "a Connect schema as JSON, such as '{\"type\": \"string\", \"optional\": true}'";

fn read_topic_rule<'n>(
    reader: &mut Reader<'_>,
    mapping: &mut Mapping<'n>,
    seen: &mut Seen<'n>,
) -> Read<Option<TopicRule>> {
    let topic = optional(mapping.take("topic"), |field| {
        let topic = read_topic_template(reader, field)?;
        seen.topics.extend(FixedTopic::of_template(&topic, field));
        Ok(TopicRule::Template(topic))
    });
    let has_topic = !matches!(topic, Ok(None));
    let route = optional(mapping.take("route"), |field| {
        let route = read_route(reader, field);
        match has_topic {
            true => Err(reader.refuse(field, "`topic` is there too: expected one of the two")),
            false => route.map(TopicRule::Route),
        }
    });
    Ok(topic?.or(route?))
}

fn read_route(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<Route> {
    let mut mapping = reader.mapping(field)?;
    let by = reader
        .require(&mut mapping, "by", "the field to look at")
        .and_then(|field| reader.filled(&field));
    let replacement = reader
        .require(
            &mut mapping,
            "replacement",
            "a topic, with groups as `${name}` or `${1}`",
        )
        .and_then(|field| read_replacement(reader, &field));
    let regex = reader.require(&mut mapping, "regex", "a regular expression");
    reader.finish(mapping);
    let (regex, replacement) = (regex?, replacement?);
    // As written: in an expression `$` is the end of the text.
    let source = reader.as_written(&regex, Takes::Text(Form::Any))?;
    match Rewrite::new(source, &replacement) {
        Ok(rewrite) => Ok(Route::new(by?, rewrite)),
        Err(err) => Err(reader.refuse(&regex, err.to_string())),
    }
}

/// A topic with groups; a group as Java writes it would be text.
fn read_replacement(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<Template> {
    let source = reader.as_written(field, Takes::Template)?;
    match java_group(source) {
        Some(digit) => Err(reader.refuse(field, format!("`${digit}` is no group here: write `${{{digit}}}`"))),
        None => read_topic_template(reader, field),
    }
}

/// The number of the first group that is written without braces, as `$1`. Of `$$1` the dollar is text.
fn java_group(source: &str) -> Option<char> {
    let mut characters = source.chars();
    while let Some(character) = characters.next() {
        if character == '$'
            && let Some(next) = characters.next()
            && next.is_ascii_digit()
        {
            return Some(next);
        }
    }
    None
}

pub(super) fn read_id(reader: &mut Reader<'_>, field: &Field<'_>, seen: &mut Seen<'_>) -> Read<String> {
    let id = reader.filled(field)?;
    if seen.ids.insert(id.clone()) {
        return Ok(id);
    }
    Err(reader.refuse(field, "another processor has this id: expected one of its own, or none"))
}

/// Reads those of these keys that are there, each into its place.
fn read_into<T, const N: usize>(
    mapping: &mut Mapping<'_>,
    places: [(&'static str, &mut T); N],
    mut read: impl FnMut(&Field<'_>) -> Read<T>,
) -> Read<()> {
    let mut result = Ok(());
    for (key, place) in places {
        match optional(mapping.take(key), &mut read) {
            Ok(Some(value)) => *place = value,
            Ok(None) => {}
            Err(reported) => result = Err(reported),
        }
    }
    result
}

fn read_columns<'n>(reader: &mut Reader<'_>, field: &Field<'n>, seen: &mut Seen<'n>) -> Read<Columns> {
    let mut mapping = reader.mapping(field)?;
    let of_topics = ["topic", "partition"];
    seen.of_topics
        .extend(of_topics.into_iter().filter_map(|name| mapping.peek(name)));
    let mut columns = Columns::default();
    let own = [
        ("payload", &mut columns.payload),
        ("aggregate_type", &mut columns.aggregate_type),
        ("aggregate_id", &mut columns.aggregate_id),
        ("event_type", &mut columns.event_type),
        ("event_id", &mut columns.event_id),
    ];
    let result = read_into(&mut mapping, own, |field| reader.filled(field));
    let timestamp = optional(mapping.take("timestamp"), |field| read_timestamp(reader, field));
    let mut name = |name| optional(mapping.take(name), |field| reader.filled(field));
    let (topic, partition) = (name("topic"), name("partition"));
    let (headers, trace) = (name("headers"), name("trace"));
    reader.finish(mapping);
    result?;
    Ok(Columns {
        topic: topic?,
        timestamp: timestamp?,
        partition: partition?,
        headers: headers?,
        trace: trace?,
        ..columns
    })
}

/// A column's name, or a mapping that has its unit too.
fn read_timestamp(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<TimestampColumn> {
    if let Value::Text(_) = &field.node.value {
        let name = reader.filled(field)?;
        return Ok(TimestampColumn { name, unit: None });
    }
    let mut mapping = reader.mapping(field)?;
    let name = reader
        .require(&mut mapping, "column", "the field that has the time")
        .and_then(|field| reader.filled(&field));
    let unit = optional(mapping.take("unit"), |field| {
        let units = [
            ("s", TimeUnit::Seconds),
            ("ms", TimeUnit::Millis),
            ("us", TimeUnit::Micros),
            ("ns", TimeUnit::Nanos),
        ];
        reader.word(field, &units)
    });
    reader.finish(mapping);
    Ok(TimestampColumn {
        name: name?,
        unit: unit?,
    })
}

/// Names of our own headers; null leaves one out.
fn read_header_names(
    reader: &mut Reader<'_>,
    field: &Field<'_>,
    is_of_trace: impl Fn(&str) -> bool,
) -> Read<HeaderNames> {
    let mut mapping = reader.mapping(field)?;
    let mut names = HeaderNames::default();
    let own = [
        ("event_id", &mut names.event_id),
        ("aggregate_type", &mut names.aggregate_type),
        ("aggregate_id", &mut names.aggregate_id),
        ("event_type", &mut names.event_type),
    ];
    let result = read_into(&mut mapping, own, |field| match field.node.value {
        Value::Null => Ok(None),
        _ => match reader.filled(field)? {
            name if is_of_trace(&name) => Err(reader.refuse(field, OF_TRACE)),
            name if is_of_letter(&name) => Err(reader.refuse(field, OF_LETTER)),
            name => Ok(Some(name)),
        },
    });
    reader.finish(mapping);
    result?;
    let distinct: HashSet<&str> = names.iter().collect();
    if distinct.len() < names.iter().count() {
        return Err(reader.refuse(
            field,
            "two headers have one name: expected a name of its own for each, or null",
        ));
    }
    Ok(names)
}

const OF_TRACE: &str = "`columns.trace` sets this header: expected another name";
const OF_LETTER: &str = "a dead letter's own headers are called so: expected another name";

fn is_of_letter(name: &str) -> bool {
    name.starts_with("tailpost-dlq-")
}

fn read_headers(
    reader: &mut Reader<'_>,
    field: &Field<'_>,
    ours: &HeaderNames,
    is_of_trace: impl Fn(&str) -> bool,
) -> Read<Vec<(String, String)>> {
    read_named(reader, field, |name| match name {
        "" => Some("expected a header name that is not empty"),
        name if ours.iter().any(|ours| ours == name) => Some("tailpost sets this header itself: expected another name"),
        name if is_of_trace(name) => Some(OF_TRACE),
        name if is_of_letter(name) => Some(OF_LETTER),
        _ => None,
    })
}

fn read_envelope_fields(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<Vec<(String, String)>> {
    read_named(reader, field, |name| {
        (name == "payload").then_some("the payload itself is there by this name: expected another")
    })
}

/// Names of the file's own, each with the field that fills it. `refusal`: why a name cannot be one.
fn read_named(
    reader: &mut Reader<'_>,
    field: &Field<'_>,
    refusal: impl Fn(&str) -> Option<&'static str>,
) -> Read<Vec<(String, String)>> {
    let mut mapping = reader.mapping(field)?;
    let named: Vec<_> = mapping
        .take_all()
        .map(|(name, field)| {
            let column = reader.filled(&field);
            match refusal(name) {
                Some(message) => {
                    let message = message.to_owned();
                    Err(reader.report_key(&field, Problem::Refused { message }))
                }
                None => Ok((name.to_owned(), column?)),
            }
        })
        .collect();
    named.into_iter().collect()
}
