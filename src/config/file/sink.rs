//! One of `spec.sinks`: which type of sink it is, and what other parts of the file must know of it.

use super::kafka::{self, Transactions};
use super::kind::{Kinds, require_kind};
use super::template::FixedTopic;
use super::{http, lines};
use crate::config::pipeline::Sink;
use crate::config::reader::{Field, Read, Reader, optional};

/// A sink, and what other parts of the file are held against, whatever else is wrong with it.
pub(super) struct SinkReading<'n> {
    pub(super) sink: Read<Sink>,
    pub(super) transactions: Transactions<'n>,
    pub(super) topic: Option<FixedTopic<'n>>,
    pub(super) kind: SinkKind,
    /// Whether the file says how often a delivery is tried.
    pub(super) says_attempts: bool,
    pub(super) whole: Field<'n>,
    /// What the file says of it.
    pub(super) required: Option<(Field<'n>, bool)>,
}

/// What a sink is to the rest of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SinkKind {
    /// It has topics, and can keep positions and dead letters.
    Kafka,
    /// It has no topics.
    Http,
    /// It writes topics down.
    Lines,
}

pub(super) fn read<'n>(reader: &mut Reader<'_>, field: &Field<'n>, pipeline: &str) -> Read<SinkReading<'n>> {
    #[derive(Clone, Copy)]
    enum Type {
        Kafka,
        Http,
        File,
        Stdout,
    }
    let mut mapping = reader.mapping(field)?;
    let kinds = Kinds {
        here: &[
            ("kafka", Type::Kafka),
            ("http", Type::Http),
            ("file", Type::File),
            ("stdout", Type::Stdout),
        ],
        later: &[],
        elsewhere: &["redis", "nats", "s3", "clickhouse", "elasticsearch"],
    };
    let kind = require_kind(reader, &mut mapping, "sink type", &kinds);
    let config = reader.require(&mut mapping, "config", "a mapping with the sink's keys");
    reader.finish(mapping);
    kind.read(|kind| {
        let config = config?;
        let mut mapping = reader.mapping(&config)?;
        // Of no type in particular.
        let required = optional(mapping.take("required"), |field| {
            Ok((field.clone(), reader.boolean(field)?))
        });
        let about = About {
            whole: field.clone(),
            required: required?,
        };
        match kind.unwrap_or(Type::Kafka) {
            Type::Kafka => kafka::read(reader, mapping, about, pipeline),
            Type::Http => {
                let http = http::read(reader, mapping);
                let says_attempts = http.as_ref().is_ok_and(|http| http.says_attempts);
                let sink = http.map(|reading| Sink::Http(Box::new(reading.http)));
                Ok(SinkReading {
                    says_attempts,
                    ..about.without_transactions(sink, SinkKind::Http)
                })
            }
            Type::File => {
                let sink = lines::read_file(reader, mapping).map(Sink::File);
                Ok(about.without_transactions(sink, SinkKind::Lines))
            }
            Type::Stdout => {
                let sink = lines::read_stdout(reader, mapping).map(Sink::Stdout);
                Ok(about.without_transactions(sink, SinkKind::Lines))
            }
        }
    })
}

/// What is the same for sinks of all types.
pub(super) struct About<'n> {
    pub(super) whole: Field<'n>,
    pub(super) required: Option<(Field<'n>, bool)>,
}

impl<'n> About<'n> {
    fn without_transactions(self, sink: Read<Sink>, kind: SinkKind) -> SinkReading<'n> {
        SinkReading {
            sink,
            transactions: Transactions::none(),
            topic: None,
            kind,
            says_attempts: false,
            whole: self.whole,
            required: self.required,
        }
    }
}

impl SinkReading<'_> {
    pub(super) fn is_required(&self) -> bool {
        self.required.as_ref().is_none_or(|(_, required)| *required)
    }
}
