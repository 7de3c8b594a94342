//! Spans of batches and events, as a collector gets them.

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use prost::Message;

use crate::support::relay::{Relay, free_address};
use crate::support::target::{Answer, Target};
use crate::support::{DEADLINE, Emit, TestBed, eventually};

const PIPELINE: &str = "
apiVersion: tailpost/v1
kind: Pipeline
metadata: {name: <name>}
spec:
  source: {type: postgres, config: {<source>, outbox: {<outbox>}}}
  processors: [{type: outbox, <topic> raw_payload: true, columns: {trace: span}}]
  sinks: [<sink>]
  dead_letter: {type: sqlite, config: {path: dead.sqlite}}
";

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// The context of a span of that trace with this number.
fn traceparent(span: u64, flags: &str) -> String {
    format!("00-{TRACE}-{span:016x}-{flags}")
}

fn message(span: Option<&str>, payload: u32) -> String {
    let span = span.map(|span| format!(r#""span": "{span}", "#)).unwrap_or_default();
    format!(r#"{{{span}"aggregate_id": "{payload}", "payload": {payload}}}"#)
}

/// A pipeline to Kafka.
fn to_kafka(bed: &TestBed) -> Relay {
    let pipeline = PIPELINE
        .replace("<topic>", "topic: '<topic>',")
        .replace("<sink>", "{type: kafka, config: {id: k1, brokers: '<brokers>'}}");
    bed.kafka.create_topic(&bed.events(), 1, &[]);
    bed.relay(&pipeline)
}

fn start(relay: &mut Relay, collector: &str) {
    relay.start_with(&["--otlp", collector]);
    relay.wait_ready();
}

/// All spans that a collector got, and their attributes.
fn spans(collector: &Target) -> Vec<(Span, BTreeMap<String, String>)> {
    let mut all = Vec::new();
    for request in collector.requests() {
        assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/v1/traces"));
        assert_eq!(request.header("content-type"), Some("application/x-protobuf"));
        let decoded = ExportTraceServiceRequest::decode(&request.body[..]).expect("spans");
        for resource in decoded.resource_spans {
            let of = &resource.resource.expect("a resource").attributes;
            let name = of.iter().find(|pair| pair.key == "service.name").expect("a name");
            assert_eq!(name.value.as_ref().map(text).as_deref(), Some("tailpost"));
            all.extend(resource.scope_spans.into_iter().flat_map(|scope| scope.spans));
        }
    }
    let with_attributes = all.into_iter().map(|span| {
        let pairs = span.attributes.iter();
        let pairs = pairs.map(|pair| (pair.key.clone(), pair.value.as_ref().map(text).unwrap_or_default()));
        let attributes = pairs.collect();
        (span, attributes)
    });
    with_attributes.collect()
}

fn text(value: &opentelemetry_proto::tonic::common::v1::AnyValue) -> String {
    match &value.value {
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::IntValue(number)) => number.to_string(),
        other => panic!("{other:?}"),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn is_send(span: &Span) -> bool {
    span.kind() == SpanKind::Producer
}

#[test]
fn an_event_with_a_context_is_a_span_in_the_application_s_trace() {
    let bed = TestBed::new();
    let collector = Target::new(|_, _| Answer::Status(200));
    let mut relay = to_kafka(&bed);
    start(&mut relay, &collector.url());
    let mut app = bed.app();
    let contexts = [
        Some(traceparent(1, "01")),
        Some(traceparent(2, "00")),
        None,
        Some(traceparent(4, "01")),
    ];
    for (payload, context) in (1..).zip(&contexts) {
        app.emit("outbox", &message(context.as_deref(), payload));
    }
    relay.wait_published(4);
    relay.sigterm();
    assert_eq!(relay.wait_exit(DEADLINE), 0);

    let spans = spans(&collector);
    let parents: Vec<String> = spans
        .iter()
        .filter(|(span, _)| is_send(span))
        .map(|(span, _)| hex(&span.parent_span_id))
        .collect();
    assert_eq!(parents, ["0000000000000001", "0000000000000004"]);
    let (batches, sends): (Vec<_>, Vec<_>) = spans.iter().partition(|(span, _)| !is_send(span));
    for (span, attributes) in &sends {
        assert_eq!(hex(&span.trace_id), TRACE);
        assert!(span.end_time_unix_nano >= span.start_time_unix_nano);
        assert_eq!(span.name, format!("send {}", bed.events()));
        assert_eq!(
            span.status.as_ref().map(|status| status.code()),
            Some(StatusCode::Unset)
        );
        for (name, expected) in [
            ("messaging.system", "kafka"),
            ("messaging.operation.name", "send"),
            ("messaging.destination.name", bed.events().as_str()),
            ("messaging.message.body.size", "1"),
            ("tailpost.pipeline", bed.name.as_str()),
            ("tailpost.source", "src1"),
            ("tailpost.sink", "k1"),
        ] {
            assert_eq!(attributes.get(name).map(String::as_str), Some(expected), "{name}");
        }
        let link = &span.links[0];
        let batch = batches.iter().find(|(batch, _)| batch.span_id == link.span_id);
        assert_eq!(batch.expect("its batch").0.trace_id, link.trace_id);
    }
    assert_ne!(sends[0].0.span_id, sends[1].0.span_id);
    let events: u32 = batches
        .iter()
        .map(|(_, of)| of["tailpost.events"].parse::<u32>().unwrap())
        .sum();
    assert_eq!(events, 4);
    assert!(
        batches
            .iter()
            .all(|(span, of)| span.parent_span_id.is_empty() && !of["tailpost.position"].is_empty())
    );

    let mut reader = bed.reader(&["events"]);
    let headers: Vec<Option<String>> = reader
        .exactly(4)
        .iter()
        .map(|record| record.header("traceparent").map(str::to_owned))
        .collect();
    assert_eq!(headers, contexts, "the record has the application's own");
}

#[test]
fn an_event_that_is_refused_has_a_span_with_why() {
    let bed = TestBed::new();
    let collector = Target::new(|_, _| Answer::Status(200));
    let target = Target::new(|request, _| Answer::Status(if request.text() == "2" { 422 } else { 200 }));
    let sink = format!("{{type: http, config: {{id: h1, url: '{}/in'}}}}", target.url());
    let mut relay = bed.relay(&PIPELINE.replace("<topic>", "").replace("<sink>", &sink));
    start(&mut relay, &collector.url());
    let mut app = bed.app();
    for payload in 1..=3 {
        app.emit(
            "outbox",
            &message(Some(&traceparent(u64::from(payload), "01")), payload),
        );
    }
    relay.wait_settled(3);
    relay.sigterm();
    assert_eq!(relay.wait_exit(DEADLINE), 0);
    let mut errors: Vec<(String, Option<String>)> = spans(&collector)
        .into_iter()
        .filter(|(span, _)| is_send(span))
        .map(|(span, mut attributes)| {
            assert_eq!(span.name, "send");
            let error = attributes.remove("error.type");
            let code = span.status.as_ref().map(|status| status.code());
            assert_eq!(code == Some(StatusCode::Error), error.is_some());
            (hex(&span.parent_span_id), error)
        })
        .collect();
    errors.sort();
    assert_eq!(
        errors,
        [
            ("0000000000000001".to_owned(), None),
            ("0000000000000002".to_owned(), Some("permanent_failure".to_owned())),
            ("0000000000000003".to_owned(), None),
        ]
    );
}

#[test]
fn a_collector_that_is_away_holds_back_nothing() {
    let bed = TestBed::new();
    let mut relay = to_kafka(&bed);
    start(&mut relay, &format!("http://{}", free_address()));
    let messages: Vec<String> = (1..=5000)
        .map(|payload| message(Some(&traceparent(u64::from(payload), "01")), payload))
        .collect();
    bed.app().emit_all("outbox", &messages).expect("write events");
    relay.wait_published(5000);
    let line = relay.wait_log("spans are not exported");
    assert!(line.contains("Connection refused"), "{line}");
    eventually(DEADLINE, "what found no room is counted", || {
        relay.metric("tailpost_spans_dropped_total", &[]) > 0.0
    });
    relay.sigterm();
    assert_eq!(relay.wait_exit(DEADLINE), 0);
}

#[test]
fn a_collector_that_does_not_answer_does_not_hold_up_a_stop() {
    let bed = TestBed::new();
    let collector = Target::new(|_, _| Answer::Hold);
    let mut relay = to_kafka(&bed);
    start(&mut relay, &collector.url());
    bed.app().emit("outbox", &message(Some(&traceparent(1, "01")), 1));
    relay.wait_published(1);
    collector.wait(1);
    relay.sigterm();
    assert_eq!(relay.wait_exit(DEADLINE), 0);
    relay.wait_log("did not take the last spans");
}
