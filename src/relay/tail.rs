//! What a pipeline would publish now, as lines on standard output: its source and its processors, without its sinks and without
//! a checkpoint. Nothing on the servers is changed or held: PostgreSQL is read by a slot that goes with its connection, and
//! MySQL under a server id and a lock of this look alone.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::audit::Journal;
use crate::checkpoint::{CheckpointError, CheckpointStore};
use crate::config::{self, Checkpoint, MysqlStart, Pipeline, Sink, Start};
use crate::position::Position;
use crate::sink::{AnySink, SinkError, SinkParts};
use crate::source::{LogChannel, OperatorWord, SourceError, SourceOptions};
use crate::telemetry::status::PipelineStatus;

use super::branch::Branch;
use super::in_flight::Acks;
use super::parts::{Parts, SourceConfig};
use super::reach::Lane;
use super::supervise::{PipelineError, Supervisor};

/// Shows what comes from now on until it is stopped. `closed` is cancelled when nobody reads standard output any more, which is
/// no failure.
///
/// # Errors
/// What would end the pipeline too, and the loss of the connection: what comes meanwhile could not be shown.
pub(crate) async fn tail(
    pipeline: Pipeline,
    stop: CancellationToken,
    closed: CancellationToken,
) -> Result<(), PipelineError> {
    let span = tracing::info_span!("tail", name = pipeline.name);
    let pipeline = without_traces(pipeline);
    let status = PipelineStatus::new(&pipeline);
    let parts = TailParts {
        // Names the lock of MySQL: not the pipeline's, which may run.
        name: format!("{} tail {:08x}", pipeline.name, rand::random::<u32>()),
        source: SourceConfig::new(&pipeline.source),
        sink: SinkParts::for_looking(closed),
        status: Arc::clone(&status),
    };
    let supervisor = Supervisor {
        parts: Arc::new(parts),
        branches: Branch::all(&pipeline, &status),
        pipeline,
        once: false,
        word: OperatorWord::Nothing,
        journal: Journal::default(),
        status,
        stop,
    };
    supervisor.run().instrument(span).await
}

/// The pipeline from now on, with nothing in it that leaves a trace: its leading sink makes the records, and sends none.
fn without_traces(mut pipeline: Pipeline) -> Pipeline {
    pipeline.further_sinks = Vec::new();
    pipeline.checkpoint = Checkpoint::File;
    pipeline.audit = None;
    pipeline.dispatches = None;
    if let Sink::Kafka(kafka) = &mut pipeline.sink {
        kafka.exactly_once = false;
    }
    if let Some(dead_letter) = &mut pipeline.dead_letter {
        dead_letter.notify = None;
    }
    match &mut pipeline.source {
        config::Source::Postgres(postgres) => {
            postgres.slot = format!("tailpost_tail_{:08x}", rand::random::<u32>());
            postgres.temporary = true;
            postgres.create = false;
            postgres.failover = false;
            postgres.start = Start::Latest;
        }
        config::Source::Mysql(mysql) => {
            // Servers and pipelines are given small numbers by people.
            mysql.server_id = rand::random_range(u32::MAX / 2..u32::MAX);
            mysql.start = MysqlStart::Latest;
        }
    }
    pipeline
}

struct TailParts {
    name: String,
    source: SourceConfig,
    sink: SinkParts,
    status: Arc<PipelineStatus>,
}

impl Parts for TailParts {
    type Store = Nowhere;
    type Sink = AnySink;

    fn store(&self) -> Result<Nowhere, CheckpointError> {
        Ok(Nowhere)
    }

    fn sink(&self, _lane: Lane, acks: Acks) -> Result<AnySink, SinkError> {
        self.sink.make(acks, &self.status)
    }

    async fn source(&self, options: SourceOptions, log: &mut LogChannel) -> Result<(), SourceError> {
        self.source.run(&self.name, options, log).await
    }
}

/// Keeps no position.
struct Nowhere;

impl CheckpointStore for Nowhere {
    async fn load(&mut self) -> Result<Option<Position>, CheckpointError> {
        Ok(None)
    }

    async fn save(&mut self, _position: &Position) -> Result<(), CheckpointError> {
        Ok(())
    }
}
