//! A reading of a pipeline's status, of all its sinks at once.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::MutexGuard;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::position::{Position, ShownPlace};
use crate::sequences::SequenceFault;
use crate::telemetry::histogram::Histogram;
use crate::telemetry::source_view::Kept;
use crate::telemetry::state::{self, NotReady, Retry, SinkRetry, State, Troubles};

use super::{Inner, PipelineStatus, Totals};

/// A reading of everything, consistent in itself.
#[derive(Debug, Clone)]
pub struct Snapshot {
    pub state: State,
    pub since: SystemTime,
    pub ready: Result<(), String>,
    /// The same, part by part.
    pub not_ready: Vec<NotReady>,
    pub paused: bool,
    /// The relay sends nothing until it is let go on.
    pub rests: bool,
    pub last_error: Option<String>,
    pub last_error_at: Option<SystemTime>,
    /// While it waits before another try.
    pub retry: Option<Retry>,
    /// Of the leading sink.
    pub totals: Totals,
    /// Of all sinks.
    pub dead_lettered: BTreeMap<&'static str, u64>,
    /// Of all sinks, within the time of [`PipelineStatus::watch_dead_letters`]; 0 without it.
    pub dead_letters_of_late: u64,
    pub sequence_faults: BTreeMap<SequenceFault, u64>,
    pub published_per_second: f64,
    /// The leading one first.
    pub sinks: Vec<SinkSnapshot>,
    pub read: Option<ShownPlace>,
    pub acked: Option<ShownPlace>,
    pub saved: Option<Position>,
    pub confirmed: Option<ShownPlace>,
    pub kept: Option<Kept>,
    pub checkpoint_age_seconds: Option<f64>,
    pub confirmed_age_seconds: Option<f64>,
    pub in_flight_bytes: u64,
    /// Handed to the sink and not settled: what a pause or a stop still waits for.
    pub in_flight_records: u64,
    pub lag_bytes: Option<u64>,
    pub lag_seconds: f64,
    /// Log that the relay has not taken yet, as far as its end was seen.
    pub pending_bytes: Option<u64>,
    /// Of it, the events that were read already.
    pub pending_events: u64,
    /// Age of the oldest event that was read and is not settled, 0 when there is none.
    pub oldest_unpublished_seconds: f64,
    /// How long nothing was done though there is something to do.
    pub stalled: Duration,
    pub delivery: Histogram,
    pub end_to_end: Histogram,
}

/// How one of a pipeline's sinks stands.
#[derive(Debug, Clone, PartialEq)]
pub struct SinkSnapshot {
    pub id: String,
    pub required: bool,
    /// Why it takes nothing at the moment, if so.
    pub trouble: Option<String>,
    /// What it makes again by itself.
    pub retry: Option<SinkRetry>,
    /// The trouble is that alone.
    only_retries: bool,
    pub published: u64,
    pub dead_lettered: u64,
    pub lost: u64,
    pub failed: u64,
    pub in_flight_records: u64,
    /// Age of the oldest event that it was given and has not settled, 0 when there is none.
    pub oldest_unpublished_seconds: f64,
}

impl SinkSnapshot {
    /// Whether all that is wrong is that deliveries to a target that can be reached are made again, none after more attempts than that.
    fn is_tolerated(&self, max_attempts: Option<u32>) -> bool {
        match (max_attempts, self.retry) {
            (Some(max), Some(retry)) => self.only_retries && retry.is_reached && retry.attempts <= max,
            _ => false,
        }
    }
}

impl PipelineStatus {
    /// How the sink of this status stands.
    fn sink(&self, inner: &Inner) -> SinkSnapshot {
        let totals = &inner.totals;
        let other_trouble = inner.sink_gone.as_ref().or(inner.sink_trouble.as_ref());
        // Nothing is made again by one that is gone.
        let retry = inner.sink_retry.as_ref().filter(|_| inner.sink_gone.is_none());
        SinkSnapshot {
            id: self.sink.clone(),
            required: self.required,
            only_retries: other_trouble.is_none(),
            trouble: other_trouble.or(retry.map(|(_, reason)| reason)).cloned(),
            retry: retry.map(|(retry, _)| *retry),
            published: totals.published,
            dead_lettered: totals.dead_lettered.values().sum(),
            lost: totals.lost,
            failed: totals.failed,
            in_flight_records: self.in_flight_records.load(Ordering::Relaxed),
            oldest_unpublished_seconds: age_seconds(self.oldest_us.load(Ordering::Relaxed)),
        }
    }

    /// Those of each sink's values that count for the pipeline: of the sinks that the position waits for, or the least of as many
    /// as it asks for.
    fn counting<T: Ord>(&self, value: impl Fn(&Self) -> T) -> Vec<T> {
        match self.quorum {
            None => self.all().filter(|status| status.required).map(value).collect(),
            Some(size) => {
                let mut values: Vec<T> = self.all().map(value).collect();
                values.sort();
                values.truncate(size);
                values
            }
        }
    }

    /// Why the position cannot move, as far as the sinks are to blame.
    fn trouble_of_sinks(&self, sinks: &[SinkSnapshot], max_attempts: Option<u32>) -> Option<String> {
        let told = |sink: &SinkSnapshot| {
            let trouble = sink.trouble.clone().filter(|_| !sink.is_tolerated(max_attempts))?;
            Some(match sinks.len() {
                1 => trouble,
                _ => format!("sink `{}`: {trouble}", sink.id),
            })
        };
        let Some(size) = self.quorum else {
            return sinks.iter().filter(|sink| sink.required).find_map(told);
        };
        let troubles: Vec<String> = sinks.iter().filter_map(told).collect();
        let well = sinks.len() - troubles.len();
        let troubles = troubles.join("; ");
        (well < size).then(|| format!("{well} of {size} sinks that `commit_policy` asks for take events: {troubles}"))
    }

    /// In which any trouble of a sink that the position waits for keeps the pipeline from being ready.
    pub fn snapshot(&self) -> Snapshot {
        self.snapshot_with(None)
    }

    /// In which deliveries to a target that can be reached may be made again after so many attempts.
    pub(in crate::telemetry) fn snapshot_with(&self, max_attempts: Option<u32>) -> Snapshot {
        // Before the records are read: what was sent before it rests is among them.
        let rests = self.all().all(|status| status.rests.load(Ordering::Acquire));
        // The youngest first.
        let oldest = self.counting(|status| Reverse(status.oldest_us.load(Ordering::Relaxed)));
        let in_flight_us = oldest.into_iter().max().map_or(i64::MAX, |Reverse(oldest)| oldest);
        let in_flight_bytes = self.counting(|status| status.in_flight_bytes.load(Ordering::Relaxed));
        let in_flight_bytes = in_flight_bytes.into_iter().sum();
        let in_flight_records = self.counting(|status| status.in_flight_records.load(Ordering::Relaxed));
        let in_flight_records = in_flight_records.into_iter().sum();
        let log = self.log();
        let pending_us = log.oldest_pending_us().unwrap_or(i64::MAX);
        let (read, acked) = (log.read.clone(), log.acked.clone());
        let (lag_bytes, pending_bytes) = (log.lag_bytes(), log.pending_bytes());
        let (pending_events, mut stalled) = (log.pending_events(), log.stalled(Instant::now()));
        drop(log);
        let inner = self.inner();
        // Under the locks that the totals are read under: what was received must be among its counts, or in flight.
        let further: Vec<(&Self, MutexGuard<'_, Inner>)> = self
            .further
            .iter()
            .map(|further| (&**further, further.inner()))
            .collect();
        let all = || std::iter::once((self, &*inner)).chain(further.iter().map(|(status, inner)| (*status, &**inner)));
        let sinks: Vec<SinkSnapshot> = all().map(|(status, inner)| status.sink(inner)).collect();
        let registry_trouble = all()
            .filter(|(status, _)| status.required || self.quorum.is_some())
            .find_map(|(_, inner)| inner.registry_trouble.clone());
        let (mut dead_lettered, mut sequence_faults) = (BTreeMap::new(), BTreeMap::new());
        let mut dead_letters_of_late = 0;
        for (_, inner) in all() {
            dead_letters_of_late += inner.parked.as_ref().map_or(0, |parked| parked.of_late(Instant::now()));
            for (reason, count) in &inner.totals.dead_lettered {
                *dead_lettered.entry(*reason).or_default() += count;
            }
            for (fault, count) in &inner.totals.sequence_faults {
                *sequence_faults.entry(*fault).or_default() += count;
            }
        }
        let last_error = all().filter_map(|(_, inner)| inner.last_error.clone());
        let last_error = last_error.max_by_key(|(_, at)| *at);
        drop(further);
        let trouble_of_sinks = self.trouble_of_sinks(&sinks, max_attempts);
        let (state, since) = inner.shown();
        if state.is_end() {
            stalled = Duration::ZERO;
        }
        let troubles = Troubles {
            source: inner.source_trouble.as_deref(),
            sink: trouble_of_sinks.as_deref(),
            checkpoint: inner.checkpoint_trouble.as_deref(),
            audit: inner.audit_trouble.as_deref(),
            registry: registry_trouble.as_deref(),
        };
        let is_paused = state == State::Paused;
        let not_ready = state::not_ready(&inner.state, is_paused, inner.retry.as_ref(), &troubles);
        let is_waiting = matches!(inner.state, State::Waiting { .. });
        Snapshot {
            ready: state::ready(&inner.state, &not_ready),
            state,
            since,
            not_ready,
            paused: inner.paused_since.is_some(),
            rests,
            last_error_at: last_error.as_ref().map(|(_, at)| *at),
            last_error: last_error.map(|(text, _)| text),
            dead_lettered,
            dead_letters_of_late,
            sequence_faults,
            retry: inner.retry.filter(|_| is_waiting),
            totals: inner.totals.clone(),
            published_per_second: inner.published.per_second(Instant::now()),
            sinks,
            read,
            acked,
            saved: inner.saved.as_ref().map(|(position, _)| position.clone()),
            confirmed: inner.confirmed.as_ref().map(|(place, _)| place.clone()),
            kept: inner.kept.clone(),
            checkpoint_age_seconds: inner.saved.as_ref().map(|(_, at)| at.elapsed().as_secs_f64()),
            confirmed_age_seconds: inner.confirmed.as_ref().map(|(_, at)| at.elapsed().as_secs_f64()),
            in_flight_bytes,
            in_flight_records,
            lag_bytes,
            lag_seconds: age_seconds(in_flight_us),
            pending_bytes,
            pending_events,
            oldest_unpublished_seconds: age_seconds(in_flight_us.min(pending_us)),
            stalled,
            delivery: inner.delivery.clone(),
            end_to_end: inner.end_to_end.clone(),
        }
    }
}

/// Seconds since a time in microseconds since 1970; 0 for none, which is i64::MAX.
fn age_seconds(since_us: i64) -> f64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now_us = i64::try_from(now.as_micros()).unwrap_or(i64::MAX);
    now_us.saturating_sub(since_us).max(0) as f64 / 1e6
}
