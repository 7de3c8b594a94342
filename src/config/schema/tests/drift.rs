//! The description against the readers, over the files of `files`, which use every key together. A file has processors and sinks
//! of one type each, so that each question of a reader has one key that it is about.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use regex::Regex;
use serde_json::Value;

use super::walk::{self, Entry};
use super::{parsed, yaml_files};
use crate::config::asked::Question;
use crate::config::document;
use crate::config::error::Problem;
use crate::config::reader::Reader;
use crate::config::schema::key::{Absent, Form, Takes};
use crate::config::{ConfigError, Loaded, file, load_text};

const FILES: &str = "src/config/schema/tests/files";
const KEYS: &str = "src/config/schema/keys";

/// What the readers asked a file for.
struct Answers {
    /// Of each mapping, the keys, and whether they had to be there.
    keys: BTreeMap<String, BTreeMap<&'static str, bool>>,
    /// Of each value, the kinds that it could have been.
    values: BTreeMap<String, Vec<Takes>>,
}

fn asked(name: &str, text: &str) -> Answers {
    let root = document::parse(text).unwrap();
    let environment = BTreeMap::new();
    let mut reader = Reader::new(&environment);
    let read = file::read(&mut reader, &root).is_ok();
    assert!(read && reader.violations.is_empty(), "{name}: {:#?}", reader.violations);
    let numbers = Regex::new(r"\[[0-9]+\]").unwrap();
    let without_numbers = |path: &str| numbers.replace_all(path, "[]").into_owned();
    let mut answers = Answers {
        keys: BTreeMap::new(),
        values: BTreeMap::new(),
    };
    for question in reader.asked.questions.take() {
        match question {
            Question::Key {
                mapping,
                name,
                is_required,
            } => {
                let keys = answers.keys.entry(without_numbers(&mapping)).or_default();
                *keys.entry(name).or_default() |= is_required;
            }
            Question::Value { path, takes } => {
                answers.values.entry(without_numbers(&path)).or_default().push(takes);
            }
        }
    }
    answers
}

/// The names of the keys of each mapping.
fn names(entries: &[Entry]) -> BTreeMap<&str, BTreeSet<&'static str>> {
    let mut names: BTreeMap<&str, BTreeSet<&'static str>> = BTreeMap::new();
    for entry in entries {
        if let Some(mapping) = &entry.mapping {
            names.entry(mapping).or_default().insert(entry.key.name);
        }
    }
    names
}

fn assert_none(faults: &BTreeSet<String>) {
    let lines: Vec<&str> = faults.iter().map(String::as_str).collect();
    assert!(faults.is_empty(), "{}", lines.join("\n"));
}

#[test]
fn the_readers_ask_for_the_keys_that_are_described_and_for_no_others() {
    let all = walk::all();
    let everywhere = names(&all);
    let mut faults = BTreeSet::new();
    let mut used = BTreeSet::new();
    for (name, text) in yaml_files(FILES) {
        let answers = asked(&name, &text);
        let here = walk::of(&parsed(&text));
        used.extend(
            here.iter()
                .filter(|entry| entry.is_there)
                .map(|entry| entry.at.typed.clone()),
        );
        for entry in &here {
            let Some(mapping) = &entry.mapping else { continue };
            let path = &entry.at.path;
            match answers.keys.get(mapping).and_then(|keys| keys.get(entry.key.name)) {
                None => {
                    faults.insert(format!("`{path}` is described in {KEYS}, and no reader asks for it"));
                }
                Some(&is_required) if is_required != entry.key.is_required() && !entry.is_choice => {
                    faults.insert(format!(
                        "`{path}` is described in {KEYS} as one that {} be there, and read as another",
                        if is_required { "need not" } else { "must" }
                    ));
                }
                Some(_) => {}
            }
        }
        let unseen: BTreeSet<&str> = all
            .iter()
            .filter(|entry| entry.key.takes == Takes::Anything)
            .map(|entry| entry.at.path.as_str())
            .collect();
        for (mapping, keys) in answers
            .keys
            .iter()
            .filter(|(mapping, _)| !unseen.contains(mapping.as_str()))
        {
            // What stands below a name of the file's own is nowhere but here.
            let described = [&everywhere, &names(&here)].map(|names| names.get(mapping.as_str()).cloned());
            for key in keys.keys() {
                if !described.iter().flatten().any(|names| names.contains(key)) {
                    faults.insert(format!("`{mapping}.{key}` is read, and not described in {KEYS}"));
                }
            }
        }
    }
    for entry in all.iter().filter(|entry| !used.contains(&entry.at.typed)) {
        faults.insert(format!("`{}` is in no file of {FILES}", entry.at.typed));
    }
    assert_none(&faults);
}

#[test]
fn the_readers_take_the_kinds_ranges_and_words_that_are_described() {
    let mut described: BTreeMap<String, Takes> = BTreeMap::new();
    let mut read: BTreeMap<String, Vec<Takes>> = BTreeMap::new();
    for (name, text) in yaml_files(FILES) {
        let answers = asked(&name, &text);
        for entry in walk::of(&parsed(&text)).into_iter().filter(|entry| entry.is_there) {
            let kinds = answers.values.get(&entry.at.path).into_iter().flatten().cloned();
            read.entry(entry.at.typed.clone()).or_default().extend(kinds);
            described.insert(entry.at.typed, entry.key.takes);
        }
    }
    let mut faults = BTreeSet::new();
    for (typed, takes) in &described {
        let (described, read) = (takes.kinds(), &read[typed]);
        let is_open = described.iter().any(|kind| matches!(kind, Takes::Anything));
        for kind in read {
            if !is_open && !described.iter().any(|described| agree(described, kind)) {
                faults.insert(format!("`{typed}` is read as {kind:?}, and described as {described:?}"));
            }
        }
        for described in described {
            let is_asked_for = !matches!(described, Takes::Anything | Takes::Null);
            if is_asked_for && !read.iter().any(|kind| agree(described, kind)) {
                faults.insert(format!(
                    "`{typed}` is described as {described:?}, which no reader asks for in {FILES}"
                ));
            }
        }
    }
    assert_none(&faults);
}

/// Whether a reader that asks for this kind takes what is described.
fn agree(described: &Takes, asked: &Takes) -> bool {
    match (described, asked) {
        (Takes::Text(Form::Like(..)), Takes::Text(_)) => true,
        (Takes::Mapping(_) | Takes::Tagged(_) | Takes::Open(_), Takes::Mapping(_)) => true,
        (Takes::List(_), Takes::List(_)) => true,
        (described, asked) => described == asked,
    }
}

fn load(document: &Value) -> Result<Loaded, ConfigError> {
    // JSON is YAML.
    load_text(Path::new("file.yaml"), &document.to_string(), &BTreeMap::new())
}

fn mapping_of<'d>(document: &'d mut Value, entry: &Entry) -> &'d mut serde_json::Map<String, Value> {
    let (mapping, _) = entry.at.pointer.rsplit_once('/').unwrap();
    document.pointer_mut(mapping).unwrap().as_object_mut().unwrap()
}

#[test]
fn the_described_defaults_are_what_a_file_without_the_key_gets() {
    let mut seen: BTreeMap<String, bool> = BTreeMap::new();
    let mut faults = BTreeSet::new();
    for (_, text) in yaml_files(FILES) {
        let document = parsed(&text);
        for entry in walk::of(&document).into_iter().filter(|entry| entry.is_there) {
            let Absent::Value(default) = &entry.key.absent else {
                continue;
            };
            let (mut with, mut without) = (document.clone(), document.clone());
            mapping_of(&mut with, &entry).insert(entry.key.name.to_owned(), default.clone());
            mapping_of(&mut without, &entry).remove(entry.key.name);
            let is_seen = seen.entry(entry.at.typed.clone()).or_default();
            // A default can clash with another key of the file.
            let (Ok(with), Ok(without)) = (load(&with), load(&without)) else {
                continue;
            };
            *is_seen = true;
            if format!("{:?}", with.pipeline) != format!("{:?}", without.pipeline) {
                faults.insert(format!("`{}` is not {default} by default", entry.at.typed));
            }
        }
    }
    for (typed, _) in seen.iter().filter(|(_, is_seen)| !**is_seen) {
        faults.insert(format!(
            "no file of {FILES} is valid both with the default of `{typed}` and without the key"
        ));
    }
    assert_none(&faults);
}

#[test]
fn a_key_of_another_type_or_version_is_refused_by_name() {
    let all = walk::all();
    let everywhere = names(&all);
    let mut faults = BTreeSet::new();
    let mut count = 0;
    for (name, text) in yaml_files(FILES) {
        let document = parsed(&text);
        let here = walk::of(&document);
        let known = names(&here);
        for entry in &here {
            let Some(mapping) = &entry.mapping else { continue };
            let Some(everywhere) = everywhere.get(mapping.as_str()) else {
                continue;
            };
            for foreign in everywhere.difference(&known[mapping.as_str()]) {
                let mut document = document.clone();
                mapping_of(&mut document, entry).insert((*foreign).to_owned(), Value::Null);
                let violations = load(&document).err().map(|err| err.violations).unwrap_or_default();
                let is_refused = violations.iter().any(|violation| {
                    let by_name = matches!(violation.problem, Problem::UnknownKey { .. } | Problem::Belongs { .. });
                    by_name && violation.path.ends_with(foreign)
                });
                if !is_refused {
                    faults.insert(format!(
                        "{name}: `{mapping}.{foreign}` is read, and described for other types alone"
                    ));
                }
                count += 1;
            }
        }
    }
    assert_none(&faults);
    assert!(count > 0);
}
