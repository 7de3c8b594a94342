//! Patterns that choose message prefixes and tables: `*` and `%` stand for any run, `?` for one character, all else for itself.
//!
//! Matching takes no memory and at most pattern times text steps.

use std::fmt;

use thiserror::Error;

/// Why a text is no pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum PatternError {
    #[error("a pattern that is not empty")]
    Empty,
    #[error("a table, or schema.table: one dot at most, with something on both sides")]
    Dots,
}

/// A pattern of message prefixes, which are matched whole: dots mean nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrefixPattern {
    glob: Glob,
}

impl PrefixPattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// When the text is empty.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        Ok(PrefixPattern {
            glob: Glob::parse(text)?,
        })
    }

    /// Whether a message's whole prefix matches.
    pub fn matches(&self, prefix: &str) -> bool {
        self.glob.matches(prefix)
    }

    /// Whether it matches exactly one text: itself.
    pub fn is_literal(&self) -> bool {
        self.glob.literal
    }

    /// The pattern as it was written.
    pub fn as_str(&self) -> &str {
        &self.glob.text
    }
}

/// A pattern of tables: `schema.table`, or `table` in any schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamePattern {
    text: String,
    schema: Option<Glob>,
    table: Glob,
}

impl NamePattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// When the text or a side of its dot is empty, or when it has more dots than one.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        if text.is_empty() {
            return Err(PatternError::Empty);
        }
        let (schema, table) = match text.split_once('.') {
            Some((schema, table)) => (Some(Glob::parse(schema).map_err(|_| PatternError::Dots)?), table),
            None => (None, text),
        };
        if table.contains('.') {
            return Err(PatternError::Dots);
        }
        Ok(NamePattern {
            text: text.to_owned(),
            schema,
            table: Glob::parse(table).map_err(|_| PatternError::Dots)?,
        })
    }

    /// Whether a table matches, in this schema.
    pub fn matches(&self, schema: &str, table: &str) -> bool {
        self.table.matches(table) && self.is_in(schema)
    }

    /// Whether it names tables of this schema.
    pub fn is_in(&self, schema: &str) -> bool {
        self.schema.as_ref().is_none_or(|pattern| pattern.matches(schema))
    }

    /// Whether it names one table, be it in any schema.
    pub fn names_one(&self) -> bool {
        self.table.literal && self.schema.as_ref().is_none_or(|pattern| pattern.literal)
    }

    /// The pattern as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

/// A pattern of outboxes of either kind: a message prefix (whole), a table in any schema, or schema and table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxPattern {
    prefix: PrefixPattern,
    /// None where the text has too many dots to be a table.
    table: Option<NamePattern>,
}

impl OutboxPattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// When the text is empty.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        Ok(OutboxPattern {
            prefix: PrefixPattern::parse(text)?,
            table: NamePattern::parse(text).ok(),
        })
    }

    /// Whether a message's whole prefix matches.
    pub fn matches_prefix(&self, prefix: &str) -> bool {
        self.prefix.matches(prefix)
    }

    /// Whether an outbox table matches, in this schema.
    pub fn matches_table(&self, schema: &str, table: &str) -> bool {
        self.table
            .as_ref()
            .is_some_and(|pattern| pattern.matches(schema, table))
    }

    /// Whether it has no `*`, `%` or `?`.
    pub fn is_literal(&self) -> bool {
        self.prefix.is_literal()
    }

    /// The pattern as it was written.
    pub fn as_str(&self) -> &str {
        self.prefix.as_str()
    }
}

impl fmt::Display for PrefixPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for OutboxPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Glob {
    text: String,
    literal: bool,
}

impl Glob {
    fn parse(text: &str) -> Result<Self, PatternError> {
        if text.is_empty() {
            return Err(PatternError::Empty);
        }
        Ok(Glob {
            text: text.to_owned(),
            literal: !text.contains(['*', '%', '?']),
        })
    }

    /// Only the last run is ever widened: what an earlier run could take instead, the last one can take as well.
    fn matches(&self, text: &str) -> bool {
        if self.literal {
            return self.text == text;
        }
        let (mut pattern, mut rest) = (self.text.chars(), text.chars());
        let mut last_run: Option<(std::str::Chars<'_>, std::str::Chars<'_>)> = None;
        loop {
            let before = rest.clone();
            match (pattern.next(), rest.next()) {
                (Some('*' | '%'), _) => {
                    rest = before;
                    last_run = Some((pattern.clone(), rest.clone()));
                    continue;
                }
                (Some('?'), Some(_)) => continue,
                (Some(wanted), Some(found)) if wanted == found => continue,
                (None, None) => return true,
                _ => {}
            }
            let Some((after_run, taken)) = last_run.as_mut() else {
                return false;
            };
            if taken.next().is_none() {
                return false;
            }
            pattern = after_run.clone();
            rest = taken.clone();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn naive(pattern: &[char], text: &[char]) -> bool {
        match (pattern, text) {
            ([], []) => true,
            (['*' | '%', rest @ ..], _) => (0..=text.len()).any(|taken| naive(rest, &text[taken..])),
            (['?', rest @ ..], [_, after @ ..]) => naive(rest, after),
            ([wanted, rest @ ..], [found, after @ ..]) => wanted == found && naive(rest, after),
            _ => false,
        }
    }

    #[test]
    fn a_prefix_is_matched_whole_with_its_dots() {
        let pattern = PrefixPattern::parse("outbox.orders").unwrap();
        assert!(pattern.matches("outbox.orders") && pattern.is_literal());
        for other in ["orders", "outbox", "outbox.orders2", "Outbox.orders", "outboxxorders"] {
            assert!(!pattern.matches(other), "{other}");
        }
        let pattern = PrefixPattern::parse("outbox_%").unwrap();
        assert!(pattern.matches("outbox_a.b") && pattern.matches("outbox_") && !pattern.matches("outboxa"));
        assert!(!pattern.is_literal());
        assert!(PrefixPattern::parse("*").unwrap().matches(""));
        assert_eq!(PrefixPattern::parse(""), Err(PatternError::Empty));
    }

    #[test]
    fn a_name_without_a_dot_is_a_table_in_any_schema() {
        let pattern = NamePattern::parse("orders").unwrap();
        assert!(pattern.matches("public", "orders") && pattern.matches("shop", "orders"));
        assert!(!pattern.matches("orders", "lines") && pattern.names_one());
        let pattern = NamePattern::parse("shop.*_outbox").unwrap();
        assert!(pattern.matches("shop", "orders_outbox"));
        assert!(!pattern.matches("shop2", "orders_outbox") && !pattern.matches("Shop", "orders_outbox"));
        assert!(NamePattern::parse("public.orders").unwrap().names_one());
        assert!(NamePattern::parse("*").unwrap().matches("a", "b"));
        for text in [".a", "a.", ".", "a.b.c", "a..b"] {
            assert_eq!(NamePattern::parse(text), Err(PatternError::Dots), "{text}");
        }
        assert_eq!(NamePattern::parse(""), Err(PatternError::Empty));
    }

    #[test]
    fn a_table_pattern_does_not_reach_over_its_dot() {
        let pattern = NamePattern::parse("a*.c").unwrap();
        assert!(pattern.matches("ab", "c") && !pattern.matches("a", "b.c"));
    }

    #[test]
    fn an_outbox_pattern_takes_a_prefix_or_a_table() {
        let pattern = OutboxPattern::parse("shop.orders_outbox").unwrap();
        assert!(pattern.matches_prefix("shop.orders_outbox") && pattern.matches_table("shop", "orders_outbox"));
        assert!(!pattern.matches_table("public", "orders_outbox") && !pattern.matches_prefix("orders_outbox"));
        let pattern = OutboxPattern::parse("orders_outbox").unwrap();
        assert!(pattern.matches_prefix("orders_outbox") && pattern.matches_table("any", "orders_outbox"));
        let pattern = OutboxPattern::parse("a.b.c").unwrap();
        assert!(pattern.matches_prefix("a.b.c") && !pattern.matches_table("a", "b.c"));
    }

    #[test]
    fn many_runs_do_not_explode() {
        let pattern = PrefixPattern::parse(&"*a".repeat(200)).unwrap();
        assert!(!pattern.matches(&"a".repeat(20_000).replace("aa", "ab")[..398]));
        assert!(
            !PrefixPattern::parse(&format!("{}b", "*a".repeat(200)))
                .unwrap()
                .matches(&"a".repeat(20_000))
        );
    }

    proptest! {
        #[test]
        fn matching_agrees_with_the_naive_way(pattern in "[ab*%?é]{1,8}", text in "[abé]{0,8}") {
            let (p, t): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
            prop_assert_eq!(PrefixPattern::parse(&pattern).unwrap().matches(&text), naive(&p, &t));
        }

        #[test]
        fn any_text_is_a_pattern_or_refused(text in "\\PC*", name in "\\PC*") {
            if let Ok(pattern) = OutboxPattern::parse(&text) {
                pattern.matches_prefix(&name);
                pattern.matches_table(&name, &name);
                prop_assert!(pattern.matches_prefix(&text));
            }
        }
    }
}
