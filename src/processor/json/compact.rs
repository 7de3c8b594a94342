//! JSON without blanks between its tokens, which stay as they are written.

use std::mem;

use super::scan::Scanner;
use crate::config::pipeline::LeftOut;

/// An array or object that has begun.
#[derive(Debug)]
struct Open {
    is_object: bool,
    has_items: bool,
}

/// A JSON value without blanks, and without the members, at any depth, that are left out. None: the text is no JSON value.
pub(in crate::processor) fn compact(text: &str, left_out: LeftOut) -> Option<Vec<u8>> {
    // What follows relies on the grammar.
    if !super::is_value(text) {
        return None;
    }
    let mut scanner = Scanner::new(text);
    let mut out = Vec::with_capacity(text.len());
    let mut around: Vec<Open> = Vec::new();
    loop {
        scanner.skip_space();
        match scanner.peek() {
            None => return Some(out),
            Some(b',') => {
                scanner.takes(b',');
                continue;
            }
            Some(end @ (b'}' | b']')) => {
                scanner.takes(end);
                around.pop();
                out.push(end);
                continue;
            }
            Some(_) => {}
        }
        if let Some(open) = around.last_mut() {
            let name = if open.is_object { Some(scanner.name()?) } else { None };
            let is_left_out = (left_out.null_members && scanner.is_before_null())
                || (left_out.empty_arrays && scanner.is_before_empty_array());
            if name.is_some() && is_left_out {
                scanner.value()?;
                continue;
            }
            if mem::replace(&mut open.has_items, true) {
                out.push(b',');
            }
            if let Some(name) = name {
                out.extend_from_slice(name.quoted.as_bytes());
                out.push(b':');
            }
        }
        match scanner.peek() {
            Some(begin @ (b'{' | b'[')) => {
                scanner.takes(begin);
                out.push(begin);
                around.push(Open {
                    is_object: begin == b'{',
                    has_items: false,
                });
            }
            _ => out.extend_from_slice(scanner.value()?.as_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    const NOTHING: LeftOut = LeftOut {
        null_members: false,
        empty_arrays: false,
    };

    fn compacted(text: &str, left_out: LeftOut) -> Option<String> {
        compact(text, left_out).map(|bytes| String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn blanks_between_tokens_go_and_nothing_else() {
        for (text, expected) in [
            (
                " { \"b\" :\t[ 1 , 2.50 ,\r\n-0.0e+1 ] , \"a b\" : \" x, : {} \\\" \" , \"b\":null } ",
                r#"{"b":[1,2.50,-0.0e+1],"a b":" x, : {} \" ","b":null}"#,
            ),
            (
                r#"[ { } , [ ] , [ [ ] ] , "" , true , false , null ]"#,
                r#"[{},[],[[]],"",true,false,null]"#,
            ),
            (r#"{"\u0061\/": "\ud800 \u00E9"}"#, r#"{"\u0061\/":"\ud800 \u00E9"}"#),
            (" 12345678901234567890.10 ", "12345678901234567890.10"),
            ("\n\" a \"\n", "\" a \""),
            ("null", "null"),
        ] {
            assert_eq!(compacted(text, NOTHING).as_deref(), Some(expected));
        }
    }

    #[test]
    fn what_is_no_json_is_not_compacted() {
        for text in ["", " ", "{oops", "{} {}", "{'a': 1}", "[1,]", "text", "\u{a0}1"] {
            assert_eq!(compacted(text, NOTHING), None, "{text:?}");
        }
    }

    #[test]
    fn members_are_left_out_at_every_depth() {
        let text = r#" {"n": null, "a": {"e": [ ], "n" : null , "x": [null, [ ], {"n": null, "e": []}]}, "e": [
            ], "last": null} "#;
        let left_out = |null_members, empty_arrays| LeftOut {
            null_members,
            empty_arrays,
        };
        for (left_out, expected) in [
            (
                NOTHING,
                r#"{"n":null,"a":{"e":[],"n":null,"x":[null,[],{"n":null,"e":[]}]},"e":[],"last":null}"#,
            ),
            (left_out(true, false), r#"{"a":{"e":[],"x":[null,[],{"e":[]}]},"e":[]}"#),
            (
                left_out(false, true),
                r#"{"n":null,"a":{"n":null,"x":[null,[],{"n":null}]},"last":null}"#,
            ),
            (left_out(true, true), r#"{"a":{"x":[null,[],{}]}}"#),
        ] {
            assert_eq!(compacted(text, left_out).as_deref(), Some(expected));
        }
        assert_eq!(compacted("null", left_out(true, true)).as_deref(), Some("null"));
        assert_eq!(compacted("[ ]", left_out(true, true)).as_deref(), Some("[]"));
    }

    #[test]
    fn depth_is_no_limit() {
        let deep = format!("{}1{}", "{\"a\": [ ".repeat(500_000), " ] }".repeat(500_000));
        let expected = format!("{}1{}", "{\"a\":[".repeat(500_000), "]}".repeat(500_000));
        assert!(compacted(&deep, NOTHING).unwrap() == expected);
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(any::<String>(), inner, 0..4)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    fn left_out_of(value: Value, left_out: LeftOut) -> Value {
        let is_left_out = |value: &Value| {
            (left_out.null_members && value.is_null())
                || (left_out.empty_arrays && value.as_array().is_some_and(Vec::is_empty))
        };
        match value {
            Value::Array(items) => items.into_iter().map(|item| left_out_of(item, left_out)).collect(),
            Value::Object(members) => {
                let members = members.into_iter().filter(|(_, value)| !is_left_out(value));
                Value::Object(
                    members
                        .map(|(name, value)| (name, left_out_of(value, left_out)))
                        .collect(),
                )
            }
            other => other,
        }
    }

    proptest! {
        #[test]
        fn what_is_compacted_reads_as_before(value in any_value(), null_members: bool, empty_arrays: bool) {
            let left_out = LeftOut { null_members, empty_arrays };
            let text = serde_json::to_string_pretty(&value).unwrap();
            let compacted = compacted(&text, left_out).unwrap();
            let expected = left_out_of(value, left_out);
            prop_assert_eq!(&serde_json::from_str::<Value>(&compacted).unwrap(), &expected);
            prop_assert_eq!(compacted, expected.to_string());
        }

        #[test]
        fn any_text_is_json_or_not(text in any::<String>()) {
            prop_assert_eq!(compacted(&text, NOTHING).is_some(), super::super::is_value(&text));
        }
    }
}
