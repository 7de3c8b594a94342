//! The description against the readers, the documentation and the files that there are.

mod described;
mod docs;
mod drift;
mod files;
mod walk;

use std::path::PathBuf;
use std::sync::LazyLock;

use jsonschema::Validator;
use serde_json::Value;

use super::json_schema;

static VALIDATOR: LazyLock<Validator> = LazyLock::new(|| jsonschema::validator_for(&json_schema()).unwrap());

/// What is wrong with a document by the JSON Schema: each fault's place and what it is.
fn refusals(document: &Value) -> Vec<(String, String)> {
    let faults = VALIDATOR.iter_errors(document);
    faults
        .map(|fault| (fault.instance_path().to_string(), fault.to_string()))
        .collect()
}

fn parsed(text: &str) -> Value {
    serde_yaml::from_str(text.trim_start_matches('\u{feff}')).unwrap_or_else(|err| panic!("{err}\n{text}"))
}

/// A file that the readers take must be one that the schema takes.
pub(in crate::config) fn assert_accepted(text: &str) {
    let refusals = refusals(&parsed(text));
    assert!(
        refusals.is_empty(),
        "the readers take what the JSON Schema refuses (src/config/schema/keys): {refusals:#?}\n{text}"
    );
}

/// A path in this repository.
fn at_root(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The names and texts of YAML files in a folder of this repository.
fn yaml_files(folder: &str) -> Vec<(String, String)> {
    let mut files: Vec<(String, String)> = std::fs::read_dir(at_root(folder))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .map(|path| (path.display().to_string(), std::fs::read_to_string(&path).unwrap()))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{folder}");
    files
}
