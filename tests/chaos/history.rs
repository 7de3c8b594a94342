//! All positions that were saved to a topic, read when everything is over.

use serde_json::Value;
use tailpost::position::{Position, PostgresPosition};

use super::watch::Confirmed;
use super::world::{Happened, World};

/// In their order.
pub struct History(Vec<Saved>);

struct Saved {
    /// When it began to be saved, in milliseconds since 1970.
    begun: i64,
    position: Position,
}

impl History {
    pub fn read(world: &World) -> Self {
        let mut reader = world.bed.committed_reader(&["positions"]);
        let records = reader.all().iter();
        let saved = records.map(|record| {
            let value = record.value.as_deref().expect("a position has a value");
            let mut document: Value = serde_json::from_slice(value).expect("a position is JSON");
            Saved {
                begun: record.timestamp_ms,
                position: serde_json::from_value(document["position"].take()).expect("a position"),
            }
        });
        Self(saved.collect())
    }

    /// Says of each begin anew what was saved by then, and finds what was confirmed before it was saved.
    pub fn judge(&self, happened: &mut Happened, confirmed: &[Confirmed]) {
        for rewind in &mut happened.rewinds {
            // One that another one follows was durable when that was begun.
            let begun = self.0.iter().filter(|saved| saved.begun <= rewind.after).count();
            let durable = begun.checked_sub(2).map(|at| &self.0[at]);
            rewind.saved = durable.map(|saved| saved.position.clone());
        }
        let ahead = confirmed.iter().find(|confirmed| {
            let mut saved = self.0.iter().take_while(|saved| saved.begun <= confirmed.at);
            !saved.any(|saved| matches!(&saved.position, Position::Postgres(PostgresPosition { base, .. }) if *base >= confirmed.lsn))
        });
        if let Some(Confirmed { at, lsn }) = ahead {
            happened
                .violations
                .push(format!("{lsn} was confirmed at {at}, and not saved by then"));
        }
    }
}
