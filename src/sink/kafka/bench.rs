//! What `benches/micro` measures of this sink: what a record costs the thread that sends it. Only with the feature `bench`,
//! which no release has.

use std::time::Duration;

use rdkafka::ClientContext;
use rdkafka::config::{ClientConfig, FromClientConfigAndContext};
use rdkafka::error::KafkaError;
use rdkafka::producer::{BaseProducer, DeliveryResult, Producer, ProducerContext, PurgeConfig};

use crate::record::Record;

struct Context;

impl ClientContext for Context {
    fn error(&self, _error: KafkaError, _reason: &str) {}
}

impl ProducerContext for Context {
    type DeliveryOpaque = usize;

    fn delivery(&self, _result: &DeliveryResult<'_>, _opaque: usize) {}
}

/// A producer's queue, behind which no broker answers.
pub struct Queue(BaseProducer<Context>);

impl Queue {
    /// `records` is the most that it holds.
    ///
    /// # Errors
    /// Of librdkafka.
    pub fn new(records: usize) -> Result<Self, KafkaError> {
        let mut config = ClientConfig::new();
        config
            .set("bootstrap.servers", "127.0.0.1:1")
            .set("queue.buffering.max.messages", records.to_string())
            .set("log_level", "0");
        BaseProducer::from_config_and_context(&config, Context).map(Self)
    }

    /// # Errors
    /// The queue is full.
    pub fn send(&self, record: &Record) -> Result<(), KafkaError> {
        self.0.send(super::message(record, 0)).map_err(|(error, _)| error)
    }

    /// Drops what it holds.
    pub fn empty(&self) {
        self.0.purge(PurgeConfig::default().queue());
        while self.0.in_flight_count() > 0 {
            self.0.poll(Duration::ZERO);
        }
    }
}
