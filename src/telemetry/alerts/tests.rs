mod deployed;

use super::*;
use crate::telemetry::report::{Pending, States};

fn streaming() -> PipelineReport {
    PipelineReport {
        name: "orders".to_owned(),
        source: State::Streaming,
        ready: true,
        since: 1000,
        ..PipelineReport::default()
    }
}

fn found(pipeline: PipelineReport, now: u64) -> Vec<(Kind, String)> {
    let report = Report {
        now,
        pipelines: vec![pipeline],
        ..Report::default()
    };
    let alerts = check(&report, &Thresholds::default());
    alerts.into_iter().map(|alert| (alert.alert, alert.text)).collect()
}

fn kinds(pipeline: PipelineReport, now: u64) -> Vec<Kind> {
    found(pipeline, now).into_iter().map(|(kind, _)| kind).collect()
}

#[test]
fn a_limit_is_reached_at_its_value() {
    let states = |dead, events_read| States {
        dead,
        pending: Pending {
            events_read,
            bytes: None,
        },
        ..States::default()
    };
    assert_eq!(kinds(streaming(), 1_000_000), []);
    for (below, at, kind) in [
        (
            PipelineReport {
                states: states(0, 0),
                ..streaming()
            },
            PipelineReport {
                states: states(1, 0),
                ..streaming()
            },
            Kind::DeadLetters,
        ),
        (
            PipelineReport {
                states: states(0, 199),
                ..streaming()
            },
            PipelineReport {
                states: states(0, 200),
                ..streaming()
            },
            Kind::PendingEvents,
        ),
        (
            PipelineReport {
                restarts: 49,
                ..streaming()
            },
            PipelineReport {
                restarts: 50,
                ..streaming()
            },
            Kind::Restarts,
        ),
        (
            PipelineReport {
                oldest_unpublished_seconds: 899.9,
                ..streaming()
            },
            PipelineReport {
                oldest_unpublished_seconds: 900.0,
                ..streaming()
            },
            Kind::OldestUnpublished,
        ),
        (
            PipelineReport {
                stalled_seconds: 599.0,
                ..streaming()
            },
            PipelineReport {
                stalled_seconds: 600.0,
                ..streaming()
            },
            Kind::Stalled,
        ),
        (
            PipelineReport {
                lag_bytes: Some((1 << 30) - 1),
                ..streaming()
            },
            PipelineReport {
                lag_bytes: Some(1 << 30),
                ..streaming()
            },
            Kind::Lag,
        ),
    ] {
        assert_eq!(kinds(below, 1000), []);
        assert_eq!(kinds(at, 1000), [kind]);
    }
}

#[test]
fn a_pipeline_that_ended_is_an_alert_at_once_and_one_that_waits_after_a_while() {
    let failed = PipelineReport {
        source: State::Failed {
            reason: "slot lost".to_owned(),
        },
        ready: false,
        ..streaming()
    };
    assert_eq!(found(failed, 1000), [(Kind::Failed, "slot lost".to_owned())]);
    let waiting = PipelineReport {
        source: State::Waiting {
            reason: "refused".to_owned(),
        },
        ready: false,
        not_ready_because: Some("waiting: refused".to_owned()),
        ..streaming()
    };
    assert_eq!(found(waiting.clone(), 1599), []);
    assert_eq!(
        found(waiting, 1600),
        [(Kind::Down, "no stream for 10 min 0 s: waiting: refused".to_owned())]
    );
    // Another instance does the work, or an operator knows.
    for source in [
        State::StandBy {
            reason: "in use".to_owned(),
        },
        State::Paused,
        State::Draining,
        State::Stopped,
    ] {
        let pipeline = PipelineReport { source, ..streaming() };
        assert_eq!(found(pipeline, 1_000_000), []);
    }
}

#[test]
fn what_is_off_is_never_reached() {
    let overrides = Overrides {
        dead_letters: Some(Limit::Off),
        ..Overrides::default()
    };
    let report = Report {
        pipelines: vec![PipelineReport {
            states: States {
                dead: u64::MAX,
                ..States::default()
            },
            ..streaming()
        }],
        ..Report::default()
    };
    assert_eq!(check(&report, &Thresholds::default().with(&overrides)), []);
    let [alert] = &check(&report, &Thresholds::default())[..] else {
        panic!("one alert")
    };
    assert!(
        alert
            .line()
            .starts_with("orders: dead_letters: 18446744073709551615 dead letters since")
    );
}

#[test]
fn the_names_are_those_of_the_json() {
    for kind in Kind::ALL {
        assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
    }
}
