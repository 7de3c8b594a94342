//! How keys, values and headers are written: by Connect's converters, or by the server's formats.

use super::input::Platform;
use super::settings::Given;
use super::work::Work;

pub(super) struct Formats {
    pub(super) key: KeyFormat,
    pub(super) key_option: String,
    pub(super) payload: PayloadFormat,
    pub(super) payload_option: String,
    pub(super) headers_are_json: bool,
    pub(super) header_option: String,
    /// `fields.null.include` of the transform that decodes messages.
    pub(super) messages_keep_nulls: bool,
}

pub(super) enum KeyFormat {
    Text,
    Json { schema: Option<String> },
}

pub(super) enum PayloadFormat {
    /// The payload's own text or bytes.
    Text,
    Json {
        schema: Option<String>,
    },
}

/// What a converter makes of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Converter {
    Text,
    Json { has_schemas: bool },
    Other,
}

const KEY_SCHEMA: &str = r#"{"type":"string","optional":true}"#;
const JSON_SCHEMA: &str = r#"{"type":"string","optional":true,"name":"io.debezium.data.Json","version":1}"#;

pub(super) fn formats(work: &mut Work) -> Formats {
    let (key, key_option) = converter(work, "key");
    let (value, payload_option) = converter(work, "value");
    let (header, header_option) = converter(work, "header");
    let key = match key {
        Converter::Text => KeyFormat::Text,
        Converter::Json { has_schemas } => KeyFormat::Json {
            schema: has_schemas.then(|| {
                work.different(
                    &key_option,
                    "the key's schema is a fixed text: look whether the column is a text that may be NULL, as it says",
                );
                KEY_SCHEMA.to_owned()
            }),
        },
        Converter::Other => {
            work.not_possible(
                &key_option,
                "no converter that is known here: the key comes as the column's text",
            );
            KeyFormat::Text
        }
    };
    let payload = match value {
        Converter::Text => PayloadFormat::Text,
        Converter::Json { has_schemas } => PayloadFormat::Json {
            schema: has_schemas.then(|| {
                work.different(
                    &payload_option,
                    "the value's schema is a fixed text, of a column of type jsonb or json that may be NULL: of a text column \
                     take `name` and `version` out of `payload_schema`",
                );
                JSON_SCHEMA.to_owned()
            }),
        },
        Converter::Other => {
            work.not_possible(
                &payload_option,
                "no converter that is known here: the value is the payload's own bytes. With a schema registry, let the \
                 application write the registry's form into a binary column",
            );
            PayloadFormat::Text
        }
    };
    let headers_are_json = match header {
        Converter::Text => false,
        Converter::Json { has_schemas } => {
            if has_schemas {
                work.not_possible(
                    &header_option,
                    "a schema around each header: headers come as JSON without it, as with `schemas.enable=false`",
                );
            }
            true
        }
        Converter::Other => {
            work.not_possible(&header_option, "no converter that is known here: headers come as text");
            false
        }
    };
    Formats {
        key,
        key_option,
        payload,
        payload_option,
        headers_are_json,
        header_option,
        messages_keep_nulls: false,
    }
}

fn converter(work: &mut Work, of: &str) -> (Converter, String) {
    match work.platform {
        Platform::Server => server_format(work, of),
        Platform::Connect => connect_converter(work, of),
    }
}

/// Of a converter for binary values: the one for all others.
const DELEGATE: &str = "delegate.converter.type";
/// How that one's own settings begin.
const DELEGATES_OWN: &str = "delegate.converter.type.";

fn connect_converter(work: &mut Work, of: &str) -> (Converter, String) {
    let name = format!("{of}.converter");
    let (own, sub) = (work.take(&name), format!("{name}."));
    let mut settings = work.settings.take_under(&sub);
    let cloud = cloud_format(work, of);
    let given = match (own, &mut work.worker) {
        (Some(given), _) => Some(given),
        (None, Some(worker)) => {
            // A converter that the worker has is set up there, too.
            settings = worker.take_under(&sub);
            worker.take(&name)
        }
        (None, None) => None,
    };
    let Some(given) = given else {
        // The settings of no converter do nothing.
        for (_, given) in settings {
            work.not_needed(&given.option, "the file names no converter that it could belong to");
        }
        return cloud.unwrap_or_else(|| assumed(work, of, &name));
    };
    // What is not binary goes through a second converter, with settings of its own.
    let is_of_binary = matches!(simple_name(&given), "BinaryDataConverter" | "ByteBufferConverter");
    let delegate = settings.iter().position(|(name, _)| is_of_binary && name == DELEGATE);
    let delegate = delegate.map(|at| settings.remove(at).1);
    // The payload that it is there for is binary, which keys and headers hardly are.
    let class = simple_name(delegate.as_ref().filter(|_| of != "value").unwrap_or(&given));
    let prefix = if delegate.is_some() { DELEGATES_OWN } else { "" };
    let setting = |name: &str| {
        let mut settings = settings.iter();
        let named = settings.find(|(known, _)| known.strip_prefix(prefix) == Some(name));
        named.map(|(_, given)| given)
    };
    let converter = match class {
        "StringConverter"
        | "SimpleHeaderConverter"
        | "ByteArrayConverter"
        | "BinaryDataConverter"
        | "ByteBufferConverter" => Converter::Text,
        "JsonConverter" => Converter::Json {
            has_schemas: !setting("schemas.enable").is_some_and(|given| given.is("false")),
        },
        _ => Converter::Other,
    };
    if is_of_binary {
        let delegate = delegate.as_ref();
        tell_of_delegate(work, of, &given, delegate, converter);
    }
    if class == "StringConverter" && of == "value" {
        work.different(
            &given.option,
            "of a binary payload this converter writes the name of a Java object: its bytes are sent here",
        );
    }
    if converter != Converter::Other {
        work.taken(&given.option, place(of));
    }
    for (name, given) in &settings {
        match (converter, name.strip_prefix(prefix).unwrap_or_default()) {
            (Converter::Json { .. }, "schemas.enable") => work.taken(&given.option, place(of)),
            (Converter::Other, _) => work.not_possible(&given.option, "see the converter that it belongs to"),
            (Converter::Json { .. }, "decimal.format") if work.has_placed || of == "key" => work.different(
                &given.option,
                "decimals come as their digits, in a string where they are a placed column's",
            ),
            _ => work.not_needed(&given.option, "payloads are sent as they are"),
        }
    }
    (converter, given.option)
}

/// Of a converter for binary values, whose others go to another one.
fn tell_of_delegate(work: &mut Work, of: &str, binary: &Given, delegate: Option<&Given>, converter: Converter) {
    match (delegate, converter) {
        (Some(delegate), _) if of == "value" => work.different(
            &delegate.option,
            "of payloads that are not binary, such as those of a jsonb or text column, and expanded ones: here they are sent as they are. \
             Where this is a JsonConverter, those are texts in quotes there: write `payload_as: json_string`",
        ),
        (Some(delegate), Converter::Other) => {
            work.not_possible(&delegate.option, "no converter that is known here: see the one that it belongs to");
        }
        (Some(delegate), Converter::Json { .. } | Converter::Text) => work.taken(&delegate.option, place(of)),
        (None, _) => work.different(
            &binary.option,
            "without a delegate it fails there on what is not binary: here all payloads are sent as they are",
        ),
    }
}

/// The class without its package.
fn simple_name(given: &Given) -> &str {
    given.value.rsplit('.').next().unwrap_or_default()
}

fn place(of: &str) -> &'static str {
    match of {
        "key" => "spec.processors[].key_as",
        "value" => "spec.processors[].payload_as",
        _ => "spec.processors[].headers_as",
    }
}

/// `output.data.format` and its like, of Confluent's managed connectors.
fn cloud_format(work: &mut Work, of: &str) -> Option<(Converter, String)> {
    let name = match of {
        "key" => "output.key.format",
        "value" => "output.data.format",
        _ => return None,
    };
    let Given { option, value } = work.take(name)?;
    let converter = match value.to_ascii_uppercase().as_str() {
        "STRING" | "BYTES" => Converter::Text,
        "JSON" => Converter::Json { has_schemas: false },
        _ => Converter::Other,
    };
    if converter != Converter::Other {
        work.taken(&option, place(of));
    }
    Some((converter, option))
}

/// A worker's converter, which is not in the connector's file.
fn assumed(work: &mut Work, of: &str, name: &str) -> (Converter, String) {
    if of != "header" {
        work.different(
            name,
            "not in this file, so it is the worker's: taken for a StringConverter. Pass the worker's properties by --worker, to \
             have what it says",
        );
    }
    (Converter::Text, format!("{name}, assumed"))
}

fn server_format(work: &mut Work, of: &str) -> (Converter, String) {
    let given = work.take(&format!("format.{of}"));
    let own = work.take(&format!("format.{of}.schemas.enable"));
    // Of all three.
    let common = work.settings.get("format.schemas.enable").cloned();
    let schemas = own.or(common);
    let option = match &given {
        Some(given) => given.option.clone(),
        None => format!("debezium.format.{of}, by default"),
    };
    let format = given.as_ref().map_or("json", |given| &given.value).to_ascii_lowercase();
    let converter = match format.as_str() {
        "json" | "jsonbytearray" => Converter::Json {
            has_schemas: !schemas.as_ref().is_some_and(|given| given.is("false")),
        },
        "simplestring" | "binary" => Converter::Text,
        _ => Converter::Other,
    };
    let known = given.filter(|_| converter != Converter::Other);
    for given in [known, schemas].into_iter().flatten() {
        work.taken(&given.option, place(of));
    }
    (converter, option)
}

/// What is left of a format when all were looked at.
pub(super) fn finish(work: &mut Work) {
    work.take("format.schemas.enable");
}
