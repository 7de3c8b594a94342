//! The file's shape: one reader a part, from the node tree to the typed pipeline.
//!
//! A reader looks at every key before it gives up on any, so that one run shows all there is to correct. Keys that only
//! DeltaForge files have are known in those alone; keys of features to come are known and refused as such.

pub(in crate::config) mod audit;
mod checkpoint;
mod client_conf;
pub(in crate::config) mod delivery;
mod envelope;
pub(in crate::config) mod errors;
mod filter;
pub(in crate::config) mod http;
mod idempotency;
mod kafka;
mod kind;
pub(in crate::config) mod lines;
mod mask;
mod order;
mod outbox;
mod sink;
pub(in crate::config) mod sinks;
mod source;
mod template;
mod transactions;
pub(in crate::config) mod validate;

use std::collections::BTreeMap;

pub(crate) use http::RESERVED_HEADERS;

use super::document::{Node, Value};
use super::error::Problem;
use super::pattern::PatternError;
use super::pipeline::{
    Audit, Checkpoint, CommitPolicy, DeadLetter, Delivery, Dispatches, ErrorPolicies, ErrorPolicy, FurtherSink,
    Pipeline, Processor, Restart, Sink, Source,
};
use super::reader::{Field, Mapping, Read, Reader, Version, optional};
use checkpoint::CheckpointReading;
use errors::DeadLetterReading;
use outbox::Seen;
use sink::{SinkKind, SinkReading};
use sinks::SinksReading;

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
        further_sinks: spec.further_sinks,
        commit_policy: spec.commit_policy,
        errors: spec.errors,
        dead_letter: spec.dead_letter,
        audit: spec.audit,
        dispatches: spec.dispatches,
        checkpoint: spec.checkpoint,
        delivery: spec.delivery,
        restart: spec.restart,
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
    further_sinks: Vec<FurtherSink>,
    commit_policy: CommitPolicy,
    errors: ErrorPolicies,
    dead_letter: Option<DeadLetter>,
    audit: Option<Audit>,
    dispatches: Option<Dispatches>,
    checkpoint: Checkpoint,
    delivery: Delivery,
    restart: Restart,
}

/// What DeltaForge does with these has no counterpart here, or is what tailpost does anyway.
const SPEC_WITHOUT_EFFECT: [&str; 6] = [
    "sharding",
    "connection_policy",
    "batch",
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
    let mut seen = Seen::default();
    let processors = optional(mapping.take("processors"), |field| {
        outbox::read_processors(reader, field, &mut seen)
    });
    let commit_policy = mapping.take("commit_policy");
    let sinks = reader
        .require(&mut mapping, "sinks", "a list of sinks")
        .and_then(|field| sinks::read(reader, &field, commit_policy, pipeline));
    let dead_letter = optional(mapping.take("dead_letter"), |field| {
        errors::read_dead_letter(reader, field)
    });
    errors::check_words(reader, &seen.dead_letter_words, &dead_letter);
    let errors = errors::read_policies(reader, mapping.take("errors"), &dead_letter);
    let audit = optional(mapping.take("audit"), |field| audit::read(reader, field));
    let dispatches = mapping.take("dispatches");
    let said_dispatches = dispatches.clone();
    let dispatches = optional(dispatches, |field| audit::read_dispatches(reader, field));
    let delivery = optional(mapping.take("delivery"), |field| delivery::read(reader, field));
    let restart = optional(mapping.take("restart"), |field| delivery::read_restart(reader, field));
    let said_checkpoint = optional(mapping.take("checkpoint"), |field| checkpoint::read(reader, field));
    accept_without_effect(reader, &mut mapping, &SPEC_WITHOUT_EFFECT);
    reader.finish(mapping);

    let transactions = sinks
        .as_ref()
        .map(SinksReading::transactions)
        .map_err(|reported| *reported);
    let checkpoint =
        transactions.and_then(|transactions| transactions::read_checkpoint(reader, transactions, &said_checkpoint));
    if let (Ok(transactions), Ok(Some(delivery))) = (transactions, &delivery) {
        transactions::check_interval(reader, transactions, delivery);
    }
    if let Ok(checkpoint) = &checkpoint {
        let of_sinks = sinks.iter().flat_map(SinksReading::all);
        let of_sinks = of_sinks.filter_map(|sink| sink.topic.as_ref());
        let of_dead_letters = dead_letter
            .iter()
            .flatten()
            .filter_map(|reading| reading.topic.as_ref());
        let topics = seen.topics.iter().chain(of_sinks).chain(of_dead_letters);
        transactions::check_topics(reader, checkpoint, topics);
    }
    if let Ok(sinks) = &sinks {
        for sink in sinks.all().filter_map(|reading| reading.sink.as_ref().ok()) {
            envelope::check_headers(reader, sink.envelope(), &seen.headers);
        }
        check_clusters(reader, sinks, &seen, &said_checkpoint, &dead_letter);
    }
    let (mut source, processors) = (source?, processors?.unwrap_or_default());
    order::check(reader, &source, &seen.inspectors);
    order::check_names(reader, &source, &seen.named);
    if source_field.as_ref().is_ok_and(source::is_mariadb) {
        for field in &seen.of_json_columns {
            reader.note(
                field,
                "without effect on MariaDB, whose JSON columns are LONGTEXT, which stays as it is",
            );
        }
    }
    if let Some((field, on_update)) = seen.on_update {
        if !source.selects_outbox_tables() {
            return Err(reader.refuse(
                &field,
                "without effect: expected `outbox.tables` of the source, whose rows can be updated",
            ));
        }
        source.set_on_update(on_update);
    }
    let (leading, further, commit_policy) = whole_sinks(sinks?, &errors)?;
    let spec = Spec {
        source,
        processors,
        sink: leading,
        further_sinks: further,
        commit_policy,
        errors: errors?,
        dead_letter: dead_letter?.map(|reading| reading.dead_letter),
        audit: audit?,
        dispatches: dispatches?,
        checkpoint: checkpoint?,
        delivery: delivery?.map(|reading| reading.delivery).unwrap_or_default(),
        restart: restart?.unwrap_or_default(),
    };
    let mut sinks = std::iter::once(&spec.sink).chain(spec.further_sinks.iter().map(|further| &further.sink));
    if let (Some(field), Some(Dispatches::Stdout)) = (said_dispatches, &spec.dispatches)
        && sinks.any(|sink| matches!(sink, Sink::Stdout(_)))
    {
        return Err(reader.refuse(
            &field,
            "the sink writes its records to stdout: expected `{type: file, config: {path: ...}}`",
        ));
    }
    if let Ok(field) = source_field
        && spec.source.selects_outboxes()
        && !spec
            .processors
            .iter()
            .any(|processor| matches!(processor, Processor::Outbox(_)))
    {
        reader.note(
            &field,
            "it selects outbox events, but no processor of type `outbox` takes them: each will be unroutable",
        );
    }
    Ok(spec)
}

/// The sinks, with what depends on the policies of the file.
fn whole_sinks(
    reading: SinksReading<'_>,
    errors: &Read<ErrorPolicies>,
) -> Read<(Sink, Vec<FurtherSink>, CommitPolicy)> {
    let SinksReading {
        leading,
        further,
        policy,
    } = reading;
    let leading = whole_sink(leading, errors);
    let further: Vec<_> = further
        .into_iter()
        .map(|reading| {
            let required = reading.is_required();
            let sink = whole_sink(reading, errors)?;
            Ok(FurtherSink { sink, required })
        })
        .collect();
    Ok((leading?, further.into_iter().collect::<Read<_>>()?, policy?))
}

fn whole_sink(reading: SinkReading<'_>, errors: &Read<ErrorPolicies>) -> Read<Sink> {
    let mut sink = reading.sink?;
    if let (Sink::Http(http), Ok(errors)) = (&mut sink, errors)
        && errors.rejected == ErrorPolicy::Halt
        && !reading.says_attempts
    {
        // There is nowhere for the event to go, and a target that is away for a while is no reason to stop.
        http.retry.max_attempts = None;
    }
    Ok(sink)
}

/// Refuses what only the cluster of a sink of type `kafka` can have, and what does not go with its transactions.
fn check_clusters(
    reader: &mut Reader<'_>,
    sinks: &SinksReading<'_>,
    seen: &Seen<'_>,
    checkpoint: &Read<Option<CheckpointReading<'_>>>,
    dead_letter: &Read<Option<DeadLetterReading<'_>>>,
) {
    let leading = &sinks.leading;
    if let Ok(Some(said)) = dead_letter
        && said.topic.is_none()
        && matches!(leading.transactions.exactly_once, Ok(true))
    {
        let message = "a file is not part of the sink's transactions, which `exactly_once: true` asks for: write `{type: kafka, config: {topic: ...}}`";
        reader.refuse(&said.whole, message);
    }
    if let Ok(Some(said)) = checkpoint
        && said.checkpoint != Checkpoint::File
        && leading.kind != SinkKind::Kafka
    {
        reader.refuse(
            &said.kind,
            "kept by the cluster of a sink of type `kafka` that the position waits for, which is none of the file's: write `file`",
        );
    }
    if let Ok(Some(said)) = dead_letter
        && said.topic.is_some()
        && !sinks.are_of_one_cluster()
    {
        let message = match sinks.further.is_empty() {
            true => {
                "a topic of the sink's own cluster, and the sink has none: write `{type: sqlite, config: {path: ...}}`"
            }
            false => {
                "a topic of the cluster of all sinks, and not all of them are of type `kafka` with the same `brokers`: write `{type: sqlite, config: {path: ...}}`"
            }
        };
        reader.refuse(&said.whole, message);
    }
    if sinks.all().all(|sink| sink.kind == SinkKind::Http) {
        for field in &seen.of_topics {
            let message =
                "has no effect: a sink of type `http` has no topics and partitions, and sends to its `url`, a template";
            let message = message.to_owned();
            reader.report_key(field, Problem::Refused { message });
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
