//! Dead letters into an SQLite file.

use crate::config::LetterFile;
use crate::letters::{Letter, LetterStore, LetterStoreError};
use crate::record::Record;
use crate::telemetry::error_chain;

use super::worker::Medium;
use super::{DeliveryError, DeliveryErrorKind};

/// The file that a pipeline's dead letters are kept in.
pub(super) struct LetterMedium(LetterStore);

impl LetterMedium {
    pub(super) fn open(file: &LetterFile) -> Result<Self, LetterStoreError> {
        Ok(Self(LetterStore::open(file)?))
    }
}

impl Medium for LetterMedium {
    fn write(&mut self, records: &[Record]) -> Result<(), DeliveryError> {
        let letters: Vec<Letter> = records.iter().map(Letter::of_record).collect();
        self.0.park(&letters).map_err(|error| DeliveryError {
            kind: match error.can_heal() {
                true => DeliveryErrorKind::Unavailable,
                false => DeliveryErrorKind::Refused,
            },
            text: error_chain(&error),
        })
    }
}
