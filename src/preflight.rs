//! Findings of a preflight: what was looked at, how it stands, and what to do about it.

mod place;

use std::fmt;

pub(crate) use place::{Needs, Place};

/// One line of `tailpost check`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub verdict: Verdict,
    /// What was looked at, such as `wal_level`.
    pub subject: String,
    /// What was found, and the remedy where one is needed.
    pub text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    Good,
    /// It runs, with a risk that the text names.
    Warning,
    /// It will not run.
    Bad,
}

impl Finding {
    pub fn good(subject: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            verdict: Verdict::Good,
            subject: subject.into(),
            text: text.into(),
        }
    }

    pub fn warning(subject: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            verdict: Verdict::Warning,
            subject: subject.into(),
            text: text.into(),
        }
    }

    pub fn bad(subject: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            verdict: Verdict::Bad,
            subject: subject.into(),
            text: text.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match self.verdict {
            Verdict::Good => "ok",
            Verdict::Warning => "warn",
            Verdict::Bad => "FAIL",
        };
        write!(f, "{verdict:4}  {}: {}", self.subject, self.text)
    }
}
