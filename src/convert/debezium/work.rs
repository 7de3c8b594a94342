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
    /// Ordinary tables are captured beside the outboxes.
    pub(super) has_ordinary: bool,
    /// A router places columns beside key and payload.
    pub(super) has_placed: bool,
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
        self.filled(given, "", |_| true, |text| text.replace('$', "$$"))
    }

    /// The same as a part of a template, where what has no provider is a field.
    pub(super) fn template(&mut self, given: &Given, literal: fn(&str) -> String) -> String {
        self.filled(given, "env:", |placeholder| placeholder.contains(':'), literal)
    }

    /// `head` stands before the name of a variable. `is_ours`: whether a placeholder is to be filled in when the file is read;
    /// what is around these is made a text of ours by `literal`.
    fn filled(&mut self, given: &Given, head: &str, is_ours: fn(&str) -> bool, literal: fn(&str) -> String) -> String {
        let mut out = String::with_capacity(given.value.len());
        let mut asked = Vec::new();
        let mut rest = given.value.as_str();
        let mut from = 0;
        while let Some(at) = rest[from..].find("${").map(|at| from + at) {
            let placeholder = rest[at + 2..].split_once('}').map(|(inside, _)| inside);
            match placeholder.filter(|inside| is_ours(inside)) {
                Some(inside) => {
                    out.push_str(&literal(&rest[..at]));
                    let variable = self.variable(inside, &given.option, &mut asked);
                    out.extend(["${", head, &variable, "}"]);
                    rest = &rest[at + 2 + inside.len() + 1..];
                    from = 0;
                }
                None => from = at + 2,
            }
        }
        out.push_str(&literal(rest));
        out
    }

    /// `NAME`, or `NAME:-default`, for `${env:NAME}`, another provider's placeholder, or one of whatever deploys the connector.
    /// `asked`: those of other providers that the value has so far, each of which is a variable of its own.
    fn variable(&mut self, placeholder: &str, option: &str, asked: &mut Vec<String>) -> String {
        let is_name = |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        match placeholder.split_once(':') {
            Some(("env", name)) => return name.to_owned(),
            None if is_name(placeholder) => {
                self.different(
                    option,
                    format!(
                        "`${{{placeholder}}}` is filled in by what deploys the connector: here it is a variable of the environment"
                    ),
                );
                return placeholder.to_owned();
            }
            _ => {}
        }
        let place = asked.iter().position(|known| known == placeholder);
        let place = place.unwrap_or_else(|| {
            asked.push(placeholder.to_owned());
            asked.len() - 1
        });
        let variable = match place {
            0 => variable_of(option),
            place => format!("{}_{}", variable_of(option), place + 1),
        };
        self.different(
            option,
            format!(
                "`${{{placeholder}}}` is a config provider's of Connect: set {variable} in the environment, or write \
                 `${{file:/path}}` with a file that holds this value alone"
            ),
        );
        variable
    }

    /// A secret: never copied, unless it is a placeholder as a whole. A placeholder's default is a secret too.
    pub(super) fn secret(&mut self, given: &Given) -> String {
        let placeholder = given.value.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
        if let Some(placeholder) = placeholder.filter(|placeholder| !placeholder.contains(['{', '}'])) {
            let Some((name, _)) = placeholder.split_once(":-") else {
                return self.value(given);
            };
            let value = format!("${{{name}}}");
            self.different(
                &given.option,
                "secrets are not copied, nor is the default of this one: the variable must be set",
            );
            return self.value(&Given {
                option: given.option.clone(),
                value,
            });
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

#[cfg(test)]
mod tests {
    use super::*;

    fn work() -> Work {
        Work {
            platform: Platform::Connect,
            settings: Settings::default(),
            worker: None,
            report: Report::default(),
            has_ordinary: false,
            has_placed: false,
        }
    }

    fn given(option: &str, value: &str) -> Given {
        Given {
            option: option.to_owned(),
            value: value.to_owned(),
        }
    }

    #[test]
    fn each_placeholder_is_a_variable_of_its_own() {
        let mut work = work();
        let host = given(
            "database.hostname",
            "${file:/a:host}.${file:/a:domain}.${file:/a:host}$",
        );
        let expected = "${DATABASE_HOSTNAME}.${DATABASE_HOSTNAME_2}.${DATABASE_HOSTNAME}$$";
        assert_eq!(work.value(&host), expected);
        assert_eq!(work.value(&given("x", "${env:A:-b}/${C}")), "${A:-b}/${C}");
        let literal = |text: &str| text.to_owned();
        assert_eq!(
            work.template(&given("x", "${env:PRE}.${name}"), literal),
            "${env:PRE}.${name}"
        );
    }

    #[test]
    fn no_part_of_a_secret_is_copied() {
        let mut work = work();
        let cases = [
            ("s3cret", "${DATABASE_PASSWORD}"),
            ("${env:DB}", "${DB}"),
            ("${env:DB:-s3cret}", "${DB}"),
            ("${A}s3cret${B}", "${DATABASE_PASSWORD}"),
            ("${file:/a:password}", "${DATABASE_PASSWORD}"),
        ];
        for (value, expected) in cases {
            assert_eq!(work.secret(&given("database.password", value)), expected, "{value}");
        }
        assert!(!work.report.to_string().contains("s3cret"), "{}", work.report);
    }
}
