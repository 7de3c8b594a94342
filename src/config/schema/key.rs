//! The words in which keys are described.

use std::ops::RangeInclusive;
use std::time::Duration;

use serde_json::Value;

use crate::config::quantity::{show_duration, show_size};
use crate::config::shown::in_words;

/// A key of a mapping.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::config) struct Key {
    pub(super) name: &'static str,
    pub(super) takes: Takes,
    /// In Markdown, a link as docs/pipeline-file.md has it; empty only where a mapping's name and keys say it all.
    pub(super) meaning: &'static str,
    pub(super) absent: Absent,
    pub(super) files: Files,
}

/// The files in which a key is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::config) enum Files {
    All,
    /// Those of tailpost's own version.
    Own,
    /// DeltaForge's.
    Deltaforge,
}

/// What holds without the key.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::config) enum Absent {
    /// The key must be there.
    Refused,
    /// Nothing: what the key is for is off.
    Nothing,
    /// As if this were its value.
    Value(Value),
    /// What depends on something else, in Markdown.
    Words(&'static str),
}

impl Key {
    /// A key that may be missing.
    pub(super) fn new(name: &'static str, takes: Takes, meaning: &'static str) -> Self {
        Self {
            name,
            takes,
            meaning,
            absent: Absent::Nothing,
            files: Files::All,
        }
    }

    pub(super) fn required(self) -> Self {
        let absent = Absent::Refused;
        Self { absent, ..self }
    }

    pub(super) fn default(self, value: impl Into<Value>) -> Self {
        let absent = Absent::Value(value.into());
        Self { absent, ..self }
    }

    pub(super) fn default_in_words(self, words: &'static str) -> Self {
        let absent = Absent::Words(words);
        Self { absent, ..self }
    }

    /// A key that files of DeltaForge do not have, or have with another meaning.
    pub(super) fn own(self) -> Self {
        let files = Files::Own;
        Self { files, ..self }
    }

    /// A key of DeltaForge's files alone, most of which have no effect.
    pub(super) fn of_deltaforge(name: &'static str, takes: Takes, meaning: &'static str) -> Self {
        Self {
            files: Files::Deltaforge,
            ..Self::new(name, takes, meaning)
        }
    }

    pub(super) fn is_of_deltaforge(&self) -> bool {
        self.files == Files::Deltaforge
    }

    pub(super) fn is_required(&self) -> bool {
        self.absent == Absent::Refused
    }
}

/// The kind of a value, in the terms in which the readers ask for it.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::config) enum Takes {
    Text(Form),
    /// Text with fields of an event in it.
    Template,
    Boolean,
    Null,
    Integer(RangeInclusive<i64>),
    Number(RangeInclusive<f64>),
    Duration(RangeInclusive<Duration>),
    Size(RangeInclusive<u64>),
    /// One of these.
    Word(Vec<&'static str>),
    List(List),
    Mapping(Vec<Key>),
    Tagged(Tagged),
    Open(Open),
    /// One of several kinds.
    Either(Vec<Takes>),
    /// What nobody looks at.
    Anything,
}

/// What a text must look like.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::config) enum Form {
    Any,
    /// Not empty.
    Filled,
    /// What the text is called, and a regular expression that every such text matches, and few others do.
    Like(&'static str, &'static str),
}

#[derive(Debug, Clone, PartialEq)]
pub(in crate::config) struct List {
    /// What the list is called.
    pub(super) name: &'static str,
    pub(super) of: Box<Takes>,
    pub(super) count: RangeInclusive<usize>,
}

/// A mapping whose key `type` says which keys it has.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::config) struct Tagged {
    /// Of the key `type`.
    pub(super) meaning: &'static str,
    pub(super) variants: Vec<Variant>,
}

/// What stands beside some words for `type`.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::config) struct Variant {
    /// Words that mean the same, the first of which stands for them all.
    pub(super) words: Vec<&'static str>,
    pub(super) keys: Vec<Key>,
}

/// A mapping whose keys are the file's own.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::config) struct Open {
    /// What the mapping is called.
    pub(super) name: &'static str,
    pub(super) values: Box<Takes>,
    /// Those that have a meaning here too.
    pub(super) known: Vec<Key>,
}

pub(super) fn text() -> Takes {
    Takes::Text(Form::Any)
}

pub(super) fn filled() -> Takes {
    Takes::Text(Form::Filled)
}

/// Text of a form that has a name. The pattern takes what the readers take; what it is for is to find slips.
pub(super) fn like(name: &'static str, pattern: &'static str) -> Takes {
    Takes::Text(Form::Like(name, pattern))
}

pub(super) fn word<const N: usize>(words: [&'static str; N]) -> Takes {
    Takes::Word(words.to_vec())
}

pub(super) fn list(name: &'static str, of: Takes) -> Takes {
    list_of(name, of, 0..=usize::MAX)
}

pub(super) fn list_of(name: &'static str, of: Takes, count: RangeInclusive<usize>) -> Takes {
    let of = Box::new(of);
    Takes::List(List { name, of, count })
}

pub(super) fn patterns() -> Takes {
    list("list of patterns", like("pattern", "."))
}

pub(super) fn tagged(meaning: &'static str, variants: Vec<Variant>) -> Takes {
    Takes::Tagged(Tagged { meaning, variants })
}

pub(super) fn variant<const N: usize>(words: [&'static str; N], keys: Vec<Key>) -> Variant {
    let words = words.to_vec();
    Variant { words, keys }
}

pub(super) fn open(name: &'static str, values: Takes) -> Takes {
    open_with(name, values, Vec::new())
}

pub(super) fn open_with(name: &'static str, values: Takes, known: Vec<Key>) -> Takes {
    let values = Box::new(values);
    Takes::Open(Open { name, values, known })
}

pub(super) fn either<const N: usize>(kinds: [Takes; N]) -> Takes {
    Takes::Either(kinds.to_vec())
}

impl Tagged {
    /// All the words that `type` takes.
    pub(super) fn words(&self) -> Vec<&'static str> {
        self.variants
            .iter()
            .flat_map(|variant| &variant.words)
            .copied()
            .collect()
    }

    /// `type` as a key like any other.
    pub(super) fn type_key(&self) -> Key {
        Key::new("type", Takes::Word(self.words()), self.meaning).required()
    }
}

impl Takes {
    /// A list, whatever is in it.
    pub(in crate::config) fn any_list() -> Self {
        list("list", Self::Anything)
    }

    /// The kinds, one by one.
    pub(super) fn kinds(&self) -> Vec<&Takes> {
        match self {
            Self::Either(kinds) => kinds.iter().flat_map(Self::kinds).collect(),
            kind => vec![kind],
        }
    }

    /// As a person would say it, in Markdown.
    pub(super) fn words(&self) -> String {
        match self {
            Self::Text(Form::Like(name, _)) => (*name).to_owned(),
            Self::Text(_) => "text".to_owned(),
            Self::Template => "template".to_owned(),
            Self::Boolean => "`true` or `false`".to_owned(),
            Self::Null => "`null`".to_owned(),
            Self::Integer(range) if *range == (i64::MIN..=i64::MAX) => "whole number".to_owned(),
            Self::Integer(range) => format!("whole number {}", range_in_words(range, i64::to_string)),
            Self::Number(range) if *range.start() == f64::MIN_POSITIVE => {
                format!("number above 0, `{}` at most", range.end())
            }
            Self::Number(range) if *range == (f64::MIN..=f64::MAX) => "number".to_owned(),
            Self::Number(range) => format!("number {}", range_in_words(range, f64::to_string)),
            Self::Duration(range) => format!("duration {}", range_in_words(range, |&value| show_duration(value))),
            Self::Size(range) => format!("size {}", range_in_words(range, |&value| show_size(value))),
            Self::Word(words) => in_words(words.iter().map(|word| format!("`{word}`")).collect()),
            Self::List(list) => list.name.to_owned(),
            Self::Mapping(_) | Self::Tagged(_) => "mapping".to_owned(),
            Self::Open(open) => open.name.to_owned(),
            Self::Either(_) => {
                let each = |kind: &Self| match kind {
                    Self::Boolean => vec!["`true`".to_owned(), "`false`".to_owned()],
                    Self::Word(words) => words.iter().map(|word| format!("`{word}`")).collect(),
                    kind => vec![kind.words()],
                };
                let mut words: Vec<String> = self.kinds().into_iter().flat_map(each).collect();
                words.dedup();
                in_words(words)
            }
            Self::Anything => "anything".to_owned(),
        }
    }
}

fn range_in_words<T>(range: &RangeInclusive<T>, show: impl Fn(&T) -> String) -> String {
    format!("from `{}` to `{}`", show(range.start()), show(range.end()))
}
