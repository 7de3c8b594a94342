//! The topic that keeps positions, as a test sees it: through the product's own store, and by its raw records.

use std::sync::Arc;

use rdkafka::producer::{BaseRecord, Producer};
use tailpost::checkpoint::CheckpointError;
use tailpost::checkpoint::kafka::{KafkaStore, Writer};
use tailpost::config::{self, CheckpointTopic, Envelope, OnFenced};
use tailpost::position::Position;

use super::kafka::{ANSWER, Kafka};
use super::plot::Plot;

/// A topic of positions on a cluster.
pub struct Positions<'a> {
    pub kafka: &'a Kafka,
    pub topic: String,
}

impl<'a> Positions<'a> {
    /// The plot's own, `<name>.positions`.
    pub fn of(plot: &'a Plot) -> Self {
        Self {
            kafka: &plot.kafka,
            topic: plot.topic("positions"),
        }
    }

    /// A store of this pipeline, whose source is `src1`.
    pub fn store(&self, pipeline: &str, writer: Writer) -> KafkaStore {
        self.store_by(pipeline, writer, true)
    }

    /// The same, which may make the topic or not.
    pub fn store_by(&self, pipeline: &str, writer: Writer, create: bool) -> KafkaStore {
        let kafka = config::Kafka {
            id: "k1".to_owned(),
            brokers: self.kafka.brokers.clone(),
            topic: None,
            key: None,
            envelope: Envelope::Native,
            exactly_once: writer == Writer::Sink,
            // Of this topic only: tests have pipelines of the same name.
            transactional_id: format!("{}-{pipeline}", self.topic),
            on_fenced: OnFenced::StandBy,
            create_topics: None,
            client_conf: Vec::new(),
        };
        let topic = CheckpointTopic {
            name: self.topic.clone(),
            replication_factor: 1,
            create,
        };
        KafkaStore::new(Arc::new(kafka), topic, pipeline, "src1", writer)
    }

    /// What the pipeline saved last; nobody is shut out.
    pub fn saved(&self, pipeline: &str) -> Result<Option<Position>, CheckpointError> {
        runtime().block_on(self.store(pipeline, Writer::Sink).peek())
    }

    /// Puts a record there, committed.
    pub fn put(&self, key: &str, value: &[u8]) {
        let producer = self.kafka.transactional_producer(&format!("{}-{key}", self.topic));
        producer.init_transactions(ANSWER).expect("init");
        producer.begin_transaction().expect("begin");
        let record = BaseRecord::to(&self.topic).partition(0).key(key).payload(value);
        producer.send(record).map_err(|(error, _)| error).expect("send");
        producer.commit_transaction(ANSWER).expect("commit");
    }
}

/// For a future of the product.
pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Runtime::new().expect("a runtime")
}
