//! The sink of a pipeline file, whatever its type, and beside it the file that dead letters are kept in.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::config::{self, DeadLetterPlace, LetterFile, Pipeline};
use crate::position::Position;
use crate::record::Record;
use crate::relay::in_flight::{Acks, Seq};
use crate::relay::kafka_parts;
use crate::telemetry::status::PipelineStatus;

use super::http::{HttpSink, HttpSinkParts};
use super::kafka::{KafkaSink, KafkaSinkParts, UnknownTopics};
use super::letters::LetterMedium;
use super::lines::{FileLines, StdoutLines};
use super::worker::Worker;
use super::{SendError, Sink, SinkError};

/// What the sinks of one pipeline's lives are made with.
pub(crate) struct SinkParts {
    target: TargetParts,
    letters: Option<LetterFile>,
}

enum TargetParts {
    Kafka(Box<KafkaSinkParts>),
    Http(HttpSinkParts),
    File(PathBuf),
    Stdout,
    /// Whoever reads it may go away.
    Shown(CancellationToken),
}

impl SinkParts {
    /// Paths in the file are seen from the folder that the process runs in, but for that of dead letters: from the state
    /// directory.
    pub(crate) fn new(pipeline: &Pipeline, state_dir: &Path) -> Self {
        let target = match &pipeline.sink {
            config::Sink::Kafka(kafka) => TargetParts::Kafka(Box::new(kafka_parts(pipeline, kafka))),
            config::Sink::Http(http) => TargetParts::Http(HttpSinkParts {
                config: Arc::new(http.as_ref().clone()),
            }),
            config::Sink::File(file) => TargetParts::File(file.path.clone()),
            config::Sink::Stdout(_) => TargetParts::Stdout,
        };
        let letters = pipeline
            .dead_letter
            .as_ref()
            .and_then(|dead_letter| match &dead_letter.place {
                DeadLetterPlace::File(file) => Some(file.in_folder(state_dir)),
                DeadLetterPlace::Topic(_) => None,
            });
        Self { target, letters }
    }

    /// Lines on standard output in place of any sink. `closed` is cancelled when nobody reads them any more.
    pub(crate) fn for_looking(closed: CancellationToken) -> Self {
        Self {
            target: TargetParts::Shown(closed),
            letters: None,
        }
    }

    /// For an operator's command beside the pipeline, which may run: without transactions, whose id would shut that out, and
    /// without a place for dead letters. A topic that does not exist is an error at once.
    pub(crate) fn for_replay(pipeline: &Pipeline) -> Self {
        let target = match &pipeline.sink {
            config::Sink::Kafka(kafka) => {
                let kafka = config::Kafka {
                    exactly_once: false,
                    ..kafka.clone()
                };
                TargetParts::Kafka(Box::new(KafkaSinkParts {
                    positions: None,
                    unknown_topics: UnknownTopics::Reject { except: None },
                    ..kafka_parts(pipeline, &kafka)
                }))
            }
            _ => {
                return Self {
                    letters: None,
                    ..Self::new(pipeline, Path::new(""))
                };
            }
        };
        Self { target, letters: None }
    }

    /// Makes a sink that reports to `acks`. Must be called within a runtime.
    ///
    /// # Errors
    /// When what the file names cannot be opened or set up.
    pub(crate) fn make(&self, acks: Acks, status: &Arc<PipelineStatus>) -> Result<AnySink, SinkError> {
        // What the one before it was in trouble with may be over.
        status.sink_trouble(None);
        let target = match &self.target {
            TargetParts::Kafka(parts) => Target::Kafka(Box::new(KafkaSink::new(
                parts.as_ref().clone(),
                acks.clone(),
                Arc::clone(status),
            )?)),
            TargetParts::Http(parts) => Target::Http(HttpSink::new(parts, acks.clone(), Arc::clone(status))?),
            TargetParts::File(path) => Target::Lines(Worker::start(
                FileLines::open(path)?,
                acks.clone(),
                Arc::clone(status),
                |_| {},
            )),
            TargetParts::Stdout | TargetParts::Shown(_) => {
                let lines = match &self.target {
                    TargetParts::Shown(closed) => StdoutLines::telling(closed.clone()),
                    _ => StdoutLines::default(),
                };
                Target::Lines(Worker::start(lines, acks.clone(), Arc::clone(status), |_| {}))
            }
        };
        let letters = match &self.letters {
            Some(file) => {
                let passer = match &target {
                    Target::Http(http) => Some(http.passer()),
                    Target::Kafka(_) | Target::Lines(_) => None,
                };
                let written = move |seq| {
                    if let Some(passer) = &passer {
                        passer.pass_over(seq);
                    }
                };
                Some(Worker::start(
                    LetterMedium::open(file)?,
                    acks,
                    Arc::clone(status),
                    written,
                ))
            }
            None => None,
        };
        Ok(AnySink { target, letters })
    }
}

/// See the module's text.
pub(crate) struct AnySink {
    target: Target,
    /// None: dead letters go the target's way.
    letters: Option<Worker>,
}

enum Target {
    Kafka(Box<KafkaSink>),
    Http(HttpSink),
    Lines(Worker),
}

impl Sink for AnySink {
    async fn claim(&mut self) -> Result<(), SinkError> {
        match &mut self.target {
            Target::Kafka(kafka) => kafka.claim().await,
            Target::Http(_) | Target::Lines(_) => Ok(()),
        }
    }

    fn commits_within(&self) -> Option<Duration> {
        match &self.target {
            Target::Kafka(kafka) => kafka.commits_within(),
            Target::Http(_) | Target::Lines(_) => None,
        }
    }

    fn commit(&mut self, seq: Seq, position: &Position) {
        if let Target::Kafka(kafka) = &mut self.target {
            kafka.commit(seq, position);
        }
    }

    #[inline]
    fn send(&mut self, seq: Seq, record: Record) -> Result<(), SendError> {
        match &mut self.target {
            Target::Kafka(kafka) => kafka.send(seq, record),
            Target::Http(http) => http.send(seq, record),
            Target::Lines(lines) => {
                lines.give(seq, record);
                Ok(())
            }
        }
    }

    fn park(&mut self, seq: Seq, letter: Record) -> Result<(), SendError> {
        match &self.letters {
            Some(letters) => {
                letters.give(seq, letter);
                Ok(())
            }
            None => self.send(seq, letter),
        }
    }

    fn pass_over(&mut self, seq: Seq) {
        if let Target::Http(http) = &self.target {
            http.pass_over(seq);
        }
    }

    fn refuses_singly(&self) -> bool {
        matches!(self.target, Target::Http(_))
    }

    fn hurry(&mut self) {
        if let Target::Kafka(kafka) = &mut self.target {
            kafka.hurry();
        }
    }

    fn take_reports(&mut self) {
        if let Target::Kafka(kafka) = &mut self.target {
            kafka.take_reports();
        }
    }

    async fn reported(&self) {
        match &self.target {
            Target::Kafka(kafka) => kafka.reported().await,
            Target::Http(_) | Target::Lines(_) => std::future::pending().await,
        }
    }

    async fn ready(&mut self) -> Result<(), SinkError> {
        match &mut self.target {
            Target::Kafka(kafka) => kafka.ready().await,
            // They give nothing back.
            Target::Http(_) | Target::Lines(_) => Ok(()),
        }
    }

    async fn close(self, deadline: Instant) -> Result<(), SinkError> {
        if let Some(letters) = self.letters {
            letters.close().await;
        }
        match self.target {
            Target::Kafka(kafka) => kafka.close(deadline).await,
            Target::Http(http) => http.close(deadline).await,
            Target::Lines(lines) => {
                lines.close().await;
                Ok(())
            }
        }
    }
}
