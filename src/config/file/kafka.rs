//! `sinks[].config` of type `kafka`.

use super::accept_without_effect;
use super::client_conf::{self, TransactionTimeout};
use super::envelope;
use super::sink::{About, SinkKind, SinkReading};
use super::template::{FixedTopic, read_change_template, read_change_topic};
use crate::config::error::Problem;
use crate::config::pipeline::{CreateTopics, Envelope, Kafka, OnFenced, Sink};
use crate::config::reader::{Field, Mapping, Read, Reader, optional};

const BROKERS: &str = "`host:port`, comma separated";

/// What the file says of the sink's transactions.
pub(super) struct Transactions<'n> {
    pub(super) exactly_once: Read<bool>,
    /// Those keys in the file that mean nothing without a transactional id.
    pub(super) dependent: Vec<Field<'n>>,
    pub(super) timeout: TransactionTimeout,
}

impl Transactions<'_> {
    /// Of a sink that has none.
    pub(super) fn none() -> Self {
        Self {
            exactly_once: Ok(false),
            dependent: Vec::new(),
            timeout: TransactionTimeout::default(),
        }
    }
}

/// `pipeline` is its name, or empty where that is wrong.
pub(super) fn read<'n>(
    reader: &mut Reader<'_>,
    mut mapping: Mapping<'n>,
    about: About<'n>,
    pipeline: &str,
) -> Read<SinkReading<'n>> {
    let id = reader
        .require(&mut mapping, "id", "a name for the sink")
        .and_then(|field| reader.filled(&field));
    let brokers = reader
        .require(&mut mapping, "brokers", BROKERS)
        .and_then(|field| read_brokers(reader, &field));
    let topic_field = mapping.take("topic");
    let topic = optional(topic_field.clone(), |field| read_change_topic(reader, field));
    let key = optional(mapping.take("key"), |field| read_change_template(reader, field));
    let envelope = optional(mapping.take("envelope"), |field| envelope::read(reader, field));
    let exactly_once = optional(mapping.take("exactly_once"), |field| reader.boolean(field));
    let (id_field, fenced_field) = (mapping.take("transactional_id"), mapping.take("on_fenced"));
    let transactional_id = optional(id_field.clone(), |field| read_transactional_id(reader, field));
    let on_fenced = optional(fenced_field.clone(), |field| {
        reader.word(field, &[("stand_by", OnFenced::StandBy), ("stop", OnFenced::Stop)])
    });
    let create_topics = optional(mapping.take("create_topics"), |field| read_create_topics(reader, field));
    let fixed_topic = match (&topic, &topic_field) {
        (Ok(Some(topic)), Some(field)) => FixedTopic::of_template(topic, field),
        _ => None,
    };
    let conf = match mapping.take("client_conf") {
        Some(field) => client_conf::read(reader, &field),
        None => Ok(client_conf::ClientConf::default()),
    };
    let encoding = match reader.is_deltaforge() {
        true => optional(mapping.take("encoding"), |field| read_encoding(reader, field)),
        false => Ok(None),
    };
    accept_without_effect(reader, &mut mapping, &["send_timeout_secs"]);
    reader.finish(mapping);
    let (conf, timeout_field, timeout) = match conf {
        Ok(conf) => (conf.properties, conf.timeout_field, conf.timeout),
        Err(reported) => (Err(reported), None, TransactionTimeout::default()),
    };
    let exactly_once = exactly_once.map(|flag| flag.unwrap_or(false));
    let kafka = || {
        let kafka = Kafka {
            id: id?,
            brokers: brokers?,
            topic: topic?,
            key: key?,
            envelope: envelope?.unwrap_or(Envelope::Native),
            exactly_once: exactly_once?,
            transactional_id: transactional_id?.unwrap_or_else(|| format!("tailpost-{pipeline}")),
            on_fenced: on_fenced?.unwrap_or(OnFenced::StandBy),
            create_topics: create_topics?,
            client_conf: conf?,
        };
        encoding?;
        Ok(kafka)
    };
    Ok(SinkReading {
        sink: kafka().map(Sink::Kafka),
        transactions: Transactions {
            exactly_once,
            dependent: [id_field, fenced_field, timeout_field].into_iter().flatten().collect(),
            timeout,
        },
        topic: fixed_topic,
        kind: SinkKind::Kafka,
        says_attempts: false,
        whole: about.whole,
        required: about.required,
    })
}

const TRANSACTIONAL_ID: &str = "a transactional id of 1 to 200 characters, none of them a control character";

/// Kafka takes any text. Ours leaves room for what is put behind it, and for a broker's log lines.
fn read_transactional_id(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<String> {
    let text = reader.text(field)?;
    let legal = (1..=200).contains(&text.value.chars().count()) && !text.value.contains(char::is_control);
    if legal {
        Ok(text.value)
    } else {
        Err(reader.unexpected(field, TRANSACTIONAL_ID, text.found()))
    }
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
        read_replication_factor(reader, field)
    });
    reader.finish(mapping);
    Ok(CreateTopics {
        partitions: partitions?,
        replication_factor: replication_factor?.unwrap_or(BROKERS_DEFAULT),
    })
}

/// The replication factor that leaves it to the broker.
pub(super) const BROKERS_DEFAULT: i32 = -1;

pub(super) fn read_replication_factor(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<i32> {
    let factor = read_count(reader, field, BROKERS_DEFAULT, 1000)?;
    if factor == 0 {
        return Err(reader.unexpected(field, "1 or more, or -1 for the broker's default", "0".to_owned()));
    }
    Ok(factor)
}

fn read_count(reader: &mut Reader<'_>, field: &Field<'_>, least: i32, most: i32) -> Read<i32> {
    let count = reader.integer(field, i64::from(least)..=i64::from(most))?;
    i32::try_from(count).map_err(|err| reader.refuse(field, err.to_string()))
}
