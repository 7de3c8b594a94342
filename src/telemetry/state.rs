//! The states of a pipeline, and why one is not ready.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};

/// Where a pipeline's source is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum State {
    #[default]
    Starting,
    Streaming,
    /// An operator holds the relay back. No part of a pipeline enters this: it is shown in place of what they entered.
    Paused,
    /// Something that can heal keeps it from streaming.
    Waiting {
        reason: String,
    },
    /// Another instance has the source.
    StandBy {
        reason: String,
    },
    Draining,
    /// It ended as asked.
    Stopped,
    /// It ended and a person must act.
    Failed {
        reason: String,
    },
}

impl State {
    /// Each state's name.
    pub const NAMES: [&str; 8] = [
        "starting",
        "streaming",
        "paused",
        "waiting",
        "stand_by",
        "draining",
        "stopped",
        "failed",
    ];

    pub fn name(&self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Streaming => "streaming",
            Self::Paused => "paused",
            Self::Waiting { .. } => "waiting",
            Self::StandBy { .. } => "stand_by",
            Self::Draining => "draining",
            Self::Stopped => "stopped",
            Self::Failed { .. } => "failed",
        }
    }

    /// Whether it ended, so that there is nothing to pause.
    pub fn is_end(&self) -> bool {
        matches!(self, Self::Stopped | Self::Failed { .. })
    }
}

/// Of which part of a pipeline something is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    Source,
    Sink,
    Checkpoint,
    Audit,
    Registry,
    Pipeline,
}

impl Part {
    pub fn name(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Sink => "sink",
            Self::Checkpoint => "checkpoint store",
            Self::Audit => "audit ledger",
            Self::Registry => "schema registry",
            Self::Pipeline => "pipeline",
        }
    }
}

/// Why a pipeline is not ready.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotReady {
    pub part: Part,
    pub reason: String,
}

/// A wait before another try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    pub part: Part,
    /// 1 for the first of those in a row.
    pub attempt: u32,
    pub at: SystemTime,
}

/// Deliveries that a sink makes again by itself, while it goes on with all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SinkRetry {
    /// How often the one that was tried most often was tried, in vain.
    pub attempts: u32,
    /// When that one is tried again; past while it waits for room, or is at it.
    pub at: SystemTime,
    /// Ordering keys that are held back meanwhile; an event without one counts by itself.
    pub keys: u64,
    /// The target could be reached for each of them.
    pub is_reached: bool,
}

/// What is wrong with each part at the moment.
#[derive(Debug, Default)]
pub(super) struct Troubles<'a> {
    /// Why nothing comes though a server streams.
    pub(super) source: Option<&'a str>,
    pub(super) sink: Option<&'a str>,
    pub(super) checkpoint: Option<&'a str>,
    pub(super) audit: Option<&'a str>,
    pub(super) registry: Option<&'a str>,
}

/// Each part's reason: the operator's first, then the state's.
pub(super) fn not_ready(
    state: &State,
    is_paused: bool,
    retry: Option<&Retry>,
    troubles: &Troubles<'_>,
) -> Vec<NotReady> {
    let waiting_part = retry.map_or(Part::Source, |retry| retry.part);
    let of_state = match state {
        State::Streaming | State::Paused => None,
        State::Starting => Some((Part::Source, "starting".to_owned())),
        State::Waiting { reason } => Some((waiting_part, format!("waiting: {reason}"))),
        State::StandBy { reason } => Some((Part::Source, format!("standing by: {reason}"))),
        State::Draining => Some((Part::Pipeline, "draining".to_owned())),
        State::Stopped => Some((Part::Pipeline, "stopped".to_owned())),
        State::Failed { reason } => Some((Part::Pipeline, format!("failed: {reason}"))),
    };
    let paused = is_paused.then(|| (Part::Pipeline, "paused".to_owned()));
    // What nothing is asked of any more has no troubles.
    let is_at_work = matches!(
        state,
        State::Starting | State::Streaming | State::Paused | State::Waiting { .. }
    );
    let of_parts = [
        // Kept over connections, and said while there is one.
        (Part::Source, troubles.source.filter(|_| *state == State::Streaming)),
        (Part::Sink, troubles.sink),
        (Part::Checkpoint, troubles.checkpoint),
        (Part::Audit, troubles.audit),
        (Part::Registry, troubles.registry),
    ];
    let of_parts = of_parts.into_iter().filter(|_| is_at_work);
    let of_parts = of_parts.filter_map(|(part, trouble)| Some((part, trouble?.to_owned())));
    let all = paused.into_iter().chain(of_state).chain(of_parts);
    all.map(|(part, reason)| NotReady { part, reason }).collect()
}

/// All reasons in one text.
pub(super) fn ready(state: &State, not_ready: &[NotReady]) -> Result<(), String> {
    if not_ready.is_empty() {
        return Ok(());
    }
    let reasons: Vec<&str> = not_ready.iter().map(|found| found.reason.as_str()).collect();
    // The sink's part of a start.
    let between = match (state, not_ready) {
        (State::Starting, [first, ..]) if first.part == Part::Source => ": ",
        _ => "; ",
    };
    Err(reasons.join(between))
}
