//! One of a pipeline's sinks.

use std::sync::Arc;

use crate::audit::Journal;
use crate::config::{CommitPolicy, Pipeline};
use crate::processor::DeadLetters;
use crate::telemetry::status::PipelineStatus;

use super::in_flight::Ledger;
use super::parts::Parts;
use super::{Left, RelayParts};

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

    /// What a relay is made with that has one of several sinks; nothing comes again to it that was counted before.
    pub(super) fn relay_parts<P: Parts>(
        &self,
        parts: &P,
        journal: &Journal,
        (sink, ledger): (P::Sink, Ledger),
        left: Left,
        overtakable: bool,
    ) -> RelayParts<P::Sink> {
        let pipeline = &self.pipeline;
        RelayParts {
            chain: parts.chain(pipeline),
            dead_letters: DeadLetters::new(pipeline),
            sink,
            port: journal.port(pipeline.sink.id(), ledger.acks()),
            ledger,
            policies: pipeline.errors,
            delivery: pipeline.delivery,
            status: Arc::clone(&self.status),
            left,
            counted: 0,
            overtakable,
            leads: false,
        }
    }
}
