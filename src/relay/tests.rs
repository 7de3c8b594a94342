//! The relay against a sink whose every answer the test gives.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Mutex;

use bytes::Bytes;
use tokio::task::JoinHandle;

use super::in_flight::{Acks, Limits, Seq};
use super::*;
use crate::config::{self, Pipeline};
use crate::event::{Change, LogMessage, Selection};
use crate::position::{EventPosition, Lsn, Partial, PostgresEventPosition, PostgresPosition};
use crate::sink::KafkaSinkError;

/// What the sink took, and what it will say when it is asked whether it is ready.
#[derive(Debug, Default)]
struct Script {
    sent: Vec<(Seq, String)>,
    /// Records that are given back first.
    not_ready: Vec<String>,
    ready: VecDeque<Result<(), SinkError>>,
}

#[derive(Debug, Clone, Default)]
struct ScriptedSink(Arc<Mutex<Script>>);

impl Sink for ScriptedSink {
    fn send(&mut self, seq: Seq, record: Record) -> Result<(), SendError> {
        let mut script = self.0.lock().unwrap();
        let key = String::from_utf8(record.key.clone().unwrap().to_vec()).unwrap();
        if let Some(index) = script.not_ready.iter().position(|waiting| *waiting == key) {
            script.not_ready.remove(index);
            return Err(SendError::NotReady(Box::new(record)));
        }
        script.sent.push((seq, key));
        Ok(())
    }

    async fn ready(&mut self) -> Result<(), SinkError> {
        let answer = self.0.lock().unwrap().ready.pop_front();
        match answer {
            Some(answer) => answer,
            None => std::future::pending().await,
        }
    }

    async fn close(self, _deadline: Instant) -> Result<(), SinkError> {
        Ok(())
    }
}

struct Bench {
    sink: ScriptedSink,
    acks: Acks,
    batches: Option<mpsc::Sender<LogBatch>>,
    acked: watch::Receiver<Option<Position>>,
    stop: CancellationToken,
    status: Arc<PipelineStatus>,
    relay: JoinHandle<End>,
}

fn pipeline(errors: &str) -> Pipeline {
    let text = format!(
        "{{apiVersion: tailpost/v1, kind: Pipeline, metadata: {{name: p}}, spec: {{\
         source: {{type: postgres, config: {{id: s, dsn: 'postgres://u@h/d', slot: s, publication: p, outbox: {{prefixes: [o]}}}}}}, \
         processors: [{{type: outbox, default_topic: t, raw_payload: true}}], \
         sinks: [{{type: kafka, config: {{id: k, brokers: 'h:1'}}}}], \
         errors: {{{errors}}}, delivery: {{drain_timeout: 5s}}}}}}"
    );
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("p.yaml");
    std::fs::write(&path, text).unwrap();
    load(&path)
}

fn load(path: &Path) -> Pipeline {
    config::load(path, &HashMap::new()).unwrap().pipeline
}

fn start(errors: &str, single: u64, script: Script) -> Bench {
    let pipeline = pipeline(errors);
    let ledger = Ledger::new(Limits {
        events: 100,
        bytes: u64::MAX,
    });
    let acks = ledger.acks();
    let status = PipelineStatus::new(&pipeline);
    let sink = ScriptedSink(Arc::new(Mutex::new(script)));
    let relay = Relay::new(RelayParts {
        chain: Chain::new(&pipeline),
        sink: sink.clone(),
        ledger,
        policies: pipeline.errors,
        delivery: pipeline.delivery,
        status: Arc::clone(&status),
        single,
        counted: 0,
    });
    let (sender, receiver) = mpsc::channel(4);
    let (acked_sender, acked) = watch::channel(None);
    let stop = CancellationToken::new();
    let relay = tokio::spawn(relay.run(receiver, acked_sender, stop.clone()));
    Bench {
        sink,
        acks,
        batches: Some(sender),
        acked,
        stop,
        status,
        relay,
    }
}

/// Event number n of one transaction, with its number as the key; an odd one out has no payload.
fn event(number: u64, valid: bool) -> ChangeEvent {
    let payload = if valid { r#", "payload": 1"# } else { "" };
    let content = format!(r#"{{"aggregate_id": {number}{payload}}}"#);
    ChangeEvent {
        position: EventPosition::Postgres(PostgresEventPosition {
            base: Lsn(1),
            partial: Some(Partial {
                commit: Lsn(1000),
                change: Lsn(number),
                index: 0,
            }),
            last_event_end: Lsn::ZERO,
            xid: Some(1),
        }),
        commit_time_us: 0,
        selection: Selection::Outbox,
        change: Change::Message(LogMessage {
            prefix: Arc::from("o"),
            content: Bytes::from(content),
        }),
    }
}

/// A batch of these events that ends the transaction.
fn batch(numbers: std::ops::RangeInclusive<u64>, invalid: Option<u64>) -> LogBatch {
    LogBatch {
        events: numbers.map(|number| event(number, Some(number) != invalid)).collect(),
        skipped: SkipCounts::default(),
        end: Position::Postgres(PostgresPosition {
            system_identifier: 7,
            timeline: 1,
            base: Lsn(1008),
            partial: None,
            last_event_end: Lsn(1008),
        }),
    }
}

impl Bench {
    async fn give(&self, batch: LogBatch) {
        self.batches.as_ref().unwrap().send(batch).await.unwrap();
    }

    async fn sent(&self, count: usize) -> Vec<String> {
        loop {
            let sent = self.sink.0.lock().unwrap().sent.clone();
            if sent.len() >= count {
                return sent.into_iter().map(|(_, key)| key).collect();
            }
            tokio::task::yield_now().await;
        }
    }

    /// The change that the acked position stands behind; None: at the transaction's end.
    async fn acked_change(&mut self) -> Option<u64> {
        self.acked.changed().await.unwrap();
        self.last_acked()
    }

    fn last_acked(&self) -> Option<u64> {
        let Some(Position::Postgres(position)) = self.acked.borrow().clone() else {
            panic!("nothing is acked")
        };
        position.partial.map(|partial| partial.change.0)
    }
}

fn refused(kind: DeliveryErrorKind) -> DeliveryError {
    DeliveryError {
        kind,
        text: "refused".to_owned(),
    }
}

#[tokio::test(start_paused = true)]
async fn everything_acked_reaches_the_batchs_end_and_the_account_is_even() {
    let mut bench = start("", 0, Script::default());
    bench.give(batch(1..=3, None)).await;
    assert_eq!(bench.sent(3).await, ["1", "2", "3"]);
    for seq in [2, 0, 1] {
        bench.acks.acked(Seq(seq));
    }
    assert_eq!(bench.acked_change().await, None);
    bench.batches.take();
    assert!(matches!(bench.relay.await.unwrap(), End::Drained));
    let totals = bench.status.snapshot().totals;
    assert_eq!((totals.received, totals.published, totals.in_flight()), (3, 3, 0));
}

#[tokio::test(start_paused = true)]
async fn halt_publishes_what_comes_before_and_saves_the_place_behind_it() {
    let bench = start("", 0, Script::default());
    bench.give(batch(1..=5, Some(3))).await;
    assert_eq!(bench.sent(2).await, ["1", "2"]);
    bench.acks.acked(Seq(0));
    bench.acks.acked(Seq(1));
    let Bench { relay, acked, sink, .. } = bench;
    let End::Halted(error) = relay.await.unwrap() else {
        panic!("it halts")
    };
    assert!(error.to_string().contains("errors.invalid: halt"), "{error}");
    let Some(Position::Postgres(position)) = acked.borrow().clone() else {
        panic!("a position")
    };
    assert_eq!(position.partial.map(|partial| partial.change), Some(Lsn(2)));
    assert_eq!(sink.0.lock().unwrap().sent.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn skip_goes_on_and_counts() {
    let mut bench = start("invalid: skip", 0, Script::default());
    bench.give(batch(1..=5, Some(3))).await;
    assert_eq!(bench.sent(4).await, ["1", "2", "4", "5"]);
    (0..4).for_each(|seq| bench.acks.acked(Seq(seq)));
    assert_eq!(bench.acked_change().await, None);
    let totals = bench.status.snapshot().totals;
    assert_eq!((totals.received, totals.published, totals.skipped.total()), (5, 4, 1));
}

#[tokio::test(start_paused = true)]
async fn a_refused_batch_is_sent_singly_from_the_last_boundary_on() {
    let bench = start("", 0, Script::default());
    bench.give(batch(1..=4, None)).await;
    bench.sent(4).await;
    bench.acks.acked(Seq(0));
    // The others of the batch are told only that another one was refused.
    bench.acks.failed(Seq(1), refused(DeliveryErrorKind::Unavailable));
    bench.acks.failed(Seq(2), refused(DeliveryErrorKind::Record));
    bench.acks.failed(Seq(3), refused(DeliveryErrorKind::Unavailable));
    let End::SinkFailed { single, .. } = bench.relay.await.unwrap() else {
        panic!("the sink failed")
    };
    assert_eq!(single, 4);
    assert!(
        bench.acked.borrow().is_none(),
        "the batch's end is no place to go on from"
    );
}

#[tokio::test(start_paused = true)]
async fn what_was_refused_is_waited_for_when_the_sink_breaks_first() {
    let script = Script {
        not_ready: vec!["3".to_owned()],
        ready: [Err(SinkError::Kafka(KafkaSinkError::Fatal {
            reason: "fatal".to_owned(),
        }))]
        .into(),
        ..Script::default()
    };
    let bench = start("", 0, script);
    bench.give(batch(1..=3, None)).await;
    bench.sent(2).await;
    // The sink has told that it is broken; the report of why comes behind.
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    bench.acks.failed(Seq(0), refused(DeliveryErrorKind::Record));
    bench.acks.failed(Seq(1), refused(DeliveryErrorKind::Unavailable));
    let End::SinkFailed { single, .. } = bench.relay.await.unwrap() else {
        panic!("the sink failed")
    };
    assert_eq!(single, 2);
}

#[tokio::test(start_paused = true)]
async fn the_culprit_that_travels_alone_follows_the_policy() {
    let bench = start("rejected: skip", 3, Script::default());
    bench.give(batch(1..=3, None)).await;
    assert_eq!(bench.sent(1).await, ["1"]);
    bench.acks.acked(Seq(0));
    assert_eq!(bench.sent(2).await, ["1", "2"]);
    bench.acks.failed(Seq(1), refused(DeliveryErrorKind::Record));
    let Bench {
        relay,
        acked,
        status,
        sink,
        ..
    } = bench;
    let End::SinkFailed { single, .. } = relay.await.unwrap() else {
        panic!("the sink is spent")
    };
    assert_eq!(single, 1);
    assert_eq!(sink.0.lock().unwrap().sent.len(), 2, "nothing travelled beside it");
    let Some(Position::Postgres(position)) = acked.borrow().clone() else {
        panic!("a position")
    };
    assert_eq!(
        position.partial.map(|partial| partial.change),
        Some(Lsn(2)),
        "the next life goes on behind it"
    );
    assert_eq!(
        status.snapshot().totals.skipped,
        SkipCounts::from([(SkipReason::Rejected, 1)])
    );
}

#[tokio::test(start_paused = true)]
async fn the_culprit_that_travels_alone_halts_by_default() {
    let bench = start("", 1, Script::default());
    bench.give(batch(1..=1, None)).await;
    bench.sent(1).await;
    bench.acks.failed(Seq(0), refused(DeliveryErrorKind::Record));
    assert!(matches!(bench.relay.await.unwrap(), End::Halted(_)));
    assert!(bench.acked.borrow().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_record_that_the_sink_will_never_take_is_rejected_in_its_place() {
    let script = Script {
        not_ready: vec!["2".to_owned()],
        ready: [Err(SinkError::Delivery(refused(DeliveryErrorKind::Record)))].into(),
        ..Script::default()
    };
    let mut bench = start("rejected: skip", 0, script);
    bench.give(batch(1..=3, None)).await;
    assert_eq!(bench.sent(2).await, ["1", "3"]);
    bench.acks.acked(Seq(0));
    bench.acks.acked(Seq(1));
    assert_eq!(bench.acked_change().await, None);
}

#[tokio::test(start_paused = true)]
async fn a_stop_waits_for_what_is_in_flight_no_longer_than_the_drain_may_take() {
    let mut bench = start("", 0, Script::default());
    bench.give(batch(1..=2, None)).await;
    bench.sent(2).await;
    bench.acks.acked(Seq(0));
    bench.stop.cancel();
    bench.batches.take();
    assert!(matches!(bench.relay.await.unwrap(), End::Drained));
    assert!(bench.acked.borrow().is_none(), "one of the batch was not acked");
}
