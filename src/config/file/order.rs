//! Which processors can see what they are for: an outbox processor takes events for good.

use crate::config::pattern::OutboxPattern;
use crate::config::pipeline::Source;
use crate::config::reader::{Field, Reader};

/// A processor that must see outbox events before one of type `outbox` takes them.
pub(super) struct Inspector<'n> {
    pub(super) field: Field<'n>,
    /// Its type.
    pub(super) kind: &'static str,
    pub(super) tables: Vec<OutboxPattern>,
    /// The outbox processors before it, by their places in the list, with their `tables`.
    pub(super) behind: Vec<(usize, Vec<OutboxPattern>)>,
}

/// An outbox as the source selects it.
struct Selected {
    pattern: OutboxPattern,
    /// Whether its messages have it as their prefix; else it is a table.
    is_prefix: bool,
}

/// Refuses each of which no outbox is left that it is for, and notes where some are not.
pub(super) fn check(reader: &mut Reader<'_>, source: &Source, inspectors: &[Inspector<'_>]) {
    let outboxes = selected(source);
    for inspector in inspectors {
        let is_for = |outbox: &&Selected| {
            inspector.tables.is_empty() || inspector.tables.iter().any(|pattern| overlap(pattern, outbox))
        };
        let wanted: Vec<&Selected> = outboxes.iter().filter(is_for).collect();
        let taken = wanted.iter().filter_map(|outbox| {
            let earlier = inspector.behind.iter().find(|(_, tables)| take_all_of(tables, outbox));
            earlier.map(|(index, _)| (*index, outbox.pattern.as_str()))
        });
        let taken: Vec<(usize, &str)> = taken.collect();
        let Some((index, outbox)) = taken.first() else { continue };
        let taken_first = format!("processors[{index}] takes what is of `{outbox}` before this one can see it");
        let kind = inspector.kind;
        if taken.len() == wanted.len() {
            let message = format!(
                "{taken_first}: put processors of type `{kind}` in front of those of type `outbox`, or name only ordinary tables \
                 in `tables`"
            );
            reader.refuse(&inspector.field, message);
        } else {
            reader.note(&inspector.field, taken_first);
        }
    }
}

/// Notes the names that no outbox of the source has, as far as it can be told.
pub(super) fn check_names(reader: &mut Reader<'_>, source: &Source, named: &[(Field<'_>, OutboxPattern)]) {
    let outboxes = selected(source);
    let known: Vec<String> = outboxes
        .iter()
        .map(|outbox| format!("`{}`", outbox.pattern.as_str()))
        .collect();
    for (field, pattern) in named {
        let is_other = |outbox: &Selected| can_tell(pattern, outbox) && !overlap(pattern, outbox);
        if !outboxes.is_empty() && outboxes.iter().all(is_other) {
            let message = format!(
                "matches no outbox of the source, which has {}: what no processor takes is unroutable",
                known.join(", ")
            );
            reader.note(field, message);
        }
    }
}

/// Whether [`overlap`] can be told for sure: of a name, against another, or against a pattern that says as much of the schema.
fn can_tell(pattern: &OutboxPattern, outbox: &Selected) -> bool {
    let has_dot = |pattern: &OutboxPattern| pattern.as_str().contains('.');
    match (pattern.is_literal(), outbox.pattern.is_literal()) {
        (true, true) => true,
        (false, false) => false,
        _ => outbox.is_prefix || has_dot(pattern) == has_dot(&outbox.pattern),
    }
}

fn selected(source: &Source) -> Vec<Selected> {
    let pattern = |text: &str, is_prefix| {
        // A pattern of either kind is one of outboxes too.
        let pattern = OutboxPattern::parse(text).ok()?;
        Some(Selected { pattern, is_prefix })
    };
    let (prefixes, tables) = match source {
        Source::Postgres(postgres) => (&postgres.outbox.prefixes[..], &postgres.outbox.tables),
        Source::Mysql(mysql) => (&[][..], &mysql.outbox),
    };
    let prefixes = prefixes.iter().filter_map(|prefix| pattern(prefix.as_str(), true));
    prefixes
        .chain(tables.iter().filter_map(|table| pattern(table.as_str(), false)))
        .collect()
}

/// Whether there is an outbox of both, as far as it can be told: of two patterns, one must match the other's text.
fn overlap(pattern: &OutboxPattern, outbox: &Selected) -> bool {
    matches(pattern, outbox.pattern.as_str(), outbox.is_prefix)
        || matches(&outbox.pattern, pattern.as_str(), outbox.is_prefix)
}

/// Whether an outbox processor with these `tables` takes all that the source has of an outbox.
fn take_all_of(tables: &[OutboxPattern], outbox: &Selected) -> bool {
    let covers = |pattern: &OutboxPattern| {
        // A `?` would match a `*`, and not what that stands for.
        let can_tell = outbox.pattern.is_literal() || !pattern.as_str().contains('?');
        pattern.as_str() == outbox.pattern.as_str()
            || can_tell && matches(pattern, outbox.pattern.as_str(), outbox.is_prefix)
    };
    tables.is_empty() || tables.iter().any(covers)
}

fn matches(pattern: &OutboxPattern, name: &str, is_prefix: bool) -> bool {
    match name.split_once('.') {
        _ if is_prefix => pattern.matches_prefix(name),
        Some((schema, table)) => pattern.matches_table(schema, table),
        // In any schema, and so must the pattern be.
        None => !pattern.as_str().contains('.') && pattern.matches_table("", name),
    }
}
