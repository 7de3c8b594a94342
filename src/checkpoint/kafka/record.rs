//! A position as a record of the checkpoint topic.

use crate::checkpoint::document::{Document, DocumentError};
use crate::position::Position;

use super::KafkaStoreError;

/// Every position goes to this partition, so that one that was saved before the topic got more is never behind another
/// that is older.
pub(crate) const PARTITION: i32 = 0;

/// See the module's text.
pub(crate) struct PositionRecord {
    pub(crate) key: String,
    pub(crate) value: Vec<u8>,
}

impl PositionRecord {
    /// # Errors
    /// A position that has no text, which is a fault of tailpost.
    pub(crate) fn new(pipeline: &str, source: &str, position: &Position) -> Result<Self, serde_json::Error> {
        Self::of(&Document::new(pipeline, source, position))
    }

    /// Of a document that says more than a position.
    ///
    /// # Errors
    /// As above.
    pub(super) fn of(document: &Document) -> Result<Self, serde_json::Error> {
        Ok(Self {
            key: key(&document.pipeline, &document.source),
            value: serde_json::to_vec(document)?,
        })
    }
}

/// The key of a pipeline's positions. The name of a pipeline has no slash, so that two pairs never have one key.
pub(super) fn key(pipeline: &str, source: &str) -> String {
    format!("{pipeline}/{source}")
}

/// Reads the value of a record with this key.
pub(super) fn document(topic: &str, key: &str, value: &[u8]) -> Result<Document, KafkaStoreError> {
    let damaged = |reason| KafkaStoreError::Damaged {
        topic: topic.to_owned(),
        key: key.to_owned(),
        reason,
    };
    let document = Document::read(value).map_err(|error| match error {
        DocumentError::Damaged(reason) => damaged(reason),
        DocumentError::Version(found) => KafkaStoreError::Version {
            topic: topic.to_owned(),
            key: key.to_owned(),
            found,
        },
    })?;
    let found = self::key(&document.pipeline, &document.source);
    match found == key {
        true => Ok(document),
        false => Err(damaged(format!("it holds the position of `{found}`"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::position::{Lsn, PostgresPosition};

    fn at(base: u64) -> Position {
        Position::Postgres(PostgresPosition {
            system_identifier: 7,
            timeline: 1,
            base: Lsn(base),
            partial: None,
            last_event_end: Lsn(base),
        })
    }

    #[test]
    fn a_position_comes_back_from_its_record() {
        let record = PositionRecord::new("orders", "pg1", &at(5)).unwrap();
        assert_eq!(record.key, "orders/pg1");
        assert_eq!(document("t", &record.key, &record.value).unwrap().position, at(5));
    }

    #[test]
    fn a_value_that_is_cut_foreign_or_of_a_later_version_is_refused_by_name() {
        let record = PositionRecord::new("orders", "pg1", &at(5)).unwrap();
        let refusal = |key: &str, value: &[u8]| document("positions", key, value).unwrap_err().to_string();
        for length in 0..record.value.len() {
            let text = refusal(&record.key, &record.value[..length]);
            assert!(
                text.contains("`orders/pg1`") && text.contains("damaged"),
                "{length}: {text}"
            );
        }
        let text = refusal("payments/pg1", &record.value);
        assert!(text.contains("holds the position of `orders/pg1`"), "{text}");
        let text = refusal(&record.key, br#"{"version": 2, "place": "elsewhere"}"#);
        assert!(text.contains("version 2") && text.contains("`positions`"), "{text}");
    }
}
