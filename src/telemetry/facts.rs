//! What an operator is shown of a pipeline, line by line: the same on the terminal and on the page.

use std::time::Duration;

use jiff::Timestamp;

use super::report::{PipelineReport, SinkReport, SinkRetryReport};
use super::status::{Kept, Part, State};

/// A line: what it is about, and what it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fact {
    pub(super) about: &'static str,
    pub(super) text: String,
}

/// The state and since when, in one line. `now` is in seconds since 1970.
pub(super) fn headline(pipeline: &PipelineReport, now: u64) -> String {
    let state = pipeline.source.name().replace('_', " ");
    let (since, age) = (clock(pipeline.since), age(now.saturating_sub(pipeline.since)));
    format!("{state} since {since} ({age})")
}

/// Everything else, the most important first.
pub(super) fn facts(pipeline: &PipelineReport) -> Vec<Fact> {
    let p = pipeline;
    let mut facts = Vec::new();
    let mut say = |about, text: Option<String>| facts.extend(text.map(|text| Fact { about, text }));
    let ready = match &p.not_ready_because {
        Some(reason) => format!("no: {reason}"),
        None => "yes".to_owned(),
    };
    say("ready", Some(ready));
    let at_rest = if p.at_rest { "yes" } else { "not yet" };
    say("at rest", p.paused.then(|| at_rest.to_owned()));
    say("next retry", next_retry(p));
    say("last error", last_error(p));
    let per_second = p.published_per_second;
    say(
        "published",
        Some(format!(
            "{}, {per_second:.1}/s over the last minute",
            p.states.published
        )),
    );
    say("pending", Some(pending(p)));
    let (claimed, records, bytes) = (p.states.claimed, p.in_flight_records, size(p.in_flight_bytes));
    let claimed = format!("{claimed} in flight; with the sink: {records}, {bytes}");
    say("claimed", Some(claimed));
    say("dead", Some(dead(p)));
    let oldest = match p.oldest_unpublished_seconds {
        seconds if seconds > 0.0 => format!("{} old", seconds_text(seconds)),
        _ => "none".to_owned(),
    };
    say("oldest unpublished", Some(oldest));
    let bytes = p
        .lag_bytes
        .map_or("not known yet".to_owned(), |bytes| format!("{} of log", size(bytes)));
    let seconds = (p.lag_seconds > 0.0).then(|| format!("; oldest event in flight: {}", seconds_text(p.lag_seconds)));
    say("lag", Some(bytes + &seconds.unwrap_or_default()));
    let stalled = (p.stalled_seconds >= 1.0).then(|| format!("nothing done for {}", seconds_text(p.stalled_seconds)));
    say("stalled", stalled);
    for (about, place) in [
        ("read", &p.positions.read),
        ("acked", &p.positions.acked),
        ("saved", &p.positions.saved),
        ("confirmed", &p.positions.confirmed),
    ] {
        let age = p.checkpoint_age_seconds.filter(|_| about == "saved");
        let age = age.map(|age| format!(" ({} ago)", seconds_text(age)));
        say(about, place.clone().map(|place| place + &age.unwrap_or_default()));
    }
    if p.sinks.len() > 1 {
        p.sinks.iter().for_each(|one| say("sink", Some(sink(one))));
    }
    say("server keeps", p.server_keeps.as_ref().map(kept));
    say("restarts", Some(p.restarts.to_string()));
    let gaps = (p.accepted_gaps > 0).then(|| p.accepted_gaps.to_string());
    say("accepted gaps", gaps);
    facts
}

/// One of several.
fn sink(sink: &SinkReport) -> String {
    let mut text = format!("{}: published {}", sink.id, sink.published);
    let mut add = |more: String| text.push_str(&more);
    match (sink.required, sink.lost) {
        (true, _) => {}
        (false, lost) => add(format!(", not waited for, lost {lost}")),
    }
    if sink.dead > 0 {
        add(format!(", dead {}", sink.dead));
    }
    if sink.oldest_unpublished_seconds > 0.0 {
        add(format!(
            ", oldest in flight {}",
            seconds_text(sink.oldest_unpublished_seconds)
        ));
    }
    if let Some(trouble) = &sink.trouble {
        add(format!("; {trouble}"));
    }
    if let Some(retry) = &sink.retry {
        add(format!("; {}", tried(retry)));
    }
    text
}

fn next_retry(p: &PipelineReport) -> Option<String> {
    let of_sink = || {
        let waits = p.not_ready.iter().any(|found| found.part == Part::Sink);
        waits.then(|| "the sink's client connects again by itself, every few seconds".to_owned())
    };
    let Some(retry) = &p.retry else { return of_sink() };
    let Some(id) = &retry.sink else {
        return Some(format!(
            "attempt {} of the {} in {}, at {}",
            retry.attempt,
            retry.part.name(),
            seconds_text(retry.next_in_seconds),
            clock(retry.next_at)
        ));
    };
    let sink = p.sinks.iter().find(|sink| sink.id == *id)?;
    Some(format!("sink {id}: {}", tried(sink.retry.as_ref()?)))
}

/// What a sink tries again by itself.
fn tried(retry: &SinkRetryReport) -> String {
    let times = match retry.attempt {
        1 => "once".to_owned(),
        attempts => format!("{attempts} times"),
    };
    let at = clock(retry.next_at);
    let next = match retry.next_in_seconds {
        seconds if seconds > 0.0 => format!("in {}, at {at}", seconds_text(seconds)),
        _ => format!("since {at}"),
    };
    format!("tried {times}, again {next}; keys that wait for it: {}", retry.keys)
}

fn last_error(p: &PipelineReport) -> Option<String> {
    let error = p.last_error.as_ref()?;
    Some(match p.last_error_at {
        Some(at) => format!("{}: {error}", clock(at)),
        None => error.clone(),
    })
}

fn pending(p: &PipelineReport) -> String {
    let pending = &p.states.pending;
    let bytes = pending
        .bytes
        .map_or("not known yet".to_owned(), |bytes| format!("{} of log", size(bytes)));
    format!("{bytes}; events read and waiting: {}", pending.events_read)
}

fn dead(p: &PipelineReport) -> String {
    let reasons = p.events.dead_lettered.iter().filter(|(_, count)| **count > 0);
    let reasons: Vec<String> = reasons.map(|(reason, count)| format!("{reason} {count}")).collect();
    match reasons.is_empty() {
        true => p.states.dead.to_string(),
        false => format!("{} ({})", p.states.dead, reasons.join(", ")),
    }
}

fn kept(kept: &Kept) -> String {
    match kept {
        Kept::Slot {
            slot,
            bytes,
            wal_status,
        } => {
            let bytes = bytes.map_or("nothing".to_owned(), size);
            let status = wal_status.as_deref().unwrap_or("not known");
            format!("{bytes} of WAL for slot {slot}, wal_status {status}")
        }
        Kept::Binlog {
            oldest_file,
            files,
            bytes,
        } => format!("binlog from {oldest_file} on, files: {files}, {}", size(*bytes)),
    }
}

/// What a person makes of the state, for a colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mood {
    Good,
    /// It is as somebody wanted it, or may heal.
    Waits,
    /// A person must act.
    Bad,
}

pub(super) fn mood(pipeline: &PipelineReport) -> Mood {
    match &pipeline.source {
        State::Failed { .. } => Mood::Bad,
        State::Streaming if pipeline.ready => Mood::Good,
        _ => Mood::Waits,
    }
}

/// A time in UTC.
pub(super) fn clock(unix_seconds: u64) -> String {
    let seconds = i64::try_from(unix_seconds).unwrap_or(i64::MAX);
    match Timestamp::from_second(seconds) {
        Ok(time) => time.strftime("%Y-%m-%d %H:%M:%S UTC").to_string(),
        Err(_) => format!("{unix_seconds} s after 1970"),
    }
}

fn seconds_text(seconds: f64) -> String {
    match Duration::try_from_secs_f64(seconds) {
        Ok(duration) if duration < Duration::from_secs(60) => format!("{seconds:.1} s"),
        Ok(duration) => age(duration.as_secs()),
        Err(_) => format!("{seconds} s"),
    }
}

/// Whole seconds in their two largest units.
pub(super) fn age(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

pub(super) fn size(bytes: u64) -> String {
    let mut value = bytes as f64;
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    for unit in ["KiB", "MiB", "GiB"] {
        value /= 1024.0;
        if value < 1024.0 {
            return format!("{value:.1} {unit}");
        }
    }
    format!("{:.1} TiB", value / 1024.0)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::UNIX_EPOCH;

    use super::*;
    use crate::telemetry::ready::ReadyBounds;
    use crate::telemetry::report::Report;
    use crate::telemetry::report::tests::{eventful, retry};
    use crate::telemetry::status::{SinkRetry, SourceView};

    #[test]
    fn what_a_sink_tries_again_is_told_with_how_often_and_when() {
        let status = eventful();
        SourceView::new(Arc::clone(&status)).streaming();
        let told = |attempts, at| {
            status.sink_retried(Some((
                SinkRetry {
                    at,
                    ..retry(attempts, true)
                },
                "answers 500",
            )));
            let mut report = Report::of([&*status], &ReadyBounds::default());
            next_retry(&report.pipelines.remove(0)).unwrap()
        };
        let soon = retry(3, true).at;
        let text = told(3, soon);
        assert!(text.starts_with("sink k1: tried 3 times, again in "), "{text}");
        assert!(text.ends_with(" UTC; keys that wait for it: 2"), "{text}");
        assert_eq!(
            told(1, UNIX_EPOCH),
            "sink k1: tried once, again since 1970-01-01 00:00:00 UTC; keys that wait for it: 2"
        );
    }

    #[test]
    fn ages_and_sizes_have_the_units_of_a_person() {
        for (seconds, text) in [
            (0, "0 s"),
            (59, "59 s"),
            (61, "1 min 1 s"),
            (7260, "2 h 1 min"),
            (200_000, "2 d 7 h"),
        ] {
            assert_eq!(age(seconds), text);
        }
        assert_eq!(
            (seconds_text(0.25), seconds_text(90.5)),
            ("0.2 s".into(), "1 min 30 s".into())
        );
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1536, "1.5 KiB"),
            (16 << 20, "16.0 MiB"),
            (3 << 30, "3.0 GiB"),
            (u64::MAX, "16777216.0 TiB"),
        ] {
            assert_eq!(size(bytes), text);
        }
        assert_eq!(clock(1_700_000_000), "2023-11-14 22:13:20 UTC");
    }
}
