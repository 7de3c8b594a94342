//! One of a pipeline's sinks.

use std::sync::Arc;

use crate::config::{CommitPolicy, Pipeline};
use crate::telemetry::status::PipelineStatus;

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
