//! The file of `tailpost alert check`: thresholds, and where alerts go. Read as pipeline files are, with every violation.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use secrecy::SecretString;

use crate::telemetry::alerts::{Limit, Overrides};

use super::document::{Node, Value};
use super::environment::Environment;
use super::error::ConfigError;
use super::reader::{Field, Read, Reader, optional};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// What a file says.
#[derive(Default)]
pub struct AlertFile {
    pub overrides: Overrides,
    /// Its path can be a secret.
    pub webhook: Option<SecretString>,
}

impl fmt::Debug for AlertFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AlertFile")
            .field("overrides", &self.overrides)
            .finish_non_exhaustive()
    }
}

/// Reads a file of thresholds.
///
/// # Errors
/// Every violation of the file, or that it cannot be read at all.
pub fn load_alerts(path: &Path, environment: &impl Environment) -> Result<AlertFile, ConfigError> {
    let text = super::read_text(path)?;
    let text = super::without_mark(&text);
    let root = super::parse(path, text)?;
    let mut reader = Reader::new(environment);
    let file = read(&mut reader, &root);
    match file {
        Ok(file) if reader.violations.is_empty() => Ok(file),
        _ => Err(ConfigError {
            path: path.to_owned(),
            violations: super::place_all(path, text, reader.violations),
        }),
    }
}

fn read(reader: &mut Reader<'_>, root: &Node) -> Read<AlertFile> {
    let root = Field {
        path: String::new(),
        key: root.number,
        node: root,
    };
    let mut mapping = reader.mapping(&root)?;
    let mut count = |name| {
        let read = |reader: &mut Reader<'_>, field: &Field<'_>| reader.integer(field, 1..=i64::MAX);
        let limit = limit(reader, mapping.take(name), read)?;
        Ok::<_, super::reader::Reported>(limit.map(|limit| limit.map(i64::unsigned_abs)))
    };
    let dead_letters = count("dead_letters");
    let restarts = count("restarts");
    let pending_events = count("pending_events");
    let mut age = |name| {
        limit(reader, mapping.take(name), |reader, field| {
            reader.duration(field, Duration::from_secs(1)..=DAY * 365)
        })
    };
    let oldest_unpublished = age("oldest_unpublished");
    let stalled = age("stalled");
    let lag = limit(reader, mapping.take("lag"), |reader, field| {
        reader.size(field, 1..=u64::MAX)
    });
    let webhook = optional(mapping.take("webhook"), |field| reader.secret(field, "a URL as text"));
    reader.finish(mapping);
    Ok(AlertFile {
        overrides: Overrides {
            dead_letters: dead_letters?,
            restarts: restarts?,
            pending_events: pending_events?,
            oldest_unpublished: oldest_unpublished?,
            stalled: stalled?,
            lag: lag?,
        },
        webhook: webhook?.map(SecretString::from),
    })
}

/// A threshold, or `off`.
fn limit<T>(
    reader: &mut Reader<'_>,
    field: Option<Field<'_>>,
    read: impl FnOnce(&mut Reader<'_>, &Field<'_>) -> Read<T>,
) -> Read<Option<Limit<T>>> {
    optional(field, |field| match &field.node.value {
        Value::Text(text) if text == "off" => Ok(Limit::Off),
        _ => read(reader, field).map(Limit::At),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use secrecy::ExposeSecret;

    use super::*;
    use crate::telemetry::alerts::Thresholds;

    fn load(text: &str) -> Result<AlertFile, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("alerts.yaml");
        std::fs::write(&path, text).unwrap();
        let environment = HashMap::from([("HOOK".to_owned(), "https://hooks.example/secret".to_owned())]);
        load_alerts(&path, &environment).map_err(|error| error.to_string())
    }

    #[test]
    fn every_key_sets_its_threshold() {
        let file = load(
            "dead_letters: 5\nrestarts: off\npending_events: 1000\noldest_unpublished: 1h\nstalled: 30s\nlag: 2GiB\n\
             webhook: ${HOOK}\n",
        )
        .unwrap();
        let expected = Thresholds {
            dead_letters: Limit::At(5),
            restarts: Limit::Off,
            pending_events: Limit::At(1000),
            oldest_unpublished: Limit::At(Duration::from_secs(3600)),
            stalled: Limit::At(Duration::from_secs(30)),
            lag: Limit::At(2 << 30),
        };
        assert_eq!(Thresholds::default().with(&file.overrides), expected);
        assert_eq!(
            file.webhook.as_ref().unwrap().expose_secret(),
            "https://hooks.example/secret"
        );
        assert!(!format!("{file:?}").contains("secret"));
        let nothing = load("stalled: 5m").unwrap();
        let expected = Thresholds {
            stalled: Limit::At(Duration::from_secs(300)),
            ..Thresholds::default()
        };
        assert_eq!(Thresholds::default().with(&nothing.overrides), expected);
    }

    #[test]
    fn every_violation_is_reported_with_its_line() {
        let error =
            load("dead_letters: 0\nrestart: 5\npending_events: many\noldest_unpublished: 15\nlag: 1XB\nwebhook: 5\n")
                .unwrap_err();
        for place in [
            ":1:15: dead_letters: expected a whole number, 1 or more, found 0",
            ":2:1: restart: unknown key",
            "did you mean `restarts`?",
            ":3:17: pending_events: expected a whole number",
            ":4:21: oldest_unpublished: expected a duration",
            ":5:6: lag: expected a size",
            ":6:10: webhook: expected a URL as text",
        ] {
            assert!(error.contains(place), "{place} is not in\n{error}");
        }
        assert!(load("").unwrap_err().contains("expected a mapping"));
    }
}
