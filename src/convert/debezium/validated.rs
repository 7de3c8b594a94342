//! The pipeline file as `tailpost validate` reads it: what that refuses is to be done by hand.
//!
//! What variables have is not known here: only what is refused whatever they have counts.

use crate::config::{self, Environment, Violation};
use crate::convert::report::{Fate, Report};

/// Between them, every key takes one of these: a number, a host with its port, a name.
const VALUES: [&str; 3] = ["1", "a:1", "a"];

/// An environment in which each variable is set, to the same.
struct Every(&'static str);

impl Environment for Every {
    fn variable(&self, _name: &str) -> Option<String> {
        Some(self.0.to_owned())
    }
}

/// Takes back of each key that is refused that its option was taken over, and says what is wrong with it.
pub(super) fn tell(report: &mut Report, pipeline: &str) {
    let mut readings = VALUES.iter().map(|value| config::violations(pipeline, &Every(value)));
    let mut violations = readings.next().unwrap_or_default();
    for other in readings {
        violations.retain(|violation| other.iter().any(|other| other.path == violation.path));
    }
    for violation in violations {
        let option = option_of(&violation, pipeline);
        if let Some(option) = &option {
            report.take_back(option);
            if report.is_open(option) {
                continue;
            }
        }
        report.add(
            Fate::NotPossible,
            option.unwrap_or_else(|| violation.path.clone()),
            format!("{}: correct {}", violation.problem, violation.path),
        );
    }
}

/// The one option that stands behind the line.
fn option_of(violation: &Violation, pipeline: &str) -> Option<String> {
    let line = pipeline.lines().nth(violation.place?.line.checked_sub(1)?)?;
    let (_, comment) = line.rsplit_once("  # ")?;
    let option = comment.strip_suffix(", by default").unwrap_or(comment);
    (!option.contains([' ', ','])).then(|| option.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_validate_refuses_is_not_taken_over() {
        let pipeline = "apiVersion: tailpost/v1\nkind: Pipeline\nmetadata:\n  name: a  # name\nspec:\n  source:\n    type: postgres\n    \
                        config:\n      id: a\n      dsn: host=a sslmode=never  # database.hostname, database.sslmode\n      \
                        slot: Bad-Name  # slot.name\n      publication: ${PUBLICATION}\n      outbox: {prefixes: [a]}\n  processors:\n    \
                        - type: outbox\n      topic: a\n  sinks:\n    - type: kafka\n      config: {id: k, brokers: '${BROKERS}'}\n";
        let mut report = Report::default();
        report.add(Fate::Taken, "slot.name", "spec.source.config.slot");
        report.add(Fate::Taken, "name", "metadata.name");
        tell(&mut report, pipeline);
        let found: Vec<(Fate, &str)> = report
            .entries()
            .iter()
            .map(|entry| (entry.fate, entry.option.as_str()))
            .collect();
        let expected = [
            (Fate::Taken, "name"),
            (Fate::NotPossible, "spec.source.config.dsn"),
            (Fate::NotPossible, "slot.name"),
        ];
        assert_eq!(found, expected, "{report}");
        assert!(!report.is_complete());
    }
}
