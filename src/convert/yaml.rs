//! YAML to be read by people: block style, and behind a line the options that it came from.

use std::fmt::Write;

#[derive(Debug, Clone)]
pub(super) enum Node {
    /// A text, quoted where it would be read as something else.
    Text(String),
    /// As it is written: a number, true, false.
    Plain(String),
    Texts(Vec<String>),
    Mapping(Mapping),
    List(Vec<Mapping>),
}

impl Node {
    pub(super) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    pub(super) fn flag(flag: bool) -> Self {
        Self::Plain(flag.to_string())
    }

    pub(super) fn number(number: impl ToString) -> Self {
        Self::Plain(number.to_string())
    }
}

/// Entries in the order in which they were set.
#[derive(Debug, Clone, Default)]
pub(super) struct Mapping {
    entries: Vec<Entry>,
}

#[derive(Debug, Clone)]
struct Entry {
    key: String,
    node: Node,
    comment: String,
}

impl Mapping {
    pub(super) fn set(&mut self, key: &str, node: Node, comment: impl Into<String>) {
        self.entries.push(Entry {
            key: key.to_owned(),
            node,
            comment: comment.into(),
        });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.entries.iter().any(|entry| entry.key == key)
    }

    pub(super) fn to_text(&self) -> String {
        let mut out = String::new();
        self.write(&mut out, 0);
        out
    }

    fn write(&self, out: &mut String, depth: usize) {
        for entry in &self.entries {
            push_indent(out, depth);
            entry.write(out, depth);
        }
    }

    /// Its first entry stands behind the dash.
    fn write_item(&self, out: &mut String, depth: usize) {
        for (at, entry) in self.entries.iter().enumerate() {
            push_indent(out, depth);
            out.push_str(if at == 0 { "- " } else { "  " });
            entry.write(out, depth + 1);
        }
    }
}

impl Entry {
    fn write(&self, out: &mut String, depth: usize) {
        out.push_str(&scalar(&self.key, Place::Block));
        out.push(':');
        match &self.node {
            Node::Text(text) => {
                out.push(' ');
                out.push_str(&scalar(text, Place::Block));
            }
            Node::Plain(text) => {
                out.push(' ');
                out.push_str(text);
            }
            Node::Texts(texts) => {
                let texts: Vec<String> = texts.iter().map(|text| scalar(text, Place::Flow)).collect();
                // Writing to a String cannot fail.
                let _ = write!(out, " [{}]", texts.join(", "));
            }
            Node::Mapping(_) | Node::List(_) => {}
        }
        if !self.comment.is_empty() {
            out.push_str("  # ");
            out.push_str(&self.comment.replace(needs_escape, " "));
        }
        out.push('\n');
        match &self.node {
            Node::Mapping(mapping) => mapping.write(out, depth + 1),
            Node::List(items) => items.iter().for_each(|item| item.write_item(out, depth + 1)),
            Node::Text(_) | Node::Plain(_) | Node::Texts(_) => {}
        }
    }
}

fn push_indent(out: &mut String, depth: usize) {
    out.push_str(&"  ".repeat(depth));
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Block,
    /// Between brackets, where a few more characters mean something.
    Flow,
}

/// A text as a scalar that reads back as that text.
fn scalar(text: &str, place: Place) -> String {
    if is_plain(text, place) {
        return text.to_owned();
    }
    if text.contains(needs_escape) {
        return escaped(text);
    }
    format!("'{}'", text.replace('\'', "''"))
}

/// What must not stand in a line as it is: control characters, what YAML 1.1 takes for a line's end, and what it allows nowhere.
fn needs_escape(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}'
        )
}

/// In double quotes. JSON's strings are YAML's there, but for what JSON lets stand as it is.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 8);
    for character in serde_json::Value::from(text).to_string().chars() {
        match needs_escape(character) {
            // All of them are of 16 bits. Writing to a String cannot fail.
            true => drop(write!(out, "\\u{:04x}", u32::from(character))),
            false => out.push(character),
        }
    }
    out
}

/// Whether it can stand without quotes: letters and digits with some signs between, and nothing that means something.
fn is_plain(text: &str, place: Place) -> bool {
    const WORDS: [&str; 11] = [
        "true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan", "inf",
    ];
    let signs = match place {
        Place::Block => "_./:-@${}*,=?&+",
        Place::Flow => "_./-@*",
    };
    let begins = |first: char| first.is_ascii_alphabetic() || first == '/' || (first == '$' && place == Place::Block);
    text.starts_with(begins)
        && text.chars().all(|c| c.is_ascii_alphanumeric() || signs.contains(c))
        && !text.ends_with(':')
        && !WORDS.contains(&text.to_ascii_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> serde_yaml::Value {
        serde_yaml::from_str(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
    }

    #[test]
    fn it_is_written_for_people() {
        let mut config = Mapping::default();
        config.set("slot", Node::text("orders"), "slot.name");
        config.set("tables", Node::Texts(vec!["public.*".into(), "*x".into()]), "");
        config.set("create", Node::flag(false), "");
        let mut item = Mapping::default();
        item.set("type", Node::text("kafka"), "");
        item.set("config", Node::Mapping(config), "");
        let mut root = Mapping::default();
        root.set("sinks", Node::List(vec![item]), "two\nlines");
        let expected = "sinks:  # two lines\n  - type: kafka\n    config:\n      slot: orders  # slot.name\n      \
                        tables: [public.*, '*x']\n      create: false\n";
        assert_eq!(root.to_text(), expected);
        assert_eq!(read(expected)["sinks"][0]["config"]["tables"][1], "*x");
    }

    #[test]
    fn what_would_be_something_else_is_quoted() {
        for text in [
            "", "12", "1.5", "true", "No", "~", "- a", "a: b", "a #b", "a:", "{a}", "'", "é", "a\nb", "0x1f", ".inf",
        ] {
            assert!(scalar(text, Place::Block).starts_with(['\'', '"']), "{text}");
        }
        for text in ["order", "public.outbox", "localhost:9092", "${KAFKA_BROKERS}"] {
            assert_eq!(scalar(text, Place::Block), text);
        }
    }

    #[test]
    fn what_ends_a_line_or_is_no_character_is_read_back() {
        for character in [
            '\0', '\u{7f}', '\u{85}', '\u{2028}', '\u{2029}', '\u{feff}', '\u{fffe}', '\u{ffff}',
        ] {
            let text = format!("a{character}");
            let mut mapping = Mapping::default();
            mapping.set(&text, Node::text(text.clone()), format!("a comment{character}list: []"));
            mapping.set("list", Node::Texts(vec![text.clone()]), "");
            let value = read(&mapping.to_text());
            assert_eq!(value[text.as_str()].as_str(), Some(text.as_str()), "{character:?}");
            assert_eq!(value["list"][0].as_str(), Some(text.as_str()), "{character:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_back(key in "\\PC{1,8}", text in any::<String>(), item in any::<String>()) {
            let mut mapping = Mapping::default();
            mapping.set(&key, Node::text(text.clone()), "a comment");
            mapping.set("list", Node::Texts(vec![item.clone()]), "");
            let value = read(&mapping.to_text());
            let first = value.as_mapping().unwrap().iter().next().unwrap();
            prop_assert_eq!(first.0.as_str(), Some(key.as_str()));
            prop_assert_eq!(first.1.as_str(), Some(text.as_str()));
            prop_assert_eq!(value["list"][0].as_str(), Some(item.as_str()));
        }
    }
}
