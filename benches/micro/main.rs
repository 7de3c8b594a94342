//! Single steps of an event's way. For the way as a whole, counted and not timed, see `replay.rs`.

mod input;

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use tailpost::config::{Source, Template};
use tailpost::event::ChangeEvent;
use tailpost::position::{Lsn, Position, PostgresPosition};
use tailpost::processor::{self, Chain, Outcome};
use tailpost::record::Record;
use tailpost::relay::in_flight::{Fate, Ledger, Limits, Progress, Seq};
use tailpost::sink::kafka;
use tailpost::skip::SkipCounts;
use tailpost::source::{mysql, postgres};

/// Events of one run of what is measured for each event.
const EVENTS: u64 = 1000;

/// The events of a stream of PostgreSQL.
fn events(stream: bytes::BytesMut) -> Vec<ChangeEvent> {
    let pipeline = input::pipeline("postgres.yaml");
    let Source::Postgres(config) = &pipeline.source else {
        panic!("a pipeline of PostgreSQL");
    };
    let mut events = Vec::new();
    postgres::bench::read(stream, config, |batch| events.extend(batch.events)).expect("a stream");
    events
}

/// From frames to change events.
fn decode(criterion: &mut Criterion) {
    let (pg, my) = (input::pipeline("postgres.yaml"), input::pipeline("mysql.yaml"));
    let (Source::Postgres(pg), Source::Mysql(my)) = (&pg.source, &my.source) else {
        panic!("pipelines of both databases");
    };
    let mut group = criterion.benchmark_group("decode");
    group.throughput(Throughput::Elements(EVENTS));
    for (name, stream) in [
        ("pgoutput message", input::postgres_messages(EVENTS)),
        ("pgoutput row", input::postgres_rows(EVENTS)),
    ] {
        let read = |stream| postgres::bench::read(stream, pg, |batch| drop(black_box(batch)));
        group.bench_function(name, |bench| {
            bench.iter_batched(|| stream.clone(), read, BatchSize::LargeInput);
        });
    }
    let log = input::mysql_rows(EVENTS);
    let read = |log| mysql::bench::read(log, my, |batch| drop(black_box(batch)));
    group.bench_function("binlog row", |bench| {
        bench.iter_batched(|| log.clone(), read, BatchSize::LargeInput);
    });
    group.finish();
}

/// `{"n": 100000, "sku": "…"}` in MySQL's binary JSON.
fn jsonb_document() -> Vec<u8> {
    let text = [b'x'; 120];
    // A small object of two members; its entries are places from behind the type byte.
    let (n, sku) = (18_u16, 19_u16);
    let (number, string) = (22_u16, 26_u16);
    let size = string + 1 + text.len() as u16;
    let mut document = vec![0x00];
    for value in [2, size, n, 1, sku, 3] {
        document.extend(value.to_le_bytes());
    }
    document.push(0x07);
    document.extend(number.to_le_bytes());
    document.push(0x0C);
    document.extend(string.to_le_bytes());
    document.extend(b"nsku");
    document.extend(100_000_i32.to_le_bytes());
    document.push(text.len() as u8);
    document.extend(text);
    document
}

fn json(criterion: &mut Criterion) {
    let message = input::message(7);
    criterion.bench_function("JSON field split", |bench| {
        bench.iter(|| processor::bench::split(black_box(&message)).expect("an object"));
    });
    let (document, mut text) = (jsonb_document(), Vec::new());
    criterion.bench_function("JSONB text", |bench| {
        bench.iter(|| {
            text.clear();
            mysql::bench::json_text(black_box(&document), &mut text).expect("a document");
        });
    });
}

/// From change events to records.
fn process(criterion: &mut Criterion) {
    let mut chain = Chain::new(&input::pipeline("postgres.yaml"));
    let mut process = |events: Vec<ChangeEvent>| {
        for event in events {
            black_box(chain.process(event).expect("a record"));
        }
    };
    let mut group = criterion.benchmark_group("process");
    group.throughput(Throughput::Elements(EVENTS));
    for (name, stream) in [
        ("message", input::postgres_messages(EVENTS)),
        ("row", input::postgres_rows(EVENTS)),
    ] {
        let events = events(stream);
        group.bench_function(name, |bench| {
            bench.iter_batched(|| events.clone(), &mut process, BatchSize::LargeInput);
        });
    }
    group.finish();
    let template = Template::parse("events.${aggregate_type}.${event_type}").expect("a template");
    let (template, mut out) = (processor::bench::Rendered::new(&template), String::new());
    criterion.bench_function("template", |bench| {
        bench.iter(|| assert!(template.render(black_box("Order"), &mut out)));
    });
}

fn ledger(criterion: &mut Criterion) {
    let limits = Limits {
        events: EVENTS as usize,
        bytes: u64::MAX,
        uncommitted: None,
    };
    let mut ledger = Ledger::new(limits);
    let acks = ledger.acks();
    let position = Position::Postgres(PostgresPosition {
        system_identifier: 1,
        timeline: 1,
        base: Lsn(1),
        partial: None,
        last_event_end: Lsn::ZERO,
    });
    let mut group = criterion.benchmark_group("ledger");
    group.throughput(Throughput::Elements(EVENTS));
    group.bench_function("send and ack", |bench| {
        bench.iter(|| {
            let (first, now) = (ledger.next_seq(), Instant::now());
            for _ in 0..EVENTS {
                ledger.sent(1000, 0, now, Fate::Published);
            }
            ledger.boundary(position.clone(), SkipCounts::default());
            (first.0..first.0 + EVENTS).for_each(|seq| acks.acked(Seq(seq)));
            let mut progress = Progress::default();
            ledger.advance(&mut progress);
            assert_eq!(progress.settled.published, EVENTS);
        });
    });
    group.finish();
}

/// What the relay's own thread does for a record that it sends: no broker is there.
fn enqueue(criterion: &mut Criterion) {
    let mut chain = Chain::new(&input::pipeline("postgres.yaml"));
    let records: Vec<Record> = events(input::postgres_messages(EVENTS))
        .into_iter()
        .map(|event| match chain.process(event) {
            Ok(Outcome::Publish(record)) => Record {
                topic: Arc::from("events"),
                key: record.key.as_deref().map(Bytes::copy_from_slice),
                ..record
            },
            other => panic!("expected a record, found {other:?}"),
        })
        .collect();
    let queue = kafka::bench::Queue::new(EVENTS as usize * 2).expect("a producer");
    let mut group = criterion.benchmark_group("kafka");
    group.throughput(Throughput::Elements(EVENTS));
    group.bench_function("enqueue", |bench| {
        let send = |()| {
            for record in &records {
                queue.send(record).expect("room in the queue");
            }
        };
        bench.iter_batched(|| queue.empty(), send, BatchSize::PerIteration);
    });
    group.finish();
}

criterion_group!(benches, decode, json, process, ledger, enqueue);
criterion_main!(benches);
