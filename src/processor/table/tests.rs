use std::sync::Arc;

use super::*;
use crate::config::pipeline;
use crate::event::Selection;
use crate::processor::ErrorKind;
use crate::processor::sample::*;
use crate::row::{ColumnKind, Table, Value};

fn orders() -> Arc<Table> {
    table(
        "orders",
        &[
            ("id", ColumnKind::Integer),
            ("kind", ColumnKind::Text),
            ("doc", ColumnKind::Json),
        ],
    )
}

fn update() -> ChangeEvent {
    let old = vec![text("1"), text("old"), Value::Absent];
    let new = vec![text("2"), text("new"), text(r#"{"a":{"b":true}}"#)];
    row(Selection::Table, Operation::Update, &orders(), Some(old), Some(new))
}

fn delete() -> ChangeEvent {
    row(
        Selection::Table,
        Operation::Delete,
        &orders(),
        Some(vec![text("1"), Value::Absent, Value::Absent]),
        None,
    )
}

fn truncate() -> ChangeEvent {
    row(Selection::Table, Operation::Truncate, &orders(), None, None)
}

fn topic(template: &str, event: ChangeEvent) -> String {
    published(chain(vec![], &sink(Some(template), None)).process(event))
        .topic
        .to_string()
}

fn key(template: Option<&str>, event: ChangeEvent) -> Option<String> {
    let record = published(chain(vec![], &sink(Some("t"), template)).process(event));
    record.key.map(|key| String::from_utf8(key.to_vec()).unwrap())
}

#[test]
fn topics_come_from_the_change_and_its_row() {
    assert_eq!(
        topic(
            "${source.name}.${source.db}.${source.schema}.${source.table}.${op}",
            update()
        ),
        "pg1.shop.public.orders.u"
    );
    assert_eq!(topic("${kind}.${id}.${doc.a.b}", update()), "new.2.true");
    assert_eq!(
        topic("${before.kind}.${after.kind}.${after.doc.a.b}", update()),
        "old.new.true"
    );
    assert_eq!(topic("x.${id}", delete()), "x.1");
    assert_eq!(topic("x.${source.table}", truncate()), "x.orders");
}

#[test]
fn a_column_can_be_called_source_or_op() {
    let table = table("orders", &[("source", ColumnKind::Json), ("after", ColumnKind::Text)]);
    let event = || {
        row(
            Selection::Table,
            Operation::Insert,
            &table,
            None,
            Some(vec![text(r#"{"x":"y"}"#), text("z")]),
        )
    };
    assert_eq!(topic("${source.x}.${after}", event()), "y.z");
}

#[test]
fn a_topic_without_its_field_is_unroutable() {
    let unroutable = |template: Option<&str>, event| {
        let (kind, text) = failed(chain(vec![], &sink(template, None)).process(event));
        assert_eq!(kind, ErrorKind::Unroutable, "{text}");
        text
    };
    assert!(unroutable(Some("${kind}"), delete()).contains("the sink's `topic` finds no text in `kind`"));
    unroutable(Some("${doc.a}"), update());
    unroutable(Some("${nothing}"), update());
    unroutable(Some("${id}"), truncate());
    unroutable(Some("${after.id}"), delete());
    assert!(unroutable(Some("a b"), update()).contains("`topic: a b` gives a topic that kafka does not allow"));
    assert!(unroutable(None, update()).contains("the sink has no `topic`; set `topic` of the sink"));
}

/// What a person is told to do is what helps.
#[test]
fn a_topic_or_url_without_its_field_says_what_helps() {
    let nulls = vec![text("1"), Value::Null, Value::Null];
    let cases = [
        ("${kind}", delete(), "REPLICA IDENTITY FULL"),
        (
            "${kind}",
            delete(),
            "in the log already, `errors.unroutable: dead_letter` or `skip`",
        ),
        ("${kind}", truncate(), "ops: [insert, update, delete]"),
        (
            "${kind}",
            row(Selection::Table, Operation::Insert, &orders(), None, Some(nulls)),
            "expected a text, a number or a boolean there",
        ),
    ];
    for (template, event, helps) in cases {
        let (kind, text) = failed(chain(vec![], &sink(Some(template), None)).process(event.clone()));
        assert_eq!(kind, ErrorKind::Unroutable);
        assert!(text.contains(helps) && !text.contains("default_topic"), "{text}");
        let url = crate::processor::sample::template(&format!("http://h/{template}"));
        let (kind, text) = failed(chain_to_url(&[], &url).process(event));
        assert_eq!(kind, ErrorKind::Unroutable);
        assert!(text.contains("no URL") && text.contains(helps), "{text}");
    }
}

/// A change without its key would take another partition than the others of its row.
#[test]
fn a_key_that_the_log_does_not_have_is_invalid_and_a_null_one_is_none() {
    let invalid = |template: &str, event: ChangeEvent| {
        let (kind, text) = failed(chain(vec![], &sink(Some("t"), Some(template))).process(event));
        assert_eq!(kind, ErrorKind::Invalid, "{text}");
        text
    };
    let text_of_delete = invalid("${id}-${kind}", delete());
    for part in [
        "`key`",
        "`kind`",
        "REPLICA IDENTITY FULL",
        "`errors.invalid: dead_letter` or `skip` until it is past",
    ] {
        assert!(text_of_delete.contains(part), "{text_of_delete}");
    }
    invalid("${doc.a}", delete());
    invalid("${before.doc.a}", update());
    let toasted = vec![text("1"), Value::Unchanged, Value::Null];
    invalid(
        "${kind}",
        row(Selection::Table, Operation::Update, &orders(), None, Some(toasted)),
    );
    let nulls = vec![text("1"), Value::Null, Value::Null];
    let inserted = || {
        row(
            Selection::Table,
            Operation::Insert,
            &orders(),
            None,
            Some(nulls.clone()),
        )
    };
    assert_eq!(key(Some("${kind}"), inserted()), None);
    assert_eq!(key(Some("${before.kind}"), inserted()), None);
    assert_eq!(key(Some("${kind}"), truncate()), None);
}

/// The log has an old row where the key was changed, or where it has whole ones.
#[test]
fn the_old_key_of_an_update_that_left_it_alone_is_the_new_row_s() {
    let change = |operation, cells: [Value; 3]| row(Selection::Table, operation, &orders(), None, Some(cells.to_vec()));
    let updated = || change(Operation::Update, [text("7"), text("new"), Value::Null]);
    assert_eq!(key(Some("${before.id}"), updated()).as_deref(), Some("7"));
    assert_eq!(topic("t.${before.id}", updated()), "t.7");
    assert_eq!(key(Some("${before.id}-${after.id}"), update()).as_deref(), Some("1-2"));
    let refused = |key, event| failed(chain(vec![], &sink(Some("t"), Some(key))).process(event)).0;
    assert_eq!(refused("${before.kind}", updated()), ErrorKind::Invalid);
    let toasted = change(Operation::Update, [Value::Unchanged, text("new"), Value::Null]);
    assert_eq!(refused("${before.id}", toasted), ErrorKind::Invalid);
    let inserted = change(Operation::Insert, [text("7"), text("new"), Value::Null]);
    assert_eq!(key(Some("${before.id}"), inserted), None);
}

#[test]
fn an_unchanged_cell_is_read_from_the_old_row() {
    let old = vec![text("1"), text("same"), Value::Absent];
    let new = vec![text("1"), Value::Unchanged, Value::Unchanged];
    let event = || {
        row(
            Selection::Table,
            Operation::Update,
            &orders(),
            Some(old.clone()),
            Some(new.clone()),
        )
    };
    assert_eq!(topic("${kind}.${after.kind}", event()), "same.same");
    let (kind, _) = failed(chain(vec![], &sink(Some("${doc}"), None)).process(event()));
    assert_eq!(kind, ErrorKind::Unroutable);
}

#[test]
fn keys_are_the_table_s_or_the_template_s() {
    assert_eq!(key(None, update()).as_deref(), Some(r#"{"id":2}"#));
    assert_eq!(key(None, delete()).as_deref(), Some(r#"{"id":1}"#));
    assert_eq!(key(None, truncate()), None);
    assert_eq!(
        key(Some("${source.table}-${id}"), update()).as_deref(),
        Some("orders-2")
    );
    assert_eq!(key(Some("${after.kind}"), delete()), None);

    let whole = Arc::new(Table {
        keyed: false,
        ..Table::clone(&orders())
    });
    let event = row(
        Selection::Table,
        Operation::Insert,
        &whole,
        None,
        Some(vec![text("1"), text("a"), Value::Null]),
    );
    assert_eq!(key(None, event), None);
    let no_key = table("plain", &[("a", ColumnKind::Text)]);
    assert_eq!(
        key(
            None,
            row(
                Selection::Table,
                Operation::Insert,
                &no_key,
                None,
                Some(vec![text("a")])
            )
        ),
        None
    );
}

#[test]
fn an_insert_or_update_without_a_new_row_is_invalid() {
    for operation in [Operation::Insert, Operation::Update] {
        let event = row(Selection::Table, operation, &orders(), None, None);
        assert_eq!(
            failed(chain(vec![], &sink(Some("t"), None)).process(event)).0,
            ErrorKind::Invalid
        );
    }
}

#[test]
fn a_key_of_a_column_that_a_table_does_not_have_is_told_once() {
    let mut chain = chain(vec![], &sink(Some("t"), Some("${id}-${kid}-${op}-${before.doc.x}")));
    let mut unknown_after = |event: ChangeEvent| {
        published(chain.process(event));
        let (asker, _, columns) = chain.take_unknown_columns().last().unwrap();
        let told = columns
            .into_iter()
            .map(|column| (column.table, column.path, column.is_meant));
        (asker.to_string(), told.collect::<Vec<_>>())
    };
    let inserted = || {
        row(
            Selection::Table,
            Operation::Insert,
            &orders(),
            None,
            Some(vec![text("1"), text("a"), Value::Null]),
        )
    };
    let told = vec![("public.orders".to_owned(), "kid".to_owned(), true)];
    assert_eq!(unknown_after(inserted()), ("sink".to_owned(), told));
    // Another description of the same table, as after an ALTER.
    assert_eq!(unknown_after(inserted()).1, []);
}

/// What the sink asks for is in outbox events too.
#[test]
fn an_outbox_event_has_the_same_facts_as_a_row() {
    let facts = "${source.name}.${source.db}.${source.schema}.${source.table}.${op}";
    let outbox = || crate::config::pipeline::Outbox {
        default_topic: None,
        ..outbox()
    };
    let event = || outbox_row(&[("payload", ColumnKind::Text, text("{}"))]);
    let expected = "pg1.shop.public.orders_outbox.c";
    let record = published(chain(vec![outbox()], &sink(Some(facts), Some(facts))).process(event()));
    assert_eq!(
        (&*record.topic, record.key.as_deref()),
        (expected, Some(expected.as_bytes()))
    );
    let url = crate::processor::sample::template("http://h/${source.table}");
    let outboxes = [pipeline::Processor::Outbox(Box::new(outbox()))];
    let record = published(chain_to_url(&outboxes, &url).process(event()));
    assert_eq!(&*record.topic, "http://h/orders_outbox");

    let message = || message(r#"{"payload":1}"#);
    let record =
        published(chain(vec![outbox()], &sink(Some("${source.name}.${source.table}"), None)).process(message()));
    assert_eq!(&*record.topic, "pg1.outbox");
    // A message is in no schema.
    let (kind, _) = failed(chain(vec![outbox()], &sink(Some("${source.schema}"), None)).process(message()));
    assert_eq!(kind, ErrorKind::Unroutable);
    // A field of the application's own comes first.
    let own = crate::processor::sample::message(r#"{"payload":1,"op":"mine","source":{"table":"theirs"}}"#);
    let record = published(chain(vec![outbox()], &sink(Some("${op}.${source.table}"), None)).process(own));
    assert_eq!(&*record.topic, "mine.theirs");
}
