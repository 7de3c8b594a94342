//! `${...}` in a text: where it begins and ends, and what it asks for. `$$` is a dollar sign, as is a `$` by itself.

use std::io::{self, Read};

use super::environment::Environment;
use super::error::Problem;
use super::shown::shown;

/// A secret is a line or a certificate; anything larger is the wrong file, or one that never ends.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// A part of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Segment<'t> {
    Literal(String),
    /// What stands between `${` and `}`: never empty, never with another `${` in it.
    Placeholder(&'t str),
}

pub(super) const UNTERMINATED: &str = "`${` without a closing `}`; write `$${` for the two characters themselves";
pub(super) const NESTED: &str = "a placeholder inside a placeholder: expected `}` before the next `${`";
pub(super) const EMPTY: &str = "empty placeholder: expected a name between `${` and `}`";
const NOT_A_NAME: &str =
    "expected `${NAME}`, `${NAME:-default}` or `${file:/path}`, with letters, digits and _ in NAME";

/// Splits a text. Neighbouring literals come as one.
pub(super) fn split(text: &str) -> Result<Vec<Segment<'_>>, &'static str> {
    let mut segments = Vec::new();
    let mut literal = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        let (before, from_dollar) = rest.split_at(at);
        literal.push_str(before);
        if let Some(after) = from_dollar.strip_prefix("$$") {
            literal.push('$');
            rest = after;
        } else if let Some(inside) = from_dollar.strip_prefix("${") {
            let (name, after) = inside.split_once('}').ok_or(UNTERMINATED)?;
            if name.contains("${") {
                return Err(NESTED);
            }
            if name.is_empty() {
                return Err(EMPTY);
            }
            if !literal.is_empty() {
                segments.push(Segment::Literal(std::mem::take(&mut literal)));
            }
            segments.push(Segment::Placeholder(name));
            rest = after;
        } else {
            literal.push('$');
            rest = &from_dollar[1..];
        }
    }
    literal.push_str(rest);
    if !literal.is_empty() {
        segments.push(Segment::Literal(literal));
    }
    Ok(segments)
}

/// Text for a placeholder that asks for a variable (`NAME`, `NAME:-default`, with or without `env:` before it) or a file.
pub(super) fn resolve(placeholder: &str, environment: &dyn Environment) -> Result<String, Problem> {
    if let Some(path) = placeholder.strip_prefix("file:") {
        return read_secret(path).map_err(|err| Problem::SecretFile {
            path: shown(path),
            kind: err.kind(),
        });
    }
    let asked = placeholder.strip_prefix("env:").unwrap_or(placeholder);
    let (name, default) = match asked.split_once(":-") {
        Some((name, default)) => (name, Some(default.replace("$$", "$"))),
        None => (asked, None),
    };
    if !is_variable_name(name) {
        return Err(Problem::Placeholder { message: NOT_A_NAME });
    }
    // As in a shell, `:-` also stands in for a variable that is set to nothing.
    match (environment.variable(name), default) {
        (Some(value), None) => Ok(value),
        (Some(value), Some(_)) if !value.is_empty() => Ok(value),
        (_, Some(default)) => Ok(default),
        (None, None) => Err(Problem::MissingVariable { name: name.to_owned() }),
    }
}

fn is_variable_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Whether a name is one that DeltaForge files use for the environment rather than for an event's field.
pub(super) fn is_in_capitals(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_uppercase())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
}

fn read_secret(path: &str) -> io::Result<String> {
    let mut text = String::new();
    std::fs::File::open(path)?
        .take(MAX_FILE_BYTES + 1)
        .read_to_string(&mut text)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Write;

    use super::*;

    fn environment() -> BTreeMap<String, String> {
        [("HOST", "db"), ("EMPTY", ""), ("TRICKY", "${HOST}: #x")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into()
    }

    fn resolved(placeholder: &str) -> Result<String, Problem> {
        resolve(placeholder, &environment())
    }

    #[test]
    fn a_text_is_split_at_its_placeholders() {
        let literal = |text: &str| Segment::Literal(text.to_owned());
        assert_eq!(split("").unwrap(), []);
        assert_eq!(split("a$b$").unwrap(), [literal("a$b$")]);
        assert_eq!(split("$${A}").unwrap(), [literal("${A}")]);
        assert_eq!(
            split("$$${A}é").unwrap(),
            [literal("$"), Segment::Placeholder("A"), literal("é")]
        );
        assert_eq!(
            split("${a}${b}").unwrap(),
            [Segment::Placeholder("a"), Segment::Placeholder("b")]
        );
        assert_eq!(split("x ${a"), Err(UNTERMINATED));
        assert_eq!(split("${a:-${b}}"), Err(NESTED));
        assert_eq!(split("${}"), Err(EMPTY));
    }

    #[test]
    fn variables_are_looked_up_and_defaults_stand_in() {
        assert_eq!(resolved("HOST"), Ok("db".to_owned()));
        assert_eq!(resolved("env:HOST"), Ok("db".to_owned()));
        assert_eq!(resolved("EMPTY"), Ok(String::new()));
        assert_eq!(resolved("EMPTY:-x"), Ok("x".to_owned()));
        assert_eq!(resolved("NONE:-"), Ok(String::new()));
        assert_eq!(resolved("NONE:-a:-$$b"), Ok("a:-$b".to_owned()));
        assert_eq!(resolved("TRICKY"), Ok("${HOST}: #x".to_owned()));
        assert_eq!(
            resolved("NONE"),
            Err(Problem::MissingVariable {
                name: "NONE".to_owned()
            })
        );
        for placeholder in ["1A", "A B", "A:?x", "A-x", " A", ":-x", "é"] {
            assert_eq!(
                resolved(placeholder),
                Err(Problem::Placeholder { message: NOT_A_NAME }),
                "{placeholder}"
            );
        }
    }

    #[test]
    fn a_secret_file_loses_one_trailing_newline() {
        for (content, secret) in [
            ("s3cret\n", "s3cret"),
            ("a\r\n", "a"),
            ("a\n\n", "a\n"),
            ("a", "a"),
            ("", ""),
        ] {
            let mut file = tempfile::NamedTempFile::new().unwrap();
            file.write_all(content.as_bytes()).unwrap();
            assert_eq!(
                resolved(&format!("file:{}", file.path().display())),
                Ok(secret.to_owned())
            );
        }
    }

    #[test]
    fn a_file_that_cannot_be_read_is_a_violation() {
        let kind_of = |path: &str| match resolved(&format!("file:{path}")) {
            Err(Problem::SecretFile { kind, .. }) => kind,
            other => panic!("{other:?}"),
        };
        assert_eq!(kind_of("/nowhere/secret"), io::ErrorKind::NotFound);
        assert_eq!(kind_of("/dev/zero"), io::ErrorKind::FileTooLarge);
        kind_of("/");
        kind_of("");
    }
}
