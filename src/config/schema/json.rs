//! The description as JSON Schema, for editors.
//!
//! It refuses nothing that the readers take, and of what they refuse all that can be told key by key: unknown and missing
//! keys, wrong kinds and words. What several keys say together is left to `tailpost validate`.

use serde_json::{Map, Value, json};

use super::key::{Absent, Form, Key, List, Open, Tagged, Takes, Variant};
use super::keys;

/// The JSON Schema, draft 2020-12, of a pipeline file.
pub fn json_schema() -> Value {
    let mut schema = mapping(&keys::file());
    let own = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:tailpost:pipeline-file:v1",
        "title": "Pipeline file of tailpost",
        "description": "One stream of events from the log of PostgreSQL, MySQL or MariaDB to Kafka.",
        "$defs": {
            "placeholder": {
                "description": "Text from the environment or a file: ${NAME}, ${NAME:-default} or ${file:/path}.",
                "type": "string",
                "pattern": r"\$\{[^}]+\}",
            },
        },
    });
    if let Value::Object(own) = own {
        schema.extend(own);
    }
    Value::Object(schema)
}

const WITHOUT_EFFECT: &str = "without effect";

/// What a mapping holds.
fn names(keys: &[Key]) -> String {
    let own = keys.iter().filter(|key| !key.is_of_deltaforge());
    let mut names: Vec<String> = own.map(|key| format!("`{}`", key.name)).collect();
    names.dedup();
    names.join(", ")
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// A mapping that has these keys and no others.
fn mapping(keys: &[Key]) -> Map<String, Value> {
    let mut schema_of_mapping = object(json!({
        "type": "object",
        "properties": properties(keys),
        "additionalProperties": false,
    }));
    let required: Vec<&str> = keys
        .iter()
        .filter(|key| key.is_required())
        .map(|key| key.name)
        .collect();
    if !required.is_empty() {
        schema_of_mapping.insert("required".to_owned(), required.into());
    }
    schema_of_mapping
}

/// A key that DeltaForge's files have with another meaning takes what either version takes.
fn properties(keys: &[Key]) -> Map<String, Value> {
    let mut properties = Map::new();
    for key in keys {
        let property = match properties.remove(key.name) {
            None => property(key),
            Some(other) => {
                let (own, theirs) = match key.is_of_deltaforge() {
                    true => (other, property(key)),
                    false => (property(key), other),
                };
                json!({"description": own["description"], "anyOf": [own, theirs]})
            }
        };
        properties.insert(key.name.to_owned(), property);
    }
    properties
}

fn property(key: &Key) -> Value {
    let mut schema = schema(&key.takes);
    let mut description = match (key.meaning, &key.takes) {
        ("", _) if key.is_of_deltaforge() => WITHOUT_EFFECT.to_owned(),
        ("", Takes::Mapping(keys)) => format!("with {}", names(keys)),
        (meaning, _) => without_links(meaning),
    };
    // What a schema cannot say of a text.
    if let Takes::Duration(_) | Takes::Size(_) = key.takes {
        description = format!("{description} ({})", key.takes.words());
    }
    match &key.absent {
        Absent::Value(value) => {
            schema.insert("default".to_owned(), value.clone());
        }
        Absent::Words(words) => description = format!("{description} (default: {})", without_links(words)),
        Absent::Refused | Absent::Nothing => {}
    }
    schema.insert("description".to_owned(), description.into());
    if key.is_of_deltaforge() {
        let effect = match key.meaning {
            "" => WITHOUT_EFFECT,
            meaning => meaning,
        };
        schema.insert("deprecated".to_owned(), true.into());
        // No keyword of the standard's, but the one by which editors offer a key no more.
        let message = format!("only with apiVersion deltaforge/v1: {effect}");
        schema.insert("deprecationMessage".to_owned(), message.into());
    }
    Value::Object(schema)
}

fn schema(takes: &Takes) -> Map<String, Value> {
    let kinds = takes.kinds();
    let mut schemas: Vec<Value> = kinds.iter().map(|kind| Value::Object(kind_schema(kind))).collect();
    if kinds.iter().any(|kind| takes_placeholder(kind)) {
        schemas.push(json!({"$ref": "#/$defs/placeholder"}));
    }
    match schemas.len() {
        1 => object(schemas.remove(0)),
        _ => object(json!({"anyOf": schemas})),
    }
}

/// Whether its own schema is too narrow for a text from the environment.
fn takes_placeholder(kind: &Takes) -> bool {
    match kind {
        Takes::Text(Form::Like(..))
        | Takes::Boolean
        | Takes::Integer(_)
        | Takes::Number(_)
        | Takes::Duration(_)
        | Takes::Size(_)
        | Takes::Word(_) => true,
        Takes::Text(Form::Any | Form::Filled)
        | Takes::Template
        | Takes::Null
        | Takes::List(_)
        | Takes::Mapping(_)
        | Takes::Tagged(_)
        | Takes::Open(_)
        | Takes::Either(_)
        | Takes::Anything => false,
    }
}

fn kind_schema(kind: &Takes) -> Map<String, Value> {
    object(match kind {
        Takes::Text(Form::Any) | Takes::Template => json!({"type": "string"}),
        Takes::Text(Form::Filled) => json!({"type": "string", "minLength": 1}),
        Takes::Text(Form::Like(_, pattern)) => json!({"type": "string", "pattern": pattern}),
        Takes::Boolean => json!({"type": "boolean"}),
        Takes::Null => json!({"type": "null"}),
        Takes::Integer(range) if *range == (i64::MIN..=i64::MAX) => json!({"type": "integer"}),
        Takes::Integer(range) => json!({"type": "integer", "minimum": range.start(), "maximum": range.end()}),
        Takes::Number(range) if *range.start() == f64::MIN_POSITIVE => {
            json!({"type": "number", "exclusiveMinimum": 0, "maximum": range.end()})
        }
        Takes::Number(range) if *range == (f64::MIN..=f64::MAX) => json!({"type": "number"}),
        Takes::Number(range) => json!({"type": "number", "minimum": range.start(), "maximum": range.end()}),
        Takes::Duration(_) => json!({"type": "string", "pattern": "^[0-9]+(ms|s|m|h|d)$"}),
        Takes::Size(range) => json!({"anyOf": [
            {"type": "integer", "minimum": range.start(), "maximum": range.end()},
            {"type": "string", "pattern": "^[0-9]+(B|KiB|MiB|GiB|KB|MB|GB)?$"},
        ]}),
        Takes::Word(words) => json!({"enum": words}),
        Takes::List(list) => return list_schema(list),
        Takes::Mapping(keys) => return mapping(keys),
        Takes::Tagged(tagged) => return tagged_schema(tagged),
        Takes::Open(open) => return open_schema(open),
        Takes::Either(_) => return schema(kind),
        Takes::Anything => json!({}),
    })
}

fn list_schema(list: &List) -> Map<String, Value> {
    let mut schema_of_list = object(json!({"type": "array", "items": schema(&list.of)}));
    if *list.count.start() > 0 {
        schema_of_list.insert("minItems".to_owned(), (*list.count.start()).into());
    }
    if *list.count.end() < usize::MAX {
        schema_of_list.insert("maxItems".to_owned(), (*list.count.end()).into());
    }
    schema_of_list
}

/// The keys of each variant are those of a schema of its own, so that an editor offers no others, and says of a wrong one what
/// is wrong with it rather than that no variant fits.
fn tagged_schema(tagged: &Tagged) -> Map<String, Value> {
    let type_key = tagged.type_key();
    if let [only] = &tagged.variants[..] {
        return mapping(&with_type(type_key, only));
    }
    let variants: Vec<Value> = tagged
        .variants
        .iter()
        .map(|variant| {
            json!({
                "if": {"properties": {"type": {"enum": variant.words}}, "required": ["type"]},
                "then": mapping(&with_type(type_key.clone(), variant)),
            })
        })
        .collect();
    object(json!({
        "type": "object",
        "properties": {"type": property(&type_key)},
        "required": ["type"],
        "allOf": variants,
    }))
}

fn with_type(type_key: Key, variant: &Variant) -> Vec<Key> {
    [type_key].into_iter().chain(variant.keys.iter().cloned()).collect()
}

fn open_schema(open: &Open) -> Map<String, Value> {
    let known = properties(&open.known);
    let mut schema_of_mapping = object(json!({"type": "object", "additionalProperties": schema(&open.values)}));
    if !known.is_empty() {
        schema_of_mapping.insert("properties".to_owned(), Value::Object(known));
    }
    schema_of_mapping
}

/// Markdown with what links say in place of the links, which lead nowhere from an editor.
fn without_links(markdown: &str) -> String {
    let mut text = String::new();
    let mut rest = markdown;
    while let Some((before, link)) = rest.split_once('[') {
        let parts = link
            .split_once("](")
            .and_then(|(label, rest)| Some((label, rest.split_once(')')?.1)));
        text.push_str(before);
        match parts {
            // A bracket of another kind before it, such as that of a list, is text.
            Some((label, after)) if !label.contains(['[', ']']) => {
                text.push_str(label);
                rest = after;
            }
            _ => {
                text.push('[');
                rest = link;
            }
        }
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_links_only_their_text_stays() {
        for (markdown, text) in [
            ("a [b c](d.md#e), [f](#g)", "a b c, f"),
            ("[0.5, 1.0] and `a[b](c)`[d](e)", "[0.5, 1.0] and `ab`d"),
            ("no link [at all", "no link [at all"),
            ("", ""),
        ] {
            assert_eq!(without_links(markdown), text);
        }
    }
}
