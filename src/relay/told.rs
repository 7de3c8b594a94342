//! Dead letters in flight that somebody is to be told of, as soon as they are settled.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::letters::notices::{self, Notice, Notices};
use crate::record::Record;

use super::in_flight::{Fate, Seq};

/// See the module's text.
#[derive(Debug)]
pub(super) struct Told {
    notices: Arc<Notices>,
    /// Of the first in flight; the others are only counted.
    letters: BTreeMap<u64, Notice>,
}

impl Told {
    pub(super) fn new(notices: &Arc<Notices>) -> Self {
        Self {
            notices: Arc::clone(notices),
            letters: BTreeMap::new(),
        }
    }

    /// What is to be sent under this seq. A record can have the seq of a letter that the sink has given back.
    pub(super) fn note(&mut self, seq: Seq, fate: Fate, record: &Record) {
        self.letters.remove(&seq.0);
        if let Fate::DeadLettered(_) = fate
            && self.letters.len() < notices::MOST
        {
            self.letters.insert(seq.0, self.notices.of_record(record));
        }
    }

    /// Takes those before a seq, which are settled and counted.
    pub(super) fn take_before(&mut self, seq: Seq) -> Vec<Notice> {
        if self.letters.is_empty() {
            return Vec::new();
        }
        let rest = self.letters.split_off(&seq.0);
        std::mem::replace(&mut self.letters, rest).into_values().collect()
    }
}
