//! A Debezium connector's configuration, of Kafka Connect or Debezium Server, as a pipeline file.
//!
//! The way of a file: `input` reads it into options by the names that a connector knows; `transforms` takes the chain, of which
//! the event routers become processors (`router`) and the rest is told; `source`, `connection`, `converters` and `sink` take
//! theirs; `known` explains what needs nothing here; what is left then is unknown, and said to be. At the end `validated` reads
//! what was written as `tailpost validate` does, so that nothing of it is called taken over that a pipeline would refuse.
//!
//! Much depends on whether ordinary tables are captured beside the outboxes (`captured`): most options do nothing to an outbox's
//! events, and all to other rows.
//!
//! What options mean is Debezium's documentation of its connectors and of "Outbox Event Router", and what version 3.6 was seen
//! to do.

mod captured;
mod connection;
mod converters;
mod expressions;
mod input;
mod java;
mod known;
mod names;
mod others;
mod placed;
mod router;
mod settings;
mod sink;
mod source;
mod transforms;
mod validated;
mod work;

use thiserror::Error;

use self::captured::Captured;
use self::input::{Input, Platform};
use self::router::Outboxes;
use self::settings::Given;
use self::source::Chosen;
use self::transforms::Transform;
use self::work::Work;
use super::Conversion;
use super::report::{Fate, Report};
use super::yaml::{Mapping, Node};

pub use input::InputError;

/// What a pipeline file begins with.
const HEAD: &str =
    "# Of a Debezium connector, by `tailpost convert`: behind a line stands the option that it comes from.\n";
const DECODER: &str = "io.debezium.connector.postgresql.transforms.DecodeLogicalDecodingMessageContent";

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
        has_ordinary: false,
        has_placed: false,
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
        tracer,
        others,
    } = Chain::of(chain);
    if routers.is_empty() {
        return Err(ConvertError::NoRouter);
    }
    work.has_placed = routers.iter().any(Transform::places_columns);
    let mut formats = converters::formats(work);
    let decodes = decoder.is_some();
    if let Some(decoder) = decoder {
        formats.messages_keep_nulls = take_decoder(work, decoder);
    }
    let trace = tracer.map(|tracer| others::take_tracer(work, tracer));
    let captured = Captured::take(work, database, decodes);
    let takes_all = routers.iter().any(|router| router.predicate.is_none());
    let shares: Vec<Share> = routers
        .into_iter()
        .flat_map(|router| shares(work, &captured, &prefix, decodes, router))
        .collect();
    let chosen = chosen(work, database, &captured, &shares, takes_all);
    work.has_ordinary = !chosen.ordinary.is_empty();
    let has_outbox_tables = !chosen.outboxes.is_empty();
    let id = (work.value(&prefix.given), prefix.given.option.clone());
    let source = source::source(work, database, id, &captured, chosen);
    let is_only = shares.len() == 1;
    let mut processors: Vec<Mapping> = others::take_skipped(work, has_outbox_tables).into_iter().collect();
    for mut share in shares {
        let outboxes = Outboxes {
            database,
            are_messages: share.are_messages,
            chosen: (!is_only).then_some(share.patterns.as_slice()),
            formats: &formats,
            trace: trace.as_ref(),
        };
        processors.push(router::processor(work, &mut share.router, &outboxes));
        others::tell_rest(work, share.router);
    }
    for other in others {
        others::tell(work, other);
    }
    let sink = sink::sink(work, work.has_ordinary.then_some((&prefix.given, database)));
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
    given: Given,
}

impl Prefix {
    fn take(work: &mut Work) -> Self {
        let given = work.settings.take_any(&["topic.prefix", "database.server.name"]);
        if let Some(given) = &given {
            work.taken(&given.option, "spec.source.config.id");
        }
        // Before version 2 it was called so.
        if let Some(old) = work.take("database.server.name") {
            work.not_needed(&old.option, "topic.prefix stands above it");
        }
        Self {
            given: given.unwrap_or_else(|| Given {
                option: "topic.prefix, by default".to_owned(),
                value: "debezium".to_owned(),
            }),
        }
    }
}

/// The pipeline's name is the connector's.
fn metadata(work: &mut Work, prefix: &Prefix) -> Mapping {
    let given = work.take("name").unwrap_or_else(|| prefix.given.clone());
    let (name, option) = (work.value(&given), given.option);
    let ours = match name.contains("${") {
        true => name.clone(),
        false => pipeline_name(&name),
    };
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
    /// What makes spans of a row's context.
    tracer: Option<Transform>,
    others: Vec<Transform>,
}

impl Chain {
    fn of(transforms: Vec<Transform>) -> Self {
        let mut chain = Self::default();
        for transform in transforms {
            match transform.class.as_str() {
                router::CLASS => chain.routers.push(transform),
                DECODER => chain.decoder = Some(transform),
                others::TRACER => chain.tracer = Some(transform),
                _ => chain.others.push(transform),
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
    let messages = format!("{}{}message", prefix.given.value, captured.delimiter);
    let takes_messages = decodes && predicate.is_none_or(|predicate| predicate.takes(&messages).unwrap_or(true));
    if takes_messages {
        shares.push(Share {
            router: router.clone(),
            are_messages: true,
            patterns: captured.prefixes.clone(),
        });
    }
    if takes_messages && (captured.tables.is_empty() || (captured.is_every_table && predicate.is_none())) {
        if !captured.tables.is_empty() {
            work.different(
                "table.include.list, by default",
                "rows of tables, which the router there takes too, are not read: name outboxes in `outbox.tables`",
            );
        }
        return shares;
    }
    let tables = captured.tables_of(predicate, &prefix.given.value).unwrap_or_else(|| {
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
    let is_everything = predicate.is_none() && captured.is_every_table;
    let is_told = !is_everything && !tables.is_empty();
    let is_asked = !is_told && !takes_messages;
    if is_told || is_asked {
        let patterns = match is_asked {
            true => {
                let what = match is_everything {
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

/// Which tables are outboxes, and which ordinary ones beside them. `takes_all`: a router takes whatever is captured.
fn chosen(work: &mut Work, database: Database, captured: &Captured, shares: &[Share], takes_all: bool) -> Chosen {
    let patterns_of = |are_messages: bool| {
        let mut patterns: Vec<String> = Vec::new();
        for share in shares.iter().filter(|share| share.are_messages == are_messages) {
            let new = share.patterns.iter().filter(|pattern| !patterns.contains(pattern));
            let new: Vec<String> = new.cloned().collect();
            patterns.extend(new);
        }
        patterns
    };
    let (outboxes, prefixes) = (patterns_of(false), patterns_of(true));
    let ordinary = match takes_all {
        true => Vec::new(),
        false => captured.beside(&outboxes),
    };
    let option = match captured.tables_option.is_empty() {
        true => "table.include.list, by default",
        false => &captured.tables_option,
    };
    if captured.is_every_table && !ordinary.is_empty() {
        let own = match database {
            Database::Postgres => "",
            Database::Mysql | Database::Mariadb => ", with those of the server's own schemas such as `mysql`",
        };
        work.different(
            option,
            format!(
                "changes of every table that no router takes are published there: so `tables` has `*.*` here{own}. Name those that \
                 are consumed, if they are few"
            ),
        );
    } else if !captured.tables_option.is_empty() && !captured.tables.is_empty() {
        let place = match ordinary.is_empty() {
            true => "spec.source.config.outbox.tables",
            false => "spec.source.config.outbox.tables and .tables",
        };
        work.taken(option, place);
    }
    let named: Vec<String> = outboxes.iter().chain(&ordinary).cloned().collect();
    captured::tell_of_case(work, database, option, &named);
    captured::tell_of_case(work, database, &captured.prefixes_option, &prefixes);
    Chosen {
        outboxes,
        ordinary,
        prefixes,
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
    others::tell_rest(work, decoder);
    keeps_nulls
}

/// What holds for every connector.
fn tell_of_all(work: &mut Work) {
    let tolerance = work.take("errors.tolerance");
    match tolerance {
        Some(given) if given.is("all") => work.different(
            &given.option,
            "rows that fail are lost there. Here the pipeline halts at one: name a topic for them in `spec.dead_letter`, or write \
             `errors: {invalid: skip, unroutable: skip}`",
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
