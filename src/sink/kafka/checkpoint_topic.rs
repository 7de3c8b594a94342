//! The topic that holds positions: made where it is missing and may be, else looked at.
//!
//! It must be compacted. By the policy `delete` a position would vanish with time, and the pipeline begin anew.

use std::time::Duration;

use rdkafka::admin::{AdminOptions, NewTopic, TopicReplication};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};

use crate::config::CheckpointTopic;
use crate::sink::{DeliveryError, DeliveryErrorKind};

use super::admin::Admin;
use super::topics::{REQUEST, first_broker, lists, setting, unavailable};

/// Positions are small and many. Small segments are soon done with, and then compacted; a read stays short.
const SETTINGS: [(&str, &str); 4] = [
    ("cleanup.policy", "compact"),
    ("segment.bytes", "16777216"),
    ("segment.ms", "600000"),
    ("min.cleanable.dirty.ratio", "0.1"),
];
/// Looks at a topic that was just made: the brokers take a moment to know of it.
const TRIES: u32 = 25;
const WAIT: Duration = Duration::from_millis(200);

/// Sees to it that the topic is there and fit. Blocks: not for a task.
///
/// # Errors
/// `Unavailable` while it can still come about, `Refused` where a person must act.
pub(crate) fn ensure(admin: &Admin, topic: &CheckpointTopic) -> Result<(), DeliveryError> {
    let runtime = tokio::runtime::Handle::current();
    let name = &topic.name;
    let mut created = false;
    for _ in 0..TRIES {
        match runtime.block_on(cleanup_policy(admin, name))? {
            Some(policy) if policy.split(',').any(|word| word.trim() == "compact") => return Ok(()),
            Some(policy) => {
                return Err(refused(format!(
                    "checkpoint topic `{name}` has cleanup.policy={policy}, expected compact: with `{policy}` positions \
                     vanish; set it on the topic, or name another topic"
                )));
            }
            None if created => std::thread::sleep(WAIT),
            None if topic.create => {
                runtime.block_on(create(admin, topic))?;
                created = true;
            }
            None => {
                return Err(unavailable(format!(
                    "checkpoint topic `{name}` does not exist: create it with cleanup.policy=compact, or allow it to be \
                     created (`create: true` of the checkpoint)"
                )));
            }
        }
    }
    Err(unavailable(format!(
        "checkpoint topic `{name}` was created and is not known: wait, or allow the user to describe it (ACL DESCRIBE)"
    )))
}

/// None: there is no such topic, as far as the user may know.
async fn cleanup_policy(admin: &Admin, name: &str) -> Result<Option<String>, DeliveryError> {
    use RDKafkaErrorCode as Code;
    // Of all topics: to ask for one can make it.
    let metadata = admin.cluster(None)?;
    let broker = first_broker(&metadata, admin.brokers())?;
    if !lists(&metadata, name) {
        return Ok(None);
    }
    let code = match setting(admin, name, "cleanup.policy", broker).await {
        Ok(policy) => return Ok(Some(policy)),
        Err(code) => code,
    };
    match code {
        Code::TopicAuthorizationFailed | Code::ClusterAuthorizationFailed => Err(refused(format!(
            "the settings of checkpoint topic `{name}` may not be read: allow the user to (ACL DESCRIBE_CONFIGS), since \
             positions are lost where it is not compacted"
        ))),
        code => Err(unavailable(format!(
            "read cleanup.policy of checkpoint topic `{name}`: {code}"
        ))),
    }
}

async fn create(admin: &Admin, topic: &CheckpointTopic) -> Result<(), DeliveryError> {
    use RDKafkaErrorCode as Code;
    let name = &topic.name;
    let new = NewTopic::new(name, 1, TopicReplication::Fixed(topic.replication_factor));
    let new = SETTINGS.iter().fold(new, |new, (name, value)| new.set(name, value));
    let options = AdminOptions::new().operation_timeout(Some(REQUEST));
    let code = match admin.client.create_topics([&new], &options).await {
        Ok(results) => match results.into_iter().next() {
            Some(Ok(_)) | None => {
                tracing::info!(topic = name, "checkpoint topic created");
                return Ok(());
            }
            // By another instance, or another pipeline.
            Some(Err((_, Code::TopicAlreadyExists))) => return Ok(()),
            Some(Err((_, code))) => code,
        },
        Err(KafkaError::AdminOp(code)) => code,
        Err(error) => error.rdkafka_error_code().unwrap_or(Code::Unknown),
    };
    let text = format!("create checkpoint topic `{name}`: {code}");
    match code {
        Code::TopicAuthorizationFailed | Code::ClusterAuthorizationFailed => Err(refused(format!(
            "{text}; allow the user to create it, or create it by hand with cleanup.policy=compact"
        ))),
        Code::PolicyViolation | Code::InvalidConfig => Err(refused(format!(
            "{text}; create it by hand with cleanup.policy=compact, as the cluster's rules want it"
        ))),
        // Brokers that are away may come back.
        Code::InvalidReplicationFactor => Err(unavailable(format!(
            "{text}; start more brokers, or lower replication_factor of the checkpoint"
        ))),
        _ => Err(unavailable(text)),
    }
}

fn refused(text: String) -> DeliveryError {
    DeliveryError {
        kind: DeliveryErrorKind::Refused,
        text,
    }
}
