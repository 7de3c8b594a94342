//! Which batches are recorded, by OpenTelemetry's own variables. Of events, the application has decided that.

use super::SpanContext;

/// Of so many in 2^63, by the trace's id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sampling(u64);

const ALL: u64 = 1 << 63;

impl Sampling {
    /// Of `OTEL_TRACES_SAMPLER` and `OTEL_TRACES_SAMPLER_ARG`. A batch begins its trace, so those that go by a parent do what they
    /// do without one; all are recorded by a sampler that is not known here.
    pub fn of(sampler: Option<&str>, argument: Option<&str>) -> Self {
        let sampler = sampler.unwrap_or_default().trim();
        match sampler.strip_prefix("parentbased_").unwrap_or(sampler) {
            "always_off" => Self(0),
            "traceidratio" => {
                let ratio = argument.and_then(|text| text.trim().parse::<f64>().ok());
                let ratio = ratio.filter(|ratio| (0.0..=1.0).contains(ratio)).unwrap_or(1.0);
                Self((ratio * ALL as f64) as u64)
            }
            _ => Self(ALL),
        }
    }

    pub fn records(self, context: &SpanContext) -> bool {
        let [.., a, b, c, d, e, f, g, h] = context.trace_id;
        u64::from_be_bytes([a, b, c, d, e, f, g, h]) >> 1 < self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context(low: u64) -> SpanContext {
        SpanContext {
            trace_id: u128::from(low).to_be_bytes(),
            span_id: [1; 8],
        }
    }

    #[test]
    fn the_variables_say_how_many() {
        let records = |sampler, argument, low| Sampling::of(Some(sampler), argument).records(&context(low));
        assert!(Sampling::of(None, None).records(&context(u64::MAX)));
        for sampler in ["always_on", "parentbased_always_on", "jaeger_remote", ""] {
            assert!(records(sampler, None, u64::MAX), "{sampler}");
        }
        assert!(!records("always_off", None, 0));
        assert!(!records("parentbased_always_off", Some("1"), 0));
        let quarter = u64::MAX / 4;
        assert!(records("traceidratio", Some("0.25"), quarter - 1));
        assert!(!records("parentbased_traceidratio", Some(" 0.25 "), quarter + 2));
        assert!(!records("traceidratio", Some("0"), 0));
        for argument in [None, Some("2"), Some("-1"), Some("NaN"), Some("many")] {
            assert!(records("traceidratio", argument, u64::MAX), "{argument:?}");
        }
    }
}
