//! Spans of batches and events, and dispatch records, as a collector gets them.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::logs::v1::{LogRecord, SeverityNumber};
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use prost::Message;

use crate::support::cli::tailpost;
use crate::support::relay::{Relay, free_address};
use crate::support::target::{Answer, Target};
use crate::support::{ANY_OUTBOX, Bed, DEADLINE, Db, Emit, Event, TestBed, eventually, over_each};

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
            assert_is_ours(&resource.resource.expect("a resource").attributes);
            all.extend(resource.scope_spans.into_iter().flat_map(|scope| scope.spans));
        }
    }
    let with_attributes = all.into_iter().map(|span| {
        let attributes = attributes(&span.attributes);
        (span, attributes)
    });
    with_attributes.collect()
}

/// All records that a collector took, and their attributes.
fn logs(collector: &Target) -> Vec<(LogRecord, BTreeMap<String, String>)> {
    let mut all = Vec::new();
    for request in collector.requests() {
        assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/v1/logs"));
        assert_eq!(request.header("content-type"), Some("application/x-protobuf"));
        let decoded = ExportLogsServiceRequest::decode(&request.body[..]).expect("logs");
        for resource in decoded.resource_logs {
            assert_is_ours(&resource.resource.expect("a resource").attributes);
            let records = resource.scope_logs.into_iter().flat_map(|scope| scope.log_records);
            all.extend(records.map(|record| {
                let attributes = attributes(&record.attributes);
                (record, attributes)
            }));
        }
    }
    all
}

fn assert_is_ours(resource: &[KeyValue]) {
    assert_eq!(attributes(resource)["service.name"], "tailpost");
}

fn attributes(pairs: &[KeyValue]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|pair| (pair.key.clone(), pair.value.as_ref().map(text).unwrap_or_default()))
        .collect()
}

fn text(value: &opentelemetry_proto::tonic::common::v1::AnyValue) -> String {
    match &value.value {
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::IntValue(number)) => number.to_string(),
        Some(Value::BoolValue(truth)) => truth.to_string(),
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

/// The pipeline of any database, whose dispatch records go to the collector that is named elsewhere.
fn with_logs() -> String {
    format!("{ANY_OUTBOX}  dispatches: {{type: otlp}}\n")
        .replace("raw_payload: true", "raw_payload: true, columns: {trace: event_type}")
}

/// The same, to this one.
fn with_logs_to(collector: &str) -> String {
    with_logs().replace(
        "{type: otlp}",
        &format!("{{type: otlp, config: {{endpoint: '{collector}'}}}}"),
    )
}

fn drain(relay: &mut Relay) {
    relay.sigterm();
    assert_eq!(relay.wait_exit(DEADLINE), 0);
}

over_each!(each_delivery_is_a_log_record: postgres, mysql);
fn each_delivery_is_a_log_record(db: Db) {
    let bed = Bed::new(db);
    let collector = Target::new(|_, _| Answer::Status(200));
    let mut relay = bed.relay(&with_logs_to(&collector.url()));
    relay.start();
    relay.wait_ready();
    let mut app = bed.app();
    app.emit(&Event::of("1").id("a").key("7").event_type(traceparent(1, "01")));
    relay.wait_published(1);
    drain(&mut relay);
    let before = fs::read(relay.checkpoint_file()).expect("a checkpoint");
    relay.start();
    app.emit(&Event::of("2").id("b").key("7").event_type("placed"));
    relay.wait_published(1);
    drain(&mut relay);
    // PostgreSQL sends nothing again that was confirmed to it.
    let is_rewound = db == Db::Mysql;
    if is_rewound {
        fs::write(relay.checkpoint_file(), before).expect("set it back");
    }
    relay.start();
    app.emit(&Event::of("3").id("c").key("7"));
    relay.wait_published(1 + u64::from(is_rewound));
    drain(&mut relay);

    let logs = logs(&collector);
    let told: Vec<(&str, &str)> = logs
        .iter()
        .map(|(_, of)| (of["outbox_id"].as_str(), of["duplicate_detected"].as_str()))
        .collect();
    let expected = [("a", "false"), ("b", "false"), ("b", "true"), ("c", "false")];
    let expected = expected.into_iter().filter(|told| is_rewound || *told != ("b", "true"));
    assert_eq!(told, expected.collect::<Vec<_>>());
    for (record, of) in &logs {
        assert_eq!(record.severity_number(), SeverityNumber::Info);
        assert_eq!(record.event_name, "tailpost.dispatch");
        assert!(record.time_unix_nano > 0 && record.observed_time_unix_nano >= record.time_unix_nano);
        for (name, expected) in [
            ("pipeline_id", bed.name.as_str()),
            ("sink", "k1"),
            ("dispatch_status", "published"),
            ("attempt", "1"),
        ] {
            assert_eq!(of[name], expected, "{name}");
        }
        assert!(of["latency_ms"].parse::<u64>().is_ok(), "{of:?}");
    }
    let (first, of_first) = &logs[0];
    assert_eq!(of_first["event_name"], traceparent(1, "01"));
    assert_eq!(
        (hex(&first.trace_id), hex(&first.span_id), first.flags),
        (TRACE.to_owned(), "0000000000000001".to_owned(), 1)
    );
    assert!(logs[1].0.trace_id.is_empty());
    assert!(!logs[logs.len() - 1].1.contains_key("event_name"));
}

#[test]
fn attempts_that_fail_and_replays_are_log_records() {
    let bed = Bed::new(Db::Postgres);
    let collector = Target::new(|_, _| Answer::Status(200));
    let target = Target::new(|request, attempt| match (request.text(), attempt) {
        ("2", _) => Answer::Status(422),
        (_, 0) => Answer::Status(503),
        _ => Answer::Status(200),
    });
    let http = format!("{{type: http, config: {{id: h1, url: '{}'}}}}", target.url());
    let pipeline = with_logs_to(&collector.url())
        .replace("{type: kafka, config: {id: k1, brokers: '<brokers>'}}", &http)
        .replace("topic: '<topic>', ", "");
    let mut relay = bed.relay(&format!(
        "{pipeline}  dead_letter: {{type: sqlite, config: {{path: dead.sqlite}}}}\n"
    ));
    relay.start();
    relay.wait_ready();
    let mut app = bed.app();
    app.emit(&Event::of("1").id("one").key("7"));
    relay.wait_published(1);
    app.emit(&Event::of("2").id("two").key("7").event_type(traceparent(2, "01")));
    relay.wait_settled(2);
    drain(&mut relay);
    target.behave(|_, _| Answer::Status(200));
    let replay = |more: &[&str]| {
        let (file, state_dir) = (relay.pipeline_file(), relay.state_dir());
        let given = ["dlq".as_ref(), "replay".as_ref(), file.as_os_str()];
        let given = given
            .into_iter()
            .chain(["--state-dir".as_ref(), state_dir.as_os_str(), "--all".as_ref()]);
        tailpost(given.chain(more.iter().map(OsStr::new)))
    };
    let ended = replay(&[]);
    assert_eq!((ended.code, ended.stderr.as_str()), (0, ""), "{ended:?}");
    // Where the file names no collector, the command line does.
    let text = fs::read_to_string(relay.pipeline_file()).expect("the file");
    let named = format!(", config: {{endpoint: '{}'}}", collector.url());
    fs::write(relay.pipeline_file(), text.replace(&named, "")).expect("write the file");
    let ended = replay(&["--again"]);
    assert_eq!(ended.code, 2, "{ended:?}");
    assert!(ended.stderr.contains("no collector is named"), "{ended:?}");
    let ended = replay(&["--again", "--otlp", &collector.url()]);
    assert_eq!((ended.code, ended.stderr.as_str()), (0, ""), "{ended:?}");

    let found: Vec<_> = logs(&collector)
        .into_iter()
        .map(|(record, of)| {
            let said =
                ["outbox_id", "dispatch_status", "attempt", "duplicate_detected", "sink"].map(|name| of[name].clone());
            let context = hex(&record.span_id);
            (
                said.join(" "),
                record.severity_number(),
                of.contains_key("last_error"),
                context,
            )
        })
        .collect();
    let span = "0000000000000002";
    let expected = [
        ("one failed 1 false h1", SeverityNumber::Warn, true, ""),
        ("one published 2 false h1", SeverityNumber::Info, true, ""),
        ("two dead_letter 1 false h1", SeverityNumber::Error, true, span),
        ("two published 2 true h1", SeverityNumber::Info, false, span),
        ("two published 2 true h1", SeverityNumber::Info, false, span),
    ];
    let expected =
        expected.map(|(said, severity, has_error, span)| (said.to_owned(), severity, has_error, span.to_owned()));
    assert_eq!(found, expected);
}

over_each!(a_collector_of_logs_that_is_away_holds_back_nothing: postgres, mysql);
fn a_collector_of_logs_that_is_away_holds_back_nothing(db: Db) {
    let bed = Bed::new(db);
    let mut relay = bed.relay(&with_logs());
    let collector = free_address();
    relay.start_with(&["--otlp", &format!("http://{collector}")]);
    relay.wait_ready();
    // More than wait in the queue and in one request.
    let events: Vec<Event> = (0..35_000)
        .map(|number| Event::of(number.to_string()).key("7"))
        .collect();
    bed.app().emit_all(&events).expect("write events");
    relay.wait_published(35_000);
    let line = relay.wait_log("dispatch records are not exported");
    assert!(line.contains("Connection refused"), "{line}");
    let lost = || relay.metric("tailpost_dispatch_records_dropped_total", &[]);
    eventually(DEADLINE, "what found no room is counted", || lost() > 0.0);
    let lost = lost() as usize;
    relay.wait_log("dispatch records are lost");

    // What waited is there when it is.
    let collector = Target::at(collector, |request, before| match request.path.as_str() {
        "/v1/logs" if before < 3 => Answer::Full(503, "retry-after: 0\r\n".to_owned(), String::new()),
        _ => Answer::Status(200),
    });
    relay.wait_log("dispatch records are exported again");
    drain(&mut relay);
    let mut taken = BTreeSet::new();
    for request in collector.requests().iter().filter(|request| request.path == "/v1/logs") {
        let decoded = ExportLogsServiceRequest::decode(&request.body[..]).expect("logs");
        for scope in decoded
            .resource_logs
            .into_iter()
            .flat_map(|resource| resource.scope_logs)
        {
            taken.extend(
                scope
                    .log_records
                    .iter()
                    .map(|record| attributes(&record.attributes)["outbox_id"].clone()),
            );
        }
    }
    assert_eq!(taken.len() + lost, events.len(), "each is taken or counted");
}

#[test]
fn what_a_collector_of_logs_refuses_is_lost_and_counted() {
    let bed = Bed::new(Db::Postgres);
    let collector = Target::new(|_, before| Answer::Status(if before == 0 { 400 } else { 200 }));
    let mut relay = bed.relay(&with_logs_to(&collector.url()));
    relay.start();
    relay.wait_ready();
    let mut app = bed.app();
    app.emit(&Event::of("1").id("a").key("7"));
    let line = relay.wait_log("dispatch records are lost");
    assert!(line.contains("records=1 ") && line.contains("answers 400"), "{line}");
    assert_eq!(relay.metric("tailpost_dispatch_records_dropped_total", &[]), 1.0);
    app.emit(&Event::of("2").id("b").key("7"));
    collector.wait(2);
    relay.wait_published(2);
    drain(&mut relay);
    let sent: Vec<String> = logs(&collector).iter().map(|(_, of)| of["outbox_id"].clone()).collect();
    assert_eq!(sent, ["a", "b"], "it is not tried again");
}

#[test]
fn a_collector_of_logs_that_does_not_answer_does_not_hold_up_a_stop() {
    let bed = Bed::new(Db::Postgres);
    let collector = Target::new(|_, _| Answer::Hold);
    let mut relay = bed.relay(&with_logs_to(&collector.url()));
    relay.start();
    relay.wait_ready();
    bed.app().emit(&Event::of("1").key("7"));
    relay.wait_published(1);
    collector.wait(1);
    drain(&mut relay);
    relay.wait_log("did not take the last dispatch records");
    let line = relay.wait_log("dispatch records are lost");
    assert!(line.contains("records=1 "), "{line}");
}

#[test]
fn logs_without_a_collector_are_refused_at_the_start() {
    let bed = Bed::new(Db::Postgres);
    let relay = bed.relay(&with_logs());
    let file = relay.pipeline_file();
    let ended = tailpost(["run".as_ref(), file.as_os_str()]);
    assert_eq!(ended.code, 2, "{ended:?}");
    assert!(ended.stderr.contains("no collector is named"), "{ended:?}");
}
