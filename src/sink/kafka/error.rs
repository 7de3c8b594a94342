//! What Kafka's errors mean for a record, a topic or the pipeline.

use rdkafka::error::{KafkaError, RDKafkaErrorCode};

use crate::sink::{DeliveryError, DeliveryErrorKind};

/// Why the sink ended.
#[derive(Debug, thiserror::Error)]
pub enum KafkaSinkError {
    #[error("make a Kafka producer: {reason}; check client_conf")]
    Client { reason: String },
    #[error("the Kafka producer is of no use any more ({reason}); a new one takes over")]
    Fatal { reason: String },
    #[error("{count} records were not acknowledged in time; they will be sent again")]
    Unacknowledged { count: usize },
    #[error("{text}")]
    Refused { text: String },
}

impl KafkaSinkError {
    pub(in crate::sink) fn can_heal(&self) -> bool {
        match self {
            Self::Fatal { .. } | Self::Unacknowledged { .. } => true,
            Self::Client { .. } | Self::Refused { .. } => false,
        }
    }
}

/// A producer that cannot be made, without the values of its settings, which can be secrets.
pub(super) fn client_error(error: &KafkaError) -> KafkaSinkError {
    let reason = match error {
        KafkaError::ClientConfig(_, description, name, _) => format!("{name}: {}", without_value(description)),
        KafkaError::ClientCreation(description) => description.clone(),
        other => other.to_string(),
    };
    KafkaSinkError::Client { reason }
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
        Code::MessageSizeTooLarge | Code::InvalidMessageSize => {
            (DeliveryErrorKind::Record, "raise max.message.bytes of the topic")
        }
        Code::InvalidMessage
        | Code::InvalidRecord
        | Code::InvalidDifferentRecord
        | Code::InvalidTimestamp
        | Code::PolicyViolation => (DeliveryErrorKind::Record, "the broker does not accept this record"),
        Code::InvalidTopic => (
            DeliveryErrorKind::Record,
            "the broker does not accept this topic's name",
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
