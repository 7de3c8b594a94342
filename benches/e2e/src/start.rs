//! From the start of the process until its first event is visible to a consumer that waits for it.

use std::time::{Duration, Instant};

use rdkafka::error::KafkaError;

use crate::bench::Bench;
use crate::error::{BenchError, Tried};
use crate::pipeline::Pipeline;

const PATIENCE: Duration = Duration::from_secs(30);

/// Runs a pipeline that has something to publish, until it has; in seconds.
pub fn until_visible(bench: &Bench, pipeline: Pipeline) -> Result<f64, BenchError> {
    let topic = bench.broker.topic(&pipeline.topic)?;
    let consumer = bench.broker.consumer(&pipeline.topic)?;
    let started = Instant::now();
    let running = bench.tailpost.start(&[pipeline])?;
    loop {
        match consumer.poll(Duration::from_millis(100)) {
            Some(Ok(_)) => break,
            Some(Err(KafkaError::PartitionEOF(_))) | None => {}
            Some(Err(error)) => return Err(error).tried("wait for the first event"),
        }
        if started.elapsed() > PATIENCE {
            return Err(BenchError::Late {
                what: "a first event".to_owned(),
                seconds: PATIENCE.as_secs(),
            });
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    running.stop()?;
    drop(topic);
    Ok(seconds)
}
