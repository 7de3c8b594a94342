//! What is wrong with a payload, in words that hold no value of it and have an end.

use jsonschema::error::ValidationErrorKind;
use jsonschema::{ErrorIterator, ValidationError};

/// How many faults are named. More help nobody, and there can be one for each item of a list.
const MAX_FAULTS: usize = 3;
/// The most characters of one name or place.
const MAX_CHARACTERS: usize = 120;

/// Faults, each with its place in the payload and the place in the schema that says so.
pub(super) fn in_words(mut faults: ErrorIterator<'_>) -> String {
    let named: Vec<String> = faults
        .by_ref()
        .take(MAX_FAULTS)
        .map(|fault| fault_in_words(&fault))
        .collect();
    let mut text = named.join("; ");
    if faults.next().is_some() {
        text.push_str("; and more");
    }
    text
}

fn fault_in_words(fault: &ValidationError<'_>) -> String {
    let place = match fault.instance_path().as_str() {
        "" => "it".to_owned(),
        place => named(place),
    };
    let rule = named(fault.schema_path().as_str());
    match fault.kind() {
        // Of the schema, not of the payload.
        ValidationErrorKind::Required { property } => {
            let property = property.as_str().map(named).unwrap_or_default();
            format!("{place} lacks {property}, by {rule}")
        }
        _ => format!("{place} does not meet {rule}"),
    }
}

/// Why a payload cannot be read; where, but not what is there.
pub(super) fn of_reading(err: &serde_json::Error) -> String {
    let (line, column) = (err.line(), err.column());
    match err.classify() {
        serde_json::error::Category::Eof => format!("it ends too early, at line {line}, column {column}"),
        _ => format!("a fault at line {line}, column {column}"),
    }
}

/// A name in quotes.
pub(super) fn named(name: &str) -> String {
    format!("`{}`", cut(name))
}

/// As much of a name as a line should have, without control characters.
pub(super) fn cut(name: &str) -> String {
    let visible = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    let mut cut: String = name.chars().take(MAX_CHARACTERS).map(visible).collect();
    if name.chars().nth(MAX_CHARACTERS).is_some() {
        cut.push('…');
    }
    cut
}
