//! `spec.checkpoint`.

use super::kafka::{BROKERS_DEFAULT, read_replication_factor};
use super::kind::{Kinds, require_kind};
use super::template::read_topic;
use crate::config::pipeline::{Checkpoint, CheckpointTopic};
use crate::config::reader::{Field, Read, Reader, optional};

/// What the file says, and where.
pub(super) struct CheckpointReading<'n> {
    pub(super) checkpoint: Checkpoint,
    pub(super) kind: Field<'n>,
}

impl Default for CheckpointTopic {
    fn default() -> Self {
        Self {
            name: "tailpost-checkpoints".to_owned(),
            replication_factor: BROKERS_DEFAULT,
            create: true,
        }
    }
}

#[derive(Clone, Copy)]
enum StoreKind {
    File,
    Kafka,
}

pub(super) fn read<'n>(reader: &mut Reader<'_>, field: &Field<'n>) -> Read<CheckpointReading<'n>> {
    let mut mapping = reader.mapping(field)?;
    let kinds = Kinds {
        here: &[("file", StoreKind::File), ("kafka", StoreKind::Kafka)],
        later: &[],
        elsewhere: &[],
    };
    let kind_field = mapping.peek("type");
    let kind = require_kind(reader, &mut mapping, "checkpoint type", &kinds);
    kind.read(|kind| {
        // A file needs no further key.
        let config = match kind {
            Some(StoreKind::File) => None,
            Some(StoreKind::Kafka) | None => mapping.take("config"),
        };
        reader.finish(mapping);
        let checkpoint = match (kind, config) {
            (Some(StoreKind::Kafka), Some(config)) => Checkpoint::Kafka(read_topic_config(reader, &config)?),
            (Some(StoreKind::Kafka), None) => Checkpoint::Kafka(CheckpointTopic::default()),
            (Some(StoreKind::File) | None, _) => Checkpoint::File,
        };
        Ok(CheckpointReading {
            checkpoint,
            kind: kind_field.unwrap_or_else(|| field.clone()),
        })
    })
}

fn read_topic_config(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<CheckpointTopic> {
    let mut mapping = reader.mapping(field)?;
    let name = optional(mapping.take("topic"), |field| read_topic(reader, field));
    let replication_factor = optional(mapping.take("replication_factor"), |field| {
        read_replication_factor(reader, field)
    });
    let create = optional(mapping.take("create"), |field| reader.boolean(field));
    reader.finish(mapping);
    let default = CheckpointTopic::default();
    Ok(CheckpointTopic {
        name: name?.unwrap_or(default.name),
        replication_factor: replication_factor?.unwrap_or(default.replication_factor),
        create: create?.unwrap_or(default.create),
    })
}
