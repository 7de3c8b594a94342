//! `tailpost dlq stats`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;

use crate::letters::Parked;

use super::error::DlqError;

/// How many letters there are of which kind.
#[derive(Debug, Default, Serialize)]
pub(super) struct Stats<'a> {
    letters: usize,
    replayed: usize,
    not_replayed: usize,
    oldest: Option<&'a str>,
    newest: Option<&'a str>,
    by_reason: BTreeMap<&'a str, usize>,
    by_event_type: BTreeMap<&'a str, usize>,
    by_target: BTreeMap<&'a str, usize>,
}

impl<'a> Stats<'a> {
    pub(super) fn of(letters: &'a [Parked]) -> Self {
        let mut stats = Self {
            letters: letters.len(),
            ..Self::default()
        };
        for parked in letters {
            let letter = &parked.letter;
            match parked.is_replayed() {
                true => stats.replayed += 1,
                false => stats.not_replayed += 1,
            }
            let at = letter.parked_at.as_str();
            stats.oldest = Some(stats.oldest.map_or(at, |oldest| oldest.min(at)));
            stats.newest = Some(stats.newest.map_or(at, |newest| newest.max(at)));
            *stats.by_reason.entry(&letter.reason).or_default() += 1;
            let event_type = letter.event_type.as_deref().unwrap_or("-");
            *stats.by_event_type.entry(event_type).or_default() += 1;
            *stats
                .by_target
                .entry(letter.target.as_deref().unwrap_or("-"))
                .or_default() += 1;
        }
        stats
    }

    pub(super) fn json(&self) -> Result<Vec<u8>, DlqError> {
        serde_json::to_vec_pretty(self).map_err(DlqError::Json)
    }

    pub(super) fn lines(&self) -> String {
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "letters      {}\nreplayed     {}\nnot replayed {}",
            self.letters, self.replayed, self.not_replayed
        );
        let _ = writeln!(
            out,
            "oldest       {}\nnewest       {}",
            self.oldest.unwrap_or("-"),
            self.newest.unwrap_or("-")
        );
        for (name, counts) in [
            ("reason", &self.by_reason),
            ("event type", &self.by_event_type),
            ("target", &self.by_target),
        ] {
            let _ = writeln!(out, "by {name}");
            for (what, count) in counts {
                let _ = writeln!(out, "{count:>10}  {}", what.escape_debug());
            }
        }
        out
    }
}
