//! Keys that hold templates, and what is legal in a topic.

use crate::config::error::Problem;
use crate::config::placeholder::{self, Segment, is_in_capitals};
use crate::config::reader::{Field, Read, Reader};
use crate::config::schema::Takes;
use crate::config::shown::describe;
use crate::config::suggest::nearest;
use crate::config::template::{Part, Template, TemplateError, asks_environment};

/// Reads a template: placeholders are event fields, but for `${env:NAME}`, `${file:/path}`, and what DeltaForge took from the
/// environment by the looks of its name.
pub(super) fn read_template(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<Template> {
    let source = reader.as_written(field, Takes::Template)?;
    let segments = match placeholder::split(source) {
        Ok(segments) => segments,
        Err(message) => return Err(reader.report(field, Problem::Placeholder { message })),
    };
    let mut template = Template::empty();
    let mut result = Ok(());
    for segment in segments {
        match segment {
            Segment::Literal(text) => template.push_literal(&text),
            Segment::Placeholder(asked) if asks_environment(asked) => {
                match placeholder::resolve(asked, reader.environment) {
                    Ok(text) => template.push_literal(&text),
                    Err(problem) => result = Err(reader.report(field, problem)),
                }
            }
            Segment::Placeholder(name) => match deltaforge_variable(reader, name) {
                Some(text) => {
                    template.push_literal(&text);
                    reader.note(
                        field,
                        format!("`${{{name}}}` is taken from the environment; write `${{env:{name}}}`"),
                    );
                }
                None => {
                    if let Err(err) = template.push_field(name) {
                        let example = if err == TemplateError::FieldDefault {
                            ""
                        } else {
                            "; write `$${` for the characters themselves"
                        };
                        result = Err(reader.refuse(field, format!("{err}{example}")));
                    }
                }
            },
        }
    }
    result.map(|()| template)
}

fn deltaforge_variable(reader: &Reader<'_>, name: &str) -> Option<String> {
    if reader.is_deltaforge() && is_in_capitals(name) {
        reader.environment.variable(name)
    } else {
        None
    }
}

/// Reads a template that is filled in from whole changes too, as those of sinks are.
pub(super) fn read_change_template(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<Template> {
    let template = read_template(reader, field)?;
    template
        .fields()
        .for_each(|path| note_unknown_fact(reader, field, path));
    Ok(template)
}

/// The same of a topic.
pub(super) fn read_change_topic(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<Template> {
    let template = read_topic_template(reader, field)?;
    template
        .fields()
        .for_each(|path| note_unknown_fact(reader, field, path));
    Ok(template)
}

const FACTS: [&str; 4] = ["name", "db", "schema", "table"];

/// Says of a member of `source` that is none what it is then: a table may have a JSON column of that name.
pub(super) fn note_unknown_fact(reader: &mut Reader<'_>, field: &Field<'_>, path: &[String]) {
    let [source, word, ..] = path else { return };
    if source != "source" || (path.len() == 2 && FACTS.contains(&word.as_str())) {
        return;
    }
    let written = path.join(".");
    let meant = nearest(word, FACTS).map_or_else(String::new, |meant| format!("; did you mean `source.{meant}`?"));
    reader.note(
        field,
        format!(
            "`{written}` is looked for in a field `source` of the event's own: of a change itself there are `source.name`, \
             `source.db`, `source.schema` and `source.table`{meant}"
        ),
    );
}

/// Kafka's own rule for a topic's name.
const TOPIC: &str = "a topic of a-z, A-Z, 0-9, `.`, `_` and `-`, 1 to 249 characters, neither `.` nor `..`";

fn is_topic(name: &str) -> bool {
    !name.is_empty() && is_topic_text(name) && name != "." && name != ".."
}

fn is_topic_text(text: &str) -> bool {
    text.len() <= 249
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

/// A topic that is the same for every event, with its place in the file.
pub(super) struct FixedTopic<'n> {
    pub(super) name: String,
    pub(super) field: Field<'n>,
}

impl<'n> FixedTopic<'n> {
    /// None: it differs from event to event.
    pub(super) fn of_template(template: &Template, field: &Field<'n>) -> Option<Self> {
        template.is_constant().then(|| Self {
            name: template.to_string(),
            field: field.clone(),
        })
    }
}

/// A header that a processor sets by a name of the file's own.
pub(super) struct FixedHeader<'n> {
    pub(super) name: String,
    pub(super) field: Field<'n>,
}

/// A topic that is the same for every event.
pub(super) fn read_topic(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<String> {
    let text = reader.text(field)?;
    if is_topic(&text.value) {
        Ok(text.value)
    } else {
        Err(reader.unexpected(field, TOPIC, text.found()))
    }
}

/// A template whose literal text is legal in a topic; what its fields bring is seen event by event.
pub(super) fn read_topic_template(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<Template> {
    let template = read_template(reader, field)?;
    let literals: String = template
        .parts()
        .iter()
        .filter_map(|part| match part {
            Part::Literal(text) => Some(text.as_str()),
            Part::Field(_) => None,
        })
        .collect();
    let legal = if template.is_constant() {
        is_topic(&literals)
    } else {
        is_topic_text(&literals)
    };
    if legal {
        return Ok(template);
    }
    Err(reader.unexpected(field, TOPIC, describe(&field.node.value)))
}
