//! What a pipeline file may say: each key, what it takes, its default and its meaning, in one place.
//!
//! `keys` describes them, in parts as the readers under `file` are; `json` writes the description as JSON Schema, for
//! editors. The tables of docs/pipeline-file.md are made of it too, by a test (`tests/docs.rs`). The readers are written by
//! hand, since many a key has a rule of its own. So another test holds the two against each other (`tests/drift.rs`): a key that
//! one of them lacks is found there, as is another kind, range, word or default.
//!
//! A new key needs its description in `keys` and a place in a file of `tests/files`; then `TAILPOST_TEST_ACCEPT=1 cargo test
//! --lib schema` writes it into the tables.

mod json;
mod key;
mod keys;

pub use json::json_schema;
pub(super) use key::{Form, Takes};

#[cfg(test)]
pub(super) mod tests;
