//! What is written down of events, and what waits for it.

use std::fs;
use std::path::PathBuf;

use super::*;
use crate::audit::{Journal, Verifier};

/// A relay whose events have lines in a ledger.
struct Audited {
    bench: Bench,
    folder: tempfile::TempDir,
    pipeline: Pipeline,
    journal: Journal,
}

impl Audited {
    fn start(script: Script, prepare: impl FnOnce(&Path)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        prepare(folder.path());
        let pipeline = pipeline_with("invalid: skip", ", audit: {path: l.jsonl}");
        let status = PipelineStatus::new(&pipeline);
        let journal = Journal::start(&pipeline, folder.path(), &status);
        let bench = start_with(&pipeline, &journal, status, Left::default(), script, true);
        Self {
            bench,
            folder,
            pipeline,
            journal,
        }
    }

    fn path(&self, suffix: &str) -> PathBuf {
        self.folder.path().join(format!("l.jsonl{suffix}"))
    }

    /// One whose commit of two events is under way.
    async fn committing(prepare: impl FnOnce(&Path)) -> Self {
        let committing = Script {
            commits: true,
            ..Script::default()
        };
        let audited = Self::start(committing, prepare);
        audited.bench.give(batch(1..=2, None)).await;
        let script = Arc::clone(&audited.bench.sink.0);
        until(|| !script.lock().unwrap().committing.is_empty()).await;
        audited
    }

    /// Each line's id and status.
    fn lines(&self) -> Vec<(String, String)> {
        let text = fs::read_to_string(self.path("")).unwrap_or_default();
        let mut verifier = Verifier::default();
        let lines = text.split_inclusive('\n').map(|line| {
            verifier.line((), line.as_bytes());
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            let member = |name: &str| line[name].as_str().unwrap().to_owned();
            let change = member("position")
                .split('-')
                .nth(1)
                .unwrap()
                .trim_start_matches('0')
                .to_owned();
            (change, member("status"))
        });
        let lines = lines.collect();
        assert_eq!(verifier.fault(), None);
        lines
    }
}

fn published<const N: usize>(numbers: [u64; N]) -> Vec<(String, String)> {
    numbers
        .map(|number| (number.to_string(), "published".to_owned()))
        .to_vec()
}

/// The writer is a thread, so that time is real here.
async fn until(what: impl Fn() -> bool) {
    let waited = async {
        while !what() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), waited).await.unwrap();
}

/// What is kept of an event beside its record.
fn about(pipeline: &Pipeline) -> Option<Box<crate::record::About>> {
    match Chain::new(pipeline).process(event(1, true)) {
        Ok(Outcome::Publish(record)) => record.about,
        other => panic!("{other:?}"),
    }
}

#[test]
fn where_nothing_is_written_down_nothing_is_kept_of_an_event() {
    assert_eq!(about(&pipeline("")), None);
    let kept = about(&pipeline_with("", ", dispatches: {type: stdout}")).unwrap();
    assert_eq!((kept.event_type, kept.audited), (None, Vec::new()));
    let fields = ", audit: {path: l, fields: {id: '${aggregate_id}', absent: '${absent}'}}";
    let kept = about(&pipeline_with("", fields)).unwrap();
    assert_eq!(kept.audited, [Some("1".to_owned()), None]);
}

#[tokio::test]
async fn each_event_has_its_line_in_its_order_when_it_counts() {
    let mut audited = Audited::start(Script::default(), |_| {});
    audited.bench.give(batch(1..=4, Some(3))).await;
    audited.bench.sent(3).await;
    (0..3).rev().for_each(|seq| audited.bench.acks.acked(Seq(seq)));
    assert_eq!(audited.bench.acked_change().await, None);
    let mut expected = published([1, 2, 3, 4]);
    expected[2].1 = "skipped".to_owned();
    assert_eq!(audited.lines(), expected);
    let totals = audited.bench.status.snapshot().totals;
    assert_eq!((totals.published, totals.skipped.total()), (3, 1));
}

#[tokio::test]
async fn nothing_counts_while_the_ledger_cannot_be_written() {
    let full = |folder: &Path| std::os::unix::fs::symlink("/dev/full", folder.join("l.jsonl")).unwrap();
    let mut audited = Audited::start(Script::default(), full);
    audited.bench.give(batch(1..=2, None)).await;
    audited.bench.sent(2).await;
    (0..2).for_each(|seq| audited.bench.acks.acked(Seq(seq)));
    let status = Arc::clone(&audited.bench.status);
    status.enter(State::Streaming);
    until(|| {
        status
            .snapshot()
            .ready
            .is_err_and(|why| why.contains("audit ledger not writable: write"))
    })
    .await;
    let snapshot = status.snapshot();
    assert_eq!((snapshot.totals.published, snapshot.totals.in_flight()), (0, 2));
    assert_eq!(snapshot.in_flight_records, 2);
    assert!(audited.bench.acked.borrow().is_none());
    fs::remove_file(audited.path("")).unwrap();
    assert_eq!(audited.bench.acked_change().await, None);
    assert_eq!(audited.lines(), published([1, 2]));
    assert_eq!(status.snapshot().ready, Ok(()));
}

#[tokio::test]
async fn what_was_settled_before_is_told() {
    let mut audited = Audited::start(Script::default(), |_| {});
    audited.bench.give(batch(1..=2, None)).await;
    audited.bench.sent(2).await;
    audited.bench.acks.acked(Seq(0));
    audited.bench.acks.acked(Seq(1));
    audited.bench.acked_change().await;
    let status = PipelineStatus::new(&audited.pipeline);
    // Another process, which begins before its end.
    let Audited {
        bench,
        folder,
        pipeline,
        journal,
    } = audited;
    drop((bench.batches, journal));
    bench.relay.await.unwrap();
    let journal = Journal::start(&pipeline, folder.path(), &status);
    let mut bench = start_with(&pipeline, &journal, status, Left::default(), Script::default(), true);
    bench.give(batch(2..=3, None)).await;
    bench.sent(2).await;
    bench.acks.acked(Seq(0));
    bench.acks.acked(Seq(1));
    bench.acked_change().await;
    let text = fs::read_to_string(folder.path().join("l.jsonl")).unwrap();
    let repeated: Vec<bool> = text.lines().map(|line| line.contains("\"duplicate\":true")).collect();
    assert_eq!(repeated, [false, false, true, false]);
}

#[tokio::test]
async fn a_commit_begins_when_its_lines_are_written_down_beside() {
    let audited = Audited::committing(|_| {}).await;
    let script = Arc::clone(&audited.bench.sink.0);
    let prepared = fs::read_to_string(audited.path(".prepared.k")).unwrap();
    assert_eq!(
        prepared.matches("\\\"status\\\":\\\"published\\\"").count(),
        2,
        "{prepared}"
    );
    assert_eq!(audited.lines(), []);
    let (_, position) = script.lock().unwrap().committing[0].clone();

    // It crashed, and nobody knows how the commit ended.
    let Audited {
        bench,
        folder,
        pipeline,
        journal,
    } = audited;
    bench.relay.abort();
    let _ = bench.relay.await;
    let mut audited = Audited {
        bench: start_with(
            &pipeline,
            &journal,
            PipelineStatus::new(&pipeline),
            Left::default(),
            Script::default(),
            true,
        ),
        folder,
        pipeline,
        journal,
    };
    audited.journal.recover("k", Some(&position)).await;
    assert_eq!(audited.lines(), published([1, 2]));
    assert!(!audited.path(".prepared.k").exists());

    // What is in the ledger already is not added again, and what was not committed never.
    fs::write(audited.path(".prepared.k"), &prepared).unwrap();
    audited.journal.recover("k", Some(&position)).await;
    assert_eq!(audited.lines(), published([1, 2]));
    fs::write(audited.path(".prepared.k"), prepared.replace("\"seq\":0", "\"seq\":2")).unwrap();
    audited.journal.recover("k", None).await;
    assert_eq!(audited.lines(), published([1, 2]));
    assert!(!audited.path(".prepared.k").exists());
    audited.bench.batches.take();
    audited.bench.relay.await.unwrap();
}

#[tokio::test]
async fn an_end_leaves_no_lines_beside_but_those_of_a_commit_that_nobody_knows_of() {
    for is_known in [true, false] {
        let audited = Audited::committing(|_| {}).await;
        if is_known {
            (0..3).for_each(|seq| audited.bench.acks.acked(Seq(seq)));
            audited.bench.acks.committed_through(Seq(2));
            let status = Arc::clone(&audited.bench.status);
            until(|| status.snapshot().totals.published == 2).await;
        }
        let beside = audited.path(".prepared.k");
        assert!(beside.exists());
        let ended = audited.journal.ended();
        let Audited {
            bench, folder, journal, ..
        } = audited;
        bench.relay.abort();
        let _ = bench.relay.await;
        drop(journal);
        ended.await;
        assert_eq!(beside.exists(), !is_known);
        let lines = fs::read_to_string(folder.path().join("l.jsonl")).unwrap();
        assert_eq!(lines.lines().count(), if is_known { 2 } else { 0 });
    }
}

#[tokio::test]
async fn what_is_committed_counts_though_its_sink_fails_before_its_lines_are_written() {
    let full = |folder: &Path| std::os::unix::fs::symlink("/dev/full", folder.join("l.jsonl")).unwrap();
    let audited = Audited::committing(full).await;
    let script = Arc::clone(&audited.bench.sink.0);
    (0..3).for_each(|seq| audited.bench.acks.acked(Seq(seq)));
    audited.bench.acks.committed_through(Seq(2));
    let status = Arc::clone(&audited.bench.status);
    status.enter(State::Streaming);
    until(|| status.snapshot().ready.is_err()).await;
    assert_eq!(status.snapshot().totals.published, 0);
    audited.bench.acks.broken(refused(DeliveryErrorKind::Unavailable));
    script.lock().unwrap().ready.push_back(Ok(()));
    assert!(matches!(audited.bench.relay.await.unwrap().end, End::SinkFailed(_)));
    assert_eq!(status.snapshot().totals.published, 2);
    let (_, position) = script.lock().unwrap().committing[0].clone();
    fs::remove_file(audited.folder.path().join("l.jsonl")).unwrap();
    audited.journal.recover("k", Some(&position)).await;
    let text = fs::read_to_string(audited.folder.path().join("l.jsonl")).unwrap();
    assert_eq!(text.lines().count(), 2, "{text}");
}
