//! What two pipeline files say differently, whatever their comments, order and quotes.

use serde_yaml::Value;

/// Keys whose values can hold secrets.
const SECRET: [&str; 2] = ["dsn", "client_conf"];

/// A line for each key at which `found` says something else than `expected`. No value that can hold a secret is shown.
///
/// # Errors
/// One of them is no YAML.
pub fn differences(expected: &str, found: &str) -> Result<Vec<String>, serde_yaml::Error> {
    let (expected, found) = (serde_yaml::from_str(expected)?, serde_yaml::from_str(found)?);
    let mut lines = Vec::new();
    compare(&mut lines, &mut Vec::new(), Some(&expected), Some(&found));
    Ok(lines)
}

fn compare(lines: &mut Vec<String>, path: &mut Vec<String>, expected: Option<&Value>, found: Option<&Value>) {
    match (expected, found) {
        (Some(Value::Mapping(expected)), Some(Value::Mapping(found))) => {
            let new = found.keys().filter(|key| !expected.contains_key(*key));
            for key in expected.keys().chain(new) {
                path.push(key.as_str().map_or_else(|| shown(key), str::to_owned));
                compare(lines, path, expected.get(key), found.get(key));
                path.pop();
            }
        }
        (Some(Value::Sequence(expected)), Some(Value::Sequence(found))) if expected.iter().any(Value::is_mapping) => {
            for at in 0..expected.len().max(found.len()) {
                path.push(at.to_string());
                compare(lines, path, expected.get(at), found.get(at));
                path.pop();
            }
        }
        (expected, found) if expected.map(plain) == found.map(plain) => {}
        (expected, found) => {
            let hides = path.iter().any(|key| SECRET.contains(&key.as_str()));
            let side = |value: Option<&Value>| match value {
                None => "nothing".to_owned(),
                Some(_) if hides => "another value".to_owned(),
                Some(value) => shown(value),
            };
            lines.push(format!(
                "{}: {}, expected {}",
                path.join("."),
                side(found),
                side(expected)
            ));
        }
    }
}

/// `5432` and `'5432'` are one to a reader of a pipeline file.
fn plain(value: &Value) -> Value {
    match value {
        Value::Number(number) => Value::String(number.to_string()),
        Value::Bool(flag) => Value::String(flag.to_string()),
        other => other.clone(),
    }
}

/// On one line.
fn shown(value: &Value) -> String {
    serde_json::to_string(value).unwrap_or_else(|_| "a value".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_said_differently_is_told() {
        let expected =
            "spec:\n  slot: orders  # a comment\n  port: 5432\n  tables: [a, b]\n  dsn: x\n  list: [{a: 1}, {b: 2}]\n";
        let same = "spec: {port: '5432', slot: 'orders', dsn: x, tables: [a, b], list: [{a: 1}, {b: 2}]}";
        assert_eq!(differences(expected, same).unwrap(), Vec::<String>::new());
        let other = "spec: {port: 1, dsn: secret, tables: [a], list: [{a: 1, c: 3}], more: true}";
        let lines = differences(expected, other).unwrap();
        let told = [
            r#"spec.slot: nothing, expected "orders""#,
            "spec.port: 1, expected 5432",
            r#"spec.tables: ["a"], expected ["a","b"]"#,
            "spec.dsn: another value, expected another value",
            "spec.list.0.c: 3, expected nothing",
            r#"spec.list.1: nothing, expected {"b":2}"#,
            "spec.more: true, expected nothing",
        ];
        assert_eq!(lines, told);
        assert!(differences("a: [", "a").is_err());
    }
}
