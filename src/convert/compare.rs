//! What two pipeline files say differently, whatever their comments, order and quotes.

use serde_yaml::Value;

/// Keys whose values can hold secrets.
const SECRET: [&str; 2] = ["dsn", "client_conf"];
/// Properties of librdkafka that are secrets: where they come from is the file's own affair.
const PASSWORDS: [&str; 3] = ["sasl.password", "ssl.keystore.password", "ssl.key.password"];
/// Lists of names, whose order says nothing.
const SETS: [&str; 3] = ["tables", "prefixes", "ops"];

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
        (Some(expected), Some(found)) if is_same(path, expected, found) => {}
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

fn is_same(path: &[String], expected: &Value, found: &Value) -> bool {
    let key = path.last().map_or("", String::as_str);
    match (expected, found) {
        _ if PASSWORDS.contains(&key) => true,
        (Value::String(expected), Value::String(found)) if key == "dsn" => is_same_dsn(expected, found),
        (Value::Sequence(expected), Value::Sequence(found)) if SETS.contains(&key) => {
            let is_within = |some: &[Value], all: &[Value]| some.iter().all(|item| all.contains(item));
            is_within(expected, found) && is_within(found, expected)
        }
        (expected, found) => plain(expected) == plain(found),
    }
}

/// Wherever passwords come from. Of a DSN that is wholly of a variable or a file nothing can be told.
fn is_same_dsn(expected: &str, found: &str) -> bool {
    let is_placeholder = |text: &str| {
        let inside = text.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
        inside.is_some_and(|inside| !inside.contains('}'))
    };
    is_placeholder(found) || without_password(expected) == without_password(found)
}

/// `password=` of pairs, or what stands between `user:` and `@` of a URL, left out.
fn without_password(dsn: &str) -> String {
    if let Some((scheme, rest)) = dsn.split_once("://") {
        let (authority, more) = rest.rsplit_once('@').map_or(("", rest), |(user, more)| (user, more));
        let user = authority.split_once(':').map_or(authority, |(user, _)| user);
        return format!("{scheme}://{user}@{more}");
    }
    let Some(at) = dsn.find("password=") else {
        return dsn.to_owned();
    };
    let (before, value) = dsn.split_at(at);
    let value = &value["password=".len()..];
    let after = match value.strip_prefix('\'') {
        Some(quoted) => {
            let mut is_escaped = false;
            let end = quoted.find(|c| match (c, is_escaped) {
                ('\'', false) => true,
                (c, _) => {
                    is_escaped = c == '\\' && !is_escaped;
                    false
                }
            });
            end.map_or("", |end| &quoted[end + 1..])
        }
        None => value.find(' ').map_or("", |end| &value[end..]),
    };
    format!("{before}{}", after.trim_start())
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

    #[test]
    fn the_order_of_names_says_nothing() {
        let expected = "outbox: {tables: [a, b], prefixes: [x, y]}";
        let differs = |found| !differences(expected, found).unwrap().is_empty();
        assert!(!differs("outbox: {tables: [b, a], prefixes: [y, x]}"));
        assert!(differs("outbox: {tables: [b], prefixes: [y, x]}"));
        assert!(differs("outbox: {tables: [b, a, c], prefixes: [y, x]}"));
    }

    #[test]
    fn where_a_secret_comes_from_is_no_difference() {
        let differs = |expected: &str, found: &str| {
            let file = |dsn: &str| format!("dsn: {}\n", serde_json::to_string(dsn).unwrap());
            !differences(&file(expected), &file(found)).unwrap().is_empty()
        };
        let pairs = "host=db user=u password='${DATABASE_PASSWORD}' dbname=d";
        assert!(!differs(
            pairs,
            "host=db user=u password='${file:/run/secrets/database}' dbname=d"
        ));
        assert!(!differs(pairs, r"host=db user=u password='a\'b c' dbname=d"));
        assert!(!differs(pairs, "${file:/run/secrets/dsn}"));
        assert!(differs(
            pairs,
            "host=db user=u password='${DATABASE_PASSWORD}' dbname=other"
        ));
        assert!(differs(
            pairs,
            "host=other user=u password='${DATABASE_PASSWORD}' dbname=d"
        ));
        let url = "mysql://u:${DATABASE_PASSWORD}@db:3306/";
        assert!(!differs(url, "mysql://u:${file:/run/secrets/database}@db:3306/"));
        assert!(differs(url, "mysql://v:${DATABASE_PASSWORD}@db:3306/"));
        assert!(differs(url, "mysql://u:${DATABASE_PASSWORD}@other:3306/"));
        let conf = |password| format!("client_conf: {{sasl.username: u, sasl.password: '{password}'}}");
        assert!(differences(&conf("${A}"), &conf("${file:/b}")).unwrap().is_empty());
    }
}
