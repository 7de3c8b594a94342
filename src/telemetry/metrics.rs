//! The metrics: their names, help and units in one place.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use super::histogram::Histogram;
use super::status::{PipelineStatus, Snapshot, State};

/// All pipelines' metrics, read when asked for.
#[derive(Debug)]
struct PipelineCollector(Vec<Arc<PipelineStatus>>);

type Labels<'a> = Vec<(&'static str, &'a str)>;

/// Writes all metrics in OpenMetrics text, which Prometheus reads.
pub fn render(pipelines: &[Arc<PipelineStatus>]) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(PipelineCollector(pipelines.to_vec())));
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = encode(&mut text, &registry);
    text
}

impl Collector for PipelineCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let readings: Vec<(&Arc<PipelineStatus>, Snapshot)> =
            self.0.iter().map(|status| (status, status.snapshot())).collect();
        let mut out = Writer {
            encoder: &mut encoder,
            readings: &readings,
        };
        out.counter(
            "tailpost_events_received",
            "Changes that the source was sent",
            |_, s, add| add(vec![], s.totals.received),
        )?;
        out.counter(
            "tailpost_events_published",
            "Events that the sink acknowledged",
            |status, s, add| add(vec![("sink", status.sink.as_str())], s.totals.published),
        )?;
        out.counter(
            "tailpost_events_skipped",
            "Changes that were seen and not sent",
            |_, s, add| {
                s.totals
                    .skipped
                    .iter()
                    .try_for_each(|(reason, count)| add(vec![("reason", reason.label())], count))
            },
        )?;
        out.counter(
            "tailpost_events_dead_lettered",
            "Events that were parked",
            |_, s, add| {
                s.totals
                    .dead_lettered
                    .iter()
                    .try_for_each(|(reason, count)| add(vec![("reason", reason)], *count))
            },
        )?;
        out.counter(
            "tailpost_events_failed",
            "Deliveries reported failed, before retry or policy",
            |status, s, add| add(vec![("sink", status.sink.as_str())], s.totals.failed),
        )?;
        out.counter(
            "tailpost_restarts",
            "Times that a source or sink was started again",
            |_, s, add| add(vec![], s.totals.restarts),
        )?;
        out.counter(
            "tailpost_accepted_gaps",
            "Gaps that an operator accepted",
            |_, s, add| add(vec![], s.totals.accepted_gaps),
        )?;
        out.gauge(
            "tailpost_in_flight_events",
            "Events received and not settled yet",
            |s| Some(s.totals.in_flight() as f64),
        )?;
        out.gauge(
            "tailpost_in_flight_bytes",
            "Bytes of sent and unacknowledged records, with queue overhead",
            |s| Some(s.in_flight_bytes as f64),
        )?;
        out.gauge(
            "tailpost_source_lag_bytes",
            "Bytes of log between the acknowledged position and the log's end",
            |s| s.lag_bytes.map(|bytes| bytes as f64),
        )?;
        out.gauge(
            "tailpost_source_lag_seconds",
            "Age of the oldest event in flight, 0 when there is none",
            |s| Some(s.lag_seconds),
        )?;
        out.gauge("tailpost_checkpoint_age_seconds", "Seconds since the last save", |s| {
            s.checkpoint_age_seconds
        })?;
        out.gauge(
            "tailpost_confirmed_age_seconds",
            "Seconds since a position was last confirmed to the server",
            |s| s.confirmed_age_seconds,
        )?;
        out.gauge("tailpost_up", "1 while streaming", |s| {
            Some(f64::from(u8::from(s.state == State::Streaming)))
        })?;
        out.histogram(
            "tailpost_delivery_seconds",
            "From handing a record to the sink to its acknowledgement",
            |s| &s.delivery,
        )?;
        out.histogram(
            "tailpost_end_to_end_seconds",
            "From the commit to the sink's acknowledgement",
            |s| &s.end_to_end,
        )?;
        out.info()
    }
}

struct Writer<'a, 'b> {
    encoder: &'a mut DescriptorEncoder<'b>,
    readings: &'a [(&'a Arc<PipelineStatus>, Snapshot)],
}

impl Writer<'_, '_> {
    fn counter(
        &mut self,
        name: &str,
        help: &str,
        read: impl Fn(&PipelineStatus, &Snapshot, &mut dyn FnMut(Labels<'_>, u64) -> fmt::Result) -> fmt::Result,
    ) -> fmt::Result {
        let mut metric = self.encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (status, snapshot) in self.readings {
            read(status, snapshot, &mut |more, count| {
                let labels = labels(status, more);
                ConstCounter::new(count).encode(metric.encode_family(&labels)?)
            })?;
        }
        Ok(())
    }

    fn gauge(&mut self, name: &str, help: &str, read: impl Fn(&Snapshot) -> Option<f64>) -> fmt::Result {
        let mut metric = self.encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (status, snapshot) in self.readings {
            if let Some(value) = read(snapshot) {
                let labels = labels(status, vec![]);
                ConstGauge::new(value).encode(metric.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }

    fn histogram(&mut self, name: &str, help: &str, read: impl Fn(&Snapshot) -> &Histogram) -> fmt::Result {
        let mut metric = self
            .encoder
            .encode_descriptor(name, help, None, MetricType::Histogram)?;
        for (status, snapshot) in self.readings {
            let labels = labels(status, vec![]);
            read(snapshot).encode(metric.encode_family(&labels)?)?;
        }
        Ok(())
    }

    /// The pipelines' tenants and labels, as Prometheus' info metrics carry such.
    fn info(&mut self) -> fmt::Result {
        let mut metric =
            self.encoder
                .encode_descriptor("tailpost_pipeline_info", "Tenant and labels", None, MetricType::Gauge)?;
        for (status, _) in self.readings {
            let mut labels: Vec<(String, &str)> = vec![("pipeline".to_owned(), &status.name)];
            labels.extend(status.tenant.as_deref().map(|tenant| ("tenant".to_owned(), tenant)));
            for (prefix, given) in [("label", &status.labels), ("annotation", &status.annotations)] {
                labels.extend(
                    given
                        .iter()
                        .map(|(name, value)| (format!("{prefix}_{}", label_name(name)), value.as_str())),
                );
            }
            ConstGauge::new(1_u64).encode(metric.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

fn labels<'a>(status: &'a PipelineStatus, more: Labels<'a>) -> Labels<'a> {
    let mut labels = vec![("pipeline", status.name.as_str())];
    labels.extend(more);
    labels
}

fn label_name(name: &str) -> String {
    name.chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skip::SkipReason;

    #[test]
    fn the_sum_holds_in_every_rendering() {
        let status = PipelineStatus::named(
            "p",
            "k",
            Some("acme".to_owned()),
            Default::default(),
            Default::default(),
        );
        status.count(|totals| {
            totals.received = 10;
            totals.published = 7;
            totals.skipped.add(SkipReason::ForeignPrefix, 2);
        });
        let text = render(&[status]);
        for line in [
            "tailpost_events_received_total{pipeline=\"p\"} 10",
            "tailpost_events_published_total{pipeline=\"p\",sink=\"k\"} 7",
            "tailpost_events_skipped_total{pipeline=\"p\",reason=\"foreign_prefix\"} 2",
            "tailpost_in_flight_events{pipeline=\"p\"} 1.0",
            "tailpost_up{pipeline=\"p\"} 0.0",
            "tailpost_pipeline_info{pipeline=\"p\",tenant=\"acme\"} 1",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}
