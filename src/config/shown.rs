//! What a message may show of a file: one short line, and nothing that could hold a password.

use super::document::Value;

/// A key's dotted path below another.
pub(super) fn join(path: &str, name: &str) -> String {
    let plain =
        !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || "_-./ %".contains(c)) && name.len() <= 100;
    // A key that looks like nothing one would name could be a value, even a DSN, that slipped to the wrong side of a colon.
    let name = if plain { name } else { "?" };
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

/// Whether a key, which may be the user's own, is called like one that holds a secret.
pub(super) fn names_secret(path: &str) -> bool {
    let name = path.to_ascii_lowercase();
    ["password", "secret", "token", "key"]
        .iter()
        .any(|word| name.contains(word))
}

/// A value as a message may show it: in one short line, and nothing that could hold a password.
pub(super) fn quoted(text: &str) -> String {
    if text.contains("://") || text.to_ascii_lowercase().contains("password") {
        return "text that could hold a password".to_owned();
    }
    format!("`{}`", shown(text))
}

/// A text in one short line.
pub(super) fn shown(text: &str) -> String {
    const MAX: usize = 80;
    let mut line: String = text
        .chars()
        .take(MAX)
        .flat_map(|c| {
            if c.is_control() {
                c.escape_default().collect()
            } else {
                vec![c]
            }
        })
        .collect();
    if text.chars().nth(MAX).is_some() {
        line.push('…');
    }
    line
}

pub(super) fn describe(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(flag) => flag.to_string(),
        Value::Integer(number) => format!("the number {number}"),
        Value::Text(text) => quoted(text),
        _ => kind(value).to_owned(),
    }
}

/// What a value is, without the value: for keys that hold secrets.
pub(super) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Integer(_) | Value::Float(_) => "a number",
        Value::Text(_) => "text",
        Value::List(_) => "a list",
        Value::Mapping(_) => "a mapping",
        Value::Tagged => "a value with a tag",
    }
}
/// `a, b or c`.
pub(super) fn in_words(mut words: Vec<String>) -> String {
    match words.pop() {
        Some(last) if words.is_empty() => last,
        Some(last) => format!("{} or {last}", words.join(", ")),
        None => String::new(),
    }
}
