//! Where the checkpoint is shared, the slot is held before it is asked where to begin. The source by itself, over a real
//! server: the test gives the answers.

use std::sync::Arc;
use std::time::Duration;

use tailpost::config::{self, Pipeline, ProcessEnvironment};
use tailpost::event::Change;
use tailpost::position::Position;
use tailpost::source::postgres::PostgresSource;
use tailpost::source::{
    Answer, BatchSender, Claim, LogBatch, LogChannel, OperatorWord, Question, Recovery, Source, SourceError,
    SourceOptions,
};
use tailpost::telemetry::status::{PipelineStatus, SourceView};
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::support::{DEADLINE, Emit, OUTBOX, TestBed, eventually};

/// A source in its first connection of a life.
struct Life {
    running: JoinHandle<(Result<(), SourceError>, LogChannel)>,
    answer: Option<Answer>,
    batches: mpsc::Receiver<LogBatch>,
    stop: CancellationToken,
    /// Never sent: nothing is saved, so nothing may be confirmed.
    confirmed: Option<watch::Sender<Option<Position>>>,
}

fn pipeline(bed: &TestBed, text: &str) -> Pipeline {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pipeline.yaml");
    std::fs::write(&file, bed.fill(text)).unwrap();
    config::load(&file, &ProcessEnvironment).unwrap().pipeline
}

fn source(pipeline: &Pipeline) -> PostgresSource {
    let config::Source::Postgres(source) = &pipeline.source else {
        panic!("a PostgreSQL pipeline")
    };
    let options = SourceOptions {
        stall_timeout: DEADLINE,
        progress_timeout: DEADLINE,
        once: false,
        word: OperatorWord::Nothing,
        again: false,
    };
    PostgresSource::new(Arc::new(source.as_ref().clone()), options)
}

fn begin(runtime: &Runtime, pipeline: &Pipeline) -> Life {
    let (question, answer) = Question::new();
    let (sender, batches) = mpsc::channel(100);
    let (confirmed_sender, confirmed) = watch::channel(None);
    let stop = CancellationToken::new();
    let log = LogChannel {
        batches: BatchSender::new(sender, None),
        confirmed,
        stop: stop.clone(),
        claim: Claim::Ask(question),
        view: SourceView::new(PipelineStatus::new(pipeline)),
    };
    Life {
        running: connect(runtime, pipeline, log),
        answer: Some(answer),
        batches,
        stop,
        confirmed: Some(confirmed_sender),
    }
}

/// One connection over this channel.
fn connect(
    runtime: &Runtime,
    pipeline: &Pipeline,
    mut log: LogChannel,
) -> JoinHandle<(Result<(), SourceError>, LogChannel)> {
    let source = source(pipeline);
    runtime.spawn(async move {
        let result = source.run(&mut log).await;
        (result, log)
    })
}

impl Life {
    fn wait_asked(&self, runtime: &Runtime) {
        let answer = self.answer.as_ref().expect("not answered yet");
        let asked = runtime.block_on(async { tokio::time::timeout(DEADLINE, answer.asked()).await });
        assert!(asked.expect("it asks"), "it ended before it asked");
    }

    fn answer(&mut self, from: Option<Position>) {
        self.answer.take().expect("not answered yet").give(from);
    }

    /// Batches until their events are so many; gives the events' contents with the position behind each.
    fn events(&mut self, runtime: &Runtime, count: usize) -> Vec<(String, Position)> {
        let mut found = Vec::new();
        while found.len() < count {
            let batch = runtime.block_on(async { tokio::time::timeout(DEADLINE, self.batches.recv()).await });
            let batch = batch.expect("a batch in time").expect("a batch");
            for event in &batch.events {
                let Change::Message(message) = &event.change else {
                    panic!("a message")
                };
                let content = String::from_utf8(message.content.to_vec()).unwrap();
                found.push((content, batch.end.after(&event.position)));
            }
        }
        found
    }

    fn ended(&mut self, runtime: &Runtime) -> (Result<(), SourceError>, LogChannel) {
        let ended = runtime.block_on(async { tokio::time::timeout(DEADLINE, &mut self.running).await });
        ended.expect("it ends").expect("no panic")
    }

    /// Ends it; nothing of what it handed over was saved.
    fn abandon(mut self, runtime: &Runtime) {
        self.running.abort();
        let ended = runtime.block_on(async { tokio::time::timeout(DEADLINE, &mut self.running).await });
        assert!(ended.expect("it ends").is_err_and(|error| error.is_cancelled()));
    }
}

fn make_slot(bed: &TestBed) {
    let statement = "SELECT pg_create_logical_replication_slot($1, 'pgoutput')";
    bed.admin().execute(statement, &[&bed.slot]).unwrap();
}

/// How long the slot's walsender has been connected; None: nobody has the slot.
fn held_for(bed: &TestBed) -> Option<Duration> {
    let statement = "SELECT extract(epoch FROM clock_timestamp() - backend_start)::float8 FROM pg_stat_activity \
         JOIN pg_replication_slots ON active_pid = pid WHERE slot_name = $1";
    let row = bed.admin().query_opt(statement, &[&bed.slot]).unwrap()?;
    Some(Duration::from_secs_f64(row.get(0)))
}

#[test]
fn the_slot_is_held_for_as_long_as_the_answer_takes_and_others_do_not_ask() {
    let runtime = Runtime::new().unwrap();
    let bed = TestBed::new();
    make_slot(&bed);
    // The server's patience is 3 s, and more than a socket takes waits to be read.
    let impatient = format!("{}?options=-c%20wal_sender_timeout%3D3s", bed.postgres.url);
    let pipeline = pipeline(&bed, &OUTBOX.replace("<dsn>", &impatient));
    let large = "x".repeat(100_000);
    let contents: Vec<String> = (0..200).map(|number| format!("{number} {large}")).collect();
    bed.app().emit_all("outbox", &contents).unwrap();
    let stands_at = bed.confirmed();
    let mut first = begin(&runtime, &pipeline);
    first.wait_asked(&runtime);
    let holder = bed.active_pid();
    assert!(holder.is_some());

    let (ended, log) = begin(&runtime, &pipeline).ended(&runtime);
    let error = ended.expect_err("the slot is in use");
    assert_eq!(error.recovery(), Recovery::StandBy, "{error}");
    assert!(!log.is_claimed());

    eventually(DEADLINE, "the slot held for three times the server's patience", || {
        assert_eq!(bed.active_pid(), holder);
        held_for(&bed) > Some(Duration::from_secs(9))
    });
    assert_eq!(bed.confirmed(), stands_at, "nothing is confirmed");
    first.answer(None);
    let events = first.events(&runtime, contents.len());
    assert!(events.iter().map(|(content, _)| content).eq(&contents));
    assert_eq!(bed.active_pid(), holder);
    first.stop.cancel();
    // Nothing was saved, and nobody will save.
    drop(first.confirmed.take());
    assert!(first.ended(&runtime).0.is_ok());
    assert_eq!(bed.confirmed(), stands_at);
}

#[test]
fn from_wherever_it_is_told_to_begin_exactly_the_rest_comes_though_the_server_begins_earlier() {
    let runtime = Runtime::new().unwrap();
    let bed = TestBed::new();
    make_slot(&bed);
    let mut app = bed.app();
    app.emit("outbox", "0");
    app.emit_all("outbox", &["1", "2", "3"].map(str::to_owned)).unwrap();
    let aside = "SELECT pg_logical_emit_message(false, 'outbox', '4')";
    app.execute(aside, &[]).unwrap();
    app.emit_all("outbox", &["5", "6"].map(str::to_owned)).unwrap();
    let pipeline = pipeline(&bed, OUTBOX);
    let mut whole = begin(&runtime, &pipeline);
    whole.wait_asked(&runtime);
    whole.answer(None);
    let events = whole.events(&runtime, 7);
    let contents =
        |events: &[(String, Position)]| events.iter().map(|(content, _)| content.clone()).collect::<Vec<_>>();
    assert_eq!(contents(&events), ["0", "1", "2", "3", "4", "5", "6"]);
    whole.abandon(&runtime);

    for (done, (_, behind)) in (1..).zip(&events).take(6) {
        eventually(DEADLINE, "the slot free", || bed.active_pid().is_none());
        let mut life = begin(&runtime, &pipeline);
        life.wait_asked(&runtime);
        life.answer(Some(behind.clone()));
        let rest = life.events(&runtime, 7 - done);
        assert_eq!(rest, events[done..], "behind {behind}");
        life.abandon(&runtime);
    }
}

#[test]
fn a_connection_that_is_lost_before_the_answer_ends_the_life_and_no_other_takes_that_answer() {
    let runtime = Runtime::new().unwrap();
    let bed = TestBed::new();
    make_slot(&bed);
    let pipeline = pipeline(&bed, OUTBOX);
    let mut life = begin(&runtime, &pipeline);
    life.wait_asked(&runtime);
    bed.admin()
        .execute("SELECT pg_terminate_backend($1)", &[&bed.active_pid().unwrap()])
        .unwrap();
    let (ended, log) = life.ended(&runtime);
    let error = ended.expect_err("the lock was lost");
    assert!(matches!(error, SourceError::TakenOver(_)), "{error}");
    eventually(DEADLINE, "the slot free", || bed.active_pid().is_none());

    life.answer(None);
    life.running = connect(&runtime, &pipeline, log);
    let error = life.ended(&runtime).0.expect_err("another may have been there");
    assert!(matches!(error, SourceError::TakenOver(_)), "{error}");
    eventually(DEADLINE, "the slot free", || bed.active_pid().is_none());
}

#[test]
fn a_missing_slot_is_made_after_the_answer() {
    let runtime = Runtime::new().unwrap();
    let bed = TestBed::new();
    let pipeline = pipeline(&bed, OUTBOX);
    let mut life = begin(&runtime, &pipeline);
    life.wait_asked(&runtime);
    assert_eq!(bed.confirmed(), None, "there is no slot yet");
    life.answer(None);
    // It has a reader from its beginning, and a place that events count from only when it is whole.
    eventually(DEADLINE, "the slot made", || bed.confirmed().is_some());
    bed.app().emit("outbox", "0");
    assert_eq!(life.events(&runtime, 1)[0].0, "0");
    life.abandon(&runtime);
}

#[test]
fn a_slot_that_another_instance_made_meanwhile_is_a_reason_to_ask_anew() {
    let runtime = Runtime::new().unwrap();
    let bed = TestBed::new();
    let pipeline = pipeline(&bed, OUTBOX);
    let mut life = begin(&runtime, &pipeline);
    life.wait_asked(&runtime);
    make_slot(&bed);
    life.answer(None);
    let error = life.ended(&runtime).0.expect_err("the slot is another's");
    assert!(matches!(error, SourceError::TakenOver(_)), "{error}");
    // The next life finds it.
    let next = begin(&runtime, &pipeline);
    next.wait_asked(&runtime);
    assert!(bed.active_pid().is_some());
    next.abandon(&runtime);
}
