//! The event router's options as those of an outbox processor.

use super::Database;
use super::converters::{Formats, KeyFormat, PayloadFormat};
use super::java;
use super::others::TRACE_COLUMN;
use super::placed::{Placements, placements, set_json, set_placed};
use super::settings::Given;
use super::transforms::Transform;
use super::work::Work;
use crate::config::{Rewrite, Template};
use crate::convert::yaml::{Mapping, Node};

pub(super) const CLASS: &str = "io.debezium.transforms.outbox.EventRouter";
pub(super) const PROCESSOR: &str = "spec.processors[]";

/// What a router's events are.
pub(super) struct Outboxes<'a> {
    pub(super) database: Database,
    /// Messages of the log, decoded by a transform in front of the router.
    pub(super) are_messages: bool,
    /// Patterns, where this router does not take all.
    pub(super) chosen: Option<&'a [String]>,
    pub(super) formats: &'a Formats,
    /// The column of a row's trace, where a transform beside the router makes spans of it.
    pub(super) trace: Option<&'a Given>,
}

/// The processor that does what this router does.
pub(super) fn processor(work: &mut Work, router: &mut Transform, outboxes: &Outboxes<'_>) -> Mapping {
    let mut processor = Mapping::default();
    processor.set("type", Node::text("outbox"), &router.option);
    work.taken(&router.option, &format!("{PROCESSOR}.type"));
    if let Some(chosen) = outboxes.chosen {
        let comment = router.predicate.as_ref().map_or("", |predicate| &predicate.option);
        processor.set("tables", Node::Texts(chosen.to_vec()), comment);
    }
    let route = route(work, router);
    processor.set("route", Node::Mapping(route), "");
    let mut placements = placements(work, router);
    let columns = columns(work, router, outboxes, &mut placements);
    placements.by_column = columns.has("partition") || columns.has("timestamp");
    processor.set("columns", Node::Mapping(columns), "");
    processor.set(
        "header_names",
        Node::Mapping(header_names()),
        "the headers of the router",
    );
    set_placed(work, &mut processor, router, &placements);
    set_json(work, &mut processor, &placements, outboxes.database);
    set_formats(work, &mut processor, router, outboxes, !placements.members.is_empty());
    set_on_update(work, &mut processor, router, outboxes.are_messages);
    for (name, why) in NOT_NEEDED {
        if let Some(given) = router.settings.take(name) {
            work.not_needed(&given.option, why);
        }
    }
    processor
}

const NOT_NEEDED: [(&str, &str); 4] = [
    ("table.field.event.type", "the router itself does nothing with it"),
    ("table.field.event.schema.version", "values have no Connect schema here"),
    (
        "tracing.operation.name",
        "no span of its own is made: the row's context goes on as it is",
    ),
    (
        "tracing.with.context.field.only",
        "only rows with a context have its headers",
    ),
];

/// Topic by a regular expression: what the router does, too.
fn route(work: &mut Work, router: &mut Transform) -> Mapping {
    let path = format!("{PROCESSOR}.route");
    let mut route = Mapping::default();
    let by = setting(router, "route.by.field", "aggregatetype");
    let column = work.value(&by.given());
    put(work, &mut route, &path, "by", Node::text(column), &by);
    let regex = setting(router, "route.topic.regex", "(?<routedByValue>.*)");
    let replacement = setting(router, "route.topic.replacement", "outbox.event.${routedByValue}");
    let expression = java::translated(&regex.value);
    // The expression stands for the value of any variable in the topic.
    let groups = replacement_of(&without_placeholders(&replacement.value));
    match Template::parse(&groups) {
        Err(error) => work.not_possible(
            &replacement.option,
            format!("{error}: write the topic into {path}.replacement, with the expression's groups as `${{name}}`"),
        ),
        Ok(template) => {
            let refused = match &expression {
                Some(expression) => Rewrite::new(expression, &template).err().map(|error| error.to_string()),
                None => Some("a possessive quantifier would repeat what it stands behind here".to_owned()),
            };
            if let Some(error) = refused {
                let option = if regex.is_given {
                    &regex.option
                } else {
                    &replacement.option
                };
                work.not_possible(
                    option,
                    format!(
                        "{error}: write one into {path}.regex that has the replacement's groups, and no look-around, back \
                         reference or possessive quantifier"
                    ),
                );
            }
        }
    }
    let ours = work.template(&replacement.given(), replacement_of);
    // Without it the file is none, until a person writes one.
    if let Some(expression) = expression {
        put(work, &mut route, &path, "regex", Node::text(expression), &regex);
    }
    put(work, &mut route, &path, "replacement", Node::text(ours), &replacement);
    if regex.is_given {
        work.different(
            &regex.option,
            "a value that does not match is unroutable (`spec.errors.unroutable`), where the router takes it for a topic's name",
        );
    }
    route
}

/// Java's `$1`, `${name}` and `\$` as a template.
fn replacement_of(java: &str) -> String {
    let mut out = String::with_capacity(java.len() + 8);
    let mut characters = java.chars().peekable();
    while let Some(character) = characters.next() {
        match (character, characters.peek().copied()) {
            ('\\', Some(next)) => {
                characters.next();
                push_literal(&mut out, next);
            }
            ('$', Some('{')) => out.push('$'),
            ('$', Some(digit)) if digit.is_ascii_digit() => {
                characters.next();
                out.extend(["${", &digit.to_string(), "}"]);
            }
            (other, _) => push_literal(&mut out, other),
        }
    }
    out
}

fn push_literal(out: &mut String, character: char) {
    out.push(character);
    if character == '$' {
        out.push('$');
    }
}

/// Placeholders of variables left out: what has a provider is no group of an expression.
fn without_placeholders(replacement: &str) -> String {
    let mut out = String::new();
    let mut rest = replacement;
    while let Some((before, after)) = rest.split_once("${") {
        out.push_str(before);
        match after.split_once('}') {
            Some((inside, after)) if inside.contains(':') => rest = after,
            _ => {
                out.push_str("${");
                rest = after;
            }
        }
    }
    out.push_str(rest);
    out
}

/// A router's option or its default.
pub(super) struct Choice {
    pub(super) value: String,
    pub(super) option: String,
    pub(super) is_given: bool,
}

impl Choice {
    fn given(&self) -> Given {
        Given {
            option: self.option.clone(),
            value: self.value.clone(),
        }
    }
}

pub(super) fn setting(router: &mut Transform, name: &str, default: &str) -> Choice {
    match router.settings.take(name).filter(|given| !given.value.is_empty()) {
        Some(given) => Choice {
            value: given.value,
            option: given.option,
            is_given: true,
        },
        None => Choice {
            value: default.to_owned(),
            option: format!("transforms.{}.{name}", router.alias),
            is_given: false,
        },
    }
}

/// Puts it into the file, and into the report where it was given.
pub(super) fn put(work: &mut Work, mapping: &mut Mapping, path: &str, key: &str, node: Node, choice: &Choice) {
    match choice.is_given {
        true => work.place(mapping, path, key, node, &choice.option),
        false => mapping.set(key, node, format!("{}, by default", choice.option)),
    }
}

fn columns(work: &mut Work, router: &mut Transform, outboxes: &Outboxes<'_>, placements: &mut Placements) -> Mapping {
    let path = format!("{PROCESSOR}.columns");
    let mut columns = Mapping::default();
    let fields = [
        ("event_id", "table.field.event.id", "id"),
        ("aggregate_id", "table.field.event.key", "aggregateid"),
        ("payload", "table.field.event.payload", "payload"),
    ];
    for (key, name, default) in fields {
        let field = setting(router, name, default);
        let column = work.value(&field.given());
        put(work, &mut columns, &path, key, Node::text(column), &field);
    }
    match router.settings.take("table.field.event.timestamp") {
        Some(given) if work.has_no_record_times() => {
            work.not_needed(
                &given.option,
                "Debezium Server sends no times of its own: records have the commit's",
            );
        }
        Some(given) => {
            let column = work.value(&given);
            work.place(&mut columns, &path, "timestamp", Node::text(column), &given.option);
        }
        None => work.different(
            &format!("transforms.{}.table.field.event.timestamp", router.alias),
            "records have the time of the commit, where the connector's is that of its own reading",
        ),
    }
    if let Some((column, option)) = placements.partition.take() {
        match work.has_no_record_times() {
            true => work.not_needed(&option, "Debezium Server places no partition: the key decides"),
            false => columns.set("partition", Node::text(column), option),
        }
    }
    set_trace(work, router, outboxes, &path, &mut columns);
    columns
}

/// The router looks at a column by itself, where the worker has what makes spans: told by any option of that.
fn set_trace(work: &mut Work, router: &mut Transform, outboxes: &Outboxes<'_>, path: &str, columns: &mut Mapping) {
    let own = router.settings.take("tracing.span.context.field");
    let traces = ["tracing.operation.name", "tracing.with.context.field.only"];
    let is_meant = traces.iter().any(|name| router.settings.get(name).is_some());
    match (own, outboxes.trace) {
        (Some(given), _) => {
            let column = work.value(&given);
            work.place(columns, path, "trace", Node::text(column), &given.option);
        }
        (None, Some(given)) => columns.set("trace", Node::text(given.value.clone()), &given.option),
        (None, None) if is_meant => columns.set(
            "trace",
            Node::text(TRACE_COLUMN),
            format!("transforms.{}.tracing.span.context.field, by default", router.alias),
        ),
        (None, None) => {}
    }
}

fn header_names() -> Mapping {
    let mut names = Mapping::default();
    names.set("event_id", Node::text("id"), "");
    for ours in ["aggregate_type", "aggregate_id", "event_type"] {
        names.set(ours, Node::Plain("null".to_owned()), "");
    }
    names
}

/// How keys, payloads and headers are written.
fn set_formats(
    work: &mut Work,
    processor: &mut Mapping,
    router: &mut Transform,
    outboxes: &Outboxes<'_>,
    has_members: bool,
) {
    let formats = outboxes.formats;
    processor.set("raw_payload", Node::flag(true), "");
    processor.set(
        "keep_empty_key",
        Node::flag(true),
        "an empty key has its partition there, too",
    );
    if let KeyFormat::Json { schema } = &formats.key {
        processor.set("key_as", Node::text("json"), &formats.key_option);
        if let Some(schema) = schema {
            processor.set("key_schema", Node::text(schema.clone()), "");
        }
    }
    if formats.headers_are_json {
        processor.set("headers_as", Node::text("json"), &formats.header_option);
    }
    let expand = router.settings.take_flag("table.expand.json.payload");
    let form = payload_form(work, outboxes, expand.as_ref(), has_members);
    if let Some((word, comment)) = &form {
        processor.set("payload_as", Node::text(*word), comment);
    }
    if let Some((given, _)) = expand {
        work.taken(&given.option, &format!("{PROCESSOR}.payload_as"));
    }
    let is_expanded = form.is_some_and(|(word, _)| word == EXPANDED);
    let keeps_nulls = outboxes.are_messages && formats.messages_keep_nulls;
    set_drops(work, processor, router, is_expanded, keeps_nulls);
    if let PayloadFormat::Json { schema: Some(schema) } = &formats.payload {
        match is_expanded || has_members {
            true => work.not_possible(
                &formats.payload_option,
                "schemas of expanded payloads and of placed columns: values come without a schema, as with `schemas.enable=false`",
            ),
            false => processor.set("payload_schema", Node::text(schema.clone()), ""),
        }
    }
    if let Some((given, flag)) = router.settings.take_flag("route.tombstone.on.empty.payload") {
        work.place(
            processor,
            PROCESSOR,
            "tombstone_on_empty",
            Node::flag(flag),
            &given.option,
        );
    }
}

const EXPANDED: &str = "expanded";

/// The word of `payload_as`, and what stands behind it. None: the payload as it is.
fn payload_form(
    work: &mut Work,
    outboxes: &Outboxes<'_>,
    expand: Option<&(Given, bool)>,
    has_members: bool,
) -> Option<(&'static str, String)> {
    let formats = outboxes.formats;
    let expand = expand.filter(|(_, flag)| *flag).map(|(given, _)| &given.option);
    match &formats.payload {
        PayloadFormat::Text => {
            if let Some(option) = expand {
                work.different(
                    option,
                    "with this converter it makes `Struct{…}` of JSON: the payload is sent as it is here",
                );
            }
            if has_members {
                work.different(
                    &formats.payload_option,
                    "with this converter placed columns make `Struct{…}`: a JSON object here",
                );
            }
            match (outboxes.are_messages, outboxes.database) {
                (true, _) => Some(("text", "a JSON string in a message is its content".to_owned())),
                (false, Database::Mysql) => Some(("compact", "JSON columns are without blanks there".to_owned())),
                // MariaDB's JSON is a text.
                (false, Database::Postgres | Database::Mariadb) => None,
            }
        }
        PayloadFormat::Json { .. } if expand.is_some() || outboxes.are_messages => {
            Some((EXPANDED, formats.payload_option.clone()))
        }
        PayloadFormat::Json { .. } => {
            work.different(
                &formats.payload_option,
                "a binary payload is Base64 there; here one that is no text is `invalid`, and halts by default: for bytes leave out \
                 `payload_as`",
            );
            if outboxes.database == Database::Mysql {
                work.different(
                    &formats.payload_option,
                    "of a JSON column the text in the string has a blank behind each `,` and `:`, as MySQL prints it",
                );
            }
            Some(("json_string", formats.payload_option.clone()))
        }
    }
}

/// What an expansion leaves out.
fn set_drops(
    work: &mut Work,
    processor: &mut Mapping,
    router: &mut Transform,
    is_expanded: bool,
    messages_keep_nulls: bool,
) {
    let nulls = router.settings.take("table.json.payload.null.behavior");
    let arrays = router.settings.take("table.json.payload.empty.array.behavior");
    let keeps_nulls = nulls.as_ref().is_some_and(|given| given.is("optional_bytes")) || messages_keep_nulls;
    let keeps_arrays = arrays.as_ref().is_some_and(|given| given.is("optional_string"));
    for (given, key, drops) in [
        (nulls, "drop_null_members", !keeps_nulls),
        (arrays, "drop_empty_arrays", !keeps_arrays),
    ] {
        let option = given.map(|given| given.option);
        match (is_expanded, option) {
            (true, Some(option)) => work.place(processor, PROCESSOR, key, Node::flag(drops), &option),
            (true, None) => processor.set(key, Node::flag(drops), ""),
            (false, Some(option)) => work.not_needed(&option, "payloads are not expanded"),
            (false, None) => {}
        }
    }
}

fn set_on_update(work: &mut Work, processor: &mut Mapping, router: &mut Transform, are_messages: bool) {
    let Some(given) = router.settings.take("table.op.invalid.behavior") else {
        return;
    };
    if are_messages {
        return work.not_needed(&given.option, "nobody updates a message");
    }
    let word = match given.value.to_ascii_lowercase().as_str() {
        "fatal" => "halt",
        "warn" | "error" => "warn",
        _ => "skip",
    };
    work.place(processor, PROCESSOR, "on_update", Node::text(word), &given.option);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn java_s_replacements_are_templates() {
        let cases = [
            ("outbox.event.${routedByValue}", "outbox.event.${routedByValue}"),
            ("$2.from.$1", "${2}.from.${1}"),
            (r"a\$b\.c", "a$$b.c"),
            ("plain", "plain"),
            ("cost$", "cost$$"),
        ];
        for (java, ours) in cases {
            assert_eq!(replacement_of(java), ours, "{java}");
        }
    }
}
