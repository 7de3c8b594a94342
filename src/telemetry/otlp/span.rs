//! What a span says, and the context of a trace that an event carries.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::record::Record;

/// The pipeline that a span is of.
#[derive(Debug)]
pub struct Origin {
    pub pipeline: String,
    /// Names of its source and sink.
    pub source: String,
    pub sink: String,
    /// The kind of sink, as `messaging.system`.
    pub system: &'static str,
    pub dropped: AtomicU64,
}

impl Origin {
    /// So many of its spans were not exported.
    pub fn dropped(&self, count: u64) {
        self.dropped.fetch_add(count, Ordering::Relaxed);
    }
}

/// Names a span in its trace. Neither id is zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpanContext {
    pub trace_id: [u8; 16],
    pub span_id: [u8; 8],
}

impl SpanContext {
    /// The first of a trace.
    pub(super) fn new_trace() -> Self {
        Self {
            trace_id: rand::random_range(1..=u128::MAX).to_be_bytes(),
            span_id: new_span_id(),
        }
    }
}

fn new_span_id() -> [u8; 8] {
    rand::random_range(1..=u64::MAX).to_be_bytes()
}

/// The span that an application wrote an event in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parent {
    pub context: SpanContext,
    /// What systems in the trace passed on, as it came.
    pub tracestate: Option<String>,
}

impl Parent {
    /// Of the headers `traceparent` and `tracestate` (W3C Trace Context). None where there is none, and where the application
    /// does not record the trace: then nobody does.
    pub fn of(record: &Record) -> Option<Self> {
        let text = |name: &str| {
            let header = record
                .headers
                .iter()
                .find(|header| header.name.eq_ignore_ascii_case(name))?;
            let text = std::str::from_utf8(header.value.as_deref()?).ok()?;
            // With `headers_as: json` it is a JSON string.
            match text.starts_with('"') {
                true => serde_json::from_str(text).ok().map(Cow::Owned),
                false => Some(Cow::Borrowed(text)),
            }
        };
        let context = sampled(text("traceparent")?.trim())?;
        let tracestate = text("tracestate").map(Cow::into_owned);
        Some(Self { context, tracestate })
    }
}

/// The context in a traceparent, where its flag says that it is recorded.
fn sampled(traceparent: &str) -> Option<SpanContext> {
    let mut parts = traceparent.split('-');
    let (version, trace_id, span_id, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    // Version 00 has no more; a later one may.
    if byte(version)? == 0xff || (version == "00" && parts.next().is_some()) || byte(flags)? & 1 == 0 {
        return None;
    }
    let context = SpanContext {
        trace_id: bytes(trace_id)?,
        span_id: bytes(span_id)?,
    };
    (context.trace_id != [0; 16] && context.span_id != [0; 8]).then_some(context)
}

fn bytes<const N: usize>(hex: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    if hex.len() != 2 * N || !hex.is_ascii() {
        return None;
    }
    for (at, byte_at) in bytes.iter_mut().enumerate() {
        *byte_at = byte(hex.get(2 * at..2 * at + 2)?)?;
    }
    Some(bytes)
}

/// Two digits in lower case, as the recommendation has them.
fn byte(hex: &str) -> Option<u8> {
    let is_digit = |c: u8| c.is_ascii_digit() || (b'a'..=b'f').contains(&c);
    (hex.len() == 2 && hex.bytes().all(is_digit))
        .then(|| u8::from_str_radix(hex, 16).ok())
        .flatten()
}

/// One span, which has ended when it is exported.
#[derive(Debug, Clone)]
pub struct Span {
    pub origin: Arc<Origin>,
    pub context: SpanContext,
    pub kind: SpanKind,
    pub start: SystemTime,
    pub end: SystemTime,
    /// What became of it in a word, where that is no success.
    pub error: Option<&'static str>,
}

#[derive(Debug, Clone)]
pub enum SpanKind {
    /// From taking a batch of the source until its last event is settled. A trace of its own.
    Batch {
        events: usize,
        /// Where it ends in the log.
        position: String,
    },
    /// From giving an event to the sink until it is acknowledged, in the application's trace.
    Send {
        parent: Parent,
        batch: Option<SpanContext>,
        /// A topic, or a URL.
        destination: Arc<str>,
        event_id: Option<String>,
        bytes: usize,
        /// From the commit to `start`.
        waited: Duration,
    },
}

impl Span {
    /// A batch begins.
    pub fn batch(origin: &Arc<Origin>, context: SpanContext, events: usize, position: String) -> Self {
        Self::begin(origin, context, SpanKind::Batch { events, position })
    }

    /// A record is given to the sink. None: its event carries no context that is recorded.
    pub fn send(
        origin: &Arc<Origin>,
        record: &Record,
        commit_time_us: i64,
        batch: Option<SpanContext>,
    ) -> Option<Self> {
        let parent = Parent::of(record)?;
        let context = SpanContext {
            trace_id: parent.context.trace_id,
            span_id: new_span_id(),
        };
        let kind = SpanKind::Send {
            parent,
            batch,
            destination: Arc::clone(&record.topic),
            event_id: record.about.as_ref().map(|about| about.event_id.clone()),
            bytes: record.value.as_ref().map_or(0, bytes::Bytes::len),
            waited: waited(commit_time_us, SystemTime::now()),
        };
        Some(Self::begin(origin, context, kind))
    }

    fn begin(origin: &Arc<Origin>, context: SpanContext, kind: SpanKind) -> Self {
        let now = SystemTime::now();
        Self {
            origin: Arc::clone(origin),
            context,
            kind,
            start: now,
            end: now,
            error: None,
        }
    }
}

fn waited(commit_time_us: i64, now: SystemTime) -> Duration {
    let commit = Duration::from_micros(u64::try_from(commit_time_us).unwrap_or(0));
    now.duration_since(UNIX_EPOCH + commit).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;
    use crate::record::Header;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn record(headers: &[(&str, &str)]) -> Record {
        let headers = headers.iter().map(|(name, value)| Header {
            name: Arc::from(*name),
            value: Some(Bytes::copy_from_slice(value.as_bytes())),
        });
        Record {
            topic: Arc::from("orders"),
            partition: None,
            key: None,
            value: None,
            headers: headers.collect(),
            timestamp_ms: 0,
            about: None,
        }
    }

    #[test]
    fn an_event_s_context_is_its_parent() {
        let parent = Parent::of(&record(&[("Traceparent", PARENT), ("tracestate", "a=1")])).unwrap();
        let hex: String = parent
            .context
            .trace_id
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(hex, "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(parent.context.span_id, 0x00f0_67aa_0ba9_02b7_u64.to_be_bytes());
        assert_eq!(parent.tracestate.as_deref(), Some("a=1"));
        let later = format!("01{}-more", &PARENT[2..]);
        assert!(Parent::of(&record(&[("traceparent", &later)])).is_some());
        let quoted = [
            ("traceparent", &*format!("\"{PARENT}\"")),
            ("tracestate", r#""a=\"1\"""#),
        ];
        assert_eq!(
            Parent::of(&record(&quoted)).unwrap().tracestate.as_deref(),
            Some("a=\"1\"")
        );
    }

    #[test]
    fn what_is_not_recorded_or_no_context_has_no_span() {
        for text in [
            "",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        ] {
            assert_eq!(Parent::of(&record(&[("traceparent", text)])), None, "{text}");
        }
        assert_eq!(Parent::of(&record(&[("df-event-id", "1")])), None);
    }

    #[test]
    fn a_commit_in_the_future_was_not_waited_for() {
        let now = UNIX_EPOCH + Duration::from_secs(2);
        assert_eq!(waited(500_000, now), Duration::from_millis(1500));
        assert_eq!(waited(3_000_000, now), Duration::ZERO);
        assert_eq!(waited(i64::MAX, now), Duration::ZERO);
        assert_eq!(waited(-1, now), Duration::from_secs(2));
    }

    proptest! {
        #[test]
        fn any_header_is_read_without_a_panic(text in "\\PC{0,80}") {
            let _ = Parent::of(&record(&[("traceparent", &text)]));
        }
    }
}
