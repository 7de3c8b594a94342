//! The order of what waits to be sent, without sending anything: events of one ordering key follow each other, those of different
//! keys do not wait for one another.
//!
//! A key's events are its lane. While a request that carries some of them is under way, or waits to be tried again, its lane
//! gives nothing more. A batch takes what is ready for the same URL, of as many lanes as it can hold.

use std::collections::{HashMap, VecDeque};
use std::mem;
use std::sync::Arc;

use crate::record::{OrderingKey, Record};
use crate::relay::in_flight::Seq;

use super::troubled::Trouble;

/// An event to be sent.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) seq: Seq,
    pub(super) record: Record,
    /// It was in a batch that the target did not take: the next time nothing else may be.
    pub(super) alone: bool,
    /// How often it was tried before, in such a batch.
    pub(super) attempts: u32,
}

impl Item {
    fn bytes(&self) -> u64 {
        self.record.value.as_ref().map_or(0, |value| value.len() as u64)
    }

    fn url(&self) -> &Arc<str> {
        &self.record.topic
    }

    fn ordering(&self) -> OrderingKey {
        let about = self.record.about.as_deref();
        about.map_or(OrderingKey::Unordered, |about| about.ordering.clone())
    }
}

/// What goes out in one request. At least one item.
#[derive(Debug, Default)]
pub(super) struct Job {
    pub(super) items: Vec<Item>,
    lanes: Vec<OrderingKey>,
    /// How often it was tried.
    pub(super) attempts: u32,
    /// How often of these the target could be reached, be it without an answer.
    pub(super) reached: u32,
    /// While it waits for another try, or is at one.
    pub(super) trouble: Option<Trouble>,
}

impl Job {
    /// How many ordering keys wait for it; an event without one counts by itself.
    pub(super) fn key_count(&self) -> usize {
        let unordered = |item: &&Item| item.ordering() == OrderingKey::Unordered;
        self.lanes.len() + self.items.iter().filter(unordered).count()
    }
}

/// How much one request may carry.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) events: usize,
    pub(super) bytes: u64,
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct Lanes {
    limits: Limits,
    lanes: HashMap<OrderingKey, Lane>,
    ready: VecDeque<Ready>,
}

#[derive(Debug, Default)]
struct Lane {
    queue: VecDeque<Item>,
    is_busy: bool,
}

#[derive(Debug)]
enum Ready {
    Unordered(Item),
    /// A lane that is not busy and has something.
    Lane(OrderingKey),
}

impl Lanes {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            lanes: HashMap::new(),
            ready: VecDeque::new(),
        }
    }

    pub(super) fn push(&mut self, item: Item) {
        let key = item.ordering();
        if key == OrderingKey::Unordered {
            return self.ready.push_back(Ready::Unordered(item));
        }
        let lane = self.lanes.entry(key.clone()).or_default();
        lane.queue.push_back(item);
        if !lane.is_busy && lane.queue.len() == 1 {
            self.ready.push_back(Ready::Lane(key));
        }
    }

    /// What may go out next. None: nothing, before something that is under way is done.
    pub(super) fn take(&mut self) -> Option<Job> {
        let mut job = Job::default();
        let mut bytes = 0;
        while let Some(ready) = self.ready.front() {
            let head = match ready {
                Ready::Unordered(item) => Some(item),
                Ready::Lane(key) => self.lanes.get(key).and_then(|lane| lane.queue.front()),
            };
            if head.is_some_and(|head| !fits(self.limits, &job.items, bytes, head)) {
                break;
            }
            match self.ready.pop_front() {
                Some(Ready::Unordered(item)) => {
                    bytes += item.bytes();
                    job.items.push(item);
                }
                Some(Ready::Lane(key)) => {
                    let Some(lane) = self.lanes.get_mut(&key) else { continue };
                    lane.is_busy = true;
                    while let Some(item) = lane.queue.front()
                        && fits(self.limits, &job.items, bytes, item)
                    {
                        bytes += item.bytes();
                        job.items.extend(lane.queue.pop_front());
                    }
                    job.lanes.push(key);
                }
                None => {}
            }
        }
        job.attempts = job.items.first()?.attempts;
        Some(job)
    }

    /// The job's events are settled: its lanes go on.
    pub(super) fn done(&mut self, job: Job) {
        for key in job.lanes {
            let Some(lane) = self.lanes.get_mut(&key) else { continue };
            lane.is_busy = false;
            if lane.queue.is_empty() {
                self.lanes.remove(&key);
            } else {
                self.ready.push_back(Ready::Lane(key));
            }
        }
    }

    /// The job's events are to be sent one by one, each in its place.
    pub(super) fn split(&mut self, mut job: Job) {
        for mut item in mem::take(&mut job.items).into_iter().rev() {
            item.alone = true;
            item.attempts = job.attempts;
            match item.ordering() {
                OrderingKey::Unordered => self.ready.push_front(Ready::Unordered(item)),
                key => self.lanes.entry(key).or_default().queue.push_front(item),
            }
        }
        self.done(job);
    }
}

fn fits(limits: Limits, items: &[Item], bytes: u64, next: &Item) -> bool {
    let Some(first) = items.first() else { return true };
    items.len() < limits.events
        && bytes.saturating_add(next.bytes()) <= limits.bytes
        && first.url() == next.url()
        && !first.alone
        && !next.alone
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;
    use crate::record::About;

    fn item(seq: u64, key: Option<u8>, url: u8) -> Item {
        let ordering = key.map_or(OrderingKey::Unordered, |key| {
            OrderingKey::Key(Bytes::copy_from_slice(&[key]))
        });
        Item {
            seq: Seq(seq),
            record: Record {
                topic: Arc::from(format!("http://h/{url}")),
                partition: None,
                key: None,
                value: Some(Bytes::from_static(b"12345")),
                headers: Vec::new(),
                timestamp_ms: 0,
                about: Some(Box::new(About {
                    event_id: seq.to_string(),
                    event_type: None,
                    aggregate_type: None,
                    aggregate_id: None,
                    ordering,
                    audited: Vec::new(),
                })),
            },
            alone: false,
            attempts: 0,
        }
    }

    fn lanes(events: usize, bytes: u64) -> Lanes {
        Lanes::new(Limits { events, bytes })
    }

    fn seqs(job: &Job) -> Vec<u64> {
        job.items.iter().map(|item| item.seq.0).collect()
    }

    #[test]
    fn a_key_waits_for_its_own_and_for_no_other() {
        let mut lanes = lanes(1, 100);
        for (seq, key) in [(0, Some(1)), (1, Some(1)), (2, Some(2)), (3, None), (4, None)] {
            lanes.push(item(seq, key, 0));
        }
        let first = lanes.take().unwrap();
        assert_eq!(seqs(&first), [0]);
        for seq in [2, 3, 4] {
            assert_eq!(seqs(&lanes.take().unwrap()), [seq]);
        }
        assert!(lanes.take().is_none());
        lanes.done(first);
        assert_eq!(seqs(&lanes.take().unwrap()), [1]);
    }

    #[test]
    fn a_batch_holds_what_is_ready_for_one_url_within_its_limits() {
        let mut batches = lanes(10, 20);
        for (seq, key, url) in [
            (0, Some(1), 0),
            (1, Some(1), 0),
            (2, Some(2), 0),
            (3, Some(3), 9),
            (4, None, 0),
        ] {
            batches.push(item(seq, key, url));
        }
        let batch = batches.take().unwrap();
        assert_eq!((seqs(&batch), batch.key_count()), (vec![0, 1, 2], 2));
        assert_eq!(seqs(&batches.take().unwrap()), [3]);
        let unordered = batches.take().unwrap();
        assert_eq!((seqs(&unordered), unordered.key_count()), (vec![4], 1));
        let mut small = lanes(10, 9);
        (0..3).for_each(|seq| small.push(item(seq, None, 0)));
        assert_eq!(seqs(&small.take().unwrap()), [0]);
        // One that is larger than a batch goes alone.
        let mut smaller = lanes(10, 1);
        smaller.push(item(0, None, 0));
        assert_eq!(seqs(&smaller.take().unwrap()), [0]);
    }

    #[test]
    fn a_batch_that_is_split_goes_one_by_one_before_what_follows() {
        let mut lanes = lanes(10, 100);
        for (seq, key) in [(0, Some(1)), (1, Some(2)), (2, Some(1))] {
            lanes.push(item(seq, key, 0));
        }
        let job = lanes.take().unwrap();
        assert_eq!(seqs(&job), [0, 2, 1]);
        lanes.push(item(3, Some(1), 0));
        lanes.split(job);
        let (one, two) = (lanes.take().unwrap(), lanes.take().unwrap());
        assert_eq!((seqs(&one), seqs(&two)), (vec![0], vec![1]));
        assert!(lanes.take().is_none());
        lanes.done(one);
        let one = lanes.take().unwrap();
        assert_eq!(seqs(&one), [2]);
        lanes.done(one);
        assert_eq!(seqs(&lanes.take().unwrap()), [3]);
    }

    proptest! {
        #[test]
        fn whatever_becomes_of_requests_each_key_keeps_its_order_and_nothing_is_left(
            keys in prop::collection::vec((prop::option::of(0u8..3), 0u8..2), 1..40),
            events in 1usize..5,
            steps in prop::collection::vec((0u8..4, any::<usize>()), 0..200),
        ) {
            let mut lanes = lanes(events, 20);
            let mut items = keys.iter().zip(0..).map(|(&(key, url), seq)| item(seq, key, url));
            let mut under_way: Vec<Job> = Vec::new();
            let mut settled: Vec<u64> = Vec::new();
            let ending = std::iter::repeat((9, 0));
            for (step, index) in steps.into_iter().chain(ending) {
                match step {
                    0 => items.by_ref().take(1).for_each(|item| lanes.push(item)),
                    1 | 9 => {
                        if step == 9 {
                            items.by_ref().for_each(|item| lanes.push(item));
                        }
                        under_way.extend(lanes.take());
                        if step == 9 && under_way.is_empty() {
                            break;
                        }
                    }
                    _ => {}
                }
                if step >= 2 && !under_way.is_empty() {
                    let job = under_way.swap_remove(index % under_way.len());
                    if step == 2 && job.items.len() > 1 {
                        lanes.split(job);
                    } else {
                        settled.extend(seqs(&job));
                        lanes.done(job);
                    }
                }
            }
            for lane in 0..3 {
                let of_lane: Vec<u64> = settled.iter().copied().filter(|&seq| keys[seq as usize].0 == Some(lane)).collect();
                prop_assert!(of_lane.is_sorted(), "{of_lane:?}");
            }
            settled.sort_unstable();
            prop_assert_eq!(settled, (0..keys.len() as u64).collect::<Vec<_>>());
            prop_assert!(lanes.lanes.is_empty() && lanes.ready.is_empty());
        }
    }
}
