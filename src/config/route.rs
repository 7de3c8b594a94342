//! A topic made from one field by a regular expression. Syntax and rewriting only; which field an event has is the processors'
//! work.

use regex::Regex;
use thiserror::Error;

use super::template::{Part, Template};

/// `route` of an outbox processor: the alternative to a `topic`.
#[derive(Debug, Clone)]
pub struct Route {
    /// The field whose text is looked at.
    pub by: String,
    rewrite: Rewrite,
}

impl Route {
    pub fn new(by: String, rewrite: Rewrite) -> Self {
        Self { by, rewrite }
    }

    pub fn rewrite(&self) -> &Rewrite {
        &self.rewrite
    }
}

/// A regular expression that must match a text from end to end, and what stands in its place then.
#[derive(Debug, Clone)]
pub struct Rewrite {
    regex: Regex,
    pieces: Vec<Piece>,
}

#[derive(Debug, Clone)]
enum Piece {
    Text(String),
    Group(usize),
}

/// Why a regular expression and a replacement cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RewriteError {
    /// In the engine's words.
    #[error("no regular expression that can be used: {0}")]
    Regex(String),
    #[error("`{name}` is no group of the regular expression: it has {known}")]
    UnknownGroup { name: String, known: String },
}

impl Rewrite {
    /// # Errors
    /// When `regex` is none of the crate `regex`, which has neither look-around nor back references, or `replacement` asks for a
    /// group that it does not have. Groups go by name or, counted from 1, by number; 0 is the whole.
    pub fn new(regex: &str, replacement: &Template) -> Result<Self, RewriteError> {
        let regex = whole(regex)?;
        let piece = |part: &Part| match part {
            Part::Literal(text) => Ok(Piece::Text(text.clone())),
            Part::Field(path) => group(&regex, &path.join(".")).map(Piece::Group),
        };
        let pieces = replacement.parts().iter().map(piece).collect::<Result<_, _>>()?;
        Ok(Self { regex, pieces })
    }

    /// Appends what stands in place of `text`. False: it does not match as a whole, and nothing is appended. A group that took
    /// no part in the match is empty.
    pub fn append(&self, text: &str, out: &mut String) -> bool {
        let Some(groups) = self.regex.captures(text) else {
            return false;
        };
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => out.push_str(text),
                Piece::Group(at) => out.push_str(groups.get(*at).map_or("", |group| group.as_str())),
            }
        }
        true
    }
}

/// An expression that matches a text from end to end.
pub(super) fn whole(regex: &str) -> Result<Regex, RewriteError> {
    // By itself first: within the frame `a)(b` would do.
    anywhere(regex)?;
    anywhere(&format!(r"\A(?:{regex})\z"))
}

/// An expression that matches somewhere in a text.
pub(super) fn anywhere(regex: &str) -> Result<Regex, RewriteError> {
    Regex::new(regex).map_err(|error| RewriteError::Regex(last_line(&error.to_string())))
}

/// The engine draws the place of a mistake in lines of its own, and says in the last what it is.
fn last_line(text: &str) -> String {
    let line = text.lines().last().unwrap_or_default();
    line.trim_start_matches("error: ").to_owned()
}

fn group(regex: &Regex, name: &str) -> Result<usize, RewriteError> {
    let by_number = name.parse().ok().filter(|at| *at < regex.captures_len());
    let by_name = || regex.capture_names().position(|known| known == Some(name));
    by_number.or_else(by_name).ok_or_else(|| RewriteError::UnknownGroup {
        name: name.to_owned(),
        known: known_groups(regex),
    })
}

fn known_groups(regex: &Regex) -> String {
    let groups = regex.capture_names().enumerate().skip(1);
    let groups: Vec<String> = groups
        .map(|(at, name)| format!("`{}`", name.map_or_else(|| at.to_string(), str::to_owned)))
        .collect();
    match groups.is_empty() {
        true => "none".to_owned(),
        false => groups.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewrite(regex: &str, replacement: &str) -> Result<Rewrite, RewriteError> {
        Rewrite::new(regex, &Template::parse(replacement).unwrap())
    }

    fn rewritten(regex: &str, replacement: &str, text: &str) -> Option<String> {
        let mut out = String::new();
        let matched = rewrite(regex, replacement).unwrap().append(text, &mut out);
        assert!(matched || out.is_empty());
        matched.then_some(out)
    }

    #[test]
    fn the_whole_text_must_match() {
        assert_eq!(rewritten("order", "o", "order").as_deref(), Some("o"));
        for text in ["orders", "an order", "order\n"] {
            assert_eq!(rewritten("order", "o", text), None, "{text:?}");
        }
        assert_eq!(
            rewritten("a|ab", "${0}", "ab").as_deref(),
            Some("ab"),
            "the longer branch"
        );
        assert_eq!(rewritten("(?<all>.*)", "event.${all}", "").as_deref(), Some("event."));
    }

    #[test]
    fn groups_go_by_name_and_by_number() {
        let regex = r"(.*)\.(?P<kind>.*)";
        assert_eq!(
            rewritten(regex, "${kind}.from.${1}", "a.b.c").as_deref(),
            Some("c.from.a.b")
        );
        assert_eq!(rewritten("(a)|(b)", "<${1}${2}>", "b").as_deref(), Some("<b>"));
        assert_eq!(rewritten("a", "$$1", "a").as_deref(), Some("$1"));
    }

    #[test]
    fn what_cannot_be_used_is_refused() {
        let unknown = |name: &str, known: &str| {
            Some(RewriteError::UnknownGroup {
                name: name.to_owned(),
                known: known.to_owned(),
            })
        };
        assert_eq!(rewrite("(a)(?<b>b)", "${2}${c}").err(), unknown("c", "`1`, `b`"));
        assert_eq!(rewrite("a", "${1}").err(), unknown("1", "none"));
        assert_eq!(rewrite("(a)", "${a.b}").err(), unknown("a.b", "`1`"));
        for regex in ["a)(b", "(?=a)a", r"(a)\1", "("] {
            let error = rewrite(regex, "x").expect_err(regex);
            assert!(matches!(error, RewriteError::Regex(_)), "{regex}: {error}");
            assert_eq!(error.to_string().lines().count(), 1, "{error}");
        }
    }
}
