//! Laws that hold for any message.

use proptest::prelude::*;

use super::*;
use crate::config::pipeline::{LeftOut, Outbox as Config, PayloadAs};
use crate::processor::json;
use crate::processor::sample::*;

fn process(config: Config, content: &str) -> Record {
    published(only(config).process(message(content.to_owned())))
}

fn outbox_with_topic(topic: &str) -> Config {
    Config {
        topic: Some(rule(topic)),
        ..outbox()
    }
}

/// JSON as anyone could write it: duplicate keys, white space, any number, any escape.
fn any_json() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        "-?(0|[1-9][0-9]{0,30})(\\.[0-9]{1,30})?([eE][+-]?[0-9]{1,3})?",
        any::<String>().prop_map(|text| serde_json::to_string(&text).unwrap()),
        Just(r#""\u0000\ud83d\ude00\ud800\/""#.to_owned()),
    ];
    let blank = || "[ \t\r\n]{0,2}";
    leaf.prop_recursive(4, 24, 4, move |inner| {
        let item =
            (blank(), inner.clone(), blank()).prop_map(|(before, value, after)| format!("{before}{value}{after}"));
        let member = (blank(), "[ab]", blank(), inner, blank())
            .prop_map(|(a, name, b, value, c)| format!("{a}\"{name}\"{b}:{c}{value}{a}"));
        prop_oneof![
            prop::collection::vec(item, 0..4).prop_map(|items| format!("[{}]", items.join(","))),
            prop::collection::vec(member, 0..4).prop_map(|members| format!("{{{}}}", members.join(","))),
        ]
    })
}

proptest! {
    #[test]
    fn any_message_has_a_defined_outcome(content in prop::collection::vec(any::<u8>(), 0..200), raw: bool, strict: bool) {
        let config = Config { raw_payload: raw, strict, ..outbox_with_topic("${a}.${b.c}") };
        let _ = chain(vec![config], &sink(Some("${d}"), Some("${e}"))).process(message(content));
    }

    #[test]
    fn any_object_has_a_defined_outcome_and_a_legal_topic(
        members in prop::collection::vec(("payload|topic|aggregate_id|aggregate_type|id|a", any_json()), 0..6),
        raw: bool, strict: bool,
    ) {
        let members: Vec<_> = members.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
        let config = Config { raw_payload: raw, strict, ..outbox_with_topic("${a}") };
        let outcome = only(config).process(message(format!("{{{}}}", members.join(","))));
        if let Ok(Outcome::Publish(record)) = outcome {
            let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
            prop_assert!((1..=249).contains(&record.topic.len()) && record.topic.bytes().all(legal));
            prop_assert!(!matches!(&*record.topic, "." | ".."));
            if !raw {
                prop_assert!(json::is_value(std::str::from_utf8(&record.value.unwrap()).unwrap()));
            }
        }
    }

    #[test]
    fn a_raw_payload_is_the_exact_slice(
        payload in any_json(),
        others in prop::collection::vec(("[a-z ]{0,6}", any_json(), "[ \t\r\n]{0,3}"), 0..4),
        at in any::<prop::sample::Index>(),
    ) {
        let mut members: Vec<_> = others.iter().map(|(name, value, blank)| format!("{blank}\"x{name}\"{blank}:{value}{blank}")).collect();
        members.insert(at.index(members.len() + 1), format!(" \"payload\"\t:\n{payload} "));
        let value = process(outbox(), &format!("\n{{{}}} ", members.join(","))).value;
        prop_assert_eq!(value.as_deref(), (payload != "null").then_some(payload.as_bytes()));
    }

    #[test]
    fn a_payload_in_any_form_is_json_and_a_compact_one_the_same_tokens(
        payload in any_json(), null_members: bool, empty_arrays: bool,
    ) {
        let left_out = LeftOut { null_members, empty_arrays };
        for payload_as in [PayloadAs::JsonString, PayloadAs::Compact, PayloadAs::Expanded] {
            let config = Config { payload_as, left_out, ..outbox() };
            if let Some(value) = process(config, &format!("{{\"payload\":{payload}}}")).value {
                let value = std::str::from_utf8(&value).unwrap();
                prop_assert!(json::is_value(value), "{:?}: {}", payload_as, value);
                if payload_as == PayloadAs::Compact && left_out == LeftOut::default() {
                    let mut is_text = false;
                    let mut is_escaped = false;
                    let is_token = |character: &char| {
                        let ends = *character == '"' && !is_escaped;
                        is_escaped = is_text && *character == '\\' && !is_escaped;
                        is_text ^= ends;
                        is_text || !matches!(character, ' ' | '\t' | '\r' | '\n')
                    };
                    prop_assert_eq!(value, payload.chars().filter(is_token).collect::<String>());
                }
            }
        }
    }

    #[test]
    fn an_enveloped_payload_is_the_exact_slice_too(payload in any_json()) {
        let config = Config { raw_payload: false, ..outbox() };
        let value = process(config, &format!("{{\"payload\":{payload}}}")).value.unwrap();
        let start = format!("{{\"before\":null,\"after\":{payload},\"source\":");
        prop_assert!(value.starts_with(start.as_bytes()));
    }
}
