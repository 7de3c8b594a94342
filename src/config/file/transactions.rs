//! The rules that join a sink's transactions with the checkpoint, the delivery and the topics of the file.
//!
//! A rule is left out where a value that it needs was already reported.

use super::checkpoint::CheckpointReading;
use super::delivery::DeliveryReading;
use super::kafka::Transactions;
use super::template::FixedTopic;
use crate::config::error::Problem;
use crate::config::pipeline::{Checkpoint, CheckpointTopic};
use crate::config::quantity::show_duration;
use crate::config::reader::{Read, Reader};

/// Where the position is kept.
pub(super) fn read_checkpoint(
    reader: &mut Reader<'_>,
    transactions: &Transactions<'_>,
    said: &Read<Option<CheckpointReading<'_>>>,
) -> Read<Checkpoint> {
    let said = match said {
        Ok(said) => said.as_ref(),
        Err(reported) => return Err(*reported),
    };
    let exactly_once = transactions.exactly_once?;
    let checkpoint = match (exactly_once, said) {
        (true, None) => Checkpoint::Kafka(CheckpointTopic::default()),
        (false, None) => Checkpoint::File,
        (true, Some(said)) if said.checkpoint == Checkpoint::File => {
            let message = "`file` clashes with `exactly_once: true` of the sink, which keeps the position in the transactions of its records: write `kafka`, or remove `spec.checkpoint`";
            return Err(reader.refuse(&said.kind, message));
        }
        (_, Some(said)) => said.checkpoint.clone(),
    };
    if !exactly_once && checkpoint == Checkpoint::File {
        for field in &transactions.dependent {
            let message = "has no effect without `exactly_once: true` or `spec.checkpoint: {type: kafka}`: remove it, or write one of them";
            let message = message.to_owned();
            reader.report_key(field, Problem::Refused { message });
        }
    }
    Ok(checkpoint)
}

/// How long a transaction may gather records.
pub(super) fn check_interval(reader: &mut Reader<'_>, transactions: &Transactions<'_>, reading: &DeliveryReading<'_>) {
    let (Some(field), Ok(exactly_once)) = (&reading.interval, transactions.exactly_once) else {
        return;
    };
    let (interval, timeout) = (reading.delivery.transaction_interval, transactions.timeout.0);
    if !exactly_once {
        let message = "has no effect without `exactly_once: true`: remove it, or write that".to_owned();
        reader.report_key(field, Problem::Refused { message });
    } else if interval * 2 > timeout {
        let found = show_duration(timeout);
        let message = format!(
            "expected half of the sink's `transaction.timeout.ms` ({found}) at most, found {}: the broker aborts what is open for longer",
            show_duration(interval)
        );
        reader.refuse(field, message);
    }
}

/// Keeps events and dead letters out of the topic with the positions, which is compacted.
pub(super) fn check_topics<'t, 'n: 't>(
    reader: &mut Reader<'_>,
    checkpoint: &Checkpoint,
    topics: impl Iterator<Item = &'t FixedTopic<'n>>,
) {
    let Checkpoint::Kafka(positions) = checkpoint else {
        return;
    };
    for topic in topics.filter(|topic| topic.name == positions.name) {
        let message = format!(
            "`{}` keeps the positions of pipelines: expected another topic",
            topic.name
        );
        reader.refuse(&topic.field, message);
    }
}
