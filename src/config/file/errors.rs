//! `spec.errors` and `spec.dead_letter`.

use std::path::PathBuf;
use std::time::Duration;

use secrecy::SecretString;

use super::delivery::HOUR;
use super::http::read_headers;
use super::kind::{Kinds, require_kind};
use super::template::{FixedTopic, read_topic};
use crate::config::pipeline::{
    DeadLetter, DeadLetterPlace, ErrorPolicies, ErrorPolicy, LetterFile, Notify, OversizedDeadLetter,
};
use crate::config::reader::{Field, Mapping, Read, Reader, optional};
use crate::http_client::parse_url;

/// What the file says of dead letters, with the places that other keys are held against.
pub(super) struct DeadLetterReading<'n> {
    pub(super) dead_letter: DeadLetter,
    pub(super) whole: Field<'n>,
    /// None: they are kept in a file.
    pub(super) topic: Option<FixedTopic<'n>>,
}

pub(super) fn read_dead_letter<'n>(reader: &mut Reader<'_>, field: &Field<'n>) -> Read<DeadLetterReading<'n>> {
    #[derive(Clone, Copy)]
    enum Type {
        Kafka,
        Sqlite,
    }
    let mut mapping = reader.mapping(field)?;
    let kinds = Kinds {
        here: &[("kafka", Type::Kafka), ("sqlite", Type::Sqlite)],
        later: &[],
        elsewhere: &[],
    };
    let kind = require_kind(reader, &mut mapping, "dead letter type", &kinds);
    kind.read(|kind| {
        let config = reader.require(&mut mapping, "config", "a mapping with a topic or a path");
        let notify = optional(mapping.take("notify"), |field| read_notify(reader, field));
        reader.finish(mapping);
        let config = config?;
        let mut mapping = reader.mapping(&config)?;
        let place = match kind.unwrap_or(Type::Kafka) {
            Type::Kafka => read_letter_topic(reader, &mut mapping),
            Type::Sqlite => read_letter_file(reader, &mut mapping).map(|file| (DeadLetterPlace::File(file), None)),
        };
        let oversized = optional(mapping.take("oversized"), |field| {
            let policies = [("halt", OversizedDeadLetter::Halt), ("stub", OversizedDeadLetter::Stub)];
            reader.word(field, &policies)
        });
        reader.finish(mapping);
        let (place, topic) = place?;
        Ok(DeadLetterReading {
            dead_letter: DeadLetter {
                place,
                oversized: oversized?.unwrap_or(OversizedDeadLetter::Halt),
                notify: notify?,
            },
            whole: field.clone(),
            topic,
        })
    })
}

fn read_letter_topic<'n>(
    reader: &mut Reader<'_>,
    mapping: &mut Mapping<'n>,
) -> Read<(DeadLetterPlace, Option<FixedTopic<'n>>)> {
    let field = reader.require(mapping, "topic", "the topic that dead letters go to")?;
    let name = read_topic(reader, &field)?;
    Ok((DeadLetterPlace::Topic(name.clone()), Some(FixedTopic { name, field })))
}

fn read_letter_file(reader: &mut Reader<'_>, mapping: &mut Mapping<'_>) -> Read<LetterFile> {
    let path = reader
        .require(mapping, "path", "the file that dead letters are kept in")
        .and_then(|field| reader.filled(&field));
    let retention = optional(mapping.take("retention"), |field| {
        reader.duration(field, HOUR..=LONGEST_RETENTION)
    });
    Ok(LetterFile {
        path: PathBuf::from(path?),
        retention: retention?,
    })
}

pub(in crate::config) const DEFAULT_NOTIFY_INTERVAL: Duration = Duration::from_secs(60);

fn read_notify(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<Notify> {
    const URL: &str = "an http or https URL";
    let mut mapping = reader.mapping(field)?;
    let webhook = reader.require(&mut mapping, "webhook", URL).and_then(|field| {
        let url = reader.secret(&field, URL)?;
        match parse_url(&url) {
            Some(_) => Ok(SecretString::from(url)),
            // What it is instead can be a secret as well.
            None => Err(reader.refuse(&field, format!("no URL that can be asked: expected {URL}"))),
        }
    });
    let headers = optional(mapping.take("headers"), |field| read_headers(reader, field));
    let interval = optional(mapping.take("interval"), |field| {
        reader.duration(field, Duration::from_secs(1)..=HOUR)
    });
    reader.finish(mapping);
    Ok(Notify {
        webhook: webhook?,
        headers: headers?.unwrap_or_default(),
        interval: interval?.unwrap_or(DEFAULT_NOTIFY_INTERVAL),
    })
}

/// Ten years.
pub(in crate::config) const LONGEST_RETENTION: Duration = Duration::from_secs(3650 * 24 * 60 * 60);

/// The policies, by default the one that dead letters are for, where there is a place for them.
pub(super) fn read_policies(
    reader: &mut Reader<'_>,
    field: Option<Field<'_>>,
    dead_letter: &Read<Option<DeadLetterReading<'_>>>,
) -> Read<ErrorPolicies> {
    let default = match dead_letter {
        Ok(None) => ErrorPolicy::Halt,
        Ok(Some(_)) | Err(_) => ErrorPolicy::DeadLetter,
    };
    let Some(field) = field else {
        return Ok(ErrorPolicies {
            invalid: default,
            unroutable: default,
            rejected: default,
        });
    };
    let mut mapping = reader.mapping(&field)?;
    let has_place = !matches!(dead_letter, Ok(None));
    let mut policy = |name| {
        let policy = optional(mapping.take(name), |field| read_policy(reader, field, has_place));
        policy.map(|policy| policy.unwrap_or(default))
    };
    let (invalid, unroutable, rejected) = (policy("invalid"), policy("unroutable"), policy("rejected"));
    reader.finish(mapping);
    let policies = ErrorPolicies {
        invalid: invalid?,
        unroutable: unroutable?,
        rejected: rejected?,
    };
    let used = [policies.invalid, policies.unroutable, policies.rejected].contains(&ErrorPolicy::DeadLetter);
    if let Ok(Some(dead_letter)) = dead_letter
        && !used
    {
        let message = "no event goes there: no policy of `errors` is `dead_letter`";
        reader.note(&dead_letter.whole, message);
    }
    Ok(policies)
}

const NO_PLACE: &str = "`dead_letter` has no place to go to: add `spec.dead_letter: {type: kafka, config: {topic: ...}}` or `{type: sqlite, config: {path: ...}}`";

/// Refuses what sends events to a place that there is not.
pub(super) fn check_words(
    reader: &mut Reader<'_>,
    words: &[Field<'_>],
    dead_letter: &Read<Option<DeadLetterReading<'_>>>,
) {
    if !matches!(dead_letter, Ok(None)) {
        return;
    }
    for word in words {
        let _ = reader.refuse(word, format!("{NO_PLACE}, or write `halt` or `warn`"));
    }
}

fn read_policy(reader: &mut Reader<'_>, field: &Field<'_>, has_place: bool) -> Read<ErrorPolicy> {
    let policies = [
        ("halt", ErrorPolicy::Halt),
        ("dead_letter", ErrorPolicy::DeadLetter),
        ("skip", ErrorPolicy::Skip),
    ];
    let policy = reader.word(field, &policies)?;
    if policy == ErrorPolicy::DeadLetter && !has_place {
        return Err(reader.refuse(field, format!("{NO_PLACE}, or write `halt` or `skip`")));
    }
    Ok(policy)
}
