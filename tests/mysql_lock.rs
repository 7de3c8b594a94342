//! The lock of MySQL and MariaDB that lets one instance read: it comes before everything else, and nothing is handed over
//! without it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tailpost::config::{self, ProcessEnvironment};
use tailpost::source::mysql::{AcceptedLog, MysqlSource};
use tailpost::source::{
    Answer, BatchSender, Claim, LogBatch, LogChannel, OperatorWord, Question, Source, SourceError, SourceOptions,
};
use tailpost::telemetry::status::{PipelineStatus, SourceView};
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::support::mysql::Script;
use crate::support::mysql_bed::MysqlBed;
use crate::support::relay::Relay;
use crate::support::{ANY_OUTBOX, DEADLINE, Db, Event, eventually, over_each};

/// How long the server keeps the lock of a connection that says nothing.
const PATIENCE: Duration = Duration::from_secs(10);

/// The source of a bed's pipeline by itself, with a checkpoint that it must ask for.
struct Bench {
    bed: MysqlBed,
    /// A real instance of the same pipeline, which comes second.
    second: Relay,
    runtime: Runtime,
    source: JoinHandle<Result<(), SourceError>>,
    answer: Option<Answer>,
    batches: mpsc::Receiver<LogBatch>,
    _confirmed: watch::Sender<Option<tailpost::position::Position>>,
}

impl Bench {
    /// Asked where to begin, and not answered yet.
    fn asking(db: Db) -> Self {
        let bed = MysqlBed::new(db.flavor().expect("a binlog"));
        let second = bed.relay(ANY_OUTBOX);
        let pipeline = config::load(&second.pipeline_file(), &ProcessEnvironment)
            .expect("a pipeline")
            .pipeline;
        let config::Source::Mysql(config) = &pipeline.source else {
            panic!("of another database")
        };
        let options = SourceOptions {
            stall_timeout: pipeline.delivery.stall_timeout,
            progress_timeout: pipeline.delivery.progress_timeout,
            once: false,
            word: OperatorWord::Nothing,
            again: false,
        };
        let config = Arc::new(config.as_ref().clone());
        let source = MysqlSource::new(config, &pipeline.name, options, AcceptedLog::default());
        let (question, answer) = Question::new();
        let (sender, batches) = mpsc::channel(1);
        let (confirmed_sender, confirmed) = watch::channel(None);
        let mut log = LogChannel {
            batches: BatchSender::new(sender, None),
            confirmed,
            stop: CancellationToken::new(),
            claim: Claim::Ask(question),
            view: SourceView::new(PipelineStatus::new(&pipeline)),
        };
        let runtime = Runtime::new().expect("a runtime");
        let source = runtime.spawn(async move { source.run(&mut log).await });
        let asked = runtime.block_on(async { tokio::time::timeout(DEADLINE, answer.asked()).await });
        assert!(asked.expect("a question"), "the source ended before it asked");
        Self {
            bed,
            second,
            runtime,
            source,
            answer: Some(answer),
            batches,
            _confirmed: confirmed_sender,
        }
    }

    fn answer(&mut self) {
        self.answer.take().expect("an answer").give(None);
    }

    fn batch(&mut self) -> Option<LogBatch> {
        let batch = async { tokio::time::timeout(DEADLINE, self.batches.recv()).await };
        self.runtime.block_on(batch).expect("a batch, or the end")
    }

    /// The lock's connection, which the second instance names.
    fn holder(&mut self) -> u64 {
        self.second.start();
        let line = self.second.wait_log("standing by");
        let (_, rest) = line.split_once("in use by connection ").expect("a connection");
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().expect("a number")
    }

    fn end(&mut self) -> Result<(), SourceError> {
        let end = async { tokio::time::timeout(DEADLINE, &mut self.source).await };
        self.runtime.block_on(end).expect("an end").expect("no panic")
    }
}

over_each!(the_lock_is_held_for_as_long_as_it_takes_to_learn_where_to_begin: mysql, mariadb);
fn the_lock_is_held_for_as_long_as_it_takes_to_learn_where_to_begin(db: Db) {
    let mut bench = Bench::asking(db);
    let asked = Instant::now();
    bench.holder();
    eventually(DEADLINE, "longer than a silent connection lives", || {
        let answer = bench.second.get("/readyz").expect("/readyz answers");
        assert!(
            answer.code == 503 && answer.body.contains("in use by connection"),
            "{answer:?}"
        );
        asked.elapsed() > PATIENCE + Duration::from_secs(3)
    });
    bench.answer();
    bench.bed.door.open().unwrap().emit(&Event::of("1"));
    let mut events = 0;
    while events == 0 {
        events += bench.batch().expect("a batch").events.len();
    }
    assert_eq!(bench.second.published(), 0);
}

over_each!(a_lock_that_is_lost_while_the_answer_is_waited_for_spends_the_question: mysql, mariadb);
fn a_lock_that_is_lost_while_the_answer_is_waited_for_spends_the_question(db: Db) {
    let mut bench = Bench::asking(db);
    let holder = bench.holder();
    bench.bed.admin().run(&format!("KILL {holder}")).unwrap();
    let end = bench.end();
    assert!(matches!(end, Err(SourceError::TakenOver(_))), "{end:?}");
    bench.second.wait_ready();
    let answer = bench.answer.take().expect("not given");
    bench.runtime.block_on(answer.unwanted());
}

over_each!(nothing_is_handed_over_once_the_lock_is_lost: mysql, mariadb);
fn nothing_is_handed_over_once_the_lock_is_lost(db: Db) {
    let mut bench = Bench::asking(db);
    let holder = bench.holder();
    bench.answer();
    // More than the channel has room for.
    let mut app = bench.bed.door.open().unwrap();
    for number in 0..5 {
        app.emit(&Event::of(number.to_string()));
        eventually(DEADLINE, "the channel is full", || !bench.batches.is_empty());
    }
    bench.bed.admin().run(&format!("KILL {holder}")).unwrap();
    let end = bench.end();
    assert!(matches!(end, Err(SourceError::TakenOver(_))), "{end:?}");
    assert!(bench.batch().is_some(), "handed over before");
    assert!(bench.batch().is_none(), "handed over afterwards");
}
