//! Paths to values inside an event: member names, `[0]` and `[*]`, a part of what JSONPath has. Syntax only; walking them is the
//! processors' work.

use std::fmt;

use thiserror::Error;

/// Following a path takes stack by the step.
const MAX_STEPS: usize = 64;

/// A path of at least one step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventPath {
    steps: Vec<Step>,
}

/// A step from a value to those inside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// An object's member. As the first step also a row's column.
    Member(String),
    /// An array's item, counted from 0.
    Item(usize),
    /// All of an array's items.
    EveryItem,
}

impl Step {
    /// Whether it leads to all that the other leads to.
    fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::EveryItem, Self::Item(_) | Self::EveryItem) => true,
            (own, other) => own == other,
        }
    }
}

/// Why a text is no path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum PathError {
    #[error("a path that is not empty")]
    Empty,
    #[error("a name behind each dot, and `..` is not supported")]
    EmptyName,
    #[error("a name in quotes, `['…']`, where it has blanks or any of . [ ] * ? @ ( ) , ' \"")]
    Character,
    #[error("`[0]`, `[*]` or `['name']` in brackets")]
    Brackets,
    #[error("a dot or `[` behind a step")]
    Joint,
    #[error("64 steps at most")]
    TooLong,
}

impl EventPath {
    /// Reads a path, with or without `$` for the event as a whole before it: `payload.items[*].price`, `$.a['b.c'][0]`.
    ///
    /// # Errors
    /// When the text is empty or has anything else in it.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        let mut steps = Vec::new();
        let mut rest = match text.strip_prefix('$') {
            Some(rest) if rest.is_empty() || rest.starts_with(['.', '[']) => rest,
            // The first name stands without its dot.
            _ => {
                let (step, rest) = name(text).map_err(|err| if text.is_empty() { PathError::Empty } else { err })?;
                steps.extend(step);
                rest
            }
        };
        while !rest.is_empty() {
            let (step, after) = match rest.strip_prefix('.') {
                Some(after) => match name(after)? {
                    (None, _) => return Err(PathError::EmptyName),
                    named => named,
                },
                None => bracketed(rest.strip_prefix('[').ok_or(PathError::Joint)?)?,
            };
            steps.extend(step);
            rest = after;
        }
        match steps.len() {
            0 => Err(PathError::Empty),
            1..=MAX_STEPS => Ok(Self { steps }),
            _ => Err(PathError::TooLong),
        }
    }

    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Whether each value that the other leads to is one that this leads to, or inside one.
    pub fn covers(&self, other: &Self) -> bool {
        let mut pairs = self.steps.iter().zip(&other.steps);
        self.steps.len() <= other.steps.len() && pairs.all(|(own, other)| own.covers(other))
    }
}

/// A name up to the next dot or bracket, and what is behind it. None: a bracket comes first.
fn name(text: &str) -> Result<(Option<Step>, &str), PathError> {
    if text.starts_with('[') {
        return Ok((None, text));
    }
    let (name, rest) = text.split_at(text.find(['.', '[']).unwrap_or(text.len()));
    if name.is_empty() {
        return Err(PathError::EmptyName);
    }
    let is_plain = |c: char| !c.is_whitespace() && !c.is_control() && !"]*?@(),'\"".contains(c);
    match name.chars().all(is_plain) {
        true => Ok((Some(Step::Member(name.to_owned())), rest)),
        false => Err(PathError::Character),
    }
}

/// A step in brackets, the first of which was taken, and what is behind it.
fn bracketed(text: &str) -> Result<(Option<Step>, &str), PathError> {
    let (step, rest) = match text.chars().next() {
        Some(quote @ ('\'' | '"')) => quoted(&text[1..], quote).ok_or(PathError::Brackets)?,
        Some('*') => (Step::EveryItem, &text[1..]),
        _ => {
            let (digits, rest) = text.split_at(text.bytes().take_while(u8::is_ascii_digit).count());
            let index = digits.parse().map_err(|_| PathError::Brackets)?;
            (Step::Item(index), rest)
        }
    };
    let rest = rest.strip_prefix(']').ok_or(PathError::Brackets)?;
    Ok((Some(step), rest))
}

/// A name behind its quote, up to the other one; `\` stands before a quote or another `\`.
fn quoted(text: &str, quote: char) -> Option<(Step, &str)> {
    let mut name = String::new();
    let mut characters = text.chars();
    loop {
        match characters.next()? {
            '\\' => name.push(characters.next().filter(|c| "\\'\"".contains(*c))?),
            end if end == quote => return Some((Step::Member(name), characters.as_str())),
            other => name.push(other),
        }
    }
}

/// In its plainest spelling, without `$`.
impl fmt::Display for EventPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, step) in self.steps.iter().enumerate() {
            match step {
                Step::Member(member) => {
                    let is_plain = !member.starts_with('$') && matches!(name(member), Ok((Some(_), "")));
                    match (is_plain, index) {
                        (true, 0) => f.write_str(member)?,
                        (true, _) => write!(f, ".{member}")?,
                        (false, _) => write!(f, "['{}']", member.replace('\\', "\\\\").replace('\'', "\\'"))?,
                    }
                }
                Step::Item(item) => write!(f, "[{item}]")?,
                Step::EveryItem => f.write_str("[*]")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn path(text: &str) -> EventPath {
        EventPath::parse(text).unwrap_or_else(|err| panic!("{text}: {err}"))
    }

    fn member(name: &str) -> Step {
        Step::Member(name.to_owned())
    }

    #[test]
    fn names_items_and_quoted_names_are_steps() {
        let steps = [member("payload"), member("items"), Step::EveryItem, member("price")];
        for text in [
            "payload.items[*].price",
            "$.payload.items[*].price",
            "$['payload'][\"items\"][*]['price']",
            "['payload'].items[*].price",
        ] {
            assert_eq!(path(text).steps(), steps, "{text}");
            assert_eq!(path(text).to_string(), "payload.items[*].price");
        }
        assert_eq!(
            path(r"$.a$b[0]['b.c']['it\'s \\ 5'][12]").steps(),
            [
                member("a$b"),
                Step::Item(0),
                member("b.c"),
                member(r"it's \ 5"),
                Step::Item(12)
            ]
        );
        assert_eq!(path("$[*]").steps(), [Step::EveryItem]);
        assert_eq!(path("[0].a").steps(), [Step::Item(0), member("a")]);
        assert_eq!(path("$a").steps(), [member("$a")]);
    }

    #[test]
    fn the_rest_of_jsonpath_is_refused() {
        for (text, expected) in [
            ("", PathError::Empty),
            ("$", PathError::Empty),
            ("$..price", PathError::EmptyName),
            ("a..b", PathError::EmptyName),
            ("a.", PathError::EmptyName),
            (".a", PathError::EmptyName),
            ("a.[0]", PathError::EmptyName),
            ("a.*", PathError::Character),
            ("a b", PathError::Character),
            ("a.b]", PathError::Character),
            ("a[-1]", PathError::Brackets),
            ("a[0:2]", PathError::Brackets),
            ("a[0,1]", PathError::Brackets),
            ("a[?(@.b)]", PathError::Brackets),
            ("a[b]", PathError::Brackets),
            ("a['b]", PathError::Brackets),
            (r"a['\x']", PathError::Brackets),
            ("a[0", PathError::Brackets),
            ("a[]", PathError::Brackets),
            ("a[99999999999999999999999]", PathError::Brackets),
            ("a[0]b", PathError::Joint),
            (&"a.".repeat(70), PathError::EmptyName),
            (&"[0]".repeat(65), PathError::TooLong),
        ] {
            assert_eq!(EventPath::parse(text), Err(expected), "{text}");
        }
    }

    #[test]
    fn a_path_covers_what_is_at_its_end_and_inside() {
        for (outer, inner) in [("a", "a"), ("a", "a.b[0]"), ("a[*]", "a[3].b"), ("a[*]", "a[*]")] {
            assert!(path(outer).covers(&path(inner)), "{outer} {inner}");
        }
        for (one, other) in [
            ("a.b", "a"),
            ("a", "b"),
            ("a[0]", "a[*]"),
            ("a[0]", "a[1]"),
            ("ab", "a"),
        ] {
            assert!(!path(one).covers(&path(other)), "{one} {other}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_path_that_reads_back_or_refused(text in "\\PC*|[a-c.\\[\\]*'\"\\\\0-9$ ]{0,12}") {
            if let Ok(path) = EventPath::parse(&text) {
                prop_assert_eq!(EventPath::parse(&path.to_string()), Ok(path));
            }
        }

        #[test]
        fn every_path_reads_back(
            steps in prop::collection::vec(
                prop_oneof![any::<String>().prop_map(Step::Member), any::<usize>().prop_map(Step::Item), Just(Step::EveryItem)],
                1..6
            )
        ) {
            let path = EventPath { steps };
            prop_assert_eq!(EventPath::parse(&path.to_string()), Ok(path));
        }
    }
}
