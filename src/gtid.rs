//! Global transaction identifiers: how MySQL and MariaDB name the transactions of their binlogs, and what is done of them.
//!
//! The two share a name only. A MySQL GTID is a member of a set: transactions commit out of order and come from many
//! servers, so a [`GtidSet`] keeps every hole. MariaDB's sequences never go back inside a domain: what is done is the
//! last [`MariadbGtid`] of each, [`MariadbGtids`].
//!
//! Texts are the servers' own, and what serde reads and writes: a checkpoint can be held against a server's variables.

/// Serializes as the `Display` text, deserializes by `FromStr`.
macro_rules! serde_as_text {
    ($($type:ty),+) => {$(
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?
                    .parse()
                    .map_err(serde::de::Error::custom)
            }
        }
    )+};
}

mod mariadb;
mod mysql;

pub use mariadb::{MariadbGtid, MariadbGtids, ParseMariadbGtidError};
pub use mysql::{DecodeGtidSetError, Gtid, GtidSet, ParseGtidError, SourceId, Tag};

/// The part of a malformed text that an error shows: enough to find it by.
fn excerpt(text: &str) -> String {
    const MAX_CHARS: usize = 64;
    text.chars().take(MAX_CHARS).collect()
}
