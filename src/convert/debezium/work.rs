//! What a conversion has in hand: the options that are left, those of the worker, and the report.

use super::input::Platform;
use super::settings::{Given, Settings};
use crate::convert::report::{Fate, Report};
use crate::convert::yaml::{Mapping, Node};

pub(super) struct Work {
    pub(super) platform: Platform,
    pub(super) settings: Settings,
    /// Of the Connect worker, where its file is at hand.
    pub(super) worker: Option<Settings>,
    pub(super) report: Report,
}

impl Work {
    pub(super) fn take(&mut self, name: &str) -> Option<Given> {
        self.settings.take(name)
    }

    /// Of the connector, or else of its worker.
    pub(super) fn take_or_worker(&mut self, name: &str) -> Option<Given> {
        self.settings
            .take(name)
            .or_else(|| self.worker.as_ref()?.get(name).cloned())
    }

    pub(super) fn taken(&mut self, option: &str, place: &str) {
        self.report.add(Fate::Taken, option, place);
    }

    pub(super) fn not_needed(&mut self, option: &str, why: &str) {
        self.report.add(Fate::NotNeeded, option, why);
    }

    pub(super) fn different(&mut self, option: &str, how: impl Into<String>) {
        self.report.add(Fate::Different, option, how);
    }

    pub(super) fn not_possible(&mut self, option: &str, remedy: impl Into<String>) {
        self.report.add(Fate::NotPossible, option, remedy);
    }

    pub(super) fn unknown(&mut self, option: &str) {
        self.report.add(
            Fate::Unknown,
            option,
            "nothing of it was taken over: look up what it does there",
        );
    }

    /// Debezium Server leaves times and partitions to the producer.
    pub(super) fn has_no_record_times(&self) -> bool {
        self.platform == Platform::Server
    }

    /// Puts an option into the file, at the key `key` of the mapping at `path`.
    pub(super) fn place(&mut self, mapping: &mut Mapping, path: &str, key: &str, node: Node, option: &str) {
        mapping.set(key, node, option);
        self.taken(option, &format!("{path}.{key}"));
    }

    /// An option with a default of Debezium's, as our text.
    pub(super) fn text_or(&mut self, name: &str, default: &str) -> (String, String) {
        match self.take(name) {
            Some(given) => (self.value(&given), given.option),
            None => (default.to_owned(), format!("{name}, by default")),
        }
    }

    /// An option's value as a text of a pipeline file: placeholders in our spelling, other dollars doubled.
    pub(super) fn value(&mut self, given: &Given) -> String {
        let mut out = String::with_capacity(given.value.len());
        let mut rest = given.value.as_str();
        while let Some((before, after)) = rest.split_once('$') {
            out.push_str(before);
            let inside = after.strip_prefix('{').and_then(|after| after.split_once('}'));
            match inside {
                Some((placeholder, after)) => {
                    out.push_str(&self.placeholder(placeholder, &given.option));
                    rest = after;
                }
                None => {
                    out.push_str("$$");
                    rest = after;
                }
            }
        }
        out.push_str(rest);
        out
    }

    /// `${env:NAME}` of Connect, `${NAME}` and `${NAME:default}` of the server, or another provider's.
    fn placeholder(&mut self, placeholder: &str, option: &str) -> String {
        let (provider, name) = match placeholder.split_once(':') {
            Some(("env", name)) => ("env", name),
            Some((name, default)) if self.platform == Platform::Server => {
                return format!("${{{name}:-{default}}}");
            }
            None if self.platform == Platform::Server => ("env", placeholder),
            Some((provider, name)) => (provider, name),
            None => ("", placeholder),
        };
        if provider == "env" {
            return format!("${{{name}}}");
        }
        let variable = variable_of(option);
        self.different(
            option,
            format!(
                "`${{{placeholder}}}` is a config provider's of Connect: set {variable} in the environment, or write \
                 `${{file:/path}}` with a file that holds this value alone"
            ),
        );
        format!("${{{variable}}}")
    }

    /// A secret: never copied, unless it is a placeholder.
    pub(super) fn secret(&mut self, given: &Given) -> String {
        if given.value.starts_with("${") && given.value.ends_with('}') {
            return self.value(given);
        }
        let variable = variable_of(&given.option);
        self.different(
            &given.option,
            format!("secrets are not copied: set {variable} in the environment, or write `${{file:/path}}`"),
        );
        format!("${{{variable}}}")
    }

    /// A variable in place of what the file does not say.
    pub(super) fn ask(&mut self, option: &str, variable: &str, what: &str) -> String {
        self.not_possible(
            option,
            format!("{what}: set {variable} in the environment, or write it in its place"),
        );
        format!("${{{variable}}}")
    }
}

/// `database.password` as `DATABASE_PASSWORD`.
fn variable_of(option: &str) -> String {
    let option = option
        .trim_start_matches("debezium.source.")
        .trim_start_matches("producer.override.");
    let upper = |c: char| match c.is_ascii_alphanumeric() {
        true => c.to_ascii_uppercase(),
        false => '_',
    };
    option.chars().map(upper).collect()
}
