//! What two pipeline files say differently, whatever their comments, order and quotes.

use std::collections::{BTreeMap, BTreeSet};

use serde_yaml::Value;

use crate::config::dsn::written_settings;

/// Keys whose values can hold secrets.
const SECRET: [&str; 2] = ["dsn", "client_conf"];
/// Settings of a DSN that are none, nor any part of one.
const SHOWN: [&str; 8] = [
    "host",
    "hostaddr",
    "port",
    "user",
    "dbname",
    "sslmode",
    "ssl-mode",
    "connect_timeout",
];
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
            if let (Some("dsn"), Some(Value::String(expected)), Some(Value::String(found))) =
                (path.last().map(String::as_str), expected, found)
                && dsn_differences(lines, &path.join("."), expected, found).is_some()
            {
                return;
            }
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
        (Value::Sequence(expected), Value::Sequence(found)) if SETS.contains(&key) => {
            let is_within = |some: &[Value], all: &[Value]| some.iter().all(|item| all.contains(item));
            is_within(expected, found) && is_within(found, expected)
        }
        (expected, found) => plain(expected) == plain(found),
    }
}

/// A line for each setting of a DSN that differs but its passwords, wherever those come from. None: it cannot be told part by
/// part, and any part of it may be one of the password's.
fn dsn_differences(lines: &mut Vec<String>, path: &str, expected: &str, found: &str) -> Option<()> {
    // Of one that is wholly of a variable or a file nothing can be told.
    if is_placeholder(found) {
        return Some(());
    }
    let (expected, found) = (dsn_settings(expected)?, dsn_settings(found)?);
    let names: BTreeSet<&String> = expected.keys().chain(found.keys()).collect();
    for name in names {
        let (expected, found) = (expected.get(name), found.get(name));
        if expected != found {
            // What is no setting that is known may be a piece of a password that was written without quotes.
            let is_shown = SHOWN.contains(&name.as_str());
            let side = |value: Option<&String>| match value {
                None => "nothing".to_owned(),
                Some(value) if is_shown => format!("{value:?}"),
                Some(_) => "another value".to_owned(),
            };
            lines.push(format!("{path}.{name}: {}, expected {}", side(found), side(expected)));
        }
    }
    Some(())
}

fn is_placeholder(text: &str) -> bool {
    let inside = text.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
    inside.is_some_and(|inside| !inside.contains('}'))
}

/// What a DSN says, but for passwords and for whether it is said by a URL or by pairs.
fn dsn_settings(dsn: &str) -> Option<BTreeMap<String, String>> {
    let settings = written_settings(dsn)?.into_iter();
    let settings = settings.filter(|(name, _)| name != "scheme" && !name.to_ascii_lowercase().contains("password"));
    Some(settings.collect())
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
    fn a_dsn_is_compared_part_by_part_and_shows_no_password() {
        let file = |dsn: &str| format!("dsn: {}\n", serde_json::to_string(dsn).unwrap());
        let lines = |expected: &str, found: &str| differences(&file(expected), &file(found)).unwrap();
        assert_eq!(
            lines(
                "postgres://u:hidden1@db:5432/d?sslmode=require",
                "host=other port=5432 user=u password=hidden2 dbname=${D} sslpassword=hidden3"
            ),
            [
                r#"dsn.dbname: "${D}", expected "d""#,
                r#"dsn.host: "other", expected "db""#,
                r#"dsn.sslmode: nothing, expected "require""#,
            ]
        );
        assert_eq!(
            lines("host=db password=hidden", "host=db password=hid den=hidden"),
            ["dsn.den: another value, expected nothing"]
        );
        let whole = ["dsn: another value, expected another value"];
        assert_eq!(
            lines("mysql://u:hidden@db/", "mysql://u:hid@den@db/"),
            whole,
            "no shape to tell parts by"
        );
        assert_eq!(lines("${DSN}", "mysql://u:hidden@db/"), whole);
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
        // The same in the other form.
        assert!(!differs(pairs, "postgresql://u:x@db/d"));
        let conf = |password| format!("client_conf: {{sasl.username: u, sasl.password: '{password}'}}");
        assert!(differences(&conf("${A}"), &conf("${file:/b}")).unwrap().is_empty());
    }
}
