use proptest::prelude::*;

use super::*;

const KEPT: LeftOut = LeftOut {
    null_members: false,
    empty_arrays: false,
};
/// What Debezium does unless it is told otherwise.
const LEFT_OUT: LeftOut = LeftOut {
    null_members: true,
    empty_arrays: true,
};

fn text_of(text: &str, left_out: LeftOut) -> Option<String> {
    expanded(text, left_out).map(|bytes| String::from_utf8(bytes).unwrap())
}

/// In both ways, with an empty text where it is not expanded.
#[track_caller]
fn becomes(text: &str, kept: &str, left_out: &str) {
    assert_eq!(text_of(text, KEPT).unwrap_or_default(), kept, "{text}");
    assert_eq!(text_of(text, LEFT_OUT).unwrap_or_default(), left_out, "{text}");
}

#[track_caller]
fn becomes_either_way(text: &str, expected: &str) {
    becomes(text, expected, expected);
}

#[test]
fn objects_are_written_again() {
    becomes_either_way("{}", "{}");
    becomes_either_way(
        "{ \"b\" : 1,\n\"a\": {\"y\": \"s\", \"n\": {\"d\": true}}, \"l\": [1, 2] } \r\n",
        r#"{"b":1,"a":{"y":"s","n":{"d":true}},"l":[1,2]}"#,
    );
    becomes_either_way(
        r#"{"a\/\u0062": "\u00e9\/\ud83d\ude00 \"\\ \u001f"}"#,
        r#"{"a/b":"é/\uD83D\uDE00 \"\\ \u001F"}"#,
    );
    becomes_either_way(
        r#"{"a": "\ud800", "a-b": 1, "2x": 2}"#,
        r#"{"a":"\uD800","a-b":1,"2x":2}"#,
    );
}

#[test]
fn of_duplicates_the_last_value_is_at_the_first_place() {
    becomes_either_way(r#"{"b":1,"a":1,"\u0062":[2]}"#, r#"{"b":[2],"a":1}"#);
    becomes(r#"{"b":1,"a":1,"b":null}"#, r#"{"b":null,"a":1}"#, r#"{"a":1}"#);
}

#[test]
fn many_members_are_told_apart() {
    let names = (0..100).map(|n| format!("n{n}")).collect::<Vec<_>>();
    let object = |value: &dyn Fn(usize) -> usize| {
        let members = names
            .iter()
            .enumerate()
            .map(|(n, name)| format!("\"{name}\":{}", value(n)));
        members.collect::<Vec<_>>().join(",")
    };
    let (first, last) = (object(&|n| n), object(&|n| n + 1000));
    becomes_either_way(&format!("{{{first},{last}}}"), &format!("{{{last}}}"));
    let items = format!("{{\"l\":[{{{first}}},{{{last}}}]}}");
    becomes_either_way(&items, &items);
}

#[test]
fn numbers_are_integers_or_doubles() {
    for (number, expected) in [
        ("0", "0"),
        ("-0", "0"),
        ("2147483648", "2147483648"),
        ("-9223372036854775808", "-9223372036854775808"),
        ("12345678901234567890", "12345678901234567890"),
        ("1.50", "1.5"),
        ("-0.0", "-0.0"),
        ("1e3", "1000.0"),
        ("100.0", "100.0"),
        ("1E+10", "1.0E10"),
        ("0.00012", "1.2E-4"),
        ("0.1000000000000000055511151231257827", "0.1"),
        ("123456789012345678.5", "1.2345678901234568E17"),
        ("1e400", r#""Infinity""#),
        ("-1e400", r#""-Infinity""#),
        ("1e-400", "0.0"),
    ] {
        becomes_either_way(&format!("{{\"n\": {number}}}"), &format!("{{\"n\":{expected}}}"));
    }
}

#[test]
fn nulls_and_empty_arrays_are_left_out_where_they_are_members() {
    becomes(
        r#"{"a": null, "e": [], "o": {"a": null, "e": [ ]}, "b": 1}"#,
        r#"{"a":null,"e":[],"o":{"a":null,"e":[]},"b":1}"#,
        r#"{"o":{},"b":1}"#,
    );
    becomes_either_way(r#"{"l": [null, 1]}"#, r#"{"l":[null,1]}"#);
    becomes_either_way(r#"{"l": [[1], [], [null]]}"#, r#"{"l":[[1],[],[null]]}"#);
    becomes(r#"{"l": [{"a": null}]}"#, r#"{"l":[{"a":null}]}"#, r#"{"l":[{}]}"#);
    let only_nulls = LeftOut {
        empty_arrays: false,
        ..LEFT_OUT
    };
    assert_eq!(
        text_of(r#"{"a":null,"e":[]}"#, only_nulls).as_deref(),
        Some(r#"{"e":[]}"#)
    );
}

#[test]
fn what_says_no_shape_is_not_expanded_where_it_would_be_left_out() {
    becomes(r#"{"l": [null]}"#, r#"{"l":[null]}"#, "");
    becomes(r#"{"l": [[]]}"#, r#"{"l":[[]]}"#, "");
    becomes(r#"{"l": [[], [1]]}"#, r#"{"l":[[],[1]]}"#, "");
    becomes(r#"{"l": [[null], [1]]}"#, r#"{"l":[[null],[1]]}"#, "");
}

#[test]
fn objects_of_an_array_have_one_shape() {
    becomes_either_way(
        r#"{"l": [{"s": "a", "q": 1}, null, {"x": 3, "s": "b"}]}"#,
        r#"{"l":[{"s":"a","q":1,"x":null},null,{"s":"b","q":null,"x":3}]}"#,
    );
    becomes_either_way(
        r#"{"l": [{"a": null, "e": []}, {"a": 1, "e": [2]}]}"#,
        r#"{"l":[{"a":null,"e":[]},{"a":1,"e":[2]}]}"#,
    );
    becomes_either_way(
        r#"{"l": [{"o": {"a": 1}}, {"o": {"b": 2}}]}"#,
        r#"{"l":[{"o":{"a":1,"b":null}},{"o":{"a":null,"b":2}}]}"#,
    );
    becomes_either_way(
        r#"{"l": [[{"a": 1}], [{"b": 2}]]}"#,
        r#"{"l":[[{"a":1,"b":null}],[{"a":null,"b":2}]]}"#,
    );
}

#[test]
fn an_array_of_several_kinds_is_not_expanded() {
    for items in [
        r#"1, "a", 2.5"#,
        "1, 2.5",
        "1, 2147483648",
        "1, 12345678901234567890",
        "true, 1",
        "[1], {}",
        "[1], [1.5]",
        "{}, 1",
        r#"{"a": 1}, {"a": "1"}"#,
        r#"{"a": 1}, {"a": 1.5}"#,
        r#"{"a": {"b": 1}}, {"a": {"b": true}}"#,
        r#"{"a": [1]}, {"a": ["b"]}"#,
    ] {
        becomes_either_way(&format!("{{\"l\": [{items}]}}"), "");
        becomes_either_way(&format!("{{\"a\": 1, \"o\": {{\"l\": [{items}]}}}}"), "");
    }
    becomes_either_way(
        r#"{"l": [1.5, 12345678901234567890, 1e2]}"#,
        r#"{"l":[1.5,12345678901234567890,100.0]}"#,
    );
}

#[test]
fn an_array_by_itself_is_made_compact() {
    becomes_either_way("[1, 2.50, \"a\", \"\\u00e9\"]", r#"[1,2.50,"a","\u00e9"]"#);
    becomes(r#"[{"a": null, "b": []}]"#, r#"[{"a":null,"b":[]}]"#, "[{}]");
    becomes_either_way("[1, 2", "");
}

#[test]
fn other_text_is_not_expanded() {
    for text in [
        "",
        "null",
        "1",
        r#""str""#,
        r#" {"a":1}"#,
        "{oops",
        r#"{"a":1} {}"#,
        r#"{"a":1}x"#,
        r#"{"a":1,}"#,
        r#"{"a":[1,]}"#,
        r#"{"a" 1}"#,
        r#"{"":1}"#,
        "{\"a\":\"\n\"}",
    ] {
        becomes_either_way(text, "");
    }
    becomes(r#"{"": null}"#, "", "{}");
}

#[test]
fn what_is_too_deep_is_not_expanded() {
    let deep = |levels: usize| format!("{}1{}", "{\"a\":".repeat(levels), "}".repeat(levels));
    becomes_either_way(&deep(MAX_DEPTH), &deep(MAX_DEPTH));
    becomes_either_way(&deep(MAX_DEPTH + 1), "");
    becomes_either_way(&deep(1_000_000), "");
    becomes_either_way(&format!("{{\"a\":{}", "[".repeat(1_000_000)), "");
}

proptest! {
    #[test]
    fn any_text_is_expanded_or_not(text in "[\\[{]\\PC{0,40}", null_members: bool, empty_arrays: bool) {
        let left_out = LeftOut { null_members, empty_arrays };
        if let Some(expanded) = text_of(&text, left_out) {
            prop_assert!(super::super::is_value(&expanded));
        }
    }

    #[test]
    fn what_is_expanded_stays_as_it_is(
        members in prop::collection::vec(("[a-c\"é😀]{1,2}", prop_oneof![
            Just("null".to_owned()),
            Just("[]".to_owned()),
            Just("[{\"a\":1},{\"b\":[]}]".to_owned()),
            any::<i64>().prop_map(|number| number.to_string()),
            any::<f64>().prop_filter("finite", |number| number.is_finite()).prop_map(|number| format!("{number:e}")),
            any::<String>().prop_map(|text| serde_json::to_string(&text).unwrap()),
        ]), 0..20),
        null_members: bool, empty_arrays: bool,
    ) {
        let left_out = LeftOut { null_members, empty_arrays };
        let members = members.iter().map(|(name, value)| format!("{} : {value}", serde_json::to_string(name).unwrap()));
        let text = format!("{{{}}}", members.collect::<Vec<_>>().join(" , "));
        let once = text_of(&text, left_out).unwrap();
        prop_assert_eq!(text_of(&once, left_out).unwrap(), once);
    }
}
