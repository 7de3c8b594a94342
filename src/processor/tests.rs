//! The chain: who takes an event, and what becomes of those that nobody takes.

use super::sample::*;
use super::*;
use crate::config::pipeline::{ErrorPolicies, ErrorPolicy, OnUpdate};
use crate::event::Operation;
use crate::event::{Origin, Oversized};
use crate::position::{EventPosition, Lsn, PostgresEventPosition};
use crate::row::ColumnKind;

#[test]
fn the_first_processor_whose_tables_match_takes_the_event() {
    let named = |tables: &[&str], topic: &str| pipeline::Outbox {
        tables: tables.iter().map(|name| pattern(name)).collect(),
        default_topic: Some(topic.to_owned()),
        ..outbox()
    };
    let outboxes = vec![
        named(&["orders"], "first"),
        named(&["public.orders_outbox", "orders"], "second"),
        named(&["orders_outbox"], "third"),
    ];
    let mut chain = chain(outboxes, &sink(None, None));

    assert_eq!(&*published(chain.process(message_to("orders", "x"))).topic, "first");
    let row = outbox_row(&[("payload", ColumnKind::Text, text("x"))]);
    assert_eq!(&*published(chain.process(row)).topic, "second");
    let (kind, text) = failed(chain.process(message_to("payments", "secret")));
    assert_eq!(kind, ErrorKind::Unroutable);
    assert_eq!(
        text,
        "outbox message with prefix `payments` at 00000016B374D848-00000016B374D800-2: no outbox processor takes it: \
         expected one whose `tables` match, or one without `tables`"
    );
}

#[test]
fn other_changes_of_outbox_rows_are_skipped_and_counted() {
    let table = table(
        "orders_outbox",
        &[("id", ColumnKind::Uuid), ("payload", ColumnKind::Json)],
    );
    let values = || Some(vec![text("1"), text("{}")]);
    let labels = [
        (Operation::Update, "outbox_update"),
        (Operation::Delete, "outbox_delete"),
        (Operation::Truncate, "outbox_truncate"),
    ];
    for outboxes in [vec![], vec![outbox()]] {
        let mut chain = chain(outboxes, &sink(None, None));
        for (operation, label) in labels {
            match chain
                .process(row(Selection::Outbox, operation, &table, values(), values()))
                .unwrap()
            {
                Outcome::Skip(reason) => assert_eq!(reason.label(), label),
                outcome => panic!("{outcome:?}"),
            }
        }
    }
}

#[test]
fn the_processor_whose_outbox_was_updated_has_the_say() {
    let of = |table: &str, on_update| pipeline::Outbox {
        tables: vec![pattern(table)],
        on_update,
        ..outbox()
    };
    let outboxes = vec![
        of("a", OnUpdate::Skip),
        of("b", OnUpdate::Warn),
        of("c", OnUpdate::Halt),
        of("*", OnUpdate::Halt),
    ];
    let policies = ErrorPolicies {
        invalid: ErrorPolicy::DeadLetter,
        unroutable: ErrorPolicy::DeadLetter,
        rejected: ErrorPolicy::DeadLetter,
    };
    let mut chain = chain(outboxes, &sink(None, None));
    let mut updated =
        |name: &str, selection| chain.process(row(selection, Operation::Update, &table(name, &[]), None, None));
    let skipped = updated("a", Selection::Outbox).unwrap();
    assert_eq!(skipped, Outcome::Skip(SkipReason::OutboxUpdate));
    for (name, policy, word) in [
        ("b", ErrorPolicy::Skip, "skip"),
        ("c", ErrorPolicy::Halt, "warn"),
        ("d", ErrorPolicy::Halt, "warn"),
    ] {
        let error = updated(name, Selection::Outbox).unwrap_err();
        assert_eq!(error.policy(&policies), policy);
        assert_eq!(
            (error.policy_key(), error.skip_reason()),
            ("on_update", SkipReason::OutboxUpdate)
        );
        let text = error.to_string();
        for part in [
            format!("outbox row of `public.{name}` at 0"),
            format!("`on_update: {word}`"),
        ] {
            assert!(text.contains(&part), "`{part}`: {text}");
        }
    }
    let error = updated("c", Selection::Table).unwrap_err();
    assert_eq!(
        error.policy_key(),
        "errors.invalid",
        "an ordinary table's, and without its row"
    );
}

#[test]
fn what_was_too_large_to_keep_is_rejected() {
    let oversized = || Oversized {
        origin: Origin::Table("public.orders".to_owned()),
        bytes: 70_000_000,
        limit: 67_108_864,
    };
    for selection in [Selection::Outbox, Selection::Table] {
        let (kind, text) = failed(only(outbox()).process(event(selection, Change::Oversized(oversized()))));
        assert_eq!(kind, ErrorKind::Rejected);
        for word in ["`public.orders`", "70000000", "67108864", "`max_message_bytes`"] {
            assert!(text.contains(word), "{text}");
        }
    }
}

#[test]
fn ordinary_rows_pass_the_processors() {
    let mut chain = chain(vec![outbox()], &sink(Some("cdc.${source.table}"), None));
    let table = table("orders", &[("id", ColumnKind::Integer)]);
    let record = published(chain.process(row(
        Selection::Table,
        Operation::Insert,
        &table,
        None,
        Some(vec![text("1")]),
    )));
    assert_eq!(&*record.topic, "cdc.orders");
    assert_eq!(record.headers, []);
}

#[test]
fn the_same_event_gives_the_same_record() {
    let mut chain = chain(
        vec![pipeline::Outbox {
            raw_payload: false,
            ..outbox()
        }],
        &sink(Some("t"), None),
    );
    let table = table("orders", &[("id", ColumnKind::Integer)]);
    for event in [
        message("[1]"),
        row(Selection::Table, Operation::Insert, &table, None, Some(vec![text("1")])),
    ] {
        let first = published(chain.process(event.clone()));
        published(chain.process(message("{\"payload\":2,\"topic\":\"other\"}")));
        assert_eq!(published(chain.process(event)), first);
    }
}

#[test]
fn a_message_that_is_a_unit_by_itself_has_its_lsn_for_an_id() {
    let mut event = message("x");
    event.position = EventPosition::Postgres(PostgresEventPosition {
        base: Lsn(0xABC),
        partial: None,
        last_event_end: Lsn(0),
        xid: None,
    });
    assert_eq!(
        header(&published(only(outbox()).process(event)), "df-event-id"),
        Some("0000000000000ABC")
    );
}

#[test]
fn an_error_is_small_enough_for_the_hot_path() {
    assert!(size_of::<Result<Outcome, ProcessError>>() <= 160);
}
