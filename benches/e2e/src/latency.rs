//! From commit to visible at a steady rate, against a ping: a bare producer's record through the same broker.
//!
//! Events are written when they are due, whether earlier ones have arrived or not. An event's time runs from the answer to its
//! COMMIT, a ping's from before it is given to the client, until a consumer has the record. A thousand transactions a second at
//! most: a higher rate has more events in each.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rdkafka::consumer::BaseConsumer;
use rdkafka::error::KafkaError;
use rdkafka::message::Message;

use crate::bench::Bench;
use crate::error::{BenchError, Tried};
use crate::event::{Expected, Payload, number};
use crate::kafka::PARTITIONS;
use crate::pipeline::Pipeline;
use crate::producer;
use crate::results::{Latency, LatencySide, Quantiles, Results};
use crate::warm::Settling;

/// Between two transactions.
const TICK: Duration = Duration::from_millis(1);
const ROUND: Duration = Duration::from_secs(3);
/// Before those that count.
const WARM_UP: Duration = Duration::from_secs(1);
const QUICK_ROUND: Duration = Duration::from_millis(500);
/// For the last events of a round to arrive.
const PATIENCE: Duration = Duration::from_secs(30);
/// Those at the head of a round, which do not count: caches and connections are cold.
const COLD: usize = 100;
const P50_TARGET_MS: f64 = 1.0;
const P99_TARGET_MS: f64 = 5.0;

/// Commits the events of these numbers in one transaction, and returns when that is done.
pub type Commit<'a> = &'a mut dyn FnMut(u64, u64) -> Result<(), BenchError>;

/// What is measured: a pipeline, and how its events are written.
pub struct Subject<'a> {
    pub row: &'a str,
    pub database: &'a str,
    pub pipeline: Pipeline,
    pub payload: Payload,
    pub commit: Commit<'a>,
}

/// Measures a pipeline at 1,000 events a second, where the targets are, and at 10,000.
pub fn measure(bench: &Bench, results: &mut Results, subject: Subject<'_>) -> Result<(), BenchError> {
    let Subject {
        row,
        database,
        pipeline,
        payload,
        commit,
    } = subject;
    let topic = pipeline.topic.clone();
    let pings = format!("{topic}-ping");
    let _topics = bench.broker.topics(vec![topic.clone(), pings.clone()], PARTITIONS)?;
    let consumer = bench.broker.consumer(&topic)?;
    let ping_consumer = bench.broker.consumer(&pings)?;
    let pinger = producer::connect(&bench.broker.address, &[("linger.ms", "0")])?;
    let mut ping = |first: u64, past: u64| producer::produce(&pinger, &pings, first..past, payload);
    let running = bench.tailpost.start(&[pipeline])?;
    let (mut next, mut next_ping) = (0, 0);
    // It runs as soon as the first event has arrived.
    round(&consumer, &mut next, 1, 1, commit)?;
    for per_second in [1_000, 10_000] {
        let batch = per_second / 1_000;
        let ticks = |length: Duration| {
            let length = if bench.settings.quick { QUICK_ROUND } else { length };
            u64::try_from(length.as_millis() / TICK.as_millis()).unwrap_or(u64::MAX)
        };
        let mut ours = side("tailpost");
        let mut pinged = side("ping");
        let mut settling = Settling::new();
        let mut is_settled = false;
        while ours.rounds.len() < bench.settings.pairs {
            let ticks = ticks(if is_settled { ROUND } else { WARM_UP });
            let of_us = round(&consumer, &mut next, ticks, batch, commit)?;
            let of_ping = round(&ping_consumer, &mut next_ping, ticks, batch, &mut ping)?;
            let note = if is_settled { "" } else { " (warm-up)" };
            eprintln!("{row} at {per_second}/s{note}: {of_us:?}, ping {of_ping:?}");
            if is_settled {
                ours.rounds.push(of_us);
                pinged.rounds.push(of_ping);
            }
            is_settled = is_settled || !settling.goes_on(of_us.p50);
        }
        results.latencies.push(Latency {
            row: row.to_owned(),
            title: format!("{database}, {per_second} events/s, {batch} a transaction"),
            per_second,
            sides: [ours, pinged],
        });
    }
    running.stop()?;
    let all = Expected {
        numbers: 0..next,
        payload,
        keyed: true,
    };
    bench.broker.verify(&topic, &all)?;
    if let Some(latency) = results
        .latencies
        .iter()
        .rev()
        .find(|latency| latency.per_second == 1_000)
    {
        let above = |quantile: fn(&Quantiles) -> f64| latency.above(quantile);
        let (p50, p99) = (above(|of| of.p50), above(|of| of.p99));
        let what = format!("{database}, 1,000 events/s");
        let beside = latency.rounds(|of| of.p99);
        results.judge_most(format!("{what}: p50 above the ping's"), p50, P50_TARGET_MS, "ms", None);
        results.judge_most(
            format!("{what}: p99 above the ping's"),
            p99,
            P99_TARGET_MS,
            "ms",
            Some(beside),
        );
    }
    Ok(())
}

fn side(name: &str) -> LatencySide {
    LatencySide {
        name: name.to_owned(),
        rounds: Vec::new(),
    }
}

/// One round of so many transactions, with the events after `next`.
fn round(
    consumer: &BaseConsumer,
    next: &mut u64,
    ticks: u64,
    batch: u64,
    commit: Commit<'_>,
) -> Result<Quantiles, BenchError> {
    let (first, count) = (*next, ticks * batch);
    *next += count;
    let start = Instant::now();
    let failed = AtomicBool::new(false);
    let (committed, arrived) = thread::scope(|scope| {
        let receiver = scope.spawn(|| receive(consumer, first, count, &failed));
        let committed = write(start, first, ticks, batch, commit);
        if committed.is_err() {
            failed.store(true, Ordering::Relaxed);
        }
        (committed, receiver.join())
    });
    let committed = committed?;
    let Ok(arrived) = arrived else {
        return Err(BenchError::Late {
            what: "the consumer's thread".to_owned(),
            seconds: 0,
        });
    };
    let arrived = arrived?;
    let times = arrived
        .iter()
        .enumerate()
        .skip(COLD.min(arrived.len() - 1))
        .map(|(at, arrived)| {
            let committed = committed[at / usize::try_from(batch).unwrap_or(1)];
            // A record can be there before the answer to its COMMIT.
            arrived.saturating_duration_since(committed).as_secs_f64() * 1e3
        });
    Ok(quantiles(times.collect()))
}

/// When each transaction's COMMIT was answered.
fn write(start: Instant, first: u64, ticks: u64, batch: u64, commit: Commit<'_>) -> Result<Vec<Instant>, BenchError> {
    let mut committed = Vec::new();
    for tick in 0..ticks {
        let due = start + TICK * u32::try_from(tick).unwrap_or(u32::MAX);
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let first = first + tick * batch;
        commit(first, first + batch)?;
        committed.push(Instant::now());
    }
    Ok(committed)
}

/// When each of the events was there.
fn receive(consumer: &BaseConsumer, first: u64, count: u64, failed: &AtomicBool) -> Result<Vec<Instant>, BenchError> {
    let size = usize::try_from(count).unwrap_or(usize::MAX);
    let mut arrived: Vec<Option<Instant>> = vec![None; size];
    let mut missing = size;
    let mut heard = Instant::now();
    while missing > 0 && !failed.load(Ordering::Relaxed) {
        match consumer.poll(Duration::from_millis(100)) {
            Some(Ok(message)) => {
                heard = Instant::now();
                let at = number(message.payload().unwrap_or_default()).and_then(|number| number.checked_sub(first));
                let place = at.and_then(|at| arrived.get_mut(usize::try_from(at).ok()?));
                // Another round's, or a second time: the account at the end says so.
                if let Some(place @ None) = place {
                    *place = Some(heard);
                    missing -= 1;
                }
            }
            Some(Err(KafkaError::PartitionEOF(_))) | None => {}
            Some(Err(error)) => return Err(error).tried("read events"),
        }
        if heard.elapsed() > PATIENCE {
            return Err(BenchError::Late {
                what: format!("{missing} of {count} events"),
                seconds: PATIENCE.as_secs(),
            });
        }
    }
    Ok(arrived.into_iter().flatten().collect())
}

fn quantiles(mut times: Vec<f64>) -> Quantiles {
    times.sort_by(f64::total_cmp);
    // The nearest rank.
    let at = |quantile: f64| {
        let rank = (quantile * times.len() as f64).ceil() as usize;
        times.get(rank.saturating_sub(1)).copied().unwrap_or_default()
    };
    Quantiles {
        p50: at(0.5),
        p99: at(0.99),
        p999: at(0.999),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_the_nearest_rank() {
        let of = quantiles((1..=1000).rev().map(f64::from).collect());
        assert_eq!((of.p50, of.p99, of.p999), (500.0, 990.0, 999.0));
        let of = quantiles(vec![7.0]);
        assert_eq!((of.p50, of.p999), (7.0, 7.0));
    }
}
