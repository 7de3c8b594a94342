//! JSON read without being taken apart: values stay slices of the text that they stand in.
//!
//! Nothing here recurses, so the depth of a document costs memory by the byte and no stack.

mod compact;
mod double;
mod edit;
mod expand;
mod scan;

use std::borrow::Cow;

use super::error::TextFault;
use scan::{Scanner, Written};

pub(super) use compact::compact;
pub(super) use edit::{NotJson, Place, Verdict, edited};
pub(super) use expand::{expanded, write_number};

/// A text that is not one JSON object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NotAnObject;

/// A member's name, as it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Name<'a>(Written<'a>);

impl<'a> Name<'a> {
    /// The name as text. None: no text can have it (half a surrogate pair).
    pub(super) fn text(self) -> Option<Cow<'a, str>> {
        let Self(written) = self;
        match written.has_escapes {
            false => Some(Cow::Borrowed(written.unquoted)),
            true => unescaped(written.quoted).ok(),
        }
    }

    /// Whether it reads as `name`. One that no text can have (half a surrogate pair) is no name that is asked for.
    pub(super) fn is(self, name: &str) -> bool {
        let Self(written) = self;
        match written.has_escapes {
            false => written.unquoted == name,
            true => unescaped(written.quoted).is_ok_and(|text| text == name),
        }
    }
}

/// Calls `member` with each member's name and value (as written, without the white space around it), in order; duplicates
/// too. On an error some may have been given already.
pub(super) fn for_each_member<'a>(text: &'a str, member: impl FnMut(Name<'a>, &'a str)) -> Result<(), NotAnObject> {
    members(text, member).ok_or(NotAnObject)
}

fn members<'a>(text: &'a str, mut member: impl FnMut(Name<'a>, &'a str)) -> Option<()> {
    let mut scanner = Scanner::new(text);
    scanner.skip_space();
    if !scanner.takes(b'{') {
        return None;
    }
    scanner.skip_space();
    let mut ends = scanner.takes(b'}');
    while !ends {
        let name = Name(scanner.name()?);
        member(name, scanner.value()?);
        scanner.skip_space();
        ends = scanner.takes(b'}');
        if !ends {
            if !scanner.takes(b',') {
                return None;
            }
            scanner.skip_space();
        }
    }
    scanner.skip_space();
    scanner.is_at_end().then_some(())
}

/// The value of an object's member. Of duplicates the last counts, as in PostgreSQL's jsonb.
pub(super) fn member<'a>(object: &'a str, name: &str) -> Option<&'a str> {
    let mut found = None;
    for_each_member(object, |written, value| {
        if written.is(name) {
            found = Some(value);
        }
    })
    .ok()?;
    found
}

/// Whether a text is one JSON value, of any depth.
pub(crate) fn is_value(text: &str) -> bool {
    let mut scanner = Scanner::new(trim(text));
    scanner.value().is_some() && scanner.is_at_end()
}

/// The text that a JSON string, in its quotes, stands for.
pub(super) fn unescaped(quoted: &str) -> Result<Cow<'_, str>, TextFault> {
    let written = unquoted(quoted);
    if memchr::memchr(b'\\', written.as_bytes()).is_none() {
        return Ok(Cow::Borrowed(written));
    }
    // Of a string that has been split off already, nothing else can fail.
    serde_json::from_str(quoted)
        .map(Cow::Owned)
        .map_err(|_| TextFault::LoneSurrogate)
}

fn unquoted(quoted: &str) -> &str {
    quoted
        .strip_prefix('"')
        .and_then(|text| text.strip_suffix('"'))
        .unwrap_or(quoted)
}

/// Without JSON's white space around it.
pub(super) fn trim(text: &str) -> &str {
    text.trim_matches([' ', '\t', '\n', '\r'])
}

/// Whether a JSON value is a number or a boolean.
pub(super) fn is_plain(value: &[u8]) -> bool {
    matches!(value, b"true" | b"false") || is_number(value)
}

/// Whether a text is a number in JSON's grammar, which knows no `+1`, `.5`, `01` or `NaN`.
pub(super) fn is_number(text: &[u8]) -> bool {
    let text = text.strip_prefix(b"-").unwrap_or(text);
    let (whole, rest) = digits(text);
    if matches!(whole, [] | [b'0', _, ..]) {
        return false;
    }
    let rest = match rest.strip_prefix(b".") {
        None => rest,
        Some(rest) => match digits(rest) {
            ([], _) => return false,
            (_, rest) => rest,
        },
    };
    let Some(exponent) = rest.strip_prefix(b"e").or_else(|| rest.strip_prefix(b"E")) else {
        return rest.is_empty();
    };
    let exponent = exponent
        .strip_prefix(b"+")
        .or_else(|| exponent.strip_prefix(b"-"))
        .unwrap_or(exponent);
    matches!(digits(exponent), ([_, ..], []))
}

fn digits(text: &[u8]) -> (&[u8], &[u8]) {
    text.split_at(text.iter().take_while(|byte| byte.is_ascii_digit()).count())
}

/// Writes a text as a JSON string: only what JSON demands is escaped.
pub(super) fn write_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    write_escaped(out, text, stands_for_itself);
    out.push(b'"');
}

/// The same as Jackson writes it, and with it Kafka Connect's `JsonConverter`: a character beyond the first 65536 is a
/// pair of escapes.
pub(super) fn write_connect_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    write_escaped(out, text, stands_for_itself_in_connect);
    out.push(b'"');
}

/// Writes a JSON string, in its quotes, as [`write_connect_string`] would write the text that it stands for. Half a
/// surrogate pair, which no text can have, stays an escape.
pub(super) fn rewrite_connect_string(out: &mut Vec<u8>, quoted: &str) {
    out.push(b'"');
    let mut rest = unquoted(quoted);
    while let Some((before, escape)) = rest.split_once('\\') {
        write_escaped(out, before, stands_for_itself_in_connect);
        let mut characters = escape.chars();
        match characters.next() {
            Some('u') => {
                let digits = escape.get(1..5).unwrap_or_default();
                let unit = u16::from_str_radix(digits, 16).unwrap_or_default();
                match char::from_u32(u32::from(unit)) {
                    Some(character) => {
                        write_escaped(out, character.encode_utf8(&mut [0; 4]), stands_for_itself_in_connect);
                    }
                    None => write_unit(out, unit),
                }
                rest = escape.get(5..).unwrap_or_default();
                continue;
            }
            Some('/') => out.push(b'/'),
            // Of these there is one form only.
            Some(other) => {
                out.push(b'\\');
                out.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes());
            }
            None => {}
        }
        rest = characters.as_str();
    }
    write_escaped(out, rest, stands_for_itself_in_connect);
    out.push(b'"');
}

fn stands_for_itself(byte: u8) -> bool {
    byte >= 0x20 && byte != b'"' && byte != b'\\'
}

/// Four bytes of UTF-8 begin with one from 0xF0 on.
fn stands_for_itself_in_connect(byte: u8) -> bool {
    stands_for_itself(byte) && byte < 0xF0
}

/// Writes a text, with escapes in place of the characters whose first byte does not stand for itself.
fn write_escaped(out: &mut Vec<u8>, text: &str, stands_for_itself: impl Fn(u8) -> bool) {
    let mut rest = text;
    loop {
        let end = rest.bytes().position(|byte| !stands_for_itself(byte));
        let (plain, after) = rest.split_at(end.unwrap_or(rest.len()));
        out.extend_from_slice(plain.as_bytes());
        let mut characters = after.chars();
        let Some(character) = characters.next() else { return };
        write_escape(out, character);
        rest = characters.as_str();
    }
}

fn write_escape(out: &mut Vec<u8>, character: char) {
    let short = match character {
        '"' => b'"',
        '\\' => b'\\',
        '\u{8}' => b'b',
        '\u{c}' => b'f',
        '\n' => b'n',
        '\r' => b'r',
        '\t' => b't',
        other => {
            for unit in other.encode_utf16(&mut [0; 2]) {
                write_unit(out, *unit);
            }
            return;
        }
    };
    out.extend_from_slice(&[b'\\', short]);
}

fn write_unit(out: &mut Vec<u8>, unit: u16) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    out.extend_from_slice(b"\\u");
    out.extend([12, 8, 4, 0].map(|shift| DIGITS[usize::from(unit >> shift & 0xF)]));
}

/// Writes bytes as lower-case hexadecimal digits.
pub(super) fn write_hex(out: &mut Vec<u8>, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    out.extend(
        bytes
            .iter()
            .flat_map(|byte| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 0xF)]]),
    );
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn members(text: &str) -> Option<Vec<(&str, &str)>> {
        let mut members = Vec::new();
        for_each_member(text, |Name(name), value| members.push((name.quoted, value))).ok()?;
        Some(members)
    }

    #[test]
    fn members_are_exact_slices() {
        let text = " \n{ \"a\" :  {\"x\": 1,\"x\": 2 } ,\t\"b\":[ ] , \"a\":1.50e+03}\r\n";
        let expected = vec![
            ("\"a\"", "{\"x\": 1,\"x\": 2 }"),
            ("\"b\"", "[ ]"),
            ("\"a\"", "1.50e+03"),
        ];
        assert_eq!(members(text), Some(expected));
    }

    #[test]
    fn what_is_not_one_object_has_no_members() {
        for text in [
            "",
            " ",
            "[]",
            "1",
            "null",
            "{",
            "{}{}",
            "{} x",
            "{\"a\"}",
            "{a:1}",
            "{\"a\":1,}",
            "{\"a\":\"\n\"}",
        ] {
            assert_eq!(members(text), None, "{text:?}");
        }
    }

    #[test]
    fn the_last_of_duplicate_members_counts() {
        assert_eq!(member(r#"{"a":1,"b":2,"a":{"c":3}}"#, "a"), Some(r#"{"c":3}"#));
        assert_eq!(member(r#"{"a":1,"\u0061":2}"#, "a"), Some("2"));
        assert_eq!(member(r#"{"a":1}"#, "b"), None);
    }

    #[test]
    fn a_name_with_half_a_surrogate_pair_is_only_a_name_that_matches_nothing() {
        assert_eq!(member(r#"{"\ud800":1,"a":2}"#, "a"), Some("2"));
        assert_eq!(unescaped(r#""\ud800""#), Err(TextFault::LoneSurrogate));
        assert_eq!(unescaped(r#""\ud83d\ude00""#), Ok("😀".into()));
    }

    #[test]
    fn depth_is_no_limit() {
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(1_000_000), "]".repeat(1_000_000));
        assert_eq!(member(&deep, "a").map(str::len), Some(2_000_000));
        assert!(is_value(&deep));
        assert!(!is_value(&deep[..deep.len() - 1]));
    }

    fn written(write: fn(&mut Vec<u8>, &str), text: &str) -> String {
        let mut out = Vec::new();
        write(&mut out, text);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn strings_are_escaped_as_json_demands() {
        let text = "a\"b\\c\n\r\t\u{8}\u{c}\u{1}\u{1f}é€\u{7f}/";
        let expected = "\"a\\\"b\\\\c\\n\\r\\t\\b\\f\\u0001\\u001Fé€\u{7f}/\"";
        assert_eq!(written(write_string, text), expected);
        assert_eq!(written(write_connect_string, text), expected);
        assert_eq!(written(write_string, "😀"), "\"😀\"");
        assert_eq!(written(write_connect_string, "a😀é"), r#""a\uD83D\uDE00é""#);
    }

    #[test]
    fn strings_are_rewritten_as_connect_writes_them() {
        for (quoted, expected) in [
            (r#""""#, r#""""#),
            (r#""a/\/é\u00e9\u20AC""#, r#""a//éé€""#),
            (r#""\"\\\b\f\n\r\t""#, r#""\"\\\b\f\n\r\t""#),
            (r#""\u0022\u005c\u0008\u000C\u000a\u000d\u0009""#, r#""\"\\\b\f\n\r\t""#),
            (r#""\u0000\u001f\u007f""#, "\"\\u0000\\u001F\u{7f}\""),
            (r#""😀\ud83d\ude00""#, r#""\uD83D\uDE00\uD83D\uDE00""#),
            (r#""\udfffx\ud800""#, r#""\uDFFFx\uD800""#),
            (r#""\\u0041""#, r#""\\u0041""#),
        ] {
            assert_eq!(written(rewrite_connect_string, quoted), expected);
        }
    }

    proptest! {
        #[test]
        fn a_written_string_reads_as_the_text(text in any::<String>()) {
            for write in [write_string, write_connect_string] {
                let written = written(write, &text);
                prop_assert_eq!(&serde_json::from_str::<String>(&written).unwrap(), &text);
                prop_assert_eq!(&unescaped(&written).unwrap(), &text);
            }
        }

        #[test]
        fn a_rewritten_string_is_what_its_text_would_be(text in any::<String>()) {
            let expected = written(write_connect_string, &text);
            for quoted in [written(write_string, &text), serde_json::to_string(&text).unwrap(), expected.clone()] {
                prop_assert_eq!(written(rewrite_connect_string, &quoted), expected.clone());
            }
        }

        #[test]
        fn numbers_are_json_s_own(text in "[-+]?[0-9]{0,3}(\\.[0-9]{0,2})?([eE][-+]?[0-9]{0,2})?|NaN|-?Infinity") {
            prop_assert_eq!(is_number(text.as_bytes()), is_value(&text), "{}", text);
        }
    }
}
