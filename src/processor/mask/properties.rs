//! Laws that hold for any document.

use proptest::prelude::*;

use super::tests::{hash, mask, replaced_by, rule};
use super::*;
use crate::processor::sample::*;

/// A document of names `a` to `c` in which each value at a path of the rules below is `secret` by its type: text, a number, or an
/// object around both.
fn document() -> impl Strategy<Value = String> {
    let secret = prop_oneof![
        Just("\"secret\"".to_owned()),
        Just("\"s\\u0065cret\"".to_owned()),
        Just("171717171717.25".to_owned()),
        Just("\"sec\\u0072et \\\" 171717171717\"".to_owned()),
    ];
    let plain = prop_oneof![
        Just("null".to_owned()),
        Just("1.50".to_owned()),
        Just("[{}, \"x\"]".to_owned())
    ];
    let blank = || "[ \n\t]{0,2}";
    let member = |name: &'static str, value: BoxedStrategy<String>| {
        (blank(), value, blank())
            .prop_map(move |(before, value, behind)| format!("{before}\"{name}\"{behind}:{before}{value}{behind}"))
    };
    let inner = prop::collection::vec(
        prop_oneof![member("s", secret.boxed()), member("p", plain.clone().boxed())],
        0..4,
    )
    .prop_map(|members| format!("{{{}}}", members.join(",")));
    let list = prop::collection::vec(inner.clone(), 0..3).prop_map(|items| format!("[{}]", items.join(" ,")));
    prop::collection::vec(
        prop_oneof![
            member("a", inner.boxed()),
            member("b", list.boxed()),
            member("p", plain.boxed())
        ],
        0..5,
    )
    .prop_map(|members| format!("{{{}}}", members.join(",")))
}

fn action() -> impl Strategy<Value = MaskAction> {
    prop_oneof![
        Just(MaskAction::Remove),
        Just(replaced_by("***")),
        Just(hash()),
        Just(MaskAction::Replace(MaskValue::Null)),
    ]
}

proptest! {
    /// Messages, columns of text and of JSON alike.
    #[test]
    fn no_masked_value_is_left_and_json_stays_json(document in document(), one in action(), other in action(), in_row: bool) {
        let masked = if in_row {
            let config = mask(vec![rule("doc.a.s", one), rule("doc.b[*].s", other)]);
            let cell = text(&document);
            let event = outbox_row(&[("doc", ColumnKind::Text, cell)]);
            match Mask::new(&config).process(event).unwrap() {
                Step::Pass(ChangeEvent { change: Change::Row(row), .. }) => match &row.after.unwrap().values[0] {
                    Value::Text(text) => text.clone(),
                    other => panic!("{other:?}"),
                },
                other => panic!("{other:?}"),
            }
        } else {
            let config = mask(vec![rule("a.s", one), rule("b[*].s", other)]);
            match Mask::new(&config).process(message(document.clone())).unwrap() {
                Step::Pass(ChangeEvent { change: Change::Message(message), .. }) => message.content,
                other => panic!("{other:?}"),
            }
        };
        let masked = std::str::from_utf8(&masked).unwrap();
        prop_assert!(serde_json::from_str::<serde_json::Value>(masked).is_ok(), "{}", masked);
        for secret in ["secret", "s\\u0065cret", "sec\\u0072et", "171717171717"] {
            prop_assert!(!masked.contains(secret), "{}: {}", document, masked);
        }
        // What is plain is there as often as before, to the byte.
        for plain in ["\"p\"", "1.50", "[{}, \"x\"]"] {
            prop_assert_eq!(masked.matches(plain).count(), document.matches(plain).count());
        }
    }

    #[test]
    fn any_message_has_a_defined_outcome(content in prop::collection::vec(any::<u8>(), 0..100), action in action()) {
        let config = mask(vec![rule("a.b[*]", action.clone()), rule("[0]", MaskAction::Round(2)), rule("a", action)]);
        let _ = Mask::new(&config).process(message(content));
    }
}
