//! What became of each option, for the person who changes over.

use std::fmt;

/// What became of an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// It stands in the pipeline file.
    Taken,
    /// The same holds without it.
    NotNeeded,
    /// Something else holds here.
    Different,
    /// Somebody has to do something.
    NotPossible,
    /// Nothing is known of it.
    Unknown,
}

impl Fate {
    const ALL: [Self; 5] = [
        Self::Taken,
        Self::NotNeeded,
        Self::Different,
        Self::NotPossible,
        Self::Unknown,
    ];

    fn heading(self) -> &'static str {
        match self {
            Self::Taken => "taken over",
            Self::NotNeeded => "not needed here",
            Self::Different => "different here",
            Self::NotPossible => "not possible: to be done by hand",
            Self::Unknown => "unknown, and left out",
        }
    }
}

/// One option's fate, with where it went, why it is not needed, how it differs, or what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub option: String,
    pub fate: Fate,
    pub text: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    entries: Vec<Entry>,
}

impl Report {
    pub(super) fn add(&mut self, fate: Fate, option: impl Into<String>, text: impl Into<String>) {
        let entry = Entry {
            option: option.into(),
            fate,
            text: text.into(),
        };
        if !self.entries.contains(&entry) {
            self.entries.push(entry);
        }
    }

    /// Whether somebody has to do something about an option already.
    pub(super) fn is_open(&self, option: &str) -> bool {
        let is_open = |entry: &Entry| matches!(entry.fate, Fate::NotPossible | Fate::Unknown);
        self.entries
            .iter()
            .any(|entry| entry.option == option && is_open(entry))
    }

    /// An option that was taken over is not, after all.
    pub(super) fn take_back(&mut self, option: &str) {
        self.entries
            .retain(|entry| entry.option != option || entry.fate != Fate::Taken);
    }

    /// In the order in which they were come upon.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Whether the pipeline file needs nobody's hand.
    pub fn is_complete(&self) -> bool {
        let is_open = |entry: &Entry| matches!(entry.fate, Fate::NotPossible | Fate::Unknown);
        !self.entries.iter().any(is_open)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for fate in Fate::ALL {
            let entries: Vec<&Entry> = self.entries.iter().filter(|entry| entry.fate == fate).collect();
            if entries.is_empty() {
                continue;
            }
            writeln!(f, "{} ({})", fate.heading(), entries.len())?;
            for entry in entries {
                writeln!(f, "  {}: {}", entry.option, entry.text)?;
            }
        }
        Ok(())
    }
}
