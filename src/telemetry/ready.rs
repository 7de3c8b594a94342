//! Bounds past which a pipeline is not ready, though it does what it can. None holds unless somebody asks for it: to take a process out
//! brings nothing forward.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::config::quantity::{self, parse_duration, parse_size, show_duration};

use super::status::{NotReady, Part, Snapshot};

/// As the command line has them.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ReadyBounds {
    pub max_lag: Option<MaxLag>,
    /// How often a sink may have tried a delivery in vain. Until then it is ready, if its target can be reached.
    pub max_attempts: Option<u32>,
    pub max_dead_letters: Option<MaxDeadLetters>,
}

impl ReadyBounds {
    /// What the pipeline has exceeded.
    pub(super) fn exceeded_by(&self, snapshot: &Snapshot) -> Vec<NotReady> {
        let of_pipeline = |reason| NotReady {
            part: Part::Pipeline,
            reason,
        };
        let of_sinks = self.max_attempts.into_iter().flat_map(|max| too_often(max, snapshot));
        let of_sinks = of_sinks.map(|reason| NotReady {
            part: Part::Sink,
            reason,
        });
        let lag = self.max_lag.and_then(|max| max.exceeded_by(snapshot));
        let letters = self.max_dead_letters.and_then(|max| max.exceeded_by(snapshot));
        of_sinks
            .chain(lag.map(of_pipeline))
            .chain(letters.map(of_pipeline))
            .collect()
    }
}

/// Of each sink that tried a delivery more often.
fn too_often(max: u32, snapshot: &Snapshot) -> impl Iterator<Item = String> {
    snapshot.sinks.iter().filter_map(move |sink| {
        let attempts = sink.retry?.attempts;
        let is_over = attempts > max;
        is_over.then(|| {
            format!(
                "sink `{}`: a delivery was tried {attempts} times, more than --ready-max-attempts of {max}",
                sink.id
            )
        })
    })
}

/// How far a pipeline may be behind and be ready.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum MaxLag {
    /// Of log between what is acknowledged and the log's end.
    Bytes(u64),
    /// Of the oldest event that is read and not published.
    Seconds(f64),
}

impl MaxLag {
    fn exceeded_by(self, snapshot: &Snapshot) -> Option<String> {
        match self {
            Self::Bytes(max) => {
                let bytes = snapshot.lag_bytes.filter(|bytes| *bytes > max)?;
                Some(format!("{bytes} bytes behind, more than --ready-max-lag of {max}"))
            }
            Self::Seconds(max) => {
                let seconds = snapshot.oldest_unpublished_seconds;
                let is_over = seconds > max;
                is_over.then(|| format!("{seconds:.0} s behind, more than --ready-max-lag of {max:.0} s"))
            }
        }
    }
}

impl FromStr for MaxLag {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let age = parse_duration(text).map(|age| Self::Seconds(age.as_secs_f64()));
        let lag = age.or_else(|| parse_size(text).map(Self::Bytes));
        lag.ok_or_else(|| format!("expected {}, or {}", quantity::SIZE, quantity::DURATION))
    }
}

/// How many dead letters a pipeline may park within a time and be ready: `10/15m`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MaxDeadLetters {
    pub count: u64,
    pub within: Duration,
}

impl MaxDeadLetters {
    const SHORTEST: Duration = Duration::from_secs(1);
    const LONGEST: Duration = Duration::from_secs(7 * 24 * 60 * 60);

    fn exceeded_by(self, snapshot: &Snapshot) -> Option<String> {
        let count = snapshot.dead_letters_of_late;
        let is_over = count > self.count;
        is_over.then(|| {
            format!(
                "{count} dead letters within {}, more than --ready-max-dead-letters of {self}",
                show_duration(self.within)
            )
        })
    }
}

impl fmt::Display for MaxDeadLetters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.count, show_duration(self.within))
    }
}

impl FromStr for MaxDeadLetters {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parsed = text.split_once('/').and_then(|(count, within)| {
            Some(Self {
                count: count.parse().ok()?,
                within: parse_duration(within).filter(|time| (Self::SHORTEST..=Self::LONGEST).contains(time))?,
            })
        });
        parsed.ok_or_else(|| "expected a count and a time from 1s to 7d, such as 10/15m".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::processor::DeadLetterReason;
    use crate::relay::in_flight::{Progress, Settled};
    use crate::telemetry::report::Report;
    use crate::telemetry::report::tests::{eventful, retry};
    use crate::telemetry::status::{PipelineStatus, SourceView};

    /// Why such a pipeline is not ready.
    fn reason(status: &PipelineStatus, bounds: ReadyBounds) -> Option<String> {
        let mut report = Report::of([status], &bounds);
        let is_ready = report.is_ready();
        let found = report.pipelines.remove(0);
        assert_eq!(found.not_ready_because.is_none(), is_ready);
        let parts: Vec<&str> = found.not_ready.iter().map(|found| found.reason.as_str()).collect();
        assert_eq!(found.not_ready_because.as_deref().unwrap_or_default(), parts.join("; "));
        found.not_ready_because
    }

    /// [`eventful`], which streams again.
    fn streaming() -> Arc<PipelineStatus> {
        let status = eventful();
        status.sink_retried(None);
        SourceView::new(Arc::clone(&status)).streaming();
        status
    }

    #[test]
    fn a_pipeline_that_is_too_far_behind_is_not_ready() {
        let status = streaming();
        let of = |max_lag| {
            let max_lag = Some(max_lag);
            reason(
                &status,
                ReadyBounds {
                    max_lag,
                    ..ReadyBounds::default()
                },
            )
        };
        assert_eq!(reason(&status, ReadyBounds::default()), None);
        assert_eq!(of(MaxLag::Bytes(28_672)), None);
        assert_eq!(of(MaxLag::Seconds(f64::MAX)), None);
        assert_eq!(
            of(MaxLag::Bytes(28_671)).as_deref(),
            Some("28672 bytes behind, more than --ready-max-lag of 28671")
        );
        let late = of(MaxLag::Seconds(60.0)).unwrap();
        assert!(late.ends_with("s behind, more than --ready-max-lag of 60 s"), "{late}");
    }

    #[test]
    fn a_delivery_may_be_tried_so_often_where_its_target_can_be_reached() {
        let status = streaming();
        let of = |max_attempts| {
            reason(
                &status,
                ReadyBounds {
                    max_attempts,
                    ..ReadyBounds::default()
                },
            )
        };
        status.sink_retry(Some((retry(3, true), "answers 500")), "answers 500");
        assert_eq!(
            of(None).as_deref(),
            Some("answers 500"),
            "at once, unless it is asked for"
        );
        assert_eq!(of(Some(3)), None);
        let over = "sink `k1`: a delivery was tried 3 times, more than --ready-max-attempts of 2";
        assert_eq!(of(Some(2)), Some(format!("answers 500; {over}")));
        // A target that is away is another thing than one that does not take an event.
        status.sink_retry(Some((retry(1, false), "refused")), "refused");
        assert_eq!(of(Some(3)).as_deref(), Some("refused"));
        // Another trouble than of these deliveries, such as with dead letters.
        status.sink_retry(Some((retry(1, true), "answers 500")), "answers 500");
        status.sink_trouble(Some("disk full".to_owned()));
        assert_eq!(of(Some(3)).as_deref(), Some("disk full"));
        status.sink_trouble(None);
        status.sink_retried(Some((retry(1, true), "answers 500")));
        assert_eq!(of(Some(3)), None);
        assert_eq!(
            of(None).as_deref(),
            Some("answers 500"),
            "one went through, another did not"
        );
        status.sink_retried(None);
        assert_eq!(of(None), None);
    }

    #[test]
    fn dead_letters_of_late_count_and_older_ones_do_not() {
        let max = |count| MaxDeadLetters {
            count,
            within: Duration::from_secs(900),
        };
        let status = streaming();
        let of = |max| {
            let max_dead_letters = Some(max);
            reason(
                &status,
                ReadyBounds {
                    max_dead_letters,
                    ..ReadyBounds::default()
                },
            )
        };
        status.watch_dead_letters(max(0).within);
        assert_eq!(of(max(0)), None, "those from before are none of late");
        status.settled(&Progress {
            settled: Settled {
                dead_lettered: [(DeadLetterReason::PoisonMessage, 2)].into(),
                ..Settled::default()
            },
            ..Progress::default()
        });
        assert_eq!(of(max(2)), None);
        assert_eq!(
            of(max(1)).as_deref(),
            Some("2 dead letters within 15m, more than --ready-max-dead-letters of 1/15m")
        );
    }

    #[test]
    fn bounds_are_read_as_they_are_written() {
        let letters = |text: &str| text.parse::<MaxDeadLetters>();
        for (text, count, seconds) in [("10/15m", 10, 900), ("0/1s", 0, 1), ("5/7d", 5, 604_800)] {
            let within = Duration::from_secs(seconds);
            assert_eq!(letters(text), Ok(MaxDeadLetters { count, within }), "{text}");
        }
        for text in ["", "10", "10/", "/15m", "-1/15m", "1/0s", "1/999ms", "1/8d", "1/15m/2"] {
            assert!(letters(text).is_err(), "{text}");
        }
        assert_eq!("64MiB".parse(), Ok(MaxLag::Bytes(64 << 20)));
        assert_eq!("5m".parse(), Ok(MaxLag::Seconds(300.0)));
        assert!("much".parse::<MaxLag>().is_err());
    }
}
