//! Expressions in Debezium Server's properties, as what a connector of Connect has in their place.
//!
//! SmallRye Config fills in `${name}` and `${name:default}` when it reads the file, from the environment or from the file's other
//! properties; `\$` and `$$` are a dollar sign that begins none. So `\${routedByValue}` and `$${routedByValue}` reach the router
//! as `${routedByValue}`, and `$${file:…}` a config provider. Source: MicroProfile Config, "Property expressions", and SmallRye's
//! own rule of the doubled sign.

/// Properties that name each other end somewhere.
const MAX_DEPTH: usize = 16;

/// A value with its expressions as `${env:NAME}` or `${env:NAME:-default}`, or as the property of the file that they name.
pub(super) fn connect_value(value: &str, properties: &[(String, String)]) -> String {
    expand(value, properties, MAX_DEPTH)
}

fn expand(value: &str, properties: &[(String, String)], depth: usize) -> String {
    let value = value.replace(r"\$", "$$");
    let mut out = String::with_capacity(value.len());
    let mut rest = value.as_str();
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        if let Some(after) = after.strip_prefix('$') {
            out.push('$');
            rest = after;
        } else if let Some((expression, after)) = after.strip_prefix('{').and_then(closed) {
            out.push_str(&filled(expression, properties, depth));
            rest = after;
        } else {
            out.push('$');
            rest = after;
        }
    }
    out.push_str(rest);
    out
}

/// What stands before the brace that closes, and behind it; an expression may have others inside.
fn closed(text: &str) -> Option<(&str, &str)> {
    let mut depth = 0;
    for (at, character) in text.char_indices() {
        match character {
            '{' => depth += 1,
            '}' if depth == 0 => return Some((&text[..at], &text[at + 1..])),
            '}' => depth -= 1,
            _ => {}
        }
    }
    None
}

fn filled(expression: &str, properties: &[(String, String)], depth: usize) -> String {
    let (name, default) = match expression.split_once(':') {
        Some((name, default)) => (name, Some(default)),
        None => (expression, None),
    };
    let property = properties.iter().find(|(known, _)| known == name);
    if let (Some((_, value)), Some(depth)) = (property, depth.checked_sub(1)) {
        return expand(value, properties, depth);
    }
    let variable = variable(name);
    let default = default.map(|default| expand(default, properties, depth.saturating_sub(1)));
    match default {
        // A default that is itself to be filled in cannot be said in a pipeline file.
        Some(default) if !default.contains("${") => format!("${{env:{variable}:-{default}}}"),
        _ => format!("${{env:{variable}}}"),
    }
}

/// The variable of the environment that a property's name stands for.
fn variable(name: &str) -> String {
    let is_variable = |c: char| c.is_ascii_alphanumeric() || c == '_';
    match name.chars().all(is_variable) {
        true => name.to_owned(),
        false => name.replace(|c| !is_variable(c), "_").to_ascii_uppercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_variables_and_escaped_ones_are_the_router_s() {
        let properties = [
            ("prefix".to_owned(), "shop-${STAGE}".to_owned()),
            ("a".to_owned(), "${a}".to_owned()),
        ];
        let cases = [
            (r"outbox.event.\${routedByValue}", "outbox.event.${routedByValue}"),
            ("outbox.event.$${routedByValue}", "outbox.event.${routedByValue}"),
            ("${AREA}.$${routedByValue}", "${env:AREA}.${routedByValue}"),
            (
                "$${file:secrets.properties:password}",
                "${file:secrets.properties:password}",
            ),
            (
                "${DB_HOST:localhost}:${db.port:5432}",
                "${env:DB_HOST:-localhost}:${env:DB_PORT:-5432}",
            ),
            ("${KAFKA_BROKERS:kafka:9092}", "${env:KAFKA_BROKERS:-kafka:9092}"),
            ("${missing:${OTHER}}x", "${env:missing}x"),
            ("${prefix}.events", "shop-${env:STAGE}.events"),
            ("price$5", "price$5"),
            ("price$", "price$"),
            ("a$$b", "a$b"),
            (r"^\d+$", r"^\d+$"),
            ("${open", "${open"),
        ];
        for (value, expected) in cases {
            assert_eq!(connect_value(value, &properties), expected, "{value}");
        }
        assert_eq!(connect_value("${a}", &properties), "${env:a}");
    }
}
