//! `spec.sinks` and `spec.commit_policy`: which sink leads, and which of them the position waits for.

use super::kafka::Transactions;
use super::sink::{self, SinkKind, SinkReading};
use crate::config::error::Problem;
use crate::config::pipeline::{CommitPolicy, Sink};
use crate::config::reader::{Field, Read, Reader, Reported, optional};

/// Each has a producer or a client of its own, and a part of the memory.
pub(in crate::config) const MOST_SINKS: i64 = 16;

/// All sinks, whatever else is wrong with them.
pub(super) struct SinksReading<'n> {
    pub(super) leading: SinkReading<'n>,
    pub(super) further: Vec<SinkReading<'n>>,
    pub(super) policy: Read<CommitPolicy>,
}

impl<'n> SinksReading<'n> {
    pub(super) fn all(&self) -> impl Iterator<Item = &SinkReading<'n>> {
        std::iter::once(&self.leading).chain(&self.further)
    }

    /// Whether one cluster has them all, as far as that can be told.
    pub(super) fn are_of_one_cluster(&self) -> bool {
        let brokers = |sink: &SinkReading<'_>| match &sink.sink {
            Ok(Sink::Kafka(kafka)) => Some(kafka.brokers.clone()),
            _ => None,
        };
        let leading = brokers(&self.leading);
        self.all().all(|sink| {
            let own = brokers(sink);
            sink.kind == SinkKind::Kafka && (own.is_none() || leading.is_none() || own == leading)
        })
    }

    /// What the file says of the transactions of the sink that leads.
    pub(super) fn transactions(&self) -> &Transactions<'n> {
        &self.leading.transactions
    }
}

/// What `commit_policy` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    All,
    Required,
    Quorum(usize),
}

/// `pipeline` is its name, or empty where that is wrong; `policy` the field of `commit_policy`.
pub(super) fn read<'n>(
    reader: &mut Reader<'_>,
    field: &Field<'n>,
    policy: Option<Field<'n>>,
    pipeline: &str,
) -> Read<SinksReading<'n>> {
    let items = reader.list(field)?;
    let sinks: Vec<_> = items.iter().map(|item| sink::read(reader, item, pipeline)).collect();
    let mode = read_mode(reader, policy.as_ref(), items.len());
    let sinks: Vec<SinkReading<'n>> = sinks.into_iter().collect::<Result<_, Reported>>()?;
    check_ids(reader, &sinks);
    let policy = mode.and_then(|mode| check_required(reader, mode, policy.as_ref(), &sinks));
    let waited_for = |sink: &SinkReading<'_>| !matches!(policy, Ok(CommitPolicy::Required)) || sink.is_required();
    let of_kafka = |sink: &SinkReading<'_>| waited_for(sink) && sink.kind == SinkKind::Kafka;
    let leading = sinks.iter().position(of_kafka);
    let leading = leading.or_else(|| sinks.iter().position(waited_for)).unwrap_or(0);
    let mut further = sinks;
    if further.is_empty() || items.len() > MOST_SINKS as usize {
        let found = match items.len() {
            0 => "an empty list".to_owned(),
            many => format!("{many} sinks"),
        };
        return Err(reader.unexpected(field, format!("1 to {MOST_SINKS} sinks"), found));
    }
    let reading = SinksReading {
        leading: further.remove(leading),
        further,
        policy,
    };
    check_transactions(reader, &reading);
    Ok(reading)
}

fn read_mode(reader: &mut Reader<'_>, field: Option<&Field<'_>>, sinks: usize) -> Read<Mode> {
    let Some(field) = field else {
        return Ok(Mode::Required);
    };
    if sinks < 2 {
        match reader.is_deltaforge() {
            true => reader.note(field, "accepted without effect: there is one sink"),
            false => {
                let message = "has no effect with one sink: remove it".to_owned();
                reader.report_key(field, Problem::Refused { message });
            }
        }
        return Ok(Mode::Required);
    }
    let mut mapping = reader.mapping(field)?;
    #[derive(Clone, Copy, PartialEq)]
    enum Word {
        All,
        Required,
        Quorum,
    }
    let word = reader
        .require(&mut mapping, "mode", "`all`, `required` or `quorum`")
        .and_then(|field| {
            let words = [
                ("all", Word::All),
                ("required", Word::Required),
                ("quorum", Word::Quorum),
            ];
            reader.word(&field, &words)
        });
    let size_field = mapping.take("quorum");
    let size = optional(size_field.clone(), |field| reader.integer(field, 1..=MOST_SINKS));
    reader.finish(mapping);
    match (word?, size_field, size?) {
        (Word::All, None, _) => Ok(Mode::All),
        (Word::Required, None, _) => Ok(Mode::Required),
        (Word::All | Word::Required, Some(field), _) => {
            let message = "has no effect without `mode: quorum`: remove it".to_owned();
            Err(reader.report_key(&field, Problem::Refused { message }))
        }
        (Word::Quorum, Some(field), Some(size)) => match usize::try_from(size) {
            Ok(size) if size <= sinks => Ok(Mode::Quorum(size)),
            _ => Err(reader.unexpected(
                &field,
                format!("at most {sinks}, as many as there are sinks"),
                size.to_string(),
            )),
        },
        (Word::Quorum, ..) => {
            let message = format!("`mode: quorum` needs `quorum: N`: how many of the {sinks} sinks must have an event");
            Err(reader.refuse(field, message))
        }
    }
}

fn check_ids(reader: &mut Reader<'_>, sinks: &[SinkReading<'_>]) {
    let id = |sink: &SinkReading<'_>| sink.sink.as_ref().ok().map(|sink| sink.id().to_owned());
    for (index, second) in sinks.iter().enumerate() {
        let Some(second_id) = id(second) else { continue };
        let before = &sinks[..index];
        if before.iter().any(|first| id(first).as_ref() == Some(&second_id)) {
            let message = format!("the id `{second_id}` is also that of a sink before it: expected distinct ones");
            reader.refuse(&second.whole, message);
        }
        if let Some(place) = before.iter().find_map(|first| same_lines(first, second)) {
            let message = format!("a sink before it writes to {place} too: expected one sink for it");
            reader.refuse(&second.whole, message);
        }
    }
}

/// Where both write lines, if that is one place.
fn same_lines(first: &SinkReading<'_>, second: &SinkReading<'_>) -> Option<String> {
    match (&first.sink, &second.sink) {
        (Ok(Sink::File(first)), Ok(Sink::File(second))) if first.path == second.path => {
            Some(format!("file `{}`", second.path.display()))
        }
        (Ok(Sink::Stdout(_)), Ok(Sink::Stdout(_))) => Some("standard output".to_owned()),
        _ => None,
    }
}

/// The policy, if the sinks go with it.
fn check_required(
    reader: &mut Reader<'_>,
    mode: Mode,
    policy: Option<&Field<'_>>,
    sinks: &[SinkReading<'_>],
) -> Read<CommitPolicy> {
    let mut reported = None;
    for sink in sinks {
        let Some((field, required)) = &sink.required else {
            continue;
        };
        let message = match mode {
            Mode::All if !required => {
                "clashes with `commit_policy: {mode: all}`, by which the position waits for each sink"
            }
            Mode::Quorum(_) => {
                "has no effect with `commit_policy: {mode: quorum}`, by which any of the sinks count: remove it"
            }
            _ => continue,
        };
        let message = message.to_owned();
        reported = Some(reader.report_key(field, Problem::Refused { message }));
    }
    if mode == Mode::Required && sinks.iter().all(|sink| !sink.is_required()) {
        let message = "no sink is required, so that nothing would make sure of any event: expected at least one without \
                       `required: false`, or `commit_policy: {mode: quorum, quorum: 1}`";
        let field = sinks
            .iter()
            .find_map(|sink| sink.required.as_ref())
            .map(|(field, _)| field);
        if let Some(field) = field.or(policy) {
            reported = Some(reader.report_key(
                field,
                Problem::Refused {
                    message: message.to_owned(),
                },
            ));
        }
    }
    match (reported, mode) {
        (Some(reported), _) => Err(reported),
        (None, Mode::All | Mode::Required) => Ok(CommitPolicy::Required),
        (None, Mode::Quorum(size)) => Ok(CommitPolicy::Quorum(size)),
    }
}

/// A position that is in the transactions of one sink cannot wait for another.
fn check_transactions(reader: &mut Reader<'_>, sinks: &SinksReading<'_>) {
    for sink in &sinks.further {
        if matches!(sink.transactions.exactly_once, Ok(true)) {
            let message = "`exactly_once: true` of a sink that does not lead: the position is in the transactions of one sink, \
                           the first of type `kafka` that is required";
            reader.refuse(&sink.whole, message);
        } else {
            for field in &sink.transactions.dependent {
                let message =
                    "has no effect: no record of this sink is sent in a transaction, and the position is kept by the \
                               first sink of type `kafka`: remove it"
                        .to_owned();
                reader.report_key(field, Problem::Refused { message });
            }
        }
    }
    if !matches!(sinks.transactions().exactly_once, Ok(true)) {
        return;
    }
    if let Ok(CommitPolicy::Quorum(_)) = sinks.policy {
        let message = "`exactly_once: true` clashes with `commit_policy: {mode: quorum}`: the position is in the transactions of \
                       this sink, whatever the others have";
        reader.refuse(&sinks.leading.whole, message);
        return;
    }
    for sink in sinks.further.iter().filter(|sink| sink.is_required()) {
        let message = "clashes with `exactly_once: true` of another sink, whose transactions move the position without waiting \
                       for this one: write `required: false`, or give it a pipeline of its own";
        reader.refuse(&sink.whole, message);
    }
}
