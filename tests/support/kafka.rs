//! Kafka's side: topics, and all that is in them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use rdkafka::admin::{AdminClient, AdminOptions, AlterConfig, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Headers, Message};
use rdkafka::producer::{DefaultProducerContext, ThreadedProducer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use super::DEADLINE;

/// Records that are taken before the condition is looked at.
const AT_ONCE: usize = 1000;
pub const ANSWER: Duration = Duration::from_secs(20);
const COMMITTED: &str = "read_committed";
const UNCOMMITTED: &str = "read_uncommitted";

/// One record, as it is in its topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub topic: String,
    pub partition: i32,
    pub offset: i64,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    /// In their order; a name can come more than once.
    pub headers: Vec<(String, Option<Vec<u8>>)>,
    pub timestamp_ms: i64,
}

impl Record {
    fn from(message: &BorrowedMessage<'_>) -> Self {
        let headers = message.headers().map(|headers| {
            let header =
                |header: rdkafka::message::Header<'_, &[u8]>| (header.key.to_owned(), header.value.map(<[u8]>::to_vec));
            headers.iter().map(header).collect()
        });
        Self {
            topic: message.topic().to_owned(),
            partition: message.partition(),
            offset: message.offset(),
            key: message.key().map(<[u8]>::to_vec),
            value: message.payload().map(<[u8]>::to_vec),
            headers: headers.unwrap_or_default(),
            timestamp_ms: message.timestamp().to_millis().unwrap_or(-1),
        }
    }

    pub fn key_text(&self) -> Option<&str> {
        self.key
            .as_deref()
            .map(|key| std::str::from_utf8(key).expect("a text key"))
    }

    pub fn value_text(&self) -> Option<&str> {
        let text = |value| std::str::from_utf8(value).expect("a text value");
        self.value.as_deref().map(text)
    }

    /// The header of this name, as text.
    pub fn header(&self, name: &str) -> Option<&str> {
        let (_, value) = self.headers.iter().find(|(header, _)| header == name)?;
        value
            .as_deref()
            .map(|value| std::str::from_utf8(value).expect("a text header"))
    }
}

/// A cluster.
pub struct Kafka {
    pub brokers: String,
}

impl Kafka {
    pub fn new(brokers: &str) -> Self {
        Self {
            brokers: brokers.to_owned(),
        }
    }

    fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.brokers);
        config
    }

    fn admin(&self) -> AdminClient<DefaultClientContext> {
        self.config().create().expect("an admin client")
    }

    /// Makes a topic with configurations such as `("max.message.bytes", "100000")`.
    pub fn create_topic(&self, name: &str, partitions: i32, configs: &[(&str, &str)]) {
        let topic = NewTopic::new(name, partitions, TopicReplication::Fixed(1));
        let topic = configs
            .iter()
            .fold(topic, |topic, (name, value)| topic.set(name, value));
        let options = AdminOptions::new().operation_timeout(Some(ANSWER));
        let admin = self.admin();
        let results = wait(admin.create_topics([&topic], &options)).expect("create a topic");
        for result in results {
            result.unwrap_or_else(|(name, error)| panic!("create topic {name}: {error}"));
        }
    }

    /// Sets configurations of a topic that is there; those not named go back to their defaults.
    pub fn alter_topic(&self, name: &str, configs: &[(&str, &str)]) {
        let altered = AlterConfig::new(ResourceSpecifier::Topic(name));
        let altered = configs
            .iter()
            .fold(altered, |altered, (name, value)| altered.set(name, value));
        let options = AdminOptions::new().operation_timeout(Some(ANSWER));
        let admin = self.admin();
        let results = wait(admin.alter_configs([&altered], &options)).expect("alter a topic");
        for result in results {
            result.unwrap_or_else(|(_, error)| panic!("alter topic {name}: {error}"));
        }
    }

    /// A configuration of a topic.
    pub fn topic_config(&self, name: &str, config: &str) -> String {
        let options = AdminOptions::new().request_timeout(Some(ANSWER));
        let admin = self.admin();
        let described = wait(admin.describe_configs([&ResourceSpecifier::Topic(name)], &options)).expect("describe");
        let resource = described
            .into_iter()
            .next()
            .expect("a topic")
            .expect("its configurations");
        let entry = resource.get(config).expect("a configuration");
        entry.value.clone().expect("a value")
    }

    /// Deletes topics that begin so. That some stay behind is no matter: nobody uses their names again.
    pub fn delete_topics(&self, prefix: &str) {
        let admin = self.admin();
        // A broker of the test's own may be gone by now.
        let Ok(metadata) = admin.inner().fetch_metadata(None, Duration::from_secs(2)) else {
            return;
        };
        let names: Vec<&str> = metadata.topics().iter().map(|topic| topic.name()).collect();
        let names: Vec<&str> = names.into_iter().filter(|name| name.starts_with(prefix)).collect();
        if !names.is_empty() {
            let _ = wait(admin.delete_topics(&names, &AdminOptions::new()));
        }
    }

    /// The end of each partition of a topic; nothing while there is no such topic.
    pub fn ends(&self, topic: &str) -> BTreeMap<i32, i64> {
        ends(&self.consumer(UNCOMMITTED), topic)
    }

    /// The end of each partition of a topic for a reader of committed records: where the first open transaction begins.
    pub fn committed_ends(&self, topic: &str) -> BTreeMap<i32, i64> {
        ends(&self.consumer(COMMITTED), topic)
    }

    /// A reader of these topics from their beginning; they need not exist yet.
    pub fn reader(&self, topics: &[String]) -> Reader {
        self.reader_of(topics, UNCOMMITTED)
    }

    /// The same, of committed records only.
    pub fn committed_reader(&self, topics: &[String]) -> Reader {
        self.reader_of(topics, COMMITTED)
    }

    fn reader_of(&self, topics: &[String], isolation: &'static str) -> Reader {
        Reader {
            topics: topics.to_vec(),
            kafka: Self::new(&self.brokers),
            isolation,
            consumer: self.consumer(isolation),
            assigned: BTreeSet::new(),
            next: BTreeMap::new(),
            records: Vec::new(),
        }
    }

    /// A producer of transactions with this id; making one shuts out those before it once it is initialised.
    pub fn transactional_producer(&self, transactional_id: &str) -> ThreadedProducer<DefaultProducerContext> {
        self.config()
            .set("transactional.id", transactional_id)
            .create()
            .expect("a producer")
    }

    fn consumer(&self, isolation: &str) -> BaseConsumer {
        self.config()
            .set("group.id", "tailpost-test")
            .set("isolation.level", isolation)
            .set("enable.partition.eof", "true")
            .set("enable.auto.commit", "false")
            .set("auto.offset.reset", "error")
            .set("fetch.wait.max.ms", "50")
            .set("topic.metadata.refresh.interval.ms", "1000")
            .create()
            .expect("a consumer")
    }
}

/// Collects the records of some topics, in order per partition.
pub struct Reader {
    topics: Vec<String>,
    kafka: Kafka,
    isolation: &'static str,
    consumer: BaseConsumer,
    assigned: BTreeSet<(String, i32)>,
    /// Per partition, behind the last record collected.
    next: BTreeMap<(String, i32), i64>,
    pub records: Vec<Record>,
}

impl Reader {
    /// Reads on until the records collected so far meet the condition.
    ///
    /// # Panics
    /// After a minute.
    pub fn until(&mut self, what: &str, mut condition: impl FnMut(&[Record]) -> bool) -> &[Record] {
        let end = Instant::now() + DEADLINE;
        let mut look = Instant::now();
        while !condition(&self.records) {
            assert!(
                Instant::now() < end,
                "within {} s {:?} had not: {what}; there are {} records",
                DEADLINE.as_secs(),
                self.topics,
                self.records.len()
            );
            if Instant::now() >= look {
                self.assign();
                look = Instant::now() + Duration::from_millis(200);
            }
            self.poll();
        }
        &self.records
    }

    /// Reads on until there are this many records in all, then to the end: there must be no more.
    pub fn exactly(&mut self, count: usize) -> &[Record] {
        self.until(&format!("{count} records"), |records| records.len() >= count);
        self.all();
        let (topics, repeated) = (&self.topics, self.repeated());
        assert_eq!(
            self.records.len(),
            count,
            "records of {topics:?}; more than once: {repeated:#?}"
        );
        &self.records
    }

    /// Where the events are that came more than once.
    fn repeated(&self) -> BTreeMap<&str, Vec<(&str, i32, i64, i64)>> {
        let mut places: BTreeMap<&str, Vec<_>> = BTreeMap::new();
        for record in &self.records {
            if let Some(id) = record.header("df-event-id") {
                let place = (
                    record.topic.as_str(),
                    record.partition,
                    record.offset,
                    record.timestamp_ms,
                );
                places.entry(id).or_default().push(place);
            }
        }
        places.retain(|_, places| places.len() > 1);
        places
    }

    /// Reads all that is there now, whatever stands between the last record and the end: the ends of transactions take
    /// offsets too.
    pub fn all(&mut self) -> &[Record] {
        for topic in self.topics.clone() {
            // It says once when it has come to the end.
            let consumer = self.kafka.consumer(self.isolation);
            let partitions = partitions(&consumer, &topic);
            let mut assignment = TopicPartitionList::new();
            for partition in &partitions {
                let next = self.next.get(&(topic.clone(), *partition));
                let offset = next.map_or(Offset::Beginning, |next| Offset::Offset(*next));
                assignment
                    .add_partition_offset(&topic, *partition, offset)
                    .expect("an offset");
            }
            consumer.assign(&assignment).expect("assign partitions");
            let mut unread: BTreeSet<i32> = partitions.into_iter().collect();
            let deadline = Instant::now() + DEADLINE;
            while !unread.is_empty() {
                assert!(
                    Instant::now() < deadline,
                    "all records up to the end of {topic}: partitions {unread:?} have more"
                );
                match consumer.poll(Duration::from_millis(100)) {
                    Some(Ok(message)) => self.collect(Record::from(&message)),
                    Some(Err(KafkaError::PartitionEOF(partition))) => {
                        unread.remove(&partition);
                    }
                    // A broker that is away comes back, or the deadline ends the wait.
                    Some(Err(_)) | None => {}
                }
            }
        }
        &self.records
    }

    /// Takes up partitions that were not there before.
    fn assign(&mut self) {
        let mut new = TopicPartitionList::new();
        for topic in &self.topics {
            for partition in partitions(&self.consumer, topic) {
                if self.assigned.insert((topic.clone(), partition)) {
                    new.add_partition_offset(topic, partition, Offset::Beginning)
                        .expect("an offset");
                }
            }
        }
        if new.count() > 0 {
            self.consumer.incremental_assign(&new).expect("assign partitions");
        }
    }

    /// Takes what has come, or what comes next: a condition looks at all records each time.
    fn poll(&mut self) {
        let mut wait = Duration::from_millis(20);
        for _ in 0..AT_ONCE {
            let record = match self.consumer.poll(wait) {
                Some(Ok(message)) => Record::from(&message),
                // A broker that is away comes back, or the deadline ends the wait.
                Some(Err(_)) | None => return,
            };
            self.collect(record);
            wait = Duration::ZERO;
        }
    }

    /// Keeps a record, unless another of the consumers was faster.
    fn collect(&mut self, record: Record) {
        let next = self.next.entry((record.topic.clone(), record.partition)).or_default();
        if record.offset >= *next {
            *next = record.offset + 1;
            self.records.push(record);
        }
    }
}

fn partitions(consumer: &BaseConsumer, topic: &str) -> Vec<i32> {
    let Ok(metadata) = consumer.fetch_metadata(Some(topic), ANSWER) else {
        return Vec::new();
    };
    let topics = metadata.topics().iter();
    topics
        .flat_map(|topic| topic.partitions().iter().map(|partition| partition.id()))
        .collect()
}

fn ends(consumer: &BaseConsumer, topic: &str) -> BTreeMap<i32, i64> {
    let end = |partition| match consumer.fetch_watermarks(topic, partition, ANSWER) {
        Ok((_, end)) => end,
        Err(KafkaError::MetadataFetch(RDKafkaErrorCode::UnknownTopicOrPartition)) => 0,
        Err(error) => panic!("end of {topic}, partition {partition}: {error}"),
    };
    let partitions = partitions(consumer, topic).into_iter();
    partitions.map(|partition| (partition, end(partition))).collect()
}

/// Runs a future of the admin client, which needs no runtime of its own.
fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime")
        .block_on(future)
}
