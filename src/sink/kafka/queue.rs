//! A queue of librdkafka's.

use std::ptr::NonNull;

use rdkafka::bindings;
use rdkafka::client::{Client, ClientContext};

/// Owned: given back when it is dropped, before the client it is of.
pub(crate) struct Queue(NonNull<bindings::rd_kafka_queue_t>);

// SAFETY: librdkafka locks its queues itself: any thread may use and give back what refers to them.
#[expect(unsafe_code, reason = "whoever waits for a client need not be who made it")]
unsafe impl Send for Queue {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "as above")]
unsafe impl Sync for Queue {}

#[expect(unsafe_code, reason = "the client crate keeps its queues to itself")]
impl Queue {
    /// What a client reports to whoever polls it.
    pub(crate) fn main<C: ClientContext>(client: &Client<C>) -> Self {
        // SAFETY: the handle is valid for as long as the client lives, over this call at least.
        let queue = unsafe { bindings::rd_kafka_queue_get_main(client.native_ptr()) };
        Self(NonNull::new(queue).expect("each client has a main queue"))
    }

    /// What a consumer's group brings it. None: it has no group.
    pub(crate) fn of_consumer<C: ClientContext>(client: &Client<C>) -> Option<Self> {
        // SAFETY: the handle is valid for as long as the client lives, over this call at least.
        let queue = unsafe { bindings::rd_kafka_queue_get_consumer(client.native_ptr()) };
        NonNull::new(queue).map(Self)
    }

    /// Valid while this lives.
    pub(crate) fn as_ptr(&self) -> *mut bindings::rd_kafka_queue_t {
        self.0.as_ptr()
    }

    pub(crate) fn is_empty(&self) -> bool {
        // SAFETY: the queue lives.
        unsafe { bindings::rd_kafka_queue_length(self.as_ptr()) == 0 }
    }
}

#[expect(unsafe_code, reason = "a queue of librdkafka's is given back by its own function")]
impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: it came from librdkafka, which left it to us, and nothing refers to it any more.
        unsafe { bindings::rd_kafka_queue_destroy(self.as_ptr()) }
    }
}
