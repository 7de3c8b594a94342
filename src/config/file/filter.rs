//! A processor of type `filter`. DeltaForge's keys are those of its files alone.

use regex::Regex;

use super::outbox::{Seen, read_id};
use super::read_patterns;
use super::template::note_unknown_fact;
use crate::config::document::Value;
use crate::config::error::Problem;
use crate::config::pattern::OutboxPattern;
use crate::config::pipeline::{Comparison, Condition, Demand, Filter, KeptTables, Literal, Test};
use crate::config::reader::{Field, Mapping, Read, Reader, optional};
use crate::config::route;
use crate::config::schema::{Form, Takes};
use crate::config::shown::{describe, join};
use crate::event::Operation;

const DEFAULT_ID: &str = "filter";

pub(super) fn read(reader: &mut Reader<'_>, mapping: Mapping<'_>, seen: &mut Seen<'_>) -> Read<Filter> {
    match reader.is_deltaforge() {
        true => read_theirs(reader, mapping, seen),
        false => read_ours(reader, mapping, seen),
    }
}

fn read_ours(reader: &mut Reader<'_>, mut mapping: Mapping<'_>, seen: &mut Seen<'_>) -> Read<Filter> {
    let (number, path) = mapping.whole();
    let id = optional(mapping.take("id"), |field| read_id(reader, field, seen));
    let tables = optional(mapping.take("tables"), |field| {
        read_patterns(reader, field, OutboxPattern::parse)
    });
    let outboxes = optional(mapping.take("outboxes"), |field| reader.boolean(field));
    let (ops, conditions) = (mapping.take("ops"), mapping.take("where"));
    let is_empty = |field: &Field<'_>| matches!(&field.node.value, Value::Mapping(pairs) if pairs.is_empty());
    let asks_nothing = ops.is_none() && conditions.as_ref().is_none_or(is_empty);
    let operations = optional(ops, |field| {
        let items = reader.list(field)?;
        let words = [
            ("insert", Operation::Insert),
            ("update", Operation::Update),
            ("delete", Operation::Delete),
            ("truncate", Operation::Truncate),
        ];
        let operations: Vec<_> = items.iter().map(|item| reader.word(item, &words)).collect();
        match operations.is_empty() {
            true => Err(reader.unexpected(
                field,
                "one or more of insert, update, delete, truncate",
                "none".to_owned(),
            )),
            false => operations.into_iter().collect(),
        }
    });
    let conditions = optional(conditions, |field| read_where(reader, field));
    reader.finish(mapping);
    let filter = Filter {
        id: id?.unwrap_or_else(|| DEFAULT_ID.to_owned()),
        tables: tables?.unwrap_or_default(),
        outboxes: outboxes?.unwrap_or(false),
        kept_tables: KeptTables::default(),
        operations: operations?,
        conditions: conditions?.unwrap_or_default(),
        demand: Demand::All,
    };
    if asks_nothing {
        let message = "it keeps everything: expected `ops`, `where` or both".to_owned();
        return Err(reader.report_at(number, &path, Problem::Refused { message }));
    }
    Ok(filter)
}

/// A mapping of fields, each with the tests that it must pass.
fn read_where(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<Vec<Condition>> {
    let mut mapping = reader.mapping(field)?;
    let fields: Vec<_> = mapping
        .take_all()
        .map(|(name, tests)| {
            let path = read_path(reader, &tests, name);
            let tests = read_tests(reader, &tests)?;
            let path = path?;
            Ok(tests.into_iter().map(move |test| Condition {
                field: path.clone(),
                test,
            }))
        })
        .collect();
    let fields: Vec<_> = fields.into_iter().collect::<Read<_>>()?;
    Ok(fields.into_iter().flatten().collect())
}

/// The path that a key stands for.
fn read_path(reader: &mut Reader<'_>, field: &Field<'_>, name: &str) -> Read<Vec<String>> {
    let path: Vec<String> = name.split('.').map(str::to_owned).collect();
    match path.iter().any(|name| name.is_empty() || name.trim() != name) {
        false => {
            note_unknown_fact(reader, field, &path);
            Ok(path)
        }
        true => {
            let message = "no field's name: expected one such as `status` or `before.customer.id`".to_owned();
            Err(reader.report_key(field, Problem::Refused { message }))
        }
    }
}

const TESTS: &str = "a test such as {eq: placed}, of eq, ne, in, not_in, exists, regex, gt, gte, lt, lte";

fn read_tests(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<Vec<Test>> {
    let found = match &field.node.value {
        Value::Mapping(pairs) if pairs.is_empty() => Some("none".to_owned()),
        Value::Mapping(_) => None,
        value => Some(describe(value)),
    };
    if let Some(found) = found {
        return Err(reader.unexpected(field, TESTS, found));
    }
    let mut mapping = reader.mapping(field)?;
    let none_of = |of| Test::NoneOf { of, or_missing: true };
    let mut tests = Vec::new();
    for (word, order) in COMPARISONS {
        tests.push(optional(mapping.take(word), |field| {
            Ok(Test::Compares(order, read_literal(reader, field)?))
        }));
    }
    tests.extend([
        optional(mapping.take("eq"), |field| {
            Ok(Test::OneOf(vec![read_literal(reader, field)?]))
        }),
        optional(mapping.take("ne"), |field| {
            Ok(none_of(vec![read_literal(reader, field)?]))
        }),
        optional(mapping.take("in"), |field| {
            read_literals(reader, field).map(Test::OneOf)
        }),
        optional(mapping.take("not_in"), |field| {
            read_literals(reader, field).map(none_of)
        }),
        optional(mapping.take("exists"), |field| reader.boolean(field).map(Test::Exists)),
        optional(mapping.take("regex"), |field| {
            read_regex(reader, field).map(Test::Matches)
        }),
    ]);
    reader.finish(mapping);
    tests.into_iter().filter_map(Result::transpose).collect()
}

const COMPARISONS: [(&str, Comparison); 4] = [
    ("lt", Comparison::Less),
    ("lte", Comparison::LessOrEqual),
    ("gt", Comparison::Greater),
    ("gte", Comparison::GreaterOrEqual),
];

fn read_literals(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<Vec<Literal>> {
    let items = reader.list(field)?;
    if items.is_empty() {
        return Err(reader.unexpected(field, "one value or more", "an empty list".to_owned()));
    }
    let literals: Vec<_> = items.iter().map(|item| read_literal(reader, item)).collect();
    literals.into_iter().collect()
}

fn read_literal(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<Literal> {
    for takes in [Takes::Integer(i64::MIN..=i64::MAX), Takes::Boolean] {
        reader.asked.value(&field.path, || takes);
    }
    let remedy = match &field.node.value {
        Value::Text(_) => return Ok(Literal::Text(reader.text(field)?.value)),
        Value::Integer(number) => return Ok(Literal::Integer(*number)),
        Value::Bool(flag) => return Ok(Literal::Boolean(*flag)),
        Value::Null => Some("write `exists: false` for fields that are null".to_owned()),
        Value::Float(_) => Some("quote it, with the digits that the field has".to_owned()),
        Value::List(_) | Value::Mapping(_) | Value::Tagged => None,
    };
    let (expected, found) = (
        "text, a whole number, true or false".to_owned(),
        describe(&field.node.value),
    );
    Err(reader.report(
        field,
        Problem::Unexpected {
            expected,
            found,
            remedy,
        },
    ))
}

/// As written, since `$` has a meaning there; it must match a field's whole text.
fn read_regex(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<Regex> {
    let source = reader.as_written(field, Takes::Text(Form::Any))?;
    route::whole(source).map_err(|err| reader.refuse(field, err.to_string()))
}

/// DeltaForge's: tables to keep in place of tables to look at, outbox events among the others, conditions as a list.
fn read_theirs(reader: &mut Reader<'_>, mut mapping: Mapping<'_>, seen: &mut Seen<'_>) -> Read<Filter> {
    let id = optional(mapping.take("id"), |field| read_id(reader, field, seen));
    let kept_tables = optional(mapping.take("tables"), |field| read_kept_tables(reader, field));
    let operations = optional(mapping.take("ops"), |field| read_their_operations(reader, field));
    let conditions = optional(mapping.take("fields"), |field| {
        let items = reader.list(field)?;
        let conditions: Vec<_> = items.iter().map(|item| read_predicate(reader, item)).collect();
        conditions.into_iter().collect::<Read<Vec<_>>>()
    });
    let demand = optional(mapping.take("match"), |field| {
        reader.word(field, &[("all", Demand::All), ("any", Demand::Any)])
    });
    reader.finish(mapping);
    Ok(Filter {
        id: id?.unwrap_or_else(|| DEFAULT_ID.to_owned()),
        tables: Vec::new(),
        outboxes: true,
        kept_tables: kept_tables?.unwrap_or_default(),
        operations: operations?.flatten(),
        conditions: conditions?.unwrap_or_default(),
        demand: demand?.unwrap_or_default(),
    })
}

fn read_kept_tables(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<KeptTables> {
    let mut mapping = reader.mapping(field)?;
    let mut patterns = |name| {
        optional(mapping.take(name), |field| {
            read_patterns(reader, field, OutboxPattern::parse)
        })
    };
    let (include, exclude) = (patterns("include"), patterns("exclude"));
    reader.finish(mapping);
    Ok(KeptTables {
        include: include?.unwrap_or_default(),
        exclude: exclude?.unwrap_or_default(),
    })
}

/// None: all. Rows that are read for a snapshot are none of what there is here.
fn read_their_operations(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<Option<Vec<Operation>>> {
    let items = reader.list(field)?;
    let words = [
        ("create", Some(Operation::Insert)),
        ("update", Some(Operation::Update)),
        ("delete", Some(Operation::Delete)),
        ("truncate", Some(Operation::Truncate)),
        ("read", None),
    ];
    let operations: Vec<_> = items.iter().map(|item| reader.word(item, &words)).collect();
    let operations: Vec<Option<Operation>> = operations.into_iter().collect::<Read<_>>()?;
    Ok((!operations.is_empty()).then(|| operations.into_iter().flatten().collect()))
}

#[derive(Clone, Copy)]
enum Predicate {
    Equal,
    NotEqual,
    Exists(bool),
    In,
    NotIn,
    Matches,
    Compares(Comparison),
    NotHere(&'static str),
}

const PREDICATES: [(&str, Predicate); 13] = [
    ("eq", Predicate::Equal),
    ("ne", Predicate::NotEqual),
    ("exists", Predicate::Exists(true)),
    ("not_exists", Predicate::Exists(false)),
    ("in", Predicate::In),
    ("not_in", Predicate::NotIn),
    ("regex", Predicate::Matches),
    ("gt", Predicate::Compares(Comparison::Greater)),
    ("gte", Predicate::Compares(Comparison::GreaterOrEqual)),
    ("lt", Predicate::Compares(Comparison::Less)),
    ("lte", Predicate::Compares(Comparison::LessOrEqual)),
    ("contains", Predicate::NotHere("contains")),
    ("changed", Predicate::NotHere("changed")),
];

/// `{path, op, value}`, of the new row.
fn read_predicate(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<Condition> {
    let mut mapping = reader.mapping(field)?;
    let path = reader
        .require(&mut mapping, "path", "a field of the new row")
        .and_then(|field| {
            let name = reader.filled(&field)?;
            read_path(reader, &field, &format!("after.{name}"))
        });
    let predicate = reader
        .require(&mut mapping, "op", "`eq` or another test")
        .and_then(|field| match reader.word(&field, &PREDICATES)? {
            Predicate::NotHere(word) => {
                let what = format!("the test `{word}`");
                Err(reader.report(&field, Problem::NotSupported { what, remedy: None }))
            }
            predicate => Ok(predicate),
        });
    let value = mapping.take("value");
    let (number, at) = mapping.whole();
    reader.finish(mapping);
    let test = predicate.and_then(|predicate| {
        if let Predicate::Exists(wanted) = predicate {
            // There a value has no effect.
            return Ok(Test::Exists(wanted));
        }
        let value = value.ok_or_else(|| {
            let expected = "what the field is held against".to_owned();
            reader.report_at(number, &join(&at, "value"), Problem::MissingKey { expected })
        })?;
        match predicate {
            Predicate::Equal => Ok(Test::OneOf(vec![read_literal(reader, &value)?])),
            Predicate::NotEqual => Ok(Test::NoneOf {
                of: vec![read_literal(reader, &value)?],
                or_missing: false,
            }),
            Predicate::In => read_literals(reader, &value).map(Test::OneOf),
            Predicate::NotIn => read_literals(reader, &value).map(|of| Test::NoneOf { of, or_missing: true }),
            Predicate::Compares(order) => Ok(Test::Compares(order, read_literal(reader, &value)?)),
            Predicate::Matches | Predicate::Exists(_) | Predicate::NotHere(_) => {
                let source = reader.as_written(&value, Takes::Text(Form::Any))?;
                // Anywhere in the text.
                let regex = route::anywhere(source).map_err(|err| reader.refuse(&value, err.to_string()))?;
                Ok(Test::Matches(regex))
            }
        }
    });
    Ok(Condition {
        field: path?,
        test: test?,
    })
}
