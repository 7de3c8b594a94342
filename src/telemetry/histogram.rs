//! Durations by bucket, for latencies.

use std::fmt;
use std::time::Duration;

use prometheus_client::encoding::{MetricEncoder, NoLabelSet};

/// Upper bounds in seconds.
const BUCKETS: [f64; 17] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0,
];

/// Durations counted by bucket. Plain numbers: it is filled by one task and merged once per batch.
#[derive(Debug, Clone, Default)]
pub struct Histogram {
    counts: [u64; BUCKETS.len() + 1],
    sum: f64,
}

impl Histogram {
    pub fn observe(&mut self, duration: Duration) {
        let seconds = duration.as_secs_f64();
        let bucket = BUCKETS.partition_point(|bound| *bound < seconds);
        if let Some(count) = self.counts.get_mut(bucket) {
            *count += 1;
        }
        self.sum += seconds;
    }

    pub fn merge(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count += more;
        }
        self.sum += other.sum;
    }

    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    pub(super) fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let bounds = BUCKETS.into_iter().chain([f64::MAX]);
        let buckets: Vec<(f64, u64)> = bounds.zip(self.counts).collect();
        encoder.encode_histogram::<NoLabelSet>(self.sum, self.count(), &buckets, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_falls_into_the_first_bucket_that_holds_it() {
        let mut histogram = Histogram::default();
        for millis in [0, 1, 2, 400_000] {
            histogram.observe(Duration::from_millis(millis));
        }
        assert_eq!(histogram.count(), 4);
        assert_eq!(histogram.counts[..3], [1, 1, 1]);
        assert_eq!(histogram.counts[BUCKETS.len()], 1);
    }
}
