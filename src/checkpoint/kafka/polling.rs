//! Takes records from a consumer, and the offsets at which its partition ended.
//!
//! The client crate tells of an end and not of where: one that a leader believed who did not know better could not be told
//! from the partition's.

use std::ptr::NonNull;
use std::slice;
use std::time::Duration;

use rdkafka::bindings;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::RDKafkaErrorCode;

use crate::sink::kafka::Queue;

/// What was to be had.
pub(super) enum Polled {
    Nothing,
    Record(Record),
    /// There is nothing from this offset on, as far as its leader knew.
    End {
        offset: i64,
    },
    Failed(RDKafkaErrorCode),
}

/// A record, copied.
pub(super) struct Record {
    pub(super) offset: i64,
    pub(super) key: Option<Vec<u8>>,
    /// None: a tombstone.
    pub(super) value: Option<Vec<u8>>,
}

/// A consumer that only this polls.
pub(super) struct Reader<C: ConsumerContext + 'static> {
    // Dropped first.
    queue: Queue,
    consumer: BaseConsumer<C>,
}

impl<C: ConsumerContext + 'static> Reader<C> {
    /// None: the consumer has no group, which it needs to be given partitions.
    pub(super) fn new(consumer: BaseConsumer<C>) -> Option<Self> {
        let queue = Queue::of_consumer(consumer.client())?;
        Some(Self { queue, consumer })
    }

    /// For all but to poll it.
    pub(super) fn consumer(&self) -> &BaseConsumer<C> {
        &self.consumer
    }

    /// What comes next within this time, to the millisecond.
    #[expect(
        unsafe_code,
        reason = "the client crate keeps the offset of a partition's end to itself"
    )]
    pub(super) fn poll(&self, timeout: Duration) -> Polled {
        let timeout_ms = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: the queue lives; the event, if there is one, is ours.
        let event = unsafe { bindings::rd_kafka_queue_poll(self.queue.as_ptr(), timeout_ms) };
        let Some(event) = NonNull::new(event).map(Event) else {
            return Polled::Nothing;
        };
        // SAFETY: the event lives, and this reads of which type it is.
        match unsafe { bindings::rd_kafka_event_type(event.0.as_ptr()) } {
            bindings::RD_KAFKA_EVENT_FETCH => event.record().map_or(Polled::Nothing, Polled::Record),
            bindings::RD_KAFKA_EVENT_ERROR => event.failure(),
            // Of the group, which is not used, and of the client's log.
            _ => Polled::Nothing,
        }
    }
}

/// librdkafka's, owned.
struct Event(NonNull<bindings::rd_kafka_event_t>);

impl Event {
    /// Of an event that brings one: a consumer's has one each.
    #[expect(unsafe_code, reason = "librdkafka's messages are plain structures")]
    fn record(&self) -> Option<Record> {
        // SAFETY: the event lives, and is one that brings messages.
        let message = unsafe { bindings::rd_kafka_event_message_next(self.0.as_ptr()) };
        // SAFETY: the message lives as long as its event.
        let message = unsafe { message.as_ref() }?;
        let copy = |start: *mut std::ffi::c_void, length: usize| {
            let start = NonNull::new(start.cast::<u8>())?;
            // SAFETY: key and value are as long as the message says, and live as long as it.
            Some(unsafe { slice::from_raw_parts(start.as_ptr(), length) }.to_vec())
        };
        Some(Record {
            offset: message.offset,
            key: copy(message.key, message.key_len),
            value: copy(message.payload, message.len),
        })
    }

    /// Of an event that says what went wrong, which an end counts as.
    #[expect(unsafe_code, reason = "the offset comes in a structure of librdkafka's")]
    fn failure(&self) -> Polled {
        // SAFETY: the event lives, and is an error.
        let code = RDKafkaErrorCode::from(unsafe { bindings::rd_kafka_event_error(self.0.as_ptr()) });
        if code != RDKafkaErrorCode::PartitionEOF {
            return Polled::Failed(code);
        }
        // SAFETY: the event lives; what is given back is ours, or nothing.
        let Some(partition) = NonNull::new(unsafe { bindings::rd_kafka_event_topic_partition(self.0.as_ptr()) }) else {
            return Polled::Nothing;
        };
        // SAFETY: it is valid until it is given back, right after.
        let offset = unsafe { partition.as_ref() }.offset;
        // SAFETY: it is ours, and nothing refers to it any more.
        unsafe { bindings::rd_kafka_topic_partition_destroy(partition.as_ptr()) };
        Polled::End { offset }
    }
}

#[expect(unsafe_code, reason = "an event of librdkafka's is freed by its own function")]
impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: it came from librdkafka, which left it to us, and nothing refers to it any more.
        unsafe { bindings::rd_kafka_event_destroy(self.0.as_ptr()) }
    }
}
