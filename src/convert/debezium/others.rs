//! Transforms beside the router, and the operations that a connector skips.

use super::settings::{Given, list};
use super::transforms::Transform;
use super::work::Work;
use crate::convert::report::Fate;
use crate::convert::yaml::{Mapping, Node};

pub(super) const TRACER: &str = "io.debezium.transforms.tracing.ActivateTracingSpan";
/// The column of a row's context, by default.
pub(super) const TRACE_COLUMN: &str = "tracingspancontext";

/// Transforms that do nothing here, by the end of their class.
const KNOWN: [(&str, &str); 8] = [
    (
        ".ByLogicalTableRouter",
        "write the topic that comes of it into `route.replacement`",
    ),
    (
        ".RegexRouter",
        "it renames topics: write the router's new names into `route.replacement`, and those of ordinary tables into the sink's `topic`",
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
    (
        ".EventRouter",
        "not Debezium's own router: what it does to records is to be written by hand",
    ),
];

/// Options of a transform that it is not known to have.
pub(super) fn tell_rest(work: &mut Work, mut transform: Transform) {
    if let Some(predicate) = &transform.predicate {
        work.taken(&predicate.option, "spec.processors[].tables");
    }
    for (_, given) in transform.settings.take_rest() {
        work.unknown(&given.option);
    }
}

pub(super) fn tell(work: &mut Work, mut transform: Transform) {
    let class = transform.class.as_str();
    let remedy = KNOWN.iter().find(|(end, _)| class.ends_with(end));
    let (fate, text) = match remedy {
        Some((_, remedy)) => (Fate::NotPossible, format!("{class}: {remedy}")),
        None if class.ends_with("ExtractNewRecordState") => match work.has_ordinary {
            true => (
                Fate::NotPossible,
                "changes of the ordinary tables come in the sink's `envelope`, whose `after` is the row: there is no form without \
                 one, so let consumers read `after`, or leave these tables to the connector"
                    .to_owned(),
            ),
            false => (Fate::NotNeeded, "outbox events need no unwrapping".to_owned()),
        },
        None => (
            Fate::NotPossible,
            format!("{class} is not known here: what it does to records is to be done by the application, or the consumer"),
        ),
    };
    work.report.add(fate, &transform.option, text);
    if let Some(predicate) = &transform.predicate {
        let text = format!(
            "the transform leaves all other records as they are: see {}",
            transform.option
        );
        work.report.add(fate, &predicate.option, text);
    }
    for (_, given) in transform.settings.take_rest() {
        work.report.add(fate, given.option, format!("see {}", transform.option));
    }
}

/// The column with a row's context, from the transform that makes spans of it.
pub(super) fn take_tracer(work: &mut Work, mut tracer: Transform) -> Given {
    work.taken(&tracer.option, "spec.processors[].columns.trace");
    work.different(
        &tracer.option,
        "no span of its own is made: the row's context goes on as it is, in headers",
    );
    let column = tracer.settings.take("tracing.span.context.field");
    for (_, given) in tracer.settings.take_under("tracing.") {
        work.not_needed(&given.option, "no span of its own is made");
    }
    if let Some(given) = &column {
        work.taken(&given.option, "spec.processors[].columns.trace");
    }
    let column = column.unwrap_or_else(|| Given {
        option: tracer.option.clone(),
        value: TRACE_COLUMN.to_owned(),
    });
    tell_rest(work, tracer);
    column
}

/// A filter that leaves out what `skipped.operations` does, of ordinary tables.
pub(super) fn take_skipped(work: &mut Work, has_outbox_tables: bool) -> Option<Mapping> {
    const OPERATIONS: [(&str, &str); 4] = [("c", "insert"), ("u", "update"), ("d", "delete"), ("t", "truncate")];
    let given = work.take("skipped.operations");
    let skipped = given
        .as_ref()
        .map_or("t", |given| given.value.as_str())
        .to_ascii_lowercase();
    let skips = |operation: &str| list(&skipped).any(|skipped| skipped == operation);
    let option = given
        .as_ref()
        .map_or("skipped.operations, by default", |given| given.option.as_str());
    if has_outbox_tables && skips("c") {
        work.not_possible(
            option,
            "without INSERTs no event comes from an outbox's table there: leave them out here by `tables` of a processor",
        );
    }
    if !work.has_ordinary {
        if let Some(given) = given.filter(|_| !skips("c")) {
            work.not_needed(&given.option, "only INSERTs of an outbox are events");
        }
        return None;
    }
    let kept: Vec<String> = OPERATIONS
        .iter()
        .filter(|(operation, _)| !skips(operation))
        .map(|(_, ours)| (*ours).to_owned())
        .collect();
    if kept.is_empty() {
        work.not_possible(
            option,
            "nothing of the ordinary tables is published then: leave out `tables` of the source",
        );
        return None;
    }
    if let Some(given) = &given {
        work.taken(&given.option, "spec.processors[].ops of the filter");
    }
    if kept.len() == OPERATIONS.len() {
        return None;
    }
    let mut filter = Mapping::default();
    filter.set("type", Node::text("filter"), "changes of tables that no router takes");
    filter.set("ops", Node::Texts(kept), option);
    Some(filter)
}
