//! One of a pipeline's sinks, and what its lives leave to one another.

use std::sync::Arc;

use crate::config::{CommitPolicy, Pipeline};
use crate::position::{EventPosition, Position};
use crate::telemetry::status::PipelineStatus;

use super::Culprit;

/// What belongs to one of a pipeline's sinks.
#[derive(Debug, Clone)]
pub(crate) struct Branch {
    /// The pipeline, with this sink alone.
    pub(super) pipeline: Pipeline,
    pub(super) status: Arc<PipelineStatus>,
    /// Whether it is waited for by itself: not one of a quorum, and required.
    pub(super) held: bool,
}

impl Branch {
    /// Of each sink, the leading one first.
    pub(crate) fn all(pipeline: &Pipeline, status: &Arc<PipelineStatus>) -> Vec<Self> {
        let counted = pipeline.commit_policy == CommitPolicy::Required;
        let required = pipeline.further_sinks.iter().map(|further| further.required);
        let required = std::iter::once(true).chain(required);
        let statuses = std::iter::once(status).chain(status.further_sinks()).cloned();
        let parts = pipeline.of_each_sink().zip(statuses).zip(required);
        let branches = parts.map(|((pipeline, status), required)| Self {
            pipeline,
            status,
            held: required && counted,
        });
        branches.collect()
    }
}

/// What a sink's life leaves to the next.
#[derive(Debug, Default)]
pub(super) struct Left {
    /// Events to be sent one by one.
    pub(super) single: u64,
    /// Those that follow this one.
    pub(super) behind: Option<Box<EventPosition>>,
    /// The event that the sink refused when it travelled alone.
    pub(super) culprit: Option<Culprit>,
}

impl Left {
    /// What it is to a life that begins at a position, where the event that it names may not come again.
    pub(super) fn from(mut self, position: Option<&Position>) -> Self {
        self.behind = self
            .behind
            .filter(|at| position.is_none_or(|position| !position.covers(at)));
        self
    }
}
