//! Takes a producer's reports: of deliveries, and of what is wrong with its connections.
//!
//! librdkafka frees a record where the report of it is taken. On the thread that made the record this costs the allocator a
//! good part less than on another one, and no thread need be woken to wake the relay: so the one who sends takes the reports,
//! and a pipe, which librdkafka writes to, tells when there are any.

use std::future::Future;
use std::io;
use std::os::fd::AsRawFd as _;
use std::time::Duration;

use rdkafka::bindings;
use rdkafka::producer::Producer as _;
use tokio::net::unix::pipe;

use super::producer::SharedProducer;
use super::queue::Queue;

/// What librdkafka writes: one byte until the next look.
static WAKE: u8 = 1;

/// See the module's text.
pub(super) struct Reports {
    producer: SharedProducer,
    queue: Queue,
    arrived: pipe::Receiver,
    /// Kept open for librdkafka.
    _wakes: pipe::Sender,
}

impl Reports {
    /// Must be called within a runtime.
    ///
    /// # Errors
    /// The kernel's, such as no more file descriptors.
    #[expect(
        unsafe_code,
        reason = "the client crate does not tell when there is something to poll"
    )]
    pub(super) fn of(producer: &SharedProducer) -> io::Result<Self> {
        let (wakes, arrived) = pipe::pipe()?;
        let queue = Queue::main(producer.client());
        // SAFETY: the queue lives, the pipe is open until this is dropped, which ends the writing to it first, and the byte
        // is static.
        unsafe {
            bindings::rd_kafka_queue_io_event_enable(queue.as_ptr(), wakes.as_raw_fd(), (&raw const WAKE).cast(), 1);
        }
        let reports = Self {
            producer: SharedProducer::clone(producer),
            queue,
            arrived,
            _wakes: wakes,
        };
        // Only the first in an empty queue is told: one that was there before must not stay.
        reports.take();
        Ok(reports)
    }

    /// Takes those that are there. Without it no more are told of.
    pub(super) fn take(&self) {
        // Each poll takes one, of a batch of records.
        while !self.queue.is_empty() {
            self.producer.poll(Duration::ZERO);
        }
    }

    /// Waits until there are some. Cancel safe.
    pub(super) async fn arrived(&self) {
        // What is there already may have been told before, and taken since: then there is nothing to take, and the next is told.
        if self.arrived.readable().await.is_ok() {
            let mut told = [0; 64];
            while matches!(self.arrived.try_read(&mut told), Ok(1..)) {}
        }
    }

    /// Takes reports until something else has come about, which may wait for them. As cancel safe as that is.
    pub(super) async fn during<T>(&self, other: impl Future<Output = T>) -> T {
        tokio::pin!(other);
        loop {
            self.take();
            tokio::select! {
                done = &mut other => return done,
                () = self.arrived() => {}
            }
        }
    }
}

#[expect(unsafe_code, reason = "what librdkafka writes to is closed")]
impl Drop for Reports {
    fn drop(&mut self) {
        // SAFETY: the queue lives; without a file nothing is written from here on, and the pipe can be closed.
        unsafe { bindings::rd_kafka_queue_io_event_enable(self.queue.as_ptr(), -1, std::ptr::null(), 0) }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Arc;

    use rdkafka::producer::{BaseRecord, PurgeConfig};

    use super::super::producer::Settings;
    use super::*;
    use crate::config;
    use crate::relay::in_flight::{Ledger, Limits, Seq};
    use crate::telemetry::status::PipelineStatus;

    fn ledger() -> Ledger {
        Ledger::new(Limits {
            events: 100,
            bytes: u64::MAX,
            uncommitted: None,
        })
    }

    /// Sends a record and drops it, which is reported.
    fn drop_one(producer: &SharedProducer, seq: usize) {
        let record = BaseRecord::with_opaque_to("t", seq).payload("x").key("k");
        producer.send(record).map_err(|(error, _)| error).unwrap();
        producer.purge(PurgeConfig::default().queue());
    }

    /// Where no broker answers.
    fn settings(ledger: &Ledger) -> Settings {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p.yaml");
        let text = "{apiVersion: tailpost/v1, kind: Pipeline, metadata: {name: p}, spec: {\
             source: {type: postgres, config: {id: s, dsn: 'postgres://u@h/d', slot: s, publication: p, outbox: {prefixes: [o]}}}, \
             processors: [{type: outbox, default_topic: t}], \
             sinks: [{type: kafka, config: {id: k, brokers: '127.0.0.1:1'}}]}}";
        std::fs::write(&path, text).unwrap();
        let pipeline = config::load(&path, &HashMap::new()).unwrap().pipeline;
        let status = PipelineStatus::new(&pipeline);
        let config::Sink::Kafka(kafka) = pipeline.sink else {
            panic!("a sink of type kafka")
        };
        Settings {
            config: Arc::new(kafka),
            max_events: 100,
            transactional: false,
            names_partitions: false,
            acks: ledger.acks(),
            status,
        }
    }

    #[tokio::test]
    async fn each_report_is_told_of_and_taken() {
        let ledger = ledger();
        let (producer, reports) = settings(&ledger).make(1_000_000).unwrap();
        // Of the brokers that are away first, and of each purge's records then.
        for round in 0..3_usize {
            drop_one(&producer, round);
            let failed = loop {
                let failed = ledger.take_failures();
                if failed.iter().any(|failure| failure.seq == Some(Seq(round as u64))) {
                    break failed;
                }
                reports.arrived().await;
                reports.take();
            };
            assert_eq!(failed.len(), 1);
        }
    }

    #[tokio::test]
    async fn what_waits_for_reports_has_them_taken_meanwhile() {
        let ledger = ledger();
        let (producer, reports) = settings(&ledger).make(1_000_000).unwrap();
        drop_one(&producer, 0);
        reports.during(ledger.changed()).await;
        assert_eq!(ledger.take_failures().len(), 1);
    }
}
