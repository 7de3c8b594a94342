//! JSON as Kafka Connect's `JsonConverter` writes it.

use bytes::Bytes;

use crate::config::pipeline::{HeadersAs, JsonAs, LeftOut};
use crate::processor::field::{Field, Text};
use crate::processor::json;
use crate::row::ColumnKind;

/// A text, as JSON.
pub(super) fn string(text: &str) -> Bytes {
    let mut out = Vec::with_capacity(text.len() + 2);
    json::write_connect_string(&mut out, text);
    Bytes::from(out)
}

/// A field's text, as JSON: a number or a boolean as it is.
pub(super) fn value(field: Field<'_>, text: Text<'_>) -> Bytes {
    match field.is_plain_json() {
        true => text.into_bytes(),
        false => string(text.as_str()),
    }
}

/// A header's value. None: null.
pub(super) fn header(form: HeadersAs, field: Field<'_>, text: Option<Text<'_>>) -> Option<Bytes> {
    match (form, text) {
        (HeadersAs::Text, text) => text.map(Text::into_bytes),
        (HeadersAs::Json, Some(text)) => Some(value(field, text)),
        (HeadersAs::Json, None) => Some(Bytes::from_static(b"null")),
    }
}

/// A header's value of JSON as it is written. None: by its value.
pub(super) fn written_header(form: HeadersAs, json_as: JsonAs, field: Field<'_>) -> Option<Bytes> {
    match form {
        HeadersAs::Text => written(json_as, field),
        HeadersAs::Json => written_value(json_as, field),
    }
}

/// JSON as it is written, as JSON: a column's is a text, as a Connect schema has it, a message's member stays what it is. None: by
/// its value.
pub(super) fn written_value(json_as: JsonAs, field: Field<'_>) -> Option<Bytes> {
    let written = written(json_as, field)?;
    match field {
        Field::Cell { .. } => std::str::from_utf8(&written).ok().map(string),
        _ => Some(written),
    }
}

/// What a JSON column holds, or the object or list that a message's member is.
fn written(json_as: JsonAs, field: Field<'_>) -> Option<Bytes> {
    let is_whole = match field {
        Field::Json { text, .. } => text.starts_with(['{', '[']),
        Field::Cell { kind, .. } => kind == ColumnKind::Json,
        Field::Missing | Field::Null | Field::Binary(_) => false,
    };
    match (json_as, is_whole) {
        (JsonAs::Value, _) | (_, false) => None,
        (JsonAs::Text, true) => field.bytes(),
        (JsonAs::Compact, true) => {
            let (text, _) = field.written().ok()??;
            json::compact(text, LeftOut::default()).map(Bytes::from)
        }
    }
}

/// A header's value of a text that is nobody's field.
pub(super) fn text_header(form: HeadersAs, text: &str) -> Bytes {
    match form {
        HeadersAs::Text => Bytes::copy_from_slice(text.as_bytes()),
        HeadersAs::Json => string(text),
    }
}

/// A schema around what it describes, which is what `schemas.enable` asks for.
#[derive(Debug)]
pub(super) struct SchemaEnvelope {
    /// All that stands before the value.
    head: Vec<u8>,
}

impl SchemaEnvelope {
    /// `schema`: a JSON object, blanks between its tokens or not.
    pub(super) fn new(schema: &str) -> Self {
        let schema = json::compact(schema, LeftOut::default()).unwrap_or_else(|| schema.as_bytes().to_vec());
        Self {
            head: [&br#"{"schema":"#[..], &schema, br#","payload":"#].concat(),
        }
    }

    /// Around a value in JSON.
    pub(super) fn around(&self, value: &[u8]) -> Bytes {
        Bytes::from([&self.head, value, b"}"].concat())
    }
}
