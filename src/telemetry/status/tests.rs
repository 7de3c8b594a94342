use super::*;
use crate::processor::DeadLetterReason;
use crate::relay::in_flight::Settled;

fn status() -> Arc<PipelineStatus> {
    PipelineStatus::named("p", "k", None, Default::default(), Default::default())
}

fn waiting(reason: &str) -> State {
    State::Waiting {
        reason: reason.to_owned(),
    }
}

#[test]
fn a_pause_is_shown_in_place_of_what_goes_on_behind_it_and_never_of_an_end() {
    let status = status();
    assert!(status.pause(true));
    assert!(!status.pause(true), "it is paused already");
    for (state, shown, ready) in [
        (State::Starting, State::Paused, "paused; starting"),
        (State::Streaming, State::Paused, "paused"),
        (waiting("refused"), State::Paused, "paused; waiting: refused"),
        (State::Draining, State::Draining, "draining"),
        (State::Stopped, State::Stopped, "stopped"),
    ] {
        status.enter(state.clone());
        let snapshot = status.snapshot();
        assert_eq!((&snapshot.state, snapshot.paused), (&shown, true));
        assert_eq!(snapshot.ready, Err(ready.to_owned()));
        assert_eq!(status.state(), state, "what its parts see");
    }
    assert!(status.pause(false));
    status.enter(State::Streaming);
    assert_eq!(status.snapshot().ready, Ok(()));
}

#[test]
fn every_part_says_its_reason() {
    let status = status();
    status.enter(State::Streaming);
    status.sink_trouble(Some("no broker".to_owned()));
    status.checkpoint_trouble(Some("disk full".to_owned()));
    let snapshot = status.snapshot();
    assert_eq!(snapshot.ready, Err("no broker; disk full".to_owned()));
    let parts: Vec<Part> = snapshot.not_ready.iter().map(|found| found.part).collect();
    assert_eq!(parts, [Part::Sink, Part::Checkpoint]);
    status.retry(Part::Sink, Duration::from_secs(1));
    status.enter(waiting("fenced"));
    assert_eq!(status.snapshot().not_ready[0].part, Part::Sink);
}

#[test]
fn tries_in_a_row_are_counted_until_one_goes_well() {
    let status = status();
    let attempt = |status: &PipelineStatus| status.snapshot().retry.map(|retry| retry.attempt);
    assert_eq!(attempt(&status), None);
    for expected in 1..=3 {
        status.retry(Part::Source, Duration::from_secs(1));
        status.enter(waiting("refused"));
        assert_eq!(attempt(&status), Some(expected));
    }
    status.streaming();
    assert_eq!(attempt(&status), None, "nothing is waited for");
    status.retry(Part::Sink, Duration::from_secs(1));
    status.enter(waiting("fenced"));
    assert_eq!(attempt(&status), Some(1));
    // That the source streams says nothing of the sink.
    status.streaming();
    status.retry(Part::Sink, Duration::from_secs(1));
    status.enter(waiting("fenced"));
    assert_eq!(attempt(&status), Some(2));
}

#[test]
fn another_reason_does_not_begin_the_state_anew() {
    let status = status();
    status.enter(waiting("refused"));
    let since = status.snapshot().since;
    status.enter(waiting("timed out"));
    let snapshot = status.snapshot();
    assert_eq!(snapshot.since, since);
    assert_eq!(snapshot.state, waiting("timed out"));
    assert_eq!(snapshot.last_error.as_deref(), Some("timed out"));
    assert!(snapshot.last_error_at.is_some());
}

/// A pipeline with three sinks of which two must have an event.
fn of_three() -> Arc<PipelineStatus> {
    let further = ["b", "c"].map(|id| {
        Arc::new(PipelineStatus {
            required: false,
            ..PipelineStatus::blank("p", id)
        })
    });
    Arc::new(PipelineStatus {
        required: false,
        quorum: Some(2),
        further: further.into(),
        ..PipelineStatus::blank("p", "a")
    })
}

#[test]
fn a_quorum_is_ready_and_as_old_as_the_best_so_many_sinks() {
    let status = of_three();
    status.enter(State::Streaming);
    status.sink_trouble(Some("gone".to_owned()));
    status.in_flight(5, 50, Some(0));
    status.further_sinks()[0].in_flight(2, 20, Some(i64::MAX));
    let snapshot = status.snapshot();
    assert_eq!(snapshot.ready, Ok(()));
    assert_eq!((snapshot.in_flight_records, snapshot.in_flight_bytes), (2, 20));
    assert_eq!(snapshot.lag_seconds, 0.0);
    status.further_sinks()[1].sink_gone(Some("full".to_owned()));
    let reason = status.snapshot().ready.unwrap_err();
    assert!(
        reason.ends_with("1 of 2 sinks that `commit_policy` asks for take events: sink `a`: gone; sink `c`: full"),
        "{reason}"
    );
    status.further_sinks()[1].in_flight(1, 10, Some(0));
    assert!(status.snapshot().lag_seconds > 0.0);
}

#[test]
fn dead_letters_of_late_are_those_of_all_sinks() {
    let status = of_three();
    let parked = |count| Progress {
        settled: Settled {
            dead_lettered: [(DeadLetterReason::PoisonMessage, count)].into(),
            ..Settled::default()
        },
        ..Progress::default()
    };
    status.settled(&parked(7));
    assert_eq!(status.snapshot().dead_letters_of_late, 0, "nobody asked");
    status.watch_dead_letters(Duration::from_secs(3600));
    status.settled(&parked(1));
    status.further_sinks()[1].settled(&parked(2));
    assert_eq!(status.snapshot().dead_letters_of_late, 3);
}

#[test]
fn a_retry_is_of_its_sink_until_that_is_gone() {
    let status = of_three();
    let retry = SinkRetry {
        attempts: 3,
        at: SystemTime::now(),
        keys: 1,
        is_reached: true,
    };
    let further = &status.further_sinks()[0];
    further.sink_retry(Some((retry, "answers 500")), "answers 500");
    let of_sinks = || {
        status
            .snapshot()
            .sinks
            .iter()
            .map(|sink| sink.retry)
            .collect::<Vec<_>>()
    };
    assert_eq!(of_sinks(), [None, Some(retry), None]);
    status.further_sinks()[0].sink_gone(Some("forbidden".to_owned()));
    assert_eq!(of_sinks(), [None; 3]);
}

#[test]
fn a_snapshot_has_the_counts_of_its_sink_of_the_same_moment() {
    let status = status();
    std::thread::scope(|scope| {
        let counting = scope.spawn(|| {
            for _ in 0..20_000 {
                status.count(|totals| {
                    totals.received += 1;
                    totals.published += 1;
                });
            }
        });
        while !counting.is_finished() {
            let snapshot = status.snapshot();
            assert_eq!(snapshot.sinks[0].published, snapshot.totals.published);
        }
    });
}
