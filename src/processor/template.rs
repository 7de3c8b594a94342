//! Rendering of the file's templates, once their fields are known as places in an event.

use super::error::Problem;
use super::field::Text;
use crate::config::template::{Part, Template};

/// A template whose placeholders are `F`, a place where a field is found.
#[derive(Debug)]
pub(super) struct Compiled<F> {
    pieces: Vec<Piece<F>>,
}

#[derive(Debug)]
enum Piece<F> {
    Text(String),
    Field { place: F, name: String },
}

/// How far a template got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rendering<'t> {
    Whole,
    /// The field of this name has no text, or an empty one.
    Lacks(&'t str),
}

impl<F> Compiled<F> {
    pub(super) fn new(template: &Template, mut place: impl FnMut(&[String]) -> F) -> Self {
        let pieces = template.parts().iter().map(|part| match part {
            Part::Literal(text) => Piece::Text(text.clone()),
            Part::Field(path) => Piece::Field {
                place: place(path),
                name: path.join("."),
            },
        });
        Self {
            pieces: pieces.collect(),
        }
    }

    /// Appends the text to `out`, of which nothing is to be used unless it is whole.
    pub(super) fn render<'t, 'a>(
        &'t self,
        out: &mut String,
        mut text: impl FnMut(&'t F, &'t str) -> Result<Option<Text<'a>>, Problem>,
    ) -> Result<Rendering<'t>, Problem> {
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => out.push_str(text),
                Piece::Field { place, name } => match text(place, name)? {
                    Some(text) if !text.as_str().is_empty() => out.push_str(text.as_str()),
                    _ => return Ok(Rendering::Lacks(name)),
                },
            }
        }
        Ok(Rendering::Whole)
    }

    /// What it asks for, with the names as they are written.
    pub(super) fn places(&self) -> impl Iterator<Item = (&F, &str)> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Text(_) => None,
            Piece::Field { place, name } => Some((place, name.as_str())),
        })
    }

    /// The text; None: some field has none. What it is asked for must not decide over an event.
    pub(super) fn found<'a>(&self, text: impl FnMut(&F, &str) -> Result<Option<Text<'a>>, Problem>) -> Option<String> {
        let mut out = String::new();
        let rendering = self.render(&mut out, text);
        (rendering == Ok(Rendering::Whole)).then_some(out)
    }

    /// The template as the file has it.
    pub(super) fn source(&self) -> String {
        let pieces = self.pieces.iter().map(|piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Field { name, .. } => format!("${{{name}}}"),
        });
        pieces.collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::processor::sample;

    fn compiled(text: &str) -> Compiled<Vec<String>> {
        Compiled::new(&sample::template(text), <[String]>::to_vec)
    }

    #[test]
    fn an_empty_or_missing_field_spoils_the_whole() {
        let template = compiled("a.${b}.${c.d}");
        let mut out = String::new();
        let lookup = |value: Option<&'static str>| {
            move |place: &Vec<String>, _: &str| {
                Ok(if place[0] == "b" {
                    Some(Text::Plain("B"))
                } else {
                    value.map(Text::Plain)
                })
            }
        };
        assert_eq!(template.render(&mut out, lookup(Some("D"))), Ok(Rendering::Whole));
        assert_eq!(out, "a.B.D");
        assert_eq!(template.render(&mut out, lookup(Some(""))), Ok(Rendering::Lacks("c.d")));
        assert_eq!(template.render(&mut out, lookup(None)), Ok(Rendering::Lacks("c.d")));
    }

    proptest! {
        #[test]
        fn every_placeholder_becomes_its_text(parts in prop::collection::vec(("[a-z .-]{0,4}", "[a-z]{1,4}", "\\PC{1,5}"), 0..6)) {
            let text: String = parts.iter().map(|(before, name, _)| format!("{before}${{{name}}}")).collect();
            let mut values = parts.iter().map(|(_, _, value)| value.clone());
            let mut out = String::new();
            let template = compiled(&text);
            let rendering = template.render(&mut out, |_, _| Ok(values.next().map(Text::Made)));
            prop_assert_eq!(rendering, Ok(Rendering::Whole));
            prop_assert_eq!(out, parts.iter().map(|(before, _, value)| format!("{before}{value}")).collect::<String>());
            prop_assert_eq!(template.source(), text);
        }
    }
}
