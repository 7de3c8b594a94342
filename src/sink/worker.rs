//! A thread that writes what it is given, several at a time, and reports them when they are written: for targets whose writes
//! block.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::record::Record;
use crate::relay::in_flight::{Acks, Seq};
use crate::telemetry::status::PipelineStatus;

use super::{DeliveryError, DeliveryErrorKind};

/// The most records of one write.
const MOST: usize = 1000;
/// Between two tries of a write that can heal: first, and at most.
const RETRY: Duration = Duration::from_millis(100);
const LONGEST_RETRY: Duration = Duration::from_secs(10);
/// How long a write may go on that the sink's end waits for.
const CLOSING: Duration = Duration::from_secs(10);

/// Where a worker writes to.
pub(super) trait Medium: Send + 'static {
    /// Writes all of them; they are durable, as far as they can be, when it returns.
    ///
    /// # Errors
    /// None of them is written, and they are tried again if the target is
    /// [unavailable](super::DeliveryErrorKind::Unavailable) for now.
    fn write(&mut self, records: &[Record]) -> Result<(), DeliveryError>;
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct Worker {
    queue: Sender<(Seq, Record)>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Worker {
    /// `written` is told of each record that is.
    pub(super) fn start(
        medium: impl Medium,
        acks: Acks,
        status: Arc<PipelineStatus>,
        written: impl Fn(Seq) + Send + 'static,
    ) -> Self {
        #[expect(clippy::disallowed_methods, reason = "what may be in flight bounds it")]
        let (queue, given) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let job = Job {
            acks,
            status,
            stop: Arc::clone(&stop),
        };
        let here = tracing::Span::current();
        let thread = thread::spawn(move || here.in_scope(|| job.run(medium, &given, &written)));
        Self { queue, stop, thread }
    }

    pub(super) fn give(&self, seq: Seq, record: Record) {
        // The thread ends before its queue only when a write failed, which it has reported.
        let _ = self.queue.send((seq, record));
    }

    /// Ends the thread behind the write that it is at. Another one may then write to the same place: it cannot be overtaken. A
    /// write that does not come back is left behind.
    pub(super) async fn close(self) {
        let Self { queue, stop, thread } = self;
        stop.store(true, Ordering::Release);
        drop(queue);
        thread.thread().unpark();
        let end = Instant::now() + CLOSING;
        while !thread.is_finished() {
            if Instant::now() >= end {
                tracing::warn!("a write of the sink does not come back, and is left behind");
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

struct Job {
    acks: Acks,
    status: Arc<PipelineStatus>,
    stop: Arc<AtomicBool>,
}

impl Job {
    fn run(self, mut medium: impl Medium, given: &Receiver<(Seq, Record)>, written: &impl Fn(Seq)) {
        let (mut seqs, mut records) = (Vec::new(), Vec::new());
        while let Ok((seq, record)) = given.recv() {
            seqs.push(seq);
            records.push(record);
            for (seq, record) in given.try_iter().take(MOST - 1) {
                seqs.push(seq);
                records.push(record);
            }
            if !self.write(&mut medium, &records) {
                return;
            }
            for seq in seqs.drain(..) {
                self.acks.acked(seq);
                written(seq);
            }
            records.clear();
        }
    }

    /// False: nothing more is to be written.
    fn write(&self, medium: &mut impl Medium, records: &[Record]) -> bool {
        let mut wait = RETRY;
        let mut failed = false;
        while !self.stop.load(Ordering::Acquire) {
            match medium.write(records) {
                Ok(()) => {
                    if failed {
                        self.status.sink_trouble(None);
                    }
                    return true;
                }
                Err(error) if error.kind == DeliveryErrorKind::Unavailable => {
                    failed = true;
                    if self.status.sink_trouble(Some(error.text.clone())) {
                        tracing::warn!(error = %error, records = records.len(), "a write is tried again");
                    }
                    thread::park_timeout(wait);
                    wait = (wait * 2).min(LONGEST_RETRY);
                }
                Err(error) => {
                    self.acks.broken(error);
                    return false;
                }
            }
        }
        false
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if thread::panicking() {
            self.acks.broken(DeliveryError {
                kind: DeliveryErrorKind::Unavailable,
                text: "a sink's thread failed; this is a fault of tailpost".to_owned(),
            });
        }
    }
}
