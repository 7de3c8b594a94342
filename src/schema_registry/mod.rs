//! Schemas of payloads from a registry that speaks the API of Confluent's.
//!
//! A validate processor knows those that it was given, and asks for another one when an event needs it: it is pure, and fetches
//! nothing. The relay holds that event back meanwhile, as it does for a sink that is busy, and [`Lookups`] fetches. So a schema is
//! fetched when its first event comes, however many others the registry has, and an event is never called invalid because the
//! registry is away.
//!
//! A version that has a number never changes, and is fetched once. What `latest` is, and what the registry does not have, can
//! change: it is asked for anew now and then, and before an event is refused for it.

mod client;
mod lookups;
mod resolve;

use std::fmt;
use std::sync::Arc;

use jsonschema::Validator;

use crate::config::SchemaRegistry;

pub(crate) use client::preflight;
pub(crate) use lookups::Lookups;

/// What keeps a schema from being fetched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    #[error("schema registry {url} cannot be reached: {cause}; start it, or correct `schemas.registry.url`")]
    Unreachable { url: String, cause: String },
    #[error(
        "schema registry {url} answered {code}, as no schema registry does: expected one that speaks Confluent's API; correct \
         `schemas.registry.url` if there is none"
    )]
    Foreign { url: String, code: u16 },
    #[error(
        "schema registry {url} does not let us read (it answered {code}): correct `schemas.registry.auth`, or its rights"
    )]
    Refused { url: String, code: u16 },
    #[error("schema registry {url} keeps no JSON Schemas (it names {types}): use one that does")]
    NoJson { url: String, types: String },
    #[error("set up the client of schema registry {url}: {cause}")]
    SetUp { url: String, cause: String },
}

impl RegistryError {
    /// Whether it may be over without anybody's doing.
    pub fn can_heal(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Foreign { .. } => true,
            Self::Refused { .. } | Self::NoJson { .. } | Self::SetUp { .. } => false,
        }
    }
}

/// A schema's place in a registry.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct SchemaId {
    pub(crate) subject: String,
    pub(crate) version: Version,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Version {
    Number(u32),
    Latest,
}

impl Version {
    /// What a text is called that is none.
    pub(crate) const EXPECTED: &str = "a whole number, 1 or more, or `latest`";

    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text {
            "latest" => Some(Self::Latest),
            _ if !text.bytes().all(|byte| byte.is_ascii_digit()) => None,
            // The API has them in 31 bits.
            _ => text
                .parse()
                .ok()
                .filter(|number| (1..1 << 31).contains(number))
                .map(Self::Number),
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Latest => f.write_str("latest"),
        }
    }
}

/// A schema that an event waits for.
#[derive(Debug, Clone)]
pub(crate) struct Question {
    pub(crate) registry: Arc<SchemaRegistry>,
    pub(crate) id: SchemaId,
    pub(crate) known: Known,
}

/// What is known of the answer already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    Nothing,
    /// An answer of some age, which serves where there is no other.
    Old,
    /// An answer by which the event will be refused.
    Doubted,
}

/// What a registry has for a question.
#[derive(Clone)]
pub(crate) enum Answer {
    Schema(Arc<Fetched>),
    /// It has no such subject or version.
    Missing,
    /// What it has is nothing to hold a payload against.
    Unusable(String),
    /// What is known already.
    Unchanged,
}

/// A schema with the number of its version.
pub(crate) struct Fetched {
    pub(crate) version: u32,
    pub(crate) validator: Validator,
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Schema(fetched) => write!(f, "Schema({})", fetched.version),
            Self::Missing => f.write_str("Missing"),
            Self::Unusable(fault) => write!(f, "Unusable({fault})"),
            Self::Unchanged => f.write_str("Unchanged"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_a_number_or_the_latest() {
        for (text, expected) in [
            ("1", Some(Version::Number(1))),
            ("2147483647", Some(Version::Number(2_147_483_647))),
            ("latest", Some(Version::Latest)),
            ("0", None),
            ("2147483648", None),
            ("+1", None),
            ("-1", None),
            ("1.0.0", None),
            ("", None),
            ("LATEST", None),
        ] {
            assert_eq!(Version::parse(text), expected, "{text}");
        }
    }
}
