//! A set of MySQL GTIDs with its holes, `uuid:1-218:224:blue:1-3,uuid2:1`: what `gtid_executed` is made of.
//!
//! One flat sorted vector of intervals: sets have few, are cloned at every boundary and grow by one at the end of an
//! interval. Between calls it is normal: no interval touches or overlaps the next of its source and tag, so equal
//! sets are equal vectors.

use std::fmt;
use std::str::FromStr;

use super::super::excerpt;
use super::{Gtid, ParseGtidError, Tag, Tsid, parse_number};

/// A set of transactions. Its text is what a server prints of `gtid_executed`, without line feeds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GtidSet {
    /// Normal, in the order of the derived `Ord`.
    intervals: Vec<Interval>,
}

/// Transactions of one source and tag, both ends included: 1 <= first <= last <= 2^63 - 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Interval {
    pub(super) tsid: Tsid,
    pub(super) first: u64,
    pub(super) last: u64,
}

impl Interval {
    fn contains(&self, gtid: &Gtid) -> bool {
        self.tsid == gtid.tsid && (self.first..=self.last).contains(&gtid.number)
    }

    /// Nothing lies between this interval's end and the other's start; `next` does not come before `self`.
    fn reaches(&self, next: &Self) -> bool {
        self.tsid == next.tsid && next.first <= self.last + 1
    }
}

impl GtidSet {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn is_empty(&self) -> bool {
        self.intervals.is_empty()
    }

    pub fn contains(&self, gtid: &Gtid) -> bool {
        let (before, _) = self.intervals.split_at(self.behind(gtid));
        before.last().is_some_and(|interval| interval.contains(gtid))
    }

    /// Adds one transaction. The next number of an interval, the usual case, moves nothing.
    pub fn insert(&mut self, gtid: Gtid) {
        let at = self.behind(&gtid);
        let added = Interval {
            tsid: gtid.tsid,
            first: gtid.number,
            last: gtid.number,
        };
        let (before, behind) = self.intervals.split_at_mut(at);
        match (before.last_mut(), behind.first_mut()) {
            (Some(left), Some(right)) if left.reaches(&added) && added.reaches(right) => {
                left.last = right.last;
                self.intervals.remove(at);
            }
            (Some(left), _) if left.reaches(&added) => left.last = left.last.max(added.last),
            (_, Some(right)) if added.reaches(right) => right.first = added.first,
            _ => self.intervals.insert(at, added),
        }
    }

    /// Takes one transaction out, which may leave a hole.
    pub fn remove(&mut self, gtid: &Gtid) {
        let Some(at) = self.behind(gtid).checked_sub(1) else {
            return;
        };
        let Some(&whole) = self.intervals.get(at).filter(|interval| interval.contains(gtid)) else {
            return;
        };
        let left = (whole.first < gtid.number).then(|| Interval {
            last: gtid.number - 1,
            ..whole
        });
        let right = (gtid.number < whole.last).then(|| Interval {
            first: gtid.number + 1,
            ..whole
        });
        self.intervals.splice(at..=at, left.into_iter().chain(right));
    }

    pub fn union_with(&mut self, other: &Self) {
        self.intervals.extend_from_slice(&other.intervals);
        self.normalize();
    }

    /// Every transaction of `self` is in `of`.
    pub fn is_subset(&self, of: &Self) -> bool {
        self.intervals.iter().all(|interval| {
            let cover = of.overlapping(interval).next();
            cover.is_some_and(|cover| cover.first <= interval.first && interval.last <= cover.last)
        })
    }

    /// The transactions of `self` that are not in `other`.
    pub fn difference(&self, other: &Self) -> Self {
        let mut intervals = Vec::new();
        for whole in &self.intervals {
            let mut rest = *whole;
            for cut in other.overlapping(whole) {
                if rest.first < cut.first {
                    let last = cut.first - 1;
                    intervals.push(Interval { last, ..rest });
                }
                rest.first = cut.last + 1;
            }
            if rest.first <= rest.last {
                intervals.push(rest);
            }
        }
        Self { intervals }
    }

    pub(super) fn from_intervals(intervals: Vec<Interval>) -> Self {
        let mut set = Self { intervals };
        set.normalize();
        set
    }

    /// One slice a source and tag, in order.
    pub(super) fn by_tsid(&self) -> impl Iterator<Item = &[Interval]> {
        self.intervals.chunk_by(|left, right| left.tsid == right.tsid)
    }

    /// How many intervals start at or before `gtid`; only the last of them can contain it.
    fn behind(&self, gtid: &Gtid) -> usize {
        let key = (gtid.tsid, gtid.number);
        self.intervals
            .partition_point(|interval| (interval.tsid, interval.first) <= key)
    }

    fn overlapping<'a>(&'a self, other: &'a Interval) -> impl Iterator<Item = &'a Interval> {
        let key = (other.tsid, other.first);
        let start = self
            .intervals
            .partition_point(|interval| (interval.tsid, interval.last) < key);
        let (_, candidates) = self.intervals.split_at(start);
        candidates
            .iter()
            .take_while(|interval| interval.tsid == other.tsid && interval.first <= other.last)
    }

    fn normalize(&mut self) {
        // The stable sort takes runs that are in order as they are, and here there are two at most, or a server's text.
        self.intervals.sort();
        self.intervals.dedup_by(|next, kept| {
            let joined = kept.reaches(next);
            if joined {
                kept.last = kept.last.max(next.last);
            }
            joined
        });
    }
}

impl fmt::Display for GtidSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut source = None;
        for intervals in self.by_tsid() {
            let [Interval { tsid, .. }, ..] = intervals else {
                continue;
            };
            if source == Some(tsid.source) {
                write!(f, ":{}", tsid.tag)?;
            } else {
                let comma = if source.is_some() { "," } else { "" };
                write!(f, "{comma}{tsid}")?;
                source = Some(tsid.source);
            }
            for Interval { first, last, .. } in intervals {
                write!(f, ":{first}")?;
                if first < last {
                    write!(f, "-{last}")?;
                }
            }
        }
        Ok(())
    }
}

impl FromStr for GtidSet {
    type Err = ParseGtidError;

    /// Takes what servers print and what they take: white space around every part, empty parts between commas, sources
    /// and tags in any order and more than once, intervals that overlap. What they take but can only be a mistake in a
    /// position is refused: a source or tag without a number, an interval that ends before it starts, an octal or
    /// hexadecimal number.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut intervals = Vec::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            parse_source(part, &mut intervals)?;
        }
        Ok(Self::from_intervals(intervals))
    }
}

/// `uuid:1-3:5:tag:1`: a tag holds for the intervals behind it.
fn parse_source(text: &str, intervals: &mut Vec<Interval>) -> Result<(), ParseGtidError> {
    let missing = || ParseGtidError::NumberMissing { text: excerpt(text) };
    let (source, pieces) = text.split_once(':').ok_or_else(missing)?;
    let mut tsid = Tsid {
        source: source.trim_end().parse()?,
        tag: Tag::NONE,
    };
    let mut numbered = false;
    for piece in pieces.split(':').map(str::trim) {
        if piece.starts_with(|char: char| char.is_ascii_alphabetic() || char == '_') {
            if !numbered && !tsid.tag.is_none() {
                return Err(missing());
            }
            tsid.tag = piece.parse()?;
            numbered = false;
        } else {
            let (first, last) = parse_interval(piece)?;
            intervals.push(Interval { tsid, first, last });
            numbered = true;
        }
    }
    if numbered { Ok(()) } else { Err(missing()) }
}

fn parse_interval(text: &str) -> Result<(u64, u64), ParseGtidError> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (parse_number(first.trim_end())?, parse_number(last.trim_start())?);
    if first <= last {
        Ok((first, last))
    } else {
        Err(ParseGtidError::Reversed { text: excerpt(text) })
    }
}
