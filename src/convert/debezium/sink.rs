//! The Kafka sink: brokers, and the producer's properties as far as they are not the sink's own affair.

use rdkafka::ClientConfig;
use rdkafka::error::KafkaError;

use super::Database;
use super::input::Platform;
use super::settings::Given;
use super::work::Work;
use crate::convert::yaml::{Mapping, Node};

const PATH: &str = "spec.sinks[].config";
const CONF: &str = "spec.sinks[].config.client_conf";

/// Properties of Java's producer, and what librdkafka calls them.
const SAME: [(&str, &str); 19] = [
    ("client.id", "client.id"),
    ("client.dns.lookup", "client.dns.lookup"),
    ("compression.type", "compression.type"),
    ("connections.max.idle.ms", "connections.max.idle.ms"),
    ("max.request.size", "message.max.bytes"),
    ("metadata.max.age.ms", "metadata.max.age.ms"),
    ("reconnect.backoff.max.ms", "reconnect.backoff.max.ms"),
    ("reconnect.backoff.ms", "reconnect.backoff.ms"),
    ("request.timeout.ms", "request.timeout.ms"),
    ("retry.backoff.ms", "retry.backoff.ms"),
    ("sasl.kerberos.service.name", "sasl.kerberos.service.name"),
    ("sasl.mechanism", "sasl.mechanism"),
    ("security.protocol", "security.protocol"),
    (
        "socket.connection.setup.timeout.ms",
        "socket.connection.setup.timeout.ms",
    ),
    ("ssl.ca.location", "ssl.ca.location"),
    (
        "ssl.endpoint.identification.algorithm",
        "ssl.endpoint.identification.algorithm",
    ),
    ("transaction.timeout.ms", "transaction.timeout.ms"),
    ("sasl.username", "sasl.username"),
    ("sasl.password", "sasl.password"),
];

const NOT_NEEDED: [(&[&str], &str); 5] = [
    (&["key.serializer", "value.serializer"], "records are bytes here"),
    (
        &["acks", "enable.idempotence", "max.in.flight.requests.per.connection"],
        "the producer is idempotent, with acks=all, always",
    ),
    (
        &["retries", "delivery.timeout.ms", "max.block.ms"],
        "what can heal is tried until it does",
    ),
    (
        &["buffer.memory"],
        "`spec.delivery.max_in_flight_bytes` bounds what waits",
    ),
    (
        &["linger.ms", "batch.size"],
        "records wait for others only while there is a backlog; set `client_conf` of this name to have it always",
    ),
];

/// `ordinary`: tables beside the outboxes are published under topics with this prefix.
pub(super) fn sink(work: &mut Work, ordinary: Option<(&Given, Database)>) -> Mapping {
    let mut config = Mapping::default();
    config.set("id", Node::text("kafka"), "");
    set_brokers(work, &mut config);
    if let Some((prefix, database)) = ordinary {
        set_tables(work, &mut config, prefix, database);
    }
    set_exactly_once(work, &mut config);
    set_topics(work, &mut config);
    let conf = client_conf(work);
    if !conf.is_empty() {
        config.set("client_conf", Node::Mapping(conf), "");
    }
    take_sink_type(work);
    let mut sink = Mapping::default();
    sink.set("type", Node::text("kafka"), "");
    sink.set("config", Node::Mapping(config), "");
    sink
}

fn set_brokers(work: &mut Work, config: &mut Mapping) {
    // Today's name, and that of Debezium 1.x.
    const HISTORY: [&str; 2] = [
        "schema.history.internal.kafka.bootstrap.servers",
        "database.history.kafka.bootstrap.servers",
    ];
    let own = work.take_or_worker("producer.bootstrap.servers");
    let worker = work
        .worker
        .as_ref()
        .and_then(|worker| worker.get("bootstrap.servers").cloned());
    match own
        .or(worker)
        .or_else(|| HISTORY.iter().find_map(|name| work.take(name)))
    {
        Some(given) => {
            let brokers = work.value(&given);
            work.place(config, PATH, "brokers", Node::text(brokers), &given.option);
        }
        None => {
            let what = "the file does not say where Kafka is";
            let brokers = work.ask("bootstrap.servers", "KAFKA_BROKERS", what);
            config.set("brokers", Node::text(brokers), "bootstrap.servers of the worker");
        }
    }
}

/// Changes of ordinary tables, in the shape that Debezium gives them without schemas.
fn set_tables(work: &mut Work, config: &mut Mapping, prefix: &Given, database: Database) {
    let schema = match database {
        Database::Postgres => "${source.schema}",
        Database::Mysql | Database::Mariadb => "${source.db}",
    };
    let delimiter = work.settings.get("topic.delimiter");
    let delimiter = delimiter.map_or(".", |given| &given.value).replace('$', "$$");
    let prefix = work.template(prefix, |text| text.replace('$', "$$"));
    config.set(
        "topic",
        Node::text(format!("{prefix}{delimiter}{schema}{delimiter}${{source.table}}")),
        "tables that no router takes",
    );
    let mut envelope = Mapping::default();
    envelope.set("type", Node::text("debezium"), "");
    envelope.set("schema", Node::text("omit"), "");
    config.set("envelope", Node::Mapping(envelope), "");
    work.different(
        "tables that no router takes",
        "their changes come as JSON without schemas, with values as the server prints them, and without tombstones behind DELETEs",
    );
}

fn set_exactly_once(work: &mut Work, config: &mut Mapping) {
    let Some(given) = work.take("exactly.once.support") else {
        return;
    };
    match given.is("required") {
        true => work.place(config, PATH, "exactly_once", Node::flag(true), &given.option),
        false => work.not_needed(
            &given.option,
            "at least once is the default: see `exactly_once` of the sink",
        ),
    }
}

/// `topic.creation.default.`: topics that the connector makes.
fn set_topics(work: &mut Work, config: &mut Mapping) {
    let mut topics = Mapping::default();
    let path = format!("{PATH}.create_topics");
    for (name, key) in [
        ("partitions", "partitions"),
        ("replication.factor", "replication_factor"),
    ] {
        let Some(given) = work.take(&format!("topic.creation.default.{name}")) else {
            continue;
        };
        match given.value.parse::<i32>() {
            Ok(number) if number > 0 => work.place(&mut topics, &path, key, Node::number(number), &given.option),
            _ => work.not_needed(&given.option, "the broker's default holds without it"),
        }
    }
    for (_, given) in work.settings.take_under("topic.creation.") {
        work.not_possible(
            &given.option,
            "topics are made with partitions and replicas alone: make this one beforehand",
        );
    }
    if !topics.is_empty() {
        config.set("create_topics", Node::Mapping(topics), "");
    }
}

fn client_conf(work: &mut Work) -> Mapping {
    let mut conf = Mapping::default();
    let mut producer = work.settings.take_under("producer.");
    if let Some(worker) = &mut work.worker {
        let own = producer.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
        let of_worker = worker.take_under("producer.").into_iter();
        producer.extend(of_worker.filter(|(name, _)| !own.contains(name)));
    }
    let truststore = store_type(&producer, "truststore");
    let keystore = store_type(&producer, "keystore");
    for (name, given) in &producer {
        if let Some((_, theirs)) = SAME.iter().find(|(java, _)| java == name) {
            let value = match *theirs {
                "sasl.password" => work.secret(given),
                "ssl.endpoint.identification.algorithm" if given.value.is_empty() => "none".to_owned(),
                _ => work.value(given),
            };
            match refusal(theirs, &value) {
                None => work.place(&mut conf, CONF, theirs, Node::text(value), &given.option),
                Some(reason) => work.not_possible(
                    &given.option,
                    format!(
                        "left out, since librdkafka refuses it ({reason}): set another value in `client_conf`, if any"
                    ),
                ),
            }
        } else if let Some((_, why)) = NOT_NEEDED.iter().find(|(names, _)| names.contains(&name.as_str())) {
            work.not_needed(&given.option, why);
        } else {
            set_other(work, &mut conf, name, given, &truststore, &keystore);
        }
    }
    set_cloud_key(work, &mut conf);
    conf
}

/// Why librdkafka takes no such value. What is a variable's is not known yet.
fn refusal(property: &str, value: &str) -> Option<String> {
    /// What a client is only told when it is made.
    const MECHANISMS: [&str; 5] = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI", "OAUTHBEARER"];
    if value.contains("${") {
        return None;
    }
    if property == "sasl.mechanism" && !MECHANISMS.contains(&value) {
        return Some(format!("expected one of {}", MECHANISMS.join(", ")));
    }
    let config = ClientConfig::from_iter([(property.to_owned(), value.to_owned())]);
    match config.create_native_config() {
        Ok(_) => None,
        Err(KafkaError::ClientConfig(_, reason, ..)) => Some(reason),
        Err(error) => Some(error.to_string()),
    }
}

fn store_type(producer: &[(String, Given)], store: &str) -> String {
    let name = format!("ssl.{store}.type");
    let given = producer.iter().find(|(known, _)| *known == name);
    given.map_or("JKS".to_owned(), |(_, given)| given.value.to_ascii_uppercase())
}

fn set_other(work: &mut Work, conf: &mut Mapping, name: &str, given: &Given, truststore: &str, keystore: &str) {
    let option = &given.option;
    match (name, truststore, keystore) {
        ("sasl.jaas.config", ..) => set_jaas(work, conf, given),
        ("ssl.truststore.location", "PEM", _) => {
            let file = work.value(given);
            work.place(conf, CONF, "ssl.ca.location", Node::text(file), option);
        }
        ("ssl.keystore.location", _, "PKCS12") => {
            let file = work.value(given);
            work.place(conf, CONF, "ssl.keystore.location", Node::text(file), option);
        }
        ("ssl.keystore.password", _, "PKCS12") => {
            let secret = work.secret(given);
            work.place(conf, CONF, "ssl.keystore.password", Node::text(secret), option);
        }
        ("ssl.truststore.type", "PEM", _) | ("ssl.keystore.type", _, "PKCS12") => {
            work.not_needed(option, "the file's own form says it");
        }
        (name, ..) if name.starts_with("ssl.truststore.") => work.not_possible(
            option,
            "no Java key stores here: `keytool -exportcert -rfc` gives PEM, and `client_conf` takes its file as `ssl.ca.location`",
        ),
        (name, ..) if name.starts_with("ssl.keystore.") || name == "ssl.key.password" => work.not_possible(
            option,
            "no Java key stores here: a PKCS#12 file by `ssl.keystore.location` and `ssl.keystore.password`, or PEM by \
             `ssl.certificate.location` and `ssl.key.location` of `client_conf`",
        ),
        ("ssl.cipher.suites", ..) => work.not_possible(
            option,
            "OpenSSL has other names of them than Java: set these in `client_conf`, or leave the choice to client and broker",
        ),
        ("partitioner.class", ..) => work.not_possible(
            option,
            "the key decides as in Java's default partitioner; for another, let a column say it: `columns.partition`",
        ),
        ("interceptor.classes", ..) => work.not_possible(option, "no Java code runs here"),
        _ => work.not_possible(
            option,
            "no property of librdkafka is known for it: look through its CONFIGURATION.md, and set it in `client_conf`",
        ),
    }
}

/// `... required username="u" password="p";`
fn set_jaas(work: &mut Work, conf: &mut Mapping, given: &Given) {
    let quoted = |name: &str| {
        let (_, after) = given.value.split_once(&format!("{name}="))?;
        let (value, _) = after.strip_prefix(['"', '\''])?.split_once(['"', '\''])?;
        Some(value.to_owned())
    };
    let (Some(user), Some(password)) = (quoted("username"), quoted("password")) else {
        return work.not_possible(
            &given.option,
            "no user and password in it: set librdkafka's own properties for this mechanism in `client_conf`",
        );
    };
    let part = |end: &str, value: String| Given {
        option: format!("{}.{end}", given.option),
        value,
    };
    let user = work.value(&part("username", user));
    let password = work.secret(&part("password", password));
    work.place(conf, CONF, "sasl.username", Node::text(user), &given.option);
    conf.set("sasl.password", Node::text(password), &given.option);
}

/// `kafka.api.key` of Confluent's managed connectors.
fn set_cloud_key(work: &mut Work, conf: &mut Mapping) {
    let key = work.take("kafka.api.key");
    let secret = work.take("kafka.api.secret");
    let (Some(key), Some(secret)) = (key, secret) else {
        return;
    };
    conf.set("security.protocol", Node::text("SASL_SSL"), "");
    conf.set("sasl.mechanism", Node::text("PLAIN"), "");
    let user = work.value(&key);
    work.place(conf, CONF, "sasl.username", Node::text(user), &key.option);
    let password = work.secret(&secret);
    work.place(conf, CONF, "sasl.password", Node::text(password), &secret.option);
}

/// Debezium Server has many sinks.
fn take_sink_type(work: &mut Work) {
    if let Some(given) = work.take("sink.type") {
        match given.is("kafka") {
            true => work.taken(&given.option, "spec.sinks[].type"),
            false => work.not_possible(&given.option, "records go to Kafka alone"),
        }
    } else if work.platform == Platform::Server {
        work.not_possible("debezium.sink.type", "the file names no sink: taken for `kafka`");
    }
    for (_, given) in work.settings.take_under("sink.kafka.") {
        work.not_needed(&given.option, "every record is waited for, for as long as it takes");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_librdkafka_refuses_is_found() {
        let refused = [
            ("sasl.mechanism", "AWS_MSK_IAM"),
            ("connections.max.idle.ms", "-1"),
            ("message.max.bytes", "2147483647"),
            ("request.timeout.ms", "1200000"),
            ("retry.backoff.ms", "0"),
            ("client.dns.lookup", "default"),
        ];
        for (property, value) in refused {
            let reason = refusal(property, value).unwrap_or_else(|| panic!("{property}={value} is taken"));
            assert!(!reason.is_empty());
        }
        let taken = [
            ("sasl.mechanism", "SCRAM-SHA-512"),
            ("compression.type", "zstd"),
            ("message.max.bytes", "2097152"),
            ("sasl.password", "${SECRET}"),
            ("retry.backoff.ms", "${BACKOFF}"),
        ];
        for (property, value) in taken {
            assert_eq!(refusal(property, value), None, "{property}={value}");
        }
    }
}
