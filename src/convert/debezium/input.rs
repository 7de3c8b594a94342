//! The files that connectors are configured by: a Kafka Connect request (JSON, with or without its `config`), Strimzi's
//! `KafkaConnector` (YAML), properties of a standalone worker, and Debezium Server's application.properties.

use std::io;

use serde::Deserialize;
use serde_json::{Map, Value};
use thiserror::Error;

use super::expressions;
use super::settings::Settings;

/// Where the connector runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Platform {
    Connect,
    Server,
}

#[derive(Debug)]
pub(super) struct Input {
    pub(super) platform: Platform,
    pub(super) settings: Settings,
}

/// Why a text is no connector's configuration.
#[derive(Debug, Error)]
pub enum InputError {
    #[error("no JSON that can be read")]
    Json(#[source] serde_json::Error),
    #[error("no YAML that can be read")]
    Yaml(#[source] serde_yaml::Error),
    #[error("no properties that can be read")]
    Properties(#[source] java_properties::PropertiesError),
    #[error("expected a connector's JSON, with its options at the top or under `config`")]
    NoObject,
    #[error(
        "option `{option}`: its expressions `${{...}}` name each other over more than {levels} levels, or come to more than {bytes} \
         bytes: expected fewer, and no property that names itself"
    )]
    Expressions {
        option: String,
        levels: usize,
        bytes: usize,
    },
    #[error("option `{option}`: expected text, a number, true or false")]
    NotScalar { option: String },
    #[error(
        "connectors by name ({names}), as Connect answers to GET /connectors?expand=info: expected one connector, as it answers to \
         GET /connectors/NAME"
    )]
    Connectors { names: String },
    #[error("{count} resources of kind KafkaConnector: expected one, so give each by itself")]
    Resources { count: usize },
    #[error(
        "no option of a worker: expected properties of a Connect worker, with key.converter, value.converter or bootstrap.servers, as \
         in connect-distributed.properties"
    )]
    NoWorker,
}

const SOURCE: &str = "debezium.source.";
const SINK: &str = "debezium.sink.";

pub(super) fn read(text: &str) -> Result<Input, InputError> {
    let text = text.trim_start_matches('\u{feff}');
    if text.trim_start().starts_with('{') {
        return of_json(text);
    }
    if text.lines().any(|line| line.starts_with("kind:")) {
        return of_strimzi(text);
    }
    let properties = properties(text)?;
    let is_server = properties
        .iter()
        .any(|(name, _)| name.starts_with(SOURCE) || name.starts_with(SINK));
    let mut settings = Settings::default();
    for (name, value) in &properties {
        match is_server {
            true => {
                let value = expressions::connect_value(name, value, &properties)?;
                settings.insert(server_name(name), name, &value);
            }
            false => settings.insert(connect_name(name), name, value),
        }
    }
    let platform = match is_server {
        true => Platform::Server,
        false => Platform::Connect,
    };
    Ok(Input { platform, settings })
}

/// The options of a worker, from its properties.
pub(super) fn read_worker(text: &str) -> Result<Settings, InputError> {
    const KNOWN: [&str; 4] = [
        "key.converter",
        "value.converter",
        "header.converter",
        "bootstrap.servers",
    ];
    let mut settings = Settings::default();
    for (name, value) in properties(text.trim_start_matches('\u{feff}'))? {
        settings.insert(name.clone(), name, &value);
    }
    match KNOWN.iter().any(|name| settings.get(name).is_some()) {
        true => Ok(settings),
        false => Err(InputError::NoWorker),
    }
}

fn properties(text: &str) -> Result<Vec<(String, String)>, InputError> {
    let mut pairs = Vec::new();
    java_properties::PropertiesIter::new_with_encoding(io::Cursor::new(text), encoding_rs::UTF_8)
        .read_into(|name, value| pairs.push((name, value)))
        .map_err(InputError::Properties)?;
    Ok(pairs)
}

fn of_json(text: &str) -> Result<Input, InputError> {
    match serde_json::from_str(text).map_err(InputError::Json)? {
        Value::Object(object) => of_object(object),
        _ => Err(InputError::NoObject),
    }
}

fn of_object(mut object: Map<String, Value>) -> Result<Input, InputError> {
    let mut settings = Settings::default();
    let config = match object.remove("config") {
        Some(Value::Object(config)) => {
            // What the worker's own answer, or a request, has beside.
            for told in ["tasks", "type", "initial_state"] {
                object.remove(told);
            }
            insert_all(&mut settings, object)?;
            config
        }
        Some(_) => return Err(InputError::NoObject),
        None if !object.is_empty() && object.values().all(|value| value.get("info").is_some()) => {
            let names: Vec<&str> = object.keys().map(String::as_str).collect();
            return Err(InputError::Connectors {
                names: names.join(", "),
            });
        }
        None => object,
    };
    insert_all(&mut settings, config)?;
    Ok(Input {
        platform: Platform::Connect,
        settings,
    })
}

/// Null is no value.
fn insert_all(settings: &mut Settings, options: Map<String, Value>) -> Result<(), InputError> {
    for (option, value) in options {
        let text = match value {
            Value::Null => continue,
            Value::String(text) => text,
            Value::Number(number) => number.to_string(),
            Value::Bool(flag) => flag.to_string(),
            Value::Array(_) | Value::Object(_) => return Err(InputError::NotScalar { option }),
        };
        settings.insert(connect_name(&option), option, &text);
    }
    Ok(())
}

fn of_strimzi(text: &str) -> Result<Input, InputError> {
    let mut connectors = Vec::new();
    for document in serde_yaml::Deserializer::from_str(text) {
        let document = Value::deserialize(document).map_err(InputError::Yaml)?;
        if document.get("kind").and_then(Value::as_str) == Some("KafkaConnector") {
            connectors.push(document);
        }
    }
    let document = match (connectors.pop(), connectors.len()) {
        (Some(document), 0) => document,
        (last, others) => {
            return Err(InputError::Resources {
                count: others + usize::from(last.is_some()),
            });
        }
    };
    let spec = document.get("spec").and_then(Value::as_object);
    let mut options = spec
        .and_then(|spec| spec.get("config")?.as_object())
        .cloned()
        .ok_or(InputError::NoObject)?;
    let name = document.get("metadata").and_then(|metadata| metadata.get("name"));
    let class = spec.and_then(|spec| spec.get("class"));
    for (option, value) in [("name", name), ("connector.class", class)] {
        if let Some(value) = value {
            options.entry(option).or_insert_with(|| value.clone());
        }
    }
    of_object(options)
}

/// What a connector's `producer.override.` sets is what a worker's `producer.` does.
fn connect_name(option: &str) -> String {
    match option.strip_prefix("producer.override.") {
        Some(property) => format!("producer.{property}"),
        None => option.to_owned(),
    }
}

/// Debezium Server's options by the names that Connect has for them.
fn server_name(option: &str) -> String {
    if let Some(name) = option.strip_prefix(SOURCE) {
        return name.to_owned();
    }
    let Some(rest) = option.strip_prefix("debezium.") else {
        return option.to_owned();
    };
    match rest.strip_prefix("sink.kafka.producer.") {
        Some(property) => format!("producer.{property}"),
        None => rest.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::debezium::settings::Given;

    fn given(option: &str, value: &str) -> Option<Given> {
        Some(Given {
            option: option.to_owned(),
            value: value.to_owned(),
        })
    }

    #[test]
    fn a_connector_s_json_with_and_without_its_frame() {
        let options =
            r#"{"slot.name": " orders ", "tasks.max": 1, "x": true, "none": null, "producer.override.acks": "all"}"#;
        let framed = format!(
            r#"{{"name": "c", "config": {options}, "tasks": [], "type": "source", "initial_state": "STOPPED"}}"#
        );
        for text in [options, &framed, &format!("\u{feff}\n {framed}")] {
            let Input { platform, mut settings } = read(text).unwrap();
            assert_eq!(platform, Platform::Connect);
            assert_eq!(settings.take("slot.name"), given("slot.name", "orders"));
            assert_eq!(settings.take("tasks.max"), given("tasks.max", "1"));
            assert_eq!(settings.take("producer.acks"), given("producer.override.acks", "all"));
            settings.take("name");
            settings.take("x");
            assert_eq!(settings, Settings::default());
        }
    }

    #[test]
    fn strimzi_s_resource() {
        let text = "apiVersion: kafka.strimzi.io/v1beta2\nkind: KafkaConnector\nmetadata: {name: c}\nspec:\n  class: K\n  \
                    tasksMax: 1\n  config:\n    slot.name: s\n    database.port: 5432\n";
        let mut settings = read(text).unwrap().settings;
        for (name, value) in [
            ("name", "c"),
            ("connector.class", "K"),
            ("slot.name", "s"),
            ("database.port", "5432"),
        ] {
            assert_eq!(settings.take(name), given(name, value));
        }
    }

    #[test]
    fn properties_of_a_worker_and_of_the_server() {
        let mut settings = read("# a comment\nname = c\nslot.name:s\\u0031\ntable.include.list=a,\\\n  b\n")
            .unwrap()
            .settings;
        assert_eq!(settings.take("slot.name"), given("slot.name", "s1"));
        assert_eq!(settings.take("table.include.list"), given("table.include.list", "a,b"));
        let text = "debezium.source.slot.name=s\ndebezium.sink.type=kafka\ndebezium.sink.kafka.producer.acks=all\n\
                    debezium.transforms=outbox\nquarkus.log.level=INFO\n";
        let Input { platform, mut settings } = read(text).unwrap();
        assert_eq!(platform, Platform::Server);
        assert_eq!(settings.take("slot.name"), given("debezium.source.slot.name", "s"));
        assert_eq!(settings.take("sink.type"), given("debezium.sink.type", "kafka"));
        let acks = given("debezium.sink.kafka.producer.acks", "all");
        assert_eq!(settings.take("producer.acks"), acks);
        assert_eq!(settings.take("transforms"), given("debezium.transforms", "outbox"));
        assert_eq!(settings.take("quarkus.log.level"), given("quarkus.log.level", "INFO"));
    }

    #[test]
    fn what_is_none_is_told_so() {
        let wrong = |text| read(text).err().map(|error| error.to_string());
        assert!(wrong("{").is_some_and(|error| error.contains("JSON")));
        let list = wrong(r#"{"transforms": ["a"]}"#);
        assert!(list.is_some_and(|error| error.contains("`transforms`")));
        assert!(wrong(r#"{"config": 1}"#).is_some_and(|error| error.contains("`config`")));
        assert!(wrong("kind: KafkaConnector\nspec: {}\n").is_some());
        let two = wrong("kind: KafkaConnector\n---\nkind: KafkaConnector\n");
        assert!(two.is_some_and(|error| error.starts_with("2 resources")));
        let expanded = wrong(r#"{"a": {"info": {}}, "b": {"info": {}}}"#);
        assert!(expanded.is_some_and(|error| error.contains("(a, b)") && error.contains("/connectors/NAME")));
    }

    #[test]
    fn a_connector_among_other_resources_is_found() {
        let text = "kind: KafkaTopic\n---\nkind: KafkaConnector\nspec: {class: K, config: {slot.name: s}}\n";
        assert_eq!(read(text).unwrap().settings.take("slot.name"), given("slot.name", "s"));
    }

    #[test]
    fn a_worker_s_file_without_an_option_of_a_worker_is_refused() {
        for text in ["{\"key.converter\": \"x\"}", "CONNECT_KEY_CONVERTER=x\n", ""] {
            assert!(matches!(read_worker(text), Err(InputError::NoWorker)), "{text}");
        }
        assert!(read_worker("\u{feff}key.converter=x\n").is_ok());
    }
}
