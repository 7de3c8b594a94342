//! `spec.sinks`: which type of sink there is, and what other parts of the file must know of it.

use super::kafka::{self, Transactions};
use super::kind::{Kinds, require_kind};
use super::template::FixedTopic;
use super::{http, lines};
use crate::config::error::Problem;
use crate::config::pipeline::Sink;
use crate::config::reader::{Field, Read, Reader};

/// A sink, and what other parts of the file are held against, whatever else is wrong with it.
pub(super) struct SinkReading<'n> {
    pub(super) sink: Read<Sink>,
    pub(super) transactions: Transactions<'n>,
    pub(super) topic: Option<FixedTopic<'n>>,
    pub(super) kind: SinkKind,
    /// Whether the file says how often a delivery is tried.
    pub(super) says_attempts: bool,
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
    let items = reader.list(field)?;
    let sinks: Vec<_> = items.iter().map(|item| read_sink(reader, item, pipeline)).collect();
    if let Some(second) = items.get(1) {
        let what = "more than one sink".to_owned();
        return Err(reader.report(second, Problem::NotYet { what, remedy: None }));
    }
    sinks
        .into_iter()
        .next()
        .unwrap_or_else(|| Err(reader.unexpected(field, "one sink", "an empty list".to_owned())))
}

fn read_sink<'n>(reader: &mut Reader<'_>, field: &Field<'n>, pipeline: &str) -> Read<SinkReading<'n>> {
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
        match kind.unwrap_or(Type::Kafka) {
            Type::Kafka => kafka::read(reader, &config, pipeline),
            Type::Http => {
                let http = http::read(reader, &config);
                let says_attempts = http.as_ref().is_ok_and(|http| http.says_attempts);
                let sink = http.map(|reading| Sink::Http(Box::new(reading.http)));
                Ok(SinkReading {
                    says_attempts,
                    ..SinkReading::without_transactions(sink, SinkKind::Http)
                })
            }
            Type::File => {
                let sink = lines::read_file(reader, &config).map(Sink::File);
                Ok(SinkReading::without_transactions(sink, SinkKind::Lines))
            }
            Type::Stdout => {
                let sink = lines::read_stdout(reader, &config).map(Sink::Stdout);
                Ok(SinkReading::without_transactions(sink, SinkKind::Lines))
            }
        }
    })
}

impl SinkReading<'_> {
    fn without_transactions(sink: Read<Sink>, kind: SinkKind) -> Self {
        Self {
            sink,
            transactions: Transactions::none(),
            topic: None,
            kind,
            says_attempts: false,
        }
    }
}
