//! A walk over all keys of the description, or over those that count in a document.

use serde_json::{Map, Value};

use crate::config::schema::key::{Files, Key, List, Open, Takes};
use crate::config::schema::keys;

/// A key of the description, or what stands for all items of a list.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) at: At,
    /// The dotted path of the mapping that it is a key of; none: of a list.
    pub(super) mapping: Option<String>,
    pub(super) key: Key,
    /// Whether the document has it.
    pub(super) is_there: bool,
    /// Whether the mapping is one of several, so that readers ask for each key whether it is there.
    pub(super) is_choice: bool,
}

#[derive(Debug, Clone, Default)]
pub(super) struct At {
    /// As violations write it, but for the numbers of items: `spec.processors[].topic`.
    pub(super) path: String,
    /// With the types on the way: `spec.processors[](outbox).topic`.
    pub(super) typed: String,
    /// In the document, as a JSON pointer.
    pub(super) pointer: String,
}

impl At {
    fn below(&self, name: &str) -> Self {
        let join = |path: &str| match path {
            "" => name.to_owned(),
            path => format!("{path}.{name}"),
        };
        Self {
            path: join(&self.path),
            typed: join(&self.typed),
            pointer: format!("{}/{name}", self.pointer),
        }
    }

    /// Below a mapping whose names are the file's own.
    fn named(&self, name: &str) -> Self {
        Self {
            path: format!("{}.{name}", self.path),
            typed: format!("{}{{}}", self.typed),
            pointer: format!("{}/{}", self.pointer, name.replace('~', "~0").replace('/', "~1")),
        }
    }

    fn item(&self, index: usize) -> Self {
        Self {
            path: format!("{}[]", self.path),
            typed: format!("{}[]", self.typed),
            pointer: format!("{}/{index}", self.pointer),
        }
    }

    fn of_type(&self, word: &str) -> Self {
        Self {
            typed: format!("{}({word})", self.typed),
            ..self.clone()
        }
    }
}

/// All keys that there are.
pub(super) fn all() -> Vec<Entry> {
    let mut walk = Walk {
        not_in: None,
        entries: Vec::new(),
    };
    walk.kinds(&At::default(), &Takes::Mapping(keys::file()), Part::All);
    walk.entries
}

/// The keys that count in a document, those that it leaves out too.
pub(super) fn of(document: &Value) -> Vec<Entry> {
    let not_in = match document["apiVersion"] == "deltaforge/v1" {
        true => Files::Own,
        false => Files::Deltaforge,
    };
    let mut walk = Walk {
        not_in: Some(not_in),
        entries: Vec::new(),
    };
    walk.kinds(&At::default(), &Takes::Mapping(keys::file()), Part::Of(document));
    walk.entries
}

/// What of the description is walked over.
#[derive(Clone, Copy)]
enum Part<'d> {
    All,
    /// What counts for this value.
    Of(&'d Value),
}

struct Walk {
    /// Keys of these files are passed over.
    not_in: Option<Files>,
    entries: Vec<Entry>,
}

impl Walk {
    fn kinds(&mut self, at: &At, takes: &Takes, part: Part<'_>) {
        let kinds = takes.kinds();
        let mappings = kinds.iter().filter(|kind| matches!(kind, Takes::Mapping(_))).count();
        for kind in kinds {
            match kind {
                Takes::Mapping(keys) => self.mapping(at, keys, part, mappings > 1),
                Takes::Tagged(tagged) => {
                    for variant in &tagged.variants {
                        let counts = match part {
                            Part::All => true,
                            Part::Of(value) => variant.words.iter().any(|word| value["type"] == *word),
                        };
                        if counts {
                            let keys = [tagged.type_key()].into_iter().chain(variant.keys.iter().cloned());
                            let keys: Vec<Key> = keys.collect();
                            self.mapping(&at.of_type(variant.words[0]), &keys, part, false);
                        }
                    }
                }
                Takes::List(list) => self.list(at, list, part),
                Takes::Open(open) => self.open(at, open, part),
                _ => {}
            }
        }
    }

    fn mapping(&mut self, at: &At, keys: &[Key], part: Part<'_>, is_choice: bool) {
        let none = Map::new();
        let values = match part {
            Part::All => &none,
            Part::Of(Value::Object(values)) => values,
            Part::Of(_) => return,
        };
        let not_in = self.not_in;
        for key in keys.iter().filter(|key| Some(key.files) != not_in) {
            let part = match part {
                Part::All => Some(Part::All),
                Part::Of(_) => values.get(key.name).map(Part::Of),
            };
            let mut below = at.below(key.name);
            if key.is_of_deltaforge() {
                below.typed.push_str("(deltaforge)");
            }
            self.entries.push(Entry {
                at: below.clone(),
                mapping: Some(at.path.clone()),
                key: key.clone(),
                is_there: part.is_some(),
                is_choice,
            });
            if let Some(part) = part {
                self.kinds(&below, &key.takes, part);
            }
        }
    }

    /// Names that are the file's own are compared with none; what stands below them is.
    fn open(&mut self, at: &At, open: &Open, part: Part<'_>) {
        let parts: Vec<(&str, Part<'_>)> = match part {
            Part::All => vec![("*", Part::All)],
            Part::Of(Value::Object(values)) => values
                .iter()
                .filter(|(name, _)| !open.known.iter().any(|key| key.name == *name))
                .map(|(name, value)| (name.as_str(), Part::Of(value)))
                .collect(),
            Part::Of(_) => return,
        };
        for (name, part) in parts {
            let named = at.named(name);
            self.entries.push(Entry {
                at: named.clone(),
                mapping: None,
                key: Key::new("[]", (*open.values).clone(), ""),
                is_there: true,
                is_choice: false,
            });
            self.kinds(&named, &open.values, part);
        }
    }

    fn list(&mut self, at: &At, list: &List, part: Part<'_>) {
        let parts: Vec<Part<'_>> = match part {
            Part::All => vec![Part::All],
            Part::Of(Value::Array(values)) => values.iter().map(Part::Of).collect(),
            Part::Of(_) => return,
        };
        for (index, part) in parts.into_iter().enumerate() {
            let item = at.item(index);
            self.entries.push(Entry {
                at: item.clone(),
                mapping: None,
                key: Key::new("[]", (*list.of).clone(), ""),
                is_there: true,
                is_choice: false,
            });
            self.kinds(&item, &list.of, part);
        }
    }
}
