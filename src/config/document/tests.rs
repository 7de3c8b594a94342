use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;

fn number_of<'n>(node: &'n Node, path: &[&str]) -> &'n Node {
    let Some((first, rest)) = path.split_first() else {
        return node;
    };
    match &node.value {
        Value::Mapping(entries) => {
            let entry = entries
                .iter()
                .find(|(key, _)| matches!(&key.value, Value::Text(text) if text == first));
            number_of(&entry.unwrap().1, rest)
        }
        Value::List(items) => number_of(&items[first.parse::<usize>().unwrap()], rest),
        _ => panic!("nothing below a scalar"),
    }
}

fn place(text: &str, path: &[&str]) -> (usize, usize) {
    let root = parse(text).unwrap();
    let number = number_of(&root, path).number;
    let place = locate(text, &BTreeSet::from([number]))[&number];
    (place.line, place.column)
}

fn problem(text: &str) -> (Option<(usize, usize)>, Problem) {
    let unreadable = parse(text).unwrap_err();
    (
        unreadable.place.map(|place| (place.line, place.column)),
        unreadable.problem,
    )
}

#[test]
fn block_style_values_are_placed_at_their_first_character() {
    let text = "a:\n  b: one\n  c:\n    - x\n    -   y\n    - d: z\n";
    assert_eq!(place(text, &["a"]), (2, 3));
    assert_eq!(place(text, &["a", "b"]), (2, 6));
    assert_eq!(place(text, &["a", "c", "1"]), (5, 9));
    assert_eq!(place(text, &["a", "c", "2", "d"]), (6, 10));
}

#[test]
fn flow_style_values_are_placed_at_their_first_character() {
    let text = "a: {b: 1, c: [x, 'y', {d: z}]}\ne: [\n  1,\n  2]\n";
    assert_eq!(place(text, &["a"]), (1, 4));
    assert_eq!(place(text, &["a", "b"]), (1, 8));
    assert_eq!(place(text, &["a", "c"]), (1, 14));
    assert_eq!(place(text, &["a", "c", "1"]), (1, 18));
    assert_eq!(place(text, &["a", "c", "2", "d"]), (1, 27));
    assert_eq!(place(text, &["e", "1"]), (4, 3));
}

#[test]
fn columns_count_characters_and_lines_survive_block_scalars() {
    let text = "ключ: {é: ü, b: x}\nb: |\n  one\n  two\n\nc: >-\n  three\n  four\nd: \"1\n  2\"\ne: end\n";
    assert_eq!(place(text, &["ключ", "é"]), (1, 11));
    assert_eq!(place(text, &["ключ", "b"]), (1, 17));
    assert_eq!(place(text, &["b"]), (2, 4));
    assert_eq!(place(text, &["c"]), (6, 4));
    assert_eq!(place(text, &["d"]), (9, 4));
    assert_eq!(place(text, &["e"]), (11, 4));
}

#[test]
fn carriage_returns_do_not_move_a_line() {
    assert_eq!(place("a: 1\r\n# note\r\nb: 2\r\n", &["b"]), (3, 4));
}

#[test]
fn lines_end_only_where_an_editor_ends_them() {
    let text = "a: \"x\u{85}y\u{2028}z\"\r\n# \u{2029}\r\nb: {é: 1, c: 2}\n";
    assert_eq!(place(text, &["b"]), (3, 4));
    assert_eq!(place(text, &["b", "c"]), (3, 14));
    assert_eq!(problem("# \u{2028}\na: *b\n").0, Some((2, 4)));
}

#[test]
fn an_aliased_value_is_placed_at_its_anchor() {
    let text = "a: &one {x: 1}\nb: *one\nc: last\n";
    assert_eq!(place(text, &["b", "x"]), (1, 13));
    assert_eq!(place(text, &["c"]), (3, 4));
}

#[test]
fn duplicate_and_merge_keys_stay_as_they_are_written() {
    let root = parse("a: 1\n<<: {x: 1}\na: 2\n").unwrap();
    let Value::Mapping(entries) = root.value else {
        panic!("a mapping")
    };
    let keys: Vec<_> = entries.iter().map(|(key, _)| format!("{:?}", key.value)).collect();
    assert_eq!(keys, ["Text(\"a\")", "Text(\"<<\")", "Text(\"a\")"]);
}

#[test]
fn a_tagged_value_is_kept_apart_and_does_not_shift_what_follows() {
    let text = "a: !secret {x: [1, 2]}\nb: 1\nc: !x y\nd: 2\n";
    let root = parse(text).unwrap();
    assert!(matches!(number_of(&root, &["a"]).value, Value::Tagged));
    assert_eq!(place(text, &["b"]), (2, 4));
    assert_eq!(place(text, &["d"]), (4, 4));
}

#[test]
fn a_syntax_error_has_its_line() {
    let (at, problem) = problem("a: 1\nb: [1, 2\nc: 3\n");
    assert_eq!(at.unwrap().0, 3, "{problem}");
    assert!(matches!(problem, Problem::Syntax { .. }));
}

#[test]
fn nothing_and_only_comments_are_empty() {
    for text in ["", "\n\n", "  \n", "# only a comment\n"] {
        let unreadable = parse(text).map(|node| node.value);
        assert!(
            matches!(
                unreadable,
                Ok(Value::Null)
                    | Err(Unreadable {
                        problem: Problem::Empty,
                        ..
                    })
            ),
            "{text:?}: {unreadable:?}"
        );
    }
}

#[test]
fn a_second_document_is_refused_where_it_begins() {
    assert_eq!(problem("a: 1\n---\nb: 2\n"), (Some((3, 1)), Problem::SecondDocument));
    assert!(parse("---\na: 1\n...\n").is_ok());
}

#[test]
fn hostile_texts_are_refused_quickly() {
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..40 {
        let below = vec![format!("*a{}", level - 1); 9].join(", ");
        bomb.push_str(&format!("a{level}: &a{level} [{below}]\n"));
    }
    let long = format!(
        "a: &a {}\nb: [{}]\n",
        "x".repeat(100_000),
        vec!["*a"; 10_000].join(", ")
    );
    let deep_flow = "[".repeat(500_000);
    let wide = "- x\n".repeat(200_000);
    let mut deep_block = String::new();
    for level in 0..300 {
        deep_block.push_str(&format!("{}a:\n", " ".repeat(level)));
    }
    for text in [
        bomb,
        long,
        deep_flow,
        wide,
        deep_block,
        "x".repeat(MAX_BYTES + 1),
        "? ".repeat(500_000),
        "- ".repeat(500_000),
        "&a ".repeat(300_000),
        "a: ".repeat(300_000),
        "!<".repeat(400_000),
        "*a ".repeat(300_000),
    ] {
        let started = Instant::now();
        let unreadable = parse(&text).unwrap_err();
        assert!(
            matches!(unreadable.problem, Problem::TooLarge { .. } | Problem::Syntax { .. }),
            "{:?}",
            unreadable.problem
        );
        // Generous: it tells seconds from hours, not one machine from another.
        assert!(started.elapsed() < Duration::from_secs(20), "{:?}", &text[..20]);
    }
}

proptest! {
    #[test]
    fn parsing_never_panics(text in "\\PC*|[-a-c:&*!|>{}\\[\\],'\"# \n?%<~0-2]{0,60}") {
        if let Ok(root) = parse(&text) {
            locate(&text, &BTreeSet::from([root.number, root.number + 1]));
        }
    }
}
