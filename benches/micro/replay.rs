//! A fixed replay: bytes of a stream through decoder, processors and ledger, without sockets and threads, so that the
//! instructions that it takes can be counted and compared. `benches/micro/instructions.sh` does so.
//!
//!     replay SCENARIO    postgres_messages, postgres_rows or mysql_rows

mod input;

use std::hint::black_box;
use std::process::ExitCode;
use std::time::Instant;

use tailpost::config::{Pipeline, Source};
use tailpost::processor::{Chain, Outcome};
use tailpost::relay::in_flight::{Acks, Fate, Ledger, Limits, Progress, Seq};
use tailpost::sink::kafka::QUEUE_OVERHEAD;
use tailpost::source::{LogBatch, mysql, postgres};

const EVENTS: u64 = 10_000;

/// What the relay does with a batch, with a sink that acks it as a whole.
struct Replay {
    chain: Chain,
    ledger: Ledger,
    acks: Acks,
    published: u64,
}

impl Replay {
    fn new(pipeline: &Pipeline) -> Self {
        let ledger = Ledger::new(Limits {
            events: pipeline.delivery.max_in_flight_events,
            bytes: u64::MAX,
            uncommitted: None,
        });
        Self {
            chain: Chain::new(pipeline),
            acks: ledger.acks(),
            ledger,
            published: 0,
        }
    }

    fn batch(&mut self, batch: LogBatch) {
        let (first, sent) = (self.ledger.next_seq(), Instant::now());
        for event in batch.events {
            let commit_time_us = event.commit_time_us;
            match self.chain.process(event) {
                Ok(Outcome::Publish(record)) => {
                    let bytes = record.byte_len() as u64 + QUEUE_OVERHEAD;
                    black_box(&record);
                    self.ledger.sent(bytes, commit_time_us, sent, Fate::Published);
                }
                other => panic!("expected a record, found {other:?}"),
            }
        }
        self.ledger.boundary(batch.end, batch.skipped);
        (first.0..self.ledger.next_seq().0).for_each(|seq| self.acks.acked(Seq(seq)));
        let mut progress = Progress::default();
        self.ledger.advance(&mut progress);
        self.published += progress.settled.published;
    }
}

/// What is counted: the tool that counts knows it by its name.
#[inline(never)]
fn counted(read: impl FnOnce(&mut Replay), replay: &mut Replay) {
    read(replay);
}

fn main() -> ExitCode {
    let scenario = std::env::args().nth(1).unwrap_or_default();
    let (pipeline, fault) = match scenario.as_str() {
        "postgres_messages" | "postgres_rows" => (input::pipeline("postgres.yaml"), "a stream of PostgreSQL"),
        "mysql_rows" => (input::pipeline("mysql.yaml"), "a binlog of MySQL"),
        // As a bench among others, it has nothing to do.
        _ => return ExitCode::SUCCESS,
    };
    let mut replay = Replay::new(&pipeline);
    match &pipeline.source {
        Source::Postgres(config) => {
            let stream = match scenario.as_str() {
                "postgres_rows" => input::postgres_rows(EVENTS),
                _ => input::postgres_messages(EVENTS),
            };
            let read =
                |replay: &mut Replay| postgres::bench::read(stream, config, |batch| replay.batch(batch)).expect(fault);
            counted(read, &mut replay);
        }
        Source::Mysql(config) => {
            let log = input::mysql_rows(EVENTS);
            let read = |replay: &mut Replay| mysql::bench::read(log, config, |batch| replay.batch(batch)).expect(fault);
            counted(read, &mut replay);
        }
    }
    assert_eq!(replay.published, EVENTS, "every event is published");
    ExitCode::SUCCESS
}
