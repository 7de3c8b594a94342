//! `type` keys: what there is, what is to come, and what is refused by name.

use crate::config::error::Problem;
use crate::config::reader::{Field, Mapping, Read, Reader, Reported};
use crate::config::shown::in_words;
use crate::config::suggest::nearest;

/// The words of a `type` key: what there is, what is to come, and what other programs have.
pub(super) struct Kinds<'w, T> {
    pub(super) here: &'w [(&'static str, T)],
    pub(super) later: &'w [&'w str],
    pub(super) elsewhere: &'w [&'w str],
}

impl<T> Kinds<'_, T> {
    fn words(&self) -> impl Iterator<Item = &'static str> + Clone {
        self.here.iter().map(|(word, _)| *word)
    }

    fn expected(&self) -> String {
        in_words(self.words().map(|word| format!("`{word}`")).collect())
    }
}

/// What a `type` key turned out to be.
pub(super) enum Kind<T> {
    Known(T),
    /// Missing or misspelt: the rest is read all the same, so that its violations are not found only one try later.
    Unclear {
        reported: Reported,
        /// The nearest of the known ones.
        likely: Option<T>,
    },
    /// Something that is not here: the rest follows other rules.
    Foreign(Reported),
}

impl<T> Kind<T> {
    /// Reads what stands beside the key. It gives a value only if the kind is known; else the kind is a guess, or none.
    pub(super) fn read<R>(self, rest: impl FnOnce(Option<T>) -> Read<R>) -> Read<R> {
        match self {
            Self::Known(kind) => rest(Some(kind)),
            Self::Unclear { reported, likely } => rest(likely).and(Err(reported)),
            Self::Foreign(reported) => Err(reported),
        }
    }
}

pub(super) fn require_kind<T: Copy>(
    reader: &mut Reader<'_>,
    mapping: &mut Mapping<'_>,
    what: &str,
    kinds: &Kinds<'_, T>,
) -> Kind<T> {
    match reader.require(mapping, "type", &kinds.expected()) {
        Ok(field) => classify(reader, &field, what, kinds),
        Err(reported) => Kind::Unclear { reported, likely: None },
    }
}

fn classify<T: Copy>(reader: &mut Reader<'_>, field: &Field<'_>, what: &str, kinds: &Kinds<'_, T>) -> Kind<T> {
    let text = match reader.one_of(field, kinds.words()) {
        Ok(text) => text,
        Err(reported) => return Kind::Unclear { reported, likely: None },
    };
    let meaning = |word: &str| {
        kinds
            .here
            .iter()
            .find(|(known, _)| *known == word)
            .map(|(_, kind)| *kind)
    };
    let is_in = |words: &[&str]| words.contains(&text.value.as_str());
    let what = format!("{what} {}", text.found());
    if let Some(kind) = meaning(&text.value) {
        Kind::Known(kind)
    } else if is_in(kinds.later) {
        Kind::Foreign(reader.report(field, Problem::NotYet { what, remedy: None }))
    } else if is_in(kinds.elsewhere) {
        let remedy = Some(format!("expected {}", kinds.expected()));
        Kind::Foreign(reader.report(field, Problem::NotSupported { what, remedy }))
    } else {
        Kind::Unclear {
            reported: reader.unknown_word(field, &text, kinds.words()),
            likely: nearest(&text.value, kinds.words()).and_then(meaning),
        }
    }
}

/// A `type` key with nothing behind it that depends on it.
pub(super) fn read_type<T: Copy>(
    reader: &mut Reader<'_>,
    field: &Field<'_>,
    what: &str,
    kinds: &Kinds<'_, T>,
) -> Read<T> {
    match classify(reader, field, what, kinds) {
        Kind::Known(kind) => Ok(kind),
        Kind::Unclear { reported, .. } | Kind::Foreign(reported) => Err(reported),
    }
}
