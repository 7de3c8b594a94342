//! A sink that commits: when the relay commits, at which position, and what becomes of it.

use super::*;

fn committing() -> Script {
    Script {
        commits: true,
        ..Script::default()
    }
}

impl Bench {
    /// Waits for the commit of this number, from 0; gives its seq and the change that its position stands behind.
    async fn commit(&self, number: usize) -> (Seq, Option<u64>) {
        loop {
            let commit = self.sink.0.lock().unwrap().committing.get(number).cloned();
            if let Some((seq, position)) = commit {
                return (seq, change(&position));
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// The commit went through: everything up to its seq is durable, and more may be sent.
    fn committed(&self, first: u64, seq: Seq) {
        (first..=seq.0).for_each(|seq| self.acks.acked(Seq(seq)));
        self.acks.committed_through(seq);
        self.sink.0.lock().unwrap().ready.push_back(Ok(()));
    }

    fn commit_count(&self) -> usize {
        self.sink.0.lock().unwrap().committing.len()
    }
}

#[tokio::test(start_paused = true)]
async fn with_nothing_more_to_wait_for_the_commit_begins_at_once() {
    let mut bench = start("", 0, committing());
    let begun = Instant::now();
    bench.give(batch(1..=3, None)).await;
    assert_eq!(bench.commit(0).await, (Seq(3), None));
    assert!(begun.elapsed() < bench.interval, "it did not wait for the interval");
    assert!(
        bench.acked.borrow().is_none(),
        "nothing is acked before the commit is through"
    );
    bench.committed(0, Seq(3));
    assert_eq!(bench.acked_change().await, None);
    let totals = bench.status.snapshot().totals;
    assert_eq!((totals.received, totals.published, totals.in_flight()), (3, 3, 0));
}

/// Of a batch of which each event was committed then, in microseconds since 1970.
fn committed_at(commit_time_us: i64, mut batch: LogBatch) -> LogBatch {
    for event in &mut batch.events {
        event.commit_time_us = commit_time_us;
    }
    batch
}

#[tokio::test(start_paused = true)]
async fn old_events_that_come_in_a_row_are_committed_together_and_young_ones_at_once() {
    for (commit_time_us, last) in [(0, Seq(8)), (i64::MAX, Seq(3))] {
        let bench = start("", 0, committing());
        for numbers in [1..=3, 4..=6, 7..=8] {
            bench.give(committed_at(commit_time_us, batch(numbers, None))).await;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(bench.commit(0).await.0, last);
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_while_a_commit_is_under_way() {
    let bench = start("", 0, committing());
    bench.give(batch(1..=2, None)).await;
    bench.commit(0).await;
    bench.give(batch(3..=4, None)).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(bench.sent(2).await, ["1", "2"]);
    bench.committed(0, Seq(2));
    assert_eq!(bench.sent(4).await, ["1", "2", "3", "4"]);
    assert_eq!(bench.commit(1).await, (Seq(5), None));
}

#[tokio::test(start_paused = true)]
async fn what_is_acked_makes_room_for_more_of_its_transaction() {
    let bench = start("", 0, committing());
    let begun = Instant::now();
    bench.give(committed_at(i64::MAX, batch(1..=150, None))).await;
    assert_eq!(bench.sent(100).await.len(), 100, "so many may be in flight");
    (0..100).for_each(|seq| bench.acks.acked(Seq(seq)));
    assert_eq!(bench.sent(150).await.len(), 150);
    assert_eq!(bench.commit(0).await, (Seq(150), None));
    assert!(begun.elapsed() < bench.interval, "nothing but acks was waited for");
}

#[tokio::test(start_paused = true)]
async fn a_full_ledger_is_committed_inside_a_batch_at_the_last_event_that_was_sent() {
    // Without a commit there may be 250.
    let mut bench = start("", 0, committing());
    let begun = Instant::now();
    bench.give(committed_at(i64::MAX, batch(1..=300, None))).await;
    for count in [100, 200, 250] {
        assert_eq!(bench.sent(count).await.len(), count);
        (0..count).for_each(|seq| bench.acks.acked(Seq(seq as u64)));
    }
    assert_eq!(bench.commit(0).await, (Seq(250), Some(250)));
    assert!(begun.elapsed() < bench.interval, "it waited for the interval");
    bench.committed(250, Seq(250));
    assert_eq!(bench.acked_change().await, Some(250));
    assert_eq!(bench.commit(1).await, (Seq(301), None));
    bench.committed(251, Seq(301));
    assert_eq!(bench.acked_change().await, None);
    assert_eq!(bench.status.snapshot().totals.published, 300);
}

#[tokio::test(start_paused = true)]
async fn a_position_without_records_is_committed_no_more_than_once_a_second() {
    let bench = start("", 0, committing());
    let empty = || LogBatch {
        events: Vec::new(),
        ..batch(1..=1, None)
    };
    bench.give(empty()).await;
    let (seq, _) = bench.commit(0).await;
    bench.committed(0, seq);
    let first = Instant::now();
    for _ in 0..20 {
        bench.give(empty()).await;
    }
    let (seq, _) = bench.commit(1).await;
    assert!(first.elapsed() >= Duration::from_secs(1));
    bench.committed(1, seq);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(bench.commit_count(), 2, "there was nothing more to save");
}

#[tokio::test(start_paused = true)]
async fn what_was_taken_before_a_record_that_takes_long_is_committed_first() {
    let mut script = committing();
    script.commit_first.push("3".to_owned());
    let mut bench = start("", 0, script);
    bench.give(batch(1..=4, None)).await;
    assert_eq!(
        bench.commit(0).await,
        (Seq(2), Some(2)),
        "the position before that record"
    );
    assert_eq!(bench.sent(2).await, ["1", "2"]);
    bench.committed(0, Seq(2));
    assert_eq!(bench.acked_change().await, Some(2));
    assert_eq!(bench.commit(1).await, (Seq(5), None));
    assert_eq!(bench.sent(4).await, ["1", "2", "3", "4"]);
}

#[tokio::test(start_paused = true)]
async fn a_record_that_takes_long_waits_for_the_batches_before_it_to_be_committed() {
    let mut script = committing();
    script.commit_first.push("2".to_owned());
    let bench = start("", 0, script);
    // Two at once: with nothing more to come the first would be committed anyway.
    tokio::join!(bench.give(batch(1..=1, None)), bench.give(batch(2..=2, None)));
    assert_eq!(bench.commit(0).await, (Seq(1), None), "the first batch's end");
    bench.committed(0, Seq(1));
    assert_eq!(bench.sent(2).await, ["1", "2"]);
}

#[tokio::test(start_paused = true)]
async fn one_that_is_shut_out_ends_the_life_as_that_whatever_is_in_flight() {
    let fenced = || KafkaSinkError::Fenced {
        transactional_id: "t".to_owned(),
        reason: "newer".to_owned(),
    };
    // By the commit, and by a record's own report, which can be the first to tell.
    let mut script = committing();
    script.ready.push_back(Err(fenced().into()));
    let bench = start("", 0, script);
    bench.give(batch(1..=2, None)).await;
    let Ended { end, unsettled, .. } = bench.relay.await.unwrap();
    let End::SinkFailed(error) = end else {
        panic!("the sink failed")
    };
    assert!(error.is_fenced() && unsettled.is_some(), "{error}");

    let bench = start("", 0, committing());
    bench.give(batch(1..=2, None)).await;
    bench.commit(0).await;
    bench.acks.failed(Seq(0), refused(DeliveryErrorKind::Fenced));
    bench.acks.failed(Seq(1), refused(DeliveryErrorKind::Unavailable));
    let End::SinkFailed(error) = bench.relay.await.unwrap().end else {
        panic!("the sink failed")
    };
    assert!(error.is_fenced() && error.can_heal(), "{error}");
}

#[tokio::test(start_paused = true)]
async fn each_event_is_a_transaction_while_the_culprit_is_searched() {
    let bench = start("", 2, committing());
    bench.give(batch(1..=3, None)).await;
    assert_eq!(bench.commit(0).await, (Seq(1), Some(1)));
    assert_eq!(bench.sent(1).await, ["1"]);
    bench.committed(0, Seq(1));
    assert_eq!(bench.commit(1).await, (Seq(3), Some(2)));
    bench
        .acks
        .failed(Seq(2), refused(DeliveryErrorKind::Record(RecordFault::Refused)));
    let End::Halted(halt) = bench.relay.await.unwrap().end else {
        panic!("the policy is halt")
    };
    assert!(halt.to_string().contains("errors.rejected: halt"), "{halt}");
}

#[tokio::test(start_paused = true)]
async fn each_group_is_a_transaction_while_the_culprit_is_searched_among_many() {
    let bench = start("", 81, committing());
    bench.give(batch(1..=90, None)).await;
    assert_eq!(bench.commit(0).await, (Seq(9), Some(9)));
    bench.committed(0, Seq(9));
    assert_eq!(bench.commit(1).await, (Seq(19), Some(18)));
}

#[tokio::test(start_paused = true)]
async fn what_is_searched_begins_at_the_last_commit_also_beside_other_sinks() {
    let pipeline = pipeline("");
    let status = PipelineStatus::new(&pipeline);
    let bench = start_with(&pipeline, &Journal::default(), status, among(81), committing(), false);
    bench.give(batch(1..=90, None)).await;
    bench.commit(0).await;
    bench.committed(0, Seq(9));
    bench.commit(1).await;
    for seq in 10..19 {
        let fault = DeliveryErrorKind::Record(RecordFault::Refused);
        bench.acks.failed(Seq(seq), refused(fault));
    }
    bench.acks.failed(Seq(19), refused(DeliveryErrorKind::Unavailable));
    assert_eq!(
        left_of(bench.relay).await.single,
        10,
        "the second group, and the position that goes with it"
    );
}

#[tokio::test(start_paused = true)]
async fn a_commit_that_failed_tells_the_next_life_what_it_would_have_settled() {
    let mut script = committing();
    script.ready.push_back(Err(SinkError::Kafka(KafkaSinkError::Fatal {
        reason: "unknown".to_owned(),
    })));
    let bench = start("invalid: skip", 0, script);
    bench.give(batch(1..=3, Some(2))).await;
    let Ended { end, unsettled, .. } = bench.relay.await.unwrap();
    assert!(matches!(end, End::SinkFailed(_)), "{end:?}");
    let unsettled = unsettled.expect("a commit was under way");
    assert_eq!(change(&unsettled.position), None);
    assert_eq!(unsettled.settled.published, 2);
    assert_eq!(unsettled.settled.skipped, SkipCounts::from([(SkipReason::Invalid, 1)]));
    assert_eq!(bench.status.snapshot().totals.published, 0);
}

#[tokio::test(start_paused = true)]
async fn a_stop_commits_what_was_taken() {
    let mut bench = start("", 0, committing());
    bench.give(batch(1..=2, None)).await;
    let (seq, _) = bench.commit(0).await;
    bench.give(batch(3..=4, None)).await;
    bench.stop.cancel();
    bench.batches.take();
    bench.committed(0, seq);
    let (seq, change) = bench.commit(1).await;
    assert_eq!(change, None);
    bench.committed(3, seq);
    assert!(matches!(bench.relay.await.unwrap().end, End::Drained));
    assert_eq!(bench.status.snapshot().totals.published, 4);
}

#[tokio::test(start_paused = true)]
async fn a_halt_commits_the_place_before_the_culprit() {
    let bench = start("", 0, committing());
    bench.give(batch(1..=5, Some(3))).await;
    assert_eq!(bench.commit(0).await, (Seq(2), Some(2)));
    bench.committed(0, Seq(2));
    assert!(matches!(bench.relay.await.unwrap().end, End::Halted(_)));
    assert_eq!(bench.sink.0.lock().unwrap().sent.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_pause_commits_what_was_taken_at_once_and_nothing_after_it() {
    let mut bench = start("", 0, committing());
    // More than may be in flight, so that the pause comes inside the batch.
    bench.give(batch(1..=150, None)).await;
    bench.sent(100).await;
    let begun = Instant::now();
    bench.status.pause(true);
    assert_eq!(bench.commit(0).await, (Seq(100), Some(100)));
    assert!(begun.elapsed() < bench.interval, "it did not wait for the interval");
    bench.committed(0, Seq(100));
    assert_eq!(bench.acked_change().await, Some(100));
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!((bench.sent(0).await.len(), bench.commit_count()), (100, 1));
    bench.status.pause(false);
    assert_eq!(bench.sent(150).await.last().map(String::as_str), Some("150"));
    let (seq, change) = bench.commit(1).await;
    assert_eq!((seq, change), (Seq(151), None));
}
