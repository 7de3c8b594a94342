//! PostgreSQL's backlogs, against `pg_recvlogical` on twin slots.

use std::cell::RefCell;

use crate::bench::Bench;
use crate::compare::{Row, Way, alternate};
use crate::error::BenchError;
use crate::event::Expected;
use crate::kafka::PARTITIONS;
use crate::pipeline::{Delivery, Pipeline};
use crate::postgres::{self, Backlog, PUBLICATION, Postgres};
use crate::producer;
use crate::results::{Comparison, Results};
use crate::settings::Settings;
use crate::start;

/// Of the throughput of `pg_recvlogical`.
const TCP_TARGET: f64 = 1.2;
const SOCKET_TARGET: f64 = 0.9;
const EXACTLY_ONCE_TARGET: f64 = 0.95;
pub const EVENTS: u64 = 500_000;
/// Where a start must count for little: of what is exactly once it takes longer, for it shuts others out and reads back.
pub const MANY: u64 = 1_000_000;
/// Makes messages of 270 B with payloads of 190 B.
pub const PAD: usize = 166;

/// A pipeline that reads a slot's messages.
pub fn pipeline(name: &str, dsn: &str, slot: &str, topic: &str) -> Pipeline {
    Pipeline {
        name: name.to_owned(),
        source: format!(
            "{{type: postgres, config: {{id: pg, dsn: '{dsn}', slot: {slot}, publication: {PUBLICATION}, \
             outbox: {{prefixes: [outbox]}}}}}}"
        ),
        topic: topic.to_owned(),
        processor: String::new(),
        delivery: Delivery::AtLeastOnce,
    }
}

/// Messages of one size, 100 a transaction, as many as the longest backlog has: each of the others is a slot that begins later.
pub struct Layers<'a> {
    backlog: RefCell<Backlog<'a>>,
    total: u64,
    settings: Settings,
}

impl<'a> Layers<'a> {
    /// Backlogs of these sizes, and one of a single event.
    pub fn fill(bench: &Bench, server: &'a Postgres, mut sizes: Vec<u64>) -> Result<Self, BenchError> {
        sizes.push(1);
        sizes.sort_unstable_by(|one, other| other.cmp(one));
        sizes.dedup();
        let total = bench.settings.events(sizes[0]);
        let mut backlog = server.backlog(&bench.unique_name())?;
        let mut filled = 0;
        for size in sizes {
            let begin = total - bench.settings.events(size);
            backlog.fill(filled..begin, 100, PAD)?;
            backlog.slot(&format!("e{size}"))?;
            filled = begin;
        }
        backlog.fill(filled..total, 100, PAD)?;
        Ok(Self {
            backlog: RefCell::new(backlog),
            total,
            settings: bench.settings.clone(),
        })
    }

    /// The backlog of this size.
    pub fn waiting(&self, size: u64) -> Waiting<'_, 'a> {
        Waiting {
            backlog: &self.backlog,
            slot: format!("e{size}"),
            expected: Expected::written(self.total - self.settings.events(size)..self.total, PAD),
        }
    }
}

/// A slot in a database, and the events behind it.
pub struct Waiting<'a, 'b> {
    pub backlog: &'a RefCell<Backlog<'b>>,
    pub slot: String,
    pub expected: Expected,
}

impl Waiting<'_, '_> {
    /// Drains a twin of the slot.
    pub fn drain(
        &self,
        bench: &Bench,
        name: &str,
        way: postgres::Way,
        delivery: Delivery,
    ) -> Result<crate::process::Usage, BenchError> {
        let dsn = self.backlog.borrow().dsn(way);
        let twin = self.backlog.borrow_mut().twin(&self.slot, name)?;
        let pipeline = Pipeline {
            delivery,
            ..pipeline(name, &dsn, &twin, name)
        };
        let usage = bench.verified_drain(&[pipeline], PARTITIONS, &self.expected)?;
        self.backlog.borrow_mut().drop_slot(&twin)?;
        Ok(usage)
    }

    fn recvlogical(&self, bench: &Bench, name: &str, way: postgres::Way) -> Result<crate::process::Usage, BenchError> {
        let mut backlog = self.backlog.borrow_mut();
        let twin = backlog.twin(&self.slot, name)?;
        let usage = backlog.recvlogical(&twin, way, &bench.log(name))?;
        backlog.drop_slot(&twin)?;
        Ok(usage)
    }

    /// tailpost and `pg_recvlogical`, both by the same way in. `shows_producer`: where Kafka may be what bounds it, what it takes
    /// without a database is shown beside.
    fn against_recvlogical(
        &self,
        bench: &Bench,
        row: &str,
        title: &str,
        way: postgres::Way,
        shows_producer: bool,
    ) -> Result<Comparison, BenchError> {
        let row = Row {
            name: row,
            title,
            events: self.expected.count(),
            payload_bytes: self.expected.payload.size(&self.expected.numbers),
        };
        let mut ways = vec![
            Way::new("tailpost", |name| self.drain(bench, name, way, Delivery::AtLeastOnce)),
            Way::new("pg_recvlogical", |name| self.recvlogical(bench, name, way)),
        ];
        if shows_producer {
            ways.push(Way::new(producer::NAME, |name| {
                producer::verified(bench, name, &self.expected)
            }));
        }
        alternate(bench, row, ways)
    }

    /// From the start of the process, as often as there are pairs; in seconds.
    pub fn first_event(&self, bench: &Bench) -> Result<Vec<f64>, BenchError> {
        let dsn = self.backlog.borrow().dsn(postgres::Way::Tcp);
        let mut seconds = Vec::new();
        for _ in 0..bench.settings.pairs {
            let name = bench.unique_name();
            let twin = self.backlog.borrow_mut().twin(&self.slot, &name)?;
            seconds.push(start::until_visible(bench, pipeline(&name, &dsn, &twin, &name))?);
            self.backlog.borrow_mut().drop_slot(&twin)?;
        }
        Ok(seconds)
    }

    fn exactly_once(&self, bench: &Bench) -> Result<Comparison, BenchError> {
        let row = Row {
            name: "exactly-once",
            title: "PostgreSQL, exactly once",
            events: self.expected.count(),
            payload_bytes: self.expected.payload.size(&self.expected.numbers),
        };
        let way = |delivery| move |name: &str| self.drain(bench, name, postgres::Way::Tcp, delivery);
        let ways = vec![
            Way::new("exactly once", way(Delivery::ExactlyOnce)),
            Way::new("at least once", way(Delivery::AtLeastOnce)),
        ];
        alternate(bench, row, ways)
    }
}

/// The rows over messages of 270 B, 100 a transaction.
pub fn of_batches<'a, 'b: 'a>(
    bench: &Bench,
    results: &mut Results,
    waiting: impl Fn(u64) -> Waiting<'a, 'b>,
) -> Result<(), BenchError> {
    if bench.settings.wants("postgres-tcp") {
        let title = "PostgreSQL, 100 a transaction, TCP";
        let comparison = waiting(EVENTS).against_recvlogical(bench, "postgres-tcp", title, postgres::Way::Tcp, true)?;
        results.judge_ratio(&comparison, TCP_TARGET);
        results.judge_cpu(&comparison);
        results.comparisons.push(comparison);
    }
    if bench.settings.wants("postgres-socket") {
        let title = "PostgreSQL, 100 a transaction, Unix socket";
        let comparison =
            waiting(EVENTS).against_recvlogical(bench, "postgres-socket", title, postgres::Way::Socket, false)?;
        results.judge_ratio(&comparison, SOCKET_TARGET);
        results.comparisons.push(comparison);
    }
    if bench.settings.wants("exactly-once") {
        let comparison = waiting(MANY).exactly_once(bench)?;
        results.judge_ratio(&comparison, EXACTLY_ONCE_TARGET);
        results.comparisons.push(comparison);
    }
    Ok(())
}

/// Another size of transaction or payload.
struct Shape {
    row: &'static str,
    title: &'static str,
    events: u64,
    batch: u64,
    pad: usize,
}

/// The larger payloads of about as many bytes each.
const SHAPES: [Shape; 4] = [
    Shape {
        row: "postgres-single",
        title: "PostgreSQL, 1 a transaction, TCP",
        events: EVENTS,
        batch: 1,
        pad: PAD,
    },
    Shape {
        row: "postgres-1k",
        title: "PostgreSQL, payloads of 1 KB, TCP",
        events: 400_000,
        batch: 100,
        pad: 1_000,
    },
    Shape {
        row: "postgres-10k",
        title: "PostgreSQL, payloads of 10 KB, TCP",
        events: 40_000,
        batch: 100,
        pad: 10_000,
    },
    Shape {
        row: "postgres-100k",
        title: "PostgreSQL, payloads of 100 KB, TCP",
        events: 4_000,
        batch: 100,
        pad: 100_000,
    },
];

/// The rows with a backlog of their own.
pub fn of_shapes(bench: &Bench, results: &mut Results, server: &Postgres) -> Result<(), BenchError> {
    for shape in SHAPES.iter().filter(|shape| bench.settings.wants(shape.row)) {
        let expected = Expected::written(0..bench.settings.events(shape.events), shape.pad);
        let backlog = RefCell::new(server.backlog(&bench.unique_name())?);
        backlog.borrow_mut().slot("all")?;
        backlog
            .borrow_mut()
            .fill(expected.numbers.clone(), shape.batch, shape.pad)?;
        let waiting = Waiting {
            backlog: &backlog,
            slot: "all".to_owned(),
            expected,
        };
        // One a transaction waits for the database.
        let shows_producer = shape.batch > 1;
        let comparison =
            waiting.against_recvlogical(bench, shape.row, shape.title, postgres::Way::Tcp, shows_producer)?;
        results.judge_ratio(&comparison, TCP_TARGET);
        results.comparisons.push(comparison);
    }
    Ok(())
}
