//! A YAML text as a tree of nodes, with nothing lost: the order stays, duplicate keys stay.
//!
//! The YAML library gives a line and a column only with an error. So a tree knows each node's number in reading order, and
//! [`locate`] reads the text again and fails on purpose at a wanted node. Only nodes that are complained about are looked up.
//! What a hostile text can cost is bounded: its size, its nodes and text after aliases are followed, its depth.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::de::{DeserializeSeed, EnumAccess, IgnoredAny, MapAccess, SeqAccess, VariantAccess, Visitor};
use serde_yaml::{Deserializer, Location};

use super::error::{Place, Problem};

/// A pipeline file is a few kilobytes; a Kubernetes ConfigMap, the largest usual carrier, holds one mebibyte.
pub(super) const MAX_BYTES: usize = 1024 * 1024;
const MAX_NODES: usize = 50_000;
const MAX_TEXT_BYTES: usize = 4 * MAX_BYTES;
const MAX_DEPTH: usize = 64;

/// A value and its number in reading order; keys have numbers too.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) number: usize,
    pub(super) value: Value,
}

#[derive(Debug)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Integer(i128),
    /// Its digits are lost in reading, so only keys that are quantities take one; text such as `1.10` wants quotes.
    Float(f64),
    Text(String),
    List(Vec<Node>),
    Mapping(Vec<(Node, Node)>),
    /// `!name value`: nothing in a pipeline file has a tag.
    Tagged,
}

/// Why a text is no tree, and where.
#[derive(Debug)]
pub(super) struct Unreadable {
    pub(super) place: Option<Place>,
    pub(super) problem: Problem,
}

/// Reads the only document of a text.
pub(super) fn parse(text: &str) -> Result<Node, Unreadable> {
    if text.len() > MAX_BYTES {
        return Err(too_large("1 MiB of text"));
    }
    refuse_deep_flow(text)?;
    let reading = Reading::default();
    let mut documents = Deserializer::from_str(text);
    let first = documents.next().map(|document| {
        NodeSeed {
            reading: &reading,
            depth: 0,
        }
        .deserialize(document)
    });
    let root = match first {
        None => {
            return Err(Unreadable {
                place: None,
                problem: Problem::Empty,
            });
        }
        Some(Err(err)) if text.trim().is_empty() || reading.started() == 0 && err.location().is_none() => {
            return Err(Unreadable {
                place: None,
                problem: Problem::Empty,
            });
        }
        Some(Err(err)) => return Err(reading.explain(text, &err)),
        Some(Ok(root)) => root,
    };
    if let Some(second) = documents.next() {
        let number = reading.started();
        NodeSeed {
            reading: &reading,
            depth: 0,
        }
        .deserialize(second)
        .map_err(|err| reading.explain(text, &err))?;
        let place = locate(text, &BTreeSet::from([number])).remove(&number);
        return Err(Unreadable {
            place,
            problem: Problem::SecondDocument,
        });
    }
    Ok(root)
}

/// Places of nodes by their number, for a text that [`parse`] could read. A node behind an alias is where its anchor is.
pub(super) fn locate(text: &str, numbers: &BTreeSet<usize>) -> BTreeMap<usize, Place> {
    numbers
        .iter()
        .filter_map(|&number| Some((number, locate_one(text, number)?)))
        .collect()
}

fn locate_one(text: &str, number: usize) -> Option<Place> {
    let reading = Reading {
        fail_at: Some(number),
        ..Reading::default()
    };
    for document in Deserializer::from_str(text) {
        if let Err(err) = (NodeSeed {
            reading: &reading,
            depth: 0,
        })
        .deserialize(document)
        {
            return err.location().map(|location| place_of(text, &location));
        }
    }
    None
}

fn too_large(limit: &'static str) -> Unreadable {
    Unreadable {
        place: None,
        problem: Problem::TooLarge { limit },
    }
}

/// A place as an editor counts. The library's own lines also end at U+0085, U+2028 and U+2029, which YAML 1.2 has dropped.
fn place_of(text: &str, location: &Location) -> Place {
    let mut place = Place { line: 1, column: 1 };
    let mut before = None;
    for (_, c) in text.char_indices().take_while(|(at, _)| *at < location.index()) {
        match c {
            '\n' if before == Some('\r') => {}
            '\n' | '\r' => {
                place = Place {
                    line: place.line + 1,
                    column: 1,
                }
            }
            _ => place.column += 1,
        }
        before = Some(c);
    }
    place
}

/// The library's scanner takes quadratic time over open flow brackets, before any visitor of ours is asked. Brackets in
/// quoted text or comments count as well, which is harmless: only an unbroken run of opening brackets can grow that deep.
fn refuse_deep_flow(text: &str) -> Result<(), Unreadable> {
    let mut depth: usize = 0;
    for byte in text.bytes() {
        match byte {
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > 1000 {
            return Err(too_large("64 levels"));
        }
    }
    Ok(())
}

/// What one reading has used up of its bounds, and where it shall fail.
#[derive(Default)]
struct Reading {
    fail_at: Option<usize>,
    nodes: Cell<usize>,
    text_bytes: Cell<usize>,
    exceeded: Cell<Option<&'static str>>,
}

impl Reading {
    fn started(&self) -> usize {
        self.nodes.get()
    }

    fn start_node<E: serde::de::Error>(&self, depth: usize) -> Result<usize, E> {
        let number = self.nodes.get();
        self.nodes.set(number + 1);
        if self.fail_at == Some(number) {
            return Err(E::custom("the wanted node"));
        }
        if number >= MAX_NODES {
            return Err(self.exceed("50,000 values, with aliases followed"));
        }
        if depth > MAX_DEPTH {
            return Err(self.exceed("64 levels"));
        }
        Ok(number)
    }

    fn take_text<E: serde::de::Error>(&self, text: &str) -> Result<(), E> {
        self.text_bytes.set(self.text_bytes.get() + text.len());
        if self.text_bytes.get() > MAX_TEXT_BYTES {
            return Err(self.exceed("4 MiB of text, with aliases followed"));
        }
        Ok(())
    }

    fn exceed<E: serde::de::Error>(&self, limit: &'static str) -> E {
        self.exceeded.set(Some(limit));
        E::custom("too large")
    }

    fn explain(&self, text: &str, err: &serde_yaml::Error) -> Unreadable {
        let location = err.location();
        let problem = match self.exceeded.get() {
            Some(limit) => Problem::TooLarge { limit },
            None => {
                let mut message = err.to_string();
                if let Some(at) = &location {
                    message = message.replacen(&format!(" at line {} column {}", at.line(), at.column()), "", 1);
                }
                Problem::Syntax {
                    message: message.replace(['\n', '\r'], " "),
                }
            }
        };
        Unreadable {
            place: location.map(|location| place_of(text, &location)),
            problem,
        }
    }
}

#[derive(Clone, Copy)]
struct NodeSeed<'r> {
    reading: &'r Reading,
    depth: usize,
}

impl<'de> DeserializeSeed<'de> for NodeSeed<'_> {
    type Value = Node;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl NodeSeed<'_> {
    fn scalar<E: serde::de::Error>(self, value: Value) -> Result<Node, E> {
        Ok(Node {
            number: self.reading.start_node(self.depth)?,
            value,
        })
    }

    fn integer<N: TryInto<i128>, E: serde::de::Error>(self, number: N) -> Result<Node, E> {
        // Beyond i128 no key has a meaning: it is out of every range anyway.
        self.scalar(Value::Integer(number.try_into().unwrap_or(i128::MAX)))
    }

    fn child(self) -> Self {
        NodeSeed {
            depth: self.depth + 1,
            ..self
        }
    }
}

impl<'de> Visitor<'de> for NodeSeed<'_> {
    type Value = Node;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("any YAML value")
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<Node, E> {
        self.scalar(Value::Null)
    }

    fn visit_none<E: serde::de::Error>(self) -> Result<Node, E> {
        self.scalar(Value::Null)
    }

    fn visit_bool<E: serde::de::Error>(self, flag: bool) -> Result<Node, E> {
        self.scalar(Value::Bool(flag))
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Node, E> {
        self.integer(number)
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Node, E> {
        self.integer(number)
    }

    fn visit_i128<E: serde::de::Error>(self, number: i128) -> Result<Node, E> {
        self.integer(number)
    }

    fn visit_u128<E: serde::de::Error>(self, number: u128) -> Result<Node, E> {
        self.integer(number)
    }

    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<Node, E> {
        self.scalar(Value::Float(number))
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Node, E> {
        self.reading.take_text(text)?;
        self.scalar(Value::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
        let number = self.reading.start_node(self.depth)?;
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self.child())? {
            list.push(item);
        }
        Ok(Node {
            number,
            value: Value::List(list),
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Node, A::Error> {
        let number = self.reading.start_node(self.depth)?;
        let mut mapping = Vec::new();
        while let Some(key) = entries.next_key_seed(self.child())? {
            mapping.push((key, entries.next_value_seed(self.child())?));
        }
        Ok(Node {
            number,
            value: Value::Mapping(mapping),
        })
    }

    fn visit_enum<A: EnumAccess<'de>>(self, tagged: A) -> Result<Node, A::Error> {
        let number = self.reading.start_node(self.depth)?;
        let (_tag, content) = tagged.variant::<IgnoredAny>()?;
        content.newtype_variant_seed(self.child())?;
        Ok(Node {
            number,
            value: Value::Tagged,
        })
    }
}

#[cfg(test)]
mod tests;
