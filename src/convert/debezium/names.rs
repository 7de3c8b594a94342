//! Debezium's regular expressions for tables and message prefixes as the patterns of a pipeline file.
//!
//! Debezium matches them from end to end, in any case, against `schema.table` (MySQL: `database.table`) or a prefix. Most are
//! plain names, or names with `.*`; those come out as patterns. What cannot be written as patterns is told, not guessed.

use regex_syntax::hir::{Class, Dot, Hir, HirKind, Look};

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

/// Java's expressions in the syntax of the crate `regex`: the same but for quotations.
pub(super) fn translated(expression: &str) -> String {
    let mut out = String::with_capacity(expression.len());
    let mut rest = expression;
    while let Some((before, quotation)) = rest.split_once(r"\Q") {
        out.push_str(before);
        let (quoted, after) = quotation.split_once(r"\E").unwrap_or((quotation, ""));
        out.push_str(&regex::escape(quoted));
        rest = after;
    }
    out.push_str(rest);
    out
}

/// Whether the whole of a text matches. None: the expression is none of the crate `regex`.
pub(super) fn matches(expression: &str, text: &str) -> Option<bool> {
    let regex = regex::Regex::new(&format!(r"\A(?:{})\z", translated(expression))).ok()?;
    Some(regex.is_match(text))
}

fn texts(expression: &str) -> Option<Vec<String>> {
    // Any case is meant anyway.
    let expression = expression.trim_start_matches("(?i)");
    expand(&regex_syntax::parse(&translated(expression)).ok()?)
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
