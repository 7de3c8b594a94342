//! What a run measures, from the environment: see `make bench`.

use std::path::PathBuf;

use crate::error::{BenchError, Tried};

/// See each field's text.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How often each side of a comparison runs, after one pair that does not count.
    pub pairs: usize,
    /// Names of rows, or their beginnings; empty: all rows.
    only: Vec<String>,
    /// A twentieth of the events, to see that all of it works: its figures mean nothing.
    pub quick: bool,
    /// The release binary.
    pub tailpost: PathBuf,
    /// Where the results go.
    pub results: PathBuf,
}

impl Settings {
    /// # Errors
    /// What the environment says is no number, or names no binary.
    pub fn from_environment() -> Result<Self, BenchError> {
        let text = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let quick = text("QUICK").is_some();
        let pairs = match text("PAIRS") {
            Some(found) => found
                .parse()
                .ok()
                .filter(|pairs| *pairs > 0)
                .ok_or(BenchError::Setting {
                    name: "PAIRS",
                    found,
                    expected: "a number of 1 or more",
                })?,
            None if quick => 1,
            None => 5,
        };
        let only = text("ONLY").unwrap_or_default();
        let tailpost = text("TAILPOST").ok_or(BenchError::Variable {
            name: "TAILPOST, the release binary".to_owned(),
        })?;
        let results = text("RESULTS").ok_or(BenchError::Variable {
            name: "RESULTS, the folder of the results".to_owned(),
        })?;
        Ok(Self {
            pairs,
            only: only
                .split([',', ' '])
                .filter(|name| !name.is_empty())
                .map(str::to_owned)
                .collect(),
            quick,
            // Its children run elsewhere.
            tailpost: std::fs::canonicalize(&tailpost).tried(format!("the binary {tailpost}"))?,
            results: results.into(),
        })
    }

    /// Whether this row is asked for.
    pub fn wants(&self, row: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| row.starts_with(only.as_str()))
    }

    /// Whether any of them is.
    pub fn wants_any(&self, rows: &[&str]) -> bool {
        rows.iter().any(|row| self.wants(row))
    }

    /// Whether the whole of it is measured, as it is to be published.
    pub fn is_whole(&self) -> bool {
        self.only.is_empty() && !self.quick && self.pairs >= 5
    }

    /// A number of events, fewer in a quick run.
    pub fn events(&self, count: u64) -> u64 {
        if self.quick { (count / 20).max(1) } else { count }
    }
}
