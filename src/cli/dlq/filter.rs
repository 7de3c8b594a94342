//! Which letters are meant.

use std::time::SystemTime;

use clap::{Args, ValueEnum};
use jiff::Timestamp;

use crate::calendar::rfc3339;
use crate::config::quantity::{DURATION, parse_duration};
use crate::letters::{Letter, Parked};

/// All of them must hold.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Which letters")]
pub(super) struct FilterArguments {
    /// Parked at this time or later: RFC 3339, or so long ago (2h).
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub(super) since: Option<SystemTime>,
    /// Parked before this time.
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub(super) until: Option<SystemTime>,
    /// Parked for this reason, such as permanent_failure.
    #[arg(long)]
    pub(super) reason: Option<String>,
    /// Of an event with this aggregate type.
    #[arg(long, value_name = "TYPE")]
    pub(super) aggregate_type: Option<String>,
    /// Of an event with this aggregate id.
    #[arg(long, value_name = "ID")]
    pub(super) aggregate_id: Option<String>,
    /// Of an event of this type.
    #[arg(long, value_name = "TYPE")]
    pub(super) event_type: Option<String>,
    /// Parked by this pipeline; `replay` and `purge` take those of the file's own unless this says another.
    #[arg(long, value_name = "NAME")]
    pub(super) pipeline: Option<String>,
    /// For this sink of it, by its id.
    #[arg(long, value_name = "ID")]
    pub(super) sink: Option<String>,
    /// Whether the target has it by a replay.
    #[arg(long, value_enum)]
    pub(super) replayed: Option<YesNo>,
    /// The first so many of them.
    #[arg(long, value_name = "COUNT")]
    pub(super) limit: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum YesNo {
    Yes,
    No,
}

impl FilterArguments {
    pub(super) fn is_empty(&self) -> bool {
        self.is_until_alone() && self.until.is_none()
    }

    /// Whether it says nothing, or nothing but `--until`.
    pub(super) fn is_until_alone(&self) -> bool {
        let Self {
            since,
            until: _,
            reason,
            aggregate_type,
            aggregate_id,
            event_type,
            pipeline,
            sink,
            replayed,
            limit,
        } = self;
        let texts = [reason, aggregate_type, aggregate_id, event_type, pipeline, sink];
        since.is_none() && replayed.is_none() && limit.is_none() && texts.into_iter().all(Option::is_none)
    }

    /// Whether a letter is meant, as far as it says so itself.
    pub(super) fn takes(&self, letter: &Letter) -> bool {
        let is = |wanted: &Option<String>, found: Option<&str>| wanted.is_none() || wanted.as_deref() == found;
        // Both are written alike, so that their order is that of their texts.
        let since = self.since.is_none_or(|since| *letter.parked_at >= *rfc3339(since));
        let until = self.until.is_none_or(|until| *letter.parked_at < *rfc3339(until));
        since
            && until
            && is(&self.reason, Some(&letter.reason))
            && is(&self.aggregate_type, letter.aggregate_type.as_deref())
            && is(&self.aggregate_id, letter.aggregate_id.as_deref())
            && is(&self.event_type, letter.event_type.as_deref())
            && is(&self.pipeline, Some(&letter.pipeline))
            && is(&self.sink, Some(&letter.sink))
    }

    /// The rest: what is only known when all are read.
    pub(super) fn choose(&self, letters: &mut Vec<Parked>) {
        if let Some(replayed) = self.replayed {
            letters.retain(|parked| parked.is_replayed() == (replayed == YesNo::Yes));
        }
        letters.truncate(self.limit.unwrap_or(usize::MAX));
    }
}

/// A text that names no moment.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected a time such as 2026-11-28T05:17:01Z, or {DURATION} ago")]
pub(super) struct ParseMomentError;

fn moment(text: &str) -> Result<SystemTime, ParseMomentError> {
    if let Some(back) = parse_duration(text) {
        return SystemTime::now().checked_sub(back).ok_or(ParseMomentError);
    }
    let timestamp: Timestamp = text.parse().map_err(|_| ParseMomentError)?;
    Ok(timestamp.into())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;
    use crate::letters::{LetterId, Replay};

    fn letter() -> Letter {
        Letter {
            pipeline: "orders".to_owned(),
            source: "pg1".to_owned(),
            sink: "k1".to_owned(),
            position: "0/1".to_owned(),
            event_id: "7f".to_owned(),
            event_type: Some("created".to_owned()),
            aggregate_type: None,
            aggregate_id: Some("7".to_owned()),
            reason: "permanent_failure".to_owned(),
            detail: "refused".to_owned(),
            error: "no".to_owned(),
            attempts: 1,
            target: None,
            parked_at: "2023-11-14T22:13:20.500Z".to_owned(),
            record_timestamp_ms: 5,
            key: None,
            value: None,
            headers: Vec::new(),
            notes: Vec::new(),
        }
    }

    #[test]
    fn every_part_of_a_filter_must_hold() {
        let text = |text: &str| Some(text.to_owned());
        let at = |millis| Some(UNIX_EPOCH + Duration::from_millis(millis));
        let none = FilterArguments::default;
        let cases = [
            (
                FilterArguments {
                    reason: text("permanent_failure"),
                    ..none()
                },
                true,
            ),
            (
                FilterArguments {
                    reason: text("poison_message"),
                    ..none()
                },
                false,
            ),
            (
                FilterArguments {
                    event_type: text("created"),
                    aggregate_id: text("7"),
                    ..none()
                },
                true,
            ),
            (
                FilterArguments {
                    event_type: text("created"),
                    aggregate_id: text("8"),
                    ..none()
                },
                false,
            ),
            (
                FilterArguments {
                    aggregate_type: text("Order"),
                    ..none()
                },
                false,
            ),
            (
                FilterArguments {
                    pipeline: text("orders"),
                    ..none()
                },
                true,
            ),
            (
                FilterArguments {
                    since: at(1_700_000_000_500),
                    ..none()
                },
                true,
            ),
            (
                FilterArguments {
                    since: at(1_700_000_000_501),
                    ..none()
                },
                false,
            ),
            (
                FilterArguments {
                    until: at(1_700_000_000_501),
                    ..none()
                },
                true,
            ),
            (
                FilterArguments {
                    until: at(1_700_000_000_500),
                    ..none()
                },
                false,
            ),
        ];
        for (filter, expected) in cases {
            assert_eq!(filter.takes(&letter()), expected, "{filter:?}");
            assert!(!filter.is_empty());
        }
        assert!(none().is_empty() && none().takes(&letter()));
    }

    #[test]
    fn only_what_is_published_is_replayed() {
        let parked = |id, outcome: Option<&str>| Parked {
            id: LetterId::Row(id),
            letter: letter(),
            replay: outcome.map(|outcome| Replay {
                at: "t".to_owned(),
                outcome: outcome.to_owned(),
            }),
        };
        let all = [
            parked(1, None),
            parked(2, Some("published")),
            parked(3, Some("failed: no")),
            parked(4, None),
        ];
        let chosen = |replayed, limit| {
            let mut letters = all.to_vec();
            FilterArguments {
                replayed,
                limit,
                ..FilterArguments::default()
            }
            .choose(&mut letters);
            letters.iter().map(|parked| parked.id.to_string()).collect::<String>()
        };
        assert_eq!(chosen(Some(YesNo::Yes), None), "2");
        assert_eq!(chosen(Some(YesNo::No), Some(2)), "13");
        assert_eq!(chosen(None, Some(9)), "1234");
    }

    #[test]
    fn a_moment_is_a_time_or_so_long_ago() {
        assert_eq!(moment("1970-01-01T00:00:05Z"), Ok(UNIX_EPOCH + Duration::from_secs(5)));
        assert_eq!(
            moment("1970-01-01T01:00:05+01:00"),
            Ok(UNIX_EPOCH + Duration::from_secs(5))
        );
        assert!(moment("2h").is_ok_and(|moment| moment < SystemTime::now()));
        for text in ["", "yesterday", "2026-11-28", "-2h"] {
            assert_eq!(moment(text), Err(ParseMomentError), "{text}");
        }
    }
}
