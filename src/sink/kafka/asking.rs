//! Asks a client's brokers, and gives a client that has lost sight of them the way back.
//!
//! librdkafka drops each broker that an answer about the cluster does not name. One answer that names none, as brokers give
//! for a moment when all of them have just come back, leaves the client with nobody to ask: it sends nothing any more and
//! says nothing either, for good (librdkafka issue 5301, in 2.12 and 2.13). So a question that finds no answer adds the
//! configured brokers again.

use std::ffi::CString;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rdkafka::bindings;
use rdkafka::client::{Client, ClientContext};
use rdkafka::error::KafkaResult;
use rdkafka::metadata::Metadata;

/// Of one client: its brokers, and how many questions in a row found no answer.
#[derive(Debug)]
pub(crate) struct Asking {
    brokers: String,
    failures: AtomicU32,
}

impl Asking {
    pub(crate) fn new(brokers: &str) -> Self {
        Self {
            brokers: brokers.to_owned(),
            failures: AtomicU32::new(0),
        }
    }

    /// As the configuration names them.
    pub(crate) fn brokers(&self) -> &str {
        &self.brokers
    }

    /// What the brokers say of the cluster and of one topic, or of all. Asking for a topic makes it, where the broker's own
    /// rule says so. Blocks: not for a task.
    ///
    /// # Errors
    /// No answer within `timeout`.
    pub(crate) fn metadata<C: ClientContext>(
        &self,
        client: &Client<C>,
        topic: Option<&str>,
        timeout: Duration,
    ) -> KafkaResult<Metadata> {
        let answer = client.fetch_metadata(topic, timeout);
        if answer.is_ok() {
            self.failures.store(0, Ordering::Relaxed);
            return answer;
        }
        let failures = self.failures.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        // The client keeps a copy each time, and brokers can be away for days.
        if failures.is_power_of_two() {
            self.add_brokers(client);
        }
        answer
    }

    #[expect(
        unsafe_code,
        reason = "the client crate has no call that adds brokers to a client that is there"
    )]
    fn add_brokers<C: ClientContext>(&self, client: &Client<C>) {
        let Ok(brokers) = CString::new(self.brokers.as_str()) else {
            return;
        };
        // SAFETY: the handle is valid for as long as `client` lives, which is borrowed over the call; librdkafka's handles
        // may be used by several threads at once, and it copies the text.
        let added = unsafe { bindings::rd_kafka_brokers_add(client.native_ptr(), brokers.as_ptr()) };
        tracing::debug!(brokers = self.brokers, added, "asked the configured brokers anew");
    }
}
