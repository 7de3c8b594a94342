//! Java's regular expressions in the syntax of the crate `regex`: the same but for quotations (`\Q…\E`), which it does not
//! have, and for possessive quantifiers (`a*+`), which it reads as a repetition of the repetition.

/// The expression in that syntax, which may still refuse it. None: it has a possessive quantifier.
pub(super) fn translated(expression: &str) -> Option<String> {
    let mut out = String::with_capacity(expression.len());
    let mut rest = expression;
    let mut is_behind_quantifier = false;
    // Brackets that are open: in a class a quantifier's sign is a character like others.
    let mut depth = 0_usize;
    while let Some(first) = rest.chars().next() {
        let piece = match first {
            '\\' => escape(rest),
            '[' => class_start(rest),
            _ => &rest[..first.len_utf8()],
        };
        rest = &rest[piece.len()..];
        match quoted(piece) {
            // Nothing is quoted by `\Q\E`, so that a quantifier behind it is of what stands before.
            Some("") => continue,
            Some(text) => out.push_str(&regex::escape(text)),
            None => out.push_str(piece),
        }
        match first {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            '+' if depth == 0 && is_behind_quantifier => return None,
            _ => {}
        }
        is_behind_quantifier = depth == 0 && matches!(first, '*' | '+' | '?' | '}');
    }
    Some(out)
}

/// A backslash with what belongs to it: a quotation, a class by its name, a character by its number, or one character.
fn escape(text: &str) -> &str {
    let end_of = |end: &str| text.find(end).map_or(text.len(), |at| at + end.len());
    let mut characters = text.chars().skip(1);
    let length = match (characters.next(), characters.next()) {
        (Some('Q'), _) => end_of(r"\E"),
        (Some('p' | 'P' | 'x' | 'N' | 'k'), Some('{')) => end_of("}"),
        (Some(escaped), _) => 1 + escaped.len_utf8(),
        (None, _) => 1,
    };
    &text[..length]
}

/// A bracket with a bracket that closes none: `[]a]`, `[^]a]`. One within a class, such as `&&[`, has the same rule.
fn class_start(text: &str) -> &str {
    let start = ["[^]", "[]"].into_iter().find(|start| text.starts_with(start));
    start.unwrap_or("[")
}

fn quoted(piece: &str) -> Option<&str> {
    let quotation = piece.strip_prefix(r"\Q")?;
    Some(quotation.strip_suffix(r"\E").unwrap_or(quotation))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotations_are_escaped_and_the_rest_stays() {
        let cases = [
            (r"\Qsrv.public\E\..*", r"srv\.public\..*"),
            (r"a\Qb+", r"ab\+"),
            (r"\Q*+\E", r"\*\+"),
            (r"a\Q\E+", "a+"),
            (r"[\Q]\E]", r"[\]]"),
            ("(?<routedByValue>.*)", "(?<routedByValue>.*)"),
            ("é+?", "é+?"),
            (r"\", r"\"),
            ("", ""),
        ];
        for (java, ours) in cases {
            assert_eq!(translated(java).as_deref(), Some(ours), "{java}");
        }
    }

    #[test]
    fn a_possessive_quantifier_is_none_of_the_crate_s() {
        for java in [
            ".*+",
            "a++x",
            "a?+",
            "(ab){1,2}+",
            "[*]*+",
            r"\p{Alpha}*+",
            r"\*++",
            "a*\\Q\\E+",
            "[a&&[b]]?+",
        ] {
            assert_eq!(translated(java), None, "{java}");
        }
        for java in [
            "[*+]",
            "[+*+]+",
            r"\*+",
            r"\p{Alpha}+",
            r"\x{41}+",
            "[^]*+]",
            "[a[*+]*+]",
            r"\\+",
            r"\Q*+\E+",
            "a+?",
            "(+)",
        ] {
            assert!(translated(java).is_some(), "{java}");
        }
    }
}
