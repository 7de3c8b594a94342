//! `envelope` of a sink: a name, or a mapping with a type.

use super::kind::{Kind, Kinds, read_type, require_kind};
use super::template::FixedHeader;
use crate::config::document::Value;
use crate::config::pipeline::{ChangeTypes, CloudEvents, CloudEventsMode, DebeziumSchema, Envelope};
use crate::config::reader::{Field, Mapping, Read, Reader, optional};
use crate::config::shown::describe;

#[derive(Debug, Clone, Copy)]
enum Type {
    Native,
    Debezium,
    CloudEvents,
}

const KINDS: Kinds<'static, Type> = Kinds {
    here: &[
        ("native", Type::Native),
        ("debezium", Type::Debezium),
        ("cloudevents", Type::CloudEvents),
    ],
    later: &[],
    elsewhere: &[],
};

pub(super) fn read(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<Envelope> {
    if !matches!(field.node.value, Value::Mapping(_)) {
        return Ok(match read_type(reader, field, "envelope", &KINDS)? {
            Type::Native => Envelope::Native,
            Type::Debezium => Envelope::Debezium {
                schema: DebeziumSchema::Null,
            },
            Type::CloudEvents => Envelope::CloudEvents(cloudevents(reader, None, None, None)),
        });
    }
    let mut mapping = reader.mapping(field)?;
    match require_kind(reader, &mut mapping, "envelope", &KINDS) {
        Kind::Known(kind) => read_config(reader, mapping, kind),
        Kind::Unclear { reported, likely } => {
            // The keys of an envelope that nobody knows are not worth a second violation.
            if let Some(kind) = likely {
                let _ = read_config(reader, mapping, kind);
            }
            Err(reported)
        }
        Kind::Foreign(reported) => Err(reported),
    }
}

fn read_config(reader: &mut Reader<'_>, mut mapping: Mapping<'_>, kind: Type) -> Read<Envelope> {
    match kind {
        Type::Native => {
            reader.finish(mapping);
            Ok(Envelope::Native)
        }
        Type::Debezium => {
            let schema = optional(mapping.take("schema"), |field| read_schema(reader, field));
            reader.finish(mapping);
            Ok(Envelope::Debezium {
                schema: schema?.unwrap_or(DebeziumSchema::Null),
            })
        }
        Type::CloudEvents => {
            let mode = optional(mapping.take("mode"), |field| {
                let modes = [
                    ("structured", CloudEventsMode::Structured),
                    ("binary", CloudEventsMode::Binary),
                ];
                reader.word(field, &modes)
            });
            let type_prefix = optional(mapping.take("type_prefix"), |field| read_type_prefix(reader, field));
            let source = optional(mapping.take("source"), |field| read_source(reader, field));
            reader.finish(mapping);
            let (mode, type_prefix, source) = (mode?, type_prefix?, source?);
            Ok(Envelope::CloudEvents(cloudevents(reader, mode, type_prefix, source)))
        }
    }
}

fn cloudevents(
    reader: &Reader<'_>,
    mode: Option<CloudEventsMode>,
    type_prefix: Option<String>,
    source: Option<String>,
) -> CloudEvents {
    CloudEvents {
        mode: mode.unwrap_or(CloudEventsMode::Structured),
        type_prefix,
        source,
        change_types: match reader.is_deltaforge() {
            true => ChangeTypes::Operation,
            false => ChangeTypes::TableAndOperation,
        },
    }
}

fn read_schema(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<DebeziumSchema> {
    match &field.node.value {
        Value::Null => Ok(DebeziumSchema::Null),
        Value::Text(_) => reader.word(field, &[("omit", DebeziumSchema::Omit)]),
        value => Err(reader.unexpected(field, "`omit`, or null", describe(value))),
    }
}

const TYPE_PREFIX: &str = "a text such as com.example.orders: without a blank, a control character, or a dot at an end";

fn read_type_prefix(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<String> {
    let text = reader.text(field)?;
    let prefix = &text.value;
    let legal = !prefix.is_empty()
        && !prefix.starts_with('.')
        && !prefix.ends_with('.')
        && !prefix.contains(|character: char| character.is_control() || character.is_whitespace());
    match legal {
        true => Ok(text.value),
        false => Err(reader.unexpected(field, TYPE_PREFIX, text.found())),
    }
}

const SOURCE: &str = "a URI reference such as /orders or https://example.com/orders, other characters as %20";

fn read_source(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<String> {
    let text = reader.text(field)?;
    match is_uri_reference(&text.value) {
        true => Ok(text.value),
        false => Err(reader.unexpected(field, SOURCE, text.found())),
    }
}

/// By its characters: those of RFC 3986, and hexadecimal digits behind each `%`.
fn is_uri_reference(text: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:/?#[]@!$&'()*+,;=%".contains(&byte);
    let is_escape = |rest: &str| {
        let digits = rest.as_bytes().get(..2);
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    !text.is_empty() && text.bytes().all(legal) && text.split('%').skip(1).all(is_escape)
}

/// Refuses headers of an outbox processor that the envelope has too: a consumer would find two.
pub(super) fn check_headers(reader: &mut Reader<'_>, envelope: &Envelope, headers: &[FixedHeader<'_>]) {
    let Envelope::CloudEvents(CloudEvents { mode, .. }) = envelope else {
        return;
    };
    const ATTRIBUTES: [&str; 6] = [
        "ce_specversion",
        "ce_id",
        "ce_source",
        "ce_type",
        "ce_subject",
        "ce_time",
    ];
    for header in headers {
        let is_attribute = *mode == CloudEventsMode::Binary && ATTRIBUTES.contains(&header.name.as_str());
        if is_attribute || header.name == "content-type" {
            reader.refuse(
                &header.field,
                format!(
                    "the sink's envelope sets the header `{}` itself: expected another name",
                    header.name
                ),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uri_references_are_told_by_their_characters() {
        for text in [
            "/orders",
            "orders",
            "https://example.com/a?b#c",
            "urn:uuid:6e8bc430",
            "a%20b",
            "//h",
        ] {
            assert!(is_uri_reference(text), "{text}");
        }
        for text in ["", "a b", "ä", "a%2", "%zz", "a%", "\"", "<a>", "a\n", "{a}"] {
            assert!(!is_uri_reference(text), "{text:?}");
        }
    }
}
