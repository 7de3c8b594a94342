//! Sends one record after the other through a pipeline's own sink, and tells of each what became of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::config::Pipeline;
use crate::record::Record;
use crate::relay::in_flight::{Fate, Ledger, Limits, Progress};
use crate::sink::{AnySink, DeliveryError, SendError, Sink, SinkError, SinkParts};
use crate::telemetry::status::PipelineStatus;

/// What became of a record.
#[derive(Debug)]
pub(super) enum Delivery {
    Acked,
    /// The target does not take this one; others it may.
    Refused(DeliveryError),
    /// Nobody knows.
    NoAnswer,
}

/// See the module's text.
pub(super) struct Sender {
    parts: SinkParts,
    status: Arc<PipelineStatus>,
    patience: Duration,
    life: Option<Life>,
}

/// A sink, until it fails.
struct Life {
    sink: AnySink,
    ledger: Ledger,
}

impl Sender {
    /// `patience`: how long a record is tried.
    pub(super) fn new(pipeline: &Pipeline, patience: Duration) -> Self {
        Self {
            parts: SinkParts::for_replay(pipeline),
            status: PipelineStatus::new(pipeline),
            patience,
            life: None,
        }
    }

    pub(super) fn patience(&self) -> Duration {
        self.patience
    }

    /// Sends a record. Behind one that is not acked the sink is made anew, so that nothing of it comes late.
    ///
    /// # Errors
    /// The target takes none at all.
    pub(super) async fn deliver(&mut self, record: &Record) -> Result<Delivery, SinkError> {
        let mut life = match self.life.take() {
            Some(life) => life,
            None => Life::new(&self.parts, &self.status)?,
        };
        let delivered = tokio::time::timeout(self.patience, Box::pin(life.deliver(record.clone()))).await;
        match delivered {
            Ok(Ok(Delivery::Acked)) => {
                self.life = Some(life);
                Ok(Delivery::Acked)
            }
            ended => {
                life.close().await;
                match ended {
                    Err(_) => Ok(Delivery::NoAnswer),
                    Ok(Err(SinkError::Delivery(error))) if error.kind.is_record() => Ok(Delivery::Refused(error)),
                    Ok(result) => result,
                }
            }
        }
    }

    pub(super) async fn close(self) {
        if let Some(life) = self.life {
            life.close().await;
        }
    }
}

impl Life {
    fn new(parts: &SinkParts, status: &Arc<PipelineStatus>) -> Result<Self, SinkError> {
        let ledger = Ledger::new(Limits {
            events: 1,
            bytes: u64::MAX,
            uncommitted: None,
        });
        let sink = parts.make(ledger.acks(), status)?;
        Ok(Self { sink, ledger })
    }

    async fn deliver(&mut self, mut record: Record) -> Result<Delivery, SinkError> {
        let bytes = record.byte_len() as u64;
        let commit_time_us = record.timestamp_ms.saturating_mul(1000);
        loop {
            match self.sink.send(self.ledger.next_seq(), record) {
                Ok(()) => break,
                Err(SendError::NotReady(back) | SendError::CommitFirst(back)) => record = *back,
                Err(SendError::Rejected(_, error)) => return Ok(Delivery::Refused(error)),
            }
            self.sink.ready().await?;
        }
        self.ledger.sent(bytes, commit_time_us, Instant::now(), Fate::Published);
        self.sink.hurry();
        loop {
            self.sink.take_reports();
            if let Some(refused) = self.ledger.take_refused().pop() {
                return Ok(Delivery::Refused(refused.error));
            }
            if let Some(failure) = self.ledger.take_failures().pop() {
                return Err(failure.error.into());
            }
            self.ledger.advance(&mut Progress::default());
            if self.ledger.is_empty() {
                return Ok(Delivery::Acked);
            }
            tokio::select! {
                () = self.ledger.changed() => {}
                () = self.sink.reported() => {}
            }
        }
    }

    /// What is not acked is given up, which the caller knows.
    async fn close(self) {
        if let Err(error) = self.sink.close(tokio::time::Instant::now()).await {
            tracing::debug!(error = %error, "the sink was closed before it had done");
        }
    }
}
