//! The file's shape: one reader a part, from the node tree to the typed pipeline.
//!
//! A reader looks at every key before it gives up on any, so that one run shows all there is to correct. Keys that only
//! DeltaForge files have are known in those alone; keys of features to come are known and refused as such.

mod kafka;
mod kind;
mod outbox;
mod source;
mod template;

use std::collections::BTreeMap;
use std::time::Duration;

use super::document::{Node, Value};
use super::error::Problem;
use super::pattern::PatternError;
use super::pipeline::{Delivery, ErrorPolicies, ErrorPolicy, Pipeline, Processor, Sink, Source};
use super::reader::{Field, Mapping, Read, Reader, Version, optional};
use kind::{Kinds, read_type, require_kind};

/// A pipeline, and the number of the node that names it.
pub(super) struct Named {
    pub(super) pipeline: Pipeline,
    pub(super) name_number: usize,
}

/// Reads a whole file. What is wrong with it is in the reader.
pub(super) fn read(reader: &mut Reader<'_>, root: &Node) -> Read<Named> {
    let root = Field {
        path: String::new(),
        key: root.number,
        node: root,
    };
    if matches!(root.node.value, Value::Null) {
        return Err(reader.report(&root, Problem::Empty));
    }
    let mut mapping = reader.mapping(&root)?;
    let version = reader
        .require(&mut mapping, "apiVersion", "`tailpost/v1`")
        .and_then(|field| read_version(reader, &field));
    let kind = reader
        .require(&mut mapping, "kind", "`Pipeline`")
        .and_then(|field| reader.word(&field, &[("Pipeline", ())]));
    let metadata = reader
        .require(&mut mapping, "metadata", "a mapping with a name")
        .and_then(|field| read_metadata(reader, &field));
    let spec = reader
        .require(&mut mapping, "spec", "a mapping with source and sinks")
        .and_then(|field| read_spec(reader, &field, metadata.as_ref().map_or("", |metadata| &metadata.name)));
    reader.finish(mapping);
    let (metadata, spec) = (metadata?, spec?);
    version?;
    kind?;
    let pipeline = Pipeline {
        name: metadata.name,
        tenant: metadata.tenant,
        labels: metadata.labels,
        annotations: metadata.annotations,
        source: spec.source,
        processors: spec.processors,
        sink: spec.sink,
        errors: spec.errors,
        delivery: spec.delivery,
    };
    Ok(Named {
        pipeline,
        name_number: metadata.name_number,
    })
}

fn read_version(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<()> {
    // A wrong version of DeltaForge's is still read with its keys, lest they are all reported too.
    if matches!(&field.node.value, Value::Text(text) if text.starts_with("deltaforge")) {
        reader.version = Version::DeltaForge;
    }
    reader.version = reader.word(
        field,
        &[
            ("tailpost/v1", Version::Tailpost),
            ("deltaforge/v1", Version::DeltaForge),
        ],
    )?;
    Ok(())
}

struct Metadata {
    name: String,
    name_number: usize,
    tenant: Option<String>,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
}

fn read_metadata(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<Metadata> {
    let mut mapping = reader.mapping(field)?;
    let name = reader
        .require(&mut mapping, "name", NAME)
        .and_then(|field| Ok((read_name(reader, &field)?, field.node.number)));
    let tenant = optional(mapping.take("tenant"), |field| reader.filled(field));
    let labels = optional(mapping.take("labels"), |field| read_texts(reader, field));
    let annotations = optional(mapping.take("annotations"), |field| read_texts(reader, field));
    reader.finish(mapping);
    let (name, name_number) = name?;
    Ok(Metadata {
        name,
        name_number,
        tenant: tenant?,
        labels: labels?.unwrap_or_default(),
        annotations: annotations?.unwrap_or_default(),
    })
}

const NAME: &str = "a name of a-z, 0-9, `.`, `_` and `-` that begins with a letter or digit, 63 at most";

fn read_name(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<String> {
    let text = reader.text(field)?;
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let legal = text.value.len() <= 63
        && text.value.bytes().next().is_some_and(plain)
        && text.value.bytes().all(|byte| plain(byte) || b"._-".contains(&byte));
    if legal {
        Ok(text.value)
    } else {
        Err(reader.unexpected(field, NAME, text.found()))
    }
}

fn read_texts(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<BTreeMap<String, String>> {
    let mut mapping = reader.mapping(field)?;
    let texts: Vec<_> = mapping
        .take_all()
        .map(|(name, field)| Ok((name.to_owned(), reader.text(&field)?.value)))
        .collect();
    texts.into_iter().collect()
}

struct Spec {
    source: Source,
    processors: Vec<Processor>,
    sink: Sink,
    errors: ErrorPolicies,
    delivery: Delivery,
}

/// What DeltaForge does with these has no counterpart here, or is what tailpost does anyway.
const SPEC_WITHOUT_EFFECT: [&str; 7] = [
    "sharding",
    "connection_policy",
    "batch",
    "commit_policy",
    "schema_sensing",
    "journal",
    "sink_batch_deadline_secs",
];

/// `pipeline` is its name, or empty where that is wrong.
fn read_spec(reader: &mut Reader<'_>, field: &Field<'_>, pipeline: &str) -> Read<Spec> {
    let mut mapping = reader.mapping(field)?;
    let source_field = reader.require(&mut mapping, "source", "a mapping with type and config");
    let source = source_field
        .clone()
        .and_then(|field| source::read(reader, &field, pipeline));
    let processors = optional(mapping.take("processors"), |field| {
        outbox::read_processors(reader, field)
    });
    let sink = reader
        .require(&mut mapping, "sinks", "a list with one sink")
        .and_then(|field| read_sinks(reader, &field));
    let errors = optional(mapping.take("errors"), |field| read_errors(reader, field));
    let delivery = optional(mapping.take("delivery"), |field| read_delivery(reader, field));
    let checkpoint = optional(mapping.take("checkpoint"), |field| read_checkpoint(reader, field));
    let dead_letter = not_yet(reader, mapping.take("dead_letter"), "`dead_letter`", None);
    accept_without_effect(reader, &mut mapping, &SPEC_WITHOUT_EFFECT);
    reader.finish(mapping);
    let (source, processors) = (source?, processors?.unwrap_or_default());
    let spec = Spec {
        source,
        processors,
        sink: sink?,
        errors: errors?.unwrap_or(DEFAULT_ERRORS),
        delivery: delivery?.unwrap_or(DEFAULT_DELIVERY),
    };
    checkpoint?;
    dead_letter?;
    if let Ok(field) = source_field
        && spec.source.selects_outboxes()
        && spec.processors.is_empty()
    {
        reader.note(
            &field,
            "it selects outbox events, but no processor of type `outbox` takes them: each will be unroutable",
        );
    }
    Ok(spec)
}

fn read_sinks(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<Sink> {
    let items = reader.list(field)?;
    let sinks: Vec<_> = items.iter().map(|item| read_sink(reader, item)).collect();
    if let Some(second) = items.get(1) {
        let what = "more than one sink".to_owned();
        return Err(reader.report(second, Problem::NotYet { what, remedy: None }));
    }
    sinks
        .into_iter()
        .next()
        .unwrap_or_else(|| Err(reader.unexpected(field, "one sink", "an empty list".to_owned())))
}

fn read_sink(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<Sink> {
    let mut mapping = reader.mapping(field)?;
    let kinds = Kinds {
        here: &[("kafka", ())],
        later: &[],
        elsewhere: &["redis", "nats", "http", "s3", "clickhouse", "elasticsearch"],
    };
    let kind = require_kind(reader, &mut mapping, "sink type", &kinds);
    let config = reader.require(&mut mapping, "config", "a mapping with id and brokers");
    reader.finish(mapping);
    kind.read(|_| kafka::read(reader, &config?).map(Sink::Kafka))
}

const DEFAULT_ERRORS: ErrorPolicies = ErrorPolicies {
    invalid: ErrorPolicy::Halt,
    unroutable: ErrorPolicy::Halt,
    rejected: ErrorPolicy::Halt,
};

fn read_errors(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<ErrorPolicies> {
    let mut mapping = reader.mapping(field)?;
    let mut policy = |name| optional(mapping.take(name), |field| read_policy(reader, field));
    let (invalid, unroutable, rejected) = (policy("invalid"), policy("unroutable"), policy("rejected"));
    reader.finish(mapping);
    Ok(ErrorPolicies {
        invalid: invalid?.unwrap_or(DEFAULT_ERRORS.invalid),
        unroutable: unroutable?.unwrap_or(DEFAULT_ERRORS.unroutable),
        rejected: rejected?.unwrap_or(DEFAULT_ERRORS.rejected),
    })
}

fn read_policy(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<ErrorPolicy> {
    let policies = [
        ("halt", Some(ErrorPolicy::Halt)),
        ("skip", Some(ErrorPolicy::Skip)),
        ("dead_letter", None),
    ];
    reader.word(field, &policies)?.ok_or_else(|| {
        let remedy = Some("expected `halt` or `skip`".to_owned());
        reader.report(
            field,
            Problem::NotYet {
                what: "error policy `dead_letter`".to_owned(),
                remedy,
            },
        )
    })
}

const DEFAULT_DELIVERY: Delivery = Delivery {
    max_in_flight_events: 20_000,
    max_in_flight_bytes: 32 * 1024 * 1024,
    drain_timeout: Duration::from_secs(30),
    stall_timeout: Duration::from_secs(60),
};

fn read_delivery(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<Delivery> {
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);
    let mut mapping = reader.mapping(field)?;
    let events = optional(mapping.take("max_in_flight_events"), |field| {
        reader.integer(field, 1..=10_000_000)
    });
    let bytes = optional(mapping.take("max_in_flight_bytes"), |field| {
        reader.size(field, 64 << 10..=1 << 40)
    });
    let drain = optional(mapping.take("drain_timeout"), |field| {
        reader.duration(field, Duration::ZERO..=DAY)
    });
    let stall = optional(mapping.take("stall_timeout"), |field| {
        reader.duration(field, Duration::from_secs(1)..=DAY)
    });
    let remedy = Some("it belongs to `exactly_once`");
    let interval = not_yet(
        reader,
        mapping.take("transaction_interval"),
        "`transaction_interval`",
        remedy,
    );
    reader.finish(mapping);
    let delivery = Delivery {
        max_in_flight_events: events?
            .and_then(|events| usize::try_from(events).ok())
            .unwrap_or(DEFAULT_DELIVERY.max_in_flight_events),
        max_in_flight_bytes: bytes?.unwrap_or(DEFAULT_DELIVERY.max_in_flight_bytes),
        drain_timeout: drain?.unwrap_or(DEFAULT_DELIVERY.drain_timeout),
        stall_timeout: stall?.unwrap_or(DEFAULT_DELIVERY.stall_timeout),
    };
    interval?;
    Ok(delivery)
}

/// Only the file under the state directory is there, which needs no further key.
fn read_checkpoint(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<()> {
    let mut mapping = reader.mapping(field)?;
    let kind = reader.require(&mut mapping, "type", "`file`").and_then(|field| {
        let kinds = Kinds {
            here: &[("file", ())],
            later: &["kafka"],
            elsewhere: &[],
        };
        read_type(reader, &field, "checkpoint type", &kinds)
    });
    // The keys of a type that isn't there are not worth a second violation.
    if kind.is_ok() {
        reader.finish(mapping);
    }
    kind
}

/// Refuses a key of a feature to come.
fn not_yet(reader: &mut Reader<'_>, field: Option<Field<'_>>, what: &str, remedy: Option<&str>) -> Read<()> {
    match field {
        None => Ok(()),
        Some(field) => {
            let problem = Problem::NotYet {
                what: what.to_owned(),
                remedy: remedy.map(str::to_owned),
            };
            Err(reader.report_key(&field, problem))
        }
    }
}

/// Takes DeltaForge's keys that mean nothing here, with a note for each.
fn accept_without_effect(reader: &mut Reader<'_>, mapping: &mut Mapping<'_>, names: &[&'static str]) {
    if reader.is_deltaforge() {
        for name in names {
            if let Some(field) = mapping.take(name) {
                reader.note(&field, "accepted without effect");
            }
        }
    }
}

/// Reads a list of patterns.
fn read_patterns<P>(
    reader: &mut Reader<'_>,
    field: &Field<'_>,
    parse: fn(&str) -> Result<P, PatternError>,
) -> Read<Vec<P>> {
    let items = reader.list(field)?;
    let patterns: Vec<Read<P>> = items
        .iter()
        .map(|item| {
            let text = reader.text(item)?;
            parse(&text.value).map_err(|err| reader.unexpected(item, err.to_string(), text.found()))
        })
        .collect();
    patterns.into_iter().collect()
}
