//! The options of a connector, each taken once; what is left at the end nobody has asked for.

use std::collections::BTreeMap;

/// An option as the file has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Given {
    /// Its name in the file.
    pub(super) option: String,
    /// Without blanks around, as Kafka's own configuration reads it.
    pub(super) value: String,
}

impl Given {
    pub(super) fn is(&self, value: &str) -> bool {
        self.value.eq_ignore_ascii_case(value)
    }
}

/// Options by the name that a connector of Kafka Connect knows them by.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Settings(BTreeMap<String, Given>);

impl Settings {
    pub(super) fn insert(&mut self, name: impl Into<String>, option: impl Into<String>, value: &str) {
        let given = Given {
            option: option.into(),
            value: value.trim().to_owned(),
        };
        self.0.insert(name.into(), given);
    }

    pub(super) fn take(&mut self, name: &str) -> Option<Given> {
        self.0.remove(name)
    }

    /// An option's value as a flag, if it is there.
    pub(super) fn take_flag(&mut self, name: &str) -> Option<(Given, bool)> {
        let given = self.take(name)?;
        let flag = given.is("true");
        Some((given, flag))
    }

    /// The first of these that is there; the others stay.
    pub(super) fn take_any(&mut self, names: &[&str]) -> Option<Given> {
        names.iter().find_map(|name| self.take(name))
    }

    /// All of these that are there.
    pub(super) fn take_each(&mut self, names: &[&str]) -> Vec<Given> {
        names.iter().filter_map(|name| self.take(name)).collect()
    }

    /// All with this beginning, by the rest of their names.
    pub(super) fn take_under(&mut self, prefix: &str) -> Vec<(String, Given)> {
        let is_under = |name: &String| name.starts_with(prefix) && name.len() > prefix.len();
        let names: Vec<String> = self.0.keys().filter(|name| is_under(name)).cloned().collect();
        let take = |name: String| Some((name[prefix.len()..].to_owned(), self.0.remove(&name)?));
        names.into_iter().filter_map(take).collect()
    }

    pub(super) fn get(&self, name: &str) -> Option<&Given> {
        self.0.get(name)
    }

    /// Takes all, by name.
    pub(super) fn take_rest(&mut self) -> impl Iterator<Item = (String, Given)> {
        std::mem::take(&mut self.0).into_iter()
    }
}

/// The parts of a list with commas, without blanks around; empty ones left out.
pub(super) fn list(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|part| !part.is_empty())
}
