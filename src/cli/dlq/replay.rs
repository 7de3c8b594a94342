//! `tailpost dlq replay`.
//!
//! One letter after the other: the next one is sent when the target has the one before, which is marked then. What is ended in
//! between has sent one at most that is not marked.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use clap::Args;
use tokio::time::{MissedTickBehavior, interval};

use crate::audit::{DispatchLog, Entry, Outcome};
use crate::calendar::rfc3339;
use crate::cli::{self, output};
use crate::config::quantity::{DURATION, parse_duration};
use crate::config::{Dispatches, Pipeline, Sink};
use crate::letters::{Letter, LetterId, PUBLISHED, Parked, marker};
use crate::record::{Header, Record};
use crate::telemetry::otlp::Parent;

use super::Target;
use super::error::DlqError;
use super::filter::FilterArguments;
use super::sender::{Delivery, Sender};
use super::stored::Stored;

const REPLAY_OF: &str = "tailpost-replay-of";
const REPLAYED_AT: &str = "tailpost-replayed-at";

#[derive(Debug, Args)]
pub(super) struct ReplayArguments {
    #[command(flatten)]
    pub(super) target: Target,
    /// One letter's, as `list` shows it.
    #[arg(value_name = "ID", conflicts_with = "all")]
    id: Option<LetterId>,
    /// All letters of the pipeline.
    #[arg(long)]
    all: bool,
    /// Another topic, or URL for a sink of type http, than the letters' own.
    #[arg(long, value_name = "TARGET")]
    to: Option<String>,
    /// A header more, or in place of the one of this name. Can be given more than once.
    #[arg(long, value_name = "NAME=VALUE", value_parser = set_header)]
    set_header: Vec<(String, String)>,
    /// The most letters a second.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rate: Option<u32>,
    /// How long each is tried.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = patience)]
    timeout: Duration,
    /// The OpenTelemetry collector that dispatch records go to, where `spec.dispatches` is of type otlp and has no endpoint; by
    /// default that of OTEL_EXPORTER_OTLP_ENDPOINT.
    #[arg(long, value_name = "URL")]
    otlp: Option<String>,
    /// Also those that were sent again and are published.
    #[arg(long)]
    again: bool,
    /// Say what would be sent, and send nothing.
    #[arg(long)]
    dry_run: bool,
    // Last: the heading of its options would hold for those behind it.
    #[command(flatten)]
    filter: FilterArguments,
}

/// A text that is no option's value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum ParseValueError {
    #[error("expected NAME=VALUE")]
    Header,
    #[error("expected {DURATION}, and not 0")]
    Duration,
}

fn set_header(text: &str) -> Result<(String, String), ParseValueError> {
    let parts = text.split_once('=').filter(|(name, _)| !name.is_empty());
    parts
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .ok_or(ParseValueError::Header)
}

fn patience(text: &str) -> Result<Duration, ParseValueError> {
    parse_duration(text)
        .filter(|duration| !duration.is_zero())
        .ok_or(ParseValueError::Duration)
}

/// How many letters ended how.
#[derive(Debug, Default)]
struct Counts {
    published: usize,
    failed: usize,
    left_out: usize,
}

pub(super) async fn run(
    pipeline: &Pipeline,
    stored: &mut Stored<'_>,
    arguments: &ReplayArguments,
) -> Result<ExitCode, DlqError> {
    let is_http = |sink: &Sink| matches!(sink, Sink::Http(_));
    if let Some(to) = &arguments.to
        && pipeline.sinks().all(is_http)
        && !["http://", "https://"].iter().any(|scheme| to.starts_with(scheme))
    {
        return Err(DlqError::NoUrl { to: to.clone() });
    }
    let letters = chosen(pipeline, stored, arguments).await?;
    // Lines of the sink `stdout`, and dispatch records there, are not to be mixed with others.
    let has_stdout = pipeline.sinks().any(|sink| matches!(sink, Sink::Stdout(_)))
        || matches!(pipeline.dispatches, Some(Dispatches::Stdout));
    let say = |text: String| match has_stdout {
        true => {
            output::tell(format_args!("{text}"));
            Ok(())
        }
        // A reader that has gone away must not end what was begun.
        false => output::print(text).map_err(DlqError::Output),
    };
    let mut dispatches = match arguments.dry_run {
        true => None,
        false => DispatchLog::open(pipeline, &arguments.target.state_dir, arguments.otlp.as_deref())?,
    };
    let mut counts = Counts::default();
    let mut senders = Senders::new(pipeline, arguments.timeout);
    let mut pace = arguments.rate.map(|rate| {
        let mut pace = interval(Duration::from_secs(1) / rate);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        pace
    });
    let mut result = Ok(());
    for Parked { id, letter, .. } in &letters {
        let way = target(letter, arguments.to.as_deref()).and_then(|target| Ok((target, senders.of(letter)?)));
        let (target, sender) = match way {
            Ok(way) => way,
            Err(why) => {
                counts.left_out += 1;
                say(format!("{id}\tleft out: {why}\n"))?;
                continue;
            }
        };
        if arguments.dry_run {
            counts.published += 1;
            say(format!("{id}\twould go to {target}\n"))?;
            continue;
        }
        if let Some(pace) = &mut pace {
            pace.tick().await;
        }
        let now = SystemTime::now();
        let record = record(letter, target, &arguments.set_header, now);
        let sent = send(stored, sender, *id, &record, now).await;
        if let (Some(dispatches), Ok(why)) = (&mut dispatches, &sent) {
            let written = dispatches.write(&letter.sink, entry(letter, &record, why.clone()));
            if let Err(error) = written {
                complain!("the dispatch record of {id} cannot be written: {error}");
            }
        }
        match sent {
            Ok(None) => {
                counts.published += 1;
                say(format!("{id}\tpublished to {target}\n"))?;
            }
            Ok(Some(why)) => {
                counts.failed += 1;
                say(format!("{id}\tfailed: {why}\n"))?;
            }
            Err(error) => {
                counts.failed += 1;
                result = Err(error);
                break;
            }
        }
    }
    senders.close().await;
    if let Some(dispatches) = dispatches {
        let lost = dispatches.close().await;
        if lost > 0 {
            complain!("the collector did not take {lost} dispatch records");
        }
    }
    let Counts {
        published,
        failed,
        left_out,
    } = counts;
    say(match arguments.dry_run {
        true => format!("{published} would be sent, {left_out} left out\n"),
        false => format!("{published} published, {failed} failed, {left_out} left out\n"),
    })?;
    result?;
    Ok(match failed {
        0 => cli::SUCCESS,
        _ => ExitCode::from(cli::FAILURE),
    })
}

/// The letters that are meant, in the order of their being parked.
async fn chosen(
    pipeline: &Pipeline,
    stored: &mut Stored<'_>,
    arguments: &ReplayArguments,
) -> Result<Vec<Parked>, DlqError> {
    if let Some(id) = arguments.id {
        if !arguments.filter.is_empty() {
            return Err(DlqError::IdAndFilter);
        }
        let parked = stored.one(id).await?;
        if let (true, false, Some(replay)) = (parked.is_replayed(), arguments.again, &parked.replay) {
            let at = replay.at.clone();
            return Err(DlqError::Replayed { id, at });
        }
        return match target(&parked.letter, arguments.to.as_deref()) {
            Ok(_) => Ok(vec![parked]),
            Err(why) => Err(DlqError::NotToBeSent { id, why }),
        };
    }
    if arguments.filter.is_empty() && !arguments.all {
        return Err(DlqError::NothingChosen);
    }
    let mut filter = arguments.filter.clone();
    filter.pipeline.get_or_insert_with(|| pipeline.name.clone());
    if !arguments.again && filter.replayed.is_none() {
        filter.replayed = Some(super::filter::YesNo::No);
    }
    let mut letters = stored.matching(&filter).await?;
    if !arguments.again {
        letters.retain(|parked| !parked.is_replayed());
    }
    Ok(letters)
}

/// Where a letter goes, or why it cannot go anywhere.
fn target<'a>(letter: &'a Letter, to: Option<&'a str>) -> Result<&'a str, &'static str> {
    if letter.is_stub() {
        return Err("it is a stub, whose bytes were not kept");
    }
    if let Some(to) = to {
        return Ok(to);
    }
    if letter.is_of_event() {
        return Err("it has an event that no record could be made of; --to sends that as it is");
    }
    letter
        .target
        .as_deref()
        .ok_or("where it should have gone is not known; --to says where")
}

/// A sender for each sink of a pipeline.
struct Senders(Vec<(String, Sender)>);

impl Senders {
    fn new(pipeline: &Pipeline, patience: Duration) -> Self {
        let of_sinks = pipeline.of_each_sink();
        Self(
            of_sinks
                .map(|pipeline| (pipeline.sink.id().to_owned(), Sender::new(&pipeline, patience)))
                .collect(),
        )
    }

    /// The one for what a letter was for; of a letter that does not say, the leading sink's.
    fn of(&mut self, letter: &Letter) -> Result<&mut Sender, &'static str> {
        let at = match letter.sink.is_empty() {
            true => Some(0),
            false => self.0.iter().position(|(id, _)| *id == letter.sink),
        };
        let sender = at.and_then(|at| self.0.get_mut(at));
        sender
            .map(|(_, sender)| sender)
            .ok_or("the sink that it was for is none of the file's")
    }

    async fn close(self) {
        for (_, sender) in self.0 {
            sender.close().await;
        }
    }
}

fn record(letter: &Letter, target: &str, set: &[(String, String)], now: SystemTime) -> Record {
    let mut record = letter.record(Arc::from(target));
    let own = [
        (REPLAY_OF.to_owned(), letter.event_id.clone()),
        (REPLAYED_AT.to_owned(), rfc3339(now)),
    ];
    for (name, value) in own.iter().chain(set) {
        record.headers.retain(|header| *header.name != **name);
        record.headers.push(Header {
            name: Arc::from(name.as_str()),
            value: Some(Bytes::from(value.clone())),
        });
    }
    record
}

/// What is written down of a letter that was sent. It repeats the delivery that ended with its being parked.
fn entry(letter: &Letter, record: &Record, why: Option<String>) -> Entry {
    Entry {
        about: letter.about(),
        position: letter.position.clone(),
        commit_time_us: letter.record_timestamp_ms.saturating_mul(1000),
        outcome: match &why {
            None => Outcome::Published,
            Some(_) => Outcome::Failed,
        },
        attempts: letter.attempts + 1,
        last_error: why,
        repeated: true,
        time: SystemTime::now(),
        context: Parent::of(record).map(|parent| parent.context),
    }
}

/// Sends a letter and marks it. Gives why the target does not take it, if it does not.
async fn send(
    stored: &Stored<'_>,
    sender: &mut Sender,
    id: LetterId,
    record: &Record,
    now: SystemTime,
) -> Result<Option<String>, DlqError> {
    let patience = sender.patience();
    let delivery = sender.deliver(record).await;
    let why = match delivery.map_err(|source| DlqError::Sink { id, source })? {
        Delivery::Acked => None,
        Delivery::Refused(error) => Some(error.text),
        Delivery::NoAnswer => return Err(DlqError::NoAnswer { id, patience }),
    };
    let outcome = match &why {
        None => PUBLISHED.to_owned(),
        Some(why) => format!("failed: {why}"),
    };
    let (Stored::Topic { name, .. }, LetterId::Record { partition, offset }) = (stored, id) else {
        stored.mark(id, now, &outcome)?;
        return Ok(why);
    };
    let unmarked = |why: String| DlqError::Mark {
        id,
        topic: (*name).to_owned(),
        why,
    };
    match sender.deliver(&marker(name, partition, offset, now, &outcome)).await {
        Ok(Delivery::Acked) => Ok(why),
        Ok(Delivery::Refused(error)) => Err(unmarked(error.text)),
        Ok(Delivery::NoAnswer) => Err(unmarked(format!("no answer within {} s", patience.as_secs()))),
        Err(error) => Err(unmarked(crate::telemetry::error_chain(&error))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processor::letter_headers as names;

    fn letter(headers: &[(&str, &str)]) -> Letter {
        let header = |(name, value): &(&str, &str)| Header {
            name: Arc::from(*name),
            value: Some(Bytes::from((*value).to_owned())),
        };
        Letter::of_record(&Record {
            topic: Arc::from("dead"),
            partition: None,
            key: None,
            value: Some(Bytes::from_static(b"1")),
            headers: headers.iter().map(header).collect(),
            timestamp_ms: 5,
            about: None,
        })
    }

    #[test]
    fn only_what_is_a_record_goes_where_it_should_have_gone() {
        let refused = [(names::REASON, "permanent_failure"), (names::TOPIC, "orders")];
        let with = |more| letter(&[&refused[..], &[more]].concat());
        assert_eq!(target(&letter(&refused), None), Ok("orders"));
        assert_eq!(target(&letter(&refused), Some("other")), Ok("other"));
        for more in [(names::PREFIX, "outbox"), (names::TABLE, "public.outbox")] {
            assert!(target(&with(more), None).unwrap_err().contains("no record"));
            assert_eq!(target(&with(more), Some("other")), Ok("other"));
        }
        assert!(target(&letter(&refused[..1]), None).unwrap_err().contains("not known"));
        for to in [None, Some("other")] {
            assert!(target(&with((names::STUB, "true")), to).unwrap_err().contains("stub"));
        }
    }

    #[test]
    fn a_letter_keeps_its_own_headers_and_says_what_it_is() {
        let letter = letter(&[
            ("a", "1"),
            ("b", "2"),
            (names::REASON, "permanent_failure"),
            (names::EVENT_ID, "7f"),
        ]);
        let set = [("a".to_owned(), "3".to_owned())];
        let record = record(&letter, "orders", &set, SystemTime::UNIX_EPOCH);
        let headers: Vec<(&str, &[u8])> = record
            .headers
            .iter()
            .map(|header| (&*header.name, header.value.as_deref().unwrap()))
            .collect();
        assert_eq!(
            headers,
            [
                ("b", &b"2"[..]),
                (REPLAY_OF, b"7f"),
                (REPLAYED_AT, b"1970-01-01T00:00:00.000Z"),
                ("a", b"3"),
            ]
        );
        assert_eq!((&*record.topic, record.timestamp_ms), ("orders", 5));
    }

    #[test]
    fn headers_are_set_by_name_and_value() {
        assert_eq!(set_header("a=b=c"), Ok(("a".to_owned(), "b=c".to_owned())));
        assert_eq!(set_header("a="), Ok(("a".to_owned(), String::new())));
        for text in ["", "a", "=b"] {
            assert_eq!(set_header(text), Err(ParseValueError::Header), "{text}");
        }
    }
}
