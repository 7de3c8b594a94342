use super::*;
use crate::config::pipeline::Sequence;
use crate::processor::sample::message;
use crate::processor::validate::Validate;
use crate::processor::{Processor, Step};

fn validate(actions: [OnFault; 3], require_fields: &[&str]) -> Validate {
    let path = |text: &str| vec![text.to_owned()];
    let [on_repeat, on_gap, on_backwards] = actions;
    Validate::new(&pipeline::Validate {
        id: "validate".to_owned(),
        tables: Vec::new(),
        schemas: None,
        event_type: path("event_type"),
        payload: path("payload"),
        require: Vec::new(),
        sequence: Some(Sequence {
            field: path("no"),
            per: vec![path("kind"), path("id")],
            on_repeat,
            on_gap,
            on_backwards,
            max_aggregates: 10,
        }),
        require_fields: require_fields.iter().map(|field| path(field)).collect(),
    })
}

/// None: it passes.
fn refusal(validate: &mut Validate, event: &str) -> Option<String> {
    match validate.process(message(event.to_owned())) {
        Ok(Step::Pass(_)) => None,
        Ok(other) => panic!("{other:?}"),
        Err(error) => {
            assert_eq!(error.dead_letter_reason().label(), "schema_validation_failed");
            Some(error.problem.to_string())
        }
    }
}

fn counts(validate: &mut Validate) -> Vec<(&'static str, u64)> {
    let (_, rule) = validate.sequence().expect("a rule");
    let faults = rule.take_faults();
    faults
        .counts
        .iter()
        .map(|(fault, count)| (fault.label(), *count))
        .collect()
}

#[test]
fn an_action_says_what_becomes_of_a_fault_and_all_are_counted() {
    let mut validate = validate([OnFault::DeadLetter, OnFault::Warn, OnFault::Halt], &[]);
    let event = |number: i64| format!(r#"{{"kind": "order", "id": 1, "no": {number}}}"#);
    for number in [3, 4, 6] {
        assert_eq!(refusal(&mut validate, &event(number)), None, "{number}");
    }
    assert_eq!(
        refusal(&mut validate, &event(6)).unwrap(),
        "`no` is 6, once more: expected 7, behind the highest of its aggregate (`sequence.on_repeat`)"
    );
    assert_eq!(
        refusal(&mut validate, &event(2)).unwrap(),
        "`no` is 2, which goes backwards: expected 7, behind the highest of its aggregate (`sequence.on_backwards`)"
    );
    assert_eq!(counts(&mut validate), [("repeat", 1), ("gap", 1), ("backwards", 1)]);
    assert_eq!(counts(&mut validate), []);
}

#[test]
fn an_aggregate_is_named_by_all_fields_and_a_number_may_be_a_text() {
    let mut validate = validate([OnFault::Halt; 3], &[]);
    for event in [
        r#"{"kind": "order", "id": "1", "no": 1}"#,
        r#"{"kind": "cart", "id": "1", "no": "7"}"#,
        r#"{"kind": "order", "id": 1, "no": "2"}"#,
        r#"{"kind": "cart", "id": 1, "no": 8}"#,
        // Of no aggregate, or without a number.
        r#"{"kind": "cart", "no": 1}"#,
        r#"{"kind": "cart", "id": null, "no": 1}"#,
        r#"{"kind": "cart", "id": 1, "no": null}"#,
        r#"{"kind": "cart", "id": 1}"#,
    ] {
        assert_eq!(refusal(&mut validate, event), None, "{event}");
    }
    for number in ["1.5", "\"eight\"", "[]", "99999999999999999999"] {
        let event = format!(r#"{{"kind": "cart", "id": 1, "no": {number}}}"#);
        let refused = refusal(&mut validate, &event).expect(number);
        assert!(refused.starts_with("`no` is no number of a sequence: "), "{refused}");
    }
}

#[test]
fn a_long_name_of_an_aggregate_is_still_its_own() {
    let mut validate = validate([OnFault::Halt; 3], &[]);
    let event = |last: char, number: i64| {
        let name = "n".repeat(500);
        format!(r#"{{"kind": "order", "id": "{name}{last}", "no": {number}}}"#)
    };
    for (last, number) in [('a', 1), ('b', 5), ('a', 2), ('b', 6)] {
        assert_eq!(refusal(&mut validate, &event(last, number)), None);
    }
}

#[test]
fn what_is_refused_for_something_else_leaves_no_gap() {
    let mut validate = validate([OnFault::Halt; 3], &["label"]);
    let event = |number: i64, label: &str| format!(r#"{{"kind": "order", "id": 1, "no": {number}, "label": {label}}}"#);
    assert_eq!(refusal(&mut validate, &event(1, "1")), None);
    assert!(
        refusal(&mut validate, &event(2, "null"))
            .unwrap()
            .contains("`require_fields`")
    );
    assert_eq!(refusal(&mut validate, &event(3, "1")), None);
}
