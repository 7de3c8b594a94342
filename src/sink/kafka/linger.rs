//! Linger that follows load.
//!
//! In a backlog records wait in librdkafka for a moment (its `linger.ms`), so that they travel in fewer, larger requests, which
//! are a good part of what a record costs, the broker more than us. With no backlog they are to leave at once. `linger.ms`
//! cannot be changed while a producer lives; but for as long as `rd_kafka_flush` waits, librdkafka lets nothing linger (the
//! function's text in `rdkafka.h`), so a flush is what is made here, on a thread of the runtime's for what may block.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use rdkafka::bindings;
use rdkafka::producer::Producer as _;

use super::producer::SharedProducer;

/// A flush is over when all is acknowledged; but not later than this, so that a backlog that begins meanwhile may linger.
const LONGEST: Duration = Duration::from_millis(5);

const NOTHING: u8 = 0;
const FLUSHING: u8 = 1;
/// More was sent since the flush began, which may have been over by then.
const AGAIN: u8 = 2;

/// Sends what lingers.
#[derive(Debug, Default)]
pub(super) struct Hurry(Arc<AtomicU8>);

impl Hurry {
    /// Lets everything that was given to the producer leave now. Must be called within a runtime.
    pub(super) fn now(&self, producer: &SharedProducer) {
        if self.0.swap(AGAIN, Ordering::AcqRel) != NOTHING {
            return;
        }
        let (state, producer) = (Arc::clone(&self.0), SharedProducer::clone(producer));
        tokio::task::spawn_blocking(move || {
            // The last one to hold a producer waits for its threads, which this one may.
            while state.swap(FLUSHING, Ordering::AcqRel) == AGAIN {
                flush(&producer);
                if state
                    .compare_exchange(FLUSHING, NOTHING, Ordering::AcqRel, Ordering::Acquire)
                    .is_ok()
                {
                    return;
                }
            }
        });
    }
}

/// Unlike the client crate's own it polls nothing: the reports are for whoever sends.
#[expect(
    unsafe_code,
    reason = "the client crate's flush takes reports, and no less than 100 ms"
)]
fn flush(producer: &SharedProducer) {
    let milliseconds = i32::try_from(LONGEST.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: the producer lives over the call. It reports by events, of which a flush takes none.
    unsafe { bindings::rd_kafka_flush(producer.client().native_ptr(), milliseconds) };
}
