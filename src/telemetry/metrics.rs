//! The metrics: what is in [`METRICS`] is what `/metrics` renders and what docs/operate.md lists.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::processor::DeadLetterReason;

use super::histogram::Histogram;
use super::status::{Kept, PipelineStatus, SinkSnapshot, Snapshot, State};

mod table;

pub use table::METRICS;

/// What the names of all metrics begin with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prefix(String);

impl Default for Prefix {
    fn default() -> Self {
        Self("tailpost".to_owned())
    }
}

impl FromStr for Prefix {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let plain = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
        let is_name = text.bytes().next().is_some_and(plain)
            && text.bytes().all(|byte| plain(byte) || byte.is_ascii_digit())
            && !text.ends_with('_')
            && text.len() <= 64;
        match is_name {
            true => Ok(Self(text.to_owned())),
            false => Err(
                "expected a name of a-z, A-Z, 0-9 and `_` that begins with no digit and ends with no `_`, 64 at most",
            ),
        }
    }
}

/// One metric.
#[derive(Debug, Clone, Copy)]
pub struct Metric {
    /// Without the prefix, and of a counter without `_total`.
    pub name: &'static str,
    /// Of what it counts or measures.
    pub unit: &'static str,
    /// Beside `pipeline`.
    pub labels: &'static [&'static str],
    pub help: &'static str,
    reading: Reading,
}

/// A sample's labels beside `pipeline`, and its value.
type Add<'a> = dyn FnMut(&[(&'static str, &str)], f64) -> fmt::Result + 'a;

/// How a metric is read.
#[derive(Debug, Clone, Copy)]
enum Reading {
    Counter(fn(&PipelineStatus, &Snapshot, &mut CountTo<'_>) -> fmt::Result),
    /// None: not known, and not rendered.
    Gauge(fn(&Snapshot) -> Option<f64>),
    /// One for each value of a label.
    Gauges(fn(&Snapshot, &mut Add<'_>) -> fmt::Result),
    Histogram(fn(&Snapshot) -> &Histogram),
    /// Always 1: the file's tenant, labels and annotations are its labels.
    Info,
}

type CountTo<'a> = dyn FnMut(&[(&'static str, &str)], u64) -> fmt::Result + 'a;

impl Metric {
    /// The name with which its samples are rendered; of a histogram what their names begin with.
    pub fn full_name(&self, prefix: &Prefix) -> String {
        let Prefix(prefix) = prefix;
        match self.reading {
            Reading::Counter(_) => format!("{prefix}_{}_total", self.name),
            _ => format!("{prefix}_{}", self.name),
        }
    }

    pub fn kind(&self) -> &'static str {
        match self.reading {
            Reading::Counter(_) => "counter",
            Reading::Gauge(_) | Reading::Gauges(_) | Reading::Info => "gauge",
            Reading::Histogram(_) => "histogram",
        }
    }

    fn metric_type(&self) -> MetricType {
        match self.reading {
            Reading::Counter(_) => MetricType::Counter,
            Reading::Gauge(_) | Reading::Gauges(_) | Reading::Info => MetricType::Gauge,
            Reading::Histogram(_) => MetricType::Histogram,
        }
    }
}

/// Writes all metrics in OpenMetrics text, which Prometheus reads.
pub fn render(pipelines: &[Arc<PipelineStatus>], Prefix(prefix): &Prefix) -> String {
    let mut registry = Registry::with_prefix(prefix.as_str());
    registry.register_collector(Box::new(PipelineCollector(pipelines.to_vec())));
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = encode(&mut text, &registry);
    text
}

/// All pipelines' metrics, read when asked for.
#[derive(Debug)]
struct PipelineCollector(Vec<Arc<PipelineStatus>>);

impl Collector for PipelineCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        // Read once: the sums hold within one rendering.
        let readings: Vec<(&PipelineStatus, Snapshot)> =
            self.0.iter().map(|status| (&**status, status.snapshot())).collect();
        METRICS.iter().try_for_each(|metric| {
            let family = encoder.encode_descriptor(metric.name, metric.help, None, metric.metric_type())?;
            write(metric, family, &readings)
        })
    }
}

fn write(metric: &Metric, mut family: MetricEncoder<'_>, readings: &[(&PipelineStatus, Snapshot)]) -> fmt::Result {
    for (status, snapshot) in readings {
        let labels = |more: &[(&'static str, &str)]| -> Vec<(String, String)> {
            let own = std::iter::once(("pipeline", status.name.as_str()));
            let all = own.chain(more.iter().copied());
            all.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
        };
        match metric.reading {
            Reading::Counter(read) => read(status, snapshot, &mut |more, count| {
                ConstCounter::new(count).encode(family.encode_family(&labels(more))?)
            })?,
            Reading::Gauge(read) => {
                if let Some(value) = read(snapshot) {
                    ConstGauge::new(value).encode(family.encode_family(&labels(&[]))?)?;
                }
            }
            Reading::Gauges(read) => read(snapshot, &mut |more, value| {
                ConstGauge::new(value).encode(family.encode_family(&labels(more))?)
            })?,
            Reading::Histogram(read) => read(snapshot).encode(family.encode_family(&labels(&[]))?)?,
            Reading::Info => ConstGauge::new(1_u64).encode(family.encode_family(&info(status))?)?,
        }
    }
    Ok(())
}

/// The pipeline's tenant and labels, as Prometheus' info metrics carry such.
fn info(status: &PipelineStatus) -> Vec<(String, String)> {
    let mut labels = vec![("pipeline".to_owned(), status.name.clone())];
    labels.extend(status.tenant.iter().map(|tenant| ("tenant".to_owned(), tenant.clone())));
    for (prefix, given) in [("label", &status.labels), ("annotation", &status.annotations)] {
        labels.extend(
            given
                .iter()
                .map(|(name, value)| (format!("{prefix}_{}", label_name(name)), value.clone())),
        );
    }
    labels
}

fn label_name(name: &str) -> String {
    name.chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
        .collect()
}

#[cfg(test)]
pub(super) mod tests;
