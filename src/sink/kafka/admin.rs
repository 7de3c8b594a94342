//! The client for what is asked of the cluster beside records, which is there only for as long as it is wanted.
//!
//! It has threads, connections and memory of its own, no fewer than a producer, and a pipeline that knows its topics has no
//! more questions.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use rdkafka::admin::{AdminClient, AdminOptions};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::FromClientConfig;
use rdkafka::error::KafkaResult;
use rdkafka::metadata::Metadata;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep_until};

use crate::config;
use crate::sink::DeliveryError;

use super::asking::Asking;
use super::client::{client_config, no_answer};
use super::topics::{REQUEST, first_broker, lists, unavailable};

/// How long it is kept after a question: topics tend to come together.
const KEPT: Duration = Duration::from_secs(10);

/// Asks for topics' settings and makes topics, over connections of its own.
pub(crate) struct Admin {
    pub(super) client: AdminClient<DefaultClientContext>,
    asking: Asking,
}

impl Admin {
    /// # Errors
    /// When `client_conf` does not fit librdkafka.
    pub(crate) fn new(kafka: &config::Kafka) -> KafkaResult<Self> {
        Ok(Self {
            client: AdminClient::from_config(&client_config(kafka))?,
            asking: Asking::new(&kafka.brokers),
        })
    }

    pub(super) fn brokers(&self) -> &str {
        self.asking.brokers()
    }

    /// What this client is told of the cluster and of a topic, or of all: see [`Asking::metadata`]. Each client knows the
    /// brokers that it was told of itself, and waits for any other.
    ///
    /// # Errors
    /// `Unavailable`: no answer.
    pub(super) fn cluster(&self, topic: Option<&str>) -> Result<Metadata, DeliveryError> {
        let answer = self.asking.metadata(self.client.inner(), topic, REQUEST);
        answer.map_err(|_| unavailable(no_answer(self.brokers())))
    }

    /// Whether there is such a topic, as far as the user may know. Of all topics: to ask for one can make it.
    ///
    /// # Errors
    /// `Unavailable`: no answer, or one of brokers that know nothing yet.
    pub(crate) fn has_topic(&self, name: &str) -> Result<bool, DeliveryError> {
        let metadata = self.cluster(None)?;
        first_broker(&metadata, self.brokers())?;
        Ok(lists(&metadata, name))
    }

    /// Deletes the records of partitions that stand before these offsets.
    ///
    /// # Errors
    /// The brokers' words.
    pub(crate) async fn delete_before(&self, topic: &str, offsets: &BTreeMap<i32, i64>) -> KafkaResult<()> {
        let mut list = TopicPartitionList::new();
        for (partition, offset) in offsets {
            list.add_partition_offset(topic, *partition, Offset::Offset(*offset))?;
        }
        let options = AdminOptions::new()
            .request_timeout(Some(REQUEST))
            .operation_timeout(Some(REQUEST));
        let deleted = self.client.delete_records(&list, &options).await?;
        deleted.elements().iter().try_for_each(|element| element.error())
    }
}

/// A sink's [`Admin`], made at the first question and let go some time after the last.
#[derive(Clone)]
pub(super) struct AdminOnDemand {
    config: Arc<config::Kafka>,
    kept: Arc<Mutex<Option<Kept>>>,
}

struct Kept {
    admin: Arc<Admin>,
    until: Instant,
}

impl AdminOnDemand {
    pub(super) fn new(config: &Arc<config::Kafka>) -> Self {
        Self {
            config: Arc::clone(config),
            kept: Arc::default(),
        }
    }

    /// Must be called within a runtime, on a thread that may wait: the last to drop it waits for its threads.
    ///
    /// # Errors
    /// `Unavailable`: it cannot be made, as without memory or threads for it.
    pub(super) fn get(&self) -> Result<Arc<Admin>, DeliveryError> {
        let until = Instant::now() + KEPT;
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kept) = kept.as_mut() {
            kept.until = until;
            return Ok(Arc::clone(&kept.admin));
        }
        let made =
            Admin::new(&self.config).map_err(|error| unavailable(format!("make a client for questions: {error}")))?;
        let admin = Arc::new(made);
        *kept = Some(Kept {
            admin: Arc::clone(&admin),
            until,
        });
        Handle::current().spawn(let_go(Arc::downgrade(&self.kept), until));
        Ok(admin)
    }
}

/// Waits until the client was not asked for long enough, or its sink is gone.
async fn let_go(kept: Weak<Mutex<Option<Kept>>>, mut until: Instant) {
    loop {
        sleep_until(until).await;
        let Some(kept) = kept.upgrade() else { return };
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        match kept.as_ref() {
            Some(kept) if kept.until > Instant::now() => until = kept.until,
            _ => {
                let idle = kept.take();
                // Dropping it waits for its threads.
                tokio::task::spawn_blocking(move || drop(idle));
                return;
            }
        }
    }
}
