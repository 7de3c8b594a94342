//! The relay against a sink whose every answer the test gives.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Mutex;

use bytes::Bytes;
use tokio::task::JoinHandle;

mod audit;
mod search;
mod transactions;

use super::in_flight::{Acks, Limits, Seq};
use super::*;
use crate::audit::Journal;
use crate::config::{self, DeadLetter, DeadLetterPlace, ErrorPolicy, OversizedDeadLetter, Pipeline};
use crate::event::{Change, LogMessage, Selection};
use crate::position::{EventPosition, History, Lsn, Partial, PostgresEventPosition, PostgresPosition};
use crate::record::Record;
use crate::sink::{KafkaSinkError, RecordFault, SendError};
use crate::skip::SkipReason;

/// What the sink took, and what it will say when it is asked whether it is ready.
#[derive(Debug, Default)]
struct Script {
    sent: Vec<(Seq, String)>,
    /// How many were sent when the sink was told to hurry.
    hurried: Vec<usize>,
    /// Records that are given back first.
    not_ready: Vec<String>,
    /// Records that are given back until what was taken before is committed.
    commit_first: Vec<String>,
    /// Records that are given back for good.
    rejected: Vec<(String, RecordFault)>,
    commits: bool,
    committing: Vec<(Seq, Position)>,
    ready: VecDeque<Result<(), SinkError>>,
}

#[derive(Debug, Clone, Default)]
struct ScriptedSink(Arc<Mutex<Script>>);

impl Sink for ScriptedSink {
    fn commits_within(&self) -> Option<Duration> {
        self.0.lock().unwrap().commits.then_some(Duration::from_secs(30))
    }

    fn commit(&mut self, seq: Seq, position: &Position) {
        self.0.lock().unwrap().committing.push((seq, position.clone()));
    }

    fn send(&mut self, seq: Seq, record: Record) -> Result<(), SendError> {
        let mut script = self.0.lock().unwrap();
        let key = label(&record);
        let fault = script.rejected.iter().find(|(rejected, _)| *rejected == key);
        if let Some((_, fault)) = fault {
            return Err(SendError::Rejected(
                Box::new(record),
                refused(DeliveryErrorKind::Record(*fault)),
            ));
        }
        if let Some(index) = script.not_ready.iter().position(|waiting| *waiting == key) {
            script.not_ready.remove(index);
            return Err(SendError::NotReady(Box::new(record)));
        }
        if let Some(index) = script.commit_first.iter().position(|waiting| *waiting == key) {
            script.commit_first.remove(index);
            return Err(SendError::CommitFirst(Box::new(record)));
        }
        script.sent.push((seq, key));
        Ok(())
    }

    fn hurry(&mut self) {
        let mut script = self.0.lock().unwrap();
        let sent = script.sent.len();
        script.hurried.push(sent);
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

/// The event's number as its key has it; of a dead letter or a stub with that word before it.
fn label(record: &Record) -> String {
    let number = std::str::from_utf8(record.key.as_ref().unwrap()).unwrap();
    let is_stub = record.headers.iter().any(|header| &*header.name == "tailpost-dlq-stub");
    match &*record.topic {
        "dead" if is_stub => format!("stub {number}"),
        "dead" => format!("letter {number}"),
        _ => number.to_owned(),
    }
}

struct Bench {
    sink: ScriptedSink,
    acks: Acks,
    batches: Option<mpsc::Sender<LogBatch>>,
    acked: watch::Receiver<Option<Position>>,
    stop: CancellationToken,
    status: Arc<PipelineStatus>,
    interval: Duration,
    relay: JoinHandle<Ended>,
}

fn pipeline(errors: &str) -> Pipeline {
    pipeline_with(errors, "")
}

/// `more`: keys of its `spec`, each behind a comma.
fn pipeline_with(errors: &str, more: &str) -> Pipeline {
    let text = format!(
        "{{apiVersion: tailpost/v1, kind: Pipeline, metadata: {{name: p}}, spec: {{\
         source: {{type: postgres, config: {{id: s, dsn: 'postgres://u@h/d', slot: s, publication: p, outbox: {{prefixes: [o]}}}}}}, \
         processors: [{{type: outbox, default_topic: t, raw_payload: true}}], \
         sinks: [{{type: kafka, config: {{id: k, brokers: 'h:1'}}}}], \
         errors: {{{errors}}}, delivery: {{drain_timeout: 5s}}{more}}}}}"
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
    start_behind(errors, among(single), script)
}

/// A life that follows one which left this.
fn start_behind(errors: &str, left: Left, script: Script) -> Bench {
    start_pipeline(&pipeline(errors), left, script)
}

/// An event that was refused of this when it travelled alone.
fn culprit(number: u64, fault: RecordFault) -> Culprit {
    Culprit {
        at: event(number, true).position,
        refusals: vec![Refusal {
            error: refused(DeliveryErrorKind::Record(fault)),
            attempts: 2,
        }],
    }
}

/// One of the next events is refused.
fn among(single: u64) -> Left {
    Left {
        single,
        ..Left::default()
    }
}

/// With dead letters.
fn start_parking(errors: ErrorPolicies, oversized: OversizedDeadLetter, left: Left, script: Script) -> Bench {
    start_pipeline(&parking(errors, oversized), left, script)
}

fn parking(errors: ErrorPolicies, oversized: OversizedDeadLetter) -> Pipeline {
    let dead_letter = DeadLetter {
        place: DeadLetterPlace::Topic("dead".to_owned()),
        oversized,
        notify: None,
    };
    Pipeline {
        errors,
        dead_letter: Some(dead_letter),
        ..pipeline("")
    }
}

fn start_pipeline(pipeline: &Pipeline, left: Left, script: Script) -> Bench {
    let status = PipelineStatus::new(pipeline);
    start_with(pipeline, &Journal::default(), status, left, script, true)
}

fn start_with(
    pipeline: &Pipeline,
    journal: &Journal,
    status: Arc<PipelineStatus>,
    left: Left,
    script: Script,
    leads: bool,
) -> Bench {
    let ledger = Ledger::new(Limits {
        events: 100,
        bytes: u64::MAX,
        uncommitted: script.commits.then_some(250),
    });
    let acks = ledger.acks();
    let sink = ScriptedSink(Arc::new(Mutex::new(script)));
    let relay = Relay::new(RelayParts {
        chain: Chain::new(pipeline),
        dead_letters: DeadLetters::new(pipeline),
        sink: sink.clone(),
        ledger,
        policies: pipeline.errors,
        delivery: pipeline.delivery,
        status: Arc::clone(&status),
        port: journal.port(pipeline.sink.id(), acks.clone()),
        left,
        counted: 0,
        overtakable: false,
        leads,
    });
    let (sender, receiver) = mpsc::channel(4);
    let (acked_sender, acked) = watch::channel(None);
    let stop = CancellationToken::new();
    let relay = tokio::spawn(relay.run(receiver, acked_sender, stop.clone(), CancellationToken::new()));
    Bench {
        sink,
        acks,
        batches: Some(sender),
        acked,
        stop,
        status,
        interval: pipeline.delivery.transaction_interval,
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
        more_follows: false,
    }
}

/// What a relay leaves whose sink failed.
async fn left_of(relay: JoinHandle<Ended>) -> Left {
    let Ended { end, left, .. } = relay.await.unwrap();
    assert!(matches!(end, End::SinkFailed(_)), "{end:?}");
    left
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
        change(&self.acked.borrow().clone().expect("a position"))
    }
}

/// The change that a position stands behind; None: at the transaction's end.
fn change(position: &Position) -> Option<u64> {
    let Position::Postgres(position) = position else {
        panic!("{position} is of another database")
    };
    position.partial.map(|partial| partial.change.0)
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
    assert!(matches!(bench.relay.await.unwrap().end, End::Drained));
    let totals = bench.status.snapshot().totals;
    assert_eq!((totals.received, totals.published, totals.in_flight()), (3, 3, 0));
}

/// Whether the sink was told to hurry with so many sent, after whatever the relay does by itself.
async fn hurried_with(bench: &Bench, sent: usize) -> bool {
    bench.sent(sent).await;
    // The relay waits by then: a paused clock moves on only when nothing else can.
    tokio::time::sleep(Duration::from_millis(1)).await;
    bench.sink.0.lock().unwrap().hurried.contains(&sent)
}

#[tokio::test(start_paused = true)]
async fn what_was_sent_may_wait_only_for_what_follows_at_once() {
    let follows = |numbers| LogBatch {
        more_follows: true,
        ..batch(numbers, None)
    };
    let bench = start("", 0, Script::default());
    bench.give(follows(1..=3)).await;
    assert!(!hurried_with(&bench, 3).await);
    bench.give(batch(4..=4, None)).await;
    assert!(hurried_with(&bench, 4).await, "the last one");
    // What follows comes after acks only.
    bench.give(follows(5..=105)).await;
    assert!(hurried_with(&bench, 100).await, "100 may be in flight");
    // One by one, each is waited for.
    let bench = start("", 2, Script::default());
    bench.give(follows(1..=3)).await;
    assert!(hurried_with(&bench, 1).await);
}

#[tokio::test(start_paused = true)]
async fn halt_publishes_what_comes_before_and_saves_the_place_behind_it() {
    let bench = start("", 0, Script::default());
    bench.give(batch(1..=5, Some(3))).await;
    assert_eq!(bench.sent(2).await, ["1", "2"]);
    bench.acks.acked(Seq(0));
    bench.acks.acked(Seq(1));
    let Bench { relay, acked, sink, .. } = bench;
    let End::Halted(error) = relay.await.unwrap().end else {
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
    bench
        .acks
        .failed(Seq(2), refused(DeliveryErrorKind::Record(RecordFault::Refused)));
    bench.acks.failed(Seq(3), refused(DeliveryErrorKind::Unavailable));
    assert_eq!(left_of(bench.relay).await, among(4));
    assert!(
        bench.acked.borrow().is_none(),
        "the batch's end is no place to go on from"
    );
}

#[tokio::test(start_paused = true)]
async fn among_many_events_the_culprit_is_searched_in_groups() {
    // The root of 81 at once.
    let bench = start("", 81, Script::default());
    bench.give(batch(1..=90, None)).await;
    assert_eq!(bench.sent(9).await.len(), 9);
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(bench.sent(9).await.len(), 9, "no more than a group is in flight");
    (0..5).for_each(|seq| bench.acks.acked(Seq(seq)));
    assert_eq!(bench.sent(14).await.len(), 14);
    for seq in 5..14 {
        let fault = DeliveryErrorKind::Record(RecordFault::Refused);
        bench.acks.failed(Seq(seq), refused(fault));
    }
    let Bench { relay, acked, .. } = bench;
    assert_eq!(left_of(relay).await, among(9), "one of a group, and nobody knows which");
    let acked = acked.borrow().clone();
    assert_eq!(
        acked.as_ref().and_then(change),
        Some(5),
        "what came before is not sent again"
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
    bench
        .acks
        .failed(Seq(0), refused(DeliveryErrorKind::Record(RecordFault::Refused)));
    bench.acks.failed(Seq(1), refused(DeliveryErrorKind::Unavailable));
    assert_eq!(left_of(bench.relay).await, among(2));
}

#[tokio::test(start_paused = true)]
async fn the_culprit_that_travels_alone_is_left_to_the_next_life() {
    let bench = start("rejected: skip", 3, Script::default());
    bench.give(batch(1..=3, None)).await;
    assert_eq!(bench.sent(1).await, ["1"]);
    bench.acks.acked(Seq(0));
    assert_eq!(bench.sent(2).await, ["1", "2"]);
    bench
        .acks
        .failed(Seq(1), refused(DeliveryErrorKind::Record(RecordFault::Refused)));
    let Bench { relay, acked, sink, .. } = bench;
    let Left { single, culprits, .. } = left_of(relay).await;
    assert_eq!(single, 2, "it and what follows it");
    assert_eq!(sink.0.lock().unwrap().sent.len(), 2, "nothing travelled beside it");
    let culprits: Vec<_> = culprits.into_iter().map(|culprit| culprit.at).collect();
    assert_eq!(culprits, [event(2, true).position]);
    let Some(Position::Postgres(position)) = acked.borrow().clone() else {
        panic!("a position")
    };
    assert_eq!(
        position.partial.map(|partial| partial.change),
        Some(Lsn(1)),
        "the next life begins with it"
    );
}

#[tokio::test(start_paused = true)]
async fn what_a_former_life_found_to_be_the_culprit_follows_the_policy_in_its_place() {
    let culprit = culprit(2, RecordFault::Refused);
    let left = Left {
        culprits: vec![culprit],
        ..Left::default()
    };
    let mut bench = start_behind("rejected: skip", left, Script::default());
    bench.give(batch(1..=3, None)).await;
    assert_eq!(bench.sent(2).await, ["1", "3"]);
    bench.acks.acked(Seq(0));
    bench.acks.acked(Seq(1));
    assert_eq!(bench.acked_change().await, None);
    assert_eq!(
        bench.status.snapshot().totals.skipped,
        SkipCounts::from([(SkipReason::Rejected, 1)])
    );
}

#[tokio::test(start_paused = true)]
async fn the_culprit_that_travels_alone_halts_by_default() {
    let bench = start("", 1, Script::default());
    bench.give(batch(1..=1, None)).await;
    bench.sent(1).await;
    bench
        .acks
        .failed(Seq(0), refused(DeliveryErrorKind::Record(RecordFault::Refused)));
    assert!(matches!(bench.relay.await.unwrap().end, End::Halted(_)));
    assert!(bench.acked.borrow().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_record_that_the_sink_will_never_take_is_rejected_in_its_place() {
    let script = Script {
        not_ready: vec!["2".to_owned()],
        ready: [Err(SinkError::Delivery(refused(DeliveryErrorKind::Record(
            RecordFault::Refused,
        ))))]
        .into(),
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
    assert!(matches!(bench.relay.await.unwrap().end, End::Drained));
    assert!(bench.acked.borrow().is_none(), "one of the batch was not acked");
}

const PARK: ErrorPolicies = ErrorPolicies {
    invalid: ErrorPolicy::DeadLetter,
    unroutable: ErrorPolicy::DeadLetter,
    rejected: ErrorPolicy::DeadLetter,
};

#[tokio::test(start_paused = true)]
async fn a_dead_letter_takes_the_place_of_its_event_and_is_waited_for() {
    let script = Script {
        rejected: vec![("4".to_owned(), RecordFault::TooLarge)],
        ..Script::default()
    };
    let mut bench = start_parking(PARK, OversizedDeadLetter::Halt, Left::default(), script);
    bench.give(batch(1..=5, Some(2))).await;
    assert_eq!(bench.sent(5).await, ["1", "letter 2", "3", "letter 4", "5"]);
    for seq in [0, 2, 3, 4] {
        bench.acks.acked(Seq(seq));
    }
    bench.batches.take();
    tokio::task::yield_now().await;
    assert!(
        bench.acked.borrow().is_none(),
        "the dead letter of the second is not acked"
    );
    bench.acks.acked(Seq(1));
    assert_eq!(bench.acked_change().await, None);
    let totals = bench.status.snapshot().totals;
    assert_eq!((totals.received, totals.published, totals.in_flight()), (5, 3, 0));
    let parked = [("permanent_failure", 1), ("poison_message", 1)];
    assert_eq!(totals.dead_lettered, parked.into());
}

/// One life after another until one ends otherwise than by its sink: the labels of what each sent, and that end. Three
/// events, the second of them invalid if that is said; what has one of the labels in `refuses` is too large, by the
/// report of a delivery, and what is in flight with it fails too.
async fn lives(
    errors: ErrorPolicies,
    oversized: OversizedDeadLetter,
    invalid: bool,
    refuses: &[&str],
) -> (Vec<Vec<String>>, End) {
    let (mut lives, mut life, mut first) = (Vec::new(), Left::default(), 1);
    loop {
        assert!(lives.len() < 10, "it comes to no end: {lives:?}");
        let mut bench = start_parking(errors, oversized, life, Script::default());
        bench.give(batch(first..=3, invalid.then_some(2))).await;
        bench.batches.take();
        let mut answered = 0;
        while !bench.relay.is_finished() {
            let sent = bench.sink.0.lock().unwrap().sent.clone();
            let refused_here = |label: &String| refuses.contains(&label.as_str());
            let fails = sent[answered..].iter().any(|(_, label)| refused_here(label));
            for (seq, label) in &sent[answered..] {
                let kind = match refused_here(label) {
                    true => DeliveryErrorKind::Record(RecordFault::TooLarge),
                    false => DeliveryErrorKind::Unavailable,
                };
                match fails {
                    true => bench.acks.failed(*seq, refused(kind)),
                    false => bench.acks.acked(*seq),
                }
            }
            answered = sent.len();
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let sent = bench.sink.0.lock().unwrap().sent.clone();
        lives.push(sent.into_iter().map(|(_, label)| label).collect());
        if let Some(Position::Postgres(position)) = bench.acked.borrow().as_ref() {
            first = position.partial.map_or(4, |partial| partial.change.0 + 1);
        }
        let Ended { end, left, .. } = bench.relay.await.unwrap();
        match end {
            End::SinkFailed(_) => life = left.from(bench.acked.borrow().as_ref()),
            end => return (lives, end),
        }
    }
}

fn halted(end: End) -> String {
    match end {
        End::Halted(error) => error.to_string(),
        end => panic!("it does not halt: {end:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_record_that_was_refused_in_its_batch_is_parked_and_the_others_go_on() {
    let (lives, end) = lives(PARK, OversizedDeadLetter::Halt, false, &["2"]).await;
    assert!(matches!(end, End::Drained), "{end:?}");
    assert_eq!(lives, [vec!["1", "2", "3"], vec!["1", "2"], vec!["letter 2", "3"]]);
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_that_was_refused_halts_and_is_not_sent_for_ever() {
    let (lives, end) = lives(PARK, OversizedDeadLetter::Halt, false, &["2", "letter 2"]).await;
    let error = halted(end);
    assert!(error.contains("too large for topic `dead` too"), "{error}");
    assert_eq!(lives, [vec!["1", "2", "3"], vec!["1", "2"], vec!["letter 2"], vec![]]);
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_that_was_refused_is_parked_as_a_stub_where_that_is_wanted() {
    let (lives, end) = lives(PARK, OversizedDeadLetter::Stub, false, &["2", "letter 2"]).await;
    assert!(matches!(end, End::Drained), "{end:?}");
    assert_eq!(
        lives,
        [
            vec!["1", "2", "3"],
            vec!["1", "2"],
            vec!["letter 2"],
            vec!["stub 2", "3"]
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_stub_that_was_refused_halts() {
    let refuses = ["2", "letter 2", "stub 2"];
    let (lives, end) = lives(PARK, OversizedDeadLetter::Stub, false, &refuses).await;
    let error = halted(end);
    assert!(error.contains("does not even take a stub"), "{error}");
    assert_eq!(lives.len(), 5, "{lives:?}");
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_of_an_invalid_event_that_was_refused_follows_no_policy_of_records() {
    for rejected in [ErrorPolicy::Skip, ErrorPolicy::Halt, ErrorPolicy::DeadLetter] {
        let errors = ErrorPolicies { rejected, ..PARK };
        let (lives, end) = lives(errors, OversizedDeadLetter::Halt, true, &["letter 2"]).await;
        let error = halted(end);
        assert!(error.contains("too large for topic `dead` too"), "{error}");
        assert_eq!(lives, [vec!["1", "letter 2", "3"], vec!["1", "letter 2"], vec![]]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_that_its_topic_never_takes_halts_in_its_place() {
    for (fault, text) in [
        (RecordFault::Refused, "the event would be lost"),
        (RecordFault::UnknownTopic, "the event would be lost"),
        (RecordFault::TooLarge, "does not even take a stub"),
    ] {
        let script = Script {
            rejected: vec![("letter 2".to_owned(), fault), ("stub 2".to_owned(), fault)],
            ..Script::default()
        };
        let bench = start_parking(PARK, OversizedDeadLetter::Stub, Left::default(), script);
        bench.give(batch(1..=3, Some(2))).await;
        bench.sent(1).await;
        bench.acks.acked(Seq(0));
        let Bench { relay, acked, sink, .. } = bench;
        let error = halted(relay.await.unwrap().end);
        assert!(error.contains(text), "{error}");
        assert_eq!(sink.0.lock().unwrap().sent.len(), 1);
        let Some(Position::Postgres(position)) = acked.borrow().clone() else {
            panic!("a position")
        };
        assert_eq!(position.partial.map(|partial| partial.change), Some(Lsn(1)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_culprit_that_was_not_come_to_is_left_to_the_next_life_again() {
    let known = culprit(3, RecordFault::TooLarge);
    let bench = start_parking(
        PARK,
        OversizedDeadLetter::Halt,
        Left {
            culprits: vec![known.clone()],
            ..among(1)
        },
        Script::default(),
    );
    bench.give(batch(1..=3, None)).await;
    bench.sent(1).await;
    bench.acks.failed(Seq(0), refused(DeliveryErrorKind::Unavailable));
    assert_eq!(left_of(bench.relay).await.culprits, [known]);
}

#[tokio::test(start_paused = true)]
async fn a_culprit_of_another_history_of_the_log_is_none() {
    let culprit = culprit(2, RecordFault::Refused);
    let left = Left {
        culprits: vec![culprit],
        history: Some(History::Postgres {
            system_identifier: 7,
            timeline: 2,
        }),
        ..Left::default()
    };
    let bench = start_behind("rejected: skip", left, Script::default());
    bench.give(batch(1..=3, None)).await;
    assert_eq!(bench.sent(3).await, ["1", "2", "3"], "another event stands there");
}

#[tokio::test(start_paused = true)]
async fn a_pause_settles_what_was_sent_of_a_batch_and_takes_nothing_more() {
    let mut bench = start(
        "",
        0,
        Script {
            not_ready: vec!["3".to_owned()],
            ..Script::default()
        },
    );
    bench.give(batch(1..=4, None)).await;
    assert_eq!(bench.sent(2).await, ["1", "2"]);
    assert!(bench.status.pause(true));
    bench.give(batch(5..=6, None)).await;
    for seq in [0, 1] {
        bench.acks.acked(Seq(seq));
    }
    assert_eq!(
        bench.acked_change().await,
        Some(2),
        "the place behind what was sent is saved"
    );
    // Whatever the relay does by itself.
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(bench.sent(2).await, ["1", "2"]);
    bench.sink.0.lock().unwrap().ready.push_back(Ok(()));
    assert!(bench.status.pause(false));
    assert_eq!(
        bench.sent(6).await,
        ["1", "2", "3", "4", "5", "6"],
        "nothing is lost or doubled"
    );
    for seq in 2..6 {
        bench.acks.acked(Seq(seq));
    }
    bench.batches.take();
    assert!(matches!(bench.relay.await.unwrap().end, End::Drained));
    let totals = bench.status.snapshot().totals;
    assert_eq!((totals.received, totals.published, totals.in_flight()), (6, 6, 0));
}

#[tokio::test(start_paused = true)]
async fn a_stop_in_a_pause_ends_at_once_when_what_was_sent_is_settled() {
    let mut bench = start("", 0, Script::default());
    bench.status.pause(true);
    bench.give(batch(1..=3, None)).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(bench.sent(0).await, [""; 0]);
    bench.status.pause(false);
    bench.sent(3).await;
    bench.status.pause(true);
    bench.give(batch(4..=5, None)).await;
    bench.stop.cancel();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!bench.relay.is_finished(), "what was sent is waited for");
    for seq in 0..3 {
        bench.acks.acked(Seq(seq));
    }
    bench.acked.changed().await.unwrap();
    assert!(matches!(bench.relay.await.unwrap().end, End::Drained));
    assert_eq!(
        bench.sink.0.lock().unwrap().sent.len(),
        3,
        "the rest is read again at the next start"
    );
}

#[tokio::test(start_paused = true)]
async fn log_without_events_is_passed_in_a_pause() {
    let mut bench = start("", 0, Script::default());
    bench.status.pause(true);
    let nothing = LogBatch {
        events: Vec::new(),
        ..batch(1..=1, None)
    };
    bench.give(nothing).await;
    assert_eq!(bench.acked_change().await, None);
    bench.give(batch(2..=3, None)).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let totals = bench.status.snapshot().totals;
    assert_eq!((totals.received, totals.in_flight()), (2, 2), "they wait");
    assert_eq!(bench.sent(0).await, [""; 0]);
}
