//! Places in a PostgreSQL cluster's log.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A PostgreSQL log sequence number: a byte offset in the write-ahead log, written as `16/B374D848`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Lsn(pub u64);

impl Lsn {
    /// The start of the log; the server takes it as "where the slot stands".
    pub const ZERO: Self = Self(0);
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:X}/{:X}", self.0 >> 32, self.0 & 0xFFFF_FFFF)
    }
}

/// A text that is not an LSN.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not an LSN: expected two hexadecimal numbers, such as 16/B374D848")]
pub struct ParseLsnError {
    text: String,
}

impl FromStr for Lsn {
    type Err = ParseLsnError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let half = |digits: &str| {
            let hex = (1..=8).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
            hex.then(|| u32::from_str_radix(digits, 16).ok()).flatten()
        };
        text.split_once('/')
            .and_then(|(high, low)| Some(Self(u64::from(half(high)?) << 32 | u64::from(half(low)?))))
            .ok_or_else(|| ParseLsnError { text: text.to_owned() })
    }
}

impl Serialize for Lsn {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Lsn {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

/// A place in one PostgreSQL cluster's log.
///
/// `base` is the end of the last whole unit (a transaction, or a non-transactional message) that is done; replication
/// is asked for from there. Inside the unit that follows, `partial` says how far it is done. LSNs order units by their
/// ends only: rows carry the start of their record and messages the end, so LSNs of changes in different transactions
/// say nothing about each other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PostgresPosition {
    /// Of the cluster, from `IDENTIFY_SYSTEM`; a stand-by's is its primary's.
    pub system_identifier: u64,
    pub timeline: u32,
    pub base: Lsn,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial: Option<Partial>,
    /// End of the last whole unit that had events of ours. After a fail-over the new server's log need not reach
    /// `base`, which idle progress moves; it must reach this.
    #[serde(default)]
    pub last_event_end: Lsn,
}

impl PostgresPosition {
    pub(super) fn after(&self, event: &PostgresEventPosition) -> Self {
        Self {
            base: event.base,
            partial: event.partial,
            last_event_end: event.last_event_end,
            ..*self
        }
    }
}

impl fmt::Display for PostgresPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.base)?;
        if let Some(partial) = &self.partial {
            write!(
                f,
                " + {} of the transaction that commits at {}",
                partial.change, partial.commit
            )?;
        }
        Ok(())
    }
}

/// How far the unit that follows a position's base is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Partial {
    /// LSN of the transaction's commit record, which names the transaction: BEGIN carries it as its final LSN.
    pub commit: Lsn,
    /// LSN of the last change that is done.
    pub change: Lsn,
    /// That change's number among those of the same LSN, from 0: a COPY's rows share one, and a message (its end) can
    /// share one with the row that follows (its start). Every change that the server sends counts, whatever we make of it.
    pub index: u32,
}

/// See [`PostgresPosition`], whose fields of the same names these become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PostgresEventPosition {
    pub base: Lsn,
    /// None: the event is a unit by itself, a non-transactional message, and `base` is its LSN.
    pub partial: Option<Partial>,
    pub last_event_end: Lsn,
    /// The transaction's id; None for a non-transactional message.
    pub xid: Option<u32>,
}

impl fmt::Display for PostgresEventPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.partial {
            Some(Partial { commit, change, index }) => write!(f, "{:016X}-{:016X}-{index}", commit.0, change.0),
            None => write!(f, "{:016X}", self.base.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn lsn_text_and_value_agree(value: u64) {
            prop_assert_eq!(Lsn(value).to_string().parse(), Ok(Lsn(value)));
        }

        #[test]
        fn any_text_is_an_lsn_or_an_error(text in "\\PC*") {
            let _ = text.parse::<Lsn>();
        }
    }

    #[test]
    fn an_event_is_done_behind_its_unit_or_inside_of_it() {
        let partial = |change, index| Partial {
            commit: Lsn(0x90),
            change: Lsn(change),
            index,
        };
        let position = |base, partial| PostgresPosition {
            system_identifier: 1,
            timeline: 1,
            base: Lsn(base),
            partial,
            last_event_end: Lsn::ZERO,
        };
        let event = |base, partial| PostgresEventPosition {
            base: Lsn(base),
            partial,
            last_event_end: Lsn::ZERO,
            xid: None,
        };
        let row = event(0x40, Some(partial(0x60, 1)));
        for (base, inside, expected) in [
            (0x98, None, true),
            (0x40, Some(partial(0x60, 1)), true),
            (0x40, Some(partial(0x70, 0)), true),
            (0x40, Some(partial(0x60, 0)), false),
            (0x40, None, false),
            (0x90, None, false),
        ] {
            assert_eq!(position(base, inside).covers(&row), expected, "{base:X} {inside:?}");
        }
        let message = event(0x60, None);
        assert!(position(0x60, None).covers(&message) && !position(0x58, None).covers(&message));
    }

    #[test]
    fn malformed_lsns_are_named_in_the_error() {
        for text in ["", "/", "1/", "/1", "0/G", "1/123456789", "+1/1", "1/2/3", "16B374D848"] {
            let error = text.parse::<Lsn>().expect_err(text);
            assert!(error.to_string().contains(&format!("`{text}`")), "{error}");
        }
    }
}
