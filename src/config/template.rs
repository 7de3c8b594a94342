//! Templates of topics and keys: literal text and `${field}` placeholders. Syntax only; rendering is the processors' work.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use super::placeholder::{Segment, split};

/// A parsed template. Its Display is the source in its plainest spelling: each `$` of a literal is `$$`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    parts: Vec<Part>,
}

/// A piece of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// Text as it is; never empty, and never beside another literal.
    Literal(String),
    /// The path of a field: its names from the outside in; at least one, none empty.
    Field(Vec<String>),
}

/// Why a text is no template.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum TemplateError {
    #[error("{message}")]
    Placeholder { message: &'static str },
    #[error("empty name in a field's path: expected `${{a.b.c}}`")]
    EmptySegment,
    #[error("blank at the edge of a field's name: expected `${{field}}`")]
    Blank,
    #[error("only a variable has a default: expected `${{env:NAME:-default}}`, or `${{field}}` without one")]
    FieldDefault,
    #[error("`env:` and `file:` are filled in when a pipeline file is loaded, not in a template by itself")]
    Environment,
}

impl Template {
    /// Reads a template whose placeholders are all event fields.
    ///
    /// # Errors
    /// On a placeholder that is empty, unterminated, nested, not a field's path, or asks for the environment.
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        let segments = split(text).map_err(|message| TemplateError::Placeholder { message })?;
        let mut template = Template {
            parts: Vec::with_capacity(segments.len()),
        };
        for segment in segments {
            match segment {
                Segment::Literal(text) => template.push_literal(&text),
                Segment::Placeholder(name) if asks_environment(name) => return Err(TemplateError::Environment),
                Segment::Placeholder(name) => template.push_field(name)?,
            }
        }
        Ok(template)
    }

    pub(super) fn empty() -> Self {
        Template { parts: Vec::new() }
    }

    pub(super) fn push_literal(&mut self, text: &str) {
        match self.parts.last_mut() {
            Some(Part::Literal(before)) => before.push_str(text),
            _ if text.is_empty() => {}
            _ => self.parts.push(Part::Literal(text.to_owned())),
        }
    }

    pub(super) fn push_field(&mut self, path: &str) -> Result<(), TemplateError> {
        if path.contains(":-") {
            return Err(TemplateError::FieldDefault);
        }
        let names: Vec<String> = path.split('.').map(str::to_owned).collect();
        if names.iter().any(String::is_empty) {
            return Err(TemplateError::EmptySegment);
        }
        if names.iter().any(|name| name.trim() != name) {
            return Err(TemplateError::Blank);
        }
        self.parts.push(Part::Field(names));
        Ok(())
    }

    /// The pieces in their order.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The paths of the fields that it takes, in their order.
    pub fn fields(&self) -> impl Iterator<Item = &[String]> {
        self.parts.iter().filter_map(|part| match part {
            Part::Field(path) => Some(path.as_slice()),
            Part::Literal(_) => None,
        })
    }

    /// Whether it takes no field, so that it gives the same text for every event.
    pub fn is_constant(&self) -> bool {
        self.fields().next().is_none()
    }
}

/// Whether a placeholder of a template asks for the environment rather than for a field.
pub(super) fn asks_environment(placeholder: &str) -> bool {
    placeholder.starts_with("env:") || placeholder.starts_with("file:")
}

impl FromStr for Template {
    type Err = TemplateError;

    fn from_str(text: &str) -> Result<Self, TemplateError> {
        Template::parse(text)
    }
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in &self.parts {
            match part {
                Part::Literal(text) => f.write_str(&text.replace('$', "$$"))?,
                Part::Field(path) => write!(f, "${{{}}}", path.join("."))?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn field(path: &[&str]) -> Part {
        Part::Field(path.iter().map(|&name| name.to_owned()).collect())
    }

    #[test]
    fn placeholders_are_field_paths_and_the_rest_is_literal() {
        let template = Template::parse("orders.${after.customer.id}-$$${event_type}").unwrap();
        let literal = |text: &str| Part::Literal(text.to_owned());
        assert_eq!(
            template.parts(),
            [
                literal("orders."),
                field(&["after", "customer", "id"]),
                literal("-$"),
                field(&["event_type"])
            ]
        );
        assert_eq!(
            template.fields().map(|path| path.join("/")).collect::<Vec<_>>(),
            ["after/customer/id", "event_type"]
        );
        assert_eq!(template.to_string(), "orders.${after.customer.id}-$$${event_type}");
        assert!(!template.is_constant());
        assert!(Template::parse("a$$b").unwrap().is_constant());
        assert!(Template::parse("").unwrap().is_constant());
    }

    #[test]
    fn what_is_no_field_path_is_refused() {
        for (text, message) in [
            ("${}", "empty placeholder"),
            ("${a", "without a closing"),
            ("${a${b}}", "inside a placeholder"),
            ("${a..b}", "empty name"),
            ("${.a}", "empty name"),
            ("${a.}", "empty name"),
            ("${ a}", "blank"),
            ("${a. b}", "blank"),
            ("${a:-b}", "only a variable has a default"),
            ("${env:A}", "when a pipeline file is loaded"),
            ("${file:/a}", "when a pipeline file is loaded"),
        ] {
            let err = Template::parse(text).unwrap_err().to_string();
            assert!(err.contains(message), "{text}: {err}");
        }
    }

    proptest! {
        #[test]
        fn parsing_never_panics_and_display_reads_back(text in "\\PC*|[a-c.$ {}:\\-é]{0,24}") {
            if let Ok(template) = Template::parse(&text) {
                prop_assert_eq!(Template::parse(&template.to_string()), Ok(template));
            }
        }

        #[test]
        fn every_template_of_literals_and_fields_reads_back(
            pieces in proptest::collection::vec(("[a-z$.{} ]{0,6}", proptest::collection::vec("[a-z_$]{1,4}", 1..4)), 0..5)
        ) {
            let mut template = Template::empty();
            for (literal, path) in pieces {
                template.push_literal(&literal);
                template.push_field(&path.join(".")).unwrap();
            }
            prop_assert_eq!(Template::parse(&template.to_string()), Ok(template));
        }
    }
}
