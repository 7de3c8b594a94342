//! Every metric with its unit, labels and meaning, in the order of docs/operate.md.

use std::fmt;

use super::{Add, CountTo, DeadLetterReason, Kept, Metric, Reading, SinkSnapshot, Snapshot, State};
use crate::sequences::SequenceFault;

/// All metrics.
pub const METRICS: &[Metric] = &[
    Metric {
        name: "events_received",
        unit: "events",
        labels: &[],
        help: "Changes that the source was sent; of a binlog the rows of the pipeline's tables, and each event of rows of others",
        reading: Reading::Counter(|_, s, add| add(&[], s.totals.received)),
    },
    Metric {
        name: "events_published",
        unit: "events",
        labels: &["sink"],
        help: "Events that the sink acknowledged",
        reading: Reading::Counter(|_, s, add| of_sinks(s, add, |sink| sink.published)),
    },
    Metric {
        name: "events_skipped",
        unit: "events",
        labels: &["reason"],
        help: "Changes that were seen and not sent",
        reading: Reading::Counter(|_, s, add| {
            let mut skipped = s.totals.skipped.iter();
            skipped.try_for_each(|(reason, count)| add(&[("reason", reason.label())], count))
        }),
    },
    Metric {
        name: "events_dead_lettered",
        unit: "events",
        labels: &["reason"],
        help: "Events that were parked as dead letters; increase() of it is their growth",
        // From 0 on: `increase` does not see a series begin.
        reading: Reading::Counter(|_, s, add| {
            DeadLetterReason::ALL.into_iter().try_for_each(|reason| {
                let count = s.dead_lettered.get(reason.label());
                add(&[("reason", reason.label())], count.copied().unwrap_or(0))
            })
        }),
    },
    Metric {
        name: "dead_letter_notices",
        unit: "requests",
        labels: &["outcome"],
        help: "Requests that tell the webhook of `dead_letter.notify` of dead letters: taken, or failed and told with the next",
        reading: Reading::Counter(|_, s, add| {
            add(&[("outcome", "taken")], s.totals.notices_taken)?;
            add(&[("outcome", "failed")], s.totals.notices_failed)
        }),
    },
    Metric {
        name: "events_processed",
        unit: "events",
        labels: &["processor"],
        help: "Events that a processor took, or filtered out; those that came again included",
        reading: Reading::Counter(|_, s, add| {
            let mut processed = s.totals.processed.iter();
            processed.try_for_each(|(processor, count)| add(&[("processor", processor)], *count))
        }),
    },
    Metric {
        name: "sequence_faults",
        unit: "events",
        labels: &["kind"],
        help: "Events whose number is out of sequence in their aggregate (`validate.sequence`), whatever became of them: repeat, gap, backwards",
        reading: Reading::Counter(|_, s, add| {
            SequenceFault::ALL.into_iter().try_for_each(|fault| {
                let count = s.sequence_faults.get(&fault);
                add(&[("kind", fault.label())], count.copied().unwrap_or(0))
            })
        }),
    },
    Metric {
        name: "events_failed",
        unit: "deliveries",
        labels: &["sink"],
        help: "Deliveries reported failed, before retry or policy",
        reading: Reading::Counter(|_, s, add| of_sinks(s, add, |sink| sink.failed)),
    },
    Metric {
        name: "events_lost",
        unit: "events",
        labels: &["sink"],
        help: "Events that a sink which is not waited for was not given, or may not have got",
        reading: Reading::Counter(|_, s, add| of_sinks(s, add, |sink| sink.lost)),
    },
    Metric {
        name: "restarts",
        unit: "restarts",
        labels: &[],
        help: "Times that a source or sink was started again",
        reading: Reading::Counter(|_, s, add| add(&[], s.totals.restarts)),
    },
    Metric {
        name: "accepted_gaps",
        unit: "gaps",
        labels: &[],
        help: "Gaps that an operator accepted",
        reading: Reading::Counter(|_, s, add| add(&[], s.totals.accepted_gaps)),
    },
    Metric {
        name: "pending_bytes",
        unit: "bytes",
        labels: &[],
        help: "Bytes of log past what is in flight, as far as the log's end was seen; absent until it was",
        reading: Reading::Gauge(|s| s.pending_bytes.map(|bytes| bytes as f64)),
    },
    Metric {
        name: "pending_events",
        unit: "events",
        labels: &[],
        help: "Events of the pending log that were read already; how many more there are is not known",
        reading: Reading::Gauge(|s| Some(s.pending_events as f64)),
    },
    Metric {
        name: "in_flight_events",
        unit: "events",
        labels: &[],
        help: "Events claimed: received and not settled yet",
        reading: Reading::Gauge(|s| Some(s.totals.in_flight() as f64)),
    },
    Metric {
        name: "in_flight_records",
        unit: "records",
        labels: &[],
        help: "Records with the sink that are not settled: what a pause or a stop still waits for",
        reading: Reading::Gauge(|s| Some(s.in_flight_records as f64)),
    },
    Metric {
        name: "in_flight_bytes",
        unit: "bytes",
        labels: &[],
        help: "Bytes of sent and unacknowledged records, with queue overhead",
        reading: Reading::Gauge(|s| Some(s.in_flight_bytes as f64)),
    },
    Metric {
        name: "dead_letters",
        unit: "events",
        labels: &[],
        help: "Dead letters that this process parked, for whatever reason",
        reading: Reading::Gauge(|s| Some(s.dead_lettered.values().sum::<u64>() as f64)),
    },
    Metric {
        name: "oldest_unpublished_seconds",
        unit: "seconds",
        labels: &[],
        help: "Age of the oldest event that was read and is not settled, 0 when there is none",
        reading: Reading::Gauge(|s| Some(s.oldest_unpublished_seconds)),
    },
    Metric {
        name: "source_lag_bytes",
        unit: "bytes",
        labels: &[],
        help: "Bytes of log between the acknowledged position and the log's end, over all binlog files in between",
        reading: Reading::Gauge(|s| s.lag_bytes.map(|bytes| bytes as f64)),
    },
    Metric {
        name: "source_lag_seconds",
        unit: "seconds",
        labels: &[],
        help: "Age of the oldest event in flight, 0 when there is none",
        reading: Reading::Gauge(|s| Some(s.lag_seconds)),
    },
    Metric {
        name: "stalled_seconds",
        unit: "seconds",
        labels: &[],
        help: "How long nothing was acknowledged though something is pending or in flight, else 0",
        reading: Reading::Gauge(|s| Some(s.stalled.as_secs_f64())),
    },
    Metric {
        name: "retained_bytes",
        unit: "bytes",
        labels: &[],
        help: "Log that the server keeps: WAL for the slot, or all binlog files; absent until it was seen",
        reading: Reading::Gauge(|s| s.kept.as_ref().and_then(Kept::bytes).map(|bytes| bytes as f64)),
    },
    Metric {
        name: "checkpoint_age_seconds",
        unit: "seconds",
        labels: &[],
        help: "Seconds since the last save",
        reading: Reading::Gauge(|s| s.checkpoint_age_seconds),
    },
    Metric {
        name: "confirmed_age_seconds",
        unit: "seconds",
        labels: &[],
        help: "Seconds since a position was last confirmed to PostgreSQL; MySQL and MariaDB are told nothing",
        reading: Reading::Gauge(|s| s.confirmed_age_seconds),
    },
    Metric {
        name: "up",
        unit: "0 or 1",
        labels: &[],
        help: "1 while streaming",
        reading: Reading::Gauge(|s| Some(truth(s.state == State::Streaming))),
    },
    Metric {
        name: "ready",
        unit: "0 or 1",
        labels: &[],
        help: "1 while streaming with sink and checkpoint in order, whatever flags of --ready-max say",
        reading: Reading::Gauge(|s| Some(truth(s.ready.is_ok()))),
    },
    Metric {
        name: "sink_up",
        unit: "0 or 1",
        labels: &["sink"],
        help: "1 while nothing is known to keep the sink from taking events",
        reading: Reading::Gauges(|s, add| gauges_of_sinks(s, add, |sink| truth(sink.trouble.is_none()))),
    },
    Metric {
        name: "sink_oldest_unpublished_seconds",
        unit: "seconds",
        labels: &["sink"],
        help: "Age of the oldest event that the sink was given and has not settled, 0 when there is none",
        reading: Reading::Gauges(|s, add| gauges_of_sinks(s, add, |sink| sink.oldest_unpublished_seconds)),
    },
    Metric {
        name: "paused",
        unit: "0 or 1",
        labels: &[],
        help: "1 while an operator holds it back",
        reading: Reading::Gauge(|s| Some(truth(s.paused))),
    },
    Metric {
        name: "state",
        unit: "0 or 1",
        labels: &["state"],
        help: "1 for the state that the pipeline is in, 0 for the others",
        reading: Reading::Gauges(|s, add| {
            let mut names = State::NAMES.iter();
            names.try_for_each(|name| add(&[("state", *name)], truth(*name == s.state.name())))
        }),
    },
    Metric {
        name: "delivery_seconds",
        unit: "seconds",
        labels: &[],
        help: "From handing a record to the sink to its acknowledgement",
        reading: Reading::Histogram(|s| &s.delivery),
    },
    Metric {
        name: "end_to_end_seconds",
        unit: "seconds",
        labels: &[],
        help: "From the commit to the sink's acknowledgement",
        reading: Reading::Histogram(|s| &s.end_to_end),
    },
    Metric {
        name: "spans_dropped",
        unit: "spans",
        labels: &[],
        help: "Spans that the collector of --otlp did not take, or that found no room to wait for it",
        reading: Reading::Counter(|status, _, add| add(&[], status.tracer().map_or(0, |tracer| tracer.dropped()))),
    },
    Metric {
        name: "dispatch_records_dropped",
        unit: "records",
        labels: &[],
        help: "Dispatch records that the collector did not take, or that found no room to wait for it",
        reading: Reading::Counter(|status, _, add| {
            add(&[], status.dispatch_queue().map_or(0, |queue| queue.dropped()))
        }),
    },
    Metric {
        name: "pipeline_info",
        unit: "1",
        labels: &["tenant", "label_...", "annotation_..."],
        help: "Always 1; tenant, labels and annotations of the file are its labels",
        reading: Reading::Info,
    },
];

fn truth(holds: bool) -> f64 {
    f64::from(u8::from(holds))
}

fn of_sinks(s: &Snapshot, add: &mut CountTo<'_>, count: fn(&SinkSnapshot) -> u64) -> fmt::Result {
    let mut sinks = s.sinks.iter();
    sinks.try_for_each(|sink| add(&[("sink", sink.id.as_str())], count(sink)))
}

fn gauges_of_sinks(s: &Snapshot, add: &mut Add<'_>, value: fn(&SinkSnapshot) -> f64) -> fmt::Result {
    let mut sinks = s.sinks.iter();
    sinks.try_for_each(|sink| add(&[("sink", sink.id.as_str())], value(sink)))
}
