//! Whether the lines of a ledger are those that were written, in their order. Pure: lines in, the first fault out.

use super::chain::{CONTINUES, Hash, Head, Link};

/// What is wrong with a line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("torn: it has no line break; found {bytes} bytes, expected a whole line")]
    Torn { bytes: usize },
    #[error("changed: it does not end with the `seq`, `prev` and `hash` of a ledger's line")]
    NoLink,
    #[error("changed: found hash {found}, expected {expected} of its bytes")]
    Changed { found: Hash, expected: Hash },
    #[error("missing: found line {found} of the chain, expected line {expected}")]
    Missing { found: u64, expected: u64 },
    #[error("reordered: found line {found} of the chain, expected line {expected}")]
    Reordered { found: u64, expected: u64 },
    #[error("it follows another line than the one before it: found prev {found}, expected {expected}")]
    Unlinked { found: Hash, expected: Hash },
}

impl Fault {
    /// The word for it in JSON.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Torn { .. } => "torn",
            Self::NoLink | Self::Changed { .. } => "changed",
            Self::Missing { .. } => "missing",
            Self::Reordered { .. } => "reordered",
            Self::Unlinked { .. } => "unlinked",
        }
    }
}

/// What the lines looked at say, up to the first fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verifier<P> {
    /// Of the first line: what came before it was not looked at.
    first: Option<Head>,
    /// Of the last that is in order.
    last: Head,
    lines: u64,
    fault: Option<(P, Fault)>,
}

impl<P> Default for Verifier<P> {
    fn default() -> Self {
        Self {
            first: None,
            last: Head::NONE,
            lines: 0,
            fault: None,
        }
    }
}

impl<P> Verifier<P> {
    /// Looks at the next line, with its line break if it has one; `place` is where it stands.
    pub fn line(&mut self, place: P, line: &[u8]) {
        match &mut self.fault {
            None => match self.follow(line) {
                Ok(()) => self.lines += 1,
                Err(fault) => self.fault = Some((place, fault)),
            },
            // A line that is missing here and comes later was moved.
            Some((_, fault @ Fault::Missing { .. })) => {
                let Fault::Missing { found, expected } = *fault else {
                    return;
                };
                let link = line.strip_suffix(b"\n").and_then(Link::read);
                if link.is_some_and(|link| link.head.seq == expected) {
                    *fault = Fault::Reordered { found, expected };
                }
            }
            Some(_) => {}
        }
    }

    fn follow(&mut self, line: &[u8]) -> Result<(), Fault> {
        let Some(whole) = line.strip_suffix(b"\n") else {
            return Err(Fault::Torn { bytes: line.len() });
        };
        let Link { head, prev, computed } = Link::read(whole).ok_or(Fault::NoLink)?;
        if head.hash != computed {
            return Err(Fault::Changed {
                found: head.hash,
                expected: computed,
            });
        }
        // Each file but a chain's first begins with a line that says what it continues.
        let begins_later = self.first.is_none() && whole.starts_with(CONTINUES);
        let expected = self.last.seq.saturating_add(1);
        if !begins_later {
            match head.seq {
                found if found > expected => return Err(Fault::Missing { found, expected }),
                found if found < expected => return Err(Fault::Reordered { found, expected }),
                _ if prev != self.last.hash => {
                    let expected = self.last.hash;
                    return Err(Fault::Unlinked { found: prev, expected });
                }
                _ => {}
            }
        }
        self.first.get_or_insert(Head {
            seq: head.seq,
            hash: prev,
        });
        self.last = head;
        Ok(())
    }

    /// The first line's number, with the hash of the line before it.
    pub fn first(&self) -> Option<Head> {
        self.first
    }

    /// The last line that is in order.
    pub fn last(&self) -> Head {
        self.last
    }

    /// How many lines are in order.
    pub fn line_count(&self) -> u64 {
        self.lines
    }

    /// The first fault, and where it is.
    pub fn fault(&self) -> Option<&(P, Fault)> {
        self.fault.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn chain(bodies: &[String]) -> Vec<Vec<u8>> {
        let mut head = Head::NONE;
        let line = |body: &String| {
            let mut line = format!("{{\"a\":{body:?}").into_bytes();
            head.seal(&mut line, 0);
            line
        };
        bodies.iter().map(line).collect()
    }

    fn verified(lines: &[Vec<u8>]) -> Verifier<usize> {
        let mut verifier = Verifier::default();
        for (index, line) in lines.iter().enumerate() {
            verifier.line(index, line);
        }
        verifier
    }

    fn fault(lines: &[Vec<u8>]) -> Option<(usize, &'static str)> {
        verified(lines).fault().map(|(at, fault)| (*at, fault.kind()))
    }

    fn bodies() -> impl Strategy<Value = Vec<String>> {
        prop::collection::vec("[a-z\"{,]{0,6}", 3..9)
    }

    proptest! {
        #[test]
        fn what_was_written_is_in_order(bodies in bodies()) {
            let lines = chain(&bodies);
            let verifier = verified(&lines);
            prop_assert_eq!(verifier.fault(), None);
            prop_assert_eq!(verifier.line_count(), lines.len() as u64);
            prop_assert_eq!(verifier.last().seq, lines.len() as u64);
        }

        /// Of the last line, whose hash nothing follows, as of any other.
        #[test]
        fn any_changed_byte_is_found_at_its_line(bodies in bodies(), at: prop::sample::Index, byte: prop::sample::Index, bit in 0..8u32) {
            let mut lines = chain(&bodies);
            let at = at.index(lines.len());
            let byte = byte.index(lines[at].len());
            lines[at][byte] ^= 1 << bit;
            // Read as a file is: a changed byte can be, or end, a line break.
            let text = lines.concat();
            let split: Vec<Vec<u8>> = text.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
            let found = fault(&split);
            prop_assert_eq!(found.map(|(line, _)| line), Some(at), "{:?}", found);
        }

        #[test]
        fn a_line_that_is_gone_is_missed(bodies in bodies(), at: prop::sample::Index) {
            let mut lines = chain(&bodies);
            // Without the last one nothing is missed.
            let at = at.index(lines.len() - 1);
            lines.remove(at);
            prop_assert_eq!(fault(&lines), Some((at, "missing")));
        }

        #[test]
        fn two_lines_that_changed_places_are_found(bodies in bodies(), one: prop::sample::Index, other: prop::sample::Index) {
            let mut lines = chain(&bodies);
            let (one, other) = (one.index(lines.len()), other.index(lines.len()));
            prop_assume!(one != other);
            lines.swap(one, other);
            prop_assert_eq!(fault(&lines), Some((one.min(other), "reordered")));
        }

        #[test]
        fn a_line_that_comes_twice_is_found(bodies in bodies(), at: prop::sample::Index) {
            let mut lines = chain(&bodies);
            let at = at.index(lines.len());
            lines.insert(at, lines[at].clone());
            prop_assert_eq!(fault(&lines), Some((at + 1, "reordered")));
        }
    }

    #[test]
    fn a_line_with_a_new_hash_is_found_by_the_next() {
        let words = ["a", "b", "c"].map(str::to_owned);
        let mut lines = chain(&words);
        let mut head = Head::NONE;
        lines[0] = b"{\"a\":\"x\"".to_vec();
        head.seal(&mut lines[0], 0);
        assert_eq!(fault(&lines), Some((1, "unlinked")));
    }

    #[test]
    fn what_is_cut_off_is_told() {
        let mut lines = chain(&["a", "b"].map(str::to_owned));
        lines[1].pop();
        assert_eq!(fault(&lines), Some((1, "torn")));
        lines.pop();
        let verifier = verified(&lines);
        assert_eq!((verifier.fault(), verifier.line_count()), (None, 1));
    }

    #[test]
    fn only_a_line_that_continues_a_file_begins_later() {
        let mut lines = chain(&["a", "b"].map(str::to_owned));
        let mut head = verified(&lines).last();
        let mut opening = [CONTINUES, br#""l.1""#].concat();
        head.seal(&mut opening, 0);
        lines.push(opening);
        assert_eq!(fault(&lines), None);
        let verifier = verified(&lines[2..]);
        assert_eq!((verifier.fault(), verifier.line_count()), (None, 1));
        assert_eq!(verifier.first().unwrap().seq, 3);
        assert_eq!(fault(&lines[1..]), Some((0, "missing")));
    }
}
