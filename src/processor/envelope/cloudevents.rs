//! CloudEvents 1.0, by the protocol binding for Kafka: structured, the event as a JSON object, or binary, the value as it is
//! with the attributes as headers.
//!
//! | | a table's change | an outbox event |
//! |---|---|---|
//! | `id` | its place in the log | its own, else its place in the log |
//! | `source` | `/tailpost/<source>/<schema>.<table>` | the same; of a message with its prefix in place of the table |
//! | `type` | `<prefix>.<schema>.<table>.created` and so on | its event type, with the prefix before it where one is set |
//! | `subject` | `<schema>.<table>` | the aggregate's id |
//! | `time` | the commit's | its own time, else the commit's |
//! | data | the change in the native form | the payload |
//!
//! `id` is unique by the table in `source`: two outboxes may number their events alike. A payload that is JSON is put in as it
//! is, of any other the bytes go in as base64.

use std::sync::Arc;

use base64::prelude::{BASE64_STANDARD, Engine};
use bytes::Bytes;

use super::cell::write_payload;
use super::{ChangeWriter, OutboxEvent};
use crate::calendar::rfc3339_micros;
use crate::config::pipeline::{self, ChangeTypes, CloudEventsMode, DEFAULT_TYPE_PREFIX};
use crate::event::{ChangeEvent, Operation, RowChange};
use crate::processor::error::Problem;
use crate::processor::field::Field;
use crate::processor::json;
use crate::processor::outbox::OutboxChange;
use crate::record::Header;
use crate::row::{ColumnKind, Table};

const SPEC_VERSION: &str = "1.0";
const STRUCTURED: &str = "application/cloudevents+json; charset=UTF-8";
const JSON: &str = "application/json";
const BYTES: &str = "application/octet-stream";

/// Makes CloudEvents of one source's events.
#[derive(Debug, Clone)]
pub(in crate::processor) struct CloudEvents {
    mode: CloudEventsMode,
    /// For their data, and for keys.
    changes: ChangeWriter,
    names: HeaderNames,
    content_types: ContentTypes,
    origins: Origins,
}

/// Attributes that differ between events. `specversion` is the first of each, and the same.
#[derive(Debug, Clone, Copy)]
enum Attribute {
    Id,
    Source,
    Type,
    Subject,
    Time,
    DataContentType,
}

impl Attribute {
    fn name(self) -> &'static str {
        match self {
            Self::Id => "id",
            Self::Source => "source",
            Self::Type => "type",
            Self::Subject => "subject",
            Self::Time => "time",
            Self::DataContentType => "datacontenttype",
        }
    }
}

/// What headers are called, shared by all records.
#[derive(Debug, Clone)]
struct HeaderNames {
    spec_version: Arc<str>,
    id: Arc<str>,
    source: Arc<str>,
    kind: Arc<str>,
    subject: Arc<str>,
    time: Arc<str>,
    content_type: Arc<str>,
}

impl HeaderNames {
    fn new() -> Self {
        Self {
            spec_version: Arc::from("ce_specversion"),
            id: Arc::from("ce_id"),
            source: Arc::from("ce_source"),
            kind: Arc::from("ce_type"),
            subject: Arc::from("ce_subject"),
            time: Arc::from("ce_time"),
            content_type: Arc::from("content-type"),
        }
    }

    fn of(&self, attribute: Attribute) -> &Arc<str> {
        match attribute {
            Attribute::Id => &self.id,
            Attribute::Source => &self.source,
            Attribute::Type => &self.kind,
            Attribute::Subject => &self.subject,
            Attribute::Time => &self.time,
            Attribute::DataContentType => &self.content_type,
        }
    }
}

/// An attribute as it goes into a record of the mode: a member of the object with the comma before it, or a header's value.
fn encoded(mode: CloudEventsMode, attribute: Attribute, text: &str) -> Bytes {
    match mode {
        CloudEventsMode::Structured => {
            let mut out = Vec::new();
            write_member(&mut out, attribute, text);
            Bytes::from(out)
        }
        CloudEventsMode::Binary => Bytes::copy_from_slice(text.as_bytes()),
    }
}

fn write_member(out: &mut Vec<u8>, attribute: Attribute, text: &str) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(attribute.name().as_bytes());
    out.extend_from_slice(b"\":");
    json::write_string(out, text);
}

/// Those that data has, encoded.
#[derive(Debug, Clone)]
struct ContentTypes {
    json: Bytes,
    bytes: Bytes,
}

/// What attributes say of where events come from.
#[derive(Debug, Clone)]
struct Origins {
    mode: CloudEventsMode,
    source_id: String,
    source: Option<String>,
    type_prefix: Option<String>,
    change_types: ChangeTypes,
    last: Option<Origin>,
}

/// What they say of one table or prefix, encoded once.
#[derive(Debug, Clone)]
struct Origin {
    of: OriginOf,
    source: Bytes,
    subject: Bytes,
    created: Bytes,
    updated: Bytes,
    deleted: Bytes,
    truncated: Bytes,
}

#[derive(Debug, Clone)]
enum OriginOf {
    /// Held, so that its address can't become another table's.
    Table(Arc<Table>),
    Prefix(Arc<str>),
}

impl Origins {
    fn of_table(&mut self, table: &Arc<Table>) -> &Origin {
        let is_last = |last: &Origin| matches!(&last.of, OriginOf::Table(known) if Arc::ptr_eq(known, table));
        let origin = self.last.take().filter(is_last).unwrap_or_else(|| {
            let name = format!("{}.{}", table.schema, table.name);
            self.origin(OriginOf::Table(Arc::clone(table)), &name)
        });
        self.last.insert(origin)
    }

    fn of_prefix(&mut self, prefix: &Arc<str>) -> &Origin {
        let is_last = |last: &Origin| matches!(&last.of, OriginOf::Prefix(known) if known == prefix);
        let origin = self.last.take().filter(is_last);
        let origin = origin.unwrap_or_else(|| self.origin(OriginOf::Prefix(Arc::clone(prefix)), prefix));
        self.last.insert(origin)
    }

    fn of(&mut self, change: OutboxChange<'_>) -> &Origin {
        match change {
            OutboxChange::Insert(row) => self.of_table(&row.table),
            OutboxChange::Message(message) => self.of_prefix(&message.prefix),
        }
    }

    fn origin(&self, of: OriginOf, name: &str) -> Origin {
        let own_source = || format!("/tailpost/{}/{}", segment(&self.source_id), segment(name));
        let source = self.source.clone().unwrap_or_else(own_source);
        let name = legal(name);
        let prefix = self.type_prefix.as_deref().unwrap_or(DEFAULT_TYPE_PREFIX);
        let kind = |word: &str| {
            let text = match self.change_types {
                ChangeTypes::TableAndOperation => format!("{prefix}.{name}.{word}"),
                ChangeTypes::Operation => format!("{prefix}.{word}"),
            };
            encoded(self.mode, Attribute::Type, &text)
        };
        Origin {
            of,
            source: encoded(self.mode, Attribute::Source, &source),
            subject: encoded(self.mode, Attribute::Subject, &name),
            created: kind("created"),
            updated: kind("updated"),
            deleted: kind("deleted"),
            truncated: kind("truncated"),
        }
    }

    /// A type of the application's own, behind the prefix that the file gives.
    fn prefixed(&self, event_type: &str) -> Option<String> {
        let prefix = self.type_prefix.as_ref()?;
        Some(format!("{prefix}.{event_type}"))
    }
}

impl Origin {
    fn kind(&self, operation: Operation) -> &Bytes {
        match operation {
            Operation::Insert => &self.created,
            Operation::Update => &self.updated,
            Operation::Delete => &self.deleted,
            Operation::Truncate => &self.truncated,
        }
    }
}

/// An attribute's text, of which some are the same for many events.
#[derive(Debug, Clone, Copy)]
enum Text<'a> {
    Encoded(&'a Bytes),
    Plain(&'a str),
}

struct Attributes<'a> {
    id: &'a str,
    source: &'a Bytes,
    kind: Text<'a>,
    subject: Option<Text<'a>>,
    time_us: i64,
    /// None: there is no data.
    content_type: Option<&'a Bytes>,
}

/// Where attributes go.
enum Place<'p> {
    Members(&'p mut Vec<u8>),
    Headers(&'p mut Vec<Header>),
}

impl Attributes<'_> {
    fn put(&self, names: &HeaderNames, mut place: Place<'_>) -> Result<(), Problem> {
        match &mut place {
            Place::Members(out) => {
                out.extend_from_slice(b"{\"specversion\":");
                json::write_string(out, SPEC_VERSION);
            }
            Place::Headers(headers) => headers.push(Header {
                name: Arc::clone(&names.spec_version),
                value: Some(Bytes::from_static(SPEC_VERSION.as_bytes())),
            }),
        }
        let time = rfc3339_micros(self.time_us);
        let all = [
            (Attribute::Id, Some(Text::Plain(self.id))),
            (Attribute::Source, Some(Text::Encoded(self.source))),
            (Attribute::Type, Some(self.kind)),
            (Attribute::Subject, self.subject),
            (Attribute::Time, Some(Text::Plain(&time))),
            (Attribute::DataContentType, self.content_type.map(Text::Encoded)),
        ];
        for (attribute, text) in all {
            let Some(text) = text else { continue };
            if let Text::Plain(text) = text
                && !is_legal(text)
            {
                return Err(Problem::IllegalAttribute {
                    attribute: attribute.name(),
                });
            }
            match (&mut place, text) {
                (Place::Members(out), Text::Encoded(member)) => out.extend_from_slice(member),
                (Place::Members(out), Text::Plain(text)) => write_member(out, attribute, text),
                (Place::Headers(headers), text) => headers.push(Header {
                    name: Arc::clone(names.of(attribute)),
                    value: Some(match text {
                        Text::Encoded(value) => value.clone(),
                        Text::Plain(text) => Bytes::copy_from_slice(text.as_bytes()),
                    }),
                }),
            }
        }
        Ok(())
    }
}

impl CloudEvents {
    pub(super) fn new(config: &pipeline::CloudEvents, source_id: &str) -> Self {
        let content_type = |text| encoded(config.mode, Attribute::DataContentType, text);
        Self {
            mode: config.mode,
            changes: ChangeWriter::native(source_id),
            names: HeaderNames::new(),
            content_types: ContentTypes {
                json: content_type(JSON),
                bytes: content_type(BYTES),
            },
            origins: Origins {
                mode: config.mode,
                source_id: source_id.to_owned(),
                source: config.source.clone(),
                type_prefix: config.type_prefix.clone(),
                change_types: config.change_types,
                last: None,
            },
        }
    }

    pub(super) fn changes(&mut self) -> &mut ChangeWriter {
        &mut self.changes
    }

    /// Appends the value of a table's change.
    pub(super) fn write_row(
        &mut self,
        out: &mut Vec<u8>,
        event: &ChangeEvent,
        change: &RowChange,
        headers: &mut Vec<Header>,
    ) -> Result<(), Problem> {
        let origin = self.origins.of_table(&change.table);
        let id = event.position.to_string();
        let attributes = Attributes {
            id: &id,
            source: &origin.source,
            kind: Text::Encoded(origin.kind(change.operation)),
            subject: Some(Text::Encoded(&origin.subject)),
            time_us: event.commit_time_us,
            content_type: Some(&self.content_types.json),
        };
        match self.mode {
            CloudEventsMode::Structured => {
                attributes.put(&self.names, Place::Members(out))?;
                out.extend_from_slice(b",\"data\":");
                self.changes.write_row(out, event, change)?;
                out.push(b'}');
                self.push_structured(headers);
            }
            CloudEventsMode::Binary => {
                attributes.put(&self.names, Place::Headers(headers))?;
                self.changes.write_row(out, event, change)?;
            }
        }
        Ok(())
    }

    /// The value of an outbox event. None: a tombstone.
    pub(super) fn of_outbox(
        &mut self,
        event: &ChangeEvent,
        outbox: OutboxEvent<'_>,
        headers: &mut Vec<Header>,
    ) -> Result<Option<Bytes>, Problem> {
        match self.mode {
            CloudEventsMode::Structured => {
                let mut out = Vec::with_capacity(512);
                let data = Data::of(outbox.payload);
                self.put_outbox(event, outbox, Some(data.is_json()), Place::Members(&mut out))?;
                data.write(&mut out)?;
                out.push(b'}');
                self.push_structured(headers);
                Ok(Some(Bytes::from(out)))
            }
            CloudEventsMode::Binary => {
                let value = outbox.payload.bytes();
                let is_json = value.as_ref().map(|value| outbox.payload.is_json() || is_json(value));
                self.put_outbox(event, outbox, is_json, Place::Headers(headers))?;
                Ok(value)
            }
        }
    }

    /// The headers beside a value that stays as it is. Without an envelope in the value there is no structured event.
    pub(super) fn beside_raw(
        &mut self,
        event: &ChangeEvent,
        outbox: OutboxEvent<'_>,
        value: Option<&Bytes>,
        headers: &mut Vec<Header>,
    ) -> Result<(), Problem> {
        match self.mode {
            CloudEventsMode::Structured => Ok(()),
            CloudEventsMode::Binary => {
                let is_json = value.map(|value| is_json(value));
                self.put_outbox(event, outbox, is_json, Place::Headers(headers))
            }
        }
    }

    /// `is_json`: whether the data is; none: there is no data.
    fn put_outbox(
        &mut self,
        event: &ChangeEvent,
        outbox: OutboxEvent<'_>,
        is_json: Option<bool>,
        place: Place<'_>,
    ) -> Result<(), Problem> {
        let event_type = outbox.event_type.filter(|text| !text.is_empty());
        let prefixed = event_type.and_then(|text| self.origins.prefixed(text));
        let origin = self.origins.of(outbox.change);
        let derived = outbox.id.is_none().then(|| event.position.to_string());
        let attributes = Attributes {
            id: outbox.id.or(derived.as_deref()).unwrap_or_default(),
            source: &origin.source,
            kind: match prefixed.as_deref().or(event_type) {
                Some(text) => Text::Plain(text),
                // Each event has a type: that of an inserted row.
                None => Text::Encoded(&origin.created),
            },
            subject: outbox.aggregate_id.filter(|id| !id.is_empty()).map(Text::Plain),
            time_us: outbox.time_us,
            content_type: is_json.map(|is_json| match is_json {
                true => &self.content_types.json,
                false => &self.content_types.bytes,
            }),
        };
        attributes.put(&self.names, place)
    }

    fn push_structured(&self, headers: &mut Vec<Header>) {
        headers.push(Header {
            name: Arc::clone(&self.names.content_type),
            value: Some(Bytes::from_static(STRUCTURED.as_bytes())),
        });
    }
}

/// A payload as an event's data.
#[derive(Debug, Clone, Copy)]
enum Data<'a> {
    Json(Field<'a>),
    Bytes(&'a [u8]),
}

impl<'a> Data<'a> {
    fn of(payload: Field<'a>) -> Self {
        let unclear = match payload {
            Field::Cell {
                text,
                kind: ColumnKind::Text,
            } => text,
            Field::Binary(bytes) => bytes,
            Field::Missing | Field::Null | Field::Json { .. } | Field::Cell { .. } => return Self::Json(payload),
        };
        match is_json(unclear) {
            true => Self::Json(payload),
            false => Self::Bytes(unclear),
        }
    }

    fn is_json(self) -> bool {
        matches!(self, Self::Json(_))
    }

    /// Appends the object's last member.
    fn write(self, out: &mut Vec<u8>) -> Result<(), Problem> {
        match self {
            Self::Json(payload) => {
                out.extend_from_slice(b",\"data\":");
                write_payload(out, payload)?;
            }
            Self::Bytes(bytes) => {
                out.extend_from_slice(b",\"data_base64\":\"");
                out.extend_from_slice(BASE64_STANDARD.encode(bytes).as_bytes());
                out.push(b'"');
            }
        }
        Ok(())
    }
}

fn is_json(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_ok_and(json::is_value)
}

/// Whether an attribute may have this text: the specification takes control characters and noncharacters out.
pub(in crate::processor) fn is_legal(text: &str) -> bool {
    text.chars().all(is_legal_character)
}

fn is_legal_character(character: char) -> bool {
    let code = u32::from(character);
    let is_nonchar = code & 0xFFFE == 0xFFFE || (0xFDD0..=0xFDEF).contains(&code);
    !character.is_control() && !is_nonchar
}

/// A table's name without what no attribute may have, which is percent-encoded.
fn legal(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for character in name.chars() {
        match is_legal_character(character) {
            true => out.push(character),
            false => percent_encode(&mut out, character),
        }
    }
    out
}

/// A text as one segment of a URI's path: what RFC 3986 has no place for there is percent-encoded.
fn segment(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character.is_ascii_alphanumeric() || "-._~!$&'()*+,;=:@".contains(character) {
            true => out.push(character),
            false => percent_encode(&mut out, character),
        }
    }
    out
}

fn percent_encode(out: &mut String, character: char) {
    for byte in character.encode_utf8(&mut [0; 4]).bytes() {
        out.push_str(&format!("%{byte:02X}"));
    }
}

#[cfg(test)]
mod tests;
