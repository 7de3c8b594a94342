//! What Kafka alone takes: the records of a backlog, made on the spot, by a bare producer with the same guarantees.

use std::ops::Range;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rdkafka::config::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseRecord, DefaultProducerContext, Producer, ThreadedProducer};

use crate::bench::Bench;
use crate::error::{BenchError, Tried};
use crate::event::{AGGREGATE_TYPE, EVENT_TYPE, Expected, Payload, Spacing, key};
use crate::process::{self, Usage};
use crate::warm::Settling;

/// As the tables have it.
pub const NAME: &str = "a bare producer";
/// The first argument of the process that produces.
pub const ARGUMENT: &str = "produce";
const PATIENCE: Duration = Duration::from_secs(60);

/// Produces a backlog's records to a topic of their own, then looks at what is in it, off the clock.
pub fn verified(bench: &Bench, name: &str, all: &Expected) -> Result<Usage, BenchError> {
    let _topic = bench.broker.topic(name)?;
    let usage = run(&bench.broker.address, name, all, &bench.log(name))?;
    let last = bench.broker.verify(name, all)?;
    Ok(usage.until(last))
}

/// Lets the broker's compiler come to its end: while it translates what is run often, it takes more than all that is measured,
/// and the rows that come first would pay for it.
pub fn warm_up(bench: &Bench, all: &Expected) -> Result<(), BenchError> {
    let mut settling = Settling::new();
    loop {
        let usage = verified(bench, &bench.unique_name(), all)?;
        let brokers = (usage.machine_cpu_seconds - usage.cpu_seconds) * 1e6 / all.count() as f64;
        eprintln!(
            "warm-up: {:.2} s, CPU of the broker {brokers:.2} us/event",
            usage.seconds
        );
        if !settling.goes_on(brokers) {
            return Ok(());
        }
    }
}

/// Produces in a process of its own: from its start to its exit, when all are acked.
fn run(address: &str, topic: &str, all: &Expected, log: &Path) -> Result<Usage, BenchError> {
    let itself = std::env::current_exe().tried("find this program")?;
    let spacing = match all.payload.spacing {
        Spacing::Written => "written",
        Spacing::Mysql => "mysql",
    };
    let mut command = Command::new(itself);
    command.args([ARGUMENT, address, topic, spacing]);
    command.args([all.numbers.start, all.numbers.end, all.payload.pad as u64].map(|number| number.to_string()));
    process::run(&mut command, log)
}

/// That process.
///
/// # Errors
/// Also when the arguments are not those of [`run`].
pub fn main(arguments: &[String]) -> Result<(), BenchError> {
    let parsed = || match arguments {
        [address, topic, spacing, first, past, pad] => {
            let payload = Payload {
                pad: pad.parse().ok()?,
                spacing: if spacing == "mysql" {
                    Spacing::Mysql
                } else {
                    Spacing::Written
                },
            };
            Some((address, topic, first.parse().ok()?..past.parse().ok()?, payload))
        }
        _ => None,
    };
    let Some((address, topic, numbers, payload)) = parsed() else {
        return Err(BenchError::Setting {
            name: ARGUMENT,
            found: arguments.join(" "),
            expected: "ADDRESS TOPIC SPACING FIRST PAST PAD",
        });
    };
    // As fast as the client is by itself: its own linger, not none as for a ping.
    let producer = connect(address, &[])?;
    produce(&producer, topic, numbers, payload)?;
    producer.flush(PATIENCE).tried("wait for the acks")
}

/// A producer with the connector's guarantees.
pub fn connect(address: &str, more: &[(&str, &str)]) -> Result<ThreadedProducer<DefaultProducerContext>, BenchError> {
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", address)
        .set("enable.idempotence", "true")
        .set("acks", "all")
        .set("partitioner", "murmur2_random");
    for (name, value) in more {
        config.set(*name, *value);
    }
    config.create().tried("make a producer")
}

/// Hands these events' records on, waiting where the client's queue is full.
pub fn produce(
    producer: &ThreadedProducer<DefaultProducerContext>,
    topic: &str,
    numbers: Range<u64>,
    payload: Payload,
) -> Result<(), BenchError> {
    let mut value = Vec::new();
    for number in numbers {
        payload.write(number, &mut value);
        let (key, id) = (key(number).to_string(), number.to_string());
        let header = |key, value| Header {
            key,
            value: Some(value),
        };
        let headers = OwnedHeaders::new_with_capacity(4)
            .insert(header("df-event-id", id.as_str()))
            .insert(header("df-aggregate-type", AGGREGATE_TYPE))
            .insert(header("df-aggregate-id", key.as_str()))
            .insert(header("df-event-type", EVENT_TYPE));
        let mut record = BaseRecord::to(topic).key(&key).payload(&value).headers(headers);
        while let Err((error, back)) = producer.send(record) {
            if error != KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull) {
                return Err(error).tried(format!("produce to {topic}"));
            }
            // The delivery of others makes room, and the client has no other way to tell.
            std::thread::sleep(Duration::from_millis(1));
            record = back;
        }
    }
    Ok(())
}
