//! From another connector's configuration to a pipeline file, and a report of what became of each of its options.
//!
//! Text in, text out: no file, server or environment is looked at. Secrets of the other file are never copied into ours.

mod compare;
pub mod debezium;
mod report;
mod yaml;

pub use compare::differences;
pub use report::{Entry, Fate, Report};

/// A pipeline file and what is to be known of it.
#[derive(Debug)]
pub struct Conversion {
    /// YAML, with the options that each line came from.
    pub pipeline: String,
    pub report: Report,
}
