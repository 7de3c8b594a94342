//! MySQL's and MariaDB's backlogs, against a bare producer of the same records.

use crate::bench::Bench;
use crate::compare::{Row, Way, alternate};
use crate::error::BenchError;
use crate::event::{Expected, Payload};
use crate::kafka::PARTITIONS;
use crate::mysql::{Backlog, Flavor, Mysql};
use crate::pipeline::{Delivery, Pipeline};
use crate::producer;
use crate::results::{Comparison, Results};

/// Of the throughput of a bare producer.
const TARGET: f64 = 0.8;
/// As PostgreSQL's payloads have it.
const PAD: usize = crate::backlogs_postgres::PAD;
const EVENTS: u64 = 500_000;

/// A pipeline from this source.
pub fn pipeline(name: &str, source: String, topic: &str) -> Pipeline {
    Pipeline {
        name: name.to_owned(),
        source,
        topic: topic.to_owned(),
        processor: String::new(),
        delivery: Delivery::AtLeastOnce,
    }
}

fn row(flavor: Flavor, batch: u64) -> String {
    match batch {
        1 => format!("{}-single", flavor.name()),
        _ => format!("{}-batch", flavor.name()),
    }
}

/// The rows of a server.
pub fn of(bench: &Bench, results: &mut Results, server: &Mysql) -> Result<(), BenchError> {
    for batch in [100, 1] {
        let row = row(server.flavor, batch);
        if !bench.settings.wants(&row) {
            continue;
        }
        let all = Expected {
            numbers: 0..bench.settings.events(EVENTS),
            payload: Payload {
                pad: PAD,
                spacing: server.flavor.spacing(),
            },
            keyed: true,
        };
        let mut backlog = server.backlog(&bench.unique_name())?;
        backlog.fill(all.numbers.clone(), batch, PAD)?;
        let title = format!("{}, {batch} a statement", server.flavor.title());
        let comparison = compare(bench, &backlog, &all, &row, &title)?;
        results.judge_ratio(&comparison, TARGET);
        results.judge_cpu(&comparison);
        results.comparisons.push(comparison);
    }
    Ok(())
}

fn compare(
    bench: &Bench,
    backlog: &Backlog<'_>,
    all: &Expected,
    row: &str,
    title: &str,
) -> Result<Comparison, BenchError> {
    let row = Row {
        name: row,
        title,
        events: all.count(),
        payload_bytes: all.payload.size(&all.numbers),
    };
    let drain = |name: &str| {
        let pipeline = pipeline(name, backlog.source(), name);
        bench.verified_drain(&[pipeline], PARTITIONS, all)
    };
    let ways = vec![
        Way::new("tailpost", drain),
        Way::new(producer::NAME, |name| producer::verified(bench, name, all)),
        Way::new("mysqlbinlog --raw", |name| backlog.binlog(bench, name)),
    ];
    alternate(bench, row, ways)
}
