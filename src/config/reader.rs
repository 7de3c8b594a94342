//! Typed access to the node tree which reports and goes on.
//!
//! A reading function gives a value or [`Reported`], which only [`Reader::report`] can make: a value that is missing always
//! has a violation beside it, so a pipeline comes out exactly when there is none.

use std::fmt;
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use super::asked::Asked;
use super::document::{Node, Value};
use super::environment::Environment;
use super::error::Problem;
use super::placeholder::{self, Segment};
use super::quantity::{self, show_duration, show_size};
use super::schema::{Form, Takes};
use super::shown::{describe, in_words, join, kind, names_secret, quoted};
use super::suggest::nearest;

/// The proof that a violation was recorded.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reported(());

pub(super) type Read<T> = Result<T, Reported>;

/// Which contract a file follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    Tailpost,
    DeltaForge,
}

/// A violation or a note before its place is known.
#[derive(Debug)]
pub(super) struct Finding<T> {
    pub(super) number: usize,
    pub(super) path: String,
    pub(super) what: T,
}

/// A value under its dotted path.
#[derive(Debug, Clone)]
pub(super) struct Field<'n> {
    pub(super) path: String,
    /// The number of the key's node; of the value's node in a list.
    pub(super) key: usize,
    pub(super) node: &'n Node,
}

/// A string after its placeholders are filled in.
#[derive(Clone)]
pub(super) struct Text {
    pub(super) value: String,
    /// Whether it had a placeholder: then its value may be read as its key's type, and must not be shown.
    pub(super) expanded: bool,
    source: String,
}

impl Text {
    /// The value as a message may show it.
    pub(super) fn found(&self) -> String {
        if self.expanded {
            return format!("the value of {}", quoted(&self.source));
        }
        if self.value.is_empty() {
            "empty text".to_owned()
        } else {
            quoted(&self.value)
        }
    }
}

/// The value could be a secret.
impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Text")
            .field("expanded", &self.expanded)
            .finish_non_exhaustive()
    }
}

/// A mapping whose keys are asked for one by one; [`Reader::finish`] reports those that nobody knew.
#[derive(Debug)]
pub(super) struct Mapping<'n> {
    path: String,
    number: usize,
    entries: Vec<Entry<'n>>,
    known: Vec<&'static str>,
    asked: Asked,
}

#[derive(Debug)]
struct Entry<'n> {
    name: &'n str,
    field: Field<'n>,
}

impl<'n> Mapping<'n> {
    /// Takes a known key out.
    pub(super) fn take(&mut self, name: &'static str) -> Option<Field<'n>> {
        self.asked.key(&self.path, name, false);
        self.take_asked(name)
    }

    fn take_asked(&mut self, name: &'static str) -> Option<Field<'n>> {
        self.known.push(name);
        let index = self.entries.iter().position(|entry| entry.name == name)?;
        Some(self.entries.remove(index).field)
    }

    /// A key that is still to be taken.
    pub(super) fn peek(&self, name: &str) -> Option<Field<'n>> {
        let entry = self.entries.iter().find(|entry| entry.name == name);
        entry.map(|entry| entry.field.clone())
    }

    /// All the keys that are left, for a mapping whose keys are the user's own.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = (&'n str, Field<'n>)> {
        std::mem::take(&mut self.entries)
            .into_iter()
            .map(|entry| (entry.name, entry.field))
    }

    /// The mapping as a field, to report against as a whole.
    pub(super) fn whole(&self) -> (usize, String) {
        (self.number, self.path.clone())
    }
}

pub(super) struct Reader<'e> {
    pub(super) environment: &'e dyn Environment,
    /// The folder of the file, for what lies beside it.
    pub(super) folder: &'e Path,
    pub(super) version: Version,
    pub(super) violations: Vec<Finding<Problem>>,
    pub(super) notes: Vec<Finding<String>>,
    pub(super) asked: Asked,
}

impl<'e> Reader<'e> {
    pub(super) fn new(environment: &'e dyn Environment) -> Self {
        Reader {
            environment,
            folder: Path::new(""),
            version: Version::Tailpost,
            violations: Vec::new(),
            notes: Vec::new(),
            asked: Asked::default(),
        }
    }

    pub(super) fn is_deltaforge(&self) -> bool {
        self.version == Version::DeltaForge
    }

    /// Records a violation of a node.
    pub(super) fn report_at(&mut self, number: usize, path: &str, problem: Problem) -> Reported {
        self.violations.push(Finding {
            number,
            path: path.to_owned(),
            what: problem,
        });
        Reported(())
    }

    /// Records a violation of a value.
    pub(super) fn report(&mut self, field: &Field<'_>, problem: Problem) -> Reported {
        self.report_at(field.node.number, &field.path, problem)
    }

    /// Records a violation of a key, whatever its value.
    pub(super) fn report_key(&mut self, field: &Field<'_>, problem: Problem) -> Reported {
        self.report_at(field.key, &field.path, problem)
    }

    pub(super) fn unexpected(&mut self, field: &Field<'_>, expected: impl Into<String>, found: String) -> Reported {
        self.report(
            field,
            Problem::Unexpected {
                expected: expected.into(),
                found,
                remedy: None,
            },
        )
    }

    pub(super) fn refuse(&mut self, field: &Field<'_>, message: impl Into<String>) -> Reported {
        self.report(
            field,
            Problem::Refused {
                message: message.into(),
            },
        )
    }

    pub(super) fn note(&mut self, field: &Field<'_>, message: impl Into<String>) {
        self.notes.push(Finding {
            number: field.key,
            path: field.path.clone(),
            what: message.into(),
        });
    }

    /// Opens a mapping. Duplicates, merge keys and keys that are no text are reported here, once.
    pub(super) fn mapping<'n>(&mut self, field: &Field<'n>) -> Read<Mapping<'n>> {
        self.asked.value(&field.path, || Takes::Mapping(Vec::new()));
        let Value::Mapping(pairs) = &field.node.value else {
            return Err(self.wrong_kind(field, "a mapping"));
        };
        let mut entries: Vec<Entry<'n>> = Vec::with_capacity(pairs.len());
        let mut seen = std::collections::HashSet::new();
        for (key, value) in pairs {
            let Value::Text(name) = &key.value else {
                let (expected, found) = ("text as a key".to_owned(), describe(&key.value));
                self.report_at(
                    key.number,
                    &field.path,
                    Problem::Unexpected {
                        expected,
                        found,
                        remedy: None,
                    },
                );
                continue;
            };
            let path = join(&field.path, name);
            if name == "<<" {
                self.report_at(key.number, &field.path, Problem::MergeKey);
            } else if seen.insert(name) {
                entries.push(Entry {
                    name,
                    field: Field {
                        path,
                        key: key.number,
                        node: value,
                    },
                });
            } else {
                self.report_at(key.number, &path, Problem::DuplicateKey);
            }
        }
        Ok(Mapping {
            path: field.path.clone(),
            number: field.node.number,
            entries,
            known: Vec::new(),
            asked: self.asked.clone(),
        })
    }

    /// A key that must be there; `expected` says what its value would be.
    pub(super) fn require<'n>(
        &mut self,
        mapping: &mut Mapping<'n>,
        name: &'static str,
        expected: &str,
    ) -> Read<Field<'n>> {
        mapping.asked.key(&mapping.path, name, true);
        mapping.take_asked(name).ok_or_else(|| {
            let problem = Problem::MissingKey {
                expected: expected.to_owned(),
            };
            self.report_at(mapping.number, &join(&mapping.path, name), problem)
        })
    }

    /// Reports the keys that nobody took.
    pub(super) fn finish(&mut self, mapping: Mapping<'_>) {
        for entry in mapping.entries {
            let suggestion = nearest(entry.name, mapping.known.iter().copied()).map(str::to_owned);
            let known = mapping.known.clone();
            self.report_key(&entry.field, Problem::UnknownKey { suggestion, known });
        }
    }

    pub(super) fn list<'n>(&mut self, field: &Field<'n>) -> Read<Vec<Field<'n>>> {
        self.asked.value(&field.path, Takes::any_list);
        let Value::List(items) = &field.node.value else {
            return Err(self.wrong_kind(field, "a list"));
        };
        let at = |(index, node): (usize, &'n Node)| Field {
            path: format!("{}[{index}]", field.path),
            key: node.number,
            node,
        };
        Ok(items.iter().enumerate().map(at).collect())
    }

    /// Any text, with its placeholders filled in.
    pub(super) fn text(&mut self, field: &Field<'_>) -> Read<Text> {
        self.asked.value(&field.path, || Takes::Text(Form::Any));
        self.some_text(field)
    }

    /// The same, of what more is asked than that it be text.
    fn some_text(&mut self, field: &Field<'_>) -> Read<Text> {
        match &field.node.value {
            Value::Text(source) => self.expand(field, source),
            _ => Err(self.wrong_kind(field, "text")),
        }
    }

    /// Text that is not empty.
    pub(super) fn filled(&mut self, field: &Field<'_>) -> Read<String> {
        self.asked.value(&field.path, || Takes::Text(Form::Filled));
        let text = self.some_text(field)?;
        if text.value.is_empty() {
            return Err(self.unexpected(field, "text that is not empty", text.found()));
        }
        Ok(text.value)
    }

    /// Text as it is written, for what has placeholders of its own.
    pub(super) fn as_written<'n>(&mut self, field: &Field<'n>, takes: Takes) -> Read<&'n str> {
        self.asked.value(&field.path, || takes);
        match &field.node.value {
            Value::Text(source) => Ok(source),
            _ => Err(self.wrong_kind(field, "text")),
        }
    }

    pub(super) fn boolean(&mut self, field: &Field<'_>) -> Read<bool> {
        const EXPECTED: &str = "true or false";
        self.asked.value(&field.path, || Takes::Boolean);
        let source = match &field.node.value {
            Value::Bool(flag) => return Ok(*flag),
            Value::Text(source) => source,
            _ => return Err(self.wrong_kind(field, EXPECTED)),
        };
        let text = self.expand(field, source)?;
        let remedy = match (text.value.as_str(), text.expanded) {
            ("true", true) => return Ok(true),
            ("false", true) => return Ok(false),
            ("true" | "false", false) => Some("remove the quotes".to_owned()),
            (word, false) => match word.to_ascii_lowercase().as_str() {
                "yes" | "on" | "y" | "true" => Some("did you mean `true`?".to_owned()),
                "no" | "off" | "n" | "false" => Some("did you mean `false`?".to_owned()),
                _ => None,
            },
            _ => None,
        };
        Err(self.report(
            field,
            Problem::Unexpected {
                expected: EXPECTED.to_owned(),
                found: text.found(),
                remedy,
            },
        ))
    }

    pub(super) fn integer(&mut self, field: &Field<'_>, range: RangeInclusive<i64>) -> Read<i64> {
        self.asked.value(&field.path, || Takes::Integer(range.clone()));
        let expected = match (*range.start(), *range.end()) {
            (from, i64::MAX) => format!("a whole number, {from} or more"),
            (from, to) => format!("a whole number from {from} to {to}"),
        };
        let (number, found, remedy) = match &field.node.value {
            Value::Integer(number) => (Some(*number), number.to_string(), None),
            Value::Text(source) => {
                let text = self.expand(field, source)?;
                let number = text.value.parse::<i128>().ok();
                match text.expanded {
                    true => (number, text.found(), None),
                    false => (None, text.found(), number.map(|_| "remove the quotes".to_owned())),
                }
            }
            _ => return Err(self.wrong_kind(field, &expected)),
        };
        match number
            .and_then(|number| i64::try_from(number).ok())
            .filter(|number| range.contains(number))
        {
            Some(number) => Ok(number),
            None => Err(self.report(
                field,
                Problem::Unexpected {
                    expected,
                    found,
                    remedy,
                },
            )),
        }
    }

    /// A number that need not be whole; `expected` says its range in words.
    pub(super) fn number(&mut self, field: &Field<'_>, range: RangeInclusive<f64>, expected: &str) -> Read<f64> {
        self.asked.value(&field.path, || Takes::Number(range.clone()));
        let (number, found, remedy) = match &field.node.value {
            // A whole number that a float does not hold exactly is out of every range that a key has.
            Value::Integer(number) => (Some(*number as f64), number.to_string(), None),
            Value::Float(number) => (Some(*number), number.to_string(), None),
            Value::Text(source) => {
                let text = self.expand(field, source)?;
                let number = text.value.parse::<f64>().ok();
                match text.expanded {
                    true => (number, text.found(), None),
                    false => (None, text.found(), number.map(|_| "remove the quotes".to_owned())),
                }
            }
            _ => return Err(self.wrong_kind(field, expected)),
        };
        match number.filter(|number| range.contains(number)) {
            Some(number) => Ok(number),
            None => Err(self.report(
                field,
                Problem::Unexpected {
                    expected: expected.to_owned(),
                    found,
                    remedy,
                },
            )),
        }
    }

    pub(super) fn duration(&mut self, field: &Field<'_>, range: RangeInclusive<Duration>) -> Read<Duration> {
        self.asked.value(&field.path, || Takes::Duration(range.clone()));
        let source = match &field.node.value {
            Value::Text(source) => source,
            Value::Integer(number) => {
                let (expected, found) = (quantity::DURATION.to_owned(), number.to_string());
                let remedy = Some("add a unit".to_owned());
                return Err(self.report(
                    field,
                    Problem::Unexpected {
                        expected,
                        found,
                        remedy,
                    },
                ));
            }
            _ => return Err(self.wrong_kind(field, quantity::DURATION)),
        };
        let text = self.expand(field, source)?;
        let Some(duration) = quantity::parse_duration(&text.value) else {
            return Err(self.unexpected(field, quantity::DURATION, text.found()));
        };
        if !range.contains(&duration) {
            let expected = format!("{} to {}", show_duration(*range.start()), show_duration(*range.end()));
            return Err(self.unexpected(field, expected, text.found()));
        }
        Ok(duration)
    }

    pub(super) fn size(&mut self, field: &Field<'_>, range: RangeInclusive<u64>) -> Read<u64> {
        self.asked.value(&field.path, || Takes::Size(range.clone()));
        let (size, found) = match &field.node.value {
            Value::Integer(number) => (u64::try_from(*number).ok(), number.to_string()),
            Value::Text(source) => {
                let text = self.expand(field, source)?;
                (quantity::parse_size(&text.value), text.found())
            }
            _ => return Err(self.wrong_kind(field, quantity::SIZE)),
        };
        let Some(size) = size else {
            return Err(self.unexpected(field, quantity::SIZE, found));
        };
        if !range.contains(&size) {
            let expected = format!("{} to {}", show_size(*range.start()), show_size(*range.end()));
            return Err(self.unexpected(field, expected, found));
        }
        Ok(size)
    }

    /// One of a few words. What is no longer, or not yet, a choice is the caller's to refuse by name.
    pub(super) fn word<T: Copy>(&mut self, field: &Field<'_>, words: &[(&'static str, T)]) -> Read<T> {
        let text = self.one_of(field, words.iter().map(|(word, _)| *word))?;
        match words.iter().find(|(word, _)| *word == text.value) {
            Some((_, meaning)) => Ok(*meaning),
            None => Err(self.unknown_word(field, &text, words.iter().map(|(word, _)| *word))),
        }
    }

    /// Text that is to be one of these words, which the caller sees to.
    pub(super) fn one_of(&mut self, field: &Field<'_>, words: impl Iterator<Item = &'static str>) -> Read<Text> {
        self.asked.value(&field.path, || Takes::Word(words.collect()));
        self.some_text(field)
    }

    /// Reports a word that is none of the known ones, with the nearest of them.
    pub(super) fn unknown_word<'w>(
        &mut self,
        field: &Field<'_>,
        text: &Text,
        words: impl Iterator<Item = &'w str> + Clone,
    ) -> Reported {
        let expected = in_words(words.clone().map(|word| format!("`{word}`")).collect());
        let suggestion = if text.expanded {
            None
        } else {
            nearest(&text.value, words)
        };
        let remedy = suggestion.map(|word| format!("did you mean `{word}`?"));
        self.report(
            field,
            Problem::Unexpected {
                expected,
                found: text.found(),
                remedy,
            },
        )
    }

    /// Reports a value of the wrong kind.
    pub(super) fn wrong_kind(&mut self, field: &Field<'_>, expected: &str) -> Reported {
        let value = &field.node.value;
        let remedy = match (expected, value) {
            ("text", Value::Bool(_) | Value::Integer(_) | Value::Float(_)) => Some("quote it"),
            ("a list", Value::Null) => Some("write [] for none"),
            ("a list", Value::Text(_)) => Some("write [...] around it"),
            ("a mapping", Value::Null) => Some("remove the key, or write {} for none"),
            (_, Value::Null) => Some("remove the key, or give it a value"),
            (_, Value::Tagged) => Some("remove the tag"),
            _ => None,
        };
        let problem = Problem::Unexpected {
            expected: expected.to_owned(),
            found: if names_secret(&field.path) {
                kind(value).to_owned()
            } else {
                describe(value)
            },
            remedy: remedy.map(str::to_owned),
        };
        self.report(field, problem)
    }

    /// Text that no message may show.
    pub(super) fn secret(&mut self, field: &Field<'_>, expected: &str) -> Read<String> {
        self.asked.value(&field.path, || Takes::Text(Form::Any));
        match &field.node.value {
            Value::Text(source) => Ok(self.expand(field, source)?.value),
            value => Err(self.unexpected(field, expected, kind(value).to_owned())),
        }
    }

    fn expand(&mut self, field: &Field<'_>, source: &str) -> Read<Text> {
        let segments = match placeholder::split(source) {
            Ok(segments) => segments,
            Err(message) => return Err(self.report(field, Problem::Placeholder { message })),
        };
        let mut text = Text {
            value: String::new(),
            expanded: false,
            source: source.to_owned(),
        };
        let mut failed = None;
        for segment in segments {
            match segment {
                Segment::Literal(literal) => text.value.push_str(&literal),
                Segment::Placeholder(asked) => {
                    text.expanded = true;
                    match placeholder::resolve(asked, self.environment) {
                        Ok(value) => text.value.push_str(&value),
                        Err(problem) => failed = Some(self.report(field, problem)),
                    }
                }
            }
        }
        failed.map_or(Ok(text), Err)
    }
}

/// Reads a key that may be missing.
pub(super) fn optional<'n, T>(field: Option<Field<'n>>, read: impl FnOnce(&Field<'n>) -> Read<T>) -> Read<Option<T>> {
    field.as_ref().map(read).transpose()
}
