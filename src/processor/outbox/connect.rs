//! JSON as Kafka Connect's `JsonConverter` writes it.

use bytes::Bytes;

use crate::config::pipeline::{HeadersAs, LeftOut};
use crate::processor::field::{Field, Text};
use crate::processor::json;

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
