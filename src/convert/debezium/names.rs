//! Debezium's regular expressions for tables and message prefixes as the patterns of a pipeline file.
//!
//! Debezium matches them from end to end, in any case, against `schema.table` (MySQL: `database.table`) or a prefix. Most are
//! plain names, or names with `.*`; those come out as patterns. What cannot be written as patterns is told, not guessed.

use regex_syntax::hir::{Class, Dot, Hir, HirKind, Look};

use super::java;
use crate::config::PrefixPattern;

/// An expression that stands for more names than this is meant as one.
const MOST: usize = 64;
/// What stands for a dot of an expression that may be any character, until it is clear which it is.
const ANY: char = '\u{1}';
/// What stands for any run of characters.
const RUN: char = '\u{2}';

/// The patterns of `schema.table` that stand for an expression. None: there are none.
pub(super) fn tables(expression: &str) -> Option<Vec<String>> {
    let patterns: Option<Vec<_>> = texts(expression)?.iter().map(|text| table(text)).collect();
    Some(patterns?.concat())
}

/// The patterns of a message prefix that stand for an expression.
pub(super) fn prefixes(expression: &str) -> Option<Vec<String>> {
    let pattern = |text: String| text.replace(ANY, "?").replace(RUN, "*");
    Some(texts(expression)?.into_iter().map(pattern).collect())
}

/// The patterns of the tables whose topics, `<prefix>.<schema>.<table>`, an expression stands for.
pub(super) fn tables_of_topics(expression: &str, prefix: &str) -> Option<Vec<String>> {
    let table_of = |topic: &String| {
        // A dot of the prefix may be written as any character.
        let head: String = topic.chars().take(prefix.chars().count() + 1).collect();
        let is_prefix = head.replace(ANY, ".") == format!("{prefix}.").replace(ANY, ".");
        match (is_prefix, topic.strip_prefix(RUN)) {
            // A topic of the connector's own, such as that of messages.
            (true, _) if !topic[head.len()..].contains(['.', ANY, RUN]) => Some(Vec::new()),
            (true, _) => table(&topic[head.len()..]),
            (false, Some(_)) => table(topic),
            (false, None) => None,
        }
    };
    let patterns: Option<Vec<_>> = texts(expression)?.iter().map(table_of).collect();
    Some(patterns?.concat())
}

/// Parts of a list of expressions: commas part them, unless there is a `\` before.
pub(super) fn expressions(list: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut characters = list.chars().peekable();
    while let Some(character) = characters.next() {
        let last = parts.len() - 1;
        match (character, characters.peek()) {
            ('\\', Some(',')) => {
                parts[last].push(',');
                characters.next();
            }
            (',', _) => parts.push(String::new()),
            _ => parts[last].push(character),
        }
    }
    let parts = parts.iter().map(|part| part.trim().to_owned());
    parts.filter(|part| !part.is_empty()).collect()
}

/// Whether the whole of a text matches. None: the expression is none of the crate `regex`.
pub(super) fn matches(expression: &str, text: &str) -> Option<bool> {
    let regex = regex::Regex::new(&format!(r"\A(?:{})\z", java::translated(expression)?)).ok()?;
    Some(regex.is_match(text))
}

/// Whether the whole of a table's, schema's or prefix's name matches, as Debezium compares them: in any case.
pub(super) fn matches_name(expression: &str, name: &str) -> Option<bool> {
    matches(&format!("(?i:{expression})"), name)
}

/// Whether a pattern of tables takes everything that another one takes, as far as their texts tell.
pub(super) fn covers(pattern: &str, other: &str) -> bool {
    match (pattern.split_once('.'), other.split_once('.')) {
        (Some((schema, table)), Some((other_schema, other_table))) => {
            part_covers(schema, other_schema) && part_covers(table, other_table)
        }
        _ => pattern == other,
    }
}

/// A `*` of the other is one of the pattern's, and never its `?`.
fn part_covers(pattern: &str, other: &str) -> bool {
    let is_told = !(pattern.contains('?') && other.contains('*'));
    pattern == other || (is_told && PrefixPattern::parse(pattern).is_ok_and(|pattern| pattern.matches(other)))
}

/// The pattern of the tables that two patterns both take: none where there are none. `Err`: no pattern says it.
pub(super) fn intersection(one: &str, other: &str) -> Result<Option<String>, Unwritable> {
    let (Some((schema, table)), Some((other_schema, other_table))) = (one.split_once('.'), other.split_once('.'))
    else {
        return Err(Unwritable);
    };
    let (schema, table) = (
        part_intersection(schema, other_schema),
        part_intersection(table, other_table),
    );
    match (schema, table) {
        (Ok(None), _) | (_, Ok(None)) => Ok(None),
        (Ok(Some(schema)), Ok(Some(table))) => Ok(Some(format!("{schema}.{table}"))),
        _ => Err(Unwritable),
    }
}

/// No pattern stands for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unwritable;

/// The same of one side of the dot.
pub(super) fn part_intersection(one: &str, other: &str) -> Result<Option<String>, Unwritable> {
    const WILD: [char; 2] = ['*', '?'];
    if part_covers(one, other) {
        return Ok(Some(other.to_owned()));
    }
    if part_covers(other, one) {
        return Ok(Some(one.to_owned()));
    }
    let differ = |one: &str, other: &str| !one.starts_with(other) && !other.starts_with(one);
    let begin = |text: &str| text.split(WILD).next().unwrap_or_default().to_owned();
    let end = |text: &str| {
        text.rsplit(WILD)
            .next()
            .unwrap_or_default()
            .chars()
            .rev()
            .collect::<String>()
    };
    let is_literal = |text: &str| !text.contains(WILD);
    let are_apart =
        is_literal(one) || is_literal(other) || differ(&begin(one), &begin(other)) || differ(&end(one), &end(other));
    match are_apart {
        true => Ok(None),
        false => Err(Unwritable),
    }
}

fn texts(expression: &str) -> Option<Vec<String>> {
    // Any case is meant anyway.
    let expression = expression.trim_start_matches("(?i)");
    expand(&regex_syntax::parse(&java::translated(expression)?).ok()?)
}

/// Everything that an expression stands for, with the marks above.
fn expand(hir: &Hir) -> Option<Vec<String>> {
    if is_any(hir) {
        return Some(vec![ANY.to_string()]);
    }
    let texts = match hir.kind() {
        HirKind::Empty | HirKind::Look(Look::Start | Look::End) => vec![String::new()],
        HirKind::Literal(literal) => {
            let text = std::str::from_utf8(&literal.0).ok()?;
            if text.contains(['*', '%', '?', ANY, RUN]) {
                return None;
            }
            vec![text.to_owned()]
        }
        HirKind::Class(Class::Unicode(class)) => {
            let characters = class.iter().flat_map(|range| range.start()..=range.end());
            characters.take(MOST + 1).map(String::from).collect()
        }
        HirKind::Class(Class::Bytes(_)) => return None,
        HirKind::Repetition(repetition) => match (repetition.min, repetition.max, is_any(&repetition.sub)) {
            (0, None, true) => vec![RUN.to_string()],
            (1, None, true) => vec![format!("{ANY}{RUN}")],
            (0, Some(1), _) => {
                let mut texts = expand(&repetition.sub)?;
                texts.push(String::new());
                texts
            }
            _ => return None,
        },
        HirKind::Capture(capture) => expand(&capture.sub)?,
        HirKind::Alternation(branches) => {
            let branches: Option<Vec<_>> = branches.iter().map(expand).collect();
            branches?.concat()
        }
        HirKind::Concat(parts) => {
            let mut texts = vec![String::new()];
            for part in parts {
                let ends = expand(part)?;
                if texts.len() * ends.len() > MOST {
                    return None;
                }
                texts = texts
                    .iter()
                    .flat_map(|text| ends.iter().map(move |end| format!("{text}{end}")))
                    .collect();
            }
            texts
        }
        HirKind::Look(_) => return None,
    };
    (texts.len() <= MOST).then_some(texts)
}

fn is_any(hir: &Hir) -> bool {
    [Dot::AnyCharExceptLF, Dot::AnyChar]
        .into_iter()
        .any(|dot| *hir == Hir::dot(dot))
}

/// An expression's text as patterns of tables, which have one dot each.
fn table(text: &str) -> Option<Vec<String>> {
    // Where no dot is written as one, the first that may be any character is meant as it: `public.outbox`.
    let text = match text.contains('.') {
        true => text.to_owned(),
        false => text.replacen(ANY, ".", 1),
    };
    let text = text.replace(ANY, "?");
    match text.matches('.').count() {
        1 if !text.starts_with('.') && !text.ends_with('.') => Some(vec![text.replace(RUN, "*")]),
        0 => {
            // The dot is within one of the runs.
            let runs = text.match_indices(RUN);
            let with_dot = |at: usize| format!("{}*.*{}", &text[..at], &text[at + RUN.len_utf8()..]).replace(RUN, "*");
            let patterns: Vec<String> = runs.map(|(at, _)| with_dot(at)).collect();
            (!patterns.is_empty()).then_some(patterns)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_runs_are_patterns() {
        let cases: [(&str, &[&str]); 13] = [
            ("public.outbox", &["public.outbox"]),
            (r"public\.outbox", &["public.outbox"]),
            (r"^public\.outbox$", &["public.outbox"]),
            (r"\Qpublic.outbox\E", &["public.outbox"]),
            (r"public\..*", &["public.*"]),
            ("public.*", &["public*.*"]),
            (r"public[.]outbox_.*", &["public.outbox_*"]),
            (".*outbox", &["*.*outbox"]),
            (r".*\.outbox", &["*.outbox"]),
            (".*x.*", &["*.*x*", "*x*.*"]),
            (r"(shop|bank)\.outbox", &["shop.outbox", "bank.outbox"]),
            (r"shop\.outbox(_v2)?", &["shop.outbox_v2", "shop.outbox"]),
            (r"shop\.outbox_.", &["shop.outbox_?"]),
        ];
        for (expression, expected) in cases {
            assert_eq!(tables(expression).unwrap(), expected, "{expression}");
        }
    }

    #[test]
    fn what_cannot_be_a_pattern_is_none() {
        for expression in ["outbox", r"public\.(?!x).*", r"a\.b\.c", r"\w+\.outbox", "(", r"a\.*b"] {
            assert_eq!(tables(expression), None, "{expression}");
        }
    }

    #[test]
    fn prefixes_have_no_dot_of_their_own() {
        assert_eq!(prefixes("outbox").unwrap(), ["outbox"]);
        assert_eq!(prefixes("outbox.*").unwrap(), ["outbox*"]);
        assert_eq!(prefixes("my.outbox").unwrap(), ["my?outbox"]);
        assert_eq!(prefixes(".*").unwrap(), ["*"]);
    }

    #[test]
    fn topics_give_tables_behind_their_prefix() {
        assert_eq!(
            tables_of_topics(r"my\.srv\.public\.outbox", "my.srv").unwrap(),
            ["public.outbox"]
        );
        assert_eq!(tables_of_topics("srv.public.outbox", "srv").unwrap(), ["public.outbox"]);
        assert_eq!(
            tables_of_topics("(.*)outbox(.*)", "srv").unwrap(),
            ["*.*outbox*", "*outbox*.*"]
        );
        assert_eq!(tables_of_topics(".*outbox", "srv").unwrap(), ["*.*outbox"]);
        assert_eq!(tables_of_topics(r".*\.outbox", "srv").unwrap(), ["*.outbox"]);
        assert_eq!(tables_of_topics("other.public.outbox", "srv"), None);
        assert_eq!(tables_of_topics(r"srv\.message", "srv").unwrap(), Vec::<String>::new());
    }

    #[test]
    fn names_are_matched_in_any_case() {
        assert_eq!(matches_name("Shop", "shop"), Some(true));
        assert_eq!(matches_name("(?i)PUBLIC.OutBox", "public.outbox"), Some(true));
        assert_eq!(matches_name("shop|bank", "bank2"), Some(false));
    }

    #[test]
    fn patterns_cover_and_cut_each_other() {
        assert!(covers("*.*", "public.order_*"));
        assert!(covers("public.o*", "public.outbox"));
        assert!(!covers("public.?", "public.*"));
        assert!(!covers("public.outbox", "public.*"));
        let cut = |one, other| intersection(one, other).map(|pattern| pattern.unwrap_or_default());
        assert_eq!(cut("*.outbox", "shop.*"), Ok("shop.outbox".to_owned()));
        assert_eq!(cut("*.*outbox*", "public*.*"), Ok("public*.*outbox*".to_owned()));
        assert_eq!(cut("public.outbox", "public.outbox"), Ok("public.outbox".to_owned()));
        assert_eq!(cut("public.outbox", "public.order_*"), Ok(String::new()));
        assert_eq!(cut("public.a*", "public.b*"), Ok(String::new()));
        assert_eq!(cut("a*.x", "*b.y"), Ok(String::new()));
        assert_eq!(cut("public.a*", "public.*b"), Err(Unwritable));
    }

    #[test]
    fn lists_are_parted_at_commas() {
        assert_eq!(
            expressions(r" public.a , public\.b,, c\,d"),
            ["public.a", r"public\.b", "c,d"]
        );
    }

    #[test]
    fn a_topic_matches_from_end_to_end() {
        assert_eq!(matches("(.*)outbox(.*)", "srv.public.outbox"), Some(true));
        assert_eq!(matches("outbox", "srv.public.outbox"), Some(false));
        assert_eq!(matches(r"\Qsrv.public\E\..*", "srv.public.outbox"), Some(true));
        assert_eq!(matches("(?=a)", "a"), None);
    }
}
