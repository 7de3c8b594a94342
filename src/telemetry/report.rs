//! What `/status` says: plain data that the process writes as JSON, and that `tailpost status` and `tailpost alert` read.
//!
//! Fields are only ever added. Times are in seconds since 1970, ages and waits in seconds. What is not known is null.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::ready::ReadyBounds;
use super::status::{Kept, NotReady, Part, PipelineStatus, Retry, SinkRetry, SinkSnapshot, State};

/// One process.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Report {
    pub version: String,
    /// When this was said.
    #[serde(default)]
    pub now: u64,
    pub pipelines: Vec<PipelineReport>,
}

/// One pipeline.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PipelineReport {
    pub name: String,
    pub tenant: Option<String>,
    pub labels: BTreeMap<String, String>,
    pub source: State,
    /// Since when it is in this state.
    pub since: u64,
    pub ready: bool,
    pub not_ready_because: Option<String>,
    /// The same, part by part.
    pub not_ready: Vec<NotReady>,
    /// An operator holds it back, whatever its state.
    pub paused: bool,
    /// It is paused, and all that was sent is settled: nothing more comes out of it.
    pub at_rest: bool,
    pub last_error: Option<String>,
    pub last_error_at: Option<u64>,
    pub retry: Option<RetryReport>,
    pub states: States,
    pub published_per_second: f64,
    pub events: Events,
    /// Handed to the sink and not settled: what a pause or a stop still waits for.
    pub in_flight_records: u64,
    pub in_flight_bytes: u64,
    pub lag_bytes: Option<u64>,
    pub lag_seconds: f64,
    pub oldest_unpublished_seconds: f64,
    pub stalled_seconds: f64,
    pub positions: Positions,
    /// The whole checkpoint.
    pub saved_position: Option<String>,
    pub checkpoint_age_seconds: Option<f64>,
    pub server_keeps: Option<Kept>,
    /// The leading one first: counts above are of what it is given, ages the worst of those that are required.
    pub sinks: Vec<SinkReport>,
    pub restarts: u64,
    pub accepted_gaps: u64,
}

/// One of its sinks.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SinkReport {
    pub id: String,
    /// Whether the position waits for it by itself.
    pub required: bool,
    /// Why it takes nothing at the moment.
    pub trouble: Option<String>,
    pub retry: Option<SinkRetryReport>,
    pub published: u64,
    pub dead: u64,
    /// Given up, of a sink that is not waited for.
    pub lost: u64,
    pub in_flight_records: u64,
    pub oldest_unpublished_seconds: f64,
}

impl From<SinkSnapshot> for SinkReport {
    fn from(sink: SinkSnapshot) -> Self {
        Self {
            id: sink.id,
            required: sink.required,
            trouble: sink.trouble,
            retry: sink.retry.map(SinkRetryReport::from),
            published: sink.published,
            dead: sink.dead_lettered,
            lost: sink.lost,
            in_flight_records: sink.in_flight_records,
            oldest_unpublished_seconds: sink.oldest_unpublished_seconds,
        }
    }
}

/// While it waits before another try.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RetryReport {
    pub part: Part,
    /// 1 for the first of those in a row.
    pub attempt: u32,
    pub next_at: u64,
    pub next_in_seconds: f64,
    /// The sink that tries deliveries again by itself; null: the part is started again.
    pub sink: Option<String>,
    /// What is held back by such deliveries.
    pub keys: Option<u64>,
}

/// Of a sink that tries deliveries again by itself: the one that was tried most often.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SinkRetryReport {
    /// 1 for the first of those in a row.
    pub attempt: u32,
    pub next_at: u64,
    /// 0 while it is under way, or waits for room.
    pub next_in_seconds: f64,
    /// Ordering keys that are held back; an event without one counts by itself.
    pub keys: u64,
}

impl From<SinkRetry> for SinkRetryReport {
    fn from(retry: SinkRetry) -> Self {
        Self {
            attempt: retry.attempts,
            next_at: unix_seconds(retry.at),
            next_in_seconds: seconds_until(retry.at),
            keys: retry.keys,
        }
    }
}

/// What is waited for: the part that is started again, or else the delivery that was tried most often.
fn next_retry(retry: Option<Retry>, sinks: &[SinkSnapshot]) -> Option<RetryReport> {
    let of_part = retry.map(|retry| RetryReport {
        part: retry.part,
        attempt: retry.attempt,
        next_at: unix_seconds(retry.at),
        next_in_seconds: seconds_until(retry.at),
        sink: None,
        keys: None,
    });
    of_part.or_else(|| {
        let retries = sinks.iter().filter_map(|sink| Some((sink, sink.retry?)));
        let (sink, retry) = retries.max_by_key(|(_, retry)| retry.attempts)?;
        Some(RetryReport {
            part: Part::Sink,
            attempt: retry.attempts,
            next_at: unix_seconds(retry.at),
            next_in_seconds: seconds_until(retry.at),
            sink: Some(sink.id.clone()),
            keys: Some(retry.keys),
        })
    })
}

/// Where events are: each is in one of these.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct States {
    pub pending: Pending,
    /// In flight.
    pub claimed: u64,
    /// Acknowledged by the sink, since the process started.
    pub published: u64,
    /// Dead letters, since the process started.
    pub dead: u64,
}

/// In the log past what is claimed. How many events that is nobody knows before they are read, so it is told in bytes of log.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Pending {
    pub bytes: Option<u64>,
    /// Of it, the events that were read already.
    pub events_read: u64,
}

/// Counts since the process started.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Events {
    pub received: u64,
    pub published: u64,
    /// By reason.
    pub skipped: BTreeMap<String, u64>,
    /// By reason.
    pub dead_lettered: BTreeMap<String, u64>,
    pub in_flight: u64,
    pub failed_deliveries: u64,
}

/// Places in the log, each at or before the one above it: an LSN, or a binlog's file and offset.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Positions {
    pub read: Option<String>,
    pub acked: Option<String>,
    pub saved: Option<String>,
    /// MySQL and MariaDB are told nothing.
    pub confirmed: Option<String>,
}

impl Report {
    pub fn of<'a>(pipelines: impl IntoIterator<Item = &'a PipelineStatus>, bounds: &ReadyBounds) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            now: unix_seconds(SystemTime::now()),
            pipelines: pipelines
                .into_iter()
                .map(|status| PipelineReport::of(status, bounds))
                .collect(),
        }
    }

    /// Whether there is a pipeline, and each is ready.
    pub fn is_ready(&self) -> bool {
        !self.pipelines.is_empty() && self.pipelines.iter().all(|pipeline| pipeline.ready)
    }
}

impl PipelineReport {
    fn of(status: &PipelineStatus, bounds: &ReadyBounds) -> Self {
        let s = status.snapshot_with(bounds.max_attempts);
        let exceeded = bounds.exceeded_by(&s);
        let reasons: Vec<String> = s.ready.clone().err().into_iter().collect();
        let reasons = [reasons, exceeded.iter().map(|found| found.reason.clone()).collect()].concat();
        let not_ready_because = (!reasons.is_empty()).then(|| reasons.join("; "));
        let not_ready = [s.not_ready, exceeded].concat();
        let dead_lettered = s.dead_lettered.iter();
        Self {
            name: status.name.clone(),
            tenant: status.tenant.clone(),
            labels: status.labels.clone(),
            since: unix_seconds(s.since),
            ready: not_ready.is_empty(),
            not_ready_because,
            not_ready,
            paused: s.paused,
            at_rest: s.paused && s.rests && s.sinks.iter().all(|sink| sink.in_flight_records == 0),
            last_error_at: s.last_error_at.map(unix_seconds),
            retry: next_retry(s.retry, &s.sinks),
            states: States {
                pending: Pending {
                    bytes: s.pending_bytes,
                    events_read: s.pending_events,
                },
                claimed: s.totals.in_flight(),
                published: s.totals.published,
                dead: s.dead_lettered.values().sum(),
            },
            published_per_second: s.published_per_second,
            events: Events {
                received: s.totals.received,
                published: s.totals.published,
                skipped: s
                    .totals
                    .skipped
                    .iter()
                    .map(|(reason, count)| (reason.label().to_owned(), count))
                    .collect(),
                dead_lettered: dead_lettered
                    .map(|(reason, count)| ((*reason).to_owned(), *count))
                    .collect(),
                in_flight: s.totals.in_flight(),
                failed_deliveries: s.totals.failed,
            },
            in_flight_records: s.in_flight_records,
            in_flight_bytes: s.in_flight_bytes,
            lag_bytes: s.lag_bytes,
            lag_seconds: s.lag_seconds,
            oldest_unpublished_seconds: s.oldest_unpublished_seconds,
            stalled_seconds: s.stalled.as_secs_f64(),
            positions: Positions {
                read: s.read.map(|place| place.to_string()),
                acked: s.acked.map(|place| place.to_string()),
                saved: s.saved.as_ref().map(|position| position.place().to_string()),
                confirmed: s.confirmed.map(|place| place.to_string()),
            },
            saved_position: s.saved.map(|position| position.to_string()),
            checkpoint_age_seconds: s.checkpoint_age_seconds,
            server_keeps: s.kept,
            sinks: s.sinks.into_iter().map(SinkReport::from).collect(),
            restarts: s.totals.restarts,
            accepted_gaps: s.totals.accepted_gaps,
            source: s.state,
            last_error: s.last_error,
        }
    }
}

/// 0 when it is past.
fn seconds_until(time: SystemTime) -> f64 {
    let wait = time.duration_since(SystemTime::now());
    wait.unwrap_or_default().as_secs_f64()
}

fn unix_seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;
    use std::sync::Arc;
    use std::time::Duration;

    use serde_json::Value;

    use super::*;
    use crate::position::{LogPlace, Lsn, Position, PostgresPosition};
    use crate::skip::SkipReason;
    use crate::telemetry::status::SourceView;

    fn position(base: u64) -> Position {
        Position::Postgres(PostgresPosition {
            system_identifier: 7,
            timeline: 1,
            base: Lsn(base),
            partial: None,
            last_event_end: Lsn::ZERO,
        })
    }

    /// Of deliveries of two keys, the next try of which is in half a minute.
    pub(in crate::telemetry) fn retry(attempts: u32, is_reached: bool) -> SinkRetry {
        SinkRetry {
            attempts,
            at: SystemTime::now() + Duration::from_secs(30),
            keys: 2,
            is_reached,
        }
    }

    /// A pipeline with something of everything, which waits before its second try.
    pub(in crate::telemetry) fn eventful() -> Arc<PipelineStatus> {
        let status = PipelineStatus::named(
            "orders",
            "k1",
            Some("acme".to_owned()),
            [("team".to_owned(), "shop".to_owned())].into(),
            Default::default(),
        );
        let view = SourceView::new(Arc::clone(&status));
        status.begins(Some(&position(0x1000)));
        view.streaming();
        view.log_files(vec![LogPlace {
            file: 0,
            offset: 0x9000,
        }]);
        view.kept(Kept::Slot {
            slot: "orders_slot".to_owned(),
            bytes: Some(16 << 20),
            wal_status: Some("reserved".to_owned()),
        });
        status.count(|totals| {
            totals.received = 20;
            totals.published = 12;
            totals.skipped.add(SkipReason::ForeignPrefix, 3);
            totals.dead_lettered.insert("poison_message", 2);
            totals.processed.insert("outbox".into(), 17);
            totals.failed = 4;
            totals.restarts = 2;
        });
        status.acked(&position(0x2000));
        status.saved(&position(0x1800));
        view.confirmed(position(0x1800).place());
        status.in_flight(2, 900, Some(0));
        status.sink_retry(Some((retry(4, true), "answers 500")), "answers 500");
        for _ in 0..2 {
            status.retry(Part::Source, Duration::from_secs(30));
            view.waiting("connect to <PostgreSQL> & fail".to_owned());
        }
        status
    }

    #[test]
    fn the_fields_are_those_that_were_there_and_read_back() {
        let report = Report::of([&*eventful()], &ReadyBounds::default());
        let json = serde_json::to_value(&report).unwrap();
        let one = &json["pipelines"][0];
        for (pointer, expected) in [
            ("/name", "\"orders\""),
            ("/source/state", "\"waiting\""),
            ("/ready", "false"),
            ("/not_ready/0/part", "\"source\""),
            ("/retry/attempt", "2"),
            ("/retry/sink", "null"),
            ("/sinks/0/retry/attempt", "4"),
            ("/sinks/0/retry/keys", "2"),
            ("/states/pending/bytes", "32768"),
            ("/states/claimed", "3"),
            ("/states/published", "12"),
            ("/states/dead", "2"),
            ("/events/skipped/foreign_prefix", "3"),
            ("/events/dead_lettered/poison_message", "2"),
            ("/events/failed_deliveries", "4"),
            ("/lag_bytes", "28672"),
            ("/positions/acked", "\"0/2000\""),
            ("/positions/saved", "\"0/1800\""),
            ("/positions/confirmed", "\"0/1800\""),
            ("/server_keeps/kind", "\"slot\""),
            ("/server_keeps/bytes", "16777216"),
            ("/restarts", "2"),
        ] {
            let found = one.pointer(pointer).map(ToString::to_string);
            assert_eq!(found.as_deref(), Some(expected), "{pointer} in {one:#}");
        }
        assert_eq!(serde_json::from_value::<Report>(json).unwrap(), report);
    }

    #[test]
    fn the_next_retry_is_that_of_the_sink_which_tried_most_often_unless_a_part_is_started_again() {
        let shown = |status: &PipelineStatus| Report::of([status], &ReadyBounds::default()).pipelines.remove(0).retry;
        let status = eventful();
        assert_eq!(
            shown(&status).map(|retry| (retry.part, retry.attempt)),
            Some((Part::Source, 2))
        );
        SourceView::new(Arc::clone(&status)).streaming();
        let found = shown(&status).unwrap();
        assert_eq!((found.part, found.attempt, found.keys), (Part::Sink, 4, Some(2)));
        assert_eq!(found.sink.as_deref(), Some("k1"));
        assert!(found.next_in_seconds > 0.0 && found.next_at > 0, "{found:?}");
        status.sink_retried(Some((
            SinkRetry {
                at: UNIX_EPOCH,
                ..retry(4, true)
            },
            "answers 500",
        )));
        assert_eq!(shown(&status).unwrap().next_in_seconds, 0.0, "it is under way");
        status.sink_retried(None);
        assert_eq!(shown(&status), None);
    }

    /// The dotted paths of a document's fields; of mappings whose keys are their own the mapping.
    fn fields(path: &str, value: &Value, into: &mut BTreeSet<String>) {
        match value {
            Value::Object(members) if !["labels", "events.skipped", "events.dead_lettered"].contains(&path) => {
                let prefix = if path.is_empty() {
                    String::new()
                } else {
                    format!("{path}.")
                };
                members
                    .iter()
                    .for_each(|(name, value)| fields(&format!("{prefix}{name}"), value, into));
            }
            Value::Array(items) => items.iter().for_each(|item| fields(&format!("{path}[]"), item, into)),
            _ => {
                into.insert(path.to_owned());
            }
        }
    }

    #[test]
    fn the_documentation_lists_each_field_and_no_other() {
        let status = eventful();
        let mut report = Report::of([&*status], &ReadyBounds::default());
        SourceView::new(status.clone()).kept(Kept::Binlog {
            oldest_file: "binlog.000001".to_owned(),
            files: 1,
            bytes: 4,
        });
        report
            .pipelines
            .extend(Report::of([&*status], &ReadyBounds::default()).pipelines);
        let mut found = BTreeSet::new();
        for pipeline in &report.pipelines {
            fields("", &serde_json::to_value(pipeline).unwrap(), &mut found);
        }
        let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/operate.md");
        let document = std::fs::read_to_string(document).unwrap();
        let (_, section) = document.split_once("## Fields of `/status`").unwrap();
        let cells = section
            .lines()
            .filter_map(|line| line.strip_prefix("| `")?.split_once(" |"));
        let documented: BTreeSet<String> = cells
            .flat_map(|(cell, _)| cell.split(','))
            .map(|name| name.trim().trim_matches('`').to_owned())
            .collect();
        assert_eq!(documented, found);
    }
}
