//! What of a report somebody should be told of: `tailpost alert check`, and the same in deploy/prometheus.

use std::time::Duration;

use serde::Serialize;

use crate::config::quantity::{show_duration, show_size};

use super::facts::{age, size};
use super::report::{PipelineReport, Report};
use super::status::State;

/// From where on something is an alert.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit<T> {
    /// Never.
    Off,
    At(T),
}

impl<T> Limit<T> {
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Limit<U> {
        match self {
            Self::Off => Limit::Off,
            Self::At(value) => Limit::At(change(value)),
        }
    }
}

impl<T: PartialOrd> Limit<T> {
    /// The limit, where the value has come to it.
    fn reached_by(self, value: T) -> Option<T> {
        match self {
            Self::At(limit) if value >= limit => Some(limit),
            Self::At(_) | Self::Off => None,
        }
    }
}

/// All limits. Counts are since the process started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Thresholds {
    pub dead_letters: Limit<u64>,
    pub restarts: Limit<u64>,
    /// Of those that were read.
    pub pending_events: Limit<u64>,
    pub oldest_unpublished: Limit<Duration>,
    /// Without progress while something is pending, or without a stream.
    pub stalled: Limit<Duration>,
    /// In bytes of log.
    pub lag: Limit<u64>,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self {
            dead_letters: Limit::At(1),
            restarts: Limit::At(50),
            pending_events: Limit::At(200),
            oldest_unpublished: Limit::At(Duration::from_secs(15 * 60)),
            stalled: Limit::At(Duration::from_secs(10 * 60)),
            lag: Limit::At(1 << 30),
        }
    }
}

/// Limits in place of others; none: as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Overrides {
    pub dead_letters: Option<Limit<u64>>,
    pub restarts: Option<Limit<u64>>,
    pub pending_events: Option<Limit<u64>>,
    pub oldest_unpublished: Option<Limit<Duration>>,
    pub stalled: Option<Limit<Duration>>,
    pub lag: Option<Limit<u64>>,
}

impl Thresholds {
    pub fn with(self, overrides: &Overrides) -> Self {
        Self {
            dead_letters: overrides.dead_letters.unwrap_or(self.dead_letters),
            restarts: overrides.restarts.unwrap_or(self.restarts),
            pending_events: overrides.pending_events.unwrap_or(self.pending_events),
            oldest_unpublished: overrides.oldest_unpublished.unwrap_or(self.oldest_unpublished),
            stalled: overrides.stalled.unwrap_or(self.stalled),
            lag: overrides.lag.unwrap_or(self.lag),
        }
    }
}

/// What an alert is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The process does not answer.
    Unreachable,
    /// A pipeline ended, and a person must act.
    Failed,
    /// A pipeline has not streamed for as long as `stalled` says.
    Down,
    DeadLetters,
    Restarts,
    PendingEvents,
    OldestUnpublished,
    Stalled,
    Lag,
}

impl Kind {
    pub const ALL: [Self; 9] = [
        Self::Unreachable,
        Self::Failed,
        Self::Down,
        Self::DeadLetters,
        Self::Restarts,
        Self::PendingEvents,
        Self::OldestUnpublished,
        Self::Stalled,
        Self::Lag,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::Failed => "failed",
            Self::Down => "down",
            Self::DeadLetters => "dead_letters",
            Self::Restarts => "restarts",
            Self::PendingEvents => "pending_events",
            Self::OldestUnpublished => "oldest_unpublished",
            Self::Stalled => "stalled",
            Self::Lag => "lag",
        }
    }
}

/// Something that somebody should be told of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Alert {
    pub alert: Kind,
    /// None: of the process.
    pub pipeline: Option<String>,
    pub text: String,
}

impl Alert {
    /// On one line.
    pub fn line(&self) -> String {
        let of = self.pipeline.as_deref().unwrap_or("tailpost");
        format!("{of}: {}: {}", self.alert.name(), self.text)
    }
}

/// All alerts of a report, in its pipelines' order.
pub fn check(report: &Report, thresholds: &Thresholds) -> Vec<Alert> {
    let pipelines = report.pipelines.iter();
    pipelines
        .flat_map(|pipeline| check_pipeline(pipeline, report.now, thresholds))
        .collect()
}

fn check_pipeline(p: &PipelineReport, now: u64, thresholds: &Thresholds) -> Vec<Alert> {
    let t = thresholds;
    let mut alerts = Vec::new();
    let mut alert = |alert, text| {
        alerts.push(Alert {
            alert,
            pipeline: Some(p.name.clone()),
            text,
        });
    };
    let for_seconds = now.saturating_sub(p.since);
    match &p.source {
        State::Failed { reason } => alert(Kind::Failed, reason.clone()),
        State::Starting | State::Waiting { .. } => {
            if t.stalled.reached_by(Duration::from_secs(for_seconds)).is_some() {
                let reason = p.not_ready_because.as_deref().unwrap_or("not known");
                alert(Kind::Down, format!("no stream for {}: {reason}", age(for_seconds)));
            }
        }
        State::Streaming | State::Paused | State::StandBy { .. } | State::Draining | State::Stopped => {}
    }
    let counted = |count: u64, what: &str, limit: u64| format!("{count} {what}, limit {limit}");
    if let Some(limit) = t.dead_letters.reached_by(p.states.dead) {
        let text = counted(p.states.dead, "dead letters since the process started", limit);
        alert(Kind::DeadLetters, text);
    }
    if let Some(limit) = t.restarts.reached_by(p.restarts) {
        let text = counted(p.restarts, "restarts since the process started", limit);
        let last = p.last_error.as_ref().map(|error| format!("; last error: {error}"));
        alert(Kind::Restarts, text + &last.unwrap_or_default());
    }
    let pending = &p.states.pending;
    if let Some(limit) = t.pending_events.reached_by(pending.events_read) {
        let text = counted(pending.events_read, "events are read and wait", limit);
        alert(Kind::PendingEvents, text);
    }
    let aged = |seconds: f64| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
    let oldest = aged(p.oldest_unpublished_seconds);
    if let Some(limit) = t.oldest_unpublished.reached_by(oldest) {
        let (age, limit) = (age(oldest.as_secs()), show_duration(limit));
        let text = format!("the oldest unpublished event is {age} old, limit {limit}");
        alert(Kind::OldestUnpublished, text);
    }
    let stalled = aged(p.stalled_seconds);
    if let Some(limit) = t.stalled.reached_by(stalled) {
        let (age, limit) = (age(stalled.as_secs()), show_duration(limit));
        let because = p.not_ready_because.as_deref();
        let because = because.map(|because| format!(": {because}")).unwrap_or_default();
        let text =
            format!("nothing was acknowledged for {age} though there is something to do, limit {limit}{because}");
        alert(Kind::Stalled, text);
    }
    if let Some(bytes) = p.lag_bytes
        && let Some(limit) = t.lag.reached_by(bytes)
    {
        let text = format!(
            "{} of log are not acknowledged, limit {}",
            size(bytes),
            show_size(limit)
        );
        alert(Kind::Lag, text);
    }
    alerts
}

#[cfg(test)]
mod tests;
