//! `client_conf` of a sink of type `kafka`: librdkafka's own properties, as far as they are the user's.

use std::ops::RangeInclusive;
use std::time::Duration;

use secrecy::SecretString;

use crate::config::document::Value;
use crate::config::error::Problem;
use crate::config::reader::{Field, Read, Reader};
use crate::config::schema::Takes;

const IDEMPOTENCE: &str = "the sink's own idempotent producer";
const RETRIES: &str = "the sink's own retries, which end only with the pipeline";
const REPORTS: &str = "the sink's own delivery reports";
const READING: &str = "the way in which the checkpoint's topic is read";

/// librdkafka's properties that the sink sets, and what of ours stands for them.
const OURS: [(&str, &str); 32] = [
    ("bootstrap.servers", "`brokers`"),
    ("metadata.broker.list", "`brokers`"),
    ("enable.idempotence", IDEMPOTENCE),
    ("enable.gapless.guarantee", IDEMPOTENCE),
    ("acks", "the sink's own `acks=all`"),
    ("request.required.acks", "the sink's own `acks=all`"),
    ("message.timeout.ms", RETRIES),
    ("delivery.timeout.ms", RETRIES),
    ("retries", RETRIES),
    ("message.send.max.retries", RETRIES),
    ("partitioner", "the sink's own partitioner, which is Java's"),
    ("transactional.id", "`transactional_id`"),
    ("queue.buffering.max.messages", "`spec.delivery.max_in_flight_events`"),
    ("queue.buffering.max.kbytes", "`spec.delivery.max_in_flight_bytes`"),
    ("delivery.report.only.error", REPORTS),
    ("dr_cb", REPORTS),
    ("dr_msg_cb", REPORTS),
    ("error_cb", REPORTS),
    ("throttle_cb", REPORTS),
    ("stats_cb", REPORTS),
    ("log_cb", REPORTS),
    ("background_event_cb", REPORTS),
    ("opaque", REPORTS),
    ("default_topic_conf", "the sink's own topic settings"),
    ("isolation.level", READING),
    ("group.id", READING),
    ("group.instance.id", READING),
    ("enable.auto.commit", READING),
    ("enable.auto.offset.store", READING),
    ("auto.offset.reset", READING),
    ("enable.partition.eof", READING),
    ("offset.store.method", READING),
];

/// With more, librdkafka's idempotent producer cannot keep the order.
const MOST_IN_FLIGHT: i64 = 5;
/// librdkafka's own range. A broker takes no more than its `transaction.max.timeout.ms`, 15 minutes by default.
const TRANSACTION_TIMEOUT_RANGE: RangeInclusive<i64> = 1000..=2_147_483_647;

const TRANSACTION_TIMEOUT: &str = "transaction.timeout.ms";

/// How long the broker lets a transaction be open before it aborts it.
#[derive(Clone, Copy)]
pub(super) struct TransactionTimeout(pub(super) Duration);

impl Default for TransactionTimeout {
    /// librdkafka's.
    fn default() -> Self {
        Self(Duration::from_secs(60))
    }
}

/// The properties, and the one that is held against other keys.
pub(super) struct ClientConf<'n> {
    pub(super) properties: Read<Vec<(String, SecretString)>>,
    pub(super) timeout: TransactionTimeout,
    /// Where the file says it.
    pub(super) timeout_field: Option<Field<'n>>,
}

impl Default for ClientConf<'_> {
    fn default() -> Self {
        Self {
            properties: Ok(Vec::new()),
            timeout: TransactionTimeout::default(),
            timeout_field: None,
        }
    }
}

pub(super) fn read<'n>(reader: &mut Reader<'_>, field: &Field<'n>) -> Read<ClientConf<'n>> {
    let mut mapping = reader.mapping(field)?;
    let mut conf = ClientConf::default();
    let properties: Vec<_> = mapping
        .take_all()
        .map(|(name, field)| {
            if let Some((_, ours)) = OURS.iter().find(|(property, _)| *property == name) {
                return Err(reader.report_key(
                    &field,
                    Problem::Clash {
                        property: name.to_owned(),
                        ours,
                    },
                ));
            }
            let value = match name {
                "" => {
                    let message = "expected a librdkafka property".to_owned();
                    return Err(reader.report_key(&field, Problem::Refused { message }));
                }
                "max.in.flight" | "max.in.flight.requests.per.connection" => {
                    read_count(reader, &field, 1..=MOST_IN_FLIGHT)?.to_string()
                }
                TRANSACTION_TIMEOUT => {
                    conf.timeout_field = Some(field.clone());
                    let millis = read_count(reader, &field, TRANSACTION_TIMEOUT_RANGE)?;
                    conf.timeout = TransactionTimeout(Duration::from_millis(millis.unsigned_abs()));
                    millis.to_string()
                }
                _ => read_property(reader, &field)?,
            };
            Ok((name.to_owned(), SecretString::from(value)))
        })
        .collect();
    conf.properties = properties.into_iter().collect();
    Ok(conf)
}

/// The value in text. A number with a point would not come out as it was written, so it wants quotes.
fn read_property(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<String> {
    for takes in [Takes::Integer(i64::MIN..=i64::MAX), Takes::Boolean] {
        reader.asked.value(&field.path, || takes);
    }
    match &field.node.value {
        Value::Integer(number) => Ok(number.to_string()),
        Value::Bool(flag) => Ok(flag.to_string()),
        Value::Float(_) => Err(reader.refuse(field, "a number with a point: quote it")),
        _ => reader.secret(field, "text, a whole number, true or false"),
    }
}

/// A whole number, also in quotes, as librdkafka's properties may be written.
fn read_count(reader: &mut Reader<'_>, field: &Field<'_>, range: RangeInclusive<i64>) -> Read<i64> {
    let quoted = match &field.node.value {
        Value::Text(text) => text.parse::<i64>().ok(),
        _ => None,
    };
    match quoted {
        Some(count) if range.contains(&count) => Ok(count),
        _ => reader.integer(field, range),
    }
}
