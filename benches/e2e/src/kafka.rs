//! Kafka's side: topics, and the account of what is in them.

use std::time::{Duration, Instant};

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::Message;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use tokio::runtime::Runtime;

use crate::error::{BenchError, Tried};
use crate::event::{Expected, KEYS, key, number};

const ANSWER: Duration = Duration::from_secs(30);
/// Without a record for so long, a topic has no more.
const SILENCE: Duration = Duration::from_secs(30);
pub const PARTITIONS: i32 = 6;

/// A broker, with an administrator's connection.
pub struct Broker {
    pub address: String,
    admin: AdminClient<DefaultClientContext>,
    /// The client's futures need something to wait on.
    runtime: Runtime,
}

impl Broker {
    pub fn connect(address: &str) -> Result<Self, BenchError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .tried("make a runtime")?;
        let admin = ClientConfig::new()
            .set("bootstrap.servers", address)
            .create()
            .tried("make an admin client")?;
        Ok(Self {
            address: address.to_owned(),
            admin,
            runtime,
        })
    }

    /// Makes topics, which are gone when this is dropped. The broker notes in each record when it took that.
    pub fn topics(&self, names: Vec<String>, partitions: i32) -> Result<Topics<'_>, BenchError> {
        let new: Vec<NewTopic<'_>> = names
            .iter()
            .map(|name| {
                NewTopic::new(name, partitions, TopicReplication::Fixed(1))
                    .set("message.timestamp.type", "LogAppendTime")
            })
            .collect();
        let options = AdminOptions::new().operation_timeout(Some(ANSWER));
        let made = self
            .runtime
            .block_on(self.admin.create_topics(&new, &options))
            .tried("make topics")?;
        for result in made {
            result.map_err(|(topic, code)| BenchError::Kafka {
                what: format!("make topic {topic}"),
                source: KafkaError::AdminOp(code),
            })?;
        }
        let topics = Topics { broker: self, names };
        for name in &topics.names {
            for partition in 0..partitions {
                self.wait_open(name, partition)?;
            }
        }
        Ok(topics)
    }

    /// Waits until the partition's leader has it open: what comes earlier may be written twice, as at least once allows.
    fn wait_open(&self, topic: &str, partition: i32) -> Result<(), BenchError> {
        let since = Instant::now();
        let client = self.admin.inner();
        loop {
            // The client itself does not ask again for a topic that it was once told is not there.
            let told = client.fetch_metadata(Some(topic), ANSWER);
            match told.and_then(|_| client.fetch_watermarks(topic, partition, ANSWER)) {
                Ok(_) => return Ok(()),
                Err(error) if since.elapsed() > ANSWER => return Err(error).tried(format!("wait for {topic}")),
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    pub fn topic(&self, name: &str) -> Result<Topics<'_>, BenchError> {
        self.topics(vec![name.to_owned()], PARTITIONS)
    }

    /// A reader of committed records, from the beginning of a topic.
    pub fn consumer(&self, topic: &str) -> Result<BaseConsumer, BenchError> {
        let consumer: BaseConsumer = ClientConfig::new()
            .set("bootstrap.servers", &self.address)
            .set("group.id", "tailpost-bench")
            .set("isolation.level", "read_committed")
            .set("enable.partition.eof", "true")
            .set("enable.auto.commit", "false")
            .set("auto.offset.reset", "error")
            .create()
            .tried("make a consumer")?;
        let mut all = TopicPartitionList::new();
        for partition in 0..self.partitions(&consumer, topic)? {
            all.add_partition_offset(topic, partition, Offset::Beginning)
                .tried("name a partition")?;
        }
        consumer.assign(&all).tried(format!("read {topic}"))?;
        Ok(consumer)
    }

    fn partitions(&self, consumer: &BaseConsumer, topic: &str) -> Result<i32, BenchError> {
        let metadata = consumer
            .fetch_metadata(Some(topic), ANSWER)
            .tried(format!("describe {topic}"))?;
        let count: usize = metadata.topics().iter().map(|topic| topic.partitions().len()).sum();
        Ok(i32::try_from(count).unwrap_or(i32::MAX))
    }

    /// Reads a topic to its end: each of the events must be there once, whole, and those of a key in order. Gives the broker's
    /// time of the last one, in milliseconds since 1970.
    ///
    /// # Errors
    /// [`BenchError::Wrong`] with the first thing that is not so.
    pub fn verify(&self, topic: &str, expected: &Expected) -> Result<i64, BenchError> {
        let consumer = self.consumer(topic)?;
        let mut account = Account::new(topic, expected);
        let mut unread = self.partitions(&consumer, topic)?;
        let mut last = 0;
        let mut heard = Instant::now();
        while unread > 0 {
            match consumer.poll(Duration::from_millis(200)) {
                Some(Ok(message)) => {
                    last = message.timestamp().to_millis().unwrap_or_default().max(last);
                    account.take(message.key().unwrap_or_default(), message.payload().unwrap_or_default())?;
                }
                Some(Err(KafkaError::PartitionEOF(_))) => unread -= 1,
                Some(Err(error)) => return Err(error).tried(format!("read {topic}")),
                None if heard.elapsed() < SILENCE => continue,
                None => {
                    return Err(BenchError::Late {
                        what: format!("a record or an end of {topic}"),
                        seconds: SILENCE.as_secs(),
                    });
                }
            }
            heard = Instant::now();
        }
        if let Err(error) = account.close() {
            // Tells what was never written from what was not read. The ends of transactions take offsets too.
            eprintln!("{topic} has the offsets {}", self.offsets(&consumer, topic)?);
            return Err(error);
        }
        Ok(last)
    }

    /// From which to which offset each partition of a topic goes.
    fn offsets(&self, consumer: &BaseConsumer, topic: &str) -> Result<String, BenchError> {
        let mut ranges = Vec::new();
        for partition in 0..self.partitions(consumer, topic)? {
            let (low, high) = consumer
                .fetch_watermarks(topic, partition, ANSWER)
                .tried("ask for offsets")?;
            ranges.push(format!("{low}..{high}"));
        }
        Ok(ranges.join(", "))
    }
}

/// See [`Broker::topics`].
pub struct Topics<'a> {
    broker: &'a Broker,
    pub names: Vec<String>,
}

impl Drop for Topics<'_> {
    fn drop(&mut self) {
        let names: Vec<&str> = self.names.iter().map(String::as_str).collect();
        let deleted = self.broker.admin.delete_topics(&names, &AdminOptions::new());
        // They take room until the servers are wiped, no more.
        let _ = self.broker.runtime.block_on(deleted);
    }
}

/// What was seen of a topic.
struct Account<'a> {
    topic: &'a str,
    expected: &'a Expected,
    seen: u64,
    /// Per key, what its next number must be at least: numbers are unique, so in order each can be there once only.
    next: Vec<u64>,
    /// Which numbers were seen, from the first on.
    there: Vec<bool>,
    /// The payload as it should be.
    whole: Vec<u8>,
}

impl<'a> Account<'a> {
    fn new(topic: &'a str, expected: &'a Expected) -> Self {
        Self {
            topic,
            expected,
            seen: 0,
            next: vec![expected.numbers.start; KEYS as usize],
            there: vec![false; expected.count() as usize],
            whole: Vec::new(),
        }
    }

    fn take(&mut self, found_key: &[u8], payload: &[u8]) -> Result<(), BenchError> {
        let Some(number) = number(payload).filter(|number| self.expected.numbers.contains(number)) else {
            return Err(self.wrong("a payload of no event", "numbered payloads of this backlog"));
        };
        self.expected.payload.write(number, &mut self.whole);
        if payload != self.whole {
            return Err(self.wrong(&format!("event {number} changed"), "its payload byte for byte"));
        }
        if !self.expected.keyed {
            return self.take_without_key(number, found_key);
        }
        let key = key(number);
        if found_key != key.to_string().as_bytes() {
            return Err(self.wrong(&format!("event {number} with another key"), &key.to_string()));
        }
        let next = &mut self.next[key as usize];
        if number < *next {
            let later = *next - 1;
            return Err(self.wrong(
                &format!("event {number} after {later}"),
                "the order of commits per key, each once",
            ));
        }
        *next = number + 1;
        self.note(number);
        Ok(())
    }

    fn take_without_key(&mut self, number: u64, key: &[u8]) -> Result<(), BenchError> {
        if !key.is_empty() {
            return Err(self.wrong(&format!("event {number} with a key"), "none"));
        }
        if self.there[self.place(number)] {
            return Err(self.wrong(&format!("event {number} twice"), "each once"));
        }
        self.note(number);
        Ok(())
    }

    fn note(&mut self, number: u64) {
        let place = self.place(number);
        self.there[place] = true;
        self.seen += 1;
    }

    fn place(&self, number: u64) -> usize {
        (number - self.expected.numbers.start) as usize
    }

    fn close(self) -> Result<(), BenchError> {
        if self.seen == self.expected.count() {
            return Ok(());
        }
        let start = self.expected.numbers.start;
        let missing = (start..)
            .zip(&self.there)
            .filter(|(_, there)| !**there)
            .map(|(number, _)| number);
        let first: Vec<u64> = missing.take(10).collect();
        let found = format!("{} events, the first missing are {first:?}", self.seen);
        Err(self.wrong(&found, &self.expected.count().to_string()))
    }

    fn wrong(&self, found: &str, expected: &str) -> BenchError {
        BenchError::Wrong {
            topic: self.topic.to_owned(),
            found: found.to_owned(),
            expected: expected.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Payload, Spacing};

    /// What an account says to these events' records.
    fn account(numbers: &[u64]) -> Result<(), BenchError> {
        account_of(numbers.iter().map(|number| (*number, key(*number).to_string(), 3)))
    }

    fn account_of(records: impl Iterator<Item = (u64, String, usize)>) -> Result<(), BenchError> {
        let payload = |pad| Payload {
            pad,
            spacing: Spacing::Written,
        };
        // 5 and 1005 have one key.
        let expected = Expected {
            numbers: 5..1006,
            payload: payload(3),
            keyed: true,
        };
        let mut account = Account::new("topic", &expected);
        for (number, key, pad) in records {
            let mut value = Vec::new();
            payload(pad).write(number, &mut value);
            account.take(key.as_bytes(), &value)?;
        }
        account.close()
    }

    #[test]
    fn an_account_passes_all_events_in_the_order_of_their_keys() {
        let all: Vec<u64> = (5..1006).collect();
        account(&all).expect("all of them in order");
        let mut keys_swapped = all.clone();
        keys_swapped.swap(1, 2);
        account(&keys_swapped).expect("of two keys neither is first");
    }

    #[test]
    fn an_account_refuses_what_is_lost_doubled_out_of_order_or_of_another_backlog() {
        let all: Vec<u64> = (5..1006).collect();
        let refused = |numbers: &[u64]| {
            account(numbers)
                .expect_err("not all of them, each once and in order")
                .to_string()
        };
        assert!(refused(&all[1..]).contains("1000 events"));
        let doubled = [&all[..1], &all[..]].concat();
        assert!(refused(&doubled).contains("event 5 after 5"));
        let mut swapped = all.clone();
        swapped.swap(0, 1000);
        assert!(refused(&swapped).contains("event 5 after 1005"));
        assert!(refused(&[4]).contains("no event"));
    }

    #[test]
    fn an_account_refuses_another_key_and_another_payload() {
        let refused = |key: u64, pad| {
            let record = (5, key.to_string(), pad);
            account_of(std::iter::once(record))
                .expect_err("one changed record")
                .to_string()
        };
        assert!(refused(key(6), 3).contains("another key"));
        assert!(refused(key(5), 4).contains("changed"));
    }
}
