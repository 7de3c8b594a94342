//! What is written down of one event: as a line of the ledger, and as a dispatch record.

use std::io::Write as _;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::calendar::rfc3339;
use crate::config::AuditNames;
use crate::processor::DeadLetterReason;
use crate::record::About;
use crate::skip::SkipReason;
use crate::telemetry::otlp::{Dispatch, DispatchOrigin, Severity, SpanContext};

/// One event, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub about: About,
    /// Where it stands in the source's log.
    pub position: String,
    /// In microseconds since 1970.
    pub commit_time_us: i64,
    pub outcome: Outcome,
    /// How often the sink was given it, as far as the sink says; 0 where no record could be made of it.
    pub attempts: u32,
    /// Why the last attempt failed: names and positions, never a value.
    pub last_error: Option<String>,
    /// Whether this event was settled once before.
    pub repeated: bool,
    /// When it was settled.
    pub time: SystemTime,
    /// Of the span that the application wrote the event in, where somebody wants to know.
    pub context: Option<SpanContext>,
}

/// What became of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Published,
    DeadLettered(DeadLetterReason),
    Skipped(SkipReason),
    /// An attempt failed; another outcome follows.
    Failed,
}

impl Outcome {
    /// The word for it.
    pub fn label(self) -> &'static str {
        match self {
            Self::Published => "published",
            Self::DeadLettered(_) => "dead_letter",
            Self::Skipped(_) => "skipped",
            Self::Failed => "failed",
        }
    }

    fn reason(self) -> Option<&'static str> {
        match self {
            Self::DeadLettered(reason) => Some(reason.label()),
            Self::Skipped(reason) => Some(reason.label()),
            Self::Published | Self::Failed => None,
        }
    }

    /// Whether nothing follows for the event.
    pub fn is_final(self) -> bool {
        self != Self::Failed
    }

    /// Whether the sink was given something.
    pub fn is_dispatch(self) -> bool {
        !matches!(self, Self::Skipped(_))
    }
}

impl Entry {
    /// Appends its line, as far as the chain's members. `mapped`: the names of the event's own fields.
    pub(super) fn write_line(&self, out: &mut Vec<u8>, names: &AuditNames, mapped: &[String], sink: &str) {
        out.push(b'{');
        let mut object = Object { out, first: true };
        object.text(&names.outbox_id, Some(&self.about.event_id));
        object.text(&names.event_name, self.about.event_type.as_deref());
        let mut values = self.about.audited.iter();
        for name in mapped {
            object.text(name, values.next().and_then(Option::as_deref));
        }
        object.text(&names.sink, Some(sink));
        object.text(&names.status, Some(self.outcome.label()));
        object.text(&names.reason, self.outcome.reason());
        object.raw(&names.attempt, self.attempts);
        object.text(&names.last_error, self.last_error.as_deref());
        object.text(&names.position, Some(&self.position));
        object.raw(&names.duplicate, self.repeated);
        object.text(&names.time, Some(&rfc3339(self.time)));
    }

    /// Appends its dispatch record, with a line break.
    pub(super) fn write_dispatch(&self, out: &mut Vec<u8>, pipeline: &str, sink: &str) {
        out.push(b'{');
        let mut object = Object { out, first: true };
        object.text("outbox_id", Some(&self.about.event_id));
        object.text("pipeline_id", Some(pipeline));
        object.text("event_name", self.about.event_type.as_deref());
        object.text("sink", Some(sink));
        object.text("dispatch_status", Some(self.outcome.label()));
        object.text("reason", self.outcome.reason());
        object.raw("attempt", self.attempts);
        object.raw("latency_ms", self.latency_ms());
        object.raw("duplicate_detected", self.repeated);
        object.text("last_error", self.last_error.as_deref());
        object.text("time", Some(&rfc3339(self.time)));
        out.extend_from_slice(b"}\n");
    }

    /// The same record, for a collector.
    pub(super) fn dispatch(&self, origin: &Arc<DispatchOrigin>, sink: &Arc<str>) -> Dispatch {
        Dispatch {
            origin: Arc::clone(origin),
            sink: Arc::clone(sink),
            outbox_id: self.about.event_id.clone(),
            event_name: self.about.event_type.clone(),
            status: self.outcome.label(),
            severity: match self.outcome {
                Outcome::Published | Outcome::Skipped(_) => Severity::Info,
                // Another attempt follows.
                Outcome::Failed => Severity::Warn,
                Outcome::DeadLettered(_) => Severity::Error,
            },
            reason: self.outcome.reason(),
            attempt: self.attempts,
            latency_ms: self.latency_ms(),
            is_duplicate: self.repeated,
            last_error: self.last_error.clone(),
            time: self.time,
            context: self.context,
        }
    }

    /// From the commit on; 0 where the database's clock is ahead.
    fn latency_ms(&self) -> u64 {
        let now = self.time.duration_since(UNIX_EPOCH).unwrap_or_default();
        let now_us = i64::try_from(now.as_micros()).unwrap_or(i64::MAX);
        u64::try_from(now_us.saturating_sub(self.commit_time_us) / 1000).unwrap_or(0)
    }
}

/// Writes an object's members.
struct Object<'a> {
    out: &'a mut Vec<u8>,
    first: bool,
}

impl Object<'_> {
    fn name(&mut self, name: &str) {
        if !std::mem::take(&mut self.first) {
            self.out.push(b',');
        }
        write_text(self.out, name);
        self.out.push(b':');
    }

    fn text(&mut self, name: &str, value: Option<&str>) {
        self.name(name);
        match value {
            Some(value) => write_text(self.out, value),
            None => self.out.extend_from_slice(b"null"),
        }
    }

    fn raw(&mut self, name: &str, value: impl std::fmt::Display) {
        self.name(name);
        // Writing to a vector cannot fail.
        let _ = write!(self.out, "{value}");
    }
}

pub(super) fn write_text(out: &mut Vec<u8>, text: &str) {
    // Text is always JSON, and writing to a vector cannot fail.
    let _ = serde_json::to_writer(out, text);
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use super::*;
    use crate::record::OrderingKey;

    /// Of event number n.
    pub(in crate::audit) fn entry(number: u64) -> Entry {
        Entry {
            about: About {
                event_id: format!("e{number}"),
                event_type: Some("placed".to_owned()),
                aggregate_type: None,
                aggregate_id: None,
                ordering: OrderingKey::Unordered,
                audited: vec![Some("a \"b\"".to_owned()), None],
            },
            position: format!("0000000000000002-{number:016X}-0"),
            commit_time_us: 1_700_000_000_000_000,
            outcome: Outcome::Published,
            attempts: 1,
            last_error: None,
            repeated: false,
            time: UNIX_EPOCH + Duration::from_millis(1_700_000_000_250),
            context: None,
        }
    }

    #[test]
    fn a_line_has_the_names_that_the_file_gives() {
        let names = AuditNames {
            outbox_id: "id".to_owned(),
            ..AuditNames::default()
        };
        let mapped = ["dataset_id", "care_label"].map(str::to_owned);
        let mut entry = entry(3);
        entry.outcome = Outcome::DeadLettered(DeadLetterReason::MaxRetriesExceeded);
        entry.last_error = Some("503".to_owned());
        let mut line = Vec::new();
        entry.write_line(&mut line, &names, &mapped, "k1");
        assert_eq!(
            String::from_utf8(line).unwrap(),
            r#"{"id":"e3","event_name":"placed","dataset_id":"a \"b\"","care_label":null,"sink":"k1","status":"dead_letter","reason":"max_retries_exceeded","attempt":1,"last_error":"503","position":"0000000000000002-0000000000000003-0","duplicate":false,"time":"2023-11-14T22:13:20.250Z""#
        );
    }

    #[test]
    fn a_dispatch_record_has_its_latency() {
        let mut line = Vec::new();
        entry(3).write_dispatch(&mut line, "orders", "k1");
        assert_eq!(
            String::from_utf8(line).unwrap(),
            "{\"outbox_id\":\"e3\",\"pipeline_id\":\"orders\",\"event_name\":\"placed\",\"sink\":\"k1\",\"dispatch_status\":\"published\",\"reason\":null,\"attempt\":1,\"latency_ms\":250,\"duplicate_detected\":false,\"last_error\":null,\"time\":\"2023-11-14T22:13:20.250Z\"}\n"
        );
        let mut ahead = entry(3);
        ahead.commit_time_us = i64::MAX;
        assert_eq!(ahead.latency_ms(), 0);
    }
}
