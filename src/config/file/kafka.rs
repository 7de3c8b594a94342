//! `sinks[].config` of type `kafka`.

use secrecy::SecretString;

use super::kind::{Kinds, read_type};
use super::template::{read_template, read_topic_template};
use super::{accept_without_effect, not_yet};
use crate::config::document::Value;
use crate::config::error::Problem;
use crate::config::pipeline::{CreateTopics, Envelope, Kafka};
use crate::config::reader::{Field, Read, Reader, optional};

const BROKERS: &str = "`host:port`, comma separated";

pub(super) fn read(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<Kafka> {
    let mut mapping = reader.mapping(field)?;
    let id = reader
        .require(&mut mapping, "id", "a name for the sink")
        .and_then(|field| reader.filled(&field));
    let brokers = reader
        .require(&mut mapping, "brokers", BROKERS)
        .and_then(|field| read_brokers(reader, &field));
    let topic = optional(mapping.take("topic"), |field| read_topic_template(reader, field));
    let key = optional(mapping.take("key"), |field| read_template(reader, field));
    let envelope = optional(mapping.take("envelope"), |field| read_envelope(reader, field));
    let required = optional(mapping.take("required"), |field| {
        read_only(reader, field, true, "`required: false`")
    });
    let exactly_once = optional(mapping.take("exactly_once"), |field| {
        read_only(reader, field, false, "`exactly_once: true`")
    });
    let transactional_id = not_yet(reader, mapping.take("transactional_id"), "`transactional_id`", None);
    let create_topics = optional(mapping.take("create_topics"), |field| read_create_topics(reader, field));
    let client_conf = optional(mapping.take("client_conf"), |field| read_client_conf(reader, field));
    let encoding = match reader.is_deltaforge() {
        true => optional(mapping.take("encoding"), |field| read_encoding(reader, field)),
        false => Ok(None),
    };
    accept_without_effect(reader, &mut mapping, &["send_timeout_secs"]);
    reader.finish(mapping);
    let kafka = Kafka {
        id: id?,
        brokers: brokers?,
        topic: topic?,
        key: key?,
        envelope: envelope?.unwrap_or(Envelope::Native),
        create_topics: create_topics?,
        client_conf: client_conf?.unwrap_or_default(),
    };
    required?;
    exactly_once?;
    transactional_id?;
    encoding?;
    Ok(kafka)
}

/// Blanks around a comma are dropped; the result is what librdkafka takes.
fn read_brokers(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<String> {
    let text = reader.text(field)?;
    let brokers: Vec<&str> = text.value.split(',').map(str::trim).collect();
    if !brokers.iter().all(|broker| is_broker(broker)) {
        return Err(reader.unexpected(field, BROKERS, text.found()));
    }
    Ok(brokers.join(","))
}

fn is_broker(broker: &str) -> bool {
    let Some((host, port)) = broker.rsplit_once(':') else {
        return false;
    };
    let host_is_sound = match host.strip_prefix('[') {
        Some(address) => address
            .strip_suffix(']')
            .is_some_and(|address| address.parse::<std::net::Ipv6Addr>().is_ok()),
        None => !host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c)),
    };
    let digits = port.bytes().all(|byte| byte.is_ascii_digit());
    host_is_sound && digits && port.parse::<u16>().is_ok_and(|port| port > 0)
}

/// A name, or a mapping with a type.
fn read_envelope(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<Envelope> {
    let kinds = Kinds {
        here: &[("native", Envelope::Native)],
        later: &["debezium", "cloudevents"],
        elsewhere: &[],
    };
    if !matches!(field.node.value, Value::Mapping(_)) {
        return read_type(reader, field, "envelope", &kinds);
    }
    let mut mapping = reader.mapping(field)?;
    let kind = reader
        .require(&mut mapping, "type", "`native`")
        .and_then(|field| read_type(reader, &field, "envelope", &kinds));
    // The keys of an envelope that isn't there are not worth a second violation.
    if kind.is_ok() {
        reader.finish(mapping);
    }
    kind
}

/// A flag of which only one side is there so far.
fn read_only(reader: &mut Reader<'_>, field: &Field<'_>, side: bool, other: &str) -> Read<()> {
    if reader.boolean(field)? == side {
        return Ok(());
    }
    Err(reader.report(
        field,
        Problem::NotYet {
            what: other.to_owned(),
            remedy: None,
        },
    ))
}

fn read_encoding(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<()> {
    let text = reader.text(field)?;
    match text.value.as_str() {
        "json" => Ok(()),
        "avro" | "protobuf" => {
            let what = format!("encoding {}", text.found());
            Err(reader.report(
                field,
                Problem::NotSupported {
                    what,
                    remedy: Some("expected `json`".to_owned()),
                },
            ))
        }
        _ => Err(reader.unknown_word(field, &text, ["json"].into_iter())),
    }
}

fn read_create_topics(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<CreateTopics> {
    let mut mapping = reader.mapping(field)?;
    let partitions = reader
        .require(&mut mapping, "partitions", "a whole number, 1 or more")
        .and_then(|field| read_count(reader, &field, 1, 100_000));
    let replication_factor = optional(mapping.take("replication_factor"), |field| {
        let factor = read_count(reader, field, -1, 1000)?;
        if factor == 0 {
            return Err(reader.unexpected(field, "1 or more, or -1 for the broker's default", "0".to_owned()));
        }
        Ok(factor)
    });
    reader.finish(mapping);
    Ok(CreateTopics {
        partitions: partitions?,
        replication_factor: replication_factor?.unwrap_or(-1),
    })
}

fn read_count(reader: &mut Reader<'_>, field: &Field<'_>, least: i32, most: i32) -> Read<i32> {
    let count = reader.integer(field, i64::from(least)..=i64::from(most))?;
    i32::try_from(count).map_err(|err| reader.refuse(field, err.to_string()))
}

const IDEMPOTENCE: &str = "the sink's own idempotent producer";
const RETRIES: &str = "the sink's own retries, which end only with the pipeline";
const REPORTS: &str = "the sink's own delivery reports";

/// librdkafka's properties that the sink sets, and what of ours stands for them.
const OURS: [(&str, &str); 24] = [
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
];

/// With more, librdkafka's idempotent producer cannot keep the order.
const MOST_IN_FLIGHT: i64 = 5;

fn read_client_conf(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<Vec<(String, SecretString)>> {
    let mut mapping = reader.mapping(field)?;
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
            if name.is_empty() {
                let message = "expected a librdkafka property".to_owned();
                return Err(reader.report_key(&field, Problem::Refused { message }));
            }
            if ["max.in.flight", "max.in.flight.requests.per.connection"].contains(&name) {
                let count = read_in_flight(reader, &field)?;
                return Ok((name.to_owned(), SecretString::from(count.to_string())));
            }
            read_property(reader, &field).map(|value| (name.to_owned(), SecretString::from(value)))
        })
        .collect();
    properties.into_iter().collect()
}

/// The value in text. A number with a point would not come out as it was written, so it wants quotes.
fn read_property(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<String> {
    match &field.node.value {
        Value::Integer(number) => Ok(number.to_string()),
        Value::Bool(flag) => Ok(flag.to_string()),
        Value::Float => Err(reader.refuse(field, "a number with a point: quote it")),
        _ => reader.secret(field, "text, a whole number, true or false"),
    }
}

fn read_in_flight(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<i64> {
    let quoted = match &field.node.value {
        Value::Text(text) => text.parse::<i64>().ok(),
        _ => None,
    };
    match quoted {
        Some(count) if (1..=MOST_IN_FLIGHT).contains(&count) => Ok(count),
        _ => reader.integer(field, 1..=MOST_IN_FLIGHT),
    }
}
