//! A Debezium connector's configuration, of Kafka Connect or Debezium Server, as a pipeline file.
//!
//! The way of a file: `input` reads it into options by the names that a connector knows; `transforms` takes the chain, of which
//! the event routers become processors (`router`) and the rest is told; `source`, `connection`, `converters` and `sink` take
//! theirs; `known` explains what needs nothing here; what is left then is unknown, and said to be. At the end `validated` reads
//! what was written as `tailpost validate` does, so that nothing of it is called taken over that a pipeline would refuse.
//!
//! What options mean is Debezium's documentation of its connectors and of "Outbox Event Router", and what version 3.6 was seen
//! to do.

mod connection;
mod converters;
mod expressions;
mod input;
mod known;
mod names;
mod router;
mod settings;
mod sink;
mod source;
mod transforms;
mod validated;
mod work;

use thiserror::Error;

use self::input::{Input, Platform};
use self::router::Outboxes;
use self::source::{Captured, Chosen};
use self::transforms::Transform;
use self::work::Work;
use super::Conversion;
use super::report::{Fate, Report};
use super::yaml::{Mapping, Node};

pub use input::InputError;

/// What a pipeline file begins with.
const HEAD: &str =
    "# Of a Debezium connector, by `tailpost convert`: behind a line stands the option that it comes from.\n";
const DECODER: &str = ".DecodeLogicalDecodingMessageContent";

/// What there is of a connector.
#[derive(Debug, Clone, Copy)]
pub struct Connector<'t> {
    /// Its file: JSON, properties or YAML.
    pub text: &'t str,
    /// The properties of the Connect worker that it runs in: its converters and its Kafka.
    pub worker: Option<&'t str>,
}

/// Why there is no pipeline file.
#[derive(Debug, Error)]
pub enum ConvertError {
    #[error(transparent)]
    Input(#[from] InputError),
    #[error("the worker's properties")]
    Worker(#[source] InputError),
    #[error("no `connector.class`: expected the configuration of one connector")]
    NoClass,
    #[error(
        "`{class}` is no connector that can be taken over: tailpost reads PostgreSQL, MySQL and MariaDB, so expected Debezium's \
         PostgresConnector, MySqlConnector or MariaDbConnector"
    )]
    OtherClass { class: String },
    #[error(
        "no event router among the transforms: expected one of type io.debezium.transforms.outbox.EventRouter. Changes of ordinary \
         tables are published by `tables` of a pipeline file written by hand"
    )]
    NoRouter,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Database {
    Postgres,
    Mysql,
    Mariadb,
}

impl Database {
    fn of_class(class: &str) -> Option<Self> {
        match class.rsplit('.').next()? {
            "PostgresConnector" | "PostgresCdcSource" | "PostgresCdcSourceV2" => Some(Self::Postgres),
            "MySqlConnector" | "MySqlCdcSource" | "MySqlCdcSourceV2" => Some(Self::Mysql),
            "MariaDbConnector" | "MariaDbCdcSource" => Some(Self::Mariadb),
            _ => None,
        }
    }

    fn source_type(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::Mysql => "mysql",
            Self::Mariadb => "mariadb",
        }
    }
}

/// Makes a pipeline file of a connector's configuration.
///
/// # Errors
/// When the text is none, or of a connector that does nothing that a pipeline does.
pub fn convert(connector: Connector<'_>) -> Result<Conversion, ConvertError> {
    let Input { platform, settings } = input::read(connector.text)?;
    let worker = connector.worker.map(input::read_worker).transpose();
    let mut work = Work {
        platform,
        settings,
        worker: worker.map_err(ConvertError::Worker)?,
        report: Report::default(),
    };
    let class = work.take("connector.class").ok_or(ConvertError::NoClass)?;
    let database = Database::of_class(&class.value).ok_or_else(|| ConvertError::OtherClass {
        class: class.value.clone(),
    })?;
    work.taken(&class.option, "spec.source.type");
    let chain = transforms::take(&mut work);
    let pipeline = pipeline(&mut work, database, chain)?;
    converters::finish(&mut work);
    known::finish(&mut work);
    let pipeline = format!("{HEAD}{}", pipeline.to_text());
    validated::tell(&mut work.report, &pipeline);
    Ok(Conversion {
        pipeline,
        report: work.report,
    })
}

/// Makes the file's parts, each with what belongs to it of the options.
fn pipeline(work: &mut Work, database: Database, chain: Vec<Transform>) -> Result<Mapping, ConvertError> {
    let prefix = Prefix::take(work);
    let metadata = metadata(work, &prefix);
    let Chain {
        routers,
        decoder,
        others,
    } = Chain::of(chain);
    if routers.is_empty() {
        return Err(ConvertError::NoRouter);
    }
    let mut formats = converters::formats(work);
    let decodes = decoder.is_some();
    if let Some(decoder) = decoder {
        formats.messages_keep_nulls = take_decoder(work, decoder);
    }
    let captured = Captured::take(work, database, decodes);
    let shares: Vec<Share> = routers
        .into_iter()
        .flat_map(|router| shares(work, &captured, &prefix, decodes, router))
        .collect();
    let chosen = chosen(work, &captured, &shares);
    let ordinary = !chosen.ordinary.is_empty();
    let source = source::source(
        work,
        database,
        (prefix.text.clone(), prefix.option.clone()),
        &captured,
        chosen,
    );
    let is_only = shares.len() == 1;
    let processors = shares.into_iter().map(|mut share| {
        let outboxes = Outboxes {
            database,
            are_messages: share.are_messages,
            chosen: (!is_only).then_some(share.patterns.as_slice()),
            formats: &formats,
        };
        let processor = router::processor(work, &mut share.router, &outboxes);
        tell_rest(work, share.router);
        processor
    });
    let processors = processors.collect();
    for other in others {
        tell_other(work, other);
    }
    let sink = sink::sink(work, ordinary.then_some((prefix.text.as_str(), database)));
    tell_of_all(work);
    let mut spec = Mapping::default();
    spec.set("source", Node::Mapping(source), "");
    spec.set("processors", Node::List(processors), "");
    spec.set("sinks", Node::List(vec![sink]), "");
    let mut root = Mapping::default();
    root.set("apiVersion", Node::text("tailpost/v1"), "");
    root.set("kind", Node::text("Pipeline"), "");
    root.set("metadata", Node::Mapping(metadata), "");
    root.set("spec", Node::Mapping(spec), "");
    Ok(root)
}

/// The logical name of the server, with which the connector's own topics begin.
struct Prefix {
    text: String,
    option: String,
}

impl Prefix {
    fn take(work: &mut Work) -> Self {
        match work.settings.take_any(&["topic.prefix", "database.server.name"]) {
            Some(given) => {
                work.taken(&given.option, "spec.source.config.id");
                Self {
                    text: given.value,
                    option: given.option,
                }
            }
            None => Self {
                text: "debezium".to_owned(),
                option: "topic.prefix, by default".to_owned(),
            },
        }
    }
}

/// The pipeline's name is the connector's.
fn metadata(work: &mut Work, prefix: &Prefix) -> Mapping {
    let (name, option) = match work.take("name") {
        Some(given) => (given.value, given.option),
        None => (prefix.text.clone(), prefix.option.clone()),
    };
    let ours = pipeline_name(&name);
    if ours == name {
        work.taken(&option, "metadata.name");
    } else {
        work.different(
            &option,
            format!("`{ours}`: a pipeline's name has a-z 0-9 . _ - alone, 63 at most"),
        );
    }
    let mut metadata = Mapping::default();
    metadata.set("name", Node::text(ours), option);
    metadata
}

fn pipeline_name(name: &str) -> String {
    let allowed = |c: char| match c.to_ascii_lowercase() {
        c if c.is_ascii_alphanumeric() || "._-".contains(c) => c,
        _ => '-',
    };
    let name: String = name.chars().map(allowed).collect();
    let name: String = name.trim_start_matches(['.', '_', '-']).chars().take(63).collect();
    match name.is_empty() {
        true => "outbox".to_owned(),
        false => name,
    }
}

/// A connector's transforms by what they are here.
#[derive(Default)]
struct Chain {
    routers: Vec<Transform>,
    decoder: Option<Transform>,
    others: Vec<Transform>,
}

impl Chain {
    fn of(transforms: Vec<Transform>) -> Self {
        let mut chain = Self::default();
        for transform in transforms {
            if transform.class.ends_with(router::CLASS) {
                chain.routers.push(transform);
            } else if transform.class.ends_with(DECODER) {
                chain.decoder = Some(transform);
            } else {
                chain.others.push(transform);
            }
        }
        chain
    }
}

/// What a router takes of one kind: messages, or rows.
struct Share {
    router: Transform,
    are_messages: bool,
    patterns: Vec<String>,
}

fn shares(work: &mut Work, captured: &Captured, prefix: &Prefix, decodes: bool, router: Transform) -> Vec<Share> {
    let mut shares = Vec::new();
    let predicate = router.predicate.as_ref();
    let messages = format!("{}.message", prefix.text);
    let takes_messages = decodes && predicate.is_none_or(|predicate| predicate.takes(&messages).unwrap_or(true));
    if takes_messages {
        shares.push(Share {
            router: router.clone(),
            are_messages: true,
            patterns: captured.prefixes.clone(),
        });
    }
    if takes_messages && captured.tables.is_empty() {
        return shares;
    }
    let tables = captured.tables_of(predicate, &prefix.text).unwrap_or_else(|| {
        if let Some(predicate) = predicate {
            work.not_possible(
                &predicate.option,
                format!(
                    "{}: nothing here can tell which tables that is. Taken for all; correct `outbox.tables` and `tables`",
                    predicate.described()
                ),
            );
        }
        captured.tables.clone()
    });
    let is_asked = tables.is_empty() && !takes_messages;
    if !tables.is_empty() || is_asked {
        let patterns = match is_asked {
            true => {
                let what = match captured.tables_option.is_empty() {
                    true => "the connector reads every table, and the file does not say which is the outbox",
                    false => "none of its tables can be named by a pattern, or the predicate takes none",
                };
                vec![work.ask("table.include.list", "OUTBOX_TABLE", what)]
            }
            false => tables,
        };
        shares.push(Share {
            router,
            are_messages: false,
            patterns,
        });
    }
    shares
}

/// Which tables are outboxes, and which ordinary ones beside them.
fn chosen(work: &mut Work, captured: &Captured, shares: &[Share]) -> Chosen {
    let patterns_of = |are_messages: bool| {
        let mut patterns: Vec<String> = Vec::new();
        for share in shares.iter().filter(|share| share.are_messages == are_messages) {
            let new = share.patterns.iter().filter(|pattern| !patterns.contains(pattern));
            let new: Vec<String> = new.cloned().collect();
            patterns.extend(new);
        }
        patterns
    };
    let outboxes = patterns_of(false);
    let is_name = |table: &&String| !table.contains(['*', '?', '$']);
    let ordinary = match outboxes.iter().all(|table| is_name(&table)) {
        true => captured
            .tables
            .iter()
            .filter(is_name)
            .filter(|table| !outboxes.contains(table))
            .cloned()
            .collect(),
        // What a pattern leaves is not for us to say.
        false => Vec::new(),
    };
    if !captured.tables_option.is_empty() && !captured.tables.is_empty() {
        let place = match ordinary.is_empty() {
            true => "spec.source.config.outbox.tables",
            false => "spec.source.config.outbox.tables and .tables",
        };
        work.taken(&captured.tables_option, place);
    }
    Chosen {
        outboxes,
        ordinary,
        prefixes: patterns_of(true),
    }
}

/// Whether its messages keep their null members.
fn take_decoder(work: &mut Work, mut decoder: Transform) -> bool {
    work.taken(&decoder.option, "spec.source.config.outbox.prefixes");
    work.different(
        &decoder.option,
        "a message that is no JSON object is the payload as a whole, and unroutable without a topic: there it stops the connector",
    );
    let keeps_nulls = decoder.settings.take("fields.null.include").is_some_and(|given| {
        work.taken(&given.option, "spec.processors[].drop_null_members");
        given.is("true")
    });
    tell_rest(work, decoder);
    keeps_nulls
}

/// Options of a transform that it is not known to have.
fn tell_rest(work: &mut Work, mut transform: Transform) {
    if let Some(predicate) = &transform.predicate {
        work.taken(&predicate.option, "spec.processors[].tables");
    }
    for (_, given) in transform.settings.take_rest() {
        work.unknown(&given.option);
    }
}

/// Transforms that do nothing here, by the end of their class.
const OTHER_TRANSFORMS: [(&str, &str); 8] = [
    (
        ".ByLogicalTableRouter",
        "write the topic that comes of it into `route.replacement`",
    ),
    (
        ".RegexRouter",
        "it renames the topics of the router: write the new names into `route.replacement`",
    ),
    (".TimestampRouter", "no topic has a time in its name"),
    (
        "InsertHeader",
        "no header has a fixed value: let a column have it, and place it by `additional_headers`",
    ),
    ("HeaderFrom$Value", "place the column by `additional_headers`"),
    ("HeaderFrom$Key", "place the column by `additional_headers`"),
    (
        "Filter",
        "leave out by a processor of type `filter`, in front of this one",
    ),
    ("ExtractNewRecordState", "outbox events need no unwrapping"),
];

fn tell_other(work: &mut Work, mut transform: Transform) {
    let class = transform.class.as_str();
    let remedy = OTHER_TRANSFORMS.iter().find(|(end, _)| class.ends_with(end));
    match remedy {
        Some((".ExtractNewRecordState" | "ExtractNewRecordState", why)) => work.not_needed(&transform.option, why),
        Some((_, remedy)) => work.not_possible(&transform.option, format!("{class}: {remedy}")),
        None => work.not_possible(
            &transform.option,
            format!(
                "{class} is not known here: what it does to records is to be done by the application, or the consumer"
            ),
        ),
    }
    for (_, given) in transform.settings.take_rest() {
        work.not_needed(&given.option, "see the transform that it belongs to");
    }
}

/// What holds for every connector.
fn tell_of_all(work: &mut Work) {
    let tolerance = work.take("errors.tolerance");
    match tolerance {
        Some(given) if given.is("all") => work.different(
            &given.option,
            "rows that fail are lost there. Here the pipeline halts at one: name a topic for them in `spec.dead_letter`, or write \
             `errors: {invalid: skip}`",
        ),
        Some(given) => work.taken(&given.option, "spec.errors, by default: halt"),
        None => {}
    }
    if let Some(given) = work.take("errors.deadletterqueue.topic.name") {
        work.not_possible(
            &given.option,
            "without effect there, where sources have no dead letters; here `spec.dead_letter` has",
        );
    }
    if work.platform == Platform::Connect {
        work.report.add(
            Fate::Different,
            "headers __debezium.context.*",
            "records do not have them: they differ with each start of a connector",
        );
    }
}
