//! Editors show a description at each key.

use serde_json::Value;

use super::super::json_schema;

/// The paths of properties without one.
fn undescribed(schema: &Value, path: &str, found: &mut Vec<String>) {
    match schema {
        Value::Object(members) => {
            // What chooses a variant describes nothing.
            for (name, member) in members.iter().filter(|(name, _)| *name != "if") {
                let properties = member.as_object().filter(|_| name == "properties");
                for (key, property) in properties.into_iter().flatten() {
                    let path = format!("{path}.{key}");
                    if property["description"].as_str().is_none_or(str::is_empty) {
                        found.push(path.clone());
                    }
                    undescribed(property, &path, found);
                }
                if properties.is_none() {
                    undescribed(member, path, found);
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| undescribed(item, path, found)),
        _ => {}
    }
}

#[test]
fn every_key_of_the_schema_has_a_description() {
    let mut found = Vec::new();
    undescribed(&json_schema(), "", &mut found);
    assert_eq!(found, Vec::<String>::new());
}
