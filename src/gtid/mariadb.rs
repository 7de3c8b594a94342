//! MariaDB's GTIDs: a sequence number in a replication domain, with the server that wrote it, and where a reader stands.
//!
//! In a domain transactions come in one order, so that one GTID says how far it is done. The last one need not have
//! the highest sequence: a domain that several servers wrote to without strict mode can go back.

use std::fmt;
use std::str::FromStr;

use super::excerpt;

/// A text that is no MariaDB GTID or list of them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseMariadbGtidError {
    #[error("`{text}` is not a MariaDB GTID: expected domain-server-sequence, such as 0-1-100")]
    Form { text: String },
    #[error("domain {} is named twice, by {first} and {second}: expected one GTID a domain", first.domain)]
    DomainTwice { first: MariadbGtid, second: MariadbGtid },
}

/// One transaction's name, `domain-server-sequence`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MariadbGtid {
    pub domain: u32,
    pub server: u32,
    pub sequence: u64,
}

impl fmt::Display for MariadbGtid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}", self.domain, self.server, self.sequence)
    }
}

impl FromStr for MariadbGtid {
    type Err = ParseMariadbGtidError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parsed = || {
            let (domain, rest) = text.split_once('-')?;
            let (server, sequence) = rest.split_once('-')?;
            Some(Self {
                domain: parse_number(domain)?,
                server: parse_number(server)?,
                sequence: parse_number(sequence)?,
            })
        };
        parsed().ok_or_else(|| ParseMariadbGtidError::Form { text: excerpt(text) })
    }
}

/// Digits only, where the standard library takes a sign too.
fn parse_number<N: FromStr>(text: &str) -> Option<N> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

/// The last transaction of each domain that is done: what `gtid_slave_pos` and `@slave_connect_state` hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MariadbGtids {
    /// By domain, one each.
    last: Vec<MariadbGtid>,
}

impl MariadbGtids {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn is_empty(&self) -> bool {
        self.last.is_empty()
    }

    pub fn get(&self, domain: u32) -> Option<MariadbGtid> {
        let at = self.search(domain).ok()?;
        self.last.get(at).copied()
    }

    /// Makes it the last of its domain, whatever its sequence.
    pub fn insert(&mut self, gtid: MariadbGtid) {
        match self.search(gtid.domain) {
            Ok(at) => self.last[at] = gtid,
            Err(at) => self.last.insert(at, gtid),
        }
    }

    pub fn remove(&mut self, domain: u32) {
        if let Ok(at) = self.search(domain) {
            self.last.remove(at);
        }
    }

    /// In the order of their domains.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = MariadbGtid> {
        self.last.iter().copied()
    }

    fn search(&self, domain: u32) -> Result<usize, usize> {
        self.last.binary_search_by_key(&domain, |gtid| gtid.domain)
    }
}

impl fmt::Display for MariadbGtids {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, gtid) in self.last.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{gtid}")?;
        }
        Ok(())
    }
}

impl FromStr for MariadbGtids {
    type Err = ParseMariadbGtidError;

    /// White space around a GTID, and no GTID at all, are taken.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.trim().is_empty() {
            return Ok(Self::new());
        }
        let parts = text.split(',').map(|part| part.trim().parse());
        let mut last: Vec<MariadbGtid> = parts.collect::<Result<_, _>>()?;
        last.sort_by_key(|gtid| gtid.domain);
        let twice = last.windows(2).find_map(|pair| match *pair {
            [first, second] if first.domain == second.domain => Some((first, second)),
            _ => None,
        });
        match twice {
            Some((first, second)) => Err(ParseMariadbGtidError::DomainTwice { first, second }),
            None => Ok(Self { last }),
        }
    }
}

serde_as_text!(MariadbGtid, MariadbGtids);

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn gtid(text: &str) -> MariadbGtid {
        text.parse().unwrap()
    }

    #[test]
    fn one_text_is_one_gtid() {
        let expected = MariadbGtid {
            domain: u32::MAX,
            server: 0,
            sequence: u64::MAX,
        };
        assert_eq!(gtid("4294967295-0-18446744073709551615"), expected);
        assert_eq!(serde_json::to_string(&gtid("0-1-100")).unwrap(), r#""0-1-100""#);
        assert_eq!(
            serde_json::from_str::<MariadbGtid>(r#""0-1-100""#).unwrap(),
            gtid("0-1-100")
        );
    }

    #[test]
    fn malformed_texts_are_named_in_the_error() {
        for text in [
            "",
            "0",
            "0-1",
            "0-1-",
            "-1-1",
            "0--1",
            "0-1-1-1",
            "+0-1-1",
            "0-1-+1",
            "4294967296-1-1",
            "0- 1-1",
        ] {
            let error = text.parse::<MariadbGtid>().expect_err(text);
            assert!(error.to_string().contains(&format!("`{text}`")), "{error}");
        }
        for text in [",", "0-1-1,", "0-1-1,,1-1-1", "0-1-1 1-1-1"] {
            assert!(text.parse::<MariadbGtids>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_list_is_printed_by_domain() {
        let gtids: MariadbGtids = " 5-2-7,\n0-1-100 ".parse().unwrap();
        assert_eq!(gtids.to_string(), "0-1-100,5-2-7");
        assert_eq!(gtids.iter().collect::<Vec<_>>(), [gtid("0-1-100"), gtid("5-2-7")]);
        assert_eq!(serde_json::to_string(&gtids).unwrap(), r#""0-1-100,5-2-7""#);
        assert_eq!(
            serde_json::from_str::<MariadbGtids>(r#""5-2-7,0-1-100""#).unwrap(),
            gtids
        );
    }

    #[test]
    fn no_text_is_no_gtid() {
        for text in ["", " \n"] {
            assert_eq!(text.parse(), Ok(MariadbGtids::new()), "{text:?}");
        }
    }

    #[test]
    fn a_domain_named_twice_is_an_error() {
        assert_eq!(
            "0-1-1,1-1-1,0-2-5".parse::<MariadbGtids>(),
            Err(ParseMariadbGtidError::DomainTwice {
                first: gtid("0-1-1"),
                second: gtid("0-2-5"),
            })
        );
    }

    #[test]
    fn the_last_inserted_counts_and_not_the_highest() {
        let mut gtids: MariadbGtids = "0-1-100,1-1-1".parse().unwrap();
        gtids.insert(gtid("0-2-99"));
        assert_eq!(gtids.get(0), Some(gtid("0-2-99")));
        assert_eq!(gtids.get(2), None);
        assert_eq!(gtids.to_string(), "0-2-99,1-1-1");
    }

    fn any_gtid() -> impl Strategy<Value = MariadbGtid> {
        (prop_oneof![0..4_u32, any::<u32>()], any::<u32>(), any::<u64>()).prop_map(|(domain, server, sequence)| {
            MariadbGtid {
                domain,
                server,
                sequence,
            }
        })
    }

    proptest! {
        #[test]
        fn texts_and_values_agree(inserted in prop::collection::vec(any_gtid(), 0..12)) {
            let (mut gtids, mut model) = (MariadbGtids::new(), BTreeMap::new());
            for gtid in inserted {
                prop_assert_eq!(gtid.to_string().parse(), Ok(gtid));
                gtids.insert(gtid);
                model.insert(gtid.domain, gtid);
            }
            prop_assert!(gtids.iter().eq(model.values().copied()));
            prop_assert_eq!(gtids.is_empty(), model.is_empty());
            prop_assert_eq!(gtids.to_string().parse(), Ok(gtids));
        }

        #[test]
        fn any_text_is_a_list_or_an_error(text in "\\PC*", list in "[0-9, -]*") {
            for text in [text, list] {
                if let Ok(gtids) = text.parse::<MariadbGtids>() {
                    prop_assert_eq!(gtids.to_string().parse(), Ok(gtids));
                }
                let _ = text.parse::<MariadbGtid>();
            }
        }
    }
}
