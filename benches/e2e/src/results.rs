//! What was measured, as it is kept in JSON, and what becomes of it against the targets.

use serde::Serialize;

use crate::machine::cores;
use crate::process::Usage;

/// Microseconds of the process's CPU per event.
const CPU_TARGET: f64 = 4.5;
/// While any backlog is drained.
pub const RSS_TARGET_MB: f64 = 48.0;

/// All of a run.
#[derive(Debug, Default, Serialize)]
pub struct Results {
    /// Whether all rows that were asked for are there.
    pub complete: bool,
    pub machine: Vec<(String, String)>,
    pub comparisons: Vec<Comparison>,
    pub latencies: Vec<Latency>,
    pub growth: Vec<Growth>,
    pub start: Vec<Start>,
    pub binary_bytes: u64,
    pub verdicts: Vec<Verdict>,
}

/// One thing done in several ways, alternating.
#[derive(Debug, Serialize)]
pub struct Comparison {
    /// As `ONLY` names it.
    pub row: String,
    pub title: String,
    pub events: u64,
    pub payload_bytes: u64,
    /// tailpost first, then the yardstick, then what is shown beside them. Each has as many runs as there are pairs.
    pub sides: Vec<Side>,
}

#[derive(Debug, Serialize)]
pub struct Side {
    pub name: String,
    pub runs: Vec<Usage>,
}

/// From commit to visible, in milliseconds, of one round each.
#[derive(Debug, Serialize)]
pub struct Latency {
    pub row: String,
    pub title: String,
    pub per_second: u64,
    /// tailpost, and the ping.
    pub sides: [LatencySide; 2],
}

#[derive(Debug, Serialize)]
pub struct LatencySide {
    pub name: String,
    pub rounds: Vec<Quantiles>,
}

#[derive(Debug, Clone, Copy, Serialize)]
pub struct Quantiles {
    pub p50: f64,
    pub p99: f64,
    pub p999: f64,
}

/// The same work in growing sizes.
#[derive(Debug, Serialize)]
pub struct Growth {
    pub row: String,
    pub title: String,
    /// What grows.
    pub of: String,
    pub sizes: Vec<Size>,
}

#[derive(Debug, Serialize)]
pub struct Size {
    pub size: u64,
    /// Published by each run; 0: none, it idles.
    pub events: u64,
    pub runs: Vec<Usage>,
}

/// From the start of the process until its first event is visible, in seconds.
#[derive(Debug, Serialize)]
pub struct Start {
    pub title: String,
    pub seconds: Vec<f64>,
}

/// A target, and whether it is met.
#[derive(Debug, Serialize)]
pub struct Verdict {
    pub what: String,
    pub target: String,
    pub measured: String,
    pub met: bool,
    /// What was measured beside it, and bounds it.
    pub beside: Option<String>,
}

/// Of an even number the mean of the middle two; of none, 0.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => 0.0,
        count if count % 2 == 1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

impl Side {
    pub fn seconds(&self) -> f64 {
        median(self.runs.iter().map(|run| run.seconds))
    }

    pub fn exit_seconds(&self) -> f64 {
        median(self.runs.iter().map(|run| run.exit_seconds))
    }

    pub fn cpu_seconds(&self) -> f64 {
        median(self.runs.iter().map(|run| run.cpu_seconds))
    }

    /// Of all processes of the machine.
    pub fn machine_cpu_seconds(&self) -> f64 {
        median(self.runs.iter().map(|run| run.machine_cpu_seconds))
    }

    /// The highest of all runs: the bound holds for each.
    pub fn peak_rss(&self) -> u64 {
        self.runs.iter().map(|run| run.peak_rss_bytes).max().unwrap_or_default()
    }

    pub fn threads(&self) -> u64 {
        self.runs.iter().map(|run| run.threads).max().unwrap_or_default()
    }
}

impl Comparison {
    /// What others took while tailpost ran, and what that leaves: with nothing of its own it could not be faster than they
    /// are on the cores that there are. And how fast those were that do a part of its work only.
    fn beside_throughput(&self) -> String {
        let (Some(ours), Some(yardstick)) = (self.sides.first(), self.sides.get(1)) else {
            return String::new();
        };
        let (all, own, cores) = (ours.machine_cpu_seconds(), ours.cpu_seconds(), cores() as f64);
        let per_event = |seconds: f64| seconds * 1e6 / self.events as f64;
        let shown = self.sides.get(2..).unwrap_or_default();
        let parts: String = shown
            .iter()
            .map(|side| {
                format!(
                    "; {} by itself reached {:.2} times",
                    side.name,
                    yardstick.seconds() / side.seconds()
                )
            })
            .collect();
        format!(
            "{cores} cores were {:.0} % busy: {:.2} us an event of its own, {:.2} us of the servers'; with nothing of its own it \
             could be {:.2} times{parts}",
            100.0 * all / ours.exit_seconds() / cores,
            per_event(own),
            per_event(all - own),
            yardstick.seconds() / ((all - own) / cores)
        )
    }

    /// The CPU of those that do a part of tailpost's work only, on the same cores.
    fn beside_cpu(&self) -> String {
        let others = self.sides.get(1..).unwrap_or_default();
        let others: Vec<String> = others
            .iter()
            .map(|side| {
                format!(
                    "{} took {:.2} us",
                    side.name,
                    side.cpu_seconds() * 1e6 / self.events as f64
                )
            })
            .collect();
        others.join(", ")
    }

    /// How many times faster tailpost was than another side: of each pair, so that what drifts falls out.
    pub fn ratios(&self, other: usize) -> Vec<f64> {
        let (Some(ours), Some(theirs)) = (self.sides.first(), self.sides.get(other)) else {
            return Vec::new();
        };
        let pairs = ours.runs.iter().zip(&theirs.runs);
        pairs.map(|(ours, theirs)| theirs.seconds / ours.seconds).collect()
    }

    /// Microseconds of tailpost's CPU.
    pub fn cpu_per_event(&self) -> f64 {
        let cpu = self.sides.first().map(Side::cpu_seconds).unwrap_or_default();
        cpu * 1e6 / self.events as f64
    }
}

impl Latency {
    /// How much longer tailpost takes than the ping, in milliseconds: of each pair of rounds.
    pub fn above(&self, quantile: fn(&Quantiles) -> f64) -> f64 {
        let pairs = self.sides[0].rounds.iter().zip(&self.sides[1].rounds);
        median(pairs.map(|(ours, ping)| quantile(ours) - quantile(ping)))
    }

    /// A quantile in each round of each side, in words: how much it varies by itself.
    pub fn rounds(&self, quantile: fn(&Quantiles) -> f64) -> String {
        let sides = self.sides.iter().map(|side| {
            let rounds: Vec<String> = side
                .rounds
                .iter()
                .map(|round| format!("{:.1}", quantile(round)))
                .collect();
            format!("{}'s rounds had {} ms", side.name, rounds.join(", "))
        });
        sides.collect::<Vec<_>>().join("; ")
    }
}

impl LatencySide {
    /// Over the rounds, in milliseconds.
    pub fn median(&self, quantile: fn(&Quantiles) -> f64) -> f64 {
        median(self.rounds.iter().map(quantile))
    }
}

impl Size {
    pub fn new(size: u64, events: u64) -> Self {
        Self {
            size,
            events,
            runs: Vec::new(),
        }
    }

    pub fn seconds(&self) -> f64 {
        median(self.runs.iter().map(|run| run.seconds))
    }

    pub fn cpu_seconds(&self) -> f64 {
        median(self.runs.iter().map(|run| run.cpu_seconds))
    }

    pub fn peak_rss(&self) -> u64 {
        self.runs.iter().map(|run| run.peak_rss_bytes).max().unwrap_or_default()
    }

    pub fn threads(&self) -> u64 {
        self.runs.iter().map(|run| run.threads).max().unwrap_or_default()
    }
}

impl Results {
    /// At least `target` times as fast as the yardstick.
    pub fn judge_ratio(&mut self, comparison: &Comparison, target: f64) {
        let ratios = comparison.ratios(1);
        let (least, most) = ratios.iter().fold((f64::MAX, 0.0_f64), |(least, most), ratio| {
            (least.min(*ratio), most.max(*ratio))
        });
        let ratio = median(ratios.iter().copied());
        let yardstick = comparison
            .sides
            .get(1)
            .map(|side| side.name.as_str())
            .unwrap_or_default();
        self.verdicts.push(Verdict {
            what: format!("{}: throughput against {yardstick}", comparison.title),
            target: format!("at least {target:.2} times"),
            measured: format!("{ratio:.2} ({least:.2} to {most:.2})"),
            met: ratio >= target,
            beside: Some(comparison.beside_throughput()),
        });
    }

    /// tailpost's CPU per event.
    pub fn judge_cpu(&mut self, comparison: &Comparison) {
        let what = format!("{}: CPU of the process per event", comparison.title);
        self.judge_most(
            what,
            comparison.cpu_per_event(),
            CPU_TARGET,
            "us",
            Some(comparison.beside_cpu()),
        );
    }

    /// The highest peak of all drains.
    pub fn judge_memory(&mut self) {
        let drains = self.comparisons.iter().filter_map(|comparison| {
            let ours = comparison.sides.first()?;
            Some((comparison.title.as_str(), ours.peak_rss() as f64 / 1e6))
        });
        if let Some((title, peak)) = drains.max_by(|one, other| one.1.total_cmp(&other.1)) {
            let what = "Each of the backlogs: peak RSS".to_owned();
            let beside = format!("the highest of all runs is of: {title}");
            self.judge_most(what, peak, RSS_TARGET_MB, "MB", Some(beside));
        }
    }

    /// At most so much of something. `beside`: what was measured that bounds it.
    pub fn judge_most(&mut self, what: String, measured: f64, target: f64, unit: &str, beside: Option<String>) {
        self.verdicts.push(Verdict {
            what,
            target: format!("at most {target} {unit}"),
            measured: format!("{measured:.2} {unit}"),
            met: measured <= target,
            beside,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_one_or_between_the_middle_two() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([4.0, 1.0, 3.0, 2.0]), 2.5);
        assert_eq!(median([]), 0.0);
    }

    #[test]
    fn a_ratio_is_of_pairs_and_above_one_where_tailpost_is_faster() {
        let side = |name: &str, seconds: [f64; 3]| Side {
            name: name.to_owned(),
            runs: seconds
                .map(|seconds| Usage {
                    seconds,
                    ..Usage::default()
                })
                .to_vec(),
        };
        let comparison = Comparison {
            row: "row".to_owned(),
            title: "a row".to_owned(),
            events: 1,
            payload_bytes: 1,
            sides: vec![side("tailpost", [1.0, 10.0, 2.0]), side("other", [2.0, 20.0, 3.0])],
        };
        assert_eq!(comparison.ratios(1), [2.0, 2.0, 1.5]);
        let mut results = Results::default();
        results.judge_ratio(&comparison, 2.0);
        assert!(results.verdicts[0].met);
        results.judge_ratio(&comparison, 2.1);
        assert!(!results.verdicts[1].met);
    }
}
