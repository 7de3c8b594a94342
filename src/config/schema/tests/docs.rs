//! The tables of docs/pipeline-file.md, which are written by the test below: `TAILPOST_TEST_ACCEPT=1`.

use std::fmt::Write as _;

use super::at_root;
use super::walk::{self, Entry};
use crate::config::schema::key::{Absent, Key, Takes};
use crate::config::schema::keys;

const FILE: &str = "docs/pipeline-file.md";
const END: &str = "<!-- end of keys -->";

fn begin(section: &str) -> String {
    format!("<!-- keys of {section}: written by a test of src/config/schema -->")
}

#[derive(Debug, Clone, PartialEq)]
struct Row {
    path: String,
    takes: String,
    default: String,
    meaning: String,
}

impl Row {
    fn new(path: &str, key: &Key, of: &str) -> Self {
        Self {
            path: format!("`{path}`"),
            takes: key.takes.words(),
            default: match &key.absent {
                Absent::Refused => "required".to_owned(),
                Absent::Nothing => String::new(),
                Absent::Value(serde_json::Value::String(text)) => format!("`{text}`"),
                Absent::Value(value) => format!("`{value}`"),
                Absent::Words(words) => (*words).to_owned(),
            },
            meaning: format!("{of}{}", key.meaning),
        }
    }
}

/// The tables' names and texts: of the file, of each mapping in it, of each part of `spec`, and of DeltaForge's keys.
fn sections() -> Vec<(String, String)> {
    let file = keys::file();
    let mut sections = vec![("the file".to_owned(), table(&own_rows("", &file, "")))];
    for key in &file {
        let Takes::Mapping(keys) = &key.takes else { continue };
        sections.push((key.name.to_owned(), table(&own_rows("", keys, ""))));
        let parts = keys
            .iter()
            .filter(|part| key.name == "spec" && !part.is_of_deltaforge());
        sections.extend(parts.map(|part| (format!("spec.{}", part.name), section(&part.takes))));
    }
    sections.push(("deltaforge/v1".to_owned(), deltaforge()));
    sections
}

fn section(takes: &Takes) -> String {
    match takes {
        Takes::List(list) => section(&list.of),
        Takes::Mapping(keys) => table(&all_rows("", keys, "")),
        Takes::Tagged(tagged) => {
            let of_type = [tagged.type_key()];
            let variants: Vec<Vec<Row>> = tagged
                .variants
                .iter()
                .map(|variant| {
                    let rows = all_rows("", &of_type, "");
                    rows.into_iter().chain(all_rows("", &variant.keys, "")).collect()
                })
                .collect();
            let is_common = |row: &Row| variants.iter().all(|rows| rows.contains(row));
            let common: Vec<Row> = variants[0].iter().filter(|row| is_common(row)).cloned().collect();
            let mut text = table(&common);
            for (variant, rows) in tagged.variants.iter().zip(&variants) {
                let own: Vec<Row> = rows.iter().filter(|row| !is_common(row)).cloned().collect();
                if !own.is_empty() {
                    let words = Takes::Word(variant.words.clone()).words();
                    let _ = write!(text, "\nOf type {words} alone:\n\n{}", table(&own));
                }
            }
            text
        }
        takes => panic!("a part of `spec` that is no mapping: {takes:?}"),
    }
}

fn own_rows(prefix: &str, keys: &[Key], of: &str) -> Vec<Row> {
    let shown = keys
        .iter()
        .filter(|key| !key.is_of_deltaforge() && !key.meaning.is_empty());
    shown
        .map(|key| Row::new(&format!("{prefix}{}", key.name), key, of))
        .collect()
}

/// The keys and all that is below them. `of`: what each meaning begins with.
fn all_rows(prefix: &str, keys: &[Key], of: &str) -> Vec<Row> {
    let mut rows = Vec::new();
    for key in keys {
        rows.extend(own_rows(prefix, std::slice::from_ref(key), of));
        rows.extend(rows_below(&format!("{prefix}{}", key.name), &key.takes, of));
    }
    rows
}

fn rows_below(path: &str, takes: &Takes, of: &str) -> Vec<Row> {
    let prefix = format!("{path}.");
    let of_kind = |kind: &Takes| match kind {
        Takes::Mapping(keys) => all_rows(&prefix, keys, of),
        Takes::Open(open) => all_rows(&prefix, &open.known, of),
        Takes::List(list) => rows_below(&format!("{path}[]"), &list.of, of),
        Takes::Tagged(tagged) => {
            let mut rows = all_rows(&prefix, &[tagged.type_key()], of);
            for variant in &tagged.variants {
                let of = format!("{of}of {}: ", Takes::Word(variant.words.clone()).words());
                rows.extend(all_rows(&prefix, &variant.keys, &of));
            }
            rows
        }
        _ => Vec::new(),
    };
    takes.kinds().into_iter().flat_map(of_kind).collect()
}

fn deltaforge() -> String {
    let mut rows: Vec<Row> = Vec::new();
    for Entry { at, key, .. } in walk::all().into_iter().filter(|entry| entry.key.is_of_deltaforge()) {
        let mut row = Row::new(&at.path, &key, "");
        if row.meaning.is_empty() {
            row.meaning = "without effect".to_owned();
        }
        if !rows.contains(&row) {
            rows.push(row);
        }
    }
    table(&rows)
}

fn table(rows: &[Row]) -> String {
    let mut text = "| key | takes | default | meaning |\n|---|---|---|---|\n".to_owned();
    for row in rows {
        let cells = [&row.path, &row.takes, &row.default, &row.meaning].map(|cell| cell.replace('|', "\\|"));
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    text
}

/// The document with each section's table between its marks.
fn with_tables(document: &str) -> String {
    let mut text = document.to_owned();
    for (name, table) in sections() {
        let begin = begin(&name);
        let Some((before, rest)) = text.split_once(&begin) else {
            panic!("{FILE} has no place for the keys of {name}: write two lines there, `{begin}` and `{END}`");
        };
        let Some((_, after)) = rest.split_once(END) else {
            panic!("{FILE} has no `{END}` behind `{begin}`");
        };
        text = format!("{before}{begin}\n\n{table}\n{END}{after}");
    }
    text
}

#[test]
fn the_tables_of_the_documentation_are_those_of_the_description() {
    let path = at_root(FILE);
    let document = std::fs::read_to_string(&path).unwrap();
    let wanted = with_tables(&document);
    if document == wanted {
        return;
    }
    if std::env::var_os("TAILPOST_TEST_ACCEPT").is_some_and(|value| value == "1") {
        std::fs::write(&path, wanted).unwrap();
        return;
    }
    let differs = document
        .lines()
        .zip(wanted.lines())
        .find(|(found, wanted)| found != wanted);
    panic!(
        "{FILE} is not what src/config/schema/keys says; with TAILPOST_TEST_ACCEPT=1 this test writes it: {differs:#?}"
    );
}

#[test]
fn every_key_has_a_meaning() {
    for Entry { at, key, .. } in walk::all() {
        // That a mapping is called `config` says it all.
        let says_enough = matches!(key.takes, Takes::Mapping(_)) || key.is_of_deltaforge() || key.name == "[]";
        assert!(says_enough || !key.meaning.is_empty(), "{}", at.typed);
    }
}
