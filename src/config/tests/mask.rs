//! Processors of type `mask`.

use secrecy::ExposeSecret;

use super::*;
use crate::config::pipeline::{Mask, MaskAction, MaskValue, OnMismatch};

/// A file whose only processor has these keys, before outboxes and an ordinary table.
fn file(keys: &str) -> String {
    format!(
        "apiVersion: tailpost/v1\nkind: Pipeline\nmetadata: {{name: a}}\nspec:\n  source: {{type: postgres, config: {{id: s, dsn: \
         host=h, slot: s, publication: p, tables: [customers], outbox: {{prefixes: [outbox], tables: [shop.orders_outbox]}}}}}}\n  \
         processors:\n{keys}\n  sinks: [{{type: kafka, config: {{id: k, brokers: 'h:1', topic: t}}}}]\n"
    )
}

fn with_rules(rules: &[&str]) -> String {
    let rules: Vec<String> = rules.iter().map(|rule| format!("\n      - {{{rule}}}")).collect();
    file(&format!(
        "    - type: mask\n      rules:{}\n    - type: outbox",
        rules.concat()
    ))
}

fn mask(loaded: &Loaded) -> &Mask {
    let Processor::Mask(mask) = &loaded.pipeline.processors[0] else {
        panic!("a mask")
    };
    mask
}

#[test]
fn every_rule_is_read() {
    let text = with_rules(&[
        "path: $.payload.customer.email, action: hash, key: '${MASK_KEY}'",
        "path: 'payload.items[*].note', action: remove",
        "path: payload.total, action: round, digits: 2",
        "path: payload.name, action: replace, value: '***'",
        "path: payload.n, action: replace, value: -0.50",
        "path: payload.i, action: replace, value: 18446744073709551615",
        "path: payload.known, action: replace, value: true",
        "path: payload.left, action: replace, value: null",
        "path: payload.from, action: replace, value: '${REGION}'",
    ]);
    let variables = variables(&[("MASK_KEY", "0123456789abcdef"), ("REGION", "eu")]);
    let loaded = load_with(&text, &variables).unwrap();
    assert_eq!(loaded.notes, []);
    schema::tests::assert_accepted(&text);
    let mask = mask(&loaded);
    assert_eq!(
        (mask.id.as_str(), mask.tables.len(), mask.on_mismatch),
        ("mask", 0, OnMismatch::Reject)
    );
    let shown = mask.rules.iter().map(|rule| {
        let action = match &rule.action {
            MaskAction::Remove => "remove".to_owned(),
            MaskAction::Hash(key) => format!("hash {}", key.expose_secret()),
            MaskAction::Round(digits) => format!("round {digits}"),
            MaskAction::Replace(MaskValue::Text(text)) => format!("'{text}'"),
            MaskAction::Replace(MaskValue::Number(number)) => number.clone(),
            MaskAction::Replace(MaskValue::Boolean(flag)) => flag.to_string(),
            MaskAction::Replace(MaskValue::Null) => "null".to_owned(),
        };
        format!("{} {action}", rule.path)
    });
    assert_eq!(
        shown.collect::<Vec<_>>(),
        [
            "payload.customer.email hash 0123456789abcdef",
            "payload.items[*].note remove",
            "payload.total round 2",
            "payload.name '***'",
            "payload.n -0.5",
            "payload.i 18446744073709551615",
            "payload.known true",
            "payload.left null",
            "payload.from 'eu'",
        ]
    );
    assert!(!format!("{:?}", loaded.pipeline).contains("0123456789abcdef"));
}

#[test]
fn what_a_rule_cannot_be_is_refused_in_its_place() {
    for (rule, expected) in [
        ("action: remove", ".path: missing key"),
        (
            "path: a",
            ".action: missing key: expected `remove`, `replace`, `hash` or `round`",
        ),
        (
            "path: a, action: drop",
            ".action: expected `remove`, `replace`, `hash` or `round`, found `drop`",
        ),
        (
            "path: a, action: replace",
            ".value: missing key: expected what is to stand there instead",
        ),
        (
            "path: a, action: hash",
            ".key: missing key: expected the secret key, such as `${MASK_KEY}`",
        ),
        ("path: a, action: round", ".digits: missing key"),
        (
            "path: a, action: remove, value: x",
            ".value: without effect: expected `action: replace` beside it",
        ),
        (
            "path: a, action: replace, value: x, key: y234567890123456",
            ".key: without effect: expected `action: hash`",
        ),
        (
            "path: a, action: hash, key: y234567890123456, digits: 1",
            ".digits: without effect: expected `action: round`",
        ),
        (
            "path: a, action: replace, value: [x]",
            ".value: expected text, a number, true, false or null, found a list",
        ),
        (
            "path: a, action: replace, value: .nan",
            ".value: expected text, a number",
        ),
        (
            "path: a, action: hash, key: ''",
            ".key: expected a secret key, such as `${MASK_KEY}`, found empty text",
        ),
        (
            "path: a, action: hash, key: 1234567890123456",
            ".key: expected a secret key, such as `${MASK_KEY}`, found a number",
        ),
        (
            "path: a, action: hash, key: '${NO_KEY}'",
            ".key: environment variable `NO_KEY` is not set",
        ),
        (
            "path: a, action: round, digits: 31",
            ".digits: expected a whole number from 0 to 30",
        ),
        (
            "path: a, action: round, digits: -1",
            ".digits: expected a whole number from 0 to 30",
        ),
        (
            "path: '', action: remove",
            ".path: expected a path such as `payload.customer.email`",
        ),
        (
            "path: 'a..b', action: remove",
            "found `a..b`; a path has a name behind each dot, and `..` is not supported",
        ),
        ("path: 'a.*', action: remove", "a path has a name in quotes"),
        ("path: a, action: remove, with: x", ".with: unknown key"),
    ] {
        let line = violation(&with_rules(&[rule]));
        assert!(
            line.contains("processors[0].rules[0]") && line.contains(expected),
            "{rule}: {line}"
        );
    }
    assert!(violation(&file("    - {type: mask}")).contains("processors[0].rules: missing key"));
    assert!(
        violation(&file("    - {type: mask, rules: []}")).contains("expected one rule or more, found an empty list")
    );
    let on_mismatch = file("    - {type: mask, rules: [{path: a, action: remove}], on_mismatch: halt}");
    assert!(violation(&on_mismatch).contains("expected `reject` or `ignore`, found `halt`"));
}

#[test]
fn a_rule_that_another_leaves_nothing_for_is_refused() {
    let remove = |path: &str| format!("path: '{path}', action: remove");
    let round = |path: &str| format!("path: '{path}', action: round, digits: 1");
    for (first, second, culprit) in [
        (remove("a.b"), remove("$.a.b"), Some(1)),
        (round("a.b"), remove("a[\"b\"]"), Some(1)),
        (remove("a"), round("a.b"), Some(1)),
        (round("a[0].b"), remove("a[*]"), Some(0)),
        (round("a"), remove("a.b"), None),
        (remove("a[0]"), remove("a[*]"), None),
        (remove("a[*]"), remove("a[0]"), Some(1)),
        (remove("a[0]"), remove("a[1]"), None),
        (remove("a"), remove("ab"), None),
    ] {
        let text = with_rules(&[&first, &second]);
        match culprit {
            None => assert_eq!(violations(&text), Vec::<String>::new(), "{text}"),
            Some(culprit) => {
                let expected = format!(
                    "processors[0].rules[{culprit}]: without effect: rules[{}] is of `a",
                    1 - culprit
                );
                assert!(violation(&text).contains(&expected), "{text}");
            }
        }
    }
}

#[test]
fn a_short_key_is_noted_and_not_shown() {
    let text = with_rules(&["path: a, action: hash, key: hunter2"]);
    let notes = notes(&text);
    assert_eq!(notes.len(), 1);
    assert!(notes[0].contains("rules[0].key: shorter than 16 bytes"), "{notes:?}");
    assert!(!notes[0].contains("hunter2"));
}

/// The types of processors that must see outbox events before these are taken.
const INSPECTORS: &[&str] = &["mask", "validate"];

/// Lines of processors; `outbox` and `mask` with their `tables`, if any.
fn in_order(processors: &[(&str, &str)]) -> String {
    let lines = processors.iter().map(|(kind, tables)| {
        let rest = match *kind {
            "mask" => ", rules: [{path: a, action: remove}]",
            "validate" => ", require_fields: [a]",
            _ => "",
        };
        let tables = match *tables {
            "" => String::new(),
            tables => format!(", tables: [{tables}]"),
        };
        format!("    - {{type: {kind}{tables}{rest}}}\n")
    });
    file(&lines.collect::<String>())
}

#[test]
fn a_processor_that_never_sees_the_outbox_events_that_it_is_for_is_refused() {
    for kind in INSPECTORS {
        for (outbox, tables, taken) in [
            ("", "", "outbox"),
            ("'*'", "outbox", "outbox"),
            ("", "orders_outbox", "shop.orders_outbox"),
            ("", "'shop.*'", "shop.orders_outbox"),
            ("", "'*'", "outbox"),
            ("outbox", "outbox", "outbox"),
            ("'out*'", "outbox", "outbox"),
            ("orders_outbox", "shop.orders_outbox", "shop.orders_outbox"),
        ] {
            let text = in_order(&[("outbox", outbox), (kind, tables)]);
            let line = violation(&text);
            let expected = format!(
                "spec.processors[1]: processors[0] takes what is of `{taken}` before this one can see it: put processors of type \
                 `{kind}` in front of those of type `outbox`, or name only ordinary tables in `tables`"
            );
            assert!(line.contains(&expected), "{text}{line}");
        }
        for (outbox, tables) in [
            ("", "customers"),
            ("outbox", "orders_outbox"),
            ("orders_outbox", "outbox"),
        ] {
            let text = in_order(&[("outbox", outbox), (kind, tables), ("outbox", "")]);
            let notes = notes(&text);
            assert!(!notes.iter().any(|note| note.contains("can see it")), "{notes:?}");
        }
        let text = in_order(&[("outbox", "orders_outbox"), (kind, ""), ("outbox", "")]);
        let noted = notes(&text);
        assert!(
            noted[0].ends_with(
                "spec.processors[1]: processors[0] takes what is of `shop.orders_outbox` before this one can see it"
            ),
            "{noted:?}"
        );
        assert!(notes(&in_order(&[(kind, ""), ("outbox", "")])).is_empty());
    }
}
