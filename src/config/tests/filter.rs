//! Processors of type `filter`.

use super::*;
use crate::config::pipeline::{Comparison, Demand, Filter, Literal, Test};
use crate::event::Operation;

/// A file whose only processor has these keys.
fn file(version: &str, keys: &str) -> String {
    format!(
        "apiVersion: {version}\nkind: Pipeline\nmetadata: {{name: a}}\nspec:\n  source: {{type: postgres, config: {{id: s, dsn: \
         host=h, slot: s, publication: p, tables: [orders]}}}}\n  processors:\n  - type: filter\n{}\n  sinks: [{{type: \
         kafka, config: {{id: k, brokers: 'h:1', topic: t}}}}]\n",
        keys.lines()
            .map(|line| format!("    {line}"))
            .collect::<Vec<_>>()
            .join("\n")
    )
}

fn ours(keys: &str) -> String {
    file("tailpost/v1", keys)
}

fn theirs(keys: &str) -> String {
    file("deltaforge/v1", keys)
}

fn filter(text: &str) -> Filter {
    let Processor::Filter(filter) = &loaded(text).pipeline.processors[0] else {
        panic!("a filter")
    };
    Filter::clone(filter)
}

/// Conditions in one line each.
fn conditions(filter: &Filter) -> Vec<String> {
    let literal = |literal: &Literal| match literal {
        Literal::Text(text) => format!("'{text}'"),
        Literal::Integer(number) => number.to_string(),
        Literal::Boolean(flag) => flag.to_string(),
    };
    let literals = |of: &[Literal]| of.iter().map(literal).collect::<Vec<_>>().join("|");
    let line = |condition: &pipeline::Condition| {
        let test = match &condition.test {
            Test::OneOf(of) => format!("= {}", literals(of)),
            Test::NoneOf { of, or_missing: true } => format!("!= {} or missing", literals(of)),
            Test::NoneOf { of, or_missing: false } => format!("!= {}", literals(of)),
            Test::Exists(wanted) => format!("exists {wanted}"),
            Test::Matches(regex) => format!("~ {regex}"),
            Test::Compares(Comparison::Less, bound) => format!("< {}", literal(bound)),
            Test::Compares(Comparison::LessOrEqual, bound) => format!("<= {}", literal(bound)),
            Test::Compares(Comparison::Greater, bound) => format!("> {}", literal(bound)),
            Test::Compares(Comparison::GreaterOrEqual, bound) => format!(">= {}", literal(bound)),
        };
        format!("{} {test}", condition.field.join("/"))
    };
    filter.conditions.iter().map(line).collect()
}

#[test]
fn every_key_of_a_filter_is_read() {
    let keys = "id: placed\ntables: [public.orders, 'l*']\noutboxes: true\nops: [insert, update, delete, truncate]\nwhere:\n  \
                status: {eq: placed}\n  before.customer.id: {ne: 5, exists: true}\n  paid: {in: [true, 'no', 1]}\n  \
                kind: {not_in: [a]}\n  total: {gt: 1, gte: 2, lt: 3, lte: '2026'}\n  name: {regex: 'a$|${b}'}\n";
    let found = filter(&ours(keys.replace("|${b}", "|b").as_str()));
    assert_eq!(
        (found.id.as_str(), found.outboxes, found.demand),
        ("placed", true, Demand::All)
    );
    assert!(found.tables[0].matches_table("public", "orders") && found.tables[1].matches_prefix("lines"));
    let all = [
        Operation::Insert,
        Operation::Update,
        Operation::Delete,
        Operation::Truncate,
    ];
    assert_eq!(found.operations.as_deref(), Some(&all[..]));
    assert_eq!(
        conditions(&found),
        [
            "status = 'placed'",
            "before/customer/id != 5 or missing",
            "before/customer/id exists true",
            "paid = true|'no'|1",
            "kind != 'a' or missing",
            "total < 3",
            "total <= '2026'",
            "total > 1",
            "total >= 2",
            r"name ~ \A(?:a$|b)\z",
        ]
    );
    let least = filter(&ours("ops: [delete]"));
    assert_eq!(
        (least.id.as_str(), least.outboxes, least.tables.len()),
        ("filter", false, 0)
    );
    assert!(least.conditions.is_empty());
}

#[test]
fn a_value_is_filled_in_and_an_expression_is_not() {
    let text = ours("where: {region: {eq: '${REGION}'}, kind: {regex: '[a-z]+$'}}");
    let loaded = load_with(&text, &variables(&[("REGION", "eu")])).unwrap();
    let Processor::Filter(filter) = &loaded.pipeline.processors[0] else {
        panic!("a filter")
    };
    assert_eq!(conditions(filter), ["region = 'eu'", r"kind ~ \A(?:[a-z]+$)\z"]);
}

#[test]
fn what_a_filter_cannot_be_is_refused_in_its_place() {
    for (keys, expected) in [
        (
            "id: a",
            "7:5: spec.processors[0]: it keeps everything: expected `ops`, `where` or both",
        ),
        ("where: {}", "spec.processors[0]: it keeps everything"),
        (
            "op: [insert]\nwhere: {a: {eq: b}}",
            "8:5: spec.processors[0].op: unknown key; did you mean `ops`?",
        ),
        (
            "fields: []\nops: [insert]",
            "processors[0].fields: unknown key; expected one of",
        ),
        (
            "ops: []",
            "processors[0].ops: expected one or more of insert, update, delete, truncate, found none",
        ),
        ("ops: insert", "processors[0].ops: expected a list"),
        (
            "ops: [inserts]",
            "8:11: spec.processors[0].ops[0]: expected `insert`, `update`, `delete` or `truncate`, found `inserts`; did you mean `insert`?",
        ),
        ("ops: [create]", "processors[0].ops[0]: expected `insert`"),
        ("ops: [insert]\ntables: orders", "processors[0].tables: expected a list"),
        (
            "ops: [insert]\ntables: {include: [orders]}",
            "processors[0].tables: expected a list",
        ),
        (
            "ops: [insert]\noutboxes: yes please",
            "processors[0].outboxes: expected true or false",
        ),
        ("where: [a]", "processors[0].where: expected a mapping"),
        (
            "where: {status: placed}",
            "8:21: spec.processors[0].where.status: expected a test such as {eq: placed}, of eq, ne, in, not_in, exists, regex, gt, gte, lt, lte, found `placed`",
        ),
        (
            "where: {status: {}}",
            "where.status: expected a test such as {eq: placed}",
        ),
        ("where: {status: {equals: a}}", "where.status.equals: unknown key"),
        (
            "where: {status: {regexp: a}}",
            "where.status.regexp: unknown key; did you mean `regex`?",
        ),
        (
            "where: {status: {eq: ~}}",
            "where.status.eq: expected text, a whole number, true or false, found null; write `exists: false`",
        ),
        (
            "where: {total: {eq: 1.5}}",
            "where.total.eq: expected text, a whole number, true or false, found a number; quote it",
        ),
        (
            "where: {total: {gt: [1]}}",
            "where.total.gt: expected text, a whole number, true or false, found a list",
        ),
        (
            "where: {a: {in: []}}",
            "where.a.in: expected one value or more, found an empty list",
        ),
        ("where: {a: {in: b}}", "where.a.in: expected a list"),
        ("where: {a: {exists: 1}}", "where.a.exists: expected true or false"),
        (
            "where: {a: {regex: '('}}",
            "where.a.regex: no regular expression that can be used",
        ),
        ("where: {a: {regex: 5}}", "where.a.regex: expected text"),
        (
            "where: {a..b: {eq: x}}",
            "no field's name: expected one such as `status`",
        ),
        (
            "ops: [insert]\nid: ''",
            "processors[0].id: expected text that is not empty",
        ),
    ] {
        let line = violation(&ours(keys));
        assert!(line.contains(expected), "{keys}: {line}");
    }
}

#[test]
fn all_that_is_wrong_with_a_filter_is_reported_at_once() {
    let keys = "ops: [x]\nwhere:\n  a: {eq: ~}\n  b: {regex: '('}\n  c: 5\n  d: {zz: 1}\nzz: 1";
    assert_eq!(violations(&ours(keys)).len(), 6, "{:#?}", violations(&ours(keys)));
}

#[test]
fn names_of_processors_are_distinct_over_their_types() {
    let text = ours("id: a\nops: [insert]\n").replace("  sinks:", "  - {type: outbox, id: a}\n  sinks:");
    assert!(violation(&text).contains("processors[1].id: another processor has this id"));
}

#[test]
fn a_filter_takes_no_outbox() {
    let text = ours("ops: [insert]").replace("tables: [orders]", "tables: [orders], outbox: {prefixes: [a]}");
    let all = notes(&text);
    assert_eq!(all.len(), 1, "{all:#?}");
    assert!(all[0].contains("no processor of type `outbox` takes them"), "{all:#?}");
    let behind = text.replace(
        "  sinks:",
        "  - {type: outbox}\n  - {type: filter, id: b, ops: [delete]}\n  sinks:",
    );
    assert_eq!(notes(&behind), Vec::<String>::new());
}

#[test]
fn a_deltaforge_filter_is_read_with_its_own_keys() {
    let keys = "id: only-active\nops: [create, update, read]\ntables: {include: [shop.orders], exclude: ['*.tmp']}\nmatch: any\nfields:\n\
                - {path: status, op: eq, value: active}\n- {path: a.b, op: ne, value: 1}\n- {path: c, op: exists}\n\
                - {path: c, op: not_exists, value: 5}\n- {path: d, op: in, value: [x, y]}\n- {path: d, op: not_in, value: [x]}\n\
                - {path: e, op: gte, value: 100}\n- {path: f, op: regex, value: '^ab'}\n";
    let found = filter(&theirs(keys));
    assert_eq!(
        (found.id.as_str(), found.outboxes, found.demand),
        ("only-active", true, Demand::Any)
    );
    assert_eq!(
        found.operations.as_deref(),
        Some(&[Operation::Insert, Operation::Update][..])
    );
    assert!(found.tables.is_empty() && found.kept_tables.include[0].matches_table("shop", "orders"));
    assert!(found.kept_tables.exclude[0].matches_table("any", "tmp"));
    assert_eq!(
        conditions(&found),
        [
            "after/status = 'active'",
            "after/a/b != 1",
            "after/c exists true",
            "after/c exists false",
            "after/d = 'x'|'y'",
            "after/d != 'x' or missing",
            "after/e >= 100",
            "after/f ~ ^ab",
        ]
    );
    let least = filter(&theirs("ops: []"));
    assert_eq!((least.operations, least.demand), (None, Demand::All));
    assert_eq!(filter(&theirs("ops: [read]")).operations.as_deref(), Some(&[][..]));
}

#[test]
fn what_a_deltaforge_filter_cannot_be_is_refused() {
    for (keys, expected) in [
        ("where: {a: {eq: b}}", "processors[0].where: unknown key"),
        ("tables: [a]", "processors[0].tables: expected a mapping"),
        ("ops: [insert]", "processors[0].ops[0]: expected `create`"),
        ("match: some", "processors[0].match: expected `all` or `any`"),
        ("fields: [{op: eq, value: 1}]", "fields[0].path: missing key"),
        ("fields: [{path: a, value: 1}]", "fields[0].op: missing key"),
        ("fields: [{path: a, op: eq}]", "fields[0].value: missing key"),
        (
            "fields: [{path: a, op: contains, value: b}]",
            "fields[0].op: the test `contains` is not supported",
        ),
        (
            "fields: [{path: a, op: changed}]",
            "fields[0].op: the test `changed` is not supported",
        ),
        ("fields: [{path: a, op: like, value: b}]", "fields[0].op: expected `eq`"),
        (
            "fields: [{path: a, op: in, value: b}]",
            "fields[0].value: expected a list",
        ),
        (
            "fields: [{path: a, op: regex, value: '('}]",
            "fields[0].value: no regular expression",
        ),
        (
            "fields: [{path: a, op: eq, value: 1, flags: i}]",
            "fields[0].flags: unknown key",
        ),
        (
            "fields: [{path: '', op: exists}]",
            "fields[0].path: expected text that is not empty",
        ),
    ] {
        let line = violation(&theirs(keys));
        assert!(line.contains(expected), "{keys}: {line}");
    }
}
