//! A thread that writes what it is given, several at a time, and reports them when they are written: for targets whose writes
//! block.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

use crate::record::Record;
use crate::relay::in_flight::{Acks, Seq};

use super::DeliveryError;

/// The most records of one write.
const MOST: usize = 1000;

/// Where a worker writes to.
pub(super) trait Medium: Send + 'static {
    /// Writes all of them; they are durable, as far as they can be, when it returns. Those of a failed write may be written or
    /// not, and come again.
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
    pub(super) fn start(medium: impl Medium, acks: Acks, written: impl Fn(Seq) + Send + 'static) -> Self {
        #[expect(clippy::disallowed_methods, reason = "what may be in flight bounds it")]
        let (queue, given) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || run(medium, &given, &acks, &written, &stopped));
        Self { queue, stop, thread }
    }

    pub(super) fn give(&self, seq: Seq, record: Record) {
        // The thread ends before its queue only when a write failed, which it has reported.
        let _ = self.queue.send((seq, record));
    }

    /// Ends the thread behind the write that it is at. Another one may then write to the same place: it cannot be overtaken.
    pub(super) async fn close(self) {
        let Self { queue, stop, thread } = self;
        stop.store(true, Ordering::Release);
        drop(queue);
        let ended = tokio::task::spawn_blocking(move || thread.join()).await;
        if !matches!(ended, Ok(Ok(()))) {
            tracing::error!("a sink's thread failed; this is a fault of tailpost");
        }
    }
}

fn run(
    mut medium: impl Medium,
    given: &Receiver<(Seq, Record)>,
    acks: &Acks,
    written: &impl Fn(Seq),
    stop: &AtomicBool,
) {
    let (mut seqs, mut records) = (Vec::new(), Vec::new());
    while let Ok((seq, record)) = given.recv() {
        seqs.push(seq);
        records.push(record);
        for (seq, record) in given.try_iter().take(MOST - 1) {
            seqs.push(seq);
            records.push(record);
        }
        if stop.load(Ordering::Acquire) {
            return;
        }
        if let Err(error) = medium.write(&records) {
            // What comes behind must not overtake: nothing more is written.
            return acks.broken(error);
        }
        for seq in seqs.drain(..) {
            acks.acked(seq);
            written(seq);
        }
        records.clear();
    }
}
