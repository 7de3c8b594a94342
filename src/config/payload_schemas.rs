//! JSON Schemas of payloads, compiled: a folder has one a file, `<event type>/<version>.json`.
//!
//! A schema stands by itself: a `$ref` leads to a place inside it, and nothing is fetched from anywhere.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jsonschema::{ValidationError, Validator};
use serde_json::Value;
use thiserror::Error;

/// A schema is a few kilobytes; anything larger is the wrong file, or one that never ends.
pub(crate) const MAX_BYTES: u64 = 4 * 1024 * 1024;

/// Compiled schemas by event type and version. Clones share them.
#[derive(Clone, Default)]
pub struct PayloadSchemas {
    by_type: BTreeMap<String, BTreeMap<String, Arc<Validator>>>,
}

/// A file, or the folder itself, that does not give what it should.
#[derive(Debug, Error)]
#[error("`{}` {fault}", .path.display())]
pub struct FileFault {
    pub path: PathBuf,
    pub fault: SchemaFault,
}

#[derive(Debug, Error)]
pub enum SchemaFault {
    #[error("cannot be read: {0}")]
    Unreadable(io::ErrorKind),
    #[error("is larger than 4 MiB")]
    TooLarge,
    #[error("has a name that is not UTF-8")]
    Name,
    #[error("is in no folder of an event type: expected `<event type>/<version>.json`")]
    NoType,
    #[error("is a folder in that of an event type: expected `<event type>/<version>.json`")]
    TooDeep,
    #[error("has no schema in it: expected files such as `order.created/1.0.0.json`")]
    Empty,
    #[error("is no JSON: {0}")]
    NotJson(serde_json::Error),
    #[error("is no JSON Schema{place}: {fault}")]
    NotASchema { place: String, fault: String },
}

impl PayloadSchemas {
    /// Reads a folder's schemas. What is hidden, and files that do not end in `.json`, are left out.
    ///
    /// # Errors
    /// Everything that is wrong with the folder and its files, in the order of their names.
    pub fn read(folder: &Path) -> Result<Self, Vec<FileFault>> {
        let mut schemas = Self::default();
        let mut faults = Vec::new();
        let mut note = |path: &Path, result: Result<(), SchemaFault>| {
            let path = path.to_owned();
            faults.extend(result.err().map(|fault| FileFault { path, fault }));
        };
        let (types, mut result) = entries(folder);
        for of_type in types {
            if !of_type.is_dir() {
                let is_schema = schema_name(&of_type).is_some();
                note(&of_type, if is_schema { Err(SchemaFault::NoType) } else { Ok(()) });
                continue;
            }
            let (versions, result) = entries(&of_type);
            note(&of_type, result);
            for file in versions {
                let result = match (file.is_dir(), schema_name(&file)) {
                    (true, _) => Err(SchemaFault::TooDeep),
                    (false, Some(version)) => schemas.read_file(&of_type, version, &file),
                    (false, None) => Ok(()),
                };
                note(&file, result);
            }
        }
        if result.is_ok() && schemas.by_type.is_empty() {
            result = Err(SchemaFault::Empty);
        }
        note(folder, result);
        // Schemas that are wrong are there all the same.
        if faults.len() > 1 {
            faults.retain(|fault| !matches!(fault.fault, SchemaFault::Empty));
        }
        match faults.is_empty() {
            true => Ok(schemas),
            false => Err(faults),
        }
    }

    fn read_file(&mut self, of_type: &Path, version: &str, file: &Path) -> Result<(), SchemaFault> {
        let event_type = of_type
            .file_name()
            .and_then(|name| name.to_str())
            .ok_or(SchemaFault::Name)?;
        self.add(event_type, version, &read_bytes(file)?)
    }

    /// Adds a schema, of the draft that its `$schema` names, or else of 2020-12.
    ///
    /// # Errors
    /// It is no schema, or one that refers to another.
    pub fn add(&mut self, event_type: &str, version: &str, text: &[u8]) -> Result<(), SchemaFault> {
        let schema: Value = serde_json::from_slice(text).map_err(SchemaFault::NotJson)?;
        let validator = jsonschema::options()
            .offline()
            .build(&schema)
            .map_err(|err| not_a_schema(&err))?;
        let versions = self.by_type.entry(event_type.to_owned()).or_default();
        versions.insert(version.to_owned(), Arc::new(validator));
        Ok(())
    }

    pub fn find(&self, event_type: &str, version: &str) -> Option<&Arc<Validator>> {
        self.by_type.get(event_type)?.get(version)
    }
}

/// What is wrong may be shown: a schema is no secret. But it can be long.
pub(crate) fn not_a_schema(err: &ValidationError<'_>) -> SchemaFault {
    const MAX_CHARACTERS: usize = 300;
    let place = match err.instance_path().as_str() {
        "" => String::new(),
        place => format!(", at `{place}`"),
    };
    let fault = err.to_string().chars().take(MAX_CHARACTERS).collect();
    SchemaFault::NotASchema { place, fault }
}

/// What is in a folder, by name, hidden entries left out: a mounted ConfigMap has its own. Up to where it cannot be read.
fn entries(folder: &Path) -> (Vec<PathBuf>, Result<(), SchemaFault>) {
    let mut paths = Vec::new();
    let read = fs::read_dir(folder).and_then(|entries| {
        for entry in entries {
            let entry = entry?;
            if !entry.file_name().as_encoded_bytes().starts_with(b".") {
                paths.push(entry.path());
            }
        }
        Ok(())
    });
    paths.sort();
    (paths, read.map_err(|err| SchemaFault::Unreadable(err.kind())))
}

/// A file's name without `.json`. None: it is no schema.
fn schema_name(file: &Path) -> Option<&str> {
    file.file_name()?.to_str()?.strip_suffix(".json")
}

fn read_bytes(file: &Path) -> Result<Vec<u8>, SchemaFault> {
    let mut bytes = Vec::new();
    let read = fs::File::open(file).and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut bytes));
    match read {
        Err(err) => Err(SchemaFault::Unreadable(err.kind())),
        Ok(_) if bytes.len() as u64 > MAX_BYTES => Err(SchemaFault::TooLarge),
        Ok(_) => Ok(bytes),
    }
}

/// Which schemas there are.
impl fmt::Debug for PayloadSchemas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of_types = self.by_type.iter();
        let versions = of_types.map(|(event_type, versions)| (event_type, versions.keys().collect::<Vec<_>>()));
        f.debug_map().entries(versions).finish()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        folder
    }

    /// The faults, without the folder's own path.
    fn faults(folder: &Path) -> Vec<String> {
        let faults = PayloadSchemas::read(folder).expect_err("faults");
        let own = folder.display().to_string();
        faults
            .iter()
            .map(|fault| fault.to_string().replace(&own, "schemas"))
            .collect()
    }

    #[test]
    fn a_folder_gives_a_schema_for_each_type_and_version() {
        let folder = folder(&[
            ("order.created/1.0.0.json", r#"{"type": "object"}"#),
            (
                "order.created/2.json",
                r##"{"$schema": "http://json-schema.org/draft-07/schema#", "definitions": {"id": {"type": "integer"}}, "properties":
                {"id": {"$ref": "#/definitions/id"}}}"##,
            ),
            (
                "paid/1.0.0.json",
                r#"{"$schema": "https://json-schema.org/draft/2019-09/schema", "dependentRequired": {"a": ["b"]}}"#,
            ),
            ("paid/README.md", "no schema"),
            ("README.md", "no schema"),
            (".git/config", "hidden"),
        ]);
        let schemas = PayloadSchemas::read(folder.path()).unwrap();
        assert_eq!(
            format!("{schemas:?}"),
            r#"{"order.created": ["1.0.0", "2"], "paid": ["1.0.0"]}"#
        );
        let is_valid = |event_type, version, value: Value| {
            let schema = schemas.find(event_type, version)?;
            Some(schema.is_valid(&value))
        };
        assert_eq!(is_valid("order.created", "1.0.0", json!([])), Some(false));
        assert_eq!(is_valid("order.created", "2", json!({"id": 1})), Some(true));
        assert_eq!(is_valid("order.created", "2", json!({"id": "1"})), Some(false));
        assert_eq!(is_valid("paid", "1.0.0", json!({"a": 1})), Some(false));
        assert_eq!(is_valid("paid", "2", json!(1)), None);
        assert_eq!(is_valid("order", "1.0.0", json!(1)), None);
    }

    #[test]
    fn everything_that_is_wrong_with_a_folder_is_said_with_its_file() {
        let folder = folder(&[
            ("a.json", "{}"),
            ("b/1.json", "{"),
            ("b/2.json", r#"{"type": "objekt"}"#),
            ("b/3.json", r#"{"$ref": "https://example.com/schema.json"}"#),
            ("b/4.json", r#"{"$ref": "../a.json"}"#),
            ("b/5.json", r##"{"$ref": "#/definitions/none"}"##),
            ("b/6.json", r#"{"pattern": "("}"#),
            ("b/c/1.json", "{}"),
            ("d/1.json", "{}"),
        ]);
        let found = faults(folder.path());
        for (line, expected) in found.iter().zip([
            "`schemas/a.json` is in no folder of an event type",
            "`schemas/b/1.json` is no JSON: EOF",
            "`schemas/b/2.json` is no JSON Schema, at `/type`: ",
            "`schemas/b/3.json` is no JSON Schema: ",
            "`schemas/b/4.json` is no JSON Schema: ",
            "`schemas/b/5.json` is no JSON Schema: ",
            "`schemas/b/6.json` is no JSON Schema, at `/pattern`: ",
            "`schemas/b/c` is a folder in that of an event type",
        ]) {
            assert!(line.starts_with(expected), "`{expected}`: {line}");
        }
        assert_eq!(found.len(), 8, "{found:#?}");
    }

    #[test]
    fn a_folder_without_schemas_is_refused() {
        let empty = folder(&[("README.md", "none")]);
        let expected = "`schemas` has no schema in it: expected files such as `order.created/1.0.0.json`";
        assert_eq!(faults(empty.path()), [expected]);
        let missing = empty.path().join("none");
        assert_eq!(faults(&missing), ["`schemas` cannot be read: entity not found"]);
    }
}
