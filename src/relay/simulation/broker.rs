//! The simulated brokers, and the producers that talk to them.
//!
//! A producer keeps order within a partition and has one batch of each on its way. A batch that fails ends the producer:
//! nothing behind it goes on. What is on the way when a producer ends may still arrive. With transactions, records count
//! when their commit arrives, and only from the producer that claimed last.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use tokio::sync::Notify;

use super::log::Kind;
use super::rules::{Topic, policy};
use super::world::{Event, Millis, ProcessId, World};
use crate::config::ErrorPolicy;
use crate::position::Position;
use crate::record::Record;
use crate::relay::in_flight::{Acks, Limits, Seq};
use crate::sink::kafka::QUEUE_OVERHEAD;
use crate::sink::{DeliveryError, DeliveryErrorKind, KafkaSinkError, RecordFault, SendError, SinkError};

/// The last one is the topic of dead letters.
const PARTITIONS: u64 = 4;
const BATCH: u64 = 4;
/// Between two looks whether all is delivered that is to be committed.
const FLUSH: Millis = 3;

/// A record on its way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Item {
    seq: Seq,
    number: usize,
    topic: Topic,
}

/// How a batch fares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BatchFate {
    Delivered,
    /// It is in the topic, and its answer is lost.
    DeliveredAndFailed,
    Lost,
    /// Its producer may not write any more.
    Fenced,
    /// One of its records is refused; whether the others are said to be innocent.
    Refused {
        told: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CommitFate {
    Done,
    /// Nobody is told whether it was done.
    Unknown {
        done: bool,
    },
    Aborted,
}

/// What happens between a producer and the brokers.
#[derive(Debug)]
pub(super) enum Delivery {
    Transmit {
        producer: u64,
        partition: usize,
    },
    Arrive {
        producer: u64,
        partition: usize,
        items: Vec<Item>,
        fate: BatchFate,
    },
    Answer {
        producer: u64,
        partition: usize,
        items: Vec<(Item, Option<DeliveryErrorKind>)>,
    },
    /// What waits behind a failure fails as well.
    FailRest {
        producer: u64,
    },
    Break {
        producer: u64,
        refused: bool,
    },
    Ready {
        producer: u64,
        unknown: bool,
    },
    TryCommit {
        producer: u64,
    },
    CommitArrives {
        producer: u64,
        fate: CommitFate,
    },
    CommitAnswered {
        producer: u64,
        result: Result<(), SinkError>,
    },
    /// The brokers lose patience with a transaction.
    Expire {
        producer: u64,
        transaction: u64,
    },
}

impl Delivery {
    /// The producer that it happens in; None: it is on the way or at the brokers.
    pub(super) fn inside(&self) -> Option<u64> {
        match self {
            Self::Transmit { producer, .. }
            | Self::Answer { producer, .. }
            | Self::FailRest { producer }
            | Self::Break { producer, .. }
            | Self::Ready { producer, .. }
            | Self::TryCommit { producer }
            | Self::CommitAnswered { producer, .. } => Some(*producer),
            Self::Arrive { .. } | Self::CommitArrives { .. } | Self::Expire { .. } => None,
        }
    }
}

#[derive(Debug, Default)]
struct Partition {
    queue: VecDeque<Item>,
    busy: bool,
}

#[derive(Debug)]
struct Producer {
    process: ProcessId,
    /// Connections to the source that were made before it.
    connections: u64,
    acks: Acks,
    ready: Arc<Notify>,
    /// Of its claim; 0 before.
    epoch: u64,
    next: u64,
    /// The change sent last, and the first that may be sent.
    last: Option<usize>,
    floor: Option<usize>,
    partitions: Vec<Partition>,
    /// Sent and not reported yet, with its bytes.
    in_flight: BTreeMap<u64, u64>,
    /// How many were sent since the last commit.
    open: usize,
    waiting: bool,
    answer: Option<Result<(), SinkError>>,
    broken: bool,
    /// Whether what is on the way arrives all the same.
    closed: Option<bool>,
    transaction: u64,
    /// Delivered in the open transaction.
    uncommitted: Vec<Item>,
    commit: Option<(Seq, Position)>,
}

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Broker {
    producers: BTreeMap<u64, Producer>,
    made: u64,
    /// How often the transactional id was claimed, or taken away.
    epoch: u64,
}

impl Broker {
    fn get(&mut self, producer: u64) -> &mut Producer {
        self.producers.get_mut(&producer).unwrap()
    }

    pub(super) fn process(&self, producer: u64) -> ProcessId {
        self.producers[&producer].process
    }

    /// What a waiting sink learns. None: it waits on.
    pub(super) fn ready(&mut self, producer: u64) -> Option<Result<(), SinkError>> {
        let producer = self.get(producer);
        if let Some(answer) = producer.answer.take() {
            producer.waiting = false;
            return Some(answer);
        }
        if producer.broken {
            let reason = "broken".to_owned();
            return Some(Err(KafkaSinkError::Fatal { reason }.into()));
        }
        (!producer.waiting).then_some(Ok(()))
    }
}

fn header<'a>(record: &'a Record, name: &str) -> Option<&'a [u8]> {
    let header = record.headers.iter().find(|header| &*header.name == name);
    header.and_then(|header| header.value.as_deref())
}

fn failed(kind: DeliveryErrorKind) -> DeliveryError {
    DeliveryError {
        kind,
        text: format!("simulated: {kind:?}"),
    }
}

impl World {
    pub(super) fn new_producer(&mut self, process: ProcessId, acks: Acks) -> (u64, Arc<Notify>) {
        let ready = Arc::new(Notify::new());
        self.broker.made += 1;
        let producer = Producer {
            process,
            connections: self.server.opened(),
            acks,
            ready: Arc::clone(&ready),
            epoch: 0,
            next: 0,
            last: None,
            // A store that is shared is read later.
            floor: (!self.scenario.mode.is_shared()).then_some(self.saved.done),
            partitions: (0..PARTITIONS).map(|_| Partition::default()).collect(),
            in_flight: BTreeMap::new(),
            open: 0,
            waiting: false,
            answer: None,
            broken: false,
            closed: None,
            transaction: 0,
            uncommitted: Vec::new(),
            commit: None,
        };
        self.broker.producers.insert(self.broker.made, producer);
        (self.broker.made, ready)
    }

    /// Shuts older producers out, and takes back what they have open.
    pub(super) fn claim(&mut self, producer: u64) {
        let Producer {
            process, connections, ..
        } = *self.broker.get(producer);
        if !self.server.had_lock(process, connections) {
            self.violate("a life claims that never had the source's lock".to_owned());
        }
        self.broker.epoch += 1;
        let epoch = self.broker.epoch;
        self.broker.get(producer).epoch = epoch;
    }

    pub(super) fn close(&mut self, producer: u64) {
        let arrives = self.rng.chance(500);
        self.broker.get(producer).closed.get_or_insert(arrives);
    }

    pub(super) fn broker_loses(&mut self, process: ProcessId) {
        let producers = self.broker.producers.iter();
        let lost: Vec<u64> = producers
            .filter(|(_, producer)| producer.process == process)
            .map(|(number, _)| *number)
            .collect();
        lost.into_iter().for_each(|producer| self.close(producer));
    }

    /// The change that a record was made of, and the topic that it goes to.
    fn target(&self, record: &Record) -> (usize, Topic) {
        let topic = match &*record.topic {
            "t" => Topic::Events,
            _ => Topic::DeadLetters,
        };
        let position = record
            .headers
            .iter()
            .find(|header| &*header.name == "tailpost-dlq-position");
        let number = match (&record.value, position) {
            (_, Some(position)) => self
                .log
                .number_at(std::str::from_utf8(position.value.as_ref().unwrap()).unwrap()),
            (value, None) => {
                let payload = std::str::from_utf8(value.as_deref().unwrap_or_default()).unwrap();
                payload.parse().unwrap()
            }
        };
        (number, topic)
    }

    fn deliver(&mut self, after: Millis, delivery: Delivery) {
        self.schedule(after, Event::Delivery(delivery));
    }

    pub(super) fn send(&mut self, number: u64, seq: Seq, record: Record) -> Result<(), SendError> {
        let process = self.broker.process(number);
        if self.is_dead(process) {
            return Ok(());
        }
        let once = self.is_exactly_once();
        let (change, topic) = self.target(&record);
        let kind = match (topic, self.log.changes()[change].kind) {
            (Topic::Events, kind) => kind,
            // A stub is small enough.
            (Topic::DeadLetters, Kind::TooLargeToPark) if header(&record, "tailpost-dlq-stub").is_none() => {
                Kind::TooLarge
            }
            (Topic::DeadLetters, _) => Kind::Good,
        };
        if self.broker.get(number).commit.is_some() {
            self.violate(format!("change {change} is sent while a commit is under way"));
        }
        let producer = self.broker.get(number);
        if producer.broken || producer.waiting {
            producer.waiting = true;
            return Err(SendError::NotReady(Box::new(record)));
        }
        if matches!(kind, Kind::TooLarge | Kind::TooLargeToPark) {
            let error = failed(DeliveryErrorKind::Record(RecordFault::TooLarge));
            return Err(SendError::Rejected(Box::new(record), error));
        }
        let open = self.broker.get(number).open > 0;
        if once && open && self.fault(|odds| odds.not_ready) {
            return Err(SendError::CommitFirst(Box::new(record)));
        }
        let unknown = kind == Kind::UnknownTopic;
        if unknown || self.fault(|odds| odds.not_ready) {
            self.broker.get(number).waiting = true;
            let after = self.delay();
            self.deliver(
                after,
                Delivery::Ready {
                    producer: number,
                    unknown,
                },
            );
            return Err(SendError::NotReady(Box::new(record)));
        }
        let bytes = record.byte_len() as u64 + QUEUE_OVERHEAD;
        self.check_sent(number, seq, change, bytes);
        if !self.step(
            process,
            format_args!("send {} with change {change} to {topic:?}", seq.0),
        ) {
            return Ok(());
        }
        let partition = match topic {
            Topic::Events => (self.log.changes()[change].key % (PARTITIONS - 1)) as usize,
            Topic::DeadLetters => PARTITIONS as usize - 1,
        };
        let item = Item {
            seq,
            number: change,
            topic,
        };
        let producer = self.broker.get(number);
        let opens = once && producer.open == 0;
        producer.next = seq.0 + 1;
        producer.last = Some(change);
        producer.in_flight.insert(seq.0, bytes);
        producer.open += 1;
        let lane = &mut producer.partitions[partition];
        lane.queue.push_back(item);
        let transaction = producer.transaction;
        if !lane.busy && lane.queue.len() == 1 {
            let after = self.delay();
            self.deliver(
                after,
                Delivery::Transmit {
                    producer: number,
                    partition,
                },
            );
        }
        if opens && self.fault(|odds| odds.expire) {
            let after = self.rng.within(1..=2000);
            self.deliver(
                after,
                Delivery::Expire {
                    producer: number,
                    transaction,
                },
            );
        }
        if self.fault(|odds| odds.broken) {
            let after = self.delay();
            let refused = self.rng.chance(100);
            self.deliver(
                after,
                Delivery::Break {
                    producer: number,
                    refused,
                },
            );
        }
        Ok(())
    }

    /// Rules of what a producer is given: no gap, no step back, nothing that a checkpoint had covered, and not too much.
    fn check_sent(&mut self, number: u64, seq: Seq, change: usize, bytes: u64) {
        let process = self.broker.process(number);
        let floor = self.processes[process.0].floor;
        let limits = self.scenario.pipeline.delivery;
        let once = self.is_exactly_once();
        let producer = self.broker.get(number);
        let floor = *producer.floor.get_or_insert(floor);
        let (next, epoch, last) = (producer.next, producer.epoch, producer.last);
        let in_flight = producer.in_flight.len();
        let full = in_flight >= limits.max_in_flight_events;
        let heavy = producer.in_flight.values().sum::<u64>() + bytes > limits.max_in_flight_bytes;
        let uncommitted = producer.open;
        if seq.0 != next {
            self.violate(format!("change {change} is sent as {}, expected {next}", seq.0));
        }
        if once && epoch == 0 {
            self.violate(format!("change {change} is sent before the claim"));
        }
        if in_flight > 0 && (full || heavy) {
            self.violate(format!(
                "change {change} is sent beside {in_flight} in flight, over the limit"
            ));
        }
        let most = Limits::of(&limits, once).uncommitted;
        if most.is_some_and(|most| uncommitted >= most) {
            self.violate(format!(
                "change {change} is sent beside {uncommitted} that are not committed"
            ));
        }
        if change < floor {
            self.violate(format!("change {change} is sent again, and {floor} were saved"));
        }
        if last.is_some_and(|last| change <= last) {
            self.violate(format!("change {change} is sent behind {last:?} in one life"));
        }
        for between in last.map_or(floor, |last| last + 1)..change {
            let kind = self.log.changes()[between].kind;
            let needless = match policy(kind, &self.policies) {
                None => kind == Kind::Foreign,
                Some(policy) => policy == ErrorPolicy::Skip,
            };
            // A life can begin behind what was saved.
            let done = last.is_none() && self.rules.is_durable(between);
            if !needless && !done {
                self.violate(format!("change {between} ({kind:?}) is left out before {change}"));
            }
        }
    }

    pub(super) fn begin_commit(&mut self, number: u64, seq: Seq, position: &Position) {
        let process = self.broker.process(number);
        let done = self.log.done(position);
        if !self.step(
            process,
            format_args!("begin to commit {} with {position}: {done} changes", seq.0),
        ) {
            return;
        }
        let producer = self.broker.get(number);
        let (next, last, busy) = (producer.next, producer.last, producer.waiting);
        producer.next = seq.0 + 1;
        producer.waiting = true;
        producer.commit = Some((seq, position.clone()));
        if seq.0 != next || busy {
            self.violate(format!(
                "a commit is begun as {}, expected {next}; waiting: {busy}",
                seq.0
            ));
        }
        if last.is_some_and(|last| last >= done) {
            self.violate(format!(
                "change {last:?} is committed with {done} changes as the position"
            ));
        }
        let after = self.delay();
        self.deliver(after, Delivery::TryCommit { producer: number });
    }

    /// Lets a delivery happen.
    pub(super) fn happen(&mut self, delivery: Delivery) {
        if let Some(producer) = delivery.inside() {
            let process = self.broker.process(producer);
            if self.is_dead(process) || self.broker.get(producer).closed.is_some() {
                return;
            }
        }
        match delivery {
            Delivery::Transmit { producer, partition } => self.transmit(producer, partition),
            Delivery::Arrive {
                producer,
                partition,
                items,
                fate,
            } => self.arrive(producer, partition, items, fate),
            Delivery::Answer {
                producer,
                partition,
                items,
            } => self.answer(producer, partition, items),
            Delivery::FailRest { producer } => {
                let partitions = self.broker.get(producer).partitions.iter_mut();
                let rest: Vec<Item> = partitions.flat_map(|lane| lane.queue.drain(..)).collect();
                for item in rest {
                    self.report(producer, item, Some(DeliveryErrorKind::Unavailable));
                }
            }
            Delivery::Break { producer, refused } => {
                self.note(format_args!("producer {producer} breaks, refused: {refused}"));
                if refused {
                    self.hopeless = true;
                    let error = failed(DeliveryErrorKind::Refused);
                    self.broker.get(producer).acks.broken(error);
                }
                self.break_down(producer);
            }
            Delivery::Ready { producer, unknown } => {
                let state = self.broker.get(producer);
                state.answer = Some(match unknown {
                    false => Ok(()),
                    true => Err(failed(DeliveryErrorKind::Record(RecordFault::UnknownTopic)).into()),
                });
                state.ready.notify_one();
            }
            Delivery::TryCommit { producer } => self.try_commit(producer),
            Delivery::CommitArrives { producer, fate } => self.commit_arrives(producer, fate),
            Delivery::CommitAnswered { producer, result } => self.commit_answered(producer, result),
            Delivery::Expire { producer, transaction } => {
                let state = self.broker.get(producer);
                let open = state.transaction == transaction && state.open > 0;
                if open && state.epoch == self.broker.epoch {
                    self.note(format_args!("the transaction of producer {producer} took too long"));
                    self.broker.epoch += 1;
                }
            }
        }
    }

    fn break_down(&mut self, producer: u64) {
        let state = self.broker.get(producer);
        state.broken = true;
        state.ready.notify_one();
        let after = self.delay();
        self.deliver(after, Delivery::FailRest { producer });
    }

    fn transmit(&mut self, producer: u64, partition: usize) {
        let most = self.rng.within(1..=BATCH);
        let state = self.broker.get(producer);
        let lane = &mut state.partitions[partition];
        if state.broken || lane.busy || lane.queue.is_empty() {
            return;
        }
        lane.busy = true;
        let count = lane.queue.len().min(most as usize);
        let items: Vec<Item> = lane.queue.drain(..count).collect();
        let refused = items
            .iter()
            .any(|item| item.topic == Topic::Events && self.log.changes()[item.number].kind == Kind::Refused);
        let fate = if refused {
            let told = self.rng.chance(500);
            BatchFate::Refused { told }
        } else if self.fault(|odds| odds.fail) {
            self.rng.pick(&[BatchFate::Lost, BatchFate::DeliveredAndFailed])
        } else {
            BatchFate::Delivered
        };
        let after = self.delay();
        self.deliver(
            after,
            Delivery::Arrive {
                producer,
                partition,
                items,
                fate,
            },
        );
    }

    fn arrive(&mut self, producer: u64, partition: usize, items: Vec<Item>, fate: BatchFate) {
        let once = self.is_exactly_once();
        let state = self.broker.get(producer);
        let (process, closed) = (state.process, state.closed);
        if closed == Some(false) {
            return;
        }
        let fenced = once && state.epoch != self.broker.epoch;
        let fate = if fenced { BatchFate::Fenced } else { fate };
        let numbers: Vec<usize> = items.iter().map(|item| item.number).collect();
        match fate {
            BatchFate::Lost | BatchFate::Fenced | BatchFate::Refused { .. } => {
                self.note(format_args!("{numbers:?}: {fate:?}"))
            }
            // What is on the way of a process that is gone arrives by itself.
            _ if self.is_dead(process) => self.note(format_args!("{numbers:?}: {fate:?}, from the dead")),
            _ if !self.step(process, format_args!("{numbers:?}: {fate:?}")) => return,
            _ => {}
        }
        if !matches!(fate, BatchFate::Lost | BatchFate::Fenced | BatchFate::Refused { .. }) {
            match once {
                true => self.broker.get(producer).uncommitted.extend(&items),
                false => self.append(&items),
            }
        }
        let log = Arc::clone(&self.log);
        let result = |item: &Item| match fate {
            BatchFate::Delivered => None,
            BatchFate::DeliveredAndFailed | BatchFate::Lost => Some(DeliveryErrorKind::Unavailable),
            BatchFate::Fenced => Some(DeliveryErrorKind::Fenced),
            BatchFate::Refused { told: true } if log.changes()[item.number].kind != Kind::Refused => {
                Some(DeliveryErrorKind::Unavailable)
            }
            BatchFate::Refused { .. } => Some(DeliveryErrorKind::Record(RecordFault::Refused)),
        };
        let items = items.into_iter().map(|item| (item, result(&item))).collect();
        let after = self.delay();
        self.deliver(
            after,
            Delivery::Answer {
                producer,
                partition,
                items,
            },
        );
    }

    fn append(&mut self, items: &[Item]) {
        let once = self.is_exactly_once();
        for item in items {
            let log = Arc::clone(&self.log);
            if let Err(broken) = self.rules.durable(&log, item.number, item.topic, once) {
                self.violate(broken);
            }
        }
    }

    fn answer(&mut self, producer: u64, partition: usize, items: Vec<(Item, Option<DeliveryErrorKind>)>) {
        let failed = items.iter().any(|(_, error)| error.is_some());
        for (item, error) in items {
            self.report(producer, item, error);
        }
        if failed {
            return self.break_down(producer);
        }
        let lane = &mut self.broker.get(producer).partitions[partition];
        lane.busy = false;
        if !lane.queue.is_empty() {
            let after = self.delay();
            self.deliver(after, Delivery::Transmit { producer, partition });
        }
    }

    /// Tells the ledger how a record fared.
    fn report(&mut self, producer: u64, item: Item, error: Option<DeliveryErrorKind>) {
        let process = self.broker.process(producer);
        match error {
            Some(kind) => {
                if self.step(process, format_args!("report {} failed: {kind:?}", item.seq.0)) {
                    self.broker.get(producer).acks.failed(item.seq, failed(kind));
                }
            }
            None => {
                if self.step(process, format_args!("ack {}", item.seq.0)) {
                    let state = self.broker.get(producer);
                    state.in_flight.remove(&item.seq.0);
                    state.acks.acked(item.seq);
                }
            }
        }
    }

    fn try_commit(&mut self, producer: u64) {
        let state = self.broker.get(producer);
        if state.broken {
            let result = Err(aborted("a delivery failed"));
            return self.deliver(FLUSH, Delivery::CommitAnswered { producer, result });
        }
        if state.partitions.iter().any(|lane| lane.busy || !lane.queue.is_empty()) {
            return self.deliver(FLUSH, Delivery::TryCommit { producer });
        }
        let fate = if self.fault(|odds| odds.commit) {
            self.rng.pick(&[
                CommitFate::Unknown { done: true },
                CommitFate::Unknown { done: false },
                CommitFate::Aborted,
            ])
        } else {
            CommitFate::Done
        };
        let after = self.delay();
        self.deliver(after, Delivery::CommitArrives { producer, fate });
    }

    fn commit_arrives(&mut self, producer: u64, fate: CommitFate) {
        let state = self.broker.get(producer);
        let (process, epoch) = (state.process, state.epoch);
        if state.closed == Some(false) {
            return;
        }
        let Some((_, position)) = state.commit.clone() else {
            return;
        };
        let result = match fate {
            _ if epoch != self.broker.epoch => Err(fenced()),
            CommitFate::Aborted => Err(aborted("aborted")),
            CommitFate::Unknown { done: false } => Err(aborted("unknown")),
            CommitFate::Done | CommitFate::Unknown { done: true } => {
                if self.is_dead(process) {
                    self.note(format_args!("commit of {position}, from the dead"));
                } else if !self.step(process, format_args!("commit {position}")) {
                    return;
                }
                let mut items = std::mem::take(&mut self.broker.get(producer).uncommitted);
                items.sort_by_key(|item| item.seq);
                self.append(&items);
                self.make_saved(&position);
                match fate {
                    CommitFate::Done => Ok(()),
                    _ => Err(aborted("unknown")),
                }
            }
        };
        let after = self.delay();
        self.deliver(after, Delivery::CommitAnswered { producer, result });
    }

    fn commit_answered(&mut self, producer: u64, result: Result<(), SinkError>) {
        let process = self.broker.process(producer);
        if !self.step(process, format_args!("commit answered: {result:?}")) {
            return;
        }
        let state = self.broker.get(producer);
        let Some((seq, _)) = state.commit.take() else { return };
        if result.is_ok() {
            state.open = 0;
            state.transaction += 1;
            // The position itself is no record of the simulation's.
            state.acks.acked(seq);
            state.acks.committed_through(seq);
        } else {
            state.broken = true;
        }
        state.answer = Some(result);
        state.ready.notify_one();
    }
}

fn aborted(reason: &str) -> SinkError {
    SinkError::Kafka(KafkaSinkError::Transaction {
        action: "commit",
        reason: reason.to_owned(),
    })
}

fn fenced() -> SinkError {
    SinkError::Kafka(KafkaSinkError::Fenced {
        transactional_id: "x".to_owned(),
        reason: "simulated".to_owned(),
    })
}
