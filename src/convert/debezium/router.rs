//! The event router's options as those of an outbox processor.

use super::Database;
use super::converters::{Formats, KeyFormat, PayloadFormat};
use super::names;
use super::settings::{Given, list};
use super::transforms::Transform;
use super::work::Work;
use crate::config::{Rewrite, Template};
use crate::convert::yaml::{Mapping, Node};

pub(super) const CLASS: &str = ".EventRouter";
const PROCESSOR: &str = "spec.processors[]";

/// What a router's events are.
pub(super) struct Outboxes<'a> {
    pub(super) database: Database,
    /// Messages of the log, decoded by a transform in front of the router.
    pub(super) are_messages: bool,
    /// Patterns, where this router does not take all.
    pub(super) chosen: Option<&'a [String]>,
    pub(super) formats: &'a Formats,
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
    processor.set("columns", Node::Mapping(columns(work, router, &mut placements)), "");
    processor.set(
        "header_names",
        Node::Mapping(header_names()),
        "the headers of the router",
    );
    set_placed(work, &mut processor, router, &placements);
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
        "no span of its own is made: the context goes on as it is",
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
    put(work, &mut route, &path, "by", Node::text(by.value.clone()), &by);
    let regex = setting(router, "route.topic.regex", "(?<routedByValue>.*)");
    let replacement = setting(router, "route.topic.replacement", "outbox.event.${routedByValue}");
    let expression = names::translated(&regex.value);
    let ours = replacement_of(&replacement.value);
    let usable = Template::parse(&ours)
        .map_err(|error| error.to_string())
        .and_then(|template| Rewrite::new(&expression, &template).map_err(|error| error.to_string()));
    if let Err(reason) = usable {
        let option = if regex.is_given {
            &regex.option
        } else {
            &replacement.option
        };
        work.not_possible(
            option,
            format!(
                "{reason}: write one without look-around, back references and possessive quantifiers into {path}.regex"
            ),
        );
    }
    put(work, &mut route, &path, "regex", Node::text(expression), &regex);
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

/// A router's option or its default.
struct Choice {
    value: String,
    option: String,
    is_given: bool,
}

fn setting(router: &mut Transform, name: &str, default: &str) -> Choice {
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
fn put(work: &mut Work, mapping: &mut Mapping, path: &str, key: &str, node: Node, choice: &Choice) {
    match choice.is_given {
        true => work.place(mapping, path, key, node, &choice.option),
        false => mapping.set(key, node, format!("{}, by default", choice.option)),
    }
}

fn columns(work: &mut Work, router: &mut Transform, placements: &mut Placements) -> Mapping {
    let path = format!("{PROCESSOR}.columns");
    let mut columns = Mapping::default();
    let fields = [
        ("event_id", "table.field.event.id", "id"),
        ("aggregate_id", "table.field.event.key", "aggregateid"),
        ("payload", "table.field.event.payload", "payload"),
    ];
    for (key, name, default) in fields {
        let field = setting(router, name, default);
        put(work, &mut columns, &path, key, Node::text(field.value.clone()), &field);
    }
    match router.settings.take("table.field.event.timestamp") {
        Some(given) if work.has_no_record_times() => {
            work.not_needed(
                &given.option,
                "Debezium Server sends no times of its own: records have the commit's",
            );
        }
        Some(given) => work.place(
            &mut columns,
            &path,
            "timestamp",
            Node::text(given.value.clone()),
            &given.option,
        ),
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
    if let Some(given) = router.settings.take("tracing.span.context.field") {
        work.place(
            &mut columns,
            &path,
            "trace",
            Node::text(given.value.clone()),
            &given.option,
        );
    }
    columns
}

fn header_names() -> Mapping {
    let mut names = Mapping::default();
    names.set("event_id", Node::text("id"), "");
    for ours in ["aggregate_type", "aggregate_id", "event_type"] {
        names.set(ours, Node::Plain("null".to_owned()), "");
    }
    names
}

/// Columns that the router places beside what it always has.
#[derive(Default)]
struct Placements {
    option: String,
    headers: Vec<(String, String)>,
    members: Vec<(String, String)>,
    partition: Option<(String, String)>,
}

/// `column:header`, `column:envelope:name`, `column:partition`.
fn placements(work: &mut Work, router: &mut Transform) -> Placements {
    let mut placements = Placements::default();
    let Some(given) = router.settings.take("table.fields.additional.placement") else {
        return placements;
    };
    placements.option.clone_from(&given.option);
    for placement in list(&given.value) {
        let parts: Vec<&str> = placement.split(':').map(str::trim).collect();
        let (column, place, name) = match parts[..] {
            [column, place] => (column, place, column),
            [column, place, name] => (column, place, name),
            _ => ("", "", ""),
        };
        let named = (name.to_owned(), column.to_owned());
        match place.to_ascii_lowercase().as_str() {
            "header" if name == "id" => work.not_possible(
                &given.option,
                format!("`{placement}`: the event's id is there by this name; place it by another"),
            ),
            "header" => placements.headers.push(named),
            "envelope" if name == "payload" => work.not_possible(
                &given.option,
                format!("`{placement}`: the payload is there by this name; place it by another"),
            ),
            "envelope" => placements.members.push(named),
            "partition" => placements.partition = Some((column.to_owned(), given.option.clone())),
            _ => work.not_possible(
                &given.option,
                format!("`{placement}` is no placement: place it by hand"),
            ),
        }
    }
    work.taken(
        &given.option,
        &format!("{PROCESSOR}.additional_headers, .envelope_fields and .columns.partition"),
    );
    placements
}

fn set_placed(work: &mut Work, processor: &mut Mapping, router: &mut Transform, placements: &Placements) {
    for (key, placed) in [
        ("additional_headers", &placements.headers),
        ("envelope_fields", &placements.members),
    ] {
        if placed.is_empty() {
            continue;
        }
        let mut mapping = Mapping::default();
        for (name, column) in placed {
            mapping.set(name, Node::text(column.clone()), "");
        }
        processor.set(key, Node::Mapping(mapping), &placements.option);
    }
    let missing = setting(router, "table.field.additional.missing", "error");
    let is_placed = !placements.headers.is_empty() || !placements.members.is_empty();
    if is_placed {
        let word = if missing.value.eq_ignore_ascii_case("ignore") {
            "skip"
        } else {
            "reject"
        };
        put(work, processor, PROCESSOR, "on_missing", Node::text(word), &missing);
        processor.set(
            "on_null",
            Node::text("keep"),
            "placed columns that are NULL are there, too",
        );
    } else if missing.is_given {
        work.not_needed(&missing.option, "no column is placed");
    }
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
    set_drops(work, processor, router, is_expanded, formats.messages_keep_nulls);
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
                (false, Database::Mysql | Database::Mariadb) => {
                    Some(("compact", "JSON columns are without blanks there".to_owned()))
                }
                (false, Database::Postgres) => None,
            }
        }
        PayloadFormat::Json { .. } if expand.is_some() || outboxes.are_messages => {
            Some((EXPANDED, formats.payload_option.clone()))
        }
        PayloadFormat::Json { .. } => {
            if outboxes.database != Database::Postgres {
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
