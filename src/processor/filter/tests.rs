use bytes::Bytes;
use regex::Regex;

use super::*;
use crate::config::pattern::OutboxPattern;
use crate::event::{Change, Origin, Oversized};
use crate::processor::Chain;
use crate::processor::sample::{self, *};
use crate::row::{ColumnKind, Value};

fn filter() -> pipeline::Filter {
    pipeline::Filter {
        id: "filter".to_owned(),
        tables: Vec::new(),
        outboxes: false,
        kept_tables: KeptTables::default(),
        operations: None,
        conditions: Vec::new(),
        demand: Demand::All,
    }
}

fn condition(field: &str, test: Test) -> pipeline::Condition {
    pipeline::Condition {
        field: field.split('.').map(str::to_owned).collect(),
        test,
    }
}

fn by(field: &str, test: Test) -> pipeline::Filter {
    pipeline::Filter {
        conditions: vec![condition(field, test)],
        ..filter()
    }
}

fn literal(text: &str) -> Literal {
    Literal::Text(text.to_owned())
}

fn equals(text: &str) -> Test {
    Test::OneOf(vec![literal(text)])
}

fn differs(text: &str) -> Test {
    Test::NoneOf {
        of: vec![literal(text)],
        or_missing: true,
    }
}

fn whole(regex: &str) -> Test {
    Test::Matches(Regex::new(&format!(r"\A(?:{regex})\z")).unwrap())
}

fn patterns(texts: &[&str]) -> Vec<OutboxPattern> {
    texts.iter().map(|text| pattern(text)).collect()
}

/// The filter before an outbox processor and a sink that take everything.
fn chain_of(config: pipeline::Filter) -> Chain {
    let processors = [
        pipeline::Processor::Filter(Box::new(config)),
        pipeline::Processor::Outbox(Box::new(outbox())),
    ];
    sample::chain_of(&processors, &sink(Some("t"), None))
}

fn keeps(config: &pipeline::Filter, event: ChangeEvent) -> bool {
    match chain_of(config.clone()).process(event).expect("an outcome") {
        Outcome::Publish(_) => true,
        Outcome::Skip(reason) => {
            assert_eq!(reason.label(), "filtered");
            false
        }
        Outcome::Wait => panic!("a filter waits for nothing"),
    }
}

const COLUMNS: [(&str, ColumnKind); 5] = [
    ("id", ColumnKind::Integer),
    ("status", ColumnKind::Text),
    ("total", ColumnKind::Numeric),
    ("paid", ColumnKind::Boolean),
    ("doc", ColumnKind::Json),
];

fn cells(status: Value) -> Vec<Value> {
    vec![
        text("1"),
        status,
        text("100.00"),
        text("t"),
        text(r#"{"a":{"b":"x"},"n":null,"l":[1]}"#),
    ]
}

fn change(operation: Operation, before: Option<Vec<Value>>, after: Option<Vec<Value>>) -> ChangeEvent {
    row(Selection::Table, operation, &table("orders", &COLUMNS), before, after)
}

fn insert(status: Value) -> ChangeEvent {
    change(Operation::Insert, None, Some(cells(status)))
}

#[test]
fn each_test_is_one_of_a_field_s_text() {
    let placed = || insert(text("placed"));
    let null = || insert(Value::Null);
    let of = |texts: &[&str]| texts.iter().map(|text| literal(text)).collect::<Vec<_>>();
    let none_of = |texts: &[&str], or_missing| Test::NoneOf {
        of: of(texts),
        or_missing,
    };
    // The test, and whether it lets pass `placed`, null, and a column that there is not.
    for (test, expected) in [
        (equals("placed"), [true, false, false]),
        (equals("Placed"), [false; 3]),
        (equals(""), [false; 3]),
        (differs("placed"), [false, true, true]),
        (differs("paid"), [true; 3]),
        (none_of(&["placed", "paid"], true), [false, true, true]),
        (none_of(&["paid"], false), [true, false, false]),
        (Test::OneOf(of(&["paid", "placed"])), [true, false, false]),
        (Test::OneOf(of(&["paid", "place"])), [false; 3]),
        (Test::Exists(true), [true, false, false]),
        (Test::Exists(false), [false, true, true]),
        (whole("pl.*d"), [true, false, false]),
        (whole("place"), [false; 3]),
        (whole(".*"), [true, false, false]),
        (Test::Compares(Comparison::Greater, literal("pa")), [true, false, false]),
        (Test::Compares(Comparison::LessOrEqual, literal("pa")), [false; 3]),
        (Test::Compares(Comparison::Greater, Literal::Integer(1)), [false; 3]),
    ] {
        let found = [
            keeps(&by("status", test.clone()), placed()),
            keeps(&by("status", test.clone()), null()),
            keeps(&by("nothing", test.clone()), placed()),
        ];
        assert_eq!(found, expected, "{test:?}");
    }
}

#[test]
fn numbers_and_booleans_are_held_against_values() {
    let holds = |field, test| keeps(&by(field, test), insert(text("placed")));
    let number = |number| Test::OneOf(vec![Literal::Integer(number)]);
    assert!(holds("total", number(100)) && holds("id", number(1)));
    assert!(!holds("total", number(10)) && !holds("status", number(1)));
    assert!(!holds("total", equals("100")), "a text is a text");
    assert!(holds("total", equals("100.00")));
    for (comparison, bounds) in [
        (Comparison::Less, [false, false, true]),
        (Comparison::LessOrEqual, [false, true, true]),
        (Comparison::Greater, [true, false, false]),
        (Comparison::GreaterOrEqual, [true, true, false]),
    ] {
        let found = [99, 100, 101].map(|bound| holds("total", Test::Compares(comparison, Literal::Integer(bound))));
        assert_eq!(found, bounds, "{comparison:?}");
    }
    assert!(holds("paid", Test::OneOf(vec![Literal::Boolean(true)])));
    assert!(!holds("paid", Test::OneOf(vec![Literal::Boolean(false)])));
    assert!(!holds("id", Test::OneOf(vec![Literal::Boolean(true)])));
}

#[test]
fn fields_are_found_where_templates_find_them() {
    let update = || {
        change(
            Operation::Update,
            Some(cells(text("placed"))),
            Some(cells(text("paid"))),
        )
    };
    let delete = || change(Operation::Delete, Some(cells(text("placed"))), None);
    let truncate = || change(Operation::Truncate, None, None);
    for (field, wanted, expected) in [
        ("status", "paid", [true, false, false]),
        ("status", "placed", [false, true, false]),
        ("before.status", "placed", [true, true, false]),
        ("after.status", "paid", [true, false, false]),
        ("doc.a.b", "x", [true, true, false]),
        ("op", "u", [true, false, false]),
        ("op", "t", [false, false, true]),
        ("source.table", "orders", [true; 3]),
        ("source.schema", "public", [true; 3]),
        ("source.db", "shop", [true; 3]),
        ("source.name", "pg1", [true; 3]),
    ] {
        let config = by(field, equals(wanted));
        let found = [update(), delete(), truncate()].map(|event| keeps(&config, event));
        assert_eq!(found, expected, "{field}");
    }
    // An object or a list is there and has no text.
    for field in ["doc", "doc.a", "doc.l"] {
        assert!(keeps(&by(field, Test::Exists(true)), update()), "{field}");
        assert!(!keeps(&by(field, equals("x")), update()) && keeps(&by(field, differs("x")), update()));
    }
    assert!(!keeps(&by("doc.n", Test::Exists(true)), update()));
    assert!(!keeps(&by("doc.a.z", Test::Exists(true)), update()));
}

#[test]
fn what_the_log_does_not_hold_is_kept() {
    let tests = [
        equals("x"),
        differs("x"),
        Test::Exists(true),
        Test::Exists(false),
        whole("x"),
    ];
    let without = |value: Value| {
        let mut cells = cells(value);
        cells[4] = Value::Unchanged;
        cells
    };
    let absent = || without(Value::Absent);
    for test in tests {
        for (field, event) in [
            // TOASTed, and left alone.
            ("doc", change(Operation::Update, None, Some(without(text("x"))))),
            ("doc.a.b", change(Operation::Update, None, Some(without(text("x"))))),
            (
                "after.doc",
                change(Operation::Update, Some(absent()), Some(without(text("x")))),
            ),
            // Outside of the replica identity.
            ("status", change(Operation::Delete, Some(absent()), None)),
            (
                "before.status",
                change(Operation::Update, Some(absent()), Some(cells(text("x")))),
            ),
            ("before.status", change(Operation::Update, None, Some(cells(text("x"))))),
            ("status", change(Operation::Delete, None, None)),
        ] {
            let mut filter = Filter::new(&by(field, test.clone()), "pg1");
            assert!(filter.keeps(&event), "{field} {test:?}");
        }
    }
    // Nor is there a text to be held against anything.
    let not_text = || insert(Value::Text(Bytes::from_static(b"\xff")));
    for test in [equals("x"), differs("x"), whole("x"), Test::Exists(true)] {
        assert!(
            Filter::new(&by("status", test.clone()), "pg1").keeps(&not_text()),
            "{test:?}"
        );
    }
    assert!(!Filter::new(&by("status", Test::Exists(false)), "pg1").keeps(&not_text()));
    // What an old row has is known.
    let event = change(
        Operation::Update,
        Some(cells(text("a"))),
        Some(without(Value::Unchanged)),
    );
    assert!(keeps(&by("status", equals("a")), event.clone()) && !keeps(&by("status", equals("b")), event));
}

#[test]
fn operations_that_are_not_asked_for_end_there() {
    let row = || Some(cells(text("placed")));
    let events = || {
        [
            change(Operation::Insert, None, row()),
            change(Operation::Update, row(), row()),
            change(Operation::Delete, row(), None),
            change(Operation::Truncate, None, None),
        ]
    };
    for (operations, expected) in [
        (None, [true; 4]),
        (Some(vec![]), [false; 4]),
        (
            Some(vec![Operation::Insert, Operation::Delete]),
            [true, false, true, false],
        ),
        (Some(vec![Operation::Truncate]), [false, false, false, true]),
    ] {
        let config = pipeline::Filter { operations, ..filter() };
        assert_eq!(events().map(|event| keeps(&config, event)), expected);
    }
}

#[test]
fn all_conditions_must_hold_or_any() {
    let conditions = |status: &str, total: i128| {
        vec![
            condition("status", equals(status)),
            condition("total", Test::OneOf(vec![Literal::Integer(total)])),
        ]
    };
    for (status, total, [all, any]) in [
        ("placed", 100, [true, true]),
        ("placed", 1, [false, true]),
        ("paid", 100, [false, true]),
        ("paid", 1, [false, false]),
    ] {
        for (demand, expected) in [(Demand::All, all), (Demand::Any, any)] {
            let config = pipeline::Filter {
                conditions: conditions(status, total),
                demand,
                ..filter()
            };
            assert_eq!(
                keeps(&config, insert(text("placed"))),
                expected,
                "{status} {total} {demand:?}"
            );
        }
    }
    let config = pipeline::Filter {
        demand: Demand::Any,
        ..filter()
    };
    assert!(keeps(&config, insert(text("placed"))), "there is none to hold");
}

#[test]
fn changes_of_other_tables_pass() {
    let config = |tables: &[&str]| pipeline::Filter {
        tables: patterns(tables),
        operations: Some(vec![]),
        ..filter()
    };
    for (tables, expected) in [
        (&["public.orders"][..], false),
        (&["orders"], false),
        (&["lines", "pub*.ord*"], false),
        (&["lines"], true),
        (&["shop.orders"], true),
    ] {
        assert_eq!(keeps(&config(tables), insert(text("placed"))), expected, "{tables:?}");
    }
}

#[test]
fn tables_to_keep_are_those_that_are_included_and_not_excluded() {
    for (include, exclude, expected) in [
        (&[][..], &[][..], true),
        (&["orders"], &[], true),
        (&["lines"], &[], false),
        (&[], &["orders"], false),
        (&["public.*"], &["lines"], true),
        (&["public.*"], &["public.orders"], false),
    ] {
        let config = pipeline::Filter {
            kept_tables: KeptTables {
                include: patterns(include),
                exclude: patterns(exclude),
            },
            ..filter()
        };
        assert_eq!(
            keeps(&config, insert(text("placed"))),
            expected,
            "{include:?} {exclude:?}"
        );
    }
}

#[test]
fn outbox_events_pass_unless_they_are_asked_for() {
    let inserted = || {
        outbox_row(&[
            ("payload", ColumnKind::Text, text("1")),
            ("event_type", ColumnKind::Text, text("a")),
        ])
    };
    let message = || message(r#"{"payload": {"n": 5}, "event_type": "a"}"#);
    let none = pipeline::Filter {
        operations: Some(vec![]),
        ..filter()
    };
    assert!(keeps(&none, inserted()) && keeps(&none, message()));
    let outboxes = |config| pipeline::Filter {
        outboxes: true,
        ..config
    };
    let none = outboxes(none);
    assert!(!keeps(&none, inserted()) && !keeps(&none, message()));
    for (field, test, expected) in [
        ("event_type", equals("a"), [true, true]),
        ("after.event_type", equals("a"), [true, true]),
        ("event_type", equals("b"), [false, false]),
        ("payload.n", Test::OneOf(vec![Literal::Integer(5)]), [false, true]),
        ("op", equals("c"), [true, true]),
        ("source.table", equals("outbox"), [false, true]),
        ("source.schema", Test::Exists(true), [true, false]),
        ("before.payload", Test::Exists(true), [false, false]),
    ] {
        let config = outboxes(by(field, test));
        assert_eq!(
            [inserted(), message()].map(|event| keeps(&config, event)),
            expected,
            "{field}"
        );
    }
    let other = pipeline::Filter {
        tables: patterns(&["orders_outbox"]),
        ..none
    };
    assert!(!keeps(&other, inserted()) && keeps(&other, message()));
    // What is no event anyway is counted as what it is.
    let update = row(
        Selection::Outbox,
        Operation::Update,
        &table("orders_outbox", &COLUMNS),
        None,
        Some(cells(Value::Null)),
    );
    let outcome = chain_of(other).process(update).unwrap();
    assert_eq!(outcome, Outcome::Skip(SkipReason::OutboxUpdate));
    // A message that is no object has no members.
    let plain = outboxes(by("event_type", Test::Exists(false)));
    assert!(keeps(&plain, message_to("outbox", "plain text")));
}

#[test]
fn what_was_too_large_to_keep_is_not_the_filter_s() {
    let oversized = Oversized {
        origin: Origin::Table("public.orders".to_owned()),
        bytes: 2,
        limit: 1,
    };
    let config = pipeline::Filter {
        operations: Some(vec![]),
        outboxes: true,
        ..filter()
    };
    failed(chain_of(config).process(event(Selection::Table, Change::Oversized(oversized))));
}

#[test]
fn what_is_filtered_out_is_counted_by_the_filter() {
    let config = pipeline::Filter {
        id: "paid".to_owned(),
        ..by("status", equals("paid"))
    };
    let mut chain = chain_of(config);
    for status in ["paid", "placed", "placed"] {
        chain.process(insert(text(status))).unwrap();
    }
    let counts: Vec<_> = chain.take_counts().map(|(id, count)| (id.to_string(), count)).collect();
    assert_eq!(counts, [("paid".to_owned(), 2), ("outbox".to_owned(), 0)]);
}

/// Misspelt, it takes away all of a table.
#[test]
fn a_column_that_a_table_does_not_have_is_told_once() {
    let mut chain = chain_of(by("sttaus.state", equals("new")));
    for unknown in [&["sttaus.state"][..], &[]] {
        chain.process(insert(text("new"))).unwrap();
        let (id, _, columns) = chain.take_unknown_columns().next().unwrap();
        assert_eq!(&*id, "filter");
        assert_eq!(
            columns.iter().map(|column| column.path.as_str()).collect::<Vec<_>>(),
            unknown
        );
        assert!(columns.iter().all(|column| column.is_meant));
    }
    // What there is of each change, what is to be absent, and what takes nothing away.
    let none_of = |or_missing| Test::NoneOf {
        of: vec![literal("new")],
        or_missing,
    };
    for tables in [Vec::new(), vec![pattern("orders")]] {
        let of_table = !tables.is_empty();
        for (field, test, told) in [
            ("op", equals("u"), None),
            ("deleted_at", Test::Exists(false), None),
            ("deleted_at", differs("new"), Some(of_table)),
            ("deleted_at", none_of(true), Some(of_table)),
            ("deleted_at", none_of(false), Some(true)),
            ("deleted_at", Test::Exists(true), Some(true)),
        ] {
            let mut chain = chain_of(pipeline::Filter {
                tables: tables.clone(),
                ..by(field, test)
            });
            chain.process(insert(text("new"))).unwrap();
            let (_, _, columns) = chain.take_unknown_columns().next().unwrap();
            assert_eq!(columns.first().map(|column| column.is_meant), told, "{field}");
        }
    }
}
