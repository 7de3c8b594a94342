//! What a pipeline is made of: its checkpoint store, and a sink and a source that are made anew for each life.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::checkpoint::file::FileStore;
use crate::checkpoint::kafka::{KafkaStore, Writer};
use crate::checkpoint::{CheckpointError, CheckpointStore, Store};
use crate::config::{self, Checkpoint, CheckpointTopic, ErrorPolicy, Pipeline, Processor};
use crate::position::Position;
use crate::processor::Chain;
use crate::sequences::{Sequences, WithSequences};
use crate::sink::kafka::{KafkaSinkParts, Positions, UnknownTopics};
use crate::sink::{AnySink, Sink, SinkError, SinkParts};
use crate::source::mysql::{AcceptedLog, MysqlSource};
use crate::source::postgres::PostgresSource;
use crate::source::{LogChannel, Source, SourceError, SourceOptions};
use crate::telemetry::status::PipelineStatus;

use super::branch::Branch;
use super::in_flight::Acks;
use super::reach::Lane;

/// Makes the parts that the supervisor joins.
pub(crate) trait Parts: Send + Sync + 'static {
    type Store: CheckpointStore;
    type Sink: Sink;

    /// Opens the checkpoint store, once.
    fn store(&self) -> Result<Self::Store, CheckpointError>;

    /// A life begins at this checkpoint.
    fn begin(&self, _from: Option<&Position>) {}

    /// Makes the processors in front of the sink of this pipeline.
    fn chain(&self, pipeline: &Pipeline) -> Chain {
        Chain::new(pipeline)
    }

    /// Makes the sink of a lane, which reports to `acks`.
    fn sink(&self, lane: Lane, acks: Acks) -> Result<Self::Sink, SinkError>;

    /// Runs the source over one connection.
    fn source(
        &self,
        options: SourceOptions,
        log: &mut LogChannel,
    ) -> impl Future<Output = Result<(), SourceError>> + Send;
}

/// The parts that a pipeline file names.
pub(super) struct PipelineParts {
    name: String,
    source: SourceConfig,
    /// Of each lane, with where they say how they are.
    sinks: Vec<(SinkParts, Arc<PipelineStatus>)>,
    checkpoint: CheckpointPlace,
    /// None: no processor asks for them.
    sequences: Option<Arc<Sequences>>,
    state_dir: PathBuf,
}

/// A source as its file has it, from which each connection is made anew.
pub(super) enum SourceConfig {
    Postgres(Arc<config::Postgres>),
    Mysql {
        config: Arc<config::Mysql>,
        accepted: AcceptedLog,
    },
}

impl SourceConfig {
    pub(super) fn new(source: &config::Source) -> Self {
        match source {
            config::Source::Postgres(source) => Self::Postgres(Arc::new(source.as_ref().clone())),
            config::Source::Mysql(source) => Self::Mysql {
                config: Arc::new(source.as_ref().clone()),
                accepted: AcceptedLog::default(),
            },
        }
    }

    fn id(&self) -> &str {
        match self {
            Self::Postgres(config) => &config.id,
            Self::Mysql { config, .. } => &config.id,
        }
    }

    /// Runs over one connection; `name` keeps other instances out.
    pub(super) async fn run(
        &self,
        name: &str,
        options: SourceOptions,
        log: &mut LogChannel,
    ) -> Result<(), SourceError> {
        match self {
            Self::Postgres(config) => PostgresSource::new(Arc::clone(config), options).run(log).await,
            Self::Mysql { config, accepted } => {
                MysqlSource::new(Arc::clone(config), name, options, accepted.clone())
                    .run(log)
                    .await
            }
        }
    }
}

impl PipelineParts {
    pub(super) fn new(pipeline: &Pipeline, branches: &[Branch], state_dir: PathBuf) -> Self {
        let sinks = branches
            .iter()
            .map(|branch| (SinkParts::new(&branch.pipeline, &state_dir), Arc::clone(&branch.status)));
        Self {
            sinks: sinks.collect(),
            checkpoint: CheckpointPlace::new(pipeline),
            name: pipeline.name.clone(),
            source: SourceConfig::new(&pipeline.source),
            sequences: pipeline
                .keeps_sequences()
                .then(|| Arc::new(Sequences::new(&state_dir, &pipeline.name))),
            state_dir,
        }
    }
}

/// Where positions are kept, with what reaches them there.
enum CheckpointPlace {
    File,
    Kafka {
        cluster: Arc<config::Kafka>,
        topic: CheckpointTopic,
    },
}

impl CheckpointPlace {
    fn new(pipeline: &Pipeline) -> Self {
        match (&pipeline.checkpoint, pipeline.sink.kafka()) {
            (Checkpoint::Kafka(topic), Some(kafka)) => Self::Kafka {
                cluster: Arc::new(kafka.clone()),
                topic: topic.clone(),
            },
            _ => Self::File,
        }
    }
}

/// What a sink of type `kafka` is made with, for all lives of a pipeline.
pub(crate) fn kafka_parts(pipeline: &Pipeline, kafka: &config::Kafka) -> KafkaSinkParts {
    KafkaSinkParts {
        config: Arc::new(kafka.clone()),
        max_events: pipeline.delivery.max_in_flight_events,
        positions: match &pipeline.checkpoint {
            Checkpoint::Kafka(topic) if kafka.exactly_once => Some(Positions {
                topic: topic.clone(),
                pipeline: pipeline.name.clone(),
                source: pipeline.source.id().to_owned(),
            }),
            Checkpoint::Kafka(_) | Checkpoint::File => None,
        },
        unknown_topics: unknown_topics(pipeline),
        names_partitions: pipeline.processors.iter().any(names_partitions),
        batch_limit: Arc::new(AtomicU64::new(u64::MAX)),
    }
}

/// An event whose topic does not exist is unroutable, and its record one that the sink will not take: only where both are
/// parked is nothing lost, and no stop made of a wait.
fn unknown_topics(pipeline: &Pipeline) -> UnknownTopics {
    let policies = [pipeline.errors.unroutable, pipeline.errors.rejected];
    match &pipeline.dead_letter {
        Some(dead_letter) if policies == [ErrorPolicy::DeadLetter; 2] => UnknownTopics::Reject {
            except: dead_letter.topic().map(str::to_owned),
        },
        _ => UnknownTopics::Wait,
    }
}

fn names_partitions(processor: &Processor) -> bool {
    match processor {
        Processor::Outbox(outbox) => outbox.columns.partition.is_some(),
        Processor::Filter(_) | Processor::Mask(_) | Processor::Validate(_) => false,
    }
}

impl Parts for PipelineParts {
    type Store = WithSequences<Store>;
    type Sink = AnySink;

    fn store(&self) -> Result<Self::Store, CheckpointError> {
        let mut sequences = self.sequences.clone();
        let store = match &self.checkpoint {
            CheckpointPlace::File => Store::File(FileStore::open(&self.state_dir, &self.name, self.source.id())?),
            CheckpointPlace::Kafka { cluster, topic } => {
                // An older file would be passed over in silence, and the stream begin anew.
                FileStore::refuse_leftover(&self.state_dir, &self.name)?;
                let writer = match cluster.exactly_once {
                    // The relay writes the numbers, before the sink commits.
                    true => {
                        sequences = None;
                        Writer::Sink
                    }
                    false => Writer::Own,
                };
                let (cluster, topic) = (Arc::clone(cluster), topic.clone());
                Store::Kafka(KafkaStore::new(cluster, topic, &self.name, self.source.id(), writer))
            }
        };
        Ok(WithSequences { store, sequences })
    }

    fn begin(&self, from: Option<&Position>) {
        if let Some(sequences) = &self.sequences {
            sequences.begin(from);
        }
    }

    fn chain(&self, pipeline: &Pipeline) -> Chain {
        let mut chain = Chain::new(pipeline);
        if let Some(sequences) = &self.sequences {
            chain.keep_sequences(Arc::clone(sequences), pipeline.sink.id());
        }
        chain
    }

    fn sink(&self, lane: Lane, acks: Acks) -> Result<AnySink, SinkError> {
        let (sink, status) = &self.sinks[lane];
        sink.make(acks, status)
    }

    async fn source(&self, options: SourceOptions, log: &mut LogChannel) -> Result<(), SourceError> {
        self.source.run(&self.name, options, log).await
    }
}
