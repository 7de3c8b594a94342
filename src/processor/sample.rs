//! Events and processors for the tests.

use std::sync::Arc;

use bytes::Bytes;

use super::{Chain, ErrorKind, Outcome, ProcessError, SinkTarget, SinkWishes};
use crate::config::pattern::OutboxPattern;
use crate::config::pipeline::{
    self, Columns, Envelope, HeaderNames, HeadersAs, JsonAs, KeyAs, LeftOut, OnMissing, OnNull, OnUpdate, PayloadAs,
    TopicRule,
};
use crate::config::template::Template;
use crate::event::{Change, ChangeEvent, LogMessage, Operation, RowChange, Selection};
use crate::position::{EventPosition, Lsn, Partial, PostgresEventPosition};
use crate::record::Record;
use crate::row::{Column, ColumnKind, Row, Table, Value};

pub(super) fn template(text: &str) -> Template {
    Template::parse(text).unwrap()
}

pub(super) fn rule(text: &str) -> TopicRule {
    TopicRule::Template(template(text))
}

pub(super) fn pattern(text: &str) -> OutboxPattern {
    OutboxPattern::parse(text).unwrap()
}

/// A processor with the file's defaults, but for `raw_payload: true` and a `default_topic`.
pub(super) fn outbox() -> pipeline::Outbox {
    pipeline::Outbox {
        id: "outbox".to_owned(),
        tables: Vec::new(),
        topic: None,
        columns: Columns::default(),
        default_topic: Some("events.default".to_owned()),
        key: None,
        key_as: KeyAs::Text,
        key_schema: None,
        keep_empty_key: false,
        headers_as: HeadersAs::Text,
        json_as: JsonAs::Value,
        header_names: HeaderNames::default(),
        additional_headers: Vec::new(),
        idempotency: None,
        envelope_fields: Vec::new(),
        on_missing: OnMissing::Skip,
        on_null: OnNull::Skip,
        raw_payload: true,
        payload_as: PayloadAs::Raw,
        left_out: LeftOut::default(),
        payload_schema: None,
        tombstone_on_empty: false,
        strict: false,
        on_update: OnUpdate::Skip,
    }
}

pub(super) fn sink(topic: Option<&str>, key: Option<&str>) -> pipeline::Kafka {
    pipeline::Kafka {
        id: "k1".to_owned(),
        brokers: "localhost:9092".to_owned(),
        topic: topic.map(template),
        key: key.map(template),
        envelope: Envelope::Native,
        exactly_once: false,
        transactional_id: "tailpost-p".to_owned(),
        on_fenced: pipeline::OnFenced::StandBy,
        create_topics: None,
        client_conf: Vec::new(),
    }
}

/// A sink whose topic is `t`, with this envelope.
pub(super) fn sink_in(envelope: Envelope) -> pipeline::Kafka {
    pipeline::Kafka {
        envelope,
        ..sink(Some("t"), None)
    }
}

pub(super) fn chain(outboxes: Vec<pipeline::Outbox>, sink: &pipeline::Kafka) -> Chain {
    let processors = outboxes.into_iter().map(Box::new).map(pipeline::Processor::Outbox);
    let processors: Vec<_> = processors.collect();
    chain_of(&processors, sink)
}

/// These processors, before a sink.
pub(super) fn chain_of(processors: &[pipeline::Processor], sink: &pipeline::Kafka) -> Chain {
    let sink = pipeline::Sink::Kafka(sink.clone());
    Chain::between(processors, &SinkWishes::new("pg1", &sink, None), sink.envelope())
}

/// The same where changes of ordinary tables come too.
pub(super) fn chain_beside_tables(outbox: pipeline::Outbox, sink: &pipeline::Kafka) -> Chain {
    let sink = pipeline::Sink::Kafka(sink.clone());
    let wishes = SinkWishes {
        has_tables: true,
        ..SinkWishes::new("pg1", &sink, None)
    };
    let processor = pipeline::Processor::Outbox(Box::new(outbox));
    Chain::between(&[processor], &wishes, sink.envelope())
}

/// The same before a sink that has a URL for each event.
pub(super) fn chain_to_url(processors: &[pipeline::Processor], url: &Template) -> Chain {
    let wishes = SinkWishes {
        source_id: "pg1",
        has_tables: true,
        target: SinkTarget::Url(url),
        key: None,
        about: None,
        audited: &[],
    };
    Chain::between(processors, &wishes, &Envelope::Native)
}

/// One outbox processor before a sink without templates.
pub(super) fn only(outbox: pipeline::Outbox) -> Chain {
    chain(vec![outbox], &sink(None, None))
}

pub(super) fn event(selection: Selection, change: Change) -> ChangeEvent {
    let partial = Partial {
        commit: Lsn(0x16_B374_D848),
        change: Lsn(0x16_B374_D800),
        index: 2,
    };
    ChangeEvent {
        position: EventPosition::Postgres(PostgresEventPosition {
            base: Lsn(0x16_B374_D000),
            partial: Some(partial),
            last_event_end: Lsn(0),
            xid: Some(731),
        }),
        commit_time_us: 1_700_000_000_123_456,
        selection,
        change,
    }
}

pub(super) fn message(content: impl Into<Bytes>) -> ChangeEvent {
    message_to("outbox", content)
}

pub(super) fn message_to(prefix: &str, content: impl Into<Bytes>) -> ChangeEvent {
    let message = LogMessage {
        prefix: Arc::from(prefix),
        content: content.into(),
    };
    event(Selection::Outbox, Change::Message(message))
}

pub(super) fn column(name: &str, kind: ColumnKind) -> Column {
    Column {
        name: name.to_owned(),
        kind,
        key: name == "id",
    }
}

/// `shop.public.<name>`, with its column `id` as the key.
pub(super) fn table(name: &str, columns: &[(&str, ColumnKind)]) -> Arc<Table> {
    Arc::new(Table {
        database: "shop".to_owned(),
        schema: "public".to_owned(),
        name: name.to_owned(),
        columns: columns.iter().map(|(name, kind)| column(name, *kind)).collect(),
        keyed: true,
    })
}

pub(super) fn text(text: &str) -> Value {
    Value::Text(Bytes::copy_from_slice(text.as_bytes()))
}

pub(super) fn row(
    selection: Selection,
    operation: Operation,
    table: &Arc<Table>,
    before: Option<Vec<Value>>,
    after: Option<Vec<Value>>,
) -> ChangeEvent {
    let change = RowChange {
        operation,
        table: Arc::clone(table),
        before: before.map(|values| Row { values }),
        after: after.map(|values| Row { values }),
    };
    event(selection, Change::Row(change))
}

/// A row inserted into an outbox table.
pub(super) fn outbox_row(cells: &[(&str, ColumnKind, Value)]) -> ChangeEvent {
    let columns: Vec<_> = cells.iter().map(|(name, kind, _)| (*name, *kind)).collect();
    let values = cells.iter().map(|(_, _, value)| value.clone()).collect();
    row(
        Selection::Outbox,
        Operation::Insert,
        &table("orders_outbox", &columns),
        None,
        Some(values),
    )
}

#[track_caller]
pub(super) fn published(outcome: Result<Outcome, ProcessError>) -> Record {
    match outcome.expect("a record") {
        Outcome::Publish(record) => record,
        other => panic!("no record: {other:?}"),
    }
}

#[track_caller]
pub(super) fn failed(outcome: Result<Outcome, ProcessError>) -> (ErrorKind, String) {
    let error = outcome.expect_err("an error");
    (error.kind(), error.to_string())
}

pub(super) fn header<'a>(record: &'a Record, name: &str) -> Option<&'a str> {
    let header = record.headers.iter().find(|header| &*header.name == name)?;
    Some(std::str::from_utf8(header.value.as_ref()?).expect("text"))
}
