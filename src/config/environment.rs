//! Where `${NAME}` is looked up.

use std::collections::{BTreeMap, HashMap};

/// The variables that a pipeline file may name.
pub trait Environment {
    /// A variable's text; none where it is not set, or not UTF-8.
    fn variable(&self, name: &str) -> Option<String>;
}

/// This process's own variables.
#[derive(Debug, Clone, Copy, Default)]
pub struct ProcessEnvironment;

impl Environment for ProcessEnvironment {
    fn variable(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }
}

impl Environment for BTreeMap<String, String> {
    fn variable(&self, name: &str) -> Option<String> {
        self.get(name).cloned()
    }
}

impl Environment for HashMap<String, String> {
    fn variable(&self, name: &str) -> Option<String> {
        self.get(name).cloned()
    }
}
