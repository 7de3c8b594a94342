//! Kafka: librdkafka's test broker in this process, and a consumer that reads all that arrives there.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{Headers, Message};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka::{Offset, TopicPartitionList};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::error::DemoError;
use super::wait;

const PARTITIONS: i32 = 4;
/// Records read and not taken yet.
const CHANNEL: usize = 1024;
/// How long a poll may take, and so the longest wait of a stop.
const POLL: Duration = Duration::from_millis(50);
const REQUEST: Duration = Duration::from_secs(10);

/// An offset for each topic and partition.
type Offsets = HashMap<(String, i32), i64>;

/// A record as a consumer sees it.
#[derive(Debug, Clone)]
pub(super) struct Arrival {
    pub(super) topic: String,
    pub(super) partition: i32,
    pub(super) offset: i64,
    pub(super) key: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) payload: String,
}

impl Arrival {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let header = self.headers.iter().find(|(header, _)| header == name);
        header.map(|(_, value)| value.as_str())
    }
}

/// The broker and its one consumer.
pub(super) struct Broker {
    consumer: Arc<BaseConsumer>,
    topics: &'static [&'static str],
    /// Behind the last record taken.
    taken: Offsets,
    arrivals: mpsc::Receiver<Result<Arrival, KafkaError>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    cluster: MockCluster<'static, DefaultProducerContext>,
}

impl fmt::Debug for Broker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Broker")
            .field("topics", &self.topics)
            .finish_non_exhaustive()
    }
}

impl Broker {
    /// Starts the broker on a free port of the loopback address, with these topics.
    pub(super) fn start(topics: &'static [&'static str]) -> Result<Self, DemoError> {
        let failed = |action| move |source| DemoError::Kafka { action, source };
        let cluster = MockCluster::new(1).map_err(failed("start"))?;
        let mut all = TopicPartitionList::new();
        for topic in topics {
            cluster
                .create_topic(topic, PARTITIONS, 1)
                .map_err(failed("make a topic"))?;
            for partition in 0..PARTITIONS {
                all.add_partition_offset(topic, partition, Offset::Beginning)
                    .map_err(failed("choose partitions"))?;
            }
        }
        let consumer: BaseConsumer = ClientConfig::new()
            .set("bootstrap.servers", cluster.bootstrap_servers())
            .set("group.id", "tailpost-demo")
            .set("enable.auto.commit", "false")
            // The test broker answers an empty fetch only when its time is up.
            .set("fetch.wait.max.ms", "5")
            .create()
            .map_err(failed("make a consumer"))?;
        consumer.assign(&all).map_err(failed("assign partitions"))?;
        let consumer = Arc::new(consumer);
        let (sender, arrivals) = mpsc::channel(CHANNEL);
        let stop = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let (consumer, stop) = (Arc::clone(&consumer), Arc::clone(&stop));
            move || read(&consumer, &sender, &stop)
        });
        Ok(Self {
            consumer,
            topics,
            taken: HashMap::new(),
            arrivals,
            stop,
            thread: Some(thread),
            cluster,
        })
    }

    pub(super) fn address(&self) -> String {
        self.cluster.bootstrap_servers()
    }

    /// The next record.
    pub(super) async fn next(&mut self, what: &'static str, limit: Duration) -> Result<Arrival, DemoError> {
        match timeout(limit, self.arrivals.recv()).await {
            Err(_) => Err(wait::late(what, limit)),
            Ok(Some(Ok(arrival))) => {
                self.taken
                    .insert((arrival.topic.clone(), arrival.partition), arrival.offset + 1);
                Ok(arrival)
            }
            Ok(Some(Err(source))) => Err(DemoError::Kafka { action: "read", source }),
            Ok(None) => Err(DemoError::Consumer {
                reason: "its thread is gone".to_owned(),
            }),
        }
    }

    /// Whether all that the broker has was taken. Only final when nobody writes any more.
    pub(super) async fn is_drained(&self) -> Result<bool, DemoError> {
        let (consumer, topics) = (Arc::clone(&self.consumer), self.topics);
        let ends = tokio::task::spawn_blocking(move || ends(&consumer, topics)).await;
        let ends = ends.map_err(|error| DemoError::Consumer {
            reason: error.to_string(),
        })?;
        let ends = ends.map_err(|source| DemoError::Kafka {
            action: "ask for the ends of the partitions",
            source,
        })?;
        Ok(ends
            .into_iter()
            .all(|(place, end)| self.taken.get(&place).copied().unwrap_or(0) >= end))
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // A thread that waits for room finds the channel closed.
        self.arrivals.close();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn read(consumer: &BaseConsumer, sender: &mpsc::Sender<Result<Arrival, KafkaError>>, stop: &AtomicBool) {
    while !stop.load(Ordering::Acquire) {
        let arrival = match consumer.poll(POLL) {
            None => continue,
            Some(Ok(message)) => Ok(arrival(&message)),
            Some(Err(error)) => Err(error),
        };
        if sender.blocking_send(arrival).is_err() {
            return;
        }
    }
}

fn arrival(message: &impl Message) -> Arrival {
    let text = |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned();
    let headers = message.headers().into_iter().flat_map(|headers| headers.iter());
    Arrival {
        topic: message.topic().to_owned(),
        partition: message.partition(),
        offset: message.offset(),
        key: text(message.key()),
        headers: headers
            .map(|header| (header.key.to_owned(), text(header.value)))
            .collect(),
        payload: text(message.payload()),
    }
}

fn ends(consumer: &BaseConsumer, topics: &[&str]) -> Result<Offsets, KafkaError> {
    let mut ends = Offsets::new();
    for topic in topics {
        for partition in 0..PARTITIONS {
            let (_, end) = consumer.fetch_watermarks(topic, partition, REQUEST)?;
            ends.insert(((*topic).to_owned(), partition), end);
        }
    }
    Ok(ends)
}
