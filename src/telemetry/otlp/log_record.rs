//! Dispatch records as OTLP has logs. Pure.

use std::time::{SystemTime, UNIX_EPOCH};

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs, SeverityNumber};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_sdk::Resource as SdkResource;

use super::{Dispatch, Severity};

/// What records of this shape are called.
const EVENT_NAME: &str = "tailpost.dispatch";
/// The trace flags of W3C's in the record's flags: the application records the trace.
const SAMPLED: u32 = 1;

/// What all records have in common.
#[derive(Debug)]
pub(super) struct Envelope {
    pub(super) resource: Resource,
    pub(super) scope: InstrumentationScope,
}

impl Envelope {
    pub(super) fn new(resource: &SdkResource, scope: &opentelemetry::InstrumentationScope) -> Self {
        let attributes = resource.iter().map(|(key, value)| KeyValue {
            key: key.to_string(),
            value: Some(value.clone().into()),
            ..KeyValue::default()
        });
        Self {
            resource: Resource {
                attributes: attributes.collect(),
                ..Resource::default()
            },
            scope: InstrumentationScope {
                name: scope.name().to_owned(),
                version: scope.version().unwrap_or_default().to_owned(),
                ..InstrumentationScope::default()
            },
        }
    }

    /// All of them in one request; `now` is when they are given to it.
    pub(super) fn request(&self, records: &[Dispatch], now: SystemTime) -> ExportLogsServiceRequest {
        let scope_logs = ScopeLogs {
            scope: Some(self.scope.clone()),
            log_records: records.iter().map(|record| log_record(record, now)).collect(),
            ..ScopeLogs::default()
        };
        ExportLogsServiceRequest {
            resource_logs: vec![ResourceLogs {
                resource: Some(self.resource.clone()),
                scope_logs: vec![scope_logs],
                ..ResourceLogs::default()
            }],
        }
    }
}

/// Its attributes are the members of a line, by the same names; what is null there is not here.
fn log_record(record: &Dispatch, now: SystemTime) -> LogRecord {
    let attributes = [
        ("outbox_id", Some(text(&record.outbox_id))),
        ("pipeline_id", Some(text(&record.origin.pipeline))),
        ("event_name", record.event_name.as_deref().map(text)),
        ("sink", Some(text(&record.sink))),
        ("dispatch_status", Some(text(record.status))),
        ("reason", record.reason.map(text)),
        ("attempt", Some(Value::IntValue(i64::from(record.attempt)))),
        (
            "latency_ms",
            Some(Value::IntValue(i64::try_from(record.latency_ms).unwrap_or(i64::MAX))),
        ),
        ("duplicate_detected", Some(Value::BoolValue(record.is_duplicate))),
        ("last_error", record.last_error.as_deref().map(text)),
    ];
    let (number, name) = match record.severity {
        Severity::Info => (SeverityNumber::Info, "INFO"),
        Severity::Warn => (SeverityNumber::Warn, "WARN"),
        Severity::Error => (SeverityNumber::Error, "ERROR"),
    };
    let context = record.context;
    LogRecord {
        time_unix_nano: nanos(record.time),
        observed_time_unix_nano: nanos(now),
        severity_number: number.into(),
        severity_text: name.to_owned(),
        // For viewers that show nothing else.
        body: Some(any(Value::StringValue(format!(
            "{} {}",
            record.status, record.outbox_id
        )))),
        attributes: attributes
            .into_iter()
            .filter_map(|(key, value)| {
                Some(KeyValue {
                    key: key.to_owned(),
                    value: Some(any(value?)),
                    ..KeyValue::default()
                })
            })
            .collect(),
        dropped_attributes_count: 0,
        flags: context.map_or(0, |_| SAMPLED),
        trace_id: context.map_or_else(Vec::new, |context| context.trace_id.to_vec()),
        span_id: context.map_or_else(Vec::new, |context| context.span_id.to_vec()),
        event_name: EVENT_NAME.to_owned(),
    }
}

fn text(of: &str) -> Value {
    Value::StringValue(of.to_owned())
}

fn any(value: Value) -> AnyValue {
    AnyValue { value: Some(value) }
}

fn nanos(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::SpanContext;
    use super::super::dispatches::DispatchOrigin;
    use super::super::dispatches::tests::dispatch;
    use super::super::export::{resource, scope};
    use super::*;

    fn attributes(record: &LogRecord) -> Vec<(&str, String)> {
        let shown = |value: &AnyValue| match value.value.as_ref().unwrap() {
            Value::StringValue(text) => format!("{text:?}"),
            Value::IntValue(number) => number.to_string(),
            Value::BoolValue(truth) => truth.to_string(),
            other => panic!("{other:?}"),
        };
        let pairs = record.attributes.iter();
        pairs
            .map(|pair| (pair.key.as_str(), shown(pair.value.as_ref().unwrap())))
            .collect()
    }

    #[test]
    fn attributes_are_the_members_of_a_line() {
        let origin = DispatchOrigin::new("orders");
        let mut parked = dispatch(&origin, "e2");
        parked.event_name = None;
        parked.status = "dead_letter";
        parked.severity = Severity::Error;
        parked.reason = Some("permanent_failure");
        parked.last_error = Some("422".to_owned());
        parked.context = Some(SpanContext {
            trace_id: [1; 16],
            span_id: [2; 8],
        });
        let envelope = Envelope::new(&resource(), &scope());
        let now = UNIX_EPOCH + Duration::from_secs(1_700_000_001);
        let request = envelope.request(&[dispatch(&origin, "e1"), parked], now);
        let logs = &request.resource_logs[0].scope_logs[0];
        assert_eq!(logs.scope.as_ref().unwrap().name, "tailpost");
        let [published, parked] = &logs.log_records[..] else {
            panic!("{logs:?}");
        };
        let quoted = |text: &str| format!("{text:?}");
        assert_eq!(
            attributes(published),
            [
                ("outbox_id", quoted("e1")),
                ("pipeline_id", quoted("orders")),
                ("event_name", quoted("placed")),
                ("sink", quoted("k1")),
                ("dispatch_status", quoted("published")),
                ("attempt", "1".to_owned()),
                ("latency_ms", "41".to_owned()),
                ("duplicate_detected", "false".to_owned()),
            ]
        );
        assert_eq!(published.time_unix_nano, 1_700_000_000_250_000_000);
        assert_eq!(published.observed_time_unix_nano, 1_700_000_001_000_000_000);
        assert_eq!(published.severity_number(), SeverityNumber::Info);
        assert_eq!(published.event_name, "tailpost.dispatch");
        assert!(published.trace_id.is_empty() && published.span_id.is_empty());
        assert_eq!((published.flags, parked.flags), (0, 1));
        assert_eq!(
            (parked.trace_id.as_slice(), parked.span_id.as_slice()),
            (&[1; 16][..], &[2; 8][..])
        );
        assert_eq!(
            (parked.severity_number(), parked.severity_text.as_str()),
            (SeverityNumber::Error, "ERROR")
        );
        let names: Vec<&str> = attributes(parked).into_iter().map(|(name, _)| name).collect();
        assert!(!names.contains(&"event_name"), "{names:?}");
        assert!(names.contains(&"reason") && names.contains(&"last_error"), "{names:?}");
    }
}
