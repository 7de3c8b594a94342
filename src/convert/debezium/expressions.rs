//! Expressions in Debezium Server's properties, as what a connector of Connect has in their place.
//!
//! SmallRye Config fills in `${name}` and `${name:default}` when it reads the file, from the environment or from the file's other
//! properties; `\$` and `$$` are a dollar sign that begins none. So `\${routedByValue}` and `$${routedByValue}` reach the router
//! as `${routedByValue}`, and `$${file:…}` a config provider. Source: MicroProfile Config, "Property expressions", and SmallRye's
//! own rule of the doubled sign.

use super::input::InputError;

/// How deep expressions may lie within each other, by their defaults or by the properties that they name.
const MAX_DEPTH: usize = 32;
/// How many bytes are read for one value, with those of the properties and defaults in it, each time that they are named.
const MAX_BYTES: usize = 64 * 1024;

/// A value with its expressions as `${env:NAME}` or `${env:NAME:-default}`, or as the property of the file that they name.
///
/// # Errors
/// Its expressions go deeper, or take more, than any that a person wrote; those of a property that names itself do.
pub(super) fn connect_value(option: &str, value: &str, properties: &[(String, String)]) -> Result<String, InputError> {
    let mut expansion = Expansion {
        properties,
        bytes_left: MAX_BYTES.max(value.len() * 2),
    };
    expansion.expand(value, 0).ok_or_else(|| InputError::Expressions {
        option: option.to_owned(),
        levels: MAX_DEPTH,
        bytes: MAX_BYTES,
    })
}

struct Expansion<'a> {
    properties: &'a [(String, String)],
    bytes_left: usize,
}

impl Expansion<'_> {
    /// None: it is over a bound, as is what `filled` gives then.
    fn expand(&mut self, value: &str, depth: usize) -> Option<String> {
        if depth > MAX_DEPTH {
            return None;
        }
        self.bytes_left = self.bytes_left.checked_sub(value.len())?;
        let value = value.replace(r"\$", "$$");
        let mut out = String::with_capacity(value.len());
        let mut rest = value.as_str();
        while let Some((before, after)) = rest.split_once('$') {
            out.push_str(before);
            if let Some(after) = after.strip_prefix('$') {
                out.push('$');
                rest = after;
            } else if let Some(inside) = after.strip_prefix('{') {
                if let Some((expression, after)) = closed(inside) {
                    out.push_str(&self.filled(expression, depth + 1)?);
                    rest = after;
                } else {
                    // It was read to its end in vain.
                    self.bytes_left = self.bytes_left.checked_sub(inside.len())?;
                    out.push('$');
                    rest = after;
                }
            } else {
                out.push('$');
                rest = after;
            }
        }
        out.push_str(rest);
        Some(out)
    }

    fn filled(&mut self, expression: &str, depth: usize) -> Option<String> {
        let (name, default) = match expression.split_once(':') {
            Some((name, default)) => (name, Some(default)),
            None => (expression, None),
        };
        if let Some((_, value)) = self.properties.iter().find(|(known, _)| known == name) {
            return self.expand(value, depth);
        }
        let variable = variable(name);
        Some(match default.map(|default| self.expand(default, depth)) {
            // A default that is itself to be filled in cannot be said in a pipeline file.
            Some(default) if !default.as_ref()?.contains("${") => format!("${{env:{variable}:-{}}}", default?),
            _ => format!("${{env:{variable}}}"),
        })
    }
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
        let properties = [("prefix".to_owned(), "shop-${STAGE}".to_owned())];
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
            assert_eq!(connect_value("o", value, &properties).unwrap(), expected, "{value}");
        }
    }

    #[test]
    fn expressions_end_somewhere() {
        let named = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let doubled = (0..40).map(|at| named(&format!("a{at}"), &format!("${{a{0}}}${{a{0}}}", at + 1)));
        let mut properties: Vec<_> = doubled.collect();
        properties.extend([named("a40", ""), named("self", "${self}")]);
        let (open, close) = ("${b:".repeat(12_000), "}".repeat(12_000));
        for value in ["${a0}", "${a20}", "${self}", &open, &format!("{open}{close}")] {
            let error = connect_value("the.option", value, &properties).unwrap_err();
            assert!(error.to_string().contains("option `the.option`"), "{error}");
        }
        let long = "x".repeat(2 * MAX_BYTES);
        assert_eq!(connect_value("o", &long, &properties).unwrap(), long);
        let nested = format!("{}x{}", "${b:".repeat(MAX_DEPTH), "}".repeat(MAX_DEPTH));
        assert_eq!(connect_value("o", &nested, &properties).unwrap(), "${env:b}");
    }
}
