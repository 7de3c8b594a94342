use serde_json::json;

use super::*;
use crate::config::pipeline::{self, OnMissingSchema, SchemaPlace, Ssl, SslMode};
use crate::config::template::Template;
use crate::processor::sample::message;
use crate::processor::validate::Validate;
use crate::processor::{Processor, Step};
use crate::schema_registry::Fetched;

const SSL: Ssl = Ssl {
    mode: SslMode::VerifyFull,
    root_cert: None,
    client_cert: None,
    client_key: None,
};

fn validate(subject: Option<&str>, on_missing: OnMissingSchema) -> Validate {
    let name = |name: &str| vec![name.to_owned()];
    let registry = SchemaRegistry {
        url: "http://registry:8081".parse().unwrap(),
        subject: subject.map(|text| Template::parse(text).unwrap()),
        auth: None,
        tls: SSL,
    };
    Validate::new(&pipeline::Validate {
        id: "validate".to_owned(),
        tables: Vec::new(),
        schemas: Some(pipeline::Schemas {
            place: SchemaPlace::Registry(Arc::new(registry)),
            version: Some(name("version")),
            default_version: "latest".to_owned(),
            on_missing,
        }),
        event_type: name("event_type"),
        payload: name("payload"),
        require: Vec::new(),
        sequence: None,
        require_fields: Vec::new(),
    })
}

/// A schema that takes only this number.
fn only(version: u32, number: i64) -> Answer {
    let validator = jsonschema::options().build(&json!({"const": number})).unwrap();
    Answer::Schema(Arc::new(Fetched { version, validator }))
}

/// What becomes of an event, with its question and the answer to it as often as there is one.
fn process(
    validate: &mut Validate,
    version: &str,
    payload: i64,
    answers: Vec<(&str, Known, Answer)>,
) -> Result<(), String> {
    let content = format!(r#"{{"event_type": "paid", "version": {version}, "payload": {payload}}}"#);
    let mut event = message(content);
    let mut answers = answers.into_iter();
    loop {
        match validate.process(event) {
            Ok(Step::Wait(waiting)) => {
                let (id, known, answer) = answers.next().expect("no more questions");
                let question = validate.question().expect("a question");
                let found = format!("{}/{}", question.id.subject, question.id.version);
                assert_eq!((found.as_str(), question.known), (id, known));
                validate.answer(answer);
                event = waiting;
            }
            end => {
                assert_eq!(answers.count(), 0, "a question less");
                return match end {
                    Ok(Step::Pass(_)) => Ok(()),
                    Ok(other) => panic!("{other:?}"),
                    Err(error) => Err(error.problem.to_string()),
                };
            }
        }
    }
}

#[test]
fn a_version_that_has_a_number_is_asked_for_once() {
    let mut validate = validate(None, OnMissingSchema::Reject);
    let first = vec![("paid/2", Known::Nothing, only(2, 7))];
    assert_eq!(process(&mut validate, "2", 7, first), Ok(()));
    validate.age_schemas();
    let refused = process(&mut validate, "\"2\"", 8, Vec::new()).unwrap_err();
    assert!(
        refused.starts_with("the payload does not match its schema `paid/2`: "),
        "{refused}"
    );
}

#[test]
fn the_latest_is_asked_for_again_when_it_is_old_and_before_it_refuses() {
    let mut validate = validate(None, OnMissingSchema::Reject);
    let first = vec![("paid/latest", Known::Nothing, only(1, 7))];
    assert_eq!(process(&mut validate, "null", 7, first), Ok(()));
    assert_eq!(process(&mut validate, "null", 7, Vec::new()), Ok(()));
    let newer = vec![("paid/latest", Known::Doubted, only(2, 8))];
    assert_eq!(process(&mut validate, "null", 8, newer), Ok(()));
    validate.age_schemas();
    let old = vec![("paid/latest", Known::Old, Answer::Unchanged)];
    assert_eq!(process(&mut validate, "null", 8, old), Ok(()));
    let same = vec![("paid/latest", Known::Doubted, Answer::Unchanged)];
    let refused = process(&mut validate, "null", 7, same).unwrap_err();
    assert!(refused.contains("its schema `paid/2`"), "{refused}");
    // An answer that has just come is not doubted.
    validate.age_schemas();
    let other = vec![("paid/latest", Known::Old, only(3, 9))];
    assert!(
        process(&mut validate, "null", 8, other)
            .unwrap_err()
            .contains("`paid/3`")
    );
}

#[test]
fn what_is_missing_is_refused_or_let_pass_and_can_come() {
    let missing = |known| ("paid/1", known, Answer::Missing);
    let mut reject = validate(None, OnMissingSchema::Reject);
    let refused = process(&mut reject, "1", 7, vec![missing(Known::Nothing)]).unwrap_err();
    let expected = "there is no schema of version `1` for subject `paid`: expected one, or `on_missing_schema: allow`";
    assert_eq!(refused, expected);
    let come = vec![("paid/1", Known::Doubted, only(1, 7))];
    assert_eq!(process(&mut reject, "1", 7, come), Ok(()));
    let mut allow = validate(None, OnMissingSchema::Allow);
    assert_eq!(process(&mut allow, "1", 7, vec![missing(Known::Nothing)]), Ok(()));
    assert_eq!(process(&mut allow, "1", 8, Vec::new()), Ok(()));
    allow.age_schemas();
    let come = vec![("paid/1", Known::Old, only(1, 7))];
    assert!(process(&mut allow, "1", 8, come).is_err());
}

#[test]
fn what_no_registry_has_is_not_asked_for() {
    let mut validate = validate(None, OnMissingSchema::Reject);
    for version in ["\"1.0.0\"", "0", "-1", "\"newest\""] {
        let refused = process(&mut validate, version, 7, Vec::new()).unwrap_err();
        assert!(refused.starts_with("there is no schema of version"), "{refused}");
    }
}

#[test]
fn a_schema_that_is_none_of_json_is_said_with_what_it_is() {
    let mut validate = validate(None, OnMissingSchema::Allow);
    let avro = vec![(
        "paid/1",
        Known::Nothing,
        Answer::Unusable("is of type AVRO: expected JSON".to_owned()),
    )];
    let refused = process(&mut validate, "1", 7, avro).unwrap_err();
    let expected = "its schema `paid/1` in the registry cannot be used: it is of type AVRO: expected JSON";
    assert_eq!(refused, expected);
}

#[test]
fn a_subject_is_made_of_fields() {
    let mut named = validate(Some("shop.${event_type}-value"), OnMissingSchema::Reject);
    let first = vec![("shop.paid-value/3", Known::Nothing, only(3, 7))];
    assert_eq!(process(&mut named, "3", 7, first), Ok(()));
    let mut lacking = validate(Some("${aggregate_type}-value"), OnMissingSchema::Reject);
    let refused = process(&mut lacking, "3", 7, Vec::new()).unwrap_err();
    assert!(refused.contains("for an event without `aggregate_type`"), "{refused}");
}
