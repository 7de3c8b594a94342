//! What Kafka's errors mean for a record, a topic or the pipeline.

use rdkafka::error::{KafkaError, RDKafkaErrorCode};

use crate::sink::{DeliveryError, DeliveryErrorKind, RecordFault};

use super::transaction::{TransactionError, TransactionErrorKind, is_fenced};

/// Why the sink ended.
#[derive(Debug, thiserror::Error)]
pub enum KafkaSinkError {
    #[error("make a Kafka producer: {reason}; check client_conf")]
    Client { reason: String },
    #[error("the Kafka producer is of no use any more ({reason}); a new one takes over")]
    Fatal { reason: String },
    #[error(
        "the Kafka transaction of `{transactional_id}` was ended from outside ({reason}): another instance took over, or it took longer than transaction.timeout.ms"
    )]
    Fenced { transactional_id: String, reason: String },
    #[error(
        "a topic takes {batch_size} bytes in a batch at most: a new producer keeps to that, which begins where the last transaction ended"
    )]
    SmallerBatches { batch_size: u64 },
    #[error("{action}: {reason}")]
    Transaction { action: &'static str, reason: String },
    #[error("{count} records were not acknowledged in time; they will be sent again")]
    Unacknowledged { count: usize },
    #[error("the last Kafka transaction was not committed; its records will be sent again")]
    Uncommitted,
    #[error("{text}")]
    Refused { text: String },
}

impl KafkaSinkError {
    pub(in crate::sink) fn can_heal(&self) -> bool {
        match self {
            Self::Fatal { .. }
            | Self::Fenced { .. }
            | Self::SmallerBatches { .. }
            | Self::Transaction { .. }
            | Self::Unacknowledged { .. }
            | Self::Uncommitted => true,
            Self::Client { .. } | Self::Refused { .. } => false,
        }
    }
}

/// A producer that cannot be made, without the values of its settings, which can be secrets.
pub(super) fn client_error(error: &KafkaError) -> KafkaSinkError {
    KafkaSinkError::Client {
        reason: client_reason(error),
    }
}

/// Why a client cannot be made, without the values of its settings.
pub(crate) fn client_reason(error: &KafkaError) -> String {
    match error {
        KafkaError::ClientConfig(_, description, name, _) => format!("{name}: {}", without_value(description)),
        KafkaError::ClientCreation(description) => description.clone(),
        other => other.to_string(),
    }
}

/// librdkafka quotes the value in its description.
fn without_value(description: &str) -> &str {
    if description.contains("Invalid value") {
        "invalid value"
    } else {
        description
    }
}

/// A delivery that was reported failed.
pub(super) fn delivery_error(error: &KafkaError, topic: &str) -> DeliveryError {
    use RDKafkaErrorCode as Code;
    let code = error.rdkafka_error_code().unwrap_or(Code::Unknown);
    let (kind, remedy) = match code {
        Code::MessageSizeTooLarge | Code::InvalidMessageSize => (
            DeliveryErrorKind::Record(RecordFault::TooLarge),
            "raise max.message.bytes of the topic",
        ),
        Code::InvalidMessage
        | Code::InvalidRecord
        | Code::InvalidDifferentRecord
        | Code::InvalidTimestamp
        | Code::PolicyViolation => (
            DeliveryErrorKind::Record(RecordFault::Refused),
            "the broker does not accept this record",
        ),
        Code::InvalidTopic => (
            DeliveryErrorKind::Record(RecordFault::UnknownTopic),
            "the broker does not accept this topic's name",
        ),
        code if is_fenced(code) => (
            DeliveryErrorKind::Fenced,
            "another instance took over, or the transaction took longer than transaction.timeout.ms",
        ),
        Code::TopicAuthorizationFailed | Code::ClusterAuthorizationFailed => (
            DeliveryErrorKind::Refused,
            "allow the user to write to it (ACL WRITE, and IDEMPOTENT_WRITE on older brokers)",
        ),
        Code::UnknownTopic | Code::UnknownTopicOrPartition | Code::UnknownPartition => {
            (DeliveryErrorKind::Unavailable, "create the topic, or set create_topics")
        }
        _ => (DeliveryErrorKind::Unavailable, "it is sent again"),
    };
    DeliveryError {
        kind,
        text: format!("deliver to topic `{topic}`: {code}; {remedy}"),
    }
}

/// The record names a partition that its topic does not have.
pub(super) fn no_partition(topic: &str) -> DeliveryError {
    DeliveryError {
        kind: DeliveryErrorKind::Record(RecordFault::Refused),
        text: format!(
            "deliver to topic `{topic}`: it has no partition of the number that the event names; add partitions to it, or leave \
             `columns.partition` of the outbox processor out"
        ),
    }
}

/// The position that was to be committed with the records was not delivered: whatever is wrong with it, they are not at
/// fault.
pub(super) fn position_error(error: &KafkaError, topic: &str) -> DeliveryError {
    let DeliveryError { kind, text } = delivery_error(error, topic);
    DeliveryError {
        kind: match kind {
            DeliveryErrorKind::Record(_) => DeliveryErrorKind::Refused,
            other => other,
        },
        text: format!("save the position: {text}"),
    }
}

/// A call that failed, of the producer with this transactional id; `action` is what was tried.
pub(super) fn transaction_error(
    error: TransactionError,
    action: &'static str,
    transactional_id: &str,
) -> KafkaSinkError {
    let TransactionError { kind, code, reason } = error;
    if let Some(remedy) = refusal_remedy(code, transactional_id) {
        return KafkaSinkError::Refused {
            text: format!("{action}: {reason}; {remedy}"),
        };
    }
    match kind {
        TransactionErrorKind::Fenced => KafkaSinkError::Fenced {
            transactional_id: transactional_id.to_owned(),
            reason,
        },
        TransactionErrorKind::Fatal => KafkaSinkError::Fatal {
            reason: format!("{action}: {reason}"),
        },
        // librdkafka's words for it are advice for programmers.
        TransactionErrorKind::Unfinished => KafkaSinkError::Transaction {
            action,
            reason: format!("it took longer than transaction.timeout.ms ({code})"),
        },
        TransactionErrorKind::Abortable => KafkaSinkError::Transaction { action, reason },
    }
}

/// What a person must do about a refusal; None: the code is none.
pub(crate) fn refusal_remedy(code: RDKafkaErrorCode, transactional_id: &str) -> Option<String> {
    use RDKafkaErrorCode as Code;
    match code {
        Code::TransactionalIdAuthorizationFailed => Some(format!(
            "allow the user to write with it (ACL WRITE and DESCRIBE on TransactionalId `{transactional_id}`)"
        )),
        Code::TopicAuthorizationFailed => {
            Some("allow the user to write to every topic that events or positions go to (ACL WRITE)".to_owned())
        }
        Code::ClusterAuthorizationFailed => {
            Some("allow the user to write idempotently (ACL IDEMPOTENT_WRITE on the cluster)".to_owned())
        }
        Code::InvalidTransactionTimeout => Some(
            "the broker's transaction.max.timeout.ms is less than transaction.timeout.ms: raise the one, or lower the other"
                .to_owned(),
        ),
        Code::UnsupportedFeature | Code::UnsupportedVersion => {
            Some("the broker has no transactions: Kafka 0.11 or later is needed".to_owned())
        }
        _ => None,
    }
}
