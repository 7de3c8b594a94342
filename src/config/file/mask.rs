//! A processor of type `mask`.

use secrecy::SecretString;

use super::outbox::{Seen, read_id};
use super::read_patterns;
use crate::config::document::Value;
use crate::config::error::Problem;
use crate::config::path::EventPath;
use crate::config::pattern::OutboxPattern;
use crate::config::pipeline::{Mask, MaskAction, MaskRule, MaskValue, OnMismatch};
use crate::config::reader::{Field, Mapping, Read, Reader, optional};
use crate::config::schema::Takes;
use crate::config::shown::{describe, join};

const DEFAULT_ID: &str = "mask";

/// Who knows a key can try values until a hash fits, and a short one can be tried out itself.
const LEAST_KEY_BYTES: usize = 16;

pub(super) fn read(reader: &mut Reader<'_>, mut mapping: Mapping<'_>, seen: &mut Seen<'_>) -> Read<Mask> {
    let id = optional(mapping.take("id"), |field| read_id(reader, field, seen));
    let tables = optional(mapping.take("tables"), |field| {
        read_patterns(reader, field, OutboxPattern::parse)
    });
    let rules = reader
        .require(
            &mut mapping,
            "rules",
            "a list of rules such as {path: payload.email, action: remove}",
        )
        .and_then(|field| read_rules(reader, &field));
    let on_mismatch = optional(mapping.take("on_mismatch"), |field| {
        reader.word(field, &[("reject", OnMismatch::Reject), ("ignore", OnMismatch::Ignore)])
    });
    reader.finish(mapping);
    Ok(Mask {
        id: id?.unwrap_or_else(|| DEFAULT_ID.to_owned()),
        tables: tables?.unwrap_or_default(),
        rules: rules?,
        on_mismatch: on_mismatch?.unwrap_or_default(),
    })
}

fn read_rules(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<Vec<MaskRule>> {
    let items = reader.list(field)?;
    if items.is_empty() {
        return Err(reader.unexpected(field, "one rule or more", "an empty list".to_owned()));
    }
    let rules: Vec<_> = items.iter().map(|item| read_rule(reader, item)).collect();
    let rules: Vec<MaskRule> = rules.into_iter().collect::<Read<_>>()?;
    let mut result = Ok(());
    for (index, (item, rule)) in items.iter().zip(&rules).enumerate() {
        let takes_it = rules.iter().enumerate().find(|(other, outer)| {
            // Of rules that end at one value, the first has it; one that ends around it comes before both.
            let comes_first = outer.path.steps().len() < rule.path.steps().len() || *other < index;
            let is_same = outer.path == rule.path;
            let is_around = outer.action.is_for_all() && outer.path.covers(&rule.path);
            comes_first && (is_same || is_around)
        });
        if let Some((other, outer)) = takes_it {
            let message = format!("without effect: rules[{other}] is of `{}` already", outer.path);
            result = Err(reader.refuse(item, message));
        }
    }
    result.map(|()| rules)
}

/// What a rule does, before its own keys are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Remove,
    Replace,
    Hash,
    Round,
}

const ACTIONS: [(&str, Action); 4] = [
    ("remove", Action::Remove),
    ("replace", Action::Replace),
    ("hash", Action::Hash),
    ("round", Action::Round),
];

fn read_rule(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<MaskRule> {
    let mut mapping = reader.mapping(field)?;
    let path = reader
        .require(&mut mapping, "path", PATH)
        .and_then(|field| read_event_path(reader, &field));
    let action = reader
        .require(&mut mapping, "action", "`remove`, `replace`, `hash` or `round`")
        .and_then(|field| reader.word(&field, &ACTIONS));
    let value = optional(mapping.take("value"), |field| {
        let value = read_value(reader, field)?;
        of_action(reader, field, action, Action::Replace, value)
    });
    let key = optional(mapping.take("key"), |field| {
        let key = read_key(reader, field)?;
        of_action(reader, field, action, Action::Hash, key)
    });
    let digits = optional(mapping.take("digits"), |field| {
        let digits = reader.integer(field, 0..=30)? as u32;
        of_action(reader, field, action, Action::Round, digits)
    });
    let (number, at) = mapping.whole();
    reader.finish(mapping);
    let mut missing = |name: &str, expected: &str| {
        let expected = expected.to_owned();
        reader.report_at(number, &join(&at, name), Problem::MissingKey { expected })
    };
    let action = match action {
        Ok(Action::Remove) => Ok(MaskAction::Remove),
        Ok(Action::Replace) => value.and_then(|value| {
            let value = value.ok_or_else(|| missing("value", "what is to stand there instead"))?;
            Ok(MaskAction::Replace(value))
        }),
        Ok(Action::Hash) => key.and_then(|key| {
            let key = key.ok_or_else(|| missing("key", "the secret key, such as `${MASK_KEY}`"))?;
            Ok(MaskAction::Hash(key))
        }),
        Ok(Action::Round) => digits.and_then(|digits| {
            let digits = digits.ok_or_else(|| missing("digits", "how many digits are kept behind the point"))?;
            Ok(MaskAction::Round(digits))
        }),
        Err(reported) => Err(reported),
    };
    Ok(MaskRule {
        path: path?,
        action: action?,
    })
}

/// A key that counts for one action alone.
fn of_action<T>(
    reader: &mut Reader<'_>,
    field: &Field<'_>,
    found: Read<Action>,
    expected: Action,
    value: T,
) -> Read<T> {
    if found.is_ok_and(|found| found != expected) {
        let word = ACTIONS
            .iter()
            .find(|(_, action)| *action == expected)
            .map_or("", |(word, _)| word);
        return Err(reader.refuse(field, format!("without effect: expected `action: {word}` beside it")));
    }
    Ok(value)
}

const PATH: &str = "a path such as `payload.customer.email` or `payload.items[*].price`";

/// A path into an event or its payload.
pub(super) fn read_event_path(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<EventPath> {
    let text = reader.text(field)?;
    EventPath::parse(&text.value).map_err(|err| {
        let remedy = Some(format!("a path has {err}"));
        let (expected, found) = (PATH.to_owned(), text.found());
        reader.report(
            field,
            Problem::Unexpected {
                expected,
                found,
                remedy,
            },
        )
    })
}

fn read_value(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<MaskValue> {
    let number = match &field.node.value {
        Value::Text(_) => return Ok(MaskValue::Text(reader.text(field)?.value)),
        Value::Bool(_) => return reader.boolean(field).map(MaskValue::Boolean),
        Value::Null => return Ok(MaskValue::Null),
        Value::Integer(number) => Some(number.to_string()),
        // A constant of the file's own: the digits that a float keeps are those that it needs.
        Value::Float(number) => serde_json::Number::from_f64(*number).map(|number| number.to_string()),
        Value::List(_) | Value::Mapping(_) | Value::Tagged => None,
    };
    reader.asked.value(&field.path, || Takes::Number(f64::MIN..=f64::MAX));
    number.map(MaskValue::Number).ok_or_else(|| {
        let found = describe(&field.node.value);
        reader.unexpected(field, "text, a number, true, false or null", found)
    })
}

fn read_key(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<SecretString> {
    const EXPECTED: &str = "a secret key, such as `${MASK_KEY}`";
    let key = reader.secret(field, EXPECTED)?;
    if key.is_empty() {
        return Err(reader.unexpected(field, EXPECTED, "empty text".to_owned()));
    }
    if key.len() < LEAST_KEY_BYTES {
        reader.note(
            field,
            format!("shorter than {LEAST_KEY_BYTES} bytes: such a key can be found by trying, and the values with it"),
        );
    }
    Ok(SecretString::from(key))
}
