use proptest::prelude::*;

use super::*;
use crate::config::path::EventPath;

/// What a path does with the value at its end.
#[derive(Debug, Clone, Copy)]
enum Does {
    Remove,
    Replace,
    Keep,
    Leave,
}

/// The text after these paths, each with what it does. A replacement is the path's place in the list.
fn edit(text: &str, paths: &[(&str, Does)]) -> Result<String, NotJson> {
    let parsed: Vec<EventPath> = paths.iter().map(|(path, _)| EventPath::parse(path).unwrap()).collect();
    let steps: Vec<_> = parsed.iter().map(|path| (path.steps(), 0)).collect();
    let edited = edited(text, &steps, |path, place, out| match (place, paths[path].1) {
        (Place::DeadEnd(_), _) | (_, Does::Leave) => Verdict::Left,
        (_, Does::Keep) => Verdict::Kept,
        (_, Does::Remove) => Verdict::Removed,
        (_, Does::Replace) => {
            out.extend_from_slice(path.to_string().as_bytes());
            Verdict::Replaced
        }
    })?;
    Ok(edited.map_or_else(|| text.to_owned(), |edited| String::from_utf8(edited).unwrap()))
}

fn removed(text: &str, paths: &[&str]) -> String {
    let paths: Vec<_> = paths.iter().map(|path| (*path, Does::Remove)).collect();
    edit(text, &paths).unwrap()
}

#[test]
fn members_go_with_their_comma_and_all_else_stays() {
    let text = "{ \"a\" : 1.50 ,\n \"b\":{ } , \"a\":2, \"c\" : \"\\u0041\" }\n";
    for (paths, expected) in [
        (&["none"][..], text),
        (&["a"], "{ \"b\":{ } , \"c\" : \"\\u0041\" }\n"),
        (&["b"], "{ \"a\" : 1.50  , \"a\":2, \"c\" : \"\\u0041\" }\n"),
        (&["c"], "{ \"a\" : 1.50 ,\n \"b\":{ } , \"a\":2 }\n"),
        (&["a", "b"], "{ \"c\" : \"\\u0041\" }\n"),
        (&["b", "c"], "{ \"a\" : 1.50  , \"a\":2 }\n"),
        (&["a", "b", "c"], "{  }\n"),
    ] {
        assert_eq!(removed(text, paths), expected, "{paths:?}");
    }
    assert_eq!(removed("{\"a\":1}", &["a"]), "{}");
    assert_eq!(
        removed("{\"\\u0061\":1,\"b\":2}", &["a"]),
        "{\"b\":2}",
        "a name with an escape"
    );
}

#[test]
fn items_are_counted_as_they_were() {
    for (path, expected) in [
        ("[0]", "[ 2 , 3 ]"),
        ("[1]", "[ 1  , 3 ]"),
        ("[2]", "[ 1 , 2  ]"),
        ("[3]", "[ 1 , 2 , 3 ]"),
        ("[*]", "[  ]"),
    ] {
        assert_eq!(removed("[ 1 , 2 , 3 ]", &[path]), expected, "{path}");
    }
    assert_eq!(removed("[1,2,3]", &["[0]", "[1]"]), "[3]");
    assert_eq!(removed("[1,2,3]", &["[0]", "[2]"]), "[2]");
    assert_eq!(removed("[]", &["[*]"]), "[]");
}

#[test]
fn paths_go_on_inside() {
    let text = r#"{"p": {"items": [{"x": 1, "y": 2}, {"y": 3}, null, {"x": {"y": 4}}], "x": 5}, "x": 6}"#;
    let replaced = |path| edit(text, &[(path, Does::Replace)]).unwrap();
    assert_eq!(
        replaced("p.items[*].x"),
        r#"{"p": {"items": [{"x": 0, "y": 2}, {"y": 3}, null, {"x": 0}], "x": 5}, "x": 6}"#
    );
    assert_eq!(
        replaced("p.items[3].x.y"),
        r#"{"p": {"items": [{"x": 1, "y": 2}, {"y": 3}, null, {"x": {"y": 0}}], "x": 5}, "x": 6}"#
    );
    assert_eq!(replaced("p"), r#"{"p": 0, "x": 6}"#);
    assert_eq!(
        edit(
            text,
            &[
                ("p.x", Does::Remove),
                ("x", Does::Replace),
                ("p.items[1].y", Does::Remove)
            ]
        )
        .unwrap(),
        r#"{"p": {"items": [{"x": 1, "y": 2}, {}, null, {"x": {"y": 4}}]}, "x": 1}"#
    );
}

#[test]
fn the_first_that_does_not_leave_a_value_has_it_and_outer_values_come_first() {
    let text = r#"{"a":[{"b":1},{"b":2}]}"#;
    for (paths, expected) in [
        (
            &[("a[0].b", Does::Replace), ("a[*].b", Does::Replace)][..],
            r#"{"a":[{"b":0},{"b":1}]}"#,
        ),
        (
            &[("a[*].b", Does::Replace), ("a[0].b", Does::Remove)],
            r#"{"a":[{"b":0},{"b":0}]}"#,
        ),
        (
            &[("a[0].b", Does::Leave), ("a[*].b", Does::Replace)],
            r#"{"a":[{"b":1},{"b":1}]}"#,
        ),
        (
            &[("a[0].b", Does::Keep), ("a[*].b", Does::Replace)],
            r#"{"a":[{"b":1},{"b":1}]}"#,
        ),
        (
            &[("a[*].b", Does::Replace), ("a[0]", Does::Remove)],
            r#"{"a":[{"b":0}]}"#,
        ),
        (
            &[("a[*].b", Does::Replace), ("a[0]", Does::Leave)],
            r#"{"a":[{"b":0},{"b":0}]}"#,
        ),
        (
            &[("a[*].b", Does::Replace), ("a[0]", Does::Keep)],
            r#"{"a":[{"b":1},{"b":0}]}"#,
        ),
    ] {
        assert_eq!(edit(text, paths).as_deref(), Ok(expected), "{paths:?}");
    }
}

#[test]
fn a_path_that_cannot_go_on_says_where() {
    let path = EventPath::parse("a.b").unwrap();
    for (text, expected) in [
        (r#"{"a":"x"}"#, &["\"x\""][..]),
        (r#"{"a":[1, 2]}"#, &["[1, 2]"]),
        (r#"{"a":5,"a":true}"#, &["5", "true"]),
        (r#"{"a":null}"#, &[]),
        (r#"{"a":{}}"#, &[]),
        ("{}", &[]),
        ("null", &[]),
        (" 5 ", &["5"]),
        ("[{\"a\":1}]", &["[{\"a\":1}]"]),
    ] {
        let mut ends = Vec::new();
        let edited = edited(text, &[(path.steps(), 0)], |_, place, _| {
            match place {
                Place::DeadEnd(value) => ends.push(value.to_owned()),
                Place::Value(value) => panic!("{value}"),
            }
            Verdict::Left
        });
        assert_eq!(edited, Ok(None), "{text}");
        assert_eq!(ends, expected, "{text}");
    }
}

#[test]
fn what_is_no_json_is_said_wherever_the_fault_is() {
    for text in [
        "",
        "x",
        "{\"a\":1",
        "{\"a\":1}x",
        "{\"a\":1,}",
        "{\"b\":[1,],\"a\":1}",
        "{\"a\":1 \"b\":2}",
        "{\"a\" 1}",
        "[1 2]",
    ] {
        for path in ["a", "[0]", "a.b", "b[*]"] {
            assert_eq!(edit(text, &[(path, Does::Remove)]), Err(NotJson), "{text} {path}");
        }
    }
}

#[test]
fn depth_is_no_limit() {
    let deep = format!("{}1{}", "[".repeat(200_000), "]".repeat(200_000));
    let text = format!("{{\"a\":{deep},\"b\":{{\"c\":{deep}}}}}");
    assert_eq!(removed(&text, &["a", "b.c"]), "{\"b\":{}}");
}

/// JSON of names `a` to `c`, with blanks, and values that no other place has.
fn document() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        "-?(0|[1-9][0-9]{0,3})(\\.[0-9]{1,3})?",
        "\"[x-z]{0,3}\"",
    ];
    let blank = || "[ \n]{0,2}";
    leaf.prop_recursive(4, 30, 4, move |inner| {
        let item =
            (blank(), inner.clone(), blank()).prop_map(|(before, value, after)| format!("{before}{value}{after}"));
        let member = (blank(), "[a-c]", blank(), inner, blank()).prop_map(|(before, name, behind, value, after)| {
            format!("{before}\"{name}\"{behind}:{behind}{value}{after}")
        });
        prop_oneof![
            prop::collection::vec(item, 0..4).prop_map(|items| format!("[{}]", items.join(","))),
            prop::collection::vec(member, 0..4).prop_map(|members| format!("{{{}}}", members.join(","))),
        ]
    })
}

fn path() -> impl Strategy<Value = String> {
    let step = prop_oneof![3 => "\\.[a-c]", 1 => "\\[[0-2]\\]", 1 => Just("[*]".to_owned())];
    prop::collection::vec(step, 1..4).prop_map(|steps| format!("${}", steps.concat()))
}

/// The same by another way: on values that were taken apart, for documents without duplicate names.
fn by_value(value: &mut serde_json::Value, steps: &[Step]) {
    use serde_json::Value;
    let Some((step, rest)) = steps.split_first() else {
        return;
    };
    match (step, value) {
        (Step::Member(name), Value::Object(members)) => {
            if rest.is_empty() {
                members.remove(name);
            } else if let Some(member) = members.get_mut(name) {
                by_value(member, rest);
            }
        }
        (Step::Item(index), Value::Array(items)) => {
            if rest.is_empty() && *index < items.len() {
                items.remove(*index);
            } else if let Some(item) = items.get_mut(*index) {
                by_value(item, rest);
            }
        }
        (Step::EveryItem, Value::Array(items)) => {
            if rest.is_empty() {
                items.clear();
            }
            items.iter_mut().for_each(|item| by_value(item, rest));
        }
        _ => {}
    }
}

fn tokens(text: &str) -> String {
    text.chars().filter(|c| !c.is_whitespace()).collect()
}

proptest! {
    #[test]
    fn what_is_left_is_json_and_what_another_way_leaves(document in document(), path in path()) {
        let edited = removed(&document, &[&path]);
        let mut value: serde_json::Value = serde_json::from_str(&document).unwrap();
        let found: serde_json::Value = serde_json::from_str(&edited).unwrap();
        // Duplicates are all removed, where another way sees the last alone: compared is what has none.
        if value.to_string().len() == tokens(&document).len() {
            by_value(&mut value, EventPath::parse(&path).unwrap().steps());
            prop_assert_eq!(found, value, "{} {}", document, edited);
        }
    }

    /// Taking the replacements back gives the document, to the byte.
    #[test]
    fn what_no_path_leads_to_stays_to_the_byte(document in document(), paths in prop::collection::vec(path(), 1..4)) {
        const MARK: &str = "\"MARK\"";
        let parsed: Vec<EventPath> = paths.iter().map(|path| EventPath::parse(path).unwrap()).collect();
        let steps: Vec<_> = parsed.iter().map(|path| (path.steps(), 0)).collect();
        let mut taken = Vec::new();
        let edited = edited(&document, &steps, |_, place, out| match place {
            Place::DeadEnd(_) => Verdict::Left,
            Place::Value(value) => {
                taken.push(value.to_owned());
                out.extend_from_slice(MARK.as_bytes());
                Verdict::Replaced
            }
        }).unwrap();
        prop_assert_eq!(edited.is_some(), !taken.is_empty());
        let edited = edited.map_or_else(|| document.clone(), |edited| String::from_utf8(edited).unwrap());
        prop_assert!(serde_json::from_str::<serde_json::Value>(&edited).is_ok(), "{}", edited);
        let restored = taken.iter().fold(edited, |text, value| text.replacen(MARK, value, 1));
        prop_assert_eq!(restored, document);
    }

    #[test]
    fn any_text_is_edited_or_refused_as_another_parser_says(text in "\\PC{0,40}|[\\[\\]{}:, \"\\\\abn0-9eE.+tru-]{0,24}", path in path()) {
        let is_json = serde_json::from_str::<&serde_json::value::RawValue>(&text).is_ok();
        prop_assert_eq!(edit(&text, &[(&path, Does::Remove)]).is_ok(), is_json);
    }
}
