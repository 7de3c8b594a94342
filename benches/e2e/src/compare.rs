//! Runs the sides of a comparison in turn, so that what disturbs one disturbs the other.

use crate::bench::Bench;
use crate::error::BenchError;
use crate::process::Usage;
use crate::results::{Comparison, Side};

type Run<'a> = Box<dyn FnMut(&str) -> Result<Usage, BenchError> + 'a>;

/// One way of doing it: given a name that no other run has.
pub struct Way<'a> {
    pub name: String,
    pub run: Run<'a>,
}

impl<'a> Way<'a> {
    pub fn new(name: &str, run: impl FnMut(&str) -> Result<Usage, BenchError> + 'a) -> Self {
        Self {
            name: name.to_owned(),
            run: Box::new(run),
        }
    }
}

/// What is compared, in words and numbers.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    pub name: &'a str,
    pub title: &'a str,
    pub events: u64,
    pub payload_bytes: u64,
}

/// The first way once, which does not count: what all of them read is in memory then. After it as many rounds as there are
/// pairs, every other one in reverse order.
pub fn alternate(bench: &Bench, row: Row<'_>, mut ways: Vec<Way<'_>>) -> Result<Comparison, BenchError> {
    let mut sides: Vec<Side> = ways
        .iter()
        .map(|way| Side {
            name: way.name.clone(),
            runs: Vec::new(),
        })
        .collect();
    for round in 0..=bench.settings.pairs {
        let mut order: Vec<usize> = (0..ways.len()).collect();
        if round == 0 {
            order.truncate(1);
        } else if round % 2 == 1 {
            order.reverse();
        }
        for at in order {
            let usage = (ways[at].run)(&bench.unique_name())?;
            eprintln!(
                "{}{}: {}: {:.2} s (exit {:.2}), {:.0}/s, CPU {:.2} us/event, peak {:.1} MB",
                row.name,
                if round == 0 { " (warm-up)" } else { "" },
                sides[at].name,
                usage.seconds,
                usage.exit_seconds,
                row.events as f64 / usage.seconds,
                usage.cpu_seconds * 1e6 / row.events as f64,
                usage.peak_rss_bytes as f64 / 1e6
            );
            if round > 0 {
                sides[at].runs.push(usage);
            }
        }
    }
    Ok(Comparison {
        row: row.name.to_owned(),
        title: row.title.to_owned(),
        events: row.events,
        payload_bytes: row.payload_bytes,
        sides,
    })
}
