//! What becomes of a change event before a sink is given it: a record, a skip that is counted, or an error for the
//! pipeline's policy.
//!
//! [`Chain`] is the whole way: the pipeline's processors in the file's order, then what the sink itself asks of an event
//! that none of them took (`table`). Everything here is pure and synchronous, with no clock: the same event gives the
//! same record on every delivery, to the byte.

#[cfg(feature = "bench")]
pub mod bench;
mod dead_letter;
mod envelope;
mod error;
mod field;
mod filter;
mod json;
mod mask;
mod ordering;
mod outbox;
mod place;
mod subject;
mod table;
mod template;
mod topic;
mod unknown;
mod url;
mod validate;

use std::collections::HashMap;
use std::sync::Arc;

pub(crate) use dead_letter::letter_headers;
pub use dead_letter::{DeadLetterReason, DeadLetters, Unparkable};
pub use error::{ErrorKind, Outline, Problem, ProcessError, Remedy};
pub(crate) use json::is_value as is_json_text;
pub use outbox::Outbox;
pub(crate) use unknown::UnknownColumn;

use crate::config::SchemaRegistry;
use crate::config::pipeline::{self, Pipeline};
use crate::config::template::Template;
use crate::event::{Change, ChangeEvent, Selection};
use crate::position::Position;
use crate::record::Record;
use crate::schema_registry::{Answer, Question};
use crate::sequences::Sequences;
use crate::skip::SkipReason;
use envelope::Envelope;
use filter::Filter;
use mask::Mask;
use table::TableEvents;
use validate::{SequenceFaults, Validate};

/// One step of a pipeline between its source and its sink.
pub trait Processor: Send + 'static {
    /// Takes the event or passes it on.
    ///
    /// # Errors
    /// The event is the processor's, and no record can be made of it. The processor itself is as good as before.
    fn process(&mut self, event: ChangeEvent) -> Result<Step, ProcessError>;
}

/// What a processor did with an event.
#[derive(Debug)]
pub enum Step {
    /// Took it; no later processor sees it.
    Done(Outcome),
    /// Left it for the next.
    Pass(ChangeEvent),
    /// Needs a schema first, and is to be given it again then.
    Wait(ChangeEvent),
}

/// What an event became.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    Publish(Record),
    Skip(SkipReason),
    /// Nothing yet: its schema is to be fetched, and no other event is processed before it.
    Wait,
}

/// A pipeline's processors, and the sink's own wishes behind them.
#[derive(Debug)]
pub struct Chain {
    links: Vec<Link>,
    tables: TableEvents,
    /// An event that waits for a schema, before this link.
    waiting: Option<(usize, ChangeEvent)>,
    /// What keeps the numbers of its sequences.
    sequences: Option<Arc<Sequences>>,
}

/// A processor of any type.
#[derive(Debug)]
enum Link {
    Outbox(Box<Outbox>),
    Filter(Box<Filter>),
    Mask(Box<Mask>),
    Validate(Box<Validate>),
}

impl Link {
    fn take_count(&mut self) -> (Arc<str>, u64) {
        match self {
            Self::Outbox(outbox) => outbox.take_count(),
            Self::Filter(filter) => filter.take_count(),
            Self::Mask(mask) => mask.take_count(),
            Self::Validate(validate) => validate.take_count(),
        }
    }

    /// What can be told of the record that it would have made of an event that did not come so far. None: it would not have
    /// taken it.
    fn outline(&mut self, event: &ChangeEvent) -> Option<Outline> {
        match self {
            Self::Outbox(outbox) => outbox.outline_of(event),
            Self::Filter(_) | Self::Mask(_) | Self::Validate(_) => None,
        }
    }
}

impl Processor for Link {
    #[inline]
    fn process(&mut self, event: ChangeEvent) -> Result<Step, ProcessError> {
        match self {
            Self::Outbox(outbox) => outbox.process(event),
            Self::Filter(filter) => filter.process(event),
            Self::Mask(mask) => mask.process(event),
            Self::Validate(validate) => validate.process(event),
        }
    }
}

/// What a sink asks of the records that it is given.
struct SinkWishes<'a> {
    /// The source that events come from, by its name in the file.
    source_id: &'a str,
    /// Whether changes of ordinary tables come beside outbox events.
    has_tables: bool,
    target: SinkTarget<'a>,
    /// For records that bring no key of their own.
    key: Option<&'a Template>,
    /// None: nothing is to be known of an event but what is sent.
    about: Option<&'a pipeline::Ordering>,
    /// What else is to be known then.
    audited: &'a [(String, Template)],
}

/// Where a sink's records go.
enum SinkTarget<'a> {
    /// To topics, by default to this one.
    Topic(Option<&'a Template>),
    Url(&'a Template),
}

impl<'a> SinkWishes<'a> {
    fn new(source_id: &'a str, sink: &'a pipeline::Sink, dead_letter: Option<&pipeline::DeadLetter>) -> Self {
        let target = match sink {
            pipeline::Sink::Kafka(kafka) => SinkTarget::Topic(kafka.topic.as_ref()),
            pipeline::Sink::File(pipeline::File { lines, .. }) | pipeline::Sink::Stdout(lines) => {
                SinkTarget::Topic(Some(&lines.topic))
            }
            pipeline::Sink::Http(http) => SinkTarget::Url(&http.url),
        };
        let parks_in_file = dead_letter.is_some_and(|dead_letter| dead_letter.topic().is_none());
        let about = match sink {
            pipeline::Sink::Http(http) => Some(&http.ordering),
            _ => parks_in_file.then_some(&pipeline::Ordering::Unordered),
        };
        Self {
            source_id,
            has_tables: false,
            target,
            key: sink.key(),
            about,
            audited: &[],
        }
    }

    /// The same, of a pipeline that may write down what becomes of events.
    fn of_pipeline(pipeline: &'a Pipeline) -> Self {
        let mut wishes = Self::new(pipeline.source.id(), &pipeline.sink, pipeline.dead_letter.as_ref());
        wishes.has_tables = pipeline.source.selects_tables();
        if pipeline.audit.is_some() || pipeline.dispatches.is_some() {
            wishes.about.get_or_insert(&pipeline::Ordering::Unordered);
        }
        if let Some(audit) = &pipeline.audit {
            wishes.audited = &audit.fields;
        }
        wishes
    }
}

impl Chain {
    pub fn new(pipeline: &Pipeline) -> Self {
        let wishes = SinkWishes::of_pipeline(pipeline);
        Self::between(&pipeline.processors, &wishes, pipeline.sink.envelope())
    }

    fn between(processors: &[pipeline::Processor], wishes: &SinkWishes<'_>, envelope: &pipeline::Envelope) -> Self {
        let source_id = wishes.source_id;
        let envelope = Envelope::new(envelope, source_id);
        let links = processors.iter().map(|processor| match processor {
            pipeline::Processor::Outbox(config) => {
                Link::Outbox(Box::new(Outbox::new(config, wishes, envelope.clone())))
            }
            pipeline::Processor::Filter(config) => Link::Filter(Box::new(Filter::new(config, source_id))),
            pipeline::Processor::Mask(config) => Link::Mask(Box::new(Mask::new(config))),
            pipeline::Processor::Validate(config) => Link::Validate(Box::new(Validate::new(config))),
        });
        Self {
            links: links.collect(),
            tables: TableEvents::new(wishes, envelope),
            waiting: None,
            sequences: None,
        }
    }

    /// Goes on with the numbers that are kept of a sink's sequences. Reads a file.
    pub(crate) fn keep_sequences(&mut self, sequences: Arc<Sequences>, sink: &str) {
        let mut of_id: HashMap<Arc<str>, usize> = HashMap::new();
        for link in &mut self.links {
            let Link::Validate(validate) = link else { continue };
            let Some((id, rule)) = validate.sequence() else {
                continue;
            };
            let count = of_id.entry(Arc::clone(id)).or_default();
            *count += 1;
            // Those without an id of their own have one together.
            let name = match *count {
                1 => id.to_string(),
                count => format!("{id}#{count}"),
            };
            rule.keep(sequences.numbers(sink, &name, rule.max_aggregates()));
        }
        self.sequences = Some(sequences);
    }

    /// Writes the numbers of its sequences, before a commit of this position.
    pub(crate) fn write_sequences(&self, position: &Position) {
        if let Some(sequences) = &self.sequences {
            sequences.write(position);
            // The next commit is made when this one has gone through.
            sequences.saved(position);
        }
    }

    /// Each processor's id with the numbers out of sequence that it saw since this was last called.
    pub(crate) fn take_sequence_faults(&mut self) -> impl Iterator<Item = (Arc<str>, SequenceFaults)> {
        self.links.iter_mut().filter_map(|link| match link {
            Link::Validate(validate) => {
                let (id, rule) = validate.sequence()?;
                let faults = rule.take_faults();
                (!faults.counts.is_empty()).then(|| (Arc::clone(id), faults))
            }
            Link::Outbox(_) | Link::Filter(_) | Link::Mask(_) => None,
        })
    }

    /// Columns that are asked for and that a table turned out not to have since this was last called, with who asks and
    /// what that means.
    pub(crate) fn take_unknown_columns(
        &mut self,
    ) -> impl Iterator<Item = (Arc<str>, &'static str, Vec<UnknownColumn>)> {
        let of_links = self.links.iter_mut().filter_map(|link| match link {
            Link::Mask(mask) => {
                let (id, columns) = mask.take_unknown_columns();
                Some((
                    id,
                    "a rule of a mask changes nothing: the table has no such column",
                    columns,
                ))
            }
            Link::Filter(filter) => {
                let (id, columns) = filter.take_unknown_columns();
                let text = "a filter's condition finds no value in any row of the table: it has no such column";
                Some((id, text, columns))
            }
            Link::Outbox(_) | Link::Validate(_) => None,
        });
        let of_sink = self.tables.take_unknown_columns();
        let text = "the sink's template of a key finds nothing in any row of the table: it has no such column";
        of_links.chain([(Arc::from("sink"), text, of_sink)])
    }

    /// Each processor's id with the events that it took since this was last called.
    pub fn take_counts(&mut self) -> impl Iterator<Item = (Arc<str>, u64)> {
        self.links.iter_mut().map(Link::take_count)
    }

    /// Makes of one event what the pipeline's file says.
    ///
    /// # Errors
    /// No record can be made of this event; the next can be processed all the same.
    pub fn process(&mut self, event: ChangeEvent) -> Result<Outcome, ProcessError> {
        self.process_from(0, event)
    }

    /// The event that waits for a schema.
    pub(crate) fn waiting(&self) -> Option<&ChangeEvent> {
        self.waiting.as_ref().map(|(_, event)| event)
    }

    /// What it waits for; none: it was answered, and the event can go on.
    pub(crate) fn question(&self) -> Option<&Question> {
        let (index, _) = self.waiting.as_ref()?;
        match self.links.get(*index)? {
            Link::Validate(validate) => validate.question(),
            Link::Outbox(_) | Link::Filter(_) | Link::Mask(_) => None,
        }
    }

    /// Answers that question.
    pub(crate) fn answer(&mut self, answer: Answer) {
        if let Some((index, _)) = self.waiting
            && let Some(Link::Validate(validate)) = self.links.get_mut(index)
        {
            validate.answer(answer);
        }
    }

    /// Goes on with the event that waits, as [`Chain::process`] does. None: there is none.
    pub(crate) fn go_on(&mut self) -> Option<Result<Outcome, ProcessError>> {
        let (index, event) = self.waiting.take()?;
        Some(self.process_from(index, event))
    }

    /// Lets go of it.
    pub(crate) fn let_go(&mut self) {
        self.waiting = None;
    }

    /// Where schemas are fetched from.
    pub(crate) fn schema_registries(&self) -> Vec<Arc<SchemaRegistry>> {
        let registries = self.links.iter().filter_map(|link| match link {
            Link::Validate(validate) => validate.registry(),
            Link::Outbox(_) | Link::Filter(_) | Link::Mask(_) => None,
        });
        registries.cloned().collect()
    }

    /// Answers that can change are to be asked for again.
    pub(crate) fn age_schemas(&mut self) {
        for link in &mut self.links {
            if let Link::Validate(validate) = link {
                validate.age_schemas();
            }
        }
    }

    fn process_from(&mut self, first: usize, mut event: ChangeEvent) -> Result<Outcome, ProcessError> {
        for index in first..self.links.len() {
            match self.links[index].process(event) {
                Ok(Step::Done(outcome)) => return Ok(outcome),
                Ok(Step::Pass(passed)) => event = passed,
                Ok(Step::Wait(event)) => {
                    self.waiting = Some((index, event));
                    return Ok(Outcome::Wait);
                }
                Err(error) => return Err(self.outlined(error, index)),
            }
        }
        self.untaken(&event).map_err(|problem| {
            let outline = self.untaken_outline(&event);
            ProcessError::new(event, problem, outline)
        })
    }

    /// An error with what can be told of the record, where a processor refused an event that another would have made it of.
    #[cold]
    fn outlined(&mut self, mut error: ProcessError, index: usize) -> ProcessError {
        if let Some(Link::Mask(_) | Link::Validate(_)) = self.links.get(index) {
            let event = &error.change;
            let outline = self.links[index..].iter_mut().find_map(|link| link.outline(event));
            *error.outline = outline.unwrap_or_else(|| self.untaken_outline(&error.change));
        }
        error
    }

    fn untaken_outline(&mut self, event: &ChangeEvent) -> Outline {
        match (&event.change, event.selection) {
            (Change::Row(row), Selection::Table) => self.tables.outline(event, row),
            // Which fields it has is for its processor to say.
            _ => Outline::default(),
        }
    }

    fn untaken(&mut self, event: &ChangeEvent) -> Result<Outcome, Problem> {
        match (&event.change, event.selection) {
            (Change::Oversized(oversized), _) => Err(Problem::Oversized {
                name: oversized.origin.name().to_owned(),
                bytes: oversized.bytes,
                limit: oversized.limit,
            }),
            (Change::Row(row), Selection::Table) => self.tables.record(event, row).map(Outcome::Publish),
            (Change::Row(row), Selection::Outbox) => SkipReason::of_outbox_row(row.operation)
                .map(Outcome::Skip)
                .ok_or(Problem::NotTaken),
            (Change::Message(_), _) => Err(Problem::NotTaken),
        }
    }
}

#[cfg(test)]
mod sample;
#[cfg(test)]
mod tests;
